/* The configuration's quota classes, namespaces and callers in the catalog's form. */
#ifndef SF_DAEMON_POLICY_H
#define SF_DAEMON_POLICY_H

#include "base/config.h"
#include "catalog/catalog_policy.h"

/* Checks that all of it holds together (classes and roles exist, nothing twice) and builds the
 * tables, which borrow their texts from `config`. Destroy with sf_policy_destroy. Error:
 * SF_ERR_CONFIG. */
SF_MUST_USE enum sf_err sf_policy_new(const struct sf_config *config, struct sf_diag *diag,
                                      struct sf_catalog_policy **out_policy);
void sf_policy_destroy(struct sf_catalog_policy *policy);

#endif
