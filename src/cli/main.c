/*
 * sfctl: the operator's tool. `sfctl [global options] COMMAND ACTION [arguments]`. Global options
 * come first; each command has its own --help. Human tables by default, --json for scripts; exit
 * codes as in enum sf_cli_exit.
 */
#include "cli/cli_priv.h"

#include <errno.h>

#include "base/log.h"
#include "base/pbjson.h"
#include "base/text.h"
#include "contract/descriptor_set.h"

#define CLI_ARENA_BYTES ((size_t)256 << 20)
#define TIMEOUT_MAX_MS  3600000

const char *argp_program_version = "sfctl 0.1.0";

static const struct sf_cli_command commands[] = {
    {"status", "what the server runs and how far it is", sf_cli_status},
    {"namespace", "create, get, list, show namespaces; change their lifecycle", sf_cli_namespace},
    {"collection", "create, get, list, show or drop collections", sf_cli_collection},
    {"schema", "create, get or list schemas; report one as ready", sf_cli_schema},
    {"catalog", "background work of the catalog", sf_cli_catalog},
    {"load", "load a file of documents through the Elasticsearch port", sf_cli_load},
    {"rows", "list the visible rows of a collection", sf_cli_rows},
    {"manifest", "show or repair manifest heads", sf_cli_manifest},
    {"alloc", "allocate document ids; explain, tidy and repair their state", sf_cli_alloc},
    {"object", "list and print durable objects", sf_cli_object},
    {"stats", "show statistics and lifecycle windows of a collection", sf_cli_stats},
    {"checkpoint", "cut, list or verify catalog checkpoints", sf_cli_checkpoint},
    {"gc", "run one round of the catalog's retention", sf_cli_gc},
    {"fsck", "compare the catalog's rows with its objects and repair them", sf_cli_fsck},
    {"replay", "show what an idempotency key would return", sf_cli_replay},
    {"quota", "budgets and leases of a namespace", sf_cli_quota},
    {"projection", "digest of the relational projection; rebuild it", sf_cli_projection},
    {"store", "prove that a store keeps its contract", sf_cli_store},
};

enum {
    OPTION_JSON = 'j',
    OPTION_SERVER = 's',
    OPTION_KEY = 'k',
    OPTION_CLIENT = SF_CLI_FLAG_OWN,
    OPTION_TIMEOUT = 't'
};

static const struct argp_option options[] = {
    {"server", OPTION_SERVER, "HOST:PORT", 0, "gRPC address of the server (default 127.0.0.1:7400)",
     0},
    {"json", OPTION_JSON, NULL, 0, "print JSON instead of tables", 0},
    {"key", OPTION_KEY, "TEXT", 0,
     "idempotency key of a mutation: a repeat with the same key is answered, not done again", 0},
    {"client-id", OPTION_CLIENT, "TEXT", 0,
     "client id, part of the replay identity (default sfctl)", 0},
    {"timeout", OPTION_TIMEOUT, "MS", 0,
     "time for one call (default 10000; 600000 for what goes through the whole catalog or store)",
     0},
    {0}};

/* What the parser fills. */
struct main_args {
    struct sf_cli *cli; /* options go there */
    int first;          /* index of the command word in argv */
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct main_args *args = state->input;
    struct sf_cli *cli = args->cli;
    uint64_t timeout_ms = 0;

    switch (key) {
    case OPTION_SERVER:
        if (!sf_cli_parse_server(cli, arg))
            argp_error(state, "--server wants HOST:PORT, an IPv6 host in brackets");
        return 0;
    case OPTION_JSON:
        cli->json = true;
        return 0;
    case OPTION_KEY:
        if (!sf_cli_check_key(&cli->diag, arg))
            argp_error(state, "%s", cli->diag.message);
        cli->idempotency_key = arg;
        return 0;
    case OPTION_CLIENT:
        if (!sf_utf8_valid(sf_view_str(arg)))
            argp_error(state, "--client-id wants UTF-8");
        cli->client_id = arg;
        return 0;
    case OPTION_TIMEOUT:
        if (!sf_parse_u64(sf_view_str(arg), &timeout_ms) || timeout_ms == 0 ||
            timeout_ms > TIMEOUT_MAX_MS)
            argp_error(state, "--timeout wants milliseconds from 1 to %d", TIMEOUT_MAX_MS);
        cli->timeout_ms = (int64_t)timeout_ms;
        cli->timeout_given = true;
        return 0;
    case ARGP_KEY_ARG:
        args->first = state->next - 1;
        state->next = state->argc; /* the rest belongs to the command */
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_usage(state);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static char *help_filter(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)(uintptr_t)text;
    struct sf_buf out = {0};
    sf_buf_append_str(&out, "Commands:\n");
    for (size_t i = 0; i < SF_ARRAY_LEN(commands); i++)
        sf_buf_printf(&out, "  %-11s %s\n", commands[i].name, commands[i].summary);
    sf_buf_append_str(
        &out, "\nOptions above stand before the command; `sfctl COMMAND --help` tells its own.\n"
              "\nExit codes: 0 done, 1 refused, 2 wrong arguments, 3 no answer or retryable,\n"
              "4 data does not verify or documents were refused.");
    sf_buf_append(&out, "", 1);
    return (char *)out.data;
}

static int run_command(struct sf_cli *cli, int argc, char **argv)
{
    for (size_t i = 0; i < SF_ARRAY_LEN(commands); i++) {
        if (strcmp(commands[i].name, argv[0]) != 0)
            continue;
        static char name[32]; /* as usage texts show it */
        (void)snprintf(name, sizeof(name), "sfctl %s", commands[i].name);
        argv[0] = name;
        return commands[i].run(cli, argc, argv);
    }
    return sf_cli_usage("unknown command '%s'; see sfctl --help", argv[0]);
}

int main(int argc, char **argv)
{
    struct sf_cli cli = {.host = "127.0.0.1",
                         .port = 7400,
                         .client_id = "sfctl",
                         .timeout_ms = SF_CLI_TIMEOUT_MS,
                         .arena = sf_arena_new(CLI_ARENA_BYTES)};
    struct main_args args = {.cli = &cli};
    const struct argp argp = {options,
                              parse_option,
                              "COMMAND [ARGUMENTS]",
                              "Operates Search Fabric's control and write plane.\v",
                              NULL,
                              help_filter,
                              NULL};
    sf_log_set_level(SF_LOG_ERROR);
    sf_diag_init(&cli.diag);
    argp_err_exit_status = SF_CLI_USAGE;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &args) != 0)
        return SF_CLI_USAGE;
    if (sf_pbjson_register(
            sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size)) != SF_OK) {
        fputs("sfctl: the built-in contract does not parse\n", stderr);
        return SF_CLI_DATA;
    }
    int exit_code = run_command(&cli, argc - args.first, argv + args.first);
    sf_channel_destroy(cli.channel);
    sf_reactors_stop(cli.reactors);
    sf_arena_destroy(cli.arena);
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        fputs("sfctl: the output could not be written\n", stderr);
        return exit_code == SF_CLI_OK ? SF_CLI_DATA : exit_code;
    }
    return exit_code;
}
