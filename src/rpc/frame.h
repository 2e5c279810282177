/*
 * gRPC's message framing: one byte "compressed", four bytes length, the message. The reader takes
 * the bytes as they come and gives messages; a message that came whole is given where it lies,
 * without a copy. Buffers grow with what arrives, never with what a prefix announces. Fuzzed.
 */
#ifndef SF_RPC_FRAME_H
#define SF_RPC_FRAME_H

#include "base/buf.h"

#define SF_GRPC_PREFIX_BYTES 5u

/* Zero-initialise and set `max_message_bytes`; sf_frame_reader_fini frees. */
struct sf_frame_reader {
    size_t max_message_bytes; /* longest message taken */
    struct sf_buf kept;       /* bytes of earlier feeds, from `at` on not yet given */
    struct sf_view borrowed;  /* rest of the present feed while nothing is kept */
    size_t at;                /* consumed bytes of `kept` */
};

enum sf_frame_result {
    SF_FRAME_MESSAGE,   /* one message */
    SF_FRAME_MORE,      /* needs more bytes */
    SF_FRAME_TOO_LARGE, /* the prefix announces more than max_message_bytes */
    SF_FRAME_BAD        /* the first byte is neither 0 nor 1 */
};

void sf_frame_reader_fini(struct sf_frame_reader *reader);

/* Adds bytes, borrowed until sf_frame_reader_keep. */
void sf_frame_reader_feed(struct sf_frame_reader *reader, struct sf_view bytes);

/* The next message; the view is valid until the next call of next, feed or keep. */
enum sf_frame_result sf_frame_reader_next(struct sf_frame_reader *reader, bool *out_compressed,
                                          struct sf_view *out_message);

/* Copies what is left of the borrowed bytes, which may go away then. */
void sf_frame_reader_keep(struct sf_frame_reader *reader);

/* Bytes fed and not yet given as messages. */
size_t sf_frame_reader_pending_bytes(const struct sf_frame_reader *reader);

/* Inflates one gzip stream of `bytes` into `out` (appended), at most `max_bytes`. False when it is
 * malformed, has bytes behind its end, or is larger. *out_too_large tells the last. */
bool sf_gzip_inflate(struct sf_view bytes, size_t max_bytes, struct sf_buf *out,
                     bool *out_too_large);

#endif
