/*
 * Inside the module: what is common to the databases (gates, transactions, statement cache, schema
 * steps) stands in sql_*.c and reaches a database through struct sql_backend.
 */
#ifndef SF_SQL_PRIV_H
#define SF_SQL_PRIV_H

#include <pthread.h>

#include "base/buf.h"
#include "sql/sql.h"

/* One task waiting for a connection, on its own stack. */
struct sql_waiting {
    struct sql_waiting *next; /* in the gate's queue */
    struct sf_waiter waiter;  /* woken once `conn` is set */
    struct sf_sql_conn *conn; /* the connection handed over */
    struct sf_sql *handle;    /* who asked */
};

/* Connections of one kind with the tasks that wait for one, first come first served. */
struct sql_gate {
    struct sf_sql_conn *idle;  /* free connections, linked through next */
    struct sql_waiting *head;  /* longest waiting */
    struct sql_waiting **tail; /* where the next one goes */
};

/* Owned copy of struct sf_sql_server. */
struct sql_server {
    char *host, *database, *user;  /* owned */
    char *password_file;           /* owned; NULL = none */
    char *tls_ca_file;             /* owned; NULL = the system's */
    uint16_t port;                 /* 0 = the usual one */
    enum sf_sql_tls tls;           /* wanted */
    uint32_t connect_timeout_ms;   /* > 0 */
    uint32_t statement_timeout_ms; /* > 0 */
};

/* The database behind one or more handles. */
struct sql_core {
    pthread_mutex_t mu;                /* guards gates and refs */
    unsigned refs;                     /* handles */
    const struct sql_backend *backend; /* immutable */
    char *path;                        /* immutable, owned; SQLite's file, NULL = in memory */
    struct sql_server server;          /* immutable; unused by SQLite */
    bool in_memory;                    /* immutable: one connection serves both gates */
    uint32_t schema_version;           /* immutable after open */
    struct sql_gate writer;            /* in memory also for readers */
    struct sql_gate readers;           /* unused in memory */
    struct sf_sql_conn *all;           /* every connection, linked through all_next */
    void *work;                        /* the backend's in the background; NULL = none */
};

struct sf_sql {
    struct sql_core *core;        /* shared */
    struct sf_sql_faults *faults; /* of this handle; NULL = none */
};

struct sf_sql_stmt {
    struct sf_sql_stmt *next; /* in the connection's cache */
    struct sf_sql_conn *conn; /* owner */
    const void *key;          /* address of the static text or upsert it was made from */
    bool upsert;              /* made from an upsert */
    bool in_use;              /* handed out and not finished */
    void *impl;               /* the backend's, owned */
};

#define SQL_CACHE_BUCKETS 64

struct sf_sql_conn {
    struct sf_sql_conn *next;                     /* in the gate's idle list */
    struct sf_sql_conn *all_next;                 /* in the core's list */
    struct sql_core *core;                        /* owner */
    struct sf_sql *handle;                        /* who holds it now */
    void *link;                                   /* the backend's; NULL = never connected */
    bool writer;                                  /* of the writer gate */
    bool in_tx;                                   /* a transaction is open */
    bool failed;                                  /* a statement of it failed: roll back */
    bool lost;                                    /* the server is gone: connect anew */
    unsigned tries;                               /* failed ones to connect anew, in a row */
    int64_t retry_at_ms;                          /* the next one is not before (monotonic) */
    struct sf_sql_stmt *cache[SQL_CACHE_BUCKETS]; /* by key */
};

/* What a database does for the common part. Errors are those of sql.h; a backend that finds its
 * server gone sets conn->lost. Unless said otherwise the connection stands. */
struct sql_backend {
    const char *name;      /* for messages */
    enum sf_sql_kind kind; /* which one */
    bool ddl_commits;      /* a schema statement ends the transaction */

    /* Makes conn->link. Errors: SF_ERR_IO, SF_ERR_CONFIG, SF_ERR_UNAVAILABLE. */
    enum sf_err (*connect)(struct sf_sql_conn *conn, struct sf_diag *diag);
    /* Frees conn->link; NULL is fine. */
    void (*disconnect)(struct sf_sql_conn *conn);
    /* Starts and ends work in the background, core->work, once all connections stand; NULL = there
     * is none. Errors: SF_ERR_IO. */
    enum sf_err (*start)(struct sql_core *core, struct sf_diag *diag);
    void (*stop)(struct sql_core *core); /* NULL with `start` */
    /* As sf_sql_bulk; NULL = nothing changes. */
    void (*bulk)(struct sf_sql_conn *conn, bool on);
    /* Runs the statements of a text. */
    enum sf_err (*exec)(struct sf_sql_conn *conn, const char *sql, struct sf_diag *diag);
    enum sf_err (*begin)(struct sf_sql_conn *conn, struct sf_diag *diag); /* a transaction */
    /* SF_ERR_AMBIGUOUS when the answer was lost. The transaction may stay open after an error. */
    enum sf_err (*commit)(struct sf_sql_conn *conn, struct sf_diag *diag);
    void (*rollback)(struct sf_sql_conn *conn); /* none open: nothing */

    /* Keeps other processes away from the schema. Where DDL can be taken back this begins a
     * transaction, which commit or rollback ends; else schema_unlock ends it. */
    enum sf_err (*schema_lock)(struct sf_sql_conn *conn, struct sf_diag *diag);
    void (*schema_unlock)(struct sf_sql_conn *conn); /* after schema_lock only */
    /* Statements, run under the lock, that make the module's own tables if they are absent. */
    const char *own_tables;
    /* Runs a step's text; `again` when an earlier try was cut. */
    enum sf_err (*schema_step)(struct sf_sql_conn *conn, const char *sql, bool again,
                               struct sf_diag *diag);
    /* Does text compare byte for byte? SF_ERR_CONFIG if not. */
    enum sf_err (*check_text)(struct sf_sql_conn *conn, struct sf_diag *diag);

    /* Drops every table of the database; SF_ERR_CONFIG when it is not a projection's. */
    enum sf_err (*drop_all)(struct sf_sql_conn *conn, struct sf_diag *diag);

    /* Makes stmt->impl from a text with `?N` placeholders. */
    enum sf_err (*prepare)(struct sf_sql_stmt *stmt, const char *sql, struct sf_diag *diag);
    void (*stmt_free)(struct sf_sql_stmt *stmt); /* frees stmt->impl */
    void (*reset)(struct sf_sql_stmt *stmt);     /* ready to be bound and run again */
    void (*bind_u64)(struct sf_sql_stmt *stmt, int index, uint64_t value); /* index 1-based */
    void (*bind_i64)(struct sf_sql_stmt *stmt, int index, int64_t value);  /* index 1-based */
    void (*bind_bytes)(struct sf_sql_stmt *stmt, int index, struct sf_view bytes, bool is_text);
    void (*bind_null)(struct sf_sql_stmt *stmt, int index); /* index 1-based */
    enum sf_err (*step)(struct sf_sql_stmt *stmt, struct sf_diag *diag, bool *out_row); /* or end */
    uint64_t (*changes)(struct sf_sql_stmt *stmt);             /* rows of the last step */
    uint64_t (*col_u64)(struct sf_sql_stmt *stmt, int column); /* column 0-based */
    int64_t (*col_i64)(struct sf_sql_stmt *stmt, int column);  /* column 0-based */
    struct sf_view (*col_bytes)(struct sf_sql_stmt *stmt, int column, bool is_text);
    bool (*col_is_null)(struct sf_sql_stmt *stmt, int column); /* column 0-based */
};

extern const struct sql_backend sql_sqlite;
extern const struct sql_backend sql_postgres;
extern const struct sql_backend sql_mysql;

/* The statement of an upsert with `?N` placeholders, NUL-terminated. */
void sql_upsert_text(const struct sf_sql_upsert *upsert, enum sf_sql_kind kind, struct sf_buf *out);

/* Placeholders of one statement. */
#define SQL_MAX_BINDINGS 64

/* Rewrites `?N` outside of quotes, NUL-terminated. PostgreSQL: `$N`. MySQL: `?`, and out_order[i]
 * is the N (1-based) of the i-th of them. Returns how many there are. */
size_t sql_placeholders(const char *sql, enum sf_sql_kind kind, struct sf_buf *out,
                        uint8_t out_order[SQL_MAX_BINDINGS]);

/* Cuts the next statement, without its ';', off a script whose literals hold no ';'; false at the
 * end. */
bool sql_next_statement(const char **script, struct sf_view *out_statement);

/* Reads the password of a server into `out`, NUL-terminated, without the line's end. Errors:
 * SF_ERR_CONFIG, SF_ERR_IO. */
enum sf_err sql_password(const struct sql_server *server, struct sf_diag *diag, struct sf_buf *out);

/* May a statement run? Not in a transaction that failed; elsewhere a lost connection is made anew
 * first. Error: SF_ERR_UNAVAILABLE. */
enum sf_err sql_ready(struct sf_sql_conn *conn, struct sf_diag *diag);

/* Brings the schema of a fresh database up to date. Errors as sf_sql_open. */
enum sf_err sql_migrate(struct sf_sql *db, const struct sf_sql_options *options,
                        struct sf_diag *diag);

/* Frees the cached statements. */
void sql_cache_fini(struct sf_sql_conn *conn);

/* Finishes every statement that is still in use. */
void sql_finish_all(struct sf_sql_conn *conn);

/* Is any statement in use? */
bool sql_any_in_use(const struct sf_sql_conn *conn);

#endif
