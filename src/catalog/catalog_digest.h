/* Digest of the projection: what two projections of one store have in common, whatever database. */
#ifndef SF_CATALOG_CATALOG_DIGEST_H
#define SF_CATALOG_CATALOG_DIGEST_H

#include "base/arena.h"
#include "catalog/catalog.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"
#include "sql/sql.h"

/* Reads every row in one snapshot, page by page, and digests it (catalog_digest.c says how). The
 * response's parts live in `arena`. Blocks; `sched` NULL on a plain thread. Errors: SF_ERR_LIMIT,
 * SF_ERR_CORRUPT, those of sf_sql_step. */
SF_MUST_USE enum sf_err sf_catalog_digest(struct sf_sql *sql, struct sf_sched *sched,
                                          struct sf_arena *arena, struct sf_diag *diag,
                                          Searchfabric__V1__DigestProjectionResponse *out_response);

/* Columns of the digest's table number `index` as "table: column, column, ...", for the test that
 * compares them with the database; NULL past the last one. In `arena`. */
const char *sf_catalog_digest_columns(size_t index, struct sf_arena *arena);

struct sf_call;

/* CatalogOperationsService.DigestProjection. */
void sf_catalog_digest_call(void *self, struct sf_call *call, const ProtobufCMessage *request);

#endif
