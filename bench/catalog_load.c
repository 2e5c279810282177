#include "catalog_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench_common.h"
#include "catalog_node.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"

/* In flight at a rate: what a driver that was held up starts at once. */
#define MOST_CLIENTS 1024u
#define MOST_SAMPLES (8u << 20)

struct bench_driver {
    struct sf_reactors *reactors;
    struct sf_loop *loop;
    struct sf_channel **channels;
    unsigned connections;
};

/* One run under way; on the loop. */
struct run {
    const struct bench_load *load;
    struct bench_driver *driver;
    struct sf_task start;
    struct sf_timer pace;
    int64_t begin_ns, end_ns;
    size_t started, in_flight;
    struct slot *idle;
    struct bench_load_result *result;
    uint32_t *latencies_us, *late_us;
    struct sf_waiter over;
};

/* One client with the memory of its request. */
struct slot {
    struct run *run;
    struct slot *next;
    struct sf_channel *channel;
    size_t number;
    int64_t start_ns;
    uint32_t late_us; /* started so long after it was due */
    char name[32], key[96], token[16];
    Searchfabric__V1__RequestMeta meta;
    Searchfabric__V1__CollectionRef ref;
    Searchfabric__V1__CollectionNameBinding binding;
    Searchfabric__V1__EncryptionPolicy encryption;
    Searchfabric__V1__ProviderManagedEncryption managed;
    Searchfabric__V1__PutCollectionMetadataRequest put;
    Searchfabric__V1__GetCollectionMetadataRequest get;
    Searchfabric__V1__ListCollectionsRequest list;
    Searchfabric__V1__PageRequest page;
    Searchfabric__V1__PutCollectionSchemaRequest schema;
    Searchfabric__V1__CollectionSchemaDefinition definition;
    Searchfabric__V1__DocIDMapping mapping;
    Searchfabric__V1__FieldDefinition field;
    Searchfabric__V1__FieldDefinition *field_list[1];
    Searchfabric__V1__Modality modalities[1];
    Searchfabric__V1__SchemaFencePrecondition fence;
    Searchfabric__V1__DropCollectionRequest drop;
    Searchfabric__V1__AcquireQuotaLeaseRequest acquire;
    Searchfabric__V1__QuotaLeaseKey lease;
    Searchfabric__V1__DescriptorOptions options;
    Searchfabric__V1__DescriptorOptions__EntriesEntry option;
    Searchfabric__V1__DescriptorOptions__EntriesEntry *option_list[1];
};

void bench_name(size_t n, char out[32])
{
    (void)snprintf(out, 32, "collection-%09zu", n);
}

/* ---- requests ----------------------------------------------------------------------------- */

static void slot_init(struct slot *s, struct run *run, struct sf_channel *channel)
{
    s->run = run;
    s->channel = channel;
    searchfabric__v1__request_meta__init(&s->meta);
    searchfabric__v1__collection_ref__init(&s->ref);
    searchfabric__v1__collection_name_binding__init(&s->binding);
    searchfabric__v1__encryption_policy__init(&s->encryption);
    searchfabric__v1__provider_managed_encryption__init(&s->managed);
    searchfabric__v1__put_collection_metadata_request__init(&s->put);
    searchfabric__v1__get_collection_metadata_request__init(&s->get);
    searchfabric__v1__list_collections_request__init(&s->list);
    searchfabric__v1__page_request__init(&s->page);
    searchfabric__v1__put_collection_schema_request__init(&s->schema);
    searchfabric__v1__collection_schema_definition__init(&s->definition);
    searchfabric__v1__doc_idmapping__init(&s->mapping);
    searchfabric__v1__field_definition__init(&s->field);
    searchfabric__v1__schema_fence_precondition__init(&s->fence);
    searchfabric__v1__drop_collection_request__init(&s->drop);
    searchfabric__v1__acquire_quota_lease_request__init(&s->acquire);
    searchfabric__v1__quota_lease_key__init(&s->lease);
    searchfabric__v1__descriptor_options__init(&s->options);
    searchfabric__v1__descriptor_options__entries_entry__init(&s->option);
    s->meta.client_id = (char *)"bench";
    s->meta.client_kind = SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_CONTROL_ADMIN;
    s->meta.idempotency_key = s->key;
    s->binding.collection_name = s->name;
    s->encryption.mode_case = SEARCHFABRIC__V1__ENCRYPTION_POLICY__MODE_PROVIDER_MANAGED;
    s->encryption.provider_managed = &s->managed;
    s->option.key = (char *)"round";
    s->option.value = s->key;
    s->option_list[0] = &s->option;
    s->options.n_entries = 1;
    s->options.entries = s->option_list;
    s->lease.api_plane = SEARCHFABRIC__V1__API_PLANE__API_PLANE_QUERY;
    s->lease.throttled_dimension = (char *)"query_rcu";
    s->lease.lease_holder_id = (char *)"bench";
    s->lease.lease_request_id = s->key;
    s->acquire.lease = &s->lease;
    s->acquire.requested_units = run->load->units == 0 ? 1 : run->load->units;
    s->put.meta = s->get.meta = s->list.meta = s->schema.meta = s->drop.meta = &s->meta;
    s->put.name_binding = &s->binding;
    s->put.encryption = &s->encryption;
    s->get.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_COLLECTION;
    s->get.collection = s->schema.collection = s->drop.collection = &s->ref;
    s->list.prefix = (char *)"collection-";
    s->list.page = &s->page;
    s->page.page_size = 100;
    s->mapping.generation_policy =
        SEARCHFABRIC__V1__DOC_ID_GENERATION_POLICY__DOC_ID_GENERATION_POLICY_CALLER_REQUIRED;
    s->modalities[0] = SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_SEARCH;
    s->field.name = (char *)"title";
    s->field.type = SEARCHFABRIC__V1__FIELD_TYPE__FIELD_TYPE_KEYWORD;
    s->field.modalities = s->modalities;
    s->field.n_modalities = 1;
    s->field_list[0] = &s->field;
    s->definition.collection_truth_mode =
        SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_SEARCH_FABRIC;
    s->definition.doc_id_mapping = &s->mapping;
    s->definition.fields = s->field_list;
    s->definition.n_fields = 1;
    s->schema.fence = &s->fence;
    s->schema.definition = &s->definition;
}

static const char *const methods[BENCH_CALL_COUNT] = {
    [BENCH_CREATE] = BENCH_PUBLIC "PutCollectionMetadata",
    [BENCH_UPDATE] = BENCH_PUBLIC "PutCollectionMetadata",
    [BENCH_SCHEMA] = BENCH_PUBLIC "PutCollectionSchema",
    [BENCH_DROP] = BENCH_PUBLIC "DropCollection",
    [BENCH_GET_REF] = BENCH_PUBLIC "GetCollectionMetadata",
    [BENCH_GET_NAME] = BENCH_PUBLIC "GetCollectionMetadata",
    [BENCH_LIST] = BENCH_PUBLIC "ListCollections",
    [BENCH_LEASE] = BENCH_PRIVATE "AcquireQuotaLease",
};

/* The request of call number `n`. */
static const ProtobufCMessage *fill(struct slot *s, size_t n)
{
    const struct bench_load *load = s->run->load;
    size_t at = n;
    if (load->known != 0)
        at = (n * 2654435761u) % load->known; /* in no order */
    s->number = at;
    bench_name(load->first + at, s->name);
    uint64_t namespace_id = load->namespaces[(load->first + at) % load->namespace_count];
    s->lease.namespace_id = s->binding.namespace_id = s->ref.namespace_id = s->list.namespace_id =
        namespace_id;
    if (load->call != BENCH_CREATE && load->ids != NULL)
        s->ref.collection_id = load->ids[at];
    (void)snprintf(s->key, sizeof(s->key), "%s-%d-%zu", load->round, (int)load->call, n);
    switch (load->call) {
    case BENCH_UPDATE:
        s->put.options = &s->options;
        return &s->put.base;
    case BENCH_CREATE:
        return &s->put.base;
    case BENCH_SCHEMA:
        s->schema.schema_version = 1;
        s->fence.schema_generation_token = (char *)"tok-1";
        return &s->schema.base;
    case BENCH_DROP:
        return &s->drop.base;
    case BENCH_LIST:
        return &s->list.base;
    case BENCH_LEASE:
        return &s->acquire.base;
    case BENCH_GET_NAME:
        s->get.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_NAME_BINDING;
        s->get.name_binding = &s->binding;
        return &s->get.base;
    default:
        return &s->get.base;
    }
}

/* ---- the loop ----------------------------------------------------------------------------- */

static bool more(const struct run *run)
{
    return run->started < run->load->calls && (run->end_ns == 0 || bench_now_ns() < run->end_ns);
}

static void on_done(void *user, const struct sf_diag *diag, const ProtobufCMessage *response);
static void start_due(struct run *run);

static void start_call(struct slot *s)
{
    struct run *run = s->run;
    const ProtobufCMessage *request = fill(s, run->started++);
    run->in_flight++;
    s->start_ns = bench_now_ns();
    s->late_us = 0;
    if (run->load->rate > 0) {
        int64_t due_ns =
            run->begin_ns + (int64_t)((double)(run->started - 1) * 1e9 / run->load->rate);
        s->late_us = s->start_ns > due_ns ? (uint32_t)((s->start_ns - due_ns) / 1000) : 0;
    }
    sf_channel_unary(s->channel, methods[run->load->call], request, NULL, run->driver->loop,
                     on_done, s);
}

static void end_if_over(struct run *run)
{
    if (run->in_flight == 0 && !more(run))
        sf_waiter_wake(&run->over);
}

static void on_done(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct slot *s = user;
    struct run *run = s->run;
    struct bench_load_result *r = run->result;
    run->latencies_us[r->done % MOST_SAMPLES] = (uint32_t)((bench_now_ns() - s->start_ns) / 1000);
    run->late_us[r->done % MOST_SAMPLES] = s->late_us;
    r->done++;
    if (diag->err == SF_UNIMPLEMENTED)
        r->refused++;
    if (diag->err != SF_OK) {
        if (r->failed++ == 0 && r->refused == 0)
            (void)fprintf(stderr, "%s: %s\n", methods[run->load->call], diag->message);
    } else if (run->load->call == BENCH_CREATE && run->load->ids != NULL) {
        const Searchfabric__V1__PutCollectionMetadataResponse *put = (const void *)response;
        run->load->ids[s->number] = put->descriptor->collection->collection_id;
    }
    run->in_flight--;
    if (run->load->rate > 0) {
        s->next = run->idle;
        run->idle = s;
        start_due(run); /* finer than the timer's millisecond */
        return;         /* the timer ends the run: none may outlive it */
    }
    if (more(run))
        start_call(s);
    end_if_over(run);
}

/* Starts the calls that are due by now. */
static void start_due(struct run *run)
{
    double due = run->load->rate * (double)(bench_now_ns() - run->begin_ns) / 1e9;
    while ((double)run->started <= due && run->idle != NULL && more(run)) {
        struct slot *s = run->idle;
        run->idle = s->next;
        start_call(s);
    }
}

static void on_pace(struct sf_timer *timer)
{
    struct run *run = SF_CONTAINER_OF(timer, struct run, pace);
    start_due(run);
    if (more(run) || run->in_flight > 0)
        sf_timer_start(&run->pace, 1);
    else
        end_if_over(run);
}

static void on_start(struct sf_task *task)
{
    struct run *run = SF_CONTAINER_OF(task, struct run, start);
    run->begin_ns = bench_now_ns(); /* requests and memory are ready */
    run->end_ns = run->load->most_ms == 0 ? 0 : run->begin_ns + run->load->most_ms * 1000000;
    if (run->load->rate > 0) {
        sf_timer_init(&run->pace, run->driver->loop, on_pace);
        on_pace(&run->pace);
        return;
    }
    while (run->idle != NULL && more(run)) {
        struct slot *s = run->idle;
        run->idle = s->next;
        start_call(s);
    }
}

void bench_load_run(struct bench_driver *driver, const struct bench_load *load, pid_t server,
                    struct bench_load_result *out_result)
{
    unsigned clients = load->rate > 0 ? MOST_CLIENTS : load->clients;
    struct slot *slots = sf_calloc(clients, sizeof(*slots));
    struct run run = {
        .load = load, .driver = driver, .start = {.run = on_start}, .result = out_result};
    const size_t most = load->calls < MOST_SAMPLES ? load->calls + 1 : MOST_SAMPLES;
    *out_result = (struct bench_load_result){0};
    run.latencies_us = sf_calloc(most, sizeof(uint32_t));
    run.late_us = sf_calloc(most, sizeof(uint32_t));
    for (unsigned i = clients; i-- > 0;) {
        slot_init(&slots[i], &run, driver->channels[i % driver->connections]);
        slots[i].next = run.idle;
        run.idle = &slots[i];
    }
    sf_waiter_init(&run.over, NULL);
    double cpu = bench_cpu_us(server);
    sf_loop_post(driver->loop, &run.start);
    sf_waiter_wait(&run.over);
    out_result->seconds = (double)(bench_now_ns() - run.begin_ns) / 1e9;
    out_result->cpu_us = (bench_cpu_us(server) - cpu) / (double)out_result->done;
    sf_waiter_fini(&run.over);
    size_t samples = out_result->done < MOST_SAMPLES ? out_result->done : MOST_SAMPLES;
    bench_sort(run.latencies_us, samples);
    out_result->p50_us = bench_quantile(run.latencies_us, samples, 500);
    out_result->p99_us = bench_quantile(run.latencies_us, samples, 990);
    bench_sort(run.late_us, samples);
    out_result->late_p99_us = bench_quantile(run.late_us, samples, 990);
    free(run.latencies_us);
    free(run.late_us);
    free(slots);
}

/* ---- life --------------------------------------------------------------------------------- */

struct bench_driver *bench_driver_new(uint16_t port, unsigned connections)
{
    struct bench_driver *driver = sf_calloc(1, sizeof(*driver));
    struct sf_diag diag;
    sf_diag_init(&diag);
    bench_must(sf_reactors_start(1, sf_clock_system(), &diag, &driver->reactors) == SF_OK,
               "starting a reactor");
    driver->loop = sf_reactors_loop(driver->reactors, 0);
    driver->connections = connections;
    driver->channels = sf_calloc(connections, sizeof(struct sf_channel *));
    for (unsigned i = 0; i < connections; i++)
        bench_must(sf_grpc_channel_new(driver->loop, "127.0.0.1", port, &diag,
                                       &driver->channels[i]) == SF_OK,
                   "connecting");
    return driver;
}

void bench_driver_destroy(struct bench_driver *driver)
{
    for (unsigned i = 0; i < driver->connections; i++)
        sf_channel_destroy(driver->channels[i]);
    sf_reactors_stop(driver->reactors);
    free(driver->channels);
    free(driver);
}

bool bench_call_wait(struct bench_driver *driver, const char *method,
                     const ProtobufCMessage *request, struct sf_arena *arena,
                     const ProtobufCMessage **out_response, struct sf_diag *diag)
{
    sf_diag_init(diag);
    return sf_channel_unary_wait(driver->channels[0], NULL, method, request, NULL, arena, diag,
                                 out_response) == SF_OK;
}

uint64_t bench_namespace(struct bench_driver *driver, const char *name)
{
    Searchfabric__V1__PutNamespaceMetadataRequest put =
        SEARCHFABRIC__V1__PUT_NAMESPACE_METADATA_REQUEST__INIT;
    Searchfabric__V1__RequestMeta meta = SEARCHFABRIC__V1__REQUEST_META__INIT;
    Searchfabric__V1__EncryptionPolicy encryption = SEARCHFABRIC__V1__ENCRYPTION_POLICY__INIT;
    Searchfabric__V1__ProviderManagedEncryption managed =
        SEARCHFABRIC__V1__PROVIDER_MANAGED_ENCRYPTION__INIT;
    struct sf_arena *arena = sf_arena_new((size_t)1 << 20);
    const ProtobufCMessage *response = NULL;
    struct sf_diag diag;
    meta.client_id = (char *)"bench";
    meta.client_kind = SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_CONTROL_ADMIN;
    meta.idempotency_key = (char *)(uintptr_t)name;
    encryption.mode_case = SEARCHFABRIC__V1__ENCRYPTION_POLICY__MODE_PROVIDER_MANAGED;
    encryption.provider_managed = &managed;
    put.meta = &meta;
    put.namespace_name = (char *)(uintptr_t)name;
    put.encryption = &encryption;
    bool made = bench_call_wait(driver, BENCH_PUBLIC "PutNamespaceMetadata", &put.base, arena,
                                &response, &diag);
    if (!made)
        (void)fprintf(stderr, "%s\n", diag.message);
    bench_must(made, "making a namespace");
    uint64_t id = ((const Searchfabric__V1__PutNamespaceMetadataResponse *)(const void *)response)
                      ->descriptor->namespace_id;
    sf_arena_destroy(arena);
    return id;
}
