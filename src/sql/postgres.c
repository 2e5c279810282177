/*
 * PostgreSQL over libpq: connections and transactions. Statements stand in postgres_stmt.c.
 *
 * Every wait for the server is a poll with a deadline. What is not answered by then, and whatever
 * breaks the connection, makes it lost: a commit on its way is then in doubt, anything else did not
 * happen, since the server takes back what is not committed. The server itself gives up a statement
 * a little earlier, so that an ordinary slow one does not cost the connection.
 *
 * A writer's transaction locks the row of schema_write_lock first: READ COMMITTED then shows it
 * everything that the writers before it committed. Readers are REPEATABLE READ and read only.
 */
#include "sql/postgres_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

#define OLDEST_VERSION     15 /* tested; earlier ones are refused */
#define SLACK_MS           2000
#define SCHEMA_PATIENCE    30 /* a schema step may take this many statement timeouts */
#define SCHEMA_LOCK_NUMBER "8390880576478438481"

static int64_t now_ms(void)
{
    return sf_clock_mono_ms(sf_clock_system());
}

static void ignore_notice(void *arg, const PGresult *result)
{
    (void)arg;
    (void)result;
}

static enum sf_err lost(struct sf_sql_conn *conn, const char *why, struct sf_diag *diag)
{
    conn->lost = true;
    return sf_diag_set(diag, SF_ERR_UNAVAILABLE, "postgres: %s", why);
}

/* Waits until the socket is ready; false at the deadline or on an error. */
static bool wait_ready(PGconn *pg, short events, int64_t deadline_ms)
{
    for (;;) {
        int64_t left = deadline_ms - now_ms();
        struct pollfd fd = {.fd = PQsocket(pg), .events = events};
        if (left <= 0 || fd.fd < 0)
            return false;
        int n = poll(&fd, 1, left > 60000 ? 60000 : (int)left);
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

/* Sends what is queued and waits for the last result; NULL when the connection is of no use. */
static PGresult *await_result(PGconn *pg, int64_t deadline_ms)
{
    PGresult *last = NULL;
    int flush;

    while ((flush = PQflush(pg)) > 0) {
        if (!wait_ready(pg, POLLIN | POLLOUT, deadline_ms) || PQconsumeInput(pg) == 0)
            return NULL;
    }
    if (flush < 0)
        return NULL;
    for (;;) {
        while (PQisBusy(pg) != 0) {
            if (!wait_ready(pg, POLLIN, deadline_ms) || PQconsumeInput(pg) == 0) {
                PQclear(last);
                return NULL;
            }
        }
        PGresult *next = PQgetResult(pg);
        if (next == NULL)
            return last;
        bool ok = last == NULL || PQresultStatus(last) == PGRES_COMMAND_OK ||
                  PQresultStatus(last) == PGRES_TUPLES_OK;
        if (ok) {
            PQclear(last);
            last = next;
        } else {
            PQclear(next); /* the first error counts */
        }
    }
}

static enum sf_err failed(struct sf_sql_conn *conn, const PGresult *result, struct sf_diag *diag)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    enum sf_err err = SF_ERR_UNAVAILABLE;

    if (state == NULL)
        state = "?????";
    if (strcmp(state, "23505") == 0)
        err = SF_ERR_EXISTS;
    else if (strncmp(state, "XX00", 4) == 0 && strcmp(state, "XX000") != 0)
        err = SF_ERR_CORRUPT;
    if (PQstatus(((struct pg_link *)conn->link)->pg) != CONNECTION_OK)
        conn->lost = true;
    return sf_diag_set(diag, err, "postgres: %s (%s)", text == NULL ? "no message" : text, state);
}

enum sf_err sql_pg_result(struct sf_sql_conn *conn, bool sent, struct sf_diag *diag,
                          PGresult **out_result)
{
    struct pg_link *link = conn->link;
    PGresult *result =
        sent ? await_result(link->pg, now_ms() + link->patience_ms + SLACK_MS) : NULL;

    *out_result = NULL;
    if (result == NULL)
        return lost(conn, sent ? "no answer" : "the connection is broken", diag);
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
        *out_result = result;
        return SF_OK;
    }
    enum sf_err err = failed(conn, result, diag);
    PQclear(result);
    return err;
}

enum sf_err sql_pg_exec(struct sf_sql_conn *conn, const char *sql, struct sf_diag *diag)
{
    struct pg_link *link = conn->link;
    PGresult *result;

    enum sf_err err = sql_pg_result(conn, PQsendQuery(link->pg, sql) == 1, diag, &result);
    PQclear(result);
    return err;
}

/* ---- connecting --------------------------------------------------------------------------- */

static const char *ssl_mode(enum sf_sql_tls tls)
{
    switch (tls) {
    case SF_SQL_TLS_VERIFY:
        return "verify-full";
    case SF_SQL_TLS_REQUIRE:
        return "require";
    default:
        return "disable";
    }
}

/* libpq's message, which may have several lines and ends one, in one. */
static enum sf_err connection_error(PGconn *pg, struct sf_diag *diag)
{
    struct sf_buf line = {0};
    bool gap = false;

    for (const char *at = PQerrorMessage(pg); *at != '\0'; at++) {
        bool space = *at == '\n' || *at == '\t' || *at == ' ';
        if (!space && gap && line.len > 0)
            sf_buf_append_str(&line, " ");
        if (!space)
            sf_buf_append(&line, at, 1);
        gap = space;
    }
    enum sf_err err = sf_diag_set(diag, SF_ERR_UNAVAILABLE, "postgres: %.*s", (int)line.len,
                                  line.len == 0 ? "" : (const char *)line.data);
    sf_buf_fini(&line);
    return err;
}

static enum sf_err check_connected(PGconn *pg, struct sf_diag *diag)
{
    if (PQstatus(pg) != CONNECTION_OK)
        return connection_error(pg, diag);
    if (PQserverVersion(pg) < OLDEST_VERSION * 10000)
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "postgres: the server's version %d is not served: %d or later is",
                           PQserverVersion(pg) / 10000, OLDEST_VERSION);
    const char *encoding = PQparameterStatus(pg, "server_encoding");
    if (encoding == NULL || strcmp(encoding, "UTF8") != 0)
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "postgres: the database's encoding is %s, it must be UTF8",
                           encoding == NULL ? "unknown" : encoding);
    return SF_OK;
}

static enum sf_err pg_connect(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    const struct sql_server *server = &conn->core->server;
    struct sf_buf password = {0};
    char port[8], timeout[12], options[192], user_timeout[12];

    enum sf_err err = sql_password(server, diag, &password);
    if (err != SF_OK) {
        sf_buf_fini(&password);
        return err;
    }
    (void)snprintf(port, sizeof(port), "%u", server->port == 0 ? 5432u : server->port);
    (void)snprintf(timeout, sizeof(timeout), "%u", (server->connect_timeout_ms + 999) / 1000);
    (void)snprintf(user_timeout, sizeof(user_timeout), "%u",
                   server->statement_timeout_ms + SLACK_MS);
    (void)snprintf(options, sizeof(options),
                   "-c statement_timeout=%u -c idle_in_transaction_session_timeout=%u"
                   " -c default_transaction_read_only=%s -c synchronous_commit=on",
                   server->statement_timeout_ms, server->statement_timeout_ms * 6,
                   conn->writer ? "off" : "on");
    const char *const keys[] = {"host",
                                "port",
                                "dbname",
                                "user",
                                "password",
                                "sslmode",
                                "sslrootcert",
                                "connect_timeout",
                                "options",
                                "keepalives",
                                "tcp_user_timeout",
                                "client_encoding",
                                "gssencmode",
                                "application_name",
                                NULL};
    const char *const values[] = {server->host,
                                  port,
                                  server->database,
                                  server->user,
                                  (const char *)password.data,
                                  ssl_mode(server->tls),
                                  server->tls_ca_file,
                                  timeout,
                                  options,
                                  "1",
                                  user_timeout,
                                  "UTF8",
                                  "disable",
                                  "searchfabricd",
                                  NULL};
    struct pg_link *link = sf_calloc(1, sizeof(*link));
    link->patience_ms = server->statement_timeout_ms;
    link->pg = PQconnectdbParams(keys, values, 0);
    sf_buf_fini(&password);
    conn->link = link;
    err = check_connected(link->pg, diag);
    if (err == SF_OK && PQsetnonblocking(link->pg, 1) != 0)
        err = connection_error(link->pg, diag);
    (void)PQsetNoticeReceiver(link->pg, ignore_notice, NULL);
    return err;
}

static void pg_disconnect(struct sf_sql_conn *conn)
{
    struct pg_link *link = conn->link;

    if (link == NULL)
        return;
    PQfinish(link->pg);
    free(link);
    conn->link = NULL;
}

/* ---- transactions ------------------------------------------------------------------------- */

static enum sf_err pg_begin(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    return sql_pg_exec(conn,
                       conn->writer ? "BEGIN ISOLATION LEVEL READ COMMITTED;"
                                      " SELECT id FROM schema_write_lock WHERE id = 1 FOR UPDATE"
                                    : "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
                       diag);
}

static enum sf_err pg_commit(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    struct pg_link *link = conn->link;
    PGresult *result;

    enum sf_err err = sql_pg_result(conn, PQsendQuery(link->pg, "COMMIT") == 1, diag, &result);
    if (err != SF_OK)
        return conn->lost ? sf_diag_set(diag, SF_ERR_AMBIGUOUS, "postgres: no answer to a commit")
                          : err;
    if (strcmp(PQcmdStatus(result), "COMMIT") != 0) /* the server had given it up before */
        err = sf_diag_set(diag, SF_ERR_UNAVAILABLE, "postgres: the transaction was rolled back");
    PQclear(result);
    return err;
}

static void pg_rollback(struct sf_sql_conn *conn)
{
    struct pg_link *link = conn->link;

    if (PQtransactionStatus(link->pg) == PQTRANS_IDLE)
        return;
    if (sql_pg_exec(conn, "ROLLBACK", NULL) != SF_OK)
        conn->lost = true;
}

/* ---- schema ------------------------------------------------------------------------------- */

static enum sf_err pg_schema_lock(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    struct pg_link *link = conn->link;
    char begin[160];

    link->patience_ms = (int64_t)conn->core->server.statement_timeout_ms * SCHEMA_PATIENCE;
    (void)snprintf(begin, sizeof(begin),
                   "BEGIN; SET LOCAL statement_timeout = %lld;"
                   " SELECT pg_advisory_xact_lock(" SCHEMA_LOCK_NUMBER ")",
                   (long long)link->patience_ms);
    return sql_pg_exec(conn, begin, diag);
}

static void pg_schema_unlock(struct sf_sql_conn *conn)
{
    ((struct pg_link *)conn->link)->patience_ms = conn->core->server.statement_timeout_ms;
}

static enum sf_err pg_schema_step(struct sf_sql_conn *conn, const char *sql, bool again,
                                  struct sf_diag *diag)
{
    (void)again;
    return sql_pg_exec(conn, sql, diag);
}

static enum sf_err pg_check_text(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    static const char *const query =
        "SELECT table_name, column_name, coalesce(collation_name, 'the default')"
        " FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND data_type IN ('text', 'character varying', 'character')"
        " AND collation_name IS DISTINCT FROM 'C' AND table_name <> 'schema_migrations'"
        " UNION ALL SELECT 'a server', 'that compares', 'something else' WHERE NOT ("
        " 'a' COLLATE \"C\" < 'a ' COLLATE \"C\" AND 'A' COLLATE \"C\" < 'a' COLLATE \"C\""
        " AND 'z' COLLATE \"C\" < U&'\\00e4' COLLATE \"C\") LIMIT 1";
    struct pg_link *link = conn->link;
    PGresult *result;

    enum sf_err err = sql_pg_result(conn, PQsendQuery(link->pg, query) == 1, diag, &result);
    if (err != SF_OK)
        return err;
    if (PQntuples(result) != 0)
        err = sf_diag_set(diag, SF_ERR_CONFIG,
                          "postgres: text of %s.%s does not compare byte for byte: its collation "
                          "is %s, it must be \"C\"",
                          PQgetvalue(result, 0, 0), PQgetvalue(result, 0, 1),
                          PQgetvalue(result, 0, 2));
    PQclear(result);
    return err;
}

static enum sf_err pg_drop_all(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    enum sf_err err = sql_pg_exec(
        conn,
        "DO $$ DECLARE r RECORD; BEGIN"
        " IF to_regclass('schema_migrations') IS NULL AND EXISTS (SELECT FROM pg_tables WHERE"
        " schemaname = current_schema()) THEN RAISE EXCEPTION 'the database is no projection';"
        " END IF;"
        " FOR r IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() LOOP"
        " EXECUTE 'DROP TABLE ' || quote_ident(r.tablename); END LOOP;"
        " DROP DOMAIN IF EXISTS sf_u64; END $$",
        diag);
    return err == SF_OK || conn->lost ? err : SF_ERR_CONFIG;
}

const struct sql_backend sql_postgres = {
    .name = "postgres",
    .kind = SF_SQL_POSTGRES,
    .connect = pg_connect,
    .disconnect = pg_disconnect,
    .exec = sql_pg_exec,
    .begin = pg_begin,
    .commit = pg_commit,
    .rollback = pg_rollback,
    .schema_lock = pg_schema_lock,
    .schema_unlock = pg_schema_unlock,
    .own_tables = "CREATE TABLE IF NOT EXISTS schema_migrations ("
                  " version INT NOT NULL PRIMARY KEY, name TEXT COLLATE \"C\" NOT NULL,"
                  " sha256 TEXT COLLATE \"C\" NOT NULL);"
                  "CREATE TABLE IF NOT EXISTS schema_write_lock (id INT NOT NULL PRIMARY KEY);"
                  "INSERT INTO schema_write_lock (id) VALUES (1) ON CONFLICT (id) DO NOTHING",
    .schema_step = pg_schema_step,
    .check_text = pg_check_text,
    .drop_all = pg_drop_all,
    .prepare = sql_pg_prepare,
    .stmt_free = sql_pg_stmt_free,
    .reset = sql_pg_reset,
    .bind_u64 = sql_pg_bind_u64,
    .bind_i64 = sql_pg_bind_i64,
    .bind_bytes = sql_pg_bind_bytes,
    .bind_null = sql_pg_bind_null,
    .step = sql_pg_step,
    .changes = sql_pg_changes,
    .col_u64 = sql_pg_col_u64,
    .col_i64 = sql_pg_col_i64,
    .col_bytes = sql_pg_col_bytes,
    .col_is_null = sql_pg_col_is_null,
};
