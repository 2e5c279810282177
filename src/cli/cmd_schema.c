/*
 * `sfctl schema create|get|list|report-ready`. Without --file a schema is made that suits documents
 * of any shape: ids from the allocator (omitted or explicit), undeclared fields stored.
 * report-ready says, as the serving side does, that the active generation can be queried; nothing
 * else ever promotes it.
 */
#include "cli/cli_priv.h"

#include <errno.h>
#include <inttypes.h>

#include "base/pbjson.h"
#include "base/text.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"

#define PRIVATE               "/searchfabric.v1.CatalogControlPrivateService/"
#define SCHEMA_FILE_MAX_BYTES ((size_t)4 << 20)

static const char default_schema[] =
    "{\"collection_truth_mode\":\"COLLECTION_TRUTH_MODE_SEARCH_FABRIC\","
    "\"doc_id_mapping\":{\"generation_policy\":\"DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL\"},"
    "\"settings\":{\"allocator_admission_policy\":{"
    "\"caller_profile\":\"ALLOCATOR_CALLER_PROFILE_ES_WRITE_GATEWAY_ONLY\","
    "\"max_plan_items_per_request\":\"10000\",\"max_forward_reservation_jump\":\"1000000\"}},"
    "\"undeclared_fields\":\"UNDECLARED_FIELD_POLICY_STORE\"}";

/* What the command line said. */
struct schema_args {
    const char *words[2];    /* action, path */
    const char *file;        /* --file, NULL = the definition for documents of any shape */
    const char *token;       /* --token, NULL = v<version> */
    uint64_t version;        /* --schema-version */
    struct sf_cli_list list; /* --prefix, --limit */
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

/* The first message in `message` that holds a member its type does not know, or NULL. What the
 * codec keeps for newer writers is a slip of the pen in a file that a person wrote. */
static const ProtobufCMessage *find_unknown(const ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;

    if (message->n_unknown_fields > 0)
        return message;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        const char *at = (const char *)message + field->offset;
        const char *quantifier = (const char *)message + field->quantifier_offset;
        bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
        bool oneof = (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0;
        if (field->type != PROTOBUF_C_TYPE_MESSAGE ||
            (oneof && *(const uint32_t *)(const void *)quantifier != field->id))
            continue;
        size_t count = repeated ? *(const size_t *)(const void *)quantifier : 1;
        const ProtobufCMessage *const *items = (const void *)at;
        if (repeated)
            items = *(const ProtobufCMessage *const *const *)(const void *)at;
        for (size_t k = 0; k < count; k++) {
            const ProtobufCMessage *found = items[k] == NULL ? NULL : find_unknown(items[k]);
            if (found != NULL)
                return found;
        }
    }
    return NULL;
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
    const ProtobufCMessage *odd = find_unknown(message);
    if (odd != NULL)
        return sf_cli_usage("%s: unknown member in a message of type %s", path,
                            odd->descriptor->short_name);
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
        exit_code = sf_cli_resolve_collection(cli, args->words[1], &ref);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    Searchfabric__V1__SchemaFencePrecondition fence;
    searchfabric__v1__schema_fence_precondition__init(&fence);
    fence.schema_generation_token = args->token == NULL
                                        ? sf_arena_printf(cli->arena, "v%" PRIu64, args->version)
                                        : sf_arena_str(cli->arena, sf_view_str(args->token));
    Searchfabric__V1__PutCollectionSchemaRequest request;
    searchfabric__v1__put_collection_schema_request__init(&request);
    request.meta = sf_cli_meta(cli, SF_CLI_KIND_ADMIN, true);
    request.collection = sf_cli_collection_ref(cli, ref);
    request.schema_version = args->version;
    request.fence = &fence;
    request.definition = definition;
    const ProtobufCMessage *response = NULL;
    exit_code = sf_cli_call(cli, sf_arena_printf(cli->arena, "schema of %s", args->words[1]),
                            SF_CLI_CATALOG "PutCollectionSchema", &request.base, &response);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    return print_schema(cli,
                        ((const Searchfabric__V1__PutCollectionSchemaResponse *)response)->schema);
}

static int fetch(struct sf_cli *cli, const char *path,
                 const Searchfabric__V1__CollectionSchemaDescriptor **out_schema)
{
    struct sf_collection_ref ref;
    Searchfabric__V1__GetCollectionSchemaRequest request;
    int exit_code = sf_cli_resolve_collection(cli, path, &ref);

    if (exit_code != SF_CLI_OK)
        return exit_code;
    searchfabric__v1__get_collection_schema_request__init(&request);
    request.meta = sf_cli_meta(cli, SF_CLI_KIND_ADMIN, false);
    request.collection = sf_cli_collection_ref(cli, ref);
    const ProtobufCMessage *response = NULL;
    exit_code = sf_cli_call(cli, sf_arena_printf(cli->arena, "schema of %s", path),
                            SF_CLI_CATALOG "GetCollectionSchema", &request.base, &response);
    if (exit_code == SF_CLI_OK)
        *out_schema = ((const Searchfabric__V1__GetCollectionSchemaResponse *)response)->schema;
    return exit_code;
}

static int get(struct sf_cli *cli, const char *path)
{
    const Searchfabric__V1__CollectionSchemaDescriptor *schema = NULL;
    int exit_code = fetch(cli, path, &schema);
    return exit_code == SF_CLI_OK ? print_schema(cli, schema) : exit_code;
}

static int report_ready(struct sf_cli *cli, const char *path)
{
    const Searchfabric__V1__CollectionSchemaDescriptor *schema = NULL;
    int exit_code = fetch(cli, path, &schema);
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
    exit_code = sf_cli_call(cli, sf_arena_printf(cli->arena, "schema of %s", path),
                            PRIVATE "ReportSchemaConvergenceSignal", &request.base, &response);
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

/* Where a list goes. */
struct schema_list {
    struct sf_cli *cli;        /* to ask with */
    struct sf_cli_table table; /* begun when cli->json is off */
};

static void print_state(struct schema_list *out, const char *collection_name,
                        const Searchfabric__V1__GetSchemaSyncStatusResponse *got)
{
    char version[24] = "";
    const char *token = got == NULL ? NULL : got->applied_schema_generation_token;
    const char *state = got == NULL ? "no schema" : state_text(got->state);

    if (out->cli->json) {
        struct sf_cli_json json;
        sf_cli_json_begin(&json);
        sf_cli_json_str(&json, "collection_name", collection_name);
        if (got == NULL)
            sf_cli_json_str(&json, "schema_version", NULL);
        else
            sf_cli_json_u64(&json, "schema_version", got->applied_schema_version);
        sf_cli_json_str(&json, "schema_generation_token", token);
        sf_cli_json_str(&json, "state", got == NULL ? NULL : state);
        sf_cli_json_end(&json, stdout);
        return;
    }
    if (got != NULL)
        snprintf(version, sizeof(version), "%" PRIu64, got->applied_schema_version);
    const char *cells[] = {collection_name, version, token, state};
    sf_cli_table_row(&out->table, cells);
}

/* True when the server says that the collection has no schema yet. */
static bool is_without_schema(const struct sf_diag *diag)
{
    const char *reason = sf_diag_get(diag, "catalog_unavailable_reason");

    return diag->err == SF_CATALOG_UNAVAILABLE && reason != NULL &&
           strcmp(reason, "schema_bootstrap") == 0;
}

/* One line of the schema list. Asked without sf_cli_call: a collection without a schema is no error
 * here. */
static int list_one(void *user, const Searchfabric__V1__CollectionDescriptor *descriptor)
{
    struct schema_list *out = user;
    struct sf_cli *cli = out->cli;
    struct sf_call_options options = {.timeout_ms = cli->timeout_ms};
    const ProtobufCMessage *response = NULL;
    Searchfabric__V1__GetSchemaSyncStatusRequest request;

    searchfabric__v1__get_schema_sync_status_request__init(&request);
    request.meta = sf_cli_meta(cli, SF_CLI_KIND_ADMIN, false);
    request.collection = descriptor->collection;
    sf_diag_init(&cli->diag);
    if (sf_channel_unary_wait(cli->channel, NULL, SF_CLI_CATALOG "GetSchemaSyncStatus",
                              &request.base, &options, cli->arena, &cli->diag,
                              &response) != SF_OK &&
        !is_without_schema(&cli->diag))
        return sf_cli_fail(cli, descriptor->collection_name);
    print_state(out, descriptor->collection_name, (const void *)response);
    return SF_CLI_OK;
}

static int list(struct sf_cli *cli, const char *namespace_name, struct sf_cli_list *wanted)
{
    static const char *const titles[] = {"COLLECTION", "VERSION", "TOKEN", "STATE"};
    struct schema_list out = {.cli = cli};

    if (!cli->json)
        sf_cli_table_begin(&out.table, SF_ARRAY_LEN(titles), titles);
    int exit_code = sf_cli_each_collection(cli, namespace_name, wanted, list_one, &out);
    sf_cli_table_end(&out.table, exit_code == SF_CLI_OK ? stdout : NULL);
    return exit_code;
}

enum { OPTION_FILE = SF_CLI_FLAG_OWN, OPTION_VERSION, OPTION_TOKEN };

static const struct argp_option options[] = {
    SF_CLI_OPTION_PREFIX("list: only collections whose names start with TEXT"),
    SF_CLI_OPTION_LIMIT("list: at most N collections (default all)"),
    {"file", OPTION_FILE, "FILE", 0, "create: definition as JSON ('-' = standard input)", 0},
    {"schema-version", OPTION_VERSION, "N", 0,
     "create: version, greater than the active one (default 1)", 0},
    {"token", OPTION_TOKEN, "TEXT", 0, "create: generation token (default v<N>)", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct schema_args *args = state->input;

    if (sf_cli_take_list(&args->list, key, arg, state))
        return 0;
    switch (key) {
    case OPTION_FILE:
        args->file = arg;
        return 0;
    case OPTION_TOKEN:
        args->token = arg;
        return 0;
    case OPTION_VERSION:
        if (!sf_parse_u64(sf_view_str(arg), &args->version) || args->version == 0)
            argp_error(state, "--schema-version wants a number above 0");
        return 0;
    case ARGP_KEY_ARG:
        return sf_cli_take_word(args->words, SF_ARRAY_LEN(args->words), arg, state);
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
        "queries.\v"
        "Without --file, create admits a schema for documents of any shape whose ids come from the "
        "allocator. A file holds a CollectionSchemaDefinition as JSON; `sfctl --json schema get` "
        "shows one under \"definition\".",
        NULL,
        NULL,
        NULL};
    struct schema_args args = {.version = 1, .list = {.prefix = "", .limit = UINT32_MAX}};

    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    const char *action = args.words[0] == NULL ? "" : args.words[0];
    const char *path = args.words[1];
    if (path != NULL && strcmp(action, "create") == 0)
        return create(cli, &args);
    if (path != NULL && strcmp(action, "get") == 0)
        return get(cli, path);
    if (path != NULL && strcmp(action, "list") == 0)
        return list(cli, path, &args.list);
    if (path != NULL && strcmp(action, "report-ready") == 0)
        return report_ready(cli, path);
    return sf_cli_usage("schema wants create, get or report-ready NS/NAME, or list NS");
}
