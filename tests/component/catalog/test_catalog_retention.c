/* Retention: what goes, what stays, in which order, and that a rebuild sees no difference. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "catalog/catalog_retention.h"
#include "component/catalog/catalog_world.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define DAY_MS UINT64_C(86400000)

/* Days pass, on the wall and on the oracle's axis. */
static void later(struct world *w, uint64_t days)
{
    atomic_fetch_add(&w->next_tso, (days * DAY_MS) << SF_TSO_LOGICAL_BITS);
    sf_clock_manual_advance(&w->clock, (int64_t)(days * DAY_MS));
}

static void checkpoint(struct world *w)
{
    SF_PB(CreateCheckpointRequest) request;
    searchfabric__v1__create_checkpoint_request__init(&request);
    assert_non_null(world_call(w, "CreateCheckpoint", &request));
}

static const SF_PB(RunRetentionResponse) * run(struct world *w, bool dry_run)
{
    SF_PB(RunRetentionRequest) request;
    searchfabric__v1__run_retention_request__init(&request);
    request.dry_run = dry_run;
    return world_call(w, "RunRetention", &request);
}

static const void *update(struct world *w, uint64_t ns, const char *key, const char *value)
{
    SF_PB(PutCollectionMetadataRequest) *request = world_collection_request(w, key, ns, "books");
    request->options = world_options(w, "v", value);
    return world_call(w, "PutCollectionMetadata", request);
}

static bool stands(struct world *w, const struct sf_buf *key)
{
    struct sf_buf body = {0};
    enum sf_err err = sf_store_get_wait(w->truth, NULL, sf_buf_view(key), &body, NULL);
    sf_buf_fini(&body);
    assert_true(err == SF_OK || err == SF_ERR_NOT_FOUND);
    return err == SF_OK;
}

static bool revision_stands(struct world *w, uint64_t ns, uint64_t id, uint64_t revision)
{
    struct sf_buf key = {0};
    sf_catalog_key_collection(&key, ns, id, revision);
    bool found = stands(w, &key);
    sf_buf_fini(&key);
    return found;
}

static uint64_t boundary(struct world *w)
{
    const SF_PB(CatalogBoundaryObject) *object = world_object(
        w, SF_CATALOG_BOUNDARY_KEY, &searchfabric__v1__catalog_boundary_object__descriptor);
    return object->lowest_recovery_segment_epoch;
}

/* A collection of five revisions, old; then what is young, and two checkpoints. */
static void make_old(struct world *w, uint64_t *out_ns, uint64_t *out_id)
{
    *out_ns = world_namespace(w, "n1", "alpha");
    *out_id = world_collection(w, "c1", *out_ns, "books");
    for (int i = 2; i <= 5; i++) {
        char key[16];
        snprintf(key, sizeof(key), "u%d", i);
        assert_non_null(update(w, *out_ns, key, key));
    }
    later(w, 31);
    (void)world_collection(w, "c2", *out_ns, "young");
    checkpoint(w);
    checkpoint(w);
}

/* A record whose row is broken stays, with its segment; what is old around it goes. */
static void test_broken_row_stays_alone(void **state)
{
    struct world *w = *state;
    uint64_t ns, id;
    make_old(w, &ns, &id);
    size_t segments = world_list(w, "catalog-recovery-segments/", NULL);
    world_execute(w, "UPDATE catalog_replay_index SET original_outcome_json = '[1]'"
                     " WHERE idempotency_key = 'u3'");
    assert_null(run(w, false)); /* told */
    assert_int_equal(w->diag.err, SF_INTERNAL);
    assert_true(boundary(w) > 1);
    assert_false(revision_stands(w, ns, id, 2));
    assert_true(revision_stands(w, ns, id, 3));
    assert_false(revision_stands(w, ns, id, 4));
    assert_true(revision_stands(w, ns, id, 5));
    size_t left = world_list(w, "catalog-recovery-segments/", NULL);
    assert_true(left < segments);
    size_t before;
    int rounds = 0;
    do { /* what a command just answered still holds goes with a later round */
        assert_true(rounds++ < 5);
        before = left;
        assert_null(run(w, false));
        left = world_list(w, "catalog-recovery-segments/", NULL);
    } while (left != before);
    assert_true(revision_stands(w, ns, id, 3));
}

static void test_round(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-8-19");
    uint64_t ns, id;
    make_old(w, &ns, &id);
    const char *answers = world_answers(w, ns);
    size_t segments = world_list(w, "catalog-recovery-segments/", NULL);
    size_t records = world_list(w, "catalog-log/", NULL);
    const SF_PB(RunRetentionResponse) *told = run(w, true);
    assert_non_null(told);
    assert_true(boundary(w) == 1 && world_list(w, "catalog-log/", NULL) == records);
    world_trace(w);
    const SF_PB(RunRetentionResponse) *done = run(w, false);
    const char *trace = world_traced(w);
    assert_non_null(done);
    /* u2, u3, u4 are superseded; the creates hold their names' epochs, u5 is current */
    assert_true(done->records_removed == 3 && told->records_removed == 3);
    assert_true(done->records_kept == 3);
    assert_true(done->segments_removed == told->segments_removed);
    assert_true(done->boundary_segment_epoch == boundary(w) && boundary(w) > 1);
    assert_int_equal(world_list(w, "catalog-log/", NULL), records - 3);
    assert_int_equal(world_list(w, "catalog-replay-transport/", NULL), records - 3);
    assert_int_equal(world_list(w, "catalog-recovery-segments/", NULL),
                     segments - done->segments_removed);
    for (uint64_t revision = 1; revision <= 5; revision++)
        assert_int_equal(revision_stands(w, ns, id, revision), revision == 1 || revision == 5);
    assert_true(done->control_objects_removed == 3);
    /* the boundary moves before the first delete; pointers go before records, segments last */
    const char *moved = strstr(trace, "put " SF_CATALOG_BOUNDARY_KEY);
    const char *pointer = strstr(trace, "remove catalog-replay-transport/");
    const char *record = strstr(trace, "remove catalog-log/");
    const char *segment = strstr(trace, "remove catalog-recovery-segments/");
    assert_true(moved != NULL && moved < strstr(trace, "remove "));
    assert_true(pointer < record && record < segment);
    assert_true(run(w, false)->records_removed == 0); /* nothing is left to do */
    /* a full recovery gives the same state, from either checkpoint */
    const char *dump = world_dump(w);
    world_rebuild(w);
    assert_string_equal(world_dump(w), dump);
    assert_string_equal(world_answers(w, ns), answers);
    assert_int_equal(
        sf_store_remove_wait(w->truth, NULL,
                             sf_view_str("catalog-checkpoints/checkpoint_00000000000000000002"
                                         ".manifest.json")),
        SF_OK);
    world_rebuild(w);
    assert_string_equal(world_dump(w), dump);
    /* without any checkpoint it fails closed */
    assert_int_equal(
        sf_store_remove_wait(w->truth, NULL,
                             sf_view_str("catalog-checkpoints/checkpoint_00000000000000000001"
                                         ".manifest.json")),
        SF_OK);
    world_stop(w);
    world_execute(w, "DELETE FROM catalog_lane_shards;");
    assert_int_equal(world_open(w), SF_ERR_CORRUPT);
    assert_non_null(strstr(w->diag.message, "no complete checkpoint"));
}

/* A removed key is new; a kept one gets its first answer. */
static void test_keys_after(void **state)
{
    struct world *w = *state;
    uint64_t ns, id;
    make_old(w, &ns, &id);
    /* a repeat: its record is remembered; it has left its lane when the next is answered */
    assert_non_null(update(w, ns, "u3", "u3"));
    const char *first = world_json(
        w, world_call(w, "PutCollectionMetadata", world_collection_request(w, "c1", ns, "books")));
    assert_non_null(run(w, false));
    assert_string_equal(world_json(w, world_call(w, "PutCollectionMetadata",
                                                 world_collection_request(w, "c1", ns, "books"))),
                        first);
    const SF_PB(PutCollectionMetadataResponse) *again = update(w, ns, "u3", "another payload");
    assert_non_null(again);
    assert_true(revision_stands(w, ns, id, 6));
    world_rebuild(w);
    const char *stored = world_json(w, again);
    assert_string_equal(world_json(w, update(w, ns, "u3", "another payload")), stored);
}

/* A removal that a crash cut after the row: the record answers nothing, a retry replaces it. */
static void test_half_removed(void **state)
{
    struct world *w = *state;
    uint64_t ns, id;
    make_old(w, &ns, &id);
    /* the boundary moves, the record of "u3" stays without its row */
    size_t records = world_list(w, "catalog-log/", NULL);
    SF_PB(RunRetentionRequest) request;
    searchfabric__v1__run_retention_request__init(&request);
    request.max_commands = 100;
    world_execute(w, "UPDATE catalog_replay_index SET applied_ts = 9223372036854775807"
                     " WHERE idempotency_key = 'u3'"); /* young: this round leaves it */
    assert_non_null(world_call(w, "RunRetention", &request));
    assert_int_equal(world_list(w, "catalog-log/", NULL), records - 2);
    world_execute(w, "DELETE FROM catalog_replay_index WHERE idempotency_key = 'u3'");
    const SF_PB(PutCollectionMetadataResponse) *again = update(w, ns, "u3", "another payload");
    assert_non_null(again);
    assert_true(revision_stands(w, ns, id, 6));
    const char *stored = world_json(w, again), *answers = world_answers(w, ns);
    world_rebuild(w);
    assert_string_equal(world_answers(w, ns), answers);
    assert_string_equal(world_json(w, update(w, ns, "u3", "another payload")), stored);
}

static const SF_PB(CheckCatalogResponse) * check(struct world *w, bool repair)
{
    SF_PB(CheckCatalogRequest) request;
    searchfabric__v1__check_catalog_request__init(&request);
    request.repair = repair;
    return world_call(w, "CheckCatalog", &request);
}

/* Such a record, its segment gone too: no round finds it; the check names it and removes it. */
static void test_leftover_checked(void **state)
{
    struct world *w = *state;
    uint64_t ns, id;
    make_old(w, &ns, &id);
    world_execute(w, "UPDATE catalog_replay_index SET applied_ts = 9223372036854775807"
                     " WHERE idempotency_key = 'u3'");
    assert_non_null(run(w, false));
    world_execute(w, "DELETE FROM catalog_replay_index WHERE idempotency_key = 'u3'");
    size_t records = world_list(w, "catalog-log/", NULL);
    assert_int_equal(run(w, false)->records_removed, 0);
    const SF_PB(CheckCatalogResponse) *told = check(w, false);
    assert_int_equal(told->problems, 0);
    assert_int_equal(told->n_findings, 1);
    assert_string_equal(told->findings[0]->kind, "record_expired");
    assert_int_equal(world_list(w, "catalog-log/", NULL), records);
    const SF_PB(CheckCatalogResponse) *done = check(w, true);
    assert_true(done->problems == 0 && done->harmless == 1 && done->findings[0]->repaired);
    assert_int_equal(world_list(w, "catalog-log/", NULL), records - 1);
    assert_int_equal(check(w, false)->repaired, 0);
}

/* Nothing goes while fewer than two checkpoints stand, or what is younger than the retention. */
static void test_stays(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    (void)world_collection(w, "c1", ns, "books");
    assert_non_null(update(w, ns, "u2", "2"));
    assert_non_null(update(w, ns, "u3", "3"));
    later(w, 31);
    size_t records = world_list(w, "catalog-log/", NULL);
    const SF_PB(RunRetentionResponse) *done = run(w, false);
    assert_true(done->records_removed == 0 && boundary(w) == 1);
    assert_non_null(strstr(done->kept_reason, "below the older of two kept checkpoints"));
    checkpoint(w);
    assert_true(run(w, false)->records_removed == 0 && boundary(w) == 1);
    assert_int_equal(world_list(w, "catalog-log/", NULL), records);
    checkpoint(w);
    assert_true(run(w, false)->records_removed == 1); /* u2 */
    /* the newest segment stands, though it is old too */
    struct sf_catalog_stats stats;
    struct sf_buf key = {0};
    sf_catalog_stats(w->catalog, &stats);
    sf_catalog_key_segment(&key, stats.newest_segment);
    assert_true(stands(w, &key));
    sf_buf_fini(&key);
    /* young commands stay */
    assert_non_null(update(w, ns, "u4", "4"));
    assert_non_null(update(w, ns, "u5", "5"));
    later(w, 29);
    checkpoint(w);
    checkpoint(w);
    assert_true(run(w, false)->records_removed == 1); /* u3, superseded since; not u4 */
    assert_non_null(update(w, ns, "u4", "4"));
    assert_int_equal(w->diag.err, SF_OK);
}

/* An owner that was taken over from removes nothing. */
static void test_deposed(void **state)
{
    struct world *w = *state;
    uint64_t ns, id;
    make_old(w, &ns, &id);
    world_depose(w);
    size_t all = world_list(w, "", NULL);
    assert_null(run(w, false));
    assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
    assert_int_equal(world_list(w, "", NULL), all);
    assert_true(boundary(w) == 1);
}

/* A projection whose watermark lies below the boundary is rebuilt. */
static void test_left_behind(void **state)
{
    struct world *w = *state;
    uint64_t ns, id;
    make_old(w, &ns, &id);
    assert_non_null(run(w, false));
    const char *answers = world_answers(w, ns);
    world_stop(w);
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    struct sf_sql_stmt *stmt;
    assert_int_equal(
        sf_sql_prepare(conn, "UPDATE catalog_lane_shards SET watermark = ?1", &w->diag, &stmt),
        SF_OK);
    sf_sql_bind_u64(stmt, 1, 1);
    assert_int_equal(sf_sql_run(stmt, &w->diag, NULL), SF_OK);
    sf_sql_release(conn);
    assert_int_equal(world_open(w), SF_OK);
    struct sf_catalog_stats stats;
    sf_catalog_stats(w->catalog, &stats);
    assert_true(stats.rebuilt);
    assert_string_equal(world_answers(w, ns), answers);
}

static const SF_PB(CatalogRemovalsObject) * removals(struct world *w)
{
    return world_object(w, SF_CATALOG_REMOVALS_KEY,
                        &searchfabric__v1__catalog_removals_object__descriptor);
}

/* Puts the list as an owner of that epoch left it. */
static void leave_removals(struct world *w, uint64_t owner_epoch, const char *identity)
{
    SF_PB(CatalogRemovalsObject) object;
    struct sf_catalog_put put = {0};
    struct sf_put once;
    char *identities[1] = {(char *)(uintptr_t)identity};
    searchfabric__v1__catalog_removals_object__init(&object);
    object.format_version = 1;
    object.attempt_id = "other";
    object.owner_epoch = owner_epoch;
    object.n_command_identities = identity == NULL ? 0 : 1;
    object.command_identities = identities;
    sf_buf_append_str(&put.key, SF_CATALOG_REMOVALS_KEY);
    sf_catalog_put_encode(&put, &object.base, false, NULL);
    enum sf_err err = sf_store_remove_wait(w->truth, NULL, sf_buf_view(&put.key));
    assert_true(err == SF_OK || err == SF_ERR_NOT_FOUND);
    sf_catalog_put_fill(&put, 0, 0, &once);
    assert_int_equal(sf_store_put_wait(w->truth, NULL, &once), SF_OK);
    sf_catalog_put_fini(&put);
}

/* The list stands before the first delete and is empty after the round. */
static void test_listed(void **state)
{
    struct world *w = *state;
    uint64_t ns, id;
    make_old(w, &ns, &id);
    world_trace(w);
    assert_non_null(run(w, false));
    const char *trace = world_traced(w);
    const char *listed = strstr(trace, "put " SF_CATALOG_REMOVALS_KEY);
    assert_true(strstr(trace, "put " SF_CATALOG_BOUNDARY_KEY) < listed);
    assert_true(listed < strstr(trace, "remove "));
    assert_non_null(strstr(strstr(trace, "remove "), "put " SF_CATALOG_REMOVALS_KEY));
    assert_true(removals(w)->n_command_identities == 0 && removals(w)->n_business_keys == 0);
    assert_true(removals(w)->owner_epoch > 0);
}

/* A new owner leaves alone what an elder one was removing, for an hour; it says until when. */
static void test_listed_by_elder(void **state)
{
    struct world *w = *state;
    uint64_t ns, id;
    make_old(w, &ns, &id);
    char identity[SF_SHA256_HEX_BYTES];
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    struct sf_sql_stmt *stmt;
    bool row = false;
    assert_int_equal(sf_sql_prepare(conn,
                                    "SELECT command_identity FROM catalog_replay_index"
                                    " WHERE idempotency_key = 'u3'",
                                    &w->diag, &stmt),
                     SF_OK);
    assert_int_equal(sf_sql_step(stmt, &w->diag, &row), SF_OK);
    assert_true(row);
    struct sf_view text = sf_sql_col_text(stmt, 0);
    snprintf(identity, sizeof(identity), "%.*s", (int)text.len, (const char *)text.ptr);
    sf_sql_finish(stmt);
    sf_sql_release(conn);
    world_stop(w);
    leave_removals(w, 1, identity);
    assert_int_equal(world_open(w), SF_OK);
    assert_true(removals(w)->owner_epoch > 1 && removals(w)->n_command_identities == 1);
    assert_null(update(w, ns, "u3", "u3"));
    assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
    assert_string_equal(sf_diag_get(&w->diag, "retry_after_ms"), "3600000");
    (void)world_collection(w, "c2", ns, "young"); /* others are answered */
    /* its own rounds go on and list the key again */
    assert_int_equal(run(w, false)->records_removed, 2);
    assert_true(removals(w)->n_command_identities == 1);
    sf_clock_manual_advance(&w->clock, SF_CATALOG_DELETE_DOUBT_MS - 1);
    assert_null(update(w, ns, "u3", "u3"));
    assert_string_equal(sf_diag_get(&w->diag, "retry_after_ms"), "100");
    sf_clock_manual_advance(&w->clock, 1);
    assert_int_equal(run(w, false)->records_removed, 1);
    assert_true(removals(w)->n_command_identities == 0);
    assert_non_null(update(w, ns, "u3", "a new key"));
}

/* The list of a newer owner: nothing is removed. */
static void test_listed_by_newer(void **state)
{
    struct world *w = *state;
    uint64_t ns, id;
    make_old(w, &ns, &id);
    leave_removals(w, 1000000, NULL);
    size_t records = world_list(w, "catalog-log/", NULL);
    assert_null(run(w, false));
    assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
    assert_int_equal(world_list(w, "catalog-log/", NULL), records);
    assert_true(removals(w)->owner_epoch == 1000000);
}

/* A store that nothing was ever removed from gets no list, one held exclusively neither. */
static void test_not_listed(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    world_rebuild(w);
    assert_non_null(run(w, false));
    assert_true(ns != 0);
    assert_int_equal(world_list(w, SF_CATALOG_REMOVALS_KEY, NULL), 0);
}

/* Deletes in doubt are bounded: at the bound no further removal begins. */
static void test_doubts_bounded(void **state)
{
    struct world *w = *state;
    char key[24];
    for (int i = 0; i < SF_CATALOG_DELETES_IN_DOUBT - 1; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        sf_catalog_claim_doubt(w->catalog, key);
    }
    assert_true(sf_catalog_claim_removal(w->catalog, "a"));
    sf_catalog_unclaim_removal(w->catalog, "a", true);
    assert_false(sf_catalog_claim_removal(w->catalog, "b"));
    assert_true(sf_catalog_claim_command(w->catalog, "b"));
    sf_catalog_unclaim_command(w->catalog, "b");
    sf_clock_manual_advance(&w->clock, SF_CATALOG_DELETE_DOUBT_MS);
    assert_true(sf_catalog_claim_removal(w->catalog, "b"));
    sf_catalog_unclaim_removal(w->catalog, "b", false);
}

/* A removal and a retry of the same command exclude each other; a delete in doubt bars its key. */
static void test_claims(void **state)
{
    struct world *w = *state;
    assert_true(sf_catalog_claim_command(w->catalog, "a"));
    assert_true(sf_catalog_claim_command(w->catalog, "a"));
    assert_false(sf_catalog_claim_removal(w->catalog, "a"));
    sf_catalog_unclaim_command(w->catalog, "a");
    assert_false(sf_catalog_claim_removal(w->catalog, "a"));
    sf_catalog_unclaim_command(w->catalog, "a");
    assert_true(sf_catalog_claim_removal(w->catalog, "a"));
    assert_false(sf_catalog_claim_command(w->catalog, "a"));
    assert_true(sf_catalog_claim_command(w->catalog, "b"));
    sf_catalog_unclaim_command(w->catalog, "b");
    sf_catalog_unclaim_removal(w->catalog, "a", true);
    assert_false(sf_catalog_claim_command(w->catalog, "a"));
    assert_false(sf_catalog_claim_removal(w->catalog, "a"));
    sf_clock_manual_advance(&w->clock, SF_CATALOG_DELETE_DOUBT_MS - 1);
    assert_false(sf_catalog_claim_command(w->catalog, "a"));
    sf_clock_manual_advance(&w->clock, 1);
    assert_true(sf_catalog_claim_command(w->catalog, "a"));
    sf_catalog_unclaim_command(w->catalog, "a");
}

/* The job asks nothing while nothing can be too old. */
static void test_job_idles(void **state)
{
    struct world *w = *state;
    SF_PB(RunCatalogJobRequest) request;
    uint64_t ns, id;
    searchfabric__v1__run_catalog_job_request__init(&request);
    request.name = "retention";
    make_old(w, &ns, &id);
    const SF_PB(RunCatalogJobResponse) *response = world_call(w, "RunCatalogJob", &request);
    assert_non_null(response);
    assert_true(response->done > 3);
    for (int rounds = 0; response->done != 0; rounds++) { /* until one finds nothing to do */
        assert_true(rounds < 5);
        response = world_call(w, "RunCatalogJob", &request);
        assert_non_null(response);
    }
    uint64_t gets = atomic_load(&w->wire.gets), lists = atomic_load(&w->wire.lists);
    assert_non_null(world_call(w, "RunCatalogJob", &request));
    assert_true(gets == atomic_load(&w->wire.gets) && lists == atomic_load(&w->wire.lists));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_broken_row_stays_alone, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_round, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_keys_after, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_half_removed, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_leftover_checked, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_stays, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_deposed, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_left_behind, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_listed, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_listed_by_elder, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_listed_by_newer, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_not_listed, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_not_listed, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_doubts_bounded, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_claims, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_job_idles, world_setup, world_teardown),
    };
    return SF_RUN_TESTS("catalog_retention", tests);
}
