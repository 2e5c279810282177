/*
 * Lifecycle windows: rows from policy and committed manifest, claims, reclamation. The policy used
 * throughout: warm after 1000 ms, cold after 5000 ms, gone after 100000 ms.
 */
#include <stdio.h>

#include "catalog/catalog_tier.h"
#include "component/catalog/catalog_manifests.h"
#include "component/catalog/lineage_world.h"
#include "support/sqlserver.h"

#define HOT  SF_PBE(DATA_TIER, HOT)
#define WARM SF_PBE(DATA_TIER, WARM)
#define COLD SF_PBE(DATA_TIER, COLD)
#define T0   WORLD_UNIX_MS

static void put_policy(struct world *w, const char *key, uint64_t ns, uint64_t c, uint64_t version,
                       const char *token, uint64_t retention_ms)
{
    static const uint64_t after[] = {1000, 5000};
    SF_PB(PutCollectionSchemaRequest) *put = world_schema_request(w, key, ns, c, version, token);
    SF_PB(CollectionSettings) *settings = sf_arena_alloc(w->arena, sizeof(*settings));
    SF_PB(LifecyclePolicy) *policy = sf_arena_alloc(w->arena, sizeof(*policy));
    searchfabric__v1__collection_settings__init(settings);
    searchfabric__v1__lifecycle_policy__init(policy);
    put->definition->fields[0]->type = SF_PBE(FIELD_TYPE, TIMESTAMP);
    policy->time_partition_field = put->definition->fields[0]->name;
    policy->window_ms = 1000;
    policy->transitions = sf_arena_alloc(w->arena, 2 * sizeof(void *));
    for (int i = 0; i < 2; i++) {
        SF_PB(LifecycleTransition) *step = sf_arena_alloc(w->arena, sizeof(*step));
        searchfabric__v1__lifecycle_transition__init(step);
        step->after_ms = after[i];
        step->target_tier = i == 0 ? WARM : COLD;
        policy->transitions[policy->n_transitions++] = step;
    }
    if (retention_ms != 0) {
        policy->_retention_ms_case = SEARCHFABRIC__V1__LIFECYCLE_POLICY___RETENTION_MS_RETENTION_MS;
        policy->retention_ms = retention_ms;
    }
    settings->lifecycle_policy = policy;
    put->definition->settings = settings;
    assert_non_null(world_call(w, "PutCollectionSchema", put));
}

static uint64_t managed(struct world *w, uint64_t ns, const char *name)
{
    char key[32];
    snprintf(key, sizeof(key), "c-%s", name);
    uint64_t c = world_collection(w, key, ns, name);
    snprintf(key, sizeof(key), "s-%s", name);
    put_policy(w, key, ns, c, 1, "tok-1", 100000);
    return c;
}

/* start offset, tier, version, next offset, deadline offset, state: one line a row. */
static const char *windows(struct world *w)
{
    char query[512];
    snprintf(query, sizeof(query),
             "SELECT CAST(window_start_ms - %lld AS TEXT), effective_tier,"
             " CAST(next_transition_at_unix_ms - %lld AS TEXT),"
             " CAST(retention_deadline_unix_ms - %lld AS TEXT), window_state"
             " FROM collection_lifecycle_windows ORDER BY collection_id, window_start_ms",
             (long long)T0, (long long)T0, (long long)T0);
    const char *text = sf_arena_str(w->arena, sf_view_str(query));
    return world_rows(w, text, 5);
}

static uint64_t version_at(struct world *w, uint64_t ns, uint64_t c, size_t index)
{
    SF_PB(ShowLifecycleWindowsRequest) show;
    searchfabric__v1__show_lifecycle_windows_request__init(&show);
    show.collection = world_ref(w, ns, c);
    const SF_PB(ShowLifecycleWindowsResponse) *shown = world_call(w, "ShowLifecycleWindows", &show);
    assert_non_null(shown);
    assert_true(index < shown->n_windows);
    return shown->windows[index]->published_manifest_version;
}

static const SF_PB(ClaimLifecycleTransitionsResponse) *
    claim(struct world *w, uint32_t max, uint64_t claim_ms)
{
    SF_PB(ClaimLifecycleTransitionsRequest) request;
    searchfabric__v1__claim_lifecycle_transitions_request__init(&request);
    request.worker_id = world_text(w, "worker-1");
    request.max_claims = max;
    request.claim_ms = claim_ms;
    return world_call(w, "ClaimLifecycleTransitions", &request);
}

static enum sf_err give_up(struct world *w, const char *claim_id)
{
    SF_PB(ReportLifecycleTransitionFailedRequest) request;
    searchfabric__v1__report_lifecycle_transition_failed_request__init(&request);
    request.claim_id = world_text(w, claim_id);
    request.reason = world_text(w, "disk full");
    return world_call(w, "ReportLifecycleTransitionFailed", &request) != NULL ? SF_OK : w->diag.err;
}

static const SF_PB(ListReclaimableWindowsResponse) * reclaimable(struct world *w, uint32_t max)
{
    SF_PB(ListReclaimableWindowsRequest) request;
    searchfabric__v1__list_reclaimable_windows_request__init(&request);
    request.max_windows = max;
    const SF_PB(ListReclaimableWindowsResponse) *response =
        world_call(w, "ListReclaimableWindows", &request);
    assert_non_null(response);
    return response;
}

/* Three windows that end at T0, T0 + 1000 and T0 + 2000, all hot. */
static SF_PB(ManifestSummaryObject) * three_windows(struct world *w, uint64_t version)
{
    SF_PB(ManifestSummaryObject) *summary = summary_new(w, version, 3);
    for (int i = 0; i < 3; i++)
        summary_window(w, summary, T0 - 1000 + i * 1000, T0 + i * 1000, HOT, version, "o", NULL, 0);
    return summary;
}

static void test_rows(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.9-01", "CCS-5.9-05", "CCS-5.9-15");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = managed(w, ns, "books");
    uint64_t plain = world_collection(w, "c2", ns, "plain");
    world_schema(w, "s2", ns, plain, 1, "tok-1");
    manifest_publish(w, ns, c, 3, 3, 30, three_windows(w, 3));
    manifest_publish(w, ns, plain, 3, 3, 30, three_windows(w, 3)); /* no policy: no rows */
    world_job(w, "lifecycle-windows");
    static const char expected[] = "-1000|HOT|1000|100000|LIVE\n"
                                   "0|HOT|2000|101000|LIVE\n"
                                   "1000|HOT|3000|102000|LIVE\n";
    assert_string_equal(windows(w), expected);
    assert_int_equal(version_at(w, ns, c, 0), 3);
    world_rebuild(w);
    assert_string_equal(windows(w), "");
    world_job(w, "lifecycle-windows");
    assert_string_equal(windows(w), expected);
    /* rows that say something else are what the next projection corrects */
    world_sql(w, "UPDATE collection_lifecycle_windows SET effective_tier = 'COLD',"
                 " next_transition_at_unix_ms = NULL;");
    sf_catalog_projectors_wake(w->catalog, ns, c);
    world_job(w, "lifecycle-windows");
    assert_string_equal(windows(w), expected);
    world_sql(w, "DELETE FROM collection_lifecycle_windows;");
    sf_catalog_projectors_wake(w->catalog, ns, c);
    world_job(w, "lifecycle-windows");
    assert_string_equal(windows(w), expected);
    /* the policy of a later generation: kept for ever */
    put_policy(w, "s3", ns, c, 2, "tok-2", 0);
    world_job(w, "lifecycle-windows");
    assert_string_equal(windows(w), "-1000|HOT|1000|NULL|LIVE\n"
                                    "0|HOT|2000|NULL|LIVE\n"
                                    "1000|HOT|3000|NULL|LIVE\n");
    /* a drop ends no retention: the windows stay, also over a rebuild, and move no more */
    put_policy(w, "s4", ns, c, 3, "tok-3", 100000);
    world_job(w, "lifecycle-windows");
    assert_string_equal(windows(w), expected);
    sf_clock_manual_advance(&w->clock, 1500);
    assert_int_equal(claim(w, 0, 0)->n_claims, 1);
    assert_int_equal(lineage_drop(w, "d", ns, c, NULL), DROPPED);
    assert_string_equal(windows(w), expected);
    assert_int_equal(claim(w, 0, 0)->n_claims, 0);
    world_rebuild(w);
    world_job(w, "lifecycle-windows");
    assert_string_equal(windows(w), expected);
}

/* Columns, their order and the key as the contract has them. */
static void test_columns(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.9-03");
    static const char expected[] = "namespace_id|NO\ncollection_id|NO\nwindow_start_ms|NO\n"
                                   "window_end_ms|NO\neffective_tier|NO\n"
                                   "published_manifest_version|NO\n"
                                   "next_transition_at_unix_ms|YES\n"
                                   "retention_deadline_unix_ms|YES\nwindow_state|NO\n";
    static const char key[] = "namespace_id\ncollection_id\nwindow_start_ms\nwindow_end_ms\n";
    const char *columns = "SELECT name, CASE \"notnull\" WHEN 1 THEN 'NO' ELSE 'YES' END"
                          " FROM pragma_table_info('collection_lifecycle_windows') ORDER BY cid";
    const char *keys = "SELECT name FROM pragma_table_info('collection_lifecycle_windows')"
                       " WHERE pk > 0 ORDER BY pk";
    if (sf_test_sql_kind() != SF_SQL_SQLITE) {
        columns = sf_test_sql_kind() == SF_SQL_MYSQL
                      ? "SELECT column_name, is_nullable FROM information_schema.columns"
                        " WHERE table_name = 'collection_lifecycle_windows'"
                        " AND table_schema = DATABASE() ORDER BY ordinal_position"
                      : "SELECT column_name, is_nullable FROM information_schema.columns"
                        " WHERE table_name = 'collection_lifecycle_windows'"
                        " ORDER BY ordinal_position";
        keys = sf_test_sql_kind() == SF_SQL_MYSQL
                   ? "SELECT column_name FROM information_schema.key_column_usage"
                     " WHERE table_name = 'collection_lifecycle_windows'"
                     " AND table_schema = DATABASE() ORDER BY ordinal_position"
                   : "SELECT column_name FROM information_schema.key_column_usage"
                     " WHERE table_name = 'collection_lifecycle_windows'"
                     " ORDER BY ordinal_position";
    }
    assert_string_equal(world_rows(w, columns, 2), expected);
    assert_string_equal(world_rows(w, keys, 1), key);
}

/* Is `wanted` part of `message`, at any depth? */
static bool reaches(const ProtobufCMessageDescriptor *message,
                    const ProtobufCMessageDescriptor *wanted, int depth)
{
    if (message == wanted)
        return true;
    for (unsigned i = 0; depth > 0 && i < message->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->fields[i];
        if (field->type == PROTOBUF_C_TYPE_MESSAGE && reaches(field->descriptor, wanted, depth - 1))
            return true;
    }
    return false;
}

/* No answer to a query's side holds a window: pruning reads the pinned manifest. */
static void test_no_query_sees_windows(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.9-02");
    static const char *const workers[] = {"ClaimLifecycleTransitions", "ListReclaimableWindows",
                                          "ShowLifecycleWindows"};
    const ProtobufCMessageDescriptor *const windows_of[] = {
        &searchfabric__v1__lifecycle_window__descriptor,
        &searchfabric__v1__lifecycle_transition_claim__descriptor,
        &searchfabric__v1__reclaimable_window__descriptor,
        &searchfabric__v1__manifest_lifecycle_window__descriptor};
    const struct sf_service *services[SF_CATALOG_SERVICE_COUNT];
    size_t seen = 0;
    sf_catalog_services(w->catalog, services);
    for (int s = 0; s < SF_CATALOG_SERVICE_COUNT; s++) {
        for (size_t m = 0; m < services[s]->method_count; m++) {
            const struct sf_method *method = &services[s]->methods[m];
            bool worker = false;
            for (size_t i = 0; i < SF_ARRAY_LEN(workers); i++)
                worker = worker || strcmp(workers[i], method->name) == 0;
            for (size_t i = 0; i < SF_ARRAY_LEN(windows_of); i++) {
                bool shows = reaches(method->response, windows_of[i], 8);
                seen += shows ? 1 : 0;
                if (shows && !worker)
                    fail_msg("%s shows lifecycle windows", method->name);
            }
        }
    }
    assert_int_equal(seen, 3);
}

static void test_enums(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.9-04");
    static const char *const refused[] = {"'TEPID', 1, NULL, NULL, 'LIVE'",
                                          "'HOT', 1, NULL, NULL, 'GONE'",
                                          "'', 1, NULL, NULL, 'LIVE'"};
    static const char *const taken[] = {"'HOT', 1, NULL, NULL, 'LIVE'",
                                        "'WARM', 1, NULL, NULL, 'TRANSITIONING'",
                                        "'COLD', 1, NULL, NULL, 'RECLAIMABLE'"};
    for (size_t i = 0; i < 2 * 3; i++) {
        struct sf_diag diag;
        char sql[512];
        snprintf(sql, sizeof(sql),
                 "INSERT INTO collection_lifecycle_windows (namespace_id, collection_id,"
                 " window_start_ms, window_end_ms, effective_tier, published_manifest_version,"
                 " next_transition_at_unix_ms, retention_deadline_unix_ms, window_state)"
                 " VALUES (1, 1, %zu, 100, %s);",
                 i, i < 3 ? refused[i] : taken[i - 3]);
        sf_diag_init(&diag);
        struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
        assert_int_equal(sf_sql_begin(conn, &diag), SF_OK);
        enum sf_err err = sf_sql_exec(conn, sql, &diag);
        if (err == SF_OK)
            err = sf_sql_commit(conn, &diag);
        else
            sf_sql_rollback(conn);
        sf_sql_release(conn);
        if ((err == SF_OK) != (i >= 3))
            fail_msg("%s: %s", sql, diag.message);
    }
}

/* Tier and version change with the committed manifest, together, and never before it. */
static void test_manifest_first(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.9-06", "CCS-5.9-12");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = managed(w, ns, "books");
    manifest_publish(w, ns, c, 3, 3, 30, three_windows(w, 3));
    world_job(w, "lifecycle-windows");
    sf_clock_manual_advance(&w->clock, 999);
    assert_int_equal(claim(w, 0, 0)->n_claims, 0);
    sf_clock_manual_advance(&w->clock, 1);
    const SF_PB(ClaimLifecycleTransitionsResponse) *given = claim(w, 0, 0);
    assert_int_equal(given->n_claims, 1);
    assert_int_equal(given->claims[0]->window_start_ms, T0 - 1000);
    assert_int_equal(given->claims[0]->effective_tier, HOT);
    assert_int_equal(given->claims[0]->target_tier, WARM);
    assert_int_equal(given->claims[0]->published_manifest_version, 3);
    assert_int_equal(given->claims[0]->expires_at_unix_ms, T0 + 1000 + 600000);
    assert_int_equal(claim(w, 0, 0)->n_claims, 0); /* given out once */
    static const char moving[] = "-1000|HOT|1000|100000|TRANSITIONING\n"
                                 "0|HOT|2000|101000|LIVE\n"
                                 "1000|HOT|3000|102000|LIVE\n";
    assert_string_equal(windows(w), moving);
    /* objects moved, manifest written, not committed */
    SF_PB(ManifestSummaryObject) *summary = three_windows(w, 4);
    for (int i = 0; i < 3; i++)
        summary->lifecycle_windows[i]->published_manifest_version = i == 0 ? 4 : 3;
    summary->lifecycle_windows[0]->tier = WARM;
    char digest[SF_SHA256_HEX_BYTES];
    manifest_write(w, ns, c, 4, 3, 30, summary, digest);
    sf_catalog_projectors_wake(w->catalog, ns, c);
    world_job(w, "lifecycle-windows");
    assert_string_equal(windows(w), moving);
    assert_int_equal(version_at(w, ns, c, 0), 3);
    manifest_point(w, ns, c, 4, digest);
    sf_catalog_projectors_wake(w->catalog, ns, c);
    world_job(w, "lifecycle-windows");
    assert_string_equal(windows(w), "-1000|WARM|5000|100000|LIVE\n"
                                    "0|HOT|2000|101000|LIVE\n"
                                    "1000|HOT|3000|102000|LIVE\n");
    assert_int_equal(version_at(w, ns, c, 0), 4);
    assert_int_equal(version_at(w, ns, c, 1), 3);
    assert_string_equal(
        world_rows(w, "SELECT CAST(COUNT(*) AS TEXT) FROM lifecycle_transition_claims", 1), "0\n");
}

static void test_claims(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = managed(w, ns, "books");
    manifest_publish(w, ns, c, 3, 3, 30, three_windows(w, 3));
    world_job(w, "lifecycle-windows");
    sf_clock_manual_advance(&w->clock, 6000); /* the first is due for cold, all for warm */
    const SF_PB(ClaimLifecycleTransitionsResponse) *given = claim(w, 1, 500);
    assert_int_equal(given->n_claims, 1);
    assert_int_equal(given->claims[0]->target_tier, COLD); /* warm is passed over */
    const char *first = given->claims[0]->claim_id;
    given = claim(w, 0, 700);
    assert_int_equal(given->n_claims, 2);
    const char *second = given->claims[0]->claim_id;
    assert_string_not_equal(first, second);
    /* the worker gives up: free at once */
    assert_int_equal(give_up(w, second), SF_OK);
    assert_int_equal(give_up(w, second), SF_RESOURCE_NOT_FOUND);
    given = claim(w, 0, 700);
    assert_int_equal(given->n_claims, 1);
    /* the worker says nothing: free when the claim ran out */
    sf_clock_manual_advance(&w->clock, 499);
    world_job(w, "lifecycle-windows");
    assert_int_equal(claim(w, 0, 0)->n_claims, 0);
    sf_clock_manual_advance(&w->clock, 1);
    world_job(w, "lifecycle-windows");
    assert_int_equal(give_up(w, first), SF_RESOURCE_NOT_FOUND);
    given = claim(w, 0, 0);
    assert_int_equal(given->n_claims, 1);
    assert_int_equal(given->claims[0]->window_start_ms, T0 - 1000);
    /* a manifest that only brings it to warm does not end a claim for cold */
    SF_PB(ManifestSummaryObject) *summary = three_windows(w, 4);
    summary->lifecycle_windows[0]->tier = WARM;
    manifest_publish(w, ns, c, 4, 3, 30, summary);
    world_job(w, "lifecycle-windows");
    assert_non_null(strstr(windows(w), "-1000|WARM|5000|100000|TRANSITIONING\n"));
    /* malformed requests, at their bounds */
    struct sf_diag diag;
    SF_PB(ClaimLifecycleTransitionsRequest) request;
    searchfabric__v1__claim_lifecycle_transitions_request__init(&request);
    sf_diag_init(&diag);
    assert_int_equal(sf_catalog_claim_check(&request, &diag), SF_BAD_REQUEST); /* no worker */
    request.worker_id = world_text(w, "w");
    request.max_claims = SF_CATALOG_CLAIMS_MAX;
    request.claim_ms = SF_CATALOG_CLAIM_MS_MAX;
    assert_int_equal(sf_catalog_claim_check(&request, &diag), SF_OK);
    request.max_claims++;
    assert_int_equal(sf_catalog_claim_check(&request, &diag), SF_BAD_REQUEST);
    request.max_claims--;
    request.claim_ms++;
    assert_int_equal(sf_catalog_claim_check(&request, &diag), SF_BAD_REQUEST);
    SF_PB(ListReclaimableWindowsRequest) list;
    searchfabric__v1__list_reclaimable_windows_request__init(&list);
    list.max_windows = SF_CATALOG_CLAIMS_MAX;
    assert_int_equal(sf_catalog_reclaim_request_check(&list, &diag), SF_OK);
    list.max_windows++;
    assert_int_equal(sf_catalog_reclaim_request_check(&list, &diag), SF_BAD_REQUEST);
}

/* Deadline, dereference and grace: each withheld in turn blocks, all together let go. */
static void test_reclamation(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.9-10", "CCS-5.9-13", "CCS-5.9-14");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = managed(w, ns, "books");
    const int64_t deadline = T0 + 100000;
    /* retired long ago, referenced no longer: generic GC would let it go */
    SF_PB(ManifestSummaryObject) *summary = summary_new(w, 3, 3);
    summary_window(w, summary, T0 - 1000, T0, HOT, 3, NULL, "gone-1",
                   T0 - SF_CATALOG_RECLAIM_GRACE_MS);
    manifest_publish(w, ns, c, 3, 0, 0, summary);
    world_job(w, "lifecycle-windows");
    sf_clock_manual_advance(&w->clock, 99999); /* deadline - 1 ms */
    world_job(w, "lifecycle-windows");
    assert_string_equal(windows(w), "-1000|HOT|1000|100000|LIVE\n");
    assert_int_equal(reclaimable(w, 0)->n_windows, 0);
    sf_clock_manual_advance(&w->clock, 1);
    world_job(w, "lifecycle-windows");
    assert_string_equal(windows(w), "-1000|HOT|1000|100000|RECLAIMABLE\n");
    const SF_PB(ListReclaimableWindowsResponse) *given = reclaimable(w, 0);
    assert_int_equal(given->n_windows, 1);
    assert_int_equal(given->windows[0]->retention_deadline_unix_ms, deadline);
    assert_int_equal(given->windows[0]->committed_manifest_version, 3);
    assert_int_equal(given->windows[0]->n_object_keys, 1);
    assert_string_equal(given->windows[0]->object_keys[0], "gone-1");
    /* the committed manifest still references an object of it */
    summary = summary_new(w, 4, 3);
    summary_window(w, summary, T0 - 1000, T0, HOT, 4, "kept", "gone-1",
                   T0 - SF_CATALOG_RECLAIM_GRACE_MS);
    manifest_publish(w, ns, c, 4, 0, 0, summary); /* also before the projector saw it */
    assert_int_equal(reclaimable(w, 0)->n_windows, 0);
    world_job(w, "lifecycle-windows");
    assert_string_equal(windows(w), "-1000|HOT|1000|100000|RECLAIMABLE\n");
    assert_int_equal(reclaimable(w, 0)->n_windows, 0);
    /* readers may still hold the manifest before */
    summary = summary_new(w, 5, 3);
    summary_window(w, summary, T0 - 1000, T0, HOT, 5, NULL, "gone-1", deadline);
    manifest_publish(w, ns, c, 5, 0, 0, summary);
    world_job(w, "lifecycle-windows");
    sf_clock_manual_advance(&w->clock, SF_CATALOG_RECLAIM_GRACE_MS - 1);
    assert_int_equal(reclaimable(w, 0)->n_windows, 0);
    sf_clock_manual_advance(&w->clock, 1);
    assert_int_equal(reclaimable(w, 0)->n_windows, 1);
    /* nothing is deleted by the catalog itself; the row goes with the manifest */
    manifest_publish(w, ns, c, 6, 0, 0, summary_new(w, 6, 0));
    world_job(w, "lifecycle-windows");
    assert_string_equal(windows(w), "");
    assert_int_equal(reclaimable(w, 0)->n_windows, 0);
}

/* More than one request takes: turns over all of them, none is forgotten. */
static void test_reclaim_turns(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof(name), "c%d", i);
        uint64_t c = managed(w, ns, name);
        SF_PB(ManifestSummaryObject) *summary = summary_new(w, 1, 1);
        summary_window(w, summary, T0 - 1000, T0, HOT, 1, NULL, name, T0);
        manifest_publish(w, ns, c, 1, 0, 0, summary);
    }
    world_job(w, "lifecycle-windows");
    sf_clock_manual_advance(&w->clock, 100000 + SF_CATALOG_RECLAIM_GRACE_MS);
    world_job(w, "lifecycle-windows");
    unsigned seen = 0;
    for (int turn = 0; turn < 12; turn++) {
        const SF_PB(ListReclaimableWindowsResponse) *given = reclaimable(w, 2);
        for (size_t i = 0; i < given->n_windows; i++)
            seen |= 1u << (unsigned)(given->windows[i]->object_keys[0][1] - '0');
    }
    assert_int_equal(seen, 31);
}

/* One window's move fails again and again, one collection fills every answer: the others have their
 * turn. */
static void test_failing_moves_hide_nobody(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof(name), "c%d", i);
        uint64_t c = managed(w, ns, name);
        SF_PB(ManifestSummaryObject) *summary = summary_new(w, 1, 1);
        for (int window = 0; window < (i == 0 ? 3 : 1); window++)
            summary_window(w, summary, T0 + 1000 * window - 1000, T0 + 1000 * window, HOT, 1, NULL,
                           name, T0);
        manifest_publish(w, ns, c, 1, 0, 0, summary);
    }
    world_job(w, "lifecycle-windows");
    sf_clock_manual_advance(&w->clock, 4000);
    uint64_t seen[3] = {0};
    size_t count = 0;
    for (int turn = 0; turn < 10; turn++) {
        const SF_PB(ClaimLifecycleTransitionsResponse) *given = claim(w, 1, 1000);
        assert_int_equal(given->n_claims, 1);
        uint64_t c = given->claims[0]->collection->collection_id;
        size_t at = 0;
        while (at < count && seen[at] != c)
            at++;
        if (at == count)
            seen[count++] = c;
        assert_int_equal(give_up(w, given->claims[0]->claim_id), SF_OK);
    }
    assert_int_equal(count, 3);
    assert_int_equal(claim(w, 0, 1000)->n_claims, 5); /* from anywhere all are found */
    assert_int_equal(claim(w, 0, 1000)->n_claims, 0);
    sf_clock_manual_advance(&w->clock, 100000 + SF_CATALOG_RECLAIM_GRACE_MS);
    world_job(w, "lifecycle-windows");
    unsigned named = 0;
    for (int turn = 0; turn < 6; turn++) {
        const SF_PB(ListReclaimableWindowsResponse) *given = reclaimable(w, 3);
        for (size_t i = 0; i < given->n_windows; i++)
            named |= 1u << (unsigned)(given->windows[i]->object_keys[0][1] - '0');
    }
    assert_int_equal(named, 7);
}

/* Lost rows change nothing that a query asks for. */
static void test_rows_are_no_truth(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.9-16");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = managed(w, ns, "books");
    world_ready(w, ns, c, 1, "tok-1");
    manifest_publish(w, ns, c, 3, 3, 30, three_windows(w, 3));
    world_job(w, "lifecycle-windows");
    SF_PB(GetCollectionAdmissionStateRequest) admission;
    SF_PB(ResolveServingGenerationRequest) resolve;
    SF_PB(GetCollectionStatisticsRequest) statistics;
    searchfabric__v1__get_collection_admission_state_request__init(&admission);
    searchfabric__v1__resolve_serving_generation_request__init(&resolve);
    searchfabric__v1__get_collection_statistics_request__init(&statistics);
    admission.collection = resolve.collection = statistics.collection = world_ref(w, ns, c);
    statistics.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, ES_QUERY_GATEWAY));
    static const char *const methods[] = {"GetCollectionAdmissionState", "ResolveServingGeneration",
                                          "GetCollectionStatistics"};
    const void *requests[] = {&admission, &resolve, &statistics};
    const char *before[3];
    const char *answers = world_answers(w, ns);
    for (int i = 0; i < 3; i++)
        before[i] = world_json(w, world_call(w, methods[i], requests[i]));
    const void *manifest = world_object(w, manifest_key(w, ns, c, 3),
                                        &searchfabric__v1__collection_manifest_object__descriptor);
    const char *manifest_before = world_json(w, manifest);
    world_sql(w, "DELETE FROM collection_lifecycle_windows;");
    world_restart(w);
    for (int i = 0; i < 3; i++)
        assert_string_equal(world_json(w, world_call(w, methods[i], requests[i])), before[i]);
    assert_string_equal(world_answers(w, ns), answers);
    assert_string_equal(
        world_json(w, world_object(w, manifest_key(w, ns, c, 3),
                                   &searchfabric__v1__collection_manifest_object__descriptor)),
        manifest_before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rows, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_columns, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_no_query_sees_windows, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_enums, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_manifest_first, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_claims, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_reclamation, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_reclaim_turns, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_failing_moves_hide_nobody, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(test_rows_are_no_truth, world_setup, world_teardown),
    };
    return SF_RUN_TESTS("catalog_tiers", tests);
}
