/*
 * A bounded queue with one writer task behind it: how the artifacts that nothing depends on leave
 * the serving path. Whoever has an entry hands a copy over and goes on; a full queue drops it. Some
 * milliseconds after the first entry the writer runs on a lane of the worker pool and writes batch
 * after batch until the queue is empty.
 */
#ifndef SF_ALLOCATOR_ALLOCATOR_FEED_H
#define SF_ALLOCATOR_ALLOCATOR_FEED_H

#include "allocator/allocator.h"
#include "base/view.h"

struct sf_alloc_feed;

/* One entry. */
struct sf_alloc_feed_item {
    struct sf_alloc_feed_item *next; /* of the batch, NULL at its end */
    uint64_t sequence;               /* counts the entries of the feed, dropped ones included */
    int kind;                        /* as pushed */
    size_t len;                      /* of bytes */
    uint8_t bytes[];                 /* as pushed */
};

/* Writes a batch of `count` entries on a worker task; returns how many of them were written, the
 * others are counted as failed. Should end early when sf_alloc_feed_ending says so. */
typedef size_t (*sf_alloc_feed_write_fn)(void *self, const struct sf_alloc_feed_item *first,
                                         size_t count);

struct sf_alloc_feed_options {
    struct sf_allocator *allocator; /* whose; outlives the feed */
    const char *name;               /* label of the metric; static */
    int64_t linger_ms;              /* from the first entry of an empty queue to the writer */
    sf_alloc_feed_write_fn write;   /* see above */
    void *self;                     /* passed to write */
    size_t max_entries;             /* that wait; 0 = SF_LIMIT_ALLOC_FEED_ENTRIES */
};

/* Makes a feed. Any thread. */
struct sf_alloc_feed *sf_alloc_feed_new(const struct sf_alloc_feed_options *options);

/* Frees; what waits is lost. No writer is running (the allocator was drained). NULL is fine. */
void sf_alloc_feed_destroy(struct sf_alloc_feed *feed);

/* Copies an entry into the queue, or drops and counts it. The caller holds a request or task of the
 * allocator open. Any thread; never waits for the writer. */
void sf_alloc_feed_push(struct sf_alloc_feed *feed, int kind, struct sf_view bytes);

/* Lane of the pool on which the writer of the feeds named `name` runs. */
uint64_t sf_alloc_feed_lane(const char *name);

/* Entries dropped so far. Any thread. */
uint64_t sf_alloc_feed_dropped(const struct sf_alloc_feed *feed);

#endif
