/*
 * A binary heap in an array. heap_index of a timer is its slot plus one, so that a zeroed timer is
 * inactive and a stop finds its slot at once. `seq` breaks ties, so that equal due times fire in
 * start order, and tells timers started while a run is on from those it should fire.
 */
#include "exec/timer_heap.h"

#include <stdlib.h>

#include "base/mem.h"

void sf_timer_heap_fini(struct sf_timer_heap *heap)
{
    for (size_t i = 0; i < heap->count; i++)
        heap->slots[i]->heap_index = 0;
    free(heap->slots);
    *heap = (struct sf_timer_heap){0};
}

static bool before(const struct sf_timer *a, const struct sf_timer *b)
{
    return a->due_ms < b->due_ms || (a->due_ms == b->due_ms && a->seq < b->seq);
}

static void place(struct sf_timer_heap *heap, size_t i, struct sf_timer *timer)
{
    heap->slots[i] = timer;
    timer->heap_index = i + 1;
}

static void sift_up(struct sf_timer_heap *heap, size_t i, struct sf_timer *timer)
{
    while (i > 0) {
        size_t parent = (i - 1) / 2;
        if (!before(timer, heap->slots[parent]))
            break;
        place(heap, i, heap->slots[parent]);
        i = parent;
    }
    place(heap, i, timer);
}

static void sift_down(struct sf_timer_heap *heap, size_t i, struct sf_timer *timer)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && before(heap->slots[child + 1], heap->slots[child]))
            child++;
        if (!before(heap->slots[child], timer))
            break;
        place(heap, i, heap->slots[child]);
        i = child;
    }
    place(heap, i, timer);
}

void sf_timer_heap_start(struct sf_timer_heap *heap, struct sf_timer *timer, int64_t due_ms)
{
    sf_timer_heap_stop(heap, timer);
    if (heap->count == heap->capacity) {
        heap->capacity = heap->capacity == 0 ? 16 : heap->capacity * 2;
        heap->slots = sf_realloc(heap->slots, heap->capacity * sizeof(*heap->slots));
    }
    timer->due_ms = due_ms;
    timer->seq = heap->next_seq++;
    heap->count++;
    sift_up(heap, heap->count - 1, timer);
}

void sf_timer_heap_stop(struct sf_timer_heap *heap, struct sf_timer *timer)
{
    if (timer->heap_index == 0)
        return;
    size_t i = timer->heap_index - 1;
    SF_ASSERT(i < heap->count && heap->slots[i] == timer);
    timer->heap_index = 0;
    struct sf_timer *last = heap->slots[--heap->count];
    if (last == timer)
        return;
    if (i > 0 && before(last, heap->slots[(i - 1) / 2]))
        sift_up(heap, i, last);
    else
        sift_down(heap, i, last);
}

struct sf_timer *sf_timer_heap_first(const struct sf_timer_heap *heap)
{
    return heap->count == 0 ? NULL : heap->slots[0];
}

/* A timer restarted by a callback with delay 0 sorts behind all of its due time by `seq`, but may
 * sort before older timers with a later due time; those wait for the next run, which is at once. */
void sf_timer_heap_run(struct sf_timer_heap *heap, int64_t now_ms)
{
    uint64_t end_seq = heap->next_seq;

    for (;;) {
        struct sf_timer *timer = sf_timer_heap_first(heap);
        if (timer == NULL || timer->due_ms > now_ms || timer->seq >= end_seq)
            return;
        sf_timer_heap_stop(heap, timer);
        timer->fire(timer);
    }
}
