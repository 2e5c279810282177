/* The backend for the MySQL family, shared by its two files. */
#ifndef SF_SQL_MYSQL_PRIV_H
#define SF_SQL_MYSQL_PRIV_H

#include <mysql.h>

#include "sql/sql_priv.h"

/* conn->link. */
struct my_link {
    MYSQL *my;             /* owned; NULL = it could not be made */
    const char *collation; /* static: the server's binary collation without padding */
};

/* Turns an error number of the client library or the server into ours. */
enum sf_err sql_my_failed(struct sf_sql_conn *conn, unsigned number, const char *message,
                          struct sf_diag *diag);

/* struct sql_backend's part about statements. */
enum sf_err sql_my_prepare(struct sf_sql_stmt *stmt, const char *sql, struct sf_diag *diag);
void sql_my_stmt_free(struct sf_sql_stmt *stmt);
void sql_my_reset(struct sf_sql_stmt *stmt);
void sql_my_bind_u64(struct sf_sql_stmt *stmt, int index, uint64_t value);
void sql_my_bind_i64(struct sf_sql_stmt *stmt, int index, int64_t value);
void sql_my_bind_bytes(struct sf_sql_stmt *stmt, int index, struct sf_view bytes, bool is_text);
void sql_my_bind_null(struct sf_sql_stmt *stmt, int index);
enum sf_err sql_my_step(struct sf_sql_stmt *stmt, struct sf_diag *diag, bool *out_row);
uint64_t sql_my_changes(struct sf_sql_stmt *stmt);
uint64_t sql_my_col_u64(struct sf_sql_stmt *stmt, int column);
int64_t sql_my_col_i64(struct sf_sql_stmt *stmt, int column);
struct sf_view sql_my_col_bytes(struct sf_sql_stmt *stmt, int column, bool is_text);
bool sql_my_col_is_null(struct sf_sql_stmt *stmt, int column);

#endif
