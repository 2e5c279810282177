/*
 * `sfctl rows NS/NAME`: the visible rows as the committed manifest and the WAL hold them, read
 * object by object through the operations service, every checksum verified. What this prints is
 * what survives the server.
 */
#include "cli/cli_priv.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/hash.h"
#include "publish/reader.h"

/* What the command line said, and the count so far. */
struct rows_args {
    struct sf_cli *cli;
    const char *path;
    uint64_t limit; /* rows to print */
    uint64_t seen;  /* visible rows */
    bool raw;       /* --raw: id, tab, commit_ts, tab, length, newline, body, newline */
    bool count;     /* --count: no rows */
};

static void print_json_row(const struct sf_row *row)
{
    bool one_line = row->body.len > 0 && memchr(row->body.ptr, '\n', row->body.len) == NULL;
    printf("{\"doc_id\":\"%" PRIu64 "\",\"commit_ts\":\"%" PRIu64 "\",", row->doc_id.v,
           row->commit_ts.v);
    if (one_line) {
        fputs("\"body\":", stdout);
        fwrite(row->body.ptr, 1, row->body.len, stdout);
    } else {
        char *hex = malloc(row->body.len * 2 + 1);
        SF_ASSERT(hex != NULL);
        sf_hex_encode(row->body.ptr, row->body.len, hex);
        printf("\"body_hex\":\"%s\"", hex);
        free(hex);
    }
    fputs("}\n", stdout);
}

static bool each_row(void *user, const struct sf_row *row)
{
    struct rows_args *args = user;
    if (args->seen++ >= args->limit || args->count)
        return true;
    if (args->raw) {
        printf("%" PRIu64 "\t%" PRIu64 "\t%zu\n", row->doc_id.v, row->commit_ts.v, row->body.len);
        fwrite(row->body.ptr, 1, row->body.len, stdout);
        fputc('\n', stdout);
    } else if (args->cli->json) {
        print_json_row(row);
    } else {
        int shown = row->body.len > 100 ? 100 : (int)row->body.len;
        printf("%20" PRIu64 "  %" PRIu64 "  %.*s%s\n", row->doc_id.v, row->commit_ts.v, shown,
               (const char *)row->body.ptr, row->body.len > 100 ? "..." : "");
    }
    return true;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct rows_args *args = state->input;
    switch (key) {
    case 'n':
        args->limit = strtoull(arg, NULL, 10);
        return 0;
    case 'r':
        args->raw = true;
        return 0;
    case 'c':
        args->count = true;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0)
            return ARGP_ERR_UNKNOWN;
        args->path = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_head(const struct rows_args *args, const struct sf_rows_head *head)
{
    if (args->raw && !args->count)
        return;
    if (args->cli->json) {
        printf("{\"visible_rows\":\"%" PRIu64 "\",\"manifest_version\":\"%" PRIu64
               "\",\"safe_ts\":\"%" PRIu64 "\",\"publisher_epoch\":\"%" PRIu64 "\"}\n",
               args->seen, head->manifest_version, head->safe_ts.v, head->publisher_epoch);
        return;
    }
    char when[32];
    sf_cli_format_unix_ms((int64_t)sf_tso_physical_ms(head->safe_ts), when);
    printf("%" PRIu64 " visible rows, manifest version %" PRIu64 ", safe_ts %" PRIu64 " (%s)\n",
           args->seen, head->manifest_version, head->safe_ts.v, when);
}

int sf_cli_rows(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"limit", 'n', "N", 0, "print at most N rows (default all)", 0},
        {"raw", 'r', NULL, 0,
         "id, commit_ts, body length, then the body's bytes on a line of its own", 0},
        {"count", 'c', NULL, 0, "only the number of visible rows and the committed head", 0},
        {0}};
    static const struct argp argp = {
        options,
        parse,
        "NAMESPACE/NAME",
        "Lists the visible rows of a collection in id order, from its committed manifest "
        "and WAL, verifying every checksum.",
        NULL,
        NULL,
        NULL};
    struct rows_args args = {.cli = cli, .limit = UINT64_MAX};
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0 || args.path == NULL)
        return sf_cli_usage("rows wants NS/NAME");
    struct sf_collection_ref ref;
    int exit_code = sf_cli_resolve_collection(cli, args.path, &ref);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    struct sf_store *store = sf_cli_remote_store_new(cli->channel, cli->timeout_ms);
    struct sf_rows_head head = {0};
    enum sf_err err = sf_rows_read(store, NULL, ref, each_row, &args, &head, &cli->diag);
    sf_store_destroy(store);
    if (err != SF_OK) {
        exit_code = sf_cli_fail(cli, "rows");
        return exit_code == SF_CLI_UNAVAILABLE ? exit_code : SF_CLI_DATA;
    }
    print_head(&args, &head);
    return SF_CLI_OK;
}
