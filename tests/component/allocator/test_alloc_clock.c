/* Whose time a receipt carries: ingest holds it against timestamps, so it is the oracle's, also
 * while the machine's clock lies behind. */
#include "component/allocator/alloc_world.h"

#define LEAD_MS INT64_C(1200000)

static void test_receipts_carry_the_oracles_time(void **state)
{
    struct world *w = *state;
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct sf_clock_manual axis;
    struct result r = {0};
    sf_clock_manual_init(&axis, w->loop.clock.unix_ms + LEAD_MS, 0);
    w->applied_clock = &axis.base;
    struct process *p = world_start(w);
    allocate(p, &r, "k1", PLAN(ISSUE));
    assert_int_equal(r.diag.err, SF_OK);
    assert_int_equal(world_replay(w, "k1", arena)->applied_at_unix_ms, axis.unix_ms);
    /* the state's own times stay the machine's */
    assert_int_equal(world_state(w, COLL, arena)->updated_at_unix_ms, w->loop.clock.unix_ms);
    /* a replay is the stored answer, whatever the time is by then */
    struct result again = {0};
    axis.unix_ms += LEAD_MS;
    allocate(p, &again, "k1", PLAN(ISSUE));
    assert_true(sf_view_equal(sf_buf_view(&again.packed), sf_buf_view(&r.packed)));
    result_fini(&r);
    result_fini(&again);
    sf_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        test_receipts_carry_the_oracles_time, world_setup, world_teardown)};
    return SF_RUN_TESTS("alloc_clock", tests);
}
