/*
 * Model: a member whose plan is covered by a standing state write has one thing left: its own
 * replay-success object. The put is repeated, same bytes and condition, until one object stands;
 * what stands is the answer, whoever wrote it. A member that cannot settle in a bounded number of
 * tries is told to come back: an explicit plan's record is carried on in the state object and
 * finished later, the ids of an issue-only plan are burned.
 */
#include <string.h>

#include "allocator/allocator_artifacts.h"
#include "allocator/allocator_priv.h"
#include "base/limits.h"
#include "base/mutant.h"
#include "base/pb.h"

#define PAUSE_BASE_MS 5
#define PAUSE_MAX_MS  500

int64_t sf_alloc_pause_ms(struct sf_alloc_shard *shard, unsigned tries)
{
    int64_t top = (int64_t)PAUSE_BASE_MS << (tries < 8 ? tries : 8);
    if (top > PAUSE_MAX_MS)
        top = PAUSE_MAX_MS;
    return top / 2 + (int64_t)sf_rng_below(&shard->rng, (uint64_t)top / 2 + 1);
}

/* True when the plan holds an explicit item: then a lost record would meet its own burn. */
bool sf_alloc_op_has_explicit(const struct sf_alloc_op *op)
{
    return op->request.shape != SF_PLAN_ISSUE_ONLY;
}

/* `record` stands under op's key: answers, remembers, and no longer carries it on. */
void sf_alloc_op_settled(struct sf_alloc_op *op, const sf_replay_record *record, bool fresh)
{
    struct sf_buf packed = {0};

    sf_alloc_pending_del(op->lane, op->key);
    /* its state write stood before it: a load that finds an earlier state must not follow it */
    if (sf_alloc_record_version(record) > op->lane->seen_version &&
        !SF_MUTANT(alloc_result_forgotten))
        op->lane->seen_version = sf_alloc_record_version(record);
    sf_alloc_items_answer(record, &packed);
    sf_alloc_answer_put(op->shard, record, sf_buf_view(&packed));
    if (fresh) {
        sf_alloc_note_applied(op->shard->allocator, record, false);
        atomic_fetch_add(&op->shard->counters.allocations, 1);
        atomic_fetch_add(&op->shard->counters.ids_issued, op->request.issue_count);
        if (record->lease_epoch != 0)
            atomic_fetch_add(&op->shard->counters.lease_local, 1);
        if (op->gap > 0)
            sf_alloc_count_burned(op->lane, op->request.client_kind, SF_BURN_EXPLICIT_GAP, op->gap);
    }
    sf_alloc_op_stand(op, record->payload_fingerprint, sf_buf_view(&packed), fresh);
    sf_buf_fini(&packed);
}

static void settle_pause_over(struct sf_timer *timer)
{
    sf_alloc_settle_send(SF_CONTAINER_OF(timer, struct sf_alloc_op, timer));
}

/* The put is in doubt or was not applied: the same again, a bounded number of times. */
static void settle_again(struct sf_alloc_op *op)
{
    if (++op->tries >= SF_LIMIT_ALLOC_TRIES) {
        if (!sf_alloc_op_has_explicit(op)) /* else the record is carried on until it stands */
            sf_alloc_count_burned(op->lane, op->request.client_kind, SF_BURN_NOT_DURABLE,
                                  op->request.item_count);
        if (SF_MUTANT(alloc_lease_reuses_ids) && op->lane->in_hand.lease.live)
            op->lane->in_hand.lease.next.next = op->request.items[0].doc_id;
        sf_alloc_op_unavailable(op, true, "the result could not be made durable");
        return;
    }
    sf_timer_init(&op->timer, op->shard->loop, settle_pause_over);
    sf_timer_start(&op->timer, sf_alloc_pause_ms(op->shard, op->tries));
}

/* Something stands under op's key: that is the answer, whoever wrote it. */
static void read_back_done(struct sf_get *get)
{
    struct sf_alloc_op *op = SF_CONTAINER_OF(get, struct sf_alloc_op, get);
    sf_replay_record *record = NULL;

    if (get->err != SF_OK) {
        settle_again(op);
        return;
    }
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    struct sf_diag *diag = sf_call_diag(op->call);
    if (sf_alloc_record_decode(sf_buf_view(&get->body), op->key, arena, diag, &record) != SF_OK) {
        sf_alloc_op_refuse(op);
    } else {
        /* no id is realized twice: epoch and first id name one apply, whoever wrote its object */
        bool own = record->allocation_epoch == op->record->allocation_epoch &&
                   sf_alloc_items_first(record) == op->request.items[0].doc_id;
        if (!own)
            sf_alloc_count_burned(op->lane, op->request.client_kind, SF_BURN_LOST_RACE,
                                  op->request.item_count);
        sf_alloc_op_settled(op, record, own);
    }
    sf_arena_destroy(arena);
}

/* Reads op's object. */
static void read_object(struct sf_alloc_op *op, sf_get_done_fn done)
{
    sf_buf_clear(&op->get.body);
    op->get.key = sf_buf_view(&op->object_key);
    op->get.loop = op->shard->loop;
    op->get.done = done;
    sf_store_get(op->shard->allocator->deps.store, &op->get);
}

/* What became of the put of op's object, in the group's batch or on its own. */
void sf_alloc_settle_result(struct sf_alloc_op *op, enum sf_err err)
{
    if (err != SF_OK && sf_alloc_op_has_explicit(op) && !SF_MUTANT(alloc_trim_unproved))
        sf_alloc_pending_add(op->lane, op->record);
    if (SF_MUTANT(alloc_ack_unproved) && (err == SF_ERR_AMBIGUOUS || err == SF_ERR_UNAVAILABLE))
        err = SF_OK;
    if (SF_MUTANT(alloc_412_answers_own) && err == SF_ERR_PRECONDITION)
        err = SF_OK;
    switch (err) {
    case SF_OK:
        sf_alloc_op_settled(op, op->record, true);
        break;
    case SF_ERR_PRECONDITION:
        read_object(op, read_back_done);
        break;
    case SF_ERR_AMBIGUOUS:
    case SF_ERR_UNAVAILABLE:
    case SF_ERR_CANCELLED_STAGE:
        settle_again(op);
        break;
    default:
        sf_diag_set(sf_call_diag(op->call), SF_INTERNAL, "the replay object was refused: %s",
                    sf_err_info(err)->name);
        sf_alloc_op_refuse(op);
    }
}

static void settle_done(struct sf_batch *batch)
{
    struct sf_alloc_op *op = SF_CONTAINER_OF(batch, struct sf_alloc_op, batch);
    sf_alloc_settle_result(op, op->put.err);
}

/* A put that creates op's object and nothing else. */
void sf_alloc_op_put_fill(struct sf_alloc_op *op, struct sf_put *put)
{
    *put = (struct sf_put){.key = sf_buf_view(&op->object_key),
                           .body = sf_buf_view(&op->body),
                           .cond = SF_MUTANT(alloc_replay_overwrites) ? SF_PUT_ANY : SF_PUT_ABSENT,
                           .absent_mark = op->get.absent_mark};
}

void sf_alloc_settle_send(struct sf_alloc_op *op)
{
    sf_alloc_op_put_fill(op, &op->put);
    op->batch = (struct sf_batch){
        .puts = &op->put, .count = 1, .loop = op->shard->loop, .done = settle_done};
    sf_store_submit(op->shard->allocator->deps.store, &op->batch);
}

static void refusal_checked(struct sf_get *get)
{
    struct sf_alloc_op *op = SF_CONTAINER_OF(get, struct sf_alloc_op, get);
    struct sf_diag *diag = sf_call_diag(op->call);
    sf_replay_record *record = NULL;

    if (get->err == SF_ERR_NOT_FOUND) {
        sf_alloc_op_refuse(op);
        return;
    }
    if (get->err != SF_OK) {
        sf_alloc_op_unavailable(op, false, "the replay lookup failed");
        return;
    }
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    if (sf_alloc_record_decode(sf_buf_view(&get->body), op->key, arena, diag, &record) != SF_OK)
        sf_alloc_op_refuse(op);
    else
        sf_alloc_op_settled(op, record, false);
    sf_arena_destroy(arena);
}

void sf_alloc_settle_refusal(struct sf_alloc_op *op)
{
    op->phase = SF_OP_REFUSED;
    read_object(op, refusal_checked);
}

/* Encodes op's record once; the bytes and their attempt id stay for every repeat. */
void sf_alloc_op_encode(struct sf_alloc_op *op)
{
    char attempt[SF_ATTEMPT_ID_BYTES];

    sf_buf_clear(&op->body);
    sf_attempts_next(op->shard->allocator->deps.attempts, attempt);
    sf_alloc_record_encode(op->record, attempt, &op->body);
}

/* The key is pending in the state in hand: finishes that apply first, then op is answered from it.
 */
void sf_alloc_settle_pending(struct sf_alloc_op *op, const struct sf_alloc_pending *pending)
{
    ProtobufCMessage *message = NULL;
    enum sf_err err = sf_pb_unpack(&searchfabric__v1__allocator_replay_success_object__descriptor,
                                   sf_buf_view(&pending->record), sf_call_arena(op->call),
                                   sf_call_diag(op->call), &message);

    op->phase = SF_OP_SETTLING;
    if (err != SF_OK) {
        sf_alloc_op_refuse(op);
        return;
    }
    op->record = (sf_replay_record *)message;
    op->tries = 0;
    sf_alloc_op_encode(op);
    sf_alloc_settle_send(op);
}
