/*
 * Simulated serial lanes. Each task runs on a stack of its own, so that it can wait, and a single
 * baton makes exactly one run (sim_thread.c). A waiter counts its wakes; the thread that waits on
 * it becomes runnable with the first one and goes on when the world picks it.
 *
 * waiter->impl: [0] wakes not yet consumed, [1] the thread that waits.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "fault/sim/sim_priv.h"

static struct sim_sched *sched_of(struct sf_sched *sched)
{
    return SF_CONTAINER_OF(sched, struct sim_sched, base);
}

static void lane_end(struct sim_sched *s, struct sim_lane *lane)
{
    lane->busy = false;
    s->running--;
    if (lane->head != NULL)
        return;
    for (size_t i = 0; i < s->lane_count; i++) {
        if (s->lanes[i] == lane) {
            memmove(&s->lanes[i], &s->lanes[i + 1], (s->lane_count - i - 1) * sizeof(s->lanes[0]));
            s->lane_count--;
            break;
        }
    }
    free(lane);
}

void sim_thread_work(struct sim_thread *t)
{
    struct sim_sched *s = &t->process->sched;

    t->task->run(t->task);
    s->pooled -= !t->lane->own;
    t->lane->in_task = false;
    if (!t->lane->held)
        lane_end(s, t->lane);
    t->next = t->sim->idle;
    t->sim->idle = t;
}

static struct sim_lane *find_lane(struct sim_sched *s, uint64_t key)
{
    for (size_t i = 0; i < s->lane_count; i++) {
        if (s->lanes[i]->key == key)
            return s->lanes[i];
    }
    struct sim_lane *lane = sf_calloc(1, sizeof(*lane));
    lane->key = key;
    lane->tail = &lane->head;
    if (s->lane_count == s->lane_cap) {
        s->lane_cap = s->lane_cap == 0 ? 16 : s->lane_cap * 2;
        s->lanes = sf_realloc(s->lanes, s->lane_cap * sizeof(s->lanes[0]));
    }
    s->lanes[s->lane_count++] = lane;
    return lane;
}

static enum sf_err sched_submit(struct sf_sched *sched, uint64_t lane_key, struct sf_task *task)
{
    struct sim_lane *lane = find_lane(sched_of(sched), lane_key);

    task->next = NULL;
    *lane->tail = task;
    lane->tail = &task->next;
    return SF_OK;
}

static struct sf_lane_hold *sched_hold(struct sf_sched *sched)
{
    struct sim_thread *me = sched_of(sched)->process->sim->current;

    SF_ASSERT(me != NULL && me->process == sched_of(sched)->process && !me->lane->held);
    me->lane->held = true;
    return (struct sf_lane_hold *)(void *)me->lane;
}

static void sched_release(struct sf_sched *sched, struct sf_lane_hold *hold)
{
    struct sim_lane *lane = (struct sim_lane *)(void *)hold;

    SF_ASSERT(lane->held);
    lane->held = false;
    if (!lane->in_task)
        lane_end(sched_of(sched), lane);
}

static void make_runnable(struct sim_sched *s, struct sim_thread *t)
{
    if (s->runnable_count == s->runnable_cap) {
        s->runnable_cap = s->runnable_cap == 0 ? 16 : s->runnable_cap * 2;
        s->runnable = sf_realloc(s->runnable, s->runnable_cap * sizeof(s->runnable[0]));
    }
    s->runnable[s->runnable_count++] = t;
}

static void waiter_init(struct sf_sched *sched, struct sf_waiter *waiter)
{
    (void)sched;
    waiter->impl[0] = (void *)(uintptr_t)0;
    waiter->impl[1] = NULL;
}

static void waiter_wait(struct sf_sched *sched, struct sf_waiter *waiter)
{
    struct sim_sched *s = sched_of(sched);
    struct sim_thread *me = s->process->sim->current;

    SF_ASSERT(me != NULL && me->process == s->process); /* waiting is for this process's tasks */
    if (waiter->impl[0] == NULL) {
        waiter->impl[1] = me;
        sim_thread_give_back(me);
        SF_ASSERT(waiter->impl[0] != NULL);
    }
    waiter->impl[0] = (void *)((uintptr_t)waiter->impl[0] - 1);
}

static void waiter_wake(struct sf_sched *sched, struct sf_waiter *waiter)
{
    struct sim_thread *t = waiter->impl[1];

    waiter->impl[0] = (void *)((uintptr_t)waiter->impl[0] + 1);
    waiter->impl[1] = NULL;
    if (t != NULL)
        make_runnable(sched_of(sched), t);
}

static void waiter_fini(struct sf_sched *sched, struct sf_waiter *waiter)
{
    (void)sched;
    SF_ASSERT(waiter->impl[1] == NULL);
}

static const struct sf_sched_vtable sched_vtable = {.submit = sched_submit,
                                                    .hold = sched_hold,
                                                    .release = sched_release,
                                                    .waiter_init = waiter_init,
                                                    .waiter_wait = waiter_wait,
                                                    .waiter_wake = waiter_wake,
                                                    .waiter_fini = waiter_fini};

void sim_sched_init(struct sim_sched *sched, struct sim_process *process, unsigned workers)
{
    *sched = (struct sim_sched){.process = process, .workers = workers};
    sched->base = (struct sf_sched){.vtable = &sched_vtable, .clock = &process->clock.base};
    sched->next_own_lane = UINT64_MAX;
}

void sim_sched_fini(struct sim_sched *sched)
{
    SF_ASSERT(sched->lane_count == 0 && sched->running == 0);
    free(sched->lanes);
    free(sched->runnable);
}

static bool lane_may_start(const struct sim_sched *s, const struct sim_lane *lane)
{
    return !lane->busy && lane->head != NULL && (lane->own || s->pooled < s->workers);
}

size_t sim_sched_candidates(const struct sim_sched *sched)
{
    size_t count = sched->runnable_count;

    for (size_t i = 0; i < sched->lane_count; i++)
        count += lane_may_start(sched, sched->lanes[i]);
    return count;
}

static void start_lane(struct sim_sched *s, struct sim_lane *lane)
{
    struct sim *sim = s->process->sim;
    struct sim_thread *t = sim_thread_take(sim);

    t->process = s->process;
    t->lane = lane;
    t->task = lane->head;
    lane->head = t->task->next;
    if (lane->head == NULL)
        lane->tail = &lane->head;
    t->task->next = NULL;
    lane->busy = lane->in_task = true;
    s->running++;
    s->pooled += !lane->own;
    sim_thread_run(sim, t);
}

void sim_sched_run(struct sim_sched *sched, size_t candidate)
{
    if (candidate < sched->runnable_count) {
        struct sim_thread *t = sched->runnable[candidate];
        memmove(&sched->runnable[candidate], &sched->runnable[candidate + 1],
                (sched->runnable_count - candidate - 1) * sizeof(sched->runnable[0]));
        sched->runnable_count--;
        sim_thread_run(sched->process->sim, t);
        return;
    }
    candidate -= sched->runnable_count;
    for (size_t i = 0; i < sched->lane_count; i++) {
        if (!lane_may_start(sched, sched->lanes[i]))
            continue;
        if (candidate-- == 0) {
            start_lane(sched, sched->lanes[i]);
            return;
        }
    }
    SF_ASSERT(false);
}

/* ---- tasks of the world's own making ---- */

struct spawned {
    struct sf_task task;                                /* on a lane of its own */
    struct sim_process *process;                        /* it runs for */
    void (*fn)(struct sim_process *process, void *arg); /* what runs */
    void *arg;                                          /* for fn */
};

static void run_spawned(struct sf_task *task)
{
    struct spawned s = *SF_CONTAINER_OF(task, struct spawned, task);

    free(SF_CONTAINER_OF(task, struct spawned, task));
    s.fn(s.process, s.arg);
}

void sim_spawn(struct sim_process *process, void (*fn)(struct sim_process *process, void *arg),
               void *arg)
{
    struct spawned *s = sf_calloc(1, sizeof(*s));

    *s = (struct spawned){.process = process, .fn = fn, .arg = arg};
    s->task.run = run_spawned;
    uint64_t key = process->sched.next_own_lane--;
    enum sf_err err = sf_sched_submit(&process->sched.base, key, &s->task);
    SF_ASSERT(err == SF_OK);
    find_lane(&process->sched, key)->own = true;
}

struct sleeper {
    struct sf_timer timer;   /* the end of the sleep */
    struct sf_waiter waiter; /* woken then */
};

static void sleep_over(struct sf_timer *timer)
{
    sf_waiter_wake(&SF_CONTAINER_OF(timer, struct sleeper, timer)->waiter);
}

void sim_sleep(struct sim_process *process, int64_t ms)
{
    struct sleeper s;

    sf_waiter_init(&s.waiter, &process->sched.base);
    sf_timer_init(&s.timer, &process->loops[0].base, sleep_over);
    sf_timer_start(&s.timer, ms);
    sf_waiter_wait(&s.waiter);
    sf_waiter_fini(&s.waiter);
}
