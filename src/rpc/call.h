/*
 * The server's side of a call, independent of how it came in: over gRPC (rpc/server.h) or in
 * process (rpc/channel.h). A service is a table of methods with typed handlers; it never sees
 * frames.
 *
 * Thread: a handler starts on the thread of whoever delivers the call and must not block; it may
 * keep the call and answer from any thread, exactly once. The call hops back to its own thread by
 * itself.
 */
#ifndef SF_RPC_CALL_H
#define SF_RPC_CALL_H

#include "base/arena.h"
#include "base/diag.h"
#include "exec/loop.h"

struct sf_call;
struct sf_service;

/* Who calls, proved by the transport. On plaintext loopback it is the fixed identity "loopback". */
struct sf_identity {
    const char
        *name; /* e.g. "loopback", a SPIFFE URI, a token's owner; valid as long as the call */
    char hash_hex[65]; /* SHA-256 of the name, lower-case hex: what keys and records carry */
};

typedef void (*sf_unary_fn)(void *self, struct sf_call *call, const ProtobufCMessage *request);

/* Handlers of a client-streaming or bidirectional method. All run one after another for one call.
 */
struct sf_stream_ops {
    void (*open)(void *self, struct sf_call *call); /* first; may sf_call_set_state */
    void (*message)(void *self, struct sf_call *call,
                    const ProtobufCMessage *message); /* valid during the callback;
                    keep it with sf_pb_dup, or hold back the peer (sf_call_pause) */
    void (*half_close)(void *self,
                       struct sf_call *call); /* the client sends no more; never a confirmation */
    void (*closed)(void *self,
                   struct sf_call *call); /* last callback: finished, cancelled or broken; the call
                   is gone on return unless it is held (sf_call_acquire) */
    void (*writable)(void *self,
                     struct sf_call *call); /* after a send said SF_ERR_FULL; may be NULL */
};

/* Unpacks a message, as sf_pb_unpack. */
typedef enum sf_err (*sf_unpack_fn)(struct sf_view bytes, struct sf_arena *arena,
                                    struct sf_diag *diag, ProtobufCMessage **out_message);

struct sf_method {
    const char *name;                          /* "AllocateIds" */
    const ProtobufCMessageDescriptor *request; /* message types */
    const ProtobufCMessageDescriptor *response;
    sf_unary_fn unary;                  /* unary (or server-streaming when server_stream) */
    const struct sf_stream_ops *stream; /* client-streaming and bidirectional; then unary is NULL */
    bool server_stream;                 /* unary request, many responses */
    sf_unpack_fn unpack;                /* reads `request` from the wire, with the results of
                                           sf_pb_unpack; NULL = that */
};

struct sf_service {
    const char *full_name;           /* "searchfabric.v1.IdAllocatorService" */
    const struct sf_method *methods; /* static */
    size_t method_count;
    void *self; /* passed to handlers */
};

/* The authenticated caller; valid as long as the call. */
const struct sf_identity *sf_call_identity(const struct sf_call *call);

/* Full method name "/service/Method". */
const char *sf_call_method(const struct sf_call *call);

/* Monotonic deadline in ms on the system (or loop) clock, INT64_MAX when none. */
int64_t sf_call_deadline_ms(const struct sf_call *call);

/* ASCII metadata value by lower-case name, NULL when absent. */
const char *sf_call_metadata(const struct sf_call *call, const char *name);

/* Bytes of the binary metadata `name` (ends in "-bin"), empty when absent; valid as long as the
 * call. */
struct sf_view sf_call_metadata_bin(const struct sf_call *call, const char *name);

/* The call's arena, for the request and whatever the handler builds; freed after the answer left.
 * One user at a time. */
struct sf_arena *sf_call_arena(struct sf_call *call);

/* The call's diag, for convenience: fill it and pass it to sf_call_fail. */
struct sf_diag *sf_call_diag(struct sf_call *call);

/* True once the client is known to be gone (cancel, deadline, connection lost). Any thread. */
bool sf_call_cancelled(const struct sf_call *call);

/* Unary answer; packs `response` at once (it may be freed on return). Ends the call. Any thread. */
void sf_call_respond(struct sf_call *call, const ProtobufCMessage *response);

/* Unary answer of already packed bytes: what a replay returns verbatim. Ends the call. Any thread.
 */
void sf_call_respond_bytes(struct sf_call *call, struct sf_view packed);

/* Ends any call with an error: `diag` gives code, message and details (copied). Any thread. */
void sf_call_fail(struct sf_call *call, const struct sf_diag *diag);

/* Sends one message of a streaming answer (packed at once). Any thread. SF_ERR_FULL: the peer reads
 * too slowly, the call's output budget is used up, nothing was queued; SF_CANCELLED: the peer is
 * gone; SF_ERR_LIMIT: above the message limit. */
SF_MUST_USE enum sf_err sf_call_send(struct sf_call *call, const ProtobufCMessage *message);

/* Ends a streaming call with OK after what was sent. Any thread. */
void sf_call_finish(struct sf_call *call);

/* Back pressure: stops and resumes the delivery of further messages of a stream. Nestable by count.
 * Any thread. */
void sf_call_pause(struct sf_call *call);
void sf_call_resume(struct sf_call *call);

/* Keeps a stream's call valid past `closed`, for threads that still hold it; each acquire needs one
 * release. On a call that was closed, sends say SF_CANCELLED and the end is dropped. Any thread. A
 * call with a unary handler needs no hold: it is valid until it is answered, cancelled or not. */
void sf_call_acquire(struct sf_call *call);
void sf_call_release(struct sf_call *call);

/* The handler's own pointer for a stream. */
void sf_call_set_state(struct sf_call *call, void *state);
void *sf_call_state(const struct sf_call *call);

#endif
