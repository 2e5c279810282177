/*
 * Inside of the Elasticsearch edge. Each connection has a thread of libmicrohttpd; a request is
 * answered on it, waiting for the services. The ingest stream lives on one loop (es_ingest.c).
 */
#ifndef SF_GATEWAY_ES_PRIV_H
#define SF_GATEWAY_ES_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/hash.h"
#include "base/map.h"
#include "gateway/es.h"
#include "gateway/es_plan.h"
#include "gateway/es_reply.h"
#include "gateway/es_route.h"
#include "gateway/planner_rules.h"

struct MHD_Daemon;

/* ---- es_ingest.c: batches over one long-lived stream ------------------------------------------
 */

struct es_ingest;

/* One batch handed to the ingest gateway; owned by the thread that waits for it. */
struct es_submit {
    /* set by the submitter; the batch lives until the wait returned */
    Searchfabric__V1__MutationBatch *batch; /* borrowed */
    int64_t timeout_ms;                     /* for the acknowledgement */

    /* result, valid after the wait */
    struct sf_diag diag;                  /* SF_OK or why not */
    Searchfabric__V1__AckedRange *ranges; /* owned, by value; free() */
    size_t range_count;                   /* of them */

    /* private */
    struct es_ingest *ingest; /* where it was handed in */
    struct sf_task task;      /* its arrival on the loop */
    struct sf_timer timer;    /* of timeout_ms */
    struct sf_waiter waiter;  /* woken with the result */
    struct es_submit *next;   /* in the queue that holds it */
    bool sent;                /* it is on the stream: its outcome may be unknown */
};

struct es_ingest *es_ingest_new(struct sf_channel *channel, struct sf_loop *loop,
                                const char *client_id);

/* Hands the batch over; batches of one thread go out in order. Any thread but the loop's. */
void es_ingest_submit(struct es_ingest *ingest, struct es_submit *submit);

/* Waits for the result of one submit. Exactly once per submit. */
void es_ingest_wait(struct es_submit *submit);

/* Answers whoever waits, and whoever comes from now on, as unavailable: a stop that was given its
 * time does not wait for acknowledgements. Any thread, once. */
void es_ingest_cut(struct es_ingest *ingest);

/* Ends the stream and waits for its end; nothing is submitted any more. Not on the loop. */
void es_ingest_destroy(struct es_ingest *ingest);

/* ---- the edge -------------------------------------------------------------------------------- */

struct sf_es {
    /* immutable */
    struct sf_es_options options; /* texts are owned copies, defaults filled in */
    struct MHD_Daemon *daemon;    /* owned: listens and reads requests */
    struct es_ingest *ingest;     /* as the channels of the options: set before `serving` */
    uint16_t port;                /* bound */
    struct sf_metric_family *requests_total;  /* by operation and status */
    struct sf_metric_family *latency_ms;      /* by operation */
    struct sf_metric_family *documents_total; /* by result */

    /* atomic */
    atomic_bool serving;       /* the services behind it are there */
    atomic_uint active;        /* requests under way */
    atomic_size_t body_bytes;  /* of all requests under way */
    atomic_uint_fast64_t turn; /* makes keys of requests that bring none */

    /* under mu */
    pthread_mutex_t mu;      /* guards what follows */
    struct sf_map *bindings; /* index name -> struct es_binding */
    uint64_t namespace_id;   /* 0 = not looked up yet */
};

/* What one request brings besides its body. */
struct es_request {
    struct sf_arena *arena; /* of the request */
    const char *key;        /* Idempotency-Key, or one made for this request */
    bool has_key;           /* the client sent it */
    bool wait_visible;      /* refresh=true or wait_for */
    bool forced_refresh;    /* refresh=true */
};

/* Fills the identity of a call to a service. `key` may be "" on reads. */
void es_meta(const struct sf_es *es, Searchfabric__V1__RequestMeta *meta, const char *key);

/* Derives the key of one step from the request's: 64 hex digits. Same inputs, same key. */
void es_key(const struct es_request *request, const char *step, struct sf_view index, uint64_t a,
            uint64_t b, char out_hex[SF_SHA256_HEX_BYTES]);

/* One unary call of a service, waited for. */
enum sf_err es_call(struct sf_channel *channel, const char *method, const ProtobufCMessage *request,
                    struct sf_arena *arena, struct sf_diag *diag,
                    const ProtobufCMessage **out_response);

/* ---- es_index.c: names ----------------------------------------------------------------------- */

/* What an index name stands for. Shared; counted. */
struct es_binding {
    atomic_uint refs;                                  /* the table, requests that use it */
    uint64_t namespace_id;                             /* of the collection */
    uint64_t collection_id;                            /* in that namespace */
    struct sf_arena *arena;                            /* of `state` */
    Searchfabric__V1__CollectionAdmissionState *state; /* last one read */
    struct sf_plan_schema *schema;                     /* owned: compiled from `state` */
};

void es_binding_release(struct es_binding *binding);

/* The collection of index `name`. Each answer rests on a read of the catalog that began after this
 * call: a remembered one is confirmed by its validators. Errors: SF_RESOURCE_NOT_FOUND, what the
 * catalog says. */
enum sf_err es_index_resolve(struct sf_es *es, struct es_request *request, struct sf_view name,
                             struct sf_diag *diag, struct es_binding **out_binding);

/* Creates index `name` with this definition. SF_ERR_EXISTS: there is one. */
enum sf_err es_index_create(struct sf_es *es, struct es_request *request, struct sf_view name,
                            Searchfabric__V1__CollectionSchemaDefinition *definition,
                            struct sf_diag *diag);

/* Drops the collection of index `name`. SF_RESOURCE_NOT_FOUND: there is none. */
enum sf_err es_index_delete(struct sf_es *es, struct es_request *request, struct sf_view name,
                            struct sf_diag *diag);

/* Appends the answer of GET /{index}. */
enum sf_err es_index_describe(struct sf_es *es, struct es_request *request, struct sf_view name,
                              struct sf_diag *diag, struct sf_buf *out);

/* Forgets all bindings. */
void es_index_fini(struct sf_es *es);

/* ---- es_write.c: documents ------------------------------------------------------------------- */

/* Creates the documents of `items`; results[i] belongs to items[i]. Items that carry an error are
 * answered with it. */
void es_write(struct sf_es *es, struct es_request *request, const struct sf_es_bulk_item *items,
              size_t count, struct sf_es_result *results);

/* ---- es_body.c: request bodies --------------------------------------------------------------- */

/* Inflates a gzip body (all its members) into `out`, at most `max_bytes`. False: not gzip, cut
 * short, or too long (*out_too_long). */
bool es_body_inflate(struct sf_view body, size_t max_bytes, struct sf_buf *out, bool *out_too_long);

#endif
