/*
 * Two whole nodes contend for one store while it fails and they die and pause. Clients create a
 * namespace, collections and schemas, report them ready, allocate ids and stream the documents
 * under every acknowledgement policy; each sends everything, under the same keys, to any node, and
 * asks again for what was answered. A node that lost its office ends and starts anew. At the end
 * leadership stays with one node, the projection is dropped and rebuilt, and nobody may see a
 * difference. What must hold is in all_model.h.
 */
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "contract/descriptor_set.h"
#include "fault/all/all_model.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

/* A public question and how it was answered. */
struct said {
    enum sf_err err;
    struct sf_buf packed;
};

struct world {
    struct all_cluster cluster;
    struct all_model *model;
    unsigned busy;            /* client tasks that have not ended */
    unsigned set_up;          /* clients that have all collections ready */
    bool over;                /* the supervisor ends */
    int64_t deposed_at_ms[2]; /* when a node was seen so; 0 = it is not */
    struct said before[ALL_READS * ALL_COLLECTIONS];
    bool rebuilt;
    bool evolves; /* a second schema generation comes */
};

struct client {
    struct world *w;
    unsigned id;
    unsigned node; /* where it got its last answer */
};

static uint64_t draw(struct world *w, uint64_t bound)
{
    return sf_rng_below(sim_rng(w->cluster.sim), bound);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Sends `index` once: mostly to the node that served its client last. */
static void send_once(struct client *client, struct sim_process *process, unsigned index)
{
    struct world *w = client->w;
    struct all_call *call = all_model_call(w->model, index);
    unsigned node = draw(w, 3) == 0 ? (unsigned)draw(w, ALL_NODES) : client->node;

    if (all_call_run(call, process, node, 200 + (int64_t)draw(w, 1200)) && call->err == SF_OK)
        client->node = node;
    else
        client->node = (client->node + 1) % ALL_NODES;
    all_call_release(call);
}

/* Sends `index` until it has its answer, or as often as its client likes to. */
static void pursue(struct client *client, struct sim_process *process, unsigned index)
{
    struct world *w = client->w;
    const struct all_op *op = all_model_op(w->model, index);

    for (unsigned tries = 0; op->most_tries == 0 || tries < op->most_tries; tries++) {
        if (all_model_can_send(w->model, index))
            send_once(client, process, index);
        else if (op->alloc > 0 && all_model_is_done(w->model, (unsigned)op->alloc))
            return; /* its ids were refused */
        if (all_model_is_done(w->model, index))
            return;
        sim_sleep(process, 1 + (int64_t)draw(w, 120));
    }
}

static void ask_something(struct world *w, struct sim_process *process)
{
    const struct all_facts *facts = all_model_facts(w->model);
    unsigned collection = (unsigned)draw(w, ALL_COLLECTIONS);
    enum all_read read = (enum all_read)draw(w, ALL_READS);

    if (facts->namespace_id == 0)
        read = ALL_READ_NAMESPACE_BY_NAME;
    else if (facts->collection_id[collection] == 0)
        read = ALL_READ_COLLECTION_BY_NAME;
    struct all_call *call = all_model_read(w->model, read, collection);
    (void)all_call_run(call, process, (unsigned)draw(w, ALL_NODES), 1000);
    all_call_release(call);
}

static void forge_something(struct client *client, struct sim_process *process)
{
    struct world *w = client->w;
    struct all_call *call = all_model_forgery(w->model, sim_rng(w->cluster.sim));

    if (call == NULL)
        return;
    (void)all_call_run(call, process, client->node, 1000);
    all_call_release(call);
}

/* Now and then: asks again for what was answered, reads, or sends what must be refused. */
static void repeat_something(struct client *client, struct sim_process *process, unsigned bound)
{
    struct world *w = client->w;
    unsigned index = (unsigned)draw(w, bound);

    if (draw(w, 3) == 0 && all_model_succeeded(w->model, index))
        send_once(client, process, index);
    if (draw(w, 4) == 0)
        ask_something(w, process);
    if (draw(w, 8) == 0)
        forge_something(client, process);
}

/* Allocations, the batches that realize them, INDEX batches, perhaps a second generation: mostly in
 * order. */
static unsigned draw_order(struct client *client, unsigned order[ALL_OPS])
{
    struct world *w = client->w;
    unsigned count = 0;

    for (unsigned i = 0; i < ALL_ALLOCS; i++) {
        order[count++] = ALL_FIRST_ALLOC + i;
        if (i < ALL_CREATES)
            order[count++] = ALL_FIRST_BATCH + i;
        if (i < ALL_INDEXES)
            order[count++] = ALL_FIRST_INDEX + i;
    }
    for (unsigned i = 0; i + 1 < count; i++) {
        unsigned k = i + (unsigned)draw(w, i + 4 < count ? 4 : 1);
        unsigned t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
    for (unsigned i = ALL_FIRST_NEXT; i < ALL_OPS && w->evolves; i += 2) {
        unsigned at = (unsigned)draw(w, count);
        memmove(&order[at + 2], &order[at], (count - at) * sizeof(order[0]));
        order[at] = i;
        order[at + 1] = i + 1;
        count += 2;
    }
    return count;
}

static void run_client(struct sim_process *process, void *arg)
{
    struct client *client = arg;
    struct world *w = client->w;
    unsigned order[ALL_OPS];

    pursue(client, process, all_namespace_op(client->id));
    for (unsigned c = 0; c < ALL_COLLECTIONS; c++) {
        for (int kind = ALL_COLLECTION; kind <= ALL_READY; kind++) {
            pursue(client, process, all_catalog_op((enum all_kind)kind, client->id, c));
            repeat_something(client, process, ALL_CATALOG_OPS);
        }
    }
    w->set_up++;
    while (w->set_up < ALL_CLIENTS) /* in a calm start the storm begins here */
        sim_sleep(process, 10);
    unsigned count = draw_order(client, order);
    for (unsigned pass = 0; pass < 2; pass++) { /* a batch may have come before its ids */
        for (unsigned i = 0; i < count; i++) {
            unsigned index = order[i];
            if (pass == 0 && !all_model_can_send(w->model, index))
                continue;
            if (pass == 0 || !all_model_is_done(w->model, index))
                pursue(client, process, index);
            repeat_something(client, process, ALL_OPS);
        }
    }
    w->busy--;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void on_served(void *ctx, const char *owner)
{
    struct world *w = ctx;

    all_model_served(w->model, owner);
}

static void end_node(struct world *w, unsigned i)
{
    if (draw(w, 2) == 0)
        sim_node_kill(w->cluster.nodes[i]);
    else
        sim_node_stop(w->cluster.nodes[i]);
}

/* A process that finds itself deposed ends; the next one claims everything. Once things settle only
 * the first node does: leadership leaves one. */
static void supervise(struct sim_process *process, void *arg)
{
    struct world *w = arg;

    while (!w->over) {
        for (unsigned i = 0; i < ALL_NODES; i++) {
            uint64_t life = 0;
            struct all_node *node = sim_node_service(w->cluster.nodes[i], &life);
            if (node == NULL || node->stopping || !all_node_is_deposed(node)) {
                w->deposed_at_ms[i] = 0;
                if (node != NULL && !w->cluster.settled && draw(w, 60) == 0)
                    sim_node_stop(w->cluster.nodes[i]); /* an operator restarts it */
                continue;
            }
            int64_t now = sim_now_ms(w->cluster.sim);
            if (w->deposed_at_ms[i] == 0)
                w->deposed_at_ms[i] = now + 50 + (int64_t)draw(w, 900);
            else if (now >= w->deposed_at_ms[i] && (i == 0 || !w->cluster.settled))
                end_node(w, i);
        }
        sim_sleep(process, 100);
    }
    w->busy--;
}

static void nodes_start(struct world *w)
{
    const struct sim_service service = {
        .start = all_node_start, .stop = all_node_stop, .ctx = &w->cluster};

    w->cluster.nodes[0] = sim_node_new(w->cluster.sim, "a", &service);
    w->cluster.nodes[1] = sim_node_new(w->cluster.sim, "b", &service);
}

/* ---- the projection is dropped ----------------------------------------------------------------
 */

/* Asks the one node that leads until it answers for good. */
static void ask(struct world *w, struct sim_process *process, unsigned q, struct said *out)
{
    for (;;) {
        struct all_call *call =
            all_model_read(w->model, (enum all_read)(q % ALL_READS), q / ALL_READS);
        bool answered = all_call_run(call, process, 0, 5000);
        bool final = answered && call->err != SF_BACKEND_UNAVAILABLE;
        if (final) {
            out->err = call->err;
            sf_buf_append(&out->packed, call->response.data, call->response.len);
        }
        all_call_release(call);
        if (final)
            return;
        sim_sleep(process, 50);
    }
}

/* Lagging descriptor fields are compared once their projectors ran: after a rebuild they are absent
 * until then. No publisher tells these catalogs of its heads, so the audit looks for them first. */
static void run_projectors(struct world *w, struct sim_process *process)
{
    static const char *const jobs[] = {"manifest-head-audit", "manifest-head", "collection-stats",
                                       "collection-index", "namespace-aggregate"};

    for (size_t i = 0; i < SF_ARRAY_LEN(jobs);) {
        Searchfabric__V1__RunCatalogJobRequest request =
            SEARCHFABRIC__V1__RUN_CATALOG_JOB_REQUEST__INIT;
        struct all_call *call = all_call_new(
            &w->cluster, ALL_CATALOG, "/searchfabric.v1.CatalogOperationsService/RunCatalogJob");
        request.name = (char *)(uintptr_t)jobs[i];
        call->request = &request.base;
        if (all_call_run(call, process, 0, 60000) && call->err == SF_OK)
            i++;
        else
            sim_sleep(process, 50);
        all_call_release(call);
    }
}

static void ask_everything(struct sim_process *process, void *arg)
{
    struct world *w = arg;

    run_projectors(w, process);
    for (unsigned q = 0; q < ALL_READS * ALL_COLLECTIONS; q++) {
        struct said now = {.err = SF_OK};
        ask(w, process, q, &now);
        if (!w->rebuilt) {
            w->before[q] = now;
            continue;
        }
        bool same = q % ALL_READS != ALL_READ_BINDING; /* the model holds against it what grew */
        if (same && (now.err != w->before[q].err ||
                     !sf_view_equal(sf_buf_view(&now.packed), sf_buf_view(&w->before[q].packed))))
            sim_violation(w->cluster.sim, "read %u of collection %u differs after a rebuild",
                          q % ALL_READS, q / ALL_READS);
        sf_buf_fini(&now.packed);
    }
    for (unsigned i = 0; i < ALL_OPS && w->rebuilt; i++) { /* every replay: the model compares */
        bool answered = !all_model_succeeded(w->model, i);
        while (!answered) {
            struct all_call *call = all_model_call(w->model, i);
            answered = all_call_run(call, process, 0, 5000) &&
                       (call->err == SF_OK || call->err == SF_VERSION_CONFLICT);
            all_call_release(call);
            if (!answered)
                sim_sleep(process, 50);
        }
    }
    w->busy--;
}

static void open_projection(struct world *w)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    if (sf_catalog_projection_open(NULL, NULL, &diag, &w->cluster.sql) != SF_OK)
        sim_violation(w->cluster.sim, "no projection: %s", diag.message);
}

/* Both nodes die with the projection; the next ones rebuild it, in a race. */
static void lose_projection(struct world *w)
{
    sim_trace(w->cluster.sim, "the projection is lost");
    for (unsigned i = 0; i < ALL_NODES; i++)
        sim_node_kill(w->cluster.nodes[i]);
    sf_sql_close(w->cluster.sql);
    open_projection(w);
}

/* ---- the run --------------------------------------------------------------------------------- */

static void check_step(struct sim *sim, void *ctx)
{
    struct world *w = ctx;

    (void)sim;
    all_model_check_step(w->model);
}

static bool nobody_busy(struct sim *sim, void *ctx)
{
    const struct world *w = ctx;

    (void)sim;
    return w->busy == (w->over ? 0 : 1);
}

static bool published(struct sim *sim, void *ctx)
{
    struct world *w = ctx;

    (void)sim;
    return all_model_is_published(w->model);
}

/* Runs `fn` as a client until it ends. */
static void run_task(struct world *w, struct sim_process *clients,
                     void (*fn)(struct sim_process *, void *), const char *what)
{
    w->busy++;
    sim_spawn(clients, fn, w);
    sim_run_until(w->cluster.sim, nobody_busy, w, 120000, what);
}

static bool all_set_up(struct sim *sim, void *ctx)
{
    const struct world *w = ctx;

    (void)sim;
    return w->set_up == ALL_CLIENTS;
}

static void run_to_the_end(struct world *w, struct sim_process *clients,
                           const struct sim_options *storm)
{
    struct sim *sim = w->cluster.sim;

    if (storm != NULL) {
        sim_run_until(sim, all_set_up, w, 60000, "every collection is ready");
        sim_storm(sim, storm);
    }
    int64_t loss_ms = (int64_t)draw(w, 3 * 9000);
    sim_run_for(sim, loss_ms < 9000 ? loss_ms : 9000);
    if (loss_ms < 9000) {
        lose_projection(w);
        sim_run_for(sim, 9000 - loss_ms);
    }
    sim_settle(sim);
    w->cluster.settled = true;
    sim_node_kill(w->cluster.nodes[0]); /* it comes back and takes the office */
    sim_run_until(sim, nobody_busy, w, 180000, "every key is answered");
    sim_run_until(sim, published, w, 60000, "everything that stands is visible");
    all_model_check_end(w->model);
    run_task(w, clients, ask_everything, "every question is answered");
    w->over = true;
    sim_run_until(sim, nobody_busy, w, 60000, "the supervisor ends");
    sim_stop_nodes(sim);
    sf_sql_close(w->cluster.sql);
    open_projection(w);
    nodes_start(w);
    w->rebuilt = true;
    run_task(w, clients, ask_everything, "every question is answered after a rebuild");
    all_model_check_end(w->model);
}

static void draw_rate(struct sf_rng *rng, uint16_t *rate)
{
    static const uint16_t times[] = {0, 1, 1, 3};

    *rate = (uint16_t)(*rate * times[sf_rng_below(rng, SF_ARRAY_LEN(times))]);
}

static int64_t draw_of(struct sf_rng *rng, int64_t a, int64_t b, int64_t c)
{
    uint64_t k = sf_rng_below(rng, 3);

    return k == 0 ? a : k == 1 ? b : c;
}

/* What goes wrong in this run: each kind of fault never, as usual, or thrice as often. */
static struct sim_options draw_storm(struct sf_rng *rng)
{
    struct sim_options o = sim_default_options();
    uint16_t *const rates[] = {&o.rates.refused, &o.rates.lost_request, &o.rates.lost_answer,
                               &o.rates.late,    &o.rates.duplicate,    &o.rates.conflict_409,
                               &o.rates.own_412, &o.rates.swap_500,     &o.rates.read_failed,
                               &o.rates.slow,    &o.sql.refused,        &o.sql.unknown};

    for (size_t i = 0; i < SF_ARRAY_LEN(rates); i++)
        draw_rate(rng, rates[i]);
    o.max_crashes = 5;
    o.chaos.max_kills = 3;
    o.chaos.interval_ms = draw_of(rng, 500, 1200, 2500);
    o.chaos.max_pause_ms = draw_of(rng, 300, 2000, 5000);
    o.timeout_ms = draw_of(rng, 50, 100, 700);
    o.slow_ms = draw_of(rng, 100, 400, 2000);
    o.late_ms = draw_of(rng, 300, 2000, 6000);
    o.workers = (unsigned)draw_of(rng, 2, 4, 8);
    if (sf_rng_below(rng, 2) == 0)
        o.max_skew_ms = 4 * 60 * 1000;
    return o;
}

static void run_all(struct sim *sim)
{
    struct sim_options options = draw_storm(sim_rng(sim));
    struct world *w = sf_calloc(1, sizeof(*w));
    struct client clients[ALL_CLIENTS];

    bool calm_start = sf_rng_below(sim_rng(sim), 3) != 0;
    struct sim_options calm = options;
    calm.rates = (struct sf_fault_rates){0};
    calm.sql = (struct sim_sql_rates){0};
    calm.chaos = (struct sim_chaos){0};
    sim_configure(sim, calm_start ? &calm : &options);
    w->cluster =
        (struct all_cluster){.sim = sim,
                             .keyring = sf_keyring_new_for_test(sim_seed(sim)),
                             .coordinator_shards = 1 + (uint32_t)sf_rng_below(sim_rng(sim), 2),
                             .served = on_served,
                             .served_ctx = w};
    w->evolves = sf_rng_below(sim_rng(sim), 2) == 0;
    open_projection(w);
    w->model = all_model_new(&w->cluster);
    nodes_start(w);
    sim_set_invariant(sim, check_step, w);
    struct sim_process *process = sim_process_new(sim, "clients");
    w->busy = 1 + ALL_CLIENTS;
    sim_spawn(process, supervise, w);
    for (unsigned i = 0; i < ALL_CLIENTS; i++) {
        clients[i] = (struct client){.w = w, .id = i};
        sim_spawn(process, run_client, &clients[i]);
    }
    run_to_the_end(w, process, calm_start ? &options : NULL);
    sim_stop_nodes(sim);
    sim_set_invariant(sim, NULL, NULL);
    for (size_t i = 0; i < SF_ARRAY_LEN(w->before); i++)
        sf_buf_fini(&w->before[i].packed);
    all_model_free(w->model);
    sf_sql_close(w->cluster.sql);
    sf_keyring_destroy(w->cluster.keyring);
    free(w);
}

int main(int argc, char **argv)
{
    static const char *const proves[] = {"CCS-1-02",     "CCS-3.3-07",
                                         "CCS-4.3-01",   "CCS-4.3-06",
                                         "ALLOC-2.1-03", "ALLOC-2.1-04",
                                         "ALLOC-5.1-05", "ALLOC-5.1-06",
                                         "ALLOC-5.2-04", "ALLOC-5.3-05",
                                         "COORD-3-15",   "COORD-4.3-11",
                                         "COORD-7.2-06", NULL};
    static const struct sim_scenario scenarios[] = {
        {.name = "all", .area = "all", .run = run_all, .proves = proves}};

    sf_log_set_fd(-1);
    enum sf_err err = sf_pbjson_register(
        sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size));
    SF_ASSERT(err == SF_OK);
    return sim_main(argc, argv, scenarios, SF_ARRAY_LEN(scenarios));
}
