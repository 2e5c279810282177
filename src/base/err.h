/*
 * The one table of errors. Public codes (SF_*) are the contract of docs/specs/core/error-codes.md,
 * which is generated from this table; internal codes never leave the process and are translated at
 * module edges.
 *
 * Columns: enum name, public text ("" = internal), class, gRPC status, HTTP status, safe to retry
 * under the same idempotency key, required detail keys (comma separated), meaning. Source:
 * spec/contract section 4 (CCS), 5 (allocator, coordinator), OP-02, OP-05, OP-06, A-09.
 */
#ifndef SF_BASE_ERR_H
#define SF_BASE_ERR_H

#include <stdbool.h>

#include "base/compiler.h"

/* What a caller should do about an error. */
enum sf_err_class {
    SF_CLASS_OK,           /* no error */
    SF_CLASS_RETRY_NOW,    /* transient: the same request may succeed at once */
    SF_CLASS_RETRY_LATER,  /* transient: back off first */
    SF_CLASS_CALLER_FAULT, /* the request must change */
    SF_CLASS_CORRUPT,      /* stored bytes do not verify */
    SF_CLASS_FATAL         /* this process must stop serving the thing concerned */
};

/* gRPC status codes (grpc.io: statuscodes), the values that travel in grpc-status. */
enum sf_grpc_status {
    SF_GRPC_OK = 0,
    SF_GRPC_CANCELLED = 1,
    SF_GRPC_UNKNOWN = 2,
    SF_GRPC_INVALID_ARGUMENT = 3,
    SF_GRPC_DEADLINE_EXCEEDED = 4,
    SF_GRPC_NOT_FOUND = 5,
    SF_GRPC_ALREADY_EXISTS = 6,
    SF_GRPC_PERMISSION_DENIED = 7,
    SF_GRPC_RESOURCE_EXHAUSTED = 8,
    SF_GRPC_FAILED_PRECONDITION = 9,
    SF_GRPC_ABORTED = 10,
    SF_GRPC_OUT_OF_RANGE = 11,
    SF_GRPC_UNIMPLEMENTED = 12,
    SF_GRPC_INTERNAL = 13,
    SF_GRPC_UNAVAILABLE = 14,
    SF_GRPC_DATA_LOSS = 15,
    SF_GRPC_UNAUTHENTICATED = 16
};

/* clang-format off */
#define SF_ERR_TABLE(X) \
    X(SF_OK,                   "",                        OK,           OK,                  200, true,  "", "success") \
    /* public contract codes */ \
    X(SF_BAD_REQUEST,          "SF_BAD_REQUEST",          CALLER_FAULT, INVALID_ARGUMENT,    400, false, "field,violation", "the request breaks a rule of its fields; outside AllocateIds and StreamMutations this includes what is missing, unset or unknown") \
    X(SF_INVALID_ARGUMENT,     "SF_INVALID_ARGUMENT",     CALLER_FAULT, INVALID_ARGUMENT,    400, false, "field,violation", "the bytes do not decode; in AllocateIds and StreamMutations also: what makes it a request is missing, unset or unknown") \
    X(SF_UNAUTHENTICATED,      "SF_UNAUTHENTICATED",      CALLER_FAULT, UNAUTHENTICATED,     401, false, "", "the peer did not prove an identity") \
    X(SF_FORBIDDEN,            "SF_FORBIDDEN",            CALLER_FAULT, PERMISSION_DENIED,   403, false, "", "the identity or caller kind may never do this") \
    X(SF_RESOURCE_NOT_FOUND,   "SF_RESOURCE_NOT_FOUND",   CALLER_FAULT, NOT_FOUND,           404, false, "", "no such live resource") \
    X(SF_IDEMPOTENCY_CONFLICT, "SF_IDEMPOTENCY_CONFLICT", CALLER_FAULT, ALREADY_EXISTS,      409, false, "", "the key is taken by another payload") \
    X(SF_VERSION_CONFLICT,     "SF_VERSION_CONFLICT",     RETRY_NOW,    ABORTED,             409, true,  "", "the state moved: lifecycle, fence, revision or burned id") \
    X(SF_OWNERSHIP_CONFLICT,   "SF_OWNERSHIP_CONFLICT",   CALLER_FAULT, FAILED_PRECONDITION, 409, false, "", "truth mode or policy does not admit this caller path") \
    X(SF_TOO_MANY_OPERATIONS,  "SF_TOO_MANY_OPERATIONS",  CALLER_FAULT, RESOURCE_EXHAUSTED,  413, false, "limit_scope,configured_limit,requested_value", "a published ceiling is exceeded") \
    X(SF_RATE_LIMITED,         "SF_RATE_LIMITED",         RETRY_LATER,  RESOURCE_EXHAUSTED,  429, true,  "retry_after_ms,throttled_dimension,server_limit", "bounded work is full; come back later") \
    X(SF_CATALOG_UNAVAILABLE,  "SF_CATALOG_UNAVAILABLE",  RETRY_LATER,  UNAVAILABLE,         503, true,  "catalog_unavailable_reason", "catalog facts are not there yet") \
    X(SF_BACKEND_UNAVAILABLE,  "SF_BACKEND_UNAVAILABLE",  RETRY_LATER,  UNAVAILABLE,         503, true,  "", "durable state cannot be reached or an outcome is unknown") \
    X(SF_UNIMPLEMENTED,        "SF_UNIMPLEMENTED",        CALLER_FAULT, UNIMPLEMENTED,       501, false, "rpc_method", "declared in the contract, not served by this build") \
    X(SF_DEADLINE_EXCEEDED,    "SF_DEADLINE_EXCEEDED",    RETRY_NOW,    DEADLINE_EXCEEDED,   504, true,  "", "the deadline passed before an answer; the outcome is unknown") \
    X(SF_CANCELLED,            "SF_CANCELLED",            CALLER_FAULT, CANCELLED,           499, true,  "", "the caller cancelled") \
    X(SF_INTERNAL,             "SF_INTERNAL",             CORRUPT,      INTERNAL,            500, false, "", "stored state or an invariant is broken; see the log") \
    /* internal codes */ \
    X(SF_ERR_NOT_FOUND,        "",                        CALLER_FAULT, NOT_FOUND,           404, false, "", "the key is absent") \
    X(SF_ERR_PRECONDITION,     "",                        RETRY_NOW,    ABORTED,             409, false, "", "a conditional write lost (412)") \
    X(SF_ERR_UNAVAILABLE,      "",                        RETRY_LATER,  UNAVAILABLE,         503, false, "", "certain: not applied and never will be") \
    X(SF_ERR_AMBIGUOUS,        "",                        RETRY_LATER,  UNAVAILABLE,         503, false, "", "the outcome is unknown") \
    X(SF_ERR_CANCELLED_STAGE,  "",                        RETRY_NOW,    ABORTED,             409, false, "", "not tried: an earlier stage of the command failed") \
    X(SF_ERR_CORRUPT,          "",                        CORRUPT,      DATA_LOSS,           500, false, "", "checksum or format does not verify") \
    X(SF_ERR_PARSE,            "",                        CALLER_FAULT, INVALID_ARGUMENT,    400, false, "", "bytes do not decode") \
    X(SF_ERR_LIMIT,            "",                        CALLER_FAULT, RESOURCE_EXHAUSTED,  413, false, "", "a stated limit is exceeded") \
    X(SF_ERR_FULL,             "",                        RETRY_LATER,  RESOURCE_EXHAUSTED,  429, false, "", "a bounded queue is full") \
    X(SF_ERR_EXISTS,           "",                        CALLER_FAULT, ALREADY_EXISTS,      409, false, "", "there already") \
    X(SF_ERR_DEPOSED,          "",                        FATAL,        ABORTED,             503, false, "", "a newer owner epoch was met; this owner must stop") \
    X(SF_ERR_STOPPED,          "",                        FATAL,        UNAVAILABLE,         503, false, "", "the component is draining or stopped") \
    X(SF_ERR_CONFIG,           "",                        CALLER_FAULT, INVALID_ARGUMENT,    400, false, "", "the configuration is wrong") \
    X(SF_ERR_LOCKED,           "",                        CALLER_FAULT, FAILED_PRECONDITION, 409, false, "", "another process holds the data folder") \
    X(SF_ERR_IO,               "",                        RETRY_LATER,  UNAVAILABLE,         503, false, "", "a local system call failed")
/* clang-format on */

enum sf_err {
#define SF_ERR_ENUM(name, text, cls, grpc, http, retry, keys, doc) name,
    SF_ERR_TABLE(SF_ERR_ENUM)
#undef SF_ERR_ENUM
        SF_ERR_COUNT
};

/* One row of the table. */
struct sf_err_info {
    const char *name;          /* enumerator name */
    const char *code;          /* public SF_* text, "" when internal */
    enum sf_err_class cls;     /* what to do about it */
    enum sf_grpc_status grpc;  /* gRPC status it travels with */
    int http;                  /* HTTP status at the HTTP edges */
    bool retry_same_key;       /* a retry under the same idempotency key is safe and useful */
    const char *required_keys; /* comma separated detail keys that must be present */
    const char *meaning;       /* one clause for the documentation */
};

/* The row of `err`; never NULL. Any thread. */
const struct sf_err_info *sf_err_info(enum sf_err err);

/* The public error whose text is `code` ("SF_..."), or SF_ERR_COUNT when there is none. */
enum sf_err sf_err_from_code(const char *code);

/* The public code an internal one becomes when nobody translated it more precisely (never
 * internal). */
enum sf_err sf_err_public(enum sf_err err);

#endif
