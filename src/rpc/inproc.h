/* The in-process channel's two halves: unary calls (inproc.c) and streams (inproc_stream.c). */
#ifndef SF_RPC_INPROC_H
#define SF_RPC_INPROC_H

#include <pthread.h>

#include "rpc/rpc_priv.h"

struct sf_inproc_stream;

struct sf_inproc {
    struct sf_channel base; /* first: what callers hold */

    /* immutable */
    struct sf_clock *clock;          /* of deadlines */
    struct sf_rpc_registry registry; /* what is served */
    struct sf_identity identity;     /* name owned */

    /* atomic */
    atomic_uint refs; /* the owner's and one per open call */

    /* under mu */
    pthread_mutex_t mu;               /* guards what follows */
    struct sf_inproc_stream *streams; /* open ones, doubly linked */
};

void sf_inproc_acquire(struct sf_inproc *channel);
void sf_inproc_release(struct sf_inproc *channel);

/* Sets identity and deadline of a call; the identity's name is copied to the call's arena. */
void sf_inproc_call_set(struct sf_inproc *channel, struct sf_call *call,
                        const struct sf_call_options *options, struct sf_loop *loop);

struct sf_client_stream *sf_inproc_stream_open(struct sf_channel *channel, const char *method,
                                               const struct sf_call_options *options,
                                               struct sf_loop *loop,
                                               const struct sf_client_stream_ops *ops, void *user);

/* Ends a stream with SF_ERR_STOPPED; under channel->mu; any thread. */
void sf_inproc_stream_stop_locked(struct sf_inproc_stream *stream);

/* Next in the channel's list; under channel->mu. */
struct sf_inproc_stream *sf_inproc_stream_next_locked(struct sf_inproc_stream *stream);

#endif
