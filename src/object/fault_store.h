/*
 * The fault-injecting store: puts a faulty network between processes and one shared backend, and
 * runs batches the S3 way (stage by stage, puts of a stage unordered), whatever the backend does
 * itself. Each process opens its own handle; a crash of the process leaves its requests in flight
 * to land or not. Everything runs on one simulated loop that owns time; all choices come from one
 * seed.
 *
 * What can happen to a put: delay; reorder; refused before it was applied (UNAVAILABLE, or
 * AMBIGUOUS); applied and the answer lost; answered as unknown and applied much later; applied
 * twice; 409; 412 over one's own object; 500 for the loser of a swap; and the crash of its process
 * before or after it. The staged runner settles what it can; callers see the rest.
 */
#ifndef SF_OBJECT_FAULT_STORE_H
#define SF_OBJECT_FAULT_STORE_H

#include "object/store.h"

/* Rates are per thousand requests; 0 switches a fault off. */
struct sf_fault_rates {
    uint16_t refused;      /* put: 503 before it is applied */
    uint16_t lost_request; /* put, delete: never arrives, times out */
    uint16_t lost_answer;  /* put, delete: applied, the answer never comes */
    uint16_t late;         /* put, delete: times out, applied later or never */
    uint16_t duplicate;    /* put: arrives a second time, later */
    uint16_t conflict_409; /* put: 409, not applied */
    uint16_t own_412;      /* create: applied, answered with 412 */
    uint16_t swap_500;     /* swap that lost: answered with 500 */
    uint16_t read_failed;  /* get, list: 503 */
    uint16_t slow;         /* any: takes up to slow_ms */
    uint16_t crash_before; /* put: its process dies before it is applied */
    uint16_t crash_after;  /* put: its process dies once it is applied, before the answer */
};

struct sf_fault_options {
    uint64_t seed;               /* of every choice */
    struct sf_fault_rates rates; /* may be changed later, see sf_fault_store_set_rates */
    int64_t delay_ms;            /* one way of an ordinary request takes 0..delay_ms */
    int64_t slow_ms;             /* one way of a slow one */
    int64_t timeout_ms;          /* an unknown outcome is answered after this */
    int64_t late_ms;             /* late and duplicate puts land within this */
    unsigned max_crashes;        /* random crashes in all */
    uint64_t crash_at_put;       /* 0 = none, else the process of the n-th applied put (1-based,
                                    over all processes) dies right after it */
    /* Called, on the loop, when a put crashed `process`: its handle is dead already. */
    void (*on_crash)(void *ctx, void *process);
    /* One line for each event, NULL for none. */
    void (*trace)(void *ctx, const char *line);
    void *ctx; /* for both */
};

/* What went over the wire so far. */
struct sf_fault_counts {
    uint64_t puts_sent;    /* requests, repeats included */
    uint64_t puts_applied; /* changes of the backend, duplicates included */
    uint64_t gets;         /* reads */
    uint64_t lists;        /* listings */
    uint64_t deletes;      /* removals */
    uint64_t crashes;      /* processes that a put killed */
};

struct sf_fault_store;

/* A network over `backend` (borrowed; calls on it block, so it needs no loop of its own) on `loop`.
 */
struct sf_fault_store *sf_fault_store_new(struct sf_store *backend, struct sf_loop *loop,
                                          const struct sf_fault_options *options);

/* Frees it once every handle is destroyed; requests still in flight are dropped. NULL is fine. */
void sf_fault_store_destroy(struct sf_fault_store *fault);

/* The store as `process` (any token; handed to on_crash) sees it. Destroy with sf_store_destroy
 * once no call is under way. */
struct sf_store *sf_fault_store_handle_new(struct sf_fault_store *fault, void *process);

/* The process of `handle` is dead: what it has in flight lands or not, by seed; its calls, present
 * and later, end with SF_ERR_UNAVAILABLE so that its tasks unwind. Nothing that a dead process does
 * or answers counts. On the loop. */
void sf_fault_store_crash(struct sf_store *handle);

/* Calls under way through `handle`. */
size_t sf_fault_store_pending(const struct sf_store *handle);

/* Changes the rates from now on; all zero makes a perfect network. */
void sf_fault_store_set_rates(struct sf_fault_store *fault, const struct sf_fault_rates *rates);

/* What went over the wire so far. On the loop. */
struct sf_fault_counts sf_fault_store_counts(const struct sf_fault_store *fault);

#endif
