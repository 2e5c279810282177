/*
 * What clients do, and the model that each answer is checked against: ids agree, answers of a key
 * agree, reads never fall behind what was acknowledged before they began.
 */
#include "fault/catalog/ccs_world.h"

#define LONG_MS 1000 /* shorter waits that the catalog asks for are the client's own affair */

/* ---- calls -------------------------------------------------------------------------------- */

/* One call at `node`. SF_ERR_STOPPED: nobody there, or the answer does not count. */
enum sf_err call_node(struct world *w, struct sim_process *client, struct sim_node *node,
                      const char *method, const ProtobufCMessage *request, struct sf_arena *arena,
                      struct sf_diag *diag, const ProtobufCMessage **out_response)
{
    uint64_t number = 0;
    struct life *life = sim_node_service(node, &number);
    (void)w;
    if (life == NULL || life->stopping != NULL)
        return SF_ERR_STOPPED;
    life->callers++;
    struct sf_channel *channel = sf_inproc_channel_new(life->services, SF_CATALOG_SERVICE_COUNT,
                                                       "loopback", sim_process_clock(client));
    struct sf_call_options options = {0};
    enum sf_err err = sf_channel_unary_wait(channel, sim_process_sched(client), method, request,
                                            &options, arena, diag, out_response);
    sf_channel_destroy(channel);
    bool counts = sim_node_is_current(node, number);
    if (--life->callers == 0 && life->stopping != NULL)
        sf_waiter_wake(life->stopping);
    return counts ? err : SF_ERR_STOPPED;
}

void wait_to_retry(struct sim_process *client, struct world *w, const struct sf_diag *diag)
{
    const char *after = sf_diag_get(diag, "retry_after_ms");
    uint64_t after_ms = 0;
    if (after != NULL)
        (void)sf_parse_u64(sf_view_str(after), &after_ms);
    if (after_ms < LONG_MS)
        after_ms = 0;
    sim_sleep(client, 1 + (int64_t)after_ms + (int64_t)sf_rng_below(sim_rng(w->sim), 250));
}

/* A put of a lineage that several clients update: it may lose a race. */
static bool is_shared(const ProtobufCMessage *request)
{
    const SF_PB(RequestMeta) *meta = sf_catalog_meta_of(request);
    return meta != NULL && strstr(meta->idempotency_key, "-shared-") != NULL;
}

/* Until answered; codes that say "come back" are followed. */
const ProtobufCMessage *ask(struct world *w, struct sim_process *client, const char *method,
                            const ProtobufCMessage *request, struct sf_arena *arena)
{
    for (;;) {
        struct sf_diag diag;
        const ProtobufCMessage *response = NULL;
        sf_diag_init(&diag);
        struct sim_node *node = w->nodes[sf_rng_below(sim_rng(w->sim), 2)];
        if (w->rebuilder != NULL)
            node = w->rebuilder;
        enum sf_err err = call_node(w, client, node, method, request, arena, &diag, &response);
        if (err == SF_OK)
            return response;
        bool raced = err == SF_VERSION_CONFLICT && strstr(diag.message, "on its way") != NULL &&
                     is_shared(request);
        if (err != SF_ERR_STOPPED && err != SF_BACKEND_UNAVAILABLE && err != SF_RATE_LIMITED &&
            !raced)
            sim_violation(w->sim, "%s was refused: %s %s", method, sf_err_info(err)->name,
                          diag.message);
        wait_to_retry(client, w, &diag);
    }
}

void to_json(const ProtobufCMessage *message, struct sf_buf *out)
{
    sf_buf_clear(out);
    sf_pbjson_encode(message, out);
}

/* A mutation: asked until answered, noted, compared with what the key was answered before. */
const ProtobufCMessage *mutate(struct world *w, struct sim_process *client, const char *key,
                               const char *method, const ProtobufCMessage *request,
                               struct sf_arena *arena)
{
    struct answered *slot = NULL;
    struct sf_buf json = {0};
    const ProtobufCMessage *response = ask(w, client, method, request, arena);
    to_json(response, &json);
    for (size_t i = 0; i < w->key_count && slot == NULL; i++) {
        if (strcmp(w->keys[i].key, key) == 0)
            slot = &w->keys[i];
    }
    if (slot == NULL) {
        SF_ASSERT(w->key_count < MAX_KEYS);
        slot = &w->keys[w->key_count++];
        snprintf(slot->key, sizeof(slot->key), "%s", key);
        slot->method = method;
        slot->request = sf_pb_dup(request, w->arena);
        sf_buf_append(&slot->bytes, json.data, json.len);
        sim_trace(w->sim, "client: %s answered", key);
    } else if (!sf_view_equal(sf_buf_view(&slot->bytes), sf_buf_view(&json))) {
        sim_violation(w->sim, "key %s was answered %.*s, now %.*s", key, (int)slot->bytes.len,
                      (const char *)slot->bytes.data, (int)json.len, (const char *)json.data);
    }
    sf_buf_fini(&json);
    return response;
}

/* ---- requests ----------------------------------------------------------------------------- */

void parts_init(struct parts *parts, char *key)
{
    searchfabric__v1__request_meta__init(&parts->meta);
    searchfabric__v1__encryption_policy__init(&parts->encryption);
    searchfabric__v1__provider_managed_encryption__init(&parts->managed);
    searchfabric__v1__descriptor_options__init(&parts->options);
    searchfabric__v1__descriptor_options__entries_entry__init(&parts->entry);
    parts->meta.idempotency_key = key;
    parts->meta.client_id = "sim";
    parts->meta.client_kind = SF_PBE(CLIENT_KIND, CONTROL_ADMIN);
    parts->encryption.mode_case = SEARCHFABRIC__V1__ENCRYPTION_POLICY__MODE_PROVIDER_MANAGED;
    parts->encryption.provider_managed = &parts->managed;
    parts->entries[0] = &parts->entry;
    parts->entry.key = "v";
    parts->entry.value = parts->value;
    parts->options.entries = parts->entries;
    parts->options.n_entries = 1;
}

static uint64_t option_value(const SF_PB(DescriptorOptions) * options)
{
    uint64_t value = 0;
    if (options != NULL && options->n_entries == 1)
        (void)sf_parse_u64(sf_view_str(options->entries[0]->value), &value);
    return value;
}

/* ---- what clients do ---------------------------------------------------------------------- */

/* All clients put one name at once: one lineage. */
void put_shared_namespace(struct client *c)
{
    char key[24];
    struct parts parts;
    SF_PB(PutNamespaceMetadataRequest) put;
    snprintf(key, sizeof(key), "c%u-shared-ns", c->id);
    parts_init(&parts, key);
    searchfabric__v1__put_namespace_metadata_request__init(&put);
    put.meta = &parts.meta;
    put.namespace_name = "shared";
    put.encryption = &parts.encryption;
    const SF_PB(PutNamespaceMetadataResponse) *response = (const void *)mutate(
        c->w, c->process, key, PUBLIC "PutNamespaceMetadata", &put.base, c->arena);
    uint64_t id = response->descriptor->namespace_id;
    if (c->w->shared_namespace != 0 && c->w->shared_namespace != id)
        sim_violation(c->w->sim, "two lineages of one namespace name: %" PRIu64 " and %" PRIu64,
                      c->w->shared_namespace, id);
    c->w->shared_namespace = id;
}

void put_shared_collection(struct client *c)
{
    char key[24];
    struct parts parts;
    SF_PB(PutCollectionMetadataRequest) put;
    SF_PB(CollectionNameBinding) binding;
    snprintf(key, sizeof(key), "c%u-shared-coll", c->id);
    parts_init(&parts, key);
    searchfabric__v1__put_collection_metadata_request__init(&put);
    searchfabric__v1__collection_name_binding__init(&binding);
    binding.namespace_id = c->w->shared_namespace;
    binding.collection_name = "books";
    put.meta = &parts.meta;
    put.name_binding = &binding;
    put.encryption = &parts.encryption;
    const SF_PB(PutCollectionMetadataResponse) *response = (const void *)mutate(
        c->w, c->process, key, PUBLIC "PutCollectionMetadata", &put.base, c->arena);
    uint64_t id = response->descriptor->collection->collection_id;
    if (c->w->shared_collection != 0 && c->w->shared_collection != id)
        sim_violation(c->w->sim, "two lineages of one collection name");
    c->w->shared_collection = id;
}

/* The client's own namespace: the create and updates that say a growing number. */
void put_own(struct client *c, uint64_t value)
{
    char key[24], name[16];
    struct parts parts;
    struct world *w = c->w;
    SF_PB(PutNamespaceMetadataRequest) put;
    snprintf(key, sizeof(key), "c%u-own-%" PRIu64, c->id, value);
    snprintf(name, sizeof(name), "own-%u", c->id);
    parts_init(&parts, key);
    searchfabric__v1__put_namespace_metadata_request__init(&put);
    put.meta = &parts.meta;
    put.namespace_name = name;
    put.encryption = value == 1 ? &parts.encryption : NULL;
    put.options = &parts.options;
    snprintf(parts.value, sizeof(parts.value), "%" PRIu64, value);
    if (value > w->own_sent[c->id])
        w->own_sent[c->id] = value;
    const SF_PB(PutNamespaceMetadataResponse) *response = (const void *)mutate(
        w, c->process, key, PUBLIC "PutNamespaceMetadata", &put.base, c->arena);
    SIM_CHECK(w->sim, option_value(response->descriptor->options) == value);
    SIM_CHECK(w->sim, value == 1 || response->descriptor->namespace_id == w->own_namespace[c->id]);
    w->own_namespace[c->id] = response->descriptor->namespace_id;
    if (value > w->own_acked[c->id])
        w->own_acked[c->id] = value;
}

/* Reads somebody's namespace: never behind what was acknowledged before the read began. */
void read_own(struct client *c, unsigned of)
{
    char name[16];
    struct parts parts;
    struct world *w = c->w;
    SF_PB(GetNamespaceMetadataRequest) get;
    uint64_t acked = w->own_acked[of];
    if (acked == 0)
        return;
    snprintf(name, sizeof(name), "own-%u", of);
    parts_init(&parts, "");
    searchfabric__v1__get_namespace_metadata_request__init(&get);
    get.meta = &parts.meta;
    get.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_NAME;
    get.namespace_name = name;
    const SF_PB(GetNamespaceMetadataResponse) *response =
        (const void *)ask(w, c->process, PUBLIC "GetNamespaceMetadata", &get.base, c->arena);
    uint64_t value = option_value(response->descriptor->options);
    if (value < acked || value > w->own_sent[of])
        sim_violation(w->sim, "%s reads %" PRIu64 ", acknowledged before was %" PRIu64, name, value,
                      acked);
    SIM_CHECK(w->sim, response->descriptor->namespace_id == w->own_namespace[of] ||
                          w->own_namespace[of] == 0);
}

void fill_ref(const struct world *w, SF_PB(CollectionRef) * ref)
{
    searchfabric__v1__collection_ref__init(ref);
    ref->namespace_id = w->shared_namespace;
    ref->collection_id = w->shared_collection;
}

static void told(struct world *w, uint64_t rank)
{
    if (rank > w->sync_rank)
        w->sync_rank = rank;
}

void put_schema(struct client *c, uint64_t version, const char *suffix)
{
    char key[24], token[16];
    struct parts parts;
    SF_PB(PutCollectionSchemaRequest) put;
    SF_PB(CollectionRef) ref;
    SF_PB(SchemaFencePrecondition) fence;
    SF_PB(CollectionSchemaDefinition) definition;
    SF_PB(DocIDMapping) mapping;
    snprintf(key, sizeof(key), "c%u-schema-%" PRIu64 "%s", c->id, version, suffix);
    snprintf(token, sizeof(token), "tok-%" PRIu64, version);
    parts_init(&parts, key);
    fill_ref(c->w, &ref);
    searchfabric__v1__put_collection_schema_request__init(&put);
    searchfabric__v1__schema_fence_precondition__init(&fence);
    searchfabric__v1__collection_schema_definition__init(&definition);
    searchfabric__v1__doc_idmapping__init(&mapping);
    mapping.generation_policy = SF_PBE(DOC_ID_GENERATION_POLICY, CALLER_REQUIRED);
    definition.collection_truth_mode = SF_PBE(COLLECTION_TRUTH_MODE, SEARCH_FABRIC);
    definition.doc_id_mapping = &mapping;
    fence.schema_generation_token = token;
    put.meta = &parts.meta;
    put.collection = &ref;
    put.schema_version = version;
    put.fence = &fence;
    put.definition = &definition;
    const SF_PB(PutCollectionSchemaResponse) *response = (const void *)mutate(
        c->w, c->process, key, PUBLIC "PutCollectionSchema", &put.base, c->arena);
    SIM_CHECK(c->w->sim, response->schema->applied_schema_version == version);
    if (version > c->w->schema_acked)
        c->w->schema_acked = version;
    told(c->w, 4 * version);
}

/* Order of what a generation goes through here: applying, ready, drifted, ready by repair. */
static uint64_t rank_of(const struct world *w, uint64_t version,
                        const SF_PB(SchemaSyncState) * state)
{
    switch (state->state_case) {
    case SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY:
        return 4 * version + (version == 2 && w->repair_sent ? 3 : 1);
    case SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_DRIFTED:
        return 4 * version + 2;
    default:
        return 4 * version;
    }
}

static void fill_signal(struct client *c, uint64_t version, SF_PB(SchemaConvergenceSignal) signal,
                        char token[16], SF_PB(CollectionRef) * ref,
                        SF_PB(ReportSchemaConvergenceSignalRequest) * report)
{
    snprintf(token, 16, "tok-%" PRIu64, version);
    fill_ref(c->w, ref);
    searchfabric__v1__report_schema_convergence_signal_request__init(report);
    report->collection = ref;
    report->schema_version = version;
    report->schema_generation_token = token;
    report->signal = signal;
    report->reason = "seen by the simulator";
}

void report(struct client *c, uint64_t version, SF_PB(SchemaConvergenceSignal) signal)
{
    char token[16];
    SF_PB(CollectionRef) ref;
    SF_PB(ReportSchemaConvergenceSignalRequest) request;
    fill_signal(c, version, signal, token, &ref, &request);
    const SF_PB(ReportSchemaConvergenceSignalResponse) *response = (const void *)ask(
        c->w, c->process, PRIVATE "ReportSchemaConvergenceSignal", &request.base, c->arena);
    told(c->w, rank_of(c->w, version, response->state));
}

/* Sent once to somebody; whatever becomes of it, store and projection agree on it. */
void report_once(struct client *c, uint64_t version, SF_PB(SchemaConvergenceSignal) signal)
{
    char token[16];
    SF_PB(CollectionRef) ref;
    SF_PB(ReportSchemaConvergenceSignalRequest) request;
    struct sf_diag diag;
    const ProtobufCMessage *response = NULL;
    sf_diag_init(&diag);
    fill_signal(c, version, signal, token, &ref, &request);
    c->w->repair_sent = true;
    struct sim_node *node = c->w->nodes[sf_rng_below(sim_rng(c->w->sim), 2)];
    enum sf_err err = call_node(c->w, c->process, node, PRIVATE "ReportSchemaConvergenceSignal",
                                &request.base, c->arena, &diag, &response);
    sim_trace(c->w->sim, "client: single signal: %s", sf_err_info(err)->name);
}

/* What was told of the active generation never goes back. */
void read_sync(struct client *c)
{
    struct parts parts;
    struct world *w = c->w;
    SF_PB(GetSchemaSyncStatusRequest) get;
    SF_PB(CollectionRef) ref;
    uint64_t before = w->sync_rank;
    if (before == 0)
        return;
    parts_init(&parts, "");
    fill_ref(w, &ref);
    searchfabric__v1__get_schema_sync_status_request__init(&get);
    get.meta = &parts.meta;
    get.collection = &ref;
    const SF_PB(GetSchemaSyncStatusResponse) *response =
        (const void *)ask(w, c->process, PUBLIC "GetSchemaSyncStatus", &get.base, c->arena);
    uint64_t rank = rank_of(w, response->applied_schema_version, response->state);
    if (rank < before)
        sim_violation(w->sim, "sync status %" PRIu64 " after %" PRIu64 " was told", rank, before);
    told(w, rank);
}

/* The admission snapshot, from memory where possible, is as fresh. */
void read_admission(struct client *c)
{
    struct world *w = c->w;
    SF_PB(GetCollectionAdmissionStateRequest) get;
    SF_PB(CollectionRef) ref;
    uint64_t version = w->schema_acked;
    uint64_t binding = w->binding_seen;
    uint64_t before = w->sync_rank;
    if (w->shared_collection == 0)
        return;
    fill_ref(w, &ref);
    searchfabric__v1__get_collection_admission_state_request__init(&get);
    get.collection = &ref;
    const SF_PB(GetCollectionAdmissionStateResponse) *response = (const void *)ask(
        w, c->process, PRIVATE "GetCollectionAdmissionState", &get.base, c->arena);
    const SF_PB(CollectionAdmissionState) *state = response->state;
    uint64_t active = state->_active_schema_version_case != 0 ? state->active_schema_version : 0;
    uint64_t ready =
        state->_ready_generation_version_case != 0 ? state->ready_generation_version : 0;
    if (active < version)
        sim_violation(w->sim, "admission shows schema %" PRIu64 ", acknowledged was %" PRIu64,
                      active, version);
    if (state->collection_name_binding_revision < binding)
        sim_violation(w->sim, "binding revision %" PRIu64 " after %" PRIu64,
                      state->collection_name_binding_revision, binding);
    if (state->collection_name_binding_revision > w->binding_seen)
        w->binding_seen = state->collection_name_binding_revision;
    if ((before & 3) == 1 && !w->drift_sent && ready < before / 4)
        sim_violation(w->sim, "admission shows READY %" PRIu64 ", told was %" PRIu64, ready,
                      before / 4);
}
