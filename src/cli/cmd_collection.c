/* `sfctl collection create|get|list|show|drop`. */
#include "cli/cli_priv.h"

#include <inttypes.h>

static const char *const titles[] = {"COLLECTION", "ID", "NAMESPACE ID", "CREATED", "COMPLETENESS"};

static void print_row(struct sf_cli_table *table,
                      const Searchfabric__V1__CollectionDescriptor *descriptor)
{
    char id[24];
    char namespace_id[24];
    char created[32];
    snprintf(id, sizeof(id), "%" PRIu64, descriptor->collection->collection_id);
    snprintf(namespace_id, sizeof(namespace_id), "%" PRIu64, descriptor->collection->namespace_id);
    sf_cli_format_unix_ms(descriptor->created_at_unix_ms, created);
    bool publishing = descriptor->completeness != NULL &&
                      descriptor->completeness->state_case ==
                          SEARCHFABRIC__V1__DESCRIPTOR_COMPLETENESS__STATE_PUBLISHING;
    const char *cells[] = {descriptor->collection_name, id, namespace_id, created,
                           publishing ? "publishing" : "ready"};
    sf_cli_table_row(table, cells);
}

static int print_one(const struct sf_cli *cli,
                     const Searchfabric__V1__CollectionDescriptor *descriptor)
{
    if (cli->json) {
        sf_cli_print_json(&descriptor->base);
        return SF_CLI_OK;
    }
    struct sf_cli_table table;
    sf_cli_table_begin(&table, SF_ARRAY_LEN(titles), titles);
    print_row(&table, descriptor);
    sf_cli_table_end(&table, stdout);
    return SF_CLI_OK;
}

static int create(struct sf_cli *cli, const char *path)
{
    Searchfabric__V1__CollectionNameBinding binding;
    Searchfabric__V1__PutCollectionMetadataRequest request;
    const ProtobufCMessage *response = NULL;
    int exit_code = sf_cli_bind_name(cli, path, &binding);

    if (exit_code != SF_CLI_OK)
        return exit_code;
    searchfabric__v1__put_collection_metadata_request__init(&request);
    request.meta = sf_cli_meta(cli, SF_CLI_KIND_ADMIN, true);
    request.name_binding = &binding;
    request.encryption = sf_cli_encryption(cli);
    exit_code = sf_cli_call(cli, sf_arena_printf(cli->arena, "collection %s", path),
                            SF_CLI_CATALOG "PutCollectionMetadata", &request.base, &response);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    return print_one(
        cli, ((const Searchfabric__V1__PutCollectionMetadataResponse *)response)->descriptor);
}

static int get(struct sf_cli *cli, const char *path)
{
    const Searchfabric__V1__CollectionDescriptor *descriptor = NULL;
    int exit_code = sf_cli_get_collection(cli, path, &descriptor);

    return exit_code == SF_CLI_OK ? print_one(cli, descriptor) : exit_code;
}

/* Where a list goes. */
struct collection_list {
    const struct sf_cli *cli;  /* for --json */
    struct sf_cli_table table; /* begun when cli->json is off */
};

static int list_one(void *user, const Searchfabric__V1__CollectionDescriptor *descriptor)
{
    struct collection_list *out = user;

    if (out->cli->json)
        sf_cli_print_json(&descriptor->base);
    else
        print_row(&out->table, descriptor);
    return SF_CLI_OK;
}

static int list(struct sf_cli *cli, const char *namespace_name, struct sf_cli_list *wanted)
{
    struct collection_list out = {.cli = cli};

    if (!cli->json)
        sf_cli_table_begin(&out.table, SF_ARRAY_LEN(titles), titles);
    int exit_code = sf_cli_each_collection(cli, namespace_name, wanted, list_one, &out);
    sf_cli_table_end(&out.table, exit_code == SF_CLI_OK ? stdout : NULL);
    return exit_code;
}

/* What the command line said. */
struct collection_args {
    const char *words[2];    /* action, path */
    struct sf_cli_list list; /* --prefix, --limit */
    const char *fence;       /* --fence, NULL = unconditional */
};

enum { OPTION_FENCE = SF_CLI_FLAG_OWN };

static const struct argp_option options[] = {
    SF_CLI_OPTION_PREFIX("list: only names that start with TEXT"),
    SF_CLI_OPTION_LIMIT("list: at most N collections (default all)"),
    {"fence", OPTION_FENCE, "TOKEN", 0, "drop: only while TOKEN names the active schema generation",
     0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct collection_args *args = state->input;

    if (sf_cli_take_list(&args->list, key, arg, state))
        return 0;
    switch (key) {
    case OPTION_FENCE:
        args->fence = arg;
        return 0;
    case ARGP_KEY_ARG:
        return sf_cli_take_word(args->words, SF_ARRAY_LEN(args->words), arg, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int sf_cli_collection(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "create NAMESPACE/NAME\nget NAMESPACE/NAME\nlist NAMESPACE\nshow NAMESPACE/NAME\n"
        "drop NAMESPACE/NAME",
        "Creates, reads, lists and drops collections. A new collection takes rows once it has "
        "a schema (sfctl schema create). Creating one that exists changes nothing and shows it.\v"
        "COMPLETENESS is that of the descriptor: 'publishing' while a fact of it is not known "
        "yet; it says nothing about whether the collection takes rows (sfctl schema list does). "
        "A dropped collection is gone at once; its name is free after the configured delay. show "
        "tells the private state, also of a dropped collection.",
        NULL,
        NULL,
        NULL};
    struct collection_args args = {.list = {.prefix = "", .limit = UINT32_MAX}};

    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    const char *action = args.words[0] == NULL ? "" : args.words[0];
    const char *path = args.words[1];
    if (path != NULL && strcmp(action, "list") == 0)
        return list(cli, path, &args.list);
    if (path != NULL && strcmp(action, "create") == 0)
        return create(cli, path);
    if (path != NULL && strcmp(action, "get") == 0)
        return get(cli, path);
    if (path != NULL && strcmp(action, "show") == 0)
        return sf_cli_collection_show(cli, path);
    if (path != NULL && strcmp(action, "drop") == 0)
        return sf_cli_collection_drop(cli, path, args.fence);
    return sf_cli_usage("collection wants create, get, show or drop NS/NAME, or list NS");
}
