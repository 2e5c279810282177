/*
 * `sfctl alloc explain`: what the server holds of one collection's ids and what stands in the
 * store, so that a gap or a refusal can be told from a fault.
 */
#include "cli/cli_priv.h"

#include <inttypes.h>

#include "searchfabric/v1/allocator_operations_private.pb-c.h"

#define METHOD "/searchfabric.v1.AllocatorOperationsService/ExplainAllocator"

/* What the command line said. */
struct explain_args {
    const char *words[1]; /* NS/NAME, or NAMESPACE_ID/COLLECTION_ID */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct explain_args *args = state->input;

    if (key == ARGP_KEY_ARG)
        return sf_cli_take_word(args->words, SF_ARRAY_LEN(args->words), arg, state);
    return ARGP_ERR_UNKNOWN;
}

static void print_text(const char *name, const char *text)
{
    printf("%-26s %s\n", name, text);
}

static void print_number(const char *name, uint64_t number)
{
    printf("%-26s %" PRIu64 "\n", name, number);
}

static void print_time(const char *name, int64_t unix_ms, const char *never)
{
    char text[32];

    sf_cli_format_unix_ms(unix_ms, text);
    print_text(name, unix_ms == 0 ? never : text);
}

static void print_range(const char *name, const Searchfabric__V1__AllocatorRange *range)
{
    if (range == NULL)
        print_text(name, "none");
    else
        printf("%-26s %s up to %s\n", name, range->start, range->end);
}

static void print_stored(const Searchfabric__V1__AllocatorStoredState *stored)
{
    printf("in the store\n");
    if (stored == NULL) {
        print_text("  state", "none: no id was given yet");
        return;
    }
    print_text("  next_doc_id", stored->next_doc_id);
    printf("%-26s %s (%s)\n", "  owner", stored->owner_id,
           stored->owned_here ? "this server" : "another process, or an earlier start");
    print_number("  allocation_epoch", stored->allocation_epoch);
    print_number("  state version", stored->allocator_state_version);
    print_range("  lease", stored->lease);
    print_number("  pending applies", stored->pending_applies);
    print_time("  written", stored->updated_at_unix_ms, "never");
}

static void print_leasing(const Searchfabric__V1__AllocatorLane *lane)
{
    print_range("  lease", lane->lease);
    if (lane->lease != NULL)
        print_text("  next id of the lease", lane->lease_next_doc_id);
    print_range("  range being reserved", lane->next_range);
    print_text("  leasing", lane->leasing);
    printf("%-26s %" PRIu64 " a second, hot from %" PRIu64 "\n", "  requests without ids",
           lane->requests_per_second, lane->hot_per_second);
    print_number("  ids of the last range", lane->range_ids);
    print_time("  last explicit id", lane->last_explicit_unix_ms, "not since it is in memory");
}

static void print_lane(const Searchfabric__V1__AllocatorLane *lane)
{
    printf("in this server\n");
    if (lane == NULL) {
        print_text("  state", "not in memory: nobody asked for ids lately");
        return;
    }
    printf("%-26s %s%s\n", "  state", lane->state, lane->owned ? ", owned" : "");
    if (lane->next_doc_id[0] != '\0') {
        print_text("  next_doc_id", lane->next_doc_id);
        print_number("  allocation_epoch", lane->allocation_epoch);
        print_number("  state version", lane->allocator_state_version);
    }
    print_leasing(lane);
    print_number("  pending applies", lane->pending_applies);
    print_number("  requests waiting", lane->requests);
    for (size_t i = 0; i < lane->n_burned; i++)
        printf("  burned: %-16s %" PRIu64 "\n", lane->burned[i]->reason, lane->burned[i]->ids);
}

int sf_cli_alloc_explain(struct sf_cli *cli, int argc, char **argv)
{
    static char name[] = "sfctl alloc explain";
    static const struct argp argp = {
        NULL,
        parse,
        "NAMESPACE/COLLECTION",
        "Tells where the ids of a collection are: the watermark and who owns it, the range that is "
        "reserved ahead and how far it is used, why no range is, and how many ids are gone without "
        "a document and why, since the collection came into the server's memory. A collection that "
        "is dropped goes by its ids: NAMESPACE_ID/COLLECTION_ID.",
        NULL,
        NULL,
        NULL};
    struct explain_args args = {0};
    struct sf_collection_ref ref;
    const ProtobufCMessage *message = NULL;
    Searchfabric__V1__ExplainAllocatorRequest request;

    argv[0] = name;
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    if (args.words[0] == NULL)
        return sf_cli_usage("alloc explain wants NAMESPACE/COLLECTION");
    int exit_code = SF_CLI_OK;
    if (!sf_cli_parse_ref(args.words[0], &ref)) {
        if (strspn(args.words[0], "0123456789/") == strlen(args.words[0]))
            return sf_cli_usage("alloc explain wants two ids above 0, or two names");
        exit_code = sf_cli_resolve_collection(cli, args.words[0], &ref);
    }
    if (exit_code != SF_CLI_OK)
        return exit_code;
    searchfabric__v1__explain_allocator_request__init(&request);
    request.collection = sf_cli_collection_ref(cli, ref);
    exit_code = sf_cli_call(cli, sf_arena_printf(cli->arena, "alloc explain %s", args.words[0]),
                            METHOD, &request.base, &message);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    if (cli->json) {
        sf_cli_print_json(message);
        return SF_CLI_OK;
    }
    const Searchfabric__V1__ExplainAllocatorResponse *got =
        (const Searchfabric__V1__ExplainAllocatorResponse *)message;
    print_stored(got->stored);
    print_lane(got->lane);
    return SF_CLI_OK;
}
