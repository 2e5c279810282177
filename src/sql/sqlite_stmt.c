/*
 * Statements. SQL text is static, so the cache is keyed by its address: no hashing of text on each
 * use. Equal texts at two places make two entries, which costs a little memory only. A statement is
 * finished as soon as its end or an error is reached, so that no read transaction lingers.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "sql/sql_priv.h"

#define U64_BIAS ((uint64_t)1 << 63)

static size_t bucket_of(const void *key)
{
    return (size_t)(((uintptr_t)key * (uintptr_t)0x9e3779b97f4a7c15u) >> 58) % SQL_CACHE_BUCKETS;
}

/* The cached statement of `key`, now in use; NULL = not there. */
static struct sf_sql_stmt *cached(struct sf_sql_conn *conn, const void *key)
{
    for (struct sf_sql_stmt *s = conn->cache[bucket_of(key)]; s != NULL; s = s->next) {
        if (s->key != key)
            continue;
        SF_ASSERT(!s->in_use);
        s->in_use = true;
        return s;
    }
    return NULL;
}

static enum sf_err prepare_new(struct sf_sql_conn *conn, const void *key, const char *sql,
                               struct sf_diag *diag, struct sf_sql_stmt **out_stmt)
{
    struct sf_sql_stmt **bucket = &conn->cache[bucket_of(key)];
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v3(conn->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL);
    if (rc != SQLITE_OK) {
        enum sf_err err = sql_error(conn, rc, diag);
        SF_ASSERT((rc & 0xff) != SQLITE_ERROR);
        return err;
    }
    struct sf_sql_stmt *s = sf_calloc(1, sizeof(*s));
    *s = (struct sf_sql_stmt){
        .next = *bucket, .conn = conn, .key = key, .stmt = stmt, .in_use = true};
    *bucket = s;
    *out_stmt = s;
    return SF_OK;
}

enum sf_err sf_sql_prepare(struct sf_sql_conn *conn, const char *sql, struct sf_diag *diag,
                           struct sf_sql_stmt **out_stmt)
{
    *out_stmt = cached(conn, sql);
    return *out_stmt != NULL ? SF_OK : prepare_new(conn, sql, sql, diag, out_stmt);
}

enum sf_err sf_sql_prepare_upsert(struct sf_sql_conn *conn, const struct sf_sql_upsert *upsert,
                                  struct sf_diag *diag, struct sf_sql_stmt **out_stmt)
{
    struct sf_buf text = {0};

    *out_stmt = cached(conn, upsert);
    if (*out_stmt != NULL)
        return SF_OK;
    sql_upsert_text(upsert, SQL_SQLITE, &text);
    enum sf_err err = prepare_new(conn, upsert, (const char *)text.data, diag, out_stmt);
    sf_buf_fini(&text);
    return err;
}

void sql_cache_fini(struct sf_sql_conn *conn)
{
    for (size_t i = 0; i < SQL_CACHE_BUCKETS; i++) {
        while (conn->cache[i] != NULL) {
            struct sf_sql_stmt *s = conn->cache[i];
            conn->cache[i] = s->next;
            (void)sqlite3_finalize(s->stmt);
            free(s);
        }
    }
}

void sql_finish_all(struct sf_sql_conn *conn)
{
    for (size_t i = 0; i < SQL_CACHE_BUCKETS; i++) {
        for (struct sf_sql_stmt *s = conn->cache[i]; s != NULL; s = s->next)
            sf_sql_finish(s);
    }
}

void sf_sql_finish(struct sf_sql_stmt *stmt)
{
    if (stmt == NULL || !stmt->in_use)
        return;
    (void)sqlite3_reset(stmt->stmt);
    (void)sqlite3_clear_bindings(stmt->stmt);
    stmt->in_use = false;
}

void sf_sql_bind_u64(struct sf_sql_stmt *stmt, int index, uint64_t value)
{
    sf_sql_bind_i64(stmt, index, (int64_t)(value ^ U64_BIAS));
}

void sf_sql_bind_i64(struct sf_sql_stmt *stmt, int index, int64_t value)
{
    SF_ASSERT(stmt->in_use && sqlite3_bind_int64(stmt->stmt, index, value) == SQLITE_OK);
}

void sf_sql_bind_text(struct sf_sql_stmt *stmt, int index, struct sf_view text)
{
    const char *bytes = text.len == 0 ? "" : (const char *)text.ptr;

    SF_ASSERT(stmt->in_use && sqlite3_bind_text64(stmt->stmt, index, bytes, text.len,
                                                  SQLITE_TRANSIENT, SQLITE_UTF8) == SQLITE_OK);
}

void sf_sql_bind_blob(struct sf_sql_stmt *stmt, int index, struct sf_view bytes)
{
    int rc = bytes.len == 0
                 ? sqlite3_bind_zeroblob(stmt->stmt, index, 0)
                 : sqlite3_bind_blob64(stmt->stmt, index, bytes.ptr, bytes.len, SQLITE_TRANSIENT);

    SF_ASSERT(stmt->in_use && rc == SQLITE_OK);
}

void sf_sql_bind_null(struct sf_sql_stmt *stmt, int index)
{
    SF_ASSERT(stmt->in_use && sqlite3_bind_null(stmt->stmt, index) == SQLITE_OK);
}

enum sf_err sf_sql_step(struct sf_sql_stmt *stmt, struct sf_diag *diag, bool *out_row)
{
    SF_ASSERT(stmt->in_use);
    int rc = sqlite3_step(stmt->stmt);
    *out_row = rc == SQLITE_ROW;
    if (rc == SQLITE_ROW)
        return SF_OK;
    enum sf_err err = rc == SQLITE_DONE ? SF_OK : sql_error(stmt->conn, rc, diag);
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_sql_run(struct sf_sql_stmt *stmt, struct sf_diag *diag, uint64_t *out_changes)
{
    bool row = false;

    enum sf_err err = sf_sql_step(stmt, diag, &row);
    SF_ASSERT(!row);
    if (out_changes != NULL)
        *out_changes = err == SF_OK ? (uint64_t)sqlite3_changes64(stmt->conn->db) : 0;
    return err;
}

uint64_t sf_sql_col_u64(struct sf_sql_stmt *stmt, int column)
{
    if (sf_sql_col_is_null(stmt, column))
        return 0;
    return (uint64_t)sqlite3_column_int64(stmt->stmt, column) ^ U64_BIAS;
}

int64_t sf_sql_col_i64(struct sf_sql_stmt *stmt, int column)
{
    return sqlite3_column_int64(stmt->stmt, column);
}

struct sf_view sf_sql_col_text(struct sf_sql_stmt *stmt, int column)
{
    const unsigned char *text = sqlite3_column_text(stmt->stmt, column);

    return sf_view_bytes(text, (size_t)sqlite3_column_bytes(stmt->stmt, column));
}

struct sf_view sf_sql_col_blob(struct sf_sql_stmt *stmt, int column)
{
    const void *bytes = sqlite3_column_blob(stmt->stmt, column);

    return sf_view_bytes(bytes, (size_t)sqlite3_column_bytes(stmt->stmt, column));
}

bool sf_sql_col_is_null(struct sf_sql_stmt *stmt, int column)
{
    return sqlite3_column_type(stmt->stmt, column) == SQLITE_NULL;
}
