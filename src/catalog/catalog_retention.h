/*
 * Retention: how long records of commands, their pointers, superseded control objects and segments
 * stay (protocols.md section 2, Retention).
 */
#ifndef SF_CATALOG_RETENTION_H
#define SF_CATALOG_RETENTION_H

#include "catalog/catalog_checkpoint.h"
#include "catalog/catalog_removals.h"

#define SF_CATALOG_RETENTION_MS    2592000000u /* by default: 30 days */
#define SF_CATALOG_RETENTION_BATCH 10000       /* commands of one round */

/* Is the record older than the lowest segment that counts? Without a row it then answers nothing.
 */
bool sf_catalog_record_expired(struct sf_catalog *catalog,
                               const SF_PB(CommandOutcomeObject) * outcome);

/* Does the record name a control object that is still current, the reservation of a name's newest
 * epoch included? Such a record stays, whatever its age. Reads rows. */
SF_MUST_USE enum sf_err sf_catalog_record_current(struct sf_sql_conn *conn,
                                                  const SF_PB(CommandOutcomeObject) * outcome,
                                                  struct sf_arena *arena, struct sf_diag *diag,
                                                  bool *out_current);

/* Removes what a removal that was cut short left under a command's key: past the retention, without
 * a row. Not removed: in use or in doubt, or nothing such stands there. */
SF_MUST_USE enum sf_err sf_catalog_leftover_remove(struct sf_catalog *catalog,
                                                   struct sf_sched *sched,
                                                   const char *command_identity,
                                                   struct sf_diag *diag, bool *out_removed);

/* The job and the handler of RunRetention. */
enum sf_err sf_catalog_retention_job(struct sf_catalog *catalog, struct sf_sched *sched,
                                     struct sf_diag *diag, uint64_t *out_done);
void sf_catalog_retention_call(void *self, struct sf_call *call, const ProtobufCMessage *request);

#endif
