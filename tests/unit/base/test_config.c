/*
 * The configuration file: defaults, every key, and messages that name what is wrong. The shipped
 * file must load and give exactly the defaults.
 */
#include "base/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "support/proves.h"

static struct sf_config *parse(const char *text)
{
    struct sf_config *config = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    enum sf_err err = sf_config_parse("f.yaml", sf_view_str(text), &diag, &config);
    if (err != SF_OK)
        print_error("%s\n", diag.message);
    assert_int_equal(err, SF_OK);
    return config;
}

static void refused(const char *text, const char *part)
{
    struct sf_config *config = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(sf_config_parse("f.yaml", sf_view_str(text), &diag, &config), SF_ERR_CONFIG);
    assert_null(config);
    if (strstr(diag.message, part) == NULL)
        print_error("message: %s\nwanted:  %s\n", diag.message, part);
    assert_non_null(strstr(diag.message, part));
    assert_int_equal(strncmp(diag.message, "f.yaml", 6), 0);
}

static void same(const struct sf_config *a, const struct sf_config *b)
{
    assert_string_equal(a->data_dir, b->data_dir);
    assert_int_equal(a->roles, b->roles);
    assert_string_equal(a->grpc.host, b->grpc.host);
    assert_int_equal(a->grpc.port, b->grpc.port);
    assert_int_equal(a->admin.port, b->admin.port);
    assert_int_equal(a->es.port, b->es.port);
    assert_int_equal(a->reactors, b->reactors);
    assert_int_equal(a->workers, b->workers);
    assert_int_equal(a->lane_shards, b->lane_shards);
    assert_int_equal(a->coordinator_shards, b->coordinator_shards);
    assert_int_equal(a->collection_gc_delay_ms, b->collection_gc_delay_ms);
    assert_int_equal(a->namespace_gc_delay_ms, b->namespace_gc_delay_ms);
    assert_int_equal(a->catalog_cache_mib, b->catalog_cache_mib);
    assert_int_equal(a->checkpoint_commands, b->checkpoint_commands);
    assert_int_equal(a->checkpoint_interval_ms, b->checkpoint_interval_ms);
    assert_true(a->replay_retention_ms == b->replay_retention_ms);
    assert_int_equal(a->policy.lease_ttl_ms, b->policy.lease_ttl_ms);
    assert_int_equal(a->policy.lease_retention_ms, b->policy.lease_retention_ms);
    assert_int_equal(a->policy.pressure_ms, b->policy.pressure_ms);
    assert_int_equal(a->policy.class_count, b->policy.class_count);
    assert_int_equal(a->policy.namespace_count, b->policy.namespace_count);
    assert_int_equal(a->policy.caller_count, b->policy.caller_count);
    assert_string_equal(a->es_namespace, b->es_namespace);
    assert_int_equal(a->es_auto_create, b->es_auto_create);
    assert_true(a->keyring_path == NULL && b->keyring_path == NULL);
    assert_int_equal(a->duplicate_window_ms, b->duplicate_window_ms);
    assert_int_equal(a->wal_flush_ms, b->wal_flush_ms);
    assert_int_equal(a->wal_chunk_bytes, b->wal_chunk_bytes);
    assert_int_equal(a->alloc_leases, b->alloc_leases);
    assert_int_equal(a->alloc_lease_hot_per_s, b->alloc_lease_hot_per_s);
    assert_int_equal(a->alloc_lease_min_ids, b->alloc_lease_min_ids);
    assert_int_equal(a->alloc_lease_max_ids, b->alloc_lease_max_ids);
    assert_int_equal(a->log_level, b->log_level);
    assert_true(a->log_file == NULL && b->log_file == NULL);
    assert_int_equal(a->rpc_message_bytes, b->rpc_message_bytes);
    assert_int_equal(a->rpc_connections, b->rpc_connections);
    assert_int_equal(a->rpc_streams_per_conn, b->rpc_streams_per_conn);
    assert_int_equal(a->es_connections, b->es_connections);
    assert_int_equal(a->es_body_bytes, b->es_body_bytes);
    assert_int_equal(a->projection.kind, b->projection.kind);
    assert_int_equal(a->projection.port, b->projection.port);
    assert_int_equal(a->projection.tls, b->projection.tls);
    assert_int_equal(a->projection.readers, b->projection.readers);
    assert_int_equal(a->projection.connect_timeout_ms, b->projection.connect_timeout_ms);
    assert_int_equal(a->projection.statement_timeout_ms, b->projection.statement_timeout_ms);
    assert_true(a->projection.host == NULL && b->projection.host == NULL);
    assert_true(a->alloc_retention_ms == b->alloc_retention_ms);
    assert_int_equal(a->alloc_failure_audit, b->alloc_failure_audit);
    assert_int_equal(a->alloc_recovery_segments, b->alloc_recovery_segments);
    assert_int_equal(a->alloc_export, b->alloc_export);
    assert_int_equal(a->alloc_export_to.kind, b->alloc_export_to.kind);
}

static void test_defaults(void **state)
{
    (void)state;
    struct sf_config *config = sf_config_defaults();

    assert_string_equal(config->data_dir, "data");
    assert_int_equal(config->roles, SF_ROLE_ALL);
    assert_string_equal(config->grpc.host, "127.0.0.1");
    assert_int_equal(config->grpc.port, 7400);
    assert_int_equal(config->admin.port, 7401);
    assert_int_equal(config->es.port, 9200);
    assert_int_equal(config->lane_shards, 64);
    assert_int_equal(config->coordinator_shards, 16);
    assert_int_equal(config->collection_gc_delay_ms, 7 * 24 * 60 * 60 * 1000);
    assert_int_equal(config->namespace_gc_delay_ms, 7 * 24 * 60 * 60 * 1000);
    assert_int_equal(config->catalog_cache_mib, 64);
    assert_int_equal(config->checkpoint_commands, 100000);
    assert_int_equal(config->checkpoint_interval_ms, 60 * 60 * 1000);
    assert_true(config->replay_retention_ms == 2592000000u);
    assert_true(config->alloc_retention_ms == 2592000000u);
    assert_false(config->alloc_failure_audit || config->alloc_recovery_segments ||
                 config->alloc_export);
    assert_int_equal(config->duplicate_window_ms, 15 * 60 * 1000);
    assert_true(config->alloc_leases);
    assert_int_equal(config->alloc_lease_hot_per_s, SF_LIMIT_ALLOC_LEASE_HOT_PER_S);
    assert_int_equal(config->alloc_lease_min_ids, SF_LIMIT_ALLOC_LEASE_MIN_IDS);
    assert_int_equal(config->alloc_lease_max_ids, SF_LIMIT_ALLOC_LEASE_MAX_IDS);
    sf_config_destroy(config);
    sf_config_destroy(NULL);
}

static void test_shipped_file_gives_the_defaults(void **state)
{
    (void)state;
    struct sf_config *defaults = sf_config_defaults();
    struct sf_config *shipped = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    enum sf_err err = sf_config_load(SF_SHIPPED_CONFIG, &diag, &shipped);
    if (err != SF_OK)
        print_error("%s\n", diag.message);
    assert_int_equal(err, SF_OK);
    same(shipped, defaults);
    sf_config_destroy(shipped);
    sf_config_destroy(defaults);
}

static void test_every_key(void **state)
{
    (void)state;
    struct sf_config *c = parse("data_dir: /var/lib/x\n"
                                "roles: [ccs, tso]\n"
                                "keyring: /etc/ring.yaml\n"
                                "listen:\n"
                                "  grpc: \"[::1]:1\"\n"
                                "  admin: localhost:0\n"
                                "  es: 127.1.2.3:65535\n"
                                "exec:\n  reactors: 3\n  workers: 5\n"
                                "store:\n  lane_shards: 1\n  coordinator_shards: 2\n"
                                "catalog:\n  collection_gc_delay_ms: 1\n"
                                "  namespace_gc_delay_ms: 4294967295\n"
                                "  cache_mib: 1048576\n"
                                "allocator:\n  replay_retention_ms: 604800000\n"
                                "  leases: false\n  lease_hot_per_s: 1\n"
                                "  lease_min_ids: 1\n  lease_max_ids: 1048576\n"
                                "  failure_audit: true\n  recovery_segments: true\n"
                                "  export:\n    enabled: true\n    kind: postgres\n"
                                "    host: /run/pg\n    database: d\n    user: u\n"
                                "es:\n  namespace: \"\xc3\xa9 x\"\n  auto_create: true\n"
                                "commit:\n  duplicate_window_ms: 60000\n  wal_flush_ms: 7\n"
                                "  wal_chunk_bytes: 65536\n"
                                "log:\n  level: error\n  file: /tmp/l\n"
                                "limits:\n  rpc_message_bytes: 65536\n  rpc_connections: 9\n"
                                "  rpc_streams_per_conn: 8\n  es_connections: 7\n"
                                "  es_body_bytes: 65537\n");

    assert_string_equal(c->data_dir, "/var/lib/x");
    assert_int_equal(c->roles, SF_ROLE_CCS | SF_ROLE_TSO);
    assert_string_equal(c->keyring_path, "/etc/ring.yaml");
    assert_string_equal(c->grpc.host, "::1");
    assert_int_equal(c->grpc.port, 1);
    assert_string_equal(c->admin.host, "127.0.0.1");
    assert_int_equal(c->admin.port, 0);
    assert_string_equal(c->es.host, "127.1.2.3");
    assert_int_equal(c->es.port, 65535);
    assert_int_equal(c->reactors, 3);
    assert_int_equal(c->workers, 5);
    assert_int_equal(c->lane_shards, 1);
    assert_int_equal(c->coordinator_shards, 2);
    assert_int_equal(c->collection_gc_delay_ms, 1);
    assert_true(c->namespace_gc_delay_ms == UINT32_MAX);
    assert_int_equal(c->catalog_cache_mib, 1048576);
    assert_string_equal(c->es_namespace, "\xc3\xa9 x");
    assert_true(c->es_auto_create);
    assert_int_equal(c->alloc_retention_ms, 604800000);
    assert_true(c->alloc_failure_audit && c->alloc_recovery_segments && c->alloc_export);
    assert_int_equal(c->alloc_export_to.kind, SF_PROJECTION_POSTGRES);
    assert_string_equal(c->alloc_export_to.host, "/run/pg");
    assert_int_equal(c->duplicate_window_ms, 60000);
    assert_int_equal(c->wal_flush_ms, 7);
    assert_int_equal(c->wal_chunk_bytes, 65536);
    assert_false(c->alloc_leases);
    assert_int_equal(c->alloc_lease_hot_per_s, 1);
    assert_int_equal(c->alloc_lease_min_ids, 1);
    assert_int_equal(c->alloc_lease_max_ids, 1048576);
    assert_int_equal(c->log_level, SF_LOG_ERROR);
    assert_string_equal(c->log_file, "/tmp/l");
    assert_int_equal(c->rpc_message_bytes, 65536);
    assert_int_equal(c->rpc_connections, 9);
    assert_int_equal(c->rpc_streams_per_conn, 8);
    assert_int_equal(c->es_connections, 7);
    assert_int_equal(c->es_body_bytes, 65537);
    sf_config_destroy(c);
}

#define CLASSES "catalog:\n  quota:\n    classes:\n    - "

static void test_policy(void **state)
{
    (void)state;
    struct sf_config *c =
        parse("catalog:\n  quota:\n    lease_ttl_ms: 1000\n    lease_retention_ms: 86400000\n"
              "    pressure_ms: 600000\n    classes:\n"
              "    - {name: gold, query_qps: {refill_units_per_second: 1, burst_units: "
              "1000000000000000}}\n"
              "    - name: default\n      ingest_bytes: {burst_units: 7}\n"
              "  namespace_policies:\n"
              "  - {name_prefix: t-, quota_class: gold, policy_profile: whale}\n"
              "  - {}\n"
              "  callers:\n"
              "  - {identity: gw, roles: [ingest-gateway, operator]}\n"
              "  - {identity: nobody}\n");
    const struct sf_config_policy *p = &c->policy;

    assert_int_equal(p->lease_ttl_ms, 1000);
    assert_int_equal(p->lease_retention_ms, 86400000);
    assert_int_equal(p->pressure_ms, 600000);
    assert_int_equal(p->class_count, 2);
    assert_string_equal(p->classes[0].name, "gold");
    assert_int_equal(p->classes[0].query_qps.refill_units_per_second, 1);
    assert_true(p->classes[0].query_qps.burst_units == SF_LIMIT_QUOTA_UNITS);
    assert_int_equal(p->classes[0].query_rcu.burst_units, 0);
    assert_int_equal(p->classes[1].ingest_bytes.burst_units, 7);
    assert_int_equal(p->classes[1].ingest_entries.burst_units, 0);
    assert_int_equal(p->namespace_count, 2);
    assert_string_equal(p->namespaces[0].name_prefix, "t-");
    assert_string_equal(p->namespaces[0].quota_class, "gold");
    assert_string_equal(p->namespaces[0].policy_profile, "whale");
    assert_string_equal(p->namespaces[1].name_prefix, "");
    assert_string_equal(p->namespaces[1].quota_class, "");
    assert_int_equal(p->caller_count, 2);
    assert_string_equal(p->callers[0].identity, "gw");
    assert_int_equal(p->callers[0].role_count, 2);
    assert_string_equal(p->callers[0].roles[1], "operator");
    assert_int_equal(p->callers[1].role_count, 0);
    sf_config_destroy(c);
    refused("catalog:\n  quota:\n    lease_ttl_ms: 999\n", "of 1000 to 600000");
    refused("catalog:\n  quota:\n    lease_ttl_ms: 600001\n", "catalog.quota.lease_ttl_ms");
    refused("catalog:\n  quota:\n    lease_retention_ms: 59999\n", "of 60000 to 86400000");
    refused("catalog:\n  quota:\n    lease_retention_ms: 86400001\n", "of 60000 to 86400000");
    refused("catalog:\n  quota:\n    pressure_ms: 999\n", "of 1000 to 600000");
    refused("catalog:\n  quota:\n    pressure_ms: 600001\n", "of 1000 to 600000");
    refused(CLASSES "{}\n", "catalog.quota.classes[0].name name must not be empty");
    refused(CLASSES "{name: a, query_rcu: {burst_units: 0}}\n",
            "catalog.quota.classes[0].query_rcu.burst_units '0' is not a whole number of 1 to "
            "1000000000000000");
    refused(CLASSES "{name: a, ingest_entries: {refill_units_per_second: 1000000000000001}}\n",
            "catalog.quota.classes[0].ingest_entries.refill_units_per_second");
    refused(CLASSES "{name: a, query_rcu: {burst: 1}}\n", "burst");
    refused("catalog:\n  namespace_policies:\n  - {name_prefix: \"a\\u200b\"}\n",
            "catalog.namespace_policies[0].name_prefix");
    refused("catalog:\n  callers:\n  - {roles: [operator]}\n",
            "catalog.callers[0].identity is needed");
}

/* Tables of the most rows, and one row more. */
static void test_policy_limits(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        unsigned limit;
    } tables[] = {
        {"catalog:\n  quota:\n    classes:\n", SF_LIMIT_QUOTA_CLASSES},
        {"catalog:\n  namespace_policies:\n", SF_LIMIT_QUOTA_POLICIES},
        {"catalog:\n  callers:\n", SF_LIMIT_QUOTA_CALLERS},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(tables); i++) {
        char *text = sf_calloc(1, 64u << 10);
        size_t len = (size_t)sprintf(text, "%s", tables[i].head);
        for (unsigned row = 0; row <= tables[i].limit; row++) {
            if (row == tables[i].limit)
                sf_config_destroy(parse(text));
            len += (size_t)sprintf(text + len,
                                   i == 0   ? "    - {name: c%u}\n"
                                   : i == 1 ? "  - {name_prefix: n%u}\n"
                                            : "  - {identity: i%u}\n",
                                   row);
        }
        refused(text, "f.yaml");
        free(text);
    }
}

static void test_comments_only_are_the_defaults(void **state)
{
    struct sf_config *config = NULL;

    (void)state;
    assert_int_equal(sf_config_parse("f.yaml", sf_view_str("# data_dir: x\n"), NULL, &config),
                     SF_OK);
    assert_string_equal(config->data_dir, "data");
    sf_config_destroy(config);
}

static void test_structure_errors_have_a_line(void **state)
{
    (void)state;
    refused("data_dir: x\nexec:\n  reaktors: 1\n", "f.yaml:3: ");
    refused("allocator:\n  replay_retention_ms: 604799999\n", "allocator.replay_retention_ms");
    refused("allocator:\n  export:\n    kind: mysql\n", "allocator.export.host");
    refused("data_dir: x\nexec:\n  reaktors: 1\n", "reaktors");
    refused("exec: [1]\n", "f.yaml:1: ");
    refused("weather:\n  sunny_ms: 3600000\n", "f.yaml:1: ");
    refused("weather:\n  sunny_ms: 3600000\n", "weather");
    refused("exec:\n  workers: {a: b}\n", "f.yaml:2: ");
    refused("a: b: c\n", "f.yaml");
    refused("", "f.yaml is empty");
    refused("data_dir: &a x\nkeyring: *a\n", "f.yaml");
}

static void test_numbers_are_checked(void **state)
{
    (void)state;
    refused("exec:\n  workers: -1\n", "exec.workers: '-1' is not a whole number of 1 to 256");
    refused("exec:\n  workers: 0\n", "exec.workers: '0'");
    refused("exec:\n  workers: 257\n", "exec.workers: '257'");
    refused("exec:\n  workers: 010\n", "exec.workers: '010'");
    refused("exec:\n  workers: 0x10\n", "exec.workers: '0x10'");
    refused("exec:\n  workers: 1.5\n", "exec.workers: '1.5'");
    refused("exec:\n  workers: ten\n", "exec.workers: 'ten'");
    refused("exec:\n  workers:\n", "exec.workers: ''");
    refused("limits:\n  rpc_message_bytes: 8388609\n", "of 65536 to 8388608");
    refused("limits:\n  rpc_connections: 4097\n", "of 1 to 4096");
    refused("limits:\n  rpc_streams_per_conn: 257\n", "of 1 to 256");
    refused("commit:\n  wal_flush_ms: 0\n", "commit.wal_flush_ms");
    refused("allocator:\n  leases: on\n", "allocator.leases: 'on' is not true or false");
    refused("allocator:\n  lease_hot_per_s: 0\n", "of 1 to 1000000");
    refused("allocator:\n  lease_min_ids: 0\n", "of 1 to 1048576");
    refused("allocator:\n  lease_max_ids: 1048577\n", "of 1 to 1048576");
    refused("allocator:\n  lease_min_ids: 9\n  lease_max_ids: 8\n",
            "allocator.lease_min_ids is above allocator.lease_max_ids");
    refused("commit:\n  wal_chunk_bytes: 33554433\n", "of 65536 to 33554432");
    refused("catalog:\n  collection_gc_delay_ms: 0\n", "of 1 to 4294967295");
    refused("catalog:\n  cache_mib: 0\n", "of 1 to 1048576");
    refused("catalog:\n  cache_mib: 1048577\n", "of 1 to 1048576");
    refused("catalog:\n  namespace_gc_delay_ms: 4294967296\n", "of 1 to 4294967295");
    refused("store:\n  lane_shards: 99999999999999999999\n", "store.lane_shards");
}

static void test_other_values_are_checked(void **state)
{
    (void)state;
    refused("roles: [ccs, cache]\n", "no role 'cache'");
    refused("roles: []\n", "f.yaml:1: ");
    refused("data_dir: \"\"\n", "data_dir must not be empty");
    refused("es:\n  auto_create: yes\n", "es.auto_create: 'yes' is not true or false");
    refused("es:\n  namespace: \"\"\n", "es.namespace must not be empty");
    refused("es:\n  namespace: \"e\xcc\x81\"\n", "es.namespace is not in Unicode");
    refused("log:\n  level: loud\n", "log.level: 'loud'");
}

static void test_addresses_are_loopback(void **state)
{
    (void)state;
    refused("listen:\n  grpc: 0.0.0.0:7400\n", "listen.grpc: 0.0.0.0 is not a loopback address");
    refused("listen:\n  es: 192.168.0.1:1\n", "not a loopback address");
    refused("listen:\n  es: \"[::]:1\"\n", "not a loopback address");
    refused("listen:\n  es: \"[::ffff:10.0.0.1]:1\"\n", "not a loopback address");
    refused("listen:\n  es: \"::1:7400\"\n", "is not host:port");
    refused("listen:\n  es: example.org:1\n", "not a numeric address");
    refused("listen:\n  es: 127.0.0.1\n", "is not host:port");
    refused("listen:\n  es: 127.0.0.1:65536\n", "is not host:port");
    refused("listen:\n  es: 127.0.0.1:-1\n", "is not host:port");
    refused("listen:\n  es: \":9200\"\n", "is not host:port");
    refused("listen:\n  es: \"\"\n", "is not host:port");
}

static void test_role_lists(void **state)
{
    (void)state;
    unsigned roles = 0;
    struct sf_diag diag;

    assert_int_equal(sf_roles_parse("--role", sf_view_str("ccs,es-gateway"), NULL, &roles), SF_OK);
    assert_int_equal(roles, SF_ROLE_CCS | SF_ROLE_ES_GATEWAY);
    assert_int_equal(sf_roles_parse("--role", sf_view_str("all"), NULL, &roles), SF_OK);
    assert_int_equal(roles, SF_ROLE_ALL);
    sf_diag_init(&diag);
    assert_int_equal(sf_roles_parse("--role", sf_view_str("ccs,"), &diag, &roles), SF_ERR_CONFIG);
    assert_int_equal(strncmp(diag.message, "--role: ", 8), 0);
    assert_int_equal(sf_roles_parse("--role", sf_view_str(""), NULL, &roles), SF_ERR_CONFIG);
}

static void test_missing_file(void **state)
{
    (void)state;
    struct sf_config *config = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(sf_config_load("/nonexistent/f.yaml", &diag, &config), SF_ERR_IO);
    assert_non_null(strstr(diag.message, "/nonexistent/f.yaml"));
    assert_int_equal(sf_config_load("/", &diag, &config), SF_ERR_CONFIG);
}

#define SERVER(rest)                                                                               \
    "projection:\n  kind: postgres\n  host: 10.0.0.7\n  database: sf\n  user: sf\n" rest

static void test_projection(void **state)
{
    (void)state;
    struct sf_config *config = parse(SERVER("  tls: verify\n  port: 65535\n  readers: 63\n"
                                            "  password_file: /p\n  tls_ca_file: /ca\n"
                                            "  connect_timeout_ms: 1000\n"
                                            "  statement_timeout_ms: 600000\n"));
    assert_int_equal(config->projection.kind, SF_PROJECTION_POSTGRES);
    assert_string_equal(config->projection.host, "10.0.0.7");
    assert_string_equal(config->projection.database, "sf");
    assert_string_equal(config->projection.user, "sf");
    assert_string_equal(config->projection.password_file, "/p");
    assert_string_equal(config->projection.tls_ca_file, "/ca");
    assert_int_equal(config->projection.tls, SF_PROJECTION_TLS_VERIFY);
    assert_int_equal(config->projection.port, 65535);
    assert_int_equal(config->projection.readers, 63);
    assert_int_equal(config->projection.connect_timeout_ms, 1000);
    assert_int_equal(config->projection.statement_timeout_ms, 600000);
    sf_config_destroy(config);
    config = parse("projection:\n  kind: mysql\n  host: /run/mysqld/mysqld.sock\n  database: sf\n"
                   "  user: sf\n");
    assert_int_equal(config->projection.kind, SF_PROJECTION_MYSQL);
    assert_int_equal(config->projection.tls, SF_PROJECTION_TLS_OFF);
    sf_config_destroy(config);
    refused("projection:\n  kind: oracle\n", "'oracle' is not sqlite, postgres or mysql");
    refused("projection:\n  kind: mysql\n  host: ::1\n  user: sf\n",
            "projection.database is needed");
    refused("projection:\n  host: ::1\n", "projection.host is for kind postgres or mysql");
    refused(SERVER(""), "off is for a Unix socket or a loopback address only, 10.0.0.7");
    refused(SERVER("  tls: prefer\n"), "'prefer' is not off, require or verify");
    refused(SERVER("  port: 65536\n"), "projection.port");
    refused(SERVER("  readers: 0\n"), "projection.readers");
    refused(SERVER("  readers: 64\n"), "projection.readers");
    refused(SERVER("  connect_timeout_ms: 999\n"), "projection.connect_timeout_ms");
    refused(SERVER("  connect_timeout_ms: 60001\n"), "projection.connect_timeout_ms");
    refused(SERVER("  statement_timeout_ms: 999\n"), "projection.statement_timeout_ms");
    refused(SERVER("  statement_timeout_ms: 600001\n"), "projection.statement_timeout_ms");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_projection),
        cmocka_unit_test(test_shipped_file_gives_the_defaults),
        cmocka_unit_test(test_every_key),
        cmocka_unit_test(test_policy),
        cmocka_unit_test(test_policy_limits),
        cmocka_unit_test(test_comments_only_are_the_defaults),
        cmocka_unit_test(test_structure_errors_have_a_line),
        cmocka_unit_test(test_numbers_are_checked),
        cmocka_unit_test(test_other_values_are_checked),
        cmocka_unit_test(test_addresses_are_loopback),
        cmocka_unit_test(test_role_lists),
        cmocka_unit_test(test_missing_file),
    };

    return SF_RUN_TESTS("config", tests);
}
