/*
 * Model: ports 7400 and 9200 are open before the parts behind them stand, so that a caller hears
 * why it has to wait instead of a refused connection. The operator's service, health and reflection
 * serve at once; everything else is refused in one stable form until sf_edges_serve:
 *
 *   while the catalog recovers    SF_CATALOG_UNAVAILABLE, catalog_unavailable_reason=recovery,
 *                                 from whoever needs its facts (OP-06)
 *   the coordinator's own calls,  SF_BACKEND_UNAVAILABLE, failing_authority=coordinator
 *   and all others once the
 *   catalog stands
 */
#include "daemon/server_priv.h"

#include <string.h>

#include "base/log.h"
#include "base/rng.h"

#define EDGE_DRAIN_MS 5000

#define CATALOG_PREFIX   "/searchfabric.v1.Catalog"
#define ALLOCATOR_PREFIX "/searchfabric.v1.IdAllocatorService/"
#define COMMIT_PREFIX    "/searchfabric.v1.CommitCoordinatorService/"

/* Order of start_services. */
static const char *const service_names[] = {
    "searchfabric.v1.CatalogControlService",      "searchfabric.v1.CatalogControlPrivateService",
    "searchfabric.v1.CatalogOperationsService",   "searchfabric.v1.IdAllocatorService",
    "searchfabric.v1.CommitCoordinatorService",   "searchfabric.v1.IngestGatewayService",
    "searchfabric.v1.AllocatorOperationsService",
};

static bool starts_with(struct sf_view path, const char *prefix)
{
    size_t len = strlen(prefix);

    return path.len >= len && memcmp(path.ptr, prefix, len) == 0;
}

static void refuse(struct sf_server *server, struct sf_view path, struct sf_diag *diag)
{
    bool of_catalog = starts_with(path, CATALOG_PREFIX);

    if (starts_with(path, COMMIT_PREFIX) ||
        (!of_catalog && sf_worker_started(server, SF_WORKER_CCS))) {
        (void)sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "the coordinator is recovering");
        sf_diag_area(diag, "coordinator");
        sf_diag_detail(diag, "failing_authority", "coordinator");
        sf_diag_detail(diag, "outcome_unknown", "false");
        return;
    }
    (void)sf_diag_set(diag, SF_CATALOG_UNAVAILABLE, "the catalog is recovering");
    sf_diag_area(diag, starts_with(path, ALLOCATOR_PREFIX) ? "allocator" : "catalog");
    sf_diag_detail(diag, "catalog_unavailable_reason", "recovery");
}

static void refuse_call(void *self, struct sf_view path, struct sf_diag *diag)
{
    refuse(self, path, diag);
}

static void refuse_request(void *self, struct sf_diag *diag)
{
    refuse(self, sf_view_str(""), diag);
}

static enum sf_err open_rpc(struct sf_server *server, struct sf_diag *diag)
{
    const struct sf_rpc_expected expected = {.services = service_names,
                                             .count = SF_ARRAY_LEN(service_names),
                                             .refuse = refuse_call,
                                             .self = server};

    server->operations = sf_operations_new(server);
    const struct sf_service *services[] = {sf_operations_service(server->operations)};
    const struct sf_rpc_server_options options = {
        .host = server->config->grpc.host,
        .port = server->config->grpc.port,
        .reactors = server->reactors,
        .services = services,
        .service_count = SF_ARRAY_LEN(services),
        .expected = &expected,
        .metrics = server->metrics,
        .max_message_bytes = server->config->rpc_message_bytes,
        .max_connections = server->config->rpc_connections,
        .max_streams_per_conn = server->config->rpc_streams_per_conn,
    };
    struct sf_rpc_server *rpc = NULL;
    enum sf_err err = sf_rpc_server_start(&options, diag, &rpc);
    pthread_mutex_lock(&server->health_mu); /* a call may look for it already */
    server->rpc = rpc;
    pthread_mutex_unlock(&server->health_mu);
    return err;
}

static enum sf_err open_es(struct sf_server *server, struct sf_diag *diag)
{
    uint64_t seed;

    sf_random_bytes(&seed, sizeof(seed));
    const struct sf_es_options options = {
        .host = server->config->es.host,
        .port = server->config->es.port,
        .namespace_name = server->config->es_namespace,
        .auto_create = server->config->es_auto_create,
        .max_connections = server->config->es_connections,
        .max_body_bytes = server->config->es_body_bytes,
        .identity = SF_SERVER_IDENTITY,
        .refuse = refuse_request,
        .refuse_self = server,
        .loop = server->loops[server->loop_count - 1],
        .clock = server->clock,
        .seed = seed,
        .metrics = server->metrics,
    };
    return sf_es_start(&options, diag, &server->es);
}

enum sf_err sf_edges_open(struct sf_server *server, struct sf_diag *diag)
{
    enum sf_err err = open_es(server, diag); /* first: the operator's service looks at it */

    if (err == SF_OK)
        err = open_rpc(server, diag);
    if (err == SF_OK)
        SF_LOG(INFO, "server_listening", SF_KV_U64("grpc_port", sf_rpc_server_port(server->rpc)),
               SF_KV_U64("admin_port", sf_admin_port(server->admin)),
               SF_KV_U64("es_port", sf_es_port(server->es)));
    return err;
}

void sf_edges_serve(struct sf_server *server)
{
    const struct sf_service *services[SF_ARRAY_LEN(service_names)];
    const struct sf_es_channels channels = {
        .catalog = server->catalog_es,
        .catalog_private = server->catalog_es,
        .allocator = server->allocator_channel,
        .ingest = server->ingest_channel,
    };

    sf_catalog_services(server->catalog, services);
    services[SF_CATALOG_SERVICE_COUNT] = sf_allocator_service(server->allocator);
    services[SF_CATALOG_SERVICE_COUNT + 1] = sf_commit_service(server->commit);
    services[SF_CATALOG_SERVICE_COUNT + 2] = sf_ingest_service(server->ingest);
    services[SF_CATALOG_SERVICE_COUNT + 3] = sf_allocator_operations(server->allocator);
    for (size_t i = 0; i < SF_ARRAY_LEN(services); i++)
        SF_ASSERT(strcmp(services[i]->full_name, service_names[i]) == 0);
    sf_rpc_server_add(server->rpc, services, SF_ARRAY_LEN(services));
    sf_es_serve(server->es, &channels);
    sf_worker_set(server, SF_WORKER_ES, SF_WORKER_SERVING);
    sf_rpc_server_set_serving(server->rpc, "", true);
    sf_worker_set(server, SF_WORKER_GRPC, SF_WORKER_SERVING); /* from here on the beat sets it */
}

void sf_edges_stop(struct sf_server *server)
{
    sf_worker_set(server, SF_WORKER_ES, SF_WORKER_DRAINING); /* no look at it from here on */
    sf_es_stop(server->es, EDGE_DRAIN_MS);
    sf_worker_set(server, SF_WORKER_GRPC, SF_WORKER_DRAINING);
    if (server->ingest != NULL)
        sf_ingest_drain(server->ingest);
    sf_rpc_server_stop(server->rpc, EDGE_DRAIN_MS);
    sf_operations_destroy(server->operations);
}
