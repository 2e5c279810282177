/*
 * AllocateIds over gRPC, durably: the server in a process of its own, whose CPU time is the figure;
 * the clients here, on the same cores. Peers that realize an id and keep a replay row for it run
 * in between (--peers, tools/bench-ids): PostgreSQL's sequence and insert, Redis' INCR and SET with
 * a sync for every turn, etcd's put.
 *
 *   issue     single `issue` plans of one collection, 64 and 1,024 in flight
 *   spread    the same, round robin over 10,000 collections
 *   plans     plans of 1,000 items: issue, explicit, mixed
 *   replays   known keys: from memory, from the store
 *   far       a store that answers puts and reads after 20 ms
 *   lanes     collections touched once: memory of a lane, and with a bound
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc_load.h"
#include "alloc_node.h"
#include "base/mem.h"
#include "bench_common.h"
#include "exec/reactor.h"

#define CONNECTIONS  8u
#define RECORD_BYTES 1400u /* of a one-item replay-success object: what the peers store */
#define COLLECTIONS  10000u
#define FAR_MS       20u
#define LEAST_LANES  1024u

/* The command line. */
struct command {
    const char *folder; /* where the stores go */
    const char *peers;  /* tools/bench-ids, NULL = no peers */
    const char *only;   /* the part to run, NULL = all */
    int64_t ms;         /* of one run */
    size_t lanes;       /* collections touched once */
    bool brief;         /* checks only that everything runs */
};

struct bench {
    struct command command;
    struct sf_reactors *reactors; /* the clients' */
    struct sf_loop *loop;
    char path[512];  /* of the present store */
    unsigned stores; /* made so far */
    uint64_t run;    /* numbers the runs, so that keys are new */
};

static bool wanted(const struct bench *b, const char *part)
{
    return b->command.only == NULL || strcmp(b->command.only, part) == 0;
}

static void node_start(struct bench *b, struct bench_alloc_options options,
                       struct bench_alloc_node *out_node)
{
    (void)snprintf(b->path, sizeof(b->path), "%s/%u", b->command.folder, b->stores++);
    options.folder = b->path;
    if (options.reactors == 0)
        options.reactors = 1;
    bench_alloc_start(&options, out_node);
}

static void node_stop(struct bench *b, struct bench_alloc_node *node)
{
    bench_alloc_stop(node);
    bench_remove_folder(b->path);
}

static void print_head(void)
{
    (void)printf("%-28s %9s %10s %8s %8s %8s %8s %9s %9s %7s\n", "", "in flight", "calls/s",
                 "p50 us", "p99 us", "p999 us", "cpu us", "calls/syn", "calls/grp", "leased");
}

/* Runs a load against a node and prints its line; the calls a second. */
static double run(struct bench *b, const struct bench_alloc_node *node, const char *name,
                  struct bench_alloc_load load, struct bench_flow_result *out_result)
{
    struct bench_alloc_report before, after;

    load.port = node->port;
    load.connections = load.in_flight < CONNECTIONS ? 1 : CONNECTIONS;
    load.ms = b->command.ms;
    if (load.run == 0)
        load.run = ++b->run;
    bench_alloc_ask(node, &before);
    double cpu = bench_cpu_us(node->pid);
    bench_alloc_load_run(b->loop, &load, out_result);
    cpu = bench_cpu_us(node->pid) - cpu;
    bench_alloc_ask(node, &after);
    double calls = (double)out_result->calls;
    double syncs = (double)(after.syncs - before.syncs);
    double groups = (double)(after.allocator.groups - before.allocator.groups);
    (void)printf("%-28s %9u %10.0f %8u %8u %8u %8.2f %9.1f %9.1f %6.0f%%\n", name, load.in_flight,
                 calls / out_result->seconds, out_result->p50, out_result->p99, out_result->p999_us,
                 cpu / calls, syncs > 0 ? calls / syncs : 0, groups > 0 ? calls / groups : 0,
                 100 * (double)(after.allocator.lease_local - before.allocator.lease_local) /
                     calls);
    (void)fflush(stdout);
    return calls / out_result->seconds;
}

/* ---- peers ---- */

static void print_peer(const char *name, unsigned in_flight, const struct bench_flow_result *r,
                       double cpu_us, double ours)
{
    double rate = (double)r->calls / r->seconds;

    (void)printf("%-28s %9u %10.0f %8u %8u %8u %8.2f   ours / peer %.2f\n", name, in_flight, rate,
                 r->p50, r->p99, r->p999_us, cpu_us, rate > 0 ? ours / rate : 0);
    (void)fflush(stdout);
}

/* A server of tools/bench-ids. */
struct peer {
    pid_t script;
    int hold; /* it serves until this is closed */
    unsigned port;
    int pid; /* of the server */
};

/* False when there is none; says why. */
static bool peer_start(const struct bench *b, const char *kind, struct peer *out_peer)
{
    int in[2], out[2];
    char line[256] = "";

    bench_must(pipe(in) == 0 && pipe(out) == 0, "making pipes");
    (void)fflush(NULL);
    pid_t pid = fork();
    bench_must(pid >= 0, "fork");
    if (pid == 0) {
        (void)dup2(in[0], STDIN_FILENO);
        (void)dup2(out[1], STDOUT_FILENO);
        (void)close(in[1]);
        (void)close(out[0]);
        (void)execl(b->command.peers, b->command.peers, kind, (char *)NULL);
        _exit(127);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    *out_peer = (struct peer){.script = pid, .hold = in[1]};
    for (size_t at = 0; at + 1 < sizeof(line) && read(out[0], &line[at], 1) == 1; at++)
        if (line[at] == '\n')
            break;
    (void)close(out[0]);
    if (sscanf(line, "%u %d", &out_peer->port, &out_peer->pid) == 2)
        return true;
    (void)printf("%-28s %s", kind, line[0] == '\0' ? "none\n" : line);
    (void)close(out_peer->hold);
    (void)waitpid(pid, NULL, 0);
    return false;
}

static void peer_stop(struct peer *peer)
{
    (void)close(peer->hold);
    (void)waitpid(peer->script, NULL, 0);
}

static void run_redis(struct bench *b, unsigned in_flight, double ours)
{
    struct bench_flow_result r;
    struct peer peer;

    if (b->command.peers == NULL || !peer_start(b, "redis", &peer))
        return;
    double cpu = bench_cpu_us(peer.pid);
    bench_redis_load_run((uint16_t)peer.port, CONNECTIONS, in_flight, b->command.ms, RECORD_BYTES,
                         &r);
    print_peer("redis incr+set", in_flight, &r, (bench_cpu_us(peer.pid) - cpu) / (double)r.calls,
               ours);
    peer_stop(&peer);
}

static void run_etcd(struct bench *b, unsigned in_flight, double ours)
{
    struct bench_flow_result r;
    struct peer peer;

    if (b->command.peers == NULL || !peer_start(b, "etcd", &peer))
        return;
    double cpu = bench_cpu_us(peer.pid);
    bench_etcd_load_run(b->loop, (uint16_t)peer.port, CONNECTIONS, in_flight, b->command.ms,
                        RECORD_BYTES, &r);
    print_peer("etcd put", in_flight, &r, (bench_cpu_us(peer.pid) - cpu) / (double)r.calls, ours);
    peer_stop(&peer);
}

static void run_postgres(struct bench *b, unsigned in_flight, double ours)
{
    char command[1024];
    char line[256];
    unsigned clients;
    double tps;
    struct bench_flow_result r = {0};

    if (b->command.peers == NULL)
        return;
    (void)snprintf(command, sizeof(command), "'%s' postgres %lld %u %u", b->command.peers,
                   (long long)(b->command.ms + 999) / 1000, RECORD_BYTES, in_flight);
    FILE *out = popen(command, "r");
    bench_must(out != NULL && fgets(line, sizeof(line), out) != NULL, "asking PostgreSQL");
    (void)pclose(out);
    if (sscanf(line, "%u %lf %u %u %u", &clients, &tps, &r.p50, &r.p99, &r.p999_us) != 5) {
        (void)printf("%-28s %s", "postgres", line);
        return;
    }
    r.calls = (size_t)tps;
    r.seconds = 1;
    print_peer("postgres nextval+insert", clients, &r, 0, ours);
}

/* ---- the parts ---- */

static void part_issue(struct bench *b)
{
    static const unsigned levels[] = {64, 1024};

    for (size_t i = 0; i < SF_ARRAY_LEN(levels); i++) {
        struct bench_alloc_load load = {.in_flight = levels[i], .items = 1};
        struct bench_flow_result r;
        struct bench_alloc_node node;
        node_start(b, (struct bench_alloc_options){0}, &node);
        double ours = run(b, &node, "issue, one collection", load, &r);
        if (wanted(b, "spread")) {
            load.spread = BENCH_ROUND;
            load.collections = COLLECTIONS;
            double spread = run(b, &node, "issue, 10,000 collections", load, &r);
            (void)printf("%-28s %9u   one / many %.2f\n", "", levels[i], ours / spread);
        }
        node_stop(b, &node);
        run_redis(b, levels[i], ours);
        run_etcd(b, levels[i], ours);
        run_postgres(b, levels[i], ours);
    }
}

static void part_plans(struct bench *b)
{
    static const char *const names[] = {"plans of 1,000, issue", "plans of 1,000, explicit",
                                        "plans of 1,000, mixed"};
    struct bench_alloc_node node;
    struct bench_flow_result r;

    node_start(b, (struct bench_alloc_options){0}, &node);
    for (int plan = BENCH_ISSUE; plan <= BENCH_MIXED; plan++) {
        struct bench_alloc_load load = {.in_flight = 64,
                                        .items = 1000,
                                        .plan = (enum bench_plan)plan,
                                        .spread = plan == BENCH_ISSUE ? BENCH_ONE : BENCH_OWN};
        double cpu = bench_cpu_us(node.pid);
        double rate = run(b, &node, names[plan], load, &r);
        cpu = bench_cpu_us(node.pid) - cpu;
        (void)printf("%-28s %9s %10.0f ids/s, %.0f ns of server CPU an id\n", "", "", rate * 1000,
                     cpu / (double)r.calls);
    }
    node_stop(b, &node);
}

static void part_replays(struct bench *b)
{
    static const char *const names[] = {"replays from memory", "replays from the store"};
    static const size_t caches[] = {0, 1};
    size_t keys = b->command.brief ? 100 : 10000;

    for (size_t i = 0; i < SF_ARRAY_LEN(caches); i++) {
        struct bench_alloc_load load = {
            .in_flight = 64, .items = 1, .keys = keys, .most_calls = keys, .run = ++b->run};
        struct bench_alloc_node node;
        struct bench_flow_result r;
        node_start(b, (struct bench_alloc_options){.cache_bytes = caches[i]}, &node);
        load.port = node.port;
        load.connections = CONNECTIONS;
        load.ms = INT32_MAX;
        bench_alloc_load_run(b->loop, &load, &r);
        load.most_calls = 0;
        (void)run(b, &node, names[i], load, &r);
        node_stop(b, &node);
    }
}

static void part_far(struct bench *b)
{
    struct bench_alloc_options options = {.put_delay_ms = FAR_MS, .get_delay_ms = FAR_MS};
    struct bench_alloc_load issue = {.in_flight = 64, .items = 1};
    struct bench_alloc_load warm = {.in_flight = 8, .items = 1, .most_calls = 400};
    struct bench_alloc_load named = {
        .in_flight = 8, .items = 1, .plan = BENCH_EXPLICIT, .spread = BENCH_OWN};
    struct bench_alloc_node node;
    struct bench_flow_result r;

    node_start(b, options, &node);
    (void)run(b, &node, "20 ms away, until hot", warm, &r);
    (void)run(b, &node, "20 ms away, leased", issue, &r);
    (void)run(b, &node, "20 ms away, explicit", named, &r);
    node_stop(b, &node);
    options.no_leases = true;
    node_start(b, options, &node);
    (void)run(b, &node, "20 ms away, without leases", issue, &r);
    node_stop(b, &node);
}

/* Touches all collections once with so many lanes in memory; the node's resident memory, and the
 * lanes in it. */
static long touch(struct bench *b, const char *name, size_t lanes, uint64_t *out_lanes)
{
    struct bench_alloc_load load = {.in_flight = 256,
                                    .items = 1,
                                    .spread = BENCH_ROUND,
                                    .collections = b->command.lanes,
                                    .most_calls = b->command.lanes};
    struct bench_alloc_options options = {.cache_bytes = 1, .lanes = lanes};
    struct bench_alloc_report report;
    struct bench_alloc_node node;
    struct bench_flow_result r;
    int64_t ms = b->command.ms;

    node_start(b, options, &node);
    b->command.ms = INT32_MAX;
    (void)run(b, &node, name, load, &r);
    b->command.ms = ms;
    bench_alloc_ask(&node, &report);
    long kib = bench_rss_kib(node.pid);
    (void)printf("%-28s resident %ld KiB; %llu lanes in memory, %llu evicted\n", "", kib,
                 (unsigned long long)report.allocator.lanes,
                 (unsigned long long)report.allocator.lanes_evicted);
    *out_lanes = report.allocator.lanes;
    node_stop(b, &node);
    return kib;
}

/* The rest of the node's memory is the same in both runs. */
static void part_lanes(struct bench *b)
{
    uint64_t few = 0, many = 0;
    long kib = -touch(b, "touched once, few lanes", LEAST_LANES, &few);

    kib += touch(b, "touched once, many lanes", b->command.lanes, &many);
    if (many > few)
        (void)printf("%-28s %.0f bytes a lane in memory\n", "",
                     1024.0 * (double)kib / (double)(many - few));
}

/* ---- the program ---- */

static const struct argp_option option_table[] = {
    {"dir", 'd', "FOLDER", 0, "Where the stores go (default: a fresh folder under .)", 0},
    {"ms", 't', "N", 0, "Milliseconds of one run (default 3000)", 0},
    {"peers", 'p', "SCRIPT", 0, "tools/bench-ids", 0},
    {"only", 'o', "PART", 0, "issue, spread (with issue), plans, replays, far or lanes", 0},
    {"lanes", 'l', "N", 0, "Collections touched once (default 200000)", 0},
    {"short", 's', NULL, 0, "Runs of 100 ms, to see that all works", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct command *c = state->input;

    switch (key) {
    case 'd':
        c->folder = arg;
        break;
    case 'p':
        c->peers = arg;
        break;
    case 'o':
        c->only = arg;
        break;
    case 's':
        c->brief = true;
        c->ms = 100;
        c->lanes = 2000;
        break;
    case 't':
    case 'l':
        if (strtoll(arg, NULL, 10) < 1)
            argp_error(state, "a positive number is expected");
        if (key == 't')
            c->ms = strtoll(arg, NULL, 10);
        else
            c->lanes = strtoull(arg, NULL, 10);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct argp argp = {
        option_table, parse, NULL, "AllocateIds over gRPC beside what others do.",
        NULL,         NULL,  NULL};
    static const struct {
        const char *name;
        void (*run)(struct bench *b);
    } parts[] = {{"issue", part_issue},
                 {"plans", part_plans},
                 {"replays", part_replays},
                 {"far", part_far},
                 {"lanes", part_lanes}};
    char template[] = "./bench-allocate-XXXXXX";
    struct bench b = {.command = {.ms = 3000, .lanes = 200000}};

    if (argc > 1 && strcmp(argv[1], "serve") == 0)
        return bench_alloc_main(argv);
    if (argp_parse(&argp, argc, argv, 0, NULL, &b.command) != 0)
        return 1;
    bool own = b.command.folder == NULL;
    if (own)
        b.command.folder = mkdtemp(template);
    else
        (void)mkdir(b.command.folder, 0700);
    bench_must(b.command.folder != NULL, "making a folder");
    bench_must(sf_reactors_start(1, sf_clock_system(), NULL, &b.reactors) == SF_OK,
               "starting reactors");
    b.loop = sf_reactors_loop(b.reactors, 0);
    print_head();
    for (size_t i = 0; i < SF_ARRAY_LEN(parts); i++)
        if (wanted(&b, parts[i].name) || (i == 0 && wanted(&b, "spread")))
            parts[i].run(&b);
    sf_reactors_stop(b.reactors);
    if (own)
        bench_remove_folder(b.command.folder);
    return 0;
}
