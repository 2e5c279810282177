/*
 * What callers may rely on, as one property suite that knows nothing of how ids are found: it runs
 * with leasing off and on, over a store of many owners and one of its own, through owners that come
 * and go. The same seed asks the same things; the outcomes must be the same throughout, numbers
 * aside.
 */
#include "component/allocator/alloc_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define CALLS   250
#define WINDOW  1000u /* max_forward_reservation_jump of the fake catalog */
#define RESERVE 64u   /* more than leasing holds ahead of what was realized */
#define ITEMS   6

/* How the suite runs. */
struct setting {
    bool leases;    /* ranges of ids are reserved ahead */
    bool exclusive; /* the store is this process's own */
    bool restarts;  /* owners come and go */
};

/* A call that succeeded. */
struct done {
    char key[16];
    uint64_t items[ITEMS];
    size_t count;
    struct sf_buf packed; /* as answered */
};

/* One run of the suite. */
struct suite {
    struct world *w;
    struct process *p; /* the one that is asked */
    struct setting setting;
    struct sf_rng rng;
    struct done done[CALLS];
    size_t done_count;
    unsigned calls;
    bool any;         /* something was realized */
    uint64_t highest; /* of all realized ids */
    struct result r;  /* of the call at hand */
    struct sf_buf outcomes;
};

static uint64_t below(struct suite *s, uint64_t n)
{
    return sf_rng_below(&s->rng, n);
}

static void ask(struct suite *s, const char *key, const uint64_t *items, size_t count)
{
    allocate(s->p, &s->r, key, items, count);
    sf_buf_printf(&s->outcomes, "%s\n", sf_err_info(s->r.diag.err)->name);
    s->calls++;
}

static void fresh_key(struct suite *s, char out_key[16])
{
    (void)snprintf(out_key, 16, "k%u", s->calls);
}

/* A plan that must succeed: its ids ascend, lie above all that were realized, and are the named
 * ones where it names them. */
static void must_succeed(struct suite *s, const uint64_t *items, size_t count)
{
    struct done *d = &s->done[s->done_count++];

    fresh_key(s, d->key);
    memcpy(d->items, items, count * sizeof(*items));
    d->count = count;
    ask(s, d->key, items, count);
    expect_err(&s->r, SF_OK);
    assert_int_equal(s->r.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_true(!s->any || s->r.ids[i] > s->highest);
        assert_true(items[i] == ISSUE || s->r.ids[i] == items[i]);
        assert_int_equal(s->r.issued[i], items[i] == ISSUE);
        s->any = true;
        s->highest = s->r.ids[i];
    }
    sf_buf_append(&d->packed, s->r.packed.data, s->r.packed.len);
}

/* An id that is certainly free, and certainly within reach. */
static uint64_t free_id(struct suite *s)
{
    return s->highest + RESERVE + below(s, WINDOW - 2 * RESERVE);
}

static void call_issue(struct suite *s)
{
    uint64_t items[ITEMS];
    size_t count = 1 + below(s, ITEMS);

    for (size_t i = 0; i < count; i++)
        items[i] = ISSUE;
    must_succeed(s, items, count);
}

static void call_explicit(struct suite *s)
{
    uint64_t id = free_id(s);

    must_succeed(s, PLAN(id, id + 1 + below(s, 5)));
}

static void call_mixed(struct suite *s)
{
    uint64_t id = free_id(s);

    must_succeed(s, PLAN(ISSUE, id, ISSUE, ISSUE, id + 10));
}

/* Whatever was realized, or lies below it, is gone, whether anybody holds it or not. */
static void call_burned(struct suite *s)
{
    char key[16];
    char text[24];
    uint64_t id = below(s, s->highest + 1);

    fresh_key(s, key);
    ask(s, key, &id, 1);
    expect_err(&s->r, SF_VERSION_CONFLICT);
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)id);
    expect_detail(&s->r, "doc_id", text);
    expect_detail(&s->r, "allocator_conflict_reason", "below_watermark_burned_gap");
}

static void call_descending(struct suite *s)
{
    char key[16];
    uint64_t id = free_id(s);

    fresh_key(s, key);
    ask(s, key, PLAN(ISSUE, id, id - 1));
    expect_err(&s->r, SF_VERSION_CONFLICT);
}

static void call_out_of_reach(struct suite *s)
{
    char key[16];
    uint64_t id = s->highest + WINDOW + RESERVE + 1;

    fresh_key(s, key);
    ask(s, key, &id, 1);
    expect_err(&s->r, SF_TOO_MANY_OPERATIONS);
    expect_detail(&s->r, "limit_scope", "allocator_forward_reservation_window");
}

static void call_twice_named(struct suite *s)
{
    char key[16];
    uint64_t id = free_id(s);

    fresh_key(s, key);
    ask(s, key, PLAN(id, ISSUE, id));
    expect_err(&s->r, SF_BAD_REQUEST);
}

/* A key that was answered gets the same bytes, and another payload under it nothing. */
static void call_again(struct suite *s)
{
    const struct done *d = &s->done[below(s, s->done_count)];
    uint64_t other[ITEMS + 1];

    ask(s, d->key, d->items, d->count);
    expect_err(&s->r, SF_OK);
    assert_true(sf_view_equal(sf_buf_view(&d->packed), sf_buf_view(&s->r.packed)));
    memcpy(other, d->items, d->count * sizeof(*other));
    other[d->count] = ISSUE;
    ask(s, d->key, other, d->count + 1);
    expect_err(&s->r, SF_IDEMPOTENCY_CONFLICT);
}

/* Time passes; now and then an owner is killed and another takes its place. */
static void between_calls(struct suite *s)
{
    bool ends = below(s, 20) == 0;

    manual_loop_advance(&s->w->loop, 1 + (int64_t)below(s, 60));
    if (!ends || !s->setting.restarts || s->w->process_count == MAX_PROCESSES)
        return;
    world_kill(s->p);
    s->p = world_start(s->w);
}

static void run(struct suite *s)
{
    static void (*const calls[])(struct suite *) = {
        call_issue,  call_issue, call_issue,      call_issue,        call_issue,
        call_issue,  call_issue, call_issue,      call_explicit,     call_mixed,
        call_burned, call_again, call_descending, call_out_of_reach, call_twice_named,
    };

    call_issue(s);
    while (s->calls < CALLS - 2) {
        calls[below(s, SF_ARRAY_LEN(calls))](s);
        between_calls(s);
    }
}

/* One run in a world of its own; returns how many results came out of leases. */
static uint64_t suite_run(uint64_t seed, struct setting setting, struct sf_buf *out_outcomes)
{
    struct suite *s = calloc(1, sizeof(*s));
    struct sf_allocator_stats stats;
    void *world = NULL;

    assert_non_null(s);
    assert_int_equal(world_setup(&world), 0);
    s->w = world;
    s->setting = setting;
    sf_rng_init(&s->rng, seed);
    script_store_exclusive(s->w->script, setting.exclusive);
    world_kill(&s->w->processes[0]);
    s->w->limits.cache_bytes_per_loop = 4096;
    s->w->leases = (struct sf_alloc_lease_policy){.on = setting.leases,
                                                  .hot_per_s = 1,
                                                  .min_ids = 4,
                                                  .max_ids = 16,
                                                  .quiet_ms = 50,
                                                  .confirm_ms = 500};
    s->p = world_start(s->w);
    run(s);
    sf_allocator_stats(s->p->allocator, &stats);
    *out_outcomes = s->outcomes;
    for (size_t i = 0; i < s->done_count; i++)
        sf_buf_fini(&s->done[i].packed);
    result_fini(&s->r);
    assert_int_equal(world_teardown(&world), 0);
    free(s);
    return stats.lease_local;
}

static void test_same_for_callers(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-3.2-06", "ALLOC-13.2-01", "ALLOC-5.3-14");
    static const struct setting settings[] = {
        {.leases = false, .exclusive = false, .restarts = true},
        {.leases = true, .exclusive = false, .restarts = true},
        {.leases = false, .exclusive = true, .restarts = true},
        {.leases = true, .exclusive = true, .restarts = true},
        {.leases = true, .exclusive = false, .restarts = false},
    };
    uint64_t leased = 0;

    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct sf_buf first = {0};
        for (size_t i = 0; i < SF_ARRAY_LEN(settings); i++) {
            struct sf_buf outcomes = {0};
            uint64_t local = suite_run(seed, settings[i], &outcomes);
            assert_true(settings[i].leases || local == 0);
            leased += local;
            if (i == 0)
                first = outcomes;
            else
                assert_true(sf_view_equal(sf_buf_view(&first), sf_buf_view(&outcomes)));
            if (i != 0)
                sf_buf_fini(&outcomes);
        }
        sf_buf_fini(&first);
    }
    assert_true(leased > 1000); /* or the suite does not reach what it is about */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_for_callers)};
    return SF_RUN_TESTS("alloc_blackbox", tests);
}
