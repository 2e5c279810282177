/*
 * The connection of sfctl: one reactor, one gRPC channel, calls that wait. Names are resolved to
 * stable references on each use; nothing is cached between calls, so that what is printed is what
 * the server says now.
 */
#include "cli/cli_priv.h"

#include "base/hash.h"
#include "base/rng.h"
#include "searchfabric/v1/search_fabric.pb-c.h"

int sf_cli_fail(struct sf_cli *cli, const char *what)
{
    const struct sf_err_info *info = sf_err_info(cli->diag.err);
    fprintf(stderr, "sfctl: %s: %s %s", what, info->code[0] == '\0' ? info->name : info->code,
            cli->diag.message);
    for (unsigned i = 0; i < cli->diag.detail_count; i++)
        fprintf(stderr, "%s%s=%s", i == 0 ? " (" : " ", cli->diag.details[i].key,
                cli->diag.details[i].value);
    fputs(cli->diag.detail_count == 0 ? "\n" : ")\n", stderr);
    bool later = info->cls == SF_CLASS_RETRY_LATER || cli->diag.err == SF_DEADLINE_EXCEEDED;
    return later ? SF_CLI_UNAVAILABLE : SF_CLI_REFUSED;
}

int sf_cli_connect(struct sf_cli *cli)
{
    if (cli->channel != NULL)
        return SF_CLI_OK;
    if (sf_reactors_start(1, sf_clock_system(), &cli->diag, &cli->reactors) != SF_OK)
        return sf_cli_fail(cli, "start");
    if (sf_grpc_channel_new(sf_reactors_loop(cli->reactors, 0), cli->host, cli->port, &cli->diag,
                            &cli->channel) != SF_OK)
        return sf_cli_fail(cli, "connect");
    return SF_CLI_OK;
}

int sf_cli_call(struct sf_cli *cli, const char *method, const ProtobufCMessage *request,
                const ProtobufCMessage **out_response)
{
    int exit_code = sf_cli_connect(cli);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    struct sf_call_options options = {.timeout_ms = cli->timeout_ms};
    sf_diag_init(&cli->diag);
    if (sf_channel_unary_wait(cli->channel, NULL, method, request, &options, cli->arena, &cli->diag,
                              out_response) != SF_OK) {
        const char *slash = strrchr(method, '/');
        return sf_cli_fail(cli, slash == NULL ? method : slash + 1);
    }
    return SF_CLI_OK;
}

Searchfabric__V1__RequestMeta *sf_cli_meta(struct sf_cli *cli, Searchfabric__V1__ClientKind kind,
                                           bool mutation)
{
    Searchfabric__V1__RequestMeta *meta = sf_arena_alloc(cli->arena, sizeof(*meta));
    SF_ASSERT(meta != NULL);
    searchfabric__v1__request_meta__init(meta);
    if (mutation && cli->idempotency_key == NULL) {
        uint8_t bytes[16];
        sf_random_bytes(bytes, sizeof(bytes));
        sf_hex_encode(bytes, sizeof(bytes), cli->random_key);
        cli->idempotency_key = cli->random_key;
    }
    if (mutation)
        meta->idempotency_key = sf_arena_str(cli->arena, sf_view_str(cli->idempotency_key));
    meta->client_id = sf_arena_str(cli->arena, sf_view_str(cli->client_id));
    meta->client_kind = kind;
    return meta;
}

bool sf_cli_split_path(struct sf_cli *cli, const char *path, const char **out_namespace,
                       const char **out_collection)
{
    const char *slash = strchr(path, '/');
    if (slash == NULL || slash == path || slash[1] == '\0') {
        (void)sf_cli_usage("'%s' is not NAMESPACE/COLLECTION", path);
        return false;
    }
    *out_namespace = sf_arena_str(cli->arena, sf_view_bytes(path, (size_t)(slash - path)));
    *out_collection = slash + 1;
    return true;
}

int sf_cli_resolve_namespace(struct sf_cli *cli, const char *name, uint64_t *out_namespace_id)
{
    Searchfabric__V1__GetNamespaceMetadataRequest request;
    searchfabric__v1__get_namespace_metadata_request__init(&request);
    request.meta =
        sf_cli_meta(cli, SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_CONTROL_ADMIN, false);
    request.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_NAME;
    request.namespace_name = sf_arena_str(cli->arena, sf_view_str(name));
    const ProtobufCMessage *response = NULL;
    int exit_code = sf_cli_call(cli, "/searchfabric.v1.CatalogControlService/GetNamespaceMetadata",
                                &request.base, &response);
    if (exit_code == SF_CLI_OK) {
        const Searchfabric__V1__GetNamespaceMetadataResponse *got = (const void *)response;
        *out_namespace_id = got->descriptor->namespace_id;
    }
    return exit_code;
}

int sf_cli_resolve_collection(struct sf_cli *cli, const char *path,
                              struct sf_collection_ref *out_ref)
{
    const char *namespace_name = NULL;
    const char *collection_name = NULL;
    if (!sf_cli_split_path(cli, path, &namespace_name, &collection_name))
        return SF_CLI_USAGE;
    Searchfabric__V1__CollectionNameBinding binding;
    searchfabric__v1__collection_name_binding__init(&binding);
    int exit_code = sf_cli_resolve_namespace(cli, namespace_name, &binding.namespace_id);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    binding.collection_name = sf_arena_str(cli->arena, sf_view_str(collection_name));
    Searchfabric__V1__GetCollectionMetadataRequest request;
    searchfabric__v1__get_collection_metadata_request__init(&request);
    request.meta =
        sf_cli_meta(cli, SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_CONTROL_ADMIN, false);
    request.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_NAME_BINDING;
    request.name_binding = &binding;
    const ProtobufCMessage *response = NULL;
    exit_code = sf_cli_call(cli, "/searchfabric.v1.CatalogControlService/GetCollectionMetadata",
                            &request.base, &response);
    if (exit_code == SF_CLI_OK) {
        const Searchfabric__V1__GetCollectionMetadataResponse *got = (const void *)response;
        out_ref->namespace_id.v = got->descriptor->collection->namespace_id;
        out_ref->collection_id.v = got->descriptor->collection->collection_id;
    }
    return exit_code;
}
