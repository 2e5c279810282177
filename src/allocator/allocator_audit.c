/*
 * Model: one object a refused request, create-only, under an id of its own. It holds what was asked
 * (as far as it could be read), the canonical error with its diagnostics, and times; no field that
 * only a success has. It is made from a copy after the answer, and dropped when too many wait.
 */
#include "allocator/allocator_artifacts.h"

#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/pb.h"
#include "base/text.h"
#include "contract/error_status.h"

#define NOTE_ARENA_BYTES ((size_t)64 << 10)
#define BATCH_PUTS       64

typedef Searchfabric__V1__AllocatorFailureAuditObject audit_object;

/* A text of the request, cut where it is longer than any valid one. */
static char *text_of(const char *text, struct sf_arena *arena)
{
    struct sf_view view = sf_view_str(text == NULL ? "" : text);

    if (view.len > SF_LIMIT_ALLOC_AUDIT_TEXT_BYTES) {
        view.len = SF_LIMIT_ALLOC_AUDIT_TEXT_BYTES;
        while (view.len > 0 && (view.ptr[view.len] & 0xc0) == 0x80)
            view.len--;
    }
    return sf_arena_str(arena, view);
}

/* Fills what is known of the request. */
static void request_fill(const struct sf_alloc_op *op, struct sf_arena *arena, audit_object *object)
{
    const struct sf_alloc_request *r = &op->request;

    object->client_id = text_of(r->client_id, arena);
    object->client_kind = r->client_kind;
    object->authenticated_client_identity_hash = (char *)sf_call_identity(op->call)->hash_hex;
    object->idempotency_key = text_of(r->idempotency_key, arena);
    object->payload_fingerprint = (char *)op->fingerprint;
    object->route_intent = r->route_intent;
    object->plan_shape = (char *)sf_plan_shape_text(r->shape);
    object->issue_item_count = r->issue_count;
    object->explicit_item_count = r->item_count - r->issue_count;
}

void sf_alloc_note_failure(struct sf_alloc_op *op, const char *classification)
{
    struct sf_allocator *a = op->shard->allocator;
    int64_t now = sf_clock_unix_ms(a->deps.clock);
    int64_t took_ns = sf_clock_mono_ns(a->deps.clock) - op->started_ns;
    audit_object object = SEARCHFABRIC__V1__ALLOCATOR_FAILURE_AUDIT_OBJECT__INIT;
    Searchfabric__V1__CollectionRef ref = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    struct sf_buf packed = {0};

    if (a->audit == NULL)
        return;
    struct sf_arena *arena = sf_arena_new(NOTE_ARENA_BYTES);
    ref.namespace_id = op->request.collection.namespace_id.v;
    ref.collection_id = op->request.collection.collection_id.v;
    object.collection = ref.namespace_id == 0 && ref.collection_id == 0 ? NULL : &ref;
    request_fill(op, arena, &object);
    object.replay_classification = (char *)classification;
    object.started_at_unix_ms = now - took_ns / 1000000;
    object.failed_at_unix_ms = now;
    object.duration_us = (uint64_t)took_ns / 1000;
    object.error = sf_error_status_build(sf_call_diag(op->call), arena);
    if (sf_arena_overflowed(arena)) { /* it does not: every part is bounded */
        sf_arena_destroy(arena);
        return;
    }
    sf_pb_pack(&object.base, &packed);
    sf_alloc_feed_push(a->audit, 0, sf_buf_view(&packed));
    sf_buf_fini(&packed);
    sf_arena_destroy(arena);
}

/* ---- the writer ---- */

/* One object on its way. */
struct audit_put {
    struct sf_buf key;  /* of the object */
    struct sf_buf body; /* of the object */
};

/* Prepares the object of one entry; false when the entry does not unpack, which no entry of this
 * process does. */
static bool put_fill(struct sf_allocator *a, const struct sf_alloc_feed_item *item,
                     struct sf_arena *arena, struct audit_put *put)
{
    ProtobufCMessage *message = NULL;
    char attempt[SF_ATTEMPT_ID_BYTES];

    sf_arena_reset(arena);
    if (sf_pb_unpack(&searchfabric__v1__allocator_failure_audit_object__descriptor,
                     sf_view_bytes(item->bytes, item->len), arena, NULL, &message) != SF_OK)
        return false;
    sf_attempts_next(a->deps.attempts, attempt);
    audit_object *object = (audit_object *)message;
    object->attempt_id = attempt;
    object->allocation_attempt_id = attempt;
    sf_alloc_audit_key(attempt, &put->key);
    sf_durable_encode(message, &put->body, NULL);
    return true;
}

/* Sends the puts until each stands or the tries are used up; returns how many stand. */
static size_t puts_send(struct sf_allocator *a, struct audit_put *items, size_t count)
{
    struct sf_put puts[BATCH_PUTS];
    size_t standing = 0;

    for (unsigned tries = 0; count != 0 && tries < SF_LIMIT_ALLOC_TRIES; tries++) {
        size_t left = 0;
        for (size_t i = 0; i < count; i++)
            puts[i] = (struct sf_put){.key = sf_buf_view(&items[i].key),
                                      .body = sf_buf_view(&items[i].body),
                                      .cond = SF_PUT_ABSENT,
                                      .command = (uint32_t)i};
        struct sf_batch batch = {.puts = puts, .count = count};
        sf_store_submit_wait(a->deps.store, a->deps.sched, &batch);
        for (size_t i = 0; i < count; i++) {
            if (puts[i].err == SF_OK || puts[i].err == SF_ERR_PRECONDITION) { /* its own: the id */
                standing++;
                continue;
            }
            struct audit_put again = items[i];
            items[i] = items[left];
            items[left++] = again;
        }
        count = left;
    }
    return standing;
}

size_t sf_alloc_audit_write(void *allocator, const struct sf_alloc_feed_item *first, size_t count)
{
    struct sf_allocator *a = allocator;
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    size_t written = 0;

    (void)count;
    while (first != NULL) {
        struct audit_put items[BATCH_PUTS] = {0};
        size_t n = 0;
        for (; first != NULL && n < BATCH_PUTS; first = first->next)
            n += put_fill(a, first, arena, &items[n]) ? 1 : 0;
        written += n == 0 ? 0 : puts_send(a, items, n);
        for (size_t i = 0; i < BATCH_PUTS; i++) {
            sf_buf_fini(&items[i].key);
            sf_buf_fini(&items[i].body);
        }
    }
    sf_arena_destroy(arena);
    return written;
}
