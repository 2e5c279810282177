/*
 * What the projectors share: the work that is due, and how it is taken. A projector derives lagging
 * facts (descriptor fields, statistics, lifecycle windows) from rows and committed manifests; it
 * never changes what a command set (OP-43).
 */
#ifndef SF_CATALOG_PROJECTOR_H
#define SF_CATALOG_PROJECTOR_H

#include "catalog/catalog_priv.h"

/* Tables that only projectors write; a rebuild starts without their rows. */
#define SF_CATALOG_PROJECTOR_DELETES                                                               \
    "DELETE FROM catalog_projector_work; DELETE FROM collection_index_backlogs;"                   \
    "DELETE FROM collection_observations; DELETE FROM lifecycle_transition_claims;"                \
    "DELETE FROM retired_statistics_snapshots;"

#define SF_CATALOG_PROJECTOR_BATCH 64    /* collections or namespaces of one cycle */
#define SF_CATALOG_PROJECTOR_WAKES 65536 /* wakes held in memory; beyond, all are woken */
#define SF_CATALOG_PROJECTOR_RETRY_MS                                                              \
    60000 /* a manifest that does not verify is looked at again                                    \
           */

/* A projector's kind of work: one column of catalog_projector_work each. */
enum sf_catalog_due {
    SF_CATALOG_DUE_STATS,      /* collection approx_stats */
    SF_CATALOG_DUE_INDEX,      /* collection index */
    SF_CATALOG_DUE_AGGREGATE,  /* the namespace's approx_stats and index */
    SF_CATALOG_DUE_STATISTICS, /* an optimizer statistics snapshot */
    SF_CATALOG_DUE_WINDOWS,    /* lifecycle windows */
    SF_CATALOG_DUE_COUNT
};

/* What happened to a collection; says which work becomes due. */
enum sf_catalog_note {
    SF_CATALOG_NOTE_CREATED,    /* stats, index, aggregate */
    SF_CATALOG_NOTE_SCHEMA,     /* index, windows */
    SF_CATALOG_NOTE_CONTENT,    /* all: head advance, promotion, wake */
    SF_CATALOG_NOTE_BACKLOG,    /* index */
    SF_CATALOG_NOTE_DESCRIPTOR, /* aggregate */
    SF_CATALOG_NOTE_COUNT
};

/* One collection with due work. */
struct sf_catalog_work {
    uint64_t namespace_id;  /* of the collection */
    uint64_t collection_id; /* in it */
    uint64_t stamp;         /* of the newest note; work noted meanwhile has another */
};

struct sf_catalog_projectors;

struct sf_catalog_projectors *sf_catalog_projectors_new(void);
void sf_catalog_projectors_destroy(struct sf_catalog_projectors *projectors);

/* The collection's committed manifest moved, or it was dropped: all its projections are due. Held
 * in memory until the next cycle; any thread, never blocks. Committed commands need no wake: they
 * note their work with their rows. */
void sf_catalog_projectors_wake(struct sf_catalog *catalog, uint64_t namespace_id,
                                uint64_t collection_id);

/* Writes that work is due, inside a transaction of the writer; followed by
 * sf_catalog_projectors_changed once it is committed. */
enum sf_err sf_catalog_projectors_note(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                       uint64_t namespace_id, uint64_t collection_id,
                                       enum sf_catalog_note note, struct sf_diag *diag);
void sf_catalog_projectors_changed(struct sf_catalog *catalog);

/* The lagging side of one command that was just projected: notes work; a namespace that lost its
 * last active collection gets the zero-child aggregate in the same transaction (note 5.2). */
enum sf_err sf_catalog_projectors_follow(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                         const SF_PB(CommandOutcomeObject) * outcome,
                                         struct sf_diag *diag);

/* Ends a rebuild: every active collection is due; namespaces that have one lose their aggregates
 * until the aggregator ran (OP-43). */
enum sf_err sf_catalog_projectors_rebuilt(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                          struct sf_diag *diag);

/* Due work of one kind, at most SF_CATALOG_PROJECTOR_BATCH collections (*out_items in `arena`).
 * Without changes since the last empty take nothing is asked of the projection. */
enum sf_err sf_catalog_projectors_take(struct sf_catalog *catalog, enum sf_catalog_due due,
                                       struct sf_arena *arena, struct sf_diag *diag,
                                       struct sf_catalog_work **out_items, size_t *out_count);

/* The work is done: inside the transaction that shows it. Noted again meanwhile: it stays due. */
enum sf_err sf_catalog_projectors_done(struct sf_sql_conn *conn, const struct sf_catalog_work *work,
                                       enum sf_catalog_due due, struct sf_diag *diag);

/* The work cannot be done now (a manifest that does not verify): due again after a while. */
enum sf_err sf_catalog_projectors_defer(struct sf_catalog *catalog,
                                        const struct sf_catalog_work *work, struct sf_diag *diag);

/* The committed manifest does not verify (`diag` says why): says so once, keeps what is shown,
 * defers the work. */
enum sf_err sf_catalog_projectors_refused(struct sf_catalog *catalog,
                                          const struct sf_catalog_work *work, const char *job,
                                          struct sf_diag *diag);

/* One cycle: takes what is due and runs `each` on it. What fails stays due: for a fault of its own
 * it is deferred and the others go on, anything else ends the cycle. Returns the first failure. */
typedef enum sf_err (*sf_catalog_each_fn)(struct sf_catalog *catalog,
                                          const struct sf_catalog_work *work,
                                          struct sf_arena *arena, struct sf_diag *diag);
enum sf_err sf_catalog_projectors_cycle(struct sf_catalog *catalog, enum sf_catalog_due due,
                                        sf_catalog_each_fn each, struct sf_diag *diag,
                                        uint64_t *out_done);

/* The work failed and stays due. */
void sf_catalog_projectors_again(struct sf_catalog *catalog, enum sf_catalog_due due);

/* Runs `fn` in one transaction of the writer behind the look at the owner epoch. Blocks. */
typedef enum sf_err (*sf_catalog_rows_fn)(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                          void *arg, struct sf_diag *diag);
enum sf_err sf_catalog_projectors_write(struct sf_catalog *catalog, sf_catalog_rows_fn fn,
                                        void *arg, struct sf_diag *diag);

/* As above on a reader's snapshot. */
enum sf_err sf_catalog_projectors_read(struct sf_catalog *catalog, sf_catalog_rows_fn fn, void *arg,
                                       struct sf_diag *diag);

/* Has the namespace an active collection? */
enum sf_err sf_catalog_has_children(struct sf_sql_conn *conn, uint64_t namespace_id,
                                    struct sf_diag *diag, bool *out_has);

/* Binds a message as canonical JSON; NULL = NULL (catalog_project.c). */
void sf_catalog_bind_json(struct sf_sql_stmt *stmt, int index, const ProtobufCMessage *message);

/* catalog_enrich.c: jobs, and the rules they follow ------------------------------------------ */

enum sf_err sf_catalog_run_stats(struct sf_catalog *catalog, struct sf_sched *sched,
                                 struct sf_diag *diag, uint64_t *out_done);
enum sf_err sf_catalog_run_index(struct sf_catalog *catalog, struct sf_sched *sched,
                                 struct sf_diag *diag, uint64_t *out_done);
enum sf_err sf_catalog_run_aggregate(struct sf_catalog *catalog, struct sf_sched *sched,
                                     struct sf_diag *diag, uint64_t *out_done);

/* What the serving side last said of its indexing backlog. */
struct sf_catalog_backlog {
    bool present;                                      /* somebody reported */
    char token[SF_LIMIT_SCHEMA_TOKEN_SCALARS * 4 + 1]; /* generation it is about */
    uint64_t unindexed_bytes;                          /* 0 = all is indexed */
};

enum sf_err sf_catalog_sql_backlog(struct sf_sql_conn *conn, uint64_t namespace_id,
                                   uint64_t collection_id, struct sf_diag *diag,
                                   struct sf_catalog_backlog *out_backlog);

/* index of a collection, in `arena`: up to date exactly when the active generation is READY and its
 * own backlog is 0; NULL (not published) while nothing was reported. OP-44. */
SF_PB(IndexStatus) * sf_catalog_index_of(const SF_PB(SchemaGenerationRow) * active,
                                         const struct sf_catalog_backlog *backlog,
                                         struct sf_arena *arena);

/* Aggregate of a namespace, child by child. Zeroed = no children. */
struct sf_catalog_aggregate {
    uint64_t children;             /* active ones */
    uint64_t without_stats;        /* children whose approx_stats is missing */
    uint64_t behind;               /* children whose index is missing or updating */
    uint64_t approx_row_count;     /* sums; saturating */
    uint64_t approx_logical_bytes; /* sums; saturating */
    uint64_t unindexed_bytes;      /* sums; saturating */
};
void sf_catalog_aggregate_add(struct sf_catalog_aggregate *aggregate,
                              const SF_PB(ApproxStats) * stats, const SF_PB(IndexStatus) * index);

/* The namespace's fields. approx_stats stays as it was (`before`) while it was never published and
 * some child's is unknown; a published value never returns to NULL. OP-44. */
SF_PB(ApproxStats) * sf_catalog_aggregate_stats(const struct sf_catalog_aggregate *aggregate,
                                                SF_PB(ApproxStats) * before,
                                                struct sf_arena *arena);
SF_PB(IndexStatus) * sf_catalog_aggregate_index(const struct sf_catalog_aggregate *aggregate,
                                                struct sf_arena *arena);

#endif
