/*
 * A catalog over the memory store and the database under test (SQLite in memory unless
 * SF_TEST_PROJECTION says otherwise), called through the in-process channel. The
 * store stands behind a wire that can be cut after a number of applied puts, as kill -9 would: what
 * was applied stands, everything after fails. A restart opens a new catalog over the same truth and
 * projection; a rebuild over the same truth and an empty projection.
 */
#ifndef SF_TESTS_COMPONENT_CATALOG_WORLD_H
#define SF_TESTS_COMPONENT_CATALOG_WORLD_H

#include "catalog/catalog_digest.h"
#include "catalog/catalog_rows.h"
#include "catalog/catalog_rules.h"
#include "exec/sched.h"
#include "object/memory_store.h"
#include "rpc/channel.h"
#include "support/proves.h"
#include "support/sqlserver.h"

#define WORLD_UNIX_MS INT64_C(1767225600000)
#define WORLD_TSO     (UINT64_C(1767225600000) << 18)

struct world;

/* A store that applies puts one by one and can be cut. */
struct wire {
    struct sf_store base;         /* what the catalog holds */
    struct sf_store *backend;     /* the truth */
    struct world *w;              /* whose catalog dies with the wire */
    _Atomic uint64_t applied;     /* puts applied since wire_reset */
    _Atomic uint64_t cut_after;   /* dies once so many are applied; UINT64_MAX = never */
    _Atomic uint64_t gets;        /* reads */
    _Atomic uint64_t lists;       /* listings */
    _Atomic bool listed_records;  /* somebody listed catalog-log/ */
    _Atomic bool dead;            /* cut */
    _Atomic bool tracing;         /* notes keys read and listed; set while nothing runs */
    pthread_mutex_t trace_mu;     /* guards the trace */
    struct sf_buf trace;          /* one line a request: "get KEY", "put KEY", ... */
    struct sf_buf *log;           /* "put KEY" lines of applied puts; NULL = not wanted */
    void (*listed)(void *arg);    /* runs with each listing; NULL = nothing */
    void *listed_arg;             /* of `listed` */
    void (*submitted)(void *arg); /* runs before each batch; NULL = nothing */
    void *submitted_arg;          /* of `submitted` */
};

struct world {
    struct sf_store *truth;
    struct wire wire;
    struct sf_test_sql place; /* where the projection is */
    bool borrowed;            /* `place` is the caller's */
    struct sf_sql *sql;
    struct sf_sched *pool;
    struct sf_clock_manual clock;
    struct sf_tso_source tso;
    _Atomic uint64_t next_tso;
    struct sf_keyring *keyring;
    struct sf_attempts attempts;
    struct sf_catalog *catalog;
    struct sf_channel *channel;                           /* as "loopback" */
    struct sf_arena *arena;                               /* requests and responses of the test */
    struct sf_diag diag;                                  /* of the last call */
    uint32_t lane_shards;                                 /* for the first start */
    size_t cache_bytes;                                   /* of the next open; 0 = the default */
    struct sf_catalog_presplit *presplit;                 /* of the next open; NULL = none */
    struct sf_catalog_trace *trace;                       /* of the next open; NULL = none */
    uint64_t collection_gc_delay_ms;                      /* of the next open; 0 = the default */
    uint64_t namespace_gc_delay_ms;                       /* of the next open; 0 = the default */
    const struct sf_catalog_policy *policy;               /* of the next open; NULL = defaults */
    uint32_t checkpoint_commands, checkpoint_interval_ms; /* of the next open; 0 = default */
};

/* A started world; `exclusive` as struct sf_store says. */
struct world *world_new(bool exclusive);

/* The same over a projection that the caller made and drops. */
struct world *world_new_at(bool exclusive, const struct sf_test_sql *place);
void world_destroy(struct world *w);

/* Fixtures: a world whose store the catalog holds alone; one that other owners may hold too. */
int world_setup(void **state);
int world_setup_shared(void **state);
int world_teardown(void **state);

/* Changes rows behind the catalog's back; what it remembers is forgotten. */
void world_execute(struct world *w, const char *sql);

/* Another owner's takeover record stands at the next slot. */
void world_depose(struct world *w);

/* Stops the catalog; a cut wire is mended. */
void world_stop(struct world *w);

/* Opens the catalog again over what stands. Returns the error of the open. */
enum sf_err world_open(struct world *w);
void world_restart(struct world *w);

/* As a restart, with the projection dropped. */
void world_rebuild(struct world *w);

/* Calls a method of one of the catalog's services. NULL with w->diag on error. */
const void *world_call(struct world *w, const char *method, const void *request);
const void *world_call_as(struct world *w, const char *identity, const char *method,
                          const void *request);

/* Starts a trace of the store's reads; ends it and gives the text, in the world's arena. */
void world_trace(struct world *w);
const char *world_traced(struct world *w);

/* All rows of the projection that a checkpoint holds, in key order, one JSON a line; binding
 * revisions (a rebuild raises them) and what projectors publish left out. */
const char *world_dump(struct world *w);
void world_strip(enum sf_catalog_table table, ProtobufCMessage *row);

/* Requests, in the world's arena. `encryption`: provider managed or absent. */
SF_PB(RequestMeta) * world_meta(struct world *w, const char *key, SF_PB(ClientKind) kind);
SF_PB(EncryptionPolicy) * world_encryption(struct world *w);
SF_PB(DescriptorOptions) * world_options(struct world *w, const char *key, const char *value);
SF_PB(PutNamespaceMetadataRequest) *
    world_namespace_request(struct world *w, const char *key, const char *name);
SF_PB(PutCollectionMetadataRequest) *
    world_collection_request(struct world *w, const char *key, uint64_t ns, const char *name);
SF_PB(PutCollectionSchemaRequest) * world_schema_request(struct world *w, const char *key,
                                                         uint64_t ns, uint64_t collection,
                                                         uint64_t version, const char *token);

/* Made and checked: id of a fresh namespace or collection; a schema; its promotion. */
uint64_t world_namespace(struct world *w, const char *key, const char *name);
uint64_t world_collection(struct world *w, const char *key, uint64_t ns, const char *name);
void world_schema(struct world *w, const char *key, uint64_t ns, uint64_t collection,
                  uint64_t version, const char *token);
void world_ready(struct world *w, uint64_t ns, uint64_t collection, uint64_t version,
                 const char *token);

/* Canonical JSON of a message, in the world's arena. */
const char *world_json(struct world *w, const void *message);

/* One cycle of a background job by hand; how much it did. The three descriptor projectors. */
uint64_t world_job(struct world *w, const char *name);
void world_enrich(struct world *w);

/* Every public answer about namespace `ns` and its collections as one text, once the descriptor
 * projectors ran. */
const char *world_answers(struct world *w, uint64_t ns);

/* Digest of the projection, in the world's arena. */
const SF_PB(DigestProjectionResponse) * world_digest(struct world *w);

/* An object of the truth as its message; NULL when absent. */
const void *world_object(struct world *w, const char *key, const ProtobufCMessageDescriptor *desc);

/* Number of objects below a prefix; *out_first (may be NULL) the first key. */
size_t world_list(struct world *w, const char *prefix, const char **out_first);

#endif
