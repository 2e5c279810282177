/*
 * Catalog Control Service (CCS): the authority for namespaces, collections and schema generations.
 * Serves the public searchfabric.v1.CatalogControlService and the private
 * searchfabric.v1.CatalogControlPrivateService and CatalogOperationsService. The object store is
 * the truth, the SQL projection can be dropped at any time. The commit protocol is protocols.md
 * section 2: segments order the commands, the outcome object commits one, takeover records fence
 * owners.
 *
 * Threads: reads are answered on the caller's thread as far as memory holds the facts; mutations,
 * lists and misses run on lanes of the scheduler. On a store that is not held exclusively a read
 * first waits for a look at the owner epoch.
 */
#ifndef SF_CATALOG_CATALOG_H
#define SF_CATALOG_CATALOG_H

#include "base/config.h"
#include "base/metrics.h"
#include "base/token.h"
#include "catalog/catalog_policy.h"
#include "object/durable.h"
#include "rpc/call.h"
#include "sql/sql.h"
#include "tso/tso.h"

struct sf_catalog;

/* Follows requests over their lanes (note section 3.1): tests and tools. */
struct sf_catalog_trace {
    /* A request (its method, or a command's kind) goes on on the lane of this kind
     * ("namespace-name", "namespace-id", "collection-name", "collection-id") and key. Any thread;
     * short. NULL = not wanted. */
    void (*lane)(struct sf_catalog_trace *trace, const char *request, const char *lane,
                 uint64_t key);
    /* A command is decided on the lane of this kind, holds its gates and has written nothing: a
     * test may hold it up. On its lane's task. NULL = not wanted. */
    void (*apply)(struct sf_catalog_trace *trace, const char *request, const char *lane);
};

/* Splits the storage ranges of a whale namespace ahead of its data; may take its time and may fail.
 */
struct sf_catalog_presplit {
    /* On a worker task, one namespace at a time, after it was created. Any error is logged. */
    enum sf_err (*split)(struct sf_catalog_presplit *presplit, struct sf_sched *sched,
                         uint64_t namespace_id);
};

/* Everything the service gets from outside; all borrowed until sf_catalog_close returned. */
struct sf_catalog_deps {
    struct sf_store *store;          /* durable truth */
    struct sf_sched *sched;          /* serial lanes: commands block here */
    struct sf_loop *loop;            /* timers of retry pauses; NULL: retries do not pause */
    struct sf_clock *clock;          /* *_unix_ms fields, token expiry */
    struct sf_tso_source *tso;       /* stable ids, applied_ts */
    struct sf_sql *sql;              /* projection, from sf_catalog_projection_open */
    struct sf_keyring *keyring;      /* signs page tokens */
    struct sf_attempts *attempts;    /* ids of tries */
    struct sf_metrics *metrics;      /* NULL = none */
    const char *owner_id;            /* names this process in records, 1..128 scalars; copied */
    uint32_t lane_shards;            /* at the store's first start only: 1..1024, 0 = 64 */
    size_t cache_bytes;              /* of facts in memory, 1 MiB to 1 TiB, 0 = 64 MiB */
    uint32_t max_result_window;      /* default of effective_max_result_window, 0 = 10000 */
    uint64_t collection_gc_delay_ms; /* from a drop to the release of its name, 0 = 7 days */
    uint64_t namespace_gc_delay_ms;  /* from a namespace's tombstone to the same, 0 = 7 days */
    uint32_t checkpoint_commands;    /* a checkpoint after so many commands, 0 = 100000 */
    uint32_t checkpoint_interval_ms; /* or so long after the last, when there were any; 0 = 1 h */
    uint32_t replay_retention_ms;    /* answers are kept so long, 0 = 30 days */
    struct sf_catalog_presplit *presplit;   /* NULL = whale namespaces are not split ahead */
    struct sf_catalog_trace *trace;         /* NULL in production */
    const struct sf_catalog_policy *policy; /* quota classes, callers; NULL = defaults */
    bool run_jobs; /* background jobs run by themselves (`loop` is there) */
};

/* What `sfctl status` and health show. */
struct sf_catalog_stats {
    uint64_t owner_epoch;      /* slot of this process's takeover record */
    uint64_t newest_segment;   /* last slot whose content is known */
    uint64_t watermark;        /* of this owner's shards in the projection */
    uint64_t commands_applied; /* committed by this process */
    uint64_t groups_committed; /* segments appended by this process, takeover excluded */
    uint64_t attempts_aborted; /* settled by an abort marker of this process */
    uint64_t recovered;        /* commands that the start finished */
    uint64_t cache_hits;       /* facts that reads found in memory */
    uint64_t cache_misses;     /* facts that were read from the projection */
    uint64_t cache_waits;      /* reads that waited for the miss of another */
    uint64_t cache_evictions;  /* facts that left memory for room */
    uint64_t cache_entries;    /* facts in memory */
    uint64_t cache_bytes;      /* their size */
    uint64_t open_ms;          /* how long sf_catalog_open took */
    uint32_t lane_shards;      /* of the store */
    bool rebuilt;              /* the start rebuilt a lost projection */
    bool stalled;              /* a put is in doubt and being repeated; mutations are refused */
    bool projection_lost;      /* the projection's database did not answer the last look */
    bool deposed;              /* a newer owner was met: everything is refused; start anew */
};

/* Opens the catalog's projection: file `path` (NULL = in memory) with the catalog's schema.
 * `faults` NULL in production. Close with sf_sql_close after sf_catalog_close. Blocks. Errors as
 * sf_sql_open. */
SF_MUST_USE enum sf_err sf_catalog_projection_open(const char *path, struct sf_sql_faults *faults,
                                                   struct sf_diag *diag, struct sf_sql **out_sql);

/* Where the configuration puts the projection; `path` is SQLite's file. Borrows from both. */
struct sf_sql_options sf_catalog_projection_where(const struct sf_config_projection *projection,
                                                  const char *path);

/* As sf_catalog_projection_open for any database: kind, path or server, readers and faults are
 * taken from `where`, the schema is the catalog's. */
SF_MUST_USE enum sf_err sf_catalog_projection_open_at(const struct sf_sql_options *where,
                                                      struct sf_diag *diag,
                                                      struct sf_sql **out_sql);

/* Takes over every lane shard of the store, settles what earlier owners left, brings the projection
 * up to date (from its watermark, or by a rebuild when it is empty) and makes the service ready.
 * Blocks: on a worker task of deps->sched, or on a plain thread with deps->sched's `sched` argument
 * given as `sched` NULL. `deps` is copied, what it points to is borrowed. Errors:
 * SF_ERR_UNAVAILABLE (store or projection), SF_ERR_CORRUPT (a hole in the chain, an object that
 * does not verify), SF_ERR_DEPOSED (another owner started meanwhile), SF_ERR_CONFIG. Source:
 * protocols.md section 2, Takeover; note section 11. */
SF_MUST_USE enum sf_err sf_catalog_open(const struct sf_catalog_deps *deps, struct sf_sched *sched,
                                        struct sf_diag *diag, struct sf_catalog **out_catalog);

#define SF_CATALOG_SERVICE_COUNT 3

/* The services: public, private, operations; valid until sf_catalog_close. Any thread. */
void sf_catalog_services(struct sf_catalog *catalog,
                         const struct sf_service *out_services[SF_CATALOG_SERVICE_COUNT]);

/* Refuses new requests with SF_BACKEND_UNAVAILABLE from now on; what runs is finished or, where the
 * store does not answer, given up. Any thread, never blocks. */
void sf_catalog_drain(struct sf_catalog *catalog);

/* Drains, waits until no request is under way (plain thread: `sched` NULL), frees. NULL is fine. */
void sf_catalog_close(struct sf_catalog *catalog, struct sf_sched *sched);

/* Forgets what memory holds of the projection; no answer changes by it. Any thread. */
void sf_catalog_flush(struct sf_catalog *catalog);

/* A snapshot of the counters. Any thread. */
void sf_catalog_stats(struct sf_catalog *catalog, struct sf_catalog_stats *out_stats);

#endif
