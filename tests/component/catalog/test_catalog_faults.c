/* Crashes between every two puts, lost and damaged projections, damaged truth, a second owner. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "component/catalog/catalog_world.h"

/* ---- crash points ------------------------------------------------------------------------- */

enum victim { VICTIM_NAMESPACE, VICTIM_UPDATE, VICTIM_COLLECTION, VICTIM_SCHEMA, VICTIM_COUNT };

struct prepared {
    uint64_t ns, collection;
    const char *method;
    const void *request;
};

static struct prepared prepare(struct world *w, enum victim victim)
{
    struct prepared p = {0};
    SF_PB(PutNamespaceMetadataRequest) * update;
    if (victim == VICTIM_NAMESPACE) {
        p.method = "PutNamespaceMetadata";
        p.request = world_namespace_request(w, "victim", "alpha");
        return p;
    }
    p.ns = world_namespace(w, "n1", "alpha");
    switch (victim) {
    case VICTIM_UPDATE:
        update = world_namespace_request(w, "victim", "alpha");
        update->options = world_options(w, "v", "1");
        p.method = "PutNamespaceMetadata";
        p.request = update;
        break;
    case VICTIM_COLLECTION:
        p.method = "PutCollectionMetadata";
        p.request = world_collection_request(w, "victim", p.ns, "books");
        break;
    default:
        p.collection = world_collection(w, "c1", p.ns, "books");
        p.method = "PutCollectionSchema";
        p.request = world_schema_request(w, "victim", p.ns, p.collection, 1, "tok-1");
        break;
    }
    return p;
}

/* Kills after `cut` puts of the command; true when the command got through unharmed. */
static bool crash_at(enum victim victim, uint64_t cut)
{
    struct world *w = world_new(false);
    struct prepared p = prepare(w, victim);
    atomic_store(&w->wire.applied, 0);
    atomic_store(&w->wire.cut_after, cut);
    const void *first = world_call(w, p.method, p.request);
    const char *answer = first == NULL ? NULL : world_json(w, first);
    if (first == NULL)
        assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
    bool through = !atomic_load(&w->wire.dead);
    if (!through)
        sf_clock_manual_advance(&w->clock, 1000);
    /* restart: the retry gets the first answer, or the command runs afresh, and only once */
    world_restart(w);
    struct sf_catalog_stats stats;
    sf_catalog_stats(w->catalog, &stats);
    const void *second = world_call(w, p.method, p.request);
    assert_non_null(second);
    const char *again = world_json(w, second);
    if (answer != NULL)
        assert_string_equal(answer, again);
    if (stats.recovered != 0 && answer == NULL)
        assert_null(strstr(again, "\"created_at_unix_ms\":\"1767225601000\""));
    uint64_t ns = p.ns;
    if (ns == 0)
        ns = ((const SF_PB(PutNamespaceMetadataResponse) *)second)->descriptor->namespace_id;
    const char *before = world_answers(w, ns);
    assert_non_null(strstr(before, "alpha"));
    world_rebuild(w);
    assert_string_equal(world_answers(w, ns), before);
    assert_string_equal(world_json(w, world_call(w, p.method, p.request)), again);
    world_destroy(w);
    return through;
}

static void test_crash_points(void **state)
{
    (void)state;
    SF_PROVES("CCS-4.4-15", "CCS-4.4-16", "CCS-3.3-06");
    for (int victim = 0; victim < VICTIM_COUNT; victim++) {
        uint64_t cut = 0;
        while (!crash_at((enum victim)victim, cut))
            cut++;
        assert_true(cut >= 4); /* control object, segment, outcome, pointer at least */
    }
}

/* A crash between swap and rows of a promotion is finished by whoever asks next. */
static void test_promotion_crash(void **state)
{
    (void)state;
    for (uint64_t cut = 0; cut < 4; cut++) {
        struct world *w = world_new(false);
        uint64_t ns = world_namespace(w, "n1", "alpha");
        uint64_t id = world_collection(w, "c1", ns, "books");
        world_schema(w, "s1", ns, id, 1, "tok-1");
        SF_PB(ReportSchemaConvergenceSignalRequest) report;
        SF_PB(CollectionRef) ref;
        searchfabric__v1__report_schema_convergence_signal_request__init(&report);
        searchfabric__v1__collection_ref__init(&ref);
        ref.namespace_id = ns;
        ref.collection_id = id;
        report.collection = &ref;
        report.schema_version = 1;
        report.schema_generation_token = "tok-1";
        report.signal = SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SERVING_GENERATION_READY);
        atomic_store(&w->wire.applied, 0);
        atomic_store(&w->wire.cut_after, cut);
        const void *first = world_call(w, "ReportSchemaConvergenceSignal", &report);
        assert_int_equal(first == NULL, cut < 3); /* snapshot, block, head */
        world_restart(w);
        SF_PB(GetSchemaSyncStatusRequest) sync;
        searchfabric__v1__get_schema_sync_status_request__init(&sync);
        sync.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
        sync.collection = &ref;
        const SF_PB(GetSchemaSyncStatusResponse) *status =
            world_call(w, "GetSchemaSyncStatus", &sync);
        assert_int_equal(status->state->state_case,
                         cut < 2 ? SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_APPLYING
                                 : SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY);
        assert_non_null(world_call(w, "ReportSchemaConvergenceSignal", &report));
        const char *before = world_answers(w, ns);
        world_rebuild(w);
        assert_string_equal(world_answers(w, ns), before);
        world_destroy(w);
    }
}

/* ---- damaged projection ------------------------------------------------------------------- */

static void test_lost_index_row(void **state)
{
    struct world *w = *state;
    SF_PB(PutNamespaceMetadataRequest) *create = world_namespace_request(w, "k1", "alpha");
    const char *first = world_json(w, world_call(w, "PutNamespaceMetadata", create));
    world_execute(w, "DELETE FROM catalog_replay_index; DELETE FROM namespaces;");
    assert_string_equal(world_json(w, world_call(w, "PutNamespaceMetadata", create)), first);
    create->options = world_options(w, "a", "b");
    assert_null(world_call(w, "PutNamespaceMetadata", create));
    assert_int_equal(w->diag.err, SF_IDEMPOTENCY_CONFLICT);
    const SF_PB(PutNamespaceMetadataResponse) *update =
        world_call(w, "PutNamespaceMetadata", world_namespace_request(w, "k2", "alpha"));
    assert_non_null(update);
}

static void test_lost_pointers(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.3-07", "CCS-4.3-23");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, id, 1, "tok-1");
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    assert_int_equal(sf_store_list_wait(w->truth, NULL, sf_view_str("catalog-replay-"),
                                        sf_view_str(""), 100, w->arena, &entries, &count),
                     SF_OK);
    assert_int_equal(count, 4);
    struct sf_buf bodies[4] = {0};
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(sf_store_get_wait(w->truth, NULL, entries[i].key, &bodies[i], NULL),
                         SF_OK);
        assert_int_equal(sf_store_remove_wait(w->truth, NULL, entries[i].key), SF_OK);
    }
    SF_PB(PutCollectionSchemaRequest) *again = world_schema_request(w, "s1", ns, id, 1, "tok-1");
    const char *first = world_json(w, world_call(w, "PutCollectionSchema", again));
    world_rebuild(w);
    assert_string_equal(world_json(w, world_call(w, "PutCollectionSchema", again)), first);
    for (size_t i = 0; i < count; i++) {
        struct sf_buf body = {0};
        assert_int_equal(sf_store_get_wait(w->truth, NULL, entries[i].key, &body, NULL), SF_OK);
        assert_true(sf_view_equal(sf_buf_view(&body), sf_buf_view(&bodies[i])));
        sf_buf_fini(&body);
        sf_buf_fini(&bodies[i]);
    }
}

static void test_missing_encryption(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.2-13");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    SF_PB(GetNamespaceMetadataRequest) get;
    searchfabric__v1__get_namespace_metadata_request__init(&get);
    get.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    get.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID;
    get.namespace_id = ns;
    assert_non_null(world_call(w, "GetNamespaceMetadata", &get));
    world_execute(w, "UPDATE namespaces SET encryption_json = '{}';");
    assert_null(world_call(w, "GetNamespaceMetadata", &get));
    assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
    assert_string_equal(sf_diag_get(&w->diag, "catalog_unavailable_reason"),
                        "descriptor_integrity");
}

/* Completeness follows the two lagging columns and nothing else. */
static void test_completeness(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.2-06", "CCS-5.2-09", "CCS-5.2-10", "CCS-5.2-11", "CCS-5.2-14", "CCS-5.2-15",
              "CCS-5.2-16", "CCS-5.2-31");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    SF_PB(GetNamespaceMetadataRequest) get;
    searchfabric__v1__get_namespace_metadata_request__init(&get);
    get.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    get.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID;
    get.namespace_id = ns;
    const SF_PB(GetNamespaceMetadataResponse) *answer = world_call(w, "GetNamespaceMetadata", &get);
    assert_int_equal(answer->descriptor->completeness->state_case,
                     SEARCHFABRIC__V1__DESCRIPTOR_COMPLETENESS__STATE_READY);
    assert_true(answer->descriptor->approx_stats->approx_row_count == 0);
    assert_int_equal(answer->descriptor->index->state_case,
                     SEARCHFABRIC__V1__INDEX_STATUS__STATE_UP_TO_DATE);
    world_execute(w, "UPDATE namespaces SET index_json = NULL;");
    answer = world_call(w, "GetNamespaceMetadata", &get);
    assert_int_equal(answer->descriptor->completeness->publishing->n_missing_fields, 1);
    assert_string_equal(answer->descriptor->completeness->publishing->missing_fields[0], "index");
    world_execute(
        w, "UPDATE namespaces SET index_json = approx_stats_json, approx_stats_json = NULL;");
    world_execute(w, "UPDATE namespaces SET index_json = '{\"up_to_date\":{}}';");
    answer = world_call(w, "GetNamespaceMetadata", &get);
    assert_int_equal(answer->descriptor->completeness->publishing->n_missing_fields, 1);
    assert_string_equal(answer->descriptor->completeness->publishing->missing_fields[0],
                        "approx_stats");
    world_execute(w, "UPDATE namespaces SET index_json = NULL;");
    answer = world_call(w, "GetNamespaceMetadata", &get);
    assert_int_equal(answer->descriptor->completeness->publishing->n_missing_fields, 2);
    assert_string_equal(answer->descriptor->completeness->publishing->missing_fields[0],
                        "approx_stats");
    assert_string_equal(answer->descriptor->completeness->publishing->missing_fields[1], "index");
}

/* One value of the projection as text. */
static const char *value_of(struct world *w, const char *sql)
{
    struct sf_sql_stmt *stmt;
    bool row = false;
    const char *text = NULL;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    assert_int_equal(sf_sql_prepare(conn, sql, &w->diag, &stmt), SF_OK);
    assert_int_equal(sf_sql_step(stmt, &w->diag, &row), SF_OK);
    if (row)
        text = sf_arena_str(w->arena, sf_sql_col_text(stmt, 0));
    sf_sql_release(conn);
    return text;
}

/* One unsigned number of the projection; UINT64_MAX without a row. */
static uint64_t number_of(struct world *w, const char *sql)
{
    struct sf_sql_stmt *stmt;
    bool row = false;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    assert_int_equal(sf_sql_prepare(conn, sql, &w->diag, &stmt), SF_OK);
    assert_int_equal(sf_sql_step(stmt, &w->diag, &row), SF_OK);
    uint64_t value = row ? sf_sql_col_u64(stmt, 0) : UINT64_MAX;
    sf_sql_release(conn);
    return value;
}

static bool refused(struct world *w, const char *sql)
{
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    bool result = sf_sql_exec(conn, sql, &w->diag) != SF_OK;
    sf_sql_release(conn);
    return result;
}

/* What rows hold after each answer, and what the tables refuse. */
static void test_rows(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.4-12", "CCS-5.2-02", "CCS-5.3-02", "CCS-5.3-03", "CCS-5.6-03", "CCS-5.6-07",
              "CCS-5.6-08", "CCS-5.6-10", "CCS-4.2-12");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    assert_string_equal(value_of(w, "SELECT COUNT(*) FROM namespaces"), "1");
    assert_string_equal(value_of(w, "SELECT COUNT(*) FROM catalog_replay_index"), "1");
    uint64_t id = world_collection(w, "c1", ns, "books");
    assert_string_equal(value_of(w, "SELECT COUNT(*) FROM catalog_replay_index"), "2");
    assert_string_equal(value_of(w, "SELECT manifest_head_reconciler_status FROM collections"),
                        "IDLE");
    assert_string_equal(value_of(w, "SELECT expected_previous_head FROM collections"), "-1");
    assert_string_equal(value_of(w, "SELECT lifecycle_state FROM collections"), "ACTIVE");
    assert_true(number_of(w, "SELECT committed_manifest_version FROM collections") == 0);
    assert_true(number_of(w, "SELECT manifest_head_version FROM collections") == 0);
    assert_true(number_of(w, "SELECT manifest_head_last_update_epoch FROM collections") == 0);
    world_schema(w, "s1", ns, id, 1, "tok-1");
    assert_string_equal(value_of(w, "SELECT COUNT(*) FROM schema_generations"), "1");
    assert_string_equal(value_of(w, "SELECT command_kind FROM catalog_replay_index"
                                    " WHERE business_lookup_key IS NOT NULL"),
                        "PUT_COLLECTION_SCHEMA");
    assert_string_equal(
        value_of(w, "SELECT COUNT(*) FROM catalog_replay_index WHERE"
                    " LENGTH(command_identity) = 64 AND LENGTH(transport_lookup_key) = 64 AND"
                    " LENGTH(payload_fingerprint) = 64 AND"
                    " LENGTH(authenticated_client_identity_hash) = 64 AND"
                    " COALESCE(LENGTH(business_lookup_key), 64) = 64"),
        "3");
    static const struct {
        const char *kind, *query;
    } kinds[] = {{"PUT_NAMESPACE_METADATA", "SELECT command_object_key FROM catalog_replay_index"
                                            " WHERE command_kind = 'PUT_NAMESPACE_METADATA'"},
                 {"PUT_COLLECTION_METADATA", "SELECT command_object_key FROM catalog_replay_index"
                                             " WHERE command_kind = 'PUT_COLLECTION_METADATA'"},
                 {"PUT_COLLECTION_SCHEMA", "SELECT command_object_key FROM catalog_replay_index"
                                           " WHERE command_kind = 'PUT_COLLECTION_SCHEMA'"}};
    for (size_t i = 0; i < SF_ARRAY_LEN(kinds); i++) {
        const SF_PB(CommandOutcomeObject) *record = world_object(
            w, value_of(w, kinds[i].query), &searchfabric__v1__command_outcome_object__descriptor);
        assert_non_null(record);
        assert_string_equal(sf_catalog_kind_name(record->command_kind), kinds[i].kind);
    }
    assert_int_equal(world_list(w, "catalog-replay-business/", NULL),
                     world_list(w, "catalog-replay-business/PUT_COLLECTION_SCHEMA/", NULL));
    assert_true(refused(w, "UPDATE namespaces SET lifecycle_state = 'GONE'"));
    assert_true(refused(w, "UPDATE collections SET lifecycle_state = 'QUIESCING'"));
    assert_true(refused(w, "UPDATE collections SET manifest_head_reconciler_status = 'X'"));
    assert_true(refused(w, "UPDATE schema_generations SET sync_state = 'X'"));
}

/* Time to serve after a restart does not grow with what was done before. */
static void test_restart_reads(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    for (int i = 0; i < 60; i++) {
        char name[16];
        snprintf(name, sizeof(name), "c%d", i);
        (void)world_collection(w, name, ns, name);
    }
    world_stop(w);
    atomic_store(&w->wire.gets, 0);
    atomic_store(&w->wire.lists, 0);
    assert_int_equal(world_open(w), SF_OK);
    assert_true(atomic_load(&w->wire.gets) <= 2); /* boundary, last segment */
    assert_true(atomic_load(&w->wire.lists) == 1);
    assert_true(atomic_load(&w->wire.applied) == 1); /* the takeover record */
}

/* A projection that speaks of a longer chain is another store's: it is rebuilt. */
static void test_foreign_projection(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    const char *before = world_answers(w, ns);
    world_execute(w, "UPDATE catalog_lane_shards SET watermark = watermark + 1000,"
                     " owner_epoch = owner_epoch + 1000;");
    world_execute(w, "DELETE FROM namespaces;");
    world_restart(w);
    struct sf_catalog_stats stats;
    sf_catalog_stats(w->catalog, &stats);
    assert_true(stats.rebuilt);
    assert_string_equal(world_answers(w, ns), before);
}

/* ---- damaged truth ------------------------------------------------------------------------ */

static void test_hole(void **state)
{
    struct world *w = *state;
    (void)world_namespace(w, "n1", "alpha");
    (void)world_namespace(w, "n2", "beta");
    struct sf_buf key = {0};
    sf_catalog_key_segment(&key, 2);
    assert_int_equal(sf_store_remove_wait(w->truth, NULL, sf_buf_view(&key)), SF_OK);
    sf_buf_fini(&key);
    world_restart(w); /* nothing above the watermark is missing */
    world_stop(w);
    world_execute(w, "DELETE FROM catalog_lane_shards;");
    assert_int_equal(world_open(w), SF_ERR_CORRUPT);
}

static void test_orphans(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    const char *before = world_answers(w, ns);
    SF_PB(NamespaceDescriptorObject) planted;
    searchfabric__v1__namespace_descriptor_object__init(&planted);
    planted.format_version = 1;
    planted.attempt_id = "planted";
    planted.owner_epoch = 1;
    planted.attempt = 0;
    planted.namespace_id = ns;
    planted.namespace_name = "alpha";
    planted.namespace_revision = 2;
    planted.encryption = world_encryption(w);
    struct sf_catalog_put put = {0};
    sf_catalog_key_namespace(&put.key, ns, 2);
    sf_catalog_put_encode(&put, &planted.base, false, NULL);
    struct sf_put once;
    sf_catalog_put_fill(&put, 0, 0, &once);
    assert_int_equal(sf_store_put_wait(w->truth, NULL, &once), SF_OK);
    sf_catalog_put_fini(&put);
    world_rebuild(w);
    assert_string_equal(world_answers(w, ns), before);
    /* the next command needs the key: it replaces the orphan */
    SF_PB(PutNamespaceMetadataRequest) *update = world_namespace_request(w, "k2", "alpha");
    update->options = world_options(w, "v", "2");
    assert_non_null(world_call(w, "PutNamespaceMetadata", update));
    const char *after = world_answers(w, ns);
    world_rebuild(w);
    assert_string_equal(world_answers(w, ns), after);
}

static void test_damaged_object(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    struct sf_buf key = {0};
    sf_catalog_key_namespace(&key, ns, 1);
    struct sf_put put = {.key = sf_buf_view(&key), .body = sf_view_str("{\"format_version\":1}")};
    assert_int_equal(sf_store_put_wait(w->truth, NULL, &put), SF_OK);
    sf_buf_fini(&key);
    world_stop(w);
    world_execute(w, "DELETE FROM catalog_lane_shards;");
    assert_int_equal(world_open(w), SF_ERR_CORRUPT);
}

/* ---- two owners --------------------------------------------------------------------------- */

static void test_deposed(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    struct sf_catalog *old = w->catalog;
    struct sf_channel *old_channel = w->channel;
    assert_int_equal(world_open(w), SF_OK);
    struct sf_catalog *fresh = w->catalog;
    struct sf_channel *fresh_channel = w->channel;
    SF_PB(PutNamespaceMetadataRequest) *update = world_namespace_request(w, "k2", "alpha");
    w->channel = old_channel;
    assert_null(world_call(w, "PutNamespaceMetadata", update));
    assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
    SF_PB(GetNamespaceMetadataRequest) get;
    searchfabric__v1__get_namespace_metadata_request__init(&get);
    get.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    get.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID;
    get.namespace_id = ns;
    assert_null(world_call(w, "GetNamespaceMetadata", &get));
    assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
    struct sf_catalog_stats stats;
    sf_catalog_stats(old, &stats);
    assert_true(stats.deposed);
    w->channel = fresh_channel;
    assert_non_null(world_call(w, "PutNamespaceMetadata", update));
    assert_non_null(world_call(w, "GetNamespaceMetadata", &get));
    sf_channel_destroy(old_channel);
    sf_catalog_close(old, NULL);
    w->catalog = fresh;
}

/* ---- concurrency -------------------------------------------------------------------------- */

struct racer {
    struct world *w;
    pthread_t thread;
    const char *method;
    const void *request;
    const void *response;
    struct sf_diag diag;
    struct sf_arena *arena;
};

static void *race(void *arg)
{
    struct racer *r = arg;
    char path[128];
    const ProtobufCMessage *response = NULL;
    struct sf_call_options options = {0};
    snprintf(path, sizeof(path), "/searchfabric.v1.CatalogControlService/%s", r->method);
    for (int tries = 0; tries < 100 && response == NULL; tries++) {
        if (sf_channel_unary_wait(r->w->channel, NULL, path, r->request, &options, r->arena,
                                  &r->diag, &response) != SF_OK &&
            r->diag.err != SF_VERSION_CONFLICT)
            break;
    }
    r->response = response;
    return NULL;
}

static void run_racers(struct racer *racers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        racers[i].arena = sf_arena_new((size_t)16 << 20);
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(racers[i].thread, NULL);
}

static void free_racers(struct racer *racers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sf_arena_destroy(racers[i].arena);
}

#define RACERS 50

static void test_concurrent(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.1-01", "CCS-3.1-06", "CCS-3.1-08");
    struct racer racers[RACERS] = {0};
    for (int i = 0; i < RACERS; i++) {
        char key[16];
        snprintf(key, sizeof(key), "n-%d", i);
        racers[i].w = w;
        racers[i].method = "PutNamespaceMetadata";
        racers[i].request = world_namespace_request(w, key, "alpha");
    }
    run_racers(racers, RACERS);
    uint64_t ns = 0;
    for (int i = 0; i < RACERS; i++) {
        assert_non_null(racers[i].response);
        const SF_PB(PutNamespaceMetadataResponse) *r = racers[i].response;
        ns = ns == 0 ? r->descriptor->namespace_id : ns;
        assert_true(r->descriptor->namespace_id == ns);
    }
    struct sf_buf prefix = {0};
    sf_catalog_key_namespace(&prefix, ns, 1);
    prefix.len -= strlen("1.json");
    sf_buf_append(&prefix, "", 1);
    assert_int_equal(world_list(w, (char *)prefix.data, NULL), RACERS);
    sf_buf_fini(&prefix);
    free_racers(racers, RACERS);
    for (int i = 0; i < RACERS; i++) {
        char key[16];
        snprintf(key, sizeof(key), "c-%d", i);
        racers[i].method = "PutCollectionMetadata";
        racers[i].request = world_collection_request(w, key, ns, i % 2 == 0 ? "books" : "films");
    }
    run_racers(racers, RACERS);
    uint64_t ids[2] = {0};
    for (int i = 0; i < RACERS; i++) {
        assert_non_null(racers[i].response);
        const SF_PB(PutCollectionMetadataResponse) *r = racers[i].response;
        uint64_t id = r->descriptor->collection->collection_id;
        ids[i % 2] = ids[i % 2] == 0 ? id : ids[i % 2];
        assert_true(ids[i % 2] == id);
    }
    free_racers(racers, RACERS);
    struct sf_catalog_stats stats;
    sf_catalog_stats(w->catalog, &stats);
    assert_true(stats.commands_applied == 2 * RACERS);
    assert_true(stats.groups_committed <= 2 * RACERS);
    const char *before = world_answers(w, ns);
    world_rebuild(w);
    assert_string_equal(world_answers(w, ns), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crash_points),
        cmocka_unit_test(test_promotion_crash),
        cmocka_unit_test_setup_teardown(test_lost_index_row, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_lost_pointers, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_missing_encryption, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_completeness, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_rows, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_restart_reads, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_foreign_projection, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_hole, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_orphans, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_damaged_object, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_deposed, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_concurrent, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_concurrent, world_setup_shared, world_teardown),
    };
    return SF_RUN_TESTS("catalog_faults", tests);
}
