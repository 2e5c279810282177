/* `sfctl alloc rebuild`: lost or broken allocator state made anew, on the store's folder with no
 * server running on it. */
#include "cli/cli_priv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator.h"

/* What the command line said. */
struct rebuild_args {
    const char *words[2]; /* DIR, and NAMESPACE_ID/COLLECTION_ID unless --all */
    const char *floor;    /* --floor */
    bool all;             /* --all */
    bool segments;        /* --segments */
    bool dry_run;         /* --dry-run */
};

/* What is printed as it comes. */
struct rebuild_told {
    struct sf_cli *cli; /* how */
    bool dry_run;       /* nothing is written */
    bool all;           /* whole ones are counted, not told */
    uint64_t whole;     /* collections left alone */
    uint64_t rebuilt;   /* collections written */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct rebuild_args *args = state->input;

    switch (key) {
    case 'f':
        args->floor = arg;
        return 0;
    case 'a':
        args->all = true;
        return 0;
    case 's':
        args->segments = true;
        return 0;
    case 'n':
        args->dry_run = true;
        return 0;
    case ARGP_KEY_ARG:
        return sf_cli_take_word(args->words, SF_ARRAY_LEN(args->words), arg, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void tell(void *user, const struct sf_allocator_rebuilt *r)
{
    struct rebuild_told *told = user;

    ++*(r->rebuilt ? &told->rebuilt : &told->whole);
    if (told->all && !r->rebuilt)
        return;
    if (told->cli->json) {
        struct sf_cli_json json;
        sf_cli_json_begin(&json);
        sf_cli_json_u64(&json, "namespace_id", r->collection.namespace_id.v);
        sf_cli_json_u64(&json, "collection_id", r->collection.collection_id.v);
        sf_cli_json_bool(&json, "state_found", r->state_found);
        sf_cli_json_bool(&json, "state_whole", r->state_whole);
        sf_cli_json_str(&json, "next_before", r->state_whole ? r->next_before : NULL);
        sf_cli_json_str(&json, "next_after", r->next_after);
        sf_cli_json_u64(&json, "replay_objects", r->replay_objects);
        sf_cli_json_bool(&json, "written", r->rebuilt && !told->dry_run);
        sf_cli_json_end(&json, stdout);
        return;
    }
    printf("%" PRIu64 "/%" PRIu64 ": ", r->collection.namespace_id.v,
           r->collection.collection_id.v);
    if (!r->rebuilt && r->state_found)
        printf("whole, next_doc_id %s covers %" PRIu64 " results\n", r->next_after,
               r->replay_objects);
    else if (!r->rebuilt)
        printf("no state and nothing that tells of an id\n");
    else
        printf("%s -> next_doc_id %s, above %" PRIu64 " results%s\n",
               r->state_whole   ? r->next_before
               : r->state_found ? "does not verify"
                                : "lost",
               r->next_after, r->replay_objects,
               told->dry_run ? " (dry run: nothing was changed)" : "");
}

static int run_rebuild(struct sf_cli *cli, struct sf_store *store, const struct rebuild_args *args,
                       struct sf_collection_ref ref)
{
    struct sf_attempts attempts;
    struct rebuild_told told = {.cli = cli, .dry_run = args->dry_run, .all = args->all};
    const struct sf_allocator_rebuild_options options = {
        .store = store,
        .attempts = &attempts,
        .now_unix_ms = sf_clock_unix_ms(sf_clock_system()),
        .only = ref,
        .use_segments = args->segments,
        .floor = args->floor,
        .dry_run = args->dry_run,
    };

    sf_cli_attempts_init(&attempts);
    enum sf_err err = sf_allocator_rebuild_wait(&options, &cli->diag, tell, &told);
    if (err == SF_INVALID_ARGUMENT) /* found before anything is read */
        return sf_cli_usage("alloc rebuild: %s", cli->diag.message);
    if (err != SF_OK) {
        int exit_code = sf_cli_fail(cli, "alloc rebuild");
        return err == SF_INTERNAL ? SF_CLI_DATA : exit_code;
    }
    if (args->all && !cli->json)
        printf("%" PRIu64 " collections %s, %" PRIu64 " whole\n", told.rebuilt,
               args->dry_run ? "would be rebuilt" : "rebuilt", told.whole);
    return SF_CLI_OK;
}

int sf_cli_alloc_rebuild(struct sf_cli *cli, int argc, char **argv)
{
    static char name[] = "sfctl alloc rebuild";
    static const struct argp_option options[] = {
        {"all", 'a', NULL, 0, "every collection of which anything is found", 0},
        {"segments", 's', NULL, 0, "take ids of recovery segments into account too", 0},
        {"floor", 'f', "N", 0, "next_doc_id is at least N", 0},
        {"dry-run", 'n', NULL, 0, "tell and change nothing", 0},
        {0}};
    static const struct argp argp = {
        options,
        parse,
        "DIR NAMESPACE_ID/COLLECTION_ID",
        "Makes allocator state that is lost or does not verify anew: next_doc_id above every id of "
        "the collection's results. Whole state is left alone. Results past their retention are "
        "gone, all but the newest of a collection: where ids may have been given above it, name a "
        "bound with --floor. DIR is the folder 'store' of a data folder; no server may run on it.",
        NULL,
        NULL,
        NULL};
    struct rebuild_args args = {0};
    struct sf_collection_ref ref = {{0}, {0}};
    struct sf_store *store = NULL;

    argv[0] = name;
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    if (args.words[0] == NULL)
        return sf_cli_usage("alloc rebuild wants the store's folder");
    if (args.all ? args.words[1] != NULL : !sf_cli_parse_ref(args.words[1], &ref))
        return sf_cli_usage("alloc rebuild wants DIR NAMESPACE_ID/COLLECTION_ID, or DIR --all");
    if (args.all && args.floor != NULL)
        return sf_cli_usage("alloc rebuild: --floor is for one collection");
    if (!sf_cli_dir_has(args.words[0], "CURRENT"))
        return sf_cli_usage("alloc rebuild: no embedded store in %s; that of a data folder is its "
                            "subfolder 'store'",
                            args.words[0]);
    if (sf_embedded_store_open(args.words[0], &cli->diag, &store) != SF_OK)
        return sf_cli_fail(cli, "alloc rebuild");
    int exit_code = run_rebuild(cli, store, &args, ref);
    sf_store_destroy(store);
    return exit_code;
}
