#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "commit/commit_priv.h"
#include "object/durable.h"

/*
 * Leadership of a shard after the open: leader.json is swapped to raise the bound below which
 * timestamps may be released, and carries the WAL starts along. One swap is under way at a time; a
 * bound counts only once its swap stands. Whatever else stands at the key belongs to a newer
 * leader.
 *
 *   LEADING --a foreign object where ours should stand--> DEPOSED --close--> CLOSED
 */

#define TICK_BUSY_MS 100
#define TICK_IDLE_MS 1000
#define PATIENCE     8 /* failures in a row before waiting batches are refused; about half a second */

static void leader_send(struct sf_shard *shard);
static void leader_write(struct sf_shard *shard);

int64_t sf_shard_backoff_ms(struct sf_shard *shard, unsigned failures)
{
    uint64_t ceiling = UINT64_C(4) << (failures < 8 ? failures : 8);
    return 1 + (int64_t)sf_rng_below(&shard->ctx->rng, ceiling);
}

void sf_leader_encode(struct sf_shard *shard, const struct sf_leader_facts *facts,
                      struct sf_buf *out)
{
    Searchfabric__V1__CoordinatorLeaderObject object =
        SEARCHFABRIC__V1__COORDINATOR_LEADER_OBJECT__INIT;
    Searchfabric__V1__WalStreamStart starts[SF_WAL_STREAMS];
    Searchfabric__V1__WalStreamStart *pointers[SF_WAL_STREAMS];
    char attempt[SF_ATTEMPT_ID_BYTES];
    sf_attempts_next(shard->commit->deps.attempts, attempt);
    for (unsigned i = 0; i < SF_WAL_STREAMS; i++) {
        searchfabric__v1__wal_stream_start__init(&starts[i]);
        starts[i].modality = sf_wal_stream_modality(i);
        starts[i].writer_mode = sf_wal_stream_mode(i);
        starts[i].chunk_epoch = facts->start_epoch[i];
        starts[i].chunk_seq = facts->start_seq[i];
        pointers[i] = &starts[i];
    }
    object.attempt_id = attempt;
    object.shard_id = shard->id;
    object.coordinator_epoch = facts->epoch;
    object.owner_id = shard->commit->owner_id;
    object.issued_upper_bound_ts = facts->bound;
    object.sealed_below_epoch = facts->sealed_below;
    object.n_stream_starts = SF_WAL_STREAMS;
    object.stream_starts = pointers;
    object.updated_at_unix_ms = sf_clock_unix_ms(shard->commit->deps.clock);
    sf_durable_encode(&object.base, out, NULL);
}

void sf_shard_leader_encode(struct sf_shard *shard, uint64_t bound, struct sf_buf *out)
{
    struct sf_leader_facts facts = {
        .epoch = shard->epoch, .bound = bound, .sealed_below = shard->epoch};
    for (unsigned i = 0; i < SF_WAL_STREAMS; i++)
        sf_wal_stream_start(&shard->streams[i], &facts.start_epoch[i], &facts.start_seq[i]);
    sf_leader_encode(shard, &facts, out);
}

/* Lanes that waited for the bound run again. */
static void bound_raised(struct sf_shard *shard)
{
    struct sf_lane *lane = shard->bound_lanes;
    shard->bound_lanes = NULL;
    while (lane != NULL) {
        struct sf_lane *next = lane->next_bound;
        lane->bound_waiting = false;
        sf_lane_pump(lane);
        lane = next;
    }
}

static void leader_stands(struct sf_shard *shard, const struct sf_etag *etag)
{
    shard->leader_etag = *etag;
    shard->leader_failures = 0;
    shard->leader_writing = false;
    if (shard->sent_bound > shard->bound)
        shard->bound = shard->sent_bound;
    bool again = shard->leader_again;
    shard->leader_again = false;
    shard->want_bound = shard->bound; /* who needs more asks again */
    if (again)
        leader_write(shard);
    bound_raised(shard);
    sf_shard_control_check(shard);
}

/* The swap has to be tried again. Whoever waits for the bound is not kept waiting for ever. */
static void leader_failed(struct sf_shard *shard)
{
    sf_timer_start(&shard->leader_timer, sf_shard_backoff_ms(shard, shard->leader_failures++));
    if (shard->leader_failures < PATIENCE)
        return;
    for (struct sf_lane *lane = shard->bound_lanes; lane != NULL; lane = lane->next_bound)
        sf_lane_refuse_unstarted(lane, "object_store");
}

static void note_owner(struct sf_shard *shard, struct sf_view body)
{
    struct sf_arena *arena = sf_arena_new(1u << 20);
    ProtobufCMessage *message = NULL;
    if (sf_durable_decode(&searchfabric__v1__coordinator_leader_object__descriptor, body, arena,
                          NULL, &message) == SF_OK) {
        const Searchfabric__V1__CoordinatorLeaderObject *leader = (const void *)message;
        snprintf(shard->leader_hint, sizeof(shard->leader_hint), "%s", leader->owner_id);
    }
    sf_arena_destroy(arena);
}

static void leader_read_done(struct sf_get *get)
{
    struct sf_shard *shard = SF_CONTAINER_OF(get, struct sf_shard, leader_get);
    shard->ops_outstanding--;
    if (shard->state != SF_SHARD_LEADING)
        return;
    if (get->err == SF_OK &&
        sf_view_equal(sf_buf_view(&get->body), sf_buf_view(&shard->leader_body))) {
        leader_stands(shard, &get->etag);
    } else if (get->err == SF_OK && strcmp(get->etag.text, shard->leader_etag.text) != 0) {
        note_owner(shard, sf_buf_view(&get->body));
        sf_shard_depose(shard, "leader.json was swapped by another owner");
    } else { /* not seen yet, or not readable */
        leader_failed(shard);
    }
}

static void leader_put_done(struct sf_batch *batch)
{
    struct sf_shard *shard = SF_CONTAINER_OF(batch, struct sf_shard, leader_batch);
    shard->ops_outstanding--;
    if (shard->state != SF_SHARD_LEADING)
        return;
    if (shard->leader_put.err == SF_OK) {
        leader_stands(shard, &shard->leader_put.etag);
    } else if (shard->leader_put.err == SF_ERR_PRECONDITION ||
               shard->leader_put.err == SF_ERR_AMBIGUOUS) {
        sf_buf_fini(&shard->leader_get.body);
        shard->leader_get = (struct sf_get){.key = sf_buf_view(&shard->leader_key),
                                            .loop = shard->ctx->loop,
                                            .done = leader_read_done};
        shard->ops_outstanding++;
        sf_store_get(shard->commit->deps.store, &shard->leader_get);
    } else {
        leader_failed(shard);
    }
}

static void leader_send(struct sf_shard *shard)
{
    shard->leader_put = (struct sf_put){.key = sf_buf_view(&shard->leader_key),
                                        .body = sf_buf_view(&shard->leader_body),
                                        .cond = SF_PUT_MATCH,
                                        .match = shard->leader_etag};
    shard->leader_batch = (struct sf_batch){
        .puts = &shard->leader_put, .count = 1, .loop = shard->ctx->loop, .done = leader_put_done};
    shard->ops_outstanding++;
    sf_store_submit(shard->commit->deps.store, &shard->leader_batch);
}

static void leader_retry(struct sf_timer *timer)
{
    struct sf_shard *shard = SF_CONTAINER_OF(timer, struct sf_shard, leader_timer);
    if (shard->state == SF_SHARD_LEADING)
        leader_send(shard);
}

static void leader_write(struct sf_shard *shard)
{
    shard->leader_writing = true;
    shard->sent_bound = shard->want_bound > shard->bound ? shard->want_bound : shard->bound;
    if (SF_MUTANT(coord_bound_early))
        shard->bound = shard->sent_bound;
    sf_buf_clear(&shard->leader_body);
    sf_shard_leader_encode(shard, shard->sent_bound, &shard->leader_body);
    leader_send(shard);
}

void sf_shard_want_bound(struct sf_shard *shard, uint64_t bound)
{
    if (bound > shard->want_bound)
        shard->want_bound = bound;
    if (shard->leader_writing)
        shard->leader_again = shard->leader_again || bound == 0;
    else if (bound == 0 || shard->want_bound > shard->bound)
        leader_write(shard);
}

void sf_shard_depose(struct sf_shard *shard, const char *why)
{
    if (shard->state != SF_SHARD_LEADING)
        return;
    SF_LOG(WARN, "coordinator_deposed", SF_KV_U64("shard_id", shard->id),
           SF_KV_U64("coordinator_epoch", shard->epoch), SF_KV_STR("reason", why));
    shard->state = SF_SHARD_DEPOSED;
    sf_timer_stop(&shard->leader_timer);
    sf_timer_stop(&shard->tick);
    for (unsigned i = 0; i < SF_WAL_STREAMS; i++)
        sf_wal_stream_stop(&shard->streams[i]);
    sf_lanes_abandon(shard, SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_NOT_LEADER);
    sf_shard_count(shard);
    sf_shard_control_check(shard);
}

/* ---- counters and tick -------------------------------------------------------------------------
 */

void sf_shard_count(struct sf_shard *shard)
{
    struct sf_shard_counters *counters = &shard->counters;
    atomic_store_explicit(&counters->epoch, shard->epoch, memory_order_relaxed);
    atomic_store_explicit(&counters->lanes, sf_map_count(shard->lanes), memory_order_relaxed);
    atomic_store_explicit(&counters->queued, shard->queued, memory_order_relaxed);
    atomic_store_explicit(&counters->pending, shard->pending, memory_order_relaxed);
    atomic_store_explicit(&counters->unpublished, shard->unpublished, memory_order_relaxed);
    atomic_store_explicit(&counters->pending_bytes, shard->pending_bytes, memory_order_relaxed);
    atomic_store_explicit(&counters->leading, shard->state == SF_SHARD_LEADING,
                          memory_order_relaxed);
}

bool sf_shard_idle(const struct sf_shard *shard)
{
    return shard->queued == 0 && shard->pending == 0 && shard->unpublished == 0;
}

/* Age of the oldest slice of a lane that waits for what stream pair `covers` carries. */
static int64_t waiting_ms(const struct sf_lane *lane, uint8_t covers)
{
    for (const struct sf_intent *i = lane->next_hand; i != NULL; i = i->next) {
        if ((i->barrier.touched & covers & ~i->barrier.completed) != 0)
            return lane->shard->ctx->loop->now_ms - i->opened_ms;
    }
    return 0;
}

/* The gauges of note 6.2. */
static void measure_pressure(struct sf_shard *shard)
{
    const struct sf_commit_deps *deps = &shard->commit->deps;
    int64_t now = shard->ctx->loop->now_ms;
    int64_t lag[2] = {0, 0};
    for (struct sf_lane *lane = shard->open_lanes; lane != NULL; lane = lane->open_next) {
        for (unsigned k = 0; k < 2; k++) {
            int64_t age = waiting_ms(lane, sf_wal_stream_covers(2 * k));
            lag[k] = age > lag[k] ? age : lag[k];
        }
    }
    sf_commit_metric_set(shard->pressure[SF_PRESSURE_TSO],
                         shard->tso_open > 0 && now - shard->tso_asked_ms > shard->tso_rtt_ms
                             ? now - shard->tso_asked_ms
                             : shard->tso_rtt_ms);
    sf_commit_metric_set(shard->pressure[SF_PRESSURE_HOT_TIER],
                         (int64_t)(sf_map_count(shard->lanes) * 100 / deps->shard_lanes));
    sf_commit_metric_set(shard->pressure[SF_PRESSURE_WRITER_QUEUE],
                         (int64_t)(shard->pending_bytes * 100 / deps->shard_pending_bytes));
    sf_commit_metric_set(shard->pressure[SF_PRESSURE_LAG_METADATA], lag[0]);
    sf_commit_metric_set(shard->pressure[SF_PRESSURE_LAG_SEMANTIC], lag[1]);
    sf_commit_metric_set(shard->pressure[SF_PRESSURE_PUBLISH_BACKLOG], (int64_t)shard->unpublished);
}

/* Greatest lag and age over the lanes that have open work; idle lanes have none. */
static void tick_due(struct sf_timer *timer)
{
    struct sf_shard *shard = SF_CONTAINER_OF(timer, struct sf_shard, tick);
    uint64_t lag_ms = 0;
    uint64_t lag_tso = 0;
    int64_t oldest_ms = 0;
    for (struct sf_lane *lane = shard->open_lanes; lane != NULL; lane = lane->open_next) {
        uint64_t newest = lane->marks.frontier.local_max_commit_ts;
        uint64_t lag = sf_commit_lag_ms(newest, lane->marks.safe_ts);
        int64_t age = shard->ctx->loop->now_ms - lane->first->opened_ms;
        lag_ms = lag > lag_ms ? lag : lag_ms;
        lag_tso = newest - lane->marks.safe_ts > lag_tso ? newest - lane->marks.safe_ts : lag_tso;
        oldest_ms = age > oldest_ms ? age : oldest_ms;
    }
    atomic_store_explicit(&shard->counters.lag_ms, lag_ms, memory_order_relaxed);
    sf_commit_metric_set(shard->lag_ms, (int64_t)lag_ms);
    sf_commit_metric_set(shard->lag_tso, (int64_t)lag_tso);
    sf_commit_metric_set(shard->oldest_age_ms, oldest_ms);
    sf_lanes_evict(shard);
    measure_pressure(shard);
    sf_shard_count(shard);
    sf_shard_tick_start(shard);
}

void sf_shard_tick_start(struct sf_shard *shard)
{
    if (shard->state != SF_SHARD_LEADING || sf_map_count(shard->lanes) == 0 ||
        sf_timer_active(&shard->tick))
        return;
    bool busy = shard->open_lanes != NULL || shard->queued > 0;
    sf_timer_start(&shard->tick, busy ? TICK_BUSY_MS : TICK_IDLE_MS);
}

void sf_shard_timers_init(struct sf_shard *shard)
{
    sf_timer_init(&shard->leader_timer, shard->ctx->loop, leader_retry);
    sf_timer_init(&shard->tick, shard->ctx->loop, tick_due);
}

/* ---- drain and close ---------------------------------------------------------------------------
 */

void sf_shard_control_check(struct sf_shard *shard)
{
    if (shard->control_done != NULL)
        shard->control_done(shard);
}
