/*
 * The batching client. Demands gather in `waiting`; when no request is under way, they move to
 * `asking`, as many as one request may carry, and the source is asked for exactly their sum. So a
 * demand is always served by a request that was sent after it came, and no stock is kept.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "tso/tso.h"
#include "tso/tso_priv.h"

struct batcher {
    struct sf_tso_source base;
    struct sf_tso_source *source; /* immutable */
    struct sf_loop *loop;         /* immutable */
    /* loop */
    struct sf_tso_queue waiting;   /* not asked for yet */
    struct sf_tso_queue asking;    /* shares of the request under way */
    struct sf_tso_request request; /* under way while `busy` */
    bool busy;
};

static struct batcher *batcher_of(struct sf_tso_source *source)
{
    return SF_CONTAINER_OF(source, struct batcher, base);
}

static void ask_on_loop(struct batcher *b);

static void on_range(struct sf_tso_request *request)
{
    struct batcher *b = SF_CONTAINER_OF(request, struct batcher, request);
    struct sf_tso_queue served = b->asking;
    uint64_t next = request->first.v;
    enum sf_err err = request->err;
    struct sf_tso_request *r;

    b->asking = (struct sf_tso_queue){0};
    b->busy = false;
    ask_on_loop(b);
    while ((r = sf_tso_queue_pop(&served)) != NULL) {
        r->err = err;
        r->first = (struct sf_tso){err == SF_OK ? next : 0};
        next += r->count;
        sf_tso_complete_on_loop(r, b->loop);
    }
}

static void ask_on_loop(struct batcher *b)
{
    uint64_t sum = 0;

    while (!b->busy && b->waiting.head != NULL &&
           sum + b->waiting.head->count <= SF_TSO_MOST_PER_REQUEST) {
        struct sf_tso_request *r = sf_tso_queue_pop(&b->waiting);
        sum += r->count;
        sf_tso_queue_push(&b->asking, r);
    }
    if (sum == 0)
        return;
    b->busy = true;
    b->request = (struct sf_tso_request){.count = (uint32_t)sum, .loop = b->loop, .done = on_range};
    sf_tso_get(b->source, &b->request);
}

static void on_posted(struct sf_task *task)
{
    struct sf_tso_request *r = SF_CONTAINER_OF(task, struct sf_tso_request, task);
    struct batcher *b = r->owner;

    sf_tso_queue_push(&b->waiting, r);
    ask_on_loop(b);
}

static void batcher_get(struct sf_tso_source *source, struct sf_tso_request *request)
{
    struct batcher *b = batcher_of(source);

    SF_ASSERT(request->count >= 1 && request->count <= SF_TSO_MOST_PER_REQUEST);
    request->owner = b;
    if (sf_loop_is_current(b->loop)) {
        sf_tso_queue_push(&b->waiting, request);
        ask_on_loop(b);
        return;
    }
    request->task.run = on_posted;
    sf_loop_post(b->loop, &request->task);
}

static void batcher_destroy(struct sf_tso_source *source)
{
    struct batcher *b = batcher_of(source);

    SF_ASSERT(!b->busy && b->waiting.head == NULL);
    free(b);
}

static const struct sf_tso_source_vtable batcher_vtable = {.get = batcher_get,
                                                           .destroy = batcher_destroy};

struct sf_tso_source *sf_tso_batcher_new(struct sf_tso_source *source, struct sf_loop *loop)
{
    struct batcher *b = sf_calloc(1, sizeof(*b));

    b->base.vtable = &batcher_vtable;
    b->source = source;
    b->loop = loop;
    return &b->base;
}
