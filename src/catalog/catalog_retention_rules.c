/*
 * Model: what may go. A record stays while a control object that it names is current: the revision
 * that the row shows, a generation that is active or serves, a tombstone whose collection is still
 * reserved; a release, while a record of the drop that it ended stands. The record that reserved
 * the newest epoch of a name stays too, for the next create asks whether it was applied. What is
 * not known stays.
 */
#include "catalog/catalog_retention.h"

#include <stdlib.h>

#include "catalog/catalog_rules.h"

/* ---- what is current ---------------------------------------------------------------------- */

bool sf_catalog_record_expired(struct sf_catalog *catalog,
                               const SF_PB(CommandOutcomeObject) * outcome)
{
    uint64_t named = outcome->entry == NULL ? 0 : outcome->entry->recovery_segment_epoch;
    return named < atomic_load(&catalog->lowest_segment);
}

/* What a control object's key says. */
struct control_key {
    uint64_t namespace_id, collection_id; /* collection 0 = of the namespace */
    struct sf_view family;                /* "namespace_descriptor_v" */
    uint64_t number;                      /* revision or version */
};

/* "catalog/HH/{ns}/[{collection}/]{family}_v{number}[_token].json" */
static bool parse_control(const char *key, struct control_key *out)
{
    struct sf_view rest;
    *out = (struct control_key){0};
    if (!sf_catalog_key_ids(sf_view_str(key), &out->namespace_id, &out->collection_id, &rest))
        return false;
    size_t at = 0;
    while (at + 1 < rest.len && !(rest.ptr[at] == '_' && rest.ptr[at + 1] == 'v'))
        at++;
    at += 2;
    size_t digits = at;
    while (digits < rest.len && rest.ptr[digits] >= '0' && rest.ptr[digits] <= '9')
        digits++;
    if (at >= rest.len || digits == at)
        return false;
    out->family = sf_view_bytes(rest.ptr, at);
    return sf_parse_u64(sf_view_bytes(rest.ptr + at, digits - at), &out->number);
}

static bool is_family(const struct control_key *key, const char *family)
{
    return sf_view_equal(key->family, sf_view_str(family));
}

static enum sf_err generation_current(struct sf_sql_conn *conn, const struct control_key *key,
                                      const SF_PB(CollectionRow) * row, struct sf_arena *arena,
                                      struct sf_diag *diag, bool *out_current)
{
    SF_PB(SchemaGenerationRow) *ready = NULL;
    *out_current = row != NULL && key->number >= row->active_schema_version;
    if (row == NULL || *out_current)
        return SF_OK;
    enum sf_err err =
        sf_catalog_sql_generation(conn, key->namespace_id, key->collection_id,
                                  SF_CATALOG_GENERATION_READY, 0, NULL, arena, diag, &ready);
    *out_current = ready != NULL && ready->body->schema_version == key->number;
    return err;
}

static enum sf_err control_current(struct sf_sql_conn *conn, const struct control_key *key,
                                   struct sf_arena *arena, struct sf_diag *diag, bool *out_current)
{
    SF_PB(NamespaceRow) *ns = NULL;
    SF_PB(CollectionRow) *row = NULL;
    enum sf_err err = SF_OK;
    if (key->collection_id == 0)
        err = sf_catalog_sql_namespace(conn, key->namespace_id, arena, diag, &ns);
    else
        err = sf_catalog_sql_collection(conn, key->namespace_id, key->collection_id, arena, diag,
                                        &row);
    *out_current = true;
    if (err != SF_OK)
        return err;
    if (is_family(key, "namespace_descriptor_v"))
        *out_current = ns != NULL && ns->namespace_revision == key->number;
    else if (is_family(key, "collection_descriptor_v"))
        *out_current = row != NULL && row->descriptor_revision == key->number;
    else if (is_family(key, "collection_tombstone_v"))
        *out_current = row != NULL;
    else if (is_family(key, "schema_generation_v"))
        err = generation_current(conn, key, row, arena, diag, out_current);
    return err;
}

/* Did the record reserve the newest epoch of its name? */
static enum sf_err reserves_epoch(struct sf_sql_conn *conn,
                                  const SF_PB(CommandOutcomeObject) * outcome, bool of_namespace,
                                  struct sf_arena *arena, struct sf_diag *diag, bool *out_reserves)
{
    SF_PB(NameEpochRow) like;
    ProtobufCMessage *found = NULL;
    searchfabric__v1__name_epoch_row__init(&like);
    like.name = of_namespace ? outcome->scope->namespace_name : outcome->scope->collection_name;
    like.namespace_id = of_namespace ? 0 : outcome->scope->namespace_id;
    enum sf_err err = sf_catalog_rows_find(
        conn, of_namespace ? SF_CATALOG_TABLE_NAMESPACE_NAMES : SF_CATALOG_TABLE_COLLECTION_NAMES,
        &like.base, arena, diag, &found);
    const SF_PB(NameEpochRow) *row = (const SF_PB(NameEpochRow) *)found;
    uint64_t epoch = of_namespace ? outcome->namespace_name_allocation_epoch
                                  : outcome->collection_name_allocation_epoch;
    *out_reserves = err == SF_OK && row != NULL && row->last_allocated_epoch <= epoch;
    return err;
}

/* Does a record of a drop that the release ended still stand? Without the release its tombstone
 * would count again. */
static enum sf_err release_needed(struct sf_sql_conn *conn,
                                  const SF_PB(CommandOutcomeObject) * outcome, struct sf_diag *diag,
                                  bool *out_needed)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT command_identity FROM catalog_replay_index"
                                     " WHERE namespace_id = ?1 AND collection_id = ?2"
                                     " AND command_kind = 'DROP_COLLECTION' LIMIT 1",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, outcome->scope->namespace_id);
    sf_sql_bind_u64(stmt, 2, outcome->scope->collection_id);
    err = sf_sql_step(stmt, diag, out_needed);
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_catalog_record_current(struct sf_sql_conn *conn,
                                      const SF_PB(CommandOutcomeObject) * outcome,
                                      struct sf_arena *arena, struct sf_diag *diag,
                                      bool *out_current)
{
    enum sf_err err = SF_OK;
    *out_current = false;
    if (outcome->command_kind == SF_PBE(COMMAND_KIND, COLLECTION_NAME_RESERVATION_RELEASE) &&
        outcome->scope != NULL && !SF_MUTANT(ccs_release_forgotten))
        err = release_needed(conn, outcome, diag, out_current);
    for (size_t i = 0; i < outcome->n_control_objects && err == SF_OK && !*out_current; i++) {
        struct control_key key;
        if (!parse_control(outcome->control_objects[i]->key, &key)) {
            *out_current = true; /* of another revision of this program */
            break;
        }
        err = control_current(conn, &key, arena, diag, out_current);
        *out_current = *out_current && !SF_MUTANT(ccs_current_forgotten);
        bool of_namespace = is_family(&key, "namespace_descriptor_v");
        bool creates = key.number == 1 &&
                       (of_namespace || is_family(&key, "collection_descriptor_v")) &&
                       outcome->scope != NULL;
        if (err == SF_OK && !*out_current && creates)
            err = reserves_epoch(conn, outcome, of_namespace, arena, diag, out_current);
    }
    return err;
}
