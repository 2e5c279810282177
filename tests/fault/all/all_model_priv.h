/* Inside of the model: answers (all_model.c) and durable objects (all_durable.c). */
#ifndef SF_TESTS_SIM_ALL_MODEL_PRIV_H
#define SF_TESTS_SIM_ALL_MODEL_PRIV_H

#include "fault/all/all_model.h"
#include "fault/commit/coord_judge.h"
#include "publish/keys.h"

#define ALL_SLICES        2 /* of one batch, at most */
#define ALL_MOST_SHARDS   2
#define ALL_MOST_NAMED    4096
#define ALL_MOST_OUTCOMES 64

/* A slice as acknowledgements name it. */
struct all_slice {
    uint32_t first_entry;
    uint64_t commit_ts;
};

/* What is known of an operation. */
struct all_answer {
    struct sf_buf first; /* first success; an acknowledgement is not kept */
    bool succeeded;
    bool refused; /* for good */
    bool durable; /* batch: acknowledged so */
    bool visible; /* batch: acknowledged so */
    size_t slice_count;
    struct all_slice slices[ALL_SLICES]; /* batch: once durable */
    bool object;                         /* allocation: its replay-success object stands */
    uint64_t applied_at_ms;              /* of that object */
    const char *token;                   /* batch: of the generation it was made for; static */
    bool in_time; /* batch: was sent while no answer had told of a younger generation */
};

/* A timestamp that an acknowledgement named. */
struct all_named {
    unsigned collection;
    unsigned op;
    struct all_slice slice;
};

/* Outcome of a catalog command that stands. */
struct all_outcome {
    struct sf_buf key;
    struct sf_etag etag;
};

struct all_model {
    struct all_cluster *cluster;
    struct sim *sim;
    struct all_op ops[ALL_OPS];
    struct all_facts facts;
    struct all_answer answers[ALL_OPS];
    struct all_named named[ALL_MOST_NAMED];
    size_t named_count;
    uint64_t highest_acked[ALL_COLLECTIONS];    /* commit_ts */
    uint64_t binding_revision[ALL_COLLECTIONS]; /* highest that was answered */
    bool next_sent[ALL_COLLECTIONS];            /* the second generation is on its way */
    unsigned forgeries;                         /* that were made */
    bool next_told[ALL_COLLECTIONS];            /* and an answer said that it is in force */

    /* seen in the backend */
    uint64_t seen_puts;
    struct sf_etag head_etag[ALL_COLLECTIONS];
    uint64_t version[ALL_COLLECTIONS];
    uint64_t safe_ts[ALL_COLLECTIONS];
    uint64_t applied[ALL_COLLECTIONS][SF_MODALITY_COUNT];
    uint64_t publisher_epoch[ALL_COLLECTIONS];
    struct sf_etag state_etag[ALL_COLLECTIONS];
    uint64_t next_doc_id[ALL_COLLECTIONS];
    uint64_t allocation_epoch[ALL_COLLECTIONS];
    uint64_t state_version[ALL_COLLECTIONS];
    uint64_t replay_signature; /* of the replay-success objects, to see that one came */
    struct sf_map *doc_ids;    /* (collection, doc id) -> its operation */
    uint64_t outcome_signature;
    struct all_outcome outcomes[ALL_MOST_OUTCOMES];
    size_t outcome_count;
    uint64_t served_epoch[ALL_MOST_SHARDS]; /* coordinator epoch under which a node served */
    size_t frozen_frames[ALL_MOST_SHARDS];  /* frames in force below it, then */
};

struct sf_collection_ref all_ref(const struct all_model *m, unsigned collection);

/* The slice of `op` at `commit_ts` stands, by the WAL's frames. */
bool all_slice_stands(const struct all_model *m, const struct judge *judge, const struct all_op *op,
                      uint64_t commit_ts);

/* The slice of `op` at `commit_ts` is in the committed manifest. */
bool all_slice_is_visible(struct all_model *m, const struct all_op *op, uint64_t commit_ts);

/* The row's entry number in its batch. */
uint32_t all_entry_of_row(const struct all_op *op, size_t row);

/* True when `err` says to try again, or that the call ended early: it refuses nothing for good. */
bool all_is_passing(enum sf_err err);

/* True once an answer told that the collection has a generation in force. */
bool all_is_ready(const struct all_model *m, unsigned collection);

/* Generation under which the ids of an allocation's packed answer were allocated; static. */
const char *all_token_of(struct sf_view answer);

/* Realized ids of an allocation that was answered. */
void all_realized_ids(const struct all_model *m, unsigned alloc, uint64_t ids[ALL_ITEMS]);

#endif
