/*
 * Statements of the MySQL family: prepared once per connection, placeholders by position (an
 * argument used twice is sent twice), results stored whole at the client. Whole numbers are fetched
 * as 64 bits with the column's sign, everything else as bytes, column by column once its length is
 * known. A server that wants the statement prepared anew (a table was altered) gets the command
 * again from its caller: the transaction fails like any other.
 */
#include "sql/mysql_priv.h"

#include <inttypes.h>
#include <mysqld_error.h>
#include <stdlib.h>

#include "base/mem.h"

struct my_value {
    enum enum_field_types type; /* MYSQL_TYPE_NULL, LONGLONG, STRING or BLOB */
    uint64_t number;            /* LONGLONG */
    my_bool is_unsigned;        /* of the number */
    struct sf_buf bytes;        /* STRING, BLOB */
};

struct my_column {
    bool number;          /* fetched as 64 bits */
    bool is_unsigned;     /* of the number */
    uint64_t value;       /* the number */
    unsigned long length; /* of the bytes in the present row */
    my_bool null;         /* in the present row */
    struct sf_buf bytes;  /* of the present row */
};

struct my_stmt {
    MYSQL_STMT *stmt;                         /* owned */
    size_t count;                             /* placeholders by position */
    uint8_t order[SQL_MAX_BINDINGS];          /* their numbers */
    struct my_value values[SQL_MAX_BINDINGS]; /* by number - 1 */
    unsigned column_count;                    /* of a result; 0 = none */
    struct my_column *columns;                /* owned */
    MYSQL_BIND *binds;                        /* owned: where rows are fetched to */
    bool ran;                                 /* executed since the last reset */
    uint64_t changes;                         /* of the last run */
};

static enum sf_err failed(struct sf_sql_stmt *stmt, struct sf_diag *diag)
{
    struct my_stmt *my = stmt->impl;
    unsigned number = mysql_stmt_errno(my->stmt);

    enum sf_err err = sql_my_failed(stmt->conn, number, mysql_stmt_error(my->stmt), diag);
    /* An upsert sets a key column to NULL when it met a row with another key (sql_upsert.c). */
    if (stmt->upsert && number == ER_BAD_NULL_ERROR)
        err = sf_diag_set(diag, SF_ERR_EXISTS, "mysql: a unique key has another row");
    return err;
}

static bool is_number(enum enum_field_types type)
{
    return type == MYSQL_TYPE_TINY || type == MYSQL_TYPE_SHORT || type == MYSQL_TYPE_INT24 ||
           type == MYSQL_TYPE_LONG || type == MYSQL_TYPE_LONGLONG;
}

/* Makes room for the result's columns and says where a row is fetched to. */
static void bind_columns(struct my_stmt *my)
{
    MYSQL_RES *meta = mysql_stmt_result_metadata(my->stmt);

    if (meta == NULL)
        return;
    my->column_count = mysql_num_fields(meta);
    my->columns = sf_calloc(my->column_count, sizeof(*my->columns));
    my->binds = sf_calloc(my->column_count, sizeof(*my->binds));
    for (unsigned i = 0; i < my->column_count; i++) {
        const MYSQL_FIELD *field = mysql_fetch_field_direct(meta, i);
        struct my_column *column = &my->columns[i];
        MYSQL_BIND *bind = &my->binds[i];
        column->number = is_number(field->type);
        column->is_unsigned = (field->flags & UNSIGNED_FLAG) != 0;
        bind->is_null = &column->null;
        bind->length = &column->length;
        bind->buffer_type = column->number ? MYSQL_TYPE_LONGLONG : MYSQL_TYPE_STRING;
        bind->is_unsigned = column->is_unsigned;
        bind->buffer = column->number ? &column->value : NULL;
        bind->buffer_length = column->number ? sizeof(column->value) : 0;
    }
    mysql_free_result(meta);
}

enum sf_err sql_my_prepare(struct sf_sql_stmt *stmt, const char *sql, struct sf_diag *diag)
{
    struct my_link *link = stmt->conn->link;
    struct my_stmt *my = sf_calloc(1, sizeof(*my));
    struct sf_buf text = {0};

    stmt->impl = my;
    my->count = sql_placeholders(sql, SF_SQL_MYSQL, &text, my->order);
    my->stmt = mysql_stmt_init(link->my);
    SF_ASSERT(my->stmt != NULL);
    int rc = mysql_stmt_prepare(my->stmt, (const char *)text.data, text.len - 1);
    sf_buf_fini(&text);
    if (rc != 0) {
        SF_ASSERT(mysql_stmt_errno(my->stmt) != ER_PARSE_ERROR); /* the text is ours */
        enum sf_err err = failed(stmt, diag);
        sql_my_stmt_free(stmt);
        return err;
    }
    SF_ASSERT(mysql_stmt_param_count(my->stmt) == my->count);
    bind_columns(my);
    sql_my_reset(stmt);
    return SF_OK;
}

void sql_my_stmt_free(struct sf_sql_stmt *stmt)
{
    struct my_stmt *my = stmt->impl;

    (void)mysql_stmt_close(my->stmt);
    for (size_t i = 0; i < SQL_MAX_BINDINGS; i++)
        sf_buf_fini(&my->values[i].bytes);
    for (unsigned i = 0; i < my->column_count; i++)
        sf_buf_fini(&my->columns[i].bytes);
    free(my->columns);
    free(my->binds);
    free(my);
}

void sql_my_reset(struct sf_sql_stmt *stmt)
{
    struct my_stmt *my = stmt->impl;

    if (my->ran)
        (void)mysql_stmt_free_result(my->stmt);
    my->ran = false;
    for (size_t i = 0; i < my->count; i++)
        my->values[my->order[i] - 1].type = MYSQL_TYPE_NULL;
}

static struct my_value *value_at(struct sf_sql_stmt *stmt, int index, enum enum_field_types type)
{
    struct my_stmt *my = stmt->impl;

    SF_ASSERT(index >= 1 && index <= SQL_MAX_BINDINGS);
    my->values[index - 1].type = type;
    return &my->values[index - 1];
}

void sql_my_bind_u64(struct sf_sql_stmt *stmt, int index, uint64_t value)
{
    struct my_value *v = value_at(stmt, index, MYSQL_TYPE_LONGLONG);

    v->number = value;
    v->is_unsigned = 1;
}

void sql_my_bind_i64(struct sf_sql_stmt *stmt, int index, int64_t value)
{
    struct my_value *v = value_at(stmt, index, MYSQL_TYPE_LONGLONG);

    v->number = (uint64_t)value;
    v->is_unsigned = 0;
}

void sql_my_bind_bytes(struct sf_sql_stmt *stmt, int index, struct sf_view bytes, bool is_text)
{
    struct my_value *v = value_at(stmt, index, is_text ? MYSQL_TYPE_STRING : MYSQL_TYPE_BLOB);

    sf_buf_clear(&v->bytes);
    (void)sf_buf_reserve(&v->bytes, 1); /* an empty value is not NULL */
    sf_buf_append(&v->bytes, bytes.ptr, bytes.len);
}

void sql_my_bind_null(struct sf_sql_stmt *stmt, int index)
{
    (void)value_at(stmt, index, MYSQL_TYPE_NULL);
}

static void bind_arguments(struct my_stmt *my, MYSQL_BIND binds[SQL_MAX_BINDINGS])
{
    for (size_t i = 0; i < my->count; i++) {
        struct my_value *v = &my->values[my->order[i] - 1];
        binds[i] = (MYSQL_BIND){.buffer_type = v->type};
        if (v->type == MYSQL_TYPE_LONGLONG) {
            binds[i].buffer = &v->number;
            binds[i].is_unsigned = v->is_unsigned;
        } else if (v->type != MYSQL_TYPE_NULL) {
            binds[i].buffer = v->bytes.data;
            binds[i].buffer_length = v->bytes.len;
        }
    }
}

static enum sf_err run(struct sf_sql_stmt *stmt, struct sf_diag *diag)
{
    struct my_stmt *my = stmt->impl;
    MYSQL_BIND binds[SQL_MAX_BINDINGS];

    bind_arguments(my, binds);
    if (my->count != 0 && mysql_stmt_bind_param(my->stmt, binds) != 0)
        return failed(stmt, diag);
    if (mysql_stmt_execute(my->stmt) != 0)
        return failed(stmt, diag);
    my->ran = true;
    if (my->column_count == 0) {
        my->changes = mysql_stmt_affected_rows(my->stmt);
        return SF_OK;
    }
    if (mysql_stmt_bind_result(my->stmt, my->binds) != 0 || mysql_stmt_store_result(my->stmt) != 0)
        return failed(stmt, diag);
    my->changes = 0;
    return SF_OK;
}

/* Fetches the bytes of a column whose length the row has told. */
static bool fetch_bytes(struct my_stmt *my, unsigned column)
{
    struct my_column *c = &my->columns[column];
    MYSQL_BIND bind = {.buffer_type = MYSQL_TYPE_STRING};
    unsigned long length = 0;
    my_bool null = 0;

    sf_buf_clear(&c->bytes);
    if (c->null || c->length == 0)
        return true;
    (void)sf_buf_reserve(&c->bytes, c->length);
    bind.buffer = c->bytes.data;
    bind.buffer_length = c->length;
    bind.length = &length;
    bind.is_null = &null;
    c->bytes.len = c->length;
    return mysql_stmt_fetch_column(my->stmt, &bind, column, 0) == 0;
}

enum sf_err sql_my_step(struct sf_sql_stmt *stmt, struct sf_diag *diag, bool *out_row)
{
    struct my_stmt *my = stmt->impl;

    if (!my->ran) {
        enum sf_err err = run(stmt, diag);
        if (err != SF_OK)
            return err;
    }
    if (my->column_count == 0)
        return SF_OK;
    int rc = mysql_stmt_fetch(my->stmt);
    if (rc == MYSQL_NO_DATA)
        return SF_OK;
    if (rc != 0 && rc != MYSQL_DATA_TRUNCATED)
        return failed(stmt, diag);
    for (unsigned i = 0; i < my->column_count; i++) {
        if (!my->columns[i].number && !fetch_bytes(my, i))
            return failed(stmt, diag);
    }
    *out_row = true;
    return SF_OK;
}

uint64_t sql_my_changes(struct sf_sql_stmt *stmt)
{
    return ((struct my_stmt *)stmt->impl)->changes;
}

static struct my_column *column_at(struct sf_sql_stmt *stmt, int column)
{
    struct my_stmt *my = stmt->impl;

    SF_ASSERT(my->ran && column >= 0 && (unsigned)column < my->column_count);
    return &my->columns[column];
}

/* A number that came as text, such as a DECIMAL. */
static uint64_t parse(struct my_column *c)
{
    bool negative = c->bytes.len != 0 && c->bytes.data[0] == '-';
    uint64_t value = 0;

    for (size_t i = negative ? 1 : 0;
         i < c->bytes.len && c->bytes.data[i] >= '0' && c->bytes.data[i] <= '9'; i++)
        value = value * 10 + (uint64_t)(c->bytes.data[i] - '0');
    return negative ? 0 - value : value;
}

uint64_t sql_my_col_u64(struct sf_sql_stmt *stmt, int column)
{
    struct my_column *c = column_at(stmt, column);

    return c->number ? c->value : parse(c);
}

int64_t sql_my_col_i64(struct sf_sql_stmt *stmt, int column)
{
    return (int64_t)sql_my_col_u64(stmt, column);
}

struct sf_view sql_my_col_bytes(struct sf_sql_stmt *stmt, int column, bool is_text)
{
    struct my_column *c = column_at(stmt, column);

    (void)is_text;
    if (c->number) { /* as text, like the other databases */
        sf_buf_clear(&c->bytes);
        if (c->is_unsigned)
            sf_buf_printf(&c->bytes, "%" PRIu64, c->value);
        else
            sf_buf_printf(&c->bytes, "%" PRId64, (int64_t)c->value);
    }
    return sf_buf_view(&c->bytes);
}

bool sql_my_col_is_null(struct sf_sql_stmt *stmt, int column)
{
    return column_at(stmt, column)->null != 0;
}
