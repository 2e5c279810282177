/*
 * The gRPC server's parts, one owner each:
 *
 *   sf_rpc_server    listener, methods, counters              (server.c)
 *   rpc_worker       one reactor's connections and pools      (server.c)
 *   rpc_conn         one connection: session, timers, budget  (server_conn.c)
 *   rpc_call         one call                                 (server_call.c)
 *
 * A call keeps its connection's memory, a connection the server's, so that a handler may answer
 * whenever it likes; the answer to a call whose stream is gone is dropped.
 */
#ifndef SF_RPC_SERVER_PRIV_H
#define SF_RPC_SERVER_PRIV_H

#include <pthread.h>

#include "rpc/frame.h"
#include "rpc/h2.h"
#include "rpc/health.h"
#include "rpc/reflection.h"
#include "rpc/server.h"

/* Bytes of a message or answer that are not worth counting against the budgets: a call costs that
 * much anyway. */
#define RPC_UNCOUNTED_BYTES 4096u

struct rpc_call;
struct rpc_conn;

/* Bytes on their way to the client. */
struct rpc_out {
    struct rpc_out *next; /* in the queue */
    size_t len;           /* of data */
    size_t at;            /* bytes sent */
    bool heap;            /* free() it; else it lies in the call's arena */
    bool pooled;          /* counted in the budgets */
    uint8_t data[];       /* a message behind its prefix */
};

struct rpc_out_queue {
    struct rpc_out *head; /* next to be sent */
    struct rpc_out *tail; /* newest */
};

/* A request header that is not the transport's own. */
struct rpc_metadata {
    struct rpc_metadata *next; /* of the call */
    const char *name;          /* lower case */
    struct sf_view value;      /* NUL-terminated behind its end; decoded for "-bin" names */
};

enum rpc_encoding { RPC_ENCODING_IDENTITY, RPC_ENCODING_GZIP, RPC_ENCODING_UNKNOWN };

/* How a call ends, in header form. */
struct rpc_end {
    int grpc_status;    /* status code */
    struct sf_buf text; /* grpc-message, then grpc-status-details-bin */
    size_t message_len; /* where the first ends */
};

struct rpc_call {
    struct sf_call call; /* first: what handlers hold */
    pthread_mutex_t mu;  /* guards the part below that says so */

    /* immutable while in use; from here on zeroed between uses */
    struct rpc_conn *conn; /* one reference */

    /* atomic */
    atomic_uint refs;           /* stream, running unary handler, posted hop, holds */
    atomic_uint pauses;         /* sf_call_pause minus sf_call_resume */
    atomic_size_t out_left;     /* bytes in `pending` and `out` */
    atomic_bool wants_writable; /* a send said SF_ERR_FULL */

    /* under mu */
    struct rpc_out_queue pending; /* sent by the handler, not yet seen by the loop */
    struct rpc_end end;           /* valid once answered or overruled */
    bool answered;                /* the handler ended the call */
    bool overruled;               /* the transport ended it: what the handler says is dropped */
    bool hop_posted;              /* `hop` is on its way */

    /* loop */
    struct sf_task hop;            /* brings what the handler sent to the loop */
    struct sf_timer deadline;      /* grpc-timeout */
    struct rpc_call *prev, *next;  /* in conn->calls, or next in the worker's pool */
    struct rpc_call *next_waiting; /* in conn->waiting */
    struct rpc_call *next_woken;   /* in conn->woken */
    int32_t stream_id;             /* 0: the stream is gone */
    struct rpc_out_queue out;      /* on its way to the client */
    struct sf_frame_reader reader; /* cuts messages out of the stream */
    ProtobufCMessage *request;     /* unary handler: its message, in the arena */
    size_t request_bytes;          /* its packed size */
    size_t counted_in;             /* what this call counts in conn->in_bytes */
    size_t unconsumed;             /* received, not yet given back to the stream's window */
    int64_t started_ms;            /* monotonic */
    struct rpc_metadata *metadata; /* in the arena */
    size_t header_bytes;           /* received, for the limit */
    struct sf_view path;           /* in the arena while the route is unknown */
    int64_t timeout_ms;            /* 0 = none */
    enum rpc_encoding encoding;    /* of the request's messages */
    unsigned post : 1;             /* :method is POST */
    unsigned grpc : 1;             /* content-type is gRPC's */
    unsigned bad_timeout : 1;      /* grpc-timeout is malformed */
    unsigned bad_metadata : 1;     /* a -bin value is malformed */
    unsigned early : 1;            /* of a service that is not served yet */
    unsigned begun : 1;            /* the request's headers are complete */
    unsigned opened : 1;           /* stream handler: open was called */
    unsigned running : 1;          /* in conn->running_count */
    unsigned dispatched : 1;       /* unary handler: it runs */
    unsigned half_closed : 1;      /* the client sends no more */
    unsigned half_close_told : 1;  /* the handler knows */
    unsigned ended : 1;            /* `end` goes out after `out` */
    unsigned headers_sent : 1;     /* the response was submitted */
    unsigned trailers_sent : 1;    /* the status was submitted */
    unsigned waiting : 1;          /* in conn->waiting */
    unsigned woken : 1;            /* in conn->woken */
};

enum rpc_drain { RPC_DRAIN_NONE, RPC_DRAIN_NOTICE, RPC_DRAIN_FINAL };

struct rpc_conn {
    struct sf_h2 h2; /* first */

    /* immutable */
    struct rpc_worker *worker;    /* whose loop it is on */
    struct sf_rpc_server *server; /* one reference */

    /* atomic */
    atomic_uint refs;        /* the socket and one per call */
    atomic_size_t out_bytes; /* counted bytes that wait for the client */

    /* loop */
    struct rpc_conn *prev, *next; /* in worker->conns */
    struct rpc_call *calls;       /* with a stream */
    unsigned call_count;          /* of them */
    unsigned running_count; /* unary calls handed to their handler, until their stream is gone */
    size_t in_bytes;        /* counted bytes of requests */
    struct rpc_call *waiting, *waiting_tail; /* calls held back by the budgets, first come first */
    struct rpc_call *woken;                  /* calls whose output got room */
    struct sf_timer timer;                   /* next of its time limits */
    int64_t opened_ms;                       /* monotonic */
    int64_t idle_since_ms;                   /* when the last call ended */
    int64_t ping_sent_ms;                    /* 0: no keepalive ping is out */
    int64_t drain_since_ms;                  /* monotonic */
    enum rpc_drain drain;                    /* how far its drain is */
    bool had_request;                        /* a call ever came */
    bool terminated;                         /* a GOAWAY with an error was submitted */
    int64_t glitch_tokens;                   /* what its peer may still do amiss */
    int64_t glitch_ms;                       /* when tokens were added last */
};

struct rpc_worker {
    struct sf_h2_ctx h2;          /* first */
    struct sf_rpc_server *server; /* whose */
    struct sf_loop *loop;         /* its reactor */
    atomic_uint conn_count;       /* handed over or open */

    /* loop */
    struct rpc_conn *conns;         /* open ones */
    struct rpc_call *pool;          /* calls to use again */
    unsigned pool_count;            /* of them */
    unsigned call_count;            /* in use */
    struct sf_arena *message_arena; /* the stream message being delivered */
    struct sf_buf inflated;         /* its bytes when it came compressed */
    struct sf_task drain_task;      /* begins the drain */
    struct sf_timer drain_limit;    /* ends it */
    bool draining;                  /* new connections are closed */
    bool closed;                    /* its handles are closing or closed */
};

/* Counters of one method, made on first use. */
struct rpc_method_metrics {
    _Atomic(struct sf_metric *) handled[SF_GRPC_UNAUTHENTICATED + 1]; /* by status */
    _Atomic(struct sf_metric *) duration;                             /* histogram */
};

/* Served methods with their counters. */
struct rpc_routes {
    struct sf_rpc_registry registry;    /* by path */
    size_t first;                       /* index of the first route */
    struct rpc_method_metrics *metrics; /* owned; by route index from `first` on */
};

struct sf_rpc_server {
    /* immutable after the start */
    struct rpc_routes routes;                 /* of the start's services, health and reflection */
    struct sf_rpc_expected expected;          /* services that come later; count 0 = none */
    const struct sf_rpc_auth *auth;           /* NULL: plaintext, everybody is `loopback` */
    struct sf_rpc_auth auth_copy;             /* what `auth` points at */
    struct sf_identity loopback;              /* of all calls without `auth` */
    struct sf_health *health;                 /* owned */
    struct sf_reflection *reflection;         /* owned */
    nghttp2_session_callbacks *callbacks;     /* of all sessions */
    nghttp2_option *option;                   /* of all sessions */
    int64_t idle_timeout_ms;                  /* limits as in force, never 0, down to the streams */
    int64_t first_request_timeout_ms;         /* of a new connection */
    int64_t keepalive_ms;                     /* silence before a ping */
    uint32_t max_message_bytes;               /* limits as in force, never 0 */
    uint32_t max_connections;                 /* over all workers */
    uint32_t max_streams_per_conn;            /* open at once */
    uint16_t port;                            /* bound */
    unsigned worker_count;                    /* of them */
    struct rpc_worker *workers;               /* owned; one a reactor */
    struct sf_metric_family *handled_family;  /* NULL: no metrics */
    struct sf_metric_family *duration_family; /* histograms by method */
    struct sf_metric_family *closed_family;   /* connections by reason */
    struct sf_metric *connections;            /* open ones */
    struct rpc_method_metrics unknown_metrics; /* of all methods without a route */

    /* atomic */
    _Atomic(struct rpc_routes *) added; /* owned: of the expected services; NULL before */
    atomic_uint refs;                   /* owner, connections */
    atomic_size_t bytes;                /* counted bytes over all connections */
    atomic_uint conn_count;             /* over all workers */
    atomic_uint workers_open;           /* workers whose handles are open */

    /* acceptor's loop (workers[0]) */
    int listen_fd;                 /* listening socket */
    uv_poll_t listen_poll;         /* tells of new connections */
    struct sf_timer accept_retry;  /* out of descriptors: try again later */
    struct sf_task close_listener; /* at the stop */

    /* owner's thread */
    int64_t drain_limit_ms;  /* of the stop */
    struct sf_waiter waiter; /* woken by the workers, at start and stop */
};

/* ---- server.c ---- */
void rpc_server_acquire(struct sf_rpc_server *server);
void rpc_server_release(struct sf_rpc_server *server);

/* The worker's connection is gone. On the loop. */
void rpc_worker_conn_closed(struct rpc_worker *worker);

/* The route of `path`, NULL = none; *out_early: it is of a service that comes later, and not one
 * that this build never serves. Any thread. */
const struct sf_rpc_route *rpc_server_route(struct sf_rpc_server *server, struct sf_view path,
                                            bool *out_early);

/* Counts a finished call. On the loop. */
void rpc_server_count_call(struct sf_rpc_server *server, const struct sf_rpc_route *route,
                           int grpc_status, int64_t duration_ms);

/* Counts a closed connection. On the loop. */
void rpc_server_count_closed(struct sf_rpc_server *server, const char *reason);

/* ---- server_conn.c ---- */
/* Takes over a connected socket. On the worker's loop. */
void rpc_conn_open(struct rpc_worker *worker, int fd);

/* Fills the callbacks shared by all sessions. */
void rpc_conn_set_callbacks(nghttp2_session_callbacks *callbacks);

void rpc_conn_drain(struct rpc_conn *conn);
void rpc_conn_release(struct rpc_conn *conn);

/* True while buffers of the connection and the process are below their marks. */
bool rpc_conn_has_room(const struct rpc_conn *conn);

/* True when a budget is used up: what comes is refused. */
bool rpc_conn_is_over(const struct rpc_conn *conn);

/* Queues a call until there is room (rpc_call_go_on is called then). */
void rpc_conn_wait(struct rpc_conn *conn, struct rpc_call *call);

/* Queues a call for rpc_call_woken after the present flush. */
void rpc_conn_wake(struct rpc_conn *conn, struct rpc_call *call);

/* ---- server_call.c ---- */
struct rpc_call *rpc_call_new(struct rpc_conn *conn, int32_t stream_id);
void rpc_call_free(struct rpc_call *call);

/* One request header; false: too many, drop the connection. */
bool rpc_call_header(struct rpc_call *call, struct sf_view name, struct sf_view value);

/* The request's headers are complete. */
void rpc_call_begin(struct rpc_call *call);
void rpc_call_data(struct rpc_call *call, struct sf_view bytes);
void rpc_call_half_close(struct rpc_call *call);

/* There is room: goes on with what was held back. True when the call needs no more of it. */
bool rpc_call_go_on(struct rpc_call *call);

/* Output got room: tells the handler, gives back window. */
void rpc_call_woken(struct rpc_call *call);

/* Ends the call in the handler's place. */
void rpc_call_overrule(struct rpc_call *call, const struct sf_diag *diag);

/* The handler has answered: gives up the memory of a large request. */
void rpc_call_forget_request(struct rpc_call *call);

/* The stream is gone; `clean`: the client has the whole answer. */
void rpc_call_detach(struct rpc_call *call, bool clean);

void rpc_call_release(struct rpc_call *call);

/* ---- server_out.c ---- */
extern const struct sf_call_ops rpc_call_ops;

/* Sends what the handler gave since, and the end if there is one. On the loop. */
void rpc_call_push(struct rpc_call *call);

/* Sets the end from `diag` (NULL = OK). */
void rpc_end_set(struct rpc_end *end, const struct sf_diag *diag);

/* Makes the response known to the session after `out` or `ended` changed. On the loop. */
void rpc_call_output(struct rpc_call *call);

/* Frees what waits to be sent. */
void rpc_call_drop_output(struct rpc_call *call, struct rpc_out_queue *queue);

/* Answers with a bare HTTP status. */
void rpc_call_http_error(struct rpc_call *call, const char *status);

void rpc_call_take_data(struct rpc_call *call, uint8_t *out, size_t len);

#endif
