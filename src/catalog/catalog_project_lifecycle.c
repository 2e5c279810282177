/*
 * Model: how drops and releases show in the projection. A drop turns the collection's row, keeps
 * its tombstone beside it and raises the namespace's binding revision; when it leaves the namespace
 * without an ACTIVE collection, the zero-child aggregate is written in the same transaction, so
 * that no read ever sees another one (note section 5.2). A release removes the rows of the lineage
 * by its id; the row of the name's epoch stays, or the next lineage of the name could repeat it.
 * Both are functions of the outcome alone, so that a rebuild comes to the same rows.
 */
#include "catalog/catalog_lifecycle.h"
#include "catalog/catalog_projector.h"

enum sf_err sf_catalog_sql_has_rows(struct sf_sql_conn *conn, uint64_t namespace_id,
                                    struct sf_diag *diag, bool *out_has)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(
        conn, "SELECT 1 FROM collections WHERE namespace_id = ?1 LIMIT 1", diag, &stmt);
    *out_has = false;
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    err = sf_sql_step(stmt, diag, out_has);
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_catalog_sql_tombstone(struct sf_sql_conn *conn, uint64_t namespace_id,
                                     uint64_t collection_id, struct sf_arena *arena,
                                     struct sf_diag *diag,
                                     SF_PB(CollectionTombstoneObject) * *out_tombstone)
{
    struct sf_sql_stmt *stmt;
    *out_tombstone = NULL;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT tombstone_json FROM collection_tombstones"
                                     " WHERE namespace_id = ?1 AND collection_id = ?2",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    sf_sql_bind_u64(stmt, 2, collection_id);
    return sf_catalog_sql_one_message(stmt,
                                      &searchfabric__v1__collection_tombstone_object__descriptor,
                                      arena, diag, out_tombstone);
}

/* ---- drop --------------------------------------------------------------------------------- */

static enum sf_err turn_row(struct sf_sql_conn *conn,
                            const SF_PB(CollectionTombstoneObject) * tombstone,
                            struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn,
                                     "UPDATE collections SET lifecycle_state = 'TOMBSTONED',"
                                     " drop_revision = ?3, dropped_at_unix_ms = ?4,"
                                     " gc_after_unix_ms = ?5,"
                                     " manifest_head_reconciler_status = 'IDLE'"
                                     " WHERE namespace_id = ?1"
                                     " AND collection_id = ?2",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, tombstone->collection->namespace_id);
    sf_sql_bind_u64(stmt, 2, tombstone->collection->collection_id);
    sf_sql_bind_u64(stmt, 3, tombstone->drop_revision);
    sf_sql_bind_i64(stmt, 4, tombstone->dropped_at_unix_ms);
    sf_sql_bind_i64(stmt, 5, tombstone->gc_after_unix_ms);
    return sf_sql_run(stmt, diag, NULL);
}

static const struct sf_sql_upsert tombstone_row = {
    .table = "collection_tombstones",
    .columns = "namespace_id, collection_id, drop_revision, tombstone_json",
    .key = "namespace_id, collection_id"};

static enum sf_err keep_tombstone(struct sf_sql_conn *conn,
                                  const SF_PB(CollectionTombstoneObject) * tombstone,
                                  struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare_upsert(conn, &tombstone_row, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, tombstone->collection->namespace_id);
    sf_sql_bind_u64(stmt, 2, tombstone->collection->collection_id);
    sf_sql_bind_u64(stmt, 3, tombstone->drop_revision);
    SF_PB(CollectionTombstoneObject) plain = *tombstone; /* the object's own digest aside */
    plain.sha256 = (char *)(uintptr_t)protobuf_c_empty_string;
    sf_catalog_bind_json(stmt, 4, &plain.base);
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_catalog_project_tombstone(struct sf_sql_conn *conn,
                                         const SF_PB(CollectionTombstoneObject) * tombstone,
                                         struct sf_diag *diag)
{
    enum sf_err err = turn_row(conn, tombstone, diag);
    return err == SF_OK ? keep_tombstone(conn, tombstone, diag) : err;
}

enum sf_err sf_catalog_project_drop(struct sf_sql_conn *conn,
                                    const SF_PB(CommandOutcomeObject) * outcome,
                                    const SF_PB(CollectionTombstoneObject) * tombstone,
                                    struct sf_diag *diag)
{
    enum sf_err err = sf_catalog_project_tombstone(conn, tombstone, diag);
    if (err == SF_OK)
        err = sf_catalog_project_binding(conn, tombstone->collection->namespace_id,
                                         outcome->collection_name_binding_revision, diag);
    return err;
}

/* ---- release ------------------------------------------------------------------------------ */

/* Runs a DELETE by namespace and collection, or by namespace alone. */
static enum sf_err delete_rows(struct sf_sql_conn *conn, const char *sql,
                               const SF_PB(CommandScope) * scope, struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn, sql, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, scope->namespace_id);
    if (scope->collection_id != 0)
        sf_sql_bind_u64(stmt, 2, scope->collection_id);
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_catalog_project_release_collection(struct sf_sql_conn *conn,
                                                  const SF_PB(CommandOutcomeObject) * outcome,
                                                  struct sf_diag *diag)
{
    /* Everything that the projection holds of one collection; replay rows are the retention's. */
    static const char *const deletes[] = {
        "DELETE FROM collections WHERE namespace_id = ?1 AND collection_id = ?2",
        "DELETE FROM collection_tombstones WHERE namespace_id = ?1 AND collection_id = ?2",
        "DELETE FROM schema_generations WHERE namespace_id = ?1 AND collection_id = ?2",
        "DELETE FROM collection_statistics_heads WHERE namespace_id = ?1 AND collection_id = ?2",
        ("DELETE FROM collection_statistics_snapshots WHERE namespace_id = ?1"
         " AND collection_id = ?2"),
        "DELETE FROM collection_lifecycle_windows WHERE namespace_id = ?1 AND collection_id = ?2",
        "DELETE FROM catalog_adoptions WHERE namespace_id = ?1 AND collection_id = ?2",
        "DELETE FROM lifecycle_transition_claims WHERE namespace_id = ?1 AND collection_id = ?2",
        "DELETE FROM collection_index_backlogs WHERE namespace_id = ?1 AND collection_id = ?2",
        "DELETE FROM collection_observations WHERE namespace_id = ?1 AND collection_id = ?2",
    };
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < SF_ARRAY_LEN(deletes) && err == SF_OK; i++)
        err = delete_rows(conn, deletes[i], outcome->scope, diag);
    if (err == SF_OK)
        err = sf_catalog_project_binding(conn, outcome->scope->namespace_id,
                                         outcome->collection_name_binding_revision, diag);
    return err;
}

enum sf_err sf_catalog_project_release_namespace(struct sf_sql_conn *conn,
                                                 const SF_PB(CommandOutcomeObject) * outcome,
                                                 struct sf_diag *diag)
{
    static const char *const deletes[] = {
        "DELETE FROM namespaces WHERE namespace_id = ?1",
        "DELETE FROM namespace_quota_leases WHERE namespace_id = ?1",
        "DELETE FROM namespace_quota_state WHERE namespace_id = ?1",
    };
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < SF_ARRAY_LEN(deletes) && err == SF_OK; i++)
        err = delete_rows(conn, deletes[i], outcome->scope, diag);
    return err;
}
