/*
 * SQLite. A write transaction is BEGIN IMMEDIATE: it serializes the writers of all processes by
 * SQLite's own lock. There is nothing to connect to anew and nothing to be in doubt about. Unsigned
 * values are stored less 2^63 (sql.h).
 */
#include <sqlite3.h>

#include "sql/sql_priv.h"
#include "sql/sqlite_copier.h"
#include "sql/sqlite_gather.h"

#define BUSY_TIMEOUT_MS 5000
#define U64_BIAS        ((uint64_t)1 << 63)

static const char *const connection_setup =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=OFF;"
    "PRAGMA temp_store=MEMORY; PRAGMA case_sensitive_like=ON; PRAGMA trusted_schema=OFF;"
    "PRAGMA secure_delete=OFF;";

/* The writer keeps the inner pages of all indexes in memory, in bulk all of them: keys are random,
 * so that each commit touches pages all over. In KiB. */
static const char *const writer_setup = "PRAGMA cache_size=-32768;";
static const char *const writer_bulk = "PRAGMA cache_size=-262144;";
static const char *const writer_after_bulk = "PRAGMA cache_size=-32768; PRAGMA shrink_memory;";
static const char *const reader_setup = "PRAGMA cache_size=-4096; PRAGMA query_only=ON;";

/* SQLite counts its memory under one lock of the process, which nobody asks for. */
static void configure(void)
{
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    SF_ASSERT(sql_gather_register() == SQLITE_OK);
}

static sqlite3 *link_of(const struct sf_sql_conn *conn)
{
    return conn->link;
}

/* Turns a result into an error of ours and notes SQLite's message. */
static enum sf_err failed(struct sf_sql_conn *conn, int rc, struct sf_diag *diag)
{
    enum sf_err err = SF_ERR_UNAVAILABLE;

    switch (rc & 0xff) {
    case SQLITE_CONSTRAINT:
        if (rc == SQLITE_CONSTRAINT_UNIQUE || rc == SQLITE_CONSTRAINT_PRIMARYKEY)
            err = SF_ERR_EXISTS;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
        err = SF_ERR_CORRUPT;
        break;
    default:
        break;
    }
    return sf_diag_set(diag, err, "sqlite: %s (%d)", sqlite3_errmsg(link_of(conn)), rc);
}

static enum sf_err lite_exec(struct sf_sql_conn *conn, const char *sql, struct sf_diag *diag)
{
    int rc = sqlite3_exec(link_of(conn), sql, NULL, NULL, NULL);

    return rc == SQLITE_OK ? SF_OK : failed(conn, rc, diag);
}

static enum sf_err lite_connect(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, configure);
    const char *path = conn->core->path;
    sqlite3 *db = NULL;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
                (conn->writer ? SQLITE_OPEN_CREATE : 0);

    int rc = sqlite3_open_v2(path == NULL ? ":memory:" : path, &db, flags,
                             conn->writer && path != NULL ? SQL_GATHER_VFS : NULL);
    conn->link = db;
    enum sf_err err = SF_OK;
    if (rc == SQLITE_OK) {
        (void)sqlite3_busy_timeout(db, BUSY_TIMEOUT_MS);
        err = lite_exec(conn, connection_setup, diag);
        if (err == SF_OK)
            err = lite_exec(conn, conn->writer ? writer_setup : reader_setup, diag);
    } else {
        err = sf_diag_set(diag, SF_ERR_IO, "sqlite: %s",
                          db == NULL ? sqlite3_errstr(rc) : sqlite3_errmsg(db));
    }
    if (err != SF_OK)
        sf_diag_wrap(diag, "projection %s", path == NULL ? "(in memory)" : path);
    return err;
}

static void lite_disconnect(struct sf_sql_conn *conn)
{
    (void)sqlite3_close(link_of(conn));
    conn->link = NULL;
}

/* A connection of its own for the copier; the file stands already. */
static enum sf_err lite_start(struct sql_core *core, struct sf_diag *diag)
{
    struct sf_sql_conn *writer = core->writer.idle;
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2(
        core->path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "PRAGMA synchronous=NORMAL;", NULL, NULL, NULL);
    if (rc == SQLITE_OK) {
        core->work = sql_copier_start(link_of(writer), db);
        return SF_OK;
    }
    enum sf_err err = sf_diag_set(diag, SF_ERR_IO, "projection %s: sqlite: %s", core->path,
                                  db == NULL ? sqlite3_errstr(rc) : sqlite3_errmsg(db));
    (void)sqlite3_close(db);
    return err;
}

static void lite_stop(struct sql_core *core)
{
    sql_copier_stop(core->work);
    core->work = NULL;
}

/* A cache that could not be resized is only slower. */
static void lite_bulk(struct sf_sql_conn *conn, bool on)
{
    (void)sqlite3_exec(link_of(conn), on ? writer_bulk : writer_after_bulk, NULL, NULL, NULL);
}

static enum sf_err lite_begin(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    return lite_exec(conn, conn->writer ? "BEGIN IMMEDIATE" : "BEGIN", diag);
}

static enum sf_err lite_commit(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    return lite_exec(conn, "COMMIT", diag);
}

/* A refused COMMIT leaves the transaction open; what SQLite rolled back by itself is closed. */
static void lite_rollback(struct sf_sql_conn *conn)
{
    if (sqlite3_get_autocommit(link_of(conn)) == 0) {
        int rc = sqlite3_exec(link_of(conn), "ROLLBACK", NULL, NULL, NULL);
        SF_ASSERT(rc == SQLITE_OK || sqlite3_get_autocommit(link_of(conn)) != 0);
    }
}

static enum sf_err lite_schema_step(struct sf_sql_conn *conn, const char *sql, bool again,
                                    struct sf_diag *diag)
{
    (void)again;
    return lite_exec(conn, sql, diag);
}

/* ---- statements --------------------------------------------------------------------------- */

static enum sf_err lite_prepare(struct sf_sql_stmt *stmt, const char *sql, struct sf_diag *diag)
{
    sqlite3_stmt *made = NULL;
    int rc =
        sqlite3_prepare_v3(link_of(stmt->conn), sql, -1, SQLITE_PREPARE_PERSISTENT, &made, NULL);

    stmt->impl = made;
    if (rc == SQLITE_OK)
        return SF_OK;
    enum sf_err err = failed(stmt->conn, rc, diag);
    /* the text is ours; a table that somebody dropped is not */
    const char *message = sqlite3_errmsg(link_of(stmt->conn));
    SF_ASSERT(strstr(message, "syntax error") == NULL && strstr(message, "incomplete") == NULL);
    return err;
}

static void lite_stmt_free(struct sf_sql_stmt *stmt)
{
    (void)sqlite3_finalize(stmt->impl);
}

static void lite_reset(struct sf_sql_stmt *stmt)
{
    (void)sqlite3_reset(stmt->impl);
    (void)sqlite3_clear_bindings(stmt->impl);
}

static void lite_bind_i64(struct sf_sql_stmt *stmt, int index, int64_t value)
{
    SF_ASSERT(sqlite3_bind_int64(stmt->impl, index, value) == SQLITE_OK);
}

static void lite_bind_u64(struct sf_sql_stmt *stmt, int index, uint64_t value)
{
    lite_bind_i64(stmt, index, (int64_t)(value ^ U64_BIAS));
}

static void lite_bind_bytes(struct sf_sql_stmt *stmt, int index, struct sf_view bytes, bool is_text)
{
    int rc;

    if (is_text)
        rc = sqlite3_bind_text64(stmt->impl, index, bytes.len == 0 ? "" : (const char *)bytes.ptr,
                                 bytes.len, SQLITE_TRANSIENT, SQLITE_UTF8);
    else if (bytes.len == 0)
        rc = sqlite3_bind_zeroblob(stmt->impl, index, 0);
    else
        rc = sqlite3_bind_blob64(stmt->impl, index, bytes.ptr, bytes.len, SQLITE_TRANSIENT);
    SF_ASSERT(rc == SQLITE_OK);
}

static void lite_bind_null(struct sf_sql_stmt *stmt, int index)
{
    SF_ASSERT(sqlite3_bind_null(stmt->impl, index) == SQLITE_OK);
}

static enum sf_err lite_step(struct sf_sql_stmt *stmt, struct sf_diag *diag, bool *out_row)
{
    int rc = sqlite3_step(stmt->impl);

    *out_row = rc == SQLITE_ROW;
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SF_OK : failed(stmt->conn, rc, diag);
}

static uint64_t lite_changes(struct sf_sql_stmt *stmt)
{
    return (uint64_t)sqlite3_changes64(link_of(stmt->conn));
}

static int64_t lite_col_i64(struct sf_sql_stmt *stmt, int column)
{
    return sqlite3_column_int64(stmt->impl, column);
}

static uint64_t lite_col_u64(struct sf_sql_stmt *stmt, int column)
{
    return (uint64_t)sqlite3_column_int64(stmt->impl, column) ^ U64_BIAS;
}

static struct sf_view lite_col_bytes(struct sf_sql_stmt *stmt, int column, bool is_text)
{
    const void *bytes = is_text ? (const void *)sqlite3_column_text(stmt->impl, column)
                                : sqlite3_column_blob(stmt->impl, column);

    return sf_view_bytes(bytes, (size_t)sqlite3_column_bytes(stmt->impl, column));
}

static bool lite_col_is_null(struct sf_sql_stmt *stmt, int column)
{
    return sqlite3_column_type(stmt->impl, column) == SQLITE_NULL;
}

const struct sql_backend sql_sqlite = {
    .name = "sqlite",
    .kind = SF_SQL_SQLITE,
    .connect = lite_connect,
    .disconnect = lite_disconnect,
    .start = lite_start,
    .stop = lite_stop,
    .bulk = lite_bulk,
    .exec = lite_exec,
    .begin = lite_begin,
    .commit = lite_commit,
    .rollback = lite_rollback,
    .schema_lock = lite_begin,
    .own_tables = "CREATE TABLE IF NOT EXISTS schema_migrations ("
                  " version INTEGER NOT NULL PRIMARY KEY,"
                  " name TEXT NOT NULL,"
                  " sha256 TEXT NOT NULL)",
    .schema_step = lite_schema_step,
    .prepare = lite_prepare,
    .stmt_free = lite_stmt_free,
    .reset = lite_reset,
    .bind_u64 = lite_bind_u64,
    .bind_i64 = lite_bind_i64,
    .bind_bytes = lite_bind_bytes,
    .bind_null = lite_bind_null,
    .step = lite_step,
    .changes = lite_changes,
    .col_u64 = lite_col_u64,
    .col_i64 = lite_col_i64,
    .col_bytes = lite_col_bytes,
    .col_is_null = lite_col_is_null,
};
