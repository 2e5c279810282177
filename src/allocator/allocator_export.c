/*
 * Model: entries of the feed become rows, a transaction a batch. A row of a collection is replaced
 * only by one of a higher allocator_state_version, so that order does not matter and nothing has to
 * be remembered; a row of an allocation never changes. A batch that cannot be written is lost: the
 * row of the collection comes back with its next write, that of an allocation with a rebuild, which
 * makes the same rows from the objects.
 */
#include "allocator/allocator_export.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pb.h"

#define REOPEN_MS 5000 /* after the database could not be opened */

static const struct sf_sql_migration steps[] = {
    {.version = 1,
     .name = "allocator export",
     .sqlite =
         "CREATE TABLE alloc_export_collections (namespace_id BIGINT NOT NULL,"
         " collection_id BIGINT NOT NULL, next_doc_id TEXT NOT NULL,"
         " allocation_epoch BIGINT NOT NULL, allocator_state_version BIGINT NOT NULL,"
         " owner_id TEXT NOT NULL, updated_at_unix_ms BIGINT NOT NULL,"
         " PRIMARY KEY (namespace_id, collection_id));"
         "CREATE TABLE alloc_export_allocations (transport_lookup_key TEXT NOT NULL PRIMARY KEY,"
         " namespace_id BIGINT NOT NULL, collection_id BIGINT NOT NULL,"
         " idempotency_key TEXT NOT NULL, client_id TEXT NOT NULL, client_kind BIGINT NOT NULL,"
         " authenticated_client_identity_hash TEXT NOT NULL,"
         " schema_generation_token TEXT NOT NULL, item_count BIGINT NOT NULL,"
         " issued_count BIGINT NOT NULL, lowest_doc_id BIGINT NOT NULL,"
         " highest_doc_id BIGINT NOT NULL, allocation_epoch BIGINT NOT NULL,"
         " allocator_state_version BIGINT NOT NULL, lease_epoch BIGINT NOT NULL,"
         " applied_at_unix_ms BIGINT NOT NULL);"
         "CREATE INDEX ix_alloc_export_applied ON alloc_export_allocations"
         " (namespace_id, collection_id, applied_at_unix_ms);",
     .postgres =
         "CREATE DOMAIN sf_u64 AS NUMERIC(20, 0) CHECK (VALUE >= 0 AND VALUE <="
         " 18446744073709551615);"
         "CREATE TABLE alloc_export_collections (namespace_id sf_u64 NOT NULL,"
         " collection_id sf_u64 NOT NULL, next_doc_id VARCHAR(20) COLLATE \"C\" NOT NULL,"
         " allocation_epoch sf_u64 NOT NULL, allocator_state_version sf_u64 NOT NULL,"
         " owner_id VARCHAR(64) COLLATE \"C\" NOT NULL, updated_at_unix_ms BIGINT NOT NULL,"
         " PRIMARY KEY (namespace_id, collection_id));"
         "CREATE TABLE alloc_export_allocations ("
         " transport_lookup_key VARCHAR(64) COLLATE \"C\" NOT NULL PRIMARY KEY,"
         " namespace_id sf_u64 NOT NULL, collection_id sf_u64 NOT NULL,"
         " idempotency_key VARCHAR(128) COLLATE \"C\" NOT NULL,"
         " client_id VARCHAR(256) COLLATE \"C\" NOT NULL, client_kind BIGINT NOT NULL,"
         " authenticated_client_identity_hash VARCHAR(64) COLLATE \"C\" NOT NULL,"
         " schema_generation_token VARCHAR(64) COLLATE \"C\" NOT NULL, item_count BIGINT NOT NULL,"
         " issued_count BIGINT NOT NULL, lowest_doc_id sf_u64 NOT NULL,"
         " highest_doc_id sf_u64 NOT NULL, allocation_epoch sf_u64 NOT NULL,"
         " allocator_state_version sf_u64 NOT NULL, lease_epoch sf_u64 NOT NULL,"
         " applied_at_unix_ms BIGINT NOT NULL);"
         "CREATE INDEX ix_alloc_export_applied ON alloc_export_allocations"
         " (namespace_id, collection_id, applied_at_unix_ms);",
     .mysql =
         "CREATE TABLE alloc_export_collections (namespace_id BIGINT UNSIGNED NOT NULL,"
         " collection_id BIGINT UNSIGNED NOT NULL, next_doc_id VARCHAR(20) NOT NULL,"
         " allocation_epoch BIGINT UNSIGNED NOT NULL,"
         " allocator_state_version BIGINT UNSIGNED NOT NULL, owner_id VARCHAR(64) NOT NULL,"
         " updated_at_unix_ms BIGINT NOT NULL, PRIMARY KEY (namespace_id, collection_id)"
         ") ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE @COLLATION@;"
         "CREATE TABLE alloc_export_allocations (transport_lookup_key VARCHAR(64) NOT NULL,"
         " namespace_id BIGINT UNSIGNED NOT NULL, collection_id BIGINT UNSIGNED NOT NULL,"
         " idempotency_key VARCHAR(128) NOT NULL, client_id VARCHAR(256) NOT NULL,"
         " client_kind BIGINT NOT NULL, authenticated_client_identity_hash VARCHAR(64) NOT NULL,"
         " schema_generation_token VARCHAR(64) NOT NULL, item_count BIGINT NOT NULL,"
         " issued_count BIGINT NOT NULL, lowest_doc_id BIGINT UNSIGNED NOT NULL,"
         " highest_doc_id BIGINT UNSIGNED NOT NULL, allocation_epoch BIGINT UNSIGNED NOT NULL,"
         " allocator_state_version BIGINT UNSIGNED NOT NULL, lease_epoch BIGINT UNSIGNED NOT NULL,"
         " applied_at_unix_ms BIGINT NOT NULL, PRIMARY KEY (transport_lookup_key),"
         " KEY ix_alloc_export_applied (namespace_id, collection_id, applied_at_unix_ms)"
         ") ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE @COLLATION@;"}};

static const struct sf_sql_upsert collection_row = {
    .table = "alloc_export_collections",
    .columns = "namespace_id, collection_id, next_doc_id, allocation_epoch,"
               " allocator_state_version, owner_id, updated_at_unix_ms",
    .key = "namespace_id, collection_id",
    .update = "next_doc_id, allocation_epoch, allocator_state_version, owner_id,"
              " updated_at_unix_ms",
    .guard = "allocator_state_version"};

static const struct sf_sql_upsert allocation_row = {
    .table = "alloc_export_allocations",
    .columns = "transport_lookup_key, namespace_id, collection_id, idempotency_key, client_id,"
               " client_kind, authenticated_client_identity_hash, schema_generation_token,"
               " item_count, issued_count, lowest_doc_id, highest_doc_id, allocation_epoch,"
               " allocator_state_version, lease_epoch, applied_at_unix_ms",
    .key = "transport_lookup_key",
    .update = NULL,
    .guard = NULL};

struct sf_alloc_export {
    struct sf_allocator *allocator; /* whose */
    struct sf_sql_options where;    /* migrations included */
    char *path;                     /* owned: of `where` */

    /* the feed's lane */
    struct sf_sql *sql;     /* NULL = not open */
    int64_t reopen_mono_ms; /* no try to open it before */
    bool failed;            /* the last batch was lost, and that was logged */
};

struct sf_alloc_export *sf_alloc_export_new(struct sf_allocator *allocator,
                                            const struct sf_sql_options *where)
{
    struct sf_alloc_export *x = sf_calloc(1, sizeof(*x));

    x->allocator = allocator;
    x->where = *where;
    x->path = where->path == NULL ? NULL : sf_strdup(where->path);
    x->where.path = x->path;
    x->where.migrations = steps;
    x->where.migration_count = SF_ARRAY_LEN(steps);
    x->where.readers = 1;
    return x;
}

void sf_alloc_export_destroy(struct sf_alloc_export *x)
{
    if (x == NULL)
        return;
    sf_sql_close(x->sql);
    free(x->path);
    free(x);
}

static enum sf_err open_database(struct sf_alloc_export *x, struct sf_diag *diag)
{
    int64_t now = sf_clock_mono_ms(x->allocator->deps.clock);

    if (x->sql != NULL)
        return SF_OK;
    if (now < x->reopen_mono_ms)
        return sf_diag_set(diag, SF_ERR_UNAVAILABLE, "the export's database could not be opened");
    enum sf_err err = sf_sql_open(&x->where, diag, &x->sql);
    if (err != SF_OK) {
        x->sql = NULL;
        x->reopen_mono_ms = now + REOPEN_MS;
    }
    return err;
}

/* ---- rows ---- */

static enum sf_err write_collection(struct sf_sql_conn *conn,
                                    const Searchfabric__V1__AllocatorStateObject *state,
                                    struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare_upsert(conn, &collection_row, diag, &stmt);

    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, state->namespace_id);
    sf_sql_bind_u64(stmt, 2, state->collection_id);
    sf_sql_bind_text(stmt, 3, sf_view_str(state->next_doc_id));
    sf_sql_bind_u64(stmt, 4, state->allocation_epoch);
    sf_sql_bind_u64(stmt, 5, state->allocator_state_version);
    sf_sql_bind_text(stmt, 6, sf_view_str(state->owner_id));
    sf_sql_bind_i64(stmt, 7, state->updated_at_unix_ms);
    return sf_sql_run(stmt, diag, NULL);
}

/* What the runs of an allocation come to. */
struct id_sum {
    uint64_t items;   /* ids in all */
    uint64_t issued;  /* of these, issued ones */
    uint64_t lowest;  /* id */
    uint64_t highest; /* id */
};

static struct id_sum sum_runs(const sf_applied_entry *entry)
{
    struct id_sum sum = {.lowest = UINT64_MAX};

    for (size_t i = 0; i < entry->n_runs; i++) {
        const Searchfabric__V1__AllocatorIdRun *run = entry->runs[i];
        uint64_t last = run->first_doc_id + run->count - 1;
        sum.items += run->count;
        sum.issued += run->allocator_issued ? run->count : 0;
        sum.lowest = run->first_doc_id < sum.lowest ? run->first_doc_id : sum.lowest;
        sum.highest = last > sum.highest ? last : sum.highest;
    }
    return sum;
}

static enum sf_err write_allocation(struct sf_sql_conn *conn, const sf_applied_entry *entry,
                                    struct sf_diag *diag)
{
    struct id_sum sum = sum_runs(entry);
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare_upsert(conn, &allocation_row, diag, &stmt);

    if (err != SF_OK)
        return err;
    sf_sql_bind_text(stmt, 1, sf_view_str(entry->transport_lookup_key));
    sf_sql_bind_u64(stmt, 2, entry->namespace_id);
    sf_sql_bind_u64(stmt, 3, entry->collection_id);
    sf_sql_bind_text(stmt, 4, sf_view_str(entry->idempotency_key));
    sf_sql_bind_text(stmt, 5, sf_view_str(entry->client_id));
    sf_sql_bind_i64(stmt, 6, entry->client_kind);
    sf_sql_bind_text(stmt, 7, sf_view_str(entry->authenticated_client_identity_hash));
    sf_sql_bind_text(stmt, 8, sf_view_str(entry->schema_generation_token));
    sf_sql_bind_i64(stmt, 9, (int64_t)sum.items);
    sf_sql_bind_i64(stmt, 10, (int64_t)sum.issued);
    sf_sql_bind_u64(stmt, 11, sum.lowest);
    sf_sql_bind_u64(stmt, 12, sum.highest);
    sf_sql_bind_u64(stmt, 13, entry->allocation_epoch);
    sf_sql_bind_u64(stmt, 14, entry->allocator_state_version);
    sf_sql_bind_u64(stmt, 15, entry->lease_epoch);
    sf_sql_bind_i64(stmt, 16, entry->applied_at_unix_ms);
    return sf_sql_run(stmt, diag, NULL);
}

static enum sf_err delete_allocation(struct sf_sql_conn *conn, struct sf_view key,
                                     struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(
        conn, "DELETE FROM alloc_export_allocations WHERE transport_lookup_key = ?1", diag, &stmt);

    if (err != SF_OK)
        return err;
    sf_sql_bind_text(stmt, 1, key);
    return sf_sql_run(stmt, diag, NULL);
}

/* ---- the writer ---- */

static enum sf_err write_item(struct sf_sql_conn *conn, const struct sf_alloc_feed_item *item,
                              struct sf_arena *arena, struct sf_diag *diag)
{
    struct sf_view bytes = sf_view_bytes(item->bytes, item->len);
    const ProtobufCMessageDescriptor *desc =
        item->kind == SF_EXPORT_STATE ? &searchfabric__v1__allocator_state_object__descriptor
                                      : &searchfabric__v1__allocator_applied_entry__descriptor;
    ProtobufCMessage *message = NULL;

    if (item->kind == SF_EXPORT_REMOVED)
        return delete_allocation(conn, bytes, diag);
    sf_arena_reset(arena);
    enum sf_err err = sf_pb_unpack(desc, bytes, arena, diag, &message);
    if (err != SF_OK)
        return err;
    return item->kind == SF_EXPORT_STATE ? write_collection(conn, (const void *)message, diag)
                                         : write_allocation(conn, (const void *)message, diag);
}

static enum sf_err write_batch(struct sf_alloc_export *x, const struct sf_alloc_feed_item *first,
                               struct sf_diag *diag)
{
    enum sf_err err = open_database(x, diag);

    if (err != SF_OK)
        return err;
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    struct sf_sql_conn *conn = sf_sql_acquire(x->sql, x->allocator->deps.sched, SF_SQL_WRITE);
    err = sf_sql_begin(conn, diag);
    bool begun = err == SF_OK;
    for (; first != NULL && err == SF_OK; first = first->next)
        err = write_item(conn, first, arena, diag);
    if (err == SF_OK)
        err = sf_sql_commit(conn, diag);
    else if (begun)
        sf_sql_rollback(conn);
    sf_sql_release(conn);
    sf_arena_destroy(arena);
    return err;
}

size_t sf_alloc_export_write(void *export, const struct sf_alloc_feed_item *first, size_t count)
{
    struct sf_alloc_export *x = export;
    struct sf_diag diag;

    if (atomic_load(&x->allocator->draining)) /* a slow database must not hold up the stop */
        return 0;
    sf_diag_init(&diag);
    enum sf_err err = write_batch(x, first, &diag);
    if (err != SF_OK && !x->failed)
        SF_LOG(WARN, "alloc_export_failed", SF_KV_U64("entries", count),
               SF_KV_STR("reason", diag.message));
    x->failed = err != SF_OK;
    return err == SF_OK ? count : 0;
}

/* ---- rebuild ---- */

/* A rebuild under way. */
struct rebuild {
    struct sf_alloc_export *export;  /* into */
    struct sf_alloc_export_sum *sum; /* what was done */
    struct sf_arena *arena;          /* of one object; reset between */
    struct sf_diag *diag;            /* of the caller */
};

/* Writes the row of one object. */
static enum sf_err rebuild_one(struct rebuild *b, struct sf_sql_conn *conn, struct sf_view key,
                               bool is_state)
{
    const struct sf_allocator_deps *deps = &b->export->allocator->deps;
    const ProtobufCMessageDescriptor *desc =
        is_state ? &searchfabric__v1__allocator_state_object__descriptor
                 : &searchfabric__v1__allocator_replay_success_object__descriptor;
    ProtobufCMessage *message = NULL;

    sf_arena_reset(b->arena);
    enum sf_err err = sf_durable_read_wait(deps->store, deps->sched, key, desc, b->arena, b->diag,
                                           &message, NULL);
    if (err == SF_ERR_NOT_FOUND) /* removed by retention meanwhile */
        return SF_OK;
    const sf_applied_entry *entry = NULL;
    if (err == SF_OK && !is_state && sf_alloc_record_is_at((const sf_replay_record *)message, key))
        entry = sf_alloc_applied_entry((const sf_replay_record *)message, b->arena);
    if (err == SF_ERR_CORRUPT || (err == SF_OK && !is_state && entry == NULL)) {
        sf_diag_init(b->diag);
        b->sum->broken++;
        return SF_OK;
    }
    if (err != SF_OK)
        return err;
    ++*(is_state ? &b->sum->collections : &b->sum->allocations);
    return is_state ? write_collection(conn, (const void *)message, b->diag)
                    : write_allocation(conn, entry, b->diag);
}

/* The rows of one page, in one transaction. */
static enum sf_err rebuild_page(struct rebuild *b, const struct sf_list_entry *entries,
                                size_t count, bool is_state)
{
    struct sf_alloc_export *x = b->export;

    if (atomic_load(&x->allocator->draining))
        return sf_diag_set(b->diag, SF_ERR_UNAVAILABLE, "the allocator is stopping");
    struct sf_sql_conn *conn = sf_sql_acquire(x->sql, x->allocator->deps.sched, SF_SQL_WRITE);
    enum sf_err err = sf_sql_begin(conn, b->diag);
    bool begun = err == SF_OK;

    for (size_t i = 0; i < count && err == SF_OK; i++)
        err = rebuild_one(b, conn, entries[i].key, is_state);
    if (err == SF_OK)
        err = sf_sql_commit(conn, b->diag);
    else if (begun)
        sf_sql_rollback(conn);
    sf_sql_release(conn);
    return err;
}

static enum sf_err states_page(void *user, const struct sf_list_entry *entries, size_t count)
{
    return rebuild_page(user, entries, count, true);
}

static enum sf_err results_page(void *user, const struct sf_list_entry *entries, size_t count)
{
    return rebuild_page(user, entries, count, false);
}

enum sf_err sf_alloc_export_rebuild(struct sf_alloc_export *x, struct sf_diag *diag,
                                    struct sf_alloc_export_sum *out_sum)
{
    struct rebuild b = {.export = x, .sum = out_sum, .diag = diag};
    const struct sf_allocator_deps *deps = &x->allocator->deps;

    *out_sum = (struct sf_alloc_export_sum){0};
    sf_sql_close(x->sql);
    x->sql = NULL;
    x->reopen_mono_ms = 0;
    enum sf_err err = sf_sql_drop(&x->where, diag);
    if (err == SF_OK)
        err = open_database(x, diag);
    b.arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    if (err == SF_OK)
        err = sf_alloc_each_page_wait(deps->store, deps->sched, SF_ALLOC_STATE_PREFIX, states_page,
                                      &b);
    if (err == SF_OK)
        err = sf_alloc_each_page_wait(deps->store, deps->sched, SF_ALLOC_REPLAY_PREFIX,
                                      results_page, &b);
    sf_arena_destroy(b.arena);
    if (err != SF_OK && diag->err == SF_OK)
        sf_diag_set(diag, err, "the export was not rebuilt: %s", sf_err_info(err)->meaning);
    return err;
}
