/*
 * Model: materializing a command is a function of its outcome and its control object alone, so that
 * live work, a restart and a rebuild write the same rows. Each command first looks at its shard's
 * owner epoch (higher or no row: dropped) and inserts its replay row if absent (there already: the
 * command is skipped whole); every other write is guarded by a revision. Only an APPLIED ORIGINAL
 * record owns the business key (OP-14) and has rows of its own. A namespace's binding revision
 * rises by one for every command that changes a binding; the outcome's number is only a floor.
 */
#include "catalog/catalog_projector.h"
#include "catalog/catalog_head.h"
#include "catalog/catalog_rules.h"
#include "catalog/catalog_lifecycle.h"

#include "base/pbjson.h"

static void bind_json(struct sf_sql_stmt *stmt, int index, const ProtobufCMessage *message)
{
    if (message == NULL) {
        sf_sql_bind_null(stmt, index);
        return;
    }
    struct sf_buf json = {0};
    sf_pbjson_encode(message, &json);
    sf_sql_bind_text(stmt, index, sf_buf_view(&json));
    sf_buf_fini(&json);
}

void sf_catalog_bind_json(struct sf_sql_stmt *stmt, int index, const ProtobufCMessage *message)
{
    bind_json(stmt, index, message);
}

/* As bind_json for NOT NULL columns: an absent message is an empty one. */
static void bind_json_or_empty(struct sf_sql_stmt *stmt, int index, const ProtobufCMessage *message)
{
    if (message == NULL)
        sf_sql_bind_text(stmt, index, sf_view_str("{}"));
    else
        bind_json(stmt, index, message);
}

static void bind_str(struct sf_sql_stmt *stmt, int index, bool present, const char *text)
{
    if (present)
        sf_sql_bind_text(stmt, index, sf_view_str(text));
    else
        sf_sql_bind_null(stmt, index);
}

static void bind_u64_or_null(struct sf_sql_stmt *stmt, int index, bool present, uint64_t value)
{
    if (present)
        sf_sql_bind_u64(stmt, index, value);
    else
        sf_sql_bind_null(stmt, index);
}

/* Name of an enumerator without its prefix. */
static struct sf_view enum_text(const ProtobufCEnumDescriptor *desc, int value, const char *prefix)
{
    const ProtobufCEnumValue *found = protobuf_c_enum_descriptor_get_value(desc, value);
    return sf_view_str(found == NULL ? "" : found->name + strlen(prefix));
}

/* ---- shards ------------------------------------------------------------------------------- */

static const struct sf_sql_upsert shard_row = {.table = "catalog_lane_shards",
                                               .columns = "lane_shard, owner_epoch, watermark",
                                               .key = "lane_shard"};

/* Is the command's shard still under an epoch not above `owner_epoch`? */
static enum sf_err shard_admits(struct sf_sql_conn *conn, uint32_t shard, uint64_t owner_epoch,
                                struct sf_diag *diag, bool *out_admits)
{
    struct sf_sql_stmt *stmt;
    bool row;
    enum sf_err err = sf_sql_prepare(
        conn, "SELECT owner_epoch FROM catalog_lane_shards WHERE lane_shard = ?1", diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_i64(stmt, 1, shard);
    err = sf_sql_step(stmt, diag, &row);
    *out_admits = err == SF_OK && row && sf_sql_col_u64(stmt, 0) <= owner_epoch;
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_catalog_project_watermark(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                         uint64_t segment, struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn,
                                     "UPDATE catalog_lane_shards SET watermark = ?1"
                                     " WHERE owner_epoch = ?2 AND watermark < ?1",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, segment);
    sf_sql_bind_u64(stmt, 2, catalog->owner_epoch);
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_catalog_project_owner(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                     bool create, uint64_t watermark, struct sf_diag *diag)
{
    uint64_t count, low, high;
    enum sf_err err = sf_catalog_sql_shards(conn, diag, &count, &low, &high);
    if (err != SF_OK)
        return err;
    if (count != 0 && high > catalog->owner_epoch && !SF_MUTANT(ccs_owner_row_back))
        return sf_diag_set(diag, SF_ERR_DEPOSED, "the projection knows a newer owner");
    if (create) {
        err = sf_sql_exec(conn, "DELETE FROM catalog_lane_shards;", diag); /* the claim */
        for (uint32_t shard = 0; shard < catalog->lane_shards && err == SF_OK; shard++) {
            struct sf_sql_stmt *stmt;
            err = sf_sql_prepare_upsert(conn, &shard_row, diag, &stmt);
            if (err != SF_OK)
                break;
            sf_sql_bind_i64(stmt, 1, shard);
            sf_sql_bind_u64(stmt, 2, catalog->owner_epoch);
            sf_sql_bind_u64(stmt, 3, watermark);
            err = sf_sql_run(stmt, diag, NULL);
        }
        return err;
    }
    struct sf_sql_stmt *stmt;
    err = sf_sql_prepare(conn,
                         SF_MUTANT(ccs_owner_row_back)
                             ? "UPDATE catalog_lane_shards SET owner_epoch = ?1"
                             : "UPDATE catalog_lane_shards SET owner_epoch = ?1"
                               " WHERE owner_epoch < ?1",
                         diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, catalog->owner_epoch);
    return sf_sql_run(stmt, diag, NULL);
}

/* Row of a rebuild under way; never a lane shard. */
#define CLAIM_SHARD (-1)

enum sf_err sf_catalog_sql_claim(struct sf_sql_conn *conn, struct sf_diag *diag,
                                 uint64_t *out_epoch)
{
    struct sf_sql_stmt *stmt;
    bool row;
    *out_epoch = 0;
    enum sf_err err = sf_sql_prepare(
        conn, "SELECT owner_epoch FROM catalog_lane_shards WHERE lane_shard = ?1", diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_i64(stmt, 1, CLAIM_SHARD);
    err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row)
        *out_epoch = sf_sql_col_u64(stmt, 0);
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_catalog_project_claim(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                     bool foreign, struct sf_diag *diag)
{
    uint64_t claim, count, low, high;
    enum sf_err err = sf_catalog_sql_claim(conn, diag, &claim);
    if (err == SF_OK)
        err = sf_catalog_sql_shards(conn, diag, &count, &low, &high);
    if (err != SF_OK)
        return err;
    if (!foreign && !SF_MUTANT(ccs_claim_back) &&
        (claim > catalog->owner_epoch || (count != 0 && high > catalog->owner_epoch)))
        return sf_diag_set(diag, SF_ERR_DEPOSED, "a newer owner has the projection");
    err = sf_sql_exec(
        conn,
        "DELETE FROM catalog_lane_shards; DELETE FROM namespaces;"
        "DELETE FROM collections; DELETE FROM namespace_name_epochs;"
        "DELETE FROM collection_name_epochs; DELETE FROM schema_generations;"
        "DELETE FROM catalog_replay_index; DELETE FROM collection_statistics_heads;"
        "DELETE FROM collection_statistics_snapshots;"
        "DELETE FROM collection_tombstones; DELETE FROM collection_lifecycle_windows;"
        "DELETE FROM namespace_quota_state; DELETE FROM "
        "namespace_quota_leases; DELETE FROM catalog_adoptions;" SF_CATALOG_PROJECTOR_DELETES,
        diag);
    struct sf_sql_stmt *stmt;
    if (err == SF_OK)
        err = sf_sql_prepare_upsert(conn, &shard_row, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_i64(stmt, 1, CLAIM_SHARD);
    sf_sql_bind_u64(stmt, 2, catalog->owner_epoch);
    sf_sql_bind_u64(stmt, 3, 0);
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_catalog_project_claimed(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                       struct sf_diag *diag)
{
    uint64_t claim;
    enum sf_err err = sf_catalog_sql_claim(conn, diag, &claim);
    if (err == SF_OK && claim != catalog->owner_epoch && !SF_MUTANT(ccs_no_claim))
        err = sf_diag_set(diag, SF_ERR_DEPOSED, "another owner rebuilds the projection");
    return err;
}

enum sf_err sf_catalog_project_bump_bindings(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    return sf_sql_exec(conn,
                       "UPDATE namespaces SET collection_name_binding_revision ="
                       " collection_name_binding_revision + 1;",
                       diag);
}

/* ---- replay index ------------------------------------------------------------------------- */

static const struct sf_sql_upsert replay_row = {
    .table = "catalog_replay_index",
    .columns = "command_identity, transport_lookup_key, business_lookup_key, command_kind, "
               "replay_family, idempotency_key, correlation_id, "
               "authenticated_client_identity_hash, principal_subject, client_id, "
               "namespace_name, namespace_name_allocation_epoch, namespace_id, "
               "collection_name, collection_name_allocation_epoch, collection_id, "
               "schema_version, fence_expected_prev_schema_version, "
               "fence_schema_generation_token, fence_enforce_monotonic_apply, "
               "payload_fingerprint, terminal_state, replay_classification, "
               "original_outcome_json, command_object_key, created_ts, applied_ts, "
               "expected_head_version, new_head_version, manifest_checksum_or_etag, "
               "target_lifecycle_state, expected_namespace_revision, release_cutoff_unix_ms",
    .key = "command_identity",
};

/* True for the record that owns its business key. */
static bool owns_business_key(const SF_PB(CommandOutcomeObject) * outcome)
{
    return outcome->_business_lookup_key_case != 0 &&
           outcome->terminal_state == SF_PBE(COMMAND_TERMINAL_STATE, APPLIED) &&
           outcome->replay_classification == SF_PBE(REPLAY_CLASSIFICATION, ORIGINAL);
}

static void bind_scope(struct sf_sql_stmt *stmt, const SF_PB(CommandOutcomeObject) * outcome)
{
    const SF_PB(CommandScope) *scope = outcome->scope;
    bool has = scope != NULL;
    bind_str(stmt, 11, has && scope->namespace_name[0] != '\0', has ? scope->namespace_name : "");
    bind_u64_or_null(stmt, 12, outcome->_namespace_name_allocation_epoch_case != 0,
                     outcome->namespace_name_allocation_epoch);
    bind_u64_or_null(stmt, 13, has && scope->namespace_id != 0, has ? scope->namespace_id : 0);
    bind_str(stmt, 14, has && scope->collection_name[0] != '\0', has ? scope->collection_name : "");
    bind_u64_or_null(stmt, 15, outcome->_collection_name_allocation_epoch_case != 0,
                     outcome->collection_name_allocation_epoch);
    bind_u64_or_null(stmt, 16, has && scope->collection_id != 0, has ? scope->collection_id : 0);
}

static void bind_fence(struct sf_sql_stmt *stmt, const SF_PB(CommandOutcomeObject) * outcome)
{
    const SF_PB(SchemaFencePrecondition) *fence = outcome->fence;
    bind_u64_or_null(stmt, 17, outcome->_schema_version_case != 0, outcome->schema_version);
    bind_u64_or_null(stmt, 18, fence != NULL && fence->_expected_prev_schema_version_case != 0,
                     fence == NULL ? 0 : fence->expected_prev_schema_version);
    bind_str(stmt, 19, fence != NULL, fence == NULL ? "" : fence->schema_generation_token);
    if (fence != NULL && fence->_enforce_monotonic_apply_case != 0)
        sf_sql_bind_i64(stmt, 20, fence->enforce_monotonic_apply ? 1 : 0);
    else
        sf_sql_bind_null(stmt, 20);
}

/* Key fields of internal intents. */
static void bind_intent(struct sf_sql_stmt *stmt, const SF_PB(CommandOutcomeObject) * outcome)
{
    const SF_PB(HeadAdvanceTuple) *head = outcome->head_advance;
    sf_sql_bind_null(stmt, 28);
    if (head != NULL)
        sf_sql_bind_i64(stmt, 28, head->expected_head_version);
    sf_sql_bind_null(stmt, 29);
    if (head != NULL)
        sf_sql_bind_i64(stmt, 29, (int64_t)head->new_head_version);
    bind_str(stmt, 30, head != NULL, head == NULL ? "" : head->manifest_checksum_or_etag);
    sf_sql_bind_null(stmt, 31);
    if (outcome->target_lifecycle_state != SF_PBE(NAMESPACE_LIFECYCLE_STATE, UNSPECIFIED))
        sf_sql_bind_text(stmt, 31,
                         enum_text(&searchfabric__v1__namespace_lifecycle_state__descriptor,
                                   (int)outcome->target_lifecycle_state,
                                   "NAMESPACE_LIFECYCLE_STATE_"));
    bind_u64_or_null(stmt, 32, outcome->_expected_namespace_revision_case != 0,
                     outcome->expected_namespace_revision);
    sf_sql_bind_null(stmt, 33);
    if (outcome->_release_cutoff_unix_ms_case != 0)
        sf_sql_bind_i64(stmt, 33, outcome->release_cutoff_unix_ms);
}

/* Inserts the replay row; *out_fresh false when it was there. */
static enum sf_err insert_replay(struct sf_sql_conn *conn,
                                 const SF_PB(CommandOutcomeObject) * outcome, struct sf_diag *diag,
                                 bool *out_fresh)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare_upsert(conn, &replay_row, diag, &stmt);
    if (err != SF_OK)
        return err;
    bind_str(stmt, 1, true, outcome->command_identity);
    bind_str(stmt, 2, true, outcome->transport_lookup_key);
    bool owns = owns_business_key(outcome);
    bind_str(stmt, 3, owns, owns ? outcome->business_lookup_key : "");
    sf_sql_bind_text(stmt, 4, sf_view_str(sf_catalog_kind_name(outcome->command_kind)));
    sf_sql_bind_text(stmt, 5,
                     enum_text(&searchfabric__v1__replay_family__descriptor,
                               (int)outcome->replay_family, "REPLAY_FAMILY_"));
    bind_str(stmt, 6, outcome->_idempotency_key_case != 0, outcome->idempotency_key);
    bind_str(stmt, 7, outcome->_correlation_id_case != 0, outcome->correlation_id);
    bind_str(stmt, 8, outcome->_authenticated_client_identity_hash_case != 0,
             outcome->authenticated_client_identity_hash);
    bind_str(stmt, 9, outcome->_principal_subject_case != 0, outcome->principal_subject);
    bind_str(stmt, 10, outcome->_client_id_case != 0, outcome->client_id);
    bind_scope(stmt, outcome);
    bind_fence(stmt, outcome);
    bind_str(stmt, 21, true, outcome->payload_fingerprint);
    sf_sql_bind_text(stmt, 22,
                     enum_text(&searchfabric__v1__command_terminal_state__descriptor,
                               (int)outcome->terminal_state, "COMMAND_TERMINAL_STATE_"));
    sf_sql_bind_text(stmt, 23,
                     enum_text(&searchfabric__v1__replay_classification__descriptor,
                               (int)outcome->replay_classification, "REPLAY_CLASSIFICATION_"));
    SF_PB(CommandOutcomeObject) record = *outcome; /* as decided: the object's own digest aside */
    record.sha256 = (char *)(uintptr_t)protobuf_c_empty_string;
    bind_json(stmt, 24, &record.base);
    struct sf_buf key = {0};
    sf_catalog_key_outcome(&key, outcome->command_identity);
    sf_sql_bind_text(stmt, 25, sf_buf_view(&key));
    sf_buf_fini(&key);
    sf_sql_bind_u64(stmt, 26, outcome->created_ts);
    sf_sql_bind_u64(stmt, 27, outcome->applied_ts);
    bind_intent(stmt, outcome);
    uint64_t changes = 0;
    err = sf_sql_run(stmt, diag, &changes);
    *out_fresh = changes != 0;
    return err;
}

enum sf_err sf_catalog_project_replay(struct sf_sql_conn *conn,
                                      const SF_PB(CommandOutcomeObject) * outcome,
                                      struct sf_diag *diag, bool *out_fresh)
{
    return insert_replay(conn, outcome, diag, out_fresh);
}

/* ---- name epochs -------------------------------------------------------------------------- */

static const struct sf_sql_upsert namespace_name_epoch = {
    .table = "namespace_name_epochs",
    .columns = "namespace_name, last_allocated_epoch",
    .key = "namespace_name",
    .update = "last_allocated_epoch",
    .guard = "last_allocated_epoch",
};

static const struct sf_sql_upsert collection_name_epoch = {
    .table = "collection_name_epochs",
    .columns = "collection_name, last_allocated_epoch, namespace_id",
    .key = "namespace_id, collection_name",
    .update = "last_allocated_epoch",
    .guard = "last_allocated_epoch",
};

enum sf_err sf_catalog_project_name_epoch(struct sf_sql_conn *conn, uint64_t namespace_id,
                                          const char *name, uint64_t epoch, struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare_upsert(
        conn, namespace_id == 0 ? &namespace_name_epoch : &collection_name_epoch, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_text(stmt, 1, sf_view_str(name));
    sf_sql_bind_u64(stmt, 2, epoch);
    if (namespace_id != 0)
        sf_sql_bind_u64(stmt, 3, namespace_id);
    return sf_sql_run(stmt, diag, NULL);
}

/* ---- namespaces --------------------------------------------------------------------------- */

static const struct sf_sql_upsert namespace_row = {
    .table = "namespaces",
    .columns = "namespace_id, namespace_name, namespace_name_allocation_epoch, "
               "namespace_revision, lifecycle_state, lifecycle_updated_at_unix_ms, "
               "lifecycle_gc_after_unix_ms, collection_name_binding_revision, "
               "options_json, encryption_json, approx_stats_json, index_json, "
               "internal_policy_state_json, created_at_unix_ms, updated_at_unix_ms",
    .key = "namespace_id",
    .update = "namespace_revision, lifecycle_state, lifecycle_updated_at_unix_ms, "
              "lifecycle_gc_after_unix_ms, options_json, encryption_json, "
              "internal_policy_state_json, updated_at_unix_ms",
    .guard = "namespace_revision",
};

static enum sf_err project_namespace(struct sf_sql_conn *conn,
                                     const SF_PB(NamespaceDescriptorObject) * object,
                                     struct sf_arena *arena, struct sf_diag *diag)
{
    const SF_PB(NamespaceRow) *row = sf_catalog_namespace_row(object, NULL, arena);
    if (row == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the descriptor is too large");
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare_upsert(conn, &namespace_row, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, row->namespace_id);
    bind_str(stmt, 2, true, row->namespace_name);
    sf_sql_bind_u64(stmt, 3, row->namespace_name_allocation_epoch);
    sf_sql_bind_u64(stmt, 4, row->namespace_revision);
    sf_sql_bind_text(stmt, 5,
                     enum_text(&searchfabric__v1__namespace_lifecycle_state__descriptor,
                               (int)row->lifecycle_state, "NAMESPACE_LIFECYCLE_STATE_"));
    sf_sql_bind_i64(stmt, 6, row->lifecycle_updated_at_unix_ms);
    if (row->_lifecycle_gc_after_unix_ms_case != 0)
        sf_sql_bind_i64(stmt, 7, row->lifecycle_gc_after_unix_ms);
    else
        sf_sql_bind_null(stmt, 7);
    sf_sql_bind_u64(stmt, 8, row->collection_name_binding_revision);
    bind_json(stmt, 9, row->options == NULL ? NULL : &row->options->base);
    bind_json_or_empty(stmt, 10, row->encryption == NULL ? NULL : &row->encryption->base);
    bind_json(stmt, 11, row->approx_stats == NULL ? NULL : &row->approx_stats->base);
    bind_json(stmt, 12, row->index == NULL ? NULL : &row->index->base);
    bind_json_or_empty(
        stmt, 13, row->internal_policy_state == NULL ? NULL : &row->internal_policy_state->base);
    sf_sql_bind_i64(stmt, 14, row->created_at_unix_ms);
    sf_sql_bind_i64(stmt, 15, row->updated_at_unix_ms);
    err = sf_sql_run(stmt, diag, NULL);
    if (err == SF_OK)
        err = sf_catalog_project_name_epoch(conn, 0, row->namespace_name,
                                            row->namespace_name_allocation_epoch, diag);
    return err;
}

/* ---- collections -------------------------------------------------------------------------- */

static const struct sf_sql_upsert collection_row = {
    .table = "collections",
    .columns = "namespace_id, collection_id, collection_name, "
               "collection_name_allocation_epoch, descriptor_revision, "
               "collection_truth_mode, lifecycle_state, committed_manifest_version, "
               "options_json, encryption_json, internal_policy_state_json, "
               "created_at_unix_ms, updated_at_unix_ms, manifest_head_version, "
               "expected_previous_head, manifest_head_last_update_epoch, "
               "manifest_head_reconciler_status",
    .key = "namespace_id, collection_id",
    .update = "descriptor_revision, options_json, encryption_json, "
              "internal_policy_state_json, updated_at_unix_ms",
    .guard = "descriptor_revision",
};

/* A collection without a manifest: the four head columns from `index` on. */
static void bind_no_head(struct sf_sql_stmt *stmt, int index)
{
    sf_sql_bind_u64(stmt, index, 0);
    sf_sql_bind_i64(stmt, index + 1, -1);
    sf_sql_bind_u64(stmt, index + 2, 0);
    sf_sql_bind_text(stmt, index + 3, sf_view_str("IDLE"));
}

enum sf_err sf_catalog_project_binding(struct sf_sql_conn *conn, uint64_t namespace_id,
                                       uint64_t floor, struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    if (SF_MUTANT(ccs_no_binding_raise))
        return SF_OK;
    enum sf_err err = sf_sql_prepare(conn,
                                     "UPDATE namespaces SET collection_name_binding_revision ="
                                     " CASE WHEN collection_name_binding_revision + 1 > ?2"
                                     " THEN collection_name_binding_revision + 1 ELSE ?2 END"
                                     " WHERE namespace_id = ?1",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    sf_sql_bind_u64(stmt, 2, floor);
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_catalog_project_collection(struct sf_sql_conn *conn,
                                          const SF_PB(CollectionDescriptorObject) * object,
                                          struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare_upsert(conn, &collection_row, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, object->collection->namespace_id);
    sf_sql_bind_u64(stmt, 2, object->collection->collection_id);
    bind_str(stmt, 3, true, object->collection_name);
    sf_sql_bind_u64(stmt, 4, object->collection_name_allocation_epoch);
    sf_sql_bind_u64(stmt, 5, object->descriptor_revision);
    sf_sql_bind_i64(stmt, 6, (int64_t)object->collection_truth_mode);
    sf_sql_bind_text(stmt, 7, sf_view_str("ACTIVE"));
    sf_sql_bind_u64(stmt, 8, 0);
    bind_json(stmt, 9, object->options == NULL ? NULL : &object->options->base);
    bind_json_or_empty(stmt, 10, object->encryption == NULL ? NULL : &object->encryption->base);
    bind_json_or_empty(
        stmt, 11,
        object->internal_policy_state == NULL ? NULL : &object->internal_policy_state->base);
    sf_sql_bind_i64(stmt, 12, object->created_at_unix_ms);
    sf_sql_bind_i64(stmt, 13, object->updated_at_unix_ms);
    bind_no_head(stmt, 14);
    err = sf_sql_run(stmt, diag, NULL);
    if (err == SF_OK)
        err = sf_catalog_project_name_epoch(conn, object->collection->namespace_id,
                                            object->collection_name,
                                            object->collection_name_allocation_epoch, diag);
    return err;
}

static enum sf_err project_collection(struct sf_sql_conn *conn,
                                      const SF_PB(CommandOutcomeObject) * outcome,
                                      const SF_PB(CollectionDescriptorObject) * object,
                                      struct sf_diag *diag)
{
    enum sf_err err = sf_catalog_project_collection(conn, object, diag);
    if (err == SF_OK && outcome->collection_name_binding_revision != 0)
        err = sf_catalog_project_binding(conn, object->collection->namespace_id,
                                         outcome->collection_name_binding_revision, diag);
    return err;
}

/* ---- schema ------------------------------------------------------------------------------- */

static struct sf_view sync_text(const SF_PB(SchemaSyncState) * state)
{
    if (state == NULL)
        return sf_view_str("APPLYING");
    switch (state->state_case) {
    case SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY:
        return sf_view_str("READY");
    case SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_DRIFTED:
        return sf_view_str("DRIFTED");
    case SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_ERROR:
        return sf_view_str("ERROR");
    default:
        return sf_view_str("APPLYING");
    }
}

/* Binds sync_state, drift_reason and error_reason at `index` and the two after it. */
static void bind_sync(struct sf_sql_stmt *stmt, int index, const SF_PB(SchemaSyncState) * state)
{
    bool drifted =
        state != NULL && state->state_case == SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_DRIFTED;
    bool error =
        state != NULL && state->state_case == SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_ERROR;
    sf_sql_bind_text(stmt, index, sync_text(state));
    bind_str(stmt, index + 1, drifted, drifted ? state->drifted->drift_reason : "");
    bind_str(stmt, index + 2, error, error ? state->error->error_reason : "");
}

static const struct sf_sql_upsert generation_row = {
    .table = "schema_generations",
    .columns = "namespace_id, collection_id, schema_version, schema_generation_token, "
               "collection_truth_mode, schema_definition_json, ddl_commit_ts, "
               "applied_commit_ts, active_schema_update_policy, "
               "effective_max_result_window, sync_state, drift_reason, error_reason, "
               "created_at_unix_ms, updated_at_unix_ms",
    .key = "namespace_id, collection_id, schema_version",
};

static enum sf_err project_generation(struct sf_sql_conn *conn,
                                      const SF_PB(SchemaGenerationObject) * object,
                                      struct sf_diag *diag)
{
    const SF_PB(SchemaGenerationBody) *body = object->body;
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare_upsert(conn, &generation_row, diag, &stmt);
    if (err != SF_OK)
        return err;
    const SF_PB(SchemaConvergence) *convergence = object->convergence;
    sf_sql_bind_u64(stmt, 1, body->collection->namespace_id);
    sf_sql_bind_u64(stmt, 2, body->collection->collection_id);
    sf_sql_bind_u64(stmt, 3, body->schema_version);
    bind_str(stmt, 4, true, body->schema_generation_token);
    sf_sql_bind_i64(stmt, 5, (int64_t)body->definition->collection_truth_mode);
    bind_json(stmt, 6, &body->definition->base);
    sf_sql_bind_u64(stmt, 7, body->ddl_commit_ts);
    sf_sql_bind_u64(stmt, 8, body->applied_commit_ts);
    sf_sql_bind_i64(stmt, 9, (int64_t)body->active_schema_update_policy);
    sf_sql_bind_i64(stmt, 10, body->effective_max_result_window);
    bind_sync(stmt, 11, convergence == NULL ? NULL : convergence->state);
    sf_sql_bind_i64(stmt, 14, body->created_at_unix_ms);
    sf_sql_bind_i64(
        stmt, 15, convergence == NULL ? body->created_at_unix_ms : convergence->updated_at_unix_ms);
    err = sf_sql_run(stmt, diag, NULL);
    if (err != SF_OK)
        return err;
    err = sf_sql_prepare(conn,
                         "UPDATE collections SET active_schema_version = ?3,"
                         " active_schema_generation_token = ?4 WHERE namespace_id = ?1"
                         " AND collection_id = ?2 AND (active_schema_version IS NULL"
                         " OR active_schema_version < ?3)",
                         diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, body->collection->namespace_id);
    sf_sql_bind_u64(stmt, 2, body->collection->collection_id);
    sf_sql_bind_u64(stmt, 3, body->schema_version);
    bind_str(stmt, 4, true, body->schema_generation_token);
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_catalog_project_convergence(struct sf_sql_conn *conn, uint64_t namespace_id,
                                           uint64_t collection_id, uint64_t version,
                                           const SF_PB(SchemaConvergence) * convergence,
                                           struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err =
        sf_sql_prepare(conn,
                       "UPDATE schema_generations SET sync_state = ?4, drift_reason = ?5,"
                       " error_reason = ?6, updated_at_unix_ms = ?7 WHERE namespace_id = ?1"
                       " AND collection_id = ?2 AND schema_version = ?3",
                       diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    sf_sql_bind_u64(stmt, 2, collection_id);
    sf_sql_bind_u64(stmt, 3, version);
    bind_sync(stmt, 4, convergence->state);
    sf_sql_bind_i64(stmt, 7, convergence->updated_at_unix_ms);
    return sf_sql_run(stmt, diag, NULL);
}

static const struct sf_sql_upsert adoption_row = {
    .table = "catalog_adoptions",
    .columns = "namespace_id, collection_id, schema_version, owner_epoch",
    .key = "namespace_id, collection_id",
};

enum sf_err sf_catalog_project_adopted(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                       uint64_t namespace_id, uint64_t collection_id,
                                       uint64_t version, struct sf_diag *diag)
{
    enum sf_err err = SF_OK;
    uint64_t changes = 0;
    for (int there = 0; there < 2 && changes == 0 && err == SF_OK; there++) {
        struct sf_sql_stmt *stmt;
        if (there == 0)
            err = sf_sql_prepare_upsert(conn, &adoption_row, diag, &stmt);
        else
            err = sf_sql_prepare(conn,
                                 "UPDATE catalog_adoptions SET schema_version = ?3,"
                                 " owner_epoch = ?4 WHERE namespace_id = ?1"
                                 " AND collection_id = ?2 AND owner_epoch <= ?4",
                                 diag, &stmt);
        if (err != SF_OK)
            break;
        sf_sql_bind_u64(stmt, 1, namespace_id);
        sf_sql_bind_u64(stmt, 2, collection_id);
        sf_sql_bind_u64(stmt, 3, version);
        sf_sql_bind_u64(stmt, 4, catalog->owner_epoch);
        err = sf_sql_run(stmt, diag, &changes);
    }
    return err;
}

static const struct sf_sql_upsert statistics_snapshot_row = {
    .table = "collection_statistics_snapshots",
    .columns = "namespace_id, collection_id, applied_schema_version, "
               "applied_schema_generation_token, stats_commit_ts, collected_at_unix_ms, "
               "snapshot_json",
    .key = "namespace_id, collection_id, applied_schema_generation_token, "
           "stats_commit_ts",
};

static const struct sf_sql_upsert statistics_head_row = {
    .table = "collection_statistics_heads",
    .columns = "namespace_id, collection_id, latest_applied_schema_version, "
               "latest_applied_schema_generation_token, latest_stats_commit_ts, "
               "latest_collected_at_unix_ms",
    .key = "namespace_id, collection_id",
    .update = "latest_applied_schema_version, latest_applied_schema_generation_token, "
              "latest_stats_commit_ts, latest_collected_at_unix_ms",
};

enum sf_err sf_catalog_project_statistics(struct sf_sql_conn *conn,
                                          const SF_PB(OptimizerStatisticsSnapshotObject) * snapshot,
                                          struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = SF_OK;
    SF_PB(OptimizerStatisticsSnapshotObject) shown = *snapshot;
    shown.sha256 = (char *)(uintptr_t) ""; /* of the object: one that was read has none */
    for (int head = 0; head < 2 && err == SF_OK; head++) {
        err = sf_sql_prepare_upsert(
            conn, head == 0 ? &statistics_snapshot_row : &statistics_head_row, diag, &stmt);
        if (err != SF_OK)
            break;
        sf_sql_bind_u64(stmt, 1, snapshot->collection->namespace_id);
        sf_sql_bind_u64(stmt, 2, snapshot->collection->collection_id);
        sf_sql_bind_u64(stmt, 3, snapshot->applied_schema_version);
        bind_str(stmt, 4, true, snapshot->applied_schema_generation_token);
        sf_sql_bind_u64(stmt, 5, snapshot->stats_commit_ts);
        sf_sql_bind_i64(stmt, 6, snapshot->collected_at_unix_ms);
        if (head == 0)
            bind_json(stmt, 7, &shown.base);
        err = sf_sql_run(stmt, diag, NULL);
    }
    return err;
}

/* ---- one command -------------------------------------------------------------------------- */

/* The rows of a command, unless it is dropped or was shown before (*out_fresh). */
static enum sf_err project_rows(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                const SF_PB(CommandOutcomeObject) * outcome,
                                const ProtobufCMessage *object, bool epoch_check,
                                struct sf_arena *arena, struct sf_diag *diag, bool *out_dropped,
                                bool *out_fresh)
{
    enum sf_err err = SF_OK;
    if (epoch_check && !SF_MUTANT(ccs_no_sql_epoch)) {
        bool admits = false;
        err = shard_admits(conn, outcome->lane_shard, catalog->owner_epoch, diag, &admits);
        if (err != SF_OK)
            return err;
        if (!admits) {
            *out_dropped = true;
            return SF_OK;
        }
    }
    err = insert_replay(conn, outcome, diag, out_fresh);
    if (err != SF_OK || !*out_fresh)
        return err;
    if (outcome->terminal_state != SF_PBE(COMMAND_TERMINAL_STATE, APPLIED) ||
        outcome->replay_classification != SF_PBE(REPLAY_CLASSIFICATION, ORIGINAL))
        return SF_OK;
    if (object == NULL && sf_catalog_control_type(outcome->command_kind) != NULL)
        return sf_diag_set(diag, SF_ERR_CORRUPT, "record %s names no control object",
                           outcome->command_identity);
    switch (outcome->command_kind) {
    case SF_PBE(COMMAND_KIND, HEAD_ADVANCE):
        return sf_catalog_project_head(conn, outcome, diag);
    case SF_PBE(COMMAND_KIND, PUT_NAMESPACE_METADATA):
    case SF_PBE(COMMAND_KIND, NAMESPACE_LIFECYCLE_TRANSITION):
        return project_namespace(conn, (const SF_PB(NamespaceDescriptorObject) *)object, arena,
                                 diag);
    case SF_PBE(COMMAND_KIND, PUT_COLLECTION_METADATA):
        return project_collection(conn, outcome, (const SF_PB(CollectionDescriptorObject) *)object,
                                  diag);
    case SF_PBE(COMMAND_KIND, PUT_COLLECTION_SCHEMA):
        return project_generation(conn, (const SF_PB(SchemaGenerationObject) *)object, diag);
    case SF_PBE(COMMAND_KIND, DROP_COLLECTION):
        return sf_catalog_project_drop(conn, outcome,
                                       (const SF_PB(CollectionTombstoneObject) *)object, diag);
    case SF_PBE(COMMAND_KIND, NAMESPACE_NAME_RESERVATION_RELEASE):
        return sf_catalog_project_release_namespace(conn, outcome, diag);
    case SF_PBE(COMMAND_KIND, COLLECTION_NAME_RESERVATION_RELEASE):
        return sf_catalog_project_release_collection(conn, outcome, diag);
    default:
        return sf_diag_set(diag, SF_ERR_CORRUPT, "a record of kind %s is not of this revision",
                           sf_catalog_kind_name(outcome->command_kind));
    }
}

enum sf_err sf_catalog_project(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                               const SF_PB(CommandOutcomeObject) * outcome,
                               const ProtobufCMessage *object, bool epoch_check,
                               struct sf_arena *arena, struct sf_diag *diag, bool *out_dropped)
{
    bool fresh = false;
    *out_dropped = false;
    enum sf_err err =
        project_rows(catalog, conn, outcome, object, epoch_check, arena, diag, out_dropped, &fresh);
    if (err == SF_OK && fresh && outcome->terminal_state == SF_PBE(COMMAND_TERMINAL_STATE, APPLIED))
        err = sf_catalog_projectors_follow(catalog, conn, outcome, diag);
    return err;
}
