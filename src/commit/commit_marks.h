/*
 * Watermarks of one lane. Pure. applied_ts_m = min(local_max, lowest commit_ts of an unfinished
 * intent touching m, minus 1), never going back; a modality that no open write touches advances
 * with the lane. safe_ts is their minimum. Source: note 5.1; protocols.md section 4, Barrier; C-02.
 */
#ifndef SF_COMMIT_COMMIT_MARKS_H
#define SF_COMMIT_COMMIT_MARKS_H

#include "publish/publisher.h"

/* An intent as the watermarks see it; embedded. Filled by sf_marks_open. */
struct sf_marks_intent {
    uint64_t commit_ts;                              /* of the intent */
    uint8_t touched;                                 /* SF_MODALITY_BIT set */
    bool finished;                                   /* durable in all it touches */
    uint8_t queues;                                  /* modality queues it still stands in */
    struct sf_marks_intent *next[SF_MODALITY_COUNT]; /* by modality - 1 */
};

struct sf_marks {
    struct sf_frontier frontier;                      /* what is read back */
    uint64_t safe_ts;                                 /* never goes back */
    struct sf_marks_intent *first[SF_MODALITY_COUNT]; /* unfinished, oldest first */
    struct sf_marks_intent *last[SF_MODALITY_COUNT];  /* newest of each queue */
};

/* Starts from what a manifest says (or zeros). */
void sf_marks_init(struct sf_marks *marks, const struct sf_frontier *frontier, uint64_t safe_ts);

/* The enabled set that came with a batch. One that joins starts at safe_ts, so that safe_ts never
 * falls. */
void sf_marks_enable(struct sf_marks *marks, uint8_t enabled);

/* A slice got `commit_ts` (above local_max): raises local_max and holds its modalities below. */
void sf_marks_open(struct sf_marks *marks, struct sf_marks_intent *intent, uint64_t commit_ts,
                   uint8_t touched);

/* The slice is durable in all it touches. The intent must stay until `queues` is 0. */
void sf_marks_finish(struct sf_marks *marks, struct sf_marks_intent *intent);

/* Raises local_max without an intent (a slice found durable by recovery). */
void sf_marks_raise(struct sf_marks *marks, uint64_t commit_ts);

#endif
