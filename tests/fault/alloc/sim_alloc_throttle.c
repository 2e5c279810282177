/* A batch with throttled puts goes on without them; they are answered when the rest is. */
#include "fault/alloc/sim_alloc_throttle.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct throttle {
    struct sf_store base;
    struct sf_store *inner;
    const char *prefix;
    throttle_closed_fn closed;
    void *ctx;
};

/* The part of a batch that goes through. */
struct part {
    struct sf_batch batch;
    struct sf_batch *whole;
    size_t *places; /* of each put in the whole batch */
};

static struct throttle *of(struct sf_store *store)
{
    return SF_CONTAINER_OF(store, struct throttle, base);
}

static bool throttled(const struct throttle *t, const struct sf_put *put)
{
    size_t len = strlen(t->prefix);

    return put->key.len >= len && memcmp(put->key.ptr, t->prefix, len) == 0;
}

static void refused_done(struct sf_task *task)
{
    struct sf_batch *batch = SF_CONTAINER_OF(task, struct sf_batch, task);
    batch->done(batch);
}

static void part_done(struct sf_batch *batch)
{
    struct part *part = SF_CONTAINER_OF(batch, struct part, batch);
    struct sf_batch *whole = part->whole;

    for (size_t i = 0; i < batch->count; i++)
        whole->puts[part->places[i]] = batch->puts[i];
    free(batch->puts);
    free(part->places);
    free(part);
    whole->done(whole);
}

static void submit(struct sf_store *store, struct sf_batch *batch)
{
    struct throttle *t = of(store);
    size_t kept = 0;

    SF_ASSERT(batch->loop != NULL);
    for (size_t i = 0; i < batch->count; i++)
        kept += throttled(t, &batch->puts[i]) ? 0 : 1;
    if (kept == batch->count || !t->closed(t->ctx)) {
        sf_store_submit(t->inner, batch);
        return;
    }
    struct part *part = sf_calloc(1, sizeof(*part));
    part->whole = batch;
    part->places = sf_calloc(kept + 1, sizeof(*part->places));
    part->batch = (struct sf_batch){
        .puts = sf_calloc(kept + 1, sizeof(struct sf_put)), .loop = batch->loop, .done = part_done};
    for (size_t i = 0; i < batch->count; i++) {
        if (throttled(t, &batch->puts[i])) {
            batch->puts[i].err = SF_ERR_UNAVAILABLE;
            continue;
        }
        part->places[part->batch.count] = i;
        part->batch.puts[part->batch.count++] = batch->puts[i];
    }
    if (kept > 0) {
        sf_store_submit(t->inner, &part->batch);
        return;
    }
    free(part->batch.puts);
    free(part->places);
    free(part);
    batch->task.run = refused_done;
    sf_loop_post(batch->loop, &batch->task);
}

static void get(struct sf_store *store, struct sf_get *request)
{
    sf_store_get(of(store)->inner, request);
}

static enum sf_err list(struct sf_store *store, struct sf_sched *sched, struct sf_view prefix,
                        struct sf_view start_after, size_t limit, struct sf_arena *arena,
                        struct sf_list_entry **out_entries, size_t *out_count)
{
    return sf_store_list_wait(of(store)->inner, sched, prefix, start_after, limit, arena,
                              out_entries, out_count);
}

static enum sf_err remove_key(struct sf_store *store, struct sf_sched *sched, struct sf_view key)
{
    return sf_store_remove_wait(of(store)->inner, sched, key);
}

static void destroy(struct sf_store *store)
{
    free(of(store));
}

static const struct sf_store_vtable vtable = {
    .submit = submit, .get = get, .list = list, .remove = remove_key, .destroy = destroy};

struct sf_store *throttle_store_new(struct sf_store *inner, const char *prefix,
                                    throttle_closed_fn closed, void *ctx)
{
    struct throttle *t = sf_calloc(1, sizeof(*t));

    t->base = (struct sf_store){.vtable = &vtable, .exclusive = inner->exclusive};
    t->inner = inner;
    t->prefix = prefix;
    t->closed = closed;
    t->ctx = ctx;
    return &t->base;
}
