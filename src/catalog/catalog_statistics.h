/*
 * Optimizer statistics: immutable snapshots of one schema generation, a head that names the newest
 * one of the serving lineage, rows of both for reads (note 5.8; OP-40..OP-42).
 */
#ifndef SF_CATALOG_STATISTICS_H
#define SF_CATALOG_STATISTICS_H

#include "catalog/catalog_manifest.h"
#include "catalog/catalog_projector.h"

#define SF_CATALOG_STATISTICS_KEEP         4   /* newest snapshots of the serving lineage in rows */
#define SF_CATALOG_STATISTICS_PRUNE        256 /* rows looked at in one transaction */
#define SF_CATALOG_STATISTICS_RETENTION_MS 900000 /* a pruned snapshot's object stays that long */
#define SF_CATALOG_STATISTICS_FIELDS       1000   /* target_fields of one request */
#define SF_CATALOG_STATISTICS_TUPLES       64     /* extended_requests of one request */

/* What the projection says of a collection's lineage; NULL = there is none. */
struct sf_catalog_lineage {
    SF_PB(CollectionRow) * collection;   /* NULL = none */
    SF_PB(SchemaGenerationRow) * active; /* its newest generation; NULL = none */
    SF_PB(SchemaGenerationRow) * ready;  /* the READY generation of the highest version (OP-38) */
    uint64_t adopted; /* version of the generation adopted under this owner's epoch, 0 = none */
};

/* Reads it from one snapshot behind the look at the owner epoch (catalog_converge.c). */
enum sf_err sf_catalog_lineage_read(struct sf_catalog *catalog, uint64_t namespace_id,
                                    uint64_t collection_id, struct sf_arena *arena,
                                    struct sf_diag *diag, struct sf_catalog_lineage *out_lineage);

/* A snapshot of `body`'s generation, in `arena`: one entry for each declared field and tuple.
 * `manifest` NULL: the zero-row base, frontier 0. NULL when it does not fit. Pure but for attempt
 * id and clock. */
SF_PB(OptimizerStatisticsSnapshotObject) *
    sf_catalog_statistics_build(struct sf_catalog *catalog,
                                const SF_PB(SchemaGenerationBody) * body,
                                const struct sf_catalog_manifest *manifest,
                                uint64_t stats_commit_ts, struct sf_arena *arena);

/* Makes the zero-row statistics base of a generation stand; the one that stands already is taken.
 * Errors: SF_ERR_UNAVAILABLE, SF_ERR_CORRUPT, SF_ERR_LIMIT. */
enum sf_err sf_catalog_statistics_base(struct sf_catalog *catalog, struct sf_sched *sched,
                                       const SF_PB(SchemaGenerationBody) * body,
                                       struct sf_arena *arena, struct sf_diag *diag,
                                       SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot);

/* The newest snapshot of a generation that the projection knows, else its base. */
enum sf_err sf_catalog_statistics_newest(struct sf_catalog *catalog, struct sf_sched *sched,
                                         const SF_PB(SchemaGenerationBody) * body,
                                         struct sf_arena *arena, struct sf_diag *diag,
                                         SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot);

/* The snapshot that a generation serves: the one that the head object names where that is of this
 * generation, else the newest row, else the base. The head object decides over the rows, which a
 * power cut may have taken back. Under the collection's gate. Errors as the reads. */
enum sf_err sf_catalog_statistics_serving(struct sf_catalog *catalog, struct sf_sched *sched,
                                          const SF_PB(SchemaGenerationBody) * body,
                                          struct sf_arena *arena, struct sf_diag *diag,
                                          SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot);

/* Adopts a collection's head object: puts this owner's epoch into it and brings the rows to what it
 * names. Harmless without one. Once per collection and owner, under its gate. Errors as
 * sf_catalog_statistics_point. Note 9.2; protocols.md section 2, overwritten objects. */
enum sf_err sf_catalog_statistics_adopt(struct sf_catalog *catalog,
                                        const SF_PB(CollectionRef) * ref, struct sf_arena *arena,
                                        struct sf_diag *diag);

/* Points the head object at a snapshot; never under a lower owner epoch. Under the collection's
 * gate. Errors: SF_ERR_DEPOSED, SF_ERR_UNAVAILABLE, SF_ERR_CORRUPT. */
enum sf_err sf_catalog_statistics_point(struct sf_catalog *catalog, struct sf_sched *sched,
                                        const SF_PB(OptimizerStatisticsSnapshotObject) * snapshot,
                                        struct sf_arena *arena, struct sf_diag *diag);

/* The snapshot that a collection's rows are restored from: the one that the head object names, read
 * after it; where the head is not of the serving lineage it is pointed anew (OP-41). NULL = none.
 * Errors as the reads; SF_ERR_CORRUPT when the head names nothing. Note section 11. */
enum sf_err sf_catalog_statistics_load(struct sf_catalog *catalog, struct sf_sched *sched,
                                       const SF_PB(CollectionRef) * ref, struct sf_arena *arena,
                                       struct sf_diag *diag,
                                       SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot);

/* Restores a collection's missing rows; takes its gate. Note 9.2. */
enum sf_err sf_catalog_statistics_repair(struct sf_catalog *catalog,
                                         const SF_PB(CollectionRef) * ref, struct sf_arena *arena,
                                         struct sf_diag *diag);

/* Snapshots of one generation: what sf_catalog_sql_statistics_prepare binds ?1 to ?3 of. */
#define SF_CATALOG_STATISTICS_SELECT                                                               \
    "SELECT snapshot_json FROM collection_statistics_snapshots"                                    \
    " WHERE namespace_id = ?1 AND collection_id = ?2 AND applied_schema_generation_token = ?3"

/* Prepares `sql`, which begins so; *out_stmt is set on SF_OK. Errors: those of SQL. */
enum sf_err sf_catalog_sql_statistics_prepare(struct sf_sql_conn *conn, const char *sql,
                                              const SF_PB(CollectionRef) * ref, const char *token,
                                              struct sf_diag *diag, struct sf_sql_stmt **out_stmt);

/* The snapshot of the next row (column 0), NULL at the end; the caller finishes the statement. */
enum sf_err sf_catalog_sql_next_statistics(struct sf_sql_stmt *stmt, struct sf_arena *arena,
                                           struct sf_diag *diag,
                                           SF_PB(OptimizerStatisticsSnapshotObject) *
                                               *out_snapshot);

/* The newest row of a generation; NULL = there is none. */
enum sf_err
sf_catalog_sql_statistics_newest(struct sf_sql_conn *conn, const SF_PB(CollectionRef) * ref,
                                 const char *token, struct sf_arena *arena, struct sf_diag *diag,
                                 SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot);

/* Makes a fresh snapshot of the collection, moves the head to it and shows both; takes its gate.
 * Nothing when no generation serves. Errors as the job. */
enum sf_err sf_catalog_statistics_renew(struct sf_catalog *catalog,
                                        const SF_PB(CollectionRef) * ref, struct sf_arena *arena,
                                        struct sf_diag *diag);

/* Jobs: a snapshot for each changed collection; removal of pruned snapshots' objects. */
enum sf_err sf_catalog_run_statistics(struct sf_catalog *catalog, struct sf_sched *sched,
                                      struct sf_diag *diag, uint64_t *out_done);
enum sf_err sf_catalog_run_statistics_retention(struct sf_catalog *catalog, struct sf_sched *sched,
                                                struct sf_diag *diag, uint64_t *out_done);

/* catalog_statistics_read.c ---------------------------------------------------------------- */

/* What the request says of itself: fields and tuples. SF_BAD_REQUEST. OP-42. */
enum sf_err sf_catalog_statistics_check(const SF_PB(GetCollectionStatisticsRequest) * request,
                                        struct sf_diag *diag);

/* Is a snapshot collected at `collected` fresh enough at `now`? Budget 0 = any. */
bool sf_catalog_statistics_fresh(int64_t collected_at_unix_ms, uint64_t max_staleness_ms,
                                 int64_t now_unix_ms);

/* Answers from a snapshot: fields, then tuples. SF_BAD_REQUEST for what its lineage does not
 * declare. The response borrows from both. */
enum sf_err sf_catalog_statistics_fill(const SF_PB(OptimizerStatisticsSnapshotObject) * snapshot,
                                       const SF_PB(GetCollectionStatisticsRequest) * request,
                                       struct sf_arena *arena, struct sf_diag *diag,
                                       SF_PB(GetCollectionStatisticsResponse) * out_response);

/* Serves the RPC on the collection's lane; SF_OK when the call was answered. */
enum sf_err sf_catalog_statistics_run(struct sf_catalog *catalog, struct sf_call *call,
                                      const ProtobufCMessage *request);

/* Serves ShowStatistics on a lane; SF_OK when the call was answered. */
enum sf_err sf_catalog_statistics_show_run(struct sf_catalog *catalog, struct sf_call *call,
                                           const ProtobufCMessage *request);

#endif
