/* What is broken, kept for long or always busy holds nobody else up: sweeps, projectors, repairs.
 */
#include <inttypes.h>
#include <stdio.h>

#include "catalog/catalog_head.h"
#include "catalog/catalog_projector.h"
#include "component/catalog/catalog_manifests.h"
#include "component/catalog/lineage_world.h"

static const char *name_of(struct world *w, const char *prefix, unsigned n)
{
    char text[64];
    snprintf(text, sizeof(text), "%s-%05u", prefix, n);
    return sf_arena_str(w->arena, sf_view_str(text));
}

/* Puts other bytes in the place of an object. */
static void spoil(struct world *w, struct sf_buf *key)
{
    struct sf_put put = {.key = sf_buf_view(key), .body = sf_view_str("{}"), .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->truth, NULL, &put), SF_OK);
    sf_buf_fini(key);
}

/* Shows `count` tombstoned rows like that of `id`, each with a name and an id of its own and a head
 * that is under repair. */
static void add_kept(struct world *w, uint64_t ns, uint64_t id, unsigned count)
{
    struct sf_buf key = {0};
    sf_catalog_key_collection(&key, ns, id, 1);
    SF_PB(CollectionDescriptorObject) *row =
        (SF_PB(CollectionDescriptorObject) *)(uintptr_t)world_object(
            w, sf_arena_str(w->arena, sf_buf_view(&key)),
            &searchfabric__v1__collection_descriptor_object__descriptor);
    sf_buf_clear(&key);
    sf_catalog_key_tombstone(&key, ns, id, 1);
    SF_PB(CollectionTombstoneObject) *tombstone =
        (SF_PB(CollectionTombstoneObject) *)(uintptr_t)world_object(
            w, sf_arena_str(w->arena, sf_buf_view(&key)),
            &searchfabric__v1__collection_tombstone_object__descriptor);
    sf_buf_fini(&key);
    assert_true(row != NULL && tombstone != NULL);
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    assert_int_equal(sf_sql_begin(conn, &w->diag), SF_OK);
    for (unsigned i = 0; i < count; i++) {
        row->collection->collection_id = tombstone->collection->collection_id = 1 + i;
        row->collection_name = tombstone->collection_name =
            (char *)(uintptr_t)name_of(w, "kept", i);
        assert_int_equal(sf_catalog_project_collection(conn, row, &w->diag), SF_OK);
        assert_int_equal(sf_catalog_project_tombstone(conn, tombstone, &w->diag), SF_OK);
    }
    assert_int_equal(sf_sql_commit(conn, &w->diag), SF_OK);
    sf_sql_release(conn);
}

/* As many kept names as one sweep looks at, all in front of one that may go. */
static void test_kept_names_hide_nobody(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t model = world_collection(w, "c1", ns, "model");
    uint64_t id = world_collection(w, "c2", ns, "books");
    assert_int_equal(lineage_drop(w, "d1", ns, model, NULL), DROPPED);
    sf_clock_manual_advance(&w->clock, 1000);
    assert_int_equal(lineage_drop(w, "d2", ns, id, NULL), DROPPED);
    add_kept(w, ns, model, SF_CATALOG_SWEEP_LOOKED - 1);
    lineage_exec(w, "UPDATE collections SET manifest_head_reconciler_status = 'ERROR'"
                    " WHERE collection_name <> 'books'");
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    assert_int_equal(lineage_sweep(w)->released_collection_names, 0);
    assert_int_equal(lineage_sweep(w)->released_collection_names, 1); /* goes on behind them */
    world_collection(w, "c3", ns, "books");
    assert_int_equal(lineage_sweep(w)->kept, SF_CATALOG_SWEEP_LOOKED); /* from the front again */
    SF_PB(RunReleaseSweepRequest) one;
    searchfabric__v1__run_release_sweep_request__init(&one);
    one.namespace_id = ns;
    const SF_PB(RunReleaseSweepResponse) *swept = world_call(w, "RunReleaseSweep", &one);
    assert_int_equal(swept->kept, SF_CATALOG_SWEEP_LOOKED);
}

/* A tombstone whose object is broken: told, and the names behind it go. */
static void test_broken_tombstone_hides_nobody(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t broken = world_collection(w, "c1", ns, "broken");
    uint64_t id = world_collection(w, "c2", ns, "books");
    assert_int_equal(lineage_drop(w, "d1", ns, broken, NULL), DROPPED);
    sf_clock_manual_advance(&w->clock, 1000);
    assert_int_equal(lineage_drop(w, "d2", ns, id, NULL), DROPPED);
    struct sf_buf key = {0};
    sf_catalog_key_tombstone(&key, ns, broken, 1);
    spoil(w, &key);
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    const SF_PB(RunReleaseSweepResponse) *swept = lineage_sweep(w);
    assert_int_equal(swept->released_collection_names, 1);
    assert_int_equal(swept->failed, 1);
    assert_string_not_equal(swept->first_failure, "");
    world_collection(w, "c3", ns, "books");
    lineage_conflict(
        w, world_call(w, "PutCollectionMetadata", world_collection_request(w, "c4", ns, "broken")),
        "collection_name", "tombstoned");
    SF_PB(RunCatalogJobRequest) job;
    searchfabric__v1__run_catalog_job_request__init(&job);
    job.name = "release-sweep";
    assert_null(world_call(w, "RunCatalogJob", &job)); /* the job's health shows it */
    assert_int_equal(w->diag.err, SF_INTERNAL);
}

/* A full batch of collections that are due again in every cycle, in front of another. */
static void test_busy_collections_hide_nobody(void **state)
{
    struct world *w = *state;
    uint64_t busy = world_namespace(w, "n1", "busy");
    uint64_t ids[SF_CATALOG_PROJECTOR_BATCH];
    for (unsigned i = 0; i < SF_CATALOG_PROJECTOR_BATCH; i++)
        ids[i] = world_collection(w, name_of(w, "k", i), busy, name_of(w, "c", i));
    uint64_t quiet = world_namespace(w, "n2", "quiet");
    uint64_t id = world_collection(w, "q1", quiet, "books");
    static const char *const jobs[] = {"collection-stats", "collection-index",
                                       "namespace-aggregate"};
    for (unsigned cycle = 0; cycle < 3; cycle++) {
        for (unsigned i = 0; i < SF_CATALOG_PROJECTOR_BATCH; i++)
            sf_catalog_projectors_wake(w->catalog, busy, ids[i]);
        for (size_t job = 0; job < SF_ARRAY_LEN(jobs); job++)
            world_job(w, jobs[job]);
    }
    assert_string_not_equal(lineage_sql(w,
                                        "SELECT approx_stats_json FROM collections"
                                        " WHERE namespace_id = ?1 AND collection_id = ?2",
                                        quiet, id),
                            "");
}

/* One collection whose statistics head is broken, in front of another. */
static void test_broken_statistics_hide_nobody(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t ids[2];
    for (unsigned i = 0; i < 2; i++) {
        ids[i] = world_collection(w, name_of(w, "c", i), ns, name_of(w, "c", i));
        world_schema(w, name_of(w, "s", i), ns, ids[i], 1, "tok-1");
        world_ready(w, ns, ids[i], 1, "tok-1");
    }
    struct sf_buf key = {0};
    sf_catalog_key_statistics_head(&key, ns, ids[0]);
    spoil(w, &key);
    const char *snapshots = "SELECT COUNT(*) FROM collection_statistics_snapshots"
                            " WHERE namespace_id = ?1 AND collection_id = ?2";
    const char *before = lineage_sql(w, snapshots, ns, ids[1]);
    for (unsigned i = 0; i < 2; i++)
        sf_catalog_projectors_wake(w->catalog, ns, ids[i]);
    SF_PB(RunCatalogJobRequest) job;
    searchfabric__v1__run_catalog_job_request__init(&job);
    job.name = "statistics";
    assert_null(world_call(w, "RunCatalogJob", &job)); /* told */
    assert_int_equal(w->diag.err, SF_INTERNAL);
    assert_string_not_equal(lineage_sql(w, snapshots, ns, ids[1]), before);
    assert_non_null(world_call(w, "RunCatalogJob", &job)); /* deferred */
}

/* More contradictions than one repair takes, none of which it can mend, in front of one that it
 * can. */
static void test_idle_contradictions_hide_nobody(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t model = world_collection(w, "c1", ns, "model");
    uint64_t id = world_collection(w, "c2", ns, "books");
    assert_int_equal(lineage_drop(w, "d1", ns, model, NULL), DROPPED);
    assert_int_equal(lineage_drop(w, "d2", ns, id, NULL), DROPPED);
    add_kept(w, ns, model, 600);
    lineage_exec(w, "UPDATE collections SET lifecycle_state = 'ACTIVE'"
                    " WHERE collection_name <> 'model'");
    uint64_t done = 0;
    for (int cycle = 0; cycle < 3; cycle++)
        done += world_job(w, "tombstone-repair");
    assert_int_equal(done, 1);
    assert_int_equal(lineage_get_collection(w, ns, id), SF_RESOURCE_NOT_FOUND);
}

/* A head that cannot be looked at, in front of another, in an audit. */
static void test_audit_passes_by(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    world_collection(w, "c1", ns, "broken");
    uint64_t id = world_collection(w, "c2", ns, "books");
    lineage_exec(w, "UPDATE collections SET encryption_json = '{\"surprise\": 1}'"
                    " WHERE collection_name = 'broken'");
    lineage_exec(w, "UPDATE collections SET manifest_head_reconciler_status = 'REPAIR_PENDING'"
                    " WHERE collection_name = 'books'");
    SF_PB(RunCatalogJobRequest) job;
    searchfabric__v1__run_catalog_job_request__init(&job);
    job.name = "manifest-head-audit";
    assert_null(world_call(w, "RunCatalogJob", &job)); /* told */
    assert_string_equal(lineage_sql(w,
                                    "SELECT manifest_head_reconciler_status FROM collections"
                                    " WHERE namespace_id = ?1 AND collection_id = ?2",
                                    ns, id),
                        "IDLE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_kept_names_hide_nobody, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_broken_tombstone_hides_nobody, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(test_busy_collections_hide_nobody, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(test_broken_statistics_hide_nobody, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(test_idle_contradictions_hide_nobody, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(test_audit_passes_by, world_setup, world_teardown),
    };
    return SF_RUN_TESTS("catalog_fair", tests);
}
