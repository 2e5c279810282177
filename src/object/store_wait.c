/*
 * Waiting forms over the submitting ones: the completion wakes a gate on the caller's stack. After
 * the wake nothing of the caller's frame is touched from the store's side.
 */
#include "base/limits.h"
#include "object/object_priv.h"

struct batch_wait {
    struct sf_batch batch;   /* shares the caller's puts */
    struct sf_waiter waiter; /* woken by the completion */
};

struct get_wait {
    struct sf_get get;       /* the read */
    struct sf_waiter waiter; /* woken by the completion */
};

static void batch_done(struct sf_batch *batch)
{
    sf_waiter_wake(&SF_CONTAINER_OF(batch, struct batch_wait, batch)->waiter);
}

static void get_done(struct sf_get *get)
{
    sf_waiter_wake(&SF_CONTAINER_OF(get, struct get_wait, get)->waiter);
}

void sf_store_submit_wait(struct sf_store *store, struct sf_sched *sched, struct sf_batch *batch)
{
    struct batch_wait wait = {
        .batch = {.puts = batch->puts, .count = batch->count, .loop = NULL, .done = batch_done}};

    sf_waiter_init(&wait.waiter, sched);
    sf_store_submit(store, &wait.batch);
    sf_waiter_wait(&wait.waiter);
    sf_waiter_fini(&wait.waiter);
}

enum sf_err sf_store_put_wait(struct sf_store *store, struct sf_sched *sched, struct sf_put *put)
{
    struct sf_batch batch = {.puts = put, .count = 1};

    sf_store_submit_wait(store, sched, &batch);
    return put->err;
}

static enum sf_err get_wait(struct sf_store *store, struct sf_sched *sched, struct get_wait *wait,
                            struct sf_buf *out_body)
{
    if (store->vtable->get_now == NULL || !store->vtable->get_now(store, &wait->get)) {
        wait->get.done = get_done;
        sf_waiter_init(&wait->waiter, sched);
        sf_store_get(store, &wait->get);
        sf_waiter_wait(&wait->waiter);
        sf_waiter_fini(&wait->waiter);
    }
    if (wait->get.err == SF_OK && out_body->len == 0 && out_body->max_bytes == 0) {
        struct sf_buf empty = *out_body; /* hand the bytes over instead of copying them */
        *out_body = wait->get.body;
        wait->get.body = empty;
    } else if (wait->get.err == SF_OK) {
        sf_buf_append(out_body, wait->get.body.data, wait->get.body.len);
    }
    sf_buf_fini(&wait->get.body);
    return wait->get.err;
}

enum sf_err sf_store_get_wait(struct sf_store *store, struct sf_sched *sched, struct sf_view key,
                              struct sf_buf *out_body, struct sf_etag *out_etag)
{
    struct get_wait wait = {.get = {.key = key}};

    enum sf_err err = get_wait(store, sched, &wait, out_body);
    if (err == SF_OK && out_etag != NULL)
        *out_etag = wait.get.etag;
    return err;
}

enum sf_err sf_store_get_range_wait(struct sf_store *store, struct sf_sched *sched,
                                    struct sf_view key, uint64_t offset, uint64_t len,
                                    struct sf_buf *out_body)
{
    struct get_wait wait = {.get = {.key = key, .range_offset = offset, .range_len = len}};

    return get_wait(store, sched, &wait, out_body);
}

enum sf_err sf_store_list_wait(struct sf_store *store, struct sf_sched *sched,
                               struct sf_view prefix, struct sf_view start_after, size_t limit,
                               struct sf_arena *arena, struct sf_list_entry **out_entries,
                               size_t *out_count)
{
    SF_ASSERT(limit >= 1 && limit <= SF_LIMIT_LIST_PAGE_ENTRIES);
    return store->vtable->list(store, sched, prefix, start_after, limit, arena, out_entries,
                               out_count);
}

enum sf_err sf_store_remove_wait(struct sf_store *store, struct sf_sched *sched, struct sf_view key)
{
    return store->vtable->remove(store, sched, key);
}

void sf_store_destroy(struct sf_store *store)
{
    if (store != NULL)
        store->vtable->destroy(store);
}
