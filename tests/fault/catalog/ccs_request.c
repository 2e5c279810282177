/* Requests of the small ops that the history keeps. */
#include "fault/catalog/ccs_history.h"

static const char *const methods[OP_COUNT] = {
    [OP_PUT_NS] = PUBLIC "PutNamespaceMetadata",
    [OP_PUT_COLL] = PUBLIC "PutCollectionMetadata",
    [OP_SCHEMA] = PUBLIC "PutCollectionSchema",
    [OP_DROP] = PUBLIC "DropCollection",
    [OP_TRANSITION] = PRIVATE "SubmitNamespaceLifecycleTransition",
    [OP_HEAD] = PRIVATE "SubmitHeadAdvanceIntent",
    [OP_SWEEP] = PRIVATE "RunReleaseSweep",
    [OP_GET_NS] = PUBLIC "GetNamespaceMetadata",
    [OP_GET_COLL] = PUBLIC "GetCollectionMetadata",
    [OP_RESOLVE] = PRIVATE "ResolveCollectionNameBinding",
    [OP_LIST_NS] = PUBLIC "ListNamespaces",
    [OP_LIST_COLL] = PUBLIC "ListCollections",
    [OP_GET_SCHEMA] = PUBLIC "GetCollectionSchema",
    [OP_ADMISSION] = PRIVATE "GetCollectionAdmissionState",
};

const char *op_method(enum op_kind kind)
{
    return methods[kind];
}

const char *op_text(const struct op *op, char out[160])
{
    snprintf(out, 160,
             "%s n%d c%d ns %" PRIu64 " coll %" PRIu64 " key '%s' value %" PRIu64
             " version %" PRIu64 " expected %" PRId64 " target %" PRIu64 "%s",
             strrchr(methods[op->kind], '/') + 1, op->ns_name, op->coll_name, op->ns_id,
             op->coll_id, op->key, op->value, op->version, op->expected, op->target,
             op->fenced ? " fenced" : "");
    return out;
}

static void *make(struct sf_arena *arena, size_t size)
{
    void *memory = sf_arena_alloc(arena, size);
    SF_ASSERT(memory != NULL);
    return memory;
}

#define MAKE(type, init, name)                                                                     \
    SF_PB(type) *name = make(arena, sizeof(SF_PB(type)));                                          \
    searchfabric__v1__##init##__init(name)

static SF_PB(RequestMeta) * meta_of(const struct op *op, struct sf_arena *arena)
{
    struct parts *parts = make(arena, sizeof(*parts));
    parts_init(parts, sf_arena_str(arena, sf_view_str(op->key)));
    return &parts->meta;
}

static SF_PB(EncryptionPolicy) * encryption_in(struct sf_arena *arena)
{
    struct parts *parts = make(arena, sizeof(*parts));
    parts_init(parts, "");
    return &parts->encryption;
}

static SF_PB(DescriptorOptions) * options_of(const struct op *op, struct sf_arena *arena)
{
    struct parts *parts = make(arena, sizeof(*parts));
    parts_init(parts, "");
    snprintf(parts->value, sizeof(parts->value), "%" PRIu64, op->value);
    return &parts->options;
}

static char *ns_name_of(const struct op *op, struct sf_arena *arena)
{
    return sf_arena_printf(arena, "n%d", op->ns_name);
}

static SF_PB(CollectionNameBinding) * binding_of(const struct op *op, struct sf_arena *arena)
{
    MAKE(CollectionNameBinding, collection_name_binding, binding);
    binding->namespace_id = op->ns_id;
    binding->collection_name = sf_arena_printf(arena, "c%d", op->coll_name);
    return binding;
}

static SF_PB(CollectionRef) * ref_of(const struct op *op, struct sf_arena *arena)
{
    MAKE(CollectionRef, collection_ref, ref);
    ref->namespace_id = op->ns_id;
    ref->collection_id = op->coll_id;
    return ref;
}

static SF_PB(SchemaFencePrecondition) * fence_of(const struct op *op, struct sf_arena *arena)
{
    MAKE(SchemaFencePrecondition, schema_fence_precondition, fence);
    fence->schema_generation_token = sf_arena_printf(arena, "tok-%" PRIu64, op->version);
    return fence;
}

static const ProtobufCMessage *put_ns(const struct op *op, struct sf_arena *arena)
{
    MAKE(PutNamespaceMetadataRequest, put_namespace_metadata_request, put);
    put->meta = meta_of(op, arena);
    put->namespace_name = ns_name_of(op, arena);
    put->encryption = encryption_in(arena);
    put->options = options_of(op, arena);
    return &put->base;
}

static const ProtobufCMessage *put_coll(const struct op *op, struct sf_arena *arena)
{
    MAKE(PutCollectionMetadataRequest, put_collection_metadata_request, put);
    put->meta = meta_of(op, arena);
    put->name_binding = binding_of(op, arena);
    put->encryption = encryption_in(arena);
    put->options = options_of(op, arena);
    return &put->base;
}

static const ProtobufCMessage *put_schema_of(const struct op *op, struct sf_arena *arena)
{
    MAKE(PutCollectionSchemaRequest, put_collection_schema_request, put);
    MAKE(CollectionSchemaDefinition, collection_schema_definition, definition);
    MAKE(DocIDMapping, doc_idmapping, mapping);
    MAKE(CollectionSettings, collection_settings, settings);
    mapping->generation_policy = SF_PBE(DOC_ID_GENERATION_POLICY, CALLER_REQUIRED);
    settings->_max_result_window_case =
        SEARCHFABRIC__V1__COLLECTION_SETTINGS___MAX_RESULT_WINDOW_MAX_RESULT_WINDOW;
    settings->max_result_window = (uint32_t)op->value;
    definition->collection_truth_mode = SF_PBE(COLLECTION_TRUTH_MODE, SEARCH_FABRIC);
    definition->doc_id_mapping = mapping;
    definition->settings = settings;
    put->meta = meta_of(op, arena);
    put->collection = ref_of(op, arena);
    put->schema_version = op->version;
    put->fence = fence_of(op, arena);
    put->definition = definition;
    return &put->base;
}

static const ProtobufCMessage *drop(const struct op *op, struct sf_arena *arena)
{
    MAKE(DropCollectionRequest, drop_collection_request, request);
    request->meta = meta_of(op, arena);
    request->collection = ref_of(op, arena);
    request->fence = op->fenced ? fence_of(op, arena) : NULL;
    return &request->base;
}

static const ProtobufCMessage *transition(const struct op *op, struct sf_arena *arena)
{
    MAKE(SubmitNamespaceLifecycleTransitionRequest, submit_namespace_lifecycle_transition_request,
         request);
    request->namespace_id = op->ns_id;
    request->target_lifecycle_state = (SF_PB(NamespaceLifecycleState))op->target;
    request->expected_namespace_revision = (uint64_t)op->expected;
    return &request->base;
}

static const ProtobufCMessage *head(const struct op *op, struct sf_arena *arena)
{
    MAKE(SubmitHeadAdvanceIntentRequest, submit_head_advance_intent_request, request);
    request->collection = ref_of(op, arena);
    request->expected_head_version = op->expected;
    request->new_head_version = op->version;
    request->manifest_checksum_or_etag = sf_arena_str(arena, sf_view_str(op->sum));
    return &request->base;
}

static const ProtobufCMessage *get_ns(const struct op *op, struct sf_arena *arena)
{
    MAKE(GetNamespaceMetadataRequest, get_namespace_metadata_request, get);
    get->meta = meta_of(op, arena);
    if (op->ns_id != 0) {
        get->lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID;
        get->namespace_id = op->ns_id;
    } else {
        get->lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_NAME;
        get->namespace_name = ns_name_of(op, arena);
    }
    return &get->base;
}

static const ProtobufCMessage *get_coll(const struct op *op, struct sf_arena *arena)
{
    MAKE(GetCollectionMetadataRequest, get_collection_metadata_request, get);
    get->meta = meta_of(op, arena);
    if (op->coll_id != 0) {
        get->lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_COLLECTION;
        get->collection = ref_of(op, arena);
    } else {
        get->lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_NAME_BINDING;
        get->name_binding = binding_of(op, arena);
    }
    return &get->base;
}

static const ProtobufCMessage *list_coll(const struct op *op, struct sf_arena *arena)
{
    MAKE(ListCollectionsRequest, list_collections_request, list);
    list->meta = meta_of(op, arena);
    list->namespace_id = op->ns_id;
    return &list->base;
}

static const ProtobufCMessage *other_read(const struct op *op, struct sf_arena *arena)
{
    if (op->kind == OP_LIST_NS) {
        MAKE(ListNamespacesRequest, list_namespaces_request, list);
        list->meta = meta_of(op, arena);
        return &list->base;
    }
    if (op->kind == OP_RESOLVE) {
        MAKE(ResolveCollectionNameBindingRequest, resolve_collection_name_binding_request, resolve);
        resolve->name_binding = binding_of(op, arena);
        return &resolve->base;
    }
    if (op->kind == OP_GET_SCHEMA) {
        MAKE(GetCollectionSchemaRequest, get_collection_schema_request, get);
        get->meta = meta_of(op, arena);
        get->collection = ref_of(op, arena);
        return &get->base;
    }
    if (op->kind == OP_ADMISSION) {
        MAKE(GetCollectionAdmissionStateRequest, get_collection_admission_state_request, get);
        get->collection = ref_of(op, arena);
        return &get->base;
    }
    MAKE(RunReleaseSweepRequest, run_release_sweep_request, sweep);
    sweep->namespace_id = op->ns_id;
    return &sweep->base;
}

const ProtobufCMessage *op_request(const struct op *op, struct sf_arena *arena)
{
    switch (op->kind) {
    case OP_PUT_NS:
        return put_ns(op, arena);
    case OP_PUT_COLL:
        return put_coll(op, arena);
    case OP_SCHEMA:
        return put_schema_of(op, arena);
    case OP_DROP:
        return drop(op, arena);
    case OP_TRANSITION:
        return transition(op, arena);
    case OP_HEAD:
        return head(op, arena);
    case OP_GET_NS:
        return get_ns(op, arena);
    case OP_GET_COLL:
        return get_coll(op, arena);
    case OP_LIST_COLL:
        return list_coll(op, arena);
    default:
        return other_read(op, arena);
    }
}
