/*
 * Gates under many tasks: who holds a gate alone holds it alone, who shares it shares it with
 * sharers only, and a waiting transition is not overtaken by children that come after it.
 */
#include "catalog/catalog_gate.h"

#include <stdlib.h>

#include "support/proves.h"

#define TASKS      64
#define NAMESPACES 3

struct bench {
    struct sf_catalog catalog;
    struct sf_clock_manual clock;
    _Atomic int shared[NAMESPACES + 1];
    _Atomic int alone[NAMESPACES + 1];
    _Atomic int collection;
    _Atomic int left;
    struct sf_waiter done;
};

struct holder {
    struct sf_task task;
    struct bench *bench;
    struct sf_catalog_gates gates;
};

static void setup(struct bench *b, unsigned workers)
{
    memset(b, 0, sizeof(*b));
    sf_clock_manual_init(&b->clock, 0, 0);
    b->catalog.deps.sched = sf_pool_new(
        &(struct sf_pool_options){.workers = workers, .max_queued_tasks = 1024}, &b->clock.base);
    b->catalog.gates = sf_catalog_gate_table_new();
    sf_waiter_init(&b->done, NULL);
}

static void teardown(struct bench *b)
{
    sf_waiter_fini(&b->done);
    sf_pool_destroy(b->catalog.deps.sched);
    sf_catalog_gate_table_destroy(b->catalog.gates); /* asserts that nothing is held */
}

static void hold(struct sf_task *task)
{
    struct holder *h = SF_CONTAINER_OF(task, struct holder, task);
    struct bench *b = h->bench;
    uint64_t ns = h->gates.namespace_id;
    sf_catalog_gates_acquire(&b->catalog, &h->gates);
    if (h->gates.namespace_exclusive) {
        assert_int_equal(atomic_fetch_add(&b->alone[ns], 1), 0);
        assert_int_equal(atomic_load(&b->shared[ns]), 0);
        atomic_fetch_sub(&b->alone[ns], 1);
    } else {
        atomic_fetch_add(&b->shared[ns], 1);
        assert_int_equal(atomic_load(&b->alone[ns]), 0);
        if (h->gates.collection_id == 7) {
            assert_int_equal(atomic_fetch_add(&b->collection, 1), 0);
            atomic_fetch_sub(&b->collection, 1);
        }
        atomic_fetch_sub(&b->shared[ns], 1);
    }
    sf_catalog_gates_release(&b->catalog, &h->gates);
    if (atomic_fetch_sub(&b->left, 1) == 1)
        sf_waiter_wake(&b->done);
}

static void test_holders_exclude(void **state)
{
    (void)state;
    struct bench b;
    static struct holder holders[TASKS * 8];
    setup(&b, 8);
    atomic_store(&b.left, TASKS * 8);
    for (unsigned i = 0; i < TASKS * 8; i++) {
        bool alone = i % 5 == 0;
        holders[i] = (struct holder){
            .task.run = hold,
            .bench = &b,
            .gates = {.namespace_id = i % NAMESPACES + 1,
                      .namespace_exclusive = alone,
                      .collection_id = alone                 ? 0
                                       : i % NAMESPACES == 0 ? 7
                                                             : 100 + i},
        };
        assert_int_equal(sf_sched_submit(b.catalog.deps.sched, i, &holders[i].task), SF_OK);
    }
    sf_waiter_wait(&b.done);
    teardown(&b);
}

/* One holder shares, a transition waits, a child comes after it: the order of admission. */
struct queued {
    struct sf_task task;
    struct bench *bench;
    bool exclusive;
    struct sf_waiter started; /* plain thread: the task is about to acquire */
    int place;                /* in which order it was admitted */
};

static void take_place(struct sf_task *task)
{
    struct queued *q = SF_CONTAINER_OF(task, struct queued, task);
    struct bench *b = q->bench;
    struct sf_catalog_gates gates = {.namespace_id = 1, .namespace_exclusive = q->exclusive};
    sf_waiter_wake(&q->started);
    sf_catalog_gates_acquire(&b->catalog, &gates);
    q->place = atomic_fetch_add(&b->left, 1);
    sf_catalog_gates_release(&b->catalog, &gates);
    if (q->place == 2)
        sf_waiter_wake(&b->done);
}

static void test_arrival_order(void **state)
{
    (void)state;
    struct bench b;
    setup(&b, 4);
    struct sf_catalog_gates gates = {.namespace_id = 1};
    sf_catalog_gates_acquire(&b.catalog, &gates); /* by this thread: nothing waits */
    atomic_store(&b.left, 1);
    struct queued transition = {.task.run = take_place, .bench = &b, .exclusive = true};
    struct queued child = {.task.run = take_place, .bench = &b};
    sf_waiter_init(&transition.started, NULL);
    sf_waiter_init(&child.started, NULL);
    assert_int_equal(sf_sched_submit(b.catalog.deps.sched, 1, &transition.task), SF_OK);
    sf_waiter_wait(&transition.started);
    while (!sf_catalog_gate_waited_for(&b.catalog, 1))
        sched_yield();
    assert_int_equal(sf_sched_submit(b.catalog.deps.sched, 2, &child.task), SF_OK);
    sf_waiter_wait(&child.started);
    sf_catalog_gates_release(&b.catalog, &gates);
    sf_waiter_wait(&b.done);
    assert_int_equal(transition.place, 1);
    assert_int_equal(child.place, 2);
    sf_waiter_fini(&transition.started);
    sf_waiter_fini(&child.started);
    teardown(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holders_exclude),
        cmocka_unit_test(test_arrival_order),
    };
    return SF_RUN_TESTS("catalog_gate", tests);
}
