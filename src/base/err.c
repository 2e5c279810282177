/*
 * The error table as data, and the last-resort translation of internal codes. Modules translate at
 * their edges with what they know; sf_err_public only keeps an internal code from ever leaving the
 * process.
 */
#include "base/err.h"

#include <string.h>

static const struct sf_err_info err_table[SF_ERR_COUNT] = {
#define SF_ERR_ROW(name, text, cls, grpc, http, retry, keys, doc)                                  \
    [name] = {#name, text, SF_CLASS_##cls, SF_GRPC_##grpc, http, retry, keys, doc},
    SF_ERR_TABLE(SF_ERR_ROW)
#undef SF_ERR_ROW
};

const struct sf_err_info *sf_err_info(enum sf_err err)
{
    SF_ASSERT((unsigned)err < SF_ERR_COUNT);
    return &err_table[err];
}

enum sf_err sf_err_from_code(const char *code)
{
    if (code == NULL || code[0] == '\0')
        return SF_ERR_COUNT;
    for (unsigned i = 0; i < SF_ERR_COUNT; i++) {
        if (strcmp(err_table[i].code, code) == 0)
            return (enum sf_err)i;
    }
    return SF_ERR_COUNT;
}

enum sf_err sf_err_public(enum sf_err err)
{
    if (err == SF_OK || sf_err_info(err)->code[0] != '\0')
        return err;
    switch (err) {
    case SF_ERR_NOT_FOUND:
        return SF_RESOURCE_NOT_FOUND;
    case SF_ERR_PRECONDITION:
    case SF_ERR_EXISTS:
        return SF_VERSION_CONFLICT;
    case SF_ERR_PARSE:
        return SF_INVALID_ARGUMENT;
    case SF_ERR_LIMIT:
        return SF_TOO_MANY_OPERATIONS;
    case SF_ERR_FULL:
        return SF_RATE_LIMITED;
    case SF_ERR_UNAVAILABLE:
    case SF_ERR_AMBIGUOUS:
    case SF_ERR_CANCELLED_STAGE:
    case SF_ERR_DEPOSED:
    case SF_ERR_STOPPED:
    case SF_ERR_LOCKED:
    case SF_ERR_IO:
        return SF_BACKEND_UNAVAILABLE;
    default:
        return SF_INTERNAL;
    }
}
