/* `sfctl collection create|get|list`. */
#include "cli/cli_priv.h"

#include <inttypes.h>

#define SERVICE "/searchfabric.v1.CatalogControlService/"

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
    sf_cli_table_end(&table);
    return SF_CLI_OK;
}

/* Resolves the namespace half of "NS/NAME" and fills the binding. */
static int make_binding(struct sf_cli *cli, const char *path,
                        Searchfabric__V1__CollectionNameBinding *binding)
{
    const char *namespace_name = NULL;
    const char *collection_name = NULL;
    searchfabric__v1__collection_name_binding__init(binding);
    if (!sf_cli_split_path(cli, path, &namespace_name, &collection_name))
        return SF_CLI_USAGE;
    binding->collection_name = sf_arena_str(cli->arena, sf_view_str(collection_name));
    return sf_cli_resolve_namespace(cli, namespace_name, &binding->namespace_id);
}

static int create(struct sf_cli *cli, const char *path)
{
    Searchfabric__V1__CollectionNameBinding binding;
    int exit_code = make_binding(cli, path, &binding);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    Searchfabric__V1__ProviderManagedEncryption managed;
    searchfabric__v1__provider_managed_encryption__init(&managed);
    Searchfabric__V1__EncryptionPolicy encryption;
    searchfabric__v1__encryption_policy__init(&encryption);
    encryption.mode_case = SEARCHFABRIC__V1__ENCRYPTION_POLICY__MODE_PROVIDER_MANAGED;
    encryption.provider_managed = &managed;
    Searchfabric__V1__PutCollectionMetadataRequest request;
    searchfabric__v1__put_collection_metadata_request__init(&request);
    request.meta = sf_cli_meta(cli, SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_CONTROL_ADMIN, true);
    request.name_binding = &binding;
    request.encryption = &encryption;
    const ProtobufCMessage *response = NULL;
    exit_code = sf_cli_call(cli, SERVICE "PutCollectionMetadata", &request.base, &response);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    return print_one(
        cli, ((const Searchfabric__V1__PutCollectionMetadataResponse *)response)->descriptor);
}

static int get(struct sf_cli *cli, const char *path)
{
    Searchfabric__V1__CollectionNameBinding binding;
    int exit_code = make_binding(cli, path, &binding);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    Searchfabric__V1__GetCollectionMetadataRequest request;
    searchfabric__v1__get_collection_metadata_request__init(&request);
    request.meta =
        sf_cli_meta(cli, SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_CONTROL_ADMIN, false);
    request.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_NAME_BINDING;
    request.name_binding = &binding;
    const ProtobufCMessage *response = NULL;
    exit_code = sf_cli_call(cli, SERVICE "GetCollectionMetadata", &request.base, &response);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    return print_one(
        cli, ((const Searchfabric__V1__GetCollectionMetadataResponse *)response)->descriptor);
}

static int list(struct sf_cli *cli, const char *namespace_name, const char *prefix)
{
    Searchfabric__V1__PageRequest page;
    searchfabric__v1__page_request__init(&page);
    Searchfabric__V1__ListCollectionsRequest request;
    searchfabric__v1__list_collections_request__init(&request);
    int exit_code = sf_cli_resolve_namespace(cli, namespace_name, &request.namespace_id);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    request.meta =
        sf_cli_meta(cli, SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_CONTROL_ADMIN, false);
    request.prefix = sf_arena_str(cli->arena, sf_view_str(prefix));
    request.page = &page;
    struct sf_cli_table table;
    if (!cli->json)
        sf_cli_table_begin(&table, SF_ARRAY_LEN(titles), titles);
    bool more = true;
    while (more && exit_code == SF_CLI_OK) {
        const ProtobufCMessage *response = NULL;
        exit_code = sf_cli_call(cli, SERVICE "ListCollections", &request.base, &response);
        if (exit_code != SF_CLI_OK)
            break;
        const Searchfabric__V1__ListCollectionsResponse *got = (const void *)response;
        for (size_t i = 0; i < got->n_collections; i++) {
            if (cli->json)
                sf_cli_print_json(&got->collections[i]->base);
            else
                print_row(&table, got->collections[i]);
        }
        more = got->next_page != NULL && got->next_page->token[0] != '\0';
        if (more)
            page.page_token = got->next_page->token;
    }
    if (!cli->json)
        sf_cli_table_end(&table);
    return exit_code;
}

/* What the command line said. */
struct collection_args {
    const char *action;
    const char *path;
    const char *prefix;
};

static const struct argp_option options[] = {
    {"prefix", 'p', "TEXT", 0, "list: only names that start with TEXT", 0}, {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct collection_args *args = state->input;
    if (key == 'p') {
        args->prefix = arg;
        return 0;
    }
    if (key == ARGP_KEY_ARG && state->arg_num == 0) {
        args->action = arg;
        return 0;
    }
    if (key == ARGP_KEY_ARG && state->arg_num == 1) {
        args->path = arg;
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

int sf_cli_collection(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "create NAMESPACE/NAME\nget NAMESPACE/NAME\nlist NAMESPACE",
        "Creates, reads and lists collections. A new collection takes rows once it has "
        "a schema (sfctl schema create).",
        NULL,
        NULL,
        NULL};
    struct collection_args args = {.prefix = ""};
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0 || args.action == NULL ||
        args.path == NULL)
        return sf_cli_usage("collection wants create NS/NAME, get NS/NAME or list NS");
    if (strcmp(args.action, "list") == 0)
        return list(cli, args.path, args.prefix);
    if (strcmp(args.action, "create") == 0)
        return create(cli, args.path);
    if (strcmp(args.action, "get") == 0)
        return get(cli, args.path);
    return sf_cli_usage("collection wants create NS/NAME, get NS/NAME or list NS");
}
