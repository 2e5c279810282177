/*
 * In-process channel, streams. Both sides' callbacks run on the caller's loop, one at a time, from
 * one posted task (the pump); sends only queue a copy and post the pump. A handler may send from
 * any thread, so queues and flags are under a mutex, never held during a callback.
 *
 *   client send --> to_server --pump--> handler's message / half_close
 *   handler send --> to_client --pump--> client's message
 *
 * Order of what the pump picks: open, end by cancellation, writable, message to the server,
 * half-close, message to the client, end. Each queue holds at most SF_LIMIT_RPC_STREAM_BUDGET_BYTES
 * (one message always fits); past it a send says SF_ERR_FULL and the sender hears `writable` once
 * the queue is half empty and takes what was refused.
 *
 * A method with a unary handler (one response or many) is served too: its request is the one
 * message before the half-close.
 *
 * References: the client (until done returned), the server side (until closed returned, or for a
 * unary handler until it ended the call), a posted task, a started timer, and holds.
 */
#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "contract/served.h"
#include "rpc/inproc.h"

#define PUMP_BATCH 64 /* callbacks of one turn; then the loop's other tasks run */

struct sf_inproc_stream {
    struct sf_call call;          /* what the handler holds */
    struct sf_client_stream base; /* what the client holds */

    /* immutable */
    struct sf_inproc *channel; /* one reference */
    struct sf_loop *loop;
    const struct sf_client_stream_ops *ops;
    void *user;

    /* atomic */
    atomic_uint refs;

    /* under channel->mu */
    struct sf_inproc_stream *prev, *next;

    /* under mu */
    pthread_mutex_t mu;
    struct sf_rpc_message_queue to_server;
    struct sf_rpc_message_queue to_client;
    unsigned pauses;             /* the handler holds back the client */
    bool pump_posted;            /* the pump task is in the loop's queue */
    size_t client_refused_bytes; /* the client's message that did not fit; 0 = none */
    size_t server_refused_bytes; /* the handler's message that did not fit; 0 = none */
    bool half_closed;            /* the client sends no more */
    bool server_ended;           /* the handler ended the call: `end` holds why */
    bool aborted;                /* cancelled, deadline, channel gone: `end` holds why */
    struct sf_diag end;          /* what done will say */

    /* loop */
    struct sf_task pump;
    struct sf_timer deadline;
    struct sf_rpc_message *request; /* unary handler: its request, kept until the stream is freed */
    bool opened;                    /* the handler's open was called */
    bool half_close_told;           /* the handler knows of the half-close */
    bool done;                      /* done was called */
};

static struct sf_inproc_stream *of_call(struct sf_call *call)
{
    return SF_CONTAINER_OF(call, struct sf_inproc_stream, call);
}

static struct sf_inproc_stream *of_client(struct sf_client_stream *base)
{
    return SF_CONTAINER_OF(base, struct sf_inproc_stream, base);
}

static void stream_release(struct sf_inproc_stream *stream)
{
    if (atomic_fetch_sub(&stream->refs, 1) != 1)
        return;
    sf_rpc_message_queue_clear(&stream->to_server);
    sf_rpc_message_queue_clear(&stream->to_client);
    sf_rpc_message_destroy(stream->request);
    sf_arena_destroy(stream->call.arena);
    pthread_mutex_destroy(&stream->mu);
    sf_inproc_release(stream->channel);
    free(stream);
}

static void unlink_from_channel(struct sf_inproc_stream *stream)
{
    struct sf_inproc *channel = stream->channel;

    pthread_mutex_lock(&channel->mu);
    if (stream->next != NULL)
        stream->next->prev = stream->prev;
    if (stream->prev != NULL)
        stream->prev->next = stream->next;
    else
        channel->streams = stream->next;
    pthread_mutex_unlock(&channel->mu);
}

static void pump_post_locked(struct sf_inproc_stream *stream)
{
    if (stream->pump_posted)
        return;
    stream->pump_posted = true;
    atomic_fetch_add(&stream->refs, 1);
    sf_loop_post(stream->loop, &stream->pump);
}

/* Ends the stream from outside the handler; what is queued is dropped. */
static void abort_locked(struct sf_inproc_stream *stream, enum sf_err err, const char *why)
{
    if (stream->aborted || stream->server_ended)
        return;
    stream->aborted = true;
    sf_diag_init(&stream->end);
    (void)sf_diag_set(&stream->end, err, "%s", why);
    atomic_store(&stream->call.cancelled, true);
    pump_post_locked(stream);
}

static enum sf_err queue_push_locked(struct sf_rpc_message_queue *queue,
                                     struct sf_rpc_message *message, size_t *refused_bytes)
{
    if (queue->head != NULL && queue->bytes + message->bytes > SF_LIMIT_RPC_STREAM_BUDGET_BYTES) {
        *refused_bytes = message->bytes + 1;
        return SF_ERR_FULL;
    }
    sf_rpc_message_queue_push(queue, message);
    return SF_OK;
}

/* A queue that is nearly empty may still be too full for a large message: told too early, its
 * sender would be refused again, and for ever. */
static bool take_writable_locked(const struct sf_rpc_message_queue *queue, size_t *refused_bytes)
{
    if (*refused_bytes == 0 || queue->bytes > SF_LIMIT_RPC_STREAM_BUDGET_BYTES / 2 ||
        (queue->head != NULL && queue->bytes + *refused_bytes > SF_LIMIT_RPC_STREAM_BUDGET_BYTES))
        return false;
    *refused_bytes = 0;
    return true;
}

/* ---- the pump: every callback runs here ---- */

static bool has_stream_handler(const struct sf_inproc_stream *stream)
{
    return stream->call.route->method->stream != NULL;
}

static void fail_unless_ended(struct sf_inproc_stream *stream, enum sf_err err, const char *why)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, err, "%s", why);
    if (!atomic_load(&stream->call.ended))
        sf_call_fail(&stream->call, &diag);
}

static void tell_message(struct sf_inproc_stream *stream, struct sf_rpc_message *message)
{
    const struct sf_rpc_route *route = stream->call.route;

    if (has_stream_handler(stream)) {
        route->method->stream->message(route->service->self, &stream->call, message->message);
        sf_rpc_message_destroy(message);
    } else if (stream->request == NULL) {
        stream->request = message;
    } else {
        sf_rpc_message_destroy(message);
        fail_unless_ended(stream, SF_UNIMPLEMENTED, "the method takes one message");
    }
}

static void tell_half_close(struct sf_inproc_stream *stream)
{
    const struct sf_rpc_route *route = stream->call.route;

    stream->half_close_told = true;
    if (has_stream_handler(stream))
        route->method->stream->half_close(route->service->self, &stream->call);
    else if (stream->request == NULL)
        fail_unless_ended(stream, SF_UNIMPLEMENTED, "the method takes one message");
    else
        route->method->unary(route->service->self, &stream->call, stream->request->message);
}

static void tell_open(struct sf_inproc_stream *stream)
{
    const struct sf_rpc_route *route = stream->call.route;

    stream->opened = true;
    if (has_stream_handler(stream))
        route->method->stream->open(route->service->self, &stream->call);
}

static void tell_writable(struct sf_inproc_stream *stream)
{
    const struct sf_rpc_route *route = stream->call.route;

    if (has_stream_handler(stream) && route->method->stream->writable != NULL)
        route->method->stream->writable(route->service->self, &stream->call);
}

/* Last callbacks of both sides. */
static void tell_end(struct sf_inproc_stream *stream)
{
    const struct sf_rpc_route *route = stream->call.route;
    struct sf_diag end = stream->end;

    stream->done = true;
    sf_timer_stop(&stream->deadline);
    unlink_from_channel(stream);
    if (route != NULL && stream->opened && has_stream_handler(stream))
        route->method->stream->closed(route->service->self, &stream->call);
    bool handler_runs = route != NULL && !has_stream_handler(stream) && stream->half_close_told &&
                        stream->request != NULL;
    if (!handler_runs)
        stream_release(stream); /* the server's share; a unary handler gives it up at its end */
    stream->ops->done(stream->user, &end);
    stream_release(stream);
}

enum step {
    STEP_NONE,
    STEP_OPEN,
    STEP_CLIENT_WRITABLE,
    STEP_SERVER_WRITABLE,
    STEP_TO_SERVER,
    STEP_HALF_CLOSE,
    STEP_TO_CLIENT,
    STEP_END
};

static enum step next_step_locked(struct sf_inproc_stream *stream,
                                  struct sf_rpc_message **out_message)
{
    bool server_listens = !stream->server_ended && stream->pauses == 0;

    if (stream->done)
        return STEP_NONE;
    if (stream->aborted)
        return STEP_END;
    if (!stream->opened && !stream->server_ended)
        return STEP_OPEN;
    if (!stream->server_ended && !stream->half_closed &&
        take_writable_locked(&stream->to_server, &stream->client_refused_bytes))
        return STEP_CLIENT_WRITABLE;
    if (!stream->server_ended &&
        take_writable_locked(&stream->to_client, &stream->server_refused_bytes))
        return STEP_SERVER_WRITABLE;
    if (server_listens && (*out_message = sf_rpc_message_queue_pop(&stream->to_server)) != NULL)
        return STEP_TO_SERVER;
    if (server_listens && stream->half_closed && !stream->half_close_told)
        return STEP_HALF_CLOSE;
    if ((*out_message = sf_rpc_message_queue_pop(&stream->to_client)) != NULL)
        return STEP_TO_CLIENT;
    return stream->server_ended ? STEP_END : STEP_NONE;
}

/* One callback; false when there was nothing to do. */
static bool pump_step(struct sf_inproc_stream *stream)
{
    struct sf_rpc_message *message = NULL;

    pthread_mutex_lock(&stream->mu);
    enum step step = next_step_locked(stream, &message);
    pthread_mutex_unlock(&stream->mu);
    switch (step) {
    case STEP_NONE:
        return false;
    case STEP_OPEN:
        tell_open(stream);
        break;
    case STEP_CLIENT_WRITABLE:
        if (stream->ops->writable != NULL)
            stream->ops->writable(stream->user);
        break;
    case STEP_SERVER_WRITABLE:
        tell_writable(stream);
        break;
    case STEP_TO_SERVER:
        tell_message(stream, message);
        break;
    case STEP_HALF_CLOSE:
        tell_half_close(stream);
        break;
    case STEP_TO_CLIENT:
        stream->ops->message(stream->user, message->message);
        sf_rpc_message_destroy(message);
        break;
    case STEP_END:
        tell_end(stream);
        return false;
    }
    return true;
}

static void on_pump(struct sf_task *task)
{
    struct sf_inproc_stream *stream = SF_CONTAINER_OF(task, struct sf_inproc_stream, pump);
    unsigned steps = 0;

    pthread_mutex_lock(&stream->mu);
    stream->pump_posted = false;
    pthread_mutex_unlock(&stream->mu);
    while (steps < PUMP_BATCH && pump_step(stream))
        steps++;
    if (steps == PUMP_BATCH) {
        pthread_mutex_lock(&stream->mu);
        pump_post_locked(stream);
        pthread_mutex_unlock(&stream->mu);
    }
    stream_release(stream);
}

static void on_deadline(struct sf_timer *timer)
{
    struct sf_inproc_stream *stream = SF_CONTAINER_OF(timer, struct sf_inproc_stream, deadline);

    pthread_mutex_lock(&stream->mu);
    abort_locked(stream, SF_DEADLINE_EXCEEDED, "the stream did not end before the deadline");
    pthread_mutex_unlock(&stream->mu);
}

/* ---- the handler's side ---- */

/* The handler ended the call with `diag` (NULL = OK), after `last` (NULL = no message). */
static void server_end(struct sf_inproc_stream *stream, const struct sf_diag *diag,
                       struct sf_rpc_message *last)
{
    const struct sf_rpc_route *route = stream->call.route;

    pthread_mutex_lock(&stream->mu);
    if (stream->aborted || stream->server_ended) {
        sf_rpc_message_destroy(last);
    } else {
        if (last != NULL)
            sf_rpc_message_queue_push(&stream->to_client, last);
        stream->server_ended = true;
        sf_rpc_message_queue_clear(&stream->to_server);
        if (diag != NULL)
            stream->end = *diag;
        pump_post_locked(stream);
    }
    bool unary_handler = route != NULL && route->method->unary != NULL && stream->half_close_told &&
                         stream->request != NULL;
    pthread_mutex_unlock(&stream->mu);
    if (unary_handler)
        stream_release(stream);
}

static void server_respond(struct sf_call *call, const ProtobufCMessage *response)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    struct sf_rpc_message *message = sf_rpc_message_new(response, &diag);
    server_end(of_call(call), message != NULL ? NULL : &diag, message);
}

static void server_respond_bytes(struct sf_call *call, struct sf_view packed)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    ProtobufCMessage *response =
        sf_rpc_unpack(call->route->method->response, packed, call->arena, &diag);
    if (response != NULL)
        server_respond(call, response);
    else
        server_end(of_call(call), &diag, NULL);
}

static void server_fail(struct sf_call *call, const struct sf_diag *diag)
{
    server_end(of_call(call), diag, NULL);
}

static void server_finish(struct sf_call *call)
{
    server_end(of_call(call), NULL, NULL);
}

static enum sf_err server_send(struct sf_call *call, const ProtobufCMessage *message)
{
    struct sf_inproc_stream *stream = of_call(call);

    if (sf_call_cancelled(call))
        return SF_CANCELLED;
    struct sf_rpc_message *copy = sf_rpc_message_new(message, NULL);
    enum sf_err err = SF_OK;
    if (copy == NULL)
        return SF_ERR_LIMIT;
    pthread_mutex_lock(&stream->mu);
    if (stream->aborted || stream->server_ended)
        err = SF_CANCELLED;
    else
        err = queue_push_locked(&stream->to_client, copy, &stream->server_refused_bytes);
    if (err == SF_OK)
        pump_post_locked(stream);
    pthread_mutex_unlock(&stream->mu);
    if (err != SF_OK)
        sf_rpc_message_destroy(copy);
    return err;
}

static void server_pause(struct sf_call *call)
{
    struct sf_inproc_stream *stream = of_call(call);

    pthread_mutex_lock(&stream->mu);
    stream->pauses++;
    pthread_mutex_unlock(&stream->mu);
}

static void server_resume(struct sf_call *call)
{
    struct sf_inproc_stream *stream = of_call(call);

    pthread_mutex_lock(&stream->mu);
    SF_ASSERT(stream->pauses > 0);
    if (--stream->pauses == 0)
        pump_post_locked(stream);
    pthread_mutex_unlock(&stream->mu);
}

static struct sf_view no_metadata_bin(const struct sf_call *call, const char *name)
{
    (void)call, (void)name;
    return (struct sf_view){0};
}

static const char *no_metadata(const struct sf_call *call, const char *name)
{
    (void)call, (void)name;
    return NULL;
}

static void server_acquire(struct sf_call *call)
{
    atomic_fetch_add(&of_call(call)->refs, 1);
}

static void server_release(struct sf_call *call)
{
    stream_release(of_call(call));
}

static const struct sf_call_ops server_ops = {
    .respond = server_respond,
    .respond_bytes = server_respond_bytes,
    .fail = server_fail,
    .send = server_send,
    .finish = server_finish,
    .pause = server_pause,
    .resume = server_resume,
    .metadata = no_metadata,
    .metadata_bin = no_metadata_bin,
    .acquire = server_acquire,
    .release = server_release,
};

/* ---- the client's side ---- */

static enum sf_err client_send(struct sf_client_stream *base, const ProtobufCMessage *message)
{
    struct sf_inproc_stream *stream = of_client(base);
    const struct sf_rpc_route *route = stream->call.route;

    SF_ASSERT(sf_loop_is_current(stream->loop));
    SF_ASSERT(route == NULL || message->descriptor == route->method->request);
    struct sf_rpc_message *copy = sf_rpc_message_new(message, NULL);
    enum sf_err err = SF_OK;
    if (copy == NULL)
        return SF_ERR_LIMIT;
    pthread_mutex_lock(&stream->mu);
    if (stream->aborted || stream->server_ended || stream->half_closed)
        err = SF_ERR_STOPPED;
    else
        err = queue_push_locked(&stream->to_server, copy, &stream->client_refused_bytes);
    if (err == SF_OK)
        pump_post_locked(stream);
    pthread_mutex_unlock(&stream->mu);
    if (err != SF_OK)
        sf_rpc_message_destroy(copy);
    return err;
}

static void client_half_close(struct sf_client_stream *base)
{
    struct sf_inproc_stream *stream = of_client(base);

    pthread_mutex_lock(&stream->mu);
    stream->half_closed = true;
    pump_post_locked(stream);
    pthread_mutex_unlock(&stream->mu);
}

/* A cancel also discards an end that the handler gave but the client has not seen. */
static void client_cancel(struct sf_client_stream *base)
{
    struct sf_inproc_stream *stream = of_client(base);

    pthread_mutex_lock(&stream->mu);
    if (stream->server_ended) {
        stream->server_ended = false;
        sf_rpc_message_queue_clear(&stream->to_client);
    }
    abort_locked(stream, SF_CANCELLED, "cancelled by the caller");
    pthread_mutex_unlock(&stream->mu);
}

static const struct sf_client_stream_vtable client_vtable = {
    .send = client_send,
    .half_close = client_half_close,
    .cancel = client_cancel,
};

void sf_inproc_stream_stop_locked(struct sf_inproc_stream *stream)
{
    pthread_mutex_lock(&stream->mu);
    abort_locked(stream, SF_ERR_STOPPED, "the channel was closed");
    pthread_mutex_unlock(&stream->mu);
}

struct sf_inproc_stream *sf_inproc_stream_next_locked(struct sf_inproc_stream *stream)
{
    return stream->next;
}

static void link_to_channel(struct sf_inproc *channel, struct sf_inproc_stream *stream)
{
    pthread_mutex_lock(&channel->mu);
    stream->next = channel->streams;
    if (stream->next != NULL)
        stream->next->prev = stream;
    channel->streams = stream;
    pthread_mutex_unlock(&channel->mu);
}

struct sf_client_stream *sf_inproc_stream_open(struct sf_channel *base, const char *method,
                                               const struct sf_call_options *options,
                                               struct sf_loop *loop,
                                               const struct sf_client_stream_ops *ops, void *user)
{
    struct sf_inproc *channel = SF_CONTAINER_OF(base, struct sf_inproc, base);
    struct sf_inproc_stream *stream = sf_calloc(1, sizeof(*stream));

    SF_ASSERT(loop != NULL && sf_loop_is_current(loop));
    stream->base.vtable = &client_vtable;
    stream->channel = channel;
    stream->loop = loop;
    stream->ops = ops;
    stream->user = user;
    stream->pump = (struct sf_task){.run = on_pump};
    atomic_init(&stream->refs, 2);
    SF_ASSERT(pthread_mutex_init(&stream->mu, NULL) == 0);
    sf_diag_init(&stream->end);
    sf_call_init(&stream->call, &server_ops,
                 sf_rpc_registry_find(&channel->registry, sf_view_str(method)),
                 sf_arena_new(SF_LIMIT_RPC_ARENA_BYTES));
    sf_inproc_acquire(channel);
    link_to_channel(channel, stream);
    sf_inproc_call_set(channel, &stream->call, options, loop);
    sf_timer_init(&stream->deadline, loop, on_deadline);
    if (options->timeout_ms > 0)
        sf_timer_start(&stream->deadline, options->timeout_ms);
    pthread_mutex_lock(&stream->mu);
    if (stream->call.route == NULL) {
        stream->server_ended = true;
        (void)sf_contract_unserved(sf_view_str(method), &stream->end);
    }
    pump_post_locked(stream);
    pthread_mutex_unlock(&stream->mu);
    return &stream->base;
}
