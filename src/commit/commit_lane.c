#include <stdlib.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "commit/commit_priv.h"

/*
 * Sequencing in one lane. Batches wait in arrival order; the front one is run unit by unit: a slice
 * of rows gets max(local_max + 1, next TSO), is registered at the barrier and handed to the writers
 * of the modalities it touches, all in one step of the loop; a barrier mark holds everything behind
 * it until all earlier slices are durable. What stops the front (no timestamp yet, the bound not
 * durable yet, a barrier) stops the lane, and its end pumps the lane again.
 *
 * Assignment and registration are one step, so no watermark can pass a slice that has its
 * timestamp.
 */

#define REFUSAL(name) SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_##name

#define RETRY_MS 5

/* One record of a slice's way, with the fields by which records are joined (note 10). */
static void log_slice(const char *event, const struct sf_intent *intent)
{
    const struct sf_lane *lane = intent->lane;
    SF_LOG(DEBUG, event, SF_KV_U64("namespace_id", lane->collection.namespace_id.v),
           SF_KV_U64("collection_id", lane->collection.collection_id.v),
           SF_KV_STR("batch_id", intent->dup->names->batch_id),
           SF_KV_U64("source_partition", intent->source_partition),
           SF_KV_U64("source_epoch", intent->source_epoch),
           SF_KV_U64("first_source_seq", intent->first_source_seq),
           SF_KV_U64("last_source_seq", intent->last_source_seq),
           SF_KV_U64("commit_ts", intent->barrier.commit_ts),
           SF_KV_U64("coordinator_epoch", lane->shard->epoch),
           SF_KV_U64("lag_ms", sf_commit_lag_ms(lane->marks.frontier.local_max_commit_ts,
                                                lane->marks.safe_ts)));
}

/* ---- queue -------------------------------------------------------------------------------------
 */

/* Takes the batch behind `before` (NULL: the front one) off the queue. */
static struct sf_submit *take(struct sf_lane *lane, struct sf_submit *before)
{
    struct sf_submit **at = before == NULL ? &lane->queue_first : &before->next_queued;
    struct sf_submit *submit = *at;
    *at = submit->next_queued;
    if (*at == NULL)
        lane->queue_last = before;
    submit->next_queued = NULL;
    lane->queued--;
    lane->shard->queued--;
    lane->shard->pending_bytes -= submit->reserved;
    submit->reserved = 0;
    return submit;
}

static void enqueue(struct sf_lane *lane, struct sf_submit *submit)
{
    if (lane->queue_last == NULL)
        lane->queue_first = submit;
    else
        lane->queue_last->next_queued = submit;
    lane->queue_last = submit;
    lane->queued++;
    lane->shard->queued++;
    submit->reserved = submit->cut.wal_bytes;
    lane->shard->pending_bytes += submit->reserved;
}

/* Refuses every waiter of a batch that never started, and forgets it. */
static void refuse_dup(struct sf_dup *dup, Searchfabric__V1__BatchRefusal refusal,
                       const struct sf_diag *diag)
{
    dup->running = false;
    while (dup->waiters != NULL) {
        struct sf_submit *submit = dup->waiters;
        dup->waiters = submit->next_waiting;
        sf_submit_refuse(submit, refusal, diag);
    }
    if (!dup->listed)
        sf_dup_free(dup);
    else if (dup->known == 0)
        sf_dup_drop(dup);
}

/* Takes the front batch, which has no timestamp yet, off the queue and refuses it. */
static void refuse_front(struct sf_lane *lane, Searchfabric__V1__BatchRefusal refusal,
                         const struct sf_diag *diag)
{
    refuse_dup(take(lane, NULL)->dup, refusal, diag);
}

/* ---- timestamps --------------------------------------------------------------------------------
 */

static bool is_queued_slice(const struct sf_submit *submit, size_t unit)
{
    return !submit->cut.units[unit].is_barrier &&
           sf_dup_slice(submit->dup, submit->cut.units[unit].ordinal) == NULL;
}

/* Timestamps that the queue needs up to its first barrier mark. */
static uint32_t demand(const struct sf_lane *lane)
{
    uint32_t count = 0;
    for (const struct sf_submit *s = lane->queue_first; s != NULL; s = s->next_queued) {
        for (size_t i = s->next_unit; i < s->cut.count; i++) {
            if (s->cut.units[i].is_barrier && count > 0)
                return count;
            if (is_queued_slice(s, i) && ++count == 65536)
                return count;
        }
    }
    return count;
}

void sf_lane_refuse_unstarted(struct sf_lane *lane, const char *authority)
{
    struct sf_diag diag;
    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, SF_BACKEND_UNAVAILABLE, "no timestamp can be released: %s", authority);
    sf_diag_detail(&diag, "failing_authority", "%s", authority);
    while (lane->queue_first != NULL && !lane->queue_first->started)
        refuse_front(lane, REFUSAL(DEPENDENCY_UNAVAILABLE), &diag);
    while (lane->queue_first != NULL && lane->queue_first->next_queued != NULL)
        refuse_dup(take(lane, lane->queue_first)->dup, REFUSAL(DEPENDENCY_UNAVAILABLE), &diag);
    if (lane->queue_first == NULL)
        lane->tso_left = 0; /* no stock is kept */
    sf_shard_count(lane->shard);
    sf_shard_control_check(lane->shard);
}

static void tso_failed(struct sf_lane *lane)
{
    sf_lane_refuse_unstarted(lane, "tso");
    if (lane->queue_first != NULL) /* a started batch goes on when the oracle is back */
        sf_timer_start(&lane->retry, RETRY_MS * 10);
}

static void tso_done(struct sf_tso_request *request)
{
    struct sf_lane *lane = SF_CONTAINER_OF(request, struct sf_lane, tso);
    struct sf_shard *shard = lane->shard;
    shard->ops_outstanding--;
    lane->tso_pending = false;
    shard->tso_open--;
    shard->tso_rtt_ms = shard->ctx->loop->now_ms - lane->tso_asked_ms;
    sf_commit_metric_ms(shard->commit->metrics.tso_rtt_ms, (double)shard->tso_rtt_ms);
    if (shard->state != SF_SHARD_LEADING)
        return;
    if (request->err != SF_OK) {
        tso_failed(lane);
        return;
    }
    lane->tso_next = request->first.v;
    lane->tso_left = request->count;
    uint64_t last = request->first.v + request->count - 1;
    shard->newest_tso = last > shard->newest_tso ? last : shard->newest_tso;
    sf_lane_pump(lane);
}

static void want_tso(struct sf_lane *lane)
{
    if (lane->tso_pending || sf_timer_active(&lane->retry))
        return;
    struct sf_shard *shard = lane->shard;
    lane->tso_pending = true;
    lane->tso_asked_ms = shard->ctx->loop->now_ms;
    if (shard->tso_open++ == 0)
        shard->tso_asked_ms = lane->tso_asked_ms;
    lane->tso = (struct sf_tso_request){
        .count = demand(lane), .loop = lane->shard->ctx->loop, .done = tso_done};
    sf_commit_metric_set(shard->commit->metrics.tso_batch_size, lane->tso.count);
    sf_commit_metric_add(shard->commit->metrics.tso_exhausted, 1);
    shard->ops_outstanding++;
    sf_tso_get(shard->ctx->tso, &lane->tso);
}

static void retry_due(struct sf_timer *timer)
{
    sf_lane_pump(SF_CONTAINER_OF(timer, struct sf_lane, retry));
}

/* Waits for the oracle to move on; the values in hand are dropped. */
static void retry_later(struct sf_lane *lane, int64_t delay_ms)
{
    lane->tso_left = 0;
    sf_timer_start(&lane->retry, delay_ms);
}

/* True when the shard may inject: a TSO has passed the bound of the leader before. */
static bool flow_b_open(struct sf_lane *lane)
{
    struct sf_shard *shard = lane->shard;
    if (shard->flow_b_open)
        return true;
    if (lane->tso_next <= shard->old_bound && !SF_MUTANT(coord_no_bound_wait)) {
        uint64_t wait = sf_commit_lag_ms(shard->old_bound, lane->tso_next);
        retry_later(lane, wait < 1 ? 1 : (int64_t)(wait > 100 ? 100 : wait));
        return false;
    }
    shard->flow_b_open = true;
    return true;
}

/* True when `commit_ts` lies below the durable bound; else the bound is on its way up. */
static bool below_bound(struct sf_lane *lane, uint64_t commit_ts)
{
    struct sf_shard *shard = lane->shard;
    uint64_t window_ms = shard->commit->deps.bound_window_ms;
    uint64_t ceiling = sf_commit_ts_add_ms(shard->newest_tso, window_ms);
    uint64_t half = sf_commit_ts_add_ms(commit_ts, window_ms / 2);
    if (half >= shard->bound && ceiling > shard->bound)
        sf_shard_want_bound(shard, ceiling); /* ahead of need */
    if (commit_ts < shard->bound)
        return true;
    if (commit_ts >= ceiling) { /* made-up values ran ahead of the oracle: let it catch up */
        retry_later(lane, RETRY_MS);
    } else if (!lane->bound_waiting) {
        lane->bound_waiting = true;
        lane->next_bound = shard->bound_lanes;
        shard->bound_lanes = lane;
    }
    return false;
}

/* ---- one slice ---------------------------------------------------------------------------------
 */

static void fill_intent_message(Searchfabric__V1__WriteIntent *message,
                                Searchfabric__V1__CollectionRef *ref,
                                const struct sf_intent *intent, const struct sf_submit *submit)
{
    const struct sf_dup *dup = intent->dup;
    searchfabric__v1__write_intent__init(message);
    searchfabric__v1__collection_ref__init(ref);
    ref->namespace_id = submit->collection.namespace_id.v;
    ref->collection_id = submit->collection.collection_id.v;
    message->write_intent_id = (char *)(uintptr_t)intent->barrier.write_intent_id;
    message->collection = ref;
    message->stream_identity = (char *)(uintptr_t)dup->names->stream_identity;
    message->batch_id = (char *)(uintptr_t)dup->names->batch_id;
    message->batch_fingerprint = (char *)(uintptr_t)dup->names->batch_fingerprint;
    message->slice_ordinal = intent->ordinal;
    message->slice_count = submit->cut.slice_count;
    message->first_entry_index = intent->first_entry_index;
    message->last_entry_index = intent->last_entry_index;
    message->source_partition = intent->source_partition;
    message->source_epoch = intent->source_epoch;
    message->first_source_seq = intent->first_source_seq;
    message->last_source_seq = intent->last_source_seq;
    message->commit_ts = intent->barrier.commit_ts;
    message->coordinator_epoch = intent->barrier.coordinator_epoch;
    message->dispatch_number = intent->barrier.dispatch_number;
    message->durability = submit->durability;
    message->visibility = submit->visibility;
    message->flow_kind = submit->planned->flow_kind;
    message->writer_mode = submit->planned->writer_mode;
    message->row_count = intent->row_count;
    message->logical_bytes = intent->logical_bytes;
    message->first_admitted_ts = dup->first_admitted_ts;
    message->n_enabled_modalities = submit->planned->n_enabled_modalities;
    message->enabled_modalities = submit->planned->enabled_modalities;
    message->schema_generation_token = (char *)(uintptr_t)dup->names->schema_token;
}

/* The rows of the slice that touch what `stream` carries, in entry order. */
static size_t collect_rows(const struct sf_submit *submit, const struct sf_intent *intent,
                           uint8_t covers, Searchfabric__V1__WalRow *rows,
                           Searchfabric__V1__WalRow **pointers)
{
    size_t count = 0;
    for (uint32_t i = intent->first_entry_index; i <= intent->last_entry_index; i++) {
        const Searchfabric__V1__RowMutation *row = submit->planned->batch->entries[i]->row;
        if ((sf_commit_entry_touched(submit->planned, i) & covers) == 0)
            continue;
        searchfabric__v1__wal_row__init(&rows[count]);
        rows[count].entry_index = i;
        rows[count].doc_id = row->doc_id->u64;
        rows[count].op = row->op;
        rows[count].body = row->body;
        rows[count].source_partition = row->source_partition;
        rows[count].source_epoch = row->source_epoch;
        rows[count].source_seq = row->source_seq;
        pointers[count] = &rows[count];
        count++;
    }
    return count;
}

static void dispatch(struct sf_lane *lane, struct sf_intent *intent, const struct sf_submit *submit)
{
    struct sf_shard *shard = lane->shard;
    Searchfabric__V1__WalRow *rows = sf_malloc((intent->row_count + 1) * sizeof(*rows));
    Searchfabric__V1__WalRow **pointers = sf_malloc((intent->row_count + 1) * sizeof(*pointers));
    Searchfabric__V1__WriteIntent message;
    Searchfabric__V1__CollectionRef ref;
    Searchfabric__V1__Modality touched[SF_MODALITY_COUNT];
    fill_intent_message(&message, &ref, intent, submit);
    for (unsigned m = 0; m < SF_MODALITY_COUNT; m++) {
        if ((intent->barrier.touched & (1u << m)) != 0)
            touched[message.n_touched_modalities++] = (Searchfabric__V1__Modality)(m + 1);
    }
    message.touched_modalities = touched;
    for (unsigned i = 0; i < SF_WAL_STREAMS; i++) {
        uint8_t covers = sf_wal_stream_covers(i) & intent->barrier.touched;
        if (sf_wal_stream_mode(i) != intent->writer_mode || covers == 0)
            continue;
        Searchfabric__V1__WalFrame frame = SEARCHFABRIC__V1__WAL_FRAME__INIT;
        frame.kind = SEARCHFABRIC__V1__WAL_FRAME_KIND__WAL_FRAME_KIND_ROWS;
        frame.coordinator_epoch = shard->epoch;
        frame.intent = &message;
        frame.n_rows = collect_rows(submit, intent, covers, rows, pointers);
        frame.rows = pointers;
        sf_wal_append(&shard->streams[i], intent, &frame);
    }
    free(rows);
    free(pointers);
}

static void intent_append(struct sf_lane *lane, struct sf_intent *intent)
{
    if (lane->last == NULL)
        lane->first = intent;
    else
        lane->last->next = intent;
    lane->last = intent;
    if (lane->next_hand == NULL)
        lane->next_hand = intent;
    lane->intents++;
    if (lane->in_open_list)
        return;
    lane->in_open_list = true;
    lane->open_prev = NULL;
    lane->open_next = lane->shard->open_lanes;
    if (lane->open_next != NULL)
        lane->open_next->open_prev = lane;
    lane->shard->open_lanes = lane;
    sf_shard_tick_start(lane->shard);
}

static void sequence_slice(struct sf_lane *lane, struct sf_submit *submit,
                           const struct sf_commit_unit *unit, uint64_t commit_ts)
{
    struct sf_shard *shard = lane->shard;
    struct sf_intent *intent = sf_calloc(1, sizeof(*intent));
    struct sf_dup_slice *slice = sf_dup_slice_add(submit->dup, unit->ordinal);
    *slice = (struct sf_dup_slice){.ordinal = unit->ordinal,
                                   .state = SF_SLICE_PENDING,
                                   .first_entry_index = unit->first_entry_index,
                                   .last_entry_index = unit->last_entry_index,
                                   .first_source_seq = unit->first_source_seq,
                                   .last_source_seq = unit->last_source_seq,
                                   .commit_ts = commit_ts,
                                   .row_count = unit->row_count,
                                   .touched = unit->touched};
    intent->lane = lane;
    intent->dup = submit->dup;
    intent->ordinal = unit->ordinal;
    intent->source_partition = unit->source_partition;
    intent->source_epoch = unit->source_epoch;
    intent->first_source_seq = unit->first_source_seq;
    intent->last_source_seq = unit->last_source_seq;
    intent->first_entry_index = unit->first_entry_index;
    intent->last_entry_index = unit->last_entry_index;
    intent->row_count = unit->row_count;
    intent->logical_bytes = unit->logical_bytes;
    intent->writer_mode = submit->planned->writer_mode;
    intent->opened_ms = shard->ctx->loop->now_ms;
    intent->barrier.commit_ts = commit_ts;
    intent->barrier.touched = unit->touched;
    intent->barrier.coordinator_epoch = shard->epoch;
    intent->barrier.dispatch_number = ++shard->dispatches;
    sf_commit_intent_id(lane->collection, submit->dup->names->stream_identity,
                        submit->dup->names->batch_id, submit->dup->names->batch_fingerprint,
                        unit->ordinal, intent->barrier.write_intent_id);
    sf_marks_enable(&lane->marks, submit->cut.enabled);
    sf_marks_open(&lane->marks, &intent->marks, commit_ts, unit->touched);
    enum sf_barrier_result result = sf_barrier_register(&shard->barrier, &intent->barrier);
    SF_ASSERT(result == SF_BARRIER_ACCEPTED);
    intent_append(lane, intent);
    lane->open_intents++;
    shard->pending++;
    sf_commit_metric_add(shard->commit->metrics.pending_intents, 1);
    sf_commit_metric_add(shard->commit->metrics.slices, 1);
    dispatch(lane, intent, submit);
    shard->pending_bytes += intent->wal_bytes;
    log_slice("slice_dispatched", intent);
}

/* ---- pump --------------------------------------------------------------------------------------
 */

/* Whether the front batch may start at all, now that a fresh timestamp is in hand. */
static bool may_start(struct sf_lane *lane, struct sf_submit *submit)
{
    struct sf_diag diag;
    uint64_t admitted = submit->dup->first_admitted_ts;
    uint32_t window_ms = lane->shard->commit->deps.duplicate_window_ms;
    uint64_t now = lane->tso_next; /* may be older than what the window was pruned by */
    if (submit->started)
        return true;
    sf_diag_init(&diag);
    now = now > lane->shard->newest_tso ? now : lane->shard->newest_tso;
    if (sf_commit_expired(admitted, now, window_ms) && !SF_MUTANT(coord_expired)) {
        (void)sf_diag_bad_field(&diag, "first_admitted_ts", "expired",
                                "the batch was first admitted more than %u ms ago", window_ms);
        refuse_front(lane, REFUSAL(DUPLICATE_WINDOW_EXPIRED), &diag);
        return false;
    }
    if (admitted > lane->tso_next) {
        (void)sf_diag_bad_field(&diag, "first_admitted_ts", "ahead_of_oracle",
                                "the batch says it was admitted in the future");
        refuse_front(lane, REFUSAL(INVALID_BATCH), &diag);
        return false;
    }
    return true;
}

static void finish_sequencing(struct sf_lane *lane)
{
    struct sf_submit *submit = take(lane, NULL);
    struct sf_dup *dup = submit->dup;
    sf_arena_destroy(submit->arena);
    submit->arena = NULL;
    submit->planned = NULL;
    dup->running = false;
    sf_dup_check(dup);
}

/* Runs one unit of the front batch; false when the lane has to wait. */
static bool run_unit(struct sf_lane *lane)
{
    struct sf_submit *submit = lane->queue_first;
    const struct sf_commit_unit *unit = &submit->cut.units[submit->next_unit];
    uint64_t commit_ts;
    if (unit->is_barrier) {
        if (lane->open_intents > 0 && !SF_MUTANT(coord_no_barrier_hold)) {
            lane->held = true;
            lane->tso_left = 0;
            return false;
        }
        submit->next_unit++;
        return true;
    }
    if (sf_dup_slice(submit->dup, unit->ordinal) != NULL) { /* stands from an earlier delivery */
        submit->next_unit++;
        return true;
    }
    if (lane->tso_left == 0) {
        want_tso(lane);
        return false;
    }
    if (!flow_b_open(lane))
        return false;
    if (!submit->started && !submit->asked_again &&
        submit->dup->first_admitted_ts > lane->tso_next) {
        submit->asked_again = true; /* the value in hand was fetched before the batch came */
        lane->tso_left = 0;
        want_tso(lane);
        return false;
    }
    if (!may_start(lane, submit))
        return true;
    if (!sf_commit_inject(lane->marks.frontier.local_max_commit_ts, lane->tso_next, &commit_ts)) {
        SF_LOG(ERROR, "commit_ts_exhausted",
               SF_KV_U64("collection_id", submit->collection.collection_id.v));
        retry_later(lane, 1000); /* fails closed */
        return false;
    }
    if (!below_bound(lane, commit_ts))
        return false;
    lane->tso_next++;
    lane->tso_left--;
    submit->started = true;
    submit->next_unit++;
    sequence_slice(lane, submit, unit, commit_ts);
    return true;
}

void sf_lane_pump(struct sf_lane *lane)
{
    if (lane->pumping || lane->state != SF_LANE_ACTIVE || lane->shard->state != SF_SHARD_LEADING ||
        lane->held || lane->bound_waiting)
        return;
    lane->pumping = true;
    while (lane->queue_first != NULL) {
        if (lane->queue_first->next_unit == lane->queue_first->cut.count)
            finish_sequencing(lane);
        else if (!run_unit(lane))
            break;
    }
    if (lane->queue_first == NULL)
        lane->tso_left = 0; /* no stock is kept */
    lane->pumping = false;
    sf_shard_count(lane->shard);
    sf_shard_control_check(lane->shard);
}

/* ---- admission ---------------------------------------------------------------------------------
 */

static void refuse_full(struct sf_submit *submit, const char *dimension, uint64_t limit)
{
    struct sf_diag diag;
    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, SF_RATE_LIMITED, "the coordinator's %s is full", dimension);
    sf_diag_detail(&diag, "retry_after_ms", "%u", 50u);
    sf_diag_detail(&diag, "throttled_dimension", "%s", dimension);
    sf_diag_detail(&diag, "server_limit", "%llu", (unsigned long long)limit);
    sf_submit_refuse(submit, REFUSAL(OVERLOADED), &diag);
}

/* What the gateway's facts no longer admit does not stand from an earlier delivery either. */
static void refuse_not_known(struct sf_submit *submit)
{
    struct sf_diag diag;
    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, SF_VERSION_CONFLICT, "the batch is not known and is not run");
    sf_submit_refuse(submit, REFUSAL(NOT_KNOWN), &diag);
}

/* A batch of the window comes again; true when it is dealt with. */
static bool join(struct sf_submit *submit, struct sf_dup *dup)
{
    const Searchfabric__V1__MutationBatch *batch = submit->planned->batch;
    if (!sf_dup_same_batch(dup, batch->batch_fingerprint)) {
        struct sf_diag diag;
        sf_diag_init(&diag);
        (void)sf_diag_set(&diag, SF_IDEMPOTENCY_CONFLICT,
                          "batch_id is taken by a batch with another fingerprint");
        sf_diag_detail(&diag, "batch_id", "%s", batch->batch_id);
        sf_submit_refuse(submit, REFUSAL(FINGERPRINT_CONFLICT), &diag);
        return true;
    }
    submit->duplicate = true;
    if (!dup->running && dup->known < submit->cut.slice_count)
        return false; /* slices are missing: they are run, the others stand */
    sf_arena_destroy(submit->arena);
    submit->arena = NULL;
    submit->planned = NULL;
    sf_dup_wait(dup, submit);
    sf_dup_check(dup);
    return true;
}

static void accept(struct sf_lane *lane, struct sf_submit *submit)
{
    const struct sf_commit_deps *deps = &lane->shard->commit->deps;
    const Searchfabric__V1__MutationBatch *batch = submit->planned->batch;
    struct sf_dup *dup = sf_dup_find(lane, batch->stream_identity, batch->batch_id);
    uint64_t bytes = lane->shard->pending_bytes;
    if (dup != NULL && join(submit, dup))
        return;
    if (submit->planned->known_only) {
        refuse_not_known(submit);
        return;
    }
    if (lane->queued >= deps->lane_queue_batches) {
        refuse_full(submit, "lane_queue", deps->lane_queue_batches);
        return;
    }
    if (bytes > 0 && bytes + submit->cut.wal_bytes > deps->shard_pending_bytes) {
        refuse_full(submit, "wal_bytes", deps->shard_pending_bytes);
        return;
    }
    const struct sf_dup_identity identity = {.stream_identity = batch->stream_identity,
                                             .batch_id = batch->batch_id,
                                             .batch_fingerprint = batch->batch_fingerprint,
                                             .schema_token = batch->schema_generation_token,
                                             .first_admitted_ts =
                                                 submit->planned->first_admitted_ts,
                                             .slice_count = submit->cut.slice_count};
    if (dup == NULL) {
        sf_dups_prune(lane);
        if (lane->shard->duplicates >= deps->shard_duplicates && identity.slice_count > 0) {
            refuse_full(submit, "duplicate_window", deps->shard_duplicates);
            return;
        }
        dup = sf_dup_new(lane, &identity);
    }
    sf_dup_name(dup, &identity);
    dup->running = true;
    sf_dup_wait(dup, submit);
    enqueue(lane, submit);
    sf_lane_pump(lane);
}

void sf_shard_submit(struct sf_submit *submit)
{
    struct sf_shard *shard = submit->shard;
    const struct sf_commit_deps *deps = &shard->commit->deps;
    if (shard->state != SF_SHARD_LEADING || shard->draining) {
        sf_submit_refuse(submit, REFUSAL(NOT_LEADER), NULL);
        return;
    }
    struct sf_lane *lane = sf_lane_get(shard, submit->collection);
    if (lane == NULL) {
        refuse_full(submit, "hot_lanes", deps->shard_lanes);
    } else if (lane->broken) {
        sf_lane_refuse_unreadable(submit);
    } else if (lane->state == SF_LANE_ACTIVE) {
        accept(lane, submit);
    } else if (lane->load_submit_count >= deps->lane_queue_batches) {
        refuse_full(submit, "lane_queue", deps->lane_queue_batches);
    } else {
        submit->next_queued = NULL;
        if (lane->load_submits == NULL)
            lane->load_submits = submit;
        else
            lane->load_submits_last->next_queued = submit;
        lane->load_submits_last = submit;
        lane->load_submit_count++;
        shard->queued++;
    }
}

void sf_lane_release_loaded(struct sf_lane *lane)
{
    while (lane->load_submits != NULL && lane->shard->state == SF_SHARD_LEADING) {
        struct sf_submit *submit = lane->load_submits;
        lane->load_submits = submit->next_queued;
        submit->next_queued = NULL;
        lane->load_submit_count--;
        lane->shard->queued--;
        accept(lane, submit);
    }
    while (lane->load_queries != NULL) {
        struct sf_lane_query *query = lane->load_queries;
        lane->load_queries = query->next;
        sf_lane_query_answer(query, lane, SF_OK);
    }
}

/* ---- durability and publishing -----------------------------------------------------------------
 */

static void fill_slice(Searchfabric__V1__ManifestSlice *slice, const struct sf_intent *intent,
                       uint32_t shard_id, Searchfabric__V1__WalAnchor *anchors,
                       Searchfabric__V1__WalAnchor **pointers, Searchfabric__V1__Modality *touched)
{
    searchfabric__v1__manifest_slice__init(slice);
    slice->write_intent_id = (char *)(uintptr_t)intent->barrier.write_intent_id;
    slice->stream_identity = (char *)(uintptr_t)intent->dup->names->stream_identity;
    slice->batch_id = (char *)(uintptr_t)intent->dup->names->batch_id;
    slice->slice_ordinal = intent->ordinal;
    slice->commit_ts = intent->barrier.commit_ts;
    slice->row_count = intent->row_count;
    slice->logical_bytes = intent->logical_bytes;
    slice->source_partition = intent->source_partition;
    slice->source_epoch = intent->source_epoch;
    slice->first_source_seq = intent->first_source_seq;
    slice->last_source_seq = intent->last_source_seq;
    slice->schema_generation_token = (char *)(uintptr_t)intent->dup->names->schema_token;
    for (unsigned m = 0; m < SF_MODALITY_COUNT; m++) {
        const struct sf_commit_anchor *from = &intent->barrier.anchors[m];
        if ((intent->barrier.touched & (1u << m)) == 0)
            continue;
        Searchfabric__V1__WalAnchor *anchor = &anchors[slice->n_anchors];
        searchfabric__v1__wal_anchor__init(anchor);
        anchor->modality = (Searchfabric__V1__Modality)(m + 1);
        anchor->writer_mode = sf_wal_stream_mode(from->stream);
        anchor->shard_id = shard_id;
        anchor->chunk_epoch = from->epoch;
        anchor->chunk_seq = from->seq;
        anchor->offset_bytes = from->place.offset_bytes;
        anchor->length_bytes = from->place.length_bytes;
        anchor->checksum_xxh3 = from->place.checksum_xxh3;
        pointers[slice->n_anchors] = anchor;
        touched[slice->n_anchors++] = (Searchfabric__V1__Modality)(m + 1);
    }
    slice->anchors = pointers;
    slice->n_touched_modalities = slice->n_anchors;
    slice->touched_modalities = touched;
}

static void hand_over(struct sf_lane *lane, struct sf_intent *intent)
{
    Searchfabric__V1__ManifestSlice slice;
    Searchfabric__V1__DuplicateEntry entry = SEARCHFABRIC__V1__DUPLICATE_ENTRY__INIT;
    Searchfabric__V1__WalAnchor anchors[SF_MODALITY_COUNT];
    Searchfabric__V1__WalAnchor *pointers[SF_MODALITY_COUNT];
    Searchfabric__V1__Modality touched[SF_MODALITY_COUNT];
    fill_slice(&slice, intent, lane->shard->id, anchors, pointers, touched);
    entry.stream_identity = slice.stream_identity;
    entry.batch_id = slice.batch_id;
    entry.batch_fingerprint = (char *)(uintptr_t)intent->dup->names->batch_fingerprint;
    entry.slice_ordinal = intent->ordinal;
    entry.slice_count = intent->dup->slice_count;
    entry.write_intent_id = slice.write_intent_id;
    entry.commit_ts = slice.commit_ts;
    entry.first_entry_index = intent->first_entry_index;
    entry.last_entry_index = intent->last_entry_index;
    entry.first_source_seq = intent->first_source_seq;
    entry.last_source_seq = intent->last_source_seq;
    entry.row_count = intent->row_count;
    entry.first_admitted_ts = intent->dup->first_admitted_ts;
    sf_publisher_submit(lane->publisher, &slice, &entry);
}

void sf_lane_hand_over(struct sf_lane *lane)
{
    while (lane->next_hand != NULL && lane->next_hand->durable) {
        struct sf_intent *intent = lane->next_hand;
        lane->next_hand = intent->next;
        intent->handed = true;
        hand_over(lane, intent);
    }
}

void sf_lane_add_durable(struct sf_lane *lane, struct sf_intent *intent)
{
    intent->durable = true;
    intent_append(lane, intent);
    log_slice("slice_recovered", intent);
    lane->shard->unpublished++;
    sf_commit_metric_add(lane->shard->commit->metrics.ready_depth, 1);
}

static void intent_durable(struct sf_intent *intent)
{
    struct sf_lane *lane = intent->lane;
    struct sf_shard *shard = lane->shard;
    const struct sf_commit_metrics *metrics = &shard->commit->metrics;
    intent->durable = true;
    lane->open_intents--;
    shard->pending--;
    shard->unpublished++;
    shard->pending_bytes -= intent->wal_bytes;
    sf_commit_metric_add(metrics->pending_intents, -1);
    sf_commit_metric_add(metrics->ready_depth, 1);
    sf_commit_metric_ms(metrics->barrier_wait[intent->barrier.touched],
                        (double)(shard->ctx->loop->now_ms - intent->opened_ms));
    sf_marks_finish(&lane->marks, &intent->marks);
    log_slice("slice_durable", intent);
    struct sf_dup_slice *slice = sf_dup_slice(intent->dup, intent->ordinal);
    slice->state = SF_SLICE_DURABLE;
    sf_lane_hand_over(lane);
    sf_dup_check(intent->dup);
    if (lane->held && lane->open_intents == 0) {
        lane->held = false;
        sf_lane_pump(lane);
    }
    sf_shard_count(shard);
}

void sf_lane_frame_durable(struct sf_intent *intent, unsigned stream, uint64_t epoch, uint64_t seq,
                           const struct sf_wal_place *place)
{
    struct sf_barrier_record *record = NULL;
    struct sf_barrier_completion completion = {.write_intent_id = intent->barrier.write_intent_id,
                                               .commit_ts = intent->barrier.commit_ts,
                                               .dispatch_number = intent->barrier.dispatch_number,
                                               .coordinator_epoch = epoch,
                                               .modalities = sf_wal_stream_covers(stream),
                                               .anchor = {stream, epoch, seq, *place}};
    if (sf_barrier_complete(&intent->lane->shard->barrier, &completion, &record) !=
        SF_BARRIER_ACCEPTED)
        return;
    if (record->completed == record->touched)
        intent_durable(intent);
}

void sf_lane_published(struct sf_lane *lane, uint64_t version, size_t count)
{
    struct sf_shard *shard = lane->shard;
    for (; count > 0; count--) {
        struct sf_intent *intent = lane->first;
        SF_ASSERT(intent != NULL && intent->handed);
        lane->first = intent->next;
        if (lane->first == NULL)
            lane->last = NULL;
        lane->intents--;
        shard->unpublished--;
        sf_commit_metric_add(shard->commit->metrics.ready_depth, -1);
        struct sf_dup_slice *slice = sf_dup_slice(intent->dup, intent->ordinal);
        slice->state = SF_SLICE_PUBLISHED;
        slice->manifest_version = version;
        log_slice("slice_published", intent);
        for (unsigned i = 0; i < SF_WAL_STREAMS; i++) {
            if (intent->wal_marks[i] != NULL)
                sf_wal_mark_release(&shard->streams[i], intent->wal_marks[i]);
        }
        sf_barrier_forget(&shard->barrier, &intent->barrier);
        struct sf_dup *dup = intent->dup;
        free(intent);
        sf_dup_check(dup);
    }
    if (lane->first == NULL && lane->in_open_list) {
        lane->in_open_list = false;
        if (lane->open_prev != NULL)
            lane->open_prev->open_next = lane->open_next;
        else
            shard->open_lanes = lane->open_next;
        if (lane->open_next != NULL)
            lane->open_next->open_prev = lane->open_prev;
    }
    sf_shard_count(shard);
    sf_shard_control_check(shard);
}

void sf_lane_abandon(struct sf_lane *lane, Searchfabric__V1__BatchRefusal refusal)
{
    sf_timer_stop(&lane->retry);
    while (lane->load_submits != NULL) {
        struct sf_submit *submit = lane->load_submits;
        lane->load_submits = submit->next_queued;
        lane->shard->queued--;
        sf_submit_refuse(submit, refusal, NULL);
    }
    while (lane->load_queries != NULL) {
        struct sf_lane_query *query = lane->load_queries;
        lane->load_queries = query->next;
        sf_lane_query_answer(query, NULL, SF_BACKEND_UNAVAILABLE);
    }
    while (lane->queue_first != NULL) {
        struct sf_submit *submit = take(lane, NULL);
        struct sf_dup *dup = submit->dup;
        bool started = submit->started || dup->known > 0;
        if (!started) {
            refuse_dup(dup, refusal, NULL);
            continue;
        }
        dup->running = false;
    }
    for (struct sf_dup *dup = lane->dup_first; dup != NULL; dup = dup->next) {
        while (dup->waiters != NULL) {
            struct sf_submit *submit = dup->waiters;
            dup->waiters = submit->next_waiting;
            sf_submit_refuse(submit, REFUSAL(OUTCOME_UNKNOWN), NULL);
        }
    }
}

void sf_lane_init_sequencing(struct sf_lane *lane)
{
    sf_timer_init(&lane->retry, lane->shard->ctx->loop, retry_due);
}
