/*
 * Connections and transactions. A gate holds the idle connections of one kind; a task that finds
 * none queues up on its own stack and is handed one by the next release, first come first served.
 * The mutex is never held across a wait, so the simulator may stop a task anywhere it waits.
 *
 * In memory there is one connection: readers and the writer take turns on it.
 */
#include "sql/sql_priv.h"

struct sql_gate *sql_gate_of(struct sql_core *core, enum sf_sql_mode mode)
{
    return mode == SF_SQL_WRITE || core->in_memory ? &core->writer : &core->readers;
}

struct sf_sql_conn *sf_sql_acquire(struct sf_sql *db, struct sf_sched *sched, enum sf_sql_mode mode)
{
    struct sql_core *core = db->core;
    struct sql_gate *gate = sql_gate_of(core, mode);
    struct sql_waiting me = {.handle = db};

    (void)pthread_mutex_lock(&core->mu);
    struct sf_sql_conn *conn = gate->idle;
    if (conn != NULL) {
        gate->idle = conn->next;
        conn->handle = db;
        (void)pthread_mutex_unlock(&core->mu);
        return conn;
    }
    sf_waiter_init(&me.waiter, sched);
    *gate->tail = &me;
    gate->tail = &me.next;
    (void)pthread_mutex_unlock(&core->mu);
    sf_waiter_wait(&me.waiter);
    sf_waiter_fini(&me.waiter);
    return me.conn;
}

void sf_sql_release(struct sf_sql_conn *conn)
{
    if (conn == NULL)
        return;
    sql_finish_all(conn);
    sf_sql_rollback(conn);
    struct sql_core *core = conn->core;
    struct sql_gate *gate = conn->writer ? &core->writer : &core->readers;
    (void)pthread_mutex_lock(&core->mu);
    struct sql_waiting *next = gate->head;
    if (next == NULL) {
        conn->handle = NULL;
        conn->next = gate->idle;
        gate->idle = conn;
    } else {
        gate->head = next->next;
        if (gate->head == NULL)
            gate->tail = &gate->head;
        conn->handle = next->handle;
        next->conn = conn;
    }
    (void)pthread_mutex_unlock(&core->mu);
    if (next != NULL)
        sf_waiter_wake(&next->waiter);
}

enum sf_err sql_error(struct sf_sql_conn *conn, int rc, struct sf_diag *diag)
{
    enum sf_err err = SF_ERR_UNAVAILABLE;

    switch (rc & 0xff) {
    case SQLITE_CONSTRAINT:
        err = SF_ERR_EXISTS;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
        err = SF_ERR_CORRUPT;
        break;
    default:
        break;
    }
    return sf_diag_set(diag, err, "sqlite: %s (%d)", sqlite3_errmsg(conn->db), rc);
}

enum sf_err sf_sql_exec(struct sf_sql_conn *conn, const char *sql, struct sf_diag *diag)
{
    int rc = sqlite3_exec(conn->db, sql, NULL, NULL, NULL);

    return rc == SQLITE_OK ? SF_OK : sql_error(conn, rc, diag);
}

enum sf_err sf_sql_begin(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    SF_ASSERT(!conn->in_tx);
    enum sf_err err = sf_sql_exec(conn, conn->writer ? "BEGIN IMMEDIATE" : "BEGIN", diag);
    conn->in_tx = err == SF_OK;
    return err;
}

enum sf_err sf_sql_commit(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    struct sf_sql_faults *faults = conn->handle->faults;
    enum sf_err err = SF_OK;

    SF_ASSERT(conn->in_tx);
    sql_finish_all(conn);
    if (faults != NULL && faults->before_commit != NULL)
        err = faults->before_commit(faults);
    if (err != SF_OK) {
        sf_sql_rollback(conn);
        return sf_diag_set(diag, err, "injected before the commit");
    }
    err = sf_sql_exec(conn, "COMMIT", diag);
    if (err != SF_OK) {
        /* A refused COMMIT leaves the transaction open; what SQLite rolled back by itself is
         * closed already. */
        sf_sql_rollback(conn);
        return err == SF_ERR_EXISTS ? SF_ERR_UNAVAILABLE : err;
    }
    conn->in_tx = false;
    if (faults != NULL && faults->after_commit != NULL)
        err = faults->after_commit(faults);
    return err == SF_OK ? SF_OK : sf_diag_set(diag, err, "injected after the commit");
}

void sf_sql_rollback(struct sf_sql_conn *conn)
{
    if (!conn->in_tx)
        return;
    sql_finish_all(conn);
    conn->in_tx = false;
    if (sqlite3_get_autocommit(conn->db) == 0) {
        int rc = sqlite3_exec(conn->db, "ROLLBACK", NULL, NULL, NULL);
        SF_ASSERT(rc == SQLITE_OK || sqlite3_get_autocommit(conn->db) != 0);
    }
}
