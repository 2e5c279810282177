/*
 * AllocateIds beside raw puts of the same store, in the same run, round by round.
 *
 *   one     closed loops of fresh one-item issue plans, all on one collection
 *   many    the same spread over 64 collections
 *   bulk    plans of 100 issue items on one collection
 *   replay  the same key again and again (answers remembered)
 *   peer    closed loops that submit one create-only put of a replay object's size
 *
 * The peer is what the store alone costs. An allocation adds the lookup, the admission read, the
 * receipt, two JSON objects and its share of the state write. Calls go through the in-process
 * channel, so the CPU per operation holds the caller's part too.
 */
#include <argp.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "allocator/allocator.h"
#include "base/log.h"
#include "base/mem.h"
#include "bench_common.h"
#include "contract/descriptor_set.h"
#include "exec/reactor.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"

#define MOST_CLIENTS 512u
#define MOST_SAMPLES (4u << 20)
#define BULK_ITEMS   100u
#define PEER_BYTES   1400u /* of a one-item replay-success object */
#define ROUNDS       3
#define REACTORS     2u

enum kind { KIND_ONE, KIND_MANY, KIND_BULK, KIND_REPLAY, KIND_PEER, KIND_COUNT };

/* What one kind of run came to, over its rounds. */
struct result {
    uint32_t *latencies_us; /* samples, unsorted until printed */
    _Atomic size_t count;
    double seconds;
    double cpu_seconds;
};

/* One closed loop: an allocation, or a put. */
struct client {
    struct bench *bench;
    unsigned id;
    uint64_t next; /* number of its next key */
    int64_t sent_ns;
    char key[64];
    Searchfabric__V1__AllocateIdsRequest request;
    Searchfabric__V1__RequestMeta meta;
    Searchfabric__V1__CollectionRef collection;
    Searchfabric__V1__AllocationPlan plan;
    Searchfabric__V1__AllocationPlanItem item;
    Searchfabric__V1__IssueItem issue;
    Searchfabric__V1__AllocationPlanItem *items[BULK_ITEMS];
    struct sf_batch batch;
    struct sf_put put;
    char body[PEER_BYTES];
};

struct bench {
    struct sf_reactors *reactors;
    struct sf_store *store;
    struct sf_channel *channel;
    struct sf_allocator *allocator;
    struct result *result; /* of the run under way */
    enum kind kind;
    unsigned round; /* numbers the runs, so that keys are new */
    int64_t end_ns; /* nothing new after this */
    _Atomic unsigned running;
    sem_t done;
    struct client clients[MOST_CLIENTS];
};

/* ---- the catalog: facts from memory, confirmed by their validator ---- */

static void ccs_read(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    const Searchfabric__V1__GetCollectionAdmissionStateRequest *request = (const void *)message;
    Searchfabric__V1__GetCollectionAdmissionStateResponse response =
        SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__INIT;
    Searchfabric__V1__AdmissionStateNotModified same =
        SEARCHFABRIC__V1__ADMISSION_STATE_NOT_MODIFIED__INIT;
    Searchfabric__V1__CollectionAdmissionState s =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE__INIT;
    Searchfabric__V1__AllocatorAdmissionPolicy policy =
        SEARCHFABRIC__V1__ALLOCATOR_ADMISSION_POLICY__INIT;

    (void)self;
    if (request->_known_descriptor_etag_case != 0) {
        response.result_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_NOT_MODIFIED;
        response.not_modified = &same;
        sf_call_respond(call, &response.base);
        return;
    }
    policy.caller_profile =
        SEARCHFABRIC__V1__ALLOCATOR_CALLER_PROFILE__ALLOCATOR_CALLER_PROFILE_ES_WRITE_GATEWAY_ONLY;
    policy.max_plan_items_per_request = 1000;
    policy.max_forward_reservation_jump = 1000;
    s.collection = request->collection;
    s.lifecycle =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_LIFECYCLE__COLLECTION_ADMISSION_LIFECYCLE_ACTIVE;
    s.descriptor_etag = (char *)"etag";
    s.collection_truth_mode =
        SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_SEARCH_FABRIC;
    s.generation_policy =
        SEARCHFABRIC__V1__DOC_ID_GENERATION_POLICY__DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL;
    s._active_schema_generation_token_case =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE___ACTIVE_SCHEMA_GENERATION_TOKEN_ACTIVE_SCHEMA_GENERATION_TOKEN;
    s.active_schema_generation_token = (char *)"token";
    s.allocator_admission_policy = &policy;
    response.result_case = SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_STATE;
    response.state = &s;
    sf_call_respond(call, &response.base);
}

static const struct sf_method ccs_methods[] = {
    {.name = "GetCollectionAdmissionState",
     .request = &searchfabric__v1__get_collection_admission_state_request__descriptor,
     .response = &searchfabric__v1__get_collection_admission_state_response__descriptor,
     .unary = ccs_read}};

/* ---- loops ---- */

static void send_next(struct client *c);

/* One operation ended well: counts it and goes on, or leaves. */
static void went_well(struct client *c)
{
    struct bench *b = c->bench;
    int64_t now = bench_now_ns();
    size_t at = atomic_fetch_add_explicit(&b->result->count, 1, memory_order_relaxed);

    b->result->latencies_us[at % MOST_SAMPLES] = (uint32_t)((now - c->sent_ns) / 1000);
    if (now < b->end_ns)
        send_next(c);
    else if (atomic_fetch_sub(&b->running, 1) == 1)
        (void)sem_post(&b->done);
}

static void on_answer(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct client *c = user;

    (void)response;
    if (diag->err != SF_OK)
        (void)fprintf(stderr, "%s\n", diag->message);
    bench_must(diag->err == SF_OK, "an allocation");
    went_well(c);
}

static void on_durable(struct sf_batch *batch)
{
    struct client *c = SF_CONTAINER_OF(batch, struct client, batch);

    bench_must(c->put.err == SF_OK, "a put");
    went_well(c);
}

static void send_next(struct client *c)
{
    struct bench *b = c->bench;
    unsigned long long number = b->kind == KIND_REPLAY ? 0 : (unsigned long long)c->next++;
    int n = snprintf(c->key, sizeof(c->key), "bench/%u/%u/%llu", b->round, c->id, number);

    c->sent_ns = bench_now_ns();
    if (b->kind == KIND_PEER) {
        (void)snprintf(c->body, sizeof(c->body), "%s", c->key);
        c->put = (struct sf_put){.key = sf_view_bytes(c->key, (size_t)n),
                                 .body = sf_view_bytes(c->body, sizeof(c->body)),
                                 .cond = SF_PUT_ABSENT};
        c->batch = (struct sf_batch){.puts = &c->put, .count = 1, .done = on_durable};
        sf_store_submit(b->store, &c->batch);
        return;
    }
    c->collection.collection_id = b->kind == KIND_MANY ? 2 + c->next % 64 : 1;
    c->plan.n_items = b->kind == KIND_BULK ? BULK_ITEMS : 1;
    sf_channel_unary(b->channel, SF_ALLOCATOR_METHOD, &c->request.base, NULL, NULL, on_answer, c);
}

static void client_init(struct bench *b, unsigned id)
{
    struct client *c = &b->clients[id];

    c->bench = b;
    c->id = id;
    searchfabric__v1__allocate_ids_request__init(&c->request);
    searchfabric__v1__request_meta__init(&c->meta);
    searchfabric__v1__collection_ref__init(&c->collection);
    searchfabric__v1__allocation_plan__init(&c->plan);
    searchfabric__v1__allocation_plan_item__init(&c->item);
    searchfabric__v1__issue_item__init(&c->issue);
    c->meta.idempotency_key = c->key;
    c->meta.client_id = (char *)"bench";
    c->meta.client_kind = SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY;
    c->collection.namespace_id = 1;
    c->item.item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE;
    c->item.issue = &c->issue;
    for (size_t i = 0; i < BULK_ITEMS; i++)
        c->items[i] = &c->item;
    c->plan.items = c->items;
    c->request.meta = &c->meta;
    c->request.collection = &c->collection;
    c->request.plan = &c->plan;
    c->request.route_intent =
        SEARCHFABRIC__V1__ID_ALLOCATION_ROUTE_INTENT__ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT;
}

static void run_kind(struct bench *b, enum kind kind, unsigned clients, int64_t ms,
                     struct result *result)
{
    double cpu = bench_own_cpu_seconds();
    int64_t start = bench_now_ns();

    b->result = result;
    b->kind = kind;
    b->round++;
    b->end_ns = start + ms * 1000000;
    atomic_store(&b->running, clients);
    for (unsigned i = 0; i < clients; i++)
        send_next(&b->clients[i]);
    while (sem_wait(&b->done) != 0) {
    }
    result->seconds += (double)(bench_now_ns() - start) / 1e9;
    result->cpu_seconds += bench_own_cpu_seconds() - cpu;
}

static void print_result(const char *name, unsigned clients, struct result *r)
{
    size_t count = atomic_load(&r->count);
    size_t samples = count < MOST_SAMPLES ? count : MOST_SAMPLES;
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    bench_sort(r->latencies_us, samples);
    (void)printf("%-7s %8u %10.0f %8u %8u %8u %10.2f %8ld\n", name, clients,
                 (double)count / r->seconds, r->latencies_us[samples / 2],
                 r->latencies_us[samples - 1 - samples / 100],
                 r->latencies_us[samples - 1 - samples / 1000],
                 r->cpu_seconds * 1e6 / (double)count, u.ru_maxrss / 1024);
    (void)fflush(stdout);
}

static void run_level(struct bench *b, unsigned clients, int64_t ms)
{
    static const char *const names[KIND_COUNT] = {"one", "many", "bulk", "replay", "peer"};
    struct result results[KIND_COUNT];

    for (int k = 0; k < KIND_COUNT; k++)
        results[k] = (struct result){.latencies_us = sf_calloc(MOST_SAMPLES, sizeof(uint32_t))};
    for (int round = 0; round < ROUNDS; round++)
        for (int k = 0; k < KIND_COUNT; k++)
            run_kind(b, (enum kind)k, clients, ms, &results[k]);
    for (int k = 0; k < KIND_COUNT; k++) {
        print_result(names[k], clients, &results[k]);
        free(results[k].latencies_us);
    }
}

/* ---- the program ---- */

static void on_drained(void *user)
{
    (void)sem_post(user);
}

/* Runs all levels in `folder`. */
static void run_all(struct bench *b, const char *folder, int64_t ms)
{
    static const unsigned levels[] = {1, 8, 64, 512};
    struct sf_service ccs = {.full_name = "searchfabric.v1.CatalogControlPrivateService",
                             .methods = ccs_methods,
                             .method_count = SF_ARRAY_LEN(ccs_methods)};
    const struct sf_service *catalog_services[] = {&ccs};
    struct sf_loop *loops[REACTORS];
    struct sf_attempts attempts;

    bench_must(sf_reactors_start(REACTORS, sf_clock_system(), NULL, &b->reactors) == SF_OK,
               "starting reactors");
    bench_must(sf_embedded_store_open(folder, NULL, &b->store) == SF_OK, "opening the store");
    for (unsigned i = 0; i < REACTORS; i++)
        loops[i] = sf_reactors_loop(b->reactors, i);
    sf_attempts_init(&attempts, 1);
    struct sf_keyring *keyring = sf_keyring_new_for_test(1);
    struct sf_metrics *metrics = sf_metrics_new();
    struct sf_channel *catalog =
        sf_inproc_channel_new(catalog_services, 1, "loopback", sf_clock_system());
    struct sf_allocator_deps deps = {.store = b->store,
                                     .loops = loops,
                                     .loop_count = REACTORS,
                                     .clock = sf_clock_system(),
                                     .catalog = catalog,
                                     .keyring = keyring,
                                     .attempts = &attempts,
                                     .metrics = metrics};
    b->allocator = sf_allocator_new(&deps);
    const struct sf_service *services[] = {sf_allocator_service(b->allocator)};
    b->channel = sf_inproc_channel_new(services, 1, "loopback", sf_clock_system());
    for (unsigned i = 0; i < MOST_CLIENTS; i++)
        client_init(b, i);
    (void)printf("%-7s %8s %10s %8s %8s %8s %10s %8s\n", "", "clients", "ops/s", "p50 us", "p99 us",
                 "p999 us", "cpu us/op", "rss MiB");
    for (size_t i = 0; i < SF_ARRAY_LEN(levels); i++)
        run_level(b, levels[i], ms);
    struct sf_allocator_stats stats;
    sf_allocator_stats(b->allocator, &stats);
    (void)printf("%.1f allocations a state write\n",
                 (double)stats.allocations / (double)(stats.groups == 0 ? 1 : stats.groups));
    sf_allocator_drain(b->allocator, on_drained, &b->done);
    while (sem_wait(&b->done) != 0) {
    }
    sf_channel_destroy(b->channel);
    sf_reactors_stop(b->reactors);
    sf_allocator_destroy(b->allocator);
    sf_channel_destroy(catalog);
    sf_store_destroy(b->store);
    sf_metrics_destroy(metrics);
    sf_keyring_destroy(keyring);
}

/* The command line. */
struct command {
    const char *folder; /* where the store goes */
    int64_t ms;         /* of one round */
};

static const struct argp_option option_table[] = {
    {"dir", 'd', "FOLDER", 0, "Where the store goes (default: a fresh folder under .)", 0},
    {"ms", 't', "N", 0, "Milliseconds of one round (default 1000)", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct command *c = state->input;

    switch (key) {
    case 'd':
        c->folder = arg;
        break;
    case 't':
        c->ms = strtoll(arg, NULL, 10);
        if (c->ms < 1)
            argp_error(state, "--ms takes a positive number");
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct argp argp = {
        option_table, parse, NULL, "AllocateIds beside raw group-committed puts.",
        NULL,         NULL,  NULL};
    char template[] = "./bench-allocate-XXXXXX";
    struct command c = {.ms = 1000};
    struct bench *b = sf_calloc(1, sizeof(*b));

    if (argp_parse(&argp, argc, argv, 0, NULL, &c) != 0)
        return 1;
    bench_must(sf_pbjson_register(sf_view_bytes(sf_contract_descriptor_set,
                                                sf_contract_descriptor_set_size)) == SF_OK,
               "registering the contract");
    sf_log_set_fd(-1);
    const char *folder = c.folder != NULL ? c.folder : mkdtemp(template);
    bench_must(folder != NULL, "making a folder");
    (void)sem_init(&b->done, 0, 0);
    run_all(b, folder, c.ms);
    (void)sem_destroy(&b->done);
    free(b);
    if (c.folder == NULL)
        bench_remove_folder(folder);
    return 0;
}
