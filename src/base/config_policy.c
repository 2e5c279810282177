/*
 * The catalog's tables of the configuration: quota classes, what a fresh namespace is bound to, who
 * calls as what. Here each entry is checked by itself, with its place in the message
 * ("catalog.quota.classes[2].query_rcu.burst_units"); whether classes and roles of these names
 * exist is for who knows them, and is part of --check-config too.
 */
#include "base/config_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"

#define ROLES_MAX 16u /* of one caller; there are fewer */

static const cyaml_schema_field_t budget_fields[] = {
    SF_YAML_TEXT("refill_units_per_second", struct sf_raw_budget, refill_units_per_second),
    SF_YAML_TEXT("burst_units", struct sf_raw_budget, burst_units), CYAML_FIELD_END};

#define BUDGET(key)                                                                                \
    CYAML_FIELD_MAPPING(#key, CYAML_FLAG_OPTIONAL, struct sf_raw_class, key, budget_fields)

static const cyaml_schema_field_t class_fields[] = {SF_YAML_TEXT("name", struct sf_raw_class, name),
                                                    BUDGET(query_rcu),
                                                    BUDGET(query_qps),
                                                    BUDGET(ingest_bytes),
                                                    BUDGET(ingest_entries),
                                                    CYAML_FIELD_END};
static const cyaml_schema_value_t class_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct sf_raw_class, class_fields)};

const cyaml_schema_field_t sf_raw_quota_fields[] = {
    SF_YAML_TEXT("lease_ttl_ms", struct sf_raw_quota, lease_ttl_ms),
    SF_YAML_TEXT("lease_retention_ms", struct sf_raw_quota, lease_retention_ms),
    SF_YAML_TEXT("pressure_ms", struct sf_raw_quota, pressure_ms),
    CYAML_FIELD_SEQUENCE("classes", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct sf_raw_quota,
                         classes, &class_schema, 0, SF_LIMIT_QUOTA_CLASSES),
    CYAML_FIELD_END};

static const cyaml_schema_field_t namespace_fields[] = {
    SF_YAML_TEXT("name_prefix", struct sf_raw_namespace, name_prefix),
    SF_YAML_TEXT("quota_class", struct sf_raw_namespace, quota_class),
    SF_YAML_TEXT("policy_profile", struct sf_raw_namespace, policy_profile), CYAML_FIELD_END};
const cyaml_schema_value_t sf_raw_namespace_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct sf_raw_namespace, namespace_fields)};

static const cyaml_schema_value_t role_schema = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 1, CYAML_UNLIMITED)};
static const cyaml_schema_field_t caller_fields[] = {
    SF_YAML_TEXT("identity", struct sf_raw_caller, identity),
    CYAML_FIELD_SEQUENCE("roles", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct sf_raw_caller,
                         roles, &role_schema, 0, ROLES_MAX),
    CYAML_FIELD_END};
const cyaml_schema_value_t sf_raw_caller_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct sf_raw_caller, caller_fields)};

/* Where an entry stands, for messages. */
struct place {
    const char *file;     /* name of the file */
    const char *table;    /* "catalog.callers" */
    size_t index;         /* of the entry */
    struct sf_diag *diag; /* takes the refusal */
};

static enum sf_err refuse(const struct place *at, const char *key, const char *reason)
{
    return sf_diag_set(at->diag, SF_ERR_CONFIG, "%.100s: %s[%zu].%s %s", at->file, at->table,
                       at->index, key, reason);
}

/* A text that must be a catalog name (`allow_empty`: or nothing); absent is empty. */
static enum sf_err take_name(const struct place *at, const char *key, const char *text,
                             bool allow_empty, char **out_text)
{
    struct sf_diag inner;
    sf_diag_init(&inner);
    if (text == NULL)
        text = "";
    if (sf_name_check(key, sf_view_str(text), allow_empty, &inner) != SF_OK)
        return refuse(at, key, inner.message);
    *out_text = sf_strdup(text);
    return SF_OK;
}

static enum sf_err take_units(const struct place *at, const char *key, const char *text,
                              uint64_t *out_units)
{
    char reason[120];
    *out_units = 0;
    if (text == NULL || (sf_parse_u64(sf_view_str(text), out_units) && *out_units >= 1 &&
                         *out_units <= SF_LIMIT_QUOTA_UNITS))
        return SF_OK;
    (void)snprintf(reason, sizeof(reason), "'%.40s' is not a whole number of 1 to %" PRIu64, text,
                   SF_LIMIT_QUOTA_UNITS);
    return refuse(at, key, reason);
}

static enum sf_err take_budget(const struct place *at, const char *dimension,
                               const struct sf_raw_budget *raw, struct sf_config_budget *budget)
{
    char key[80];
    (void)snprintf(key, sizeof(key), "%s.refill_units_per_second", dimension);
    enum sf_err err =
        take_units(at, key, raw->refill_units_per_second, &budget->refill_units_per_second);
    (void)snprintf(key, sizeof(key), "%s.burst_units", dimension);
    return err != SF_OK ? err : take_units(at, key, raw->burst_units, &budget->burst_units);
}

static enum sf_err take_class(const struct place *at, const struct sf_raw_class *raw,
                              struct sf_config_quota_class *out)
{
    enum sf_err err = take_name(at, "name", raw->name, false, &out->name);
    if (err == SF_OK)
        err = take_budget(at, "query_rcu", &raw->query_rcu, &out->query_rcu);
    if (err == SF_OK)
        err = take_budget(at, "query_qps", &raw->query_qps, &out->query_qps);
    if (err == SF_OK)
        err = take_budget(at, "ingest_bytes", &raw->ingest_bytes, &out->ingest_bytes);
    if (err == SF_OK)
        err = take_budget(at, "ingest_entries", &raw->ingest_entries, &out->ingest_entries);
    return err;
}

static enum sf_err take_namespace(const struct place *at, const struct sf_raw_namespace *raw,
                                  struct sf_config_namespace_policy *out)
{
    enum sf_err err = take_name(at, "name_prefix", raw->name_prefix, true, &out->name_prefix);
    if (err == SF_OK)
        err = take_name(at, "quota_class", raw->quota_class, true, &out->quota_class);
    if (err == SF_OK)
        err = take_name(at, "policy_profile", raw->policy_profile, true, &out->policy_profile);
    return err;
}

static enum sf_err take_caller(const struct place *at, const struct sf_raw_caller *raw,
                               struct sf_config_caller *out)
{
    struct sf_diag inner;
    sf_diag_init(&inner);
    if (raw->identity == NULL ||
        sf_identity_check("identity", sf_view_str(raw->identity), 1,
                          SF_LIMIT_PRINCIPAL_SUBJECT_SCALARS, &inner) != SF_OK)
        return refuse(at, "identity", raw->identity == NULL ? "is needed" : inner.message);
    out->identity = sf_strdup(raw->identity);
    out->roles = sf_calloc(raw->roles_count + 1, sizeof(*out->roles));
    for (; out->role_count < raw->roles_count; out->role_count++)
        out->roles[out->role_count] = sf_strdup(raw->roles[out->role_count]);
    return SF_OK;
}

enum sf_err sf_config_policy_build(const char *name, const struct sf_raw_policy *raw,
                                   struct sf_diag *diag, struct sf_config_policy *policy)
{
    struct place at = {.file = name, .table = "catalog.quota.classes", .diag = diag};
    enum sf_err err = SF_OK;
    policy->classes = sf_calloc(raw->quota.classes_count + 1, sizeof(*policy->classes));
    for (at.index = 0; at.index < raw->quota.classes_count && err == SF_OK; at.index++)
        err =
            take_class(&at, &raw->quota.classes[at.index], &policy->classes[policy->class_count++]);
    at.table = "catalog.namespace_policies";
    policy->namespaces = sf_calloc(raw->namespaces_count + 1, sizeof(*policy->namespaces));
    for (at.index = 0; at.index < raw->namespaces_count && err == SF_OK; at.index++)
        err = take_namespace(&at, &raw->namespaces[at.index],
                             &policy->namespaces[policy->namespace_count++]);
    at.table = "catalog.callers";
    policy->callers = sf_calloc(raw->callers_count + 1, sizeof(*policy->callers));
    for (at.index = 0; at.index < raw->callers_count && err == SF_OK; at.index++)
        err = take_caller(&at, &raw->callers[at.index], &policy->callers[policy->caller_count++]);
    return err;
}

void sf_config_policy_fini(struct sf_config_policy *policy)
{
    for (size_t i = 0; i < policy->class_count; i++)
        free(policy->classes[i].name);
    for (size_t i = 0; i < policy->namespace_count; i++) {
        free(policy->namespaces[i].name_prefix);
        free(policy->namespaces[i].quota_class);
        free(policy->namespaces[i].policy_profile);
    }
    for (size_t i = 0; i < policy->caller_count; i++) {
        for (size_t role = 0; role < policy->callers[i].role_count; role++)
            free(policy->callers[i].roles[role]);
        free(policy->callers[i].roles);
        free(policy->callers[i].identity);
    }
    free(policy->classes);
    free(policy->namespaces);
    free(policy->callers);
}
