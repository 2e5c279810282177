/*
 * Allocators on nodes of the simulator: what the scenarios share. Each process has an allocator
 * over the network's store and a stand-in for the catalog that answers at once, refuses now and
 * then, changes the schema token every second, and drops the second collection when told to.
 */
#ifndef SF_TESTS_SIM_ALLOC_WORLD_H
#define SF_TESTS_SIM_ALLOC_WORLD_H

#include "allocator/allocator.h"
#include "fault/alloc/sim_alloc_model.h"
#include "fault/sim/sim.h"

#define WORLD_MAX_NODES 3

/* What the run is about; ctx of everything. */
struct world {
    struct sim *sim;
    struct sf_keyring *keyring;
    struct sim_node *nodes[WORLD_MAX_NODES];
    unsigned node_count;
    struct model *model;
    int64_t drop_at_ms; /* from then on the second collection is dropped; 0 = never */
    struct sf_alloc_lease_policy leases; /* of every process */
    size_t max_lanes;                    /* collections in memory of a loop */
    bool throttle;                       /* replay objects are refused at times */
    int64_t retention_ms;                /* of results; 0 = none goes */
    bool settled;                        /* the catalog refuses no more */
    unsigned clients;                    /* tasks that ask */
    unsigned clients_done;
    unsigned arrived; /* requests that a client is done with, in a scenario in lockstep */
};

/* Opens the world; nodes come with world_start_nodes. `leases` NULL: nobody leases; else most
 * requests are without explicit ids. */
void world_open(struct world *w, struct sim *sim, const struct sf_alloc_lease_policy *leases);
void world_start_nodes(struct world *w, unsigned count);
void world_close(struct world *w);

/* True once every client is done; for sim_run_until. */
bool world_all_done(struct sim *sim, void *ctx);

/* True when the collection is dropped by now. */
bool world_dropped(const struct world *w, uint64_t collection_id);

/* One answer; the bytes are the caller's (sf_buf_fini). */
struct world_answer {
    enum sf_err err;
    struct sf_buf packed;
};

/* Sends `q` to a node from a task of `client`; false when what it answered does not count: the
 * node was down, or died meanwhile. */
bool world_call(struct sim_process *client, struct world *w, unsigned node,
                const struct model_request *q, struct world_answer *out_answer);

/* One round of retention on a node, from a task of `client`. What it says does not matter. */
void world_retain(struct sim_process *client, struct world *w, unsigned node);

/* ---- scenarios of other files ---- */

void run_alloc_owners(struct sim *sim);

#endif
