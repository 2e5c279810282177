/*
 * What stands, worked out from the durable objects alone and apart from the code under test: the
 * frames of all WAL chunks, which of them lie in the unbroken run below their stream's seal, and
 * which slices have all their frames there under one epoch.
 */
#ifndef SF_TESTS_COORD_JUDGE_H
#define SF_TESTS_COORD_JUDGE_H

#include "base/arena.h"
#include "base/hash.h"
#include "object/store.h"
#include "publish/chain.h"

/* One ROWS frame of the WAL. */
struct judged_frame {
    uint64_t collection_id;
    char id[SF_SHA256_HEX_BYTES]; /* write_intent_id */
    char batch_id[32];
    uint32_t ordinal;
    uint64_t epoch;
    uint64_t commit_ts;
    uint8_t touched; /* of the slice */
    uint8_t covers;  /* of the stream */
    bool in_force;   /* in the unbroken run below the seal */
};

struct judge {
    struct judged_frame *frames; /* owned */
    size_t count;
    size_t cap;
    bool corrupt; /* a chunk did not decode */
};

void judge_read(struct judge *judge, struct sf_store *backend);
void judge_free(struct judge *judge);

/* Frames of slice `id` under `epoch` that are in force cover all that it touches. */
bool judge_stands(const struct judge *judge, const char *id, uint64_t epoch);

/* True when (collection, batch, ordinal) stands at `commit_ts` under some epoch. */
bool judge_batch_stands(const struct judge *judge, uint64_t collection_id, const char *batch_id,
                        uint32_t ordinal, uint64_t commit_ts);

#endif
