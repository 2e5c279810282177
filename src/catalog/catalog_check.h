/* Check and repair of the projection against the objects, and what a key would return. */
#ifndef SF_CATALOG_CHECK_H
#define SF_CATALOG_CHECK_H

#include "catalog/catalog_retention.h"

#define SF_CATALOG_FINDINGS     1000  /* returned by default */
#define SF_CATALOG_FINDINGS_MAX 10000 /* returned at most */

/* Handlers of CheckCatalog and ShowReplay. */
void sf_catalog_check_call(void *self, struct sf_call *call, const ProtobufCMessage *request);
void sf_catalog_replay_call(void *self, struct sf_call *call, const ProtobufCMessage *request);

#endif
