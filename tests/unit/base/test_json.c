/* The strict JSON reader: what RFC 8259 allows and nothing else. */
#include "base/json.h"

#include "support/proves.h"

static void test_valid_texts(void **state)
{
    (void)state;
    static const char *const good[] = {
        "null",
        "true",
        " false ",
        "0",
        "-0",
        "-1.5e+10",
        "1E5",
        "0.1",
        "\"\"",
        "\"a\"",
        "\"\\u0000\"",
        "\"\\ud83d\\ude00\"",
        "\"\xf4\x8f\xbf\xbf\"",
        "[]",
        "[ ]",
        "{}",
        "{ }",
        "[1,2 , 3]",
        "{\"a\":1,\"a\":[{}]}",
        "\t\r\n 1",
        "123456789012345678901234567890",
        "1e400",
        "\"0123456\\\"0123456789\"",
    };

    for (size_t i = 0; i < SF_ARRAY_LEN(good); i++) {
        if (!sf_json_valid(sf_view_str(good[i]), 8))
            print_error("good text %zu\n", i);
        assert_true(sf_json_valid(sf_view_str(good[i]), 8));
    }
}

static void test_invalid_texts(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "nul",
        "nulL",
        "True",
        "01",
        "-",
        "+1",
        "1.",
        ".5",
        "1e",
        "1e+",
        "0x1",
        "--1",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\x01\"",
        "\"\x1f-123456\"",
        "\"0123456\n0123456\"",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "\"01234567\x80\"",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{a:1}",
        "{1:1}",
        "{\"a\" 1}",
        "{,}",
        "]",
        "}",
        "[}",
        "{]",
        "1 2",
        "[] []",
        "'a'",
        "NaN",
        "Infinity",
        "/**/1",
        "\xef\xbb\xbf[]",
        "\f1",
    };

    for (size_t i = 0; i < SF_ARRAY_LEN(bad); i++) {
        if (sf_json_valid(sf_view_str(bad[i]), 8))
            print_error("bad text %zu\n", i);
        assert_false(sf_json_valid(sf_view_str(bad[i]), 8));
    }
    assert_false(sf_json_valid(sf_view_bytes("1\0", 2), 8));
    assert_false(sf_json_valid(sf_view_bytes("\"\0\"", 3), 8));
    assert_false(sf_json_valid(sf_view_bytes("\"\\\0\"", 4), 8));
}

static void test_depth(void **state)
{
    (void)state;
    assert_true(sf_json_valid(sf_view_str("[{\"a\":[]}]"), 3));
    assert_false(sf_json_valid(sf_view_str("[{\"a\":[]}]"), 2));
    assert_true(sf_json_valid(sf_view_str("[[],[],[[]]]"), 3));

    struct sf_json j;
    sf_json_init(&j, sf_view_str("[[1]]"), 1);
    assert_false(sf_json_skip(&j, NULL));
    assert_true(j.too_deep);
}

static void test_walk(void **state)
{
    (void)state;
    struct sf_json j;
    struct sf_json_str name = {0};
    struct sf_json_str text = {0};
    struct sf_view raw = {0};
    bool flag = false;

    sf_json_init(&j,
                 sf_view_str(" {\"a\" : [ 1.50 , \"x\\ty\" ] , \"\\u0062\": true, \"c\":null,"
                             "\"d\":{\"e\": [ 1 ] } } "),
                 8);
    assert_int_equal(sf_json_peek(&j), SF_JSON_OBJECT);
    assert_true(sf_json_object_begin(&j));
    assert_true(sf_json_object_next(&j, &name) && sf_json_str_is(name, "a"));
    assert_true(sf_json_array_begin(&j));
    assert_true(sf_json_array_next(&j) && sf_json_number(&j, &raw));
    assert_true(sf_view_equal(raw, sf_view_str("1.50")));
    assert_true(sf_json_array_next(&j) && sf_json_string(&j, &text));
    assert_true(text.escaped && sf_json_str_is(text, "x\ty"));
    assert_false(sf_json_array_next(&j));
    assert_true(sf_json_object_next(&j, &name) && sf_json_str_is(name, "b"));
    assert_false(sf_json_str_is(name, "bb"));
    assert_true(sf_json_bool(&j, &flag) && flag);
    assert_true(sf_json_object_next(&j, &name) && sf_json_null(&j));
    assert_true(sf_json_object_next(&j, &name) && sf_json_skip(&j, &raw));
    assert_true(sf_view_equal(raw, sf_view_str("{\"e\": [ 1 ] }")));
    assert_false(sf_json_object_next(&j, &name));
    assert_true(sf_json_end(&j));
}

static void test_wrong_type_is_sticky(void **state)
{
    (void)state;
    struct sf_json j;
    struct sf_view raw;
    struct sf_json_str text;
    bool flag;

    sf_json_init(&j, sf_view_str("[1]"), 8);
    assert_false(sf_json_object_begin(&j));
    assert_non_null(j.error);
    assert_false(sf_json_array_begin(&j));
    assert_false(sf_json_end(&j));
    sf_json_init(&j, sf_view_str("1"), 8);
    assert_false(sf_json_string(&j, &text));
    sf_json_init(&j, sf_view_str("\"1\""), 8);
    assert_false(sf_json_number(&j, &raw));
    sf_json_init(&j, sf_view_str("1"), 8);
    assert_false(sf_json_bool(&j, &flag));
    sf_json_init(&j, sf_view_str("1"), 8);
    assert_false(sf_json_null(&j));
    sf_json_init(&j, sf_view_str("[1 x"), 8);
    assert_false(sf_json_skip(&j, NULL));
    assert_int_equal(sf_json_offset(&j), 3);
}

static void test_unescape(void **state)
{
    (void)state;
    struct sf_json j;
    struct sf_json_str text;
    char out[64];
    static const char want[] = "\"\\/\b\f\n\r\t\0A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";

    sf_json_init(&j,
                 sf_view_str("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u0041\\u00e9\\u20AC"
                             "\\ud83d\\ude00\""),
                 8);
    assert_true(sf_json_string(&j, &text));
    assert_int_equal(sf_json_unescape(text, out), sizeof(want) - 1);
    assert_memory_equal(out, want, sizeof(want) - 1);
}

static void test_append_string(void **state)
{
    (void)state;
    struct sf_buf out = {0};

    static const char text_in[] = "a\"\\\b\f\n\r\t\0\x1f\x7f/\xc3\xa9 long enough";
    sf_json_append_string(&out, sf_view_bytes(text_in, sizeof(text_in) - 1));
    assert_true(sf_view_equal(sf_buf_view(&out),
                              sf_view_str("\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\x7f/\xc3\xa9"
                                          " long enough\"")));
    sf_buf_clear(&out);
    sf_json_append_string(&out, sf_view_bytes(NULL, 0));
    assert_true(sf_view_equal(sf_buf_view(&out), sf_view_str("\"\"")));
    sf_buf_clear(&out);
    /* every ASCII character comes back through the reader */
    char all[128];
    char back[128];
    struct sf_json j;
    struct sf_json_str text;
    for (size_t i = 0; i < sizeof(all); i++)
        all[i] = (char)i;
    sf_json_append_string(&out, sf_view_bytes(all, sizeof(all)));
    sf_json_init(&j, sf_buf_view(&out), 1);
    assert_true(sf_json_string(&j, &text) && sf_json_end(&j));
    assert_int_equal(sf_json_unescape(text, back), sizeof(all));
    assert_memory_equal(back, all, sizeof(all));
    sf_buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_texts),
        cmocka_unit_test(test_invalid_texts),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_walk),
        cmocka_unit_test(test_wrong_type_is_sticky),
        cmocka_unit_test(test_unescape),
        cmocka_unit_test(test_append_string),
    };

    return SF_RUN_TESTS("json", tests);
}
