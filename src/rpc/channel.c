/*
 * Channels: dispatch to the binding, and the waiting form of a unary call, which is the ordinary
 * form with a waiter: the answer is copied into the caller's arena on whatever thread brings it,
 * and the waiter is woken last.
 */
#include "rpc/channel.h"

#include "rpc/rpc_priv.h"

void sf_channel_unary(struct sf_channel *channel, const char *method,
                      const ProtobufCMessage *request, const struct sf_call_options *options,
                      struct sf_loop *loop, sf_unary_done_fn done, void *user)
{
    static const struct sf_call_options none = {0};

    channel->vtable->unary(channel, method, request, options == NULL ? &none : options, loop, done,
                           user);
}

struct waiting_call {
    struct sf_waiter waiter;
    struct sf_arena *arena;
    struct sf_diag *diag;
    ProtobufCMessage *response;
};

static void on_done(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct waiting_call *call = user;

    *call->diag = *diag;
    if (diag->err == SF_OK)
        call->response = sf_rpc_copy(response, call->arena, call->diag);
    sf_waiter_wake(&call->waiter);
}

enum sf_err sf_channel_unary_wait(struct sf_channel *channel, struct sf_sched *sched,
                                  const char *method, const ProtobufCMessage *request,
                                  const struct sf_call_options *options, struct sf_arena *arena,
                                  struct sf_diag *diag, const ProtobufCMessage **out_response)
{
    struct waiting_call call = {.arena = arena, .diag = diag};

    sf_waiter_init(&call.waiter, sched);
    sf_channel_unary(channel, method, request, options, NULL, on_done, &call);
    sf_waiter_wait(&call.waiter);
    sf_waiter_fini(&call.waiter);
    *out_response = call.response;
    return diag->err;
}

struct sf_client_stream *sf_channel_stream(struct sf_channel *channel, const char *method,
                                           const struct sf_call_options *options,
                                           struct sf_loop *loop,
                                           const struct sf_client_stream_ops *ops, void *user)
{
    static const struct sf_call_options none = {0};

    return channel->vtable->stream(channel, method, options == NULL ? &none : options, loop, ops,
                                   user);
}

enum sf_err sf_client_stream_send(struct sf_client_stream *stream, const ProtobufCMessage *message)
{
    return stream->vtable->send(stream, message);
}

void sf_client_stream_half_close(struct sf_client_stream *stream)
{
    stream->vtable->half_close(stream);
}

void sf_client_stream_cancel(struct sf_client_stream *stream)
{
    stream->vtable->cancel(stream);
}

void sf_channel_destroy(struct sf_channel *channel)
{
    if (channel != NULL)
        channel->vtable->destroy(channel);
}
