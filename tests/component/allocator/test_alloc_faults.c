/* What stores, crashes and other owners can do to an allocation, put by put. */
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

/* ---- every fate of every put ---- */

/* One plan under one fate of the n-th state or replay put; then the client's retries; then a new
 * owner. Whatever happens: one answer, unique ids, and the lane goes on. */
static void one_fate(enum script_fate fate, bool at_state, unsigned times, const uint64_t *items,
                     size_t count)
{
    void *world = NULL;
    assert_int_equal(setup(&world), 0);
    struct world *w = world;
    struct process *p = &w->processes[0];

    allocate(p, &r3, "warm", PLAN(ISSUE));
    EXPECT_IDS(&r3, 0);
    fates.state_seen = 0;
    fates.replay_seen = 0;
    for (unsigned i = 0; i < times; i++) {
        fates.state[i] = at_state ? fate : SCRIPT_APPLY;
        fates.replay[i] = at_state ? SCRIPT_APPLY : fate;
    }
    fates.state_count = times;
    fates.replay_count = times;
    allocate(p, &r, "k", items, count);
    if (r.diag.err != SF_OK)
        expect_err(&r, SF_BACKEND_UNAVAILABLE);
    if (times >= 8)
        assert_int_equal(r.diag.err, SF_BACKEND_UNAVAILABLE);
    bool first = r.diag.err == SF_OK;
    fates_calm(w);
    allocate(p, &r2, "k", items, count);
    expect_err(&r2, SF_OK);
    if (first)
        assert_true(results_same(&r, &r2));
    (void)script_store_land_late(w->script);
    p = fates_restart(w);
    allocate(p, &r, "k", items, count);
    assert_true(results_same(&r, &r2));
    /* what comes next is above everything that was answered */
    allocate(p, &r3, "next", PLAN(ISSUE));
    expect_err(&r3, SF_OK);
    assert_true(r3.ids[0] > r2.ids[r2.count - 1]);
    assert_int_equal(teardown(&world), 0);
}

/* Plans that are kept as runs of ids. */
#define NINE_ISSUE ISSUE, ISSUE, ISSUE, ISSUE, ISSUE, ISSUE, ISSUE, ISSUE, ISSUE
#define LONG_ISSUE NINE_ISSUE, NINE_ISSUE
#define LONG_MIXED NINE_ISSUE, 20, ISSUE, ISSUE, ISSUE, 40, ISSUE, ISSUE, ISSUE, ISSUE

static void test_every_fate_of_every_put(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-12-14");
    static const enum script_fate all[] = {SCRIPT_REFUSE, SCRIPT_LOSE, SCRIPT_DARK, SCRIPT_LATE,
                                           SCRIPT_OWN_412};
    for (size_t f = 0; f < SF_ARRAY_LEN(all); f++)
        for (int at_state = 0; at_state < 2; at_state++)
            for (unsigned times = 1; times <= 8; times += times == 1 ? 1 : 6) {
                bool can_settle = all[f] == SCRIPT_DARK || all[f] == SCRIPT_OWN_412;
                if (can_settle && times >= 8)
                    continue; /* these are resolved by reading back */
                one_fate(all[f], at_state != 0, times, PLAN(ISSUE, ISSUE));
                one_fate(all[f], at_state != 0, times, PLAN(3, 4));
                one_fate(all[f], at_state != 0, times, PLAN(ISSUE, 9, ISSUE));
                one_fate(all[f], at_state != 0, times, PLAN(LONG_ISSUE));
                one_fate(all[f], at_state != 0, times, PLAN(LONG_MIXED));
            }
}

/* A plan of more than 16 items is stored as runs, and answered and repeated like any other. */
static void test_long_plans_are_kept_as_runs(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct result first = {0}, again = {0};
    static const uint64_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 20, 21, 22, 23, 40, 41, 42, 43, 44};

    SF_PROVES("ALLOC-7.3-07");
    SF_PROVES("ALLOC-7.3-09");
    allocate_ok(p, &first, "long", PLAN(LONG_MIXED));
    assert_int_equal(first.count, SF_ARRAY_LEN(ids));
    for (size_t i = 0; i < SF_ARRAY_LEN(ids); i++) {
        assert_int_equal(first.ids[i], ids[i]);
        assert_int_equal(first.issued[i], ids[i] != 20 && ids[i] != 40);
    }
    Searchfabric__V1__AllocatorReplaySuccessObject *object = world_replay(w, "long", arena);
    assert_non_null(object);
    assert_null(object->plan);
    assert_int_equal(object->n_realized_doc_ids, 0);
    /* 0..8 issued; 20; 21..23 issued; 40; 41..44 issued: gap, twice the length plus issued */
    static const uint8_t runs[] = {0, 19, 11, 2, 0, 7, 16, 2, 0, 9};
    assert_int_equal(object->item_runs.len, sizeof(runs));
    assert_memory_equal(object->item_runs.data, runs, sizeof(runs));
    world_kill(p);
    p = world_start(w);
    allocate_ok(p, &again, "long", PLAN(LONG_MIXED));
    assert_true(results_same(&first, &again));
    result_fini(&first);
    result_fini(&again);
    sf_arena_destroy(arena);
}

static void test_own_write_is_recognised(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];

    /* applied, answer lost: the write is found by its attempt id and no id is burned */
    fates.state[0] = SCRIPT_DARK;
    fates.state_count = 1;
    allocate(p, &r, "a", PLAN(ISSUE));
    EXPECT_IDS(&r, 0);
    assert_int_equal(fates.state_seen, 1);
    fates.state[1] = SCRIPT_OWN_412;
    fates.state_count = 2;
    allocate(p, &r, "b", PLAN(ISSUE, 7));
    EXPECT_IDS(&r, 1, 7);
    assert_int_equal(fates.state_seen, 2);
    fates.replay_seen = 0;
    fates.replay[0] = SCRIPT_OWN_412;
    fates.replay_count = 1;
    allocate(p, &r, "c", PLAN(ISSUE));
    EXPECT_IDS(&r, 8);
    struct sf_allocator_stats stats;
    sf_allocator_stats(p->allocator, &stats);
    assert_int_equal(stats.ids_burned, 0);
    assert_int_equal(stats.ids_issued, 3);
    assert_int_equal(stats.allocations, 3);
}

static void test_late_state_write_of_the_same_owner(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    struct sf_arena *arena = sf_arena_new(1u << 20);

    allocate(p, &r, "warm", PLAN(ISSUE));
    fates.state_seen = 0;
    fates.state[0] = SCRIPT_LATE;
    fates.state_count = 1;
    allocate(p, &r, "a", PLAN(5));
    EXPECT_IDS(&r, 5);
    assert_int_equal(script_store_land_late(w->script), 0); /* its condition failed for good */
    assert_int_equal(world_state(w, COLL, arena)->allocator_state_version, 2);
    sf_arena_destroy(arena);
}

static void test_refused_for_good(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];

    fates.state_rest = SCRIPT_LIMIT;
    allocate(p, &r, "a", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    assert_string_equal(world_next(w), "");
    fates_calm(w);
    fates.replay_rest = SCRIPT_LIMIT;
    allocate(p, &r, "a", PLAN(ISSUE));
    expect_err(&r, SF_INTERNAL);
    fates_calm(w);
    allocate(p, &r, "a", PLAN(ISSUE));
    EXPECT_IDS(&r, 1);
}

/* ---- reads ---- */

static void test_reads_fail(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];

    fates.get_failure = SF_ERR_UNAVAILABLE;
    allocate(p, &r, "a", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    expect_detail(&r, "failing_authority", "allocator_state");
    expect_detail(&r, "outcome_unknown", "false");
    fates.get_fails_state_only = true;
    allocate(p, &r, "a", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    assert_string_equal(world_next(w), "");
    fates.get_failure = SF_OK;
    allocate(p, &r, "a", PLAN(ISSUE));
    EXPECT_IDS(&r, 0);
}

static void test_nothing_before_the_state_is_read(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-7.4-03");

    allocate(p, &r, "a", PLAN(ISSUE));
    p = fates_restart(w);
    script_store_hold(w->script, true);
    call_start(p, &r2, &(struct call_spec){.key = "b", .items = &(uint64_t){ISSUE}, .count = 1});
    for (int i = 0; i < 20; i++)
        manual_loop_advance(&w->loop, 1000);
    assert_false(r2.done);
    script_store_hold(w->script, false);
    world_finish(w, &r2);
    EXPECT_IDS(&r2, 1);
}

static void test_unfinished_applies_block_until_they_are_finished(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-7.4-09", "ALLOC-7.4-01", "ALLOC-7.4-05", "ALLOC-7.4-10", "ALLOC-7.4-04");

    fates.replay_rest = SCRIPT_REFUSE;
    allocate(p, &r, "k", PLAN(5));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    p = fates_restart(w);
    fates.replay_rest = SCRIPT_REFUSE;
    allocate(p, &r, "other", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    assert_int_equal(fates.state_seen, 0);
    assert_int_equal(world_replay_count(w), 0);
    fates_calm(w);
    allocate(p, &r, "other", PLAN(ISSUE));
    EXPECT_IDS(&r, 6);
    assert_int_equal(world_replay_count(w), 2);
    struct sf_allocator_stats stats;
    sf_allocator_stats(p->allocator, &stats);
    assert_int_equal(stats.rolled_forward, 1);
    /* finished: it replays without the catalog, even once the collection is dropped */
    w->facts.lifecycle = 2;
    w->facts.etag = "etag-2";
    p = fates_restart(w);
    allocate(p, &r, "k", PLAN(5));
    EXPECT_IDS(&r, 5);
    allocate(p, &r, "new", PLAN(ISSUE));
    expect_err(&r, SF_RESOURCE_NOT_FOUND);
}

/* Changes the character behind `mark` in an object. */
static void corrupt_object(struct world *w, const char *key, const char *mark)
{
    struct sf_buf body = {0};

    assert_int_equal(sf_store_get_wait(w->backend, NULL, sf_view_str(key), &body, NULL), SF_OK);
    sf_buf_append(&body, "", 1);
    char *at = strstr((char *)body.data, mark);
    assert_non_null(at);
    at[strlen(mark)]++;
    struct sf_put put = {.key = sf_view_str(key),
                         .body = sf_view_bytes(body.data, body.len - 1),
                         .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->backend, NULL, &put), SF_OK);
    sf_buf_fini(&body);
}

static void test_corrupt_objects_are_never_served(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];

    allocate(p, &r, "k1", PLAN(ISSUE));
    p = fates_restart(w);
    corrupt_object(w,
                   "id-allocator/replay-success/e8/"
                   "a0293aaf9706c34e26edec6d81b35135342a3198c537d948eb1df237d1e6bfd5.json",
                   "\"client_id\":\"");
    allocate(p, &r, "k1", PLAN(ISSUE));
    expect_err(&r, SF_INTERNAL);
    allocate(p, &r, "k2", PLAN(ISSUE));
    EXPECT_IDS(&r, 1);
    p = fates_restart(w);
    corrupt_object(w, "id-allocator/state/79/7/9.json", "\"next_doc_id\":\"");
    allocate(p, &r, "k3", PLAN(ISSUE));
    expect_err(&r, SF_INTERNAL);
    allocate(p, &r, "k2", PLAN(ISSUE)); /* its own object is whole */
    EXPECT_IDS(&r, 1);
}

static void test_newer_members_are_carried_on(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    struct sf_arena *arena = sf_arena_new(16u << 20);
    struct sf_buf body = {0};
    const char *key = "id-allocator/state/79/7/9.json";

    allocate(p, &r, "k1", PLAN(ISSUE));
    /* a newer build adds a member */
    assert_int_equal(sf_store_get_wait(w->backend, NULL, sf_view_str(key), &body, NULL), SF_OK);
    ProtobufCMessage *message = NULL;
    struct sf_buf json = {0};
    struct sf_buf out = {0};
    sf_buf_append(&json, body.data, body.len - 1);
    sf_buf_append_str(&json, ",\"zz_future\":{\"a\":[1,2]}}");
    struct sf_diag diag;
    sf_diag_init(&diag);
    assert_int_equal(sf_pbjson_decode(&searchfabric__v1__allocator_state_object__descriptor,
                                      sf_buf_view(&json), arena, &diag, &message),
                     SF_OK);
    ((Searchfabric__V1__AllocatorStateObject *)message)->attempt_id = (char *)"newer-1";
    sf_durable_encode(message, &out, NULL);
    struct sf_put put = {.key = sf_view_str(key), .body = sf_buf_view(&out), .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->backend, NULL, &put), SF_OK);
    sf_buf_fini(&body);
    sf_buf_fini(&json);
    sf_buf_fini(&out);

    p = fates_restart(w);
    allocate(p, &r, "k2", PLAN(ISSUE));
    EXPECT_IDS(&r, 1);
    allocate(p, &r, "k3", PLAN(ISSUE));
    EXPECT_IDS(&r, 2);
    body = (struct sf_buf){0};
    assert_int_equal(sf_store_get_wait(w->backend, NULL, sf_view_str(key), &body, NULL), SF_OK);
    sf_buf_append(&body, "", 1);
    assert_non_null(strstr((char *)body.data, "\"zz_future\":{\"a\":[1,2]}"));
    assert_non_null(strstr((char *)body.data, "\"next_doc_id\":\"3\""));
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
}

/* ---- owners ---- */

static void test_epochs_rise_with_owners(void **state)
{
    struct world *w = *state;
    SF_PROVES("ALLOC-7.2-04");
    struct sf_arena *arena = sf_arena_new(1u << 20);

    for (unsigned life = 1; life <= 5; life++) {
        struct process *p = &w->processes[w->process_count - 1];
        char key[8] = {'k', (char)('0' + life)};
        allocate(p, &r, key, PLAN(ISSUE));
        EXPECT_IDS(&r, life - 1);
        const Searchfabric__V1__AllocatorStateObject *s = world_state(w, COLL, arena);
        assert_int_equal(s->allocation_epoch, life);
        assert_int_equal(s->allocator_state_version, life);
        allocate(p, &r, key, PLAN(ISSUE)); /* reading alone claims nothing */
        assert_int_equal(world_state(w, COLL, arena)->allocation_epoch, life);
        (void)fates_restart(w);
    }
    sf_arena_destroy(arena);
}

static void test_deposed_lane_says_come_back(void **state)
{
    struct world *w = *state;
    struct process *a = &w->processes[0];
    SF_PROVES("ALLOC-14-06");

    allocate(a, &r, "a1", PLAN(ISSUE));
    struct process *b = world_start(w);
    allocate(b, &r2, "b1", PLAN(ISSUE));
    EXPECT_IDS(&r2, 1);
    allocate(a, &r, "a2", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    assert_true(sf_err_info(r.diag.err)->retry_same_key);
    assert_true(metrics_have(a, "searchfabric_id_allocator_state_conflict_retry_total 1"));
    struct sf_allocator_stats stats;
    sf_allocator_stats(a->allocator, &stats);
    assert_int_equal(stats.lanes_closed, 1);
    /* other collections of the deposed process are not touched */
    call_run(a, &r,
             &(struct call_spec){
                 .key = "x", .collection_id = 10, .items = &(uint64_t){ISSUE}, .count = 1});
    EXPECT_IDS(&r, 0);
    /* the retry at the owner of now succeeds */
    allocate(b, &r, "a2", PLAN(ISSUE));
    EXPECT_IDS(&r, 2);
}

static void test_racing_claims(void **state)
{
    struct world *w = *state;
    SF_PROVES("ALLOC-9-05");
    /* four new processes start from the same object at once: they never share an id */
    struct result many[4] = {{0}};
    bool seen[64] = {false};

    allocate(&w->processes[0], &r, "warm", PLAN(ISSUE));
    for (unsigned i = 0; i < 4; i++) {
        char key[8] = {'k', (char)('0' + i)};
        call_start(
            world_start(w), &many[i],
            &(struct call_spec){.key = key, .items = (uint64_t[]){ISSUE, ISSUE}, .count = 2});
    }
    unsigned served = 0;
    for (unsigned i = 0; i < 4; i++) {
        world_finish(w, &many[i]);
        for (size_t k = 0; many[i].diag.err == SF_OK && k < many[i].count; k++) {
            assert_true(many[i].ids[k] > 0);
            assert_false(seen[many[i].ids[k]]);
            seen[many[i].ids[k]] = true;
            served++;
        }
        result_fini(&many[i]);
    }
    assert_true(served >= 2);
}

static void test_immutable_replay_objects(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-7.1-05", "ALLOC-7.1-06");
    const char *key = "id-allocator/replay-success/e8/"
                      "a0293aaf9706c34e26edec6d81b35135342a3198c537d948eb1df237d1e6bfd5.json";
    struct sf_etag first;
    struct sf_etag now;
    struct sf_buf body = {0};

    fates.replay_rest = SCRIPT_DARK; /* stands, though nobody knows */
    allocate(p, &r, "k1", PLAN(5));
    assert_int_equal(sf_store_get_wait(w->backend, NULL, sf_view_str(key), &body, &first), SF_OK);
    for (int i = 0; i < 3; i++) {
        p = fates_restart(w);
        allocate(p, &r, "k1", PLAN(6));
        expect_err(&r, SF_IDEMPOTENCY_CONFLICT);
        allocate(p, &r, "k1", PLAN(5));
        EXPECT_IDS(&r, 5);
        char other[8] = {'o', (char)('0' + i)};
        allocate(p, &r, other, PLAN(ISSUE));
        expect_err(&r, SF_OK);
        sf_buf_clear(&body);
        assert_int_equal(sf_store_get_wait(w->backend, NULL, sf_view_str(key), &body, &now), SF_OK);
        assert_string_equal(first.text, now.text);
    }
    sf_buf_fini(&body);
}

static void test_burned_ids_are_accounted_for(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
#define BURNED                                                                                     \
    "searchfabric_id_allocator_burned_ids_total{client_kind=\"CLIENT_KIND_ES_WRITE_GATEWAY\","

    allocate(p, &r, "a", PLAN(ISSUE, 10, ISSUE, 20)); /* skips 1..9 and 12..19 */
    EXPECT_IDS(&r, 0, 10, 11, 20);
    assert_true(metrics_have(p, BURNED "reason=\"explicit_gap\"} 17"));
    fates.replay_rest = SCRIPT_REFUSE;
    allocate(p, &r, "b", PLAN(ISSUE, ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    assert_true(metrics_have(p, BURNED "reason=\"not_durable\"} 2"));
    fates_calm(w);
    allocate(p, &r, "b", PLAN(ISSUE, ISSUE));
    EXPECT_IDS(&r, 23, 24);
    /* nothing else is ever burned when quiet */
    for (int i = 0; i < 20; i++) {
        char key[8] = {'q', (char)('a' + i)};
        allocate(p, &r, key, PLAN(ISSUE));
        EXPECT_IDS(&r, 25u + (unsigned)i);
    }
    struct sf_allocator_stats stats;
    sf_allocator_stats(p->allocator, &stats);
    assert_int_equal(stats.ids_burned, 2);
}

/* ---- when refusals are told ---- */

static void test_when_refusals_are_told(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    struct result first = {0};

    allocate(p, &r, "warm", PLAN(9)); /* next is 10 */
    w->facts.hold = true;             /* gather one group */
    call_start(p, &first, &(struct call_spec){.key = "a", .items = &(uint64_t){3}, .count = 1});
    call_start(p, &r2, &(struct call_spec){.key = "b", .items = &(uint64_t){20}, .count = 1});
    call_start(p, &r3, &(struct call_spec){.key = "c", .items = &(uint64_t){15}, .count = 1});
    manual_loop_run(&w->loop);
    script_store_hold(w->script, true);
    world_ccs_release(w);
    manual_loop_run(&w->loop);
    /* "a" is refused by the state that stands; "c" only by the write of "b", not told yet */
    assert_true(first.done);
    expect_err(&first, SF_VERSION_CONFLICT);
    assert_false(r2.done);
    assert_false(r3.done);
    script_store_hold(w->script, false);
    manual_loop_run(&w->loop);
    EXPECT_IDS(&r2, 20);
    expect_err(&r3, SF_VERSION_CONFLICT);
    expect_detail(&r3, "doc_id", "15");
    result_fini(&first);
}

static void test_refusal_behind_a_lost_write(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];

    allocate(p, &r, "warm", PLAN(9));
    w->facts.hold = true;
    call_start(p, &r2, &(struct call_spec){.key = "b", .items = &(uint64_t){20}, .count = 1});
    call_start(p, &r3, &(struct call_spec){.key = "c", .items = &(uint64_t){15}, .count = 1});
    manual_loop_run(&w->loop);
    fates.state_rest = SCRIPT_REFUSE;
    world_ccs_release(w);
    world_finish(w, &r2);
    world_finish(w, &r3);
    expect_err(&r2, SF_BACKEND_UNAVAILABLE);
    expect_err(&r3, SF_BACKEND_UNAVAILABLE); /* not a conflict with a write that never was */
    fates_calm(w);
    allocate(p, &r3, "c", PLAN(15));
    EXPECT_IDS(&r3, 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_fate_of_every_put),
        cmocka_unit_test_setup_teardown(test_long_plans_are_kept_as_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own_write_is_recognised, setup, teardown),
        cmocka_unit_test_setup_teardown(test_late_state_write_of_the_same_owner, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_for_good, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reads_fail, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_before_the_state_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unfinished_applies_block_until_they_are_finished,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_corrupt_objects_are_never_served, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newer_members_are_carried_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_epochs_rise_with_owners, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deposed_lane_says_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_racing_claims, setup, teardown),
        cmocka_unit_test_setup_teardown(test_immutable_replay_objects, setup, teardown),
        cmocka_unit_test_setup_teardown(test_burned_ids_are_accounted_for, setup, teardown),
        cmocka_unit_test_setup_teardown(test_when_refusals_are_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusal_behind_a_lost_write, setup, teardown),
    };
    return SF_RUN_TESTS("alloc_faults", tests);
}
