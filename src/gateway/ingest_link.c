/*
 * Model: one stream to the coordinator per loop, opened by the first batch and kept. Batches go out
 * in the order in which they were planned; a full stream holds all of them back, so order within a
 * collection is never lost. The stream's end answers what was sent as "outcome unknown" (the same
 * batch may be sent again) and what was not sent as plainly unavailable; the next batch opens a new
 * stream.
 */
#include "gateway/ingest_priv.h"

#include <stdlib.h>

#include "gateway/refusal_rules.h"

#define SUBMIT_METHOD "/searchfabric.v1.CommitCoordinatorService/SubmitPlannedBatch"

/* Sent and unanswered at once; below what one call of the coordinator takes. */
#define LINK_INFLIGHT 512

static void link_pump(struct ingest_link *link);

/* The batch of an event, taken out of the table when `take`. */
static struct ingest_batch *batch_of(struct ingest_link *link, uint64_t submission_id, bool take)
{
    struct sf_view key = sf_map_key_u64(&submission_id);

    return take ? sf_map_del(link->inflight, key) : sf_map_get(link->inflight, key);
}

/* Keeps the slices of the admission for the acknowledgement. */
static bool note_admitted(struct ingest_batch *batch,
                          const Searchfabric__V1__BatchAdmitted *admitted)
{
    Searchfabric__V1__MutationAck *ack = &batch->ack;

    ack->duplicate = admitted->duplicate;
    ack->n_ranges = 0;
    ack->ranges = sf_arena_alloc(batch->arena, (admitted->n_slices + 1) * sizeof(*ack->ranges));
    if (ack->ranges == NULL)
        return false;
    for (size_t i = 0; i < admitted->n_slices; i++) {
        const Searchfabric__V1__BatchSlice *slice = admitted->slices[i];
        if (slice->row_count == 0)
            continue; /* a mark */
        Searchfabric__V1__AckedRange *acked = sf_arena_alloc(batch->arena, sizeof(*acked));
        if (acked == NULL)
            return false;
        searchfabric__v1__acked_range__init(acked);
        acked->first_entry_index = slice->first_entry_index;
        acked->last_entry_index = slice->last_entry_index;
        acked->first_source_seq = slice->first_source_seq;
        acked->last_source_seq = slice->last_source_seq;
        acked->commit_ts = slice->commit_ts;
        acked->row_count = slice->row_count;
        ack->ranges[ack->n_ranges++] = acked;
    }
    return true;
}

static void note_gate(struct ingest_batch *batch, const Searchfabric__V1__BatchGateReached *gate)
{
    Searchfabric__V1__MutationAck *ack = &batch->ack;

    /* Both enums count the same gates in the same order. */
    ack->gate = (Searchfabric__V1__AckGate)gate->gate;
    ack->safe_ts = gate->safe_ts;
    ack->committed_manifest_version = gate->committed_manifest_version;
    if (gate->watermarks != NULL) {
        Searchfabric__V1__EngineWatermarks *copy =
            sf_arena_dup(batch->arena, gate->watermarks, sizeof(*copy));
        if (copy != NULL) {
            copy->base.n_unknown_fields = 0;
            copy->base.unknown_fields = NULL;
        }
        ack->watermarks = copy;
    }
}

static void answer_unavailable(struct ingest_batch *batch, bool sent)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, SF_BACKEND_UNAVAILABLE,
                      sent ? "the coordinator's answer is lost; send the same batch again"
                           : "the coordinator does not take batches");
    sf_diag_detail(&diag, "failing_authority", "commit_coordinator");
    if (sent)
        sf_diag_detail(&diag, "outcome_unknown", "true");
    ingest_batch_answer(batch, &diag);
}

static void on_admitted(struct ingest_link *link,
                        const Searchfabric__V1__SubmitPlannedBatchResponse *event)
{
    struct ingest_batch *batch = batch_of(link, event->submission_id, false);

    if (batch != NULL && !note_admitted(batch, event->admitted)) {
        (void)batch_of(link, event->submission_id, true);
        answer_unavailable(batch, true);
    }
}

static void on_gate(struct ingest_link *link,
                    const Searchfabric__V1__SubmitPlannedBatchResponse *event)
{
    struct ingest_batch *batch = batch_of(link, event->submission_id, false);

    if (batch == NULL || (int)event->gate_reached->gate < (int)batch->gate)
        return;
    (void)batch_of(link, event->submission_id, true);
    note_gate(batch, event->gate_reached);
    ingest_batch_answer(batch, NULL);
}

/* Whether the refusal says that no earlier delivery of the batch can stand: the catalog's facts
 * decide then. */
static bool stays_stale(Searchfabric__V1__BatchRefusal refusal)
{
    return refusal == SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_NOT_KNOWN ||
           refusal == SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_INVALID_BATCH;
}

static void on_refused(struct ingest_link *link,
                       const Searchfabric__V1__SubmitPlannedBatchResponse *event)
{
    struct ingest_batch *batch = batch_of(link, event->submission_id, true);
    struct sf_diag diag;

    if (batch == NULL)
        return;
    if (batch->stale != NULL && stays_stale(event->refused->refusal)) {
        ingest_batch_answer(batch, batch->stale);
        return;
    }
    sf_diag_init(&diag);
    (void)sf_refusal_project(event->refused, batch->batch->batch_id, &diag);
    ingest_batch_answer(batch, &diag);
}

static void on_event(void *user, const ProtobufCMessage *message)
{
    struct ingest_link *link = user;
    const Searchfabric__V1__SubmitPlannedBatchResponse *event =
        (const Searchfabric__V1__SubmitPlannedBatchResponse *)(const void *)message;

    switch (event->event_case) {
    case SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_ADMITTED:
        on_admitted(link, event);
        break;
    case SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_GATE_REACHED:
        on_gate(link, event);
        break;
    case SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_REFUSED:
        on_refused(link, event);
        break;
    default:
        return;
    }
    link_pump(link);
}

static void on_writable(void *user)
{
    struct ingest_link *link = user;

    link->blocked = false;
    link_pump(link);
}

static void on_done(void *user, const struct sf_diag *diag)
{
    struct ingest_link *link = user;
    struct sf_map *lost = link->inflight;
    struct ingest_queue unsent = link->to_send;
    struct sf_map_iter iter = {0};
    struct ingest_batch *batch;

    (void)diag;
    link->stream = NULL;
    link->blocked = false;
    link->inflight = sf_map_new();
    link->to_send = (struct ingest_queue){0};
    while (sf_map_next(lost, &iter))
        answer_unavailable(iter.value, true);
    sf_map_destroy(lost, NULL);
    while ((batch = ingest_queue_pop(&unsent)) != NULL)
        answer_unavailable(batch, false);
    if (link->closing)
        ingest_link_closed(link);
}

static const struct sf_client_stream_ops stream_ops = {
    .message = on_event, .writable = on_writable, .done = on_done};

/* True when the batch went out; false: no room, it is still the queue's. */
static bool link_send(struct ingest_link *link, struct ingest_batch *batch)
{
    Searchfabric__V1__SubmitPlannedBatchRequest request =
        SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_REQUEST__INIT;

    request.submission_id = batch->submission_id;
    request.planned_batch = &batch->plan;
    enum sf_err err = sf_client_stream_send(link->stream, &request.base);
    if (err == SF_OK)
        return true;
    if (err == SF_ERR_FULL)
        link->blocked = true;
    /* Otherwise the stream has ended: its done callback answers what waits. */
    return false;
}

static void link_pump(struct ingest_link *link)
{
    while (link->to_send.head != NULL && !link->blocked &&
           sf_map_count(link->inflight) < LINK_INFLIGHT) {
        const struct sf_call_options options = {0};
        struct ingest_batch *batch = link->to_send.head;
        if (link->stream == NULL)
            link->stream = sf_channel_stream(link->ingest->deps.coordinator, SUBMIT_METHOD,
                                             &options, link->loop, &stream_ops, link);
        /* Entered first: an event may come within the send. */
        batch->submission_id = ++link->next_submission;
        (void)ingest_queue_pop(&link->to_send);
        (void)sf_map_put(link->inflight, sf_map_key_u64(&batch->submission_id), batch);
        if (!link_send(link, batch)) {
            (void)batch_of(link, batch->submission_id, true);
            batch->next = link->to_send.head;
            link->to_send.head = batch;
            if (link->to_send.tail == NULL)
                link->to_send.tail = batch;
            return;
        }
    }
}

void ingest_link_submit(struct ingest_link *link, struct ingest_batch *batch)
{
    if (link->closing) {
        /* It was still being admitted when the stop's limit passed. */
        answer_unavailable(batch, false);
        return;
    }
    ingest_queue_push(&link->to_send, batch);
    link_pump(link);
}

void ingest_link_close(struct ingest_link *link)
{
    link->closing = true;
    if (link->stream != NULL)
        sf_client_stream_cancel(link->stream);
    else
        ingest_link_closed(link);
}
