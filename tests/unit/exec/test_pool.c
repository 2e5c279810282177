/* Serial lanes: order within a lane, parallelism between lanes, the bound, drain, waiters. */
#include <stdatomic.h>

#include "exec/sched.h"
#include "support/proves.h"

#define LANES          8
#define TASKS_PER_LANE 500

struct ordered {
    struct sf_task task;
    unsigned lane;
    unsigned number;
};

static struct ordered ordered[LANES][TASKS_PER_LANE];
static unsigned lane_next[LANES]; /* owned by the lane: no lock, so TSan checks the lanes */
static atomic_uint out_of_order;

static void run_ordered(struct sf_task *task)
{
    struct ordered *o = SF_CONTAINER_OF(task, struct ordered, task);

    if (lane_next[o->lane] != o->number)
        atomic_fetch_add(&out_of_order, 1);
    lane_next[o->lane] = o->number + 1;
}

static void test_lane_runs_in_submit_order(void **state)
{
    (void)state;
    struct sf_pool_options options = {.workers = 4, .max_queued_tasks = LANES * TASKS_PER_LANE};
    struct sf_sched *pool = sf_pool_new(&options, sf_clock_system());

    for (unsigned n = 0; n < TASKS_PER_LANE; n++)
        for (unsigned l = 0; l < LANES; l++) {
            ordered[l][n] = (struct ordered){{.run = run_ordered}, l, n};
            assert_int_equal(sf_sched_submit(pool, l, &ordered[l][n].task), SF_OK);
        }
    sf_pool_destroy(pool);
    assert_int_equal(atomic_load(&out_of_order), 0);
    for (unsigned l = 0; l < LANES; l++)
        assert_int_equal(lane_next[l], TASKS_PER_LANE);
}

struct meeting {
    struct sf_task task;
    struct sf_sched *sched;
    struct sf_waiter here; /* opened when this task runs */
    struct meeting *other;
    struct sf_waiter *done; /* opened at the end */
};

static void run_meeting(struct sf_task *task)
{
    struct meeting *m = SF_CONTAINER_OF(task, struct meeting, task);

    sf_waiter_wake(&m->other->here);
    sf_waiter_wait(&m->here);
    sf_waiter_wake(m->done);
}

/* Two lanes that wait for each other end only if they run in parallel. */
static void test_lanes_run_in_parallel(void **state)
{
    (void)state;
    struct sf_pool_options options = {.workers = 2, .max_queued_tasks = 2};
    struct sf_sched *pool = sf_pool_new(&options, sf_clock_system());
    struct sf_waiter done;
    struct meeting a = {.task = {.run = run_meeting}, .sched = pool, .done = &done};
    struct meeting b = {.task = {.run = run_meeting}, .sched = pool, .other = &a, .done = &done};

    a.other = &b;
    sf_waiter_init(&done, NULL);
    sf_waiter_init(&a.here, pool);
    sf_waiter_init(&b.here, pool);
    assert_int_equal(sf_sched_submit(pool, 1, &a.task), SF_OK);
    assert_int_equal(sf_sched_submit(pool, 2, &b.task), SF_OK);
    sf_waiter_wait(&done);
    sf_waiter_wait(&done);
    sf_waiter_fini(&a.here);
    sf_waiter_fini(&b.here);
    sf_waiter_fini(&done);
    sf_pool_destroy(pool);
}

struct blocked {
    struct sf_task task;
    struct sf_waiter *started; /* woken when the task runs */
    struct sf_waiter *go;      /* the task waits for it */
    struct sf_sched *pool;
    unsigned ran;
};

static void run_blocked(struct sf_task *task)
{
    struct blocked *b = SF_CONTAINER_OF(task, struct blocked, task);

    if (b->started != NULL) {
        sf_waiter_wake(b->started);
        sf_waiter_wait(b->go);
    }
    b->ran++;
}

static void test_bound_refuses_and_never_runs(void **state)
{
    (void)state;
    struct sf_pool_options options = {.workers = 1, .max_queued_tasks = 1};
    struct sf_sched *pool = sf_pool_new(&options, sf_clock_system());
    struct sf_waiter started, go;

    sf_waiter_init(&started, NULL);
    sf_waiter_init(&go, NULL);
    struct blocked first = {.task = {.run = run_blocked}, .started = &started, .go = &go};
    struct blocked second = {.task = {.run = run_blocked}};
    struct blocked third = {.task = {.run = run_blocked}};
    assert_int_equal(sf_sched_submit(pool, 1, &first.task), SF_OK);
    sf_waiter_wait(&started); /* running: no longer queued */
    assert_int_equal(sf_sched_submit(pool, 1, &second.task), SF_OK);
    assert_int_equal(sf_sched_submit(pool, 2, &third.task), SF_ERR_FULL);
    sf_waiter_wake(&go);
    sf_pool_destroy(pool);
    assert_int_equal(first.ran, 1);
    assert_int_equal(second.ran, 1);
    assert_int_equal(third.ran, 0);
    sf_waiter_fini(&started);
    sf_waiter_fini(&go);
}

static enum sf_err late_submit;

static void run_then_submit(struct sf_task *task)
{
    struct blocked *b = SF_CONTAINER_OF(task, struct blocked, task);

    sf_waiter_wake(b->started);
    /* The drain has begun once a submit is refused; until then each one is accepted and rerun. */
    late_submit = sf_sched_submit(b->pool, 1, &b->task);
    if (late_submit == SF_ERR_STOPPED)
        b->ran++;
}

static void test_drain_refuses_new_tasks(void **state)
{
    (void)state;
    struct sf_pool_options options = {.workers = 2, .max_queued_tasks = 4};
    struct sf_sched *pool = sf_pool_new(&options, sf_clock_system());
    struct sf_waiter started;

    sf_waiter_init(&started, NULL);
    struct blocked b = {.task = {.run = run_then_submit}, .started = &started, .pool = pool};
    assert_int_equal(sf_sched_submit(pool, 1, &b.task), SF_OK);
    sf_waiter_wait(&started);
    sf_pool_destroy(pool);
    assert_int_equal(late_submit, SF_ERR_STOPPED);
    assert_int_equal(b.ran, 1);
    sf_waiter_fini(&started);
    sf_pool_destroy(NULL);
}

struct holder {
    struct sf_task task;
    struct sf_sched *pool;
    struct sf_waiter *returned; /* woken by the next task of another lane of one worker */
    struct sf_lane_hold *hold;  /* out */
    bool release;               /* lets go at once */
};

static void run_holder(struct sf_task *task)
{
    struct holder *h = SF_CONTAINER_OF(task, struct holder, task);

    h->hold = sf_sched_hold(h->pool);
    if (h->release)
        sf_sched_release(h->pool, h->hold);
}

static void run_signal(struct sf_task *task)
{
    sf_waiter_wake(SF_CONTAINER_OF(task, struct holder, task)->returned);
}

/* A held lane runs nothing and counts in the bound; its worker is free; a drain waits for it. */
static void test_held_lane_waits_for_its_release(void **state)
{
    (void)state;
    struct sf_pool_options options = {.workers = 1, .max_queued_tasks = 2};
    struct sf_sched *pool = sf_pool_new(&options, sf_clock_system());
    struct sf_waiter returned;
    struct holder first = {.task = {.run = run_holder}, .pool = pool};
    struct holder other = {.task = {.run = run_signal}, .returned = &returned};
    struct blocked second = {.task = {.run = run_blocked}};
    struct blocked third = {.task = {.run = run_blocked}};

    sf_waiter_init(&returned, NULL);
    assert_int_equal(sf_sched_submit(pool, 1, &first.task), SF_OK);
    while (sf_sched_submit(pool, 2, &other.task) != SF_OK) /* full until the first one runs */
        ;
    sf_waiter_wait(&returned); /* the one worker is done with the first task */
    assert_int_equal(sf_sched_submit(pool, 1, &second.task), SF_OK);
    assert_int_equal(sf_sched_submit(pool, 3, &third.task), SF_ERR_FULL);
    assert_int_equal(second.ran, 0);
    sf_sched_release(pool, first.hold);
    sf_pool_destroy(pool);
    assert_int_equal(second.ran, 1);
    sf_waiter_fini(&returned);
}

static void test_release_may_come_before_the_return(void **state)
{
    (void)state;
    struct sf_pool_options options = {.workers = 2, .max_queued_tasks = 4};
    struct sf_sched *pool = sf_pool_new(&options, sf_clock_system());
    struct holder first = {.task = {.run = run_holder}, .pool = pool, .release = true};
    struct blocked second = {.task = {.run = run_blocked}};

    assert_int_equal(sf_sched_submit(pool, 1, &first.task), SF_OK);
    assert_int_equal(sf_sched_submit(pool, 1, &second.task), SF_OK);
    sf_pool_destroy(pool);
    assert_int_equal(second.ran, 1);
}

#define HELD_ROUNDS 2000

static unsigned held_value; /* owned by the lane: no lock, so TSan checks the hand-over */

static void run_let_go(struct sf_task *task)
{
    struct holder *h = SF_CONTAINER_OF(task, struct holder, task);

    held_value++;
    sf_sched_release(h->pool, h->hold);
}

static void run_hand_over(struct sf_task *task)
{
    struct holder *h = SF_CONTAINER_OF(task, struct holder, task);

    held_value++;
    h->hold = sf_sched_hold(h->pool);
    h->task.run = run_let_go; /* goes on under the hold, in another lane */
    assert_int_equal(sf_sched_submit(h->pool, 2 + held_value % 7, &h->task), SF_OK);
}

/* The release races with the return of the task that took the hold. */
static void test_holds_pass_the_lane_on(void **state)
{
    (void)state;
    struct sf_pool_options options = {.workers = 4, .max_queued_tasks = 4 * HELD_ROUNDS};
    struct sf_sched *pool = sf_pool_new(&options, sf_clock_system());
    static struct holder holders[HELD_ROUNDS];
    struct sf_waiter idle;

    sf_waiter_init(&idle, NULL);
    for (unsigned i = 0; i < HELD_ROUNDS; i++) {
        holders[i] = (struct holder){.task = {.run = run_hand_over}, .pool = pool};
        assert_int_equal(sf_sched_submit(pool, 1, &holders[i].task), SF_OK);
    }
    struct holder last = {.task = {.run = run_signal}, .returned = &idle};
    assert_int_equal(sf_sched_submit(pool, 1, &last.task), SF_OK);
    sf_waiter_wait(&idle);
    assert_int_equal(held_value, 2 * HELD_ROUNDS);
    sf_pool_destroy(pool);
    sf_waiter_fini(&idle);
}

static void test_wake_before_wait_counts(void **state)
{
    (void)state;
    struct sf_waiter waiter;

    sf_waiter_init(&waiter, NULL);
    sf_waiter_wake(&waiter);
    sf_waiter_wake(&waiter);
    sf_waiter_wait(&waiter);
    sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lane_runs_in_submit_order),
        cmocka_unit_test(test_lanes_run_in_parallel),
        cmocka_unit_test(test_bound_refuses_and_never_runs),
        cmocka_unit_test(test_drain_refuses_new_tasks),
        cmocka_unit_test(test_held_lane_waits_for_its_release),
        cmocka_unit_test(test_release_may_come_before_the_return),
        cmocka_unit_test(test_holds_pass_the_lane_on),
        cmocka_unit_test(test_wake_before_wait_counts),
    };
    return SF_RUN_TESTS("pool", tests);
}
