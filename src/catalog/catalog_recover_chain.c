/*
 * Model: the walk takes segments by windows and their entries by chunks. Per chunk all outcomes are
 * read side by side, then all control objects, then all pointers; each entry is settled in chain
 * order, and one transaction shows what is committed. An entry whose record has its row is settled:
 * a restart passes it over, a rebuild (the row is its checkpoint's) looks after its pointers only.
 * A chunk whose messages do not fit into memory is cut in halves.
 */
#include "catalog/catalog_recover.h"

#include "catalog/catalog_head.h"

#include <stdlib.h>

#define WINDOW_SEGMENTS 64
#define CHUNK_ENTRIES   512

/* One listed command of the window. */
struct listed {
    const SF_PB(RecoverySegmentEntry) * entry; /* in r->arena */
    uint64_t slot;
    bool present;                           /* its record has a row */
    SF_PB(CommandOutcomeObject) * outcome;  /* committed here; in r->chunk */
    ProtobufCMessage *object;               /* its control object */
    SF_PB(SchemaGenerationObject) * before; /* generation that it supersedes, NULL = none */
};

struct window {
    struct listed *items; /* owned */
    size_t count, capacity;
};

enum sf_err sf_recovery_segment(struct sf_recovery *r, uint64_t slot,
                                SF_PB(RecoverySegmentObject) * *out_segment)
{
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    sf_catalog_key_segment(&key, slot);
    enum sf_err err = sf_catalog_read(r->catalog, r->sched, sf_buf_view(&key),
                                      &searchfabric__v1__recovery_segment_object__descriptor, true,
                                      r->arena, r->diag, &message, NULL, NULL);
    sf_buf_fini(&key);
    *out_segment = (SF_PB(RecoverySegmentObject) *)message;
    if (err == SF_ERR_NOT_FOUND)
        return sf_diag_set(r->diag, SF_ERR_CORRUPT, "the chain has a hole at segment %llu",
                           (unsigned long long)slot);
    if (err == SF_OK && (*out_segment)->recovery_segment_epoch != slot)
        return sf_diag_set(r->diag, SF_ERR_CORRUPT, "segment %llu says it is %llu",
                           (unsigned long long)slot,
                           (unsigned long long)(*out_segment)->recovery_segment_epoch);
    return err;
}

/* ---- one chunk ---------------------------------------------------------------------------- */

/* Which commands have their row? */
static enum sf_err look_rows(struct sf_recovery *r, struct listed *items, size_t count)
{
    struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_READ);
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < count && err == SF_OK; i++) {
        struct sf_sql_stmt *stmt;
        err = sf_sql_prepare(
            conn, "SELECT command_kind FROM catalog_replay_index WHERE command_identity = ?1",
            r->diag, &stmt);
        if (err != SF_OK)
            break;
        sf_sql_bind_text(stmt, 1, sf_view_str(items[i].entry->command_identity));
        err = sf_sql_step(stmt, r->diag, &items[i].present);
        sf_sql_finish(stmt);
    }
    sf_sql_release(conn);
    return err;
}

static void fetch_outcomes(struct sf_recovery *r, const struct listed *items, size_t count)
{
    struct sf_buf keys[CHUNK_ENTRIES] = {0};
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        if (!items[i].present || r->rebuild)
            sf_catalog_key_outcome(&keys[n++], items[i].entry->command_identity);
    }
    sf_catalog_ahead_fetch(r->catalog, r->sched, keys, n);
    for (size_t i = 0; i < n; i++)
        sf_buf_fini(&keys[i]);
}

static void fetch_controls(struct sf_recovery *r, const struct listed *items, size_t count)
{
    struct sf_buf keys[CHUNK_ENTRIES] = {0};
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        if (items[i].outcome != NULL && items[i].outcome->n_control_objects != 0)
            sf_buf_append_str(&keys[n++], items[i].outcome->control_objects[0]->key);
    }
    sf_catalog_ahead_fetch(r->catalog, r->sched, keys, n);
    for (size_t i = 0; i < n; i++)
        sf_buf_fini(&keys[i]);
}

/* An entry without a record: was there one? A pointer of its attempt is written after the record
 * alone, and retention removes it before the record; so with such a pointer the record is lost, and
 * what it committed must be neither guessed nor given up. The pointer of a record that landed since
 * is no loss: the record is looked for once more. */
static enum sf_err check_lost(struct sf_recovery *r, const struct listed *item)
{
    const SF_PB(RecoverySegmentEntry) *entry = item->entry;
    struct sf_catalog_settled again = {.absent = false};
    struct sf_buf key = {0};
    ProtobufCMessage *pointer = NULL;
    if (entry->transport_lookup_key[0] == '\0')
        return SF_OK;
    sf_catalog_key_transport(&key, entry->transport_lookup_key);
    enum sf_err err = sf_catalog_read(r->catalog, r->sched, sf_buf_view(&key),
                                      &searchfabric__v1__replay_pointer_object__descriptor, false,
                                      r->chunk, r->diag, &pointer, NULL, NULL);
    sf_buf_fini(&key);
    if (err != SF_OK ||
        strcmp(((const SF_PB(ReplayPointerObject) *)pointer)->attempt_id, entry->attempt_id) != 0)
        return err == SF_ERR_NOT_FOUND ? SF_OK : err;
    err = sf_catalog_peek(r->catalog, r->sched, entry, item->slot, r->chunk, r->diag, &again);
    if (err != SF_OK || !again.absent)
        return err;
    sf_catalog_key_outcome(&key, entry->command_identity);
    err = sf_diag_set(r->diag, SF_ERR_CORRUPT,
                      "record %.*s is gone: segment %llu lists its command and the replay pointer "
                      "stands",
                      (int)key.len, (const char *)key.data, (unsigned long long)item->slot);
    sf_buf_fini(&key);
    return err;
}

/* Settles one entry; a committed one gets its outcome. */
static enum sf_err settle(struct sf_recovery *r, struct listed *item)
{
    struct sf_catalog *catalog = r->catalog;
    struct sf_catalog_settled settled = {0};
    item->outcome = NULL;
    item->object = NULL;
    item->before = NULL;
    if (item->present && !r->rebuild)
        return SF_OK;
    enum sf_err err =
        sf_catalog_peek(catalog, r->sched, item->entry, item->slot, r->chunk, r->diag, &settled);
    if (err == SF_OK && settled.absent && !item->present && !SF_MUTANT(ccs_no_lost_check))
        err = check_lost(r, item);
    if (err == SF_OK && !settled.committed && !item->present && !SF_MUTANT(ccs_no_settle))
        err = sf_catalog_abort(catalog, r->sched, item->entry, item->slot, "aborted_by_takeover",
                               r->chunk, r->diag, &settled);
    if (err == SF_OK && settled.committed)
        item->outcome = settled.outcome;
    return err;
}

/* A restart that shows a schema again: the row of the generation before it may have lost its last
 * state too. No record says that state, and nobody looks at a superseded generation any more: its
 * block is read now and shown in the same transaction. */
static enum sf_err read_superseded(struct sf_recovery *r, struct listed *item)
{
    const SF_PB(CommandScope) *scope = item->outcome->scope;
    SF_PB(CollectionRow) *row = NULL;
    ProtobufCMessage *message = NULL;
    if (r->rebuild || scope == NULL ||
        item->outcome->command_kind != SF_PBE(COMMAND_KIND, PUT_COLLECTION_SCHEMA))
        return SF_OK;
    struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_READ);
    enum sf_err err = sf_catalog_sql_collection(conn, scope->namespace_id, scope->collection_id,
                                                r->chunk, r->diag, &row);
    sf_sql_release(conn);
    if (err != SF_OK || row == NULL || row->_active_schema_version_case == 0)
        return err;
    struct sf_buf key = {0};
    sf_catalog_key_generation(&key, scope->namespace_id, scope->collection_id,
                              row->active_schema_version, row->active_schema_generation_token);
    err = sf_catalog_read(r->catalog, r->sched, sf_buf_view(&key),
                          &searchfabric__v1__schema_generation_object__descriptor, false, r->chunk,
                          r->diag, &message, NULL, NULL);
    sf_buf_fini(&key);
    item->before = (SF_PB(SchemaGenerationObject) *)message;
    return err == SF_ERR_NOT_FOUND ? SF_OK : err; /* collected since */
}

static enum sf_err show_superseded(struct sf_recovery *r, struct sf_sql_conn *conn,
                                   const struct listed *item)
{
    const SF_PB(SchemaGenerationObject) *before = item->before;
    if (before == NULL || before->convergence == NULL || before->body == NULL)
        return SF_OK;
    return sf_catalog_project_convergence(
        conn, item->outcome->scope->namespace_id, item->outcome->scope->collection_id,
        before->body->schema_version, before->convergence, r->diag);
}

struct shown {
    const struct listed *items;
    size_t count;
};

static enum sf_err show_rows(struct sf_recovery *r, struct sf_sql_conn *conn, void *arg)
{
    const struct shown *shown = arg;
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < shown->count && err == SF_OK; i++) {
        const struct listed *item = &shown->items[i];
        bool dropped = false;
        if (item->outcome == NULL || item->present)
            continue;
        err = show_superseded(r, conn, item);
        if (err == SF_OK)
            err = sf_catalog_project(r->catalog, conn, item->outcome, item->object, !r->rebuild,
                                     r->chunk, r->diag, &dropped);
        if (dropped)
            err = sf_catalog_depose(r->catalog, "projection", 0);
    }
    return err;
}

/* Pointers and rows of what the chunk committed. */
static enum sf_err show(struct sf_recovery *r, struct listed *items, size_t count)
{
    SF_PB(CommandOutcomeObject) * outcomes[CHUNK_ENTRIES];
    size_t n = 0, fresh = 0;
    uint64_t missing = 0;
    enum sf_err err = SF_OK;
    fetch_controls(r, items, count);
    for (size_t i = 0; i < count && err == SF_OK; i++) {
        if (items[i].outcome == NULL)
            continue;
        outcomes[n++] = items[i].outcome;
        fresh += items[i].present ? 0 : 1;
        if (items[i].present)
            continue;
        err = sf_catalog_control_read(r->catalog, r->sched, items[i].outcome, r->chunk, r->diag,
                                      &items[i].object);
        if (err == SF_OK)
            err = read_superseded(r, &items[i]);
    }
    if (err == SF_OK)
        err = sf_catalog_pointers_all(r->catalog, r->sched, outcomes, n, &missing);
    if (err == SF_OK)
        err = sf_catalog_head_follow_all(r->catalog, r->sched, outcomes, n);
    struct shown shown = {.items = items, .count = count};
    if (err == SF_OK && fresh != 0)
        err = sf_recovery_transaction(r, show_rows, &shown, true);
    if (err == SF_OK)
        atomic_fetch_add(&r->catalog->recovered, fresh);
    return err;
}

static enum sf_err run_chunk(struct sf_recovery *r, struct listed *items, size_t count)
{
    sf_arena_reset(r->chunk);
    enum sf_err err = look_rows(r, items, count);
    if (err == SF_OK)
        fetch_outcomes(r, items, count);
    for (size_t i = 0; i < count && err == SF_OK; i++)
        err = settle(r, &items[i]);
    if (err == SF_OK)
        err = show(r, items, count);
    if (count == 1 || !sf_arena_overflowed(r->chunk))
        return err;
    sf_diag_init(r->diag);
    err = run_chunk(r, items, count / 2);
    return err == SF_OK ? run_chunk(r, items + count / 2, count - count / 2) : err;
}

/* ---- windows ------------------------------------------------------------------------------ */

static void fetch_segments(struct sf_recovery *r, uint64_t from, size_t count)
{
    struct sf_buf keys[WINDOW_SEGMENTS] = {0};
    for (size_t i = 0; i < count; i++)
        sf_catalog_key_segment(&keys[i], from + i);
    sf_catalog_ahead_fetch(r->catalog, r->sched, keys, count);
    for (size_t i = 0; i < count; i++)
        sf_buf_fini(&keys[i]);
}

/* Notes the takeovers of one segment, or collects its entries that are in force. */
static enum sf_err collect(struct sf_recovery *r, uint64_t slot, struct window *window)
{
    SF_PB(RecoverySegmentObject) *segment = NULL;
    enum sf_err err = sf_recovery_segment(r, slot, &segment);
    if (err != SF_OK)
        return err;
    for (size_t i = 0; segment->takeover != NULL && i < segment->takeover->n_lane_shards; i++) {
        uint32_t shard = segment->takeover->lane_shards[i];
        if (shard < r->catalog->lane_shards)
            r->top[shard] = slot;
    }
    for (size_t i = 0; segment->takeover == NULL && i < segment->n_entries; i++) {
        const SF_PB(RecoverySegmentEntry) *entry = segment->entries[i];
        if (entry->lane_shard >= r->catalog->lane_shards)
            return sf_diag_set(r->diag, SF_ERR_CORRUPT, "segment %llu names lane shard %u",
                               (unsigned long long)slot, entry->lane_shard);
        if (entry->owner_epoch < r->top[entry->lane_shard])
            continue; /* appended by an owner that was deposed before: never in force */
        if (window->count == window->capacity) {
            window->capacity = window->capacity == 0 ? CHUNK_ENTRIES : window->capacity * 2;
            window->items = sf_realloc(window->items, window->capacity * sizeof(*window->items));
        }
        window->items[window->count++] = (struct listed){.entry = entry, .slot = slot};
    }
    return SF_OK;
}

enum sf_err sf_recovery_walk(struct sf_recovery *r)
{
    struct window window = {0};
    enum sf_err err = SF_OK;
    for (uint64_t slot = r->base + 1; slot <= r->tail && err == SF_OK;) {
        size_t some =
            r->tail - slot + 1 < WINDOW_SEGMENTS ? (size_t)(r->tail - slot + 1) : WINDOW_SEGMENTS;
        sf_arena_reset(r->arena);
        window.count = 0;
        fetch_segments(r, slot, some);
        for (size_t i = 0; i < some && err == SF_OK; i++)
            err = collect(r, slot + i, &window);
        for (size_t i = 0; i < window.count && err == SF_OK; i += CHUNK_ENTRIES)
            err = run_chunk(r, window.items + i,
                            window.count - i < CHUNK_ENTRIES ? window.count - i : CHUNK_ENTRIES);
        if (err == SF_OK && sf_catalog_ending(r->catalog))
            err = sf_diag_set(r->diag, SF_ERR_STOPPED, "the start was given up");
        slot += some;
    }
    free(window.items);
    return err;
}
