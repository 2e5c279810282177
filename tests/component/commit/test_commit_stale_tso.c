/* A timestamp that was fetched before an outage decides nothing after it: not what is expired, and
 * not what may run again. */
#include "component/commit/commit_world.h"

#define DURABLE       SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_DURABLE
#define REFUSED(name) SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_##name

static uint64_t after_ms(uint64_t ms)
{
    return WORLD_TSO0 + (ms << 18);
}

/* The window has forgotten a batch by the newest timestamp of the shard; its lane still holds an
 * older one by which the batch would not be expired. */
static void test_forgotten_is_expired(void **state)
{
    struct world *w = world_new();
    struct entry entry = {.doc_id = 1, .body = "x"};
    struct batch_spec a = {.collection_id = 1, .batch_id = "a", .entries = &entry, .count = 1};
    struct batch_spec b = a;
    struct batch_spec c = a;
    struct batch_spec d = a;
    struct sf_rows_head head;
    (void)state;
    w->deps.duplicate_window_ms = 1000;
    w->deps.shard_count = 1;
    assert_int_equal(world_open(w), SF_OK);
    assert_int_equal(world_wait(w, world_submit(w, &a)).gate, DURABLE);
    world_settle(w);

    /* leader.json cannot be swapped: b's timestamp, 900 ms later, lies above the bound */
    gate_store_fail(w->gate, "leader.json", SF_ERR_UNAVAILABLE);
    hand_tso_set(&w->tso, after_ms(900));
    b.batch_id = "b";
    b.first_admitted_ts = after_ms(800);
    assert_int_equal(world_wait(w, world_submit(w, &b)).refusal, REFUSED(DEPENDENCY_UNAVAILABLE));

    /* another lane sees a timestamp by which the window has moved past a */
    hand_tso_set(&w->tso, after_ms(1500));
    c.batch_id = "c";
    c.collection_id = 2;
    c.first_admitted_ts = after_ms(1400);
    assert_int_equal(world_wait(w, world_submit(w, &c)).refusal, REFUSED(DEPENDENCY_UNAVAILABLE));
    d.batch_id = "d"; /* makes a's lane forget what is older than the window */
    d.first_admitted_ts = after_ms(1400);
    assert_int_equal(world_wait(w, world_submit(w, &d)).refusal, REFUSED(DEPENDENCY_UNAVAILABLE));

    uint64_t again = world_submit(w, &a);
    gate_store_fail(w->gate, NULL, SF_OK);
    struct outcome out = world_wait(w, again);
    while (out.refusal == REFUSED(DEPENDENCY_UNAVAILABLE))
        out = world_wait(w, world_submit(w, &a));
    assert_int_equal(out.refusal, REFUSED(DUPLICATE_WINDOW_EXPIRED));
    world_settle(w);
    assert_int_equal(world_rows(w, 1, NULL, &head), 1);
    assert_int_equal(head.slices, 1);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forgotten_is_expired)};
    return SF_RUN_TESTS("commit_stale_tso", tests);
}
