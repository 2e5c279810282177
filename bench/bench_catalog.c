/*
 * The catalog behind its gRPC server, in a process of its own.
 *
 *   creates   closed loops of PutCollectionMetadata over 64 namespaces, and over one; beside them
 *             PostgreSQL 15 doing the same rows in one transaction (tools/bench-postgres)
 *   reads     GetCollectionMetadata by ref and by name: most, and p99 at half of it; in process too
 *   many      one page of ListCollections below a prefix, in a small and a large namespace; a large
 *             catalog: making it, memory, restart after kill -9, rebuild, checkpoint
 *   rounds    put latencies of one mutation on a shared store where a put takes 20 ms
 *   leases    quota leases of one namespace and over 1,000; puts per 1,000 of them
 *
 * One node serves with one reactor, so that reads have one core of the server. Prints figures and
 * ratios, no verdicts. `--short` is a few seconds' smoke run.
 */
#include <argp.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/pbjson.h"
#include "bench_common.h"
#include "catalog/catalog_ddl.h"
#include "catalog_load.h"
#include "catalog_node.h"
#include "contract/descriptor_set.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define NAMESPACES     64u
#define LEASE_RATE     1000000u /* units a second of the built-in class */
#define ROUND_MS       20u      /* of a put, part `rounds` */
#define AIM_PER_SECOND 100000.0 /* reads of one core; latency is shown at half of it, too */

/* The command line and what follows from it. */
struct plan {
    const char *folder;    /* where the stores go */
    const char *peer;      /* program of the peer, NULL = none */
    const char *only;      /* part to run, NULL = all */
    unsigned workers;      /* of a node */
    unsigned clients;      /* of creates; 0 = each of `levels` */
    int64_t ms;            /* of one setting */
    size_t reads;          /* of one setting */
    size_t few, many;      /* collections */
    unsigned peer_seconds; /* of one setting */
    unsigned starts;       /* folders made so far */
    bool keep;             /* the stores stay */
};

static const unsigned levels[] = {1, 16, 64};

/* A node on a fresh folder, or on the one in `path` when it is not empty. */
static void start(struct plan *plan, char path[512], unsigned delay_ms, struct bench_node *node)
{
    if (path[0] == '\0') {
        (void)snprintf(path, 512, "%s/%u", plan->folder, plan->starts++);
        char command[600];
        (void)snprintf(command, sizeof(command), "mkdir -p '%s/store'", path);
        bench_must(system(command) == 0, "making a folder");
    }
    const struct bench_node_options options = {
        .folder = path, .reactors = 1, .workers = plan->workers, .put_delay_ms = delay_ms};
    bench_node_start(&options, node);
}

static void make_namespaces(struct bench_driver *driver, uint64_t out_ids[NAMESPACES])
{
    for (unsigned i = 0; i < NAMESPACES; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "namespace-%02u", i);
        out_ids[i] = bench_namespace(driver, name);
    }
}

static void print_line(const char *what, unsigned clients, const struct bench_load_result *r)
{
    (void)printf("  %-22s %4u clients %9.0f/s  p50 %7.2f ms  p99 %7.2f ms  server CPU %6.1f us\n",
                 what, clients, (double)(r->done - r->failed) / r->seconds, (double)r->p50_us / 1e3,
                 (double)r->p99_us / 1e3, r->cpu_us);
    if (r->failed != 0)
        (void)printf("  %zu of them failed\n", r->failed);
    (void)fflush(stdout);
}

/* ---- creates ------------------------------------------------------------------------------ */

/* Writes the product's schema for PostgreSQL, which the peer makes its tables by. */
static void write_schema(const char *path)
{
    FILE *file = fopen(path, "w");
    bench_must(file != NULL, "writing the peer's schema");
    for (size_t i = 0; i < SF_CATALOG_DDL_STEPS; i++) {
        for (const char *c = sf_catalog_ddl_postgres[i]; *c != '\0'; c++)
            (void)fprintf(file, *c == ';' ? ";\n" : "%c", *c);
    }
    bench_must(fclose(file) == 0, "writing the peer's schema");
}

/* The peer's lines: transactions a second at each level; false when there is none. */
static bool run_peer(const struct plan *plan, unsigned namespaces,
                     double out_tps[SF_ARRAY_LEN(levels)])
{
    char line[1400], schema[600];
    size_t got = 0;
    if (plan->peer == NULL)
        return false;
    (void)snprintf(schema, sizeof(schema), "%s/peer-schema.sql", plan->folder);
    write_schema(schema);
    (void)snprintf(line, sizeof(line), "%s %s %u %u 1 16 64", plan->peer, schema,
                   plan->peer_seconds, namespaces);
    FILE *pipe = popen(line, "r");
    bench_must(pipe != NULL, "starting the peer");
    while (got < SF_ARRAY_LEN(levels) && fgets(line, sizeof(line), pipe) != NULL) {
        unsigned clients = 0, p50 = 0, p99 = 0;
        if (sscanf(line, "%u %lf %u %u", &clients, &out_tps[got], &p50, &p99) != 4) {
            (void)printf("  PostgreSQL: %s", line);
            break;
        }
        (void)printf("  %-22s %4u clients %9.0f/s  p50 %7.2f ms  p99 %7.2f ms\n", "PostgreSQL 15",
                     clients, out_tps[got], (double)p50 / 1e3, (double)p99 / 1e3);
        got++;
    }
    (void)pclose(pipe);
    (void)unlink(schema);
    return got == SF_ARRAY_LEN(levels);
}

static void creates_over(struct plan *plan, size_t namespace_count)
{
    char path[512] = "";
    struct bench_node node;
    uint64_t namespaces[NAMESPACES];
    double own[SF_ARRAY_LEN(levels)], peer[SF_ARRAY_LEN(levels)];
    start(plan, path, 0, &node);
    struct bench_driver *driver = bench_driver_new(node.port, 4);
    make_namespaces(driver, namespaces);
    (void)printf("creates over %zu namespaces, synced\n", namespace_count);
    size_t first = 0;
    for (size_t i = 0; i < SF_ARRAY_LEN(levels); i++) {
        if (plan->clients != 0 && plan->clients != levels[i])
            continue;
        struct bench_load_result result;
        struct bench_node_report before, after;
        struct bench_load load = {.call = BENCH_CREATE,
                                  .clients = levels[i],
                                  .calls = 10000000,
                                  .most_ms = plan->ms,
                                  .namespaces = namespaces,
                                  .namespace_count = namespace_count,
                                  .first = first,
                                  .round = path + strlen(plan->folder)};
        char round[32];
        (void)snprintf(round, sizeof(round), "%zu", i);
        load.round = round;
        bench_node_ask(&node, &before);
        bench_load_run(driver, &load, node.pid, &result);
        bench_node_ask(&node, &after);
        first += result.done;
        own[i] = (double)(result.done - result.failed) / result.seconds;
        print_line("PutCollectionMetadata", levels[i], &result);
        (void)printf(
            "  %-22s %.1f commands a group\n", "",
            (double)(after.catalog.commands_applied - before.catalog.commands_applied) /
                (double)(after.catalog.groups_committed - before.catalog.groups_committed));
    }
    bench_driver_destroy(driver);
    bench_node_stop(&node);
    if (plan->clients == 0 && run_peer(plan, (unsigned)namespace_count, peer))
        (void)printf("  ratio to PostgreSQL: %.1f, %.1f, %.1f\n", own[0] / peer[0],
                     own[1] / peer[1], own[2] / peer[2]);
    if (!plan->keep)
        bench_remove_folder(path);
}

static void creates(struct plan *plan)
{
    creates_over(plan, NAMESPACES);
    creates_over(plan, 1);
}

/* ---- populating --------------------------------------------------------------------------- */

/* Makes `count` collections over the namespaces through the public API, in tenths that show whether
 * making one gets dearer; their ids. */
static uint64_t *populate(struct bench_driver *driver, struct bench_node *node,
                          const uint64_t *namespaces, size_t namespace_count, size_t count,
                          const char *round)
{
    uint64_t *ids = sf_calloc(count, sizeof(*ids));
    double seconds = 0, cpu_us = 0;
    (void)printf("  creates/s by tenth:");
    for (size_t tenth = 0, first = 0; tenth < 10; tenth++) {
        struct bench_load_result result;
        size_t calls = count * (tenth + 1) / 10 - first;
        char key[64];
        (void)snprintf(key, sizeof(key), "%s-%zu", round, tenth);
        const struct bench_load load = {.call = BENCH_CREATE,
                                        .clients = 256,
                                        .calls = calls,
                                        .namespaces = namespaces,
                                        .namespace_count = namespace_count,
                                        .first = first,
                                        .ids = ids + first,
                                        .round = key};
        bench_load_run(driver, &load, node->pid, &result);
        bench_must(result.failed == 0, "populating");
        first += calls;
        seconds += result.seconds;
        cpu_us += result.cpu_us * (double)calls;
        (void)printf(" %.0f", (double)calls / result.seconds);
        (void)fflush(stdout);
    }
    (void)printf("\n  %zu collections made by 256 clients in %.1f s: %.0f/s, server CPU %.1f us\n",
                 count, seconds, (double)count / seconds, cpu_us / (double)count);
    (void)fflush(stdout);
    return ids;
}

/* ---- reads -------------------------------------------------------------------------------- */

static void read_kind(struct plan *plan, struct bench_driver *driver, struct bench_node *node,
                      const struct bench_load *base, const char *what)
{
    struct bench_load load = *base;
    struct bench_load_result result;
    struct bench_node_report before, after;
    load.calls = load.known * 2; /* warms up */
    bench_load_run(driver, &load, node->pid, &result);
    bench_node_ask(node, &before);
    load.calls = plan->reads;
    bench_load_run(driver, &load, node->pid, &result);
    bench_node_ask(node, &after);
    print_line(what, load.clients, &result);
    (void)printf("  %-22s %llu facts read by SQL, %llu from memory\n", "",
                 (unsigned long long)(after.catalog.cache_misses - before.catalog.cache_misses),
                 (unsigned long long)(after.catalog.cache_hits - before.catalog.cache_hits));
    const double rates[] = {(double)result.done / result.seconds / 2, AIM_PER_SECOND / 2};
    for (size_t i = 0; i < SF_ARRAY_LEN(rates); i++) {
        load.rate = rates[i];
        load.most_ms = plan->ms;
        load.calls = (size_t)(load.rate * (double)plan->ms / 1e3);
        bench_load_run(driver, &load, node->pid, &result);
        (void)printf("  %-22s asked for %.0f/s: %.0f/s  p50 %.2f ms  p99 %.2f ms, the driver "
                     "late by p99 %.2f ms\n",
                     "", load.rate, (double)result.done / result.seconds,
                     (double)result.p50_us / 1e3, (double)result.p99_us / 1e3,
                     (double)result.late_p99_us / 1e3);
    }
}

static void reads(struct plan *plan)
{
    char path[512] = "", name[32];
    struct bench_node node;
    uint64_t namespaces[NAMESPACES];
    start(plan, path, 0, &node);
    struct bench_driver *driver = bench_driver_new(node.port, 8);
    make_namespaces(driver, namespaces);
    (void)printf("reads of 1,000 collections, one reactor\n");
    uint64_t *ids = populate(driver, &node, namespaces, NAMESPACES, 1000, "p");
    struct bench_load load = {.call = BENCH_GET_REF,
                              .clients = 256,
                              .namespaces = namespaces,
                              .namespace_count = NAMESPACES,
                              .ids = ids,
                              .known = 1000,
                              .round = "r"};
    read_kind(plan, driver, &node, &load, "GetCollection by ref");
    load.call = BENCH_GET_NAME;
    read_kind(plan, driver, &node, &load, "GetCollection by name");
    bench_name(7, name);
    struct bench_node_reads in_process[2];
    bench_node_read(&node, namespaces[7], ids[7], name, plan->reads, in_process);
    for (int i = 0; i < 2; i++)
        (void)printf("  in process, by %-7s one thread %9.0f/s  CPU %5.2f us\n",
                     i == 0 ? "ref" : "name", (double)in_process[i].calls / in_process[i].seconds,
                     in_process[i].cpu_seconds * 1e6 / (double)in_process[i].calls);
    free(ids);
    bench_driver_destroy(driver);
    bench_node_stop(&node);
    if (!plan->keep)
        bench_remove_folder(path);
}

/* ---- a large catalog ---------------------------------------------------------------------- */

static double page_ms(struct bench_driver *driver, struct bench_node *node, uint64_t namespace_id)
{
    struct bench_load_result result;
    const struct bench_load load = {.call = BENCH_LIST,
                                    .clients = 1,
                                    .calls = 500,
                                    .namespaces = &namespace_id,
                                    .namespace_count = 1,
                                    .round = "l"};
    bench_load_run(driver, &load, node->pid, &result);
    bench_must(result.failed == 0, "listing");
    return (double)result.p50_us / 1e3;
}

/* Kills the node, starts it again, makes one more collection; seconds from start to its answer. */
static double restart(struct plan *plan, char path[512], struct bench_node *node,
                      uint64_t namespace_id, const char *round)
{
    struct bench_load_result result;
    int64_t begin = bench_now_ns();
    start(plan, path, 0, node);
    struct bench_driver *driver = bench_driver_new(node->port, 1);
    const struct bench_load load = {.call = BENCH_CREATE,
                                    .clients = 1,
                                    .calls = 1,
                                    .namespaces = &namespace_id,
                                    .namespace_count = 1,
                                    .first = 99000000 + plan->starts++,
                                    .round = round};
    bench_load_run(driver, &load, node->pid, &result);
    double seconds = (double)(bench_now_ns() - begin) / 1e9;
    bench_must(result.failed == 0, "a create after a restart");
    bench_driver_destroy(driver);
    return seconds;
}

/* Rows that a create leaves: collection, record, name epoch, work of the projectors. */
#define CREATE_ROWS     4u
#define CHECKPOINT_ROWS 3u /* of them in a checkpoint: work is made due anew */

static void checkpoint(struct bench_driver *driver)
{
    Searchfabric__V1__CreateCheckpointRequest request =
        SEARCHFABRIC__V1__CREATE_CHECKPOINT_REQUEST__INIT;
    struct sf_arena *arena = sf_arena_new((size_t)64 << 20);
    const ProtobufCMessage *response = NULL;
    struct sf_diag diag;
    int64_t begin = bench_now_ns();
    if (!bench_call_wait(driver, BENCH_OPERATIONS "CreateCheckpoint", &request.base, arena,
                         &response, &diag)) {
        (void)printf("  checkpoint: not served (%s)\n", diag.message);
    } else {
        const Searchfabric__V1__CreateCheckpointResponse *made = (const void *)response;
        uint64_t bytes = 0, rows = 0;
        for (size_t i = 0; made->manifest != NULL && i < made->manifest->n_checkpoint_shards; i++) {
            bytes += made->manifest->checkpoint_shards[i]->size_bytes;
            rows += made->manifest->checkpoint_shards[i]->row_count;
        }
        double seconds = (double)(bench_now_ns() - begin) / 1e9;
        (void)printf("  checkpoint: %.2f s, %.0f rows/s, %.1f bytes a collection\n", seconds,
                     (double)rows / seconds, (double)bytes * CHECKPOINT_ROWS / (double)rows);
    }
    sf_arena_destroy(arena);
}

/* One checkpoint on a connection of its own. */
struct cut {
    uint16_t port;
};

static void *cut_main(void *arg)
{
    const struct cut *cut = arg;
    struct bench_driver *driver = bench_driver_new(cut->port, 1);
    checkpoint(driver);
    bench_driver_destroy(driver);
    return NULL;
}

/* Creates of 64 clients without a checkpoint, then while one is cut; how many. */
static size_t checkpoint_beside(struct plan *plan, struct bench_node *node, uint64_t namespace_id)
{
    struct bench_driver *driver = bench_driver_new(node->port, 4);
    struct cut cut = {.port = node->port};
    size_t made = 0;
    for (int during = 0; during < 2; during++) {
        struct bench_load_result result;
        pthread_t thread;
        const struct bench_load load = {.call = BENCH_CREATE,
                                        .clients = 64,
                                        .calls = 10000000,
                                        .most_ms = plan->ms / 2,
                                        .namespaces = &namespace_id,
                                        .namespace_count = 1,
                                        .first = during == 0 ? 200000000 : 300000000,
                                        .round = during == 0 ? "b" : "c"};
        if (during != 0)
            bench_must(pthread_create(&thread, NULL, cut_main, &cut) == 0, "a thread");
        bench_load_run(driver, &load, node->pid, &result);
        if (during != 0)
            (void)pthread_join(thread, NULL);
        print_line(during == 0 ? "creates" : "beside a checkpoint", load.clients, &result);
        made += result.done - result.failed;
    }
    bench_driver_destroy(driver);
    return made;
}

static void warm(struct bench_driver *driver, struct bench_node *node, const uint64_t *namespaces,
                 uint64_t *ids, size_t count)
{
    struct bench_load_result result;
    struct bench_node_report report;
    const struct bench_load load = {.call = BENCH_GET_REF,
                                    .clients = 64,
                                    .calls = count,
                                    .namespaces = namespaces,
                                    .namespace_count = 1,
                                    .ids = ids,
                                    .known = count,
                                    .round = "w"};
    bench_load_run(driver, &load, node->pid, &result);
    bench_node_ask(node, &report);
    (void)printf(
        "  all read once: %.0f/s; %llu facts in memory, %.1f MiB; process %.1f MiB\n",
        (double)result.done / result.seconds, (unsigned long long)report.catalog.cache_entries,
        (double)report.catalog.cache_bytes / 1048576.0, (double)bench_rss_kib(node->pid) / 1024.0);
}

/* Kills the node, removes its projection and starts it: where the rebuild begins is `from`. */
static void rebuild(struct plan *plan, char path[512], struct bench_node *node,
                    uint64_t namespace_id, size_t count, const char *from)
{
    struct bench_node_report report;
    char command[600];
    bench_node_kill(node);
    (void)snprintf(command, sizeof(command), "rm -f '%s'/projection.sqlite*", path);
    bench_must(system(command) == 0, "removing the projection");
    double seconds = restart(plan, path, node, namespace_id, from);
    bench_node_ask(node, &report);
    bench_must(report.catalog.rebuilt, "a rebuild");
    double cpu = bench_cpu_us(node->pid) / 1e6;
    (void)printf("  rebuilt from the %s, first create answered after %.2f s, server CPU %.2f s: "
                 "%.0f collections/s, %.0f rows/s; process %.1f MiB\n",
                 from, seconds, cpu, (double)count / seconds, (double)count * CREATE_ROWS / seconds,
                 (double)bench_rss_kib(node->pid) / 1024.0);
    (void)fflush(stdout);
}

static double large(struct plan *plan, size_t count)
{
    char path[512] = "";
    struct bench_node node;
    start(plan, path, 0, &node);
    struct bench_driver *driver = bench_driver_new(node.port, 4);
    uint64_t namespaces[1] = {bench_namespace(driver, "large")};
    (void)printf("%zu collections in one namespace\n", count);
    uint64_t *ids = populate(driver, &node, namespaces, 1, count, "p");
    double page = page_ms(driver, &node, namespaces[0]);
    (void)printf("  one page of 100 below a prefix: %.2f ms\n", page);
    bench_driver_destroy(driver);
    bench_node_kill(&node);
    double seconds = restart(plan, path, &node, namespaces[0], "k1");
    (void)printf("  kill -9, restart, first create answered after %.3f s; process %.1f MiB\n",
                 seconds, (double)bench_rss_kib(node.pid) / 1024.0);
    driver = bench_driver_new(node.port, 4);
    warm(driver, &node, namespaces, ids, count);
    bench_driver_destroy(driver);
    (void)printf("  stores take %.0f bytes a collection\n",
                 (double)bench_folder_bytes(path) / (double)count);
    rebuild(plan, path, &node, namespaces[0], count, "segments");
    size_t more = checkpoint_beside(plan, &node, namespaces[0]);
    rebuild(plan, path, &node, namespaces[0], count + more, "checkpoint");
    bench_node_stop(&node);
    if (!plan->keep)
        bench_remove_folder(path);
    free(ids);
    return page;
}

static void many(struct plan *plan)
{
    double few_page = large(plan, plan->few);
    if (plan->many > plan->few * 10)
        (void)large(plan, plan->few * 10);
    double many_page = large(plan, plan->many);
    (void)printf("  a page at %zu costs %.2f of one at %zu\n", plan->many, many_page / few_page,
                 plan->few);
}

/* ---- rounds ------------------------------------------------------------------------------- */

static void rounds(struct plan *plan)
{
    static const struct {
        enum bench_call call;
        const char *name;
    } kinds[] = {{BENCH_CREATE, "create"},
                 {BENCH_UPDATE, "update"},
                 {BENCH_SCHEMA, "schema"},
                 {BENCH_DROP, "drop"}};
    char path[512] = "";
    struct bench_node node;
    uint64_t ids[20] = {0};
    start(plan, path, ROUND_MS, &node);
    struct bench_driver *driver = bench_driver_new(node.port, 1);
    uint64_t namespaces[1] = {bench_namespace(driver, "far")};
    (void)printf("a shared store where a put takes %u ms, one client\n", ROUND_MS);
    for (size_t i = 0; i < SF_ARRAY_LEN(kinds); i++) {
        struct bench_load_result result;
        struct bench_node_report before, after;
        const struct bench_load load = {.call = kinds[i].call,
                                        .clients = 1,
                                        .calls = SF_ARRAY_LEN(ids),
                                        .namespaces = namespaces,
                                        .namespace_count = 1,
                                        .ids = ids,
                                        .round = "d"};
        bench_node_ask(&node, &before);
        bench_load_run(driver, &load, node.pid, &result);
        bench_node_ask(&node, &after);
        if (result.refused != 0) {
            (void)printf("  %-8s not served\n", kinds[i].name);
            continue;
        }
        (void)printf("  %-8s p50 %6.1f ms = %.2f put latencies; %.1f rounds, %.1f puts\n",
                     kinds[i].name, (double)result.p50_us / 1e3,
                     (double)result.p50_us / 1e3 / ROUND_MS,
                     (double)(after.rounds - before.rounds) / (double)result.done,
                     (double)(after.puts - before.puts) / (double)result.done);
    }
    bench_driver_destroy(driver);
    bench_node_stop(&node);
    if (!plan->keep)
        bench_remove_folder(path);
}

/* ---- leases ------------------------------------------------------------------------------- */

/* A node with `count` namespaces that have all leased before. */
static struct bench_driver *lease_node(struct plan *plan, char path[512], size_t count,
                                       unsigned delay_ms, struct bench_node *node,
                                       uint64_t *namespaces)
{
    struct bench_load_result result;
    start(plan, path, delay_ms, node);
    struct bench_driver *driver = bench_driver_new(node->port, 4);
    for (size_t i = 0; i < count; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "namespace-%04zu", i);
        namespaces[i] = bench_namespace(driver, name);
    }
    const struct bench_load first = {.call = BENCH_LEASE,
                                     .clients = 16,
                                     .calls = count,
                                     .namespaces = namespaces,
                                     .namespace_count = count,
                                     .round = "first"};
    bench_load_run(driver, &first, node->pid, &result);
    return driver;
}

static void leases_over(struct plan *plan, size_t count)
{
    char path[512] = "";
    struct bench_node node;
    uint64_t *namespaces = sf_calloc(count, sizeof(*namespaces));
    struct bench_driver *driver = lease_node(plan, path, count, 0, &node, namespaces);
    (void)printf("leases over %zu namespaces\n", count);
    for (size_t i = 0; i < SF_ARRAY_LEN(levels); i++) {
        struct bench_load_result result;
        char round[32];
        (void)snprintf(round, sizeof(round), "%zu", i);
        const struct bench_load load = {.call = BENCH_LEASE,
                                        .clients = levels[i],
                                        .calls = 10000000,
                                        .most_ms = plan->ms,
                                        .namespaces = namespaces,
                                        .namespace_count = count,
                                        .round = round};
        bench_load_run(driver, &load, node.pid, &result);
        print_line("AcquireQuotaLease", levels[i], &result);
    }
    bench_driver_destroy(driver);
    bench_node_stop(&node);
    bench_remove_folder(path);
    free(namespaces);
}

/* Puts of a shared store, for leases so large that a chunk of 2 s of refill is `per_chunk`. */
static void lease_puts(struct plan *plan, size_t count, uint64_t per_chunk)
{
    char path[512] = "";
    struct bench_node node;
    struct bench_load_result result;
    struct bench_node_report before, after;
    uint64_t *namespaces = sf_calloc(count, sizeof(*namespaces));
    struct bench_driver *driver = lease_node(plan, path, count, 1, &node, namespaces);
    const struct bench_load load = {.call = BENCH_LEASE,
                                    .clients = 64,
                                    .calls = 10000000,
                                    .most_ms = plan->ms,
                                    .units = LEASE_RATE * 2 / per_chunk,
                                    .namespaces = namespaces,
                                    .namespace_count = count,
                                    .round = "puts"};
    bench_node_ask(&node, &before);
    bench_load_run(driver, &load, node.pid, &result);
    bench_node_ask(&node, &after);
    (void)printf("  of %" PRIu64 " a chunk, a put takes 1 ms: %.2f puts per 1,000 leases at "
                 "%.0f/s\n",
                 per_chunk,
                 (double)(after.puts - before.puts) * 1000 / (double)(result.done - result.failed),
                 (double)(result.done - result.failed) / result.seconds);
    if (result.failed != 0)
        (void)printf("  and %zu refusals: the budgets were used up\n", result.failed);
    bench_driver_destroy(driver);
    bench_node_stop(&node);
    bench_remove_folder(path);
    free(namespaces);
}

static void leases(struct plan *plan)
{
    size_t many = plan->many < 1000 ? 100 : 1000;
    leases_over(plan, 1);
    lease_puts(plan, 1, 20000);
    leases_over(plan, many);
    lease_puts(plan, many, 20000);
    lease_puts(plan, NAMESPACES, 100);
}

/* ---- the program -------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(struct plan *plan);
} parts[] = {
    {"creates", creates}, {"reads", reads}, {"many", many}, {"rounds", rounds}, {"leases", leases}};

static const struct argp_option option_table[] = {
    {"dir", 'd', "FOLDER", 0, "Where the stores go (default: a fresh folder under .)", 0},
    {"peer", 'p', "PROGRAM", 0, "tools/bench-postgres", 0},
    {"only", 'o', "PART", 0, "creates, reads, many, rounds or leases", 0},
    {"clients", 'c', "N", 0, "Creates: of 1, 16, 64 clients this level alone, without the peer", 0},
    {"ms", 'm', "N", 0, "Milliseconds of one setting (default 5000)", 0},
    {"workers", 'w', "N", 0, "Worker threads of a node (default: as the server)", 0},
    {"many", 'n', "N", 0, "Collections of the large catalog (default 1000000)", 0},
    {"keep", 'k', NULL, 0, "Leave the stores where they are", 0},
    {"short", 's', NULL, 0, "A few seconds in all", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct plan *plan = state->input;

    switch (key) {
    case 'd':
        plan->folder = arg;
        break;
    case 'p':
        plan->peer = arg;
        break;
    case 'o':
        plan->only = arg;
        break;
    case 'c':
        plan->clients = (unsigned)strtoul(arg, NULL, 10);
        break;
    case 'm':
        plan->ms = strtoll(arg, NULL, 10);
        break;
    case 'w':
        plan->workers = (unsigned)strtoul(arg, NULL, 10);
        break;
    case 'n':
        plan->many = strtoull(arg, NULL, 10);
        break;
    case 'k':
        plan->keep = true;
        break;
    case 's':
        plan->ms = 300;
        plan->reads = 20000;
        plan->few = 100;
        plan->many = 500;
        plan->peer_seconds = 1;
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct argp argp = {option_table, parse, NULL, "The catalog behind its gRPC server.",
                              NULL,         NULL,  NULL};
    char template[] = "./bench-catalog-XXXXXX";
    struct plan plan = {.workers = 64,
                        .ms = 5000,
                        .reads = 500000,
                        .few = 1000,
                        .many = 1000000,
                        .peer_seconds = 5};

    (void)signal(SIGPIPE, SIG_IGN);
    if (argc == 9 && strcmp(argv[1], "serve") == 0)
        return bench_node_main(argv);
    if (argp_parse(&argp, argc, argv, 0, NULL, &plan) != 0)
        return 1;
    bench_must(sf_pbjson_register(sf_view_bytes(sf_contract_descriptor_set,
                                                sf_contract_descriptor_set_size)) == SF_OK,
               "registering the contract");
    const char *made = NULL;
    if (plan.folder == NULL)
        plan.folder = made = mkdtemp(template);
    bench_must(plan.folder != NULL, "making a folder");
    for (size_t i = 0; i < SF_ARRAY_LEN(parts); i++) {
        if (plan.only == NULL || strcmp(plan.only, parts[i].name) == 0)
            parts[i].run(&plan);
    }
    if (made != NULL)
        bench_remove_folder(made);
    return 0;
}
