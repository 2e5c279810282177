/*
 * Deletes of replay-success objects, kept apart across processes (protocols.md section 3,
 * Retention). A DELETE has no condition and may land late, and the key that it names may be used
 * again once its object is gone. So of one key at most one delete is ever under way.
 */
#ifndef SF_ALLOCATOR_ALLOCATOR_REMOVALS_H
#define SF_ALLOCATOR_ALLOCATOR_REMOVALS_H

#include "allocator/allocator_priv.h"

#define SF_ALLOC_REMOVALS_KEY "id-allocator/removals.json"

#define SF_ALLOC_DELETE_DOUBT_MS 3600000 /* a delete in doubt may land that late */
#define SF_ALLOC_DELETE_SEND_MS  60000   /* after the list stands deletes are sent that long */

/* Of one process; everything on the retention's lane. */
struct sf_alloc_removals;
struct sf_alloc_removals *sf_alloc_removals_new(struct sf_allocator *allocator);
void sf_alloc_removals_destroy(struct sf_alloc_removals *removals);

/* May a delete of the key still be on its way? */
bool sf_alloc_removals_in_doubt(struct sf_alloc_removals *removals, const char *key);

/* Before the first delete of `keys`: the object lists them, with all that is in doubt. Takes over
 * what another process listed; such keys are in doubt when this returns. A store held exclusively
 * has no other process and gets no object. Waits. Errors: SF_ERR_PRECONDITION (another process came
 * first), SF_ERR_LIMIT (too much is in doubt), SF_ERR_UNAVAILABLE, SF_ERR_AMBIGUOUS,
 * SF_ERR_CORRUPT: nothing may be deleted. */
SF_MUST_USE enum sf_err sf_alloc_removals_begin(struct sf_alloc_removals *removals,
                                                const char *const *keys, size_t count,
                                                struct sf_diag *diag);

/* May a delete be sent under the list of the last begin? It may not once that is a minute old. */
bool sf_alloc_removals_may_send(struct sf_alloc_removals *removals);

/* The delete of `key` is in doubt: nobody sends another one for an hour. */
void sf_alloc_removals_doubt(struct sf_alloc_removals *removals, const char *key);

#endif
