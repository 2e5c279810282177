/*
 * Model: a shard holds the lanes of one loop. A request that arrives either joins the one with the
 * same key that is already under way, or leads: it is queued at its lane. A lane runs one group at
 * a time; while it runs, the next one gathers. A lane without requests is idle and may be dropped
 * to make room: all it knows stands in its state object. A closed lane leaves last, so that a
 * deposed process does not come back by forgetting that it was deposed while there is room.
 *
 * When a leader's answer stands, those that joined get the same bytes if their payload is the same,
 * else a conflict. When it is refused nothing stands under the key: equal requests that were there
 * when the facts were asked for share the refusal, the others run on their own.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_priv.h"
#include "allocator/allocator_retention.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pb.h"

/* Key of a lane in the shard's map. */
struct lane_key {
    uint64_t namespace_id;  /* of the collection */
    uint64_t collection_id; /* in it */
};

static struct lane_key lane_key_of(struct sf_collection_ref collection)
{
    return (struct lane_key){collection.namespace_id.v, collection.collection_id.v};
}

/* ---- idle lanes ---- */

static struct sf_alloc_idle *idle_list(struct sf_alloc_lane *lane)
{
    return &lane->shard->idle[lane->state == SF_LANE_CLOSED ? 1 : 0];
}

/* Before the lane's state changes. */
static void idle_remove(struct sf_alloc_lane *lane)
{
    struct sf_alloc_idle *list = idle_list(lane);

    if (!lane->idle)
        return;
    *(lane->idle_prev == NULL ? &list->head : &lane->idle_prev->idle_next) = lane->idle_next;
    *(lane->idle_next == NULL ? &list->tail : &lane->idle_next->idle_prev) = lane->idle_prev;
    lane->idle = false;
}

static void idle_append(struct sf_alloc_lane *lane)
{
    struct sf_alloc_idle *list = idle_list(lane);

    lane->idle = true;
    lane->idle_next = NULL;
    lane->idle_prev = list->tail;
    *(list->tail == NULL ? &list->head : &list->tail->idle_next) = lane;
    list->tail = lane;
}

/* Gives back what only a running group needs. */
static void group_free(struct sf_alloc_lane *lane)
{
    struct sf_alloc_group *g = lane->group;

    if (g == NULL)
        return;
    if (sf_timer_active(&g->timer))
        sf_timer_stop(&g->timer);
    sf_buf_fini(&g->get.body);
    sf_buf_fini(&g->mark_get.body);
    sf_buf_fini(&g->body);
    sf_alloc_roll_free(g);
    free(g->puts);
    free(g->ops);
    free(g);
    lane->group = NULL;
}

void sf_alloc_lane_idle_check(struct sf_alloc_lane *lane)
{
    if (lane->ops != 0 || lane->busy || lane->pump_posted || lane->idle ||
        (lane->reserve != NULL && lane->reserve->busy))
        return;
    group_free(lane);
    idle_append(lane);
}

/* ---- lanes ---- */

static void pump_run(struct sf_task *task)
{
    struct sf_alloc_lane *lane = SF_CONTAINER_OF(task, struct sf_alloc_lane, pump);

    lane->pump_posted = false;
    if (!lane->busy && lane->queue_head != NULL)
        sf_alloc_group_start(lane);
    else
        sf_alloc_lane_idle_check(lane);
}

/* Starts a group a turn later, so that what arrives in this turn is in it. */
static void pump_post(struct sf_alloc_lane *lane)
{
    if (lane->busy || lane->pump_posted || lane->queue_head == NULL)
        return;
    lane->pump_posted = true;
    lane->pump.run = pump_run;
    sf_loop_post(lane->shard->loop, &lane->pump);
}

void sf_alloc_lane_rest(struct sf_alloc_lane *lane)
{
    lane->busy = false;
    lane->group->count = 0;
    lane->group->attempt[0] = '\0';
    pump_post(lane);
    sf_alloc_lane_idle_check(lane);
}

static void lane_free(void *value)
{
    struct sf_alloc_lane *lane = value;

    sf_alloc_lane_forget(lane);
    sf_alloc_facts_fini(&lane->facts);
    sf_buf_fini(&lane->state_key);
    sf_buf_fini(&lane->unknown);
    group_free(lane);
    free(lane->pending);
    if (lane->reserve != NULL)
        sf_buf_fini(&lane->reserve->body);
    free(lane->reserve);
    free(lane);
}

/* Drops the lane that was idle longest, a closed one only when there is no other: it is then a
 * stranger that claims anew. False when none is idle. */
static bool lane_evict(struct sf_alloc_shard *s)
{
    struct sf_alloc_lane *lane = s->idle[0].head != NULL ? s->idle[0].head : s->idle[1].head;

    if (lane == NULL)
        return false;
    if (lane->state == SF_LANE_CLOSED)
        atomic_fetch_sub(&s->counters.lanes_closed, 1);
    struct lane_key key = lane_key_of(lane->collection);
    idle_remove(lane);
    sf_alloc_lease_drop(lane);
    (void)sf_map_del(s->lanes, sf_view_bytes(&key, sizeof(key)));
    lane_free(lane);
    atomic_fetch_add(&s->counters.lanes_evicted, 1);
    atomic_fetch_sub(&s->counters.lanes, 1);
    return true;
}

struct sf_alloc_lane *sf_alloc_lane_find(struct sf_alloc_shard *s,
                                         struct sf_collection_ref collection)
{
    struct lane_key key = lane_key_of(collection);
    return sf_map_get(s->lanes, sf_view_bytes(&key, sizeof(key)));
}

/* The lane of a collection, made when absent; NULL when the shard holds no more. */
static struct sf_alloc_lane *lane_get(struct sf_alloc_shard *s, struct sf_collection_ref collection)
{
    struct lane_key key = lane_key_of(collection);
    struct sf_view view = sf_view_bytes(&key, sizeof(key));
    struct sf_alloc_lane *lane = sf_map_get(s->lanes, view);

    if (lane != NULL)
        return lane;
    if (sf_map_count(s->lanes) >= s->allocator->deps.limits.max_lanes_per_loop && !lane_evict(s))
        return NULL;
    lane = sf_calloc(1, sizeof(*lane));
    lane->shard = s;
    lane->collection = collection;
    lane->queue_tail = &lane->queue_head;
    sf_alloc_state_key(collection, &lane->state_key);
    (void)sf_map_put(s->lanes, view, lane);
    atomic_fetch_add(&s->counters.lanes, 1);
    return lane;
}

void sf_alloc_lane_forget(struct sf_alloc_lane *lane)
{
    for (size_t i = 0; i < lane->pending_count; i++)
        sf_buf_fini(&lane->pending[i].record);
    lane->pending_count = 0;
    if (lane->state == SF_LANE_READY && lane->in_hand.lease.live)
        lane->reserve->kept = lane->in_hand;
    lane->in_hand = (struct sf_alloc_state){0};
    if (lane->state == SF_LANE_READY)
        lane->state = SF_LANE_COLD;
}

void sf_alloc_lane_close(struct sf_alloc_lane *lane, uint64_t newer_epoch)
{
    SF_LOG(WARN, "alloc_lane_closed", SF_KV_U64("namespace_id", lane->collection.namespace_id.v),
           SF_KV_U64("collection_id", lane->collection.collection_id.v),
           SF_KV_U64("allocation_epoch", lane->epoch), SF_KV_U64("newer_epoch", newer_epoch));
    sf_alloc_lane_forget(lane);
    sf_alloc_lease_drop(lane);
    lane->state = SF_LANE_CLOSED;
    lane->owned = false;
    atomic_fetch_add(&lane->shard->counters.lanes_closed, 1);
    while (lane->queue_head != NULL) {
        struct sf_alloc_op *op = lane->queue_head;
        lane->queue_head = op->link;
        if (lane->queue_head == NULL)
            lane->queue_tail = &lane->queue_head;
        sf_alloc_op_unavailable(op, false, "this process no longer owns the collection");
    }
}

/* ---- what is pending ---- */

struct sf_alloc_pending *sf_alloc_pending_find(struct sf_alloc_lane *lane, const char *key)
{
    for (size_t i = 0; i < lane->pending_count; i++)
        if (memcmp(lane->pending[i].key, key, SF_SHA256_HEX_BYTES) == 0)
            return &lane->pending[i];
    return NULL;
}

void sf_alloc_pending_add(struct sf_alloc_lane *lane, const sf_replay_record *record)
{
    SF_ASSERT(strlen(record->transport_lookup_key) == SF_SHA256_HEX_BYTES - 1);
    if (sf_alloc_pending_find(lane, record->transport_lookup_key) != NULL)
        return;
    if (lane->pending_count == lane->pending_cap) {
        lane->pending_cap = lane->pending_cap == 0 ? 4 : 2 * lane->pending_cap;
        lane->pending = sf_realloc(lane->pending, lane->pending_cap * sizeof(*lane->pending));
    }
    struct sf_alloc_pending *pending = &lane->pending[lane->pending_count++];
    *pending = (struct sf_alloc_pending){0};
    memcpy(pending->key, record->transport_lookup_key, sizeof(pending->key));
    sf_pb_pack(&record->base, &pending->record);
}

void sf_alloc_pending_del(struct sf_alloc_lane *lane, const char *key)
{
    struct sf_alloc_pending *pending = sf_alloc_pending_find(lane, key);

    if (pending == NULL)
        return;
    sf_buf_fini(&pending->record);
    size_t after = (size_t)(&lane->pending[lane->pending_count] - pending) - 1;
    memmove(pending, pending + 1, after * sizeof(*pending));
    lane->pending_count--;
}

/* ---- remembered answers ---- */

/* Memory of one entry, the map's part included. */
static size_t answer_cost(size_t packed_bytes)
{
    return sizeof(struct sf_alloc_answer) + packed_bytes + 2 * SF_SHA256_HEX_BYTES;
}

static void answer_drop_oldest(struct sf_alloc_shard *s)
{
    struct sf_alloc_answer *a = s->answer_head;

    s->answer_head = a->next;
    if (a->next == NULL)
        s->answer_tail = NULL;
    (void)sf_map_del(s->answers, sf_view_bytes(a->key, SF_SHA256_HEX_BYTES - 1));
    s->answer_bytes -= answer_cost(a->len);
    free(a);
}

void sf_alloc_answer_put(struct sf_alloc_shard *s, const sf_replay_record *record,
                         struct sf_view packed)
{
    const char *key = record->transport_lookup_key;
    size_t limit = s->allocator->deps.limits.cache_bytes_per_loop;
    size_t cost = answer_cost(packed.len);

    if (cost > limit || sf_alloc_answer_get(s, key) != NULL)
        return;
    while (s->answer_bytes + cost > limit)
        answer_drop_oldest(s);
    struct sf_alloc_answer *a = sf_malloc(sizeof(*a) + packed.len);
    memcpy(a->key, key, sizeof(a->key));
    memcpy(a->fingerprint, record->payload_fingerprint, sizeof(a->fingerprint));
    a->applied_at_unix_ms = record->applied_at_unix_ms;
    a->len = packed.len;
    memcpy(a->packed, packed.ptr, packed.len);
    a->next = NULL;
    *(s->answer_tail == NULL ? &s->answer_head : &s->answer_tail->next) = a;
    s->answer_tail = a;
    (void)sf_map_put(s->answers, sf_view_bytes(a->key, SF_SHA256_HEX_BYTES - 1), a);
    s->answer_bytes += cost;
    atomic_store(&s->counters.cache_bytes, s->answer_bytes);
}

const struct sf_alloc_answer *sf_alloc_answer_get(struct sf_alloc_shard *s, const char *key)
{
    const struct sf_alloc_answer *a =
        sf_map_get(s->answers, sf_view_bytes(key, SF_SHA256_HEX_BYTES - 1));

    if (a != NULL && !sf_alloc_answer_is_young(s->allocator, a->applied_at_unix_ms))
        return NULL; /* its object may be gone, and the key be used again */
    return a;
}

/* ---- requests ---- */

static struct sf_view op_key(const struct sf_alloc_op *op)
{
    return sf_view_bytes(op->key, SF_SHA256_HEX_BYTES - 1);
}

/* Joins the leader of its key, or leads and is queued. */
static void op_enqueue(struct sf_alloc_op *op)
{
    struct sf_alloc_lane *lane = op->lane;
    struct sf_alloc_op *leader = sf_map_get(op->shard->inflight, op_key(op));

    op->link = NULL;
    op->followers = NULL;
    if (leader != NULL) {
        op->phase = SF_OP_JOINED;
        op->late = leader->ccs_read;
        op->link = leader->followers;
        leader->followers = op;
        return;
    }
    op->phase = SF_OP_QUEUED;
    op->late = false;
    op->ccs_read = false;
    (void)sf_map_put(op->shard->inflight, op_key(op), op);
    *lane->queue_tail = op;
    lane->queue_tail = &op->link;
    pump_post(lane);
}

static void rate_limited(struct sf_alloc_op *op, const char *dimension, size_t limit)
{
    struct sf_diag *diag = sf_call_diag(op->call);

    sf_diag_set(diag, SF_RATE_LIMITED, "%s is full", dimension);
    sf_diag_area(diag, "allocator");
    sf_diag_detail(diag, "retry_after_ms", "%d", 100);
    sf_diag_detail(diag, "throttled_dimension", "%s", dimension);
    sf_diag_detail(diag, "server_limit", "%zu", limit);
    sf_alloc_op_answer(op, NULL, SF_CLASS_NONE);
}

void sf_alloc_op_arrive(struct sf_task *task)
{
    struct sf_alloc_op *op = SF_CONTAINER_OF(task, struct sf_alloc_op, task);
    struct sf_alloc_shard *s = op->shard;
    const struct sf_allocator_limits *limits = &s->allocator->deps.limits;

    op->next = s->ops;
    if (s->ops != NULL)
        s->ops->prev = op;
    s->ops = op;
    s->op_count++;
    atomic_store(&s->counters.ops, s->op_count);
    if (s->op_count > limits->max_ops_per_loop) {
        rate_limited(op, "allocator_loop_requests", limits->max_ops_per_loop);
        return;
    }
    struct sf_alloc_lane *lane = lane_get(s, op->request.collection);
    if (lane == NULL) {
        rate_limited(op, "allocator_lanes", limits->max_lanes_per_loop);
        return;
    }
    if (lane->ops >= limits->max_ops_per_lane) {
        rate_limited(op, "allocator_lane_requests", limits->max_ops_per_lane);
        return;
    }
    idle_remove(lane);
    op->lane = lane;
    lane->ops++;
    if (lane->state == SF_LANE_CLOSED)
        sf_alloc_op_unavailable(op, false, "this process no longer owns the collection");
    else
        op_enqueue(op);
}

/* Takes `op` out of everything and answers it. */
static void op_end(struct sf_alloc_op *op, const struct sf_view *packed, enum sf_alloc_class cls)
{
    struct sf_alloc_lane *lane = op->lane;

    sf_alloc_op_answer(op, packed, cls);
    lane->ops--;
    sf_alloc_lane_idle_check(lane);
}

/* Answers one request from what stands under its key. */
static void op_end_standing(struct sf_alloc_op *op, const char *fingerprint, struct sf_view packed,
                            enum sf_alloc_class cls)
{
    if (strcmp(op->fingerprint, fingerprint) == 0) {
        op_end(op, &packed, cls);
        return;
    }
    struct sf_diag *diag = sf_call_diag(op->call);
    sf_diag_set(diag, SF_IDEMPOTENCY_CONFLICT, "the idempotency key stands for another allocation");
    sf_diag_area(diag, "allocator");
    op_end(op, NULL, SF_CLASS_CONFLICT);
}

/* No longer leads; returns those that joined. */
static struct sf_alloc_op *op_release_key(struct sf_alloc_op *op)
{
    struct sf_alloc_op *followers = op->followers;

    op->followers = NULL;
    if (sf_map_get(op->shard->inflight, op_key(op)) == op)
        (void)sf_map_del(op->shard->inflight, op_key(op));
    return followers;
}

void sf_alloc_op_stand(struct sf_alloc_op *op, const char *fingerprint, struct sf_view packed,
                       bool fresh)
{
    struct sf_alloc_op *follower = op_release_key(op);
    char standing[SF_SHA256_HEX_BYTES]; /* `fingerprint` may lie in op's arena */

    memcpy(standing, fingerprint, sizeof(standing));
    op_end_standing(op, standing, packed, fresh ? SF_CLASS_ORIGINAL : SF_CLASS_REPLAY);
    while (follower != NULL) {
        struct sf_alloc_op *next = follower->link;
        op_end_standing(follower, standing, packed, SF_CLASS_REPLAY);
        follower = next;
    }
}

void sf_alloc_op_refuse(struct sf_alloc_op *op)
{
    struct sf_alloc_op *follower = op_release_key(op);
    struct sf_diag diag = *sf_call_diag(op->call);
    char fingerprint[SF_SHA256_HEX_BYTES];
    bool shared = diag.err == SF_BACKEND_UNAVAILABLE;

    memcpy(fingerprint, op->fingerprint, sizeof(fingerprint));
    op_end(op, NULL, SF_CLASS_NONE);
    while (follower != NULL) {
        struct sf_alloc_op *next = follower->link;
        bool same = !follower->late && strcmp(follower->fingerprint, fingerprint) == 0 &&
                    diag.err != SF_CANCELLED;
        if (shared || same) {
            *sf_call_diag(follower->call) = diag;
            op_end(follower, NULL, SF_CLASS_NONE);
        } else {
            op_enqueue(follower);
        }
        follower = next;
    }
}

void sf_alloc_op_unavailable(struct sf_alloc_op *op, bool outcome_unknown, const char *why)
{
    struct sf_diag *diag = sf_call_diag(op->call);

    sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "allocator state: %s", why);
    sf_diag_area(diag, "allocator");
    sf_diag_detail(diag, "failing_authority", "allocator_state");
    sf_diag_detail(diag, "outcome_unknown", "%s", outcome_unknown ? "true" : "false");
    sf_alloc_op_refuse(op);
}

/* ---- shard ---- */

void sf_alloc_shard_init(struct sf_alloc_shard *s, struct sf_allocator *allocator, size_t index)
{
    s->allocator = allocator;
    s->loop = allocator->deps.loops[index];
    s->lanes = sf_map_new();
    s->inflight = sf_map_new();
    s->answers = sf_map_new();
    sf_rng_init(&s->rng, allocator->deps.random_seed + index);
}

void sf_alloc_shard_fini(struct sf_alloc_shard *s)
{
    while (s->ops != NULL) {
        struct sf_alloc_op *op = s->ops;
        s->ops = op->next;
        if (sf_timer_active(&op->timer))
            sf_timer_stop(&op->timer);
        sf_buf_fini(&op->object_key);
        sf_buf_fini(&op->get.body);
        sf_buf_fini(&op->body);
    }
    while (s->answer_head != NULL)
        answer_drop_oldest(s);
    sf_map_destroy(s->answers, NULL);
    sf_map_destroy(s->inflight, NULL);
    sf_map_destroy(s->lanes, lane_free);
}
