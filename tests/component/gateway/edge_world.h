/*
 * The Elasticsearch edge on a real port between a real HTTP client and fake services: a catalog
 * with one index, an allocator that follows the note's arithmetic on one watermark, an ingest
 * gateway that answers as told. Everything that the edge asked is recorded.
 */
#ifndef SF_TESTS_EDGE_WORLD_H
#define SF_TESTS_EDGE_WORLD_H

#include <pthread.h>

#include "exec/reactor.h"
#include "gateway/es.h"
#include "support/proves.h"
#include "unit/gateway/gateway_fixture.h"

#define EDGE_CALLS 64

/* How the fake ingest gateway treats a batch. */
enum ingest_mode { INGEST_ACK, INGEST_REFUSE, INGEST_BREAK, INGEST_SILENT };

struct edge {
    struct sf_reactors *reactors;
    struct sf_service services[4];
    struct sf_channel *channels[4]; /* catalog, private, allocator, ingest */
    struct sf_metrics *metrics;
    struct sf_es *es;

    /* under mu */
    pthread_mutex_t mu;
    struct sf_arena *arena; /* of what is recorded */
    struct state_fixture facts;
    uint64_t binding_revision;
    unsigned resolves; /* name resolutions */
    unsigned reads;    /* admission reads */
    unsigned confirmed;
    uint64_t next_doc_id;
    enum sf_err catalog_err;   /* not SF_OK: every admission read fails with it */
    enum sf_err allocator_err; /* not SF_OK: every call fails with it */
    bool allocator_forgets;    /* calls are carried out and their answers lost */
    const Searchfabric__V1__AllocateIdsRequest *allocations[EDGE_CALLS]; /* also refused ones */
    unsigned allocation_count;
    struct replay {
        char key[129];
        size_t items; /* of the plan: stands for its payload */
        Searchfabric__V1__AllocateIdsSuccessResponse *response;
    } replays[EDGE_CALLS]; /* successes by key */
    unsigned replay_count;
    enum ingest_mode ingest_mode;
    const Searchfabric__V1__MutationBatch *batches[EDGE_CALLS];
    unsigned batch_count;
};

/* Starts the edge; `write_timeout_ms` 0 = its default. */
void edge_start(struct edge *e, int64_t write_timeout_ms);
void edge_stop(struct edge *e);

/* An HTTP answer; body is NUL-terminated. */
struct answer {
    int status;
    char head[2048];
    char *body;
};

/* One request on a connection of its own. `key` NULL = no Idempotency-Key. */
void edge_request(struct edge *e, const char *method, const char *path, const char *key,
                  const char *body, size_t len, struct answer *out);

/* The same with a NUL-terminated body; frees the answer of the request before. */
void edge_send(struct edge *e, struct answer *answer, const char *method, const char *path,
               const char *key, const char *body);

#endif
