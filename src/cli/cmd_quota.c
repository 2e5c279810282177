/* `sfctl quota show NAME|ID`: budgets and leases of a namespace. */
#include "cli/cli_priv.h"

#include <inttypes.h>

#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define OPERATIONS "/searchfabric.v1.CatalogOperationsService/"

static void print_budgets(const Searchfabric__V1__NamespaceQuotaStateObject *state)
{
    static const char *const titles[] = {"DIMENSION", "UNITS/S", "BURST", "LEFT"};
    struct sf_cli_table table;
    sf_cli_table_begin(&table, SF_ARRAY_LEN(titles), titles);
    for (size_t i = 0; i < state->n_dimensions; i++) {
        const Searchfabric__V1__QuotaDimensionState *one = state->dimensions[i];
        char numbers[3][24];
        snprintf(numbers[0], sizeof(numbers[0]), "%" PRIu64, one->refill_units_per_second);
        snprintf(numbers[1], sizeof(numbers[1]), "%" PRIu64, one->burst_units);
        snprintf(numbers[2], sizeof(numbers[2]), "%" PRIu64, one->leaseable_units);
        const char *cells[] = {one->throttled_dimension, numbers[0], numbers[1], numbers[2]};
        sf_cli_table_row(&table, cells);
    }
    sf_cli_table_end(&table, stdout);
    printf("quota epoch %" PRIu64 "\n", state->quota_epoch);
}

static void print_leases(const Searchfabric__V1__ShowQuotaResponse *response)
{
    static const char *const titles[] = {"DIMENSION", "HOLDER", "REQUEST",
                                         "GRANTED",   "EPOCH",  "EXPIRES"};
    struct sf_cli_table table;
    sf_cli_table_begin(&table, SF_ARRAY_LEN(titles), titles);
    for (size_t i = 0; i < response->n_leases; i++) {
        const Searchfabric__V1__QuotaLeaseView *one = response->leases[i];
        char granted[24], epoch[24], expires[32];
        snprintf(granted, sizeof(granted), "%" PRIu64, one->granted_units);
        snprintf(epoch, sizeof(epoch), "%" PRIu64, one->lease_epoch);
        sf_cli_format_unix_ms(one->expires_at_unix_ms, expires);
        const char *cells[] = {one->lease->throttled_dimension,
                               one->lease->lease_holder_id,
                               one->lease->lease_request_id,
                               granted,
                               epoch,
                               expires};
        sf_cli_table_row(&table, cells);
    }
    sf_cli_table_end(&table, stdout);
}

static int show(struct sf_cli *cli, const char *name_or_id)
{
    Searchfabric__V1__ShowQuotaRequest request;
    const ProtobufCMessage *message = NULL;
    searchfabric__v1__show_quota_request__init(&request);
    int exit_code = sf_cli_namespace_id(cli, name_or_id, &request.namespace_id);
    if (exit_code == SF_CLI_OK)
        exit_code = sf_cli_call(cli, name_or_id, OPERATIONS "ShowQuota", &request.base, &message);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    const Searchfabric__V1__ShowQuotaResponse *response =
        (const Searchfabric__V1__ShowQuotaResponse *)message;
    if (cli->json) {
        sf_cli_print_json(message);
    } else if (response->state == NULL) {
        puts("nothing was leased yet");
    } else {
        print_budgets(response->state);
        if (response->n_leases != 0)
            print_leases(response);
    }
    return SF_CLI_OK;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    return key == ARGP_KEY_ARG ? sf_cli_take_word(state->input, 2, arg, state) : ARGP_ERR_UNKNOWN;
}

int sf_cli_quota(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp argp = {
        NULL,
        parse,
        "show NAME|ID",
        "Budgets of a namespace with the units left in each, as last written, and the leases that "
        "are out (at most 1000).",
        NULL,
        NULL,
        NULL};
    const char *words[2] = {NULL, NULL};
    if (argp_parse(&argp, argc, argv, 0, NULL, words) != 0)
        return SF_CLI_USAGE;
    if (words[0] == NULL || strcmp(words[0], "show") != 0 || words[1] == NULL)
        return sf_cli_usage("quota wants show NAME|ID");
    return show(cli, words[1]);
}
