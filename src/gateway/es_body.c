/*
 * Model: bodies compressed with gzip are inflated whole, under the same limit as plain ones, so a
 * small body cannot grow without bound. Members that follow each other are one body, as gzip says.
 */
#include "gateway/es_priv.h"

#include <stdlib.h>

#include <zlib.h>

#include "base/mem.h"

#define CHUNK_BYTES    (64u << 10)
#define GZIP_ONLY_BITS (15 + 16)

/* Inflates until the end of the input; true when it ends with the end of a member. */
static bool inflate_all(z_stream *z, uint8_t *chunk, size_t max_bytes, struct sf_buf *out,
                        bool *out_too_long)
{
    for (;;) {
        z->next_out = chunk;
        z->avail_out = CHUNK_BYTES;
        int rc = inflate(z, Z_NO_FLUSH);
        size_t got = CHUNK_BYTES - z->avail_out;
        if (rc != Z_OK && rc != Z_STREAM_END)
            return false;
        if (got > max_bytes - out->len) {
            *out_too_long = true;
            return false;
        }
        sf_buf_append(out, chunk, got);
        if (rc == Z_STREAM_END) {
            if (z->avail_in == 0)
                return true;
            if (inflateReset(z) != Z_OK)
                return false;
        } else if (z->avail_in == 0 && z->avail_out > 0) {
            return false; /* cut short */
        }
    }
}

bool es_body_inflate(struct sf_view body, size_t max_bytes, struct sf_buf *out, bool *out_too_long)
{
    z_stream z = {0};

    *out_too_long = false;
    if (body.len > UINT32_MAX || inflateInit2(&z, GZIP_ONLY_BITS) != Z_OK)
        return false;
    uint8_t *chunk = sf_malloc(CHUNK_BYTES);
    z.next_in = (Bytef *)(uintptr_t)body.ptr;
    z.avail_in = (uInt)body.len;
    bool ok = inflate_all(&z, chunk, max_bytes, out, out_too_long);
    free(chunk);
    (void)inflateEnd(&z);
    return ok;
}
