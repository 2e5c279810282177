/*
 * The batching client. Demands gather in `waiting`; when no request is under way, they move to
 * `asking`, as many as one request may carry, and the source is asked for exactly their sum. So a
 * demand is always served by a request that was sent after it came, and no stock is kept.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "tso/tso.h"
#include "tso/tso_priv.h"

/* Series of a metered batcher; all NULL otherwise. */
struct batcher_metrics {
    struct sf_metric *batches;    /* requests */
    struct sf_metric *timestamps; /* asked for */
    struct sf_metric *size;       /* of the last request */
    struct sf_metric *rtt;        /* from a request to its range */
    struct sf_metric *failed;     /* requests that failed */
    struct sf_metric *exhausted;  /* demands that waited behind a request */
};

struct batcher {
    struct sf_tso_source base;    /* what callers hold */
    struct sf_tso_source *source; /* immutable */
    struct sf_loop *loop;         /* immutable */
    /* loop */
    struct sf_tso_queue waiting;   /* not asked for yet */
    struct sf_tso_queue asking;    /* shares of the request under way */
    struct sf_tso_request request; /* under way while `busy` */
    bool busy;                     /* a request is under way */
    /* set before the first request */
    struct batcher_metrics metrics;
    struct sf_clock *clock; /* NULL = not metered */
    int64_t sent_ns;        /* loop: when the request under way was sent */
};

static struct batcher *batcher_of(struct sf_tso_source *source)
{
    return SF_CONTAINER_OF(source, struct batcher, base);
}

static void ask_on_loop(struct batcher *b);

static void count_sent(struct batcher *b)
{
    if (b->clock == NULL)
        return;
    b->sent_ns = sf_clock_mono_ns(b->clock);
    sf_metric_add(b->metrics.batches, 1);
    sf_metric_add(b->metrics.timestamps, b->request.count);
    sf_metric_set(b->metrics.size, b->request.count);
}

static void count_answered(struct batcher *b)
{
    if (b->clock == NULL)
        return;
    sf_metric_observe_ms(b->metrics.rtt, (double)(sf_clock_mono_ns(b->clock) - b->sent_ns) / 1e6);
    if (b->request.err != SF_OK)
        sf_metric_add(b->metrics.failed, 1);
}

static void add_demand(struct batcher *b, struct sf_tso_request *request)
{
    if (b->busy && b->clock != NULL)
        sf_metric_add(b->metrics.exhausted, 1);
    sf_tso_queue_push(&b->waiting, request);
    ask_on_loop(b);
}

static void on_range(struct sf_tso_request *request)
{
    struct batcher *b = SF_CONTAINER_OF(request, struct batcher, request);
    struct sf_tso_queue served = b->asking;
    uint64_t next = request->first.v;
    enum sf_err err = request->err;
    struct sf_tso_request *r;

    count_answered(b);
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
           sum + b->waiting.head->count <= SF_LIMIT_TSO_PER_REQUEST) {
        struct sf_tso_request *r = sf_tso_queue_pop(&b->waiting);
        sum += r->count;
        sf_tso_queue_push(&b->asking, r);
    }
    if (sum == 0)
        return;
    b->busy = true;
    b->request = (struct sf_tso_request){.count = (uint32_t)sum, .loop = b->loop, .done = on_range};
    count_sent(b);
    sf_tso_get(b->source, &b->request);
}

static void on_posted(struct sf_task *task)
{
    struct sf_tso_request *r = SF_CONTAINER_OF(task, struct sf_tso_request, task);
    add_demand(r->owner, r);
}

static void batcher_get(struct sf_tso_source *source, struct sf_tso_request *request)
{
    struct batcher *b = batcher_of(source);

    SF_ASSERT(request->count >= 1 && request->count <= SF_LIMIT_TSO_PER_REQUEST);
    request->owner = b;
    if (sf_loop_is_current(b->loop)) {
        add_demand(b, request);
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

static struct sf_metric *plain(struct sf_metrics *metrics, enum sf_metric_type type,
                               const char *name, const char *help)
{
    static const char *const none[] = {NULL};

    return sf_metric_series(sf_metrics_family(metrics, type, name, help, NULL), none);
}

void sf_tso_batcher_meter(struct sf_tso_source *batcher, struct sf_metrics *metrics,
                          struct sf_clock *clock)
{
    struct batcher *b = batcher_of(batcher);

    SF_ASSERT(batcher->vtable == &batcher_vtable);
    b->clock = clock;
    b->metrics = (struct batcher_metrics){
        .batches = plain(metrics, SF_METRIC_COUNTER, "searchfabric_tso_batches_total",
                         "Requests of the batching client"),
        .timestamps = plain(metrics, SF_METRIC_COUNTER, "searchfabric_tso_batch_timestamps_total",
                            "Timestamps asked for by the batching client"),
        .size = plain(metrics, SF_METRIC_GAUGE, "searchfabric_tso_batch_size",
                      "Timestamps of the last request"),
        .rtt = plain(metrics, SF_METRIC_HISTOGRAM, "searchfabric_tso_rtt_ms",
                     "Time from a request to its range"),
        .failed = plain(metrics, SF_METRIC_COUNTER, "searchfabric_tso_failed_batches_total",
                        "Requests that failed"),
        .exhausted = plain(metrics, SF_METRIC_COUNTER, "searchfabric_tso_range_exhausted_total",
                           "Demands that waited behind a request under way")};
}
