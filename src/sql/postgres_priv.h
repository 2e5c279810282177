/* The PostgreSQL backend, shared by its two files. */
#ifndef SF_SQL_POSTGRES_PRIV_H
#define SF_SQL_POSTGRES_PRIV_H

#include <libpq-fe.h>

#include "sql/sql_priv.h"

/* conn->link. */
struct pg_link {
    PGconn *pg;          /* owned */
    int64_t patience_ms; /* what a statement may take */
    uint64_t statements; /* prepared so far: names them */
};

/* The result of what was just sent (`sent` false: it could not be). Errors as sf_sql_step; no
 * answer in time loses the connection. PQclear the result. */
enum sf_err sql_pg_result(struct sf_sql_conn *conn, bool sent, struct sf_diag *diag,
                          PGresult **out_result);

enum sf_err sql_pg_exec(struct sf_sql_conn *conn, const char *sql, struct sf_diag *diag);

/* struct sql_backend's part about statements. */
enum sf_err sql_pg_prepare(struct sf_sql_stmt *stmt, const char *sql, struct sf_diag *diag);
void sql_pg_stmt_free(struct sf_sql_stmt *stmt);
void sql_pg_reset(struct sf_sql_stmt *stmt);
void sql_pg_bind_u64(struct sf_sql_stmt *stmt, int index, uint64_t value);
void sql_pg_bind_i64(struct sf_sql_stmt *stmt, int index, int64_t value);
void sql_pg_bind_bytes(struct sf_sql_stmt *stmt, int index, struct sf_view bytes, bool is_text);
void sql_pg_bind_null(struct sf_sql_stmt *stmt, int index);
enum sf_err sql_pg_step(struct sf_sql_stmt *stmt, struct sf_diag *diag, bool *out_row);
uint64_t sql_pg_changes(struct sf_sql_stmt *stmt);
uint64_t sql_pg_col_u64(struct sf_sql_stmt *stmt, int column);
int64_t sql_pg_col_i64(struct sf_sql_stmt *stmt, int column);
struct sf_view sql_pg_col_bytes(struct sf_sql_stmt *stmt, int column, bool is_text);
bool sql_pg_col_is_null(struct sf_sql_stmt *stmt, int column);

#endif
