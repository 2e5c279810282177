/*
 * The simulator: services of several processes in one real process, under one seed. A world owns
 * virtual time, the shared object store behind a faulty network, and processes; each process has
 * loops (sf_loop), a scheduler (sf_sched), a store handle, clocks and SQL faults. One thing runs at
 * a time: the world picks, by seed, among the ready loops, the tasks that may start and the tasks
 * that may go on, runs it until it is done or waits, checks the invariants, and picks again. Tasks
 * of a scheduler have stacks of their own and hand one baton to each other, so ordinary blocking
 * code runs unchanged; under sanitizers they are ordinary threads.
 *
 * The same seed gives the same run, byte for byte. Rules for code under the simulator: no clock, no
 * randomness, no store, no thread but those handed in; wait only through sf_waiter.
 *
 * tests/fault/README.md shows how to write a scenario.
 */
#ifndef SF_TESTS_FAULT_SIM_H
#define SF_TESTS_FAULT_SIM_H

#include "base/clock.h"
#include "base/compiler.h"
#include "base/rng.h"
#include "exec/loop.h"
#include "exec/sched.h"
#include "object/fault_store.h"
#include "sql/sql.h"

struct sim;         /* a world */
struct sim_process; /* one life of one process */
struct sim_node;    /* a place where a service runs: process after process */

/* Wall clock of every world at its start: 2026-01-01T00:00:00Z. */
#define SIM_EPOCH_UNIX_MS INT64_C(1767225600000)

/* ---- the world ---- */

/* SQL faults, per thousand commits. */
struct sim_sql_rates {
    uint16_t refused;      /* rolled back, UNAVAILABLE */
    uint16_t unknown;      /* stands or not, AMBIGUOUS */
    uint16_t crash_before; /* the process dies, nothing stands */
    uint16_t crash_after;  /* the process dies, the rows stand */
};

/* Kills and pauses at random times, of processes of nodes. */
struct sim_chaos {
    int64_t interval_ms;  /* mean time between two; 0 = none at all */
    unsigned max_kills;   /* in all */
    unsigned max_pauses;  /* in all */
    int64_t max_pause_ms; /* a pause takes 1..max_pause_ms; the process goes on unaware */
};

/* What a scenario runs under; a scenario starts from sim_default_options and may change them. */
struct sim_options {
    struct sf_fault_rates rates; /* of the object store's network */
    int64_t delay_ms;            /* see sf_fault_options */
    int64_t slow_ms;             /* see sf_fault_options */
    int64_t timeout_ms;          /* see sf_fault_options */
    int64_t late_ms;             /* see sf_fault_options */
    unsigned max_crashes;        /* crashes at puts and commits, in all */
    struct sim_sql_rates sql;    /* of SQL commits */
    struct sim_chaos chaos;      /* kills and pauses */
    int64_t max_restart_ms;      /* a node's next process starts within this */
    int64_t max_skew_ms;         /* wall clocks of processes differ by up to this */
    unsigned workers;            /* worker threads of a process's scheduler */
    uint16_t slow_cpu_per_mille; /* chance that time goes on although something could run */
};

/* A world that hurts: every fault on, at rates that leave some calls unharmed. */
struct sim_options sim_default_options(void);

/* Applies the options; at the start of a scenario, before processes are made. Under --crash-points
 * and --calm random faults stay off whatever they say. */
void sim_configure(struct sim *sim, const struct sim_options *options);

/* The seed of this run. */
uint64_t sim_seed(const struct sim *sim);

/* Random numbers for the scenario's own choices. */
struct sf_rng *sim_rng(struct sim *sim);

/* Virtual monotonic time. */
int64_t sim_now_ms(const struct sim *sim);

/* Tells that an invariant is broken: prints it with the replay command and ends the program (with
 * success when a mutant is on: it was caught). */
SF_NORETURN void sim_violation(struct sim *sim, const char *fmt, ...) SF_PRINTF(2, 3);

/* As an assertion of the scenario about the services' behaviour. */
#define SIM_CHECK(sim, cond)                                                                       \
    do {                                                                                           \
        if (!(cond))                                                                               \
            sim_violation((sim), "%s:%d: %s", __FILE__, __LINE__, #cond);                          \
    } while (0)

/* A line of the trace (--trace). */
void sim_trace(struct sim *sim, const char *fmt, ...) SF_PRINTF(2, 3);
bool sim_tracing(const struct sim *sim);

/* Called after each step, when nothing runs. NULL for none. */
void sim_set_invariant(struct sim *sim, void (*check)(struct sim *sim, void *ctx), void *ctx);

/* Runs until `done` says so. Ending up with nothing to do before that, or passing `max_ms` of
 * virtual time, is a violation that names `what`. On the main thread. */
void sim_run_until(struct sim *sim, bool (*done)(struct sim *sim, void *ctx), void *ctx,
                   int64_t max_ms, const char *what);

/* Runs for `ms` of virtual time, or until nothing is left to do. On the main thread. */
void sim_run_for(struct sim *sim, int64_t ms);

/* From now on faults come at the rates of `options` (network, SQL, chaos), for a scenario that
 * begins calmly; everything else stays as it was configured. Not under --crash-points and --calm.
 */
void sim_storm(struct sim *sim, const struct sim_options *options);

/* From now on the network is perfect, nobody is killed or paused: the services must get everything
 * done (protocols.md section 5, Progress). */
void sim_settle(struct sim *sim);

/* The backend as it is now, for checks: calls on it return at once, with `sched` NULL. */
struct sf_store *sim_backend(struct sim *sim);

/* The network, for counts. */
struct sf_fault_store *sim_network(struct sim *sim);

/* ---- processes ---- */

/* A process that is never killed by chaos or restarted: clients, mostly. */
struct sim_process *sim_process_new(struct sim *sim, const char *name);

/* What the process's code is given. */
struct sf_loop *sim_process_loop(struct sim_process *process, unsigned index); /* index 0..3 */
struct sf_sched *sim_process_sched(struct sim_process *process);
struct sf_store *sim_process_store(struct sim_process *process);
struct sf_clock *sim_process_clock(struct sim_process *process);
struct sf_sql_faults *sim_process_sql_faults(struct sim_process *process);
struct sim *sim_process_sim(struct sim_process *process);

/* Differs for every process of a world: for epochs' owner ids, attempts and seeds. */
uint64_t sim_process_random(struct sim_process *process);

/* `{name}.{life}`. */
const char *sim_process_name(const struct sim_process *process);

/* True once killed: whatever it still does or answers does not count. */
bool sim_process_is_dead(const struct sim_process *process);

/* kill -9, now. Its tasks unwind on UNAVAILABLE. */
void sim_process_kill(struct sim_process *process);

/* SIGSTOP for `ms`, then SIGCONT; requests that are on their way land meanwhile. */
void sim_process_pause(struct sim_process *process, int64_t ms);

/* True when no task, timer or store call of it is left. */
bool sim_process_is_quiet(struct sim_process *process);

/* Frees a quiet process. */
void sim_process_destroy(struct sim_process *process);

/* Runs `fn(arg)` as a task on a lane of its own. */
void sim_spawn(struct sim_process *process, void (*fn)(struct sim_process *process, void *arg),
               void *arg);

/* Lets the calling task sleep in virtual time; on a task only. */
void sim_sleep(struct sim_process *process, int64_t ms);

/* ---- nodes ---- */

/* A service as the world starts and stops it; both run as tasks and may wait. */
struct sim_service {
    /* Starts the service in `process`; NULL when that failed (the process is given up and a new one
     * started). */
    void *(*start)(struct sim_process *process, void *ctx);
    /* Stops and frees what start returned; called on a dead process too, whose calls all fail. */
    void (*stop)(struct sim_process *process, void *service, void *ctx);
    void *ctx; /* for both */
};

/* A place where `service` runs; started at once, and again after every kill. */
struct sim_node *sim_node_new(struct sim *sim, const char *name, const struct sim_service *service);

/* The running service, NULL while it is down, starting or dead. What a call on it answers counts
 * only if sim_node_is_current(node, life) still holds for the life read before the call. */
void *sim_node_service(struct sim_node *node, uint64_t *out_life);

/* The process behind it, NULL while down. */
struct sim_process *sim_node_process(struct sim_node *node);

/* True while the life of number `life` is not dead. */
bool sim_node_is_current(const struct sim_node *node, uint64_t life);

/* Kills the node's process, if any; the next one starts after a while. */
void sim_node_kill(struct sim_node *node);

/* Asks the node's running service to stop in good order (sim_service.stop on a live process); the
 * next process starts after a while. */
void sim_node_stop(struct sim_node *node);

/* Stops every node for good (as tasks of theirs) and frees their processes; before the end of the
 * scenario. */
void sim_stop_nodes(struct sim *sim);

/* ---- the program ---- */

/* One scenario. */
struct sim_scenario {
    const char *name;             /* for --scenario */
    const char *area;             /* mutants of this area are run against it; NULL = none */
    void (*run)(struct sim *sim); /* builds, runs and checks one world */
    const char *const *proves;    /* requirement ids, NULL-terminated, recorded when every seed
                                     passed; NULL = none */
    uint64_t most_seeds;          /* a scripted schedule: of all scenarios together it runs under no
                                     higher seed; 0 = any, and any when it is asked for by name */
    bool own_crashes; /* a scripted schedule that crashes or holds its processes itself and checks
                         that it did: --crash-points, which would end them before, leaves it out */
};

/* main of a simulator binary; see `--help`. */
int sim_main(int argc, char **argv, const struct sim_scenario *scenarios, size_t count);

#endif
