/*
 * Model: what a dropped collection left durable, read from the objects rather than from rows
 * (OP-17). A tombstone object alone proves nothing: it counts when the APPLIED record of the
 * command that wrote it names its key and SHA-256, else it is an orphan. A release counts when its
 * outcome stands; its key follows from the tombstone, whose horizon is the release's cutoff. Where
 * the row contradicts a tombstone that counts, the projection is repaired: the row comes back from
 * the descriptor that the tombstone names, and the namespace's binding revision rises, since
 * somebody may have cached what the wrong row said.
 *
 *   none -> tombstone stands -> released
 */
#include "catalog/catalog_job.h"
#include "catalog/catalog_lifecycle.h"
#include "catalog/catalog_projector.h"
#include "catalog/catalog_retention.h"

#include <stdlib.h>

#define REPAIR_BATCH 256 /* collections of one cycle */

/* Does a record below the boundary still have its row? Without one it is being removed by age. */
static enum sf_err has_row(struct sf_catalog *catalog, const char *command_identity,
                           struct sf_arena *arena, struct sf_diag *diag, bool *out_has)
{
    SF_PB(CommandOutcomeObject) *row = NULL;
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    enum sf_err err = sf_catalog_sql_replay(conn, command_identity, arena, diag, &row);
    sf_sql_release(conn);
    *out_has = row != NULL;
    return err;
}

/* The record of a command, NULL when none counts. */
static enum sf_err read_record(struct sf_catalog *catalog, const char *command_identity,
                               struct sf_arena *arena, struct sf_diag *diag,
                               const SF_PB(CommandOutcomeObject) * *out_record)
{
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    sf_catalog_key_outcome(&key, command_identity);
    enum sf_err err = sf_catalog_read(catalog, catalog->deps.sched, sf_buf_view(&key),
                                      &searchfabric__v1__command_outcome_object__descriptor, false,
                                      arena, diag, &message, NULL, NULL);
    sf_buf_fini(&key);
    const SF_PB(CommandOutcomeObject) *record = (const SF_PB(CommandOutcomeObject) *)message;
    *out_record = NULL;
    if (err == SF_ERR_NOT_FOUND)
        return SF_OK;
    bool counts = err == SF_OK && record->abort == NULL &&
                  record->terminal_state == SF_PBE(COMMAND_TERMINAL_STATE, APPLIED);
    if (counts && sf_catalog_record_expired(catalog, record))
        err = has_row(catalog, command_identity, arena, diag, &counts);
    if (counts)
        *out_record = record;
    return err;
}

enum sf_err sf_catalog_committed_read(struct sf_catalog *catalog, struct sf_buf *key,
                                      const ProtobufCMessageDescriptor *desc,
                                      struct sf_arena *arena, struct sf_diag *diag,
                                      SF_PB(ControlObjectRef) * out_ref,
                                      ProtobufCMessage **out_object)
{
    char digest[SF_SHA256_HEX_BYTES];
    ProtobufCMessage *message = NULL;
    *out_object = NULL;
    searchfabric__v1__control_object_ref__init(out_ref);
    enum sf_err err = sf_catalog_read(catalog, catalog->deps.sched, sf_buf_view(key), desc, false,
                                      arena, diag, &message, digest, NULL);
    if (err == SF_ERR_NOT_FOUND) {
        sf_buf_fini(key);
        return SF_OK;
    }
    if (err == SF_OK) {
        out_ref->key = sf_arena_str(arena, sf_buf_view(key));
        out_ref->sha256 = sf_arena_str(arena, sf_view_str(digest));
    }
    sf_buf_fini(key);
    if (err != SF_OK)
        return err;
    if (out_ref->key == NULL || out_ref->sha256 == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the objects do not fit their memory");
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(desc, "command_identity");
    const char *command = *(char *const *)(const void *)((const char *)message + field->offset);
    const SF_PB(CommandOutcomeObject) *record = NULL;
    if (SF_MUTANT(ccs_any_tombstone)) {
        *out_object = message;
        return SF_OK;
    }
    err = read_record(catalog, command, arena, diag, &record);
    for (size_t i = 0; err == SF_OK && record != NULL && i < record->n_control_objects; i++) {
        const SF_PB(ControlObjectRef) *named = record->control_objects[i];
        if (strcmp(named->key, out_ref->key) == 0 && strcmp(named->sha256, out_ref->sha256) == 0)
            *out_object = message;
    }
    return err;
}

/* Did the release of the tombstone's reservation commit? */
static enum sf_err is_released(struct sf_catalog *catalog,
                               const SF_PB(CollectionTombstoneObject) * tombstone,
                               struct sf_arena *arena, struct sf_diag *diag, bool *out_released)
{
    SF_PB(CollectionNameReservationReleaseIntent) intent;
    char identity[SF_SHA256_HEX_BYTES];
    const SF_PB(CommandOutcomeObject) *record = NULL;
    searchfabric__v1__collection_name_reservation_release_intent__init(&intent);
    intent.namespace_id = tombstone->collection->namespace_id;
    intent.collection_name = tombstone->collection_name;
    intent.releasing_collection_name_allocation_epoch = tombstone->collection_name_allocation_epoch;
    intent.release_cutoff_unix_ms = tombstone->gc_after_unix_ms;
    sf_catalog_intent_key(SF_CATALOG_TAG_INTENT, &sf_catalog_release_collection, &intent.base,
                          identity);
    enum sf_err err = read_record(catalog, identity, arena, diag, &record);
    *out_released = record != NULL;
    return err;
}

enum sf_err sf_catalog_tombstone_find(struct sf_catalog *catalog, uint64_t namespace_id,
                                      uint64_t collection_id, struct sf_arena *arena,
                                      struct sf_diag *diag, struct sf_catalog_tombstone *out)
{
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    *out = (struct sf_catalog_tombstone){0};
    sf_catalog_key_tombstone(&key, namespace_id, collection_id, SF_CATALOG_DROP_REVISION);
    enum sf_err err = sf_catalog_committed_read(
        catalog, &key, &searchfabric__v1__collection_tombstone_object__descriptor, arena, diag,
        &out->ref, &message);
    if (err != SF_OK || message == NULL)
        return err;
    out->object = (const SF_PB(CollectionTombstoneObject) *)message;
    err = is_released(catalog, out->object, arena, diag, &out->released);
    out->stands = err == SF_OK && !out->released;
    return err;
}

/* ---- repair ------------------------------------------------------------------------------- */

/* The pointer to the newest generation, where the restored row has none. */
static enum sf_err restore_pointer(struct sf_sql_conn *conn, const SF_PB(CollectionRef) * ref,
                                   struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(
        conn,
        "UPDATE collections SET active_schema_version = (SELECT MAX(schema_version)"
        " FROM schema_generations WHERE namespace_id = ?1 AND collection_id = ?2),"
        " active_schema_generation_token = (SELECT schema_generation_token FROM schema_generations"
        " WHERE namespace_id = ?1 AND collection_id = ?2 ORDER BY schema_version DESC LIMIT 1)"
        " WHERE namespace_id = ?1 AND collection_id = ?2 AND active_schema_version IS NULL",
        diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, ref->namespace_id);
    sf_sql_bind_u64(stmt, 2, ref->collection_id);
    return sf_sql_run(stmt, diag, NULL);
}

/* What lags behind a drop, as after the command itself. */
static enum sf_err follow(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                          const SF_PB(CollectionRef) * ref, struct sf_diag *diag)
{
    SF_PB(CommandOutcomeObject) outcome;
    SF_PB(CommandScope) scope;
    searchfabric__v1__command_outcome_object__init(&outcome);
    searchfabric__v1__command_scope__init(&scope);
    scope.namespace_id = ref->namespace_id;
    scope.collection_id = ref->collection_id;
    outcome.command_kind = SF_PBE(COMMAND_KIND, DROP_COLLECTION);
    outcome.scope = &scope;
    return sf_catalog_projectors_follow(catalog, conn, &outcome, diag);
}

enum sf_err sf_catalog_tombstone_restore(struct sf_catalog *catalog,
                                         const SF_PB(CollectionTombstoneObject) * tombstone,
                                         struct sf_arena *arena, struct sf_diag *diag)
{
    const SF_PB(CollectionRef) *ref = tombstone->collection;
    struct sf_buf key = {0};
    SF_PB(ControlObjectRef) named;
    ProtobufCMessage *descriptor = NULL;
    sf_catalog_key_collection(&key, ref->namespace_id, ref->collection_id,
                              tombstone->descriptor_revision);
    enum sf_err err = sf_catalog_committed_read(
        catalog, &key, &searchfabric__v1__collection_descriptor_object__descriptor, arena, diag,
        &named, &descriptor);
    if (err == SF_OK && descriptor == NULL)
        err = sf_diag_set(diag, SF_ERR_CORRUPT, "a tombstone names no committed descriptor");
    if (err != SF_OK)
        return err;
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_WRITE);
    err = sf_sql_begin(conn, diag);
    if (err == SF_OK)
        err = sf_catalog_sql_look(catalog, conn, diag);
    if (err == SF_OK)
        err = sf_catalog_project_collection(
            conn, (const SF_PB(CollectionDescriptorObject) *)descriptor, diag);
    if (err == SF_OK)
        err = restore_pointer(conn, ref, diag);
    if (err == SF_OK)
        err = sf_catalog_project_tombstone(conn, tombstone, diag);
    if (err == SF_OK)
        err = follow(catalog, conn, ref, diag);
    if (err == SF_OK)
        err = sf_catalog_project_binding(conn, ref->namespace_id, 0, diag);
    if (err == SF_OK)
        err = sf_sql_commit(conn, diag);
    else
        sf_sql_rollback(conn);
    sf_sql_release(conn);
    sf_catalog_state_forget(catalog, ref->namespace_id, ref->collection_id);
    sf_catalog_state_binding(catalog, ref->namespace_id, tombstone->collection_name);
    sf_catalog_state_namespace(catalog, ref->namespace_id, NULL);
    sf_catalog_projectors_changed(catalog);
    if (err == SF_OK)
        SF_LOG(WARN, "catalog_tombstone_restored", SF_KV_U64("namespace_id", ref->namespace_id),
               SF_KV_U64("collection_id", ref->collection_id),
               SF_KV_U64("drop_revision", tombstone->drop_revision));
    return err;
}

/* Collections whose row does not say what their tombstone says, behind the last cycle's; up to
 * REPAIR_BATCH. */
static enum sf_err find_contradictions(struct sf_catalog *catalog, struct sf_sched *sched,
                                       SF_PB(CollectionRef) * out_refs, struct sf_diag *diag,
                                       size_t *out_count)
{
    struct sf_sql_stmt *stmt;
    bool row = false;
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, sched, SF_SQL_READ);
    enum sf_err err =
        sf_sql_prepare(conn,
                       "SELECT t.namespace_id, t.collection_id FROM collection_tombstones t"
                       " LEFT JOIN collections c ON c.namespace_id = t.namespace_id"
                       " AND c.collection_id = t.collection_id WHERE (c.lifecycle_state IS NULL"
                       " OR c.lifecycle_state <> 'TOMBSTONED' OR c.drop_revision IS NULL"
                       " OR c.dropped_at_unix_ms IS NULL OR c.gc_after_unix_ms IS NULL)"
                       " AND (t.namespace_id > ?1 OR (t.namespace_id = ?1"
                       " AND t.collection_id > ?2)) ORDER BY t.namespace_id, t.collection_id"
                       " LIMIT ?3",
                       diag, &stmt);
    *out_count = 0;
    if (err == SF_OK) {
        sf_sql_bind_u64(stmt, 1, catalog->contradicted.namespace_id);
        sf_sql_bind_u64(stmt, 2, catalog->contradicted.collection_id);
        sf_sql_bind_i64(stmt, 3, REPAIR_BATCH);
    }
    while (err == SF_OK && (err = sf_sql_step(stmt, diag, &row)) == SF_OK && row) {
        SF_PB(CollectionRef) *ref = &out_refs[(*out_count)++];
        searchfabric__v1__collection_ref__init(ref);
        ref->namespace_id = sf_sql_col_u64(stmt, 0);
        ref->collection_id = sf_sql_col_u64(stmt, 1);
    }
    sf_sql_release(conn);
    return err;
}

/* One contradiction, under the collection's gate. */
static enum sf_err repair_one(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                              struct sf_diag *diag, uint64_t *io_done)
{
    const struct sf_catalog_gates gates = {.namespace_id = ref->namespace_id,
                                           .collection_id = ref->collection_id};
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    struct sf_catalog_tombstone found;
    sf_catalog_gates_acquire(catalog, &gates);
    enum sf_err err = sf_catalog_tombstone_find(catalog, ref->namespace_id, ref->collection_id,
                                                arena, diag, &found);
    if (err == SF_OK && found.stands) {
        err = sf_catalog_tombstone_restore(catalog, found.object, arena, diag);
        *io_done += err == SF_OK ? 1 : 0;
    }
    sf_catalog_gates_release(catalog, &gates);
    sf_arena_destroy(arena);
    return err;
}

enum sf_err sf_catalog_tombstone_repair(struct sf_catalog *catalog, struct sf_sched *sched,
                                        struct sf_diag *diag, uint64_t *out_done)
{
    SF_PB(CollectionRef) *refs = sf_calloc(REPAIR_BATCH, sizeof(*refs));
    struct sf_catalog_sweep_place *place = &catalog->contradicted;
    enum sf_err first = SF_OK;
    struct sf_diag broken;
    size_t count = 0;
    enum sf_err err = find_contradictions(catalog, sched, refs, diag, &count);
    if (err == SF_OK && count < REPAIR_BATCH)
        *place = (struct sf_catalog_sweep_place){0};
    for (size_t i = 0; i < count && err == SF_OK && !sf_catalog_ending(catalog); i++) {
        if (count == REPAIR_BATCH) {
            place->namespace_id = refs[i].namespace_id;
            place->collection_id = refs[i].collection_id;
        }
        err = repair_one(catalog, &refs[i], diag, out_done);
        if (!sf_catalog_own_fault(err))
            continue;
        if (first == SF_OK)
            broken = *diag;
        first = first == SF_OK ? err : first;
        sf_diag_init(diag);
        err = SF_OK;
    }
    if (err == SF_OK && first != SF_OK) {
        err = first;
        *diag = broken;
    }
    free(refs);
    return err;
}
