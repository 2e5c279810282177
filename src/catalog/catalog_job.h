/*
 * Background jobs of the catalog: projectors, sweepers, retention, checkpoints. A job is one row of
 * the table in catalog_job.c.
 */
#ifndef SF_CATALOG_JOB_H
#define SF_CATALOG_JOB_H

#include "catalog/catalog_priv.h"

#define SF_CATALOG_JOB_LANE_SEED UINT64_C(0x6a6f62) /* keeps their lanes apart from commands' */

enum sf_catalog_job_pace {
    SF_CATALOG_JOB_QUICK, /* waits for other quick ones */
    SF_CATALOG_JOB_SLOW,  /* a cycle may take many seconds: it holds up other slow ones only */
    SF_CATALOG_JOB_LOOK   /* waits for no other */
};

/* One kind of background work. */
struct sf_catalog_job_kind {
    const char *name;              /* as `sfctl` and metrics name it, lower case with dashes */
    uint32_t period_ms;            /* between the end of a cycle and the next; 0 = by hand only */
    enum sf_catalog_job_pace pace; /* which others it may hold up */
    /* One bounded cycle on a worker task; *out_done counts what was worked on. Any error: the next
     * period tries again. A thing that fails must not keep the cycle, or the next ones, from the
     * others: sf_catalog_own_fault, or a cursor that moves past it. */
    enum sf_err (*run)(struct sf_catalog *catalog, struct sf_sched *sched, struct sf_diag *diag,
                       uint64_t *out_done);
};

/* Is `err` about the one thing that was worked on (broken bytes, a refusal) rather than about
 * store, projection or office? Then the cycle goes on with the others and tells of it at its end.
 */
bool sf_catalog_own_fault(enum sf_err err);

/* Lane on which the jobs of a pace run. */
uint64_t sf_catalog_job_lane(enum sf_catalog_job_pace pace);

/* Makes the jobs; arms their timers when deps.run_jobs. After the open, before the first request.
 */
void sf_catalog_jobs_start(struct sf_catalog *catalog);

/* Stops the timers; no cycle runs any more (every request has left). Blocks. Harmless twice. */
void sf_catalog_jobs_stop(struct sf_catalog *catalog, struct sf_sched *sched);

/* Handlers of ListCatalogJobs and RunCatalogJob. */
void sf_catalog_jobs_list(void *self, struct sf_call *call, const ProtobufCMessage *request);
void sf_catalog_job_call(void *self, struct sf_call *call, const ProtobufCMessage *request);

#endif
