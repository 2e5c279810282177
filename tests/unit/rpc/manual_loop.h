/* A loop that the test turns by hand: a task queue, a heap of timers and a manual clock. */
#ifndef SF_TESTS_UNIT_RPC_MANUAL_LOOP_H
#define SF_TESTS_UNIT_RPC_MANUAL_LOOP_H

#include "exec/exec_priv.h"
#include "exec/timer_heap.h"

struct manual_loop {
    struct sf_loop base;
    struct sf_clock_manual clock;
    struct sf_task_queue tasks;
    struct sf_timer_heap timers;
};

void manual_loop_init(struct manual_loop *loop);
void manual_loop_fini(struct manual_loop *loop);

/* Runs tasks, and what they post, until none is left. */
void manual_loop_run(struct manual_loop *loop);

/* Moves time and fires what is due, then runs tasks. */
void manual_loop_advance(struct manual_loop *loop, int64_t ms);

#endif
