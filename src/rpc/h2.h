/*
 * One HTTP/2 connection: a libuv socket with an nghttp2 session on it, for server and client alike.
 * Bytes in go to the session as they come; bytes out are made once per wake-up: whoever submits
 * something marks the connection dirty, and before the loop sleeps each dirty connection is flushed
 * with one write per SF_H2_SCRATCH_BYTES. While the socket does not take more, nothing is made.
 *
 * Thread: all on the context's loop.
 */
#ifndef SF_RPC_H2_H
#define SF_RPC_H2_H

#include <nghttp2/nghttp2.h>
#include <uv.h>

#include "exec/loop.h"
#include "rpc/rpc_priv.h"

#define SF_H2_SCRATCH_BYTES  (64u << 10) /* one write */
#define SF_H2_SLACK_BYTES    (20u << 10) /* one more frame that nghttp2 made itself */
#define SF_H2_FRAME_HD_BYTES 9u
#define SF_H2_FLUSH_WRITES   16 /* of one connection in one turn; then the others have theirs */

struct sf_h2;
struct sf_h2_ctx;

/* Called once the context's handles are closed. */
typedef void (*sf_h2_ctx_closed_fn)(struct sf_h2_ctx *ctx);

/* What connections of one owner on one loop share. */
struct sf_h2_ctx {
    struct sf_loop *loop;       /* of all its connections */
    void *owner;                /* the owner's, for `closed` */
    uv_prepare_t prepare;       /* flushes before the loop polls */
    uv_check_t check;           /* flushes after the loop polled */
    uv_idle_t again;            /* active while `dirty` is not empty: the loop must not sleep */
    struct sf_h2 *dirty;        /* connections to flush */
    struct sf_h2 *batch;        /* those of them that are being flushed */
    size_t scratch_len;         /* bytes made, not yet written */
    bool scratch_full;          /* a frame did not fit: write first */
    unsigned open_handles;      /* not closed yet, of the three */
    sf_h2_ctx_closed_fn closed; /* told when none is open */
    uint8_t scratch[SF_H2_SCRATCH_BYTES + SF_H2_SLACK_BYTES]; /* what a flush makes */
    char read[64u << 10];                                     /* what a read brings */
};

struct sf_h2_ops {
    /* After each batch of received bytes, before the flush; may be NULL. */
    void (*received)(struct sf_h2 *h2);
    /* After each flush that made room (bytes left for the socket); may be NULL. */
    void (*flushed)(struct sf_h2 *h2);
    /* The socket is closed: free session and connection. `reason` is static text. */
    void (*closed)(struct sf_h2 *h2, const char *reason);
    /* Copies `len` bytes of DATA payload of a stream to `out`. */
    void (*take_data)(struct sf_h2 *h2, int32_t stream_id, uint8_t *out, size_t len);
};

/* Embedded in the owner's connection. */
struct sf_h2 {
    struct sf_h2_ctx *ctx;       /* of its loop */
    const struct sf_h2_ops *ops; /* the owner's */
    nghttp2_session *session;    /* owned by the owner; may be NULL until the socket is connected */
    uv_tcp_t tcp;                /* the socket */
    uv_write_t write;            /* of the stash */
    uint8_t *stash;              /* bytes that the socket did not take, NULL when none */
    size_t stash_len;            /* their number */
    struct sf_h2 *next;          /* in ctx->dirty */
    int64_t last_recv_ms;        /* when bytes came last */
    const char *reason;          /* why it closes */
    bool dirty;                  /* in ctx->dirty */
    bool closing;                /* uv_close was called */
};

/* `closed` is called after sf_h2_ctx_close, once. */
void sf_h2_ctx_init(struct sf_h2_ctx *ctx, struct sf_loop *loop, sf_h2_ctx_closed_fn closed);
void sf_h2_ctx_close(struct sf_h2_ctx *ctx);

/* Sets up a connection without a socket. */
void sf_h2_init(struct sf_h2 *h2, struct sf_h2_ctx *ctx, const struct sf_h2_ops *ops);

/* Starts to read; the session must be set. */
void sf_h2_start(struct sf_h2 *h2);

/* Flushes later in this turn. */
void sf_h2_mark(struct sf_h2 *h2);

/* Closes the socket; ops->closed follows in a later turn. Harmless when it closes already.
 * `reason` is static text; the first one counts. */
void sf_h2_close(struct sf_h2 *h2, const char *reason);

/* nghttp2's callback for DATA frames without copies; set it in every session's callbacks. The user
 * data of the session is the struct sf_h2. */
int sf_h2_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *framehd,
                    size_t length, nghttp2_data_source *source, void *user_data);

#endif
