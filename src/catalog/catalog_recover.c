/*
 * Model: every start is a takeover, also by the same node. One takeover record names all lane
 * shards; its slot is their new owner epoch. Then, in chain order from the projection's watermark,
 * each older entry is settled and each committed one gets its pointers and rows
 * (catalog_recover_chain.c). Time to serve depends on unfinished work, never on catalog size.
 *
 * A lost projection is rebuilt: from the newest complete checkpoint and the segments above its
 * bound, or, while none was cut, from the first segment that counts. A checkpoint that does not
 * verify gives way to the one before; segments that are neither there nor in a checkpoint fail
 * closed. What no record names is read again from its own objects (catalog_recover_rows.c).
 *
 * A rebuild claims the projection by a row of its own (lane_shard -1), forgets all rows, writes
 * them again, and writes the owner-epoch rows last: without them no other process materializes or
 * serves, and a rebuild that a newer one overtook ends unseen.
 */
#include "catalog/catalog_recover.h"

#include "catalog/catalog_projector.h"
#include "catalog/catalog_head.h"
#include "catalog/catalog_removals.h"

#include <stdlib.h>

#define DEFAULT_LANE_SHARDS 64
#define MAX_LANE_SHARDS     1024
#define REBUILD_WAITS       10
#define REBUILD_PAUSE       7 /* as the seventh try of a put: half a second or so */

/* ---- boundary ----------------------------------------------------------------------------- */

static enum sf_err create_boundary(struct sf_recovery *r)
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
static enum sf_err read_boundary(struct sf_recovery *r)
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
    atomic_store(&r->catalog->lowest_segment, r->lowest);
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

/* The last slot of the chain, by LIST from the base on: its own segment is never removed before a
 * later one stands. */
static enum sf_err find_tail(struct sf_recovery *r)
{
    struct sf_buf after = {0};
    uint64_t from = r->restored != NULL ? r->base - 1 : r->base;
    if (from != 0)
        sf_catalog_key_segment(&after, from);
    r->tail = from;
    enum sf_err err = SF_OK;
    size_t count = SF_LIMIT_LIST_PAGE_ENTRIES;
    while (err == SF_OK && count == SF_LIMIT_LIST_PAGE_ENTRIES) {
        struct sf_list_entry *entries = NULL;
        sf_arena_reset(r->arena);
        err = sf_catalog_list(r->catalog, r->sched, SF_CATALOG_SEGMENT_PREFIX, &after, r->arena,
                              r->diag, &entries, &count);
        for (size_t i = 0; err == SF_OK && i < count; i++) {
            uint64_t epoch;
            if (sf_catalog_segment_of_key(entries[i].key, &epoch) && epoch > r->tail)
                r->tail = epoch;
        }
    }
    sf_buf_fini(&after);
    if (err == SF_OK && r->tail < r->base)
        err = sf_diag_set(r->diag, SF_ERR_CORRUPT,
                          "the chain ends at segment %llu, below checkpoint %llu",
                          (unsigned long long)r->tail,
                          (unsigned long long)r->restored->manifest->checkpoint_epoch);
    return err;
}

static void encode_takeover(struct sf_recovery *r, uint64_t slot, struct sf_catalog_put *put)
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
    put->cond = SF_MUTANT(ccs_takeover_overwrites) ? SF_PUT_ANY : SF_PUT_ABSENT;
    sf_catalog_put_encode(put, &segment.base, true, NULL);
    free(shards);
}

/* Appends the takeover record at the first free slot: that is the owner epoch. */
static enum sf_err take_over(struct sf_recovery *r)
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
           SF_KV_STR("mode", r->rebuild ? "rebuild" : "restart"),
           SF_KV_U64("checkpoint_epoch", r->restored == NULL ? 0 : r->restored->epoch));
    return SF_OK;
}

/* ---- transactions of the recovery --------------------------------------------------------- */

enum sf_err sf_recovery_transaction(struct sf_recovery *r, sf_recovery_fn fn, void *arg,
                                    bool claimed)
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

static enum sf_err begin_rows(struct sf_recovery *r, struct sf_sql_conn *conn, void *arg)
{
    (void)arg;
    if (!r->rebuild)
        return sf_catalog_project_owner(r->catalog, conn, false, 0, r->diag);
    return sf_catalog_project_claim(r->catalog, conn, r->foreign, r->diag);
}

/* The projection is about to be written as a whole, or was. */
static void bulk(struct sf_recovery *r, bool on)
{
    struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_WRITE);
    sf_sql_bulk(conn, on);
    sf_sql_release(conn);
}

/* ---- the end ------------------------------------------------------------------------------ */

static enum sf_err end_rows(struct sf_recovery *r, struct sf_sql_conn *conn, void *arg)
{
    struct sf_catalog *catalog = r->catalog;
    (void)arg;
    if (!r->rebuild)
        return sf_catalog_project_watermark(catalog, conn, catalog->owner_epoch, r->diag);
    enum sf_err err = sf_catalog_project_bump_bindings(conn, r->diag);
    if (err == SF_OK)
        err = sf_catalog_projectors_rebuilt(catalog, conn, r->diag);
    if (err == SF_OK)
        err = sf_catalog_heads_after_rebuild(conn, r->diag);
    if (err == SF_OK)
        err = sf_catalog_project_owner(catalog, conn, true, catalog->owner_epoch, r->diag);
    return err;
}

/* Somebody rebuilds the projection: to start now would end that rebuild, and starts that end each
 * other's would never come through. Waits a while for it; a dead one's claim is no reason to wait
 * for ever. */
static enum sf_err wait_for_rebuild(struct sf_recovery *r)
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
static enum sf_err look_at_projection(struct sf_recovery *r)
{
    uint64_t count = 0, low = 0, high = 0;
    struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_READ);
    enum sf_err err = sf_catalog_sql_shards(conn, r->diag, &count, &low, &high);
    sf_sql_release(conn);
    r->rebuild = count < r->catalog->lane_shards || low + 1 < r->lowest;
    r->base = low;
    return err;
}

/* Where the rebuild begins: at the checkpoint in turn, or at the first segment that counts. */
static enum sf_err choose_base(struct sf_recovery *r, size_t skip)
{
    r->restored = sf_catalog_checkpoint_pick(&r->checkpoints, r->lowest, skip);
    r->base = r->restored == NULL
                  ? r->lowest - 1
                  : r->restored->manifest->checkpoint_upper_bound_recovery_segment_epoch;
    if (r->restored == NULL && r->lowest > 1)
        return sf_diag_set(r->diag, SF_ERR_CORRUPT,
                           "segments below %llu are gone and no complete checkpoint holds them",
                           (unsigned long long)r->lowest);
    return SF_OK;
}

/* Finds base and tail of a rebuild. */
static enum sf_err begin_rebuild(struct sf_recovery *r)
{
    enum sf_err err =
        sf_catalog_checkpoints_list(r->catalog, r->sched, r->listed, r->diag, &r->checkpoints);
    if (err == SF_OK)
        err = choose_base(r, 0);
    return err == SF_OK ? find_tail(r) : err;
}

/* Base and tail of this start. */
static enum sf_err begin(struct sf_recovery *r)
{
    enum sf_err err = look_at_projection(r);
    if (err != SF_OK || r->rebuild)
        return err == SF_OK ? begin_rebuild(r) : err;
    err = find_tail(r);
    if (err == SF_OK && r->tail == r->base) {
        /* the watermark is the tail, or it is above the chain: then it is another store's */
        SF_PB(RecoverySegmentObject) *last = NULL;
        sf_arena_reset(r->arena);
        if (sf_recovery_segment(r, r->base, &last) == SF_ERR_CORRUPT) {
            r->rebuild = true;
            r->foreign = true;
            sf_diag_init(r->diag);
            err = begin_rebuild(r);
        }
    }
    return err;
}

/* Rows of the checkpoint, or of the one before when it does not verify. */
static enum sf_err restore(struct sf_recovery *r)
{
    enum sf_err err = SF_OK;
    for (size_t skip = 0; r->restored != NULL; skip++) {
        err = sf_recovery_restore(r);
        if (err != SF_ERR_CORRUPT)
            break;
        SF_LOG(ERROR, "catalog_checkpoint_broken",
               SF_KV_U64("checkpoint_epoch", r->restored->epoch),
               SF_KV_STR("error", r->diag->message));
        sf_diag_init(r->diag);
        err = choose_base(r, skip + 1);
        if (err == SF_OK)
            err = sf_recovery_transaction(r, begin_rows, NULL, false);
        if (err != SF_OK)
            break;
    }
    return err;
}

static enum sf_err recover(struct sf_recovery *r)
{
    struct sf_catalog *catalog = r->catalog;
    enum sf_err err = read_boundary(r);
    if (err == SF_OK)
        err = wait_for_rebuild(r);
    if (err == SF_OK)
        err = begin(r);
    if (err == SF_OK)
        err = take_over(r);
    if (err == SF_OK)
        err = sf_catalog_removals_adopt(catalog, r->sched, r->diag);
    if (err == SF_OK)
        err = sf_recovery_transaction(r, begin_rows, NULL, false);
    if (r->rebuild)
        bulk(r, true);
    if (err == SF_OK)
        err = restore(r);
    r->top = sf_calloc(catalog->lane_shards, sizeof(*r->top));
    if (err == SF_OK)
        err = sf_recovery_walk(r);
    if (err == SF_OK && r->rebuild)
        err = sf_recovery_families(r);
    if (err == SF_OK)
        err = sf_recovery_transaction(r, end_rows, NULL, true);
    if (r->rebuild)
        bulk(r, false);
    if (err == SF_OK) {
        sf_catalog_watermark_note(catalog, catalog->owner_epoch);
        atomic_store(&catalog->settled, catalog->owner_epoch);
    }
    atomic_store(&catalog->rebuilt, r->rebuild);
    free(r->top);
    return err;
}

enum sf_err sf_catalog_recover(struct sf_catalog *catalog, struct sf_sched *sched,
                               struct sf_diag *diag)
{
    struct sf_recovery r = {.catalog = catalog, .sched = sched, .diag = diag};
    int64_t begin_ms = sf_clock_mono_ms(catalog->deps.clock);
    r.arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    r.chunk = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    r.listed = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    catalog->ahead = sf_catalog_ahead_new();
    enum sf_err err = recover(&r);
    sf_catalog_ahead_destroy(catalog->ahead);
    catalog->ahead = NULL;
    sf_catalog_checkpoints_fini(&r.checkpoints);
    sf_arena_destroy(r.listed);
    sf_arena_destroy(r.chunk);
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
