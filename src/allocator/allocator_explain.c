/*
 * Model: a look at one collection for the operator, in two parts that need not agree: what this
 * process holds in memory, read on the lane's loop, then the state object as the store has it. It
 * changes nothing, waits for nothing but the one read, and a drain waits for it.
 */
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_priv.h"
#include "base/limits.h"
#include "base/mem.h"
#include "searchfabric/v1/allocator_operations_private.pb-c.h"

typedef Searchfabric__V1__AllocatorRange range_message;

/* One look. */
struct look {
    struct sf_task task;                                 /* on the collection's loop */
    struct sf_alloc_shard *shard;                        /* whose */
    struct sf_call *call;                                /* to be answered */
    struct sf_collection_ref collection;                 /* which */
    struct sf_get get;                                   /* of the state object */
    struct sf_buf key;                                   /* of the state object */
    Searchfabric__V1__ExplainAllocatorResponse response; /* being filled */
    Searchfabric__V1__AllocatorLane lane;                /* of response */
    Searchfabric__V1__AllocatorStoredState stored;       /* of response */
    range_message ranges[3];                             /* stored, live, under way */
    Searchfabric__V1__AllocatorBurnedIds burned[SF_BURN_REASON_COUNT];       /* of lane */
    Searchfabric__V1__AllocatorBurnedIds *burned_list[SF_BURN_REASON_COUNT]; /* of lane */
    char texts[10][SF_ALLOC_DECIMAL_BYTES];                                  /* numbers as text */
    size_t text_count;                                                       /* of texts */
};

/* Decimal text of a bound; lives as long as the look. */
static char *bound_text(struct look *look, struct sf_watermark mark)
{
    SF_ASSERT(look->text_count < SF_ARRAY_LEN(look->texts));
    sf_watermark_text(mark, look->texts[look->text_count]);
    return look->texts[look->text_count++];
}

static range_message *range_fill(struct look *look, range_message *range, struct sf_watermark start,
                                 struct sf_watermark end, uint64_t lease_epoch)
{
    searchfabric__v1__allocator_range__init(range);
    range->start = bound_text(look, start);
    range->end = bound_text(look, end);
    range->lease_epoch = lease_epoch;
    return range;
}

/* The state in hand, while there is one. */
static void fill_in_hand(struct look *look, const struct sf_alloc_lane *lane)
{
    Searchfabric__V1__AllocatorLane *out = &look->lane;
    const struct sf_alloc_state *state = &lane->in_hand;

    out->next_doc_id = bound_text(look, state->mark);
    out->allocation_epoch = state->epoch;
    out->allocator_state_version = state->version;
    if (state->lease.live) {
        out->lease =
            range_fill(look, &look->ranges[1], state->lease.start, state->mark, state->lease.epoch);
        out->lease_next_doc_id = bound_text(look, state->lease.next);
    }
    if (lane->reserve != NULL && lane->reserve->busy)
        out->next_range = range_fill(look, &look->ranges[2], lane->reserve->after.lease.split,
                                     lane->reserve->after.mark, 0);
}

static void fill_lane(struct look *look, const struct sf_alloc_lane *lane)
{
    static char *const states[] = {"cold", "ready", "closed"};
    const struct sf_alloc_lease_policy *policy = &look->shard->allocator->deps.leases;
    int64_t now_ms = look->shard->loop->now_ms;
    Searchfabric__V1__AllocatorLane *out = &look->lane;

    searchfabric__v1__allocator_lane__init(out);
    out->state = states[lane->state];
    out->owned = lane->owned;
    if (lane->state == SF_LANE_READY)
        fill_in_hand(look, lane);
    out->pending_applies = lane->pending_count;
    out->requests = lane->ops;
    out->leasing = (char *)(uintptr_t)sf_lease_heat_text(sf_lease_heat(policy, &lane->use, now_ms));
    out->requests_per_second = sf_lease_rate(&lane->use, now_ms);
    out->hot_per_second = policy->hot_per_s;
    out->range_ids = lane->use.range_ids;
    out->last_explicit_unix_ms = lane->explicit_unix_ms;
    for (size_t i = 0; i < SF_BURN_REASON_COUNT; i++) {
        searchfabric__v1__allocator_burned_ids__init(&look->burned[i]);
        look->burned[i].reason = (char *)(uintptr_t)sf_burn_reason_text((enum sf_burn_reason)i);
        look->burned[i].ids = lane->burned[i];
        look->burned_list[i] = &look->burned[i];
    }
    out->burned = look->burned_list;
    out->n_burned = SF_BURN_REASON_COUNT;
    look->response.lane = out;
}

/* Fills response.stored from what was read; texts stay in `arena`. */
static enum sf_err fill_stored(struct look *look, struct sf_arena *arena, struct sf_diag *diag)
{
    Searchfabric__V1__AllocatorStoredState *out = &look->stored;
    Searchfabric__V1__AllocatorStateObject *object = NULL;
    struct sf_alloc_loaded loaded;
    enum sf_err err = sf_alloc_state_open(sf_buf_view(&look->get.body), look->collection, arena,
                                          diag, &object, &loaded);

    if (err != SF_OK)
        return err;
    searchfabric__v1__allocator_stored_state__init(out);
    out->next_doc_id = object->next_doc_id;
    out->allocation_epoch = object->allocation_epoch;
    out->allocator_state_version = object->allocator_state_version;
    out->owner_id = object->owner_id;
    out->owned_here = strcmp(object->owner_id, look->shard->allocator->deps.attempts->process) == 0;
    out->pending_applies = object->n_pending_applies;
    out->updated_at_unix_ms = object->updated_at_unix_ms;
    if (object->lease != NULL) {
        searchfabric__v1__allocator_range__init(&look->ranges[0]);
        look->ranges[0].start = object->lease->range_start;
        look->ranges[0].end = object->lease->range_end;
        look->ranges[0].lease_epoch = object->lease->lease_epoch;
        out->lease = &look->ranges[0];
    }
    look->response.stored = out;
    return SF_OK;
}

static void state_read(struct sf_get *get)
{
    struct look *look = SF_CONTAINER_OF(get, struct look, get);
    struct sf_allocator *a = look->shard->allocator;
    struct sf_diag *diag = sf_call_diag(look->call);
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    enum sf_err err = get->err == SF_ERR_NOT_FOUND ? SF_OK : get->err;

    if (err != SF_OK) {
        sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "the store does not answer");
        sf_diag_detail(diag, "failing_authority", "object_store");
    } else if (get->err == SF_OK) {
        err = fill_stored(look, arena, diag);
    }
    if (err == SF_OK)
        sf_call_respond(look->call, &look->response.base);
    else
        sf_call_fail(look->call, diag);
    sf_arena_destroy(arena);
    sf_buf_fini(&get->body);
    sf_buf_fini(&look->key);
    free(look);
    sf_alloc_closed_one(a);
}

static void look_on_loop(struct sf_task *task)
{
    struct look *look = SF_CONTAINER_OF(task, struct look, task);
    const struct sf_alloc_lane *lane = sf_alloc_lane_find(look->shard, look->collection);

    searchfabric__v1__explain_allocator_response__init(&look->response);
    if (lane != NULL)
        fill_lane(look, lane);
    sf_alloc_state_key(look->collection, &look->key);
    look->get.key = sf_buf_view(&look->key);
    look->get.loop = look->shard->loop;
    look->get.done = state_read;
    sf_store_get(look->shard->allocator->deps.store, &look->get);
}

void sf_alloc_explain(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    const Searchfabric__V1__ExplainAllocatorRequest *request = (const void *)message;
    const Searchfabric__V1__CollectionRef *ref = request->collection;
    struct sf_allocator *a = self;
    struct sf_diag *diag = sf_call_diag(call);

    sf_diag_init(diag);
    if (ref == NULL || ref->namespace_id == 0 || ref->collection_id == 0) {
        (void)sf_diag_bad_field(diag, "collection", "missing", "a collection is needed");
        sf_call_fail(call, diag);
        return;
    }
    atomic_fetch_add(&a->open, 1);
    if (atomic_load(&a->draining)) {
        sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "the allocator is stopping");
        sf_diag_detail(diag, "failing_authority", "allocator");
        sf_call_fail(call, diag);
        sf_alloc_closed_one(a);
        return;
    }
    struct look *look = sf_calloc(1, sizeof(*look));
    look->call = call;
    look->collection.namespace_id.v = ref->namespace_id;
    look->collection.collection_id.v = ref->collection_id;
    look->shard = sf_alloc_shard_of(a, look->collection);
    look->task.run = look_on_loop;
    sf_loop_post(look->shard->loop, &look->task);
}
