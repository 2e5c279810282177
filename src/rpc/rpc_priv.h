/*
 * What the two bindings (in process, gRPC) share: the base of a call on the server's side, the
 * table of methods, queued messages, and the tables of functions behind channels and streams.
 */
#ifndef SF_RPC_PRIV_H
#define SF_RPC_PRIV_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/map.h"
#include "rpc/call.h"
#include "rpc/channel.h"

/* One served method. */
struct sf_rpc_route {
    const char *path;                 /* "/service/Method", owned */
    const struct sf_service *service; /* the owner's, outlives the registry */
    const struct sf_method *method;   /* in service->methods */
    size_t index;                     /* from the registry's first on, dense */
};

/* Table of all served methods; immutable after it was made. */
struct sf_rpc_registry {
    struct sf_map *routes; /* path -> struct sf_rpc_route, each owned */
};

/* Makes the table, indexes counted from `first_index`; a path that stands in two services is an
 * assertion. */
void sf_rpc_registry_init(struct sf_rpc_registry *registry,
                          const struct sf_service *const *services, size_t count,
                          size_t first_index);

void sf_rpc_registry_fini(struct sf_rpc_registry *registry);

/* The route of `path`, NULL when not served. Any thread. */
const struct sf_rpc_route *sf_rpc_registry_find(const struct sf_rpc_registry *registry,
                                                struct sf_view path);

size_t sf_rpc_registry_count(const struct sf_rpc_registry *registry);

/* How a binding does what a handler asks for. All but `metadata` may be called from any thread. */
struct sf_call_ops {
    void (*respond)(struct sf_call *call, const ProtobufCMessage *response); /* sf_call_respond */
    void (*respond_bytes)(struct sf_call *call, struct sf_view packed);      /* the same, packed */
    void (*fail)(struct sf_call *call, const struct sf_diag *diag);          /* sf_call_fail */
    enum sf_err (*send)(struct sf_call *call, const ProtobufCMessage *message); /* sf_call_send */
    void (*finish)(struct sf_call *call);                                       /* sf_call_finish */
    void (*pause)(struct sf_call *call);                                        /* sf_call_pause */
    void (*resume)(struct sf_call *call);                                       /* sf_call_resume */
    const char *(*metadata)(const struct sf_call *call, const char *name); /* sf_call_metadata */
    struct sf_view (*metadata_bin)(const struct sf_call *call, const char *name); /* its -bin */
    void (*acquire)(struct sf_call *call); /* sf_call_acquire */
    void (*release)(struct sf_call *call); /* sf_call_release */
};

/* Base of a call, first member of a binding's own struct. */
struct sf_call {
    /* immutable once the handler sees the call */
    const struct sf_call_ops *ops;    /* of the binding */
    const struct sf_rpc_route *route; /* NULL: not served, no handler sees the call */
    struct sf_identity identity;      /* name: as long as the call */
    int64_t deadline_ms;              /* monotonic, INT64_MAX = none */
    struct sf_arena *arena;           /* owned by the binding */

    /* the handler's */
    struct sf_diag diag; /* scratch for its errors */
    void *state;         /* its own */

    /* atomic */
    atomic_bool cancelled; /* the client is gone */
    atomic_bool ended;     /* respond, fail or finish was called */
};

/* Sets the common part. `arena` stays the binding's. */
void sf_call_init(struct sf_call *call, const struct sf_call_ops *ops,
                  const struct sf_rpc_route *route, struct sf_arena *arena);

/* Fills an identity from a name: the hash is computed; the name stays the caller's. */
void sf_identity_set(struct sf_identity *identity, const char *name);

/* A copy of `message` in `arena` by way of its packed form; NULL with `diag` (NULL allowed) filled:
 * SF_ERR_LIMIT (message or arena limit). */
ProtobufCMessage *sf_rpc_copy(const ProtobufCMessage *message, struct sf_arena *arena,
                              struct sf_diag *diag);

/* Unpacks bytes of at most the message limit into `arena`; NULL with `diag` filled. */
ProtobufCMessage *sf_rpc_unpack(const ProtobufCMessageDescriptor *desc, struct sf_view packed,
                                struct sf_arena *arena, struct sf_diag *diag);

/* A message on its way, with the arena it lives in. */
struct sf_rpc_message {
    struct sf_rpc_message *next; /* in its queue */
    struct sf_arena *arena;      /* owned */
    ProtobufCMessage *message;   /* in the arena */
    size_t bytes;                /* packed size: what it counts against a budget */
};

/* First-in first-out list with its bytes; zero-initialise. */
struct sf_rpc_message_queue {
    struct sf_rpc_message *head; /* longest in it; NULL = empty */
    struct sf_rpc_message *tail; /* last one */
    size_t bytes;                /* sum over the list */
};

/* A copy of `message` in an arena of its own; NULL with `diag` (NULL allowed) filled as
 * sf_rpc_copy. */
struct sf_rpc_message *sf_rpc_message_new(const ProtobufCMessage *message, struct sf_diag *diag);

void sf_rpc_message_destroy(struct sf_rpc_message *message);
void sf_rpc_message_queue_push(struct sf_rpc_message_queue *queue, struct sf_rpc_message *message);
struct sf_rpc_message *sf_rpc_message_queue_pop(struct sf_rpc_message_queue *queue);
void sf_rpc_message_queue_clear(struct sf_rpc_message_queue *queue);

struct sf_channel_vtable {
    void (*unary)(struct sf_channel *channel, const char *method, const ProtobufCMessage *request,
                  const struct sf_call_options *options, struct sf_loop *loop,
                  sf_unary_done_fn done, void *user); /* sf_channel_unary */
    struct sf_client_stream *(*stream)(struct sf_channel *channel, const char *method,
                                       const struct sf_call_options *options, struct sf_loop *loop,
                                       const struct sf_client_stream_ops *ops,
                                       void *user); /* sf_channel_stream */
    void (*destroy)(struct sf_channel *channel);    /* sf_channel_destroy */
};

struct sf_channel {
    const struct sf_channel_vtable *vtable; /* first member of a binding's own struct */
};

struct sf_client_stream_vtable {
    enum sf_err (*send)(struct sf_client_stream *stream,
                        const ProtobufCMessage *message); /* sf_client_stream_send */
    void (*half_close)(struct sf_client_stream *stream);  /* sf_client_stream_half_close */
    void (*cancel)(struct sf_client_stream *stream);      /* sf_client_stream_cancel */
};

struct sf_client_stream {
    const struct sf_client_stream_vtable *vtable; /* first member of a binding's own struct */
};

#endif
