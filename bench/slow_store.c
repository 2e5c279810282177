#include "slow_store.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"

struct slow_batch {
    struct sf_batch batch;    /* what the inner store sees */
    struct sf_batch *outer;   /* the caller's */
    struct slow_store *store; /* where it waits */
    struct sf_task start;     /* on the loop */
    struct sf_timer timer;    /* of the delay */
    int64_t stages;           /* of the batch */
};

struct slow_get {
    struct sf_get get;        /* what the inner store sees */
    struct sf_get *outer;     /* the caller's */
    struct slow_store *store; /* where it waits */
    struct sf_task start;     /* on the loop */
    struct sf_timer timer;    /* of the delay */
};

static struct slow_store *store_of(struct sf_store *base)
{
    return SF_CONTAINER_OF(base, struct slow_store, base);
}

/* Runs a callback where its caller wants it. */
static void batch_end(struct sf_task *task)
{
    struct slow_batch *slow = SF_CONTAINER_OF(task, struct slow_batch, start);
    struct sf_batch *outer = slow->outer;

    free(slow);
    outer->done(outer);
}

static void batch_fired(struct sf_timer *timer)
{
    struct slow_batch *slow = SF_CONTAINER_OF(timer, struct slow_batch, timer);
    struct sf_loop *loop = slow->outer->loop;

    slow->start.run = batch_end;
    if (loop == NULL)
        batch_end(&slow->start);
    else
        sf_loop_post(loop, &slow->start);
}

static void batch_on_loop(struct sf_task *task)
{
    struct slow_batch *slow = SF_CONTAINER_OF(task, struct slow_batch, start);

    sf_timer_init(&slow->timer, slow->store->loop, batch_fired);
    sf_timer_start(&slow->timer, slow->store->put_delay_ms * slow->stages);
}

static void batch_done(struct sf_batch *batch)
{
    struct slow_batch *slow = SF_CONTAINER_OF(batch, struct slow_batch, batch);

    slow->start.run = batch_on_loop;
    sf_loop_post(slow->store->loop, &slow->start);
}

static void slow_submit(struct sf_store *base, struct sf_batch *outer)
{
    struct slow_store *store = store_of(base);
    struct slow_batch *slow = sf_calloc(1, sizeof(*slow));

    slow->batch = *outer;
    slow->batch.loop = NULL;
    slow->batch.done = batch_done;
    slow->outer = outer;
    slow->store = store;
    slow->stages = 1;
    for (size_t i = 1; i < outer->count; i++)
        slow->stages += outer->puts[i].stage != outer->puts[i - 1].stage ? 1 : 0;
    atomic_fetch_add(&store->puts, outer->count);
    atomic_fetch_add(&store->rounds, (uint64_t)slow->stages);
    sf_store_submit(store->inner, &slow->batch);
}

static void get_end(struct sf_task *task)
{
    struct slow_get *slow = SF_CONTAINER_OF(task, struct slow_get, start);
    struct sf_get *outer = slow->outer;

    outer->err = slow->get.err;
    outer->body = slow->get.body;
    outer->etag = slow->get.etag;
    free(slow);
    outer->done(outer);
}

static void get_fired(struct sf_timer *timer)
{
    struct slow_get *slow = SF_CONTAINER_OF(timer, struct slow_get, timer);
    struct sf_loop *loop = slow->outer->loop;

    slow->start.run = get_end;
    if (loop == NULL)
        get_end(&slow->start);
    else
        sf_loop_post(loop, &slow->start);
}

static void get_on_loop(struct sf_task *task)
{
    struct slow_get *slow = SF_CONTAINER_OF(task, struct slow_get, start);

    sf_timer_init(&slow->timer, slow->store->loop, get_fired);
    sf_timer_start(&slow->timer, slow->store->get_delay_ms);
}

static void get_done(struct sf_get *get)
{
    struct slow_get *slow = SF_CONTAINER_OF(get, struct slow_get, get);

    slow->start.run = get_on_loop;
    sf_loop_post(slow->store->loop, &slow->start);
}

static void slow_get(struct sf_store *base, struct sf_get *outer)
{
    struct slow_store *store = store_of(base);

    if (store->get_delay_ms == 0) {
        sf_store_get(store->inner, outer);
        return;
    }
    struct slow_get *slow = sf_calloc(1, sizeof(*slow));
    slow->get = *outer;
    slow->get.loop = NULL;
    slow->get.done = get_done;
    slow->outer = outer;
    slow->store = store;
    sf_store_get(store->inner, &slow->get);
}

static enum sf_err slow_list(struct sf_store *base, struct sf_sched *sched, struct sf_view prefix,
                             struct sf_view start_after, size_t limit, struct sf_arena *arena,
                             struct sf_list_entry **out_entries, size_t *out_count)
{
    return sf_store_list_wait(store_of(base)->inner, sched, prefix, start_after, limit, arena,
                              out_entries, out_count);
}

static enum sf_err slow_remove(struct sf_store *base, struct sf_sched *sched, struct sf_view key)
{
    return sf_store_remove_wait(store_of(base)->inner, sched, key);
}

static void slow_destroy(struct sf_store *base)
{
    (void)base;
}

static const struct sf_store_vtable slow_vtable = {.submit = slow_submit,
                                                   .get = slow_get,
                                                   .list = slow_list,
                                                   .remove = slow_remove,
                                                   .destroy = slow_destroy};

void slow_store_init(struct slow_store *store, struct sf_store *inner, struct sf_loop *loop,
                     int64_t put_delay_ms, int64_t get_delay_ms)
{
    *store = (struct slow_store){.base = {.vtable = &slow_vtable, .exclusive = false},
                                 .inner = inner,
                                 .loop = loop,
                                 .put_delay_ms = put_delay_ms,
                                 .get_delay_ms = get_delay_ms};
}
