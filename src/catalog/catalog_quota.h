/*
 * Quota inside src/catalog: who may spend how much of a namespace's budgets (note 5.10). Files:
 * _quota_bucket is the arithmetic of one budget, _quota_state one namespace's durable state and
 * memory, _quota the requests on a namespace's lane, _quota_sql the rows, _quota_rpc what comes in,
 * _quota_check compares row and object.
 */
#ifndef SF_CATALOG_QUOTA_H
#define SF_CATALOG_QUOTA_H

#include "catalog/catalog_policy.h"
#include "catalog/catalog_priv.h"
#include "catalog/catalog_quota_bucket.h"

#define SF_QUOTA_BATCH        256   /* requests of one namespace in one transaction */
#define SF_QUOTA_PRESSURES    32    /* reports of a namespace told apart, half for each dimension */
#define SF_QUOTA_TTL_MS       10000 /* defaults of struct sf_catalog_policy */
#define SF_QUOTA_RETENTION_MS 900000
#define SF_QUOTA_PRESSURE_MS  30000
#define SF_QUOTA_SWEEP_ROWS   2000 /* leases ended and pruned by one cycle of the sweeper, each */

/* ---- rows (catalog_quota_sql.c) ----------------------------------------------------------- */

/* One lease as projected. */
struct sf_quota_lease {
    SF_PB(ApiPlane) plane;                 /* key */
    const char *dimension;                 /* key */
    const char *holder_id;                 /* key */
    const char *request_id;                /* key */
    uint64_t granted_units;                /* as answered */
    uint64_t lease_epoch;                  /* as answered */
    int64_t expires_at_unix_ms;            /* as answered */
    SF_PB(QuotaLeaseState) state;          /* ACTIVE, RETURNED, EXPIRED */
    char fingerprint[SF_SHA256_HEX_BYTES]; /* of the request */
};

/* What a lease request needs of its namespace; *out_revision 0 = no such live namespace. */
enum sf_err sf_quota_sql_namespace(struct sf_sql_conn *conn, uint64_t namespace_id,
                                   struct sf_diag *diag, uint64_t *out_revision);

/* The projected state, NULL when there is no row. */
enum sf_err sf_quota_sql_state(struct sf_sql_conn *conn, uint64_t namespace_id,
                               struct sf_arena *arena, struct sf_diag *diag,
                               SF_PB(NamespaceQuotaStateObject) * *out_state);
enum sf_err sf_quota_sql_state_put(struct sf_sql_conn *conn,
                                   const SF_PB(NamespaceQuotaStateObject) * state,
                                   struct sf_diag *diag);

/* Forgets the namespace's leases: they were of an earlier quota epoch. */
enum sf_err sf_quota_sql_clear(struct sf_sql_conn *conn, uint64_t namespace_id,
                               struct sf_diag *diag);

/* The lease of `key`; *out_found. Only the values of `out_lease` are filled in. */
enum sf_err sf_quota_sql_lease(struct sf_sql_conn *conn, const SF_PB(QuotaLeaseKey) * key,
                               struct sf_diag *diag, struct sf_quota_lease *out_lease,
                               bool *out_found);
enum sf_err sf_quota_sql_lease_put(struct sf_sql_conn *conn, const SF_PB(QuotaLeaseKey) * key,
                                   const struct sf_quota_lease *lease, int64_t now_ms,
                                   struct sf_diag *diag);

/* Ends an active lease. */
enum sf_err sf_quota_sql_lease_end(struct sf_sql_conn *conn, const SF_PB(QuotaLeaseKey) * key,
                                   SF_PB(QuotaLeaseState) state, int64_t now_ms,
                                   struct sf_diag *diag);

/* Active leases of a namespace, at most `limit`, in key order, in the arena. */
enum sf_err sf_quota_sql_active(struct sf_sql_conn *conn, uint64_t namespace_id, size_t limit,
                                struct sf_arena *arena, struct sf_diag *diag,
                                struct sf_quota_lease **out_leases, size_t *out_count);

/* One cycle of the sweeper. */
struct sf_quota_sweep {
    int64_t now_ms;       /* unix ms */
    int64_t retention_ms; /* how long a lease answers repeats past its expiry */
    int64_t swept_ms;     /* in, out: every lease that expired up to here is ended */
    uint64_t expired;     /* out: leases ended */
    uint64_t pruned;      /* out: leases removed */
};

/* Ends up to SF_QUOTA_SWEEP_ROWS active leases whose time is over, and removes as many ended ones
 * that expired before the retention. */
enum sf_err sf_quota_sql_sweep(struct sf_sql_conn *conn, struct sf_quota_sweep *sweep,
                               struct sf_arena *arena, struct sf_diag *diag);

/* Namespaces of the projection that are not tombstoned, above `after`, in order; in the arena. */
enum sf_err sf_quota_sql_namespaces(struct sf_sql_conn *conn, uint64_t after, size_t limit,
                                    struct sf_arena *arena, struct sf_diag *diag,
                                    uint64_t **out_ids, size_t *out_count);

/* ---- one namespace (catalog_quota_state.c) ------------------------------------------------- */

/* A report of ingest pressure that is still on. */
struct sf_quota_pressure {
    uint64_t collection_id;              /* who suffers; 0 = several, folded together */
    enum sf_catalog_dimension dimension; /* what is tightened */
    SF_PB(IngestPressureSource) source;  /* where it comes from */
    unsigned percent;                    /* of rate and burst that is left */
    int64_t until_ms;                    /* over then, whatever happens; unix ms */
};

struct sf_quota_request;

/* One namespace in memory. */
struct sf_quota_namespace {
    struct sf_task task;        /* one batch; on the namespace-id lane */
    struct sf_catalog *catalog; /* immutable */
    uint64_t namespace_id;      /* immutable */
    /* under quotas->mu */
    struct sf_quota_request *head, *tail; /* waiting */
    size_t waiting;                       /* their number */
    bool queued;                          /* the task is queued or runs: the lane owns the rest */
    int64_t used_ms;                      /* last request; unix ms */
    /* lane */
    bool adopted;                /* the object carries this owner's epoch, and what follows holds */
    bool dirty;                  /* the object was swapped and its row does not say so yet */
    bool clear;                  /* leases of an earlier quota epoch are to be forgotten */
    uint64_t namespace_revision; /* the policy was read at this revision */
    uint64_t quota_epoch;        /* of the object */
    struct sf_etag etag;         /* of the object */
    char attempt_id[SF_ATTEMPT_ID_BYTES];                    /* of the object as swapped last */
    int64_t swapped_at_ms;                                   /* likewise */
    uint64_t swapped_credit[SF_CATALOG_DIMENSIONS];          /* credit as swapped last */
    bool used[SF_CATALOG_DIMENSIONS];                        /* somebody leased of it */
    struct sf_catalog_budget budgets[SF_CATALOG_DIMENSIONS]; /* of its class */
    struct sf_quota_bucket buckets[SF_CATALOG_DIMENSIONS];   /* budgets */
    struct sf_quota_pressure pressures[SF_QUOTA_PRESSURES];  /* reports that are on */
    size_t pressure_count;                                   /* used entries */
};

/* All of them, and the counters. */
struct sf_catalog_quotas {
    pthread_mutex_t mu;                /* guards namespaces */
    struct sf_map *namespaces;         /* id -> struct sf_quota_namespace; under mu */
    int64_t swept_ms;                  /* see struct sf_quota_sweep; the sweeper's lane */
    struct sf_metric *metric_granted;  /* leases; NULL = none */
    struct sf_metric *metric_replayed; /* replays */
    struct sf_metric *metric_limited;  /* refused for want of units */
    struct sf_metric *metric_swaps;    /* puts of quota state */
    struct sf_metric *metric_expired;  /* leases that the sweeper ended */
};

void sf_catalog_quotas_open(struct sf_catalog *catalog);
void sf_catalog_quotas_close(struct sf_catalog *catalog);

void sf_catalog_key_quota(struct sf_buf *out, uint64_t namespace_id);

/* Makes the namespace's state this owner's: reads policy, row and object, decides whether the
 * leases can be trusted (`rebuilt`: never), and swaps owner epoch, quota epoch and a first debit of
 * `want` units of each dimension in. Errors: SF_ERR_NOT_FOUND (create is false and there is no
 * object), SF_ERR_DEPOSED, SF_ERR_STOPPED, SF_ERR_UNAVAILABLE, SF_ERR_CORRUPT. On the lane, or
 * while opening. */
enum sf_err sf_quota_adopt(struct sf_quota_namespace *ns, struct sf_sched *sched, bool create,
                           bool rebuilt, const uint64_t want[SF_CATALOG_DIMENSIONS],
                           struct sf_diag *diag);

/* Swaps the state with debits for `want`. On failure the state is forgotten (adopted false). */
enum sf_err sf_quota_swap(struct sf_quota_namespace *ns, struct sf_sched *sched,
                          const uint64_t want[SF_CATALOG_DIMENSIONS], struct sf_diag *diag);

/* Shows the state as swapped last; inside a transaction. */
enum sf_err sf_quota_show(struct sf_quota_namespace *ns, struct sf_sql_conn *conn,
                          struct sf_diag *diag);

/* Percent of a budget that pressure leaves, 100 = none; forgets what is over. */
unsigned sf_quota_percent(struct sf_quota_namespace *ns, enum sf_catalog_dimension dimension,
                          int64_t now_ms);

/* Refills every budget up to now, reports that ended in between considered. */
void sf_quota_refill(struct sf_quota_namespace *ns, int64_t now_ms);

/* Takes a report in, or ends it. Refills first. */
void sf_quota_press(struct sf_quota_namespace *ns,
                    const SF_PB(ReportIngestPressureRequest) * report,
                    enum sf_catalog_dimension dimension, int64_t now_ms);

/* A rebuild's last step but one: every namespace that ever leased gets a new quota epoch. */
enum sf_err sf_catalog_quota_rebuild(struct sf_catalog *catalog, struct sf_sched *sched,
                                     struct sf_diag *diag);

/* ---- check (catalog_quota_check.c) --------------------------------------------------------- */

enum sf_quota_checked_state {
    SF_QUOTA_CHECKED_SAME,      /* the row shows the object, or there is neither */
    SF_QUOTA_CHECKED_NO_ROW,    /* the object stands alone */
    SF_QUOTA_CHECKED_NO_OBJECT, /* the row stands alone */
    SF_QUOTA_CHECKED_DIFFERS    /* the row says something else */
};

/* What a check of one namespace found. */
struct sf_quota_checked {
    enum sf_quota_checked_state state; /* before the repair */
    bool live;     /* the namespace leases: it has a row and is not tombstoned */
    bool expected; /* the object is of an owner before, or its row is about to be written */
    bool repaired; /* adopted under a higher quota epoch */
};

/* Compares a namespace's row with its object on its lane, and with `repair` mends a difference of a
 * live one. On a task of another lane, without gates; blocks. Errors as sf_quota_adopt. */
SF_MUST_USE enum sf_err sf_quota_check(struct sf_catalog *catalog, struct sf_sched *sched,
                                       uint64_t namespace_id, bool repair, struct sf_arena *arena,
                                       struct sf_diag *diag, struct sf_quota_checked *out);

/* Plane of a dimension; dimension of a name, SF_CATALOG_DIMENSIONS when unknown. */
SF_PB(ApiPlane) sf_quota_plane(enum sf_catalog_dimension dimension);
enum sf_catalog_dimension sf_quota_dimension(const char *name);

/* A counter that may be NULL. */
static inline void sf_quota_count(struct sf_metric *metric, int64_t delta)
{
    if (metric != NULL)
        sf_metric_add(metric, delta);
}

/* Budget of a class by name; an unknown one counts as the default class. */
void sf_catalog_policy_budget(const struct sf_catalog_policy *policy, const char *quota_class,
                              enum sf_catalog_dimension dimension,
                              struct sf_catalog_budget *out_budget);

/* What a fresh namespace of that name is bound to, in the arena; NULL when nothing says anything.
 */
SF_PB(InternalPolicyState) * sf_catalog_policy_bind(const struct sf_catalog *catalog,
                                                    const char *name, struct sf_arena *arena);

/* ---- requests (catalog_quota.c) ------------------------------------------------------------ */

enum sf_quota_kind { SF_QUOTA_ACQUIRE, SF_QUOTA_RETURN, SF_QUOTA_PRESSURE };

/* Queues a checked request on its namespace's lane. */
void sf_quota_start(struct sf_catalog *catalog, enum sf_quota_kind kind, uint64_t namespace_id,
                    struct sf_call *call, const ProtobufCMessage *request);

/* Job: ends leases whose time is over, prunes old ones, forgets idle namespaces. */
enum sf_err sf_catalog_quota_sweep(struct sf_catalog *catalog, struct sf_sched *sched,
                                   struct sf_diag *diag, uint64_t *out_done);

/* ---- handlers (catalog_quota_rpc.c) -------------------------------------------------------- */

void sf_catalog_quota_acquire(void *self, struct sf_call *call, const ProtobufCMessage *request);
void sf_catalog_quota_return(void *self, struct sf_call *call, const ProtobufCMessage *request);
void sf_catalog_quota_pressure(void *self, struct sf_call *call, const ProtobufCMessage *request);
void sf_catalog_quota_show(void *self, struct sf_call *call, const ProtobufCMessage *request);

#endif
