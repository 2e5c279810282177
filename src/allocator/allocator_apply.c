/*
 * Model: a group's way through the phases.
 *
 *   start -> resolve -> admit -> (load -> resolve) -> plan -> write -> settle
 *
 * Resolve: each member is looked up among the answers remembered, in what is pending in the state
 * in hand, and at its replay-success object. What is found is answered and leaves.
 *
 * Admit: one conditional read of the admission facts for all members that are left. A refused
 * collection costs no read of the allocator's state. On a store of many owners a refusal is told
 * after a second look-up: a result that stood when the facts were read is the answer.
 *
 * Load: a lane without state in hand reads it and finishes what is pending there
 * (allocator_recover.c); then every member is looked up again, because another owner may have
 * finished it meanwhile.
 *
 * Plan: plans run in order on a copy of the state. A group that fits into the lane's lease
 * (allocator_lease.c) needs no write: its objects are sent at once. A refusal is told at once if
 * nothing before it moved the copy, else when the write stands, for it speaks of that write's
 * state.
 *
 * Write: one batch, the state object by compare-and-swap (stage 0), each member's replay-success
 * object create-only (stage 1). After a write that lost or is in doubt the state is forgotten and
 * loaded again before anything goes on.
 *
 * Settle: each member is answered when its own object stands (allocator_settle.c). Settling members
 * hold up neither the lane nor each other; the lane's next group runs meanwhile and carries their
 * records on in pending_applies until they stand.
 */
#include <stdlib.h>

#include "allocator/allocator_artifacts.h"
#include "allocator/allocator_priv.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "base/pb.h"

#define ADMISSION_METHOD "/searchfabric.v1.CatalogControlPrivateService/GetCollectionAdmissionState"
#define SPACE_LOW        (UINT64_C(1) << 32) /* ids left below which a collection is warned about */

/* ---- the group's members ---- */

void sf_alloc_group_remove(struct sf_alloc_lane *lane, size_t index)
{
    lane->group->ops[index] = NULL;
}

/* Closes the holes that sf_alloc_group_remove left. */
static void group_compact(struct sf_alloc_group *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->count; i++) {
        if (g->ops[i] == NULL)
            continue;
        g->ops[n] = g->ops[i];
        g->ops[n]->index = n;
        n++;
    }
    g->count = n;
}

static void group_add(struct sf_alloc_group *g, struct sf_alloc_op *op)
{
    if (g->count == g->cap) {
        g->cap = g->cap == 0 ? 8 : 2 * g->cap;
        g->ops = sf_realloc(g->ops, g->cap * sizeof(struct sf_alloc_op *));
    }
    op->phase = SF_OP_UNRESOLVED;
    op->unlooked = false;
    op->index = g->count;
    g->ops[g->count++] = op;
}

/* Refuses `op`, out of its group, with the error in its call's diag: at once if its key was looked
 * up. */
static void op_refuse_unstanding(struct sf_alloc_op *op)
{
    if (op->unlooked && !SF_MUTANT(alloc_lease_refuses_unlooked))
        sf_alloc_settle_refusal(op);
    else
        sf_alloc_op_refuse(op);
}

/* Refuses member `index` with a copy of `diag`. Between its look-up and the facts that refuse it
 * another owner may have made its result and answered it: it is looked up once more. */
static void member_refuse(struct sf_alloc_lane *lane, size_t index, const struct sf_diag *diag)
{
    struct sf_alloc_op *op = lane->group->ops[index];

    sf_alloc_group_remove(lane, index);
    *sf_call_diag(op->call) = *diag;
    if (sf_err_info(diag->err)->retry_same_key || lane->shard->allocator->deps.store->exclusive ||
        SF_MUTANT(alloc_refuses_at_once))
        op_refuse_unstanding(op);
    else
        sf_alloc_settle_refusal(op);
}

void sf_alloc_group_refuse(struct sf_alloc_lane *lane, const struct sf_diag *diag)
{
    for (size_t i = 0; i < lane->group->count; i++)
        if (lane->group->ops[i] != NULL)
            member_refuse(lane, i, diag);
    group_compact(lane->group);
    sf_alloc_lane_rest(lane);
}

void sf_alloc_group_fail(struct sf_alloc_lane *lane, bool outcome_unknown, const char *why)
{
    struct sf_alloc_group *g = lane->group;

    if (lane->state != SF_LANE_READY)
        sf_alloc_lane_forget(lane);
    for (size_t i = 0; i < g->count; i++) {
        struct sf_alloc_op *op = g->ops[i];
        if (op == NULL)
            continue;
        sf_alloc_group_remove(lane, i);
        sf_alloc_op_unavailable(op, outcome_unknown, why);
    }
    group_compact(g);
    sf_alloc_lane_rest(lane);
}

static void group_pause_over(struct sf_timer *timer)
{
    struct sf_alloc_lane *lane = SF_CONTAINER_OF(timer, struct sf_alloc_group, timer)->lane;
    lane->group->resume(lane);
}

void sf_alloc_group_again(struct sf_alloc_lane *lane, void (*resume)(struct sf_alloc_lane *lane),
                          bool outcome_unknown, const char *why)
{
    struct sf_alloc_group *g = lane->group;

    if (++g->tries >= SF_LIMIT_ALLOC_TRIES) {
        sf_alloc_group_fail(lane, outcome_unknown, why);
        return;
    }
    g->resume = resume;
    sf_timer_init(&g->timer, lane->shard->loop, group_pause_over);
    sf_timer_start(&g->timer, sf_alloc_pause_ms(lane->shard, g->tries));
}

/* The lane's group, made when it has none. */
static struct sf_alloc_group *group_get(struct sf_alloc_lane *lane)
{
    if (lane->group == NULL) {
        lane->group = sf_calloc(1, sizeof(*lane->group));
        lane->group->lane = lane;
    }
    return lane->group;
}

void sf_alloc_group_start(struct sf_alloc_lane *lane)
{
    struct sf_alloc_group *g = group_get(lane);
    size_t items = 0;

    lane->busy = true;
    g->count = 0;
    g->admission_asked = false;
    g->admitted = false;
    g->loaded = false;
    g->adopt = false;
    g->tries = 0;
    g->attempt[0] = '\0';
    while (lane->queue_head != NULL && g->count < SF_LIMIT_ALLOC_GROUP_OPS &&
           items < SF_LIMIT_ALLOC_GROUP_ITEMS) {
        struct sf_alloc_op *op = lane->queue_head;
        lane->queue_head = op->link;
        if (lane->queue_head == NULL)
            lane->queue_tail = &lane->queue_head;
        op->link = NULL;
        if (sf_call_cancelled(op->call)) {
            sf_diag_set(sf_call_diag(op->call), SF_CANCELLED, "the caller is gone");
            sf_alloc_op_refuse(op);
            continue;
        }
        items += op->request.item_count;
        group_add(g, op);
    }
    sf_alloc_group_resolve(lane);
}

/* ---- resolve ---- */

static void group_resolved(struct sf_alloc_lane *lane);

/* One lookup less is out. */
static void read_finished(struct sf_alloc_lane *lane)
{
    SF_ASSERT(lane->group->reads > 0);
    if (--lane->group->reads == 0)
        group_resolved(lane);
}

static void lookup_done(struct sf_get *get)
{
    struct sf_alloc_op *op = SF_CONTAINER_OF(get, struct sf_alloc_op, get);
    struct sf_alloc_lane *lane = op->lane;
    sf_replay_record *record = NULL;

    if (get->err == SF_ERR_NOT_FOUND) {
        op->phase = SF_OP_FRESH;
        read_finished(lane);
        return;
    }
    sf_alloc_group_remove(lane, op->index);
    if (get->err != SF_OK) {
        sf_alloc_op_unavailable(op, false, "the replay lookup failed");
        read_finished(lane);
        return;
    }
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    struct sf_diag *diag = sf_call_diag(op->call);
    if (sf_alloc_record_decode(sf_buf_view(&get->body), op->key, arena, diag, &record) != SF_OK)
        sf_alloc_op_refuse(op);
    else
        sf_alloc_op_settled(op, record, false);
    sf_arena_destroy(arena);
    read_finished(lane);
}

/* Looks one member up. */
static void member_resolve(struct sf_alloc_lane *lane, struct sf_alloc_op *op)
{
    const struct sf_alloc_answer *answer = sf_alloc_answer_get(lane->shard, op->key);
    if (answer != NULL) {
        sf_alloc_group_remove(lane, op->index);
        sf_alloc_op_stand(op, answer->fingerprint, sf_view_bytes(answer->packed, answer->len),
                          false);
        return;
    }
    const struct sf_alloc_pending *pending =
        lane->state == SF_LANE_READY ? sf_alloc_pending_find(lane, op->key) : NULL;
    if (op->object_key.len == 0)
        sf_alloc_replay_key(op->key, &op->object_key);
    if (pending != NULL && !SF_MUTANT(alloc_resolve_skips_pending)) {
        sf_alloc_group_remove(lane, op->index);
        sf_alloc_settle_pending(op, pending);
        return;
    }
    if (sf_alloc_lease_skips_lookup(lane, op)) {
        op->phase = SF_OP_FRESH;
        op->unlooked = true;
        return;
    }
    op->unlooked = false;
    op->phase = SF_OP_READING;
    sf_buf_clear(&op->get.body);
    op->get.key = sf_buf_view(&op->object_key);
    op->get.loop = lane->shard->loop;
    op->get.done = lookup_done;
    lane->group->reads++;
    if (sf_store_get_cached(lane->shard->allocator->deps.store, &op->get))
        lookup_done(&op->get);
    else
        sf_store_get(lane->shard->allocator->deps.store, &op->get);
}

void sf_alloc_group_resolve(struct sf_alloc_lane *lane)
{
    struct sf_alloc_group *g = lane->group;

    g->reads = 1;
    for (size_t i = 0; i < g->count; i++)
        if (g->ops[i] != NULL && g->ops[i]->phase == SF_OP_UNRESOLVED)
            member_resolve(lane, g->ops[i]);
    read_finished(lane);
}

/* ---- admit ---- */

/* Goes on with members that are admitted, or whose admission is not needed any more. */
static void group_go_on(struct sf_alloc_lane *lane)
{
    group_compact(lane->group);
    if (lane->group->count == 0)
        sf_alloc_lane_rest(lane);
    else if (lane->state == SF_LANE_COLD)
        sf_alloc_lane_load(lane);
    else
        sf_alloc_group_plan(lane);
}

/* What an error of the catalog means here. */
static void admission_error(const struct sf_diag *from, struct sf_diag *diag)
{
    if (from->err == SF_RESOURCE_NOT_FOUND) {
        sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such collection");
        return;
    }
    const char *reason = sf_diag_get(from, "catalog_unavailable_reason");
    sf_diag_set(diag, SF_CATALOG_UNAVAILABLE, "admission facts cannot be read: %s", from->message);
    sf_diag_area(diag, "allocator");
    sf_diag_detail(diag, "catalog_unavailable_reason", "%s",
                   reason == NULL || from->err != SF_CATALOG_UNAVAILABLE
                       ? "admission_facts_unavailable"
                       : reason);
}

/* Takes the facts of an answer over. */
static enum sf_err admission_read(struct sf_alloc_lane *lane,
                                  const Searchfabric__V1__GetCollectionAdmissionStateResponse *r,
                                  struct sf_diag *diag)
{
    if (r->result_case ==
        SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_NOT_MODIFIED) {
        if (lane->facts_known)
            return SF_OK;
    } else if (r->result_case ==
               SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_STATE) {
        sf_alloc_facts_fini(&lane->facts);
        enum sf_err err = sf_alloc_facts_read(r->state, lane->collection, &lane->facts, diag);
        lane->facts_known = err == SF_OK && lane->facts.etag[0] != '\0';
        return err;
    }
    sf_diag_set(diag, SF_CATALOG_UNAVAILABLE, "the catalog answered without facts");
    sf_diag_area(diag, "allocator");
    sf_diag_detail(diag, "catalog_unavailable_reason", "admission_facts_incomplete");
    return SF_CATALOG_UNAVAILABLE;
}

static void admission_done(void *user, const struct sf_diag *from, const ProtobufCMessage *response)
{
    struct sf_alloc_lane *lane = user;
    struct sf_alloc_group *g = lane->group;
    struct sf_allocator *allocator = lane->shard->allocator;
    struct sf_diag diag;

    int64_t took_ns = sf_clock_mono_ns(allocator->deps.clock) - g->ccs_started_ns;
    sf_metric_observe_ms(allocator->metrics.ccs, (double)took_ns / 1e6);
    sf_diag_init(&diag);
    if (from->err != SF_OK)
        admission_error(from, &diag);
    else
        (void)admission_read(lane, (const void *)response, &diag);
    if (diag.err != SF_OK) {
        sf_alloc_group_refuse(lane, &diag);
        return;
    }
    g->admitted = true;
    for (size_t i = 0; i < g->count; i++) {
        sf_diag_init(&diag);
        if (sf_alloc_admit(&lane->facts, &g->ops[i]->request, &diag) != SF_OK)
            member_refuse(lane, i, &diag);
    }
    group_go_on(lane);
}

static void group_admit(struct sf_alloc_lane *lane)
{
    struct sf_alloc_group *g = lane->group;
    struct sf_allocator *allocator = lane->shard->allocator;
    struct sf_call_options options = {.timeout_ms = allocator->deps.limits.catalog_timeout_ms};

    g->ccs_ref = (Searchfabric__V1__CollectionRef)SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    g->ccs_ref.namespace_id = lane->collection.namespace_id.v;
    g->ccs_ref.collection_id = lane->collection.collection_id.v;
    g->ccs_request = (Searchfabric__V1__GetCollectionAdmissionStateRequest)
        SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_REQUEST__INIT;
    g->ccs_request.collection = &g->ccs_ref;
    if (lane->facts_known) {
        g->ccs_request._known_descriptor_etag_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_REQUEST___KNOWN_DESCRIPTOR_ETAG_KNOWN_DESCRIPTOR_ETAG;
        g->ccs_request.known_descriptor_etag = lane->facts.etag;
        g->ccs_request._known_collection_name_binding_revision_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_REQUEST___KNOWN_COLLECTION_NAME_BINDING_REVISION_KNOWN_COLLECTION_NAME_BINDING_REVISION;
        g->ccs_request.known_collection_name_binding_revision = lane->facts.binding_revision;
    }
    for (size_t i = 0; i < g->count; i++)
        g->ops[i]->ccs_read = true;
    g->ccs_started_ns = sf_clock_mono_ns(allocator->deps.clock);
    sf_channel_unary(allocator->deps.catalog, ADMISSION_METHOD, &g->ccs_request.base, &options,
                     lane->shard->loop, admission_done, lane);
}

static void group_resolved(struct sf_alloc_lane *lane)
{
    group_compact(lane->group);
    if (lane->group->count != 0 && !lane->group->admitted &&
        !(lane->facts_known && SF_MUTANT(alloc_old_facts)))
        group_admit(lane);
    else
        group_go_on(lane);
}

/* ---- plan and write ---- */

void sf_alloc_space_check(struct sf_alloc_lane *lane)
{
    const struct sf_watermark *mark = &lane->in_hand.mark;

    if (lane->space_warned || (!mark->exhausted && UINT64_MAX - mark->next >= SPACE_LOW))
        return;
    lane->space_warned = true;
    SF_LOG(WARN, "alloc_space_low", SF_KV_U64("namespace_id", lane->collection.namespace_id.v),
           SF_KV_U64("collection_id", lane->collection.collection_id.v),
           SF_KV_U64("remaining", mark->exhausted ? 0 : UINT64_MAX - mark->next + 1));
}

/* The state write stands: tells refusals that waited for it, lets go of the members. */
static void group_stands(struct sf_alloc_lane *lane, bool batch_was_whole)
{
    struct sf_alloc_group *g = lane->group;
    size_t put = 1;
    bool was_owned = lane->owned;

    lane->in_hand = g->after;
    lane->owned = true;
    lane->confirmed_ms = g->sent_ms;
    lane->epoch = g->after.epoch;
    lane->seen_version = g->after.version;
    lane->state = SF_LANE_READY;
    g->attempt[0] = '\0';
    sf_alloc_space_check(lane);
    sf_alloc_lease_stands(lane, was_owned);
    sf_alloc_note_state(lane);
    atomic_fetch_add(&lane->shard->counters.groups, 1);
    for (size_t i = 0; i < g->count; i++) {
        struct sf_alloc_op *op = g->ops[i];
        sf_alloc_group_remove(lane, i);
        if (op->phase == SF_OP_REFUSED) {
            op_refuse_unstanding(op);
            continue;
        }
        op->phase = SF_OP_SETTLING;
        op->tries = 0;
        if (batch_was_whole)
            sf_alloc_settle_result(op, g->puts[put++].err);
        else
            sf_alloc_settle_send(op);
    }
    group_compact(g);
    sf_alloc_lane_rest(lane);
}

void sf_alloc_group_adopt(struct sf_alloc_lane *lane, const struct sf_etag *etag)
{
    lane->group->after.etag = *etag;
    group_stands(lane, false);
}

static void write_done(struct sf_batch *batch)
{
    struct sf_alloc_lane *lane = SF_CONTAINER_OF(batch, struct sf_alloc_group, batch)->lane;
    struct sf_alloc_group *g = lane->group;
    enum sf_err err = g->puts[0].err;

    if (err == SF_ERR_AMBIGUOUS && SF_MUTANT(alloc_doubt_is_applied)) {
        group_stands(lane, false);
        return;
    }
    switch (err) {
    case SF_OK:
        g->after.etag = g->puts[0].etag;
        group_stands(lane, true);
        break;
    case SF_ERR_UNAVAILABLE: /* certain: nothing moved, the state in hand is still the one */
        sf_alloc_lease_failed(lane);
        sf_alloc_group_fail(lane, false, "the state write failed");
        break;
    case SF_ERR_PRECONDITION:
        atomic_fetch_add(&lane->shard->counters.state_conflicts, 1);
        sf_metric_add(lane->shard->allocator->metrics.conflicts, 1);
        sf_alloc_lane_forget(lane);
        sf_alloc_group_again(lane, sf_alloc_lane_load, false, "the state kept moving");
        break;
    case SF_ERR_AMBIGUOUS:
        sf_alloc_lane_forget(lane);
        sf_alloc_group_again(lane, sf_alloc_lane_load, true, "the state write is in doubt");
        break;
    default:
        sf_alloc_lease_failed(lane);
        SF_LOG(ERROR, "alloc_write_refused", SF_KV_VIEW("key", sf_buf_view(&lane->state_key)),
               SF_KV_STR("error", sf_err_info(err)->name));
        sf_alloc_group_fail(lane, false, "the state write was refused");
    }
}

void sf_alloc_state_follow(struct sf_alloc_lane *lane, struct sf_alloc_state *after)
{
    int64_t now = sf_clock_unix_ms(lane->shard->allocator->deps.clock);

    *after = lane->in_hand;
    after->exists = true;
    after->version++;
    bool stays = lane->owned || (after->epoch > 0 && SF_MUTANT(alloc_epoch_stays));
    after->epoch = stays ? after->epoch : after->epoch + 1;
    if (now > after->updated_at_unix_ms)
        after->updated_at_unix_ms = now;
}

/* Starts the plans: what the state is once the group's write stands, or, within a lease, when they
 * ran. */
static void plans_begin(struct sf_alloc_lane *lane, bool local)
{
    const struct sf_allocator_deps *deps = &lane->shard->allocator->deps;
    struct sf_alloc_group *g = lane->group;

    g->local = local;
    g->grant_ids = 0;
    g->tail_ids = 0;
    g->applied_at_unix_ms =
        sf_clock_unix_ms(deps->applied_clock == NULL ? deps->clock : deps->applied_clock);
    if (local)
        g->after = lane->in_hand;
    else
        sf_alloc_state_follow(lane, &g->after);
}

/* Where a plan starts: explicit ids go past the lease, issue items into it. */
static struct sf_watermark plan_start(const struct sf_alloc_state *after, bool is_explicit)
{
    return is_explicit || !after->lease.live ? after->mark : after->lease.next;
}

/* A plan ran up to `end`: moves the copy. */
static void plan_moves(struct sf_alloc_lane *lane, const struct sf_alloc_op *op,
                       struct sf_watermark end)
{
    struct sf_alloc_state *after = &lane->group->after;
    int64_t now_ms = lane->shard->loop->now_ms;

    if (sf_alloc_op_has_explicit(op)) {
        sf_lease_note_explicit(&lane->use, now_ms);
        lane->explicit_unix_ms = lane->group->applied_at_unix_ms;
        if (after->lease.live)
            lane->group->tail_ids += sf_watermark_between(after->lease.next, after->mark);
        if (!SF_MUTANT(alloc_lease_survives_explicit))
            after->lease.live = false;
        after->mark = end;
        return;
    }
    sf_lease_note_issue(&lane->use, now_ms, op->request.item_count);
    if (after->lease.live && sf_watermark_compare(end, after->mark) <= 0) {
        after->lease.next = end;
        return;
    }
    after->lease.live = false;
    after->mark = end;
}

/* True when the refusal could be due to state in hand that another owner has moved on from: too far
 * above an old watermark may be within reach of the new one. Below it is below it for ever. */
static bool refusal_is_stale(const struct sf_alloc_lane *lane, enum sf_err err)
{
    return err == SF_TOO_MANY_OPERATIONS && !lane->group->loaded &&
           !lane->shard->allocator->deps.store->exclusive && !SF_MUTANT(alloc_stale_window);
}

/* Runs one member's plan on the copy; false when it is refused, the reason in its call's diag. */
static bool member_plan(struct sf_alloc_lane *lane, struct sf_alloc_op *op)
{
    struct sf_alloc_state *after = &lane->group->after;
    struct sf_watermark before = plan_start(after, sf_alloc_op_has_explicit(op));
    struct sf_watermark end = before;
    struct sf_diag *diag = sf_call_diag(op->call);

    sf_diag_init(diag);
    enum sf_err err = sf_alloc_plan_run(op->request.items, op->request.item_count,
                                        lane->facts.max_jump, &end, diag);
    if (err == SF_OK) {
        op->record = sf_alloc_record_build(op, after);
        if (op->record != NULL) {
            const struct sf_plan_item *last = &op->request.items[op->request.item_count - 1];
            op->gap = last->doc_id - before.next - (op->request.item_count - 1);
            op->phase = SF_OP_PLANNED;
            plan_moves(lane, op, end);
            sf_alloc_op_encode(op);
            return true;
        }
        sf_diag_set(diag, SF_ERR_LIMIT, "the request does not fit its arena");
    }
    op->phase = SF_OP_REFUSED;
    return false;
}

void sf_alloc_state_put_fill(struct sf_alloc_lane *lane, const struct sf_buf *body,
                             struct sf_put *out_put)
{
    *out_put =
        (struct sf_put){.key = sf_buf_view(&lane->state_key),
                        .body = sf_buf_view(body),
                        .cond = lane->in_hand.exists ? SF_PUT_MATCH : SF_PUT_ABSENT,
                        .match = lane->in_hand.etag,
                        .absent_mark = lane->group == NULL ? 0 : lane->group->get.absent_mark,
                        .command = SF_COMMAND_ALL};
    if (SF_MUTANT(alloc_state_unconditional))
        out_put->cond = SF_PUT_ANY;
}

/* Sends the state object and the planned members' objects as one batch. */
static void group_write(struct sf_alloc_lane *lane, size_t planned)
{
    struct sf_alloc_group *g = lane->group;
    struct sf_allocator *allocator = lane->shard->allocator;
    sf_replay_record **fresh = sf_malloc((planned + 1) * sizeof(sf_replay_record *));
    size_t fresh_count = 0;
    size_t n = 1;

    if (g->put_cap < planned + 1) {
        g->put_cap = planned + 1;
        g->puts = sf_realloc(g->puts, g->put_cap * sizeof(*g->puts));
    }
    for (size_t i = 0; i < g->count; i++) {
        struct sf_alloc_op *op = g->ops[i];
        if (op->phase != SF_OP_PLANNED)
            continue;
        if (sf_alloc_op_has_explicit(op))
            fresh[fresh_count++] = op->record;
        sf_alloc_op_put_fill(op, &g->puts[n]);
        g->puts[n].stage = 1;
        g->puts[n].command = (uint32_t)n;
        n++;
    }
    sf_attempts_next(allocator->deps.attempts, g->attempt);
    sf_buf_clear(&g->body);
    sf_alloc_state_encode(lane, &g->after, g->attempt, fresh, fresh_count, &g->body);
    free(fresh);
    sf_alloc_state_put_fill(lane, &g->body, &g->puts[0]);
    g->sent_ms = lane->shard->loop->now_ms;
    g->batch = (struct sf_batch){
        .puts = g->puts, .count = n, .loop = lane->shard->loop, .done = write_done};
    sf_store_submit(allocator->deps.store, &g->batch);
}

/* True when what is pending must be finished before more is added to the state object. */
static bool pending_is_full(const struct sf_alloc_lane *lane)
{
    size_t bytes = 0;

    for (size_t i = 0; i < lane->pending_count; i++)
        bytes += lane->pending[i].record.len;
    return lane->pending_count >= SF_LIMIT_ALLOC_PENDING || bytes >= SF_LIMIT_ALLOC_PENDING_BYTES;
}

/* The lease holds ids for all: runs the plans and sends their objects, each on its own. */
static void group_plan_local(struct sf_alloc_lane *lane)
{
    struct sf_alloc_group *g = lane->group;

    plans_begin(lane, true);
    for (size_t i = 0; i < g->count; i++) {
        struct sf_alloc_op *op = g->ops[i];
        bool planned = member_plan(lane, op);
        sf_alloc_group_remove(lane, i);
        if (!planned) {
            op_refuse_unstanding(op);
            continue;
        }
        lane->in_hand.lease.next = g->after.lease.next;
        op->phase = SF_OP_SETTLING;
        op->tries = 0;
        sf_alloc_settle_send(op);
    }
    group_compact(g);
    sf_alloc_lease_look_ahead(lane);
    sf_alloc_lane_rest(lane);
}

/* The lease must not be used before the ownership is proved: reads the state again. */
static void group_confirm(struct sf_alloc_lane *lane)
{
    bool again = lane->group->loaded; /* and the read took too long */

    sf_alloc_lane_forget(lane);
    if (again)
        sf_alloc_group_again(lane, sf_alloc_lane_load, false, "the ownership cannot be proved");
    else
        sf_alloc_lane_load(lane);
}

void sf_alloc_group_plan(struct sf_alloc_lane *lane)
{
    struct sf_alloc_group *g = lane->group;
    bool covered = sf_alloc_lease_covers(lane);
    size_t planned = 0;

    if (covered && !sf_alloc_lease_stale(lane)) {
        group_plan_local(lane);
        return;
    }
    if (lane->reserve != NULL && lane->reserve->busy) {
        g->parked = true;
        return;
    }
    if (covered) {
        group_confirm(lane);
        return;
    }
    if (pending_is_full(lane)) {
        sf_alloc_lane_roll(lane);
        return;
    }
    plans_begin(lane, false);
    for (size_t i = 0; i < g->count; i++) {
        struct sf_alloc_op *op = g->ops[i];
        if (member_plan(lane, op)) {
            planned++;
        } else if (planned == 0 && refusal_is_stale(lane, sf_call_diag(op->call)->err)) {
            group_compact(g);
            sf_alloc_lane_forget(lane);
            sf_alloc_lane_load(lane);
            return;
        } else if (planned == 0) {
            sf_alloc_group_remove(lane, i);
            op_refuse_unstanding(op);
        }
    }
    group_compact(g);
    if (planned == 0) {
        sf_alloc_lane_rest(lane);
        return;
    }
    sf_alloc_lease_grant(lane);
    group_write(lane, planned);
}
