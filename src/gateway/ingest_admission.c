/*
 * Model: admission state is never trusted for a time, only for as long as the catalog says that it
 * still holds: each batch waits for a conditional read that began after it came in. Reads of
 * one collection are shared: while one is under way, later batches gather for the next, so a busy
 * collection costs one read per round trip, and what was planned keeps the order of arrival.
 */
#include "gateway/ingest_priv.h"

#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/pb.h"

#define READ_METHOD     "/searchfabric.v1.CatalogControlPrivateService/GetCollectionAdmissionState"
#define READ_TIMEOUT_MS 10000

static void read_start(struct ingest_collection *collection);

void ingest_collection_destroy(void *ptr)
{
    struct ingest_collection *collection = ptr;

    if (collection == NULL)
        return;
    SF_ASSERT(collection->current.head == NULL && collection->waiting.head == NULL);
    sf_plan_schema_destroy(collection->schema);
    sf_arena_destroy(collection->arena);
    free(collection);
}

static void state_drop(struct ingest_collection *collection)
{
    sf_plan_schema_destroy(collection->schema);
    sf_arena_destroy(collection->arena);
    collection->schema = NULL;
    collection->arena = NULL;
    collection->state = NULL;
}

/* Takes over a state that the catalog sent. */
static enum sf_err state_set(struct ingest_collection *collection,
                             const Searchfabric__V1__CollectionAdmissionState *state,
                             struct sf_diag *diag)
{
    struct sf_arena *arena = sf_arena_new(SF_LIMIT_RPC_ARENA_BYTES);
    ProtobufCMessage *copy = sf_pb_dup(&state->base, arena);

    state_drop(collection);
    if (copy == NULL) {
        sf_arena_destroy(arena);
        return sf_diag_set(diag, SF_INTERNAL, "the admission state exceeds its memory");
    }
    collection->arena = arena;
    collection->state = (Searchfabric__V1__CollectionAdmissionState *)(void *)copy;
    collection->schema = sf_plan_schema_new(collection->state);
    return SF_OK;
}

/* The state of the catalog's answer, or why there is none. */
static enum sf_err read_result(struct ingest_collection *collection, const struct sf_diag *answer,
                               const ProtobufCMessage *message, struct sf_diag *diag)
{
    const Searchfabric__V1__GetCollectionAdmissionStateResponse *response =
        (const Searchfabric__V1__GetCollectionAdmissionStateResponse *)(const void *)message;

    if (answer->err != SF_OK) {
        *diag = *answer;
        state_drop(collection);
        if (sf_err_info(diag->err)->cls == SF_CLASS_RETRY_LATER &&
            sf_diag_get(diag, "failing_authority") == NULL &&
            sf_err_public(diag->err) == SF_BACKEND_UNAVAILABLE)
            sf_diag_detail(diag, "failing_authority", "catalog");
        return diag->err;
    }
    switch (response->result_case) {
    case SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_STATE:
        return state_set(collection, response->state, diag);
    case SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_NOT_MODIFIED:
        if (collection->state != NULL)
            return SF_OK;
        break;
    default:
        break;
    }
    return sf_diag_set(diag, SF_INTERNAL, "the catalog's answer holds no admission state");
}

/* The catalog is asked no more. */
static void refuse_closing(struct ingest_batch *batch)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, SF_BACKEND_UNAVAILABLE, "the ingest gateway is shutting down");
    sf_diag_detail(&diag, "failing_authority", "ingest");
    ingest_batch_answer(batch, &diag);
}

static void on_read(void *user, const struct sf_diag *answer, const ProtobufCMessage *message)
{
    struct ingest_collection *collection = user;
    struct sf_diag diag;
    struct ingest_batch *batch;

    sf_diag_init(&diag);
    enum sf_err err = read_result(collection, answer, message, &diag);
    collection->reading = false;
    while ((batch = ingest_queue_pop(&collection->current)) != NULL)
        ingest_batch_admit(batch, collection, err == SF_OK ? NULL : &diag);
    while (collection->link->closing && (batch = ingest_queue_pop(&collection->waiting)) != NULL)
        refuse_closing(batch);
    if (collection->waiting.head != NULL)
        read_start(collection);
}

static void read_start(struct ingest_collection *collection)
{
    Searchfabric__V1__GetCollectionAdmissionStateRequest *request = &collection->request;
    const struct sf_call_options options = {.timeout_ms = READ_TIMEOUT_MS};

    collection->current = collection->waiting;
    collection->waiting = (struct ingest_queue){0};
    collection->reading = true;

    searchfabric__v1__collection_ref__init(&collection->ref);
    collection->ref.namespace_id = collection->key[0];
    collection->ref.collection_id = collection->key[1];
    searchfabric__v1__get_collection_admission_state_request__init(request);
    request->collection = &collection->ref;
    if (collection->state != NULL) {
        request->_known_descriptor_etag_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_REQUEST___KNOWN_DESCRIPTOR_ETAG_KNOWN_DESCRIPTOR_ETAG;
        request->known_descriptor_etag = collection->state->descriptor_etag;
        request->_known_collection_name_binding_revision_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_REQUEST___KNOWN_COLLECTION_NAME_BINDING_REVISION_KNOWN_COLLECTION_NAME_BINDING_REVISION;
        request->known_collection_name_binding_revision =
            collection->state->collection_name_binding_revision;
    }
    sf_channel_unary(collection->link->ingest->deps.catalog, READ_METHOD, &request->base, &options,
                     collection->link->loop, on_read, collection);
}

/* Makes room by dropping the oldest collection that nobody waits for. */
static void evict_one(struct ingest_link *link)
{
    struct sf_map_iter iter = {0};

    while (sf_map_next(link->collections, &iter)) {
        struct ingest_collection *collection = iter.value;
        if (collection->reading || collection->waiting.head != NULL)
            continue;
        (void)sf_map_del(link->collections, iter.key);
        ingest_collection_destroy(collection);
        return;
    }
}

void ingest_admission_get(struct ingest_link *link, struct ingest_batch *batch)
{
    const uint64_t key[2] = {batch->batch->collection->namespace_id,
                             batch->batch->collection->collection_id};
    struct sf_view view = sf_view_bytes(key, sizeof(key));
    struct ingest_collection *collection = sf_map_get(link->collections, view);

    if (link->closing) {
        refuse_closing(batch);
        return;
    }
    if (collection == NULL) {
        if (sf_map_count(link->collections) >= SF_LIMIT_INGEST_CACHE_ENTRIES)
            evict_one(link);
        collection = sf_calloc(1, sizeof(*collection));
        collection->link = link;
        memcpy(collection->key, key, sizeof(key));
        (void)sf_map_put(link->collections, view, collection);
    }
    ingest_queue_push(&collection->waiting, batch);
    if (!collection->reading)
        read_start(collection);
}
