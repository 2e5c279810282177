/*
 * The serving side's part: what it reports (backlog, observations) and what it asks before it runs
 * a query. On the collection's lane; each answers the call or returns why not.
 */
#ifndef SF_CATALOG_SERVING_H
#define SF_CATALOG_SERVING_H

#include "catalog/catalog_priv.h"

#define SF_CATALOG_REPAIR_LIMIT 5 /* mismatches in a row of a drifted generation, then ERROR */

/* What a comparison of observed and expected generation says (note section 7; OP-36). */
enum sf_catalog_verdict {
    SF_CATALOG_VERDICT_NONE,     /* nothing follows */
    SF_CATALOG_VERDICT_DRIFT,    /* READY, and something else is served */
    SF_CATALOG_VERDICT_HEALED,   /* DRIFTED, and the generation is served again */
    SF_CATALOG_VERDICT_UNHEALED, /* DRIFTED, and still something else is served */
    SF_CATALOG_VERDICT_FAILED    /* that was the last one that the policy admits */
};
enum sf_catalog_verdict sf_catalog_compare(SF_PB(SchemaSyncState__StateCase) state, bool matches,
                                           uint32_t failed_repairs);

/* Malformed input of the three requests. SF_BAD_REQUEST. */
enum sf_err sf_catalog_backlog_check(const SF_PB(ReportIndexBacklogRequest) * request,
                                     struct sf_diag *diag);
enum sf_err sf_catalog_observation_check(const SF_PB(ReportServingObservationRequest) * request,
                                         struct sf_diag *diag);
enum sf_err sf_catalog_resolve_check(const SF_PB(ResolveServingGenerationRequest) * request,
                                     struct sf_diag *diag);

/* ReportIndexBacklog: kept in rows; lost with them, until reported again (OP-43). Refused unless it
 * is about the active generation. */
enum sf_err sf_catalog_backlog_run(struct sf_catalog *catalog, struct sf_call *call,
                                   const ProtobufCMessage *request);

/* ReportServingObservation: compares and, where it follows, runs the signal. */
enum sf_err sf_catalog_observation_run(struct sf_catalog *catalog, struct sf_call *call,
                                       const ProtobufCMessage *request);

/* ResolveServingGeneration. */
enum sf_err sf_catalog_resolve_run(struct sf_catalog *catalog, struct sf_call *call,
                                   const ProtobufCMessage *request);

/* SF_CATALOG_UNAVAILABLE (descriptor_publishing) when a descriptor is not complete: the same
 * derivation as its completeness (OP-45). */
enum sf_err sf_catalog_complete_check(const SF_PB(DescriptorCompleteness) * completeness,
                                      struct sf_diag *diag);

#endif
