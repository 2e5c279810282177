#include "alloc_node.h"

#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/pbjson.h"
#include "bench_common.h"
#include "contract/descriptor_set.h"
#include "exec/reactor.h"
#include "rpc/server.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"
#include "slow_store.h"

#define MOST_REACTORS 8u
#define DRAIN_MS      5000

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
    policy.max_forward_reservation_jump = 1000000;
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

static const struct sf_service ccs = {.full_name = "searchfabric.v1.CatalogControlPrivateService",
                                      .methods = ccs_methods,
                                      .method_count = SF_ARRAY_LEN(ccs_methods)};

/* ---- the child ---- */

struct node {
    struct bench_alloc_options options;
    struct sf_reactors *reactors;
    struct sf_store *store;
    struct slow_store slow;
    struct sf_attempts attempts;
    struct sf_keyring *keyring;
    struct sf_metrics *metrics;
    struct sf_channel *catalog;
    struct sf_allocator *allocator;
    struct sf_rpc_server *server;
    sem_t drained;
};

static void node_open(struct node *n)
{
    const struct sf_service *catalog_services[] = {&ccs};
    struct sf_loop *loops[MOST_REACTORS];
    struct sf_diag diag;

    sf_diag_init(&diag);
    bench_must(sf_pbjson_register(sf_view_bytes(sf_contract_descriptor_set,
                                                sf_contract_descriptor_set_size)) == SF_OK,
               "registering the contract");
    sf_log_set_fd(-1);
    bench_must(n->options.reactors >= 1 && n->options.reactors <= MOST_REACTORS &&
                   sf_reactors_start(n->options.reactors, sf_clock_system(), &diag, &n->reactors) ==
                       SF_OK,
               "starting reactors");
    for (unsigned i = 0; i < n->options.reactors; i++)
        loops[i] = sf_reactors_loop(n->reactors, i);
    bench_must(sf_embedded_store_open(n->options.folder, &diag, &n->store) == SF_OK,
               "opening the store");
    struct sf_store *store = n->store;
    if (n->options.put_delay_ms != 0) {
        slow_store_init(&n->slow, n->store, loops[0], n->options.put_delay_ms,
                        n->options.get_delay_ms);
        store = &n->slow.base;
    }
    sf_attempts_init(&n->attempts, (uint64_t)bench_now_ns());
    n->keyring = sf_keyring_new_for_test(1);
    n->metrics = sf_metrics_new();
    n->catalog = sf_inproc_channel_new(catalog_services, 1, "loopback", sf_clock_system());
    const struct sf_allocator_deps deps = {
        .store = store,
        .loops = loops,
        .loop_count = n->options.reactors,
        .clock = sf_clock_system(),
        .catalog = n->catalog,
        .keyring = n->keyring,
        .attempts = &n->attempts,
        .metrics = n->metrics,
        .leases = {.on = !n->options.no_leases},
        .limits = {.cache_bytes_per_loop = n->options.cache_bytes,
                   .max_lanes_per_loop = n->options.lanes}};
    n->allocator = sf_allocator_new(&deps);
    const struct sf_service *services[] = {sf_allocator_service(n->allocator)};
    const struct sf_rpc_server_options rpc = {
        .host = "127.0.0.1", .reactors = n->reactors, .services = services, .service_count = 1};
    bench_must(sf_rpc_server_start(&rpc, &diag, &n->server) == SF_OK, "serving");
}

static void on_drained(void *user)
{
    (void)sem_post(user);
}

static void node_close(struct node *n)
{
    sf_rpc_server_stop(n->server, DRAIN_MS);
    (void)sem_init(&n->drained, 0, 0);
    sf_allocator_drain(n->allocator, on_drained, &n->drained);
    while (sem_wait(&n->drained) != 0) {
    }
    sf_reactors_stop(n->reactors);
    sf_allocator_destroy(n->allocator);
    sf_channel_destroy(n->catalog);
    sf_store_destroy(n->store);
    sf_metrics_destroy(n->metrics);
    sf_keyring_destroy(n->keyring);
    (void)sem_destroy(&n->drained);
}

/* argv: program "serve" folder reactors cache lanes put-delay get-delay no-leases ask-fd told-fd */
int bench_alloc_main(char **argv)
{
    struct node *n = sf_calloc(1, sizeof(*n));
    char order;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN);
    n->options = (struct bench_alloc_options){.folder = argv[2],
                                              .reactors = (unsigned)atoi(argv[3]),
                                              .cache_bytes = strtoull(argv[4], NULL, 10),
                                              .lanes = strtoull(argv[5], NULL, 10),
                                              .put_delay_ms = (unsigned)atoi(argv[6]),
                                              .get_delay_ms = (unsigned)atoi(argv[7]),
                                              .no_leases = argv[8][0] != '0'};
    int ask = atoi(argv[9]), told = atoi(argv[10]);
    node_open(n);
    uint16_t port = sf_rpc_server_port(n->server);
    bench_write_all(told, &port, sizeof(port));
    while (bench_read_all(ask, &order, 1) && order != 'q') {
        struct bench_alloc_report report = {.syncs = sf_embedded_store_syncs(n->store)};
        sf_allocator_stats(n->allocator, &report.allocator);
        bench_write_all(told, &report, sizeof(report));
    }
    node_close(n);
    free(n);
    return 0;
}

/* ---- the parent ---- */

void bench_alloc_start(const struct bench_alloc_options *options, struct bench_alloc_node *out_node)
{
    const uint64_t values[] = {options->reactors,     options->cache_bytes,  options->lanes,
                               options->put_delay_ms, options->get_delay_ms, options->no_leases};
    char numbers[SF_ARRAY_LEN(values)][24];
    char fds[2][24];
    int ask[2], told[2];

    bench_must(pipe(ask) == 0 && pipe(told) == 0, "making pipes");
    for (size_t i = 0; i < SF_ARRAY_LEN(values); i++)
        (void)snprintf(numbers[i], sizeof(numbers[i]), "%llu", (unsigned long long)values[i]);
    (void)snprintf(fds[0], sizeof(fds[0]), "%d", ask[0]);
    (void)snprintf(fds[1], sizeof(fds[1]), "%d", told[1]);
    (void)fflush(NULL);
    pid_t pid = fork();
    bench_must(pid >= 0, "fork");
    if (pid == 0) {
        (void)close(ask[1]);
        (void)close(told[0]);
        (void)execl("/proc/self/exe", "bench_allocate", "serve", options->folder, numbers[0],
                    numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], fds[0], fds[1],
                    (char *)NULL);
        _exit(127);
    }
    (void)close(ask[0]);
    (void)close(told[1]);
    *out_node = (struct bench_alloc_node){.pid = pid, .ask = ask[1], .told = told[0]};
    bench_must(bench_read_all(told[0], &out_node->port, sizeof(out_node->port)), "starting a node");
}

void bench_alloc_stop(struct bench_alloc_node *node)
{
    bench_write_all(node->ask, "q", 1);
    (void)waitpid(node->pid, NULL, 0);
    (void)close(node->ask);
    (void)close(node->told);
    node->pid = 0;
}

void bench_alloc_ask(const struct bench_alloc_node *node, struct bench_alloc_report *out_report)
{
    bench_write_all(node->ask, "s", 1);
    bench_must(bench_read_all(node->told, out_report, sizeof(*out_report)), "asking a node");
}
