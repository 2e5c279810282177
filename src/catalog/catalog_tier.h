/*
 * Lifecycle windows: rows derived from the admitted policy and the committed manifest, claims of
 * due tier moves, retired objects that may go (note 5.9; OP-47). Queries never ask for any of it.
 */
#ifndef SF_CATALOG_TIER_H
#define SF_CATALOG_TIER_H

#include "catalog/catalog_projector.h"

#define SF_CATALOG_CLAIMS_DEFAULT   100u
#define SF_CATALOG_CLAIMS_MAX       1000u     /* of one request */
#define SF_CATALOG_CLAIM_MS_DEFAULT 600000u   /* a worker that says nothing loses it */
#define SF_CATALOG_CLAIM_MS_MAX     86400000u /* a day */
#define SF_CATALOG_RECLAIM_GRACE_MS 3600000u  /* readers may pin an older manifest that long */
#define SF_CATALOG_RECLAIM_READS    64        /* manifests that one request looks at */

/* Job: rows of changed collections; what time alone changes (deadlines, claims that ran out). */
enum sf_err sf_catalog_run_windows(struct sf_catalog *catalog, struct sf_sched *sched,
                                   struct sf_diag *diag, uint64_t *out_done);

/* Malformed input. SF_BAD_REQUEST. */
enum sf_err sf_catalog_claim_check(const SF_PB(ClaimLifecycleTransitionsRequest) * request,
                                   struct sf_diag *diag);
enum sf_err sf_catalog_claim_failed_check(const SF_PB(ReportLifecycleTransitionFailedRequest) *
                                              request,
                                          struct sf_diag *diag);
enum sf_err sf_catalog_reclaim_request_check(const SF_PB(ListReclaimableWindowsRequest) * request,
                                             struct sf_diag *diag);

/* On a lane; SF_OK when the call was answered. */
enum sf_err sf_catalog_claim_run(struct sf_catalog *catalog, struct sf_call *call,
                                 const ProtobufCMessage *request);
enum sf_err sf_catalog_claim_failed_run(struct sf_catalog *catalog, struct sf_call *call,
                                        const ProtobufCMessage *request);
enum sf_err sf_catalog_reclaim_run(struct sf_catalog *catalog, struct sf_call *call,
                                   const ProtobufCMessage *request);
enum sf_err sf_catalog_windows_show_run(struct sf_catalog *catalog, struct sf_call *call,
                                        const ProtobufCMessage *request);

/* Shared by catalog_tier.c and catalog_tier_work.c ----------------------------------- */

enum sf_catalog_window_state {
    SF_CATALOG_WINDOW_LIVE,
    SF_CATALOG_WINDOW_TRANSITIONING,
    SF_CATALOG_WINDOW_RECLAIMABLE
};

/* One row. */
struct sf_catalog_window {
    uint64_t namespace_id;              /* whose */
    uint64_t collection_id;             /* whose */
    int64_t start_ms;                   /* first instant, unix */
    int64_t end_ms;                     /* exclusive, unix */
    SF_PB(DataTier) tier;               /* where it lies */
    uint64_t published_version;         /* manifest that says so */
    bool has_transition;                /* it moves by time */
    int64_t transition_at_ms;           /* when next, unix */
    bool has_deadline;                  /* it is kept for a time */
    int64_t deadline_ms;                /* until then, unix */
    enum sf_catalog_window_state state; /* column window_state */
};

#define SF_CATALOG_WINDOW_COLUMNS                                                                  \
    "namespace_id, collection_id, window_start_ms, window_end_ms, effective_tier, "                \
    "published_manifest_version, next_transition_at_unix_ms, retention_deadline_unix_ms, "         \
    "window_state"

/* The present row of a query over SF_CATALOG_WINDOW_COLUMNS. */
struct sf_catalog_window sf_catalog_window_of_row(struct sf_sql_stmt *stmt);

/* Sets the state of one row. */
enum sf_err sf_catalog_window_set(struct sf_sql_conn *conn, const struct sf_catalog_window *window,
                                  enum sf_catalog_window_state state, struct sf_diag *diag);

/* The admitted policy of a collection, dropped or not: of its active generation, NULL = none. */
enum sf_err sf_catalog_window_policy(struct sf_sql_conn *conn, uint64_t namespace_id,
                                     uint64_t collection_id, struct sf_arena *arena,
                                     struct sf_diag *diag,
                                     const SF_PB(LifecyclePolicy) * *out_policy);

/* Something became due earlier than was known: the next cycle looks. */
void sf_catalog_windows_look(struct sf_catalog *catalog);

#endif
