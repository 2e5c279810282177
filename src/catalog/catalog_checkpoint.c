/*
 * Model: a checkpoint is cut from one snapshot of the projection. First the watermark is raised to
 * the last settled slot; the bound is the lowest watermark inside the snapshot, so every entry up
 * to the bound is settled and its rows are in the snapshot; rows of later entries may be in it too
 * and are met again by a recovery. Rows stream table by table in key order; a shard is closed at a
 * number of rows or bytes, so memory does not grow with the catalog and the number of shards
 * follows it. Writers go on meanwhile.
 *
 * The epoch is the next after the newest found; all objects are create-only, shard 0 decides a race
 * of two cutters. Before the manifest is put and before old checkpoints go, the chain is looked at:
 * an owner that was taken over from stops. Should its manifest come late all the same, its bound is
 * lower and recovery prefers the higher bound.
 */
#include "catalog/catalog_checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CUT_TRIES 3

void sf_catalog_key_checkpoint(struct sf_buf *out, uint64_t epoch)
{
    sf_buf_printf(out, SF_CATALOG_CHECKPOINT_PREFIX "checkpoint_%020" PRIu64 ".manifest.json",
                  epoch);
}

void sf_catalog_key_checkpoint_shard(struct sf_buf *out, uint32_t shard, uint64_t epoch)
{
    sf_buf_printf(out, SF_CATALOG_CHECKPOINT_PREFIX "shard=%u/checkpoint_%020" PRIu64 ".json.zst",
                  shard, epoch);
}

/* ---- guards ------------------------------------------------------------------------------- */

enum sf_err sf_catalog_watermark_raise(struct sf_catalog *catalog, struct sf_sched *sched,
                                       struct sf_diag *diag)
{
    uint64_t settled = atomic_load(&catalog->settled);
    if (settled <= atomic_load(&catalog->watermark))
        return SF_OK;
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, sched, SF_SQL_WRITE);
    enum sf_err err = sf_sql_begin(conn, diag);
    if (err == SF_OK)
        err = sf_catalog_project_watermark(catalog, conn, settled, diag);
    if (err == SF_OK)
        err = sf_sql_commit(conn, diag);
    sf_sql_release(conn);
    if (err == SF_OK)
        sf_catalog_watermark_note(catalog, settled);
    return err;
}

/* Looks at one segment beyond what this owner knows. */
static enum sf_err check_segment(struct sf_catalog *catalog, struct sf_sched *sched,
                                 struct sf_view key, uint64_t slot, struct sf_diag *diag)
{
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    ProtobufCMessage *message = NULL;
    enum sf_err err =
        sf_catalog_read(catalog, sched, key, &searchfabric__v1__recovery_segment_object__descriptor,
                        true, arena, diag, &message, NULL, NULL);
    if (err == SF_OK && ((const SF_PB(RecoverySegmentObject) *)message)->takeover != NULL) {
        sf_catalog_depose(catalog, "segment", slot);
        err = sf_diag_set(diag, SF_ERR_DEPOSED, "a newer owner took the catalog over");
    }
    sf_arena_destroy(arena);
    return err;
}

enum sf_err sf_catalog_owner_check(struct sf_catalog *catalog, struct sf_sched *sched,
                                   struct sf_diag *diag)
{
    if (atomic_load(&catalog->deposed))
        return sf_diag_set(diag, SF_ERR_DEPOSED, "a newer owner took the catalog over");
    if (catalog->deps.store->exclusive)
        return SF_OK;
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    struct sf_buf after = {0};
    sf_catalog_key_segment(&after, atomic_load(&catalog->newest_segment));
    enum sf_err err =
        sf_store_list_wait(catalog->deps.store, sched, sf_view_str(SF_CATALOG_SEGMENT_PREFIX),
                           sf_buf_view(&after), 16, arena, &entries, &count);
    if (err != SF_OK)
        sf_diag_set(diag, err, "cannot list the segments");
    for (size_t i = 0; i < count && err == SF_OK; i++) {
        uint64_t slot = 0;
        if (sf_catalog_segment_of_key(entries[i].key, &slot))
            err = check_segment(catalog, sched, entries[i].key, slot, diag);
    }
    sf_buf_fini(&after);
    sf_arena_destroy(arena);
    return err;
}

/* ---- one cut ------------------------------------------------------------------------------ */

/* Rows of one repeated field. */
struct row_list {
    ProtobufCMessage **items;
    size_t count, capacity;
};

struct cut {
    struct sf_catalog *catalog;
    struct sf_sched *sched;
    struct sf_diag *diag;
    struct sf_arena *rows;  /* of the shard at hand */
    struct sf_arena *arena; /* of the manifest */
    SF_PB(CheckpointManifestObject) * manifest;
    struct row_list lists[SF_CATALOG_TABLE_COUNT]; /* of the shard at hand */
    struct row_list pointers;                      /* manifest pointers of its collections */
    size_t shard_rows, shard_bytes;                /* in it */
    size_t ref_capacity;                           /* of the manifest's list */
};

static void list_add(struct row_list *list, ProtobufCMessage *row)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity == 0 ? 256 : list->capacity * 2;
        list->items = sf_realloc(list->items, list->capacity * sizeof(*list->items));
    }
    list->items[list->count++] = row;
}

/* The list that a table's rows go to: tables may share a field. */
static struct row_list *list_of(struct cut *cut, enum sf_catalog_table table)
{
    size_t first = 0;
    while (strcmp(sf_catalog_table_field((enum sf_catalog_table)first),
                  sf_catalog_table_field(table)) != 0)
        first++;
    return &cut->lists[first];
}

/* Points a repeated field of the shard object at a list. */
static void set_rows(SF_PB(CheckpointShardObject) * shard, const char *field,
                     const struct row_list *list)
{
    const ProtobufCFieldDescriptor *desc = protobuf_c_message_descriptor_get_field_by_name(
        &searchfabric__v1__checkpoint_shard_object__descriptor, field);
    SF_ASSERT(desc != NULL && desc->label == PROTOBUF_C_LABEL_REPEATED);
    memcpy((char *)shard + desc->quantifier_offset, &list->count, sizeof(list->count));
    memcpy((char *)shard + desc->offset, &list->items, sizeof(list->items));
}

static enum sf_err add_ref(struct cut *cut, const struct sf_catalog_put *put, const char *sha256)
{
    SF_PB(CheckpointManifestObject) *manifest = cut->manifest;
    SF_PB(CheckpointShardRef) *ref = sf_arena_alloc(cut->arena, sizeof(*ref));
    if (manifest->n_checkpoint_shards == cut->ref_capacity) {
        size_t capacity = cut->ref_capacity == 0 ? 64 : cut->ref_capacity * 2;
        SF_PB(CheckpointShardRef) **refs = sf_arena_alloc(cut->arena, capacity * sizeof(*refs));
        if (refs != NULL && manifest->n_checkpoint_shards != 0)
            memcpy(refs, manifest->checkpoint_shards,
                   manifest->n_checkpoint_shards * sizeof(*refs));
        manifest->checkpoint_shards = refs;
        cut->ref_capacity = capacity;
    }
    if (ref == NULL || manifest->checkpoint_shards == NULL)
        return sf_diag_set(cut->diag, SF_ERR_LIMIT, "the checkpoint has too many shards");
    searchfabric__v1__checkpoint_shard_ref__init(ref);
    ref->checkpoint_shard_id = (uint32_t)manifest->n_checkpoint_shards;
    ref->key = sf_arena_str(cut->arena, sf_buf_view(&put->key));
    ref->sha256 = sf_arena_str(cut->arena, sf_view_str(sha256));
    ref->size_bytes = put->body.len;
    ref->row_count = cut->shard_rows;
    manifest->checkpoint_shards[manifest->n_checkpoint_shards++] = ref;
    manifest->checkpoint_shard_count = (uint32_t)manifest->n_checkpoint_shards;
    return sf_arena_overflowed(cut->arena)
               ? sf_diag_set(cut->diag, SF_ERR_LIMIT, "the checkpoint has too many shards")
               : SF_OK;
}

/* Puts an object of the checkpoint; SF_ERR_EXISTS when another cutter's stands. */
static enum sf_err put_new(struct cut *cut, struct sf_catalog_put *put)
{
    put->cond = SF_MUTANT(ccs_checkpoint_overwrites) ? SF_PUT_ANY : SF_PUT_ABSENT;
    enum sf_err err = sf_catalog_put_run(cut->catalog, cut->sched, put, SF_CATALOG_PUT_TRIES);
    if (err == SF_OK && put->state == SF_CATALOG_PUT_UNSENT)
        err = SF_ERR_UNAVAILABLE;
    if (err == SF_OK && put->state == SF_CATALOG_PUT_LOST)
        err = SF_ERR_EXISTS;
    if (err != SF_OK)
        sf_diag_set(cut->diag, err, "cannot put %.*s", (int)put->key.len,
                    (const char *)put->key.data);
    return err;
}

/* Puts the shard at hand and begins the next. */
static enum sf_err flush_shard(struct cut *cut)
{
    SF_PB(CheckpointShardObject) shard;
    char attempt_id[SF_ATTEMPT_ID_BYTES], sha256[SF_SHA256_HEX_BYTES];
    struct sf_catalog_put put = {0};
    if (cut->manifest->n_checkpoint_shards >= SF_LIMIT_CHECKPOINT_SHARDS)
        return sf_diag_set(cut->diag, SF_ERR_LIMIT, "the checkpoint has too many shards");
    searchfabric__v1__checkpoint_shard_object__init(&shard);
    sf_attempts_next(cut->catalog->deps.attempts, attempt_id);
    shard.format_version = SF_CATALOG_FORMAT_VERSION;
    shard.attempt_id = attempt_id;
    shard.checkpoint_epoch = cut->manifest->checkpoint_epoch;
    shard.checkpoint_shard_id = (uint32_t)cut->manifest->n_checkpoint_shards;
    for (size_t t = 0; t < SF_CATALOG_TABLE_COUNT; t++) {
        struct row_list *list = list_of(cut, (enum sf_catalog_table)t);
        set_rows(&shard, sf_catalog_table_field((enum sf_catalog_table)t), list);
    }
    set_rows(&shard, "manifest_pointers", &cut->pointers);
    sf_catalog_key_checkpoint_shard(&put.key, shard.checkpoint_shard_id, shard.checkpoint_epoch);
    sf_catalog_put_encode(&put, &shard.base, true, sha256);
    enum sf_err err = put_new(cut, &put);
    if (err == SF_OK)
        err = add_ref(cut, &put, sha256);
    sf_catalog_put_fini(&put);
    for (size_t t = 0; t < SF_CATALOG_TABLE_COUNT; t++)
        cut->lists[t].count = 0;
    cut->pointers.count = 0;
    cut->shard_rows = cut->shard_bytes = 0;
    sf_arena_reset(cut->rows);
    return err;
}

/* What the collection's row knows of committed pointer and head, as rows of their own. */
static enum sf_err add_pointer(struct cut *cut, const SF_PB(CollectionRow) * row)
{
    if (row->committed_manifest_version == 0 && row->manifest_head_version == 0)
        return SF_OK;
    SF_PB(ManifestPointerRow) *pointer = sf_arena_alloc(cut->rows, sizeof(*pointer));
    SF_PB(ManifestCommittedHeadObject) *committed = sf_arena_alloc(cut->rows, sizeof(*committed));
    SF_PB(ManifestHeadObject) *head = sf_arena_alloc(cut->rows, sizeof(*head));
    if (pointer == NULL || committed == NULL || head == NULL)
        return sf_diag_set(cut->diag, SF_ERR_LIMIT, "a checkpoint shard is too large");
    searchfabric__v1__manifest_pointer_row__init(pointer);
    searchfabric__v1__manifest_committed_head_object__init(committed);
    searchfabric__v1__manifest_head_object__init(head);
    committed->collection = head->collection = row->collection;
    committed->committed_manifest_version = row->committed_manifest_version;
    if (row->_committed_manifest_checksum_or_etag_case != 0)
        committed->manifest_checksum_or_etag = row->committed_manifest_checksum_or_etag;
    head->manifest_head_version = row->manifest_head_version;
    head->expected_previous_head = row->expected_previous_head;
    head->last_update_epoch = row->manifest_head_last_update_epoch;
    head->reconciler_status = row->manifest_head_reconciler_status;
    pointer->committed_head = committed;
    pointer->head = head;
    list_add(&cut->pointers, &pointer->base);
    cut->shard_rows++;
    return SF_OK;
}

static enum sf_err add_row(struct cut *cut, enum sf_catalog_table table, ProtobufCMessage *row)
{
    list_add(list_of(cut, table), row);
    cut->shard_rows++;
    if (table == SF_CATALOG_TABLE_COLLECTIONS)
        return add_pointer(cut, (const SF_PB(CollectionRow) *)row);
    if (table == SF_CATALOG_TABLE_REPLAY) {
        uint64_t applied_ts = ((const SF_PB(ReplayIndexRow) *)row)->outcome->applied_ts;
        if (applied_ts > cut->manifest->checkpoint_upper_bound_applied_ts)
            cut->manifest->checkpoint_upper_bound_applied_ts = applied_ts;
    }
    return SF_OK;
}

/* Streams one table into shards. */
static enum sf_err cut_table(struct cut *cut, struct sf_sql_conn *conn, enum sf_catalog_table table)
{
    struct sf_catalog_cursor cursor = {0};
    enum sf_err err = SF_OK;
    while (err == SF_OK && !cursor.ended) {
        struct sf_catalog_batch batch;
        size_t rows = SF_LIMIT_CHECKPOINT_SHARD_ROWS - cut->shard_rows;
        err = sf_catalog_rows_read(conn, table, &cursor, rows < 1000 ? rows : 1000,
                                   SF_LIMIT_CHECKPOINT_SHARD_BYTES - cut->shard_bytes, cut->rows,
                                   cut->diag, &batch);
        for (size_t i = 0; i < batch.count && err == SF_OK; i++)
            err = add_row(cut, table, batch.rows[i]);
        cut->shard_bytes += batch.text_bytes;
        if (err == SF_OK && (cut->shard_rows >= SF_LIMIT_CHECKPOINT_SHARD_ROWS ||
                             cut->shard_bytes >= SF_LIMIT_CHECKPOINT_SHARD_BYTES))
            err = flush_shard(cut);
        if (err == SF_OK && sf_catalog_ending(cut->catalog))
            err = sf_diag_set(cut->diag, SF_ERR_STOPPED, "the catalog is ending");
    }
    sf_catalog_cursor_fini(&cursor);
    return err;
}

/* Watermarks inside the snapshot; the lowest is the bound. */
static enum sf_err read_watermarks(struct cut *cut, struct sf_sql_conn *conn)
{
    struct sf_catalog *catalog = cut->catalog;
    SF_PB(CheckpointManifestObject) *manifest = cut->manifest;
    struct sf_sql_stmt *stmt;
    bool row = true;
    enum sf_err err =
        sf_sql_prepare(conn,
                       "SELECT lane_shard, watermark, owner_epoch FROM catalog_lane_shards"
                       " WHERE lane_shard >= 0 ORDER BY lane_shard",
                       cut->diag, &stmt);
    if (err != SF_OK)
        return err;
    manifest->watermarks =
        sf_arena_alloc(cut->arena, (catalog->lane_shards + 1) * sizeof(*manifest->watermarks));
    while (manifest->watermarks != NULL && manifest->n_watermarks < catalog->lane_shards) {
        err = sf_sql_step(stmt, cut->diag, &row);
        SF_PB(LaneShardWatermark) *mark = sf_arena_alloc(cut->arena, sizeof(*mark));
        if (err != SF_OK || !row || mark == NULL)
            break;
        searchfabric__v1__lane_shard_watermark__init(mark);
        mark->lane_shard = (uint32_t)sf_sql_col_i64(stmt, 0);
        mark->recovery_segment_epoch = sf_sql_col_u64(stmt, 1);
        mark->owner_epoch = sf_sql_col_u64(stmt, 2);
        if (mark->owner_epoch > catalog->owner_epoch)
            break;
        if (manifest->n_watermarks == 0 ||
            mark->recovery_segment_epoch < manifest->checkpoint_upper_bound_recovery_segment_epoch)
            manifest->checkpoint_upper_bound_recovery_segment_epoch = mark->recovery_segment_epoch;
        manifest->watermarks[manifest->n_watermarks++] = mark;
    }
    sf_sql_finish(stmt);
    if (SF_MUTANT(ccs_bound_ahead))
        manifest->checkpoint_upper_bound_recovery_segment_epoch =
            atomic_load(&catalog->newest_segment);
    if (err == SF_OK && manifest->n_watermarks < catalog->lane_shards) {
        sf_catalog_depose(catalog, "projection", 0);
        err = sf_diag_set(cut->diag, SF_ERR_DEPOSED, "a newer owner has the projection");
    }
    return err;
}

static enum sf_err cut_rows(struct cut *cut)
{
    struct sf_sql_conn *conn = sf_sql_acquire(cut->catalog->deps.sql, cut->sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, cut->diag);
    if (err == SF_OK)
        err = read_watermarks(cut, conn);
    for (int t = 0; t < SF_CATALOG_TABLE_COUNT && err == SF_OK; t++)
        err = cut_table(cut, conn, (enum sf_catalog_table)t);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    if (err == SF_OK && (cut->shard_rows != 0 || cut->manifest->n_checkpoint_shards == 0))
        err = flush_shard(cut);
    return err;
}

static enum sf_err put_manifest(struct cut *cut)
{
    char attempt_id[SF_ATTEMPT_ID_BYTES];
    struct sf_catalog_put put = {0};
    enum sf_err err = sf_catalog_owner_check(cut->catalog, cut->sched, cut->diag);
    if (err != SF_OK)
        return err;
    sf_attempts_next(cut->catalog->deps.attempts, attempt_id);
    cut->manifest->format_version = SF_CATALOG_FORMAT_VERSION;
    cut->manifest->attempt_id = sf_arena_str(cut->arena, sf_view_str(attempt_id));
    cut->manifest->created_at_unix_ms = sf_clock_unix_ms(cut->catalog->deps.clock);
    sf_catalog_key_checkpoint(&put.key, cut->manifest->checkpoint_epoch);
    sf_catalog_put_encode(&put, &cut->manifest->base, false, NULL);
    err = put_new(cut, &put);
    sf_catalog_put_fini(&put);
    return err;
}

/* One try under `epoch`. SF_ERR_EXISTS: another cutter has it. */
static enum sf_err cut_epoch(struct sf_catalog *catalog, struct sf_sched *sched, uint64_t epoch,
                             struct sf_arena *arena, struct sf_diag *diag,
                             SF_PB(CheckpointManifestObject) * *out_manifest)
{
    struct cut cut = {.catalog = catalog, .sched = sched, .diag = diag, .arena = arena};
    cut.manifest = sf_arena_alloc(arena, sizeof(*cut.manifest));
    if (cut.manifest == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the checkpoint has too many shards");
    searchfabric__v1__checkpoint_manifest_object__init(cut.manifest);
    cut.manifest->checkpoint_epoch = epoch;
    cut.rows = sf_arena_new(SF_LIMIT_CHECKPOINT_ARENA_BYTES);
    enum sf_err err = cut_rows(&cut);
    if (err == SF_OK)
        err = put_manifest(&cut);
    for (size_t t = 0; t < SF_CATALOG_TABLE_COUNT; t++)
        free(cut.lists[t].items);
    free(cut.pointers.items);
    sf_arena_destroy(cut.rows);
    *out_manifest = cut.manifest;
    return err;
}

/* ---- removing old ones -------------------------------------------------------------------- */

/* Removes what belongs to epochs below `keep_from`; the manifests go first (they sort first). */
static enum sf_err remove_below(struct sf_catalog *catalog, struct sf_sched *sched,
                                uint64_t keep_from, struct sf_diag *diag, uint64_t *out_removed)
{
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    struct sf_buf after = {0};
    enum sf_err err = sf_catalog_owner_check(catalog, sched, diag);
    size_t count = SF_LIMIT_LIST_PAGE_ENTRIES;
    while (err == SF_OK && count == SF_LIMIT_LIST_PAGE_ENTRIES) {
        struct sf_list_entry *entries = NULL;
        sf_arena_reset(arena);
        err = sf_catalog_list(catalog, sched, SF_CATALOG_CHECKPOINT_PREFIX, &after, arena, diag,
                              &entries, &count);
        for (size_t i = 0; err == SF_OK && i < count; i++) {
            uint64_t epoch;
            uint32_t shard;
            bool manifest;
            if (sf_catalog_checkpoint_of_key(entries[i].key, &epoch, &shard, &manifest) &&
                epoch < keep_from) {
                err = sf_store_remove_wait(catalog->deps.store, sched, entries[i].key);
                *out_removed += manifest ? 1 : 0;
            }
        }
    }
    if (err != SF_OK && diag->err == SF_OK)
        sf_diag_set(diag, err, "cannot remove old checkpoints");
    sf_buf_fini(&after);
    sf_arena_destroy(arena);
    return err;
}

/* Keeps the two newest complete ones; `list` was read before `newest` was cut. */
static enum sf_err remove_old(struct sf_catalog *catalog, struct sf_sched *sched,
                              const struct sf_catalog_checkpoints *list, struct sf_diag *diag)
{
    uint64_t removed = 0;
    const struct sf_catalog_checkpoint *second =
        sf_catalog_checkpoint_pick(list, 0, SF_CATALOG_CHECKPOINTS_KEPT - 2);
    if (second == NULL)
        return SF_OK;
    enum sf_err err = remove_below(catalog, sched, second->epoch, diag, &removed);
    if (removed != 0)
        SF_LOG(INFO, "catalog_checkpoint_removed", SF_KV_U64("below_epoch", second->epoch),
               SF_KV_U64("checkpoints", removed));
    return err;
}

enum sf_err sf_catalog_checkpoint_cut(struct sf_catalog *catalog, struct sf_sched *sched,
                                      struct sf_arena *arena, struct sf_diag *diag,
                                      SF_PB(CheckpointManifestObject) * *out_manifest)
{
    struct sf_catalog_checkpoints list = {0};
    struct sf_arena *listed = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    int64_t begin_ms = sf_clock_mono_ms(catalog->deps.clock);
    enum sf_err err = sf_catalog_watermark_raise(catalog, sched, diag);
    if (err == SF_OK)
        err = sf_catalog_checkpoints_list(catalog, sched, listed, diag, &list);
    uint64_t epoch = list.newest_epoch;
    for (int tries = 0; err == SF_OK && tries < CUT_TRIES; tries++) {
        err = cut_epoch(catalog, sched, ++epoch, arena, diag, out_manifest);
        if (err != SF_ERR_EXISTS)
            break;
        err = tries + 1 < CUT_TRIES ? SF_OK : SF_ERR_UNAVAILABLE;
    }
    if (err == SF_OK) {
        const SF_PB(CheckpointManifestObject) *manifest = *out_manifest;
        uint64_t rows = 0, bytes = 0;
        for (size_t i = 0; i < manifest->n_checkpoint_shards; i++) {
            rows += manifest->checkpoint_shards[i]->row_count;
            bytes += manifest->checkpoint_shards[i]->size_bytes;
        }
        SF_LOG(INFO, "catalog_checkpoint", SF_KV_U64("checkpoint_epoch", epoch),
               SF_KV_U64("bound_segment", manifest->checkpoint_upper_bound_recovery_segment_epoch),
               SF_KV_U64("shards", manifest->n_checkpoint_shards), SF_KV_U64("rows", rows),
               SF_KV_U64("size_bytes", bytes),
               SF_KV_I64("duration_ms", sf_clock_mono_ms(catalog->deps.clock) - begin_ms));
        err = remove_old(catalog, sched, &list, diag);
    }
    sf_catalog_checkpoints_fini(&list);
    sf_arena_destroy(listed);
    return err;
}
