/*
 * Two contending catalog owners over one store and one projection. Clients create one shared name
 * (all at once), update namespaces of their own, put schemas and report convergence, and read what
 * others wrote; each retries with the same key at either owner until it is answered.
 *
 * Checked (protocols.md section 5):
 *   1  a key answered once is answered the same bytes ever after, by whichever owner
 *   2  one outcome per command, one live lineage and one id per name
 *   3  every lineage has epoch 1: nothing was released here
 *   8  a rebuild from the store alone gives the same rows and the same answers
 *   9  no read goes back behind what was acknowledged before it began; no refusal from old facts
 *  11  everything is answered once the network is calm
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/pbjson.h"
#include "catalog/catalog_rules.h"
#include "contract/descriptor_set.h"
#include "fault/sim/sim.h"
#include "rpc/channel.h"

#define CLIENTS   3
#define UPDATES   4
#define MAX_KEYS  64
#define PUBLIC    "/searchfabric.v1.CatalogControlService/"
#define PRIVATE   "/searchfabric.v1.CatalogControlPrivateService/"
#define TSO_START (UINT64_C(1767225600000) << 18)

/* One key and what it was answered. */
struct answered {
    char key[24];
    const char *method;        /* full path */
    ProtobufCMessage *request; /* in the world's arena */
    struct sf_buf bytes;       /* canonical JSON of the answer; empty until answered */
};

struct world {
    struct sim *sim;
    struct sf_sql *sql;     /* the shared projection */
    struct sf_sql *rebuilt; /* of the node that rebuilds */
    struct sim_node *nodes[2];
    struct sim_node *rebuilder; /* started at the end */
    struct sf_arena *arena;     /* requests */
    uint64_t next_tso;
    struct answered keys[MAX_KEYS];
    size_t key_count;
    unsigned clients_done;
    bool reread; /* every key was asked again */
    /* the model */
    uint64_t shared_namespace, shared_collection; /* ids, 0 = none acknowledged yet */
    uint64_t own_namespace[CLIENTS];
    uint64_t own_acked[CLIENTS]; /* highest update acknowledged */
    uint64_t own_sent[CLIENTS];  /* highest update sent */
    uint64_t sync_rank;          /* highest that anybody was told, see sync_rank_of */
    bool drift_sent;             /* version 2 may stop serving */
    bool repair_sent;            /* the last signal, which nobody repeats, is on its way */
    uint64_t schema_acked;       /* highest schema version acknowledged */
    struct sf_buf answers;       /* of the contenders, before the rebuild */
};

/* ---- a node ------------------------------------------------------------------------------- */

struct life {
    struct sf_catalog *catalog;
    struct sf_sql *sql;
    struct sf_keyring *keyring;
    struct sf_attempts attempts;
    struct sf_tso_source tso;
    struct world *w;
    const struct sf_service *services[SF_CATALOG_SERVICE_COUNT];
    unsigned callers;
    struct sf_waiter *stopping;
};

static void shared_tso_get(struct sf_tso_source *source, struct sf_tso_request *request)
{
    struct world *w = SF_CONTAINER_OF(source, struct life, tso)->w;
    request->first.v = w->next_tso;
    w->next_tso += request->count;
    request->err = SF_OK;
    request->done(request);
}

static const struct sf_tso_source_vtable shared_tso = {.get = shared_tso_get};

static void life_destroy(struct life *life)
{
    sf_sql_close(life->sql);
    sf_keyring_destroy(life->keyring);
    free(life);
}

static void *start_on(struct sim_process *process, struct world *w, struct sf_sql *sql)
{
    struct life *life = sf_calloc(1, sizeof(*life));
    struct sf_diag diag;
    life->w = w;
    life->tso.vtable = &shared_tso;
    life->sql = sf_sql_share(sql, sim_process_sql_faults(process));
    life->keyring = sf_keyring_new_for_test(1);
    sf_attempts_init(&life->attempts, sim_process_random(process));
    struct sf_catalog_deps deps = {.store = sim_process_store(process),
                                   .sched = sim_process_sched(process),
                                   .loop = sim_process_loop(process, 0),
                                   .clock = sim_process_clock(process),
                                   .tso = &life->tso,
                                   .sql = life->sql,
                                   .keyring = life->keyring,
                                   .attempts = &life->attempts,
                                   .owner_id = sim_process_name(process),
                                   .lane_shards = 4};
    enum sf_err err = sf_catalog_open(&deps, sim_process_sched(process), &diag, &life->catalog);
    if (err != SF_OK) {
        sim_trace(w->sim, "%s: open: %s %s", sim_process_name(process), sf_err_info(err)->name,
                  diag.message);
        if (err == SF_ERR_CORRUPT && !sim_process_is_dead(process))
            sim_violation(w->sim, "%s cannot open: %s", sim_process_name(process), diag.message);
        life_destroy(life);
        return NULL;
    }
    sf_catalog_services(life->catalog, life->services);
    return life;
}

static void *ccs_start(struct sim_process *process, void *ctx)
{
    struct world *w = ctx;
    return start_on(process, w, w->sql);
}

static void *ccs_start_rebuilding(struct sim_process *process, void *ctx)
{
    struct world *w = ctx;
    return start_on(process, w, w->rebuilt);
}

static void ccs_stop(struct sim_process *process, void *service, void *ctx)
{
    struct life *life = service;
    struct sf_waiter waiter;
    (void)ctx;
    sf_catalog_drain(life->catalog);
    sf_waiter_init(&waiter, sim_process_sched(process));
    life->stopping = &waiter;
    if (life->callers > 0)
        sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
    sf_catalog_close(life->catalog, sim_process_sched(process));
    life_destroy(life);
}

/* ---- calls -------------------------------------------------------------------------------- */

/* One call at `node`. SF_ERR_STOPPED: nobody there, or the answer does not count. */
static enum sf_err call_node(struct world *w, struct sim_process *client, struct sim_node *node,
                             const char *method, const ProtobufCMessage *request,
                             struct sf_arena *arena, struct sf_diag *diag,
                             const ProtobufCMessage **out_response)
{
    uint64_t number = 0;
    struct life *life = sim_node_service(node, &number);
    (void)w;
    if (life == NULL || life->stopping != NULL)
        return SF_ERR_STOPPED;
    life->callers++;
    struct sf_channel *channel = sf_inproc_channel_new(life->services, SF_CATALOG_SERVICE_COUNT,
                                                       "client", sim_process_clock(client));
    struct sf_call_options options = {0};
    enum sf_err err = sf_channel_unary_wait(channel, sim_process_sched(client), method, request,
                                            &options, arena, diag, out_response);
    sf_channel_destroy(channel);
    bool counts = sim_node_is_current(node, number);
    if (--life->callers == 0 && life->stopping != NULL)
        sf_waiter_wake(life->stopping);
    return counts ? err : SF_ERR_STOPPED;
}

/* A put of a lineage that several clients update: it may lose a race. */
static bool is_shared(const ProtobufCMessage *request)
{
    const SF_PB(RequestMeta) *meta = sf_catalog_meta_of(request);
    return meta != NULL && strstr(meta->idempotency_key, "-shared-") != NULL;
}

/* Until answered; codes that say "come back" are followed. */
static const ProtobufCMessage *ask(struct world *w, struct sim_process *client, const char *method,
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
        sim_sleep(client, 1 + (int64_t)sf_rng_below(sim_rng(w->sim), 300));
    }
}

static void to_json(const ProtobufCMessage *message, struct sf_buf *out)
{
    sf_buf_clear(out);
    sf_pbjson_encode(message, out);
}

/* A mutation: asked until answered, noted, compared with what the key was answered before. */
static const ProtobufCMessage *mutate(struct world *w, struct sim_process *client, const char *key,
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

struct parts {
    SF_PB(RequestMeta) meta;
    SF_PB(EncryptionPolicy) encryption;
    SF_PB(ProviderManagedEncryption) managed;
    SF_PB(DescriptorOptions) options;
    SF_PB(DescriptorOptions__EntriesEntry) entry;
    SF_PB(DescriptorOptions__EntriesEntry) * entries[1];
    char value[24];
};

static void parts_init(struct parts *parts, char *key)
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

struct client {
    struct world *w;
    struct sim_process *process;
    unsigned id;
    struct sf_arena *arena; /* of one step */
};

/* All clients put one name at once: one lineage. */
static void put_shared_namespace(struct client *c)
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

static void put_shared_collection(struct client *c)
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
static void put_own(struct client *c, uint64_t value)
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
static void read_own(struct client *c, unsigned of)
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

static void fill_ref(const struct world *w, SF_PB(CollectionRef) * ref)
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

static void put_schema(struct client *c, uint64_t version, const char *suffix)
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

static void report(struct client *c, uint64_t version, SF_PB(SchemaConvergenceSignal) signal)
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
static void report_once(struct client *c, uint64_t version, SF_PB(SchemaConvergenceSignal) signal)
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
static void read_sync(struct client *c)
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
static void read_admission(struct client *c)
{
    struct world *w = c->w;
    SF_PB(GetCollectionAdmissionStateRequest) get;
    SF_PB(CollectionRef) ref;
    uint64_t version = w->schema_acked;
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
    if ((before & 3) == 1 && !w->drift_sent && ready < before / 4)
        sim_violation(w->sim, "admission shows READY %" PRIu64 ", told was %" PRIu64, ready,
                      before / 4);
}

static void look_around(struct client *c)
{
    read_own(c, (unsigned)sf_rng_below(sim_rng(c->w->sim), CLIENTS));
    read_sync(c);
    read_admission(c);
    sf_arena_reset(c->arena);
}

static void pause_a_little(struct client *c)
{
    sim_sleep(c->process, (int64_t)sf_rng_below(sim_rng(c->w->sim), 400));
}

static void run_client(struct sim_process *process, void *arg)
{
    struct client *c = arg;
    c->process = process;
    c->arena = sf_arena_new((size_t)64 << 20);
    put_shared_namespace(c);
    put_own(c, 1);
    put_shared_collection(c);
    look_around(c);
    for (uint64_t i = 2; i < 2 + UPDATES; i++) {
        put_own(c, i);
        if (c->id == 0 && i < 4) {
            put_schema(c, i - 1, "");
            report(c, i - 1, SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SERVING_GENERATION_READY));
        }
        if (c->id == 0 && i == 4) {
            c->w->drift_sent = true;
            report(c, 2, SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, DRIFT_DETECTED));
            look_around(c);
            pause_a_little(c);
            report_once(c, 2, SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, REPAIR_SUCCEEDED));
        }
        look_around(c);
        pause_a_little(c);
        put_own(c, 1 + sf_rng_below(sim_rng(c->w->sim), i)); /* an old key again */
        look_around(c);
    }
    if (c->id == 1 && c->w->schema_acked >= 2)
        put_schema(c, 2, "-again");
    sf_arena_destroy(c->arena);
    c->w->clients_done++;
}

/* ---- the end ------------------------------------------------------------------------------ */

static bool all_done(struct sim *sim, void *ctx)
{
    const struct world *w = ctx;
    (void)sim;
    return w->clients_done == CLIENTS;
}

static bool all_reread(struct sim *sim, void *ctx)
{
    const struct world *w = ctx;
    (void)sim;
    return w->reread;
}

/* Asks every key again, and every read, at the node that serves now. */
static void run_reread(struct sim_process *process, void *arg)
{
    struct world *w = arg;
    struct client c = {.w = w, .process = process, .id = 0};
    struct sf_buf json = {0};
    c.arena = sf_arena_new((size_t)64 << 20);
    sf_buf_clear(&w->answers);
    for (size_t i = 0; i < w->key_count; i++)
        (void)mutate(w, process, w->keys[i].key, w->keys[i].method, w->keys[i].request, c.arena);
    for (unsigned i = 0; i < CLIENTS; i++)
        read_own(&c, i);
    read_sync(&c);
    read_admission(&c);
    struct parts parts;
    SF_PB(ListNamespacesRequest) list;
    parts_init(&parts, "");
    searchfabric__v1__list_namespaces_request__init(&list);
    list.meta = &parts.meta;
    to_json(ask(w, process, PUBLIC "ListNamespaces", &list.base, c.arena), &json);
    sf_buf_append(&w->answers, json.data, json.len);
    SF_PB(ListCollectionsRequest) collections;
    searchfabric__v1__list_collections_request__init(&collections);
    collections.meta = &parts.meta;
    collections.namespace_id = w->shared_namespace;
    to_json(ask(w, process, PUBLIC "ListCollections", &collections.base, c.arena), &json);
    sf_buf_append(&w->answers, json.data, json.len);
    SF_PB(GetCollectionSchemaRequest) schema;
    SF_PB(CollectionRef) ref;
    fill_ref(w, &ref);
    searchfabric__v1__get_collection_schema_request__init(&schema);
    schema.meta = &parts.meta;
    schema.collection = &ref;
    to_json(ask(w, process, PUBLIC "GetCollectionSchema", &schema.base, c.arena), &json);
    sf_buf_append(&w->answers, json.data, json.len);
    SF_PB(GetSchemaSyncStatusRequest) sync;
    searchfabric__v1__get_schema_sync_status_request__init(&sync);
    sync.meta = &parts.meta;
    sync.collection = &ref;
    to_json(ask(w, process, PUBLIC "GetSchemaSyncStatus", &sync.base, c.arena), &json);
    sf_buf_append(&w->answers, json.data, json.len);
    sf_buf_fini(&json);
    sf_arena_destroy(c.arena);
    w->reread = true;
}

/* Rows of one query as text. */
static void dump_query(struct sf_sql_conn *conn, const char *query, int columns, struct sf_buf *out)
{
    struct sf_sql_stmt *stmt;
    struct sf_diag diag;
    bool row = true;
    enum sf_err err = sf_sql_prepare(conn, query, &diag, &stmt);
    SF_ASSERT(err == SF_OK);
    for (;;) {
        err = sf_sql_step(stmt, &diag, &row);
        SF_ASSERT(err == SF_OK);
        if (!row)
            break;
        for (int i = 0; i < columns; i++) {
            struct sf_view text = sf_sql_col_text(stmt, i);
            sf_buf_append(out, text.ptr, text.len);
            sf_buf_append_str(out, i + 1 == columns ? "\n" : " | ");
        }
    }
}

/* Every row that comes from commands, binding revisions aside. */
static void dump_rows(struct sf_sql *sql, struct sf_buf *out)
{
    struct sf_sql_conn *conn = sf_sql_acquire(sql, NULL, SF_SQL_READ);
    dump_query(conn,
               "SELECT CAST(namespace_id AS TEXT), namespace_name,"
               " CAST(namespace_name_allocation_epoch AS TEXT), CAST(namespace_revision AS TEXT),"
               " lifecycle_state, options_json, encryption_json,"
               " CAST(updated_at_unix_ms AS TEXT) FROM namespaces ORDER BY namespace_id",
               8, out);
    dump_query(conn,
               "SELECT CAST(collection_id AS TEXT), collection_name,"
               " CAST(collection_name_allocation_epoch AS TEXT),"
               " CAST(descriptor_revision AS TEXT), CAST(active_schema_version AS TEXT),"
               " active_schema_generation_token, options_json, encryption_json,"
               " CAST(updated_at_unix_ms AS TEXT) FROM collections ORDER BY collection_id",
               9, out);
    dump_query(conn,
               "SELECT CAST(schema_version AS TEXT), schema_generation_token,"
               " schema_definition_json, CAST(applied_commit_ts AS TEXT), sync_state,"
               " CAST(updated_at_unix_ms AS TEXT) FROM schema_generations ORDER BY schema_version",
               6, out);
    dump_query(conn,
               "SELECT command_identity, business_lookup_key, terminal_state,"
               " replay_classification, original_outcome_json FROM catalog_replay_index"
               " ORDER BY command_identity",
               5, out);
    dump_query(conn,
               "SELECT namespace_name, CAST(last_allocated_epoch AS TEXT)"
               " FROM namespace_name_epochs ORDER BY namespace_name",
               2, out);
    dump_query(conn,
               "SELECT latest_applied_schema_generation_token,"
               " CAST(latest_collected_at_unix_ms AS TEXT) FROM collection_statistics_heads",
               2, out);
    sf_sql_release(conn);
}

/* Prints the first line that differs. */
static void compare_text(struct world *w, const char *what, const struct sf_buf *a,
                         const struct sf_buf *b)
{
    size_t n = a->len < b->len ? a->len : b->len;
    size_t at = 0;
    if (sf_view_equal(sf_buf_view(a), sf_buf_view(b)))
        return;
    while (at < n && a->data[at] == b->data[at])
        at++;
    size_t from = at > 200 ? at - 200 : 0;
    sim_violation(w->sim, "%s differ after a rebuild: ...%.*s... | ...%.*s...", what,
                  (int)(a->len - from < 600 ? a->len - from : 600), (const char *)a->data + from,
                  (int)(b->len - from < 600 ? b->len - from : 600), (const char *)b->data + from);
}

/* The epoch object of a name is the one that the lineage's create wrote. */
static void check_epoch_object(struct world *w, const SF_PB(CommandOutcomeObject) * outcome,
                               struct sf_arena *arena)
{
    struct sf_buf key = {0};
    struct sf_diag diag;
    ProtobufCMessage *message = NULL;
    if (outcome->command_kind == SF_PBE(COMMAND_KIND, PUT_NAMESPACE_METADATA)) {
        sf_catalog_key_namespace_name(&key, outcome->scope->namespace_name);
        enum sf_err err =
            sf_durable_read_wait(sim_backend(w->sim), NULL, sf_buf_view(&key),
                                 &searchfabric__v1__namespace_name_epoch_object__descriptor, arena,
                                 &diag, &message, NULL);
        SF_ASSERT(err == SF_OK);
        const SF_PB(NamespaceNameEpochObject) *epoch = (const void *)message;
        if (epoch->allocated_namespace_id != outcome->scope->namespace_id)
            sim_violation(w->sim, "the epoch object of %s names another lineage",
                          outcome->scope->namespace_name);
    } else if (outcome->command_kind == SF_PBE(COMMAND_KIND, PUT_COLLECTION_METADATA)) {
        sf_catalog_key_collection_name(&key, outcome->scope->namespace_id,
                                       outcome->scope->collection_name);
        enum sf_err err =
            sf_durable_read_wait(sim_backend(w->sim), NULL, sf_buf_view(&key),
                                 &searchfabric__v1__collection_name_epoch_object__descriptor, arena,
                                 &diag, &message, NULL);
        SF_ASSERT(err == SF_OK);
        const SF_PB(CollectionNameEpochObject) *epoch = (const void *)message;
        if (epoch->allocated_collection_id != outcome->scope->collection_id)
            sim_violation(w->sim, "the epoch object of %s names another lineage",
                          outcome->scope->collection_name);
    }
    sf_buf_fini(&key);
}

/* One lineage per name at epoch 1, each committed control object as its record names it. */
static void check_records(struct world *w)
{
    struct sf_arena *arena = sf_arena_new((size_t)64 << 20);
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    struct sf_diag diag;
    enum sf_err err =
        sf_store_list_wait(sim_backend(w->sim), NULL, sf_view_str("catalog-log/"), sf_view_str(""),
                           SF_LIMIT_LIST_PAGE_ENTRIES, arena, &entries, &count);
    SF_ASSERT(err == SF_OK);
    size_t applied = 0;
    for (size_t i = 0; i < count; i++) {
        ProtobufCMessage *message = NULL;
        err = sf_durable_read_wait(sim_backend(w->sim), NULL, entries[i].key,
                                   &searchfabric__v1__command_outcome_object__descriptor, arena,
                                   &diag, &message, NULL);
        SF_ASSERT(err == SF_OK);
        const SF_PB(CommandOutcomeObject) *outcome = (const void *)message;
        if (outcome->abort != NULL)
            continue;
        applied++;
        if (outcome->_namespace_name_allocation_epoch_case != 0)
            SIM_CHECK(w->sim, outcome->namespace_name_allocation_epoch == 1);
        if (outcome->_collection_name_allocation_epoch_case != 0)
            SIM_CHECK(w->sim, outcome->collection_name_allocation_epoch == 1);
        check_epoch_object(w, outcome, arena);
        struct sf_buf body = {0};
        for (size_t k = 0; k < outcome->n_control_objects; k++) {
            const SF_PB(ControlObjectRef) *ref = outcome->control_objects[k];
            char digest[SF_SHA256_HEX_BYTES];
            sf_buf_clear(&body);
            err = sf_store_get_wait(sim_backend(w->sim), NULL, sf_view_str(ref->key), &body, NULL);
            SF_ASSERT(err == SF_OK);
            sf_sha256_hex(sf_buf_view(&body), digest);
            if (outcome->command_kind != SF_PBE(COMMAND_KIND, PUT_COLLECTION_SCHEMA) &&
                strcmp(digest, ref->sha256) != 0)
                sim_violation(w->sim, "%s is not what its record names", ref->key);
        }
        sf_buf_fini(&body);
    }
    SIM_CHECK(w->sim, applied == w->key_count);
    sf_arena_destroy(arena);
}

static void check_end(struct world *w, struct sim_process *clients,
                      const struct sim_service *rebuild)
{
    struct sf_buf before = {0};
    struct sf_buf after = {0};
    struct sf_buf answers = {0};
    w->reread = false;
    sim_spawn(clients, run_reread, w);
    sim_run_until(w->sim, all_reread, w, 120000, "every key is answered again");
    sf_buf_append(&answers, w->answers.data, w->answers.len);
    check_records(w);
    dump_rows(w->sql, &before);
    w->rebuilder = sim_node_new(w->sim, "rebuild", rebuild);
    w->reread = false;
    sim_spawn(clients, run_reread, w);
    sim_run_until(w->sim, all_reread, w, 120000, "every key is answered after a rebuild");
    compare_text(w, "answers", &answers, &w->answers);
    dump_rows(w->rebuilt, &after);
    compare_text(w, "rows", &before, &after);
    sf_buf_fini(&before);
    sf_buf_fini(&after);
    sf_buf_fini(&answers);
}

static void run_with(struct sim *sim, const struct sim_options *options)
{
    struct world *w = sf_calloc(1, sizeof(*w));
    const struct sim_service service = {.start = ccs_start, .stop = ccs_stop, .ctx = w};
    const struct sim_service rebuild = {.start = ccs_start_rebuilding, .stop = ccs_stop, .ctx = w};
    struct client clients[CLIENTS];
    struct sf_diag diag;
    sim_configure(sim, options);
    sf_log_set_fd(-1);
    w->sim = sim;
    w->arena = sf_arena_new((size_t)64 << 20);
    w->next_tso = TSO_START;
    enum sf_err err = sf_catalog_projection_open(NULL, NULL, &diag, &w->sql);
    SF_ASSERT(err == SF_OK);
    err = sf_catalog_projection_open(NULL, NULL, &diag, &w->rebuilt);
    SF_ASSERT(err == SF_OK);
    w->nodes[0] = sim_node_new(sim, "a", &service);
    w->nodes[1] = sim_node_new(sim, "b", &service);
    struct sim_process *process = sim_process_new(sim, "clients");
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.w = w, .id = i};
        sim_spawn(process, run_client, &clients[i]);
    }
    sim_run_for(sim, 8000);
    sim_settle(sim);
    /* Each start deposes the other owner; leadership leaves one that serves. */
    sim_node_kill(w->nodes[0]);
    sim_run_until(sim, all_done, w, 300000, "every key is answered");
    check_end(w, process, &rebuild);
    sim_stop_nodes(sim);
    for (size_t i = 0; i < w->key_count; i++)
        sf_buf_fini(&w->keys[i].bytes);
    sf_buf_fini(&w->answers);
    sf_sql_close(w->sql);
    sf_sql_close(w->rebuilt);
    sf_arena_destroy(w->arena);
    free(w);
}

static void run_ccs(struct sim *sim)
{
    struct sim_options options = sim_default_options();
    run_with(sim, &options);
}

/* Puts stay in doubt and land late, processes die and freeze all the time. */
static void run_doubt(struct sim *sim)
{
    struct sim_options options = sim_default_options();
    options.rates.lost_request = 150;
    options.rates.lost_answer = 120;
    options.rates.late = 250;
    options.rates.refused = 60;
    options.rates.slow = 120;
    options.slow_ms = 900;
    options.late_ms = 5000;
    options.timeout_ms = 60;
    options.chaos.interval_ms = 700;
    options.chaos.max_kills = 8;
    options.chaos.max_pauses = 8;
    options.max_restart_ms = 200;
    run_with(sim, &options);
}

int main(int argc, char **argv)
{
    static const char *const proves[] = {"CCS-3.3-06", "CCS-4.4-11", "CCS-4.4-14",
                                         "CCS-4.4-15", "CCS-4.4-16", NULL};
    static const struct sim_scenario scenarios[] = {
        {.name = "ccs", .area = "ccs", .run = run_ccs, .proves = proves},
        {.name = "ccs_doubt", .area = "ccs", .run = run_doubt}};
    enum sf_err err = sf_pbjson_register(
        sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size));
    SF_ASSERT(err == SF_OK);
    return sim_main(argc, argv, scenarios, SF_ARRAY_LEN(scenarios));
}
