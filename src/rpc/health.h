/* grpc.health.v1.Health as a service: Check and Watch. */
#ifndef SF_RPC_HEALTH_H
#define SF_RPC_HEALTH_H

#include "rpc/call.h"

struct sf_health;

/* Knows the server as a whole ("") and no service; all NOT_SERVING until they are set. */
struct sf_health *sf_health_new(void);

/* All watches have ended. NULL is fine. */
void sf_health_destroy(struct sf_health *health);

/* Valid as long as `health`. */
const struct sf_service *sf_health_service(const struct sf_health *health);

/* Sets the state of a service, which becomes known, and tells watchers. Any thread. */
void sf_health_set(struct sf_health *health, const char *service, bool serving);

/* Answers NOT_SERVING from now on and ends all watches. Any thread. */
void sf_health_shutdown(struct sf_health *health);

#endif
