/* What stands in a world's store and projection, to show that a refusal wrote nothing. */
#ifndef SF_TESTS_COMPONENT_CATALOG_REJECT_WORLD_H
#define SF_TESTS_COMPONENT_CATALOG_REJECT_WORLD_H

#include "component/catalog/catalog_world.h"

/* Digest of every object's key and version, and of the number of row changes ever made. SQLite. */
const char *reject_mark(struct world *w);

#endif
