/* Base64: the vectors of RFC 4648, both alphabets, and what must be refused. */
#include "support/proves.h"

#include <string.h>

#include "base/base64.h"

/* Plain text with its forms: standard and URL digits, padded. */
static const struct {
    const char *plain;
    const char *standard;
    const char *url;
    const char *padded;
} cases[] = {
    {"", "", "", ""},
    {"f", "Zg", "Zg", "Zg=="},
    {"fo", "Zm8", "Zm8", "Zm8="},
    {"foo", "Zm9v", "Zm9v", "Zm9v"},
    {"foob", "Zm9vYg", "Zm9vYg", "Zm9vYg=="},
    {"fooba", "Zm9vYmE", "Zm9vYmE", "Zm9vYmE="},
    {"foobar", "Zm9vYmFy", "Zm9vYmFy", "Zm9vYmFy"},
    {"\xff\xfe\xfd", "//79", "__79", "//79"},
    {"\xfb\xef\xbe", "++++", "----", "++++"},
};

/* Checks the content of `buf` and empties it. */
static void expect(struct sf_buf *buf, const char *text)
{
    assert_int_equal(buf->len, strlen(text));
    if (buf->len > 0)
        assert_memory_equal(buf->data, text, buf->len);
    sf_buf_clear(buf);
}

static void test_there_and_back(void **state)
{
    struct sf_buf out = {0};

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(cases); i++) {
        uint8_t room[16];
        size_t len = 99;
        sf_base64_encode(sf_view_str(cases[i].plain), &out);
        expect(&out, cases[i].standard);
        sf_base64_url_encode(sf_view_str(cases[i].plain), &out);
        expect(&out, cases[i].url);
        assert_true(sf_base64_decode(sf_view_str(cases[i].standard), &out));
        expect(&out, cases[i].plain);
        assert_true(sf_base64_decode(sf_view_str(cases[i].padded), &out));
        expect(&out, cases[i].plain);
        assert_true(sf_base64_url_decode(sf_view_str(cases[i].url), &out));
        expect(&out, cases[i].plain);
        assert_true(sf_base64_room(strlen(cases[i].padded)) <= sizeof(room));
        assert_true(sf_base64_decode_any(sf_view_str(cases[i].url), room, &len));
        assert_int_equal(len, strlen(cases[i].plain));
        assert_memory_equal(room, cases[i].plain, len);
    }
    sf_buf_fini(&out);
}

static void test_malformed(void **state)
{
    /* "Zh" would be "f" with a stray bit: the same bytes under two names */
    static const char *const bad[] = {"Z",    "Zg=", "Zg===", "Z=g=", "Zm9v!",
                                      "====", "=",   "Zm 9",  "Zh",   "Zm9"};
    struct sf_buf out = {0};

    (void)state;
    sf_buf_append_str(&out, "kept");
    for (size_t i = 0; i < SF_ARRAY_LEN(bad); i++) {
        uint8_t room[16];
        size_t len = 0;
        assert_false(sf_base64_decode(sf_view_str(bad[i]), &out));
        assert_false(sf_base64_url_decode(sf_view_str(bad[i]), &out));
        assert_false(sf_base64_decode_any(sf_view_str(bad[i]), room, &len));
        assert_int_equal(out.len, 4);
    }
    sf_buf_fini(&out);
}

static void test_alphabets_do_not_mix(void **state)
{
    struct sf_buf out = {0};
    uint8_t room[16];
    size_t len = 0;

    (void)state;
    assert_false(sf_base64_decode(sf_view_str("__79"), &out));
    assert_false(sf_base64_url_decode(sf_view_str("//79"), &out));
    assert_false(sf_base64_url_decode(sf_view_str("Zg=="), &out));
    assert_true(sf_base64_decode_any(sf_view_str("_/79"), room, &len)); /* proto3 JSON takes both */
    assert_int_equal(len, 3);
    sf_buf_fini(&out);
}

static void test_a_capped_buffer_stays_as_it_was(void **state)
{
    struct sf_buf out = {.max_bytes = 2};

    (void)state;
    assert_false(sf_base64_decode(sf_view_str("Zm9vYmFy"), &out));
    assert_int_equal(out.len, 0);
    assert_true(out.overflowed);
    sf_buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_alphabets_do_not_mix),
        cmocka_unit_test(test_a_capped_buffer_stays_as_it_was),
    };
    return SF_RUN_TESTS("base64", tests);
}
