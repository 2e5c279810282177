/*
 * A small world around the allocator: a loop turned by hand, a memory store behind a script, a fake
 * catalog whose facts the test sets, and any number of allocator processes on the one store. Calls
 * go through the in-process channel as any identity.
 */
#ifndef SF_TESTS_ALLOC_WORLD_H
#define SF_TESTS_ALLOC_WORLD_H

#include "allocator/allocator.h"
#include "component/allocator/script_store.h"
#include "object/memory_store.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"
#include "searchfabric/v1/durable.pb-c.h"
#include "support/proves.h"
#include "unit/rpc/manual_loop.h"

#define ES   SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY
#define NS   7u
#define COLL 9u

/* An item of a plan in a test: ISSUE or an explicit id. */
#define ISSUE     UINT64_C(0xfffffffffffffff0)
#define NO_BRANCH UINT64_C(0xfffffffffffffff1) /* an item that says nothing */
#define PLAN(...) (const uint64_t[]){__VA_ARGS__}, sizeof((uint64_t[]){__VA_ARGS__}) / 8

/* What the fake catalog answers with. */
struct fake_facts {
    bool exists;   /* false: SF_RESOURCE_NOT_FOUND */
    bool down;     /* true: SF_BACKEND_UNAVAILABLE */
    bool busy;     /* true: SF_RATE_LIMITED, as a catalog with too much work says */
    bool hold;     /* true: calls wait for world_ccs_release */
    int lifecycle; /* enum numbers of the contract */
    int truth_mode;
    int generation_policy;
    int caller_profile;
    bool policy; /* false: no admission policy */
    uint64_t max_items;
    uint64_t max_jump;
    const char *token; /* NULL: no active generation */
    const char *etag;
    uint64_t binding_revision;
    uint64_t namespace_id; /* of the answer; 0 = as asked */
    uint64_t collection_id;
};

/* One call and its outcome. */
struct result {
    bool done;
    struct sf_diag diag;
    uint64_t ids[64]; /* realized, in order */
    bool issued[64];
    size_t count;
    char token[64];
    struct sf_buf packed; /* the response's bytes */
    struct sf_buf receipt;
    struct result_call *call;
};

struct world;

/* One allocator process. */
struct process {
    struct world *world;
    struct sf_attempts attempts;
    struct sf_metrics *metrics;
    struct sf_allocator *allocator;
    struct sf_channel *channel;
    struct sf_channel *operations; /* the operator's service */
};

#define MAX_PROCESSES 8

struct world {
    struct manual_loop loop;
    struct sf_store *backend;
    struct script_store *script;
    struct sf_keyring *keyring;
    struct sf_service ccs;
    struct sf_channel *ccs_channel;
    struct fake_facts facts;
    unsigned ccs_reads;        /* admission reads */
    unsigned ccs_not_modified; /* of these, confirmed */
    unsigned ccs_lookups;      /* look-ups of names: there must be none */
    struct sf_call *held[16];  /* calls that wait */
    const ProtobufCMessage *held_request[16];
    unsigned held_count;
    struct sf_allocator_limits limits;   /* of processes started from now on */
    struct sf_alloc_lease_policy leases; /* of processes started from now on; off at first */
    const struct sf_allocator_grants *grants;
    struct sf_clock *applied_clock; /* of processes started from now on; NULL = the loop's */
    struct sf_sched sched;          /* its tasks run on the loop; nothing in them may wait */
    bool sched_hangs;               /* its tasks are taken and never run */
    struct sf_allocator_artifacts artifacts; /* of processes started from now on */
    int64_t replay_retention_ms;             /* of processes started from now on */
    bool run_retention;                      /* of processes started from now on */
    struct process processes[MAX_PROCESSES];
    unsigned process_count;
};

/* cmocka fixtures: *state is a fresh world with one process. */
int world_setup(void **state);
int world_teardown(void **state);

/* Starts one more process on the same store; index is its place. */
struct process *world_start(struct world *w);

/* Ends a process as kill -9 does: nothing of it goes on. All its calls must be answered. */
void world_kill(struct process *p);

/* Answers the held admission reads with the facts of now. */
void world_ccs_release(struct world *w);

/* A call under way. Fields with 0 or NULL take their defaults. */
struct call_spec {
    const char *identity;   /* "loopback" */
    const char *client_id;  /* "gw-1" */
    const char *key;        /* required */
    int client_kind;        /* ES */
    uint64_t namespace_id;  /* NS */
    uint64_t collection_id; /* COLL */
    int route_intent;       /* CREATE_INSERT; -1 = UNSPECIFIED */
    const uint64_t *items;
    size_t count;
};
void call_start(struct process *p, struct result *result, const struct call_spec *spec);

/* Runs a whole call: turns the loop, moving time as needed, until it is answered. */
void call_run(struct process *p, struct result *result, const struct call_spec *spec);

/* Turns the loop until `result` is done; fails the test when it never is. */
void world_finish(struct world *w, struct result *result);

/* The usual call: key and plan. */
void allocate(struct process *p, struct result *result, const char *key, const uint64_t *items,
              size_t count);

/* The same; fails the test unless it succeeds. */
void allocate_ok(struct process *p, struct result *result, const char *key, const uint64_t *items,
                 size_t count);

void result_fini(struct result *result);

/* Expectations. */
void expect_ids(const struct result *result, const uint64_t *ids, size_t count);
void expect_err(const struct result *result, enum sf_err err);
void expect_detail(const struct result *result, const char *key, const char *value);
/* Both succeeded with the same bytes. */
void expect_same(const struct result *a, const struct result *b);
#define EXPECT_IDS(result, ...) expect_ids((result), PLAN(__VA_ARGS__))

/* Gives what is written later its time: three seconds. */
void world_settle(struct world *w);

/* Runs a fixed script of requests, successes, repeats and refusals; `harm` is called after each.
 * Appends every answer, code and bytes, to `out`. */
void world_run_script(struct world *w, struct process *p, void (*harm)(struct world *w),
                      struct sf_buf *out);

/* The state object of (NS, collection), verified, or NULL when absent; in `arena`. */
Searchfabric__V1__AllocatorStateObject *world_state(struct world *w, uint64_t collection_id,
                                                    struct sf_arena *arena);
/* next_doc_id of (NS, COLL), "" when the object is absent; static text. */
const char *world_next(struct world *w);

/* Replay-success objects in the store. */
size_t world_replay_count(struct world *w);

/* The first replay-success object whose idempotency key is `key`, or NULL; in `arena`. */
Searchfabric__V1__AllocatorReplaySuccessObject *world_replay(struct world *w, const char *key,
                                                             struct sf_arena *arena);

/* True when the process's metrics, as Prometheus text, hold this line. */
bool metrics_have(struct process *p, const char *line);

#endif
