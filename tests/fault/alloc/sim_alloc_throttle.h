/*
 * A store in front of a store that refuses puts under one key prefix while a switch says so, as
 * object stores do when a prefix is too busy: certain refusals, everything else goes through. It
 * lets state writes pass while replay-success objects do not.
 */
#ifndef SF_TESTS_SIM_ALLOC_THROTTLE_H
#define SF_TESTS_SIM_ALLOC_THROTTLE_H

#include "object/store.h"

/* True while puts under the prefix are refused. */
typedef bool (*throttle_closed_fn)(void *ctx);

/* `inner` is borrowed. Destroy with sf_store_destroy when no call is under way. Batches need a
 * loop.
 */
struct sf_store *throttle_store_new(struct sf_store *inner, const char *prefix,
                                    throttle_closed_fn closed, void *ctx);

#endif
