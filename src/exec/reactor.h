/*
 * Reactors: N libuv loops, each on its own thread, each an sf_loop. A reactor owns its connections
 * and its share of the hot lanes; mailboxes (sf_loop_post) are the only way in from another thread.
 */
#ifndef SF_EXEC_REACTOR_H
#define SF_EXEC_REACTOR_H

#include "base/diag.h"
#include "exec/loop.h"

struct sf_reactor; /* one loop with its thread */
struct sf_reactors;

/* Starts `count` (>= 1) reactors. Errors: SF_ERR_IO. */
SF_MUST_USE enum sf_err sf_reactors_start(unsigned count, struct sf_clock *clock,
                                          struct sf_diag *diag, struct sf_reactors **out_reactors);

unsigned sf_reactors_count(const struct sf_reactors *reactors);

/* The loop of reactor `index`; valid until the stop. */
struct sf_loop *sf_reactors_loop(struct sf_reactors *reactors, unsigned index);

/* The libuv loop behind an sf_loop made here (uv_loop_t *), for the rpc layer; on the loop only. */
void *sf_reactor_uv(struct sf_loop *loop);

/* Reads the loop's `now_ms` again: the first call of a libuv callback that is not exec's own. On
 * the loop. */
void sf_reactor_turn(struct sf_loop *loop);

/* Runs what is posted, stops the loops, joins the threads, frees. Whoever uses the loops has
 * drained first. */
void sf_reactors_stop(struct sf_reactors *reactors);

#endif
