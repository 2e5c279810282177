/*
 * Statements of PostgreSQL: prepared once per connection under a number, arguments sent as text
 * (blobs as bytes) so that the server finds their types from the columns, results as text. A result
 * is held whole. A text with a NUL byte cannot be stored there; it is refused when it is run.
 */
#include "sql/postgres_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

struct pg_value {
    struct sf_buf bytes; /* text with a NUL behind it, or the blob */
    bool null;           /* no value */
    bool binary;         /* a blob */
};

struct pg_stmt {
    char name[24];                            /* at the server */
    int count;                                /* highest placeholder number */
    struct pg_value values[SQL_MAX_BINDINGS]; /* by number - 1 */
    bool unfit;                               /* a bound text holds a NUL byte */
    PGresult *result;                         /* owned; NULL = not run */
    int row;                                  /* present row of it */
    uint64_t changes;                         /* of the last run */
    uint8_t *blob;                            /* owned by libpq: the last blob column read */
};

enum sf_err sql_pg_prepare(struct sf_sql_stmt *stmt, const char *sql, struct sf_diag *diag)
{
    struct pg_link *link = stmt->conn->link;
    struct pg_stmt *pg = sf_calloc(1, sizeof(*pg));
    struct sf_buf text = {0};
    uint8_t order[SQL_MAX_BINDINGS];
    PGresult *result;

    size_t count = sql_placeholders(sql, SF_SQL_POSTGRES, &text, order);
    for (size_t i = 0; i < count; i++)
        pg->count = order[i] > pg->count ? order[i] : pg->count;
    (void)snprintf(pg->name, sizeof(pg->name), "s%" PRIu64, link->statements++);
    enum sf_err err = sql_pg_result(
        stmt->conn, PQsendPrepare(link->pg, pg->name, (const char *)text.data, 0, NULL) == 1, diag,
        &result);
    sf_buf_fini(&text);
    PQclear(result);
    stmt->impl = pg;
    sql_pg_reset(stmt);
    if (err != SF_OK)
        free(pg);
    return err;
}

/* The statement at the server goes with the connection: the cache is emptied at its end only. */
void sql_pg_stmt_free(struct sf_sql_stmt *stmt)
{
    struct pg_stmt *pg = stmt->impl;

    sql_pg_reset(stmt);
    for (size_t i = 0; i < SQL_MAX_BINDINGS; i++)
        sf_buf_fini(&pg->values[i].bytes);
    free(pg);
}

void sql_pg_reset(struct sf_sql_stmt *stmt)
{
    struct pg_stmt *pg = stmt->impl;

    PQclear(pg->result);
    pg->result = NULL;
    PQfreemem(pg->blob);
    pg->blob = NULL;
    pg->unfit = false;
    for (int i = 0; i < pg->count; i++)
        pg->values[i].null = true;
}

static struct pg_value *value_at(struct sf_sql_stmt *stmt, int index)
{
    struct pg_stmt *pg = stmt->impl;

    SF_ASSERT(index >= 1 && index <= pg->count);
    struct pg_value *value = &pg->values[index - 1];
    sf_buf_clear(&value->bytes);
    value->null = value->binary = false;
    return value;
}

void sql_pg_bind_u64(struct sf_sql_stmt *stmt, int index, uint64_t value)
{
    struct pg_value *v = value_at(stmt, index);

    sf_buf_printf(&v->bytes, "%" PRIu64, value);
    sf_buf_append(&v->bytes, "", 1);
}

void sql_pg_bind_i64(struct sf_sql_stmt *stmt, int index, int64_t value)
{
    struct pg_value *v = value_at(stmt, index);

    sf_buf_printf(&v->bytes, "%" PRId64, value);
    sf_buf_append(&v->bytes, "", 1);
}

void sql_pg_bind_bytes(struct sf_sql_stmt *stmt, int index, struct sf_view bytes, bool is_text)
{
    struct pg_value *v = value_at(stmt, index);

    if (is_text && bytes.len != 0 && memchr(bytes.ptr, 0, bytes.len) != NULL)
        ((struct pg_stmt *)stmt->impl)->unfit = true;
    sf_buf_append(&v->bytes, bytes.ptr, bytes.len);
    v->binary = !is_text;
    if (is_text)
        sf_buf_append(&v->bytes, "", 1);
    else
        (void)sf_buf_reserve(&v->bytes, 1); /* an empty blob is not NULL */
}

void sql_pg_bind_null(struct sf_sql_stmt *stmt, int index)
{
    value_at(stmt, index)->null = true;
}

/* Sends the statement with its arguments and waits for the result. */
static enum sf_err run(struct sf_sql_stmt *stmt, struct sf_diag *diag)
{
    struct pg_stmt *pg = stmt->impl;
    struct pg_link *link = stmt->conn->link;
    const char *values[SQL_MAX_BINDINGS];
    int lengths[SQL_MAX_BINDINGS];
    int formats[SQL_MAX_BINDINGS];

    if (pg->unfit)
        return sf_diag_set(diag, SF_ERR_UNAVAILABLE, "postgres: a text holds a NUL byte");
    for (int i = 0; i < pg->count; i++) {
        const struct pg_value *v = &pg->values[i];
        values[i] = v->null ? NULL : (const char *)v->bytes.data;
        lengths[i] = (int)v->bytes.len;
        formats[i] = v->binary ? 1 : 0;
    }
    bool sent =
        PQsendQueryPrepared(link->pg, pg->name, pg->count, values, lengths, formats, 0) == 1;
    enum sf_err err = sql_pg_result(stmt->conn, sent, diag, &pg->result);
    if (err != SF_OK)
        return err;
    pg->row = -1;
    pg->changes = strtoull(PQcmdTuples(pg->result), NULL, 10);
    return SF_OK;
}

enum sf_err sql_pg_step(struct sf_sql_stmt *stmt, struct sf_diag *diag, bool *out_row)
{
    struct pg_stmt *pg = stmt->impl;

    if (pg->result == NULL) {
        enum sf_err err = run(stmt, diag);
        if (err != SF_OK)
            return err;
    }
    *out_row = ++pg->row < PQntuples(pg->result);
    return SF_OK;
}

uint64_t sql_pg_changes(struct sf_sql_stmt *stmt)
{
    return ((struct pg_stmt *)stmt->impl)->changes;
}

static const char *column_text(struct sf_sql_stmt *stmt, int column)
{
    struct pg_stmt *pg = stmt->impl;

    SF_ASSERT(pg->result != NULL && column < PQnfields(pg->result));
    return PQgetvalue(pg->result, pg->row, column);
}

uint64_t sql_pg_col_u64(struct sf_sql_stmt *stmt, int column)
{
    return strtoull(column_text(stmt, column), NULL, 10);
}

/* Booleans come as 't' and 'f'. */
int64_t sql_pg_col_i64(struct sf_sql_stmt *stmt, int column)
{
    const char *text = column_text(stmt, column);

    return text[0] == 't' ? 1 : strtoll(text, NULL, 10);
}

struct sf_view sql_pg_col_bytes(struct sf_sql_stmt *stmt, int column, bool is_text)
{
    struct pg_stmt *pg = stmt->impl;
    const char *text = column_text(stmt, column);
    size_t len = (size_t)PQgetlength(pg->result, pg->row, column);

    if (is_text)
        return sf_view_bytes(text, len);
    PQfreemem(pg->blob);
    pg->blob = PQunescapeBytea((const unsigned char *)text, &len);
    SF_ASSERT(pg->blob != NULL);
    return sf_view_bytes(pg->blob, len);
}

bool sql_pg_col_is_null(struct sf_sql_stmt *stmt, int column)
{
    struct pg_stmt *pg = stmt->impl;

    SF_ASSERT(pg->result != NULL);
    return PQgetisnull(pg->result, pg->row, column) != 0;
}
