/* `sfctl alloc`: one AllocateIds call by hand, as the Elasticsearch write gateway makes it. */
#include "cli/cli_priv.h"

#include <inttypes.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"

/* What the command line said: a plan in the order of the options. */
struct alloc_args {
    const char *path;                             /* NAMESPACE/NAME */
    Searchfabric__V1__AllocationPlanItem **items; /* in the arena */
    size_t count;                                 /* of items */
    struct sf_cli *cli;                           /* owner of the arena */
};

static void add_item(struct alloc_args *args, bool is_explicit, uint64_t id)
{
    Searchfabric__V1__AllocationPlanItem *item = sf_arena_alloc(args->cli->arena, sizeof(*item));
    SF_ASSERT(item != NULL);
    searchfabric__v1__allocation_plan_item__init(item);
    if (is_explicit) {
        Searchfabric__V1__DocumentID *doc_id = sf_arena_alloc(args->cli->arena, sizeof(*doc_id));
        SF_ASSERT(doc_id != NULL);
        searchfabric__v1__document_id__init(doc_id);
        doc_id->id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
        doc_id->u64 = id;
        item->item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_EXPLICIT_DOC_ID;
        item->explicit_doc_id = doc_id;
    } else {
        Searchfabric__V1__IssueItem *issue = sf_arena_alloc(args->cli->arena, sizeof(*issue));
        SF_ASSERT(issue != NULL);
        searchfabric__v1__issue_item__init(issue);
        item->item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE;
        item->issue = issue;
    }
    args->items[args->count++] = item;
}

enum { OPTION_ISSUE = SF_CLI_FLAG_OWN, OPTION_EXPLICIT };

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct alloc_args *args = state->input;
    uint64_t value = 0;
    switch (key) {
    case OPTION_ISSUE:
        if (!sf_parse_u64(sf_view_str(arg), &value) || value == 0 ||
            value > SF_LIMIT_ALLOC_PLAN_ITEMS - args->count)
            argp_error(state, "--issue wants a count from 1; a plan has at most %d ids",
                       SF_LIMIT_ALLOC_PLAN_ITEMS);
        for (uint64_t i = 0; i < value; i++)
            add_item(args, false, 0);
        return 0;
    case OPTION_EXPLICIT:
        if (!sf_parse_u64(sf_view_str(arg), &value) || args->count == SF_LIMIT_ALLOC_PLAN_ITEMS)
            argp_error(state, "--explicit wants a decimal id; a plan has at most %d ids",
                       SF_LIMIT_ALLOC_PLAN_ITEMS);
        add_item(args, true, value);
        return 0;
    case ARGP_KEY_ARG:
        return sf_cli_take_word(&args->path, 1, arg, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_ids(const Searchfabric__V1__AllocateIdsSuccessResponse *got)
{
    static const char *const titles[] = {"ID", "ORIGIN"};
    struct sf_cli_table table;
    sf_cli_table_begin(&table, 2, titles);
    for (size_t i = 0; i < got->n_realized_doc_ids; i++) {
        char id[24];
        snprintf(id, sizeof(id), "%" PRIu64, got->realized_doc_ids[i]->doc_id->u64);
        const char *cells[] = {id,
                               got->realized_doc_ids[i]->allocator_issued ? "issued" : "explicit"};
        sf_cli_table_row(&table, cells);
    }
    sf_cli_table_end(&table, stdout);
    printf("schema_generation_token %s\n", got->schema_generation_token);
}

static int restore_mark(struct sf_cli *cli, int argc, char **argv)
{
    return sf_cli_alloc_restore(cli, false, argc, argv);
}

static int verify(struct sf_cli *cli, int argc, char **argv)
{
    return sf_cli_alloc_restore(cli, true, argc, argv);
}

/* Runs what the first word names; false: it names none. */
static bool run_named(struct sf_cli *cli, int argc, char **argv, int *out_exit_code)
{
    static const struct {
        const char *name;                                      /* first word */
        int (*run)(struct sf_cli *cli, int argc, char **argv); /* from that word on */
    } commands[] = {{"restore-mark", restore_mark},    {"verify", verify},
                    {"rebuild", sf_cli_alloc_rebuild}, {"gc", sf_cli_alloc_gc},
                    {"export", sf_cli_alloc_export},   {"explain", sf_cli_alloc_explain}};

    for (size_t i = 0; argc > 1 && i < SF_ARRAY_LEN(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            *out_exit_code = commands[i].run(cli, argc - 1, argv + 1);
            return true;
        }
    return false;
}

int sf_cli_alloc(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"issue", OPTION_ISSUE, "N", 0, "N fresh ids", 0},
        {"explicit", OPTION_EXPLICIT, "ID", 0, "reserve this id", 0},
        {0}};
    static const struct argp argp = {
        options,
        parse,
        "NAMESPACE/NAME",
        "Allocates document ids. --issue and --explicit may repeat; their order is the "
        "order of the plan. Without them one fresh id is issued. Ids given are burned whether they "
        "are used or not.\v"
        "After a restore from a backup: `sfctl alloc restore-mark --help` and `sfctl alloc verify "
        "--help`. Lost state: `sfctl alloc rebuild --help`. Old results: `sfctl alloc gc --help`; "
        "rows about allocations: `sfctl alloc export --help`; where a collection's ids are: `sfctl "
        "alloc explain --help`.",
        NULL,
        NULL,
        NULL};
    struct alloc_args args = {.cli = cli};
    int exit_code;
    if (run_named(cli, argc, argv, &exit_code))
        return exit_code;
    args.items = sf_arena_alloc(cli->arena, SF_LIMIT_ALLOC_PLAN_ITEMS *
                                                sizeof(Searchfabric__V1__AllocationPlanItem *));
    SF_ASSERT(args.items != NULL);
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    if (args.path == NULL)
        return sf_cli_usage("alloc wants NS/NAME");
    if (args.count == 0)
        add_item(&args, false, 0);
    struct sf_collection_ref ref;
    exit_code = sf_cli_resolve_collection(cli, args.path, &ref);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    Searchfabric__V1__AllocationPlan plan;
    searchfabric__v1__allocation_plan__init(&plan);
    plan.items = args.items;
    plan.n_items = args.count;
    Searchfabric__V1__AllocateIdsRequest request;
    searchfabric__v1__allocate_ids_request__init(&request);
    request.meta =
        sf_cli_meta(cli, SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY, true);
    request.collection = sf_cli_collection_ref(cli, ref);
    request.route_intent =
        SEARCHFABRIC__V1__ID_ALLOCATION_ROUTE_INTENT__ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT;
    request.plan = &plan;
    const ProtobufCMessage *response = NULL;
    exit_code =
        sf_cli_call(cli, sf_arena_printf(cli->arena, "alloc %s", args.path),
                    "/searchfabric.v1.IdAllocatorService/AllocateIds", &request.base, &response);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    if (cli->json)
        sf_cli_print_json(response);
    else
        print_ids((const Searchfabric__V1__AllocateIdsSuccessResponse *)response);
    return SF_CLI_OK;
}
