/*
 * Shared by the catalog's simulator files: a node (ccs_node.c), what clients do and the model they
 * check against (ccs_client.c), the comparison at the end (ccs_check.c), scenarios (sim_ccs.c) and
 * scripted schedules (ccs_script.c).
 */
#ifndef SF_TESTS_FAULT_CCS_WORLD_H
#define SF_TESTS_FAULT_CCS_WORLD_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/pbjson.h"
#include "catalog/catalog_rules.h"
#include "contract/descriptor_set.h"
#include "fault/sim/sim.h"
#include "rpc/channel.h"

#define CLIENTS    3
#define UPDATES    4
#define MAX_KEYS   64
#define PUBLIC     "/searchfabric.v1.CatalogControlService/"
#define PRIVATE    "/searchfabric.v1.CatalogControlPrivateService/"
#define OPERATIONS "/searchfabric.v1.CatalogOperationsService/"
/* From a drop or a tombstone to the release of the name, in all runs. */
#define RETENTION_MS    INT64_C(2592000000) /* of replays: 30 days */
#define CCS_GC_DELAY_MS 700

/* Of every budget, in all runs. */
#define CCS_QUOTA_RATE  100u
#define CCS_QUOTA_BURST 200u

#define TSO_START ((uint64_t)SIM_EPOCH_UNIX_MS << 18)

struct history;

/* One key and what it was answered. */
struct answered {
    char key[24];
    const char *method;        /* full path */
    ProtobufCMessage *request; /* in the world's arena */
    struct sf_buf bytes;       /* canonical JSON of the answer; empty until answered */
};

#define MAX_ELDERS 64

/* An object that is only ever swapped under a higher owner epoch, as seen last. */
struct elder {
    struct sf_buf key;
    struct sf_buf body;
    uint64_t epoch;
};

struct world {
    struct sim *sim;
    struct elder elders[MAX_ELDERS];
    size_t elder_count;
    struct sf_sql *sql;         /* the shared projection */
    struct sf_sql *rebuilt;     /* of the node that rebuilds */
    unsigned checkpoints;       /* cut so far, as far as anybody said */
    bool aged;                  /* records may have been removed by age */
    struct sim_service service; /* of the contenders */
    struct sim_node *nodes[2];
    struct script *script;      /* of a scripted run, NULL = none */
    struct sim_node *rebuilder; /* started at the end */
    struct sf_arena *arena;     /* requests */
    uint64_t next_tso;
    struct answered keys[MAX_KEYS];
    size_t key_count;
    unsigned clients_done;
    bool reread; /* every key was asked again */
    /* the model */
    uint64_t shared_namespace, shared_collection; /* ids, 0 = none acknowledged yet */
    uint64_t own_namespace[CLIENTS];
    uint64_t own_acked[CLIENTS]; /* highest update acknowledged */
    uint64_t own_sent[CLIENTS];  /* highest update sent */
    uint64_t sync_rank;          /* highest that anybody was told, see sync_rank_of */
    bool drift_sent;             /* version 2 may stop serving */
    bool repair_sent;            /* the last signal, which nobody repeats, is on its way */
    uint64_t schema_acked;       /* highest schema version acknowledged */
    uint64_t binding_seen;       /* highest binding revision that anybody was told */
    struct sf_buf answers;       /* of the contenders, before the rebuild */
    struct history *history;     /* of a run that is judged by its history, else NULL */
};

/* A catalog in one process. */
struct life {
    struct sf_catalog *catalog;
    struct sf_store *gate; /* what stands before the store */
    struct sf_sql *sql;
    struct sf_keyring *keyring;
    struct sf_attempts attempts;
    struct sf_tso_source tso;
    struct world *w;
    const struct sf_service *services[SF_CATALOG_SERVICE_COUNT];
    unsigned callers;
    struct sf_waiter *stopping;
};

/* Parts of a request, on the caller's stack. */
struct parts {
    SF_PB(RequestMeta) meta;
    SF_PB(EncryptionPolicy) encryption;
    SF_PB(ProviderManagedEncryption) managed;
    SF_PB(DescriptorOptions) options;
    SF_PB(DescriptorOptions__EntriesEntry) entry;
    SF_PB(DescriptorOptions__EntriesEntry) * entries[1];
    char value[24];
};

/* A client; `arena` is that of one step. */
struct client {
    struct world *w;
    struct sim_process *process;
    unsigned id;
    struct sf_arena *arena; /* of one step */
};

/* ccs_node.c: for struct sim_service; ctx is the world. */
void *ccs_start(struct sim_process *process, void *ctx);
void *ccs_start_rebuilding(struct sim_process *process, void *ctx);
void ccs_stop(struct sim_process *process, void *service, void *ctx);

/* ccs_gate.c: the store as a process of a scripted run sees it; `inner` when nothing is scripted.
 * Free with ccs_gate_destroy. */
struct sf_store *ccs_gate_new(struct world *w, struct sim_process *process, struct sf_store *inner);
void ccs_gate_destroy(struct sf_store *gate);

/* ccs_client.c */
/* Before the next try of a call: as long as the catalog asked for, or a moment. */
void wait_to_retry(struct sim_process *client, struct world *w, const struct sf_diag *diag);
enum sf_err call_node(struct world *w, struct sim_process *client, struct sim_node *node,
                      const char *method, const ProtobufCMessage *request, struct sf_arena *arena,
                      struct sf_diag *diag, const ProtobufCMessage **out_response);
const ProtobufCMessage *ask(struct world *w, struct sim_process *client, const char *method,
                            const ProtobufCMessage *request, struct sf_arena *arena);
const ProtobufCMessage *mutate(struct world *w, struct sim_process *client, const char *key,
                               const char *method, const ProtobufCMessage *request,
                               struct sf_arena *arena);
void to_json(const ProtobufCMessage *message, struct sf_buf *out);
void parts_init(struct parts *parts, char *key);
void fill_ref(const struct world *w, SF_PB(CollectionRef) * ref);
void put_shared_namespace(struct client *c);
void put_shared_collection(struct client *c);
void put_own(struct client *c, uint64_t value);
void read_own(struct client *c, unsigned of);
void put_schema(struct client *c, uint64_t version, const char *suffix);
void report(struct client *c, uint64_t version, SF_PB(SchemaConvergenceSignal) signal);
void report_once(struct client *c, uint64_t version, SF_PB(SchemaConvergenceSignal) signal);
void read_sync(struct client *c);
void read_admission(struct client *c);

/* ccs_check.c: asks every key again, compares records, and all answers and rows with those of a
 * node that rebuilds the projection from the store. */
void check_end(struct world *w, struct sim_process *clients);

/* Every entry of the chain that the watermark has passed is settled: its key holds an outcome, or a
 * marker that names this entry or a later one. */
void check_settled(struct world *w);

/* Runs the descriptor projectors: lagging fields are compared afterwards, since a rebuild leaves
 * them absent until then. */
void check_run_projectors(struct world *w, struct sim_process *process, struct sf_arena *arena);

/* Every row that comes from commands, binding revisions aside, as text; replay rows of commands
 * applied since a timestamp. */
uint64_t check_since(const struct world *w); /* older ones may be gone from one projection alone */
void check_dump_rows(struct sf_sql *sql, uint64_t since, struct sf_buf *out);

/* A violation that shows the first place that differs. */
void check_same_text(struct world *w, const char *what, const struct sf_buf *a,
                     const struct sf_buf *b);

/* Takes rows out of the projection, with both contenders killed before it. */
void lose_projection(struct world *w, const char *sql);

/* ccs_elders.c: looks at one object whose type has an owner_epoch; at all that a run knows of (for
 * sim_set_invariant, ctx is the world). */
void elders_look(struct world *w, const struct sf_buf *key, const ProtobufCMessageDescriptor *desc);
void elders_watch(struct sim *sim, void *ctx);
/* From now on nobody may swap the object at `key` under an owner epoch below `epoch`. */
void elders_raise(struct world *w, const struct sf_buf *key, uint64_t epoch);
void elders_fini(struct world *w);

/* ccs_lineage.c */
extern const struct sim_scenario ccs_lineages[];
extern const size_t ccs_lineage_count;

/* ccs_quota.c */
void ccs_quota_run(struct sim *sim);
void ccs_quota_run_lost(struct sim *sim);

/* sim_ccs.c */
struct sim_options ccs_doubt_options(void);
struct world *world_new(struct sim *sim, const struct sim_options *options);
void world_destroy(struct world *w);

#endif
