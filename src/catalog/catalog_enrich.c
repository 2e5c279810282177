/*
 * Model: the lagging descriptor fields. A collection's approx_stats are the totals of its committed
 * manifest (nothing committed: zeros), its index follows from the active generation's state and the
 * backlog that the serving side reported, a namespace's fields are sums over its active
 * collections. Each projector reads what it derives from first and shows it in one transaction of
 * its own, in which it looks at the owner epoch and at the row again. Only the two columns change:
 * revisions, objects and updated_at are the commands' (OP-43).
 */
#include "catalog/catalog_job.h"
#include "catalog/catalog_manifest.h"
#include "catalog/catalog_projector.h"
#include "catalog/catalog_rules.h"

#include <stdio.h>

#include "base/pbjson.h"

/* ---- rules -------------------------------------------------------------------------------- */

static SF_PB(IndexStatus) * updating(uint64_t unindexed_bytes, struct sf_arena *arena)
{
    SF_PB(IndexStatus) *index = sf_arena_alloc(arena, sizeof(*index));
    SF_PB(IndexUpdating) *state = sf_arena_alloc(arena, sizeof(*state));
    if (index == NULL || state == NULL)
        return NULL;
    searchfabric__v1__index_status__init(index);
    searchfabric__v1__index_updating__init(state);
    state->unindexed_bytes = unindexed_bytes;
    index->state_case = SEARCHFABRIC__V1__INDEX_STATUS__STATE_UPDATING;
    index->updating = state;
    return index;
}

static SF_PB(IndexStatus) * up_to_date(struct sf_arena *arena)
{
    SF_PB(IndexStatus) *index = sf_arena_alloc(arena, sizeof(*index));
    SF_PB(IndexUpToDate) *state = sf_arena_alloc(arena, sizeof(*state));
    if (index == NULL || state == NULL)
        return NULL;
    searchfabric__v1__index_status__init(index);
    searchfabric__v1__index_up_to_date__init(state);
    index->state_case = SEARCHFABRIC__V1__INDEX_STATUS__STATE_UP_TO_DATE;
    index->up_to_date = state;
    return index;
}

static SF_PB(ApproxStats) * stats_of(uint64_t rows, uint64_t bytes, struct sf_arena *arena)
{
    SF_PB(ApproxStats) *stats = sf_arena_alloc(arena, sizeof(*stats));
    if (stats == NULL)
        return NULL;
    searchfabric__v1__approx_stats__init(stats);
    stats->approx_row_count = rows;
    stats->approx_logical_bytes = bytes;
    return stats;
}

SF_PB(IndexStatus) * sf_catalog_index_of(const SF_PB(SchemaGenerationRow) * active,
                                         const struct sf_catalog_backlog *backlog,
                                         struct sf_arena *arena)
{
    if (active == NULL || !backlog->present)
        return NULL;
    const SF_PB(SchemaSyncState) *state =
        active->convergence == NULL ? NULL : active->convergence->state;
    bool ready =
        state != NULL && state->state_case == SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY;
    bool own = strcmp(active->body->schema_generation_token, backlog->token) == 0;
    if (ready && own && backlog->unindexed_bytes == 0)
        return up_to_date(arena);
    return updating(backlog->unindexed_bytes, arena);
}

static void add_to(uint64_t *sum, uint64_t value)
{
    *sum = value > UINT64_MAX - *sum ? UINT64_MAX : *sum + value;
}

void sf_catalog_aggregate_add(struct sf_catalog_aggregate *aggregate,
                              const SF_PB(ApproxStats) * stats, const SF_PB(IndexStatus) * index)
{
    aggregate->children++;
    if (stats != NULL) {
        add_to(&aggregate->approx_row_count, stats->approx_row_count);
        add_to(&aggregate->approx_logical_bytes, stats->approx_logical_bytes);
    } else {
        aggregate->without_stats++;
    }
    if (index == NULL || index->state_case != SEARCHFABRIC__V1__INDEX_STATUS__STATE_UP_TO_DATE)
        aggregate->behind++;
    if (index != NULL && index->state_case == SEARCHFABRIC__V1__INDEX_STATUS__STATE_UPDATING)
        add_to(&aggregate->unindexed_bytes, index->updating->unindexed_bytes);
}

SF_PB(ApproxStats) * sf_catalog_aggregate_stats(const struct sf_catalog_aggregate *aggregate,
                                                SF_PB(ApproxStats) * before, struct sf_arena *arena)
{
    if (before == NULL && aggregate->without_stats != 0)
        return NULL;
    return stats_of(aggregate->approx_row_count, aggregate->approx_logical_bytes, arena);
}

SF_PB(IndexStatus) *
    sf_catalog_aggregate_index(const struct sf_catalog_aggregate *aggregate, struct sf_arena *arena)
{
    return aggregate->behind == 0 ? up_to_date(arena) : updating(aggregate->unindexed_bytes, arena);
}

/* ---- columns ------------------------------------------------------------------------------ */

/* A collection's lagging field that is about to be shown. */
struct field {
    const struct sf_catalog_work *work;
    enum sf_catalog_due due;
    const char *update;              /* sets the column */
    const ProtobufCMessage *value;   /* NULL = stays as it is */
    const ProtobufCMessage *current; /* of the row, in the same transaction */
    bool changed;                    /* the row was written */
};

/* Writes the field where it changed, clears the work, makes the namespace's aggregate due. */
static enum sf_err show_field(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                              struct field *field, struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    field->changed = field->value != NULL && !sf_catalog_same(field->value, field->current);
    enum sf_err err = SF_OK;
    if (field->changed)
        err = sf_sql_prepare(conn, field->update, diag, &stmt);
    if (err == SF_OK && field->changed) {
        sf_sql_bind_u64(stmt, 1, field->work->namespace_id);
        sf_sql_bind_u64(stmt, 2, field->work->collection_id);
        sf_catalog_bind_json(stmt, 3, field->value);
        err = sf_sql_run(stmt, diag, NULL);
    }
    if (err == SF_OK)
        err = sf_catalog_projectors_done(conn, field->work, field->due, diag);
    if (err == SF_OK && field->changed)
        err = sf_catalog_projectors_note(catalog, conn, field->work->namespace_id,
                                         field->work->collection_id, SF_CATALOG_NOTE_DESCRIPTOR,
                                         diag);
    return err;
}

/* After the commit of a changed field. */
static void tell_changed(struct sf_catalog *catalog, uint64_t namespace_id, uint64_t collection_id)
{
    sf_catalog_state_descriptor(catalog, namespace_id, collection_id);
    sf_catalog_projectors_changed(catalog);
}

static bool is_active(const SF_PB(CollectionRow) * row)
{
    return row != NULL && row->lifecycle_state == SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE);
}

/* ---- approx_stats ------------------------------------------------------------------------- */

struct stats_rows {
    const struct sf_catalog_work *work;
    SF_PB(ApproxStats) * stats;
    struct sf_arena *arena;
    bool changed;
};

static enum sf_err show_stats(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                              struct sf_diag *diag)
{
    struct stats_rows *rows = arg;
    SF_PB(CollectionRow) *row = NULL;
    enum sf_err err = sf_catalog_sql_collection(conn, rows->work->namespace_id,
                                                rows->work->collection_id, rows->arena, diag, &row);
    if (err != SF_OK)
        return err;
    struct field field = {
        .work = rows->work,
        .due = SF_CATALOG_DUE_STATS,
        .update = "UPDATE collections SET approx_stats_json = ?3"
                  " WHERE namespace_id = ?1 AND collection_id = ?2",
        .value = is_active(row) ? &rows->stats->base : NULL,
        .current = row == NULL || row->approx_stats == NULL ? NULL : &row->approx_stats->base};
    err = show_field(catalog, conn, &field, diag);
    rows->changed = field.changed;
    return err;
}

static enum sf_err project_stats(struct sf_catalog *catalog, const struct sf_catalog_work *work,
                                 struct sf_arena *arena, struct sf_diag *diag)
{
    SF_PB(CollectionRef) ref;
    searchfabric__v1__collection_ref__init(&ref);
    ref.namespace_id = work->namespace_id;
    ref.collection_id = work->collection_id;
    struct sf_catalog_manifest manifest;
    enum sf_err err =
        sf_catalog_manifest_read(catalog, catalog->deps.sched, &ref, false, arena, diag, &manifest);
    if (err == SF_ERR_CORRUPT)
        return sf_catalog_projectors_refused(catalog, work, "collection-stats", diag);
    if (err != SF_OK)
        return err;
    struct stats_rows rows = {.work = work, .arena = arena};
    rows.stats =
        stats_of(manifest.object == NULL ? 0 : manifest.object->total_rows,
                 manifest.object == NULL ? 0 : manifest.object->total_logical_bytes, arena);
    if (rows.stats == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "no memory for a cycle");
    err = sf_catalog_projectors_write(catalog, show_stats, &rows, diag);
    if (err == SF_OK && rows.changed)
        tell_changed(catalog, work->namespace_id, work->collection_id);
    return err;
}

enum sf_err sf_catalog_run_stats(struct sf_catalog *catalog, struct sf_sched *sched,
                                 struct sf_diag *diag, uint64_t *out_done)
{
    (void)sched;
    return sf_catalog_projectors_cycle(catalog, SF_CATALOG_DUE_STATS, project_stats, diag,
                                       out_done);
}

/* ---- index -------------------------------------------------------------------------------- */

enum sf_err sf_catalog_sql_backlog(struct sf_sql_conn *conn, uint64_t namespace_id,
                                   uint64_t collection_id, struct sf_diag *diag,
                                   struct sf_catalog_backlog *out_backlog)
{
    struct sf_sql_stmt *stmt;
    bool row = false;
    *out_backlog = (struct sf_catalog_backlog){0};
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT schema_generation_token, unindexed_bytes"
                                     " FROM collection_index_backlogs"
                                     " WHERE namespace_id = ?1 AND collection_id = ?2",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    sf_sql_bind_u64(stmt, 2, collection_id);
    err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row) {
        struct sf_view token = sf_sql_col_text(stmt, 0);
        out_backlog->present = true;
        snprintf(out_backlog->token, sizeof(out_backlog->token), "%.*s", (int)token.len,
                 (const char *)token.ptr);
        out_backlog->unindexed_bytes = sf_sql_col_u64(stmt, 1);
    }
    sf_sql_finish(stmt);
    return err;
}

struct index_rows {
    const struct sf_catalog_work *work;
    struct sf_arena *arena;
    bool changed;
};

static enum sf_err show_index(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                              struct sf_diag *diag)
{
    struct index_rows *rows = arg;
    uint64_t namespace_id = rows->work->namespace_id;
    uint64_t collection_id = rows->work->collection_id;
    SF_PB(CollectionRow) *row = NULL;
    SF_PB(SchemaGenerationRow) *active = NULL;
    struct sf_catalog_backlog backlog = {0};
    enum sf_err err =
        sf_catalog_sql_collection(conn, namespace_id, collection_id, rows->arena, diag, &row);
    bool known = err == SF_OK && is_active(row);
    if (known && row->_active_schema_version_case != 0)
        err = sf_catalog_sql_generation(conn, namespace_id, collection_id,
                                        SF_CATALOG_GENERATION_VERSION, row->active_schema_version,
                                        NULL, rows->arena, diag, &active);
    if (err == SF_OK)
        err = sf_catalog_sql_backlog(conn, namespace_id, collection_id, diag, &backlog);
    if (err != SF_OK)
        return err;
    SF_PB(IndexStatus) *index = known ? sf_catalog_index_of(active, &backlog, rows->arena) : NULL;
    if (sf_arena_overflowed(rows->arena))
        return sf_diag_set(diag, SF_ERR_LIMIT, "no memory for a cycle");
    struct field field = {.work = rows->work,
                          .due = SF_CATALOG_DUE_INDEX,
                          .update = "UPDATE collections SET index_json = ?3"
                                    " WHERE namespace_id = ?1 AND collection_id = ?2",
                          .value = index == NULL ? NULL : &index->base,
                          .current = row == NULL || row->index == NULL ? NULL : &row->index->base};
    err = show_field(catalog, conn, &field, diag);
    rows->changed = field.changed;
    return err;
}

static enum sf_err project_index(struct sf_catalog *catalog, const struct sf_catalog_work *work,
                                 struct sf_arena *arena, struct sf_diag *diag)
{
    struct index_rows rows = {.work = work, .arena = arena};
    enum sf_err err = sf_catalog_projectors_write(catalog, show_index, &rows, diag);
    if (err == SF_OK && rows.changed)
        tell_changed(catalog, work->namespace_id, work->collection_id);
    return err;
}

enum sf_err sf_catalog_run_index(struct sf_catalog *catalog, struct sf_sched *sched,
                                 struct sf_diag *diag, uint64_t *out_done)
{
    (void)sched;
    return sf_catalog_projectors_cycle(catalog, SF_CATALOG_DUE_INDEX, project_index, diag,
                                       out_done);
}

/* ---- namespaces --------------------------------------------------------------------------- */

/* One namespace of a cycle: its due collections are the items [first, first + count). */
struct namespace_rows {
    const struct sf_catalog_work *items;
    size_t count;
    struct sf_arena *arena;
    struct sf_catalog_aggregate aggregate; /* of a snapshot */
    bool changed;
};

/* A JSON column as a message. */
static enum sf_err column(struct sf_sql_stmt *stmt, int index,
                          const ProtobufCMessageDescriptor *desc, struct sf_arena *arena,
                          struct sf_diag *diag, ProtobufCMessage **out)
{
    *out = NULL;
    if (sf_sql_col_is_null(stmt, index))
        return SF_OK;
    enum sf_err err = sf_pbjson_decode(desc, sf_sql_col_text(stmt, index), arena, diag, out);
    return err == SF_OK ? SF_OK : sf_diag_set(diag, SF_ERR_CORRUPT, "a projected row is broken");
}

static enum sf_err sum_children(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                                struct sf_diag *diag)
{
    struct namespace_rows *rows = arg;
    struct sf_sql_stmt *stmt;
    (void)catalog;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT approx_stats_json, index_json FROM collections"
                                     " WHERE namespace_id = ?1 AND lifecycle_state = 'ACTIVE'",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, rows->items[0].namespace_id);
    bool row = true;
    while (row && err == SF_OK) {
        err = sf_sql_step(stmt, diag, &row);
        if (err != SF_OK || !row)
            break;
        ProtobufCMessage *stats = NULL, *index = NULL;
        sf_arena_reset(rows->arena);
        err =
            column(stmt, 0, &searchfabric__v1__approx_stats__descriptor, rows->arena, diag, &stats);
        if (err == SF_OK)
            err = column(stmt, 1, &searchfabric__v1__index_status__descriptor, rows->arena, diag,
                         &index);
        if (err == SF_OK)
            sf_catalog_aggregate_add(&rows->aggregate, (SF_PB(ApproxStats) *)stats,
                                     (SF_PB(IndexStatus) *)index);
    }
    sf_sql_finish(stmt);
    return err;
}

static enum sf_err update_namespace(struct sf_sql_conn *conn, uint64_t namespace_id,
                                    const SF_PB(ApproxStats) * stats,
                                    const SF_PB(IndexStatus) * index, struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn,
                                     "UPDATE namespaces SET approx_stats_json = ?2, index_json = ?3"
                                     " WHERE namespace_id = ?1",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    sf_catalog_bind_json(stmt, 2, stats == NULL ? NULL : &stats->base);
    sf_catalog_bind_json(stmt, 3, &index->base);
    return sf_sql_run(stmt, diag, NULL);
}

static enum sf_err show_aggregate(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                                  struct sf_diag *diag)
{
    struct namespace_rows *rows = arg;
    uint64_t namespace_id = rows->items[0].namespace_id;
    SF_PB(NamespaceRow) *row = NULL;
    bool children = false;
    (void)catalog;
    enum sf_err err = sf_catalog_sql_namespace(conn, namespace_id, rows->arena, diag, &row);
    if (err == SF_OK)
        err = sf_catalog_has_children(conn, namespace_id, diag, &children);
    /* the drop of the last child showed the zero aggregate itself: an older sum must not follow */
    if (err == SF_OK && row != NULL && children == (rows->aggregate.children != 0)) {
        SF_PB(ApproxStats) *stats =
            sf_catalog_aggregate_stats(&rows->aggregate, row->approx_stats, rows->arena);
        SF_PB(IndexStatus) *index = sf_catalog_aggregate_index(&rows->aggregate, rows->arena);
        if (index == NULL || sf_arena_overflowed(rows->arena))
            return sf_diag_set(diag, SF_ERR_LIMIT, "no memory for a cycle");
        rows->changed =
            !sf_catalog_same(&index->base, row->index == NULL ? NULL : &row->index->base) ||
            !sf_catalog_same(stats == NULL ? NULL : &stats->base,
                             row->approx_stats == NULL ? NULL : &row->approx_stats->base);
        if (rows->changed)
            err = update_namespace(conn, namespace_id, stats, index, diag);
    }
    for (size_t i = 0; i < rows->count && err == SF_OK; i++)
        err = sf_catalog_projectors_done(conn, &rows->items[i], SF_CATALOG_DUE_AGGREGATE, diag);
    return err;
}

/* One namespace. */
static enum sf_err project_aggregate(struct sf_catalog *catalog, struct namespace_rows *rows,
                                     struct sf_diag *diag)
{
    sf_arena_reset(rows->arena);
    enum sf_err err = sf_catalog_projectors_read(catalog, sum_children, rows, diag);
    if (err == SF_OK)
        err = sf_catalog_projectors_write(catalog, show_aggregate, rows, diag);
    if (err == SF_OK && rows->changed)
        sf_catalog_state_descriptor(catalog, rows->items[0].namespace_id, 0);
    return err;
}

enum sf_err sf_catalog_run_aggregate(struct sf_catalog *catalog, struct sf_sched *sched,
                                     struct sf_diag *diag, uint64_t *out_done)
{
    struct sf_arena *items_arena = sf_arena_new(64 << 10);
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    struct sf_catalog_work *items = NULL;
    size_t count = 0;
    (void)sched;
    enum sf_err err = sf_catalog_projectors_take(catalog, SF_CATALOG_DUE_AGGREGATE, items_arena,
                                                 diag, &items, &count);
    enum sf_err failed = SF_OK;
    struct sf_diag broken;
    for (size_t first = 0, next = 0; first < count && err == SF_OK; first = next) {
        while (next < count && items[next].namespace_id == items[first].namespace_id)
            next++;
        struct namespace_rows rows = {
            .items = &items[first], .count = next - first, .arena = arena};
        err = project_aggregate(catalog, &rows, diag);
        if (err == SF_OK) {
            (*out_done)++;
        } else if (sf_catalog_own_fault(err)) {
            failed = failed == SF_OK ? err : failed;
            broken = *diag;
            sf_diag_init(diag);
            err = SF_OK;
        }
    }
    if (err != SF_OK) {
        sf_catalog_projectors_again(catalog, SF_CATALOG_DUE_AGGREGATE);
    } else if (failed != SF_OK) {
        err = failed;
        *diag = broken;
    }
    sf_arena_destroy(arena);
    sf_arena_destroy(items_arena);
    return err;
}
