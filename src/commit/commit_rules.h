/*
 * What the coordinator decides without I/O: whether a planned batch is one, how it falls into
 * slices, which timestamp a slice gets, who it is. Pure. Source: note 4.2, 4.3, 6.1; contract C-08,
 * C-12, C-22, C-26.
 */
#ifndef SF_COMMIT_COMMIT_RULES_H
#define SF_COMMIT_COMMIT_RULES_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/hash.h"
#include "base/ids.h"
#include "searchfabric/v1/commit_coordinator.pb-c.h"

/* Checks everything about a planned batch that needs no lane: Flow B rows come with commit_ts 0,
 * plans cover the entries, one source per batch with growing source_seq. Returns
 * BATCH_REFUSAL_UNSPECIFIED when it may go on, else INVALID_BATCH with details `field`, `violation`
 * and, where one entry is meant, `entry_index` in `diag`. */
Searchfabric__V1__BatchRefusal sf_commit_batch_check(const Searchfabric__V1__PlannedBatch *planned,
                                                     struct sf_diag *diag);

/* One unit of a batch in lane order: a slice of rows, or a barrier mark. */
struct sf_commit_unit {
    bool is_barrier;            /* a mark: fences, carries no rows */
    uint32_t ordinal;           /* position among the units, from 0 */
    uint32_t first_entry_index; /* of the batch */
    uint32_t last_entry_index;  /* inclusive */
    uint64_t source_partition;  /* of all its entries */
    uint64_t source_epoch;      /* of all its entries */
    uint64_t first_source_seq;  /* of its first entry */
    uint64_t last_source_seq;   /* inclusive */
    uint32_t row_count;         /* entries with a row */
    uint64_t logical_bytes;     /* sum of body bytes */
    uint8_t touched;            /* union over its rows, SF_MODALITY_BIT */
};

/* A batch cut into units; in the arena of the cut. */
struct sf_commit_cut {
    struct sf_commit_unit *units; /* in the arena; in the batch's order */
    size_t count;                 /* of them */
    uint32_t slice_count;         /* units with rows */
    uint64_t wal_bytes;           /* estimate of what its frames take in all streams */
    uint8_t enabled;              /* SF_MODALITY_BIT */
};

/* Cuts a checked batch: a slice ends at a mark and nowhere else (Flow B). */
void sf_commit_batch_cut(const Searchfabric__V1__PlannedBatch *planned, struct sf_arena *arena,
                         struct sf_commit_cut *out_cut);

/* Modalities that entry `index` touches; the plans of a checked batch. */
uint8_t sf_commit_entry_touched(const Searchfabric__V1__PlannedBatch *planned, uint32_t index);

/* max(local_max + 1, tso); false when the axis is exhausted (note 4.2). */
bool sf_commit_inject(uint64_t local_max_commit_ts, uint64_t next_tso, uint64_t *out_commit_ts);

/* write_intent_id: the same for a redelivery, whatever the epoch (C-08). */
void sf_commit_intent_id(struct sf_collection_ref collection, const char *stream_identity,
                         const char *batch_id, const char *batch_fingerprint, uint32_t ordinal,
                         char out_id[SF_SHA256_HEX_BYTES]);

/* Identity of a batch within its lane. */
void sf_commit_batch_key(const char *stream_identity, const char *batch_id,
                         uint8_t out_key[SF_SHA256_BYTES]);

/* Lag in ms between two timestamps; never underflows (note 6.1, COORD-3-05). */
uint64_t sf_commit_lag_ms(uint64_t newest_ts, uint64_t safe_ts);

/* `ts` moved by `ms`, kept on the axis. */
uint64_t sf_commit_ts_add_ms(uint64_t ts, uint64_t ms);
uint64_t sf_commit_ts_sub_ms(uint64_t ts, uint64_t ms);

/* True when a batch first admitted at `first_admitted_ts` lies before the duplicate window that
 * ends at `now_ts`. */
bool sf_commit_expired(uint64_t first_admitted_ts, uint64_t now_ts, uint64_t window_ms);

#endif
