/*
 * The embedded store's group commit beside raw RocksDB synced puts, in the same run, round by
 * round, so that a busy neighbour hurts both alike.
 *
 * store: `clients` closed loops that submit one create-only put each and the next one when it is
 *        durable (the form the lanes use).
 * wait:  the same from `clients` threads in the waiting form.
 * peer:  `clients` threads that each write one record with a sync through rocksdb_put; RocksDB
 *        groups concurrent writers by itself. It checks no condition.
 */
#include <argp.h>
#include <errno.h>
#include <pthread.h>
#include <rocksdb/c.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/mem.h"
#include "bench_common.h"
#include "object/store.h"

#define BODY_BYTES   200u
#define MOST_CLIENTS 512u
#define MOST_SAMPLES (4u << 20)
#define ROUNDS       3

/* What one kind of run came to, over its rounds. */
struct result {
    const char *name;
    uint32_t *latencies_us; /* samples, unsorted until printed */
    _Atomic size_t count;
    uint64_t syncs; /* 0 = not known */
    double seconds; /* wall time */
    double cpu_seconds;
};

/* One closed loop. */
struct client {
    struct sf_batch batch;
    struct sf_put put;
    struct bench *bench;
    pthread_t thread;
    unsigned id;
    uint64_t next; /* number of its next key */
    int64_t sent_ns;
    char key[64];
    char body[BODY_BYTES];
};

struct bench {
    struct sf_store *store;
    rocksdb_t *peer;
    rocksdb_writeoptions_t *sync;
    struct result *result; /* of the run under way */
    unsigned round;        /* numbers the runs, so that keys are new */
    int64_t end_ns;        /* no new put after this */
    _Atomic unsigned running;
    sem_t done;
    struct client clients[MOST_CLIENTS];
};

static void note(struct bench *b, int64_t ns)
{
    size_t at = atomic_fetch_add_explicit(&b->result->count, 1, memory_order_relaxed);

    b->result->latencies_us[at % MOST_SAMPLES] = (uint32_t)(ns / 1000);
}

static void next_put(struct client *c)
{
    int n = snprintf(c->key, sizeof(c->key), "bench/%u/%u/%020llu", c->bench->round, c->id,
                     (unsigned long long)c->next);

    (void)snprintf(c->body, sizeof(c->body), "%u-%u-%llu", c->bench->round, c->id,
                   (unsigned long long)c->next++);
    c->put = (struct sf_put){.key = sf_view_bytes(c->key, (size_t)n),
                             .body = sf_view_bytes(c->body, sizeof(c->body)),
                             .cond = SF_PUT_ABSENT};
    c->sent_ns = bench_now_ns();
}

static void on_durable(struct sf_batch *batch)
{
    struct client *c = SF_CONTAINER_OF(batch, struct client, batch);
    struct bench *b = c->bench;
    int64_t now = bench_now_ns();

    bench_must(c->put.err == SF_OK, "a put");
    note(b, now - c->sent_ns);
    if (now < b->end_ns) {
        next_put(c);
        sf_store_submit(b->store, &c->batch);
    } else if (atomic_fetch_sub(&b->running, 1) == 1) {
        (void)sem_post(&b->done);
    }
}

static void run_submit(struct bench *b, unsigned clients)
{
    atomic_store(&b->running, clients);
    for (unsigned i = 0; i < clients; i++) {
        struct client *c = &b->clients[i];
        next_put(c);
        c->batch = (struct sf_batch){.puts = &c->put, .count = 1, .done = on_durable};
        sf_store_submit(b->store, &c->batch);
    }
    while (sem_wait(&b->done) != 0) {
    }
}

static void *wait_main(void *arg)
{
    struct client *c = arg;
    int64_t now = 0;

    do {
        next_put(c);
        bench_must(sf_store_put_wait(c->bench->store, NULL, &c->put) == SF_OK, "a put");
        now = bench_now_ns();
        note(c->bench, now - c->sent_ns);
    } while (now < c->bench->end_ns);
    return NULL;
}

static void *peer_main(void *arg)
{
    struct client *c = arg;
    struct bench *b = c->bench;
    int64_t now = 0;

    do {
        char *error = NULL;
        next_put(c);
        rocksdb_put(b->peer, b->sync, c->key, c->put.key.len, c->body, sizeof(c->body), &error);
        bench_must(error == NULL, "a put of the peer");
        now = bench_now_ns();
        note(b, now - c->sent_ns);
    } while (now < b->end_ns);
    return NULL;
}

static void run_threads(struct bench *b, unsigned clients, void *(*run)(void *))
{
    for (unsigned i = 0; i < clients; i++)
        bench_must(pthread_create(&b->clients[i].thread, NULL, run, &b->clients[i]) == 0,
                   "a thread");
    for (unsigned i = 0; i < clients; i++)
        (void)pthread_join(b->clients[i].thread, NULL);
}

enum kind { KIND_STORE, KIND_WAIT, KIND_PEER, KIND_COUNT };

static void run_kind(struct bench *b, enum kind kind, unsigned clients, int64_t ms,
                     struct result *result)
{
    uint64_t syncs = sf_embedded_store_syncs(b->store);
    double cpu = bench_own_cpu_seconds();
    int64_t start = bench_now_ns();

    b->result = result;
    b->round++;
    b->end_ns = start + ms * 1000000;
    if (kind == KIND_STORE)
        run_submit(b, clients);
    else
        run_threads(b, clients, kind == KIND_WAIT ? wait_main : peer_main);
    result->seconds += (double)(bench_now_ns() - start) / 1e9;
    result->cpu_seconds += bench_own_cpu_seconds() - cpu;
    result->syncs += sf_embedded_store_syncs(b->store) - syncs;
}

static void print_result(unsigned clients, struct result *r)
{
    size_t count = atomic_load(&r->count);
    size_t samples = count < MOST_SAMPLES ? count : MOST_SAMPLES;
    char syncs[32] = "-";
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    bench_sort(r->latencies_us, samples);
    if (r->syncs > 0)
        (void)snprintf(syncs, sizeof(syncs), "%.0f", (double)r->syncs / r->seconds);
    (void)printf("%-6s %8u %10.0f %9s %8u %8u %8u %10.2f %8ld\n", r->name, clients,
                 (double)count / r->seconds, syncs, r->latencies_us[samples / 2],
                 r->latencies_us[samples - 1 - samples / 100],
                 r->latencies_us[samples - 1 - samples / 1000],
                 r->cpu_seconds * 1e6 / (double)count, u.ru_maxrss / 1024);
    (void)fflush(stdout);
}

static void run_level(struct bench *b, unsigned clients, int64_t ms)
{
    static const char *const names[KIND_COUNT] = {"store", "wait", "peer"};
    struct result results[KIND_COUNT];

    for (int k = 0; k < KIND_COUNT; k++)
        results[k] = (struct result){.name = names[k],
                                     .latencies_us = sf_calloc(MOST_SAMPLES, sizeof(uint32_t))};
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < KIND_COUNT; k++)
            run_kind(b, (enum kind)k, clients, ms, &results[k]);
    }
    for (int k = 0; k < KIND_COUNT; k++) {
        print_result(clients, &results[k]);
        free(results[k].latencies_us);
    }
}

static rocksdb_t *open_peer(const char *folder, rocksdb_options_t **out_options)
{
    char path[4096];
    char *error = NULL;

    (void)snprintf(path, sizeof(path), "%s/peer", folder);
    *out_options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(*out_options, 1);
    rocksdb_t *db = rocksdb_open(*out_options, path, &error);
    bench_must(error == NULL, "opening the peer");
    return db;
}

/* The command line. */
struct command {
    const char *folder; /* where the databases go */
    int64_t ms;         /* of one round */
};

static const struct argp_option option_table[] = {
    {"dir", 'd', "FOLDER", 0, "Where the databases go (default: a fresh folder under .)", 0},
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
    static const unsigned levels[] = {1, 8, 64, 512};
    const struct argp argp = {
        option_table, parse, NULL, "Group commit of the embedded store beside raw RocksDB.",
        NULL,         NULL,  NULL};
    char template[] = "./bench-store-XXXXXX";
    struct command c = {.ms = 1000};
    struct bench *b = sf_calloc(1, sizeof(*b));
    rocksdb_options_t *options = NULL;
    char path[4096];

    if (argp_parse(&argp, argc, argv, 0, NULL, &c) != 0)
        return 1;
    const char *folder = c.folder != NULL ? c.folder : mkdtemp(template);
    bench_must(folder != NULL, "making a folder");
    (void)snprintf(path, sizeof(path), "%s/store", folder);
    bench_must(sf_embedded_store_open(path, NULL, &b->store) == SF_OK, "opening the store");
    b->peer = open_peer(folder, &options);
    b->sync = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(b->sync, 1);
    (void)sem_init(&b->done, 0, 0);
    for (unsigned i = 0; i < MOST_CLIENTS; i++) {
        b->clients[i].bench = b;
        b->clients[i].id = i;
    }
    (void)printf("%u-byte records\n%-6s %8s %10s %9s %8s %8s %8s %10s %8s\n", BODY_BYTES, "",
                 "clients", "puts/s", "syncs/s", "p50 us", "p99 us", "p999 us", "cpu us/put",
                 "rss MiB");
    for (size_t i = 0; i < SF_ARRAY_LEN(levels); i++)
        run_level(b, levels[i], c.ms);
    sf_store_destroy(b->store);
    rocksdb_close(b->peer);
    rocksdb_options_destroy(options);
    rocksdb_writeoptions_destroy(b->sync);
    (void)sem_destroy(&b->done);
    free(b);
    if (c.folder == NULL)
        bench_remove_folder(folder);
    return 0;
}
