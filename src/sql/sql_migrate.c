/*
 * The schema handshake. `schema_migrations` lists the steps applied, each with a hash of its text.
 * A database with a step this binary does not have is newer: refused. One whose step has another
 * text was made by another product line or a changed step: refused too. Missing steps run in one
 * transaction each, so that a crash leaves a whole number of them. Processes that open at once take
 * turns under the backend's schema lock; the later ones find the steps done.
 *
 * Where schema statements commit by themselves (MySQL family) a step is noted as started before its
 * first statement. One found started was cut: it runs again, and what exists already is skipped.
 */
#include <stdio.h>

#include "base/hash.h"
#include "sql/sql_priv.h"

#define STARTED "(started)"

/* What stands in the database. */
struct history {
    size_t done;  /* whole steps */
    bool started; /* the one after them was begun */
};

static const char *text_of(const struct sf_sql_conn *conn, const struct sf_sql_migration *m)
{
    switch (conn->core->backend->kind) {
    case SF_SQL_POSTGRES:
        return m->postgres;
    case SF_SQL_MYSQL:
        return m->mysql;
    default:
        return m->sqlite;
    }
}

/* Compares one step of the database with ours. */
static enum sf_err check_step(struct sf_sql_conn *conn, const struct sf_sql_options *options,
                              struct sf_sql_stmt *row, struct history *history,
                              struct sf_diag *diag)
{
    int64_t version = sf_sql_col_i64(row, 0);
    char hex[SF_SHA256_HEX_BYTES];

    if (history->done >= options->migration_count)
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "the database has schema version %lld, this binary knows up to %zu: "
                           "run the newer binary, or drop the projection and rebuild it",
                           (long long)version, options->migration_count);
    const struct sf_sql_migration *m = &options->migrations[history->done];
    if (sf_view_equal(sf_sql_col_text(row, 2), sf_view_str(STARTED))) {
        history->started = true;
        return SF_OK;
    }
    sf_sha256_hex(sf_view_str(text_of(conn, m)), hex);
    if (version != (int64_t)m->version || !sf_view_equal(sf_sql_col_text(row, 2), sf_view_str(hex)))
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "schema step %lld of the database is not step %u (%s) of this "
                           "binary: drop the projection and rebuild it",
                           (long long)version, m->version, m->name);
    history->done++;
    return SF_OK;
}

static enum sf_err read_history(struct sf_sql_conn *conn, const struct sf_sql_options *options,
                                struct sf_diag *diag, struct history *out_history)
{
    static const char *const query =
        "SELECT version, name, sha256 FROM schema_migrations ORDER BY version";
    struct sf_sql_stmt *stmt = NULL;
    bool row = false;

    *out_history = (struct history){0};
    enum sf_err err = sf_sql_prepare(conn, query, diag, &stmt);
    while (err == SF_OK && (err = sf_sql_step(stmt, diag, &row)) == SF_OK && row)
        err = check_step(conn, options, stmt, out_history, diag);
    sf_sql_finish(stmt);
    return err;
}

static enum sf_err record_step(struct sf_sql_conn *conn, const struct sf_sql_migration *m,
                               const char *sha256, struct sf_diag *diag)
{
    static const struct sf_sql_upsert row = {.table = "schema_migrations",
                                             .columns = "version, name, sha256",
                                             .key = "version",
                                             .update = "sha256"};
    struct sf_sql_stmt *stmt = NULL;

    enum sf_err err = sf_sql_prepare_upsert(conn, &row, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_i64(stmt, 1, m->version);
    sf_sql_bind_text(stmt, 2, sf_view_str(m->name));
    sf_sql_bind_text(stmt, 3, sf_view_str(sha256));
    return sf_sql_run(stmt, diag, NULL);
}

/* Runs the next missing step under the schema lock. */
static enum sf_err run_step(struct sf_sql_conn *conn, const struct sf_sql_migration *m,
                            const struct history *history, struct sf_diag *diag)
{
    const struct sql_backend *backend = conn->core->backend;
    const char *text = text_of(conn, m);
    char hex[SF_SHA256_HEX_BYTES];
    enum sf_err err = SF_OK;

    SF_ASSERT(text != NULL);
    if (backend->ddl_commits && !history->started)
        err = record_step(conn, m, STARTED, diag);
    if (err == SF_OK)
        err = backend->schema_step(conn, text, history->started, diag);
    sf_sha256_hex(sf_view_str(text), hex);
    if (err == SF_OK)
        err = record_step(conn, m, hex, diag);
    if (err != SF_OK)
        sf_diag_wrap(diag, "schema step %u (%s)", m->version, m->name);
    return err;
}

/* Locks the schema; *out_more when a step was run, so that there may be another. */
static enum sf_err migrate_one(struct sf_sql_conn *conn, const struct sf_sql_options *options,
                               struct sf_diag *diag, bool *out_more)
{
    const struct sql_backend *backend = conn->core->backend;
    struct history history = {0};

    *out_more = false;
    enum sf_err err = backend->schema_lock(conn, diag);
    if (err != SF_OK)
        return err;
    conn->in_tx = !backend->ddl_commits;
    conn->failed = false;
    err = sf_sql_exec(conn, backend->own_tables, diag);
    if (err == SF_OK)
        err = read_history(conn, options, diag, &history);
    if (err == SF_OK && history.done < options->migration_count) {
        err = run_step(conn, &options->migrations[history.done], &history, diag);
        *out_more = err == SF_OK;
    }
    if (err == SF_OK && conn->in_tx)
        err = sf_sql_commit(conn, diag);
    sf_sql_rollback(conn);
    if (backend->schema_unlock != NULL)
        backend->schema_unlock(conn);
    return err;
}

enum sf_err sql_migrate(struct sf_sql *db, const struct sf_sql_options *options,
                        struct sf_diag *diag)
{
    struct sf_sql_conn *conn = sf_sql_acquire(db, NULL, SF_SQL_WRITE);
    bool more = true;
    enum sf_err err = SF_OK;

    while (err == SF_OK && more)
        err = migrate_one(conn, options, diag, &more);
    if (err == SF_OK && db->core->backend->check_text != NULL)
        err = db->core->backend->check_text(conn, diag);
    sf_sql_release(conn);
    return err == SF_ERR_UNAVAILABLE ? SF_ERR_IO : err;
}
