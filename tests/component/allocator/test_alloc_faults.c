/*
 * What stores, crashes and other owners can do to an allocation, as scripted schedules. Each
 * schedule says whether everything that must hold held; with the mutant that removes the fence it
 * is about, it must not.
 */
#include "component/allocator/alloc_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutant.h"

static struct result r; /* of the running test */
static struct result r2;
static struct result r3;

/* Fates of the puts of one test, in their order; what follows the list is `*_rest`. */
static struct fates {
    enum script_fate state[8];
    unsigned state_count;
    enum script_fate state_rest;
    enum script_fate replay[8];
    unsigned replay_count;
    enum script_fate replay_rest;
    unsigned state_seen;
    unsigned replay_seen;
    void (*before_replay)(struct world *w); /* runs before each replay put */
    struct world *world;
} fates;

static enum script_fate put_fate(void *ctx, const struct sf_put *put)
{
    struct fates *f = ctx;

    if (script_is_state_key(put->key)) {
        unsigned n = f->state_seen++;
        return n < f->state_count ? f->state[n] : f->state_rest;
    }
    if (f->before_replay != NULL)
        f->before_replay(f->world);
    unsigned n = f->replay_seen++;
    return n < f->replay_count ? f->replay[n] : f->replay_rest;
}

static enum sf_err get_failure = SF_OK; /* what reads answer */
static bool get_fails_state_only = false;

static enum sf_err get_fate(void *ctx, struct sf_view key)
{
    (void)ctx;
    return get_fails_state_only && !script_is_state_key(key) ? SF_OK : get_failure;
}

static void calm(struct world *w)
{
    fates = (struct fates){.world = w};
    get_failure = SF_OK;
    get_fails_state_only = false;
    script_store_on(w->script, put_fate, get_fate, &fates);
}

static int setup(void **state)
{
    int rc = world_setup(state);
    if (rc == 0)
        calm(*state);
    return rc;
}

static int teardown(void **state)
{
    sf_mutant_set(SF_MUTANT_ID_NONE);
    result_fini(&r);
    result_fini(&r2);
    result_fini(&r3);
    r = (struct result){0};
    r2 = (struct result){0};
    r3 = (struct result){0};
    return world_teardown(state);
}

/* Kills the last process and starts another. */
static struct process *restart(struct world *w)
{
    world_kill(&w->processes[w->process_count - 1]);
    calm(w);
    return world_start(w);
}

static bool same(const struct result *a, const struct result *b)
{
    return a->diag.err == SF_OK && b->diag.err == SF_OK && a->packed.len > 0 &&
           sf_view_equal(sf_buf_view(&a->packed), sf_buf_view(&b->packed));
}

/* ---- schedules ---- */

/* A crash between the state write and the replay object of an explicit plan: the retry, at the next
 * owner, meets its own result. */
static bool crash_between_the_puts(struct world *w)
{
    struct process *p = &w->processes[0];

    fates.replay_rest = SCRIPT_REFUSE;
    allocate(p, &r, "k", PLAN(ISSUE, 5));
    if (r.diag.err == SF_OK)
        return false;
    p = restart(w);
    allocate(p, &r, "k", PLAN(ISSUE, 5));
    if (r.diag.err != SF_OK || r.count != 2 || r.ids[0] != 0 || r.ids[1] != 5)
        return false;
    allocate(p, &r2, "other", PLAN(ISSUE));
    return r2.diag.err == SF_OK && r2.ids[0] == 6;
}

/* The same without a crash: the owner itself carries the apply on, through the writes of others. */
static bool carried_through_other_writes(struct world *w)
{
    struct process *p = &w->processes[0];

    fates.replay_rest = SCRIPT_LOSE;
    allocate(p, &r, "k", PLAN(ISSUE, 5));
    if (r.diag.err != SF_BACKEND_UNAVAILABLE)
        return false;
    calm(w);
    for (int i = 0; i < 3; i++) {
        char key[8] = {'o', (char)('0' + i)};
        allocate(p, &r2, key, PLAN(ISSUE));
        if (r2.diag.err != SF_OK || r2.ids[0] != 6u + (unsigned)i)
            return false;
    }
    p = restart(w);
    allocate(p, &r, "k", PLAN(ISSUE, 5));
    return r.diag.err == SF_OK && r.ids[0] == 0 && r.ids[1] == 5;
}

/* The owner that could not finish an explicit plan answers its retry from what is pending. */
static bool retry_meets_what_is_pending(struct world *w)
{
    struct process *p = &w->processes[0];

    fates.replay_rest = SCRIPT_LOSE;
    allocate(p, &r, "k", PLAN(ISSUE, 5));
    if (r.diag.err != SF_BACKEND_UNAVAILABLE)
        return false;
    calm(w);
    allocate(p, &r, "k", PLAN(ISSUE, 5));
    return r.diag.err == SF_OK && r.ids[0] == 0 && r.ids[1] == 5;
}

/* What a crash left unfinished is finished before the next owner serves anything. */
static bool reconciled_before_serving(struct world *w)
{
    struct process *p = &w->processes[0];

    fates.replay_rest = SCRIPT_REFUSE;
    allocate(p, &r, "k", PLAN(5));
    p = restart(w);
    allocate(p, &r, "other", PLAN(ISSUE));
    return r.diag.err == SF_OK && world_replay_count(w) == 2;
}

/* An answer was given: it must be there after any crash. */
static bool answered_is_durable(struct world *w)
{
    struct process *p = &w->processes[0];

    fates.replay_rest = SCRIPT_LOSE;
    allocate(p, &r, "k", PLAN(ISSUE));
    bool answered = r.diag.err == SF_OK;
    p = restart(w);
    allocate(p, &r2, "k", PLAN(ISSUE));
    return !answered || same(&r, &r2);
}

static void land_late(struct world *w)
{
    fates.before_replay = NULL;
    (void)script_store_land_late(w->script);
}

/* The first owner's object lands just before the second owner's: both answer alike. */
static bool first_object_stands(struct world *w)
{
    struct process *a = &w->processes[0];

    fates.replay_rest = SCRIPT_LATE;
    allocate(a, &r, "k", PLAN(ISSUE));
    if (r.diag.err != SF_BACKEND_UNAVAILABLE) /* in doubt: it may still land */
        return false;
    calm(w);
    struct process *b = world_start(w);
    fates.before_replay = land_late;
    allocate(b, &r, "k", PLAN(ISSUE));
    struct process *c = world_start(w);
    allocate(c, &r2, "k", PLAN(ISSUE));
    return same(&r, &r2) && r.ids[0] == 0; /* b's own id 1 is burned */
}

/* Two owners from the same state: no id twice. */
static bool racing_writers(struct world *w)
{
    struct process *a = &w->processes[0];
    struct process *b = world_start(w);

    allocate(a, &r3, "warm", PLAN(ISSUE));
    call_start(a, &r, &(struct call_spec){.key = "a", .items = &(uint64_t){ISSUE}, .count = 1});
    call_start(b, &r2, &(struct call_spec){.key = "b", .items = &(uint64_t){ISSUE}, .count = 1});
    world_finish(w, &r);
    world_finish(w, &r2);
    if (r.diag.err == SF_OK && r2.diag.err == SF_OK && r.ids[0] == r2.ids[0])
        return false;
    return r.diag.err != SF_OK || r.ids[0] != 0;
}

/* A stale owner wakes with its old state in hand after the new one moved the watermark. */
static bool stale_owner_wakes(struct world *w)
{
    struct process *a = &w->processes[0];

    allocate(a, &r, "a1", PLAN(ISSUE));
    struct process *b = world_start(w);
    allocate(b, &r2, "b1", PLAN(ISSUE, ISSUE));
    if (r2.diag.err != SF_OK)
        return false;
    allocate(a, &r3, "a2", PLAN(ISSUE));
    if (r3.diag.err == SF_OK && r3.ids[0] <= r2.ids[1])
        return false;
    allocate(b, &r, "b2", PLAN(ISSUE));
    return r.diag.err == SF_OK && r.ids[0] == 3 && strcmp(world_next(w), "4") == 0;
}

/* Once the new owner serves, the old one serves nothing more. */
static bool deposed_serves_nothing(struct world *w)
{
    struct process *a = &w->processes[0];

    allocate(a, &r, "a1", PLAN(ISSUE));
    struct process *b = world_start(w);
    allocate(b, &r2, "b1", PLAN(ISSUE));
    allocate(a, &r3, "a2", PLAN(ISSUE));
    if (r3.diag.err != SF_BACKEND_UNAVAILABLE)
        return false;
    allocate(a, &r3, "a1", PLAN(ISSUE));
    return r3.diag.err == SF_BACKEND_UNAVAILABLE;
}

/* A state write in doubt that did not stand: nothing of its group may be told as done. */
static bool doubtful_write_is_read_again(struct world *w)
{
    struct process *p = &w->processes[0];

    allocate(p, &r, "warm", PLAN(ISSUE));
    fates.state[0] = SCRIPT_LOSE;
    fates.state_seen = 0;
    fates.state_count = 1;
    allocate(p, &r, "k", PLAN(ISSUE));
    uint64_t next = strtoull(world_next(w), NULL, 10);
    return r.diag.err != SF_OK || r.ids[0] < next;
}

/* The state object was put back to an earlier version under a running owner. */
static bool state_went_back(struct world *w)
{
    struct process *p = &w->processes[0];
    struct sf_buf old = {0};
    struct sf_buf key = {0};

    allocate(p, &r, "k1", PLAN(ISSUE));
    sf_buf_append_str(&key, "id-allocator/state/79/7/9.json");
    if (sf_store_get_wait(w->backend, NULL, sf_buf_view(&key), &old, NULL) != SF_OK)
        return false;
    allocate(p, &r, "k2", PLAN(ISSUE));
    struct sf_put put = {.key = sf_buf_view(&key), .body = sf_buf_view(&old), .cond = SF_PUT_ANY};
    enum sf_err err = sf_store_put_wait(w->backend, NULL, &put);
    sf_buf_fini(&old);
    sf_buf_fini(&key);
    if (err != SF_OK)
        return false;
    allocate(p, &r2, "k3", PLAN(ISSUE));
    return r2.diag.err != SF_OK; /* it would be id 1 again */
}

/* Restored from an old backup: what was given since is not given again. */
static bool restored_behind_data(struct world *w)
{
    struct process *p = &w->processes[0];
    struct sf_buf old = {0};
    struct sf_view key = sf_view_str("id-allocator/state/79/7/9.json");

    allocate(p, &r, "k1", PLAN(ISSUE));
    enum sf_err err = sf_store_get_wait(w->backend, NULL, key, &old, NULL);
    w->loop.clock.unix_ms += 1000;
    allocate(p, &r, "k2", PLAN(ISSUE, ISSUE));
    world_kill(p);
    struct sf_put put = {.key = key, .body = sf_buf_view(&old), .cond = SF_PUT_ANY};
    if (err == SF_OK)
        err = sf_store_put_wait(w->backend, NULL, &put);
    sf_buf_fini(&old);
    if (err == SF_OK)
        err = sf_allocator_restore_mark_wait(w->backend, NULL, &p->attempts, w->loop.clock.unix_ms,
                                             "op", "drill");
    if (err != SF_OK)
        return false;
    p = world_start(w);
    allocate(p, &r, "k3", PLAN(ISSUE));
    return r.diag.err == SF_BACKEND_UNAVAILABLE;
}

static const struct schedule {
    const char *name;
    bool (*run)(struct world *w);
    enum sf_mutant mutant; /* that it catches */
} schedules[] = {
    {"crash_between_the_puts", crash_between_the_puts, SF_MUTANT_ID_NONE},
    {"reconciled_before_serving", reconciled_before_serving, SF_MUTANT_ID_alloc_skips_roll_forward},
    {"carried_through_other_writes", carried_through_other_writes,
     SF_MUTANT_ID_alloc_trim_unproved},
    {"retry_meets_what_is_pending", retry_meets_what_is_pending,
     SF_MUTANT_ID_alloc_resolve_skips_pending},
    {"answered_is_durable", answered_is_durable, SF_MUTANT_ID_alloc_ack_unproved},
    {"first_object_stands", first_object_stands, SF_MUTANT_ID_alloc_412_answers_own},
    {"first_object_stands", first_object_stands, SF_MUTANT_ID_alloc_replay_overwrites},
    {"racing_writers", racing_writers, SF_MUTANT_ID_NONE},
    {"stale_owner_wakes", stale_owner_wakes, SF_MUTANT_ID_alloc_state_unconditional},
    {"deposed_serves_nothing", deposed_serves_nothing, SF_MUTANT_ID_alloc_ignores_newer_owner},
    {"doubtful_write_is_read_again", doubtful_write_is_read_again,
     SF_MUTANT_ID_alloc_doubt_is_applied},
    {"state_went_back", state_went_back, SF_MUTANT_ID_alloc_follows_older_state},
    {"restored_behind_data", restored_behind_data, SF_MUTANT_ID_alloc_ignores_restore_mark},
};

static void test_schedules_hold(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-3.2-03", "ALLOC-5.3-05", "ALLOC-9-09", "ALLOC-13.1-01", "ALLOC-13.1-02",
              "ALLOC-6.3-09", "ALLOC-5.3-12");
    for (size_t i = 0; i < SF_ARRAY_LEN(schedules); i++) {
        void *world = NULL;
        assert_int_equal(setup(&world), 0);
        bool held = schedules[i].run(world);
        assert_int_equal(teardown(&world), 0);
        if (!held)
            fail_msg("%s does not hold", schedules[i].name);
    }
}

#ifdef SF_MUTANTS
static void test_every_mutant_is_caught(void **state)
{
    (void)state;
    bool caught[SF_MUTANT_COUNT] = {false};

    for (size_t i = 0; i < SF_ARRAY_LEN(schedules); i++) {
        void *world = NULL;
        if (schedules[i].mutant == SF_MUTANT_ID_NONE)
            continue;
        assert_int_equal(setup(&world), 0);
        sf_mutant_set(schedules[i].mutant);
        bool held = schedules[i].run(world);
        assert_int_equal(teardown(&world), 0);
        if (held)
            fail_msg("%s survives %s", sf_mutant_info(schedules[i].mutant)->name,
                     schedules[i].name);
        caught[schedules[i].mutant] = true;
    }
    for (int m = SF_MUTANT_ID_NONE + 1; m < SF_MUTANT_COUNT; m++)
        if (strcmp(sf_mutant_info((enum sf_mutant)m)->area, "alloc") == 0 && !caught[m])
            fail_msg("no schedule for %s", sf_mutant_info((enum sf_mutant)m)->name);
}
#endif

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
    calm(w);
    allocate(p, &r2, "k", items, count);
    expect_err(&r2, SF_OK);
    if (first)
        assert_true(same(&r, &r2));
    (void)script_store_land_late(w->script);
    p = restart(w);
    allocate(p, &r, "k", items, count);
    assert_true(same(&r, &r2));
    /* what comes next is above everything that was answered */
    allocate(p, &r3, "next", PLAN(ISSUE));
    expect_err(&r3, SF_OK);
    assert_true(r3.ids[0] > r2.ids[r2.count - 1]);
    assert_int_equal(teardown(&world), 0);
}

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
            }
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
    calm(w);
    fates.replay_rest = SCRIPT_LIMIT;
    allocate(p, &r, "a", PLAN(ISSUE));
    expect_err(&r, SF_INTERNAL);
    calm(w);
    allocate(p, &r, "a", PLAN(ISSUE));
    EXPECT_IDS(&r, 1);
}

/* ---- reads ---- */

static void test_reads_fail(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];

    get_failure = SF_ERR_UNAVAILABLE;
    allocate(p, &r, "a", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    expect_detail(&r, "failing_authority", "allocator_state");
    expect_detail(&r, "outcome_unknown", "false");
    get_fails_state_only = true;
    allocate(p, &r, "a", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    assert_string_equal(world_next(w), "");
    get_failure = SF_OK;
    allocate(p, &r, "a", PLAN(ISSUE));
    EXPECT_IDS(&r, 0);
}

static void test_nothing_before_the_state_is_read(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-7.4-03");

    allocate(p, &r, "a", PLAN(ISSUE));
    p = restart(w);
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
    p = restart(w);
    fates.replay_rest = SCRIPT_REFUSE;
    allocate(p, &r, "other", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    assert_int_equal(fates.state_seen, 0);
    assert_int_equal(world_replay_count(w), 0);
    calm(w);
    allocate(p, &r, "other", PLAN(ISSUE));
    EXPECT_IDS(&r, 6);
    assert_int_equal(world_replay_count(w), 2);
    struct sf_allocator_stats stats;
    sf_allocator_stats(p->allocator, &stats);
    assert_int_equal(stats.rolled_forward, 1);
    /* finished: it replays without the catalog, even once the collection is dropped */
    w->facts.lifecycle = 2;
    w->facts.etag = "etag-2";
    p = restart(w);
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
    p = restart(w);
    corrupt_object(w,
                   "id-allocator/replay-success/e8/"
                   "a0293aaf9706c34e26edec6d81b35135342a3198c537d948eb1df237d1e6bfd5.json",
                   "\"client_id\":\"");
    allocate(p, &r, "k1", PLAN(ISSUE));
    expect_err(&r, SF_INTERNAL);
    allocate(p, &r, "k2", PLAN(ISSUE));
    EXPECT_IDS(&r, 1);
    p = restart(w);
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

    p = restart(w);
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
        (void)restart(w);
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
        p = restart(w);
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

/* ---- restore ---- */

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
    struct process *p = restart(w);
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
    assert_int_equal(world_state(w, COLL, arena)->allocation_epoch, 2);
    assert_int_equal(world_state(w, COLL, arena)->n_pending_applies, 0);
    allocate(p, &r, "k3", PLAN(ISSUE));
    EXPECT_IDS(&r, 43);
    allocate(p, &r, "unfinished", PLAN(0));
    EXPECT_IDS(&r, 0);
    assert_int_equal(world_state(w, COLL, arena)->allocation_epoch, 3);
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
    p = restart(w);
    allocate(p, &r, "k2", PLAN(ISSUE));
    EXPECT_IDS(&r, 10);
    sf_arena_destroy(arena);
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
    calm(w);
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
    calm(w);
    allocate(p, &r3, "c", PLAN(15));
    EXPECT_IDS(&r3, 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules_hold),
#ifdef SF_MUTANTS
        cmocka_unit_test(test_every_mutant_is_caught),
#endif
        cmocka_unit_test(test_every_fate_of_every_put),
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
        cmocka_unit_test_setup_teardown(test_restore_needs_verification, setup, teardown),
        cmocka_unit_test_setup_teardown(test_watermark_comes_from_the_state_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_burned_ids_are_accounted_for, setup, teardown),
        cmocka_unit_test_setup_teardown(test_when_refusals_are_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusal_behind_a_lost_write, setup, teardown),
    };
    return SF_RUN_TESTS("alloc_faults", tests);
}
