/*
 * Shared inside src/catalog: puts, commands and mutations, the catalog itself, and the calls
 * between its files, each under the name of the file that has it. docs/developers/catalog.md says
 * which file has which subject; what only a few files share stands in headers of their own.
 */
#ifndef SF_CATALOG_PRIV_H
#define SF_CATALOG_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "base/pb.h"
#include "base/text.h"
#include "catalog/catalog.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"
#include "searchfabric/v1/durable.pb-c.h"
#include "searchfabric/v1/search_fabric.pb-c.h"

/* Generated names, shortened: SF_PB(CollectionRef), SF_PBE(CLIENT_KIND, CONTROL_ADMIN). */
#define SF_PB(name)         Searchfabric__V1__##name
#define SF_PBE(type, value) SEARCHFABRIC__V1__##type##__##type##_##value

#define SF_CATALOG_FORMAT_VERSION 1 /* of the durable objects that this build writes */

/* Memory of one command or one recovered segment: request, plan, rows, answer. */
#define SF_CATALOG_ARENA_BYTES ((size_t)64 << 20)

#define SF_CATALOG_PUT_TRIES     6  /* tries before a caller is told to come back */
#define SF_CATALOG_OPEN_TRIES    24 /* of one put while opening: a start that fails is begun anew */
#define SF_CATALOG_COMMAND_TRIES 4  /* attempts of one command, each with a listing of its own */
#define SF_CATALOG_PAUSE_MIN_MS  5  /* first pause between tries; doubles */
#define SF_CATALOG_PAUSE_MAX_MS  1000
#define SF_CATALOG_BOUNDARY_MS   60000 /* age of the last look at the boundary */
#define SF_CATALOG_WATERMARK_LAG 1000  /* segments that the watermark may stay behind */
/* Cadence of checkpoints by default: after so many commands, or so long after the last one when
 * there were any. */
#define SF_CATALOG_CHECKPOINT_COMMANDS    100000
#define SF_CATALOG_CHECKPOINT_INTERVAL_MS 3600000

/* ------------------------------------------------------------------------------------------
 * Puts
 * ------------------------------------------------------------------------------------------ */

/* What became of an object that is to stand at a key. */
enum sf_catalog_put_state {
    SF_CATALOG_PUT_PENDING, /* not known to stand */
    SF_CATALOG_PUT_STANDS,  /* this try's bytes stand; etag is theirs */
    SF_CATALOG_PUT_LOST,    /* another object stands: found and found_etag (absent: both empty) */
    SF_CATALOG_PUT_UNSENT   /* certain: not applied and never will be */
};

/* One object on its way. Owns its buffers (sf_catalog_put_fini). One owner at a time. */
struct sf_catalog_put {
    struct sf_buf key;                      /* object key */
    struct sf_buf body;                     /* bytes as stored */
    const ProtobufCMessageDescriptor *desc; /* type of what stands at the key */
    bool compressed;                        /* the body is zstd */
    enum sf_put_cond cond;                  /* condition */
    struct sf_etag match;                   /* for SF_PUT_MATCH */
    enum sf_catalog_put_state state;        /* where it is */
    bool doubt;                             /* a try of it may still land */
    struct sf_etag etag;                    /* STANDS: of these bytes */
    struct sf_buf found;                    /* LOST: body that stands */
    struct sf_etag found_etag;              /* LOST: its etag */
};

#define SF_CATALOG_CONTROL_PUTS 2 /* versioned control object, name epoch object */

/* ------------------------------------------------------------------------------------------
 * Commands
 * ------------------------------------------------------------------------------------------ */

/* What a command serializes with. */
enum sf_catalog_lane {
    SF_CATALOG_LANE_NAMESPACE_NAME = 1,
    SF_CATALOG_LANE_NAMESPACE_ID,
    SF_CATALOG_LANE_COLLECTION_NAME,
    SF_CATALOG_LANE_COLLECTION_ID
};

/* Rows of one snapshot, in the command's scratch arena; NULL = no such row. */
struct sf_catalog_rows {
    SF_PB(CommandOutcomeObject) * replay;      /* record of this transport identity */
    SF_PB(CommandOutcomeObject) * business;    /* original record of this business identity */
    SF_PB(NamespaceRow) * ns;                  /* the lineage, or the parent */
    SF_PB(CollectionRow) * collection;         /* the lineage */
    SF_PB(SchemaGenerationRow) * active;       /* active generation */
    SF_PB(SchemaGenerationRow) * same_version; /* generation with the requested version */
    SF_PB(SchemaGenerationRow) * same_token;   /* generation with the requested token */
    bool active_child;                         /* the namespace has an ACTIVE collection */
    const char *blocked_by;                    /* what keeps a name reserved, NULL = nothing */
};

/* What a resolved command makes durable and shows; lives for one try. */
struct sf_catalog_plan {
    SF_PB(CommandOutcomeObject) outcome; /* complete but for entry, attempt and control refs */
    const ProtobufCMessage *object;      /* versioned control object as written, NULL = none */
    struct sf_catalog_put controls[SF_CATALOG_CONTROL_PUTS]; /* stage 0 of this command */
    size_t control_count;                                    /* used entries */
    int name_epoch_put;                   /* index of the name epoch object, -1 = none */
    struct sf_catalog_put follow;         /* object that follows from the outcome: with pointers */
    bool follows;                         /* there is one */
    bool no_record;                       /* answered by `outcome`, which is not written */
    SF_PB(ControlObjectRef) ref;          /* of `object` */
    SF_PB(ControlObjectRef) * refs[1];    /* what the outcome lists */
    SF_PB(SegmentEntryRef) entry;         /* what the outcome names; slot filled in by the group */
    enum sf_put_cond outcome_cond;        /* ABSENT, or MATCH: an abort marker is replaced */
    struct sf_etag outcome_match;         /* of that marker */
    uint64_t marker_slot;                 /* entry that the marker names, 0 = no marker */
    char attempt_id[SF_ATTEMPT_ID_BYTES]; /* of the listing and of all objects of the try */
    uint64_t attempt;                     /* counted per process */
    uint32_t lane_shard;                  /* whose epoch fences it */
};

/* How a group left one command. */
enum sf_catalog_commit {
    SF_CATALOG_COMMITTED, /* outcome, pointers and rows stand */
    SF_CATALOG_RETRY,     /* settled without effect; a fresh attempt may succeed */
    SF_CATALOG_GIVEN_UP,  /* answer SF_BACKEND_UNAVAILABLE */
    SF_CATALOG_PENDING    /* who leads its group goes on with it: it is not the caller's any more */
};

/* What a try holds, taken in this order: the namespace, then the collection. */
struct sf_catalog_gates {
    uint64_t namespace_id;    /* 0 = none */
    bool namespace_exclusive; /* transitions and releases; child work shares it */
    uint64_t collection_id;   /* 0 = none; always exclusive */
};

struct sf_catalog_mutation;
struct sf_catalog_heir;
struct sf_catalog_quotas;
struct sf_catalog_callers;
struct sf_catalog_cache;
struct sf_catalog_waiter;
struct sf_catalog_heads;

/* Who waits for an intent of the catalog's own (no call): sf_catalog_intend. */
struct sf_catalog_wait {
    struct sf_waiter waiter; /* opened with the answer */
    struct sf_diag *diag;    /* refusal */
    struct sf_arena *arena;  /* for the response's bytes */
    struct sf_view response; /* packed success payload */
    enum sf_err err;         /* of the command */
};

/* A mutation on its way through its lanes. Made by the service, freed by the apply code. */
struct sf_catalog_command {
    struct sf_task task;                        /* on a lane */
    struct sf_catalog *catalog;                 /* immutable */
    const struct sf_catalog_mutation *ops;      /* which RPC; immutable */
    _Atomic(struct sf_call *) call;             /* NULL once answered, or of an own intent */
    struct sf_catalog_wait *wait;               /* of an own intent; NULL once answered */
    const ProtobufCMessage *request;            /* in arena; immutable */
    SF_PB(RequestMeta) * meta;                  /* of the request, NULL: an intent; immutable */
    struct sf_arena *arena;                     /* owned; request and keys */
    struct sf_arena *scratch;                   /* owned; rows and plan of the present try */
    char identity_hash[SF_SHA256_HEX_BYTES];    /* of the authenticated caller */
    char command_identity[SF_SHA256_HEX_BYTES]; /* of its record */
    char transport_key[SF_SHA256_HEX_BYTES];    /* lookup key of its idempotency key */
    char business_key[SF_SHA256_HEX_BYTES];     /* "" = none */
    char fingerprint[SF_SHA256_HEX_BYTES];      /* of the payload */
    enum sf_catalog_lane lane;                  /* where the task runs; lane */
    bool claimed;                               /* counted among those under way; lane */
    bool pivoted;                               /* from a name lane; lane */
    uint64_t captured[3];                       /* id, epoch, revision as seen on the name lane */
    struct sf_diag diag;                        /* refusal under way; lane */
    struct sf_catalog_rows rows;                /* lane */
    struct sf_catalog_plan plan;                /* lane, or the leader of its group */
    struct sf_catalog_gates gates;              /* of the try; lane, or the leader of its group */
    unsigned tries;                             /* so far; lane */
    struct sf_lane_hold *hold;                  /* keeps its lane while a leader has it */
    uint64_t task_number;                       /* of the task that queued it; under group_mu */
    struct sf_catalog_command *next;            /* queue of the group; under group_mu */
    bool listed;                                /* segment with this attempt may stand; leader */
    enum sf_catalog_commit result;              /* of the commit; the leader's */
};

/* What differs between the mutations (catalog_plan.c). */
struct sf_catalog_mutation {
    SF_PB(CommandKind) kind;         /* of the record */
    unsigned family;                 /* row of the caller matrix (enum sf_catalog_family) */
    bool intent;                     /* internal: no RequestMeta; `scope` is the intent's tuple */
    const char *kind_name;           /* "PUT_NAMESPACE_METADATA" */
    const char *rpc_method;          /* "PutNamespaceMetadata"; unused by intents */
    enum sf_catalog_lane first_lane; /* where it starts */
    enum sf_catalog_lane id_lane;    /* where it pivots to */
    /* Malformed input (pure). */
    enum sf_err (*check)(const ProtobufCMessage *request, struct sf_diag *diag);
    /* Adds the scope as received to a key digest. */
    void (*scope)(const ProtobufCMessage *request, struct sf_keyhash *kh);
    /* Digest of the business identity, or NULL for none. */
    void (*business)(const ProtobufCMessage *request, char out_hex[SF_SHA256_HEX_BYTES]);
    /* Lane key text of `lane`: what is hashed. */
    void (*lane_key)(const struct sf_catalog_command *command, enum sf_catalog_lane lane,
                     struct sf_keyhash *kh);
    /* Reads the rows it decides on; sets *out_pivot when the lineage exists and the command is on
     * its name lane. */
    enum sf_err (*load)(struct sf_catalog_command *command, struct sf_sql_conn *conn,
                        bool *out_pivot);
    /* Validates against the rows and fills the plan; a refusal is in command->diag. */
    enum sf_err (*plan)(struct sf_catalog_command *command);
    /* Gates of one try on the command's lane; NULL = none. */
    void (*gates)(const struct sf_catalog_command *command, struct sf_catalog_gates *out_gates);
    /* Answers a repeat whose record (rows.replay) has the same payload from today's lineage: fills
     * plan.outcome's success payload, or refuses. The rows are loaded. NULL = the stored bytes. */
    enum sf_err (*replay)(struct sf_catalog_command *command);
};

extern const struct sf_catalog_mutation sf_catalog_put_namespace;
extern const struct sf_catalog_mutation sf_catalog_put_collection;
extern const struct sf_catalog_mutation sf_catalog_put_schema;

/* ------------------------------------------------------------------------------------------
 * The catalog
 * ------------------------------------------------------------------------------------------ */

/* Where a walk over lineages goes on; all zero: from the front. */
struct sf_catalog_sweep_place {
    uint64_t only;           /* walks this namespace, 0 = all */
    bool of_namespaces;      /* collections are through */
    bool begun;              /* the rest says behind what */
    int64_t horizon_unix_ms; /* of the last lineage looked at */
    uint64_t namespace_id;   /* of it */
    uint64_t collection_id;  /* of it; 0 = the namespace itself */
};

/* Behind which window the next claims are given; begun false: from the most overdue. */
struct sf_catalog_claim_place {
    bool begun;             /* the rest says behind what */
    int64_t due_ms;         /* of the last one that was looked at */
    uint64_t namespace_id;  /* of it */
    uint64_t collection_id; /* of it */
    int64_t start_ms;       /* its first millisecond */
    int64_t end_ms;         /* its end */
};

struct sf_catalog {
    /* immutable after the open */
    struct sf_catalog_deps deps;
    char *owner_id;             /* owned copy */
    uint32_t lane_shards;       /* of the store */
    uint32_t max_result_window; /* default */
    uint64_t owner_epoch;       /* of every shard: slot of the takeover record */
    struct sf_service services[SF_CATALOG_SERVICE_COUNT]; /* what it serves */
    struct sf_catalog_cache *cache;                       /* facts that reads answer from */
    struct sf_catalog_claims *claims;                     /* commands under way and removals */
    struct sf_catalog_jobs *jobs;                         /* background work */
    struct sf_catalog_projectors *projectors;             /* what of it is due */
    struct sf_catalog_gate_table *gates;                  /* locks across lanes */
    struct sf_catalog_heads *heads;                       /* hints of the head reconciler */
    struct sf_metric *metric_commands;                    /* NULL = none */
    struct sf_metric *metric_group_ms;                    /* NULL = none */
    struct sf_metric *metric_replays;                     /* NULL = none */
    struct sf_metric *metric_aborts;                      /* NULL = none */
    struct sf_catalog_callers *callers;                   /* who may call what */
    struct sf_catalog_quotas *quotas;                     /* namespaces that lease */
    /* atomic */
    _Atomic bool draining;             /* lets nothing new in */
    _Atomic bool deposed;              /* a newer owner was met */
    atomic_bool projection_lost;       /* the last look at the projection failed */
    _Atomic int stalled;               /* puts in doubt that have been repeated for long */
    _Atomic uint64_t attempts;         /* counts this process's attempts */
    _Atomic uint64_t commands_applied; /* committed by this process */
    _Atomic uint64_t groups_committed; /* by this process */
    _Atomic uint64_t attempts_aborted; /* by this process */
    _Atomic uint64_t removals_listed;  /* keys in the removals object as this owner left it */
    _Atomic int64_t removals_until_ms; /* all of them are over by then, monotonic */
    _Atomic uint64_t newest_segment;   /* last slot whose content is known; written by the leader */
    _Atomic uint64_t watermark;        /* raised in the projection */
    _Atomic uint64_t settled;          /* every slot up to here is settled and shown */
    _Atomic uint64_t read_turn;        /* spreads reads over lanes */
    _Atomic uint64_t recovered;        /* commands that the open finished */
    _Atomic int64_t windows_due_unix_ms; /* when time next changes a lifecycle window */
    _Atomic uint64_t open_ms;            /* that the open took */
    _Atomic bool rebuilt;                /* the open made the projection anew */
    _Atomic uint64_t lowest_segment;     /* lowest that counts, of the boundary object */
    bool opening;                   /* not serving yet: only sf_catalog_open's thread is here */
    struct sf_catalog_ahead *ahead; /* objects fetched ahead while opening, else NULL */
    /* lane of the quick jobs */
    struct sf_catalog_sweep_place swept[2];     /* sweeps of everything, of one namespace */
    struct sf_catalog_sweep_place contradicted; /* tombstone repair */
    /* lane of the slow jobs */
    bool checkpoint_known;        /* the next two are */
    int64_t checkpoint_at_ms;     /* when the newest was cut, unix */
    uint64_t checkpoint_commands; /* commands_applied at that time; may have wrapped */
    int64_t retention_next_ms;    /* before then nothing gets too old, unix; 0 = not known */
    /* leader only */
    int64_t boundary_looked_ms; /* monotonic time of the last look at the boundary object */
    /* under group_mu */
    pthread_mutex_t group_mu;
    struct sf_catalog_command *group_head, *group_tail; /* waiting for a group */
    bool group_led;                                     /* somebody leads */
    uint64_t group_tasks;                               /* numbers of tasks given so far */
    struct sf_catalog_heir *group_heir;                 /* who leads next, NULL = none waits */
    bool showing;                                       /* a group writes its rows */
    struct sf_waiter *show_wait;                        /* the leader that waits to write its own */
    /* of the group whose turn it is to write rows */
    bool show_gap; /* a group was not shown whole: the watermark stays */
    /* under state_mu */
    pthread_mutex_t state_mu;
    struct sf_catalog_waiter *look_head, *look_tail; /* readings that wait for one look */
    uint64_t reclaim_after[2]; /* namespace and collection where reclamation goes on */
    struct sf_catalog_claim_place claim_after; /* where claims go on */
    bool look_running;                         /* a look task is queued and has not begun */
    uint64_t in_flight;                        /* requests between arrival and answer */
    bool idle_wanted;                          /* the close waits on `idle` */
    struct sf_waiter idle;                     /* opened when in_flight became 0 */
};

/* catalog_state.c -------------------------------------------------------------------------- */

/* Counts a request in; false while draining, deposed or (mutations) stalled: then `diag` is set. */
bool sf_catalog_enter(struct sf_catalog *catalog, bool mutation, struct sf_diag *diag);
void sf_catalog_leave(struct sf_catalog *catalog);

/* Marks this owner deposed: everything is refused from now on. Returns SF_ERR_DEPOSED. */
enum sf_err sf_catalog_depose(struct sf_catalog *catalog, const char *met, uint64_t epoch);

/* True when work must end without waiting for the store any longer. */
bool sf_catalog_ending(const struct sf_catalog *catalog);

/* Pauses a worker task before try `tries` (1-based); jittered, doubling to a cap. */
void sf_catalog_pause(struct sf_catalog *catalog, struct sf_sched *sched, unsigned tries);

/* Notes that the projection's watermark stands at `segment`. */
void sf_catalog_watermark_note(struct sf_catalog *catalog, uint64_t segment);

/* Facts of a collection changed: forget them. Like all of these, after the change stands and before
 * anybody is told of it. */
void sf_catalog_state_forget(struct sf_catalog *catalog, uint64_t namespace_id,
                             uint64_t collection_id);

/* A collection name was bound or set free: forget it and the namespace's binding revision. */
void sf_catalog_state_binding(struct sf_catalog *catalog, uint64_t namespace_id, const char *name);

/* A namespace changed: forget it; `name` (NULL = as before) was bound or set free. */
void sf_catalog_state_namespace(struct sf_catalog *catalog, uint64_t namespace_id,
                                const char *name);

/* A lagging field of a descriptor changed: forget the descriptor alone; collection_id 0 = the
 * namespace's. */
void sf_catalog_state_descriptor(struct sf_catalog *catalog, uint64_t namespace_id,
                                 uint64_t collection_id);

/* The replay row of a command is gone: forget its record. */
void sf_catalog_state_command(struct sf_catalog *catalog, const char *command_identity);

/* The record of a command, NULL = none: from memory once a repeat asked for it (a record never
 * changes), else from the snapshot. Errors as sf_catalog_sql_replay. */
enum sf_err sf_catalog_state_record(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                    const char *command_identity, struct sf_arena *arena,
                                    struct sf_diag *diag,
                                    SF_PB(CommandOutcomeObject) * *out_record);

/* Forgets what a committed command changed; `rows` are those that it was decided on. */
void sf_catalog_state_committed(struct sf_catalog *catalog,
                                const SF_PB(CommandOutcomeObject) * outcome,
                                const struct sf_catalog_rows *rows);

/* Job "forget-facts", by hand: empties the memory of facts, as sf_catalog_flush. */
enum sf_err sf_catalog_forget_job(struct sf_catalog *catalog, struct sf_sched *sched,
                                  struct sf_diag *diag, uint64_t *out_done);

/* Job "projection-look": reads the owner epochs, so that a projection that is gone is known without
 * a request. */
enum sf_err sf_catalog_projection_job(struct sf_catalog *catalog, struct sf_sched *sched,
                                      struct sf_diag *diag, uint64_t *out_done);

/* Ends `call` with `diag`, internal codes translated to the contract's. Counts nothing. */
void sf_catalog_refuse(struct sf_call *call, struct sf_diag *diag);

/* catalog_store.c -------------------------------------------------------------------------- */

void sf_catalog_key_namespace(struct sf_buf *out, uint64_t namespace_id, uint64_t revision);
void sf_catalog_key_quota(struct sf_buf *out, uint64_t namespace_id);
void sf_catalog_key_collection(struct sf_buf *out, uint64_t namespace_id, uint64_t collection_id,
                               uint64_t revision);
void sf_catalog_key_generation(struct sf_buf *out, uint64_t namespace_id, uint64_t collection_id,
                               uint64_t version, const char *token);
void sf_catalog_key_tombstone(struct sf_buf *out, uint64_t namespace_id, uint64_t collection_id,
                              uint64_t drop_revision);
void sf_catalog_key_statistics_head(struct sf_buf *out, uint64_t namespace_id,
                                    uint64_t collection_id);
void sf_catalog_key_statistics(struct sf_buf *out, uint64_t namespace_id, uint64_t collection_id,
                               const char *token, uint64_t stats_commit_ts);
void sf_catalog_key_namespace_name(struct sf_buf *out, const char *name);
void sf_catalog_key_collection_name(struct sf_buf *out, uint64_t namespace_id, const char *name);
void sf_catalog_key_outcome(struct sf_buf *out, const char *command_identity);
void sf_catalog_key_transport(struct sf_buf *out, const char *lookup_key);
void sf_catalog_key_business(struct sf_buf *out, const char *kind_name, const char *lookup_key);
void sf_catalog_key_segment(struct sf_buf *out, uint64_t epoch);

#define SF_CATALOG_SEGMENT_PREFIX "catalog-recovery-segments/segment_"
#define SF_CATALOG_BOUNDARY_KEY   "control/catalog-boundary.json"

/* Slot of a segment's key; false when it is not one. */
bool sf_catalog_segment_of_key(struct sf_view key, uint64_t *out_epoch);

/* Ids in "catalog/HH/{ns}/[{collection}/]{name}"; collection 0 = the key is of the namespace.
 * False: it is no such key. *out_name points into it. */
bool sf_catalog_key_ids(struct sf_view key, uint64_t *out_namespace_id, uint64_t *out_collection_id,
                        struct sf_view *out_name);

/* "PUT_NAMESPACE_METADATA" of a kind. */
const char *sf_catalog_kind_name(SF_PB(CommandKind) kind);

/* Encodes `message` into put->body (zstd when `compressed`). put->key is set by the caller.
 * out_sha256_hex may be NULL: digest of the stored bytes. */
void sf_catalog_put_encode(struct sf_catalog_put *put, const ProtobufCMessage *message,
                           bool compressed, char *out_sha256_hex);

/* Decodes a stored body (verified). Errors: SF_ERR_CORRUPT. */
enum sf_err sf_catalog_decode(const ProtobufCMessageDescriptor *desc, bool compressed,
                              struct sf_view body, struct sf_arena *arena, struct sf_diag *diag,
                              ProtobufCMessage **out_message);

/* Reads, verifies, decodes; pauses and repeats while the store is unavailable, up to
 * SF_CATALOG_PUT_TRIES. out_body_sha_hex and out_etag may be NULL. Errors: SF_ERR_NOT_FOUND (diag
 * untouched),
 * SF_ERR_UNAVAILABLE, SF_ERR_CORRUPT. */
enum sf_err sf_catalog_read(struct sf_catalog *catalog, struct sf_sched *sched, struct sf_view key,
                            const ProtobufCMessageDescriptor *desc, bool compressed,
                            struct sf_arena *arena, struct sf_diag *diag,
                            ProtobufCMessage **out_message, char *out_body_sha_hex,
                            struct sf_etag *out_etag);

/* Hex SHA-256 of the canonical JSON of a schema generation's body. */
void sf_catalog_body_sha256(const SF_PB(SchemaGenerationBody) * body,
                            char out_hex[SF_SHA256_HEX_BYTES]);

/* catalog_put.c ---------------------------------------------------------------------------- */

void sf_catalog_put_fini(struct sf_catalog_put *put);

/* Fills a store put; `stage` and `command` as in struct sf_put. */
void sf_catalog_put_fill(const struct sf_catalog_put *put, uint32_t stage, uint32_t command,
                         struct sf_put *out);

/* Takes the result of the first try and goes on until the put stands, is lost, or is certainly not
 * applied. A put in doubt is repeated until one object stands (rule "hold"); only the end of the
 * process or of its office ends that: SF_ERR_STOPPED, SF_ERR_DEPOSED. SF_OK: put->state says the
 * rest. `limit` bounds tries that leave nothing in doubt (0 = none). */
enum sf_err sf_catalog_put_settle(struct sf_catalog *catalog, struct sf_sched *sched,
                                  struct sf_catalog_put *put, enum sf_err first,
                                  const struct sf_etag *first_etag, unsigned limit);

/* One put from the start. */
enum sf_err sf_catalog_put_run(struct sf_catalog *catalog, struct sf_sched *sched,
                               struct sf_catalog_put *put, unsigned limit);

/* catalog_presplit.c ----------------------------------------------------------------------- */

#define SF_CATALOG_WHALE_PROFILE "whale" /* policy profile of namespaces that are split ahead */

/* A committed control object is shown: starts the hook for a new whale namespace. Never blocks. */
void sf_catalog_presplit(struct sf_catalog *catalog, const ProtobufCMessage *object);

/* catalog_group.c -------------------------------------------------------------------------- */

/* Makes command->plan durable together with what others have waiting, and shows it. May block the
 * lane task. The lane may go on when it returns, unless the catalog is ending. SF_CATALOG_PENDING:
 * the command's lane is held (command->hold), and the leader of its group ends it with
 * sf_catalog_command_end, perhaps already before this returned. */
enum sf_catalog_commit sf_catalog_group_commit(struct sf_catalog_command *command);

/* Goes on with a command whose commit was pending, from its result on: the answer, or a fresh try.
 * On the leader's thread. Frees the command and lets its lane go on. */
void sf_catalog_command_end(struct sf_catalog_command *command);

/* Gives up what waits for a group: nothing of it was put. While a put is in doubt, so that workers
 * are free for reads. */
void sf_catalog_group_flush(struct sf_catalog *catalog);

/* catalog_outcome.c ------------------------------------------------------------------------ */

/* Encodes the outcome of a listed command for the entry at `slot` into `put`. */
void sf_catalog_outcome_encode(struct sf_catalog_command *command, uint64_t slot,
                               struct sf_catalog_put *put);

/* What settles an entry: see sf_catalog_abort. */
struct sf_catalog_settled {
    bool committed;                        /* the entry's own outcome stands */
    bool absent;                           /* nothing stood at the key (sf_catalog_peek) */
    SF_PB(CommandOutcomeObject) * outcome; /* that outcome, in the arena */
};

/* Settles the entry at `slot` by an abort marker, unless an outcome or a marker that names this
 * entry or a later one stands. Errors as sf_catalog_put_settle, and SF_ERR_UNAVAILABLE,
 * SF_ERR_CORRUPT of the reads. */
enum sf_err sf_catalog_abort(struct sf_catalog *catalog, struct sf_sched *sched,
                             const SF_PB(RecoverySegmentEntry) * entry, uint64_t slot,
                             const char *reason, struct sf_arena *arena, struct sf_diag *diag,
                             struct sf_catalog_settled *out_settled);

/* What stands at the entry's key, nothing being written. */
enum sf_err sf_catalog_peek(struct sf_catalog *catalog, struct sf_sched *sched,
                            const SF_PB(RecoverySegmentEntry) * entry, uint64_t slot,
                            struct sf_arena *arena, struct sf_diag *diag,
                            struct sf_catalog_settled *out_settled);

/* The pointers of `outcome` as puts; returns their number (1 or 2). */
size_t sf_catalog_pointer_puts(const SF_PB(CommandOutcomeObject) * outcome,
                               struct sf_catalog_put puts[2]);

/* Does the pointer with the bytes `found` give way to `own`? A business key is free for another
 * original only once retention was done with the elder record. */
bool sf_catalog_pointer_elder(struct sf_view found, struct sf_view own);

/* After a pointer's put: an elder one that stood there is swapped for it. */
enum sf_err sf_catalog_pointer_replace(struct sf_catalog *catalog, struct sf_sched *sched,
                                       struct sf_catalog_put *put);

/* Makes the replay pointers of a committed outcome stand, and the object that follows from it.
 * Errors as sf_catalog_put_settle, SF_ERR_UNAVAILABLE of a read. */
enum sf_err sf_catalog_pointers(struct sf_catalog *catalog, struct sf_sched *sched,
                                const SF_PB(CommandOutcomeObject) * outcome);

/* Message type of the control object of a command kind; NULL: the kind has none. */
const ProtobufCMessageDescriptor *sf_catalog_control_type(SF_PB(CommandKind) kind);

/* Reads the control object of a committed outcome and checks it against the outcome's SHA-256;
 * NULL when it has none. Errors: SF_ERR_CORRUPT, SF_ERR_UNAVAILABLE. */
enum sf_err sf_catalog_control_read(struct sf_catalog *catalog, struct sf_sched *sched,
                                    const SF_PB(CommandOutcomeObject) * outcome,
                                    struct sf_arena *arena, struct sf_diag *diag,
                                    ProtobufCMessage **out_object);

/* catalog_apply.c -------------------------------------------------------------------------- */

/* Starts a mutation: takes `call`, answers it later. */
void sf_catalog_mutate(struct sf_catalog *catalog, const struct sf_catalog_mutation *ops,
                       struct sf_call *call, const ProtobufCMessage *request);

/* Starts an intent that came by RPC (the caller is judged already): takes `call`. */
void sf_catalog_intent(struct sf_catalog *catalog, const struct sf_catalog_mutation *ops,
                       struct sf_call *call, const ProtobufCMessage *request);

/* Runs an intent of the catalog's own and waits for it: on a task of another lane, without gates.
 * out_response (NULL = not wanted) is the packed success payload, in `arena`. Errors: the refusal,
 * in `diag`. */
enum sf_err sf_catalog_intend(struct sf_catalog *catalog, const struct sf_catalog_mutation *ops,
                              const ProtobufCMessage *request, struct sf_arena *arena,
                              struct sf_diag *diag, struct sf_view *out_response);

/* Keys of serial lanes: the name lanes take a name, the id lanes none. */
uint64_t sf_catalog_lane_key(enum sf_catalog_lane lane, uint64_t namespace_id,
                             uint64_t collection_id, struct sf_view name);
uint64_t sf_catalog_collection_lane(uint64_t namespace_id, uint64_t collection_id);

/* Name of a lane's kind. */
const char *sf_catalog_lane_name(enum sf_catalog_lane lane);

/* Shard of a namespace id, of a namespace name. */
uint32_t sf_catalog_shard_of_id(const struct sf_catalog *catalog, uint64_t namespace_id);
uint32_t sf_catalog_shard_of_name(const struct sf_catalog *catalog, const char *name);

/* catalog_plan.c --------------------------------------------------------------------------- */

/* Loads rows.collection, rows.ns and rows.business of a command that is about a collection. */
enum sf_err sf_catalog_plan_load(struct sf_catalog_command *command, struct sf_sql_conn *conn,
                                 const SF_PB(CollectionRef) * ref);

/* `count` consecutive timestamps of the oracle. */
enum sf_err sf_catalog_plan_ts(struct sf_catalog_command *command, uint32_t count,
                               uint64_t *out_first);

/* Who a command is about, as recorded; texts live as long as the try. */
struct sf_catalog_subject {
    uint64_t namespace_id;       /* 0 = none */
    const char *namespace_name;  /* "" = none */
    uint64_t collection_id;      /* 0 = none */
    const char *collection_name; /* "" = none */
};

/* Fills what every outcome carries: identity, replay family, scope, RequestMeta of a public
 * command, timestamps; APPLIED, ORIGINAL. */
enum sf_err sf_catalog_plan_outcome(struct sf_catalog_command *command, uint64_t applied_ts,
                                    const struct sf_catalog_subject *subject);

/* The packed success response becomes the payload of the record. */
enum sf_err sf_catalog_plan_success(struct sf_catalog_command *command,
                                    const ProtobufCMessage *response);

/* Registers the versioned control object: stage 0, named by the outcome. `key` is taken over. */
enum sf_err sf_catalog_plan_object(struct sf_catalog_command *command, struct sf_buf *key,
                                   const ProtobufCMessage *object);

/* The refusal of a command that does not fit its arena. */
enum sf_err sf_catalog_plan_too_large(struct sf_catalog_command *command);

/* catalog_sql.c ---------------------------------------------------------------------------- */

/* Refuses (SF_ERR_DEPOSED) when a shard row is missing or carries a higher epoch: the look. */
enum sf_err sf_catalog_sql_look(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                struct sf_diag *diag);

enum sf_err sf_catalog_sql_namespace(struct sf_sql_conn *conn, uint64_t namespace_id,
                                     struct sf_arena *arena, struct sf_diag *diag,
                                     SF_PB(NamespaceRow) * *out_row);
enum sf_err sf_catalog_sql_namespace_named(struct sf_sql_conn *conn, const char *name,
                                           struct sf_arena *arena, struct sf_diag *diag,
                                           SF_PB(NamespaceRow) * *out_row);
enum sf_err sf_catalog_sql_collection(struct sf_sql_conn *conn, uint64_t namespace_id,
                                      uint64_t collection_id, struct sf_arena *arena,
                                      struct sf_diag *diag, SF_PB(CollectionRow) * *out_row);
enum sf_err sf_catalog_sql_collection_named(struct sf_sql_conn *conn, uint64_t namespace_id,
                                            const char *name, struct sf_arena *arena,
                                            struct sf_diag *diag, SF_PB(CollectionRow) * *out_row);

/* Up to `limit` readable rows with name > after and within the prefix, in byte order. */
enum sf_err sf_catalog_sql_list_namespaces(struct sf_sql_conn *conn, struct sf_view prefix,
                                           struct sf_view after, size_t limit,
                                           struct sf_arena *arena, struct sf_diag *diag,
                                           SF_PB(NamespaceRow) * **out_rows, size_t *out_count);
/* Statement of a page of collections; `bounded`: with an end of the prefix. */
const char *sf_catalog_sql_collection_page(bool bounded);

enum sf_err sf_catalog_sql_list_collections(struct sf_sql_conn *conn, uint64_t namespace_id,
                                            struct sf_view prefix, struct sf_view after,
                                            size_t limit, struct sf_arena *arena,
                                            struct sf_diag *diag, SF_PB(CollectionRow) * **out_rows,
                                            size_t *out_count);

/* Which generation sf_catalog_sql_generation looks for. */
enum sf_catalog_generation_by {
    SF_CATALOG_GENERATION_VERSION, /* of that version */
    SF_CATALOG_GENERATION_TOKEN,   /* with that token */
    SF_CATALOG_GENERATION_READY    /* the READY one of the highest version */
};
enum sf_err sf_catalog_sql_generation(struct sf_sql_conn *conn, uint64_t namespace_id,
                                      uint64_t collection_id, enum sf_catalog_generation_by by,
                                      uint64_t version, const char *token, struct sf_arena *arena,
                                      struct sf_diag *diag, SF_PB(SchemaGenerationRow) * *out_row);

/* The READY generation of the highest version below `version`. */
enum sf_err sf_catalog_sql_ready_below(struct sf_sql_conn *conn, uint64_t namespace_id,
                                       uint64_t collection_id, uint64_t version,
                                       struct sf_arena *arena, struct sf_diag *diag,
                                       SF_PB(SchemaGenerationRow) * *out_row);

/* Collections with a schema generation; *out_refs is the caller's (free). */
enum sf_err sf_catalog_sql_schema_collections(struct sf_sql_conn *conn, struct sf_diag *diag,
                                              SF_PB(CollectionRef) * *out_refs, size_t *out_count);

/* The message in the only column of a query's first row, which may be NULL; *out_message (a pointer
 * to a message's pointer) NULL: none. Puts the statement back. Errors: SF_ERR_CORRUPT, those of
 * SQL. */
enum sf_err sf_catalog_sql_one_message(struct sf_sql_stmt *stmt,
                                       const ProtobufCMessageDescriptor *desc,
                                       struct sf_arena *arena, struct sf_diag *diag,
                                       void *out_message);

/* Records by command identity; by business key. */
enum sf_err sf_catalog_sql_replay(struct sf_sql_conn *conn, const char *command_identity,
                                  struct sf_arena *arena, struct sf_diag *diag,
                                  SF_PB(CommandOutcomeObject) * *out_outcome);
enum sf_err sf_catalog_sql_business(struct sf_sql_conn *conn, const char *kind_name,
                                    const char *business_key, struct sf_arena *arena,
                                    struct sf_diag *diag,
                                    SF_PB(CommandOutcomeObject) * *out_outcome);

/* Lowest watermark and highest owner epoch over all shards; *out_count rows. */
enum sf_err sf_catalog_sql_shards(struct sf_sql_conn *conn, struct sf_diag *diag,
                                  uint64_t *out_count, uint64_t *out_low_watermark,
                                  uint64_t *out_high_epoch);

/* catalog_project.c: writes; inside a transaction of the writer ---------------------------- */

/* Shows one committed command: replay row if absent (else nothing), rows of its object. `object` is
 * the versioned control object or NULL. `epoch_check`: drop it when its shard's epoch is higher or
 * its row missing (*out_dropped). */
enum sf_err sf_catalog_project(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                               const SF_PB(CommandOutcomeObject) * outcome,
                               const ProtobufCMessage *object, bool epoch_check,
                               struct sf_arena *arena, struct sf_diag *diag, bool *out_dropped);

/* Inserts the replay row of a record alone; *out_fresh false when it was there. */
enum sf_err sf_catalog_project_replay(struct sf_sql_conn *conn,
                                      const SF_PB(CommandOutcomeObject) * outcome,
                                      struct sf_diag *diag, bool *out_fresh);

/* Raises the watermark of this owner's shards. */
enum sf_err sf_catalog_project_watermark(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                         uint64_t segment, struct sf_diag *diag);

/* Raises the owner epoch of every shard to this owner's; rows are made when `create`. Errors:
 * SF_ERR_DEPOSED when a row is above it. */
enum sf_err sf_catalog_project_owner(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                     bool create, uint64_t watermark, struct sf_diag *diag);

/* Owner epoch of a rebuild under way, 0 = none. */
enum sf_err sf_catalog_sql_claim(struct sf_sql_conn *conn, struct sf_diag *diag,
                                 uint64_t *out_epoch);

/* Claims a lost projection for a rebuild under this owner's epoch and forgets every row.
 * SF_ERR_DEPOSED when a newer owner claimed or has it, unless its rows are `foreign`: of another
 * chain. */
enum sf_err sf_catalog_project_claim(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                     bool foreign, struct sf_diag *diag);

/* SF_ERR_DEPOSED unless the claim is still this owner's. */
enum sf_err sf_catalog_project_claimed(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                       struct sf_diag *diag);

/* The row of a collection's descriptor; the binding revision after one more change, never below
 * `floor`. */
enum sf_err sf_catalog_project_collection(struct sf_sql_conn *conn,
                                          const SF_PB(CollectionDescriptorObject) * object,
                                          struct sf_diag *diag);
enum sf_err sf_catalog_project_binding(struct sf_sql_conn *conn, uint64_t namespace_id,
                                       uint64_t floor, struct sf_diag *diag);

/* One more binding revision for every namespace (after a rebuild). */
enum sf_err sf_catalog_project_bump_bindings(struct sf_sql_conn *conn, struct sf_diag *diag);

/* Convergence state of one generation; statistics base. */
enum sf_err sf_catalog_project_convergence(struct sf_sql_conn *conn, uint64_t namespace_id,
                                           uint64_t collection_id, uint64_t version,
                                           const SF_PB(SchemaConvergence) * convergence,
                                           struct sf_diag *diag);
enum sf_err sf_catalog_project_statistics(struct sf_sql_conn *conn,
                                          const SF_PB(OptimizerStatisticsSnapshotObject) * snapshot,
                                          struct sf_diag *diag);

/* Notes that generation `version` of a collection and its statistics head stand adopted under this
 * owner's epoch, or (0) that they are to be adopted anew. A newer owner's note stays. */
enum sf_err sf_catalog_project_adopted(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                       uint64_t namespace_id, uint64_t collection_id,
                                       uint64_t version, struct sf_diag *diag);

/* Anti-ABA rows. namespace_id 0 = a namespace name. */
enum sf_err sf_catalog_project_name_epoch(struct sf_sql_conn *conn, uint64_t namespace_id,
                                          const char *name, uint64_t epoch, struct sf_diag *diag);

/* catalog_converge.c ----------------------------------------------------------------------- */

/* Adopts the active generation's convergence block under this owner's epoch before it is answered
 * from or acted on, and shows what it says. On the collection's lane. Harmless without a schema. */
enum sf_err sf_catalog_adopt(struct sf_catalog *catalog, uint64_t namespace_id,
                             uint64_t collection_id, struct sf_arena *arena, struct sf_diag *diag);

/* As sf_catalog_adopt for who does not hold the collection's gate: takes it meanwhile. */
enum sf_err sf_catalog_adopt_alone(struct sf_catalog *catalog, uint64_t namespace_id,
                                   uint64_t collection_id, struct sf_arena *arena,
                                   struct sf_diag *diag);

/* Runs one signal; on the collection's lane, without its gate. */
enum sf_err sf_catalog_signal(struct sf_catalog *catalog,
                              const SF_PB(ReportSchemaConvergenceSignalRequest) * request,
                              struct sf_arena *arena, struct sf_diag *diag,
                              SF_PB(SchemaSyncState) * *out_state, bool *out_changed);

/* catalog_read.c --------------------------------------------------------------------------- */

enum sf_catalog_read_kind {
    SF_CATALOG_READ_NAMESPACE,
    SF_CATALOG_READ_NAMESPACES,
    SF_CATALOG_READ_COLLECTION,
    SF_CATALOG_READ_COLLECTIONS,
    SF_CATALOG_READ_SCHEMA,
    SF_CATALOG_READ_SYNC,
    SF_CATALOG_READ_BINDING,
    SF_CATALOG_READ_ADMISSION,
    SF_CATALOG_READ_SIGNAL,
    SF_CATALOG_READ_CALL /* sf_catalog_call_start */
};
/* Answers a read, from memory if possible, or starts it: takes `call`. */
void sf_catalog_read_start(struct sf_catalog *catalog, enum sf_catalog_read_kind kind,
                           struct sf_call *call, const ProtobufCMessage *request);

/* What a call does on its lane: answers it and returns SF_OK, or says in the call's diag why not.
 */
typedef enum sf_err (*sf_catalog_call_fn)(struct sf_catalog *catalog, struct sf_call *call,
                                          const ProtobufCMessage *request);

/* Runs `run` on the lane of `ref`'s collection (NULL = any lane): takes `call`. `mutation`: refused
 * while mutations are. */
void sf_catalog_call_start(struct sf_catalog *catalog, struct sf_call *call,
                           const ProtobufCMessage *request, const SF_PB(CollectionRef) * ref,
                           bool mutation, sf_catalog_call_fn run);

/* catalog_page.c --------------------------------------------------------------------------- */

/* A page as admitted. */
struct sf_catalog_page {
    uint32_t size;        /* effective page size */
    struct sf_view after; /* last seen name, empty = from the start */
};

/* A token's text to its claims (in `arena`), signature and expiry checked. Fuzzed. */
enum sf_token_reason sf_catalog_page_decode(struct sf_keyring *keyring, int64_t now_unix_ms,
                                            struct sf_view text, struct sf_arena *arena,
                                            const SF_PB(PageTokenClaims) * *out_claims);

/* Packed claims to a token's text. */
void sf_catalog_page_encode(struct sf_keyring *keyring, int64_t now_unix_ms,
                            int64_t expires_unix_ms, struct sf_view claims, struct sf_buf *out);

/* Checks the request's page against the caller. `method` is the full method name. */
enum sf_err sf_catalog_page_open(struct sf_catalog *catalog, struct sf_call *call,
                                 const SF_PB(RequestMeta) * meta, uint64_t namespace_id,
                                 const char *prefix, const SF_PB(PageRequest) * page,
                                 struct sf_catalog_page *out_page);

/* The token of the page after `last_seen`, in the call's arena. */
SF_PB(NextPage) * sf_catalog_page_next(struct sf_catalog *catalog, struct sf_call *call,
                                       const SF_PB(RequestMeta) * meta, uint64_t namespace_id,
                                       const char *prefix, uint32_t size, const char *last_seen);

/* catalog_recover.c ------------------------------------------------------------------------ */

/* Takes over, settles, brings the projection up to date. */
enum sf_err sf_catalog_recover(struct sf_catalog *catalog, struct sf_sched *sched,
                               struct sf_diag *diag);

/* Looks whether the boundary passed this process; SF_ERR_DEPOSED when it did. */
enum sf_err sf_catalog_boundary_look(struct sf_catalog *catalog, struct sf_sched *sched);

#endif
