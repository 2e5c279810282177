/*
 * The allocator's parts, shared by the files of this folder.
 *
 *   allocator_service.c  RPC in and out, drain, statistics, metrics and log
 *   allocator_rules.c    pure decisions (allocator_rules.h)
 *   allocator_state.c    memory: shards, lanes, requests that join, remembered answers
 *   allocator_apply.c    a group's way: resolve, admit, plan, write
 *   allocator_settle.c   one request's own replay-success object
 *   allocator_items.c    items of a replay record, one by one or as runs; the packed answer
 *   allocator_store.c    durable objects: build, encode, decode, compare
 *   allocator_recover.c  load of a lane: read, ownership, roll-forward
 *   allocator_lease.c    ranges reserved ahead of use
 *   lease_rules.c        pure decisions about them (lease_rules.h)
 *   allocator_rebuild.c  a lost state made anew, for the operator
 *   allocator_verify.c   reconciliation after a restore, for the operator
 *   allocator_artifacts.c  what is noted for the artifacts below, none of which anything reads
 *   allocator_feed.c     their bounded queues
 *   allocator_audit.c    failure-audit objects
 *   allocator_segments.c recovery segments
 *   allocator_export.c   operational export in SQL
 *   allocator_debug.c    requests item by item, at the debug level
 *   allocator_retention.c  removal of what is past the window
 *   allocator_removals.c deletes kept apart across processes
 *   allocator_operate.c  the operator's service
 *   allocator_explain.c  what is known of one collection's ids
 *
 * One shard a loop; everything in a shard is touched on its loop only, but where marked otherwise.
 */
#ifndef SF_ALLOCATOR_ALLOCATOR_PRIV_H
#define SF_ALLOCATOR_ALLOCATOR_PRIV_H

#include <stdatomic.h>

#include "allocator/allocator.h"
#include "allocator/allocator_items.h"
#include "allocator/allocator_rules.h"
#include "allocator/lease_rules.h"
#include "base/map.h"
#include "base/rng.h"

struct sf_alloc_export;
struct sf_alloc_feed;
struct sf_alloc_lane;
struct sf_alloc_loaded;
struct sf_alloc_retention;
struct sf_alloc_segments;
struct sf_alloc_shard;

/* Where a request stands. */
enum sf_alloc_op_phase {
    SF_OP_QUEUED,     /* waits for its lane's next group */
    SF_OP_JOINED,     /* waits for another request with the same key */
    SF_OP_UNRESOLVED, /* in the group, not looked up (again) yet */
    SF_OP_READING,    /* its replay-success object is being read */
    SF_OP_FRESH,      /* has no result yet: its plan may run */
    SF_OP_PLANNED,    /* ran; covered by the group's state write */
    SF_OP_REFUSED,    /* refused; told when a write before it stands, or after a second look-up */
    SF_OP_SETTLING    /* covered by a standing state write; its own object is being written */
};

/* How an answer came about: the label of the replay metric and log. */
enum sf_alloc_class {
    SF_CLASS_NONE, /* refused before or without a look-up */
    SF_CLASS_ORIGINAL,
    SF_CLASS_REPLAY,
    SF_CLASS_CONFLICT
};

/* One request, in its call's arena: gone with the answer. */
struct sf_alloc_op {
    /* immutable once posted */
    struct sf_alloc_shard *shard;          /* whose loop runs it */
    struct sf_call *call;                  /* to be answered */
    struct sf_alloc_request request;       /* as parsed */
    char key[SF_SHA256_HEX_BYTES];         /* transport_lookup_key */
    char fingerprint[SF_SHA256_HEX_BYTES]; /* payload_fingerprint */
    int64_t started_ns;                    /* monotonic */
    struct sf_task task;                   /* brings it to its loop */

    /* loop */
    struct sf_alloc_op *prev;      /* list of all requests of the shard */
    struct sf_alloc_op *next;      /* of that list */
    struct sf_alloc_op *link;      /* queue of the lane, or list of those that joined */
    struct sf_alloc_op *followers; /* requests with the same key that wait for this one */
    struct sf_alloc_lane *lane;    /* of its collection */
    enum sf_alloc_op_phase phase;  /* where it is */
    size_t index;                  /* place in the group's array while a member */
    bool late;                     /* joined after the leader's admission facts were asked for */
    bool ccs_read;                 /* admission facts were asked for on its behalf */
    bool unlooked;                 /* its own put is to be the look-up of its key */
    unsigned tries;                /* of the present durable step */
    uint64_t gap;                  /* ids that its explicit items skip */

    /* the replay-success object */
    struct sf_buf object_key; /* its key */
    struct sf_get get;        /* look-up of it */
    sf_replay_record *record; /* in the call's arena; what `body` holds */
    struct sf_buf body;       /* encoded record */
    struct sf_put put;        /* when it is sent on its own */
    struct sf_batch batch;    /* that put alone */
    struct sf_timer timer;    /* pause before the next try */
};

/* A replay record in the state object whose replay object is not known to stand. */
struct sf_alloc_pending {
    char key[SF_SHA256_HEX_BYTES]; /* transport_lookup_key */
    struct sf_buf record;          /* packed sf_replay_record without header */
};

/* Ids between `next` and the watermark: durably reserved, to be handed out by this owner without
 * further state writes. The range always ends at the watermark. */
struct sf_alloc_lease {
    bool live;                 /* recorded in the state object, and this owner's */
    struct sf_watermark start; /* lowest id that it could hand out when it was recorded */
    struct sf_watermark next;  /* next id to hand out; known in memory only */
    struct sf_watermark split; /* where the range that was reserved last begins */
    uint64_t epoch;            /* lease_epoch: version of the state write that reserved last */
};

/* The state object as read or written last. */
struct sf_alloc_state {
    bool exists;                 /* the object is there, with `etag` */
    struct sf_etag etag;         /* of the object */
    struct sf_watermark mark;    /* next_doc_id */
    uint64_t epoch;              /* allocation_epoch */
    uint64_t version;            /* allocator_state_version */
    int64_t updated_at_unix_ms;  /* of the last write */
    struct sf_alloc_lease lease; /* reserved range */
};

enum sf_alloc_lane_state {
    SF_LANE_COLD,  /* no state in hand */
    SF_LANE_READY, /* state in hand; what it lists as pending stood at the load */
    SF_LANE_CLOSED /* a newer owner was met: this process serves it no more */
};

/* One pending apply that is being finished. */
struct sf_alloc_roll {
    char key[SF_SHA256_HEX_BYTES]; /* transport_lookup_key */
    struct sf_buf object_key;      /* of the replay object */
    struct sf_buf body;            /* encoded record */
};

/* What a lane has under way; one group at a time. Kept until the lane is idle. */
struct sf_alloc_group {
    struct sf_alloc_lane *lane; /* whose */
    struct sf_alloc_op **ops;   /* members that are not answered or settling; owned array */
    size_t count;               /* members */
    size_t cap;                 /* entries there is room for */
    size_t reads;          /* replay lookups that are still out, plus one while they are sent */
    bool admission_asked;  /* the facts were asked for */
    bool admitted;         /* the facts were read after every member came in, and admit */
    bool loaded;           /* the state was read since every member came in */
    bool local;            /* runs within the lease: no state write */
    bool parked;           /* waits for the reservation under way */
    unsigned tries;        /* loads and writes of this group that did not go through */
    struct sf_timer timer; /* pause before the next try */
    void (*resume)(struct sf_alloc_lane *lane); /* what the pause ends with */

    /* admission read */
    Searchfabric__V1__CollectionRef ccs_ref;                          /* of the request */
    Searchfabric__V1__GetCollectionAdmissionStateRequest ccs_request; /* to the catalog */
    int64_t ccs_started_ns;                                           /* monotonic */

    /* load */
    struct sf_get get;      /* the state object */
    struct sf_get mark_get; /* the restore mark */
    unsigned loads;         /* of the two, still out */

    /* write */
    struct sf_batch batch;             /* the state write with its replay objects, or a roll */
    struct sf_put *puts;               /* owned array */
    size_t put_cap;                    /* entries there is room for */
    struct sf_buf body;                /* encoded state object */
    char attempt[SF_ATTEMPT_ID_BYTES]; /* of the write under way or in doubt; "" = none */
    struct sf_alloc_state after;       /* what stands when the write does */
    int64_t applied_at_unix_ms;        /* apply time of the members' records and receipts */
    uint64_t grant_ids;                /* ids that the write reserves for later; 0 = none */
    uint64_t tail_ids;                 /* reserved ids that the write passes unused */
    int64_t sent_ms;                   /* when the write or load was sent, on the loop's clock */
    bool adopt;                        /* the load met the write in doubt: it stands */
    struct sf_alloc_roll *rolls;       /* owned array, while pending applies are finished */
    size_t roll_count;                 /* of them */
};

/* Why ids are gone without a document to show for it. */
enum sf_burn_reason {
    SF_BURN_EXPLICIT_GAP, /* skipped by an explicit id */
    SF_BURN_LOST_RACE,    /* another result stands under the request's key */
    SF_BURN_NOT_DURABLE,  /* the result could not be written in time */
    SF_BURN_LEASE_TAIL,   /* reserved and dropped unused */
    SF_BURN_REASON_COUNT
};

/* What a lane that leases has beside its group; made with its first lease. */
struct sf_alloc_reserve {
    struct sf_alloc_lane *lane;        /* whose */
    bool busy;                         /* the write that reserves the next range is under way */
    bool doubt;                        /* its outcome is unknown until the state is read */
    struct sf_batch batch;             /* that write */
    struct sf_put put;                 /* of batch */
    struct sf_buf body;                /* encoded state object */
    char attempt[SF_ATTEMPT_ID_BYTES]; /* of the write under way or in doubt */
    struct sf_alloc_state after;       /* what stands when it does */
    int64_t sent_ms;                   /* when it was sent, on the loop's clock */
    int64_t retry_ms;                  /* not again before, on the loop's clock */
    unsigned tries;                    /* failures in a row */
    struct sf_alloc_state kept;        /* as it was in hand when the state was forgotten; counts
                                          while kept.lease.live */
};

/* One collection. */
struct sf_alloc_lane {
    struct sf_alloc_shard *shard;        /* whose */
    struct sf_collection_ref collection; /* which */
    struct sf_buf state_key;             /* of the state object */
    enum sf_alloc_lane_state state;      /* what is in hand */
    bool busy;                           /* a group is under way */
    bool pump_posted;                    /* `pump` is on its way */
    struct sf_task pump;                 /* starts the next group */
    struct sf_alloc_lane *idle_prev;     /* list of idle lanes, oldest first */
    struct sf_alloc_lane *idle_next;     /* of that list */
    bool idle;                           /* it is in the list */

    struct sf_alloc_op *queue_head;  /* requests for the next group */
    struct sf_alloc_op **queue_tail; /* where the next one is linked */
    size_t ops;                      /* requests of this lane, those that joined included */

    bool owned;               /* this process wrote the state and no newer owner was met */
    uint64_t epoch;           /* of the ownership, while owned */
    uint64_t seen_version;    /* highest allocator_state_version seen, in state or results */
    bool space_warned;        /* few ids are left, and that was logged */
    bool foreign_lease;       /* the state read records a lease of another owner */
    int64_t confirmed_ms;     /* when the ownership was proved last, on the loop's clock */
    struct sf_lease_use use;  /* how much it is used */
    int64_t explicit_unix_ms; /* when an explicit id was admitted last; 0 = never */
    struct sf_alloc_reserve *reserve;      /* owned; NULL until it leases */
    uint64_t burned[SF_BURN_REASON_COUNT]; /* ids gone without a document while in memory */
    struct sf_alloc_state in_hand;         /* the state, unless COLD */
    struct sf_alloc_pending *pending;      /* owned array */
    size_t pending_count;                  /* of them */
    size_t pending_cap;                    /* entries there is room for */

    struct sf_buf unknown; /* packed: members of the state object that this build does not know */

    bool facts_known;             /* `facts` may be confirmed by a conditional read */
    struct sf_alloc_facts facts;  /* admission, as read last */
    struct sf_alloc_group *group; /* owned; NULL while idle */
};

/* A remembered answer. */
struct sf_alloc_answer {
    struct sf_alloc_answer *next;          /* the next younger one */
    char key[SF_SHA256_HEX_BYTES];         /* transport_lookup_key */
    char fingerprint[SF_SHA256_HEX_BYTES]; /* payload_fingerprint */
    int64_t applied_at_unix_ms;            /* of the apply: an old answer is forgotten */
    size_t len;                            /* bytes of `packed` */
    uint8_t packed[];                      /* AllocateIdsSuccessResponse */
};

#define SF_ALLOC_KINDS 16 /* client kinds with metric series kept at hand */

/* Metric series, made on first use; pointers are kept by the shard that uses them. */
struct sf_alloc_series {
    struct sf_metric *ok[SF_ALLOC_KINDS][SF_PLAN_SHAPE_COUNT]; /* requests answered */
    struct sf_metric *replay_ok[SF_ALLOC_KINDS]
                               [SF_PLAN_SHAPE_COUNT]; /* requests answered by an earlier result */
    struct sf_metric *latency[SF_ALLOC_KINDS][SF_PLAN_SHAPE_COUNT]; /* from request to answer */
    struct sf_metric *items[SF_ALLOC_KINDS][2];                     /* issue, explicit_doc_id */
    struct sf_metric *burned[SF_ALLOC_KINDS][SF_BURN_REASON_COUNT]; /* ids without a document */
};

/* A list of lanes, oldest first. */
struct sf_alloc_idle {
    struct sf_alloc_lane *head; /* oldest */
    struct sf_alloc_lane *tail; /* newest */
};

/* What one loop owns. */
struct sf_alloc_shard {
    struct sf_allocator *allocator;       /* whose */
    struct sf_loop *loop;                 /* where it runs */
    struct sf_map *lanes;                 /* (namespace_id, collection_id) -> lane */
    struct sf_alloc_idle idle[2];         /* lanes with nothing to do: open ones, closed ones */
    struct sf_alloc_op *ops;              /* all requests */
    size_t op_count;                      /* of them */
    struct sf_map *inflight;              /* transport_lookup_key -> leading op */
    struct sf_map *answers;               /* transport_lookup_key -> answer */
    struct sf_alloc_answer *answer_head;  /* oldest */
    struct sf_alloc_answer *answer_tail;  /* youngest */
    size_t answer_bytes;                  /* of all answers */
    struct sf_rng rng;                    /* jitter */
    struct sf_alloc_series series;        /* metrics */
    int64_t log_second;                   /* second of the log budget */
    unsigned log_used;                    /* records written in it */
    uint64_t log_suppressed;              /* records left out since the last one written */
    struct sf_task drain_task;            /* visits the shard at the end of a drain */
    struct sf_alloc_counters {            /* read by other threads */
        _Atomic uint64_t lanes;           /* in memory */
        _Atomic uint64_t lanes_closed;    /* of them, served no more */
        _Atomic uint64_t lanes_evicted;   /* so far */
        _Atomic uint64_t ops;             /* requests without an answer */
        _Atomic uint64_t cache_bytes;     /* of remembered answers */
        _Atomic uint64_t groups;          /* written */
        _Atomic uint64_t allocations;     /* results made */
        _Atomic uint64_t ids_issued;      /* in them */
        _Atomic uint64_t ids_burned;      /* without a document */
        _Atomic uint64_t rolled_forward;  /* pending applies finished */
        _Atomic uint64_t state_conflicts; /* lost swaps of a state */
        _Atomic uint64_t leases_granted;  /* ranges reserved */
        _Atomic uint64_t lease_local;     /* results made within a range */
    } counters;
};

struct sf_allocator {
    /* immutable */
    struct sf_allocator_deps deps;        /* limits resolved */
    struct sf_service operations;         /* what an operator asks */
    struct sf_service service;            /* what it serves */
    struct sf_alloc_shard *shards;        /* owned; one a loop */
    size_t shard_count;                   /* of them */
    struct sf_alloc_feed *audit;          /* owned; NULL = off */
    struct sf_alloc_feed *applied;        /* owned; into recovery segments; NULL = off */
    struct sf_alloc_retention *retention; /* owned; NULL without deps.sched */
    struct sf_alloc_feed *exported;       /* owned; into the operational export; NULL = off */
    struct sf_alloc_export *export;       /* owned; NULL = off */
    struct sf_alloc_segments *segments;   /* owned; NULL = off */
    struct sf_alloc_families {
        struct sf_metric_family *requests;       /* by client kind, result, plan shape */
        struct sf_metric_family *latency;        /* by client kind, plan shape */
        struct sf_metric_family *items;          /* by client kind, item kind */
        struct sf_metric_family *replay;         /* by classification */
        struct sf_metric_family *burned;         /* by client kind, reason */
        struct sf_metric_family *ccs_latency;    /* without labels */
        struct sf_metric_family *conflict_retry; /* without labels */
        struct sf_metric_family *artifacts;      /* by artifact, result */
        struct sf_metric_family *range_lease;    /* by result */
        struct sf_metric *replay_original;       /* series of replay */
        struct sf_metric *replay_same;           /* series of replay */
        struct sf_metric *replay_conflict;       /* series of replay */
        struct sf_metric *ccs;                   /* series of ccs_latency */
        struct sf_metric *conflicts;             /* series of conflict_retry */
        struct sf_metric *lease_granted;         /* series of range_lease */
        struct sf_metric *lease_failed;          /* series of range_lease */
        struct sf_metric *lease_discarded;       /* series of range_lease */
    } metrics;

    /* atomic */
    _Atomic uint64_t open; /* accepted requests without an answer, plus one while draining starts */
    atomic_bool draining;  /* lets nothing new in */
    atomic_bool drained;   /* the walk over the shards began */

    /* written before `draining` */
    sf_allocator_drained_fn drained_fn; /* told once, at the end */
    void *drained_user;                 /* passed to it */
};

/* ---- allocator_service.c ---- */

/* The shard that owns a collection. */
struct sf_alloc_shard *sf_alloc_shard_of(struct sf_allocator *allocator,
                                         struct sf_collection_ref collection);

/* Answers `op` alone (not its followers) with packed bytes, or with the call's diag when
 * `packed` is NULL; counts, logs, and frees it. */
void sf_alloc_op_answer(struct sf_alloc_op *op, const struct sf_view *packed,
                        enum sf_alloc_class cls);

/* Counts ids of a lane that are burned, `kind` being who caused it. On its loop. */
void sf_alloc_count_burned(struct sf_alloc_lane *lane, Searchfabric__V1__ClientKind kind,
                           enum sf_burn_reason reason, uint64_t ids);

/* "explicit_gap" and so on. */
const char *sf_burn_reason_text(enum sf_burn_reason reason);

/* One request less is open; may end the drain. */
void sf_alloc_closed_one(struct sf_allocator *allocator);

/* ---- allocator_debug.c ---- */

/* Tells the items of a request that is about to be answered, at the debug level only. */
void sf_alloc_debug_items(const struct sf_alloc_op *op, const struct sf_view *packed,
                          const char *result);

/* ---- allocator_operate.c ---- */

/* ExplainAllocator; a method of the operator's service. */
void sf_alloc_explain(void *self, struct sf_call *call, const ProtobufCMessage *message);

/* Fills allocator->operations. */
void sf_alloc_operate_init(struct sf_allocator *allocator);

/* ---- allocator_state.c ---- */

/* The lane of a collection if it is in memory, else NULL. */
struct sf_alloc_lane *sf_alloc_lane_find(struct sf_alloc_shard *shard,
                                         struct sf_collection_ref collection);

/* On its loop for the first time: finds the lane, joins, or queues. */
void sf_alloc_op_arrive(struct sf_task *task);

/* Ends `op` and those that joined it: each gets the bytes that stand under the key if its
 * fingerprint is theirs, else SF_IDEMPOTENCY_CONFLICT. `fresh`: op's own work made the answer. */
void sf_alloc_op_stand(struct sf_alloc_op *op, const char *fingerprint, struct sf_view packed,
                       bool fresh);

/* Ends `op` with the error in its call's diag; those that joined share it, or run on their own. */
void sf_alloc_op_refuse(struct sf_alloc_op *op);

/* The same with SF_BACKEND_UNAVAILABLE. */
void sf_alloc_op_unavailable(struct sf_alloc_op *op, bool outcome_unknown, const char *why);

/* Remembers and finds answers. */
void sf_alloc_answer_put(struct sf_alloc_shard *shard, const sf_replay_record *record,
                         struct sf_view packed);
const struct sf_alloc_answer *sf_alloc_answer_get(struct sf_alloc_shard *shard, const char *key);

struct sf_alloc_pending *sf_alloc_pending_find(struct sf_alloc_lane *lane, const char *key);
void sf_alloc_pending_add(struct sf_alloc_lane *lane, const sf_replay_record *record);
void sf_alloc_pending_del(struct sf_alloc_lane *lane, const char *key);

/* Drops the state in hand and what is pending in it. A live lease is kept aside: the next load
 * takes it up again if the state is still the one that was in hand. */
void sf_alloc_lane_forget(struct sf_alloc_lane *lane);

/* Marks the lane idle when nothing needs it. */
void sf_alloc_lane_idle_check(struct sf_alloc_lane *lane);

/* Ends ownership for good: a newer owner was met. */
void sf_alloc_lane_close(struct sf_alloc_lane *lane, uint64_t newer_epoch);

/* After a group: takes the next one, or marks the lane idle. */
void sf_alloc_lane_rest(struct sf_alloc_lane *lane);

/* Frees everything of a shard. */
void sf_alloc_shard_init(struct sf_alloc_shard *shard, struct sf_allocator *allocator,
                         size_t index);
void sf_alloc_shard_fini(struct sf_alloc_shard *shard);

/* ---- allocator_apply.c ---- */

/* Takes a group from the lane's queue and runs it. */
void sf_alloc_group_start(struct sf_alloc_lane *lane);

/* Looks every unresolved member up; then goes on with what is fresh. */
void sf_alloc_group_resolve(struct sf_alloc_lane *lane);

/* The state in hand is good: runs the plans and writes. */
void sf_alloc_group_plan(struct sf_alloc_lane *lane);

/* What the state is after the next write of this owner, as far as any write changes it. */
void sf_alloc_state_follow(struct sf_alloc_lane *lane, struct sf_alloc_state *out_after);

/* A put of the state object `body` under the condition of the state in hand. */
void sf_alloc_state_put_fill(struct sf_alloc_lane *lane, const struct sf_buf *body,
                             struct sf_put *out_put);

/* Says once that a collection runs out of ids. */
void sf_alloc_space_check(struct sf_alloc_lane *lane);

/* The group's own write, in doubt, was found standing. */
void sf_alloc_group_adopt(struct sf_alloc_lane *lane, const struct sf_etag *etag);

/* Ends all members with SF_BACKEND_UNAVAILABLE and the group with them. */
void sf_alloc_group_fail(struct sf_alloc_lane *lane, bool outcome_unknown, const char *why);

/* Ends all members with a copy of `diag` and the group with them. */
void sf_alloc_group_refuse(struct sf_alloc_lane *lane, const struct sf_diag *diag);

/* Calls `resume` after a jittered pause, or fails the group when its tries are used up. */
void sf_alloc_group_again(struct sf_alloc_lane *lane, void (*resume)(struct sf_alloc_lane *lane),
                          bool outcome_unknown, const char *why);

/* Frees what the finishing of pending applies holds. */
void sf_alloc_roll_free(struct sf_alloc_group *group);

/* Drops a member without answering it (it is settling or answered). */
void sf_alloc_group_remove(struct sf_alloc_lane *lane, size_t index);

/* ---- allocator_settle.c ---- */

/* Pause before try `tries` (1, 2, ...): exponential, with full jitter over its upper half. */
int64_t sf_alloc_pause_ms(struct sf_alloc_shard *shard, unsigned tries);

/* True when the plan holds an explicit item: then a lost record would meet its own burn. */
bool sf_alloc_op_has_explicit(const struct sf_alloc_op *op);

/* Encodes op's record once; the bytes and their attempt id stay for every repeat. */
void sf_alloc_op_encode(struct sf_alloc_op *op);

/* A put that creates op's object and nothing else. */
void sf_alloc_op_put_fill(struct sf_alloc_op *op, struct sf_put *put);

/* What became of the put of op's object, in the group's batch or on its own. */
void sf_alloc_settle_result(struct sf_alloc_op *op, enum sf_err err);

/* Sends the put of op's object on its own. */
void sf_alloc_settle_send(struct sf_alloc_op *op);

/* The key is pending in the state in hand: finishes that apply first, then op is answered from it.
 */
void sf_alloc_settle_pending(struct sf_alloc_op *op, const struct sf_alloc_pending *pending);

/* op, out of its group, is refused with the error in its call's diag unless its object stands by
 * now: then that is the answer. */
void sf_alloc_settle_refusal(struct sf_alloc_op *op);

/* `record` stands under op's key: answers, remembers, and no longer carries it on. `fresh`: it is
 * the result of op's own apply. */
void sf_alloc_op_settled(struct sf_alloc_op *op, const sf_replay_record *record, bool fresh);

/* ---- allocator_recover.c ---- */

/* Reads the lane's state, decides ownership, rolls pending applies forward, then goes on with
 * sf_alloc_group_resolve (or _adopt). */
void sf_alloc_lane_load(struct sf_alloc_lane *lane);

/* Finishes what is pending of the state in hand, then goes on with sf_alloc_group_resolve. */
void sf_alloc_lane_roll(struct sf_alloc_lane *lane);

/* ---- allocator_lease.c ---- */

/* True when op's own create-only put may be its look-up: one put instead of a read and a put. */
bool sf_alloc_lease_skips_lookup(const struct sf_alloc_lane *lane, const struct sf_alloc_op *op);

/* True when the whole group fits into the live lease. */
bool sf_alloc_lease_covers(const struct sf_alloc_lane *lane);

/* True when the lease must not be used before the state is read again: the ownership was not proved
 * for long, or a result of a later state was met. */
bool sf_alloc_lease_stale(const struct sf_alloc_lane *lane);

/* The group's state write may reserve a range behind its own ids: extends group.after. */
void sf_alloc_lease_grant(struct sf_alloc_lane *lane);

/* The group's state write stands: counts what it granted and what it dropped. `was_owned`: before
 * the write. */
void sf_alloc_lease_stands(struct sf_alloc_lane *lane, bool was_owned);

/* The group's state write did not stand. */
void sf_alloc_lease_failed(struct sf_alloc_lane *lane);

/* Reserves the next range when the live one is half used and the lane is hot. */
void sf_alloc_lease_look_ahead(struct sf_alloc_lane *lane);

/* The state was read, what is in hand is `loaded`: takes the kept lease up again or drops it. */
void sf_alloc_lease_loaded(struct sf_alloc_lane *lane, const struct sf_alloc_loaded *loaded);

/* Drops what is left of a lease, live or kept: burned. */
void sf_alloc_lease_drop(struct sf_alloc_lane *lane);

/* Drops the leases of all lanes: the end of a drain. */
void sf_alloc_lease_drop_all(struct sf_alloc_shard *shard);

/* ---- allocator_store.c ---- */

/* Builds the replay record of a planned op in its call's arena; NULL when that is full. */
sf_replay_record *sf_alloc_record_build(struct sf_alloc_op *op, const struct sf_alloc_state *after);

/* allocator_state_version of the write that covers the record's ids: its own, or its lease's. */
uint64_t sf_alloc_record_version(const sf_replay_record *record);

/* Encodes a record as a replay-success object under attempt id `attempt`. */
void sf_alloc_record_encode(const sf_replay_record *record, const char *attempt,
                            struct sf_buf *out_body);

/* True when a record can be answered from. */
bool sf_alloc_record_whole(const sf_replay_record *record);

/* The same, and it stands under its own key. */
bool sf_alloc_record_is_at(const sf_replay_record *record, struct sf_view object_key);

/* Decodes a replay-success object and checks that it is the one of `key`. */
SF_MUST_USE enum sf_err sf_alloc_record_decode(struct sf_view body, const char *key,
                                               struct sf_arena *arena, struct sf_diag *diag,
                                               sf_replay_record **out_record);

/* Encodes the state object `after` of the lane with attempt id `attempt`: what is pending, then the
 * records of `fresh`. */
void sf_alloc_state_encode(struct sf_alloc_lane *lane, const struct sf_alloc_state *after,
                           const char *attempt, sf_replay_record *const *fresh, size_t fresh_count,
                           struct sf_buf *out_body);

/* A state object as read. */
struct sf_alloc_loaded {
    struct sf_alloc_state state;      /* etag and exists are the caller's */
    const char *attempt_id;           /* in the arena */
    const char *owner_id;             /* in the arena */
    bool lease_recorded;              /* a lease stands in it: start and epoch in state.lease */
    sf_replay_record *const *pending; /* in the arena */
    size_t pending_count;
};
/* Decodes the state object of a collection: SF_INTERNAL unless all of it verifies and it is the
 * collection's own. The object lives in the arena. */
SF_MUST_USE enum sf_err sf_alloc_state_open(struct sf_view body,
                                            struct sf_collection_ref collection,
                                            struct sf_arena *arena, struct sf_diag *diag,
                                            Searchfabric__V1__AllocatorStateObject **out_object,
                                            struct sf_alloc_loaded *out_loaded);

/* The same of the object that stands in the store, waiting; SF_ERR_NOT_FOUND, SF_ERR_UNAVAILABLE.
 * out_etag is set also when it does not verify. */
SF_MUST_USE enum sf_err
sf_alloc_state_read_wait(struct sf_store *store, struct sf_sched *sched,
                         struct sf_collection_ref collection, struct sf_arena *arena,
                         struct sf_diag *diag, Searchfabric__V1__AllocatorStateObject **out_object,
                         struct sf_watermark *out_mark, struct sf_etag *out_etag);

/* sf_alloc_state_open for a lane; also takes over what this build does not know (lane->unknown). */
SF_MUST_USE enum sf_err sf_alloc_state_decode(struct sf_view body, struct sf_alloc_lane *lane,
                                              struct sf_arena *arena, struct sf_diag *diag,
                                              struct sf_alloc_loaded *out_loaded);

/* Decodes the restore mark. SF_INTERNAL when it does not verify. */
SF_MUST_USE enum sf_err sf_alloc_mark_decode(struct sf_view body, struct sf_arena *arena,
                                             struct sf_diag *diag,
                                             int64_t *out_restored_at_unix_ms);

/* Gets entries of one page, at least one, in byte order; they are valid during the call. */
typedef enum sf_err (*sf_alloc_page_fn)(void *user, const struct sf_list_entry *entries,
                                        size_t count);

/* Lists all keys below `prefix`, page by page, waiting. Ends with the first error of a list
 * (SF_ERR_UNAVAILABLE) or of `take`. */
SF_MUST_USE enum sf_err sf_alloc_each_page_wait(struct sf_store *store, struct sf_sched *sched,
                                                const char *prefix, sf_alloc_page_fn take,
                                                void *user);

#define SF_ALLOC_RESTORE_MARK_KEY "control/alloc-restore-mark.json"

/* Memory that one decoded object may take. */
#define SF_ALLOC_DECODE_BYTES ((size_t)4 * SF_LIMIT_OBJECT_BYTES)

#endif
