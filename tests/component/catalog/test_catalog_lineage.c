/* Drops, transitions and releases as callers, objects and rows see them. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "component/catalog/lineage_world.h"

static const SF_PB(CollectionTombstoneObject) *
    tombstone_of(struct world *w, uint64_t ns, uint64_t id)
{
    struct sf_buf key = {0};
    sf_catalog_key_tombstone(&key, ns, id, 1);
    const void *object = world_object(w, sf_arena_str(w->arena, sf_buf_view(&key)),
                                      &searchfabric__v1__collection_tombstone_object__descriptor);
    sf_buf_fini(&key);
    return object;
}

/* ---- drop --------------------------------------------------------------------------------- */

static void test_drop(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-2.1-06", "CCS-6.2-01", "CCS-6.2-02", "CCS-6.2-03", "CCS-5.3-12", "CCS-5.3-13",
              "CCS-5.2-38");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    world_collection(w, "c2", ns, "boats");
    world_schema(w, "s1", ns, id, 1, "tok-1");
    world_ready(w, ns, id, 1, "tok-1");
    SF_PB(GetCollectionAdmissionStateRequest) admission;
    SF_PB(CollectionRef) ref;
    searchfabric__v1__get_collection_admission_state_request__init(&admission);
    searchfabric__v1__collection_ref__init(&ref);
    ref.namespace_id = ns;
    ref.collection_id = id;
    admission.collection = &ref;
    const SF_PB(GetCollectionAdmissionStateResponse) *before =
        world_call(w, "GetCollectionAdmissionState", &admission);
    assert_int_equal(before->state->lifecycle, SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE));
    assert_int_equal(lineage_get_collection(w, ns, id), SF_OK);
    assert_int_equal(lineage_get_named(w, ns, "books"), SF_OK);
    assert_int_equal(lineage_get_schema(w, ns, id), SF_OK);
    assert_int_equal(lineage_get_sync(w, ns, id), SF_OK);
    assert_int_equal(lineage_listed(w, ns, ""), 2);
    assert_int_equal(lineage_listed(w, ns, "boo"), 1);
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    assert_int_equal(lineage_get_collection(w, ns, id), SF_RESOURCE_NOT_FOUND);
    assert_int_equal(lineage_get_named(w, ns, "books"), SF_RESOURCE_NOT_FOUND);
    assert_int_equal(lineage_get_schema(w, ns, id), SF_RESOURCE_NOT_FOUND);
    assert_int_equal(lineage_get_sync(w, ns, id), SF_RESOURCE_NOT_FOUND);
    assert_int_equal(lineage_listed(w, ns, ""), 1);
    assert_int_equal(lineage_listed(w, ns, "boo"), 0);
    const SF_PB(GetCollectionAdmissionStateResponse) *after =
        world_call(w, "GetCollectionAdmissionState", &admission);
    assert_int_equal(after->state->lifecycle, SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, TOMBSTONED));
    assert_string_not_equal(after->state->descriptor_etag, before->state->descriptor_etag);
    assert_true(after->state->collection_name_binding_revision ==
                before->state->collection_name_binding_revision + 1);
    assert_null(
        world_call(w, "PutCollectionSchema", world_schema_request(w, "s2", ns, id, 2, "tok-2")));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
}

static void test_drop_objects(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-6.1-01", "CCS-6.1-02", "CCS-6.1-03", "CCS-6.1-04", "CCS-6.1-05", "CCS-4.2-06",
              "CCS-5.3-19");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    uint64_t other = world_collection(w, "c2", ns, "boats");
    SF_PB(PutCollectionMetadataRequest) *update = world_collection_request(w, "c3", ns, "books");
    assert_non_null(world_call(w, "PutCollectionMetadata", update)); /* revision 2 */
    world_schema(w, "s1", ns, id, 1, "tok-1");
    sf_clock_manual_advance(&w->clock, 7000);
    assert_int_equal(lineage_drop(w, "d1", ns, id, "tok-1"), DROPPED);
    assert_int_equal(lineage_drop(w, "d2", ns, other, NULL), DROPPED);

    char key[256];
    char digits[32];
    char hash[SF_SHA256_HEX_BYTES];
    snprintf(digits, sizeof(digits), "%" PRIu64, ns);
    sf_sha256_hex(sf_view_str(digits), hash);
    snprintf(key, sizeof(key), "catalog/%.2s/%" PRIu64 "/%" PRIu64 "/collection_tombstone_v1.json",
             hash, ns, id);
    const SF_PB(CollectionTombstoneObject) *object =
        world_object(w, key, &searchfabric__v1__collection_tombstone_object__descriptor);
    assert_non_null(object);
    assert_true(object->collection->namespace_id == ns && object->collection->collection_id == id);
    assert_string_equal(object->collection_name, "books");
    assert_true(object->collection_name_allocation_epoch == 1);
    assert_true(object->drop_revision == 1);
    assert_true(object->dropped_at_unix_ms == WORLD_UNIX_MS + 7000);
    assert_true(object->gc_after_unix_ms == WORLD_UNIX_MS + 7000 + GC_DELAY_MS);
    assert_true(object->descriptor_revision == 2);
    assert_true(object->manifest_head_version == 0);
    assert_non_null(object->drop_fence);
    assert_string_equal(object->drop_fence->schema_generation_token, "tok-1");
    const SF_PB(CollectionTombstoneObject) *unfenced = tombstone_of(w, ns, other);
    assert_non_null(unfenced);
    assert_null(unfenced->drop_fence);

    const SF_PB(CommandOutcomeObject) *record = lineage_record(w, KIND(DROP_COLLECTION), 0);
    assert_non_null(record);
    assert_int_equal(record->terminal_state, SF_PBE(COMMAND_TERMINAL_STATE, APPLIED));
    assert_int_equal(record->n_control_objects, 1);
    assert_string_equal(record->control_objects[0]->key, key);
    assert_string_equal(record->fence->schema_generation_token, "tok-1");
    assert_true(record->collection_name_allocation_epoch == 1);
    assert_string_equal(object->command_identity, record->command_identity);

    /* business keys: the tuples of note section 4.2 */
    struct sf_keyhash kh;
    char fenced[SF_SHA256_HEX_BYTES];
    char unconditional[SF_SHA256_HEX_BYTES];
    sf_keyhash_init(&kh, "sf/ccs/business/drop-collection/1");
    sf_keyhash_u64(&kh, ns);
    sf_keyhash_u64(&kh, id);
    sf_keyhash_bytes(&kh, sf_view_str("tok-1"));
    for (int i = 0; i < 4; i++) /* neither of the optional conditions */
        sf_keyhash_u64(&kh, 0);
    sf_keyhash_finish_hex(&kh, fenced);
    sf_keyhash_init(&kh, "sf/ccs/business/drop-collection/1");
    sf_keyhash_u64(&kh, ns);
    sf_keyhash_u64(&kh, other);
    sf_keyhash_bytes(&kh, sf_view_str("__unconditional_drop__"));
    sf_keyhash_finish_hex(&kh, unconditional);
    assert_string_equal(record->business_lookup_key, fenced);
    assert_string_equal(lineage_record(w, KIND(DROP_COLLECTION), 1)->business_lookup_key,
                        unconditional);

    /* the row stays, hidden */
    assert_string_equal(lineage_sql(w,
                                    "SELECT lifecycle_state FROM collections"
                                    " WHERE namespace_id = ?1 AND collection_id = ?2",
                                    ns, id),
                        "TOMBSTONED");
    const SF_PB(ShowLineageResponse) *shown = lineage_show(w, ns, id);
    assert_true(shown->collection_row->drop_revision == 1);
    assert_true(shown->collection_row->gc_after_unix_ms == object->gc_after_unix_ms);
    assert_true(shown->collection_row->dropped_at_unix_ms == object->dropped_at_unix_ms);
    assert_string_equal(shown->tombstone->collection_name, "books");
    assert_int_equal(shown->n_release_blocked_by, 1);
    assert_string_equal(shown->release_blocked_by[0], "horizon_not_reached");
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    assert_int_equal(lineage_sweep(w)->released_collection_names, 2);
    assert_string_equal(lineage_sql(w,
                                    "SELECT lifecycle_state FROM collections"
                                    " WHERE namespace_id = ?1 AND collection_id = ?2",
                                    ns, id),
                        "");
}

/* Every repeat is answered from the lineage; the horizon never moves. */
static void test_drop_repeats(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.5-14", "CCS-4.5-16", "CCS-4.5-17", "CCS-6.2-04");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, id, 1, "tok-1");
    assert_int_equal(lineage_drop(w, "d1", ns, id, "tok-1"), DROPPED);
    int64_t horizon = tombstone_of(w, ns, id)->gc_after_unix_ms;
    size_t records = lineage_records(w);
    uint64_t binding = lineage_binding(w, ns);
    sf_clock_manual_advance(&w->clock, 60000);
    assert_int_equal(lineage_drop(w, "d1", ns, id, "tok-1"), ALREADY_DROPPED); /* same key */
    assert_int_equal(lineage_records(w), records);
    assert_int_equal(lineage_drop(w, "d2", ns, id, "tok-1"), ALREADY_DROPPED); /* same fence */
    assert_int_equal(lineage_drop(w, "d3", ns, id, "other"), ALREADY_DROPPED); /* another fence */
    assert_int_equal(lineage_drop(w, "d4", ns, id, NULL), ALREADY_DROPPED);    /* none */
    assert_int_equal(lineage_records(w), records + 3);
    for (size_t i = 1; i < 4; i++) {
        const SF_PB(CommandOutcomeObject) *record = lineage_record(w, KIND(DROP_COLLECTION), i);
        assert_int_equal(record->replay_classification,
                         SF_PBE(REPLAY_CLASSIFICATION, REPLAY_SAME_PAYLOAD));
        assert_string_equal(record->control_objects[0]->key,
                            lineage_record(w, KIND(DROP_COLLECTION), 0)->control_objects[0]->key);
    }
    assert_int_equal(world_list(w, "catalog-replay-business/DROP_COLLECTION/", NULL), 1);
    assert_int_equal(lineage_drop(w, "d3", ns, id, "other"), ALREADY_DROPPED);
    assert_null(world_call(w, "DropCollection", lineage_drop_request(w, "d1", ns, id, NULL)));
    assert_int_equal(w->diag.err, SF_IDEMPOTENCY_CONFLICT);
    assert_true(tombstone_of(w, ns, id)->gc_after_unix_ms == horizon);
    assert_true(tombstone_of(w, ns, id)->drop_revision == 1);
    assert_true(lineage_show(w, ns, id)->collection_row->gc_after_unix_ms == horizon);
    assert_true(lineage_binding(w, ns) == binding);
    assert_int_equal(world_list(w, "catalog/", NULL), 4);
    for (int round = 0; round < 2; round++) {
        if (round == 0)
            world_restart(w);
        else
            world_rebuild(w);
        assert_int_equal(lineage_drop(w, "d1", ns, id, "tok-1"), ALREADY_DROPPED);
        assert_int_equal(lineage_drop(w, "d3", ns, id, "other"), ALREADY_DROPPED);
        assert_int_equal(lineage_records(w), records + 3);
        assert_true(lineage_show(w, ns, id)->collection_row->gc_after_unix_ms == horizon);
    }
}

static void test_drop_refusals(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.5-18");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    assert_int_equal(lineage_drop(w, "d0", ns, id + 77, NULL), 0);
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
    assert_int_equal(lineage_drop(w, "d0", ns + 77, id, NULL), 0);
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
    assert_int_equal(lineage_drop(w, "d0", ns, id, "tok-1"), 0); /* no generation yet */
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_string_equal(sf_diag_get(&w->diag, "violated_precondition"), "schema_generation_token");
    world_schema(w, "s1", ns, id, 1, "tok-1");
    world_schema(w, "s2", ns, id, 2, "tok-2");
    size_t records = lineage_records(w);
    assert_int_equal(lineage_drop(w, "d0", ns, id, "tok-1"), 0); /* not the active one */
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    SF_PB(DropCollectionRequest) *drop = lineage_drop_request(w, "d0", ns, id, "tok-2");
    drop->fence->_expected_prev_schema_version_case =
        SEARCHFABRIC__V1__SCHEMA_FENCE_PRECONDITION___EXPECTED_PREV_SCHEMA_VERSION_EXPECTED_PREV_SCHEMA_VERSION;
    drop->fence->expected_prev_schema_version = 1;
    assert_null(world_call(w, "DropCollection", drop));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_string_equal(sf_diag_get(&w->diag, "violated_precondition"),
                        "expected_prev_schema_version");
    assert_string_equal(sf_diag_get(&w->diag, "active_schema_version"), "2");
    drop->meta->client_kind = SF_PBE(CLIENT_KIND, ES_QUERY_GATEWAY);
    assert_null(world_call(w, "DropCollection", drop));
    assert_int_equal(w->diag.err, SF_FORBIDDEN);
    drop->meta->client_kind = SF_PBE(CLIENT_KIND, TIDB_DDL_ADAPTER);
    assert_null(world_call(w, "DropCollection", drop));
    assert_int_equal(w->diag.err, SF_OWNERSHIP_CONFLICT);
    drop->fence->schema_generation_token = "";
    drop->meta->client_kind = SF_PBE(CLIENT_KIND, CONTROL_ADMIN);
    assert_null(world_call(w, "DropCollection", drop));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_int_equal(lineage_records(w), records);
    assert_int_equal(lineage_get_collection(w, ns, id), SF_OK);
    drop->fence->schema_generation_token = "tok-2";
    drop->fence->expected_prev_schema_version = 2;
    drop->meta->client_kind = SF_PBE(CLIENT_KIND, ES_WRITE_GATEWAY);
    assert_non_null(world_call(w, "DropCollection", drop)); /* d0 was never poisoned */
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    assert_int_equal(lineage_sweep(w)->released_collection_names, 1);
    records = lineage_records(w);
    for (int round = 0; round < 3; round++) { /* released: also for the repeat, also after a loss */
        assert_null(world_call(w, "DropCollection", drop));
        assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
        assert_int_equal(lineage_drop(w, "d9", ns, id, NULL), 0);
        assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
        assert_int_equal(lineage_records(w), records);
        if (round == 0)
            world_restart(w);
        else
            world_rebuild(w);
    }
}

/* The namespace's aggregate after its last child, with no aggregator running. */
static void test_zero_children(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.2-32", "CCS-5.7-10", "CCS-5.7-15");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t first = world_collection(w, "c1", ns, "books");
    uint64_t second = world_collection(w, "c2", ns, "boats");
    SF_PB(GetNamespaceMetadataRequest) get;
    searchfabric__v1__get_namespace_metadata_request__init(&get);
    get.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    get.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID;
    get.namespace_id = ns;
    /* as an aggregator left it, and a read keeps it in memory */
    lineage_exec(w, "UPDATE namespaces SET approx_stats_json = '{\"approx_row_count\":\"5\"}',"
                    " index_json = '{\"updating\":{\"unindexed_bytes\":\"9\"}}'");
    const SF_PB(GetNamespaceMetadataResponse) *read = world_call(w, "GetNamespaceMetadata", &get);
    assert_non_null(read);
    assert_int_equal(lineage_drop(w, "d1", ns, first, NULL), DROPPED);
    read = world_call(w, "GetNamespaceMetadata", &get);
    assert_true(read->descriptor->approx_stats->approx_row_count == 5);
    assert_int_equal(lineage_drop(w, "d2", ns, second, NULL), DROPPED);
    read = world_call(w, "GetNamespaceMetadata", &get);
    assert_true(read->descriptor->approx_stats->approx_row_count == 0);
    assert_true(read->descriptor->approx_stats->approx_logical_bytes == 0);
    assert_int_equal(read->descriptor->index->state_case,
                     SEARCHFABRIC__V1__INDEX_STATUS__STATE_UP_TO_DATE);
    assert_int_equal(read->descriptor->completeness->state_case,
                     SEARCHFABRIC__V1__DESCRIPTOR_COMPLETENESS__STATE_READY);
}

/* ---- release of a collection's name ------------------------------------------------------- */

static const void *create(struct world *w, const char *key, uint64_t ns, const char *name)
{
    return world_call(w, "PutCollectionMetadata", world_collection_request(w, key, ns, name));
}

static void test_release_collection(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.4-05", "CCS-3.4-06", "CCS-3.4-08", "CCS-5.4-05", "CCS-5.4-08", "CCS-5.4-09",
              "CCS-5.4-10", "CCS-6.2-05", "CCS-6.2-06", "CCS-6.2-08", "CCS-4.1-05", "CCS-5.2-33",
              "CCS-4.5-25");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    uint64_t binding = lineage_binding(w, ns);
    assert_non_null(create(w, "c1b", ns, "books")); /* an update */
    assert_true(lineage_binding(w, ns) == binding);
    world_schema(w, "s1", ns, id, 1, "tok-1");
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    assert_true(lineage_binding(w, ns) == binding + 1);
    size_t objects = world_list(w, "catalog/", NULL);
    lineage_conflict(w, create(w, "c2", ns, "books"), "collection_name", "tombstoned");
    assert_true(lineage_epoch(w, ns, "books") == 1);
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS - 1);
    assert_int_equal(lineage_sweep(w)->released_collection_names, 0);
    assert_int_equal(lineage_sweep(w)->kept, 1);
    assert_int_equal(world_list(w, "catalog/", NULL), objects);
    sf_clock_manual_advance(&w->clock, 1);
    lineage_conflict(w, create(w, "c2", ns, "books"), "collection_name", "tombstoned");
    lineage_exec(w, "UPDATE collections SET manifest_head_reconciler_status = 'REPAIR_PENDING'");
    assert_int_equal(lineage_sweep(w)->kept, 1); /* a condition is open */
    assert_string_equal(lineage_show(w, ns, id)->release_blocked_by[0],
                        "manifest_head_under_repair");
    lineage_conflict(w, create(w, "c2", ns, "books"), "collection_name", "tombstoned");
    lineage_exec(w, "UPDATE collections SET manifest_head_reconciler_status = 'IDLE'");
    assert_int_equal(world_job(w, "release-sweep"), 1);
    assert_true(lineage_binding(w, ns) == binding + 2);
    const SF_PB(CommandOutcomeObject) *record =
        lineage_record(w, KIND(COLLECTION_NAME_RESERVATION_RELEASE), 0);
    assert_non_null(record);
    assert_int_equal(record->replay_family, SF_PBE(REPLAY_FAMILY, INTERNAL_INTENT));
    assert_true(lineage_epoch(w, ns, "books") == 1);
    const char *epochs = "SELECT collection_name FROM collection_name_epochs"
                         " WHERE namespace_id = ?1";
    assert_string_equal(lineage_sql(w, epochs, ns, 0), "books");
    assert_int_equal(world_job(w, "release-sweep"), 0);
    assert_string_equal(lineage_sql(w, epochs, ns, 0), "books");
    assert_int_equal(lineage_listed(w, ns, ""), 0);
    assert_int_equal(lineage_get_named(w, ns, "books"), SF_RESOURCE_NOT_FOUND);
    assert_int_equal(lineage_get_collection(w, ns, id), SF_RESOURCE_NOT_FOUND);
    uint64_t lists = atomic_load(&w->wire.lists);
    uint64_t again = world_collection(w, "c2", ns, "books"); /* the key was never poisoned */
    assert_true(atomic_load(&w->wire.lists) == lists);
    assert_false(atomic_load(&w->wire.listed_records));
    assert_true(again > id);
    assert_true(lineage_epoch(w, ns, "books") == 2);
    assert_true(lineage_show(w, ns, again)->collection_row->collection_name_allocation_epoch == 2);
    assert_true(lineage_binding(w, ns) == binding + 3);
    /* the old create's repeat still gets its answer */
    const SF_PB(PutCollectionMetadataResponse) *old = create(w, "c1", ns, "books");
    assert_true(old->descriptor->collection->collection_id == id);
}

/* Rows of the lineage tables as one text; binding revisions aside (a rebuild adds one), and with
 * the lagging fields brought up to date. */
static const char *rows_text(struct world *w)
{
    static const struct {
        int columns;
        const char *sql;
    } queries[] = {
        {6, "SELECT namespace_name, lifecycle_state, namespace_revision,"
            " lifecycle_gc_after_unix_ms, approx_stats_json, index_json"
            " FROM namespaces ORDER BY namespace_id"},
        {7, "SELECT collection_name, lifecycle_state, collection_name_allocation_epoch,"
            " drop_revision, gc_after_unix_ms, dropped_at_unix_ms, active_schema_generation_token"
            " FROM collections ORDER BY namespace_id, collection_id"},
        {1, "SELECT tombstone_json FROM collection_tombstones"
            " ORDER BY namespace_id, collection_id"},
        {2, "SELECT namespace_name, last_allocated_epoch FROM namespace_name_epochs ORDER BY 1"},
        {2, "SELECT collection_name, last_allocated_epoch FROM collection_name_epochs ORDER BY 1"},
        {1, "SELECT schema_generation_token FROM schema_generations ORDER BY 1"},
        {9, "SELECT command_identity, command_kind, replay_family, target_lifecycle_state,"
            " expected_namespace_revision, release_cutoff_unix_ms,"
            " namespace_name_allocation_epoch, collection_name_allocation_epoch,"
            " original_outcome_json FROM catalog_replay_index ORDER BY command_identity"},
    };
    struct sf_buf out = {0};
    world_enrich(w);
    if (w->place.where.kind != SF_SQL_SQLITE) /* the texts below are SQLite's */
        return world_digest(w)->sha256;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    for (size_t i = 0; i < SF_ARRAY_LEN(queries); i++) {
        struct sf_sql_stmt *stmt;
        bool row = false;
        assert_int_equal(sf_sql_prepare(conn, queries[i].sql, &w->diag, &stmt), SF_OK);
        while (sf_sql_step(stmt, &w->diag, &row) == SF_OK && row) {
            for (int column = 0; column < queries[i].columns; column++) {
                struct sf_view text = sf_sql_col_text(stmt, column);
                sf_buf_printf(&out, "%zu %.*s|", i, (int)text.len, (const char *)text.ptr);
            }
            sf_buf_append_str(&out, "\n");
        }
    }
    sf_sql_release(conn);
    const char *text = sf_arena_str(w->arena, sf_buf_view(&out));
    sf_buf_fini(&out);
    return text;
}

/* Drop, release, recreate; in chain order a rebuild comes to the same rows. */
static void test_rebuild(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.5-24", "CCS-4.5-26", "CCS-11-07", "CCS-11-11");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t first = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, first, 1, "tok-1");
    world_ready(w, ns, first, 1, "tok-1");
    assert_int_equal(lineage_drop(w, "d1", ns, first, NULL), DROPPED);
    uint64_t gone = world_namespace(w, "n2", "beta");
    assert_non_null(lineage_transition(w, gone, NS_STATE(TOMBSTONED), 1));
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    const SF_PB(RunReleaseSweepResponse) *swept = lineage_sweep(w);
    assert_int_equal(swept->released_collection_names, 1);
    assert_int_equal(swept->released_namespace_names, 1);
    uint64_t second = world_collection(w, "c2", ns, "books");
    uint64_t third = world_collection(w, "c3", ns, "boats");
    assert_int_equal(lineage_drop(w, "d3", ns, third, NULL), DROPPED);
    uint64_t quiet = world_namespace(w, "n3", "gamma");
    assert_non_null(lineage_transition(w, quiet, NS_STATE(QUIESCING), 1));
    uint64_t dead = world_namespace(w, "n4", "delta");
    assert_non_null(lineage_transition(w, dead, NS_STATE(TOMBSTONED), 1));
    const char *before = rows_text(w);
    const char *answers = world_answers(w, ns);
    for (int round = 0; round < 2; round++) {
        if (round == 0)
            world_restart(w);
        else
            world_rebuild(w);
        assert_string_equal(rows_text(w), before);
        assert_string_equal(world_answers(w, ns), answers);
        assert_int_equal(lineage_get_collection(w, ns, first), SF_RESOURCE_NOT_FOUND);
        assert_int_equal(lineage_get_collection(w, ns, second), SF_OK);
        assert_int_equal(lineage_show(w, quiet, 0)->namespace_row->lifecycle_state,
                         NS_STATE(QUIESCING));
        assert_int_equal(lineage_show(w, dead, 0)->namespace_row->lifecycle_state,
                         NS_STATE(TOMBSTONED));
        assert_null(lineage_show(w, gone, 0));
    }
    /* the released names are free, under the next epoch */
    uint64_t beta = world_namespace(w, "n5", "beta");
    assert_true(beta > gone);
    assert_true(lineage_epoch(w, 0, "beta") == 2);
    assert_int_equal(lineage_drop(w, "d9", ns, second, NULL), DROPPED);
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    lineage_sweep(w);
    world_rebuild(w);
    world_collection(w, "c9", ns, "books");
    assert_true(lineage_epoch(w, ns, "books") == 3);
}

/* ---- namespaces --------------------------------------------------------------------------- */

static int branch(struct world *w, const void *answer)
{
    assert_non_null(answer);
    (void)w;
    return (int)((const SF_PB(PutNamespaceMetadataResponse) *)answer)
        ->descriptor->lifecycle->state_case;
}

static void test_namespace_states(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.2-04", "CCS-5.2-21", "CCS-5.2-22", "CCS-5.2-23", "CCS-5.2-24", "CCS-5.2-26",
              "CCS-5.2-27", "CCS-5.2-29");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    SF_PB(PutNamespaceMetadataRequest) *update = world_namespace_request(w, "n2", "alpha");
    assert_int_equal(branch(w, world_call(w, "PutNamespaceMetadata", update)),
                     SEARCHFABRIC__V1__NAMESPACE_LIFECYCLE__STATE_ACTIVE);
    const SF_PB(SubmitNamespaceLifecycleTransitionResponse) *moved =
        lineage_transition(w, ns, NS_STATE(QUIESCING), 2);
    assert_non_null(moved);
    assert_int_equal(moved->outcome, SF_PBE(INTENT_OUTCOME, ACCEPTED));
    assert_true(moved->namespace_revision == 3);
    assert_int_equal(moved->lifecycle_state, NS_STATE(QUIESCING));
    update = world_namespace_request(w, "n3", "alpha");
    assert_int_equal(branch(w, world_call(w, "PutNamespaceMetadata", update)),
                     SEARCHFABRIC__V1__NAMESPACE_LIFECYCLE__STATE_QUIESCING);
    assert_int_equal(lineage_listed_namespaces(w, ""), 1);
    assert_int_equal(lineage_listed_namespaces(w, "al"), 1);
    for (int by_name = 0; by_name < 2; by_name++) {
        SF_PB(GetNamespaceMetadataRequest) get;
        searchfabric__v1__get_namespace_metadata_request__init(&get);
        get.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
        get.lookup_case =
            by_name ? SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_NAME
                    : SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID;
        if (by_name)
            get.namespace_name = "alpha";
        else
            get.namespace_id = ns;
        const SF_PB(GetNamespaceMetadataResponse) *read =
            world_call(w, "GetNamespaceMetadata", &get);
        assert_int_equal(read->descriptor->lifecycle->state_case,
                         SEARCHFABRIC__V1__NAMESPACE_LIFECYCLE__STATE_QUIESCING);
    }
    size_t records = lineage_records(w);
    lineage_conflict(w, create(w, "c2", ns, "boats"), "parent_namespace", "quiescing");
    assert_int_equal(lineage_records(w), records);
    assert_true(lineage_epoch(w, ns, "boats") == 0);
    assert_non_null(create(w, "c3", ns, "books")); /* an existing child */
    assert_non_null(lineage_transition(w, ns, NS_STATE(ACTIVE), 4));
    assert_non_null(create(w, "c2", ns, "boats")); /* the refusal left nothing behind */
    lineage_conflict(w, lineage_transition(w, ns, NS_STATE(TOMBSTONED), 5),
                     "resolved_collection_lineage", "active");
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    lineage_conflict(w, lineage_transition(w, ns, NS_STATE(TOMBSTONED), 5),
                     "resolved_collection_lineage", "active");
    const SF_PB(ListCollectionsResponse) *left = NULL;
    SF_PB(ListCollectionsRequest) list;
    searchfabric__v1__list_collections_request__init(&list);
    list.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    list.namespace_id = ns;
    left = world_call(w, "ListCollections", &list);
    assert_int_equal(
        lineage_drop(w, "d2", ns, left->collections[0]->collection->collection_id, NULL), DROPPED);
    moved = lineage_transition(w, ns, NS_STATE(TOMBSTONED), 5); /* never poisoned */
    assert_non_null(moved);
    assert_true(moved->namespace_revision == 6);
    assert_int_equal(lineage_listed_namespaces(w, ""), 0);
    assert_int_equal(lineage_listed_namespaces(w, "alpha"), 0);
    assert_int_equal(lineage_get_namespace(w, ns), SF_RESOURCE_NOT_FOUND);
    assert_int_equal(lineage_get_namespace_named(w, "alpha"), SF_RESOURCE_NOT_FOUND);
    assert_null(world_call(w, "ListCollections", &list));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
    lineage_conflict(w, create(w, "c5", ns, "new"), "parent_namespace", "tombstoned");
    lineage_conflict(w, create(w, "c5", ns, "books"), "parent_namespace", "tombstoned");
}

static void test_transitions(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.1-03", "CCS-4.2-13", "CCS-4.5-20", "CCS-5.2-30", "CCS-4.5-21");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    static const struct {
        SF_PB(NamespaceLifecycleState) target;
        uint64_t expected;
    } wrong[] = {{NS_STATE(ACTIVE), 1}, {NS_STATE(QUIESCING), 2}, {NS_STATE(TOMBSTONED), 7}};
    size_t records = lineage_records(w);
    for (size_t i = 0; i < SF_ARRAY_LEN(wrong); i++)
        lineage_conflict(w, lineage_transition(w, ns, wrong[i].target, wrong[i].expected),
                         "resolved_namespace_lineage", "active");
    assert_null(lineage_transition(w, ns + 5, NS_STATE(QUIESCING), 1));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
    assert_null(lineage_transition(w, ns, NS_STATE(UNSPECIFIED), 1));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_null(lineage_transition(w, ns, NS_STATE(QUIESCING), 0));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_int_equal(lineage_records(w), records);
    static const SF_PB(NamespaceLifecycleState)
        path[] = {NS_STATE(QUIESCING), NS_STATE(ACTIVE), NS_STATE(QUIESCING), NS_STATE(TOMBSTONED)};
    for (size_t i = 0; i < SF_ARRAY_LEN(path); i++) {
        sf_clock_manual_advance(&w->clock, 10);
        for (int again = 0; again < 3; again++) {
            const SF_PB(SubmitNamespaceLifecycleTransitionResponse) *moved =
                lineage_transition(w, ns, path[i], i + 1);
            assert_non_null(moved);
            assert_int_equal(moved->outcome, again == 0 ? SF_PBE(INTENT_OUTCOME, ACCEPTED)
                                                        : SF_PBE(INTENT_OUTCOME, DUPLICATE));
            assert_true(moved->namespace_revision == i + 2);
            assert_int_equal(moved->lifecycle_state, path[i]);
            assert_true(lineage_revision(w, ns) == i + 2);
            assert_int_equal(lineage_records(w), records + i + 1);
        }
        const SF_PB(CommandOutcomeObject) *record =
            lineage_record(w, KIND(NAMESPACE_LIFECYCLE_TRANSITION), i);
        char name[64];
        assert_int_equal(record->replay_family, SF_PBE(REPLAY_FAMILY, INTERNAL_INTENT));
        assert_int_equal(record->target_lifecycle_state, path[i]);
        assert_true(record->expected_namespace_revision == i + 1);
        assert_int_equal(record->n_control_objects, 1);
        snprintf(name, sizeof(name), "/namespace_descriptor_v%zu.json", i + 2);
        assert_non_null(strstr(record->control_objects[0]->key, name));
    }
    /* an old intent again, after others */
    assert_int_equal(lineage_transition(w, ns, NS_STATE(QUIESCING), 1)->outcome,
                     SF_PBE(INTENT_OUTCOME, DUPLICATE));
    const SF_PB(ShowLineageResponse) *shown = lineage_show(w, ns, 0);
    assert_true(shown->namespace_row->lifecycle_gc_after_unix_ms ==
                WORLD_UNIX_MS + 40 + GC_DELAY_MS);
    assert_true(shown->namespace_row->lifecycle_updated_at_unix_ms == WORLD_UNIX_MS + 40);
    for (int target = NS_STATE(ACTIVE); target <= NS_STATE(TOMBSTONED); target++)
        lineage_conflict(w, lineage_transition(w, ns, (SF_PB(NamespaceLifecycleState))target, 5),
                         "resolved_namespace_lineage", "tombstoned");
    /* the two releases twice: the second is no new record and no new revision */
    uint64_t parent = world_namespace(w, "n2", "beta");
    uint64_t id = world_collection(w, "c1", parent, "books");
    assert_int_equal(lineage_drop(w, "d1", parent, id, NULL), DROPPED);
    SF_PB(CollectionNameReservationReleaseIntent) collection;
    searchfabric__v1__collection_name_reservation_release_intent__init(&collection);
    collection.namespace_id = parent;
    collection.collection_id = id;
    collection.collection_name = "books";
    collection.releasing_collection_name_allocation_epoch = 1;
    collection.release_cutoff_unix_ms =
        lineage_show(w, parent, id)->collection_row->gc_after_unix_ms;
    SF_PB(NamespaceNameReservationReleaseIntent) name;
    searchfabric__v1__namespace_name_reservation_release_intent__init(&name);
    name.namespace_id = ns;
    name.namespace_name = "alpha";
    name.releasing_namespace_name_allocation_epoch = 1;
    name.release_cutoff_unix_ms = shown->namespace_row->lifecycle_gc_after_unix_ms;
    records = lineage_records(w);
    for (int round = 0; round < 3; round++) {
        struct sf_diag diag;
        enum sf_err want = round == 0 ? SF_VERSION_CONFLICT : SF_OK;
        struct sf_view bytes = {0};
        assert_int_equal(sf_catalog_intend(w->catalog, &sf_catalog_release_collection,
                                           &collection.base, w->arena, &diag, &bytes),
                         want);
        assert_int_equal(sf_catalog_intend(w->catalog, &sf_catalog_release_namespace, &name.base,
                                           w->arena, &diag, NULL),
                         want);
        assert_int_equal(lineage_records(w), records + (round == 0 ? 0 : 2));
        if (round == 0)
            assert_string_equal(sf_diag_get(&diag, "release_blocked_by"), "horizon_not_reached");
        sf_clock_manual_advance(&w->clock, round == 0 ? GC_DELAY_MS : 0);
    }
}

static void test_release_namespace(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.1-04", "CCS-4.5-22", "CCS-4.5-23", "CCS-5.2-25", "CCS-5.2-34");
    w->collection_gc_delay_ms = 5000;
    w->namespace_gc_delay_ms = 1000;
    world_restart(w);
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    assert_non_null(lineage_transition(w, ns, NS_STATE(TOMBSTONED), 1));
    SF_PB(PutNamespaceMetadataRequest) *again = world_namespace_request(w, "n2", "alpha");
    lineage_conflict(w, world_call(w, "PutNamespaceMetadata", again), "namespace_name",
                     "tombstoned");
    sf_clock_manual_advance(&w->clock, 999);
    assert_int_equal(lineage_sweep(w)->released_namespace_names, 0);
    assert_int_equal(lineage_show(w, ns, 0)->n_release_blocked_by, 2);
    sf_clock_manual_advance(&w->clock, 1); /* the horizon, but a tombstoned child remains */
    const SF_PB(RunReleaseSweepResponse) *swept = lineage_sweep(w);
    assert_int_equal(swept->released_namespace_names, 0);
    assert_int_equal(swept->kept, 2);
    assert_string_equal(lineage_show(w, ns, 0)->release_blocked_by[0], "collections_remain");
    lineage_conflict(w, world_call(w, "PutNamespaceMetadata", again), "namespace_name",
                     "tombstoned");
    sf_clock_manual_advance(&w->clock, 3999);
    assert_int_equal(lineage_sweep(w)->released_collection_names, 0);
    sf_clock_manual_advance(&w->clock, 1);
    lineage_conflict(w, world_call(w, "PutNamespaceMetadata", again), "namespace_name",
                     "tombstoned");
    swept = lineage_sweep(w); /* both in one sweep, the child first */
    assert_int_equal(swept->released_collection_names, 1);
    assert_int_equal(swept->released_namespace_names, 1);
    assert_int_equal(swept->kept, 0);
    const SF_PB(CommandOutcomeObject) *record =
        lineage_record(w, KIND(NAMESPACE_NAME_RESERVATION_RELEASE), 0);
    assert_int_equal(record->replay_family, SF_PBE(REPLAY_FAMILY, INTERNAL_INTENT));
    assert_true(record->releasing_namespace_name_allocation_epoch == 1);
    assert_true(record->release_cutoff_unix_ms == WORLD_UNIX_MS + 1000);
    assert_string_equal(
        lineage_sql(w, "SELECT namespace_name FROM namespaces WHERE namespace_id = ?1", ns, 0), "");
    assert_string_equal(lineage_sql(w, "SELECT namespace_name FROM namespace_name_epochs", 0, 0),
                        "alpha");
    const SF_PB(PutNamespaceMetadataResponse) *fresh = world_call(w, "PutNamespaceMetadata", again);
    assert_non_null(fresh);
    assert_true(fresh->descriptor->namespace_id > ns);
    assert_true(lineage_epoch(w, 0, "alpha") == 2);
    assert_true(lineage_show(w, fresh->descriptor->namespace_id, 0)
                    ->namespace_row->namespace_name_allocation_epoch == 2);
}

/* An idle sweep asks the store for nothing; the limit and the filter hold. */
static void test_sweep_bounds(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t other = world_namespace(w, "n2", "beta");
    char name[32];
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof(name), "c%d", i);
        lineage_drop(w, name, ns, world_collection(w, name, ns, name), NULL);
    }
    lineage_drop(w, "dx", other, world_collection(w, "x", other, "x"), NULL);
    uint64_t gets = atomic_load(&w->wire.gets);
    uint64_t lists = atomic_load(&w->wire.lists);
    uint64_t puts = atomic_load(&w->wire.applied);
    assert_int_equal(world_job(w, "release-sweep"), 0);
    assert_int_equal(world_job(w, "tombstone-repair"), 0);
    assert_true(atomic_load(&w->wire.gets) == gets && atomic_load(&w->wire.lists) == lists &&
                atomic_load(&w->wire.applied) == puts);
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    SF_PB(RunReleaseSweepRequest) request;
    searchfabric__v1__run_release_sweep_request__init(&request);
    request.max_releases = 2;
    const SF_PB(RunReleaseSweepResponse) *swept = world_call(w, "RunReleaseSweep", &request);
    assert_int_equal(swept->released_collection_names, 2);
    request.namespace_id = other;
    request.max_releases = 0;
    swept = world_call(w, "RunReleaseSweep", &request);
    assert_int_equal(swept->released_collection_names, 1);
    request.namespace_id = 0;
    swept = world_call(w, "RunReleaseSweep", &request);
    assert_int_equal(swept->released_collection_names, 3);
    swept = world_call(w, "RunReleaseSweep", &request);
    assert_int_equal(swept->released_collection_names + swept->kept, 0);
}

/* ---- identities --------------------------------------------------------------------------- */

static const char *intent_key(struct world *w, const char *tag,
                              const struct sf_catalog_mutation *ops, const void *request)
{
    char hex[SF_SHA256_HEX_BYTES];
    sf_catalog_intent_key(tag, ops, request, hex);
    return sf_arena_str(w->arena, sf_view_str(hex));
}

/* `count` identities, all different. */
static void check_distinct(const char *const *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(keys[i], keys[k]);
    }
}

#define IDENTITY(ops, request) intent_key(w, SF_CATALOG_TAG_INTENT, &(ops), &(request).base)

static void test_intent_identities(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.2-08", "CCS-4.2-09", "CCS-4.2-10", "CCS-4.1-07");
    const char *keys[8];
    SF_PB(SubmitNamespaceLifecycleTransitionRequest) transition;
    searchfabric__v1__submit_namespace_lifecycle_transition_request__init(&transition);
    transition.namespace_id = 7;
    transition.target_lifecycle_state = NS_STATE(QUIESCING);
    transition.expected_namespace_revision = 3;
    keys[0] = IDENTITY(sf_catalog_transition_namespace, transition);
    assert_string_equal(IDENTITY(sf_catalog_transition_namespace, transition), keys[0]);
    transition.namespace_id = 8;
    keys[1] = IDENTITY(sf_catalog_transition_namespace, transition);
    transition.namespace_id = 7;
    transition.target_lifecycle_state = NS_STATE(TOMBSTONED);
    keys[2] = IDENTITY(sf_catalog_transition_namespace, transition);
    transition.target_lifecycle_state = NS_STATE(QUIESCING);
    transition.expected_namespace_revision = 4;
    keys[3] = IDENTITY(sf_catalog_transition_namespace, transition);
    check_distinct(keys, 4);

    SF_PB(NamespaceNameReservationReleaseIntent) name;
    searchfabric__v1__namespace_name_reservation_release_intent__init(&name);
    name.namespace_name = "alpha";
    name.releasing_namespace_name_allocation_epoch = 1;
    name.release_cutoff_unix_ms = 50;
    name.namespace_id = 7;
    keys[0] = IDENTITY(sf_catalog_release_namespace, name);
    name.namespace_id = 8; /* follows from the epoch: no input */
    assert_string_equal(IDENTITY(sf_catalog_release_namespace, name), keys[0]);
    name.namespace_name = "beta";
    keys[1] = IDENTITY(sf_catalog_release_namespace, name);
    name.namespace_name = "alpha";
    name.releasing_namespace_name_allocation_epoch = 2;
    keys[2] = IDENTITY(sf_catalog_release_namespace, name);
    name.releasing_namespace_name_allocation_epoch = 1;
    name.release_cutoff_unix_ms = 51;
    keys[3] = IDENTITY(sf_catalog_release_namespace, name);
    check_distinct(keys, 4);

    SF_PB(CollectionNameReservationReleaseIntent) release;
    searchfabric__v1__collection_name_reservation_release_intent__init(&release);
    release.namespace_id = 7;
    release.collection_name = "alpha";
    release.releasing_collection_name_allocation_epoch = 1;
    release.release_cutoff_unix_ms = 50;
    release.collection_id = 9;
    keys[0] = IDENTITY(sf_catalog_release_collection, release);
    release.collection_id = 10;
    assert_string_equal(IDENTITY(sf_catalog_release_collection, release), keys[0]);
    release.namespace_id = 8;
    keys[1] = IDENTITY(sf_catalog_release_collection, release);
    release.namespace_id = 7;
    release.collection_name = "beta";
    keys[2] = IDENTITY(sf_catalog_release_collection, release);
    release.collection_name = "alpha";
    release.releasing_collection_name_allocation_epoch = 2;
    keys[3] = IDENTITY(sf_catalog_release_collection, release);
    release.releasing_collection_name_allocation_epoch = 1;
    release.release_cutoff_unix_ms = 51;
    keys[4] = IDENTITY(sf_catalog_release_collection, release);
    check_distinct(keys, 5);

    /* the families are apart: each key has a domain of its own, whatever stands in it */
    static const char *const tags[] = {SF_CATALOG_TAG_COMMAND, SF_CATALOG_TAG_TRANSPORT,
                                       SF_CATALOG_TAG_INTENT, SF_CATALOG_TAG_INTENT_LOOKUP};
    check_distinct(tags, SF_ARRAY_LEN(tags));
    for (size_t i = 0; i < SF_ARRAY_LEN(tags); i++)
        keys[i] = intent_key(w, tags[i], &sf_catalog_transition_namespace, &transition.base);
    check_distinct(keys, SF_ARRAY_LEN(tags));
}

/* The request that a record or a row of an intent says, and its identity. */
struct intent_facts {
    uint64_t ns, id;
    const char *ns_name, *name;
    uint64_t ns_epoch, epoch, expected;
    SF_PB(NamespaceLifecycleState) target;
    int64_t cutoff;
};

static void intent_identities(struct world *w, SF_PB(CommandKind) kind,
                              const struct intent_facts *facts, const char **out_identity,
                              const char **out_lookup)
{
    SF_PB(SubmitNamespaceLifecycleTransitionRequest) transition;
    SF_PB(NamespaceNameReservationReleaseIntent) name;
    SF_PB(CollectionNameReservationReleaseIntent) release;
    searchfabric__v1__submit_namespace_lifecycle_transition_request__init(&transition);
    searchfabric__v1__namespace_name_reservation_release_intent__init(&name);
    searchfabric__v1__collection_name_reservation_release_intent__init(&release);
    transition.namespace_id = release.namespace_id = facts->ns;
    transition.target_lifecycle_state = facts->target;
    transition.expected_namespace_revision = facts->expected;
    name.namespace_name = (char *)(uintptr_t)facts->ns_name;
    name.releasing_namespace_name_allocation_epoch = facts->ns_epoch;
    release.collection_name = (char *)(uintptr_t)facts->name;
    release.releasing_collection_name_allocation_epoch = facts->epoch;
    name.release_cutoff_unix_ms = release.release_cutoff_unix_ms = facts->cutoff;
    const struct sf_catalog_mutation *ops = &sf_catalog_transition_namespace;
    const void *request = &transition;
    if (kind == KIND(NAMESPACE_NAME_RESERVATION_RELEASE)) {
        ops = &sf_catalog_release_namespace;
        request = &name;
    } else if (kind == KIND(COLLECTION_NAME_RESERVATION_RELEASE)) {
        ops = &sf_catalog_release_collection;
        request = &release;
    }
    *out_identity = intent_key(w, SF_CATALOG_TAG_INTENT, ops, request);
    *out_lookup = intent_key(w, SF_CATALOG_TAG_INTENT_LOOKUP, ops, request);
}

/* Facts as the row of the replay index has them. */
static struct intent_facts facts_of_row(struct world *w, const char *command_identity)
{
    struct intent_facts facts = {0};
    struct sf_sql_stmt *stmt;
    bool row = false;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    assert_int_equal(
        sf_sql_prepare(conn,
                       "SELECT namespace_id, namespace_name, namespace_name_allocation_epoch,"
                       " collection_name, collection_name_allocation_epoch, target_lifecycle_state,"
                       " expected_namespace_revision, release_cutoff_unix_ms, business_lookup_key"
                       " FROM catalog_replay_index WHERE command_identity = ?1",
                       &w->diag, &stmt),
        SF_OK);
    sf_sql_bind_text(stmt, 1, sf_view_str(command_identity));
    assert_int_equal(sf_sql_step(stmt, &w->diag, &row), SF_OK);
    assert_true(row);
    facts.ns = sf_sql_col_u64(stmt, 0);
    facts.ns_name = sf_arena_str(w->arena, sf_sql_col_text(stmt, 1));
    facts.ns_epoch = sf_sql_col_is_null(stmt, 2) ? 0 : sf_sql_col_u64(stmt, 2);
    facts.name = sf_arena_str(w->arena, sf_sql_col_text(stmt, 3));
    facts.epoch = sf_sql_col_is_null(stmt, 4) ? 0 : sf_sql_col_u64(stmt, 4);
    const char *target = sf_arena_str(w->arena, sf_sql_col_text(stmt, 5));
    facts.target = strcmp(target, "QUIESCING") == 0    ? NS_STATE(QUIESCING)
                   : strcmp(target, "TOMBSTONED") == 0 ? NS_STATE(TOMBSTONED)
                   : strcmp(target, "ACTIVE") == 0     ? NS_STATE(ACTIVE)
                                                       : NS_STATE(UNSPECIFIED);
    facts.expected = sf_sql_col_is_null(stmt, 6) ? 0 : sf_sql_col_u64(stmt, 6);
    facts.cutoff = sf_sql_col_i64(stmt, 7);
    assert_true(sf_sql_col_is_null(stmt, 8));
    sf_sql_finish(stmt);
    sf_sql_release(conn);
    return facts;
}

static void test_intent_records(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.1-01", "CCS-4.1-06", "CCS-4.3-15", "CCS-4.3-19", "CCS-5.6-06", "CCS-5.6-09");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, id, 1, "tok-1");
    SF_PB(DropCollectionRequest) *drop = lineage_drop_request(w, "d1", ns, id, NULL);
    drop->meta->_correlation_id_case =
        SEARCHFABRIC__V1__REQUEST_META___CORRELATION_ID_CORRELATION_ID;
    drop->meta->correlation_id = "trace-1";
    assert_non_null(world_call(w, "DropCollection", drop));
    assert_non_null(lineage_transition(w, ns, NS_STATE(QUIESCING), 1));
    assert_non_null(lineage_transition(w, ns, NS_STATE(ACTIVE), 2));
    assert_non_null(lineage_transition(w, ns, NS_STATE(TOMBSTONED), 3));
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    lineage_sweep(w);
    static const SF_PB(CommandKind)
        publics[] = {KIND(PUT_NAMESPACE_METADATA), KIND(PUT_COLLECTION_METADATA),
                     KIND(PUT_COLLECTION_SCHEMA), KIND(DROP_COLLECTION)};
    for (size_t i = 0; i < SF_ARRAY_LEN(publics); i++) {
        const SF_PB(CommandOutcomeObject) *record = lineage_record(w, publics[i], 0);
        bool dropped = publics[i] == KIND(DROP_COLLECTION);
        assert_int_equal(record->replay_family, SF_PBE(REPLAY_FAMILY, PUBLIC_RPC));
        assert_true(record->_idempotency_key_case != 0 && record->idempotency_key[0] != '\0');
        assert_int_equal(record->client_kind, SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
        assert_true((record->_correlation_id_case != 0) == dropped); /* as it was sent */
        if (dropped)
            assert_string_equal(record->correlation_id, "trace-1");
        if (publics[i] == KIND(PUT_NAMESPACE_METADATA))
            assert_true(record->namespace_name_allocation_epoch == 1);
        else if (publics[i] != KIND(PUT_COLLECTION_SCHEMA))
            assert_true(record->collection_name_allocation_epoch == 1);
    }
    static const struct {
        SF_PB(CommandKind) kind;
        size_t count;
    } intents[] = {{KIND(NAMESPACE_LIFECYCLE_TRANSITION), 3},
                   {KIND(NAMESPACE_NAME_RESERVATION_RELEASE), 1},
                   {KIND(COLLECTION_NAME_RESERVATION_RELEASE), 1}};
    for (size_t i = 0; i < SF_ARRAY_LEN(intents); i++) {
        for (size_t k = 0; k < intents[i].count; k++) {
            const SF_PB(CommandOutcomeObject) *record = lineage_record(w, intents[i].kind, k);
            assert_non_null(record);
            assert_int_equal(record->replay_family, SF_PBE(REPLAY_FAMILY, INTERNAL_INTENT));
            assert_true(record->_idempotency_key_case == 0 && record->_client_id_case == 0 &&
                        record->_principal_subject_case == 0 &&
                        record->_authenticated_client_identity_hash_case == 0 &&
                        record->_business_lookup_key_case == 0);
            bool transition = intents[i].kind == KIND(NAMESPACE_LIFECYCLE_TRANSITION);
            bool of_name = intents[i].kind == KIND(NAMESPACE_NAME_RESERVATION_RELEASE);
            assert_true((record->target_lifecycle_state != NS_STATE(UNSPECIFIED)) == transition);
            assert_true((record->_expected_namespace_revision_case != 0) == transition);
            assert_true((record->_release_cutoff_unix_ms_case != 0) == !transition);
            assert_true((record->_releasing_namespace_name_allocation_epoch_case != 0) == of_name);
            assert_true((record->_releasing_collection_name_allocation_epoch_case != 0) ==
                        (!transition && !of_name));
            assert_true(record->_namespace_name_allocation_epoch_case != 0 ||
                        record->_collection_name_allocation_epoch_case != 0);
            const struct intent_facts facts = {
                .ns = record->scope->namespace_id,
                .ns_name = record->scope->namespace_name,
                .name = record->scope->collection_name,
                .ns_epoch = record->releasing_namespace_name_allocation_epoch,
                .epoch = record->releasing_collection_name_allocation_epoch,
                .target = record->target_lifecycle_state,
                .expected = record->expected_namespace_revision,
                .cutoff = record->release_cutoff_unix_ms};
            const char *identity, *lookup;
            intent_identities(w, intents[i].kind, &facts, &identity, &lookup);
            assert_string_equal(identity, record->command_identity);
            assert_string_equal(lookup, record->transport_lookup_key);
            struct intent_facts row = facts_of_row(w, identity);
            intent_identities(w, intents[i].kind, &row, &identity, &lookup);
            assert_string_equal(identity, record->command_identity);
            assert_string_equal(lookup, record->transport_lookup_key);
        }
    }
}

/* ---- schemas of a lineage ----------------------------------------------------------------- */

/* Reads pointer and row of the active generation over and over. */
struct watcher {
    struct world *w;
    uint64_t ns, id;
    _Atomic bool stop;
    _Atomic uint64_t seen, versions; /* snapshots; different active versions among them */
};

static void *watch(void *arg)
{
    struct watcher *watcher = arg;
    uint64_t last = 0;
    while (!atomic_load(&watcher->stop)) {
        struct sf_diag diag;
        struct sf_sql_stmt *stmt;
        bool row = false;
        struct sf_sql_conn *conn = sf_sql_acquire(watcher->w->sql, NULL, SF_SQL_READ);
        assert_int_equal(sf_sql_prepare(conn,
                                        "SELECT c.active_schema_version, g.schema_version,"
                                        " c.active_schema_generation_token,"
                                        " g.schema_generation_token, g.sync_state"
                                        " FROM collections c LEFT JOIN schema_generations g"
                                        " ON g.namespace_id = c.namespace_id"
                                        " AND g.collection_id = c.collection_id"
                                        " AND g.schema_version = (SELECT MAX(m.schema_version)"
                                        " FROM schema_generations m WHERE m.namespace_id = ?1"
                                        " AND m.collection_id = ?2)"
                                        " WHERE c.namespace_id = ?1 AND c.collection_id = ?2",
                                        &diag, &stmt),
                         SF_OK);
        sf_sql_bind_u64(stmt, 1, watcher->ns);
        sf_sql_bind_u64(stmt, 2, watcher->id);
        assert_int_equal(sf_sql_step(stmt, &diag, &row), SF_OK);
        assert_true(row);
        assert_true(sf_sql_col_is_null(stmt, 0) == sf_sql_col_is_null(stmt, 1));
        if (!sf_sql_col_is_null(stmt, 0)) { /* the newest row is the one that is pointed at */
            uint64_t version = sf_sql_col_u64(stmt, 0);
            assert_true(version == sf_sql_col_u64(stmt, 1));
            assert_true(sf_view_equal(sf_sql_col_text(stmt, 2), sf_sql_col_text(stmt, 3)));
            assert_true(sf_view_equal(sf_sql_col_text(stmt, 4), sf_view_str("APPLYING")));
            atomic_fetch_add(&watcher->versions, version != last ? 1 : 0);
            last = version;
        }
        atomic_fetch_add(&watcher->seen, 1);
        sf_sql_finish(stmt);
        sf_sql_release(conn);
    }
    return NULL;
}

static void test_schema_shows_whole(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-7-12");
    struct watcher watcher = {.w = w};
    pthread_t thread;
    char key[16];
    watcher.ns = world_namespace(w, "n1", "alpha");
    watcher.id = world_collection(w, "c1", watcher.ns, "books");
    assert_int_equal(pthread_create(&thread, NULL, watch, &watcher), 0);
    /* on a busy machine the watcher may get its first turn late */
    for (uint64_t version = 1;
         version <= 40 || (version <= 4000 && atomic_load(&watcher.versions) == 0); version++) {
        snprintf(key, sizeof(key), "tok-%" PRIu64, version);
        world_schema(w, key, watcher.ns, watcher.id, version, key);
    }
    atomic_store(&watcher.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&watcher.seen) != 0 && atomic_load(&watcher.versions) != 0);
}

static void check_bootstrap(struct world *w, const char *method, const void *request)
{
    assert_null(world_call(w, method, request));
    assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
    assert_string_equal(sf_diag_get(&w->diag, "catalog_unavailable_reason"), "schema_bootstrap");
    assert_string_equal(sf_diag_get(&w->diag, "schema_bootstrap_state"),
                        "no_active_schema_generation");
}

/* A collection without a schema: everything that depends on one says so in the same words. */
static void test_bootstrap(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-7-14");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    SF_PB(CollectionRef) ref;
    searchfabric__v1__collection_ref__init(&ref);
    ref.namespace_id = ns;
    ref.collection_id = world_collection(w, "c1", ns, "books");
    SF_PB(RequestMeta) *meta = world_meta(w, "", SF_PBE(CLIENT_KIND, ES_QUERY_GATEWAY));
    SF_PB(GetCollectionSchemaRequest) schema;
    SF_PB(GetSchemaSyncStatusRequest) sync;
    SF_PB(GetCollectionStatisticsRequest) statistics;
    SF_PB(ResolveServingGenerationRequest) serving;
    searchfabric__v1__get_collection_schema_request__init(&schema);
    searchfabric__v1__get_schema_sync_status_request__init(&sync);
    searchfabric__v1__get_collection_statistics_request__init(&statistics);
    searchfabric__v1__resolve_serving_generation_request__init(&serving);
    schema.meta = sync.meta = statistics.meta = meta;
    schema.collection = sync.collection = statistics.collection = serving.collection = &ref;
    check_bootstrap(w, "GetCollectionSchema", &schema);
    check_bootstrap(w, "GetSchemaSyncStatus", &sync);
    check_bootstrap(w, "GetCollectionStatistics", &statistics);
    check_bootstrap(w, "ResolveServingGeneration", &serving);
    assert_int_equal(lineage_drop(w, "d1", ns, ref.collection_id, NULL), DROPPED);
    assert_null(world_call(w, "GetCollectionStatistics", &statistics));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
    assert_null(world_call(w, "ResolveServingGeneration", &serving));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
}

/* ---- public payloads ---------------------------------------------------------------------- */

static bool names_private(const ProtobufCMessageDescriptor *desc)
{
    static const char *const words[] = {"epoch",  "revision",   "gc_after", "tombstone",
                                        "drop",   "quota",      "window",   "horizon",
                                        "reserv", "transition", "manifest"};
    for (unsigned i = 0; i < desc->n_fields; i++) {
        for (size_t k = 0; k < SF_ARRAY_LEN(words); k++) {
            if (strstr(desc->fields[i].name, words[k]) != NULL)
                return true;
        }
        if (desc->fields[i].type == PROTOBUF_C_TYPE_MESSAGE &&
            names_private((const ProtobufCMessageDescriptor *)desc->fields[i].descriptor))
            return true;
    }
    return false;
}

/* Makes a definition lifecycle-managed: windows of a day, kept for a week. */
static void manage_lifecycle(struct world *w, SF_PB(CollectionSchemaDefinition) * definition)
{
    SF_PB(FieldDefinition) *field = sf_arena_alloc(w->arena, sizeof(*field));
    SF_PB(CollectionSettings) *settings = sf_arena_alloc(w->arena, sizeof(*settings));
    SF_PB(LifecyclePolicy) *policy = sf_arena_alloc(w->arena, sizeof(*policy));
    SF_PB(FieldDefinition) **fields = sf_arena_alloc(w->arena, 2 * sizeof(*fields));
    *field = *definition->fields[0];
    field->name = "at";
    field->type = SF_PBE(FIELD_TYPE, TIMESTAMP);
    fields[0] = definition->fields[0];
    fields[1] = field;
    definition->fields = fields;
    definition->n_fields = 2;
    searchfabric__v1__collection_settings__init(settings);
    searchfabric__v1__lifecycle_policy__init(policy);
    policy->time_partition_field = "at";
    policy->window_ms = 86400000;
    policy->_retention_ms_case = SEARCHFABRIC__V1__LIFECYCLE_POLICY___RETENTION_MS_RETENTION_MS;
    policy->retention_ms = 604800000;
    settings->lifecycle_policy = policy;
    definition->settings = settings;
}

static void test_private_state(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-2.2-01", "CCS-2.2-05");
    assert_false(names_private(&searchfabric__v1__namespace_descriptor__descriptor));
    assert_false(names_private(&searchfabric__v1__collection_descriptor__descriptor));
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    uint64_t kept = world_collection(w, "c2", ns, "boats");
    SF_PB(PutCollectionSchemaRequest) *schema = world_schema_request(w, "s1", ns, kept, 1, "tok-1");
    manage_lifecycle(w, schema->definition);
    assert_non_null(world_call(w, "PutCollectionSchema", schema));
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    assert_non_null(lineage_transition(w, ns, NS_STATE(QUIESCING), 1));
    const char *answers = world_answers(w, ns);
    static const char *const words[] = {"epoch",     "revision",   "gc_after",
                                        "tombstone", "TOMBSTONED", "drop",
                                        "quota",     "transition", "release"};
    assert_non_null(strstr(answers, "quiescing"));
    for (size_t i = 0; i < SF_ARRAY_LEN(words); i++)
        assert_null(strstr(answers, words[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_drop, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_drop_objects, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_drop_repeats, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_drop_refusals, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_zero_children, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_release_collection, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_rebuild, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_namespace_states, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_transitions, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_release_namespace, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_sweep_bounds, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_schema_shows_whole, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_bootstrap, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_intent_identities, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_intent_records, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_private_state, world_setup, world_teardown),
    };
    return SF_RUN_TESTS("catalog_lineage", tests);
}
