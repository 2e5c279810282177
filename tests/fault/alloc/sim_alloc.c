/*
 * The allocator under the simulator.
 *
 * "alloc": two nodes contend for two collections while stores fail, processes die and pause. Three
 * clients send the same requests, each in its own order, to either node, until each has an answer,
 * and now and then ask again for what was answered, or with another payload. The catalog of each
 * process is a stand-in that answers at once, refuses now and then, and changes the schema token.
 *
 * "alloc_throttled": the same while replay-success objects cannot be written at times.
 *
 * "alloc_race": three nodes that pause for long, die, are stopped in good order and come back, and
 * six clients that ask for the same key at the same time, each at a node of its own first. The
 * second collection may be dropped on the way: what was answered for it is answered still.
 *
 * "alloc_lease", "alloc_lease_throttled" and "alloc_lease_race": the same with owners that lease
 * ranges of ids at the first request and prove their ownership again after 200 ms; most requests
 * are without explicit ids.
 *
 * "alloc_lease_late": one such owner that keeps its leases, and many writes that land late.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/pb.h"
#include "contract/descriptor_set.h"
#include "fault/alloc/sim_alloc_world.h"

#define MAX_CLIENTS 6

/* A task that asks. */
struct client {
    struct world *w; /* whose */
    unsigned id;     /* from 0 */
};

/* True when the client may stop asking. */
static bool is_final(enum sf_err err)
{
    return err == SF_OK || err == SF_VERSION_CONFLICT || err == SF_TOO_MANY_OPERATIONS;
}

/* An answer that counts; true when it is final. */
static bool take_answer(struct world *w, unsigned index, const struct model_sent *sent,
                        const struct world_answer *answer)
{
    const struct model_request *q = model_request(w->model, index);

    sim_trace(w->sim, "client: %s -> %s", q->key, sf_err_info(answer->err)->name);
    if (answer->err == SF_RESOURCE_NOT_FOUND && world_dropped(w, q->collection_id)) {
        model_dropped(w->model, index, w->drop_at_ms, sent->answered);
        return true;
    }
    if (sent->answered && answer->err != SF_OK && is_final(answer->err))
        sim_violation(w->sim, "%s was answered, and refused (%s) when asked again", q->key,
                      sf_err_info(answer->err)->name);
    if (is_final(answer->err)) {
        model_answered(w->model, index, sent, answer->err, sf_buf_view(&answer->packed));
        return true;
    }
    if (!sf_err_info(answer->err)->retry_same_key)
        sim_violation(w->sim, "%s answered %s", q->key, sf_err_info(answer->err)->name);
    return false;
}

/* Asks until there is an answer, node `first` first. */
static void send_request(struct sim_process *process, struct world *w, unsigned first,
                         unsigned index)
{
    unsigned node = first;

    for (;;) {
        struct world_answer answer;
        struct model_sent sent = model_sent(
            w->model, index, world_dropped(w, model_request(w->model, index)->collection_id));
        bool done = world_call(process, w, node, model_request(w->model, index), &answer) &&
                    take_answer(w, index, &sent, &answer);
        sf_buf_fini(&answer.packed);
        if (done)
            return;
        sim_sleep(process, 1 + (int64_t)sf_rng_below(sim_rng(w->sim), 150));
        node = (unsigned)sf_rng_below(sim_rng(w->sim), w->node_count);
    }
}

static unsigned any_node(const struct world *w)
{
    return (unsigned)sf_rng_below(sim_rng(w->sim), w->node_count);
}

/* Another payload under a key that has a success: it must never get ids, nor take the key away. */
static void send_other_payload(struct sim_process *process, struct world *w, unsigned index)
{
    struct model_request other = *model_request(w->model, index);
    struct world_answer answer;

    if (other.count == MODEL_ITEMS)
        other.count--;
    else
        other.items[other.count++] = MODEL_ISSUE;
    if (world_call(process, w, any_node(w), &other, &answer) && answer.err == SF_OK)
        sim_violation(w->sim, "%s gave its ids to another payload", other.key);
    sf_buf_fini(&answer.packed);
}

/* The order in which a client asks: mostly the given one, with some swaps. */
static void draw_order(struct sf_rng *rng, unsigned order[MODEL_REQUESTS])
{
    for (unsigned i = 0; i < MODEL_REQUESTS; i++)
        order[i] = i;
    for (unsigned i = 0; i + 1 < MODEL_REQUESTS; i++) {
        unsigned k = i + (unsigned)sf_rng_below(rng, i + 3 < MODEL_REQUESTS ? 3 : 1);
        unsigned t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
}

static void run_client(struct sim_process *process, void *arg)
{
    struct client *client = arg;
    struct world *w = client->w;
    struct sf_rng *rng = sim_rng(w->sim);
    unsigned order[MODEL_REQUESTS];

    draw_order(rng, order);
    for (unsigned i = 0; i < MODEL_REQUESTS; i++) {
        send_request(process, w, any_node(w), order[i]);
        if (sf_rng_below(rng, 3) == 0)
            send_request(process, w, any_node(w), order[sf_rng_below(rng, i + 1)]);
        if (model_succeeded(w->model, order[i]) && sf_rng_below(rng, 4) == 0)
            send_other_payload(process, w, order[i]);
    }
    w->clients_done++;
}

/* All clients ask for one key at once, each at a node of its own; then for the next. */
static void run_racer(struct sim_process *process, void *arg)
{
    struct client *client = arg;
    struct world *w = client->w;

    for (unsigned i = 0; i < MODEL_REQUESTS; i++) {
        while (w->arrived < i * w->clients)
            sim_sleep(process, 10);
        send_request(process, w, client->id % w->node_count, i);
        w->arrived++;
    }
    for (unsigned i = 0; i < MODEL_REQUESTS; i++) /* whatever became of the collection meanwhile */
        send_request(process, w, any_node(w), i);
    w->clients_done++;
}

static void check_step(struct sim *sim, void *ctx)
{
    struct world *w = ctx;

    (void)sim;
    model_check_step(w->model);
}

static void spawn_clients(struct world *w, struct client *clients, unsigned count,
                          void (*run)(struct sim_process *process, void *arg))
{
    struct sim_process *process = sim_process_new(w->sim, "clients");

    w->clients = count;
    for (unsigned i = 0; i < count; i++) {
        clients[i] = (struct client){.w = w, .id = i};
        sim_spawn(process, run, &clients[i]);
    }
}

/* Everything goes wrong for a while, then nothing; then all must be answered. */
static void run_to_the_end(struct world *w)
{
    sim_run_for(w->sim, 8000);
    sim_settle(w->sim);
    w->settled = true;
    sim_run_until(w->sim, world_all_done, w, 120000, "every key is answered");
    sim_run_for(w->sim, 4000); /* what is still on its way lands */
    model_check_end(w->model);
    sim_trace(w->sim, "%u results out of leases", model_leased(w->model));
    world_close(w);
}

/* Small ranges, all the time: owners lease unless an explicit id came just now. */
static const struct sf_alloc_lease_policy leases = {
    .on = true, .hot_per_s = 1, .min_ids = 3, .max_ids = 12, .quiet_ms = 30, .confirm_ms = 200};

static void run_clients(struct sim *sim, bool throttle, const struct sf_alloc_lease_policy *policy)
{
    struct world w;
    struct client clients[MAX_CLIENTS];

    world_open(&w, sim, policy);
    w.throttle = throttle;
    world_start_nodes(&w, 2);
    sim_set_invariant(sim, check_step, &w);
    spawn_clients(&w, clients, 3, run_client);
    run_to_the_end(&w);
}

static void run_alloc(struct sim *sim)
{
    run_clients(sim, false, NULL);
}

static void run_lease(struct sim *sim)
{
    run_clients(sim, false, &leases);
}

/* Applies start and cannot be finished for a while: what one could not finish, it must carry on. */
static void run_throttled_by(struct sim *sim, const struct sf_alloc_lease_policy *policy)
{
    struct sim_options options = sim_default_options();

    options.max_crashes = 10;
    options.chaos.interval_ms = 700;
    options.chaos.max_kills = 8;
    sim_configure(sim, &options);
    run_clients(sim, true, policy);
}

static void run_throttled(struct sim *sim)
{
    run_throttled_by(sim, NULL);
}

static void run_lease_throttled(struct sim *sim)
{
    run_throttled_by(sim, &leases);
}

static void run_lease_late(struct sim *sim)
{
    struct sim_options options = sim_default_options();
    struct client clients[MAX_CLIENTS];
    struct world w;

    options.rates.late = 650;
    options.rates.lost_request = 50;
    options.timeout_ms = 20;
    options.late_ms = 4000;
    options.max_crashes = 2;
    options.chaos.max_kills = 1;
    sim_configure(sim, &options);
    world_open(&w, sim, &leases);
    w.max_lanes = MODEL_COLLECTIONS;
    world_start_nodes(&w, 1);
    sim_set_invariant(sim, check_step, &w);
    spawn_clients(&w, clients, 3, run_client);
    run_to_the_end(&w);
}

/* Stops nodes in good order now and then. */
static void run_operator(struct sim_process *process, void *arg)
{
    struct world *w = arg;

    for (int i = 0; i < 4 && !w->settled; i++) {
        sim_sleep(process, 300 + (int64_t)sf_rng_below(sim_rng(w->sim), 2000));
        if (!w->settled)
            sim_node_stop(w->nodes[any_node(w)]);
    }
}

static void run_racers(struct sim *sim, const struct sf_alloc_lease_policy *policy)
{
    struct sim_options options = sim_default_options();
    struct client clients[MAX_CLIENTS];
    struct world w;

    options.max_crashes = 6;
    options.chaos = (struct sim_chaos){
        .interval_ms = 150, .max_kills = 5, .max_pauses = 40, .max_pause_ms = 2500};
    sim_configure(sim, &options);
    world_open(&w, sim, policy);
    if (sf_rng_below(sim_rng(sim), 2) == 0)
        w.drop_at_ms = 500 + (int64_t)sf_rng_below(sim_rng(sim), 6000);
    world_start_nodes(&w, 3);
    sim_set_invariant(sim, check_step, &w);
    spawn_clients(&w, clients, MAX_CLIENTS, run_racer);
    sim_spawn(sim_process_new(sim, "operator"), run_operator, &w);
    run_to_the_end(&w);
}

static void run_race(struct sim *sim)
{
    run_racers(sim, NULL);
}

static void run_lease_race(struct sim *sim)
{
    run_racers(sim, &leases);
}

int main(int argc, char **argv)
{
    static const char *const proves[] = {"ALLOC-2.1-03",
                                         "ALLOC-2.1-04",
                                         "ALLOC-2.3-02",
                                         "ALLOC-3.2-03",
                                         "ALLOC-5.3-01",
                                         "ALLOC-5.3-05",
                                         "ALLOC-7.1-05",
                                         "ALLOC-9-05",
                                         "ALLOC-9-09",
                                         "ALLOC-13.1-02",
                                         NULL};
    static const char *const lease_proves[] = {"ALLOC-5.3-01",
                                               "ALLOC-5.3-13",
                                               "ALLOC-5.3-14",
                                               "ALLOC-7.2-08",
                                               "ALLOC-7.2-09",
                                               "ALLOC-7.2-10",
                                               "ALLOC-7.4-08",
                                               "ALLOC-13.2-01",
                                               "ALLOC-13.2-02",
                                               "ALLOC-13.2-03",
                                               NULL};
    static const struct sim_scenario scenarios[] = {
        {.name = "alloc", .area = "alloc", .run = run_alloc, .proves = proves},
        {.name = "alloc_throttled", .area = "alloc", .run = run_throttled},
        {.name = "alloc_race", .area = "alloc", .run = run_race, .proves = proves},
        {.name = "alloc_lease", .area = "alloc", .run = run_lease, .proves = lease_proves},
        {.name = "alloc_lease_throttled", .area = "alloc", .run = run_lease_throttled},
        {.name = "alloc_lease_late", .area = "alloc", .run = run_lease_late},
        {.name = "alloc_lease_race",
         .area = "alloc",
         .run = run_lease_race,
         .proves = lease_proves},
        {.name = "alloc_owners", .area = "alloc", .run = run_alloc_owners}};

    sf_log_set_fd(-1);
    if (sf_pbjson_register(
            sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size)) != SF_OK)
        return 1;
    return sim_main(argc, argv, scenarios, SF_ARRAY_LEN(scenarios));
}
