/*
 * Mutants: switches that remove one fence each, so that the simulator can show that every fence is
 * needed. The list stands in base/mutants.def. At most one is on in a process; release builds
 * (SF_MUTANTS off) compile the question to `false`.
 *
 *     if (!SF_MUTANT(ccs_skip_abort_marker)) {
 *         ... the fence ...
 *     }
 */
#ifndef SF_BASE_MUTANT_H
#define SF_BASE_MUTANT_H

#include <stdbool.h>

#include "base/compiler.h"

enum sf_mutant {
    SF_MUTANT_ID_NONE,
#define SF_MUTANT_DEF(name, area, fence) SF_MUTANT_ID_##name,
#include "base/mutants.def"
#undef SF_MUTANT_DEF
    SF_MUTANT_COUNT
};

/* One row of the list. */
struct sf_mutant_info {
    const char *name;  /* identifier, as given to --mutant */
    const char *area;  /* service that holds the fence */
    const char *fence; /* what the mutant removes */
};

#ifdef SF_MUTANTS
/* True when the fence `name` is removed in this run. Any thread. */
#define SF_MUTANT(name) sf_mutant_is_on(SF_MUTANT_ID_##name)
#else
#define SF_MUTANT(name) false
#endif

/* True when `mutant` is the one switched on. Any thread. */
bool sf_mutant_is_on(enum sf_mutant mutant);

/* Switches `mutant` on and any other off; SF_MUTANT_ID_NONE for none. Before threads start. */
void sf_mutant_set(enum sf_mutant mutant);

/* The mutant called `name`, or SF_MUTANT_ID_NONE. */
enum sf_mutant sf_mutant_find(const char *name);

/* The row of `mutant` (not NONE, below COUNT); never NULL. */
const struct sf_mutant_info *sf_mutant_info(enum sf_mutant mutant);

#endif
