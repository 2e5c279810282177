/*
 * Gates: reader-writer locks of one process on a namespace and on a collection, so that work on one
 * lane can exclude work on another (OP-28). Between processes the owner epoch does that.
 */
#ifndef SF_CATALOG_GATE_H
#define SF_CATALOG_GATE_H

#include "catalog/catalog_priv.h"

struct sf_catalog_gate_table;

struct sf_catalog_gate_table *sf_catalog_gate_table_new(void);
void sf_catalog_gate_table_destroy(struct sf_catalog_gate_table *table);

/* Takes the gates, waiting in arrival order. Whoever holds one never waits for another task to take
 * a gate, so nothing waits in a circle. Blocks the lane task. */
void sf_catalog_gates_acquire(struct sf_catalog *catalog, const struct sf_catalog_gates *gates);
void sf_catalog_gates_release(struct sf_catalog *catalog, const struct sf_catalog_gates *gates);

/* Does anybody wait for the namespace's gate? For status and tests. */
bool sf_catalog_gate_waited_for(struct sf_catalog *catalog, uint64_t namespace_id);

#endif
