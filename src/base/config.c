/*
 * Configuration. libcyaml reads the structure of the file (an unknown key is an error there, with
 * its line); every scalar is taken as text and checked here by one table of keys with type, range
 * and default, because the library reads "-1" into an unsigned number as 2^64 - 1 and "010" as 8.
 * Defaults are texts of the same table and pass the same checks.
 */
#include "base/config.h"

#include <arpa/inet.h>
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/config_priv.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"

#define ROLES_LIST_MAX 16u
#define DAY_MS         UINT64_C(86400000)
#define MIB            (UINT64_C(1) << 20)

/* The file as libcyaml reads it: one text per key, NULL when absent. */
struct raw_listen {
    char *grpc;
    char *admin;
    char *es;
};
struct raw_exec {
    char *reactors;
    char *workers;
};
struct raw_store {
    char *lane_shards;
    char *coordinator_shards;
};
struct raw_catalog {
    char *collection_gc_delay_ms;
    char *namespace_gc_delay_ms;
    char *cache_mib;
    char *checkpoint_commands;
    char *checkpoint_interval_ms;
    char *replay_retention_ms;
    struct sf_raw_policy policy;
};
struct raw_export {
    char *enabled;
    char *kind;
    char *host;
    char *port;
    char *database;
    char *user;
    char *password_file;
    char *tls;
    char *tls_ca_file;
    char *connect_timeout_ms;
    char *statement_timeout_ms;
};
struct raw_allocator {
    char *replay_retention_ms;
    char *failure_audit;
    char *recovery_segments;
    char *leases;
    char *lease_hot_per_s;
    char *lease_min_ids;
    char *lease_max_ids;
    struct raw_export export_to;
};
struct raw_es {
    char *namespace_name;
    char *auto_create;
};
struct raw_commit {
    char *duplicate_window_ms;
    char *wal_flush_ms;
    char *wal_chunk_bytes;
};
struct raw_log {
    char *level;
    char *file;
};
struct raw_limits {
    char *rpc_message_bytes;
    char *rpc_connections;
    char *rpc_streams_per_conn;
    char *es_connections;
    char *es_body_bytes;
};
struct raw_projection {
    char *kind;
    char *host;
    char *port;
    char *database;
    char *user;
    char *password_file;
    char *tls;
    char *tls_ca_file;
    char *readers;
    char *connect_timeout_ms;
    char *statement_timeout_ms;
};
struct raw {
    char *data_dir;
    char **roles;
    unsigned roles_count;
    char *keyring;
    struct raw_listen listen;
    struct raw_exec exec;
    struct raw_store store;
    struct raw_catalog catalog;
    struct raw_allocator allocator;
    struct raw_es es;
    struct raw_commit commit;
    struct raw_log log;
    struct raw_limits limits;
    struct raw_projection projection;
};

#define SECTION(key, member, fields)                                                               \
    CYAML_FIELD_MAPPING(key, CYAML_FLAG_OPTIONAL, struct raw, member, fields)

static const cyaml_schema_field_t listen_fields[] = {
    SF_YAML_TEXT("grpc", struct raw_listen, grpc), SF_YAML_TEXT("admin", struct raw_listen, admin),
    SF_YAML_TEXT("es", struct raw_listen, es), CYAML_FIELD_END};
static const cyaml_schema_field_t exec_fields[] = {
    SF_YAML_TEXT("reactors", struct raw_exec, reactors),
    SF_YAML_TEXT("workers", struct raw_exec, workers), CYAML_FIELD_END};
static const cyaml_schema_field_t store_fields[] = {
    SF_YAML_TEXT("lane_shards", struct raw_store, lane_shards),
    SF_YAML_TEXT("coordinator_shards", struct raw_store, coordinator_shards), CYAML_FIELD_END};
static const cyaml_schema_field_t catalog_fields[] = {
    SF_YAML_TEXT("collection_gc_delay_ms", struct raw_catalog, collection_gc_delay_ms),
    SF_YAML_TEXT("namespace_gc_delay_ms", struct raw_catalog, namespace_gc_delay_ms),
    SF_YAML_TEXT("cache_mib", struct raw_catalog, cache_mib),
    SF_YAML_TEXT("checkpoint_commands", struct raw_catalog, checkpoint_commands),
    SF_YAML_TEXT("checkpoint_interval_ms", struct raw_catalog, checkpoint_interval_ms),
    SF_YAML_TEXT("replay_retention_ms", struct raw_catalog, replay_retention_ms),
    CYAML_FIELD_MAPPING("quota", CYAML_FLAG_OPTIONAL, struct raw_catalog, policy.quota,
                        sf_raw_quota_fields),
    CYAML_FIELD_SEQUENCE("namespace_policies", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
                         struct raw_catalog, policy.namespaces, &sf_raw_namespace_schema, 0,
                         SF_LIMIT_QUOTA_POLICIES),
    CYAML_FIELD_SEQUENCE("callers", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct raw_catalog,
                         policy.callers, &sf_raw_caller_schema, 0, SF_LIMIT_QUOTA_CALLERS),
    CYAML_FIELD_END};
static const cyaml_schema_field_t export_fields[] = {
    SF_YAML_TEXT("enabled", struct raw_export, enabled),
    SF_YAML_TEXT("kind", struct raw_export, kind),
    SF_YAML_TEXT("host", struct raw_export, host),
    SF_YAML_TEXT("port", struct raw_export, port),
    SF_YAML_TEXT("database", struct raw_export, database),
    SF_YAML_TEXT("user", struct raw_export, user),
    SF_YAML_TEXT("password_file", struct raw_export, password_file),
    SF_YAML_TEXT("tls", struct raw_export, tls),
    SF_YAML_TEXT("tls_ca_file", struct raw_export, tls_ca_file),
    SF_YAML_TEXT("connect_timeout_ms", struct raw_export, connect_timeout_ms),
    SF_YAML_TEXT("statement_timeout_ms", struct raw_export, statement_timeout_ms),
    CYAML_FIELD_END};
static const cyaml_schema_field_t allocator_fields[] = {
    SF_YAML_TEXT("replay_retention_ms", struct raw_allocator, replay_retention_ms),
    SF_YAML_TEXT("failure_audit", struct raw_allocator, failure_audit),
    SF_YAML_TEXT("recovery_segments", struct raw_allocator, recovery_segments),
    SF_YAML_TEXT("leases", struct raw_allocator, leases),
    SF_YAML_TEXT("lease_hot_per_s", struct raw_allocator, lease_hot_per_s),
    SF_YAML_TEXT("lease_min_ids", struct raw_allocator, lease_min_ids),
    SF_YAML_TEXT("lease_max_ids", struct raw_allocator, lease_max_ids),
    CYAML_FIELD_MAPPING("export", CYAML_FLAG_OPTIONAL, struct raw_allocator, export_to,
                        export_fields),
    CYAML_FIELD_END};
static const cyaml_schema_field_t es_fields[] = {
    SF_YAML_TEXT("namespace", struct raw_es, namespace_name),
    SF_YAML_TEXT("auto_create", struct raw_es, auto_create), CYAML_FIELD_END};
static const cyaml_schema_field_t commit_fields[] = {
    SF_YAML_TEXT("duplicate_window_ms", struct raw_commit, duplicate_window_ms),
    SF_YAML_TEXT("wal_flush_ms", struct raw_commit, wal_flush_ms),
    SF_YAML_TEXT("wal_chunk_bytes", struct raw_commit, wal_chunk_bytes), CYAML_FIELD_END};
static const cyaml_schema_field_t log_fields[] = {SF_YAML_TEXT("level", struct raw_log, level),
                                                  SF_YAML_TEXT("file", struct raw_log, file),
                                                  CYAML_FIELD_END};
static const cyaml_schema_field_t limits_fields[] = {
    SF_YAML_TEXT("rpc_message_bytes", struct raw_limits, rpc_message_bytes),
    SF_YAML_TEXT("rpc_connections", struct raw_limits, rpc_connections),
    SF_YAML_TEXT("rpc_streams_per_conn", struct raw_limits, rpc_streams_per_conn),
    SF_YAML_TEXT("es_connections", struct raw_limits, es_connections),
    SF_YAML_TEXT("es_body_bytes", struct raw_limits, es_body_bytes),
    CYAML_FIELD_END};

static const cyaml_schema_field_t projection_fields[] = {
    SF_YAML_TEXT("kind", struct raw_projection, kind),
    SF_YAML_TEXT("host", struct raw_projection, host),
    SF_YAML_TEXT("port", struct raw_projection, port),
    SF_YAML_TEXT("database", struct raw_projection, database),
    SF_YAML_TEXT("user", struct raw_projection, user),
    SF_YAML_TEXT("password_file", struct raw_projection, password_file),
    SF_YAML_TEXT("tls", struct raw_projection, tls),
    SF_YAML_TEXT("tls_ca_file", struct raw_projection, tls_ca_file),
    SF_YAML_TEXT("readers", struct raw_projection, readers),
    SF_YAML_TEXT("connect_timeout_ms", struct raw_projection, connect_timeout_ms),
    SF_YAML_TEXT("statement_timeout_ms", struct raw_projection, statement_timeout_ms),
    CYAML_FIELD_END};

static const cyaml_schema_value_t role_schema = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 1, CYAML_UNLIMITED)};

static const cyaml_schema_field_t raw_fields[] = {
    SF_YAML_TEXT("data_dir", struct raw, data_dir),
    CYAML_FIELD_SEQUENCE("roles", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct raw, roles,
                         &role_schema, 1, ROLES_LIST_MAX),
    SF_YAML_TEXT("keyring", struct raw, keyring),
    SECTION("listen", listen, listen_fields),
    SECTION("exec", exec, exec_fields),
    SECTION("store", store, store_fields),
    SECTION("catalog", catalog, catalog_fields),
    SECTION("allocator", allocator, allocator_fields),
    SECTION("es", es, es_fields),
    SECTION("commit", commit, commit_fields),
    SECTION("log", log, log_fields),
    SECTION("limits", limits, limits_fields),
    SECTION("projection", projection, projection_fields),
    CYAML_FIELD_END};

static const cyaml_schema_value_t raw_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct raw, raw_fields)};

enum kind {
    KIND_U32,
    KIND_BOOL,
    KIND_LISTEN,
    KIND_LEVEL,
    KIND_PROJECTION,
    KIND_TLS,
    KIND_PATH, /* not empty; NULL stays NULL */
    KIND_NAME  /* a catalog name */
};

/* One scalar key: where its text comes from, where its value goes, what it may be. */
struct key {
    const char *name;     /* dotted, as in messages */
    size_t raw_offset;    /* of the char * in struct raw */
    enum kind kind;       /* how the text is read */
    size_t offset;        /* of the value in struct sf_config */
    uint64_t min;         /* numbers: least value */
    uint64_t max;         /* numbers: greatest value */
    const char *fallback; /* text used when the key is absent; NULL for none */
};

#define RAW(member) offsetof(struct raw, member)
#define CFG(member) offsetof(struct sf_config, member)

/* clang-format off */
static const struct key keys[] = {
    {"data_dir", RAW(data_dir), KIND_PATH, CFG(data_dir), 0, 0, "data"},
    {"keyring", RAW(keyring), KIND_PATH, CFG(keyring_path), 0, 0, NULL},
    {"listen.grpc", RAW(listen.grpc), KIND_LISTEN, CFG(grpc), 0, 0, "127.0.0.1:7400"},
    {"listen.admin", RAW(listen.admin), KIND_LISTEN, CFG(admin), 0, 0, "127.0.0.1:7401"},
    {"listen.es", RAW(listen.es), KIND_LISTEN, CFG(es), 0, 0, "127.0.0.1:9200"},
    {"exec.reactors", RAW(exec.reactors), KIND_U32, CFG(reactors), 0, 256, "0"},
    {"exec.workers", RAW(exec.workers), KIND_U32, CFG(workers), 1, 256, "64"},
    {"store.lane_shards", RAW(store.lane_shards), KIND_U32, CFG(lane_shards), 1, 4096, "64"},
    {"store.coordinator_shards", RAW(store.coordinator_shards), KIND_U32, CFG(coordinator_shards),
     1, 1024, "16"},
    {"catalog.collection_gc_delay_ms", RAW(catalog.collection_gc_delay_ms), KIND_U32,
     CFG(collection_gc_delay_ms), 1, UINT32_MAX, "604800000"},
    {"catalog.namespace_gc_delay_ms", RAW(catalog.namespace_gc_delay_ms), KIND_U32,
     CFG(namespace_gc_delay_ms), 1, UINT32_MAX, "604800000"},
    {"catalog.cache_mib", RAW(catalog.cache_mib), KIND_U32, CFG(catalog_cache_mib), 1, 1u << 20,
     "64"},
    {"catalog.checkpoint_commands", RAW(catalog.checkpoint_commands), KIND_U32,
     CFG(checkpoint_commands), 1, UINT32_MAX, "100000"},
    {"catalog.checkpoint_interval_ms", RAW(catalog.checkpoint_interval_ms), KIND_U32,
     CFG(checkpoint_interval_ms), 1000, UINT32_MAX, "3600000"},
    {"catalog.replay_retention_ms", RAW(catalog.replay_retention_ms), KIND_U32,
     CFG(replay_retention_ms), SF_LIMIT_REPLAY_RETENTION_MIN_MS, UINT32_MAX, "2592000000"},
    {"catalog.quota.lease_ttl_ms", RAW(catalog.policy.quota.lease_ttl_ms), KIND_U32,
     CFG(policy.lease_ttl_ms), 1000, 600000, "10000"},
    {"catalog.quota.lease_retention_ms", RAW(catalog.policy.quota.lease_retention_ms), KIND_U32,
     CFG(policy.lease_retention_ms), 60000, DAY_MS, "900000"},
    {"catalog.quota.pressure_ms", RAW(catalog.policy.quota.pressure_ms), KIND_U32,
     CFG(policy.pressure_ms), 1000, 600000, "30000"},
    {"allocator.replay_retention_ms", RAW(allocator.replay_retention_ms), KIND_U32,
     CFG(alloc_retention_ms), SF_LIMIT_ALLOC_RETENTION_MIN_MS, UINT32_MAX, "2592000000"},
    {"allocator.failure_audit", RAW(allocator.failure_audit), KIND_BOOL, CFG(alloc_failure_audit),
     0, 0, "false"},
    {"allocator.recovery_segments", RAW(allocator.recovery_segments), KIND_BOOL,
     CFG(alloc_recovery_segments), 0, 0, "false"},
    {"allocator.leases", RAW(allocator.leases), KIND_BOOL, CFG(alloc_leases), 0, 0, "true"},
    {"allocator.lease_hot_per_s", RAW(allocator.lease_hot_per_s), KIND_U32,
     CFG(alloc_lease_hot_per_s), 1, SF_LIMIT_ALLOC_LEASE_PER_S, "50"},
    {"allocator.lease_min_ids", RAW(allocator.lease_min_ids), KIND_U32, CFG(alloc_lease_min_ids), 1,
     SF_LIMIT_ALLOC_LEASE_IDS, "64"},
    {"allocator.lease_max_ids", RAW(allocator.lease_max_ids), KIND_U32, CFG(alloc_lease_max_ids), 1,
     SF_LIMIT_ALLOC_LEASE_IDS, "65536"},
    {"allocator.export.enabled", RAW(allocator.export_to.enabled), KIND_BOOL, CFG(alloc_export), 0,
     0, "false"},
    {"allocator.export.kind", RAW(allocator.export_to.kind), KIND_PROJECTION,
     CFG(alloc_export_to.kind), 0, 0, "sqlite"},
    {"allocator.export.host", RAW(allocator.export_to.host), KIND_PATH, CFG(alloc_export_to.host),
     0, 0, NULL},
    {"allocator.export.port", RAW(allocator.export_to.port), KIND_U32, CFG(alloc_export_to.port),
     0, 65535, "0"},
    {"allocator.export.database", RAW(allocator.export_to.database), KIND_PATH,
     CFG(alloc_export_to.database), 0, 0, NULL},
    {"allocator.export.user", RAW(allocator.export_to.user), KIND_PATH, CFG(alloc_export_to.user),
     0, 0, NULL},
    {"allocator.export.password_file", RAW(allocator.export_to.password_file), KIND_PATH,
     CFG(alloc_export_to.password_file), 0, 0, NULL},
    {"allocator.export.tls", RAW(allocator.export_to.tls), KIND_TLS, CFG(alloc_export_to.tls), 0, 0,
     "off"},
    {"allocator.export.tls_ca_file", RAW(allocator.export_to.tls_ca_file), KIND_PATH,
     CFG(alloc_export_to.tls_ca_file), 0, 0, NULL},
    {"allocator.export.connect_timeout_ms", RAW(allocator.export_to.connect_timeout_ms), KIND_U32,
     CFG(alloc_export_to.connect_timeout_ms), 1000, 60000, "5000"},
    {"allocator.export.statement_timeout_ms", RAW(allocator.export_to.statement_timeout_ms),
     KIND_U32, CFG(alloc_export_to.statement_timeout_ms), 1000, 600000, "10000"},
    {"es.namespace", RAW(es.namespace_name), KIND_NAME, CFG(es_namespace), 0, 0, "default"},
    {"es.auto_create", RAW(es.auto_create), KIND_BOOL, CFG(es_auto_create), 0, 0, "false"},
    {"commit.duplicate_window_ms", RAW(commit.duplicate_window_ms), KIND_U32,
     CFG(duplicate_window_ms), 60000, DAY_MS, "900000"},
    {"commit.wal_flush_ms", RAW(commit.wal_flush_ms), KIND_U32, CFG(wal_flush_ms), 1, 10000, "2"},
    {"commit.wal_chunk_bytes", RAW(commit.wal_chunk_bytes), KIND_U32, CFG(wal_chunk_bytes),
     MIB / 16, SF_LIMIT_WAL_CHUNK_BYTES, "4194304"},
    {"projection.kind", RAW(projection.kind), KIND_PROJECTION, CFG(projection.kind), 0, 0,
     "sqlite"},
    {"projection.host", RAW(projection.host), KIND_PATH, CFG(projection.host), 0, 0, NULL},
    {"projection.port", RAW(projection.port), KIND_U32, CFG(projection.port), 0, 65535, "0"},
    {"projection.database", RAW(projection.database), KIND_PATH, CFG(projection.database), 0, 0,
     NULL},
    {"projection.user", RAW(projection.user), KIND_PATH, CFG(projection.user), 0, 0, NULL},
    {"projection.password_file", RAW(projection.password_file), KIND_PATH,
     CFG(projection.password_file), 0, 0, NULL},
    {"projection.tls", RAW(projection.tls), KIND_TLS, CFG(projection.tls), 0, 0, "off"},
    {"projection.tls_ca_file", RAW(projection.tls_ca_file), KIND_PATH,
     CFG(projection.tls_ca_file), 0, 0, NULL},
    {"projection.readers", RAW(projection.readers), KIND_U32, CFG(projection.readers), 1,
     SF_LIMIT_SQL_CONNECTIONS - 1, "4"},
    {"projection.connect_timeout_ms", RAW(projection.connect_timeout_ms), KIND_U32,
     CFG(projection.connect_timeout_ms), 1000, 60000, "5000"},
    {"projection.statement_timeout_ms", RAW(projection.statement_timeout_ms), KIND_U32,
     CFG(projection.statement_timeout_ms), 1000, 600000, "10000"},
    {"log.level", RAW(log.level), KIND_LEVEL, CFG(log_level), 0, 0, "info"},
    {"log.file", RAW(log.file), KIND_PATH, CFG(log_file), 0, 0, NULL},
    {"limits.rpc_message_bytes", RAW(limits.rpc_message_bytes), KIND_U32, CFG(rpc_message_bytes),
     MIB / 16, SF_LIMIT_RPC_MESSAGE_BYTES, "8388608"},
    {"limits.rpc_connections", RAW(limits.rpc_connections), KIND_U32, CFG(rpc_connections), 1,
     SF_LIMIT_RPC_CONNECTIONS, "4096"},
    {"limits.rpc_streams_per_conn", RAW(limits.rpc_streams_per_conn), KIND_U32,
     CFG(rpc_streams_per_conn), 1, SF_LIMIT_RPC_STREAMS_PER_CONN, "256"},
    {"limits.es_connections", RAW(limits.es_connections), KIND_U32, CFG(es_connections), 1, 4096,
     "256"},
    {"limits.es_body_bytes", RAW(limits.es_body_bytes), KIND_U32, CFG(es_body_bytes), MIB / 16,
     SF_LIMIT_ES_BODY_BYTES, "104857600"},
};

static const struct {
    const char *name;
    unsigned bits;
} role_names[] = {
    {"all", SF_ROLE_ALL},         {"ccs", SF_ROLE_CCS},
    {"allocator", SF_ROLE_ALLOCATOR}, {"coordinator", SF_ROLE_COORDINATOR},
    {"tso", SF_ROLE_TSO},         {"ingest", SF_ROLE_INGEST},
    {"es-gateway", SF_ROLE_ES_GATEWAY},
};
/* clang-format on */

static enum sf_err one_role(const char *what, struct sf_view text, struct sf_diag *diag,
                            unsigned *roles)
{
    for (size_t i = 0; i < SF_ARRAY_LEN(role_names); i++) {
        if (sf_view_equal(text, sf_view_str(role_names[i].name))) {
            *roles |= role_names[i].bits;
            return SF_OK;
        }
    }
    return sf_diag_set(diag, SF_ERR_CONFIG,
                       "%s: there is no role '%.*s'; the roles are all, ccs, allocator, "
                       "coordinator, tso, ingest, es-gateway",
                       what, (int)(text.len > 64 ? 64 : text.len), (const char *)text.ptr);
}

enum sf_err sf_roles_parse(const char *what, struct sf_view text, struct sf_diag *diag,
                           unsigned *out_roles)
{
    unsigned roles = 0;

    for (;;) {
        const uint8_t *comma = text.len == 0 ? NULL : memchr(text.ptr, ',', text.len);
        size_t n = comma == NULL ? text.len : (size_t)(comma - text.ptr);
        enum sf_err err = one_role(what, sf_view_bytes(text.ptr, n), diag, &roles);
        if (err != SF_OK)
            return err;
        if (comma == NULL)
            break;
        text.ptr += n + 1;
        text.len -= n + 1;
    }
    *out_roles = roles;
    return SF_OK;
}

static bool is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (inet_pton(AF_INET, host, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static bool is_address(const char *host)
{
    struct in6_addr any;

    return inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1;
}

enum sf_err sf_listen_parse(const char *what, struct sf_view text, struct sf_diag *diag,
                            struct sf_listen *out_listen)
{
    struct sf_listen listen = {0};
    uint64_t port;
    size_t colon = text.len;

    while (colon > 0 && text.ptr[colon - 1] != ':')
        colon--;
    struct sf_view host = {text.ptr, colon == 0 ? 0 : colon - 1};
    bool bracketed = host.len >= 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']';
    if (bracketed) {
        host.ptr++;
        host.len -= 2;
    }
    if (host.len == 0 || host.len >= sizeof(listen.host) ||
        (!bracketed && memchr(host.ptr, ':', host.len) != NULL) ||
        !sf_parse_u64(sf_view_bytes(text.ptr + colon, text.len - colon), &port) ||
        port > UINT16_MAX)
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "%s: '%.*s' is not host:port (an IPv6 host in brackets, a port of 0 to "
                           "65535)",
                           what, (int)(text.len > 80 ? 80 : text.len), (const char *)text.ptr);
    memcpy(listen.host, host.ptr, host.len);
    if (strcmp(listen.host, "localhost") == 0)
        memcpy(listen.host, "127.0.0.1", sizeof("127.0.0.1"));
    if (!is_address(listen.host))
        return sf_diag_set(diag, SF_ERR_CONFIG, "%s: '%s' is not a numeric address", what,
                           listen.host);
    if (!is_loopback(listen.host))
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "%s: %s is not a loopback address, and plaintext is served on loopback "
                           "only (127.0.0.0/8 or ::1)",
                           what, listen.host);
    listen.port = (uint16_t)port;
    *out_listen = listen;
    return SF_OK;
}

static enum sf_err parse_number(const char *what, const struct key *key, const char *text,
                                struct sf_diag *diag, uint32_t *at)
{
    uint64_t value;

    if (!sf_parse_u64(sf_view_str(text), &value) || value < key->min || value > key->max)
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "%s: '%.40s' is not a whole number of %" PRIu64 " to %" PRIu64, what,
                           text, key->min, key->max);
    *at = (uint32_t)value;
    return SF_OK;
}

/* One of `names`, in the order of the enum behind them, whose first value is 0. */
static enum sf_err parse_choice(const char *what, const char *text, const char *const *names,
                                size_t count, struct sf_diag *diag, void *at)
{
    char list[80] = "";

    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, names[i]) == 0) {
            *(int *)at = (int)i;
            return SF_OK;
        }
        size_t len = strlen(list);
        (void)snprintf(list + len, sizeof(list) - len, "%s%s",
                       i == 0           ? ""
                       : i + 1 == count ? " or "
                                        : ", ",
                       names[i]);
    }
    return sf_diag_set(diag, SF_ERR_CONFIG, "%s: '%.40s' is not %s", what, text, list);
}

static const char *const level_names[] = {"debug", "info", "warn", "error"};
static const char *const projection_names[] = {"sqlite", "postgres", "mysql"};
static const char *const tls_names[] = {"off", "require", "verify"};
static_assert(sizeof(enum sf_log_level) == sizeof(int) &&
                  sizeof(enum sf_projection_kind) == sizeof(int) &&
                  sizeof(enum sf_projection_tls) == sizeof(int),
              "parse_choice writes an int");

static enum sf_err parse_key(const char *name, const struct key *key, const char *text,
                             struct sf_diag *diag, struct sf_config *config)
{
    void *at = (char *)config + key->offset;
    char what[160];

    (void)snprintf(what, sizeof(what), "%.100s: %s", name, key->name);
    switch (key->kind) {
    case KIND_U32:
        return parse_number(what, key, text, diag, at);
    case KIND_BOOL:
        *(bool *)at = strcmp(text, "true") == 0;
        return *(bool *)at || strcmp(text, "false") == 0
                   ? SF_OK
                   : sf_diag_set(diag, SF_ERR_CONFIG, "%s: '%.40s' is not true or false", what,
                                 text);
    case KIND_LISTEN:
        return sf_listen_parse(what, sf_view_str(text), diag, at);
    case KIND_LEVEL:
        return parse_choice(what, text, level_names, SF_ARRAY_LEN(level_names), diag, at);
    case KIND_PROJECTION:
        return parse_choice(what, text, projection_names, SF_ARRAY_LEN(projection_names), diag, at);
    case KIND_TLS:
        return parse_choice(what, text, tls_names, SF_ARRAY_LEN(tls_names), diag, at);
    case KIND_NAME: {
        struct sf_diag inner;
        if (sf_name_check(key->name, sf_view_str(text), false, &inner) != SF_OK)
            return sf_diag_set(diag, SF_ERR_CONFIG, "%.100s: %.300s", name, inner.message);
        break;
    }
    case KIND_PATH:
        if (text[0] == '\0')
            return sf_diag_set(diag, SF_ERR_CONFIG, "%s must not be empty", what);
        break;
    }
    *(char **)at = sf_strdup(text);
    return SF_OK;
}

/* The keys of `section` that name a server stand together, and only for one. */
static enum sf_err check_projection(const char *name, const char *section,
                                    const struct sf_config_projection *p, struct sf_diag *diag)
{
    const char *const values[] = {p->host, p->database, p->user, p->password_file, p->tls_ca_file};
    static const char *const texts[] = {"host", "database", "user", "password_file", "tls_ca_file"};

    for (size_t i = 0; i < SF_ARRAY_LEN(values); i++) {
        if (p->kind == SF_PROJECTION_SQLITE && values[i] != NULL)
            return sf_diag_set(diag, SF_ERR_CONFIG, "%.100s: %s.%s is for kind postgres or mysql",
                               name, section, texts[i]);
        if (p->kind != SF_PROJECTION_SQLITE && i < 3 && values[i] == NULL)
            return sf_diag_set(diag, SF_ERR_CONFIG, "%.100s: %s.%s is needed for kind %s", name,
                               section, texts[i], projection_names[p->kind]);
    }
    if (p->kind != SF_PROJECTION_SQLITE && p->tls == SF_PROJECTION_TLS_OFF && p->host[0] != '/' &&
        strcmp(p->host, "localhost") != 0 && !is_loopback(p->host))
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "%.100s: %s.tls: off is for a Unix socket or a loopback address "
                           "only, %.100s is neither",
                           name, section, p->host);
    return SF_OK;
}

static enum sf_err build(const char *name, const struct raw *raw, struct sf_diag *diag,
                         struct sf_config *config)
{
    for (size_t i = 0; i < SF_ARRAY_LEN(keys); i++) {
        const char *text =
            *(const char *const *)(const void *)((const char *)raw + keys[i].raw_offset);
        if (text == NULL)
            text = keys[i].fallback;
        if (text == NULL)
            continue;
        enum sf_err err = parse_key(name, &keys[i], text, diag, config);
        if (err != SF_OK)
            return err;
    }
    enum sf_err wrong = check_projection(name, "projection", &config->projection, diag);
    if (wrong == SF_OK)
        wrong = check_projection(name, "allocator.export", &config->alloc_export_to, diag);
    if (wrong == SF_OK && config->alloc_lease_min_ids > config->alloc_lease_max_ids)
        wrong =
            sf_diag_set(diag, SF_ERR_CONFIG,
                        "%.100s: allocator.lease_min_ids is above allocator.lease_max_ids", name);
    if (wrong == SF_OK)
        wrong = sf_config_policy_build(name, &raw->catalog.policy, diag, &config->policy);
    if (wrong != SF_OK)
        return wrong;
    if (raw->roles_count == 0)
        config->roles = SF_ROLE_ALL;
    for (unsigned i = 0; i < raw->roles_count; i++) {
        char what[160];
        (void)snprintf(what, sizeof(what), "%.100s: roles", name);
        enum sf_err err = one_role(what, sf_view_str(raw->roles[i]), diag, &config->roles);
        if (err != SF_OK)
            return err;
    }
    return SF_OK;
}

enum sf_err sf_config_parse(const char *name, struct sf_view text, struct sf_diag *diag,
                            struct sf_config **out_config)
{
    struct sf_config *config = sf_calloc(1, sizeof(*config));
    const struct raw none = {0};
    void *raw = NULL;
    enum sf_err err = sf_yaml_load(name, text, &raw_schema, diag, &raw);

    if (err == SF_OK)
        err = build(name, raw == NULL ? &none : raw, diag, config);
    sf_yaml_free(&raw_schema, raw);
    if (err != SF_OK) {
        sf_config_destroy(config);
        return err;
    }
    *out_config = config;
    return SF_OK;
}

enum sf_err sf_config_load(const char *path, struct sf_diag *diag, struct sf_config **out_config)
{
    struct sf_buf text = {0};
    enum sf_err err = sf_file_read(path, SF_LIMIT_CONFIG_FILE_BYTES, false, diag, &text);

    if (err == SF_ERR_LIMIT)
        err = SF_ERR_CONFIG;
    if (err == SF_OK)
        err = sf_config_parse(path, sf_buf_view(&text), diag, out_config);
    sf_buf_fini(&text);
    return err;
}

struct sf_config *sf_config_defaults(void)
{
    struct sf_config *config = sf_calloc(1, sizeof(*config));
    const struct raw none = {0};
    enum sf_err err = build("defaults", &none, NULL, config);

    SF_ASSERT(err == SF_OK);
    return config;
}

static void projection_fini(struct sf_config_projection *projection)
{
    free(projection->host);
    free(projection->database);
    free(projection->user);
    free(projection->password_file);
    free(projection->tls_ca_file);
}

void sf_config_destroy(struct sf_config *config)
{
    if (config == NULL)
        return;
    sf_config_policy_fini(&config->policy);
    free(config->data_dir);
    free(config->es_namespace);
    free(config->keyring_path);
    free(config->log_file);
    projection_fini(&config->projection);
    projection_fini(&config->alloc_export_to);
    free(config);
}
