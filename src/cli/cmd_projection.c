/*
 * `sfctl projection digest|rebuild`: the digest of a running server's projection, and a projection
 * made anew from the object store with no server running: the data folder is locked for it, what
 * stands is dropped, and opening the catalog over an empty projection rebuilds it, as the next
 * start of the server would.
 */
#include "cli/cli_priv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/config.h"
#include "base/rng.h"
#include "catalog/catalog_digest.h"
#include "cluster/datadir.h"
#include "cluster/store_identity.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define DIGEST_METHOD "/searchfabric.v1.CatalogOperationsService/DigestProjection"

/* What the command line said. */
struct projection_args {
    const char *words[2]; /* action, data folder */
    const char *config;   /* configuration file; NULL = defaults */
};

enum { OPTION_CONFIG = SF_CLI_FLAG_OWN };

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct projection_args *args = state->input;

    switch (key) {
    case OPTION_CONFIG:
        args->config = arg;
        return 0;
    case ARGP_KEY_ARG:
        return sf_cli_take_word(args->words, SF_ARRAY_LEN(args->words), arg, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_digest(const struct sf_cli *cli,
                         const Searchfabric__V1__DigestProjectionResponse *digest)
{
    static const char *const titles[] = {"TABLE", "ROWS", "AUTHORITATIVE", "SHA256"};
    struct sf_cli_table table;

    if (cli->json) {
        sf_cli_print_json(&digest->base);
        return;
    }
    sf_cli_table_begin(&table, SF_ARRAY_LEN(titles), titles);
    for (size_t i = 0; i < digest->n_tables; i++) {
        const Searchfabric__V1__ProjectionTableDigest *t = digest->tables[i];
        char rows[24];
        (void)snprintf(rows, sizeof(rows), "%" PRIu64, t->row_count);
        const char *const cells[] = {t->table, rows, t->authoritative ? "yes" : "no", t->sha256};
        sf_cli_table_row(&table, cells);
    }
    sf_cli_table_end(&table, stdout);
    printf("projection %s\n", digest->sha256);
}

static int run_digest(struct sf_cli *cli)
{
    Searchfabric__V1__DigestProjectionRequest request;
    const ProtobufCMessage *response = NULL;

    searchfabric__v1__digest_projection_request__init(&request);
    sf_cli_patient(cli);
    int exit_code = sf_cli_connect(cli);
    if (exit_code == SF_CLI_OK)
        exit_code = sf_cli_call(cli, NULL, DIGEST_METHOD, &request.base, &response);
    if (exit_code == SF_CLI_OK)
        print_digest(cli, (const Searchfabric__V1__DigestProjectionResponse *)response);
    return exit_code;
}

/* ---- rebuild ------------------------------------------------------------------------------ */

/* What a rebuild opens, in this order. */
struct rebuild {
    struct sf_config *config;
    struct sf_datadir *dir;
    struct sf_store *store;
    struct sf_reactors *reactors;
    struct sf_sched *pool;
    struct sf_keyring *keyring;
    struct sf_tso_source *tso;
    struct sf_sql *sql;
    struct sf_catalog *catalog;
    struct sf_attempts attempts;
    uint32_t lane_shards;
};

static enum sf_err open_store(struct rebuild *r, struct sf_diag *diag)
{
    char path[SF_DATADIR_PATH_BYTES];

    sf_datadir_path(r->dir, "store", path, sizeof(path));
    enum sf_err err = sf_embedded_store_open(path, diag, &r->store);
    if (err != SF_OK)
        return err;
    struct sf_store_identity identity;
    struct sf_store_identity_options options = {
        .store = r->store,
        .clock = sf_clock_system(),
        .attempts = &r->attempts,
        .catalog_lane_shard_count = r->config->lane_shards,
        .coordinator_shard_count = r->config->coordinator_shards,
    };
    sf_random_bytes(options.random, sizeof(options.random));
    err = sf_store_identity_open(&options, diag, &identity);
    r->lane_shards = identity.catalog_lane_shard_count;
    return err;
}

static enum sf_err open_parts(struct rebuild *r, struct sf_diag *diag)
{
    char path[SF_DATADIR_PATH_BYTES];
    const struct sf_pool_options pool = {.workers = 4, .max_queued_tasks = 4096};

    enum sf_err err = open_store(r, diag);
    if (err == SF_OK)
        err = sf_reactors_start(1, sf_clock_system(), diag, &r->reactors);
    if (err != SF_OK)
        return err;
    r->pool = sf_pool_new(&pool, sf_clock_system());
    sf_datadir_path(r->dir, "keyring.yaml", path, sizeof(path));
    err = r->config->keyring_path != NULL
              ? sf_keyring_load(r->config->keyring_path, diag, &r->keyring)
              : sf_keyring_open_or_create(path, diag, &r->keyring);
    if (err != SF_OK)
        return err;
    const struct sf_oracle_options oracle = {.store = r->store,
                                             .loop = sf_reactors_loop(r->reactors, 0),
                                             .clock = sf_clock_system(),
                                             .attempts = &r->attempts};
    return sf_oracle_open(&oracle, NULL, diag, &r->tso);
}

static enum sf_err rebuild(struct rebuild *r, struct sf_diag *diag)
{
    char path[SF_DATADIR_PATH_BYTES];

    sf_datadir_path(r->dir, "projection.sqlite", path, sizeof(path));
    const struct sf_sql_options where = sf_catalog_projection_where(&r->config->projection, path);
    enum sf_err err = sf_sql_drop(&where, diag);
    if (err == SF_OK)
        err = sf_catalog_projection_open_at(&where, diag, &r->sql);
    if (err != SF_OK)
        return err;
    const struct sf_catalog_deps deps = {
        .store = r->store,
        .sched = r->pool,
        .loop = sf_reactors_loop(r->reactors, 0),
        .clock = sf_clock_system(),
        .tso = r->tso,
        .sql = r->sql,
        .keyring = r->keyring,
        .attempts = &r->attempts,
        .owner_id = "sfctl-rebuild",
        .lane_shards = r->lane_shards,
    };
    return sf_catalog_open(&deps, NULL, diag, &r->catalog);
}

static void close_parts(struct rebuild *r)
{
    sf_catalog_close(r->catalog, NULL);
    sf_sql_close(r->sql);
    if (r->tso != NULL)
        sf_tso_source_destroy(r->tso);
    sf_keyring_destroy(r->keyring);
    if (r->pool != NULL)
        sf_pool_destroy(r->pool);
    if (r->reactors != NULL)
        sf_reactors_stop(r->reactors);
    sf_store_destroy(r->store);
    sf_datadir_close(r->dir);
    sf_config_destroy(r->config);
}

static int run_rebuild(struct sf_cli *cli, const struct projection_args *args)
{
    struct rebuild r = {0};
    Searchfabric__V1__DigestProjectionResponse digest;
    uint64_t process;
    int64_t started_ms = sf_clock_mono_ms(sf_clock_system());

    if (!sf_cli_dir_has(args->words[1], "store"))
        return sf_cli_usage("projection rebuild: no data folder in %s", args->words[1]);
    sf_random_bytes(&process, sizeof(process));
    sf_attempts_init(&r.attempts, process);
    enum sf_err err = SF_OK;
    if (args->config != NULL)
        err = sf_config_load(args->config, &cli->diag, &r.config);
    else
        r.config = sf_config_defaults();
    if (err == SF_OK)
        err = sf_datadir_open(args->words[1], &cli->diag, &r.dir);
    if (err == SF_OK)
        err = open_parts(&r, &cli->diag);
    if (err == SF_OK)
        err = rebuild(&r, &cli->diag);
    if (err == SF_OK)
        err = sf_catalog_digest(r.sql, NULL, cli->arena, &cli->diag, &digest);
    close_parts(&r);
    if (err != SF_OK)
        return sf_cli_fail(cli, "projection rebuild");
    print_digest(cli, &digest);
    fprintf(stderr, "sfctl: rebuilt in %" PRId64 " ms\n",
            sf_clock_mono_ms(sf_clock_system()) - started_ms);
    return SF_CLI_OK;
}

int sf_cli_projection(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"config", OPTION_CONFIG, "FILE", 0,
         "rebuild: the server's configuration (default: SQLite)", 0},
        {0}};
    static const struct argp argp = {
        options,
        parse,
        "digest | rebuild DATA_DIR",
        "digest: the digest of the server's projection; two projections of one store have the same "
        "one, whatever database they are in. rebuild DATA_DIR: drops the projection and makes it "
        "anew from the store in the folder; no server may run on it.",
        NULL,
        NULL,
        NULL};
    struct projection_args args = {0};

    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
        return SF_CLI_USAGE;
    if (args.words[0] != NULL && strcmp(args.words[0], "digest") == 0 && args.words[1] == NULL)
        return run_digest(cli);
    if (args.words[0] != NULL && strcmp(args.words[0], "rebuild") == 0 && args.words[1] != NULL)
        return run_rebuild(cli, &args);
    return sf_cli_usage("projection wants digest, or rebuild DATA_DIR");
}
