/* Inside of the daemon: the parts of a server, its health, its operator's doors. */
#ifndef SF_DAEMON_SERVER_PRIV_H
#define SF_DAEMON_SERVER_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "allocator/allocator.h"
#include "base/metrics.h"
#include "catalog/catalog.h"
#include "cluster/datadir.h"
#include "cluster/store_identity.h"
#include "commit/commit.h"
#include "daemon/policy.h"
#include "daemon/server.h"
#include "exec/reactor.h"
#include "gateway/es.h"
#include "gateway/ingest.h"
#include "publish/head_notices.h"
#include "rpc/server.h"

#define SF_SERVER_IDENTITY "loopback" /* who calls over plaintext, and this process itself */

/* Parts with a health of their own. */
enum sf_worker {
    SF_WORKER_STORE,
    SF_WORKER_TSO,
    SF_WORKER_CCS,
    SF_WORKER_ALLOCATOR,
    SF_WORKER_COORDINATOR,
    SF_WORKER_INGEST,
    SF_WORKER_GRPC,
    SF_WORKER_ES,
    SF_WORKER_REACTORS,
    SF_WORKER_COUNT
};

enum sf_worker_state {
    SF_WORKER_STARTING = 1, /* values of the contract's WorkerState */
    SF_WORKER_SERVING = 2,
    SF_WORKER_DRAINING = 3,
    SF_WORKER_FAILED = 4
};

/* One look at a worker. */
struct sf_worker_status {
    const char *name;           /* static */
    const char *role;           /* static */
    enum sf_worker_state state; /* as found */
    const char *detail;         /* static, "" = nothing to say */
    uint64_t heartbeat_age_ms;  /* 0 = no heartbeat of its own */
};

/* Shows that a loop turns: a timer on it notes the time. */
struct sf_heartbeat {
    struct sf_server *server;    /* it belongs to */
    struct sf_timer timer;       /* on the loop it watches */
    struct sf_task start;        /* starts the timer on its loop */
    struct sf_task stop;         /* stops it there */
    struct sf_waiter stopped;    /* woken once it is stopped */
    atomic_int_fast64_t last_ms; /* monotonic */
};

struct sf_admin;
struct sf_operations;

struct sf_server {
    /* immutable once started */
    struct sf_server_options options;     /* as given; its config outlives the server */
    const struct sf_config *config;       /* of the options */
    struct sf_clock *clock;               /* of the process */
    struct sf_datadir *dir;               /* the locked data folder */
    struct sf_metrics *metrics;           /* owned */
    struct sf_admin *admin;               /* owned: port 7401 */
    struct sf_reactors *reactors;         /* owned: the event loops */
    struct sf_loop **loops;               /* owned array */
    size_t loop_count;                    /* entries of loops and heartbeats */
    struct sf_heartbeat *heartbeats;      /* one per loop */
    struct sf_sched *pool;                /* owned: the workers that may wait */
    struct sf_store *store;               /* owned: metered embedded store */
    const struct sf_store *embedded;      /* the one within `store` */
    struct sf_store_identity identity;    /* of the store */
    struct sf_attempts attempts;          /* source of attempt ids */
    struct sf_keyring *keyring;           /* owned: signs page tokens and receipts */
    struct sf_tso_source *tso;            /* owned: the oracle */
    struct sf_sql *sql;                   /* owned: the projection */
    struct sf_catalog_policy *policy;     /* owned: of the catalog */
    struct sf_catalog *catalog;           /* owned */
    struct sf_channel *catalog_channel;   /* owned: its services, as the operator */
    struct sf_channel *catalog_allocator; /* owned: likewise, as the allocator */
    struct sf_channel *catalog_ingest;    /* owned: likewise, as the ingest gateway */
    struct sf_channel *catalog_es;        /* owned: likewise, as the Elasticsearch edge */
    struct sf_allocator *allocator;       /* owned */
    struct sf_channel *allocator_channel; /* owned: in process */
    struct sf_channel *publisher_channel; /* owned: in process, as the manifest publisher */
    struct sf_head_notices *head_notices; /* owned */
    struct sf_commit *commit;             /* owned */
    struct sf_channel *commit_channel;    /* owned: in process */
    struct sf_ingest *ingest;             /* owned */
    struct sf_channel *ingest_channel;    /* owned: in process */
    struct sf_operations *operations;     /* owned: status and objects for the operator */
    struct sf_rpc_server *rpc;            /* owned: port 7400; set under health_mu */
    struct sf_es *es;                     /* owned: port 9200 */
    char owner_id[64];                 /* "pid-N-RANDOM": names this process in durable records */
    int64_t started_unix_ms;           /* wall clock of the start */
    int64_t started_mono_ms;           /* monotonic clock of the start */
    _Atomic int64_t start_duration_ms; /* until every worker served; 0 before */

    /* under health_mu: a look holds it, so that nothing it looks at is freed meanwhile */
    pthread_mutex_t health_mu;
    enum sf_worker_state states[SF_WORKER_COUNT]; /* as set by start and stop */
};

/* ---- health.c -------------------------------------------------------------------------------- */

/* Starts a heartbeat on every loop; stop waits until each has ended. On the thread that starts and
 * stops the server. */
void sf_heartbeats_start(struct sf_server *server);
void sf_heartbeats_stop(struct sf_server *server);

/* Notes what start and stop know. Waits for a look under way. Any thread. */
void sf_worker_set(struct sf_server *server, enum sf_worker worker, enum sf_worker_state state);

/* Looks at every worker; out has SF_WORKER_COUNT entries. True when all serve. Any thread. */
bool sf_workers_look(struct sf_server *server, struct sf_worker_status *out);

/* Did the worker serve at some time? Then what it stands for is there until the edges stopped. Any
 * thread. */
bool sf_worker_started(struct sf_server *server, enum sf_worker worker);

/* Why the workers of a look do not serve, in one word of docs/operations/operate.md; NULL = they
 * do. */
const char *sf_workers_reason(const struct sf_worker_status *looked);

/* "starting", "serving", ...: static text. */
const char *sf_worker_state_text(enum sf_worker_state state);

/* ---- admin.c: port 7401 ---------------------------------------------------------------------- */

/* Starts the admin port of the server's configuration on threads of its own; it answers 503 until
 * workers serve. Errors: SF_ERR_CONFIG, SF_ERR_IO (in `diag`). sf_admin_stop waits for answers
 * under way and frees; NULL is fine. */
SF_MUST_USE enum sf_err sf_admin_start(struct sf_server *server, struct sf_diag *diag);
/* The port it listens on. */
uint16_t sf_admin_port(const struct sf_admin *admin);
void sf_admin_stop(struct sf_admin *admin);

/* ---- edges.c: ports 7400 and 9200 -------------------------------------------------------------
 */

/* Opens both ports; the operator's service and health answer, everything else is refused as
 * recovering. Errors: SF_ERR_CONFIG, SF_ERR_IO (in `diag`). */
SF_MUST_USE enum sf_err sf_edges_open(struct sf_server *server, struct sf_diag *diag);
/* Serves everything: all parts stand. Once. */
void sf_edges_serve(struct sf_server *server);
/* Answers what was admitted, then closes both; also after an open that failed half-way. */
void sf_edges_stop(struct sf_server *server);

/* ---- operations.c: OperationsService ----------------------------------------------------------
 */

/* The operator's service over `server`, which outlives it. Calls look at shared state from the loop
 * they arrive on, or wait on the pool. Destroy once no call is under way; NULL is fine. */
struct sf_operations *sf_operations_new(struct sf_server *server);
const struct sf_service *sf_operations_service(struct sf_operations *operations);
void sf_operations_destroy(struct sf_operations *operations);

#endif
