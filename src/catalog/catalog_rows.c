/*
 * Model: a table is a list of columns; a column names its field in the row message, dots lead into
 * messages inside. Reading fills the fields from the columns, writing binds the columns from the
 * fields, so that a row survives both ways. Derived columns (keys of a row that is one JSON value)
 * are written and not read. The replay index is written by the code that shows commands, for its
 * columns are a function of the record.
 *
 * A walk reads pages by key: first on within the last row's leading keys, then over the next
 * values, so that every query is a range of the primary key and the whole walk is linear. SQL texts
 * are built once and kept, as statements are cached by the address of their text.
 */
#include "catalog/catalog_rows.h"

#include "catalog/catalog_rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/pbjson.h"

#define MAX_COLUMNS 32
#define PATH_DEPTH  3

enum column_kind {
    COLUMN_U64,
    COLUMN_I64,
    COLUMN_SMALL,         /* enum or 32-bit number as a plain number */
    COLUMN_TEXT,          /* string */
    COLUMN_ENUM,          /* enum as text, without its prefix */
    COLUMN_JSON,          /* message */
    COLUMN_JSON_OR_EMPTY, /* message, "{}" when absent */
    COLUMN_JSON_REQUIRED, /* message; a row without it is broken */
    COLUMN_SYNC           /* schema sync state: three columns */
};

struct column {
    const char *name;      /* in SQL; for COLUMN_SYNC the first of the three */
    enum column_kind kind; /* how it is coded */
    const char *field;     /* path in the row message, NULL = always NULL or fixed */
    const char *prefix;    /* COLUMN_ENUM: of the enumerators */
    bool derived;          /* written, not read */
};

struct table {
    const char *name;                      /* in SQL */
    const char *field;                     /* in CheckpointShardObject */
    const ProtobufCMessageDescriptor *row; /* of its message */
    size_t key_count;                      /* the first columns */
    const struct column *columns;          /* all of them, in the table's order of reading */
    size_t column_count;                   /* of them */
};

static const struct column namespace_columns[] = {
    {"namespace_id", COLUMN_U64, "namespace_id", NULL, false},
    {"namespace_name", COLUMN_TEXT, "namespace_name", NULL, false},
    {"namespace_name_allocation_epoch", COLUMN_U64, "namespace_name_allocation_epoch", NULL, false},
    {"namespace_revision", COLUMN_U64, "namespace_revision", NULL, false},
    {"lifecycle_state", COLUMN_ENUM, "lifecycle_state", "NAMESPACE_LIFECYCLE_STATE_", false},
    {"lifecycle_updated_at_unix_ms", COLUMN_I64, "lifecycle_updated_at_unix_ms", NULL, false},
    {"lifecycle_gc_after_unix_ms", COLUMN_I64, "lifecycle_gc_after_unix_ms", NULL, false},
    {"collection_name_binding_revision", COLUMN_U64, "collection_name_binding_revision", NULL,
     false},
    {"options_json", COLUMN_JSON, "options", NULL, false},
    {"encryption_json", COLUMN_JSON_REQUIRED, "encryption", NULL, false},
    {"approx_stats_json", COLUMN_JSON, "approx_stats", NULL, false},
    {"index_json", COLUMN_JSON, "index", NULL, false},
    {"internal_policy_state_json", COLUMN_JSON_OR_EMPTY, "internal_policy_state", NULL, false},
    {"created_at_unix_ms", COLUMN_I64, "created_at_unix_ms", NULL, false},
    {"updated_at_unix_ms", COLUMN_I64, "updated_at_unix_ms", NULL, false},
};

static const struct column collection_columns[] = {
    {"namespace_id", COLUMN_U64, "collection.namespace_id", NULL, false},
    {"collection_id", COLUMN_U64, "collection.collection_id", NULL, false},
    {"collection_name", COLUMN_TEXT, "collection_name", NULL, false},
    {"collection_name_allocation_epoch", COLUMN_U64, "collection_name_allocation_epoch", NULL,
     false},
    {"descriptor_revision", COLUMN_U64, "descriptor_revision", NULL, false},
    {"active_schema_version", COLUMN_U64, "active_schema_version", NULL, false},
    {"active_schema_generation_token", COLUMN_TEXT, "active_schema_generation_token", NULL, false},
    {"collection_truth_mode", COLUMN_SMALL, "collection_truth_mode", NULL, false},
    {"lifecycle_state", COLUMN_ENUM, "lifecycle_state", "COLLECTION_ADMISSION_LIFECYCLE_", false},
    {"drop_revision", COLUMN_U64, "drop_revision", NULL, false},
    {"dropped_at_unix_ms", COLUMN_I64, "dropped_at_unix_ms", NULL, false},
    {"gc_after_unix_ms", COLUMN_I64, "gc_after_unix_ms", NULL, false},
    {"committed_manifest_version", COLUMN_U64, "committed_manifest_version", NULL, false},
    {"committed_manifest_checksum_or_etag", COLUMN_TEXT, "committed_manifest_checksum_or_etag",
     NULL, false},
    {"options_json", COLUMN_JSON, "options", NULL, false},
    {"encryption_json", COLUMN_JSON_REQUIRED, "encryption", NULL, false},
    {"approx_stats_json", COLUMN_JSON, "approx_stats", NULL, false},
    {"index_json", COLUMN_JSON, "index", NULL, false},
    {"manifest_head_version", COLUMN_U64, "manifest_head_version", NULL, false},
    {"expected_previous_head", COLUMN_I64, "expected_previous_head", NULL, false},
    {"manifest_head_last_update_epoch", COLUMN_U64, "manifest_head_last_update_epoch", NULL, false},
    {"manifest_head_reconciler_status", COLUMN_ENUM, "manifest_head_reconciler_status",
     "MANIFEST_HEAD_RECONCILER_STATUS_", false},
    {"internal_policy_state_json", COLUMN_JSON_OR_EMPTY, "internal_policy_state", NULL, false},
    {"created_at_unix_ms", COLUMN_I64, "created_at_unix_ms", NULL, false},
    {"updated_at_unix_ms", COLUMN_I64, "updated_at_unix_ms", NULL, false},
};

static const struct column generation_columns[] = {
    {"namespace_id", COLUMN_U64, "body.collection.namespace_id", NULL, false},
    {"collection_id", COLUMN_U64, "body.collection.collection_id", NULL, false},
    {"schema_version", COLUMN_U64, "body.schema_version", NULL, false},
    {"schema_generation_token", COLUMN_TEXT, "body.schema_generation_token", NULL, false},
    {"collection_truth_mode", COLUMN_SMALL, "body.definition.collection_truth_mode", NULL, true},
    {"schema_definition_json", COLUMN_JSON_REQUIRED, "body.definition", NULL, false},
    {"ddl_commit_ts", COLUMN_U64, "body.ddl_commit_ts", NULL, false},
    {"applied_commit_ts", COLUMN_U64, "body.applied_commit_ts", NULL, false},
    {"active_schema_update_policy", COLUMN_SMALL, "body.active_schema_update_policy", NULL, false},
    {"effective_max_result_window", COLUMN_SMALL, "body.effective_max_result_window", NULL, false},
    {"sync_state", COLUMN_SYNC, "convergence.state", NULL, false},
    {"created_at_unix_ms", COLUMN_I64, "body.created_at_unix_ms", NULL, false},
    {"updated_at_unix_ms", COLUMN_I64, "updated_at_unix_ms", NULL, false},
};

static const struct column tombstone_columns[] = {
    {"namespace_id", COLUMN_U64, "tombstone.collection.namespace_id", NULL, true},
    {"collection_id", COLUMN_U64, "tombstone.collection.collection_id", NULL, true},
    {"drop_revision", COLUMN_U64, "tombstone.drop_revision", NULL, true},
    {"tombstone_json", COLUMN_JSON_REQUIRED, "tombstone", NULL, false},
};

static const struct column quota_columns[] = {
    {"namespace_id", COLUMN_U64, "state.namespace_id", NULL, true},
    {"quota_epoch", COLUMN_U64, "state.quota_epoch", NULL, true},
    {"quota_state_json", COLUMN_JSON_REQUIRED, "state", NULL, false},
    {"last_refill_at_unix_ms", COLUMN_I64, "state.last_refill_at_unix_ms", NULL, true},
    {"updated_at_unix_ms", COLUMN_I64, "state.updated_at_unix_ms", NULL, true},
};

static const struct column namespace_name_columns[] = {
    {"namespace_name", COLUMN_TEXT, "name", NULL, false},
    {"last_allocated_epoch", COLUMN_U64, "last_allocated_epoch", NULL, false},
};

static const struct column collection_name_columns[] = {
    {"namespace_id", COLUMN_U64, "namespace_id", NULL, false},
    {"collection_name", COLUMN_TEXT, "name", NULL, false},
    {"last_allocated_epoch", COLUMN_U64, "last_allocated_epoch", NULL, false},
};

static const struct column replay_columns[] = {
    {"command_identity", COLUMN_TEXT, "outcome.command_identity", NULL, true},
    {"original_outcome_json", COLUMN_JSON_REQUIRED, "outcome", NULL, false},
    {"command_object_key", COLUMN_TEXT, "command_object_key", NULL, false},
    {"transport_lookup_key", COLUMN_TEXT, "outcome.transport_lookup_key", NULL, true},
    {"command_kind", COLUMN_ENUM, "outcome.command_kind", "COMMAND_KIND_", true},
    {"namespace_id", COLUMN_U64, "outcome.scope.namespace_id", NULL, true},
    {"collection_id", COLUMN_U64, "outcome.scope.collection_id", NULL, true},
    {"payload_fingerprint", COLUMN_TEXT, "outcome.payload_fingerprint", NULL, true},
    {"terminal_state", COLUMN_ENUM, "outcome.terminal_state", "COMMAND_TERMINAL_STATE_", true},
    {"created_ts", COLUMN_U64, "outcome.created_ts", NULL, true},
    {"applied_ts", COLUMN_U64, "outcome.applied_ts", NULL, true},
};

#define TABLE(sql_name, shard_field, message, keys, list)                                          \
    {                                                                                              \
        .name = (sql_name), .field = (shard_field),                                                \
        .row = &searchfabric__v1__##message##_row__descriptor, .key_count = (keys),                \
        .columns = (list), .column_count = SF_ARRAY_LEN(list)                                      \
    }

static const struct table tables[SF_CATALOG_TABLE_COUNT] = {
    [SF_CATALOG_TABLE_NAMESPACES] =
        TABLE("namespaces", "namespaces", namespace, 1, namespace_columns),
    [SF_CATALOG_TABLE_COLLECTIONS] =
        TABLE("collections", "collections", collection, 2, collection_columns),
    [SF_CATALOG_TABLE_GENERATIONS] =
        TABLE("schema_generations", "schema_generations", schema_generation, 3, generation_columns),
    [SF_CATALOG_TABLE_TOMBSTONES] =
        TABLE("collection_tombstones", "tombstones", tombstone, 2, tombstone_columns),
    [SF_CATALOG_TABLE_QUOTA] =
        TABLE("namespace_quota_state", "quota_states", quota_state, 1, quota_columns),
    [SF_CATALOG_TABLE_NAMESPACE_NAMES] =
        TABLE("namespace_name_epochs", "name_epochs", name_epoch, 1, namespace_name_columns),
    [SF_CATALOG_TABLE_COLLECTION_NAMES] =
        TABLE("collection_name_epochs", "name_epochs", name_epoch, 2, collection_name_columns),
    [SF_CATALOG_TABLE_REPLAY] =
        TABLE("catalog_replay_index", "replay_index", replay_index, 1, replay_columns),
};

/* A column's fields, found once. */
struct path {
    const ProtobufCFieldDescriptor *steps[PATH_DEPTH]; /* from the row inward */
    size_t depth;                                      /* steps used */
};

/* What is derived of a table, made once. */
struct prepared {
    struct path paths[MAX_COLUMNS];           /* by column */
    char *select[SF_CATALOG_KEY_COLUMNS + 2]; /* by number of fixed keys; [0]: from the start,
                                                 [n]: key n beyond; last: one row */
    char *insert;
    char *remove;
};

static struct prepared prepared[SF_CATALOG_TABLE_COUNT];
static pthread_once_t prepare_once = PTHREAD_ONCE_INIT;

/* ---- preparation -------------------------------------------------------------------------- */

static struct path find_path(const ProtobufCMessageDescriptor *desc, const char *text)
{
    struct path path = {0};
    char name[96];
    while (text != NULL) {
        const char *dot = strchr(text, '.');
        size_t len = dot == NULL ? strlen(text) : (size_t)(dot - text);
        SF_ASSERT(len < sizeof(name) && path.depth < PATH_DEPTH);
        memcpy(name, text, len);
        name[len] = '\0';
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field_by_name(desc, name);
        SF_ASSERT(field != NULL);
        path.steps[path.depth++] = field;
        desc = dot == NULL ? NULL : field->descriptor;
        text = dot == NULL ? NULL : dot + 1;
    }
    return path;
}

/* Number of SQL columns of a column. */
static int column_span(const struct column *column)
{
    return column->kind == COLUMN_SYNC ? 3 : 1;
}

static void append_names(const struct table *table, struct sf_buf *out)
{
    for (size_t i = 0; i < table->column_count; i++) {
        sf_buf_printf(out, "%s%s", i == 0 ? "" : ", ", table->columns[i].name);
        if (table->columns[i].kind == COLUMN_SYNC)
            sf_buf_append_str(out, ", drift_reason, error_reason");
    }
}

/* Text of a buffer, kept for ever. */
static char *keep_text(struct sf_buf *buf)
{
    sf_buf_append(buf, "", 1);
    char *text = sf_strdup((const char *)buf->data);
    sf_buf_fini(buf);
    return text;
}

/* The query that goes on after key column `level` (0: from the start). */
static char *make_select(const struct table *table, size_t level)
{
    struct sf_buf sql = {0};
    sf_buf_append_str(&sql, "SELECT ");
    append_names(table, &sql);
    sf_buf_printf(&sql, " FROM %s", table->name);
    for (size_t i = 0; i < level; i++)
        sf_buf_printf(&sql, "%s%s %s ?%zu", i == 0 ? " WHERE " : " AND ", table->columns[i].name,
                      i + 1 == level ? ">" : "=", i + 1);
    for (size_t i = level == 0 ? 0 : level - 1; i < table->key_count; i++)
        sf_buf_printf(&sql, "%s%s", i + 1 == level || (level == 0 && i == 0) ? " ORDER BY " : ", ",
                      table->columns[i].name);
    sf_buf_printf(&sql, " LIMIT ?%zu", level + 1);
    return keep_text(&sql);
}

static char *make_keyed(const struct table *table, bool find)
{
    struct sf_buf sql = {0};
    if (find) {
        sf_buf_append_str(&sql, "SELECT ");
        append_names(table, &sql);
    } else {
        sf_buf_append_str(&sql, "DELETE");
    }
    sf_buf_printf(&sql, " FROM %s", table->name);
    for (size_t i = 0; i < table->key_count; i++)
        sf_buf_printf(&sql, "%s%s = ?%zu", i == 0 ? " WHERE " : " AND ", table->columns[i].name,
                      i + 1);
    return keep_text(&sql);
}

static char *make_insert(const struct table *table)
{
    struct sf_buf sql = {0};
    int count = 0;
    sf_buf_printf(&sql, "INSERT INTO %s (", table->name);
    append_names(table, &sql);
    sf_buf_append_str(&sql, ") VALUES (");
    for (size_t i = 0; i < table->column_count; i++) {
        for (int k = 0; k < column_span(&table->columns[i]); k++) {
            count++;
            sf_buf_printf(&sql, "%s?%d", count == 1 ? "" : ", ", count);
        }
    }
    sf_buf_append_str(&sql, ")");
    return keep_text(&sql);
}

static void prepare_tables(void)
{
    for (size_t t = 0; t < SF_CATALOG_TABLE_COUNT; t++) {
        const struct table *table = &tables[t];
        SF_ASSERT(table->column_count <= MAX_COLUMNS);
        SF_ASSERT(table->key_count <= SF_CATALOG_KEY_COLUMNS);
        for (size_t i = 0; i < table->column_count; i++)
            prepared[t].paths[i] = find_path(table->row, table->columns[i].field);
        for (size_t level = 0; level <= table->key_count; level++)
            prepared[t].select[level] = make_select(table, level);
        prepared[t].select[SF_CATALOG_KEY_COLUMNS + 1] = make_keyed(table, true);
        prepared[t].insert = make_insert(table);
        prepared[t].remove = make_keyed(table, false);
    }
}

const char *sf_catalog_table_name(enum sf_catalog_table table)
{
    return tables[table].name;
}

const char *sf_catalog_table_field(enum sf_catalog_table table)
{
    return tables[table].field;
}

/* ---- fields ------------------------------------------------------------------------------- */

static bool field_present(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const char *base = (const char *)message;
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
        uint32_t which;
        memcpy(&which, base + field->quantifier_offset, sizeof(which));
        return which == field->id;
    }
    if (field->type != PROTOBUF_C_TYPE_MESSAGE)
        return true;
    const ProtobufCMessage *value;
    memcpy(&value, base + field->offset, sizeof(value));
    return value != NULL;
}

/* The message that holds the last step of `path`; NULL when one on the way is absent. */
static const ProtobufCMessage *field_owner(const ProtobufCMessage *row, const struct path *path)
{
    for (size_t i = 0; i + 1 < path->depth && row != NULL; i++) {
        const ProtobufCMessage *next;
        memcpy(&next, (const char *)row + path->steps[i]->offset, sizeof(next));
        row = next;
    }
    return row;
}

static ProtobufCMessage *message_new(const ProtobufCMessageDescriptor *desc, struct sf_arena *arena)
{
    ProtobufCMessage *message = sf_arena_alloc(arena, desc->sizeof_message);
    if (message != NULL)
        desc->message_init(message);
    return message;
}

/* As field_owner, making what is absent; NULL when the arena is full. */
static ProtobufCMessage *field_owner_made(ProtobufCMessage *row, const struct path *path,
                                          struct sf_arena *arena)
{
    for (size_t i = 0; i + 1 < path->depth && row != NULL; i++) {
        char *slot = (char *)row + path->steps[i]->offset;
        ProtobufCMessage *next;
        memcpy(&next, slot, sizeof(next));
        if (next == NULL) {
            next = message_new(path->steps[i]->descriptor, arena);
            memcpy(slot, &next, sizeof(next));
        }
        row = next;
    }
    return row;
}

static void mark_present(ProtobufCMessage *owner, const ProtobufCFieldDescriptor *field)
{
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0)
        memcpy((char *)owner + field->quantifier_offset, &field->id, sizeof(uint32_t));
}

/* ---- reading ------------------------------------------------------------------------------ */

static enum sf_err broken_row(struct sf_diag *diag, const struct column *column)
{
    return sf_diag_set(diag, SF_ERR_CORRUPT, "a projected row has a broken %s", column->name);
}

static enum sf_err read_enum(struct sf_sql_stmt *stmt, int at, const struct column *column,
                             const ProtobufCFieldDescriptor *field, struct sf_diag *diag,
                             int *out_value)
{
    char name[96];
    struct sf_view text = sf_sql_col_text(stmt, at);
    int len = snprintf(name, sizeof(name), "%s%.*s", column->prefix, (int)text.len,
                       (const char *)text.ptr);
    const ProtobufCEnumValue *value =
        len > 0 && (size_t)len < sizeof(name)
            ? protobuf_c_enum_descriptor_get_value_by_name(field->descriptor, name)
            : NULL;
    if (value == NULL)
        return broken_row(diag, column);
    *out_value = value->value;
    return SF_OK;
}

static SF_PB(SchemaSyncState) * read_sync(struct sf_sql_stmt *stmt, int at, struct sf_arena *arena)
{
    struct sf_view text = sf_sql_col_text(stmt, at);
    if (sf_view_equal(text, sf_view_str("READY")))
        return sf_catalog_sync_state(SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY, "", arena);
    if (sf_view_equal(text, sf_view_str("DRIFTED")))
        return sf_catalog_sync_state(SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_DRIFTED,
                                     sf_arena_str(arena, sf_sql_col_text(stmt, at + 1)), arena);
    if (sf_view_equal(text, sf_view_str("ERROR")))
        return sf_catalog_sync_state(SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_ERROR,
                                     sf_arena_str(arena, sf_sql_col_text(stmt, at + 2)), arena);
    return sf_catalog_sync_state(SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_APPLYING, "", arena);
}

/* Fills one field from the SQL column `at`. */
static enum sf_err read_column(struct sf_sql_stmt *stmt, int at, const struct column *column,
                               const struct path *path, ProtobufCMessage *row,
                               struct sf_arena *arena, struct sf_diag *diag)
{
    if (sf_sql_col_is_null(stmt, at))
        return column->kind == COLUMN_JSON_REQUIRED ? broken_row(diag, column) : SF_OK;
    ProtobufCMessage *owner = field_owner_made(row, path, arena);
    if (owner == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "too many rows at once");
    const ProtobufCFieldDescriptor *field = path->steps[path->depth - 1];
    char *slot = (char *)owner + field->offset;
    struct sf_view text = {0};
    union {
        uint64_t u64;
        int64_t i64;
        int32_t small;
        void *pointer;
    } value = {0};
    enum sf_err err = SF_OK;
    switch (column->kind) {
    case COLUMN_U64:
        value.u64 = sf_sql_col_u64(stmt, at);
        memcpy(slot, &value.u64, sizeof(value.u64));
        break;
    case COLUMN_I64:
        value.i64 = sf_sql_col_i64(stmt, at);
        memcpy(slot, &value.i64, sizeof(value.i64));
        break;
    case COLUMN_SMALL:
        value.small = (int32_t)sf_sql_col_i64(stmt, at);
        memcpy(slot, &value.small, sizeof(value.small));
        break;
    case COLUMN_ENUM:
        err = read_enum(stmt, at, column, field, diag, &value.small);
        memcpy(slot, &value.small, sizeof(value.small));
        break;
    case COLUMN_TEXT:
        value.pointer = sf_arena_str(arena, sf_sql_col_text(stmt, at));
        memcpy(slot, &value.pointer, sizeof(value.pointer));
        break;
    case COLUMN_SYNC:
        value.pointer = read_sync(stmt, at, arena);
        memcpy(slot, &value.pointer, sizeof(value.pointer));
        break;
    default:
        text = sf_sql_col_text(stmt, at);
        bool empty = sf_view_equal(text, sf_view_str("{}"));
        if (empty && column->kind == COLUMN_JSON_REQUIRED)
            return broken_row(diag, column);
        if (empty && column->kind == COLUMN_JSON_OR_EMPTY)
            return SF_OK;
        ProtobufCMessage *message = NULL;
        err = sf_pbjson_decode(field->descriptor, text, arena, diag, &message);
        if (err != SF_OK)
            return err == SF_ERR_LIMIT ? err : broken_row(diag, column);
        memcpy(slot, &message, sizeof(message));
        break;
    }
    mark_present(owner, field);
    return err;
}

/* Does a derived column say what its field says? NULL is the same as zero or no text. */
static bool column_says(struct sf_sql_stmt *stmt, int at, const struct column *column,
                        const struct path *path, const ProtobufCMessage *row)
{
    const ProtobufCMessage *owner = field_owner(row, path);
    const ProtobufCFieldDescriptor *field = path->steps[path->depth - 1];
    const char *slot = owner == NULL ? NULL : (const char *)owner + field->offset;
    bool null = sf_sql_col_is_null(stmt, at);
    uint64_t u64 = 0;
    int32_t small = 0;
    const char *text = "";
    const ProtobufCEnumValue *named;
    switch (column->kind) {
    case COLUMN_U64:
    case COLUMN_I64:
        if (slot != NULL)
            memcpy(&u64, slot, sizeof(u64));
        return u64 == (null                         ? 0
                       : column->kind == COLUMN_U64 ? sf_sql_col_u64(stmt, at)
                                                    : (uint64_t)sf_sql_col_i64(stmt, at));
    case COLUMN_SMALL:
        if (slot != NULL)
            memcpy(&small, slot, sizeof(small));
        return small == (null ? 0 : sf_sql_col_i64(stmt, at));
    case COLUMN_ENUM:
        if (slot != NULL)
            memcpy(&small, slot, sizeof(small));
        named = protobuf_c_enum_descriptor_get_value(field->descriptor, small);
        text = named == NULL ? "" : named->name + strlen(column->prefix);
        return !null && sf_view_equal(sf_sql_col_text(stmt, at), sf_view_str(text));
    case COLUMN_TEXT:
        if (slot != NULL)
            memcpy(&text, slot, sizeof(text));
        return null ? text[0] == '\0' : sf_view_equal(sf_sql_col_text(stmt, at), sf_view_str(text));
    default:
        return true;
    }
}

/* Do all of them? */
static bool columns_say(struct sf_sql_stmt *stmt, enum sf_catalog_table t,
                        const ProtobufCMessage *row)
{
    int at = 0;
    for (size_t i = 0; i < tables[t].column_count; i++) {
        const struct column *column = &tables[t].columns[i];
        if (column->derived && !column_says(stmt, at, column, &prepared[t].paths[i], row))
            return false;
        at += column_span(column);
    }
    return true;
}

/* The present row as a message. */
static enum sf_err read_row(struct sf_sql_stmt *stmt, enum sf_catalog_table t,
                            struct sf_arena *arena, struct sf_diag *diag,
                            ProtobufCMessage **out_row, size_t *io_bytes)
{
    const struct table *table = &tables[t];
    ProtobufCMessage *row = message_new(table->row, arena);
    if (row == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "too many rows at once");
    enum sf_err err = SF_OK;
    int at = 0;
    for (size_t i = 0; i < table->column_count && err == SF_OK; i++) {
        const struct column *column = &table->columns[i];
        if (column->kind >= COLUMN_TEXT)
            *io_bytes += sf_sql_col_text(stmt, at).len;
        if (!column->derived)
            err = read_column(stmt, at, column, &prepared[t].paths[i], row, arena, diag);
        at += column_span(column);
    }
    if (err == SF_OK && sf_arena_overflowed(arena))
        err = sf_diag_set(diag, SF_ERR_LIMIT, "too many rows at once");
    *out_row = row;
    return err;
}

/* ---- walking ------------------------------------------------------------------------------ */

void sf_catalog_cursor_fini(struct sf_catalog_cursor *cursor)
{
    for (size_t i = 0; i < SF_CATALOG_KEY_COLUMNS; i++)
        sf_buf_fini(&cursor->texts[i]);
}

void sf_catalog_cursor_before(struct sf_catalog_cursor *cursor, enum sf_catalog_table table,
                              uint64_t namespace_id)
{
    SF_ASSERT(strcmp(tables[table].columns[0].name, "namespace_id") == 0);
    cursor->started = true;
    cursor->level = tables[table].key_count;
    /* with one key column the query is for what lies beyond it */
    cursor->numbers[0] = cursor->level == 1 && namespace_id > 0 ? namespace_id - 1 : namespace_id;
}

uint64_t sf_catalog_row_namespace(enum sf_catalog_table table, const ProtobufCMessage *row)
{
    if (strcmp(tables[table].columns[0].name, "namespace_id") != 0)
        return 0;
    pthread_once(&prepare_once, prepare_tables);
    const struct path *path = &prepared[table].paths[0];
    const ProtobufCMessage *owner = field_owner(row, path);
    uint64_t namespace_id = 0;
    if (owner != NULL)
        memcpy(&namespace_id, (const char *)owner + path->steps[path->depth - 1]->offset,
               sizeof(namespace_id));
    return namespace_id;
}

static void cursor_move(const struct table *table, struct sf_catalog_cursor *cursor,
                        struct sf_sql_stmt *stmt)
{
    cursor->started = true;
    for (size_t i = 0; i < table->key_count; i++) {
        if (table->columns[i].kind != COLUMN_TEXT) {
            cursor->numbers[i] = sf_sql_col_u64(stmt, (int)i);
            continue;
        }
        struct sf_view text = sf_sql_col_text(stmt, (int)i);
        sf_buf_clear(&cursor->texts[i]);
        sf_buf_append(&cursor->texts[i], text.ptr, text.len);
    }
}

static void cursor_bind(const struct table *table, const struct sf_catalog_cursor *cursor,
                        struct sf_sql_stmt *stmt, size_t limit)
{
    for (size_t i = 0; i < cursor->level; i++) {
        if (table->columns[i].kind == COLUMN_TEXT)
            sf_sql_bind_text(stmt, (int)i + 1, sf_buf_view(&cursor->texts[i]));
        else
            sf_sql_bind_u64(stmt, (int)i + 1, cursor->numbers[i]);
    }
    sf_sql_bind_i64(stmt, (int)cursor->level + 1, (int64_t)limit);
}

/* The present row does not decode: its key is kept. */
static enum sf_err skip_row(struct sf_sql_stmt *stmt, const struct table *table,
                            struct sf_arena *arena, struct sf_diag *diag,
                            struct sf_catalog_batch *batch)
{
    struct sf_buf text = {0};
    for (size_t i = 0; i < table->key_count; i++) {
        struct sf_view column = sf_sql_col_text(stmt, (int)i);
        if (table->columns[i].kind == COLUMN_TEXT)
            sf_buf_printf(&text, "%s%.*s", i == 0 ? "" : "/", (int)column.len,
                          (const char *)column.ptr);
        else
            sf_buf_printf(&text, "%s%" PRIu64, i == 0 ? "" : "/", sf_sql_col_u64(stmt, (int)i));
    }
    char *key = sf_arena_str(arena, sf_buf_view(&text));
    sf_buf_fini(&text);
    if (key == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "too many rows at once");
    batch->broken[batch->broken_count++] = key;
    sf_diag_init(diag);
    return SF_OK;
}

/* One query's rows; *out_more: it was left before its end. */
static enum sf_err read_page(struct sf_sql_conn *conn, enum sf_catalog_table t,
                             struct sf_catalog_cursor *cursor, size_t max_rows, size_t max_bytes,
                             struct sf_arena *arena, struct sf_diag *diag,
                             struct sf_catalog_batch *batch, bool *out_more)
{
    struct sf_sql_stmt *stmt;
    size_t limit = max_rows - batch->count - batch->broken_count;
    enum sf_err err = sf_sql_prepare(conn, prepared[t].select[cursor->level], diag, &stmt);
    if (err != SF_OK)
        return err;
    cursor_bind(&tables[t], cursor, stmt, limit);
    *out_more = true;
    while (batch->count + batch->broken_count < max_rows && batch->text_bytes < max_bytes) {
        bool row = false;
        err = sf_sql_step(stmt, diag, &row);
        if (err != SF_OK || !row) {
            *out_more = false;
            break;
        }
        err = read_row(stmt, t, arena, diag, &batch->rows[batch->count], &batch->text_bytes);
        bool skip = err == SF_ERR_CORRUPT && cursor->skips;
        if (skip)
            err = skip_row(stmt, &tables[t], arena, diag, batch);
        if (err != SF_OK)
            break;
        cursor_move(&tables[t], cursor, stmt);
        if (!skip && cursor->skips)
            batch->odd[batch->count] = !columns_say(stmt, t, batch->rows[batch->count]);
        batch->count += skip ? 0 : 1;
    }
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_catalog_rows_read(struct sf_sql_conn *conn, enum sf_catalog_table table,
                                 struct sf_catalog_cursor *cursor, size_t max_rows,
                                 size_t max_bytes, struct sf_arena *arena, struct sf_diag *diag,
                                 struct sf_catalog_batch *out_batch)
{
    pthread_once(&prepare_once, prepare_tables);
    *out_batch = (struct sf_catalog_batch){0};
    out_batch->rows = sf_arena_alloc(arena, (max_rows + 1) * sizeof(*out_batch->rows));
    out_batch->broken = sf_arena_alloc(arena, (max_rows + 1) * sizeof(*out_batch->broken));
    out_batch->odd = sf_arena_alloc(arena, (max_rows + 1) * sizeof(*out_batch->odd));
    if (out_batch->rows == NULL || out_batch->broken == NULL || out_batch->odd == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "too many rows at once");
    while (!cursor->ended && out_batch->count + out_batch->broken_count < max_rows &&
           out_batch->text_bytes < max_bytes) {
        size_t level = cursor->level;
        bool more;
        enum sf_err err =
            read_page(conn, table, cursor, max_rows, max_bytes, arena, diag, out_batch, &more);
        if (err != SF_OK)
            return err;
        /* at this level's end: on to the next value of the key before it */
        cursor->level = more ? tables[table].key_count : level == 0 ? 0 : level - 1;
        cursor->ended = !more && level <= 1;
        if (more)
            break;
    }
    return SF_OK;
}

/* ---- writing ------------------------------------------------------------------------------ */

static void bind_sync_columns(struct sf_sql_stmt *stmt, int at,
                              const SF_PB(SchemaSyncState) * state)
{
    const char *name = "APPLYING";
    sf_sql_bind_null(stmt, at + 1);
    sf_sql_bind_null(stmt, at + 2);
    if (state != NULL && state->state_case == SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY) {
        name = "READY";
    } else if (state != NULL &&
               state->state_case == SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_DRIFTED) {
        name = "DRIFTED";
        sf_sql_bind_text(stmt, at + 1, sf_view_str(state->drifted->drift_reason));
    } else if (state != NULL &&
               state->state_case == SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_ERROR) {
        name = "ERROR";
        sf_sql_bind_text(stmt, at + 2, sf_view_str(state->error->error_reason));
    }
    sf_sql_bind_text(stmt, at, sf_view_str(name));
}

static void bind_message(struct sf_sql_stmt *stmt, int at, const char *slot)
{
    const ProtobufCMessage *message;
    struct sf_buf json = {0};
    memcpy(&message, slot, sizeof(message));
    sf_pbjson_encode(message, &json);
    sf_sql_bind_text(stmt, at, sf_buf_view(&json));
    sf_buf_fini(&json);
}

static void bind_absent(struct sf_sql_stmt *stmt, int at, const struct column *column)
{
    if (column->kind == COLUMN_JSON_OR_EMPTY)
        sf_sql_bind_text(stmt, at, sf_view_str("{}"));
    else if (column->kind == COLUMN_SYNC)
        bind_sync_columns(stmt, at, NULL);
    else
        sf_sql_bind_null(stmt, at);
}

/* Binds one column from the row. */
static void bind_column(struct sf_sql_stmt *stmt, int at, const struct column *column,
                        const struct path *path, const ProtobufCMessage *row)
{
    const ProtobufCMessage *owner = field_owner(row, path);
    const ProtobufCFieldDescriptor *field = path->steps[path->depth - 1];
    if (owner == NULL || !field_present(owner, field)) {
        bind_absent(stmt, at, column);
        return;
    }
    const char *slot = (const char *)owner + field->offset;
    uint64_t u64;
    int64_t i64;
    int32_t small;
    const char *text;
    const ProtobufCEnumValue *named;
    switch (column->kind) {
    case COLUMN_U64:
        memcpy(&u64, slot, sizeof(u64));
        sf_sql_bind_u64(stmt, at, u64);
        break;
    case COLUMN_I64:
        memcpy(&i64, slot, sizeof(i64));
        sf_sql_bind_i64(stmt, at, i64);
        break;
    case COLUMN_SMALL:
        memcpy(&small, slot, sizeof(small));
        sf_sql_bind_i64(stmt, at, small);
        break;
    case COLUMN_ENUM:
        memcpy(&small, slot, sizeof(small));
        named = protobuf_c_enum_descriptor_get_value(field->descriptor, small);
        sf_sql_bind_text(stmt, at,
                         sf_view_str(named == NULL ? "" : named->name + strlen(column->prefix)));
        break;
    case COLUMN_TEXT:
        memcpy(&text, slot, sizeof(text));
        sf_sql_bind_text(stmt, at, sf_view_str(text));
        break;
    case COLUMN_SYNC: {
        const SF_PB(SchemaSyncState) * state;
        memcpy(&state, slot, sizeof(state));
        bind_sync_columns(stmt, at, state);
        break;
    }
    default:
        bind_message(stmt, at, slot);
        break;
    }
}

enum sf_err sf_catalog_rows_insert(struct sf_sql_conn *conn, enum sf_catalog_table t,
                                   const ProtobufCMessage *row, struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    pthread_once(&prepare_once, prepare_tables);
    if (t == SF_CATALOG_TABLE_REPLAY) {
        bool fresh = false;
        enum sf_err err = sf_catalog_project_replay(
            conn, ((const SF_PB(ReplayIndexRow) *)row)->outcome, diag, &fresh);
        return err == SF_OK && !fresh ? sf_diag_set(diag, SF_ERR_EXISTS, "a record stands") : err;
    }
    enum sf_err err = sf_sql_prepare(conn, prepared[t].insert, diag, &stmt);
    if (err != SF_OK)
        return err;
    int at = 1;
    for (size_t i = 0; i < tables[t].column_count; i++) {
        bind_column(stmt, at, &tables[t].columns[i], &prepared[t].paths[i], row);
        at += column_span(&tables[t].columns[i]);
    }
    return sf_sql_run(stmt, diag, NULL);
}

static void bind_key(struct sf_sql_stmt *stmt, enum sf_catalog_table t, const ProtobufCMessage *row)
{
    for (size_t i = 0; i < tables[t].key_count; i++)
        bind_column(stmt, (int)i + 1, &tables[t].columns[i], &prepared[t].paths[i], row);
}

enum sf_err sf_catalog_rows_delete(struct sf_sql_conn *conn, enum sf_catalog_table t,
                                   const ProtobufCMessage *row, struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    pthread_once(&prepare_once, prepare_tables);
    enum sf_err err = sf_sql_prepare(conn, prepared[t].remove, diag, &stmt);
    if (err != SF_OK)
        return err;
    bind_key(stmt, t, row);
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_catalog_rows_find(struct sf_sql_conn *conn, enum sf_catalog_table t,
                                 const ProtobufCMessage *like, struct sf_arena *arena,
                                 struct sf_diag *diag, ProtobufCMessage **out_row)
{
    bool odd;
    return sf_catalog_rows_look(conn, t, like, arena, diag, out_row, &odd);
}

enum sf_err sf_catalog_rows_look(struct sf_sql_conn *conn, enum sf_catalog_table t,
                                 const ProtobufCMessage *like, struct sf_arena *arena,
                                 struct sf_diag *diag, ProtobufCMessage **out_row, bool *out_odd)
{
    struct sf_sql_stmt *stmt;
    bool row = false;
    size_t bytes = 0;
    *out_row = NULL;
    *out_odd = false;
    pthread_once(&prepare_once, prepare_tables);
    enum sf_err err =
        sf_sql_prepare(conn, prepared[t].select[SF_CATALOG_KEY_COLUMNS + 1], diag, &stmt);
    if (err != SF_OK)
        return err;
    bind_key(stmt, t, like);
    err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row)
        err = read_row(stmt, t, arena, diag, out_row, &bytes);
    *out_odd = err == SF_OK && row && !columns_say(stmt, t, *out_row);
    sf_sql_finish(stmt);
    return err;
}
