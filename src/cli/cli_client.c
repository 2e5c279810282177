/*
 * The connection of sfctl: one reactor, one gRPC channel, calls that wait. Names are resolved to
 * stable references on each use; nothing is cached between calls, so that what is printed is what
 * the server says now.
 */
#include "cli/cli_priv.h"

#include "base/hash.h"
#include "base/rng.h"
#include "base/text.h"
#include "searchfabric/v1/search_fabric.pb-c.h"

int sf_cli_fail(struct sf_cli *cli, const char *what)
{
    const struct sf_err_info *info = sf_err_info(cli->diag.err);
    const char *unknown = sf_diag_get(&cli->diag, "outcome_unknown");

    fprintf(stderr, "sfctl: %s: %s %s", what, info->code[0] == '\0' ? info->name : info->code,
            cli->diag.message);
    for (unsigned i = 0; i < cli->diag.detail_count; i++)
        fprintf(stderr, "%s%s=%s", i == 0 ? " (" : " ", cli->diag.details[i].key,
                cli->diag.details[i].value);
    fputs(cli->diag.detail_count == 0 ? "\n" : ")\n", stderr);
    if (cli->diag.err == SF_DEADLINE_EXCEEDED)
        fprintf(stderr, "sfctl: it had %lld ms; --timeout gives it more\n",
                (long long)cli->timeout_ms);
    const char *reason = sf_diag_get(&cli->diag, "catalog_unavailable_reason");
    if (reason != NULL && strcmp(reason, "recovery") == 0 &&
        sf_diag_get(&cli->diag, "manifest_head_reconciler_status") == NULL)
        fputs("sfctl: the server starts and recovers; `sfctl status` shows when it serves\n",
              stderr);
    if (info->cls == SF_CLASS_RETRY_LATER || cli->diag.err == SF_DEADLINE_EXCEEDED) {
        if (cli->idempotency_key != NULL && cli->idempotency_key == cli->random_key)
            fprintf(stderr, "sfctl: %s; repeat safely with --key %s\n",
                    unknown != NULL && strcmp(unknown, "false") == 0 ? "nothing was done"
                                                                     : "the outcome may be unknown",
                    cli->random_key);
        return SF_CLI_UNAVAILABLE;
    }
    return cli->diag.err == SF_ERR_CORRUPT ? SF_CLI_DATA : SF_CLI_REFUSED;
}

void sf_cli_patient(struct sf_cli *cli)
{
    if (!cli->timeout_given)
        cli->timeout_ms = SF_CLI_PATIENT_MS;
}

int sf_cli_connect(struct sf_cli *cli)
{
    if (cli->channel != NULL)
        return SF_CLI_OK;
    if (sf_reactors_start(1, sf_clock_system(), &cli->diag, &cli->reactors) != SF_OK)
        return sf_cli_fail(cli, "start");
    if (sf_grpc_channel_new(sf_reactors_loop(cli->reactors, 0), cli->host, cli->port, &cli->diag,
                            &cli->channel) != SF_OK) {
        (void)sf_cli_fail(cli, "connect");
        return cli->diag.err == SF_ERR_CONFIG ? SF_CLI_USAGE : SF_CLI_UNAVAILABLE;
    }
    return SF_CLI_OK;
}

int sf_cli_call(struct sf_cli *cli, const char *what, const char *method,
                const ProtobufCMessage *request, const ProtobufCMessage **out_response)
{
    struct sf_call_options options = {.timeout_ms = cli->timeout_ms};
    int exit_code = sf_cli_connect(cli);

    if (exit_code != SF_CLI_OK)
        return exit_code;
    sf_diag_init(&cli->diag);
    if (sf_channel_unary_wait(cli->channel, NULL, method, request, &options, cli->arena, &cli->diag,
                              out_response) != SF_OK) {
        const char *slash = strrchr(method, '/');
        return sf_cli_fail(cli, what != NULL ? what : slash == NULL ? method : slash + 1);
    }
    return SF_CLI_OK;
}

const char *sf_cli_key(struct sf_cli *cli)
{
    if (cli->idempotency_key == NULL) {
        uint8_t bytes[16];
        sf_random_bytes(bytes, sizeof(bytes));
        sf_hex_encode(bytes, sizeof(bytes), cli->random_key);
        cli->idempotency_key = cli->random_key;
    }
    return cli->idempotency_key;
}

Searchfabric__V1__RequestMeta *sf_cli_meta(struct sf_cli *cli, Searchfabric__V1__ClientKind kind,
                                           bool mutation)
{
    Searchfabric__V1__RequestMeta *meta = sf_arena_alloc(cli->arena, sizeof(*meta));

    SF_ASSERT(meta != NULL);
    searchfabric__v1__request_meta__init(meta);
    if (mutation)
        meta->idempotency_key = sf_arena_str(cli->arena, sf_view_str(sf_cli_key(cli)));
    meta->client_id = sf_arena_str(cli->arena, sf_view_str(cli->client_id));
    meta->client_kind = kind;
    return meta;
}

Searchfabric__V1__EncryptionPolicy *sf_cli_encryption(struct sf_cli *cli)
{
    Searchfabric__V1__ProviderManagedEncryption *managed =
        sf_arena_alloc(cli->arena, sizeof(*managed));
    Searchfabric__V1__EncryptionPolicy *policy = sf_arena_alloc(cli->arena, sizeof(*policy));

    SF_ASSERT(managed != NULL && policy != NULL);
    searchfabric__v1__provider_managed_encryption__init(managed);
    searchfabric__v1__encryption_policy__init(policy);
    policy->mode_case = SEARCHFABRIC__V1__ENCRYPTION_POLICY__MODE_PROVIDER_MANAGED;
    policy->provider_managed = managed;
    return policy;
}

Searchfabric__V1__CollectionRef *sf_cli_collection_ref(struct sf_cli *cli,
                                                       struct sf_collection_ref ref)
{
    Searchfabric__V1__CollectionRef *message = sf_arena_alloc(cli->arena, sizeof(*message));

    SF_ASSERT(message != NULL);
    searchfabric__v1__collection_ref__init(message);
    message->namespace_id = ref.namespace_id.v;
    message->collection_id = ref.collection_id.v;
    return message;
}

int sf_cli_get_namespace(struct sf_cli *cli, const char *name_or_id,
                         const Searchfabric__V1__NamespaceDescriptor **out_descriptor)
{
    Searchfabric__V1__GetNamespaceMetadataRequest request;
    const ProtobufCMessage *response = NULL;
    uint64_t id = 0;

    searchfabric__v1__get_namespace_metadata_request__init(&request);
    request.meta = sf_cli_meta(cli, SF_CLI_KIND_ADMIN, false);
    if (sf_parse_u64(sf_view_str(name_or_id), &id) && id != 0) {
        request.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID;
        request.namespace_id = id;
    } else {
        request.lookup_case =
            SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_NAME;
        request.namespace_name = sf_arena_str(cli->arena, sf_view_str(name_or_id));
    }
    int exit_code = sf_cli_call(cli, sf_arena_printf(cli->arena, "namespace %s", name_or_id),
                                SF_CLI_CATALOG "GetNamespaceMetadata", &request.base, &response);
    if (exit_code == SF_CLI_OK)
        *out_descriptor =
            ((const Searchfabric__V1__GetNamespaceMetadataResponse *)response)->descriptor;
    return exit_code;
}

int sf_cli_bind_name(struct sf_cli *cli, const char *path,
                     Searchfabric__V1__CollectionNameBinding *out_binding)
{
    const Searchfabric__V1__NamespaceDescriptor *descriptor = NULL;
    const char *slash = strchr(path, '/');

    searchfabric__v1__collection_name_binding__init(out_binding);
    if (slash == NULL || slash == path || slash[1] == '\0')
        return sf_cli_usage("'%s' is not NAMESPACE/COLLECTION", path);
    const char *name = sf_arena_str(cli->arena, sf_view_bytes(path, (size_t)(slash - path)));
    int exit_code = sf_cli_get_namespace(cli, name, &descriptor);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    out_binding->namespace_id = descriptor->namespace_id;
    out_binding->collection_name = sf_arena_str(cli->arena, sf_view_str(slash + 1));
    return SF_CLI_OK;
}

int sf_cli_get_collection(struct sf_cli *cli, const char *path,
                          const Searchfabric__V1__CollectionDescriptor **out_descriptor)
{
    Searchfabric__V1__CollectionNameBinding binding;
    Searchfabric__V1__GetCollectionMetadataRequest request;
    const ProtobufCMessage *response = NULL;
    int exit_code = sf_cli_bind_name(cli, path, &binding);

    if (exit_code != SF_CLI_OK)
        return exit_code;
    searchfabric__v1__get_collection_metadata_request__init(&request);
    request.meta = sf_cli_meta(cli, SF_CLI_KIND_ADMIN, false);
    request.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_NAME_BINDING;
    request.name_binding = &binding;
    exit_code = sf_cli_call(cli, sf_arena_printf(cli->arena, "collection %s", path),
                            SF_CLI_CATALOG "GetCollectionMetadata", &request.base, &response);
    if (exit_code == SF_CLI_OK)
        *out_descriptor =
            ((const Searchfabric__V1__GetCollectionMetadataResponse *)response)->descriptor;
    return exit_code;
}

int sf_cli_resolve_collection(struct sf_cli *cli, const char *path,
                              struct sf_collection_ref *out_ref)
{
    const Searchfabric__V1__CollectionDescriptor *descriptor = NULL;
    int exit_code = sf_cli_get_collection(cli, path, &descriptor);

    if (exit_code == SF_CLI_OK) {
        out_ref->namespace_id.v = descriptor->collection->namespace_id;
        out_ref->collection_id.v = descriptor->collection->collection_id;
    }
    return exit_code;
}

int sf_cli_each_collection(struct sf_cli *cli, const char *namespace_name, struct sf_cli_list *list,
                           sf_cli_collection_fn each, void *user)
{
    const Searchfabric__V1__NamespaceDescriptor *descriptor = NULL;
    Searchfabric__V1__PageRequest page;
    Searchfabric__V1__ListCollectionsRequest request;
    int exit_code = sf_cli_get_namespace(cli, namespace_name, &descriptor);

    if (exit_code != SF_CLI_OK)
        return exit_code;
    searchfabric__v1__page_request__init(&page);
    searchfabric__v1__list_collections_request__init(&request);
    request.meta = sf_cli_meta(cli, SF_CLI_KIND_ADMIN, false);
    request.namespace_id = descriptor->namespace_id;
    request.prefix = sf_arena_str(cli->arena, sf_view_str(list->prefix));
    request.page = &page;
    page.page_size = sf_cli_page_size(list);
    for (bool more = true; more && list->limit > 0;) {
        const ProtobufCMessage *response = NULL;
        exit_code =
            sf_cli_call(cli, NULL, SF_CLI_CATALOG "ListCollections", &request.base, &response);
        if (exit_code != SF_CLI_OK)
            return exit_code;
        const Searchfabric__V1__ListCollectionsResponse *got = (const void *)response;
        for (size_t i = 0; i < got->n_collections && exit_code == SF_CLI_OK && list->limit > 0;
             i++, list->limit--)
            exit_code = each(user, got->collections[i]);
        more = exit_code == SF_CLI_OK && got->next_page != NULL && got->next_page->token[0] != '\0';
        if (more)
            page.page_token = got->next_page->token;
    }
    return exit_code;
}
