/* `sfctl gc`, `sfctl fsck`, `sfctl replay show`: retention, check and repair of the catalog. */
#include "cli/cli_priv.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/text.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define OPERATIONS "/searchfabric.v1.CatalogOperationsService/"

/* What the command lines say. */
struct upkeep_args {
    bool dry_run;
    const char *words[2];
    const char *namespace_name;
    const char *kind, *identity, *scope, *command;
};

enum { OPTION_KIND = SF_CLI_FLAG_OWN, OPTION_IDENTITY, OPTION_SCOPE, OPTION_COMMAND };

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct upkeep_args *args = state->input;
    switch (key) {
    case SF_CLI_FLAG_DRY_RUN:
        args->dry_run = true;
        return 0;
    case SF_CLI_FLAG_NAMESPACE:
        args->namespace_name = arg;
        return 0;
    case OPTION_KIND:
        args->kind = arg;
        return 0;
    case OPTION_IDENTITY:
        args->identity = arg;
        return 0;
    case OPTION_SCOPE:
        args->scope = arg;
        return 0;
    case OPTION_COMMAND:
        args->command = arg;
        return 0;
    case ARGP_KEY_ARG:
        return sf_cli_take_word(args->words, SF_ARRAY_LEN(args->words), arg, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- gc ---- */

int sf_cli_gc(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp_option options[] = {
        SF_CLI_OPTION_DRY_RUN("tell what would go and change nothing"), {0}};
    static const struct argp argp = {
        options,
        parse,
        "",
        "Runs one round of the catalog's retention: records of commands older than "
        "catalog.replay_retention_ms that name nothing current, their pointers and superseded "
        "control objects, and segments below the older of the two kept checkpoints.",
        NULL,
        NULL,
        NULL};
    struct upkeep_args args = {0};
    Searchfabric__V1__RunRetentionRequest request;
    const ProtobufCMessage *message = NULL;
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    if (args.words[0] != NULL)
        return sf_cli_usage("gc wants no words");
    searchfabric__v1__run_retention_request__init(&request);
    request.dry_run = args.dry_run;
    sf_cli_patient(cli);
    int exit_code = sf_cli_call(cli, "gc", OPERATIONS "RunRetention", &request.base, &message);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    const Searchfabric__V1__RunRetentionResponse *response =
        (const Searchfabric__V1__RunRetentionResponse *)message;
    if (cli->json) {
        sf_cli_print_json(message);
        return SF_CLI_OK;
    }
    printf("%" PRIu64 " records, %" PRIu64 " control objects, %" PRIu64
           " segments%s; lowest segment %" PRIu64 "\n",
           response->records_removed, response->control_objects_removed, response->segments_removed,
           args.dry_run ? " would go" : " removed", response->boundary_segment_epoch);
    if (response->records_kept != 0)
        printf("%" PRIu64 " old records stay: %s\n", response->records_kept, response->kept_reason);
    return SF_CLI_OK;
}

/* ---- fsck ---- */

static void print_findings(const Searchfabric__V1__CheckCatalogResponse *response)
{
    for (size_t i = 0; i < response->n_findings; i++) {
        const Searchfabric__V1__CatalogFinding *f = response->findings[i];
        printf("%s %s %s %s: %s", f->problem ? "PROBLEM" : "harmless", f->kind, f->subject, f->key,
               f->explanation);
        if (f->repaired)
            printf(" (repaired: %s)", f->repair);
        else if (f->repair[0] != '\0')
            printf(" (repair: %s)", f->repair);
        putchar('\n');
    }
    printf("%" PRIu64 " rows and %" PRIu64 " objects read: %" PRIu64 " problems, %" PRIu64
           " repaired, %" PRIu64 " harmless\n",
           response->rows_read, response->objects_read, response->problems, response->repaired,
           response->harmless);
}

int sf_cli_fsck(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp_option options[] = {
        SF_CLI_OPTION_DRY_RUN("tell and change nothing"),
        SF_CLI_OPTION_NAMESPACE("check one namespace, tombstoned or not"),
        {0}};
    static const struct argp argp = {
        options,
        parse,
        "",
        "Compares the catalog's rows with its objects, both ways, explains every difference and "
        "repairs what the objects can tell. Exit code 4 when a problem is left.",
        NULL,
        NULL,
        NULL};
    struct upkeep_args args = {0};
    Searchfabric__V1__CheckCatalogRequest request;
    const ProtobufCMessage *message = NULL;
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    if (args.words[0] != NULL)
        return sf_cli_usage("fsck wants no words");
    searchfabric__v1__check_catalog_request__init(&request);
    request.repair = !args.dry_run;
    sf_cli_patient(cli);
    if (args.namespace_name != NULL) {
        int found = sf_cli_namespace_id(cli, args.namespace_name, &request.namespace_id);
        if (found != SF_CLI_OK)
            return found;
    }
    int exit_code = sf_cli_call(cli, "fsck", OPERATIONS "CheckCatalog", &request.base, &message);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    const Searchfabric__V1__CheckCatalogResponse *response =
        (const Searchfabric__V1__CheckCatalogResponse *)message;
    if (cli->json)
        sf_cli_print_json(message);
    else
        print_findings(response);
    return response->problems == response->repaired ? SF_CLI_OK : SF_CLI_DATA;
}

/* ---- replay ---- */

/* Fills the scope of a key of `kind`: "NAMESPACE" for namespaces, else "NAMESPACE/COLLECTION". Ids
 * in digits stand for either; a name is that of the newest lineage that bore it. */
static int resolve_scope(struct sf_cli *cli, const struct upkeep_args *args,
                         Searchfabric__V1__CommandScope *out)
{
    const char *slash = strchr(args->scope, '/');

    if (strcmp(args->kind, "PUT_NAMESPACE_METADATA") == 0) {
        out->namespace_name = sf_arena_str(cli->arena, sf_view_str(args->scope));
        return SF_CLI_OK;
    }
    if (slash == NULL || slash == args->scope || slash[1] == '\0')
        return sf_cli_usage("'%s' is not NAMESPACE/COLLECTION, the scope of this kind",
                            args->scope);
    struct sf_view space = sf_view_bytes(args->scope, (size_t)(slash - args->scope));
    if (strcmp(args->kind, "PUT_COLLECTION_METADATA") != 0) {
        struct sf_collection_ref ref = {0};
        int exit_code = SF_CLI_OK;
        if (!sf_parse_u64(space, &ref.namespace_id.v) ||
            !sf_parse_u64(sf_view_str(slash + 1), &ref.collection_id.v))
            exit_code = sf_cli_lineage_ref(cli, args->scope, &ref);
        out->namespace_id = ref.namespace_id.v;
        out->collection_id = ref.collection_id.v;
        return exit_code;
    }
    out->collection_name = sf_arena_str(cli->arena, sf_view_str(slash + 1));
    if (sf_parse_u64(space, &out->namespace_id))
        return SF_CLI_OK;
    return sf_cli_namespace_id(cli, sf_arena_str(cli->arena, space), &out->namespace_id);
}

static void print_replay(const Searchfabric__V1__ShowReplayResponse *response)
{
    printf("command   %s\nverdict   %s\n", response->command_identity, response->verdict);
    if (!response->found)
        return;
    printf("row       %s\ntransport %s\nbusiness  %s\n", response->row_present ? "yes" : "no",
           response->transport_pointer_present ? "yes" : "no",
           response->business_pointer_present ? "yes" : "no");
    if (response->success_json[0] != '\0')
        printf("answer    %s\n", response->success_json);
}

int sf_cli_replay(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"command", OPTION_COMMAND, "HEX", 0, "Its command identity, 64 hex digits", 0},
        {"kind", OPTION_KIND, "KIND", 0,
         "PUT_NAMESPACE_METADATA, PUT_COLLECTION_METADATA, PUT_COLLECTION_SCHEMA or "
         "DROP_COLLECTION",
         0},
        {"identity", OPTION_IDENTITY, "NAME", 0, "As authenticated; without it loopback", 0},
        {"scope", OPTION_SCOPE, "SCOPE", 0,
         "What the request named: a namespace's NAME, or NAMESPACE/COLLECTION by names or ids; a "
         "name is that of the newest lineage",
         0},
        {0}};
    static const struct argp argp = {
        options,
        parse,
        "show --command HEX\nshow --kind KIND --scope SCOPE",
        "What would this idempotency key (sfctl --key, --client-id) return? Give the command "
        "identity, or kind and scope.",
        NULL,
        NULL,
        NULL};
    struct upkeep_args args = {.identity = "loopback"};
    Searchfabric__V1__ShowReplayRequest request;
    Searchfabric__V1__CommandScope scope;
    const ProtobufCMessage *message = NULL;
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    if (args.words[0] == NULL || strcmp(args.words[0], "show") != 0 || args.words[1] != NULL)
        return sf_cli_usage("replay wants show");
    searchfabric__v1__show_replay_request__init(&request);
    searchfabric__v1__command_scope__init(&scope);
    if (args.command != NULL) {
        request.command_identity = sf_arena_str(cli->arena, sf_view_str(args.command));
    } else {
        if (args.kind == NULL || args.scope == NULL || cli->idempotency_key == NULL)
            return sf_cli_usage("replay show wants --command, or --kind, --scope and sfctl --key");
        int resolved = resolve_scope(cli, &args, &scope);
        if (resolved != SF_CLI_OK)
            return resolved;
        request.command_kind = sf_arena_str(cli->arena, sf_view_str(args.kind));
        request.authenticated_client_identity =
            sf_arena_str(cli->arena, sf_view_str(args.identity));
        request.client_id = sf_arena_str(cli->arena, sf_view_str(cli->client_id));
        request.idempotency_key = sf_arena_str(cli->arena, sf_view_str(cli->idempotency_key));
        request.scope = &scope;
    }
    int exit_code =
        sf_cli_call(cli, "replay show", OPERATIONS "ShowReplay", &request.base, &message);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    if (cli->json)
        sf_cli_print_json(message);
    else
        print_replay((const Searchfabric__V1__ShowReplayResponse *)message);
    return SF_CLI_OK;
}
