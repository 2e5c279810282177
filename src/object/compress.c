#include "object/compress.h"

#include <zstd.h>

#include "base/limits.h"

#define ZSTD_LEVEL 3

void sf_compress(struct sf_view plain, struct sf_buf *out)
{
    size_t bound = ZSTD_compressBound(plain.len);
    bool room = sf_buf_reserve(out, bound);

    SF_ASSERT(room);
    size_t written = ZSTD_compress(out->data + out->len, bound, plain.ptr, plain.len, ZSTD_LEVEL);
    SF_ASSERT(!ZSTD_isError(written));
    out->len += written;
}

enum sf_err sf_expand(struct sf_view frame, struct sf_buf *out, struct sf_diag *diag)
{
    unsigned long long size = ZSTD_getFrameContentSize(frame.ptr, frame.len);

    sf_buf_clear(out);
    if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN ||
        size > SF_LIMIT_OBJECT_BYTES || !sf_buf_reserve(out, (size_t)size + 1))
        return sf_diag_set(diag, SF_ERR_CORRUPT, "not a zstd frame of a stated size");
    size_t got = ZSTD_decompress(out->data, (size_t)size, frame.ptr, frame.len);
    if (ZSTD_isError(got) || got != size)
        return sf_diag_set(diag, SF_ERR_CORRUPT, "zstd: %s",
                           ZSTD_isError(got) ? ZSTD_getErrorName(got) : "short frame");
    out->len = got;
    return SF_OK;
}
