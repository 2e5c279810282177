/*
 * A coordinator over a memory store that a test can hold, fail and count, with real reactors and a
 * timestamp source set by hand. The test's thread waits for events, never for time.
 */
#ifndef SF_TESTS_COMMIT_WORLD_H
#define SF_TESTS_COMMIT_WORLD_H

#include <pthread.h>

#include "commit/commit.h"
#include "exec/reactor.h"
#include "object/store.h"
#include "publish/reader.h"
#include "rpc/channel.h"
#include "searchfabric/v1/commit_coordinator.pb-c.h"
#include "support/proves.h"

/* A store before the memory store. A put whose key contains a held text waits until it is released;
 * one whose key contains a failing text is answered with `fail_err` and not applied. */
struct gate_store;
struct sf_store *gate_store_base(struct gate_store *gate);
struct gate_store *gate_store_new(struct sf_store *backend);
void gate_store_destroy(struct gate_store *gate);
/* Holds puts whose key contains `text` (NULL: none; releases what was held). */
void gate_store_hold(struct gate_store *gate, const char *text);
/* Answers what is held as not applied, and holds no more: its sender died. */
void gate_store_drop(struct gate_store *gate);
/* Answers puts whose key contains `text` with `err` (NULL: none). */
void gate_store_fail(struct gate_store *gate, const char *text, enum sf_err err);
/* Answers reads whose key contains `text` with SF_ERR_UNAVAILABLE (NULL: none). */
void gate_store_fail_gets(struct gate_store *gate, const char *text);
/* Requests that went through, of puts and gets whose key contains `text`. */
unsigned gate_store_puts(struct gate_store *gate, const char *text);
unsigned gate_store_gets(struct gate_store *gate, const char *text);
/* All requests of any kind. */
unsigned gate_store_requests(struct gate_store *gate);
/* Waits until at least `count` puts with `text` are held. */
void gate_store_wait_held(struct gate_store *gate, unsigned count);

/* Timestamps: each request gets the next values after `next`; a failing one SF_BACKEND_UNAVAILABLE.
 */
struct hand_tso {
    struct sf_tso_source base;
    pthread_mutex_t mu;
    uint64_t next; /* value to give out next */
    bool frozen;   /* give out the same value again and again */
    bool down;
    bool held;                   /* requests wait until hand_tso_release */
    struct sf_tso_request *kept; /* newest first */
    unsigned requests;
    uint64_t values; /* given out */
};
void hand_tso_set(struct hand_tso *tso, uint64_t next);
/* Requests so far, and values given out. */
unsigned hand_tso_requests(struct hand_tso *tso);
uint64_t hand_tso_values(struct hand_tso *tso);
void hand_tso_down(struct hand_tso *tso, bool down);
void hand_tso_hold(struct hand_tso *tso);
/* Waits until a request is held, and lets requests wait no longer. */
void hand_tso_wait_held(struct hand_tso *tso);
void hand_tso_release(struct hand_tso *tso);

#define WORLD_TSO0 (UINT64_C(1000000) << 18)

struct world {
    struct sf_store *memory;
    struct gate_store *gate;
    struct hand_tso tso;
    struct sf_reactors *reactors;
    struct sf_loop *loops[2];
    struct sf_attempts attempts;
    struct sf_metrics *metrics;
    struct sf_clock_manual
        clock; /* the coordinator's wall clock: at WORLD_TSO0; set before the open */
    struct sf_commit_deps deps;
    struct sf_commit *commit;
    struct sf_channel *channel;
    struct submitter *submitter;
};

/* Starts everything but the coordinator. */
struct world *world_new(void);
void world_free(struct world *w);
/* Opens and closes the coordinator; a second open is a new leader. */
enum sf_err world_open(struct world *w);
void world_close(struct world *w);

/* What became of one submission. */
struct outcome {
    uint64_t submission_id;
    bool admitted;
    bool duplicate;
    unsigned slices;
    uint64_t commit_ts[8]; /* of the first slices */
    uint32_t ordinals[8];
    Searchfabric__V1__BatchGate gate; /* reached, or UNSPECIFIED */
    unsigned gates;                   /* gate events seen */
    uint64_t safe_ts;
    uint64_t manifest_version;
    uint64_t epoch;
    Searchfabric__V1__BatchRefusal refusal; /* or UNSPECIFIED */
    char details[512];                      /* "key=value;..." */
};

/* A row or a mark of a batch. */
struct entry {
    bool barrier;
    uint64_t doc_id;
    const char *body; /* NULL with DELETE */
    bool deletes;
    unsigned touched; /* SF_MODALITY_BIT set; 0 = metadata */
};

struct batch_spec {
    uint64_t collection_id;
    const char *batch_id;
    const char *fingerprint_of; /* text whose digest is the fingerprint; NULL = batch_id */
    const struct entry *entries;
    size_t count;
    bool visible;    /* WAIT_FOR_VISIBLE */
    bool ingest_ack; /* else WAL_CHUNK_DURABLE */
    bool batch_mode;
    uint64_t first_admitted_ts; /* 0 = WORLD_TSO0 */
    uint64_t first_seq;         /* 0 = 1 */
    unsigned enabled;           /* 0 = metadata + semantic */
};

/* Sends a batch; its outcome gathers under the returned id. */
uint64_t world_submit(struct world *w, const struct batch_spec *spec);
/* Changes the planned batch before it is sent. */
uint64_t world_submit_with(struct world *w, const struct batch_spec *spec,
                           void (*change)(Searchfabric__V1__PlannedBatch *planned));
/* Submits over a second connection from now on, or over the first again. */
void world_second_stream(struct world *w, bool second);
/* Waits for the end of a submission (gate or refusal). */
struct outcome world_wait(struct world *w, uint64_t id);
/* Waits until the submission is admitted or refused. */
struct outcome world_wait_admitted(struct world *w, uint64_t id);
/* As it is now. */
struct outcome world_look(struct world *w, uint64_t id);
/* One row in metadata, durable; returns its outcome. */
struct outcome world_put(struct world *w, uint64_t collection_id, uint64_t doc_id,
                         const char *batch, const char *body);

/* GetCollectionWatermarks and GetLaneState; the messages live in `arena`. */
const Searchfabric__V1__GetCollectionWatermarksResponse *
world_watermarks(struct world *w, uint64_t collection_id, struct sf_arena *arena);
const Searchfabric__V1__GetLaneStateResponse *world_lane(struct world *w, uint64_t collection_id,
                                                         struct sf_arena *arena);

/* Value of a metric of the coordinator (name without its prefix): no labels, or shard 0 with
 * `source` and `modality` ("" = none). */
int64_t world_metric(struct world *w, const char *name);
int64_t world_pressure(struct world *w, const char *source, const char *modality);

/* Visible rows as "doc=body@ts\n..." into `out` (NUL-terminated); returns their number. */
unsigned world_rows(struct world *w, uint64_t collection_id, struct sf_buf *out,
                    struct sf_rows_head *out_head);
/* Waits until everything admitted is published. */
void world_settle(struct world *w);

#endif
