/* Growable byte buffer with an optional cap. A zeroed struct is an empty buffer without a cap. */
#ifndef SF_BASE_BUF_H
#define SF_BASE_BUF_H

#include <stdbool.h>

#include "base/view.h"

struct sf_buf {
    uint8_t *data;    /* owned; NULL when cap is 0 */
    size_t len;       /* bytes in use */
    size_t cap;       /* bytes allocated */
    size_t max_bytes; /* hard cap, 0 = none */
    bool overflowed;  /* sticky: an append passed max_bytes and was dropped whole */
};

/* Frees the bytes and empties the buffer; may be called twice. */
void sf_buf_fini(struct sf_buf *buf);

/* Sets len to 0 and clears overflowed; keeps the memory. */
void sf_buf_clear(struct sf_buf *buf);

/* Makes room for `extra` more bytes; false when the cap forbids it (sets overflowed). */
bool sf_buf_reserve(struct sf_buf *buf, size_t extra);

/* Appends bytes; dropped whole (overflowed) past the cap. */
void sf_buf_append(struct sf_buf *buf, const void *bytes, size_t len);

/* Appends the bytes of a NUL-terminated string, without the terminator. */
void sf_buf_append_str(struct sf_buf *buf, const char *text);

/* Appends formatted text without the terminator. */
void sf_buf_printf(struct sf_buf *buf, const char *fmt, ...) SF_PRINTF(2, 3);

/* Drops `n` bytes (n <= len) from the front. */
void sf_buf_consume(struct sf_buf *buf, size_t n);

/* View of the content; valid until the next change. */
static inline struct sf_view sf_buf_view(const struct sf_buf *buf)
{
    return (struct sf_view){buf->data, buf->len};
}

#endif
