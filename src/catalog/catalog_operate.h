/* Calls of the operator's service that take long: they run on the lane of the slow jobs, one after
 * another and never beside a slow job. */
#ifndef SF_CATALOG_OPERATE_H
#define SF_CATALOG_OPERATE_H

#include "catalog/catalog_priv.h"

/* Answers `call` and returns SF_OK, or fills the call's diag and returns its error. On a worker
 * task. */
typedef enum sf_err (*sf_catalog_operate_fn)(struct sf_catalog *catalog, struct sf_sched *sched,
                                             struct sf_call *call, const ProtobufCMessage *request);

/* Takes `call` (request valid as long as it) and runs `fn`, or refuses at once. Never blocks. */
void sf_catalog_operate(struct sf_catalog *catalog, struct sf_call *call,
                        const ProtobufCMessage *request, sf_catalog_operate_fn fn);

/* One page of a listing, repeated while the store is unavailable; `io_after` moves to its last key.
 * Fewer than SF_LIMIT_LIST_PAGE_ENTRIES is the end. Keys in `arena`. */
SF_MUST_USE enum sf_err sf_catalog_list(struct sf_catalog *catalog, struct sf_sched *sched,
                                        const char *prefix, struct sf_buf *io_after,
                                        struct sf_arena *arena, struct sf_diag *diag,
                                        struct sf_list_entry **out_entries, size_t *out_count);

#endif
