/*
 * Diagnostics of one operation: the error, a message for people, typed details (key -> value) that
 * become ErrorStatus.context and ErrorStatus.diagnostics, and the chain of causes. Travels beside
 * the enum sf_err; there is no thread-local error. All text is copied into fixed space; what does
 * not fit is cut and marked.
 */
#ifndef SF_BASE_DIAG_H
#define SF_BASE_DIAG_H

#include "base/err.h"

#define SF_DIAG_MAX_DETAILS 12
#define SF_DIAG_KEY_BYTES   48
#define SF_DIAG_VALUE_BYTES 528 /* the longest text a detail carries: 128 scalars */
#define SF_DIAG_TEXT_BYTES  512

/* One detail key with its value, both NUL-terminated UTF-8. */
struct sf_diag_detail {
    char key[SF_DIAG_KEY_BYTES];     /* one of the contract's detail keys */
    char value[SF_DIAG_VALUE_BYTES]; /* its text */
};

struct sf_diag {
    enum sf_err err; /* last error recorded, SF_OK when none */
    const char
        *area; /* "allocator", "catalog", ... static text or NULL: picks the context branch */
    char message[SF_DIAG_TEXT_BYTES]; /* for people; causes appended as "; caused by: ..." */
    unsigned detail_count;            /* used entries of details */
    struct sf_diag_detail
        details[SF_DIAG_MAX_DETAILS]; /* in the order they were set, keys unique */
};

/* Empties `diag`. */
void sf_diag_init(struct sf_diag *diag);

/* Records `err` with a formatted message, drops earlier details, returns `err` so that callers can
 * write `return sf_diag_set(diag, SF_..., ...)`. `diag` may be NULL (then only returns `err`). */
enum sf_err sf_diag_set(struct sf_diag *diag, enum sf_err err, const char *fmt, ...)
    SF_PRINTF(3, 4);

/* Adds context in front of the present message: "what: message". */
void sf_diag_wrap(struct sf_diag *diag, const char *fmt, ...) SF_PRINTF(2, 3);

/* Names the typed context branch ("allocator", "catalog", "ingest"); static text. */
void sf_diag_area(struct sf_diag *diag, const char *area);

/* Sets detail `key` to formatted text (replaces the same key). More than SF_DIAG_MAX_DETAILS is an
 * assertion. */
void sf_diag_detail(struct sf_diag *diag, const char *key, const char *fmt, ...) SF_PRINTF(3, 4);

/* The value of detail `key`, or NULL. Valid until the diag changes. */
const char *sf_diag_get(const struct sf_diag *diag, const char *key);

/* SF_BAD_REQUEST with the two keys every field refusal carries: `field` and `violation`. Returns
 * the code. */
enum sf_err sf_diag_bad_field(struct sf_diag *diag, const char *field, const char *violation,
                              const char *fmt, ...) SF_PRINTF(4, 5);

#endif
