/*
 * Two contending oracles over the faulty store, with skewed clocks, kills and pauses. Checked: no
 * timestamp is given out twice, over both oracles and all their lives; what an oracle gives out
 * lies above all that had been given out when it opened (monotonic over restarts and clock steps);
 * within one life they ascend; once the faults end, every client gets its timestamps.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "contract/descriptor_set.h"
#include "fault/sim/sim.h"
#include "tso/tso.h"

#define CLIENTS 3
#define ASKS    60

/* A range that was given out, ordered by its start. */
struct range {
    uint64_t first;
    uint64_t end; /* exclusive */
};

struct world {
    struct sim *sim;
    struct sim_node *nodes[2];
    struct range ranges[CLIENTS * ASKS * 4]; /* given out, sorted */
    size_t range_count;
    uint64_t highest; /* exclusive end of all given out */
    unsigned clients_done;
};

/* One life of an oracle. */
struct life {
    struct world *w;
    struct sf_attempts attempts;
    struct sf_tso_source *oracle;
    struct sf_tso_source *batcher;
    struct sf_sched *sched;
    uint64_t floor;   /* highest of the world when it opened */
    unsigned callers; /* calls under way */
    struct sf_waiter *stopping;
};

static void *start(struct sim_process *process, void *ctx)
{
    struct life *life = sf_calloc(1, sizeof(*life));

    life->w = ctx;
    life->floor = life->w->highest; /* all below a window that stands already */
    life->sched = sim_process_sched(process);
    sf_attempts_init(&life->attempts, sim_process_random(process));
    const struct sf_oracle_options options = {.store = sim_process_store(process),
                                              .loop = sim_process_loop(process, 0),
                                              .clock = sim_process_clock(process),
                                              .attempts = &life->attempts,
                                              .window_ms = 300};
    if (sf_oracle_open(&options, life->sched, NULL, &life->oracle) != SF_OK) {
        free(life);
        return NULL;
    }
    life->batcher = sf_tso_batcher_new(life->oracle, sim_process_loop(process, 1));
    return life;
}

static void stop(struct sim_process *process, void *service, void *ctx)
{
    struct life *life = service;
    struct sf_waiter waiter;

    (void)ctx;
    sf_waiter_init(&waiter, sim_process_sched(process));
    life->stopping = &waiter;
    if (life->callers > 0)
        sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
    sf_tso_source_destroy(life->batcher);
    sf_tso_source_destroy(life->oracle);
    free(life);
}

/* A client's request, run where the oracle lives. */
struct call {
    struct sf_tso_request request;
    struct sf_waiter answered;
};

static void call_done(struct sf_tso_request *request)
{
    sf_waiter_wake(&SF_CONTAINER_OF(request, struct call, request)->answered);
}

static void given_out(struct world *w, uint64_t first, uint64_t count)
{
    size_t at = w->range_count;

    SF_ASSERT(w->range_count < SF_ARRAY_LEN(w->ranges));
    while (at > 0 && w->ranges[at - 1].first > first)
        at--;
    if ((at > 0 && w->ranges[at - 1].end > first) ||
        (at < w->range_count && w->ranges[at].first < first + count))
        sim_violation(w->sim, "timestamp %llu was given out twice", (unsigned long long)first);
    memmove(&w->ranges[at + 1], &w->ranges[at], (w->range_count - at) * sizeof(w->ranges[0]));
    w->ranges[at] = (struct range){first, first + count};
    w->range_count++;
    if (first + count > w->highest)
        w->highest = first + count;
}

static bool ask(struct world *w, struct sim_process *client)
{
    uint64_t number = 0;
    struct sim_node *node = w->nodes[sf_rng_below(sim_rng(w->sim), 2)];
    struct life *life = sim_node_service(node, &number);
    uint32_t count = 1 + (uint32_t)sf_rng_below(sim_rng(w->sim), 3) * 20000;

    if (life == NULL || life->stopping != NULL)
        return false;
    struct call call = {.request = {.count = count, .done = call_done}};
    life->callers++;
    sf_waiter_init(&call.answered, sim_process_sched(client));
    sf_tso_get(sf_rng_below(sim_rng(w->sim), 2) == 0 ? life->batcher : life->oracle, &call.request);
    sf_waiter_wait(&call.answered);
    sf_waiter_fini(&call.answered);
    bool counts = call.request.err == SF_OK && sim_node_is_current(node, number);
    if (counts) {
        SIM_CHECK(w->sim, call.request.first.v >= life->floor);
        given_out(w, call.request.first.v, count);
    }
    if (--life->callers == 0 && life->stopping != NULL)
        sf_waiter_wake(life->stopping);
    return counts;
}

static void run_client(struct sim_process *process, void *arg)
{
    struct world *w = arg;

    for (unsigned i = 0; i < ASKS; i++) {
        while (!ask(w, process))
            sim_sleep(process, 1 + (int64_t)sf_rng_below(sim_rng(w->sim), 100));
        sim_sleep(process, (int64_t)sf_rng_below(sim_rng(w->sim), 120));
    }
    w->clients_done++;
}

static bool all_done(struct sim *sim, void *ctx)
{
    const struct world *w = ctx;

    (void)sim;
    return w->clients_done == CLIENTS;
}

static void run_tso(struct sim *sim)
{
    struct world *w = sf_calloc(1, sizeof(*w));
    const struct sim_service service = {.start = start, .stop = stop, .ctx = w};
    struct sim_options options = sim_default_options();

    options.max_skew_ms = 5000;
    sim_configure(sim, &options);
    w->sim = sim;
    w->nodes[0] = sim_node_new(sim, "a", &service);
    w->nodes[1] = sim_node_new(sim, "b", &service);
    struct sim_process *process = sim_process_new(sim, "clients");
    for (unsigned i = 0; i < CLIENTS; i++)
        sim_spawn(process, run_client, w);
    sim_run_for(sim, 8000);
    sim_settle(sim);
    /* Two oracles on one window stop each other in turn; leadership leaves one. */
    sim_node_kill(w->nodes[0]);
    sim_run_until(sim, all_done, w, 300000, "every client gets its timestamps");
    sim_stop_nodes(sim);
    free(w);
}

int main(int argc, char **argv)
{
    static const struct sim_scenario scenarios[] = {{.name = "tso", .area = "tso", .run = run_tso}};

    enum sf_err err = sf_pbjson_register(
        sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size));
    SF_ASSERT(err == SF_OK);
    return sim_main(argc, argv, scenarios, SF_ARRAY_LEN(scenarios));
}
