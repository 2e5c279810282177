/*
 * Model: the projection's tables (catalog_ddl.c) have the columns of note sections 5.2 to 5.10; a
 * row is read into the message of the same columns in durable.proto. Typed columns hold JSON whose
 * text is nobody's business: a database may order members and space them as it likes. The replay
 * index keeps the whole record as `original_outcome_json`, so that a replay returns stored bytes.
 */
#include "catalog/catalog_rules.h"

#include <stdio.h>

#include "base/pbjson.h"

/* ---- columns ------------------------------------------------------------------------------ */

static char *col_str(struct sf_sql_stmt *stmt, int column, struct sf_arena *arena)
{
    return sf_arena_str(arena, sf_sql_col_text(stmt, column));
}

/* A JSON column as a message; NULL column = NULL. */
static enum sf_err col_message(struct sf_sql_stmt *stmt, int column,
                               const ProtobufCMessageDescriptor *desc, struct sf_arena *arena,
                               struct sf_diag *diag, void *out_message)
{
    ProtobufCMessage *message = NULL;
    enum sf_err err = SF_OK;
    if (!sf_sql_col_is_null(stmt, column))
        err = sf_pbjson_decode(desc, sf_sql_col_text(stmt, column), arena, diag, &message);
    *(ProtobufCMessage **)out_message = message;
    return err == SF_OK ? SF_OK : sf_diag_set(diag, SF_ERR_CORRUPT, "a projected row is broken");
}

enum sf_err sf_catalog_sql_one_message(struct sf_sql_stmt *stmt,
                                       const ProtobufCMessageDescriptor *desc,
                                       struct sf_arena *arena, struct sf_diag *diag,
                                       void *out_message)
{
    bool row = false;
    *(ProtobufCMessage **)out_message = NULL;
    enum sf_err err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row)
        err = col_message(stmt, 0, desc, arena, diag, out_message);
    sf_sql_finish(stmt);
    return err;
}

/* The encryption column: missing or broken is corruption and fails closed (OP-45). */
static enum sf_err col_encryption(struct sf_sql_stmt *stmt, int column, struct sf_arena *arena,
                                  struct sf_diag *diag, SF_PB(EncryptionPolicy) * *out_policy)
{
    enum sf_err err = col_message(stmt, column, &searchfabric__v1__encryption_policy__descriptor,
                                  arena, diag, out_policy);
    if (err == SF_OK && *out_policy != NULL && (*out_policy)->mode_case != 0)
        return SF_OK;
    sf_diag_set(diag, SF_CATALOG_UNAVAILABLE, "a descriptor lost its encryption");
    sf_diag_detail(diag, "catalog_unavailable_reason", "descriptor_integrity");
    sf_diag_detail(diag, "field", "encryption");
    return SF_CATALOG_UNAVAILABLE;
}

/* Enum column text, without the prefix of the enumerators. */
static int col_enum(struct sf_sql_stmt *stmt, int column, const ProtobufCEnumDescriptor *desc,
                    const char *prefix)
{
    char name[96];
    struct sf_view text = sf_sql_col_text(stmt, column);
    int len = snprintf(name, sizeof(name), "%s%.*s", prefix, (int)text.len, (const char *)text.ptr);
    if (len <= 0 || (size_t)len >= sizeof(name))
        return 0;
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value_by_name(desc, name);
    return value == NULL ? 0 : value->value;
}

/* ---- shards ------------------------------------------------------------------------------- */

enum sf_err sf_catalog_sql_shards(struct sf_sql_conn *conn, struct sf_diag *diag,
                                  uint64_t *out_count, uint64_t *out_low_watermark,
                                  uint64_t *out_high_epoch)
{
    struct sf_sql_stmt *stmt;
    bool row;
    *out_count = *out_low_watermark = *out_high_epoch = 0;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT COUNT(*), MIN(watermark), MAX(owner_epoch)"
                                     " FROM catalog_lane_shards WHERE lane_shard >= 0",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row) {
        *out_count = (uint64_t)sf_sql_col_i64(stmt, 0);
        *out_low_watermark = *out_count == 0 ? 0 : sf_sql_col_u64(stmt, 1);
        *out_high_epoch = *out_count == 0 ? 0 : sf_sql_col_u64(stmt, 2);
    }
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_catalog_sql_look(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                struct sf_diag *diag)
{
    if (catalog->deps.store->exclusive || SF_MUTANT(ccs_no_epoch_look))
        return SF_OK;
    uint64_t count, low, high;
    enum sf_err err = sf_catalog_sql_shards(conn, diag, &count, &low, &high);
    if (err != SF_OK)
        return err;
    if (count < catalog->lane_shards || high > catalog->owner_epoch) {
        sf_catalog_depose(catalog, "projection", high);
        return sf_diag_set(diag, SF_ERR_DEPOSED, "a newer owner serves the catalog");
    }
    return SF_OK;
}

/* ---- namespaces --------------------------------------------------------------------------- */

#define NAMESPACE_COLUMNS                                                                          \
    "namespace_id, namespace_name, namespace_name_allocation_epoch, namespace_revision,"           \
    " lifecycle_state, lifecycle_updated_at_unix_ms, lifecycle_gc_after_unix_ms,"                  \
    " collection_name_binding_revision, options_json, encryption_json, approx_stats_json,"         \
    " index_json, internal_policy_state_json, created_at_unix_ms, updated_at_unix_ms"

static enum sf_err namespace_of_row(struct sf_sql_stmt *stmt, struct sf_arena *arena,
                                    struct sf_diag *diag, SF_PB(NamespaceRow) * *out_row)
{
    SF_PB(NamespaceRow) *row = sf_arena_alloc(arena, sizeof(*row));
    if (row == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    searchfabric__v1__namespace_row__init(row);
    row->namespace_id = sf_sql_col_u64(stmt, 0);
    row->namespace_name = col_str(stmt, 1, arena);
    row->namespace_name_allocation_epoch = sf_sql_col_u64(stmt, 2);
    row->namespace_revision = sf_sql_col_u64(stmt, 3);
    row->lifecycle_state = (SF_PB(NamespaceLifecycleState))col_enum(
        stmt, 4, &searchfabric__v1__namespace_lifecycle_state__descriptor,
        "NAMESPACE_LIFECYCLE_STATE_");
    row->lifecycle_updated_at_unix_ms = sf_sql_col_i64(stmt, 5);
    if (!sf_sql_col_is_null(stmt, 6)) {
        row->_lifecycle_gc_after_unix_ms_case =
            SEARCHFABRIC__V1__NAMESPACE_ROW___LIFECYCLE_GC_AFTER_UNIX_MS_LIFECYCLE_GC_AFTER_UNIX_MS;
        row->lifecycle_gc_after_unix_ms = sf_sql_col_i64(stmt, 6);
    }
    row->collection_name_binding_revision = sf_sql_col_u64(stmt, 7);
    enum sf_err err = col_message(stmt, 8, &searchfabric__v1__descriptor_options__descriptor, arena,
                                  diag, &row->options);
    if (err == SF_OK)
        err = col_encryption(stmt, 9, arena, diag, &row->encryption);
    if (err == SF_OK)
        err = col_message(stmt, 10, &searchfabric__v1__approx_stats__descriptor, arena, diag,
                          &row->approx_stats);
    if (err == SF_OK)
        err = col_message(stmt, 11, &searchfabric__v1__index_status__descriptor, arena, diag,
                          &row->index);
    if (err == SF_OK)
        err = col_message(stmt, 12, &searchfabric__v1__internal_policy_state__descriptor, arena,
                          diag, &row->internal_policy_state);
    row->created_at_unix_ms = sf_sql_col_i64(stmt, 13);
    row->updated_at_unix_ms = sf_sql_col_i64(stmt, 14);
    if (err == SF_OK && sf_arena_overflowed(arena))
        err = sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    *out_row = row;
    return err;
}

/* Steps once; *out_row stays NULL without a row. Finishes the statement. */
static enum sf_err one_namespace(struct sf_sql_stmt *stmt, struct sf_arena *arena,
                                 struct sf_diag *diag, SF_PB(NamespaceRow) * *out_row)
{
    bool row;
    *out_row = NULL;
    enum sf_err err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row)
        err = namespace_of_row(stmt, arena, diag, out_row);
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_catalog_sql_namespace(struct sf_sql_conn *conn, uint64_t namespace_id,
                                     struct sf_arena *arena, struct sf_diag *diag,
                                     SF_PB(NamespaceRow) * *out_row)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(
        conn, "SELECT " NAMESPACE_COLUMNS " FROM namespaces WHERE namespace_id = ?1", diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    return one_namespace(stmt, arena, diag, out_row);
}

enum sf_err sf_catalog_sql_namespace_named(struct sf_sql_conn *conn, const char *name,
                                           struct sf_arena *arena, struct sf_diag *diag,
                                           SF_PB(NamespaceRow) * *out_row)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(
        conn, "SELECT " NAMESPACE_COLUMNS " FROM namespaces WHERE namespace_name = ?1", diag,
        &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_text(stmt, 1, sf_view_str(name));
    return one_namespace(stmt, arena, diag, out_row);
}

/* Prepares `open` or, where the names with `prefix` end before a successor, `bounded`, whose last
 * argument, number `end`, that is. Statements without a condition that is always true keep the plan
 * a range scan. */
static enum sf_err prepare_range(struct sf_sql_conn *conn, const char *open, const char *bounded,
                                 struct sf_view prefix, int end, struct sf_diag *diag,
                                 struct sf_sql_stmt **out_stmt)
{
    struct sf_buf successor = {0};
    bool has_end = prefix.len != 0 && sf_prefix_successor(prefix, &successor);
    enum sf_err err = sf_sql_prepare(conn, has_end ? bounded : open, diag, out_stmt);
    if (err == SF_OK && has_end)
        sf_sql_bind_text(*out_stmt, end, sf_buf_view(&successor));
    sf_buf_fini(&successor);
    return err;
}

#define NAMESPACE_PAGE                                                                             \
    "SELECT " NAMESPACE_COLUMNS                                                                    \
    " FROM namespaces WHERE lifecycle_state <> 'TOMBSTONED' AND namespace_name >= ?1"              \
    " AND namespace_name > ?2"
#define NAMESPACE_PAGE_END " ORDER BY namespace_name LIMIT ?3"

enum sf_err sf_catalog_sql_list_namespaces(struct sf_sql_conn *conn, struct sf_view prefix,
                                           struct sf_view after, size_t limit,
                                           struct sf_arena *arena, struct sf_diag *diag,
                                           SF_PB(NamespaceRow) * **out_rows, size_t *out_count)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = prepare_range(conn, NAMESPACE_PAGE NAMESPACE_PAGE_END,
                                    NAMESPACE_PAGE " AND namespace_name < ?4" NAMESPACE_PAGE_END,
                                    prefix, 4, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_text(stmt, 1, prefix);
    sf_sql_bind_text(stmt, 2, after);
    sf_sql_bind_i64(stmt, 3, (int64_t)limit);
    SF_PB(NamespaceRow) **rows = sf_arena_alloc(arena, (limit + 1) * sizeof(*rows));
    size_t count = 0;
    bool row = rows != NULL;
    while (row && err == SF_OK) {
        err = sf_sql_step(stmt, diag, &row);
        if (err == SF_OK && row)
            err = namespace_of_row(stmt, arena, diag, &rows[count++]);
    }
    sf_sql_finish(stmt);
    *out_rows = rows;
    *out_count = count;
    return rows == NULL ? sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large") : err;
}

/* ---- collections -------------------------------------------------------------------------- */

#define COLLECTION_COLUMNS                                                                         \
    "namespace_id, collection_id, collection_name, collection_name_allocation_epoch,"              \
    " descriptor_revision, active_schema_version, active_schema_generation_token,"                 \
    " collection_truth_mode, lifecycle_state, options_json, encryption_json, approx_stats_json,"   \
    " index_json, manifest_head_version, expected_previous_head,"                                  \
    " manifest_head_last_update_epoch, manifest_head_reconciler_status,"                           \
    " internal_policy_state_json, created_at_unix_ms, updated_at_unix_ms, drop_revision,"          \
    " dropped_at_unix_ms, gc_after_unix_ms, committed_manifest_version,"                           \
    " committed_manifest_checksum_or_etag"

/* Where a tombstoned row stands in its drop. */
static void drop_of_row(struct sf_sql_stmt *stmt, int column, SF_PB(CollectionRow) * row)
{
    if (!sf_sql_col_is_null(stmt, column)) {
        row->_drop_revision_case = SEARCHFABRIC__V1__COLLECTION_ROW___DROP_REVISION_DROP_REVISION;
        row->drop_revision = sf_sql_col_u64(stmt, column);
    }
    if (!sf_sql_col_is_null(stmt, column + 1)) {
        row->_dropped_at_unix_ms_case =
            SEARCHFABRIC__V1__COLLECTION_ROW___DROPPED_AT_UNIX_MS_DROPPED_AT_UNIX_MS;
        row->dropped_at_unix_ms = sf_sql_col_i64(stmt, column + 1);
    }
    if (!sf_sql_col_is_null(stmt, column + 2)) {
        row->_gc_after_unix_ms_case =
            SEARCHFABRIC__V1__COLLECTION_ROW___GC_AFTER_UNIX_MS_GC_AFTER_UNIX_MS;
        row->gc_after_unix_ms = sf_sql_col_i64(stmt, column + 2);
    }
}

static enum sf_err collection_of_row(struct sf_sql_stmt *stmt, struct sf_arena *arena,
                                     struct sf_diag *diag, SF_PB(CollectionRow) * *out_row)
{
    SF_PB(CollectionRow) *row = sf_arena_alloc(arena, sizeof(*row));
    SF_PB(CollectionRef) *ref = sf_arena_alloc(arena, sizeof(*ref));
    if (row == NULL || ref == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    searchfabric__v1__collection_row__init(row);
    searchfabric__v1__collection_ref__init(ref);
    ref->namespace_id = sf_sql_col_u64(stmt, 0);
    ref->collection_id = sf_sql_col_u64(stmt, 1);
    row->collection = ref;
    row->collection_name = col_str(stmt, 2, arena);
    row->collection_name_allocation_epoch = sf_sql_col_u64(stmt, 3);
    row->descriptor_revision = sf_sql_col_u64(stmt, 4);
    if (!sf_sql_col_is_null(stmt, 5)) {
        row->_active_schema_version_case =
            SEARCHFABRIC__V1__COLLECTION_ROW___ACTIVE_SCHEMA_VERSION_ACTIVE_SCHEMA_VERSION;
        row->active_schema_version = sf_sql_col_u64(stmt, 5);
        row->_active_schema_generation_token_case =
            SEARCHFABRIC__V1__COLLECTION_ROW___ACTIVE_SCHEMA_GENERATION_TOKEN_ACTIVE_SCHEMA_GENERATION_TOKEN;
        row->active_schema_generation_token = col_str(stmt, 6, arena);
    }
    row->collection_truth_mode = (SF_PB(CollectionTruthMode))sf_sql_col_i64(stmt, 7);
    row->lifecycle_state = (SF_PB(CollectionAdmissionLifecycle))col_enum(
        stmt, 8, &searchfabric__v1__collection_admission_lifecycle__descriptor,
        "COLLECTION_ADMISSION_LIFECYCLE_");
    enum sf_err err = col_message(stmt, 9, &searchfabric__v1__descriptor_options__descriptor, arena,
                                  diag, &row->options);
    if (err == SF_OK)
        err = col_encryption(stmt, 10, arena, diag, &row->encryption);
    if (err == SF_OK)
        err = col_message(stmt, 11, &searchfabric__v1__approx_stats__descriptor, arena, diag,
                          &row->approx_stats);
    if (err == SF_OK)
        err = col_message(stmt, 12, &searchfabric__v1__index_status__descriptor, arena, diag,
                          &row->index);
    row->manifest_head_version = sf_sql_col_u64(stmt, 13);
    row->expected_previous_head = sf_sql_col_i64(stmt, 14);
    row->manifest_head_last_update_epoch = sf_sql_col_u64(stmt, 15);
    row->manifest_head_reconciler_status = (SF_PB(ManifestHeadReconcilerStatus))col_enum(
        stmt, 16, &searchfabric__v1__manifest_head_reconciler_status__descriptor,
        "MANIFEST_HEAD_RECONCILER_STATUS_");
    if (err == SF_OK)
        err = col_message(stmt, 17, &searchfabric__v1__internal_policy_state__descriptor, arena,
                          diag, &row->internal_policy_state);
    row->created_at_unix_ms = sf_sql_col_i64(stmt, 18);
    row->updated_at_unix_ms = sf_sql_col_i64(stmt, 19);
    drop_of_row(stmt, 20, row);
    row->committed_manifest_version = sf_sql_col_u64(stmt, 23);
    if (!sf_sql_col_is_null(stmt, 24)) {
        row->_committed_manifest_checksum_or_etag_case =
            SEARCHFABRIC__V1__COLLECTION_ROW___COMMITTED_MANIFEST_CHECKSUM_OR_ETAG_COMMITTED_MANIFEST_CHECKSUM_OR_ETAG;
        row->committed_manifest_checksum_or_etag = col_str(stmt, 24, arena);
    }
    if (err == SF_OK && sf_arena_overflowed(arena))
        err = sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    *out_row = row;
    return err;
}

static enum sf_err one_collection(struct sf_sql_stmt *stmt, struct sf_arena *arena,
                                  struct sf_diag *diag, SF_PB(CollectionRow) * *out_row)
{
    bool row;
    *out_row = NULL;
    enum sf_err err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row)
        err = collection_of_row(stmt, arena, diag, out_row);
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_catalog_sql_collection(struct sf_sql_conn *conn, uint64_t namespace_id,
                                      uint64_t collection_id, struct sf_arena *arena,
                                      struct sf_diag *diag, SF_PB(CollectionRow) * *out_row)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT " COLLECTION_COLUMNS " FROM collections"
                                     " WHERE namespace_id = ?1 AND collection_id = ?2",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    sf_sql_bind_u64(stmt, 2, collection_id);
    return one_collection(stmt, arena, diag, out_row);
}

enum sf_err sf_catalog_sql_collection_named(struct sf_sql_conn *conn, uint64_t namespace_id,
                                            const char *name, struct sf_arena *arena,
                                            struct sf_diag *diag, SF_PB(CollectionRow) * *out_row)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT " COLLECTION_COLUMNS " FROM collections"
                                     " WHERE namespace_id = ?1 AND collection_name = ?2",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    sf_sql_bind_text(stmt, 2, sf_view_str(name));
    return one_collection(stmt, arena, diag, out_row);
}

#define COLLECTION_PAGE                                                                            \
    "SELECT " COLLECTION_COLUMNS                                                                   \
    " FROM collections WHERE namespace_id = ?1 AND lifecycle_state = 'ACTIVE'"                     \
    " AND collection_name >= ?2 AND collection_name > ?3"
#define COLLECTION_PAGE_END " ORDER BY collection_name LIMIT ?4"

const char *sf_catalog_sql_collection_page(bool bounded)
{
    return bounded ? COLLECTION_PAGE " AND collection_name < ?5" COLLECTION_PAGE_END
                   : COLLECTION_PAGE COLLECTION_PAGE_END;
}

enum sf_err sf_catalog_sql_list_collections(struct sf_sql_conn *conn, uint64_t namespace_id,
                                            struct sf_view prefix, struct sf_view after,
                                            size_t limit, struct sf_arena *arena,
                                            struct sf_diag *diag, SF_PB(CollectionRow) * **out_rows,
                                            size_t *out_count)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = prepare_range(conn, COLLECTION_PAGE COLLECTION_PAGE_END,
                                    COLLECTION_PAGE " AND collection_name < ?5" COLLECTION_PAGE_END,
                                    prefix, 5, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    sf_sql_bind_text(stmt, 2, prefix);
    sf_sql_bind_text(stmt, 3, after);
    sf_sql_bind_i64(stmt, 4, (int64_t)limit);
    SF_PB(CollectionRow) **rows = sf_arena_alloc(arena, (limit + 1) * sizeof(*rows));
    size_t count = 0;
    bool row = rows != NULL;
    while (row && err == SF_OK) {
        err = sf_sql_step(stmt, diag, &row);
        if (err == SF_OK && row)
            err = collection_of_row(stmt, arena, diag, &rows[count++]);
    }
    sf_sql_finish(stmt);
    *out_rows = rows;
    *out_count = count;
    return rows == NULL ? sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large") : err;
}

/* ---- schema generations ------------------------------------------------------------------- */

#define GENERATION_COLUMNS                                                                         \
    "namespace_id, collection_id, schema_version, schema_generation_token,"                        \
    " schema_definition_json, ddl_commit_ts, applied_commit_ts, active_schema_update_policy,"      \
    " effective_max_result_window, sync_state, drift_reason, error_reason, created_at_unix_ms,"    \
    " updated_at_unix_ms"

static SF_PB(SchemaSyncState) * sync_of_row(struct sf_sql_stmt *stmt, struct sf_arena *arena)
{
    struct sf_view text = sf_sql_col_text(stmt, 9);
    if (sf_view_equal(text, sf_view_str("READY")))
        return sf_catalog_sync_state(SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY, "", arena);
    if (sf_view_equal(text, sf_view_str("DRIFTED")))
        return sf_catalog_sync_state(SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_DRIFTED,
                                     col_str(stmt, 10, arena), arena);
    if (sf_view_equal(text, sf_view_str("ERROR")))
        return sf_catalog_sync_state(SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_ERROR,
                                     col_str(stmt, 11, arena), arena);
    return sf_catalog_sync_state(SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_APPLYING, "", arena);
}

static enum sf_err generation_of_row(struct sf_sql_stmt *stmt, struct sf_arena *arena,
                                     struct sf_diag *diag, SF_PB(SchemaGenerationRow) * *out_row)
{
    SF_PB(SchemaGenerationRow) *row = sf_arena_alloc(arena, sizeof(*row));
    SF_PB(SchemaGenerationBody) *body = sf_arena_alloc(arena, sizeof(*body));
    SF_PB(CollectionRef) *ref = sf_arena_alloc(arena, sizeof(*ref));
    SF_PB(SchemaConvergence) *convergence = sf_arena_alloc(arena, sizeof(*convergence));
    if (row == NULL || body == NULL || ref == NULL || convergence == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    searchfabric__v1__schema_generation_row__init(row);
    searchfabric__v1__schema_generation_body__init(body);
    searchfabric__v1__collection_ref__init(ref);
    searchfabric__v1__schema_convergence__init(convergence);
    ref->namespace_id = sf_sql_col_u64(stmt, 0);
    ref->collection_id = sf_sql_col_u64(stmt, 1);
    body->collection = ref;
    body->schema_version = sf_sql_col_u64(stmt, 2);
    body->schema_generation_token = col_str(stmt, 3, arena);
    enum sf_err err =
        col_message(stmt, 4, &searchfabric__v1__collection_schema_definition__descriptor, arena,
                    diag, &body->definition);
    body->ddl_commit_ts = sf_sql_col_u64(stmt, 5);
    body->applied_commit_ts = sf_sql_col_u64(stmt, 6);
    body->active_schema_update_policy = (SF_PB(ActiveSchemaUpdatePolicy))sf_sql_col_i64(stmt, 7);
    body->effective_max_result_window = (uint32_t)sf_sql_col_i64(stmt, 8);
    body->created_at_unix_ms = sf_sql_col_i64(stmt, 12);
    row->updated_at_unix_ms = sf_sql_col_i64(stmt, 13);
    convergence->updated_at_unix_ms = row->updated_at_unix_ms;
    convergence->state = sync_of_row(stmt, arena);
    row->body = body;
    row->convergence = convergence;
    if (err == SF_OK && sf_arena_overflowed(arena))
        err = sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    *out_row = row;
    return err;
}

enum sf_err sf_catalog_sql_generation(struct sf_sql_conn *conn, uint64_t namespace_id,
                                      uint64_t collection_id, enum sf_catalog_generation_by by,
                                      uint64_t version, const char *token, struct sf_arena *arena,
                                      struct sf_diag *diag, SF_PB(SchemaGenerationRow) * *out_row)
{
#define GENERATION_WHERE                                                                           \
    "SELECT " GENERATION_COLUMNS                                                                   \
    " FROM schema_generations WHERE namespace_id = ?1 AND collection_id = ?2 AND "
    static const char *const queries[] = {
        [SF_CATALOG_GENERATION_VERSION] = GENERATION_WHERE "schema_version = ?3",
        [SF_CATALOG_GENERATION_TOKEN] = GENERATION_WHERE "schema_generation_token = ?3",
        [SF_CATALOG_GENERATION_READY] =
            GENERATION_WHERE "sync_state = 'READY' ORDER BY schema_version DESC LIMIT 1",
    };
    struct sf_sql_stmt *stmt;
    *out_row = NULL;
    enum sf_err err = sf_sql_prepare(conn, queries[by], diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    sf_sql_bind_u64(stmt, 2, collection_id);
    if (by == SF_CATALOG_GENERATION_VERSION)
        sf_sql_bind_u64(stmt, 3, version);
    else if (by == SF_CATALOG_GENERATION_TOKEN)
        sf_sql_bind_text(stmt, 3, sf_view_str(token));
    bool row;
    err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row)
        err = generation_of_row(stmt, arena, diag, out_row);
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_catalog_sql_ready_below(struct sf_sql_conn *conn, uint64_t namespace_id,
                                       uint64_t collection_id, uint64_t version,
                                       struct sf_arena *arena, struct sf_diag *diag,
                                       SF_PB(SchemaGenerationRow) * *out_row)
{
    struct sf_sql_stmt *stmt;
    *out_row = NULL;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT " GENERATION_COLUMNS " FROM schema_generations"
                                     " WHERE namespace_id = ?1 AND collection_id = ?2"
                                     " AND schema_version < ?3 AND sync_state = 'READY'"
                                     " ORDER BY schema_version DESC LIMIT 1",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    sf_sql_bind_u64(stmt, 2, collection_id);
    sf_sql_bind_u64(stmt, 3, version);
    bool row;
    err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row)
        err = generation_of_row(stmt, arena, diag, out_row);
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_catalog_sql_schema_collections(struct sf_sql_conn *conn, struct sf_diag *diag,
                                              SF_PB(CollectionRef) * *out_refs, size_t *out_count)
{
    struct sf_sql_stmt *stmt;
    size_t cap = 0;
    *out_refs = NULL;
    *out_count = 0;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT DISTINCT namespace_id, collection_id"
                                     " FROM schema_generations"
                                     " ORDER BY namespace_id, collection_id",
                                     diag, &stmt);
    bool row = err == SF_OK;
    while (row && err == SF_OK) {
        err = sf_sql_step(stmt, diag, &row);
        if (err != SF_OK || !row)
            break;
        if (*out_count == cap) {
            cap = cap == 0 ? 64 : cap * 2;
            *out_refs = sf_realloc(*out_refs, cap * sizeof(**out_refs));
        }
        SF_PB(CollectionRef) *ref = &(*out_refs)[(*out_count)++];
        searchfabric__v1__collection_ref__init(ref);
        ref->namespace_id = sf_sql_col_u64(stmt, 0);
        ref->collection_id = sf_sql_col_u64(stmt, 1);
    }
    return err;
}

/* ---- replay index ------------------------------------------------------------------------- */

enum sf_err sf_catalog_sql_replay(struct sf_sql_conn *conn, const char *command_identity,
                                  struct sf_arena *arena, struct sf_diag *diag,
                                  SF_PB(CommandOutcomeObject) * *out_outcome)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(
        conn, "SELECT original_outcome_json FROM catalog_replay_index WHERE command_identity = ?1",
        diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_text(stmt, 1, sf_view_str(command_identity));
    return sf_catalog_sql_one_message(stmt, &searchfabric__v1__command_outcome_object__descriptor,
                                      arena, diag, out_outcome);
}

enum sf_err sf_catalog_sql_business(struct sf_sql_conn *conn, const char *kind_name,
                                    const char *business_key, struct sf_arena *arena,
                                    struct sf_diag *diag,
                                    SF_PB(CommandOutcomeObject) * *out_outcome)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT original_outcome_json FROM catalog_replay_index"
                                     " WHERE command_kind = ?1 AND business_lookup_key = ?2",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_text(stmt, 1, sf_view_str(kind_name));
    sf_sql_bind_text(stmt, 2, sf_view_str(business_key));
    return sf_catalog_sql_one_message(stmt, &searchfabric__v1__command_outcome_object__descriptor,
                                      arena, diag, out_outcome);
}
