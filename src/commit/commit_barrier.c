#include "commit/commit_barrier.h"

/*
 * The barrier answers one question: is a slice durable in everything it touches? It takes no part
 * in watermarks, which the lane alone writes (C-17). A completion counts only under the epoch that
 * is current, for the very dispatch it belongs to; every repeat of it is a no-op.
 */

void sf_barrier_init(struct sf_barrier *barrier, uint64_t epoch)
{
    *barrier = (struct sf_barrier){.epoch = epoch, .open = sf_map_new()};
}

void sf_barrier_fini(struct sf_barrier *barrier)
{
    sf_map_destroy(barrier->open, NULL);
    barrier->open = NULL;
}

enum sf_barrier_result sf_barrier_register(struct sf_barrier *barrier,
                                           struct sf_barrier_record *record)
{
    SF_ASSERT(record->touched != 0 && (record->completed & ~record->touched) == 0);
    if (record->coordinator_epoch != barrier->epoch)
        return SF_BARRIER_STALE_EPOCH;
    if (sf_map_get(barrier->open, sf_view_str(record->write_intent_id)) != NULL)
        return SF_BARRIER_DUPLICATE;
    (void)sf_map_put(barrier->open, sf_view_str(record->write_intent_id), record);
    return SF_BARRIER_ACCEPTED;
}

enum sf_barrier_result sf_barrier_complete(struct sf_barrier *barrier,
                                           const struct sf_barrier_completion *completion,
                                           struct sf_barrier_record **out_record)
{
    if (completion->coordinator_epoch != barrier->epoch)
        return SF_BARRIER_STALE_EPOCH;
    struct sf_barrier_record *record =
        sf_map_get(barrier->open, sf_view_str(completion->write_intent_id));
    if (record == NULL || record->commit_ts != completion->commit_ts ||
        record->dispatch_number != completion->dispatch_number)
        return SF_BARRIER_DUPLICATE;
    uint8_t fresh = (uint8_t)(completion->modalities & record->touched & ~record->completed);
    if (fresh == 0)
        return SF_BARRIER_DUPLICATE;
    for (unsigned m = 0; m < SF_MODALITY_COUNT; m++) {
        if ((fresh & (1u << m)) != 0)
            record->anchors[m] = completion->anchor;
    }
    record->completed |= fresh;
    *out_record = record;
    return SF_BARRIER_ACCEPTED;
}

void sf_barrier_forget(struct sf_barrier *barrier, struct sf_barrier_record *record)
{
    if (sf_map_get(barrier->open, sf_view_str(record->write_intent_id)) == record)
        (void)sf_map_del(barrier->open, sf_view_str(record->write_intent_id));
}
