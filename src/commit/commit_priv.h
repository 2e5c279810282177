/*
 * Inside of the coordinator. Everything below a shard is touched on the shard's loop alone; what
 * other threads may read stands in `counters`. Source: protocols.md section 4.
 */
#ifndef SF_COMMIT_COMMIT_PRIV_H
#define SF_COMMIT_COMMIT_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "base/rng.h"
#include "commit/commit.h"
#include "commit/commit_barrier.h"
#include "commit/commit_marks.h"
#include "commit/commit_rules.h"
#include "publish/publisher.h"

struct sf_shard;
struct sf_lane;
struct sf_dup;
struct sf_intent;

/* ---- WAL (commit_wal.c) ---------------------------------------------------------------------- */

/* A chunk that may hold slices that are not published: what the stream's start waits for. */
struct sf_wal_mark {
    struct sf_wal_mark *next;
    uint64_t epoch;
    uint64_t seq;
    uint32_t unpublished; /* frames of slices that no committed manifest holds yet */
    bool landed;          /* nothing is added to it any more */
};

/* A frame in a chunk under way. The intent stays until its completions are in. */
struct sf_wal_frame_ref {
    struct sf_intent *intent;
    struct sf_wal_place place;
};

enum sf_wal_chunk_state { SF_WAL_OPEN, SF_WAL_CLOSED, SF_WAL_WRITING, SF_WAL_LANDED };

struct sf_wal_stream;

/* A chunk that is gathered or under way. */
struct sf_wal_out {
    struct sf_wal_out *next; /* by seq */
    struct sf_wal_stream *stream;
    enum sf_wal_chunk_state state;
    uint64_t seq;
    struct sf_buf key;
    struct sf_buf body;
    struct sf_wal_frame_ref *frames;
    size_t frame_count;
    size_t frame_cap;
    struct sf_wal_mark *mark;
    unsigned failures; /* in a row */
    struct sf_put put;
    struct sf_batch batch;
    struct sf_get get;
    struct sf_timer timer; /* back-off */
};

struct sf_wal_stream {
    struct sf_shard *shard;
    unsigned index;           /* SF_WAL_STREAMS */
    uint64_t next_seq;        /* of the next chunk */
    struct sf_wal_out *first; /* oldest that is not reported durable */
    struct sf_wal_out *last;
    unsigned inflight; /* chunks WRITING */
    struct sf_timer flush;
    struct sf_task close_task; /* closes the open chunk after this turn */
    bool close_posted;
    struct sf_wal_mark *marks_first; /* oldest first, over epochs */
    struct sf_wal_mark *marks_last;
};

void sf_wal_stream_init(struct sf_wal_stream *stream, struct sf_shard *shard, unsigned index);
/* Frees what no store call holds; call when none is under way. */
void sf_wal_stream_fini(struct sf_wal_stream *stream);
/* Stops timers; nothing is sent any more. */
void sf_wal_stream_stop(struct sf_wal_stream *stream);
/* Appends the frame of a registered intent. Never fails. */
void sf_wal_append(struct sf_wal_stream *stream, struct sf_intent *intent,
                   const Searchfabric__V1__WalFrame *frame);
/* A chunk of an older epoch that recovery read; marks are added in order. */
struct sf_wal_mark *sf_wal_mark_add(struct sf_wal_stream *stream, uint64_t epoch, uint64_t seq);
/* A frame in the marked chunk is published or void. */
void sf_wal_mark_release(struct sf_wal_stream *stream, struct sf_wal_mark *mark);
/* Where recovery has to begin: every slice below is published or void. */
void sf_wal_stream_start(struct sf_wal_stream *stream, uint64_t *out_epoch, uint64_t *out_seq);

/* ---- intents and duplicates (commit_lane.c) ----------------------------------------------------
 */

enum sf_slice_state { SF_SLICE_PENDING, SF_SLICE_DURABLE, SF_SLICE_PUBLISHED };

/* What is remembered of one slice within the duplicate window. */
struct sf_dup_slice {
    uint32_t ordinal;
    enum sf_slice_state state;
    uint32_t first_entry_index;
    uint32_t last_entry_index;
    uint64_t first_source_seq;
    uint64_t last_source_seq;
    uint64_t commit_ts;
    uint32_t row_count;
    uint8_t touched;
    uint64_t manifest_version; /* once PUBLISHED */
};

struct sf_submit;

/* The texts of a batch, which its frames and manifest entries need; one block. */
struct sf_dup_names {
    const char *stream_identity;
    const char *batch_id;
    const char *batch_fingerprint;
    const char *schema_token;
    char text[]; /* all four */
};

/* One batch of the duplicate window. */
struct sf_dup {
    struct sf_dup *next; /* by age of insertion */
    struct sf_lane *lane;
    uint8_t key[SF_SHA256_BYTES];         /* sf_commit_batch_key */
    uint8_t fingerprint[SF_SHA256_BYTES]; /* SHA-256 of batch_fingerprint */
    struct sf_dup_names *names;           /* owned; NULL once every slice is published */
    uint64_t first_admitted_ts;
    uint32_t slice_count; /* row-bearing slices of the batch */
    uint32_t known;       /* used entries of slices */
    struct sf_dup_slice *slices;
    bool running;              /* a submission of it waits in the lane or is being sequenced */
    bool listed;               /* in the lane's window; else it goes with its last waiter */
    struct sf_submit *waiters; /* submissions not answered yet */
};

/* One row-bearing slice from its timestamp to the committed manifest. */
struct sf_intent {
    struct sf_intent *next; /* lane order */
    struct sf_lane *lane;
    struct sf_dup *dup;
    uint32_t ordinal;
    bool durable;
    bool handed; /* to the publisher */
    struct sf_barrier_record barrier;
    struct sf_marks_intent marks;
    uint64_t source_partition;
    uint64_t source_epoch;
    uint64_t first_source_seq;
    uint64_t last_source_seq;
    uint32_t first_entry_index;
    uint32_t last_entry_index;
    uint32_t row_count;
    uint64_t logical_bytes;
    uint64_t wal_bytes; /* charged to the shard until it is durable */
    int64_t opened_ms;  /* monotonic */
    Searchfabric__V1__WriterMode writer_mode;
    struct sf_wal_mark *wal_marks[SF_WAL_STREAMS]; /* of the chunks that hold its frames */
};

/* Who a batch is. Texts are copied. */
struct sf_dup_identity {
    const char *stream_identity;
    const char *batch_id;
    const char *batch_fingerprint;
    const char *schema_token;
    uint64_t first_admitted_ts;
    uint32_t slice_count; /* 0: marks alone, not remembered */
};

/* ---- the duplicate window (commit_dup.c) --------------------------------------------------------
 */

struct sf_dup *sf_dup_find(struct sf_lane *lane, const char *stream_identity, const char *batch_id);
/* Gives an entry its texts back, for slices that are still to be run. */
void sf_dup_name(struct sf_dup *dup, const struct sf_dup_identity *identity);
bool sf_dup_same_batch(const struct sf_dup *dup, const char *batch_fingerprint);
/* A new entry of the lane's window; the identity is not in it yet. */
SF_NONNULL struct sf_dup *sf_dup_new(struct sf_lane *lane, const struct sf_dup_identity *identity);
void sf_dup_free(struct sf_dup *dup);
/* Takes one entry without waiters out of the window and frees it. */
void sf_dup_drop(struct sf_dup *dup);
struct sf_dup_slice *sf_dup_slice(struct sf_dup *dup, uint32_t ordinal);
SF_NONNULL struct sf_dup_slice *sf_dup_slice_add(struct sf_dup *dup, uint32_t ordinal);
void sf_dup_wait(struct sf_dup *dup, struct sf_submit *submit);
/* Answers the waiters whose gate is open. May free an entry that is not listed. */
void sf_dup_check(struct sf_dup *dup);
/* Forgets settled entries older than the window. */
void sf_dups_prune(struct sf_lane *lane);
void sf_dups_free(struct sf_lane *lane);

/* ---- submissions (commit_service.c) ------------------------------------------------------------
 */

struct sf_submit_stream;

/* One submission, from the call to its last event. */
struct sf_submit {
    struct sf_submit *next_waiting; /* of the dup, or of a lane that loads */
    struct sf_submit *next_queued;  /* of the lane */
    struct sf_task task;            /* hop to the shard's loop */
    struct sf_shard *shard;
    struct sf_submit_stream *stream; /* counted reference */
    uint64_t submission_id;
    struct sf_arena *arena; /* holds planned and cut; NULL once sequenced */
    const Searchfabric__V1__PlannedBatch *planned;
    struct sf_commit_cut cut;
    struct sf_collection_ref collection;
    Searchfabric__V1__DurabilityPolicy durability;
    Searchfabric__V1__VisibilityPolicy visibility;
    struct sf_dup *dup;
    size_t next_unit;  /* of the cut */
    uint64_t reserved; /* bytes charged to the shard at admission */
    bool started;      /* a slice got its timestamp: no longer refusable */
    bool asked_again;  /* a timestamp was fetched for it alone */
    bool duplicate;    /* joined an earlier delivery */
    bool admitted;     /* the event was sent */
};

/* Sends `refused` and frees the submission. `diag` may be NULL. */
void sf_submit_refuse(struct sf_submit *submit, Searchfabric__V1__BatchRefusal refusal,
                      const struct sf_diag *diag);
/* Sends `admitted`. */
void sf_submit_admit(struct sf_submit *submit);
/* Sends `gate_reached` and frees the submission. */
void sf_submit_reach(struct sf_submit *submit, Searchfabric__V1__BatchGate gate,
                     uint64_t manifest_version);

/* A watermark or lane query. */
struct sf_lane_query {
    struct sf_lane_query *next; /* of a lane that loads */
    struct sf_task task;
    struct sf_shard *shard;
    struct sf_call *call;
    struct sf_collection_ref collection;
    bool lane_state; /* GetLaneState, else GetCollectionWatermarks */
    uint32_t max_intents;
};
/* Answers and frees; `lane` NULL with an error. */
void sf_lane_query_answer(struct sf_lane_query *query, struct sf_lane *lane, enum sf_err err);
/* Task bodies on the shard's loop. */
void sf_shard_submit(struct sf_submit *submit);
void sf_shard_query(struct sf_lane_query *query);

/* ---- lanes (commit_lane.c) ---------------------------------------------------------------------
 */

/* A slice that recovery found standing. */
struct sf_recovered {
    struct sf_recovered *next;
    const Searchfabric__V1__WriteIntent *intent; /* in the shard's recovery_arena */
    struct sf_commit_anchor anchors[SF_MODALITY_COUNT];
    struct sf_wal_mark *wal_marks[SF_WAL_STREAMS];
};

enum sf_lane_state { SF_LANE_LOADING, SF_LANE_ACTIVE };

struct sf_lane {
    struct sf_shard *shard;
    struct sf_collection_ref collection;
    enum sf_lane_state state;
    bool broken; /* its committed lineage does not verify: refuses everything */
    struct sf_publisher *publisher;
    struct sf_marks marks;
    /* sequencing */
    struct sf_submit *queue_first;
    struct sf_submit *queue_last;
    size_t queued;
    bool held;          /* a barrier mark waits for earlier intents */
    bool pumping;       /* guards against re-entry */
    bool bound_waiting; /* in the shard's list */
    struct sf_lane *next_bound;
    struct sf_tso_request tso;
    bool tso_pending;
    int64_t tso_asked_ms;
    uint64_t tso_next; /* values in hand */
    uint32_t tso_left;
    struct sf_timer retry; /* oracle not far enough, or a started batch that met its failure */
    /* intents: all that no committed manifest holds, lane order */
    struct sf_intent *first;
    struct sf_intent *last;
    struct sf_intent *next_hand; /* oldest not handed to the publisher */
    size_t open_intents;         /* not durable */
    size_t intents;
    bool in_open_list; /* of the shard: has intents */
    struct sf_lane *open_prev;
    struct sf_lane *open_next;
    /* duplicate window */
    struct sf_map *dups; /* key -> sf_dup */
    struct sf_dup *dup_first;
    struct sf_dup *dup_last;
    /* while loading */
    struct sf_submit *load_submits;
    struct sf_submit *load_submits_last;
    size_t load_submit_count;
    struct sf_lane_query *load_queries;
    struct sf_recovered *recovered; /* commit_ts order; also keeps the lane from being given up */
    unsigned load_failures;
    int64_t load_started_ms;
    struct sf_timer load_timer; /* a lane with recovered slices is loaded again */
    /* residency */
    int64_t last_access_ms;
    int64_t last_access_unix_ms;
    struct sf_lane *lru_prev;
    struct sf_lane *lru_next;
};

/* commit_lane.c, for residency: the lane has its state now. */
void sf_lane_release_loaded(struct sf_lane *lane);
void sf_lane_init_sequencing(struct sf_lane *lane);
/* A durable slice that recovery found joins the lane's order. */
void sf_lane_add_durable(struct sf_lane *lane, struct sf_intent *intent);
/* Hands the durable front of the lane's order to the publisher. */
void sf_lane_hand_over(struct sf_lane *lane);
void sf_lane_published(struct sf_lane *lane, uint64_t version, size_t count);
/* Refuses the batches that have no timestamp yet, because `authority` does not answer. */
void sf_lane_refuse_unstarted(struct sf_lane *lane, const char *authority);
/* Refuses one batch because the lane's state cannot be had. */
void sf_lane_refuse_unreadable(struct sf_submit *submit);
/* Refuses everything that waits in the lane. */
void sf_lane_abandon(struct sf_lane *lane, Searchfabric__V1__BatchRefusal refusal);
/* The lane of `collection`, made and loading when it was not hot; NULL when the shard is full. */
struct sf_lane *sf_lane_get(struct sf_shard *shard, struct sf_collection_ref collection);
/* A lane that is not hot, with slices that recovery found (may be NULL); loading. */
SF_NONNULL struct sf_lane *sf_lane_open(struct sf_shard *shard, struct sf_collection_ref collection,
                                        struct sf_recovered *recovered);
/* Runs what can run. */
void sf_lane_pump(struct sf_lane *lane);
/* One more modality of the intent is durable in `stream`. */
void sf_lane_frame_durable(struct sf_intent *intent, unsigned stream, uint64_t epoch, uint64_t seq,
                           const struct sf_wal_place *place);
/* Gives up everything in memory: shard deposed or closing. */
void sf_lanes_abandon(struct sf_shard *shard, Searchfabric__V1__BatchRefusal refusal);
/* Stops every publisher; their store calls may still be under way. */
void sf_lanes_close(struct sf_shard *shard);
/* Frees every lane; no call of theirs is under way. */
void sf_lanes_free(struct sf_shard *shard);
/* Takes lanes out of memory that may go. */
void sf_lanes_evict(struct sf_shard *shard);

/* ---- shards (commit_leader.c) ------------------------------------------------------------------
 */

/* What may slow a shard down (note 6.2). Percent of a bound, or milliseconds. */
enum sf_pressure {
    SF_PRESSURE_TSO,             /* ms that the oracle takes */
    SF_PRESSURE_HOT_TIER,        /* hot lanes, percent of their bound */
    SF_PRESSURE_WRITER_QUEUE,    /* admitted and not durable, percent of the bound */
    SF_PRESSURE_LAG_METADATA,    /* age in ms of the oldest slice that waits for metadata */
    SF_PRESSURE_LAG_SEMANTIC,    /* for semantic */
    SF_PRESSURE_PUBLISH_BACKLOG, /* durable slices that no manifest holds */
    SF_PRESSURE_COUNT
};

/* Shared by the shards of one loop. */
struct sf_loop_ctx {
    struct sf_loop *loop;
    struct sf_tso_source *tso; /* batching front */
    struct sf_rng rng;
};

enum sf_shard_state { SF_SHARD_LEADING, SF_SHARD_DEPOSED, SF_SHARD_CLOSED };

/* What other threads may read. */
struct sf_shard_counters {
    _Atomic uint64_t epoch;
    _Atomic uint64_t lanes;
    _Atomic uint64_t queued;
    _Atomic uint64_t pending;
    _Atomic uint64_t unpublished;
    _Atomic uint64_t pending_bytes;
    _Atomic uint64_t lag_ms;
    _Atomic bool leading;
};

struct sf_shard {
    /* immutable */
    struct sf_commit *commit;
    uint32_t id;
    struct sf_loop_ctx *ctx;
    /* any thread */
    struct sf_shard_counters counters;
    /* loop; written by the open before the first task */
    enum sf_shard_state state;
    bool draining;
    uint64_t epoch;
    uint64_t bound;     /* durable issued_upper_bound_ts */
    uint64_t old_bound; /* of the leader before; Flow B waits until a TSO has passed it */
    bool flow_b_open;
    uint64_t newest_tso; /* seen from the oracle */
    struct sf_etag leader_etag;
    char leader_hint[128]; /* who deposed us */
    /* leader.json under way */
    bool leader_writing;
    bool leader_again;   /* another write is wanted after this one */
    uint64_t want_bound; /* to be made durable next */
    uint64_t sent_bound;
    struct sf_buf leader_key;
    struct sf_buf leader_body;
    struct sf_put leader_put;
    struct sf_batch leader_batch;
    struct sf_get leader_get;
    struct sf_timer leader_timer;
    unsigned leader_failures;
    struct sf_lane *bound_lanes; /* lanes that wait for the bound */
    /* writers and barrier */
    struct sf_wal_stream streams[SF_WAL_STREAMS];
    struct sf_barrier barrier;
    uint64_t dispatches;
    /* lanes */
    struct sf_map *lanes; /* sf_collection_ref bytes -> sf_lane */
    struct sf_lane *lru_first;
    struct sf_lane *lru_last;
    struct sf_lane *open_lanes;
    uint64_t pending_bytes;
    size_t duplicates; /* entries of all windows */
    size_t queued;
    size_t pending;
    size_t unpublished;
    struct sf_metric *lag_ms; /* NULL without a registry, as the next ones */
    struct sf_metric *lag_tso;
    struct sf_metric *oldest_age_ms;
    struct sf_metric *pressure[SF_PRESSURE_COUNT];
    int64_t tso_asked_ms; /* when the oldest unanswered request to the oracle was sent, 0 = none */
    int64_t tso_rtt_ms;   /* of the last answer; a failed one counts as pressure too */
    unsigned tso_open;    /* requests under way */
    struct sf_timer tick; /* lag and eviction; runs only while there is something to look at */
    size_t ops_outstanding;
    struct sf_arena *recovery_arena;     /* recovered intents, until their lanes took them */
    struct sf_recovered_lane *recovered; /* handed to the loop by the open */
    size_t recovering;                   /* lanes with recovered slices that still load */
    enum sf_err recover_err;
    /* drain and close */
    struct sf_task control_task;
    struct sf_timer control_timer;
    void (*control_done)(struct sf_shard *shard); /* what waits for the shard */
    int64_t control_deadline_ms;
};

/* Metrics; NULL members when there is no registry. */
struct sf_commit_metrics {
    struct sf_metric *pending_intents;
    struct sf_metric_family *oldest_age_ms; /* by shard */
    struct sf_metric_family *lag_ms;        /* by shard */
    struct sf_metric_family *lag_tso;       /* by shard */
    struct sf_metric_family *pressure;      /* by shard, source, modality */
    struct sf_metric *tso_batch_size;
    struct sf_metric *tso_rtt_ms;
    struct sf_metric *tso_exhausted;
    struct sf_metric *ready_depth;
    struct sf_metric *epoch_changes;
    struct sf_metric *recovery_ms;
    struct sf_metric *barrier_wait[8]; /* by touched set */
    struct sf_metric *lane_hits;
    struct sf_metric *lane_misses;
    struct sf_metric *lane_load_ms;
    struct sf_metric *refused;
    struct sf_metric *slices;
    struct sf_metric *chunks;
};

struct sf_commit {
    struct sf_commit_deps deps; /* defaults filled in */
    char *owner_id;
    struct sf_loop_ctx *loops;
    size_t loop_count;
    struct sf_shard *shards;
    struct sf_service service;
    struct sf_commit_metrics metrics;
    _Atomic bool draining;
    uint64_t recovered_slices;
    uint64_t recovered_chunks;
    int64_t recovery_ms;
    /* open, drain and close wait here */
    _Atomic uint32_t control_left;
    _Atomic uint32_t control_failed;
    struct sf_waiter *control_waiter;
};

/* What leader.json says. */
struct sf_leader_facts {
    uint64_t epoch;
    uint64_t bound;        /* issued_upper_bound_ts */
    uint64_t sealed_below; /* epoch */
    uint64_t start_epoch[SF_WAL_STREAMS];
    uint64_t start_seq[SF_WAL_STREAMS];
};

/* Appends leader.json with these facts and a fresh attempt. */
void sf_leader_encode(struct sf_shard *shard, const struct sf_leader_facts *facts,
                      struct sf_buf *out);
/* Fills a leader.json from the shard's state with the given bound and appends its bytes. */
void sf_shard_leader_encode(struct sf_shard *shard, uint64_t bound, struct sf_buf *out);
/* Makes `bound` durable soon (0 = only the stream starts); lanes in bound_lanes run after. */
void sf_shard_want_bound(struct sf_shard *shard, uint64_t bound);
/* A newer owner was met: stops everything of the shard. */
void sf_shard_depose(struct sf_shard *shard, const char *why);
/* Binds the shard's own timers; before anything runs. */
void sf_shard_timers_init(struct sf_shard *shard);
/* Publishes the counters. */
void sf_shard_count(struct sf_shard *shard);
/* Starts the tick when there is something to look at. */
void sf_shard_tick_start(struct sf_shard *shard);
/* Looks whether a drain or close can go on. */
void sf_shard_control_check(struct sf_shard *shard);
/* One back-off delay for the n-th failure in a row. */
int64_t sf_shard_backoff_ms(struct sf_shard *shard, unsigned failures);
/* True when nothing admitted is unfinished. */
bool sf_shard_idle(const struct sf_shard *shard);

/* commit_recover.c: blocking, before any task of a shard runs. Claims every shard, seals the
 * streams of older epochs, reads what stands below the seals; each shard then has its epoch,
 * bounds, marks and, per collection, the standing slices in `out_recovered[shard]` (lists by lane,
 * see there). */
struct sf_recovered_lane {
    struct sf_recovered_lane *next;
    struct sf_collection_ref collection;
    struct sf_recovered *first; /* commit_ts order */
    struct sf_recovered *last;
};
SF_MUST_USE enum sf_err sf_commit_recover(struct sf_commit *commit, struct sf_sched *sched,
                                          struct sf_diag *diag,
                                          struct sf_recovered_lane **out_recovered);
/* Blocks for `ms` of the loops' time. */
void sf_commit_sleep(struct sf_commit *commit, struct sf_sched *sched, int64_t ms);

/* commit_service.c */
void sf_commit_service_init(struct sf_commit *commit);

/* commit_metrics.c */
void sf_commit_metrics_init(struct sf_commit_metrics *metrics, struct sf_metrics *registry);
void sf_commit_metrics_shard(const struct sf_commit_metrics *metrics, struct sf_shard *shard);
static inline void sf_commit_metric_add(struct sf_metric *metric, int64_t delta)
{
    if (metric != NULL)
        sf_metric_add(metric, delta);
}
static inline void sf_commit_metric_set(struct sf_metric *metric, int64_t value)
{
    if (metric != NULL)
        sf_metric_set(metric, value);
}
static inline void sf_commit_metric_ms(struct sf_metric *metric, double value)
{
    if (metric != NULL)
        sf_metric_observe_ms(metric, value);
}

#endif
