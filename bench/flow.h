/*
 * Closed loops of calls: so many in flight, each sent again when it is answered, until the time is
 * up. Everything runs on one loop of the driver's.
 */
#ifndef SF_BENCH_FLOW_H
#define SF_BENCH_FLOW_H

#include "exec/loop.h"
#include "exec/sched.h"

struct bench_flow;

/* One of the calls in flight. */
struct bench_slot {
    struct bench_flow *flow; /* whose */
    unsigned index;          /* 0 .. in_flight - 1 */
    int64_t sent_ns;         /* monotonic */
};

/* What a flow came to. */
struct bench_flow_result {
    size_t calls;               /* answered */
    double seconds;             /* wall time */
    uint32_t p50, p99, p999_us; /* of the latency */
};

/* Sends the next call of a slot; its answer calls bench_flow_answered, on the flow's loop. */
typedef void (*bench_send_fn)(struct bench_slot *slot);

struct bench_flow {
    struct sf_loop *loop;     /* where all of it runs */
    unsigned in_flight;       /* slots */
    int64_t ms;               /* nothing is sent after so long */
    size_t most_calls;        /* or after so many, 0 = no bound */
    bench_send_fn send;       /* sends one */
    void *user;               /* the sender's */
    struct sf_task start;     /* the flow's */
    struct bench_slot *slots; /* the flow's */
    uint32_t *latency_us;     /* the flow's: samples, the newest ones when there are too many */
    size_t sent, answered;    /* calls */
    unsigned open;            /* slots under way */
    int64_t end_ns;           /* nothing is sent from then on */
    struct sf_waiter done;    /* woken at the end */
};

/* Runs a flow and waits for its end; loop, in_flight, ms, most_calls, send and user are set. */
void bench_flow_run(struct bench_flow *flow, struct bench_flow_result *out_result);

/* The call of a slot was answered. */
void bench_flow_answered(struct bench_slot *slot);

/* Where samples go, for loads with a loop of their own. */
void bench_flow_sample(struct bench_flow *flow, int64_t ns);
void bench_flow_samples_open(struct bench_flow *flow);
void bench_flow_samples_close(struct bench_flow *flow, double seconds,
                              struct bench_flow_result *out_result);

#endif
