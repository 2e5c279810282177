/*
 * The identity of an object store: `control/store.json`, created once by the store's first start.
 * It fixes the numbers of shards for ever (decision 16), because keys and owners are derived from
 * them, and names the store, so that caches of another store are recognized.
 */
#ifndef SF_CLUSTER_STORE_IDENTITY_H
#define SF_CLUSTER_STORE_IDENTITY_H

#include "object/durable.h"

#define SF_CATALOG_LANE_SHARDS_DEFAULT 64u
#define SF_COORDINATOR_SHARDS_DEFAULT  16u

#define SF_STORE_ID_BYTES 33 /* 32 hex digits and NUL */

/* What `control/store.json` says. */
struct sf_store_identity {
    char store_id[SF_STORE_ID_BYTES];  /* random */
    uint32_t catalog_lane_shard_count; /* >= 1 */
    uint32_t coordinator_shard_count;  /* >= 1 */
    int64_t created_at_unix_ms;        /* wall clock of the first start */
};

/* What is needed to open it, and what a new store shall be. */
struct sf_store_identity_options {
    struct sf_store *store;            /* where the identity lies */
    struct sf_sched *sched;            /* how to wait; NULL = plain thread */
    struct sf_clock *clock;            /* wall clock of created_at_unix_ms */
    struct sf_attempts *attempts;      /* source of the write's attempt id */
    uint8_t random[16];                /* becomes the store id if the store is new */
    uint32_t catalog_lane_shard_count; /* wanted; 0 = the default, or what the store has */
    uint32_t coordinator_shard_count;  /* wanted; 0 = the default, or what the store has */
};

/* Reads the identity, or creates it. Racing first starts agree on one. Errors: SF_ERR_CONFIG (the
 * wanted counts are out of range, or not those of the store), SF_ERR_CORRUPT, SF_ERR_UNAVAILABLE.
 */
SF_MUST_USE enum sf_err sf_store_identity_open(const struct sf_store_identity_options *options,
                                               struct sf_diag *diag,
                                               struct sf_store_identity *out_identity);

#endif
