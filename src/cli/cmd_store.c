/*
 * `sfctl store probe DIR`: proves by hand, before anything serves, that the embedded store in a
 * folder keeps its contract (create-only, swap, list). The server does the same at every start.
 */
#include "cli/cli_priv.h"

static error_t parse(int key, char *arg, struct argp_state *state)
{
    const char **words = state->input;

    return key == ARGP_KEY_ARG ? sf_cli_take_word(words, 2, arg, state) : ARGP_ERR_UNKNOWN;
}

int sf_cli_store(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp argp = {
        NULL,
        parse,
        "probe DIR",
        "Proves that the embedded store in DIR keeps conditional writes and listing. The "
        "folder is made when it is absent and must not be in use by a server.",
        NULL,
        NULL,
        NULL};
    const char *words[2] = {NULL, NULL};
    if (argp_parse(&argp, argc, argv, 0, NULL, words) != 0)
        return SF_CLI_USAGE;
    if (words[1] == NULL || strcmp(words[0], "probe") != 0)
        return sf_cli_usage("store wants probe DIR");
    if (sf_cli_dir_has(words[1], "store"))
        return sf_cli_usage("store probe: %s is a data folder; its store is %s/store", words[1],
                            words[1]);
    struct sf_store *store = NULL;
    if (sf_embedded_store_open(words[1], &cli->diag, &store) != SF_OK)
        return sf_cli_fail(cli, "store probe");
    enum sf_err err = sf_store_probe(store, NULL, &cli->diag);
    sf_store_destroy(store);
    if (err != SF_OK) {
        (void)sf_cli_fail(cli, "store probe");
        return SF_CLI_DATA;
    }
    if (cli->json)
        puts("{\"store\":\"ok\"}");
    else
        printf("%s: create-only, swap, missing key, racing pair and listing hold\n", words[1]);
    return SF_CLI_OK;
}
