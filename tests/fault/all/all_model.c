/* Answers: what was said once binds everybody from then on. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "fault/all/all_model_priv.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"

#define PB(name) Searchfabric__V1__##name

struct all_model *all_model_new(struct all_cluster *cluster)
{
    struct all_model *m = sf_calloc(1, sizeof(*m));

    m->cluster = cluster;
    m->sim = cluster->sim;
    m->doc_ids = sf_map_new();
    all_ops_draw(m->ops, sim_rng(cluster->sim));
    return m;
}

void all_model_free(struct all_model *m)
{
    for (unsigned i = 0; i < ALL_OPS; i++)
        sf_buf_fini(&m->answers[i].first);
    for (size_t i = 0; i < m->outcome_count; i++)
        sf_buf_fini(&m->outcomes[i].key);
    sf_map_destroy(m->doc_ids, NULL);
    free(m);
}

const struct all_op *all_model_op(const struct all_model *m, unsigned index)
{
    return &m->ops[index];
}

const struct all_facts *all_model_facts(const struct all_model *m)
{
    return &m->facts;
}

bool all_model_is_done(const struct all_model *m, unsigned index)
{
    return m->answers[index].succeeded || m->answers[index].refused;
}

bool all_model_succeeded(const struct all_model *m, unsigned index)
{
    return m->answers[index].succeeded;
}

struct sf_collection_ref all_ref(const struct all_model *m, unsigned collection)
{
    return (struct sf_collection_ref){{m->facts.namespace_id},
                                      {m->facts.collection_id[collection]}};
}

uint32_t all_entry_of_row(const struct all_op *op, size_t row)
{
    return (uint32_t)(row + (op->barrier != 0 && row >= op->barrier ? 1 : 0));
}

/* ---- what was answered before ---------------------------------------------------------------- */

static uint64_t fact_bit(enum all_kind kind, unsigned collection)
{
    return kind == ALL_NAMESPACE
               ? 1
               : UINT64_C(2) << (3 * collection + (unsigned)(kind - ALL_COLLECTION));
}

/* Catalog facts that some answer told. */
static uint64_t facts_told(const struct all_model *m)
{
    uint64_t bits = 0;

    for (unsigned i = 0; i < ALL_CATALOG_OPS; i++)
        if (m->answers[i].succeeded)
            bits |= fact_bit(m->ops[i].kind, m->ops[i].collection);
    return bits;
}

static bool told(const struct all_model *m, enum all_kind kind, unsigned collection)
{
    return (facts_told(m) & fact_bit(kind, collection)) != 0;
}

bool all_is_ready(const struct all_model *m, unsigned collection)
{
    return told(m, ALL_READY, collection);
}

bool all_model_can_send(const struct all_model *m, unsigned index)
{
    const struct all_op *op = &m->ops[index];

    switch (op->kind) {
    case ALL_NAMESPACE:
        return true;
    case ALL_COLLECTION:
        return told(m, ALL_NAMESPACE, 0);
    case ALL_SCHEMA:
        return told(m, ALL_COLLECTION, op->collection);
    case ALL_READY:
        return told(m, ALL_SCHEMA, op->collection);
    case ALL_ALLOC:
        return told(m, ALL_READY, op->collection);
    case ALL_BATCH:
        return told(m, ALL_READY, op->collection) &&
               (op->alloc < 0 || m->answers[op->alloc].succeeded);
    case ALL_NEXT_SCHEMA:
        return told(m, ALL_READY, op->collection);
    case ALL_NEXT_READY:
        return m->answers[index - 1].succeeded;
    }
    return false;
}

/* ---- catalog and allocator ------------------------------------------------------------------- */

static void learn_id(struct all_model *m, const char *what, uint64_t id, uint64_t *known)
{
    if (id == 0 || (*known != 0 && *known != id))
        sim_violation(m->sim, "%s has the ids %" PRIu64 " and %" PRIu64, what, *known, id);
    *known = id;
}

static void learn(struct all_model *m, const struct all_op *op, struct sf_view packed)
{
    if (op->kind == ALL_NAMESPACE) {
        PB(PutNamespaceMetadataResponse) *r =
            searchfabric__v1__put_namespace_metadata_response__unpack(NULL, packed.len, packed.ptr);
        learn_id(m, "the namespace", r->descriptor->namespace_id, &m->facts.namespace_id);
        searchfabric__v1__put_namespace_metadata_response__free_unpacked(r, NULL);
    } else if (op->kind == ALL_COLLECTION) {
        PB(PutCollectionMetadataResponse) *r =
            searchfabric__v1__put_collection_metadata_response__unpack(NULL, packed.len,
                                                                       packed.ptr);
        learn_id(m, "a collection", r->descriptor->collection->collection_id,
                 &m->facts.collection_id[op->collection]);
        searchfabric__v1__put_collection_metadata_response__free_unpacked(r, NULL);
    }
}

static void take_success(struct all_model *m, unsigned index, struct sf_view packed)
{
    const struct all_op *op = &m->ops[index];
    struct all_answer *a = &m->answers[index];

    if (a->refused)
        sim_violation(m->sim, "%s was refused for good and succeeded", op->key);
    bool kept = op->kind != ALL_READY && op->kind != ALL_NEXT_READY;
    if (kept && !a->succeeded)
        sf_buf_append(&a->first, packed.ptr, packed.len);
    else if (kept && !sf_view_equal(sf_buf_view(&a->first), packed))
        sim_violation(m->sim, "%s was answered twice, differently", op->key);
    a->succeeded = true;
    m->next_told[op->collection] |= op->kind == ALL_NEXT_SCHEMA;
    learn(m, op, packed);
    if (op->kind == ALL_SCHEMA) { /* one generation, under two keys: one answer */
        for (unsigned v = 0; v < ALL_CLIENTS; v++) {
            const struct all_answer *other =
                &m->answers[all_catalog_op(ALL_SCHEMA, v, op->collection)];
            if (other->succeeded && !sf_view_equal(sf_buf_view(&other->first), packed))
                sim_violation(m->sim, "%s: one schema generation has two answers", op->key);
        }
    }
    if (op->kind == ALL_ALLOC && !a->object) {
        m->seen_puts = UINT64_MAX; /* look at once: an answer comes after its object */
        all_model_check_step(m);
        if (!a->object)
            sim_violation(m->sim, "%s was answered and nothing stands", op->key);
    }
}

bool all_is_passing(enum sf_err err)
{
    return sf_err_info(err)->cls == SF_CLASS_RETRY_LATER || err == SF_DEADLINE_EXCEEDED ||
           err == SF_CANCELLED || err == SF_ERR_STOPPED;
}

/* Refusals that end an operation; all others but the retryable ones are wrong here. */
static void take_refusal(struct all_model *m, const struct all_call *call)
{
    const struct sf_diag *diag = &call->diag;
    unsigned index = call->index;
    const struct all_op *op = &m->ops[index];
    struct all_answer *a = &m->answers[index];

    if (op->kind == ALL_ALLOC && diag->err == SF_VERSION_CONFLICT) {
        if (a->succeeded || a->object)
            sim_violation(m->sim, "%s succeeded and was refused as burned", op->key);
        a->refused = true;
        return;
    }
    if (op->kind == ALL_READY && diag->err == SF_VERSION_CONFLICT && m->next_sent[op->collection])
        return; /* another generation is in force */
    const char *reason = sf_diag_get(diag, "ingest_rejection_reason");
    if (op->kind == ALL_BATCH && reason != NULL &&
        strcmp(reason, "schema_generation_mismatch") == 0 && m->next_sent[op->collection] &&
        strcmp(a->token, all_token(1)) == 0) {
        if (call->floor[0] > 1)
            sim_violation(m->sim, "%s was acknowledged durable and then refused", op->key);
        m->next_told[op->collection] = true;
        a->refused = true; /* what an earlier try did may stand */
        return;
    }
    /* A race of two updates of one lineage is lost by one of them: it tries again. What a paused
     * node found before another one answered may still come. */
    bool race = diag->err == SF_VERSION_CONFLICT &&
                (op->kind == ALL_NAMESPACE || op->kind == ALL_COLLECTION) && call->floor[0] == 0;
    if (!race && !all_is_passing(diag->err))
        sim_violation(m->sim, "%s was answered %s: %s", op->key, sf_err_info(diag->err)->name,
                      diag->message);
}

void all_realized_ids(const struct all_model *m, unsigned alloc, uint64_t ids[ALL_ITEMS])
{
    const struct sf_buf *first = &m->answers[alloc].first;
    PB(AllocateIdsSuccessResponse) *r =
        searchfabric__v1__allocate_ids_success_response__unpack(NULL, first->len, first->data);

    SF_ASSERT(r != NULL);
    for (size_t i = 0; i < r->n_realized_doc_ids && i < ALL_ITEMS; i++)
        ids[i] = r->realized_doc_ids[i]->doc_id->u64;
    searchfabric__v1__allocate_ids_success_response__free_unpacked(r, NULL);
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

/* No timestamp of a lane is given to two slices. */
static void name_slice(struct all_model *m, unsigned index, struct all_slice slice)
{
    const struct all_op *op = &m->ops[index];

    for (size_t i = 0; i < m->named_count; i++) {
        const struct all_named *n = &m->named[i];
        if (n->collection == op->collection && n->slice.commit_ts == slice.commit_ts &&
            (n->op != index || n->slice.first_entry != slice.first_entry))
            sim_violation(m->sim, "commit_ts %" PRIu64 " was given to %s/%u and to %s/%u",
                          slice.commit_ts, m->ops[n->op].key, n->slice.first_entry, op->key,
                          slice.first_entry);
    }
    SF_ASSERT(m->named_count < ALL_MOST_NAMED);
    m->named[m->named_count++] = (struct all_named){op->collection, index, slice};
}

/* The gate says what holds now. */
static void check_gate(struct all_model *m, const struct all_op *op, const PB(MutationAck) * ack)
{
    struct judge judge;

    judge_read(&judge, sim_backend(m->sim));
    for (size_t i = 0; i < ack->n_ranges; i++) {
        uint64_t ts = ack->ranges[i]->commit_ts;
        if (ack->gate >= SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_DURABLE &&
            !all_slice_stands(m, &judge, op, ts))
            sim_violation(m->sim, "%s/%zu was acknowledged durable and does not stand", op->key, i);
        if (ack->gate == SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_VISIBLE &&
            !all_slice_is_visible(m, op, ts))
            sim_violation(m->sim, "%s/%zu was acknowledged visible and is not", op->key, i);
    }
    judge_free(&judge);
}

/* A receipt dates its batch, at every delivery. An oracle that was deposed unaware may be behind
 * the one that dated the receipt: the stamp is earlier then, and never later. */
static void check_first_admitted(struct all_model *m, const struct all_op *op,
                                 const PB(MutationAck) * ack)
{
    if (op->alloc < 0)
        return;
    uint64_t latest = sf_tso_from_ms(m->answers[op->alloc].applied_at_ms).v;
    if (ack->first_admitted_ts > latest)
        sim_violation(m->sim, "%s was first admitted at %" PRIu64 ", after its receipt's %" PRIu64,
                      op->key, ack->first_admitted_ts, latest);
}

static void take_ack(struct all_model *m, const struct all_call *call, const PB(MutationAck) * ack)
{
    static const PB(AckGate) gates[] = {SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_ADMITTED_DISPATCHED,
                                        SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_DURABLE,
                                        SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_VISIBLE};
    const struct all_op *op = &m->ops[call->index];
    struct all_answer *a = &m->answers[call->index];

    SIM_CHECK(m->sim, strcmp(ack->batch_id, op->key) == 0);
    SIM_CHECK(m->sim, ack->gate >= gates[op->policy] && ack->row_count == op->count);
    SIM_CHECK(m->sim, ack->n_ranges == (op->barrier == 0 ? 1u : 2u));
    if (call->floor[2] != 0 && strcmp(a->token, all_token(1)) == 0 &&
        (!ack->duplicate || !a->in_time))
        sim_violation(m->sim, "%s was admitted under a generation that had been replaced", op->key);
    check_first_admitted(m, op, ack);
    check_gate(m, op, ack);
    for (size_t i = 0; i < ack->n_ranges; i++) {
        struct all_slice slice = {ack->ranges[i]->first_entry_index, ack->ranges[i]->commit_ts};
        name_slice(m, call->index, slice);
        if (a->durable && (a->slices[i].commit_ts != slice.commit_ts ||
                           a->slices[i].first_entry != slice.first_entry))
            sim_violation(m->sim, "%s/%zu was acknowledged at %" PRIu64 ", now at %" PRIu64,
                          op->key, i, a->slices[i].commit_ts, slice.commit_ts);
        if (!ack->duplicate && op->barrier == 0 && slice.commit_ts <= call->floor[1])
            sim_violation(m->sim,
                          "%s got commit_ts %" PRIu64 ", the lane had acknowledged %" PRIu64,
                          op->key, slice.commit_ts, call->floor[1]);
        if (ack->gate < SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_DURABLE)
            continue;
        a->slices[i] = slice;
        if (slice.commit_ts > m->highest_acked[op->collection])
            m->highest_acked[op->collection] = slice.commit_ts;
    }
    a->succeeded = true;
    if (ack->gate >= SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_DURABLE) {
        a->durable = true;
        a->slice_count = ack->n_ranges;
    }
    a->visible = a->visible || ack->gate == SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_VISIBLE;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void on_answer(struct all_call *call)
{
    struct all_model *m = call->ctx;
    const struct all_op *op = &m->ops[call->index];

    sim_trace(m->sim, "client: %s -> %s %s", op->key, sf_err_info(call->err)->name,
              call->err == SF_OK ? "" : call->diag.message);
    if (call->err != SF_OK) {
        take_refusal(m, call);
    } else if (op->kind == ALL_BATCH) {
        PB(MutationAck) *ack =
            searchfabric__v1__mutation_ack__unpack(NULL, call->response.len, call->response.data);
        SF_ASSERT(ack != NULL);
        all_model_check_step(m);
        take_ack(m, call, ack);
        searchfabric__v1__mutation_ack__free_unpacked(ack, NULL);
    } else {
        take_success(m, call->index, sf_buf_view(&call->response));
    }
}

const char *all_token_of(struct sf_view answer)
{
    PB(AllocateIdsSuccessResponse) *r =
        searchfabric__v1__allocate_ids_success_response__unpack(NULL, answer.len, answer.ptr);

    SF_ASSERT(r != NULL);
    const char *token = all_token(strcmp(r->schema_generation_token, all_token(1)) == 0 ? 1 : 2);
    searchfabric__v1__allocate_ids_success_response__free_unpacked(r, NULL);
    return token;
}

struct all_call *all_model_call(struct all_model *m, unsigned index)
{
    const struct all_op *op = &m->ops[index];
    struct all_answer *a = &m->answers[index];
    struct sf_view answer = {0};

    if (op->kind == ALL_BATCH && op->alloc >= 0)
        answer = sf_buf_view(&m->answers[op->alloc].first);
    if (op->kind == ALL_BATCH && a->token == NULL)
        a->token =
            op->alloc >= 0 ? all_token_of(answer) : all_token(m->next_told[op->collection] ? 2 : 1);
    m->next_sent[op->collection] |= op->kind == ALL_NEXT_SCHEMA;
    struct all_call *call = all_op_call(m->cluster, op, &m->facts, a->token, answer);
    call->answered = on_answer;
    call->ctx = m;
    call->index = index;
    call->floor[0] = (uint64_t)a->succeeded + a->durable;
    call->floor[1] = m->highest_acked[op->collection];
    call->floor[2] = m->next_told[op->collection];
    a->in_time = a->in_time || !m->next_told[op->collection];
    return call;
}

/* ---- questions ------------------------------------------------------------------------------- */

/* The fact whose absence a read would show. */
static uint64_t fact_read(enum all_read read, unsigned collection)
{
    switch (read) {
    case ALL_READ_NAMESPACE_BY_NAME:
    case ALL_READ_NAMESPACE:
    case ALL_READ_NAMESPACES:
    case ALL_READ_COLLECTIONS:
        return fact_bit(ALL_NAMESPACE, 0);
    case ALL_READ_COLLECTION_BY_NAME:
    case ALL_READ_COLLECTION:
        return fact_bit(ALL_COLLECTION, collection);
    case ALL_READ_SCHEMA:
    case ALL_READ_SYNC:
        return fact_bit(ALL_SCHEMA, collection);
    case ALL_READ_BINDING:
    case ALL_READ_STATISTICS:
    case ALL_READS:
        break;
    }
    return 0;
}

/* Content of answers where it can be wrong. */
static void check_read(struct all_model *m, const struct all_call *call, enum all_read read,
                       unsigned collection)
{
    const struct sf_buf *b = &call->response;

    if (read == ALL_READ_SYNC) {
        PB(GetSchemaSyncStatusResponse) *r =
            searchfabric__v1__get_schema_sync_status_response__unpack(NULL, b->len, b->data);
        bool ready = r->state != NULL &&
                     r->state->state_case == SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY;
        if (!ready && !m->next_sent[collection] &&
            (call->floor[0] & fact_bit(ALL_READY, collection)) != 0)
            sim_violation(m->sim, "a generation that was READY is not");
        searchfabric__v1__get_schema_sync_status_response__free_unpacked(r, NULL);
    } else if (read == ALL_READ_COLLECTION_BY_NAME) {
        PB(GetCollectionMetadataResponse) *r =
            searchfabric__v1__get_collection_metadata_response__unpack(NULL, b->len, b->data);
        learn_id(m, "a collection", r->descriptor->collection->collection_id,
                 &m->facts.collection_id[collection]);
        searchfabric__v1__get_collection_metadata_response__free_unpacked(r, NULL);
    } else if (read == ALL_READ_BINDING) {
        PB(ResolveCollectionNameBindingResponse) *r =
            searchfabric__v1__resolve_collection_name_binding_response__unpack(NULL, b->len,
                                                                               b->data);
        if (r->collection_name_binding_revision < call->floor[1])
            sim_violation(m->sim, "the binding revision went back to %" PRIu64 " from %" PRIu64,
                          r->collection_name_binding_revision, call->floor[1]);
        if (r->collection == NULL && (call->floor[0] & fact_bit(ALL_COLLECTION, collection)) != 0)
            sim_violation(m->sim, "the name of collection %u is bound no more", collection);
        if (r->collection_name_binding_revision > m->binding_revision[collection])
            m->binding_revision[collection] = r->collection_name_binding_revision;
        searchfabric__v1__resolve_collection_name_binding_response__free_unpacked(r, NULL);
    } else if (read == ALL_READ_COLLECTIONS) {
        PB(ListCollectionsResponse) *r =
            searchfabric__v1__list_collections_response__unpack(NULL, b->len, b->data);
        size_t least = 0;
        for (unsigned c = 0; c < ALL_COLLECTIONS; c++)
            least += (call->floor[0] & fact_bit(ALL_COLLECTION, c)) != 0;
        if (r->n_collections < least || r->n_collections > ALL_COLLECTIONS)
            sim_violation(m->sim, "%zu collections are listed, %zu were created", r->n_collections,
                          least);
        searchfabric__v1__list_collections_response__free_unpacked(r, NULL);
    }
}

static void on_read(struct all_call *call)
{
    struct all_model *m = call->ctx;
    enum all_read read = (enum all_read)(call->index % ALL_READS);
    unsigned collection = call->index / ALL_READS;

    if (call->err == SF_OK) {
        check_read(m, call, read, collection);
        return;
    }
    const char *reason = sf_diag_get(&call->diag, "catalog_unavailable_reason");
    bool absent = call->err == SF_RESOURCE_NOT_FOUND ||
                  (reason != NULL && strcmp(reason, "schema_bootstrap") == 0);
    if (absent && (call->floor[0] & fact_read(read, collection)) != 0)
        sim_violation(m->sim, "read %d of collection %u: what was answered is gone: %s", (int)read,
                      collection, call->diag.message);
}

struct all_call *all_model_read(struct all_model *m, enum all_read read, unsigned collection)
{
    struct all_call *call = all_read_call(m->cluster, read, collection, &m->facts);

    call->answered = on_read;
    call->ctx = m;
    call->index = collection * ALL_READS + (unsigned)read;
    call->floor[0] = facts_told(m);
    call->floor[1] = m->binding_revision[collection];
    return call;
}
