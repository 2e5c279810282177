/* The operator's reconciliation, and what is told from which object after a loss. */
#include "component/allocator/alloc_fates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct result r; /* of the running test */
static struct result r2;
static struct result r3;

static int setup(void **state)
{
    return fates_setup(state);
}

static int teardown(void **state)
{
    result_fini(&r);
    result_fini(&r2);
    result_fini(&r3);
    r = (struct result){0};
    r2 = (struct result){0};
    r3 = (struct result){0};
    return fates_teardown(state);
}

static void test_restore_needs_verification(void **state)
{
    struct world *w = *state;
    struct sf_allocator_verification v;
    struct sf_attempts tool;
    struct sf_diag diag;
    struct sf_collection_ref ref = {{NS}, {COLL}};
    struct sf_arena *arena = sf_arena_new(1u << 20);

    /* as above, with an unfinished apply in the restored state */
    fates.replay[0] = SCRIPT_REFUSE;
    fates.replay_rest = SCRIPT_REFUSE;
    allocate(&w->processes[0], &r, "unfinished", PLAN(0));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    struct process *p = fates_restart(w);
    struct sf_buf old = {0};
    struct sf_view key = sf_view_str("id-allocator/state/79/7/9.json");
    assert_int_equal(sf_store_get_wait(w->backend, NULL, key, &old, NULL), SF_OK);
    w->loop.clock.unix_ms += 1000;
    allocate(p, &r, "k2", PLAN(ISSUE, 41, ISSUE));
    EXPECT_IDS(&r, 1, 41, 42);
    world_kill(p);
    struct sf_put put = {.key = key, .body = sf_buf_view(&old), .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->backend, NULL, &put), SF_OK);
    sf_buf_fini(&old);
    sf_attempts_init(&tool, 77);
    w->loop.clock.unix_ms += 1000;
    assert_int_equal(sf_allocator_restore_mark_wait(w->backend, NULL, &tool, w->loop.clock.unix_ms,
                                                    "op", "drill"),
                     SF_OK);
    p = world_start(w);
    allocate(p, &r, "k3", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    expect_detail(&r, "failing_authority", "allocator_state");
    allocate(p, &r, "k2", PLAN(ISSUE, 41, ISSUE)); /* what stands is answered all the same */
    EXPECT_IDS(&r, 1, 41, 42);

    /* dry run: tells and changes nothing */
    sf_diag_init(&diag);
    assert_int_equal(sf_allocator_verify_wait(w->backend, NULL, &tool, w->loop.clock.unix_ms, ref,
                                              true, &diag, &v),
                     SF_OK);
    assert_true(v.state_found);
    assert_string_equal(v.next_before, "1");
    assert_string_equal(v.next_after, "43");
    assert_int_equal(v.pending_applies, 1);
    assert_string_equal(world_next(w), "1");
    allocate(p, &r, "k3", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);

    /* for good: opens above everything realized, under a higher epoch */
    assert_int_equal(sf_allocator_verify_wait(w->backend, NULL, &tool, w->loop.clock.unix_ms, ref,
                                              false, &diag, &v),
                     SF_OK);
    assert_string_equal(world_next(w), "43");
    assert_int_equal(world_state(w, COLL, arena)->allocation_epoch, 3); /* above that of "k2" */
    assert_int_equal(world_state(w, COLL, arena)->n_pending_applies, 0);
    allocate(p, &r, "k3", PLAN(ISSUE));
    EXPECT_IDS(&r, 43);
    allocate(p, &r, "unfinished", PLAN(0));
    EXPECT_IDS(&r, 0);
    assert_int_equal(world_state(w, COLL, arena)->allocation_epoch, 4);
    /* again: it never lowers */
    assert_int_equal(sf_allocator_verify_wait(w->backend, NULL, &tool, w->loop.clock.unix_ms, ref,
                                              false, &diag, &v),
                     SF_OK);
    assert_string_equal(v.next_before, "44");
    assert_string_equal(v.next_after, "44");
    /* a running owner notices and stops; a collection made after the restore is open */
    allocate(p, &r, "k4", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    call_run(p, &r,
             &(struct call_spec){
                 .key = "new", .collection_id = 10, .items = &(uint64_t){ISSUE}, .count = 1});
    EXPECT_IDS(&r, 0);
    sf_arena_destroy(arena);
}

static void test_watermark_comes_from_the_state_alone(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    struct sf_arena *arena = sf_arena_new(1u << 20);

    /* neither the results nor the clock take part in what is handed out next */
    allocate(p, &r, "k1", PLAN(ISSUE, 9));
    EXPECT_IDS(&r, 0, 9);
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    assert_int_equal(sf_store_list_wait(w->backend, NULL,
                                        sf_view_str("id-allocator/replay-success/"),
                                        (struct sf_view){0}, 10, arena, &entries, &count),
                     SF_OK);
    assert_int_equal(count, 1);
    assert_int_equal(sf_store_remove_wait(w->backend, NULL, entries[0].key), SF_OK);
    w->loop.clock.unix_ms -= 3600 * 1000;
    p = fates_restart(w);
    allocate(p, &r, "k2", PLAN(ISSUE));
    EXPECT_IDS(&r, 10);
    sf_arena_destroy(arena);
}

/* Deletes an object by hand. */
static void remove_object(struct world *w, const char *key)
{
    assert_int_equal(sf_store_remove_wait(w->backend, NULL, sf_view_str(key)), SF_OK);
}

static void verify(struct world *w, struct sf_allocator_verification *v)
{
    struct sf_collection_ref ref = {{NS}, {COLL}};
    struct sf_attempts tool;
    struct sf_diag diag;

    sf_diag_init(&diag);
    sf_attempts_init(&tool, 77);
    assert_int_equal(sf_allocator_verify_wait(w->backend, NULL, &tool, w->loop.clock.unix_ms, ref,
                                              false, &diag, v),
                     SF_OK);
}

#define STATE_KEY "id-allocator/state/79/7/9.json"

/* A second mark made under a clock that went back opens nothing; a state that is another
 * collection's does not verify. */
static void test_mark_stays_and_foreign_state(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    struct sf_collection_ref ref = {{NS}, {COLL}};
    struct sf_allocator_verification v;
    struct sf_attempts tool;
    struct sf_diag diag;
    struct sf_buf body = {0};
    int64_t now = w->loop.clock.unix_ms;

    allocate(p, &r, "a", PLAN(7));
    EXPECT_IDS(&r, 7);
    call_run(p, &r,
             &(struct call_spec){
                 .key = "b", .collection_id = 10, .items = &(uint64_t){ISSUE}, .count = 1});
    EXPECT_IDS(&r, 0);
    sf_attempts_init(&tool, 77);
    assert_int_equal(
        sf_allocator_restore_mark_wait(w->backend, NULL, &tool, now + 1000, "op", "drill"), SF_OK);
    assert_int_equal(
        sf_allocator_restore_mark_wait(w->backend, NULL, &tool, now - 5000, "op", "again"), SF_OK);
    p = fates_restart(w);
    allocate(p, &r, "c", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    assert_int_equal(sf_store_get_wait(w->backend, NULL,
                                       sf_view_str("id-allocator/state/79/7/10.json"), &body, NULL),
                     SF_OK);
    struct sf_put put = {
        .key = sf_view_str(STATE_KEY), .body = sf_buf_view(&body), .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->backend, NULL, &put), SF_OK);
    sf_diag_init(&diag);
    assert_int_equal(
        sf_allocator_verify_wait(w->backend, NULL, &tool, now + 2000, ref, false, &diag, &v),
        SF_INTERNAL);
    /* a mark that does not verify gives way to a new one */
    put.key = sf_view_str("control/alloc-restore-mark.json");
    put.body = sf_view_str("{}");
    assert_int_equal(sf_store_put_wait(w->backend, NULL, &put), SF_OK);
    assert_int_equal(
        sf_allocator_restore_mark_wait(w->backend, NULL, &tool, now + 3000, "op", "anew"), SF_OK);
    sf_buf_fini(&body);
}

/* Both halves of what one apply makes durable, each without the other. */
static void test_half_of_an_apply(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct sf_allocator_verification v;
    SF_PROVES("ALLOC-7.4-07");

    /* killed between the two puts: the state stands alone */
    fates.replay_rest = SCRIPT_REFUSE;
    allocate(p, &r, "k", PLAN(3, ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    assert_string_equal(world_next(w), "5");
    assert_int_equal(world_replay_count(w), 0);
    p = fates_restart(w);
    allocate(p, &r, "other", PLAN(ISSUE)); /* whatever comes first finishes it */
    EXPECT_IDS(&r, 5);
    assert_int_equal(world_replay_count(w), 2);
    assert_non_null(world_replay(w, "k", arena));
    allocate(p, &r, "k", PLAN(3, ISSUE));
    EXPECT_IDS(&r, 3, 4);

    /* the opposite, which no crash leaves behind: results without the state that covers them. The
     * result is told; nothing new is given from a state that lies behind it, or from none */
    struct sf_buf old = {0};
    assert_int_equal(sf_store_get_wait(w->backend, NULL, sf_view_str(STATE_KEY), &old, NULL),
                     SF_OK);
    allocate(p, &r2, "later", PLAN(40));
    EXPECT_IDS(&r2, 40);
    for (int gone = 0; gone < 2; gone++) {
        struct sf_put put = {
            .key = sf_view_str(STATE_KEY), .body = sf_buf_view(&old), .cond = SF_PUT_ANY};
        assert_int_equal(sf_store_put_wait(w->backend, NULL, &put), SF_OK);
        if (gone == 1)
            remove_object(w, STATE_KEY);
        p = fates_restart(w);
        allocate(p, &r3, "later", PLAN(40));
        expect_same(&r2, &r3);
        allocate(p, &r3, "fresh", PLAN(ISSUE));
        expect_err(&r3, SF_BACKEND_UNAVAILABLE);
        expect_detail(&r3, "failing_authority", "allocator_state");
        allocate(p, &r3, "fresh", PLAN(40));
        expect_err(&r3, SF_BACKEND_UNAVAILABLE);
        /* reconciled by the operator both stand, and the same request has the same answer */
        verify(w, &v);
        assert_int_equal(v.state_found, gone == 0);
        assert_string_equal(v.next_after, "41");
        assert_true(world_state(w, COLL, arena)->allocator_state_version >
                    world_replay(w, "later", arena)->allocator_state_version);
        p = fates_restart(w);
        allocate(p, &r3, "later", PLAN(40));
        expect_same(&r2, &r3);
        assert_int_equal(world_replay_count(w), 3);
    }
    allocate(p, &r3, "fresh", PLAN(40));
    expect_err(&r3, SF_VERSION_CONFLICT);
    allocate(p, &r3, "fresh", PLAN(ISSUE));
    EXPECT_IDS(&r3, 41);
    sf_buf_fini(&old);
    sf_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_restore_needs_verification, setup, teardown),
        cmocka_unit_test_setup_teardown(test_watermark_comes_from_the_state_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_half_of_an_apply, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mark_stays_and_foreign_state, setup, teardown),
    };
    return SF_RUN_TESTS("alloc_restore", tests);
}
