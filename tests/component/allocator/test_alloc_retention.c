/* What the retention removes, what it keeps, and what a late delete must not reach. */
#include "component/allocator/alloc_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_rules.h"
#include "base/limits.h"
#include "base/mutant.h"
#include "searchfabric/v1/allocator_operations_private.pb-c.h"

#define DAY   INT64_C(86400000)
#define HOUR  INT64_C(3600000)
#define ARENA ((size_t)64 << 20)

static struct result r, r2; /* of the running test */

static int setup(void **state)
{
    int rc = world_setup(state);
    struct world *w = *state;

    w->replay_retention_ms = 7 * DAY;
    (void)world_start(w); /* processes[1] has the window */
    return rc;
}

static int teardown(void **state)
{
    result_fini(&r);
    result_fini(&r2);
    r = (struct result){0};
    r2 = (struct result){0};
    return world_teardown(state);
}

static void later(struct world *w, int64_t ms)
{
    sf_clock_manual_advance(&w->loop.clock, ms);
}

/* ---- a round by hand ---- */

struct round {
    bool done;
    enum sf_err err;
    uint64_t examined, results, artifacts, needed, without_state, in_doubt, broken, keyless;
    char next_cursor[256];
};

static void round_done(void *user, const struct sf_diag *diag, const ProtobufCMessage *message)
{
    struct round *round = user;

    round->done = true;
    round->err = diag->err;
    if (message == NULL)
        return;
    const Searchfabric__V1__RunAllocatorRetentionResponse *m = (const void *)message;
    round->examined = m->objects_examined;
    round->results = m->results_removed;
    round->artifacts = m->artifacts_removed;
    round->needed = m->kept_needed;
    round->without_state = m->kept_without_state;
    round->in_doubt = m->kept_in_doubt;
    round->broken = m->broken;
    round->keyless = m->receipts_without_key;
    (void)snprintf(round->next_cursor, sizeof(round->next_cursor), "%s", m->next_cursor);
}

static struct round ask(struct process *p, bool dry_run, uint64_t max, const char *cursor)
{
    Searchfabric__V1__RunAllocatorRetentionRequest request =
        SEARCHFABRIC__V1__RUN_ALLOCATOR_RETENTION_REQUEST__INIT;
    struct round round = {0};

    request.dry_run = dry_run;
    request.max_objects = max;
    request.cursor = (char *)cursor;
    sf_channel_unary(p->operations, "/" SF_ALLOCATOR_OPERATIONS_NAME "/RunAllocatorRetention",
                     &request.base, &(struct sf_call_options){0}, &p->world->loop.base, round_done,
                     &round);
    manual_loop_run(&p->world->loop);
    assert_true(round.done);
    return round;
}

static struct round run(struct process *p)
{
    struct round round = ask(p, false, 0, "");

    assert_int_equal(round.err, SF_OK);
    assert_string_equal(round.next_cursor, "");
    return round;
}

static bool result_stands(struct world *w, const char *key)
{
    struct sf_arena *arena = sf_arena_new(ARENA);
    bool stands = world_replay(w, key, arena) != NULL;

    sf_arena_destroy(arena);
    return stands;
}

/* ---- the window ---- */

static void test_the_window_decides(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[1];
    SF_PROVES("ALLOC-10.3-01", "ALLOC-10.3-02", "ALLOC-10.3-03");

    allocate_ok(p, &r, "old", PLAN(ISSUE));
    later(w, DAY);
    allocate_ok(p, &r, "new", PLAN(ISSUE));
    w->facts.exists = false; /* released in the catalog: that removes nothing */
    later(w, 6 * DAY - 1);
    struct round round = run(p);
    assert_int_equal(round.results, 0);
    assert_true(result_stands(w, "old"));
    later(w, 2);
    round = ask(p, true, 0, "");
    assert_int_equal(round.results, 1);
    assert_true(result_stands(w, "old")); /* a dry run */
    round = run(p);
    assert_int_equal(round.results, 1);
    assert_false(result_stands(w, "old"));
    assert_true(result_stands(w, "new"));
    w->facts.exists = true; /* the catalog shows it again: the window decides all the same */
    assert_int_equal(run(p).results, 0);
    allocate_ok(p, &r2, "new", PLAN(ISSUE));
    expect_same(&r, &r2);
    /* the key is new, its old id stays burned, the state object stands */
    allocate_ok(p, &r, "old", PLAN(ISSUE));
    EXPECT_IDS(&r, 2);
}

static void test_a_remembered_answer_is_forgotten_first(void **state)
{
    struct world *w = *state;
    struct process *a = &w->processes[1];
    SF_PROVES("ALLOC-10.3-03");

    allocate_ok(a, &r, "k", PLAN(ISSUE));
    allocate_ok(a, &r, "top", PLAN(ISSUE));
    later(w, 7 * DAY + 1);
    struct process *b = world_start(w);
    assert_int_equal(run(b).results, 1);
    allocate_ok(b, &r, "k", PLAN(7));
    allocate(a, &r2, "k", PLAN(7)); /* a still held the answer of then */
    if (r2.diag.err == SF_OK)
        expect_same(&r, &r2);
    else
        expect_err(&r2, SF_BACKEND_UNAVAILABLE);
}

/* ---- what a collection needs ---- */

static void plant_pending(struct world *w, const char *key)
{
    struct sf_arena *arena = sf_arena_new(ARENA);
    Searchfabric__V1__AllocatorStateObject *object = world_state(w, COLL, arena);
    Searchfabric__V1__AllocatorReplaySuccessObject *record = world_replay(w, key, arena);
    struct sf_buf object_key = {0};
    struct sf_buf body = {0};

    assert_non_null(object);
    object->pending_applies = &record;
    object->n_pending_applies = record == NULL ? 0 : 1;
    sf_alloc_state_key((struct sf_collection_ref){{NS}, {COLL}}, &object_key);
    sf_durable_encode(&object->base, &body, NULL);
    struct sf_put put = {
        .key = sf_buf_view(&object_key), .body = sf_buf_view(&body), .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->backend, NULL, &put), SF_OK);
    sf_buf_fini(&object_key);
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
}

static void test_needed_results_stay(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[1];
    SF_PROVES("ALLOC-10.3-03");

    allocate_ok(p, &r, "pending", PLAN(3));
    allocate_ok(p, &r, "gone", PLAN(ISSUE));
    allocate_ok(p, &r, "top", PLAN(9));
    plant_pending(w, "pending");
    later(w, 30 * DAY);
    struct round round = run(p);
    assert_int_equal(round.results, 1);
    assert_int_equal(round.needed, 2);
    assert_true(result_stands(w, "pending") && result_stands(w, "top"));
    assert_false(result_stands(w, "gone"));
    plant_pending(w, "nothing");
    round = run(p);
    assert_int_equal(round.results, 1);
    assert_true(result_stands(w, "top")); /* tells of the watermark when the state object is lost */
}

/* The state records a lease from `start` to 100. */
static void plant_lease(struct world *w, const char *start)
{
    struct sf_arena *arena = sf_arena_new(ARENA);
    Searchfabric__V1__AllocatorLease lease = SEARCHFABRIC__V1__ALLOCATOR_LEASE__INIT;
    struct sf_buf key = {0};
    struct sf_buf body = {0};

    Searchfabric__V1__AllocatorStateObject *object = world_state(w, COLL, arena);
    lease.range_start = (char *)start;
    lease.range_end = (char *)"100";
    object->next_doc_id = (char *)"100";
    object->lease = &lease;
    sf_alloc_state_key((struct sf_collection_ref){{NS}, {COLL}}, &key);
    sf_durable_encode(&object->base, &body, NULL);
    struct sf_put put = {.key = sf_buf_view(&key), .body = sf_buf_view(&body), .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->backend, NULL, &put), SF_OK);
    sf_buf_fini(&key);
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
}

/* A recorded lease ends above every result; the newest one of it stays, or where nothing of it was
 * handed out yet, the one that it follows. */
static void test_newest_of_a_lease_stays(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[1];

    for (unsigned i = 0; i < 4; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "k%u", i);
        allocate_ok(p, &r, name, PLAN(ISSUE));
    }
    plant_lease(w, "1");
    later(w, 8 * DAY);
    struct round round = run(p);
    assert_int_equal(round.results, 3);
    assert_int_equal(round.needed, 1);
    assert_true(result_stands(w, "k3"));
    plant_lease(w, "4");
    round = run(p);
    assert_int_equal(round.results, 0);
    assert_int_equal(round.needed, 1);
    assert_true(result_stands(w, "k3"));
}

static void test_without_state_everything_stays(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[1];
    struct sf_buf key = {0};
    SF_PROVES("ALLOC-10.3-03");

    allocate_ok(p, &r, "a", PLAN(ISSUE));
    allocate_ok(p, &r, "b", PLAN(ISSUE));
    sf_alloc_state_key((struct sf_collection_ref){{NS}, {COLL}}, &key);
    later(w, 30 * DAY);
    struct sf_put put = {.key = sf_buf_view(&key), .body = sf_view_str("{}"), .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->backend, NULL, &put), SF_OK);
    struct round round = run(p);
    assert_int_equal(round.without_state, 2);
    assert_int_equal(sf_store_remove_wait(w->backend, NULL, sf_buf_view(&key)), SF_OK);
    round = run(p);
    assert_int_equal(round.without_state, 2);
    assert_int_equal(round.results, 0);
    assert_int_equal(world_replay_count(w), 2);
    sf_buf_fini(&key);
}

static void test_broken_objects_stay(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[1];

    allocate_ok(p, &r, "a", PLAN(ISSUE));
    allocate_ok(p, &r, "b", PLAN(ISSUE));
    struct sf_put put = {.key = sf_view_str("id-allocator/replay-success/00/forged.json"),
                         .body = sf_view_str("{\"applied_at_unix_ms\":\"1\"}"),
                         .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->backend, NULL, &put), SF_OK);
    later(w, 8 * DAY);
    struct round round = run(p);
    assert_int_equal(round.broken, 1);
    assert_int_equal(round.results, 1);
    assert_int_equal(sf_store_remove_wait(w->backend, NULL, put.key), SF_OK);
}

/* A key that was taken out of the ring too early is told. */
static void test_receipt_keys_are_watched(void **state)
{
    struct world *w = *state;

    allocate_ok(&w->processes[1], &r, "a", PLAN(ISSUE));
    assert_int_equal(run(&w->processes[1]).keyless, 0);
    struct sf_keyring *old = w->keyring;
    w->keyring = sf_keyring_new_for_test(2);
    assert_int_equal(run(world_start(w)).keyless, 1);
    for (unsigned i = 0; i < w->process_count; i++)
        world_kill(&w->processes[i]);
    sf_keyring_destroy(old);
}

/* ---- bounded, resumable, in the background ---- */

static void test_rounds_go_on_at_a_cursor(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[1];
    uint64_t examined = 0, results = 0;
    struct round round = {0};
    unsigned rounds = 0;

    for (unsigned i = 0; i < 20; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%u", i);
        allocate_ok(p, &r, key, PLAN(ISSUE));
    }
    later(w, 8 * DAY);
    do {
        round = ask(p, false, 6, round.next_cursor);
        assert_int_equal(round.err, SF_OK);
        assert_true(round.examined <= 6);
        examined += round.examined;
        results += round.results;
        rounds++;
    } while (round.next_cursor[0] != '\0');
    assert_int_equal(examined, 20);
    assert_int_equal(results, 19);
    assert_true(rounds >= 4);
}

static void test_the_background_keeps_the_window(void **state)
{
    struct world *w = *state;

    world_kill(&w->processes[1]);
    w->run_retention = true;
    w->artifacts.failure_audit = true;
    w->artifacts.recovery_segments = true;
    struct process *p = world_start(w);
    allocate(p, &r, "bad", NULL, 0);
    for (unsigned i = 0; i < 3; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%u", i);
        allocate_ok(p, &r, key, PLAN(ISSUE));
        manual_loop_advance(&w->loop, DAY);
    }
    for (unsigned i = 0; i < 3; i++)
        manual_loop_advance(&w->loop, DAY);
    script_store_reset_counts(w->script);
    assert_int_equal(world_replay_count(w), 3);
    /* nothing is due before the first result is 7 days old: the store is not asked */
    manual_loop_advance(&w->loop, DAY / 2);
    assert_int_equal(script_store_counts(w->script).replay_gets, 0);
    for (unsigned i = 0; i < 4 * 5; i++)
        manual_loop_advance(&w->loop, DAY / 4);
    assert_int_equal(world_replay_count(w), 1); /* the newest */
    assert_true(metrics_have(p, "searchfabric_id_allocator_retention_objects_total{outcome="
                                "\"result_removed\"} 2"));
    struct sf_arena *arena = sf_arena_new(ARENA);
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    assert_int_equal(sf_store_list_wait(w->backend, NULL,
                                        sf_view_str("id-allocator/failure-audit/"),
                                        (struct sf_view){0}, 10, arena, &entries, &count),
                     SF_OK);
    assert_int_equal(count, 0);
    assert_int_equal(sf_store_list_wait(w->backend, NULL,
                                        sf_view_str("id-allocator/recovery-segments/"),
                                        (struct sf_view){0}, 10, arena, &entries, &count),
                     SF_OK);
    assert_int_equal(count, 1); /* numbering goes on at the newest */
    sf_arena_destroy(arena);
}

/* ---- deletes that land late ---- */

static enum script_fate remove_late(void *ctx, struct sf_view key)
{
    unsigned *deletes = ctx;

    (void)key;
    ++*deletes;
    return SCRIPT_LATE;
}

/* A delete in doubt is not sent again while it may land: within an hour by the same process, and by
 * another one, or the same after a crash, that finds it listed. */
static void test_one_delete_at_a_time(void **state)
{
    struct world *w = *state;
    struct process *a = &w->processes[1];
    unsigned deletes = 0;
    SF_PROVES("ALLOC-10.3-03");

    allocate_ok(a, &r, "k", PLAN(ISSUE));
    allocate_ok(a, &r, "top", PLAN(ISSUE));
    later(w, 7 * DAY + 1);
    script_store_on_remove(w->script, remove_late, &deletes);
    assert_int_equal(run(a).in_doubt, 1);
    assert_int_equal(run(a).in_doubt, 1);
    struct process *b = world_start(w);
    assert_int_equal(run(b).in_doubt, 1);
    later(w, HOUR - 1000);
    assert_int_equal(run(a).in_doubt, 1);
    assert_int_equal(run(b).in_doubt, 1);
    assert_int_equal(deletes, 1);
    /* it lands; the key is used again; nothing is on its way to the new result */
    assert_int_equal(script_store_land_late(w->script), 1);
    allocate_ok(b, &r, "k", PLAN(ISSUE));
    later(w, HOUR);
    script_store_on_remove(w->script, NULL, NULL);
    assert_int_equal(run(a).results, 1); /* "top", which carries the watermark no more */
    assert_int_equal(run(b).results, 0);
    assert_int_equal(script_store_land_late(w->script), 0);
    allocate_ok(world_start(w), &r2, "k", PLAN(ISSUE));
    expect_same(&r, &r2);
}

/* Once the hour is over, another one is sent. */
static void test_a_lost_delete_is_sent_again(void **state)
{
    struct world *w = *state;
    struct process *a = &w->processes[1];
    unsigned deletes = 0;

    allocate_ok(a, &r, "k", PLAN(ISSUE));
    allocate_ok(a, &r, "top", PLAN(ISSUE));
    later(w, 7 * DAY + 1);
    script_store_on_remove(w->script, remove_late, &deletes);
    assert_int_equal(run(a).in_doubt, 1);
    later(w, HOUR + 1);
    script_store_on_remove(w->script, NULL, NULL);
    assert_int_equal(run(a).results, 1);
    assert_false(result_stands(w, "k"));
}

static enum script_fate crash_and_deletes(void *ctx, struct sf_view key)
{
    struct world *w = ctx;

    (void)key;
    later(w, 2 * 60000); /* it was suspended right after the first delete */
    return SCRIPT_APPLY;
}

/* A process that was away for more than a minute sends no further delete of its batch. */
static void test_a_suspended_process_stops(void **state)
{
    struct world *w = *state;
    struct process *a = &w->processes[1];

    for (unsigned i = 0; i < 5; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%u", i);
        allocate_ok(a, &r, key, PLAN(ISSUE));
    }
    later(w, 8 * DAY);
    script_store_on_remove(w->script, crash_and_deletes, w);
    assert_int_equal(run(a).results, 1);
    assert_int_equal(world_replay_count(w), 4);
    assert_int_equal(run(a).results, 1); /* under a list of its own */
}

static enum script_fate refuse_list(void *ctx, const struct sf_put *put)
{
    (void)ctx;
    return sf_view_equal(put->key, sf_view_str("id-allocator/removals.json")) ? SCRIPT_LOSE
                                                                              : SCRIPT_APPLY;
}

/* Without the list nothing is deleted, and nobody's request notices. */
static void test_no_list_no_delete(void **state)
{
    struct world *w = *state;
    struct process *a = &w->processes[1];

    allocate_ok(a, &r, "k", PLAN(ISSUE));
    allocate_ok(a, &r, "top", PLAN(ISSUE));
    later(w, 8 * DAY);
    script_store_on(w->script, refuse_list, NULL, NULL);
    struct round round = ask(a, false, 0, "");
    assert_int_equal(round.err, SF_BACKEND_UNAVAILABLE);
    assert_true(result_stands(w, "k"));
    allocate_ok(a, &r2, "k2", PLAN(ISSUE));
    script_store_on(w->script, NULL, NULL, NULL);
    assert_int_equal(run(a).results, 2);
}

/* ---- every fence is needed ---- */

/* Each schedule ends with what must hold; the world is fresh. */
struct schedule {
    enum sf_mutant mutant; /* that it catches */
    bool (*holds)(struct world *w);
};

/* A result that is removed, behind a newer one that carries the watermark. */
static struct process *old_result(struct world *w)
{
    struct process *a = &w->processes[1];

    allocate_ok(a, &r, "k", PLAN(ISSUE));
    allocate_ok(a, &r, "top", PLAN(ISSUE));
    later(w, 7 * DAY + 1);
    return a;
}

static bool doubt_holds(struct world *w)
{
    struct process *a = old_result(w);
    unsigned deletes = 0;

    script_store_on_remove(w->script, remove_late, &deletes);
    (void)run(a);
    (void)run(a);
    script_store_on_remove(w->script, NULL, NULL);
    return deletes == 1;
}

static bool list_holds(struct world *w)
{
    struct process *a = old_result(w);
    unsigned deletes = 0;

    script_store_on_remove(w->script, remove_late, &deletes);
    (void)run(a);
    (void)run(world_start(w)); /* it died with the delete on its way */
    script_store_on_remove(w->script, NULL, NULL);
    return deletes == 1;
}

static bool minute_holds(struct world *w)
{
    struct process *a = old_result(w);

    allocate_ok(a, &r, "newer", PLAN(ISSUE));
    script_store_on_remove(w->script, crash_and_deletes, w);
    return run(a).results == 1;
}

static bool need_holds(struct world *w)
{
    struct process *a = old_result(w);

    return run(a).results == 1 && result_stands(w, "top");
}

static bool memory_holds(struct world *w)
{
    struct process *a = old_result(w);
    struct process *b = world_start(w);

    (void)run(b);
    allocate_ok(b, &r, "k", PLAN(7));
    allocate(a, &r2, "k", PLAN(7));
    return r2.diag.err != SF_IDEMPOTENCY_CONFLICT;
}

/* While the list is on its way another process removes the result and the key is used again. */
static enum script_fate reuse_key(void *ctx, const struct sf_put *put)
{
    struct world *w = ctx;
    struct sf_buf body = {0};
    struct sf_buf key = {0};

    if (!sf_view_equal(put->key, sf_view_str("id-allocator/removals.json")))
        return SCRIPT_APPLY;
    struct sf_arena *arena = sf_arena_new(ARENA);
    Searchfabric__V1__AllocatorReplaySuccessObject *record = world_replay(w, "k", arena);
    record->applied_at_unix_ms = w->loop.clock.unix_ms;
    record->attempt_id = (char *)"another-1";
    sf_alloc_replay_key(record->transport_lookup_key, &key);
    sf_durable_encode(&record->base, &body, NULL);
    struct sf_put again = {
        .key = sf_buf_view(&key), .body = sf_buf_view(&body), .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->backend, NULL, &again), SF_OK);
    sf_buf_fini(&key);
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
    return SCRIPT_APPLY;
}

static bool reread_holds(struct world *w)
{
    struct process *a = old_result(w);

    script_store_on(w->script, reuse_key, NULL, w);
    (void)run(a);
    script_store_on(w->script, NULL, NULL, NULL);
    return result_stands(w, "k");
}

static void test_every_fence_is_needed(void **state)
{
    static const struct schedule schedules[] = {
        {SF_MUTANT_ID_alloc_repeats_deletes, doubt_holds},
        {SF_MUTANT_ID_alloc_ignores_removals, list_holds},
        {SF_MUTANT_ID_alloc_deletes_late, minute_holds},
        {SF_MUTANT_ID_alloc_deletes_unread, reread_holds},
        {SF_MUTANT_ID_alloc_removes_needed, need_holds},
        {SF_MUTANT_ID_alloc_remembers_for_ever, memory_holds}};

    (void)state;
    for (size_t i = 0; i < 2 * SF_ARRAY_LEN(schedules); i++) {
        const struct schedule *s = &schedules[i / 2];
        bool with = i % 2 == 1;
        void *fresh = NULL;
        assert_int_equal(setup(&fresh), 0);
        if (with)
            sf_mutant_set(s->mutant);
        bool holds = s->holds(fresh);
        sf_mutant_set(SF_MUTANT_ID_NONE);
        if (holds == with)
            fail_msg("%s: %s", sf_mutant_info(s->mutant)->name, with ? "survives" : "fails");
        assert_int_equal(teardown(&fresh), 0);
    }
}

static void test_bad_cursor(void **state)
{
    struct world *w = *state;
    char cursor[SF_LIMIT_OBJECT_KEY_BYTES + 2];

    memset(cursor, 'x', sizeof(cursor) - 1);
    cursor[sizeof(cursor) - 1] = '\0';
    assert_int_equal(ask(&w->processes[1], true, 0, cursor).err, SF_BAD_REQUEST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_window_decides, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_remembered_answer_is_forgotten_first, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_needed_results_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newest_of_a_lease_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_without_state_everything_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_broken_objects_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receipt_keys_are_watched, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rounds_go_on_at_a_cursor, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_background_keeps_the_window, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_delete_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_lost_delete_is_sent_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_suspended_process_stops, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_list_no_delete, setup, teardown),
        cmocka_unit_test(test_every_fence_is_needed),
        cmocka_unit_test_setup_teardown(test_bad_cursor, setup, teardown),
    };
    return SF_RUN_TESTS("alloc_retention", tests);
}
