/*
 * The coordinator speaks of refusals inside the write plane; the ingest gateway alone turns them
 * into public errors (coordinator note 6.2, COORD-6.2-08). Pure. Private to the gateway.
 */
#ifndef SF_GATEWAY_REFUSAL_RULES_H
#define SF_GATEWAY_REFUSAL_RULES_H

#include "base/diag.h"
#include "searchfabric/v1/commit_coordinator.pb-c.h"

/* Fills `diag` with the public error of `refused`, its required details included, for the batch
 * `batch_id`. Returns the code, never SF_OK. */
enum sf_err sf_refusal_project(const Searchfabric__V1__BatchRefused *refused, const char *batch_id,
                               struct sf_diag *diag);

#endif
