/*
 * The reader works on one of two places: the borrowed bytes of the present feed, as long as nothing
 * is kept, or the kept buffer, to which a feed is appended then. Consumed bytes of the kept buffer
 * are skipped by an offset and dropped when they are half of it, so that many small messages in one
 * buffer cost no moves.
 */
#include "rpc/frame.h"

#include <zlib.h>

#define INFLATE_STEP_BYTES (64u << 10)

void sf_frame_reader_fini(struct sf_frame_reader *reader)
{
    sf_buf_fini(&reader->kept);
    reader->borrowed = (struct sf_view){0};
    reader->at = 0;
}

void sf_frame_reader_feed(struct sf_frame_reader *reader, struct sf_view bytes)
{
    SF_ASSERT(reader->borrowed.len == 0);
    if (reader->kept.len == 0)
        reader->borrowed = bytes;
    else
        sf_buf_append(&reader->kept, bytes.ptr, bytes.len);
}

static struct sf_view pending(const struct sf_frame_reader *reader)
{
    if (reader->kept.len == 0)
        return reader->borrowed;
    return (struct sf_view){reader->kept.data + reader->at, reader->kept.len - reader->at};
}

static void consume(struct sf_frame_reader *reader, size_t n)
{
    if (reader->kept.len == 0) {
        reader->borrowed.ptr += n;
        reader->borrowed.len -= n;
    } else {
        reader->at += n;
    }
}

/* Drops consumed bytes of the kept buffer when that is cheap; views given before become invalid. */
static void compact(struct sf_frame_reader *reader)
{
    if (reader->at == 0)
        return;
    if (reader->at == reader->kept.len) {
        sf_buf_clear(&reader->kept);
        if (reader->kept.cap > INFLATE_STEP_BYTES)
            sf_buf_fini(&reader->kept);
        reader->at = 0;
    } else if (reader->at > reader->kept.len / 2) {
        sf_buf_consume(&reader->kept, reader->at);
        reader->at = 0;
    }
}

enum sf_frame_result sf_frame_reader_next(struct sf_frame_reader *reader, bool *out_compressed,
                                          struct sf_view *out_message)
{
    compact(reader);
    struct sf_view rest = pending(reader);
    if (rest.len == 0)
        return SF_FRAME_MORE;
    if (rest.ptr[0] > 1)
        return SF_FRAME_BAD;
    if (rest.len < SF_GRPC_PREFIX_BYTES)
        return SF_FRAME_MORE;
    size_t len = (size_t)rest.ptr[1] << 24 | (size_t)rest.ptr[2] << 16 | (size_t)rest.ptr[3] << 8 |
                 (size_t)rest.ptr[4];
    if (len > reader->max_message_bytes)
        return SF_FRAME_TOO_LARGE;
    if (rest.len - SF_GRPC_PREFIX_BYTES < len)
        return SF_FRAME_MORE;
    *out_compressed = rest.ptr[0] == 1;
    *out_message = (struct sf_view){rest.ptr + SF_GRPC_PREFIX_BYTES, len};
    consume(reader, SF_GRPC_PREFIX_BYTES + len);
    return SF_FRAME_MESSAGE;
}

void sf_frame_reader_keep(struct sf_frame_reader *reader)
{
    if (reader->borrowed.len > 0)
        sf_buf_append(&reader->kept, reader->borrowed.ptr, reader->borrowed.len);
    reader->borrowed = (struct sf_view){0};
    compact(reader);
}

size_t sf_frame_reader_pending_bytes(const struct sf_frame_reader *reader)
{
    return pending(reader).len;
}

bool sf_gzip_inflate(struct sf_view bytes, size_t max_bytes, struct sf_buf *out,
                     bool *out_too_large)
{
    z_stream z = {0};
    size_t start = out->len;
    int rc = Z_OK;

    *out_too_large = false;
    if (bytes.len > UINT32_MAX || inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
        return false;
    z.next_in = (Bytef *)(uintptr_t)bytes.ptr;
    z.avail_in = (uInt)bytes.len;
    while (rc == Z_OK) {
        size_t room = max_bytes + 1 - (out->len - start);
        size_t step = room < INFLATE_STEP_BYTES ? room : INFLATE_STEP_BYTES;
        if (step == 0) {
            *out_too_large = true;
            break;
        }
        if (!sf_buf_reserve(out, step))
            break;
        z.next_out = out->data + out->len;
        z.avail_out = (uInt)step;
        rc = inflate(&z, Z_NO_FLUSH);
        out->len += step - z.avail_out;
    }
    bool whole = rc == Z_STREAM_END && z.avail_in == 0;
    (void)inflateEnd(&z);
    if (out->len - start > max_bytes)
        *out_too_large = true;
    return whole && !*out_too_large;
}
