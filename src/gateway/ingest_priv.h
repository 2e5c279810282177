/*
 * Inside of the ingest gateway. A call is tied to one loop (its link); batches, their collection's
 * admission state and the stream to the coordinator live there and need no lock.
 *
 *   deliverer's thread            link's loop
 *   message -> copy -> post  ->   check -> admission read -> plan -> stamp -> submit -> gate -> ack
 */
#ifndef SF_GATEWAY_INGEST_PRIV_H
#define SF_GATEWAY_INGEST_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "gateway/ingest.h"
#include "gateway/planner_rules.h"
#include "searchfabric/v1/durable.pb-c.h"

struct ingest_call;
struct ingest_link;

/* First in, first out list of batches. */
struct ingest_queue {
    struct ingest_batch *head; /* longest in it; NULL = empty */
    struct ingest_batch *tail; /* last one */
};

/* One batch from its arrival to its acknowledgement. Owned by exactly one place: a posted task, a
 * queue, a timestamp request or the link's table. */
struct ingest_batch {
    /* immutable */
    struct sf_task task;          /* arrival on the loop */
    struct ingest_call *call;     /* one reference */
    struct sf_arena *arena;       /* owned; everything below lives in it */
    struct sf_arena *error_arena; /* of ack.error; NULL while there is none */
    size_t bytes;                 /* packed size: what it counts against the stream's budget */
    int64_t start_ns;             /* arrival */

    /* loop */
    struct ingest_batch *next;                         /* in the queue that holds it */
    Searchfabric__V1__StreamMutationsRequest *request; /* the copy */
    Searchfabric__V1__MutationBatch *batch;            /* inside the request */
    Searchfabric__V1__PlannedBatch plan;               /* filled by the planner */
    Searchfabric__V1__RequestMeta meta;                /* of the stream, for the plan */
    const struct sf_diag *stale;    /* why the catalog's facts no longer admit it, NULL = they do */
    Searchfabric__V1__AckGate gate; /* the policy's */
    Searchfabric__V1__MutationAck ack;     /* gathered as events come in */
    struct sf_tso_request stamp;           /* first admission */
    uint64_t receipt_ts;                   /* TSO of the receipt's apply time; 0 = no receipt */
    uint64_t submission_id;                /* on the link's stream */
    char fingerprint[SF_SHA256_HEX_BYTES]; /* of the batch, for the receipt's check */
};

/* What is known of a collection, and who waits to know more. */
struct ingest_collection {
    struct ingest_link *link;                          /* whose */
    uint64_t key[2];                                   /* namespace_id, collection_id */
    struct sf_arena *arena;                            /* of `state`; NULL while nothing is known */
    Searchfabric__V1__CollectionAdmissionState *state; /* last one read */
    struct sf_plan_schema *schema;                     /* owned: compiled from `state` */
    bool reading;                                      /* a read is under way */
    struct ingest_queue current;                       /* answered by the read under way */
    struct ingest_queue waiting;         /* came after it began: answered by the next */
    Searchfabric__V1__CollectionRef ref; /* request of the read under way */
    Searchfabric__V1__GetCollectionAdmissionStateRequest request; /* of that read */
};

/* The part of the gateway that lives on one loop. */
struct ingest_link {
    /* immutable */
    struct sf_ingest *ingest;  /* whose */
    struct sf_loop *loop;      /* all of it runs there */
    struct sf_tso_source *tso; /* batching front, owned */

    /* loop */
    struct sf_client_stream *stream; /* to the coordinator; NULL while none is open */
    bool blocked;                    /* the stream said full */
    uint64_t next_submission;        /* id of the next one sent */
    struct sf_map *inflight;         /* submission_id -> struct ingest_batch, sent */
    struct ingest_queue to_send;     /* planned and stamped, in order */
    struct sf_map *collections;      /* key -> struct ingest_collection */
    struct ingest_call *calls;       /* open ones, doubly linked */
    struct sf_task drain_task;       /* posted by the drain */
    struct sf_task close_task;       /* of the stop */
    bool closing;                    /* the stop came by: the stream's end is the link's */
};

/* One StreamMutations call. */
struct ingest_call {
    /* immutable */
    struct ingest_link *link;                /* serves the call */
    struct sf_call *call;                    /* held */
    char identity_hash[SF_SHA256_HEX_BYTES]; /* of the caller */

    /* atomic */
    atomic_uint refs; /* the stream until `closed`, each batch, each posted event */
    atomic_uint_fast64_t inflight_bytes; /* packed, of batches not answered yet */
    atomic_uint inflight_batches;        /* not answered yet */
    atomic_bool paused;                  /* sf_call_pause stands */

    /* loop */
    struct ingest_call *prev, *next;    /* in the link's list while the call is open */
    bool listed;                        /* in that list */
    bool opened;                        /* `meta` was received */
    bool ended;                         /* finish or fail was called */
    bool half_closed;                   /* the client sends no more */
    bool gone;                          /* `closed` ran: answers go nowhere */
    struct sf_arena *arena;             /* of `meta` */
    Searchfabric__V1__RequestMeta meta; /* client_id, client_kind, correlation_id */
    struct ingest_queue unsent;         /* acknowledgements that the peer has no room for */
};

struct sf_ingest {
    /* immutable */
    struct sf_ingest_deps deps;             /* what it was made from */
    struct ingest_link *links;              /* owned; one a loop */
    size_t link_count;                      /* of them */
    struct sf_service service;              /* what is served */
    struct sf_method methods[1];            /* of the service */
    struct sf_metric_family *batches_total; /* by result */
    struct sf_metric_family *latency_ms;    /* arrival to acknowledgement */
    struct sf_metric *rows_total;           /* of acknowledged batches */
    struct sf_metric *inflight;             /* batches not answered yet */

    /* atomic */
    atomic_uint next_link; /* of the next call, modulo link_count */
    atomic_bool draining;  /* new batches are refused */
    atomic_size_t active;  /* batches not answered yet */

    /* the stop */
    struct sf_timer limit;     /* of the wait for open batches, on the first link's loop */
    struct sf_task limit_task; /* starts it */
    int64_t limit_ms;          /* how long it runs */

    /* under mu: only for the stop's wait */
    pthread_mutex_t mu;             /* guards what follows */
    struct sf_waiter *drain_waiter; /* woken by the last open batch or the limit; NULL = none */
    struct sf_waiter *close_waiter; /* woken by the last link */
    size_t links_closed;            /* that did what the stop asked of all */
};

void ingest_queue_push(struct ingest_queue *queue, struct ingest_batch *batch);
struct ingest_batch *ingest_queue_pop(struct ingest_queue *queue);

/* ---- ingest_service.c: calls ----------------------------------------------------------------- */

void ingest_call_release(struct ingest_call *call);

/* Answers the batch with its ack, or with `diag` when that is an error, and gives it up. Loop. */
void ingest_batch_answer(struct ingest_batch *batch, const struct sf_diag *diag);

/* ---- ingest_batch.c: the way of a batch ------------------------------------------------------ */

/* A batch has arrived: checks it and asks for its collection's admission state. Loop. */
void ingest_batch_accept(struct ingest_batch *batch);

/* The admission state is known (in `collection`) or the read failed with `diag`. Loop. */
void ingest_batch_admit(struct ingest_batch *batch, const struct ingest_collection *collection,
                        const struct sf_diag *diag);

/* ---- ingest_admission.c ---------------------------------------------------------------------- */

/* Calls ingest_batch_admit for `batch` with a state read that began after this call. Loop. */
void ingest_admission_get(struct ingest_link *link, struct ingest_batch *batch);

void ingest_collection_destroy(void *collection);

/* ---- ingest_link.c: the stream to the coordinator -------------------------------------------- */

/* Sends the batch as soon as the stream has room; its events answer it. Loop. */
void ingest_link_submit(struct ingest_link *link, struct ingest_batch *batch);

/* Ends the stream; ingest_link_closed follows. Loop. */
void ingest_link_close(struct ingest_link *link);

/* The link's stream has ended for good (ingest_service.c). Loop. */
void ingest_link_closed(struct ingest_link *link);

#endif
