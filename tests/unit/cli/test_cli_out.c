/* Output for scripts and people: JSON that is always JSON, tables that align, safe terminals. */
#include "support/proves.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli_priv.h"

/* Ends `json` and checks the line it prints. */
static void expect_json(struct sf_cli_json *json, const char *expected)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    sf_cli_json_end(json, out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, expected);
    assert_true(sf_json_valid(sf_view_bytes(text, len), SF_LIMIT_JSON_DEPTH));
    free(text);
}

static void test_json_members(void **state)
{
    struct sf_cli_json json;

    (void)state;
    sf_cli_json_begin(&json);
    expect_json(&json, "{}\n");
    sf_cli_json_begin(&json);
    sf_cli_json_str(&json, "name", "books");
    sf_cli_json_str(&json, "token", NULL);
    sf_cli_json_u64(&json, "version", UINT64_MAX);
    sf_cli_json_number(&json, "seconds", 1.25, 3);
    sf_cli_json_number(&json, "documents", 7910, 0);
    sf_cli_json_bool(&json, "written", false);
    expect_json(&json, "{\"name\":\"books\",\"token\":null,\"version\":\"18446744073709551615\","
                       "\"seconds\":1.250,\"documents\":7910,\"written\":false}\n");
}

static void test_json_text_is_escaped(void **state)
{
    struct sf_cli_json json;

    (void)state;
    sf_cli_json_begin(&json);
    sf_cli_json_str(&json, "key", "a\"b\\c\nd");
    expect_json(&json, "{\"key\":\"a\\\"b\\\\c\\nd\"}\n");
    /* an argument need not be UTF-8: each bad byte becomes U+FFFD */
    sf_cli_json_begin(&json);
    sf_cli_json_str(&json, "key", "a\xff\xc3\xbc\xc3");
    expect_json(&json, "{\"key\":\"a\xef\xbf\xbd\xc3\xbc\xef\xbf\xbd\"}\n");
}

static void test_json_bytes(void **state)
{
    static const struct {
        const char *bytes;
        const char *line;
    } rows[] = {
        {"{\"a\": 1.50}", "{\"body\":{\"a\": 1.50}}\n"},
        {"\"text\"", "{\"body\":\"text\"}\n"},
        {"", "{\"body_hex\":\"\"}\n"},
        {"{\"a\":", "{\"body_hex\":\"7b2261223a\"}\n"},
        {"[1,\n2]", "{\"body_hex\":\"5b312c0a325d\"}\n"},
        {"[1,\r2]", "{\"body_hex\":\"5b312c0d325d\"}\n"},
        {"1 2", "{\"body_hex\":\"312032\"}\n"},
    };

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        struct sf_cli_json json;
        sf_cli_json_begin(&json);
        sf_cli_json_bytes(&json, "body", sf_view_str(rows[i].bytes));
        expect_json(&json, rows[i].line);
    }
}

static void test_table(void **state)
{
    static const char *const titles[] = {"NAME", "ID", "DETAIL"};
    struct sf_cli_table table;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    (void)state;
    assert_non_null(out);
    sf_cli_table_begin(&table, SF_ARRAY_LEN(titles), titles);
    sf_cli_table_row(&table, (const char *const[]){"books", "4", NULL});
    sf_cli_table_row(&table, (const char *const[]){"b\xc3\xbc"
                                                   "cher",
                                                   "", "x\x1b[2J"});
    sf_cli_table_end(&table, out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "NAME    ID  DETAIL\n"
                              "books   4   -\n"
                              "b\xc3\xbc"
                              "cher  -   x?[2J\n");
    free(text);
}

static void test_table_without_output(void **state)
{
    static const char *const titles[] = {"NAME"};
    struct sf_cli_table table;

    (void)state;
    sf_cli_table_begin(&table, SF_ARRAY_LEN(titles), titles);
    sf_cli_table_end(&table, NULL);
    sf_cli_table_end(&table, NULL); /* of a zeroed table: nothing */
}

static void test_cut(void **state)
{
    (void)state;
    assert_int_equal(sf_cli_cut(sf_view_str("abc"), 5), 3);
    assert_int_equal(sf_cli_cut(sf_view_str("abcdef"), 4), 4);
    /* U+00FC takes bytes 1 and 2: a cut at 2 would halve it */
    assert_int_equal(sf_cli_cut(sf_view_str("a\xc3\xbc"
                                            "bc"),
                                2),
                     1);
    assert_int_equal(sf_cli_cut(sf_view_str("a\xc3\xbc"
                                            "bc"),
                                3),
                     3);
    assert_int_equal(sf_cli_cut(sf_view_str("\xff\xff\xff"), 2), 2);
}

static void test_time(void **state)
{
    char text[32];

    (void)state;
    sf_cli_format_unix_ms(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    sf_cli_format_unix_ms(951782400007, text); /* 29 February 2000 */
    assert_string_equal(text, "2000-02-29T00:00:00.007Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_members),
        cmocka_unit_test(test_json_text_is_escaped),
        cmocka_unit_test(test_json_bytes),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_table_without_output),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_time),
    };
    return SF_RUN_TESTS("cli_out", tests);
}
