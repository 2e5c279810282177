/*
 * The staged runner: runs batches stage by stage over a backend that knows single puts and reads,
 * and settles unknown outcomes (protocols.md section 1): read back and compare with the attempt's
 * own bytes; not seen, repeat with the same bytes and condition, bounded, with jitter. Only what
 * stays unresolved reaches the caller as SF_ERR_AMBIGUOUS. Everything runs on one loop.
 */
#ifndef SF_OBJECT_STAGED_H
#define SF_OBJECT_STAGED_H

#include "base/rng.h"
#include "object/store.h"

/* What one request came to. */
enum sf_try_result {
    SF_TRY_OK,           /* applied; etag is set */
    SF_TRY_PRECONDITION, /* 412, or 404 on a MATCH put */
    SF_TRY_CONFLICT,     /* 409 ConditionalRequestConflict: not applied, try again */
    SF_TRY_UNAVAILABLE,  /* certain: not applied and never will be */
    SF_TRY_AMBIGUOUS     /* timeout, reset, 5xx after send, any other answer */
};

/* One request on the wire. */
struct sf_try {
    const struct sf_put *put;             /* what to put; valid until done was called */
    enum sf_try_result result;            /* set before done */
    struct sf_etag etag;                  /* with SF_TRY_OK */
    void (*done)(struct sf_try *attempt); /* set by the runner; called once, later, on the loop */
    void *backend;                        /* private to the backend */
};

/* Implemented by S3 and by the fault store. All calls on `loop`. */
struct sf_staged_backend {
    struct sf_loop *loop; /* where everything runs */
    /* Sends one put. */
    void (*put)(struct sf_staged_backend *backend, struct sf_try *attempt);
    /* Reads; get->done is called once, later, on the loop. */
    void (*get)(struct sf_staged_backend *backend, struct sf_get *get);
    /* True once the owner is gone: nothing is tried again. */
    bool (*closed)(struct sf_staged_backend *backend);
};

struct sf_staged;

/* A runner over `backend`; `seed` drives the jitter. */
struct sf_staged *sf_staged_new(struct sf_staged_backend *backend, uint64_t seed);

/* Runs a batch; any thread. Completion as sf_store_submit promises; without a loop of its own it
 * runs on the backend's. */
void sf_staged_submit(struct sf_staged *staged, struct sf_batch *batch);

/* Batches under way. On the loop. */
size_t sf_staged_pending(const struct sf_staged *staged);

/* Frees the runner; no batch is under way. NULL is fine. */
void sf_staged_destroy(struct sf_staged *staged);

#endif
