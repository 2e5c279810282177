/*
 * Model: the check of one namespace's quota state, on the namespace's lane, so that no grant is on
 * its way. The object is the truth of what was debited. A row that does not show it may miss
 * leases, so a repair never copies: it adopts the object anew under a higher quota epoch, as a
 * rebuild does, and ends the leases of before. What memory knew is read again.
 */
#include "catalog/catalog_quota.h"
#include "catalog/catalog_rules.h"

#include <stdlib.h>

/* One check on its way to the lane and back. */
struct check {
    struct sf_task task;          /* on the lane of the namespace's quota */
    struct sf_waiter waiter;      /* woken once it is done */
    struct sf_catalog *catalog;   /* whose */
    struct sf_arena *arena;       /* of the caller; what it finds lives there */
    struct sf_diag *diag;         /* of the caller */
    uint64_t namespace_id;        /* which one */
    bool repair;                  /* rows are written again */
    enum sf_err err;              /* result */
    struct sf_quota_checked *out; /* result */
};

/* Is a swapped object still to be shown? Memory that is no longer true is dropped with `forget`. */
static bool memory(struct check *check, bool forget)
{
    struct sf_catalog_quotas *quotas = check->catalog->quotas;
    pthread_mutex_lock(&quotas->mu);
    struct sf_quota_namespace *ns =
        sf_map_get(quotas->namespaces, sf_map_key_u64(&check->namespace_id));
    bool dirty = ns != NULL && ns->dirty;
    if (ns != NULL && forget)
        ns->adopted = false; /* nothing of it runs: this is its lane */
    pthread_mutex_unlock(&quotas->mu);
    return dirty;
}

static enum sf_err read_both(struct check *check, const SF_PB(NamespaceQuotaStateObject) * *out_row,
                             SF_PB(NamespaceQuotaStateObject) * *out_object, bool *out_live)
{
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    SF_PB(NamespaceQuotaStateObject) *row = NULL;
    SF_PB(NamespaceRow) *ns = NULL;
    struct sf_catalog *catalog = check->catalog;
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    enum sf_err err =
        sf_quota_sql_state(conn, check->namespace_id, check->arena, check->diag, &row);
    if (err == SF_OK)
        err = sf_catalog_sql_namespace(conn, check->namespace_id, check->arena, check->diag, &ns);
    sf_sql_release(conn);
    *out_live = ns != NULL && ns->lifecycle_state != SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED);
    sf_catalog_key_quota(&key, check->namespace_id);
    if (err == SF_OK)
        err = sf_catalog_read(catalog, catalog->deps.sched, sf_buf_view(&key),
                              &searchfabric__v1__namespace_quota_state_object__descriptor, false,
                              check->arena, check->diag, &message, NULL, NULL);
    sf_buf_fini(&key);
    *out_row = row;
    *out_object = (SF_PB(NamespaceQuotaStateObject) *)message;
    return err == SF_ERR_NOT_FOUND ? SF_OK : err;
}

static enum sf_err mend(struct check *check)
{
    static const uint64_t nothing[SF_CATALOG_DIMENSIONS];
    struct sf_catalog *catalog = check->catalog;
    struct sf_quota_namespace *ns = sf_calloc(1, sizeof(*ns));
    ns->catalog = catalog;
    ns->namespace_id = check->namespace_id;
    enum sf_err err = sf_quota_adopt(ns, catalog->deps.sched, true, true, nothing, check->diag);
    (void)memory(check, true);
    if (err == SF_OK) {
        struct sf_sql_conn *conn =
            sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_WRITE);
        err = sf_sql_begin(conn, check->diag);
        if (err == SF_OK)
            err = sf_catalog_sql_look(catalog, conn, check->diag);
        if (err == SF_OK)
            err = sf_quota_show(ns, conn, check->diag);
        if (err == SF_OK)
            err = sf_sql_commit(conn, check->diag);
        else
            sf_sql_rollback(conn);
        sf_sql_release(conn);
    }
    free(ns);
    check->out->repaired = err == SF_OK;
    return err;
}

static enum sf_err judge(struct check *check)
{
    const SF_PB(NamespaceQuotaStateObject) *row = NULL;
    SF_PB(NamespaceQuotaStateObject) *object = NULL;
    struct sf_quota_checked *out = check->out;
    enum sf_err err = read_both(check, &row, &object, &out->live);
    if (err != SF_OK || (row == NULL && object == NULL))
        return err;
    if (object != NULL)
        object->sha256 = (char *)(uintptr_t)protobuf_c_empty_string;
    bool same = row != NULL && object != NULL && sf_catalog_same(&row->base, &object->base);
    out->state = same             ? SF_QUOTA_CHECKED_SAME
                 : row == NULL    ? SF_QUOTA_CHECKED_NO_ROW
                 : object == NULL ? SF_QUOTA_CHECKED_NO_OBJECT
                                  : SF_QUOTA_CHECKED_DIFFERS;
    out->expected = memory(check, false) ||
                    (object != NULL && object->owner_epoch < check->catalog->owner_epoch);
    if (out->state == SF_QUOTA_CHECKED_SAME || !check->repair || !out->live)
        return SF_OK;
    return mend(check);
}

static void run(struct sf_task *task)
{
    struct check *check = SF_CONTAINER_OF(task, struct check, task);
    check->err = judge(check);
    sf_waiter_wake(&check->waiter);
}

enum sf_err sf_quota_check(struct sf_catalog *catalog, struct sf_sched *sched,
                           uint64_t namespace_id, bool repair, struct sf_arena *arena,
                           struct sf_diag *diag, struct sf_quota_checked *out)
{
    struct check check = {.task.run = run,
                          .catalog = catalog,
                          .arena = arena,
                          .diag = diag,
                          .namespace_id = namespace_id,
                          .repair = repair,
                          .out = out};
    uint64_t lane =
        sf_catalog_lane_key(SF_CATALOG_LANE_NAMESPACE_ID, namespace_id, 0, sf_view_str(""));
    *out = (struct sf_quota_checked){.state = SF_QUOTA_CHECKED_SAME};
    sf_waiter_init(&check.waiter, sched);
    if (sf_sched_submit(sched, lane, &check.task) != SF_OK) {
        sf_waiter_fini(&check.waiter);
        return sf_diag_set(diag, SF_ERR_UNAVAILABLE, "the catalog is busy");
    }
    sf_waiter_wait(&check.waiter);
    sf_waiter_fini(&check.waiter);
    return check.err;
}
