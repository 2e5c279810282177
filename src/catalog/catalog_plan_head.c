/*
 * Model: head_advance_intent. Its identity and its business identity are the same five values; the
 * answer of a repeat is DUPLICATE with the head as it stands today. The committed pointer is read
 * for each try and goes into the record as it was read, so that the rows are a function of the
 * record. A refusal leaves no record and is judged anew each time; one that speaks of a head behind
 * its pointer makes the reconciler look. The head object follows from the outcome.
 */
#include "catalog/catalog_gate.h"
#include "catalog/catalog_head.h"
#include "catalog/catalog_rules.h"

static const SF_PB(SubmitHeadAdvanceIntentRequest) * request_of(const ProtobufCMessage *request)
{
    return (const SF_PB(SubmitHeadAdvanceIntentRequest) *)request;
}

static enum sf_err head_check(const ProtobufCMessage *request, struct sf_diag *diag)
{
    return sf_catalog_head_check(request_of(request), diag);
}

static void head_tuple(const ProtobufCMessage *request, struct sf_keyhash *kh)
{
    const SF_PB(SubmitHeadAdvanceIntentRequest) *intent = request_of(request);
    sf_keyhash_u64(kh, intent->collection->namespace_id);
    sf_keyhash_u64(kh, intent->collection->collection_id);
    sf_keyhash_u64(kh, (uint64_t)intent->expected_head_version);
    sf_keyhash_u64(kh, intent->new_head_version);
    sf_keyhash_bytes(kh, sf_view_str(intent->manifest_checksum_or_etag));
}

static void head_business(const ProtobufCMessage *request, char out_hex[SF_SHA256_HEX_BYTES])
{
    struct sf_keyhash kh;
    sf_keyhash_init(&kh, "sf/ccs/business/head-advance/1");
    head_tuple(request, &kh);
    sf_keyhash_finish_hex(&kh, out_hex);
}

static void head_lane_key(const struct sf_catalog_command *command, enum sf_catalog_lane lane,
                          struct sf_keyhash *kh)
{
    const SF_PB(CollectionRef) *ref = request_of(command->request)->collection;
    (void)lane;
    sf_keyhash_u64(kh, ref->namespace_id);
    sf_keyhash_u64(kh, ref->collection_id);
}

static void head_gates(const struct sf_catalog_command *command, struct sf_catalog_gates *out_gates)
{
    const SF_PB(CollectionRef) *ref = request_of(command->request)->collection;
    out_gates->namespace_id = ref->namespace_id;
    out_gates->collection_id = ref->collection_id;
}

static enum sf_err head_load(struct sf_catalog_command *command, struct sf_sql_conn *conn,
                             bool *out_pivot)
{
    *out_pivot = false;
    return sf_catalog_plan_load(command, conn, request_of(command->request)->collection);
}

static enum sf_err head_exists(struct sf_catalog_command *command)
{
    const SF_PB(CollectionRow) *row = command->rows.collection;
    if (row == NULL || row->lifecycle_state != SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE))
        return sf_diag_set(&command->diag, SF_RESOURCE_NOT_FOUND, "no such active collection");
    return SF_OK;
}

/* The answer: `outcome` and the head after it. */
static enum sf_err head_answer(struct sf_catalog_command *command, SF_PB(IntentOutcome) outcome,
                               uint64_t version)
{
    SF_PB(SubmitHeadAdvanceIntentResponse) response;
    searchfabric__v1__submit_head_advance_intent_response__init(&response);
    response.outcome = outcome;
    response.manifest_head_version = version;
    return sf_catalog_plan_success(command, &response.base);
}

/* A repeat: the record stands, the head is where it is today. */
static enum sf_err head_replay(struct sf_catalog_command *command)
{
    enum sf_err err = head_exists(command);
    if (err != SF_OK)
        return err;
    return head_answer(command, SF_PBE(INTENT_OUTCOME, DUPLICATE),
                       command->rows.collection->manifest_head_version);
}

static enum sf_err refuse(struct sf_catalog_command *command, enum sf_catalog_head_verdict verdict,
                          uint64_t committed)
{
    static const char *const words[] = {[SF_CATALOG_HEAD_MOVED] = "head_moved",
                                        [SF_CATALOG_HEAD_ABOVE_POINTER] = "above_committed",
                                        [SF_CATALOG_HEAD_OTHER_CHECKSUM] = "checksum_differs"};
    static const char *const texts[] = {
        [SF_CATALOG_HEAD_MOVED] = "the head is not the expected one",
        [SF_CATALOG_HEAD_ABOVE_POINTER] = "the new head lies above the committed pointer",
        [SF_CATALOG_HEAD_OTHER_CHECKSUM] = "the committed version has another checksum"};
    const SF_PB(CollectionRow) *row = command->rows.collection;
    struct sf_diag *diag = &command->diag;
    sf_diag_set(diag, SF_VERSION_CONFLICT, "%s", texts[verdict]);
    sf_diag_detail(diag, "head_advance_conflict", "%s", words[verdict]);
    sf_diag_detail(diag, "manifest_head_version", "%llu",
                   (unsigned long long)row->manifest_head_version);
    sf_diag_detail(diag, "committed_manifest_version", "%llu", (unsigned long long)committed);
    if (committed != row->manifest_head_version)
        sf_catalog_head_hint(command->catalog, row->collection->namespace_id,
                             row->collection->collection_id);
    return SF_VERSION_CONFLICT;
}

/* The record of an admitted advance, and what follows from it. */
static enum sf_err head_record(struct sf_catalog_command *command,
                               const SF_PB(ManifestCommittedHeadObject) * pointer)
{
    const SF_PB(SubmitHeadAdvanceIntentRequest) *intent = request_of(command->request);
    const SF_PB(CollectionRow) *row = command->rows.collection;
    SF_PB(HeadAdvanceTuple) *tuple = sf_arena_alloc(command->scratch, sizeof(*tuple));
    if (tuple == NULL)
        return sf_catalog_plan_too_large(command);
    searchfabric__v1__head_advance_tuple__init(tuple);
    tuple->expected_head_version = intent->expected_head_version;
    tuple->new_head_version = intent->new_head_version;
    tuple->manifest_checksum_or_etag = intent->manifest_checksum_or_etag;
    tuple->committed_manifest_version = pointer->committed_manifest_version;
    tuple->committed_manifest_checksum_or_etag = pointer->manifest_checksum_or_etag;
    tuple->last_update_epoch = row->manifest_head_last_update_epoch + 1;
    command->plan.outcome.head_advance = tuple;
    enum sf_err err =
        head_answer(command, SF_PBE(INTENT_OUTCOME, ACCEPTED), intent->new_head_version);
    struct sf_catalog_head_content content = sf_catalog_head_content_of(tuple);
    return err == SF_OK ? sf_catalog_head_plan(command, intent->collection, &content) : err;
}

/* A pointer that was not checked yet is checked before an advance relies on it. */
static enum sf_err head_fits(struct sf_catalog_command *command,
                             const SF_PB(ManifestCommittedHeadObject) * pointer)
{
    const SF_PB(CollectionRow) *row = command->rows.collection;
    struct sf_catalog_head_manifest manifest = {0};
    const char *reason;
    if (pointer == NULL || row->manifest_head_reconciler_status !=
                               SF_PBE(MANIFEST_HEAD_RECONCILER_STATUS, REPAIR_PENDING))
        return SF_OK;
    enum sf_err err = sf_catalog_head_manifest_read(command->catalog, pointer, command->scratch,
                                                    &command->diag, &manifest);
    if (err != SF_OK ||
        sf_catalog_head_judge(row, pointer, false, &manifest, &reason) != SF_CATALOG_HEAD_BROKEN)
        return err;
    sf_catalog_head_hint(command->catalog, row->collection->namespace_id,
                         row->collection->collection_id);
    return sf_catalog_head_gated(&command->diag);
}

static enum sf_err head_plan(struct sf_catalog_command *command)
{
    const SF_PB(SubmitHeadAdvanceIntentRequest) *intent = request_of(command->request);
    const SF_PB(CollectionRow) *row = command->rows.collection;
    SF_PB(ManifestCommittedHeadObject) *pointer = NULL;
    uint64_t applied_ts = 0;
    enum sf_err err = head_exists(command);
    if (err == SF_OK &&
        row->manifest_head_reconciler_status == SF_PBE(MANIFEST_HEAD_RECONCILER_STATUS, ERROR))
        err = sf_catalog_head_gated(&command->diag);
    if (err == SF_OK)
        err = sf_catalog_head_pointer(command->catalog, intent->collection, command->scratch,
                                      &command->diag, &pointer);
    if (err == SF_ERR_CORRUPT)
        sf_catalog_head_hint(command->catalog, intent->collection->namespace_id,
                             intent->collection->collection_id);
    if (err == SF_OK)
        err = head_fits(command, pointer);
    if (err != SF_OK)
        return err;
    enum sf_catalog_head_verdict verdict = sf_catalog_head_cas(intent, row, pointer);
    if (verdict != SF_CATALOG_HEAD_ADVANCE && verdict != SF_CATALOG_HEAD_MATCHES)
        return refuse(command, verdict, pointer == NULL ? 0 : pointer->committed_manifest_version);
    if (verdict == SF_CATALOG_HEAD_ADVANCE)
        err = sf_catalog_plan_ts(command, 1, &applied_ts);
    if (err == SF_OK)
        err = sf_catalog_plan_outcome(
            command, applied_ts,
            &(struct sf_catalog_subject){
                intent->collection->namespace_id,
                command->rows.ns == NULL ? "" : command->rows.ns->namespace_name,
                intent->collection->collection_id, row->collection_name});
    if (err != SF_OK)
        return err;
    command->plan.lane_shard =
        sf_catalog_shard_of_id(command->catalog, intent->collection->namespace_id);
    if (verdict == SF_CATALOG_HEAD_ADVANCE)
        return head_record(command, pointer);
    command->plan.no_record = true; /* its record was removed by age: nothing is written again */
    return head_answer(command, SF_PBE(INTENT_OUTCOME, DUPLICATE), row->manifest_head_version);
}

const struct sf_catalog_mutation sf_catalog_head_advance = {
    .kind = SF_PBE(COMMAND_KIND, HEAD_ADVANCE),
    .intent = true,
    .kind_name = "HEAD_ADVANCE",
    .first_lane = SF_CATALOG_LANE_COLLECTION_ID,
    .id_lane = SF_CATALOG_LANE_COLLECTION_ID,
    .check = head_check,
    .scope = head_tuple,
    .business = head_business,
    .lane_key = head_lane_key,
    .load = head_load,
    .plan = head_plan,
    .gates = head_gates,
    .replay = head_replay,
};
