/*
 * From the configuration to the catalog's tables. Names of roles are looked up here, since the
 * catalog knows them and the reader of the file does not; --check-config comes through here too.
 * The names of this process's own parts cannot be bound anew: it would lock itself out.
 */
#include "daemon/policy.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "catalog/catalog.h"

#define OWN_PARTS "searchfabric:"

static struct sf_catalog_budget budget_of(const struct sf_config_budget *budget)
{
    return (struct sf_catalog_budget){.refill_units_per_second = budget->refill_units_per_second,
                                      .burst_units = budget->burst_units};
}

static void fill_classes(const struct sf_config_policy *from,
                         struct sf_catalog_quota_class *classes)
{
    for (size_t i = 0; i < from->class_count; i++) {
        const struct sf_config_quota_class *one = &from->classes[i];
        classes[i].name = one->name;
        classes[i].budgets[SF_CATALOG_QUERY_RCU] = budget_of(&one->query_rcu);
        classes[i].budgets[SF_CATALOG_QUERY_QPS] = budget_of(&one->query_qps);
        classes[i].budgets[SF_CATALOG_INGEST_BYTES] = budget_of(&one->ingest_bytes);
        classes[i].budgets[SF_CATALOG_INGEST_ENTRIES] = budget_of(&one->ingest_entries);
    }
}

static enum sf_err fill_callers(const struct sf_config_policy *from, struct sf_diag *diag,
                                struct sf_catalog_caller *callers)
{
    for (size_t i = 0; i < from->caller_count; i++) {
        const struct sf_config_caller *one = &from->callers[i];
        callers[i].identity = one->identity;
        if (strncmp(one->identity, OWN_PARTS, strlen(OWN_PARTS)) == 0)
            return sf_diag_set(diag, SF_ERR_CONFIG,
                               "catalog.callers[%zu].identity: names that start with " OWN_PARTS
                               " are of this process's parts",
                               i);
        for (size_t role = 0; role < one->role_count; role++) {
            uint32_t bit = sf_catalog_role_named(one->roles[role]);
            if (bit == 0)
                return sf_diag_set(
                    diag, SF_ERR_CONFIG,
                    "catalog.callers[%zu].roles: there is no role '%.64s'; the roles are "
                    "query-gateway, ingest-gateway, query-broker, publisher, allocator, "
                    "coordinator, serving, operator",
                    i, one->roles[role]);
            callers[i].roles |= bit;
        }
    }
    return SF_OK;
}

enum sf_err sf_policy_new(const struct sf_config *config, struct sf_diag *diag,
                          struct sf_catalog_policy **out_policy)
{
    const struct sf_config_policy *from = &config->policy;
    struct sf_catalog_policy *policy = sf_calloc(1, sizeof(*policy));
    struct sf_catalog_quota_class *classes = sf_calloc(from->class_count + 1, sizeof(*classes));
    struct sf_catalog_namespace_policy *namespaces =
        sf_calloc(from->namespace_count + 1, sizeof(*namespaces));
    struct sf_catalog_caller *callers = sf_calloc(from->caller_count + 1, sizeof(*callers));
    *policy = (struct sf_catalog_policy){
        .classes = classes,
        .class_count = from->class_count,
        .namespaces = namespaces,
        .namespace_count = from->namespace_count,
        .callers = callers,
        .caller_count = from->caller_count,
        .lease_ttl_ms = from->lease_ttl_ms,
        .lease_retention_ms = from->lease_retention_ms,
        .pressure_ms = from->pressure_ms,
    };
    fill_classes(from, classes);
    for (size_t i = 0; i < from->namespace_count; i++)
        namespaces[i] = (struct sf_catalog_namespace_policy){
            .name_prefix = from->namespaces[i].name_prefix,
            .quota_class = from->namespaces[i].quota_class,
            .policy_profile = from->namespaces[i].policy_profile};
    enum sf_err err = fill_callers(from, diag, callers);
    if (err == SF_OK)
        err = sf_catalog_policy_check(policy, diag);
    if (err != SF_OK) {
        sf_policy_destroy(policy);
        return err;
    }
    *out_policy = policy;
    return SF_OK;
}

void sf_policy_destroy(struct sf_catalog_policy *policy)
{
    if (policy == NULL)
        return;
    free((void *)(uintptr_t)policy->classes);
    free((void *)(uintptr_t)policy->namespaces);
    free((void *)(uintptr_t)policy->callers);
    free(policy);
}
