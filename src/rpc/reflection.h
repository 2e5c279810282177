/* grpc.reflection v1 and v1alpha over the contract's FileDescriptorSet. */
#ifndef SF_RPC_REFLECTION_H
#define SF_RPC_REFLECTION_H

#include "rpc/call.h"

struct sf_reflection;

/* `descriptor_set`: a serialized FileDescriptorSet, valid as long as the result. NULL when it does
 * not parse. */
struct sf_reflection *sf_reflection_new(struct sf_view descriptor_set);

void sf_reflection_destroy(struct sf_reflection *reflection);

/* The two services, valid as long as `reflection`. */
const struct sf_service *sf_reflection_service_v1(const struct sf_reflection *reflection);
const struct sf_service *sf_reflection_service_v1alpha(const struct sf_reflection *reflection);

/* Sets what list_services answers (copied). Before the first call. */
void sf_reflection_set_services(struct sf_reflection *reflection, const char *const *names,
                                size_t count);

#endif
