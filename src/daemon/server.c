/*
 * Model: the order of parts. Each start step makes one part from those before it; a failed step
 * undoes the ones that stand, by the same function that stops a running server. Roles reach each
 * other through channels only, here the in-process binding.
 *
 *   data folder - admin - loops, pool - ports open - store (probed) - identity - key ring - oracle
 * - projection - catalog - allocator - coordinator - ingest - [demo namespace] - ports serve
 *
 * Until the ports serve, callers are told that the server recovers (edges.c). The stop runs
 * backwards, edges first: what was admitted is answered before what answers it goes.
 */
#include "daemon/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pbjson.h"
#include "base/rng.h"
#include "contract/descriptor_set.h"
#include "daemon/server_priv.h"
#include "object/metered_store.h"
#include "searchfabric/v1/search_fabric.pb-c.h"

#define INGEST_DRAIN_MS 5000
#define COMMIT_DRAIN_MS 5000
#define POOL_QUEUE      65536
#define REPLY_ARENA     ((size_t)1 << 20)

static uint64_t random_u64(void)
{
    uint64_t value;

    sf_random_bytes(&value, sizeof(value));
    return value;
}

/* ---- start steps ----------------------------------------------------------------------------- */

static enum sf_err start_base(struct sf_server *server, struct sf_diag *diag)
{
    enum sf_err err = sf_datadir_open(server->config->data_dir, diag, &server->dir);

    if (err != SF_OK)
        return err;
    sf_attempts_init(&server->attempts, random_u64());
    (void)snprintf(server->owner_id, sizeof(server->owner_id), "pid-%ld-%s", (long)getpid(),
                   server->attempts.process);
    SF_LOG(INFO, "server_starting", SF_KV_STR("version", SF_VERSION),
           SF_KV_STR("owner_id", server->owner_id),
           SF_KV_STR("data_dir", server->config->data_dir));
    err = sf_pbjson_register(
        sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size));
    if (err != SF_OK)
        return sf_diag_set(diag, err, "the contract's descriptors do not register");
    server->metrics = sf_metrics_new();
    return sf_admin_start(server, diag);
}

static enum sf_err start_exec(struct sf_server *server, struct sf_diag *diag)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned count = server->config->reactors;

    if (count == 0)
        count = cores > 0 ? (unsigned)cores : 1;
    enum sf_err err = sf_reactors_start(count, server->clock, diag, &server->reactors);
    if (err != SF_OK)
        return err;
    server->loop_count = count;
    server->loops = sf_calloc(count, sizeof(*server->loops));
    for (unsigned i = 0; i < count; i++)
        server->loops[i] = sf_reactors_loop(server->reactors, i);
    sf_heartbeats_start(server);
    const struct sf_pool_options pool = {.workers = server->config->workers,
                                         .max_queued_tasks = POOL_QUEUE};
    server->pool = sf_pool_new(&pool, server->clock);
    sf_worker_set(server, SF_WORKER_REACTORS, SF_WORKER_SERVING);
    return SF_OK;
}

static enum sf_err start_store(struct sf_server *server, struct sf_diag *diag)
{
    char path[SF_DATADIR_PATH_BYTES];

    sf_datadir_path(server->dir, "store", path, sizeof(path));
    enum sf_err err = sf_embedded_store_open(path, diag, &server->store);

    if (err != SF_OK)
        return err;
    server->embedded = server->store;
    server->store = sf_metered_store_new(server->store, server->metrics, server->clock);
    err = sf_store_probe(server->store, NULL, diag);
    if (err != SF_OK)
        return err;
    struct sf_store_identity_options options = {
        .store = server->store,
        .clock = server->clock,
        .attempts = &server->attempts,
        .catalog_lane_shard_count = server->config->lane_shards,
        .coordinator_shard_count = server->config->coordinator_shards,
    };
    sf_random_bytes(options.random, sizeof(options.random));
    err = sf_store_identity_open(&options, diag, &server->identity);
    if (err != SF_OK)
        return err;
    sf_worker_set(server, SF_WORKER_STORE, SF_WORKER_SERVING);
    SF_LOG(INFO, "store_open", SF_KV_STR("store_id", server->identity.store_id),
           SF_KV_U64("catalog_lane_shards", server->identity.catalog_lane_shard_count),
           SF_KV_U64("coordinator_shards", server->identity.coordinator_shard_count));
    return SF_OK;
}

static enum sf_err start_keyring(struct sf_server *server, struct sf_diag *diag)
{
    char path[SF_DATADIR_PATH_BYTES];

    if (server->config->keyring_path != NULL)
        return sf_keyring_load(server->config->keyring_path, diag, &server->keyring);
    sf_datadir_path(server->dir, "keyring.yaml", path, sizeof(path));
    return sf_keyring_open_or_create(path, diag, &server->keyring);
}

static enum sf_err start_tso(struct sf_server *server, struct sf_diag *diag)
{
    const struct sf_oracle_options options = {.store = server->store,
                                              .loop = server->loops[0],
                                              .clock = server->clock,
                                              .attempts = &server->attempts,
                                              .accept_clock_jump =
                                                  server->options.accept_clock_jump};
    enum sf_err err = sf_oracle_open(&options, NULL, diag, &server->tso);

    if (err == SF_OK)
        sf_worker_set(server, SF_WORKER_TSO, SF_WORKER_SERVING);
    return err;
}

/* A channel to the catalog under the name of the part that calls (catalog_callers.c has the names).
 */
static struct sf_channel *catalog_as(struct sf_server *server, const char *identity)
{
    const struct sf_service *services[SF_CATALOG_SERVICE_COUNT];

    sf_catalog_services(server->catalog, services);
    return sf_inproc_channel_new(services, SF_CATALOG_SERVICE_COUNT, identity, server->clock);
}

static enum sf_err start_catalog(struct sf_server *server, struct sf_diag *diag)
{
    char path[SF_DATADIR_PATH_BYTES];

    sf_datadir_path(server->dir, "projection.sqlite", path, sizeof(path));
    const struct sf_sql_options where =
        sf_catalog_projection_where(&server->config->projection, path);
    enum sf_err err = sf_policy_new(server->config, diag, &server->policy);
    if (err == SF_OK)
        err = sf_catalog_projection_open_at(&where, diag, &server->sql);
    if (err != SF_OK)
        return err;
    const struct sf_catalog_deps deps = {
        .store = server->store,
        .sched = server->pool,
        .loop = server->loops[0],
        .clock = server->clock,
        .tso = server->tso,
        .sql = server->sql,
        .keyring = server->keyring,
        .attempts = &server->attempts,
        .metrics = server->metrics,
        .owner_id = server->owner_id,
        .lane_shards = server->identity.catalog_lane_shard_count,
        .collection_gc_delay_ms = server->config->collection_gc_delay_ms,
        .cache_bytes = (size_t)server->config->catalog_cache_mib << 20,
        .namespace_gc_delay_ms = server->config->namespace_gc_delay_ms,
        .checkpoint_commands = server->config->checkpoint_commands,
        .checkpoint_interval_ms = server->config->checkpoint_interval_ms,
        .replay_retention_ms = server->config->replay_retention_ms,
        .policy = server->policy,
        .run_jobs = true,
    };
    err = sf_catalog_open(&deps, NULL, diag, &server->catalog);
    if (err != SF_OK)
        return err;
    server->catalog_channel = catalog_as(server, SF_SERVER_IDENTITY);
    server->catalog_allocator = catalog_as(server, "searchfabric:allocator");
    server->catalog_ingest = catalog_as(server, "searchfabric:ingest-gateway");
    server->catalog_es = catalog_as(server, "searchfabric:es-gateway");
    sf_worker_set(server, SF_WORKER_CCS, SF_WORKER_SERVING);
    return SF_OK;
}

static enum sf_err start_allocator(struct sf_server *server, struct sf_diag *diag)
{
    char path[SF_DATADIR_PATH_BYTES];

    sf_datadir_path(server->dir, "allocator-export.sqlite", path, sizeof(path));
    const struct sf_sql_options export_where =
        sf_catalog_projection_where(&server->config->alloc_export_to, path);
    const struct sf_allocator_deps deps = {
        .store = server->store,
        .loops = server->loops,
        .loop_count = server->loop_count,
        .clock = server->clock,
        .applied_clock = sf_oracle_clock(server->tso),
        .catalog = server->catalog_allocator,
        .keyring = server->keyring,
        .attempts = &server->attempts,
        .random_seed = random_u64(),
        .metrics = server->metrics,
        .sched = server->pool,
        .artifacts = {.failure_audit = server->config->alloc_failure_audit,
                      .recovery_segments = server->config->alloc_recovery_segments,
                      .export_where = server->config->alloc_export ? &export_where : NULL},
        .leases = {.on = server->config->alloc_leases,
                   .hot_per_s = server->config->alloc_lease_hot_per_s,
                   .min_ids = server->config->alloc_lease_min_ids,
                   .max_ids = server->config->alloc_lease_max_ids},
        .replay_retention_ms = server->config->alloc_retention_ms,
        .run_retention = true,
    };

    (void)diag;
    server->allocator = sf_allocator_new(&deps);
    const struct sf_service *service = sf_allocator_service(server->allocator);
    server->allocator_channel =
        sf_inproc_channel_new(&service, 1, SF_SERVER_IDENTITY, server->clock);
    sf_worker_set(server, SF_WORKER_ALLOCATOR, SF_WORKER_SERVING);
    return SF_OK;
}

/* The way of committed heads to the catalog, as the manifest publisher. */
static void start_head_notices(struct sf_server *server)
{
    server->publisher_channel = catalog_as(server, "searchfabric:publisher");
    server->head_notices =
        sf_head_notices_new(&(struct sf_head_notices_options){.catalog = server->publisher_channel,
                                                              .loop = server->loops[0],
                                                              .random_seed = random_u64()});
}

static enum sf_err start_commit(struct sf_server *server, struct sf_diag *diag)
{
    start_head_notices(server);
    const struct sf_commit_deps deps = {
        .store = server->store,
        .loops = server->loops,
        .loop_count = server->loop_count,
        .clock = server->clock,
        .tso = server->tso,
        .attempts = &server->attempts,
        .metrics = server->metrics,
        .owner_id = server->owner_id,
        .head_notices = server->head_notices,
        .random_seed = random_u64(),
        .shard_count = server->identity.coordinator_shard_count,
        .wal_flush_ms = server->config->wal_flush_ms,
        .wal_chunk_bytes = server->config->wal_chunk_bytes,
        .duplicate_window_ms = server->config->duplicate_window_ms,
    };
    enum sf_err err = sf_commit_open(&deps, NULL, diag, &server->commit);

    if (err != SF_OK)
        return err;
    const struct sf_service *service = sf_commit_service(server->commit);
    server->commit_channel = sf_inproc_channel_new(&service, 1, SF_SERVER_IDENTITY, server->clock);
    sf_worker_set(server, SF_WORKER_COORDINATOR, SF_WORKER_SERVING);
    return SF_OK;
}

static enum sf_err start_ingest(struct sf_server *server, struct sf_diag *diag)
{
    const struct sf_ingest_deps deps = {
        .loops = server->loops,
        .loop_count = server->loop_count,
        .clock = server->clock,
        .catalog = server->catalog_ingest,
        .coordinator = server->commit_channel,
        .tso = server->tso,
        .keyring = server->keyring,
        .metrics = server->metrics,
        .duplicate_window_ms = server->config->duplicate_window_ms,
    };

    (void)diag;
    server->ingest = sf_ingest_new(&deps);
    const struct sf_service *service = sf_ingest_service(server->ingest);
    server->ingest_channel = sf_inproc_channel_new(&service, 1, SF_SERVER_IDENTITY, server->clock);
    sf_worker_set(server, SF_WORKER_INGEST, SF_WORKER_SERVING);
    return SF_OK;
}

/* Creates the namespace of the indices under a key that repeats at every start. */
static enum sf_err create_namespace(struct sf_server *server, struct sf_diag *diag)
{
    Searchfabric__V1__PutNamespaceMetadataRequest put =
        SEARCHFABRIC__V1__PUT_NAMESPACE_METADATA_REQUEST__INIT;
    Searchfabric__V1__RequestMeta meta = SEARCHFABRIC__V1__REQUEST_META__INIT;
    Searchfabric__V1__EncryptionPolicy encryption = SEARCHFABRIC__V1__ENCRYPTION_POLICY__INIT;
    Searchfabric__V1__ProviderManagedEncryption provider =
        SEARCHFABRIC__V1__PROVIDER_MANAGED_ENCRYPTION__INIT;
    const struct sf_call_options options = {.timeout_ms = 30000};
    struct sf_arena *arena = sf_arena_new(REPLY_ARENA);
    const ProtobufCMessage *response;

    meta.idempotency_key = "demo-namespace";
    meta.client_id = "searchfabricd";
    meta.client_kind = SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_CONTROL_ADMIN;
    encryption.mode_case = SEARCHFABRIC__V1__ENCRYPTION_POLICY__MODE_PROVIDER_MANAGED;
    encryption.provider_managed = &provider;
    put.meta = &meta;
    put.namespace_name = server->config->es_namespace;
    put.encryption = &encryption;
    enum sf_err err =
        sf_channel_unary_wait(server->catalog_channel, NULL,
                              "/searchfabric.v1.CatalogControlService/PutNamespaceMetadata",
                              &put.base, &options, arena, diag, &response);
    if (err == SF_OK)
        SF_LOG(INFO, "namespace_ready", SF_KV_STR("namespace", server->config->es_namespace));
    else
        sf_diag_wrap(diag, "cannot create namespace %s", server->config->es_namespace);
    sf_arena_destroy(arena);
    return err;
}

enum sf_err sf_server_start(const struct sf_server_options *options, struct sf_diag *diag,
                            struct sf_server **out_server)
{
    static enum sf_err (*const steps[])(struct sf_server *, struct sf_diag *) = {
        start_base, start_exec,    sf_edges_open,   start_store,  start_keyring,
        start_tso,  start_catalog, start_allocator, start_commit, start_ingest,
    };
    struct sf_server *server = sf_calloc(1, sizeof(*server));
    enum sf_err err = SF_OK;

    server->options = *options;
    server->config = options->config;
    server->clock = sf_clock_system();
    server->started_unix_ms = sf_clock_unix_ms(server->clock);
    server->started_mono_ms = sf_clock_mono_ms(server->clock);
    SF_ASSERT(pthread_mutex_init(&server->health_mu, NULL) == 0);
    for (int i = 0; i < SF_WORKER_COUNT; i++)
        server->states[i] = SF_WORKER_STARTING;
    for (size_t i = 0; err == SF_OK && i < SF_ARRAY_LEN(steps); i++)
        err = steps[i](server, diag);
    if (err == SF_OK && options->demo)
        err = create_namespace(server, diag);
    if (err != SF_OK) {
        sf_server_stop(server);
        return err;
    }
    sf_edges_serve(server);
    server->start_duration_ms = sf_clock_mono_ms(server->clock) - server->started_mono_ms;
    SF_LOG(INFO, "server_ready", SF_KV_U64("grpc_port", sf_rpc_server_port(server->rpc)),
           SF_KV_U64("admin_port", sf_admin_port(server->admin)),
           SF_KV_U64("es_port", sf_es_port(server->es)),
           SF_KV_I64("start_ms", server->start_duration_ms));
    *out_server = server;
    return SF_OK;
}

enum sf_err sf_server_reload(struct sf_server *server, struct sf_diag *diag)
{
    return sf_keyring_reload(server->keyring, diag);
}

/* ---- stop ------------------------------------------------------------------------------------ */

static void on_drained(void *user)
{
    sf_waiter_wake(user);
}

static void stop_services(struct sf_server *server)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    if (server->ingest != NULL) {
        sf_worker_set(server, SF_WORKER_INGEST, SF_WORKER_DRAINING);
        sf_ingest_stop(server->ingest, NULL, INGEST_DRAIN_MS);
    }
    if (server->allocator != NULL) {
        struct sf_waiter drained;
        sf_worker_set(server, SF_WORKER_ALLOCATOR, SF_WORKER_DRAINING);
        sf_waiter_init(&drained, NULL);
        sf_allocator_drain(server->allocator, on_drained, &drained);
        sf_waiter_wait(&drained);
        sf_waiter_fini(&drained);
    }
    if (server->commit != NULL) {
        sf_worker_set(server, SF_WORKER_COORDINATOR, SF_WORKER_DRAINING);
        if (sf_commit_drain(server->commit, NULL, COMMIT_DRAIN_MS) != SF_OK)
            SF_LOG(WARN, "coordinator_drain_incomplete", SF_KV_I64("limit_ms", COMMIT_DRAIN_MS));
        sf_commit_close(server->commit, NULL);
    }
    sf_head_notices_destroy(server->head_notices);
    if (server->catalog != NULL) {
        sf_worker_set(server, SF_WORKER_CCS, SF_WORKER_DRAINING);
        sf_catalog_close(server->catalog, NULL);
    }
}

void sf_server_stop(struct sf_server *server)
{
    if (server == NULL)
        return;
    sf_edges_stop(server);
    stop_services(server);
    sf_channel_destroy(server->ingest_channel);
    sf_channel_destroy(server->commit_channel);
    sf_channel_destroy(server->publisher_channel);
    sf_channel_destroy(server->allocator_channel);
    sf_channel_destroy(server->catalog_es);
    sf_channel_destroy(server->catalog_ingest);
    sf_channel_destroy(server->catalog_allocator);
    sf_channel_destroy(server->catalog_channel);
    sf_pool_destroy(server->pool);
    sf_ingest_destroy(server->ingest);
    sf_allocator_destroy(server->allocator);
    sf_worker_set(server, SF_WORKER_TSO, SF_WORKER_DRAINING); /* no look at it from here on */
    sf_tso_source_destroy(server->tso);
    sf_sql_close(server->sql);
    sf_policy_destroy(server->policy);
    sf_heartbeats_stop(server);
    sf_store_destroy(server->store);
    if (server->reactors != NULL)
        sf_reactors_stop(server->reactors);
    sf_admin_stop(server->admin);
    sf_keyring_destroy(server->keyring);
    sf_metrics_destroy(server->metrics);
    if (server->dir != NULL) /* else the start ended before server_starting */
        SF_LOG(INFO, "server_stopped", SF_KV_STR("owner_id", server->owner_id));
    sf_datadir_close(server->dir);
    (void)pthread_mutex_destroy(&server->health_mu);
    free(server->heartbeats);
    free(server->loops);
    free(server);
}
