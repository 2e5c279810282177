/* `sfctl object ls|cat`: durable objects as they are, through the running server. */
#include "cli/cli_priv.h"

#include <inttypes.h>

#include "object/compress.h"

#define LIST_ARENA_BYTES ((size_t)16 << 20) /* one page of a list */

/* What the command line said. */
struct object_args {
    const char *words[2]; /* action, key or prefix */
    uint32_t limit;       /* --limit: of ls */
    bool raw;             /* --raw: compressed objects are not unpacked */
};

/* Prints the error of a store request: what the server said of it or, when it said nothing, what
 * the error means. Returns its exit code. */
static int fail(struct sf_cli *cli, const char *what, const char *key, enum sf_err err)
{
    if (cli->diag.err == SF_OK)
        sf_diag_set(&cli->diag, err, "%s", sf_err_info(err)->meaning);
    return sf_cli_fail(cli,
                       key[0] == '\0' ? what : sf_arena_printf(cli->arena, "%s %s", what, key));
}

static void print_entry(const struct sf_cli *cli, const struct sf_list_entry *entry)
{
    struct sf_cli_json json;

    if (!cli->json) {
        printf("%10" PRIu64 "  ", entry->size_bytes);
        sf_cli_print_text(entry->key, stdout);
        fputc('\n', stdout);
        return;
    }
    sf_cli_json_begin(&json);
    sf_cli_json_view(&json, "key", entry->key);
    sf_cli_json_u64(&json, "size_bytes", entry->size_bytes);
    sf_cli_json_end(&json, stdout);
}

static int list(struct sf_cli *cli, struct sf_store *store, const char *prefix, uint32_t limit)
{
    struct sf_arena *page = sf_arena_new(LIST_ARENA_BYTES);
    struct sf_buf after = {0};
    enum sf_err err = SF_OK;
    size_t page_size = SF_LIMIT_LIST_PAGE_ENTRIES;
    size_t count = page_size;

    while (err == SF_OK && count == page_size && limit > 0) {
        struct sf_list_entry *entries = NULL;
        page_size = limit < SF_LIMIT_LIST_PAGE_ENTRIES ? limit : SF_LIMIT_LIST_PAGE_ENTRIES;
        sf_arena_reset(page);
        err = sf_store_list_wait(store, NULL, sf_view_str(prefix), sf_buf_view(&after), page_size,
                                 page, &entries, &count);
        if (err != SF_OK)
            break;
        limit -= (uint32_t)count;
        for (size_t i = 0; i < count; i++)
            print_entry(cli, &entries[i]);
        sf_buf_clear(&after);
        if (count > 0)
            sf_buf_append(&after, entries[count - 1].key.ptr, entries[count - 1].key.len);
    }
    sf_arena_destroy(page);
    sf_buf_fini(&after);
    return err == SF_OK ? SF_CLI_OK : fail(cli, "object ls", prefix, err);
}

static void print_object(const struct sf_cli *cli, const struct object_args *args,
                         struct sf_view body)
{
    struct sf_cli_json json;

    if (!cli->json) {
        (void)fwrite(body.ptr, 1, body.len, stdout);
        if (!args->raw)
            fputc('\n', stdout);
        return;
    }
    sf_cli_json_begin(&json);
    sf_cli_json_str(&json, "key", args->words[1]);
    sf_cli_json_u64(&json, "size_bytes", body.len);
    sf_cli_json_bytes(&json, "body", body);
    sf_cli_json_end(&json, stdout);
}

static int cat(struct sf_cli *cli, struct sf_store *store, const struct object_args *args)
{
    const char *key = args->words[1];
    struct sf_buf stored = {0};
    struct sf_buf unpacked = {0};
    size_t len = strlen(key);
    bool packed = !args->raw && len > 4 && strcmp(key + len - 4, ".zst") == 0;
    enum sf_err err = sf_store_get_wait(store, NULL, sf_view_str(key), &stored, NULL);

    if (err == SF_OK && packed)
        err = sf_expand(sf_buf_view(&stored), &unpacked, NULL);
    if (err == SF_OK)
        print_object(cli, args, sf_buf_view(packed ? &unpacked : &stored));
    sf_buf_fini(&stored);
    sf_buf_fini(&unpacked);
    return err == SF_OK ? SF_CLI_OK : fail(cli, "object cat", key, err);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct object_args *args = state->input;

    switch (key) {
    case SF_CLI_FLAG_LIMIT:
        args->limit = sf_cli_take_limit(arg, state);
        return 0;
    case SF_CLI_FLAG_RAW:
        args->raw = true;
        return 0;
    case ARGP_KEY_ARG:
        return sf_cli_take_word(args->words, SF_ARRAY_LEN(args->words), arg, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int sf_cli_object(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp_option options[] = {
        SF_CLI_OPTION_RAW("cat: the stored bytes, nothing unpacked, no line end added"),
        SF_CLI_OPTION_LIMIT("ls: at most N objects (default all)"),
        {0}};
    static const struct argp argp = {
        options,
        parse,
        "ls [PREFIX]\ncat KEY",
        "Lists durable objects in byte order of their keys and prints one. Objects are "
        "the only truth; nothing here changes them.\v"
        "cat unpacks objects whose key ends in .zst. With --json it prints one object with key, "
        "size_bytes and the content as \"body\", or as \"body_hex\" when it is not JSON in one "
        "line.",
        NULL,
        NULL,
        NULL};
    struct object_args args = {.limit = UINT32_MAX};

    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    const char *action = args.words[0] == NULL ? "" : args.words[0];
    bool is_list = strcmp(action, "ls") == 0;
    if (!is_list && (strcmp(action, "cat") != 0 || args.words[1] == NULL))
        return sf_cli_usage("object wants ls [PREFIX] or cat KEY");
    int exit_code = sf_cli_connect(cli);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    sf_diag_init(&cli->diag);
    struct sf_store *store = sf_cli_remote_store_new(cli);
    exit_code = is_list ? list(cli, store, args.words[1] == NULL ? "" : args.words[1], args.limit)
                        : cat(cli, store, &args);
    sf_store_destroy(store);
    return exit_code;
}
