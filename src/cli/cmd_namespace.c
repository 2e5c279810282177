/* `sfctl namespace create|get|list|show|transition`. */
#include "cli/cli_priv.h"

#include <inttypes.h>

static const char *lifecycle_text(const Searchfabric__V1__NamespaceDescriptor *descriptor)
{
    const Searchfabric__V1__NamespaceLifecycle *lifecycle = descriptor->lifecycle;
    bool quiescing =
        lifecycle != NULL &&
        lifecycle->state_case == SEARCHFABRIC__V1__NAMESPACE_LIFECYCLE__STATE_QUIESCING;
    return quiescing ? "quiescing" : "active";
}

static void print_row(struct sf_cli_table *table,
                      const Searchfabric__V1__NamespaceDescriptor *descriptor)
{
    char id[24];
    char created[32];
    char rows[24] = "-";
    snprintf(id, sizeof(id), "%" PRIu64, descriptor->namespace_id);
    sf_cli_format_unix_ms(descriptor->created_at_unix_ms, created);
    if (descriptor->approx_stats != NULL)
        snprintf(rows, sizeof(rows), "%" PRIu64, descriptor->approx_stats->approx_row_count);
    const char *cells[] = {descriptor->namespace_name, id, lifecycle_text(descriptor), created,
                           rows};
    sf_cli_table_row(table, cells);
}

static const char *const titles[] = {"NAMESPACE", "ID", "LIFECYCLE", "CREATED", "ROWS"};

static int print_one(const struct sf_cli *cli,
                     const Searchfabric__V1__NamespaceDescriptor *descriptor)
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

static int create(struct sf_cli *cli, const char *name)
{
    Searchfabric__V1__PutNamespaceMetadataRequest request;
    searchfabric__v1__put_namespace_metadata_request__init(&request);
    request.meta = sf_cli_meta(cli, SF_CLI_KIND_ADMIN, true);
    request.namespace_name = sf_arena_str(cli->arena, sf_view_str(name));
    request.encryption = sf_cli_encryption(cli);
    const ProtobufCMessage *response = NULL;
    int exit_code = sf_cli_call(cli, sf_arena_printf(cli->arena, "namespace %s", name),
                                SF_CLI_CATALOG "PutNamespaceMetadata", &request.base, &response);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    return print_one(
        cli, ((const Searchfabric__V1__PutNamespaceMetadataResponse *)response)->descriptor);
}

static int get(struct sf_cli *cli, const char *name)
{
    const Searchfabric__V1__NamespaceDescriptor *descriptor = NULL;
    int exit_code = sf_cli_get_namespace(cli, name, &descriptor);

    return exit_code == SF_CLI_OK ? print_one(cli, descriptor) : exit_code;
}

static int list(struct sf_cli *cli, struct sf_cli_list *wanted)
{
    Searchfabric__V1__PageRequest page;
    searchfabric__v1__page_request__init(&page);
    Searchfabric__V1__ListNamespacesRequest request;
    searchfabric__v1__list_namespaces_request__init(&request);
    request.meta = sf_cli_meta(cli, SF_CLI_KIND_ADMIN, false);
    request.prefix = sf_arena_str(cli->arena, sf_view_str(wanted->prefix));
    request.page = &page;
    page.page_size = sf_cli_page_size(wanted);
    struct sf_cli_table table = {0};
    if (!cli->json)
        sf_cli_table_begin(&table, SF_ARRAY_LEN(titles), titles);
    int exit_code = SF_CLI_OK;
    bool more = true;
    while (more && wanted->limit > 0 && exit_code == SF_CLI_OK) {
        const ProtobufCMessage *response = NULL;
        exit_code =
            sf_cli_call(cli, NULL, SF_CLI_CATALOG "ListNamespaces", &request.base, &response);
        if (exit_code != SF_CLI_OK)
            break;
        const Searchfabric__V1__ListNamespacesResponse *got = (const void *)response;
        for (size_t i = 0; i < got->n_namespaces && wanted->limit > 0; i++, wanted->limit--) {
            if (cli->json)
                sf_cli_print_json(&got->namespaces[i]->base);
            else
                print_row(&table, got->namespaces[i]);
        }
        more = got->next_page != NULL && got->next_page->token[0] != '\0';
        if (more)
            page.page_token = got->next_page->token;
    }
    sf_cli_table_end(&table, exit_code == SF_CLI_OK ? stdout : NULL);
    return exit_code;
}

/* What the command line said. */
struct namespace_args {
    const char *words[3];    /* action, name, state */
    struct sf_cli_list list; /* --prefix, --limit */
};

static const struct argp_option options[] = {
    SF_CLI_OPTION_PREFIX("list: only names that start with TEXT"),
    SF_CLI_OPTION_LIMIT("list: at most N namespaces (default all)"),
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct namespace_args *args = state->input;

    if (sf_cli_take_list(&args->list, key, arg, state))
        return 0;
    switch (key) {
    case ARGP_KEY_ARG:
        return sf_cli_take_word(args->words, SF_ARRAY_LEN(args->words), arg, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int sf_cli_namespace(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "create NAME\nget NAME|ID\nlist\nshow NAME|ID\ntransition NAME|ID STATE",
        "Creates, reads and lists namespaces. A namespace holds collections; its name is "
        "1 to 128 characters in NFC. Creating one that exists changes nothing and shows it.\v"
        "ID is the id in digits: what is all digits is an id, never a name. STATE is active, "
        "quiescing (takes no new collections) or "
        "tombstoned (hidden for ever, "
        "once "
        "it has no active collection; its name is free after the configured delay). show tells the "
        "private state, also of a tombstoned namespace.",
        NULL,
        NULL,
        NULL};
    struct namespace_args args = {.list = {.prefix = "", .limit = UINT32_MAX}};

    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    const char *action = args.words[0] == NULL ? "" : args.words[0];
    const char *name = args.words[1];
    if (strcmp(action, "transition") == 0 && args.words[2] != NULL)
        return sf_cli_namespace_transition(cli, name, args.words[2]);
    if (args.words[2] != NULL)
        name = NULL; /* no other action has a third word */
    if (strcmp(action, "show") == 0 && name != NULL)
        return sf_cli_namespace_show(cli, name);
    if (strcmp(action, "list") == 0 && args.words[1] == NULL)
        return list(cli, &args.list);
    if (strcmp(action, "create") == 0 && name != NULL)
        return create(cli, name);
    if (strcmp(action, "get") == 0 && name != NULL)
        return get(cli, name);
    return sf_cli_usage(
        "namespace wants create NAME, get NAME|ID, list, show NAME|ID or transition NAME|ID "
        "active|quiescing|tombstoned");
}
