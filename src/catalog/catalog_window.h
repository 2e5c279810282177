/*
 * Rules of lifecycle windows as pure functions: no clock, no store. Boundary of a window is its
 * end; sums saturate at the last representable millisecond; a deadline is reached at `now >=
 * deadline` (note 5.9; OP-47).
 */
#ifndef SF_CATALOG_WINDOW_H
#define SF_CATALOG_WINDOW_H

#include "catalog/catalog_priv.h"

/* A point in time that may be absent. */
struct sf_catalog_when {
    bool present;    /* false: never */
    int64_t unix_ms; /* 0 when absent */
};

/* When the window leaves `tier`: its end plus the age of the first step to a colder tier. Absent on
 * the last rung and without a policy. */
struct sf_catalog_when sf_catalog_next_transition(int64_t window_end_ms, SF_PB(DataTier) tier,
                                                  const SF_PB(LifecyclePolicy) * policy);

/* The coldest tier that the window has grown old enough for; `tier` itself when none is due. */
SF_PB(DataTier)
sf_catalog_due_tier(int64_t window_end_ms, SF_PB(DataTier) tier,
                    const SF_PB(LifecyclePolicy) * policy, int64_t now_unix_ms);

/* Before this the window must not be reclaimed. Absent without retention. */
struct sf_catalog_when sf_catalog_retention_deadline(int64_t window_end_ms,
                                                     const SF_PB(LifecyclePolicy) * policy);

/* Has it come? */
bool sf_catalog_reached(struct sf_catalog_when when, int64_t now_unix_ms);

/* Why the retired objects of a window may not be removed yet. */
enum sf_catalog_reclaim {
    SF_CATALOG_RECLAIM_NOW,        /* all conditions hold */
    SF_CATALOG_RECLAIM_EARLY,      /* before the retention deadline, or there is none */
    SF_CATALOG_RECLAIM_REFERENCED, /* the committed manifest still references objects of it */
    SF_CATALOG_RECLAIM_GRACE,      /* readers of an older manifest may still use them */
    SF_CATALOG_RECLAIM_EMPTY       /* nothing is left to remove */
};

/* The three conditions of note 5.9: deadline, dereference, ordinary GC safety (`grace_ms` since the
 * objects were retired). */
enum sf_catalog_reclaim sf_catalog_reclaim_check(const SF_PB(ManifestLifecycleWindow) * window,
                                                 const SF_PB(LifecyclePolicy) * policy,
                                                 uint64_t grace_ms, int64_t now_unix_ms);

#endif
