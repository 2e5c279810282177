/*
 * Artifacts that nothing depends on: failure-audit objects, recovery segments and the operational
 * export (allocator note 6.4, 7.1, 8). All are off unless asked for. What is noted here is copied
 * into a bounded queue (allocator_feed.h) and written later; no answer waits for it, nothing that
 * answers reads it.
 */
#ifndef SF_ALLOCATOR_ALLOCATOR_ARTIFACTS_H
#define SF_ALLOCATOR_ALLOCATOR_ARTIFACTS_H

#include "allocator/allocator_feed.h"
#include "allocator/allocator_priv.h"

typedef Searchfabric__V1__AllocatorAppliedEntry sf_applied_entry;

/* Makes what deps.artifacts asks for; counters are registered in any case. */
void sf_alloc_artifacts_start(struct sf_allocator *allocator);
void sf_alloc_artifacts_stop(struct sf_allocator *allocator);

/* A request was refused: `op` with the error in its call's diag. Before the call is answered. Any
 * thread. */
void sf_alloc_note_failure(struct sf_alloc_op *op, const char *classification);

/* The result `record` is seen to stand for the first time; likewise a pending apply that a load
 * finished. On a loop. */
void sf_alloc_note_applied(struct sf_allocator *allocator, const sf_replay_record *record,
                           bool rolled_forward);
void sf_alloc_note_rolled(struct sf_alloc_lane *lane, const struct sf_alloc_pending *pending);

/* The result of a key was removed. On the retention's lane. */
void sf_alloc_note_removed(struct sf_allocator *allocator, const char *transport_lookup_key);

/* Entries that found their queue full. Any thread. */
uint64_t sf_alloc_artifacts_dropped(struct sf_allocator *allocator);

/* The state in hand of the lane was written. On its loop. */
void sf_alloc_note_state(struct sf_alloc_lane *lane);

/* ---- allocator_audit.c ---- */

/* The writer of failure-audit objects; entries are packed AllocatorFailureAuditObject. */
size_t sf_alloc_audit_write(void *allocator, const struct sf_alloc_feed_item *first, size_t count);

/* ---- allocator_segments.c ---- */

struct sf_alloc_segments;
struct sf_alloc_segments *sf_alloc_segments_new(struct sf_allocator *allocator);
void sf_alloc_segments_destroy(struct sf_alloc_segments *segments);

/* The writer of recovery segments; entries are packed AllocatorAppliedEntry. */
size_t sf_alloc_segments_write(void *segments, const struct sf_alloc_feed_item *first,
                               size_t count);

/* The entry of a record, in `arena`; NULL when that is full. */
sf_applied_entry *sf_alloc_applied_entry(const sf_replay_record *record, struct sf_arena *arena);

#endif
