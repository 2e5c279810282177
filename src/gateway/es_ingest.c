/*
 * Model: one StreamMutations stream on one loop carries the batches of all connections. Threads
 * post their batch and wait; the loop sends in order of posting, holds back when the stream is
 * full, and matches acknowledgements to batches by collection and batch id (equal ones in order: a
 * client may have two tries of one request under way). A stream that ends answers what was sent as
 * "outcome unknown" and what was not as unavailable; the next batch opens another.
 */
#include "gateway/es_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "contract/error_status.h"

#define STREAM_METHOD "/searchfabric.v1.IngestGatewayService/StreamMutations"

struct es_ingest {
    /* immutable */
    struct sf_channel *channel;
    struct sf_loop *loop;
    char *client_id; /* owned */

    /* loop */
    struct sf_client_stream *stream; /* NULL while none is open */
    bool blocked;                    /* the stream said full */
    bool open_pending;               /* the open message is not sent yet */
    struct es_submit *head;          /* not answered yet: sent ones first, then the others */
    struct es_submit *tail;

    /* the end */
    struct sf_task cut_task;
    bool cut; /* loop: nobody waits any longer */
    struct sf_task stop_task;
    struct sf_waiter stopped;
    bool stopping;
};

static void pump(struct es_ingest *ingest);

static void unlink_submit(struct es_ingest *ingest, struct es_submit *submit)
{
    struct es_submit *before = NULL;

    for (struct es_submit *s = ingest->head; s != submit; s = s->next)
        before = s;
    if (before == NULL)
        ingest->head = submit->next;
    else
        before->next = submit->next;
    if (ingest->tail == submit)
        ingest->tail = before;
}

/* Gives the result, which stands in the submit, to its thread. */
static void finish(struct es_ingest *ingest, struct es_submit *submit)
{
    unlink_submit(ingest, submit);
    sf_timer_stop(&submit->timer);
    sf_waiter_wake(&submit->waiter);
}

static void finish_unavailable(struct es_ingest *ingest, struct es_submit *submit)
{
    (void)sf_diag_set(&submit->diag, SF_BACKEND_UNAVAILABLE,
                      submit->sent ? "the ingest gateway's answer is lost; the outcome is unknown"
                                   : "the ingest gateway takes no batches");
    sf_diag_detail(&submit->diag, "failing_authority", "ingest");
    if (submit->sent)
        sf_diag_detail(&submit->diag, "outcome_unknown", "true");
    finish(ingest, submit);
}

static bool same_batch(const struct es_submit *submit, const Searchfabric__V1__MutationAck *ack)
{
    const Searchfabric__V1__MutationBatch *batch = submit->batch;

    return submit->sent && ack->collection != NULL &&
           ack->collection->namespace_id == batch->collection->namespace_id &&
           ack->collection->collection_id == batch->collection->collection_id &&
           strcmp(ack->batch_id, batch->batch_id) == 0;
}

static void take_ack(struct es_submit *submit, const Searchfabric__V1__MutationAck *ack)
{
    if (ack->error != NULL) {
        (void)sf_error_status_read(ack->error, &submit->diag);
        return;
    }
    submit->ranges = sf_calloc(ack->n_ranges + 1, sizeof(*submit->ranges));
    submit->range_count = ack->n_ranges;
    for (size_t i = 0; i < ack->n_ranges; i++)
        submit->ranges[i] = *ack->ranges[i];
}

static void on_message(void *user, const ProtobufCMessage *message)
{
    struct es_ingest *ingest = user;
    const Searchfabric__V1__StreamMutationsResponse *response =
        (const Searchfabric__V1__StreamMutationsResponse *)(const void *)message;

    if (response->response_case != SEARCHFABRIC__V1__STREAM_MUTATIONS_RESPONSE__RESPONSE_ACK)
        return;
    for (struct es_submit *s = ingest->head; s != NULL; s = s->next) {
        if (same_batch(s, response->ack)) {
            take_ack(s, response->ack);
            finish(ingest, s);
            return;
        }
    }
    /* Its thread gave up on it before. */
}

static void on_writable(void *user)
{
    struct es_ingest *ingest = user;

    ingest->blocked = false;
    pump(ingest);
}

static void on_done(void *user, const struct sf_diag *diag)
{
    struct es_ingest *ingest = user;

    (void)diag;
    ingest->stream = NULL;
    ingest->blocked = false;
    while (ingest->head != NULL)
        finish_unavailable(ingest, ingest->head);
    if (ingest->stopping)
        sf_waiter_wake(&ingest->stopped);
}

static const struct sf_client_stream_ops stream_ops = {
    .message = on_message, .writable = on_writable, .done = on_done};

static enum sf_err send_request(struct es_ingest *ingest,
                                const Searchfabric__V1__StreamMutationsRequest *request)
{
    enum sf_err err = sf_client_stream_send(ingest->stream, &request->base);

    ingest->blocked = err == SF_ERR_FULL;
    return err;
}

static enum sf_err send_open(struct es_ingest *ingest)
{
    Searchfabric__V1__StreamMutationsRequest request =
        SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__INIT;
    Searchfabric__V1__StreamOpen open = SEARCHFABRIC__V1__STREAM_OPEN__INIT;
    Searchfabric__V1__RequestMeta meta = SEARCHFABRIC__V1__REQUEST_META__INIT;

    meta.client_id = ingest->client_id;
    meta.client_kind = SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY;
    open.meta = &meta;
    request.request_case = SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__REQUEST_OPEN;
    request.open = &open;
    return send_request(ingest, &request);
}

static enum sf_err send_batch(struct es_ingest *ingest, struct es_submit *submit)
{
    Searchfabric__V1__StreamMutationsRequest request =
        SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__INIT;

    request.request_case = SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__REQUEST_BATCH;
    request.batch = submit->batch;
    /* Marked first: the answer may come within the send. */
    submit->sent = true;
    enum sf_err err = send_request(ingest, &request);
    if (err != SF_OK)
        submit->sent = false;
    return err;
}

static struct es_submit *first_unsent(struct es_ingest *ingest)
{
    struct es_submit *s = ingest->head;

    while (s != NULL && s->sent)
        s = s->next;
    return s;
}

static void pump(struct es_ingest *ingest)
{
    struct es_submit *submit;

    while (!ingest->blocked && (submit = first_unsent(ingest)) != NULL) {
        if (ingest->stream == NULL) {
            const struct sf_call_options options = {0};
            ingest->stream = sf_channel_stream(ingest->channel, STREAM_METHOD, &options,
                                               ingest->loop, &stream_ops, ingest);
            ingest->open_pending = true;
        }
        if (ingest->open_pending) {
            if (send_open(ingest) != SF_OK)
                return; /* full: writable follows; ended: done follows */
            ingest->open_pending = false;
        }
        enum sf_err err = send_batch(ingest, submit);
        if (err == SF_ERR_LIMIT) {
            (void)sf_diag_set(&submit->diag, SF_BAD_REQUEST, "the documents exceed one message");
            finish(ingest, submit);
        } else if (err != SF_OK) {
            return;
        }
    }
}

static void on_timeout(struct sf_timer *timer)
{
    struct es_submit *submit = SF_CONTAINER_OF(timer, struct es_submit, timer);

    (void)sf_diag_set(&submit->diag, SF_DEADLINE_EXCEEDED,
                      "no acknowledgement in time; the outcome is unknown");
    finish(submit->ingest, submit);
}

static void on_submit(struct sf_task *task)
{
    struct es_submit *submit = SF_CONTAINER_OF(task, struct es_submit, task);
    struct es_ingest *ingest = submit->ingest;

    submit->next = NULL;
    if (ingest->tail == NULL)
        ingest->head = submit;
    else
        ingest->tail->next = submit;
    ingest->tail = submit;
    sf_timer_init(&submit->timer, ingest->loop, on_timeout);
    sf_timer_start(&submit->timer, submit->timeout_ms);
    if (ingest->cut)
        finish_unavailable(ingest, submit);
    else
        pump(ingest);
}

struct es_ingest *es_ingest_new(struct sf_channel *channel, struct sf_loop *loop,
                                const char *client_id)
{
    struct es_ingest *ingest = sf_calloc(1, sizeof(*ingest));

    ingest->channel = channel;
    ingest->loop = loop;
    ingest->client_id = sf_strdup(client_id);
    return ingest;
}

void es_ingest_submit(struct es_ingest *ingest, struct es_submit *submit)
{
    submit->ingest = ingest;
    submit->task = (struct sf_task){.run = on_submit};
    submit->sent = false;
    submit->ranges = NULL;
    submit->range_count = 0;
    sf_diag_init(&submit->diag);
    sf_waiter_init(&submit->waiter, NULL);
    sf_loop_post(ingest->loop, &submit->task);
}

void es_ingest_wait(struct es_submit *submit)
{
    sf_waiter_wait(&submit->waiter);
    sf_waiter_fini(&submit->waiter);
}

static void on_cut(struct sf_task *task)
{
    struct es_ingest *ingest = SF_CONTAINER_OF(task, struct es_ingest, cut_task);

    ingest->cut = true;
    while (ingest->head != NULL)
        finish_unavailable(ingest, ingest->head);
}

void es_ingest_cut(struct es_ingest *ingest)
{
    ingest->cut_task = (struct sf_task){.run = on_cut};
    sf_loop_post(ingest->loop, &ingest->cut_task);
}

static void on_stop(struct sf_task *task)
{
    struct es_ingest *ingest = SF_CONTAINER_OF(task, struct es_ingest, stop_task);

    ingest->stopping = true;
    if (ingest->stream == NULL)
        sf_waiter_wake(&ingest->stopped);
    else
        sf_client_stream_cancel(ingest->stream);
}

void es_ingest_destroy(struct es_ingest *ingest)
{
    if (ingest == NULL)
        return;
    ingest->stop_task = (struct sf_task){.run = on_stop};
    sf_waiter_init(&ingest->stopped, NULL);
    sf_loop_post(ingest->loop, &ingest->stop_task);
    sf_waiter_wait(&ingest->stopped);
    sf_waiter_fini(&ingest->stopped);
    free(ingest->client_id);
    free(ingest);
}
