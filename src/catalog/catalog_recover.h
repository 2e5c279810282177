/* Shared by the three files of a start: catalog_recover (takeover and order), _chain (segments) and
 * _rows (checkpoint rows and what no record names). */
#ifndef SF_CATALOG_RECOVER_H
#define SF_CATALOG_RECOVER_H

#include "catalog/catalog_checkpoint.h"
#include "catalog/catalog_fetch.h"
#include "catalog/catalog_rules.h"

/* One start. */
struct sf_recovery {
    struct sf_catalog *catalog;                   /* that opens */
    struct sf_sched *sched;                       /* where store calls wait */
    struct sf_diag *diag;                         /* why it failed */
    struct sf_arena *arena;                       /* of one window or page; reset between */
    struct sf_arena *chunk;                       /* of some commands; reset between */
    struct sf_arena *listed;                      /* manifests of checkpoints */
    struct sf_catalog_checkpoints checkpoints;    /* of a rebuild */
    const struct sf_catalog_checkpoint *restored; /* the one that a rebuild begins with, or NULL */
    uint64_t lowest;                              /* lowest segment that counts */
    uint64_t base;                                /* everything up to here is done */
    uint64_t tail;                                /* last slot before the takeover */
    bool rebuild;                                 /* the projection is lost */
    bool foreign;                                 /* its rows speak of another chain */
    uint64_t *top;                                /* per shard: newest takeover seen in the walk */
};

typedef enum sf_err (*sf_recovery_fn)(struct sf_recovery *r, struct sf_sql_conn *conn, void *arg);

/* Runs `fn` in one transaction, again when it failed without effect; with `claimed` a rebuild first
 * checks that the projection is still its own. */
SF_MUST_USE enum sf_err sf_recovery_transaction(struct sf_recovery *r, sf_recovery_fn fn, void *arg,
                                                bool claimed);

/* Reads the segment at `slot`; SF_ERR_CORRUPT when it is missing. In r->arena. */
SF_MUST_USE enum sf_err sf_recovery_segment(struct sf_recovery *r, uint64_t slot,
                                            SF_PB(RecoverySegmentObject) * *out_segment);

/* Settles and shows everything above the base, up to the tail. */
SF_MUST_USE enum sf_err sf_recovery_walk(struct sf_recovery *r);

/* Writes the rows of r->restored. SF_ERR_CORRUPT: it is not complete. */
SF_MUST_USE enum sf_err sf_recovery_restore(struct sf_recovery *r);

/* Reads again what no record names. */
SF_MUST_USE enum sf_err sf_recovery_families(struct sf_recovery *r);

#endif
