/*
 * Optimizer statistics: snapshots, the head, the order of checks, freshness, restoring. Times and
 * counts are worked out from the manifests that the test publishes.
 */
#include <inttypes.h>
#include <stdio.h>

#include "catalog/catalog_statistics.h"
#include "component/catalog/catalog_manifests.h"
#include "component/catalog/lineage_world.h"

#define E_ACUTE "\xc3\xa9"

/* ---- requests ----------------------------------------------------------------------------- */

static SF_PB(GetCollectionStatisticsRequest) *
    request_new(struct world *w, uint64_t ns, uint64_t collection, uint64_t max_staleness_ms)
{
    SF_PB(GetCollectionStatisticsRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
    searchfabric__v1__get_collection_statistics_request__init(out);
    out->meta = world_meta(w, "", SF_PBE(CLIENT_KIND, TIDB_QUERY_GATEWAY));
    out->collection = world_ref(w, ns, collection);
    out->max_staleness_ms = max_staleness_ms;
    out->target_fields = sf_arena_alloc(w->arena, 1002 * sizeof(char *));
    out->extended_requests = sf_arena_alloc(w->arena, 66 * sizeof(void *));
    return out;
}

static void ask_field(struct world *w, SF_PB(GetCollectionStatisticsRequest) * request,
                      const char *name)
{
    request->target_fields[request->n_target_fields++] = world_text(w, name);
}

static void ask_tuple(struct world *w, SF_PB(GetCollectionStatisticsRequest) * request,
                      const char *a, const char *b)
{
    SF_PB(ExtendedStatisticsRequest) *tuple = sf_arena_alloc(w->arena, sizeof(*tuple));
    searchfabric__v1__extended_statistics_request__init(tuple);
    tuple->field_paths = sf_arena_alloc(w->arena, 2 * sizeof(char *));
    tuple->field_paths[0] = world_text(w, a);
    tuple->field_paths[1] = world_text(w, b);
    tuple->n_field_paths = 2;
    request->extended_requests[request->n_extended_requests++] = tuple;
}

static const SF_PB(GetCollectionStatisticsResponse) *
    ask(struct world *w, SF_PB(GetCollectionStatisticsRequest) * request)
{
    return world_call(w, "GetCollectionStatistics", request);
}

static const SF_PB(GetCollectionStatisticsResponse) *
    stats(struct world *w, uint64_t ns, uint64_t collection, uint64_t max_staleness_ms)
{
    return ask(w, request_new(w, ns, collection, max_staleness_ms));
}

/* A generation with the fields a, B, e-acute, aa, declared in that order, and the tuples (b-last)
 * (B, a) and (a, B). */
static void put_schema(struct world *w, const char *key, uint64_t ns, uint64_t collection,
                       uint64_t version, const char *token, const char *extra)
{
    static const char *const names[] = {"a", "B", E_ACUTE, "aa"};
    static const char *const tuples[][2] = {{"a", "B"}, {"B", "a"}};
    SF_PB(PutCollectionSchemaRequest) *put =
        world_schema_request(w, key, ns, collection, version, token);
    SF_PB(CollectionSchemaDefinition) *definition = put->definition;
    SF_PB(FieldDefinition) *first = definition->fields[0];
    definition->fields = sf_arena_alloc(w->arena, 5 * sizeof(void *));
    definition->n_fields = 0;
    for (size_t i = 0; i < SF_ARRAY_LEN(names) + (extra == NULL ? 0 : 1); i++) {
        SF_PB(FieldDefinition) *field = sf_arena_alloc(w->arena, sizeof(*field));
        *field = *first;
        field->name = world_text(w, i < SF_ARRAY_LEN(names) ? names[i] : extra);
        definition->fields[definition->n_fields++] = field;
    }
    definition->extended_statistics = sf_arena_alloc(w->arena, 2 * sizeof(void *));
    for (size_t i = 0; i < 2; i++) {
        SF_PB(StatisticsTuple) *tuple = sf_arena_alloc(w->arena, sizeof(*tuple));
        searchfabric__v1__statistics_tuple__init(tuple);
        tuple->field_paths = sf_arena_alloc(w->arena, 2 * sizeof(char *));
        tuple->field_paths[0] = world_text(w, tuples[i][0]);
        tuple->field_paths[1] = world_text(w, tuples[i][1]);
        tuple->n_field_paths = 2;
        definition->extended_statistics[definition->n_extended_statistics++] = tuple;
    }
    assert_non_null(world_call(w, "PutCollectionSchema", put));
}

static void signal_state(struct world *w, uint64_t ns, uint64_t collection, uint64_t version,
                         const char *token, SF_PB(SchemaConvergenceSignal) signal)
{
    SF_PB(ReportSchemaConvergenceSignalRequest) request;
    searchfabric__v1__report_schema_convergence_signal_request__init(&request);
    request.collection = world_ref(w, ns, collection);
    request.schema_version = version;
    request.schema_generation_token = world_text(w, token);
    request.signal = signal;
    request.reason = world_text(w, "test");
    assert_non_null(world_call(w, "ReportSchemaConvergenceSignal", &request));
}

/* A collection with a READY generation "tok-1" of put_schema. */
static uint64_t serving(struct world *w, uint64_t ns, const char *name)
{
    char key[32];
    snprintf(key, sizeof(key), "c-%s", name);
    uint64_t c = world_collection(w, key, ns, name);
    snprintf(key, sizeof(key), "s-%s", name);
    put_schema(w, key, ns, c, 1, "tok-1", NULL);
    world_ready(w, ns, c, 1, "tok-1");
    return c;
}

static const char *snapshot_key(struct world *w, uint64_t ns, uint64_t c, const char *token,
                                uint64_t ts)
{
    struct sf_buf key = {0};
    sf_catalog_key_statistics(&key, ns, c, token, ts);
    const char *text = sf_arena_str(w->arena, sf_buf_view(&key));
    sf_buf_fini(&key);
    return text;
}

static const SF_PB(OptimizerStatisticsHeadObject) *
    head_of(struct world *w, uint64_t ns, uint64_t c)
{
    struct sf_buf key = {0};
    sf_catalog_key_statistics_head(&key, ns, c);
    const void *head =
        world_object(w, sf_arena_str(w->arena, sf_buf_view(&key)),
                     &searchfabric__v1__optimizer_statistics_head_object__descriptor);
    sf_buf_fini(&key);
    return head;
}

/* ---- base --------------------------------------------------------------------------------- */

static void test_base(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.8-13", "CCS-5.8-27", "CCS-5.8-28", "CCS-5.3-18");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = world_collection(w, "c", ns, "books");
    assert_null(stats(w, ns, c, 0));
    assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
    assert_string_equal(sf_diag_get(&w->diag, "catalog_unavailable_reason"), "schema_bootstrap");
    assert_string_equal(sf_diag_get(&w->diag, "schema_bootstrap_state"),
                        "no_active_schema_generation");
    put_schema(w, "s", ns, c, 1, "tok-1", NULL);
    assert_null(stats(w, ns, c, 0));
    assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
    assert_string_equal(sf_diag_get(&w->diag, "catalog_unavailable_reason"), "schema_convergence");
    assert_string_equal(sf_diag_get(&w->diag, "schema_convergence_state"),
                        "no_ready_serving_generation");
    world_ready(w, ns, c, 1, "tok-1");
    const SF_PB(GetCollectionStatisticsResponse) *answer = stats(w, ns, c, 0);
    assert_non_null(answer);
    assert_int_equal(answer->applied_schema_version, 1);
    assert_string_equal(answer->applied_schema_generation_token, "tok-1");
    assert_int_equal(answer->collection_stats->row_count, 0);
    assert_int_equal(answer->collection_stats->logical_bytes, 0);
    assert_int_equal(answer->collected_at_unix_ms, WORLD_UNIX_MS);
    assert_int_equal(head_of(w, ns, c)->latest_stats_commit_ts, 0);
    /* a later generation that is not READY is not served */
    put_schema(w, "s2", ns, c, 2, "tok-2", "later");
    answer = stats(w, ns, c, 0);
    assert_string_equal(answer->applied_schema_generation_token, "tok-1");
    assert_null(stats(w, ns, c + 1, 0));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
}

/* The snapshot cannot be written: the generation stays APPLYING and the old one serves. */
static void test_promotion_needs_its_base(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.8-14");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving(w, ns, "books");
    put_schema(w, "s2", ns, c, 2, "tok-2", NULL);
    atomic_store(&w->wire.cut_after, atomic_load(&w->wire.applied)); /* the next put fails */
    SF_PB(ReportSchemaConvergenceSignalRequest) signal;
    searchfabric__v1__report_schema_convergence_signal_request__init(&signal);
    signal.collection = world_ref(w, ns, c);
    signal.schema_version = 2;
    signal.schema_generation_token = world_text(w, "tok-2");
    signal.signal = SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SERVING_GENERATION_READY);
    assert_null(world_call(w, "ReportSchemaConvergenceSignal", &signal));
    world_restart(w);
    const char *base = snapshot_key(w, ns, c, "tok-2", 0);
    assert_null(
        world_object(w, base, &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor));
    assert_string_equal(
        world_rows(w, "SELECT sync_state FROM schema_generations ORDER BY schema_version", 1),
        "READY\nAPPLYING\n");
    assert_string_equal(stats(w, ns, c, 0)->applied_schema_generation_token, "tok-1");
    world_ready(w, ns, c, 2, "tok-2");
    assert_non_null(
        world_object(w, base, &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor));
    assert_string_equal(stats(w, ns, c, 0)->applied_schema_generation_token, "tok-2");
}

/* ---- content ------------------------------------------------------------------------------ */

static void publish_rows(struct world *w, uint64_t ns, uint64_t c, uint64_t version, uint64_t rows)
{
    SF_PB(ManifestSummaryObject) *summary = summary_new(w, version, rows);
    summary_field(w, summary, "B", 1, rows - 1, "\"b\"", "\"y\"");
    summary_field(w, summary, "a", 0, rows, "\"a\"", "\"z\"");
    summary_field(w, summary, "undeclared", 0, 1, NULL, NULL);
    summary_tuple(w, summary, "B", "a", 2);
    summary_tuple(w, summary, "a", "B", 3);
    summary_tuple(w, summary, "a", "undeclared", 4);
    manifest_publish(w, ns, c, version, rows, rows * 100, summary);
}

static void test_snapshot_content(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.8-01", "CCS-5.8-06", "CCS-5.8-18", "CCS-5.8-19", "CCS-5.8-20", "CCS-5.8-22");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving(w, ns, "books");
    publish_rows(w, ns, c, 7, 5);
    /* approx_stats alone changes nothing here */
    world_job(w, "collection-stats");
    assert_int_equal(stats(w, ns, c, 0)->collection_stats->row_count, 0);
    sf_clock_manual_advance(&w->clock, 1000);
    assert_int_equal(world_job(w, "statistics"), 1);
    const SF_PB(GetCollectionStatisticsResponse) *answer = stats(w, ns, c, 0);
    assert_int_equal(answer->collection_stats->row_count, 5);
    assert_int_equal(answer->collection_stats->logical_bytes, 500);
    assert_int_equal(answer->collected_at_unix_ms, WORLD_UNIX_MS + 1000);
    assert_int_equal(answer->n_field_stats, 0); /* no fields asked for */
    assert_int_equal(answer->n_extended_stats, 0);

    SF_PB(GetCollectionStatisticsRequest) *request = request_new(w, ns, c, 0);
    ask_field(w, request, "aa");
    ask_field(w, request, E_ACUTE);
    ask_field(w, request, "a");
    ask_field(w, request, "B");
    ask_tuple(w, request, "a", "B");
    ask_tuple(w, request, "B", "a");
    answer = ask(w, request);
    assert_non_null(answer);
    assert_int_equal(answer->n_field_stats, 4); /* byte order */
    assert_string_equal(answer->field_stats[0]->field_name, "B");
    assert_string_equal(answer->field_stats[1]->field_name, "a");
    assert_string_equal(answer->field_stats[2]->field_name, "aa");
    assert_string_equal(answer->field_stats[3]->field_name, E_ACUTE);
    assert_int_equal(answer->field_stats[0]->null_count, 1);
    assert_int_equal(answer->field_stats[0]->distinct_count, 4);
    assert_string_equal(answer->field_stats[0]->min_value, "\"b\"");
    assert_string_equal(answer->field_stats[1]->max_value, "\"z\"");
    assert_false(answer->field_stats[1]->not_collected);
    assert_true(answer->field_stats[2]->not_collected); /* nobody computed it */
    assert_int_equal(answer->n_extended_stats, 2);      /* in the order of the request */
    assert_string_equal(answer->extended_stats[0]->field_paths[0], "a");
    assert_int_equal(answer->extended_stats[0]->distinct_count, 3);
    assert_string_equal(answer->extended_stats[1]->field_paths[0], "B");
    assert_int_equal(answer->extended_stats[1]->distinct_count, 2);

    /* the object: exactly the declared family, both lists in tuple order */
    const SF_PB(OptimizerStatisticsHeadObject) *head = head_of(w, ns, c);
    const SF_PB(OptimizerStatisticsSnapshotObject) *object =
        world_object(w, snapshot_key(w, ns, c, "tok-1", head->latest_stats_commit_ts),
                     &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor);
    assert_non_null(object);
    assert_int_equal(object->n_declared_tuples, 2);
    assert_int_equal(object->n_extended_stats, 2);
    assert_string_equal(object->declared_tuples[0]->field_paths[0], "B");
    assert_string_equal(object->declared_tuples[1]->field_paths[0], "a");
    assert_string_equal(object->extended_stats[0]->field_paths[0], "B");
    assert_string_equal(object->extended_stats[1]->field_paths[0], "a");
    assert_int_equal(object->n_field_stats, 4);
}

/* Every cycle has an identity of its own, also without new data; older ones are pruned, then
 * removed, never the head's and never a base. */
static void test_identities_and_retention(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving(w, ns, "books");
    publish_rows(w, ns, c, 1, 5);
    uint64_t frontier[7];
    for (int i = 0; i < 7; i++) {
        sf_clock_manual_advance(&w->clock, 1000);
        SF_PB(RunCatalogJobRequest) analyze;
        searchfabric__v1__run_catalog_job_request__init(&analyze);
        analyze.name = world_text(w, "statistics");
        analyze.collection = world_ref(w, ns, c); /* by hand, changed or not */
        const SF_PB(RunCatalogJobResponse) *done = world_call(w, "RunCatalogJob", &analyze);
        assert_non_null(done);
        assert_int_equal(done->done, 1);
        frontier[i] = head_of(w, ns, c)->latest_stats_commit_ts;
        assert_true(i == 0 || frontier[i] > frontier[i - 1]);
        assert_int_equal(head_of(w, ns, c)->latest_collected_at_unix_ms,
                         WORLD_UNIX_MS + 1000 * (i + 1));
    }
    assert_string_equal(world_rows(w, "SELECT COUNT(*) FROM collection_statistics_snapshots", 1),
                        "4\n");
    assert_string_equal(world_rows(w, "SELECT COUNT(*) FROM retired_statistics_snapshots", 1),
                        "3\n");
    const char *oldest = snapshot_key(w, ns, c, "tok-1", frontier[0]);
    const ProtobufCMessageDescriptor *desc =
        &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor;
    assert_int_equal(world_job(w, "statistics-retention"), 0);
    assert_non_null(world_object(w, oldest, desc));
    sf_clock_manual_advance(&w->clock, SF_CATALOG_STATISTICS_RETENTION_MS);
    assert_int_equal(world_job(w, "statistics-retention"), 3);
    assert_null(world_object(w, oldest, desc));
    assert_null(world_object(w, snapshot_key(w, ns, c, "tok-1", frontier[2]), desc));
    assert_non_null(world_object(w, snapshot_key(w, ns, c, "tok-1", frontier[3]), desc));
    assert_non_null(world_object(w, snapshot_key(w, ns, c, "tok-1", frontier[6]), desc));
    assert_non_null(world_object(w, snapshot_key(w, ns, c, "tok-1", 0), desc));
    assert_int_equal(stats(w, ns, c, 0)->collection_stats->row_count, 5);
    /* an unknown job or collection */
    SF_PB(RunCatalogJobRequest) wrong;
    searchfabric__v1__run_catalog_job_request__init(&wrong);
    wrong.name = world_text(w, "statistics");
    wrong.collection = world_ref(w, 0, c);
    assert_null(world_call(w, "RunCatalogJob", &wrong));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
}

/* ---- freshness ---------------------------------------------------------------------------- */

static void test_freshness(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.8-09", "CCS-5.8-24", "CCS-5.8-25", "CCS-5.8-26");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving(w, ns, "books");
    publish_rows(w, ns, c, 1, 5);
    world_job(w, "statistics");
    uint64_t frontier = head_of(w, ns, c)->latest_stats_commit_ts;
    sf_clock_manual_advance(&w->clock, 4000);
    assert_non_null(stats(w, ns, c, 4000)); /* age equal to the budget */
    assert_null(stats(w, ns, c, 3999));
    assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
    assert_string_equal(sf_diag_get(&w->diag, "catalog_unavailable_reason"),
                        "statistics_freshness");
    assert_string_equal(sf_diag_get(&w->diag, "max_staleness_ms"), "3999");
    char text[32];
    snprintf(text, sizeof(text), "%" PRIu64, frontier);
    assert_string_equal(sf_diag_get(&w->diag, "latest_stats_commit_ts"), text);
    snprintf(text, sizeof(text), "%" PRId64, WORLD_UNIX_MS);
    assert_string_equal(sf_diag_get(&w->diag, "latest_stats_collected_at_unix_ms"), text);
    sf_clock_manual_advance(&w->clock, 5 * 86400000LL);
    assert_non_null(stats(w, ns, c, 0)); /* whatever its age */
    assert_non_null(stats(w, ns, c, UINT64_MAX));
    /* the newest within the budget */
    publish_rows(w, ns, c, 2, 9);
    world_job(w, "statistics");
    sf_clock_manual_advance(&w->clock, 10);
    assert_int_equal(stats(w, ns, c, 10)->collection_stats->row_count, 9);
    /* a clock that was set back: the head is older by its stamp than the snapshot before it */
    w->clock.unix_ms -= 3000;
    publish_rows(w, ns, c, 3, 11);
    world_job(w, "statistics");
    sf_clock_manual_advance(&w->clock, 3000);
    assert_int_equal(stats(w, ns, c, 0)->collection_stats->row_count, 11);
    assert_int_equal(stats(w, ns, c, 100)->collection_stats->row_count, 9);
    assert_int_equal(stats(w, ns, c, 5000)->collection_stats->row_count, 11);
}

static void test_fresh_table(void **state)
{
    (void)state;
    SF_PROVES("CCS-5.8-25");
    assert_true(sf_catalog_statistics_fresh(100, 0, INT64_MAX));
    assert_true(sf_catalog_statistics_fresh(100, 50, 150));
    assert_false(sf_catalog_statistics_fresh(100, 50, 151));
    assert_true(sf_catalog_statistics_fresh(100, 1, 99)); /* from the future */
    assert_true(sf_catalog_statistics_fresh(INT64_MIN, UINT64_MAX, INT64_MAX));
    assert_false(sf_catalog_statistics_fresh(INT64_MIN, (uint64_t)INT64_MAX, INT64_MAX));
}

/* ---- order of checks ---------------------------------------------------------------------- */

static void test_order_of_checks(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.8-21", "CCS-5.8-22", "CCS-5.8-23", "CCS-5.8-29", "CCS-5.8-30");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t fresh = world_collection(w, "c", ns, "fresh");
    uint64_t c = serving(w, ns, "books");
    /* what the request says of itself comes before bootstrap */
    SF_PB(GetCollectionStatisticsRequest) *request = request_new(w, ns, fresh, 0);
    ask_tuple(w, request, "a", "B");
    assert_null(ask(w, request));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&w->diag, "field"), "extended_requests");
    request->collection = world_ref(w, ns, c);
    assert_null(ask(w, request)); /* not ignored, not partially served */
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);

    sf_clock_manual_advance(&w->clock, 1000);
    request = request_new(w, ns, c, 1); /* stale budget and unknown field */
    ask_field(w, request, "nowhere");
    assert_null(ask(w, request));
    assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
    assert_string_equal(sf_diag_get(&w->diag, "catalog_unavailable_reason"),
                        "statistics_freshness");
    request->max_staleness_ms = 0;
    assert_null(ask(w, request));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&w->diag, "violation"), "unknown");
    assert_string_equal(sf_diag_get(&w->diag, "field"), "target_fields");
    assert_string_equal(sf_diag_get(&w->diag, "entry_index"), "0");

    put_schema(w, "s2", ns, c, 2, "tok-2", "later"); /* declared by the APPLYING generation only */
    request = request_new(w, ns, c, 0);
    ask_field(w, request, "a");
    ask_field(w, request, "later");
    assert_null(ask(w, request));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&w->diag, "entry_index"), "1");
    world_ready(w, ns, c, 2, "tok-2");
    assert_non_null(ask(w, request));

    request = request_new(w, ns, c, 0); /* an undeclared tuple beside a declared one */
    ask_field(w, request, "a");
    ask_tuple(w, request, "a", "B");
    ask_tuple(w, request, "a", "aa");
    assert_null(ask(w, request));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&w->diag, "field"), "extended_requests");
    assert_string_equal(sf_diag_get(&w->diag, "entry_index"), "1");
    request->n_extended_requests = 1;
    assert_non_null(ask(w, request));
}

static void test_request_bounds(void **state)
{
    struct world *w = *state;
    struct sf_diag diag;
    SF_PB(GetCollectionStatisticsRequest) *request = request_new(w, 1, 1, 0);
    for (int i = 0; i < SF_CATALOG_STATISTICS_FIELDS; i++)
        ask_field(w, request, "a");
    for (int i = 0; i < SF_CATALOG_STATISTICS_TUPLES; i++)
        ask_tuple(w, request, "a", "B");
    sf_diag_init(&diag);
    assert_int_equal(sf_catalog_statistics_check(request, &diag), SF_OK);
    ask_tuple(w, request, "a", "B");
    assert_int_equal(sf_catalog_statistics_check(request, &diag), SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&diag, "violation"), "too_many");
    request->n_extended_requests = 0;
    ask_field(w, request, "a");
    assert_int_equal(sf_catalog_statistics_check(request, &diag), SF_BAD_REQUEST);
    request->n_target_fields = 1;
    request->target_fields[0] = world_text(w, "");
    assert_int_equal(sf_catalog_statistics_check(request, &diag), SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&diag, "violation"), "empty");
}

/* ---- lineages, restoring ------------------------------------------------------------------ */

/* Drift moves the serving lineage back: the head follows to the newest snapshot of that lineage. */
static void test_fallback(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving(w, ns, "books");
    publish_rows(w, ns, c, 1, 5);
    world_job(w, "statistics");
    uint64_t first = head_of(w, ns, c)->latest_stats_commit_ts;
    put_schema(w, "s2", ns, c, 2, "tok-2", NULL);
    world_ready(w, ns, c, 2, "tok-2");
    assert_int_equal(stats(w, ns, c, 0)->collection_stats->row_count, 0); /* its own base */
    publish_rows(w, ns, c, 2, 8);
    world_job(w, "statistics");
    assert_int_equal(stats(w, ns, c, 0)->collection_stats->row_count, 8);
    signal_state(w, ns, c, 2, "tok-2", SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, DRIFT_DETECTED));
    const SF_PB(GetCollectionStatisticsResponse) *answer = stats(w, ns, c, 0);
    assert_string_equal(answer->applied_schema_generation_token, "tok-1");
    assert_int_equal(answer->collection_stats->row_count, 5);
    assert_int_equal(head_of(w, ns, c)->latest_stats_commit_ts, first);
    assert_string_equal(head_of(w, ns, c)->latest_applied_schema_generation_token, "tok-1");
    signal_state(w, ns, c, 2, "tok-2", SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, REPAIR_SUCCEEDED));
    answer = stats(w, ns, c, 0);
    assert_string_equal(answer->applied_schema_generation_token, "tok-2");
    assert_int_equal(answer->collection_stats->row_count, 8);
    /* the projector follows the serving lineage, whichever that is */
    signal_state(w, ns, c, 2, "tok-2", SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, DRIFT_DETECTED));
    publish_rows(w, ns, c, 3, 13);
    world_job(w, "statistics");
    answer = stats(w, ns, c, 0);
    assert_string_equal(answer->applied_schema_generation_token, "tok-1");
    assert_int_equal(answer->collection_stats->row_count, 13);
}

static const char *full_answer(struct world *w, uint64_t ns, uint64_t c)
{
    SF_PB(GetCollectionStatisticsRequest) *request = request_new(w, ns, c, 0);
    ask_field(w, request, "a");
    ask_field(w, request, "B");
    ask_tuple(w, request, "B", "a");
    const SF_PB(GetCollectionStatisticsResponse) *answer = ask(w, request);
    assert_non_null(answer);
    return world_json(w, answer);
}

static void test_rebuild(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.8-31", "CCS-5.8-32");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving(w, ns, "books");
    publish_rows(w, ns, c, 1, 5);
    world_job(w, "statistics");
    const char *before = full_answer(w, ns, c);
    static const char heads[] =
        "SELECT latest_applied_schema_generation_token, latest_stats_commit_ts,"
        " latest_collected_at_unix_ms FROM collection_statistics_heads";
    const char *rows = world_rows(w, heads, 3);
    world_rebuild(w);
    assert_string_equal(full_answer(w, ns, c), before);
    assert_string_equal(world_rows(w, heads, 3), rows);
    /* rows alone are lost: the answer waits for them to be restored */
    world_sql(w, "DELETE FROM collection_statistics_heads;"
                 "DELETE FROM collection_statistics_snapshots;");
    assert_string_equal(full_answer(w, ns, c), before);
    assert_string_equal(world_rows(w, heads, 3), rows);
    world_sql(w, "DELETE FROM collection_statistics_snapshots;");
    assert_string_equal(full_answer(w, ns, c), before);
}

/* A power cut takes back the rows of the last snapshot; its object and the head stand. */
static void test_rows_taken_back(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving(w, ns, "books");
    publish_rows(w, ns, c, 1, 5);
    world_job(w, "statistics");
    publish_rows(w, ns, c, 2, 9);
    world_job(w, "statistics");
    const char *before = full_answer(w, ns, c);
    world_sql(w, "DELETE FROM collection_statistics_snapshots WHERE stats_commit_ts ="
                 " (SELECT MAX(stats_commit_ts) FROM collection_statistics_snapshots);"
                 "UPDATE collection_statistics_heads SET latest_stats_commit_ts ="
                 " (SELECT MAX(stats_commit_ts) FROM collection_statistics_snapshots),"
                 " latest_collected_at_unix_ms ="
                 " (SELECT MAX(collected_at_unix_ms) FROM collection_statistics_snapshots);");
    world_restart(w);
    assert_string_equal(full_answer(w, ns, c), before);
}

/* Keys that were read, in order; reads of some can be made to fail. */
static const struct sf_store_vtable *below;
static struct sf_store_vtable above;
static const char *read_keys[64];
static size_t read_count;
static struct world *watched;
static _Atomic bool unreadable;

static void fail_get(struct sf_task *task)
{
    struct sf_get *get = SF_CONTAINER_OF(task, struct sf_get, task);
    get->done(get);
}

static void get_above(struct sf_store *store, struct sf_get *get)
{
    if (memmem(get->key.ptr, get->key.len, "optimizer_statistics", 20) != NULL &&
        read_count < SF_ARRAY_LEN(read_keys))
        read_keys[read_count++] = sf_arena_str(watched->arena, get->key);
    if (!atomic_load(&unreadable)) {
        below->get(store, get);
        return;
    }
    get->err = SF_ERR_UNAVAILABLE;
    if (get->loop == NULL) {
        get->done(get);
        return;
    }
    get->task.run = fail_get;
    sf_loop_post(get->loop, &get->task);
}

static void watch(struct world *w)
{
    above = *w->wire.base.vtable;
    below = w->wire.base.vtable;
    above.get = get_above;
    w->wire.base.vtable = &above;
    watched = w;
    read_count = 0;
    atomic_store(&unreadable, false);
}

static void test_served_without_the_store(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.8-17", "CCS-9.2-05");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving(w, ns, "books");
    publish_rows(w, ns, c, 1, 5);
    world_job(w, "statistics");
    assert_non_null(stats(w, ns, c, 0));
    watch(w);
    atomic_store(&unreadable, true);
    const SF_PB(GetCollectionStatisticsResponse) *answer = stats(w, ns, c, 0);
    assert_non_null(answer);
    assert_int_equal(answer->applied_schema_version, 1);
    assert_string_equal(answer->applied_schema_generation_token, "tok-1");
    assert_int_equal(answer->collected_at_unix_ms, WORLD_UNIX_MS);
    assert_int_equal(answer->collection_stats->row_count, 5);
    /* lost rows are not answered around */
    world_sql(w, "DELETE FROM collection_statistics_heads;");
    assert_null(stats(w, ns, c, 0));
    assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
    atomic_store(&unreadable, false);
    read_count = 0;
    assert_int_equal(stats(w, ns, c, 0)->collection_stats->row_count, 5);
    assert_int_equal(read_count, 2); /* head first, then what it names */
    assert_non_null(strstr(read_keys[0], "optimizer_statistics_head.json"));
    assert_non_null(strstr(read_keys[1], "optimizer_statistics_vtok-1_"));
    w->wire.base.vtable = below;
}

static void test_recovery_reads_the_head_first(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.8-32");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving(w, ns, "books");
    publish_rows(w, ns, c, 1, 5);
    world_job(w, "statistics");
    char named[64];
    snprintf(named, sizeof(named), "optimizer_statistics_vtok-1_%" PRIu64,
             head_of(w, ns, c)->latest_stats_commit_ts);
    watch(w);
    world_rebuild(w);
    w->wire.base.vtable = below;
    assert_int_equal(read_count, 2);
    assert_non_null(strstr(read_keys[0], "optimizer_statistics_head.json"));
    assert_non_null(strstr(read_keys[1], named));
}

/* A crash between head and rows, or before the head: the next owner comes to one of both, whole. */
static void test_projector_crash(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving(w, ns, "books");
    world_job(w, "statistics");
    for (uint64_t puts = 0; puts < 2; puts++) {
        publish_rows(w, ns, c, puts + 1, 5 + puts);
        atomic_store(&w->wire.cut_after, atomic_load(&w->wire.applied) + puts);
        SF_PB(RunCatalogJobRequest) run;
        searchfabric__v1__run_catalog_job_request__init(&run);
        run.name = world_text(w, "statistics");
        assert_null(world_call(w, "RunCatalogJob", &run));
        world_restart(w);
        assert_non_null(stats(w, ns, c, 0));
        world_job(w, "statistics"); /* still due */
        assert_int_equal(stats(w, ns, c, 0)->collection_stats->row_count, 5 + puts);
    }
}

static void test_show(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving(w, ns, "books");
    publish_rows(w, ns, c, 1, 5);
    world_job(w, "statistics");
    SF_PB(ShowStatisticsRequest) show;
    searchfabric__v1__show_statistics_request__init(&show);
    show.collection = world_ref(w, ns, c);
    const SF_PB(ShowStatisticsResponse) *shown = world_call(w, "ShowStatistics", &show);
    assert_non_null(shown);
    assert_string_equal(shown->head->latest_applied_schema_generation_token, "tok-1");
    assert_int_equal(shown->head->latest_stats_commit_ts,
                     head_of(w, ns, c)->latest_stats_commit_ts);
    assert_int_equal(shown->n_snapshots, 2);
    assert_int_equal(shown->snapshots[0]->collection_stats->row_count, 5);
    assert_int_equal(shown->snapshots[0]->n_field_stats, 0);
    assert_int_equal(shown->snapshots[1]->stats_commit_ts, 0);
    show.collection = NULL;
    assert_null(world_call(w, "ShowStatistics", &show));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_base, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_base, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_promotion_needs_its_base, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_snapshot_content, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_snapshot_content, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_identities_and_retention, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_freshness, world_setup, world_teardown),
        cmocka_unit_test(test_fresh_table),
        cmocka_unit_test_setup_teardown(test_order_of_checks, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_request_bounds, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_fallback, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_fallback, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_rebuild, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_rebuild, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_rows_taken_back, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_rows_taken_back, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_served_without_the_store, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_recovery_reads_the_head_first, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(test_projector_crash, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_show, world_setup, world_teardown),
    };
    return SF_RUN_TESTS("catalog_statistics", tests);
}
