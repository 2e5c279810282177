/*
 * Timestamps. A source hands out ranges of the one axis; the batching client asks for exactly the
 * demand that gathered while its last request was under way and keeps no stock (protocols.md
 * section 4, Timestamps). The built-in oracle reserves a durable window (`tso/window.json`) before
 * it is used; it is monotonic over restarts and clock steps; a lost swap stops it; a clock more
 * than a day past the old end needs `accept_clock_jump`.
 */
#ifndef SF_TSO_TSO_H
#define SF_TSO_TSO_H

#include <stdbool.h>

#include "base/ids.h"
#include "base/limits.h"
#include "base/metrics.h"
#include "object/durable.h"

struct sf_tso_request;
typedef void (*sf_tso_done_fn)(struct sf_tso_request *request);

/* A demand for `count` timestamps; embedded in its owner. */
struct sf_tso_request {
    uint32_t count;              /* 1..SF_LIMIT_TSO_PER_REQUEST */
    struct sf_loop *loop;        /* where done runs; NULL = any thread (wake-ups only) */
    sf_tso_done_fn done;         /* always later, exactly once */
    enum sf_err err;             /* SF_OK or SF_BACKEND_UNAVAILABLE */
    struct sf_tso first;         /* result: first..first+count-1 are the caller's */
    struct sf_task task;         /* private */
    struct sf_tso_request *next; /* private */
    void *owner;                 /* private */
};

struct sf_tso_source;
struct sf_tso_source_vtable {
    void (*get)(struct sf_tso_source *source, struct sf_tso_request *request); /* sf_tso_get */
    void (*destroy)(struct sf_tso_source *source); /* sf_tso_source_destroy */
    /* What can be given at once, on the caller's thread: false = ask with `get`. NULL = never. */
    bool (*take)(struct sf_tso_source *source, uint32_t count, struct sf_tso *out_first);
};
struct sf_tso_source {
    const struct sf_tso_source_vtable *vtable; /* never NULL */
};

static inline void sf_tso_get(struct sf_tso_source *source, struct sf_tso_request *request)
{
    source->vtable->get(source, request);
}

/* One range, waited for on a worker task or plain thread. */
SF_MUST_USE enum sf_err sf_tso_get_wait(struct sf_tso_source *source, struct sf_sched *sched,
                                        uint32_t count, struct sf_tso *out_first);

/* Frees a source whose requests have all been answered; NULL is fine. An oracle waits for the end
 * of a window swap under way, on the `sched` it was opened on (NULL: a plain thread); not on its
 * loop.
 */
void sf_tso_source_destroy(struct sf_tso_source *source);

struct sf_oracle_options {
    struct sf_store *store;       /* holds tso/window.json */
    struct sf_loop *loop;         /* the oracle lives on this loop */
    struct sf_clock *clock;       /* what timestamps follow */
    struct sf_attempts *attempts; /* source of the writes' attempt ids */
    uint32_t window_ms;           /* reserved ahead, default 3000 */
    bool accept_clock_jump;       /* operator said the clock may be a day past the old end */
};

/* Opens the built-in oracle: swaps the window object, then serves. Blocks (start-up, on `sched`).
 * Errors: SF_ERR_UNAVAILABLE, SF_ERR_CONFIG (clock jump), SF_ERR_CORRUPT. */
SF_MUST_USE enum sf_err sf_oracle_open(const struct sf_oracle_options *options,
                                       struct sf_sched *sched, struct sf_diag *diag,
                                       struct sf_tso_source **out_source);

/* False once an oracle (a source of sf_oracle_open) has lost its window to another one: it gives
 * out nothing any more, and its process should say so and stop. Any thread. */
bool sf_oracle_is_serving(const struct sf_tso_source *source);

/* A clock whose wall time is the one of the oracle's `clock`, but never behind what the oracle (a
 * source of sf_oracle_open) has given out: for times that are later held against timestamps, which
 * a clock that was set back would make look old. Valid as long as the source. Any thread. */
struct sf_clock *sf_oracle_clock(struct sf_tso_source *source);

/* A batching front of `source` for one loop; itself a source. Requests gather while one is under
 * way. */
struct sf_tso_source *sf_tso_batcher_new(struct sf_tso_source *source, struct sf_loop *loop);

/* Lets a batcher count, before its first request (COORD-10-01): searchfabric_tso_* of
 * docs/operations/metrics.md. Batchers of one registry share the series. Both must outlive it. */
void sf_tso_batcher_meter(struct sf_tso_source *batcher, struct sf_metrics *metrics,
                          struct sf_clock *clock);

#endif
