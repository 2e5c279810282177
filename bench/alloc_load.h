/* AllocateIds over gRPC by many clients, and etcd's Put by the same means. */
#ifndef SF_BENCH_ALLOC_LOAD_H
#define SF_BENCH_ALLOC_LOAD_H

#include "flow.h"

/* Where the requests go. */
enum bench_spread {
    BENCH_ONE,   /* all to one collection */
    BENCH_ROUND, /* round robin over `collections` */
    BENCH_OWN    /* each slot to a collection of its own */
};

/* What is in a plan. */
enum bench_plan { BENCH_ISSUE, BENCH_EXPLICIT, BENCH_MIXED };

/* One load. */
struct bench_alloc_load {
    uint16_t port;            /* of the server, on loopback */
    unsigned connections;     /* to it */
    unsigned in_flight;       /* calls in all */
    int64_t ms;               /* of the run */
    size_t most_calls;        /* 0 = no bound */
    enum bench_spread spread; /* over collections */
    uint64_t collections;     /* of BENCH_ROUND */
    enum bench_plan plan;     /* explicit and mixed ones go with BENCH_OWN */
    unsigned items;           /* of a plan, 1 .. 1000 */
    uint64_t keys;            /* idempotency keys are used again after so many, 0 = never */
    uint64_t run;             /* names the keys: another number, other keys */
};

/* Runs it on `loop` (a reactor's). Every answer must be a success with all its ids. */
void bench_alloc_load_run(struct sf_loop *loop, const struct bench_alloc_load *load,
                          struct bench_flow_result *out_result);

/* Puts of `bytes` under new keys into an etcd on loopback. */
void bench_etcd_load_run(struct sf_loop *loop, uint16_t port, unsigned connections,
                         unsigned in_flight, int64_t ms, size_t bytes,
                         struct bench_flow_result *out_result);

/* INCR of a counter and SET of `bytes` under a new key, sent together, into a Redis on loopback;
 * done when both are answered. Runs on the calling thread. */
void bench_redis_load_run(uint16_t port, unsigned connections, unsigned in_flight, int64_t ms,
                          size_t bytes, struct bench_flow_result *out_result);

#endif
