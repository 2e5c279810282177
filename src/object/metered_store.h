/*
 * A store that counts: passes everything on to another store and keeps requests, results, bytes and
 * latencies in a metrics registry.
 *
 *   sf_object_requests_total{op,result}   op: put, get, list, delete; result: an error's name
 *   sf_object_batches_total               batches submitted
 *   sf_object_put_bytes_total             body bytes of puts that were applied
 *   sf_object_get_bytes_total             body bytes read
 *   sf_object_latency_ms{op}              histogram; puts count once a batch, as their callers wait
 *   sf_object_in_flight                   batches and reads not yet completed
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
