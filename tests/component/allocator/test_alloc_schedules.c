/*
 * What stores, crashes and other owners can do to an allocation, as scripted schedules. Each
 * schedule says whether everything that must hold held; with the mutant that removes the fence it
 * is about, it must not.
 */
#include "component/allocator/alloc_fates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutant.h"

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

/* A crash between the state write and the replay object of an explicit plan: the retry, at the next
 * owner, meets its own result. */
static bool crash_between_the_puts(struct world *w)
{
    struct process *p = &w->processes[0];

    fates.replay_rest = SCRIPT_REFUSE;
    allocate(p, &r, "k", PLAN(ISSUE, 5));
    if (r.diag.err == SF_OK)
        return false;
    p = fates_restart(w);
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
    fates_calm(w);
    for (int i = 0; i < 3; i++) {
        char key[8] = {'o', (char)('0' + i)};
        allocate(p, &r2, key, PLAN(ISSUE));
        if (r2.diag.err != SF_OK || r2.ids[0] != 6u + (unsigned)i)
            return false;
    }
    p = fates_restart(w);
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
    fates_calm(w);
    allocate(p, &r, "k", PLAN(ISSUE, 5));
    return r.diag.err == SF_OK && r.ids[0] == 0 && r.ids[1] == 5;
}

/* What a crash left unfinished is finished before the next owner serves anything. */
static bool reconciled_before_serving(struct world *w)
{
    struct process *p = &w->processes[0];

    fates.replay_rest = SCRIPT_REFUSE;
    allocate(p, &r, "k", PLAN(5));
    p = fates_restart(w);
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
    p = fates_restart(w);
    allocate(p, &r2, "k", PLAN(ISSUE));
    return !answered || results_same(&r, &r2);
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
    fates_calm(w);
    struct process *b = world_start(w);
    fates.before_replay = land_late;
    allocate(b, &r, "k", PLAN(ISSUE));
    struct process *c = world_start(w);
    allocate(c, &r2, "k", PLAN(ISSUE));
    return results_same(&r, &r2) && r.ids[0] == 0; /* b's own id 1 is burned */
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

/* The collection is dropped between two requests of one owner: what it knows is not enough. */
static bool facts_are_read_for_every_group(struct world *w)
{
    struct process *p = &w->processes[0];

    allocate(p, &r, "k1", PLAN(ISSUE));
    w->facts.lifecycle = 2;
    w->facts.etag = "etag-dropped";
    allocate(p, &r2, "k2", PLAN(ISSUE));
    return r.diag.err == SF_OK && r2.diag.err == SF_RESOURCE_NOT_FOUND;
}

/* Another owner finishes a key between its look-up and the load of the state: the plan meets that
 * result, not its burn. */
static bool finished_before_the_load(struct world *w)
{
    struct process *a = &w->processes[0];
    struct process *b = world_start(w);

    w->facts.hold = true;
    call_start(b, &r, &(struct call_spec){.key = "k", .items = (uint64_t[]){5, ISSUE}, .count = 2});
    manual_loop_run(&w->loop);
    w->facts.hold = false;
    allocate(a, &r2, "k", PLAN(5, ISSUE));
    world_ccs_release(w);
    world_finish(w, &r);
    return results_same(&r, &r2);
}

/* Every owner has an epoch of its own. */
static bool epochs_name_owners(struct world *w)
{
    struct sf_arena *arena = sf_arena_new(1u << 20);
    bool held = true;

    for (uint64_t life = 1; life <= 3; life++) {
        struct process *p = life == 1 ? &w->processes[0] : fates_restart(w);
        char key[8] = {'k', (char)('0' + life)};
        allocate(p, &r, key, PLAN(ISSUE));
        held = held && r.diag.err == SF_OK && world_state(w, COLL, arena)->allocation_epoch == life;
    }
    sf_arena_destroy(arena);
    return held;
}

/* Too far above the watermark that a deposed owner has in hand, within reach of the one that
 * stands: the deposed one has no say. */
static bool window_of_an_old_watermark(struct world *w)
{
    struct process *a = &w->processes[0];
    struct process *b = world_start(w);

    allocate(a, &r, "a1", PLAN(ISSUE));
    allocate(b, &r2, "b1", PLAN(1000));
    allocate(a, &r3, "k", PLAN(1500));
    if (r.diag.err != SF_OK || r2.diag.err != SF_OK || r3.diag.err != SF_BACKEND_UNAVAILABLE)
        return false;
    allocate(b, &r3, "k", PLAN(1500));
    return r3.diag.err == SF_OK && r3.ids[0] == 1500;
}

/* A request waits for the catalog while another owner answers the same key; then the collection is
 * dropped. What was answered is the answer: the drop governs new allocations only. */
static bool dropped_behind_an_answer(struct world *w)
{
    struct process *a = &w->processes[0];
    struct process *b = world_start(w);

    w->facts.hold = true;
    call_start(a, &r, &(struct call_spec){.key = "k", .items = &(uint64_t){ISSUE}, .count = 1});
    manual_loop_run(&w->loop);
    w->facts.hold = false;
    allocate(b, &r2, "k", PLAN(ISSUE));
    w->facts.lifecycle = 2;
    w->facts.etag = "etag-dropped";
    world_ccs_release(w);
    world_finish(w, &r);
    allocate(a, &r3, "k2", PLAN(ISSUE));
    return results_same(&r, &r2) && r3.diag.err == SF_RESOURCE_NOT_FOUND;
}

/* The state object is gone while a result that it covered stands: once the result was read, nothing
 * is given as if the collection were new. */
static bool state_is_gone(struct world *w)
{
    struct process *p = &w->processes[0];

    allocate(p, &r, "k", PLAN(ISSUE));
    if (sf_store_remove_wait(w->backend, NULL, sf_view_str("id-allocator/state/79/7/9.json")) !=
        SF_OK)
        return false;
    p = fates_restart(w);
    allocate(p, &r2, "k", PLAN(ISSUE));
    allocate(p, &r3, "k2", PLAN(ISSUE));
    return results_same(&r, &r2) && r3.diag.err == SF_BACKEND_UNAVAILABLE;
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
    {"facts_are_read_for_every_group", facts_are_read_for_every_group,
     SF_MUTANT_ID_alloc_old_facts},
    {"finished_before_the_load", finished_before_the_load, SF_MUTANT_ID_alloc_resolves_once},
    {"epochs_name_owners", epochs_name_owners, SF_MUTANT_ID_alloc_epoch_stays},
    {"window_of_an_old_watermark", window_of_an_old_watermark, SF_MUTANT_ID_alloc_stale_window},
    {"dropped_behind_an_answer", dropped_behind_an_answer, SF_MUTANT_ID_alloc_refuses_at_once},
    {"state_is_gone", state_is_gone, SF_MUTANT_ID_alloc_result_forgotten},
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
        if (strcmp(sf_mutant_info((enum sf_mutant)m)->area, "alloc") == 0 && !caught[m] &&
            strncmp(sf_mutant_info((enum sf_mutant)m)->name, "alloc_lease_", 12) != 0)
            fail_msg("no schedule for %s", sf_mutant_info((enum sf_mutant)m)->name);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules_hold),
#ifdef SF_MUTANTS
        cmocka_unit_test(test_every_mutant_is_caught),
#endif
    };
    return SF_RUN_TESTS("alloc_schedules", tests);
}
