/*
 * Serial lanes on a pool of threads. A lane exists while it has queued or running tasks: it is
 * found by its key in a map, and stands in the list of ready lanes while it has tasks and none of
 * them runs. A worker takes the first ready lane, runs one task of it and puts the lane back at the
 * end, so that a busy lane does not starve the others.
 *
 * One mutex guards it all; a task runs without it. The bound counts queued tasks and held lanes,
 * not running tasks.
 *
 * Idle workers stand on a stack. Who makes a lane ready takes the topmost, whose memory is still in
 * the processor's caches, hands it the task, and wakes it after the mutex: a woken thread often
 * runs at once in the waker's place and must find the mutex free. While a worker is idle no lane
 * waits.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/mem.h"
#include "exec/exec_priv.h"

struct lane {
    uint64_t key;               /* immutable */
    struct sf_task_queue tasks; /* waiting */
    struct lane *next_ready;    /* in the pool's list of ready lanes */
    bool in_task;               /* its task has not returned */
    bool held;                  /* sf_sched_hold without its release */
};

/* A thread of the pool. `lane`, `task` and `next_idle` are under mu while it is idle, its own from
 * the wake on. */
struct worker {
    pthread_t thread;         /* runs worker_main */
    struct pool *pool;        /* immutable */
    struct sf_waiter gate;    /* it sleeps here while idle; one wake each time */
    struct lane *lane;        /* handed over with the wake; NULL: look again */
    struct sf_task *task;     /* of that lane */
    struct worker *next_idle; /* below it on the stack */
};

struct pool {
    struct sf_sched base; /* first: what callers hold */

    /* immutable */
    size_t max_queued_tasks; /* bound of queued */
    unsigned worker_count;   /* entries of workers */
    struct worker *workers;  /* owned */

    /* under mu */
    pthread_mutex_t mu;      /* guards what follows */
    struct worker *idle;     /* topmost of those that sleep */
    struct sf_map *lanes;    /* key -> struct lane, each owned */
    struct lane *ready_head; /* first lane with tasks of which none runs */
    struct lane *ready_tail; /* last one */
    size_t queued;           /* tasks that wait, over all lanes */
    size_t running;          /* lanes whose task runs or that are held */
    size_t held;             /* of those, the held ones */
    bool stopping;           /* no new tasks; threads end once none waits */
};

/* The worker that this thread is. */
static _Thread_local struct worker *current;

static struct pool *pool_of(struct sf_sched *sched)
{
    return SF_CONTAINER_OF(sched, struct pool, base);
}

static void ready_push_locked(struct pool *pool, struct lane *lane)
{
    lane->next_ready = NULL;
    if (pool->ready_head == NULL)
        pool->ready_head = lane;
    else
        pool->ready_tail->next_ready = lane;
    pool->ready_tail = lane;
}

static struct lane *ready_pop_locked(struct pool *pool)
{
    struct lane *lane = pool->ready_head;

    if (lane != NULL)
        pool->ready_head = lane->next_ready;
    return lane;
}

/* The lane's next task is about to run. */
static struct sf_task *task_take_locked(struct pool *pool, struct lane *lane)
{
    pool->queued--;
    pool->running++;
    lane->in_task = true;
    return sf_task_queue_pop(&lane->tasks);
}

/* A lane has its first task: hands it to an idle worker, which the caller wakes after the mutex;
 * NULL when none is idle. */
static struct worker *lane_ready_locked(struct pool *pool, struct lane *lane)
{
    struct worker *worker = pool->idle;

    if (worker == NULL) {
        ready_push_locked(pool, lane);
        return NULL;
    }
    pool->idle = worker->next_idle;
    worker->lane = lane;
    worker->task = task_take_locked(pool, lane);
    return worker;
}

static enum sf_err pool_submit(struct sf_sched *sched, uint64_t lane_key, struct sf_task *task)
{
    struct pool *pool = pool_of(sched);
    struct worker *woken = NULL;
    enum sf_err err = SF_OK;

    pthread_mutex_lock(&pool->mu);
    if (pool->stopping) {
        err = SF_ERR_STOPPED;
    } else if (pool->queued + pool->held >= pool->max_queued_tasks) {
        err = SF_ERR_FULL;
    } else {
        struct lane *lane = sf_map_get(pool->lanes, sf_map_key_u64(&lane_key));
        bool fresh = lane == NULL;
        if (fresh) {
            lane = sf_calloc(1, sizeof(*lane));
            lane->key = lane_key;
            (void)sf_map_put(pool->lanes, sf_map_key_u64(&lane->key), lane);
        }
        sf_task_queue_push(&lane->tasks, task);
        pool->queued++;
        if (fresh)
            woken = lane_ready_locked(pool, lane);
    }
    pthread_mutex_unlock(&pool->mu);
    if (woken != NULL)
        sf_gate_wake(&woken->gate);
    return err;
}

/* Wakes every idle worker to look again. */
static void wake_idle_locked(struct pool *pool)
{
    while (pool->idle != NULL) {
        struct worker *worker = pool->idle;
        pool->idle = worker->next_idle;
        worker->lane = NULL;
        sf_gate_wake(&worker->gate);
    }
}

/* The lane is free again: it goes on, in the caller's own worker if `own`, or away. Returns whom to
 * wake after the mutex. */
static struct worker *lane_settle_locked(struct pool *pool, struct lane *lane, bool own)
{
    struct worker *woken = NULL;

    pool->running--;
    if (lane->tasks.head == NULL) {
        (void)sf_map_del(pool->lanes, sf_map_key_u64(&lane->key));
        free(lane);
    } else if (own) {
        ready_push_locked(pool, lane);
    } else {
        woken = lane_ready_locked(pool, lane);
    }
    if (pool->stopping && pool->queued == 0 && pool->running == 0)
        wake_idle_locked(pool);
    return woken;
}

static struct sf_lane_hold *pool_hold(struct sf_sched *sched)
{
    struct pool *pool = pool_of(sched);

    SF_ASSERT(current != NULL && current->pool == pool);
    struct lane *lane = current->lane;
    pthread_mutex_lock(&pool->mu);
    SF_ASSERT(lane->in_task && !lane->held);
    lane->held = true;
    pool->held++;
    pthread_mutex_unlock(&pool->mu);
    return (struct sf_lane_hold *)(void *)lane;
}

static void pool_release(struct sf_sched *sched, struct sf_lane_hold *hold)
{
    struct pool *pool = pool_of(sched);
    struct lane *lane = (struct lane *)(void *)hold;
    struct worker *woken = NULL;

    pthread_mutex_lock(&pool->mu);
    SF_ASSERT(lane->held);
    lane->held = false;
    pool->held--;
    if (!lane->in_task)
        woken = lane_settle_locked(pool, lane, false);
    pthread_mutex_unlock(&pool->mu);
    if (woken != NULL)
        sf_gate_wake(&woken->gate);
}

/* The worker's task returned; a lane that is held goes on with its release. */
static void task_returned_locked(struct pool *pool, struct lane *lane)
{
    lane->in_task = false;
    if (!lane->held)
        (void)lane_settle_locked(pool, lane, true);
}

/* Sleeps until a lane is handed over (true) or there is reason to look again. */
static bool sleep_unlocking(struct pool *pool, struct worker *self)
{
    self->next_idle = pool->idle;
    pool->idle = self;
    pthread_mutex_unlock(&pool->mu);
    sf_gate_wait(&self->gate);
    return self->lane != NULL;
}

static void *worker_main(void *arg)
{
    struct worker *self = arg;
    struct pool *pool = self->pool;

    current = self;
    pthread_mutex_lock(&pool->mu);
    for (;;) {
        self->lane = ready_pop_locked(pool);
        if (self->lane != NULL) {
            self->task = task_take_locked(pool, self->lane);
            pthread_mutex_unlock(&pool->mu);
        } else if (pool->stopping && pool->queued == 0 && pool->running == 0) {
            break;
        } else if (!sleep_unlocking(pool, self)) {
            pthread_mutex_lock(&pool->mu);
            continue;
        }
        self->task->run(self->task);
        pthread_mutex_lock(&pool->mu);
        task_returned_locked(pool, self->lane);
    }
    pthread_mutex_unlock(&pool->mu);
    return NULL;
}

static void waiter_init(struct sf_sched *sched, struct sf_waiter *waiter)
{
    (void)sched;
    sf_gate_init(waiter);
}

static void waiter_wait(struct sf_sched *sched, struct sf_waiter *waiter)
{
    (void)sched;
    sf_gate_wait(waiter);
}

static void waiter_wake(struct sf_sched *sched, struct sf_waiter *waiter)
{
    (void)sched;
    sf_gate_wake(waiter);
}

static void waiter_fini(struct sf_sched *sched, struct sf_waiter *waiter)
{
    (void)sched;
    sf_gate_fini(waiter);
}

static const struct sf_sched_vtable pool_vtable = {
    .submit = pool_submit,
    .hold = pool_hold,
    .release = pool_release,
    .waiter_init = waiter_init,
    .waiter_wait = waiter_wait,
    .waiter_wake = waiter_wake,
    .waiter_fini = waiter_fini,
};

struct sf_sched *sf_pool_new(const struct sf_pool_options *options, struct sf_clock *clock)
{
    struct pool *pool = sf_calloc(1, sizeof(*pool));

    SF_ASSERT(options->workers >= 1);
    pool->base = (struct sf_sched){.vtable = &pool_vtable, .clock = clock};
    pool->max_queued_tasks = options->max_queued_tasks;
    pool->worker_count = options->workers;
    pool->lanes = sf_map_new();
    SF_ASSERT(pthread_mutex_init(&pool->mu, NULL) == 0);
    pool->workers = sf_calloc(pool->worker_count, sizeof(*pool->workers));
    for (unsigned i = 0; i < pool->worker_count; i++) {
        struct worker *worker = &pool->workers[i];
        worker->pool = pool;
        sf_gate_init(&worker->gate);
        SF_ASSERT(pthread_create(&worker->thread, NULL, worker_main, worker) == 0);
    }
    return &pool->base;
}

void sf_pool_destroy(struct sf_sched *sched)
{
    if (sched == NULL)
        return;
    struct pool *pool = pool_of(sched);

    pthread_mutex_lock(&pool->mu);
    pool->stopping = true;
    wake_idle_locked(pool);
    pthread_mutex_unlock(&pool->mu);
    for (unsigned i = 0; i < pool->worker_count; i++) {
        pthread_join(pool->workers[i].thread, NULL);
        sf_gate_fini(&pool->workers[i].gate);
    }
    sf_map_destroy(pool->lanes, NULL);
    pthread_mutex_destroy(&pool->mu);
    free(pool->workers);
    free(pool);
}
