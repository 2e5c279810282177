/*
 * Model: every start is a takeover, also by the same node. One takeover record names all lane
 * shards; its slot is their new owner epoch. Then, in chain order from the projection's watermark
 * (or from the boundary, when the projection is lost): each older entry is settled (nothing there:
 * an abort marker; an elder marker: replaced by one that names this entry), each committed one gets
 * its pointers and rows. Time to serve depends on unfinished work, never on catalog size.
 *
 * A rebuild claims the projection by a row of its own (lane_shard -1), forgets all rows, writes
 * them again from outcomes and control objects, and writes the owner-epoch rows last: without them
 * no other process materializes or serves, and a rebuild that a newer one overtook ends unseen.
 */
#include "catalog/catalog_projector.h"
#include "catalog/catalog_quota.h"
#include "catalog/catalog_rules.h"

#include <stdlib.h>

#define DEFAULT_LANE_SHARDS 64
#define MAX_LANE_SHARDS     1024
#define REBUILD_WAITS       10
#define REBUILD_PAUSE       7 /* as the seventh try of a put: half a second or so */

struct recovery {
    struct sf_catalog *catalog;
    struct sf_sched *sched;
    struct sf_diag *diag;
    struct sf_arena *arena; /* of one segment; reset between */
    uint64_t lowest;        /* lowest segment that counts */
    uint64_t base;          /* everything up to here is done */
    uint64_t tail;          /* last slot before the takeover */
    bool rebuild;           /* the projection is lost */
    bool foreign;           /* its rows speak of a chain that is not this one */
    uint64_t *top;          /* per shard: newest takeover seen while walking */
};

/* ---- boundary ----------------------------------------------------------------------------- */

static enum sf_err create_boundary(struct recovery *r)
{
    struct sf_catalog *catalog = r->catalog;
    SF_PB(CatalogBoundaryObject) object;
    char attempt_id[SF_ATTEMPT_ID_BYTES];
    searchfabric__v1__catalog_boundary_object__init(&object);
    sf_attempts_next(catalog->deps.attempts, attempt_id);
    object.format_version = SF_CATALOG_FORMAT_VERSION;
    object.attempt_id = attempt_id;
    object.lowest_recovery_segment_epoch = 1;
    object.catalog_lane_shard_count =
        catalog->deps.lane_shards == 0 ? DEFAULT_LANE_SHARDS : catalog->deps.lane_shards;
    object.updated_at_unix_ms = sf_clock_unix_ms(catalog->deps.clock);
    struct sf_catalog_put put = {.cond = SF_PUT_ABSENT};
    sf_buf_append_str(&put.key, SF_CATALOG_BOUNDARY_KEY);
    sf_catalog_put_encode(&put, &object.base, false, NULL);
    enum sf_err err = sf_catalog_put_run(catalog, r->sched, &put, SF_CATALOG_PUT_TRIES);
    if (err == SF_OK && put.state == SF_CATALOG_PUT_UNSENT)
        err = SF_ERR_UNAVAILABLE;
    sf_catalog_put_fini(&put);
    return err;
}

/* Reads the boundary object, making it at the store's first start. */
static enum sf_err read_boundary(struct recovery *r)
{
    enum sf_err err = SF_ERR_NOT_FOUND;
    ProtobufCMessage *message = NULL;
    for (int round = 0; round < 2 && err == SF_ERR_NOT_FOUND; round++) {
        if (round == 1) {
            err = create_boundary(r);
            if (err != SF_OK)
                return sf_diag_set(r->diag, err, "cannot create %s", SF_CATALOG_BOUNDARY_KEY);
        }
        err = sf_catalog_read(r->catalog, r->sched, sf_view_str(SF_CATALOG_BOUNDARY_KEY),
                              &searchfabric__v1__catalog_boundary_object__descriptor, false,
                              r->arena, r->diag, &message, NULL, NULL);
    }
    if (err != SF_OK)
        return err;
    const SF_PB(CatalogBoundaryObject) *object = (const SF_PB(CatalogBoundaryObject) *)message;
    if (object->catalog_lane_shard_count == 0 ||
        object->catalog_lane_shard_count > MAX_LANE_SHARDS ||
        object->lowest_recovery_segment_epoch == 0)
        return sf_diag_set(r->diag, SF_ERR_CORRUPT, "%s is out of range", SF_CATALOG_BOUNDARY_KEY);
    r->catalog->lane_shards = object->catalog_lane_shard_count;
    r->lowest = object->lowest_recovery_segment_epoch;
    r->catalog->boundary_looked_ms = sf_clock_mono_ms(r->catalog->deps.clock);
    return SF_OK;
}

enum sf_err sf_catalog_boundary_look(struct sf_catalog *catalog, struct sf_sched *sched)
{
    int64_t now_ms = sf_clock_mono_ms(catalog->deps.clock);
    if (now_ms - catalog->boundary_looked_ms <= SF_CATALOG_BOUNDARY_MS)
        return SF_OK;
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    struct sf_diag diag;
    ProtobufCMessage *message = NULL;
    sf_diag_init(&diag);
    enum sf_err err = SF_ERR_UNAVAILABLE;
    for (unsigned tries = 1; err == SF_ERR_UNAVAILABLE && !sf_catalog_ending(catalog); tries++) {
        err = sf_catalog_read(catalog, sched, sf_view_str(SF_CATALOG_BOUNDARY_KEY),
                              &searchfabric__v1__catalog_boundary_object__descriptor, false, arena,
                              &diag, &message, NULL, NULL);
    }
    if (err == SF_OK) {
        const SF_PB(CatalogBoundaryObject) *object = (const SF_PB(CatalogBoundaryObject) *)message;
        catalog->boundary_looked_ms = now_ms;
        if (object->lowest_recovery_segment_epoch > atomic_load(&catalog->newest_segment))
            err = sf_catalog_depose(catalog, "boundary", object->lowest_recovery_segment_epoch);
    }
    sf_arena_destroy(arena);
    return err;
}

/* ---- takeover ----------------------------------------------------------------------------- */

/* The last slot of the chain, by LIST. */
static enum sf_err find_tail(struct recovery *r)
{
    struct sf_buf after = {0};
    if (r->base != 0)
        sf_catalog_key_segment(&after, r->base);
    r->tail = r->base;
    enum sf_err err = SF_OK;
    size_t count = SF_LIMIT_LIST_PAGE_ENTRIES;
    for (unsigned tries = 1; count == SF_LIMIT_LIST_PAGE_ENTRIES;) {
        struct sf_list_entry *entries = NULL;
        sf_arena_reset(r->arena);
        err = sf_store_list_wait(r->catalog->deps.store, r->sched,
                                 sf_view_str(SF_CATALOG_SEGMENT_PREFIX), sf_buf_view(&after),
                                 SF_LIMIT_LIST_PAGE_ENTRIES, r->arena, &entries, &count);
        if (err == SF_ERR_UNAVAILABLE && tries < SF_CATALOG_PUT_TRIES &&
            !sf_catalog_ending(r->catalog)) {
            count = SF_LIMIT_LIST_PAGE_ENTRIES;
            sf_catalog_pause(r->catalog, r->sched, tries++);
            continue;
        }
        if (err != SF_OK)
            break;
        for (size_t i = 0; i < count; i++) {
            uint64_t epoch;
            if (sf_catalog_segment_of_key(entries[i].key, &epoch) && epoch > r->tail)
                r->tail = epoch;
        }
        if (count > 0) {
            sf_buf_clear(&after);
            sf_buf_append(&after, entries[count - 1].key.ptr, entries[count - 1].key.len);
        }
    }
    sf_buf_fini(&after);
    return err == SF_OK ? SF_OK : sf_diag_set(r->diag, err, "cannot list the segments");
}

static void encode_takeover(struct recovery *r, uint64_t slot, struct sf_catalog_put *put)
{
    struct sf_catalog *catalog = r->catalog;
    SF_PB(RecoverySegmentObject) segment;
    SF_PB(TakeoverRecord) takeover;
    char attempt_id[SF_ATTEMPT_ID_BYTES];
    uint32_t *shards = sf_calloc(catalog->lane_shards, sizeof(*shards));
    for (uint32_t i = 0; i < catalog->lane_shards; i++)
        shards[i] = i;
    searchfabric__v1__takeover_record__init(&takeover);
    takeover.lane_shards = shards;
    takeover.n_lane_shards = catalog->lane_shards;
    takeover.owner_id = catalog->owner_id;
    takeover.taken_at_unix_ms = sf_clock_unix_ms(catalog->deps.clock);
    searchfabric__v1__recovery_segment_object__init(&segment);
    sf_attempts_next(catalog->deps.attempts, attempt_id);
    segment.format_version = SF_CATALOG_FORMAT_VERSION;
    segment.attempt_id = attempt_id;
    segment.recovery_segment_epoch = slot;
    segment.owner_id = catalog->owner_id;
    segment.takeover = &takeover;
    sf_buf_clear(&put->key);
    sf_catalog_key_segment(&put->key, slot);
    put->cond = SF_PUT_ABSENT;
    sf_catalog_put_encode(put, &segment.base, true, NULL);
    free(shards);
}

/* Appends the takeover record at the first free slot: that is the owner epoch. */
static enum sf_err take_over(struct recovery *r)
{
    struct sf_catalog_put put = {0};
    enum sf_err err = SF_OK;
    do {
        encode_takeover(r, r->tail + 1, &put);
        err = sf_catalog_put_run(r->catalog, r->sched, &put, SF_CATALOG_PUT_TRIES);
        if (err == SF_OK && put.state == SF_CATALOG_PUT_UNSENT)
            err = SF_ERR_UNAVAILABLE;
        if (err == SF_OK && put.state == SF_CATALOG_PUT_LOST)
            r->tail++;
    } while (err == SF_OK && put.state != SF_CATALOG_PUT_STANDS);
    sf_catalog_put_fini(&put);
    if (err != SF_OK)
        return sf_diag_set(r->diag, err, "cannot append the takeover record");
    r->catalog->owner_epoch = r->tail + 1;
    atomic_store(&r->catalog->newest_segment, r->catalog->owner_epoch);
    SF_LOG(INFO, "catalog_takeover", SF_KV_U64("owner_epoch", r->catalog->owner_epoch),
           SF_KV_U64("lane_shards", r->catalog->lane_shards),
           SF_KV_U64("from_segment", r->base + 1),
           SF_KV_STR("mode", r->rebuild ? "rebuild" : "restart"));
    return SF_OK;
}

/* ---- transactions of the recovery --------------------------------------------------------- */

typedef enum sf_err (*recovery_fn)(struct recovery *r, struct sf_sql_conn *conn, void *arg);

/* Runs `fn` in one transaction; a rebuild first checks that the projection is still claimed. */
static enum sf_err in_transaction(struct recovery *r, recovery_fn fn, void *arg, bool claimed)
{
    enum sf_err err = SF_ERR_UNAVAILABLE;
    for (unsigned tries = 1; tries <= SF_CATALOG_PUT_TRIES; tries++) {
        struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_WRITE);
        err = sf_sql_begin(conn, r->diag);
        if (err == SF_OK && claimed && r->rebuild)
            err = sf_catalog_project_claimed(r->catalog, conn, r->diag);
        if (err == SF_OK)
            err = fn(r, conn, arg);
        if (err == SF_OK)
            err = sf_sql_commit(conn, r->diag);
        else
            sf_sql_rollback(conn);
        sf_sql_release(conn);
        if ((err != SF_ERR_UNAVAILABLE && err != SF_ERR_AMBIGUOUS) || sf_catalog_ending(r->catalog))
            break;
        sf_catalog_pause(r->catalog, r->sched, tries);
    }
    return err;
}

static enum sf_err begin_rows(struct recovery *r, struct sf_sql_conn *conn, void *arg)
{
    (void)arg;
    if (!r->rebuild)
        return sf_catalog_project_owner(r->catalog, conn, false, 0, r->diag);
    return sf_catalog_project_claim(r->catalog, conn, r->foreign, r->diag);
}

/* ---- walking the chain -------------------------------------------------------------------- */

/* A committed command of the segment at hand. */
struct committed {
    SF_PB(CommandOutcomeObject) * outcome;
    ProtobufCMessage *object;
};

struct committed_list {
    struct committed *items;
    size_t count;
    uint64_t segment;
};

static enum sf_err show_rows(struct recovery *r, struct sf_sql_conn *conn, void *arg)
{
    const struct committed_list *list = arg;
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < list->count && err == SF_OK; i++) {
        bool dropped = false;
        err = sf_catalog_project(r->catalog, conn, list->items[i].outcome, list->items[i].object,
                                 !r->rebuild, r->arena, r->diag, &dropped);
        if (dropped)
            err = sf_catalog_depose(r->catalog, "projection", 0);
    }
    return err;
}

/* Settles one entry; a committed one is added to the list with its pointers standing. */
static enum sf_err settle_entry(struct recovery *r, const SF_PB(RecoverySegmentEntry) * entry,
                                uint64_t slot, struct committed_list *list)
{
    struct sf_catalog *catalog = r->catalog;
    if (entry->lane_shard >= catalog->lane_shards)
        return sf_diag_set(r->diag, SF_ERR_CORRUPT, "segment %llu names lane shard %u",
                           (unsigned long long)slot, entry->lane_shard);
    if (entry->owner_epoch < r->top[entry->lane_shard])
        return SF_OK; /* appended by an owner that was deposed before: never in force */
    struct sf_catalog_settled settled = {0};
    enum sf_err err = SF_OK;
    if (SF_MUTANT(ccs_no_settle))
        err = sf_catalog_peek(catalog, r->sched, entry, slot, r->arena, r->diag, &settled);
    else
        err = sf_catalog_abort(catalog, r->sched, entry, slot, "aborted_by_takeover", r->arena,
                               r->diag, &settled);
    if (err != SF_OK || !settled.committed)
        return err;
    struct committed *item = &list->items[list->count];
    item->outcome = settled.outcome;
    err =
        sf_catalog_control_read(catalog, r->sched, item->outcome, r->arena, r->diag, &item->object);
    if (err == SF_OK)
        err = sf_catalog_pointers(catalog, r->sched, item->outcome);
    if (err == SF_OK)
        list->count++;
    return err;
}

static enum sf_err read_segment(struct recovery *r, uint64_t slot,
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

static enum sf_err walk_segment(struct recovery *r, uint64_t slot)
{
    SF_PB(RecoverySegmentObject) *segment = NULL;
    sf_arena_reset(r->arena);
    enum sf_err err = read_segment(r, slot, &segment);
    if (err != SF_OK)
        return err;
    if (segment->takeover != NULL) {
        for (size_t i = 0; i < segment->takeover->n_lane_shards; i++) {
            uint32_t shard = segment->takeover->lane_shards[i];
            if (shard < r->catalog->lane_shards)
                r->top[shard] = slot;
        }
        return SF_OK;
    }
    struct committed_list list = {.segment = slot};
    list.items = sf_calloc(segment->n_entries + 1, sizeof(*list.items));
    for (size_t i = 0; i < segment->n_entries && err == SF_OK; i++)
        err = settle_entry(r, segment->entries[i], slot, &list);
    if (err == SF_OK && list.count != 0)
        err = in_transaction(r, show_rows, &list, true);
    atomic_fetch_add(&r->catalog->recovered, list.count);
    free(list.items);
    return err;
}

/* ---- what a rebuild adds ------------------------------------------------------------------ */

struct name_epoch {
    uint64_t namespace_id;
    const char *name;
    uint64_t epoch;
};

static enum sf_err show_name_epoch(struct recovery *r, struct sf_sql_conn *conn, void *arg)
{
    const struct name_epoch *row = arg;
    return sf_catalog_project_name_epoch(conn, row->namespace_id, row->name, row->epoch, r->diag);
}

/* One allocator object to its row. */
static enum sf_err rebuild_name_epoch(struct recovery *r, struct sf_view key, bool of_namespace)
{
    ProtobufCMessage *message = NULL;
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    enum sf_err err =
        sf_catalog_read(r->catalog, r->sched, key,
                        of_namespace ? &searchfabric__v1__namespace_name_epoch_object__descriptor
                                     : &searchfabric__v1__collection_name_epoch_object__descriptor,
                        false, arena, r->diag, &message, NULL, NULL);
    struct name_epoch row = {0};
    if (err == SF_OK && of_namespace) {
        const SF_PB(NamespaceNameEpochObject) *object =
            (const SF_PB(NamespaceNameEpochObject) *)message;
        row.name = object->namespace_name;
        row.epoch = object->last_allocated_epoch;
    } else if (err == SF_OK) {
        const SF_PB(CollectionNameEpochObject) *object =
            (const SF_PB(CollectionNameEpochObject) *)message;
        row.namespace_id = object->namespace_id;
        row.name = object->collection_name;
        row.epoch = object->last_allocated_epoch;
    }
    if (err == SF_OK)
        err = in_transaction(r, show_name_epoch, &row, true);
    sf_arena_destroy(arena);
    return err;
}

/* Allocator-state rows come from the allocator objects themselves (note section 5.4). */
static enum sf_err rebuild_name_epochs(struct recovery *r, const char *prefix, bool of_namespace)
{
    struct sf_buf after = {0};
    enum sf_err err = SF_OK;
    size_t count = SF_LIMIT_LIST_PAGE_ENTRIES;
    while (count == SF_LIMIT_LIST_PAGE_ENTRIES && err == SF_OK) {
        struct sf_list_entry *entries = NULL;
        struct sf_arena *page = sf_arena_new(SF_CATALOG_ARENA_BYTES);
        err = sf_store_list_wait(r->catalog->deps.store, r->sched, sf_view_str(prefix),
                                 sf_buf_view(&after), SF_LIMIT_LIST_PAGE_ENTRIES, page, &entries,
                                 &count);
        for (size_t i = 0; i < count && err == SF_OK; i++)
            err = rebuild_name_epoch(r, entries[i].key, of_namespace);
        if (err == SF_OK && count > 0) {
            sf_buf_clear(&after);
            sf_buf_append(&after, entries[count - 1].key.ptr, entries[count - 1].key.len);
        }
        sf_arena_destroy(page);
    }
    sf_buf_fini(&after);
    return err;
}

static enum sf_err show_statistics(struct recovery *r, struct sf_sql_conn *conn, void *arg)
{
    return sf_catalog_project_statistics(conn, arg, r->diag);
}

/* The snapshot that the head names; the base again where the head is not of the serving generation
 * (OP-41). */
static enum sf_err rebuild_statistics(struct recovery *r, const SF_PB(CollectionRef) * ref)
{
    struct sf_catalog *catalog = r->catalog;
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    SF_PB(SchemaGenerationRow) *ready = NULL;
    ProtobufCMessage *head_message = NULL;
    ProtobufCMessage *snapshot = NULL;
    struct sf_buf key = {0};
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, r->sched, SF_SQL_READ);
    enum sf_err err =
        sf_catalog_sql_generation(conn, ref->namespace_id, ref->collection_id,
                                  SF_CATALOG_GENERATION_READY, 0, NULL, arena, r->diag, &ready);
    sf_sql_release(conn);
    if (err != SF_OK)
        goto out;
    sf_catalog_key_statistics_head(&key, ref->namespace_id, ref->collection_id);
    err = sf_catalog_read(catalog, r->sched, sf_buf_view(&key),
                          &searchfabric__v1__optimizer_statistics_head_object__descriptor, false,
                          arena, r->diag, &head_message, NULL, NULL);
    const SF_PB(OptimizerStatisticsHeadObject) *head =
        (const SF_PB(OptimizerStatisticsHeadObject) *)head_message;
    bool absent = err == SF_ERR_NOT_FOUND;
    err = absent ? SF_OK : err;
    if (err != SF_OK || (absent && ready == NULL))
        goto out;
    if (ready != NULL && (absent || strcmp(head->latest_applied_schema_generation_token,
                                           ready->body->schema_generation_token) != 0)) {
        SF_PB(OptimizerStatisticsSnapshotObject) *base = NULL;
        err = sf_catalog_statistics_base(catalog, r->sched, ready->body, arena, r->diag, &base);
        if (err == SF_OK)
            err = sf_catalog_statistics_point(catalog, r->sched, base, arena, r->diag);
        snapshot = (ProtobufCMessage *)base;
    } else {
        sf_buf_clear(&key);
        sf_catalog_key_statistics(&key, ref->namespace_id, ref->collection_id,
                                  head->latest_applied_schema_generation_token,
                                  head->latest_stats_commit_ts);
        err = sf_catalog_read(catalog, r->sched, sf_buf_view(&key),
                              &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor,
                              false, arena, r->diag, &snapshot, NULL, NULL);
        if (err == SF_ERR_NOT_FOUND)
            err = sf_diag_set(r->diag, SF_ERR_CORRUPT, "a statistics head names no snapshot");
    }
    if (err == SF_OK)
        err = in_transaction(r, show_statistics, snapshot, true);
out:
    sf_buf_fini(&key);
    sf_arena_destroy(arena);
    return err;
}

static enum sf_err rebuild_all_statistics(struct recovery *r)
{
    SF_PB(CollectionRef) *refs = NULL;
    size_t count = 0;
    sf_arena_reset(r->arena);
    struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_READ);
    enum sf_err err = sf_catalog_sql_schema_collections(conn, r->diag, &refs, &count);
    sf_sql_release(conn);
    for (size_t i = 0; i < count && err == SF_OK; i++)
        err = rebuild_statistics(r, &refs[i]);
    free(refs);
    return err;
}

/* ---- the end ------------------------------------------------------------------------------ */

static enum sf_err end_rows(struct recovery *r, struct sf_sql_conn *conn, void *arg)
{
    struct sf_catalog *catalog = r->catalog;
    (void)arg;
    if (!r->rebuild)
        return sf_catalog_project_watermark(catalog, conn, catalog->owner_epoch, r->diag);
    enum sf_err err = sf_catalog_project_bump_bindings(conn, r->diag);
    if (err == SF_OK)
        err = sf_catalog_projectors_rebuilt(catalog, conn, r->diag);
    if (err == SF_OK)
        err = sf_catalog_project_owner(catalog, conn, true, catalog->owner_epoch, r->diag);
    return err;
}

/* Somebody rebuilds the projection: to start now would end that rebuild, and starts that end each
 * other's would never come through. Waits a while for it; a dead one's claim is no reason to wait
 * for ever. */
static enum sf_err wait_for_rebuild(struct recovery *r)
{
    enum sf_err err = SF_OK;
    uint64_t claim = 1;
    if (r->catalog->deps.loop == NULL || r->catalog->deps.store->exclusive)
        return SF_OK; /* an exclusive store has no other owner: the claim is a dead one's */
    for (unsigned tries = 0; tries < REBUILD_WAITS && claim != 0 && err == SF_OK; tries++) {
        if (tries != 0)
            sf_catalog_pause(r->catalog, r->sched, REBUILD_PAUSE);
        struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_READ);
        err = sf_catalog_sql_claim(conn, r->diag, &claim);
        sf_sql_release(conn);
    }
    return err;
}

/* Is the projection there, of this store, and not behind the boundary? */
static enum sf_err look_at_projection(struct recovery *r)
{
    uint64_t count = 0, low = 0, high = 0;
    struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_READ);
    enum sf_err err = sf_catalog_sql_shards(conn, r->diag, &count, &low, &high);
    sf_sql_release(conn);
    r->rebuild = count < r->catalog->lane_shards || low + 1 < r->lowest;
    r->base = r->rebuild ? r->lowest - 1 : low;
    return err;
}

static enum sf_err recover(struct recovery *r)
{
    struct sf_catalog *catalog = r->catalog;
    enum sf_err err = read_boundary(r);
    if (err == SF_OK)
        err = wait_for_rebuild(r);
    if (err == SF_OK)
        err = look_at_projection(r);
    if (err == SF_OK)
        err = find_tail(r);
    if (err == SF_OK && !r->rebuild && r->tail == r->base) {
        /* the watermark is the tail, or it is above the chain: then it is another store's */
        SF_PB(RecoverySegmentObject) *last = NULL;
        sf_arena_reset(r->arena);
        if (read_segment(r, r->base, &last) == SF_ERR_CORRUPT) {
            r->rebuild = true;
            r->foreign = true;
            r->base = r->lowest - 1;
            sf_diag_init(r->diag);
            err = find_tail(r);
        }
    }
    if (err == SF_OK)
        err = take_over(r);
    if (err == SF_OK)
        err = in_transaction(r, begin_rows, NULL, false);
    r->top = sf_calloc(catalog->lane_shards, sizeof(*r->top));
    for (uint64_t slot = r->base + 1; slot <= r->tail && err == SF_OK; slot++)
        err = walk_segment(r, slot);
    if (err == SF_OK && r->rebuild)
        err = rebuild_name_epochs(r, "catalog-allocator/namespace-name/", true);
    if (err == SF_OK && r->rebuild)
        err = rebuild_name_epochs(r, "catalog-allocator/collection-name/", false);
    if (err == SF_OK && r->rebuild)
        err = rebuild_all_statistics(r);
    if (err == SF_OK && r->rebuild)
        err = sf_catalog_quota_rebuild(catalog, r->sched, r->diag);
    if (err == SF_OK)
        err = in_transaction(r, end_rows, NULL, true);
    if (err == SF_OK)
        atomic_store(&catalog->watermark, catalog->owner_epoch);
    atomic_store(&catalog->rebuilt, r->rebuild);
    free(r->top);
    return err;
}

enum sf_err sf_catalog_recover(struct sf_catalog *catalog, struct sf_sched *sched,
                               struct sf_diag *diag)
{
    struct recovery r = {.catalog = catalog, .sched = sched, .diag = diag};
    int64_t begin_ms = sf_clock_mono_ms(catalog->deps.clock);
    r.arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    enum sf_err err = recover(&r);
    sf_arena_destroy(r.arena);
    atomic_store(&catalog->open_ms, (uint64_t)(sf_clock_mono_ms(catalog->deps.clock) - begin_ms));
    if (err == SF_OK)
        SF_LOG(INFO, "catalog_ready", SF_KV_U64("owner_epoch", catalog->owner_epoch),
               SF_KV_U64("recovered", atomic_load(&catalog->recovered)),
               SF_KV_U64("open_ms", atomic_load(&catalog->open_ms)));
    else if (diag->err == SF_OK)
        sf_diag_set(diag, err, "%s", sf_err_info(err)->meaning);
    return err;
}
