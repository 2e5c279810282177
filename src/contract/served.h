/* Which methods of the contract this build serves: the one table from which UNIMPLEMENTED answers
 * are given, so that no method needs a stub. */
#ifndef SF_CONTRACT_SERVED_H
#define SF_CONTRACT_SERVED_H

#include "base/diag.h"
#include "base/view.h"

/* One method of the contract. */
struct sf_contract_method {
    const char *service; /* full name, "searchfabric.v1.IdAllocatorService" */
    const char *method;  /* "AllocateIds" */
    bool served;         /* false: declared only, answered SF_UNIMPLEMENTED */
};

/* All methods, sorted by service, then in the order of the proto file. Static. Any thread. */
const struct sf_contract_method *sf_contract_methods(size_t *out_count);

/* The row of "/service/Method", or NULL when the contract does not declare it. Any thread. */
const struct sf_contract_method *sf_contract_method_find(struct sf_view path);

/* Fills `diag` with what a call to `path` that no handler takes is answered with: SF_UNIMPLEMENTED
 * with detail rpc_method, for declared and for unknown methods alike (the message tells them
 * apart). Returns the code. Any thread. */
enum sf_err sf_contract_unserved(struct sf_view path, struct sf_diag *diag);

#endif
