/*
 * When a collection leases a range of ids and how large it is, and the arithmetic of ranges, as
 * pure functions. Private to the folder and to its tests.
 *
 * A lane is hot while its issue-only requests of this or the last second reach the threshold and no
 * explicit id was admitted for a while: an explicit id drops the unused tail of a lease, so leases
 * between explicit ids would only burn. A range is sized by use: the first covers the second that
 * made the lane hot; one used up within a second is followed by one twice as large, one that lasted
 * longer than four by one half as large.
 */
#ifndef SF_ALLOCATOR_LEASE_RULES_H
#define SF_ALLOCATOR_LEASE_RULES_H

#include "allocator/allocator.h"
#include "allocator/allocator_rules.h"

/* Written with each lease, so that a later build can tell by which rules a range was sized. */
#define SF_LEASE_POLICY_VERSION 1u

/* How much one lane is used. Times are monotonic ms of the lane's loop. */
struct sf_lease_use {
    int64_t second;         /* the one that is being counted */
    uint64_t requests;      /* issue-only requests in it */
    uint64_t ids;           /* ids of these */
    uint64_t last_requests; /* the same of the second before it */
    uint64_t last_ids;      /* ids of these */
    bool explicit_seen;     /* an explicit id was ever admitted */
    int64_t explicit_ms;    /* when, last */
    uint64_t range_ids;     /* size of the range reserved last; 0 = none yet */
    int64_t range_ms;       /* when it was reserved */
};

/* Counts one issue-only request. */
void sf_lease_note_issue(struct sf_lease_use *use, int64_t now_ms, uint64_t ids);

/* An explicit id was admitted. */
void sf_lease_note_explicit(struct sf_lease_use *use, int64_t now_ms);

/* A range of `ids` was reserved. */
void sf_lease_note_range(struct sf_lease_use *use, int64_t now_ms, uint64_t ids);

/* Issue-only requests a second, of this one or the last, whichever is more. */
uint64_t sf_lease_rate(const struct sf_lease_use *use, int64_t now_ms);

/* Whether a lane leases, and if not, why. */
enum sf_lease_heat {
    SF_LEASE_HOT,
    SF_LEASE_OFF,      /* leasing is switched off */
    SF_LEASE_EXPLICIT, /* explicit ids came lately */
    SF_LEASE_SLOW      /* too few requests */
};
enum sf_lease_heat sf_lease_heat(const struct sf_alloc_lease_policy *policy,
                                 const struct sf_lease_use *use, int64_t now_ms);

/* Word for people: "hot", "leasing_off", "explicit_ids_lately", "rate_below_threshold". */
const char *sf_lease_heat_text(enum sf_lease_heat heat);

/* Ids that the next range shall have: policy->min_ids .. policy->max_ids. */
uint64_t sf_lease_range_ids(const struct sf_alloc_lease_policy *policy,
                            const struct sf_lease_use *use, int64_t now_ms);

/* `mark` moved up by `ids`, at most to 2^64. */
struct sf_watermark sf_watermark_up(struct sf_watermark mark, uint64_t ids);

/* Ids from `low` up to `high`, exclusive; 0 when high is not above; at most UINT64_MAX. */
uint64_t sf_watermark_between(struct sf_watermark low, struct sf_watermark high);

#endif
