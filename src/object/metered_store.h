/*
 * A store that counts: passes everything on to another store and keeps requests, results, bytes and
 * latencies in a metrics registry. The metrics are searchfabric_object_* of
 * docs/operations/metrics.md. Puts count once a batch in the latency, as their callers wait.
 */
#ifndef SF_OBJECT_METERED_STORE_H
#define SF_OBJECT_METERED_STORE_H

#include "base/metrics.h"
#include "object/store.h"

/* A counting front of `inner`, which it owns from now on (sf_store_destroy destroys both).
 * `metrics` and `clock` must outlive it. */
struct sf_store *sf_metered_store_new(struct sf_store *inner, struct sf_metrics *metrics,
                                      struct sf_clock *clock);

#endif
