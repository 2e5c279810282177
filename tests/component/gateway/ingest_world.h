/*
 * A small world around the ingest gateway: a loop turned by hand, a fake catalog and a fake
 * coordinator that answer when and what the test says, a source of timestamps that counts. Batches
 * go in over the in-process channel.
 */
#ifndef SF_TESTS_INGEST_WORLD_H
#define SF_TESTS_INGEST_WORLD_H

#include "gateway/ingest.h"
#include "support/proves.h"
#include "unit/gateway/gateway_fixture.h"
#include "unit/rpc/manual_loop.h"

#define WORLD_MAX 1024

struct world {
    struct manual_loop loop;
    struct sf_keyring *keyring;
    struct sf_metrics *metrics;
    struct sf_arena *arena; /* of everything that is kept */

    /* catalog */
    struct state_fixture facts; /* what it answers with; edited by the test */
    struct sf_service catalog;
    struct sf_channel *catalog_channel;
    bool catalog_holds;              /* reads wait for world_catalog_release */
    enum sf_err catalog_err;         /* reads fail with it */
    struct sf_call *held[WORLD_MAX]; /* waiting reads */
    unsigned held_count;
    unsigned reads;        /* admission reads */
    unsigned not_modified; /* of these, confirmed */

    /* coordinator */
    struct sf_service coordinator;
    struct sf_channel *coordinator_channel;
    struct sf_call *coordinator_call; /* the open stream, NULL = none */
    unsigned streams;                 /* opened in all */
    const Searchfabric__V1__SubmitPlannedBatchRequest *planned[WORLD_MAX]; /* in order */
    unsigned planned_count;

    /* timestamps */
    struct sf_tso_source tso;
    uint64_t tso_next;
    enum sf_err tso_err;

    /* gateway and its client */
    struct sf_ingest_grants grants;
    bool forbid; /* grants refuse */
    struct sf_ingest *ingest;
    struct sf_channel *channel;
    struct sf_client_stream *stream;
    const Searchfabric__V1__StreamOpened *opened;
    const Searchfabric__V1__MutationAck *acks[WORLD_MAX];
    unsigned ack_count;
    bool done;          /* the stream has ended */
    struct sf_diag end; /* how */
};

void world_init(struct world *w);
void world_fini(struct world *w);

/* Opens a stream as `identity` (NULL = loopback); sends nothing. */
void world_stream(struct world *w, const char *identity);

/* Opens a stream as `identity` (NULL = loopback) of a client of this kind; sends the open. */
void world_open(struct world *w, const char *identity, Searchfabric__V1__ClientKind kind);

/* Sends a batch and turns the loop. */
void world_send(struct world *w, const Searchfabric__V1__MutationBatch *batch);

/* The same without turning the loop; the send's result. */
enum sf_err world_queue(struct world *w, const Searchfabric__V1__MutationBatch *batch);

void world_run(struct world *w);
void world_catalog_release(struct world *w);

/* Events of the coordinator for submission number `i` of `planned`. */
void world_admit(struct world *w, unsigned i, bool duplicate, uint64_t commit_ts);
void world_gate(struct world *w, unsigned i, Searchfabric__V1__BatchGate gate);
void world_refuse(struct world *w, unsigned i, Searchfabric__V1__BatchRefusal refusal);

/* Signs `facts` as the allocator would and puts the receipt into the batch. */
struct sf_receipt_facts;
void world_receipt(struct world *w, const struct sf_receipt_facts *facts,
                   Searchfabric__V1__MutationBatch *batch);

/* The value of a diagnostics key of an ack's error, "" when it is not there. */
const char *ack_detail(const Searchfabric__V1__MutationAck *ack, const char *key);

#endif
