/*
 * Model: an index is the active collection of its name in the edge's namespace. What a name stands
 * for is remembered together with the validators of the catalog (descriptor etag and name-binding
 * revision) and confirmed by a conditional read on every use; if anything moved, the name is
 * resolved anew. A name that is not there is never remembered.
 *
 * Creating an index is two catalog commands, the collection and its first schema generation, under
 * keys derived from the request's. The generation's token names the key, so that of two racing
 * creators one is told that the index exists, and the retry of the winner that it made it. A crash
 * in between leaves a collection without a schema, which the next creation completes.
 */
#include "gateway/es_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/pb.h"
#include "gateway/es_mapping.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"

#define CATALOG "/searchfabric.v1.CatalogControlService/"
#define PRIVATE "/searchfabric.v1.CatalogControlPrivateService/"

#define BINDING_ARENA_BYTES (4u << 20)

void es_binding_release(struct es_binding *binding)
{
    if (binding == NULL || atomic_fetch_sub(&binding->refs, 1) != 1)
        return;
    sf_plan_schema_destroy(binding->schema);
    sf_arena_destroy(binding->arena);
    free(binding);
}

static void binding_free(void *binding)
{
    es_binding_release(binding);
}

void es_index_fini(struct sf_es *es)
{
    sf_map_destroy(es->bindings, binding_free);
}

/* A counted reference to what is remembered of `name`, or NULL. */
static struct es_binding *cache_get(struct sf_es *es, struct sf_view name)
{
    pthread_mutex_lock(&es->mu);
    struct es_binding *binding = sf_map_get(es->bindings, name);
    if (binding != NULL)
        atomic_fetch_add(&binding->refs, 1);
    pthread_mutex_unlock(&es->mu);
    return binding;
}

static void cache_put(struct sf_es *es, struct sf_view name, struct es_binding *binding)
{
    atomic_fetch_add(&binding->refs, 1);
    pthread_mutex_lock(&es->mu);
    if (sf_map_count(es->bindings) >= SF_LIMIT_ES_NAME_CACHE)
        sf_map_clear(es->bindings, binding_free);
    es_binding_release(sf_map_put(es->bindings, name, binding));
    pthread_mutex_unlock(&es->mu);
}

static void cache_drop(struct sf_es *es, struct sf_view name, const struct es_binding *binding)
{
    pthread_mutex_lock(&es->mu);
    if (sf_map_get(es->bindings, name) == binding)
        es_binding_release(sf_map_del(es->bindings, name));
    pthread_mutex_unlock(&es->mu);
}

static uint64_t namespace_get(struct sf_es *es)
{
    pthread_mutex_lock(&es->mu);
    uint64_t id = es->namespace_id;
    pthread_mutex_unlock(&es->mu);
    return id;
}

static void namespace_set(struct sf_es *es, uint64_t id)
{
    pthread_mutex_lock(&es->mu);
    es->namespace_id = id;
    pthread_mutex_unlock(&es->mu);
}

static enum sf_err namespace_resolve(struct sf_es *es, struct es_request *request,
                                     struct sf_diag *diag, uint64_t *out_id)
{
    Searchfabric__V1__GetNamespaceMetadataRequest get =
        SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__INIT;
    Searchfabric__V1__RequestMeta meta;
    const ProtobufCMessage *message;

    *out_id = namespace_get(es);
    if (*out_id != 0)
        return SF_OK;
    es_meta(es, &meta, "");
    get.meta = &meta;
    get.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_NAME;
    get.namespace_name = (char *)(uintptr_t)es->options.namespace_name;
    enum sf_err err = es_call(es->options.channels.catalog, CATALOG "GetNamespaceMetadata",
                              &get.base, request->arena, diag, &message);
    if (err != SF_OK) {
        sf_diag_wrap(diag, "namespace of the indices");
        return err;
    }
    *out_id = ((const Searchfabric__V1__GetNamespaceMetadataResponse *)(const void *)message)
                  ->descriptor->namespace_id;
    namespace_set(es, *out_id);
    return SF_OK;
}

/* Reads the admission state of a collection; with `known`, conditionally: *out_state is then NULL
 * when nothing moved. */
static enum sf_err state_read(struct sf_es *es, struct es_request *request, uint64_t namespace_id,
                              uint64_t collection_id,
                              const Searchfabric__V1__CollectionAdmissionState *known,
                              struct sf_diag *diag,
                              const Searchfabric__V1__CollectionAdmissionState **out_state)
{
    Searchfabric__V1__GetCollectionAdmissionStateRequest get =
        SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_REQUEST__INIT;
    Searchfabric__V1__CollectionRef ref = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    const ProtobufCMessage *message;

    ref.namespace_id = namespace_id;
    ref.collection_id = collection_id;
    get.collection = &ref;
    if (known != NULL) {
        get._known_descriptor_etag_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_REQUEST___KNOWN_DESCRIPTOR_ETAG_KNOWN_DESCRIPTOR_ETAG;
        get.known_descriptor_etag = known->descriptor_etag;
        get._known_collection_name_binding_revision_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_REQUEST___KNOWN_COLLECTION_NAME_BINDING_REVISION_KNOWN_COLLECTION_NAME_BINDING_REVISION;
        get.known_collection_name_binding_revision = known->collection_name_binding_revision;
    }
    enum sf_err err =
        es_call(es->options.channels.catalog_private, PRIVATE "GetCollectionAdmissionState",
                &get.base, request->arena, diag, &message);
    if (err != SF_OK)
        return err;
    const Searchfabric__V1__GetCollectionAdmissionStateResponse *response =
        (const Searchfabric__V1__GetCollectionAdmissionStateResponse *)(const void *)message;
    *out_state = NULL;
    if (response->result_case ==
        SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_STATE)
        *out_state = response->state;
    else if (known == NULL)
        return sf_diag_set(diag, SF_INTERNAL, "the catalog's answer holds no admission state");
    return SF_OK;
}

/* True when the remembered binding still holds. */
static bool cache_confirm(struct sf_es *es, struct es_request *request,
                          const struct es_binding *binding)
{
    const Searchfabric__V1__CollectionAdmissionState *state;
    struct sf_diag diag;

    sf_diag_init(&diag);
    return state_read(es, request, binding->namespace_id, binding->collection_id, binding->state,
                      &diag, &state) == SF_OK &&
           state == NULL;
}

static struct es_binding *binding_new(const Searchfabric__V1__CollectionAdmissionState *state)
{
    struct es_binding *binding = sf_calloc(1, sizeof(*binding));

    atomic_init(&binding->refs, 1);
    binding->namespace_id = state->collection->namespace_id;
    binding->collection_id = state->collection->collection_id;
    binding->arena = sf_arena_new(BINDING_ARENA_BYTES);
    binding->state = (Searchfabric__V1__CollectionAdmissionState *)(void *)sf_pb_dup(
        &state->base, binding->arena);
    if (binding->state == NULL) {
        es_binding_release(binding);
        return NULL;
    }
    binding->schema = sf_plan_schema_new(binding->state);
    return binding;
}

/* Asks the catalog for the collection of a name; 0 = there is none. */
static enum sf_err name_resolve(struct sf_es *es, struct es_request *request, struct sf_view name,
                                struct sf_diag *diag, uint64_t *out_namespace_id,
                                uint64_t *out_collection_id)
{
    Searchfabric__V1__ResolveCollectionNameBindingRequest resolve =
        SEARCHFABRIC__V1__RESOLVE_COLLECTION_NAME_BINDING_REQUEST__INIT;
    Searchfabric__V1__CollectionNameBinding binding =
        SEARCHFABRIC__V1__COLLECTION_NAME_BINDING__INIT;
    const ProtobufCMessage *message;

    enum sf_err err = namespace_resolve(es, request, diag, out_namespace_id);
    if (err != SF_OK)
        return err;
    binding.namespace_id = *out_namespace_id;
    binding.collection_name = sf_arena_str(request->arena, name);
    if (binding.collection_name == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the request exceeds its memory");
    resolve.name_binding = &binding;
    err = es_call(es->options.channels.catalog_private, PRIVATE "ResolveCollectionNameBinding",
                  &resolve.base, request->arena, diag, &message);
    if (err == SF_RESOURCE_NOT_FOUND)
        namespace_set(es, 0); /* the namespace went: look its name up again next time */
    if (err != SF_OK)
        return err;
    const Searchfabric__V1__ResolveCollectionNameBindingResponse *response =
        (const Searchfabric__V1__ResolveCollectionNameBindingResponse *)(const void *)message;
    *out_collection_id = response->collection == NULL ? 0 : response->collection->collection_id;
    return SF_OK;
}

static enum sf_err no_such_index(struct sf_view name, struct sf_diag *diag)
{
    return sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such index [%.*s]", (int)name.len,
                       (const char *)name.ptr);
}

enum sf_err es_index_resolve(struct sf_es *es, struct es_request *request, struct sf_view name,
                             struct sf_diag *diag, struct es_binding **out_binding)
{
    const Searchfabric__V1__CollectionAdmissionState *state = NULL;
    uint64_t namespace_id = 0;
    uint64_t collection_id = 0;
    struct es_binding *binding = cache_get(es, name);

    if (binding != NULL) {
        if (cache_confirm(es, request, binding)) {
            *out_binding = binding;
            return SF_OK;
        }
        cache_drop(es, name, binding);
        es_binding_release(binding);
    }
    enum sf_err err = name_resolve(es, request, name, diag, &namespace_id, &collection_id);
    if (err != SF_OK)
        return err;
    if (collection_id == 0)
        return no_such_index(name, diag);
    err = state_read(es, request, namespace_id, collection_id, NULL, diag, &state);
    if (err == SF_RESOURCE_NOT_FOUND)
        return no_such_index(name, diag);
    if (err != SF_OK)
        return err;
    SF_ASSERT(state != NULL); /* the read was unconditional */
    binding = binding_new(state);
    if (binding == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the schema of the index exceeds its memory");
    cache_put(es, name, binding);
    *out_binding = binding;
    return SF_OK;
}

/* ---- creation -------------------------------------------------------------------------------- */

static enum sf_err put_collection(struct sf_es *es, struct es_request *request,
                                  uint64_t namespace_id, struct sf_view name, struct sf_diag *diag,
                                  uint64_t *out_collection_id)
{
    Searchfabric__V1__PutCollectionMetadataRequest put =
        SEARCHFABRIC__V1__PUT_COLLECTION_METADATA_REQUEST__INIT;
    Searchfabric__V1__CollectionNameBinding binding =
        SEARCHFABRIC__V1__COLLECTION_NAME_BINDING__INIT;
    Searchfabric__V1__EncryptionPolicy encryption = SEARCHFABRIC__V1__ENCRYPTION_POLICY__INIT;
    Searchfabric__V1__ProviderManagedEncryption provider =
        SEARCHFABRIC__V1__PROVIDER_MANAGED_ENCRYPTION__INIT;
    Searchfabric__V1__RequestMeta meta;
    char key[SF_SHA256_HEX_BYTES];
    const ProtobufCMessage *message;

    es_key(request, "collection", name, 0, 0, key);
    es_meta(es, &meta, key);
    binding.namespace_id = namespace_id;
    binding.collection_name = sf_arena_str(request->arena, name);
    if (binding.collection_name == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the request exceeds its memory");
    encryption.mode_case = SEARCHFABRIC__V1__ENCRYPTION_POLICY__MODE_PROVIDER_MANAGED;
    encryption.provider_managed = &provider;
    put.meta = &meta;
    put.name_binding = &binding;
    put.encryption = &encryption;
    put.collection_truth_mode =
        SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_SEARCH_FABRIC;
    enum sf_err err = es_call(es->options.channels.catalog, CATALOG "PutCollectionMetadata",
                              &put.base, request->arena, diag, &message);
    if (err != SF_OK)
        return err;
    *out_collection_id =
        ((const Searchfabric__V1__PutCollectionMetadataResponse *)(const void *)message)
            ->descriptor->collection->collection_id;
    return SF_OK;
}

static enum sf_err put_schema(struct sf_es *es, struct es_request *request, uint64_t namespace_id,
                              uint64_t collection_id, struct sf_view name,
                              Searchfabric__V1__CollectionSchemaDefinition *definition,
                              struct sf_diag *diag)
{
    Searchfabric__V1__PutCollectionSchemaRequest put =
        SEARCHFABRIC__V1__PUT_COLLECTION_SCHEMA_REQUEST__INIT;
    Searchfabric__V1__SchemaFencePrecondition fence =
        SEARCHFABRIC__V1__SCHEMA_FENCE_PRECONDITION__INIT;
    Searchfabric__V1__CollectionRef ref = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    Searchfabric__V1__RequestMeta meta;
    char key[SF_SHA256_HEX_BYTES];
    char token[32];
    const ProtobufCMessage *message;

    es_key(request, "schema", name, 0, 0, key);
    es_meta(es, &meta, key);
    (void)snprintf(token, sizeof(token), "es-1-%.16s", key);
    ref.namespace_id = namespace_id;
    ref.collection_id = collection_id;
    fence.schema_generation_token = token;
    fence._expected_prev_schema_version_case =
        SEARCHFABRIC__V1__SCHEMA_FENCE_PRECONDITION___EXPECTED_PREV_SCHEMA_VERSION_EXPECTED_PREV_SCHEMA_VERSION;
    put.meta = &meta;
    put.collection = &ref;
    put.schema_version = 1;
    put.fence = &fence;
    put.definition = definition;
    put.active_schema_update_policy =
        SEARCHFABRIC__V1__ACTIVE_SCHEMA_UPDATE_POLICY__ACTIVE_SCHEMA_UPDATE_POLICY_COMPATIBLE_ONLY;
    enum sf_err err = es_call(es->options.channels.catalog, CATALOG "PutCollectionSchema",
                              &put.base, request->arena, diag, &message);
    if (err == SF_VERSION_CONFLICT || err == SF_IDEMPOTENCY_CONFLICT)
        return sf_diag_set(diag, SF_ERR_EXISTS, "index [%.*s] already exists", (int)name.len,
                           (const char *)name.ptr);
    return err;
}

/* Of many that create one index, the losers' update meets the winner's collection. */
static bool created_meanwhile(struct sf_es *es, struct es_request *request, struct sf_view name,
                              uint64_t *out_collection_id)
{
    uint64_t namespace_id = 0;
    struct sf_diag diag;

    sf_diag_init(&diag);
    return name_resolve(es, request, name, &diag, &namespace_id, out_collection_id) == SF_OK &&
           *out_collection_id != 0;
}

enum sf_err es_index_create(struct sf_es *es, struct es_request *request, struct sf_view name,
                            Searchfabric__V1__CollectionSchemaDefinition *definition,
                            struct sf_diag *diag)
{
    uint64_t namespace_id = 0;
    uint64_t collection_id = 0;

    enum sf_err err = name_resolve(es, request, name, diag, &namespace_id, &collection_id);
    if (err == SF_OK && collection_id == 0)
        err = put_collection(es, request, namespace_id, name, diag, &collection_id);
    if (err == SF_VERSION_CONFLICT && created_meanwhile(es, request, name, &collection_id))
        err = SF_OK;
    /* An index that is there is settled by the schema's fence, which also knows a retry. */
    if (err == SF_OK)
        err = put_schema(es, request, namespace_id, collection_id, name, definition, diag);
    return err;
}

enum sf_err es_index_delete(struct sf_es *es, struct es_request *request, struct sf_view name,
                            struct sf_diag *diag)
{
    Searchfabric__V1__DropCollectionRequest drop = SEARCHFABRIC__V1__DROP_COLLECTION_REQUEST__INIT;
    Searchfabric__V1__CollectionRef ref = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    Searchfabric__V1__RequestMeta meta;
    struct es_binding *binding = NULL;
    char key[SF_SHA256_HEX_BYTES];
    const ProtobufCMessage *message;

    enum sf_err err = es_index_resolve(es, request, name, diag, &binding);
    if (err != SF_OK)
        return err;
    SF_ASSERT(binding != NULL);
    ref.namespace_id = binding->namespace_id;
    ref.collection_id = binding->collection_id;
    cache_drop(es, name, binding);
    es_binding_release(binding);
    es_key(request, "drop", name, 0, 0, key);
    es_meta(es, &meta, key);
    drop.meta = &meta;
    drop.collection = &ref;
    return es_call(es->options.channels.catalog, CATALOG "DropCollection", &drop.base,
                   request->arena, diag, &message);
}

enum sf_err es_index_describe(struct sf_es *es, struct es_request *request, struct sf_view name,
                              struct sf_diag *diag, struct sf_buf *out)
{
    Searchfabric__V1__GetCollectionSchemaRequest get =
        SEARCHFABRIC__V1__GET_COLLECTION_SCHEMA_REQUEST__INIT;
    Searchfabric__V1__CollectionRef ref = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    Searchfabric__V1__CollectionSchemaDefinition empty =
        SEARCHFABRIC__V1__COLLECTION_SCHEMA_DEFINITION__INIT;
    const Searchfabric__V1__CollectionSchemaDefinition *definition = &empty;
    Searchfabric__V1__RequestMeta meta;
    struct es_binding *binding = NULL;
    const ProtobufCMessage *message;

    enum sf_err err = es_index_resolve(es, request, name, diag, &binding);
    if (err != SF_OK)
        return err;
    SF_ASSERT(binding != NULL);
    es_meta(es, &meta, "");
    ref.namespace_id = binding->namespace_id;
    ref.collection_id = binding->collection_id;
    es_binding_release(binding);
    get.meta = &meta;
    get.collection = &ref;
    err = es_call(es->options.channels.catalog, CATALOG "GetCollectionSchema", &get.base,
                  request->arena, diag, &message);
    if (err == SF_OK)
        definition = ((const Searchfabric__V1__GetCollectionSchemaResponse *)(const void *)message)
                         ->schema->definition;
    else if (err != SF_CATALOG_UNAVAILABLE)
        return err; /* without a schema yet there is simply nothing mapped */
    sf_buf_append_str(out, "{");
    sf_json_append_string(out, name);
    sf_buf_append_str(out, ":{\"aliases\":{},");
    sf_es_mapping_write(definition, out);
    sf_buf_append_str(out, "}}");
    return SF_OK;
}
