/* Which request of Elasticsearch's API a method and a path are. Pure. Private to the gateway. */
#ifndef SF_GATEWAY_ES_ROUTE_H
#define SF_GATEWAY_ES_ROUTE_H

#include "base/arena.h"
#include "gateway/es_bulk.h"

/* What a request asks for. */
enum sf_es_op {
    SF_ES_OP_ROOT,         /* GET, HEAD / */
    SF_ES_OP_INDEX_EXISTS, /* HEAD /{index} */
    SF_ES_OP_INDEX_GET,    /* GET /{index} */
    SF_ES_OP_INDEX_CREATE, /* PUT /{index} */
    SF_ES_OP_INDEX_DELETE, /* DELETE /{index} */
    SF_ES_OP_DOC_CREATE,   /* POST /{index}/_doc; /{index}/_create/{id} */
    SF_ES_OP_BULK,         /* POST, PUT /_bulk, /{index}/_bulk */
    SF_ES_OP_NOT_SERVED,   /* known to Elasticsearch, not served here; `error` says so */
    SF_ES_OP_UNKNOWN       /* no handler; `error` says so */
};

struct sf_es_route {
    enum sf_es_op op;         /* what is asked */
    struct sf_view index;     /* decoded, in the arena; empty = none in the path */
    bool has_id;              /* an id stands in the path */
    struct sf_view id;        /* decoded, in the arena */
    struct sf_es_error error; /* for NOT_SERVED, UNKNOWN */
};

/* Routes `method` ("GET", ...) and `path` (as received, without the query; percent-decoded here,
 * part by part). `op_type_create`: the query says op_type=create. False on arena overflow. */
bool sf_es_route(const char *method, struct sf_view path, bool op_type_create,
                 struct sf_arena *arena, struct sf_es_route *out_route);

/* May an index of this name be created (Elasticsearch's rules)? NULL, or why not. */
const char *sf_es_index_name_violation(struct sf_view name);

/* Media type of a request or answer. */
enum sf_es_media {
    SF_ES_MEDIA_NONE,   /* header absent, or any type will do */
    SF_ES_MEDIA_JSON,   /* application/json */
    SF_ES_MEDIA_NDJSON, /* application/x-ndjson */
    SF_ES_MEDIA_OTHER,  /* anything else */
    SF_ES_MEDIA_VERSION /* a compatible-with that is not 8 or 9 */
};

/* Reads a Content-Type or Accept header (NULL = absent): the media type and, for the vnd form, the
 * compatible-with version (8 or 9; 0 = plain form). Of several types the first one known counts. */
enum sf_es_media sf_es_media_read(const char *header, int *out_compatible);

#endif
