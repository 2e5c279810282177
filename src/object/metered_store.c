/*
 * Each batch and read gets a small record that stands in for it towards the inner store: its
 * completion runs where the caller's would, counts, and calls the caller's. Series are looked up
 * once, at the start; counting is a relaxed atomic.
 */
#include "object/metered_store.h"

#include <stdlib.h>

#include "base/mem.h"
#include "object/object_priv.h"

enum op { OP_PUT, OP_GET, OP_LIST, OP_DELETE, OP_COUNT };

static const char *const op_names[OP_COUNT] = {"put", "get", "list", "delete"};

/* The results a store may give; all others count as the last. */
static const enum sf_err results[] = {SF_OK,
                                      SF_ERR_PRECONDITION,
                                      SF_ERR_NOT_FOUND,
                                      SF_ERR_UNAVAILABLE,
                                      SF_ERR_AMBIGUOUS,
                                      SF_ERR_CANCELLED_STAGE,
                                      SF_ERR_LIMIT};

struct metered_store {
    struct sf_store base;   /* what callers hold */
    struct sf_store *inner; /* owned */
    struct sf_clock *clock; /* immutable */
    /* series */
    struct sf_metric *requests[OP_COUNT][SF_ARRAY_LEN(results)]; /* by operation and result */
    struct sf_metric *latency[OP_COUNT];                         /* by operation */
    struct sf_metric *batches;                                   /* submitted */
    struct sf_metric *put_bytes;                                 /* of applied puts */
    struct sf_metric *get_bytes;                                 /* read */
    struct sf_metric *in_flight;                                 /* batches and reads */
};

struct metered_batch {
    struct sf_batch batch;       /* what the inner store sees */
    struct sf_batch *outer;      /* the caller's */
    struct metered_store *store; /* that counts it */
    int64_t start_ns;            /* monotonic */
};

struct metered_get {
    struct sf_get get;           /* what the inner store sees */
    struct sf_get *outer;        /* the caller's */
    struct metered_store *store; /* that counts it */
    int64_t start_ns;            /* monotonic */
};

static struct metered_store *store_of(struct sf_store *store)
{
    return SF_CONTAINER_OF(store, struct metered_store, base);
}

static void count(struct metered_store *s, enum op op, enum sf_err err)
{
    size_t at = 0;

    while (at + 1 < SF_ARRAY_LEN(results) && results[at] != err)
        at++;
    sf_metric_add(s->requests[op][at], 1);
}

static void observe(struct metered_store *s, enum op op, int64_t start_ns)
{
    sf_metric_observe_ms(s->latency[op], (double)(sf_clock_mono_ns(s->clock) - start_ns) / 1e6);
}

static void on_batch(struct sf_batch *batch)
{
    struct metered_batch *m = SF_CONTAINER_OF(batch, struct metered_batch, batch);
    struct metered_store *s = m->store;
    struct sf_batch *outer = m->outer;
    size_t bytes = 0;

    for (size_t i = 0; i < batch->count; i++) {
        count(s, OP_PUT, batch->puts[i].err);
        bytes += batch->puts[i].err == SF_OK ? batch->puts[i].body.len : 0;
    }
    observe(s, OP_PUT, m->start_ns);
    sf_metric_add(s->put_bytes, (int64_t)bytes);
    sf_metric_add(s->in_flight, -1);
    free(m);
    outer->done(outer);
}

static void metered_submit(struct sf_store *store, struct sf_batch *batch)
{
    struct metered_store *s = store_of(store);
    struct metered_batch *m = sf_calloc(1, sizeof(*m));

    *m = (struct metered_batch){.batch = {.puts = batch->puts,
                                          .count = batch->count,
                                          .loop = batch->loop,
                                          .done = on_batch},
                                .outer = batch,
                                .store = s,
                                .start_ns = sf_clock_mono_ns(s->clock)};
    sf_metric_add(s->batches, 1);
    sf_metric_add(s->in_flight, 1);
    sf_store_submit(s->inner, &m->batch);
}

static void count_get(struct metered_store *s, const struct sf_get *get, int64_t start_ns)
{
    count(s, OP_GET, get->err);
    observe(s, OP_GET, start_ns);
    sf_metric_add(s->get_bytes, (int64_t)get->body.len);
}

static void on_get(struct sf_get *get)
{
    struct metered_get *m = SF_CONTAINER_OF(get, struct metered_get, get);
    struct metered_store *s = m->store;
    struct sf_get *outer = m->outer;

    count_get(s, get, m->start_ns);
    sf_metric_add(s->in_flight, -1);
    outer->err = get->err;
    outer->body = get->body;
    outer->etag = get->etag;
    outer->absent_mark = get->absent_mark;
    free(m);
    outer->done(outer);
}

static void metered_get(struct sf_store *store, struct sf_get *get)
{
    struct metered_store *s = store_of(store);
    struct metered_get *m = sf_calloc(1, sizeof(*m));

    *m = (struct metered_get){
        .get = *get, .outer = get, .store = s, .start_ns = sf_clock_mono_ns(s->clock)};
    m->get.done = on_get;
    sf_metric_add(s->in_flight, 1);
    sf_store_get(s->inner, &m->get);
}

static bool metered_get_now(struct sf_store *store, struct sf_get *get)
{
    struct metered_store *s = store_of(store);
    int64_t start_ns = sf_clock_mono_ns(s->clock);

    if (s->inner->vtable->get_now == NULL || !s->inner->vtable->get_now(s->inner, get))
        return false;
    count_get(s, get, start_ns);
    return true;
}

static bool metered_get_cached(struct sf_store *store, struct sf_get *get)
{
    struct metered_store *s = store_of(store);
    int64_t start_ns = sf_clock_mono_ns(s->clock);

    if (!sf_store_get_cached(s->inner, get))
        return false;
    count_get(s, get, start_ns);
    return true;
}

static enum sf_err metered_list(struct sf_store *store, struct sf_sched *sched,
                                struct sf_view prefix, struct sf_view start_after, size_t limit,
                                struct sf_arena *arena, struct sf_list_entry **out_entries,
                                size_t *out_count)
{
    struct metered_store *s = store_of(store);
    int64_t start_ns = sf_clock_mono_ns(s->clock);

    enum sf_err err = sf_store_list_wait(s->inner, sched, prefix, start_after, limit, arena,
                                         out_entries, out_count);
    count(s, OP_LIST, err);
    observe(s, OP_LIST, start_ns);
    return err;
}

static enum sf_err metered_remove(struct sf_store *store, struct sf_sched *sched,
                                  struct sf_view key)
{
    struct metered_store *s = store_of(store);
    int64_t start_ns = sf_clock_mono_ns(s->clock);

    enum sf_err err = sf_store_remove_wait(s->inner, sched, key);
    count(s, OP_DELETE, err);
    observe(s, OP_DELETE, start_ns);
    return err;
}

static void metered_destroy(struct sf_store *store)
{
    struct metered_store *s = store_of(store);

    sf_store_destroy(s->inner);
    free(s);
}

static const struct sf_store_vtable metered_vtable = {.submit = metered_submit,
                                                      .get = metered_get,
                                                      .list = metered_list,
                                                      .remove = metered_remove,
                                                      .destroy = metered_destroy,
                                                      .get_now = metered_get_now,
                                                      .get_cached = metered_get_cached};

static struct sf_metric *plain(struct sf_metrics *metrics, enum sf_metric_type type,
                               const char *name, const char *help)
{
    static const char *const none[] = {NULL};

    return sf_metric_series(sf_metrics_family(metrics, type, name, help, NULL), none);
}

static void make_series(struct metered_store *s, struct sf_metrics *metrics)
{
    static const char *const request_labels[] = {"op", "result", NULL};
    static const char *const latency_labels[] = {"op", NULL};
    struct sf_metric_family *requests =
        sf_metrics_family(metrics, SF_METRIC_COUNTER, "searchfabric_object_requests_total",
                          "Object store requests by operation and result", request_labels);
    struct sf_metric_family *latency =
        sf_metrics_family(metrics, SF_METRIC_HISTOGRAM, "searchfabric_object_latency_ms",
                          "Time to the completion of an object store request", latency_labels);

    for (int op = 0; op < OP_COUNT; op++) {
        s->latency[op] = sf_metric_series(latency, (const char *const[]){op_names[op], NULL});
        for (size_t i = 0; i < SF_ARRAY_LEN(results); i++)
            s->requests[op][i] = sf_metric_series(
                requests, (const char *const[]){op_names[op], sf_err_info(results[i])->name, NULL});
    }
    s->batches =
        plain(metrics, SF_METRIC_COUNTER, "searchfabric_object_batches_total", "Batches submitted");
    s->put_bytes = plain(metrics, SF_METRIC_COUNTER, "searchfabric_object_put_bytes_total",
                         "Body bytes of puts that were applied");
    s->get_bytes =
        plain(metrics, SF_METRIC_COUNTER, "searchfabric_object_get_bytes_total", "Body bytes read");
    s->in_flight = plain(metrics, SF_METRIC_GAUGE, "searchfabric_object_in_flight",
                         "Batches and reads not yet completed");
}

struct sf_store *sf_metered_store_new(struct sf_store *inner, struct sf_metrics *metrics,
                                      struct sf_clock *clock)
{
    struct metered_store *s = sf_calloc(1, sizeof(*s));

    s->base = (struct sf_store){.vtable = &metered_vtable, .exclusive = inner->exclusive};
    s->inner = inner;
    s->clock = clock;
    make_series(s, metrics);
    return &s->base;
}
