/*
 * "alloc_retention": results age. Clients get an answer under each key, the window passes, and then
 * rounds of retention run on both nodes while stores fail, deletes land late, processes die and
 * pause, and the clients send the old keys again and again. A key answers as of old, or, once its
 * result is gone, is new; from its new answer on it gives that one and no other: no delete that was
 * under way reaches it, and nobody remembers the old one. In the end, two hours of peace later,
 * every result that may go is gone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "contract/descriptor_set.h"
#include "fault/alloc/sim_alloc_world.h"

#define CLIENTS   2
#define KEYS      6
#define SENDS     20
#define ROUNDS    12
#define WINDOW_MS INT64_C(36000000) /* ten hours: remembered answers go an hour earlier */
#define PEACE_MS  INT64_C(7200000)  /* above the hour that a delete in doubt is left alone */

/* What was answered under one key. */
struct key_history {
    struct sf_buf old; /* before the window passed */
    struct sf_buf now; /* first other answer after it; empty = none yet */
};

/* The scenario. */
struct retention {
    struct world w;
    struct key_history keys[CLIENTS][KEYS];
    bool aged; /* the window passed */
};

struct client {
    struct retention *r;
    struct sim_process *process;
    unsigned id;
};

static void request_fill(const struct client *c, unsigned k, struct model_request *q)
{
    *q = (struct model_request){.collection_id = 11 + k % 2, .items = {MODEL_ISSUE}, .count = 1};
    (void)snprintf(q->key, sizeof(q->key), "c%u-k%u", c->id, k);
}

/* Takes a success into the history of its key. */
static void take_answer(struct client *c, unsigned k, const struct sf_buf *packed)
{
    struct retention *r = c->r;
    struct key_history *h = &r->keys[c->id][k];
    struct sf_view got = sf_buf_view(packed);

    if (!r->aged && h->old.len == 0) {
        sf_buf_append(&h->old, packed->data, packed->len);
        return;
    }
    if (h->now.len != 0) {
        if (!sf_view_equal(got, sf_buf_view(&h->now)))
            sim_violation(r->w.sim, "c%u-k%u gave another answer after its new one", c->id, k);
        return;
    }
    if (sf_view_equal(got, sf_buf_view(&h->old)))
        return;
    if (!r->aged)
        sim_violation(r->w.sim, "c%u-k%u gave two answers within the window", c->id, k);
    sf_buf_append(&h->now, packed->data, packed->len);
}

/* Sends a key once; true when it was answered. */
static bool send_once(struct client *c, unsigned k)
{
    struct model_request q;
    struct world_answer answer;

    request_fill(c, k, &q);
    if (!world_call(c->process, &c->r->w, (unsigned)sf_rng_below(sim_rng(c->r->w.sim), 2), &q,
                    &answer))
        return false;
    bool ok = answer.err == SF_OK;
    if (ok)
        take_answer(c, k, &answer.packed);
    sf_buf_fini(&answer.packed);
    return ok;
}

static void run_first(struct sim_process *process, void *arg)
{
    struct client *c = arg;

    c->process = process;
    for (unsigned k = 0; k < KEYS; k++)
        while (!send_once(c, k))
            sim_sleep(process, 50);
    c->r->w.clients_done++;
}

static void run_wait(struct sim_process *process, void *arg)
{
    struct client *c = arg;

    sim_sleep(process, WINDOW_MS + 1000);
    c->r->w.clients_done++;
}

/* Old keys, in any order, while rounds run. */
static void run_again(struct sim_process *process, void *arg)
{
    struct client *c = arg;
    struct sf_rng *rng = sim_rng(c->r->w.sim);

    c->process = process;
    for (unsigned i = 0; i < SENDS; i++) {
        (void)send_once(c, (unsigned)sf_rng_below(rng, KEYS));
        sim_sleep(process, (int64_t)sf_rng_below(rng, 400));
    }
    c->r->w.clients_done++;
}

static void run_keeper(struct sim_process *process, void *arg)
{
    struct client *c = arg;
    struct sf_rng *rng = sim_rng(c->r->w.sim);

    for (unsigned i = 0; i < ROUNDS; i++) {
        world_retain(process, &c->r->w, (unsigned)sf_rng_below(rng, 2));
        sim_sleep(process, (int64_t)sf_rng_below(rng, 500));
    }
    c->r->w.clients_done++;
}

/* Peace: what is in doubt may be deleted again. */
static void run_peace(struct sim_process *process, void *arg)
{
    struct client *c = arg;

    for (unsigned i = 0; i < 2; i++) { /* what the first list names waits for the second round */
        sim_sleep(process, PEACE_MS + 60000 * (int64_t)c->id);
        world_retain(process, &c->r->w, c->id);
    }
    c->r->w.clients_done++;
}

/* Every key once more. */
static void run_last(struct sim_process *process, void *arg)
{
    struct client *c = arg;

    c->process = process;
    for (unsigned k = 0; k < KEYS; k++)
        while (!send_once(c, k))
            sim_sleep(process, 50);
    c->r->w.clients_done++;
}

/* Runs a task for each client, and keepers when asked to, until all are done. */
static void phase(struct retention *r, struct client *clients, struct sim_process *process,
                  void (*run)(struct sim_process *process, void *arg), bool keepers,
                  const char *what)
{
    r->w.clients_done = 0;
    r->w.clients = keepers ? 2 * CLIENTS : CLIENTS;
    for (unsigned i = 0; i < CLIENTS; i++) {
        sim_spawn(process, run, &clients[i]);
        if (keepers)
            sim_spawn(process, run_keeper, &clients[i]);
    }
    sim_run_until(r->w.sim, world_all_done, &r->w, 2 * WINDOW_MS, what);
}

/* A result goes once it is old, but for what its collection needs. */
static void check_end(struct retention *r)
{
    unsigned reused = 0;

    for (unsigned i = 0; i < CLIENTS; i++)
        for (unsigned k = 0; k < KEYS; k++)
            reused += r->keys[i][k].now.len != 0 ? 1 : 0;
    /* of two collections at most one old result each carries the watermark */
    if (reused + 2 < CLIENTS * KEYS)
        sim_violation(r->w.sim, "%u of %u old results are gone", reused, CLIENTS * KEYS);
}

static void run_retention(struct sim *sim)
{
    struct retention r = {.aged = false};
    struct client clients[CLIENTS];
    struct sim_options calm = sim_default_options();
    struct sim_options storm = sim_default_options();

    calm.rates = (struct sf_fault_rates){0};
    calm.max_crashes = 0;
    calm.chaos = (struct sim_chaos){0};
    sim_configure(sim, &calm);
    world_open(&r.w, sim, NULL);
    r.w.settled = true;
    r.w.retention_ms = WINDOW_MS;
    world_start_nodes(&r.w, 2);
    for (unsigned i = 0; i < CLIENTS; i++)
        clients[i] = (struct client){.r = &r, .id = i};
    struct sim_process *process = sim_process_new(sim, "clients");
    phase(&r, clients, process, run_first, false, "every key has an answer");
    phase(&r, clients, process, run_wait, false, "the window passes");
    r.aged = true;
    storm.chaos.interval_ms = 700;
    storm.chaos.max_kills = 6;
    storm.chaos.max_pauses = 4;
    storm.rates.late = 200;
    sim_storm(sim, &storm);
    phase(&r, clients, process, run_again, true, "the old keys are sent again");
    sim_settle(sim);
    phase(&r, clients, process, run_peace, false, "what is old is gone");
    phase(&r, clients, process, run_last, false, "every key is answered at last");
    check_end(&r);
    for (unsigned i = 0; i < CLIENTS; i++)
        for (unsigned k = 0; k < KEYS; k++) {
            sf_buf_fini(&r.keys[i][k].old);
            sf_buf_fini(&r.keys[i][k].now);
        }
    world_close(&r.w);
}

int main(int argc, char **argv)
{
    static const char *const proves[] = {"ALLOC-10.3-03", NULL};
    static const struct sim_scenario scenarios[] = {{.name = "alloc_retention",
                                                     .area = "alloc_retention",
                                                     .run = run_retention,
                                                     .proves = proves}};

    sf_log_set_fd(-1);
    if (sf_pbjson_register(
            sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size)) != SF_OK)
        return 1;
    return sim_main(argc, argv, scenarios, SF_ARRAY_LEN(scenarios));
}
