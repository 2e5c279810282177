/*
 * Connections and transactions. A gate holds the idle connections of one kind; a task that finds
 * none queues up on its own stack and is handed one by the next release, first come first served.
 * The mutex is never held across a wait, so the simulator may stop a task anywhere it waits.
 *
 * In memory there is one connection: readers and the writer take turns on it.
 *
 * A lost connection stays lost to its holder; the next begin, or a statement outside a transaction,
 * connects anew, unless the last try failed just now: then it fails at once, so that callers, who
 * all have a pause of their own, do not queue up behind a dead server.
 */
#include "sql/sql_priv.h"

#include "base/clock.h"
#include "base/rng.h"

#define RETRY_FIRST_MS 50u
#define RETRY_LAST_MS  5000u

static struct sql_gate *gate_of(struct sql_core *core, enum sf_sql_mode mode)
{
    return mode == SF_SQL_WRITE || core->in_memory ? &core->writer : &core->readers;
}

struct sf_sql_conn *sf_sql_acquire(struct sf_sql *db, struct sf_sched *sched, enum sf_sql_mode mode)
{
    struct sql_core *core = db->core;
    struct sql_gate *gate = gate_of(core, mode);
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

/* When the next try is due: doubling, the upper half of it by chance. */
static int64_t retry_at(int64_t now_ms, unsigned tries)
{
    uint64_t wait = tries > 7 ? RETRY_LAST_MS : (uint64_t)RETRY_FIRST_MS << tries;
    uint64_t random;

    if (wait > RETRY_LAST_MS)
        wait = RETRY_LAST_MS;
    sf_random_bytes(&random, sizeof(random));
    return now_ms + (int64_t)(wait / 2 + random % (wait / 2 + 1));
}

/* Connects anew where the connection was lost and no statement is in use. */
static enum sf_err revive(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    if (!conn->lost)
        return SF_OK;
    const struct sql_backend *backend = conn->core->backend;
    if (conn->in_tx || sql_any_in_use(conn))
        return sf_diag_set(diag, SF_ERR_UNAVAILABLE, "%s: the connection is lost", backend->name);
    int64_t now_ms = sf_clock_mono_ms(sf_clock_system());
    if (now_ms < conn->retry_at_ms)
        return sf_diag_set(diag, SF_ERR_UNAVAILABLE, "%s: not reachable, tried just now",
                           backend->name);
    sql_cache_fini(conn);
    backend->disconnect(conn);
    enum sf_err err = backend->connect(conn, diag);
    if (err != SF_OK) {
        conn->retry_at_ms = retry_at(sf_clock_mono_ms(sf_clock_system()), conn->tries++);
        return SF_ERR_UNAVAILABLE;
    }
    conn->lost = false;
    conn->tries = 0;
    return SF_OK;
}

enum sf_err sql_ready(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    if (conn->in_tx && (conn->failed || conn->lost))
        return sf_diag_set(diag, SF_ERR_UNAVAILABLE, "the transaction failed before");
    return revive(conn, diag);
}

enum sf_err sf_sql_exec(struct sf_sql_conn *conn, const char *sql, struct sf_diag *diag)
{
    enum sf_err err = sql_ready(conn, diag);

    if (err == SF_OK)
        err = conn->core->backend->exec(conn, sql, diag);
    if (err != SF_OK)
        conn->failed = conn->in_tx;
    return err;
}

void sf_sql_bulk(struct sf_sql_conn *conn, bool on)
{
    SF_ASSERT(conn->writer && !conn->in_tx);
    if (conn->core->backend->bulk != NULL)
        conn->core->backend->bulk(conn, on);
}

enum sf_err sf_sql_begin(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    SF_ASSERT(!conn->in_tx);
    conn->failed = false;
    enum sf_err err = revive(conn, diag);
    if (err != SF_OK)
        return err;
    err = conn->core->backend->begin(conn, diag);
    if (err == SF_OK)
        conn->in_tx = true;
    else if (!conn->lost)
        conn->core->backend->rollback(conn);
    return err;
}

static enum sf_err commit_at_server(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    if (conn->failed || conn->lost) {
        sf_sql_rollback(conn);
        return sf_diag_set(diag, SF_ERR_UNAVAILABLE, "the transaction failed before its commit");
    }
    enum sf_err err = conn->core->backend->commit(conn, diag);
    if (err != SF_OK) {
        sf_sql_rollback(conn);
        return err == SF_ERR_EXISTS ? SF_ERR_UNAVAILABLE : err;
    }
    conn->in_tx = false;
    return SF_OK;
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
    err = commit_at_server(conn, diag);
    if (err != SF_OK)
        return err;
    if (faults != NULL && faults->after_commit != NULL)
        err = faults->after_commit(faults);
    return err == SF_OK ? SF_OK : sf_diag_set(diag, err, "injected after the commit");
}

void sf_sql_rollback(struct sf_sql_conn *conn)
{
    if (!conn->in_tx)
        return;
    sql_finish_all(conn);
    conn->in_tx = conn->failed = false;
    if (!conn->lost)
        conn->core->backend->rollback(conn);
}
