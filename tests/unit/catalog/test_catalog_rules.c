/*
 * The catalog's rules as tables. Key digests were computed by hand from their definition (domain
 * tag and length-prefixed fields), not from program output.
 */
#include "catalog/catalog_rules.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/pbjson.h"
#include "contract/descriptor_set.h"
#include "support/proves.h"

/* SHA-256 of "loopback". */
#define LOOPBACK "64edaa3fb9310e98cdb183cddbf156d9964a05c017fa7f8ee3c262909fa36759"

static SF_PB(RequestMeta) meta_of(const char *key, const char *client)
{
    SF_PB(RequestMeta) meta;
    searchfabric__v1__request_meta__init(&meta);
    meta.idempotency_key = (char *)(uintptr_t)key;
    meta.client_id = (char *)(uintptr_t)client;
    meta.client_kind = SF_PBE(CLIENT_KIND, CONTROL_ADMIN);
    return meta;
}

/* ---- keys --------------------------------------------------------------------------------- */

static void test_replay_keys(void **state)
{
    (void)state;
    SF_PROVES("CCS-4.2-01", "CCS-4.2-02", "CCS-5.6-05", "CCS-8-10");
    char hex[SF_SHA256_HEX_BYTES];
    SF_PB(RequestMeta) meta = meta_of("k1", "client-1");
    SF_PB(PutNamespaceMetadataRequest) ns;
    searchfabric__v1__put_namespace_metadata_request__init(&ns);
    ns.meta = &meta;
    ns.namespace_name = "alpha";
    sf_catalog_replay_key(SF_CATALOG_TAG_COMMAND, "PUT_NAMESPACE_METADATA", LOOPBACK,
                          &sf_catalog_put_namespace, &ns.base, hex);
    assert_string_equal(hex, "036834e342e769491e83f07825ffa917ebcd058f714ea055ba268b0b68d97501");
    sf_catalog_replay_key(SF_CATALOG_TAG_TRANSPORT, "PutNamespaceMetadata", LOOPBACK,
                          &sf_catalog_put_namespace, &ns.base, hex);
    assert_string_equal(hex, "d69790f43a9e1a77498a42482562a81a7bbf0e89ff94e3103cf4663cbf8cac6f");
    SF_PB(PutCollectionMetadataRequest) coll;
    SF_PB(CollectionNameBinding) binding;
    searchfabric__v1__put_collection_metadata_request__init(&coll);
    searchfabric__v1__collection_name_binding__init(&binding);
    binding.namespace_id = 7;
    binding.collection_name = "books";
    coll.meta = &meta;
    coll.name_binding = &binding;
    sf_catalog_replay_key(SF_CATALOG_TAG_COMMAND, "PUT_COLLECTION_METADATA", LOOPBACK,
                          &sf_catalog_put_collection, &coll.base, hex);
    assert_string_equal(hex, "5abdc196a6c66cf3b0e88af42a8f393b13209aaf91b121998c5128168a81f4ad");
    SF_PB(PutCollectionSchemaRequest) schema;
    SF_PB(CollectionRef) ref;
    SF_PB(SchemaFencePrecondition) fence;
    searchfabric__v1__put_collection_schema_request__init(&schema);
    searchfabric__v1__collection_ref__init(&ref);
    searchfabric__v1__schema_fence_precondition__init(&fence);
    ref.namespace_id = 7;
    ref.collection_id = 9;
    fence.schema_generation_token = "tok";
    schema.meta = &meta;
    schema.collection = &ref;
    schema.schema_version = 3;
    schema.fence = &fence;
    sf_catalog_replay_key(SF_CATALOG_TAG_COMMAND, "PUT_COLLECTION_SCHEMA", LOOPBACK,
                          &sf_catalog_put_schema, &schema.base, hex);
    assert_string_equal(hex, "54467e0330938efaeeac83f1f1570a5da3170124accc9298554e5bcc845aa95e");
    sf_catalog_put_schema.business(&schema.base, hex);
    assert_string_equal(hex, "f0e2ff991e279df3b9883599f699e089074c3decde892074160aed98f38a3b54");
}

/* Each input of the key changes it; nothing else does. */
static void test_replay_key_inputs(void **state)
{
    (void)state;
    char base[SF_SHA256_HEX_BYTES], other[SF_SHA256_HEX_BYTES];
    SF_PB(RequestMeta) meta = meta_of("k1", "client-1");
    SF_PB(PutNamespaceMetadataRequest) ns;
    searchfabric__v1__put_namespace_metadata_request__init(&ns);
    ns.meta = &meta;
    ns.namespace_name = "alpha";
    const struct sf_catalog_mutation *ops = &sf_catalog_put_namespace;
    sf_catalog_replay_key("t", "m", LOOPBACK, ops, &ns.base, base);
#define DIFFERS(change, undo)                                                                      \
    do {                                                                                           \
        change;                                                                                    \
        sf_catalog_replay_key("t", "m", LOOPBACK, ops, &ns.base, other);                           \
        assert_string_not_equal(base, other);                                                      \
        undo;                                                                                      \
    } while (0)
#define SAME(change)                                                                               \
    do {                                                                                           \
        change;                                                                                    \
        sf_catalog_replay_key("t", "m", LOOPBACK, ops, &ns.base, other);                           \
        assert_string_equal(base, other);                                                          \
    } while (0)
    DIFFERS(meta.idempotency_key = "k2", meta.idempotency_key = "k1");
    DIFFERS(meta.client_id = "client-2", meta.client_id = "client-1");
    DIFFERS(ns.namespace_name = "beta", ns.namespace_name = "alpha");
    sf_catalog_replay_key("t", "m2", LOOPBACK, ops, &ns.base, other);
    assert_string_not_equal(base, other);
    sf_catalog_replay_key("t", "m", "00", ops, &ns.base, other);
    assert_string_not_equal(base, other);
    SAME(meta.client_kind = SF_PBE(CLIENT_KIND, TIDB_DDL_ADAPTER));
    SAME(meta._principal_subject_case =
             SEARCHFABRIC__V1__REQUEST_META___PRINCIPAL_SUBJECT_PRINCIPAL_SUBJECT;
         meta.principal_subject = "x");
    SAME(meta._correlation_id_case = SEARCHFABRIC__V1__REQUEST_META___CORRELATION_ID_CORRELATION_ID;
         meta.correlation_id = "y");
}

static void test_object_keys(void **state)
{
    (void)state;
    struct sf_buf key = {0};
#define KEY_IS(call, text)                                                                         \
    do {                                                                                           \
        sf_buf_clear(&key);                                                                        \
        call;                                                                                      \
        assert_true(sf_view_equal(sf_buf_view(&key), sf_view_str(text)));                          \
    } while (0)
    KEY_IS(sf_catalog_key_namespace(&key, 7, 3), "catalog/79/7/namespace_descriptor_v3.json");
    KEY_IS(sf_catalog_key_collection(&key, 7, 42, 1),
           "catalog/79/7/42/collection_descriptor_v1.json");
    KEY_IS(sf_catalog_key_generation(&key, UINT64_MAX, 1, 2, "a/b_%"),
           "catalog/2c/18446744073709551615/1/schema_generation_v2_a%2Fb_%25.json");
    KEY_IS(sf_catalog_key_statistics_head(&key, 42, 7),
           "catalog/73/42/7/optimizer_statistics_head.json");
    KEY_IS(sf_catalog_key_statistics(&key, 42, 7, "t", 0),
           "catalog/73/42/7/optimizer_statistics_vt_0.json");
    KEY_IS(sf_catalog_key_namespace_name(&key, "alpha"),
           "catalog-allocator/namespace-name/8e/alpha.json");
    KEY_IS(sf_catalog_key_collection_name(&key, 7, "a/b"),
           "catalog-allocator/collection-name/79/7/c1/a%2Fb.json");
    KEY_IS(sf_catalog_key_segment(&key, 12),
           "catalog-recovery-segments/segment_00000000000000000012.json.zst");
    uint64_t epoch = 0;
    assert_true(sf_catalog_segment_of_key(sf_buf_view(&key), &epoch));
    assert_true(epoch == 12);
    assert_false(sf_catalog_segment_of_key(
        sf_view_str("catalog-recovery-segments/segment_0000000000000000001x.json.zst"), &epoch));
    assert_false(sf_catalog_segment_of_key(sf_view_str("catalog-log/x"), &epoch));
    sf_buf_fini(&key);
}

/* ---- callers ------------------------------------------------------------------------------ */

static void test_caller_matrix(void **state)
{
    (void)state;
    enum { NS = 1, COLL = 2, SCHEMA = 4, DROP = 8, READ = 16 };
    static const struct {
        SF_PB(ClientKind) kind;
        unsigned may;
        bool external;
    } rows[] = {
        {SF_PBE(CLIENT_KIND, UNSPECIFIED), 0, false},
        {SF_PBE(CLIENT_KIND, TIDB_DDL_ADAPTER), NS | COLL | SCHEMA | DROP | READ, true},
        {SF_PBE(CLIENT_KIND, CONTROL_ADMIN), NS | COLL | SCHEMA | DROP | READ, false},
        {SF_PBE(CLIENT_KIND, ES_WRITE_GATEWAY), COLL | SCHEMA | DROP | READ, false},
        {SF_PBE(CLIENT_KIND, ES_QUERY_GATEWAY), COLL | SCHEMA | READ, false},
        {SF_PBE(CLIENT_KIND, TP_WRITE_GATEWAY), COLL | SCHEMA | DROP | READ, false},
        {SF_PBE(CLIENT_KIND, TP_QUERY_GATEWAY), COLL | SCHEMA | READ, false},
        {SF_PBE(CLIENT_KIND, TIDB_WRITE_GATEWAY), READ, false},
        {SF_PBE(CLIENT_KIND, TIDB_QUERY_GATEWAY), READ, false},
        {SF_PBE(CLIENT_KIND, TIDB_CDC_ADAPTER), READ, false},
        {(SF_PB(ClientKind))31, 0, false},
        {(SF_PB(ClientKind))99, 0, false},
    };
    struct sf_diag diag;
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        for (int family = SF_CATALOG_FAMILY_PUT_NAMESPACE; family <= SF_CATALOG_FAMILY_READ;
             family++) {
            enum sf_err err =
                sf_catalog_caller_check((enum sf_catalog_family)family, rows[i].kind, &diag);
            assert_int_equal(err, (rows[i].may & (1u << family)) != 0 ? SF_OK : SF_FORBIDDEN);
        }
        if ((rows[i].may & COLL) == 0)
            continue;
        assert_int_equal(
            sf_catalog_mode_check(rows[i].kind, SF_PBE(COLLECTION_TRUTH_MODE, EXTERNAL), &diag),
            rows[i].external ? SF_OK : SF_OWNERSHIP_CONFLICT);
        assert_int_equal(sf_catalog_mode_check(rows[i].kind,
                                               SF_PBE(COLLECTION_TRUTH_MODE, SEARCH_FABRIC), &diag),
                         rows[i].external ? SF_OWNERSHIP_CONFLICT : SF_OK);
        assert_int_equal(sf_catalog_mode_default(rows[i].kind),
                         rows[i].external ? SF_PBE(COLLECTION_TRUTH_MODE, EXTERNAL)
                                          : SF_PBE(COLLECTION_TRUTH_MODE, SEARCH_FABRIC));
    }
}

static void test_meta(void **state)
{
    (void)state;
    char key128[129], key129[130], id256[257], id257[258];
    memset(key128, 'k', 128);
    key128[128] = '\0';
    memset(key129, 'k', 129);
    key129[129] = '\0';
    memset(id256, 'c', 256);
    id256[256] = '\0';
    memset(id257, 'c', 257);
    id257[257] = '\0';
    const struct {
        const char *key, *client;
        bool mutation;
        const char *field; /* NULL = accepted */
    } rows[] = {
        {"k", "c", true, NULL},
        {key128, id256, true, NULL},
        {"", "c", false, NULL},
        {"", "c", true, "meta.idempotency_key"},
        {key129, "c", true, "meta.idempotency_key"},
        {"k", "", true, "meta.client_id"},
        {"k", id257, false, "meta.client_id"},
        {"\xff", "c", true, "meta.idempotency_key"},
    };
    struct sf_diag diag;
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        SF_PB(RequestMeta) meta = meta_of(rows[i].key, rows[i].client);
        sf_diag_init(&diag);
        enum sf_err err = sf_catalog_meta_check(&meta, rows[i].mutation, &diag);
        assert_int_equal(err, rows[i].field == NULL ? SF_OK : SF_BAD_REQUEST);
        if (rows[i].field != NULL)
            assert_string_equal(sf_diag_get(&diag, "field"), rows[i].field);
    }
    assert_int_equal(sf_catalog_meta_check(NULL, false, &diag), SF_BAD_REQUEST);
}

static void test_lifecycle_conflict(void **state)
{
    (void)state;
    struct sf_diag diag;
    sf_diag_init(&diag);
    assert_int_equal(sf_catalog_lifecycle_conflict(
                         &diag, "parent_namespace",
                         sf_catalog_lifecycle_text(SF_PBE(NAMESPACE_LIFECYCLE_STATE, QUIESCING)),
                         "m"),
                     SF_VERSION_CONFLICT);
    assert_string_equal(sf_diag_get(&diag, "reservation_scope"), "parent_namespace");
    assert_string_equal(sf_diag_get(&diag, "conflicting_lifecycle_state"), "quiescing");
    assert_string_equal(sf_catalog_lifecycle_text(SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED)),
                        "tombstoned");
    assert_string_equal(sf_catalog_lifecycle_text(SF_PBE(NAMESPACE_LIFECYCLE_STATE, ACTIVE)),
                        "active");
}

/* ---- payload ------------------------------------------------------------------------------ */

/* Map order and RequestMeta do not matter, everything else does. */
static void test_fingerprint(void **state)
{
    (void)state;
    char a[SF_SHA256_HEX_BYTES], b[SF_SHA256_HEX_BYTES];
    SF_PB(RequestMeta) meta = meta_of("k1", "c");
    SF_PB(PutNamespaceMetadataRequest) put;
    SF_PB(DescriptorOptions) options;
    SF_PB(DescriptorOptions__EntriesEntry) one, two;
    SF_PB(DescriptorOptions__EntriesEntry) * entries[2] = {&one, &two};
    searchfabric__v1__put_namespace_metadata_request__init(&put);
    searchfabric__v1__descriptor_options__init(&options);
    searchfabric__v1__descriptor_options__entries_entry__init(&one);
    searchfabric__v1__descriptor_options__entries_entry__init(&two);
    one.key = "a";
    one.value = "1";
    two.key = "b";
    two.value = "2";
    options.entries = entries;
    options.n_entries = 2;
    put.meta = &meta;
    put.namespace_name = "alpha";
    put.options = &options;
    sf_catalog_fingerprint(&put.base, a);
    meta.idempotency_key = "k2";
    entries[0] = &two;
    entries[1] = &one;
    sf_catalog_fingerprint(&put.base, b);
    assert_string_equal(a, b);
    assert_ptr_equal(put.meta, &meta);
    two.value = "3";
    sf_catalog_fingerprint(&put.base, b);
    assert_string_not_equal(a, b);
    two.value = "2";
    options.n_entries = 0;
    sf_catalog_fingerprint(&put.base, a);
    put.options = NULL; /* present but empty is another payload than absent */
    sf_catalog_fingerprint(&put.base, b);
    assert_string_not_equal(a, b);
}

static void test_unknown_fields(void **state)
{
    (void)state;
    static const uint8_t known[] = {0x12, 0x01, 'a'};
    static const uint8_t unknown_top[] = {0x12, 0x01, 'a', 0xf8, 0x07, 0x01};
    static const uint8_t unknown_inner[] = {0x12, 0x01, 'a', 0x0a, 0x03, 0xf8, 0x07, 0x01};
    static const struct {
        struct sf_view bytes;
        enum sf_err err;
    } rows[] = {{{known, sizeof(known)}, SF_OK},
                {{unknown_top, sizeof(unknown_top)}, SF_BAD_REQUEST},
                {{unknown_inner, sizeof(unknown_inner)}, SF_BAD_REQUEST}};
    struct sf_diag diag;
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        struct sf_arena *arena = sf_arena_new(1 << 20);
        ProtobufCMessage *message = NULL;
        assert_int_equal(sf_pb_unpack(&searchfabric__v1__put_namespace_metadata_request__descriptor,
                                      rows[i].bytes, arena, &diag, &message),
                         SF_OK);
        assert_int_equal(sf_catalog_unknown_check(message, &diag), rows[i].err);
        sf_arena_destroy(arena);
    }
}

static void test_completeness(void **state)
{
    (void)state;
    static const struct {
        bool stats, index;
        size_t missing;
        const char *first, *second;
    } rows[] = {{true, true, 0, NULL, NULL},
                {false, true, 1, "approx_stats", NULL},
                {true, false, 1, "index", NULL},
                {false, false, 2, "approx_stats", "index"}};
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        struct sf_arena *arena = sf_arena_new(1 << 16);
        const SF_PB(DescriptorCompleteness) *c =
            sf_catalog_completeness(rows[i].stats, rows[i].index, arena);
        assert_int_equal(c->state_case,
                         rows[i].missing == 0
                             ? SEARCHFABRIC__V1__DESCRIPTOR_COMPLETENESS__STATE_READY
                             : SEARCHFABRIC__V1__DESCRIPTOR_COMPLETENESS__STATE_PUBLISHING);
        if (rows[i].missing != 0) {
            assert_int_equal(c->publishing->n_missing_fields, rows[i].missing);
            assert_string_equal(c->publishing->missing_fields[0], rows[i].first);
            if (rows[i].second != NULL)
                assert_string_equal(c->publishing->missing_fields[1], rows[i].second);
        }
        sf_arena_destroy(arena);
    }
}

/* ---- schema ------------------------------------------------------------------------------- */

/* A valid request, decoded from JSON with a part replaced. */
static SF_PB(PutCollectionSchemaRequest) *
    schema_of(struct sf_arena *arena, const char *definition_extra, const char *request_extra)
{
    char json[2048];
    struct sf_diag diag;
    ProtobufCMessage *message = NULL;
    snprintf(json, sizeof(json),
             "{\"collection\":{\"namespace_id\":\"1\",\"collection_id\":\"2\"},"
             "\"schema_version\":\"3\",\"fence\":{\"schema_generation_token\":\"tok\"%s},"
             "\"definition\":{\"collection_truth_mode\":\"COLLECTION_TRUTH_MODE_SEARCH_FABRIC\","
             "\"doc_id_mapping\":{\"generation_policy\":"
             "\"DOC_ID_GENERATION_POLICY_CALLER_REQUIRED\"}%s}}",
             request_extra, definition_extra);
    assert_int_equal(sf_pbjson_decode(&searchfabric__v1__put_collection_schema_request__descriptor,
                                      sf_view_str(json), arena, &diag, &message),
                     SF_OK);
    return (SF_PB(PutCollectionSchemaRequest) *)message;
}

#define FIELD(name, type, more)                                                                    \
    "{\"name\":\"" name "\",\"type\":\"FIELD_TYPE_" type                                           \
    "\",\"modalities\":[\"MODALITY_METADATA_SEARCH\"]" more "}"

static void test_definition(void **state)
{
    (void)state;
    static const struct {
        const char *extra; /* of the definition */
        const char *field; /* refused field, NULL = accepted */
    } rows[] = {
        {"", NULL},
        {",\"fields\":[" FIELD("a", "KEYWORD", "") "," FIELD("b", "INT64", "") "]", NULL},
        {",\"fields\":[" FIELD("a", "KEYWORD", "") "," FIELD("a", "INT64", "") "]",
         "definition.fields.name"},
        {",\"fields\":[{\"name\":\"\",\"type\":\"FIELD_TYPE_INT64\"}]", "definition.fields.name"},
        {",\"fields\":[{\"name\":\"a\",\"modalities\":[\"MODALITY_METADATA_SEARCH\"]}]",
         "definition.fields.type"},
        {",\"fields\":[{\"name\":\"a\",\"type\":\"FIELD_TYPE_INT64\"}]",
         "definition.fields.modalities"},
        {",\"fields\":[" FIELD("v", "DENSE_VECTOR", "") "]", "definition.fields.vector"},
        {",\"fields\":[" FIELD("v", "KEYWORD", ",\"vector\":{\"dimensions\":3}") "]",
         "definition.fields.vector"},
        {",\"fields\":[" FIELD("v", "DENSE_VECTOR", ",\"vector\":{\"dimensions\":4096}") "]", NULL},
        {",\"fields\":[" FIELD("v", "DENSE_VECTOR", ",\"vector\":{\"dimensions\":4097}") "]",
         "definition.fields.vector"},
        {",\"settings\":{\"max_result_window\":1000000}", NULL},
        {",\"settings\":{\"max_result_window\":1000001}", "definition.settings.max_result_window"},
        {",\"settings\":{\"max_result_window\":0}", "definition.settings.max_result_window"},
        {",\"settings\":{\"allocator_admission_policy\":{}}",
         "definition.settings.allocator_admission_policy"},
        {",\"fields\":[" FIELD(
             "t", "TIMESTAMP",
             "") "],\"settings\":{\"lifecycle_policy\":"
                 "{\"time_partition_field\":\"t\",\"window_ms\":\"10\",\"transitions\":["
                 "{\"after_ms\":\"5\",\"target_tier\":\"DATA_TIER_WARM\"},"
                 "{\"after_ms\":\"6\",\"target_tier\":\"DATA_TIER_COLD\"}]}}",
         NULL},
        {",\"fields\":[" FIELD(
             "t", "TIMESTAMP",
             "") "],\"settings\":{\"lifecycle_policy\":"
                 "{\"time_partition_field\":\"t\",\"window_ms\":\"10\",\"transitions\":["
                 "{\"after_ms\":\"5\",\"target_tier\":\"DATA_TIER_COLD\"},"
                 "{\"after_ms\":\"6\",\"target_tier\":\"DATA_TIER_WARM\"}]}}",
         "definition.settings.lifecycle_policy.transitions"},
        {",\"fields\":[" FIELD("t", "KEYWORD",
                               "") "],\"settings\":{\"lifecycle_policy\":"
                                   "{\"time_partition_field\":\"t\",\"window_ms\":\"10\"}}",
         "definition.settings.lifecycle_policy.time_partition_field"},
    };
    struct sf_diag diag;
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        struct sf_arena *arena = sf_arena_new(1 << 20);
        sf_diag_init(&diag);
        enum sf_err err = sf_catalog_schema_check(schema_of(arena, rows[i].extra, ""), &diag);
        assert_int_equal(err, rows[i].field == NULL ? SF_OK : SF_BAD_REQUEST);
        if (rows[i].field != NULL)
            assert_string_equal(sf_diag_get(&diag, "field"), rows[i].field);
        sf_arena_destroy(arena);
    }
}

static void test_allocator_policy(void **state)
{
    (void)state;
    static const struct {
        int profile;
        uint64_t items, jump;
        bool ok;
    } rows[] = {{1, 1, 1, true},  {1, 65536, UINT64_MAX, true},
                {1, 0, 1, false}, {1, 65537, 1, false},
                {1, 1, 0, false}, {0, 1, 1, false}};
    struct sf_diag diag;
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        struct sf_arena *arena = sf_arena_new(1 << 20);
        SF_PB(PutCollectionSchemaRequest) *put =
            schema_of(arena, ",\"settings\":{\"allocator_admission_policy\":{}}", "");
        put->definition->doc_id_mapping->generation_policy =
            SF_PBE(DOC_ID_GENERATION_POLICY, ALLOCATOR_OPTIONAL);
        SF_PB(AllocatorAdmissionPolicy) *policy =
            put->definition->settings->allocator_admission_policy;
        policy->caller_profile = (SF_PB(AllocatorCallerProfile))rows[i].profile;
        policy->max_plan_items_per_request = rows[i].items;
        policy->max_forward_reservation_jump = rows[i].jump;
        assert_int_equal(sf_catalog_schema_check(put, &diag), rows[i].ok ? SF_OK : SF_BAD_REQUEST);
        sf_arena_destroy(arena);
    }
}

static void test_fence(void **state)
{
    (void)state;
    SF_PB(SchemaGenerationBody) body;
    SF_PB(SchemaGenerationRow) active;
    searchfabric__v1__schema_generation_body__init(&body);
    searchfabric__v1__schema_generation_row__init(&active);
    body.schema_version = 2;
    body.schema_generation_token = "old";
    body.ddl_commit_ts = 100;
    active.body = &body;
    static const struct {
        const char *fence; /* more members of the fence */
        uint64_t version, ddl;
        bool has_active, same_version, same_token;
        const char *violated; /* NULL = accepted */
    } rows[] = {
        {"", 3, 0, true, false, false, NULL},
        {"", 1, 0, false, false, false, NULL},
        {"", 2, 0, true, true, false, "schema_generation_token"},
        {"", 3, 0, true, false, true, "schema_generation_token"},
        {"", 1, 0, true, false, false, "schema_version"},
        {",\"expected_prev_schema_version\":\"2\"", 3, 0, true, false, false, NULL},
        {",\"expected_prev_schema_version\":\"1\"", 3, 0, true, false, false,
         "expected_prev_schema_version"},
        {",\"expected_prev_schema_version\":\"0\"", 3, 0, true, false, false,
         "expected_prev_schema_version"},
        {",\"expected_prev_schema_version\":\"0\"", 1, 0, false, false, false, NULL},
        {",\"enforce_monotonic_apply\":true", 3, 99, true, false, false, "ddl_commit_ts"},
        {",\"enforce_monotonic_apply\":true", 3, 100, true, false, false, NULL},
        {",\"enforce_monotonic_apply\":false", 3, 99, true, false, false, NULL},
    };
    struct sf_diag diag;
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        struct sf_arena *arena = sf_arena_new(1 << 20);
        SF_PB(PutCollectionSchemaRequest) *put = schema_of(arena, "", rows[i].fence);
        put->schema_version = rows[i].version;
        put->ddl_commit_ts = rows[i].ddl;
        sf_diag_init(&diag);
        enum sf_err err = sf_catalog_fence_check(put, rows[i].has_active ? &active : NULL,
                                                 rows[i].same_version ? &active : NULL,
                                                 rows[i].same_token ? &active : NULL, &diag);
        assert_int_equal(err, rows[i].violated == NULL ? SF_OK : SF_VERSION_CONFLICT);
        if (rows[i].violated != NULL)
            assert_string_equal(sf_diag_get(&diag, "violated_precondition"), rows[i].violated);
        sf_arena_destroy(arena);
    }
}

static void test_compatible(void **state)
{
    (void)state;
    static const struct {
        const char *fields; /* of the new generation */
        bool rebuild;
        bool ok;
    } rows[] = {
        {FIELD("a", "KEYWORD", "") "," FIELD("b", "INT64", ""), false, true},
        {FIELD("a", "KEYWORD", ""), false, true},
        {FIELD("b", "INT64", ""), false, false},
        {FIELD("a", "TEXT", ""), false, false},
        {FIELD("a", "TEXT", ""), true, true},
    };
    struct sf_diag diag;
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        struct sf_arena *arena = sf_arena_new(1 << 20);
        char extra[512];
        SF_PB(SchemaGenerationBody) body;
        SF_PB(SchemaGenerationRow) active;
        searchfabric__v1__schema_generation_body__init(&body);
        searchfabric__v1__schema_generation_row__init(&active);
        active.body = &body;
        body.definition =
            schema_of(arena, ",\"fields\":[" FIELD("a", "KEYWORD", "") "]", "")->definition;
        body.active_schema_update_policy = SF_PBE(ACTIVE_SCHEMA_UPDATE_POLICY, COMPATIBLE_ONLY);
        snprintf(extra, sizeof(extra), ",\"fields\":[%s]", rows[i].fields);
        SF_PB(PutCollectionSchemaRequest) *put = schema_of(arena, extra, "");
        if (rows[i].rebuild)
            put->active_schema_update_policy = SF_PBE(ACTIVE_SCHEMA_UPDATE_POLICY, REBUILD);
        assert_int_equal(sf_catalog_compatible_check(put, &active, &diag),
                         rows[i].ok ? SF_OK : SF_BAD_REQUEST);
        sf_arena_destroy(arena);
    }
}

static void test_window_and_modalities(void **state)
{
    (void)state;
    struct sf_arena *arena = sf_arena_new(1 << 20);
    SF_PB(Modality) out[3];
    const SF_PB(CollectionSchemaDefinition) *plain = schema_of(arena, "", "")->definition;
    assert_int_equal(sf_catalog_result_window(plain, 10000), 10000);
    assert_int_equal(sf_catalog_modalities(plain, out), 1);
    assert_int_equal(out[0], SF_PBE(MODALITY, METADATA_SEARCH));
    const SF_PB(CollectionSchemaDefinition) *rich =
        schema_of(arena,
                  ",\"settings\":{\"max_result_window\":7},\"fields\":[{\"name\":\"a\",\"type\":"
                  "\"FIELD_TYPE_INT64\",\"modalities\":[\"MODALITY_METADATA_AUX\","
                  "\"MODALITY_METADATA_AUX\"]}]",
                  "")
            ->definition;
    assert_int_equal(sf_catalog_result_window(rich, 10000), 7);
    assert_int_equal(sf_catalog_modalities(rich, out), 2);
    assert_int_equal(out[0], SF_PBE(MODALITY, METADATA_SEARCH));
    assert_int_equal(out[1], SF_PBE(MODALITY, METADATA_AUX));
    sf_arena_destroy(arena);
}

/* ---- convergence -------------------------------------------------------------------------- */

/* Every state (rows) with every signal (columns: persisted, ready, drift, repair_failed,
 * repair_succeeded): '-' refused, '=' repeat, else the new state. */
static void test_convergence(void **state)
{
    (void)state;
    static const char letters[] = "ARDE"; /* applying, ready, drifted, error */
    static const char *const table[4] = {"=RDE-", "==D-=", "--=ER", "---=R"};
    for (int from = 1; from <= 4; from++) {
        for (int signal = 1; signal <= 5; signal++) {
            SF_PB(SchemaSyncState__StateCase) to;
            enum sf_catalog_move move =
                sf_catalog_converge((SF_PB(SchemaSyncState__StateCase))from,
                                    (SF_PB(SchemaConvergenceSignal))signal, &to);
            char want = table[from - 1][signal - 1];
            if (want == '-')
                assert_int_equal(move, SF_CATALOG_MOVE_REFUSED);
            else if (want == '=')
                assert_int_equal(move, SF_CATALOG_MOVE_REPEAT);
            else
                assert_int_equal(move, SF_CATALOG_MOVE_GO);
            if (move == SF_CATALOG_MOVE_GO)
                assert_int_equal(letters[(int)to - 1], want);
            else
                assert_int_equal((int)to, from);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay_keys),
        cmocka_unit_test(test_replay_key_inputs),
        cmocka_unit_test(test_object_keys),
        cmocka_unit_test(test_caller_matrix),
        cmocka_unit_test(test_meta),
        cmocka_unit_test(test_lifecycle_conflict),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_unknown_fields),
        cmocka_unit_test(test_completeness),
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_allocator_policy),
        cmocka_unit_test(test_fence),
        cmocka_unit_test(test_compatible),
        cmocka_unit_test(test_window_and_modalities),
        cmocka_unit_test(test_convergence),
    };
    if (sf_pbjson_register(
            sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size)) != SF_OK)
        return 1;
    return SF_RUN_TESTS("catalog_rules", tests);
}
