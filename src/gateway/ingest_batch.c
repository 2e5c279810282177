/*
 * Model: the way of one batch. Every step either hands it on or answers it; the order of the checks
 * is that of the contract: malformed, (authentication came before), static grants, then the
 * catalog's facts, then what the batch claims about them (token, receipt), then the documents.
 * A redelivery is not looked up here: the coordinator knows what stands. Its answer comes before
 * the catalog's facts, so a batch that only these refuse (its generation is no longer the active
 * one, its collection is dropped) goes there too, for nothing but that answer.
 */
#include "gateway/ingest_priv.h"

#include <inttypes.h>

#include "base/limits.h"
#include "base/mutant.h"
#include "contract/receipt.h"

static enum sf_err refuse_ingest(struct sf_diag *diag, const struct ingest_batch *batch,
                                 enum sf_err code, const char *reason, const char *message)
{
    (void)sf_diag_set(diag, code, "%s", message);
    sf_diag_area(diag, "ingest");
    sf_diag_detail(diag, "ingest_rejection_reason", "%s", reason);
    sf_diag_detail(diag, "batch_id", "%s", batch->batch->batch_id);
    return code;
}

static enum sf_err fingerprint_check(struct ingest_batch *batch, struct sf_diag *diag)
{
    sf_ingest_batch_fingerprint(batch->batch, batch->fingerprint);
    if (batch->batch->batch_fingerprint[0] != '\0' &&
        strcmp(batch->batch->batch_fingerprint, batch->fingerprint) != 0)
        return sf_diag_bad_field(diag, "batch_fingerprint", "mismatch",
                                 "the fingerprint is not that of the entries");
    batch->batch->batch_fingerprint = batch->fingerprint;
    return SF_OK;
}

static enum sf_err grants_check(const struct ingest_batch *batch, struct sf_diag *diag)
{
    const struct sf_ingest_grants *grants = batch->call->link->ingest->deps.grants;
    struct sf_collection_ref ref = {{batch->batch->collection->namespace_id},
                                    {batch->batch->collection->collection_id}};

    if (grants == NULL)
        return SF_OK;
    return grants->check_write(grants->self, sf_call_identity(batch->call->call), ref, diag);
}

void ingest_batch_accept(struct ingest_batch *batch)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    searchfabric__v1__mutation_ack__init(&batch->ack);
    enum sf_err err = sf_ingest_batch_check(batch->batch, &diag);
    if (err == SF_OK)
        err = fingerprint_check(batch, &diag);
    if (err == SF_OK)
        err = grants_check(batch, &diag);
    if (err != SF_OK) {
        ingest_batch_answer(batch, &diag);
        return;
    }
    batch->gate = sf_ack_gate(batch->batch->durability, batch->batch->visibility);
    ingest_admission_get(batch->call->link, batch);
}

/* Lifecycle, bootstrap and generation of the collection. */
static enum sf_err state_check(const struct ingest_batch *batch,
                               const Searchfabric__V1__CollectionAdmissionState *state,
                               struct sf_diag *diag)
{
    if (state->lifecycle !=
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_LIFECYCLE__COLLECTION_ADMISSION_LIFECYCLE_ACTIVE)
        return sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such live collection");
    if (state->schema_bootstrap_state ==
            SEARCHFABRIC__V1__SCHEMA_BOOTSTRAP_STATE__SCHEMA_BOOTSTRAP_STATE_NO_ACTIVE_SCHEMA_GENERATION ||
        state->_active_schema_generation_token_case ==
            SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE___ACTIVE_SCHEMA_GENERATION_TOKEN__NOT_SET) {
        (void)sf_diag_set(diag, SF_CATALOG_UNAVAILABLE,
                          "the collection has no schema generation yet");
        sf_diag_detail(diag, "catalog_unavailable_reason", "schema_bootstrap");
        sf_diag_detail(diag, "schema_bootstrap_state", "no_active_schema_generation");
        return SF_CATALOG_UNAVAILABLE;
    }
    if (strcmp(state->active_schema_generation_token, batch->batch->schema_generation_token) != 0 &&
        !SF_MUTANT(ingest_no_schema_token)) {
        (void)refuse_ingest(diag, batch, SF_VERSION_CONFLICT, "schema_generation_mismatch",
                            "the batch was made for another schema generation");
        sf_diag_detail(diag, "active_schema_generation_token", "%s",
                       state->active_schema_generation_token);
        return SF_VERSION_CONFLICT;
    }
    return SF_OK;
}

/* Ids of a batch that is nothing but creates; NULL (refused) when it is something else. */
static const uint64_t *create_ids(const struct ingest_batch *batch, struct sf_diag *diag)
{
    const Searchfabric__V1__MutationBatch *m = batch->batch;
    uint64_t *ids = sf_arena_alloc(batch->arena, m->n_entries * sizeof(*ids));

    if (ids == NULL) {
        (void)sf_diag_set(diag, SF_ERR_LIMIT, "the batch exceeds its memory");
        return NULL;
    }
    for (size_t i = 0; i < m->n_entries; i++) {
        const Searchfabric__V1__MutationEntry *entry = m->entries[i];
        if (entry->entry_case != SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW ||
            entry->row->op != SEARCHFABRIC__V1__ROW_OP__ROW_OP_CREATE) {
            (void)refuse_ingest(diag, batch, SF_BAD_REQUEST, "receipt_invalid",
                                "a batch with a receipt holds create rows and nothing else");
            sf_diag_detail(diag, "field", "entries");
            sf_diag_detail(diag, "violation", "route_intent");
            sf_diag_detail(diag, "entry_index", "%zu", i);
            return NULL;
        }
        ids[i] = entry->row->doc_id->u64;
    }
    return ids;
}

/* Verifies the receipt, if the batch brings one, and takes its apply time. What its collection
 * takes is a fact of the active generation and says nothing about a batch of another. */
static enum sf_err receipt_check(struct ingest_batch *batch,
                                 const Searchfabric__V1__CollectionAdmissionState *state,
                                 struct sf_diag *diag)
{
    Searchfabric__V1__AllocatorReceiptClaims *claims;
    const Searchfabric__V1__MutationBatch *m = batch->batch;

    if (m->allocator_receipt.len == 0)
        return SF_OK;
    if (batch->stale == NULL &&
        state->generation_policy !=
            SEARCHFABRIC__V1__DOC_ID_GENERATION_POLICY__DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL) {
        (void)refuse_ingest(diag, batch, SF_BAD_REQUEST, "receipt_invalid",
                            "the collection does not take ids from the allocator");
        sf_diag_detail(diag, "field", "allocator_receipt");
        sf_diag_detail(diag, "violation", "forbidden");
        return SF_BAD_REQUEST;
    }
    const uint64_t *ids = create_ids(batch, diag);
    if (ids == NULL)
        return diag->err;
    if (SF_MUTANT(ingest_no_receipt))
        return SF_OK;
    const struct sf_receipt_expected expected = {
        .identity_hash_hex = batch->call->identity_hash,
        .client_id = batch->call->meta.client_id,
        .client_kind = batch->call->meta.client_kind,
        .collection = {{m->collection->namespace_id}, {m->collection->collection_id}},
        .doc_ids = ids,
        .doc_id_count = m->n_entries,
        .schema_generation_token = m->schema_generation_token,
    };
    enum sf_err err =
        sf_receipt_verify(batch->call->link->ingest->deps.keyring,
                          sf_view_bytes(m->allocator_receipt.data, m->allocator_receipt.len),
                          &expected, batch->arena, diag, &claims);
    if (err != SF_OK) {
        sf_diag_area(diag, "ingest");
        sf_diag_detail(diag, "ingest_rejection_reason", "receipt_invalid");
        sf_diag_detail(diag, "batch_id", "%s", m->batch_id);
        return err;
    }
    batch->receipt_ts = sf_tso_from_ms((uint64_t)claims->applied_at_unix_ms).v;
    return SF_OK;
}

static void plan_sender(struct ingest_batch *batch)
{
    batch->meta = batch->call->meta;
    batch->plan.meta = &batch->meta;
    batch->plan.authenticated_client_identity_hash = batch->call->identity_hash;
}

/* The catalog's facts refuse the batch for `refused`: plans the question whether it stands already.
 * What it claims must hold all the same. */
static enum sf_err plan_stale(struct ingest_batch *batch,
                              const Searchfabric__V1__CollectionAdmissionState *state,
                              struct sf_diag *refused)
{
    Searchfabric__V1__ClientKind kind = batch->call->meta.client_kind;
    struct sf_diag diag;

    sf_diag_init(&diag);
    batch->stale = sf_arena_dup(batch->arena, refused, sizeof(*refused));
    if (batch->stale == NULL || sf_ingest_kind_admit(state, kind, &diag) != SF_OK ||
        receipt_check(batch, state, &diag) != SF_OK)
        return refused->err;
    searchfabric__v1__planned_batch__init(&batch->plan);
    if (sf_plan_known(batch->batch, kind, batch->arena, &diag, &batch->plan) != SF_OK)
        return refused->err;
    plan_sender(batch);
    return SF_OK;
}

static enum sf_err plan_check(struct ingest_batch *batch,
                              const struct ingest_collection *collection, struct sf_diag *diag)
{
    const Searchfabric__V1__CollectionAdmissionState *state = collection->state;
    Searchfabric__V1__ClientKind kind = batch->call->meta.client_kind;
    enum sf_err err = state_check(batch, state, diag);

    if (err == SF_RESOURCE_NOT_FOUND || err == SF_VERSION_CONFLICT)
        return plan_stale(batch, state, diag);
    if (err == SF_OK)
        err = sf_ingest_batch_admit(state, batch->batch, kind, diag);
    if (err == SF_OK)
        err = receipt_check(batch, state, diag);
    if (err != SF_OK)
        return err;
    searchfabric__v1__planned_batch__init(&batch->plan);
    err = sf_plan_batch(collection->schema, batch->batch, kind, batch->arena, diag, &batch->plan);
    if (err != SF_OK)
        return err;
    plan_sender(batch);
    return SF_OK;
}

/* Chooses the time that counts as the batch's first admission: the receipt's, the one that the
 * client sends back, or this stamp. */
static enum sf_err stamp_check(struct ingest_batch *batch, struct sf_diag *diag)
{
    const struct sf_tso_request *stamp = &batch->stamp;
    uint64_t claimed = batch->receipt_ts != 0 ? batch->receipt_ts : batch->batch->first_admitted_ts;

    if (SF_MUTANT(ingest_no_duplicate_stamp))
        claimed = 0;
    if (stamp->err != SF_OK) {
        (void)sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "no timestamp can be had");
        sf_diag_detail(diag, "failing_authority", "tso");
        return SF_BACKEND_UNAVAILABLE;
    }
    if (batch->receipt_ts == 0 && claimed > stamp->first.v)
        return sf_diag_bad_field(diag, "first_admitted_ts", "out_of_range",
                                 "the time lies in the future");
    /* A receipt's apply time has only milliseconds and may be of this very one. */
    batch->plan.first_admitted_ts =
        claimed == 0 || claimed > stamp->first.v ? stamp->first.v : claimed;
    batch->batch->first_admitted_ts = batch->plan.first_admitted_ts;
    batch->ack.first_admitted_ts = batch->plan.first_admitted_ts;
    return SF_OK;
}

static void on_stamp(struct sf_tso_request *request)
{
    struct ingest_batch *batch = SF_CONTAINER_OF(request, struct ingest_batch, stamp);
    struct sf_diag diag;

    sf_diag_init(&diag);
    if (stamp_check(batch, &diag) != SF_OK)
        ingest_batch_answer(batch, &diag);
    else
        ingest_link_submit(batch->call->link, batch);
}

void ingest_batch_admit(struct ingest_batch *batch, const struct ingest_collection *collection,
                        const struct sf_diag *failed)
{
    struct sf_diag diag;

    if (failed != NULL) {
        ingest_batch_answer(batch, failed);
        return;
    }
    sf_diag_init(&diag);
    if (plan_check(batch, collection, &diag) != SF_OK) {
        ingest_batch_answer(batch, &diag);
        return;
    }
    batch->stamp =
        (struct sf_tso_request){.count = 1, .loop = batch->call->link->loop, .done = on_stamp};
    sf_tso_get(batch->call->link->tso, &batch->stamp);
}
