/*
 * gRPC server over nghttp2 and libuv: one acceptor hands connections to the least-loaded reactor.
 * Serves the given services plus health v1 and reflection v1 and v1alpha. Limits in base/limits.h;
 * pitfalls in docs/developers/rpc.md.
 */
#ifndef SF_RPC_SERVER_H
#define SF_RPC_SERVER_H

#include "base/metrics.h"
#include "exec/reactor.h"
#include "rpc/call.h"

struct sf_rpc_server;

/* Decides who calls and whether they may: the seam for TLS identity and policy. */
struct sf_rpc_auth {
    /* Fills the identity for a new call from its connection and metadata; SF_UNAUTHENTICATED or
     * SF_FORBIDDEN refuse. */
    enum sf_err (*authenticate)(void *self, struct sf_call *call, struct sf_identity *out_identity,
                                struct sf_diag *diag);
    void *self;
};

/* Services that come later (sf_rpc_server_add). Until then a call to one is refused as said here,
 * and health says NOT_SERVING of them and of the whole. */
struct sf_rpc_expected {
    const char *const *services; /* full names; static */
    size_t count;                /* of them */
    /* Fills `diag` with why a call to `path` ("/service/Method") is not served yet. On a loop. */
    void (*refuse)(void *self, struct sf_view path, struct sf_diag *diag);
    void *self; /* passed to `refuse`; outlives the server */
};

struct sf_rpc_server_options {
    const char *host; /* loopback address */
    uint16_t port;    /* 0 = any free port */
    struct sf_reactors *reactors;
    const struct sf_service *const *services; /* array of pointers, copied */
    size_t service_count;
    const struct sf_rpc_expected *expected; /* copied; NULL = none come later */
    const struct sf_rpc_auth *auth;         /* NULL = the fixed identity "loopback" */
    struct sf_metrics *metrics;             /* NULL = none */
    int64_t idle_timeout_ms;                /* 0 = default 5 min */
    int64_t first_request_timeout_ms;       /* 0 = default 10 s */
    int64_t keepalive_ms;                   /* 0 = default 30 s ping, 10 s for its answer */

    /* Limits; 0 = the one of base/limits.h, which a value can only lower. */
    uint32_t max_message_bytes;    /* one message of a client, packed and inflated */
    uint32_t max_connections;      /* open at once; what comes above is closed unanswered */
    uint32_t max_streams_per_conn; /* calls of one connection at once */
};

/* Listens and serves. Blocks for the loops; not on a reactor. Errors: SF_ERR_CONFIG (host is no
 * loopback address), SF_ERR_IO. */
SF_MUST_USE enum sf_err sf_rpc_server_start(const struct sf_rpc_server_options *options,
                                            struct sf_diag *diag,
                                            struct sf_rpc_server **out_server);

/* Serves the expected services from now on: exactly those, once. They outlive the server; the array
 * is copied. Health says SERVING of each; the whole stays as it is. Any thread. */
void sf_rpc_server_add(struct sf_rpc_server *server, const struct sf_service *const *services,
                       size_t count);

/* The port it listens on. */
uint16_t sf_rpc_server_port(const struct sf_rpc_server *server);

/* What health answers for `service` ("" = whole server). Any thread. */
void sf_rpc_server_set_serving(struct sf_rpc_server *server, const char *service, bool serving);

/* Graceful drain: GOAWAY, open calls finish, at most `limit_ms`; then closes and frees. Blocks; not
 * on a reactor. */
void sf_rpc_server_stop(struct sf_rpc_server *server, int64_t limit_ms);

#endif
