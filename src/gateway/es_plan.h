/*
 * Which items of a bulk go into one allocation plan. Pure. Private to the gateway.
 *
 * The allocator fails a plan whole when one explicit id lies below its watermark. The edge then
 * answers that item 409 and plans the others anew, in order, under another derived key. So that a
 * retry of the request finds the very plan that succeeded, the plans of a request form one fixed
 * sequence that depends on the request alone: plan `first` refuses every explicit id before
 * position `first` and every later one that cannot follow what stands before it; inside such a plan
 * only the explicit id at `first` can meet the watermark. The watermark only rises, so a plan that
 * was refused once is refused for ever, and the retry walks to the same plan.
 */
#ifndef SF_GATEWAY_ES_PLAN_H
#define SF_GATEWAY_ES_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One item of a plan. */
struct sf_es_plan_item {
    bool explicit_id; /* the source named the id */
    bool refused;     /* result: it is not part of the plan */
    uint64_t id;      /* with explicit_id */
};

/* Position of the first explicit item, or `count` when there is none. */
size_t sf_es_plan_first(const struct sf_es_plan_item *items, size_t count);

/* Marks the items that plan `first` refuses; returns the number of items in the plan. */
size_t sf_es_plan_select(struct sf_es_plan_item *items, size_t count, size_t first);

/* The plan that follows when the id at `first` is refused: the next explicit item above it, or
 * `count` when there is none. */
size_t sf_es_plan_next(const struct sf_es_plan_item *items, size_t count, size_t first);

#endif
