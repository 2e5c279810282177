/* `sfctl catalog jobs|run-job|release-sweep`: background work of the catalog. */
#include "cli/cli_priv.h"

#include <inttypes.h>

#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define PRIVATE    "/searchfabric.v1.CatalogControlPrivateService/"
#define OPERATIONS "/searchfabric.v1.CatalogOperationsService/"

static int jobs(struct sf_cli *cli)
{
    static const char *const titles[] = {"JOB",          "EVERY MS",  "RUNS",        "FAILURES",
                                         "LAST SUCCESS", "LAST DONE", "LAST FAILURE"};
    Searchfabric__V1__ListCatalogJobsRequest request;
    const ProtobufCMessage *response = NULL;
    searchfabric__v1__list_catalog_jobs_request__init(&request);
    int exit_code = sf_cli_call(cli, NULL, OPERATIONS "ListCatalogJobs", &request.base, &response);

    if (exit_code != SF_CLI_OK)
        return exit_code;
    const Searchfabric__V1__ListCatalogJobsResponse *got =
        (const Searchfabric__V1__ListCatalogJobsResponse *)response;
    struct sf_cli_table table = {0};
    if (!cli->json)
        sf_cli_table_begin(&table, SF_ARRAY_LEN(titles), titles);
    for (size_t i = 0; i < got->n_jobs; i++) {
        const Searchfabric__V1__CatalogJobStatus *job = got->jobs[i];
        char numbers[4][24];
        char when[32] = "";
        if (cli->json) {
            sf_cli_print_json(&job->base);
            continue;
        }
        (void)snprintf(numbers[0], sizeof(numbers[0]), "%" PRIu32, job->period_ms);
        (void)snprintf(numbers[1], sizeof(numbers[1]), "%" PRIu64, job->runs);
        (void)snprintf(numbers[2], sizeof(numbers[2]), "%" PRIu64, job->failures);
        (void)snprintf(numbers[3], sizeof(numbers[3]), "%" PRIu64, job->last_done);
        if (job->last_success_unix_ms != 0)
            sf_cli_format_unix_ms(job->last_success_unix_ms, when);
        const char *cells[] = {job->name, numbers[0], numbers[1],       numbers[2],
                               when,      numbers[3], job->last_failure};
        sf_cli_table_row(&table, cells);
    }
    sf_cli_table_end(&table, cli->json ? NULL : stdout);
    return SF_CLI_OK;
}

static int run_job(struct sf_cli *cli, const char *name)
{
    Searchfabric__V1__RunCatalogJobRequest request;
    const ProtobufCMessage *response = NULL;
    searchfabric__v1__run_catalog_job_request__init(&request);
    sf_cli_patient(cli);
    request.name = sf_arena_str(cli->arena, sf_view_str(name));
    int exit_code = sf_cli_call(cli, sf_arena_printf(cli->arena, "job %s", name),
                                OPERATIONS "RunCatalogJob", &request.base, &response);

    if (exit_code != SF_CLI_OK)
        return exit_code;
    if (cli->json)
        sf_cli_print_json(response);
    else
        printf("%s: %" PRIu64 " done\n", name,
               ((const Searchfabric__V1__RunCatalogJobResponse *)response)->done);
    return SF_CLI_OK;
}

/* What the command line said. */
struct catalog_args {
    const char *words[2];       /* action, job */
    const char *namespace_name; /* --namespace */
    uint32_t limit;             /* --limit, 0 = the server's default */
};

static int release_sweep(struct sf_cli *cli, const struct catalog_args *args)
{
    Searchfabric__V1__RunReleaseSweepRequest request;
    const ProtobufCMessage *response = NULL;
    searchfabric__v1__run_release_sweep_request__init(&request);
    sf_cli_patient(cli);
    request.max_releases = args->limit;
    if (args->namespace_name != NULL) {
        int found = sf_cli_namespace_id(cli, args->namespace_name, &request.namespace_id);
        if (found != SF_CLI_OK)
            return found;
    }
    int exit_code = sf_cli_call(cli, NULL, PRIVATE "RunReleaseSweep", &request.base, &response);

    if (exit_code != SF_CLI_OK)
        return exit_code;
    const Searchfabric__V1__RunReleaseSweepResponse *swept =
        (const Searchfabric__V1__RunReleaseSweepResponse *)response;
    if (cli->json)
        sf_cli_print_json(&swept->base);
    else
        printf("released: %" PRIu32 " namespace names, %" PRIu32 " collection names; kept: %" PRIu32
               "\n",
               swept->released_namespace_names, swept->released_collection_names, swept->kept);
    if (!cli->json && swept->failed != 0)
        printf("broken, not released: %" PRIu32 " (%s)\n", swept->failed, swept->first_failure);
    return SF_CLI_OK;
}

static const struct argp_option options[] = {
    SF_CLI_OPTION_NAMESPACE("release-sweep: of this namespace only"),
    SF_CLI_OPTION_LIMIT("release-sweep: at most N names (default 1000)"),
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct catalog_args *args = state->input;

    switch (key) {
    case SF_CLI_FLAG_NAMESPACE:
        args->namespace_name = arg;
        return 0;
    case SF_CLI_FLAG_LIMIT:
        args->limit = sf_cli_take_limit(arg, state);
        return 0;
    case ARGP_KEY_ARG:
        return sf_cli_take_word(args->words, SF_ARRAY_LEN(args->words), arg, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int sf_cli_catalog(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "jobs\nrun-job NAME\nrelease-sweep",
        "Background work of the catalog: what runs, one cycle by hand, and the sweep that frees "
        "the names of dropped collections and tombstoned namespaces whose horizon has passed.",
        NULL,
        NULL,
        NULL};
    struct catalog_args args = {0};

    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    const char *action = args.words[0] == NULL ? "" : args.words[0];
    if (strcmp(action, "jobs") == 0 && args.words[1] == NULL)
        return jobs(cli);
    if (strcmp(action, "run-job") == 0 && args.words[1] != NULL)
        return run_job(cli, args.words[1]);
    if (strcmp(action, "release-sweep") == 0 && args.words[1] == NULL)
        return release_sweep(cli, &args);
    return sf_cli_usage("catalog wants jobs, run-job NAME or release-sweep");
}
