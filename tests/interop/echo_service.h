/* The echo service of echo.proto, for unit tests, interop tests and benchmarks. */
#ifndef SF_TESTS_INTEROP_ECHO_SERVICE_H
#define SF_TESTS_INTEROP_ECHO_SERVICE_H

#include "echo.pb-c.h"
#include "exec/loop.h"
#include "rpc/call.h"

struct sf_echo;

/* `loop` is where delayed answers wait and come from; NULL: a delay is refused. */
struct sf_echo *sf_echo_new(struct sf_loop *loop);

/* No call is open any more. */
void sf_echo_destroy(struct sf_echo *echo);

/* Valid as long as the service. */
const struct sf_service *sf_echo_service(const struct sf_echo *echo);

/* Streams and delayed answers open now, calls seen cancelled so far. Any thread. */
unsigned sf_echo_open_count(const struct sf_echo *echo);
unsigned sf_echo_cancelled_count(const struct sf_echo *echo);

#endif
