#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "commit/commit_priv.h"

/*
 * Which lanes are in memory. A lane comes back from the committed manifest alone (watermarks,
 * local_max, duplicate entries) plus, after a restart, the slices that recovery found standing. It
 * leaves once nothing of it is unfinished and its newest duplicate entry has left the window. An
 * idle lane asks the store for nothing.
 *
 *   (cold) --first traffic--> LOADING --head read--> ACTIVE --idle--> (cold)
 *                                \--not readable--> (cold), waiting submissions refused
 */

#define LOAD_RETRIES 20
#define EVICT_LOOKS  64

static struct sf_view lane_key(const struct sf_collection_ref *collection)
{
    return sf_view_bytes(collection, sizeof(*collection));
}

/* ---- LRU ---------------------------------------------------------------------------------------
 */

static void lru_unlink(struct sf_lane *lane)
{
    struct sf_shard *shard = lane->shard;
    if (lane->lru_prev != NULL)
        lane->lru_prev->lru_next = lane->lru_next;
    else
        shard->lru_first = lane->lru_next;
    if (lane->lru_next != NULL)
        lane->lru_next->lru_prev = lane->lru_prev;
    else
        shard->lru_last = lane->lru_prev;
    lane->lru_prev = lane->lru_next = NULL;
}

static void lru_push(struct sf_lane *lane)
{
    struct sf_shard *shard = lane->shard;
    lane->lru_next = shard->lru_first;
    if (shard->lru_first != NULL)
        shard->lru_first->lru_prev = lane;
    else
        shard->lru_last = lane;
    shard->lru_first = lane;
    lane->last_access_ms = shard->ctx->loop->now_ms;
    lane->last_access_unix_ms = sf_clock_unix_ms(shard->commit->deps.clock);
}

/* ---- leaving -----------------------------------------------------------------------------------
 */

static void lane_free(struct sf_lane *lane)
{
    struct sf_shard *shard = lane->shard;
    (void)sf_map_del(shard->lanes, lane_key(&lane->collection));
    lru_unlink(lane);
    sf_timer_stop(&lane->retry);
    sf_timer_stop(&lane->load_timer);
    sf_publisher_destroy(lane->publisher);
    while (lane->first != NULL) {
        struct sf_intent *intent = lane->first;
        lane->first = intent->next;
        sf_barrier_forget(&shard->barrier, &intent->barrier);
        free(intent);
    }
    while (lane->recovered != NULL) {
        struct sf_recovered *recovered = lane->recovered;
        lane->recovered = recovered->next;
        free(recovered);
    }
    sf_dups_free(lane);
    free(lane);
}

static bool may_leave(struct sf_lane *lane)
{
    struct sf_shard *shard = lane->shard;
    uint64_t now = sf_tso_from_ms((uint64_t)sf_clock_unix_ms(shard->commit->deps.clock)).v;
    now = now > shard->newest_tso ? now : shard->newest_tso;
    if (lane->state != SF_LANE_ACTIVE || lane->intents > 0 || lane->queued > 0 ||
        lane->tso_pending || lane->bound_waiting || sf_timer_active(&lane->retry))
        return false;
    if (lane->dup_last == NULL)
        return true;
    return lane->dup_last->waiters == NULL && !lane->dup_last->running &&
           sf_commit_expired(lane->dup_last->first_admitted_ts, now,
                             shard->commit->deps.duplicate_window_ms);
}

static void evict(struct sf_shard *shard, int64_t idle_ms, unsigned looks)
{
    struct sf_lane *lane = shard->lru_last;
    int64_t before = shard->ctx->loop->now_ms - idle_ms;
    while (lane != NULL && looks-- > 0 && lane->last_access_ms <= before) {
        struct sf_lane *next = lane->lru_prev;
        if (may_leave(lane))
            lane_free(lane);
        else if (lane->state == SF_LANE_ACTIVE)
            sf_dups_prune(lane);
        lane = next;
    }
}

void sf_lanes_evict(struct sf_shard *shard)
{
    evict(shard, shard->commit->deps.lane_idle_ms, EVICT_LOOKS);
}

/* ---- coming back -------------------------------------------------------------------------------
 */

/* Oldest commit_ts whose duplicate entries matter: the window before what was issued last, and
 * whatever recovery has to compare. */
static uint64_t load_from(const struct sf_lane *lane)
{
    const struct sf_shard *shard = lane->shard;
    const struct sf_commit_deps *deps = &shard->commit->deps;
    uint64_t issued = sf_commit_ts_sub_ms(shard->old_bound, deps->bound_window_ms);
    uint64_t now = shard->newest_tso > issued ? shard->newest_tso : issued;
    uint64_t from = sf_commit_ts_sub_ms(now, deps->duplicate_window_ms);
    if (lane->recovered != NULL && lane->recovered->intent->commit_ts < from)
        from = lane->recovered->intent->commit_ts;
    return from;
}

static void load_duplicate(void *user, const Searchfabric__V1__DuplicateEntry *entry)
{
    struct sf_lane *lane = user;
    struct sf_dup *dup = sf_dup_find(lane, entry->stream_identity, entry->batch_id);
    if (dup == NULL)
        dup = sf_dup_new(lane,
                         &(struct sf_dup_identity){.stream_identity = entry->stream_identity,
                                                   .batch_id = entry->batch_id,
                                                   .batch_fingerprint = entry->batch_fingerprint,
                                                   .schema_token = "",
                                                   .first_admitted_ts = entry->first_admitted_ts,
                                                   .slice_count = entry->slice_count});
    if (sf_dup_slice(dup, entry->slice_ordinal) != NULL)
        return;
    struct sf_dup_slice *slice = sf_dup_slice_add(dup, entry->slice_ordinal);
    *slice = (struct sf_dup_slice){.ordinal = entry->slice_ordinal,
                                   .state = SF_SLICE_PUBLISHED,
                                   .first_entry_index = entry->first_entry_index,
                                   .last_entry_index = entry->last_entry_index,
                                   .first_source_seq = entry->first_source_seq,
                                   .last_source_seq = entry->last_source_seq,
                                   .commit_ts = entry->commit_ts,
                                   .row_count = entry->row_count,
                                   .manifest_version = sf_publisher_version(lane->publisher)};
}

static void release_marks(struct sf_shard *shard, struct sf_wal_mark *const marks[SF_WAL_STREAMS])
{
    for (unsigned i = 0; i < SF_WAL_STREAMS; i++) {
        if (marks[i] != NULL)
            sf_wal_mark_release(&shard->streams[i], marks[i]);
    }
}

static struct sf_dup *recovered_dup(struct sf_lane *lane,
                                    const Searchfabric__V1__WriteIntent *message)
{
    struct sf_dup *dup = sf_dup_find(lane, message->stream_identity, message->batch_id);
    const struct sf_dup_identity identity = {.stream_identity = message->stream_identity,
                                             .batch_id = message->batch_id,
                                             .batch_fingerprint = message->batch_fingerprint,
                                             .schema_token = message->schema_generation_token,
                                             .first_admitted_ts = message->first_admitted_ts,
                                             .slice_count = message->slice_count};
    if (dup == NULL)
        dup = sf_dup_new(lane, &identity);
    sf_dup_name(dup, &identity);
    return dup;
}

static void adopt_slice(struct sf_lane *lane, struct sf_dup *dup,
                        const struct sf_recovered *recovered)
{
    const Searchfabric__V1__WriteIntent *message = recovered->intent;
    struct sf_intent *intent = sf_calloc(1, sizeof(*intent));
    struct sf_dup_slice *slice = sf_dup_slice_add(dup, message->slice_ordinal);
    intent->lane = lane;
    intent->dup = dup;
    intent->ordinal = message->slice_ordinal;
    intent->source_partition = message->source_partition;
    intent->source_epoch = message->source_epoch;
    intent->first_source_seq = message->first_source_seq;
    intent->last_source_seq = message->last_source_seq;
    intent->first_entry_index = message->first_entry_index;
    intent->last_entry_index = message->last_entry_index;
    intent->row_count = message->row_count;
    intent->logical_bytes = message->logical_bytes;
    intent->writer_mode = message->writer_mode;
    intent->opened_ms = lane->shard->ctx->loop->now_ms;
    memcpy(intent->wal_marks, recovered->wal_marks, sizeof(intent->wal_marks));
    for (size_t i = 0; i < message->n_touched_modalities; i++)
        intent->barrier.touched |= SF_MODALITY_BIT(message->touched_modalities[i]);
    intent->barrier.completed = intent->barrier.touched;
    intent->barrier.commit_ts = message->commit_ts;
    intent->barrier.coordinator_epoch = message->coordinator_epoch;
    memcpy(intent->barrier.anchors, recovered->anchors, sizeof(intent->barrier.anchors));
    snprintf(intent->barrier.write_intent_id, sizeof(intent->barrier.write_intent_id), "%s",
             message->write_intent_id);
    *slice = (struct sf_dup_slice){.ordinal = intent->ordinal,
                                   .state = SF_SLICE_DURABLE,
                                   .first_entry_index = intent->first_entry_index,
                                   .last_entry_index = intent->last_entry_index,
                                   .first_source_seq = intent->first_source_seq,
                                   .last_source_seq = intent->last_source_seq,
                                   .commit_ts = message->commit_ts,
                                   .row_count = intent->row_count,
                                   .touched = intent->barrier.touched};
    if (message->commit_ts > lane->marks.frontier.local_max_commit_ts) {
        uint8_t enabled = 0;
        for (size_t i = 0; i < message->n_enabled_modalities; i++)
            enabled |= SF_MODALITY_BIT(message->enabled_modalities[i]);
        sf_marks_enable(&lane->marks, enabled);
        sf_marks_raise(&lane->marks, message->commit_ts);
    }
    sf_lane_add_durable(lane, intent);
}

/* Slices that recovery found standing: published ones are known by their identity. */
static void adopt_recovered(struct sf_lane *lane)
{
    bool any = lane->recovered != NULL;
    while (lane->recovered != NULL) {
        struct sf_recovered *recovered = lane->recovered;
        lane->recovered = recovered->next;
        struct sf_dup *dup = recovered_dup(lane, recovered->intent);
        if (sf_dup_slice(dup, recovered->intent->slice_ordinal) != NULL)
            release_marks(lane->shard, recovered->wal_marks);
        else
            adopt_slice(lane, dup, recovered);
        free(recovered);
    }
    if (any) {
        sf_lane_hand_over(lane);
        if (--lane->shard->recovering == 0) {
            sf_arena_destroy(lane->shard->recovery_arena);
            lane->shard->recovery_arena = NULL;
        }
    }
}

static void tell_loaded(struct sf_lane *lane,
                        const Searchfabric__V1__ManifestCommittedHeadObject *head)
{
    struct sf_head_notice notice = {.collection = lane->collection,
                                    .version = head->committed_manifest_version,
                                    .previous = head->previous_committed_manifest_version};
    snprintf(notice.checksum, sizeof(notice.checksum), "%s", head->manifest_checksum_or_etag);
    sf_head_notices_tell(lane->shard->commit->deps.head_notices, &notice);
}

static void lane_loaded(struct sf_lane *lane, const struct sf_chain *chain)
{
    struct sf_shard *shard = lane->shard;
    const Searchfabric__V1__CollectionManifestObject *newest = sf_chain_newest(chain);
    struct sf_frontier frontier = {0};
    sf_commit_metric_ms(shard->commit->metrics.lane_load_ms,
                        (double)(shard->ctx->loop->now_ms - lane->load_started_ms));
    if (newest != NULL)
        sf_frontier_read(newest, &frontier);
    sf_marks_init(&lane->marks, &frontier, newest == NULL ? 0 : newest->safe_ts);
    if (!SF_MUTANT(coord_no_dedupe))
        sf_chain_each_duplicate(chain, load_duplicate, lane);
    lane->state = SF_LANE_ACTIVE;
    if (lane->recovered != NULL && chain->head != NULL)
        tell_loaded(lane, chain->head); /* the process before may have ended before it told */
    adopt_recovered(lane);
    sf_lane_release_loaded(lane);
    sf_shard_count(shard);
    sf_shard_tick_start(shard);
    sf_shard_control_check(shard);
}

static void load_again(struct sf_timer *timer)
{
    struct sf_lane *lane = SF_CONTAINER_OF(timer, struct sf_lane, load_timer);
    sf_publisher_load(lane->publisher, load_from(lane));
}

void sf_lane_refuse_unreadable(struct sf_submit *submit)
{
    struct sf_diag diag;
    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, SF_BACKEND_UNAVAILABLE, "the lane's state cannot be read");
    sf_diag_detail(&diag, "failing_authority", "lane_state");
    sf_submit_refuse(submit, SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_DEPENDENCY_UNAVAILABLE,
                     &diag);
}

/* The lane cannot be had now: whoever waits is refused, retryably. */
static void load_failed(struct sf_lane *lane, enum sf_err err)
{
    struct sf_shard *shard = lane->shard;
    SF_LOG(WARN, "lane_load_failed", SF_KV_U64("namespace_id", lane->collection.namespace_id.v),
           SF_KV_U64("collection_id", lane->collection.collection_id.v),
           SF_KV_U64("coordinator_epoch", shard->epoch),
           SF_KV_STR("error", sf_err_info(err)->name));
    if (lane->recovered != NULL) {
        if (++lane->load_failures == LOAD_RETRIES || err != SF_ERR_UNAVAILABLE) {
            shard->recover_err = err;
            sf_shard_control_check(shard);
        }
        sf_timer_start(&lane->load_timer, sf_shard_backoff_ms(shard, lane->load_failures));
    }
    while (lane->load_submits != NULL) {
        struct sf_submit *submit = lane->load_submits;
        lane->load_submits = submit->next_queued;
        lane->load_submit_count--;
        shard->queued--;
        sf_lane_refuse_unreadable(submit);
    }
    while (lane->load_queries != NULL) {
        struct sf_lane_query *query = lane->load_queries;
        lane->load_queries = query->next;
        sf_lane_query_answer(query, NULL, SF_BACKEND_UNAVAILABLE);
    }
    if (lane->recovered == NULL)
        lane_free(lane);
    sf_shard_control_check(shard);
}

static void on_loaded(void *user, enum sf_err err, const struct sf_chain *chain)
{
    struct sf_lane *lane = user;
    if (lane->shard->state != SF_SHARD_LEADING)
        return;
    if (err == SF_OK)
        lane_loaded(lane, chain);
    else if (err == SF_ERR_DEPOSED)
        sf_shard_depose(lane->shard, "a committed head carries a higher publisher_epoch");
    else
        load_failed(lane, err);
}

/* Watermarks for a manifest: never at or above a slice that it will not hold. */
static void on_frontier(void *user, uint64_t below_ts, struct sf_frontier *out_frontier)
{
    const struct sf_lane *lane = user;
    uint64_t limit = lane->marks.frontier.local_max_commit_ts;
    if (lane->next_hand != NULL && lane->next_hand->barrier.commit_ts <= limit)
        limit = lane->next_hand->barrier.commit_ts - 1;
    if (below_ts <= limit)
        limit = below_ts - 1;
    *out_frontier = lane->marks.frontier;
    if (SF_MUTANT(coord_manifest_ahead))
        return;
    for (unsigned m = 0; m < SF_MODALITY_COUNT; m++) {
        if (out_frontier->applied_ts[m] > limit)
            out_frontier->applied_ts[m] = limit;
    }
}

static void on_published(void *user, uint64_t version, size_t count)
{
    sf_lane_published(user, version, count);
}

static void on_stopped(void *user, enum sf_err err)
{
    struct sf_lane *lane = user;
    if (err == SF_ERR_DEPOSED) {
        sf_shard_depose(lane->shard, "the publisher met a higher publisher_epoch");
        return;
    }
    lane->broken = true; /* the lineage does not verify: nothing of this lane may go on */
    sf_lane_abandon(lane, SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_DEPENDENCY_UNAVAILABLE);
}

static const struct sf_publisher_ops publisher_ops = {
    .loaded = on_loaded, .frontier = on_frontier, .published = on_published, .stopped = on_stopped};

struct sf_lane *sf_lane_open(struct sf_shard *shard, struct sf_collection_ref collection,
                             struct sf_recovered *recovered)
{
    const struct sf_commit_deps *deps = &shard->commit->deps;
    struct sf_lane *lane = sf_calloc(1, sizeof(*lane));
    lane->shard = shard;
    lane->collection = collection;
    lane->dups = sf_map_new();
    lane->recovered = recovered;
    lane->load_started_ms = shard->ctx->loop->now_ms;
    sf_timer_init(&lane->load_timer, shard->ctx->loop, load_again);
    sf_lane_init_sequencing(lane);
    (void)sf_map_put(shard->lanes, lane_key(&lane->collection), lane);
    lru_push(lane);
    lane->publisher = sf_publisher_new(
        &(struct sf_publisher_options){.store = deps->store,
                                       .loop = shard->ctx->loop,
                                       .clock = deps->clock,
                                       .attempts = deps->attempts,
                                       .rng = &shard->ctx->rng,
                                       .ops_outstanding = &shard->ops_outstanding,
                                       .collection = collection,
                                       .publisher_epoch = shard->epoch,
                                       .base_interval = deps->manifest_base_interval,
                                       .list_entries = deps->manifest_list_entries,
                                       .notices = deps->head_notices},
        &publisher_ops, lane);
    sf_publisher_load(lane->publisher, load_from(lane));
    return lane;
}

struct sf_lane *sf_lane_get(struct sf_shard *shard, struct sf_collection_ref collection)
{
    struct sf_lane *lane = sf_map_get(shard->lanes, lane_key(&collection));
    if (lane != NULL) {
        sf_commit_metric_add(shard->commit->metrics.lane_hits, 1);
        lru_unlink(lane);
        lru_push(lane);
        return lane;
    }
    sf_commit_metric_add(shard->commit->metrics.lane_misses, 1);
    if (sf_map_count(shard->lanes) >= shard->commit->deps.shard_lanes)
        evict(shard, 0, EVICT_LOOKS);
    if (sf_map_count(shard->lanes) >= shard->commit->deps.shard_lanes)
        return NULL;
    return sf_lane_open(shard, collection, NULL);
}

void sf_shard_query(struct sf_lane_query *query)
{
    struct sf_shard *shard = query->shard;
    struct sf_lane *lane =
        shard->state == SF_SHARD_LEADING ? sf_lane_get(shard, query->collection) : NULL;
    if (lane == NULL) {
        sf_lane_query_answer(query, NULL,
                             shard->state == SF_SHARD_LEADING ? SF_RATE_LIMITED
                                                              : SF_BACKEND_UNAVAILABLE);
    } else if (lane->state == SF_LANE_ACTIVE) {
        sf_lane_query_answer(query, lane, SF_OK);
    } else {
        query->next = lane->load_queries;
        lane->load_queries = query;
    }
}

/* ---- all of them -------------------------------------------------------------------------------
 */

void sf_lanes_abandon(struct sf_shard *shard, Searchfabric__V1__BatchRefusal refusal)
{
    for (struct sf_lane *lane = shard->lru_first; lane != NULL; lane = lane->lru_next) {
        sf_timer_stop(&lane->load_timer);
        sf_lane_abandon(lane, refusal);
    }
}

void sf_lanes_close(struct sf_shard *shard)
{
    for (struct sf_lane *lane = shard->lru_first; lane != NULL; lane = lane->lru_next) {
        sf_publisher_destroy(lane->publisher);
        lane->publisher = NULL;
    }
}

void sf_lanes_free(struct sf_shard *shard)
{
    while (shard->lru_first != NULL)
        lane_free(shard->lru_first);
    shard->open_lanes = NULL;
}
