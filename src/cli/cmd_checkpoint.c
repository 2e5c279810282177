/* `sfctl checkpoint create|list|verify`. */
#include "cli/cli_priv.h"

#include <inttypes.h>

#include "base/text.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define OPERATIONS "/searchfabric.v1.CatalogOperationsService/"

static const char *const titles[] = {"EPOCH", "CREATED", "BOUND", "SHARDS",
                                     "ROWS",  "BYTES",   "STATE"};

static void print_row(struct sf_cli_table *table, uint64_t epoch,
                      const Searchfabric__V1__CheckpointManifestObject *manifest, const char *state)
{
    char cells[6][32] = {"", "", "", "", "", ""};
    snprintf(cells[0], sizeof(cells[0]), "%" PRIu64, epoch);
    if (manifest != NULL) {
        uint64_t rows = 0, bytes = 0;
        for (size_t i = 0; i < manifest->n_checkpoint_shards; i++) {
            rows += manifest->checkpoint_shards[i]->row_count;
            bytes += manifest->checkpoint_shards[i]->size_bytes;
        }
        sf_cli_format_unix_ms(manifest->created_at_unix_ms, cells[1]);
        snprintf(cells[2], sizeof(cells[2]), "%" PRIu64,
                 manifest->checkpoint_upper_bound_recovery_segment_epoch);
        snprintf(cells[3], sizeof(cells[3]), "%u", manifest->checkpoint_shard_count);
        snprintf(cells[4], sizeof(cells[4]), "%" PRIu64, rows);
        snprintf(cells[5], sizeof(cells[5]), "%" PRIu64, bytes);
    }
    const char *line[] = {cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], state};
    sf_cli_table_row(table, line);
}

static int create(struct sf_cli *cli)
{
    Searchfabric__V1__CreateCheckpointRequest request;
    const ProtobufCMessage *message = NULL;
    searchfabric__v1__create_checkpoint_request__init(&request);
    sf_cli_patient(cli);
    int exit_code = sf_cli_call(cli, "checkpoint create", OPERATIONS "CreateCheckpoint",
                                &request.base, &message);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    const Searchfabric__V1__CreateCheckpointResponse *response =
        (const Searchfabric__V1__CreateCheckpointResponse *)message;
    if (cli->json) {
        sf_cli_print_json(message);
        return SF_CLI_OK;
    }
    struct sf_cli_table table;
    sf_cli_table_begin(&table, SF_ARRAY_LEN(titles), titles);
    print_row(&table, response->manifest->checkpoint_epoch, response->manifest, "complete");
    sf_cli_table_end(&table, stdout);
    printf("cut in %" PRIu64 " ms\n", response->duration_ms);
    return SF_CLI_OK;
}

static int list(struct sf_cli *cli, uint32_t limit)
{
    Searchfabric__V1__ListCheckpointsRequest request;
    const ProtobufCMessage *message = NULL;
    searchfabric__v1__list_checkpoints_request__init(&request);
    int exit_code =
        sf_cli_call(cli, "checkpoint list", OPERATIONS "ListCheckpoints", &request.base, &message);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    const Searchfabric__V1__ListCheckpointsResponse *response =
        (const Searchfabric__V1__ListCheckpointsResponse *)message;
    struct sf_cli_table table;
    if (!cli->json)
        sf_cli_table_begin(&table, SF_ARRAY_LEN(titles), titles);
    for (size_t i = 0; i < response->n_checkpoints && i < limit; i++) {
        const Searchfabric__V1__CheckpointSummary *one = response->checkpoints[i];
        if (cli->json)
            sf_cli_print_json(&one->base);
        else
            print_row(&table, one->checkpoint_epoch, one->manifest,
                      one->complete ? "complete" : one->problem);
    }
    if (!cli->json)
        sf_cli_table_end(&table, stdout);
    return SF_CLI_OK;
}

static int verify(struct sf_cli *cli, uint64_t epoch)
{
    Searchfabric__V1__VerifyCheckpointRequest request;
    const ProtobufCMessage *message = NULL;
    searchfabric__v1__verify_checkpoint_request__init(&request);
    sf_cli_patient(cli);
    request.checkpoint_epoch = epoch;
    int exit_code = sf_cli_call(cli, "checkpoint verify", OPERATIONS "VerifyCheckpoint",
                                &request.base, &message);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    const Searchfabric__V1__VerifyCheckpointResponse *response =
        (const Searchfabric__V1__VerifyCheckpointResponse *)message;
    if (cli->json) {
        sf_cli_print_json(message);
    } else {
        printf("checkpoint %" PRIu64 ": %s, %" PRIu64 " rows, %" PRIu64 " bytes\n",
               response->checkpoint_epoch, response->complete ? "complete" : "not complete",
               response->row_count, response->size_bytes);
        for (size_t i = 0; i < response->n_problems; i++)
            printf("  %s\n", response->problems[i]);
    }
    return response->complete ? SF_CLI_OK : SF_CLI_DATA;
}

/* What the command line said. */
struct checkpoint_args {
    const char *words[2]; /* action, epoch */
    uint32_t limit;       /* --limit: of list */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct checkpoint_args *args = state->input;

    switch (key) {
    case SF_CLI_FLAG_LIMIT:
        args->limit = sf_cli_take_limit(arg, state);
        return 0;
    case ARGP_KEY_ARG:
        return sf_cli_take_word(args->words, SF_ARRAY_LEN(args->words), arg, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int sf_cli_checkpoint(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp_option options[] = {
        SF_CLI_OPTION_LIMIT("list: at most N checkpoints (default all)"), {0}};
    static const struct argp argp = {
        options,
        parse,
        "create | list | verify [EPOCH]",
        "A checkpoint is a snapshot of the catalog's rows in the object store, from which a lost "
        "projection is rebuilt. The server cuts them by itself; two complete ones are kept. verify "
        "reads every shard of one (without EPOCH: of the newest).",
        NULL,
        NULL,
        NULL};
    struct checkpoint_args args = {.limit = UINT32_MAX};
    const char *const *words = args.words;
    uint64_t epoch = 0;
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    bool verifies = words[0] != NULL && strcmp(words[0], "verify") == 0;
    if (words[1] != NULL &&
        (!verifies || !sf_parse_u64(sf_view_str(words[1]), &epoch) || epoch == 0))
        return sf_cli_usage("checkpoint wants create, list or verify [EPOCH]");
    if (verifies)
        return verify(cli, epoch);
    if (words[0] != NULL && strcmp(words[0], "create") == 0)
        return create(cli);
    if (words[0] != NULL && strcmp(words[0], "list") == 0)
        return list(cli, args.limit);
    return sf_cli_usage("checkpoint wants create, list or verify [EPOCH]");
}
