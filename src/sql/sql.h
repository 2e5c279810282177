/*
 * Projection databases: a blocking interface for worker tasks and tools over SQLite, PostgreSQL and
 * the MySQL family (MariaDB, MySQL 8, TiDB). A database has one writer connection and some readers;
 * whoever needs one acquires it, waits its turn through an sf_waiter (so the simulator owns the
 * order), and releases it. A projection is never the truth: any database may be dropped and rebuilt
 * (protocols.md section 2).
 *
 * Statements are what the three have in common: `?1` placeholders, no upserts of their own
 * (sf_sql_upsert), no functions of one database. Text compares byte for byte; the server's
 * collations are looked at when it is opened. JSON columns keep the value, not its text.
 *
 * Unsigned 64-bit columns are BIGINT UNSIGNED, in PostgreSQL a domain over NUMERIC, in SQLite
 * BIGINT holding the value minus 2^63: lossless, sorts as the unsigned numbers do, MIN/MAX and
 * `c = c + 1` work. A literal in SQL text would be off by 2^63 there, so values of such columns are
 * always bound (sf_sql_bind_u64) and read (sf_sql_col_u64); in the sqlite3 shell add
 * 9223372036854775808 to read one. Small numbers and enums may use the i64 pair, plain.
 *
 * SQLite runs in WAL mode with synchronous=NORMAL (sqlite_copier.c copies the log back): a power
 * cut may take back the last transactions, whole and in order; a killed process loses none that was
 * committed. A server may be lost at any time: whoever begins a transaction or, outside one,
 * prepares a statement, gets SF_ERR_UNAVAILABLE until a connection stands again; tries are spaced
 * out with jitter, and every wait for the server ends by a timeout. The whole result of a statement
 * may be held in memory: page large reads by key and LIMIT.
 */
#ifndef SF_SQL_SQL_H
#define SF_SQL_SQL_H

#include "base/diag.h"
#include "base/view.h"
#include "exec/sched.h"

struct sf_sql;      /* a database, or a further handle on one */
struct sf_sql_conn; /* an acquired connection */
struct sf_sql_stmt; /* a prepared statement of a connection, kept in its cache */

/* One step of the schema. Versions are 1, 2, 3, ... in order; a released step never changes. Each
 * dialect has a text of its own: statements separated by ';'. */
struct sf_sql_migration {
    uint32_t version;     /* 1-based, dense */
    const char *name;     /* short, for the migrations table */
    const char *sqlite;   /* text for SQLite */
    const char *postgres; /* text for PostgreSQL; NULL = the step is unknown there */
    const char *mysql;    /* text for the MySQL family; NULL = the step is unknown there */
};

/* An insert that may meet its row: the one statement whose text differs between databases. Static;
 * the lists are column names separated by ", ". */
struct sf_sql_upsert {
    const char *table;   /* where to */
    const char *columns; /* bound in this order as ?1 .. ?n */
    const char *key;     /* conflict columns: the primary key */
    const char *update;  /* columns overwritten on a conflict; NULL = the row stays as it is */
    const char *guard; /* one of `update` that must grow for them to be overwritten; NULL = none */
};

/* Hooks around a commit; the simulator and the tests fail or crash there. */
struct sf_sql_faults {
    /* SF_OK, or the transaction is rolled back and sf_sql_commit returns this. NULL = none. */
    enum sf_err (*before_commit)(struct sf_sql_faults *faults);
    /* SF_OK, or sf_sql_commit returns this although the rows stand. NULL = none. */
    enum sf_err (*after_commit)(struct sf_sql_faults *faults);
};

enum sf_sql_kind { SF_SQL_SQLITE, SF_SQL_POSTGRES, SF_SQL_MYSQL };

/* How a server is asked for TLS. */
enum sf_sql_tls {
    SF_SQL_TLS_OFF,     /* never; for loopback and Unix sockets */
    SF_SQL_TLS_REQUIRE, /* encrypted, the server's name is not checked */
    SF_SQL_TLS_VERIFY   /* encrypted, certificate and name are checked */
};

/* Where a database server is and who asks. Strings outlive the open call only. */
struct sf_sql_server {
    const char *host;              /* name or address; starting with '/': folder (PostgreSQL) or
                                      file (MySQL) of a Unix socket */
    uint16_t port;                 /* 0 = the database's usual one */
    const char *database;          /* one that holds nothing else */
    const char *user;              /* who logs in */
    const char *password_file;     /* file with the password, mode 0600; NULL = none is sent */
    enum sf_sql_tls tls;           /* see above */
    const char *tls_ca_file;       /* certificates to trust; NULL = the system's */
    uint32_t connect_timeout_ms;   /* 0 = SF_SQL_CONNECT_TIMEOUT_MS */
    uint32_t statement_timeout_ms; /* 0 = SF_SQL_STATEMENT_TIMEOUT_MS */
};

#define SF_SQL_CONNECT_TIMEOUT_MS   5000u
#define SF_SQL_STATEMENT_TIMEOUT_MS 10000u

struct sf_sql_options {
    enum sf_sql_kind kind; /* which database */
    const char *path; /* SQLite: file, made when absent; NULL = in memory, gone with the handle */
    struct sf_sql_server server;               /* the others: where it is */
    const struct sf_sql_migration *migrations; /* in order; must outlive the open call only */
    size_t migration_count;                    /* >= 1 */
    unsigned readers;                          /* reader connections, 0 = 2; ignored in memory,
                                                  where readers take turns with the writer */
    struct sf_sql_faults *faults;              /* NULL in production */
};

/* Opens the database and brings its schema up to date; processes that do so at once take turns.
 * Blocks. Errors: SF_ERR_CONFIG (the schema is newer than this binary, its history is another one,
 * or text does not compare byte for byte: the message says which), SF_ERR_CORRUPT, SF_ERR_IO (also
 * a server that cannot be reached or refuses). */
SF_MUST_USE enum sf_err sf_sql_open(const struct sf_sql_options *options, struct sf_diag *diag,
                                    struct sf_sql **out_db);

/* Drops the database's content, schema included: SQLite's files, every table of a server's
 * database, which must be a projection's (or empty). Nobody has it open. Blocks. Errors:
 * SF_ERR_CONFIG (it holds something else), SF_ERR_IO. */
SF_MUST_USE enum sf_err sf_sql_drop(const struct sf_sql_options *where, struct sf_diag *diag);

/* A further handle on the same database with its own faults (NULL for none): a second process of
 * the simulator that shares the projection. Close it like the first; the database goes with the
 * last handle. */
struct sf_sql *sf_sql_share(struct sf_sql *db, struct sf_sql_faults *faults);

/* Closes a handle; its connections have been released. NULL is fine. */
void sf_sql_close(struct sf_sql *db);

/* Schema version that stands in the database: that of the last migration. */
uint32_t sf_sql_schema_version(const struct sf_sql *db);

enum sf_sql_mode {
    SF_SQL_READ, /* a snapshot as of the first read after sf_sql_begin; never blocks the writer */
    SF_SQL_WRITE /* the one writer; between sf_sql_begin and the end the one of all processes */
};

/* Takes a connection, waiting in turn on `sched` (NULL = plain thread). Cannot fail. Do not take a
 * second one while holding one. */
struct sf_sql_conn *sf_sql_acquire(struct sf_sql *db, struct sf_sched *sched,
                                   enum sf_sql_mode mode);

/* Gives the connection back; an open transaction is rolled back. NULL is fine. */
void sf_sql_release(struct sf_sql_conn *conn);

/* Says that the writer, which is held, is about to write (or has written) most of the database at
 * once: SQLite then keeps up to 256 MiB of it in memory. The setting stays with the connection. */
void sf_sql_bulk(struct sf_sql_conn *conn, bool on);

/* Starts a transaction: a snapshot on a reader; on the writer the turn among all processes (SQLite
 * BEGIN IMMEDIATE, elsewhere the row of schema_write_lock, which this waits for no longer than the
 * statement timeout). Connects anew where the connection was lost. Errors: SF_ERR_UNAVAILABLE,
 * SF_ERR_CORRUPT. */
SF_MUST_USE enum sf_err sf_sql_begin(struct sf_sql_conn *conn, struct sf_diag *diag);

/* Ends it. Errors: SF_ERR_UNAVAILABLE (rolled back: nothing stands), SF_ERR_AMBIGUOUS (may stand:
 * look again), SF_ERR_CORRUPT. No transaction is open after it, whatever it returns. */
SF_MUST_USE enum sf_err sf_sql_commit(struct sf_sql_conn *conn, struct sf_diag *diag);

/* Undoes an open transaction; harmless without one. After an error of a statement that is all that
 * is left to do: further statements and the commit give SF_ERR_UNAVAILABLE. */
void sf_sql_rollback(struct sf_sql_conn *conn);

/* Runs statements without arguments and results. Errors as sf_sql_step. */
SF_MUST_USE enum sf_err sf_sql_exec(struct sf_sql_conn *conn, const char *sql,
                                    struct sf_diag *diag);

/* The statement of `sql` (one statement), reset and without bindings, from the connection's cache.
 * `sql` is static text. Valid until the connection is released; a statement in use is not handed
 * out twice (assertion). A syntax error is an assertion: SQL is ours. Errors: SF_ERR_UNAVAILABLE,
 * SF_ERR_CORRUPT. */
SF_MUST_USE enum sf_err sf_sql_prepare(struct sf_sql_conn *conn, const char *sql,
                                       struct sf_diag *diag, struct sf_sql_stmt **out_stmt);

/* The statement of an upsert in the connection's dialect, otherwise like sf_sql_prepare; the cache
 * knows it by the address of `upsert`. sf_sql_run counts 0 changes when the row was there and stays
 * (no `update`, or the guard did not grow), else more (without a guard perhaps 0 when the row held
 * these very values). A conflict on another unique key than `key` is SF_ERR_EXISTS. */
SF_MUST_USE enum sf_err sf_sql_prepare_upsert(struct sf_sql_conn *conn,
                                              const struct sf_sql_upsert *upsert,
                                              struct sf_diag *diag, struct sf_sql_stmt **out_stmt);

/* Bind argument `index` (1-based). Text and blobs are copied; an empty view is an empty value, not
 * NULL. */
void sf_sql_bind_u64(struct sf_sql_stmt *stmt, int index, uint64_t value);
void sf_sql_bind_i64(struct sf_sql_stmt *stmt, int index, int64_t value);
void sf_sql_bind_text(struct sf_sql_stmt *stmt, int index, struct sf_view text);
void sf_sql_bind_blob(struct sf_sql_stmt *stmt, int index, struct sf_view bytes);
void sf_sql_bind_null(struct sf_sql_stmt *stmt, int index);

/* Moves to the next row; *out_row is false at the end. After an error or the end the statement is
 * finished. Errors: SF_ERR_EXISTS (a unique key), SF_ERR_UNAVAILABLE (busy, I/O, full),
 * SF_ERR_CORRUPT. */
SF_MUST_USE enum sf_err sf_sql_step(struct sf_sql_stmt *stmt, struct sf_diag *diag, bool *out_row);

/* Runs a statement that gives no rows to its end and finishes it; rows changed in out_changes (may
 * be NULL). Errors as sf_sql_step. */
SF_MUST_USE enum sf_err sf_sql_run(struct sf_sql_stmt *stmt, struct sf_diag *diag,
                                   uint64_t *out_changes);

/* Puts the statement back before its end was reached. Harmless on a finished one; NULL is fine. */
void sf_sql_finish(struct sf_sql_stmt *stmt);

/* Columns (0-based) of the present row. Views are valid until the next step or finish. NULL reads
 * as 0 or the empty view. */
uint64_t sf_sql_col_u64(struct sf_sql_stmt *stmt, int column);
int64_t sf_sql_col_i64(struct sf_sql_stmt *stmt, int column);
struct sf_view sf_sql_col_text(struct sf_sql_stmt *stmt, int column);
struct sf_view sf_sql_col_blob(struct sf_sql_stmt *stmt, int column);
bool sf_sql_col_is_null(struct sf_sql_stmt *stmt, int column);

#endif
