#include "fault/all/all_requests.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/arena.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"

#define PB(name)      Searchfabric__V1__##name
#define CATALOG       "/searchfabric.v1.CatalogControlService/"
#define PRIVATE       "/searchfabric.v1.CatalogControlPrivateService/"
#define NS_NAME       "tenant"
#define MAKE(a, T, t) ((PB(T) *)(void *)make((a), &searchfabric__v1__##t##__descriptor))

/* ---- what is wanted -------------------------------------------------------------------------- */

unsigned all_namespace_op(unsigned variant)
{
    return variant * (1 + 3 * ALL_COLLECTIONS);
}

unsigned all_catalog_op(enum all_kind kind, unsigned variant, unsigned collection)
{
    return all_namespace_op(variant) + 1 + 3 * collection + (unsigned)(kind - ALL_COLLECTION);
}

static void draw_alloc(struct all_op *op, unsigned n, struct sf_rng *rng)
{
    uint64_t shape = sf_rng_below(rng, 3);
    uint64_t at = 3u * n + sf_rng_below(rng, 8);

    op->count = 1 + sf_rng_below(rng, ALL_ITEMS);
    for (size_t i = 0; i < op->count; i++) {
        bool issue = shape == 0 || (shape == 2 && sf_rng_below(rng, 2) == 0);
        op->items[i] = issue ? ALL_ISSUE : at;
        at += 1 + sf_rng_below(rng, 3);
    }
}

static void draw_batch(struct all_op *op, struct sf_rng *rng)
{
    op->policy = (enum all_policy)sf_rng_below(rng, 3);
    op->vectors = (unsigned)sf_rng_below(rng, 16);
    op->most_tries = sf_rng_below(rng, 5) == 0 ? 1 + (unsigned)sf_rng_below(rng, 2) : 0;
}

void all_ops_draw(struct all_op ops[ALL_OPS], struct sf_rng *rng)
{
    memset(ops, 0, ALL_OPS * sizeof(ops[0]));
    for (unsigned v = 0; v < ALL_CLIENTS; v++) {
        struct all_op *ns = &ops[all_namespace_op(v)];
        ns->kind = ALL_NAMESPACE;
        ns->variant = v;
        (void)snprintf(ns->key, sizeof(ns->key), "ns-%u", v);
        for (unsigned c = 0; c < ALL_COLLECTIONS; c++) {
            for (int k = ALL_COLLECTION; k <= ALL_READY; k++) {
                struct all_op *op = &ops[all_catalog_op((enum all_kind)k, v, c)];
                op->kind = (enum all_kind)k;
                op->variant = v;
                op->collection = c;
                (void)snprintf(op->key, sizeof(op->key), "cat-%d-%u-%u", k, v, c);
            }
        }
    }
    for (unsigned i = 0; i < ALL_ALLOCS; i++) {
        struct all_op *alloc = &ops[ALL_FIRST_ALLOC + i];
        alloc->kind = ALL_ALLOC;
        alloc->collection = (unsigned)sf_rng_below(rng, ALL_COLLECTIONS);
        (void)snprintf(alloc->key, sizeof(alloc->key), "alloc-%u", i);
        draw_alloc(alloc, i, rng);
    }
    for (unsigned i = 0; i < ALL_CREATES; i++) {
        const struct all_op *alloc = &ops[ALL_FIRST_ALLOC + i];
        struct all_op *batch = &ops[ALL_FIRST_BATCH + i];
        draw_batch(batch, rng);
        batch->kind = ALL_BATCH;
        batch->collection = alloc->collection;
        batch->count = alloc->count;
        batch->alloc = (int)(ALL_FIRST_ALLOC + i);
        (void)snprintf(batch->key, sizeof(batch->key), "batch-%u", i);
    }
    for (unsigned i = 0; i < ALL_INDEXES; i++) {
        struct all_op *batch = &ops[ALL_FIRST_INDEX + i];
        draw_batch(batch, rng);
        batch->kind = ALL_BATCH;
        batch->collection = (unsigned)sf_rng_below(rng, ALL_COLLECTIONS);
        batch->variant = i;
        batch->count = 1 + sf_rng_below(rng, ALL_ITEMS);
        batch->barrier = sf_rng_below(rng, batch->count);
        batch->alloc = -1;
        (void)snprintf(batch->key, sizeof(batch->key), "index-%u", i);
    }
    for (unsigned c = 0; c < ALL_COLLECTIONS; c++) {
        for (unsigned k = 0; k < 2; k++) {
            struct all_op *op = &ops[ALL_FIRST_NEXT + 2 * c + k];
            op->kind = k == 0 ? ALL_NEXT_SCHEMA : ALL_NEXT_READY;
            op->collection = c;
            (void)snprintf(op->key, sizeof(op->key), "next-%u-%u", k, c);
        }
    }
}

const char *all_token(unsigned generation)
{
    return generation == 1 ? "gen-1" : "gen-2";
}

void all_rows(const struct all_op *op, const uint64_t *allocated, struct all_row rows[ALL_ITEMS])
{
    for (size_t i = 0; i < op->count; i++) {
        bool vector = (op->vectors & (1u << i)) != 0;
        rows[i].index = op->alloc < 0;
        rows[i].doc_id = op->alloc >= 0 ? allocated[i]
                         : i == 0       ? ALL_HOT_ID
                                        : ALL_HOT_ID + 16 * (op->variant + 1) + i;
        (void)snprintf(rows[i].body, sizeof(rows[i].body), "{ \"title\":\"%s/%zu\"%s }", op->key, i,
                       vector ? ",\"v\":[1,0.5]" : "");
    }
}

/* ---- parts of requests ----------------------------------------------------------------------- */

static ProtobufCMessage *make(struct sf_arena *arena, const ProtobufCMessageDescriptor *desc)
{
    ProtobufCMessage *message = sf_arena_alloc(arena, desc->sizeof_message);

    SF_ASSERT(message != NULL);
    protobuf_c_message_init(desc, message);
    return message;
}

static char *text(struct sf_arena *arena, const char *chars)
{
    return sf_arena_str(arena, sf_view_str(chars));
}

static PB(RequestMeta) * meta(struct sf_arena *arena, const char *key, PB(ClientKind) kind)
{
    PB(RequestMeta) *out = MAKE(arena, RequestMeta, request_meta);

    out->idempotency_key = text(arena, key);
    out->client_id = text(arena, "sim");
    out->client_kind = kind;
    return out;
}

#define ADMIN SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_CONTROL_ADMIN
#define WRITE SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY
#define QUERY SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_QUERY_GATEWAY

static PB(CollectionRef) * ref(struct sf_arena *arena, const struct all_facts *facts, unsigned c)
{
    PB(CollectionRef) *out = MAKE(arena, CollectionRef, collection_ref);

    out->namespace_id = facts->namespace_id;
    out->collection_id = facts->collection_id[c];
    return out;
}

static PB(CollectionNameBinding) *
    binding(struct sf_arena *arena, const struct all_facts *facts, unsigned c)
{
    PB(CollectionNameBinding) *out = MAKE(arena, CollectionNameBinding, collection_name_binding);

    out->namespace_id = facts->namespace_id;
    out->collection_name = sf_arena_printf(arena, "books-%u", c);
    return out;
}

static PB(EncryptionPolicy) * encryption(struct sf_arena *arena)
{
    PB(EncryptionPolicy) *out = MAKE(arena, EncryptionPolicy, encryption_policy);

    out->mode_case = SEARCHFABRIC__V1__ENCRYPTION_POLICY__MODE_PROVIDER_MANAGED;
    out->provider_managed = MAKE(arena, ProviderManagedEncryption, provider_managed_encryption);
    return out;
}

/* Says who wrote last. */
static PB(DescriptorOptions) * options(struct sf_arena *arena, unsigned variant)
{
    PB(DescriptorOptions) *out = MAKE(arena, DescriptorOptions, descriptor_options);
    PB(DescriptorOptions__EntriesEntry) *entry = sf_arena_alloc(arena, sizeof(*entry));

    searchfabric__v1__descriptor_options__entries_entry__init(entry);
    entry->key = text(arena, "by");
    entry->value = sf_arena_printf(arena, "client-%u", variant);
    out->entries = sf_arena_alloc(arena, sizeof(*out->entries));
    out->entries[0] = entry;
    out->n_entries = 1;
    return out;
}

static PB(FieldDefinition) *
    field(struct sf_arena *arena, const char *name, PB(FieldType) type, PB(Modality) modality)
{
    PB(FieldDefinition) *out = MAKE(arena, FieldDefinition, field_definition);

    out->name = text(arena, name);
    out->type = type;
    out->modalities = sf_arena_alloc(arena, sizeof(*out->modalities));
    out->modalities[0] = modality;
    out->n_modalities = 1;
    return out;
}

static PB(CollectionSchemaDefinition) * definition(struct sf_arena *arena)
{
    PB(CollectionSchemaDefinition) *out =
        MAKE(arena, CollectionSchemaDefinition, collection_schema_definition);

    out->collection_truth_mode =
        SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_SEARCH_FABRIC;
    out->doc_id_mapping = sf_arena_alloc(arena, sizeof(*out->doc_id_mapping));
    searchfabric__v1__doc_idmapping__init(out->doc_id_mapping);
    out->doc_id_mapping->generation_policy =
        SEARCHFABRIC__V1__DOC_ID_GENERATION_POLICY__DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL;
    out->settings = MAKE(arena, CollectionSettings, collection_settings);
    out->settings->allocator_admission_policy =
        MAKE(arena, AllocatorAdmissionPolicy, allocator_admission_policy);
    out->settings->allocator_admission_policy->caller_profile =
        SEARCHFABRIC__V1__ALLOCATOR_CALLER_PROFILE__ALLOCATOR_CALLER_PROFILE_ES_WRITE_GATEWAY_ONLY;
    out->settings->allocator_admission_policy->max_plan_items_per_request = 100;
    out->settings->allocator_admission_policy->max_forward_reservation_jump = 1000;
    out->fields = sf_arena_alloc(arena, 2 * sizeof(*out->fields));
    out->fields[0] = field(arena, "title", SEARCHFABRIC__V1__FIELD_TYPE__FIELD_TYPE_KEYWORD,
                           SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_SEARCH);
    out->fields[1] = field(arena, "v", SEARCHFABRIC__V1__FIELD_TYPE__FIELD_TYPE_DENSE_VECTOR,
                           SEARCHFABRIC__V1__MODALITY__MODALITY_SEMANTIC_SEARCH);
    out->fields[1]->vector = MAKE(arena, VectorSettings, vector_settings);
    out->fields[1]->vector->dimensions = 2;
    out->fields[1]->vector->similarity =
        SEARCHFABRIC__V1__VECTOR_SIMILARITY__VECTOR_SIMILARITY_COSINE;
    out->n_fields = 2;
    return out;
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct all_call *namespace_call(struct all_cluster *cluster, const struct all_op *op)
{
    struct all_call *call = all_call_new(cluster, ALL_CATALOG, CATALOG "PutNamespaceMetadata");
    PB(PutNamespaceMetadataRequest) *put =
        MAKE(call->arena, PutNamespaceMetadataRequest, put_namespace_metadata_request);

    put->meta = meta(call->arena, op->key, ADMIN);
    put->namespace_name = text(call->arena, NS_NAME);
    put->encryption = encryption(call->arena);
    put->options = options(call->arena, op->variant);
    call->request = &put->base;
    return call;
}

static struct all_call *collection_call(struct all_cluster *cluster, const struct all_op *op,
                                        const struct all_facts *facts)
{
    struct all_call *call = all_call_new(cluster, ALL_CATALOG, CATALOG "PutCollectionMetadata");
    PB(PutCollectionMetadataRequest) *put =
        MAKE(call->arena, PutCollectionMetadataRequest, put_collection_metadata_request);

    put->meta = meta(call->arena, op->key, ADMIN);
    put->name_binding = binding(call->arena, facts, op->collection);
    put->encryption = encryption(call->arena);
    put->options = options(call->arena, op->variant);
    put->collection_truth_mode =
        SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_SEARCH_FABRIC;
    call->request = &put->base;
    return call;
}

static struct all_call *schema_call(struct all_cluster *cluster, const struct all_op *op,
                                    const struct all_facts *facts, unsigned generation)
{
    struct all_call *call = all_call_new(cluster, ALL_CATALOG, CATALOG "PutCollectionSchema");
    PB(PutCollectionSchemaRequest) *put =
        MAKE(call->arena, PutCollectionSchemaRequest, put_collection_schema_request);

    put->meta = meta(call->arena, op->key, ADMIN);
    put->collection = ref(call->arena, facts, op->collection);
    put->schema_version = generation;
    put->fence = MAKE(call->arena, SchemaFencePrecondition, schema_fence_precondition);
    put->fence->schema_generation_token = text(call->arena, all_token(generation));
    put->definition = definition(call->arena);
    call->request = &put->base;
    return call;
}

static struct all_call *ready_call(struct all_cluster *cluster, const struct all_op *op,
                                   const struct all_facts *facts, unsigned generation)
{
    struct all_call *call =
        all_call_new(cluster, ALL_CATALOG, PRIVATE "ReportSchemaConvergenceSignal");
    PB(ReportSchemaConvergenceSignalRequest) *report =
        MAKE(call->arena, ReportSchemaConvergenceSignalRequest,
             report_schema_convergence_signal_request);

    report->collection = ref(call->arena, facts, op->collection);
    report->schema_version = generation;
    report->schema_generation_token = text(call->arena, all_token(generation));
    report->signal =
        SEARCHFABRIC__V1__SCHEMA_CONVERGENCE_SIGNAL__SCHEMA_CONVERGENCE_SIGNAL_SERVING_GENERATION_READY;
    call->request = &report->base;
    return call;
}

static PB(DocumentID) * doc_id(struct sf_arena *arena, uint64_t id)
{
    PB(DocumentID) *out = sf_arena_alloc(arena, sizeof(*out));

    searchfabric__v1__document_id__init(out);
    out->id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
    out->u64 = id;
    return out;
}

static struct all_call *alloc_call(struct all_cluster *cluster, const struct all_op *op,
                                   const struct all_facts *facts)
{
    struct all_call *call = all_call_new(cluster, ALL_ALLOCATOR, SF_ALLOCATOR_METHOD);
    struct sf_arena *arena = call->arena;
    PB(AllocateIdsRequest) *request = MAKE(arena, AllocateIdsRequest, allocate_ids_request);

    request->meta = meta(arena, op->key, WRITE);
    request->collection = ref(arena, facts, op->collection);
    request->route_intent =
        SEARCHFABRIC__V1__ID_ALLOCATION_ROUTE_INTENT__ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT;
    request->plan = MAKE(arena, AllocationPlan, allocation_plan);
    request->plan->items = sf_arena_alloc(arena, op->count * sizeof(*request->plan->items));
    request->plan->n_items = op->count;
    for (size_t i = 0; i < op->count; i++) {
        PB(AllocationPlanItem) *item = MAKE(arena, AllocationPlanItem, allocation_plan_item);
        request->plan->items[i] = item;
        if (op->items[i] == ALL_ISSUE) {
            item->item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE;
            item->issue = MAKE(arena, IssueItem, issue_item);
        } else {
            item->item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_EXPLICIT_DOC_ID;
            item->explicit_doc_id = doc_id(arena, op->items[i]);
        }
    }
    call->request = &request->base;
    return call;
}

static void put_row(struct sf_arena *arena, PB(MutationEntry) * entry, const struct all_row *row)
{
    entry->entry_case = SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW;
    entry->row = MAKE(arena, RowMutation, row_mutation);
    entry->row->doc_id = doc_id(arena, row->doc_id);
    entry->row->op = row->index ? SEARCHFABRIC__V1__ROW_OP__ROW_OP_INDEX
                                : SEARCHFABRIC__V1__ROW_OP__ROW_OP_CREATE;
    entry->row->body.data = (uint8_t *)text(arena, row->body);
    entry->row->body.len = strlen(row->body);
}

static void put_policy(PB(MutationBatch) * batch, enum all_policy policy)
{
    batch->durability =
        policy == ALL_INGEST_ACK
            ? SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_INGEST_ACK
            : SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_WAL_CHUNK_DURABLE;
    batch->visibility =
        policy == ALL_VISIBLE
            ? SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_WAIT_FOR_VISIBLE
            : SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_ASYNC;
}

static struct all_call *batch_call(struct all_cluster *cluster, const struct all_op *op,
                                   const struct all_facts *facts, const char *token,
                                   struct sf_view answer)
{
    struct all_call *call = all_call_new(cluster, ALL_INGEST, NULL);
    struct sf_arena *arena = call->arena;
    PB(MutationBatch) *batch = MAKE(arena, MutationBatch, mutation_batch);
    uint64_t ids[ALL_ITEMS] = {0};
    struct all_row rows[ALL_ITEMS];

    if (op->alloc >= 0) {
        PB(AllocateIdsSuccessResponse) *success =
            searchfabric__v1__allocate_ids_success_response__unpack(NULL, answer.len, answer.ptr);
        SF_ASSERT(success != NULL && success->n_realized_doc_ids == op->count);
        for (size_t i = 0; i < op->count; i++)
            ids[i] = success->realized_doc_ids[i]->doc_id->u64;
        batch->allocator_receipt.len = success->allocator_receipt.len;
        batch->allocator_receipt.data = sf_arena_alloc(arena, success->allocator_receipt.len + 1);
        memcpy(batch->allocator_receipt.data, success->allocator_receipt.data,
               success->allocator_receipt.len);
        searchfabric__v1__allocate_ids_success_response__free_unpacked(success, NULL);
    }
    all_rows(op, ids, rows);
    batch->batch_id = text(arena, op->key);
    batch->stream_identity = text(arena, "sim-stream");
    batch->collection = ref(arena, facts, op->collection);
    batch->schema_generation_token = text(arena, token);
    put_policy(batch, op->policy);
    batch->entries = sf_arena_alloc(arena, (op->count + 1) * sizeof(*batch->entries));
    for (size_t i = 0; i < op->count; i++) {
        if (op->barrier != 0 && op->barrier == i) {
            PB(MutationEntry) *mark = MAKE(arena, MutationEntry, mutation_entry);
            mark->entry_case = SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_BARRIER_MARK;
            mark->barrier_mark = MAKE(arena, BarrierMark, barrier_mark);
            batch->entries[batch->n_entries++] = mark;
        }
        PB(MutationEntry) *entry = MAKE(arena, MutationEntry, mutation_entry);
        put_row(arena, entry, &rows[i]);
        batch->entries[batch->n_entries++] = entry;
    }
    call->request = &batch->base;
    return call;
}

struct all_call *all_op_call(struct all_cluster *cluster, const struct all_op *op,
                             const struct all_facts *facts, const char *token,
                             struct sf_view answer)
{
    switch (op->kind) {
    case ALL_NAMESPACE:
        return namespace_call(cluster, op);
    case ALL_COLLECTION:
        return collection_call(cluster, op, facts);
    case ALL_SCHEMA:
        return schema_call(cluster, op, facts, 1);
    case ALL_READY:
        return ready_call(cluster, op, facts, 1);
    case ALL_ALLOC:
        return alloc_call(cluster, op, facts);
    case ALL_BATCH:
        return batch_call(cluster, op, facts, token, answer);
    case ALL_NEXT_SCHEMA:
        return schema_call(cluster, op, facts, 2);
    case ALL_NEXT_READY:
        return ready_call(cluster, op, facts, 2);
    }
    SF_ASSERT(false);
    return NULL;
}

/* ---- questions ------------------------------------------------------------------------------- */

static struct all_call *read_of(struct all_cluster *cluster, const char *method,
                                const ProtobufCMessageDescriptor *desc, void **out_request)
{
    struct all_call *call = all_call_new(cluster, ALL_CATALOG, method);
    ProtobufCMessage *request = sf_arena_alloc(call->arena, desc->sizeof_message);

    protobuf_c_message_init(desc, request);
    call->request = request;
    *out_request = request;
    return call;
}

static struct all_call *namespace_read(struct all_cluster *cluster, bool by_name,
                                       const struct all_facts *facts)
{
    PB(GetNamespaceMetadataRequest) * get;
    struct all_call *call =
        read_of(cluster, CATALOG "GetNamespaceMetadata",
                &searchfabric__v1__get_namespace_metadata_request__descriptor, (void **)&get);

    get->meta = meta(call->arena, "", QUERY);
    get->lookup_case = by_name
                           ? SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_NAME
                           : SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID;
    if (by_name)
        get->namespace_name = text(call->arena, NS_NAME);
    else
        get->namespace_id = facts->namespace_id;
    return call;
}

static struct all_call *collection_read(struct all_cluster *cluster, bool by_name, unsigned c,
                                        const struct all_facts *facts)
{
    PB(GetCollectionMetadataRequest) * get;
    struct all_call *call =
        read_of(cluster, CATALOG "GetCollectionMetadata",
                &searchfabric__v1__get_collection_metadata_request__descriptor, (void **)&get);

    get->meta = meta(call->arena, "", QUERY);
    get->lookup_case = by_name
                           ? SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_NAME_BINDING
                           : SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_COLLECTION;
    if (by_name)
        get->name_binding = binding(call->arena, facts, c);
    else
        get->collection = ref(call->arena, facts, c);
    return call;
}

static struct all_call *schema_read(struct all_cluster *cluster, unsigned c,
                                    const struct all_facts *facts)
{
    PB(GetCollectionSchemaRequest) * get;
    struct all_call *call =
        read_of(cluster, CATALOG "GetCollectionSchema",
                &searchfabric__v1__get_collection_schema_request__descriptor, (void **)&get);

    get->meta = meta(call->arena, "", QUERY);
    get->collection = ref(call->arena, facts, c);
    return call;
}

static struct all_call *sync_read(struct all_cluster *cluster, unsigned c,
                                  const struct all_facts *facts)
{
    PB(GetSchemaSyncStatusRequest) * get;
    struct all_call *call =
        read_of(cluster, CATALOG "GetSchemaSyncStatus",
                &searchfabric__v1__get_schema_sync_status_request__descriptor, (void **)&get);

    get->meta = meta(call->arena, "", QUERY);
    get->collection = ref(call->arena, facts, c);
    return call;
}

static struct all_call *statistics_read(struct all_cluster *cluster, unsigned c,
                                        const struct all_facts *facts)
{
    PB(GetCollectionStatisticsRequest) * get;
    struct all_call *call =
        read_of(cluster, CATALOG "GetCollectionStatistics",
                &searchfabric__v1__get_collection_statistics_request__descriptor, (void **)&get);

    get->meta = meta(call->arena, "", QUERY);
    get->collection = ref(call->arena, facts, c);
    get->max_staleness_ms = UINT32_MAX;
    return call;
}

static struct all_call *namespaces_read(struct all_cluster *cluster)
{
    PB(ListNamespacesRequest) * list;
    struct all_call *call =
        read_of(cluster, CATALOG "ListNamespaces",
                &searchfabric__v1__list_namespaces_request__descriptor, (void **)&list);

    list->meta = meta(call->arena, "", QUERY);
    return call;
}

static struct all_call *collections_read(struct all_cluster *cluster, const struct all_facts *facts)
{
    PB(ListCollectionsRequest) * list;
    struct all_call *call =
        read_of(cluster, CATALOG "ListCollections",
                &searchfabric__v1__list_collections_request__descriptor, (void **)&list);

    list->meta = meta(call->arena, "", QUERY);
    list->namespace_id = facts->namespace_id;
    return call;
}

static struct all_call *binding_read(struct all_cluster *cluster, unsigned c,
                                     const struct all_facts *facts)
{
    PB(ResolveCollectionNameBindingRequest) * resolve;
    struct all_call *call = read_of(
        cluster, PRIVATE "ResolveCollectionNameBinding",
        &searchfabric__v1__resolve_collection_name_binding_request__descriptor, (void **)&resolve);

    resolve->name_binding = binding(call->arena, facts, c);
    return call;
}

struct all_call *all_read_call(struct all_cluster *cluster, enum all_read read, unsigned collection,
                               const struct all_facts *facts)
{
    switch (read) {
    case ALL_READ_NAMESPACE_BY_NAME:
        return namespace_read(cluster, true, facts);
    case ALL_READ_NAMESPACE:
        return namespace_read(cluster, false, facts);
    case ALL_READ_COLLECTION_BY_NAME:
        return collection_read(cluster, true, collection, facts);
    case ALL_READ_COLLECTION:
        return collection_read(cluster, false, collection, facts);
    case ALL_READ_SCHEMA:
        return schema_read(cluster, collection, facts);
    case ALL_READ_SYNC:
        return sync_read(cluster, collection, facts);
    case ALL_READ_STATISTICS:
        return statistics_read(cluster, collection, facts);
    case ALL_READ_NAMESPACES:
        return namespaces_read(cluster);
    case ALL_READ_COLLECTIONS:
        return collections_read(cluster, facts);
    case ALL_READ_BINDING:
        return binding_read(cluster, collection, facts);
    case ALL_READS:
        break;
    }
    SF_ASSERT(false);
    return NULL;
}
