/*
 * What the clients of one run want, drawn from the world's seed, and the requests that say so.
 * Every operation has one key; all clients send all of them, to any node, as often as they like.
 * Two clients create each name under keys of their own.
 */
#ifndef SF_TESTS_SIM_ALL_REQUESTS_H
#define SF_TESTS_SIM_ALL_REQUESTS_H

#include "fault/all/all_calls.h"

#define ALL_COLLECTIONS 2
#define ALL_CLIENTS     3
#define ALL_ITEMS       4
#define ALL_ISSUE       UINT64_MAX
#define ALL_ALLOCS      14
#define ALL_CREATES     8                   /* of them, realized by a batch each */
#define ALL_INDEXES     5                   /* batches of INDEX rows, without a receipt */
#define ALL_HOT_ID      (UINT64_C(1) << 40) /* every INDEX batch writes this document */

enum all_kind {
    ALL_NAMESPACE,
    ALL_COLLECTION,
    ALL_SCHEMA,
    ALL_READY,
    ALL_ALLOC,
    ALL_BATCH,
    ALL_NEXT_SCHEMA, /* the second generation */
    ALL_NEXT_READY
};

enum all_policy { ALL_INGEST_ACK, ALL_DURABLE, ALL_VISIBLE };

/* One row of a batch. */
struct all_row {
    uint64_t doc_id;
    char body[96];
    bool index; /* ROW_OP_INDEX, else CREATE */
};

struct all_op {
    enum all_kind kind;
    unsigned collection;       /* 0..ALL_COLLECTIONS-1 */
    unsigned variant;          /* whose key */
    char key[24];              /* idempotency key, batch_id */
    uint64_t items[ALL_ITEMS]; /* plan: ALL_ISSUE or an explicit id */
    size_t count;              /* items of the plan, rows of the batch */
    int alloc;                 /* batch: the allocation that it realizes, -1 = INDEX rows */
    size_t barrier;            /* batch: a barrier mark stands before this row; 0 = none */
    unsigned vectors;          /* batch: rows that carry a vector, as bits */
    enum all_policy policy;    /* batch */
    unsigned most_tries;       /* a client gives up after so many; 0 = never */
};

#define ALL_CATALOG_OPS (ALL_CLIENTS * (1 + 3 * ALL_COLLECTIONS))
#define ALL_FIRST_ALLOC ALL_CATALOG_OPS
#define ALL_FIRST_BATCH (ALL_FIRST_ALLOC + ALL_ALLOCS)
#define ALL_FIRST_INDEX (ALL_FIRST_BATCH + ALL_CREATES)
#define ALL_FIRST_NEXT  (ALL_FIRST_INDEX + ALL_INDEXES)
#define ALL_OPS         (ALL_FIRST_NEXT + 2 * ALL_COLLECTIONS)

/* Index of a catalog operation. */
unsigned all_namespace_op(unsigned variant);
unsigned all_catalog_op(enum all_kind kind, unsigned variant, unsigned collection);

void all_ops_draw(struct all_op ops[ALL_OPS], struct sf_rng *rng);

/* What requests refer to. */
struct all_facts {
    uint64_t namespace_id;                   /* 0 = not known yet */
    uint64_t collection_id[ALL_COLLECTIONS]; /* 0 = not known yet */
};

/* Rows of a batch; `allocated` are the realized ids of its allocation (NULL for INDEX batches). */
void all_rows(const struct all_op *op, const uint64_t *allocated, struct all_row rows[ALL_ITEMS]);

/* Token of schema generation 1 or 2. */
const char *all_token(unsigned generation);

/* A call with the request of `op`. Of a batch: `token` of the generation that it was made for,
 * `answer` the packed answer of its allocation. */
struct all_call *all_op_call(struct all_cluster *cluster, const struct all_op *op,
                             const struct all_facts *facts, const char *token,
                             struct sf_view answer);

/* Reads: kinds of public questions. */
enum all_read {
    ALL_READ_NAMESPACE_BY_NAME,
    ALL_READ_NAMESPACE,
    ALL_READ_COLLECTION_BY_NAME,
    ALL_READ_COLLECTION,
    ALL_READ_SCHEMA,
    ALL_READ_SYNC,
    ALL_READ_STATISTICS,
    ALL_READ_NAMESPACES,
    ALL_READ_COLLECTIONS,
    ALL_READ_BINDING, /* its revision rises in a rebuild: not the same bytes */
    ALL_READS
};

struct all_call *all_read_call(struct all_cluster *cluster, enum all_read read, unsigned collection,
                               const struct all_facts *facts);

#endif
