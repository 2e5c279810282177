/*
 * The gRPC channel: one address, one connection for new calls, and those that still finish calls
 * after a GOAWAY.
 *
 *   idle --call--> connecting --ok--> ready --GOAWAY/lost--> idle
 *                     |  fails: all that wait fail; calls fail at once until retry_at (jittered,
 *                     v  growing), then connecting again with the next call
 *
 * A unary call that the server says it never looked at (REFUSED_STREAM, or above the last id of a
 * GOAWAY) is placed again by itself; all else is the caller's to repeat.
 */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "exec/reactor.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "rpc/client_priv.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"
#include "searchfabric/v1/allocator_operations_private.pb-c.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"
#include "searchfabric/v1/commit_coordinator.pb-c.h"
#include "searchfabric/v1/operations_private.pb-c.h"
#include "searchfabric/v1/search_fabric.pb-c.h"

#define CONNECT_MS       5000
#define KEEPALIVE_MS     30000
#define BACKOFF_FIRST_MS 50
#define BACKOFF_LAST_MS  10000

static const uint8_t keepalive_ping[8] = {'s', 'f', '-', 'c', 'a', 'l', 'l', 's'};

static const ProtobufCServiceDescriptor *const contract_services[] = {
    &searchfabric__v1__catalog_control_service__descriptor,
    &searchfabric__v1__id_allocator_service__descriptor,
    &searchfabric__v1__ingest_gateway_service__descriptor,
    &searchfabric__v1__catalog_control_private_service__descriptor,
    &searchfabric__v1__allocator_operations_service__descriptor,
    &searchfabric__v1__catalog_operations_service__descriptor,
    &searchfabric__v1__commit_coordinator_service__descriptor,
    &searchfabric__v1__visibility_barrier_service__descriptor,
    &searchfabric__v1__manifest_publisher_service__descriptor,
    &searchfabric__v1__modality_writer_service__descriptor,
    &searchfabric__v1__operations_service__descriptor,
    &grpc__health__v1__health__descriptor,
    &grpc__reflection__v1__server_reflection__descriptor,
};

static struct grpc_conn *of_h2(struct sf_h2 *h2)
{
    return SF_CONTAINER_OF(h2, struct grpc_conn, h2);
}

/* ---- references ---- */

void grpc_channel_acquire(struct grpc_channel *channel)
{
    atomic_fetch_add_explicit(&channel->refs, 1, memory_order_relaxed);
}

void grpc_channel_release(struct grpc_channel *channel)
{
    if (atomic_fetch_sub(&channel->refs, 1) != 1)
        return;
    sf_map_destroy(channel->methods, NULL);
    nghttp2_session_callbacks_del(channel->callbacks);
    nghttp2_option_del(channel->option);
    free(channel->authority);
    free(channel->ctx);
    free(channel);
}

static void conn_release(struct grpc_conn *conn)
{
    grpc_channel_release(conn->channel);
    free(conn);
}

/* ---- a connection's end ---- */

static void fail(struct grpc_call *call, enum sf_err err, const char *what, const char *detail)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, err, "%s: %s", what, detail);
    grpc_call_finish(call, &diag);
}

static void fail_waiting(struct grpc_channel *channel, enum sf_err err, const char *what)
{
    while (channel->waiting != NULL) {
        struct grpc_call *call = channel->waiting;
        grpc_call_unlink(&channel->waiting, call);
        fail(call, err, what, channel->last_error);
    }
}

static void back_off(struct grpc_channel *channel, const char *why)
{
    int64_t delay_ms = BACKOFF_FIRST_MS;

    for (unsigned i = 0; i < channel->failures && delay_ms < BACKOFF_LAST_MS; i++)
        delay_ms = delay_ms * 8 / 5;
    if (delay_ms > BACKOFF_LAST_MS)
        delay_ms = BACKOFF_LAST_MS;
    delay_ms =
        delay_ms * 4 / 5 + (int64_t)sf_rng_below(&channel->rng, (uint64_t)(delay_ms * 2 / 5));
    channel->failures++;
    channel->retry_at_ms = channel->loop->now_ms + delay_ms;
    (void)snprintf(channel->last_error, sizeof(channel->last_error), "%s", why);
}

static void on_closed(struct sf_h2 *h2, const char *reason)
{
    struct grpc_conn *conn = of_h2(h2);
    struct grpc_channel *channel = conn->channel;
    bool was_current = channel->conn == conn;

    if (was_current)
        channel->conn = NULL;
    sf_timer_stop(&conn->timer);
    if (!conn->connected) {
        back_off(channel, conn->error != 0 ? uv_strerror(conn->error) : reason);
        if (was_current)
            fail_waiting(channel, SF_BACKEND_UNAVAILABLE, channel->authority);
    }
    while (conn->calls != NULL) {
        struct grpc_call *call = conn->calls;
        grpc_call_unlink(&conn->calls, call);
        call->stream_id = 0;
        fail(call, SF_BACKEND_UNAVAILABLE, "the connection was lost, the outcome is unknown",
             reason);
        grpc_call_release(call);
    }
    if (h2->session != NULL)
        nghttp2_session_del(h2->session);
    if (conn->next != NULL)
        conn->next->prev = conn->prev;
    if (conn->prev != NULL)
        conn->prev->next = conn->next;
    else
        channel->conns = conn->next;
    conn_release(conn);
}

static void on_flushed(struct sf_h2 *h2)
{
    struct grpc_conn *conn = of_h2(h2);

    /* No new calls come here any more: away once the last one has ended. */
    if (conn->connected && conn->channel->conn != conn && conn->calls == NULL &&
        !nghttp2_session_want_write(h2->session))
        sf_h2_close(h2, "drained");
}

static void on_take_data(struct sf_h2 *h2, int32_t stream_id, uint8_t *out, size_t len)
{
    grpc_call_take_data(nghttp2_session_get_stream_user_data(h2->session, stream_id), out, len);
}

static const struct sf_h2_ops conn_ops = {
    .flushed = on_flushed,
    .closed = on_closed,
    .take_data = on_take_data,
};

/* ---- nghttp2's callbacks ---- */

static struct grpc_call *call_of(nghttp2_session *session, int32_t stream_id)
{
    return nghttp2_session_get_stream_user_data(session, stream_id);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t namelen, const uint8_t *value, size_t valuelen, uint8_t flags,
                     void *user_data)
{
    struct grpc_call *call = call_of(session, frame->hd.stream_id);

    (void)flags, (void)user_data;
    if (call != NULL)
        grpc_call_header(call, sf_view_bytes(name, namelen), sf_view_bytes(value, valuelen));
    return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
                         const uint8_t *data, size_t len, void *user_data)
{
    struct grpc_call *call = call_of(session, stream_id);

    (void)flags, (void)user_data;
    (void)nghttp2_session_consume_connection(session, len);
    if (call != NULL)
        grpc_call_data(call, sf_view_bytes(data, len));
    return 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct grpc_conn *conn = of_h2(user_data);
    struct grpc_channel *channel = conn->channel;
    struct grpc_call *call;

    switch (frame->hd.type) {
    case NGHTTP2_SETTINGS:
        channel->failures = 0;
        break;
    case NGHTTP2_GOAWAY:
        if (channel->conn == conn)
            channel->conn = NULL;
        break;
    case NGHTTP2_PING:
        conn->ping_sent_ms = 0;
        break;
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
        call = call_of(session, frame->hd.stream_id);
        if (call != NULL && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) &&
            nghttp2_session_get_stream_local_close(session, frame->hd.stream_id) == 0)
            (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                            NGHTTP2_NO_ERROR);
        break;
    default:
        break;
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code,
                           void *user_data)
{
    struct grpc_call *call = call_of(session, stream_id);

    (void)user_data;
    if (call != NULL)
        grpc_call_stream_closed(call, error_code);
    return 0;
}

static void set_callbacks(struct grpc_channel *channel)
{
    nghttp2_session_callbacks *callbacks;

    SF_ASSERT(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, sf_h2_send_data);
    channel->callbacks = callbacks;
    SF_ASSERT(nghttp2_option_new(&channel->option) == 0);
    nghttp2_option_set_no_auto_window_update(channel->option, 1);
    nghttp2_option_set_no_closed_streams(channel->option, 1);
}

/* ---- connecting ---- */

static void on_timer(struct sf_timer *timer)
{
    struct grpc_conn *conn = SF_CONTAINER_OF(timer, struct grpc_conn, timer);
    int64_t now_ms = timer->loop->now_ms;

    if (!conn->connected) {
        conn->error = UV_ETIMEDOUT;
        sf_h2_close(&conn->h2, "connect_timeout");
        return;
    }
    if (conn->ping_sent_ms != 0 && conn->h2.last_recv_ms > conn->ping_sent_ms)
        conn->ping_sent_ms = 0;
    if (conn->ping_sent_ms != 0) {
        sf_h2_close(&conn->h2, "keepalive_timeout");
        return;
    }
    int64_t quiet_ms = now_ms - conn->h2.last_recv_ms;
    if (conn->calls != NULL && quiet_ms >= KEEPALIVE_MS) {
        conn->ping_sent_ms = now_ms;
        (void)nghttp2_submit_ping(conn->h2.session, NGHTTP2_FLAG_NONE, keepalive_ping);
        sf_h2_mark(&conn->h2);
        sf_timer_start(timer, SF_LIMIT_RPC_PING_ANSWER_MS);
        return;
    }
    sf_timer_start(timer, KEEPALIVE_MS);
}

static void on_connected(uv_connect_t *req, int status)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, SF_LIMIT_RPC_STREAM_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, SF_LIMIT_RPC_METADATA_BYTES},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    struct grpc_conn *conn = req->data;
    struct grpc_channel *channel = conn->channel;

    sf_reactor_turn(channel->loop);
    if (conn->h2.closing)
        return;
    if (status < 0) {
        conn->error = status;
        sf_h2_close(&conn->h2, "connect_failed");
        return;
    }
    conn->connected = true;
    SF_ASSERT(nghttp2_session_client_new2(&conn->h2.session, channel->callbacks, &conn->h2,
                                          channel->option) == 0);
    (void)nghttp2_submit_settings(conn->h2.session, NGHTTP2_FLAG_NONE, settings,
                                  SF_ARRAY_LEN(settings));
    (void)nghttp2_session_set_local_window_size(conn->h2.session, NGHTTP2_FLAG_NONE, 0,
                                                SF_LIMIT_RPC_CONN_WINDOW_BYTES);
    conn->h2.last_recv_ms = channel->loop->now_ms;
    sf_timer_start(&conn->timer, KEEPALIVE_MS);
    sf_h2_start(&conn->h2);
    while (channel->waiting != NULL) {
        struct grpc_call *call = channel->waiting;
        grpc_call_unlink(&channel->waiting, call);
        grpc_channel_place(channel, call);
    }
}

static void on_ctx_closed(struct sf_h2_ctx *ctx)
{
    grpc_channel_release(ctx->owner);
}

static void connect_now(struct grpc_channel *channel)
{
    struct grpc_conn *conn = sf_calloc(1, sizeof(*conn));

    if (channel->ctx == NULL) {
        channel->ctx = sf_calloc(1, sizeof(*channel->ctx));
        channel->ctx->owner = channel;
        sf_h2_ctx_init(channel->ctx, channel->loop, on_ctx_closed);
        grpc_channel_acquire(channel);
    }
    sf_h2_init(&conn->h2, channel->ctx, &conn_ops);
    conn->channel = channel;
    grpc_channel_acquire(channel);
    conn->opened_ms = channel->loop->now_ms;
    conn->next = channel->conns;
    if (conn->next != NULL)
        conn->next->prev = conn;
    channel->conns = channel->conn = conn;
    sf_timer_init(&conn->timer, channel->loop, on_timer);
    sf_timer_start(&conn->timer, CONNECT_MS);
    conn->connect.data = conn;
    int rc = uv_tcp_connect(&conn->connect, &conn->h2.tcp,
                            (const struct sockaddr *)(const void *)&channel->addr, on_connected);
    if (rc != 0) {
        conn->error = rc;
        sf_h2_close(&conn->h2, "connect_failed");
    }
}

void grpc_channel_place(struct grpc_channel *channel, struct grpc_call *call)
{
    if (channel->closed) {
        fail(call, SF_ERR_STOPPED, channel->authority, "the channel was closed");
        return;
    }
    if (channel->conn != NULL && channel->conn->h2.closing)
        channel->conn = NULL;
    if (channel->conn != NULL && channel->conn->connected) {
        if (grpc_call_submit(call, channel->conn))
            return;
        sf_h2_mark(&channel->conn->h2); /* out of stream ids: this one finishes its calls */
        channel->conn = NULL;
    }
    if (channel->conn == NULL) {
        if (channel->failures > 0 && channel->loop->now_ms < channel->retry_at_ms) {
            fail(call, SF_BACKEND_UNAVAILABLE, channel->authority, channel->last_error);
            return;
        }
        connect_now(channel);
    }
    grpc_call_link(&channel->waiting, call);
}

/* ---- the channel ---- */

static void on_close(struct sf_task *task)
{
    struct grpc_channel *channel = SF_CONTAINER_OF(task, struct grpc_channel, close);

    channel->closed = true;
    channel->conn = NULL;
    (void)snprintf(channel->last_error, sizeof(channel->last_error), "the channel was closed");
    fail_waiting(channel, SF_ERR_STOPPED, channel->authority);
    while (channel->resting != NULL)
        fail(channel->resting, SF_ERR_STOPPED, channel->authority, channel->last_error);
    for (struct grpc_conn *conn = channel->conns; conn != NULL; conn = conn->next) {
        for (struct grpc_call *call = conn->calls; call != NULL; call = call->next)
            fail(call, SF_ERR_STOPPED, channel->authority, "the channel was closed");
        sf_h2_close(&conn->h2, "channel_closed");
    }
    if (channel->ctx != NULL)
        sf_h2_ctx_close(channel->ctx);
    grpc_channel_release(channel);
}

static void channel_destroy(struct sf_channel *base)
{
    struct grpc_channel *channel = SF_CONTAINER_OF(base, struct grpc_channel, base);

    channel->close.run = on_close;
    sf_loop_post(channel->loop, &channel->close);
}

static const struct sf_channel_vtable channel_vtable = {
    .unary = grpc_channel_unary,
    .stream = grpc_channel_stream,
    .destroy = channel_destroy,
};

void sf_grpc_channel_add_service(struct sf_channel *base, const ProtobufCServiceDescriptor *service)
{
    struct grpc_channel *channel = SF_CONTAINER_OF(base, struct grpc_channel, base);

    SF_ASSERT(base->vtable == &channel_vtable);
    for (unsigned i = 0; i < service->n_methods; i++) {
        char path[256];
        int n = snprintf(path, sizeof(path), "/%s/%s", service->name, service->methods[i].name);
        SF_ASSERT(n > 0 && (size_t)n < sizeof(path));
        (void)sf_map_put(channel->methods, sf_view_str(path),
                         (void *)(uintptr_t)&service->methods[i]);
    }
}

static enum sf_err resolve(const char *host, uint16_t port, struct sf_diag *diag,
                           struct sockaddr_storage *out_addr)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    char service[8];

    (void)snprintf(service, sizeof(service), "%u", port);
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0)
        return sf_diag_set(diag, SF_ERR_CONFIG, "address %s: %s", host, gai_strerror(rc));
    /* IPv4 first: servers listen on 127.0.0.1 by default, and "localhost" names both. */
    const struct addrinfo *best = list;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next)
        if (a->ai_family == AF_INET && best->ai_family != AF_INET)
            best = a;
    memcpy(out_addr, best->ai_addr, best->ai_addrlen);
    freeaddrinfo(list);
    return SF_OK;
}

enum sf_err sf_grpc_channel_new(struct sf_loop *loop, const char *host, uint16_t port,
                                struct sf_diag *diag, struct sf_channel **out_channel)
{
    struct sockaddr_storage addr = {0};
    enum sf_err err = resolve(host, port, diag, &addr);
    uint64_t seed;

    *out_channel = NULL;
    if (err != SF_OK)
        return err;
    struct grpc_channel *channel = sf_calloc(1, sizeof(*channel));
    channel->base.vtable = &channel_vtable;
    channel->loop = loop;
    channel->addr = addr;
    SF_ASSERT(asprintf(&channel->authority, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host,
                       port) > 0);
    atomic_init(&channel->refs, 1);
    sf_random_bytes(&seed, sizeof(seed));
    sf_rng_init(&channel->rng, seed);
    channel->methods = sf_map_new();
    for (size_t i = 0; i < SF_ARRAY_LEN(contract_services); i++)
        sf_grpc_channel_add_service(&channel->base, contract_services[i]);
    set_callbacks(channel);
    *out_channel = &channel->base;
    return SF_OK;
}
