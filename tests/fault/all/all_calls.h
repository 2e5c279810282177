/*
 * Calls of clients to nodes. A call enters the node's process on its edge loop, so that a paused
 * node does nothing for it; a client may lose patience and leave the call behind: what it answers
 * later still counts as an answer and is judged.
 */
#ifndef SF_TESTS_SIM_ALL_CALLS_H
#define SF_TESTS_SIM_ALL_CALLS_H

#include "fault/all/all_node.h"
#include "searchfabric/v1/search_fabric.pb-c.h"

enum all_role { ALL_CATALOG, ALL_ALLOCATOR, ALL_INGEST };

struct all_call;

/* Called for each answer of a live node, also one that nobody waits for. Not for a lost one. */
typedef void (*all_answer_fn)(struct all_call *call);

struct all_call {
    /* set by the maker */
    enum all_role role;
    const char *method;              /* full path; of ALL_INGEST not used */
    const ProtobufCMessage *request; /* in `arena`; of ALL_INGEST a MutationBatch */
    all_answer_fn answered;          /* NULL = nobody judges */
    void *ctx;                       /* for it */
    unsigned index;                  /* for it */
    int64_t started_ms;              /* virtual time of the send */
    uint64_t floor[3];               /* for it: facts that were known at the send */

    /* results, valid when `counts` */
    bool counts;            /* a live node answered */
    enum sf_err err;        /* SF_OK or what refused it */
    struct sf_diag diag;    /* of a refusal */
    struct sf_buf response; /* packed response or ack, with SF_OK */

    /* private */
    struct sf_arena *arena; /* owned */
    struct all_cluster *cluster;
    struct sim_node *where;
    struct all_node *node;
    uint64_t life;
    struct sf_task task;
    struct sf_timer patience;
    struct sf_client_stream *stream;
    struct sf_waiter waiter;
    bool waiting;  /* the client still does */
    unsigned refs; /* the client's and the node's */
};

/* A call whose request is built in call->arena. */
struct all_call *all_call_new(struct all_cluster *cluster, enum all_role role, const char *method);

/* Sends it to node `index` and waits at most `patience_ms`; on a client's task. False when the node
 * is down or did not answer in time. Once for each call. */
bool all_call_run(struct all_call *call, struct sim_process *client, unsigned index,
                  int64_t patience_ms);

/* The client's share. */
void all_call_release(struct all_call *call);

#endif
