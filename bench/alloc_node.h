/*
 * An allocator over an embedded store, behind the real gRPC server, in a process of its own: its
 * CPU time and memory are its own. The catalog beside it answers from memory. The parent asks it
 * over a pipe.
 */
#ifndef SF_BENCH_ALLOC_NODE_H
#define SF_BENCH_ALLOC_NODE_H

#include <sys/types.h>

#include "allocator/allocator.h"

/* How a node runs. */
struct bench_alloc_options {
    const char *folder;    /* of the store */
    unsigned reactors;     /* of the gRPC server and of the lanes */
    size_t cache_bytes;    /* of remembered answers, 0 = the default */
    size_t lanes;          /* in memory, 0 = the default */
    unsigned put_delay_ms; /* above 0: a shared store, each put answered after so long */
    unsigned get_delay_ms; /* with it: each read */
    bool no_leases;        /* every request writes the state; else as the daemon by default */
};

/* A node's process. */
struct bench_alloc_node {
    pid_t pid;
    uint16_t port;
    int ask, told; /* pipe to it, pipe from it */
};

/* Counters of a node, as it tells them. */
struct bench_alloc_report {
    struct sf_allocator_stats allocator; /* of the allocator */
    uint64_t syncs;                      /* of the store */
};

/* Starts a node and waits until it serves. The child is this program again (argv[1] "serve"). */
void bench_alloc_start(const struct bench_alloc_options *options,
                       struct bench_alloc_node *out_node);

/* The child's main; argv as bench_alloc_start made it. */
int bench_alloc_main(char **argv);

/* Drains it and waits for its end. */
void bench_alloc_stop(struct bench_alloc_node *node);

void bench_alloc_ask(const struct bench_alloc_node *node, struct bench_alloc_report *out_report);

#endif
