/*
 * Serial lanes: blocking work that must run one after another within a lane while lanes run in
 * parallel, on a bounded worker pool. CCS commands run here. Workers wait only through sf_waiter,
 * so that the simulator can run the same code with one runnable task at a time and own the
 * interleaving. Never hold a mutex across sf_waiter_wait.
 */
#ifndef SF_EXEC_SCHED_H
#define SF_EXEC_SCHED_H

#include "base/err.h"
#include "exec/loop.h"

struct sf_sched;

/* One-shot gate: one task waits, anyone wakes. Lives on the waiting task's stack. */
struct sf_waiter {
    struct sf_sched *sched; /* who blocks and wakes; NULL = plain thread (sleeps on a word) */
    void *impl[16];         /* private to the implementation */
};

struct sf_sched_vtable {
    enum sf_err (*submit)(struct sf_sched *sched, uint64_t lane_key,
                          struct sf_task *task);                           /* sf_sched_submit */
    struct sf_lane_hold *(*hold)(struct sf_sched *sched);                  /* sf_sched_hold */
    void (*release)(struct sf_sched *sched, struct sf_lane_hold *hold);    /* sf_sched_release */
    void (*waiter_init)(struct sf_sched *sched, struct sf_waiter *waiter); /* sf_waiter_init */
    void (*waiter_wait)(struct sf_sched *sched, struct sf_waiter *waiter); /* sf_waiter_wait */
    void (*waiter_wake)(struct sf_sched *sched, struct sf_waiter *waiter); /* sf_waiter_wake */
    void (*waiter_fini)(struct sf_sched *sched, struct sf_waiter *waiter); /* sf_waiter_fini */
};

struct sf_sched {
    const struct sf_sched_vtable *vtable; /* never NULL */
    struct sf_clock *clock;               /* time for deadlines */
};

/* Queues `task` on lane `lane_key`. Tasks of one lane run one after another in submit order. Any
 * thread. Errors: SF_ERR_FULL (the pool's bound on queued tasks), SF_ERR_STOPPED (draining); then
 * the task never runs. */
SF_MUST_USE static inline enum sf_err sf_sched_submit(struct sf_sched *sched, uint64_t lane_key,
                                                      struct sf_task *task)
{
    return sched->vtable->submit(sched, lane_key, task);
}

/* A lane that stays closed although its task returned. */
struct sf_lane_hold;

/* Keeps the lane of the running task closed beyond the task's return, until sf_sched_release: what
 * the task began goes on without a thread of its own. Only a task of `sched` calls it, at most once
 * before the release, and before whoever releases can know of it. A pool drains held lanes too. */
static inline struct sf_lane_hold *sf_sched_hold(struct sf_sched *sched)
{
    return sched->vtable->hold(sched);
}

/* Lets the lane go on. Any thread, once per hold, the task's own and before its return included. */
static inline void sf_sched_release(struct sf_sched *sched, struct sf_lane_hold *hold)
{
    sched->vtable->release(sched, hold);
}

/* `sched` NULL makes a waiter for a plain thread (CLI, HTTP worker). */
void sf_waiter_init(struct sf_waiter *waiter, struct sf_sched *sched);

/* Blocks the calling task until sf_waiter_wake was called (before or after); returns once per wake.
 */
void sf_waiter_wait(struct sf_waiter *waiter);

/* Opens the gate; any thread; the waiter may be gone as soon as this returns on the other side, so
 * touch it no more. */
void sf_waiter_wake(struct sf_waiter *waiter);

/* Ends a waiter after its last wait. */
void sf_waiter_fini(struct sf_waiter *waiter);

/* How large a pool is. */
struct sf_pool_options {
    unsigned workers;        /* threads, >= 1 */
    size_t max_queued_tasks; /* over all lanes, held ones counted; the next submit gets
                                SF_ERR_FULL */
};

/* Production implementation: a pool of threads. */
struct sf_sched *sf_pool_new(const struct sf_pool_options *options, struct sf_clock *clock);

/* Refuses new tasks, runs what is queued, joins the threads, frees. NULL is fine. */
void sf_pool_destroy(struct sf_sched *pool);

#endif
