/* Settings and mappings: what they become, what is refused, what a read shows. */
#include "support/proves.h"

#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "gateway/es_mapping.h"

#define T(name) SEARCHFABRIC__V1__FIELD_TYPE__FIELD_TYPE_##name

static struct sf_arena *arena;
static Searchfabric__V1__CollectionSchemaDefinition *definition;
static struct sf_es_error error;

static bool read(const char *body)
{
    sf_arena_destroy(arena);
    arena = sf_arena_new(4u << 20);
    return sf_es_mapping_read(sf_view_str(body), arena, &definition, &error);
}

static void assert_written(const char *expected)
{
    struct sf_buf out = {0};

    sf_es_mapping_write(definition, &out);
    assert_int_equal(out.len, strlen(expected));
    assert_memory_equal(out.data, expected, out.len);
    sf_buf_fini(&out);
}

static void test_nothing(void **state)
{
    (void)state;
    assert_true(read(""));
    assert_int_equal(definition->n_fields, 0);
    assert_int_equal(definition->collection_truth_mode,
                     SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_SEARCH_FABRIC);
    assert_int_equal(
        definition->doc_id_mapping->generation_policy,
        SEARCHFABRIC__V1__DOC_ID_GENERATION_POLICY__DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL);
    assert_int_equal(
        definition->settings->allocator_admission_policy->caller_profile,
        SEARCHFABRIC__V1__ALLOCATOR_CALLER_PROFILE__ALLOCATOR_CALLER_PROFILE_ES_WRITE_GATEWAY_ONLY);
    assert_int_equal(definition->settings->allocator_admission_policy->max_plan_items_per_request,
                     65536);
    assert_int_equal(definition->undeclared_fields,
                     SEARCHFABRIC__V1__UNDECLARED_FIELD_POLICY__UNDECLARED_FIELD_POLICY_STORE);
    assert_written("\"mappings\":{\"dynamic\":\"false\"},\"settings\":{\"index\":{}}");
    assert_true(read("{\"aliases\":{},\"settings\":null,\"mappings\":{}}"));
}

static void test_fields(void **state)
{
    (void)state;
    assert_true(read("{\"mappings\":{\"dynamic\":\"strict\",\"properties\":{"
                     "\"title\":{\"type\":\"text\",\"analyzer\":\"english\"},"
                     "\"year\":{\"type\":\"integer\"},"
                     "\"author\":{\"properties\":{\"name\":{\"type\":\"keyword\"}}},"
                     "\"v\":{\"type\":\"dense_vector\",\"dims\":3,\"similarity\":\"l2_norm\"},"
                     "\"raw\":{\"type\":\"object\",\"enabled\":false}}}}"));
    assert_int_equal(definition->n_fields, 5);
    assert_string_equal(definition->fields[0]->name, "title");
    assert_int_equal(definition->fields[0]->type, T(TEXT));
    assert_string_equal(definition->fields[0]->options[0]->key, "analyzer");
    assert_string_equal(definition->fields[0]->options[0]->value, "english");
    assert_int_equal(definition->fields[1]->type, T(INT64));
    assert_string_equal(definition->fields[2]->name, "author.name");
    assert_int_equal(definition->fields[2]->modalities[0],
                     SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_SEARCH);
    assert_int_equal(definition->fields[3]->type, T(DENSE_VECTOR));
    assert_int_equal(definition->fields[3]->vector->dimensions, 3);
    assert_int_equal(definition->fields[3]->vector->similarity,
                     SEARCHFABRIC__V1__VECTOR_SIMILARITY__VECTOR_SIMILARITY_L2);
    assert_int_equal(definition->fields[3]->modalities[0],
                     SEARCHFABRIC__V1__MODALITY__MODALITY_SEMANTIC_SEARCH);
    assert_int_equal(definition->fields[4]->type, T(OBJECT));
    assert_int_equal(definition->undeclared_fields,
                     SEARCHFABRIC__V1__UNDECLARED_FIELD_POLICY__UNDECLARED_FIELD_POLICY_REJECT);
    assert_written("\"mappings\":{\"dynamic\":\"strict\",\"properties\":{"
                   "\"author\":{\"properties\":{\"name\":{\"type\":\"keyword\"}}},"
                   "\"raw\":{\"type\":\"object\"},"
                   "\"title\":{\"type\":\"text\",\"analyzer\":\"english\"},"
                   "\"v\":{\"type\":\"dense_vector\",\"dims\":3,\"similarity\":\"l2_norm\"},"
                   "\"year\":{\"type\":\"integer\"}}},\"settings\":{\"index\":{}}");
}

static void test_settings(void **state)
{
    static const char *const forms[] = {
        "{\"settings\":{\"number_of_shards\":1,\"max_result_window\":500}}",
        "{\"settings\":{\"index\":{\"number_of_shards\":1,\"max_result_window\":\"500\"}}}",
        "{\"settings\":{\"index.number_of_shards\":\"1\",\"index.max_result_window\":500}}",
    };

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(forms); i++) {
        assert_true(read(forms[i]));
        assert_int_equal(definition->settings->max_result_window, 500);
        assert_int_equal(definition->n_options, 1);
        assert_string_equal(definition->options[0]->key, "index.number_of_shards");
        assert_string_equal(definition->options[0]->value, "1");
    }
    /* half of the ids unless given: no single id uses up the space */
    assert_int_equal(definition->settings->allocator_admission_policy->max_forward_reservation_jump,
                     INT64_MAX);
    assert_int_equal(definition->settings->allocator_admission_policy->max_plan_items_per_request,
                     SF_LIMIT_ALLOC_PLAN_ITEMS);
    assert_true(read("{\"settings\":{\"search_fabric.max_forward_reservation_jump\":\"1000\"}}"));
    assert_int_equal(definition->settings->allocator_admission_policy->max_forward_reservation_jump,
                     1000);
    assert_true(read("{\"settings\":{\"search_fabric.max_forward_reservation_jump\":"
                     "\"18446744073709551615\"}}"));
    assert_int_equal(definition->settings->allocator_admission_policy->max_forward_reservation_jump,
                     UINT64_MAX);
}

struct refused {
    const char *body;
    const char *type;
    const char *reason; /* part of it */
};

static void test_refused(void **state)
{
    static const struct refused table[] = {
        {"x", "parse_exception", "Failed to parse"},
        {"[]", "parse_exception", "Failed to parse"},
        {"{} {}", "parse_exception", "Failed to parse"},
        {"{\"foo\":1}", "parse_exception", "[foo]"},
        {"{\"aliases\":{\"a\":{}}}", "illegal_argument_exception", "[aliases]"},
        {"{\"settings\":{\"analysis\":{\"analyzer\":{\"a\":{\"type\":\"x\"}}}}}",
         "illegal_argument_exception", "[index.analysis.analyzer.a.type]"},
        {"{\"settings\":{\"max_result_window\":0}}", "illegal_argument_exception",
         "max_result_window"},
        {"{\"settings\":{\"number_of_shards\":[1]}}", "illegal_argument_exception",
         "number_of_shards"},
        {"{\"mappings\":{\"_source\":{\"enabled\":false}}}", "mapper_parsing_exception",
         "[_source]"},
        {"{\"mappings\":{\"dynamic\":\"runtime\"}}", "mapper_parsing_exception", "runtime"},
        {"{\"mappings\":{\"properties\":{\"a\":{}}}}", "mapper_parsing_exception",
         "No type specified for field [a]"},
        {"{\"mappings\":{\"properties\":{\"a\":1}}}", "mapper_parsing_exception", "[a]"},
        {"{\"mappings\":{\"properties\":{\"a\":{\"type\":\"nested\",\"properties\":{}}}}}",
         "mapper_parsing_exception", "[nested]"},
        {"{\"mappings\":{\"properties\":{\"a\":{\"type\":\"join\"}}}}", "mapper_parsing_exception",
         "[join]"},
        {"{\"mappings\":{\"properties\":{\"a\":{\"type\":\"keyword\",\"copy_to\":\"b\"}}}}",
         "mapper_parsing_exception", "[copy_to]"},
        {"{\"mappings\":{\"properties\":{\"a\":{\"type\":\"dense_vector\"}}}}",
         "mapper_parsing_exception", "[dims]"},
        {"{\"mappings\":{\"properties\":{\"a\":{\"type\":\"dense_vector\",\"dims\":5000}}}}",
         "mapper_parsing_exception", "4096"},
        {"{\"mappings\":{\"properties\":{\"a\":{\"type\":\"dense_vector\",\"dims\":3,"
         "\"element_type\":\"byte\"}}}}",
         "mapper_parsing_exception", "element_type"},
        {"{\"mappings\":{\"properties\":{\"\":{\"type\":\"keyword\"}}}}",
         "mapper_parsing_exception", "empty"},
    };

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(table); i++) {
        if (read(table[i].body))
            fail_msg("row %zu was taken", i);
        assert_int_equal(error.status, 400);
        if (strcmp(error.type, table[i].type) != 0 || strstr(error.reason, table[i].reason) == NULL)
            fail_msg("row %zu: %s: %s", i, error.type, error.reason);
    }
}

static void test_field_options_come_back_as_json(void **state)
{
    (void)state;
    assert_true(read("{\"mappings\":{\"properties\":{\"a\":{\"type\":\"text\",\"fields\":"
                     "{\"raw\":{\"type\":\"keyword\"}},\"norms\":false}}}}"));
    assert_written("\"mappings\":{\"dynamic\":\"false\",\"properties\":{\"a\":{\"type\":\"text\","
                   "\"fields\":{\"raw\":{\"type\":\"keyword\"}},\"norms\":false}}},"
                   "\"settings\":{\"index\":{}}");
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
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_field_options_come_back_as_json),
    };
    return SF_RUN_TESTS_WITH("es_mapping", tests, NULL, teardown);
}
