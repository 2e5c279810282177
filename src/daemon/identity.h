/* control/store.json: what is fixed when a store is used for the first time. Private to the daemon.
 */
#ifndef SF_DAEMON_IDENTITY_H
#define SF_DAEMON_IDENTITY_H

#include "object/durable.h"

/* Identity of a store. */
struct sf_store_identity {
    char store_id[33];            /* random, 32 hex digits */
    uint32_t catalog_lane_shards; /* fixed */
    uint32_t coordinator_shards;  /* fixed */
};

/* Reads the store's identity, or creates it with the numbers given in `identity` (whose store_id is
 * chosen here). What stands wins over what was given. Blocks (plain thread). Errors:
 * SF_ERR_UNAVAILABLE, SF_ERR_CORRUPT. */
SF_MUST_USE enum sf_err sf_store_identity_open(struct sf_store *store, struct sf_clock *clock,
                                               struct sf_attempts *attempts, struct sf_diag *diag,
                                               struct sf_store_identity *identity);

#endif
