/*
 * Model: a segment lists, in the order in which this process saw them stand, the applies since its
 * last one. Its number is the next free one of the store, found by listing and taken create-only:
 * two processes never share a number, and a lost race takes the next. A segment that cannot be
 * written is given up; `sequence` of the entries then shows the hole.
 */
#include "allocator/allocator_artifacts.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/pb.h"
#include "object/compress.h"

struct sf_alloc_segments {
    struct sf_allocator *allocator; /* whose */
    uint64_t next_epoch;            /* number to try first; 0 = the store is asked; writer's lane */
};

struct sf_alloc_segments *sf_alloc_segments_new(struct sf_allocator *allocator)
{
    struct sf_alloc_segments *segments = sf_calloc(1, sizeof(*segments));

    segments->allocator = allocator;
    return segments;
}

void sf_alloc_segments_destroy(struct sf_alloc_segments *segments)
{
    free(segments);
}

/* ---- entries ---- */

sf_applied_entry *sf_alloc_applied_entry(const sf_replay_record *record, struct sf_arena *arena)
{
    sf_applied_entry *entry = sf_arena_alloc(arena, sizeof(*entry));

    if (entry == NULL)
        return NULL;
    searchfabric__v1__allocator_applied_entry__init(entry);
    entry->namespace_id = record->namespace_id;
    entry->collection_id = record->collection_id;
    entry->transport_lookup_key = record->transport_lookup_key;
    entry->payload_fingerprint = record->payload_fingerprint;
    entry->allocation_epoch = record->allocation_epoch;
    entry->allocator_state_version = record->allocator_state_version;
    entry->lease_epoch = record->lease_epoch;
    entry->applied_at_unix_ms = record->applied_at_unix_ms;
    entry->idempotency_key = record->idempotency_key;
    entry->authenticated_client_identity_hash = record->authenticated_client_identity_hash;
    entry->client_id = record->client_id;
    entry->client_kind = record->client_kind;
    entry->schema_generation_token = record->schema_generation_token;
    return sf_alloc_items_runs(record, arena, &entry->runs, &entry->n_runs) ? entry : NULL;
}

/* ---- the number ---- */

/* True when a segment above `epoch` stands. */
static enum sf_err any_above(struct sf_alloc_segments *s, uint64_t epoch, bool *out_any)
{
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    const struct sf_allocator_deps *deps = &s->allocator->deps;
    struct sf_list_entry *entries = NULL;
    struct sf_buf after = {0};
    size_t count = 0;

    sf_alloc_segment_key(epoch, &after);
    enum sf_err err =
        sf_store_list_wait(deps->store, deps->sched, sf_view_str(SF_ALLOC_SEGMENT_PREFIX),
                           sf_buf_view(&after), 1, arena, &entries, &count);
    sf_buf_fini(&after);
    sf_arena_destroy(arena);
    *out_any = count != 0;
    return err;
}

/* The highest number that stands, by halving: numbers only go upward. */
static enum sf_err find_tail(struct sf_alloc_segments *s)
{
    uint64_t low = 0; /* nothing is numbered 0, and what stands may begin above */
    uint64_t high = UINT64_MAX;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        bool above = false;
        enum sf_err err = any_above(s, middle, &above);
        if (err != SF_OK)
            return err;
        if (above)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == UINT64_MAX) /* a foreign key below the prefix */
        return SF_ERR_LIMIT;
    s->next_epoch = low + 1;
    return SF_OK;
}

/* ---- the writer ---- */

/* True when the object at `key` is this try's own. */
static bool is_own(struct sf_alloc_segments *s, struct sf_view key, struct sf_view body)
{
    const struct sf_allocator_deps *deps = &s->allocator->deps;
    struct sf_buf stands = {0};
    bool own = sf_store_get_wait(deps->store, deps->sched, key, &stands, NULL) == SF_OK &&
               stands.len == body.len && memcmp(stands.data, body.ptr, body.len) == 0;

    sf_buf_fini(&stands);
    return own;
}

/* Encodes and creates the segment under the next number. SF_ERR_EXISTS: the number is taken. */
static enum sf_err segment_put(struct sf_alloc_segments *s,
                               Searchfabric__V1__AllocatorRecoverySegmentObject *object)
{
    const struct sf_allocator_deps *deps = &s->allocator->deps;
    char attempt[SF_ATTEMPT_ID_BYTES];
    struct sf_buf plain = {0};
    struct sf_buf body = {0};
    struct sf_buf key = {0};
    enum sf_err err = SF_ERR_UNAVAILABLE;

    sf_attempts_next(deps->attempts, attempt);
    object->attempt_id = attempt;
    object->allocator_recovery_epoch = s->next_epoch;
    sf_durable_encode(&object->base, &plain, NULL);
    sf_compress(sf_buf_view(&plain), &body);
    sf_buf_fini(&plain);
    sf_alloc_segment_key(s->next_epoch, &key);
    for (unsigned tries = 0; tries < SF_LIMIT_ALLOC_TRIES && err != SF_OK; tries++) {
        struct sf_put put = {
            .key = sf_buf_view(&key), .body = sf_buf_view(&body), .cond = SF_PUT_ABSENT};
        err = sf_store_put_wait(deps->store, deps->sched, &put);
        if (err == SF_ERR_PRECONDITION) {
            err = is_own(s, sf_buf_view(&key), sf_buf_view(&body)) ? SF_OK : SF_ERR_EXISTS;
            break;
        }
        if (err != SF_OK && err != SF_ERR_AMBIGUOUS && err != SF_ERR_UNAVAILABLE)
            break;
    }
    sf_buf_fini(&key);
    sf_buf_fini(&body);
    return err;
}

/* Unpacks the batch's entries into the segment. */
static void entries_fill(const struct sf_alloc_feed_item *first, struct sf_arena *arena,
                         Searchfabric__V1__AllocatorRecoverySegmentObject *object)
{
    for (; first != NULL; first = first->next) {
        ProtobufCMessage *message = NULL;
        enum sf_err err =
            sf_pb_unpack(&searchfabric__v1__allocator_applied_entry__descriptor,
                         sf_view_bytes(first->bytes, first->len), arena, NULL, &message);
        if (err != SF_OK)
            continue;
        sf_applied_entry *entry = (sf_applied_entry *)message;
        entry->sequence = first->sequence;
        object->entries[object->n_entries++] = entry;
    }
}

size_t sf_alloc_segments_write(void *segments, const struct sf_alloc_feed_item *first, size_t count)
{
    struct sf_alloc_segments *s = segments;
    Searchfabric__V1__AllocatorRecoverySegmentObject object =
        SEARCHFABRIC__V1__ALLOCATOR_RECOVERY_SEGMENT_OBJECT__INIT;
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    enum sf_err err = SF_ERR_EXISTS;

    object.owner_id = s->allocator->deps.attempts->process;
    object.created_at_unix_ms = sf_clock_unix_ms(s->allocator->deps.clock);
    object.entries = sf_malloc(count * sizeof(sf_applied_entry *));
    entries_fill(first, arena, &object);
    for (unsigned tries = 0; tries < SF_LIMIT_ALLOC_TRIES && err == SF_ERR_EXISTS; tries++) {
        if (s->next_epoch == 0 && find_tail(s) != SF_OK)
            break;
        err = segment_put(s, &object);
        s->next_epoch = err == SF_OK ? s->next_epoch + 1 : 0;
    }
    free(object.entries);
    sf_arena_destroy(arena);
    return err == SF_OK ? object.n_entries : 0;
}
