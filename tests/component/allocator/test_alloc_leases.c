/* Range leases: what is reserved, what is served from it, what ends it, what a crash leaves. */
#include "component/allocator/alloc_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_rules.h"

#include "base/mutant.h"
#include "searchfabric/v1/allocator_operations_private.pb-c.h"

static struct result r;       /* of the running test */
static struct result many[8]; /* calls under way together */

/* A world whose first process leases from the third issue-only request of a second on, ranges of
 * eight ids, sixteen at most. */
static int setup(void **state)
{
    if (world_setup(state) != 0)
        return -1;
    struct world *w = *state;
    world_kill(&w->processes[0]);
    w->leases = (struct sf_alloc_lease_policy){
        .on = true, .hot_per_s = 3, .min_ids = 8, .max_ids = 16, .confirm_ms = 2000};
    w->process_count = 0;
    (void)world_start(w);
    return 0;
}

static int teardown(void **state)
{
    result_fini(&r);
    r = (struct result){0};
    for (size_t i = 0; i < SF_ARRAY_LEN(many); i++) {
        result_fini(&many[i]);
        many[i] = (struct result){0};
    }
    return world_teardown(state);
}

/* One issued id under the key `name` followed by a number. */
static uint64_t issue(struct process *p, const char *name, unsigned number)
{
    char key[32];

    (void)snprintf(key, sizeof(key), "%s-%u", name, number);
    allocate_ok(p, &r, key, PLAN(ISSUE));
    return r.ids[0];
}

/* True when the series of `line` is there with whatever number. */
static bool metric_is_there(struct process *p, const char *line)
{
    struct sf_buf text = {0};
    const char *end = strrchr(line, ' ');
    char series[256];

    (void)snprintf(series, sizeof(series), "%.*s ", (int)(end - line), line);
    sf_metrics_render(p->metrics, &text);
    sf_buf_append(&text, "", 1);
    bool found = strstr((const char *)text.data, series) != NULL;
    sf_buf_fini(&text);
    return found;
}

static void expect_metric(struct process *p, const char *name, const char *labels,
                          const char *number)
{
    char line[256];

    (void)snprintf(line, sizeof(line), "searchfabric_id_allocator_%s{%s} %s", name, labels, number);
    bool is_absent = strcmp(number, "0") == 0 && strcmp(name, "burned_ids_total") == 0;
    if (metrics_have(p, line) || (is_absent && !metric_is_there(p, line)))
        return;
    fail_msg("not so: %s", line);
}

/* Ids burned for a reason, and ranges by what became of them, as the metrics tell. A series that
 * never rose is not there. */
#define BURNED_OF(p, reason, n)                                                                    \
    expect_metric(p, "burned_ids_total",                                                           \
                  "client_kind=\"CLIENT_KIND_ES_WRITE_GATEWAY\",reason=\"" reason "\"", n)
#define LEASES_OF(p, result, n) expect_metric(p, "range_lease_total", "result=\"" result "\"", n)
#define BURNED(reason, n)       BURNED_OF(p, reason, n)
#define LEASES(result, n)       LEASES_OF(p, result, n)

/* Makes the usual collection hot: ids 0, 1, 2, and with the third the range [3, 11). */
static void heat(struct process *p)
{
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(issue(p, "heat", i), i);
}

/* State writes so far. */
static unsigned state_puts(struct world *w)
{
    return script_store_counts(w->script).state_puts;
}

/* What the state object records. */
struct recorded {
    bool lease;
    char next[24];
    char start[24];
    char end[24];
    uint64_t lease_epoch;
    uint64_t epoch;
    uint64_t version;
    uint32_t policy_version;
    char owner[64];
    bool owners_equal; /* of lease and state */
};

static struct recorded recorded(struct world *w)
{
    struct sf_arena *arena = sf_arena_new(16u << 20);
    const Searchfabric__V1__AllocatorStateObject *o = world_state(w, COLL, arena);
    struct recorded out = {0};

    assert_non_null(o);
    (void)snprintf(out.next, sizeof(out.next), "%s", o->next_doc_id);
    out.epoch = o->allocation_epoch;
    out.version = o->allocator_state_version;
    out.lease = o->lease != NULL;
    if (o->lease != NULL) {
        (void)snprintf(out.start, sizeof(out.start), "%s", o->lease->range_start);
        (void)snprintf(out.end, sizeof(out.end), "%s", o->lease->range_end);
        (void)snprintf(out.owner, sizeof(out.owner), "%s", o->lease->owner_id);
        out.lease_epoch = o->lease->lease_epoch;
        out.policy_version = o->lease->lease_policy_version;
        out.owners_equal = strcmp(o->owner_id, o->lease->owner_id) == 0 &&
                           o->lease->allocation_epoch == o->allocation_epoch;
    }
    sf_arena_destroy(arena);
    return out;
}

static void test_hot_lane_leases(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-5.2-03", "ALLOC-7.2-07", "ALLOC-7.2-08", "ALLOC-7.2-11", "ALLOC-7.2-12",
              "ALLOC-9-08", "ALLOC-13.2-01", "ALLOC-13.2-04", "ALLOC-9-10");

    assert_int_equal(issue(p, "a", 0), 0);
    assert_int_equal(issue(p, "a", 1), 1);
    assert_false(recorded(w).lease); /* not hot yet */
    assert_int_equal(issue(p, "a", 2), 2);
    struct recorded now = recorded(w);
    assert_true(now.lease && now.owners_equal);
    assert_string_equal(now.start, "3");
    assert_string_equal(now.end, "11");
    assert_string_equal(now.next, "11");
    assert_int_equal(now.lease_epoch, now.version);
    assert_int_equal(now.policy_version, 1);
    /* four of the range: no state write, each with its own object, told by its lease */
    unsigned puts = state_puts(w);
    for (unsigned i = 0; i < 3; i++) {
        char key[16];
        struct sf_arena *arena = sf_arena_new(16u << 20);
        assert_int_equal(issue(p, "b", i), 3 + i);
        assert_int_equal(world_replay_count(w), 4 + i);
        (void)snprintf(key, sizeof(key), "b-%u", i);
        const Searchfabric__V1__AllocatorReplaySuccessObject *o = world_replay(w, key, arena);
        assert_int_equal(o->realized_doc_ids[0]->doc_id->u64, 3 + i);
        assert_int_equal(o->lease_epoch, now.lease_epoch);
        assert_int_equal(o->allocator_state_version, 0);
        assert_int_equal(o->allocation_epoch, now.epoch);
        sf_arena_destroy(arena);
    }
    assert_int_equal(state_puts(w), puts);
    assert_int_equal(recorded(w).version, now.version);
    /* half is used: the next range is reserved behind the answer, twice as large */
    assert_int_equal(issue(p, "c", 0), 6);
    assert_int_equal(state_puts(w), puts + 1);
    struct recorded next = recorded(w);
    assert_string_equal(next.start, "7");
    assert_string_equal(next.end, "27");
    assert_int_equal(next.lease_epoch, now.version + 1);
    /* 20 ids for one state write, and the next one waits for half of the sixteen */
    for (unsigned i = 0; i < 11; i++)
        assert_int_equal(issue(p, "d", i), 7 + i);
    assert_int_equal(state_puts(w), puts + 1);
    struct sf_allocator_stats stats;
    sf_allocator_stats(p->allocator, &stats);
    assert_int_equal(stats.lease_local, 15);
    assert_int_equal(stats.leases_granted, 2);
    assert_int_equal(stats.allocations, 18);
}

static void test_no_lease_when_off_or_slow(void **state)
{
    struct world *w = *state;
    SF_PROVES("ALLOC-7.2-07", "ALLOC-5.2-03");

    /* slow: two requests a second */
    for (unsigned i = 0; i < 6; i++) {
        (void)issue(&w->processes[0], "slow", i);
        manual_loop_advance(&w->loop, 600);
    }
    assert_false(recorded(w).lease);
    /* off */
    world_kill(&w->processes[0]);
    w->leases.on = false;
    struct process *p = world_start(w);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(issue(p, "off", i), 6 + i);
    assert_false(recorded(w).lease);
    assert_string_equal(recorded(w).next, "26");
}

static void test_explicit_passes_the_lease(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-13.2-05", "ALLOC-5.3-14", "ALLOC-14-07");

    world_kill(p);
    w->leases.min_ids = 100;
    w->leases.max_ids = 100;
    p = world_start(w);
    for (unsigned i = 0; i < 2; i++)
        (void)issue(p, "x", i);
    uint64_t plan[98];
    for (size_t i = 0; i < 98; i++)
        plan[i] = ISSUE;
    allocate_ok(p, &r, "x-98", plan, 98);
    struct recorded now = recorded(w);
    assert_string_equal(now.start, "100"); /* [100, 200) */
    assert_string_equal(now.end, "200");
    assert_int_equal(issue(p, "in", 0), 100);
    allocate(p, &r, "low", PLAN(150));
    expect_err(&r, SF_VERSION_CONFLICT);
    expect_detail(&r, "doc_id", "150");
    expect_detail(&r, "allocator_conflict_reason", "below_watermark_burned_gap");
    assert_int_equal(issue(p, "in", 1), 101); /* a refusal drops nothing */
    allocate_ok(p, &r, "high", PLAN(300));
    EXPECT_IDS(&r, 300);
    assert_string_equal(recorded(w).next, "301");
    assert_false(recorded(w).lease);
    assert_int_equal(issue(p, "in", 2), 301); /* not 102 */
    allocate(p, &r, "tail", PLAN(102));
    expect_err(&r, SF_VERSION_CONFLICT);
    BURNED("lease_tail", "98");    /* 102 .. 199 */
    BURNED("explicit_gap", "100"); /* 200 .. 299 */
    LEASES("granted", "1");
    LEASES("discarded", "1");
    LEASES("failed", "0");
    /* no lease for ten seconds, then again */
    for (unsigned i = 0; i < 5; i++)
        (void)issue(p, "quiet", i);
    assert_false(recorded(w).lease);
    manual_loop_advance(&w->loop, 10000);
    for (unsigned i = 0; i < 3; i++)
        (void)issue(p, "again", i);
    assert_true(recorded(w).lease);
}

/* Starts one call of `count` issue items, or of one explicit id. */
static void start(struct process *p, struct result *result, const char *key, uint64_t item,
                  size_t count)
{
    uint64_t items[16];

    for (size_t i = 0; i < count; i++)
        items[i] = item;
    call_start(p, result, &(struct call_spec){.key = key, .items = items, .count = count});
}

static void test_mixed_group_goes_direct(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-13.2-05", "ALLOC-5.3-06");

    heat(p); /* [3, 11) */
    unsigned puts = state_puts(w);
    start(p, &many[0], "g0", ISSUE, 2);
    start(p, &many[1], "g1", 20, 1);
    start(p, &many[2], "g2", ISSUE, 1);
    manual_loop_run(&w->loop);
    EXPECT_IDS(&many[0], 3, 4);
    EXPECT_IDS(&many[1], 20);
    EXPECT_IDS(&many[2], 21);
    assert_int_equal(state_puts(w), puts + 1);
    BURNED("lease_tail", "6");   /* 5 .. 10 */
    BURNED("explicit_gap", "9"); /* 11 .. 19 */
    /* a group whose explicit id is refused keeps the lease */
    manual_loop_advance(&w->loop, 10000);
    for (unsigned i = 0; i < 3; i++)
        (void)issue(p, "warm", i);
    struct recorded before = recorded(w);
    start(p, &many[3], "g3", ISSUE, 2);
    start(p, &many[4], "g4", 20, 1);
    manual_loop_run(&w->loop);
    EXPECT_IDS(&many[3], 25, 26);
    expect_err(&many[4], SF_VERSION_CONFLICT);
    assert_string_equal(recorded(w).next, before.next);
    assert_true(recorded(w).lease);
    assert_int_equal(issue(p, "kept", 0), 27);
    BURNED("lease_tail", "6");
}

static void test_more_than_the_range_holds(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-13.2-01");

    heat(p); /* [3, 11) */
    assert_int_equal(issue(p, "a", 0), 3);
    unsigned puts = state_puts(w);
    start(p, &many[0], "long", ISSUE, 12); /* seven are left: they go on into new ones */
    manual_loop_run(&w->loop);
    assert_int_equal(many[0].count, 12);
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(many[0].ids[i], 4 + i);
    assert_int_equal(state_puts(w), puts + 1);
    assert_string_equal(recorded(w).start, "16");
    assert_int_equal(issue(p, "a", 1), 16);
    BURNED("not_durable", "0");
}

/* In steady state nothing waits for a state write: the next range's is held back, and requests that
 * fit go on; the first that does not fit waits for it and then needs none of its own. */
static void test_reserved_ahead(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-13.2-01", "ALLOC-9-08");

    heat(p); /* [3, 11) */
    script_store_hold_reservations(w->script, true);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(issue(p, "a", i), 3 + i); /* sent behind the fourth, held */
    start(p, &many[0], "waits", ISSUE, 1);
    manual_loop_run(&w->loop);
    assert_false(many[0].done);
    unsigned puts = state_puts(w);
    script_store_hold_reservations(w->script, false);
    world_finish(w, &many[0]);
    EXPECT_IDS(&many[0], 11);
    assert_int_equal(state_puts(w), puts);
    /* an explicit id waits for the reservation, then passes it */
    script_store_hold_reservations(w->script, true);
    for (unsigned i = 0; i < 8; i++)
        (void)issue(p, "b", i);
    start(p, &many[1], "explicit", 100, 1);
    manual_loop_run(&w->loop);
    assert_false(many[1].done);
    script_store_hold_reservations(w->script, false);
    world_finish(w, &many[1]);
    EXPECT_IDS(&many[1], 100);
    assert_string_equal(recorded(w).next, "101");
}

static void test_crash_burns_the_tail(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-5.3-13", "ALLOC-5.3-14", "ALLOC-7.2-10", "ALLOC-13.2-03", "ALLOC-7.2-08",
              "ALLOC-14-07");

    heat(p); /* [3, 11) */
    assert_int_equal(issue(p, "used", 0), 3);
    world_kill(p);
    p = world_start(w);
    assert_int_equal(issue(p, "next", 0), 11);
    struct recorded now = recorded(w);
    assert_false(now.lease); /* the first write of a new owner ends the old lease */
    assert_string_equal(now.next, "12");
    LEASES("discarded", "1");
    for (uint64_t id = 4; id < 11; id++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "t-%u", (unsigned)id);
        allocate(p, &r, key, &id, 1);
        expect_err(&r, SF_VERSION_CONFLICT);
    }
    /* what was answered is answered */
    allocate_ok(p, &r, "used-0", PLAN(ISSUE));
    EXPECT_IDS(&r, 3);
    for (unsigned i = 1; i < 30; i++)
        assert_true(issue(p, "next", i) > 11);
}

/* Fates of state writes and of results, in their order; what follows the list is applied. */
static struct {
    enum script_fate state[4];
    enum script_fate replay[12];
    unsigned state_seen;
    unsigned replay_seen;
} fates;

static enum script_fate put_fate(void *ctx, const struct sf_put *put)
{
    (void)ctx;
    if (script_is_state_key(put->key))
        return fates.state_seen < 4 ? fates.state[fates.state_seen++] : SCRIPT_APPLY;
    return fates.replay_seen < 12 ? fates.replay[fates.replay_seen++] : SCRIPT_APPLY;
}

static void fates_from_now(struct world *w)
{
    memset(&fates, 0, sizeof(fates)); /* SCRIPT_APPLY */
    script_store_on(w->script, put_fate, NULL, NULL);
}

static void test_crash_around_the_reservation(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-7.2-09", "ALLOC-13.2-02");

    /* before it is durable: nothing of the range was returned, and it is not taken */
    for (unsigned i = 0; i < 2; i++)
        (void)issue(p, "a", i);
    fates_from_now(w);
    for (unsigned i = 0; i < 4; i++)
        fates.state[i] = SCRIPT_REFUSE;
    allocate(p, &r, "refused", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    assert_string_equal(recorded(w).next, "2");
    assert_false(recorded(w).lease);
    LEASES("failed", "1");
    world_kill(p);
    script_store_on(w->script, NULL, NULL, NULL);
    p = world_start(w);
    assert_int_equal(issue(p, "b", 0), 2);
    /* right after it: recorded, nothing of it returned, burned */
    assert_int_equal(issue(p, "b", 1), 3);
    assert_int_equal(issue(p, "b", 2), 4);
    assert_string_equal(recorded(w).end, "13");
    world_kill(p);
    p = world_start(w);
    assert_int_equal(issue(p, "c", 0), 13);
    /* while the next range is reserved: ids below the recorded end only */
    assert_int_equal(issue(p, "c", 1), 14);
    assert_int_equal(issue(p, "c", 2), 15);
    fates_from_now(w);
    fates.state[0] = SCRIPT_REFUSE;
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(issue(p, "d", i), 16 + i);
    assert_int_equal(fates.state_seen, 1);
    LEASES("failed", "1");
    assert_string_equal(recorded(w).next, "24");
}

static void test_crash_before_the_result(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-7.4-08", "ALLOC-5.3-14");

    heat(p); /* [3, 11) */
    fates_from_now(w);
    for (unsigned i = 0; i < 12; i++)
        fates.replay[i] = SCRIPT_LOSE;
    allocate(p, &r, "lost", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    BURNED("not_durable", "1");
    memset(&fates, 0, sizeof(fates));
    assert_int_equal(issue(p, "after", 0), 4); /* 3 was sent */
    world_kill(p);
    p = world_start(w);
    allocate_ok(p, &r, "lost", PLAN(ISSUE));
    EXPECT_IDS(&r, 11);
    allocate(p, &r, "three", PLAN(3));
    expect_err(&r, SF_VERSION_CONFLICT);
}

static void test_late_result_of_a_dead_owner(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-7.4-08", "ALLOC-13.2-03");

    heat(p);
    fates_from_now(w);
    for (unsigned i = 0; i < 12; i++)
        fates.replay[i] = SCRIPT_LATE;
    allocate(p, &r, "late", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    world_kill(p);
    memset(&fates, 0, sizeof(fates));
    assert_int_equal(script_store_land_late(w->script), 1);
    p = world_start(w);
    allocate_ok(p, &r, "late", PLAN(ISSUE));
    EXPECT_IDS(&r, 3);
    assert_int_equal(issue(p, "next", 0), 11);
}

static void test_paused_owner(void **state)
{
    struct world *w = *state;
    struct process *a = &w->processes[0];
    SF_PROVES("ALLOC-13.2-03", "ALLOC-7.2-10");

    heat(a); /* [3, 11) */
    struct process *b = world_start(w);
    assert_int_equal(issue(b, "b", 0), 11);
    /* a does not know: what it still does is its own and no key gets two answers */
    assert_int_equal(issue(a, "a", 0), 3);
    assert_int_equal(issue(b, "a", 0), 3);
    assert_int_equal(issue(b, "shared", 0), 12);
    assert_int_equal(issue(a, "shared", 0), 12);
    LEASES_OF(a, "discarded", "0");
    /* it stood still: it looks first, and serves nothing */
    manual_loop_advance(&w->loop, 2001);
    allocate(a, &r, "a-2", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    LEASES_OF(a, "discarded", "1");
    BURNED_OF(a, "lost_race", "1");  /* 4, for "shared" */
    BURNED_OF(a, "lease_tail", "6"); /* 5 .. 10 */
    for (unsigned i = 1; i < 20; i++)
        assert_true(issue(b, "b", i) > 12);
    struct sf_allocator_stats stats;
    sf_allocator_stats(a->allocator, &stats);
    assert_int_equal(stats.lanes_closed, 1);
}

static void test_owner_is_proved_again(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-7.2-10");

    heat(p); /* [3, 11) */
    unsigned puts = state_puts(w);
    unsigned gets = script_store_counts(w->script).state_gets;
    assert_int_equal(issue(p, "a", 0), 3);
    assert_int_equal(script_store_counts(w->script).state_gets, gets);
    manual_loop_advance(&w->loop, 2001);
    assert_int_equal(issue(p, "a", 1), 4); /* the lease goes on */
    assert_int_equal(script_store_counts(w->script).state_gets, gets + 1);
    assert_int_equal(issue(p, "a", 2), 5);
    assert_int_equal(script_store_counts(w->script).state_gets, gets + 1);
    assert_int_equal(state_puts(w), puts);
    BURNED("lease_tail", "0");
}

static void test_deposed_by_a_reservation(void **state)
{
    struct world *w = *state;
    struct process *a = &w->processes[0];
    SF_PROVES("ALLOC-13.2-03");

    heat(a); /* [3, 11) */
    struct process *b = world_start(w);
    assert_int_equal(issue(b, "b", 0), 11);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(issue(a, "a", i), 3 + i);
    /* its reservation met b's write: no more */
    allocate(a, &r, "a-4", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    LEASES_OF(a, "failed", "1");
    BURNED_OF(a, "lease_tail", "4");
}

static void test_replays(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-3.2-06", "ALLOC-4.2-04", "ALLOC-6.1-02", "ALLOC-6.1-03");

    world_kill(p);
    w->limits.cache_bytes_per_loop = 1; /* nothing is remembered */
    p = world_start(w);
    heat(p); /* [3, 11) */
    struct result first = {0};
    allocate_ok(p, &first, "k", PLAN(ISSUE, ISSUE));
    EXPECT_IDS(&first, 3, 4);
    unsigned gets = script_store_counts(w->script).replay_gets;
    allocate_ok(p, &r, "k", PLAN(ISSUE, ISSUE)); /* its own put is the look-up */
    expect_same(&first, &r);
    assert_int_equal(script_store_counts(w->script).replay_gets, gets + 1);
    BURNED("lost_race", "2");
    allocate(p, &r, "k", PLAN(ISSUE));
    expect_err(&r, SF_IDEMPOTENCY_CONFLICT);
    assert_int_equal(issue(p, "more", 0), 8); /* 5, 6 and 7 were sent */
    /* refused by the catalog: what stands is answered, nothing new is given though ids are left */
    w->facts.exists = false;
    allocate_ok(p, &r, "k", PLAN(ISSUE, ISSUE));
    expect_same(&first, &r);
    allocate(p, &r, "new", PLAN(ISSUE));
    expect_err(&r, SF_RESOURCE_NOT_FOUND);
    w->facts.exists = true;
    w->facts.max_items = 1;
    w->facts.etag = "etag-2";
    allocate_ok(p, &r, "k", PLAN(ISSUE, ISSUE));
    expect_same(&first, &r);
    allocate(p, &r, "wide", PLAN(ISSUE, ISSUE));
    expect_err(&r, SF_TOO_MANY_OPERATIONS);
    result_fini(&first);
}

static void test_exclusive_store_reads_first(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-6.1-09", "ALLOC-9-02");

    world_kill(p);
    script_store_exclusive(w->script, true);
    w->limits.cache_bytes_per_loop = 1;
    p = world_start(w);
    heat(p);
    struct result first = {0};
    allocate_ok(p, &first, "k", PLAN(ISSUE));
    unsigned reads = w->ccs_reads;
    unsigned puts = script_store_counts(w->script).replay_puts;
    allocate_ok(p, &r, "k", PLAN(ISSUE));
    expect_same(&first, &r);
    assert_int_equal(w->ccs_reads, reads);
    assert_int_equal(script_store_counts(w->script).replay_puts, puts);
    BURNED("lost_race", "0");
    result_fini(&first);
}

static void test_doubt_of_a_reservation(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-7.2-09", "ALLOC-13.2-02");

    heat(p); /* [3, 11) */
    fates_from_now(w);
    fates.state[0] = SCRIPT_DARK; /* stands, unknown to its sender */
    for (unsigned i = 0; i < 12; i++)
        assert_int_equal(issue(p, "a", i), 3 + i); /* no id is dropped */
    LEASES("granted", "2");
    LEASES("failed", "0");
    BURNED("lease_tail", "0");
    assert_int_equal(fates.state_seen, 1);
    fates_from_now(w);
    fates.state[0] = SCRIPT_LOSE; /* the next one does not stand */
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(issue(p, "b", i), 15 + i);
    LEASES("failed", "1");
    BURNED("lease_tail", "0");
    fates_from_now(w);
    fates.state[0] = SCRIPT_OWN_412;
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(issue(p, "c", i), 35 + i);
    BURNED("lease_tail", "0");
}

static void test_end_of_the_space(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-12-12");

    w->facts.max_jump = UINT64_MAX;
    allocate_ok(p, &r, "far", PLAN(UINT64_MAX - 6));
    manual_loop_advance(&w->loop, 10000);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(issue(p, "a", i), UINT64_MAX - 5 + i);
    struct recorded now = recorded(w); /* clamped: three are left */
    assert_string_equal(now.start, "18446744073709551613");
    assert_string_equal(now.end, "18446744073709551616");
    assert_string_equal(now.next, "18446744073709551616");
    /* more than is left: refused, nothing is lost by it */
    allocate(p, &r, "four", PLAN(ISSUE, ISSUE, ISSUE, ISSUE));
    expect_err(&r, SF_TOO_MANY_OPERATIONS);
    expect_detail(&r, "limit_scope", "allocator_identity_space_remaining");
    allocate(p, &r, "any", PLAN(5));
    expect_err(&r, SF_VERSION_CONFLICT);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(issue(p, "b", i), UINT64_MAX - 2 + i);
    allocate(p, &r, "none", PLAN(ISSUE));
    expect_err(&r, SF_TOO_MANY_OPERATIONS);
    BURNED("lease_tail", "0");
}

static void drained(void *user)
{
    *(bool *)user = true;
}

static void test_drain_drops_the_tail(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    bool done = false;
    SF_PROVES("ALLOC-5.3-13", "ALLOC-14-07");

    heat(p); /* [3, 11) */
    script_store_hold_reservations(w->script, true);
    for (unsigned i = 0; i < 4; i++)
        (void)issue(p, "a", i);
    sf_allocator_drain(p->allocator, drained, &done);
    manual_loop_run(&w->loop);
    assert_false(done); /* the reservation is under way */
    script_store_hold_reservations(w->script, false);
    manual_loop_run(&w->loop);
    assert_true(done);
    LEASES("discarded", "1");
    BURNED("lease_tail", "20"); /* 7 .. 26 */
    world_kill(p);
    p = world_start(w);
    assert_int_equal(issue(p, "b", 0), 27);
}

static void test_leaving_memory_drops_the_tail(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-5.3-13", "ALLOC-5.3-14");

    world_kill(p);
    w->limits.max_lanes_per_loop = 1;
    p = world_start(w);
    heat(p); /* [3, 11) */
    call_run(p, &r,
             &(struct call_spec){
                 .key = "o", .collection_id = 10, .items = (const uint64_t[]){ISSUE}, .count = 1});
    expect_err(&r, SF_OK);
    LEASES("discarded", "1");
    BURNED("lease_tail", "8");
    assert_int_equal(issue(p, "back", 0), 11); /* the same owner, and yet */
    assert_false(recorded(w).lease);
    LEASES("discarded", "1");
}

/* ---- what an operator is told ---- */

/* The answer of ExplainAllocator in a test. */
struct explained {
    bool done;
    enum sf_err err;
    char lease[64];      /* "start..end at next", "" without */
    char next_range[64]; /* "start..end", "" without */
    char leasing[32];
    char stored_next[24];
    bool in_memory;
};

static void explain_done(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct explained *out = user;
    const Searchfabric__V1__ExplainAllocatorResponse *m = (const void *)response;

    out->done = true;
    out->err = diag->err;
    if (m == NULL)
        return;
    if (m->stored != NULL)
        (void)snprintf(out->stored_next, sizeof(out->stored_next), "%s", m->stored->next_doc_id);
    out->in_memory = m->lane != NULL;
    if (m->lane == NULL)
        return;
    (void)snprintf(out->leasing, sizeof(out->leasing), "%s", m->lane->leasing);
    if (m->lane->lease != NULL)
        (void)snprintf(out->lease, sizeof(out->lease), "%s..%s at %s", m->lane->lease->start,
                       m->lane->lease->end, m->lane->lease_next_doc_id);
    if (m->lane->next_range != NULL)
        (void)snprintf(out->next_range, sizeof(out->next_range), "%s..%s",
                       m->lane->next_range->start, m->lane->next_range->end);
}

static struct explained explain(struct process *p)
{
    struct explained out = {0};
    Searchfabric__V1__ExplainAllocatorRequest request =
        SEARCHFABRIC__V1__EXPLAIN_ALLOCATOR_REQUEST__INIT;
    Searchfabric__V1__CollectionRef ref = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    struct sf_call_options options = {0};

    ref.namespace_id = NS;
    ref.collection_id = COLL;
    request.collection = &ref;
    sf_channel_unary(p->operations, "/" SF_ALLOCATOR_OPERATIONS_NAME "/ExplainAllocator",
                     &request.base, &options, &p->world->loop.base, explain_done, &out);
    manual_loop_run(&p->world->loop);
    assert_true(out.done);
    return out;
}

static void test_explain(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];

    struct explained told = explain(p);
    assert_int_equal(told.err, SF_OK);
    assert_false(told.in_memory);
    assert_string_equal(told.stored_next, "");
    (void)issue(p, "a", 0);
    told = explain(p);
    assert_string_equal(told.leasing, "rate_below_threshold");
    assert_string_equal(told.lease, "");
    for (unsigned i = 1; i < 3; i++)
        (void)issue(p, "a", i); /* [3, 11) */
    script_store_hold_reservations(w->script, true);
    for (unsigned i = 3; i < 7; i++)
        (void)issue(p, "a", i);
    told = explain(p);
    assert_string_equal(told.leasing, "hot");
    assert_string_equal(told.lease, "3..11 at 7");
    assert_string_equal(told.next_range, "11..27");
    script_store_hold_reservations(w->script, false);
    manual_loop_run(&w->loop);
    told = explain(p);
    assert_string_equal(told.lease, "7..27 at 7");
    assert_string_equal(told.next_range, "");
    assert_string_equal(told.stored_next, "27");
    allocate_ok(p, &r, "e", PLAN(40));
    told = explain(p);
    assert_string_equal(told.leasing, "explicit_ids_lately");
    assert_string_equal(told.lease, "");
    assert_string_equal(told.stored_next, "41");
    /* what stands there is shown only when it is the collection's own */
    struct sf_buf key = {0};
    struct sf_buf body = {0};
    call_run(p, &r,
             &(struct call_spec){
                 .key = "o", .collection_id = 10, .items = &(uint64_t){ISSUE}, .count = 1});
    sf_alloc_state_key((struct sf_collection_ref){{NS}, {10}}, &key);
    assert_int_equal(sf_store_get_wait(w->backend, NULL, sf_buf_view(&key), &body, NULL), SF_OK);
    sf_buf_clear(&key);
    sf_alloc_state_key((struct sf_collection_ref){{NS}, {COLL}}, &key);
    struct sf_put put = {.key = sf_buf_view(&key), .body = sf_buf_view(&body), .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->backend, NULL, &put), SF_OK);
    assert_int_equal(explain(p).err, SF_INTERNAL);
    sf_buf_fini(&key);
    sf_buf_fini(&body);
}

/* ---- schedules that each catch a removed fence ---- */

/* An issued id, UINT64_MAX when the request was refused. */
static uint64_t try_issue(struct process *p, const char *name, unsigned number)
{
    char key[32];

    (void)snprintf(key, sizeof(key), "%s-%u", name, number);
    allocate(p, &r, key, PLAN(ISSUE));
    return r.diag.err == SF_OK ? r.ids[0] : UINT64_MAX;
}

/* The reservation of the next range is refused: no id at or above what is recorded is given. */
static bool reservation_refused(struct world *w)
{
    heat(&w->processes[0]);
    fates_from_now(w);
    fates.state[0] = SCRIPT_REFUSE;
    for (unsigned i = 0; i < 12; i++)
        if (try_issue(&w->processes[0], "a", i) >= strtoull(recorded(w).next, NULL, 10))
            return false;
    return true;
}

/* A new owner begins above what the last one reserved. */
static bool owner_after_a_crash(struct world *w)
{
    heat(&w->processes[0]);
    (void)issue(&w->processes[0], "used", 0);
    world_kill(&w->processes[0]);
    return try_issue(world_start(w), "next", 0) == 11;
}

/* An explicit id just above the range is not issued again. */
static bool explicit_above_the_range(struct world *w)
{
    struct process *p = &w->processes[0];

    heat(p);
    allocate_ok(p, &r, "e", PLAN(11));
    for (unsigned i = 0; i < 12; i++)
        if (try_issue(p, "a", i) == 11)
            return false;
    return true;
}

/* A result that was given up lands after all: its id was not given to anybody else. */
static bool late_result(struct world *w)
{
    struct process *p = &w->processes[0];

    heat(p);
    fates_from_now(w);
    for (unsigned i = 0; i < 12; i++)
        fates.replay[i] = SCRIPT_LATE;
    allocate(p, &r, "late", PLAN(ISSUE));
    memset(&fates, 0, sizeof(fates));
    uint64_t other = try_issue(p, "other", 0);
    (void)script_store_land_late(w->script);
    allocate_ok(p, &r, "late", PLAN(ISSUE));
    return r.ids[0] != other;
}

/* An explicit plan's state write was given up and lands late, above a live lease: the lease is not
 * taken up again over it, or it would issue the explicit id. */
static bool late_write_above_the_range(struct world *w)
{
    struct process *p = &w->processes[0];

    heat(p); /* [3, 11) */
    fates_from_now(w);
    fates.state[0] = SCRIPT_LATE;
    fates.state[1] = SCRIPT_REFUSE;
    allocate(p, &r, "e", PLAN(12));
    if (r.diag.err != SF_BACKEND_UNAVAILABLE || script_store_land_late(w->script) != 1)
        return false;
    for (unsigned i = 0; i < 12; i++)
        if (try_issue(p, "a", i) == 12)
            return false;
    allocate(p, &r, "e", PLAN(12)); /* its own result, not its burn */
    return r.diag.err == SF_OK && r.ids[0] == 12;
}

/* An owner that stood still while another took over serves nothing from its range. */
static bool owner_that_stood_still(struct world *w)
{
    struct process *a = &w->processes[0];

    heat(a);
    (void)issue(world_start(w), "b", 0);
    manual_loop_advance(&w->loop, 2001);
    return try_issue(a, "a", 0) == UINT64_MAX;
}

/* What stands under a key is answered, whatever the catalog says or does not say. */
static bool standing_before_refused(struct world *w)
{
    world_kill(&w->processes[0]);
    w->limits.cache_bytes_per_loop = 1;
    struct process *p = world_start(w);

    heat(p);
    uint64_t id = issue(p, "k", 0);
    w->facts.down = true;
    return try_issue(p, "k", 0) == id;
}

static const struct schedule {
    const char *name;
    bool (*run)(struct world *w);
    enum sf_mutant mutant; /* that it catches */
} schedules[] = {
    {"reservation_refused", reservation_refused, SF_MUTANT_ID_alloc_lease_unreserved},
    {"owner_after_a_crash", owner_after_a_crash, SF_MUTANT_ID_alloc_lease_inherited},
    {"explicit_above_the_range", explicit_above_the_range,
     SF_MUTANT_ID_alloc_lease_survives_explicit},
    {"late_result", late_result, SF_MUTANT_ID_alloc_lease_reuses_ids},
    {"late_write_above_the_range", late_write_above_the_range, SF_MUTANT_ID_alloc_lease_unchecked},
    {"owner_that_stood_still", owner_that_stood_still, SF_MUTANT_ID_alloc_lease_unconfirmed},
    {"standing_before_refused", standing_before_refused, SF_MUTANT_ID_alloc_lease_refuses_unlooked},
};

/* Runs a schedule in a world of its own; tells whether what must hold held. */
static bool schedule_holds(const struct schedule *schedule, enum sf_mutant mutant)
{
    void *world = NULL;

    assert_int_equal(setup(&world), 0);
    sf_mutant_set(mutant);
    bool held = schedule->run(world);
    sf_mutant_set(SF_MUTANT_ID_NONE);
    assert_int_equal(teardown(&world), 0);
    return held;
}

static void test_schedules_hold(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-5.3-14", "ALLOC-7.2-09", "ALLOC-7.2-10", "ALLOC-13.2-02", "ALLOC-13.2-03");
    for (size_t i = 0; i < SF_ARRAY_LEN(schedules); i++)
        if (!schedule_holds(&schedules[i], SF_MUTANT_ID_NONE))
            fail_msg("%s does not hold", schedules[i].name);
}

#ifdef SF_MUTANTS
static void test_every_mutant_is_caught(void **state)
{
    (void)state;
    bool caught[SF_MUTANT_COUNT] = {false};

    for (size_t i = 0; i < SF_ARRAY_LEN(schedules); i++) {
        if (schedule_holds(&schedules[i], schedules[i].mutant))
            fail_msg("%s survives %s", sf_mutant_info(schedules[i].mutant)->name,
                     schedules[i].name);
        caught[schedules[i].mutant] = true;
    }
    for (int m = SF_MUTANT_ID_NONE + 1; m < SF_MUTANT_COUNT; m++)
        if (strncmp(sf_mutant_info((enum sf_mutant)m)->name, "alloc_lease_", 12) == 0 && !caught[m])
            fail_msg("no schedule for %s", sf_mutant_info((enum sf_mutant)m)->name);
}
#endif

int main(void)
{
#define LEASE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules_hold),
#ifdef SF_MUTANTS
        cmocka_unit_test(test_every_mutant_is_caught),
#endif
        LEASE_TEST(test_hot_lane_leases),
        LEASE_TEST(test_no_lease_when_off_or_slow),
        LEASE_TEST(test_explicit_passes_the_lease),
        LEASE_TEST(test_mixed_group_goes_direct),
        LEASE_TEST(test_more_than_the_range_holds),
        LEASE_TEST(test_reserved_ahead),
        LEASE_TEST(test_crash_burns_the_tail),
        LEASE_TEST(test_crash_around_the_reservation),
        LEASE_TEST(test_crash_before_the_result),
        LEASE_TEST(test_late_result_of_a_dead_owner),
        LEASE_TEST(test_paused_owner),
        LEASE_TEST(test_owner_is_proved_again),
        LEASE_TEST(test_deposed_by_a_reservation),
        LEASE_TEST(test_replays),
        LEASE_TEST(test_exclusive_store_reads_first),
        LEASE_TEST(test_doubt_of_a_reservation),
        LEASE_TEST(test_end_of_the_space),
        LEASE_TEST(test_drain_drops_the_tail),
        LEASE_TEST(test_leaving_memory_drops_the_tail),
        LEASE_TEST(test_explain),
    };
    return SF_RUN_TESTS("alloc_leases", tests);
}
