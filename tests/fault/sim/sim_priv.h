/* The simulator's insides, shared by its files. */
#ifndef SF_TESTS_FAULT_SIM_PRIV_H
#define SF_TESTS_FAULT_SIM_PRIV_H

#include <pthread.h>
#include <semaphore.h>

#include "exec/timer_heap.h"
#include "fault/sim/sim.h"
#include "support/tempdir.h"

#define SIM_LOOPS 4u

struct sim_loop {
    struct sf_loop base;
    struct sim_process *process;
    struct sf_task *head;  /* posted, oldest first */
    struct sf_task **tail; /* where the next one goes */
    struct sf_timer_heap timers;
    bool running; /* a task or timer of it runs now */
};

/* Tasks that run one after another. Exists while it has work. */
struct sim_lane {
    uint64_t key;
    struct sf_task *head;
    struct sf_task **tail;
    bool busy; /* a task of it has started and not ended */
    bool own;  /* of sim_spawn: a thread of its own, not of the pool */
};

/* A thread that runs tasks while it holds the baton. */
struct sim_thread {
    struct sim_thread *next; /* in the world's list of idle ones */
    struct sim_thread *all_next;
    pthread_t thread;
    sem_t go; /* the baton comes */
    struct sim *sim;
    struct sim_process *process; /* whose task it runs */
    struct sim_lane *lane;       /* of that task */
    struct sf_task *task;        /* it */
    bool quit;
};

struct sim_sched {
    struct sf_sched base;
    struct sim_process *process;
    struct sim_lane **lanes; /* with work */
    size_t lane_count;
    size_t lane_cap;
    struct sim_thread **runnable; /* may go on */
    size_t runnable_count;
    size_t runnable_cap;
    unsigned workers; /* immutable: tasks of the pool that may run at once */
    unsigned running; /* started and not ended */
    unsigned pooled;  /* of those, tasks of the pool */
    uint64_t next_own_lane;
};

struct sim_clock {
    struct sf_clock base;
    struct sim *sim;
    int64_t skew_ms; /* of the wall clock */
};

struct sim_sql {
    struct sf_sql_faults base;
    struct sim_process *process;
};

struct sim_process {
    struct sim_process *next; /* in the world's list */
    struct sim *sim;
    char name[64];
    uint64_t random;
    struct sim_clock clock;
    struct sim_loop loops[SIM_LOOPS];
    struct sim_sched sched;
    struct sim_sql sql;
    struct sf_store *store; /* NULL for the network's own process */
    bool dead;
    int64_t paused_until_ms; /* runs nothing before */
};

enum sim_node_state { NODE_DOWN, NODE_STARTING, NODE_UP, NODE_STOPPING, NODE_DRAINING };

struct sim_node {
    struct sim_node *next;
    struct sim *sim;
    char name[48];
    struct sim_service service;
    enum sim_node_state state;
    struct sim_process *process; /* NULL while down */
    void *running;               /* what start returned */
    uint64_t life;               /* number of the present or last process */
    bool starting_done;          /* the start task ended */
    bool stopping_done;          /* the stop task ended */
    bool stop_for_good;
    int64_t restart_at_ms; /* while down */
    int64_t since_ms;      /* of the present state, to find what hangs */
};

/* What a run is asked to be, from the command line. */
struct sim_run_options {
    uint64_t seed;
    bool trace;
    bool calm;             /* no random faults */
    uint64_t crash_at_put; /* 0 = none */
    bool embedded;         /* the backend is the embedded store, on disk */
};

struct sim {
    struct sim_run_options run;
    struct sim_options options;
    struct sf_rng pick;  /* scheduling */
    struct sf_rng chaos; /* kills, pauses, restarts, SQL faults */
    struct sf_rng user;  /* the scenario's */
    int64_t now_ms;
    uint64_t steps;
    uint64_t history; /* hash of all picks: equal seeds, equal histories */
    struct sim_process *processes;
    struct sim_process *net; /* the network's loop lives here */
    struct sf_store *backend;
    char folder[SF_TEMPDIR_BYTES]; /* of the embedded backend */
    struct sf_fault_store *fault;
    struct sim_node *nodes;
    struct sim_thread *idle;
    struct sim_thread *threads;
    struct sim_thread *current; /* who holds the baton; NULL = main */
    sem_t back;                 /* the baton comes back to main */
    void (*check)(struct sim *sim, void *ctx);
    void *check_ctx;
    bool settled;
    unsigned sql_crashes;
    unsigned kills;
    unsigned pauses;
    int64_t next_chaos_ms;
};

/* World: sim_world.c */
struct sim *sim_new(const struct sim_run_options *run);
void sim_destroy(struct sim *sim);
/* One step; false when nothing is left to do, ever. */
bool sim_step(struct sim *sim);

/* A process of a node is one `workers` wide. */
struct sim_process *sim_process_make(struct sim *sim, const char *name, unsigned workers);

/* Loops: sim_loop.c */
void sim_loop_init(struct sim_loop *loop, struct sim_process *process);
void sim_loop_fini(struct sim_loop *loop);
bool sim_loop_ready(const struct sim_loop *loop);
bool sim_loop_empty(const struct sim_loop *loop);
/* Runs one task or due timer of a ready loop. */
void sim_loop_run_one(struct sim_loop *loop);

/* Scheduler: sim_sched.c */
void sim_sched_init(struct sim_sched *sched, struct sim_process *process, unsigned workers);
void sim_sched_fini(struct sim_sched *sched);
/* Things that could run: runnable threads, then lanes that may start. */
size_t sim_sched_candidates(const struct sim_sched *sched);
void sim_sched_run(struct sim_sched *sched, size_t candidate);
void sim_threads_fini(struct sim *sim);

/* Nodes: sim_node.c */
void sim_nodes_tick(struct sim *sim);
/* Earliest virtual time at which a node or the chaos wants to act; INT64_MAX for never. */
int64_t sim_nodes_next_ms(const struct sim *sim);
bool sim_nodes_busy(const struct sim *sim);

/* Uniform in 0..most. */
int64_t sim_draw_ms(struct sf_rng *rng, int64_t most_ms);
bool sim_draw(struct sf_rng *rng, uint16_t per_mille);

#endif
