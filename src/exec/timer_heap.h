/*
 * Min-heap of timers, ordered by due time and then by the order they were started. Shared by the
 * loops that keep time themselves. One owner.
 */
#ifndef SF_EXEC_TIMER_HEAP_H
#define SF_EXEC_TIMER_HEAP_H

#include "exec/loop.h"

/* Zero-initialise; sf_timer_heap_fini frees. */
struct sf_timer_heap {
    struct sf_timer **slots; /* owned array; the timers are their owners' */
    size_t count;            /* active timers */
    size_t capacity;         /* slots allocated */
    uint64_t next_seq;       /* start order of the next timer */
};

/* Frees the array; timers still in it become inactive. */
void sf_timer_heap_fini(struct sf_timer_heap *heap);

/* Starts or restarts `timer` with absolute monotonic due time `due_ms`. */
void sf_timer_heap_start(struct sf_timer_heap *heap, struct sf_timer *timer, int64_t due_ms);

/* Takes `timer` out; harmless when inactive. */
void sf_timer_heap_stop(struct sf_timer_heap *heap, struct sf_timer *timer);

/* Earliest timer, NULL when none. */
struct sf_timer *sf_timer_heap_first(const struct sf_timer_heap *heap);

/* Fires, in order, each timer that is due at `now_ms` and was started before this call; a timer
 * that restarts itself fires again in a later call at the earliest. */
void sf_timer_heap_run(struct sf_timer_heap *heap, int64_t now_ms);

#endif
