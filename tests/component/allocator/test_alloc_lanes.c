/* Lanes in memory: joining, groups that gather, bounds, eviction, drain. */
#include "component/allocator/alloc_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct result r; /* of the running test */
static struct result r2;
static struct result r3;

static int setup(void **state)
{
    return world_setup(state);
}

static int teardown(void **state)
{
    result_fini(&r);
    result_fini(&r2);
    result_fini(&r3);
    r = (struct result){0};
    r2 = (struct result){0};
    r3 = (struct result){0};
    return world_teardown(state);
}

static struct sf_allocator_stats stats_of(struct process *p)
{
    struct sf_allocator_stats stats;
    sf_allocator_stats(p->allocator, &stats);
    return stats;
}

static void start(struct process *p, struct result *result, const char *key, uint64_t collection_id)
{
    call_start(
        p, result,
        &(struct call_spec){
            .key = key, .collection_id = collection_id, .items = &(uint64_t){ISSUE}, .count = 1});
}

/* A process of its own limits. */
static struct process *with_limits(struct world *w, struct sf_allocator_limits limits)
{
    w->limits = limits;
    return world_start(w);
}

static void test_another_payload_joins_and_conflicts(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];

    w->facts.hold = true;
    call_start(p, &r, &(struct call_spec){.key = "k", .items = (uint64_t[]){5}, .count = 1});
    call_start(p, &r2, &(struct call_spec){.key = "k", .items = (uint64_t[]){6}, .count = 1});
    call_start(p, &r3, &(struct call_spec){.key = "k", .items = (uint64_t[]){5}, .count = 1});
    manual_loop_run(&w->loop);
    world_ccs_release(w);
    world_finish(w, &r);
    EXPECT_IDS(&r, 5);
    expect_err(&r2, SF_IDEMPOTENCY_CONFLICT);
    EXPECT_IDS(&r3, 5);
    assert_string_equal(world_next(w), "6");
}

static void test_joined_requests_of_a_refused_leader(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];

    /* both were there when the facts were asked for: they share the refusal; another payload is a
     * request of its own; one that came later meets the facts of its own time */
    w->facts.lifecycle = 2;
    w->facts.hold = true;
    call_start(p, &r, &(struct call_spec){.key = "k", .items = (uint64_t[]){5}, .count = 1});
    call_start(p, &r2, &(struct call_spec){.key = "k", .items = (uint64_t[]){5}, .count = 1});
    manual_loop_run(&w->loop);
    assert_int_equal(w->held_count, 1);
    call_start(p, &r3, &(struct call_spec){.key = "k", .items = (uint64_t[]){5}, .count = 1});
    manual_loop_run(&w->loop);
    world_ccs_release(w); /* answers TOMBSTONED */
    w->facts.lifecycle = 1;
    world_finish(w, &r);
    world_finish(w, &r2);
    world_finish(w, &r3);
    expect_err(&r, SF_RESOURCE_NOT_FOUND);
    expect_err(&r2, SF_RESOURCE_NOT_FOUND);
    EXPECT_IDS(&r3, 5);
    assert_int_equal(w->ccs_reads, 2);
}

static void test_next_group_gathers(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    struct result many[10] = {{0}};

    start(p, &r, "warm", COLL);
    world_finish(w, &r);
    script_store_hold(w->script, true);
    start(p, &r, "first", COLL);
    manual_loop_run(&w->loop);
    for (int i = 0; i < 10; i++) {
        char key[8] = {'k', (char)('0' + i)};
        start(p, &many[i], key, COLL);
    }
    manual_loop_run(&w->loop);
    script_store_reset_counts(w->script);
    script_store_hold(w->script, false);
    for (int i = 0; i < 10; i++) {
        world_finish(w, &many[i]);
        assert_int_equal(many[i].ids[0], i + 2);
        result_fini(&many[i]);
    }
    assert_int_equal(r.ids[0], 1);
    /* the held one's own write, then one for the ten */
    assert_int_equal(script_store_counts(w->script).state_puts, 2);
}

static void test_idle_costs_nothing(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];

    start(p, &r, "k", COLL);
    world_finish(w, &r);
    script_store_reset_counts(w->script);
    unsigned reads = w->ccs_reads;
    for (int i = 0; i < 1000; i++)
        manual_loop_advance(&w->loop, 60000);
    struct script_counts counts = script_store_counts(w->script);
    assert_int_equal(counts.state_gets + counts.state_puts + counts.replay_gets +
                         counts.replay_puts + counts.other,
                     0);
    assert_int_equal(w->ccs_reads, reads);
}

/* ---- bounds ---- */

static void expect_limited(const struct result *result, const char *dimension, const char *limit)
{
    expect_err(result, SF_RATE_LIMITED);
    expect_detail(result, "throttled_dimension", dimension);
    expect_detail(result, "server_limit", limit);
    assert_non_null(sf_diag_get(&result->diag, "retry_after_ms"));
    assert_true(sf_err_info(SF_RATE_LIMITED)->retry_same_key);
}

static void test_lanes_are_bounded(void **state)
{
    struct world *w = *state;
    struct process *p = with_limits(w, (struct sf_allocator_limits){.max_lanes_per_loop = 2});

    /* idle ones make room; what they knew is read again */
    for (uint64_t round = 0; round < 3; round++)
        for (uint64_t c = 1; c <= 5; c++) {
            char key[16];
            (void)snprintf(key, sizeof(key), "r%d-%d", (int)round, (int)c);
            start(p, &r, key, c);
            world_finish(w, &r);
            EXPECT_IDS(&r, round);
        }
    struct sf_allocator_stats stats = stats_of(p);
    assert_int_equal(stats.lanes, 2);
    assert_true(stats.lanes_evicted >= 10);
    struct sf_arena *arena = sf_arena_new(1u << 20);
    /* coming back is no takeover: the same process owns it still */
    assert_int_equal(world_state(w, 1, arena)->allocation_epoch, 1);
    assert_int_equal(world_state(w, 1, arena)->allocator_state_version, 3);
    sf_arena_destroy(arena);

    /* busy ones do not */
    w->facts.hold = true;
    start(p, &r, "b1", 1);
    start(p, &r2, "b2", 2);
    start(p, &r3, "b3", 3);
    manual_loop_run(&w->loop);
    expect_limited(&r3, "allocator_lanes", "2");
    world_ccs_release(w);
    world_finish(w, &r);
    world_finish(w, &r2);
    expect_err(&r, SF_OK);
    expect_err(&r2, SF_OK);
    start(p, &r3, "b3", 3);
    world_finish(w, &r3);
    expect_err(&r3, SF_OK);
}

static void test_requests_are_bounded(void **state)
{
    struct world *w = *state;
    SF_PROVES("ALLOC-13.3-04");
    struct process *p =
        with_limits(w, (struct sf_allocator_limits){.max_ops_per_lane = 3, .max_ops_per_loop = 5});
    struct result many[8] = {{0}};

    w->facts.hold = true;
    for (int i = 0; i < 8; i++) {
        char key[8] = {'k', (char)('0' + i)};
        start(p, &many[i], key, i < 4 ? 1 : 2);
    }
    manual_loop_run(&w->loop);
    expect_limited(&many[3], "allocator_lane_requests", "3");
    expect_limited(&many[6], "allocator_loop_requests", "5");
    expect_limited(&many[7], "allocator_loop_requests", "5");
    assert_int_equal(stats_of(p).ops, 5);
    world_ccs_release(w);
    for (int i = 0; i < 8; i++) {
        world_finish(w, &many[i]);
        if (i != 3 && i < 6)
            expect_err(&many[i], SF_OK);
        result_fini(&many[i]);
    }
    assert_int_equal(stats_of(p).ops, 0);
    start(p, &r, "k3", 1); /* the refused key is as good as new */
    world_finish(w, &r);
    expect_err(&r, SF_OK);
}

static void test_answers_are_bounded(void **state)
{
    struct world *w = *state;
    struct process *p = with_limits(w, (struct sf_allocator_limits){.cache_bytes_per_loop = 4096});

    for (int i = 0; i < 100; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%d", i);
        start(p, &r, key, COLL);
        world_finish(w, &r);
        EXPECT_IDS(&r, (uint64_t)i);
        assert_true(stats_of(p).cache_bytes <= 4096);
    }
    script_store_reset_counts(w->script);
    start(p, &r, "k99", COLL); /* remembered */
    world_finish(w, &r);
    EXPECT_IDS(&r, 99);
    assert_int_equal(script_store_counts(w->script).replay_gets, 0);
    start(p, &r, "k0", COLL); /* long gone: read from the store */
    world_finish(w, &r);
    EXPECT_IDS(&r, 0);
    assert_int_equal(script_store_counts(w->script).replay_gets, 1);
}

static void test_closed_lanes_leave_last(void **state)
{
    struct world *w = *state;
    struct process *a = with_limits(w, (struct sf_allocator_limits){.max_lanes_per_loop = 2});
    struct process *b = world_start(w);

    start(a, &r, "a1", 1);
    world_finish(w, &r);
    start(b, &r, "b1", 1);
    world_finish(w, &r);
    start(a, &r, "a2", 1);
    world_finish(w, &r);
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    assert_int_equal(stats_of(a).lanes_closed, 1);
    for (uint64_t c = 2; c < 6; c++) { /* open lanes make room for each other */
        char key[8] = {'c', (char)('0' + c)};
        start(a, &r, key, c);
        world_finish(w, &r);
        expect_err(&r, SF_OK);
        assert_int_equal(stats_of(a).lanes_closed, 1);
    }
    start(a, &r, "a3", 1);
    world_finish(w, &r);
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    /* but room is made when there is no other */
    w->facts.hold = true;
    start(a, &r, "h1", 7);
    start(a, &r2, "h2", 8);
    manual_loop_run(&w->loop);
    world_ccs_release(w);
    world_finish(w, &r);
    world_finish(w, &r2);
    expect_err(&r, SF_OK);
    expect_err(&r2, SF_OK);
    assert_int_equal(stats_of(a).lanes_closed, 0);
}

/* ---- drain ---- */

static unsigned drained;

static void on_drained(void *user)
{
    (void)user;
    drained++;
}

static void test_drain(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];

    drained = 0;
    w->facts.hold = true;
    start(p, &r, "k1", COLL);
    manual_loop_run(&w->loop);
    sf_allocator_drain(p->allocator, on_drained, NULL);
    manual_loop_run(&w->loop);
    assert_int_equal(drained, 0);
    start(p, &r2, "k2", COLL);
    manual_loop_run(&w->loop);
    expect_err(&r2, SF_BACKEND_UNAVAILABLE);
    world_ccs_release(w);
    world_finish(w, &r);
    EXPECT_IDS(&r, 0);
    manual_loop_run(&w->loop);
    assert_int_equal(drained, 1);
}

static void test_drain_when_idle(void **state)
{
    struct world *w = *state;

    drained = 0;
    sf_allocator_drain(w->processes[0].allocator, on_drained, NULL);
    assert_int_equal(drained, 0); /* always later */
    manual_loop_run(&w->loop);
    assert_int_equal(drained, 1);
}

/* ---- pending applies ---- */

static bool replay_refused = false;

static enum script_fate refuse_replay(void *ctx, const struct sf_put *put)
{
    (void)ctx;
    return replay_refused && !script_is_state_key(put->key) ? SCRIPT_REFUSE : SCRIPT_APPLY;
}

static void test_many_pending_applies_are_finished_first(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    struct sf_arena *arena = sf_arena_new(64u << 20);
    enum { N = 64 };

    /* explicit plans whose objects cannot be written pile up, up to a bound */
    script_store_on(w->script, refuse_replay, NULL, NULL);
    replay_refused = true;
    for (uint64_t i = 0; i < N; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%d", (int)i);
        allocate(p, &r, key, &(uint64_t){i}, 1);
        expect_err(&r, SF_BACKEND_UNAVAILABLE);
        expect_detail(&r, "outcome_unknown", "true");
    }
    assert_int_equal(world_state(w, COLL, arena)->n_pending_applies, N);
    uint64_t version = world_state(w, COLL, arena)->allocator_state_version;
    allocate(p, &r, "more", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    assert_int_equal(world_state(w, COLL, arena)->allocator_state_version, version);
    /* the prefix is back: they are finished before anything else */
    replay_refused = false;
    allocate(p, &r, "more", PLAN(ISSUE));
    EXPECT_IDS(&r, N);
    assert_int_equal(world_replay_count(w), N + 1);
    allocate(p, &r, "k7", PLAN(7));
    EXPECT_IDS(&r, 7);
    sf_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_another_payload_joins_and_conflicts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_joined_requests_of_a_refused_leader, setup, teardown),
        cmocka_unit_test_setup_teardown(test_next_group_gathers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idle_costs_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lanes_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_requests_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_answers_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_closed_lanes_leave_last, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drain, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drain_when_idle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_pending_applies_are_finished_first, setup,
                                        teardown),
    };
    return SF_RUN_TESTS("alloc_lanes", tests);
}
