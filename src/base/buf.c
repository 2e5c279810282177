/*
 * Growable byte buffer. Capacity doubles; a cap turns an append that would pass it into a sticky
 * mark, with the append dropped whole, so that a caller may check once at the end.
 */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

#define BUF_FIRST_BYTES 64u

void sf_buf_fini(struct sf_buf *buf)
{
    if (buf == NULL)
        return;
    free(buf->data);
    *buf = (struct sf_buf){.max_bytes = buf->max_bytes};
}

void sf_buf_clear(struct sf_buf *buf)
{
    buf->len = 0;
    buf->overflowed = false;
}

bool sf_buf_reserve(struct sf_buf *buf, size_t extra)
{
    if (extra <= buf->cap - buf->len && buf->max_bytes == 0)
        return true;
    if (extra > SIZE_MAX / 4 - buf->len ||
        (buf->max_bytes != 0 && (buf->len > buf->max_bytes || extra > buf->max_bytes - buf->len))) {
        buf->overflowed = true;
        return false;
    }
    size_t need = buf->len + extra;
    if (need <= buf->cap)
        return true;
    size_t cap = buf->cap < BUF_FIRST_BYTES ? BUF_FIRST_BYTES : buf->cap;
    while (cap < need)
        cap *= 2;
    buf->data = sf_realloc(buf->data, cap);
    buf->cap = cap;
    return true;
}

void sf_buf_append(struct sf_buf *buf, const void *bytes, size_t len)
{
    if (len == 0 || !sf_buf_reserve(buf, len))
        return;
    memcpy(buf->data + buf->len, bytes, len);
    buf->len += len;
}

void sf_buf_append_str(struct sf_buf *buf, const char *text)
{
    sf_buf_append(buf, text, strlen(text));
}

void sf_buf_printf(struct sf_buf *buf, const char *fmt, ...)
{
    char small[256];
    va_list args;

    va_start(args, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started in the line above */
    int n = vsnprintf(small, sizeof(small), fmt, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof(small)) {
        sf_buf_append(buf, small, (size_t)n);
    } else if (n >= 0) {
        char *large = sf_malloc((size_t)n + 1);
        va_start(args, fmt);
        (void)vsnprintf(large, (size_t)n + 1, fmt, args);
        va_end(args);
        sf_buf_append(buf, large, (size_t)n);
        free(large);
    }
}

void sf_buf_consume(struct sf_buf *buf, size_t n)
{
    SF_ASSERT(n <= buf->len);
    buf->len -= n;
    if (buf->len > 0 && n > 0)
        memmove(buf->data, buf->data + n, buf->len);
}
