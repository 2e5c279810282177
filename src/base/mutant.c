/* The list of mutants and the one that is on. Set once before threads start, read by all. */
#include "base/mutant.h"

#include <stdatomic.h>
#include <string.h>

static _Atomic int active = SF_MUTANT_ID_NONE;

static const struct sf_mutant_info infos[SF_MUTANT_COUNT] = {
    [SF_MUTANT_ID_NONE] = {"", "", ""},
#define SF_MUTANT_DEF(name, area, fence) [SF_MUTANT_ID_##name] = {#name, area, fence},
#include "base/mutants.def"
#undef SF_MUTANT_DEF
};

bool sf_mutant_is_on(enum sf_mutant mutant)
{
    return atomic_load_explicit(&active, memory_order_relaxed) == (int)mutant;
}

void sf_mutant_set(enum sf_mutant mutant)
{
    SF_ASSERT(mutant < SF_MUTANT_COUNT);
    atomic_store(&active, (int)mutant);
}

enum sf_mutant sf_mutant_find(const char *name)
{
    for (int i = 1; i < (int)SF_MUTANT_COUNT; i++) {
        if (strcmp(infos[i].name, name) == 0)
            return (enum sf_mutant)i;
    }
    return SF_MUTANT_ID_NONE;
}

const struct sf_mutant_info *sf_mutant_info(enum sf_mutant mutant)
{
    SF_ASSERT(mutant > SF_MUTANT_ID_NONE && mutant < SF_MUTANT_COUNT);
    return &infos[mutant];
}
