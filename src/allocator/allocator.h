/*
 * IdAllocatorService: the authority for document identity on create/insert routes (allocator note;
 * protocols.md section 3). One collection is one lane, owned by one of the given loops; a lane
 * commits the plans of all requests that wait in one group: the state object by compare-and-swap,
 * then one create-only replay-success object a request, which is what every repeat is answered
 * from. Any number of processes may serve the same store: conditional writes keep them apart, a
 * deposed one closes the lane.
 */
#ifndef SF_ALLOCATOR_ALLOCATOR_H
#define SF_ALLOCATOR_ALLOCATOR_H

#include "base/ids.h"
#include "base/metrics.h"
#include "base/token.h"
#include "object/durable.h"
#include "object/store.h"
#include "rpc/channel.h"
#include "sql/sql.h"

#define SF_ALLOCATOR_SERVICE_NAME    "searchfabric.v1.IdAllocatorService"
#define SF_ALLOCATOR_OPERATIONS_NAME "searchfabric.v1.AllocatorOperationsService"
#define SF_ALLOCATOR_METHOD          "/" SF_ALLOCATOR_SERVICE_NAME "/AllocateIds"

struct sf_allocator;

/* Static grants: may `identity` allocate ids in `collection`? Asked before the replay lookup and
 * before the catalog, so that a caller without access learns nothing (decisions 3, A-33). Any
 * thread, must not block. */
struct sf_allocator_grants {
    bool (*allows)(void *self, const struct sf_identity *identity,
                   struct sf_collection_ref collection);
    void *self; /* passed to `allows` */
};

/* Bounds of one allocator; 0 takes the default of base/limits.h. */
struct sf_allocator_limits {
    size_t max_lanes_per_loop;   /* collections in memory of one loop; idle ones make room */
    size_t max_ops_per_lane;     /* requests that one collection may hold; more: SF_RATE_LIMITED */
    size_t max_ops_per_loop;     /* requests that one loop may hold; more: SF_RATE_LIMITED */
    size_t cache_bytes_per_loop; /* remembered answers of one loop; the oldest make room */
    int64_t catalog_timeout_ms;  /* one admission read */
};

/* What is written beside the authoritative objects; nothing by default, and nothing that answers
 * depends on it (allocator note 6.4, 7.1, 8). Needs deps.sched. */
struct sf_allocator_artifacts {
    bool failure_audit;                        /* one object for each refused request */
    bool recovery_segments;                    /* lists of the applies of this process */
    const struct sf_sql_options *export_where; /* database of the operational export, migrations
                                                  and readers aside; NULL = none */
};

/* When a collection's owner reserves ranges of ids, so that issue-only requests need no state write
 * of their own. 0 takes the default of base/limits.h. Source: allocator note 13.2. */
struct sf_alloc_lease_policy {
    bool on;             /* false: every request writes the state */
    uint32_t hot_per_s;  /* issue-only requests a second from which on a collection leases */
    uint32_t min_ids;    /* smallest range */
    uint32_t max_ids;    /* largest range; >= min_ids */
    uint32_t quiet_ms;   /* no lease within this time after an explicit id */
    uint32_t confirm_ms; /* a range whose owner was not proved for so long is not used before it is
                            proved again; not on an exclusive store */
};

/* What the allocator is made of; everything outlives it. */
struct sf_allocator_deps {
    struct sf_store *store;         /* durable truth */
    struct sf_loop *const *loops;   /* lanes are spread over these by hash; array is copied */
    size_t loop_count;              /* >= 1 */
    struct sf_clock *clock;         /* wall clock for *_unix_ms, monotonic for latencies */
    struct sf_clock *applied_clock; /* wall clock of applies and so of receipts, whose age ingest
                                       measures in timestamps (sf_oracle_clock); NULL = clock */
    struct sf_channel *catalog;     /* CatalogControlPrivateService.GetCollectionAdmissionState */
    struct sf_keyring *keyring;     /* signs receipts */
    struct sf_attempts *attempts;   /* attempt ids; its `process` is this owner's id */
    uint64_t random_seed;           /* jitter of retries */
    struct sf_metrics *metrics;     /* required metrics are registered here; not NULL */
    const struct sf_allocator_grants *grants; /* NULL = every authenticated identity may */
    struct sf_allocator_limits limits;        /* bounds */
    struct sf_alloc_lease_policy leases;      /* range leases */
    struct sf_sched *sched; /* workers of artifacts and retention; NULL = neither is there */
    struct sf_allocator_artifacts artifacts; /* what to write beside the truth */
    int64_t replay_retention_ms;             /* how long a result answers repeats; 0 = 30 days */
    bool run_retention;                      /* remove what is older, in the background */
};

/* Makes an allocator; nothing is read or written before the first request. Any thread. */
struct sf_allocator *sf_allocator_new(const struct sf_allocator_deps *deps);

/* The RPC service; valid as long as the allocator. Handlers may be called from any thread. */
const struct sf_service *sf_allocator_service(struct sf_allocator *allocator);

/* The operator's service, likewise: retention by hand. */
const struct sf_service *sf_allocator_operations(struct sf_allocator *allocator);

typedef void (*sf_allocator_drained_fn)(void *user);

/* Refuses new requests (SF_BACKEND_UNAVAILABLE, retryable) and calls `done` once, when every
 * accepted one is answered: always later, on one of the loops. Called once, from any thread. */
void sf_allocator_drain(struct sf_allocator *allocator, sf_allocator_drained_fn done, void *user);

/* Frees. No handler may be running. Allowed after the drain, or when neither the loops nor the
 * store nor the catalog channel will call back any more (a simulated crash: open calls are then
 * dropped unanswered). NULL is fine. */
void sf_allocator_destroy(struct sf_allocator *allocator);

/* ---- for the operator (sfctl alloc restore-mark, verify) ---- */

/* Marks the store as restored from a backup at `now_unix_ms`: every allocator state written before
 * is closed (SF_BACKEND_UNAVAILABLE) until it is verified. What an earlier mark closed stays
 * closed, also when the clock went back. Texts are UTF-8. Waits. Errors: SF_ERR_UNAVAILABLE,
 * SF_ERR_AMBIGUOUS (run it again). Source: protocols.md section 3, Restore. */
SF_MUST_USE enum sf_err
sf_allocator_restore_mark_wait(struct sf_store *store, struct sf_sched *sched,
                               struct sf_attempts *attempts, int64_t now_unix_ms,
                               const char *operator_name, const char *reason);

/* What a verification found and did. */
struct sf_allocator_verification {
    bool state_found;         /* the collection has a state object */
    char next_before[24];     /* next_doc_id as found, "0" without an object */
    char next_after[24];      /* the same once reconciled; never lower */
    uint64_t replay_objects;  /* results of this collection */
    uint64_t pending_applies; /* unfinished ones that were finished (or would be) */
};

/* Reconciles the state of a collection with its replay-success objects: unfinished applies are
 * finished, next_doc_id is raised above every realized id, the epoch is raised so that no earlier
 * owner goes on, and the state counts as newer than the restore mark. Reads every replay object of
 * the store. `dry_run` changes nothing. Waits. Errors in `diag`: SF_ERR_PRECONDITION (somebody
 * writes it: stop that first), SF_ERR_UNAVAILABLE, SF_ERR_AMBIGUOUS (run it again), SF_INTERNAL (an
 * object does not verify). */
SF_MUST_USE enum sf_err sf_allocator_verify_wait(struct sf_store *store, struct sf_sched *sched,
                                                 struct sf_attempts *attempts, int64_t now_unix_ms,
                                                 struct sf_collection_ref collection, bool dry_run,
                                                 struct sf_diag *diag,
                                                 struct sf_allocator_verification *out_report);

/* ---- for the operator (sfctl alloc rebuild) ---- */

/* What is rebuilt, and from what. */
struct sf_allocator_rebuild_options {
    struct sf_store *store;        /* nobody else writes allocator objects in it */
    struct sf_sched *sched;        /* as in sf_waiter_init */
    struct sf_attempts *attempts;  /* of the tool */
    int64_t now_unix_ms;           /* of the rebuilt state */
    struct sf_collection_ref only; /* one collection; zero = all of which anything is found */
    bool use_segments;             /* recovery segments tell of ids too: they only raise */
    const char *floor;             /* decimal bound of the operator's: at least this; NULL = none */
    bool dry_run;                  /* change nothing */
};

/* What became of one collection. */
struct sf_allocator_rebuilt {
    struct sf_collection_ref collection; /* which */
    bool state_found;                    /* it has a state object */
    bool state_whole;                    /* which verifies */
    bool rebuilt;                        /* the state was written (or would be) */
    char next_before[24];                /* next_doc_id of a whole state, else "" */
    char next_after[24];                 /* what covers everything found */
    uint64_t replay_objects;             /* results of this collection */
};
typedef void (*sf_allocator_rebuilt_fn)(void *user, const struct sf_allocator_rebuilt *rebuilt);

/* Makes state objects that are lost or do not verify anew: next_doc_id above every realized id that
 * is found, version and epoch above every one found. A whole state that covers its results is left
 * alone, one that lies below them is raised; with a floor it is written in any case, and counts as
 * newer than a restore mark. Reads every replay object of the store. `told` is
 * called for each collection, in order of ids. Waits. Errors in `diag`: SF_INVALID_ARGUMENT (the
 * floor), SF_INTERNAL (results do not verify and no floor is given: nothing is changed),
 * SF_ERR_PRECONDITION (somebody writes), SF_ERR_UNAVAILABLE, SF_ERR_AMBIGUOUS (run it again).
 * Source: A-22. */
SF_MUST_USE enum sf_err
sf_allocator_rebuild_wait(const struct sf_allocator_rebuild_options *options, struct sf_diag *diag,
                          sf_allocator_rebuilt_fn told, void *user);

/* Counters over all loops; a snapshot, exact when nothing runs. */
struct sf_allocator_stats {
    uint64_t lanes;             /* collections in memory */
    uint64_t lanes_closed;      /* of these, lost to a newer owner */
    uint64_t lanes_evicted;     /* dropped from memory, ever */
    uint64_t ops;               /* requests not answered yet */
    uint64_t cache_bytes;       /* remembered answers */
    uint64_t groups;            /* state writes that stood */
    uint64_t allocations;       /* fresh successes */
    uint64_t ids_issued;        /* ids of `issue` items in fresh successes */
    uint64_t ids_burned;        /* ids that a standing state write passed and no success holds: lost
                                   races, doubtful puts, dropped leases (gaps skipped by explicit ids
                                   not counted) */
    uint64_t rolled_forward;    /* pending applies finished at a load */
    uint64_t state_conflicts;   /* lost swaps of a state object */
    uint64_t leases_granted;    /* ranges reserved */
    uint64_t lease_local;       /* fresh successes out of a range, without a state write */
    uint64_t artifacts_dropped; /* entries of artifacts that found their queue full */
};

/* Any thread. */
void sf_allocator_stats(struct sf_allocator *allocator, struct sf_allocator_stats *out_stats);

#endif
