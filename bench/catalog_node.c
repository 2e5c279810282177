#include "catalog_node.h"

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
#include "rpc/channel.h"
#include "rpc/server.h"
#include "searchfabric/v1/search_fabric.pb-c.h"
#include "slow_store.h"

/* ---- the child ---------------------------------------------------------------------------- */

struct node {
    struct bench_node_options options;
    struct sf_reactors *reactors;
    struct sf_store *store;
    struct slow_store slow;
    struct sf_attempts attempts;
    struct sf_tso_source *tso;
    struct sf_keyring *keyring;
    struct sf_sched *pool;
    struct sf_sql *sql;
    struct sf_catalog *catalog;
    struct sf_channel *channel; /* in process */
    struct sf_rpc_server *server;
};

static void node_open(struct node *n)
{
    struct sf_diag diag;
    char path[512];
    const struct sf_service *services[SF_CATALOG_SERVICE_COUNT];
    sf_diag_init(&diag);
    bench_must(sf_pbjson_register(sf_view_bytes(sf_contract_descriptor_set,
                                                sf_contract_descriptor_set_size)) == SF_OK,
               "registering the contract");
    sf_log_set_fd(-1);
    bench_must(sf_reactors_start(n->options.reactors, sf_clock_system(), &diag, &n->reactors) ==
                   SF_OK,
               "starting reactors");
    struct sf_loop *loop = sf_reactors_loop(n->reactors, 0);
    (void)snprintf(path, sizeof(path), "%s/store", n->options.folder);
    bench_must(sf_embedded_store_open(path, &diag, &n->store) == SF_OK, "opening the store");
    struct sf_store *store = n->store;
    if (n->options.put_delay_ms != 0) {
        slow_store_init(&n->slow, n->store, loop, n->options.put_delay_ms, 0);
        store = &n->slow.base;
    }
    sf_attempts_init(&n->attempts, (uint64_t)bench_now_ns());
    const struct sf_oracle_options oracle = {.store = n->store,
                                             .loop = loop,
                                             .clock = sf_clock_system(),
                                             .attempts = &n->attempts,
                                             .accept_clock_jump = true};
    bench_must(sf_oracle_open(&oracle, NULL, &diag, &n->tso) == SF_OK, "opening the oracle");
    n->keyring = sf_keyring_new_for_test(1);
    const struct sf_pool_options pool = {.workers = n->options.workers, .max_queued_tasks = 65536};
    n->pool = sf_pool_new(&pool, sf_clock_system());
    (void)snprintf(path, sizeof(path), "%s/projection.sqlite", n->options.folder);
    bench_must(sf_catalog_projection_open(path, NULL, &diag, &n->sql) == SF_OK,
               "opening the projection");
    const struct sf_catalog_deps deps = {.store = store,
                                         .sched = n->pool,
                                         .loop = loop,
                                         .clock = sf_clock_system(),
                                         .tso = n->tso,
                                         .sql = n->sql,
                                         .keyring = n->keyring,
                                         .attempts = &n->attempts,
                                         .owner_id = "bench",
                                         .cache_bytes = n->options.cache_bytes};
    bench_must(sf_catalog_open(&deps, NULL, &diag, &n->catalog) == SF_OK, "opening the catalog");
    sf_catalog_services(n->catalog, services);
    n->channel =
        sf_inproc_channel_new(services, SF_CATALOG_SERVICE_COUNT, "loopback", sf_clock_system());
    const struct sf_rpc_server_options rpc = {.host = "127.0.0.1",
                                              .reactors = n->reactors,
                                              .services = services,
                                              .service_count = SF_CATALOG_SERVICE_COUNT};
    bench_must(sf_rpc_server_start(&rpc, &diag, &n->server) == SF_OK, "serving");
}

static void node_close(struct node *n)
{
    sf_rpc_server_stop(n->server, 1000);
    sf_channel_destroy(n->channel);
    sf_catalog_close(n->catalog, NULL);
    sf_sql_close(n->sql);
    sf_pool_destroy(n->pool);
    sf_tso_source_destroy(n->tso);
    sf_reactors_stop(n->reactors);
    sf_store_destroy(n->store);
    sf_keyring_destroy(n->keyring);
}

static void on_read(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    uint64_t *answered = user;
    bench_must(diag->err == SF_OK && response != NULL, "a read");
    (*answered)++;
}

/* One request for reads in process. */
struct read_order {
    uint64_t namespace_id, collection_id, count;
    char name[160];
};

static void run_reads(struct node *n, const struct read_order *order,
                      struct bench_node_reads out[2])
{
    Searchfabric__V1__RequestMeta meta = SEARCHFABRIC__V1__REQUEST_META__INIT;
    Searchfabric__V1__CollectionRef ref = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    Searchfabric__V1__CollectionNameBinding binding =
        SEARCHFABRIC__V1__COLLECTION_NAME_BINDING__INIT;
    Searchfabric__V1__GetCollectionMetadataRequest get =
        SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__INIT;
    meta.client_id = (char *)"bench";
    meta.client_kind = SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_CONTROL_ADMIN;
    ref.namespace_id = binding.namespace_id = order->namespace_id;
    ref.collection_id = order->collection_id;
    binding.collection_name = (char *)(uintptr_t)order->name;
    get.meta = &meta;
    for (int by_name = 0; by_name < 2; by_name++) {
        uint64_t answered = 0;
        get.lookup_case =
            by_name ? SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_NAME_BINDING
                    : SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_COLLECTION;
        if (by_name)
            get.name_binding = &binding;
        else
            get.collection = &ref;
        int64_t start = bench_now_ns();
        double cpu = bench_own_cpu_seconds();
        for (uint64_t i = 0; i < order->count; i++)
            sf_channel_unary(n->channel, BENCH_PUBLIC "GetCollectionMetadata", &get.base, NULL,
                             NULL, on_read, &answered);
        out[by_name] = (struct bench_node_reads){.calls = answered,
                                                 .seconds = (double)(bench_now_ns() - start) / 1e9,
                                                 .cpu_seconds = bench_own_cpu_seconds() - cpu};
    }
}

/* argv: program "serve" folder reactors workers cache delay ask-fd told-fd */
int bench_node_main(char **argv)
{
    struct node *n = sf_calloc(1, sizeof(*n));
    char order;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN);
    n->options = (struct bench_node_options){.folder = argv[2],
                                             .reactors = (unsigned)atoi(argv[3]),
                                             .workers = (unsigned)atoi(argv[4]),
                                             .cache_bytes = strtoull(argv[5], NULL, 10),
                                             .put_delay_ms = (unsigned)atoi(argv[6])};
    int ask = atoi(argv[7]), told = atoi(argv[8]);
    node_open(n);
    uint16_t port = sf_rpc_server_port(n->server);
    bench_write_all(told, &port, sizeof(port));
    while (bench_read_all(ask, &order, 1) && order != 'q') {
        if (order == 's') {
            struct bench_node_report report = {.puts = atomic_load(&n->slow.puts),
                                               .rounds = atomic_load(&n->slow.rounds)};
            sf_catalog_stats(n->catalog, &report.catalog);
            bench_write_all(told, &report, sizeof(report));
        } else if (order == 'r') {
            struct read_order reads;
            struct bench_node_reads out[2];
            bench_must(bench_read_all(ask, &reads, sizeof(reads)), "reading an order");
            run_reads(n, &reads, out);
            bench_write_all(told, out, sizeof(out));
        }
    }
    node_close(n);
    free(n);
    return 0;
}

/* ---- the parent --------------------------------------------------------------------------- */

void bench_node_start(const struct bench_node_options *options, struct bench_node *out_node)
{
    int ask[2], told[2];
    char numbers[6][24];
    bench_must(pipe(ask) == 0 && pipe(told) == 0, "making pipes");
    (void)snprintf(numbers[0], sizeof(numbers[0]), "%u", options->reactors);
    (void)snprintf(numbers[1], sizeof(numbers[1]), "%u", options->workers);
    (void)snprintf(numbers[2], sizeof(numbers[2]), "%zu", options->cache_bytes);
    (void)snprintf(numbers[3], sizeof(numbers[3]), "%u", options->put_delay_ms);
    (void)snprintf(numbers[4], sizeof(numbers[4]), "%d", ask[0]);
    (void)snprintf(numbers[5], sizeof(numbers[5]), "%d", told[1]);
    (void)fflush(NULL);
    pid_t pid = fork();
    bench_must(pid >= 0, "fork");
    if (pid == 0) {
        (void)close(ask[1]);
        (void)close(told[0]);
        (void)execl("/proc/self/exe", "bench_catalog", "serve", options->folder, numbers[0],
                    numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], (char *)NULL);
        _exit(127);
    }
    (void)close(ask[0]);
    (void)close(told[1]);
    *out_node = (struct bench_node){.pid = pid, .ask = ask[1], .told = told[0]};
    bench_must(bench_read_all(told[0], &out_node->port, sizeof(out_node->port)), "starting a node");
}

static void reap(struct bench_node *node)
{
    (void)waitpid(node->pid, NULL, 0);
    (void)close(node->ask);
    (void)close(node->told);
    node->pid = 0;
}

void bench_node_kill(struct bench_node *node)
{
    (void)kill(node->pid, SIGKILL);
    reap(node);
}

void bench_node_stop(struct bench_node *node)
{
    bench_write_all(node->ask, "q", 1);
    reap(node);
}

void bench_node_ask(struct bench_node *node, struct bench_node_report *out_report)
{
    bench_write_all(node->ask, "s", 1);
    bench_must(bench_read_all(node->told, out_report, sizeof(*out_report)), "asking a node");
}

void bench_node_read(struct bench_node *node, uint64_t namespace_id, uint64_t collection_id,
                     const char *name, uint64_t count, struct bench_node_reads out[2])
{
    struct read_order order = {
        .namespace_id = namespace_id, .collection_id = collection_id, .count = count};
    (void)snprintf(order.name, sizeof(order.name), "%s", name);
    bench_write_all(node->ask, "r", 1);
    bench_write_all(node->ask, &order, sizeof(order));
    bench_must(bench_read_all(node->told, out, 2 * sizeof(out[0])), "reading in a node");
}
