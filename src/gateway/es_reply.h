/* Answers in Elasticsearch's shapes. Pure. Private to the gateway. */
#ifndef SF_GATEWAY_ES_REPLY_H
#define SF_GATEWAY_ES_REPLY_H

#include "base/buf.h"
#include "base/diag.h"
#include "gateway/es_bulk.h"

/* The error of a public code, as Elasticsearch would say it: 409 version_conflict_engine_exception,
 * 429 es_rejected_execution_exception, 404 index_not_found_exception, ... The reason is the diag's
 * message, in `arena`. */
struct sf_es_error sf_es_error_of(const struct sf_diag *diag, struct sf_arena *arena);

/* {"error":{"root_cause":[{...}],"type":...,"reason":...},"status":...}. `index` (empty = none) is
 * named where Elasticsearch names it: index_not_found_exception and
 * resource_already_exists_exception. */
void sf_es_reply_error(const struct sf_es_error *error, struct sf_view index, struct sf_buf *out);

/* What became of one document. */
struct sf_es_result {
    struct sf_es_error error; /* status 0 = created */
    uint64_t doc_id;          /* when created */
    uint64_t commit_ts;       /* TSO, when created */
    bool forced_refresh;      /* refresh=true was asked for */
};

/* Members of a created document's answer, without braces: _index to _primary_term. */
void sf_es_reply_created(const struct sf_es_result *result, struct sf_view index,
                         struct sf_buf *out);

/* One item of a bulk answer: {"create":{...}}. */
void sf_es_reply_item(const struct sf_es_bulk_item *item, const struct sf_es_result *result,
                      struct sf_buf *out);

/* GET /. */
void sf_es_reply_root(struct sf_buf *out);

#endif
