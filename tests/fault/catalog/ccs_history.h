/*
 * The history of a run, for scenarios in which lineages come and go: every call with what it was
 * answered (ccs_history.c), the committed commands in the order of the chain, a sequential model
 * of the catalog that they must be a run of (ccs_model.c), and the judge, which asks of each call
 * whether some state between its start and its end explains the answer (ccs_judge.c).
 *
 * The model is written from the notes and knows nothing of the service: a committed command is its
 * outcome object and the request that its key was sent with. Chain order is real-time order for
 * commands that exclude each other, since appends are totally ordered and a lane's next command
 * waits; so a call sees of its lineage a prefix of the chain. Commands of other lineages may become
 * visible in another order; the judge leaves them out.
 */
#ifndef SF_TESTS_FAULT_CCS_HISTORY_H
#define SF_TESTS_FAULT_CCS_HISTORY_H

#include "fault/catalog/ccs_world.h"

#define NS_NAMES     2   /* namespace names in use */
#define COLL_NAMES   2   /* collection names in each namespace */
#define MAX_CALLS    900 /* of a run */
#define MAX_COMMANDS 400 /* committed in a run */
#define MAX_LINEAGES 64  /* namespaces of a run, and collections */
#define MAX_ENTRIES  900 /* listed in the chain */
#define NO_NAME      (-1)

/* What a call asks for. */
enum op_kind {
    OP_PUT_NS,
    OP_PUT_COLL,
    OP_SCHEMA,
    OP_DROP,
    OP_TRANSITION,
    OP_HEAD,
    OP_LAST_COMMAND = OP_HEAD, /* those above leave a record, those below none of their own */
    OP_SWEEP,
    OP_GET_NS,
    OP_GET_COLL,
    OP_RESOLVE,
    OP_LIST_NS,
    OP_LIST_COLL,
    OP_GET_SCHEMA,
    OP_ADMISSION,
    OP_COUNT
};

/* A request, small enough to be kept and sent again. */
struct op {
    enum op_kind kind;
    int ns_name;      /* index; NO_NAME = the op does not say */
    int coll_name;    /* index; NO_NAME = the op does not say */
    uint64_t ns_id;   /* where the op is scoped by id */
    uint64_t coll_id; /* where the op is scoped by id */
    char key[24];     /* idempotency key; empty on reads and intents */
    uint64_t value;   /* what the descriptor's option or the definition says */
    uint64_t version; /* schema version, head version */
    int64_t expected; /* namespace revision, head version */
    bool fenced;      /* drop: with a fence of `version`'s token */
    uint64_t target;  /* lifecycle state */
    char sum[72];     /* head: checksum of `version` */
};

/* A call and its last try. */
struct asked {
    struct op op;
    uint64_t first_seq;               /* when the first try began */
    uint64_t start_seq;               /* when the last try began; 0 = it never ran */
    uint64_t end_seq;                 /* when it was answered; 0 = not (yet) */
    uint64_t end_slot;                /* newest segment then */
    int64_t start_ms;                 /* virtual, of the last try */
    int64_t end_ms;                   /* virtual */
    enum sf_err err;                  /* the answer's code */
    const ProtobufCMessage *response; /* in the history's arena, NULL unless err is SF_OK */
    char detail[48];                  /* of a lifecycle conflict: reservation_scope */
};

/* A committed command. */
struct command {
    uint64_t slot;                               /* of its entry */
    size_t index;                                /* in the segment */
    int ns_name;                                 /* index of the namespace's name */
    int coll_name;                               /* index, NO_NAME for commands of a namespace */
    uint64_t value;                              /* of the request */
    const SF_PB(CommandOutcomeObject) * outcome; /* in the history's arena */
};

/* An entry of the chain. */
struct listed {
    uint64_t slot;
    size_t index;
    char command_identity[72];
    char attempt_id[136];
};

enum life_state { LIFE_ACTIVE, LIFE_QUIESCING, LIFE_TOMBSTONED, LIFE_RELEASED };

/* A namespace lineage in the model. */
struct ns_state {
    uint64_t id;
    int name;
    uint64_t epoch;
    uint64_t revision;
    enum life_state life;
    uint64_t value;
    int64_t created_ms;
    int64_t gc_after_ms; /* once tombstoned */
};

/* A collection lineage in the model. */
struct coll_state {
    uint64_t id;
    uint64_t ns_id;
    int ns_name;
    int name;
    uint64_t epoch;
    uint64_t revision;
    enum life_state life;
    uint64_t value;
    int64_t created_ms;
    int64_t gc_after_ms;     /* once tombstoned */
    uint64_t schema_version; /* active; 0 = none */
    uint64_t schema_value;   /* of the active generation's definition */
    uint64_t head;           /* manifest head version */
};

/* The catalog after some number of commands. */
struct state {
    struct ns_state ns[MAX_LINEAGES];
    size_t ns_count;
    struct coll_state coll[MAX_LINEAGES];
    size_t coll_count;
    uint64_t ns_epoch[NS_NAMES]; /* last allocated */
};

#define MAX_PUBLISHED 8 /* manifests of one collection */

/* A lineage that some answer named. */
struct seen {
    int ns_name;
    int coll_name; /* NO_NAME: a namespace */
    uint64_t ns_id;
    uint64_t coll_id;
    uint64_t published;                        /* newest committed manifest, 0 = none */
    uint64_t published_seq[MAX_PUBLISHED + 1]; /* when each was committed */
    char checksums[MAX_PUBLISHED + 1][72];     /* of each */
};

struct history {
    struct world *w;
    struct sf_arena *arena;
    struct asked *calls; /* MAX_CALLS */
    size_t call_count;
    uint64_t seq; /* grows with each start and end of a call */
    struct listed *listed;
    size_t listed_count;
    uint64_t tail; /* newest slot that was read */
    struct command *commands;
    size_t command_count;
    struct state **states; /* [n]: after n commands */
    uint64_t next_value;   /* every request says another one */
    uint64_t next_key;
    bool served[OP_COUNT]; /* families that this build serves */
    struct seen seen[MAX_LINEAGES];
    size_t seen_count;
    size_t *survey; /* calls of the first survey */
    size_t survey_count;
    size_t aged_count;       /* the first calls, of the time before the month */
    unsigned repeat_percent; /* of steps that repeat an earlier op */
};

/* ccs_history.c */
struct history *history_new(struct world *w);
void history_destroy(struct history *h);
/* Reads what the chain grew by; returns its newest slot. */
uint64_t history_tail(struct history *h);
/* Adds the committed commands that are not there yet, in chain order. Before records are removed,
 * and at the end. */
void history_collect(struct history *h);
/* Index of a name such as "n1" or "c0". */
int name_index(const char *name);
/* The committed command of a call's key or intent, NULL = none. `out_pos` is its number, from 1. */
const struct command *history_command(const struct history *h, const struct op *op,
                                      size_t *out_pos);
/* The next one above number `after`: a key whose record was removed by age is new. */
const struct command *history_command_after(const struct history *h, const struct op *op,
                                            size_t after, size_t *out_pos);
/* Was the record of a command old enough to be removed at that moment? */
bool history_aged(const struct history *h, const struct command *command, int64_t at_ms);
/* Sends an op until it is answered, at `node` (NULL: at either contender), and keeps the answer. */
struct asked *perform(struct client *c, struct sim_node *node, const struct op *op);

/* ccs_request.c: requests are built in `arena`. */
const char *op_method(enum op_kind kind);
const ProtobufCMessage *op_request(const struct op *op, struct sf_arena *arena);
const char *op_text(const struct op *op, char out[160]);

/* ccs_model.c: plays all commands; one that the notes do not admit is a violation. */
void model_run(struct history *h);
const struct ns_state *model_ns(const struct state *s, uint64_t id);
const struct ns_state *model_ns_named(const struct state *s, int name); /* unreleased */
const struct coll_state *model_coll(const struct state *s, uint64_t ns_id, uint64_t id);
const struct coll_state *model_coll_named(const struct state *s, uint64_t ns_id, int name);
/* Number at the end of "..._v{n}.json" of a record's first control object; 0 = none. */
uint64_t model_object_number(const SF_PB(CommandOutcomeObject) * outcome);
uint64_t option_of(const SF_PB(DescriptorOptions) * options);

/* ccs_work.c: one random step of a client. */
void work_step(struct client *c);
/* Notes the lineages that an answer names. */
void work_learn(struct history *h, const struct asked *asked);

/* The newest revision of a namespace's descriptor that stands; it may be an orphan. */
uint64_t work_guess_revision(struct history *h, uint64_t ns_id);

/* ccs_publish.c: commits the next manifest of a collection; publish_of: NULL = unknown. */
void publish(struct history *h, struct seen *seen);
struct seen *publish_of(struct history *h, uint64_t coll_id);

/* ccs_revive.c */
void revive_names(struct client *c);

/* Waits for clients of a lineage run. */
struct lineage_wait {
    struct world *w;
    unsigned done;
};

/* ccs_lineage.c: starts clients and operator, with process NULL the contenders too. */
struct sim_process *lineage_begin(struct world *w, struct client clients[CLIENTS + 1],
                                  struct sim_process *process);
bool lineage_done(struct sim *sim, void *ctx);
/* Surveys, rebuilds, surveys again, judges, ends the world. */
void lineage_finish(struct world *w, struct sim_process *clients);

/* ccs_retention.c */
void ccs_retention_run(struct sim *sim);

/* ccs_operate.c: an operator's call at either contender (or the rebuilder). */
bool operate_serves(const char *method);
enum sf_err operate(struct client *c, bool until_answered, const char *method,
                    const ProtobufCMessage *request, const ProtobufCMessage **out_response);
/* A random thing that an operator does. */
void operate_step(struct client *c);
/* Cuts a checkpoint, which must verify. */
void operate_checkpoint(struct client *c);
/* The newest checkpoint must verify. */
void operate_verify(struct client *c);
/* The catalog is checked: nothing may be amiss. */
void operate_sound(struct client *c);
/* It is repaired: then nothing is left that a repair could mend. After the last comparison. */
void operate_mended(struct client *c);
/* A round of retention, or rounds until nothing is left to remove. */
void operate_retention(struct client *c, bool until_done);

/* ccs_judge.c: judges every call. */
void judge_calls(struct history *h);

/* ccs_epochs.c: the epochs that a projection shows are the model's. After model_run. */
void check_epochs(const struct history *h, struct sf_sql *sql);

/* ccs_binding.c: judges binding revisions. */
void judge_bindings(struct history *h);

#endif
