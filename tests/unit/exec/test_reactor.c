/* Reactors: mailbox order, posts across and within loops, timers, stop. */
#include "exec/reactor.h"

#include <stdatomic.h>

#include "exec/sched.h"
#include "support/proves.h"

#define POSTS 2000

static struct sf_reactors *start(unsigned count)
{
    struct sf_reactors *reactors = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(sf_reactors_start(count, sf_clock_system(), &diag, &reactors), SF_OK);
    assert_int_equal(sf_reactors_count(reactors), count);
    return reactors;
}

struct numbered {
    struct sf_task task;
    struct sf_loop *loop;
    unsigned number;
    unsigned *next;         /* owned by the loop */
    unsigned *out_of_order; /* owned by the loop */
};

static struct numbered numbered[POSTS];

static void run_numbered(struct sf_task *task)
{
    struct numbered *n = SF_CONTAINER_OF(task, struct numbered, task);

    if (!sf_loop_is_current(n->loop) || *n->next != n->number)
        ++*n->out_of_order;
    *n->next = n->number + 1;
}

static void test_posts_run_in_order_on_the_loop(void **state)
{
    (void)state;
    struct sf_reactors *reactors = start(1);
    struct sf_loop *loop = sf_reactors_loop(reactors, 0);
    unsigned next = 0, out_of_order = 0;

    assert_false(sf_loop_is_current(loop));
    for (unsigned i = 0; i < POSTS; i++) {
        numbered[i] = (struct numbered){{.run = run_numbered}, loop, i, &next, &out_of_order};
        sf_loop_post(loop, &numbered[i].task);
    }
    sf_reactors_stop(reactors);
    assert_int_equal(next, POSTS);
    assert_int_equal(out_of_order, 0);
}

struct ball {
    struct sf_task task;
    struct sf_loop *loops[2];
    unsigned bounces;
    unsigned wrong;
    struct sf_waiter *done;
};

static void run_ball(struct sf_task *task)
{
    struct ball *ball = SF_CONTAINER_OF(task, struct ball, task);

    if (!sf_loop_is_current(ball->loops[ball->bounces % 2]))
        ball->wrong++;
    if (++ball->bounces == POSTS)
        sf_waiter_wake(ball->done);
    else
        sf_loop_post(ball->loops[ball->bounces % 2], &ball->task);
}

static void bounce(struct sf_loop *a, struct sf_loop *b)
{
    struct sf_waiter done;

    sf_waiter_init(&done, NULL);
    struct ball ball = {.task = {.run = run_ball}, .loops = {a, b}, .done = &done};
    sf_loop_post(a, &ball.task);
    sf_waiter_wait(&done);
    assert_int_equal(ball.wrong, 0);
    sf_waiter_fini(&done);
}

static void test_task_bounces_between_loops_and_within_one(void **state)
{
    (void)state;
    struct sf_reactors *reactors = start(2);

    bounce(sf_reactors_loop(reactors, 0), sf_reactors_loop(reactors, 1));
    bounce(sf_reactors_loop(reactors, 1), sf_reactors_loop(reactors, 1));
    sf_reactors_stop(reactors);
}

struct clockwork {
    struct sf_task task;
    struct sf_loop *loop;
    struct sf_timer early, late, stopped, again;
    char order[8];
    unsigned count;
    int64_t start_ms, early_ms, late_ms;
    struct sf_waiter *done;
};

static void fire_early(struct sf_timer *timer)
{
    struct clockwork *c = SF_CONTAINER_OF(timer, struct clockwork, early);

    c->order[c->count++] = 'e';
    c->early_ms = c->loop->now_ms;
    sf_timer_stop(&c->stopped);
}

static void fire_late(struct sf_timer *timer)
{
    struct clockwork *c = SF_CONTAINER_OF(timer, struct clockwork, late);

    c->order[c->count++] = 'l';
    c->late_ms = c->loop->now_ms;
    sf_waiter_wake(c->done);
}

static void fire_stopped(struct sf_timer *timer)
{
    struct clockwork *c = SF_CONTAINER_OF(timer, struct clockwork, stopped);

    c->order[c->count++] = 's';
}

static void fire_again(struct sf_timer *timer)
{
    struct clockwork *c = SF_CONTAINER_OF(timer, struct clockwork, again);

    c->order[c->count++] = 'a';
    if (c->count < 3)
        sf_timer_start(timer, 0);
}

static void run_clockwork(struct sf_task *task)
{
    struct clockwork *c = SF_CONTAINER_OF(task, struct clockwork, task);

    c->start_ms = c->loop->now_ms;
    sf_timer_init(&c->early, c->loop, fire_early);
    sf_timer_init(&c->late, c->loop, fire_late);
    sf_timer_init(&c->stopped, c->loop, fire_stopped);
    sf_timer_init(&c->again, c->loop, fire_again);
    sf_timer_start(&c->late, 30);
    sf_timer_start(&c->stopped, 25);
    sf_timer_start(&c->early, 20);
    sf_timer_start(&c->again, 0);
    assert_true(sf_timer_active(&c->early));
    assert_int_equal(c->count, 0);
}

static void test_timers(void **state)
{
    (void)state;
    struct sf_reactors *reactors = start(1);
    struct sf_waiter done;

    sf_waiter_init(&done, NULL);
    struct clockwork c = {
        .task = {.run = run_clockwork}, .loop = sf_reactors_loop(reactors, 0), .done = &done};
    sf_loop_post(c.loop, &c.task);
    sf_waiter_wait(&done);
    sf_reactors_stop(reactors);
    assert_int_equal(c.count, 5);
    assert_memory_equal(c.order, "aaael", 5);
    assert_true(c.early_ms >= c.start_ms + 20);
    assert_true(c.late_ms >= c.start_ms + 30);
    sf_waiter_fini(&done);
}

struct farewell {
    struct sf_task task;
    struct sf_loop *to;
    struct farewell *next;
    bool ran;
};

static void run_farewell(struct sf_task *task)
{
    struct farewell *f = SF_CONTAINER_OF(task, struct farewell, task);

    f->ran = true;
    if (f->next != NULL)
        sf_loop_post(f->to, &f->next->task);
}

static void test_stop_runs_what_is_posted_even_across_loops(void **state)
{
    (void)state;
    struct sf_reactors *reactors = start(2);
    struct sf_loop *a = sf_reactors_loop(reactors, 0), *b = sf_reactors_loop(reactors, 1);
    struct farewell third = {.task = {.run = run_farewell}};
    struct farewell second = {.task = {.run = run_farewell}, .to = a, .next = &third};
    struct farewell first = {.task = {.run = run_farewell}, .to = b, .next = &second};

    sf_loop_post(a, &first.task);
    sf_reactors_stop(reactors);
    assert_true(first.ran && second.ran && third.ran);
    sf_reactors_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_posts_run_in_order_on_the_loop),
        cmocka_unit_test(test_task_bounces_between_loops_and_within_one),
        cmocka_unit_test(test_timers),
        cmocka_unit_test(test_stop_runs_what_is_posted_even_across_loops),
    };
    return SF_RUN_TESTS("reactor", tests);
}
