/* The wire applies a batch stage by stage, put by put, in order: each put is its own request. */
#include "component/catalog/catalog_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/pbjson.h"
#include "contract/descriptor_set.h"
#include "contract/served.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

/* ---- wire --------------------------------------------------------------------------------- */

static struct wire *wire_of(struct sf_store *store)
{
    return SF_CONTAINER_OF(store, struct wire, base);
}

static void note(struct wire *wire, const char *what, struct sf_view key)
{
    if (!atomic_load(&wire->tracing))
        return;
    pthread_mutex_lock(&wire->trace_mu);
    sf_buf_printf(&wire->trace, "%s %.*s\n", what, (int)key.len, (const char *)key.ptr);
    pthread_mutex_unlock(&wire->trace_mu);
}

int world_setup(void **state)
{
    *state = world_new(true);
    return 0;
}

int world_setup_shared(void **state)
{
    *state = world_new(false);
    return 0;
}

int world_teardown(void **state)
{
    world_destroy(*state);
    return 0;
}

void world_execute(struct world *w, const char *sql)
{
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    assert_int_equal(sf_sql_exec(conn, sql, &w->diag), SF_OK);
    sf_sql_release(conn);
    if (w->catalog != NULL)
        sf_catalog_flush(w->catalog);
}

void world_depose(struct world *w)
{
    SF_PB(RecoverySegmentObject) segment;
    SF_PB(TakeoverRecord) takeover;
    struct sf_catalog_stats stats;
    sf_catalog_stats(w->catalog, &stats);
    searchfabric__v1__recovery_segment_object__init(&segment);
    searchfabric__v1__takeover_record__init(&takeover);
    segment.format_version = SF_CATALOG_FORMAT_VERSION;
    segment.attempt_id = "other";
    segment.recovery_segment_epoch = stats.newest_segment + 1;
    segment.takeover = &takeover;
    takeover.owner_id = "other";
    struct sf_catalog_put put = {0};
    sf_catalog_key_segment(&put.key, stats.newest_segment + 1);
    sf_catalog_put_encode(&put, &segment.base, true, NULL);
    struct sf_put once;
    sf_catalog_put_fill(&put, 0, 0, &once);
    assert_int_equal(sf_store_put_wait(w->truth, NULL, &once), SF_OK);
    sf_catalog_put_fini(&put);
}

void world_trace(struct world *w)
{
    sf_buf_clear(&w->wire.trace);
    atomic_store(&w->wire.tracing, true);
}

const char *world_traced(struct world *w)
{
    atomic_store(&w->wire.tracing, false);
    return sf_arena_str(w->arena, sf_buf_view(&w->wire.trace));
}

/* One put; false when the wire is cut before it. */
static enum sf_err apply_one(struct wire *wire, const struct sf_put *put, struct sf_etag *out_etag)
{
    if (atomic_load(&wire->applied) >= atomic_load(&wire->cut_after)) {
        atomic_store(&wire->dead, true);
        if (wire->w->catalog != NULL)
            sf_catalog_drain(wire->w->catalog); /* the process is dying: nothing waits for ever */
    }
    if (atomic_load(&wire->dead))
        return SF_ERR_UNAVAILABLE;
    note(wire, "put", put->key);
    struct sf_put copy = *put;
    copy.stage = 0;
    copy.command = 0;
    enum sf_err err = sf_store_put_wait(wire->backend, NULL, &copy);
    if (err == SF_OK) {
        atomic_fetch_add(&wire->applied, 1);
        if (wire->log != NULL)
            sf_buf_printf(wire->log, "put %.*s\n", (int)put->key.len, (const char *)put->key.ptr);
    }
    *out_etag = copy.etag;
    return err;
}

static bool cancelled(const struct sf_batch *batch, size_t index)
{
    const struct sf_put *put = &batch->puts[index];
    for (size_t i = 0; i < index; i++) {
        const struct sf_put *before = &batch->puts[i];
        if (before->stage < put->stage && before->err != SF_OK &&
            (before->command == SF_COMMAND_ALL || before->command == put->command))
            return true;
    }
    return false;
}

static void wire_submit(struct sf_store *store, struct sf_batch *batch)
{
    struct wire *wire = wire_of(store);
    if (wire->submitted != NULL)
        wire->submitted(wire->submitted_arg);
    for (size_t i = 0; i < batch->count; i++) {
        struct sf_put *put = &batch->puts[i];
        put->err = cancelled(batch, i) ? SF_ERR_CANCELLED_STAGE : apply_one(wire, put, &put->etag);
    }
    batch->done(batch);
}

static void wire_get(struct sf_store *store, struct sf_get *get)
{
    struct wire *wire = wire_of(store);
    atomic_fetch_add(&wire->gets, 1);
    note(wire, "get", get->key);
    get->err = atomic_load(&wire->dead)
                   ? SF_ERR_UNAVAILABLE
                   : sf_store_get_wait(wire->backend, NULL, get->key, &get->body, &get->etag);
    get->done(get);
}

static enum sf_err wire_list(struct sf_store *store, struct sf_sched *sched, struct sf_view prefix,
                             struct sf_view start_after, size_t limit, struct sf_arena *arena,
                             struct sf_list_entry **out_entries, size_t *out_count)
{
    struct wire *wire = wire_of(store);
    (void)sched;
    atomic_fetch_add(&wire->lists, 1);
    note(wire, "list", prefix);
    if (wire->listed != NULL)
        wire->listed(wire->listed_arg);
    if (prefix.len == 0 || (prefix.len >= 11 && memcmp(prefix.ptr, "catalog-log", 11) == 0))
        atomic_store(&wire->listed_records, true);
    if (atomic_load(&wire->dead))
        return SF_ERR_UNAVAILABLE;
    return sf_store_list_wait(wire->backend, NULL, prefix, start_after, limit, arena, out_entries,
                              out_count);
}

static enum sf_err wire_remove(struct sf_store *store, struct sf_sched *sched, struct sf_view key)
{
    (void)sched;
    note(wire_of(store), "remove", key);
    return sf_store_remove_wait(wire_of(store)->backend, NULL, key);
}

static void wire_destroy(struct sf_store *store)
{
    (void)store;
}

static const struct sf_store_vtable wire_vtable = {.submit = wire_submit,
                                                   .get = wire_get,
                                                   .list = wire_list,
                                                   .remove = wire_remove,
                                                   .destroy = wire_destroy};

/* ---- timestamps --------------------------------------------------------------------------- */

static void counting_get(struct sf_tso_source *source, struct sf_tso_request *request)
{
    struct world *w = SF_CONTAINER_OF(source, struct world, tso);
    request->first.v = atomic_fetch_add(&w->next_tso, request->count);
    request->err = SF_OK;
    request->done(request);
}

static const struct sf_tso_source_vtable counting_vtable = {.get = counting_get};

/* ---- life --------------------------------------------------------------------------------- */

enum sf_err world_open(struct world *w)
{
    struct sf_catalog_deps deps = {.store = &w->wire.base,
                                   .sched = w->pool,
                                   .clock = &w->clock.base,
                                   .tso = &w->tso,
                                   .sql = w->sql,
                                   .keyring = w->keyring,
                                   .attempts = &w->attempts,
                                   .owner_id = "test",
                                   .lane_shards = w->lane_shards,
                                   .checkpoint_commands = w->checkpoint_commands,
                                   .checkpoint_interval_ms = w->checkpoint_interval_ms,
                                   .collection_gc_delay_ms = w->collection_gc_delay_ms,
                                   .namespace_gc_delay_ms = w->namespace_gc_delay_ms,
                                   .cache_bytes = w->cache_bytes,
                                   .trace = w->trace,
                                   .policy = w->policy,
                                   .presplit = w->presplit};
    enum sf_err err = sf_catalog_open(&deps, NULL, &w->diag, &w->catalog);
    if (err != SF_OK)
        return err;
    const struct sf_service *services[SF_CATALOG_SERVICE_COUNT];
    sf_catalog_services(w->catalog, services);
    w->channel =
        sf_inproc_channel_new(services, SF_CATALOG_SERVICE_COUNT, "loopback", &w->clock.base);
    return SF_OK;
}

void world_stop(struct world *w)
{
    sf_channel_destroy(w->channel);
    w->channel = NULL;
    if (w->catalog != NULL)
        sf_catalog_close(w->catalog, NULL);
    w->catalog = NULL;
    atomic_store(&w->wire.cut_after, UINT64_MAX);
    atomic_store(&w->wire.dead, false);
    atomic_store(&w->wire.applied, 0);
}

void world_restart(struct world *w)
{
    world_stop(w);
    assert_int_equal(world_open(w), SF_OK);
}

void world_rebuild(struct world *w)
{
    world_stop(w);
    sf_sql_close(w->sql);
    sf_test_sql_empty(&w->place);
    assert_int_equal(sf_catalog_projection_open_at(&w->place.where, &w->diag, &w->sql), SF_OK);
    assert_int_equal(world_open(w), SF_OK);
}

struct world *world_new(bool exclusive)
{
    struct sf_test_sql place;
    sf_test_sql_make(&place, true);
    struct world *w = world_new_at(exclusive, &place);
    w->borrowed = false;
    return w;
}

struct world *world_new_at(bool exclusive, const struct sf_test_sql *place)
{
    struct world *w = sf_calloc(1, sizeof(*w));
    w->place = *place;
    w->borrowed = true;
    if (place->where.path != NULL)
        w->place.where.path = w->place.path;
    if (place->where.kind != SF_SQL_SQLITE) {
        w->place.where.server.host = w->place.host;
        w->place.where.server.database = w->place.database;
        w->place.where.server.password_file = w->place.password_file;
    }
    assert_int_equal(sf_pbjson_register(sf_view_bytes(sf_contract_descriptor_set,
                                                      sf_contract_descriptor_set_size)),
                     SF_OK);
    sf_log_set_fd(-1);
    w->truth = sf_memory_store_new_inline();
    w->wire = (struct wire){.base = {.vtable = &wire_vtable, .exclusive = exclusive},
                            .backend = w->truth,
                            .w = w,
                            .cut_after = UINT64_MAX};
    pthread_mutex_init(&w->wire.trace_mu, NULL);
    assert_int_equal(sf_catalog_projection_open_at(&w->place.where, &w->diag, &w->sql), SF_OK);
    sf_clock_manual_init(&w->clock, WORLD_UNIX_MS, 1000000000);
    struct sf_pool_options pool = {.workers = 8, .max_queued_tasks = 4096};
    w->pool = sf_pool_new(&pool, &w->clock.base);
    w->tso.vtable = &counting_vtable;
    atomic_init(&w->next_tso, WORLD_TSO);
    w->keyring = sf_keyring_new_for_test(1);
    sf_attempts_init(&w->attempts, 0x5eed);
    w->arena = sf_arena_new((size_t)256 << 20);
    assert_int_equal(world_open(w), SF_OK);
    return w;
}

void world_destroy(struct world *w)
{
    world_stop(w);
    sf_pool_destroy(w->pool);
    sf_sql_close(w->sql);
    if (!w->borrowed)
        sf_test_sql_drop(&w->place);
    sf_store_destroy(w->truth);
    sf_keyring_destroy(w->keyring);
    sf_arena_destroy(w->arena);
    sf_buf_fini(&w->wire.trace);
    pthread_mutex_destroy(&w->wire.trace_mu);
    free(w);
}

/* ---- calls -------------------------------------------------------------------------------- */

/* The full path of a method, whichever service has it. */
static void path_of(const char *method, char *out, size_t size)
{
    size_t count = 0;
    const struct sf_contract_method *methods = sf_contract_methods(&count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(methods[i].method, method) == 0) {
            snprintf(out, size, "/%s/%s", methods[i].service, method);
            return;
        }
    }
    fail_msg("%s is not of the contract", method);
}

const void *world_call_as(struct world *w, const char *identity, const char *method,
                          const void *request)
{
    char path[160];
    const ProtobufCMessage *response = NULL;
    struct sf_identity who = {.name = identity};
    struct sf_call_options options = {.identity = identity == NULL ? NULL : &who};
    if (identity != NULL)
        sf_sha256_hex(sf_view_str(identity), who.hash_hex);
    path_of(method, path, sizeof(path));
    sf_diag_init(&w->diag);
    enum sf_err err = sf_channel_unary_wait(w->channel, NULL, path, request, &options, w->arena,
                                            &w->diag, &response);
    return err == SF_OK ? response : NULL;
}

const void *world_call(struct world *w, const char *method, const void *request)
{
    return world_call_as(w, NULL, method, request);
}

/* ---- requests ----------------------------------------------------------------------------- */

static char *keep(struct world *w, const char *text)
{
    return sf_arena_str(w->arena, sf_view_str(text));
}

SF_PB(RequestMeta) * world_meta(struct world *w, const char *key, SF_PB(ClientKind) kind)
{
    SF_PB(RequestMeta) *meta = sf_arena_alloc(w->arena, sizeof(*meta));
    searchfabric__v1__request_meta__init(meta);
    meta->idempotency_key = keep(w, key);
    meta->client_id = keep(w, "client-1");
    meta->client_kind = kind;
    return meta;
}

SF_PB(EncryptionPolicy) * world_encryption(struct world *w)
{
    SF_PB(EncryptionPolicy) *out = sf_arena_alloc(w->arena, sizeof(*out));
    SF_PB(ProviderManagedEncryption) *managed = sf_arena_alloc(w->arena, sizeof(*managed));
    searchfabric__v1__encryption_policy__init(out);
    searchfabric__v1__provider_managed_encryption__init(managed);
    out->mode_case = SEARCHFABRIC__V1__ENCRYPTION_POLICY__MODE_PROVIDER_MANAGED;
    out->provider_managed = managed;
    return out;
}

SF_PB(DescriptorOptions) * world_options(struct world *w, const char *key, const char *value)
{
    SF_PB(DescriptorOptions) *out = sf_arena_alloc(w->arena, sizeof(*out));
    SF_PB(DescriptorOptions__EntriesEntry) *entry = sf_arena_alloc(w->arena, sizeof(*entry));
    searchfabric__v1__descriptor_options__init(out);
    searchfabric__v1__descriptor_options__entries_entry__init(entry);
    entry->key = keep(w, key);
    entry->value = keep(w, value);
    out->entries = sf_arena_alloc(w->arena, sizeof(*out->entries));
    out->entries[0] = entry;
    out->n_entries = 1;
    return out;
}

SF_PB(PutNamespaceMetadataRequest) *
    world_namespace_request(struct world *w, const char *key, const char *name)
{
    SF_PB(PutNamespaceMetadataRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
    searchfabric__v1__put_namespace_metadata_request__init(out);
    out->meta = world_meta(w, key, SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    out->namespace_name = keep(w, name);
    out->encryption = world_encryption(w);
    return out;
}

SF_PB(PutCollectionMetadataRequest) *
    world_collection_request(struct world *w, const char *key, uint64_t ns, const char *name)
{
    SF_PB(PutCollectionMetadataRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
    SF_PB(CollectionNameBinding) *binding = sf_arena_alloc(w->arena, sizeof(*binding));
    searchfabric__v1__put_collection_metadata_request__init(out);
    searchfabric__v1__collection_name_binding__init(binding);
    binding->namespace_id = ns;
    binding->collection_name = keep(w, name);
    out->meta = world_meta(w, key, SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    out->name_binding = binding;
    out->encryption = world_encryption(w);
    return out;
}

static SF_PB(CollectionSchemaDefinition) * make_definition(struct world *w)
{
    SF_PB(CollectionSchemaDefinition) *out = sf_arena_alloc(w->arena, sizeof(*out));
    SF_PB(DocIDMapping) *mapping = sf_arena_alloc(w->arena, sizeof(*mapping));
    SF_PB(FieldDefinition) *field = sf_arena_alloc(w->arena, sizeof(*field));
    searchfabric__v1__collection_schema_definition__init(out);
    searchfabric__v1__doc_idmapping__init(mapping);
    searchfabric__v1__field_definition__init(field);
    mapping->generation_policy = SF_PBE(DOC_ID_GENERATION_POLICY, CALLER_REQUIRED);
    field->name = keep(w, "title");
    field->type = SF_PBE(FIELD_TYPE, KEYWORD);
    field->modalities = sf_arena_alloc(w->arena, sizeof(*field->modalities));
    field->modalities[0] = SF_PBE(MODALITY, METADATA_SEARCH);
    field->n_modalities = 1;
    out->collection_truth_mode = SF_PBE(COLLECTION_TRUTH_MODE, SEARCH_FABRIC);
    out->doc_id_mapping = mapping;
    out->fields = sf_arena_alloc(w->arena, sizeof(*out->fields));
    out->fields[0] = field;
    out->n_fields = 1;
    return out;
}

static SF_PB(CollectionRef) * make_ref(struct world *w, uint64_t ns, uint64_t collection)
{
    SF_PB(CollectionRef) *ref = sf_arena_alloc(w->arena, sizeof(*ref));
    searchfabric__v1__collection_ref__init(ref);
    ref->namespace_id = ns;
    ref->collection_id = collection;
    return ref;
}

SF_PB(PutCollectionSchemaRequest) * world_schema_request(struct world *w, const char *key,
                                                         uint64_t ns, uint64_t collection,
                                                         uint64_t version, const char *token)
{
    SF_PB(PutCollectionSchemaRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
    SF_PB(SchemaFencePrecondition) *fence = sf_arena_alloc(w->arena, sizeof(*fence));
    searchfabric__v1__put_collection_schema_request__init(out);
    searchfabric__v1__schema_fence_precondition__init(fence);
    fence->schema_generation_token = keep(w, token);
    out->meta = world_meta(w, key, SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    out->collection = make_ref(w, ns, collection);
    out->schema_version = version;
    out->fence = fence;
    out->definition = make_definition(w);
    return out;
}

uint64_t world_namespace(struct world *w, const char *key, const char *name)
{
    const SF_PB(PutNamespaceMetadataResponse) *response =
        world_call(w, "PutNamespaceMetadata", world_namespace_request(w, key, name));
    assert_non_null(response);
    return response->descriptor->namespace_id;
}

uint64_t world_collection(struct world *w, const char *key, uint64_t ns, const char *name)
{
    const SF_PB(PutCollectionMetadataResponse) *response =
        world_call(w, "PutCollectionMetadata", world_collection_request(w, key, ns, name));
    assert_non_null(response);
    return response->descriptor->collection->collection_id;
}

void world_schema(struct world *w, const char *key, uint64_t ns, uint64_t collection,
                  uint64_t version, const char *token)
{
    assert_non_null(world_call(w, "PutCollectionSchema",
                               world_schema_request(w, key, ns, collection, version, token)));
}

void world_ready(struct world *w, uint64_t ns, uint64_t collection, uint64_t version,
                 const char *token)
{
    SF_PB(ReportSchemaConvergenceSignalRequest) request;
    searchfabric__v1__report_schema_convergence_signal_request__init(&request);
    request.collection = make_ref(w, ns, collection);
    request.schema_version = version;
    request.schema_generation_token = keep(w, token);
    request.signal = SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SERVING_GENERATION_READY);
    assert_non_null(world_call(w, "ReportSchemaConvergenceSignal", &request));
}

/* ---- looking ------------------------------------------------------------------------------ */

const char *world_json(struct world *w, const void *message)
{
    struct sf_buf json = {0};
    sf_pbjson_encode(message, &json);
    const char *text = sf_arena_str(w->arena, sf_buf_view(&json));
    sf_buf_fini(&json);
    return text;
}

static void add_answer(struct world *w, struct sf_buf *out, const char *method, const void *request)
{
    const void *response = world_call(w, method, request);
    sf_buf_printf(out, "%s: %s\n", method,
                  response != NULL ? world_json(w, response) : sf_err_info(w->diag.err)->name);
}

static void add_collection(struct world *w, struct sf_buf *out, SF_PB(CollectionRef) * ref)
{
    SF_PB(RequestMeta) *meta = world_meta(w, "", SF_PBE(CLIENT_KIND, ES_QUERY_GATEWAY));
    SF_PB(GetCollectionMetadataRequest) get;
    SF_PB(GetCollectionSchemaRequest) schema;
    SF_PB(GetSchemaSyncStatusRequest) sync;
    searchfabric__v1__get_collection_metadata_request__init(&get);
    searchfabric__v1__get_collection_schema_request__init(&schema);
    searchfabric__v1__get_schema_sync_status_request__init(&sync);
    get.meta = schema.meta = sync.meta = meta;
    get.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_COLLECTION;
    get.collection = schema.collection = sync.collection = ref;
    add_answer(w, out, "GetCollectionMetadata", &get);
    add_answer(w, out, "GetCollectionSchema", &schema);
    add_answer(w, out, "GetSchemaSyncStatus", &sync);
}

uint64_t world_job(struct world *w, const char *name)
{
    SF_PB(RunCatalogJobRequest) request;
    searchfabric__v1__run_catalog_job_request__init(&request);
    request.name = keep(w, name);
    const SF_PB(RunCatalogJobResponse) *response = world_call(w, "RunCatalogJob", &request);
    assert_non_null(response);
    return response->done;
}

void world_enrich(struct world *w)
{
    world_job(w, "collection-stats");
    world_job(w, "collection-index");
    world_job(w, "namespace-aggregate");
}

const char *world_answers(struct world *w, uint64_t ns)
{
    world_enrich(w);
    struct sf_buf out = {0};
    SF_PB(RequestMeta) *meta = world_meta(w, "", SF_PBE(CLIENT_KIND, ES_QUERY_GATEWAY));
    SF_PB(ListNamespacesRequest) namespaces;
    SF_PB(GetNamespaceMetadataRequest) get;
    SF_PB(ListCollectionsRequest) list;
    searchfabric__v1__list_namespaces_request__init(&namespaces);
    searchfabric__v1__get_namespace_metadata_request__init(&get);
    searchfabric__v1__list_collections_request__init(&list);
    namespaces.meta = get.meta = list.meta = meta;
    get.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID;
    get.namespace_id = list.namespace_id = ns;
    add_answer(w, &out, "ListNamespaces", &namespaces);
    add_answer(w, &out, "GetNamespaceMetadata", &get);
    add_answer(w, &out, "ListCollections", &list);
    const SF_PB(ListCollectionsResponse) *all = world_call(w, "ListCollections", &list);
    for (size_t i = 0; all != NULL && i < all->n_collections; i++)
        add_collection(w, &out, all->collections[i]->collection);
    const char *text = sf_arena_str(w->arena, sf_buf_view(&out));
    sf_buf_fini(&out);
    return text;
}

const SF_PB(DigestProjectionResponse) * world_digest(struct world *w)
{
    SF_PB(DigestProjectionResponse) *out = sf_arena_alloc(w->arena, sizeof(*out));
    assert_int_equal(sf_catalog_digest(w->sql, NULL, w->arena, &w->diag, out), SF_OK);
    return out;
}

const void *world_object(struct world *w, const char *key, const ProtobufCMessageDescriptor *desc)
{
    struct sf_buf body = {0};
    ProtobufCMessage *message = NULL;
    size_t len = strlen(key);
    bool compressed = len > 4 && strcmp(key + len - 4, ".zst") == 0;
    if (sf_store_get_wait(w->truth, NULL, sf_view_str(key), &body, NULL) == SF_OK)
        assert_int_equal(
            sf_catalog_decode(desc, compressed, sf_buf_view(&body), w->arena, &w->diag, &message),
            SF_OK);
    sf_buf_fini(&body);
    return message;
}

size_t world_list(struct world *w, const char *prefix, const char **out_first)
{
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    assert_int_equal(sf_store_list_wait(w->truth, NULL, sf_view_str(prefix), sf_view_str(""),
                                        SF_LIMIT_LIST_PAGE_ENTRIES, w->arena, &entries, &count),
                     SF_OK);
    if (out_first != NULL)
        *out_first = count == 0 ? NULL : sf_arena_str(w->arena, entries[0].key);
    return count;
}

/* Rows as the projector left them: what a rebuild may find otherwise goes. */
void world_strip(enum sf_catalog_table table, ProtobufCMessage *row)
{
    if (table == SF_CATALOG_TABLE_NAMESPACES) {
        SF_PB(NamespaceRow) *ns = (SF_PB(NamespaceRow) *)row;
        ns->collection_name_binding_revision = 0;
        ns->approx_stats = NULL;
        ns->index = NULL;
    } else if (table == SF_CATALOG_TABLE_COLLECTIONS) {
        ((SF_PB(CollectionRow) *)row)->approx_stats = NULL;
        ((SF_PB(CollectionRow) *)row)->index = NULL;
        ((SF_PB(CollectionRow) *)row)->manifest_head_reconciler_status =
            SF_PBE(MANIFEST_HEAD_RECONCILER_STATUS, IDLE);
    }
}

const char *world_dump(struct world *w)
{
    struct sf_buf text = {0};
    struct sf_arena *arena = sf_arena_new((size_t)256 << 20);
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    for (int t = 0; t < SF_CATALOG_TABLE_COUNT; t++) {
        struct sf_catalog_cursor cursor = {0};
        sf_buf_printf(&text, "# %s\n", sf_catalog_table_name((enum sf_catalog_table)t));
        while (!cursor.ended) {
            struct sf_catalog_batch batch;
            assert_int_equal(sf_catalog_rows_read(conn, (enum sf_catalog_table)t, &cursor, 100,
                                                  1 << 20, arena, &w->diag, &batch),
                             SF_OK);
            for (size_t i = 0; i < batch.count; i++) {
                world_strip((enum sf_catalog_table)t, batch.rows[i]);
                sf_pbjson_encode(batch.rows[i], &text);
                sf_buf_append_str(&text, "\n");
            }
        }
        sf_catalog_cursor_fini(&cursor);
    }
    sf_sql_release(conn);
    const char *out = sf_arena_str(w->arena, sf_buf_view(&text));
    sf_buf_fini(&text);
    sf_arena_destroy(arena);
    return out;
}
