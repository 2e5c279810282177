/*
 * A call on the server, from its HEADERS to the end of its stream.
 *
 *   headers --begin--> [refused | open / wait for the message] --data--> messages
 *   half-close --> unary handler runs / half_close told --> answer (server_out.c) --> detach
 *
 * A unary handler runs once its one message is complete, and only while the budgets have room. What
 * the transport itself decides (deadline, limits, malformed input) overrules the handler: the
 * status goes out at once and whatever the handler says later is dropped.
 *
 * Window: a stream's bytes are given back to it while its handler takes messages, its own output is
 * below OUTPUT_MARK_BYTES, and the connection has room.
 */
#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/pb.h"
#include "contract/served.h"
#include "rpc/server_priv.h"
#include "rpc/wire.h"

#define OUTPUT_MARK_BYTES (256u << 10)
#define POOL_CALLS        256u

/* ---- life ---- */

struct rpc_call *rpc_call_new(struct rpc_conn *conn, int32_t stream_id)
{
    struct rpc_worker *worker = conn->worker;
    struct rpc_call *call = worker->pool;

    if (call != NULL) {
        worker->pool = call->next;
        worker->pool_count--;
    } else {
        call = sf_calloc(1, sizeof(*call));
        call->call.arena = sf_arena_new(SF_LIMIT_RPC_ARENA_BYTES);
        SF_ASSERT(pthread_mutex_init(&call->mu, NULL) == 0);
    }
    sf_call_init(&call->call, &rpc_call_ops, NULL, call->call.arena);
    call->conn = conn;
    call->reader.max_message_bytes = conn->server->max_message_bytes;
    atomic_store_explicit(&call->refs, 1, memory_order_relaxed);
    call->stream_id = stream_id;
    call->started_ms = worker->loop->now_ms;
    call->deadline.loop = worker->loop;
    atomic_fetch_add(&conn->refs, 1);
    call->prev = NULL;
    call->next = conn->calls;
    if (call->next != NULL)
        call->next->prev = call;
    conn->calls = call;
    conn->call_count++;
    worker->call_count++;
    return call;
}

void rpc_call_free(struct rpc_call *call)
{
    sf_arena_destroy(call->call.arena);
    sf_frame_reader_fini(&call->reader);
    pthread_mutex_destroy(&call->mu);
    free(call);
}

/* Makes a used call as good as new; what stands before `conn` (base, arena, mutex) stays. */
static void call_recycle(struct rpc_worker *worker, struct rpc_call *call)
{
    size_t kept = offsetof(struct rpc_call, conn);

    sf_frame_reader_fini(&call->reader);
    sf_arena_reset(call->call.arena);
    memset((char *)call + kept, 0, sizeof(*call) - kept);
    call->next = worker->pool;
    worker->pool = call;
    worker->pool_count++;
}

void rpc_call_release(struct rpc_call *call)
{
    if (atomic_fetch_sub(&call->refs, 1) != 1)
        return;
    struct rpc_conn *conn = call->conn;
    struct rpc_worker *worker = conn->worker;

    rpc_call_drop_output(call, &call->pending);
    rpc_call_drop_output(call, &call->out);
    sf_buf_fini(&call->end.text);
    if (sf_loop_is_current(worker->loop) && !worker->closed && worker->pool_count < POOL_CALLS)
        call_recycle(worker, call);
    else
        rpc_call_free(call);
    rpc_conn_release(conn);
}

/* What the call holds of requests, for the budgets. */
static void count_in(struct rpc_call *call)
{
    size_t now = call->request_bytes + sf_frame_reader_pending_bytes(&call->reader);

    if (now <= RPC_UNCOUNTED_BYTES || call->stream_id == 0)
        now = 0;
    if (now == call->counted_in)
        return;
    call->conn->in_bytes += now - call->counted_in;
    atomic_fetch_add_explicit(&call->conn->server->bytes, now - call->counted_in,
                              memory_order_relaxed);
    call->counted_in = now;
}

void rpc_call_forget_request(struct rpc_call *call)
{
    if (call->request_bytes <= RPC_UNCOUNTED_BYTES ||
        (call->out.head != NULL && !call->out.head->heap))
        return;
    call->request = NULL;
    call->request_bytes = 0;
    call->metadata = NULL;
    sf_arena_reset(call->call.arena);
    count_in(call);
}

static bool is_stream(const struct rpc_call *call)
{
    return call->call.route != NULL && call->call.route->method->stream != NULL;
}

void rpc_call_detach(struct rpc_call *call, bool clean)
{
    struct rpc_conn *conn = call->conn;

    if (!clean)
        atomic_store(&call->call.cancelled, true);
    pthread_mutex_lock(&call->mu);
    call->stream_id = 0;
    pthread_mutex_unlock(&call->mu);
    count_in(call);
    sf_timer_stop(&call->deadline);
    if (call->next != NULL)
        call->next->prev = call->prev;
    if (call->prev != NULL)
        call->prev->next = call->next;
    else
        conn->calls = call->next;
    conn->call_count--;
    conn->running_count -= call->running;
    conn->worker->call_count--;
    conn->idle_since_ms = conn->worker->loop->now_ms;
    rpc_server_count_call(conn->server, call->call.route,
                          clean ? call->end.grpc_status : SF_GRPC_CANCELLED,
                          conn->idle_since_ms - call->started_ms);
    if (call->opened)
        call->call.route->method->stream->closed(call->call.route->service->self, &call->call);
    rpc_call_drop_output(call, &call->out);
    rpc_call_release(call);
}

void rpc_call_overrule(struct rpc_call *call, const struct sf_diag *diag)
{
    struct rpc_out_queue fresh;

    if (call->ended || call->stream_id == 0)
        return;
    pthread_mutex_lock(&call->mu);
    call->overruled = true;
    sf_buf_clear(&call->end.text);
    rpc_end_set(&call->end, diag);
    fresh = call->pending;
    call->pending = (struct rpc_out_queue){0};
    pthread_mutex_unlock(&call->mu);
    atomic_store(&call->call.cancelled, true);
    rpc_call_drop_output(call, &fresh);
    rpc_call_drop_output(call, &call->out);
    call->ended = 1;
    sf_timer_stop(&call->deadline);
    rpc_call_output(call);
}

static void refuse(struct rpc_call *call, enum sf_err err, const char *why)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, err, "%s", why);
    rpc_call_overrule(call, &diag);
}

static void refuse_size(struct rpc_call *call, const char *scope, size_t limit)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, SF_TOO_MANY_OPERATIONS, "%s is above the limit of %zu bytes", scope,
                      limit);
    sf_diag_detail(&diag, "limit_scope", "%s", scope);
    sf_diag_detail(&diag, "configured_limit", "%zu", limit);
    sf_diag_detail(&diag, "requested_value", "above");
    rpc_call_overrule(call, &diag);
}

static void refuse_busy(struct rpc_call *call)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, SF_RATE_LIMITED, "too many bytes are being received");
    sf_diag_detail(&diag, "retry_after_ms", "100");
    sf_diag_detail(&diag, "throttled_dimension", "rpc_buffered_bytes");
    sf_diag_detail(&diag, "server_limit", "%u", SF_LIMIT_RPC_CONN_BUDGET_BYTES);
    rpc_call_overrule(call, &diag);
}

/* ---- headers ---- */

static bool is_text(struct sf_view view, const char *text)
{
    return sf_view_equal(view, sf_view_str(text));
}

static void keep_path(struct rpc_call *call, struct sf_view value)
{
    bool early;

    call->call.route = rpc_server_route(call->conn->server, value, &early);
    call->early = early;
    if (call->call.route == NULL)
        call->path = (struct sf_view){
            sf_arena_dup(call->call.arena, value.ptr, value.len == 0 ? 1 : value.len), value.len};
}

static void keep_metadata(struct rpc_call *call, struct sf_view name, struct sf_view value)
{
    struct rpc_metadata *m = sf_arena_alloc(call->call.arena, sizeof(*m));
    bool binary = name.len > 4 && memcmp(name.ptr + name.len - 4, "-bin", 4) == 0;

    m->name = sf_arena_str(call->call.arena, name);
    if (binary) {
        struct sf_buf bytes = {0};
        if (!sf_base64_decode(value, &bytes))
            call->bad_metadata = 1;
        m->value = (struct sf_view){(uint8_t *)sf_arena_str(call->call.arena, sf_buf_view(&bytes)),
                                    bytes.len};
        sf_buf_fini(&bytes);
    } else {
        m->value = (struct sf_view){(uint8_t *)sf_arena_str(call->call.arena, value), value.len};
    }
    /* In order of arrival: the first of equal names is found. */
    struct rpc_metadata **end = &call->metadata;
    while (*end != NULL)
        end = &(*end)->next;
    *end = m;
}

/* A header that steers the transport; false when it is metadata. */
static bool transport_header(struct rpc_call *call, struct sf_view name, struct sf_view value)
{
    if (name.len > 0 && name.ptr[0] == ':') {
        if (is_text(name, ":path"))
            keep_path(call, value);
        else if (is_text(name, ":method"))
            call->post = is_text(value, "POST");
        return true;
    }
    if (is_text(name, "content-type")) {
        call->grpc = sf_grpc_content_type(value);
    } else if (is_text(name, "grpc-timeout")) {
        int64_t timeout_ms;
        if (!sf_grpc_timeout_parse(value, &timeout_ms))
            call->bad_timeout = 1;
        else
            call->timeout_ms = timeout_ms > 0 ? timeout_ms : 1;
    } else if (is_text(name, "grpc-encoding")) {
        call->encoding = is_text(value, "identity") ? RPC_ENCODING_IDENTITY
                         : is_text(value, "gzip")   ? RPC_ENCODING_GZIP
                                                    : RPC_ENCODING_UNKNOWN;
    } else {
        return is_text(name, "te") || is_text(name, "grpc-accept-encoding");
    }
    return true;
}

bool rpc_call_header(struct rpc_call *call, struct sf_view name, struct sf_view value)
{
    call->header_bytes += name.len + value.len + 32;
    if (call->header_bytes > 4 * (size_t)SF_LIMIT_RPC_METADATA_BYTES)
        return false;
    if (call->header_bytes > SF_LIMIT_RPC_METADATA_BYTES || call->begun)
        return true; /* begin refuses; trailers of a request are not looked at */
    if (!transport_header(call, name, value))
        keep_metadata(call, name, value);
    return true;
}

static void on_deadline(struct sf_timer *timer)
{
    struct rpc_call *call = SF_CONTAINER_OF(timer, struct rpc_call, deadline);

    refuse(call, SF_DEADLINE_EXCEEDED, "the deadline passed before the answer");
}

static void start_deadline(struct rpc_call *call)
{
    sf_timer_init(&call->deadline, call->conn->worker->loop, on_deadline);
    if (call->timeout_ms == 0)
        return;
    call->call.deadline_ms = call->started_ms + call->timeout_ms;
    sf_timer_start(&call->deadline, call->timeout_ms);
}

/* Who calls; false when the call was refused. */
static bool authenticate(struct rpc_call *call)
{
    const struct sf_rpc_server *server = call->conn->server;
    struct sf_diag diag;

    if (server->auth == NULL) {
        call->call.identity = server->loopback;
        return true;
    }
    sf_diag_init(&diag);
    enum sf_err err =
        server->auth->authenticate(server->auth->self, &call->call, &call->call.identity, &diag);
    if (err == SF_OK)
        return true;
    if (diag.err == SF_OK)
        (void)sf_diag_set(&diag, err, "refused");
    rpc_call_overrule(call, &diag);
    return false;
}

void rpc_call_begin(struct rpc_call *call)
{
    struct sf_diag diag;

    call->begun = 1;
    start_deadline(call);
    if (call->header_bytes > SF_LIMIT_RPC_METADATA_BYTES) {
        refuse_size(call, "rpc_metadata_bytes", SF_LIMIT_RPC_METADATA_BYTES);
    } else if (!call->post) {
        rpc_call_http_error(call, "405");
    } else if (!call->grpc) {
        rpc_call_http_error(call, "415");
    } else if (call->bad_timeout) {
        refuse(call, SF_INTERNAL, "grpc-timeout is malformed");
    } else if (call->bad_metadata) {
        refuse(call, SF_INTERNAL, "binary metadata is not base64");
    } else if (call->encoding == RPC_ENCODING_UNKNOWN) {
        refuse(call, SF_UNIMPLEMENTED, "the request's grpc-encoding is not supported");
    } else if (call->early) {
        const struct sf_rpc_expected *expected = &call->conn->server->expected;
        sf_diag_init(&diag);
        expected->refuse(expected->self, call->path, &diag);
        rpc_call_overrule(call, &diag);
    } else if (call->call.route == NULL) {
        sf_diag_init(&diag);
        (void)sf_contract_unserved(call->path, &diag);
        rpc_call_overrule(call, &diag);
    } else if (authenticate(call) && is_stream(call)) {
        call->opened = 1;
        call->call.route->method->stream->open(call->call.route->service->self, &call->call);
    }
}

/* ---- messages ---- */

/* The message's bytes, inflated when needed; false when the call was refused. */
static bool plain_bytes(struct rpc_call *call, bool compressed, struct sf_view *bytes)
{
    struct sf_buf *inflated = &call->conn->worker->inflated;
    bool too_large = false;

    if (!compressed)
        return true;
    if (call->encoding != RPC_ENCODING_GZIP) {
        refuse(call, SF_INTERNAL, "a compressed message without a grpc-encoding");
        return false;
    }
    sf_buf_clear(inflated);
    if (sf_gzip_inflate(*bytes, call->conn->server->max_message_bytes, inflated, &too_large)) {
        *bytes = sf_buf_view(inflated);
        return true;
    }
    if (too_large)
        refuse_size(call, "rpc_message_bytes", call->conn->server->max_message_bytes);
    else
        refuse(call, SF_INTERNAL, "the compressed message is malformed");
    return false;
}

/* True when only the text of a string was wrong. */
static bool names_bad_text(const struct sf_diag *diag)
{
    const char *violation = sf_diag_get(diag, "violation");

    return violation != NULL && (strcmp(violation, SF_PB_VIOLATION_UTF8) == 0 ||
                                 strcmp(violation, SF_PB_VIOLATION_NUL) == 0);
}

static ProtobufCMessage *unpack(struct rpc_call *call, struct sf_view bytes, struct sf_arena *arena)
{
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    const struct sf_method *method = call->call.route->method;
    enum sf_err err = method->unpack != NULL
                          ? method->unpack(bytes, arena, &diag, &message)
                          : sf_pb_unpack(method->request, bytes, arena, &diag, &message);
    if (err == SF_OK)
        return message;
    if (err == SF_ERR_LIMIT) {
        sf_diag_detail(&diag, "limit_scope", "rpc_message_memory");
        sf_diag_detail(&diag, "configured_limit", "%u", SF_LIMIT_RPC_ARENA_BYTES);
        sf_diag_detail(&diag, "requested_value", "above");
    } else if (names_bad_text(&diag)) {
        diag.err = SF_BAD_REQUEST; /* readable, but a field breaks its rule (OP-55) */
    } else {
        if (sf_diag_get(&diag, "field") == NULL)
            sf_diag_detail(&diag, "field", "%s", "message");
        sf_diag_detail(&diag, "violation", "malformed");
    }
    rpc_call_overrule(call, &diag);
    return NULL;
}

static void take_message(struct rpc_call *call, bool compressed, struct sf_view bytes)
{
    struct sf_arena *arena = call->conn->worker->message_arena;
    const struct sf_rpc_route *route = call->call.route;

    if (!is_stream(call) && call->request != NULL) {
        refuse(call, SF_UNIMPLEMENTED, "the method takes one message");
        return;
    }
    if (!plain_bytes(call, compressed, &bytes))
        return;
    if (!is_stream(call)) {
        call->request = unpack(call, bytes, call->call.arena);
        call->request_bytes = bytes.len;
        sf_buf_fini(&call->conn->worker->inflated);
        return;
    }
    ProtobufCMessage *message = unpack(call, bytes, arena);
    sf_buf_fini(&call->conn->worker->inflated);
    if (message != NULL)
        route->method->stream->message(route->service->self, &call->call, message);
    sf_arena_reset(arena);
}

static void run_unary(struct rpc_call *call)
{
    const struct sf_rpc_route *route = call->call.route;

    call->half_close_told = 1;
    call->dispatched = 1;
    call->running = 1;
    call->conn->running_count++;
    atomic_fetch_add(&call->refs, 1);
    route->method->unary(route->service->self, &call->call, call->request);
}

static void tell_half_close(struct rpc_call *call)
{
    const struct sf_rpc_route *route = call->call.route;

    if (sf_frame_reader_pending_bytes(&call->reader) > 0) {
        refuse(call, SF_INTERNAL, "the request ends within a message");
    } else if (is_stream(call)) {
        call->half_close_told = 1;
        route->method->stream->half_close(route->service->self, &call->call);
    } else if (call->request == NULL) {
        refuse(call, SF_UNIMPLEMENTED, "the method takes one message");
    } else if (rpc_conn_has_room(call->conn)) {
        run_unary(call);
    } else {
        rpc_conn_wait(call->conn, call);
    }
}

/* True while the handler may be told something. */
static bool listens(const struct rpc_call *call)
{
    return call->begun && !call->ended && call->stream_id != 0 && !atomic_load(&call->call.ended) &&
           atomic_load(&call->pauses) == 0;
}

/* Gives the handler what there is, in order. */
static void deliver(struct rpc_call *call)
{
    bool more = true;

    while (more && listens(call)) {
        struct sf_view bytes;
        bool compressed;
        switch (sf_frame_reader_next(&call->reader, &compressed, &bytes)) {
        case SF_FRAME_MESSAGE:
            take_message(call, compressed, bytes);
            break;
        case SF_FRAME_MORE:
            more = false;
            break;
        case SF_FRAME_TOO_LARGE:
            refuse_size(call, "rpc_message_bytes", call->conn->server->max_message_bytes);
            break;
        case SF_FRAME_BAD:
            refuse(call, SF_INTERNAL, "malformed message prefix");
            break;
        }
    }
    count_in(call);
    if (!more && call->half_closed && !call->half_close_told && !call->waiting && listens(call))
        tell_half_close(call);
}

static void consume(struct rpc_call *call)
{
    size_t n = call->unconsumed;

    call->unconsumed = 0;
    if (n > 0 && call->stream_id != 0) {
        (void)nghttp2_session_consume_stream(call->conn->h2.session, call->stream_id, n);
        sf_h2_mark(&call->conn->h2);
    }
}

/* Opens the stream's window again unless something speaks against it. */
static void give_window(struct rpc_call *call)
{
    if (call->unconsumed == 0 || call->half_closed)
        return;
    if (!call->ended) {
        if (atomic_load(&call->pauses) > 0 || atomic_load(&call->out_left) > OUTPUT_MARK_BYTES)
            return; /* rpc_call_woken comes back to it */
        if (!rpc_conn_has_room(call->conn)) {
            rpc_conn_wait(call->conn, call);
            return;
        }
    }
    consume(call);
}

void rpc_call_data(struct rpc_call *call, struct sf_view bytes)
{
    call->unconsumed += bytes.len;
    if (!call->ended && !atomic_load(&call->call.ended)) {
        if (rpc_conn_is_over(call->conn)) {
            refuse_busy(call);
        } else {
            sf_frame_reader_feed(&call->reader, bytes);
            deliver(call);
        }
    }
    if (call->ended || atomic_load(&call->call.ended))
        sf_frame_reader_fini(&call->reader);
    else
        sf_frame_reader_keep(&call->reader);
    count_in(call);
    give_window(call);
}

void rpc_call_half_close(struct rpc_call *call)
{
    call->half_closed = 1;
    deliver(call);
}

bool rpc_call_go_on(struct rpc_call *call)
{
    bool complete = call->half_closed && call->request != NULL && !is_stream(call);

    if (call->stream_id == 0 || call->ended)
        return true;
    if (atomic_load(&call->pauses) > 0 || atomic_load(&call->out_left) > OUTPUT_MARK_BYTES)
        return true; /* rpc_call_woken comes back to it */
    consume(call);
    if (complete && !call->half_close_told)
        run_unary(call);
    return complete || call->half_closed;
}

void rpc_call_woken(struct rpc_call *call)
{
    const struct sf_rpc_route *route = call->call.route;

    if (call->opened && !call->ended && !atomic_load(&call->call.ended) &&
        atomic_load(&call->out_left) <= SF_LIMIT_RPC_STREAM_BUDGET_BYTES / 2 &&
        atomic_exchange(&call->wants_writable, false) && route->method->stream->writable != NULL)
        route->method->stream->writable(route->service->self, &call->call);
    if (call->stream_id == 0)
        return;
    deliver(call);
    give_window(call);
}
