/*
 * A whole node of the simulated cluster: catalog over the shared projection, oracle, allocator,
 * coordinator, ingest gateway, wired by in-process channels as the daemon wires them. Each node has
 * an oracle of its own over the one store: the later start takes the window, and with it the
 * office.
 */
#ifndef SF_TESTS_SIM_ALL_NODE_H
#define SF_TESTS_SIM_ALL_NODE_H

#include "allocator/allocator.h"
#include "catalog/catalog.h"
#include "cluster/store_identity.h"
#include "commit/commit.h"
#include "fault/sim/sim.h"
#include "gateway/ingest.h"

#define ALL_NODES 2

/* What the nodes of one world share; ctx of their service. */
struct all_cluster {
    struct sim *sim;
    struct sf_keyring *keyring;
    struct sf_sql *sql; /* the projection; each process has a handle of its own */
    struct sim_node *nodes[ALL_NODES];
    uint32_t coordinator_shards;
    bool settled;                  /* only nodes[0] starts from here on: leadership leaves one */
    uint64_t served_catalog_epoch; /* highest owner epoch under which a node has served */
    void (*served)(void *ctx, const char *owner); /* a node serves from now on */
    void *served_ctx;
};

/* One life of a node. */
struct all_node {
    struct all_cluster *cluster;
    struct sim_process *process;
    struct sf_attempts attempts;
    struct sf_store_identity identity;
    struct sf_metrics *metrics;
    struct sf_tso_source *tso;
    struct sf_sql *sql;
    struct sf_catalog *catalog;
    struct sf_allocator *allocator;
    struct sf_commit *commit;
    struct sf_ingest *ingest;
    struct sf_channel *catalog_channel; /* both catalog services */
    struct sf_channel *allocator_channel;
    struct sf_channel *commit_channel;
    struct sf_channel *ingest_channel;
    unsigned in_flight;     /* calls of clients */
    bool stopping;          /* takes no calls any more */
    struct sf_waiter *idle; /* woken when the last call ends; NULL while nobody waits */
};

/* For struct sim_service; ctx is the cluster. */
void *all_node_start(struct sim_process *process, void *ctx);
void all_node_stop(struct sim_process *process, void *service, void *ctx);

/* Where calls of clients enter the process. */
struct sf_loop *all_node_edge(struct all_node *node);

/* True once some part of it lost its office: its process should end. */
bool all_node_is_deposed(struct all_node *node);

/* A call of a client ended. */
void all_node_call_ended(struct all_node *node);

#endif
