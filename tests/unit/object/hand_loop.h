/* A loop run by hand, with its own time: for tests that want to see each step. */
#ifndef SF_TESTS_UNIT_OBJECT_HAND_LOOP_H
#define SF_TESTS_UNIT_OBJECT_HAND_LOOP_H

#include "exec/timer_heap.h"

struct hand_loop {
    struct sf_loop base;   /* pass &hand.base */
    struct sf_task *head;  /* posted, oldest first */
    struct sf_task **tail; /* where the next one goes */
    struct sf_timer_heap timers;
    int64_t now_ms;
};

void hand_loop_init(struct hand_loop *loop);
void hand_loop_fini(struct hand_loop *loop);

/* Runs what is posted; no timer. */
void hand_loop_turn(struct hand_loop *loop);

/* Runs tasks and timers, moving time, until nothing is left. */
void hand_loop_run(struct hand_loop *loop);

#endif
