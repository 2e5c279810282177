/*
 * gRPC message framing and header texts. The first byte of the input steers how the rest is cut
 * into pieces; the messages must be the same as with one piece. Decoded texts are encoded and
 * decoded again.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "rpc/frame.h"
#include "rpc/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LIMIT 4096u

/* All messages of `bytes`, cut into pieces of `piece` bytes, one behind the other; the last result.
 */
static enum sf_frame_result read_all(struct sf_view bytes, size_t piece, struct sf_buf *out)
{
    struct sf_frame_reader reader = {.max_message_bytes = LIMIT};
    enum sf_frame_result result = SF_FRAME_MORE;
    struct sf_view message;
    bool compressed;

    while (bytes.len > 0 && result == SF_FRAME_MORE) {
        size_t n = bytes.len < piece ? bytes.len : piece;
        uint8_t *copy = sf_memdup(bytes.ptr, n);
        sf_frame_reader_feed(&reader, sf_view_bytes(copy, n));
        while ((result = sf_frame_reader_next(&reader, &compressed, &message)) ==
               SF_FRAME_MESSAGE) {
            SF_ASSERT(message.len <= LIMIT);
            sf_buf_append(out, &compressed, 1);
            sf_buf_append(out, message.ptr, message.len);
        }
        sf_frame_reader_keep(&reader);
        free(copy);
        bytes = sf_view_bytes(bytes.ptr + n, bytes.len - n);
    }
    sf_frame_reader_fini(&reader);
    return result;
}

static void check_framing(struct sf_view bytes, size_t piece)
{
    struct sf_buf whole = {0}, cut = {0};
    enum sf_frame_result a = read_all(bytes, bytes.len + 1, &whole);
    enum sf_frame_result b = read_all(bytes, piece, &cut);

    SF_ASSERT(a == b);
    SF_ASSERT(sf_view_equal(sf_buf_view(&whole), sf_buf_view(&cut)));
    sf_buf_fini(&whole);
    sf_buf_fini(&cut);
}

static void check_texts(struct sf_view text)
{
    struct sf_buf plain = {0}, coded = {0}, again = {0};
    char timeout[SF_GRPC_TIMEOUT_MAX_DIGITS + 2];
    int64_t ms, ms_again;

    sf_grpc_message_decode(text, &plain);
    sf_grpc_message_encode(sf_buf_view(&plain), &coded);
    sf_grpc_message_decode(sf_buf_view(&coded), &again);
    SF_ASSERT(sf_view_equal(sf_buf_view(&plain), sf_buf_view(&again)));
    sf_buf_clear(&plain);
    sf_buf_clear(&coded);
    sf_buf_clear(&again);
    sf_base64_encode(text, &coded);
    SF_ASSERT(sf_base64_decode(sf_buf_view(&coded), &again));
    SF_ASSERT(sf_view_equal(text, sf_buf_view(&again)));
    (void)sf_base64_decode(text, &plain);
    if (sf_grpc_timeout_parse(text, &ms) && ms > 0) {
        sf_grpc_timeout_format(ms, timeout);
        SF_ASSERT(sf_grpc_timeout_parse(sf_view_str(timeout), &ms_again) && ms_again >= ms);
    }
    (void)sf_grpc_content_type(text);
    sf_buf_fini(&plain);
    sf_buf_fini(&coded);
    sf_buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sf_buf inflated = {0};
    bool too_large;

    if (size == 0)
        return 0;
    struct sf_view rest = {data + 1, size - 1};
    check_framing(rest, (size_t)data[0] + 1);
    check_texts(rest);
    if (sf_gzip_inflate(rest, LIMIT, &inflated, &too_large))
        SF_ASSERT(inflated.len <= LIMIT);
    sf_buf_fini(&inflated);
    return 0;
}
