/*
 * Model: a checkpoint's rows are written back shard by shard, one transaction each; what the
 * projectors own is left out (OP-43), they publish it anew. Then come the families below: facts
 * that no record names, read again from their own objects, newer than any checkpoint. Each lists or
 * pages through its things, reads a page of objects side by side and shows it in one transaction. A
 * family is one entry of the table.
 */
#include "catalog/catalog_recover.h"
#include "catalog/catalog_statistics.h"

#include "catalog/catalog_retention.h"

#include "catalog/catalog_quota.h"

#include <stdlib.h>

#define PAGE_ROWS 256 /* objects of a page, held together */

/* ---- a checkpoint's rows ------------------------------------------------------------------ */

struct restored_shard {
    const SF_PB(CheckpointShardObject) * shard;
    unsigned tries; /* of its transaction */
};

/* Tables may share a repeated field: does the row belong to this one? */
static bool belongs(enum sf_catalog_table table, const ProtobufCMessage *row)
{
    if (table == SF_CATALOG_TABLE_NAMESPACE_NAMES)
        return ((const SF_PB(NameEpochRow) *)row)->namespace_id == 0;
    if (table == SF_CATALOG_TABLE_COLLECTION_NAMES)
        return ((const SF_PB(NameEpochRow) *)row)->namespace_id != 0;
    return true;
}

static enum sf_err restore_row(struct sf_recovery *r, struct sf_sql_conn *conn,
                               enum sf_catalog_table table, ProtobufCMessage *row, bool again)
{
    if (table == SF_CATALOG_TABLE_COLLECTIONS) {
        ((SF_PB(CollectionRow) *)row)->approx_stats = NULL;
        ((SF_PB(CollectionRow) *)row)->index = NULL;
    }
    enum sf_err err = again ? sf_catalog_rows_delete(conn, table, row, r->diag) : SF_OK;
    if (err == SF_OK && table == SF_CATALOG_TABLE_REPLAY) {
        /* what retention may have removed since stays removed */
        const SF_PB(CommandOutcomeObject) *outcome = ((const SF_PB(ReplayIndexRow) *)row)->outcome;
        bool current = true;
        if (sf_catalog_record_expired(r->catalog, outcome)) {
            sf_arena_reset(r->chunk);
            err = sf_catalog_record_current(conn, outcome, r->chunk, r->diag, &current);
        }
        if (err != SF_OK || !current)
            return err;
    }
    return err == SF_OK ? sf_catalog_rows_insert(conn, table, row, r->diag) : err;
}

static enum sf_err restore_rows(struct sf_recovery *r, struct sf_sql_conn *conn, void *arg)
{
    struct restored_shard *restored = arg;
    enum sf_err err = SF_OK;
    bool again = restored->tries++ != 0;
    for (int t = 0; t < SF_CATALOG_TABLE_COUNT && err == SF_OK; t++) {
        enum sf_catalog_table table = (enum sf_catalog_table)t;
        ProtobufCMessage **rows = NULL;
        size_t count = sf_catalog_checkpoint_rows(restored->shard, table, &rows);
        for (size_t i = 0; i < count && err == SF_OK; i++) {
            if (belongs(table, rows[i]))
                err = restore_row(r, conn, table, rows[i], again);
        }
    }
    return err == SF_ERR_EXISTS
               ? sf_diag_set(r->diag, SF_ERR_CORRUPT, "a checkpoint holds a row twice")
               : err;
}

enum sf_err sf_recovery_restore(struct sf_recovery *r)
{
    const SF_PB(CheckpointManifestObject) *manifest = r->restored->manifest;
    struct sf_arena *arena = sf_arena_new(SF_LIMIT_CHECKPOINT_ARENA_BYTES);
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < manifest->n_checkpoint_shards && err == SF_OK; i++) {
        SF_PB(CheckpointShardObject) *shard = NULL;
        sf_arena_reset(arena);
        err =
            sf_catalog_checkpoint_shard(r->catalog, r->sched, manifest, i, arena, r->diag, &shard);
        if (err == SF_ERR_CORRUPT && SF_MUTANT(ccs_checkpoint_partial)) {
            sf_diag_init(r->diag);
            err = SF_OK;
            continue;
        }
        struct restored_shard restored = {.shard = shard};
        if (err == SF_OK)
            err = sf_recovery_transaction(r, restore_rows, &restored, true);
    }
    sf_arena_destroy(arena);
    return err;
}

/* ---- name epochs -------------------------------------------------------------------------- */

/* A page of allocator objects. */
struct name_page {
    const struct sf_list_entry *entries;
    size_t count;
    bool of_namespace;
    SF_PB(NameEpochRow) * rows; /* what they say */
};

static enum sf_err show_names(struct sf_recovery *r, struct sf_sql_conn *conn, void *arg)
{
    const struct name_page *page = arg;
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < page->count && err == SF_OK; i++)
        err = sf_catalog_project_name_epoch(conn, page->rows[i].namespace_id, page->rows[i].name,
                                            page->rows[i].last_allocated_epoch, r->diag);
    return err;
}

/* Reads the page's objects: no connection is held while the store is waited for. */
static enum sf_err read_names(struct sf_recovery *r, struct name_page *page)
{
    const ProtobufCMessageDescriptor *desc =
        page->of_namespace ? &searchfabric__v1__namespace_name_epoch_object__descriptor
                           : &searchfabric__v1__collection_name_epoch_object__descriptor;
    enum sf_err err = SF_OK;
    page->rows = sf_arena_alloc(r->chunk, (page->count + 1) * sizeof(*page->rows));
    if (page->rows == NULL)
        return sf_diag_set(r->diag, SF_ERR_LIMIT, "too many names at once");
    for (size_t i = 0; i < page->count && err == SF_OK; i++) {
        ProtobufCMessage *message = NULL;
        err = sf_catalog_read(r->catalog, r->sched, page->entries[i].key, desc, false, r->chunk,
                              r->diag, &message, NULL, NULL);
        if (err != SF_OK)
            break;
        SF_PB(NameEpochRow) *row = &page->rows[i];
        if (page->of_namespace) {
            const SF_PB(NamespaceNameEpochObject) *object =
                (const SF_PB(NamespaceNameEpochObject) *)message;
            row->name = object->namespace_name;
            row->last_allocated_epoch = object->last_allocated_epoch;
        } else {
            const SF_PB(CollectionNameEpochObject) *object =
                (const SF_PB(CollectionNameEpochObject) *)message;
            row->namespace_id = object->namespace_id;
            row->name = object->collection_name;
            row->last_allocated_epoch = object->last_allocated_epoch;
        }
    }
    return err;
}

static void fetch_names(struct sf_recovery *r, const struct name_page *page)
{
    struct sf_buf *keys = sf_calloc(page->count + 1, sizeof(*keys));
    for (size_t i = 0; i < page->count; i++)
        sf_buf_append(&keys[i], page->entries[i].key.ptr, page->entries[i].key.len);
    sf_catalog_ahead_fetch(r->catalog, r->sched, keys, page->count);
    for (size_t i = 0; i < page->count; i++)
        sf_buf_fini(&keys[i]);
    free(keys);
}

/* Allocator-state rows come from the allocator objects themselves (note section 5.4). */
static enum sf_err rebuild_names(struct sf_recovery *r, const char *prefix, bool of_namespace)
{
    struct sf_buf after = {0};
    enum sf_err err = SF_OK;
    size_t count = SF_LIMIT_LIST_PAGE_ENTRIES;
    while (count == SF_LIMIT_LIST_PAGE_ENTRIES && err == SF_OK) {
        struct sf_list_entry *entries = NULL;
        sf_arena_reset(r->arena);
        err = sf_catalog_list(r->catalog, r->sched, prefix, &after, r->arena, r->diag, &entries,
                              &count);
        struct name_page page = {.entries = entries, .count = count, .of_namespace = of_namespace};
        if (err != SF_OK || count == 0)
            break;
        sf_arena_reset(r->chunk);
        fetch_names(r, &page);
        err = read_names(r, &page);
        if (err == SF_OK)
            err = sf_recovery_transaction(r, show_names, &page, true);
    }
    sf_buf_fini(&after);
    return err;
}

static enum sf_err rebuild_namespace_names(struct sf_recovery *r)
{
    return rebuild_names(r, "catalog-allocator/namespace-name/", true);
}

static enum sf_err rebuild_collection_names(struct sf_recovery *r)
{
    return rebuild_names(r, "catalog-allocator/collection-name/", false);
}

/* ---- convergence -------------------------------------------------------------------------- */

/* Rows of generations with the convergence blocks that stand, NULL where nothing changed. */
struct convergence_page {
    struct sf_catalog_batch rows;
    const SF_PB(SchemaConvergence) * *blocks;
};

static enum sf_err show_convergence(struct sf_recovery *r, struct sf_sql_conn *conn, void *arg)
{
    const struct convergence_page *page = arg;
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < page->rows.count && err == SF_OK; i++) {
        const SF_PB(SchemaGenerationBody) *body =
            ((const SF_PB(SchemaGenerationRow) *)page->rows.rows[i])->body;
        if (page->blocks[i] != NULL)
            err = sf_catalog_project_convergence(conn, body->collection->namespace_id,
                                                 body->collection->collection_id,
                                                 body->schema_version, page->blocks[i], r->diag);
    }
    return err;
}

/* Is this the collection's active generation? Its object must stand. */
static enum sf_err is_active(struct sf_recovery *r, const SF_PB(SchemaGenerationBody) * body,
                             bool *out_active)
{
    SF_PB(CollectionRow) *row = NULL;
    struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_READ);
    enum sf_err err =
        sf_catalog_sql_collection(conn, body->collection->namespace_id,
                                  body->collection->collection_id, r->chunk, r->diag, &row);
    sf_sql_release(conn);
    *out_active = err == SF_OK && row != NULL && row->active_schema_version == body->schema_version;
    return err;
}

/* Reads the blocks of a page of rows. */
static enum sf_err read_blocks(struct sf_recovery *r, struct convergence_page *page)
{
    struct sf_buf keys[PAGE_ROWS] = {0};
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < page->rows.count; i++) {
        const SF_PB(SchemaGenerationBody) *body =
            ((const SF_PB(SchemaGenerationRow) *)page->rows.rows[i])->body;
        sf_catalog_key_generation(&keys[i], body->collection->namespace_id,
                                  body->collection->collection_id, body->schema_version,
                                  body->schema_generation_token);
    }
    sf_catalog_ahead_fetch(r->catalog, r->sched, keys, page->rows.count);
    for (size_t i = 0; i < page->rows.count && err == SF_OK; i++) {
        const SF_PB(SchemaGenerationRow) *row =
            (const SF_PB(SchemaGenerationRow) *)page->rows.rows[i];
        ProtobufCMessage *message = NULL;
        err = sf_catalog_read(r->catalog, r->sched, sf_buf_view(&keys[i]),
                              &searchfabric__v1__schema_generation_object__descriptor, false,
                              r->chunk, r->diag, &message, NULL, NULL);
        if (err == SF_ERR_NOT_FOUND) { /* superseded ones may have been collected */
            bool active = false;
            err = is_active(r, row->body, &active);
            if (err == SF_OK && active)
                err = sf_diag_set(r->diag, SF_ERR_CORRUPT, "committed object %.*s is gone",
                                  (int)keys[i].len, (const char *)keys[i].data);
            continue;
        }
        const SF_PB(SchemaConvergence) *block =
            err == SF_OK ? ((const SF_PB(SchemaGenerationObject) *)message)->convergence : NULL;
        if (block != NULL && block->state != NULL &&
            !sf_catalog_same(&block->state->base, &row->convergence->state->base))
            page->blocks[i] = block;
    }
    for (size_t i = 0; i < page->rows.count; i++)
        sf_buf_fini(&keys[i]);
    return err;
}

/* Convergence blocks move without a record: a checkpoint's state may be old. Without a checkpoint
 * the walk read them with their generations. */
static enum sf_err rebuild_convergence(struct sf_recovery *r)
{
    struct sf_catalog_cursor cursor = {0};
    enum sf_err err = SF_OK;
    while (r->restored != NULL && err == SF_OK && !cursor.ended) {
        struct convergence_page page = {0};
        sf_arena_reset(r->arena);
        sf_arena_reset(r->chunk);
        struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_READ);
        err = sf_catalog_rows_read(conn, SF_CATALOG_TABLE_GENERATIONS, &cursor, PAGE_ROWS,
                                   SF_LIMIT_CHECKPOINT_SHARD_BYTES, r->arena, r->diag, &page.rows);
        sf_sql_release(conn);
        page.blocks = sf_arena_alloc(r->arena, (PAGE_ROWS + 1) * sizeof(*page.blocks));
        if (err == SF_OK && page.blocks == NULL)
            err = sf_diag_set(r->diag, SF_ERR_LIMIT, "too many rows at once");
        if (err == SF_OK)
            err = read_blocks(r, &page);
        if (err == SF_OK && page.rows.count != 0)
            err = sf_recovery_transaction(r, show_convergence, &page, true);
    }
    sf_catalog_cursor_fini(&cursor);
    return err;
}

/* ---- statistics --------------------------------------------------------------------------- */

/* Collections of a page with the snapshots that their heads name. */
struct statistics_page {
    const SF_PB(CollectionRef) * refs;
    size_t count;
    const SF_PB(SchemaGenerationRow) * ready[PAGE_ROWS];           /* serving generation or NULL */
    const SF_PB(OptimizerStatisticsHeadObject) * heads[PAGE_ROWS]; /* or NULL */
    ProtobufCMessage *snapshots[PAGE_ROWS];                        /* to show, or NULL */
};

static enum sf_err show_statistics(struct sf_recovery *r, struct sf_sql_conn *conn, void *arg)
{
    const struct statistics_page *page = arg;
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < page->count && err == SF_OK; i++) {
        if (page->snapshots[i] != NULL)
            err = sf_catalog_project_statistics(
                conn, (const SF_PB(OptimizerStatisticsSnapshotObject) *)page->snapshots[i],
                r->diag);
    }
    return err;
}

static enum sf_err read_ready(struct sf_recovery *r, struct statistics_page *page)
{
    struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_READ);
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < page->count && err == SF_OK; i++) {
        SF_PB(SchemaGenerationRow) *row = NULL;
        err = sf_catalog_sql_generation(conn, page->refs[i].namespace_id,
                                        page->refs[i].collection_id, SF_CATALOG_GENERATION_READY, 0,
                                        NULL, r->chunk, r->diag, &row);
        page->ready[i] = row;
    }
    sf_sql_release(conn);
    return err;
}

static enum sf_err read_heads(struct sf_recovery *r, struct statistics_page *page)
{
    struct sf_buf keys[PAGE_ROWS] = {0};
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < page->count; i++)
        sf_catalog_key_statistics_head(&keys[i], page->refs[i].namespace_id,
                                       page->refs[i].collection_id);
    sf_catalog_ahead_fetch(r->catalog, r->sched, keys, page->count);
    for (size_t i = 0; i < page->count && err == SF_OK; i++) {
        ProtobufCMessage *message = NULL;
        err = sf_catalog_read(r->catalog, r->sched, sf_buf_view(&keys[i]),
                              &searchfabric__v1__optimizer_statistics_head_object__descriptor,
                              false, r->chunk, r->diag, &message, NULL, NULL);
        err = err == SF_ERR_NOT_FOUND ? SF_OK : err;
        page->heads[i] = (const SF_PB(OptimizerStatisticsHeadObject) *)message;
    }
    for (size_t i = 0; i < page->count; i++)
        sf_buf_fini(&keys[i]);
    return err;
}

/* Is the head of the serving generation? Without one there is nothing to serve. */
static bool head_serves(const struct statistics_page *page, size_t i)
{
    return page->heads[i] != NULL &&
           (page->ready[i] == NULL || strcmp(page->heads[i]->latest_applied_schema_generation_token,
                                             page->ready[i]->body->schema_generation_token) == 0);
}

static void snapshot_key(const struct statistics_page *page, size_t i, struct sf_buf *out)
{
    sf_catalog_key_statistics(out, page->refs[i].namespace_id, page->refs[i].collection_id,
                              page->heads[i]->latest_applied_schema_generation_token,
                              page->heads[i]->latest_stats_commit_ts);
}

/* The snapshot that a head names; the base again where the head is not of the serving generation
 * (OP-41). */
static enum sf_err read_snapshot(struct sf_recovery *r, struct statistics_page *page, size_t i)
{
    struct sf_catalog *catalog = r->catalog;
    struct sf_buf key = {0};
    enum sf_err err = SF_OK;
    if (head_serves(page, i)) {
        snapshot_key(page, i, &key);
        err = sf_catalog_read(catalog, r->sched, sf_buf_view(&key),
                              &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor,
                              false, r->chunk, r->diag, &page->snapshots[i], NULL, NULL);
        if (err == SF_ERR_NOT_FOUND)
            err = sf_diag_set(r->diag, SF_ERR_CORRUPT, "a statistics head names no snapshot");
    } else if (page->ready[i] != NULL) {
        SF_PB(OptimizerStatisticsSnapshotObject) *base = NULL;
        err = sf_catalog_statistics_base(catalog, r->sched, page->ready[i]->body, r->chunk, r->diag,
                                         &base);
        if (err == SF_OK)
            err = sf_catalog_statistics_point(catalog, r->sched, base, r->chunk, r->diag);
        page->snapshots[i] = (ProtobufCMessage *)base;
    }
    sf_buf_fini(&key);
    return err;
}

static enum sf_err read_snapshots(struct sf_recovery *r, struct statistics_page *page)
{
    struct sf_buf keys[PAGE_ROWS] = {0};
    enum sf_err err = SF_OK;
    size_t n = 0;
    for (size_t i = 0; i < page->count; i++) {
        if (head_serves(page, i))
            snapshot_key(page, i, &keys[n++]);
    }
    sf_catalog_ahead_fetch(r->catalog, r->sched, keys, n);
    for (size_t i = 0; i < page->count && err == SF_OK; i++)
        err = read_snapshot(r, page, i);
    for (size_t i = 0; i < n; i++)
        sf_buf_fini(&keys[i]);
    return err;
}

static enum sf_err rebuild_statistics(struct sf_recovery *r)
{
    SF_PB(CollectionRef) *refs = NULL;
    size_t count = 0;
    struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_READ);
    enum sf_err err = sf_catalog_sql_schema_collections(conn, r->diag, &refs, &count);
    sf_sql_release(conn);
    for (size_t i = 0; i < count && err == SF_OK; i += PAGE_ROWS) {
        struct statistics_page page = {.refs = refs + i};
        page.count = count - i < PAGE_ROWS ? count - i : PAGE_ROWS;
        sf_arena_reset(r->chunk);
        err = read_ready(r, &page);
        if (err == SF_OK)
            err = read_heads(r, &page);
        if (err == SF_OK)
            err = read_snapshots(r, &page);
        if (err == SF_OK)
            err = sf_recovery_transaction(r, show_statistics, &page, true);
    }
    free(refs);
    return err;
}

/* Quota states and fresh epochs, so that leases of before end. */
static enum sf_err rebuild_quota(struct sf_recovery *r)
{
    return sf_catalog_quota_rebuild(r->catalog, r->sched, r->diag);
}

/* ---- the families ------------------------------------------------------------------------- */

/* What a rebuild adds after rows and segments, in this order. */
static const struct family {
    const char *name;
    enum sf_err (*rebuild)(struct sf_recovery *r);
} families[] = {
    {"namespace_name_epochs", rebuild_namespace_names},
    {"collection_name_epochs", rebuild_collection_names},
    {"schema_convergence", rebuild_convergence},
    {"statistics", rebuild_statistics},
    {"namespace_quota_state", rebuild_quota},
};

enum sf_err sf_recovery_families(struct sf_recovery *r)
{
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < SF_ARRAY_LEN(families) && err == SF_OK; i++) {
        err = families[i].rebuild(r);
        if (err != SF_OK)
            sf_diag_wrap(r->diag, "rebuilding %s", families[i].name);
    }
    return err;
}
