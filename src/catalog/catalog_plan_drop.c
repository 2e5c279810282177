/*
 * Model: DropCollection. What it answers is decided from the lineage, never from stored bytes:
 *
 *   ACTIVE       fence, tombstone object and record: DROPPED. The one effective drop.
 *   TOMBSTONED   ALREADY_DROPPED. Under a new key a record that references the tombstone; neither
 *                drop_revision nor the horizon moves (OP-18). Under a known key no record at all.
 *   released, or never there   SF_RESOURCE_NOT_FOUND, also for a repeat (OP-17).
 *
 * The row is only a hint: unless it says TOMBSTONED, the tombstone object is looked for before
 * anything is written, so that a lost or stale row neither hides a drop nor repeats one.
 */
#include "catalog/catalog_lifecycle.h"

int64_t sf_catalog_horizon(const struct sf_catalog *catalog, uint64_t delay_ms, int64_t now_ms)
{
    uint64_t delay = delay_ms == 0 ? SF_CATALOG_GC_DELAY_MS : delay_ms;
    (void)catalog;
    return delay > (uint64_t)(INT64_MAX - now_ms) ? INT64_MAX : now_ms + (int64_t)delay;
}

static const SF_PB(DropCollectionRequest) * request_of(const struct sf_catalog_command *command)
{
    return (const SF_PB(DropCollectionRequest) *)command->request;
}

static enum sf_err drop_check(const ProtobufCMessage *request, struct sf_diag *diag)
{
    const SF_PB(DropCollectionRequest) *drop = (const SF_PB(DropCollectionRequest) *)request;
    enum sf_err err = sf_catalog_ref_check(drop->collection, diag);
    if (err == SF_OK && drop->fence != NULL)
        err = sf_identity_check("fence.schema_generation_token",
                                sf_view_str(drop->fence->schema_generation_token), 1,
                                SF_LIMIT_SCHEMA_TOKEN_SCALARS, diag);
    return err;
}

static void drop_scope(const ProtobufCMessage *request, struct sf_keyhash *kh)
{
    const SF_PB(CollectionRef) *ref = ((const SF_PB(DropCollectionRequest) *)request)->collection;
    sf_keyhash_u64(kh, ref->namespace_id);
    sf_keyhash_u64(kh, ref->collection_id);
}

static void drop_business(const ProtobufCMessage *request, char out_hex[SF_SHA256_HEX_BYTES])
{
    const SF_PB(SchemaFencePrecondition) *fence =
        ((const SF_PB(DropCollectionRequest) *)request)->fence;
    struct sf_keyhash kh;
    sf_keyhash_init(&kh, "sf/ccs/business/drop-collection/1");
    drop_scope(request, &kh);
    if (fence == NULL) {
        sf_keyhash_bytes(&kh, sf_view_str("__unconditional_drop__"));
    } else {
        sf_keyhash_bytes(&kh, sf_view_str(fence->schema_generation_token));
        sf_keyhash_u64(&kh, fence->_expected_prev_schema_version_case != 0);
        sf_keyhash_u64(&kh, fence->expected_prev_schema_version);
        sf_keyhash_u64(&kh, fence->_enforce_monotonic_apply_case != 0);
        sf_keyhash_u64(&kh, fence->enforce_monotonic_apply ? 1 : 0);
    }
    sf_keyhash_finish_hex(&kh, out_hex);
}

static void drop_lane_key(const struct sf_catalog_command *command, enum sf_catalog_lane lane,
                          struct sf_keyhash *kh)
{
    (void)lane;
    drop_scope(command->request, kh);
}

static enum sf_err drop_load(struct sf_catalog_command *command, struct sf_sql_conn *conn,
                             bool *out_pivot)
{
    *out_pivot = false;
    return sf_catalog_plan_load(command, conn, request_of(command)->collection);
}

/* Loads the rows again after they were repaired. */
static enum sf_err reload(struct sf_catalog_command *command)
{
    struct sf_catalog *catalog = command->catalog;
    bool pivot;
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    enum sf_err err = drop_load(command, conn, &pivot);
    sf_sql_release(conn);
    return err;
}

static bool tombstoned(const SF_PB(CollectionRow) * row)
{
    return row != NULL &&
           row->lifecycle_state == SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, TOMBSTONED);
}

/* Brings rows.collection to what the durable objects say; NULL afterwards: never there or released.
 */
static enum sf_err settle_lineage(struct sf_catalog_command *command,
                                  struct sf_catalog_tombstone *out)
{
    const SF_PB(CollectionRef) *ref = request_of(command)->collection;
    enum sf_err err =
        sf_catalog_tombstone_find(command->catalog, ref->namespace_id, ref->collection_id,
                                  command->scratch, &command->diag, out);
    if (err != SF_OK)
        return err;
    if (out->released) {
        command->rows.collection = NULL;
        return SF_OK;
    }
    if (!out->stands)
        return tombstoned(command->rows.collection)
                   ? sf_diag_set(&command->diag, SF_ERR_CORRUPT,
                                 "a tombstoned row has no tombstone that counts")
                   : SF_OK;
    if (tombstoned(command->rows.collection))
        return SF_OK;
    err = sf_catalog_tombstone_restore(command->catalog, out->object, command->scratch,
                                       &command->diag);
    return err == SF_OK ? reload(command) : err;
}

static enum sf_err not_found(struct sf_catalog_command *command)
{
    return sf_diag_set(&command->diag, SF_RESOURCE_NOT_FOUND, "no such collection");
}

static enum sf_err answer_status(struct sf_catalog_command *command,
                                 SF_PB(DropCollectionStatus) status)
{
    SF_PB(DropCollectionSuccessResponse) response;
    searchfabric__v1__drop_collection_success_response__init(&response);
    response.status = status;
    return sf_catalog_plan_success(command, &response.base);
}

static enum sf_err plan_tombstone(struct sf_catalog_command *command)
{
    struct sf_catalog *catalog = command->catalog;
    const SF_PB(CollectionRow) *row = command->rows.collection;
    int64_t now_ms = sf_clock_unix_ms(catalog->deps.clock);
    SF_PB(CollectionTombstoneObject) *object = sf_arena_alloc(command->scratch, sizeof(*object));
    if (object == NULL)
        return sf_catalog_plan_too_large(command);
    searchfabric__v1__collection_tombstone_object__init(object);
    object->format_version = SF_CATALOG_FORMAT_VERSION;
    object->attempt_id = command->plan.attempt_id;
    object->owner_epoch = catalog->owner_epoch;
    object->attempt = command->plan.attempt;
    object->command_identity = command->command_identity;
    object->collection = row->collection;
    object->collection_name = row->collection_name;
    object->collection_name_allocation_epoch = row->collection_name_allocation_epoch;
    object->drop_revision = SF_CATALOG_DROP_REVISION;
    object->dropped_at_unix_ms = now_ms;
    object->drop_fence = request_of(command)->fence;
    object->gc_after_unix_ms =
        sf_catalog_horizon(catalog, catalog->deps.collection_gc_delay_ms, now_ms);
    object->manifest_head_version = row->manifest_head_version;
    object->descriptor_revision = row->descriptor_revision;
    struct sf_buf key = {0};
    sf_catalog_key_tombstone(&key, row->collection->namespace_id, row->collection->collection_id,
                             object->drop_revision);
    enum sf_err err = sf_catalog_plan_object(command, &key, &object->base);
    command->plan.outcome.collection_name_binding_revision =
        command->rows.ns == NULL ? 1 : command->rows.ns->collection_name_binding_revision + 1;
    return err == SF_OK ? answer_status(command, SF_PBE(DROP_COLLECTION_STATUS, DROPPED)) : err;
}

/* A drop under a new key of what is dropped: a record that references the tombstone. */
static enum sf_err plan_repeat(struct sf_catalog_command *command,
                               const struct sf_catalog_tombstone *found)
{
    struct sf_catalog_plan *plan = &command->plan;
    plan->ref = found->ref;
    plan->refs[0] = &plan->ref;
    plan->outcome.control_objects = plan->refs;
    plan->outcome.n_control_objects = 1;
    plan->outcome.replay_classification = SF_PBE(REPLAY_CLASSIFICATION, REPLAY_SAME_PAYLOAD);
    return answer_status(command, SF_PBE(DROP_COLLECTION_STATUS, ALREADY_DROPPED));
}

static enum sf_err drop_plan(struct sf_catalog_command *command)
{
    const SF_PB(DropCollectionRequest) *drop = request_of(command);
    struct sf_catalog_rows *rows = &command->rows;
    struct sf_catalog_tombstone found;
    uint64_t applied_ts = 0;
    enum sf_err err = settle_lineage(command, &found);
    if (err == SF_OK && rows->collection == NULL)
        err = not_found(command);
    if (err == SF_OK)
        err = sf_catalog_mode_check(command->meta->client_kind,
                                    rows->collection->collection_truth_mode, &command->diag);
    if (err == SF_OK && !found.stands)
        err = sf_catalog_drop_fence_check(drop->fence, rows->collection, &command->diag);
    if (err == SF_OK)
        err = sf_catalog_plan_ts(command, 1, &applied_ts);
    if (err == SF_OK)
        err = sf_catalog_plan_outcome(
            command, applied_ts,
            &(struct sf_catalog_subject){
                drop->collection->namespace_id, rows->ns == NULL ? "" : rows->ns->namespace_name,
                drop->collection->collection_id, rows->collection->collection_name});
    if (err != SF_OK)
        return err;
    SF_PB(CommandOutcomeObject) *outcome = &command->plan.outcome;
    command->plan.lane_shard =
        sf_catalog_shard_of_id(command->catalog, drop->collection->namespace_id);
    outcome->_collection_name_allocation_epoch_case =
        SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___COLLECTION_NAME_ALLOCATION_EPOCH_COLLECTION_NAME_ALLOCATION_EPOCH;
    outcome->collection_name_allocation_epoch = rows->collection->collection_name_allocation_epoch;
    outcome->fence = drop->fence;
    return found.stands ? plan_repeat(command, &found) : plan_tombstone(command);
}

static enum sf_err drop_replay(struct sf_catalog_command *command)
{
    struct sf_catalog_tombstone found = {0};
    if (!tombstoned(command->rows.collection)) {
        enum sf_err err = settle_lineage(command, &found);
        if (err != SF_OK)
            return err;
        if (command->rows.collection == NULL)
            return not_found(command);
        if (!found.stands)
            return sf_diag_set(&command->diag, SF_ERR_CORRUPT,
                               "a drop was committed and its tombstone is gone");
    }
    return answer_status(command, SF_PBE(DROP_COLLECTION_STATUS, ALREADY_DROPPED));
}

static void drop_gates(const struct sf_catalog_command *command, struct sf_catalog_gates *out_gates)
{
    out_gates->namespace_id = request_of(command)->collection->namespace_id;
    out_gates->collection_id = request_of(command)->collection->collection_id;
}

const struct sf_catalog_mutation sf_catalog_drop_collection = {
    .kind = SF_PBE(COMMAND_KIND, DROP_COLLECTION),
    .family = SF_CATALOG_FAMILY_DROP,
    .kind_name = "DROP_COLLECTION",
    .rpc_method = "DropCollection",
    .first_lane = SF_CATALOG_LANE_COLLECTION_ID,
    .id_lane = SF_CATALOG_LANE_COLLECTION_ID,
    .check = drop_check,
    .scope = drop_scope,
    .business = drop_business,
    .lane_key = drop_lane_key,
    .load = drop_load,
    .plan = drop_plan,
    .gates = drop_gates,
    .replay = drop_replay,
};
