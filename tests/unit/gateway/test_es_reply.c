/* Answers, byte for byte, in the shapes of Elasticsearch's REST API reference. */
#include "support/proves.h"

#include <string.h>

#include "base/json.h"
#include "gateway/es_reply.h"

static struct sf_buf out;

static void assert_out(const char *expected)
{
    if (out.len != strlen(expected) || memcmp(out.data, expected, out.len) != 0)
        fail_msg("got %.*s", (int)out.len, (const char *)out.data);
    sf_buf_clear(&out);
}

static void test_created(void **state)
{
    const struct sf_es_result result = {.doc_id = UINT64_MAX, .commit_ts = (uint64_t)5 << 18 | 3};
    const struct sf_es_bulk_item item = {.action = SF_ES_ACTION_INDEX,
                                         .index = sf_view_str("books")};

    (void)state;
    SF_PROVES("ALLOC-5.1-02");
    sf_es_reply_created(&result, sf_view_str("books"), &out);
    assert_out("\"_index\":\"books\",\"_id\":\"18446744073709551615\",\"_version\":1,"
               "\"result\":\"created\",\"_shards\":{\"total\":1,\"successful\":1,\"failed\":0},"
               "\"_seq_no\":5,\"_primary_term\":1");
    sf_es_reply_item(&item, &result, &out);
    assert_out("{\"index\":{\"_index\":\"books\",\"_id\":\"18446744073709551615\",\"_version\":1,"
               "\"result\":\"created\",\"_shards\":{\"total\":1,\"successful\":1,\"failed\":0},"
               "\"_seq_no\":5,\"_primary_term\":1,\"status\":201}}");
}

static void test_item_error(void **state)
{
    const struct sf_es_result result = {
        .error = {409, "version_conflict_engine_exception", "say \"no\""}};
    struct sf_es_bulk_item item = {.action = SF_ES_ACTION_CREATE,
                                   .has_id = true,
                                   .index = sf_view_str("b\xc3\xbc"),
                                   .id = sf_view_str("7")};

    (void)state;
    sf_es_reply_item(&item, &result, &out);
    assert_out("{\"create\":{\"_index\":\"b\xc3\xbc\",\"_id\":\"7\",\"status\":409,\"error\":{"
               "\"type\":\"version_conflict_engine_exception\",\"reason\":\"say \\\"no\\\"\"}}}");
    item.has_id = false;
    item.index = sf_view_str("");
    sf_es_reply_item(&item, &result, &out);
    assert_out("{\"create\":{\"_index\":null,\"_id\":null,\"status\":409,\"error\":{"
               "\"type\":\"version_conflict_engine_exception\",\"reason\":\"say \\\"no\\\"\"}}}");
}

static void test_request_error(void **state)
{
    const struct sf_es_error missing = {404, "index_not_found_exception", "no such index [x]"};
    const struct sf_es_error other = {400, "parse_exception", "bad"};

    (void)state;
    sf_es_reply_error(&missing, sf_view_str("x"), &out);
    assert_out("{\"error\":{\"root_cause\":[{\"type\":\"index_not_found_exception\","
               "\"reason\":\"no such index [x]\",\"resource.type\":\"index_or_alias\","
               "\"resource.id\":\"x\",\"index_uuid\":\"_na_\",\"index\":\"x\"}],"
               "\"type\":\"index_not_found_exception\",\"reason\":\"no such index [x]\","
               "\"resource.type\":\"index_or_alias\",\"resource.id\":\"x\","
               "\"index_uuid\":\"_na_\",\"index\":\"x\"},\"status\":404}");
    sf_es_reply_error(&other, sf_view_str("x"), &out);
    assert_out("{\"error\":{\"root_cause\":[{\"type\":\"parse_exception\",\"reason\":\"bad\"}],"
               "\"type\":\"parse_exception\",\"reason\":\"bad\"},\"status\":400}");
}

struct code_row {
    enum sf_err err;
    int status;
    const char *type;
};

static void test_codes(void **state)
{
    static const struct code_row table[] = {
        {SF_BAD_REQUEST, 400, "illegal_argument_exception"},
        {SF_INVALID_ARGUMENT, 400, "illegal_argument_exception"},
        {SF_UNAUTHENTICATED, 401, "security_exception"},
        {SF_FORBIDDEN, 403, "security_exception"},
        {SF_RESOURCE_NOT_FOUND, 404, "index_not_found_exception"},
        {SF_VERSION_CONFLICT, 409, "version_conflict_engine_exception"},
        {SF_IDEMPOTENCY_CONFLICT, 409, "version_conflict_engine_exception"},
        {SF_RATE_LIMITED, 429, "es_rejected_execution_exception"},
        {SF_BACKEND_UNAVAILABLE, 503, "unavailable_shards_exception"},
        {SF_CATALOG_UNAVAILABLE, 503, "unavailable_shards_exception"},
        {SF_UNIMPLEMENTED, 501, "unsupported_operation_exception"},
        {SF_INTERNAL, 500, "exception"},
        {SF_ERR_AMBIGUOUS, 503, "unavailable_shards_exception"},
    };
    struct sf_arena *arena = sf_arena_new(1u << 16);

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(table); i++) {
        struct sf_diag diag;
        sf_diag_init(&diag);
        (void)sf_diag_set(&diag, table[i].err, "why");
        struct sf_es_error error = sf_es_error_of(&diag, arena);
        assert_int_equal(error.status, table[i].status);
        assert_string_equal(error.type, table[i].type);
        assert_memory_equal(error.reason, "why [SF_", 8);
        assert_int_equal(strstr(error.reason, "Idempotency-Key") != NULL,
                         table[i].err == SF_IDEMPOTENCY_CONFLICT);
    }
    struct sf_diag body;
    sf_diag_init(&body);
    (void)sf_diag_bad_field(&body, "entries.row.body", "malformed", "no object");
    assert_string_equal(sf_es_error_of(&body, arena).type, "document_parsing_exception");
    sf_arena_destroy(arena);
}

static void test_root(void **state)
{
    (void)state;
    sf_es_reply_root(&out);
    assert_true(sf_json_valid(sf_buf_view(&out), 8));
    sf_buf_append(&out, "", 1);
    assert_non_null(strstr((const char *)out.data, "\"number\":\"9."));
    assert_non_null(strstr((const char *)out.data, "\"tagline\":\"You Know, for Search\""));
    sf_buf_clear(&out);
}

static int teardown(void **state)
{
    (void)state;
    sf_buf_fini(&out);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_created),       cmocka_unit_test(test_item_error),
        cmocka_unit_test(test_request_error), cmocka_unit_test(test_codes),
        cmocka_unit_test(test_root),
    };
    return SF_RUN_TESTS_WITH("es_reply", tests, NULL, teardown);
}
