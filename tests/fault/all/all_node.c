/*
 * Start and stop follow the daemon's order; a start that fails undoes what stands by the same
 * function that stops a running node. The stop of a dead process differs in one thing: it does not
 * wait for what can no longer be published.
 */
#include "fault/all/all_node.h"

#include <stdlib.h>

#include "base/mem.h"
#include "rpc/channel.h"

#define EDGE_LOOP       2
#define CATALOG_SHARDS  2
#define INGEST_DRAIN_MS 500
#define COMMIT_DRAIN_MS 2000

static const char identity_name[] = "loopback";

struct sf_loop *all_node_edge(struct all_node *node)
{
    return sim_process_loop(node->process, EDGE_LOOP);
}

static enum sf_err start_store(struct all_node *node, struct sf_diag *diag)
{
    struct sf_store_identity_options options = {
        .store = sim_process_store(node->process),
        .sched = sim_process_sched(node->process),
        .clock = sim_process_clock(node->process),
        .attempts = &node->attempts,
        .catalog_lane_shard_count = CATALOG_SHARDS,
        .coordinator_shard_count = node->cluster->coordinator_shards,
    };
    uint64_t random = sim_process_random(node->process);

    memcpy(options.random, &random, sizeof(random));
    return sf_store_identity_open(&options, diag, &node->identity);
}

static enum sf_err start_tso(struct all_node *node, struct sf_diag *diag)
{
    const struct sf_oracle_options options = {.store = sim_process_store(node->process),
                                              .loop = sim_process_loop(node->process, 0),
                                              .clock = sim_process_clock(node->process),
                                              .attempts = &node->attempts,
                                              .window_ms = 500};

    return sf_oracle_open(&options, sim_process_sched(node->process), diag, &node->tso);
}

static enum sf_err start_catalog(struct all_node *node, struct sf_diag *diag)
{
    const struct sf_service *services[SF_CATALOG_SERVICE_COUNT];

    node->sql = sf_sql_share(node->cluster->sql, sim_process_sql_faults(node->process));
    const struct sf_catalog_deps deps = {
        .store = sim_process_store(node->process),
        .sched = sim_process_sched(node->process),
        .loop = sim_process_loop(node->process, 0),
        .clock = sim_process_clock(node->process),
        .tso = node->tso,
        .sql = node->sql,
        .keyring = node->cluster->keyring,
        .attempts = &node->attempts,
        .metrics = node->metrics,
        .owner_id = sim_process_name(node->process),
        .lane_shards = node->identity.catalog_lane_shard_count,
    };
    enum sf_err err =
        sf_catalog_open(&deps, sim_process_sched(node->process), diag, &node->catalog);
    if (err != SF_OK)
        return err;
    sf_catalog_services(node->catalog, services);
    node->catalog_channel = sf_inproc_channel_new(services, SF_CATALOG_SERVICE_COUNT, identity_name,
                                                  sim_process_clock(node->process));
    return SF_OK;
}

static enum sf_err start_allocator(struct all_node *node, struct sf_diag *diag)
{
    struct sf_loop *loops[] = {sim_process_loop(node->process, 0),
                               sim_process_loop(node->process, 1)};
    const struct sf_allocator_deps deps = {
        .store = sim_process_store(node->process),
        .loops = loops,
        .loop_count = SF_ARRAY_LEN(loops),
        .clock = sim_process_clock(node->process),
        .applied_clock = sf_oracle_clock(node->tso),
        .catalog = node->catalog_channel,
        .keyring = node->cluster->keyring,
        .attempts = &node->attempts,
        .random_seed = sim_process_random(node->process) + 1,
        .metrics = node->metrics,
        .limits = {.max_lanes_per_loop = 1, .cache_bytes_per_loop = 2048},
        .leases = {.on = true, .hot_per_s = 2, .min_ids = 4, .max_ids = 16, .quiet_ms = 500},
    };

    (void)diag;
    node->allocator = sf_allocator_new(&deps);
    const struct sf_service *service = sf_allocator_service(node->allocator);
    node->allocator_channel =
        sf_inproc_channel_new(&service, 1, identity_name, sim_process_clock(node->process));
    return SF_OK;
}

static enum sf_err start_commit(struct all_node *node, struct sf_diag *diag)
{
    struct sf_loop *loops[] = {sim_process_loop(node->process, 0),
                               sim_process_loop(node->process, 1)};
    const struct sf_commit_deps deps = {
        .store = sim_process_store(node->process),
        .loops = loops,
        .loop_count = SF_ARRAY_LEN(loops),
        .clock = sim_process_clock(node->process),
        .tso = node->tso,
        .attempts = &node->attempts,
        .metrics = node->metrics,
        .owner_id = sim_process_name(node->process),
        .random_seed = sim_process_random(node->process) + 2,
        .shard_count = node->identity.coordinator_shard_count,
        .wal_chunk_bytes = 800,
        .lane_idle_ms = 800,
        .manifest_base_interval = 3,
        .manifest_list_entries = 3,
    };
    enum sf_err err = sf_commit_open(&deps, sim_process_sched(node->process), diag, &node->commit);

    if (err != SF_OK)
        return err;
    const struct sf_service *service = sf_commit_service(node->commit);
    node->commit_channel =
        sf_inproc_channel_new(&service, 1, identity_name, sim_process_clock(node->process));
    return SF_OK;
}

static enum sf_err start_ingest(struct all_node *node, struct sf_diag *diag)
{
    struct sf_loop *loops[] = {sim_process_loop(node->process, 0),
                               sim_process_loop(node->process, 1)};
    const struct sf_ingest_deps deps = {
        .loops = loops,
        .loop_count = SF_ARRAY_LEN(loops),
        .clock = sim_process_clock(node->process),
        .catalog = node->catalog_channel,
        .coordinator = node->commit_channel,
        .tso = node->tso,
        .keyring = node->cluster->keyring,
        .metrics = node->metrics,
    };

    (void)diag;
    node->ingest = sf_ingest_new(&deps);
    const struct sf_service *service = sf_ingest_service(node->ingest);
    node->ingest_channel =
        sf_inproc_channel_new(&service, 1, identity_name, sim_process_clock(node->process));
    return SF_OK;
}

/* The epochs under which it serves from now on; elder owners must change nothing any more. */
static void note_served(struct all_node *node)
{
    struct all_cluster *cluster = node->cluster;
    struct sf_catalog_stats catalog;

    if (sim_process_is_dead(node->process))
        return;
    sf_catalog_stats(node->catalog, &catalog);
    if (catalog.owner_epoch > cluster->served_catalog_epoch)
        cluster->served_catalog_epoch = catalog.owner_epoch;
    cluster->served(cluster->served_ctx, sim_process_name(node->process));
}

void *all_node_start(struct sim_process *process, void *ctx)
{
    static enum sf_err (*const steps[])(struct all_node *, struct sf_diag *) = {
        start_store, start_tso, start_catalog, start_allocator, start_commit, start_ingest};
    struct all_cluster *cluster = ctx;
    struct sf_diag diag;
    enum sf_err err = SF_OK;

    if (cluster->settled && sim_process_name(process)[0] != 'a')
        return NULL;
    struct all_node *node = sf_calloc(1, sizeof(*node));
    node->cluster = cluster;
    node->process = process;
    sf_attempts_init(&node->attempts, sim_process_random(process));
    node->metrics = sf_metrics_new();
    sf_diag_init(&diag);
    for (size_t i = 0; err == SF_OK && i < SF_ARRAY_LEN(steps); i++)
        err = steps[i](node, &diag);
    if (err == SF_OK) {
        note_served(node);
        return node;
    }
    sim_trace(cluster->sim, "%s: start: %s: %s", sim_process_name(process), sf_err_info(err)->name,
              diag.message);
    if ((err == SF_ERR_CORRUPT || err == SF_ERR_CONFIG) && !sim_process_is_dead(process))
        sim_violation(cluster->sim, "%s cannot start: %s", sim_process_name(process), diag.message);
    all_node_stop(process, node, ctx);
    return NULL;
}

static void on_drained(void *user)
{
    sf_waiter_wake(user);
}

static void stop_services(struct all_node *node)
{
    struct sf_sched *sched = sim_process_sched(node->process);
    struct sf_waiter waiter;

    if (node->ingest != NULL)
        sf_ingest_stop(node->ingest, sched, INGEST_DRAIN_MS);
    if (node->allocator != NULL) {
        sf_waiter_init(&waiter, sched);
        sf_allocator_drain(node->allocator, on_drained, &waiter);
        sf_waiter_wait(&waiter);
        sf_waiter_fini(&waiter);
    }
    if (node->commit != NULL) {
        if (!sim_process_is_dead(node->process) &&
            sf_commit_drain(node->commit, sched, COMMIT_DRAIN_MS) != SF_OK)
            sim_trace(node->cluster->sim, "%s: not drained", sim_process_name(node->process));
        sf_commit_close(node->commit, sched);
    }
    if (node->catalog != NULL)
        sf_catalog_close(node->catalog, sched);
}

void all_node_call_ended(struct all_node *node)
{
    if (--node->in_flight == 0 && node->idle != NULL)
        sf_waiter_wake(node->idle);
}

struct turn {
    struct sf_task task;
    struct sf_waiter waiter;
};

static void on_turn(struct sf_task *task)
{
    sf_waiter_wake(&SF_CONTAINER_OF(task, struct turn, task)->waiter);
}

/* Waits until the loop has run what was posted to it before. */
static void let_loop_turn(struct sim_process *process, unsigned index)
{
    struct turn turn = {.task.run = on_turn};

    sf_waiter_init(&turn.waiter, sim_process_sched(process));
    sf_loop_post(sim_process_loop(process, index), &turn.task);
    sf_waiter_wait(&turn.waiter);
    sf_waiter_fini(&turn.waiter);
}

void all_node_stop(struct sim_process *process, void *service, void *ctx)
{
    struct all_node *node = service;
    struct sf_waiter waiter;

    (void)ctx;
    node->stopping = true;
    stop_services(node);
    sf_waiter_init(&waiter, sim_process_sched(process));
    node->idle = &waiter;
    if (node->in_flight > 0)
        sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
    let_loop_turn(process, 0); /* the gateway has heard that its calls ended */
    let_loop_turn(process, 1);
    sf_channel_destroy(node->ingest_channel);
    sf_channel_destroy(node->commit_channel);
    sf_channel_destroy(node->allocator_channel);
    sf_channel_destroy(node->catalog_channel);
    sf_ingest_destroy(node->ingest);
    sf_allocator_destroy(node->allocator);
    sf_tso_source_destroy(node->tso);
    sf_sql_close(node->sql);
    sf_metrics_destroy(node->metrics);
    free(node);
}

bool all_node_is_deposed(struct all_node *node)
{
    struct sf_catalog_stats catalog;
    struct sf_commit_stats commit;

    if (!sf_oracle_is_serving(node->tso))
        return true;
    sf_catalog_stats(node->catalog, &catalog);
    sf_commit_stats_get(node->commit, &commit);
    return catalog.deposed || commit.shards_leading < commit.shards;
}
