/*
 * The ingest gateway: IngestGatewayService.StreamMutations. Checks a batch whole (shape, grants,
 * admission state of its collection, schema generation token, allocator receipt), plans it (flow
 * kind, touched and enabled modalities, writer mode) and hands it to the commit coordinator over
 * one long-lived stream per loop; acknowledges when the gate of the batch's policy is reached. It
 * never allocates an id and never decides about order or time. Source: allocator note 3.3 and 6.5,
 * coordinator note 3, protocols.md sections 3 (Receipt) and 4 (Duplicates).
 */
#ifndef SF_GATEWAY_INGEST_H
#define SF_GATEWAY_INGEST_H

#include "base/metrics.h"
#include "base/token.h"
#include "rpc/channel.h"
#include "tso/tso.h"

struct sf_ingest;

/* May `identity` write rows to the collection? The seam for policy files; SF_OK or SF_FORBIDDEN. */
struct sf_ingest_grants {
    enum sf_err (*check_write)(void *self, const struct sf_identity *identity,
                               struct sf_collection_ref collection, struct sf_diag *diag);
    void *self; /* passed to check_write */
};

/* What the gateway works with; everything outlives it. */
struct sf_ingest_deps {
    struct sf_loop *const *loops;          /* streams are spread over them; array copied */
    size_t loop_count;                     /* >= 1 */
    struct sf_clock *clock;                /* receipts' expiry check and latencies */
    struct sf_channel *catalog;            /* CatalogControlPrivateService */
    struct sf_channel *coordinator;        /* CommitCoordinatorService */
    struct sf_tso_source *tso;             /* stamps of first admission */
    struct sf_keyring *keyring;            /* verifies allocator receipts */
    const struct sf_ingest_grants *grants; /* NULL = everybody may write (loopback) */
    struct sf_metrics *metrics;            /* NULL = none */
    uint64_t duplicate_window_ms;          /* told to clients; 0 = 15 minutes */
};

struct sf_ingest *sf_ingest_new(const struct sf_ingest_deps *deps);

/* The service to hand to servers and channels; valid as long as the gateway. */
const struct sf_service *sf_ingest_service(struct sf_ingest *ingest);

/* Refuses new batches from now on and ends each stream once its batches are answered, so that peers
 * which hold a stream open do not hold up the end of the server. Any thread, never blocks. */
void sf_ingest_drain(struct sf_ingest *ingest);

/* Refuses new batches (SF_BACKEND_UNAVAILABLE), waits until every admitted one is answered, at most
 * `limit_ms`, and closes the links to the coordinator; what is open then is answered as
 * unavailable, as soon as a question to the catalog or the oracle that is under way has ended. On
 * return no batch is open. The edges have stopped or go on taking acknowledgements. Blocks: a
 * worker task of `sched`, or a plain thread with `sched` NULL; never a loop. */
void sf_ingest_stop(struct sf_ingest *ingest, struct sf_sched *sched, int64_t limit_ms);

/* After sf_ingest_stop, once the loops run no task of it any more. NULL is fine. */
void sf_ingest_destroy(struct sf_ingest *ingest);

#endif
