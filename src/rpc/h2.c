/*
 * Flushing. nghttp2_session_mem_send gives one frame a call; frames are gathered in the context's
 * scratch buffer. DATA frames are written there by sf_h2_send_data straight from the call's queue;
 * when one does not fit, the frame waits in nghttp2 (WOULDBLOCK) until the scratch was written.
 *
 * A write that the socket takes only in part leaves its rest in the stash and a uv_write behind it;
 * until that is done the connection makes no more bytes, so that a peer that does not read costs at
 * most one scratch of memory here.
 */
#include "rpc/h2.h"

#include <stdlib.h>

#include "base/mem.h"
#include "exec/reactor.h"

static void flush(struct sf_h2 *h2);

static void on_again(uv_idle_t *handle)
{
    (void)handle; /* being active is its purpose */
}

/* Flushes what is dirty now. What becomes dirty meanwhile has its turn in the next phase of the
 * loop, so that a peer that takes all it gets does not keep the others waiting. */
static void flush_all(struct sf_h2_ctx *ctx)
{
    struct sf_h2 *batch = ctx->dirty;

    if (batch == NULL) {
        (void)uv_idle_stop(&ctx->again); /* what was left over may have been closed meanwhile */
        return;
    }
    ctx->dirty = NULL;
    ctx->batch = batch;
    while ((batch = ctx->batch) != NULL) {
        ctx->batch = batch->next;
        batch->dirty = false;
        flush(batch);
    }
    if (ctx->dirty != NULL)
        (void)uv_idle_start(&ctx->again, on_again);
    else
        (void)uv_idle_stop(&ctx->again);
}

static void on_prepare(uv_prepare_t *handle)
{
    flush_all(handle->data);
}

static void on_check(uv_check_t *handle)
{
    flush_all(handle->data);
}

void sf_h2_ctx_init(struct sf_h2_ctx *ctx, struct sf_loop *loop, sf_h2_ctx_closed_fn closed)
{
    uv_loop_t *uv = sf_reactor_uv(loop);

    ctx->loop = loop;
    ctx->dirty = NULL;
    ctx->scratch_len = 0;
    ctx->scratch_full = false;
    ctx->closed = closed;
    ctx->batch = NULL;
    ctx->open_handles = 3;
    (void)uv_idle_init(uv, &ctx->again);
    (void)uv_prepare_init(uv, &ctx->prepare);
    (void)uv_check_init(uv, &ctx->check);
    ctx->prepare.data = ctx->check.data = ctx->again.data = ctx;
    (void)uv_prepare_start(&ctx->prepare, on_prepare);
    (void)uv_check_start(&ctx->check, on_check);
}

static void on_ctx_handle_closed(uv_handle_t *handle)
{
    struct sf_h2_ctx *ctx = handle->data;

    if (--ctx->open_handles == 0)
        ctx->closed(ctx);
}

void sf_h2_ctx_close(struct sf_h2_ctx *ctx)
{
    uv_close((uv_handle_t *)&ctx->prepare, on_ctx_handle_closed);
    uv_close((uv_handle_t *)&ctx->check, on_ctx_handle_closed);
    uv_close((uv_handle_t *)&ctx->again, on_ctx_handle_closed);
}

void sf_h2_init(struct sf_h2 *h2, struct sf_h2_ctx *ctx, const struct sf_h2_ops *ops)
{
    *h2 = (struct sf_h2){.ctx = ctx, .ops = ops, .last_recv_ms = ctx->loop->now_ms};
    (void)uv_tcp_init(sf_reactor_uv(ctx->loop), &h2->tcp);
    h2->tcp.data = h2;
    h2->write.data = h2;
}

void sf_h2_mark(struct sf_h2 *h2)
{
    if (h2->dirty || h2->closing)
        return;
    h2->dirty = true;
    h2->next = h2->ctx->dirty;
    h2->ctx->dirty = h2;
}

static void on_closed(uv_handle_t *handle)
{
    struct sf_h2 *h2 = handle->data;

    sf_reactor_turn(h2->ctx->loop);
    free(h2->stash);
    h2->stash = NULL;
    h2->ops->closed(h2, h2->reason);
}

static void unlist(struct sf_h2 **list, struct sf_h2 *h2)
{
    while (*list != NULL && *list != h2)
        list = &(*list)->next;
    if (*list != NULL)
        *list = h2->next;
}

void sf_h2_close(struct sf_h2 *h2, const char *reason)
{
    if (h2->closing)
        return;
    h2->closing = true;
    h2->reason = reason;
    if (h2->dirty) {
        unlist(&h2->ctx->dirty, h2);
        unlist(&h2->ctx->batch, h2);
        h2->dirty = false;
    }
    uv_close((uv_handle_t *)&h2->tcp, on_closed);
}

int sf_h2_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *framehd,
                    size_t length, nghttp2_data_source *source, void *user_data)
{
    struct sf_h2 *h2 = user_data;
    struct sf_h2_ctx *ctx = h2->ctx;

    (void)session, (void)source;
    SF_ASSERT(frame->data.padlen == 0);
    /* The slack stays free: nghttp2 may go on to a frame of its own, such as this call's trailers,
     * before it comes back. */
    if (ctx->scratch_len + SF_H2_FRAME_HD_BYTES + length > SF_H2_SCRATCH_BYTES) {
        ctx->scratch_full = true;
        return NGHTTP2_ERR_WOULDBLOCK;
    }
    memcpy(ctx->scratch + ctx->scratch_len, framehd, SF_H2_FRAME_HD_BYTES);
    h2->ops->take_data(h2, frame->hd.stream_id,
                       ctx->scratch + ctx->scratch_len + SF_H2_FRAME_HD_BYTES, length);
    ctx->scratch_len += SF_H2_FRAME_HD_BYTES + length;
    return 0;
}

/* Fills the scratch with frames; false when the session is broken. */
static bool make_frames(struct sf_h2 *h2)
{
    struct sf_h2_ctx *ctx = h2->ctx;
    bool ok = true;

    ctx->scratch_len = 0;
    ctx->scratch_full = false;
    while (!ctx->scratch_full && ctx->scratch_len < SF_H2_SCRATCH_BYTES) {
        const uint8_t *bytes;
        ssize_t n = nghttp2_session_mem_send(h2->session, &bytes);
        if (n <= 0) {
            ok = n == 0;
            break;
        }
        SF_ASSERT((size_t)n <= sizeof(ctx->scratch) - ctx->scratch_len);
        memcpy(ctx->scratch + ctx->scratch_len, bytes, (size_t)n);
        ctx->scratch_len += (size_t)n;
    }
    return ok;
}

static void on_written(uv_write_t *req, int status)
{
    struct sf_h2 *h2 = req->data;

    free(h2->stash);
    h2->stash = NULL;
    if (h2->closing)
        return;
    sf_reactor_turn(h2->ctx->loop);
    if (status < 0)
        sf_h2_close(h2, "write_failed");
    else
        sf_h2_mark(h2);
}

/* Writes the scratch; false when the socket did not take all of it. */
static bool write_scratch(struct sf_h2 *h2)
{
    struct sf_h2_ctx *ctx = h2->ctx;
    uv_buf_t buf = uv_buf_init((char *)ctx->scratch, (unsigned)ctx->scratch_len);
    int n = uv_try_write((uv_stream_t *)&h2->tcp, &buf, 1);

    if (n == UV_EAGAIN)
        n = 0;
    if (n < 0) {
        sf_h2_close(h2, "write_failed");
        return false;
    }
    if ((size_t)n == ctx->scratch_len)
        return true;
    h2->stash_len = ctx->scratch_len - (size_t)n;
    h2->stash = sf_memdup(ctx->scratch + n, h2->stash_len);
    buf = uv_buf_init((char *)h2->stash, (unsigned)h2->stash_len);
    if (uv_write(&h2->write, (uv_stream_t *)&h2->tcp, &buf, 1, on_written) != 0) {
        free(h2->stash);
        h2->stash = NULL;
        sf_h2_close(h2, "write_failed");
    }
    return false;
}

/* True while bytes may be made for the connection. */
static bool takes_bytes(const struct sf_h2 *h2)
{
    return !h2->closing && h2->stash == NULL && h2->session != NULL;
}

static void flush(struct sf_h2 *h2)
{
    bool more = takes_bytes(h2);
    unsigned writes = 0;

    for (; more && writes < SF_H2_FLUSH_WRITES; writes++) {
        if (!make_frames(h2)) {
            sf_h2_close(h2, "session_failed");
            return;
        }
        more = h2->ctx->scratch_len > 0 && write_scratch(h2);
        if (h2->ops->flushed != NULL && !h2->closing)
            h2->ops->flushed(h2);
        more = more && takes_bytes(h2);
    }
    if (more)
        sf_h2_mark(h2);
    else if (takes_bytes(h2) && !nghttp2_session_want_read(h2->session) &&
             !nghttp2_session_want_write(h2->session))
        sf_h2_close(h2, "finished");
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct sf_h2 *h2 = handle->data;

    (void)suggested;
    *buf = uv_buf_init(h2->ctx->read, sizeof(h2->ctx->read));
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct sf_h2 *h2 = stream->data;

    if (h2->closing || nread == 0)
        return;
    sf_reactor_turn(h2->ctx->loop);
    if (nread < 0) {
        sf_h2_close(h2, nread == UV_EOF ? "peer_closed" : "read_failed");
        return;
    }
    h2->last_recv_ms = h2->ctx->loop->now_ms;
    ssize_t taken =
        nghttp2_session_mem_recv(h2->session, (const uint8_t *)buf->base, (size_t)nread);
    if (taken != nread) {
        sf_h2_close(h2, "protocol_error");
        return;
    }
    if (h2->ops->received != NULL && !h2->closing)
        h2->ops->received(h2);
    sf_h2_mark(h2);
}

void sf_h2_start(struct sf_h2 *h2)
{
    (void)uv_tcp_nodelay(&h2->tcp, 1);
    if (uv_read_start((uv_stream_t *)&h2->tcp, on_alloc, on_read) != 0)
        sf_h2_close(h2, "read_failed");
    sf_h2_mark(h2);
}
