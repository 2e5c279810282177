/*
 * Model: rows to objects. The row's key, revision, version or identity leads to its object, which
 * says what the row must say; what only the row knows (lagging fields, manifest heads) is taken
 * over from it. A page's objects are fetched side by side before its rows are judged.
 */
#include "catalog/catalog_check_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "catalog/catalog_head.h"
#include "catalog/catalog_lifecycle.h"
#include "catalog/catalog_manifest.h"
#include "catalog/catalog_removals.h"
#include "catalog/catalog_rules.h"

/* ---- namespaces and collections ------------------------------------------------------------ */

static void namespace_wants(struct sf_check *c, const ProtobufCMessage *message)
{
    const SF_PB(NamespaceRow) *row = (const SF_PB(NamespaceRow) *)message;
    sf_catalog_key_namespace(sf_check_want(c), row->namespace_id, row->namespace_revision);
    sf_catalog_key_namespace_name(sf_check_want(c), row->namespace_name);
}

static enum sf_err check_namespace(struct sf_check *c, const ProtobufCMessage *message)
{
    const SF_PB(NamespaceRow) *row = (const SF_PB(NamespaceRow) *)message;
    struct sf_buf key = {0};
    ProtobufCMessage *object;
    bool broken;
    sf_catalog_key_namespace(&key, row->namespace_id, row->namespace_revision);
    enum sf_err err = sf_check_read(
        c, &key, &searchfabric__v1__namespace_descriptor_object__descriptor, &object, &broken);
    if (err == SF_OK && object == NULL && !broken)
        sf_check_missing(c, "namespaces", &key, true);
    if (err == SF_OK && object != NULL) {
        SF_PB(NamespaceRow) *wanted =
            sf_catalog_namespace_row((const SF_PB(NamespaceDescriptorObject) *)object, row, c->one);
        if (wanted != NULL)
            wanted->internal_policy_state = sf_check_said_policy(wanted->internal_policy_state);
        if (wanted != NULL && !sf_catalog_same(&wanted->base, message))
            err = sf_check_differs(c, SF_CATALOG_TABLE_NAMESPACES, message, &wanted->base,
                                   sf_buf_view(&key), true);
        if (err == SF_OK && wanted != NULL)
            err = sf_check_name_of(c, row->namespace_id, 0, wanted->namespace_name,
                                   wanted->namespace_name_allocation_epoch);
    }
    sf_buf_fini(&key);
    return err;
}

static void collection_wants(struct sf_check *c, const ProtobufCMessage *message)
{
    const SF_PB(CollectionRow) *row = (const SF_PB(CollectionRow) *)message;
    uint64_t ns = row->collection->namespace_id, id = row->collection->collection_id;
    sf_catalog_key_collection(sf_check_want(c), ns, id, row->descriptor_revision);
    sf_catalog_key_collection_name(sf_check_want(c), ns, row->collection_name);
    if (row->lifecycle_state != SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE))
        sf_catalog_key_tombstone(sf_check_want(c), ns, id, SF_CATALOG_DROP_REVISION);
    else
        sf_catalog_key_committed_head(sf_check_want(c), ns, id);
    if (row->manifest_head_version != 0)
        sf_catalog_key_manifest_head(sf_check_want(c), ns, id);
}

/* The row against its descriptor and its tombstone, then what else stands about the collection. */
static enum sf_err judge_collection(struct sf_check *c, const SF_PB(CollectionRow) * row,
                                    const SF_PB(CollectionDescriptorObject) * object,
                                    const struct sf_buf *key)
{
    SF_PB(CollectionRow) *wanted = sf_catalog_collection_row(object, row, c->one);
    bool gone = false;
    if (wanted == NULL)
        return sf_diag_set(c->diag, SF_ERR_LIMIT, "a row does not fit its memory");
    wanted->internal_policy_state = sf_check_said_policy(wanted->internal_policy_state);
    enum sf_err err = sf_check_dropped(c, row, wanted, &gone);
    if (err != SF_OK || gone)
        return err;
    if (!sf_catalog_same(&wanted->base, &row->base))
        err = sf_check_differs(c, SF_CATALOG_TABLE_COLLECTIONS, &row->base, &wanted->base,
                               sf_buf_view(key), true);
    if (err == SF_OK)
        err = sf_check_name_of(c, row->collection->namespace_id, row->collection->collection_id,
                               wanted->collection_name, wanted->collection_name_allocation_epoch);
    if (err == SF_OK && wanted->lifecycle_state == SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE))
        err = sf_check_head(c, row);
    return err;
}

static enum sf_err check_collection(struct sf_check *c, const ProtobufCMessage *message)
{
    const SF_PB(CollectionRow) *row = (const SF_PB(CollectionRow) *)message;
    struct sf_buf key = {0};
    ProtobufCMessage *object;
    bool broken;
    sf_catalog_key_collection(&key, row->collection->namespace_id, row->collection->collection_id,
                              row->descriptor_revision);
    enum sf_err err = sf_check_read(
        c, &key, &searchfabric__v1__collection_descriptor_object__descriptor, &object, &broken);
    if (err == SF_OK && object == NULL && !broken)
        sf_check_missing(c, "collections", &key, true);
    if (err == SF_OK && object != NULL)
        err = judge_collection(c, row, (const SF_PB(CollectionDescriptorObject) *)object, &key);
    sf_buf_fini(&key);
    return err;
}

/* ---- schema generations -------------------------------------------------------------------- */

static void generation_key(const SF_PB(SchemaGenerationRow) * row, struct sf_buf *out)
{
    const SF_PB(CollectionRef) *ref = row->body->collection;
    sf_catalog_key_generation(out, ref->namespace_id, ref->collection_id, row->body->schema_version,
                              row->body->schema_generation_token);
}

static void generation_wants(struct sf_check *c, const ProtobufCMessage *message)
{
    generation_key((const SF_PB(SchemaGenerationRow) *)message, sf_check_want(c));
}

/* A superseded generation may have been removed by retention. */
static enum sf_err generation_missing(struct sf_check *c, const SF_PB(SchemaGenerationRow) * row,
                                      const struct sf_buf *key)
{
    struct sf_check_lineage lineage;
    enum sf_err err = sf_check_lineage(c, row->body->collection->namespace_id,
                                       row->body->collection->collection_id, &lineage);
    bool superseded = lineage.collection != NULL &&
                      lineage.collection->active_schema_version > row->body->schema_version;
    if (err == SF_OK)
        sf_check_missing(c, "schema_generations", key, lineage.collection != NULL && !superseded);
    return err;
}

static enum sf_err check_generation(struct sf_check *c, const ProtobufCMessage *message)
{
    const SF_PB(SchemaGenerationRow) *row = (const SF_PB(SchemaGenerationRow) *)message;
    struct sf_buf key = {0};
    ProtobufCMessage *found;
    bool broken;
    generation_key(row, &key);
    enum sf_err err = sf_check_read(
        c, &key, &searchfabric__v1__schema_generation_object__descriptor, &found, &broken);
    if (err == SF_OK && found == NULL && !broken)
        err = generation_missing(c, row, &key);
    SF_PB(SchemaGenerationObject) *object = (SF_PB(SchemaGenerationObject) *)found;
    if (err == SF_OK && object != NULL && object->body != NULL) {
        SF_PB(SchemaGenerationRow) wanted = *row;
        SF_PB(SchemaConvergence) convergence;
        searchfabric__v1__schema_convergence__init(&convergence);
        object->body->command_identity = (char *)(uintptr_t)protobuf_c_empty_string;
        wanted.body = object->body;
        if (object->convergence != NULL) {
            convergence.state = object->convergence->state;
            convergence.updated_at_unix_ms = object->convergence->updated_at_unix_ms;
            wanted.updated_at_unix_ms = convergence.updated_at_unix_ms;
            if (!sf_catalog_same(&convergence.state->base, &row->convergence->state->base))
                wanted.convergence = &convergence;
            else
                wanted.updated_at_unix_ms = row->updated_at_unix_ms;
        }
        wanted.convergence = object->convergence == NULL ? row->convergence : wanted.convergence;
        if (!sf_catalog_same(&wanted.body->base, &row->body->base) ||
            wanted.convergence != row->convergence)
            err = sf_check_differs(c, SF_CATALOG_TABLE_GENERATIONS, message, &wanted.base,
                                   sf_buf_view(&key), true);
    }
    sf_buf_fini(&key);
    return err;
}

/* ---- records ------------------------------------------------------------------------------- */

static void record_wants(struct sf_check *c, const ProtobufCMessage *message)
{
    const SF_PB(CommandOutcomeObject) *outcome = ((const SF_PB(ReplayIndexRow) *)message)->outcome;
    sf_catalog_key_outcome(sf_check_want(c), outcome->command_identity);
    sf_catalog_key_transport(sf_check_want(c), outcome->transport_lookup_key);
    if (outcome->_business_lookup_key_case != 0)
        sf_catalog_key_business(sf_check_want(c), sf_catalog_kind_name(outcome->command_kind),
                                outcome->business_lookup_key);
}

/* Tells of a pointer that is gone, and publishes it again from the record. */
static enum sf_err pointer_missing(struct sf_check *c, const SF_PB(CommandOutcomeObject) * outcome,
                                   const struct sf_buf *key, bool business)
{
    struct sf_check_finding f = {
        .kind = "pointer_missing",
        .subject = business ? "catalog-replay-business" : "catalog-replay-transport",
        .key = sf_buf_view(key),
        .explanation = "the record stands and its replay pointer does not; the record is the truth",
        .repair = "the pointer is published again from the record",
        .problem = true};
    enum sf_err err = SF_OK;
    if (!sf_check_unsure(c) && c->repair) {
        err = sf_catalog_pointers(c->catalog, c->sched, outcome);
        f.repaired = err == SF_OK;
    }
    if (err == SF_OK)
        sf_check_tell(c, &f);
    return err;
}

/* Are the record's pointers there, and the transport pointer its own? A business key may have gone
 * on to a later original. */
static enum sf_err check_pointers(struct sf_check *c, const SF_PB(CommandOutcomeObject) * outcome)
{
    struct sf_catalog_put puts[2];
    size_t count = sf_catalog_pointer_puts(outcome, puts);
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < count && err == SF_OK; i++) {
        ProtobufCMessage *object;
        bool broken;
        err = sf_check_read(c, &puts[i].key, &searchfabric__v1__replay_pointer_object__descriptor,
                            &object, &broken);
        if (err == SF_OK && object == NULL && !broken)
            err = pointer_missing(c, outcome, &puts[i].key, i == 1);
        else if (err == SF_OK && object != NULL && i == 0 &&
                 strcmp(((const SF_PB(ReplayPointerObject) *)object)->command_identity,
                        outcome->command_identity) != 0)
            sf_check_tell(c, &(struct sf_check_finding){
                                 .kind = "object_differs",
                                 .subject = "catalog-replay-transport",
                                 .key = sf_buf_view(&puts[i].key),
                                 .explanation = "the pointer names another command than the record "
                                                "whose lookup key it has; the record is the truth: "
                                                "restore the pointer",
                                 .repair = "",
                                 .problem = true});
    }
    for (size_t i = 0; i < count; i++)
        sf_catalog_put_fini(&puts[i]);
    return err;
}

static enum sf_err check_record(struct sf_check *c, const ProtobufCMessage *message)
{
    const SF_PB(ReplayIndexRow) *row = (const SF_PB(ReplayIndexRow) *)message;
    const char *identity = row->outcome->command_identity;
    struct sf_buf key = {0};
    ProtobufCMessage *found;
    bool broken;
    if (!sf_catalog_claim_command(c->catalog, identity))
        return SF_OK; /* it is being removed */
    sf_catalog_key_outcome(&key, identity);
    enum sf_err err = sf_check_read(c, &key, &searchfabric__v1__command_outcome_object__descriptor,
                                    &found, &broken);
    SF_PB(CommandOutcomeObject) *outcome = (SF_PB(CommandOutcomeObject) *)found;
    if (err == SF_OK && outcome == NULL && !broken)
        sf_check_missing(c, "catalog_replay_index", &key, true);
    if (err == SF_OK && outcome != NULL) {
        SF_PB(ReplayIndexRow) wanted = *row;
        outcome->sha256 = (char *)(uintptr_t)protobuf_c_empty_string;
        wanted.outcome = outcome;
        if (!sf_catalog_same(&outcome->base, &row->outcome->base))
            err = sf_check_differs(c, SF_CATALOG_TABLE_REPLAY, message, &wanted.base,
                                   sf_buf_view(&key), true);
        if (err == SF_OK)
            err = check_pointers(c, outcome);
    }
    sf_catalog_unclaim_command(c->catalog, identity);
    sf_buf_fini(&key);
    return err;
}

/* ---- the tables ---------------------------------------------------------------------------- */

/* As they are checked: a row of a later table is judged by those before it. */
const struct sf_check_table sf_check_tables[] = {
    {SF_CATALOG_TABLE_NAMESPACES, namespace_wants, check_namespace, true},
    {SF_CATALOG_TABLE_COLLECTIONS, collection_wants, check_collection, true},
    {SF_CATALOG_TABLE_GENERATIONS, generation_wants, check_generation, true},
    {SF_CATALOG_TABLE_TOMBSTONES, sf_check_tombstone_wants, sf_check_tombstone_row, true},
    {SF_CATALOG_TABLE_QUOTA, sf_check_quota_wants, sf_check_quota_row, false},
    {SF_CATALOG_TABLE_NAMESPACE_NAMES, sf_check_name_wants, sf_check_name, false},
    {SF_CATALOG_TABLE_COLLECTION_NAMES, sf_check_name_wants, sf_check_name, true},
    {SF_CATALOG_TABLE_REPLAY, record_wants, check_record, false},
};
const size_t sf_check_table_count = SF_ARRAY_LEN(sf_check_tables);

/* Identities of a page of the namespace's records after *io_after. */
static enum sf_err read_identities(struct sf_check *c, struct sf_sql_conn *conn,
                                   const struct sf_buf *after, char (*out)[SF_SHA256_HEX_BYTES],
                                   size_t *out_count)
{
    struct sf_sql_stmt *stmt;
    bool row = true;
    *out_count = 0;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT command_identity FROM catalog_replay_index"
                                     " WHERE namespace_id = ?1 AND command_identity > ?2"
                                     " ORDER BY command_identity LIMIT ?3",
                                     c->diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, c->namespace_id);
    sf_sql_bind_text(stmt, 2, sf_buf_view(after));
    sf_sql_bind_i64(stmt, 3, SF_CHECK_PAGE);
    while (err == SF_OK && row && *out_count < SF_CHECK_PAGE) {
        err = sf_sql_step(stmt, c->diag, &row);
        if (err == SF_OK && row)
            snprintf(out[(*out_count)++], SF_SHA256_HEX_BYTES, "%.*s",
                     (int)sf_sql_col_text(stmt, 0).len, (const char *)sf_sql_col_text(stmt, 0).ptr);
    }
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_check_records_of_namespace(struct sf_check *c)
{
    char(*identities)[SF_SHA256_HEX_BYTES] = sf_calloc(SF_CHECK_PAGE, SF_SHA256_HEX_BYTES);
    const struct sf_check_table *table = &sf_check_tables[sf_check_table_count - 1];
    struct sf_buf after = {0};
    enum sf_err err = SF_OK;
    size_t count = SF_CHECK_PAGE;
    SF_ASSERT(table->table == SF_CATALOG_TABLE_REPLAY);
    while (err == SF_OK && count == SF_CHECK_PAGE) {
        struct sf_catalog_batch batch = {0};
        sf_arena_reset(c->page);
        batch.rows = sf_arena_alloc(c->page, SF_CHECK_PAGE * sizeof(*batch.rows));
        batch.odd = sf_arena_alloc(c->page, SF_CHECK_PAGE * sizeof(*batch.odd));
        struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
        err = read_identities(c, conn, &after, identities, &count);
        for (size_t i = 0; i < count && err == SF_OK; i++) {
            SF_PB(CommandOutcomeObject) outcome;
            SF_PB(ReplayIndexRow) like;
            searchfabric__v1__command_outcome_object__init(&outcome);
            searchfabric__v1__replay_index_row__init(&like);
            outcome.command_identity = identities[i];
            like.outcome = &outcome;
            err = sf_catalog_rows_look(conn, table->table, &like.base, c->page, c->diag,
                                       &batch.rows[batch.count], &batch.odd[batch.count]);
            batch.count += err == SF_OK && batch.rows[batch.count] != NULL ? 1 : 0;
        }
        sf_sql_release(conn);
        if (count != 0) {
            sf_buf_clear(&after);
            sf_buf_append_str(&after, identities[count - 1]);
        }
        if (err == SF_OK)
            err = sf_check_batch(c, table, &batch);
    }
    sf_buf_fini(&after);
    free(identities);
    return err;
}
