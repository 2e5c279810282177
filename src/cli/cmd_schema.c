/*
 * `sfctl schema create|get|list|report-ready`. Without --file a schema is made that suits documents
 * of any shape: ids from the allocator (omitted or explicit), undeclared fields stored.
 * report-ready says, as the serving side does, that the active generation can be queried; nothing
 * else ever promotes it.
 */
#include "cli/cli_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/pbjson.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"

#define SERVICE               "/searchfabric.v1.CatalogControlService/"
#define PRIVATE               "/searchfabric.v1.CatalogControlPrivateService/"
#define SCHEMA_FILE_MAX_BYTES ((size_t)4 << 20)
#define KIND_ADMIN            SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_CONTROL_ADMIN

static const char default_schema[] =
    "{\"collection_truth_mode\":\"COLLECTION_TRUTH_MODE_SEARCH_FABRIC\","
    "\"doc_id_mapping\":{\"generation_policy\":\"DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL\"},"
    "\"settings\":{\"allocator_admission_policy\":{"
    "\"caller_profile\":\"ALLOCATOR_CALLER_PROFILE_ES_WRITE_GATEWAY_ONLY\","
    "\"max_plan_items_per_request\":\"10000\",\"max_forward_reservation_jump\":\"1000000\"}},"
    "\"undeclared_fields\":\"UNDECLARED_FIELD_POLICY_STORE\"}";

/* What the command line said. */
struct schema_args {
    const char *action;
    const char *path;
    const char *file;
    const char *token;
    uint64_t version;
};

static bool read_file(const char *path, struct sf_buf *out)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rbe");
    if (file == NULL)
        return false;
    char chunk[4096];
    size_t got = 0;
    out->max_bytes = SCHEMA_FILE_MAX_BYTES;
    while ((got = fread(chunk, 1, sizeof(chunk), file)) > 0)
        sf_buf_append(out, chunk, got);
    bool ok = ferror(file) == 0 && !out->overflowed;
    if (file != stdin)
        (void)fclose(file);
    return ok;
}

static int load_definition(struct sf_cli *cli, const char *path,
                           Searchfabric__V1__CollectionSchemaDefinition **out)
{
    struct sf_buf text = {0};
    if (path == NULL)
        sf_buf_append_str(&text, default_schema);
    else if (!read_file(path, &text)) {
        sf_buf_fini(&text);
        return sf_cli_usage("cannot read %s: %s", path, strerror(errno));
    }
    ProtobufCMessage *message = NULL;
    enum sf_err err = sf_pbjson_decode(&searchfabric__v1__collection_schema_definition__descriptor,
                                       sf_buf_view(&text), cli->arena, &cli->diag, &message);
    sf_buf_fini(&text);
    if (err != SF_OK) {
        (void)sf_cli_fail(cli, path == NULL ? "default schema" : path);
        return SF_CLI_USAGE;
    }
    *out = (Searchfabric__V1__CollectionSchemaDefinition *)message;
    return SF_CLI_OK;
}

static int print_schema(const struct sf_cli *cli,
                        const Searchfabric__V1__CollectionSchemaDescriptor *schema)
{
    if (cli->json)
        sf_cli_print_json(&schema->base);
    else
        sf_cli_print_pretty(&schema->base);
    return SF_CLI_OK;
}

static int create(struct sf_cli *cli, const struct schema_args *args)
{
    struct sf_collection_ref ref;
    Searchfabric__V1__CollectionSchemaDefinition *definition = NULL;
    int exit_code = load_definition(cli, args->file, &definition);
    if (exit_code == SF_CLI_OK)
        exit_code = sf_cli_resolve_collection(cli, args->path, &ref);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    Searchfabric__V1__CollectionRef collection;
    searchfabric__v1__collection_ref__init(&collection);
    collection.namespace_id = ref.namespace_id.v;
    collection.collection_id = ref.collection_id.v;
    Searchfabric__V1__SchemaFencePrecondition fence;
    searchfabric__v1__schema_fence_precondition__init(&fence);
    fence.schema_generation_token = args->token == NULL
                                        ? sf_arena_printf(cli->arena, "v%" PRIu64, args->version)
                                        : sf_arena_str(cli->arena, sf_view_str(args->token));
    Searchfabric__V1__PutCollectionSchemaRequest request;
    searchfabric__v1__put_collection_schema_request__init(&request);
    request.meta = sf_cli_meta(cli, KIND_ADMIN, true);
    request.collection = &collection;
    request.schema_version = args->version;
    request.fence = &fence;
    request.definition = definition;
    const ProtobufCMessage *response = NULL;
    exit_code = sf_cli_call(cli, SERVICE "PutCollectionSchema", &request.base, &response);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    return print_schema(cli,
                        ((const Searchfabric__V1__PutCollectionSchemaResponse *)response)->schema);
}

static int fetch(struct sf_cli *cli, struct sf_collection_ref ref,
                 const Searchfabric__V1__CollectionSchemaDescriptor **out_schema)
{
    Searchfabric__V1__CollectionRef collection;
    searchfabric__v1__collection_ref__init(&collection);
    collection.namespace_id = ref.namespace_id.v;
    collection.collection_id = ref.collection_id.v;
    Searchfabric__V1__GetCollectionSchemaRequest request;
    searchfabric__v1__get_collection_schema_request__init(&request);
    request.meta = sf_cli_meta(cli, KIND_ADMIN, false);
    request.collection = &collection;
    const ProtobufCMessage *response = NULL;
    int exit_code = sf_cli_call(cli, SERVICE "GetCollectionSchema", &request.base, &response);
    if (exit_code == SF_CLI_OK)
        *out_schema = ((const Searchfabric__V1__GetCollectionSchemaResponse *)response)->schema;
    return exit_code;
}

static int get(struct sf_cli *cli, const char *path)
{
    struct sf_collection_ref ref;
    const Searchfabric__V1__CollectionSchemaDescriptor *schema = NULL;
    int exit_code = sf_cli_resolve_collection(cli, path, &ref);
    if (exit_code == SF_CLI_OK)
        exit_code = fetch(cli, ref, &schema);
    return exit_code == SF_CLI_OK ? print_schema(cli, schema) : exit_code;
}

static int report_ready(struct sf_cli *cli, const char *path)
{
    struct sf_collection_ref ref;
    const Searchfabric__V1__CollectionSchemaDescriptor *schema = NULL;
    int exit_code = sf_cli_resolve_collection(cli, path, &ref);
    if (exit_code == SF_CLI_OK)
        exit_code = fetch(cli, ref, &schema);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    Searchfabric__V1__ReportSchemaConvergenceSignalRequest request;
    searchfabric__v1__report_schema_convergence_signal_request__init(&request);
    request.collection = schema->collection;
    request.schema_version = schema->applied_schema_version;
    request.schema_generation_token = schema->applied_schema_generation_token;
    request.signal =
        SEARCHFABRIC__V1__SCHEMA_CONVERGENCE_SIGNAL__SCHEMA_CONVERGENCE_SIGNAL_SERVING_GENERATION_READY;
    const ProtobufCMessage *response = NULL;
    exit_code = sf_cli_call(cli, PRIVATE "ReportSchemaConvergenceSignal", &request.base, &response);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    if (cli->json)
        sf_cli_print_json(response);
    else
        printf("%s: generation %s is READY\n", path, schema->applied_schema_generation_token);
    return SF_CLI_OK;
}

static const char *state_text(const Searchfabric__V1__SchemaSyncState *state)
{
    static const char *const names[] = {"-", "applying", "ready", "drifted", "error"};
    unsigned index = state == NULL ? 0 : (unsigned)state->state_case;
    return index < SF_ARRAY_LEN(names) ? names[index] : "-";
}

/* One line of the schema list: a collection without a schema shows dashes. */
static void list_one(struct sf_cli *cli, struct sf_cli_table *table,
                     const Searchfabric__V1__CollectionDescriptor *descriptor)
{
    Searchfabric__V1__GetSchemaSyncStatusRequest request;
    searchfabric__v1__get_schema_sync_status_request__init(&request);
    request.meta = sf_cli_meta(cli, KIND_ADMIN, false);
    request.collection = descriptor->collection;
    struct sf_call_options call = {.timeout_ms = cli->timeout_ms};
    const ProtobufCMessage *response = NULL;
    const char *cells[] = {descriptor->collection_name, "-", "-", "no schema"};
    if (sf_channel_unary_wait(cli->channel, NULL, SERVICE "GetSchemaSyncStatus", &request.base,
                              &call, cli->arena, &cli->diag, &response) == SF_OK) {
        const Searchfabric__V1__GetSchemaSyncStatusResponse *got = (const void *)response;
        cells[1] = sf_arena_printf(cli->arena, "%" PRIu64, got->applied_schema_version);
        cells[2] = got->applied_schema_generation_token;
        cells[3] = state_text(got->state);
    }
    if (cli->json)
        printf("{\"collection_name\":\"%s\",\"schema_version\":\"%s\",\"schema_generation_token\":"
               "\"%s\","
               "\"state\":\"%s\"}\n",
               cells[0], cells[1], cells[2], cells[3]);
    else
        sf_cli_table_row(table, cells);
}

static int list(struct sf_cli *cli, const char *namespace_name)
{
    static const char *const titles[] = {"COLLECTION", "VERSION", "TOKEN", "STATE"};
    Searchfabric__V1__PageRequest page;
    searchfabric__v1__page_request__init(&page);
    Searchfabric__V1__ListCollectionsRequest request;
    searchfabric__v1__list_collections_request__init(&request);
    int exit_code = sf_cli_resolve_namespace(cli, namespace_name, &request.namespace_id);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    request.meta = sf_cli_meta(cli, KIND_ADMIN, false);
    request.page = &page;
    struct sf_cli_table table;
    sf_cli_table_begin(&table, cli->json ? 0 : SF_ARRAY_LEN(titles), titles);
    bool more = true;
    while (more && exit_code == SF_CLI_OK) {
        const ProtobufCMessage *response = NULL;
        exit_code = sf_cli_call(cli, SERVICE "ListCollections", &request.base, &response);
        if (exit_code != SF_CLI_OK)
            break;
        const Searchfabric__V1__ListCollectionsResponse *got = (const void *)response;
        for (size_t i = 0; i < got->n_collections; i++)
            list_one(cli, &table, got->collections[i]);
        more = got->next_page != NULL && got->next_page->token[0] != '\0';
        if (more)
            page.page_token = got->next_page->token;
    }
    sf_cli_table_end(&table);
    return exit_code;
}

static const struct argp_option options[] = {
    {"file", 'f', "FILE", 0, "create: definition as JSON ('-' = standard input)", 0},
    {"schema-version", 'v', "N", 0, "create: version, greater than the active one (default 1)", 0},
    {"token", 't', "TEXT", 0, "create: generation token (default v<N>)", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct schema_args *args = state->input;
    char *end = NULL;
    switch (key) {
    case 'f':
        args->file = arg;
        return 0;
    case 't':
        args->token = arg;
        return 0;
    case 'v':
        args->version = strtoull(arg, &end, 10);
        if (*arg < '1' || *arg > '9' || *end != '\0')
            argp_error(state, "--schema-version wants a number above 0");
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num == 0)
            args->action = arg;
        else if (state->arg_num == 1)
            args->path = arg;
        else
            return ARGP_ERR_UNKNOWN;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int sf_cli_schema(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "create NAMESPACE/NAME\nget NAMESPACE/NAME\nlist NAMESPACE\nreport-ready NAMESPACE/NAME",
        "Admits, reads and lists schema generations, and reports the active one as ready to serve "
        "queries.",
        NULL,
        NULL,
        NULL};
    struct schema_args args = {.version = 1};
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0 || args.action == NULL ||
        args.path == NULL)
        return sf_cli_usage("schema wants create, get or report-ready NS/NAME, or list NS");
    if (strcmp(args.action, "create") == 0)
        return create(cli, &args);
    if (strcmp(args.action, "get") == 0)
        return get(cli, args.path);
    if (strcmp(args.action, "list") == 0)
        return list(cli, args.path);
    if (strcmp(args.action, "report-ready") == 0)
        return report_ready(cli, args.path);
    return sf_cli_usage("schema wants create, get or report-ready NS/NAME, or list NS");
}
