/* The heap of timers against a sorted list: order, ties, restart, stop, restart while firing. */
#include "exec/timer_heap.h"

#include "base/rng.h"
#include "support/proves.h"

#define TIMERS 64

static int fired[4096];
static size_t fired_count;
static struct sf_timer_heap heap;
static struct sf_timer timers[TIMERS];

static void note(struct sf_timer *timer)
{
    fired[fired_count++] = (int)(timer - timers);
}

static void restart_now(struct sf_timer *timer)
{
    note(timer);
    sf_timer_heap_start(&heap, timer, timer->due_ms);
}

static void stop_next(struct sf_timer *timer)
{
    note(timer);
    sf_timer_heap_stop(&heap, timer + 1);
}

static int setup(void **state)
{
    (void)state;
    fired_count = 0;
    heap = (struct sf_timer_heap){0};
    for (size_t i = 0; i < TIMERS; i++)
        timers[i] = (struct sf_timer){.fire = note};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sf_timer_heap_fini(&heap);
    return 0;
}

static void test_equal_due_times_fire_in_start_order(void **state)
{
    (void)state;
    sf_timer_heap_start(&heap, &timers[2], 10);
    sf_timer_heap_start(&heap, &timers[0], 10);
    sf_timer_heap_start(&heap, &timers[1], 5);
    sf_timer_heap_start(&heap, &timers[3], 11);
    sf_timer_heap_run(&heap, 10);
    assert_int_equal(fired_count, 3);
    assert_int_equal(fired[0], 1);
    assert_int_equal(fired[1], 2);
    assert_int_equal(fired[2], 0);
    assert_true(sf_timer_active(&timers[3]));
    assert_false(sf_timer_active(&timers[0]));
    assert_ptr_equal(sf_timer_heap_first(&heap), &timers[3]);
}

static void test_restart_in_callback_fires_in_next_run(void **state)
{
    (void)state;
    timers[0].fire = restart_now;
    sf_timer_heap_start(&heap, &timers[0], 1);
    sf_timer_heap_run(&heap, 5);
    assert_int_equal(fired_count, 1);
    sf_timer_heap_run(&heap, 5);
    assert_int_equal(fired_count, 2);
}

static void test_stop_in_callback(void **state)
{
    (void)state;
    timers[0].fire = stop_next;
    sf_timer_heap_start(&heap, &timers[0], 1);
    sf_timer_heap_start(&heap, &timers[1], 1);
    sf_timer_heap_run(&heap, 5);
    assert_int_equal(fired_count, 1);
    assert_null(sf_timer_heap_first(&heap));
    sf_timer_heap_stop(&heap, &timers[1]);
}

/* Random starts, restarts and stops; each run fires exactly the model's due set in its order. */
static void test_against_model(void **state)
{
    (void)state;
    int64_t due[TIMERS];
    uint64_t order[TIMERS];
    uint64_t next_order = 0;
    struct sf_rng rng;

    sf_rng_init(&rng, 7);
    for (size_t i = 0; i < TIMERS; i++)
        due[i] = -1;
    for (int64_t now = 0; now < 2000; now++) {
        for (int k = 0; k < 3; k++) {
            size_t i = sf_rng_below(&rng, TIMERS);
            if (sf_rng_below(&rng, 4) == 0) {
                sf_timer_heap_stop(&heap, &timers[i]);
                due[i] = -1;
            } else {
                due[i] = now + (int64_t)sf_rng_below(&rng, 50);
                order[i] = next_order++;
                sf_timer_heap_start(&heap, &timers[i], due[i]);
            }
        }
        fired_count = 0;
        sf_timer_heap_run(&heap, now);
        for (size_t n = 0; n < fired_count; n++) {
            int best = -1;
            for (int i = 0; i < TIMERS; i++)
                if (due[i] >= 0 && due[i] <= now &&
                    (best < 0 || due[i] < due[best] ||
                     (due[i] == due[best] && order[i] < order[best])))
                    best = i;
            assert_int_equal(fired[n], best);
            due[best] = -1;
        }
        for (size_t i = 0; i < TIMERS; i++) {
            assert_false(due[i] >= 0 && due[i] <= now);
            assert_int_equal(sf_timer_active(&timers[i]), due[i] >= 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_equal_due_times_fire_in_start_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_restart_in_callback_fires_in_next_run, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_stop_in_callback, setup, teardown),
        cmocka_unit_test_setup_teardown(test_against_model, setup, teardown),
    };
    return SF_RUN_TESTS("timer_heap", tests);
}
