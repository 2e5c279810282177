/*
 * The way out of a call. The handler packs on its own thread into a queue under the call's mutex;
 * the loop moves that to its own queue and lets nghttp2 ask for it:
 *
 *   handler --pack--> pending --hop (posted once)--> out --take_data--> scratch --> socket
 *
 * On the loop's thread the hop is a plain call. A unary answer is packed into the call's arena.
 * The response's HEADERS go out with the first message; an error before any message is a single
 * HEADERS frame with the status (Trailers-Only). The trailers are submitted by the read callback
 * when it gives the last bytes.
 */
#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "contract/error_status.h"
#include "rpc/server_priv.h"
#include "rpc/wire.h"

#define NV(n, v)                                                                                   \
    {                                                                                              \
        (uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), sizeof(n) - 1, sizeof(v) - 1,        \
            NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE                           \
    }

static struct rpc_call *of(struct sf_call *call)
{
    return SF_CONTAINER_OF(call, struct rpc_call, call);
}

static void queue_push(struct rpc_out_queue *queue, struct rpc_out *out)
{
    out->next = NULL;
    if (queue->head == NULL)
        queue->head = out;
    else
        queue->tail->next = out;
    queue->tail = out;
}

static void out_count(struct rpc_call *call, const struct rpc_out *out, bool add)
{
    if (!out->pooled)
        return;
    struct rpc_conn *conn = call->conn;
    if (add) {
        atomic_fetch_add_explicit(&conn->out_bytes, out->len, memory_order_relaxed);
        atomic_fetch_add_explicit(&conn->server->bytes, out->len, memory_order_relaxed);
    } else {
        atomic_fetch_sub_explicit(&conn->out_bytes, out->len, memory_order_relaxed);
        atomic_fetch_sub_explicit(&conn->server->bytes, out->len, memory_order_relaxed);
    }
}

static void out_free(struct rpc_call *call, struct rpc_out *out)
{
    out_count(call, out, false);
    if (out->heap)
        free(out);
}

void rpc_call_drop_output(struct rpc_call *call, struct rpc_out_queue *queue)
{
    while (queue->head != NULL) {
        struct rpc_out *out = queue->head;
        queue->head = out->next;
        atomic_fetch_sub(&call->out_left, out->len - out->at);
        out_free(call, out);
    }
}

static void put_prefix(uint8_t *to, size_t len)
{
    to[0] = 0;
    to[1] = (uint8_t)(len >> 24);
    to[2] = (uint8_t)(len >> 16);
    to[3] = (uint8_t)(len >> 8);
    to[4] = (uint8_t)len;
}

/* Space for a message of `len` bytes with its prefix; a small unary answer lies in the arena. */
static struct rpc_out *out_new(struct rpc_call *call, size_t len, bool unary)
{
    size_t size = sizeof(struct rpc_out) + SF_GRPC_PREFIX_BYTES + len;
    bool in_arena = unary && size <= RPC_UNCOUNTED_BYTES;
    struct rpc_out *out = in_arena ? sf_arena_alloc(call->call.arena, size) : NULL;
    bool heap = out == NULL;

    if (heap)
        out = sf_malloc(size);
    out->len = SF_GRPC_PREFIX_BYTES + len;
    out->at = 0;
    out->heap = heap;
    out->pooled = !in_arena;
    put_prefix(out->data, len);
    return out;
}

void rpc_end_set(struct rpc_end *end, const struct sf_diag *diag)
{
    struct sf_buf status = {0};

    end->grpc_status = SF_GRPC_OK;
    if (diag == NULL)
        return;
    end->grpc_status = (int)sf_err_info(sf_err_public(diag->err))->grpc;
    sf_grpc_message_encode(sf_view_str(diag->message), &end->text);
    end->message_len = end->text.len;
    sf_error_status_encode(diag, &status);
    sf_base64_encode(sf_buf_view(&status), &end->text);
    sf_buf_fini(&status);
}

/* ---- on the loop: towards nghttp2 ---- */

/* The status as header fields at the end of `nv`; their number. */
static size_t end_fields(const struct rpc_end *end, nghttp2_nv *nv)
{
    static const nghttp2_nv ok = NV("grpc-status", "0");
    static const char *const numbers[] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                          "9", "10", "11", "12", "13", "14", "15", "16"};
    size_t details_len = end->text.len - end->message_len;

    nv[0] = ok;
    if (end->grpc_status == SF_GRPC_OK)
        return 1;
    nv[0].value = (uint8_t *)(uintptr_t)numbers[end->grpc_status];
    nv[0].valuelen = strlen(numbers[end->grpc_status]);
    nv[1] = (nghttp2_nv)NV("grpc-message", "");
    nv[1].value = end->text.data;
    nv[1].valuelen = end->message_len;
    nv[2] = (nghttp2_nv)NV("grpc-status-details-bin", "");
    nv[2].value = end->text.data + end->message_len;
    nv[2].valuelen = details_len;
    return 3;
}

static void submit_trailers(struct rpc_call *call)
{
    nghttp2_nv nv[3];
    size_t count = end_fields(&call->end, nv);

    call->trailers_sent = 1;
    (void)nghttp2_submit_trailer(call->conn->h2.session, call->stream_id, nv, count);
}

static ssize_t on_read_source(nghttp2_session *session, int32_t stream_id, uint8_t *buf,
                              size_t length, uint32_t *flags, nghttp2_data_source *source,
                              void *user_data)
{
    struct rpc_call *call = source->ptr;
    size_t have = 0;

    (void)session, (void)stream_id, (void)buf, (void)user_data;
    for (struct rpc_out *out = call->out.head; out != NULL && have <= length; out = out->next)
        have += out->len - out->at;
    bool last = have <= length && call->ended;
    if (have == 0 && !last)
        return NGHTTP2_ERR_DEFERRED;
    if (last) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_trailers(call);
    }
    if (have > 0)
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    return (ssize_t)(have < length ? have : length);
}

void rpc_call_take_data(struct rpc_call *call, uint8_t *to, size_t len)
{
    atomic_fetch_sub(&call->out_left, len);
    while (len > 0) {
        struct rpc_out *out = call->out.head;
        SF_ASSERT(out != NULL);
        size_t n = out->len - out->at < len ? out->len - out->at : len;
        memcpy(to, out->data + out->at, n);
        out->at += n;
        to += n;
        len -= n;
        if (out->at == out->len) {
            call->out.head = out->next;
            out_free(call, out);
        }
    }
    rpc_conn_wake(call->conn, call);
}

void rpc_call_output(struct rpc_call *call)
{
    static const nghttp2_nv head[] = {
        NV(":status", "200"),
        NV("content-type", "application/grpc"),
        NV("grpc-accept-encoding", "identity,gzip"),
    };
    nghttp2_session *session = call->conn->h2.session;

    if (call->stream_id == 0 || call->trailers_sent)
        return;
    if (call->headers_sent) {
        (void)nghttp2_session_resume_data(session, call->stream_id);
    } else if (call->out.head == NULL && call->ended && call->end.grpc_status != SF_GRPC_OK) {
        nghttp2_nv nv[SF_ARRAY_LEN(head) + 3];
        memcpy(nv, head, sizeof(head));
        size_t count = SF_ARRAY_LEN(head) + end_fields(&call->end, nv + SF_ARRAY_LEN(head));
        call->headers_sent = call->trailers_sent = 1;
        (void)nghttp2_submit_response(session, call->stream_id, nv, count, NULL);
    } else {
        nghttp2_data_provider provider = {.source = {.ptr = call}, .read_callback = on_read_source};
        call->headers_sent = 1;
        (void)nghttp2_submit_response(session, call->stream_id, head, SF_ARRAY_LEN(head) - 1,
                                      &provider);
    }
    sf_h2_mark(&call->conn->h2);
}

void rpc_call_http_error(struct rpc_call *call, const char *status)
{
    nghttp2_nv nv[] = {NV(":status", "000"), NV("content-length", "0")};

    nv[0].value = (uint8_t *)(uintptr_t)status;
    pthread_mutex_lock(&call->mu);
    call->overruled = true;
    call->end.grpc_status = SF_GRPC_UNKNOWN;
    pthread_mutex_unlock(&call->mu);
    call->ended = call->headers_sent = call->trailers_sent = 1;
    (void)nghttp2_submit_response(call->conn->h2.session, call->stream_id, nv, SF_ARRAY_LEN(nv),
                                  NULL);
    sf_h2_mark(&call->conn->h2);
}

void rpc_call_push(struct rpc_call *call)
{
    pthread_mutex_lock(&call->mu);
    struct rpc_out_queue fresh = call->pending;
    bool answered = call->answered;
    bool dropped = call->overruled || call->stream_id == 0;
    call->pending = (struct rpc_out_queue){0};
    pthread_mutex_unlock(&call->mu);

    if (dropped) {
        rpc_call_drop_output(call, &fresh);
    } else {
        if (fresh.head != NULL) {
            if (call->out.head == NULL)
                call->out.head = fresh.head;
            else
                call->out.tail->next = fresh.head;
            call->out.tail = fresh.tail;
        }
        if (answered && !call->ended) {
            call->ended = 1;
            sf_timer_stop(&call->deadline);
            rpc_call_forget_request(call);
        }
        if (fresh.head != NULL || call->ended)
            rpc_call_output(call);
    }
    if (answered && call->dispatched) {
        call->dispatched = 0;
        rpc_call_release(call);
    }
}

static void on_hop(struct sf_task *task)
{
    struct rpc_call *call = SF_CONTAINER_OF(task, struct rpc_call, hop);

    pthread_mutex_lock(&call->mu);
    call->hop_posted = false;
    pthread_mutex_unlock(&call->mu);
    rpc_call_push(call);
    if (call->stream_id != 0)
        rpc_call_woken(call);
    rpc_call_release(call);
}

/* Brings what the handler did to the loop; leaves the mutex. */
static void kick_locked(struct rpc_call *call)
{
    struct sf_loop *loop = call->conn->worker->loop;

    if (sf_loop_is_current(loop)) {
        pthread_mutex_unlock(&call->mu);
        rpc_call_push(call);
        return;
    }
    if (!call->hop_posted) {
        call->hop_posted = true;
        call->hop.run = on_hop;
        atomic_fetch_add(&call->refs, 1);
        sf_loop_post(loop, &call->hop);
    }
    pthread_mutex_unlock(&call->mu);
}

/* ---- what handlers call, on any thread ---- */

/* Ends the call with `diag` (NULL = OK) after `out` (NULL = nothing). */
static void answer(struct rpc_call *call, const struct sf_diag *diag, struct rpc_out *out)
{
    struct rpc_end end = {0};

    rpc_end_set(&end, diag);
    pthread_mutex_lock(&call->mu);
    call->answered = true;
    if (!call->overruled) {
        call->end = end;
        if (out != NULL) {
            atomic_fetch_add(&call->out_left, out->len);
            out_count(call, out, true);
            queue_push(&call->pending, out);
        }
    } else {
        sf_buf_fini(&end.text);
        if (out != NULL && out->heap)
            free(out);
    }
    kick_locked(call);
}

static void answer_too_large(struct rpc_call *call, size_t len)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, SF_TOO_MANY_OPERATIONS, "the response is above the message limit");
    sf_diag_detail(&diag, "limit_scope", "rpc_response_bytes");
    sf_diag_detail(&diag, "configured_limit", "%u", SF_LIMIT_RPC_MESSAGE_BYTES);
    sf_diag_detail(&diag, "requested_value", "%zu", len);
    answer(call, &diag, NULL);
}

/* Calls that were let in while nothing waited may all answer at once to a peer that does not read:
 * what the connection's budget does not hold is refused, and a repeat gets the answer. */
static bool answer_refused(struct rpc_call *call, size_t len)
{
    size_t waiting = atomic_load_explicit(&call->conn->out_bytes, memory_order_relaxed);
    struct sf_diag diag;

    if (len <= RPC_UNCOUNTED_BYTES || waiting == 0 ||
        waiting + len <= SF_LIMIT_RPC_CONN_BUDGET_BYTES)
        return false;
    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, SF_RATE_LIMITED, "too many bytes of answers wait for this client");
    sf_diag_detail(&diag, "retry_after_ms", "100");
    sf_diag_detail(&diag, "throttled_dimension", "rpc_buffered_bytes");
    sf_diag_detail(&diag, "server_limit", "%u", SF_LIMIT_RPC_CONN_BUDGET_BYTES);
    answer(call, &diag, NULL);
    return true;
}

static void call_respond(struct sf_call *base, const ProtobufCMessage *response)
{
    struct rpc_call *call = of(base);
    size_t len = protobuf_c_message_get_packed_size(response);

    if (len > SF_LIMIT_RPC_MESSAGE_BYTES) {
        answer_too_large(call, len);
        return;
    }
    if (answer_refused(call, len))
        return;
    struct rpc_out *out = out_new(call, len, base->route->method->unary != NULL);
    (void)protobuf_c_message_pack(response, out->data + SF_GRPC_PREFIX_BYTES);
    answer(call, NULL, out);
}

static void call_respond_bytes(struct sf_call *base, struct sf_view packed)
{
    struct rpc_call *call = of(base);

    if (packed.len > SF_LIMIT_RPC_MESSAGE_BYTES) {
        answer_too_large(call, packed.len);
        return;
    }
    if (answer_refused(call, packed.len))
        return;
    struct rpc_out *out = out_new(call, packed.len, base->route->method->unary != NULL);
    if (packed.len > 0)
        memcpy(out->data + SF_GRPC_PREFIX_BYTES, packed.ptr, packed.len);
    answer(call, NULL, out);
}

static void call_fail(struct sf_call *base, const struct sf_diag *diag)
{
    answer(of(base), diag, NULL);
}

static void call_finish(struct sf_call *base)
{
    answer(of(base), NULL, NULL);
}

/* A message always fits an empty queue. */
static bool send_is_full(const struct rpc_call *call, size_t len)
{
    size_t left = atomic_load(&call->out_left);

    if (left == 0)
        return false;
    return left + len > SF_LIMIT_RPC_STREAM_BUDGET_BYTES || !rpc_conn_has_room(call->conn);
}

static enum sf_err call_send(struct sf_call *base, const ProtobufCMessage *message)
{
    struct rpc_call *call = of(base);
    size_t len = protobuf_c_message_get_packed_size(message);

    if (sf_call_cancelled(base))
        return SF_CANCELLED;
    if (len > SF_LIMIT_RPC_MESSAGE_BYTES)
        return SF_ERR_LIMIT;
    struct rpc_out *out = out_new(call, len, false);
    (void)protobuf_c_message_pack(message, out->data + SF_GRPC_PREFIX_BYTES);
    pthread_mutex_lock(&call->mu);
    enum sf_err err = SF_OK;
    if (call->overruled || sf_call_cancelled(base)) {
        err = SF_CANCELLED;
    } else if (send_is_full(call, out->len)) {
        /* The loop may have sent the rest meanwhile: ask to be told, then look again. */
        atomic_store(&call->wants_writable, true);
        if (send_is_full(call, out->len))
            err = SF_ERR_FULL;
        else
            atomic_store(&call->wants_writable, false);
    }
    if (err != SF_OK) {
        pthread_mutex_unlock(&call->mu);
        free(out);
        return err;
    }
    atomic_fetch_add(&call->out_left, out->len);
    out_count(call, out, true);
    queue_push(&call->pending, out);
    kick_locked(call);
    return SF_OK;
}

static void call_pause(struct sf_call *base)
{
    atomic_fetch_add(&of(base)->pauses, 1);
}

static void call_resume(struct sf_call *base)
{
    struct rpc_call *call = of(base);
    unsigned before = atomic_fetch_sub(&call->pauses, 1);

    SF_ASSERT(before > 0);
    if (before != 1)
        return;
    pthread_mutex_lock(&call->mu);
    if (!call->hop_posted) {
        /* Always posted: the handler may be inside a callback of this call. */
        call->hop_posted = true;
        call->hop.run = on_hop;
        atomic_fetch_add(&call->refs, 1);
        sf_loop_post(call->conn->worker->loop, &call->hop);
    }
    pthread_mutex_unlock(&call->mu);
}

static const struct rpc_metadata *find_metadata(const struct sf_call *base, const char *name)
{
    const struct rpc_call *call = SF_CONTAINER_OF(base, const struct rpc_call, call);

    for (const struct rpc_metadata *m = call->metadata; m != NULL; m = m->next)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}

static const char *call_metadata(const struct sf_call *base, const char *name)
{
    const struct rpc_metadata *m = find_metadata(base, name);

    return m == NULL ? NULL : (const char *)m->value.ptr;
}

static struct sf_view call_metadata_bin(const struct sf_call *base, const char *name)
{
    const struct rpc_metadata *m = find_metadata(base, name);

    return m == NULL ? (struct sf_view){0} : m->value;
}

static void call_acquire(struct sf_call *base)
{
    atomic_fetch_add(&of(base)->refs, 1);
}

static void call_release(struct sf_call *base)
{
    rpc_call_release(of(base));
}

const struct sf_call_ops rpc_call_ops = {
    .respond = call_respond,
    .respond_bytes = call_respond_bytes,
    .fail = call_fail,
    .send = call_send,
    .finish = call_finish,
    .pause = call_pause,
    .resume = call_resume,
    .metadata = call_metadata,
    .metadata_bin = call_metadata_bin,
    .acquire = call_acquire,
    .release = call_release,
};
