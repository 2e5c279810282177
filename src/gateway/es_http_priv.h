/* One HTTP request inside of the Elasticsearch edge: es_http.c brings it in and sends its answer
 * out, es_serve.c answers it. */
#ifndef SF_GATEWAY_ES_HTTP_PRIV_H
#define SF_GATEWAY_ES_HTTP_PRIV_H

#include <microhttpd.h>

#include "gateway/es_priv.h"

/* One HTTP request. */
struct es_http {
    struct sf_es *es;                  /* serves it */
    struct MHD_Connection *connection; /* it came on */
    const char *method;                /* as received */
    const char *path;                  /* as received, without the query */
    struct sf_buf body;                /* as received so far */
    size_t body_limit;                 /* of it, bytes */
    size_t counted_bytes;              /* what stands for this request in es->body_bytes */
    bool too_large;                    /* the body passed its limit: dropped */
    bool overloaded;                   /* all bodies together passed theirs: dropped */
    int64_t start_ms;                  /* arrival, monotonic */
    int compatible;                    /* of the answer: 8, 9, or 0 for the plain media type */
    enum sf_es_op op;                  /* for metrics */
    struct es_request request;         /* for handlers */
    struct sf_buf out;                 /* the answer's body */
    int status;                        /* the answer's status */
    const char *location;              /* header of a created document, or NULL */
};

/* The request is complete: fills its answer. */
void es_serve(struct es_http *r);

/* Fills the answer with an error in Elasticsearch's shape. */
void es_answer_refused(struct es_http *r, int status, const char *type, const char *reason);

/* The value of a header, NULL when it is absent. */
const char *es_header(const struct es_http *r, const char *name);

/* Counts `len` more bytes of bodies for this request; false when all requests together hold too
 * many. */
bool es_budget_take(struct es_http *r, size_t len);

#endif
