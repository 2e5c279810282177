/* Quota calls over a catalog_world: leases, returns, pressure, and what stands afterwards. */
#ifndef SF_TESTS_COMPONENT_QUOTA_WORLD_H
#define SF_TESTS_COMPONENT_QUOTA_WORLD_H

#include "component/catalog/catalog_world.h"

/* A grant. */
struct lease {
    uint64_t granted_units;
    uint64_t lease_epoch;
    int64_t expires_at_unix_ms;
};

#define RETURNED ((int)SF_PBE(QUOTA_LEASE_STATE, RETURNED))
#define EXPIRED  ((int)SF_PBE(QUOTA_LEASE_STATE, EXPIRED))

SF_PB(AcquireQuotaLeaseRequest) * lease_request(struct world *w, uint64_t ns, const char *dimension,
                                                const char *holder, const char *id, uint64_t units,
                                                uint64_t observed);

/* NULL with w->diag when it was refused. */
const struct lease *lease(struct world *w, uint64_t ns, const char *dimension, const char *holder,
                          const char *id, uint64_t units, uint64_t observed);

/* Terminal state, 0 with w->diag when it was refused. */
int give_back(struct world *w, uint64_t ns, const char *dimension, const char *holder,
              const char *id, uint64_t unspent);

bool press(struct world *w, uint64_t ns, uint64_t collection, const char *dimension,
           uint64_t lag_ms, bool active);

/* One cycle of the sweeper; leases ended or removed. */
uint64_t run_sweep(struct world *w);

const SF_PB(NamespaceQuotaStateObject) * quota_object(struct world *w, uint64_t ns);

/* The row of namespace_quota_state says what the object says. */
void assert_row_is_object(struct world *w, uint64_t ns);
void assert_same_lease(const struct lease *a, const struct lease *b);

/* As ShowQuota says. */
size_t active_leases(struct world *w, uint64_t ns);

/* terminal_state of the row with that lease_request_id, NULL when there is none. */
const char *lease_state(struct world *w, const char *id);

/* First column of the first row as text, NULL without one; statements behind the catalog's back. */
const char *sql_text(struct world *w, const char *sql);
void sql_run(struct world *w, const char *sql);

/* What clients were granted. */
struct ledger {
    uint64_t total;  /* units */
    unsigned grants; /* leases */
    unsigned steps;  /* of 100 ms */
};

/* Twenty requests of up to 700 units, 100 ms apart, under ids with `prefix`; failures are fine. */
void spend(struct world *w, uint64_t ns, const char *prefix, struct ledger *ledger);

#endif
