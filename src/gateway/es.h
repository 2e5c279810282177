/*
 * The Elasticsearch edge: HTTP/1.1 on port 9200, write side only. Translates, never decides: an
 * index is a collection of one namespace, a create is an allocation followed by one mutation batch,
 * answers have Elasticsearch's shapes so that its official clients work unmodified. What is not
 * served (search, update, upsert, delete) answers with an Elasticsearch error object that says so.
 *
 * Idempotency: with an Idempotency-Key header a retry of the same request never doubles a document
 * and gets the first ids; without one, writes without an id are at-least-once.
 */
#ifndef SF_GATEWAY_ES_H
#define SF_GATEWAY_ES_H

#include "base/metrics.h"
#include "base/rng.h"
#include "rpc/channel.h"

struct sf_es;

/* The services behind the edge; they outlive it. */
struct sf_es_channels {
    struct sf_channel *catalog;         /* CatalogControlService */
    struct sf_channel *catalog_private; /* CatalogControlPrivateService */
    struct sf_channel *allocator;       /* IdAllocatorService */
    struct sf_channel *ingest;          /* IngestGatewayService */
};

/* What the edge works with; everything outlives it. Zero means the default where one is named. */
struct sf_es_options {
    const char *host;               /* loopback address */
    uint16_t port;                  /* 0 = any free port */
    const char *namespace_name;     /* namespace whose collections are the indices */
    bool auto_create;               /* an unknown index is created by the first write to it */
    unsigned max_connections;       /* each has a thread; default 256 */
    size_t max_body_bytes;          /* of a request, after inflation; default 100 MiB */
    unsigned request_timeout_s;     /* silence of a peer within a request; default 60 */
    int64_t write_timeout_ms;       /* wait for one batch's acknowledgement; default 60,000 */
    const char *client_id;          /* RequestMeta.client_id of its calls; default "es-gateway" */
    const char *identity;           /* who calls on plaintext loopback; default "loopback" */
    struct sf_es_channels channels; /* all NULL: sf_es_serve brings them later */
    /* Fills `diag` with why requests are not served before that. Any thread. */
    void (*refuse)(void *self, struct sf_diag *diag);
    void *refuse_self;          /* passed to `refuse` */
    struct sf_loop *loop;       /* the ingest stream lives here */
    struct sf_clock *clock;     /* `took` */
    uint64_t seed;              /* keys of requests that bring none */
    struct sf_metrics *metrics; /* NULL = none */
};

/* Opens the port and serves; without channels every complete request is refused by `refuse`.
 * Errors: SF_ERR_IO (the address is taken or not loopback). */
SF_MUST_USE enum sf_err sf_es_start(const struct sf_es_options *options, struct sf_diag *diag,
                                    struct sf_es **out_es);

/* Serves from now on; once, after a start without channels. Any thread. */
void sf_es_serve(struct sf_es *es, const struct sf_es_channels *channels);

/* The port it listens on. */
uint16_t sf_es_port(const struct sf_es *es);

/* Requests being answered right now. Any thread. */
unsigned sf_es_active(const struct sf_es *es);

/* Accepts no new connection, lets running requests finish, at most `limit_ms`, closes and frees.
 * Blocks; not on the loop. NULL is fine. */
void sf_es_stop(struct sf_es *es, int64_t limit_ms);

#endif
