/*
 * Model: a table is a list of columns; a column names its field in the row message, dots lead into
 * messages inside. SQL texts are built once and kept, as statements are cached by the address of
 * their text. Derived columns (keys of a row that is one JSON value) are written and not read. The
 * replay index is written by the code that shows commands, for its columns are a function of the
 * record.
 */
#include "catalog/catalog_rows_priv.h"

#include <pthread.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

static const struct sf_rows_column namespace_columns[] = {
    {"namespace_id", SF_ROWS_U64, "namespace_id", NULL, false},
    {"namespace_name", SF_ROWS_TEXT, "namespace_name", NULL, false},
    {"namespace_name_allocation_epoch", SF_ROWS_U64, "namespace_name_allocation_epoch", NULL,
     false},
    {"namespace_revision", SF_ROWS_U64, "namespace_revision", NULL, false},
    {"lifecycle_state", SF_ROWS_ENUM, "lifecycle_state", "NAMESPACE_LIFECYCLE_STATE_", false},
    {"lifecycle_updated_at_unix_ms", SF_ROWS_I64, "lifecycle_updated_at_unix_ms", NULL, false},
    {"lifecycle_gc_after_unix_ms", SF_ROWS_I64, "lifecycle_gc_after_unix_ms", NULL, false},
    {"collection_name_binding_revision", SF_ROWS_U64, "collection_name_binding_revision", NULL,
     false},
    {"options_json", SF_ROWS_JSON, "options", NULL, false},
    {"encryption_json", SF_ROWS_JSON_REQUIRED, "encryption", NULL, false},
    {"approx_stats_json", SF_ROWS_JSON, "approx_stats", NULL, false},
    {"index_json", SF_ROWS_JSON, "index", NULL, false},
    {"internal_policy_state_json", SF_ROWS_JSON_OR_EMPTY, "internal_policy_state", NULL, false},
    {"created_at_unix_ms", SF_ROWS_I64, "created_at_unix_ms", NULL, false},
    {"updated_at_unix_ms", SF_ROWS_I64, "updated_at_unix_ms", NULL, false},
};

static const struct sf_rows_column collection_columns[] = {
    {"namespace_id", SF_ROWS_U64, "collection.namespace_id", NULL, false},
    {"collection_id", SF_ROWS_U64, "collection.collection_id", NULL, false},
    {"collection_name", SF_ROWS_TEXT, "collection_name", NULL, false},
    {"collection_name_allocation_epoch", SF_ROWS_U64, "collection_name_allocation_epoch", NULL,
     false},
    {"descriptor_revision", SF_ROWS_U64, "descriptor_revision", NULL, false},
    {"active_schema_version", SF_ROWS_U64, "active_schema_version", NULL, false},
    {"active_schema_generation_token", SF_ROWS_TEXT, "active_schema_generation_token", NULL, false},
    {"collection_truth_mode", SF_ROWS_SMALL, "collection_truth_mode", NULL, false},
    {"lifecycle_state", SF_ROWS_ENUM, "lifecycle_state", "COLLECTION_ADMISSION_LIFECYCLE_", false},
    {"drop_revision", SF_ROWS_U64, "drop_revision", NULL, false},
    {"dropped_at_unix_ms", SF_ROWS_I64, "dropped_at_unix_ms", NULL, false},
    {"gc_after_unix_ms", SF_ROWS_I64, "gc_after_unix_ms", NULL, false},
    {"committed_manifest_version", SF_ROWS_U64, "committed_manifest_version", NULL, false},
    {"committed_manifest_checksum_or_etag", SF_ROWS_TEXT, "committed_manifest_checksum_or_etag",
     NULL, false},
    {"options_json", SF_ROWS_JSON, "options", NULL, false},
    {"encryption_json", SF_ROWS_JSON_REQUIRED, "encryption", NULL, false},
    {"approx_stats_json", SF_ROWS_JSON, "approx_stats", NULL, false},
    {"index_json", SF_ROWS_JSON, "index", NULL, false},
    {"manifest_head_version", SF_ROWS_U64, "manifest_head_version", NULL, false},
    {"expected_previous_head", SF_ROWS_I64, "expected_previous_head", NULL, false},
    {"manifest_head_last_update_epoch", SF_ROWS_U64, "manifest_head_last_update_epoch", NULL,
     false},
    {"manifest_head_reconciler_status", SF_ROWS_ENUM, "manifest_head_reconciler_status",
     "MANIFEST_HEAD_RECONCILER_STATUS_", false},
    {"internal_policy_state_json", SF_ROWS_JSON_OR_EMPTY, "internal_policy_state", NULL, false},
    {"created_at_unix_ms", SF_ROWS_I64, "created_at_unix_ms", NULL, false},
    {"updated_at_unix_ms", SF_ROWS_I64, "updated_at_unix_ms", NULL, false},
};

static const struct sf_rows_column generation_columns[] = {
    {"namespace_id", SF_ROWS_U64, "body.collection.namespace_id", NULL, false},
    {"collection_id", SF_ROWS_U64, "body.collection.collection_id", NULL, false},
    {"schema_version", SF_ROWS_U64, "body.schema_version", NULL, false},
    {"schema_generation_token", SF_ROWS_TEXT, "body.schema_generation_token", NULL, false},
    {"collection_truth_mode", SF_ROWS_SMALL, "body.definition.collection_truth_mode", NULL, true},
    {"schema_definition_json", SF_ROWS_JSON_REQUIRED, "body.definition", NULL, false},
    {"ddl_commit_ts", SF_ROWS_U64, "body.ddl_commit_ts", NULL, false},
    {"applied_commit_ts", SF_ROWS_U64, "body.applied_commit_ts", NULL, false},
    {"active_schema_update_policy", SF_ROWS_SMALL, "body.active_schema_update_policy", NULL, false},
    {"effective_max_result_window", SF_ROWS_SMALL, "body.effective_max_result_window", NULL, false},
    {"sync_state", SF_ROWS_SYNC, "convergence.state", NULL, false},
    {"created_at_unix_ms", SF_ROWS_I64, "body.created_at_unix_ms", NULL, false},
    {"updated_at_unix_ms", SF_ROWS_I64, "updated_at_unix_ms", NULL, false},
};

static const struct sf_rows_column tombstone_columns[] = {
    {"namespace_id", SF_ROWS_U64, "tombstone.collection.namespace_id", NULL, true},
    {"collection_id", SF_ROWS_U64, "tombstone.collection.collection_id", NULL, true},
    {"drop_revision", SF_ROWS_U64, "tombstone.drop_revision", NULL, true},
    {"tombstone_json", SF_ROWS_JSON_REQUIRED, "tombstone", NULL, false},
};

static const struct sf_rows_column quota_columns[] = {
    {"namespace_id", SF_ROWS_U64, "state.namespace_id", NULL, true},
    {"quota_epoch", SF_ROWS_U64, "state.quota_epoch", NULL, true},
    {"quota_state_json", SF_ROWS_JSON_REQUIRED, "state", NULL, false},
    {"last_refill_at_unix_ms", SF_ROWS_I64, "state.last_refill_at_unix_ms", NULL, true},
    {"updated_at_unix_ms", SF_ROWS_I64, "state.updated_at_unix_ms", NULL, true},
};

static const struct sf_rows_column namespace_name_columns[] = {
    {"namespace_name", SF_ROWS_TEXT, "name", NULL, false},
    {"last_allocated_epoch", SF_ROWS_U64, "last_allocated_epoch", NULL, false},
};

static const struct sf_rows_column collection_name_columns[] = {
    {"namespace_id", SF_ROWS_U64, "namespace_id", NULL, false},
    {"collection_name", SF_ROWS_TEXT, "name", NULL, false},
    {"last_allocated_epoch", SF_ROWS_U64, "last_allocated_epoch", NULL, false},
};

static const struct sf_rows_column replay_columns[] = {
    {"command_identity", SF_ROWS_TEXT, "outcome.command_identity", NULL, true},
    {"original_outcome_json", SF_ROWS_JSON_REQUIRED, "outcome", NULL, false},
    {"command_object_key", SF_ROWS_TEXT, "command_object_key", NULL, false},
    {"transport_lookup_key", SF_ROWS_TEXT, "outcome.transport_lookup_key", NULL, true},
    {"command_kind", SF_ROWS_ENUM, "outcome.command_kind", "COMMAND_KIND_", true},
    {"namespace_id", SF_ROWS_U64, "outcome.scope.namespace_id", NULL, true},
    {"collection_id", SF_ROWS_U64, "outcome.scope.collection_id", NULL, true},
    {"payload_fingerprint", SF_ROWS_TEXT, "outcome.payload_fingerprint", NULL, true},
    {"terminal_state", SF_ROWS_ENUM, "outcome.terminal_state", "COMMAND_TERMINAL_STATE_", true},
    {"created_ts", SF_ROWS_U64, "outcome.created_ts", NULL, true},
    {"applied_ts", SF_ROWS_U64, "outcome.applied_ts", NULL, true},
};

#define TABLE(sql_name, shard_field, message, keys, list)                                          \
    {                                                                                              \
        .name = (sql_name), .field = (shard_field),                                                \
        .row = &searchfabric__v1__##message##_row__descriptor, .key_count = (keys),                \
        .columns = (list), .column_count = SF_ARRAY_LEN(list)                                      \
    }

const struct sf_rows_table sf_rows_tables[SF_CATALOG_TABLE_COUNT] = {
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

struct sf_rows_prepared sf_rows_prepared[SF_CATALOG_TABLE_COUNT];
static pthread_once_t prepare_once = PTHREAD_ONCE_INIT;

/* ---- preparation -------------------------------------------------------------------------- */

static struct sf_rows_path find_path(const ProtobufCMessageDescriptor *desc, const char *text)
{
    struct sf_rows_path path = {0};
    char name[96];
    while (text != NULL) {
        const char *dot = strchr(text, '.');
        size_t len = dot == NULL ? strlen(text) : (size_t)(dot - text);
        SF_ASSERT(len < sizeof(name) && path.depth < SF_ROWS_PATH);
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

int sf_rows_span(const struct sf_rows_column *column)
{
    return column->kind == SF_ROWS_SYNC ? 3 : 1;
}

static void append_names(const struct sf_rows_table *table, struct sf_buf *out)
{
    for (size_t i = 0; i < table->column_count; i++) {
        sf_buf_printf(out, "%s%s", i == 0 ? "" : ", ", table->columns[i].name);
        if (table->columns[i].kind == SF_ROWS_SYNC)
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
static char *make_select(const struct sf_rows_table *table, size_t level)
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

static char *make_keyed(const struct sf_rows_table *table, bool find)
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

static char *make_insert(const struct sf_rows_table *table)
{
    struct sf_buf sql = {0};
    int count = 0;
    sf_buf_printf(&sql, "INSERT INTO %s (", table->name);
    append_names(table, &sql);
    sf_buf_append_str(&sql, ") VALUES (");
    for (size_t i = 0; i < table->column_count; i++) {
        for (int k = 0; k < sf_rows_span(&table->columns[i]); k++) {
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
        const struct sf_rows_table *table = &sf_rows_tables[t];
        SF_ASSERT(table->column_count <= SF_ROWS_COLUMNS);
        SF_ASSERT(table->key_count <= SF_CATALOG_KEY_COLUMNS);
        for (size_t i = 0; i < table->column_count; i++)
            sf_rows_prepared[t].paths[i] = find_path(table->row, table->columns[i].field);
        for (size_t level = 0; level <= table->key_count; level++)
            sf_rows_prepared[t].select[level] = make_select(table, level);
        sf_rows_prepared[t].select[SF_CATALOG_KEY_COLUMNS + 1] = make_keyed(table, true);
        sf_rows_prepared[t].insert = make_insert(table);
        sf_rows_prepared[t].remove = make_keyed(table, false);
    }
}

void sf_rows_prepare(void)
{
    pthread_once(&prepare_once, prepare_tables);
}

const char *sf_catalog_table_name(enum sf_catalog_table table)
{
    return sf_rows_tables[table].name;
}

const char *sf_catalog_table_field(enum sf_catalog_table table)
{
    return sf_rows_tables[table].field;
}
