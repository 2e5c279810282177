/*
 * Model: one mutation from arrival to answer. The service thread checks what needs no facts
 * (malformed, caller kind) and queues the command on its first lane. There one try is:
 *
 *   load     one snapshot: replay row, lineage rows; the look at the owner epoch is part of it
 *   replay   a row answers with stored bytes; an outcome without a row is shown first
 *   pivot    a name lane only arbitrates allocation: an allocated lineage goes on on its id lane
 *   plan     semantic validation; a refusal leaves no record
 *   commit   with the group; settled without effect means a fresh try with a listing of its own
 *
 * The lane's next command runs when this one is answered or given up with everything settled. From
 * the commit on most commands have no thread: their lanes are held, and the leader of their group
 * answers them (sf_catalog_command_end).
 */
#include "catalog/catalog_gate.h"
#include "catalog/catalog_retention.h"
#include "catalog/catalog_rules.h"

#include <stdlib.h>

#include "contract/error_status.h"

#define REMOVAL_PAUSE_MS 100 /* a removal under way ends sooner or later than that */

/* What a try came to. */
enum step {
    STEP_AGAIN,   /* facts changed: try again */
    STEP_PIVOT,   /* goes on on another lane */
    STEP_REFUSE,  /* command->diag is the answer */
    STEP_REPLAY,  /* rows.replay is the answer */
    STEP_PENDING, /* the leader of its group goes on with it: touch it no more */
    STEP_TODAY,   /* a repeat: plan.outcome's payload, from today's lineage, is the answer */
    STEP_ANSWERED /* plan.outcome is the answer */
};

/* ---- lanes and shards --------------------------------------------------------------------- */

static uint64_t lane_of(const struct sf_catalog_command *command, enum sf_catalog_lane lane)
{
    struct sf_keyhash kh;
    uint8_t digest[SF_SHA256_BYTES];
    uint64_t key;
    sf_keyhash_init(&kh, "sf/ccs/lane/1");
    sf_keyhash_u64(&kh, (uint64_t)lane);
    command->ops->lane_key(command, lane, &kh);
    sf_keyhash_finish(&kh, digest);
    memcpy(&key, digest, sizeof(key));
    return key;
}

uint64_t sf_catalog_lane_key(enum sf_catalog_lane lane, uint64_t namespace_id,
                             uint64_t collection_id, struct sf_view name)
{
    struct sf_keyhash kh;
    uint8_t digest[SF_SHA256_BYTES];
    uint64_t key;
    sf_keyhash_init(&kh, "sf/ccs/lane/1");
    sf_keyhash_u64(&kh, (uint64_t)lane);
    if (lane != SF_CATALOG_LANE_NAMESPACE_NAME)
        sf_keyhash_u64(&kh, namespace_id);
    if (lane == SF_CATALOG_LANE_COLLECTION_ID)
        sf_keyhash_u64(&kh, collection_id);
    if (lane == SF_CATALOG_LANE_NAMESPACE_NAME || lane == SF_CATALOG_LANE_COLLECTION_NAME)
        sf_keyhash_bytes(&kh, name);
    sf_keyhash_finish(&kh, digest);
    memcpy(&key, digest, sizeof(key));
    return key;
}

uint64_t sf_catalog_collection_lane(uint64_t namespace_id, uint64_t collection_id)
{
    return sf_catalog_lane_key(SF_CATALOG_LANE_COLLECTION_ID, namespace_id, collection_id,
                               (struct sf_view){0});
}

const char *sf_catalog_lane_name(enum sf_catalog_lane lane)
{
    static const char *const names[] = {[SF_CATALOG_LANE_NAMESPACE_NAME] = "namespace-name",
                                        [SF_CATALOG_LANE_NAMESPACE_ID] = "namespace-id",
                                        [SF_CATALOG_LANE_COLLECTION_NAME] = "collection-name",
                                        [SF_CATALOG_LANE_COLLECTION_ID] = "collection-id"};
    return names[lane];
}

static uint32_t shard_of(const struct sf_catalog *catalog, struct sf_keyhash *kh)
{
    uint8_t digest[SF_SHA256_BYTES];
    sf_keyhash_finish(kh, digest);
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | digest[i];
    return (uint32_t)(value % catalog->lane_shards);
}

uint32_t sf_catalog_shard_of_id(const struct sf_catalog *catalog, uint64_t namespace_id)
{
    struct sf_keyhash kh;
    sf_keyhash_init(&kh, "sf/ccs/shard/namespace-id/1");
    sf_keyhash_u64(&kh, namespace_id);
    return shard_of(catalog, &kh);
}

uint32_t sf_catalog_shard_of_name(const struct sf_catalog *catalog, const char *name)
{
    struct sf_keyhash kh;
    sf_keyhash_init(&kh, "sf/ccs/shard/namespace-name/1");
    sf_keyhash_bytes(&kh, sf_view_str(name));
    return shard_of(catalog, &kh);
}

/* ---- keys --------------------------------------------------------------------------------- */

static void derive_keys(struct sf_catalog_command *command)
{
    sf_catalog_fingerprint(command->request, command->fingerprint);
    if (command->ops->business != NULL)
        command->ops->business(command->request, command->business_key);
    if (command->ops->intent) {
        sf_catalog_intent_key(SF_CATALOG_TAG_INTENT, command->ops, command->request,
                              command->command_identity);
        sf_catalog_intent_key(SF_CATALOG_TAG_INTENT_LOOKUP, command->ops, command->request,
                              command->transport_key);
        return;
    }
    sf_catalog_replay_key(SF_CATALOG_TAG_COMMAND, command->ops->kind_name, command->identity_hash,
                          command->ops, command->request, command->command_identity);
    sf_catalog_replay_key(SF_CATALOG_TAG_TRANSPORT, command->ops->rpc_method,
                          command->identity_hash, command->ops, command->request,
                          command->transport_key);
}

/* ---- answers ------------------------------------------------------------------------------ */

/* Answers once, whoever waits: the packed response, or command->diag when `response` is NULL. */
static void answer(struct sf_catalog_command *command, const struct sf_view *response)
{
    struct sf_call *call = atomic_exchange(&command->call, NULL);
    struct sf_catalog_wait *wait = command->wait;
    command->wait = NULL;
    if (call != NULL && response != NULL)
        sf_call_respond_bytes(call, *response);
    else if (call != NULL)
        sf_catalog_refuse(call, &command->diag);
    if (wait == NULL)
        return;
    wait->err = SF_OK;
    if (response != NULL)
        wait->response =
            sf_view_bytes(sf_arena_dup(wait->arena, response->ptr, response->len), response->len);
    else
        *wait->diag = command->diag;
    if (response == NULL)
        wait->err = command->diag.err == SF_OK ? SF_ERR_UNAVAILABLE : command->diag.err;
    sf_waiter_wake(&wait->waiter);
}

static void answer_refusal(struct sf_catalog_command *command)
{
    answer(command, NULL);
}

/* A repeat that is answered from today's lineage. */
static void answer_today(struct sf_catalog_command *command)
{
    const ProtobufCBinaryData *payload = &command->plan.outcome.success_payload;
    struct sf_view response = sf_view_bytes(payload->data, payload->len);
    answer(command, &response);
}

/* The stored answer of a record, or the conflict of a key that another payload took. */
static void answer_record(struct sf_catalog_command *command,
                          const SF_PB(CommandOutcomeObject) * outcome)
{
    if (strcmp(outcome->payload_fingerprint, command->fingerprint) != 0 &&
        !SF_MUTANT(ccs_any_payload)) {
        SF_LOG(WARN, "catalog_idempotency_conflict",
               SF_KV_STR("command_identity", command->command_identity),
               SF_KV_STR("command_kind", command->ops->kind_name),
               SF_KV_STR("payload_fingerprint", command->fingerprint));
        sf_diag_set(&command->diag, SF_IDEMPOTENCY_CONFLICT,
                    "the idempotency key is taken by another payload");
        answer_refusal(command);
        return;
    }
    if (outcome->terminal_state != SF_PBE(COMMAND_TERMINAL_STATE, APPLIED)) {
        if (outcome->failure != NULL)
            sf_error_status_read(outcome->failure, &command->diag);
        else
            sf_diag_set(&command->diag, SF_INTERNAL, "a failed record names no failure");
        answer_refusal(command);
        return;
    }
    struct sf_view response =
        sf_view_bytes(outcome->success_payload.data, outcome->success_payload.len);
    answer(command, &response);
}

static void command_destroy(struct sf_catalog_command *command)
{
    for (size_t i = 0; i < SF_CATALOG_CONTROL_PUTS; i++)
        sf_catalog_put_fini(&command->plan.controls[i]);
    sf_catalog_put_fini(&command->plan.follow);
    sf_arena_destroy(command->scratch);
    sf_arena_destroy(command->arena);
    free(command);
}

/* ---- one try ------------------------------------------------------------------------------ */

static void begin_try(struct sf_catalog_command *command)
{
    for (size_t i = 0; i < SF_CATALOG_CONTROL_PUTS; i++)
        sf_catalog_put_fini(&command->plan.controls[i]);
    sf_catalog_put_fini(&command->plan.follow);
    sf_arena_reset(command->scratch);
    memset(&command->plan, 0, sizeof(command->plan));
    memset(&command->rows, 0, sizeof(command->rows));
    sf_diag_init(&command->diag);
    searchfabric__v1__command_outcome_object__init(&command->plan.outcome);
    searchfabric__v1__segment_entry_ref__init(&command->plan.entry);
    command->plan.name_epoch_put = -1;
    sf_attempts_next(command->catalog->deps.attempts, command->plan.attempt_id);
    command->plan.attempt = atomic_fetch_add(&command->catalog->attempts, 1) + 1;
}

/* Reads the snapshot that the try decides on. */
static enum sf_err load(struct sf_catalog_command *command, bool *out_pivot)
{
    struct sf_catalog *catalog = command->catalog;
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, &command->diag);
    if (err == SF_OK)
        err = sf_catalog_sql_look(catalog, conn, &command->diag);
    if (err == SF_OK)
        err = sf_catalog_state_record(catalog, conn, command->command_identity, command->scratch,
                                      &command->diag, &command->rows.replay);
    if (err == SF_OK && (command->rows.replay == NULL || command->ops->replay != NULL))
        err = command->ops->load(command, conn, out_pivot);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    return err;
}

/* Shows a committed outcome whose row is missing: pointers, then rows. */
static enum sf_err show_late(struct sf_catalog_command *command,
                             const SF_PB(CommandOutcomeObject) * outcome)
{
    struct sf_catalog *catalog = command->catalog;
    struct sf_sched *sched = catalog->deps.sched;
    ProtobufCMessage *object = NULL;
    bool dropped = false;
    enum sf_err err =
        sf_catalog_control_read(catalog, sched, outcome, command->scratch, &command->diag, &object);
    if (err == SF_OK)
        err = sf_catalog_pointers(catalog, sched, outcome);
    if (err != SF_OK)
        return err;
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, sched, SF_SQL_WRITE);
    err = sf_sql_begin(conn, &command->diag);
    if (err == SF_OK)
        err = sf_catalog_project(catalog, conn, outcome, object, true, command->scratch,
                                 &command->diag, &dropped);
    if (err == SF_OK && dropped)
        err = sf_catalog_depose(catalog, "projection", 0);
    if (err == SF_OK)
        err = sf_sql_commit(conn, &command->diag);
    else
        sf_sql_rollback(conn);
    sf_sql_release(conn);
    return err;
}

/* A miss of the replay row is settled by the outcome object (protocols.md section 2, Resolve). A
 * committed one is met only where the projection took a commit back: an elder owner's was shown
 * before this one served, and one of this owner's holds its lane until the rows stand. */
static enum sf_err settle_miss(struct sf_catalog_command *command)
{
    struct sf_catalog *catalog = command->catalog;
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    struct sf_etag etag;
    sf_catalog_key_outcome(&key, command->command_identity);
    enum sf_err err = sf_catalog_read(catalog, catalog->deps.sched, sf_buf_view(&key),
                                      &searchfabric__v1__command_outcome_object__descriptor, false,
                                      command->scratch, &command->diag, &message, NULL, &etag);
    sf_buf_fini(&key);
    command->plan.outcome_cond = SF_PUT_ABSENT;
    if (err == SF_ERR_NOT_FOUND)
        return SF_OK;
    if (err != SF_OK)
        return err;
    SF_PB(CommandOutcomeObject) *outcome = (SF_PB(CommandOutcomeObject) *)message;
    if (outcome->owner_epoch > catalog->owner_epoch) {
        sf_catalog_depose(catalog, "outcome", outcome->owner_epoch);
        return sf_diag_set(&command->diag, SF_ERR_DEPOSED, "a newer owner settled the command");
    }
    /* one below the boundary without a row answers nothing and is replaced like an elder marker */
    if (outcome->abort != NULL || sf_catalog_record_expired(catalog, outcome)) {
        command->plan.outcome_cond = SF_PUT_MATCH;
        command->plan.outcome_match = etag;
        command->plan.marker_slot =
            outcome->entry == NULL ? 0 : outcome->entry->recovery_segment_epoch;
        return SF_OK;
    }
    command->rows.replay = outcome;
    return SF_MUTANT(ccs_not_covered) ? SF_OK : show_late(command, outcome);
}

/* A business pointer to what retention removed, or stopped removing half-way: gone, or going. */
static enum sf_err settle_expired(struct sf_catalog_command *command,
                                  const SF_PB(CommandOutcomeObject) * named)
{
    struct sf_catalog *catalog = command->catalog;
    struct sf_buf key = {0};
    ProtobufCMessage *again = NULL;
    if (named != NULL)
        return SF_OK; /* this command's pointer replaces it */
    sf_catalog_key_business(&key, command->ops->kind_name, command->business_key);
    enum sf_err err = sf_catalog_read(catalog, catalog->deps.sched, sf_buf_view(&key),
                                      &searchfabric__v1__replay_pointer_object__descriptor, false,
                                      command->scratch, &command->diag, &again, NULL, NULL);
    if (err == SF_OK)
        err = sf_diag_set(&command->diag, SF_ERR_CORRUPT, "a replay pointer names no record");
    sf_buf_fini(&key);
    return err == SF_ERR_NOT_FOUND ? SF_OK : err;
}

/* A business key without a row is settled by its pointer. */
static enum sf_err settle_business(struct sf_catalog_command *command, bool *out_again)
{
    struct sf_catalog *catalog = command->catalog;
    if (command->business_key[0] == '\0' || command->rows.business != NULL)
        return SF_OK;
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    sf_catalog_key_business(&key, command->ops->kind_name, command->business_key);
    enum sf_err err = sf_catalog_read(catalog, catalog->deps.sched, sf_buf_view(&key),
                                      &searchfabric__v1__replay_pointer_object__descriptor, false,
                                      command->scratch, &command->diag, &message, NULL, NULL);
    sf_buf_fini(&key);
    if (err == SF_ERR_NOT_FOUND)
        return SF_OK;
    if (err != SF_OK)
        return err;
    const SF_PB(ReplayPointerObject) *pointer = (const SF_PB(ReplayPointerObject) *)message;
    struct sf_buf outcome_key = {0};
    sf_catalog_key_outcome(&outcome_key, pointer->command_identity);
    err = sf_catalog_read(catalog, catalog->deps.sched, sf_buf_view(&outcome_key),
                          &searchfabric__v1__command_outcome_object__descriptor, false,
                          command->scratch, &command->diag, &message, NULL, NULL);
    sf_buf_fini(&outcome_key);
    const SF_PB(CommandOutcomeObject) *named =
        err == SF_OK ? (const SF_PB(CommandOutcomeObject) *)message : NULL;
    if (err == SF_ERR_NOT_FOUND || (named != NULL && sf_catalog_record_expired(catalog, named)))
        return settle_expired(command, named);
    if (err == SF_OK)
        err = show_late(command, (const SF_PB(CommandOutcomeObject) *)message);
    *out_again = err == SF_OK;
    return err;
}

/* Lets a test hold the command up. */
static void trace_apply(struct sf_catalog_command *command)
{
    struct sf_catalog_trace *trace = command->catalog->deps.trace;
    if (trace != NULL && trace->apply != NULL)
        trace->apply(trace, command->ops->kind_name, sf_catalog_lane_name(command->lane));
}

/* A repeat: the record answers, or today's lineage where the kind says so. */
static enum step run_replay(struct sf_catalog_command *command)
{
    const SF_PB(CommandOutcomeObject) *record = command->rows.replay;
    if (command->ops->replay == NULL ||
        strcmp(record->payload_fingerprint, command->fingerprint) != 0 ||
        record->terminal_state != SF_PBE(COMMAND_TERMINAL_STATE, APPLIED))
        return STEP_REPLAY;
    enum sf_err err = command->ops->replay(command);
    if (err == SF_OK)
        return STEP_TODAY;
    if (command->diag.err != err)
        sf_diag_set(&command->diag, err, "%s", sf_err_info(err)->meaning);
    return STEP_REFUSE;
}

/* What a commit came to. */
static enum step commit_step(struct sf_catalog_command *command, enum sf_catalog_commit commit)
{
    switch (commit) {
    case SF_CATALOG_PENDING:
        return STEP_PENDING;
    case SF_CATALOG_COMMITTED:
        return STEP_ANSWERED;
    case SF_CATALOG_RETRY:
        return STEP_AGAIN;
    default:
        sf_diag_set(&command->diag, SF_BACKEND_UNAVAILABLE,
                    "the outcome of the command is not known; retry with the same key");
        sf_diag_detail(&command->diag, "failing_authority", "catalog");
        sf_diag_detail(&command->diag, "outcome_unknown", "true");
        return STEP_REFUSE;
    }
}

static enum step run_gated(struct sf_catalog_command *command)
{
    bool pivot = false;
    enum sf_err err = load(command, &pivot);
    if (err != SF_OK && command->diag.err != err)
        sf_diag_set(&command->diag, err, "%s", sf_err_info(err)->meaning);
    if (err != SF_OK)
        return STEP_REFUSE;
    if (command->rows.replay != NULL)
        return run_replay(command);
    if (pivot)
        return STEP_PIVOT;
    err = settle_miss(command);
    if (err == SF_OK && command->rows.replay != NULL) /* rows were read before it was shown */
        return command->ops->replay == NULL ? STEP_REPLAY : STEP_AGAIN;
    bool again = false;
    if (err == SF_OK)
        err = settle_business(command, &again);
    if (err == SF_OK && again)
        return STEP_AGAIN;
    if (err == SF_OK)
        err = command->ops->plan(command);
    if (err != SF_OK) {
        if (command->diag.err != err)
            sf_diag_set(&command->diag, err, "%s", sf_err_info(err)->meaning);
        return STEP_REFUSE;
    }
    sf_diag_init(&command->diag);
    if (command->plan.no_record)
        return STEP_ANSWERED;
    trace_apply(command);
    return commit_step(command, sf_catalog_group_commit(command));
}

static enum step run_try(struct sf_catalog_command *command)
{
    struct sf_catalog *catalog = command->catalog;
    begin_try(command);
    command->gates = (struct sf_catalog_gates){0};
    if (command->ops->gates != NULL)
        command->ops->gates(command, &command->gates);
    sf_catalog_gates_acquire(catalog, &command->gates);
    enum step step = run_gated(command);
    if (step != STEP_PENDING)
        sf_catalog_gates_release(catalog, &command->gates);
    return step;
}

/* ---- lanes -------------------------------------------------------------------------------- */

static void command_run(struct sf_task *task);

/* Queues the command on `lane`; false when the pool is full or draining (diag set). */
static bool queue(struct sf_catalog_command *command, enum sf_catalog_lane lane)
{
    uint64_t key = lane_of(command, lane);
    struct sf_catalog_trace *trace = command->catalog->deps.trace;
    command->lane = lane;
    command->task.run = command_run;
    if (trace != NULL && trace->lane != NULL)
        trace->lane(trace, command->ops->kind_name, sf_catalog_lane_name(lane), key);
    enum sf_err err = sf_sched_submit(command->catalog->deps.sched, key, &command->task);
    if (err == SF_OK)
        return true;
    if (err == SF_ERR_FULL) {
        sf_diag_set(&command->diag, SF_RATE_LIMITED, "too many catalog commands wait");
        sf_diag_detail(&command->diag, "retry_after_ms", "%d", 100);
        sf_diag_detail(&command->diag, "throttled_dimension", "catalog_commands");
        sf_diag_detail(&command->diag, "server_limit", "queued_tasks");
    } else {
        sf_diag_set(&command->diag, SF_BACKEND_UNAVAILABLE, "the catalog is draining");
    }
    return false;
}

/* Keeps removals off the command's record and business pointer. False: diag says until when they
 * are on them. */
static bool claim(struct sf_catalog_command *command)
{
    struct sf_catalog *catalog = command->catalog;
    char business[SF_CATALOG_CLAIM_BYTES];
    const char *taken = NULL;
    if (!sf_catalog_claim_command(catalog, command->command_identity)) {
        taken = command->command_identity;
    } else if (command->business_key[0] != '\0') {
        sf_catalog_claim_of_business(command->ops->kind_name, command->business_key, business);
        if (!sf_catalog_claim_command(catalog, business)) {
            sf_catalog_unclaim_command(catalog, command->command_identity);
            taken = business;
        }
    }
    if (taken == NULL)
        return true;
    int64_t wait_ms = sf_catalog_claim_wait_ms(catalog, taken);
    sf_diag_set(&command->diag, SF_BACKEND_UNAVAILABLE,
                "a record of the command is being removed; retry with the same key");
    sf_diag_detail(&command->diag, "failing_authority", "catalog");
    sf_diag_detail(&command->diag, "retry_after_ms", "%lld",
                   (long long)(wait_ms > REMOVAL_PAUSE_MS ? wait_ms : REMOVAL_PAUSE_MS));
    return false;
}

static void release(struct sf_catalog_command *command)
{
    char business[SF_CATALOG_CLAIM_BYTES];
    if (!command->claimed)
        return;
    command->claimed = false;
    sf_catalog_unclaim_command(command->catalog, command->command_identity);
    if (command->business_key[0] == '\0')
        return;
    sf_catalog_claim_of_business(command->ops->kind_name, command->business_key, business);
    sf_catalog_unclaim_command(command->catalog, business);
}

static void finish_command(struct sf_catalog_command *command)
{
    struct sf_catalog *catalog = command->catalog;
    release(command);
    command_destroy(command);
    sf_catalog_leave(catalog);
}

/* The end of a run; the command is freed, or on another lane. */
static void conclude(struct sf_catalog_command *command, enum step step)
{
    if (step != STEP_PIVOT)
        release(command); /* before the answer: who has it may ask for a removal */
    switch (step) {
    case STEP_PIVOT:
        command->pivoted = true;
        command->tries = 0;
        if (queue(command, command->ops->id_lane))
            return;
        answer_refusal(command);
        break;
    case STEP_REPLAY:
    case STEP_TODAY:
        if (command->catalog->metric_replays != NULL)
            sf_metric_add(command->catalog->metric_replays, 1);
        if (step == STEP_TODAY)
            answer_today(command);
        else
            answer_record(command, command->rows.replay);
        break;
    case STEP_ANSWERED:
        answer_record(command, &command->plan.outcome);
        break;
    default:
        answer_refusal(command);
        break;
    }
    finish_command(command);
}

static void command_run(struct sf_task *task)
{
    struct sf_catalog_command *command = SF_CONTAINER_OF(task, struct sf_catalog_command, task);
    enum step step = STEP_AGAIN;
    command->claimed = command->claimed || claim(command);
    if (!command->claimed)
        step = STEP_REFUSE;
    while (step == STEP_AGAIN) {
        if (++command->tries > SF_CATALOG_COMMAND_TRIES || sf_catalog_ending(command->catalog)) {
            sf_diag_set(&command->diag, SF_BACKEND_UNAVAILABLE,
                        "the command was not applied; retry with the same key");
            step = STEP_REFUSE;
            break;
        }
        if (command->tries > 1)
            sf_catalog_pause(command->catalog, command->catalog->deps.sched, command->tries);
        step = run_try(command);
    }
    if (step != STEP_PENDING)
        conclude(command, step);
}

void sf_catalog_command_end(struct sf_catalog_command *command)
{
    struct sf_sched *sched = command->catalog->deps.sched;
    struct sf_lane_hold *hold = command->hold;
    enum step step = commit_step(command, command->result);
    sf_catalog_gates_release(command->catalog, &command->gates);
    if (step == STEP_AGAIN && !queue(command, command->lane))
        step = STEP_REFUSE;
    if (step != STEP_AGAIN)
        conclude(command, step);
    sf_sched_release(sched, hold);
}

/* What is judged before the lane: unknown fields, RequestMeta, the request, the caller's kind. */
static enum sf_err admit(const struct sf_catalog_mutation *ops, const ProtobufCMessage *request,
                         struct sf_diag *diag)
{
    const SF_PB(RequestMeta) *meta = sf_catalog_meta_of(request);
    enum sf_err err = sf_catalog_unknown_check(request, diag);
    if (err == SF_OK)
        err = sf_catalog_meta_check(meta, true, diag);
    if (err == SF_OK)
        err = ops->check(request, diag);
    if (err == SF_OK)
        err = sf_catalog_caller_check((enum sf_catalog_family)ops->family, meta->client_kind, diag);
    return err;
}

/* A command that was let in; `call` or `wait` gets its answer. */
static void start(struct sf_catalog *catalog, const struct sf_catalog_mutation *ops,
                  struct sf_call *call, struct sf_catalog_wait *wait,
                  const ProtobufCMessage *request)
{
    struct sf_catalog_command *command = sf_calloc(1, sizeof(*command));
    command->catalog = catalog;
    command->ops = ops;
    command->arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    command->scratch = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    command->request = sf_pb_dup(request, command->arena);
    SF_ASSERT(command->request != NULL);
    if (!ops->intent) {
        command->meta = sf_catalog_meta_of(command->request);
        memcpy(command->identity_hash, sf_call_identity(call)->hash_hex, SF_SHA256_HEX_BYTES);
    }
    atomic_init(&command->call, call);
    command->wait = wait;
    sf_diag_init(&command->diag);
    derive_keys(command);
    if (catalog->metric_commands != NULL)
        sf_metric_add(catalog->metric_commands, 1);
    if (!queue(command, ops->first_lane)) {
        answer_refusal(command);
        finish_command(command);
    }
}

void sf_catalog_mutate(struct sf_catalog *catalog, const struct sf_catalog_mutation *ops,
                       struct sf_call *call, const ProtobufCMessage *request)
{
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    if (admit(ops, request, diag) == SF_OK && sf_catalog_enter(catalog, true, diag))
        start(catalog, ops, call, NULL, request);
    else
        sf_catalog_refuse(call, diag);
}

void sf_catalog_intent(struct sf_catalog *catalog, const struct sf_catalog_mutation *ops,
                       struct sf_call *call, const ProtobufCMessage *request)
{
    struct sf_diag *diag = sf_call_diag(call);
    SF_ASSERT(ops->intent);
    sf_diag_init(diag);
    enum sf_err err = sf_catalog_unknown_check(request, diag);
    if (err == SF_OK)
        err = ops->check(request, diag);
    if (err == SF_OK && sf_catalog_enter(catalog, true, diag))
        start(catalog, ops, call, NULL, request);
    else
        sf_catalog_refuse(call, diag);
}

enum sf_err sf_catalog_intend(struct sf_catalog *catalog, const struct sf_catalog_mutation *ops,
                              const ProtobufCMessage *request, struct sf_arena *arena,
                              struct sf_diag *diag, struct sf_view *out_response)
{
    SF_ASSERT(ops->intent);
    sf_diag_init(diag);
    if (!sf_catalog_enter(catalog, true, diag))
        return diag->err;
    struct sf_catalog_wait wait = {.diag = diag, .arena = arena};
    sf_waiter_init(&wait.waiter, catalog->deps.sched);
    start(catalog, ops, NULL, &wait, request);
    sf_waiter_wait(&wait.waiter);
    sf_waiter_fini(&wait.waiter);
    if (out_response != NULL)
        *out_response = wait.response;
    return wait.err;
}
