/*
 * Model: the operator's tables, looked up. A class that leaves a budget out has the built-in one's;
 * a namespace whose class is gone from the configuration has the default class's budgets, so that a
 * typing mistake never takes a tenant down. A namespace's binding is taken at its creation and kept
 * in its descriptor object: changing the rows later does not move namespaces between classes, while
 * changing a class moves all that are bound to it at the next start.
 */
#include "catalog/catalog_policy.h"

#include "catalog/catalog_quota.h"

static const char *const dimension_names[SF_CATALOG_DIMENSIONS] = {
    "query_rcu", "query_qps", "ingest_bytes", "ingest_entries"};

static const struct sf_catalog_budget built_in[SF_CATALOG_DIMENSIONS] = {
    [SF_CATALOG_QUERY_RCU] = {1000000, 4000000},
    [SF_CATALOG_QUERY_QPS] = {10000, 40000},
    [SF_CATALOG_INGEST_BYTES] = {UINT64_C(256) << 20, UINT64_C(1) << 30},
    [SF_CATALOG_INGEST_ENTRIES] = {200000, 800000},
};

static const struct {
    const char *name;
    uint32_t role;
} roles[] = {
    {"query-gateway", SF_CATALOG_ROLE_QUERY_GATEWAY},
    {"ingest-gateway", SF_CATALOG_ROLE_INGEST_GATEWAY},
    {"query-broker", SF_CATALOG_ROLE_QUERY_BROKER},
    {"publisher", SF_CATALOG_ROLE_PUBLISHER},
    {"allocator", SF_CATALOG_ROLE_ALLOCATOR},
    {"coordinator", SF_CATALOG_ROLE_COORDINATOR},
    {"serving", SF_CATALOG_ROLE_SERVING},
    {"operator", SF_CATALOG_ROLE_OPERATOR},
};

const char *sf_catalog_dimension_name(enum sf_catalog_dimension dimension)
{
    return (unsigned)dimension < SF_CATALOG_DIMENSIONS ? dimension_names[dimension] : NULL;
}

enum sf_catalog_dimension sf_quota_dimension(const char *name)
{
    for (int i = 0; i < SF_CATALOG_DIMENSIONS; i++) {
        if (strcmp(name, dimension_names[i]) == 0)
            return (enum sf_catalog_dimension)i;
    }
    return SF_CATALOG_DIMENSIONS;
}

SF_PB(ApiPlane) sf_quota_plane(enum sf_catalog_dimension dimension)
{
    return dimension <= SF_CATALOG_QUERY_QPS ? SF_PBE(API_PLANE, QUERY) : SF_PBE(API_PLANE, WRITE);
}

uint32_t sf_catalog_role_named(const char *name)
{
    for (size_t i = 0; i < SF_ARRAY_LEN(roles); i++) {
        if (strcmp(name, roles[i].name) == 0)
            return roles[i].role;
    }
    return 0;
}

static const struct sf_catalog_quota_class *find_class(const struct sf_catalog_policy *policy,
                                                       const char *name)
{
    for (size_t i = 0; policy != NULL && i < policy->class_count; i++) {
        if (strcmp(policy->classes[i].name, name) == 0)
            return &policy->classes[i];
    }
    return NULL;
}

static void overlay(const struct sf_catalog_quota_class *found, enum sf_catalog_dimension dimension,
                    struct sf_catalog_budget *io_budget)
{
    if (found == NULL)
        return;
    const struct sf_catalog_budget *budget = &found->budgets[dimension];
    if (budget->refill_units_per_second != 0)
        io_budget->refill_units_per_second = budget->refill_units_per_second;
    if (budget->burst_units != 0)
        io_budget->burst_units = budget->burst_units;
}

void sf_catalog_policy_budget(const struct sf_catalog_policy *policy, const char *quota_class,
                              enum sf_catalog_dimension dimension,
                              struct sf_catalog_budget *out_budget)
{
    const struct sf_catalog_quota_class *found = find_class(policy, quota_class);
    *out_budget = built_in[dimension];
    overlay(found != NULL ? found : find_class(policy, "default"), dimension, out_budget);
}

SF_PB(InternalPolicyState) * sf_catalog_policy_bind(const struct sf_catalog *catalog,
                                                    const char *name, struct sf_arena *arena)
{
    const struct sf_catalog_policy *policy = catalog->deps.policy;
    for (size_t i = 0; policy != NULL && i < policy->namespace_count; i++) {
        const struct sf_catalog_namespace_policy *row = &policy->namespaces[i];
        if (strncmp(name, row->name_prefix, strlen(row->name_prefix)) != 0)
            continue;
        SF_PB(InternalPolicyState) *out = sf_arena_alloc(arena, sizeof(*out));
        if (out == NULL)
            return NULL;
        searchfabric__v1__internal_policy_state__init(out);
        out->quota_class = sf_arena_str(arena, sf_view_str(row->quota_class));
        out->policy_profile = sf_arena_str(arena, sf_view_str(row->policy_profile));
        return sf_arena_overflowed(arena) ? NULL : out;
    }
    return NULL;
}

static enum sf_err check_class(const struct sf_catalog_quota_class *checked, struct sf_diag *diag)
{
    if (checked->name == NULL || checked->name[0] == '\0')
        return sf_diag_set(diag, SF_ERR_CONFIG, "a quota class has no name");
    for (int i = 0; i < SF_CATALOG_DIMENSIONS; i++) {
        if (checked->budgets[i].refill_units_per_second > SF_LIMIT_QUOTA_UNITS ||
            checked->budgets[i].burst_units > SF_LIMIT_QUOTA_UNITS)
            return sf_diag_set(diag, SF_ERR_CONFIG, "quota class %s: %s is above %llu",
                               checked->name, dimension_names[i],
                               (unsigned long long)SF_LIMIT_QUOTA_UNITS);
    }
    return SF_OK;
}

static enum sf_err check_caller(const struct sf_catalog_policy *policy, size_t index,
                                struct sf_diag *diag)
{
    const struct sf_catalog_caller *checked = &policy->callers[index];
    if (checked->identity == NULL || checked->identity[0] == '\0' ||
        (checked->roles & ~(uint32_t)SF_CATALOG_ROLE_ALL) != 0)
        return sf_diag_set(diag, SF_ERR_CONFIG, "a caller needs an identity and known roles");
    for (size_t i = 0; i < index; i++) {
        if (strcmp(policy->callers[i].identity, checked->identity) == 0)
            return sf_diag_set(diag, SF_ERR_CONFIG, "caller %.256s is given twice",
                               checked->identity);
    }
    return SF_OK;
}

enum sf_err sf_catalog_policy_check(const struct sf_catalog_policy *policy, struct sf_diag *diag)
{
    enum sf_err err = SF_OK;
    if (policy == NULL)
        return SF_OK;
    if (policy->class_count > SF_LIMIT_QUOTA_CLASSES ||
        policy->namespace_count > SF_LIMIT_QUOTA_POLICIES ||
        policy->caller_count > SF_LIMIT_QUOTA_CALLERS)
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "at most %u quota classes, %u namespace policies, %u callers",
                           SF_LIMIT_QUOTA_CLASSES, SF_LIMIT_QUOTA_POLICIES, SF_LIMIT_QUOTA_CALLERS);
    for (size_t i = 0; i < policy->class_count && err == SF_OK; i++) {
        err = check_class(&policy->classes[i], diag);
        if (err == SF_OK && find_class(policy, policy->classes[i].name) != &policy->classes[i])
            err = sf_diag_set(diag, SF_ERR_CONFIG, "quota class %s is given twice",
                              policy->classes[i].name);
        if (err != SF_OK)
            sf_diag_wrap(diag, "catalog.quota.classes[%zu]", i);
    }
    for (size_t i = 0; i < policy->namespace_count && err == SF_OK; i++) {
        const char *name = policy->namespaces[i].quota_class;
        if (name[0] != '\0' && strcmp(name, "default") != 0 && find_class(policy, name) == NULL)
            err = sf_diag_set(diag, SF_ERR_CONFIG,
                              "catalog.namespace_policies[%zu].quota_class: namespace policy '%s' "
                              "names no quota class: %s",
                              i, policy->namespaces[i].name_prefix, name);
    }
    for (size_t i = 0; i < policy->caller_count && err == SF_OK; i++) {
        err = check_caller(policy, i, diag);
        if (err != SF_OK)
            sf_diag_wrap(diag, "catalog.callers[%zu]", i);
    }
    return err;
}
