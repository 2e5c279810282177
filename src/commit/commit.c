#include "commit/commit.h"

#include <stdlib.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "commit/commit_priv.h"

/*
 * Life of the coordinator: open (claim, seal, read, hand what stands to the lanes), drain, close.
 * The blocking side talks to the shards through one task each and waits until the last of them is
 * through; what a shard waits for is looked at whenever something of it ends (control_done), or on
 * a timer where a limit runs.
 */

#define CLOSE_POLL_MS 1

static void defaults(struct sf_commit_deps *deps)
{
#define DEFAULT(field, value)                                                                      \
    if (deps->field == 0)                                                                          \
    deps->field = (value)
    DEFAULT(shard_count, 16);
    DEFAULT(bound_window_ms, 500);
    DEFAULT(wal_flush_ms, 2);
    DEFAULT(wal_chunk_bytes, 4u << 20);
    DEFAULT(wal_inflight_chunks, 8);
    DEFAULT(duplicate_window_ms, 15u * 60 * 1000);
    DEFAULT(lane_queue_batches, 4096);
    DEFAULT(stream_inflight, 1024);
    DEFAULT(shard_pending_bytes, 64u << 20);
    DEFAULT(shard_lanes, 65536);
    DEFAULT(shard_duplicates, 2000000);
    DEFAULT(lane_idle_ms, 60000);
    DEFAULT(manifest_base_interval, 32);
    DEFAULT(manifest_list_entries, 1024);
#undef DEFAULT
}

/* ---- waiting for all shards --------------------------------------------------------------------
 */

/* A shard is through; the last one wakes the waiter. */
static void control_end(struct sf_shard *shard, bool failed)
{
    struct sf_commit *commit = shard->commit;
    shard->control_done = NULL;
    if (failed)
        atomic_fetch_add(&commit->control_failed, 1);
    if (atomic_fetch_sub(&commit->control_left, 1) == 1)
        sf_waiter_wake(commit->control_waiter);
}

/* Runs `task` on every shard's loop and waits until each called control_end. Returns how many
 * failed. */
static uint32_t control_all(struct sf_commit *commit, struct sf_sched *sched, sf_task_fn task)
{
    struct sf_waiter waiter;
    sf_waiter_init(&waiter, sched);
    commit->control_waiter = &waiter;
    atomic_store(&commit->control_left, commit->deps.shard_count);
    atomic_store(&commit->control_failed, 0);
    for (uint32_t i = 0; i < commit->deps.shard_count; i++) {
        commit->shards[i].control_task.run = task;
        sf_loop_post(commit->shards[i].ctx->loop, &commit->shards[i].control_task);
    }
    sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
    return atomic_load(&commit->control_failed);
}

static struct sf_shard *shard_of_task(struct sf_task *task)
{
    return SF_CONTAINER_OF(task, struct sf_shard, control_task);
}

/* ---- open --------------------------------------------------------------------------------------
 */

static void recovery_check(struct sf_shard *shard)
{
    if (shard->recovering == 0 || shard->state != SF_SHARD_LEADING)
        control_end(shard, false);
    else if (shard->recover_err != SF_OK)
        control_end(shard, true);
}

/* Opens the lanes that have unpublished slices, and no others. */
static void recovery_task(struct sf_task *task)
{
    struct sf_shard *shard = shard_of_task(task);
    for (struct sf_recovered_lane *l = shard->recovered; l != NULL; l = l->next)
        shard->recovering++;
    while (shard->recovered != NULL && shard->state == SF_SHARD_LEADING) {
        struct sf_recovered_lane *lane = shard->recovered;
        shard->recovered = lane->next;
        (void)sf_lane_open(shard, lane->collection, lane->first);
        free(lane);
    }
    shard->control_done = recovery_check;
    sf_shard_count(shard);
    recovery_check(shard);
}

static void loops_init(struct sf_commit *commit)
{
    commit->loop_count = commit->deps.loop_count;
    commit->loops = sf_calloc(commit->loop_count, sizeof(commit->loops[0]));
    for (size_t i = 0; i < commit->loop_count; i++) {
        commit->loops[i].loop = commit->deps.loops[i];
        commit->loops[i].tso = sf_tso_batcher_new(commit->deps.tso, commit->loops[i].loop);
        if (commit->deps.metrics != NULL)
            sf_tso_batcher_meter(commit->loops[i].tso, commit->deps.metrics, commit->deps.clock);
        sf_rng_init(&commit->loops[i].rng, commit->deps.random_seed + i);
    }
}

static void shards_init(struct sf_commit *commit)
{
    commit->shards = sf_calloc(commit->deps.shard_count, sizeof(commit->shards[0]));
    for (uint32_t i = 0; i < commit->deps.shard_count; i++) {
        struct sf_shard *shard = &commit->shards[i];
        shard->commit = commit;
        shard->id = i;
        shard->ctx = &commit->loops[i % commit->loop_count];
        shard->lanes = sf_map_new();
        shard->recovery_arena = sf_arena_new(SF_LIMIT_COMMIT_RECOVERY_BYTES);
        sf_leader_key(&shard->leader_key, i);
        sf_shard_timers_init(shard);
        for (unsigned s = 0; s < SF_WAL_STREAMS; s++)
            sf_wal_stream_init(&shard->streams[s], shard, s);
        sf_commit_metrics_shard(&commit->metrics, shard);
    }
}

static void recovered_free(struct sf_recovered_lane *lane)
{
    while (lane != NULL) {
        struct sf_recovered_lane *next = lane->next;
        while (lane->first != NULL) {
            struct sf_recovered *recovered = lane->first;
            lane->first = recovered->next;
            free(recovered);
        }
        free(lane);
        lane = next;
    }
}

static void commit_free(struct sf_commit *commit)
{
    for (uint32_t i = 0; i < commit->deps.shard_count; i++) {
        struct sf_shard *shard = &commit->shards[i];
        recovered_free(shard->recovered);
        sf_map_destroy(shard->lanes, NULL);
        sf_arena_destroy(shard->recovery_arena);
        for (unsigned s = 0; s < SF_WAL_STREAMS; s++)
            sf_wal_stream_fini(&shard->streams[s]);
        if (shard->barrier.open != NULL)
            sf_barrier_fini(&shard->barrier);
        sf_buf_fini(&shard->leader_key);
        sf_buf_fini(&shard->leader_body);
        sf_buf_fini(&shard->leader_get.body);
    }
    for (size_t i = 0; i < commit->loop_count; i++)
        sf_tso_source_destroy(commit->loops[i].tso);
    free(commit->shards);
    free(commit->loops);
    free(commit->owner_id);
    free(commit);
}

static enum sf_err recover(struct sf_commit *commit, struct sf_sched *sched, struct sf_diag *diag)
{
    struct sf_recovered_lane **lists = sf_calloc(commit->deps.shard_count, sizeof(lists[0]));
    enum sf_err err = sf_commit_recover(commit, sched, diag, lists);
    for (uint32_t i = 0; i < commit->deps.shard_count; i++) {
        struct sf_shard *shard = &commit->shards[i];
        shard->recovered = lists[i];
        if (err == SF_OK) {
            sf_barrier_init(&shard->barrier, shard->epoch);
            sf_commit_metric_add(commit->metrics.epoch_changes, 1);
        }
    }
    free(lists);
    return err;
}

/* Why a shard did not come up. */
static enum sf_err recovery_error(const struct sf_commit *commit, struct sf_diag *diag)
{
    uint32_t i = 0;
    while (i + 1 < commit->deps.shard_count && commit->shards[i].recover_err == SF_OK)
        i++;
    return sf_diag_set(diag, commit->shards[i].recover_err,
                       "shard %u: a lane with unpublished slices cannot be read", i);
}

enum sf_err sf_commit_open(const struct sf_commit_deps *deps, struct sf_sched *sched,
                           struct sf_diag *diag, struct sf_commit **out_commit)
{
    struct sf_commit *commit = sf_calloc(1, sizeof(*commit));
    int64_t start_ms = sf_clock_mono_ms(deps->clock);
    commit->deps = *deps;
    defaults(&commit->deps);
    commit->owner_id = sf_strdup(deps->owner_id == NULL ? "" : deps->owner_id);
    sf_commit_metrics_init(&commit->metrics, deps->metrics);
    loops_init(commit);
    shards_init(commit);
    sf_commit_service_init(commit);
    enum sf_err err = recover(commit, sched, diag);
    if (err != SF_OK) {
        commit_free(commit);
        return err;
    }
    if (control_all(commit, sched, recovery_task) > 0) {
        err = recovery_error(commit, diag);
        sf_commit_close(commit, sched);
        return err;
    }
    commit->recovery_ms = sf_clock_mono_ms(deps->clock) - start_ms;
    sf_commit_metric_ms(commit->metrics.recovery_ms, (double)commit->recovery_ms);
    SF_LOG(INFO, "coordinator_serving", SF_KV_STR("owner_id", commit->owner_id),
           SF_KV_U64("shards", commit->deps.shard_count),
           SF_KV_U64("recovered_slices", commit->recovered_slices),
           SF_KV_U64("recovered_chunks", commit->recovered_chunks),
           SF_KV_I64("recovery_ms", commit->recovery_ms));
    *out_commit = commit;
    return SF_OK;
}

/* ---- drain -------------------------------------------------------------------------------------
 */

static void drain_recorded(struct sf_shard *shard)
{
    if (!shard->leader_writing || shard->state != SF_SHARD_LEADING) {
        sf_timer_stop(&shard->control_timer);
        control_end(shard, false);
    }
}

static void drain_check(struct sf_shard *shard)
{
    if (shard->state != SF_SHARD_LEADING) {
        sf_timer_stop(&shard->control_timer);
        control_end(shard, false);
    } else if (sf_shard_idle(shard)) {
        shard->control_done = drain_recorded;
        sf_shard_want_bound(shard, 0); /* the starts */
        drain_recorded(shard);
    }
}

static void drain_limit(struct sf_timer *timer)
{
    struct sf_shard *shard = SF_CONTAINER_OF(timer, struct sf_shard, control_timer);
    if (shard->control_done != NULL)
        control_end(shard, true);
}

static void drain_task(struct sf_task *task)
{
    struct sf_shard *shard = shard_of_task(task);
    shard->draining = true;
    shard->control_done = drain_check;
    sf_timer_init(&shard->control_timer, shard->ctx->loop, drain_limit);
    sf_timer_start(&shard->control_timer, shard->control_deadline_ms);
    drain_check(shard);
}

enum sf_err sf_commit_drain(struct sf_commit *commit, struct sf_sched *sched, int64_t limit_ms)
{
    for (uint32_t i = 0; i < commit->deps.shard_count; i++)
        commit->shards[i].control_deadline_ms = limit_ms;
    return control_all(commit, sched, drain_task) == 0 ? SF_OK : SF_ERR_UNAVAILABLE;
}

/* ---- close -------------------------------------------------------------------------------------
 */

/* Ends the close of a shard in a frame of its own: the closing thread frees it after. */
static void close_end(struct sf_task *task)
{
    control_end(shard_of_task(task), false);
}

static void close_poll(struct sf_timer *timer)
{
    struct sf_shard *shard = SF_CONTAINER_OF(timer, struct sf_shard, control_timer);
    if (shard->ops_outstanding > 0) {
        sf_timer_start(&shard->control_timer, CLOSE_POLL_MS);
        return;
    }
    sf_lanes_free(shard);
    shard->control_task.run = close_end;
    sf_loop_post(shard->ctx->loop, &shard->control_task);
}

static void close_task(struct sf_task *task)
{
    struct sf_shard *shard = shard_of_task(task);
    shard->control_done = NULL;
    shard->state = SF_SHARD_CLOSED;
    sf_timer_stop(&shard->leader_timer);
    sf_timer_stop(&shard->tick);
    for (unsigned i = 0; i < SF_WAL_STREAMS; i++)
        sf_wal_stream_stop(&shard->streams[i]);
    sf_lanes_abandon(shard, SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_NOT_LEADER);
    sf_timer_init(&shard->control_timer, shard->ctx->loop, close_poll);
    sf_lanes_close(shard);
    sf_timer_start(&shard->control_timer, CLOSE_POLL_MS);
}

void sf_commit_close(struct sf_commit *commit, struct sf_sched *sched)
{
    if (commit == NULL)
        return;
    (void)control_all(commit, sched, close_task);
    commit_free(commit);
}

/* ---- stats -------------------------------------------------------------------------------------
 */

void sf_commit_stats_get(struct sf_commit *commit, struct sf_commit_stats *out_stats)
{
    *out_stats = (struct sf_commit_stats){.shards = commit->deps.shard_count,
                                          .recovered_slices = commit->recovered_slices,
                                          .recovered_chunks = commit->recovered_chunks,
                                          .recovery_ms = commit->recovery_ms};
    for (uint32_t i = 0; i < commit->deps.shard_count; i++) {
        const struct sf_shard_counters *c = &commit->shards[i].counters;
        uint64_t epoch = atomic_load(&c->epoch);
        uint64_t lag = atomic_load(&c->lag_ms);
        out_stats->shards_leading += atomic_load(&c->leading) ? 1 : 0;
        out_stats->max_epoch = epoch > out_stats->max_epoch ? epoch : out_stats->max_epoch;
        out_stats->lanes += atomic_load(&c->lanes);
        out_stats->queued_batches += atomic_load(&c->queued);
        out_stats->pending_intents += atomic_load(&c->pending);
        out_stats->unpublished += atomic_load(&c->unpublished);
        out_stats->pending_bytes += atomic_load(&c->pending_bytes);
        out_stats->lag_ms = lag > out_stats->lag_ms ? lag : out_stats->lag_ms;
    }
}
