/*
 * One `run` per batch, one `item` per put. A stage's puts are sent together; when the last of them
 * is settled the next stage starts with what is not cancelled.
 *
 *            412                    own bytes
 *   sent ---------------> read back ---------> OK
 *    |  unknown outcome ->    |
 *    |                        | others' bytes after a 412: PRECONDITION, or AMBIGUOUS when an
 *    |                        |   earlier try of this put had an unknown outcome (it may have
 *    |                        |   landed and been overwritten)
 *    |                        | not seen after an unknown outcome: nothing is settled
 *    v                        v
 *   409, 503: wait <-------- wait, send again; tries are bounded
 *
 * An answer "certainly not applied" is certain for its own try only: with an unknown one before it,
 * the put stays unknown.
 */
#include "object/staged.h"

#include <stdlib.h>

#include "base/mem.h"
#include "object/object_priv.h"

#define STAGED_MOST_TRIES     6
#define STAGED_MOST_READS     4
#define STAGED_FIRST_PAUSE_MS 10
#define STAGED_MOST_PAUSE_MS  1000

struct run;

struct item {
    struct run *run;       /* owner */
    struct sf_put *put;    /* the caller's */
    struct sf_try attempt; /* request under way */
    struct sf_get get;     /* read-back under way */
    struct sf_timer timer; /* pause before the next try or read */
    unsigned tries;        /* puts sent */
    unsigned reads;        /* read-backs sent for the present try */
    bool unknown;          /* an earlier try had an unknown outcome */
    bool after_412;        /* the read-back follows a 412 */
};

struct run {
    struct sf_staged *staged;  /* its runner */
    struct sf_batch *batch;    /* the caller's */
    struct sf_cancels cancels; /* commands that failed so far */
    size_t next;               /* first put of the stages not started */
    size_t open;               /* unsettled puts of the present stage */
    struct item items[];       /* one per put */
};

struct sf_staged {
    struct sf_staged_backend *backend; /* immutable */
    struct sf_rng rng;                 /* loop: jitter */
    size_t pending;                    /* loop: batches under way */
};

static void send_put(struct item *item);
static void send_read(struct item *item);
static void start_stage(struct run *run);

static bool closed(const struct item *item)
{
    struct sf_staged_backend *backend = item->run->staged->backend;

    return backend->closed(backend);
}

/* Settles one put. */
static void settle(struct item *item, enum sf_err err)
{
    struct run *run = item->run;

    item->put->err = err;
    if (err != SF_OK)
        sf_cancels_add(&run->cancels, item->put);
    SF_ASSERT(run->open > 0);
    if (--run->open == 0)
        start_stage(run);
}

/* Exponential pause with full jitter before the next try. */
static void pause_then(struct item *item, unsigned round, sf_timer_fn fire)
{
    int64_t most = STAGED_FIRST_PAUSE_MS;

    for (unsigned i = 1; i < round && most < STAGED_MOST_PAUSE_MS; i++)
        most *= 2;
    if (most > STAGED_MOST_PAUSE_MS)
        most = STAGED_MOST_PAUSE_MS;
    int64_t delay_ms = 1 + (int64_t)sf_rng_below(&item->run->staged->rng, (uint64_t)most);
    sf_timer_init(&item->timer, item->run->staged->backend->loop, fire);
    sf_timer_start(&item->timer, delay_ms);
}

static void on_try_again(struct sf_timer *timer)
{
    send_put(SF_CONTAINER_OF(timer, struct item, timer));
}

static void on_read_again(struct sf_timer *timer)
{
    send_read(SF_CONTAINER_OF(timer, struct item, timer));
}

/* The try came to nothing; again, or give up with what is known. */
static void try_again(struct item *item)
{
    enum sf_err given_up = item->unknown ? SF_ERR_AMBIGUOUS : SF_ERR_UNAVAILABLE;

    if (closed(item))
        settle(item, SF_ERR_UNAVAILABLE);
    else if (item->tries >= STAGED_MOST_TRIES)
        settle(item, given_up);
    else
        pause_then(item, item->tries, on_try_again);
}

/* The read-back is there. */
static void on_read(struct sf_get *get)
{
    struct item *item = SF_CONTAINER_OF(get, struct item, get);
    enum sf_err err = get->err;
    bool own = err == SF_OK && sf_view_equal(sf_buf_view(&get->body), item->put->body);

    sf_buf_fini(&get->body);
    if (own) {
        item->put->etag = get->etag;
        settle(item, SF_OK);
    } else if (closed(item)) {
        settle(item, SF_ERR_UNAVAILABLE);
    } else if (err == SF_OK || err == SF_ERR_NOT_FOUND) {
        if (item->after_412)
            settle(item, item->unknown ? SF_ERR_AMBIGUOUS : SF_ERR_PRECONDITION);
        else
            try_again(item);
    } else if (item->reads < STAGED_MOST_READS) {
        pause_then(item, item->reads, on_read_again);
    } else {
        item->unknown = true; /* a 412 that may be over one's own object */
        try_again(item);
    }
}

static void send_read(struct item *item)
{
    struct sf_staged_backend *backend = item->run->staged->backend;

    item->reads++;
    item->get = (struct sf_get){.key = item->put->key, .loop = backend->loop, .done = on_read};
    backend->get(backend, &item->get);
}

static void read_back(struct item *item, bool after_412)
{
    item->after_412 = after_412;
    item->reads = 0;
    send_read(item);
}

static void on_try_done(struct sf_try *attempt)
{
    struct item *item = SF_CONTAINER_OF(attempt, struct item, attempt);

    if (closed(item)) {
        settle(item, SF_ERR_UNAVAILABLE);
        return;
    }
    switch (attempt->result) {
    case SF_TRY_OK:
        item->put->etag = attempt->etag;
        settle(item, SF_OK);
        break;
    case SF_TRY_PRECONDITION:
        read_back(item, true);
        break;
    case SF_TRY_AMBIGUOUS:
        item->unknown = true;
        read_back(item, false);
        break;
    case SF_TRY_CONFLICT:
    case SF_TRY_UNAVAILABLE:
        try_again(item);
        break;
    }
}

static void send_put(struct item *item)
{
    struct sf_staged_backend *backend = item->run->staged->backend;

    item->tries++;
    item->attempt = (struct sf_try){.put = item->put, .done = on_try_done};
    backend->put(backend, &item->attempt);
}

static void finish(struct run *run)
{
    struct sf_batch *batch = run->batch;

    SF_ASSERT(run->staged->pending > 0);
    run->staged->pending--;
    sf_cancels_fini(&run->cancels);
    free(run);
    if (batch->loop != NULL)
        sf_batch_post_done(batch);
    else
        batch->done(batch);
}

/* Starts the next stage that has a put to send; finishes the run after the last. */
static void start_stage(struct run *run)
{
    struct sf_batch *batch = run->batch;

    while (run->open == 0 && run->next < batch->count) {
        uint32_t stage = batch->puts[run->next].stage;
        size_t first = run->next;
        while (run->next < batch->count && batch->puts[run->next].stage == stage)
            run->next++;
        size_t end = run->next;
        for (size_t i = first; i < end; i++) {
            struct sf_put *put = &batch->puts[i];
            put->err = sf_cancels_hit(&run->cancels, put) ? SF_ERR_CANCELLED_STAGE
                                                          : sf_put_check_limits(put);
            if (put->err != SF_OK)
                sf_cancels_add(&run->cancels, put);
            else
                run->open++;
        }
        for (size_t i = first; i < end; i++) {
            run->items[i].run = run;
            run->items[i].put = &batch->puts[i];
            if (batch->puts[i].err == SF_OK)
                send_put(&run->items[i]);
        }
    }
    if (run->open == 0)
        finish(run);
}

static void on_submitted(struct sf_task *task)
{
    struct sf_batch *batch = SF_CONTAINER_OF(task, struct sf_batch, task);
    struct sf_staged *staged = batch->impl;
    struct run *run = sf_calloc(1, sizeof(*run) + batch->count * sizeof(run->items[0]));

    run->staged = staged;
    run->batch = batch;
    staged->pending++;
    start_stage(run);
}

struct sf_staged *sf_staged_new(struct sf_staged_backend *backend, uint64_t seed)
{
    struct sf_staged *staged = sf_calloc(1, sizeof(*staged));

    staged->backend = backend;
    sf_rng_init(&staged->rng, seed);
    return staged;
}

void sf_staged_submit(struct sf_staged *staged, struct sf_batch *batch)
{
    sf_batch_check(batch);
    batch->impl = staged;
    batch->task.run = on_submitted;
    sf_loop_post(staged->backend->loop, &batch->task);
}

size_t sf_staged_pending(const struct sf_staged *staged)
{
    return staged->pending;
}

void sf_staged_destroy(struct sf_staged *staged)
{
    if (staged == NULL)
        return;
    SF_ASSERT(staged->pending == 0);
    free(staged);
}
