/*
 * Model: a row is one JSON object of its columns in a fixed order; numbers of 64 bits are strings,
 * JSON columns are decoded to their message and written canonically, NULL is left out. So the text
 * is the same whatever a database does with JSON, booleans or unsigned numbers. A table's digest is
 * the running hash over its rows in key order, with the number of rows; the projection's is the
 * hash over names and digests of the authoritative tables.
 *
 * Authoritative is what a rebuild brings back as it was. What it may not (lagging descriptor
 * fields, the binding revision, which a rebuild raises, leases and quota epochs, windows, older
 * snapshots, owners and watermarks) has digests beside it: equal on two databases of equal content.
 *
 * Rows are read by key, a page at a time, inside one snapshot.
 */
#include "catalog/catalog_digest.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/pbjson.h"
#include "catalog/catalog_job.h"
#include "catalog/catalog_rules.h"

#define PAGE_ROWS  500
#define MAX_KEYS   5
#define ROW_ARENA  ((size_t)64 << 20)
#define TEXT_BYTES 2560

enum column_kind { COLUMN_U64, COLUMN_I64, COLUMN_TEXT, COLUMN_JSON };

struct column {
    const char *name;                       /* in the table */
    enum column_kind kind;                  /* how it is read */
    const ProtobufCMessageDescriptor *json; /* COLUMN_JSON: what it holds */
};

struct table {
    const char *label;            /* in the answer */
    const char *name;             /* in the database */
    bool authoritative;           /* a rebuild brings it back as it was */
    int keys;                     /* the first columns are the key */
    const struct column *columns; /* those of the digest */
    int count;                    /* of them */
};

#define TABLE(label, name, authoritative, keys, columns)                                           \
    {                                                                                              \
        label, name, authoritative, keys, columns, (int)SF_ARRAY_LEN(columns)                      \
    }

/* clang-format off */
static const struct column namespace_columns[] = {
    {"namespace_id", COLUMN_U64, NULL},
    {"namespace_name", COLUMN_TEXT, NULL},
    {"namespace_name_allocation_epoch", COLUMN_U64, NULL},
    {"namespace_revision", COLUMN_U64, NULL},
    {"lifecycle_state", COLUMN_TEXT, NULL},
    {"lifecycle_updated_at_unix_ms", COLUMN_I64, NULL},
    {"lifecycle_gc_after_unix_ms", COLUMN_I64, NULL},
    {"options_json", COLUMN_JSON, &searchfabric__v1__descriptor_options__descriptor},
    {"encryption_json", COLUMN_JSON, &searchfabric__v1__encryption_policy__descriptor},
    {"internal_policy_state_json", COLUMN_JSON, &searchfabric__v1__internal_policy_state__descriptor},
    {"created_at_unix_ms", COLUMN_I64, NULL},
    {"updated_at_unix_ms", COLUMN_I64, NULL},
};
static const struct column namespace_lagging_columns[] = {
    {"namespace_id", COLUMN_U64, NULL},
    {"collection_name_binding_revision", COLUMN_U64, NULL},
    {"approx_stats_json", COLUMN_JSON, &searchfabric__v1__approx_stats__descriptor},
    {"index_json", COLUMN_JSON, &searchfabric__v1__index_status__descriptor},
};
static const struct column collection_columns[] = {
    {"namespace_id", COLUMN_U64, NULL},
    {"collection_id", COLUMN_U64, NULL},
    {"collection_name", COLUMN_TEXT, NULL},
    {"collection_name_allocation_epoch", COLUMN_U64, NULL},
    {"descriptor_revision", COLUMN_U64, NULL},
    {"active_schema_version", COLUMN_U64, NULL},
    {"active_schema_generation_token", COLUMN_TEXT, NULL},
    {"collection_truth_mode", COLUMN_I64, NULL},
    {"lifecycle_state", COLUMN_TEXT, NULL},
    {"drop_revision", COLUMN_U64, NULL},
    {"dropped_at_unix_ms", COLUMN_I64, NULL},
    {"gc_after_unix_ms", COLUMN_I64, NULL},
    {"committed_manifest_version", COLUMN_U64, NULL},
    {"committed_manifest_checksum_or_etag", COLUMN_TEXT, NULL},
    {"options_json", COLUMN_JSON, &searchfabric__v1__descriptor_options__descriptor},
    {"encryption_json", COLUMN_JSON, &searchfabric__v1__encryption_policy__descriptor},
    {"manifest_head_version", COLUMN_U64, NULL},
    {"expected_previous_head", COLUMN_I64, NULL},
    {"internal_policy_state_json", COLUMN_JSON, &searchfabric__v1__internal_policy_state__descriptor},
    {"created_at_unix_ms", COLUMN_I64, NULL},
    {"updated_at_unix_ms", COLUMN_I64, NULL},
};
static const struct column collection_lagging_columns[] = {
    {"namespace_id", COLUMN_U64, NULL},
    {"collection_id", COLUMN_U64, NULL},
    {"approx_stats_json", COLUMN_JSON, &searchfabric__v1__approx_stats__descriptor},
    {"index_json", COLUMN_JSON, &searchfabric__v1__index_status__descriptor},
    {"manifest_head_last_update_epoch", COLUMN_U64, NULL},
    {"manifest_head_reconciler_status", COLUMN_TEXT, NULL},
};
static const struct column namespace_name_columns[] = {
    {"namespace_name", COLUMN_TEXT, NULL},
    {"last_allocated_epoch", COLUMN_U64, NULL},
};
static const struct column collection_name_columns[] = {
    {"namespace_id", COLUMN_U64, NULL},
    {"collection_name", COLUMN_TEXT, NULL},
    {"last_allocated_epoch", COLUMN_U64, NULL},
};
static const struct column generation_columns[] = {
    {"namespace_id", COLUMN_U64, NULL},
    {"collection_id", COLUMN_U64, NULL},
    {"schema_version", COLUMN_U64, NULL},
    {"schema_generation_token", COLUMN_TEXT, NULL},
    {"collection_truth_mode", COLUMN_I64, NULL},
    {"schema_definition_json", COLUMN_JSON, &searchfabric__v1__collection_schema_definition__descriptor},
    {"ddl_commit_ts", COLUMN_U64, NULL},
    {"applied_commit_ts", COLUMN_U64, NULL},
    {"active_schema_update_policy", COLUMN_I64, NULL},
    {"effective_max_result_window", COLUMN_I64, NULL},
    {"sync_state", COLUMN_TEXT, NULL},
    {"drift_reason", COLUMN_TEXT, NULL},
    {"error_reason", COLUMN_TEXT, NULL},
    {"created_at_unix_ms", COLUMN_I64, NULL},
    {"updated_at_unix_ms", COLUMN_I64, NULL},
};
static const struct column replay_columns[] = {
    {"command_identity", COLUMN_TEXT, NULL},
    {"transport_lookup_key", COLUMN_TEXT, NULL},
    {"business_lookup_key", COLUMN_TEXT, NULL},
    {"command_kind", COLUMN_TEXT, NULL},
    {"replay_family", COLUMN_TEXT, NULL},
    {"idempotency_key", COLUMN_TEXT, NULL},
    {"correlation_id", COLUMN_TEXT, NULL},
    {"authenticated_client_identity_hash", COLUMN_TEXT, NULL},
    {"principal_subject", COLUMN_TEXT, NULL},
    {"client_id", COLUMN_TEXT, NULL},
    {"namespace_name", COLUMN_TEXT, NULL},
    {"namespace_name_allocation_epoch", COLUMN_U64, NULL},
    {"namespace_id", COLUMN_U64, NULL},
    {"collection_name", COLUMN_TEXT, NULL},
    {"collection_name_allocation_epoch", COLUMN_U64, NULL},
    {"collection_id", COLUMN_U64, NULL},
    {"schema_version", COLUMN_U64, NULL},
    {"fence_expected_prev_schema_version", COLUMN_U64, NULL},
    {"fence_schema_generation_token", COLUMN_TEXT, NULL},
    {"fence_enforce_monotonic_apply", COLUMN_I64, NULL},
    {"expected_head_version", COLUMN_I64, NULL},
    {"new_head_version", COLUMN_U64, NULL},
    {"manifest_checksum_or_etag", COLUMN_TEXT, NULL},
    {"target_lifecycle_state", COLUMN_TEXT, NULL},
    {"expected_namespace_revision", COLUMN_U64, NULL},
    {"release_cutoff_unix_ms", COLUMN_I64, NULL},
    {"payload_fingerprint", COLUMN_TEXT, NULL},
    {"terminal_state", COLUMN_TEXT, NULL},
    {"replay_classification", COLUMN_TEXT, NULL},
    {"original_outcome_json", COLUMN_JSON, &searchfabric__v1__command_outcome_object__descriptor},
    {"command_object_key", COLUMN_TEXT, NULL},
    {"created_ts", COLUMN_U64, NULL},
    {"applied_ts", COLUMN_U64, NULL},
};
static const struct column tombstone_columns[] = {
    {"namespace_id", COLUMN_U64, NULL},
    {"collection_id", COLUMN_U64, NULL},
    {"drop_revision", COLUMN_U64, NULL},
    {"tombstone_json", COLUMN_JSON, &searchfabric__v1__collection_tombstone_object__descriptor},
};
static const struct column statistics_head_columns[] = {
    {"namespace_id", COLUMN_U64, NULL},
    {"collection_id", COLUMN_U64, NULL},
    {"latest_applied_schema_version", COLUMN_U64, NULL},
    {"latest_applied_schema_generation_token", COLUMN_TEXT, NULL},
    {"latest_stats_commit_ts", COLUMN_U64, NULL},
    {"latest_collected_at_unix_ms", COLUMN_I64, NULL},
};
static const struct column statistics_snapshot_columns[] = {
    {"namespace_id", COLUMN_U64, NULL},
    {"collection_id", COLUMN_U64, NULL},
    {"applied_schema_generation_token", COLUMN_TEXT, NULL},
    {"stats_commit_ts", COLUMN_U64, NULL},
    {"applied_schema_version", COLUMN_U64, NULL},
    {"collected_at_unix_ms", COLUMN_I64, NULL},
    {"snapshot_json", COLUMN_JSON, &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor},
};
static const struct column window_columns[] = {
    {"namespace_id", COLUMN_U64, NULL},
    {"collection_id", COLUMN_U64, NULL},
    {"window_start_ms", COLUMN_I64, NULL},
    {"window_end_ms", COLUMN_I64, NULL},
    {"effective_tier", COLUMN_TEXT, NULL},
    {"published_manifest_version", COLUMN_U64, NULL},
    {"next_transition_at_unix_ms", COLUMN_I64, NULL},
    {"retention_deadline_unix_ms", COLUMN_I64, NULL},
    {"window_state", COLUMN_TEXT, NULL},
};
static const struct column quota_state_columns[] = {
    {"namespace_id", COLUMN_U64, NULL},
    {"quota_epoch", COLUMN_U64, NULL},
    {"quota_state_json", COLUMN_JSON, &searchfabric__v1__namespace_quota_state_object__descriptor},
    {"last_refill_at_unix_ms", COLUMN_I64, NULL},
    {"updated_at_unix_ms", COLUMN_I64, NULL},
};
static const struct column quota_lease_columns[] = {
    {"namespace_id", COLUMN_U64, NULL},
    {"api_plane", COLUMN_TEXT, NULL},
    {"throttled_dimension", COLUMN_TEXT, NULL},
    {"lease_holder_id", COLUMN_TEXT, NULL},
    {"lease_request_id", COLUMN_TEXT, NULL},
    {"granted_units", COLUMN_U64, NULL},
    {"lease_epoch", COLUMN_U64, NULL},
    {"expires_at_unix_ms", COLUMN_I64, NULL},
    {"terminal_state", COLUMN_TEXT, NULL},
    {"updated_at_unix_ms", COLUMN_I64, NULL},
    {"request_fingerprint", COLUMN_TEXT, NULL},
};
static const struct column lane_shard_columns[] = {
    {"lane_shard", COLUMN_I64, NULL},
    {"owner_epoch", COLUMN_U64, NULL},
    {"watermark", COLUMN_U64, NULL},
};

static const struct table tables[] = {
    TABLE("namespaces", "namespaces", true, 1, namespace_columns),
    TABLE("namespaces (lagging)", "namespaces", false, 1, namespace_lagging_columns),
    TABLE("collections", "collections", true, 2, collection_columns),
    TABLE("collections (lagging)", "collections", false, 2, collection_lagging_columns),
    TABLE("namespace_name_epochs", "namespace_name_epochs", true, 1, namespace_name_columns),
    TABLE("collection_name_epochs", "collection_name_epochs", true, 2, collection_name_columns),
    TABLE("schema_generations", "schema_generations", true, 3, generation_columns),
    TABLE("catalog_replay_index", "catalog_replay_index", true, 1, replay_columns),
    TABLE("collection_tombstones", "collection_tombstones", true, 2, tombstone_columns),
    TABLE("collection_statistics_heads", "collection_statistics_heads", true, 2, statistics_head_columns),
    TABLE("collection_statistics_snapshots", "collection_statistics_snapshots", false, 4, statistics_snapshot_columns),
    TABLE("collection_lifecycle_windows", "collection_lifecycle_windows", false, 4, window_columns),
    TABLE("namespace_quota_state", "namespace_quota_state", false, 1, quota_state_columns),
    TABLE("namespace_quota_leases", "namespace_quota_leases", false, 5, quota_lease_columns),
    TABLE("catalog_lane_shards", "catalog_lane_shards", false, 1, lane_shard_columns),
};
/* clang-format on */

/* Statements of each table: the first page, the pages after a key. Made once: the statement cache
 * knows them by address. */
static char statements[SF_ARRAY_LEN(tables)][2][TEXT_BYTES];
static pthread_once_t statements_once = PTHREAD_ONCE_INIT;

/* "(a > ?1 OR (a = ?1 AND (b > ?2 OR ...)))": row values would not use an index everywhere. */
static void append_after(const struct table *table, struct sf_buf *out)
{
    for (int i = 0; i < table->keys; i++) {
        bool last = i + 1 == table->keys;
        sf_buf_printf(out, "(%s > ?%d", table->columns[i].name, i + 1);
        if (!last)
            sf_buf_printf(out, " OR (%s = ?%d AND ", table->columns[i].name, i + 1);
    }
    for (int i = 0; i < 2 * table->keys - 1; i++)
        sf_buf_append_str(out, ")");
}

static void append_names(const struct table *table, int count, struct sf_buf *out)
{
    for (int i = 0; i < count; i++)
        sf_buf_printf(out, "%s%s", i == 0 ? "" : ", ", table->columns[i].name);
}

static void make_statements(void)
{
    for (size_t t = 0; t < SF_ARRAY_LEN(tables); t++) {
        for (int after = 0; after < 2; after++) {
            struct sf_buf text = {0};
            sf_buf_append_str(&text, "SELECT ");
            append_names(&tables[t], tables[t].count, &text);
            sf_buf_printf(&text, " FROM %s", tables[t].name);
            if (after == 1) {
                sf_buf_append_str(&text, " WHERE ");
                append_after(&tables[t], &text);
            }
            sf_buf_append_str(&text, " ORDER BY ");
            append_names(&tables[t], tables[t].keys, &text);
            sf_buf_printf(&text, " LIMIT %d", PAGE_ROWS);
            SF_ASSERT(text.len < TEXT_BYTES);
            memcpy(statements[t][after], text.data, text.len);
            sf_buf_fini(&text);
        }
    }
}

/* ---- rows --------------------------------------------------------------------------------- */

/* Key of the last row read. */
struct key {
    struct sf_buf text[MAX_KEYS]; /* COLUMN_TEXT */
    uint64_t number[MAX_KEYS];    /* the others */
};

struct digesting {
    struct sf_sql_conn *conn;  /* in a snapshot */
    const struct table *table; /* at hand */
    struct sf_keyhash hash;    /* over its rows */
    uint64_t rows;             /* so far */
    struct key last;           /* of the last row */
    struct sf_arena *row;      /* scratch of one row */
    struct sf_buf json;        /* the row's text */
    struct sf_diag *diag;
};

static enum sf_err append_column(struct digesting *d, struct sf_sql_stmt *stmt, int i)
{
    const struct column *column = &d->table->columns[i];
    ProtobufCMessage *message = NULL;

    sf_buf_printf(&d->json, "%s\"%s\":", d->json.len == 1 ? "" : ",", column->name);
    switch (column->kind) {
    case COLUMN_U64:
        sf_buf_printf(&d->json, "\"%" PRIu64 "\"", sf_sql_col_u64(stmt, i));
        return SF_OK;
    case COLUMN_I64:
        sf_buf_printf(&d->json, "\"%" PRId64 "\"", sf_sql_col_i64(stmt, i));
        return SF_OK;
    case COLUMN_TEXT:
        sf_json_append_string(&d->json, sf_sql_col_text(stmt, i));
        return SF_OK;
    default:
        break;
    }
    enum sf_err err =
        sf_pbjson_decode(column->json, sf_sql_col_text(stmt, i), d->row, d->diag, &message);
    if (err != SF_OK)
        return sf_diag_set(d->diag, SF_ERR_CORRUPT, "column %s of a row of %s is broken",
                           column->name, d->table->name);
    sf_pbjson_encode(message, &d->json);
    return SF_OK;
}

static void keep_key(struct digesting *d, struct sf_sql_stmt *stmt)
{
    for (int i = 0; i < d->table->keys; i++) {
        if (d->table->columns[i].kind == COLUMN_TEXT) {
            struct sf_view text = sf_sql_col_text(stmt, i);
            sf_buf_clear(&d->last.text[i]);
            sf_buf_append(&d->last.text[i], text.ptr, text.len);
        } else if (d->table->columns[i].kind == COLUMN_U64) {
            d->last.number[i] = sf_sql_col_u64(stmt, i);
        } else {
            d->last.number[i] = (uint64_t)sf_sql_col_i64(stmt, i);
        }
    }
}

static void bind_key(struct digesting *d, struct sf_sql_stmt *stmt)
{
    for (int i = 0; i < d->table->keys; i++) {
        if (d->table->columns[i].kind == COLUMN_TEXT)
            sf_sql_bind_text(stmt, i + 1, sf_buf_view(&d->last.text[i]));
        else if (d->table->columns[i].kind == COLUMN_U64)
            sf_sql_bind_u64(stmt, i + 1, d->last.number[i]);
        else
            sf_sql_bind_i64(stmt, i + 1, (int64_t)d->last.number[i]);
    }
}

static enum sf_err digest_row(struct digesting *d, struct sf_sql_stmt *stmt)
{
    enum sf_err err = SF_OK;

    sf_buf_clear(&d->json);
    sf_arena_reset(d->row);
    sf_buf_append_str(&d->json, "{");
    for (int i = 0; i < d->table->count && err == SF_OK; i++) {
        if (!sf_sql_col_is_null(stmt, i))
            err = append_column(d, stmt, i);
    }
    sf_buf_append_str(&d->json, "}");
    sf_keyhash_bytes(&d->hash, sf_buf_view(&d->json));
    keep_key(d, stmt);
    d->rows++;
    return err;
}

static enum sf_err digest_page(struct digesting *d, bool first, size_t *out_rows)
{
    struct sf_sql_stmt *stmt;
    bool row = true;

    *out_rows = 0;
    enum sf_err err =
        sf_sql_prepare(d->conn, statements[d->table - tables][first ? 0 : 1], d->diag, &stmt);
    if (err != SF_OK)
        return err;
    if (!first)
        bind_key(d, stmt);
    while (err == SF_OK && (err = sf_sql_step(stmt, d->diag, &row)) == SF_OK && row) {
        err = digest_row(d, stmt);
        (*out_rows)++;
    }
    sf_sql_finish(stmt);
    return err;
}

/* ---- tables ------------------------------------------------------------------------------- */

static enum sf_err digest_table(struct digesting *d, const struct table *table,
                                char out_hex[SF_SHA256_HEX_BYTES])
{
    uint8_t digest[SF_SHA256_BYTES];
    size_t rows = PAGE_ROWS;
    enum sf_err err = SF_OK;

    d->table = table;
    d->rows = 0;
    sf_keyhash_init(&d->hash, "sf/projection/table/1");
    for (bool first = true; err == SF_OK && rows == PAGE_ROWS; first = false)
        err = digest_page(d, first, &rows);
    sf_keyhash_u64(&d->hash, d->rows);
    sf_keyhash_finish(&d->hash, digest);
    sf_hex_encode(digest, sizeof(digest), out_hex);
    return err;
}

static enum sf_err digest_all(struct digesting *d, struct sf_arena *arena,
                              SF_PB(DigestProjectionResponse) * out)
{
    struct sf_keyhash all;
    uint8_t digest[SF_SHA256_BYTES];
    char hex[SF_SHA256_HEX_BYTES];
    enum sf_err err = SF_OK;

    out->tables = sf_arena_alloc(arena, sizeof(*out->tables) * SF_ARRAY_LEN(tables));
    SF_PB(ProjectionTableDigest) *entries =
        sf_arena_alloc(arena, sizeof(*entries) * SF_ARRAY_LEN(tables));
    if (out->tables == NULL || entries == NULL)
        return sf_diag_set(d->diag, SF_ERR_LIMIT, "the answer is too large");
    sf_keyhash_init(&all, "sf/projection/1");
    for (size_t t = 0; t < SF_ARRAY_LEN(tables) && err == SF_OK; t++) {
        err = digest_table(d, &tables[t], hex);
        searchfabric__v1__projection_table_digest__init(&entries[t]);
        entries[t].table = (char *)(uintptr_t)tables[t].label;
        entries[t].row_count = d->rows;
        entries[t].authoritative = tables[t].authoritative;
        entries[t].sha256 = sf_arena_str(arena, sf_view_str(hex));
        out->tables[out->n_tables++] = &entries[t];
        if (tables[t].authoritative) {
            sf_keyhash_bytes(&all, sf_view_str(tables[t].label));
            sf_keyhash_bytes(&all, sf_view_str(hex));
        }
    }
    sf_keyhash_finish(&all, digest);
    sf_hex_encode(digest, sizeof(digest), hex);
    out->sha256 = sf_arena_str(arena, sf_view_str(hex));
    if (err == SF_OK && sf_arena_overflowed(arena))
        err = sf_diag_set(d->diag, SF_ERR_LIMIT, "the answer is too large");
    return err;
}

enum sf_err sf_catalog_digest(struct sf_sql *sql, struct sf_sched *sched, struct sf_arena *arena,
                              struct sf_diag *diag, SF_PB(DigestProjectionResponse) * out_response)
{
    struct digesting d = {.diag = diag, .row = sf_arena_new(ROW_ARENA)};

    (void)pthread_once(&statements_once, make_statements);
    searchfabric__v1__digest_projection_response__init(out_response);
    d.conn = sf_sql_acquire(sql, sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(d.conn, diag);
    if (err == SF_OK)
        err = digest_all(&d, arena, out_response);
    sf_sql_rollback(d.conn);
    sf_sql_release(d.conn);
    for (size_t i = 0; i < MAX_KEYS; i++)
        sf_buf_fini(&d.last.text[i]);
    sf_buf_fini(&d.json);
    sf_arena_destroy(d.row);
    return err;
}

const char *sf_catalog_digest_columns(size_t index, struct sf_arena *arena)
{
    struct sf_buf text = {0};

    if (index >= SF_ARRAY_LEN(tables))
        return NULL;
    sf_buf_printf(&text, "%s: ", tables[index].name);
    append_names(&tables[index], tables[index].count, &text);
    const char *out = sf_arena_str(arena, sf_buf_view(&text));
    sf_buf_fini(&text);
    return out;
}

/* ---- the call ----------------------------------------------------------------------------- */

struct asked {
    struct sf_task task;        /* on the lane of slow jobs */
    struct sf_catalog *catalog; /* counted in */
    struct sf_call *call;       /* to answer */
};

static void run(struct sf_task *task)
{
    struct asked *asked = SF_CONTAINER_OF(task, struct asked, task);
    struct sf_catalog *catalog = asked->catalog;
    struct sf_diag *diag = sf_call_diag(asked->call);
    SF_PB(DigestProjectionResponse) response;
    enum sf_err err = sf_catalog_digest(catalog->deps.sql, catalog->deps.sched,
                                        sf_call_arena(asked->call), diag, &response);

    if (err == SF_OK) {
        sf_call_respond(asked->call, &response.base);
    } else {
        if (diag->err != err)
            sf_diag_set(diag, err, "%s", sf_err_info(err)->meaning);
        sf_catalog_refuse(asked->call, diag);
    }
    free(asked);
    sf_catalog_leave(catalog);
}

void sf_catalog_digest_call(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    struct sf_catalog *catalog = self;
    struct sf_diag *diag = sf_call_diag(call);

    (void)request;
    sf_diag_init(diag);
    if (!sf_catalog_enter(catalog, false, diag)) {
        sf_catalog_refuse(call, diag);
        return;
    }
    struct asked *asked = sf_calloc(1, sizeof(*asked));
    *asked = (struct asked){.task.run = run, .catalog = catalog, .call = call};
    if (sf_sched_submit(catalog->deps.sched, sf_catalog_job_lane(SF_CATALOG_JOB_SLOW),
                        &asked->task) == SF_OK)
        return;
    free(asked);
    sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "the catalog is busy");
    sf_catalog_refuse(call, diag);
    sf_catalog_leave(catalog);
}
