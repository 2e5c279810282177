/* The simulator's insides, shared by its files. */
#ifndef SF_TESTS_FAULT_SIM_PRIV_H
#define SF_TESTS_FAULT_SIM_PRIV_H

#ifdef SF_SANITIZED
#include <pthread.h>
#include <semaphore.h>
#else
#include <ucontext.h>
#endif

#include "exec/timer_heap.h"
#include "fault/sim/sim.h"
#include "support/tempdir.h"

#define SIM_LOOPS 4u

struct sim_loop {
    struct sf_loop base;         /* what services hold */
    struct sim_process *process; /* whose loop it is */
    struct sf_task *head;        /* posted, oldest first */
    struct sf_task **tail;       /* where the next one goes */
    struct sf_timer_heap timers; /* earliest first */
    bool running;                /* a task or timer of it runs now */
};

/* Tasks that run one after another. Exists while it has work. */
struct sim_lane {
    uint64_t key;          /* of sf_sched_submit */
    struct sf_task *head;  /* oldest waiting task */
    struct sf_task **tail; /* where the next one goes */
    bool busy;             /* a task of it has started and not ended, or it is held */
    bool in_task;          /* that task has not returned */
    bool held;             /* sf_sched_hold without its release */
    bool own;              /* of sim_spawn: a thread of its own, not of the pool */
};

/* A stack that runs tasks while it holds the baton. */
struct sim_thread {
    struct sim_thread *next;     /* in a list of idle ones */
    struct sim_thread *all_next; /* in the world's list of all */
#ifdef SF_SANITIZED
    pthread_t thread; /* the real one */
    sem_t go;         /* the baton comes */
#else
    ucontext_t context; /* where it goes on */
#endif
    struct sim *sim;             /* its world */
    struct sim_process *process; /* whose task it runs */
    struct sim_lane *lane;       /* of that task */
    struct sf_task *task;        /* it */
    bool quit;                   /* ends at the next baton (real threads) */
};

struct sim_sched {
    struct sf_sched base;         /* what services hold */
    struct sim_process *process;  /* whose scheduler it is */
    struct sim_lane **lanes;      /* with work */
    size_t lane_count;            /* used entries of lanes */
    size_t lane_cap;              /* allocated entries */
    struct sim_thread **runnable; /* may go on */
    size_t runnable_count;        /* used entries of runnable */
    size_t runnable_cap;          /* allocated entries */
    unsigned workers;             /* immutable: tasks of the pool that may run at once */
    unsigned running;             /* busy lanes */
    unsigned pooled;              /* of those, with a task of the pool that has not returned */
    uint64_t next_own_lane;       /* counts down, away from real keys */
};

struct sim_clock {
    struct sf_clock base; /* what services hold */
    struct sim *sim;      /* owner of the time */
    int64_t skew_ms;      /* of the wall clock */
};

struct sim_sql {
    struct sf_sql_faults base;   /* what the projection asks */
    struct sim_process *process; /* that dies of a fault */
};

struct sim_process {
    struct sim_process *next;         /* in the world's list */
    struct sim *sim;                  /* its world */
    char name[64];                    /* for traces */
    uint64_t random;                  /* stands for its process id and random bytes */
    struct sim_clock clock;           /* its own wall clock */
    struct sim_loop loops[SIM_LOOPS]; /* its event loops */
    struct sim_sched sched;           /* its worker pool */
    struct sim_sql sql;               /* faults of its projection */
    struct sf_store *store;           /* NULL for the network's own process */
    bool dead;                        /* nothing of it counts any more */
    int64_t paused_until_ms;          /* runs nothing before */
};

enum sim_node_state { NODE_DOWN, NODE_STARTING, NODE_UP, NODE_STOPPING, NODE_DRAINING };

struct sim_node {
    struct sim_node *next;       /* in the world's list */
    struct sim *sim;             /* its world */
    char name[48];               /* for traces */
    struct sim_service service;  /* what starts and stops on it */
    enum sim_node_state state;   /* where it is in its life */
    struct sim_process *process; /* NULL while down */
    void *running;               /* what start returned */
    uint64_t life;               /* number of the present or last process */
    bool starting_done;          /* the start task ended */
    bool stopping_done;          /* the stop task ended */
    bool stop_for_good;          /* it is not started again */
    bool stop_wanted;            /* in good order, by sim_node_stop */
    int64_t restart_at_ms;       /* while down */
    int64_t since_ms;            /* of the present state, to find what hangs */
};

/* What a run is asked to be, from the command line. */
struct sim_run_options {
    uint64_t seed;         /* of every choice */
    bool trace;            /* print what happens */
    bool calm;             /* no random faults */
    uint64_t crash_at_put; /* 0 = none */
    bool embedded;         /* the backend is the embedded store, on disk */
};

struct sim {
    struct sim_run_options run;    /* as asked for on the command line */
    struct sim_options options;    /* of the scenario */
    struct sf_rng pick;            /* scheduling */
    struct sf_rng chaos;           /* kills, pauses, restarts, SQL faults */
    struct sf_rng user;            /* the scenario's */
    int64_t now_ms;                /* virtual monotonic time */
    uint64_t steps;                /* tasks and timers run */
    uint64_t history;              /* hash of all picks: equal seeds, equal histories */
    struct sim_process *processes; /* alive and dead */
    struct sim_process *net;       /* the network's loop lives here */
    struct sf_store *backend;      /* the truth behind the network */
    char folder[SF_TEMPDIR_BYTES]; /* of the embedded backend */
    struct sf_fault_store *fault;  /* the network */
    struct sim_node *nodes;        /* in order of creation */
    struct sim_thread *idle;       /* threads without a task */
    struct sim_thread *threads;    /* all of them */
    struct sim_thread *current;    /* who holds the baton; NULL = main */
#ifdef SF_SANITIZED
    sem_t back; /* the baton comes back to main */
#else
    ucontext_t main;    /* where main goes on */
#endif
    void (*check)(struct sim *sim, void *ctx); /* the invariants, after every step; NULL = none */
    void *check_ctx;                           /* for check */
    bool settled;                              /* no more chaos: what runs must come to rest */
    unsigned sql_crashes;                      /* so far */
    unsigned kills;                            /* so far */
    unsigned pauses;                           /* so far */
    int64_t next_chaos_ms;                     /* virtual time of the next kill or pause */
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
/* Runs the task of a thread to its end; the thread is idle then. */
void sim_thread_work(struct sim_thread *t);

/* Threads: sim_thread.c */
void sim_threads_init(struct sim *sim);
void sim_threads_fini(struct sim *sim);
/* One without a task. */
struct sim_thread *sim_thread_take(struct sim *sim);
/* Gives the baton to `t` and comes back when it gives it back. On main. */
void sim_thread_run(struct sim *sim, struct sim_thread *t);
/* Gives the baton back to main; comes back at its next turn. On `t`. */
void sim_thread_give_back(struct sim_thread *t);

/* Nodes: sim_node.c */
void sim_nodes_tick(struct sim *sim);
/* Earliest virtual time at which a node or the chaos wants to act; INT64_MAX for never. */
int64_t sim_nodes_next_ms(const struct sim *sim);
bool sim_nodes_busy(const struct sim *sim);

/* Uniform in 0..most. */
int64_t sim_draw_ms(struct sf_rng *rng, int64_t most_ms);
bool sim_draw(struct sf_rng *rng, uint16_t per_mille);

#endif
