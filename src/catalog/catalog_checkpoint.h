/*
 * Checkpoints: compacted snapshots of the projection from which a lost one is restored (note
 * section 8, OP-23, protocols.md section 2). Shards first, the manifest last; complete is one whose
 * manifest parses and whose shards all verify. Two complete ones are kept.
 */
#ifndef SF_CATALOG_CHECKPOINT_H
#define SF_CATALOG_CHECKPOINT_H

#include "catalog/catalog_operate.h"
#include "catalog/catalog_rows.h"

#define SF_CATALOG_CHECKPOINT_PREFIX "catalog-checkpoints/"
#define SF_CATALOG_CHECKPOINTS_KEPT  2 /* newest complete ones; the older bounds retention */

/* One checkpoint as it stands in the store. */
struct sf_catalog_checkpoint {
    uint64_t epoch;
    SF_PB(CheckpointManifestObject) * manifest; /* in the arena; NULL when it does not parse */
    bool complete;                              /* as far as a listing shows: all shards, sizes */
    const char *problem;                        /* why not, "" when complete */
};

/* Checkpoints found in the store. */
struct sf_catalog_checkpoints {
    struct sf_catalog_checkpoint *items; /* owned; highest epoch first */
    size_t count;
    uint64_t newest_epoch; /* of any object, 0 = none */
};
void sf_catalog_checkpoints_fini(struct sf_catalog_checkpoints *list);

void sf_catalog_key_checkpoint(struct sf_buf *out, uint64_t epoch);
void sf_catalog_key_checkpoint_shard(struct sf_buf *out, uint32_t shard, uint64_t epoch);

/* Epoch, shard and kind of an object's key; false when it is not one of a checkpoint. */
bool sf_catalog_checkpoint_of_key(struct sf_view key, uint64_t *out_epoch, uint32_t *out_shard,
                                  bool *out_manifest);

/* Lists them; manifests go to `arena`. Errors: SF_ERR_UNAVAILABLE. */
SF_MUST_USE enum sf_err sf_catalog_checkpoints_list(struct sf_catalog *catalog,
                                                    struct sf_sched *sched, struct sf_arena *arena,
                                                    struct sf_diag *diag,
                                                    struct sf_catalog_checkpoints *out_list);

/* The complete one with the highest bound (then epoch) for which segments from bound + 1 on count;
 * `skip` of them are passed over. NULL = none. */
const struct sf_catalog_checkpoint *
sf_catalog_checkpoint_pick(const struct sf_catalog_checkpoints *list, uint64_t lowest_segment,
                           size_t skip);

/* Reads shard `index` of a manifest and checks size, SHA-256, header and row count. Errors:
 * SF_ERR_CORRUPT (absent or does not verify; the reason is in diag), SF_ERR_UNAVAILABLE. */
SF_MUST_USE enum sf_err
sf_catalog_checkpoint_shard(struct sf_catalog *catalog, struct sf_sched *sched,
                            const SF_PB(CheckpointManifestObject) * manifest, size_t index,
                            struct sf_arena *arena, struct sf_diag *diag,
                            SF_PB(CheckpointShardObject) * *out_shard);

/* Rows of a shard's repeated field for `table`. */
size_t sf_catalog_checkpoint_rows(const SF_PB(CheckpointShardObject) * shard,
                                  enum sf_catalog_table table, ProtobufCMessage ***out_rows);

/* Cuts a checkpoint and removes those that are older than the two newest complete ones. The
 * manifest goes to `arena`. On the lane of the slow jobs. Errors: SF_ERR_UNAVAILABLE,
 * SF_ERR_DEPOSED, SF_ERR_CORRUPT (a projected row does not decode). */
SF_MUST_USE enum sf_err sf_catalog_checkpoint_cut(struct sf_catalog *catalog,
                                                  struct sf_sched *sched, struct sf_arena *arena,
                                                  struct sf_diag *diag,
                                                  SF_PB(CheckpointManifestObject) * *out_manifest);

/* Raises the watermark to the last settled slot. */
SF_MUST_USE enum sf_err sf_catalog_watermark_raise(struct sf_catalog *catalog,
                                                   struct sf_sched *sched, struct sf_diag *diag);

/* SF_ERR_DEPOSED when the chain goes on with somebody else's takeover. For what has no condition of
 * its own: manifests and deletes. Nothing is asked where no other owner can be. */
SF_MUST_USE enum sf_err sf_catalog_owner_check(struct sf_catalog *catalog, struct sf_sched *sched,
                                               struct sf_diag *diag);

/* The job, and the handlers of the operator's service. */
enum sf_err sf_catalog_checkpoint_job(struct sf_catalog *catalog, struct sf_sched *sched,
                                      struct sf_diag *diag, uint64_t *out_done);
void sf_catalog_checkpoint_create(void *self, struct sf_call *call,
                                  const ProtobufCMessage *request);
void sf_catalog_checkpoint_list(void *self, struct sf_call *call, const ProtobufCMessage *request);
void sf_catalog_checkpoint_verify(void *self, struct sf_call *call,
                                  const ProtobufCMessage *request);

#endif
