/*
 * Fates of the puts and gets of a test of the allocator, in their order, over the world's script
 * store; and what tests of crashes and other owners have in common.
 */
#ifndef SF_TESTS_ALLOC_FATES_H
#define SF_TESTS_ALLOC_FATES_H

#include "component/allocator/alloc_world.h"

/* Fates of the puts of one test, in their order; what follows the list is `*_rest`. */
struct fates {
    enum script_fate state[8];
    unsigned state_count;
    enum script_fate state_rest;
    enum script_fate replay[8];
    unsigned replay_count;
    enum script_fate replay_rest;
    unsigned state_seen;
    unsigned replay_seen;
    void (*before_replay)(struct world *w); /* runs before each replay put */
    struct world *world;
    enum sf_err get_failure;   /* what reads answer */
    bool get_fails_state_only; /* reads of other objects go through */
};
extern struct fates fates; /* of the running test */

/* From now on everything goes well. */
void fates_calm(struct world *w);

/* cmocka fixtures: a calm world; the teardown switches mutants off. */
int fates_setup(void **state);
int fates_teardown(void **state);

/* Kills the last process and starts another. */
struct process *fates_restart(struct world *w);

/* Both succeeded with the same bytes. */
bool results_same(const struct result *a, const struct result *b);

#endif
