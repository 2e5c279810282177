/* One queue, one timer heap, no thread. */
#include "hand_loop.h"

static struct hand_loop *loop_of(struct sf_loop *loop)
{
    return SF_CONTAINER_OF(loop, struct hand_loop, base);
}

static void post(struct sf_loop *loop, struct sf_task *task)
{
    struct hand_loop *l = loop_of(loop);

    task->next = NULL;
    *l->tail = task;
    l->tail = &task->next;
}

static void timer_start(struct sf_loop *loop, struct sf_timer *timer, int64_t delay_ms)
{
    sf_timer_heap_start(&loop_of(loop)->timers, timer, loop_of(loop)->now_ms + delay_ms);
}

static void timer_stop(struct sf_loop *loop, struct sf_timer *timer)
{
    sf_timer_heap_stop(&loop_of(loop)->timers, timer);
}

static bool is_current(struct sf_loop *loop)
{
    (void)loop;
    return true;
}

static const struct sf_loop_vtable vtable = {
    .post = post, .timer_start = timer_start, .timer_stop = timer_stop, .is_current = is_current};

void hand_loop_init(struct hand_loop *loop)
{
    *loop = (struct hand_loop){.base = {.vtable = &vtable, .clock = sf_clock_system()}};
    loop->tail = &loop->head;
}

void hand_loop_fini(struct hand_loop *loop)
{
    sf_timer_heap_fini(&loop->timers);
}

void hand_loop_turn(struct hand_loop *loop)
{
    while (loop->head != NULL) {
        struct sf_task *task = loop->head;
        loop->head = task->next;
        if (loop->head == NULL)
            loop->tail = &loop->head;
        task->run(task);
    }
}

void hand_loop_run(struct hand_loop *loop)
{
    struct sf_timer *timer;

    hand_loop_turn(loop);
    while ((timer = sf_timer_heap_first(&loop->timers)) != NULL) {
        if (timer->due_ms > loop->now_ms)
            loop->now_ms = timer->due_ms;
        sf_timer_heap_run(&loop->timers, loop->now_ms);
        hand_loop_turn(loop);
    }
}
