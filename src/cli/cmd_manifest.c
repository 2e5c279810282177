/* `sfctl manifest head show|repair`: how far the catalog follows a collection's committed head. */
#include "cli/cli_priv.h"

#include <inttypes.h>

#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define OPERATIONS "/searchfabric.v1.CatalogOperationsService/"

/* What the command line said. */
struct manifest_args {
    const char *words[3]; /* "head", action, path */
    bool dry_run;         /* --dry-run */
};

static const char *status_text(Searchfabric__V1__ManifestHeadReconcilerStatus status)
{
    static const char *const names[] = {"-", "IDLE", "REPAIR_PENDING", "REPAIRING", "ERROR"};
    return (unsigned)status < SF_ARRAY_LEN(names) ? names[status] : "-";
}

static int show(struct sf_cli *cli, struct sf_collection_ref ref)
{
    Searchfabric__V1__ShowManifestHeadRequest request;
    const ProtobufCMessage *message = NULL;
    searchfabric__v1__show_manifest_head_request__init(&request);
    request.collection = sf_cli_collection_ref(cli, ref);
    int exit_code = sf_cli_call(cli, "manifest head show", OPERATIONS "ShowManifestHead",
                                &request.base, &message);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    const Searchfabric__V1__ShowManifestHeadResponse *got =
        (const Searchfabric__V1__ShowManifestHeadResponse *)message;
    if (cli->json) {
        sf_cli_print_json(message);
        return SF_CLI_OK;
    }
    uint64_t committed =
        got->committed_head == NULL ? 0 : got->committed_head->committed_manifest_version;
    printf("committed %" PRIu64 ", head %" PRIu64 ", %s, attempt %" PRIu64 "\n%s\n", committed,
           got->projected_head_version, status_text(got->projected_reconciler_status),
           got->projected_last_update_epoch, got->explanation);
    return SF_CLI_OK;
}

static int repair(struct sf_cli *cli, struct sf_collection_ref ref, bool dry_run)
{
    Searchfabric__V1__RepairManifestHeadRequest request;
    const ProtobufCMessage *message = NULL;
    searchfabric__v1__repair_manifest_head_request__init(&request);
    request.collection = sf_cli_collection_ref(cli, ref);
    request.dry_run = dry_run;
    int exit_code = sf_cli_call(cli, "manifest head repair", OPERATIONS "RepairManifestHead",
                                &request.base, &message);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    const Searchfabric__V1__RepairManifestHeadResponse *got =
        (const Searchfabric__V1__RepairManifestHeadResponse *)message;
    if (cli->json)
        sf_cli_print_json(message);
    else
        printf("head %" PRIu64 ", %s, attempt %" PRIu64 "\n%s\n", got->manifest_head_version,
               status_text(got->status), got->last_update_epoch, got->explanation);
    bool broken =
        got->status ==
        SEARCHFABRIC__V1__MANIFEST_HEAD_RECONCILER_STATUS__MANIFEST_HEAD_RECONCILER_STATUS_ERROR;
    return broken ? SF_CLI_DATA : SF_CLI_OK;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct manifest_args *args = state->input;
    if (key == ARGP_KEY_ARG)
        return sf_cli_take_word(args->words, SF_ARRAY_LEN(args->words), arg, state);
    if (key != SF_CLI_FLAG_DRY_RUN)
        return ARGP_ERR_UNKNOWN;
    args->dry_run = true;
    return 0;
}

int sf_cli_manifest(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp_option options[] = {
        SF_CLI_OPTION_DRY_RUN("repair: tell and change nothing"), {0}};
    static const struct argp argp = {
        options,
        parse,
        "head show|repair NAMESPACE/COLLECTION",
        "The committed head alone says what is visible; the catalog's head follows it. repair lets "
        "it catch up now, also out of ERROR, and ends with 4 when an operator is still needed.",
        NULL,
        NULL,
        NULL};
    static const char usage[] = "manifest wants head show|repair NAMESPACE/COLLECTION";
    struct manifest_args args = {0};
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    if (args.words[2] == NULL || strcmp(args.words[0], "head") != 0)
        return sf_cli_usage("%s", usage);
    bool shows = strcmp(args.words[1], "show") == 0;
    if ((!shows && strcmp(args.words[1], "repair") != 0) || (shows && args.dry_run))
        return sf_cli_usage("%s", usage);
    struct sf_collection_ref ref;
    int exit_code = sf_cli_resolve_collection(cli, args.words[2], &ref);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    return shows ? show(cli, ref) : repair(cli, ref, args.dry_run);
}
