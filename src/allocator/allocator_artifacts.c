/* Which artifacts there are, and what is noted for them on the way of a request. */
#include "allocator/allocator_artifacts.h"

#include <string.h>

#include "allocator/allocator_export.h"

#include "base/limits.h"
#include "base/mem.h"
#include "base/pb.h"

#define AUDIT_LINGER_MS   20
#define EXPORT_LINGER_MS  200
#define SEGMENT_LINGER_MS 1000 /* a busy process writes a segment a second, or a full batch */
#define ENTRY_ARENA_BYTES ((size_t)16 << 20) /* 65,536 ids, each a run of its own */

void sf_alloc_artifacts_start(struct sf_allocator *a)
{
    const struct sf_allocator_artifacts *wanted = &a->deps.artifacts;

    a->metrics.artifacts = sf_metrics_family(
        a->deps.metrics, SF_METRIC_COUNTER, "searchfabric_id_allocator_artifact_entries_total",
        "Entries of optional artifacts", (const char *const[]){"artifact", "result", NULL});
    if (wanted->failure_audit)
        a->audit = sf_alloc_feed_new(&(struct sf_alloc_feed_options){.allocator = a,
                                                                     .name = "failure_audit",
                                                                     .linger_ms = AUDIT_LINGER_MS,
                                                                     .write = sf_alloc_audit_write,
                                                                     .self = a});
    if (wanted->recovery_segments) {
        a->segments = sf_alloc_segments_new(a);
        a->applied =
            sf_alloc_feed_new(&(struct sf_alloc_feed_options){.allocator = a,
                                                              .name = "recovery_segment",
                                                              .linger_ms = SEGMENT_LINGER_MS,
                                                              .write = sf_alloc_segments_write,
                                                              .self = a->segments});
    }
    if (wanted->export_where != NULL) {
        a->export = sf_alloc_export_new(a, wanted->export_where);
        a->exported =
            sf_alloc_feed_new(&(struct sf_alloc_feed_options){.allocator = a,
                                                              .name = SF_ALLOC_EXPORT_NAME,
                                                              .linger_ms = EXPORT_LINGER_MS,
                                                              .write = sf_alloc_export_write,
                                                              .self = a->export});
    }
}

void sf_alloc_artifacts_stop(struct sf_allocator *a)
{
    sf_alloc_feed_destroy(a->audit);
    sf_alloc_feed_destroy(a->applied);
    sf_alloc_feed_destroy(a->exported);
    sf_alloc_segments_destroy(a->segments);
    sf_alloc_export_destroy(a->export);
}

void sf_alloc_note_applied(struct sf_allocator *a, const sf_replay_record *record,
                           bool rolled_forward)
{
    struct sf_buf packed = {0};

    if (a->applied == NULL && a->exported == NULL)
        return;
    struct sf_arena *arena = sf_arena_new(ENTRY_ARENA_BYTES);
    sf_applied_entry *entry = sf_alloc_applied_entry(record, arena);
    SF_ASSERT(entry != NULL);
    entry->rolled_forward = rolled_forward;
    sf_pb_pack(&entry->base, &packed);
    if (a->applied != NULL)
        sf_alloc_feed_push(a->applied, 0, sf_buf_view(&packed));
    if (a->exported != NULL)
        sf_alloc_feed_push(a->exported, SF_EXPORT_APPLIED, sf_buf_view(&packed));
    sf_buf_fini(&packed);
    sf_arena_destroy(arena);
}

void sf_alloc_note_rolled(struct sf_alloc_lane *lane, const struct sf_alloc_pending *pending)
{
    struct sf_allocator *a = lane->shard->allocator;
    ProtobufCMessage *message = NULL;

    if (a->applied == NULL && a->exported == NULL)
        return;
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    enum sf_err err = sf_pb_unpack(&searchfabric__v1__allocator_replay_success_object__descriptor,
                                   sf_buf_view(&pending->record), arena, NULL, &message);
    SF_ASSERT(err == SF_OK); /* packed by this process */
    sf_alloc_note_applied(a, (const sf_replay_record *)message, true);
    sf_arena_destroy(arena);
}

uint64_t sf_alloc_artifacts_dropped(struct sf_allocator *a)
{
    uint64_t dropped = 0;

    if (a->audit != NULL)
        dropped += sf_alloc_feed_dropped(a->audit);
    if (a->applied != NULL)
        dropped += sf_alloc_feed_dropped(a->applied);
    if (a->exported != NULL)
        dropped += sf_alloc_feed_dropped(a->exported);
    return dropped;
}

void sf_alloc_note_removed(struct sf_allocator *a, const char *transport_lookup_key)
{
    if (a->exported != NULL)
        sf_alloc_feed_push(a->exported, SF_EXPORT_REMOVED, sf_view_str(transport_lookup_key));
}

void sf_alloc_note_state(struct sf_alloc_lane *lane)
{
    struct sf_allocator *a = lane->shard->allocator;
    Searchfabric__V1__AllocatorStateObject state = SEARCHFABRIC__V1__ALLOCATOR_STATE_OBJECT__INIT;
    char next[SF_ALLOC_DECIMAL_BYTES];
    struct sf_buf packed = {0};

    if (a->exported == NULL)
        return;
    sf_watermark_text(lane->in_hand.mark, next);
    state.namespace_id = lane->collection.namespace_id.v;
    state.collection_id = lane->collection.collection_id.v;
    state.next_doc_id = next;
    state.allocation_epoch = lane->in_hand.epoch;
    state.allocator_state_version = lane->in_hand.version;
    state.owner_id = a->deps.attempts->process;
    state.updated_at_unix_ms = lane->in_hand.updated_at_unix_ms;
    sf_pb_pack(&state.base, &packed);
    sf_alloc_feed_push(a->exported, SF_EXPORT_STATE, sf_buf_view(&packed));
    sf_buf_fini(&packed);
}
