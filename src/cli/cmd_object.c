/* `sfctl object ls|cat`: durable objects as they are, through the running server. */
#include "cli/cli_priv.h"

#include <inttypes.h>

#include <zstd.h>

#include "base/limits.h"
#include "base/mem.h"

#include <stdlib.h>

/* What the command line said. */
struct object_args {
    const char *action;
    const char *key;
    bool raw; /* --raw: compressed objects are not unpacked */
};

static int list_failed(void)
{
    fputs("sfctl: object ls: the server does not answer\n", stderr);
    return SF_CLI_UNAVAILABLE;
}

static int list(struct sf_cli *cli, struct sf_store *store, const char *prefix)
{
    struct sf_view after = {0};
    for (;;) {
        struct sf_list_entry *entries = NULL;
        size_t count = 0;
        if (sf_store_list_wait(store, NULL, sf_view_str(prefix), after, SF_LIMIT_LIST_PAGE_ENTRIES,
                               cli->arena, &entries, &count) != SF_OK)
            return list_failed();
        for (size_t i = 0; i < count; i++) {
            if (cli->json)
                printf("{\"key\":\"%.*s\",\"size_bytes\":\"%" PRIu64 "\"}\n",
                       (int)entries[i].key.len, (const char *)entries[i].key.ptr,
                       entries[i].size_bytes);
            else
                printf("%10" PRIu64 "  %.*s\n", entries[i].size_bytes, (int)entries[i].key.len,
                       (const char *)entries[i].key.ptr);
        }
        if (count < SF_LIMIT_LIST_PAGE_ENTRIES)
            return SF_CLI_OK;
        after = entries[count - 1].key;
    }
}

/* Unpacks a zstd body for reading; false when it is not one. */
static bool print_unpacked(struct sf_view body)
{
    unsigned long long size = ZSTD_getFrameContentSize(body.ptr, body.len);
    if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN ||
        size > SF_LIMIT_OBJECT_BYTES)
        return false;
    char *text = sf_malloc((size_t)size + 1);
    size_t got = ZSTD_decompress(text, (size_t)size, body.ptr, body.len);
    bool ok = ZSTD_isError(got) == 0;
    if (ok)
        fwrite(text, 1, got, stdout);
    free(text);
    return ok;
}

static int cat(struct sf_store *store, const struct object_args *args)
{
    struct sf_buf body = {0};
    enum sf_err err = sf_store_get_wait(store, NULL, sf_view_str(args->key), &body, NULL);
    if (err != SF_OK) {
        sf_buf_fini(&body);
        fprintf(stderr, "sfctl: object cat: %s: %s\n", args->key, sf_err_info(err)->meaning);
        return err == SF_ERR_NOT_FOUND ? SF_CLI_REFUSED : SF_CLI_UNAVAILABLE;
    }
    size_t len = strlen(args->key);
    bool packed = len > 4 && strcmp(args->key + len - 4, ".zst") == 0;
    if (args->raw || !packed || !print_unpacked(sf_buf_view(&body)))
        fwrite(body.data, 1, body.len, stdout);
    if (!args->raw)
        fputc('\n', stdout);
    sf_buf_fini(&body);
    return SF_CLI_OK;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct object_args *args = state->input;
    if (key == 'r') {
        args->raw = true;
        return 0;
    }
    if (key == ARGP_KEY_ARG && state->arg_num == 0) {
        args->action = arg;
        return 0;
    }
    if (key == ARGP_KEY_ARG && state->arg_num == 1) {
        args->key = arg;
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

int sf_cli_object(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"raw", 'r', NULL, 0, "cat: the stored bytes, nothing unpacked, no line end added", 0},
        {0}};
    static const struct argp argp = {
        options,
        parse,
        "ls [PREFIX]\ncat KEY",
        "Lists durable objects in byte order of their keys and prints one. Objects are "
        "the only truth; nothing here changes them.",
        NULL,
        NULL,
        NULL};
    struct object_args args = {0};
    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0 || args.action == NULL)
        return sf_cli_usage("object wants ls [PREFIX] or cat KEY");
    bool is_list = strcmp(args.action, "ls") == 0;
    if (!is_list && (strcmp(args.action, "cat") != 0 || args.key == NULL))
        return sf_cli_usage("object wants ls [PREFIX] or cat KEY");
    int exit_code = sf_cli_connect(cli);
    if (exit_code != SF_CLI_OK)
        return exit_code;
    struct sf_store *store = sf_cli_remote_store_new(cli->channel, cli->timeout_ms);
    exit_code = is_list ? list(cli, store, args.key == NULL ? "" : args.key) : cat(store, &args);
    sf_store_destroy(store);
    return exit_code;
}
