/*
 * The visibility barrier of one shard: one record per row-bearing intent, completed modality by
 * modality. Pure; the record is embedded in the intent, so a registered intent has the room for its
 * completions by itself. Source: note 5.4, 7.4; protocols.md section 4, Barrier.
 *
 *   REGISTERED --first completion--> PARTIAL --last completion--> DURABLE
 *        \______________________one touched modality_______________^
 */
#ifndef SF_COMMIT_COMMIT_BARRIER_H
#define SF_COMMIT_COMMIT_BARRIER_H

#include "base/hash.h"
#include "base/map.h"
#include "publish/keys.h"
#include "publish/wal_chunk.h"

/* Where the frame for one modality stands. */
struct sf_commit_anchor {
    unsigned stream;           /* index of the WAL stream */
    uint64_t epoch;            /* of the chunk */
    uint64_t seq;              /* of the chunk in its stream */
    struct sf_wal_place place; /* of the frame in the chunk */
};

/* One intent at the barrier. The owner fills the first part and keeps the record until forgotten.
 */
struct sf_barrier_record {
    char write_intent_id[SF_SHA256_HEX_BYTES]; /* key in `open` */
    uint64_t commit_ts;                        /* of the intent */
    uint64_t dispatch_number;                  /* of the dispatch whose completions count */
    uint64_t coordinator_epoch;                /* of the leader that registered it */
    uint8_t touched;                           /* SF_MODALITY_BIT set, not empty */
    uint8_t completed;                         /* subset of touched */
    struct sf_commit_anchor anchors[SF_MODALITY_COUNT]; /* by modality - 1, of the completed ones */
};

struct sf_barrier {
    uint64_t epoch;      /* current coordinator epoch */
    struct sf_map *open; /* write_intent_id -> record, borrowed */
};

void sf_barrier_init(struct sf_barrier *barrier, uint64_t epoch);
void sf_barrier_fini(struct sf_barrier *barrier);

enum sf_barrier_result { SF_BARRIER_ACCEPTED, SF_BARRIER_DUPLICATE, SF_BARRIER_STALE_EPOCH };

/* Registers an intent before it is dispatched. STALE: its epoch is not the current one. DUPLICATE:
 * the id is there already; the first record stays. */
enum sf_barrier_result sf_barrier_register(struct sf_barrier *barrier,
                                           struct sf_barrier_record *record);

/* A completion as a writer reports it. */
struct sf_barrier_completion {
    const char *write_intent_id;    /* which intent */
    uint64_t commit_ts;             /* as it was dispatched */
    uint64_t dispatch_number;       /* as it was dispatched */
    uint64_t coordinator_epoch;     /* of the leader that dispatched it */
    uint8_t modalities;             /* SF_MODALITY_BIT set that the frame makes durable */
    struct sf_commit_anchor anchor; /* where the frame stands */
};

/* Applies a completion. ACCEPTED: something new was completed; `*out_record` is the record, durable
 * when completed equals touched. DUPLICATE: nothing new, or the intent is no longer open, or
 * another dispatch or timestamp is meant. STALE: of another epoch; nothing changed. */
enum sf_barrier_result sf_barrier_complete(struct sf_barrier *barrier,
                                           const struct sf_barrier_completion *completion,
                                           struct sf_barrier_record **out_record);

/* Removes a record (published, or given up). */
void sf_barrier_forget(struct sf_barrier *barrier, struct sf_barrier_record *record);

#endif
