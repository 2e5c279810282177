/*
 * The client's side of a call, with two bindings behind one interface: in process (straight to a
 * struct sf_service) and gRPC (rpc/client.c). A role reaches another only through a channel.
 */
#ifndef SF_RPC_CHANNEL_H
#define SF_RPC_CHANNEL_H

#include "exec/sched.h"
#include "rpc/call.h"

struct sf_channel;
struct sf_client_stream;

struct sf_call_options {
    int64_t timeout_ms; /* 0 = none */
    const struct sf_identity
        *identity; /* in process only: who calls; NULL = the channel's own identity */
};

/* Result of a unary call: `diag->err` SF_OK and `response`, or the error with its details and NULL.
 * Both are valid during the callback only. */
typedef void (*sf_unary_done_fn)(void *user, const struct sf_diag *diag,
                                 const ProtobufCMessage *response);

/* What a client stream tells its owner, on the loop given at the open. */
struct sf_client_stream_ops {
    void (*message)(void *user, const ProtobufCMessage *message); /* valid during the callback */
    void (*writable)(void *user);                         /* after a send said SF_ERR_FULL */
    void (*done)(void *user, const struct sf_diag *diag); /* last; the stream is gone on return */
};

/* Calls `method` ("/searchfabric.v1.IdAllocatorService/AllocateIds"). `request` is borrowed until
 * done. `loop` is where done runs (NULL: any thread, wake-ups only). done: always later, exactly
 * once. Any thread. */
void sf_channel_unary(struct sf_channel *channel, const char *method,
                      const ProtobufCMessage *request, const struct sf_call_options *options,
                      struct sf_loop *loop, sf_unary_done_fn done, void *user);

/* Waiting form: the response is unpacked into `arena`. Returns diag->err. Worker task or plain
 * thread. */
SF_MUST_USE enum sf_err sf_channel_unary_wait(struct sf_channel *channel, struct sf_sched *sched,
                                              const char *method, const ProtobufCMessage *request,
                                              const struct sf_call_options *options,
                                              struct sf_arena *arena, struct sf_diag *diag,
                                              const ProtobufCMessage **out_response);

/* Opens a stream. Callbacks on `loop` (not NULL). The stream lives until its done callback
 * returned. On the loop. */
struct sf_client_stream *sf_channel_stream(struct sf_channel *channel, const char *method,
                                           const struct sf_call_options *options,
                                           struct sf_loop *loop,
                                           const struct sf_client_stream_ops *ops, void *user);

/* Packs and queues one message. SF_ERR_FULL: wait for writable; SF_ERR_STOPPED: the stream ended;
 * SF_ERR_LIMIT: above the message limit. On the loop. */
SF_MUST_USE enum sf_err sf_client_stream_send(struct sf_client_stream *stream,
                                              const ProtobufCMessage *message);

/* No more messages from this side. On the loop. */
void sf_client_stream_half_close(struct sf_client_stream *stream);

/* Ends the stream; done follows with SF_CANCELLED. On the loop. */
void sf_client_stream_cancel(struct sf_client_stream *stream);

/* A channel that calls `services` (array of `count` pointers, copied) in this process as `identity`
 * (copied). Unary: the handler runs within the call; with a loop NULL done may, too. A deadline on
 * a loop ends the call there (the request is copied then); without a loop the handler alone minds
 * it. */
struct sf_channel *sf_inproc_channel_new(const struct sf_service *const *services, size_t count,
                                         const char *identity, struct sf_clock *clock);

/* A gRPC channel to host:port over plaintext loopback, living on `loop` (a reactor's). Connects on
 * first use, reconnects with jittered backoff. */
SF_MUST_USE enum sf_err sf_grpc_channel_new(struct sf_loop *loop, const char *host, uint16_t port,
                                            struct sf_diag *diag, struct sf_channel **out_channel);

/* Makes the methods of a service known to a gRPC channel, beside those of the contract, health and
 * reflection, which it knows. `service` is static. Before the first call. */
void sf_grpc_channel_add_service(struct sf_channel *channel,
                                 const ProtobufCServiceDescriptor *service);

/* Fails what is open (their done callbacks still come, later, on their loops), closes. Any thread.
 * NULL is fine. */
void sf_channel_destroy(struct sf_channel *channel);

#endif
