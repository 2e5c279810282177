/*
 * Model: what a finding says, and the ways in which a repair writes. A row is written again in a
 * transaction that looks at the owner epoch and reads the row once more: one that moved since it
 * was judged is left alone. An object is deleted only by the owner, and only under a key that is
 * never written again.
 *
 * The answer holds a bounded number of findings; where it is full a problem takes the place of
 * something harmless. All are counted.
 */
#include "catalog/catalog_check_priv.h"

#include <inttypes.h>
#include <stdlib.h>

#include "catalog/catalog_checkpoint.h"
#include "catalog/catalog_rules.h"

#define DIFFERENCES 6  /* fields named in one finding */
#define VALUE_BYTES 48 /* of a value shown */

/* ---- findings ------------------------------------------------------------------------------ */

bool sf_check_unsure(struct sf_check *c)
{
    c->suspect = c->suspect || !c->sure;
    return !c->sure;
}

/* Where the finding goes, NULL = nowhere. */
static SF_PB(CatalogFinding) * *place_for(struct sf_check *c, bool problem)
{
    SF_PB(CheckCatalogResponse) *response = &c->response;
    if (response->n_findings < c->max)
        return &response->findings[response->n_findings++];
    for (size_t i = response->n_findings; problem && i > 0; i--) {
        if (!response->findings[i - 1]->problem)
            return &response->findings[i - 1];
    }
    return NULL;
}

void sf_check_tell(struct sf_check *c, const struct sf_check_finding *f)
{
    struct sf_arena *arena = sf_call_arena(c->call);
    if (sf_check_unsure(c))
        return;
    c->response.problems += f->problem ? 1 : 0;
    c->response.harmless += f->problem ? 0 : 1;
    c->response.repaired += f->repaired && f->problem ? 1 : 0;
    SF_PB(CatalogFinding) *out = sf_arena_alloc(arena, sizeof(*out));
    if (out == NULL)
        return;
    searchfabric__v1__catalog_finding__init(out);
    out->kind = sf_arena_str(arena, sf_view_str(f->kind));
    out->subject = sf_arena_str(arena, sf_view_str(f->subject));
    out->key = sf_arena_str(arena, f->key);
    out->explanation = sf_arena_str(arena, sf_view_str(f->explanation));
    out->repair = sf_arena_str(arena, sf_view_str(f->repair));
    out->repaired = f->repaired;
    out->problem = f->problem;
    if (sf_arena_overflowed(arena))
        return;
    SF_PB(CatalogFinding) **place = place_for(c, f->problem);
    if (place != NULL)
        *place = out;
}

void sf_check_missing(struct sf_check *c, const char *subject, const struct sf_buf *key,
                      bool problem)
{
    sf_check_tell(c, &(struct sf_check_finding){
                         .kind = "object_missing",
                         .subject = subject,
                         .key = sf_buf_view(key),
                         .explanation = problem ? "a row shows what this object held; it is gone, "
                                                  "and nothing else can tell its contents: "
                                                  "restore the object"
                                                : "superseded and removed",
                         .repair = "",
                         .problem = problem});
}

void sf_check_orphan(struct sf_check *c, const struct sf_check_object *object,
                     const char *explanation, const char *repair, bool repaired)
{
    sf_check_tell(c, &(struct sf_check_finding){.kind = "orphan_object",
                                                .subject = object->family->subject,
                                                .key = object->key,
                                                .explanation = explanation,
                                                .repair = repair,
                                                .problem = false,
                                                .repaired = repaired});
}

/* ---- differences --------------------------------------------------------------------------- */

static bool present(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0)
        return *(const uint32_t *)(const void *)((const char *)message +
                                                 field->quantifier_offset) == field->id;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return *(ProtobufCMessage *const *)(const void *)((const char *)message + field->offset) !=
               NULL;
    return true;
}

static void add_value(struct sf_buf *out, const ProtobufCMessage *message,
                      const ProtobufCFieldDescriptor *field)
{
    const char *slot = (const char *)message + field->offset;
    uint64_t u64;
    int64_t i64;
    int32_t small;
    const char *text;
    if (!present(message, field)) {
        sf_buf_append_str(out, "nothing");
        return;
    }
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT64:
        memcpy(&u64, slot, sizeof(u64));
        sf_buf_printf(out, "%" PRIu64, u64);
        break;
    case PROTOBUF_C_TYPE_INT64:
        memcpy(&i64, slot, sizeof(i64));
        sf_buf_printf(out, "%" PRId64, i64);
        break;
    case PROTOBUF_C_TYPE_STRING:
        memcpy(&text, slot, sizeof(text));
        sf_buf_printf(out, "\"%.*s%s\"", VALUE_BYTES, text,
                      strlen(text) > VALUE_BYTES ? "..." : "");
        break;
    case PROTOBUF_C_TYPE_ENUM: {
        memcpy(&small, slot, sizeof(small));
        const ProtobufCEnumValue *value =
            protobuf_c_enum_descriptor_get_value(field->descriptor, small);
        sf_buf_append_str(out, value == NULL ? "?" : value->name);
        break;
    }
    default:
        memcpy(&small, slot, sizeof(small));
        sf_buf_printf(out, "%" PRId32, small);
        break;
    }
}

static bool has_value(const ProtobufCFieldDescriptor *field)
{
    return field->label != PROTOBUF_C_LABEL_REPEATED && field->type != PROTOBUF_C_TYPE_MESSAGE &&
           field->type != PROTOBUF_C_TYPE_BYTES && field->type != PROTOBUF_C_TYPE_DOUBLE &&
           field->type != PROTOBUF_C_TYPE_FLOAT;
}

/* A message with one field of `from` alone, so that fields are compared as rows are. */
static bool same_field(const ProtobufCMessage *a, const ProtobufCMessage *b,
                       const ProtobufCFieldDescriptor *field)
{
    size_t size = a->descriptor->sizeof_message;
    const ProtobufCMessage *from[2] = {a, b};
    ProtobufCMessage *only[2];
    size_t width =
        field->type == PROTOBUF_C_TYPE_UINT64 || field->type == PROTOBUF_C_TYPE_INT64 ||
                field->type == PROTOBUF_C_TYPE_DOUBLE || field->type == PROTOBUF_C_TYPE_STRING ||
                field->type == PROTOBUF_C_TYPE_MESSAGE || field->label == PROTOBUF_C_LABEL_REPEATED
            ? 8
            : 4;
    for (int i = 0; i < 2; i++) {
        only[i] = sf_calloc(1, size);
        protobuf_c_message_init(a->descriptor, only[i]);
        memcpy((char *)only[i] + field->offset, (const char *)from[i] + field->offset,
               field->type == PROTOBUF_C_TYPE_BYTES ? sizeof(ProtobufCBinaryData) : width);
        if (field->label == PROTOBUF_C_LABEL_REPEATED)
            memcpy((char *)only[i] + field->quantifier_offset,
                   (const char *)from[i] + field->quantifier_offset, sizeof(size_t));
        else if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0)
            memcpy((char *)only[i] + field->quantifier_offset,
                   (const char *)from[i] + field->quantifier_offset, sizeof(uint32_t));
    }
    bool same = present(a, field) == present(b, field) &&
                (!present(a, field) || sf_catalog_same(only[0], only[1]));
    free(only[0]);
    free(only[1]);
    return same;
}

static void add_differences(struct sf_buf *out, const char *path, const ProtobufCMessage *seen,
                            const ProtobufCMessage *wanted, unsigned *io_count)
{
    for (unsigned i = 0; i < seen->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &seen->descriptor->fields[i];
        if (same_field(seen, wanted, field))
            continue;
        bool inside = field->label != PROTOBUF_C_LABEL_REPEATED &&
                      field->type == PROTOBUF_C_TYPE_MESSAGE && present(seen, field) &&
                      present(wanted, field);
        if (inside && path[0] == '\0') {
            add_differences(
                out, field->name,
                *(ProtobufCMessage *const *)(const void *)((const char *)seen + field->offset),
                *(ProtobufCMessage *const *)(const void *)((const char *)wanted + field->offset),
                io_count);
            continue;
        }
        if (++*io_count > DIFFERENCES)
            continue;
        sf_buf_printf(out, "%s%s%s%s", out->len == 0 ? "" : ", ", path, path[0] == '\0' ? "" : ".",
                      field->name);
        if (!has_value(field))
            continue;
        sf_buf_append_str(out, " (");
        add_value(out, seen, field);
        sf_buf_append_str(out, ", should be ");
        add_value(out, wanted, field);
        sf_buf_append_str(out, ")");
    }
}

const char *sf_check_difference(struct sf_check *c, const ProtobufCMessage *seen,
                                const ProtobufCMessage *wanted)
{
    struct sf_buf text = {0};
    unsigned count = 0;
    add_differences(&text, "", seen, wanted, &count);
    if (count > DIFFERENCES)
        sf_buf_printf(&text, " and %u more", count - DIFFERENCES);
    const char *out = sf_arena_str(c->one, sf_buf_view(&text));
    sf_buf_fini(&text);
    return out == NULL ? "" : out;
}

/* ---- repairs ------------------------------------------------------------------------------- */

struct sf_catalog_gates sf_check_gates(enum sf_catalog_table table, const ProtobufCMessage *row)
{
    struct sf_catalog_gates gates = {.namespace_id = sf_catalog_row_namespace(table, row)};
    if (table == SF_CATALOG_TABLE_COLLECTIONS)
        gates.collection_id = ((const SF_PB(CollectionRow) *)row)->collection->collection_id;
    else if (table == SF_CATALOG_TABLE_GENERATIONS)
        gates.collection_id =
            ((const SF_PB(SchemaGenerationRow) *)row)->body->collection->collection_id;
    else if (table == SF_CATALOG_TABLE_TOMBSTONES)
        gates.collection_id =
            ((const SF_PB(TombstoneRow) *)row)->tombstone->collection->collection_id;
    else
        gates.namespace_exclusive = gates.namespace_id != 0;
    return gates;
}

enum sf_err sf_check_write(struct sf_check *c, sf_check_rows_fn fn, void *arg, bool *out_done)
{
    *out_done = false;
    if (!c->repair || !c->sure)
        return SF_OK;
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_WRITE);
    enum sf_err err = sf_sql_begin(conn, c->diag);
    if (err == SF_OK)
        err = sf_catalog_sql_look(c->catalog, conn, c->diag);
    if (err == SF_OK)
        err = fn(c, conn, arg);
    if (err == SF_OK)
        err = sf_sql_commit(conn, c->diag);
    else
        sf_sql_rollback(conn);
    sf_sql_release(conn);
    *out_done = err == SF_OK;
    return err;
}

/* A row on its way. */
struct rewrite {
    enum sf_catalog_table table;    /* it is in */
    const ProtobufCMessage *seen;   /* as it was judged, NULL = there was none */
    const ProtobufCMessage *wanted; /* what stands for it */
    bool moved;                     /* it is no longer what was judged: left alone */
};

static enum sf_err write_row(struct sf_check *c, struct sf_sql_conn *conn, void *arg)
{
    struct rewrite *r = arg;
    ProtobufCMessage *now = NULL;
    enum sf_err err = sf_catalog_rows_find(conn, r->table, r->wanted, c->one, c->diag, &now);
    if (err != SF_OK)
        return err;
    r->moved = now == NULL || r->seen == NULL ? now != r->seen : !sf_catalog_same(now, r->seen);
    if (!r->moved)
        err = sf_catalog_rows_delete(conn, r->table, r->wanted, c->diag);
    if (err == SF_OK && !r->moved)
        err = sf_catalog_rows_insert(conn, r->table, r->wanted, c->diag);
    return err;
}

/* What memory holds of the row is forgotten. */
static void forget(struct sf_check *c, enum sf_catalog_table table, const ProtobufCMessage *row)
{
    struct sf_catalog_gates gates = sf_check_gates(table, row);
    if (gates.collection_id != 0)
        sf_catalog_state_forget(c->catalog, gates.namespace_id, gates.collection_id);
    if (table == SF_CATALOG_TABLE_NAMESPACES)
        sf_catalog_state_namespace(c->catalog, gates.namespace_id,
                                   ((const SF_PB(NamespaceRow) *)row)->namespace_name);
    if (table == SF_CATALOG_TABLE_COLLECTIONS)
        sf_catalog_state_binding(c->catalog, gates.namespace_id,
                                 ((const SF_PB(CollectionRow) *)row)->collection_name);
    if (table == SF_CATALOG_TABLE_REPLAY)
        sf_catalog_state_command(c->catalog,
                                 ((const SF_PB(ReplayIndexRow) *)row)->outcome->command_identity);
}

enum sf_err sf_check_differs(struct sf_check *c, enum sf_catalog_table table,
                             const ProtobufCMessage *row, const ProtobufCMessage *wanted,
                             struct sf_view key, bool problem)
{
    if (sf_check_unsure(c))
        return SF_OK;
    struct rewrite r = {.table = table, .seen = row, .wanted = wanted};
    const char *differences = row == NULL ? "" : sf_check_difference(c, row, wanted);
    struct sf_check_finding f = {
        .kind = row == NULL ? "row_missing" : "row_differs",
        .subject = sf_catalog_table_name(table),
        .key = key,
        .explanation =
            row == NULL ? "the object stands and the table has no such row; the object is the truth"
                        : sf_arena_printf(c->one,
                                          "the row differs from its object in %s; the object is "
                                          "the truth",
                                          differences),
        .repair = "the row is written again from the object",
        .problem = problem};
    if (f.explanation == NULL)
        return sf_diag_set(c->diag, SF_ERR_LIMIT, "a finding does not fit its memory");
    enum sf_err err = sf_check_write(c, write_row, &r, &f.repaired);
    f.repaired = f.repaired && !r.moved;
    if (f.repaired)
        forget(c, table, wanted);
    if (err == SF_OK)
        sf_check_tell(c, &f);
    return err;
}

enum sf_err sf_check_odd(struct sf_check *c, enum sf_catalog_table table,
                         const ProtobufCMessage *row)
{
    struct rewrite r = {.table = table, .seen = row, .wanted = row};
    struct sf_buf key = {0};
    if (table == SF_CATALOG_TABLE_REPLAY)
        sf_buf_append_str(&key, ((const SF_PB(ReplayIndexRow) *)row)->outcome->command_identity);
    else
        sf_buf_printf(&key, "%" PRIu64 "/%" PRIu64, sf_catalog_row_namespace(table, row),
                      sf_check_gates(table, row).collection_id);
    struct sf_check_finding f = {
        .kind = "row_differs",
        .subject = sf_catalog_table_name(table),
        .key = sf_buf_view(&key),
        .explanation = "columns that follow from the row's own message say something else; the "
                       "message is the truth",
        .repair = "the row is written again from its message",
        .problem = true};
    enum sf_err err = sf_check_write(c, write_row, &r, &f.repaired);
    f.repaired = f.repaired && !r.moved;
    if (f.repaired)
        forget(c, table, row);
    if (err == SF_OK)
        sf_check_tell(c, &f);
    sf_buf_fini(&key);
    return err;
}

enum sf_err sf_check_delete(struct sf_check *c, struct sf_view key, bool *out_done)
{
    *out_done = false;
    if (!c->repair || !c->sure)
        return SF_OK;
    enum sf_err err = sf_catalog_owner_check(c->catalog, c->sched, c->diag);
    if (err != SF_OK)
        return err;
    err = sf_store_remove_wait(c->catalog->deps.store, c->sched, key);
    *out_done = err == SF_OK;
    /* in doubt: it may still go; a next run sees */
    return err == SF_ERR_UNAVAILABLE || err == SF_ERR_AMBIGUOUS ? SF_OK : err;
}

/* ---- reads --------------------------------------------------------------------------------- */

enum sf_err sf_check_look(struct sf_check *c, const struct sf_buf *key,
                          const ProtobufCMessageDescriptor *desc, ProtobufCMessage **out,
                          char *out_sha256, struct sf_etag *out_etag, bool *out_broken)
{
    struct sf_buf body = {0};
    enum sf_err err = SF_OK;
    *out = NULL;
    *out_broken = false;
    c->response.objects_read++;
    if (!c->sure && sf_catalog_ahead_take(c->ahead, sf_buf_view(key), &body, out_etag)) {
        err = sf_catalog_decode(desc, false, sf_buf_view(&body), c->one, c->diag, out);
        if (err == SF_OK && out_sha256 != NULL)
            sf_sha256_hex(sf_buf_view(&body), out_sha256);
        if (err == SF_ERR_CORRUPT)
            sf_diag_wrap(c->diag, "%.*s", (int)key->len, (const char *)key->data);
    } else {
        err = sf_catalog_read(c->catalog, c->sched, sf_buf_view(key), desc, false, c->one, c->diag,
                              out, out_sha256, out_etag);
    }
    sf_buf_fini(&body);
    if (err == SF_ERR_CORRUPT) {
        *out = NULL;
        *out_broken = true;
        return SF_OK;
    }
    return err == SF_ERR_NOT_FOUND ? SF_OK : err;
}

enum sf_err sf_check_read(struct sf_check *c, const struct sf_buf *key,
                          const ProtobufCMessageDescriptor *desc, ProtobufCMessage **out,
                          bool *out_broken)
{
    enum sf_err err = sf_check_look(c, key, desc, out, NULL, NULL, out_broken);
    if (err != SF_OK || !*out_broken)
        return err;
    char text[sizeof(c->diag->message)];
    memcpy(text, c->diag->message, sizeof(text));
    sf_diag_init(c->diag);
    sf_check_tell(c, &(struct sf_check_finding){.kind = "object_broken",
                                                .subject = "object",
                                                .key = sf_buf_view(key),
                                                .explanation = text,
                                                .repair = "",
                                                .problem = true});
    return SF_OK;
}

enum sf_err sf_check_lineage(struct sf_check *c, uint64_t namespace_id, uint64_t collection_id,
                             struct sf_check_lineage *out)
{
    SF_PB(NamespaceRow) ns;
    SF_PB(CollectionRow) collection;
    SF_PB(CollectionRef) ref;
    ProtobufCMessage *found[2] = {NULL, NULL};
    searchfabric__v1__namespace_row__init(&ns);
    searchfabric__v1__collection_row__init(&collection);
    searchfabric__v1__collection_ref__init(&ref);
    ns.namespace_id = ref.namespace_id = namespace_id;
    ref.collection_id = collection_id;
    collection.collection = &ref;
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, c->diag);
    if (err == SF_OK)
        err = sf_catalog_rows_find(conn, SF_CATALOG_TABLE_NAMESPACES, &ns.base, c->one, c->diag,
                                   &found[0]);
    if (err == SF_OK && collection_id != 0)
        err = sf_catalog_rows_find(conn, SF_CATALOG_TABLE_COLLECTIONS, &collection.base, c->one,
                                   c->diag, &found[1]);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    out->ns = (SF_PB(NamespaceRow) *)found[0];
    out->collection = (SF_PB(CollectionRow) *)found[1];
    return err;
}

SF_PB(InternalPolicyState) * sf_check_said_policy(SF_PB(InternalPolicyState) * policy)
{
    bool empty = policy != NULL && protobuf_c_message_get_packed_size(&policy->base) == 0;
    return empty ? NULL : policy;
}
