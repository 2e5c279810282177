/*
 * The operational export: rows about collections and allocations for people to query (allocator
 * note 8). Nothing that answers reads it or waits for it; it is filled later, may lag, fail or be
 * gone, and is rebuilt from the authoritative objects.
 */
#ifndef SF_ALLOCATOR_ALLOCATOR_EXPORT_H
#define SF_ALLOCATOR_ALLOCATOR_EXPORT_H

#include "allocator/allocator_artifacts.h"

#define SF_ALLOC_EXPORT_NAME "export" /* of its feed */

/* Kinds of entries. */
enum sf_alloc_export_kind {
    SF_EXPORT_STATE,   /* packed AllocatorStateObject without pending applies */
    SF_EXPORT_APPLIED, /* packed AllocatorAppliedEntry */
    SF_EXPORT_REMOVED  /* transport_lookup_key */
};

struct sf_alloc_export;

/* Nothing is opened before the first entry: the database may be away. `where` as in
 * sf_allocator_artifacts. */
struct sf_alloc_export *sf_alloc_export_new(struct sf_allocator *allocator,
                                            const struct sf_sql_options *where);
void sf_alloc_export_destroy(struct sf_alloc_export *export);

/* The writer of its feed. */
size_t sf_alloc_export_write(void *export, const struct sf_alloc_feed_item *first, size_t count);

/* What a rebuild did. */
struct sf_alloc_export_sum {
    uint64_t collections; /* rows */
    uint64_t allocations; /* rows */
    uint64_t broken;      /* objects that do not verify */
};

/* Drops the database's content and fills it from the objects; on the feed's lane. Errors in `diag`:
 * SF_ERR_CONFIG (the database holds something else), SF_ERR_IO, SF_ERR_UNAVAILABLE. */
SF_MUST_USE enum sf_err sf_alloc_export_rebuild(struct sf_alloc_export *export,
                                                struct sf_diag *diag,
                                                struct sf_alloc_export_sum *out_sum);

#endif
