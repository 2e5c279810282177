/*
 * The projection's schema against the note's tables (sections 5.2 to 5.10), and what its columns
 * take and refuse, on the database under test. A table's rows are made from the same list: one
 * value per column that fits its type.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/mem.h"
#include "catalog/catalog_ddl.h"
#include "catalog/catalog_digest.h"
#include "catalog/catalog_rules.h"
#include "support/proves.h"
#include "support/sqlserver.h"

/* A column as the note's MySQL-family DDL has it. */
struct expected {
    const char *table, *column, *type;
    bool not_null;
    const char *fallback; /* DEFAULT */
};

/* clang-format off */
static const struct expected columns[] = {
    {"namespaces", "namespace_id", "bigint unsigned", true, NULL},
    {"namespaces", "namespace_name", "varchar(128)", true, NULL},
    {"namespaces", "namespace_name_allocation_epoch", "bigint unsigned", true, NULL},
    {"namespaces", "namespace_revision", "bigint unsigned", true, NULL},
    {"namespaces", "lifecycle_state", "enum('ACTIVE','QUIESCING','TOMBSTONED')", true, NULL},
    {"namespaces", "lifecycle_updated_at_unix_ms", "bigint", true, NULL},
    {"namespaces", "lifecycle_gc_after_unix_ms", "bigint", false, NULL},
    {"namespaces", "collection_name_binding_revision", "bigint unsigned", true, NULL},
    {"namespaces", "options_json", "json", false, NULL},
    {"namespaces", "encryption_json", "json", true, NULL},
    {"namespaces", "approx_stats_json", "json", false, NULL},
    {"namespaces", "index_json", "json", false, NULL},
    {"namespaces", "internal_policy_state_json", "json", true, NULL},
    {"namespaces", "created_at_unix_ms", "bigint", true, NULL},
    {"namespaces", "updated_at_unix_ms", "bigint", true, NULL},
    {"collections", "namespace_id", "bigint unsigned", true, NULL},
    {"collections", "collection_id", "bigint unsigned", true, NULL},
    {"collections", "collection_name", "varchar(128)", true, NULL},
    {"collections", "collection_name_allocation_epoch", "bigint unsigned", true, NULL},
    {"collections", "descriptor_revision", "bigint unsigned", true, NULL},
    {"collections", "active_schema_version", "bigint unsigned", false, NULL},
    {"collections", "active_schema_generation_token", "varchar(64)", false, NULL},
    {"collections", "collection_truth_mode", "int", false, NULL},
    {"collections", "lifecycle_state", "enum('ACTIVE','TOMBSTONED')", true, NULL},
    {"collections", "drop_revision", "bigint unsigned", false, NULL},
    {"collections", "dropped_at_unix_ms", "bigint", false, NULL},
    {"collections", "gc_after_unix_ms", "bigint", false, NULL},
    {"collections", "committed_manifest_version", "bigint unsigned", true, "0"},
    {"collections", "committed_manifest_checksum_or_etag", "varchar(255)", false, NULL},
    {"collections", "options_json", "json", false, NULL},
    {"collections", "encryption_json", "json", true, NULL},
    {"collections", "approx_stats_json", "json", false, NULL},
    {"collections", "index_json", "json", false, NULL},
    {"collections", "manifest_head_version", "bigint unsigned", true, "0"},
    {"collections", "expected_previous_head", "bigint", true, "-1"},
    {"collections", "manifest_head_last_update_epoch", "bigint unsigned", true, "0"},
    {"collections", "manifest_head_reconciler_status", "enum('IDLE','REPAIR_PENDING','REPAIRING','ERROR')", true, "IDLE"},
    {"collections", "internal_policy_state_json", "json", true, NULL},
    {"collections", "created_at_unix_ms", "bigint", true, NULL},
    {"collections", "updated_at_unix_ms", "bigint", true, NULL},
    {"namespace_name_epochs", "namespace_name", "varchar(128)", true, NULL},
    {"namespace_name_epochs", "last_allocated_epoch", "bigint unsigned", true, NULL},
    {"collection_name_epochs", "namespace_id", "bigint unsigned", true, NULL},
    {"collection_name_epochs", "collection_name", "varchar(128)", true, NULL},
    {"collection_name_epochs", "last_allocated_epoch", "bigint unsigned", true, NULL},
    {"schema_generations", "namespace_id", "bigint unsigned", true, NULL},
    {"schema_generations", "collection_id", "bigint unsigned", true, NULL},
    {"schema_generations", "schema_version", "bigint unsigned", true, NULL},
    {"schema_generations", "schema_generation_token", "varchar(64)", true, NULL},
    {"schema_generations", "collection_truth_mode", "int", true, NULL},
    {"schema_generations", "schema_definition_json", "json", true, NULL},
    {"schema_generations", "ddl_commit_ts", "bigint unsigned", true, "0"},
    {"schema_generations", "applied_commit_ts", "bigint unsigned", true, NULL},
    {"schema_generations", "active_schema_update_policy", "int", true, NULL},
    {"schema_generations", "effective_max_result_window", "int unsigned", true, NULL},
    {"schema_generations", "sync_state", "enum('APPLYING','READY','DRIFTED','ERROR')", true, NULL},
    {"schema_generations", "drift_reason", "varchar(255)", false, NULL},
    {"schema_generations", "error_reason", "varchar(255)", false, NULL},
    {"schema_generations", "created_at_unix_ms", "bigint", true, NULL},
    {"schema_generations", "updated_at_unix_ms", "bigint", true, NULL},
    {"catalog_replay_index", "command_identity", "char(64)", true, NULL},
    {"catalog_replay_index", "transport_lookup_key", "char(64)", true, NULL},
    {"catalog_replay_index", "business_lookup_key", "char(64)", false, NULL},
    {"catalog_replay_index", "command_kind", "enum('PUT_NAMESPACE_METADATA','PUT_COLLECTION_METADATA','PUT_COLLECTION_SCHEMA','DROP_COLLECTION','HEAD_ADVANCE','NAMESPACE_LIFECYCLE_TRANSITION','NAMESPACE_NAME_RESERVATION_RELEASE','COLLECTION_NAME_RESERVATION_RELEASE')", true, NULL},
    {"catalog_replay_index", "replay_family", "enum('PUBLIC_RPC','INTERNAL_INTENT')", true, NULL},
    {"catalog_replay_index", "idempotency_key", "varchar(128)", false, NULL},
    {"catalog_replay_index", "correlation_id", "varchar(128)", false, NULL},
    {"catalog_replay_index", "authenticated_client_identity_hash", "char(64)", false, NULL},
    {"catalog_replay_index", "principal_subject", "varchar(256)", false, NULL},
    {"catalog_replay_index", "client_id", "varchar(256)", false, NULL},
    {"catalog_replay_index", "namespace_name", "varchar(128)", false, NULL},
    {"catalog_replay_index", "namespace_name_allocation_epoch", "bigint unsigned", false, NULL},
    {"catalog_replay_index", "namespace_id", "bigint unsigned", false, NULL},
    {"catalog_replay_index", "collection_name", "varchar(128)", false, NULL},
    {"catalog_replay_index", "collection_name_allocation_epoch", "bigint unsigned", false, NULL},
    {"catalog_replay_index", "collection_id", "bigint unsigned", false, NULL},
    {"catalog_replay_index", "schema_version", "bigint unsigned", false, NULL},
    {"catalog_replay_index", "fence_expected_prev_schema_version", "bigint unsigned", false, NULL},
    {"catalog_replay_index", "fence_schema_generation_token", "varchar(64)", false, NULL},
    {"catalog_replay_index", "fence_enforce_monotonic_apply", "boolean", false, NULL},
    {"catalog_replay_index", "expected_head_version", "bigint", false, NULL},
    {"catalog_replay_index", "new_head_version", "bigint", false, NULL},
    {"catalog_replay_index", "manifest_checksum_or_etag", "varchar(255)", false, NULL},
    {"catalog_replay_index", "target_lifecycle_state", "enum('ACTIVE','QUIESCING','TOMBSTONED')", false, NULL},
    {"catalog_replay_index", "expected_namespace_revision", "bigint unsigned", false, NULL},
    {"catalog_replay_index", "release_cutoff_unix_ms", "bigint", false, NULL},
    {"catalog_replay_index", "payload_fingerprint", "char(64)", true, NULL},
    {"catalog_replay_index", "terminal_state", "enum('APPLIED','FAILED')", true, NULL},
    {"catalog_replay_index", "replay_classification", "enum('ORIGINAL','REPLAY_SAME_PAYLOAD','REPLAY_CONFLICT')", true, NULL},
    {"catalog_replay_index", "original_outcome_json", "json", true, NULL},
    {"catalog_replay_index", "command_object_key", "varchar(512)", true, NULL},
    {"catalog_replay_index", "created_ts", "bigint", true, NULL},
    {"catalog_replay_index", "applied_ts", "bigint", false, NULL},
    {"collection_statistics_heads", "namespace_id", "bigint unsigned", true, NULL},
    {"collection_statistics_heads", "collection_id", "bigint unsigned", true, NULL},
    {"collection_statistics_heads", "latest_applied_schema_version", "bigint unsigned", true, NULL},
    {"collection_statistics_heads", "latest_applied_schema_generation_token", "varchar(64)", true, NULL},
    {"collection_statistics_heads", "latest_stats_commit_ts", "bigint unsigned", true, NULL},
    {"collection_statistics_heads", "latest_collected_at_unix_ms", "bigint", true, NULL},
    {"collection_statistics_snapshots", "namespace_id", "bigint unsigned", true, NULL},
    {"collection_statistics_snapshots", "collection_id", "bigint unsigned", true, NULL},
    {"collection_statistics_snapshots", "stats_commit_ts", "bigint unsigned", true, NULL},
    {"collection_statistics_snapshots", "applied_schema_version", "bigint unsigned", true, NULL},
    {"collection_statistics_snapshots", "applied_schema_generation_token", "varchar(64)", true, NULL},
    {"collection_statistics_snapshots", "collected_at_unix_ms", "bigint", true, NULL},
    {"collection_statistics_snapshots", "snapshot_json", "json", true, NULL},
    {"collection_lifecycle_windows", "namespace_id", "bigint unsigned", true, NULL},
    {"collection_lifecycle_windows", "collection_id", "bigint unsigned", true, NULL},
    {"collection_lifecycle_windows", "window_start_ms", "bigint", true, NULL},
    {"collection_lifecycle_windows", "window_end_ms", "bigint", true, NULL},
    {"collection_lifecycle_windows", "effective_tier", "enum('HOT','WARM','COLD')", true, NULL},
    {"collection_lifecycle_windows", "published_manifest_version", "bigint unsigned", true, NULL},
    {"collection_lifecycle_windows", "next_transition_at_unix_ms", "bigint", false, NULL},
    {"collection_lifecycle_windows", "retention_deadline_unix_ms", "bigint", false, NULL},
    {"collection_lifecycle_windows", "window_state", "enum('LIVE','TRANSITIONING','RECLAIMABLE')", true, NULL},
    {"namespace_quota_state", "namespace_id", "bigint unsigned", true, NULL},
    {"namespace_quota_state", "quota_epoch", "bigint unsigned", true, NULL},
    {"namespace_quota_state", "quota_state_json", "json", true, NULL},
    {"namespace_quota_state", "last_refill_at_unix_ms", "bigint", true, NULL},
    {"namespace_quota_state", "updated_at_unix_ms", "bigint", true, NULL},
    {"namespace_quota_leases", "namespace_id", "bigint unsigned", true, NULL},
    {"namespace_quota_leases", "api_plane", "enum('QUERY','WRITE')", true, NULL},
    {"namespace_quota_leases", "throttled_dimension", "varchar(64)", true, NULL},
    {"namespace_quota_leases", "lease_holder_id", "varchar(128)", true, NULL},
    {"namespace_quota_leases", "lease_request_id", "varchar(128)", true, NULL},
    {"namespace_quota_leases", "granted_units", "bigint unsigned", true, NULL},
    {"namespace_quota_leases", "lease_epoch", "bigint unsigned", true, NULL},
    {"namespace_quota_leases", "expires_at_unix_ms", "bigint", true, NULL},
    {"namespace_quota_leases", "terminal_state", "enum('ACTIVE','RETURNED','EXPIRED')", true, NULL},
    {"namespace_quota_leases", "updated_at_unix_ms", "bigint", true, NULL},
    {"namespace_quota_leases", "request_fingerprint", "char(64)", true, NULL},
};

static const struct {
    const char *table, *key, *columns;
} unique_keys[] = {
    {"namespaces", "PRIMARY", "namespace_id"},
    {"namespaces", "uk_namespace_name", "namespace_name"},
    {"collections", "PRIMARY", "namespace_id,collection_id"},
    {"collections", "uk_namespace_collection_name", "namespace_id,collection_name"},
    {"namespace_name_epochs", "PRIMARY", "namespace_name"},
    {"collection_name_epochs", "PRIMARY", "namespace_id,collection_name"},
    {"schema_generations", "PRIMARY", "namespace_id,collection_id,schema_version"},
    {"catalog_replay_index", "PRIMARY", "command_identity"},
    {"catalog_replay_index", "uk_transport_lookup", "transport_lookup_key"},
    {"catalog_replay_index", "uk_business_lookup", "command_kind,business_lookup_key"},
    {"collection_statistics_heads", "PRIMARY", "namespace_id,collection_id"},
    {"collection_statistics_snapshots", "PRIMARY", "namespace_id,collection_id,applied_schema_generation_token,stats_commit_ts"},
    {"collection_lifecycle_windows", "PRIMARY", "namespace_id,collection_id,window_start_ms,window_end_ms"},
    {"namespace_quota_state", "PRIMARY", "namespace_id"},
    {"namespace_quota_leases", "PRIMARY", "namespace_id,api_plane,throttled_dimension,lease_holder_id,lease_request_id"},
};
/* clang-format on */

struct fixture {
    struct sf_test_sql place;
    struct sf_sql *sql;
    char out[4096]; /* of the last raw statement */
};

static int setup(void **state)
{
    struct fixture *f = sf_calloc(1, sizeof(*f));
    struct sf_diag diag;

    sf_test_sql_make(&f->place, false);
    sf_diag_init(&diag);
    if (sf_catalog_projection_open_at(&f->place.where, &diag, &f->sql) != SF_OK)
        fail_msg("%s", diag.message);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    sf_sql_close(f->sql);
    sf_test_sql_drop(&f->place);
    free(f);
    return 0;
}

/* Runs one statement; its first value is in f->out. */
static bool raw(struct fixture *f, const char *fmt, ...) SF_PRINTF(2, 3);
static bool raw(struct fixture *f, const char *fmt, ...)
{
    char sql[8192];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(sql, sizeof(sql), fmt, args);
    va_end(args);
    return sf_test_sql_raw(&f->place, sql, f->out, sizeof(f->out));
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* ---- tables ------------------------------------------------------------------------------- */

static void check_order(struct fixture *f, const char *table)
{
    struct sf_buf list = {0};

    for (size_t i = 0; i < SF_ARRAY_LEN(columns); i++) {
        if (strcmp(columns[i].table, table) == 0)
            sf_buf_printf(&list, "%s%s", list.len == 0 ? "" : ",", columns[i].column);
    }
    sf_buf_append(&list, "", 1);
    switch (f->place.where.kind) {
    case SF_SQL_SQLITE:
        assert_true(raw(f, "SELECT group_concat(name) FROM pragma_table_info('%s')", table));
        break;
    case SF_SQL_POSTGRES:
        assert_true(raw(f,
                        "SELECT string_agg(column_name, ',' ORDER BY ordinal_position) FROM"
                        " information_schema.columns WHERE table_schema = current_schema() AND"
                        " table_name = '%s'",
                        table));
        break;
    default:
        assert_true(raw(f,
                        "SELECT group_concat(column_name ORDER BY ordinal_position) FROM"
                        " information_schema.columns WHERE table_schema = database() AND"
                        " table_name = '%s'",
                        table));
    }
    assert_string_equal(f->out, (const char *)list.data);
    sf_buf_fini(&list);
}

/* Type, nullability, default and collation as the database tells them. */
static void describe(struct fixture *f, const struct expected *c)
{
    switch (f->place.where.kind) {
    case SF_SQL_SQLITE:
        assert_true(raw(f,
                        "SELECT type || '|' || CASE \"notnull\" WHEN 1 THEN 'NO' ELSE 'YES' END"
                        " FROM pragma_table_info('%s') WHERE name = '%s'",
                        c->table, c->column));
        break;
    case SF_SQL_POSTGRES:
        assert_true(raw(f,
                        "SELECT CASE WHEN domain_name IS NOT NULL THEN domain_name"
                        " WHEN data_type = 'character varying'"
                        " THEN 'varchar(' || character_maximum_length || ')'"
                        " ELSE data_type END || '|' || is_nullable || '|' ||"
                        " coalesce(trim(both '()''' from split_part(column_default, '::', 1)),"
                        " 'NULL') || '|' || coalesce(collation_name, '')"
                        " FROM information_schema.columns WHERE table_schema = current_schema()"
                        " AND table_name = '%s' AND column_name = '%s'",
                        c->table, c->column));
        break;
    default:
        assert_true(raw(f,
                        "SELECT concat(column_type, '|', is_nullable, '|',"
                        " coalesce(trim(both '\\'' from column_default), 'NULL'), '|',"
                        " CASE data_type WHEN 'longtext' THEN ''"
                        " ELSE coalesce(collation_name, '') END) FROM information_schema.columns"
                        " WHERE table_schema = database() AND table_name = '%s' AND"
                        " column_name = '%s'",
                        c->table, c->column));
    }
}

static bool is_text(const char *type)
{
    return starts(type, "varchar") || starts(type, "char") || starts(type, "enum");
}

/* The note's type in the database under test. */
static void type_here(enum sf_sql_kind kind, const char *type, char *out, size_t size)
{
    static const struct {
        const char *note, *sqlite, *postgres, *mysql; /* mysql: as MariaDB shows it */
    } types[] = {{"bigint unsigned", "BIGINT", "sf_u64", "bigint(20) unsigned"},
                 {"bigint", "BIGINT", "bigint", "bigint(20)"},
                 {"int unsigned", "INT", "bigint", "int(10) unsigned"},
                 {"int", "INT", "integer", "int(11)"},
                 {"boolean", "INT", "boolean", "tinyint(1)"},
                 {"json", "TEXT", "jsonb", "longtext"}};

    for (size_t i = 0; i < SF_ARRAY_LEN(types); i++) {
        if (strcmp(types[i].note, type) == 0) {
            (void)snprintf(out, size, "%s",
                           kind == SF_SQL_SQLITE     ? types[i].sqlite
                           : kind == SF_SQL_POSTGRES ? types[i].postgres
                                                     : types[i].mysql);
            return;
        }
    }
    if (kind == SF_SQL_SQLITE)
        (void)snprintf(out, size, "TEXT");
    else if (kind == SF_SQL_POSTGRES && starts(type, "enum"))
        (void)snprintf(out, size, "text");
    else if (kind == SF_SQL_POSTGRES && starts(type, "char"))
        (void)snprintf(out, size, "var%s", type);
    else
        (void)snprintf(out, size, "%s", type);
}

static void check_column(struct fixture *f, const struct expected *c)
{
    enum sf_sql_kind kind = f->place.where.kind;
    char type[320], wanted[512];

    type_here(kind, c->type, type, sizeof(type));
    if (kind == SF_SQL_SQLITE)
        (void)snprintf(wanted, sizeof(wanted), "%s|%s", type, c->not_null ? "NO" : "YES");
    else
        (void)snprintf(wanted, sizeof(wanted), "%s|%s|%s|%s", type, c->not_null ? "NO" : "YES",
                       c->fallback == NULL ? "NULL" : c->fallback,
                       !is_text(c->type)         ? ""
                       : kind == SF_SQL_POSTGRES ? "C"
                                                 : "utf8mb4_nopad_bin");
    describe(f, c);
    if (strcmp(f->out, wanted) != 0)
        fail_msg("%s.%s: %s, wanted %s", c->table, c->column, f->out, wanted);
}

static void check_key(struct fixture *f, const char *table, const char *key, const char *list)
{
    switch (f->place.where.kind) {
    case SF_SQL_SQLITE: /* keys have no names of their own there */
        assert_true(raw(f,
                        "SELECT cols FROM (SELECT (SELECT group_concat(name) FROM"
                        " pragma_index_info(il.name)) AS cols FROM pragma_index_list('%s') AS il"
                        " WHERE il.\"unique\" = 1) WHERE cols = '%s'",
                        table, list));
        break;
    case SF_SQL_POSTGRES:
        assert_true(raw(f,
                        "SELECT string_agg(a.attname, ',' ORDER BY k.ord) FROM pg_index i"
                        " JOIN pg_class c ON c.oid = i.indexrelid,"
                        " unnest(i.indkey) WITH ORDINALITY AS k(attnum, ord), pg_attribute a"
                        " WHERE a.attrelid = i.indrelid AND a.attnum = k.attnum AND"
                        " i.indrelid = '%s'::regclass AND i.indisunique AND"
                        " CASE WHEN '%s' = 'PRIMARY' THEN i.indisprimary ELSE c.relname = '%s' END",
                        table, key, key));
        break;
    default:
        assert_true(raw(f,
                        "SELECT group_concat(column_name ORDER BY seq_in_index) FROM"
                        " information_schema.statistics WHERE table_schema = database() AND"
                        " table_name = '%s' AND index_name = '%s' AND non_unique = 0",
                        table, key));
    }
    if (strcmp(f->out, list) != 0)
        fail_msg("%s: key %s is %s, wanted %s", table, key, f->out, list);
}

static void test_tables_are_the_notes(void **state)
{
    struct fixture *f = *state;

    if (f->place.where.kind == SF_SQL_MYSQL) /* the documented profile */
        SF_PROVES("CCS-5.2-01", "CCS-5.3-01", "CCS-5.5-01", "CCS-5.6-01", "CCS-5.9-03",
                  "CCS-5.10-06", "CCS-5.10-07", "CCS-5.1-13");
    for (size_t i = 0; i < SF_ARRAY_LEN(columns); i++) {
        if (i == 0 || strcmp(columns[i].table, columns[i - 1].table) != 0)
            check_order(f, columns[i].table);
        check_column(f, &columns[i]);
    }
    for (size_t i = 0; i < SF_ARRAY_LEN(unique_keys); i++)
        check_key(f, unique_keys[i].table, unique_keys[i].key, unique_keys[i].columns);
}

/* The profiles' texts: what each must say, and what none may. */
static void test_profile_texts(void **state)
{
    static const char *const foreign[] = {"FULLTEXT", "VECTOR", "TIFLASH", "COPROCESSOR",
                                          "fulltext", "vector", "tsvector"};
    const char *const *const all[] = {sf_catalog_ddl_sqlite, sf_catalog_ddl_postgres,
                                      sf_catalog_ddl_mysql};

    (void)state;
    SF_PROVES("CCS-5.1-14", "CCS-5.1-16", "CCS-5.1-18", "CCS-5.1-19");
    for (size_t d = 0; d < SF_ARRAY_LEN(all); d++) {
        for (size_t s = 0; s < SF_CATALOG_DDL_STEPS; s++) {
            for (size_t i = 0; i < SF_ARRAY_LEN(foreign); i++)
                assert_null(strstr(all[d][s], foreign[i]));
        }
    }
    for (size_t s = 0; s < SF_CATALOG_DDL_STEPS; s++) {
        assert_null(strstr(sf_catalog_ddl_postgres[s], "UNSIGNED"));
        assert_null(strstr(sf_catalog_ddl_postgres[s], "ENUM"));
        assert_null(strstr(sf_catalog_ddl_postgres[s], " JSON "));
        assert_null(strstr(sf_catalog_ddl_postgres[s], "_json TEXT"));
        for (const char *at = sf_catalog_ddl_postgres[s]; (at = strstr(at, "VARCHAR(")) != NULL;
             at++)
            assert_true(starts(strchr(at, ')'), ") COLLATE \"C\""));
    }
    assert_non_null(strstr(sf_catalog_ddl_postgres[0],
                           "CREATE DOMAIN sf_u64 AS NUMERIC(20, 0) CHECK (VALUE >= 0"));
    assert_non_null(strstr(sf_catalog_ddl_postgres[1], "WHERE business_lookup_key IS NOT NULL"));
}

/* No column of the note's tables is left out of the digest. */
static void test_digest_covers_every_column(void **state)
{
    struct sf_arena *arena = sf_arena_new((size_t)16 << 20);
    const char *line;

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(columns); i++) {
        bool found = false;
        for (size_t t = 0; (line = sf_catalog_digest_columns(t, arena)) != NULL; t++) {
            size_t len = strlen(columns[i].table);
            if (strncmp(line, columns[i].table, len) != 0 || line[len] != ':')
                continue;
            char padded[4096], wanted[128];
            (void)snprintf(padded, sizeof(padded), "%s,", line + len + 1);
            (void)snprintf(wanted, sizeof(wanted), " %s,", columns[i].column);
            found = found || strstr(padded, wanted) != NULL;
        }
        if (!found)
            fail_msg("%s.%s is in no digest", columns[i].table, columns[i].column);
    }
    sf_arena_destroy(arena);
}

/* ---- values ------------------------------------------------------------------------------- */

/* A literal that fits the column; of an enum its `choice`-th name, false past the last. */
static bool sample(const char *type, unsigned choice, char *out, size_t size)
{
    if (starts(type, "enum")) {
        const char *at = strchr(type, '(') + 1;
        for (unsigned i = 0; i < choice && at != NULL; i++) {
            at = strchr(at, ',');
            at = at == NULL ? NULL : at + 1;
        }
        if (at == NULL)
            return false;
        (void)snprintf(out, size, "%.*s", (int)strcspn(at, ",)"), at);
        return true;
    }
    (void)snprintf(out, size, "%s",
                   is_text(type)                  ? "'a'"
                   : strcmp(type, "json") == 0    ? "'{}'"
                   : strcmp(type, "boolean") == 0 ? "NULL"
                                                  : "1");
    return true;
}

/* Inserts a row into `table` with `column` as the literal `value`. */
static bool insert(struct fixture *f, const char *table, const char *column, const char *value)
{
    struct sf_buf names = {0}, values = {0};
    char text[160];

    for (size_t i = 0; i < SF_ARRAY_LEN(columns); i++) {
        const struct expected *c = &columns[i];
        bool it = strcmp(c->column, column) == 0;
        if (strcmp(c->table, table) != 0 || (!c->not_null && !it))
            continue;
        assert_true(sample(c->type, 0, text, sizeof(text)));
        sf_buf_printf(&names, "%s%s", names.len == 0 ? "" : ", ", c->column);
        sf_buf_printf(&values, "%s%s", values.len == 0 ? "" : ", ", it ? value : text);
    }
    sf_buf_append(&names, "", 1);
    sf_buf_append(&values, "", 1);
    bool ok = raw(f, "%sINSERT INTO %s (%s) VALUES (%s)",
                  f->place.where.kind == SF_SQL_MYSQL
                      ? "SET STATEMENT sql_mode = 'STRICT_ALL_TABLES' FOR "
                      : "",
                  table, (const char *)names.data, (const char *)values.data);
    sf_buf_fini(&names);
    sf_buf_fini(&values);
    return ok;
}

static void takes(struct fixture *f, const struct expected *c, const char *value, bool wanted)
{
    bool ok = insert(f, c->table, c->column, value);

    if (ok != wanted)
        fail_msg("%s.%s %s %s: %s", c->table, c->column, ok ? "takes" : "refuses", value, f->out);
    if (ok)
        assert_true(raw(f, "DELETE FROM %s", c->table));
}

static void test_enums_take_their_names_only(void **state)
{
    struct fixture *f = *state;
    char text[160], lower[160];

    SF_PROVES("CCS-5.1-15", "CCS-5.6-02", "CCS-5.9-04");
    for (size_t i = 0; i < SF_ARRAY_LEN(columns); i++) {
        const struct expected *c = &columns[i];
        if (!starts(c->type, "enum"))
            continue;
        for (unsigned n = 0; sample(c->type, n, text, sizeof(text)); n++)
            takes(f, c, text, true);
        assert_true(sample(c->type, 0, lower, sizeof(lower)));
        for (char *at = lower; *at != '\0'; at++)
            *at = (char)(*at >= 'A' && *at <= 'Z' ? *at + 32 : *at);
        takes(f, c, lower, false);
        takes(f, c, "'BOGUS'", false);
        takes(f, c, "''", false);
        takes(f, c, "NULL", !c->not_null);
    }
}

static void test_numbers_and_nulls(void **state)
{
    struct fixture *f = *state;

    SF_PROVES("CCS-5.1-14");
    for (size_t i = 0; i < SF_ARRAY_LEN(columns); i++) {
        const struct expected *c = &columns[i];
        takes(f, c, "NULL", !c->not_null);
        if (f->place.where.kind == SF_SQL_SQLITE)
            continue;
        if (strcmp(c->type, "bigint unsigned") == 0 || strcmp(c->type, "int unsigned") == 0) {
            bool big = c->type[0] == 'b';
            takes(f, c, "-1", false);
            takes(f, c, "0", true);
            takes(f, c, "4294967296", big);
            takes(f, c, "18446744073709551615", big);
            takes(f, c, "18446744073709551616", false);
        }
        if (starts(c->type, "varchar(64)")) {
            char value[80];
            (void)snprintf(value, sizeof(value), "'%064d'", 1);
            takes(f, c, value, true);
            (void)snprintf(value, sizeof(value), "'%065d'", 1);
            takes(f, c, value, false);
        }
    }
}

/* ---- text --------------------------------------------------------------------------------- */

/* Names that look alike are different keys, in byte order. */
static void test_names_compare_byte_for_byte(void **state)
{
    struct fixture *f = *state;
    static const char *const in_order[] = {
        "A", "Z", "a", "a ", "a  ", "a\xcc\x88", "b", "\xc3\xa4", "\xf0\x9f\x98\x80"};
    static const char *const keys[][2] = {
        {"namespace_name_epochs", "namespace_name"},
        {"collection_name_epochs", "collection_name"},
        {"collection_statistics_snapshots", "applied_schema_generation_token"},
        {"namespace_quota_leases", "throttled_dimension"},
        {"namespace_quota_leases", "lease_holder_id"},
        {"namespace_quota_leases", "lease_request_id"}};
    bool row = false;
    struct sf_sql_stmt *stmt;
    struct sf_diag diag;

    SF_PROVES("CCS-5.1-16");
    sf_diag_init(&diag);
    for (size_t k = 0; k < SF_ARRAY_LEN(keys); k++) {
        assert_true(raw(f, "DELETE FROM %s", keys[k][0]));
        for (size_t i = 0; i < SF_ARRAY_LEN(in_order); i++) {
            char value[64];
            (void)snprintf(value, sizeof(value), "'%s'", in_order[i]);
            assert_true(insert(f, keys[k][0], keys[k][1], value));
            assert_false(insert(f, keys[k][0], keys[k][1], value));
        }
    }
    struct sf_sql_conn *conn = sf_sql_acquire(f->sql, NULL, SF_SQL_READ);
    assert_int_equal(sf_sql_prepare(conn,
                                    "SELECT namespace_name FROM namespace_name_epochs"
                                    " WHERE namespace_name >= ?1 ORDER BY namespace_name",
                                    &diag, &stmt),
                     SF_OK);
    sf_sql_bind_text(stmt, 1, sf_view_str(""));
    for (size_t i = 0; i < SF_ARRAY_LEN(in_order); i++) {
        assert_int_equal(sf_sql_step(stmt, &diag, &row), SF_OK);
        assert_true(row);
        assert_true(sf_view_equal(sf_sql_col_text(stmt, 0), sf_view_str(in_order[i])));
    }
    sf_sql_finish(stmt);
    assert_int_equal(sf_sql_prepare(conn,
                                    "SELECT last_allocated_epoch FROM namespace_name_epochs"
                                    " WHERE namespace_name = ?1",
                                    &diag, &stmt),
                     SF_OK);
    sf_sql_bind_text(stmt, 1, sf_view_str("b "));
    assert_int_equal(sf_sql_step(stmt, &diag, &row), SF_OK);
    assert_false(row);
    sf_sql_release(conn);
}

/* Any number of rows without a business key; one with it per kind. */
static void test_business_keys(void **state)
{
    struct fixture *f = *state;

    SF_PROVES("CCS-5.1-18");
    for (int i = 0; i < 40; i++) {
        bool ok = raw(f,
                      "INSERT INTO catalog_replay_index (command_identity, transport_lookup_key,"
                      " business_lookup_key, command_kind, replay_family, payload_fingerprint,"
                      " terminal_state, replay_classification, original_outcome_json,"
                      " command_object_key, created_ts) VALUES ('%d', '%d', %s, '%s',"
                      " 'PUBLIC_RPC', 'f', 'APPLIED', 'ORIGINAL', '{}', 'k', 1)",
                      i, i, i < 20 ? "NULL" : "'same'",
                      i == 21 ? "PUT_COLLECTION_SCHEMA" : "PUT_NAMESPACE_METADATA");
        assert_int_equal(ok, i < 22);
    }
}

#define ON_DATABASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

/* A projection of an earlier release gets the steps that it lacks and keeps its rows. */
static void test_adoptions_step_of_an_older_projection(void **state)
{
    struct fixture *f = *state;
    struct sf_diag diag;
    char steps[sizeof(f->out)];

    sf_diag_init(&diag);
    assert_true(raw(f, "INSERT INTO namespace_name_epochs (namespace_name, last_allocated_epoch)"
                       " VALUES ('kept', 7)"));
    assert_true(raw(f, "SELECT COUNT(*) FROM schema_migrations"));
    (void)snprintf(steps, sizeof(steps), "%s", f->out);
    sf_sql_close(f->sql);
    assert_true(raw(f, "DROP TABLE catalog_adoptions"));
    assert_true(raw(f, "DELETE FROM schema_migrations WHERE version >= 6"));
    assert_int_equal(sf_catalog_projection_open_at(&f->place.where, &diag, &f->sql), SF_OK);
    assert_true(raw(f, "SELECT COUNT(*) FROM catalog_adoptions"));
    assert_string_equal(f->out, "0");
    assert_true(raw(f, "SELECT namespace_name FROM namespace_name_epochs"));
    assert_string_equal(f->out, "kept");
    assert_true(raw(f, "SELECT COUNT(*) FROM schema_migrations"));
    assert_string_equal(f->out, steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DATABASE(test_tables_are_the_notes),
        ON_DATABASE(test_profile_texts),
        ON_DATABASE(test_digest_covers_every_column),
        ON_DATABASE(test_enums_take_their_names_only),
        ON_DATABASE(test_numbers_and_nulls),
        ON_DATABASE(test_names_compare_byte_for_byte),
        ON_DATABASE(test_business_keys),
        ON_DATABASE(test_adoptions_step_of_an_older_projection),
    };
    return SF_RUN_TESTS("projection_schema", tests);
}
