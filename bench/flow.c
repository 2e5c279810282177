#include "flow.h"

#include <stdlib.h>

#include "base/mem.h"
#include "bench_common.h"

#define MOST_SAMPLES ((size_t)4 << 20)

void bench_flow_samples_open(struct bench_flow *flow)
{
    flow->latency_us = sf_calloc(MOST_SAMPLES, sizeof(*flow->latency_us));
    flow->sent = flow->answered = 0;
}

void bench_flow_sample(struct bench_flow *flow, int64_t ns)
{
    flow->latency_us[flow->answered++ % MOST_SAMPLES] = (uint32_t)(ns / 1000);
}

void bench_flow_samples_close(struct bench_flow *flow, double seconds,
                              struct bench_flow_result *out_result)
{
    size_t samples = flow->answered < MOST_SAMPLES ? flow->answered : MOST_SAMPLES;

    bench_sort(flow->latency_us, samples);
    *out_result =
        (struct bench_flow_result){.calls = flow->answered,
                                   .seconds = seconds,
                                   .p50 = bench_quantile(flow->latency_us, samples, 500),
                                   .p99 = bench_quantile(flow->latency_us, samples, 990),
                                   .p999_us = bench_quantile(flow->latency_us, samples, 999)};
    free(flow->latency_us);
    flow->latency_us = NULL;
}

static void slot_send(struct bench_slot *slot)
{
    slot->flow->sent++;
    slot->sent_ns = bench_now_ns();
    slot->flow->send(slot);
}

void bench_flow_answered(struct bench_slot *slot)
{
    struct bench_flow *flow = slot->flow;
    int64_t now_ns = bench_now_ns();

    bench_flow_sample(flow, now_ns - slot->sent_ns);
    if (now_ns < flow->end_ns && (flow->most_calls == 0 || flow->sent < flow->most_calls))
        slot_send(slot);
    else if (--flow->open == 0)
        sf_waiter_wake(&flow->done);
}

static void on_start(struct sf_task *task)
{
    struct bench_flow *flow = SF_CONTAINER_OF(task, struct bench_flow, start);

    for (unsigned i = 0; i < flow->in_flight; i++)
        slot_send(&flow->slots[i]);
}

void bench_flow_run(struct bench_flow *flow, struct bench_flow_result *out_result)
{
    int64_t start_ns = bench_now_ns();

    flow->slots = sf_calloc(flow->in_flight, sizeof(*flow->slots));
    for (unsigned i = 0; i < flow->in_flight; i++)
        flow->slots[i] = (struct bench_slot){.flow = flow, .index = i};
    bench_flow_samples_open(flow);
    flow->open = flow->in_flight;
    flow->end_ns = start_ns + flow->ms * 1000000;
    flow->start.run = on_start;
    sf_waiter_init(&flow->done, NULL);
    sf_loop_post(flow->loop, &flow->start);
    sf_waiter_wait(&flow->done);
    sf_waiter_fini(&flow->done);
    double seconds = (double)(bench_now_ns() - start_ns) / 1e9;
    bench_flow_samples_close(flow, seconds, out_result);
    free(flow->slots);
}
