/*
 * Model: drops and releases. The tombstone object that an APPLIED record names is the truth of a
 * drop, a release's outcome that of a release (catalog_tombstone.c); the row of the tombstone and
 * the drop's columns of the collection's row say what the object says, or are written again. What
 * rows still show of a released lineage is removed, as its release would have.
 */
#include "catalog/catalog_check_priv.h"

#include "catalog/catalog_lifecycle.h"

/* ---- what was released --------------------------------------------------------------------- */

static enum sf_err remove_released(struct sf_check *c, struct sf_sql_conn *conn, void *arg)
{
    SF_PB(CollectionRef) *ref = arg;
    SF_PB(CommandOutcomeObject) outcome;
    SF_PB(CommandScope) scope;
    searchfabric__v1__command_outcome_object__init(&outcome);
    searchfabric__v1__command_scope__init(&scope);
    scope.namespace_id = ref->namespace_id;
    scope.collection_id = ref->collection_id;
    outcome.scope = &scope;
    return sf_catalog_project_release_collection(conn, &outcome, c->diag);
}

/* Rows of a lineage whose name was released. */
static enum sf_err tell_released(struct sf_check *c,
                                 const SF_PB(CollectionTombstoneObject) * tombstone,
                                 const char *subject, struct sf_view key)
{
    struct sf_check_finding f = {
        .kind = "row_unknown",
        .subject = subject,
        .key = key,
        .explanation = "a row shows a collection whose name was released; the release's record is "
                       "the truth",
        .repair = "the rows of the released collection are deleted",
        .problem = true};
    enum sf_err err = sf_check_write(c, remove_released, tombstone->collection, &f.repaired);
    if (f.repaired) {
        sf_catalog_state_forget(c->catalog, tombstone->collection->namespace_id,
                                tombstone->collection->collection_id);
        sf_catalog_state_binding(c->catalog, tombstone->collection->namespace_id,
                                 tombstone->collection_name);
    }
    if (err == SF_OK)
        sf_check_tell(c, &f);
    return err;
}

/* A row says that the collection was dropped, and no tombstone counts. */
static enum sf_err tell_unproved(struct sf_check *c, const struct sf_buf *key, const char *subject)
{
    ProtobufCMessage *object = NULL;
    bool broken = false;
    enum sf_err err = sf_check_read(
        c, key, &searchfabric__v1__collection_tombstone_object__descriptor, &object, &broken);
    if (err != SF_OK || broken)
        return err;
    if (object == NULL) {
        sf_check_missing(c, subject, key, true);
        return SF_OK;
    }
    sf_check_tell(c, &(struct sf_check_finding){
                         .kind = "object_missing",
                         .subject = subject,
                         .key = sf_buf_view(key),
                         .explanation = "a row shows a drop; its tombstone stands, and the record "
                                        "that made it count is gone: restore the record",
                         .repair = "",
                         .problem = true});
    return SF_OK;
}

/* ---- rows ---------------------------------------------------------------------------------- */

void sf_check_tombstone_wants(struct sf_check *c, const ProtobufCMessage *row)
{
    const SF_PB(CollectionTombstoneObject) *tombstone =
        ((const SF_PB(TombstoneRow) *)row)->tombstone;
    sf_catalog_key_tombstone(sf_check_want(c), tombstone->collection->namespace_id,
                             tombstone->collection->collection_id, SF_CATALOG_DROP_REVISION);
}

/* The row as the object has it: without the object's own digest. */
static SF_PB(CollectionTombstoneObject) shown(const SF_PB(CollectionTombstoneObject) * object)
{
    SF_PB(CollectionTombstoneObject) plain = *object;
    plain.sha256 = (char *)(uintptr_t)protobuf_c_empty_string;
    return plain;
}

/* Under the gates: which is it? */
static enum sf_err judge_row(struct sf_check *c, const SF_PB(TombstoneRow) * row,
                             const struct sf_buf *key)
{
    const SF_PB(CollectionRef) *ref = row->tombstone->collection;
    struct sf_catalog_tombstone found;
    enum sf_err err = sf_catalog_tombstone_find(c->catalog, ref->namespace_id, ref->collection_id,
                                                c->one, c->diag, &found);
    if (err != SF_OK)
        return err;
    if (found.released)
        return tell_released(c, found.object, "collection_tombstones", sf_buf_view(key));
    if (!found.stands)
        return tell_unproved(c, key, "collection_tombstones");
    SF_PB(CollectionTombstoneObject) plain = shown(found.object);
    SF_PB(TombstoneRow) wanted;
    searchfabric__v1__tombstone_row__init(&wanted);
    wanted.tombstone = &plain;
    if (sf_catalog_same(&row->base, &wanted.base))
        return SF_OK;
    return sf_check_differs(c, SF_CATALOG_TABLE_TOMBSTONES, &row->base, &wanted.base,
                            sf_buf_view(key), true);
}

enum sf_err sf_check_tombstone_row(struct sf_check *c, const ProtobufCMessage *message)
{
    const SF_PB(TombstoneRow) *row = (const SF_PB(TombstoneRow) *)message;
    const SF_PB(CollectionRef) *ref = row->tombstone->collection;
    struct sf_check_lineage lineage = {0};
    struct sf_buf key = {0};
    ProtobufCMessage *object = NULL;
    bool broken = false;
    enum sf_err err = SF_OK;
    sf_catalog_key_tombstone(&key, ref->namespace_id, ref->collection_id, SF_CATALOG_DROP_REVISION);
    if (c->sure) {
        err = judge_row(c, row, &key);
    } else {
        err = sf_check_read(c, &key, &searchfabric__v1__collection_tombstone_object__descriptor,
                            &object, &broken);
        if (err == SF_OK && object != NULL) {
            SF_PB(CollectionTombstoneObject)
            plain = shown((const SF_PB(CollectionTombstoneObject) *)object);
            c->suspect = c->suspect || !sf_catalog_same(&plain.base, &row->tombstone->base);
        }
        if (err == SF_OK)
            err = sf_check_lineage(c, ref->namespace_id, ref->collection_id, &lineage);
        c->suspect = c->suspect || object == NULL || lineage.collection == NULL;
    }
    sf_buf_fini(&key);
    return err;
}

static void take_drop(const SF_PB(CollectionTombstoneObject) * tombstone,
                      SF_PB(CollectionRow) * wanted)
{
    wanted->lifecycle_state = SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, TOMBSTONED);
    wanted->_drop_revision_case = SEARCHFABRIC__V1__COLLECTION_ROW___DROP_REVISION_DROP_REVISION;
    wanted->drop_revision = tombstone->drop_revision;
    wanted->_dropped_at_unix_ms_case =
        SEARCHFABRIC__V1__COLLECTION_ROW___DROPPED_AT_UNIX_MS_DROPPED_AT_UNIX_MS;
    wanted->dropped_at_unix_ms = tombstone->dropped_at_unix_ms;
    wanted->_gc_after_unix_ms_case =
        SEARCHFABRIC__V1__COLLECTION_ROW___GC_AFTER_UNIX_MS_GC_AFTER_UNIX_MS;
    wanted->gc_after_unix_ms = tombstone->gc_after_unix_ms;
}

enum sf_err sf_check_dropped(struct sf_check *c, const SF_PB(CollectionRow) * row,
                             SF_PB(CollectionRow) * wanted, bool *out_gone)
{
    const SF_PB(CollectionRef) *ref = row->collection;
    struct sf_buf key = {0};
    struct sf_catalog_tombstone found;
    ProtobufCMessage *object = NULL;
    bool broken = false;
    enum sf_err err = SF_OK;
    *out_gone = false;
    wanted->_drop_revision_case = 0;
    wanted->_dropped_at_unix_ms_case = 0;
    wanted->_gc_after_unix_ms_case = 0;
    if (row->lifecycle_state == SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE))
        return SF_OK; /* a drop that it does not show is found by the tombstone */
    sf_catalog_key_tombstone(&key, ref->namespace_id, ref->collection_id, SF_CATALOG_DROP_REVISION);
    if (!c->sure) {
        err = sf_check_read(c, &key, &searchfabric__v1__collection_tombstone_object__descriptor,
                            &object, &broken);
        if (object != NULL)
            take_drop((const SF_PB(CollectionTombstoneObject) *)object, wanted);
        else
            c->suspect = true;
    } else {
        err = sf_catalog_tombstone_find(c->catalog, ref->namespace_id, ref->collection_id, c->one,
                                        c->diag, &found);
        *out_gone = err == SF_OK && found.released;
        if (err == SF_OK && found.stands) {
            take_drop(found.object, wanted);
        } else if (*out_gone) {
            err = tell_released(c, found.object, "collections", sf_buf_view(&key));
        } else if (err == SF_OK) {
            *wanted = *row; /* nothing tells */
            err = tell_unproved(c, &key, "collections");
        }
    }
    sf_buf_fini(&key);
    return err;
}

/* ---- objects ------------------------------------------------------------------------------- */

static enum sf_err tombstone_row(struct sf_check *c, const SF_PB(CollectionRef) * ref,
                                 bool *out_has)
{
    SF_PB(CollectionTombstoneObject) *row = NULL;
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
    enum sf_err err = sf_catalog_sql_tombstone(conn, ref->namespace_id, ref->collection_id, c->one,
                                               c->diag, &row);
    sf_sql_release(conn);
    *out_has = row != NULL;
    return err;
}

/* A drop that rows do not show. */
static enum sf_err restore(struct sf_check *c, const SF_PB(CollectionTombstoneObject) * tombstone,
                           struct sf_view key, const SF_PB(CollectionRow) * row)
{
    struct sf_check_finding f = {
        .kind = row == NULL ? "row_missing" : "row_differs",
        .subject = row == NULL ? "collections" : "collection_tombstones",
        .key = key,
        .explanation = "the collection was dropped and its name is reserved: its tombstone stands; "
                       "a row does not show it; the tombstone is the truth",
        .repair = "the rows of collection and tombstone are written from the objects",
        .problem = true};
    enum sf_err err = SF_OK;
    if (row != NULL && row->lifecycle_state != SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE))
        f.kind = "row_missing";
    else if (row != NULL)
        f.subject = "collections";
    if (c->repair) {
        err = sf_catalog_tombstone_restore(c->catalog, tombstone, c->one, c->diag);
        f.repaired = err == SF_OK;
    }
    if (err == SF_OK)
        sf_check_tell(c, &f);
    return err;
}

enum sf_err sf_check_tombstone_object(struct sf_check *c, struct sf_check_object *object)
{
    const SF_PB(CollectionTombstoneObject) *tombstone =
        (const SF_PB(CollectionTombstoneObject) *)object->message;
    struct sf_check_lineage lineage;
    struct sf_catalog_tombstone found;
    bool has = false;
    if (tombstone->collection == NULL ||
        tombstone->collection->namespace_id != object->namespace_id ||
        tombstone->collection->collection_id != object->collection_id)
        return sf_diag_set(c->diag, SF_ERR_CORRUPT, "%.*s is of another collection",
                           (int)object->key.len, (const char *)object->key.ptr);
    enum sf_err err = sf_check_lineage(c, object->namespace_id, object->collection_id, &lineage);
    if (err == SF_OK)
        err = tombstone_row(c, tombstone->collection, &has);
    const SF_PB(CollectionRow) *row = lineage.collection;
    bool tombstoned =
        row != NULL && row->lifecycle_state == SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, TOMBSTONED);
    if (err != SF_OK || (tombstoned && has))
        return err; /* what they say in full, their own checks compare */
    err = sf_catalog_tombstone_find(c->catalog, object->namespace_id, object->collection_id, c->one,
                                    c->diag, &found);
    if (err != SF_OK || !found.stands)
        return err; /* an orphan, or released: rows that still show it are judged as rows */
    if (sf_check_unsure(c))
        return SF_OK;
    return restore(c, found.object, object->key, row);
}

/* Only what is tombstoned can have been released, and a release takes the rows. */
enum sf_err sf_check_is_tombstoned(struct sf_check *c, uint64_t namespace_id,
                                   uint64_t collection_id, bool *out_tombstoned)
{
    struct sf_buf prefix = {0}, after = {0};
    enum sf_err err = SF_OK;
    size_t count = SF_LIMIT_LIST_PAGE_ENTRIES;
    *out_tombstoned = false;
    if (collection_id != 0)
        sf_catalog_key_tombstone(&prefix, namespace_id, collection_id, 0);
    else
        sf_catalog_key_namespace(&prefix, namespace_id, 0);
    prefix.len -= strlen("0.json");
    sf_buf_append(&prefix, "", 1);
    while (err == SF_OK && count == SF_LIMIT_LIST_PAGE_ENTRIES && !*out_tombstoned) {
        struct sf_list_entry *entries = NULL;
        err = sf_catalog_list(c->catalog, c->sched, (const char *)prefix.data, &after, c->one,
                              c->diag, &entries, &count);
        for (size_t i = 0; i < count && err == SF_OK && !*out_tombstoned; i++) {
            ProtobufCMessage *object = NULL;
            struct sf_buf key = {0};
            bool broken;
            sf_buf_append(&key, entries[i].key.ptr, entries[i].key.len);
            if (collection_id == 0)
                err = sf_check_read(c, &key,
                                    &searchfabric__v1__namespace_descriptor_object__descriptor,
                                    &object, &broken);
            *out_tombstoned =
                collection_id != 0 ||
                (object != NULL &&
                 ((const SF_PB(NamespaceDescriptorObject) *)object)->lifecycle_state ==
                     SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED));
            sf_buf_fini(&key);
        }
    }
    sf_buf_fini(&prefix);
    sf_buf_fini(&after);
    return err;
}
