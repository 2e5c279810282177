/*
 * Serial lanes on a pool of threads. A lane exists while it has queued or running tasks: it is
 * found by its key in a map, and stands in the list of ready lanes while it has tasks and none of
 * them runs. A worker takes the first ready lane, runs one task of it and puts the lane back at the
 * end, so that a busy lane does not starve the others.
 *
 * One mutex guards it all; a task runs without it. The bound counts queued tasks, not running ones.
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
};

struct pool {
    struct sf_sched base; /* first: what callers hold */

    /* immutable */
    size_t max_queued_tasks; /* bound of queued */
    unsigned worker_count;   /* entries of workers */
    pthread_t *workers;      /* owned: the threads */

    /* under mu */
    pthread_mutex_t mu;      /* guards what follows */
    pthread_cond_t work;     /* a lane became ready, or stopping */
    struct sf_map *lanes;    /* key -> struct lane, each owned */
    struct lane *ready_head; /* first lane with tasks of which none runs */
    struct lane *ready_tail; /* last one */
    size_t queued;           /* tasks that wait, over all lanes */
    size_t running;          /* tasks that run */
    bool stopping;           /* no new tasks; threads end once none waits */
};

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

static enum sf_err pool_submit(struct sf_sched *sched, uint64_t lane_key, struct sf_task *task)
{
    struct pool *pool = pool_of(sched);
    enum sf_err err = SF_OK;

    pthread_mutex_lock(&pool->mu);
    if (pool->stopping) {
        err = SF_ERR_STOPPED;
    } else if (pool->queued >= pool->max_queued_tasks) {
        err = SF_ERR_FULL;
    } else {
        struct lane *lane = sf_map_get(pool->lanes, sf_map_key_u64(&lane_key));
        if (lane == NULL) {
            lane = sf_calloc(1, sizeof(*lane));
            lane->key = lane_key;
            (void)sf_map_put(pool->lanes, sf_map_key_u64(&lane->key), lane);
            ready_push_locked(pool, lane);
            pthread_cond_signal(&pool->work); /* under mu: the pool may end with the task */
        }
        sf_task_queue_push(&lane->tasks, task);
        pool->queued++;
    }
    pthread_mutex_unlock(&pool->mu);
    return err;
}

/* The lane's task is done: the lane goes on or away. A lane that goes on needs no other thread: the
 * caller takes the next ready one itself. */
static void lane_settle_locked(struct pool *pool, struct lane *lane)
{
    pool->running--;
    if (lane->tasks.head != NULL) {
        ready_push_locked(pool, lane);
    } else {
        (void)sf_map_del(pool->lanes, sf_map_key_u64(&lane->key));
        free(lane);
    }
    if (pool->stopping && pool->queued == 0 && pool->running == 0)
        pthread_cond_broadcast(&pool->work);
}

static void *worker_main(void *arg)
{
    struct pool *pool = arg;

    pthread_mutex_lock(&pool->mu);
    for (;;) {
        struct lane *lane = ready_pop_locked(pool);
        if (lane != NULL) {
            struct sf_task *task = sf_task_queue_pop(&lane->tasks);
            pool->queued--;
            pool->running++;
            pthread_mutex_unlock(&pool->mu);
            task->run(task);
            pthread_mutex_lock(&pool->mu);
            lane_settle_locked(pool, lane);
        } else if (pool->stopping && pool->queued == 0 && pool->running == 0) {
            break;
        } else {
            pthread_cond_wait(&pool->work, &pool->mu);
        }
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
    SF_ASSERT(pthread_cond_init(&pool->work, NULL) == 0);
    pool->workers = sf_calloc(pool->worker_count, sizeof(*pool->workers));
    for (unsigned i = 0; i < pool->worker_count; i++)
        SF_ASSERT(pthread_create(&pool->workers[i], NULL, worker_main, pool) == 0);
    return &pool->base;
}

void sf_pool_destroy(struct sf_sched *sched)
{
    if (sched == NULL)
        return;
    struct pool *pool = pool_of(sched);

    pthread_mutex_lock(&pool->mu);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mu);
    for (unsigned i = 0; i < pool->worker_count; i++)
        pthread_join(pool->workers[i], NULL);
    sf_map_destroy(pool->lanes, NULL);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mu);
    free(pool->workers);
    free(pool);
}
