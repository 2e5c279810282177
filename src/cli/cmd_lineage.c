/*
 * Lifecycle of lineages: `sfctl namespace show|transition`, `sfctl collection show|drop`. `show`
 * reads the catalog's private state, so it also tells of what is tombstoned and hidden; the
 * revision that a transition swaps and the reference that a drop names come from there, so that
 * both may be repeated under their key after the fact.
 */
#include "cli/cli_priv.h"

#include <inttypes.h>

#include "base/text.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define PRIVATE    "/searchfabric.v1.CatalogControlPrivateService/"
#define OPERATIONS "/searchfabric.v1.CatalogOperationsService/"

static const char *const states[] = {"active", "quiescing", "tombstoned"};

/* Index + 1 in `states` of a state, as the contract numbers them. */
static const char *state_text(int state)
{
    return state >= 1 && state <= (int)SF_ARRAY_LEN(states) ? states[state - 1] : "?";
}

static int show_lineage(struct sf_cli *cli, const char *what,
                        const Searchfabric__V1__ShowLineageRequest *request,
                        const Searchfabric__V1__ShowLineageResponse **out_shown)
{
    const ProtobufCMessage *response = NULL;
    int exit_code = sf_cli_call(cli, what, OPERATIONS "ShowLineage", &request->base, &response);
    *out_shown = (const Searchfabric__V1__ShowLineageResponse *)response;
    return exit_code;
}

/* A namespace by name, or by its id in digits, tombstoned ones included. */
static int find_namespace(struct sf_cli *cli, const char *name_or_id,
                          const Searchfabric__V1__ShowLineageResponse **out_shown)
{
    Searchfabric__V1__ShowLineageRequest request;
    const char *what = sf_arena_printf(cli->arena, "namespace %s", name_or_id);
    uint64_t id = 0;

    searchfabric__v1__show_lineage_request__init(&request);
    if (sf_parse_u64(sf_view_str(name_or_id), &id) && id != 0) {
        request.lookup_case = SEARCHFABRIC__V1__SHOW_LINEAGE_REQUEST__LOOKUP_NAMESPACE_ID;
        request.namespace_id = id;
    } else {
        request.lookup_case = SEARCHFABRIC__V1__SHOW_LINEAGE_REQUEST__LOOKUP_NAMESPACE_NAME;
        request.namespace_name = sf_arena_str(cli->arena, sf_view_str(name_or_id));
    }
    return show_lineage(cli, what, &request, out_shown);
}

/* A collection by "NAMESPACE/NAME", tombstoned ones included. */
static int find_collection(struct sf_cli *cli, const char *path,
                           const Searchfabric__V1__ShowLineageResponse **out_shown)
{
    Searchfabric__V1__ShowLineageRequest request;
    Searchfabric__V1__CollectionNameBinding binding;
    const Searchfabric__V1__ShowLineageResponse *space = NULL;
    const char *slash = strchr(path, '/');

    if (slash == NULL || slash == path || slash[1] == '\0')
        return sf_cli_usage("'%s' is not NAMESPACE/COLLECTION", path);
    int exit_code = find_namespace(
        cli, sf_arena_str(cli->arena, sf_view_bytes(path, (size_t)(slash - path))), &space);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    searchfabric__v1__show_lineage_request__init(&request);
    searchfabric__v1__collection_name_binding__init(&binding);
    binding.namespace_id = space->namespace_row->namespace_id;
    binding.collection_name = sf_arena_str(cli->arena, sf_view_str(slash + 1));
    request.lookup_case = SEARCHFABRIC__V1__SHOW_LINEAGE_REQUEST__LOOKUP_NAME_BINDING;
    request.name_binding = &binding;
    return show_lineage(cli, sf_arena_printf(cli->arena, "collection %s", path), &request,
                        out_shown);
}

int sf_cli_namespace_id(struct sf_cli *cli, const char *name_or_id, uint64_t *out_id)
{
    const Searchfabric__V1__ShowLineageResponse *shown = NULL;
    int exit_code = find_namespace(cli, name_or_id, &shown);

    if (exit_code == SF_CLI_OK)
        *out_id = shown->namespace_row->namespace_id;
    return exit_code;
}

int sf_cli_lineage_ref(struct sf_cli *cli, const char *path, struct sf_collection_ref *out_ref)
{
    const Searchfabric__V1__ShowLineageResponse *shown = NULL;
    int exit_code = find_collection(cli, path, &shown);

    if (exit_code == SF_CLI_OK) {
        out_ref->namespace_id.v = shown->collection_row->collection->namespace_id;
        out_ref->collection_id.v = shown->collection_row->collection->collection_id;
    }
    return exit_code;
}

/* ---- show --------------------------------------------------------------------------------- */

static void print_number(const char *name, uint64_t value)
{
    printf("%-22s %" PRIu64 "\n", name, value);
}

static void print_time(const char *name, int64_t unix_ms)
{
    char text[32];
    sf_cli_format_unix_ms(unix_ms, text);
    printf("%-22s %s\n", name, text);
}

/* When and why the name of a tombstoned lineage is still reserved. */
static void print_release(const Searchfabric__V1__ShowLineageResponse *shown, int64_t horizon)
{
    print_time("name reserved until", horizon);
    if (shown->n_release_blocked_by == 0)
        printf("%-22s the next sweep releases it\n", "release");
    for (size_t i = 0; i < shown->n_release_blocked_by; i++)
        printf("%-22s %s\n", i == 0 ? "release waits for" : "", shown->release_blocked_by[i]);
}

int sf_cli_namespace_show(struct sf_cli *cli, const char *name_or_id)
{
    const Searchfabric__V1__ShowLineageResponse *shown = NULL;
    int exit_code = find_namespace(cli, name_or_id, &shown);

    if (exit_code != SF_CLI_OK)
        return exit_code;
    if (cli->json) {
        sf_cli_print_json(&shown->base);
        return SF_CLI_OK;
    }
    const Searchfabric__V1__NamespaceRow *row = shown->namespace_row;
    printf("%-22s ", "namespace");
    sf_cli_print_text(sf_view_str(row->namespace_name), stdout);
    printf("\n%-22s %s\n", "lifecycle", state_text((int)row->lifecycle_state));
    print_number("id", row->namespace_id);
    print_number("revision", row->namespace_revision);
    print_number("name epoch", row->namespace_name_allocation_epoch);
    print_number("binding revision", row->collection_name_binding_revision);
    print_time("created", row->created_at_unix_ms);
    print_time("lifecycle since", row->lifecycle_updated_at_unix_ms);
    if (row->_lifecycle_gc_after_unix_ms_case != 0)
        print_release(shown, row->lifecycle_gc_after_unix_ms);
    return SF_CLI_OK;
}

int sf_cli_collection_show(struct sf_cli *cli, const char *path)
{
    const Searchfabric__V1__ShowLineageResponse *shown = NULL;
    int exit_code = find_collection(cli, path, &shown);

    if (exit_code != SF_CLI_OK)
        return exit_code;
    if (cli->json) {
        sf_cli_print_json(&shown->base);
        return SF_CLI_OK;
    }
    const Searchfabric__V1__CollectionRow *row = shown->collection_row;
    bool dropped = row->_drop_revision_case != 0;
    printf("%-22s ", "collection");
    sf_cli_print_text(sf_view_str(row->collection_name), stdout);
    printf("\n%-22s %s\n", "lifecycle", dropped ? "tombstoned" : "active");
    print_number("id", row->collection->collection_id);
    print_number("namespace id", row->collection->namespace_id);
    print_number("descriptor revision", row->descriptor_revision);
    print_number("name epoch", row->collection_name_allocation_epoch);
    print_time("created", row->created_at_unix_ms);
    if (row->_active_schema_version_case != 0)
        print_number("active schema", row->active_schema_version);
    print_number("manifest head", row->manifest_head_version);
    if (dropped) {
        print_time("dropped", row->dropped_at_unix_ms);
        print_release(shown, row->gc_after_unix_ms);
    }
    return SF_CLI_OK;
}

/* ---- change ------------------------------------------------------------------------------- */

int sf_cli_namespace_transition(struct sf_cli *cli, const char *name_or_id, const char *state)
{
    Searchfabric__V1__SubmitNamespaceLifecycleTransitionRequest request;
    const Searchfabric__V1__ShowLineageResponse *shown = NULL;
    const ProtobufCMessage *response = NULL;
    int target = 0;

    for (size_t i = 0; i < SF_ARRAY_LEN(states); i++) {
        if (strcmp(states[i], state) == 0)
            target = (int)i + 1;
    }
    if (target == 0)
        return sf_cli_usage("'%s' is not active, quiescing or tombstoned", state);
    int exit_code = find_namespace(cli, name_or_id, &shown);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    searchfabric__v1__submit_namespace_lifecycle_transition_request__init(&request);
    request.namespace_id = shown->namespace_row->namespace_id;
    request.target_lifecycle_state = (Searchfabric__V1__NamespaceLifecycleState)target;
    request.expected_namespace_revision = shown->namespace_row->namespace_revision;
    exit_code = sf_cli_call(cli, sf_arena_printf(cli->arena, "namespace %s", name_or_id),
                            PRIVATE "SubmitNamespaceLifecycleTransition", &request.base, &response);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    const Searchfabric__V1__SubmitNamespaceLifecycleTransitionResponse *moved =
        (const Searchfabric__V1__SubmitNamespaceLifecycleTransitionResponse *)response;
    if (cli->json)
        sf_cli_print_json(&moved->base);
    else
        printf("%s is %s, revision %" PRIu64 "\n", name_or_id,
               state_text((int)moved->lifecycle_state), moved->namespace_revision);
    return SF_CLI_OK;
}

int sf_cli_collection_drop(struct sf_cli *cli, const char *path, const char *token)
{
    Searchfabric__V1__DropCollectionRequest request;
    Searchfabric__V1__SchemaFencePrecondition fence;
    const Searchfabric__V1__ShowLineageResponse *shown = NULL;
    const ProtobufCMessage *response = NULL;
    int exit_code = find_collection(cli, path, &shown);

    if (exit_code != SF_CLI_OK)
        return exit_code;
    searchfabric__v1__drop_collection_request__init(&request);
    searchfabric__v1__schema_fence_precondition__init(&fence);
    request.meta = sf_cli_meta(cli, SF_CLI_KIND_ADMIN, true);
    request.collection = shown->collection_row->collection;
    if (token != NULL) {
        fence.schema_generation_token = sf_arena_str(cli->arena, sf_view_str(token));
        request.fence = &fence;
    }
    exit_code = sf_cli_call(cli, sf_arena_printf(cli->arena, "collection %s", path),
                            SF_CLI_CATALOG "DropCollection", &request.base, &response);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    const Searchfabric__V1__DropCollectionSuccessResponse *dropped =
        (const Searchfabric__V1__DropCollectionSuccessResponse *)response;
    if (cli->json)
        sf_cli_print_json(&dropped->base);
    else
        printf("%s %s\n", path,
               dropped->status ==
                       SEARCHFABRIC__V1__DROP_COLLECTION_STATUS__DROP_COLLECTION_STATUS_DROPPED
                   ? "dropped"
                   : "was dropped before");
    return SF_CLI_OK;
}
