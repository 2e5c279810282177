/*
 * One connection of the server: nghttp2's callbacks, timers, budgets, drain.
 *
 * Budgets. in_bytes counts what requests hold, out_bytes what waits for the client. Above half the
 * connection's (or three quarters of the process's) budget, calls queue in `waiting`: their windows
 * stay shut and complete unary requests are not run. The first of the queue is exempt as long as
 * the client reads its answers, so that requests alone can never lock each other out. At three
 * quarters new calls are refused (REFUSED_STREAM, safe to retry), at the whole budget calls that
 * receive more are ended with RESOURCE_EXHAUSTED.
 *
 * One timer serves all that a connection waits for: the first request, idleness, the keepalive ping
 * and its answer, slow requests, the drain notice, and a look at the process's budget.
 *
 * Drain: notice (GOAWAY with the highest id) and a PING; when that is answered, or after a second,
 * the real GOAWAY; closed when no call is left.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/server_priv.h"

#define CONN_SOFT_BYTES   (SF_LIMIT_RPC_CONN_BUDGET_BYTES / 2)
#define CONN_REFUSE_BYTES (SF_LIMIT_RPC_CONN_BUDGET_BYTES / 4 * 3)
#define PROC_SOFT_BYTES   (SF_LIMIT_RPC_PROC_BUDGET_BYTES / 4 * 3)
#define BUDGET_LOOK_MS    50

static const uint8_t keepalive_ping[8] = {'s', 'f', '-', 'a', 'l', 'i', 'v', 'e'};
static const uint8_t drain_ping[8] = {'s', 'f', '-', 'd', 'r', 'a', 'i', 'n'};

static struct rpc_conn *of_h2(struct sf_h2 *h2)
{
    return SF_CONTAINER_OF(h2, struct rpc_conn, h2);
}

static int64_t now_of(const struct rpc_conn *conn)
{
    return conn->worker->loop->now_ms;
}

/* ---- budgets ---- */

static size_t conn_bytes(const struct rpc_conn *conn)
{
    return conn->in_bytes + atomic_load_explicit(&conn->out_bytes, memory_order_relaxed);
}

static size_t proc_bytes(const struct rpc_conn *conn)
{
    return atomic_load_explicit(&conn->server->bytes, memory_order_relaxed);
}

/* Also asked by handlers' threads, which may see in_bytes late: out_bytes alone decides for them.
 */
bool rpc_conn_has_room(const struct rpc_conn *conn)
{
    size_t bytes = atomic_load_explicit(&conn->out_bytes, memory_order_relaxed);

    if (sf_loop_is_current(conn->worker->loop))
        bytes = conn_bytes(conn);
    return bytes <= CONN_SOFT_BYTES && proc_bytes(conn) <= PROC_SOFT_BYTES;
}

bool rpc_conn_is_over(const struct rpc_conn *conn)
{
    return conn_bytes(conn) > SF_LIMIT_RPC_CONN_BUDGET_BYTES ||
           proc_bytes(conn) > SF_LIMIT_RPC_PROC_BUDGET_BYTES;
}

static bool refuses_calls(const struct rpc_conn *conn)
{
    return conn_bytes(conn) > CONN_REFUSE_BYTES || proc_bytes(conn) > PROC_SOFT_BYTES ||
           conn->worker->call_count >= SF_LIMIT_RPC_CALLS / conn->server->worker_count;
}

static void timer_set(struct rpc_conn *conn);

void rpc_conn_wait(struct rpc_conn *conn, struct rpc_call *call)
{
    if (call->waiting)
        return;
    call->waiting = 1;
    atomic_fetch_add(&call->refs, 1);
    call->next_waiting = NULL;
    if (conn->waiting == NULL)
        conn->waiting = call;
    else
        conn->waiting_tail->next_waiting = call;
    conn->waiting_tail = call;
}

/* Lets waiting calls go on while there is room; the first may go on without. */
static void serve_waiting(struct rpc_conn *conn)
{
    while (conn->waiting != NULL) {
        struct rpc_call *call = conn->waiting;
        bool room = rpc_conn_has_room(conn);
        bool others = conn->running_count > 0 || atomic_load(&conn->out_bytes) > 0;
        if (!room && others && call->stream_id != 0)
            return;
        bool satisfied = rpc_call_go_on(call);
        if (!satisfied && !room)
            return;
        conn->waiting = call->next_waiting;
        call->waiting = 0;
        rpc_call_release(call);
    }
}

void rpc_conn_wake(struct rpc_conn *conn, struct rpc_call *call)
{
    if (call->woken || (call->unconsumed == 0 && !atomic_load(&call->wants_writable)))
        return;
    call->woken = 1;
    atomic_fetch_add(&call->refs, 1);
    call->next_woken = conn->woken;
    conn->woken = call;
}

static void serve_woken(struct rpc_conn *conn)
{
    struct rpc_call *call = conn->woken;

    conn->woken = NULL;
    while (call != NULL) {
        struct rpc_call *next = call->next_woken;
        call->woken = 0;
        if (call->stream_id != 0)
            rpc_call_woken(call);
        rpc_call_release(call);
        call = next;
    }
}

/* ---- closing and draining ---- */

void rpc_conn_release(struct rpc_conn *conn)
{
    if (atomic_fetch_sub(&conn->refs, 1) != 1)
        return;
    rpc_server_release(conn->server);
    free(conn);
}

static void on_closed(struct sf_h2 *h2, const char *reason)
{
    struct rpc_conn *conn = of_h2(h2);
    struct rpc_worker *worker = conn->worker;

    sf_timer_stop(&conn->timer);
    while (conn->calls != NULL)
        rpc_call_detach(conn->calls, false);
    while (conn->waiting != NULL) {
        struct rpc_call *call = conn->waiting;
        conn->waiting = call->next_waiting;
        rpc_call_release(call);
    }
    serve_woken(conn);
    nghttp2_session_del(h2->session);
    h2->session = NULL;
    if (conn->next != NULL)
        conn->next->prev = conn->prev;
    if (conn->prev != NULL)
        conn->prev->next = conn->next;
    else
        worker->conns = conn->next;
    rpc_server_count_closed(conn->server, reason);
    rpc_conn_release(conn);
    rpc_worker_conn_closed(worker);
}

static void drain_final(struct rpc_conn *conn)
{
    nghttp2_session *session = conn->h2.session;

    if (conn->drain == RPC_DRAIN_FINAL)
        return;
    conn->drain = RPC_DRAIN_FINAL;
    (void)nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(session), NGHTTP2_NO_ERROR,
                                NULL, 0);
    sf_h2_mark(&conn->h2);
}

void rpc_conn_drain(struct rpc_conn *conn)
{
    if (conn->drain != RPC_DRAIN_NONE || conn->h2.closing)
        return;
    conn->drain = RPC_DRAIN_NOTICE;
    conn->drain_since_ms = now_of(conn);
    (void)nghttp2_submit_shutdown_notice(conn->h2.session);
    (void)nghttp2_submit_ping(conn->h2.session, NGHTTP2_FLAG_NONE, drain_ping);
    sf_h2_mark(&conn->h2);
    timer_set(conn);
}

static void on_flushed(struct sf_h2 *h2)
{
    struct rpc_conn *conn = of_h2(h2);

    serve_woken(conn);
    serve_waiting(conn);
    if (conn->waiting != NULL)
        timer_set(conn);
    if (conn->drain == RPC_DRAIN_FINAL && conn->calls == NULL && h2->stash == NULL &&
        !nghttp2_session_want_write(h2->session))
        sf_h2_close(h2, "drained");
}

static void on_received(struct sf_h2 *h2)
{
    serve_waiting(of_h2(h2));
}

static void on_take_data(struct sf_h2 *h2, int32_t stream_id, uint8_t *out, size_t len)
{
    rpc_call_take_data(nghttp2_session_get_stream_user_data(h2->session, stream_id), out, len);
}

static const struct sf_h2_ops conn_ops = {
    .received = on_received,
    .flushed = on_flushed,
    .closed = on_closed,
    .take_data = on_take_data,
};

/* ---- timers ---- */

/* Ends the connection with a GOAWAY that says why. */
static void terminate(struct rpc_conn *conn, uint32_t code, const char *reason)
{
    if (conn->terminated)
        return;
    conn->terminated = true;
    SF_LOG(WARN, "rpc_connection_terminated", SF_KV_STR("reason", reason));
    rpc_server_count_closed(conn->server, reason);
    (void)nghttp2_session_terminate_session(conn->h2.session, code);
    sf_h2_mark(&conn->h2);
}

/* Refuses unary requests that take too long to arrive; when the next one would. */
static int64_t refuse_slow_requests(struct rpc_conn *conn, int64_t now_ms)
{
    int64_t next_ms = INT64_MAX;
    struct sf_diag diag;

    for (struct rpc_call *call = conn->calls; call != NULL; call = call->next) {
        if (call->half_closed || call->opened || call->ended)
            continue;
        int64_t due_ms = call->started_ms + SF_LIMIT_RPC_REQUEST_MS;
        if (due_ms > now_ms) {
            next_ms = due_ms < next_ms ? due_ms : next_ms;
            continue;
        }
        sf_diag_init(&diag);
        (void)sf_diag_set(&diag, SF_DEADLINE_EXCEEDED, "the request took too long to arrive");
        rpc_call_overrule(call, &diag);
    }
    return next_ms;
}

static int64_t min_ms(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* When something is due next; what is due already gives a time not after now. */
static int64_t next_due(const struct rpc_conn *conn)
{
    const struct sf_rpc_server *server = conn->server;
    int64_t due_ms =
        conn->ping_sent_ms != 0
            ? conn->ping_sent_ms + min_ms(server->keepalive_ms, SF_LIMIT_RPC_PING_ANSWER_MS)
            : conn->h2.last_recv_ms + server->keepalive_ms;

    if (!conn->had_request)
        due_ms = min_ms(due_ms, conn->opened_ms + server->first_request_timeout_ms);
    else if (conn->calls == NULL)
        due_ms = min_ms(due_ms, conn->idle_since_ms + server->idle_timeout_ms);
    if (conn->drain == RPC_DRAIN_NOTICE)
        due_ms = min_ms(due_ms, conn->drain_since_ms + SF_LIMIT_RPC_DRAIN_NOTICE_MS);
    if (conn->waiting != NULL)
        due_ms = min_ms(due_ms, now_of(conn) + BUDGET_LOOK_MS);
    return due_ms;
}

static void timer_set(struct rpc_conn *conn)
{
    int64_t delay_ms = next_due(conn) - now_of(conn);

    if (!sf_timer_active(&conn->timer) || conn->timer.due_ms > now_of(conn) + delay_ms)
        sf_timer_start(&conn->timer, delay_ms > 0 ? delay_ms : 0);
}

static void keepalive(struct rpc_conn *conn, int64_t now_ms)
{
    const struct sf_rpc_server *server = conn->server;

    if (conn->ping_sent_ms != 0 && conn->h2.last_recv_ms > conn->ping_sent_ms)
        conn->ping_sent_ms = 0; /* any byte shows that the peer lives */
    if (conn->ping_sent_ms != 0) {
        if (now_ms - conn->ping_sent_ms >=
            min_ms(server->keepalive_ms, SF_LIMIT_RPC_PING_ANSWER_MS))
            sf_h2_close(&conn->h2, "keepalive_timeout");
        return;
    }
    if (now_ms - conn->h2.last_recv_ms < server->keepalive_ms)
        return;
    conn->ping_sent_ms = now_ms;
    (void)nghttp2_submit_ping(conn->h2.session, NGHTTP2_FLAG_NONE, keepalive_ping);
    sf_h2_mark(&conn->h2);
}

static void on_timer(struct sf_timer *timer)
{
    struct rpc_conn *conn = SF_CONTAINER_OF(timer, struct rpc_conn, timer);
    const struct sf_rpc_server *server = conn->server;
    int64_t now_ms = now_of(conn);

    if (conn->h2.closing)
        return;
    if (!conn->had_request && now_ms - conn->opened_ms >= server->first_request_timeout_ms) {
        sf_h2_close(&conn->h2, "first_request_timeout");
        return;
    }
    if (conn->had_request && conn->calls == NULL &&
        now_ms - conn->idle_since_ms >= server->idle_timeout_ms)
        rpc_conn_drain(conn);
    if (conn->drain == RPC_DRAIN_NOTICE &&
        now_ms - conn->drain_since_ms >= SF_LIMIT_RPC_DRAIN_NOTICE_MS)
        drain_final(conn);
    keepalive(conn, now_ms);
    if (conn->h2.closing)
        return;
    int64_t slow_ms = refuse_slow_requests(conn, now_ms);
    serve_waiting(conn);
    int64_t due_ms = min_ms(next_due(conn), slow_ms);
    sf_timer_start(timer, due_ms > now_ms ? due_ms - now_ms : 1);
}

/* ---- nghttp2's callbacks ---- */

/* A frame that carries nothing costs a token; a connection without tokens is an attack. */
static void glitch(struct rpc_conn *conn)
{
    int64_t now_ms = now_of(conn);

    if (--conn->glitch_tokens >= 0)
        return;
    int64_t added = (now_ms - conn->glitch_ms) * SF_LIMIT_RPC_GLITCH_PER_SECOND / 1000;
    conn->glitch_tokens = min_ms(added, SF_LIMIT_RPC_GLITCH_BURST) - 1;
    conn->glitch_ms = now_ms;
    if (conn->glitch_tokens < 0)
        terminate(conn, NGHTTP2_ENHANCE_YOUR_CALM, "too_many_empty_frames");
}

static struct rpc_call *call_of(nghttp2_session *session, int32_t stream_id)
{
    return nghttp2_session_get_stream_user_data(session, stream_id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct rpc_conn *conn = of_h2(user_data);

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    conn->had_request = true;
    if (refuses_calls(conn)) {
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                        NGHTTP2_REFUSED_STREAM);
        return 0;
    }
    struct rpc_call *call = rpc_call_new(conn, frame->hd.stream_id);
    (void)nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t namelen, const uint8_t *value, size_t valuelen, uint8_t flags,
                     void *user_data)
{
    struct rpc_conn *conn = of_h2(user_data);
    struct rpc_call *call = call_of(session, frame->hd.stream_id);

    (void)flags;
    if (call == NULL ||
        rpc_call_header(call, sf_view_bytes(name, namelen), sf_view_bytes(value, valuelen)))
        return 0;
    SF_LOG(WARN, "rpc_connection_terminated", SF_KV_STR("reason", "header_bomb"));
    rpc_server_count_closed(conn->server, "header_bomb");
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static void on_ping(struct rpc_conn *conn, const nghttp2_frame *frame)
{
    if (!(frame->hd.flags & NGHTTP2_FLAG_ACK))
        glitch(conn);
    else if (memcmp(frame->ping.opaque_data, drain_ping, sizeof(drain_ping)) == 0)
        drain_final(conn);
    else
        conn->ping_sent_ms = 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct rpc_conn *conn = of_h2(user_data);
    bool end_stream = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    struct rpc_call *call;

    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        call = call_of(session, frame->hd.stream_id);
        if (call != NULL && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
            rpc_call_begin(call);
        if (call != NULL && end_stream)
            rpc_call_half_close(call);
        break;
    case NGHTTP2_DATA:
        call = call_of(session, frame->hd.stream_id);
        if (frame->hd.length == 0 && !end_stream)
            glitch(conn);
        if (call != NULL && end_stream)
            rpc_call_half_close(call);
        break;
    case NGHTTP2_PING:
        on_ping(conn, frame);
        break;
    case NGHTTP2_SETTINGS:
    case NGHTTP2_PRIORITY:
    case NGHTTP2_WINDOW_UPDATE:
        glitch(conn);
        break;
    default:
        break;
    }
    return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
                         const uint8_t *data, size_t len, void *user_data)
{
    struct rpc_call *call = call_of(session, stream_id);

    (void)flags, (void)user_data;
    (void)nghttp2_session_consume_connection(session, len);
    if (call != NULL)
        rpc_call_data(call, sf_view_bytes(data, len));
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code,
                           void *user_data)
{
    struct rpc_call *call = call_of(session, stream_id);

    (void)user_data;
    if (call != NULL)
        rpc_call_detach(call, error_code == NGHTTP2_NO_ERROR && call->trailers_sent);
    return 0;
}

/* The status is out but the client still sends: end the stream, or it would stay open. */
static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct rpc_conn *conn = of_h2(user_data);
    struct rpc_call *call;

    /* The peer answers DATA with WINDOW_UPDATEs, of the stream and of the connection, and measures
     * with PINGs beside its calls, refused ones too. */
    if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
        conn->glitch_tokens < SF_LIMIT_RPC_GLITCH_BURST)
        conn->glitch_tokens += 2;
    if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    call = call_of(session, frame->hd.stream_id);
    if (call != NULL && !call->half_closed)
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                        NGHTTP2_NO_ERROR);
    return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int error,
                            void *user_data)
{
    (void)session, (void)frame, (void)error;
    glitch(of_h2(user_data));
    return 0;
}

void rpc_conn_set_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, sf_h2_send_data);
}

/* ---- opening ---- */

static void submit_settings(struct rpc_conn *conn)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, conn->server->max_streams_per_conn},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, SF_LIMIT_RPC_STREAM_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, SF_LIMIT_RPC_METADATA_BYTES},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    nghttp2_session *session = conn->h2.session;

    (void)nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, SF_ARRAY_LEN(settings));
    (void)nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0,
                                                SF_LIMIT_RPC_CONN_WINDOW_BYTES);
}

void rpc_conn_open(struct rpc_worker *worker, int fd)
{
    struct rpc_conn *conn = sf_calloc(1, sizeof(*conn));
    struct sf_rpc_server *server = worker->server;

    sf_h2_init(&conn->h2, &worker->h2, &conn_ops);
    conn->worker = worker;
    conn->server = server;
    rpc_server_acquire(server);
    atomic_init(&conn->refs, 1);
    conn->opened_ms = conn->idle_since_ms = conn->glitch_ms = worker->loop->now_ms;
    conn->glitch_tokens = SF_LIMIT_RPC_GLITCH_BURST;
    sf_timer_init(&conn->timer, worker->loop, on_timer);
    conn->next = worker->conns;
    if (conn->next != NULL)
        conn->next->prev = conn;
    worker->conns = conn;
    SF_ASSERT(nghttp2_session_server_new2(&conn->h2.session, server->callbacks, &conn->h2,
                                          server->option) == 0);
    if (uv_tcp_open(&conn->h2.tcp, fd) != 0) {
        (void)close(fd);
        sf_h2_close(&conn->h2, "open_failed");
        return;
    }
    submit_settings(conn);
    sf_h2_start(&conn->h2);
    timer_set(conn);
}
