/*
 * A call of the gRPC channel.
 *
 *   caller's loop   send: pack --> pending --hop--> out --> nghttp2          channel's loop
 *                   message, writable, done <--deliver-- in <-- unpack <--
 *
 * A message that the owner has not seen yet holds its bytes of the stream's window. A unary call
 * keeps its request until it ends, so that it can be placed again when the server never looked at
 * it. `finish` is the one end of all calls; the HTTP/2 stream may outlive it and keeps a reference.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "contract/error_status.h"
#include "contract/served.h"
#include "rpc/client_priv.h"
#include "rpc/wire.h"

#define MAX_ATTEMPTS    6
#define RETRY_FIRST_MS  5
#define DELIVER_BATCH   64
#define KEEP_BACK_BYTES (SF_LIMIT_RPC_STREAM_BUDGET_BYTES / 4) /* unseen messages of a stream */

/* ---- life ---- */

static void out_free(struct grpc_out *out)
{
    while (out != NULL) {
        struct grpc_out *next = out->next;
        free(out);
        out = next;
    }
}

void grpc_call_release(struct grpc_call *call)
{
    if (atomic_fetch_sub(&call->refs, 1) != 1)
        return;
    out_free(call->pending);
    out_free(call->out);
    sf_rpc_message_queue_clear(&call->in);
    sf_frame_reader_fini(&call->reader);
    sf_buf_fini(&call->grpc_message);
    sf_buf_fini(&call->details);
    pthread_mutex_destroy(&call->mu);
    free((void *)(uintptr_t)call->path);
    grpc_channel_release(call->channel);
    free(call);
}

void grpc_call_link(struct grpc_call **list, struct grpc_call *call)
{
    struct grpc_call **end = list;

    SF_ASSERT(!call->listed);
    call->listed = true;
    call->prev = NULL;
    call->next = NULL;
    if (list == &call->channel->waiting) { /* first come, first served */
        struct grpc_call *last = NULL;
        while (*end != NULL) {
            last = *end;
            end = &last->next;
        }
        call->prev = last;
        *end = call;
        return;
    }
    call->next = *list;
    if (call->next != NULL)
        call->next->prev = call;
    *list = call;
}

void grpc_call_unlink(struct grpc_call **list, struct grpc_call *call)
{
    SF_ASSERT(call->listed);
    call->listed = false;
    if (call->next != NULL)
        call->next->prev = call->prev;
    if (call->prev != NULL)
        call->prev->next = call->next;
    else
        *list = call->next;
    call->prev = call->next = NULL;
}

static struct grpc_out *out_new(const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);

    if (len > SF_LIMIT_RPC_MESSAGE_BYTES)
        return NULL;
    struct grpc_out *out = sf_malloc(sizeof(*out) + SF_GRPC_PREFIX_BYTES + len);
    out->next = NULL;
    out->len = SF_GRPC_PREFIX_BYTES + len;
    out->at = 0;
    out->data[0] = 0;
    out->data[1] = (uint8_t)(len >> 24);
    out->data[2] = (uint8_t)(len >> 16);
    out->data[3] = (uint8_t)(len >> 8);
    out->data[4] = (uint8_t)len;
    (void)protobuf_c_message_pack(message, out->data + SF_GRPC_PREFIX_BYTES);
    return out;
}

/* ---- towards the caller ---- */

static void on_deliver(struct sf_task *task);

static void post_deliver_locked(struct grpc_call *call)
{
    if (call->deliver_posted)
        return;
    call->deliver_posted = true;
    atomic_fetch_add(&call->refs, 1);
    sf_loop_post(call->loop != NULL ? call->loop : call->channel->loop, &call->deliver);
}

void grpc_call_finish(struct grpc_call *call, const struct sf_diag *diag)
{
    struct grpc_channel *channel = call->channel;

    if (call->ended)
        return;
    call->ended = true;
    sf_timer_stop(&call->deadline);
    if (sf_timer_active(&call->retry)) {
        sf_timer_stop(&call->retry);
        grpc_call_unlink(&channel->resting, call);
    }
    if (call->listed && call->stream_id == 0)
        grpc_call_unlink(&channel->waiting, call);
    if (call->stream_id > 0) {
        (void)nghttp2_submit_rst_stream(call->conn->h2.session, NGHTTP2_FLAG_NONE, call->stream_id,
                                        NGHTTP2_CANCEL);
        sf_h2_mark(&call->conn->h2);
    }
    pthread_mutex_lock(&call->mu);
    call->end = *diag;
    call->finished = true;
    if (diag->err != SF_OK)
        sf_rpc_message_queue_clear(&call->in);
    post_deliver_locked(call);
    pthread_mutex_unlock(&call->mu);
}

static void finish_with(struct grpc_call *call, enum sf_err err, const char *why)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, err, "%s", why);
    grpc_call_finish(call, &diag);
}

static void kick(struct grpc_call *call);

/* Last callback. */
static void tell_done(struct grpc_call *call, const ProtobufCMessage *response)
{
    struct sf_diag end = call->end;

    call->told = true;
    if (!call->unary)
        call->ops->done(call->user, &end);
    else
        call->done(call->user, &end, response);
    grpc_call_release(call);
}

/* One callback; false when there is nothing to tell. */
static bool deliver_step(struct grpc_call *call)
{
    pthread_mutex_lock(&call->mu);
    bool writable = call->writable;
    struct sf_rpc_message *message =
        writable || (call->unary && !call->finished) ? NULL : sf_rpc_message_queue_pop(&call->in);
    bool finished = call->finished;
    call->writable = false;
    if (message != NULL)
        call->eaten += message->bytes;
    pthread_mutex_unlock(&call->mu);

    if (call->told) {
        sf_rpc_message_destroy(message);
        return false;
    }
    if (writable && !finished && call->ops->writable != NULL)
        call->ops->writable(call->user);
    else if (message != NULL && call->unary)
        tell_done(call, message->message);
    else if (message != NULL)
        call->ops->message(call->user, message->message);
    else if (finished)
        tell_done(call, NULL);
    sf_rpc_message_destroy(message);
    return writable || message != NULL;
}

static void on_deliver(struct sf_task *task)
{
    struct grpc_call *call = SF_CONTAINER_OF(task, struct grpc_call, deliver);
    unsigned steps = 0;

    pthread_mutex_lock(&call->mu);
    call->deliver_posted = false;
    pthread_mutex_unlock(&call->mu);
    while (steps < DELIVER_BATCH && deliver_step(call))
        steps++;
    pthread_mutex_lock(&call->mu);
    bool eaten = call->eaten > 0 && !call->finished;
    if (steps == DELIVER_BATCH)
        post_deliver_locked(call);
    pthread_mutex_unlock(&call->mu);
    if (eaten && !call->unary)
        kick(call);
    grpc_call_release(call);
}

/* ---- on the channel's loop: out ---- */

static ssize_t on_read_source(nghttp2_session *session, int32_t stream_id, uint8_t *buf,
                              size_t length, uint32_t *flags, nghttp2_data_source *source,
                              void *user_data)
{
    struct grpc_call *call = source->ptr;
    size_t have = 0;

    (void)session, (void)stream_id, (void)buf, (void)user_data;
    for (struct grpc_out *out = call->out; out != NULL && have <= length; out = out->next)
        have += out->len - out->at;
    bool last = have <= length && call->last_pending;
    if (have == 0 && !last)
        return NGHTTP2_ERR_DEFERRED;
    if (last)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (have > 0)
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    return (ssize_t)(have < length ? have : length);
}

void grpc_call_take_data(struct grpc_call *call, uint8_t *to, size_t len)
{
    size_t taken = len;

    for (struct grpc_out *out = call->out; len > 0; out = call->unary ? out->next : call->out) {
        SF_ASSERT(out != NULL);
        size_t n = out->len - out->at < len ? out->len - out->at : len;
        memcpy(to, out->data + out->at, n);
        out->at += n;
        to += n;
        len -= n;
        if (out->at == out->len && !call->unary) {
            call->out = out->next;
            free(out);
        }
    }
    if (call->unary)
        return;
    pthread_mutex_lock(&call->mu);
    call->out_left -= taken;
    if (call->wants_writable && call->out_left <= SF_LIMIT_RPC_STREAM_BUDGET_BYTES / 2) {
        call->wants_writable = false;
        call->writable = true;
        post_deliver_locked(call);
    }
    pthread_mutex_unlock(&call->mu);
}

#define NV(n, v)                                                                                   \
    {                                                                                              \
        (uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), sizeof(n) - 1, sizeof(v) - 1,        \
            NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE                           \
    }
#define NV_TEXT(n, text)                                                                           \
    {                                                                                              \
        (uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(text), sizeof(n) - 1, strlen(text),      \
            NGHTTP2_NV_FLAG_NO_COPY_NAME                                                           \
    }

bool grpc_call_submit(struct grpc_call *call, struct grpc_conn *conn)
{
    char timeout[SF_GRPC_TIMEOUT_MAX_DIGITS + 2] = "";
    int64_t left_ms = call->deadline_ms - call->channel->loop->now_ms;

    if (call->deadline_ms != INT64_MAX)
        sf_grpc_timeout_format(left_ms > 0 ? left_ms : 1, timeout);
    nghttp2_nv nv[] = {
        NV(":method", "POST"),
        NV(":scheme", "http"),
        NV_TEXT(":path", call->path),
        NV_TEXT(":authority", call->channel->authority),
        NV("te", "trailers"),
        NV("content-type", "application/grpc"),
        NV("user-agent", "searchfabric-grpc-c"),
        NV("grpc-accept-encoding", "identity,gzip"),
        NV_TEXT("grpc-timeout", timeout),
    };
    size_t count = SF_ARRAY_LEN(nv) - (timeout[0] == '\0' ? 1 : 0);
    nghttp2_data_provider provider = {.source = {.ptr = call}, .read_callback = on_read_source};
    int32_t stream_id = nghttp2_submit_request(conn->h2.session, NULL, nv, count, &provider, call);
    if (stream_id < 0)
        return false;
    call->attempts++;
    call->stream_id = stream_id;
    call->conn = conn;
    call->grpc_status = -1;
    call->http_status = 0;
    atomic_fetch_add(&call->refs, 1); /* the stream's */
    grpc_call_link(&conn->calls, call);
    sf_h2_mark(&conn->h2);
    return true;
}

/* Gives bytes of messages that the owner has seen back to the stream's window. */
static void give_window(struct grpc_call *call)
{
    pthread_mutex_lock(&call->mu);
    bool behind = call->in.bytes > KEEP_BACK_BYTES;
    call->eaten = 0;
    pthread_mutex_unlock(&call->mu);
    if (behind || call->unconsumed == 0 || call->stream_id == 0)
        return;
    (void)nghttp2_session_consume_stream(call->conn->h2.session, call->stream_id, call->unconsumed);
    call->unconsumed = 0;
    sf_h2_mark(&call->conn->h2);
}

static void on_deadline(struct sf_timer *timer)
{
    finish_with(SF_CONTAINER_OF(timer, struct grpc_call, deadline), SF_DEADLINE_EXCEEDED,
                "no answer before the deadline");
}

static void start(struct grpc_call *call)
{
    call->started = true;
    if (call->ended)
        return;
    if (call->deadline_ms != INT64_MAX) {
        int64_t left_ms = call->deadline_ms - call->channel->loop->now_ms;
        sf_timer_start(&call->deadline, left_ms > 0 ? left_ms : 0);
    }
    if (call->method == NULL) {
        struct sf_diag diag;
        sf_diag_init(&diag);
        (void)sf_contract_unserved(sf_view_str(call->path), &diag);
        grpc_call_finish(call, &diag);
    } else {
        grpc_channel_place(call->channel, call);
    }
}

/* What the caller did since. */
static void push(struct grpc_call *call)
{
    pthread_mutex_lock(&call->mu);
    struct grpc_out *fresh = call->pending;
    struct grpc_out *tail = call->pending_tail;
    bool cancelled = call->cancelled;
    bool was_last = call->last_pending;
    call->pending = call->pending_tail = NULL;
    call->last_pending = call->half_closed;
    pthread_mutex_unlock(&call->mu);

    if (fresh != NULL) {
        if (call->out == NULL)
            call->out = fresh;
        else
            call->out_tail->next = fresh;
        call->out_tail = tail;
    }
    if (!call->started)
        start(call);
    if (cancelled) {
        finish_with(call, SF_CANCELLED, "cancelled by the caller");
    } else if (call->stream_id > 0 && (fresh != NULL || was_last != call->last_pending)) {
        (void)nghttp2_session_resume_data(call->conn->h2.session, call->stream_id);
        sf_h2_mark(&call->conn->h2);
    }
    give_window(call);
}

static void on_hop(struct sf_task *task)
{
    struct grpc_call *call = SF_CONTAINER_OF(task, struct grpc_call, hop);

    pthread_mutex_lock(&call->mu);
    call->hop_posted = false;
    pthread_mutex_unlock(&call->mu);
    push(call);
    grpc_call_release(call);
}

/* Wakes the channel's loop; always by a task, so that no callback runs within a caller's call. */
static void kick(struct grpc_call *call)
{
    pthread_mutex_lock(&call->mu);
    if (!call->hop_posted) {
        call->hop_posted = true;
        atomic_fetch_add(&call->refs, 1);
        sf_loop_post(call->channel->loop, &call->hop);
    }
    pthread_mutex_unlock(&call->mu);
}

/* ---- on the channel's loop: in ---- */

void grpc_call_header(struct grpc_call *call, struct sf_view name, struct sf_view value)
{
    call->header_bytes += name.len + value.len + 32;
    if (call->header_bytes > 4 * (size_t)SF_LIMIT_RPC_METADATA_BYTES) {
        finish_with(call, SF_ERR_LIMIT, "the answer's metadata is too large");
        return;
    }
    if (sf_view_equal(name, sf_view_str(":status"))) {
        uint64_t status = 0;
        for (size_t i = 0; i < value.len && i < 3; i++)
            status = status * 10 + (uint64_t)(value.ptr[i] - '0');
        call->http_status = (int)status;
    } else if (sf_view_equal(name, sf_view_str("grpc-status"))) {
        int status = 0;
        for (size_t i = 0; i < value.len && i < 3; i++)
            status = status * 10 + (value.ptr[i] - '0');
        call->grpc_status =
            status >= 0 && status <= SF_GRPC_UNAUTHENTICATED ? status : SF_GRPC_UNKNOWN;
    } else if (sf_view_equal(name, sf_view_str("grpc-message"))) {
        sf_buf_clear(&call->grpc_message);
        sf_grpc_message_decode(value, &call->grpc_message);
    } else if (sf_view_equal(name, sf_view_str("grpc-status-details-bin"))) {
        sf_buf_clear(&call->details);
        (void)sf_base64_decode(value, &call->details);
    } else if (sf_view_equal(name, sf_view_str("grpc-encoding"))) {
        call->gzip = sf_view_equal(value, sf_view_str("gzip"));
    }
}

static bool take_message(struct grpc_call *call, bool compressed, struct sf_view bytes)
{
    struct sf_buf inflated = {0};
    struct sf_diag diag;
    bool too_large;

    sf_diag_init(&diag);
    if (compressed) {
        if (!call->gzip ||
            !sf_gzip_inflate(bytes, SF_LIMIT_RPC_MESSAGE_BYTES, &inflated, &too_large)) {
            sf_buf_fini(&inflated);
            finish_with(call, SF_INTERNAL, "a compressed message cannot be read");
            return false;
        }
        bytes = sf_buf_view(&inflated);
    }
    struct sf_rpc_message *message = sf_calloc(1, sizeof(*message));
    message->arena = sf_arena_new(SF_LIMIT_RPC_ARENA_BYTES);
    message->bytes = bytes.len;
    message->message = sf_rpc_unpack(call->method->output, bytes, message->arena, &diag);
    sf_buf_fini(&inflated);
    pthread_mutex_lock(&call->mu);
    bool second = call->unary && call->in.head != NULL;
    bool ok = message->message != NULL && !second;
    if (ok) {
        sf_rpc_message_queue_push(&call->in, message);
        if (!call->unary)
            post_deliver_locked(call);
    }
    pthread_mutex_unlock(&call->mu);
    if (ok)
        return true;
    sf_rpc_message_destroy(message);
    if (second)
        finish_with(call, SF_INTERNAL, "two messages in a unary answer");
    else
        grpc_call_finish(call, &diag);
    return false;
}

void grpc_call_data(struct grpc_call *call, struct sf_view bytes)
{
    bool more = !call->ended;

    call->unconsumed += bytes.len;
    if (more)
        sf_frame_reader_feed(&call->reader, bytes);
    while (more) {
        struct sf_view message;
        bool compressed;
        switch (sf_frame_reader_next(&call->reader, &compressed, &message)) {
        case SF_FRAME_MESSAGE:
            more = take_message(call, compressed, message);
            break;
        case SF_FRAME_MORE:
            more = false;
            break;
        case SF_FRAME_TOO_LARGE:
            finish_with(call, SF_ERR_LIMIT, "a message is above the limit");
            more = false;
            break;
        case SF_FRAME_BAD:
            finish_with(call, SF_INTERNAL, "malformed message prefix");
            more = false;
            break;
        }
    }
    if (call->ended)
        sf_frame_reader_fini(&call->reader);
    else
        sf_frame_reader_keep(&call->reader);
    give_window(call);
}

/* The end as the server told it. */
static void finish_by_status(struct grpc_call *call)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    (void)sf_error_status_decode(call->grpc_status, sf_buf_view(&call->grpc_message),
                                 sf_buf_view(&call->details), &diag);
    pthread_mutex_lock(&call->mu);
    bool empty = call->unary && call->in.head == NULL;
    pthread_mutex_unlock(&call->mu);
    if (diag.err == SF_OK && empty)
        (void)sf_diag_set(&diag, SF_INTERNAL, "the answer has no message");
    else if (diag.err == SF_OK && sf_frame_reader_pending_bytes(&call->reader) > 0)
        (void)sf_diag_set(&diag, SF_INTERNAL, "the answer ends within a message");
    grpc_call_finish(call, &diag);
}

static void finish_without_status(struct grpc_call *call, uint32_t error_code)
{
    char why[96];

    if (call->http_status != 0 && call->http_status != 200) {
        (void)snprintf(why, sizeof(why), "HTTP status %d", call->http_status);
        finish_with(call, call->http_status >= 500 ? SF_BACKEND_UNAVAILABLE : SF_INTERNAL, why);
        return;
    }
    (void)snprintf(why, sizeof(why), "the stream ended without a status (HTTP/2 error %u)",
                   error_code);
    finish_with(call, SF_BACKEND_UNAVAILABLE, why);
}

static void on_retry(struct sf_timer *timer)
{
    struct grpc_call *call = SF_CONTAINER_OF(timer, struct grpc_call, retry);

    grpc_call_unlink(&call->channel->resting, call);
    grpc_channel_place(call->channel, call);
}

/* The server never looked at the call: once more, at once after a GOAWAY, else after a pause. */
static void retry_later(struct grpc_call *call)
{
    struct grpc_channel *channel = call->channel;
    int64_t delay_ms = channel->conn == NULL ? 0 : (int64_t)RETRY_FIRST_MS << call->attempts;

    call->out->at = 0;
    sf_frame_reader_fini(&call->reader);
    call->unconsumed = 0;
    grpc_call_link(&channel->resting, call);
    sf_timer_init(&call->retry, channel->loop, on_retry);
    sf_timer_start(&call->retry,
                   delay_ms / 2 + (int64_t)sf_rng_below(&channel->rng, (uint64_t)delay_ms + 1));
}

void grpc_call_stream_closed(struct grpc_call *call, uint32_t error_code)
{
    struct grpc_conn *conn = call->conn;

    grpc_call_unlink(&conn->calls, call);
    call->stream_id = 0;
    call->conn = NULL;
    if (!call->ended) {
        if (call->grpc_status >= 0) {
            finish_by_status(call);
        } else if (error_code == NGHTTP2_REFUSED_STREAM && call->unary &&
                   call->attempts < MAX_ATTEMPTS) {
            retry_later(call);
        } else {
            finish_without_status(call, error_code);
        }
    }
    sf_h2_mark(&conn->h2);
    grpc_call_release(call);
}

/* ---- what callers call ---- */

static struct grpc_call *call_new(struct grpc_channel *channel, const char *method,
                                  const struct sf_call_options *options, struct sf_loop *loop,
                                  void *user)
{
    struct grpc_call *call = sf_calloc(1, sizeof(*call));

    call->channel = channel;
    grpc_channel_acquire(channel);
    call->method = sf_map_get(channel->methods, sf_view_str(method));
    call->path = sf_strdup(method);
    call->loop = loop;
    call->user = user;
    call->deadline_ms = INT64_MAX;
    if (options->timeout_ms > 0) {
        int64_t now_ms = sf_clock_mono_ms(channel->loop->clock);
        if (options->timeout_ms < INT64_MAX - now_ms)
            call->deadline_ms = now_ms + options->timeout_ms;
    }
    atomic_init(&call->refs, 1);
    SF_ASSERT(pthread_mutex_init(&call->mu, NULL) == 0);
    sf_diag_init(&call->end);
    call->hop.run = on_hop;
    call->deliver.run = on_deliver;
    sf_timer_init(&call->deadline, channel->loop, on_deadline);
    call->reader.max_message_bytes = SF_LIMIT_RPC_MESSAGE_BYTES;
    call->grpc_status = -1;
    return call;
}

void grpc_channel_unary(struct sf_channel *base, const char *method,
                        const ProtobufCMessage *request, const struct sf_call_options *options,
                        struct sf_loop *loop, sf_unary_done_fn done, void *user)
{
    struct grpc_channel *channel = SF_CONTAINER_OF(base, struct grpc_channel, base);
    struct grpc_call *call = call_new(channel, method, options, loop, user);

    call->unary = true;
    call->done = done;
    call->half_closed = true;
    call->pending = call->pending_tail = out_new(request);
    if (call->pending == NULL) {
        pthread_mutex_lock(&call->mu);
        (void)sf_diag_set(&call->end, SF_ERR_LIMIT, "the request is above %u bytes",
                          SF_LIMIT_RPC_MESSAGE_BYTES);
        call->finished = true;
        post_deliver_locked(call);
        pthread_mutex_unlock(&call->mu);
        return;
    }
    kick(call);
}

static struct grpc_call *of_stream(struct sf_client_stream *stream)
{
    return SF_CONTAINER_OF(stream, struct grpc_call, base);
}

static enum sf_err stream_send(struct sf_client_stream *stream, const ProtobufCMessage *message)
{
    struct grpc_call *call = of_stream(stream);
    struct grpc_out *out = out_new(message);
    enum sf_err err = SF_OK;

    if (out == NULL)
        return SF_ERR_LIMIT;
    pthread_mutex_lock(&call->mu);
    if (call->finished || call->half_closed || call->cancelled) {
        err = SF_ERR_STOPPED;
    } else if (call->out_left > 0 && call->out_left + out->len > SF_LIMIT_RPC_STREAM_BUDGET_BYTES) {
        call->wants_writable = true;
        err = SF_ERR_FULL;
    } else {
        if (call->pending == NULL)
            call->pending = out;
        else
            call->pending_tail->next = out;
        call->pending_tail = out;
        call->out_left += out->len;
    }
    pthread_mutex_unlock(&call->mu);
    if (err == SF_OK)
        kick(call);
    else
        free(out);
    return err;
}

static void stream_half_close(struct sf_client_stream *stream)
{
    struct grpc_call *call = of_stream(stream);

    pthread_mutex_lock(&call->mu);
    call->half_closed = true;
    pthread_mutex_unlock(&call->mu);
    kick(call);
}

static void stream_cancel(struct sf_client_stream *stream)
{
    struct grpc_call *call = of_stream(stream);

    pthread_mutex_lock(&call->mu);
    call->cancelled = true;
    pthread_mutex_unlock(&call->mu);
    kick(call);
}

static const struct sf_client_stream_vtable stream_vtable = {
    .send = stream_send,
    .half_close = stream_half_close,
    .cancel = stream_cancel,
};

struct sf_client_stream *grpc_channel_stream(struct sf_channel *base, const char *method,
                                             const struct sf_call_options *options,
                                             struct sf_loop *loop,
                                             const struct sf_client_stream_ops *ops, void *user)
{
    struct grpc_channel *channel = SF_CONTAINER_OF(base, struct grpc_channel, base);
    struct grpc_call *call = call_new(channel, method, options, loop, user);

    SF_ASSERT(loop != NULL);
    call->base.vtable = &stream_vtable;
    call->ops = ops;
    kick(call);
    return &call->base;
}
