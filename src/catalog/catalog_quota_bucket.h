/*
 * One budget as pure arithmetic: no I/O, no clock. Private to src/catalog. See the model comment of
 * catalog_quota_bucket.c.
 */
#ifndef SF_CATALOG_QUOTA_BUCKET_H
#define SF_CATALOG_QUOTA_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#define SF_QUOTA_CHUNK_MS INT64_C(2000) /* a durable debit reaches so far ahead at most */

/* What is in a bucket. */
struct sf_quota_level {
    uint64_t units;    /* whole units */
    uint64_t fraction; /* thousandths of a unit, 0..999 */
    int64_t at_ms;     /* refilled up to here; lies ahead of now while a debit is not refilled */
};

/* One (plane, dimension) of a namespace. Times in unix ms. Owner: the namespace's lane. */
struct sf_quota_bucket {
    uint64_t rate;                /* units per second, 1..SF_LIMIT_QUOTA_UNITS */
    uint64_t burst;               /* most units at once, 1..SF_LIMIT_QUOTA_UNITS */
    struct sf_quota_level stored; /* durable level */
    uint64_t credit;              /* debited durably and not granted */
    struct sf_quota_level now;    /* what may be granted */
};

/* What the object says of a budget. */
struct sf_quota_stored {
    uint64_t units;    /* durable level */
    int64_t at_ms;     /* at this time */
    uint64_t reserved; /* credit as swapped */
};

/* Starts an owner's bucket from what the object says, under a policy that may have changed. Nothing
 * is credited: what an earlier owner had debited is forfeited. */
void sf_quota_bucket_load(struct sf_quota_bucket *bucket, uint64_t rate, uint64_t burst,
                          const struct sf_quota_stored *stored, int64_t now_ms);

/* A bucket that was never stored: full. */
void sf_quota_bucket_init(struct sf_quota_bucket *bucket, uint64_t rate, uint64_t burst,
                          int64_t now_ms);

/* Refills what may be granted up to `now_ms` at `percent` (1..100) of rate and burst. */
void sf_quota_bucket_refill(struct sf_quota_bucket *bucket, int64_t now_ms, unsigned percent);

/* After a refill up to now: debits the durable level so that `units` can be granted from credit:
 * what is missing, at least a chunk, but never further ahead than a chunk's time. The caller makes
 * the result durable before it grants. */
void sf_quota_bucket_debit(struct sf_quota_bucket *bucket, uint64_t units, int64_t now_ms);

/* Takes `units` (at most bucket->now.units and bucket->credit). */
void sf_quota_bucket_grant(struct sf_quota_bucket *bucket, uint64_t units);

/* Gives unspent units of a grant of this epoch back. */
void sf_quota_bucket_return(struct sf_quota_bucket *bucket, uint64_t units);

/* Units of one durable chunk. */
uint64_t sf_quota_bucket_chunk(const struct sf_quota_bucket *bucket);

/* Time until `units` (capped at the burst) are there, at `percent`. */
int64_t sf_quota_bucket_wait_ms(const struct sf_quota_bucket *bucket, uint64_t units,
                                int64_t now_ms, unsigned percent);

#endif
