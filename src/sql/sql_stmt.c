/*
 * Statements. SQL text is static, so the cache is keyed by its address: no hashing of text on each
 * use. Equal texts at two places make two entries, which costs a little memory only. A statement is
 * finished as soon as its end or an error is reached, so that no read transaction lingers. An error
 * inside a transaction leaves only the way back: PostgreSQL knows no other, and the databases shall
 * not differ.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "sql/sql_priv.h"

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

static enum sf_err prepare_new(struct sf_sql_conn *conn, const void *key, bool upsert,
                               const char *sql, struct sf_diag *diag, struct sf_sql_stmt **out_stmt)
{
    struct sf_sql_stmt *s = sf_calloc(1, sizeof(*s));

    *s = (struct sf_sql_stmt){.conn = conn, .key = key, .upsert = upsert};
    enum sf_err err = conn->core->backend->prepare(s, sql, diag);
    if (err != SF_OK) {
        conn->failed = conn->in_tx;
        free(s);
        return err;
    }
    struct sf_sql_stmt **bucket = &conn->cache[bucket_of(key)];
    s->next = *bucket;
    s->in_use = true;
    *bucket = s;
    *out_stmt = s;
    return SF_OK;
}

enum sf_err sf_sql_prepare(struct sf_sql_conn *conn, const char *sql, struct sf_diag *diag,
                           struct sf_sql_stmt **out_stmt)
{
    *out_stmt = NULL;
    enum sf_err err = sql_ready(conn, diag);
    if (err != SF_OK)
        return err;
    *out_stmt = cached(conn, sql);
    return *out_stmt != NULL ? SF_OK : prepare_new(conn, sql, false, sql, diag, out_stmt);
}

enum sf_err sf_sql_prepare_upsert(struct sf_sql_conn *conn, const struct sf_sql_upsert *upsert,
                                  struct sf_diag *diag, struct sf_sql_stmt **out_stmt)
{
    struct sf_buf text = {0};

    *out_stmt = NULL;
    enum sf_err err = sql_ready(conn, diag);
    if (err != SF_OK)
        return err;
    *out_stmt = cached(conn, upsert);
    if (*out_stmt != NULL)
        return SF_OK;
    sql_upsert_text(upsert, conn->core->backend->kind, &text);
    err = prepare_new(conn, upsert, true, (const char *)text.data, diag, out_stmt);
    sf_buf_fini(&text);
    return err;
}

void sql_cache_fini(struct sf_sql_conn *conn)
{
    for (size_t i = 0; i < SQL_CACHE_BUCKETS; i++) {
        while (conn->cache[i] != NULL) {
            struct sf_sql_stmt *s = conn->cache[i];
            conn->cache[i] = s->next;
            conn->core->backend->stmt_free(s);
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

bool sql_any_in_use(const struct sf_sql_conn *conn)
{
    for (size_t i = 0; i < SQL_CACHE_BUCKETS; i++) {
        for (const struct sf_sql_stmt *s = conn->cache[i]; s != NULL; s = s->next) {
            if (s->in_use)
                return true;
        }
    }
    return false;
}

static const struct sql_backend *backend_of(const struct sf_sql_stmt *stmt)
{
    return stmt->conn->core->backend;
}

void sf_sql_finish(struct sf_sql_stmt *stmt)
{
    if (stmt == NULL || !stmt->in_use)
        return;
    backend_of(stmt)->reset(stmt);
    stmt->in_use = false;
}

void sf_sql_bind_u64(struct sf_sql_stmt *stmt, int index, uint64_t value)
{
    SF_ASSERT(stmt->in_use);
    backend_of(stmt)->bind_u64(stmt, index, value);
}

void sf_sql_bind_i64(struct sf_sql_stmt *stmt, int index, int64_t value)
{
    SF_ASSERT(stmt->in_use);
    backend_of(stmt)->bind_i64(stmt, index, value);
}

void sf_sql_bind_text(struct sf_sql_stmt *stmt, int index, struct sf_view text)
{
    SF_ASSERT(stmt->in_use);
    backend_of(stmt)->bind_bytes(stmt, index, text, true);
}

void sf_sql_bind_blob(struct sf_sql_stmt *stmt, int index, struct sf_view bytes)
{
    SF_ASSERT(stmt->in_use);
    backend_of(stmt)->bind_bytes(stmt, index, bytes, false);
}

void sf_sql_bind_null(struct sf_sql_stmt *stmt, int index)
{
    SF_ASSERT(stmt->in_use);
    backend_of(stmt)->bind_null(stmt, index);
}

enum sf_err sf_sql_step(struct sf_sql_stmt *stmt, struct sf_diag *diag, bool *out_row)
{
    SF_ASSERT(stmt->in_use);
    *out_row = false;
    enum sf_err err = backend_of(stmt)->step(stmt, diag, out_row);
    if (err != SF_OK)
        stmt->conn->failed = stmt->conn->in_tx;
    if (!*out_row)
        sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_sql_run(struct sf_sql_stmt *stmt, struct sf_diag *diag, uint64_t *out_changes)
{
    bool row = false;

    enum sf_err err = sf_sql_step(stmt, diag, &row);
    SF_ASSERT(!row);
    if (out_changes != NULL)
        *out_changes = err == SF_OK ? backend_of(stmt)->changes(stmt) : 0;
    return err;
}

uint64_t sf_sql_col_u64(struct sf_sql_stmt *stmt, int column)
{
    return sf_sql_col_is_null(stmt, column) ? 0 : backend_of(stmt)->col_u64(stmt, column);
}

int64_t sf_sql_col_i64(struct sf_sql_stmt *stmt, int column)
{
    return sf_sql_col_is_null(stmt, column) ? 0 : backend_of(stmt)->col_i64(stmt, column);
}

struct sf_view sf_sql_col_text(struct sf_sql_stmt *stmt, int column)
{
    if (sf_sql_col_is_null(stmt, column))
        return (struct sf_view){0};
    return backend_of(stmt)->col_bytes(stmt, column, true);
}

struct sf_view sf_sql_col_blob(struct sf_sql_stmt *stmt, int column)
{
    if (sf_sql_col_is_null(stmt, column))
        return (struct sf_view){0};
    return backend_of(stmt)->col_bytes(stmt, column, false);
}

bool sf_sql_col_is_null(struct sf_sql_stmt *stmt, int column)
{
    return backend_of(stmt)->col_is_null(stmt, column);
}
