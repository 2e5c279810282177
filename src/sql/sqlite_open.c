/*
 * Opening and the schema handshake. `schema_migrations` lists the steps applied, each with a hash
 * of its text. A database with a step this binary does not have is newer: refused. One whose step
 * has another text was made by another product line or a changed step: refused too. Missing steps
 * run in one transaction each, so that a crash leaves a whole number of them. Two processes that
 * open at once are serialized by BEGIN IMMEDIATE; the second finds the steps done.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/mem.h"
#include "sql/sql_priv.h"

#define SQL_BUSY_TIMEOUT_MS 5000
#define SQL_DEFAULT_READERS 2u

static const char *const connection_setup =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=OFF;"
    "PRAGMA temp_store=MEMORY; PRAGMA case_sensitive_like=ON; PRAGMA trusted_schema=OFF;";

static const char *const migrations_table = "CREATE TABLE IF NOT EXISTS schema_migrations ("
                                            " version INTEGER NOT NULL PRIMARY KEY,"
                                            " name TEXT NOT NULL,"
                                            " sha256 TEXT NOT NULL)";

static void conn_close(struct sf_sql_conn *conn)
{
    sql_cache_fini(conn);
    (void)sqlite3_close(conn->db);
    free(conn);
}

static void core_destroy(struct sql_core *core)
{
    while (core->all != NULL) {
        struct sf_sql_conn *conn = core->all;
        core->all = conn->all_next;
        conn_close(conn);
    }
    (void)pthread_mutex_destroy(&core->mu);
    free(core);
}

static struct sql_core *core_new(bool in_memory)
{
    struct sql_core *core = sf_calloc(1, sizeof(*core));

    core->in_memory = in_memory;
    core->refs = 1;
    core->writer.tail = &core->writer.head;
    core->readers.tail = &core->readers.head;
    (void)pthread_mutex_init(&core->mu, NULL);
    return core;
}

static enum sf_err conn_open(struct sql_core *core, const char *path, bool writer,
                             struct sf_diag *diag)
{
    struct sf_sql_conn *conn = sf_calloc(1, sizeof(*conn));
    struct sql_gate *gate = writer ? &core->writer : &core->readers;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
                (writer ? SQLITE_OPEN_CREATE : 0);

    conn->core = core;
    conn->writer = writer;
    int rc = sqlite3_open_v2(path == NULL ? ":memory:" : path, &conn->db, flags, NULL);
    enum sf_err err = SF_OK;
    if (rc == SQLITE_OK) {
        (void)sqlite3_busy_timeout(conn->db, SQL_BUSY_TIMEOUT_MS);
        err = sf_sql_exec(conn, connection_setup, diag);
        if (err == SF_OK && !writer)
            err = sf_sql_exec(conn, "PRAGMA query_only=ON", diag);
    } else {
        err = sf_diag_set(diag, SF_ERR_IO, "sqlite: %s",
                          conn->db == NULL ? sqlite3_errstr(rc) : sqlite3_errmsg(conn->db));
    }
    if (err != SF_OK) {
        sf_diag_wrap(diag, "projection %s", path == NULL ? "(in memory)" : path);
        conn_close(conn);
        return err == SF_ERR_UNAVAILABLE ? SF_ERR_IO : err;
    }
    conn->all_next = core->all;
    core->all = conn;
    conn->next = gate->idle;
    gate->idle = conn;
    return SF_OK;
}

/* Compares the steps that stand in the database with ours; out_done: how many stand. */
static enum sf_err check_history(struct sf_sql_conn *conn, const struct sf_sql_options *options,
                                 struct sf_diag *diag, size_t *out_done)
{
    static const char *const query =
        "SELECT version, name, sha256 FROM schema_migrations ORDER BY version";
    struct sf_sql_stmt *stmt = NULL;
    size_t done = 0;
    bool row = false;

    enum sf_err err = sf_sql_prepare(conn, query, diag, &stmt);
    while (err == SF_OK && (err = sf_sql_step(stmt, diag, &row)) == SF_OK && row) {
        int64_t version = sf_sql_col_i64(stmt, 0);
        char hex[SF_SHA256_HEX_BYTES];
        if (done >= options->migration_count) {
            err = sf_diag_set(diag, SF_ERR_CONFIG,
                              "the database has schema version %lld, this binary knows up to %zu: "
                              "run the newer binary, or drop the projection and rebuild it",
                              (long long)version, options->migration_count);
            break;
        }
        const struct sf_sql_migration *m = &options->migrations[done];
        sf_sha256_hex(sf_view_str(m->sqlite), hex);
        if (version != (int64_t)m->version ||
            !sf_view_equal(sf_sql_col_text(stmt, 2), sf_view_str(hex))) {
            err = sf_diag_set(diag, SF_ERR_CONFIG,
                              "schema step %lld of the database is not step %u (%s) of this "
                              "binary: drop the projection and rebuild it",
                              (long long)version, m->version, m->name);
            break;
        }
        done++;
    }
    sf_sql_finish(stmt);
    *out_done = done;
    return err;
}

static enum sf_err record_step(struct sf_sql_conn *conn, const struct sf_sql_migration *m,
                               struct sf_diag *diag)
{
    static const char *const insert =
        "INSERT INTO schema_migrations (version, name, sha256) VALUES (?1, ?2, ?3)";
    struct sf_sql_stmt *stmt = NULL;
    char hex[SF_SHA256_HEX_BYTES];

    enum sf_err err = sf_sql_prepare(conn, insert, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sha256_hex(sf_view_str(m->sqlite), hex);
    sf_sql_bind_i64(stmt, 1, m->version);
    sf_sql_bind_text(stmt, 2, sf_view_str(m->name));
    sf_sql_bind_text(stmt, 3, sf_view_str(hex));
    return sf_sql_run(stmt, diag, NULL);
}

/* Runs the next missing step, if any, in a transaction of its own. */
static enum sf_err migrate_one(struct sf_sql_conn *conn, const struct sf_sql_options *options,
                               struct sf_diag *diag, bool *out_more)
{
    size_t done = 0;

    *out_more = false;
    enum sf_err err = sf_sql_begin(conn, diag);
    if (err != SF_OK)
        return err;
    err = check_history(conn, options, diag, &done);
    if (err == SF_OK && done < options->migration_count) {
        const struct sf_sql_migration *m = &options->migrations[done];
        err = sf_sql_exec(conn, m->sqlite, diag);
        if (err == SF_OK)
            err = record_step(conn, m, diag);
        if (err == SF_OK)
            err = sf_sql_commit(conn, diag);
        if (err != SF_OK)
            sf_diag_wrap(diag, "schema step %u (%s)", m->version, m->name);
        *out_more = err == SF_OK;
    }
    sf_sql_rollback(conn);
    return err;
}

static enum sf_err migrate(struct sf_sql *db, const struct sf_sql_options *options,
                           struct sf_diag *diag)
{
    struct sf_sql_conn *conn = sf_sql_acquire(db, NULL, SF_SQL_WRITE);
    bool more = true;

    enum sf_err err = sf_sql_exec(conn, migrations_table, diag);
    while (err == SF_OK && more)
        err = migrate_one(conn, options, diag, &more);
    sf_sql_release(conn);
    return err == SF_ERR_UNAVAILABLE ? SF_ERR_IO : err;
}

static enum sf_err open_all(struct sf_sql *db, const struct sf_sql_options *options,
                            struct sf_diag *diag)
{
    unsigned readers = options->readers == 0 ? SQL_DEFAULT_READERS : options->readers;

    enum sf_err err = conn_open(db->core, options->path, true, diag);
    if (err == SF_OK)
        err = migrate(db, options, diag);
    for (unsigned i = 0; err == SF_OK && options->path != NULL && i < readers; i++)
        err = conn_open(db->core, options->path, false, diag);
    return err;
}

enum sf_err sf_sql_open(const struct sf_sql_options *options, struct sf_diag *diag,
                        struct sf_sql **out_db)
{
    struct sf_sql *db = sf_calloc(1, sizeof(*db));

    SF_ASSERT(options->migration_count >= 1 && options->readers <= SF_LIMIT_SQL_CONNECTIONS);
    for (size_t i = 0; i < options->migration_count; i++)
        SF_ASSERT(options->migrations[i].version == i + 1);
    db->core = core_new(options->path == NULL);
    db->core->schema_version = (uint32_t)options->migration_count;
    enum sf_err err = open_all(db, options, diag);
    if (err != SF_OK) {
        sf_sql_close(db);
        return err;
    }
    db->faults = options->faults; /* the schema itself is no subject of faults */
    *out_db = db;
    return SF_OK;
}

struct sf_sql *sf_sql_share(struct sf_sql *db, struct sf_sql_faults *faults)
{
    struct sf_sql *handle = sf_calloc(1, sizeof(*handle));

    *handle = (struct sf_sql){.core = db->core, .faults = faults};
    (void)pthread_mutex_lock(&db->core->mu);
    db->core->refs++;
    (void)pthread_mutex_unlock(&db->core->mu);
    return handle;
}

void sf_sql_close(struct sf_sql *db)
{
    if (db == NULL)
        return;
    (void)pthread_mutex_lock(&db->core->mu);
    bool last = --db->core->refs == 0;
    (void)pthread_mutex_unlock(&db->core->mu);
    if (last)
        core_destroy(db->core);
    free(db);
}

uint32_t sf_sql_schema_version(const struct sf_sql *db)
{
    return db->core->schema_version;
}
