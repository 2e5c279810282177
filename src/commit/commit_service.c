#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/pb.h"
#include "commit/commit_priv.h"

/*
 * RPC in, events out. A message is copied, checked and cut on the caller's thread, then hops to the
 * loop of its shard; events go out from there. The stream's own state is shared by the call's
 * thread and the loops, so it has a lock; it outlives the call until its last submission is
 * answered. A peer that reads too slowly is not waited for: its events queue up (bounded by the
 * submissions it may have under way) and are sent when there is room.
 */

/* An event that did not fit. */
struct backlog {
    struct backlog *next;
    struct sf_arena *arena;
    ProtobufCMessage *message;
};

struct sf_submit_stream {
    struct sf_commit *commit; /* immutable */
    pthread_mutex_t mu;
    /* under mu */
    struct sf_call *call; /* NULL once closed */
    unsigned refs;        /* the call and each submission */
    unsigned inflight;    /* submissions not answered */
    bool paused;
    bool half_closed;
    bool finished;
    struct backlog *first;
    struct backlog *last;
};

static void stream_free(struct sf_submit_stream *stream)
{
    while (stream->first != NULL) {
        struct backlog *entry = stream->first;
        stream->first = entry->next;
        sf_arena_destroy(entry->arena);
        free(entry);
    }
    pthread_mutex_destroy(&stream->mu);
    free(stream);
}

/* Under mu; ends the call when everything was answered. */
static void maybe_finish_locked(struct sf_submit_stream *stream)
{
    if (stream->half_closed && stream->inflight == 0 && stream->first == NULL &&
        stream->call != NULL && !stream->finished) {
        stream->finished = true;
        sf_call_finish(stream->call);
    }
}

/* Under mu; unlocks. Drops `count` references. */
static void release_unlock(struct sf_submit_stream *stream, unsigned count)
{
    SF_ASSERT(stream->refs >= count);
    stream->refs -= count;
    bool last = stream->refs == 0;
    pthread_mutex_unlock(&stream->mu);
    if (last)
        stream_free(stream);
}

/* Under mu; sends what queued up while the peer read too slowly. */
static void flush_locked(struct sf_submit_stream *stream)
{
    while (stream->first != NULL) {
        struct backlog *entry = stream->first;
        if (stream->call != NULL && sf_call_send(stream->call, entry->message) == SF_ERR_FULL)
            return;
        stream->first = entry->next;
        if (stream->first == NULL)
            stream->last = NULL;
        sf_arena_destroy(entry->arena);
        free(entry);
    }
    maybe_finish_locked(stream);
}

static void stream_writable(void *self, struct sf_call *call)
{
    struct sf_submit_stream *stream = sf_call_state(call);
    (void)self;
    pthread_mutex_lock(&stream->mu);
    flush_locked(stream);
    pthread_mutex_unlock(&stream->mu);
}

static void enqueue_locked(struct sf_submit_stream *stream, const ProtobufCMessage *message)
{
    struct backlog *entry = sf_calloc(1, sizeof(*entry));
    entry->arena = sf_arena_new(SF_LIMIT_RPC_ARENA_BYTES);
    entry->message = sf_pb_dup(message, entry->arena);
    SF_ASSERT(entry->message != NULL);
    if (stream->last == NULL)
        stream->first = entry;
    else
        stream->last->next = entry;
    stream->last = entry;
}

/* Sends one event; `last` ends the submission. */
static void send_event(struct sf_submit *submit,
                       Searchfabric__V1__SubmitPlannedBatchResponse *event, bool last)
{
    struct sf_submit_stream *stream = submit->stream;
    event->submission_id = submit->submission_id;
    event->coordinator_epoch = submit->shard->epoch;
    pthread_mutex_lock(&stream->mu);
    if (stream->call != NULL && !stream->finished) {
        if (stream->first != NULL || sf_call_send(stream->call, &event->base) == SF_ERR_FULL)
            enqueue_locked(stream, &event->base);
    }
    if (!last) {
        pthread_mutex_unlock(&stream->mu);
        return;
    }
    stream->inflight--;
    if (stream->paused && stream->call != NULL &&
        stream->inflight < stream->commit->deps.stream_inflight) {
        stream->paused = false;
        sf_call_resume(stream->call);
    }
    maybe_finish_locked(stream);
    submit->stream = NULL;
    release_unlock(stream, 1);
}

static void submit_free(struct sf_submit *submit)
{
    sf_arena_destroy(submit->arena);
    free(submit);
}

void sf_submit_refuse(struct sf_submit *submit, Searchfabric__V1__BatchRefusal refusal,
                      const struct sf_diag *diag)
{
    Searchfabric__V1__SubmitPlannedBatchResponse event =
        SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__INIT;
    Searchfabric__V1__BatchRefused refused = SEARCHFABRIC__V1__BATCH_REFUSED__INIT;
    Searchfabric__V1__BatchRefused__DetailsEntry details[SF_DIAG_MAX_DETAILS];
    Searchfabric__V1__BatchRefused__DetailsEntry *pointers[SF_DIAG_MAX_DETAILS];
    refused.refusal = refusal;
    if (refusal == SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_NOT_LEADER) /* on the loop */
        refused.leader_hint = submit->shard->leader_hint;
    for (unsigned i = 0; diag != NULL && i < diag->detail_count; i++) {
        searchfabric__v1__batch_refused__details_entry__init(&details[i]);
        details[i].key = (char *)(uintptr_t)diag->details[i].key;
        details[i].value = (char *)(uintptr_t)diag->details[i].value;
        pointers[i] = &details[i];
    }
    if (diag != NULL) {
        refused.message = (char *)(uintptr_t)diag->message;
        refused.n_details = diag->detail_count;
        refused.details = pointers;
    }
    event.event_case = SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_REFUSED;
    event.refused = &refused;
    sf_commit_metric_add(submit->shard->commit->metrics.refused, 1);
    send_event(submit, &event, true);
    submit_free(submit);
}

static void fill_slice(Searchfabric__V1__BatchSlice *message, const struct sf_dup_slice *slice,
                       Searchfabric__V1__Modality *modalities)
{
    searchfabric__v1__batch_slice__init(message);
    message->slice_ordinal = slice->ordinal;
    message->first_entry_index = slice->first_entry_index;
    message->last_entry_index = slice->last_entry_index;
    message->first_source_seq = slice->first_source_seq;
    message->last_source_seq = slice->last_source_seq;
    message->commit_ts = slice->commit_ts;
    message->row_count = slice->row_count;
    message->touched_modalities = modalities;
    for (unsigned m = 0; m < SF_MODALITY_COUNT; m++) {
        if ((slice->touched & (1u << m)) != 0)
            modalities[message->n_touched_modalities++] = (Searchfabric__V1__Modality)(m + 1);
    }
}

static int by_ordinal(const void *left, const void *right)
{
    const struct sf_dup_slice *a = left;
    const struct sf_dup_slice *b = right;
    return (a->ordinal > b->ordinal) - (a->ordinal < b->ordinal);
}

void sf_submit_admit(struct sf_submit *submit)
{
    Searchfabric__V1__SubmitPlannedBatchResponse event =
        SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__INIT;
    Searchfabric__V1__BatchAdmitted admitted = SEARCHFABRIC__V1__BATCH_ADMITTED__INIT;
    struct sf_dup *dup = submit->dup;
    size_t count = dup->known;
    Searchfabric__V1__BatchSlice *slices = sf_calloc(count + 1, sizeof(*slices));
    Searchfabric__V1__BatchSlice **pointers = sf_calloc(count + 1, sizeof(*pointers));
    Searchfabric__V1__Modality *modalities =
        sf_calloc((count + 1) * SF_MODALITY_COUNT, sizeof(*modalities));
    if (count > 1)
        qsort(dup->slices, count, sizeof(dup->slices[0]), by_ordinal);
    for (size_t i = 0; i < count; i++) {
        fill_slice(&slices[i], &dup->slices[i], modalities + i * SF_MODALITY_COUNT);
        pointers[i] = &slices[i];
    }
    admitted.n_slices = count;
    admitted.slices = pointers;
    admitted.duplicate = submit->duplicate;
    event.event_case = SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_ADMITTED;
    event.admitted = &admitted;
    submit->admitted = true;
    send_event(submit, &event, false);
    free(modalities);
    free(pointers);
    free(slices);
}

void sf_submit_reach(struct sf_submit *submit, Searchfabric__V1__BatchGate gate,
                     uint64_t manifest_version)
{
    Searchfabric__V1__SubmitPlannedBatchResponse event =
        SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__INIT;
    Searchfabric__V1__BatchGateReached reached = SEARCHFABRIC__V1__BATCH_GATE_REACHED__INIT;
    Searchfabric__V1__EngineWatermarks watermarks;
    const struct sf_marks *marks = &submit->dup->lane->marks;
    sf_frontier_watermarks(&marks->frontier, &watermarks);
    reached.gate = gate;
    reached.safe_ts = marks->safe_ts;
    reached.watermarks = &watermarks;
    reached.committed_manifest_version = manifest_version;
    event.event_case = SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_GATE_REACHED;
    event.gate_reached = &reached;
    send_event(submit, &event, true);
    submit_free(submit);
}

/* ---- stream in ---------------------------------------------------------------------------------
 */

static void submit_task(struct sf_task *task)
{
    sf_shard_submit(SF_CONTAINER_OF(task, struct sf_submit, task));
}

static void stream_open(void *self, struct sf_call *call)
{
    struct sf_commit *commit = self;
    struct sf_submit_stream *stream = sf_calloc(1, sizeof(*stream));
    stream->commit = commit;
    stream->call = call;
    stream->refs = 1;
    pthread_mutex_init(&stream->mu, NULL);
    sf_call_set_state(call, stream);
}

/* Copies, checks and cuts; the refusal for what needs no lane. */
static Searchfabric__V1__BatchRefusal prepare(struct sf_submit *submit,
                                              const Searchfabric__V1__SubmitPlannedBatchRequest *in,
                                              struct sf_diag *diag)
{
    Searchfabric__V1__BatchRefusal refusal = sf_commit_batch_check(in->planned_batch, diag);
    if (refusal != SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_UNSPECIFIED)
        return refusal;
    submit->planned = (const void *)sf_pb_dup(&in->planned_batch->base, submit->arena);
    if (submit->planned == NULL) {
        (void)sf_diag_bad_field(diag, "entries", "too_large", "the batch is too large");
        return SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_INVALID_BATCH;
    }
    sf_commit_batch_cut(submit->planned, submit->arena, &submit->cut);
    submit->durability = submit->planned->batch->durability;
    submit->visibility = submit->planned->batch->visibility;
    return refusal;
}

static void stream_message(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct sf_commit *commit = self;
    const Searchfabric__V1__SubmitPlannedBatchRequest *in = (const void *)message;
    const Searchfabric__V1__CollectionRef *ref =
        in->planned_batch == NULL || in->planned_batch->batch == NULL
            ? NULL
            : in->planned_batch->batch->collection;
    struct sf_submit_stream *stream = sf_call_state(call);
    struct sf_submit *submit = sf_calloc(1, sizeof(*submit));
    struct sf_diag diag;
    sf_diag_init(&diag);
    submit->task.run = submit_task;
    submit->stream = stream;
    submit->submission_id = in->submission_id;
    submit->arena = sf_arena_new(SF_LIMIT_RPC_ARENA_BYTES);
    if (ref != NULL)
        submit->collection = (struct sf_collection_ref){{ref->namespace_id}, {ref->collection_id}};
    submit->shard =
        &commit->shards[sf_commit_shard_of(submit->collection, commit->deps.shard_count)];
    pthread_mutex_lock(&stream->mu);
    stream->refs++;
    stream->inflight++;
    if (!stream->paused && stream->inflight >= commit->deps.stream_inflight) {
        stream->paused = true;
        sf_call_pause(call);
    }
    pthread_mutex_unlock(&stream->mu);
    Searchfabric__V1__BatchRefusal refusal = prepare(submit, in, &diag);
    if (refusal != SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_UNSPECIFIED)
        sf_submit_refuse(submit, refusal, &diag);
    else
        sf_loop_post(submit->shard->ctx->loop, &submit->task);
}

static void stream_half_close(void *self, struct sf_call *call)
{
    struct sf_submit_stream *stream = sf_call_state(call);
    (void)self;
    pthread_mutex_lock(&stream->mu);
    stream->half_closed = true;
    maybe_finish_locked(stream);
    pthread_mutex_unlock(&stream->mu);
}

static void stream_closed(void *self, struct sf_call *call)
{
    struct sf_submit_stream *stream = sf_call_state(call);
    (void)self;
    pthread_mutex_lock(&stream->mu);
    stream->call = NULL;
    release_unlock(stream, 1);
}

/* ---- queries -----------------------------------------------------------------------------------
 */

static void query_task(struct sf_task *task)
{
    sf_shard_query(SF_CONTAINER_OF(task, struct sf_lane_query, task));
}

static void start_query(struct sf_commit *commit, struct sf_call *call,
                        const Searchfabric__V1__CollectionRef *ref, bool lane_state,
                        uint32_t max_intents)
{
    if (ref == NULL || ref->namespace_id == 0 || ref->collection_id == 0) {
        struct sf_diag *diag = sf_call_diag(call);
        (void)sf_diag_bad_field(diag, "collection", "required", "a collection is required");
        sf_call_fail(call, diag);
        return;
    }
    struct sf_lane_query *query = sf_calloc(1, sizeof(*query));
    query->task.run = query_task;
    query->call = call;
    query->collection = (struct sf_collection_ref){{ref->namespace_id}, {ref->collection_id}};
    query->lane_state = lane_state;
    query->max_intents = max_intents == 0 ? 100 : max_intents;
    query->shard = &commit->shards[sf_commit_shard_of(query->collection, commit->deps.shard_count)];
    sf_loop_post(query->shard->ctx->loop, &query->task);
}

static void get_watermarks(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const Searchfabric__V1__GetCollectionWatermarksRequest *in = (const void *)request;
    start_query(self, call, in->collection, false, 0);
}

static void get_lane_state(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const Searchfabric__V1__GetLaneStateRequest *in = (const void *)request;
    start_query(self, call, in->collection, true, in->max_intents);
}

static void answer_watermarks(const struct sf_lane_query *query, const struct sf_lane *lane)
{
    Searchfabric__V1__GetCollectionWatermarksResponse out =
        SEARCHFABRIC__V1__GET_COLLECTION_WATERMARKS_RESPONSE__INIT;
    Searchfabric__V1__EngineWatermarks watermarks;
    const struct sf_marks *marks = &lane->marks;
    sf_frontier_watermarks(&marks->frontier, &watermarks);
    out.watermarks = &watermarks;
    out.safe_ts = marks->safe_ts;
    out.local_max_commit_ts = marks->frontier.local_max_commit_ts;
    out.lag_ms =
        lane->open_intents == 0 ? 0 : sf_commit_lag_ms(out.local_max_commit_ts, marks->safe_ts);
    out.coordinator_epoch = lane->shard->epoch;
    out.committed_manifest_version = sf_publisher_version(lane->publisher);
    sf_call_respond(query->call, &out.base);
}

static Searchfabric__V1__WriteIntentState intent_state(const struct sf_intent *intent)
{
    if (intent->handed)
        return SEARCHFABRIC__V1__WRITE_INTENT_STATE__WRITE_INTENT_STATE_PUBLISH_READY;
    if (intent->durable)
        return SEARCHFABRIC__V1__WRITE_INTENT_STATE__WRITE_INTENT_STATE_DURABLE;
    return intent->barrier.completed != 0
               ? SEARCHFABRIC__V1__WRITE_INTENT_STATE__WRITE_INTENT_STATE_PARTIALLY_DURABLE
               : SEARCHFABRIC__V1__WRITE_INTENT_STATE__WRITE_INTENT_STATE_DISPATCHED;
}

static size_t fill_set(uint8_t set, struct sf_arena *arena, Searchfabric__V1__Modality **out)
{
    size_t count = 0;
    *out = sf_arena_alloc(arena, SF_MODALITY_COUNT * sizeof(**out));
    for (unsigned m = 0; *out != NULL && m < SF_MODALITY_COUNT; m++) {
        if ((set & (1u << m)) != 0)
            (*out)[count++] = (Searchfabric__V1__Modality)(m + 1);
    }
    return count;
}

static Searchfabric__V1__OpenIntent *fill_open(const struct sf_intent *intent,
                                               struct sf_arena *arena)
{
    Searchfabric__V1__OpenIntent *open = sf_arena_alloc(arena, sizeof(*open));
    Searchfabric__V1__WriteIntent *message = sf_arena_alloc(arena, sizeof(*message));
    if (open == NULL || message == NULL)
        return NULL;
    searchfabric__v1__open_intent__init(open);
    searchfabric__v1__write_intent__init(message);
    open->intent = message;
    open->state = intent_state(intent);
    open->age_ms = (uint64_t)(intent->lane->shard->ctx->loop->now_ms - intent->opened_ms);
    open->n_completed_modalities =
        fill_set(intent->barrier.completed, arena, &open->completed_modalities);
    message->write_intent_id = (char *)(uintptr_t)intent->barrier.write_intent_id;
    message->stream_identity = (char *)(uintptr_t)intent->dup->names->stream_identity;
    message->batch_id = (char *)(uintptr_t)intent->dup->names->batch_id;
    message->batch_fingerprint = (char *)(uintptr_t)intent->dup->names->batch_fingerprint;
    message->slice_ordinal = intent->ordinal;
    message->slice_count = intent->dup->slice_count;
    message->first_entry_index = intent->first_entry_index;
    message->last_entry_index = intent->last_entry_index;
    message->source_partition = intent->source_partition;
    message->source_epoch = intent->source_epoch;
    message->first_source_seq = intent->first_source_seq;
    message->last_source_seq = intent->last_source_seq;
    message->commit_ts = intent->barrier.commit_ts;
    message->n_touched_modalities =
        fill_set(intent->barrier.touched, arena, &message->touched_modalities);
    message->coordinator_epoch = intent->barrier.coordinator_epoch;
    message->dispatch_number = intent->barrier.dispatch_number;
    message->writer_mode = intent->writer_mode;
    message->row_count = intent->row_count;
    message->logical_bytes = intent->logical_bytes;
    message->first_admitted_ts = intent->dup->first_admitted_ts;
    return open;
}

static void answer_lane_state(const struct sf_lane_query *query, const struct sf_lane *lane)
{
    struct sf_arena *arena = sf_arena_new(SF_LIMIT_RPC_MESSAGE_BYTES);
    Searchfabric__V1__GetLaneStateResponse out = SEARCHFABRIC__V1__GET_LANE_STATE_RESPONSE__INIT;
    Searchfabric__V1__CollectionLaneState state = SEARCHFABRIC__V1__COLLECTION_LANE_STATE__INIT;
    const struct sf_frontier *frontier = &lane->marks.frontier;
    state.local_max_commit_ts = frontier->local_max_commit_ts;
    state.applied_ts_metadata_search = frontier->applied_ts[0];
    state.applied_ts_semantic_search = frontier->applied_ts[1];
    if ((frontier->enabled & 4u) != 0) {
        state._applied_ts_metadata_aux_case =
            SEARCHFABRIC__V1__COLLECTION_LANE_STATE___APPLIED_TS_METADATA_AUX_APPLIED_TS_METADATA_AUX;
        state.applied_ts_metadata_aux = frontier->applied_ts[2];
    }
    state.pending_row_slices = (uint32_t)lane->open_intents;
    state.last_access_unix_ms = lane->last_access_unix_ms;
    state.tier = SEARCHFABRIC__V1__LANE_TIER__LANE_TIER_HOT;
    state.n_enabled_modalities = fill_set(frontier->enabled, arena, &state.enabled_modalities);
    out.lane = &state;
    out.shard_id = lane->shard->id;
    out.coordinator_epoch = lane->shard->epoch;
    size_t most = lane->intents < query->max_intents ? lane->intents : query->max_intents;
    out.open_intents = sf_arena_alloc(arena, (most + 1) * sizeof(out.open_intents[0]));
    for (const struct sf_intent *i = lane->first; i != NULL && out.n_open_intents < most;
         i = i->next) {
        Searchfabric__V1__OpenIntent *open = fill_open(i, arena);
        if (open == NULL)
            break;
        out.open_intents[out.n_open_intents++] = open;
    }
    sf_call_respond(query->call, &out.base);
    sf_arena_destroy(arena);
}

void sf_lane_query_answer(struct sf_lane_query *query, struct sf_lane *lane, enum sf_err err)
{
    if (err != SF_OK) {
        struct sf_diag diag;
        sf_diag_init(&diag);
        (void)sf_diag_set(&diag, err, "the lane cannot be read now");
        if (err == SF_RATE_LIMITED) {
            sf_diag_detail(&diag, "retry_after_ms", "%u", 50u);
            sf_diag_detail(&diag, "throttled_dimension", "hot_lanes");
            sf_diag_detail(&diag, "server_limit", "%u", query->shard->commit->deps.shard_lanes);
        } else {
            sf_diag_detail(&diag, "failing_authority", "lane_state");
        }
        sf_call_fail(query->call, &diag);
    } else if (query->lane_state) {
        answer_lane_state(query, lane);
    } else {
        answer_watermarks(query, lane);
    }
    free(query);
}

/* ---- the service -------------------------------------------------------------------------------
 */

static const struct sf_stream_ops submit_ops = {.open = stream_open,
                                                .message = stream_message,
                                                .half_close = stream_half_close,
                                                .closed = stream_closed,
                                                .writable = stream_writable};

static const struct sf_method methods[] = {
    {.name = "SubmitPlannedBatch",
     .request = &searchfabric__v1__submit_planned_batch_request__descriptor,
     .response = &searchfabric__v1__submit_planned_batch_response__descriptor,
     .stream = &submit_ops},
    {.name = "GetCollectionWatermarks",
     .request = &searchfabric__v1__get_collection_watermarks_request__descriptor,
     .response = &searchfabric__v1__get_collection_watermarks_response__descriptor,
     .unary = get_watermarks},
    {.name = "GetLaneState",
     .request = &searchfabric__v1__get_lane_state_request__descriptor,
     .response = &searchfabric__v1__get_lane_state_response__descriptor,
     .unary = get_lane_state},
};

void sf_commit_service_init(struct sf_commit *commit)
{
    commit->service = (struct sf_service){.full_name = "searchfabric.v1.CommitCoordinatorService",
                                          .methods = methods,
                                          .method_count = SF_ARRAY_LEN(methods),
                                          .self = commit};
}

const struct sf_service *sf_commit_service(struct sf_commit *commit)
{
    return &commit->service;
}
