/* SQLite implementation of sql.h, shared by its three files. */
#ifndef SF_SQL_PRIV_H
#define SF_SQL_PRIV_H

#include <pthread.h>
#include <sqlite3.h>

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

/* The database behind one or more handles. */
struct sql_core {
    pthread_mutex_t mu;      /* guards gates and refs */
    unsigned refs;           /* handles */
    bool in_memory;          /* immutable: one connection serves both gates */
    uint32_t schema_version; /* immutable after open */
    struct sql_gate writer;  /* in memory also for readers */
    struct sql_gate readers; /* unused in memory */
    struct sf_sql_conn *all; /* every connection, linked through all_next */
};

struct sf_sql {
    struct sql_core *core;        /* shared */
    struct sf_sql_faults *faults; /* of this handle; NULL = none */
};

struct sf_sql_stmt {
    struct sf_sql_stmt *next; /* in the connection's cache */
    struct sf_sql_conn *conn; /* owner */
    const void *key;          /* address of the static text or upsert it was made from */
    sqlite3_stmt *stmt;       /* owned */
    bool in_use;              /* handed out and not finished */
};

#define SQL_CACHE_BUCKETS 64

struct sf_sql_conn {
    struct sf_sql_conn *next;                     /* in the gate's idle list */
    struct sf_sql_conn *all_next;                 /* in the core's list */
    struct sql_core *core;                        /* owner */
    struct sf_sql *handle;                        /* who holds it now */
    sqlite3 *db;                                  /* owned */
    bool writer;                                  /* of the writer gate */
    bool in_tx;                                   /* a transaction is open */
    struct sf_sql_stmt *cache[SQL_CACHE_BUCKETS]; /* by key */
};

enum sql_dialect { SQL_SQLITE, SQL_POSTGRES, SQL_MYSQL };

/* The statement of an upsert with `?N` placeholders, NUL-terminated. */
void sql_upsert_text(const struct sf_sql_upsert *upsert, enum sql_dialect dialect,
                     struct sf_buf *out);

/* Turns an SQLite result into an error of ours and notes SQLite's message. */
enum sf_err sql_error(struct sf_sql_conn *conn, int rc, struct sf_diag *diag);

/* Frees the cached statements. */
void sql_cache_fini(struct sf_sql_conn *conn);

/* Finishes every statement that is still in use. */
void sql_finish_all(struct sf_sql_conn *conn);

/* The gate a mode goes through. */
struct sql_gate *sql_gate_of(struct sql_core *core, enum sf_sql_mode mode);

#endif
