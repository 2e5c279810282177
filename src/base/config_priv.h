/* Shared by the files that read the configuration: the catalog's tables as libcyaml reads them. */
#ifndef SF_BASE_CONFIG_PRIV_H
#define SF_BASE_CONFIG_PRIV_H

#include "base/config.h"
#include "base/yaml_priv.h"

/* A scalar that is taken as text: `member` of `structure` is a char *, NULL when absent. */
#define SF_YAML_TEXT(key, structure, member)                                                       \
    CYAML_FIELD_STRING_PTR(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, structure, member, 0,    \
                           CYAML_UNLIMITED)

struct sf_raw_budget {
    char *refill_units_per_second; /* number as text */
    char *burst_units;             /* number as text */
};
struct sf_raw_class {
    char *name;                          /* of the class */
    struct sf_raw_budget query_rcu;      /* budget */
    struct sf_raw_budget query_qps;      /* budget */
    struct sf_raw_budget ingest_bytes;   /* budget */
    struct sf_raw_budget ingest_entries; /* budget */
};
struct sf_raw_namespace {
    char *name_prefix;    /* of namespaces */
    char *quota_class;    /* name of a class */
    char *policy_profile; /* name of a profile */
};
struct sf_raw_caller {
    char *identity;       /* authenticated */
    char **roles;         /* names */
    unsigned roles_count; /* of them */
};
struct sf_raw_quota {
    char *lease_ttl_ms;           /* number as text */
    char *lease_retention_ms;     /* number as text */
    char *pressure_ms;            /* number as text */
    struct sf_raw_class *classes; /* catalog.quota.classes */
    unsigned classes_count;       /* of them */
};
struct sf_raw_policy {
    struct sf_raw_quota quota;           /* classes and times */
    struct sf_raw_namespace *namespaces; /* as the file lists them */
    unsigned namespaces_count;           /* of them */
    struct sf_raw_caller *callers;       /* as the file lists them */
    unsigned callers_count;              /* of them */
};

extern const cyaml_schema_field_t sf_raw_quota_fields[];
extern const cyaml_schema_value_t sf_raw_namespace_schema;
extern const cyaml_schema_value_t sf_raw_caller_schema;

/* Checks and copies the tables (the three scalars are keys like any other). `name` is the file's.
 * Error: SF_ERR_CONFIG; what was copied so far is for sf_config_policy_fini. */
SF_MUST_USE enum sf_err sf_config_policy_build(const char *name, const struct sf_raw_policy *raw,
                                               struct sf_diag *diag,
                                               struct sf_config_policy *policy);

/* Frees the tables. */
void sf_config_policy_fini(struct sf_config_policy *policy);

#endif
