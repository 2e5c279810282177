/* The catalog's RPCs over the memory store: answers, records, replay, refusals, pages. */
#include <inttypes.h>
#include <stdio.h>

#include "component/catalog/catalog_world.h"

static const char *detail(const struct world *w, const char *key)
{
    const char *value = sf_diag_get(&w->diag, key);
    return value == NULL ? "" : value;
}

/* First create of a namespace: id and epoch, objects, record, answer. */
static void test_namespace_create(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.3-02", "CCS-3.3-04", "CCS-4.3-02", "CCS-4.3-03", "CCS-8-01");
    uint64_t expected_id = atomic_load(&w->next_tso);
    const SF_PB(PutNamespaceMetadataResponse) *response =
        world_call(w, "PutNamespaceMetadata", world_namespace_request(w, "k1", "alpha"));
    assert_non_null(response);
    const SF_PB(NamespaceDescriptor) *d = response->descriptor;
    assert_true(d->namespace_id == expected_id);
    assert_string_equal(d->namespace_name, "alpha");
    assert_int_equal(d->lifecycle->state_case, SEARCHFABRIC__V1__NAMESPACE_LIFECYCLE__STATE_ACTIVE);
    assert_int_equal(d->completeness->state_case,
                     SEARCHFABRIC__V1__DESCRIPTOR_COMPLETENESS__STATE_READY);
    assert_true(d->created_at_unix_ms == WORLD_UNIX_MS);

    struct sf_buf key = {0};
    sf_catalog_key_namespace(&key, expected_id, 1);
    sf_buf_append(&key, "", 1);
    const SF_PB(NamespaceDescriptorObject) *object = world_object(
        w, (char *)key.data, &searchfabric__v1__namespace_descriptor_object__descriptor);
    assert_non_null(object);
    assert_true(object->namespace_id == expected_id);
    assert_true(object->namespace_name_allocation_epoch == 1);
    sf_buf_clear(&key);
    sf_catalog_key_namespace_name(&key, "alpha");
    sf_buf_append(&key, "", 1);
    const SF_PB(NamespaceNameEpochObject) *epoch = world_object(
        w, (char *)key.data, &searchfabric__v1__namespace_name_epoch_object__descriptor);
    assert_true(epoch->last_allocated_epoch == 1);
    assert_true(epoch->allocated_namespace_id == expected_id);
    const char *record_key;
    assert_int_equal(world_list(w, "catalog-log/", &record_key), 1);
    const SF_PB(CommandOutcomeObject) *record =
        world_object(w, record_key, &searchfabric__v1__command_outcome_object__descriptor);
    sf_buf_clear(&key);
    sf_catalog_key_outcome(&key, record->command_identity);
    assert_memory_equal(key.data, record_key, key.len);
    assert_int_equal(world_list(w, "catalog-replay-transport/", NULL), 1);
    assert_int_equal(world_list(w, "catalog-replay-business/", NULL), 0);
    sf_buf_fini(&key);
}

/* Same key: the stored bytes, whatever happened since; other payload: conflict. */
static void test_namespace_replay(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.5-01", "CCS-4.5-02", "CCS-4.5-03", "CCS-4.2-03", "CCS-4.2-04", "CCS-4.2-11",
              "CCS-3.4-04", "CCS-4.4-05");
    SF_PB(PutNamespaceMetadataRequest) *create = world_namespace_request(w, "k1", "alpha");
    const char *first = world_json(w, world_call(w, "PutNamespaceMetadata", create));
    sf_clock_manual_advance(&w->clock, 5000);
    SF_PB(PutNamespaceMetadataRequest) *update = world_namespace_request(w, "k2", "alpha");
    update->options = world_options(w, "tier", "gold");
    update->encryption = NULL;
    const SF_PB(PutNamespaceMetadataResponse) *updated =
        world_call(w, "PutNamespaceMetadata", update);
    assert_non_null(updated);
    assert_non_null(updated->descriptor->encryption);
    assert_int_equal(updated->descriptor->options->n_entries, 1);
    assert_true(updated->descriptor->created_at_unix_ms == WORLD_UNIX_MS);
    assert_true(updated->descriptor->updated_at_unix_ms == WORLD_UNIX_MS + 5000);

    create->meta->_principal_subject_case =
        SEARCHFABRIC__V1__REQUEST_META___PRINCIPAL_SUBJECT_PRINCIPAL_SUBJECT;
    create->meta->principal_subject = "other";
    create->meta->_correlation_id_case =
        SEARCHFABRIC__V1__REQUEST_META___CORRELATION_ID_CORRELATION_ID;
    create->meta->correlation_id = "trace-9";
    uint64_t gets = atomic_load(&w->wire.gets);
    assert_string_equal(world_json(w, world_call(w, "PutNamespaceMetadata", create)), first);
    assert_true(atomic_load(&w->wire.gets) == gets);
    assert_int_equal(world_list(w, "catalog-log/", NULL), 2);

    create->options = world_options(w, "tier", "silver");
    assert_null(world_call(w, "PutNamespaceMetadata", create));
    assert_int_equal(w->diag.err, SF_IDEMPOTENCY_CONFLICT);
    assert_int_equal(world_list(w, "catalog-log/", NULL), 2);
    world_restart(w);
    create->options = NULL;
    assert_string_equal(world_json(w, world_call(w, "PutNamespaceMetadata", create)), first);
}

/* Refusals write nothing. */
static void test_namespace_refusals(void **state)
{
    struct world *w = *state;
    SF_PB(PutNamespaceMetadataRequest) *request = world_namespace_request(w, "k1", "alpha");
    request->encryption = NULL;
    assert_null(world_call(w, "PutNamespaceMetadata", request));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_string_equal(detail(w, "field"), "encryption");
    request = world_namespace_request(w, "k1", "alpha");
    request->meta->client_kind = SF_PBE(CLIENT_KIND, ES_WRITE_GATEWAY);
    assert_null(world_call(w, "PutNamespaceMetadata", request));
    assert_int_equal(w->diag.err, SF_FORBIDDEN);
    request->meta->client_kind = SF_PBE(CLIENT_KIND, UNSPECIFIED);
    assert_null(world_call(w, "PutNamespaceMetadata", request));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_int_equal(world_list(w, "catalog", NULL), 1); /* the takeover record alone */
}

/* `count` letters. */
static char *letters(struct world *w, size_t count)
{
    char *text = sf_arena_alloc(w->arena, count + 1);
    memset(text, 'x', count);
    return text;
}

/* Bounds of the identity strings; NULL = absent. */
static void test_identity_bounds(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.1-22", "CCS-3.1-23", "CCS-3.1-24", "CCS-3.1-26");
    const struct {
        const char *client, *correlation, *subject;
        const char *field; /* refused; NULL = accepted */
    } rows[] = {
        {"c", NULL, NULL, NULL},
        {"", NULL, NULL, "meta.client_id"},
        {letters(w, 256), NULL, NULL, NULL},
        {letters(w, 257), NULL, NULL, "meta.client_id"},
        {"c", "", NULL, "meta.correlation_id"},
        {"c", letters(w, 128), NULL, NULL},
        {"c", letters(w, 129), NULL, "meta.correlation_id"},
        {"c", NULL, "", "meta.principal_subject"},
        {"c", NULL, letters(w, 256), NULL},
        {"c", NULL, letters(w, 257), "meta.principal_subject"},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        char key[16];
        snprintf(key, sizeof(key), "k%zu", i);
        SF_PB(PutNamespaceMetadataRequest) *request = world_namespace_request(w, key, "alpha");
        request->meta->client_id = (char *)(uintptr_t)rows[i].client;
        if (rows[i].correlation != NULL) {
            request->meta->_correlation_id_case =
                SEARCHFABRIC__V1__REQUEST_META___CORRELATION_ID_CORRELATION_ID;
            request->meta->correlation_id = (char *)(uintptr_t)rows[i].correlation;
        }
        if (rows[i].subject != NULL) {
            request->meta->_principal_subject_case =
                SEARCHFABRIC__V1__REQUEST_META___PRINCIPAL_SUBJECT_PRINCIPAL_SUBJECT;
            request->meta->principal_subject = (char *)(uintptr_t)rows[i].subject;
        }
        const void *answer = world_call(w, "PutNamespaceMetadata", request);
        assert_int_equal(answer != NULL, rows[i].field == NULL);
        if (rows[i].field != NULL) {
            assert_int_equal(w->diag.err, SF_BAD_REQUEST);
            assert_string_equal(detail(w, "field"), rows[i].field);
        }
    }
    /* stored in full; keys that differ in the last letter are two commands */
    char *key = letters(w, 128);
    size_t records = world_list(w, "catalog-log/", NULL);
    SF_PB(PutNamespaceMetadataRequest) *request = world_namespace_request(w, key, "alpha");
    request->meta->client_id = letters(w, 256);
    assert_non_null(world_call(w, "PutNamespaceMetadata", request));
    char identity[SF_SHA256_HEX_BYTES], hash[SF_SHA256_HEX_BYTES];
    sf_sha256_hex(sf_view_str("loopback"), hash);
    sf_catalog_replay_key(SF_CATALOG_TAG_COMMAND, "PUT_NAMESPACE_METADATA", hash,
                          &sf_catalog_put_namespace, &request->base, identity);
    struct sf_buf object = {0};
    sf_catalog_key_outcome(&object, identity);
    sf_buf_append(&object, "", 1);
    const SF_PB(CommandOutcomeObject) *record =
        world_object(w, (char *)object.data, &searchfabric__v1__command_outcome_object__descriptor);
    sf_buf_fini(&object);
    assert_non_null(record);
    assert_string_equal(record->idempotency_key, key);
    assert_string_equal(record->client_id, request->meta->client_id);
    request->meta->idempotency_key[127] = 'y';
    assert_non_null(world_call(w, "PutNamespaceMetadata", request));
    assert_int_equal(world_list(w, "catalog-log/", NULL), records + 2);
}

/* The whole life of a collection up to READY. */
static void test_collection_life(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.3-03", "CCS-7-03", "CCS-7-04", "CCS-7-16", "CCS-8-02", "CCS-8-03",
              "CCS-5.8-02", "CCS-5.8-03");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    SF_PB(CollectionRef) ref;
    searchfabric__v1__collection_ref__init(&ref);
    ref.namespace_id = ns;
    ref.collection_id = id;
    SF_PB(GetSchemaSyncStatusRequest) sync;
    searchfabric__v1__get_schema_sync_status_request__init(&sync);
    sync.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, TIDB_QUERY_GATEWAY));
    sync.collection = &ref;
    assert_null(world_call(w, "GetSchemaSyncStatus", &sync));
    assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
    assert_string_equal(detail(w, "catalog_unavailable_reason"), "schema_bootstrap");
    assert_string_equal(detail(w, "schema_bootstrap_state"), "no_active_schema_generation");

    world_schema(w, "s1", ns, id, 1, "tok-1");
    const SF_PB(GetSchemaSyncStatusResponse) *status = world_call(w, "GetSchemaSyncStatus", &sync);
    assert_non_null(status);
    assert_int_equal(status->state->state_case,
                     SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_APPLYING);
    assert_int_equal(world_list(w, "catalog-replay-business/PUT_COLLECTION_SCHEMA/", NULL), 1);
    char path[160], dir[100], hex[SF_SHA256_HEX_BYTES];
    snprintf(path, sizeof(path), "%" PRIu64, ns);
    sf_sha256_hex(sf_view_str(path), hex);
    snprintf(dir, sizeof(dir), "catalog/%.2s/%" PRIu64 "/%" PRIu64, hex, ns, id);
    snprintf(path, sizeof(path), "%s/collection_descriptor_v1.json", dir);
    assert_non_null(
        world_object(w, path, &searchfabric__v1__collection_descriptor_object__descriptor));
    snprintf(path, sizeof(path), "%s/schema_generation_v1_tok-1.json", dir);
    assert_non_null(world_object(w, path, &searchfabric__v1__schema_generation_object__descriptor));
    world_ready(w, ns, id, 1, "tok-1");
    snprintf(path, sizeof(path), "%s/optimizer_statistics_head.json", dir);
    assert_non_null(
        world_object(w, path, &searchfabric__v1__optimizer_statistics_head_object__descriptor));
    snprintf(path, sizeof(path), "%s/optimizer_statistics_vtok-1_0.json", dir);
    assert_non_null(
        world_object(w, path, &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor));
    SF_PB(GetCollectionSchemaRequest) get;
    searchfabric__v1__get_collection_schema_request__init(&get);
    get.meta = sync.meta;
    get.collection = &ref;
    const SF_PB(GetCollectionSchemaResponse) *schema = world_call(w, "GetCollectionSchema", &get);
    assert_true(schema->schema->applied_schema_version == 1);
    assert_string_equal(schema->schema->applied_schema_generation_token, "tok-1");
    status = world_call(w, "GetSchemaSyncStatus", &sync);
    assert_int_equal(status->state->state_case, SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY);
    assert_string_equal(status->applied_schema_generation_token, "tok-1");
    struct sf_buf key = {0};
    sf_catalog_key_statistics(&key, ns, id, "tok-1", 0);
    sf_buf_append(&key, "", 1);
    const SF_PB(OptimizerStatisticsSnapshotObject) *base = world_object(
        w, (char *)key.data, &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor);
    assert_non_null(base);
    assert_true(base->collection_stats->row_count == 0);
    assert_int_equal(base->n_field_stats, 1);
    assert_string_equal(base->field_stats[0]->field_name, "title");
    sf_buf_clear(&key);
    sf_catalog_key_statistics_head(&key, ns, id);
    sf_buf_append(&key, "", 1);
    const SF_PB(OptimizerStatisticsHeadObject) *head = world_object(
        w, (char *)key.data, &searchfabric__v1__optimizer_statistics_head_object__descriptor);
    assert_string_equal(head->latest_applied_schema_generation_token, "tok-1");
    sf_buf_fini(&key);
}

static const SF_PB(CollectionAdmissionState) *
    admission(struct world *w, uint64_t ns, uint64_t id,
              const SF_PB(CollectionAdmissionState) * known)
{
    SF_PB(GetCollectionAdmissionStateRequest) request;
    SF_PB(CollectionRef) ref;
    searchfabric__v1__get_collection_admission_state_request__init(&request);
    searchfabric__v1__collection_ref__init(&ref);
    ref.namespace_id = ns;
    ref.collection_id = id;
    request.collection = &ref;
    if (known != NULL) {
        request._known_descriptor_etag_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_REQUEST___KNOWN_DESCRIPTOR_ETAG_KNOWN_DESCRIPTOR_ETAG;
        request.known_descriptor_etag = known->descriptor_etag;
        request._known_collection_name_binding_revision_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_REQUEST___KNOWN_COLLECTION_NAME_BINDING_REVISION_KNOWN_COLLECTION_NAME_BINDING_REVISION;
        request.known_collection_name_binding_revision = known->collection_name_binding_revision;
    }
    const SF_PB(GetCollectionAdmissionStateResponse) *response =
        world_call(w, "GetCollectionAdmissionState", &request);
    assert_non_null(response);
    return response->result_case ==
                   SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_STATE
               ? response->state
               : NULL;
}

/* Admission facts follow every change; an unchanged pair of validators is not sent again. */
static void test_admission(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-7-15", "CCS-7-17", "CCS-5.2-39", "CCS-5.2-40", "CCS-5.2-43", "CCS-5.2-44",
              "CCS-5.2-45", "CCS-5.2-46", "CCS-5.2-49", "CCS-5.2-50", "CCS-5.3-16", "CCS-5.5-09");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    const SF_PB(CollectionAdmissionState) *s = admission(w, ns, id, NULL);
    assert_non_null(s);
    assert_int_equal(s->schema_bootstrap_state,
                     SF_PBE(SCHEMA_BOOTSTRAP_STATE, NO_ACTIVE_SCHEMA_GENERATION));
    assert_int_equal(s->effective_max_result_window, 0);
    assert_null(admission(w, ns, id, s));
    world_schema(w, "s1", ns, id, 1, "tok-1");
    const SF_PB(CollectionAdmissionState) *applying = admission(w, ns, id, s);
    assert_non_null(applying);
    assert_string_equal(applying->active_schema_generation_token, "tok-1");
    assert_int_equal(applying->_ready_generation_token_case, 0);
    assert_int_equal(applying->schema_convergence_state,
                     SF_PBE(SCHEMA_CONVERGENCE_STATE, NO_READY_SERVING_GENERATION));
    assert_string_not_equal(applying->descriptor_etag, s->descriptor_etag);
    world_ready(w, ns, id, 1, "tok-1");
    const SF_PB(CollectionAdmissionState) *ready = admission(w, ns, id, applying);
    assert_non_null(ready);
    assert_string_equal(ready->ready_generation_token, "tok-1");
    assert_int_equal(ready->effective_max_result_window, 10000);
    world_schema(w, "s2", ns, id, 2, "tok-2");
    const SF_PB(CollectionAdmissionState) *second = admission(w, ns, id, ready);
    assert_string_equal(second->active_schema_generation_token, "tok-2");
    assert_string_equal(second->ready_generation_token, "tok-1");
    uint64_t other = world_collection(w, "c2", ns, "films");
    const SF_PB(CollectionAdmissionState) *after = admission(w, ns, id, second);
    assert_non_null(after);
    assert_true(after->collection_name_binding_revision ==
                second->collection_name_binding_revision + 1);
    assert_string_equal(after->descriptor_etag, second->descriptor_etag);
    assert_null(admission(w, ns, id, after));
    assert_non_null(admission(w, ns, other, NULL));
    SF_PB(PutCollectionMetadataRequest) *update = world_collection_request(w, "c3", ns, "books");
    update->options = world_options(w, "a", "b");
    assert_non_null(world_call(w, "PutCollectionMetadata", update));
    const SF_PB(CollectionAdmissionState) *moved = admission(w, ns, id, after);
    assert_true(moved->descriptor_revision == after->descriptor_revision + 1);
    assert_string_not_equal(moved->descriptor_etag, after->descriptor_etag);
    assert_true(moved->collection_name_binding_revision == after->collection_name_binding_revision);
}

/* Sends a signal; NULL with w->diag when refused. */
static const SF_PB(ReportSchemaConvergenceSignalResponse) *
    send_signal(struct world *w, uint64_t ns, uint64_t id, uint64_t version, const char *token,
                SF_PB(SchemaConvergenceSignal) signal, const char *reason)
{
    SF_PB(ReportSchemaConvergenceSignalRequest) report;
    SF_PB(CollectionRef) ref;
    searchfabric__v1__report_schema_convergence_signal_request__init(&report);
    searchfabric__v1__collection_ref__init(&ref);
    ref.namespace_id = ns;
    ref.collection_id = id;
    report.collection = &ref;
    report.schema_version = version;
    report.schema_generation_token = (char *)(uintptr_t)token;
    report.signal = signal;
    report.reason = (char *)(uintptr_t)reason;
    return world_call(w, "ReportSchemaConvergenceSignal", &report);
}

static const char *head_token(struct world *w, uint64_t ns, uint64_t id)
{
    struct sf_buf key = {0};
    sf_catalog_key_statistics_head(&key, ns, id);
    sf_buf_append(&key, "", 1);
    const SF_PB(OptimizerStatisticsHeadObject) *head = world_object(
        w, (char *)key.data, &searchfabric__v1__optimizer_statistics_head_object__descriptor);
    sf_buf_fini(&key);
    return head == NULL ? "" : head->latest_applied_schema_generation_token;
}

/* Signals move the active generation alone; queries keep the newest READY one. */
static void test_convergence(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-7-05", "CCS-7-06", "CCS-7-08", "CCS-5.5-05", "CCS-5.3-17", "CCS-5.8-08",
              "CCS-5.8-15");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, id, 1, "tok-1");
    world_ready(w, ns, id, 1, "tok-1");
    assert_string_equal(head_token(w, ns, id), "tok-1");
    world_schema(w, "s2", ns, id, 2, "tok-2");
    assert_string_equal(admission(w, ns, id, NULL)->ready_generation_token, "tok-1");
    /* superseded, unknown, without a reason */
    assert_null(
        send_signal(w, ns, id, 1, "tok-1", SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, DRIFT_DETECTED), "r"));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_null(send_signal(w, ns, id, 2, "tok-9",
                            SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SERVING_GENERATION_READY), ""));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_null(
        send_signal(w, ns, id, 2, "tok-2", SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, DRIFT_DETECTED), ""));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    const SF_PB(ReportSchemaConvergenceSignalResponse) *answer = send_signal(
        w, ns, id, 2, "tok-2", SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, DRIFT_DETECTED), "fields differ");
    assert_true(answer->changed);
    assert_string_equal(answer->state->drifted->drift_reason, "fields differ");
    assert_string_equal(admission(w, ns, id, NULL)->ready_generation_token, "tok-1");
    answer = send_signal(w, ns, id, 2, "tok-2", SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, REPAIR_FAILED),
                         "gave up");
    assert_string_equal(answer->state->error->error_reason, "gave up");
    assert_null(send_signal(w, ns, id, 2, "tok-2",
                            SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SERVING_GENERATION_READY), ""));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_string_equal(admission(w, ns, id, NULL)->ready_generation_token, "tok-1");
    answer =
        send_signal(w, ns, id, 2, "tok-2", SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, REPAIR_SUCCEEDED), "");
    assert_int_equal(answer->state->state_case, SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY);
    answer = send_signal(w, ns, id, 2, "tok-2",
                         SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SERVING_GENERATION_READY), "");
    assert_false(answer->changed);
    assert_string_equal(admission(w, ns, id, NULL)->ready_generation_token, "tok-2");
    assert_string_equal(head_token(w, ns, id), "tok-2");
    /* the serving lineage goes back: so does the head */
    assert_non_null(send_signal(w, ns, id, 2, "tok-2",
                                SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, DRIFT_DETECTED), "again"));
    assert_string_equal(admission(w, ns, id, NULL)->ready_generation_token, "tok-1");
    assert_string_equal(head_token(w, ns, id), "tok-1");
    struct sf_buf key = {0};
    sf_catalog_key_statistics(&key, ns, id, "tok-2", 0);
    sf_buf_append(&key, "", 1);
    assert_non_null(world_object(
        w, (char *)key.data, &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor));
    sf_buf_fini(&key);
    const char *before = world_answers(w, ns);
    world_rebuild(w);
    assert_string_equal(world_answers(w, ns), before);
    assert_string_equal(admission(w, ns, id, NULL)->ready_generation_token, "tok-1");
}

/* A hit and a miss carry the same revision. */
static void test_name_binding(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.2-02", "CCS-5.2-35", "CCS-5.2-36", "CCS-5.2-41");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    SF_PB(ResolveCollectionNameBindingRequest) resolve;
    SF_PB(CollectionNameBinding) binding;
    searchfabric__v1__resolve_collection_name_binding_request__init(&resolve);
    searchfabric__v1__collection_name_binding__init(&binding);
    resolve.name_binding = &binding;
    binding.namespace_id = ns;
    binding.collection_name = "books";
    const SF_PB(ResolveCollectionNameBindingResponse) *hit =
        world_call(w, "ResolveCollectionNameBinding", &resolve);
    assert_true(hit->collection->collection_id == id);
    binding.collection_name = "nothing";
    const SF_PB(ResolveCollectionNameBindingResponse) *miss =
        world_call(w, "ResolveCollectionNameBinding", &resolve);
    assert_null(miss->collection);
    assert_true(miss->collection_name_binding_revision == hit->collection_name_binding_revision);
    assert_true(admission(w, ns, id, NULL)->collection_name_binding_revision ==
                hit->collection_name_binding_revision);
    (void)world_collection(w, "c2", ns, "nothing");
    const SF_PB(ResolveCollectionNameBindingResponse) *after =
        world_call(w, "ResolveCollectionNameBinding", &resolve);
    assert_true(after->collection_name_binding_revision ==
                hit->collection_name_binding_revision + 1);
    binding.namespace_id = ns + 1;
    assert_null(world_call(w, "ResolveCollectionNameBinding", &resolve));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
}

/* Business replay of a schema: same payload, other content, other fence. */
static void test_schema_business(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.2-05");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    SF_PB(PutCollectionSchemaRequest) *first = world_schema_request(w, "s1", ns, id, 1, "tok-1");
    const char *original = world_json(w, world_call(w, "PutCollectionSchema", first));
    size_t records = world_list(w, "catalog-log/", NULL);
    SF_PB(PutCollectionSchemaRequest) *same = world_schema_request(w, "s2", ns, id, 1, "tok-1");
    assert_string_equal(world_json(w, world_call(w, "PutCollectionSchema", same)), original);
    assert_int_equal(world_list(w, "catalog-log/", NULL), records + 1);
    SF_PB(PutCollectionSchemaRequest) *other = world_schema_request(w, "s3", ns, id, 1, "tok-1");
    other->ddl_commit_ts = 7;
    assert_null(world_call(w, "PutCollectionSchema", other));
    assert_int_equal(w->diag.err, SF_IDEMPOTENCY_CONFLICT);
    assert_int_equal(world_list(w, "catalog-log/", NULL), records + 2);
    assert_null(world_call(w, "PutCollectionSchema", other));
    assert_int_equal(w->diag.err, SF_IDEMPOTENCY_CONFLICT);
    assert_int_equal(world_list(w, "catalog-log/", NULL), records + 2);
    SF_PB(PutCollectionSchemaRequest) *fence = world_schema_request(w, "s4", ns, id, 1, "tok-1");
    fence->fence->_expected_prev_schema_version_case =
        SEARCHFABRIC__V1__SCHEMA_FENCE_PRECONDITION___EXPECTED_PREV_SCHEMA_VERSION_EXPECTED_PREV_SCHEMA_VERSION;
    assert_null(world_call(w, "PutCollectionSchema", fence));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_int_equal(world_list(w, "catalog-replay-business/", NULL), 1);
    world_rebuild(w);
    assert_string_equal(world_json(w, world_call(w, "PutCollectionSchema", same)), original);
    assert_null(world_call(w, "PutCollectionSchema", other));
    assert_int_equal(w->diag.err, SF_IDEMPOTENCY_CONFLICT);
}

/* Fence rules against the lineage. */
static void test_schema_fence(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, id, 2, "tok-2");
    assert_null(
        world_call(w, "PutCollectionSchema", world_schema_request(w, "s2", ns, id, 1, "tok-1")));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_null(
        world_call(w, "PutCollectionSchema", world_schema_request(w, "s3", ns, id, 3, "tok-2")));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_null(
        world_call(w, "PutCollectionSchema", world_schema_request(w, "s4", ns, id, 2, "tok-x")));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    SF_PB(PutCollectionSchemaRequest) *external = world_schema_request(w, "s5", ns, id, 3, "t");
    external->definition->collection_truth_mode = SF_PBE(COLLECTION_TRUTH_MODE, EXTERNAL);
    assert_null(world_call(w, "PutCollectionSchema", external));
    assert_int_equal(w->diag.err, SF_OWNERSHIP_CONFLICT);
    assert_null(world_call(w, "PutCollectionSchema",
                           world_schema_request(w, "s6", ns, id + 1, 1, "tok-1")));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
    world_schema(w, "s7", ns, id, 3, "tok-3");
}

/* Pages of names, in byte order, once each; tokens are bound. */
static void test_pages(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-10.2-01", "CCS-10.2-06", "CCS-10.2-09", "CCS-10.2-10", "CCS-10.2-11",
              "CCS-10.2-12", "CCS-10.2-13", "CCS-10.2-14", "CCS-10.2-17");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t other = world_namespace(w, "n2", "beta");
    for (int i = 0; i < 1000; i++) {
        char name[16], key[16];
        snprintf(name, sizeof(name), "c%03d", (i * 7) % 1000);
        snprintf(key, sizeof(key), "c-%d", i);
        (void)world_collection(w, key, ns, name);
    }
    SF_PB(ListCollectionsRequest) list;
    SF_PB(PageRequest) page;
    searchfabric__v1__list_collections_request__init(&list);
    searchfabric__v1__page_request__init(&page);
    list.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    list.namespace_id = ns;
    list.page = &page;
    page.page_size = 7;
    int seen = 0;
    const char *token = NULL;
    int64_t expires_ms = 0;
    do {
        const SF_PB(ListCollectionsResponse) *answer = world_call(w, "ListCollections", &list);
        assert_non_null(answer);
        for (size_t i = 0; i < answer->n_collections; i++) {
            char name[16];
            snprintf(name, sizeof(name), "c%03d", seen++);
            assert_string_equal(answer->collections[i]->collection_name, name);
        }
        assert_int_equal(answer->next_page->token[0] != '\0',
                         answer->next_page->expires_at_unix_ms != 0);
        page.page_token = answer->next_page->token;
        if (page.page_token[0] != '\0' && token == NULL) {
            token = page.page_token;
            expires_ms = answer->next_page->expires_at_unix_ms;
        }
        page.page_size = 0;
    } while (page.page_token[0] != '\0');
    assert_int_equal(seen, 1000);
    char *broken = sf_arena_str(w->arena, sf_view_str(token));
    page.page_token = broken;
    size_t length = strlen(broken);
    for (size_t i = 0; i < length; i += 5) {
        char right = broken[i];
        broken[i] = right == 'A' ? 'B' : 'A';
        assert_null(world_call(w, "ListCollections", &list));
        assert_int_equal(w->diag.err, SF_BAD_REQUEST);
        broken[i] = right;
    }
    page.page_token = (char *)(uintptr_t)token;
    page.page_size = 8;
    assert_null(world_call(w, "ListCollections", &list));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_string_equal(detail(w, "page_token_reason"), "binding_mismatch");
    page.page_size = 0;
    list.namespace_id = other;
    assert_null(world_call(w, "ListCollections", &list));
    assert_string_equal(detail(w, "page_token_reason"), "binding_mismatch");
    list.namespace_id = ns;
    list.prefix = "c";
    assert_null(world_call(w, "ListCollections", &list));
    list.prefix = "";
    list.meta->client_id = "client-2";
    assert_null(world_call(w, "ListCollections", &list));
    list.meta->client_id = "client-1";
    list.meta->client_kind = SF_PBE(CLIENT_KIND, ES_QUERY_GATEWAY);
    assert_null(world_call(w, "ListCollections", &list));
    list.meta->client_kind = SF_PBE(CLIENT_KIND, CONTROL_ADMIN);
    list.meta->_principal_subject_case =
        SEARCHFABRIC__V1__REQUEST_META___PRINCIPAL_SUBJECT_PRINCIPAL_SUBJECT;
    list.meta->principal_subject = "me";
    assert_null(world_call(w, "ListCollections", &list));
    list.meta->_principal_subject_case = 0;
    assert_null(world_call_as(w, "somebody", "ListCollections", &list));
    assert_string_equal(detail(w, "page_token_reason"), "binding_mismatch");
    SF_PB(ListNamespacesRequest) namespaces;
    searchfabric__v1__list_namespaces_request__init(&namespaces);
    namespaces.meta = list.meta;
    namespaces.page = &page;
    assert_null(world_call(w, "ListNamespaces", &namespaces));
    assert_string_equal(detail(w, "page_token_reason"), "binding_mismatch");
    assert_non_null(world_call(w, "ListCollections", &list));
    sf_clock_manual_advance(&w->clock, expires_ms - WORLD_UNIX_MS - 1);
    assert_non_null(world_call(w, "ListCollections", &list));
    sf_clock_manual_advance(&w->clock, 2);
    assert_null(world_call(w, "ListCollections", &list));
    assert_string_equal(detail(w, "page_token_reason"), "expired");
}

static void test_prefix(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-10.2-04", "CCS-10.2-05", "CCS-10.2-07");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    static const char last[] = {'\xed', '\x9f', '\xbf', 'x', '\0'}; /* U+D7FF and a letter */
    static const char *const names[] = {"a",   "ab",        "abc",          "ac", "Ab",
                                        "ab ", "b\xc3\xa9", "\xed\x9f\xbf", last};
    for (size_t i = 0; i < SF_ARRAY_LEN(names); i++) {
        char key[16];
        snprintf(key, sizeof(key), "k%zu", i);
        (void)world_collection(w, key, ns, names[i]);
    }
    static const struct {
        const char *prefix;
        size_t count;
        const char *first;
    } cases[] = {{"ab", 3, "ab"},   {"a", 5, "a"},
                 {"abc", 1, "abc"}, {"\xed\x9f\xbf", 2, "\xed\x9f\xbf"},
                 {"zz", 0, NULL},   {"", 9, "Ab"}};
    for (size_t i = 0; i < SF_ARRAY_LEN(cases); i++) {
        SF_PB(ListCollectionsRequest) list;
        searchfabric__v1__list_collections_request__init(&list);
        list.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
        list.namespace_id = ns;
        list.prefix = (char *)(uintptr_t)cases[i].prefix;
        const SF_PB(ListCollectionsResponse) *answer = world_call(w, "ListCollections", &list);
        assert_non_null(answer);
        assert_int_equal(answer->n_collections, cases[i].count);
        if (cases[i].count != 0)
            assert_string_equal(answer->collections[0]->collection_name, cases[i].first);
    }
}

/* Dropping the projection changes no public answer and no replay. */
static void test_rebuild(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.3-07", "CCS-3.3-08", "CCS-4.3-10");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t books = world_collection(w, "c1", ns, "books");
    uint64_t films = world_collection(w, "c2", ns, "films");
    world_schema(w, "s1", ns, books, 1, "tok-1");
    world_ready(w, ns, books, 1, "tok-1");
    world_schema(w, "s2", ns, books, 2, "tok-2");
    world_schema(w, "s3", ns, films, 1, "tok-1");
    SF_PB(PutCollectionMetadataRequest) *update = world_collection_request(w, "c3", ns, "books");
    update->options = world_options(w, "a", "b");
    const char *updated = world_json(w, world_call(w, "PutCollectionMetadata", update));
    const char *before = world_answers(w, ns);
    const SF_PB(CollectionAdmissionState) *known = admission(w, ns, books, NULL);
    struct sf_catalog_stats stats;
    world_restart(w);
    sf_catalog_stats(w->catalog, &stats);
    assert_false(stats.rebuilt);
    assert_true(stats.recovered == 0);
    assert_string_equal(world_answers(w, ns), before);
    world_rebuild(w);
    sf_catalog_stats(w->catalog, &stats);
    assert_true(stats.rebuilt);
    assert_false(atomic_load(&w->wire.listed_records));
    assert_true(stats.recovered == 7);
    assert_string_equal(world_answers(w, ns), before);
    assert_string_equal(world_json(w, world_call(w, "PutCollectionMetadata", update)), updated);
    const SF_PB(CollectionAdmissionState) *again = admission(w, ns, books, known);
    assert_non_null(again);
    assert_string_equal(again->descriptor_etag, known->descriptor_etag);
    assert_true(again->collection_name_binding_revision > known->collection_name_binding_revision);
    assert_true(world_namespace(w, "n2", "beta") > films);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_namespace_create, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_namespace_replay, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_namespace_refusals, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_identity_bounds, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_collection_life, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_convergence, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_name_binding, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_admission, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_admission, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_schema_business, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_schema_fence, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_pages, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_prefix, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_rebuild, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_rebuild, world_setup_shared, world_teardown),
    };
    return SF_RUN_TESTS("catalog_calls", tests);
}
