/* Handlers of statistics, the serving side and lifecycle windows, for the tables of
 * catalog_service.c. Each takes `call` and never blocks. */
#ifndef SF_CATALOG_ON_SERVING_H
#define SF_CATALOG_ON_SERVING_H

#include "catalog/catalog_priv.h"

void sf_catalog_on_get_statistics(void *self, struct sf_call *call,
                                  const ProtobufCMessage *request);
void sf_catalog_on_report_backlog(void *self, struct sf_call *call,
                                  const ProtobufCMessage *request);
void sf_catalog_on_report_observation(void *self, struct sf_call *call,
                                      const ProtobufCMessage *request);
void sf_catalog_on_resolve_serving(void *self, struct sf_call *call,
                                   const ProtobufCMessage *request);
void sf_catalog_on_claim_transitions(void *self, struct sf_call *call,
                                     const ProtobufCMessage *request);
void sf_catalog_on_report_transition_failed(void *self, struct sf_call *call,
                                            const ProtobufCMessage *request);
void sf_catalog_on_list_reclaimable(void *self, struct sf_call *call,
                                    const ProtobufCMessage *request);
void sf_catalog_on_show_statistics(void *self, struct sf_call *call,
                                   const ProtobufCMessage *request);
void sf_catalog_on_show_windows(void *self, struct sf_call *call, const ProtobufCMessage *request);

#endif
