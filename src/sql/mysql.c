/*
 * The MySQL family over libmariadb: connections and transactions. Statements stand in mysql_stmt.c.
 *
 * Only what MariaDB 10.11, MySQL 8.0.17 and TiDB 7.4 share is used: no multi-statements, no READ
 * ONLY transactions (TiDB refuses them), no JSON functions, no INSERT IGNORE. The session is set to
 * strict mode, since otherwise a value that does not fit would be cut or replaced.
 *
 * Every wait for the server ends by the client library's timeouts. Whatever breaks the connection
 * makes it lost: a commit on its way is then in doubt, anything else did not happen. Affected rows
 * are counted without CLIENT_FOUND_ROWS: an upsert that changed nothing counts 0.
 *
 * A writer's transaction locks the row of schema_write_lock first, under READ COMMITTED; readers
 * take a consistent snapshot under REPEATABLE READ. Schema statements commit by themselves, so a
 * named lock of the server keeps the schema's other changers away.
 */
#include "sql/mysql_priv.h"

#include <errmsg.h>
#include <mysqld_error.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"

#define LOCK_WAIT_S      60
#define COLLATION_MARK   "@COLLATION@"
#define ACCESS_DENIED    1045
#define PLUGIN_REFUSED   1524
#define ACCESS_DENIED_DB 1044
#define UNKNOWN_DB       1049

static pthread_once_t library_once = PTHREAD_ONCE_INIT;

static void library_init(void)
{
    SF_ASSERT(mysql_library_init(0, NULL, NULL) == 0);
}

enum sf_err sql_my_failed(struct sf_sql_conn *conn, unsigned number, const char *message,
                          struct sf_diag *diag)
{
    enum sf_err err = SF_ERR_UNAVAILABLE;

    if (number == ER_DUP_ENTRY || number == ER_DUP_ENTRY_WITH_KEY_NAME)
        err = SF_ERR_EXISTS;
    else if ((number >= CR_MIN_ERROR && number <= CR_MAX_ERROR) || number == ER_SERVER_SHUTDOWN ||
             number == ER_CONNECTION_KILLED)
        conn->lost = true;
    return sf_diag_set(diag, err, "mysql: %s (%u)", message, number);
}

static enum sf_err failed(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    MYSQL *my = ((struct my_link *)conn->link)->my;

    return sql_my_failed(conn, mysql_errno(my), mysql_error(my), diag);
}

/* Runs one statement and drops its rows. */
static enum sf_err query(struct sf_sql_conn *conn, struct sf_view sql, struct sf_diag *diag)
{
    MYSQL *my = ((struct my_link *)conn->link)->my;

    if (mysql_real_query(my, (const char *)sql.ptr, sql.len) != 0)
        return failed(conn, diag);
    MYSQL_RES *rows = mysql_store_result(my);
    if (rows == NULL && mysql_errno(my) != 0)
        return failed(conn, diag);
    mysql_free_result(rows);
    return SF_OK;
}

static enum sf_err my_exec(struct sf_sql_conn *conn, const char *sql, struct sf_diag *diag)
{
    struct sf_view statement;
    enum sf_err err = SF_OK;

    while (err == SF_OK && sql_next_statement(&sql, &statement))
        err = query(conn, statement, diag);
    return err;
}

/* First column of the first row as text into `out`; empty without a row. */
static enum sf_err ask(struct sf_sql_conn *conn, const char *sql, char *out, size_t size,
                       struct sf_diag *diag)
{
    MYSQL *my = ((struct my_link *)conn->link)->my;

    out[0] = '\0';
    if (mysql_real_query(my, sql, strlen(sql)) != 0)
        return failed(conn, diag);
    MYSQL_RES *rows = mysql_store_result(my);
    if (rows == NULL)
        return failed(conn, diag);
    MYSQL_ROW row = mysql_fetch_row(rows);
    if (row != NULL && row[0] != NULL)
        (void)snprintf(out, size, "%s", row[0]);
    mysql_free_result(rows);
    return SF_OK;
}

/* ---- connecting --------------------------------------------------------------------------- */

static void set_options(MYSQL *my, const struct sql_server *server)
{
    unsigned connect_s = (server->connect_timeout_ms + 999) / 1000;
    unsigned statement_s = (server->statement_timeout_ms + 999) / 1000 + 2;
    my_bool on = 1, off = 0;

    (void)mysql_options(my, MYSQL_OPT_CONNECT_TIMEOUT, &connect_s);
    (void)mysql_options(my, MYSQL_OPT_READ_TIMEOUT, &statement_s);
    (void)mysql_options(my, MYSQL_OPT_WRITE_TIMEOUT, &statement_s);
    (void)mysql_options(my, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    (void)mysql_options(my, MYSQL_OPT_RECONNECT, &off);
    (void)mysql_options(my, MYSQL_OPT_LOCAL_INFILE, NULL);
    if (server->tls == SF_SQL_TLS_OFF)
        return;
    (void)mysql_options(my, MYSQL_OPT_SSL_ENFORCE, &on);
    (void)mysql_options(my, MYSQL_OPT_SSL_VERIFY_SERVER_CERT,
                        server->tls == SF_SQL_TLS_VERIFY ? &on : &off);
    if (server->tls_ca_file != NULL)
        (void)mysql_options(my, MYSQL_OPT_SSL_CA, server->tls_ca_file);
}

/* The server's binary collation without padding: MySQL 8 and TiDB have the one, MariaDB the other.
 */
static enum sf_err choose_collation(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    struct my_link *link = conn->link;
    char name[64];

    enum sf_err err = ask(conn,
                          "SELECT collation_name FROM information_schema.collations WHERE"
                          " collation_name IN ('utf8mb4_0900_bin', 'utf8mb4_nopad_bin')"
                          " ORDER BY collation_name LIMIT 1",
                          name, sizeof(name), diag);
    if (err != SF_OK)
        return err;
    if (strcmp(name, "utf8mb4_0900_bin") == 0)
        link->collation = "utf8mb4_0900_bin";
    else if (strcmp(name, "utf8mb4_nopad_bin") == 0)
        link->collation = "utf8mb4_nopad_bin";
    else
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "mysql: the server has neither collation utf8mb4_0900_bin nor "
                           "utf8mb4_nopad_bin: names would not compare byte for byte");
    return SF_OK;
}

static enum sf_err set_session(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    char sql[256];

    (void)snprintf(sql, sizeof(sql),
                   "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',"
                   " innodb_lock_wait_timeout = %u, autocommit = 1;"
                   "SET SESSION TRANSACTION ISOLATION LEVEL %s",
                   (conn->core->server.statement_timeout_ms + 999) / 1000,
                   conn->writer ? "READ COMMITTED" : "REPEATABLE READ");
    enum sf_err err = my_exec(conn, sql, diag);
    return err == SF_OK ? choose_collation(conn, diag) : err;
}

static enum sf_err my_connect(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    const struct sql_server *server = &conn->core->server;
    bool socket = server->host[0] == '/';
    struct sf_buf password = {0};

    enum sf_err err = sql_password(server, diag, &password);
    if (err != SF_OK) {
        sf_buf_fini(&password);
        return err;
    }
    (void)pthread_once(&library_once, library_init);
    struct my_link *link = sf_calloc(1, sizeof(*link));
    conn->link = link;
    link->my = mysql_init(NULL);
    SF_ASSERT(link->my != NULL);
    set_options(link->my, server);
    if (mysql_real_connect(link->my, socket ? NULL : server->host, server->user,
                           (const char *)password.data, server->database,
                           server->port == 0 ? 3306 : server->port, socket ? server->host : NULL,
                           0) == NULL) {
        unsigned number = mysql_errno(link->my);
        err = number == ACCESS_DENIED || number == ACCESS_DENIED_DB || number == UNKNOWN_DB ||
                      number == PLUGIN_REFUSED
                  ? SF_ERR_CONFIG
                  : SF_ERR_UNAVAILABLE;
        err = sf_diag_set(diag, err, "mysql: %s (%u)", mysql_error(link->my), number);
    }
    sf_buf_fini(&password);
    return err == SF_OK ? set_session(conn, diag) : err;
}

static void my_disconnect(struct sf_sql_conn *conn)
{
    struct my_link *link = conn->link;

    if (link == NULL)
        return;
    mysql_close(link->my);
    free(link);
    conn->link = NULL;
}

/* ---- transactions ------------------------------------------------------------------------- */

static enum sf_err my_begin(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    return my_exec(conn,
                   conn->writer ? "START TRANSACTION;"
                                  "SELECT id FROM schema_write_lock WHERE id = 1 FOR UPDATE"
                                : "START TRANSACTION WITH CONSISTENT SNAPSHOT",
                   diag);
}

static enum sf_err my_commit(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    enum sf_err err = my_exec(conn, "COMMIT", diag);

    if (err != SF_OK && conn->lost)
        return sf_diag_set(diag, SF_ERR_AMBIGUOUS, "mysql: no answer to a commit");
    return err;
}

static void my_rollback(struct sf_sql_conn *conn)
{
    if (my_exec(conn, "ROLLBACK", NULL) != SF_OK)
        conn->lost = true;
}

/* ---- schema ------------------------------------------------------------------------------- */

/* Name of the server-wide lock: one per database. */
static void lock_name(const struct sf_sql_conn *conn, char out[SF_SHA256_HEX_BYTES])
{
    sf_sha256_hex(sf_view_str(conn->core->server.database), out);
    out[40] = '\0';
}

static enum sf_err my_schema_lock(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    char sql[128], answer[8], name[SF_SHA256_HEX_BYTES];
    unsigned statement_s = (conn->core->server.statement_timeout_ms + 999) / 1000;

    lock_name(conn, name);
    (void)snprintf(sql, sizeof(sql), "SELECT GET_LOCK('sf_schema_%s', %u)", name,
                   statement_s > LOCK_WAIT_S ? LOCK_WAIT_S : statement_s);
    enum sf_err err = ask(conn, sql, answer, sizeof(answer), diag);
    if (err == SF_OK && strcmp(answer, "1") != 0)
        err = sf_diag_set(diag, SF_ERR_UNAVAILABLE, "mysql: another process changes the schema");
    return err;
}

static void my_schema_unlock(struct sf_sql_conn *conn)
{
    char sql[128], answer[8], name[SF_SHA256_HEX_BYTES];

    if (conn->lost)
        return;
    lock_name(conn, name);
    (void)snprintf(sql, sizeof(sql), "SELECT RELEASE_LOCK('sf_schema_%s')", name);
    if (ask(conn, sql, answer, sizeof(answer), NULL) != SF_OK)
        conn->lost = true;
}

static void put_collation(struct sf_view sql, const char *collation, struct sf_buf *out)
{
    const char *at = (const char *)sql.ptr;
    const char *end = at + sql.len;

    while (at < end) {
        const char *mark = memmem(at, (size_t)(end - at), COLLATION_MARK, strlen(COLLATION_MARK));
        const char *stop = mark == NULL ? end : mark;
        sf_buf_append(out, at, (size_t)(stop - at));
        if (mark == NULL)
            break;
        sf_buf_append_str(out, collation);
        at = mark + strlen(COLLATION_MARK);
    }
}

/* Has the step that was cut done this already? */
static bool stands_already(unsigned number)
{
    return number == ER_TABLE_EXISTS_ERROR || number == ER_DUP_KEYNAME ||
           number == ER_DUP_FIELDNAME;
}

static enum sf_err my_schema_step(struct sf_sql_conn *conn, const char *sql, bool again,
                                  struct sf_diag *diag)
{
    struct my_link *link = conn->link;
    struct sf_view statement;
    struct sf_buf text = {0};
    enum sf_err err = SF_OK;

    while (err == SF_OK && sql_next_statement(&sql, &statement)) {
        sf_buf_clear(&text);
        put_collation(statement, link->collation, &text);
        err = query(conn, sf_buf_view(&text), diag);
        if (err != SF_OK && again && stands_already(mysql_errno(link->my)))
            err = SF_OK;
    }
    sf_buf_fini(&text);
    return err;
}

static enum sf_err my_check_text(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    struct my_link *link = conn->link;
    char sql[512], answer[200];

    (void)snprintf(sql, sizeof(sql),
                   "SELECT CASE WHEN _utf8mb4'a' COLLATE %s < _utf8mb4'a ' COLLATE %s AND"
                   " _utf8mb4'A' COLLATE %s < _utf8mb4'a' COLLATE %s AND"
                   " _utf8mb4'z' COLLATE %s < _utf8mb4 0xc3a4 COLLATE %s THEN '' ELSE 'no' END",
                   link->collation, link->collation, link->collation, link->collation,
                   link->collation, link->collation);
    enum sf_err err = ask(conn, sql, answer, sizeof(answer), diag);
    if (err == SF_OK && answer[0] != '\0')
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "mysql: text does not compare byte for byte under collation %s",
                           link->collation);
    if (err != SF_OK)
        return err;
    (void)snprintf(sql, sizeof(sql),
                   "SELECT CONCAT(table_name, '.', column_name, ' is ', collation_name)"
                   " FROM information_schema.columns WHERE table_schema = DATABASE()"
                   " AND data_type IN ('varchar', 'char', 'enum', 'text')"
                   " AND collation_name <> '%s' AND table_name <> 'schema_migrations' LIMIT 1",
                   link->collation);
    err = ask(conn, sql, answer, sizeof(answer), diag);
    if (err == SF_OK && answer[0] != '\0')
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "mysql: text does not compare byte for byte: the collation of %s, it "
                           "must be %s",
                           answer, link->collation);
    return err;
}

static enum sf_err my_drop_all(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    static const char *const any = "SELECT table_name FROM information_schema.tables WHERE"
                                   " table_schema = DATABASE() ORDER BY"
                                   " table_name = 'schema_migrations' LIMIT 1";
    char name[200], sql[256];

    enum sf_err err = ask(conn,
                          "SELECT CASE WHEN COUNT(*) = 0 OR"
                          " SUM(table_name = 'schema_migrations') = 1 THEN '' ELSE 'no' END"
                          " FROM information_schema.tables WHERE table_schema = DATABASE()",
                          name, sizeof(name), diag);
    if (err == SF_OK && name[0] != '\0')
        return sf_diag_set(diag, SF_ERR_CONFIG, "mysql: the database is no projection");
    while (err == SF_OK && (err = ask(conn, any, name, sizeof(name), diag)) == SF_OK &&
           name[0] != '\0') {
        (void)snprintf(sql, sizeof(sql), "DROP TABLE `%s`", name);
        err = my_exec(conn, sql, diag);
    }
    return err;
}

const struct sql_backend sql_mysql = {
    .name = "mysql",
    .kind = SF_SQL_MYSQL,
    .ddl_commits = true,
    .connect = my_connect,
    .disconnect = my_disconnect,
    .exec = my_exec,
    .begin = my_begin,
    .commit = my_commit,
    .rollback = my_rollback,
    .schema_lock = my_schema_lock,
    .schema_unlock = my_schema_unlock,
    .own_tables = "CREATE TABLE IF NOT EXISTS schema_migrations ("
                  " version INT NOT NULL, name VARCHAR(128) NOT NULL,"
                  " sha256 CHAR(64) NOT NULL, PRIMARY KEY (version)"
                  ") ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4;"
                  "CREATE TABLE IF NOT EXISTS schema_write_lock ("
                  " id INT NOT NULL, PRIMARY KEY (id)) ENGINE=InnoDB;"
                  "INSERT INTO schema_write_lock (id) VALUES (1)"
                  " ON DUPLICATE KEY UPDATE id = id",
    .schema_step = my_schema_step,
    .check_text = my_check_text,
    .drop_all = my_drop_all,
    .prepare = sql_my_prepare,
    .stmt_free = sql_my_stmt_free,
    .reset = sql_my_reset,
    .bind_u64 = sql_my_bind_u64,
    .bind_i64 = sql_my_bind_i64,
    .bind_bytes = sql_my_bind_bytes,
    .bind_null = sql_my_bind_null,
    .step = sql_my_step,
    .changes = sql_my_changes,
    .col_u64 = sql_my_col_u64,
    .col_i64 = sql_my_col_i64,
    .col_bytes = sql_my_col_bytes,
    .col_is_null = sql_my_col_is_null,
};
