/*
 * Model: a call is checked where it arrives (shape, grants), named by its transport key, and handed
 * to the loop that owns its collection; from there it never leaves that loop until it is answered.
 * Every answer, of whatever kind, passes sf_alloc_op_answer once: it counts, logs and responds.
 *
 * Drain: `open` counts accepted requests. New ones are refused; when the last one is answered a
 * task visits every loop in turn, so that whatever callback answered it has returned, and then
 * tells.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_artifacts.h"
#include "allocator/allocator_priv.h"
#include "allocator/allocator_retention.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"

#define CATALOG_TIMEOUT_MS 5000

/* ---- metrics and log ---- */

static const char *class_text(enum sf_alloc_class cls)
{
    static const char *const texts[] = {"none", "original", "replay_same_payload",
                                        "replay_conflict"};
    return texts[cls];
}

static void families_register(struct sf_allocator *a)
{
    static const char *const by_result[] = {"client_kind", "result", "plan_shape", NULL};
    static const char *const by_shape[] = {"client_kind", "plan_shape", NULL};
    static const char *const by_item[] = {"client_kind", "item_kind", NULL};
    static const char *const by_class[] = {"classification", NULL};
    static const char *const by_burn[] = {"client_kind", "reason", NULL};
    static const char *const by_lease[] = {"result", NULL};
    struct sf_metrics *m = a->deps.metrics;
    struct sf_alloc_families *f = &a->metrics;

    f->requests =
        sf_metrics_family(m, SF_METRIC_COUNTER, "searchfabric_id_allocator_requests_total",
                          "AllocateIds requests by outcome", by_result);
    f->latency = sf_metrics_family(m, SF_METRIC_HISTOGRAM, "searchfabric_id_allocator_latency_ms",
                                   "Time from a request to its answer", by_shape);
    f->items = sf_metrics_family(m, SF_METRIC_COUNTER, "searchfabric_id_allocator_plan_items_total",
                                 "Plan items of well-formed requests", by_item);
    f->replay = sf_metrics_family(m, SF_METRIC_COUNTER, "searchfabric_id_allocator_replay_total",
                                  "Requests by what their key stood for", by_class);
    f->ccs_latency = sf_metrics_family(m, SF_METRIC_HISTOGRAM,
                                       "searchfabric_id_allocator_ccs_dependency_latency_ms",
                                       "Time of an admission read", NULL);
    f->conflict_retry = sf_metrics_family(m, SF_METRIC_COUNTER,
                                          "searchfabric_id_allocator_state_conflict_retry_total",
                                          "Lost compare-and-swaps of a state object", NULL);
    f->burned =
        sf_metrics_family(m, SF_METRIC_COUNTER, "searchfabric_id_allocator_burned_ids_total",
                          "Ids that are gone without a result to show for them", by_burn);
    f->range_lease =
        sf_metrics_family(m, SF_METRIC_COUNTER, "searchfabric_id_allocator_range_lease_total",
                          "Ranges of ids reserved ahead of use, by what became of it", by_lease);
    f->lease_granted = sf_metric_series(f->range_lease, (const char *const[]){"granted", NULL});
    f->lease_failed = sf_metric_series(f->range_lease, (const char *const[]){"failed", NULL});
    f->lease_discarded = sf_metric_series(f->range_lease, (const char *const[]){"discarded", NULL});
    f->replay_original = sf_metric_series(f->replay, (const char *const[]){"original", NULL});
    f->replay_same =
        sf_metric_series(f->replay, (const char *const[]){"replay_same_payload", NULL});
    f->replay_conflict =
        sf_metric_series(f->replay, (const char *const[]){"replay_conflict", NULL});
    f->ccs = sf_metric_series(f->ccs_latency, NULL);
    f->conflicts = sf_metric_series(f->conflict_retry, NULL);
}

/* The `result` label: "ok", "replay_ok", or the public code in lower case. */
static void result_text(const struct sf_alloc_op *op, bool ok, enum sf_alloc_class cls,
                        char out_text[64])
{
    if (ok) {
        (void)snprintf(out_text, 64, "%s", cls == SF_CLASS_REPLAY ? "replay_ok" : "ok");
        return;
    }
    enum sf_err err = sf_err_public(sf_call_diag(op->call)->err);
    (void)snprintf(out_text, 64, "%s", sf_err_info(err)->code);
    for (char *c = out_text; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
}

/* The series behind *slot, looked up once. `slot` NULL (not on a loop) looks it up each time. */
static struct sf_metric *series(struct sf_metric_family *family, const char *const *values,
                                struct sf_metric **slot)
{
    if (slot == NULL)
        return sf_metric_series(family, values);
    if (*slot == NULL)
        *slot = sf_metric_series(family, values);
    return *slot;
}

static void count_items(struct sf_alloc_op *op, struct sf_alloc_series *kept, const char *kind,
                        unsigned k)
{
    struct sf_alloc_families *f = &op->shard->allocator->metrics;
    size_t explicit_count = op->request.item_count - op->request.issue_count;

    if (op->request.issue_count != 0)
        sf_metric_add(series(f->items, (const char *const[]){kind, "issue", NULL},
                             kept == NULL ? NULL : &kept->items[k][0]),
                      (int64_t)op->request.issue_count);
    if (explicit_count != 0)
        sf_metric_add(series(f->items, (const char *const[]){kind, "explicit_doc_id", NULL},
                             kept == NULL ? NULL : &kept->items[k][1]),
                      (int64_t)explicit_count);
}

const char *sf_burn_reason_text(enum sf_burn_reason reason)
{
    static const char *const texts[SF_BURN_REASON_COUNT] = {"explicit_gap", "lost_race",
                                                            "not_durable", "lease_tail"};
    return texts[reason];
}

void sf_alloc_count_burned(struct sf_alloc_lane *lane, Searchfabric__V1__ClientKind kind,
                           enum sf_burn_reason reason, uint64_t ids)
{
    struct sf_alloc_shard *s = lane->shard;
    unsigned k = (unsigned)kind;
    const char *values[] = {sf_client_kind_text(kind), sf_burn_reason_text(reason), NULL};

    lane->burned[reason] += ids;
    if (reason != SF_BURN_EXPLICIT_GAP)
        atomic_fetch_add(&s->counters.ids_burned, ids);
    sf_metric_add(series(s->allocator->metrics.burned, values,
                         k < SF_ALLOC_KINDS ? &s->series.burned[k][reason] : NULL),
                  ids > INT64_MAX ? INT64_MAX : (int64_t)ids);
}

static void op_count(struct sf_alloc_op *op, bool ok, enum sf_alloc_class cls, const char *result,
                     bool on_loop)
{
    struct sf_allocator *a = op->shard->allocator;
    struct sf_alloc_families *f = &a->metrics;
    const char *kind = sf_client_kind_text(op->request.client_kind);
    const char *shape = sf_plan_shape_text(op->request.shape);
    unsigned k = (unsigned)op->request.client_kind;
    bool keep = on_loop && k < SF_ALLOC_KINDS;
    struct sf_alloc_series *kept = keep ? &op->shard->series : NULL;
    struct sf_metric **slot = NULL;

    if (keep && ok)
        slot = cls == SF_CLASS_REPLAY ? &kept->replay_ok[k][op->request.shape]
                                      : &kept->ok[k][op->request.shape];
    sf_metric_add(series(f->requests, (const char *const[]){kind, result, shape, NULL}, slot), 1);
    int64_t took_ns = sf_clock_mono_ns(a->deps.clock) - op->started_ns;
    sf_metric_observe_ms(series(f->latency, (const char *const[]){kind, shape, NULL},
                                keep ? &kept->latency[k][op->request.shape] : NULL),
                         (double)took_ns / 1e6);
    if (op->request.shape != SF_PLAN_INVALID)
        count_items(op, kept, kind, k);
    if (cls == SF_CLASS_ORIGINAL)
        sf_metric_add(f->replay_original, 1);
    else if (cls == SF_CLASS_REPLAY)
        sf_metric_add(f->replay_same, 1);
    else if (cls == SF_CLASS_CONFLICT)
        sf_metric_add(f->replay_conflict, 1);
}

/* True when this record may be written in full: the budget of the second is not used up. */
static bool log_allowed(struct sf_alloc_shard *s)
{
    int64_t second = s->loop->now_ms / 1000;

    if (second != s->log_second) {
        s->log_second = second;
        s->log_used = 0;
    }
    if (s->log_used < SF_LIMIT_ALLOC_LOG_PER_SECOND) {
        s->log_used++;
        return true;
    }
    s->log_suppressed++;
    return false;
}

/* The summary record of one request: ids, counts and classes, never a list (note 14). */
static void op_log(struct sf_alloc_op *op, enum sf_alloc_class cls, const char *result,
                   bool on_loop)
{
    const struct sf_alloc_request *r = &op->request;
    uint64_t suppressed = 0;
    bool read = op->ccs_read && op->lane != NULL && op->lane->facts.etag != NULL;

    if (on_loop) {
        if (!log_allowed(op->shard))
            return;
        suppressed = op->shard->log_suppressed;
        op->shard->log_suppressed = 0;
    }
    SF_LOG(INFO, "alloc_request", SF_KV_STR("identity_hash", sf_call_identity(op->call)->hash_hex),
           SF_KV_STR("client_id", r->client_id),
           SF_KV_STR("client_kind", sf_client_kind_text(r->client_kind)),
           SF_KV_U64("namespace_id", r->collection.namespace_id.v),
           SF_KV_U64("collection_id", r->collection.collection_id.v),
           SF_KV_STR("idempotency_key", r->idempotency_key),
           SF_KV_I64("route_intent", r->route_intent),
           SF_KV_STR("plan_shape", sf_plan_shape_text(r->shape)),
           SF_KV_U64("issue_item_count", r->issue_count),
           SF_KV_U64("explicit_item_count", r->item_count - r->issue_count),
           SF_KV_STR("replay_classification", class_text(cls)), SF_KV_STR("result", result),
           SF_KV_STR("ccs_read", op->ccs_read ? "true" : "false"),
           SF_KV_STR("ccs_etag", read ? op->lane->facts.etag : ""),
           SF_KV_U64("suppressed", suppressed));
}

/* ---- answers ---- */

/* The last step of a drain: every loop was visited after the last answer. */
static void drain_visit(struct sf_task *task)
{
    struct sf_alloc_shard *s = SF_CONTAINER_OF(task, struct sf_alloc_shard, drain_task);
    struct sf_allocator *a = s->allocator;
    size_t index = (size_t)(s - a->shards);

    sf_alloc_lease_drop_all(s);
    if (index + 1 < a->shard_count) {
        s[1].drain_task.run = drain_visit;
        sf_loop_post(s[1].loop, &s[1].drain_task);
        return;
    }
    a->drained_fn(a->drained_user);
}

void sf_alloc_closed_one(struct sf_allocator *a)
{
    if (atomic_fetch_sub(&a->open, 1) != 1 || !atomic_load(&a->draining) ||
        atomic_exchange(&a->drained, true))
        return;
    a->shards[0].drain_task.run = drain_visit;
    sf_loop_post(a->shards[0].loop, &a->shards[0].drain_task);
}

/* Counts, logs and responds; `on_loop`: the shard's own memory may be used. */
static void op_respond(struct sf_alloc_op *op, const struct sf_view *packed,
                       enum sf_alloc_class cls, bool on_loop)
{
    struct sf_allocator *a = op->shard->allocator;
    struct sf_call *call = op->call;
    char result[64];

    result_text(op, packed != NULL, cls, result);
    op_count(op, packed != NULL, cls, result, on_loop);
    op_log(op, cls, result, on_loop);
    sf_alloc_debug_items(op, packed, result);
    if (packed == NULL && (on_loop || !atomic_load(&a->draining))) /* nothing new once drained */
        sf_alloc_note_failure(op, class_text(cls));
    if (packed != NULL)
        sf_call_respond_bytes(call, *packed);
    else
        sf_call_fail(call, sf_call_diag(call));
    sf_alloc_closed_one(a);
}

void sf_alloc_op_answer(struct sf_alloc_op *op, const struct sf_view *packed,
                        enum sf_alloc_class cls)
{
    struct sf_alloc_shard *s = op->shard;

    if (op->prev == NULL)
        s->ops = op->next;
    else
        op->prev->next = op->next;
    if (op->next != NULL)
        op->next->prev = op->prev;
    s->op_count--;
    atomic_store(&s->counters.ops, s->op_count);
    sf_buf_fini(&op->object_key);
    sf_buf_fini(&op->get.body);
    sf_buf_fini(&op->body);
    op_respond(op, packed, cls, true);
}

/* ---- the call ---- */

struct sf_alloc_shard *sf_alloc_shard_of(struct sf_allocator *a,
                                         struct sf_collection_ref collection)
{
    uint64_t key[2] = {collection.namespace_id.v, collection.collection_id.v};
    return &a->shards[sf_xxh64(key, sizeof(key), 0) % a->shard_count];
}

/* Checks that need no state: shape, then grants. */
static enum sf_err call_check(struct sf_allocator *a, struct sf_alloc_op *op,
                              const Searchfabric__V1__AllocateIdsRequest *message)
{
    struct sf_diag *diag = sf_call_diag(op->call);
    const struct sf_allocator_grants *grants = a->deps.grants;
    enum sf_err err = sf_alloc_request_check(message, sf_call_arena(op->call), &op->request, diag);

    if (err != SF_OK)
        return err;
    if (grants != NULL &&
        !grants->allows(grants->self, sf_call_identity(op->call), op->request.collection))
        return sf_diag_set(diag, SF_FORBIDDEN, "the caller has no access to the collection");
    return SF_OK;
}

static void allocate_ids(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct sf_allocator *a = self;
    struct sf_diag *diag = sf_call_diag(call);
    struct sf_alloc_op *op = sf_arena_alloc(sf_call_arena(call), sizeof(*op));

    sf_diag_init(diag);
    if (op == NULL) {
        sf_diag_set(diag, SF_ERR_LIMIT, "the request does not fit its arena");
        sf_call_fail(call, diag);
        return;
    }
    op->call = call;
    op->started_ns = sf_clock_mono_ns(a->deps.clock);
    op->shard = &a->shards[0];
    atomic_fetch_add(&a->open, 1);
    enum sf_err err = call_check(a, op, (const void *)message);
    if (err == SF_OK && atomic_load(&a->draining)) {
        sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "the allocator is stopping");
        sf_diag_detail(diag, "failing_authority", "allocator");
        sf_diag_detail(diag, "outcome_unknown", "false");
        err = SF_BACKEND_UNAVAILABLE;
    }
    if (err != SF_OK) {
        op_respond(op, NULL, SF_CLASS_NONE, false);
        return;
    }
    sf_alloc_transport_key(sf_call_identity(call)->hash_hex, SF_ALLOCATOR_METHOD, &op->request,
                           op->key);
    sf_alloc_fingerprint(&op->request, op->fingerprint);
    op->shard = sf_alloc_shard_of(a, op->request.collection);
    op->task.run = sf_alloc_op_arrive;
    sf_loop_post(op->shard->loop, &op->task);
}

/* ---- the allocator ---- */

static const struct sf_method methods[] = {
    {.name = "AllocateIds",
     .request = &searchfabric__v1__allocate_ids_request__descriptor,
     .response = &searchfabric__v1__allocate_ids_success_response__descriptor,
     .unary = allocate_ids,
     .unpack = sf_alloc_request_unpack}};

static void limits_resolve(struct sf_allocator_limits *limits)
{
    if (limits->max_lanes_per_loop == 0)
        limits->max_lanes_per_loop = SF_LIMIT_ALLOC_LANES;
    if (limits->max_ops_per_lane == 0)
        limits->max_ops_per_lane = SF_LIMIT_ALLOC_LANE_OPS;
    if (limits->max_ops_per_loop == 0)
        limits->max_ops_per_loop = SF_LIMIT_ALLOC_LOOP_OPS;
    if (limits->cache_bytes_per_loop == 0)
        limits->cache_bytes_per_loop = SF_LIMIT_ALLOC_CACHE_BYTES;
    if (limits->catalog_timeout_ms == 0)
        limits->catalog_timeout_ms = CATALOG_TIMEOUT_MS;
}

static void leases_resolve(struct sf_alloc_lease_policy *leases)
{
    if (leases->hot_per_s == 0)
        leases->hot_per_s = SF_LIMIT_ALLOC_LEASE_HOT_PER_S;
    if (leases->min_ids == 0)
        leases->min_ids = SF_LIMIT_ALLOC_LEASE_MIN_IDS;
    if (leases->max_ids == 0)
        leases->max_ids = SF_LIMIT_ALLOC_LEASE_MAX_IDS;
    if (leases->quiet_ms == 0)
        leases->quiet_ms = SF_LIMIT_ALLOC_LEASE_QUIET_MS;
    if (leases->confirm_ms == 0)
        leases->confirm_ms = SF_LIMIT_ALLOC_LEASE_CONFIRM_MS;
    SF_ASSERT(leases->min_ids <= leases->max_ids && leases->max_ids <= SF_LIMIT_ALLOC_LEASE_IDS);
}

struct sf_allocator *sf_allocator_new(const struct sf_allocator_deps *deps)
{
    struct sf_allocator *a = sf_calloc(1, sizeof(*a));

    SF_ASSERT(deps->loop_count >= 1 && deps->metrics != NULL);
    a->deps = *deps;
    limits_resolve(&a->deps.limits);
    leases_resolve(&a->deps.leases);
    a->shard_count = deps->loop_count;
    a->shards = sf_calloc(a->shard_count, sizeof(*a->shards));
    for (size_t i = 0; i < a->shard_count; i++)
        sf_alloc_shard_init(&a->shards[i], a, i);
    a->deps.loops = NULL; /* the caller's array; the shards hold the loops */
    a->service = (struct sf_service){.full_name = SF_ALLOCATOR_SERVICE_NAME,
                                     .methods = methods,
                                     .method_count = SF_ARRAY_LEN(methods),
                                     .self = a};
    families_register(a);
    sf_alloc_artifacts_start(a);
    a->retention = sf_alloc_retention_new(a);
    sf_alloc_retention_start(a->retention);
    sf_alloc_operate_init(a);
    return a;
}

const struct sf_service *sf_allocator_service(struct sf_allocator *allocator)
{
    return &allocator->service;
}

void sf_allocator_drain(struct sf_allocator *a, sf_allocator_drained_fn done, void *user)
{
    a->drained_fn = done;
    a->drained_user = user;
    atomic_fetch_add(&a->open, 1);
    atomic_store(&a->draining, true);
    sf_alloc_retention_drain(a->retention);
    sf_alloc_closed_one(a);
}

void sf_allocator_destroy(struct sf_allocator *a)
{
    if (a == NULL)
        return;
    sf_alloc_retention_destroy(a->retention);
    sf_alloc_artifacts_stop(a);
    for (size_t i = 0; i < a->shard_count; i++)
        sf_alloc_shard_fini(&a->shards[i]);
    free(a->shards);
    free(a);
}

void sf_allocator_stats(struct sf_allocator *a, struct sf_allocator_stats *out)
{
    *out = (struct sf_allocator_stats){0};
    for (size_t i = 0; i < a->shard_count; i++) {
        struct sf_alloc_counters *c = &a->shards[i].counters;
        out->lanes += atomic_load(&c->lanes);
        out->lanes_closed += atomic_load(&c->lanes_closed);
        out->lanes_evicted += atomic_load(&c->lanes_evicted);
        out->ops += atomic_load(&c->ops);
        out->cache_bytes += atomic_load(&c->cache_bytes);
        out->groups += atomic_load(&c->groups);
        out->allocations += atomic_load(&c->allocations);
        out->ids_issued += atomic_load(&c->ids_issued);
        out->ids_burned += atomic_load(&c->ids_burned);
        out->rolled_forward += atomic_load(&c->rolled_forward);
        out->state_conflicts += atomic_load(&c->state_conflicts);
        out->leases_granted += atomic_load(&c->leases_granted);
        out->lease_local += atomic_load(&c->lease_local);
    }
    out->artifacts_dropped = sf_alloc_artifacts_dropped(a);
}
