/*
 * The gRPC channel's parts:
 *
 *   grpc_channel   one address: connects, reconnects, finds methods   (client.c)
 *   grpc_conn      one connection                                     (client.c)
 *   grpc_call      one call, unary or stream                          (client_call.c)
 *
 * Two threads meet in a call: the channel's loop, which owns the stream, and the caller's loop,
 * where callbacks run. They exchange queues under the call's mutex and wake each other by one
 * posted task each way.
 */
#ifndef SF_RPC_CLIENT_PRIV_H
#define SF_RPC_CLIENT_PRIV_H

#include <pthread.h>
#include <sys/socket.h>

#include "base/rng.h"
#include "rpc/frame.h"
#include "rpc/h2.h"

struct grpc_channel;
struct grpc_conn;

/* One packed message with its prefix. */
struct grpc_out {
    struct grpc_out *next; /* in its queue */
    size_t len;            /* of data */
    size_t at;             /* bytes sent */
    uint8_t data[];        /* prefix and message */
};

struct grpc_call {
    struct sf_client_stream base; /* what the owner of a stream holds */

    /* immutable */
    struct grpc_channel *channel;            /* one reference */
    const ProtobufCMethodDescriptor *method; /* in the contract's descriptors */
    const char *path;                        /* owned copy */
    struct sf_loop *loop;                    /* the caller's; NULL: done on the channel's */
    bool unary;                              /* one request, one answer; else a stream */
    sf_unary_done_fn done;                   /* unary */
    const struct sf_client_stream_ops *ops;  /* stream */
    void *user;                              /* handed back to done and ops */
    int64_t deadline_ms;                     /* monotonic on the channel's loop, INT64_MAX = none */

    /* atomic */
    atomic_uint refs; /* caller until done, HTTP/2 stream, posted tasks */

    /* under mu: towards the channel's loop */
    pthread_mutex_t mu;                      /* guards what follows */
    struct grpc_out *pending, *pending_tail; /* owned: packed, not yet taken */
    size_t out_left;                         /* bytes in `pending` and `out` */
    bool half_closed;                        /* the owner sends no more */
    bool cancelled;                          /* the owner gave the call up */
    bool wants_writable;                     /* a send was refused: tell when there is room */
    bool hop_posted;                         /* hop is on its way */

    /* under mu: towards the caller */
    struct sf_rpc_message_queue in; /* owned: received, not yet delivered */
    size_t eaten;        /* bytes of delivered messages, to be given back to the window */
    bool writable;       /* there is room again, to be told */
    bool finished;       /* the end is known */
    bool deliver_posted; /* deliver is on its way */
    struct sf_diag end;  /* valid once finished */

    /* the channel's loop */
    struct sf_task hop;              /* takes over what the caller left */
    struct sf_timer deadline;        /* at deadline_ms */
    struct sf_timer retry;           /* a refused unary call waits to be placed again */
    struct grpc_conn *conn;          /* where the stream is */
    struct grpc_call *prev, *next;   /* in conn->calls, channel->waiting or resting */
    bool listed;                     /* in one of those lists */
    bool started;                    /* it was placed first */
    bool ended;                      /* finish was called */
    bool last_pending;               /* nothing follows what is in `out` */
    int32_t stream_id;               /* 0: none */
    unsigned attempts;               /* submits so far */
    struct grpc_out *out, *out_tail; /* owned: what the stream sends next */
    struct sf_frame_reader reader;   /* of the answer's messages */
    size_t unconsumed;               /* received, not yet given back to the stream's window */
    bool gzip;                       /* the peer compresses its messages */
    int http_status;                 /* 0: not received */
    int grpc_status;                 /* -1: not received */
    size_t header_bytes;             /* of the answer so far: bounded */
    struct sf_buf grpc_message;      /* decoded */
    struct sf_buf details;           /* decoded */

    /* the caller's loop */
    struct sf_task deliver; /* runs the callbacks */
    bool told;              /* done was called */
};

struct grpc_conn {
    struct sf_h2 h2;               /* first */
    struct grpc_channel *channel;  /* one reference */
    struct grpc_conn *prev, *next; /* in channel->conns */
    uv_connect_t connect;          /* request under way until connected */
    struct grpc_call *calls;       /* with a stream on it */
    struct sf_timer timer;         /* of the connect, then of the keepalive */
    int64_t opened_ms;             /* when it began to connect */
    int64_t ping_sent_ms;          /* 0: none is out */
    bool connected;                /* takes calls */
    int error;                     /* of libuv, why it could not connect */
};

struct grpc_channel {
    struct sf_channel base; /* first: what callers hold */

    /* immutable */
    struct sf_loop *loop;                 /* of connections and streams */
    struct sockaddr_storage addr;         /* of the server */
    char *authority;                      /* "host:port" */
    struct sf_map *methods;               /* path -> ProtobufCMethodDescriptor */
    nghttp2_session_callbacks *callbacks; /* owned; of all sessions */
    nghttp2_option *option;               /* owned; of all sessions */

    /* atomic */
    atomic_uint refs; /* owner, calls, connections, the context's handles */

    /* loop */
    struct sf_h2_ctx *ctx;     /* made on first use */
    struct grpc_conn *conn;    /* takes new calls; NULL: none */
    struct grpc_conn *conns;   /* all that are not gone yet */
    struct grpc_call *waiting; /* for `conn` to be connected */
    struct grpc_call *resting; /* refused, until their retry timer */
    int64_t retry_at_ms;       /* after a failure: not before */
    unsigned failures;         /* in a row */
    char last_error[128];      /* why the last connect failed */
    struct sf_rng rng;         /* jitter of the pauses */
    bool closed;               /* no new connections */
    struct sf_task close;      /* of the destroy */
};

/* ---- client.c ---- */
void grpc_channel_acquire(struct grpc_channel *channel);
void grpc_channel_release(struct grpc_channel *channel);

/* Brings a call onto a connection, now or when there is one; or fails it. On the channel's loop. */
void grpc_channel_place(struct grpc_channel *channel, struct grpc_call *call);

/* ---- client_call.c ---- */
void grpc_channel_unary(struct sf_channel *base, const char *method,
                        const ProtobufCMessage *request, const struct sf_call_options *options,
                        struct sf_loop *loop, sf_unary_done_fn done, void *user);
struct sf_client_stream *grpc_channel_stream(struct sf_channel *base, const char *method,
                                             const struct sf_call_options *options,
                                             struct sf_loop *loop,
                                             const struct sf_client_stream_ops *ops, void *user);

/* Submits the request on a connected connection; false when that takes no more streams. */
bool grpc_call_submit(struct grpc_call *call, struct grpc_conn *conn);

/* Ends a call. On the channel's loop; later calls do nothing. */
void grpc_call_finish(struct grpc_call *call, const struct sf_diag *diag);

/* The call's place in a list of the channel or a connection. */
void grpc_call_link(struct grpc_call **list, struct grpc_call *call);
void grpc_call_unlink(struct grpc_call **list, struct grpc_call *call);

void grpc_call_header(struct grpc_call *call, struct sf_view name, struct sf_view value);
void grpc_call_data(struct grpc_call *call, struct sf_view bytes);

/* The HTTP/2 stream is gone, with an HTTP/2 error code. */
void grpc_call_stream_closed(struct grpc_call *call, uint32_t error_code);
void grpc_call_take_data(struct grpc_call *call, uint8_t *to, size_t len);
void grpc_call_release(struct grpc_call *call);

#endif
