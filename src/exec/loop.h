/*
 * A loop: one thread of control that runs posted tasks and timers one after another. Services on
 * hot lanes see only this interface. In production it is a reactor (exec/reactor.h); in tests and
 * under the simulator it is a seeded scheduler that owns time. Everything that happens "on the
 * loop" needs no lock.
 */
#ifndef SF_EXEC_LOOP_H
#define SF_EXEC_LOOP_H

#include <stdbool.h>

#include "base/clock.h"
#include "base/compiler.h"

struct sf_loop;
struct sf_task;
struct sf_timer;

typedef void (*sf_task_fn)(struct sf_task *task);
typedef void (*sf_timer_fn)(struct sf_timer *timer);

/* A unit of work, embedded in the object it works on (SF_CONTAINER_OF). In at most one queue at a
 * time. */
struct sf_task {
    sf_task_fn run;       /* called once per post, on the loop or worker */
    struct sf_task *next; /* owned by the queue the task is in */
};

/* A one-shot timer, embedded in its owner; zero-initialise, then sf_timer_init. Owned by one loop.
 */
struct sf_timer {
    struct sf_loop *loop; /* where it fires; immutable after init */
    sf_timer_fn fire;     /* called on the loop; may start the timer again */
    int64_t due_ms;       /* monotonic due time while active; owned by the loop */
    uint64_t seq;         /* tie break among equal due times; owned by the loop */
    size_t heap_index;    /* place in the loop's heap plus one, 0 = inactive; owned by the loop */
};

struct sf_loop_vtable {
    void (*post)(struct sf_loop *loop, struct sf_task *task); /* sf_loop_post */
    void (*timer_start)(struct sf_loop *loop, struct sf_timer *timer,
                        int64_t delay_ms);                            /* sf_timer_start */
    void (*timer_stop)(struct sf_loop *loop, struct sf_timer *timer); /* sf_timer_stop */
    bool (*is_current)(struct sf_loop *loop);                         /* sf_loop_is_current */
};

struct sf_loop {
    const struct sf_loop_vtable *vtable; /* never NULL */
    struct sf_clock *clock;              /* the loop's time; one `now` per turn */
    int64_t now_ms;                      /* monotonic ms of this turn; read on the loop only */
};

/* Queues `task` to run on the loop, always later, in post order per poster. Any thread. Never
 * fails: what is posted is bounded by the objects that embed tasks. After the loop stopped the task
 * runs during sf_*_stop or not at all. */
static inline void sf_loop_post(struct sf_loop *loop, struct sf_task *task)
{
    loop->vtable->post(loop, task);
}

/* True when the caller runs on this loop's thread. */
static inline bool sf_loop_is_current(struct sf_loop *loop)
{
    return loop->vtable->is_current(loop);
}

static inline void sf_timer_init(struct sf_timer *timer, struct sf_loop *loop, sf_timer_fn fire)
{
    *timer = (struct sf_timer){.loop = loop, .fire = fire};
}

/* Starts or restarts the timer; fires once `delay_ms` (>= 0) from now, never within this call. On
 * the loop. */
static inline void sf_timer_start(struct sf_timer *timer, int64_t delay_ms)
{
    timer->loop->vtable->timer_start(timer->loop, timer, delay_ms);
}

/* Stops the timer; after it returns `fire` is not called. Harmless when inactive. On the loop. */
static inline void sf_timer_stop(struct sf_timer *timer)
{
    timer->loop->vtable->timer_stop(timer->loop, timer);
}

static inline bool sf_timer_active(const struct sf_timer *timer)
{
    return timer->heap_index != 0;
}

#endif
