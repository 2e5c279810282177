/*
 * Lifecycle of lineages: drop, transition, release. A collection goes ACTIVE -> TOMBSTONED (drop)
 * -> released; a namespace ACTIVE <-> QUIESCING -> TOMBSTONED -> released. A tombstone keeps the
 * name reserved until its recorded horizon; the release frees the name and removes the row, the
 * epoch of the name stays, and the name's next lineage has the next epoch and an id of its own.
 */
#ifndef SF_CATALOG_LIFECYCLE_H
#define SF_CATALOG_LIFECYCLE_H

#include "catalog/catalog_gate.h"
#include "catalog/catalog_rules.h"

/* From a tombstone to the release of its name when the configuration says nothing: 7 days. */
#define SF_CATALOG_GC_DELAY_MS (UINT64_C(7) * 24 * 60 * 60 * 1000)

/* A lineage is dropped once, and its tombstone is final. */
#define SF_CATALOG_DROP_REVISION 1

/* Looked at in one sweep; the next one goes on behind them. */
#define SF_CATALOG_SWEEP_LOOKED 10000
/* Released in one sweep when the request says nothing, and in one cycle of the job. */
#define SF_CATALOG_SWEEP_RELEASES 1000

extern const struct sf_catalog_mutation sf_catalog_drop_collection;
extern const struct sf_catalog_mutation sf_catalog_transition_namespace;
extern const struct sf_catalog_mutation sf_catalog_release_namespace;
extern const struct sf_catalog_mutation sf_catalog_release_collection;

/* The horizon of a tombstone made now. */
int64_t sf_catalog_horizon(const struct sf_catalog *catalog, uint64_t delay_ms, int64_t now_ms);

/* catalog_tombstone.c ---------------------------------------------------------------------- */

/* What the durable objects say of a collection. */
struct sf_catalog_tombstone {
    bool stands;                                     /* dropped, and its name not released */
    bool released;                                   /* dropped and released */
    const SF_PB(CollectionTombstoneObject) * object; /* NULL unless one of both */
    SF_PB(ControlObjectRef) ref;                     /* of that object */
};

/* Reads the tombstone object of a collection. It counts only when an APPLIED record names its key
 * and SHA-256; a release counts when its outcome stands. Nothing found is SF_OK with both flags
 * false. The result lives in `arena`. Errors: SF_ERR_UNAVAILABLE, SF_ERR_CORRUPT. */
enum sf_err sf_catalog_tombstone_find(struct sf_catalog *catalog, uint64_t namespace_id,
                                      uint64_t collection_id, struct sf_arena *arena,
                                      struct sf_diag *diag, struct sf_catalog_tombstone *out);

/* A versioned control object that an APPLIED record names by key and SHA-256; *out_object NULL:
 * absent, or an orphan. `key` is taken over; *out_ref names the object, in `arena`. Errors as
 * sf_catalog_tombstone_find. */
enum sf_err sf_catalog_committed_read(struct sf_catalog *catalog, struct sf_buf *key,
                                      const ProtobufCMessageDescriptor *desc,
                                      struct sf_arena *arena, struct sf_diag *diag,
                                      SF_PB(ControlObjectRef) * out_ref,
                                      ProtobufCMessage **out_object);

/* Makes the projection show a tombstone that stands: the row, from its descriptor when it is lost,
 * and what the tombstone says. Under the collection's gate. OP-17, note section 9.3. */
enum sf_err sf_catalog_tombstone_restore(struct sf_catalog *catalog,
                                         const SF_PB(CollectionTombstoneObject) * tombstone,
                                         struct sf_arena *arena, struct sf_diag *diag);

/* Job: collections whose row contradicts the tombstone that the projection knows of. */
enum sf_err sf_catalog_tombstone_repair(struct sf_catalog *catalog, struct sf_sched *sched,
                                        struct sf_diag *diag, uint64_t *out_done);

/* catalog_project_lifecycle.c: inside a transaction of the writer --------------------------- */

/* A drop: row, tombstone, binding revision. */
enum sf_err sf_catalog_project_drop(struct sf_sql_conn *conn,
                                    const SF_PB(CommandOutcomeObject) * outcome,
                                    const SF_PB(CollectionTombstoneObject) * tombstone,
                                    struct sf_diag *diag);

/* The rows that a tombstone is shown in, without the binding revision. */
enum sf_err sf_catalog_project_tombstone(struct sf_sql_conn *conn,
                                         const SF_PB(CollectionTombstoneObject) * tombstone,
                                         struct sf_diag *diag);

/* A release: the lineage's rows go, the epoch row stays. */
enum sf_err sf_catalog_project_release_collection(struct sf_sql_conn *conn,
                                                  const SF_PB(CommandOutcomeObject) * outcome,
                                                  struct sf_diag *diag);
enum sf_err sf_catalog_project_release_namespace(struct sf_sql_conn *conn,
                                                 const SF_PB(CommandOutcomeObject) * outcome,
                                                 struct sf_diag *diag);

/* Has the namespace a collection row, tombstoned ones included? */
enum sf_err sf_catalog_sql_has_rows(struct sf_sql_conn *conn, uint64_t namespace_id,
                                    struct sf_diag *diag, bool *out_has);

/* Tombstone of a collection as projected; NULL without one. */
enum sf_err sf_catalog_sql_tombstone(struct sf_sql_conn *conn, uint64_t namespace_id,
                                     uint64_t collection_id, struct sf_arena *arena,
                                     struct sf_diag *diag,
                                     SF_PB(CollectionTombstoneObject) * *out_tombstone);

/* catalog_release.c ------------------------------------------------------------------------ */

/* A reservation under judgement: one snapshot. */
struct sf_catalog_reservation {
    struct sf_catalog *catalog;              /* whose */
    struct sf_sql_conn *conn;                /* in the snapshot */
    struct sf_arena *arena;                  /* for rows that a condition reads */
    const SF_PB(NamespaceRow) * ns;          /* the lineage, or the parent */
    const SF_PB(CollectionRow) * collection; /* the lineage; NULL: the namespace's name */
    int64_t now_unix_ms;                     /* of the catalog's clock */
};

/* One precondition of a release. All hold, or the name stays reserved. A part of the catalog that
 * has cleanup to wait for adds a row to the table in catalog_release.c. */
struct sf_catalog_release_condition {
    const char *name; /* as refusals and `sfctl` tell it */
    enum sf_err (*holds)(const struct sf_catalog_reservation *reservation, struct sf_diag *diag,
                         bool *out_holds);
};

/* Names the first condition that does not hold (NULL: all hold), from condition *io_index on, which
 * is left behind it: so that a caller may list all. */
enum sf_err sf_catalog_release_blocked(const struct sf_catalog_reservation *reservation,
                                       struct sf_diag *diag, size_t *io_index,
                                       const char **out_name);

/* catalog_sweep.c -------------------------------------------------------------------------- */

/* What a sweep did. */
struct sf_catalog_swept {
    uint32_t namespaces;  /* names released */
    uint32_t collections; /* names released */
    uint32_t kept;        /* horizon not reached or a condition open */
    uint32_t failed;      /* broken: neither released nor kept by a condition */
    struct sf_diag first; /* of the first of them */
};

/* Releases what may be released, collections first: at most `limit` names, of one namespace unless
 * 0. On a task of the quick jobs' lane. A lineage that fails by its own fault is counted and the
 * sweep goes on. Errors: of store, projection or office; the next sweep goes on behind it. */
enum sf_err sf_catalog_sweep(struct sf_catalog *catalog, struct sf_sched *sched,
                             uint64_t namespace_id, uint32_t limit, struct sf_diag *diag,
                             struct sf_catalog_swept *out_swept);

/* Job `release-sweep`. */
enum sf_err sf_catalog_sweep_job(struct sf_catalog *catalog, struct sf_sched *sched,
                                 struct sf_diag *diag, uint64_t *out_done);

/* Handlers of RunReleaseSweep and ShowLineage. */
void sf_catalog_sweep_call(void *self, struct sf_call *call, const ProtobufCMessage *request);
void sf_catalog_lineage_call(void *self, struct sf_call *call, const ProtobufCMessage *request);

#endif
