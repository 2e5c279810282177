/*
 * Model: reading fills the fields of a row message from the columns, writing binds the columns from
 * the fields (catalog_rows_tables.c says which), so that a row survives both ways.
 *
 * A walk reads pages by key: first on within the last row's leading keys, then over the next
 * values, so that every query is a range of the primary key and the whole walk is linear.
 */
#include "catalog/catalog_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/pbjson.h"
#include "catalog/catalog_rows_priv.h"
#include "catalog/catalog_rules.h"

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
static const ProtobufCMessage *field_owner(const ProtobufCMessage *row,
                                           const struct sf_rows_path *path)
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
static ProtobufCMessage *field_owner_made(ProtobufCMessage *row, const struct sf_rows_path *path,
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

static enum sf_err broken_row(struct sf_diag *diag, const struct sf_rows_column *column)
{
    return sf_diag_set(diag, SF_ERR_CORRUPT, "a projected row has a broken %s", column->name);
}

static enum sf_err read_enum(struct sf_sql_stmt *stmt, int at, const struct sf_rows_column *column,
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
static enum sf_err read_column(struct sf_sql_stmt *stmt, int at,
                               const struct sf_rows_column *column, const struct sf_rows_path *path,
                               ProtobufCMessage *row, struct sf_arena *arena, struct sf_diag *diag)
{
    if (sf_sql_col_is_null(stmt, at))
        return column->kind == SF_ROWS_JSON_REQUIRED ? broken_row(diag, column) : SF_OK;
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
    case SF_ROWS_U64:
        value.u64 = sf_sql_col_u64(stmt, at);
        memcpy(slot, &value.u64, sizeof(value.u64));
        break;
    case SF_ROWS_I64:
        value.i64 = sf_sql_col_i64(stmt, at);
        memcpy(slot, &value.i64, sizeof(value.i64));
        break;
    case SF_ROWS_SMALL:
        value.small = (int32_t)sf_sql_col_i64(stmt, at);
        memcpy(slot, &value.small, sizeof(value.small));
        break;
    case SF_ROWS_ENUM:
        err = read_enum(stmt, at, column, field, diag, &value.small);
        memcpy(slot, &value.small, sizeof(value.small));
        break;
    case SF_ROWS_TEXT:
        value.pointer = sf_arena_str(arena, sf_sql_col_text(stmt, at));
        memcpy(slot, &value.pointer, sizeof(value.pointer));
        break;
    case SF_ROWS_SYNC:
        value.pointer = read_sync(stmt, at, arena);
        memcpy(slot, &value.pointer, sizeof(value.pointer));
        break;
    default:
        text = sf_sql_col_text(stmt, at);
        bool empty = sf_view_equal(text, sf_view_str("{}"));
        if (empty && column->kind == SF_ROWS_JSON_REQUIRED)
            return broken_row(diag, column);
        if (empty && column->kind == SF_ROWS_JSON_OR_EMPTY)
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
static bool column_says(struct sf_sql_stmt *stmt, int at, const struct sf_rows_column *column,
                        const struct sf_rows_path *path, const ProtobufCMessage *row)
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
    case SF_ROWS_U64:
    case SF_ROWS_I64:
        if (slot != NULL)
            memcpy(&u64, slot, sizeof(u64));
        return u64 == (null                          ? 0
                       : column->kind == SF_ROWS_U64 ? sf_sql_col_u64(stmt, at)
                                                     : (uint64_t)sf_sql_col_i64(stmt, at));
    case SF_ROWS_SMALL:
        if (slot != NULL)
            memcpy(&small, slot, sizeof(small));
        return small == (null ? 0 : sf_sql_col_i64(stmt, at));
    case SF_ROWS_ENUM:
        if (slot != NULL)
            memcpy(&small, slot, sizeof(small));
        named = protobuf_c_enum_descriptor_get_value(field->descriptor, small);
        text = named == NULL ? "" : named->name + strlen(column->prefix);
        return !null && sf_view_equal(sf_sql_col_text(stmt, at), sf_view_str(text));
    case SF_ROWS_TEXT:
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
    for (size_t i = 0; i < sf_rows_tables[t].column_count; i++) {
        const struct sf_rows_column *column = &sf_rows_tables[t].columns[i];
        if (column->derived && !column_says(stmt, at, column, &sf_rows_prepared[t].paths[i], row))
            return false;
        at += sf_rows_span(column);
    }
    return true;
}

/* The present row as a message. */
static enum sf_err read_row(struct sf_sql_stmt *stmt, enum sf_catalog_table t,
                            struct sf_arena *arena, struct sf_diag *diag,
                            ProtobufCMessage **out_row, size_t *io_bytes)
{
    const struct sf_rows_table *table = &sf_rows_tables[t];
    ProtobufCMessage *row = message_new(table->row, arena);
    if (row == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "too many rows at once");
    enum sf_err err = SF_OK;
    int at = 0;
    for (size_t i = 0; i < table->column_count && err == SF_OK; i++) {
        const struct sf_rows_column *column = &table->columns[i];
        if (column->kind >= SF_ROWS_TEXT)
            *io_bytes += sf_sql_col_text(stmt, at).len;
        if (!column->derived)
            err = read_column(stmt, at, column, &sf_rows_prepared[t].paths[i], row, arena, diag);
        at += sf_rows_span(column);
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
    SF_ASSERT(strcmp(sf_rows_tables[table].columns[0].name, "namespace_id") == 0);
    cursor->started = true;
    cursor->level = sf_rows_tables[table].key_count;
    /* with one key column the query is for what lies beyond it */
    cursor->numbers[0] = cursor->level == 1 && namespace_id > 0 ? namespace_id - 1 : namespace_id;
}

uint64_t sf_catalog_row_namespace(enum sf_catalog_table table, const ProtobufCMessage *row)
{
    if (strcmp(sf_rows_tables[table].columns[0].name, "namespace_id") != 0)
        return 0;
    sf_rows_prepare();
    const struct sf_rows_path *path = &sf_rows_prepared[table].paths[0];
    const ProtobufCMessage *owner = field_owner(row, path);
    uint64_t namespace_id = 0;
    if (owner != NULL)
        memcpy(&namespace_id, (const char *)owner + path->steps[path->depth - 1]->offset,
               sizeof(namespace_id));
    return namespace_id;
}

static void cursor_move(const struct sf_rows_table *table, struct sf_catalog_cursor *cursor,
                        struct sf_sql_stmt *stmt)
{
    cursor->started = true;
    for (size_t i = 0; i < table->key_count; i++) {
        if (table->columns[i].kind != SF_ROWS_TEXT) {
            cursor->numbers[i] = sf_sql_col_u64(stmt, (int)i);
            continue;
        }
        struct sf_view text = sf_sql_col_text(stmt, (int)i);
        sf_buf_clear(&cursor->texts[i]);
        sf_buf_append(&cursor->texts[i], text.ptr, text.len);
    }
}

static void cursor_bind(const struct sf_rows_table *table, const struct sf_catalog_cursor *cursor,
                        struct sf_sql_stmt *stmt, size_t limit)
{
    for (size_t i = 0; i < cursor->level; i++) {
        if (table->columns[i].kind == SF_ROWS_TEXT)
            sf_sql_bind_text(stmt, (int)i + 1, sf_buf_view(&cursor->texts[i]));
        else
            sf_sql_bind_u64(stmt, (int)i + 1, cursor->numbers[i]);
    }
    sf_sql_bind_i64(stmt, (int)cursor->level + 1, (int64_t)limit);
}

/* The present row does not decode: its key is kept. */
static enum sf_err skip_row(struct sf_sql_stmt *stmt, const struct sf_rows_table *table,
                            struct sf_arena *arena, struct sf_diag *diag,
                            struct sf_catalog_batch *batch)
{
    struct sf_buf text = {0};
    for (size_t i = 0; i < table->key_count; i++) {
        struct sf_view column = sf_sql_col_text(stmt, (int)i);
        if (table->columns[i].kind == SF_ROWS_TEXT)
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
    enum sf_err err = sf_sql_prepare(conn, sf_rows_prepared[t].select[cursor->level], diag, &stmt);
    if (err != SF_OK)
        return err;
    cursor_bind(&sf_rows_tables[t], cursor, stmt, limit);
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
            err = skip_row(stmt, &sf_rows_tables[t], arena, diag, batch);
        if (err != SF_OK)
            break;
        cursor_move(&sf_rows_tables[t], cursor, stmt);
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
    sf_rows_prepare();
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
        cursor->level = more ? sf_rows_tables[table].key_count : level == 0 ? 0 : level - 1;
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

static void bind_absent(struct sf_sql_stmt *stmt, int at, const struct sf_rows_column *column)
{
    if (column->kind == SF_ROWS_JSON_OR_EMPTY)
        sf_sql_bind_text(stmt, at, sf_view_str("{}"));
    else if (column->kind == SF_ROWS_SYNC)
        bind_sync_columns(stmt, at, NULL);
    else
        sf_sql_bind_null(stmt, at);
}

/* Binds one column from the row. */
static void bind_column(struct sf_sql_stmt *stmt, int at, const struct sf_rows_column *column,
                        const struct sf_rows_path *path, const ProtobufCMessage *row)
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
    case SF_ROWS_U64:
        memcpy(&u64, slot, sizeof(u64));
        sf_sql_bind_u64(stmt, at, u64);
        break;
    case SF_ROWS_I64:
        memcpy(&i64, slot, sizeof(i64));
        sf_sql_bind_i64(stmt, at, i64);
        break;
    case SF_ROWS_SMALL:
        memcpy(&small, slot, sizeof(small));
        sf_sql_bind_i64(stmt, at, small);
        break;
    case SF_ROWS_ENUM:
        memcpy(&small, slot, sizeof(small));
        named = protobuf_c_enum_descriptor_get_value(field->descriptor, small);
        sf_sql_bind_text(stmt, at,
                         sf_view_str(named == NULL ? "" : named->name + strlen(column->prefix)));
        break;
    case SF_ROWS_TEXT:
        memcpy(&text, slot, sizeof(text));
        sf_sql_bind_text(stmt, at, sf_view_str(text));
        break;
    case SF_ROWS_SYNC: {
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
    sf_rows_prepare();
    if (t == SF_CATALOG_TABLE_REPLAY) {
        bool fresh = false;
        enum sf_err err = sf_catalog_project_replay(
            conn, ((const SF_PB(ReplayIndexRow) *)row)->outcome, diag, &fresh);
        return err == SF_OK && !fresh ? sf_diag_set(diag, SF_ERR_EXISTS, "a record stands") : err;
    }
    enum sf_err err = sf_sql_prepare(conn, sf_rows_prepared[t].insert, diag, &stmt);
    if (err != SF_OK)
        return err;
    int at = 1;
    for (size_t i = 0; i < sf_rows_tables[t].column_count; i++) {
        bind_column(stmt, at, &sf_rows_tables[t].columns[i], &sf_rows_prepared[t].paths[i], row);
        at += sf_rows_span(&sf_rows_tables[t].columns[i]);
    }
    return sf_sql_run(stmt, diag, NULL);
}

static void bind_key(struct sf_sql_stmt *stmt, enum sf_catalog_table t, const ProtobufCMessage *row)
{
    for (size_t i = 0; i < sf_rows_tables[t].key_count; i++)
        bind_column(stmt, (int)i + 1, &sf_rows_tables[t].columns[i], &sf_rows_prepared[t].paths[i],
                    row);
}

enum sf_err sf_catalog_rows_delete(struct sf_sql_conn *conn, enum sf_catalog_table t,
                                   const ProtobufCMessage *row, struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    sf_rows_prepare();
    enum sf_err err = sf_sql_prepare(conn, sf_rows_prepared[t].remove, diag, &stmt);
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
    sf_rows_prepare();
    enum sf_err err =
        sf_sql_prepare(conn, sf_rows_prepared[t].select[SF_CATALOG_KEY_COLUMNS + 1], diag, &stmt);
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
