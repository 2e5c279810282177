/* Message framing: every way to cut the bytes gives the same messages. */
#include "rpc/frame.h"

#include <stdlib.h>
#include <zlib.h>

#include "support/proves.h"

/* Three messages: "", "a" (compressed flag), "hello". */
static const uint8_t stream[] = {0, 0, 0, 0, 0, 1,   0,   0,   0,   1,  'a',
                                 0, 0, 0, 0, 5, 'h', 'e', 'l', 'l', 'o'};

static void assert_three(struct sf_frame_reader *reader, size_t *seen)
{
    static const struct {
        const char *text;
        bool compressed;
    } want[] = {{"", false}, {"a", true}, {"hello", false}};
    struct sf_view message;
    bool compressed;

    while (sf_frame_reader_next(reader, &compressed, &message) == SF_FRAME_MESSAGE) {
        assert_true(*seen < 3);
        assert_int_equal(compressed, want[*seen].compressed);
        assert_true(sf_view_equal(message, sf_view_str(want[*seen].text)));
        ++*seen;
    }
}

static void test_all_cuts_in_three(void **state)
{
    (void)state;
    for (size_t a = 0; a <= sizeof(stream); a++) {
        for (size_t b = a; b <= sizeof(stream); b++) {
            struct sf_frame_reader reader = {.max_message_bytes = 5};
            size_t seen = 0;
            const size_t cuts[] = {0, a, b, sizeof(stream)};
            for (size_t i = 0; i < 3; i++) {
                /* A copy of its own that goes away, so that borrowed bytes are caught. */
                size_t n = cuts[i + 1] - cuts[i];
                uint8_t *piece = malloc(n + 1);
                memcpy(piece, stream + cuts[i], n);
                sf_frame_reader_feed(&reader, sf_view_bytes(piece, n));
                assert_three(&reader, &seen);
                sf_frame_reader_keep(&reader);
                free(piece);
            }
            assert_int_equal(seen, 3);
            assert_int_equal(sf_frame_reader_pending_bytes(&reader), 0);
            sf_frame_reader_fini(&reader);
        }
    }
}

static void test_kept_messages_come_later(void **state)
{
    (void)state;
    struct sf_frame_reader reader = {.max_message_bytes = 5};
    struct sf_view message;
    bool compressed;
    size_t seen = 0;

    sf_frame_reader_feed(&reader, sf_view_bytes(stream, sizeof(stream)));
    assert_int_equal(sf_frame_reader_next(&reader, &compressed, &message), SF_FRAME_MESSAGE);
    sf_frame_reader_keep(&reader);
    assert_int_equal(sf_frame_reader_pending_bytes(&reader), sizeof(stream) - 5);
    sf_frame_reader_feed(&reader, sf_view_bytes(stream, sizeof(stream)));
    sf_frame_reader_keep(&reader);
    while (sf_frame_reader_next(&reader, &compressed, &message) == SF_FRAME_MESSAGE)
        seen++;
    assert_int_equal(seen, 5);
    sf_frame_reader_fini(&reader);
}

static void test_too_large_and_bad(void **state)
{
    (void)state;
    static const uint8_t huge[] = {0, 0xff, 0xff, 0xff, 0xff, 'x'};
    static const uint8_t six[] = {0, 0, 0, 0, 6};
    static const uint8_t bad[] = {2, 0, 0, 0, 0};
    struct sf_frame_reader reader = {.max_message_bytes = 5};
    struct sf_view message;
    bool compressed;

    sf_frame_reader_feed(&reader, sf_view_bytes(huge, sizeof(huge)));
    assert_int_equal(sf_frame_reader_next(&reader, &compressed, &message), SF_FRAME_TOO_LARGE);
    sf_frame_reader_keep(&reader);
    assert_true(reader.kept.cap < 4096); /* nothing was set aside for the announced 4 GiB */
    sf_frame_reader_fini(&reader);
    sf_frame_reader_feed(&reader, sf_view_bytes(six, sizeof(six)));
    assert_int_equal(sf_frame_reader_next(&reader, &compressed, &message), SF_FRAME_TOO_LARGE);
    sf_frame_reader_fini(&reader);
    sf_frame_reader_feed(&reader, sf_view_bytes(bad, sizeof(bad)));
    assert_int_equal(sf_frame_reader_next(&reader, &compressed, &message), SF_FRAME_BAD);
    sf_frame_reader_fini(&reader);
}

static size_t gzip(const void *bytes, size_t len, uint8_t *out, size_t cap)
{
    z_stream z = {0};

    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = (uInt)len;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t n = cap - z.avail_out;
    deflateEnd(&z);
    return n;
}

static void test_inflate(void **state)
{
    (void)state;
    enum { BIG = 1000000 };
    uint8_t *zeros = calloc(1, BIG);
    uint8_t *packed = malloc(BIG);
    struct sf_buf out = {0};
    bool too_large;
    size_t n = gzip("hello", 5, packed, BIG);

    assert_true(sf_gzip_inflate(sf_view_bytes(packed, n), 5, &out, &too_large));
    assert_true(sf_view_equal(sf_buf_view(&out), sf_view_str("hello")));
    sf_buf_clear(&out);
    assert_false(sf_gzip_inflate(sf_view_bytes(packed, n), 4, &out, &too_large));
    assert_true(too_large);
    assert_false(sf_gzip_inflate(sf_view_bytes(packed, n - 1), 5, &out, &too_large));
    assert_false(too_large);
    assert_false(sf_gzip_inflate(sf_view_bytes(packed, 0), 5, &out, &too_large));
    packed[n] = 'x';
    assert_false(sf_gzip_inflate(sf_view_bytes(packed, n + 1), 5, &out, &too_large));
    assert_false(sf_gzip_inflate(sf_view_str("not gzip"), 5, &out, &too_large));
    /* A bomb: a thousandth of its size on the wire, stopped at the limit. */
    n = gzip(zeros, BIG, packed, BIG);
    assert_true(n < BIG / 500);
    sf_buf_fini(&out);
    assert_false(sf_gzip_inflate(sf_view_bytes(packed, n), 100000, &out, &too_large));
    assert_true(too_large);
    assert_true(out.cap <= 1u << 18);
    sf_buf_clear(&out);
    assert_true(sf_gzip_inflate(sf_view_bytes(packed, n), BIG, &out, &too_large));
    assert_int_equal(out.len, BIG);
    sf_buf_fini(&out);
    free(zeros);
    free(packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_cuts_in_three),
        cmocka_unit_test(test_kept_messages_come_later),
        cmocka_unit_test(test_too_large_and_bad),
        cmocka_unit_test(test_inflate),
    };
    return SF_RUN_TESTS("frame", tests);
}
