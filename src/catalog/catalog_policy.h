/*
 * What an operator binds to namespaces and callers: quota classes, which class a fresh namespace
 * gets, and who may call the private surface as what. Plain tables, given to sf_catalog_open and
 * borrowed until the close; NULL or empty means the defaults. Source: note 2.1, 5.10, 10.1.
 */
#ifndef SF_CATALOG_POLICY_H
#define SF_CATALOG_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"

/* Budget dimensions of the service. The first two are of the plane QUERY, the others of WRITE. */
enum sf_catalog_dimension {
    SF_CATALOG_QUERY_RCU,
    SF_CATALOG_QUERY_QPS,
    SF_CATALOG_INGEST_BYTES,
    SF_CATALOG_INGEST_ENTRIES,
    SF_CATALOG_DIMENSIONS
};

/* A token bucket. */
struct sf_catalog_budget {
    uint64_t refill_units_per_second; /* 1..SF_LIMIT_QUOTA_UNITS; 0 = as the built-in class */
    uint64_t burst_units; /* most that may be taken at once, likewise; 0 = as the built-in class */
};

/* A named set of budgets. */
struct sf_catalog_quota_class {
    const char *name; /* "default" replaces the built-in class */
    struct sf_catalog_budget budgets[SF_CATALOG_DIMENSIONS]; /* by dimension */
};

/* What a namespace is born with; the first row whose prefix fits counts. */
struct sf_catalog_namespace_policy {
    const char *name_prefix;    /* bytes the namespace's name starts with; "" = every name */
    const char *quota_class;    /* name of a class; "" = default */
    const char *policy_profile; /* free text of the operator, "whale" for instance; "" = none */
};

/* Roles of an authenticated caller on the private surface; bits. */
enum sf_catalog_role {
    SF_CATALOG_ROLE_QUERY_GATEWAY = 1u << 0,
    SF_CATALOG_ROLE_INGEST_GATEWAY = 1u << 1,
    SF_CATALOG_ROLE_QUERY_BROKER = 1u << 2,
    SF_CATALOG_ROLE_PUBLISHER = 1u << 3,
    SF_CATALOG_ROLE_ALLOCATOR = 1u << 4,
    SF_CATALOG_ROLE_COORDINATOR = 1u << 5,
    SF_CATALOG_ROLE_SERVING = 1u << 6,
    SF_CATALOG_ROLE_OPERATOR = 1u << 7,
    SF_CATALOG_ROLE_ALL = (1u << 8) - 1
};

/* One authenticated identity. */
struct sf_catalog_caller {
    const char *identity; /* as the transport proved it */
    uint32_t roles;       /* enum sf_catalog_role bits */
};

struct sf_catalog_policy {
    const struct sf_catalog_quota_class *classes;         /* beside the built-in one */
    size_t class_count;                                   /* of them */
    const struct sf_catalog_namespace_policy *namespaces; /* the first that fits counts */
    size_t namespace_count;                               /* of them */
    const struct sf_catalog_caller *callers; /* beside the built-in ones (catalog_callers.c) */
    size_t caller_count;                     /* of them */
    uint32_t lease_ttl_ms;                   /* middle of a lease's lifetime, 0 = 10000 */
    uint32_t lease_retention_ms; /* an ended lease answers replays so long, 0 = 900000 */
    uint32_t pressure_ms;        /* a report of ingest pressure counts so long, 0 = 30000 */
};

/* "ingest_bytes" of a dimension; NULL past the last. */
const char *sf_catalog_dimension_name(enum sf_catalog_dimension dimension);

/* Role of "ingest-gateway", 0 when there is no such role. */
uint32_t sf_catalog_role_named(const char *name);

/* Error: SF_ERR_CONFIG when the tables do not hold together: too many rows, a unit out of range, a
 * class that does not exist, a class or an identity twice. NULL is fine. */
SF_MUST_USE enum sf_err sf_catalog_policy_check(const struct sf_catalog_policy *policy,
                                                struct sf_diag *diag);

#endif
