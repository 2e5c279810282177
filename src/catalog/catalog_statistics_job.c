/* The projector's cycle, and what becomes of older snapshots; the model is in catalog_statistics.c.
 */
#include "catalog/catalog_gate.h"
#include "catalog/catalog_rules.h"
#include "catalog/catalog_statistics.h"

#include <stdlib.h>

#include "base/ids.h"

/* ---- pruning ------------------------------------------------------------------------------ */

/* One snapshot's identity. */
struct identity {
    const char *token;        /* in the arena */
    uint64_t stats_commit_ts; /* 0 = the base */
};

static const struct sf_sql_upsert retired_row = {
    .table = "retired_statistics_snapshots",
    .columns = "namespace_id, collection_id, applied_schema_generation_token, stats_commit_ts, "
               "retired_at_unix_ms",
    .key = "namespace_id, collection_id, applied_schema_generation_token, stats_commit_ts",
};

/* Takes one row away; its object goes later. A base's object stays: its identity is fixed, so it
 * could not be made again. */
static enum sf_err retire(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                          const SF_PB(CollectionRef) * ref, const struct identity *which,
                          struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn,
                                     "DELETE FROM collection_statistics_snapshots"
                                     " WHERE namespace_id = ?1 AND collection_id = ?2"
                                     " AND applied_schema_generation_token = ?3"
                                     " AND stats_commit_ts = ?4",
                                     diag, &stmt);
    for (int i = 0; i < 2 && err == SF_OK; i++) {
        if (i == 1 && which->stats_commit_ts == 0)
            break;
        if (i == 1)
            err = sf_sql_prepare_upsert(conn, &retired_row, diag, &stmt);
        if (err != SF_OK)
            break;
        sf_sql_bind_u64(stmt, 1, ref->namespace_id);
        sf_sql_bind_u64(stmt, 2, ref->collection_id);
        sf_sql_bind_text(stmt, 3, sf_view_str(which->token));
        sf_sql_bind_u64(stmt, 4, which->stats_commit_ts);
        if (i == 1)
            sf_sql_bind_i64(stmt, 5, sf_clock_unix_ms(catalog->deps.clock));
        err = sf_sql_run(stmt, diag, NULL);
    }
    return err;
}

/* Identities of a collection's rows, newest first, one generation after the other. */
static enum sf_err read_identities(struct sf_sql_conn *conn, const SF_PB(CollectionRef) * ref,
                                   struct sf_arena *arena, struct sf_diag *diag,
                                   struct identity **out_list, size_t *out_count)
{
    struct sf_sql_stmt *stmt;
    struct identity *list = sf_arena_alloc(arena, SF_CATALOG_STATISTICS_PRUNE * sizeof(*list));
    *out_count = 0;
    *out_list = list;
    if (list == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "no memory for a cycle");
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT applied_schema_generation_token, stats_commit_ts"
                                     " FROM collection_statistics_snapshots"
                                     " WHERE namespace_id = ?1 AND collection_id = ?2"
                                     " ORDER BY applied_schema_version DESC, stats_commit_ts DESC"
                                     " LIMIT 256",
                                     diag, &stmt);
    static_assert(SF_CATALOG_STATISTICS_PRUNE == 256, "the query says the same");
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, ref->namespace_id);
    sf_sql_bind_u64(stmt, 2, ref->collection_id);
    bool row = true;
    while (row && err == SF_OK) {
        err = sf_sql_step(stmt, diag, &row);
        if (err != SF_OK || !row)
            break;
        list[(*out_count)++] = (struct identity){sf_arena_str(arena, sf_sql_col_text(stmt, 0)),
                                                 sf_sql_col_u64(stmt, 1)};
    }
    sf_sql_finish(stmt);
    return sf_arena_overflowed(arena) ? sf_diag_set(diag, SF_ERR_LIMIT, "no memory for a cycle")
                                      : err;
}

/* Keeps the newest few rows of the serving generation and the newest one of each other, which
 * serves again when the serving one drifts. */
static enum sf_err prune(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                         const SF_PB(OptimizerStatisticsSnapshotObject) * serving,
                         struct sf_arena *arena, struct sf_diag *diag)
{
    struct identity *list = NULL;
    size_t count = 0;
    size_t kept = 0; /* of the generation at hand */
    enum sf_err err = read_identities(conn, serving->collection, arena, diag, &list, &count);
    for (size_t i = 0; i < count && err == SF_OK; i++) {
        bool same = i > 0 && strcmp(list[i - 1].token, list[i].token) == 0;
        size_t keep = strcmp(list[i].token, serving->applied_schema_generation_token) == 0
                          ? SF_CATALOG_STATISTICS_KEEP
                          : 1;
        kept = same ? kept + 1 : 1;
        if (kept > keep)
            err = retire(catalog, conn, serving->collection, &list[i], diag);
    }
    return err;
}

/* ---- one snapshot ------------------------------------------------------------------------- */

struct snapshot_rows {
    const struct sf_catalog_work *work;
    const SF_PB(OptimizerStatisticsSnapshotObject) * snapshot; /* NULL = nothing serves */
    struct sf_arena *arena;
};

static enum sf_err show_snapshot(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                                 struct sf_diag *diag)
{
    struct snapshot_rows *rows = arg;
    enum sf_err err = SF_OK;
    if (rows->snapshot != NULL)
        err = sf_catalog_project_statistics(conn, rows->snapshot, diag);
    if (err == SF_OK && rows->snapshot != NULL)
        err = prune(catalog, conn, rows->snapshot, rows->arena, diag);
    if (err == SF_OK)
        err = sf_catalog_projectors_done(conn, rows->work, SF_CATALOG_DUE_STATISTICS, diag);
    return err;
}

static enum sf_err put_snapshot(struct sf_catalog *catalog,
                                const SF_PB(OptimizerStatisticsSnapshotObject) * snapshot,
                                struct sf_diag *diag)
{
    struct sf_catalog_put put = {.cond = SF_PUT_ABSENT};
    sf_catalog_key_statistics(&put.key, snapshot->collection->namespace_id,
                              snapshot->collection->collection_id,
                              snapshot->applied_schema_generation_token, snapshot->stats_commit_ts);
    sf_catalog_put_encode(&put, &snapshot->base, false, NULL);
    enum sf_err err = sf_catalog_put_run(catalog, catalog->deps.sched, &put, SF_CATALOG_PUT_TRIES);
    if (err == SF_OK && put.state != SF_CATALOG_PUT_STANDS)
        err = SF_ERR_UNAVAILABLE;
    sf_catalog_put_fini(&put);
    if (err != SF_OK && diag->err == SF_OK)
        sf_diag_set(diag, err, "the statistics snapshot was not published");
    return err;
}

/* Under the collection's gate. */
static enum sf_err publish(struct sf_catalog *catalog, const struct sf_catalog_work *work,
                           struct sf_arena *arena, struct sf_diag *diag)
{
    struct snapshot_rows rows = {.work = work, .arena = arena};
    struct sf_catalog_lineage lineage;
    enum sf_err err = sf_catalog_lineage_read(catalog, work->namespace_id, work->collection_id,
                                              arena, diag, &lineage);
    if (err != SF_OK)
        return err;
    bool serves = lineage.ready != NULL && lineage.collection->lifecycle_state ==
                                               SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE);
    if (serves) {
        const SF_PB(SchemaGenerationBody) *body = lineage.ready->body;
        struct sf_catalog_manifest manifest;
        struct sf_tso frontier = {0};
        err = sf_catalog_manifest_read(catalog, catalog->deps.sched, body->collection, true, arena,
                                       diag, &manifest);
        if (err == SF_ERR_CORRUPT)
            return sf_catalog_projectors_refused(catalog, work, "statistics", diag);
        if (err == SF_OK &&
            sf_tso_get_wait(catalog->deps.tso, catalog->deps.sched, 1, &frontier) != SF_OK)
            err = sf_diag_set(diag, SF_ERR_UNAVAILABLE, "no timestamp for a statistics snapshot");
        if (err != SF_OK)
            return err;
        rows.snapshot = sf_catalog_statistics_build(catalog, body, &manifest, frontier.v, arena);
        if (rows.snapshot == NULL)
            return sf_diag_set(diag, SF_ERR_LIMIT, "no memory for a cycle");
        err = put_snapshot(catalog, rows.snapshot, diag);
        if (err == SF_OK)
            err = sf_catalog_statistics_point(catalog, catalog->deps.sched, rows.snapshot, arena,
                                              diag);
    }
    if (err == SF_OK)
        err = sf_catalog_projectors_write(catalog, show_snapshot, &rows, diag);
    return err;
}

static enum sf_err project_statistics(struct sf_catalog *catalog,
                                      const struct sf_catalog_work *work, struct sf_arena *arena,
                                      struct sf_diag *diag)
{
    const struct sf_catalog_gates gates = {.namespace_id = work->namespace_id,
                                           .collection_id = work->collection_id};
    sf_catalog_gates_acquire(catalog, &gates);
    enum sf_err err = publish(catalog, work, arena, diag);
    sf_catalog_gates_release(catalog, &gates);
    return err;
}

enum sf_err sf_catalog_statistics_renew(struct sf_catalog *catalog,
                                        const SF_PB(CollectionRef) * ref, struct sf_arena *arena,
                                        struct sf_diag *diag)
{
    const struct sf_catalog_work work = {.namespace_id = ref->namespace_id,
                                         .collection_id = ref->collection_id};
    return project_statistics(catalog, &work, arena, diag);
}

enum sf_err sf_catalog_run_statistics(struct sf_catalog *catalog, struct sf_sched *sched,
                                      struct sf_diag *diag, uint64_t *out_done)
{
    (void)sched;
    return sf_catalog_projectors_cycle(catalog, SF_CATALOG_DUE_STATISTICS, project_statistics, diag,
                                       out_done);
}

/* ---- retention ---------------------------------------------------------------------------- */

/* One batch of retired snapshots. */
struct retired {
    SF_PB(CollectionRef) refs[SF_CATALOG_PROJECTOR_BATCH];
    struct identity list[SF_CATALOG_PROJECTOR_BATCH];
    size_t count;
    struct sf_arena *arena;
};

static enum sf_err read_retired(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                                struct sf_diag *diag)
{
    struct retired *retired = arg;
    struct sf_sql_stmt *stmt;
    enum sf_err err =
        sf_sql_prepare(conn,
                       "SELECT namespace_id, collection_id, applied_schema_generation_token,"
                       " stats_commit_ts FROM retired_statistics_snapshots"
                       " WHERE retired_at_unix_ms <= ?1 ORDER BY retired_at_unix_ms LIMIT 64",
                       diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_i64(stmt, 1,
                    sf_clock_unix_ms(catalog->deps.clock) - SF_CATALOG_STATISTICS_RETENTION_MS);
    bool row = true;
    while (row && err == SF_OK) {
        err = sf_sql_step(stmt, diag, &row);
        if (err != SF_OK || !row)
            break;
        SF_PB(CollectionRef) *ref = &retired->refs[retired->count];
        searchfabric__v1__collection_ref__init(ref);
        ref->namespace_id = sf_sql_col_u64(stmt, 0);
        ref->collection_id = sf_sql_col_u64(stmt, 1);
        retired->list[retired->count++] = (struct identity){
            sf_arena_str(retired->arena, sf_sql_col_text(stmt, 2)), sf_sql_col_u64(stmt, 3)};
    }
    sf_sql_finish(stmt);
    return err;
}

static enum sf_err forget_retired(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                                  struct sf_diag *diag)
{
    struct retired *retired = arg;
    enum sf_err err = SF_OK;
    (void)catalog;
    for (size_t i = 0; i < retired->count && err == SF_OK; i++) {
        struct sf_sql_stmt *stmt;
        err = sf_sql_prepare(conn,
                             "DELETE FROM retired_statistics_snapshots WHERE namespace_id = ?1"
                             " AND collection_id = ?2 AND applied_schema_generation_token = ?3"
                             " AND stats_commit_ts = ?4",
                             diag, &stmt);
        if (err != SF_OK)
            break;
        sf_sql_bind_u64(stmt, 1, retired->refs[i].namespace_id);
        sf_sql_bind_u64(stmt, 2, retired->refs[i].collection_id);
        sf_sql_bind_text(stmt, 3, sf_view_str(retired->list[i].token));
        sf_sql_bind_u64(stmt, 4, retired->list[i].stats_commit_ts);
        err = sf_sql_run(stmt, diag, NULL);
    }
    return err;
}

/* A retired identity has no row, so no head is ever pointed at it again; what the head names always
 * has one. */
enum sf_err sf_catalog_run_statistics_retention(struct sf_catalog *catalog, struct sf_sched *sched,
                                                struct sf_diag *diag, uint64_t *out_done)
{
    struct retired *retired = sf_calloc(1, sizeof(*retired));
    struct sf_buf key = {0};
    retired->arena = sf_arena_new(64 << 10);
    enum sf_err err = sf_catalog_projectors_read(catalog, read_retired, retired, diag);
    for (size_t i = 0; i < retired->count && err == SF_OK; i++) {
        sf_buf_clear(&key);
        sf_catalog_key_statistics(&key, retired->refs[i].namespace_id,
                                  retired->refs[i].collection_id, retired->list[i].token,
                                  retired->list[i].stats_commit_ts);
        err = sf_store_remove_wait(catalog->deps.store, sched, sf_buf_view(&key));
        if (err != SF_OK)
            sf_diag_set(diag, err, "an old statistics snapshot was not removed");
    }
    if (err == SF_OK && retired->count != 0)
        err = sf_catalog_projectors_write(catalog, forget_retired, retired, diag);
    if (err == SF_OK)
        *out_done = retired->count;
    sf_buf_fini(&key);
    sf_arena_destroy(retired->arena);
    free(retired);
    return err;
}
