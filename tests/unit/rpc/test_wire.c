/* Texts of gRPC headers. Expected values are from the protocol's description and RFC 4648. */
#include "rpc/wire.h"

#include "support/proves.h"

static void test_timeout_parse(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms; /* -1: malformed */
    } cases[] = {
        {"1H", 3600000},
        {"2M", 120000},
        {"3S", 3000},
        {"250m", 250},
        {"1u", 1},
        {"1000u", 1},
        {"1001u", 2},
        {"1n", 1},
        {"0m", 0},
        {"99999999n", 100},
        {"99999999S", 99999999000},
        {"99999999H", (int64_t)1 << 41},
        {"", -1},
        {"m", -1},
        {"1", -1},
        {"1x", -1},
        {"-1m", -1},
        {"+1m", -1},
        {" 1m", -1},
        {"1 m", -1},
        {"1.5S", -1},
        {"123456789m", -1},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(cases); i++) {
        int64_t ms = -2;
        bool ok = sf_grpc_timeout_parse(sf_view_str(cases[i].text), &ms);
        assert_int_equal(ok, cases[i].ms >= 0);
        if (ok)
            assert_int_equal(ms, cases[i].ms);
    }
}

static void test_timeout_format(void **state)
{
    (void)state;
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {
        {1, "1m"},
        {250, "250m"},
        {99999999, "99999999m"},
        {100000000, "100000S"},
        {100000001, "100001S"},
        {INT64_C(99999999000), "99999999S"},
        {INT64_C(100000000000), "1666667M"},
        {INT64_MAX, "99999999H"},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(cases); i++) {
        char text[SF_GRPC_TIMEOUT_MAX_DIGITS + 2];
        sf_grpc_timeout_format(cases[i].ms, text);
        assert_string_equal(text, cases[i].text);
    }
}

static void assert_buf(struct sf_buf *buf, const void *bytes, size_t len)
{
    assert_int_equal(buf->len, len);
    if (len > 0)
        assert_memory_equal(buf->data, bytes, len);
    sf_buf_clear(buf);
}

static void test_message_percent(void **state)
{
    (void)state;
    struct sf_buf out = {0};

    sf_grpc_message_encode(sf_view_str("plain text ~"), &out);
    assert_buf(&out, "plain text ~", 12);
    sf_grpc_message_encode(sf_view_str("100% \n\xe2\x82\xac\x7f"), &out);
    assert_buf(&out, "100%25 %0A%E2%82%AC%7F", 22);
    sf_grpc_message_decode(sf_view_str("100%25 %0A%e2%82%AC%7F"), &out);
    assert_buf(&out, "100% \n\xe2\x82\xac\x7f", 10);
    sf_grpc_message_decode(sf_view_str("50%"), &out);
    assert_buf(&out, "50%", 3);
    sf_grpc_message_decode(sf_view_str("50%2"), &out);
    assert_buf(&out, "50%2", 4);
    sf_grpc_message_decode(sf_view_str("%zz%41"), &out);
    assert_buf(&out, "%zzA", 4);
    sf_buf_fini(&out);
}

static void test_content_type(void **state)
{
    (void)state;
    assert_true(sf_grpc_content_type(sf_view_str("application/grpc")));
    assert_true(sf_grpc_content_type(sf_view_str("application/grpc+proto")));
    assert_true(sf_grpc_content_type(sf_view_str("application/grpc;charset=utf-8")));
    assert_false(sf_grpc_content_type(sf_view_str("application/grpcx")));
    assert_false(sf_grpc_content_type(sf_view_str("application/grp")));
    assert_false(sf_grpc_content_type(sf_view_str("application/json")));
    assert_false(sf_grpc_content_type(sf_view_str("")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeout_parse),
        cmocka_unit_test(test_timeout_format),
        cmocka_unit_test(test_message_percent),
        cmocka_unit_test(test_content_type),
    };
    return SF_RUN_TESTS("wire", tests);
}
