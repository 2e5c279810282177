/*
 * Retention of replay-success objects, failure-audit objects and recovery segments (A-27,
 * ALLOC-10.3; protocols.md section 3, Retention). A window decides, never what the catalog shows.
 */
#ifndef SF_ALLOCATOR_ALLOCATOR_RETENTION_H
#define SF_ALLOCATOR_ALLOCATOR_RETENTION_H

#include "allocator/allocator_priv.h"
#include "searchfabric/v1/allocator_operations_private.pb-c.h"

#define SF_ALLOC_RETENTION_MS INT64_C(2592000000) /* by default: 30 days */

/* Remembered answers are forgotten that long before their objects may go, whatever another
 * process's clock says. */
#define SF_ALLOC_ANSWER_MARGIN_MS 3600000

/* What one round did; the numbers of RunAllocatorRetentionResponse. */
struct sf_alloc_round {
    bool dry_run;           /* in: change nothing */
    uint64_t max_objects;   /* in: look at no more */
    struct sf_buf cursor;   /* in: last key looked at, empty = begin; out: the same, empty = the
                               end was reached */
    uint64_t examined;      /* objects looked at */
    uint64_t results;       /* replay-success objects that went */
    uint64_t artifacts;     /* other objects that went */
    uint64_t needed;        /* kept: pending, or the newest result */
    uint64_t without_state; /* kept: no state object that verifies */
    uint64_t in_doubt;      /* kept: a delete may still land */
    uint64_t broken;        /* kept: does not verify */
    uint64_t keyless;       /* receipts whose key the ring does not hold */
    int64_t cut_unix_ms;    /* what is younger stays */
    int64_t oldest_unix_ms; /* of what stayed for being young; INT64_MAX = nothing */
};

struct sf_alloc_retention;

/* The background rounds; NULL without deps.sched. */
struct sf_alloc_retention *sf_alloc_retention_new(struct sf_allocator *allocator);
void sf_alloc_retention_destroy(struct sf_alloc_retention *retention);

/* Arms the first round when deps.run_retention. Posts to the first loop. */
void sf_alloc_retention_start(struct sf_alloc_retention *retention);

/* Stops the timer on its loop; the allocator's `open` covers it until then. */
void sf_alloc_retention_drain(struct sf_alloc_retention *retention);

#define SF_ALLOC_RETENTION_LANE UINT64_C(0x72657461696e) /* of the pool: where rounds run */

/* One round, on that lane. Errors in `diag`: SF_ERR_UNAVAILABLE and what
 * sf_alloc_removals_begin says; the numbers hold all the same. */
SF_MUST_USE enum sf_err sf_alloc_retention_round(struct sf_alloc_retention *retention,
                                                 struct sf_alloc_round *round,
                                                 struct sf_diag *diag);

/* May an answer of an apply at that time still be given from memory? Any thread. */
bool sf_alloc_answer_is_young(const struct sf_allocator *allocator, int64_t applied_at_unix_ms);

#endif
