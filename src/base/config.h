/*
 * Configuration of searchfabricd: a YAML file, documented line by line in
 * packaging/searchfabricd.yaml. Every value has a default and a stated range; an unknown key, a
 * value out of range or an address that is not loopback is refused with the key's name. Loading
 * touches no other file, so that --check-config is exactly a load.
 */
#ifndef SF_BASE_CONFIG_H
#define SF_BASE_CONFIG_H

#include "base/diag.h"
#include "base/log.h"

/* Roles a process may have (architecture: One binary, many roles); bits. */
enum sf_role {
    SF_ROLE_CCS = 1u << 0,
    SF_ROLE_ALLOCATOR = 1u << 1,
    SF_ROLE_COORDINATOR = 1u << 2,
    SF_ROLE_TSO = 1u << 3,
    SF_ROLE_INGEST = 1u << 4,
    SF_ROLE_ES_GATEWAY = 1u << 5,
    SF_ROLE_ALL = (1u << 6) - 1
};

/* Where to listen. */
struct sf_listen {
    char host[46]; /* numeric IPv4 or IPv6 address, loopback, without brackets */
    uint16_t port; /* 0 = any free port */
};

/* Database of the projection. */
enum sf_projection_kind { SF_PROJECTION_SQLITE, SF_PROJECTION_POSTGRES, SF_PROJECTION_MYSQL };

/* TLS towards a database server. */
enum sf_projection_tls {
    SF_PROJECTION_TLS_OFF,     /* Unix socket or loopback only */
    SF_PROJECTION_TLS_REQUIRE, /* encrypted, name not checked */
    SF_PROJECTION_TLS_VERIFY   /* encrypted, certificate and name checked */
};

struct sf_config_projection {
    enum sf_projection_kind kind;  /* SQLite in data_dir, or a server */
    char *host;                    /* owned: name, address or Unix socket; NULL for SQLite */
    uint32_t port;                 /* 0 = the database's usual one */
    char *database;                /* owned: a database of its own; NULL for SQLite */
    char *user;                    /* owned: who logs in; NULL for SQLite */
    char *password_file;           /* owned: file with the password; NULL = none */
    enum sf_projection_tls tls;    /* towards the server */
    char *tls_ca_file;             /* owned: certificates to trust; NULL = the system's */
    uint32_t readers;              /* connections for reads */
    uint32_t connect_timeout_ms;   /* for one connection */
    uint32_t statement_timeout_ms; /* for one statement */
};

/* What an operator binds to namespaces and callers of the catalog (catalog/catalog_policy.h says
 * what it means). */

/* A token bucket; 0 = as the built-in class. */
struct sf_config_budget {
    uint64_t refill_units_per_second; /* up to SF_LIMIT_QUOTA_UNITS */
    uint64_t burst_units;             /* likewise */
};

struct sf_config_quota_class {
    char *name;                             /* owned: a catalog name */
    struct sf_config_budget query_rcu;      /* read units */
    struct sf_config_budget query_qps;      /* queries */
    struct sf_config_budget ingest_bytes;   /* bytes written */
    struct sf_config_budget ingest_entries; /* entries written */
};

struct sf_config_namespace_policy {
    char *name_prefix;    /* owned: "" = every name */
    char *quota_class;    /* owned: "" = default */
    char *policy_profile; /* owned: "" = none */
};

struct sf_config_caller {
    char *identity;    /* owned: as the transport proves it */
    char **roles;      /* owned: names, not looked up here */
    size_t role_count; /* entries of roles */
};

struct sf_config_policy {
    struct sf_config_quota_class *classes;         /* owned array */
    size_t class_count;                            /* up to SF_LIMIT_QUOTA_CLASSES */
    struct sf_config_namespace_policy *namespaces; /* owned array, the first that fits counts */
    size_t namespace_count;                        /* up to SF_LIMIT_QUOTA_POLICIES */
    struct sf_config_caller *callers;              /* owned array */
    size_t caller_count;                           /* up to SF_LIMIT_QUOTA_CALLERS */
    uint32_t lease_ttl_ms;                         /* middle of a lease's lifetime */
    uint32_t lease_retention_ms;                   /* an ended lease answers repeats so long */
    uint32_t pressure_ms;                          /* a report of pressure counts so long */
};

struct sf_config {
    char *data_dir;                  /* owned: folder of the embedded store and projection */
    unsigned roles;                  /* enum sf_role bits, never 0 */
    struct sf_listen grpc;           /* gRPC: public and private APIs, health, reflection */
    struct sf_listen admin;          /* admin HTTP: metrics, health */
    struct sf_listen es;             /* Elasticsearch-compatible write gateway */
    uint32_t reactors;               /* event loops; 0 = one per core */
    uint32_t workers;                /* threads of the worker pool */
    uint32_t lane_shards;            /* catalog lane shards, fixed at the store's creation */
    uint32_t coordinator_shards;     /* coordinator shards, fixed at the store's creation */
    uint32_t collection_gc_delay_ms; /* a dropped collection's name stays reserved */
    uint32_t catalog_cache_mib;      /* memory of catalog facts */
    uint32_t checkpoint_commands;    /* a catalog checkpoint after so many commands */
    uint32_t checkpoint_interval_ms; /* or so long after the last, when there were any */
    uint32_t replay_retention_ms;    /* how long a repeated key gets its first answer */
    uint32_t namespace_gc_delay_ms;  /* a tombstoned namespace's name stays reserved */
    uint32_t alloc_retention_ms;     /* how long a repeated allocation gets its first answer */
    bool alloc_failure_audit;        /* refused allocations are kept as objects */
    bool alloc_recovery_segments;    /* applied allocations are listed in objects */
    bool alloc_export;               /* the operational export is filled */
    char *es_namespace;              /* owned: namespace whose collections are the indexes */
    bool es_auto_create;             /* an unknown index is created by its first write */
    char *keyring_path;              /* owned: key ring file; NULL = keyring.yaml in data_dir */
    uint32_t duplicate_window_ms;    /* how long a redelivered batch is recognized */
    uint32_t wal_flush_ms;           /* a WAL chunk is closed this long after its first frame */
    uint32_t wal_chunk_bytes;        /* or at this size */
    bool alloc_leases;               /* hot collections reserve ranges of ids ahead */
    uint32_t alloc_lease_hot_per_s;  /* issue-only requests a second that make one hot */
    uint32_t alloc_lease_min_ids;    /* smallest range */
    uint32_t alloc_lease_max_ids;    /* largest range; not below the smallest */
    enum sf_log_level log_level;     /* lowest level written */
    char *log_file;                  /* owned: file that lines are appended to; NULL = stderr */
    struct sf_config_projection projection;      /* where the relational projection is */
    struct sf_config_projection alloc_export_to; /* where the allocator's operational export is */
    uint32_t rpc_message_bytes;                  /* largest gRPC message of a client */
    uint32_t rpc_connections;                    /* gRPC connections at once */
    uint32_t rpc_streams_per_conn;               /* calls of one gRPC connection at once */
    uint32_t es_connections;        /* HTTP connections at once on the Elasticsearch port */
    uint32_t es_body_bytes;         /* largest HTTP request body there */
    struct sf_config_policy policy; /* quota classes, namespaces, callers */
};

/* Loads `path` over the defaults. Blocks on the file. Destroy the result with sf_config_destroy.
 * Errors, with a message for people in `diag`: SF_ERR_IO, SF_ERR_CONFIG. */
SF_MUST_USE enum sf_err sf_config_load(const char *path, struct sf_diag *diag,
                                       struct sf_config **out_config);

/* As sf_config_load, from text; `name` stands for the file in messages. */
SF_MUST_USE enum sf_err sf_config_parse(const char *name, struct sf_view text, struct sf_diag *diag,
                                        struct sf_config **out_config);

/* The defaults. Destroy with sf_config_destroy. */
struct sf_config *sf_config_defaults(void);

/* Frees a configuration; NULL is fine. */
void sf_config_destroy(struct sf_config *config);

/* Reads "host:port" or "[host]:port" where host is a numeric loopback address or "localhost" (which
 * means 127.0.0.1). Error: SF_ERR_CONFIG, the message starting with `what`. */
SF_MUST_USE enum sf_err sf_listen_parse(const char *what, struct sf_view text, struct sf_diag *diag,
                                        struct sf_listen *out_listen);

/* Reads a comma separated list of role names into bits. Error: SF_ERR_CONFIG. */
SF_MUST_USE enum sf_err sf_roles_parse(const char *what, struct sf_view text, struct sf_diag *diag,
                                       unsigned *out_roles);

#endif
