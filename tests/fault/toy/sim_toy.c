/*
 * The simulator's own test and the example of its README: a counter behind two contending owners.
 * One object holds the value and the keys that were counted. `increment(key)` reads it, adds one
 * and swaps it; a key that is already in it was counted before. Clients retry with the same key
 * until they get an answer.
 *
 * Checked: the value never goes back; what was answered is in the object; no key counts twice.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"
#include "fault/sim/sim.h"
#include "object/durable.h"

#define COUNTER_KEY "toy/counter"
#define CLIENTS     3
#define INCREMENTS  4
#define TRIES       5

/* ---- the service: ordinary blocking code on a serial lane ---- */

struct toy {
    struct sf_store *store;
    struct sf_sched *sched;
    struct sf_attempts attempts;
    unsigned in_flight;         /* increments under way */
    struct sf_waiter *stopping; /* woken when the last one ends; NULL while serving */
};

struct counter {
    uint64_t value;
    char keys[CLIENTS * INCREMENTS * 16]; /* ",c1-1,c2-1," */
};

static void parse(struct sf_view body, struct counter *out)
{
    char text[512];
    char attempt[64];

    *out = (struct counter){.keys = ","};
    if (body.len == 0)
        return;
    SF_ASSERT(body.len < sizeof(text));
    memcpy(text, body.ptr, body.len);
    text[body.len] = '\0';
    int n = sscanf(text, "%63s %" SCNu64 " %191s", attempt, &out->value, out->keys);
    SF_ASSERT(n == 3);
}

static bool counted(const struct counter *c, const char *key)
{
    char with_commas[24];

    (void)snprintf(with_commas, sizeof(with_commas), ",%s,", key);
    return strstr(c->keys, with_commas) != NULL;
}

/* One try: SF_OK, SF_ERR_PRECONDITION or SF_ERR_AMBIGUOUS (look again), else give up. */
static enum sf_err try_increment(struct toy *toy, const char *key)
{
    struct sf_buf body = {0};
    struct sf_buf next = {0};
    struct sf_put put = {.key = sf_view_str(COUNTER_KEY)};
    char attempt[SF_ATTEMPT_ID_BYTES];
    struct counter c;

    enum sf_err err = sf_store_get_wait(toy->store, toy->sched, put.key, &body, &put.match);
    if (err != SF_OK && err != SF_ERR_NOT_FOUND)
        goto out;
    put.cond = err == SF_OK ? SF_PUT_MATCH : SF_PUT_ABSENT;
    if (SF_MUTANT(toy_no_condition))
        put.cond = SF_PUT_ANY;
    parse(sf_buf_view(&body), &c);
    err = SF_OK;
    if (counted(&c, key))
        goto out;
    sf_attempts_next(&toy->attempts, attempt);
    sf_buf_printf(&next, "%s %" PRIu64 " %s%s,", attempt, c.value + 1, c.keys, key);
    put.body = sf_buf_view(&next);
    err = sf_store_put_wait(toy->store, toy->sched, &put);
    if (SF_MUTANT(toy_ack_early) || (err == SF_ERR_AMBIGUOUS && SF_MUTANT(toy_unknown_is_lost)))
        err = SF_OK;
out:
    sf_buf_fini(&body);
    sf_buf_fini(&next);
    return err;
}

static enum sf_err increment(struct toy *toy, const char *key)
{
    enum sf_err err = SF_ERR_UNAVAILABLE;

    for (int i = 0; i < TRIES; i++) {
        err = try_increment(toy, key);
        if (err != SF_ERR_PRECONDITION && err != SF_ERR_AMBIGUOUS)
            break;
    }
    return err;
}

/* ---- the harness: start, stop, call ---- */

static void *toy_start(struct sim_process *process, void *ctx)
{
    struct toy *toy = sf_calloc(1, sizeof(*toy));

    (void)ctx;
    toy->store = sim_process_store(process);
    toy->sched = sim_process_sched(process);
    sf_attempts_init(&toy->attempts, sim_process_random(process));
    return toy;
}

static void toy_stop(struct sim_process *process, void *service, void *ctx)
{
    struct toy *toy = service;
    struct sf_waiter waiter;

    (void)ctx;
    sf_waiter_init(&waiter, sim_process_sched(process));
    toy->stopping = &waiter;
    if (toy->in_flight > 0)
        sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
    free(toy);
}

/* A call from a client's task to a lane of the service's process. */
struct call {
    struct sf_task task;
    struct toy *toy;
    const char *key;
    enum sf_err err;
    struct sf_waiter answered; /* of the client */
};

static void run_call(struct sf_task *task)
{
    struct call *call = SF_CONTAINER_OF(task, struct call, task);
    struct toy *toy = call->toy;

    call->err = increment(toy, call->key);
    sf_waiter_wake(&call->answered);
    if (--toy->in_flight == 0 && toy->stopping != NULL)
        sf_waiter_wake(toy->stopping);
}

static enum sf_err call_increment(struct sim_process *client, struct toy *toy, const char *key,
                                  uint64_t lane)
{
    struct call call = {.task = {.run = run_call}, .toy = toy, .key = key};

    if (toy->stopping != NULL)
        return SF_ERR_STOPPED;
    toy->in_flight++;
    sf_waiter_init(&call.answered, sim_process_sched(client));
    enum sf_err err = sf_sched_submit(toy->sched, lane, &call.task);
    SF_ASSERT(err == SF_OK);
    sf_waiter_wait(&call.answered);
    sf_waiter_fini(&call.answered);
    return call.err;
}

/* ---- the scenario ---- */

struct world {
    struct sim *sim;
    struct sim_node *nodes[2];
    char acked[CLIENTS * INCREMENTS][16]; /* keys that were answered */
    unsigned acked_count;
    unsigned clients_done;
    uint64_t last_value; /* of the object */
    uint64_t seen_puts;  /* applied when last_value was read */
};

struct client {
    struct world *w;
    unsigned id;
};

static void run_client(struct sim_process *process, void *arg)
{
    struct client *c = arg;
    struct world *w = c->w;

    for (unsigned i = 0; i < INCREMENTS; i++) {
        char key[16];
        bool answered = false;
        (void)snprintf(key, sizeof(key), "c%u-%u", c->id, i);
        while (!answered) {
            uint64_t life = 0;
            struct sim_node *node = w->nodes[sf_rng_below(sim_rng(w->sim), 2)];
            struct toy *toy = sim_node_service(node, &life);
            if (toy != NULL)
                answered = call_increment(process, toy, key, c->id) == SF_OK &&
                           sim_node_is_current(node, life);
            if (!answered)
                sim_sleep(process, 1 + (int64_t)sf_rng_below(sim_rng(w->sim), 200));
        }
        (void)snprintf(w->acked[w->acked_count++], sizeof(w->acked[0]), "%s", key);
        sim_trace(w->sim, "client: %s answered", key);
    }
    w->clients_done++;
}

static void read_counter(struct sim *sim, struct counter *out)
{
    struct sf_buf body = {0};

    enum sf_err err =
        sf_store_get_wait(sim_backend(sim), NULL, sf_view_str(COUNTER_KEY), &body, NULL);
    SF_ASSERT(err == SF_OK || err == SF_ERR_NOT_FOUND);
    parse(sf_buf_view(&body), out);
    sf_buf_fini(&body);
}

static void check_step(struct sim *sim, void *ctx)
{
    struct world *w = ctx;
    struct counter c;

    uint64_t puts = sf_fault_store_counts(sim_network(sim)).puts_applied;
    if (puts == w->seen_puts)
        return;
    w->seen_puts = puts;
    read_counter(sim, &c);
    SIM_CHECK(sim, c.value >= w->last_value);
    w->last_value = c.value;
}

static void check_end(struct world *w)
{
    struct counter c;
    uint64_t keys = 0;

    read_counter(w->sim, &c);
    for (unsigned i = 0; i < w->acked_count; i++) {
        if (!counted(&c, w->acked[i]))
            sim_violation(w->sim, "%s was answered and is not counted", w->acked[i]);
    }
    for (const char *p = c.keys + 1; *p != '\0'; p++)
        keys += *p == ',';
    SIM_CHECK(w->sim, c.value == keys);
    SIM_CHECK(w->sim, keys == CLIENTS * INCREMENTS);
}

static bool all_done(struct sim *sim, void *ctx)
{
    const struct world *w = ctx;

    (void)sim;
    return w->clients_done == CLIENTS;
}

static void run_toy(struct sim *sim)
{
    const struct sim_service service = {.start = toy_start, .stop = toy_stop};
    struct world w = {.sim = sim};
    struct client clients[CLIENTS];

    w.nodes[0] = sim_node_new(sim, "a", &service);
    w.nodes[1] = sim_node_new(sim, "b", &service);
    sim_set_invariant(sim, check_step, &w);
    struct sim_process *process = sim_process_new(sim, "clients");
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.w = &w, .id = i};
        sim_spawn(process, run_client, &clients[i]);
    }
    sim_run_for(sim, 8000);
    sim_settle(sim);
    sim_run_until(sim, all_done, &w, 60000, "every increment is answered");
    check_end(&w);
    sim_stop_nodes(sim);
    sim_set_invariant(sim, NULL, NULL);
}

int main(int argc, char **argv)
{
    static const struct sim_scenario scenarios[] = {{.name = "toy", .area = "toy", .run = run_toy}};

    return sim_main(argc, argv, scenarios, SF_ARRAY_LEN(scenarios));
}
