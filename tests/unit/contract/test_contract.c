/* The shape of the contract itself: what the descriptors declare, what must never be in them, and
 * that the texts name what the descriptors name. */
#include "support/proves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "contract/descriptor_set.h"
#include "contract/served.h"
#include "google/protobuf/descriptor.pb-c.h"

typedef Google__Protobuf__FileDescriptorSet file_set;
typedef Google__Protobuf__FileDescriptorProto file_descriptor;
typedef Google__Protobuf__DescriptorProto message_descriptor;
typedef Google__Protobuf__FieldDescriptorProto field_descriptor;

static file_set *set; /* parsed descriptor set, for all tests */

static int group_setup(void **state)
{
    (void)state;
    set = google__protobuf__file_descriptor_set__unpack(NULL, sf_contract_descriptor_set_size,
                                                        sf_contract_descriptor_set);
    return set == NULL ? -1 : 0;
}

static int group_teardown(void **state)
{
    (void)state;
    google__protobuf__file_descriptor_set__free_unpacked(set, NULL);
    return 0;
}

static const file_descriptor *file_named(const char *name)
{
    for (size_t i = 0; i < set->n_file; i++)
        if (strcmp(set->file[i]->name, name) == 0)
            return set->file[i];
    fail_msg("no file %s", name);
    return NULL;
}

static const message_descriptor *message_in(const file_descriptor *file, const char *name)
{
    for (size_t i = 0; i < file->n_message_type; i++)
        if (strcmp(file->message_type[i]->name, name) == 0)
            return file->message_type[i];
    return NULL;
}

static const field_descriptor *field_in(const message_descriptor *message, const char *name)
{
    for (size_t i = 0; i < message->n_field; i++)
        if (strcmp(message->field[i]->name, name) == 0)
            return message->field[i];
    return NULL;
}

static const file_descriptor *public_file(void)
{
    return file_named("searchfabric/v1/search_fabric.proto");
}

static const message_descriptor *public_message(const char *name)
{
    const message_descriptor *message = message_in(public_file(), name);
    assert_non_null(message);
    return message;
}

static const Google__Protobuf__ServiceDescriptorProto *service_in(const file_descriptor *file,
                                                                  const char *name)
{
    for (size_t i = 0; i < file->n_service; i++)
        if (strcmp(file->service[i]->name, name) == 0)
            return file->service[i];
    return NULL;
}

/* Fails when `message` has a field whose name holds one of `words`. */
static void refuse_fields(const message_descriptor *message, const char *const *words, size_t count)
{
    for (size_t i = 0; i < message->n_field; i++)
        for (size_t w = 0; w < count; w++)
            if (strstr(message->field[i]->name, words[w]) != NULL)
                fail_msg("%s.%s", message->name, message->field[i]->name);
}

static void test_descriptor_set_is_complete(void **state)
{
    (void)state;
    assert_true(set->n_file >= 9);
    /* Imports come first, so that a reader can resolve as it goes. */
    for (size_t i = 0; i < set->n_file; i++)
        for (size_t d = 0; d < set->file[i]->n_dependency; d++) {
            bool before = false;
            for (size_t j = 0; j < i; j++)
                before = before || strcmp(set->file[j]->name, set->file[i]->dependency[d]) == 0;
            assert_true(before);
        }
}

/* Declared methods of the product's own package and the rows of the served table are the same. */
static void test_served_table_matches_descriptors(void **state)
{
    (void)state;
    size_t rows = 0;
    size_t declared = 0;
    (void)sf_contract_methods(&rows);
    for (size_t i = 0; i < set->n_file; i++) {
        if (strcmp(set->file[i]->package, "searchfabric.v1") != 0)
            continue;
        for (size_t s = 0; s < set->file[i]->n_service; s++)
            for (size_t m = 0; m < set->file[i]->service[s]->n_method; m++) {
                char path[256];
                snprintf(path, sizeof(path), "/searchfabric.v1.%s/%s",
                         set->file[i]->service[s]->name, set->file[i]->service[s]->method[m]->name);
                const struct sf_contract_method *row = sf_contract_method_find(sf_view_str(path));
                if (row == NULL)
                    fail_msg("%s is not in the table", path);
                declared++;
            }
    }
    assert_int_equal(rows, declared);
}

static void test_unserved_answer(void **state)
{
    (void)state;
    struct sf_diag diag;
    sf_diag_init(&diag);
    assert_int_equal(
        sf_contract_unserved(sf_view_str("/searchfabric.v1.IdAllocatorService/LeaseRange"), &diag),
        SF_UNIMPLEMENTED);
    assert_string_equal(sf_diag_get(&diag, "rpc_method"),
                        "/searchfabric.v1.IdAllocatorService/LeaseRange");
    assert_null(sf_contract_method_find(sf_view_str("searchfabric.v1.IdAllocatorService")));
    assert_null(sf_contract_method_find(sf_view_str("")));
    assert_non_null(
        sf_contract_method_find(sf_view_str("/searchfabric.v1.IdAllocatorService/AllocateIds")));
}

static void test_allocator_surface(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-2.1-13", "ALLOC-2.2-05", "ALLOC-3.2-05", "ALLOC-5.1-04", "ALLOC-5.4-01",
              "ALLOC-2.1-14", "ALLOC-11.2-02");
    const Google__Protobuf__ServiceDescriptorProto *service =
        service_in(public_file(), "IdAllocatorService");
    assert_non_null(service);
    assert_int_equal(service->n_method, 1);
    assert_string_equal(service->method[0]->name, "AllocateIds");
    assert_string_equal(service->method[0]->output_type,
                        ".searchfabric.v1.AllocateIdsSuccessResponse");

    const message_descriptor *request = public_message("AllocateIdsRequest");
    assert_int_equal(request->n_field, 4);
    assert_string_equal(field_in(request, "collection")->type_name,
                        ".searchfabric.v1.CollectionRef");
    static const char *const names[] = {"name", "binding", "count", "range", "lease"};
    refuse_fields(request, names, SF_ARRAY_LEN(names));

    const message_descriptor *item = public_message("AllocationPlanItem");
    assert_int_equal(item->n_oneof_decl, 1);
    assert_int_equal(item->n_field, 2);
    assert_non_null(field_in(item, "issue"));
    assert_non_null(field_in(item, "explicit_doc_id"));
    assert_true(item->field[0]->has_oneof_index && item->field[1]->has_oneof_index);
    assert_int_equal(public_message("IssueItem")->n_field, 0);

    /* Ids are numbers only; the response holds no lexical id and nothing of a caller's protocol. */
    const message_descriptor *realized = public_message("RealizedDocId");
    for (size_t i = 0; i < realized->n_field; i++)
        assert_int_not_equal(realized->field[i]->type,
                             GOOGLE__PROTOBUF__FIELD_DESCRIPTOR_PROTO__TYPE__TYPE_STRING);
    const message_descriptor *id = public_message("DocumentID");
    assert_int_equal(id->n_field, 1);
    assert_int_equal(id->field[0]->type,
                     GOOGLE__PROTOBUF__FIELD_DESCRIPTOR_PROTO__TYPE__TYPE_UINT64);
    assert_int_equal(public_message("AllocateIdsSuccessResponse")->n_field, 3);
    for (size_t i = 0; i < public_file()->n_message_type; i++)
        assert_null(strstr(public_file()->message_type[i]->name, "Lease"));
}

static void test_no_commit_callback(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-5.3-15");
    for (size_t i = 0; i < set->n_file; i++)
        for (size_t s = 0; s < set->file[i]->n_service; s++)
            for (size_t m = 0; m < set->file[i]->service[s]->n_method; m++) {
                const char *name = set->file[i]->service[s]->method[m]->name;
                assert_null(strstr(name, "DocId"));
                assert_null(strstr(name, "ObserveCommitted"));
            }
}

static void test_public_descriptors_hide_private_state(void **state)
{
    (void)state;
    SF_PROVES("CCS-2.2-04", "CCS-2.2-07", "CCS-5.3-10", "ALLOC-2.2-07");
    static const char *const words[] = {
        "manifest",          "revision",     "epoch",       "quota",     "lease",
        "next_doc_id",       "gc_after",     "drop",        "replay",    "active_schema",
        "truth_mode",        "tombstone",    "head",        "policy",    "allocator_state",
        "lifecycle_updated", "window_state", "reservation", "transition"};
    refuse_fields(public_message("NamespaceDescriptor"), words, SF_ARRAY_LEN(words));
    refuse_fields(public_message("CollectionDescriptor"), words, SF_ARRAY_LEN(words));
    assert_null(field_in(public_message("CollectionDescriptor"), "lifecycle"));
}

static void test_readable_lifecycle_has_two_branches(void **state)
{
    (void)state;
    SF_PROVES("CCS-5.2-28");
    const message_descriptor *lifecycle = public_message("NamespaceLifecycle");
    assert_int_equal(lifecycle->n_oneof_decl, 1);
    assert_int_equal(lifecycle->n_field, 2);
    assert_non_null(field_in(lifecycle, "active"));
    assert_non_null(field_in(lifecycle, "quiescing"));
}

static void test_sync_state_has_four_branches(void **state)
{
    (void)state;
    const message_descriptor *sync = public_message("SchemaSyncState");
    assert_int_equal(sync->n_oneof_decl, 1);
    assert_int_equal(sync->n_field, 4);
    static const char *const names[] = {"applying", "ready", "drifted", "error"};
    for (size_t i = 0; i < SF_ARRAY_LEN(names); i++)
        assert_non_null(field_in(sync, names[i]));
}

static void test_private_surfaces_stay_private(void **state)
{
    (void)state;
    SF_PROVES("CCS-5.2-37", "COORD-1-04", "COORD-2-15", "CCS-5.9-11", "CCS-5.10-04");
    const file_descriptor *file = public_file();
    assert_int_equal(file->n_dependency, 0);
    for (size_t i = 0; i < file->n_message_type; i++) {
        const message_descriptor *message = file->message_type[i];
        assert_null(strstr(message->name, "AdmissionState"));
        assert_null(strstr(message->name, "Slice"));
        assert_null(strstr(message->name, "WriteIntent"));
        assert_null(strstr(message->name, "Lane"));
        static const char *const words[] = {"coordinator_epoch", "slice", "write_intent", "lane"};
        refuse_fields(message, words, SF_ARRAY_LEN(words));
    }
    static const char *const own[] = {"BatchSlice", "WriteIntent", "CollectionLaneState",
                                      "PlannedBatch"};
    for (size_t n = 0; n < SF_ARRAY_LEN(own); n++)
        for (size_t i = 0; i < set->n_file; i++) {
            bool here = message_in(set->file[i], own[n]) != NULL;
            bool coordinator =
                strcmp(set->file[i]->name, "searchfabric/v1/commit_coordinator.proto") == 0;
            assert_true(here == coordinator);
        }
    /* No private catalog method takes part in pruning or reports a gateway's bucket as truth. */
    const Google__Protobuf__ServiceDescriptorProto *catalog =
        service_in(file_named("searchfabric/v1/catalog_control_private.proto"),
                   "CatalogControlPrivateService");
    for (size_t m = 0; m < catalog->n_method; m++) {
        assert_null(strstr(catalog->method[m]->name, "Tier"));
        assert_null(strstr(catalog->method[m]->name, "Bucket"));
    }
}

static void test_coordinator_surface(void **state)
{
    (void)state;
    SF_PROVES("COORD-1-11", "COORD-5.4-09", "COORD-2-10");
    const file_descriptor *file = file_named("searchfabric/v1/commit_coordinator.proto");
    for (size_t s = 0; s < file->n_service; s++)
        for (size_t m = 0; m < file->service[s]->n_method; m++)
            assert_null(strstr(file->service[s]->method[m]->output_type, "MutationAck"));
    assert_string_equal(field_in(message_in(file, "BatchGateReached"), "gate")->type_name,
                        ".searchfabric.v1.BatchGate");
    for (size_t i = 0; i < file->n_message_type; i++)
        for (size_t f = 0; f < file->message_type[i]->n_field; f++) {
            const char *type = file->message_type[i]->field[f]->type_name;
            assert_true(type == NULL || strstr(type, "MutationAck") == NULL);
            assert_true(type == NULL || strstr(type, "ErrorStatus") == NULL);
        }
    /* The one carrier of rows into the coordinator is the canonical batch. */
    const message_descriptor *planned = message_in(file, "PlannedBatch");
    assert_string_equal(field_in(planned, "batch")->type_name, ".searchfabric.v1.MutationBatch");
    static const char *const words[] = {"row", "entries", "body"};
    refuse_fields(planned, words, SF_ARRAY_LEN(words));
    static const char *const version[] = {"manifest"};
    refuse_fields(message_in(file, "PublishReadyIntent"), version, 1);
    refuse_fields(message_in(file, "SubmitPublishReadyRequest"), version, 1);
    static const char *const safe_ts[] = {"safe_ts"};
    refuse_fields(message_in(file, "SubmitPlannedBatchRequest"), safe_ts, 1);
    refuse_fields(planned, safe_ts, 1);
    refuse_fields(public_message("MutationBatch"), safe_ts, 1);
    refuse_fields(public_message("ProgressMark"), safe_ts, 1);
}

/* Presence where absence means something. */
static void test_presence(void **state)
{
    (void)state;
    static const struct {
        const char *message;
        const char *field;
    } optional[] = {
        {"RequestMeta", "correlation_id"},
        {"RequestMeta", "principal_subject"},
        {"SchemaFencePrecondition", "expected_prev_schema_version"},
        {"ProgressWatermarks", "applied_ts_metadata_search"},
        {"EngineWatermarks", "applied_ts_metadata_aux"},
        {"LifecyclePolicy", "retention_ms"},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(optional); i++)
        assert_true(
            field_in(public_message(optional[i].message), optional[i].field)->proto3_optional);
}

/* Every durable object begins with the same header. */
static void test_durable_headers(void **state)
{
    (void)state;
    const file_descriptor *file = file_named("searchfabric/v1/durable.proto");
    size_t objects = 0;
    for (size_t i = 0; i < file->n_message_type; i++) {
        const message_descriptor *message = file->message_type[i];
        size_t len = strlen(message->name);
        if (len < 6 || strcmp(message->name + len - 6, "Object") != 0)
            continue;
        objects++;
        static const char *const header[] = {"format_version", "attempt_id", "sha256"};
        for (size_t h = 0; h < SF_ARRAY_LEN(header); h++) {
            const field_descriptor *field = field_in(message, header[h]);
            if (field == NULL || field->number != (int32_t)h + 1)
                fail_msg("%s lacks %s = %zu", message->name, header[h], h + 1);
        }
    }
    assert_true(objects >= 20);
}

/* The whole file as a NUL-terminated string; freed by the caller. */
static char *text_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    struct sf_buf buf = {0};
    char chunk[4096];
    size_t n;
    while ((n = fread(chunk, 1, sizeof(chunk), file)) > 0)
        sf_buf_append(&buf, chunk, n);
    fclose(file);
    sf_buf_append(&buf, "", 1);
    return (char *)buf.data;
}

static void test_field_sources_are_documented(void **state)
{
    (void)state;
    SF_PROVES("CCS-5.1-03");
    char *text = text_read(SF_API_TEXT);
    static const char *const messages[] = {
        "NamespaceDescriptor", "CollectionDescriptor", "CollectionSchemaDescriptor",
        "GetSchemaSyncStatusResponse", "GetCollectionStatisticsResponse"};
    for (size_t i = 0; i < SF_ARRAY_LEN(messages); i++) {
        const message_descriptor *message = public_message(messages[i]);
        for (size_t f = 0; f < message->n_field; f++) {
            char row[160];
            snprintf(row, sizeof(row), "| `%s.%s` | materialized |", messages[i],
                     message->field[f]->name);
            bool found = strstr(text, row) != NULL;
            snprintf(row, sizeof(row), "| `%s.%s` | derived |", messages[i],
                     message->field[f]->name);
            if (!found && strstr(text, row) == NULL)
                fail_msg("%s.%s is not in the field table", messages[i], message->field[f]->name);
        }
    }
    free(text);
}

static void test_texts_name_everything(void **state)
{
    (void)state;
    char *api = text_read(SF_API_TEXT);
    char *errors = text_read(SF_ERROR_TEXT);
    for (size_t s = 0; s < public_file()->n_service; s++)
        for (size_t m = 0; m < public_file()->service[s]->n_method; m++) {
            char name[128];
            snprintf(name, sizeof(name), "`%s`", public_file()->service[s]->method[m]->name);
            if (strstr(api, name) == NULL)
                fail_msg("%s is not in the API text", name);
        }
    for (int err = SF_OK + 1; err < SF_ERR_COUNT; err++) {
        char row[64];
        const char *code = sf_err_info((enum sf_err)err)->code;
        if (code[0] == '\0')
            continue;
        snprintf(row, sizeof(row), "| `%s` |", code);
        assert_non_null(strstr(errors, row));
    }
    free(api);
    free(errors);
}

/* Gateways may keep caches of their own: said in the text, and no message of the catalog carries
 * state of one. */
static void test_gateways_keep_their_caches(void **state)
{
    (void)state;
    SF_PROVES("CCS-3.2-01");
    static const char *const files[] = {"searchfabric/v1/search_fabric.proto",
                                        "searchfabric/v1/catalog_control_private.proto"};
    char *api = text_read(SF_API_TEXT);
    assert_non_null(strstr(api, "### Caches of gateways"));
    assert_non_null(strstr(api, "may keep descriptors of namespaces and collections"));
    assert_non_null(strstr(api, "The server holds no state about a gateway's cache"));
    for (size_t f = 0; f < SF_ARRAY_LEN(files); f++) {
        const file_descriptor *file = file_named(files[f]);
        for (size_t m = 0; m < file->n_message_type; m++) {
            const message_descriptor *message = file->message_type[m];
            for (size_t i = 0; i < message->n_field; i++)
                assert_null(strstr(message->field[i]->name, "cache"));
        }
    }
    free(api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptor_set_is_complete),
        cmocka_unit_test(test_served_table_matches_descriptors),
        cmocka_unit_test(test_unserved_answer),
        cmocka_unit_test(test_allocator_surface),
        cmocka_unit_test(test_no_commit_callback),
        cmocka_unit_test(test_gateways_keep_their_caches),
        cmocka_unit_test(test_public_descriptors_hide_private_state),
        cmocka_unit_test(test_readable_lifecycle_has_two_branches),
        cmocka_unit_test(test_sync_state_has_four_branches),
        cmocka_unit_test(test_private_surfaces_stay_private),
        cmocka_unit_test(test_coordinator_surface),
        cmocka_unit_test(test_presence),
        cmocka_unit_test(test_durable_headers),
        cmocka_unit_test(test_field_sources_are_documented),
        cmocka_unit_test(test_texts_name_everything),
    };
    return SF_RUN_TESTS_WITH("contract", tests, group_setup, group_teardown);
}
