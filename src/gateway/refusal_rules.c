/*
 * Model: one row per refusal: the public code, the typed ingest reason (if it has one), the
 * authority that failed (where the details name none), and whether the outcome is open. Details of
 * the refusal are taken over; what the public code requires and the refusal lacks is filled in.
 */
#include "gateway/refusal_rules.h"

#include <string.h>

#include "base/limits.h"

#define R(name) SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_##name

#define STREAM_METHOD "/searchfabric.v1.IngestGatewayService/StreamMutations"

/* Wait that is advised where the refusal names none. */
#define RETRY_AFTER_MS "100"

struct projection {
    Searchfabric__V1__BatchRefusal refusal; /* as the coordinator says it */
    enum sf_err code;                       /* public */
    const char *reason;                     /* ingest_rejection_reason, or NULL */
    const char *authority;                  /* failing_authority, or NULL */
    bool outcome_unknown;                   /* retry the same batch to learn it */
    const char *message;                    /* where the refusal brings none */
};

static const struct projection table[] = {
    {R(OVERLOADED), SF_RATE_LIMITED, NULL, NULL, false, "the collection is busy"},
    {R(DEPENDENCY_UNAVAILABLE), SF_BACKEND_UNAVAILABLE, NULL, "commit_coordinator", false,
     "something that the commit coordinator needs cannot be reached"},
    {R(NOT_LEADER), SF_BACKEND_UNAVAILABLE, NULL, "commit_coordinator", false,
     "the collection's coordinator is not serving yet"},
    {R(INVALID_BATCH), SF_BAD_REQUEST, NULL, NULL, false, "the batch contradicts itself"},
    {R(FINGERPRINT_CONFLICT), SF_IDEMPOTENCY_CONFLICT, "batch_id_reused", NULL, false,
     "the batch id was used for other entries"},
    {R(DUPLICATE_WINDOW_EXPIRED), SF_VERSION_CONFLICT, "duplicate_window_expired", NULL, false,
     "the batch is too old to be told apart from a duplicate"},
    {R(COMMIT_TS_AHEAD), SF_INVALID_ARGUMENT, "commit_ts_ahead", NULL, false,
     "commit_ts lies ahead of the timestamp oracle"},
    {R(COMMIT_TS_BEHIND_MARK), SF_VERSION_CONFLICT, "commit_ts_behind_mark", NULL, false,
     "commit_ts lies at or below a mark of its partition"},
    {R(SOURCE_SEQ_GAP), SF_VERSION_CONFLICT, "source_seq_gap", NULL, false,
     "the row does not follow the last one of its partition"},
    {R(OUTCOME_UNKNOWN), SF_BACKEND_UNAVAILABLE, NULL, "commit_coordinator", true,
     "the outcome is unknown; send the same batch again"},
    {R(ABORTED), SF_BACKEND_UNAVAILABLE, NULL, "commit_coordinator", true,
     "an operator voided a part of the batch; send it again"},
    {R(NOT_KNOWN), SF_VERSION_CONFLICT, "schema_generation_mismatch", NULL, false,
     "the batch is no longer admitted and was not before"},
};

static const struct projection *projection_of(Searchfabric__V1__BatchRefusal refusal)
{
    static const struct projection unknown = {
        R(UNSPECIFIED), SF_INTERNAL, NULL,
        NULL,           false,       "the coordinator gave no reason this build knows"};

    for (size_t i = 0; i < SF_ARRAY_LEN(table); i++)
        if (table[i].refusal == refusal)
            return &table[i];
    return &unknown;
}

static void default_detail(struct sf_diag *diag, const char *key, const char *value)
{
    if (sf_diag_get(diag, key) == NULL)
        sf_diag_detail(diag, key, "%s", value);
}

/* What this build cannot do is not the batch's fault. */
static bool not_served(const Searchfabric__V1__BatchRefused *refused)
{
    for (size_t i = 0; i < refused->n_details; i++)
        if (strcmp(refused->details[i]->key, "violation") == 0)
            return strcmp(refused->details[i]->value, "flow_a_not_served") == 0;
    return false;
}

enum sf_err sf_refusal_project(const Searchfabric__V1__BatchRefused *refused, const char *batch_id,
                               struct sf_diag *diag)
{
    const struct projection *p = projection_of(refused->refusal);
    const char *message = refused->message[0] != '\0' ? refused->message : p->message;

    if (not_served(refused)) {
        (void)sf_diag_set(diag, SF_UNIMPLEMENTED,
                          "rows with the source's commit_ts (Flow A) and "
                          "collections fed by them are not served");
        sf_diag_detail(diag, "rpc_method", "%s", STREAM_METHOD);
        return SF_UNIMPLEMENTED;
    }
    (void)sf_diag_set(diag, p->code, "%s", message);
    for (size_t i = 0; i < refused->n_details && i < 6; i++)
        sf_diag_detail(diag, refused->details[i]->key, "%s", refused->details[i]->value);
    if (p->code == SF_RATE_LIMITED) {
        default_detail(diag, "retry_after_ms", RETRY_AFTER_MS);
        default_detail(diag, "throttled_dimension", "ingest_entries");
        default_detail(diag, "server_limit", "0");
    }
    if (p->code == SF_BAD_REQUEST || p->code == SF_INVALID_ARGUMENT) {
        default_detail(diag, "field", "batch");
        default_detail(diag, "violation", p->reason != NULL ? p->reason : "malformed");
    }
    if (p->authority != NULL)
        default_detail(diag, "failing_authority", p->authority);
    if (p->outcome_unknown)
        default_detail(diag, "outcome_unknown", "true");
    if (p->reason != NULL) {
        sf_diag_area(diag, "ingest");
        default_detail(diag, "ingest_rejection_reason", p->reason);
        default_detail(diag, "batch_id", batch_id);
    }
    return p->code;
}
