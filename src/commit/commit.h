/*
 * Commit coordinator: the one place where a row gets its place in the order of its collection.
 *
 * A collection is a lane, a lane belongs to a shard, a shard to one loop of the process that leads
 * it. Opening claims every shard (leader.json by compare-and-swap), seals the streams of all older
 * epochs, reads their tails and hands what stands to the publisher; only then is anything admitted.
 * Served here: Flow B. Flow A (rows with the source's own commit_ts, progress marks) is answered
 * SF_UNIMPLEMENTED. Source: commit-coordinator note, protocols.md section 4.
 */
#ifndef SF_COMMIT_COMMIT_H
#define SF_COMMIT_COMMIT_H

#include "base/diag.h"
#include "base/ids.h"
#include "base/metrics.h"
#include "object/durable.h"
#include "rpc/call.h"
#include "tso/tso.h"

struct sf_commit;
struct sf_head_notices;

/* Everything from outside. Zero in a number means its default. */
struct sf_commit_deps {
    struct sf_store *store;       /* borrowed; outlives the close */
    struct sf_loop *const *loops; /* shard n lives on loops[n % loop_count]; array is copied */
    size_t loop_count;            /* >= 1 */
    struct sf_clock *clock;       /* ages, back-off */
    struct sf_tso_source *tso;    /* borrowed; each loop gets a batching front of its own */
    struct sf_attempts *attempts; /* borrowed, shared by the process */
    struct sf_metrics *metrics;   /* borrowed; NULL = none */
    struct sf_head_notices *head_notices; /* told of committed heads; borrowed; NULL = none */
    const char *owner_id;                 /* who leads, for leader.json and hints; copied */
    uint64_t random_seed;                 /* jitter of retries only */
    uint32_t shard_count;                 /* fixed at the store's creation; default 16 */
    uint32_t bound_window_ms;     /* issued_upper_bound_ts past the newest TSO; default 500 */
    uint32_t wal_flush_ms;        /* a chunk is closed this long after its first frame; default 2;
                                        on a store held alone sooner, when none is under way */
    uint32_t wal_chunk_bytes;     /* or at this size; default 4 MiB */
    uint32_t wal_inflight_chunks; /* puts of one stream under way; default 8 */
    uint32_t duplicate_window_ms; /* how long a redelivery is recognized; default 15 min */
    uint32_t lane_queue_batches;  /* batches that may wait in one lane; default 4096 */
    uint32_t stream_inflight;     /* unanswered submissions of one call; default 1024 */
    uint64_t shard_pending_bytes; /* admitted and not yet durable, per shard; default 64 MiB */
    uint32_t shard_lanes;         /* hot lanes of one shard; default 65536 */
    uint32_t shard_duplicates;    /* batches remembered by one shard; default 2 million */
    uint32_t lane_idle_ms;        /* a lane idle that long may leave memory; default 60 s */
    uint32_t manifest_base_interval; /* a base every so many manifests; default 32 */
    uint32_t manifest_list_entries;  /* slices of one overflow object; default 1024 */
};

/* Claims, seals and recovers every shard, then serves. Blocks: a worker task of `sched`, or a plain
 * thread with `sched` NULL; never a loop of `deps` (they must be running). Errors:
 * SF_ERR_UNAVAILABLE (the store did not answer), SF_ERR_CORRUPT (an object does not verify; its key
 * is in `diag`). On error nothing stays open. A shard that another owner claimed meanwhile is left
 * to it and answers NOT_LEADER (stats: shards_leading). */
SF_MUST_USE enum sf_err sf_commit_open(const struct sf_commit_deps *deps, struct sf_sched *sched,
                                       struct sf_diag *diag, struct sf_commit **out_commit);

/* CommitCoordinatorService: SubmitPlannedBatch, GetCollectionWatermarks, GetLaneState. Valid until
 * the close. Each submission is answered by `admitted` and one `gate_reached` for the gate of its
 * policy, or by `refused`. */
const struct sf_service *sf_commit_service(struct sf_commit *commit);

/* Stops admission (SF_BACKEND_UNAVAILABLE), waits at most `limit_ms` until what is admitted is
 * published, and moves the WAL starts forward so that the next start has nothing to read. Blocks as
 * the open. SF_ERR_UNAVAILABLE: the limit passed first; nothing is lost, recovery finishes it. */
SF_MUST_USE enum sf_err sf_commit_drain(struct sf_commit *commit, struct sf_sched *sched,
                                        int64_t limit_ms);

/* Stops at once, as a crash would for everything durable; open submissions are answered
 * SF_BACKEND_UNAVAILABLE. Waits for store and TSO callbacks under way, so the loops must still run.
 * Blocks as the open. The calls of the service have ended before. NULL is fine. */
void sf_commit_close(struct sf_commit *commit, struct sf_sched *sched);

/* A look at the whole coordinator; each shard answers for itself, so the sums are not of one
 * instant. */
struct sf_commit_stats {
    uint32_t shards;           /* all */
    uint32_t shards_leading;   /* not deposed */
    uint64_t max_epoch;        /* highest coordinator_epoch held */
    uint64_t lanes;            /* hot lanes */
    uint64_t queued_batches;   /* accepted, not yet sequenced */
    uint64_t pending_intents;  /* registered, not yet durable */
    uint64_t unpublished;      /* durable, not yet in a committed manifest */
    uint64_t pending_bytes;    /* admitted and not yet durable */
    uint64_t lag_ms;           /* greatest safe_ts lag of any lane */
    uint64_t recovered_slices; /* found standing by the open and not yet published then */
    uint64_t recovered_chunks; /* WAL chunks that the open read */
    int64_t recovery_ms;       /* how long the open took */
};

/* Any thread. */
void sf_commit_stats_get(struct sf_commit *commit, struct sf_commit_stats *out_stats);

/* The shard of a collection: a pure function of both ids (C-22). */
uint32_t sf_commit_shard_of(struct sf_collection_ref collection, uint32_t shard_count);

#endif
