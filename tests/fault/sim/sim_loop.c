/* Simulated loops: a queue and a timer heap; the world runs one thing at a time. */
#include "fault/sim/sim_priv.h"

static struct sim_loop *loop_of(struct sf_loop *loop)
{
    return SF_CONTAINER_OF(loop, struct sim_loop, base);
}

static void loop_post(struct sf_loop *loop, struct sf_task *task)
{
    struct sim_loop *l = loop_of(loop);

    task->next = NULL;
    *l->tail = task;
    l->tail = &task->next;
}

static void loop_timer_start(struct sf_loop *loop, struct sf_timer *timer, int64_t delay_ms)
{
    struct sim_loop *l = loop_of(loop);

    SF_ASSERT(delay_ms >= 0);
    sf_timer_heap_start(&l->timers, timer, l->process->sim->now_ms + delay_ms);
}

static void loop_timer_stop(struct sf_loop *loop, struct sf_timer *timer)
{
    sf_timer_heap_stop(&loop_of(loop)->timers, timer);
}

static bool loop_is_current(struct sf_loop *loop)
{
    return loop_of(loop)->running;
}

static const struct sf_loop_vtable loop_vtable = {.post = loop_post,
                                                  .timer_start = loop_timer_start,
                                                  .timer_stop = loop_timer_stop,
                                                  .is_current = loop_is_current};

void sim_loop_init(struct sim_loop *loop, struct sim_process *process)
{
    *loop = (struct sim_loop){.process = process};
    loop->base = (struct sf_loop){
        .vtable = &loop_vtable, .clock = &process->clock.base, .now_ms = process->sim->now_ms};
    loop->tail = &loop->head;
}

void sim_loop_fini(struct sim_loop *loop)
{
    sf_timer_heap_fini(&loop->timers);
}

static bool timer_due(const struct sim_loop *loop)
{
    const struct sf_timer *first = sf_timer_heap_first(&loop->timers);

    return first != NULL && first->due_ms <= loop->process->sim->now_ms;
}

bool sim_loop_ready(const struct sim_loop *loop)
{
    return loop->head != NULL || timer_due(loop);
}

bool sim_loop_empty(const struct sim_loop *loop)
{
    return loop->head == NULL && sf_timer_heap_first(&loop->timers) == NULL;
}

void sim_loop_run_one(struct sim_loop *loop)
{
    struct sim *sim = loop->process->sim;
    bool due = timer_due(loop);
    bool timer = due && (loop->head == NULL || sf_rng_below(&sim->pick, 2) == 0);

    loop->base.now_ms = sim->now_ms;
    loop->running = true;
    if (timer) {
        struct sf_timer *first = sf_timer_heap_first(&loop->timers);
        sf_timer_heap_stop(&loop->timers, first);
        first->fire(first);
    } else {
        struct sf_task *task = loop->head;
        loop->head = task->next;
        if (loop->head == NULL)
            loop->tail = &loop->head;
        task->next = NULL;
        task->run(task);
    }
    loop->running = false;
}
