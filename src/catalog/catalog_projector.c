/*
 * Model: work that is due stands in one table, one row per collection, one column per projector. A
 * committed command notes its work in the transaction of its rows, so a restart forgets nothing; a
 * rebuild makes everything due. A note gives the row a fresh stamp; a projector clears its column
 * in the transaction that shows its result, and only under the stamp that it took: what was noted
 * meanwhile stays due. A cycle that found nothing asks the projection again only after a change.
 * A full cycle is followed by one that begins behind it, so that what is noted again and again, or
 * fails for ever, holds nobody up.
 */
#include "catalog/catalog_projector.h"

#include "catalog/catalog_job.h"

#include <stdlib.h>

struct wake_key {
    uint64_t namespace_id;
    uint64_t collection_id;
};

struct sf_catalog_projectors {
    _Atomic uint64_t stamps;             /* notes of this process */
    _Atomic uint64_t changes;            /* committed notes */
    pthread_mutex_t mu;                  /* guards what follows */
    struct sf_map *wakes;                /* (namespace, collection) -> the table itself, a set */
    bool wake_all;                       /* there were too many */
    bool asked[SF_CATALOG_DUE_COUNT];    /* the table was asked since the start */
    bool clean[SF_CATALOG_DUE_COUNT];    /* nothing was due at `seen` */
    uint64_t seen[SF_CATALOG_DUE_COUNT]; /* changes at the last take */
    int64_t retry_at_ms[SF_CATALOG_DUE_COUNT];   /* when deferred work is due again; 0 = none */
    struct wake_key after[SF_CATALOG_DUE_COUNT]; /* where the next take begins; zeros: in front */
};

struct sf_catalog_projectors *sf_catalog_projectors_new(void)
{
    struct sf_catalog_projectors *projectors = sf_calloc(1, sizeof(*projectors));
    pthread_mutex_init(&projectors->mu, NULL);
    projectors->wakes = sf_map_new();
    return projectors;
}

void sf_catalog_projectors_destroy(struct sf_catalog_projectors *projectors)
{
    if (projectors == NULL)
        return;
    sf_map_destroy(projectors->wakes, NULL);
    pthread_mutex_destroy(&projectors->mu);
    free(projectors);
}

/* ---- transactions ------------------------------------------------------------------------- */

static enum sf_err run_rows(struct sf_catalog *catalog, enum sf_sql_mode mode,
                            sf_catalog_rows_fn fn, void *arg, struct sf_diag *diag)
{
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, mode);
    enum sf_err err = sf_sql_begin(conn, diag);
    if (err == SF_OK && !SF_MUTANT(ccs_no_projector_fence))
        err = sf_catalog_sql_look(catalog, conn, diag);
    if (err == SF_OK)
        err = fn(catalog, conn, arg, diag);
    if (err == SF_OK && mode == SF_SQL_WRITE)
        err = sf_sql_commit(conn, diag);
    else
        sf_sql_rollback(conn);
    sf_sql_release(conn);
    return err;
}

enum sf_err sf_catalog_projectors_write(struct sf_catalog *catalog, sf_catalog_rows_fn fn,
                                        void *arg, struct sf_diag *diag)
{
    return run_rows(catalog, SF_SQL_WRITE, fn, arg, diag);
}

enum sf_err sf_catalog_projectors_read(struct sf_catalog *catalog, sf_catalog_rows_fn fn, void *arg,
                                       struct sf_diag *diag)
{
    return run_rows(catalog, SF_SQL_READ, fn, arg, diag);
}

/* ---- notes -------------------------------------------------------------------------------- */

#define WORK_COLUMNS                                                                               \
    "namespace_id, collection_id, stamp, stats_due, index_due, aggregate_due, statistics_due, "    \
    "windows_due, retry_at_unix_ms"
#define WORK_ROW(columns_due)                                                                      \
    {                                                                                              \
        .table = "catalog_projector_work", .columns = WORK_COLUMNS,                                \
        .key = "namespace_id, collection_id", .update = "stamp, retry_at_unix_ms, " columns_due    \
    }

/* A note overwrites the columns that it makes due and leaves the others. */
static const struct sf_sql_upsert work_rows[SF_CATALOG_NOTE_COUNT] = {
    [SF_CATALOG_NOTE_CREATED] = WORK_ROW("stats_due, index_due, aggregate_due"),
    [SF_CATALOG_NOTE_SCHEMA] = WORK_ROW("index_due, windows_due"),
    [SF_CATALOG_NOTE_CONTENT] =
        WORK_ROW("stats_due, index_due, aggregate_due, statistics_due, windows_due"),
    [SF_CATALOG_NOTE_BACKLOG] = WORK_ROW("index_due"),
    [SF_CATALOG_NOTE_DESCRIPTOR] = WORK_ROW("aggregate_due"),
};

static const bool due_of[SF_CATALOG_NOTE_COUNT][SF_CATALOG_DUE_COUNT] = {
    [SF_CATALOG_NOTE_CREATED] = {true, true, true, false, false},
    [SF_CATALOG_NOTE_SCHEMA] = {false, true, false, false, true},
    [SF_CATALOG_NOTE_CONTENT] = {true, true, true, true, true},
    [SF_CATALOG_NOTE_BACKLOG] = {false, true, false, false, false},
    [SF_CATALOG_NOTE_DESCRIPTOR] = {false, false, true, false, false},
};

enum sf_err sf_catalog_projectors_note(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                       uint64_t namespace_id, uint64_t collection_id,
                                       enum sf_catalog_note note, struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare_upsert(conn, &work_rows[note], diag, &stmt);
    if (err != SF_OK)
        return err;
    uint64_t salt[2] = {catalog->owner_epoch,
                        atomic_fetch_add(&catalog->projectors->stamps, 1) + 1};
    sf_sql_bind_u64(stmt, 1, namespace_id);
    sf_sql_bind_u64(stmt, 2, collection_id);
    sf_sql_bind_u64(stmt, 3, SF_MUTANT(ccs_no_stamp) ? 1 : sf_xxh64(salt, sizeof(salt), 0));
    for (int due = 0; due < SF_CATALOG_DUE_COUNT; due++)
        sf_sql_bind_i64(stmt, 4 + due, due_of[note][due] ? 1 : 0);
    sf_sql_bind_i64(stmt, 4 + SF_CATALOG_DUE_COUNT, 0);
    return sf_sql_run(stmt, diag, NULL);
}

void sf_catalog_projectors_changed(struct sf_catalog *catalog)
{
    atomic_fetch_add(&catalog->projectors->changes, 1);
}

void sf_catalog_projectors_wake(struct sf_catalog *catalog, uint64_t namespace_id,
                                uint64_t collection_id)
{
    struct sf_catalog_projectors *projectors = catalog->projectors;
    struct wake_key key = {namespace_id, collection_id};
    pthread_mutex_lock(&projectors->mu);
    if (sf_map_count(projectors->wakes) < SF_CATALOG_PROJECTOR_WAKES)
        (void)sf_map_put(projectors->wakes, sf_view_bytes(&key, sizeof(key)), projectors);
    else
        projectors->wake_all = true;
    pthread_mutex_unlock(&projectors->mu);
    sf_catalog_projectors_changed(catalog);
}

/* Every active collection is due; of dropped ones only the windows. */
static enum sf_err note_all(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    return sf_sql_exec(
        conn,
        "UPDATE catalog_projector_work SET stamp = stamp + 1, stats_due = 1, index_due = 1,"
        " aggregate_due = 1, statistics_due = 1, windows_due = 1, retry_at_unix_ms = 0;"
        "INSERT INTO catalog_projector_work (" WORK_COLUMNS ")"
        " SELECT namespace_id, collection_id, 1, 1, 1, 1, 1, 1, 0 FROM collections"
        " WHERE lifecycle_state = 'ACTIVE' AND NOT EXISTS (SELECT 1 FROM catalog_projector_work w"
        " WHERE w.namespace_id = collections.namespace_id"
        " AND w.collection_id = collections.collection_id);"
        "INSERT INTO catalog_projector_work (" WORK_COLUMNS ")"
        " SELECT namespace_id, collection_id, 1, 0, 0, 0, 0, 1, 0 FROM collections"
        " WHERE lifecycle_state = 'TOMBSTONED' AND NOT EXISTS (SELECT 1 FROM"
        " catalog_projector_work w WHERE w.namespace_id = collections.namespace_id"
        " AND w.collection_id = collections.collection_id);",
        diag);
}

enum sf_err sf_catalog_projectors_rebuilt(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                          struct sf_diag *diag)
{
    (void)catalog;
    enum sf_err err = note_all(conn, diag);
    if (err != SF_OK)
        return err;
    return sf_sql_exec(conn,
                       "UPDATE collections SET approx_stats_json = NULL, index_json = NULL;"
                       "UPDATE namespaces SET approx_stats_json = NULL, index_json = NULL"
                       " WHERE EXISTS (SELECT 1 FROM collections c"
                       " WHERE c.namespace_id = namespaces.namespace_id"
                       " AND c.lifecycle_state = 'ACTIVE');",
                       diag);
}

/* ---- commands ----------------------------------------------------------------------------- */

enum sf_err sf_catalog_has_children(struct sf_sql_conn *conn, uint64_t namespace_id,
                                    struct sf_diag *diag, bool *out_has)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT 1 FROM collections WHERE namespace_id = ?1"
                                     " AND lifecycle_state = 'ACTIVE' LIMIT 1",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    err = sf_sql_step(stmt, diag, out_has);
    sf_sql_finish(stmt);
    return err;
}

/* The aggregate of a namespace without active collections. */
static enum sf_err show_zero_children(struct sf_sql_conn *conn, uint64_t namespace_id,
                                      struct sf_diag *diag)
{
    const struct sf_catalog_aggregate none = {0};
    struct sf_arena *arena = sf_arena_new(4096);
    SF_PB(ApproxStats) *stats = sf_catalog_aggregate_stats(&none, NULL, arena);
    SF_PB(IndexStatus) *index = sf_catalog_aggregate_index(&none, arena);
    SF_ASSERT(stats != NULL && index != NULL);
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn,
                                     "UPDATE namespaces SET approx_stats_json = ?2, index_json = ?3"
                                     " WHERE namespace_id = ?1",
                                     diag, &stmt);
    if (err == SF_OK) {
        sf_sql_bind_u64(stmt, 1, namespace_id);
        sf_catalog_bind_json(stmt, 2, &stats->base);
        sf_catalog_bind_json(stmt, 3, &index->base);
        err = sf_sql_run(stmt, diag, NULL);
    }
    sf_arena_destroy(arena);
    return err;
}

/* What the serving side and workers said of a collection that is dropped. Its windows stay: their
 * retention outlives the drop. */
static enum sf_err forget_collection(struct sf_sql_conn *conn, uint64_t namespace_id,
                                     uint64_t collection_id, struct sf_diag *diag)
{
    static const char *const statements[] = {
        "DELETE FROM collection_index_backlogs WHERE namespace_id = ?1 AND collection_id = ?2",
        "DELETE FROM collection_observations WHERE namespace_id = ?1 AND collection_id = ?2",
        "DELETE FROM lifecycle_transition_claims WHERE namespace_id = ?1 AND collection_id = ?2",
        ("UPDATE collection_lifecycle_windows SET window_state = 'LIVE' WHERE namespace_id = ?1"
         " AND collection_id = ?2 AND window_state = 'TRANSITIONING'"),
    };
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < SF_ARRAY_LEN(statements) && err == SF_OK; i++) {
        struct sf_sql_stmt *stmt;
        err = sf_sql_prepare(conn, statements[i], diag, &stmt);
        if (err != SF_OK)
            break;
        sf_sql_bind_u64(stmt, 1, namespace_id);
        sf_sql_bind_u64(stmt, 2, collection_id);
        err = sf_sql_run(stmt, diag, NULL);
    }
    return err;
}

static enum sf_err follow_drop(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                               uint64_t namespace_id, uint64_t collection_id, struct sf_diag *diag)
{
    bool children = false;
    enum sf_err err = forget_collection(conn, namespace_id, collection_id, diag);
    if (err == SF_OK)
        err = sf_catalog_has_children(conn, namespace_id, diag, &children);
    if (err == SF_OK && !children)
        return show_zero_children(conn, namespace_id, diag);
    if (err == SF_OK)
        err = sf_catalog_projectors_note(catalog, conn, namespace_id, collection_id,
                                         SF_CATALOG_NOTE_DESCRIPTOR, diag);
    return err;
}

enum sf_err sf_catalog_projectors_follow(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                         const SF_PB(CommandOutcomeObject) * outcome,
                                         struct sf_diag *diag)
{
    const SF_PB(CommandScope) *scope = outcome->scope;
    if (scope == NULL || scope->collection_id == 0)
        return SF_OK;
    enum sf_catalog_note note = SF_CATALOG_NOTE_CREATED;
    switch (outcome->command_kind) {
    case SF_PBE(COMMAND_KIND, PUT_COLLECTION_METADATA):
        if (outcome->collection_name_binding_revision == 0)
            return SF_OK; /* an update: nothing that lags depends on it */
        break;
    case SF_PBE(COMMAND_KIND, PUT_COLLECTION_SCHEMA):
        note = SF_CATALOG_NOTE_SCHEMA;
        break;
    case SF_PBE(COMMAND_KIND, HEAD_ADVANCE):
        note = SF_CATALOG_NOTE_CONTENT;
        break;
    case SF_PBE(COMMAND_KIND, DROP_COLLECTION):
        return follow_drop(catalog, conn, scope->namespace_id, scope->collection_id, diag);
    default:
        return SF_OK;
    }
    return sf_catalog_projectors_note(catalog, conn, scope->namespace_id, scope->collection_id,
                                      note, diag);
}

/* ---- taking ------------------------------------------------------------------------------- */

static enum sf_err write_wakes(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                               struct sf_diag *diag)
{
    const struct sf_map *wakes = arg;
    if (wakes == NULL)
        return note_all(conn, diag);
    struct sf_map_iter iter = {0};
    enum sf_err err = SF_OK;
    while (err == SF_OK && sf_map_next(wakes, &iter)) {
        struct wake_key wake;
        memcpy(&wake, iter.key.ptr, sizeof(wake));
        err = sf_catalog_projectors_note(catalog, conn, wake.namespace_id, wake.collection_id,
                                         SF_CATALOG_NOTE_CONTENT, diag);
    }
    return err;
}

/* Wakes held in memory become rows. */
static enum sf_err flush_wakes(struct sf_catalog *catalog, struct sf_diag *diag)
{
    struct sf_catalog_projectors *projectors = catalog->projectors;
    pthread_mutex_lock(&projectors->mu);
    struct sf_map *wakes = projectors->wakes;
    bool all = projectors->wake_all;
    bool any = all || sf_map_count(wakes) != 0;
    if (any) {
        projectors->wakes = sf_map_new();
        projectors->wake_all = false;
    }
    pthread_mutex_unlock(&projectors->mu);
    if (!any)
        return SF_OK;
    enum sf_err err = sf_catalog_projectors_write(catalog, write_wakes, all ? NULL : wakes, diag);
    if (err != SF_OK) { /* which ones is not remembered twice: all are looked at */
        pthread_mutex_lock(&projectors->mu);
        projectors->wake_all = true;
        pthread_mutex_unlock(&projectors->mu);
    }
    sf_map_destroy(wakes, NULL);
    sf_catalog_projectors_changed(catalog);
    return err;
}

/* What a take reads. */
struct take {
    enum sf_catalog_due due;
    int64_t now_ms;
    struct wake_key after;
    struct sf_arena *arena;
    struct sf_catalog_work *items;
    size_t count;
};

static enum sf_err read_due(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                            struct sf_diag *diag)
{
#define DUE_ROWS(column)                                                                           \
    "SELECT namespace_id, collection_id, stamp FROM catalog_projector_work WHERE " column " = 1"   \
    " AND retry_at_unix_ms <= ?1 AND (namespace_id > ?2 OR (namespace_id = ?2"                     \
    " AND collection_id > ?3)) ORDER BY namespace_id, collection_id LIMIT 64"
    static const char *const queries[SF_CATALOG_DUE_COUNT] = {
        DUE_ROWS("stats_due"), DUE_ROWS("index_due"), DUE_ROWS("aggregate_due"),
        DUE_ROWS("statistics_due"), DUE_ROWS("windows_due")};
    static_assert(SF_CATALOG_PROJECTOR_BATCH == 64, "the queries say the same");
    struct take *take = arg;
    struct sf_sql_stmt *stmt;
    (void)catalog;
    take->items = sf_arena_alloc(take->arena, SF_CATALOG_PROJECTOR_BATCH * sizeof(*take->items));
    if (take->items == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "no memory for a cycle");
    enum sf_err err = sf_sql_prepare(conn, queries[take->due], diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_i64(stmt, 1, take->now_ms);
    sf_sql_bind_u64(stmt, 2, take->after.namespace_id);
    sf_sql_bind_u64(stmt, 3, take->after.collection_id);
    bool row = true;
    while (row && err == SF_OK) {
        err = sf_sql_step(stmt, diag, &row);
        if (err != SF_OK || !row)
            break;
        take->items[take->count++] = (struct sf_catalog_work){
            sf_sql_col_u64(stmt, 0), sf_sql_col_u64(stmt, 1), sf_sql_col_u64(stmt, 2)};
    }
    sf_sql_finish(stmt);
    return err;
}

/* Notes how far a take came. */
static void took(struct sf_catalog_projectors *projectors, const struct take *take,
                 uint64_t changes)
{
    bool full = take->count == SF_CATALOG_PROJECTOR_BATCH;
    bool whole = take->after.namespace_id == 0; /* nothing lies in front of it */
    struct wake_key *after = &projectors->after[take->due];
    pthread_mutex_lock(&projectors->mu);
    projectors->asked[take->due] = projectors->asked[take->due] || !full;
    projectors->clean[take->due] = whole && !full;
    projectors->seen[take->due] = changes;
    *after = (struct wake_key){0};
    if (full) {
        const struct sf_catalog_work *last = &take->items[take->count - 1];
        *after = (struct wake_key){last->namespace_id, last->collection_id};
    }
    pthread_mutex_unlock(&projectors->mu);
}

/* Is there anything to ask for? *out_now is the time up to which deferred work is due. */
static bool worth_asking(struct sf_catalog *catalog, enum sf_catalog_due due, uint64_t changes,
                         int64_t *out_now_ms)
{
    struct sf_catalog_projectors *projectors = catalog->projectors;
    *out_now_ms = sf_clock_unix_ms(catalog->deps.clock);
    pthread_mutex_lock(&projectors->mu);
    bool retry = projectors->retry_at_ms[due] != 0 && *out_now_ms >= projectors->retry_at_ms[due];
    bool ask = !projectors->clean[due] || projectors->seen[due] != changes || retry;
    if (retry)
        projectors->retry_at_ms[due] = 0;
    bool reads_manifest = due != SF_CATALOG_DUE_INDEX && due != SF_CATALOG_DUE_AGGREGATE;
    if (!projectors->asked[due] || !reads_manifest)
        *out_now_ms = INT64_MAX; /* what another process deferred, or not for this projector */
    pthread_mutex_unlock(&projectors->mu);
    return ask;
}

enum sf_err sf_catalog_projectors_take(struct sf_catalog *catalog, enum sf_catalog_due due,
                                       struct sf_arena *arena, struct sf_diag *diag,
                                       struct sf_catalog_work **out_items, size_t *out_count)
{
    struct sf_catalog_projectors *projectors = catalog->projectors;
    struct take take = {.due = due, .arena = arena};
    *out_items = NULL;
    *out_count = 0;
    enum sf_err err = flush_wakes(catalog, diag);
    uint64_t changes = atomic_load(&projectors->changes);
    if (err != SF_OK || !worth_asking(catalog, due, changes, &take.now_ms))
        return err;
    pthread_mutex_lock(&projectors->mu);
    take.after = projectors->after[due];
    pthread_mutex_unlock(&projectors->mu);
    err = sf_catalog_projectors_read(catalog, read_due, &take, diag);
    if (err != SF_OK)
        return err;
    took(projectors, &take, changes);
    *out_items = take.items;
    *out_count = take.count;
    return SF_OK;
}

void sf_catalog_projectors_again(struct sf_catalog *catalog, enum sf_catalog_due due)
{
    struct sf_catalog_projectors *projectors = catalog->projectors;
    pthread_mutex_lock(&projectors->mu);
    projectors->clean[due] = false;
    pthread_mutex_unlock(&projectors->mu);
}

enum sf_err sf_catalog_projectors_done(struct sf_sql_conn *conn, const struct sf_catalog_work *work,
                                       enum sf_catalog_due due, struct sf_diag *diag)
{
#define CLEAR(column)                                                                              \
    "UPDATE catalog_projector_work SET " column " = 0 WHERE namespace_id = ?1"                     \
    " AND collection_id = ?2 AND stamp = ?3"
    static const char *const clears[SF_CATALOG_DUE_COUNT] = {
        CLEAR("stats_due"), CLEAR("index_due"), CLEAR("aggregate_due"), CLEAR("statistics_due"),
        CLEAR("windows_due")};
    static const char remove[] =
        "DELETE FROM catalog_projector_work WHERE namespace_id = ?1 AND collection_id = ?2"
        " AND stamp = ?3 AND stats_due = 0 AND index_due = 0 AND aggregate_due = 0"
        " AND statistics_due = 0 AND windows_due = 0";
    enum sf_err err = SF_OK;
    for (int i = 0; i < 2 && err == SF_OK; i++) {
        struct sf_sql_stmt *stmt;
        err = sf_sql_prepare(conn, i == 0 ? clears[due] : remove, diag, &stmt);
        if (err != SF_OK)
            break;
        sf_sql_bind_u64(stmt, 1, work->namespace_id);
        sf_sql_bind_u64(stmt, 2, work->collection_id);
        sf_sql_bind_u64(stmt, 3, work->stamp);
        err = sf_sql_run(stmt, diag, NULL);
    }
    return err;
}

static enum sf_err write_deferral(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                                  struct sf_diag *diag)
{
    const struct sf_catalog_work *work = arg;
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn,
                                     "UPDATE catalog_projector_work SET retry_at_unix_ms = ?4"
                                     " WHERE namespace_id = ?1 AND collection_id = ?2"
                                     " AND stamp = ?3",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, work->namespace_id);
    sf_sql_bind_u64(stmt, 2, work->collection_id);
    sf_sql_bind_u64(stmt, 3, work->stamp);
    sf_sql_bind_i64(stmt, 4, sf_clock_unix_ms(catalog->deps.clock) + SF_CATALOG_PROJECTOR_RETRY_MS);
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_catalog_projectors_defer(struct sf_catalog *catalog,
                                        const struct sf_catalog_work *work, struct sf_diag *diag)
{
    struct sf_catalog_projectors *projectors = catalog->projectors;
    struct sf_catalog_work copy = *work;
    enum sf_err err = sf_catalog_projectors_write(catalog, write_deferral, &copy, diag);
    int64_t at_ms = sf_clock_unix_ms(catalog->deps.clock) + SF_CATALOG_PROJECTOR_RETRY_MS;
    pthread_mutex_lock(&projectors->mu);
    for (int due = 0; due < SF_CATALOG_DUE_COUNT; due++) { /* the row is deferred whole */
        if (projectors->retry_at_ms[due] == 0 || projectors->retry_at_ms[due] > at_ms)
            projectors->retry_at_ms[due] = at_ms;
    }
    pthread_mutex_unlock(&projectors->mu);
    return err;
}

enum sf_err sf_catalog_projectors_refused(struct sf_catalog *catalog,
                                          const struct sf_catalog_work *work, const char *job,
                                          struct sf_diag *diag)
{
    SF_LOG(ERROR, "catalog_manifest_refused", SF_KV_U64("namespace_id", work->namespace_id),
           SF_KV_U64("collection_id", work->collection_id), SF_KV_STR("job", job),
           SF_KV_STR("reason", diag->message));
    sf_diag_init(diag);
    return sf_catalog_projectors_defer(catalog, work, diag);
}

enum sf_err sf_catalog_projectors_cycle(struct sf_catalog *catalog, enum sf_catalog_due due,
                                        sf_catalog_each_fn each, struct sf_diag *diag,
                                        uint64_t *out_done)
{
    struct sf_arena *items_arena = sf_arena_new(64 << 10);
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    struct sf_catalog_work *items = NULL;
    size_t count = 0;
    enum sf_err err = sf_catalog_projectors_take(catalog, due, items_arena, diag, &items, &count);
    enum sf_err first = SF_OK;
    struct sf_diag broken;
    for (size_t i = 0; i < count && err == SF_OK && !sf_catalog_ending(catalog); i++) {
        sf_arena_reset(arena);
        err = each(catalog, &items[i], arena, diag);
        if (err == SF_OK) {
            (*out_done)++;
        } else if (sf_catalog_own_fault(err)) {
            if (first == SF_OK) {
                first = err;
                broken = *diag;
            }
            sf_diag_init(diag);
            err = sf_catalog_projectors_defer(catalog, &items[i], diag);
        }
    }
    if (err != SF_OK) {
        sf_catalog_projectors_again(catalog, due);
    } else if (first != SF_OK) {
        err = first;
        *diag = broken;
    }
    sf_arena_destroy(arena);
    sf_arena_destroy(items_arena);
    return err;
}
