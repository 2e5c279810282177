#include "manual_loop.h"

static struct manual_loop *of(struct sf_loop *loop)
{
    return SF_CONTAINER_OF(loop, struct manual_loop, base);
}

static void post(struct sf_loop *loop, struct sf_task *task)
{
    sf_task_queue_push(&of(loop)->tasks, task);
}

static void timer_start(struct sf_loop *loop, struct sf_timer *timer, int64_t delay_ms)
{
    sf_timer_heap_start(&of(loop)->timers, timer, loop->now_ms + delay_ms);
}

static void timer_stop(struct sf_loop *loop, struct sf_timer *timer)
{
    sf_timer_heap_stop(&of(loop)->timers, timer);
}

static bool is_current(struct sf_loop *loop)
{
    (void)loop;
    return true;
}

static const struct sf_loop_vtable vtable = {post, timer_start, timer_stop, is_current};

void manual_loop_init(struct manual_loop *loop)
{
    *loop = (struct manual_loop){0};
    sf_clock_manual_init(&loop->clock, 1000, 1000000000);
    loop->base = (struct sf_loop){&vtable, &loop->clock.base, sf_clock_mono_ms(&loop->clock.base)};
}

void manual_loop_fini(struct manual_loop *loop)
{
    sf_timer_heap_fini(&loop->timers);
}

void manual_loop_run(struct manual_loop *loop)
{
    for (struct sf_task *task; (task = sf_task_queue_pop(&loop->tasks)) != NULL;)
        task->run(task);
}

void manual_loop_advance(struct manual_loop *loop, int64_t ms)
{
    sf_clock_manual_advance(&loop->clock, ms);
    loop->base.now_ms = sf_clock_mono_ms(&loop->clock.base);
    sf_timer_heap_run(&loop->timers, loop->base.now_ms);
    manual_loop_run(loop);
}
