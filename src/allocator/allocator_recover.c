/*
 * Model: how a lane gets its state in hand.
 *
 *   read the state object -> who owns it? -> roll what is pending forward -> go on
 *
 * Ownership. A process owns a lane from its first state write on; that write carries an
 * allocation_epoch one above what it read. Meeting a higher epoch than its own later, the process
 * is deposed and closes the lane. A lane that this process owned, dropped from memory and reads
 * again is known by the owner id in the object.
 *
 * Roll-forward. A pending apply is complete: its replay-success object is created (412 = it stands
 * already). Only then is anything admitted, so that the retry of an explicit plan meets its own
 * result and not its own burn. What cannot be finished stops the lane for the group at hand.
 *
 * Restore. State that was last written before the restore mark stays closed until an operator had
 * it reconciled with its replay objects (allocator_verify.c).
 *
 * Doubt. The group whose write was in doubt looks for its own attempt in what it reads. Standing:
 * the group goes on from there. Not: nothing is settled, the late put may still land; every member
 * is looked up again and a new write goes out under the condition of what was read, so that one of
 * the two stands and the other fails.
 */
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_artifacts.h"
#include "allocator/allocator_priv.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "base/pb.h"

/* The state is in hand and nothing unfinished is in it. */
static void lane_loaded(struct sf_alloc_lane *lane)
{
    struct sf_alloc_group *g = lane->group;

    lane->state = SF_LANE_READY;
    if (g->adopt) {
        g->adopt = false;
        sf_alloc_group_adopt(lane, &lane->in_hand.etag);
        return;
    }
    g->attempt[0] = '\0';
    for (size_t i = 0; i < g->count; i++)
        if (!SF_MUTANT(alloc_resolves_once))
            g->ops[i]->phase = SF_OP_UNRESOLVED;
    sf_alloc_group_resolve(lane);
}

void sf_alloc_roll_free(struct sf_alloc_group *g)
{
    for (size_t i = 0; i < g->roll_count; i++) {
        sf_buf_fini(&g->rolls[i].body);
        sf_buf_fini(&g->rolls[i].object_key);
    }
    free(g->rolls);
    g->rolls = NULL;
    g->roll_count = 0;
}

static void roll_done(struct sf_batch *batch)
{
    struct sf_alloc_lane *lane = SF_CONTAINER_OF(batch, struct sf_alloc_group, batch)->lane;
    struct sf_alloc_group *g = lane->group;
    bool all = true;

    for (size_t i = 0; i < g->roll_count; i++) {
        enum sf_err err = g->puts[i].err;
        if (err != SF_OK && err != SF_ERR_PRECONDITION) {
            all = false;
            continue;
        }
        if (err == SF_OK) {
            atomic_fetch_add(&lane->shard->counters.rolled_forward, 1);
            sf_alloc_note_rolled(lane, sf_alloc_pending_find(lane, g->rolls[i].key));
        }
        sf_alloc_pending_del(lane, g->rolls[i].key);
    }
    sf_alloc_roll_free(g);
    if (all)
        lane_loaded(lane);
    else
        sf_alloc_group_again(lane, sf_alloc_lane_roll, false, "pending applies cannot be finished");
}

/* Prepares the object of one pending apply. */
static void roll_fill(struct sf_alloc_lane *lane, const struct sf_alloc_pending *pending,
                      struct sf_alloc_roll *roll)
{
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    ProtobufCMessage *message = NULL;
    char attempt[SF_ATTEMPT_ID_BYTES];
    enum sf_err err = sf_pb_unpack(&searchfabric__v1__allocator_replay_success_object__descriptor,
                                   sf_buf_view(&pending->record), arena, NULL, &message);

    SF_ASSERT(err == SF_OK); /* packed by this process */
    memcpy(roll->key, pending->key, sizeof(roll->key));
    sf_attempts_next(lane->shard->allocator->deps.attempts, attempt);
    sf_alloc_record_encode((sf_replay_record *)message, attempt, &roll->body);
    sf_alloc_replay_key(pending->key, &roll->object_key);
    sf_arena_destroy(arena);
}

void sf_alloc_lane_roll(struct sf_alloc_lane *lane)
{
    struct sf_alloc_group *g = lane->group;
    size_t count = lane->pending_count;

    if (count == 0) {
        lane_loaded(lane);
        return;
    }
    if (g->put_cap < count) {
        g->put_cap = count;
        g->puts = sf_realloc(g->puts, count * sizeof(*g->puts));
    }
    g->rolls = sf_calloc(count, sizeof(*g->rolls));
    g->roll_count = count;
    for (size_t i = 0; i < count; i++) {
        roll_fill(lane, &lane->pending[i], &g->rolls[i]);
        g->puts[i] = (struct sf_put){.key = sf_buf_view(&g->rolls[i].object_key),
                                     .body = sf_buf_view(&g->rolls[i].body),
                                     .cond = SF_PUT_ABSENT,
                                     .command = (uint32_t)i};
    }
    g->batch = (struct sf_batch){
        .puts = g->puts, .count = count, .loop = lane->shard->loop, .done = roll_done};
    sf_store_submit(lane->shard->allocator->deps.store, &g->batch);
}

/* Ends the lane: the group at hand is told to come back, elsewhere. */
static void lane_lost(struct sf_alloc_lane *lane, uint64_t newer_epoch)
{
    sf_alloc_lane_close(lane, newer_epoch);
    sf_alloc_group_fail(lane, false, "this process no longer owns the collection");
}

/* Decides ownership from what was read; false when the lane was closed. */
static bool ownership_check(struct sf_alloc_lane *lane, const struct sf_alloc_loaded *loaded)
{
    const char *process = lane->shard->allocator->deps.attempts->process;
    bool ours = loaded->owner_id != NULL && strcmp(loaded->owner_id, process) == 0;

    if (loaded->state.version < lane->seen_version && !SF_MUTANT(alloc_follows_older_state)) {
        SF_LOG(ERROR, "alloc_state_went_back",
               SF_KV_U64("namespace_id", lane->collection.namespace_id.v),
               SF_KV_U64("collection_id", lane->collection.collection_id.v),
               SF_KV_U64("seen_version", lane->seen_version),
               SF_KV_U64("allocator_state_version", loaded->state.version));
        lane_lost(lane, loaded->state.epoch);
        return false;
    }
    lane->seen_version = loaded->state.version;
    if (lane->owned && !ours && !SF_MUTANT(alloc_ignores_newer_owner)) {
        lane_lost(lane, loaded->state.epoch);
        return false;
    }
    lane->owned = ours;
    lane->epoch = loaded->state.epoch;
    if (ours)
        lane->confirmed_ms = lane->group->sent_ms;
    return true;
}

/* Takes what was read over and goes on. */
static void loaded_take(struct sf_alloc_lane *lane, const struct sf_alloc_loaded *loaded,
                        const struct sf_etag *etag)
{
    struct sf_alloc_group *g = lane->group;

    if (!ownership_check(lane, loaded))
        return;
    g->loaded = true;
    g->adopt = g->attempt[0] != '\0' && loaded->attempt_id != NULL &&
               strcmp(g->attempt, loaded->attempt_id) == 0;
    lane->in_hand = loaded->state;
    lane->in_hand.exists = etag != NULL;
    if (etag != NULL)
        lane->in_hand.etag = *etag;
    sf_alloc_lease_loaded(lane, loaded);
    for (size_t i = 0; i < loaded->pending_count; i++)
        sf_alloc_pending_add(lane, loaded->pending[i]);
    if (SF_MUTANT(alloc_skips_roll_forward))
        lane_loaded(lane);
    else
        sf_alloc_lane_roll(lane);
}

/* The state is older than the last restore from a backup: it may lie behind ids that were given. */
static void lane_unverified(struct sf_alloc_lane *lane)
{
    struct sf_diag diag;

    SF_LOG(WARN, "alloc_lane_unverified",
           SF_KV_U64("namespace_id", lane->collection.namespace_id.v),
           SF_KV_U64("collection_id", lane->collection.collection_id.v));
    sf_diag_init(&diag);
    sf_diag_set(&diag, SF_BACKEND_UNAVAILABLE,
                "allocator state is older than the restore mark: verify it first");
    sf_diag_area(&diag, "allocator");
    sf_diag_detail(&diag, "failing_authority", "allocator_state");
    sf_diag_detail(&diag, "outcome_unknown", "false");
    sf_alloc_group_refuse(lane, &diag);
}

/* Decodes what was read. On SF_OK *out_restored is the time of the restore mark, 0 without one. */
static enum sf_err load_decode(struct sf_alloc_lane *lane, struct sf_arena *arena,
                               struct sf_diag *diag, struct sf_alloc_loaded *out_loaded,
                               int64_t *out_restored)
{
    const struct sf_get *get = &lane->group->get;
    const struct sf_get *mark_get = &lane->group->mark_get;
    enum sf_err err = SF_OK;

    *out_restored = 0;
    if (mark_get->err == SF_OK)
        err = sf_alloc_mark_decode(sf_buf_view(&mark_get->body), arena, diag, out_restored);
    if (err != SF_OK)
        return err;
    if (get->err == SF_OK)
        return sf_alloc_state_decode(sf_buf_view(&get->body), lane, arena, diag, out_loaded);
    sf_buf_clear(&lane->unknown);
    return SF_OK;
}

static bool read_failed(const struct sf_get *get)
{
    return get->err != SF_OK && get->err != SF_ERR_NOT_FOUND;
}

/* Both reads are back. */
static void load_finish(struct sf_alloc_lane *lane)
{
    const struct sf_get *get = &lane->group->get;
    struct sf_alloc_loaded loaded = {0};
    int64_t restored = 0;
    struct sf_diag diag;

    if (read_failed(get) || read_failed(&lane->group->mark_get)) {
        sf_alloc_group_again(lane, sf_alloc_lane_load, lane->group->attempt[0] != '\0',
                             "the state cannot be read");
        return;
    }
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    sf_diag_init(&diag);
    if (load_decode(lane, arena, &diag, &loaded, &restored) != SF_OK) {
        SF_LOG(ERROR, "alloc_state_corrupt", SF_KV_VIEW("key", sf_buf_view(&lane->state_key)),
               SF_KV_STR("why", diag.message));
        sf_alloc_group_refuse(lane, &diag);
    } else if (get->err == SF_OK && loaded.state.updated_at_unix_ms < restored &&
               !SF_MUTANT(alloc_ignores_restore_mark)) {
        lane_unverified(lane);
    } else {
        loaded_take(lane, &loaded, get->err == SF_OK ? &get->etag : NULL);
    }
    sf_arena_destroy(arena);
}

static void load_one_done(struct sf_alloc_lane *lane)
{
    if (--lane->group->loads == 0)
        load_finish(lane);
}

static void load_done(struct sf_get *get)
{
    load_one_done(SF_CONTAINER_OF(get, struct sf_alloc_group, get)->lane);
}

static void mark_done(struct sf_get *get)
{
    load_one_done(SF_CONTAINER_OF(get, struct sf_alloc_group, mark_get)->lane);
}

/* Asks for one object of the two; the second answer may end the group before this returns. */
static void load_send(struct sf_alloc_lane *lane, struct sf_get *get, struct sf_view key,
                      sf_get_done_fn done)
{
    sf_buf_clear(&get->body);
    get->key = key;
    get->loop = lane->shard->loop;
    get->done = done;
    if (sf_store_get_cached(lane->shard->allocator->deps.store, get))
        done(get);
    else
        sf_store_get(lane->shard->allocator->deps.store, get);
}

void sf_alloc_lane_load(struct sf_alloc_lane *lane)
{
    struct sf_alloc_group *g = lane->group;

    SF_ASSERT(lane->state == SF_LANE_COLD);
    sf_alloc_lane_forget(lane);
    g->loads = 2;
    g->sent_ms = lane->shard->loop->now_ms;
    load_send(lane, &g->mark_get, sf_view_str(SF_ALLOC_RESTORE_MARK_KEY), mark_done);
    load_send(lane, &g->get, sf_buf_view(&lane->state_key), load_done);
}
