/*
 * Who may call what (note 2.1, OP-06, OP-07): roles of authenticated identities for the private and
 * the operator's surface. What client kinds may do on the public surface is in catalog_rules.h.
 */
#ifndef SF_CATALOG_CALLERS_H
#define SF_CATALOG_CALLERS_H

#include "catalog/catalog_policy.h"
#include "catalog/catalog_priv.h"

/* Who a method is for. */
enum sf_catalog_surface {
    SF_CATALOG_SURFACE_PUBLIC, /* every authenticated identity; client_kind and truth mode decide */
    SF_CATALOG_SURFACE_PRIVATE, /* identities with one of `roles` */
    SF_CATALOG_SURFACE_OPERATOR /* operators */
};

/* One RPC of the catalog. */
struct sf_catalog_rpc {
    const char *method;              /* "AcquireQuotaLease" */
    enum sf_catalog_surface surface; /* who it is for */
    uint32_t roles;                  /* enum sf_catalog_role bits; 0 on the public surface */
};

/* The table; NULL when the method is not of the catalog. */
const struct sf_catalog_rpc *sf_catalog_rpc_find(const char *method);

struct sf_catalog_callers;

/* Takes the policy's callers over. */
struct sf_catalog_callers *sf_catalog_callers_new(const struct sf_catalog_policy *policy);
void sf_catalog_callers_destroy(struct sf_catalog_callers *callers);

/* Puts the check in front of every method of `service` (whose self is the catalog). A method that
 * the table does not know is for operators. */
void sf_catalog_callers_guard(struct sf_catalog_callers *callers, struct sf_service *service);

#endif
