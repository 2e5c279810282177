/*
 * Two contending catalog owners over one store and one projection. Clients create one shared name
 * (all at once), update namespaces of their own, put schemas and report convergence, and read what
 * others wrote; each retries with the same key at either owner until it is answered.
 *
 * Checked (protocols.md section 5):
 *   1  a key answered once is answered the same bytes ever after, by whichever owner
 *   2  one outcome per command, one live lineage and one id per name
 *   3  every lineage has epoch 1: nothing was released here
 *   8  a rebuild from the store alone gives the same rows and the same answers
 *   9  no read goes back behind what was acknowledged before it began; no refusal from old facts
 *  11  everything is answered once the network is calm
 */
#include "fault/catalog/ccs_script.h"

#include <stdlib.h>

static void look_around(struct client *c)
{
    read_own(c, (unsigned)sf_rng_below(sim_rng(c->w->sim), CLIENTS));
    read_sync(c);
    read_admission(c);
    sf_arena_reset(c->arena);
}

static void pause_a_little(struct client *c)
{
    sim_sleep(c->process, (int64_t)sf_rng_below(sim_rng(c->w->sim), 400));
}

static void run_client(struct sim_process *process, void *arg)
{
    struct client *c = arg;
    c->process = process;
    c->arena = sf_arena_new((size_t)64 << 20);
    put_shared_namespace(c);
    put_own(c, 1);
    put_shared_collection(c);
    look_around(c);
    for (uint64_t i = 2; i < 2 + UPDATES; i++) {
        put_own(c, i);
        if (c->id == 0 && i < 4) {
            put_schema(c, i - 1, "");
            report(c, i - 1, SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SERVING_GENERATION_READY));
        }
        if (c->id == 0 && i == 4) {
            c->w->drift_sent = true;
            report(c, 2, SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, DRIFT_DETECTED));
            look_around(c);
            pause_a_little(c);
            report_once(c, 2, SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, REPAIR_SUCCEEDED));
        }
        look_around(c);
        pause_a_little(c);
        put_own(c, 1 + sf_rng_below(sim_rng(c->w->sim), i)); /* an old key again */
        look_around(c);
    }
    if (c->id == 1 && c->w->schema_acked >= 2)
        put_schema(c, 2, "-again");
    sf_arena_destroy(c->arena);
    c->w->clients_done++;
}

static bool all_done(struct sim *sim, void *ctx)
{
    const struct world *w = ctx;
    (void)sim;
    return w->clients_done == CLIENTS;
}

struct world *world_new(struct sim *sim, const struct sim_options *options)
{
    struct world *w = sf_calloc(1, sizeof(*w));
    struct sf_diag diag;
    sim_configure(sim, options);
    sf_log_set_fd(-1);
    w->sim = sim;
    w->arena = sf_arena_new((size_t)64 << 20);
    w->next_tso = TSO_START;
    enum sf_err err = sf_catalog_projection_open(NULL, NULL, &diag, &w->sql);
    SF_ASSERT(err == SF_OK);
    err = sf_catalog_projection_open(NULL, NULL, &diag, &w->rebuilt);
    SF_ASSERT(err == SF_OK);
    w->service = (struct sim_service){.start = ccs_start, .stop = ccs_stop, .ctx = w};
    sim_set_invariant(sim, elders_watch, w);
    return w;
}

void world_destroy(struct world *w)
{
    sim_stop_nodes(w->sim);
    sim_set_invariant(w->sim, NULL, NULL);
    elders_fini(w);
    for (size_t i = 0; i < w->key_count; i++)
        sf_buf_fini(&w->keys[i].bytes);
    sf_buf_fini(&w->answers);
    history_destroy(w->history);
    sf_sql_close(w->sql);
    sf_sql_close(w->rebuilt);
    sf_arena_destroy(w->arena);
    free(w);
}

static void run_with(struct sim *sim, const struct sim_options *options)
{
    struct world *w = world_new(sim, options);
    struct client clients[CLIENTS];
    w->nodes[0] = sim_node_new(sim, "a", &w->service);
    w->nodes[1] = sim_node_new(sim, "b", &w->service);
    struct sim_process *process = sim_process_new(sim, "clients");
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.w = w, .id = i};
        sim_spawn(process, run_client, &clients[i]);
    }
    sim_run_for(sim, 8000);
    sim_settle(sim);
    /* Each start deposes the other owner; leadership leaves one that serves. */
    sim_node_kill(w->nodes[0]);
    sim_run_until(sim, all_done, w, 300000, "every key is answered");
    check_end(w, process);
    world_destroy(w);
}

void lose_projection(struct world *w, const char *sql)
{
    struct sf_diag diag;
    sim_node_kill(w->nodes[0]);
    sim_node_kill(w->nodes[1]);
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    enum sf_err err = sf_sql_exec(conn, sql, &diag);
    SF_ASSERT(err == SF_OK);
    sf_sql_release(conn);
    sim_trace(w->sim, "projection lost: %s", sql);
}

/* The projection is lost, whole or in part, while owners come and go. */
static void run_lost(struct sim *sim)
{
    struct sim_options options = sim_default_options();
    struct client clients[CLIENTS];
    options.max_restart_ms = 300;
    struct world *w = world_new(sim, &options);
    w->nodes[0] = sim_node_new(sim, "a", &w->service);
    w->nodes[1] = sim_node_new(sim, "b", &w->service);
    struct sim_process *process = sim_process_new(sim, "clients");
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.w = w, .id = i};
        sim_spawn(process, run_client, &clients[i]);
    }
    sim_run_for(sim, 2500);
    lose_projection(w, "DELETE FROM catalog_lane_shards;");
    sim_run_for(sim, 2500);
    lose_projection(w, "DELETE FROM catalog_lane_shards; DELETE FROM namespaces;"
                       "DELETE FROM collections; DELETE FROM catalog_replay_index;"
                       "DELETE FROM schema_generations; DELETE FROM collection_statistics_heads;");
    sim_run_for(sim, 2500);
    sim_settle(sim);
    sim_node_kill(w->nodes[0]);
    sim_run_until(sim, all_done, w, 300000, "every key is answered");
    check_end(w, process);
    world_destroy(w);
}

static void run_ccs(struct sim *sim)
{
    struct sim_options options = sim_default_options();
    run_with(sim, &options);
}

/* Puts stay in doubt and land late, processes die and freeze all the time. */
struct sim_options ccs_doubt_options(void)
{
    struct sim_options options = sim_default_options();
    options.rates.lost_request = 150;
    options.rates.lost_answer = 120;
    options.rates.late = 250;
    options.rates.refused = 60;
    options.rates.slow = 120;
    options.slow_ms = 900;
    options.late_ms = 5000;
    options.timeout_ms = 60;
    options.chaos.interval_ms = 700;
    options.chaos.max_kills = 8;
    options.chaos.max_pauses = 8;
    options.max_restart_ms = 200;
    return options;
}

static void run_doubt(struct sim *sim)
{
    struct sim_options options = ccs_doubt_options();
    run_with(sim, &options);
}

int main(int argc, char **argv)
{
    static const char *const proves[] = {"CCS-1-02",   "CCS-3.3-06", "CCS-3.4-03", "CCS-4.3-01",
                                         "CCS-4.4-15", "CCS-4.4-16", "CCS-8-08",   NULL};
    static const char *const quota[] = {"CCS-3.1-07", "CCS-5.10-13", "CCS-5.10-14", NULL};
    static const char *const quota_lost[] = {"CCS-11-16", NULL};
    struct sim_scenario scenarios[48] = {
        {.name = "ccs", .area = "ccs", .run = run_ccs, .proves = proves},
        {.name = "ccs_doubt", .area = "ccs", .run = run_doubt},
        {.name = "ccs_lost", .area = "ccs", .run = run_lost},
        {.name = "ccs_quota", .area = "ccs", .run = ccs_quota_run, .proves = quota},
        {.name = "ccs_quota_lost", .area = "ccs", .run = ccs_quota_run_lost, .proves = quota_lost}};
    size_t count = 5;
    const struct {
        const struct sim_scenario *list;
        size_t count;
    } more[] = {{ccs_lineages, ccs_lineage_count},
                {ccs_scripts, ccs_script_count},
                {ccs_stale_scripts, ccs_stale_script_count},
                {ccs_loss_scripts, ccs_loss_script_count}};
    for (size_t i = 0; i < SF_ARRAY_LEN(more); i++) {
        SF_ASSERT(count + more[i].count <= SF_ARRAY_LEN(scenarios));
        memcpy(scenarios + count, more[i].list, more[i].count * sizeof(scenarios[0]));
        count += more[i].count;
    }
    enum sf_err err = sf_pbjson_register(
        sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size));
    SF_ASSERT(err == SF_OK);
    return sim_main(argc, argv, scenarios, count);
}
