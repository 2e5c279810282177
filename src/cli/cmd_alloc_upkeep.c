/* `sfctl alloc gc`: the retention of allocation results by hand, round after round. `sfctl alloc
 * export rebuild`: the operational export once more from the objects. */
#include "cli/cli_priv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "searchfabric/v1/allocator_operations_private.pb-c.h"

#define OPERATIONS "/searchfabric.v1.AllocatorOperationsService/"

/* What the command line said. */
struct upkeep_args {
    const char *words[1]; /* none is taken */
    bool dry_run;         /* nothing is removed */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct upkeep_args *args = state->input;

    switch (key) {
    case 'n':
        args->dry_run = true;
        return 0;
    case ARGP_KEY_ARG:
        return sf_cli_take_word(args->words, 0, arg, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Adds the numbers of one round. */
static void add(Searchfabric__V1__RunAllocatorRetentionResponse *sum,
                const Searchfabric__V1__RunAllocatorRetentionResponse *round)
{
    sum->objects_examined += round->objects_examined;
    sum->results_removed += round->results_removed;
    sum->artifacts_removed += round->artifacts_removed;
    sum->kept_needed += round->kept_needed;
    sum->kept_without_state += round->kept_without_state;
    sum->kept_in_doubt += round->kept_in_doubt;
    sum->broken += round->broken;
    sum->receipts_without_key += round->receipts_without_key;
    sum->cut_unix_ms = round->cut_unix_ms;
}

static void print_sum(const Searchfabric__V1__RunAllocatorRetentionResponse *sum, bool dry_run)
{
    printf("%" PRIu64 " results, %" PRIu64 " artifacts%s; %" PRIu64 " objects examined\n",
           sum->results_removed, sum->artifacts_removed, dry_run ? " would go" : " removed",
           sum->objects_examined);
    if (sum->kept_needed != 0)
        printf("%" PRIu64 " old results stay: unfinished, or the newest of a collection\n",
               sum->kept_needed);
    if (sum->kept_without_state != 0)
        printf("%" PRIu64 " old results stay: their collection has lost its state (sfctl alloc "
               "rebuild)\n",
               sum->kept_without_state);
    if (sum->kept_in_doubt != 0)
        printf("%" PRIu64 " old results stay: a delete of them may still land\n",
               sum->kept_in_doubt);
    if (sum->broken != 0)
        printf("%" PRIu64 " objects do not verify and stay\n", sum->broken);
    if (sum->receipts_without_key != 0)
        printf("%" PRIu64 " results have a receipt whose key is not in the key ring: their repeats "
               "are answered and then refused by ingest\n",
               sum->receipts_without_key);
}

int sf_cli_alloc_gc(struct sf_cli *cli, int argc, char **argv)
{
    static char name[] = "sfctl alloc gc";
    static const struct argp_option options[] = {
        {"dry-run", 'n', NULL, 0, "Tell what would go and change nothing", 0}, {0}};
    static const struct argp argp = {
        options,
        parse,
        "",
        "Removes allocation results older than allocator.replay_retention_ms, and failure audits "
        "and recovery segments as old. The server does so by itself; this goes through all of them "
        "now. A result stays while it is unfinished, the newest of its collection, or its "
        "collection's state is lost.",
        NULL,
        NULL,
        NULL};
    struct upkeep_args args = {0};
    Searchfabric__V1__RunAllocatorRetentionRequest request;
    Searchfabric__V1__RunAllocatorRetentionResponse sum;

    argv[0] = name;
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    searchfabric__v1__run_allocator_retention_request__init(&request);
    searchfabric__v1__run_allocator_retention_response__init(&sum);
    request.dry_run = args.dry_run;
    sf_cli_patient(cli);
    do {
        const ProtobufCMessage *message = NULL;
        int exit_code = sf_cli_call(cli, "alloc gc", OPERATIONS "RunAllocatorRetention",
                                    &request.base, &message);
        if (exit_code != SF_CLI_OK)
            return exit_code;
        const Searchfabric__V1__RunAllocatorRetentionResponse *round =
            (const Searchfabric__V1__RunAllocatorRetentionResponse *)message;
        add(&sum, round);
        request.cursor = round->next_cursor;
    } while (request.cursor[0] != '\0');
    if (cli->json)
        sf_cli_print_json(&sum.base);
    else
        print_sum(&sum, args.dry_run);
    return SF_CLI_OK;
}

static error_t parse_export(int key, char *arg, struct argp_state *state)
{
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    return sf_cli_take_word(state->input, 1, arg, state);
}

int sf_cli_alloc_export(struct sf_cli *cli, int argc, char **argv)
{
    static char name[] = "sfctl alloc export";
    static const struct argp argp = {
        NULL,
        parse_export,
        "rebuild",
        "Drops the rows of the operational export (allocator.export) and writes them again from "
        "the allocator's objects. Nothing that serves reads them.",
        NULL,
        NULL,
        NULL};
    const char *words[1] = {NULL};
    Searchfabric__V1__RebuildAllocatorExportRequest request;
    const ProtobufCMessage *message = NULL;

    argv[0] = name;
    if (argp_parse(&argp, argc, argv, 0, NULL, words) != 0)
        return SF_CLI_USAGE;
    if (words[0] == NULL || strcmp(words[0], "rebuild") != 0)
        return sf_cli_usage("alloc export wants 'rebuild'");
    searchfabric__v1__rebuild_allocator_export_request__init(&request);
    sf_cli_patient(cli);
    int exit_code = sf_cli_call(cli, "alloc export rebuild", OPERATIONS "RebuildAllocatorExport",
                                &request.base, &message);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    const Searchfabric__V1__RebuildAllocatorExportResponse *response =
        (const Searchfabric__V1__RebuildAllocatorExportResponse *)message;
    if (cli->json)
        sf_cli_print_json(message);
    else
        printf("%" PRIu64 " collections, %" PRIu64 " allocations, %" PRIu64
               " objects that do not verify\n",
               response->collections, response->allocations, response->broken);
    return SF_CLI_OK;
}
