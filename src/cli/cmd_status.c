/* `sfctl status`: what the server runs and how far it is. */
#include "cli/cli_priv.h"

#include <inttypes.h>

#include "searchfabric/v1/operations_private.pb-c.h"

static const char *worker_state_text(Searchfabric__V1__WorkerState state)
{
    static const char *const names[] = {"-", "starting", "serving", "draining", "FAILED"};
    return (unsigned)state < SF_ARRAY_LEN(names) ? names[state] : "-";
}

static void print_workers(const Searchfabric__V1__GetStatusResponse *got)
{
    static const char *const titles[] = {"WORKER", "ROLE", "STATE", "HEARTBEAT", "DETAIL"};
    struct sf_cli_table table;
    sf_cli_table_begin(&table, SF_ARRAY_LEN(titles), titles);
    for (size_t i = 0; i < got->n_workers; i++) {
        const Searchfabric__V1__WorkerStatus *worker = got->workers[i];
        char age[32] = "";
        if (worker->heartbeat_age_ms > 0)
            snprintf(age, sizeof(age), "%" PRIu64 " ms", worker->heartbeat_age_ms);
        const char *cells[] = {worker->name, worker->role, worker_state_text(worker->state), age,
                               worker->detail};
        sf_cli_table_row(&table, cells);
    }
    sf_cli_table_end(&table, stdout);
}

static void print_people(const Searchfabric__V1__GetStatusResponse *got)
{
    char started[32];
    char tso[32];
    sf_cli_format_unix_ms(got->started_at_unix_ms, started);
    sf_cli_format_unix_ms((int64_t)(got->tso_now >> 18), tso);
    uint64_t max_epoch = 0;
    size_t leading = 0;
    for (size_t i = 0; i < got->n_coordinator_shards; i++) {
        const Searchfabric__V1__CoordinatorShardStatus *shard = got->coordinator_shards[i];
        leading += shard->leading ? 1 : 0;
        max_epoch = shard->coordinator_epoch > max_epoch ? shard->coordinator_epoch : max_epoch;
    }
    printf("searchfabricd %s, pid %" PRIu32 ", store %s, data %s\n", got->version, got->process_id,
           got->store_id, got->data_dir);
    printf("started %s, up %.1f s, ", started, (double)got->uptime_ms / 1000.0);
    if (got->start_duration_ms == 0)
        puts("recovering: calls are refused until all workers serve");
    else
        printf("served after %" PRIu64 " ms\n", got->start_duration_ms);
    printf("ports: grpc %" PRIu32 ", admin %" PRIu32 ", elasticsearch %" PRIu32 "\n",
           got->grpc_port, got->admin_port, got->es_port);
    if (got->tso_now == 0)
        puts("timestamp: none, the oracle does not serve");
    else
        printf("timestamp %" PRIu64 " (%s)\n", got->tso_now, tso);
    printf("epochs: catalog owner %" PRIu64 ", coordinator up to %" PRIu64 "; allocator: %" PRIu64
           " collections in memory\n",
           got->catalog_owner_epoch, max_epoch, got->allocator_lanes);
    printf("coordinator: %zu of %zu shards leading, %" PRIu64
           " open lanes, safe_ts lag at most %" PRIu64 " ms\n\n",
           leading, got->n_coordinator_shards, got->open_lanes, got->max_safe_ts_lag_ms);
    print_workers(got);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    (void)key;
    (void)arg;
    (void)state;
    return ARGP_ERR_UNKNOWN;
}

int sf_cli_status(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp argp = {
        NULL, parse, NULL, "Shows workers, epochs, ports, lanes and lag of the server.",
        NULL, NULL,  NULL};
    if (argp_parse(&argp, argc, argv, 0, NULL, NULL) != 0)
        return SF_CLI_USAGE;
    Searchfabric__V1__GetStatusRequest request;
    searchfabric__v1__get_status_request__init(&request);
    const ProtobufCMessage *response = NULL;
    int exit_code = sf_cli_call(cli, NULL, "/searchfabric.v1.OperationsService/GetStatus",
                                &request.base, &response);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    if (cli->json)
        sf_cli_print_json(response);
    else
        print_people((const Searchfabric__V1__GetStatusResponse *)response);
    return SF_CLI_OK;
}
