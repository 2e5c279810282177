/* Paths, methods, index names and media types of the Elasticsearch edge. */
#include "support/proves.h"

#include <string.h>

#include "gateway/es_route.h"

struct route_row {
    const char *method;
    const char *path;
    bool op_type_create;
    enum sf_es_op op;
    const char *index;
    const char *id; /* NULL = none */
    int status;     /* of the error, 0 = none */
};

static void test_routes(void **state)
{
    static const struct route_row table[] = {
        {"GET", "/", false, SF_ES_OP_ROOT, "", NULL, 0},
        {"HEAD", "/", false, SF_ES_OP_ROOT, "", NULL, 0},
        {"POST", "/", false, SF_ES_OP_UNKNOWN, "", NULL, 400},
        {"HEAD", "/books", false, SF_ES_OP_INDEX_EXISTS, "books", NULL, 0},
        {"GET", "/books", false, SF_ES_OP_INDEX_GET, "books", NULL, 0},
        {"PUT", "/books/", false, SF_ES_OP_INDEX_CREATE, "books", NULL, 0},
        {"DELETE", "/books", false, SF_ES_OP_INDEX_DELETE, "books", NULL, 0},
        {"PATCH", "/books", false, SF_ES_OP_UNKNOWN, "books", NULL, 400},
        {"POST", "/books/_doc", false, SF_ES_OP_DOC_CREATE, "books", NULL, 0},
        {"PUT", "/books/_doc", false, SF_ES_OP_UNKNOWN, "books", NULL, 400},
        {"PUT", "/books/_create/7", false, SF_ES_OP_DOC_CREATE, "books", "7", 0},
        {"POST", "/books/_create/7", false, SF_ES_OP_DOC_CREATE, "books", "7", 0},
        {"POST", "/books/_create", false, SF_ES_OP_UNKNOWN, "books", NULL, 400},
        {"PUT", "/books/_doc/7", true, SF_ES_OP_DOC_CREATE, "books", "7", 0},
        {"PUT", "/books/_doc/7", false, SF_ES_OP_NOT_SERVED, "books", "7", 501},
        {"GET", "/books/_doc/7", false, SF_ES_OP_NOT_SERVED, "books", "7", 501},
        {"DELETE", "/books/_doc/7", false, SF_ES_OP_NOT_SERVED, "books", "7", 501},
        {"POST", "/_bulk", false, SF_ES_OP_BULK, "", NULL, 0},
        {"PUT", "/books/_bulk", false, SF_ES_OP_BULK, "books", NULL, 0},
        {"GET", "/_bulk", false, SF_ES_OP_UNKNOWN, "", NULL, 400},
        {"POST", "/books/_search", false, SF_ES_OP_NOT_SERVED, "books", NULL, 501},
        {"POST", "/_search", false, SF_ES_OP_NOT_SERVED, "", NULL, 501},
        {"POST", "/books/_update/1", false, SF_ES_OP_NOT_SERVED, "books", NULL, 501},
        {"POST", "/_all/_refresh", false, SF_ES_OP_NOT_SERVED, "", NULL, 501},
        {"POST", "/_all/_nonsense", false, SF_ES_OP_UNKNOWN, "", NULL, 400},
        {"GET", "/_nonsense", false, SF_ES_OP_UNKNOWN, "_nonsense", NULL, 400},
        {"PUT", "/_nonsense", false, SF_ES_OP_UNKNOWN, "_nonsense", NULL, 400},
        {"POST", "/_nonsense", false, SF_ES_OP_UNKNOWN, "", NULL, 400},
        {"PUT", "/_nonsense/_doc", false, SF_ES_OP_UNKNOWN, "", NULL, 400},
        {"GET", "/a/b/c/d/e", false, SF_ES_OP_UNKNOWN, "", NULL, 400},
        {"PUT", "/a%2Fb/_create/1%20", false, SF_ES_OP_DOC_CREATE, "a/b", "1 ", 0},
        {"HEAD", "/b%", false, SF_ES_OP_INDEX_EXISTS, "b%", NULL, 0},
        {"HEAD", "//books//", false, SF_ES_OP_INDEX_EXISTS, "books", NULL, 0},
    };

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(table); i++) {
        struct sf_arena *arena = sf_arena_new(1u << 16);
        struct sf_es_route route;
        assert_true(sf_es_route(table[i].method, sf_view_str(table[i].path),
                                table[i].op_type_create, arena, &route));
        if (route.op != table[i].op || route.error.status != table[i].status)
            fail_msg("%s %s: op %d status %d", table[i].method, table[i].path, route.op,
                     route.error.status);
        assert_true(sf_view_equal(route.index, sf_view_str(table[i].index)));
        if (table[i].id != NULL) {
            assert_true(route.has_id);
            assert_true(sf_view_equal(route.id, sf_view_str(table[i].id)));
        }
        sf_arena_destroy(arena);
    }
}

static void test_names_that_look_like_endpoints(void **state)
{
    static const struct route_text {
        const char *method;
        const char *path;
        const char *type;
        const char *reason;
    } table[] = {
        {"PUT", "/_x", "invalid_index_name_exception",
         "Invalid index name [_x], must not start with '_', '-', or '+'"},
        {"GET", "/_x", "invalid_index_name_exception", "Invalid index name [_x]"},
        {"POST", "/_x", "illegal_argument_exception",
         "no handler found for uri [/_x] and method [POST]"},
        {"PUT", "/_all/_x", "illegal_argument_exception", "no handler found"},
        {"PUT", "/_search", "unsupported_operation_exception", "this endpoint is not served"},
    };

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(table); i++) {
        struct sf_arena *arena = sf_arena_new(1u << 16);
        struct sf_es_route route;
        assert_true(sf_es_route(table[i].method, sf_view_str(table[i].path), false, arena, &route));
        assert_string_equal(route.error.type, table[i].type);
        if (strstr(route.error.reason, table[i].reason) == NULL)
            fail_msg("%s %s: %s", table[i].method, table[i].path, route.error.reason);
        sf_arena_destroy(arena);
    }
}

static void test_index_names(void **state)
{
    static const char *const good[] = {"books", "b", "logs-2026.11.30", "\xc3\xbc"};
    static const char *const bad[] = {"",    "Books", "_books", "-b",  "+b",  ".",
                                      "..",  "a b",   "a*",     "a/b", "a,b", "a#b",
                                      "a:b", "a\"b",  "\xff",   "a\nb"};

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(good); i++)
        assert_null(sf_es_index_name_violation(sf_view_str(good[i])));
    for (size_t i = 0; i < SF_ARRAY_LEN(bad); i++)
        if (sf_es_index_name_violation(sf_view_str(bad[i])) == NULL)
            fail_msg("%s was taken", bad[i]);
}

struct media_row {
    const char *header;
    enum sf_es_media media;
    int compatible;
};

static void test_media_types(void **state)
{
    static const struct media_row table[] = {
        {NULL, SF_ES_MEDIA_NONE, 0},
        {"*/*", SF_ES_MEDIA_NONE, 0},
        {"application/json", SF_ES_MEDIA_JSON, 0},
        {"application/json; charset=utf-8", SF_ES_MEDIA_JSON, 0},
        {"application/x-ndjson", SF_ES_MEDIA_NDJSON, 0},
        {"application/vnd.elasticsearch+json; compatible-with=8", SF_ES_MEDIA_JSON, 8},
        {"application/vnd.elasticsearch+json;compatible-with=9", SF_ES_MEDIA_JSON, 9},
        {"application/vnd.elasticsearch+x-ndjson; compatible-with=9", SF_ES_MEDIA_NDJSON, 9},
        {"application/vnd.elasticsearch+json; compatible-with=7", SF_ES_MEDIA_VERSION, 0},
        {"application/vnd.elasticsearch+json; compatible-with=88", SF_ES_MEDIA_VERSION, 0},
        {"application/vnd.elasticsearch+json", SF_ES_MEDIA_VERSION, 0},
        {"text/plain", SF_ES_MEDIA_OTHER, 0},
        {"application/x-www-form-urlencoded", SF_ES_MEDIA_OTHER, 0},
        {"application/vnd.elasticsearch+json; compatible-with=8,text/plain", SF_ES_MEDIA_JSON, 8},
        {"text/html, application/json", SF_ES_MEDIA_JSON, 0},
    };

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(table); i++) {
        int compatible;
        assert_int_equal(sf_es_media_read(table[i].header, &compatible), table[i].media);
        assert_int_equal(compatible, table[i].compatible);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_names_that_look_like_endpoints),
        cmocka_unit_test(test_index_names),
        cmocka_unit_test(test_media_types),
    };
    return SF_RUN_TESTS("es_route", tests);
}
