/*
 * Model: the ids between lease.next and the watermark are a range that a standing state write
 * reserved for this owner. An issue-only group that fits takes its ids from there and writes its
 * replay-success objects alone; lease.next lives in memory only.
 *
 *   first range   rides on the state write of a group of a hot lane: its own ids, then the range
 *   next range    a state write of its own, sent when half of the last range is used; groups that
 *                 fit go on meanwhile, others wait for it, for a lane has one state write at a time
 *
 * The range always ends at the watermark. What moves the watermark otherwise ends the lease: a plan
 * with explicit ids (the tail is burned), an issue-only group that runs past the end (nothing is
 * left). A lane that leaves memory, closes or drains burns its tail; so does a crash, where nobody
 * is left to count it. A new owner never takes a recorded range over: it starts at the watermark.
 *
 * When the state has to be read again the lease is kept aside and goes on only if what was read is
 * the very state that was in hand, or this owner's own reservation that was in doubt. The state is
 * also read again before a lease is used whose owner was not proved for confirm_ms, so that a
 * process that stood still while another took over serves nothing from its range.
 *
 * An id whose put was sent is never handed out again, whatever became of the put: lease.next only
 * grows.
 */
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_artifacts.h"
#include "allocator/allocator_priv.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"

static const struct sf_alloc_lease_policy *policy_of(const struct sf_alloc_lane *lane)
{
    return &lane->shard->allocator->deps.leases;
}

static bool store_is_exclusive(const struct sf_alloc_lane *lane)
{
    return lane->shard->allocator->deps.store->exclusive;
}

static bool reserving(const struct sf_alloc_lane *lane)
{
    return lane->reserve != NULL && lane->reserve->busy;
}

static bool is_live(const struct sf_alloc_lane *lane)
{
    return lane->state == SF_LANE_READY && lane->in_hand.lease.live;
}

static struct sf_alloc_reserve *reserve_get(struct sf_alloc_lane *lane)
{
    if (lane->reserve == NULL)
        lane->reserve = sf_calloc(1, sizeof(*lane->reserve));
    return lane->reserve;
}

bool sf_alloc_lease_skips_lookup(const struct sf_alloc_lane *lane, const struct sf_alloc_op *op)
{
    return is_live(lane) && !store_is_exclusive(lane) && !sf_alloc_op_has_explicit(op);
}

bool sf_alloc_lease_covers(const struct sf_alloc_lane *lane)
{
    const struct sf_alloc_group *g = lane->group;
    uint64_t ids = 0;

    if (!is_live(lane))
        return false;
    for (size_t i = 0; i < g->count; i++) {
        if (sf_alloc_op_has_explicit(g->ops[i]))
            return false;
        ids += g->ops[i]->request.item_count;
    }
    return ids <= sf_watermark_between(lane->in_hand.lease.next, lane->in_hand.mark);
}

bool sf_alloc_lease_stale(const struct sf_alloc_lane *lane)
{
    if (store_is_exclusive(lane) || SF_MUTANT(alloc_lease_unconfirmed))
        return false;
    return lane->seen_version > lane->in_hand.version ||
           lane->shard->loop->now_ms - lane->confirmed_ms > (int64_t)policy_of(lane)->confirm_ms;
}

/* ---- counts ---- */

static void count_granted(struct sf_alloc_lane *lane, uint64_t ids)
{
    sf_lease_note_range(&lane->use, lane->shard->loop->now_ms, ids);
    atomic_fetch_add(&lane->shard->counters.leases_granted, 1);
    sf_metric_add(lane->shard->allocator->metrics.lease_granted, 1);
}

static void count_failed(struct sf_alloc_lane *lane)
{
    sf_metric_add(lane->shard->allocator->metrics.lease_failed, 1);
}

/* ---- ends of a lease ---- */

/* Ids of a lease are gone unused. */
static void tail_burn(struct sf_alloc_lane *lane, uint64_t ids)
{
    if (ids == 0)
        return;
    /* the one kind of caller that may allocate (ALLOCATOR_CALLER_PROFILE_ES_WRITE_GATEWAY_ONLY) */
    sf_alloc_count_burned(lane, SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY,
                          SF_BURN_LEASE_TAIL, ids);
    sf_metric_add(lane->shard->allocator->metrics.lease_discarded, 1);
}

static uint64_t tail_take(struct sf_alloc_state *state)
{
    if (!state->lease.live)
        return 0;
    state->lease.live = false;
    return sf_watermark_between(state->lease.next, state->mark);
}

void sf_alloc_lease_drop(struct sf_alloc_lane *lane)
{
    uint64_t ids = tail_take(&lane->in_hand);

    if (lane->reserve != NULL) {
        ids += tail_take(&lane->reserve->kept);
        if (lane->reserve->doubt)
            count_failed(lane);
        lane->reserve->doubt = false;
    }
    tail_burn(lane, ids);
}

void sf_alloc_lease_drop_all(struct sf_alloc_shard *s)
{
    struct sf_map_iter iter = {0};

    while (sf_map_next(s->lanes, &iter))
        sf_alloc_lease_drop(iter.value);
}

/* ---- the first range, on a group's state write ---- */

/* Extends `state`, which version names, by the next range; returns its ids. */
static uint64_t extend(struct sf_alloc_lane *lane, struct sf_alloc_state *state)
{
    uint64_t ids = sf_lease_range_ids(policy_of(lane), &lane->use, lane->shard->loop->now_ms);
    struct sf_watermark end = sf_watermark_up(state->mark, ids);

    ids = sf_watermark_between(state->mark, end);
    state->lease.split = state->mark;
    state->lease.start = state->lease.next;
    state->lease.epoch = state->version;
    state->mark = end;
    return ids;
}

static bool is_hot(const struct sf_alloc_lane *lane)
{
    return sf_lease_heat(policy_of(lane), &lane->use, lane->shard->loop->now_ms) == SF_LEASE_HOT;
}

void sf_alloc_lease_grant(struct sf_alloc_lane *lane)
{
    struct sf_alloc_group *g = lane->group;
    struct sf_alloc_state *after = &g->after;

    if (after->lease.live || after->mark.exhausted || !is_hot(lane))
        return;
    (void)reserve_get(lane);
    after->lease = (struct sf_alloc_lease){.live = true, .next = after->mark};
    g->grant_ids = extend(lane, after);
}

void sf_alloc_lease_stands(struct sf_alloc_lane *lane, bool was_owned)
{
    struct sf_alloc_group *g = lane->group;

    if (g->grant_ids != 0)
        count_granted(lane, g->grant_ids);
    tail_burn(lane, g->tail_ids);
    if (!was_owned && lane->foreign_lease)
        sf_metric_add(lane->shard->allocator->metrics.lease_discarded, 1);
    lane->foreign_lease = false;
    g->grant_ids = 0;
    g->tail_ids = 0;
}

void sf_alloc_lease_failed(struct sf_alloc_lane *lane)
{
    if (lane->group->grant_ids != 0)
        count_failed(lane);
    lane->group->grant_ids = 0;
}

/* ---- the next range, on a state write of its own ---- */

/* The reservation stands: the range is longer, what was handed out meanwhile stays so. */
static void reserve_stands(struct sf_alloc_lane *lane)
{
    struct sf_alloc_reserve *r = lane->reserve;
    struct sf_watermark next = lane->in_hand.lease.next;

    r->after.etag = r->put.etag;
    lane->in_hand = r->after;
    sf_alloc_note_state(lane);
    lane->in_hand.lease.next = next;
    lane->seen_version = r->after.version;
    lane->confirmed_ms = r->sent_ms;
    r->tries = 0;
    count_granted(lane, sf_watermark_between(r->after.lease.split, r->after.mark));
    sf_alloc_space_check(lane);
}

/* It did not go through, or perhaps it did. */
static void reserve_failed(struct sf_alloc_lane *lane, enum sf_err err)
{
    struct sf_alloc_reserve *r = lane->reserve;

    if (err == SF_ERR_PRECONDITION) {
        atomic_fetch_add(&lane->shard->counters.state_conflicts, 1);
        sf_metric_add(lane->shard->allocator->metrics.conflicts, 1);
    }
    if (err == SF_ERR_PRECONDITION || err == SF_ERR_AMBIGUOUS) {
        r->doubt = true; /* a 412 may be over this very write; the next group reads the state */
        sf_alloc_lane_forget(lane);
        return;
    }
    count_failed(lane);
    if (err != SF_ERR_UNAVAILABLE)
        SF_LOG(ERROR, "alloc_write_refused", SF_KV_VIEW("key", sf_buf_view(&lane->state_key)),
               SF_KV_STR("error", sf_err_info(err)->name));
    r->tries++;
    r->retry_ms = lane->shard->loop->now_ms + sf_alloc_pause_ms(lane->shard, r->tries);
}

static void reserve_done(struct sf_batch *batch)
{
    struct sf_alloc_reserve *r = SF_CONTAINER_OF(batch, struct sf_alloc_reserve, batch);
    struct sf_alloc_lane *lane = r->lane;

    SF_ASSERT(r->busy && lane->state == SF_LANE_READY);
    r->busy = false;
    sf_buf_fini(&r->body);
    if (r->put.err == SF_OK)
        reserve_stands(lane);
    else
        reserve_failed(lane, r->put.err);
    if (lane->group != NULL && lane->group->parked) {
        lane->group->parked = false;
        if (lane->state == SF_LANE_COLD)
            sf_alloc_lane_load(lane);
        else
            sf_alloc_group_plan(lane);
    } else {
        sf_alloc_lane_idle_check(lane);
    }
    sf_alloc_closed_one(lane->shard->allocator);
}

static void reserve_send(struct sf_alloc_lane *lane)
{
    struct sf_alloc_reserve *r = reserve_get(lane);
    struct sf_allocator *allocator = lane->shard->allocator;
    sf_replay_record *none = NULL;

    atomic_fetch_add(&allocator->open, 1); /* a drain waits for it */
    if (atomic_load(&allocator->draining)) {
        sf_alloc_closed_one(allocator);
        return;
    }
    r->lane = lane;
    r->busy = true;
    r->sent_ms = lane->shard->loop->now_ms;
    sf_alloc_state_follow(lane, &r->after);
    (void)extend(lane, &r->after);
    sf_attempts_next(allocator->deps.attempts, r->attempt);
    sf_alloc_state_encode(lane, &r->after, r->attempt, &none, 0, &r->body);
    sf_alloc_state_put_fill(lane, &r->body, &r->put);
    r->batch = (struct sf_batch){
        .puts = &r->put, .count = 1, .loop = lane->shard->loop, .done = reserve_done};
    if (SF_MUTANT(alloc_lease_unreserved))
        lane->in_hand.mark = r->after.mark;
    sf_store_submit(allocator->deps.store, &r->batch);
}

void sf_alloc_lease_look_ahead(struct sf_alloc_lane *lane)
{
    const struct sf_alloc_reserve *r = lane->reserve;
    const struct sf_alloc_state *state = &lane->in_hand;

    if (!is_live(lane) || state->mark.exhausted || reserving(lane) ||
        (r != NULL && lane->shard->loop->now_ms < r->retry_ms))
        return;
    if (sf_watermark_between(state->lease.next, state->mark) <= lane->use.range_ids / 2 &&
        is_hot(lane))
        reserve_send(lane);
}

/* ---- after a read of the state ---- */

/* A lease that another owner recorded: its range is below the watermark and stays burned. */
static void foreign_met(struct sf_alloc_lane *lane, const struct sf_alloc_loaded *loaded)
{
    char start[SF_ALLOC_DECIMAL_BYTES];
    char end[SF_ALLOC_DECIMAL_BYTES];

    lane->foreign_lease = loaded->lease_recorded && !lane->owned;
    if (!lane->foreign_lease)
        return;
    sf_watermark_text(loaded->state.lease.start, start);
    sf_watermark_text(loaded->state.mark, end);
    SF_LOG(INFO, "alloc_lease_ended", SF_KV_U64("namespace_id", lane->collection.namespace_id.v),
           SF_KV_U64("collection_id", lane->collection.collection_id.v),
           SF_KV_U64("allocation_epoch", loaded->state.epoch), SF_KV_STR("range_start", start),
           SF_KV_STR("range_end", end));
    if (SF_MUTANT(alloc_lease_inherited)) {
        (void)reserve_get(lane);
        lane->in_hand.lease = loaded->state.lease;
        lane->in_hand.lease.next = loaded->state.lease.start;
        lane->in_hand.lease.live = true;
        lane->confirmed_ms = lane->group->sent_ms;
    }
}

/* True when what was read is this owner's own reservation that was in doubt. */
static bool reservation_found(struct sf_alloc_lane *lane, const struct sf_alloc_loaded *loaded)
{
    struct sf_alloc_reserve *r = lane->reserve;

    if (!r->doubt)
        return false;
    r->doubt = false;
    if (lane->owned && loaded->attempt_id != NULL && strcmp(r->attempt, loaded->attempt_id) == 0) {
        count_granted(lane, sf_watermark_between(r->after.lease.split, r->after.mark));
        return true;
    }
    count_failed(lane);
    return false;
}

void sf_alloc_lease_loaded(struct sf_alloc_lane *lane, const struct sf_alloc_loaded *loaded)
{
    struct sf_alloc_reserve *r = lane->reserve;
    struct sf_alloc_state *in_hand = &lane->in_hand;

    in_hand->lease = (struct sf_alloc_lease){0};
    foreign_met(lane, loaded);
    if (r == NULL)
        return;
    struct sf_alloc_state kept = r->kept;
    bool reserved = reservation_found(lane, loaded);
    r->kept.lease.live = false;
    if (lane->group->adopt) { /* what the write in doubt left of the lease goes on from it */
        in_hand->lease = lane->group->after.lease;
        return;
    }
    if (lane->group->attempt[0] != '\0')
        sf_alloc_lease_failed(lane);
    if (!kept.lease.live)
        return;
    bool same = lane->owned && strcmp(kept.etag.text, in_hand->etag.text) == 0;
    if (same || (lane->owned && SF_MUTANT(alloc_lease_unchecked))) {
        in_hand->lease = kept.lease;
    } else if (reserved) {
        in_hand->lease = r->after.lease;
        in_hand->lease.next = kept.lease.next;
    } else {
        tail_burn(lane, tail_take(&kept));
    }
}
