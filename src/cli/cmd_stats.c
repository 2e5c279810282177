/* `sfctl stats show|windows|analyze`: what the catalog derived from a collection's manifests. */
#include "cli/cli_priv.h"

#include <inttypes.h>

#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define OPERATIONS "/searchfabric.v1.CatalogOperationsService/"

/* Calls an operator's method about the collection at `path`. */
static int ask(struct sf_cli *cli, const char *path, const char *method,
               Searchfabric__V1__CollectionRef **field, const ProtobufCMessage *request,
               const ProtobufCMessage **out_response)
{
    const Searchfabric__V1__CollectionDescriptor *descriptor = NULL;
    int exit_code = sf_cli_get_collection(cli, path, &descriptor);

    if (exit_code != SF_CLI_OK)
        return exit_code;
    *field = descriptor->collection;
    return sf_cli_call(cli, sf_arena_printf(cli->arena, "collection %s", path), method, request,
                       out_response);
}

static int show(struct sf_cli *cli, const char *path, uint32_t limit)
{
    static const char *const titles[] = {"GENERATION", "TOKEN", "FRONTIER", "COLLECTED",
                                         "ROWS",       "BYTES", "SERVED"};
    Searchfabric__V1__ShowStatisticsRequest request;
    const ProtobufCMessage *response = NULL;

    searchfabric__v1__show_statistics_request__init(&request);
    int exit_code =
        ask(cli, path, OPERATIONS "ShowStatistics", &request.collection, &request.base, &response);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    Searchfabric__V1__ShowStatisticsResponse cut =
        *(const Searchfabric__V1__ShowStatisticsResponse *)response;
    const Searchfabric__V1__ShowStatisticsResponse *shown = &cut;
    if (cut.n_snapshots > limit)
        cut.n_snapshots = limit;
    if (cli->json) {
        sf_cli_print_json(&shown->base);
        return SF_CLI_OK;
    }
    struct sf_cli_table table;
    sf_cli_table_begin(&table, SF_ARRAY_LEN(titles), titles);
    for (size_t i = 0; i < shown->n_snapshots; i++) {
        const Searchfabric__V1__OptimizerStatisticsSnapshotObject *one = shown->snapshots[i];
        char numbers[4][24];
        char when[32];
        bool served = shown->head != NULL &&
                      shown->head->latest_stats_commit_ts == one->stats_commit_ts &&
                      strcmp(shown->head->latest_applied_schema_generation_token,
                             one->applied_schema_generation_token) == 0;
        (void)snprintf(numbers[0], sizeof(numbers[0]), "%" PRIu64, one->applied_schema_version);
        (void)snprintf(numbers[1], sizeof(numbers[1]), "%" PRIu64, one->stats_commit_ts);
        (void)snprintf(numbers[2], sizeof(numbers[2]), "%" PRIu64,
                       one->collection_stats->row_count);
        (void)snprintf(numbers[3], sizeof(numbers[3]), "%" PRIu64,
                       one->collection_stats->logical_bytes);
        sf_cli_format_unix_ms(one->collected_at_unix_ms, when);
        const char *cells[] = {numbers[0],         one->applied_schema_generation_token,
                               numbers[1],         when,
                               numbers[2],         numbers[3],
                               served ? "yes" : ""};
        sf_cli_table_row(&table, cells);
    }
    sf_cli_table_end(&table, stdout);
    return SF_CLI_OK;
}

static int windows(struct sf_cli *cli, const char *path, uint32_t limit)
{
    static const char *const titles[] = {"FROM",      "TO",         "TIER", "MANIFEST",
                                         "NEXT MOVE", "KEPT UNTIL", "STATE"};
    static const char *const tiers[] = {"?", "hot", "warm", "cold"};
    static const char *const states[] = {"?", "live", "transitioning", "reclaimable"};
    Searchfabric__V1__ShowLifecycleWindowsRequest request;
    const ProtobufCMessage *response = NULL;

    searchfabric__v1__show_lifecycle_windows_request__init(&request);
    int exit_code = ask(cli, path, OPERATIONS "ShowLifecycleWindows", &request.collection,
                        &request.base, &response);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    Searchfabric__V1__ShowLifecycleWindowsResponse cut =
        *(const Searchfabric__V1__ShowLifecycleWindowsResponse *)response;
    const Searchfabric__V1__ShowLifecycleWindowsResponse *shown = &cut;
    if (cut.n_windows > limit)
        cut.n_windows = limit;
    if (cli->json) {
        sf_cli_print_json(&shown->base);
        return SF_CLI_OK;
    }
    struct sf_cli_table table;
    sf_cli_table_begin(&table, SF_ARRAY_LEN(titles), titles);
    for (size_t i = 0; i < shown->n_windows; i++) {
        const Searchfabric__V1__LifecycleWindow *one = shown->windows[i];
        char from[32], to[32], version[24], next[32] = "-", kept[32] = "for ever";
        unsigned tier = (unsigned)one->effective_tier, state = (unsigned)one->window_state;
        sf_cli_format_unix_ms(one->window_start_ms, from);
        sf_cli_format_unix_ms(one->window_end_ms, to);
        (void)snprintf(version, sizeof(version), "%" PRIu64, one->published_manifest_version);
        if (one->_next_transition_at_unix_ms_case != 0)
            sf_cli_format_unix_ms(one->next_transition_at_unix_ms, next);
        if (one->_retention_deadline_unix_ms_case != 0)
            sf_cli_format_unix_ms(one->retention_deadline_unix_ms, kept);
        const char *cells[] = {from, to,   tiers[tier < SF_ARRAY_LEN(tiers) ? tier : 0],    version,
                               next, kept, states[state < SF_ARRAY_LEN(states) ? state : 0]};
        sf_cli_table_row(&table, cells);
    }
    sf_cli_table_end(&table, stdout);
    return SF_CLI_OK;
}

static int analyze(struct sf_cli *cli, const char *path)
{
    Searchfabric__V1__RunCatalogJobRequest request;
    const ProtobufCMessage *response = NULL;

    searchfabric__v1__run_catalog_job_request__init(&request);
    request.name = sf_arena_str(cli->arena, sf_view_str("statistics"));
    int exit_code =
        ask(cli, path, OPERATIONS "RunCatalogJob", &request.collection, &request.base, &response);
    return exit_code == SF_CLI_OK ? show(cli, path, UINT32_MAX) : exit_code;
}

/* What the command line said. */
struct stats_args {
    const char *words[2]; /* action, path */
    uint32_t limit;       /* --limit: of show and windows */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct stats_args *args = state->input;

    if (key == SF_CLI_FLAG_LIMIT) {
        args->limit = sf_cli_take_limit(arg, state);
        return 0;
    }
    if (key == ARGP_KEY_ARG)
        return sf_cli_take_word(args->words, SF_ARRAY_LEN(args->words), arg, state);
    return ARGP_ERR_UNKNOWN;
}

int sf_cli_stats(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp_option options[] = {
        SF_CLI_OPTION_LIMIT("show, windows: at most N of them (default all)"), {0}};
    static const struct argp argp = {
        options,
        parse,
        "show NAMESPACE/COLLECTION\nwindows NAMESPACE/COLLECTION\nanalyze NAMESPACE/COLLECTION",
        "What the catalog derived from a collection's committed manifests: snapshots of optimizer "
        "statistics, and lifecycle windows. analyze makes a snapshot now.",
        NULL,
        NULL,
        NULL};
    struct stats_args args = {.limit = UINT32_MAX};

    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    const char *action = args.words[0] == NULL ? "" : args.words[0];
    if (strcmp(action, "show") == 0 && args.words[1] != NULL)
        return show(cli, args.words[1], args.limit);
    if (strcmp(action, "windows") == 0 && args.words[1] != NULL)
        return windows(cli, args.words[1], args.limit);
    if (strcmp(action, "analyze") == 0 && args.words[1] != NULL)
        return analyze(cli, args.words[1]);
    return sf_cli_usage("stats wants show, windows or analyze, and NAMESPACE/COLLECTION");
}
