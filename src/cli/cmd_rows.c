/*
 * `sfctl rows NS/NAME`: the visible rows as the committed manifest and the WAL hold them, read
 * object by object through the operations service, every checksum verified. What this prints is
 * what survives the server.
 */
#include "cli/cli_priv.h"

#include <inttypes.h>

#include "publish/reader.h"

#define ROW_SHOWN_BYTES 100 /* of a document in the table */

/* What the command line said, and the count so far. */
struct rows_args {
    struct sf_cli *cli; /* for --json */
    const char *path;   /* NAMESPACE/NAME */
    uint64_t limit;     /* rows to print */
    uint64_t seen;      /* visible rows */
    bool raw;           /* --raw: id, tab, commit_ts, tab, length, newline, body, newline */
    bool count;         /* --count: no rows */
};

static void print_json_row(const struct sf_row *row)
{
    struct sf_cli_json json;

    sf_cli_json_begin(&json);
    sf_cli_json_u64(&json, "doc_id", row->doc_id.v);
    sf_cli_json_u64(&json, "commit_ts", row->commit_ts.v);
    sf_cli_json_bytes(&json, "body", row->body);
    sf_cli_json_end(&json, stdout);
}

static void print_table_row(const struct rows_args *args, const struct sf_row *row)
{
    size_t shown = sf_cli_cut(row->body, ROW_SHOWN_BYTES);

    if (args->seen == 1)
        printf("%20s  %-20s  DOCUMENT\n", "ID", "COMMIT_TS");
    printf("%20" PRIu64 "  %-20" PRIu64 "  ", row->doc_id.v, row->commit_ts.v);
    sf_cli_print_text(sf_view_bytes(row->body.ptr, shown), stdout);
    puts(shown < row->body.len ? "..." : "");
}

static bool each_row(void *user, const struct sf_row *row)
{
    struct rows_args *args = user;

    if (args->seen++ >= args->limit || args->count)
        return true;
    if (args->raw) {
        printf("%" PRIu64 "\t%" PRIu64 "\t%zu\n", row->doc_id.v, row->commit_ts.v, row->body.len);
        (void)fwrite(row->body.ptr, 1, row->body.len, stdout);
        fputc('\n', stdout);
    } else if (args->cli->json) {
        print_json_row(row);
    } else {
        print_table_row(args, row);
    }
    return true;
}

enum { OPTION_COUNT = SF_CLI_FLAG_OWN };

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct rows_args *args = state->input;

    switch (key) {
    case SF_CLI_FLAG_LIMIT:
        args->limit = sf_cli_take_limit(arg, state);
        return 0;
    case SF_CLI_FLAG_RAW:
        args->raw = true;
        return 0;
    case OPTION_COUNT:
        args->count = true;
        return 0;
    case ARGP_KEY_ARG:
        return sf_cli_take_word(&args->path, 1, arg, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_head(const struct rows_args *args, const struct sf_rows_head *head)
{
    if (args->raw && !args->count)
        return;
    if (args->cli->json) {
        struct sf_cli_json json;
        sf_cli_json_begin(&json);
        sf_cli_json_u64(&json, "visible_rows", args->seen);
        sf_cli_json_u64(&json, "manifest_version", head->manifest_version);
        sf_cli_json_u64(&json, "safe_ts", head->safe_ts.v);
        sf_cli_json_u64(&json, "publisher_epoch", head->publisher_epoch);
        sf_cli_json_end(&json, stdout);
        return;
    }
    char when[32];
    sf_cli_format_unix_ms((int64_t)sf_tso_physical_ms(head->safe_ts), when);
    printf("%" PRIu64 " visible row%s, manifest version %" PRIu64 ", safe_ts %" PRIu64 " (%s)\n",
           args->seen, args->seen == 1 ? "" : "s", head->manifest_version, head->safe_ts.v, when);
}

int sf_cli_rows(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp_option options[] = {
        SF_CLI_OPTION_LIMIT("at most N rows (default all)"),
        SF_CLI_OPTION_RAW("id, commit_ts, body length, then the body's bytes on a line of its own"),
        {"count", OPTION_COUNT, NULL, 0, "only the number of visible rows and the committed head",
         0},
        {0}};
    static const struct argp argp = {
        options,
        parse,
        "NAMESPACE/NAME",
        "Lists the visible rows of a collection in id order, from its committed manifest "
        "and WAL, verifying every checksum.\v"
        "With --json one object a row, its document as \"body\" (or as \"body_hex\" when it is not "
        "JSON in one line), then one object with the number of visible rows and the committed "
        "head.",
        NULL,
        NULL,
        NULL};
    struct rows_args args = {.cli = cli, .limit = UINT64_MAX};
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    if (args.path == NULL)
        return sf_cli_usage("rows wants NS/NAME");
    struct sf_collection_ref ref;
    int exit_code = sf_cli_resolve_collection(cli, args.path, &ref);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    struct sf_store *store = sf_cli_remote_store_new(cli);
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
