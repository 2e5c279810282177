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
    struct sf_wal_mark *next; /* newer chunk of the stream */
    uint64_t epoch;           /* of the chunk */
    uint64_t seq;             /* of the chunk */
    uint32_t unpublished;     /* frames of slices that no committed manifest holds yet */
    bool landed;              /* nothing is added to it any more */
};

/* A frame in a chunk under way. The intent stays until its completions are in. */
struct sf_wal_frame_ref {
    struct sf_intent *intent;  /* whose frame */
    struct sf_wal_place place; /* where in the chunk */
};

enum sf_wal_chunk_state { SF_WAL_OPEN, SF_WAL_CLOSED, SF_WAL_WRITING, SF_WAL_LANDED };

struct sf_wal_stream;

/* A chunk that is gathered or under way. */
struct sf_wal_out {
    struct sf_wal_out *next;         /* by seq */
    struct sf_wal_stream *stream;    /* whose chunk */
    enum sf_wal_chunk_state state;   /* open until it is full or due */
    uint64_t seq;                    /* of the chunk */
    struct sf_buf key;               /* object key */
    struct sf_buf body;              /* frames so far; the object once closed */
    struct sf_wal_frame_ref *frames; /* owned; what the chunk holds */
    size_t frame_count;              /* used entries */
    size_t frame_cap;                /* entries there is room for */
    struct sf_wal_mark *mark;        /* holds the stream's start back */
    unsigned failures;               /* in a row */
    struct sf_put put;               /* of the object */
    struct sf_batch batch;           /* that put alone */
    struct sf_get get;               /* looks what stands after a lost put */
    struct sf_timer timer;           /* back-off */
};

struct sf_wal_stream {
    struct sf_shard *shard;          /* whose */
    unsigned index;                  /* SF_WAL_STREAMS */
    uint64_t next_seq;               /* of the next chunk */
    struct sf_wal_out *first;        /* oldest that is not reported durable */
    struct sf_wal_out *last;         /* newest */
    unsigned inflight;               /* chunks WRITING */
    struct sf_timer flush;           /* closes the open chunk when it is due */
    struct sf_task close_task;       /* closes the open chunk after this turn */
    bool close_posted;               /* close_task is on its way */
    struct sf_wal_mark *marks_first; /* oldest first, over epochs */
    struct sf_wal_mark *marks_last;  /* newest */
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
    uint32_t ordinal;           /* in the batch */
    enum sf_slice_state state;  /* how far it is */
    uint32_t first_entry_index; /* entries of the batch */
    uint32_t last_entry_index;  /* inclusive */
    uint64_t first_source_seq;  /* of its rows */
    uint64_t last_source_seq;   /* inclusive */
    uint64_t commit_ts;         /* TSO of the slice */
    uint32_t row_count;         /* rows */
    uint8_t touched;            /* modality bits */
    uint64_t manifest_version;  /* once PUBLISHED */
};

struct sf_submit;

/* The texts of a batch, which its frames and manifest entries need; one block. */
struct sf_dup_names {
    const char *stream_identity;   /* in text */
    const char *batch_id;          /* in text */
    const char *batch_fingerprint; /* in text */
    const char *schema_token;      /* in text */
    char text[];                   /* all four */
};

/* One batch of the duplicate window. */
struct sf_dup {
    struct sf_dup *next;                  /* by age of insertion */
    struct sf_lane *lane;                 /* whose window */
    uint8_t key[SF_SHA256_BYTES];         /* sf_commit_batch_key */
    uint8_t fingerprint[SF_SHA256_BYTES]; /* SHA-256 of batch_fingerprint */
    struct sf_dup_names *names;           /* owned; NULL once every slice is published */
    uint64_t first_admitted_ts;           /* TSO of the first delivery */
    uint32_t slice_count;                 /* row-bearing slices of the batch */
    uint32_t known;                       /* used entries of slices */
    struct sf_dup_slice *slices;          /* owned; in order of arrival */
    bool running;              /* a submission of it waits in the lane or is being sequenced */
    bool listed;               /* in the lane's window; else it goes with its last waiter */
    struct sf_submit *waiters; /* submissions not answered yet */
};

/* One row-bearing slice from its timestamp to the committed manifest. */
struct sf_intent {
    struct sf_intent *next;                        /* lane order */
    struct sf_lane *lane;                          /* whose */
    struct sf_dup *dup;                            /* batch that it is a slice of */
    uint32_t ordinal;                              /* in the batch */
    bool durable;                                  /* in every touched modality */
    bool handed;                                   /* to the publisher */
    struct sf_barrier_record barrier;              /* what the barrier knows of it */
    struct sf_marks_intent marks;                  /* what the watermarks know of it */
    uint64_t source_partition;                     /* of its rows */
    uint64_t source_epoch;                         /* of its rows */
    uint64_t first_source_seq;                     /* of its rows */
    uint64_t last_source_seq;                      /* inclusive */
    uint32_t first_entry_index;                    /* entries of the batch */
    uint32_t last_entry_index;                     /* inclusive */
    uint32_t row_count;                            /* rows */
    uint64_t logical_bytes;                        /* of its rows */
    uint64_t wal_bytes;                            /* charged to the shard until it is durable */
    int64_t opened_ms;                             /* monotonic */
    Searchfabric__V1__WriterMode writer_mode;      /* as planned */
    struct sf_wal_mark *wal_marks[SF_WAL_STREAMS]; /* of the chunks that hold its frames */
};

/* Who a batch is. Texts are copied. */
struct sf_dup_identity {
    const char *stream_identity;   /* of the source stream */
    const char *batch_id;          /* in the stream */
    const char *batch_fingerprint; /* of the payload */
    const char *schema_token;      /* generation it was planned under */
    uint64_t first_admitted_ts;    /* TSO of the first delivery */
    uint32_t slice_count;          /* 0: marks alone, not remembered */
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
    struct sf_submit *next_waiting;                /* of the dup, or of a lane that loads */
    struct sf_submit *next_queued;                 /* of the lane */
    struct sf_task task;                           /* hop to the shard's loop */
    struct sf_shard *shard;                        /* whose */
    struct sf_submit_stream *stream;               /* counted reference */
    uint64_t submission_id;                        /* of its stream */
    struct sf_arena *arena;                        /* holds planned and cut; NULL once sequenced */
    const Searchfabric__V1__PlannedBatch *planned; /* in the arena */
    struct sf_commit_cut cut;                      /* its slices and marks */
    struct sf_collection_ref collection;           /* whose lane */
    Searchfabric__V1__DurabilityPolicy durability; /* gate that the answer waits for */
    Searchfabric__V1__VisibilityPolicy visibility; /* gate that the answer waits for */
    struct sf_dup *dup;                            /* entry it runs or waits for */
    size_t next_unit;                              /* of the cut */
    uint64_t reserved;                             /* bytes charged to the shard at admission */
    bool started;     /* a slice got its timestamp: no longer refusable */
    bool asked_again; /* a timestamp was fetched for it alone */
    bool duplicate;   /* joined an earlier delivery */
    bool admitted;    /* the event was sent */
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
    struct sf_lane_query *next;          /* of a lane that loads */
    struct sf_task task;                 /* hop to the shard's loop */
    struct sf_shard *shard;              /* whose */
    struct sf_call *call;                /* to be answered */
    struct sf_collection_ref collection; /* asked about */
    bool lane_state;                     /* GetLaneState, else GetCollectionWatermarks */
    uint32_t max_intents;                /* listed at most */
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
    struct sf_recovered *next;                          /* in commit_ts order */
    const Searchfabric__V1__WriteIntent *intent;        /* in the shard's recovery_arena */
    struct sf_commit_anchor anchors[SF_MODALITY_COUNT]; /* where its frames lie, by modality */
    struct sf_wal_mark *wal_marks[SF_WAL_STREAMS];      /* of the chunks that hold its frames */
};

enum sf_lane_state { SF_LANE_LOADING, SF_LANE_ACTIVE };

struct sf_lane {
    struct sf_shard *shard;              /* whose */
    struct sf_collection_ref collection; /* which */
    enum sf_lane_state state;            /* loading or active */
    bool broken;                    /* its committed lineage does not verify: refuses everything */
    struct sf_publisher *publisher; /* of the collection; owned */
    struct sf_marks marks;          /* watermarks */
    /* sequencing */
    struct sf_submit *queue_first; /* admitted, without a timestamp */
    struct sf_submit *queue_last;  /* newest */
    size_t queued;                 /* in the queue */
    bool held;                     /* a barrier mark waits for earlier intents */
    bool pumping;                  /* guards against re-entry */
    bool bound_waiting;            /* in the shard's list */
    struct sf_lane *next_bound;    /* in that list */
    struct sf_tso_request tso;     /* request to the oracle */
    bool tso_pending;              /* it is under way */
    int64_t tso_asked_ms;          /* when it was sent, monotonic */
    uint64_t tso_next;             /* values in hand */
    uint32_t tso_left;             /* how many */
    struct sf_timer retry; /* oracle not far enough, or a started batch that met its failure */
    /* intents: all that no committed manifest holds, lane order */
    struct sf_intent *first;     /* oldest */
    struct sf_intent *last;      /* newest */
    struct sf_intent *next_hand; /* oldest not handed to the publisher */
    size_t open_intents;         /* not durable */
    size_t intents;              /* all of them */
    bool in_open_list;           /* of the shard: has intents */
    struct sf_lane *open_prev;   /* in that list */
    struct sf_lane *open_next;   /* in that list */
    /* duplicate window */
    struct sf_map *dups;      /* key -> sf_dup */
    struct sf_dup *dup_first; /* oldest */
    struct sf_dup *dup_last;  /* newest */
    /* while loading */
    struct sf_submit *load_submits;      /* wait for the load, in order */
    struct sf_submit *load_submits_last; /* newest */
    size_t load_submit_count;            /* how many */
    struct sf_lane_query *load_queries;  /* wait for the load */
    struct sf_recovered *recovered; /* commit_ts order; also keeps the lane from being given up */
    unsigned load_failures;         /* in a row */
    int64_t load_started_ms;        /* monotonic */
    struct sf_timer load_timer;     /* a lane with recovered slices is loaded again */
    /* residency */
    int64_t last_access_ms;      /* monotonic */
    int64_t last_access_unix_ms; /* the same on the wall clock */
    struct sf_lane *lru_prev;    /* used longer ago */
    struct sf_lane *lru_next;    /* used later */
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
    struct sf_loop *loop;      /* which */
    struct sf_tso_source *tso; /* batching front */
    struct sf_rng rng;         /* jitter */
};

enum sf_shard_state { SF_SHARD_LEADING, SF_SHARD_DEPOSED, SF_SHARD_CLOSED };

/* What other threads may read. */
struct sf_shard_counters {
    _Atomic uint64_t epoch;         /* of its leader */
    _Atomic uint64_t lanes;         /* hot ones */
    _Atomic uint64_t queued;        /* submissions without a timestamp */
    _Atomic uint64_t pending;       /* intents that are not durable */
    _Atomic uint64_t unpublished;   /* intents that no committed manifest holds */
    _Atomic uint64_t pending_bytes; /* admitted and not durable */
    _Atomic uint64_t lag_ms;        /* greatest of safe_ts */
    _Atomic bool leading;           /* its state is LEADING */
};

struct sf_shard {
    /* immutable */
    struct sf_commit *commit; /* whose */
    uint32_t id;              /* index */
    struct sf_loop_ctx *ctx;  /* what it shares with its loop's other shards */
    /* any thread */
    struct sf_shard_counters counters;
    /* loop; written by the open before the first task */
    enum sf_shard_state state;
    bool draining;              /* lets nothing new in */
    uint64_t epoch;             /* of this leader */
    uint64_t bound;             /* durable issued_upper_bound_ts */
    uint64_t old_bound;         /* of the leader before; Flow B waits until a TSO has passed it */
    bool flow_b_open;           /* timestamps may be given out */
    uint64_t newest_tso;        /* seen from the oracle */
    struct sf_etag leader_etag; /* of leader.json as it stands */
    char leader_hint[128];      /* who deposed us */
    /* leader.json under way */
    bool leader_writing;          /* a write is under way */
    bool leader_again;            /* another write is wanted after this one */
    uint64_t want_bound;          /* to be made durable next */
    uint64_t sent_bound;          /* in the write under way */
    struct sf_buf leader_key;     /* of leader.json */
    struct sf_buf leader_body;    /* bytes of the write */
    struct sf_put leader_put;     /* the write */
    struct sf_batch leader_batch; /* that put alone */
    struct sf_get leader_get;     /* looks what stands after a lost put */
    struct sf_timer leader_timer; /* back-off */
    unsigned leader_failures;     /* in a row */
    struct sf_lane *bound_lanes;  /* lanes that wait for the bound */
    /* writers and barrier */
    struct sf_wal_stream streams[SF_WAL_STREAMS]; /* one writer a stream */
    struct sf_barrier barrier;                    /* of all its lanes */
    uint64_t dispatches;                          /* intents registered so far */
    /* lanes */
    struct sf_map *lanes;                          /* sf_collection_ref bytes -> sf_lane */
    struct sf_lane *lru_first;                     /* used longest ago */
    struct sf_lane *lru_last;                      /* used last */
    struct sf_lane *open_lanes;                    /* lanes with intents */
    uint64_t pending_bytes;                        /* admitted and not durable */
    size_t duplicates;                             /* entries of all windows */
    size_t queued;                                 /* as its counter */
    size_t pending;                                /* as its counter */
    size_t unpublished;                            /* as its counter */
    struct sf_metric *lag_ms;                      /* NULL without a registry, as the next ones */
    struct sf_metric *lag_tso;                     /* safe_ts lag in timestamp units */
    struct sf_metric *oldest_age_ms;               /* of an unpublished intent */
    struct sf_metric *pressure[SF_PRESSURE_COUNT]; /* by source */
    int64_t tso_asked_ms; /* when the oldest unanswered request to the oracle was sent, 0 = none */
    int64_t tso_rtt_ms;   /* of the last answer; a failed one counts as pressure too */
    unsigned tso_open;    /* requests under way */
    struct sf_timer tick; /* lag and eviction; runs only while there is something to look at */
    size_t ops_outstanding;              /* store calls under way */
    struct sf_arena *recovery_arena;     /* recovered intents, until their lanes took them */
    struct sf_recovered_lane *recovered; /* handed to the loop by the open */
    size_t recovering;                   /* lanes with recovered slices that still load */
    enum sf_err recover_err;             /* why it did not come up */
    /* drain and close */
    struct sf_task control_task;                  /* hop of a drain or close */
    struct sf_timer control_timer;                /* its deadline */
    void (*control_done)(struct sf_shard *shard); /* what waits for the shard */
    int64_t control_deadline_ms;                  /* monotonic */
};

/* Metrics; NULL members when there is no registry. */
struct sf_commit_metrics {
    struct sf_metric *pending_intents;      /* gauge */
    struct sf_metric_family *oldest_age_ms; /* by shard */
    struct sf_metric_family *lag_ms;        /* by shard */
    struct sf_metric_family *lag_tso;       /* by shard */
    struct sf_metric_family *pressure;      /* by shard, source, modality */
    struct sf_metric *tso_batch_size;       /* gauge */
    struct sf_metric *tso_rtt_ms;           /* histogram */
    struct sf_metric *tso_exhausted;        /* counter */
    struct sf_metric *ready_depth;          /* gauge: durable, in no manifest */
    struct sf_metric *epoch_changes;        /* counter */
    struct sf_metric *recovery_ms;          /* histogram */
    struct sf_metric *barrier_wait[8];      /* by touched set */
    struct sf_metric *lane_hits;            /* counter */
    struct sf_metric *lane_misses;          /* counter */
    struct sf_metric *lane_load_ms;         /* histogram */
    struct sf_metric *refused;              /* counter */
    struct sf_metric *slices;               /* counter */
    struct sf_metric *chunks;               /* counter */
};

struct sf_commit {
    struct sf_commit_deps deps;       /* defaults filled in */
    char *owner_id;                   /* owned copy */
    struct sf_loop_ctx *loops;        /* owned; by loop */
    size_t loop_count;                /* of them */
    struct sf_shard *shards;          /* owned; deps.shard_count of them */
    struct sf_service service;        /* what it serves */
    struct sf_commit_metrics metrics; /* of all shards */
    _Atomic bool draining;            /* lets nothing new in */
    uint64_t recovered_slices;        /* by the open */
    uint64_t recovered_chunks;        /* read by the open */
    int64_t recovery_ms;              /* that the open took */
    /* open, drain and close wait here */
    _Atomic uint32_t control_left;    /* shards that are not done */
    _Atomic uint32_t control_failed;  /* of them, those that failed */
    struct sf_waiter *control_waiter; /* opened by the last shard */
};

/* What leader.json says. */
struct sf_leader_facts {
    uint64_t epoch;                       /* of the leader */
    uint64_t bound;                       /* issued_upper_bound_ts */
    uint64_t sealed_below;                /* epoch */
    uint64_t start_epoch[SF_WAL_STREAMS]; /* where recovery begins, by stream */
    uint64_t start_seq[SF_WAL_STREAMS];   /* in that epoch */
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
    struct sf_recovered_lane *next;      /* of the shard */
    struct sf_collection_ref collection; /* whose slices */
    struct sf_recovered *first;          /* commit_ts order */
    struct sf_recovered *last;           /* newest */
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
