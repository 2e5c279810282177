/*
 * Model: two objects. The state object of a collection holds the watermark, who owns it, and the
 * complete records of applies whose own object is not known to stand; members that this build does
 * not know are carried on. The replay-success object of a request holds all that a repeat is
 * answered from: realized ids, token and receipt, exactly as returned. Both are canonical JSON with
 * a checksum (object/durable.h); what is read is checked against the key it was read from.
 */
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_priv.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/pb.h"

/* Signs the receipt into record->allocator_receipt; false when the arena is full. */
static bool receipt_build(struct sf_alloc_op *op, sf_replay_record *record)
{
    struct sf_receipt_facts facts = {.identity_hash_hex =
                                         record->authenticated_client_identity_hash,
                                     .client_id = record->client_id,
                                     .client_kind = record->client_kind,
                                     .collection = op->request.collection,
                                     .route_intent = record->route_intent,
                                     .transport_lookup_key = record->transport_lookup_key,
                                     .payload_fingerprint = record->payload_fingerprint,
                                     .items = op->request.items,
                                     .item_count = op->request.item_count,
                                     .schema_generation_token = record->schema_generation_token,
                                     .applied_at_unix_ms = record->applied_at_unix_ms};
    struct sf_arena *arena = sf_call_arena(op->call);
    struct sf_buf receipt = {0};
    struct sf_view key_id = {0};

    sf_receipt_sign(op->shard->allocator->deps.keyring, &facts, &receipt);
    bool is_token = sf_token_key_id(sf_buf_view(&receipt), &key_id);
    SF_ASSERT(is_token);
    record->allocator_receipt.data = sf_arena_dup(arena, receipt.data, receipt.len);
    record->allocator_receipt.len = receipt.len;
    record->key_id = sf_arena_str(arena, key_id);
    sf_buf_fini(&receipt);
    return record->allocator_receipt.data != NULL && record->key_id != NULL;
}

sf_replay_record *sf_alloc_record_build(struct sf_alloc_op *op, const struct sf_alloc_state *after)
{
    struct sf_arena *arena = sf_call_arena(op->call);
    const struct sf_alloc_request *request = &op->request;
    sf_replay_record *record = sf_arena_alloc(arena, sizeof(*record));

    if (record == NULL)
        return NULL;
    searchfabric__v1__allocator_replay_success_object__init(record);
    record->transport_lookup_key = op->key;
    record->idempotency_key = (char *)request->idempotency_key;
    record->authenticated_client_identity_hash = (char *)sf_call_identity(op->call)->hash_hex;
    record->client_id = (char *)request->client_id;
    record->client_kind = request->client_kind;
    record->namespace_id = request->collection.namespace_id.v;
    record->collection_id = request->collection.collection_id.v;
    record->route_intent = request->route_intent;
    record->payload_fingerprint = op->fingerprint;
    record->schema_generation_token = sf_arena_str(arena, sf_view_str(op->lane->facts.token));
    record->created_at_unix_ms = op->lane->group->applied_at_unix_ms;
    record->applied_at_unix_ms = op->lane->group->applied_at_unix_ms;
    record->allocation_epoch = after->epoch;
    if (op->lane->group->local)
        record->lease_epoch = after->lease.epoch;
    else
        record->allocator_state_version = after->version;
    if (record->schema_generation_token == NULL || !sf_alloc_items_store(request, arena, record) ||
        !receipt_build(op, record))
        return NULL;
    return record;
}

uint64_t sf_alloc_record_version(const sf_replay_record *record)
{
    return record->lease_epoch != 0 ? record->lease_epoch : record->allocator_state_version;
}

void sf_alloc_record_encode(const sf_replay_record *record, const char *attempt,
                            struct sf_buf *out_body)
{
    sf_replay_record object = *record;

    object.attempt_id = (char *)attempt;
    sf_durable_encode(&object.base, out_body, NULL);
}

/* Stored bytes that are not what their key promises. */
static enum sf_err corrupt(struct sf_diag *diag, const char *what)
{
    sf_diag_set(diag, SF_INTERNAL, "allocator object does not verify: %s", what);
    sf_diag_area(diag, "allocator");
    return SF_INTERNAL;
}

bool sf_alloc_record_whole(const sf_replay_record *record)
{
    return strlen(record->transport_lookup_key) == SF_SHA256_HEX_BYTES - 1 &&
           strlen(record->payload_fingerprint) == SF_SHA256_HEX_BYTES - 1 &&
           sf_alloc_items_whole(record);
}

bool sf_alloc_record_is_at(const sf_replay_record *record, struct sf_view object_key)
{
    struct sf_buf own = {0};

    if (!sf_alloc_record_whole(record))
        return false;
    sf_alloc_replay_key(record->transport_lookup_key, &own);
    bool same = sf_view_equal(sf_buf_view(&own), object_key);
    sf_buf_fini(&own);
    return same;
}

enum sf_err sf_alloc_record_decode(struct sf_view body, const char *key, struct sf_arena *arena,
                                   struct sf_diag *diag, sf_replay_record **out_record)
{
    ProtobufCMessage *message = NULL;
    struct sf_diag why;

    sf_diag_init(&why);
    if (sf_durable_decode(&searchfabric__v1__allocator_replay_success_object__descriptor, body,
                          arena, &why, &message) != SF_OK)
        return corrupt(diag, why.message);
    sf_replay_record *record = (sf_replay_record *)message;
    if (!sf_alloc_record_whole(record) || strcmp(record->transport_lookup_key, key) != 0)
        return corrupt(diag, "the replay object is not the one of its key");
    *out_record = record;
    return SF_OK;
}

void sf_alloc_state_encode(struct sf_alloc_lane *lane, const struct sf_alloc_state *after,
                           const char *attempt, sf_replay_record *const *fresh, size_t fresh_count,
                           struct sf_buf *out_body)
{
    Searchfabric__V1__AllocatorStateObject object = SEARCHFABRIC__V1__ALLOCATOR_STATE_OBJECT__INIT;
    Searchfabric__V1__AllocatorLease lease = SEARCHFABRIC__V1__ALLOCATOR_LEASE__INIT;
    char next[SF_ALLOC_DECIMAL_BYTES];
    char start[SF_ALLOC_DECIMAL_BYTES];
    size_t count = lane->pending_count + fresh_count;
    sf_replay_record **list = sf_malloc((count + 1) * sizeof(sf_replay_record *));
    struct sf_arena *arena = NULL;

    if (lane->pending_count != 0 || lane->unknown.len != 0)
        arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    for (size_t i = 0; i < lane->pending_count; i++) {
        ProtobufCMessage *message = NULL;
        enum sf_err err =
            sf_pb_unpack(&searchfabric__v1__allocator_replay_success_object__descriptor,
                         sf_buf_view(&lane->pending[i].record), arena, NULL, &message);
        SF_ASSERT(err == SF_OK); /* packed by this process */
        list[i] = (sf_replay_record *)message;
    }
    memcpy(list + lane->pending_count, fresh, fresh_count * sizeof(sf_replay_record *));
    sf_watermark_text(after->mark, next);
    sf_watermark_text(after->lease.start, start);
    if (lane->unknown.len != 0) {
        ProtobufCMessage *message = NULL;
        enum sf_err err = sf_pb_unpack(&searchfabric__v1__allocator_state_object__descriptor,
                                       sf_buf_view(&lane->unknown), arena, NULL, &message);
        SF_ASSERT(err == SF_OK);
        object.base.n_unknown_fields = message->n_unknown_fields;
        object.base.unknown_fields = message->unknown_fields;
    }
    object.attempt_id = (char *)attempt;
    object.namespace_id = lane->collection.namespace_id.v;
    object.collection_id = lane->collection.collection_id.v;
    object.next_doc_id = next;
    object.allocation_epoch = after->epoch;
    object.allocator_state_version = after->version;
    object.owner_id = lane->shard->allocator->deps.attempts->process;
    object.pending_applies = list;
    object.n_pending_applies = count;
    object.updated_at_unix_ms = after->updated_at_unix_ms;
    if (after->lease.live) {
        lease.range_start = start;
        lease.range_end = next; /* a lease always ends at the watermark */
        lease.lease_epoch = after->lease.epoch;
        lease.owner_id = object.owner_id;
        lease.allocation_epoch = after->epoch;
        lease.lease_policy_version = SF_LEASE_POLICY_VERSION;
        object.lease = &lease;
    }
    sf_durable_encode(&object.base, out_body, NULL);
    sf_arena_destroy(arena);
    free(list);
}

/* Takes the recorded lease of a state object over; false when it is no range below next_doc_id. */
static bool lease_read(const Searchfabric__V1__AllocatorStateObject *object,
                       struct sf_alloc_loaded *loaded)
{
    struct sf_alloc_lease *lease = &loaded->state.lease;
    struct sf_watermark end;

    if (object->lease == NULL)
        return true;
    loaded->lease_recorded = true;
    lease->epoch = object->lease->lease_epoch;
    return sf_watermark_parse(sf_view_str(object->lease->range_start), &lease->start) &&
           sf_watermark_parse(sf_view_str(object->lease->range_end), &end) &&
           sf_watermark_compare(lease->start, end) <= 0 &&
           sf_watermark_compare(end, loaded->state.mark) <= 0;
}

/* Packs what this build does not know of a state object, alone, so that it can be carried on. */
static void unknown_keep(const Searchfabric__V1__AllocatorStateObject *object, struct sf_buf *out)
{
    Searchfabric__V1__AllocatorStateObject only = SEARCHFABRIC__V1__ALLOCATOR_STATE_OBJECT__INIT;

    sf_buf_clear(out);
    if (object->base.n_unknown_fields == 0)
        return;
    only.base.n_unknown_fields = object->base.n_unknown_fields;
    only.base.unknown_fields = object->base.unknown_fields;
    sf_pb_pack(&only.base, out);
}

enum sf_err sf_alloc_state_open(struct sf_view body, struct sf_collection_ref collection,
                                struct sf_arena *arena, struct sf_diag *diag,
                                Searchfabric__V1__AllocatorStateObject **out_object,
                                struct sf_alloc_loaded *out_loaded)
{
    ProtobufCMessage *message = NULL;
    struct sf_diag why;

    *out_loaded = (struct sf_alloc_loaded){0};
    sf_diag_init(&why);
    if (sf_durable_decode(&searchfabric__v1__allocator_state_object__descriptor, body, arena, &why,
                          &message) != SF_OK)
        return corrupt(diag, why.message);
    Searchfabric__V1__AllocatorStateObject *object = (void *)message;
    if (object->namespace_id != collection.namespace_id.v ||
        object->collection_id != collection.collection_id.v)
        return corrupt(diag, "the state object is of another collection");
    if (!sf_watermark_parse(sf_view_str(object->next_doc_id), &out_loaded->state.mark))
        return corrupt(diag, "next_doc_id is not a number");
    if (!lease_read(object, out_loaded))
        return corrupt(diag, "the lease is not a range below next_doc_id");
    for (size_t i = 0; i < object->n_pending_applies; i++)
        if (!sf_alloc_record_whole(object->pending_applies[i]))
            return corrupt(diag, "a pending apply is not whole");
    *out_object = object;
    out_loaded->state.epoch = object->allocation_epoch;
    out_loaded->state.version = object->allocator_state_version;
    out_loaded->state.updated_at_unix_ms = object->updated_at_unix_ms;
    out_loaded->attempt_id = object->attempt_id;
    out_loaded->owner_id = object->owner_id;
    out_loaded->pending = object->pending_applies;
    out_loaded->pending_count = object->n_pending_applies;
    return SF_OK;
}

enum sf_err sf_alloc_state_read_wait(struct sf_store *store, struct sf_sched *sched,
                                     struct sf_collection_ref collection, struct sf_arena *arena,
                                     struct sf_diag *diag,
                                     Searchfabric__V1__AllocatorStateObject **out_object,
                                     struct sf_watermark *out_mark, struct sf_etag *out_etag)
{
    struct sf_alloc_loaded loaded = {0};
    struct sf_buf key = {0};
    struct sf_buf body = {0};

    sf_alloc_state_key(collection, &key);
    enum sf_err err = sf_store_get_wait(store, sched, sf_buf_view(&key), &body, out_etag);
    if (err == SF_OK)
        err = sf_alloc_state_open(sf_buf_view(&body), collection, arena, diag, out_object, &loaded);
    *out_mark = loaded.state.mark;
    sf_buf_fini(&key);
    sf_buf_fini(&body);
    return err;
}

enum sf_err sf_alloc_state_decode(struct sf_view body, struct sf_alloc_lane *lane,
                                  struct sf_arena *arena, struct sf_diag *diag,
                                  struct sf_alloc_loaded *out_loaded)
{
    Searchfabric__V1__AllocatorStateObject *object = NULL;
    enum sf_err err = sf_alloc_state_open(body, lane->collection, arena, diag, &object, out_loaded);

    if (err == SF_OK)
        unknown_keep(object, &lane->unknown);
    return err;
}

enum sf_err sf_alloc_mark_decode(struct sf_view body, struct sf_arena *arena, struct sf_diag *diag,
                                 int64_t *out_restored_at_unix_ms)
{
    ProtobufCMessage *message = NULL;
    struct sf_diag why;

    sf_diag_init(&why);
    if (sf_durable_decode(&searchfabric__v1__alloc_restore_mark_object__descriptor, body, arena,
                          &why, &message) != SF_OK)
        return corrupt(diag, why.message);
    *out_restored_at_unix_ms =
        ((const Searchfabric__V1__AllocRestoreMarkObject *)message)->restored_at_unix_ms;
    return SF_OK;
}

enum sf_err sf_alloc_each_page_wait(struct sf_store *store, struct sf_sched *sched,
                                    const char *prefix, sf_alloc_page_fn take, void *user)
{
    struct sf_buf after = {0};
    size_t count = SF_LIMIT_LIST_PAGE_ENTRIES;
    enum sf_err err = SF_OK;

    while (err == SF_OK && count == SF_LIMIT_LIST_PAGE_ENTRIES) {
        struct sf_arena *page = sf_arena_new(SF_ALLOC_DECODE_BYTES);
        struct sf_list_entry *entries = NULL;
        count = 0;
        err = sf_store_list_wait(store, sched, sf_view_str(prefix), sf_buf_view(&after),
                                 SF_LIMIT_LIST_PAGE_ENTRIES, page, &entries, &count);
        if (err == SF_OK && count != 0) {
            err = take(user, entries, count);
            sf_buf_clear(&after);
            sf_buf_append(&after, entries[count - 1].key.ptr, entries[count - 1].key.len);
        }
        sf_arena_destroy(page);
    }
    sf_buf_fini(&after);
    return err;
}
