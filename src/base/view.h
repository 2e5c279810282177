/* A view: pointer and length over bytes that somebody else owns. Text is UTF-8 and not terminated.
 */
#ifndef SF_BASE_VIEW_H
#define SF_BASE_VIEW_H

#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"

struct sf_view {
    const uint8_t *ptr; /* first byte; may be NULL when len is 0 */
    size_t len;         /* number of bytes */
};

/* View of a NUL-terminated string (the terminator excluded); NULL gives the empty view. */
static inline struct sf_view sf_view_str(const char *text)
{
    return (struct sf_view){(const uint8_t *)text, text == NULL ? 0 : strlen(text)};
}

/* View of `len` bytes at `ptr`. */
static inline struct sf_view sf_view_bytes(const void *ptr, size_t len)
{
    return (struct sf_view){(const uint8_t *)ptr, len};
}

/* True when both views hold the same bytes. */
static inline bool sf_view_equal(struct sf_view a, struct sf_view b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* Byte order comparison: < 0, 0, > 0; a proper prefix sorts first. */
static inline int sf_view_compare(struct sf_view a, struct sf_view b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n == 0 ? 0 : memcmp(a.ptr, b.ptr, n);
    return c != 0 ? c : (a.len > b.len) - (a.len < b.len);
}

#endif
