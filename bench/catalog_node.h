/*
 * A catalog over an embedded store, behind the real gRPC server, in a process of its own: its CPU
 * time and memory are its own, and it can be killed. The parent asks it over a pipe.
 */
#ifndef SF_BENCH_CATALOG_NODE_H
#define SF_BENCH_CATALOG_NODE_H

#include <sys/types.h>

#include "catalog/catalog.h"

#define BENCH_PUBLIC     "/searchfabric.v1.CatalogControlService/"
#define BENCH_PRIVATE    "/searchfabric.v1.CatalogControlPrivateService/"
#define BENCH_OPERATIONS "/searchfabric.v1.CatalogOperationsService/"

/* How a node runs. */
struct bench_node_options {
    const char *folder;    /* of store and projection */
    unsigned reactors;     /* of the gRPC server */
    unsigned workers;      /* of the pool */
    size_t cache_bytes;    /* 0 = the catalog's default */
    unsigned put_delay_ms; /* above 0: a shared store, each put answered after so long */
};

/* A node's process. */
struct bench_node {
    pid_t pid;
    uint16_t port;
    int ask, told; /* pipe to it, pipe from it */
};

/* Counters of a node, as it tells them. */
struct bench_node_report {
    struct sf_catalog_stats catalog; /* of the catalog */
    uint64_t puts;                   /* that the store was asked for, with put_delay_ms */
    uint64_t rounds;                 /* batch stages that waited for it, with put_delay_ms */
};

/* What a run inside the node came to. */
struct bench_node_reads {
    uint64_t calls;
    double seconds;
    double cpu_seconds;
};

/* Starts a node and waits until it serves. Call before the program has threads, or from any: the
 * child is this program again (argv[0] "serve"). */
void bench_node_start(const struct bench_node_options *options, struct bench_node *out_node);

/* The child's main; argv as bench_node_start made it. */
int bench_node_main(char **argv);

/* Kills it as kill -9 does; stops it in order. */
void bench_node_kill(struct bench_node *node);
void bench_node_stop(struct bench_node *node);

void bench_node_ask(struct bench_node *node, struct bench_node_report *out_report);

/* Has it read `count` times in process, by ref and then by name. */
void bench_node_read(struct bench_node *node, uint64_t namespace_id, uint64_t collection_id,
                     const char *name, uint64_t count, struct bench_node_reads out[2]);

#endif
