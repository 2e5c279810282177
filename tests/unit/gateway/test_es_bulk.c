/* Bulk bodies: what is read, what refuses the request, what refuses one item. */
#include "support/proves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "gateway/es_bulk.h"

static struct sf_arena *arena;
static struct sf_es_bulk_item *items;
static size_t count;
static struct sf_es_error error;

static bool parse(const char *body, size_t len, const char *index)
{
    sf_arena_destroy(arena);
    arena = sf_arena_new(8u << 20);
    items = NULL;
    count = 0;
    return sf_es_bulk_parse(sf_view_bytes(body, len), sf_view_str(index), arena, &items, &count,
                            &error);
}

static bool parse_text(const char *body)
{
    return parse(body, strlen(body), "books");
}

static void assert_view(struct sf_view view, const char *text)
{
    assert_int_equal(view.len, strlen(text));
    if (view.len > 0)
        assert_memory_equal(view.ptr, text, view.len);
}

static void test_actions(void **state)
{
    (void)state;
    assert_true(parse_text("{\"create\":{\"_id\":\"7\"}}\n{\"a\":1}\n"
                           "{\"index\":{}}\n{\"b\" : 2 }\n"
                           "{\"delete\":{\"_index\":\"other\",\"_id\":9}}\n"
                           "{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{}}\n"));
    assert_int_equal(count, 4);
    assert_int_equal(items[0].action, SF_ES_ACTION_CREATE);
    assert_true(items[0].has_id);
    assert_view(items[0].id, "7");
    assert_view(items[0].index, "books");
    assert_view(items[0].source, "{\"a\":1}");
    assert_int_equal(items[0].line, 1);
    assert_int_equal(items[1].action, SF_ES_ACTION_INDEX);
    assert_false(items[1].has_id);
    assert_view(items[1].source, "{\"b\" : 2 }");
    assert_int_equal(items[2].action, SF_ES_ACTION_DELETE);
    assert_view(items[2].index, "other");
    assert_view(items[2].id, "9");
    assert_view(items[2].source, "");
    assert_int_equal(items[3].action, SF_ES_ACTION_UPDATE);
    assert_int_equal(items[3].line, 6);
}

static void test_document_is_a_slice_of_the_body(void **state)
{
    static const char body[] = "{\"index\":{}}\n{\"n\":18446744073709551615,\"x\":1e400}\n";

    (void)state;
    assert_true(parse_text(body));
    assert_ptr_equal(items[0].source.ptr, body + 13);
    assert_view(items[0].source, "{\"n\":18446744073709551615,\"x\":1e400}");
}

static void test_line_ends(void **state)
{
    (void)state;
    assert_true(parse_text("{\"index\":{}}\r\n{\"a\":1}\r\n\n \t\n\r\n{\"index\":{}}\n{}\n"));
    assert_int_equal(count, 2);
    assert_view(items[0].source, "{\"a\":1}");
    assert_view(items[1].source, "{}");
    assert_int_equal(items[1].line, 6);
    /* Only the one carriage return of the line end goes. */
    assert_true(parse_text("{\"index\":{}}\n{}\r\r\n"));
    assert_view(items[0].source, "{}\r");
}

static void test_an_id_written_as_a_number_keeps_its_digits(void **state)
{
    (void)state;
    assert_true(parse_text("{\"create\":{\"_id\":18446744073709551615}}\n{}\n"));
    assert_view(items[0].id, "18446744073709551615");
    assert_true(parse_text("{\"create\":{\"_id\":null}}\n{}\n"));
    assert_false(items[0].has_id);
    assert_true(parse_text("{\"create\":{\"_id\":\"\\u0031\\u0032\"}}\n{}\n"));
    assert_view(items[0].id, "12");
}

struct refused {
    const char *body;
    int status;
    const char *type;
    const char *reason; /* part of it */
};

static void test_refused_requests(void **state)
{
    static const struct refused table[] = {
        {"", 400, "parse_exception", "request body is required"},
        {"\n\n", 400, "action_request_validation_exception", "no requests added"},
        {"{\"index\":{}}\n{}", 400, "illegal_argument_exception", "terminated by a newline"},
        {"{\"index\":{}}", 400, "illegal_argument_exception", "terminated by a newline"},
        {"{\"index\":{}}\n", 400, "illegal_argument_exception", "not followed by a document"},
        {"x\n{}\n", 400, "illegal_argument_exception", "Malformed action/metadata line [1]"},
        {"[]\n{}\n", 400, "illegal_argument_exception", "expected an object"},
        {"{}\n{}\n", 400, "illegal_argument_exception", "expected one of"},
        {"{\"foo\":{}}\n{}\n", 400, "illegal_argument_exception", "expected field [create]"},
        {"{\"index\":1}\n{}\n", 400, "illegal_argument_exception", "object of parameters"},
        {"{\"index\":{}}x\n{}\n", 400, "illegal_argument_exception", "line [1]"},
        {"{\"index\":{},\"create\":{}}\n{}\n", 400, "illegal_argument_exception", "one action"},
        {"{\"index\":{\"foo\":1}}\n{}\n", 400, "illegal_argument_exception",
         "unknown parameter [foo]"},
        {"{\"index\":{\"_id\":true}}\n{}\n", 400, "illegal_argument_exception", "line [1]"},
        {"{\"index\":{\"require_alias\":true}}\n{}\n", 400, "illegal_argument_exception",
         "only served as false"},
        {"{\"index\":{}}\n{}\n{\"index\":{\"_index\":\"\xff\"}}\n{}\n", 400,
         "illegal_argument_exception", "line [3]"},
    };

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(table); i++) {
        assert_false(parse_text(table[i].body));
        assert_int_equal(error.status, table[i].status);
        assert_string_equal(error.type, table[i].type);
        if (strstr(error.reason, table[i].reason) == NULL)
            fail_msg("row %zu: %s", i, error.reason);
    }
}

static void test_unserved_parameters_refuse_their_item_only(void **state)
{
    static const char *const names[] = {"routing", "version", "if_seq_no", "pipeline"};

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(names); i++) {
        char body[160];
        (void)snprintf(body, sizeof(body),
                       "{\"create\":{\"%s\":\"1\"}}\n{}\n{\"create\":{\"%s\":null}}\n{}\n",
                       names[i], names[i]);
        assert_true(parse_text(body));
        assert_int_equal(items[0].error.status, 400);
        assert_non_null(strstr(items[0].error.reason, names[i]));
        assert_int_equal(items[1].error.status, 0);
    }
}

static void test_long_lines(void **state)
{
    size_t len = SF_LIMIT_ES_ACTION_BYTES + 64;
    char *body = malloc(len);

    (void)state;
    assert_non_null(body);
    memset(body, ' ', len);
    memcpy(body, "{\"index\":{}}", 12);
    memcpy(body + len - 4, "\n{}\n", 4);
    assert_false(parse(body, len, "books"));
    assert_non_null(strstr(error.reason, "too long"));
    /* A document of that length is none of the parser's business. */
    memset(body, ' ', len);
    memcpy(body, "{\"index\":{}}\n{", 14);
    body[len - 2] = '}';
    body[len - 1] = '\n';
    assert_true(parse(body, len, "books"));
    assert_int_equal(items[0].source.len, len - 14);
    free(body);
}

static void test_memory_is_bounded(void **state)
{
    struct sf_arena *small = sf_arena_new(4096);
    static const char row[] = "{\"index\":{}}\n{}\n";
    char *body = malloc(1000 * (sizeof(row) - 1));

    (void)state;
    assert_non_null(body);
    for (size_t i = 0; i < 1000; i++)
        memcpy(body + i * (sizeof(row) - 1), row, sizeof(row) - 1);
    assert_false(sf_es_bulk_parse(sf_view_bytes(body, 1000 * (sizeof(row) - 1)),
                                  sf_view_str("books"), small, &items, &count, &error));
    assert_int_equal(error.status, 413);
    sf_arena_destroy(small);
    free(body);
}

static int teardown(void **state)
{
    (void)state;
    sf_arena_destroy(arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_actions),
        cmocka_unit_test(test_document_is_a_slice_of_the_body),
        cmocka_unit_test(test_line_ends),
        cmocka_unit_test(test_an_id_written_as_a_number_keeps_its_digits),
        cmocka_unit_test(test_refused_requests),
        cmocka_unit_test(test_unserved_parameters_refuse_their_item_only),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_memory_is_bounded),
    };
    return SF_RUN_TESTS_WITH("es_bulk", tests, NULL, teardown);
}
