/*
 * `sfctl alloc restore-mark|verify`: what an operator does after a store was restored from a
 * backup. The mark closes allocator state that is older; a verification reconciles one collection
 * with its results and opens it again. Both work on the store's folder, with no server running on
 * it.
 */
#include "cli/cli_priv.h"

#include <inttypes.h>
#include <stdlib.h>

#include "allocator/allocator.h"
#include "base/rng.h"
#include "base/text.h"

/* What the command line said. */
struct restore_args {
    const char *words[2]; /* DIR, or DIR and NAMESPACE_ID/COLLECTION_ID */
    const char *reason;   /* of a mark */
    bool dry_run;         /* a verification changes nothing */
};

enum { OPTION_REASON = SF_CLI_FLAG_OWN };

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct restore_args *args = state->input;

    switch (key) {
    case OPTION_REASON:
        if (!sf_utf8_valid(sf_view_str(arg)))
            argp_error(state, "--reason wants UTF-8");
        args->reason = arg;
        return 0;
    case SF_CLI_FLAG_DRY_RUN:
        args->dry_run = true;
        return 0;
    case ARGP_KEY_ARG:
        return sf_cli_take_word(args->words, SF_ARRAY_LEN(args->words), arg, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

bool sf_cli_parse_ref(const char *text, struct sf_collection_ref *out_ref)
{
    const char *slash = text == NULL ? NULL : strchr(text, '/');

    return slash != NULL &&
           sf_parse_u64(sf_view_bytes(text, (size_t)(slash - text)), &out_ref->namespace_id.v) &&
           sf_parse_u64(sf_view_str(slash + 1), &out_ref->collection_id.v) &&
           out_ref->namespace_id.v != 0 && out_ref->collection_id.v != 0;
}

void sf_cli_attempts_init(struct sf_attempts *attempts)
{
    uint64_t process = 0;

    sf_random_bytes(&process, sizeof(process));
    sf_attempts_init(attempts, process);
}

static int run_mark(struct sf_cli *cli, struct sf_store *store, const struct restore_args *args)
{
    struct sf_attempts attempts;
    char when[32];
    int64_t now = sf_clock_unix_ms(sf_clock_system());

    sf_cli_attempts_init(&attempts);
    enum sf_err err =
        sf_allocator_restore_mark_wait(store, NULL, &attempts, now, cli->client_id, args->reason);
    if (err != SF_OK) {
        sf_diag_set(&cli->diag, err, "the restore mark was not written");
        return sf_cli_fail(cli, "alloc restore-mark");
    }
    sf_cli_format_unix_ms(now, when);
    if (cli->json)
        printf("{\"restored_at_unix_ms\":\"%" PRId64 "\"}\n", now);
    else
        printf("allocator state older than %s is closed until it is verified\n", when);
    return SF_CLI_OK;
}

static int run_verify(struct sf_cli *cli, struct sf_store *store, const struct restore_args *args,
                      struct sf_collection_ref ref)
{
    struct sf_allocator_verification v;
    struct sf_attempts attempts;

    sf_cli_attempts_init(&attempts);
    enum sf_err err =
        sf_allocator_verify_wait(store, NULL, &attempts, sf_clock_unix_ms(sf_clock_system()), ref,
                                 args->dry_run, &cli->diag, &v);
    if (err != SF_OK) {
        (void)sf_cli_fail(cli, "alloc verify");
        if (err == SF_INTERNAL)
            fprintf(stderr, "sfctl: what does not verify may hold ids; where a bound above all "
                            "ids is known, sfctl alloc rebuild --floor opens the collection\n");
        return err == SF_INTERNAL ? SF_CLI_DATA : SF_CLI_UNAVAILABLE;
    }
    if (cli->json) {
        struct sf_cli_json json;
        sf_cli_json_begin(&json);
        sf_cli_json_bool(&json, "state_found", v.state_found);
        sf_cli_json_str(&json, "next_before", v.next_before);
        sf_cli_json_str(&json, "next_after", v.next_after);
        sf_cli_json_u64(&json, "replay_objects", v.replay_objects);
        sf_cli_json_u64(&json, "pending_applies", v.pending_applies);
        sf_cli_json_bool(&json, "written", !args->dry_run);
        sf_cli_json_end(&json, stdout);
    } else {
        if (!v.state_found)
            fprintf(stderr, "sfctl: alloc verify: %s had no allocator state; are the ids right?\n",
                    args->words[1]);
        printf("next_doc_id %s -> %s, %" PRIu64 " results, %" PRIu64 " unfinished applies%s\n",
               v.next_before, v.next_after, v.replay_objects, v.pending_applies,
               args->dry_run ? " (dry run: nothing was changed)" : ", open");
    }
    return SF_CLI_OK;
}

int sf_cli_alloc_restore(struct sf_cli *cli, bool verify, int argc, char **argv)
{
    static char name[32]; /* as usage texts show it */
    static const struct argp_option options[] = {
        {"reason", OPTION_REASON, "TEXT", 0, "restore-mark: why, for the record", 0},
        SF_CLI_OPTION_DRY_RUN("verify: tell and change nothing"),
        {0}};
    static const struct argp argp = {
        options,
        parse,
        "DIR [NAMESPACE_ID/COLLECTION_ID]",
        "restore-mark DIR: the embedded store in DIR was restored from a backup; allocator "
        "state older than now is closed. verify DIR NAMESPACE_ID/COLLECTION_ID: raises the "
        "collection's next id above every id of a result and opens it. DIR is the folder 'store' "
        "of a data folder; no server may run on it.",
        NULL,
        NULL,
        NULL};
    struct restore_args args = {.reason = ""};
    struct sf_collection_ref ref = {{0}, {0}};
    const char *action = verify ? "alloc verify" : "alloc restore-mark";
    struct sf_store *store = NULL;

    (void)snprintf(name, sizeof(name), "sfctl %s", action);
    argv[0] = name;
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    if (args.words[0] == NULL)
        return sf_cli_usage("%s wants the store's folder", action);
    if (verify && !sf_cli_parse_ref(args.words[1], &ref))
        return sf_cli_usage("alloc verify wants DIR NAMESPACE_ID/COLLECTION_ID");
    if (!verify && args.words[1] != NULL)
        return sf_cli_usage("alloc restore-mark wants DIR alone");
    if (!sf_cli_dir_has(args.words[0], "CURRENT"))
        return sf_cli_usage("%s: no embedded store in %s; that of a data folder is its subfolder "
                            "'store'",
                            action, args.words[0]);
    if (sf_embedded_store_open(args.words[0], &cli->diag, &store) != SF_OK)
        return sf_cli_fail(cli, action);
    int exit_code = verify ? run_verify(cli, store, &args, ref) : run_mark(cli, store, &args);
    sf_store_destroy(store);
    return exit_code;
}
