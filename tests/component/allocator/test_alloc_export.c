/* The operational export: what its rows say, and that nothing depends on it, on each database. */
#include "component/allocator/alloc_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "searchfabric/v1/allocator_operations_private.pb-c.h"
#include "support/sqlserver.h"

#define DAY INT64_C(86400000)

static struct result r; /* of the running test */
static struct sf_test_sql place;

static int setup(void **state)
{
    int rc = world_setup(state);

    sf_test_sql_make(&place, false);
    return rc;
}

static int teardown(void **state)
{
    result_fini(&r);
    r = (struct result){0};
    int rc = world_teardown(state);
    sf_test_sql_drop(&place);
    return rc;
}

static struct process *start_exporting(struct world *w)
{
    w->artifacts = (struct sf_allocator_artifacts){.export_where = &place.where};
    return world_start(w);
}

/* First column of the first row. */
static const char *raw(const char *sql)
{
    static char out[512];

    if (!sf_test_sql_raw(&place, sql, out, sizeof(out)))
        fail_msg("%s: %s", sql, out);
    return out;
}

static void expect(const char *sql, const char *value)
{
    assert_string_equal(raw(sql), value);
}

/* Every value of every row, in order. */
static void dump(struct sf_buf *out)
{
    static const struct {
        const char *table, *key, *columns[17];
    } tables[] = {
        {"alloc_export_collections",
         "namespace_id, collection_id",
         {"namespace_id", "collection_id", "next_doc_id", "allocation_epoch",
          "allocator_state_version", "owner_id", "updated_at_unix_ms"}},
        {"alloc_export_allocations",
         "transport_lookup_key",
         {"transport_lookup_key", "namespace_id", "collection_id", "idempotency_key", "client_id",
          "client_kind", "authenticated_client_identity_hash", "schema_generation_token",
          "item_count", "issued_count", "lowest_doc_id", "highest_doc_id", "allocation_epoch",
          "allocator_state_version", "lease_epoch", "applied_at_unix_ms"}}};
    char sql[256];

    for (size_t t = 0; t < SF_ARRAY_LEN(tables); t++) {
        (void)snprintf(sql, sizeof(sql), "SELECT COUNT(*) FROM %s", tables[t].table);
        long rows = strtol(raw(sql), NULL, 10);
        for (long row = 0; row < rows; row++)
            for (size_t c = 0; tables[t].columns[c] != NULL; c++) {
                (void)snprintf(sql, sizeof(sql), "SELECT %s FROM %s ORDER BY %s LIMIT 1 OFFSET %ld",
                               tables[t].columns[c], tables[t].table, tables[t].key, row);
                sf_buf_printf(out, "%s=%s;", tables[t].columns[c], raw(sql));
            }
    }
}

struct rebuilt {
    bool done;
    enum sf_err err;
    uint64_t collections, allocations, broken;
};

static void rebuild_done(void *user, const struct sf_diag *diag, const ProtobufCMessage *message)
{
    struct rebuilt *out = user;

    out->done = true;
    out->err = diag->err;
    if (message == NULL)
        return;
    const Searchfabric__V1__RebuildAllocatorExportResponse *m = (const void *)message;
    out->collections = m->collections;
    out->allocations = m->allocations;
    out->broken = m->broken;
}

static struct rebuilt rebuild(struct process *p)
{
    Searchfabric__V1__RebuildAllocatorExportRequest request =
        SEARCHFABRIC__V1__REBUILD_ALLOCATOR_EXPORT_REQUEST__INIT;
    struct rebuilt out = {0};

    sf_channel_unary(p->operations, "/" SF_ALLOCATOR_OPERATIONS_NAME "/RebuildAllocatorExport",
                     &request.base, &(struct sf_call_options){0}, &p->world->loop.base,
                     rebuild_done, &out);
    manual_loop_run(&p->world->loop);
    assert_true(out.done);
    return out;
}

#define ROW_OF(key) "FROM alloc_export_allocations WHERE idempotency_key = '" key "'"

static void test_off_by_default(void **state)
{
    struct world *w = *state;
    char out[256];
    SF_PROVES("ALLOC-8-01");

    allocate_ok(&w->processes[0], &r, "a", PLAN(ISSUE));
    world_settle(w);
    assert_false(
        sf_test_sql_raw(&place, "SELECT COUNT(*) FROM alloc_export_allocations", out, sizeof(out)));
    assert_int_equal(rebuild(&w->processes[0]).err, SF_BAD_REQUEST);
}

static void test_rows(void **state)
{
    struct world *w = *state;
    struct process *p = start_exporting(w);
    SF_PROVES("ALLOC-8-01", "ALLOC-8-06");

    allocate_ok(p, &r, "a", PLAN(ISSUE, ISSUE, 9));
    allocate_ok(p, &r, "b", PLAN(UINT64_C(1000)));
    allocate(p, &r, "c", PLAN(3));
    expect_err(&r, SF_VERSION_CONFLICT);
    world_settle(w);
    expect("SELECT COUNT(*) FROM alloc_export_collections", "1");
    expect("SELECT next_doc_id FROM alloc_export_collections", "1001");
    expect("SELECT COUNT(*) FROM alloc_export_allocations", "2");
    expect("SELECT item_count " ROW_OF("a"), "3");
    expect("SELECT issued_count " ROW_OF("a"), "2");
    expect("SELECT schema_generation_token " ROW_OF("b"), "tok-1");
    allocate_ok(p, &r, "d", PLAN(ISSUE));
    world_settle(w);
    expect("SELECT next_doc_id FROM alloc_export_collections", "1002");
    assert_true(metrics_have(p, "searchfabric_id_allocator_artifact_entries_total{artifact="
                                "\"export\",result=\"written\"} 6"));
}

static void test_retention_takes_rows_along(void **state)
{
    struct world *w = *state;

    w->replay_retention_ms = 7 * DAY;
    w->run_retention = true;
    struct process *p = start_exporting(w);
    allocate_ok(p, &r, "a", PLAN(ISSUE));
    allocate_ok(p, &r, "b", PLAN(ISSUE));
    world_settle(w);
    for (unsigned i = 0; i < 9; i++)
        manual_loop_advance(&w->loop, DAY);
    world_settle(w);
    expect("SELECT COUNT(*) FROM alloc_export_allocations", "1");
    expect("SELECT COUNT(*) " ROW_OF("b"), "1");
}

static void test_rebuild_makes_the_same_rows(void **state)
{
    struct world *w = *state;
    struct process *p = start_exporting(w);
    struct sf_buf before = {0};
    struct sf_buf after = {0};
    SF_PROVES("ALLOC-8-02");

    for (unsigned i = 0; i < 5; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%u", i);
        call_run(p, &r,
                 &(struct call_spec){.key = key,
                                     .collection_id = 1 + i % 2,
                                     .items = (const uint64_t[]){ISSUE, 100 * i + 7},
                                     .count = 2});
        assert_int_equal(r.diag.err, SF_OK);
    }
    struct sf_put put = {.key = sf_view_str("id-allocator/replay-success/00/forged.json"),
                         .body = sf_view_str("{}"),
                         .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->backend, NULL, &put), SF_OK);
    world_settle(w);
    dump(&before);
    assert_true(before.len > 1000);
    (void)raw("DROP TABLE alloc_export_allocations");
    allocate_ok(p, &r, "without", PLAN(ISSUE)); /* nobody waits for the table */
    world_settle(w);
    struct rebuilt out = rebuild(p);
    assert_int_equal(out.err, SF_OK);
    assert_int_equal(out.collections, 3);
    assert_int_equal(out.allocations, 6);
    assert_int_equal(out.broken, 1);
    (void)raw("DELETE FROM alloc_export_allocations WHERE idempotency_key = 'without'");
    (void)raw("DELETE FROM alloc_export_collections WHERE next_doc_id = '1'");
    dump(&after);
    assert_true(sf_view_equal(sf_buf_view(&before), sf_buf_view(&after)));
    allocate_ok(p, &r, "later", PLAN(ISSUE)); /* and it is filled further */
    world_settle(w);
    expect("SELECT COUNT(*) " ROW_OF("later"), "1");
    sf_buf_fini(&before);
    sf_buf_fini(&after);
}

/* ---- nothing depends on it ---- */

static void no_harm(struct world *w)
{
    (void)w;
}

static void poison(struct world *w)
{
    static unsigned turn;

    (void)w;
    (void)raw(turn++ % 2 == 0 ? "UPDATE alloc_export_collections SET next_doc_id = '0'"
                              : "UPDATE alloc_export_collections SET next_doc_id = '9000000'");
    (void)raw("UPDATE alloc_export_allocations SET item_count = 77, idempotency_key = 'k8'");
}

/* Gone from the first answer on. */
static void drop_tables(struct world *w)
{
    char out[256];

    (void)w;
    (void)sf_test_sql_raw(&place, "DROP TABLE alloc_export_collections", out, sizeof(out));
    (void)sf_test_sql_raw(&place, "DROP TABLE alloc_export_allocations", out, sizeof(out));
}

/* Its writer, and every other artifact's, takes work and never does any. */
static void hang(struct world *w)
{
    w->sched_hangs = true;
}

/* Answers and their latencies, to the nanosecond of the world's clock, are those of a run without
 * any artifact. */
static void expect_same_answers(void (*harm)(struct world *w))
{
    struct sf_buf plain = {0};
    struct sf_buf harmed = {0};
    void *state = NULL;

    assert_int_equal(world_setup(&state), 0);
    struct world *w = state;
    world_run_script(w, world_start(w), no_harm, &plain);
    assert_int_equal(world_teardown(&state), 0);
    assert_int_equal(world_setup(&state), 0);
    w = state;
    w->artifacts = (struct sf_allocator_artifacts){
        .failure_audit = true, .recovery_segments = true, .export_where = &place.where};
    if (harm == hang)
        w->sched_hangs = true;
    world_run_script(w, world_start(w), harm, &harmed);
    assert_int_equal(world_teardown(&state), 0);
    assert_true(plain.len > 1000);
    assert_true(sf_view_equal(sf_buf_view(&plain), sf_buf_view(&harmed)));
    sf_buf_fini(&plain);
    sf_buf_fini(&harmed);
}

static void test_a_poisoned_export_changes_nothing(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-7.1-12", "ALLOC-8-03");
    expect_same_answers(poison);
}

static void test_a_dropped_export_changes_nothing(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-7.1-06", "ALLOC-7.1-13", "ALLOC-8-05");
    expect_same_answers(drop_tables);
}

static void test_a_hung_export_changes_nothing(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-7.1-13", "ALLOC-8-04", "ALLOC-8-05");
    expect_same_answers(hang);
}

/* A database that cannot be reached: entries are lost and counted, one try every five seconds. */
static void test_a_database_that_is_away(void **state)
{
    struct world *w = *state;
    struct sf_sql_options away = place.where;
    SF_PROVES("ALLOC-8-04", "ALLOC-8-05");

    away.kind = SF_SQL_SQLITE;
    away.path = "/nonexistent/export.sqlite";
    w->artifacts = (struct sf_allocator_artifacts){.export_where = &away};
    struct process *p = world_start(w);
    allocate_ok(p, &r, "a", PLAN(ISSUE));
    world_settle(w);
    assert_true(metrics_have(p, "searchfabric_id_allocator_artifact_entries_total{artifact="
                                "\"export\",result=\"failed\"} 2"));
    assert_int_equal(rebuild(p).err, SF_BACKEND_UNAVAILABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_off_by_default, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_retention_takes_rows_along, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rebuild_makes_the_same_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_poisoned_export_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_dropped_export_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_hung_export_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_database_that_is_away, setup, teardown),
    };
    return SF_RUN_TESTS("alloc_export", tests);
}
