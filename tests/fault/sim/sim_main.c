/*
 * The program around the scenarios: seeds, replay, mutants, crash points. A violation ends the
 * program at once, without unwinding: the world is broken by then. Seeds run one after another in
 * one process; --jobs forks before anything is started. A mutant must be caught within its seeds:
 * then the program succeeds.
 */
#include <argp.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutant.h"
#include "fault/sim/sim_priv.h"
#include "support/proves.h"

#define HANG_SECONDS    120u
#define EXIT_VIOLATION  1
#define EXIT_NOT_CAUGHT 3
#define MOST_JOBS       64u

enum option_key {
    OPT_SEED = 1000,
    OPT_SEEDS,
    OPT_SCENARIO,
    OPT_MUTANT,
    OPT_MUTANTS,
    OPT_TRACE,
    OPT_CALM,
    OPT_CRASH_AT,
    OPT_CRASH_POINTS,
    OPT_SECONDS,
    OPT_JOBS,
    OPT_TWICE,
    OPT_EMBEDDED,
    OPT_LIST
};

static const struct argp_option option_table[] = {
    {"seed", OPT_SEED, "N", 0, "Run one seed", 0},
    {"seeds", OPT_SEEDS, "A..B", 0, "Run the seeds A to B (default 1..100)", 0},
    {"scenario", OPT_SCENARIO, "NAME", 0, "Run one scenario (default: all)", 0},
    {"mutant", OPT_MUTANT, "NAME", 0, "Remove one fence; succeed when that is caught", 0},
    {"mutants", OPT_MUTANTS, NULL, 0, "Do so with every mutant of the scenarios' areas", 0},
    {"trace", OPT_TRACE, NULL, 0, "Print what happens", 0},
    {"calm", OPT_CALM, NULL, 0, "No random faults", 0},
    {"crash-at", OPT_CRASH_AT, "N", 0, "Crash at the N-th applied put, no other fault", 0},
    {"crash-points", OPT_CRASH_POINTS, NULL, 0,
     "For each seed, crash once after each applied put, no other fault", 0},
    {"seconds", OPT_SECONDS, "N", 0, "Start no further seed after N seconds (default: no end)", 0},
    {"jobs", OPT_JOBS, "N", 0, "Run the seeds in N processes", 0},
    {"twice", OPT_TWICE, NULL, 0, "Run each seed twice and compare the histories", 0},
    {"embedded", OPT_EMBEDDED, NULL, 0, "Keep the objects in the embedded store, on disk", 0},
    {"list", OPT_LIST, NULL, 0, "List scenarios and mutants", 0},
    {0}};

/* The command line. */
struct command {
    uint64_t first_seed;
    uint64_t last_seed;    /* inclusive */
    const char *scenario;  /* NULL = all */
    enum sf_mutant mutant; /* NONE = none */
    bool all_mutants;      /* each must be caught */
    bool trace;            /* --trace */
    bool calm;             /* --calm */
    bool crash_points;     /* --crash-points */
    bool twice;            /* --twice */
    bool embedded;         /* --embedded */
    bool list;             /* --list */
    uint64_t crash_at;     /* 0 = none */
    long seconds;          /* 0 = no end */
    unsigned jobs;         /* processes */
};

/* What ran so far, for the closing line. */
struct totals {
    uint64_t runs;      /* seeds and crash points */
    uint64_t steps;     /* tasks and timers */
    uint64_t puts;      /* applied */
    uint64_t crashes;   /* of processes */
    int64_t virtual_ms; /* of all worlds */
};

static const char *program;            /* argv[0] */
static const char *running_scenario;   /* for the replay command */
static struct sim_run_options running; /* for the replay command */
static enum sf_mutant running_mutant;
static bool stopped_early; /* the time budget ended before the seeds did */

static void write_all(const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, text, len);
        if (n <= 0)
            return;
        text += n;
        len -= (size_t)n;
    }
}

/* Tells how to repeat the run and ends the program; async-signal-safe but for snprintf, which does
 * not allocate for these formats. */
SF_NORETURN static void end_broken(const char *message)
{
    char text[2048];
    char crash[64] = "";
    bool mutant = running_mutant != SF_MUTANT_ID_NONE;

    if (running.crash_at_put != 0)
        (void)snprintf(crash, sizeof(crash), " --crash-at %llu",
                       (unsigned long long)running.crash_at_put);
    int n = snprintf(text, sizeof(text), "%s: %s\nreplay: %s --scenario %s --seed %llu%s%s%s%s%s\n",
                     mutant ? "caught" : "violation", message, program, running_scenario,
                     (unsigned long long)running.seed, crash,
                     running.calm && crash[0] == '\0' ? " --calm" : "",
                     running.embedded ? " --embedded" : "", mutant ? " --mutant " : "",
                     mutant ? sf_mutant_info(running_mutant)->name : "");
    if (n > 0)
        write_all(text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
    _exit(mutant ? 0 : EXIT_VIOLATION);
}

void sim_violation(struct sim *sim, const char *fmt, ...)
{
    char message[1024];
    va_list args;

    va_start(args, fmt);
    int n = snprintf(message, sizeof(message), "[%lld ms] ", (long long)sim->now_ms);
    if (n > 0)
        (void)vsnprintf(message + n, sizeof(message) - (size_t)n, fmt, args);
    va_end(args);
    end_broken(message);
}

void sim_trace(struct sim *sim, const char *fmt, ...)
{
    va_list args;

    if (!sim->run.trace)
        return;
    va_start(args, fmt);
    (void)fprintf(stderr, "%8lld  ", (long long)sim->now_ms);
    (void)vfprintf(stderr, fmt, args);
    (void)fputc('\n', stderr);
    va_end(args);
}

static void on_signal(int signal)
{
    end_broken(signal == SIGABRT   ? "an assertion of the product failed"
               : signal == SIGALRM ? "the run hangs"
                                   : "the run crashed");
}

static void install_handlers(void)
{
    const struct sigaction action = {.sa_handler = on_signal};

    (void)sigaction(SIGABRT, &action, NULL);
    (void)sigaction(SIGALRM, &action, NULL);
#ifndef SF_SANITIZED
    (void)sigaction(SIGSEGV, &action, NULL);
#endif
}

/* One run of one seed; returns its history hash. */
static uint64_t run_once(const struct command *c, const struct sim_scenario *s, uint64_t seed,
                         uint64_t crash_at, struct totals *t, uint64_t *out_puts)
{
    running = (struct sim_run_options){.seed = seed,
                                       .trace = c->trace,
                                       .embedded = c->embedded,
                                       .calm = c->calm || c->crash_points || crash_at != 0,
                                       .crash_at_put = crash_at};
    running_scenario = s->name;
    (void)alarm(HANG_SECONDS);
    struct sim *sim = sim_new(&running);
    s->run(sim);
    sim_stop_nodes(sim);
    struct sf_fault_counts counts = sf_fault_store_counts(sim->fault);
    uint64_t history = sim->history;
    t->runs++;
    t->steps += sim->steps;
    t->puts += counts.puts_applied;
    t->crashes += counts.crashes + sim->kills + sim->sql_crashes;
    t->virtual_ms += sim->now_ms;
    if (out_puts != NULL)
        *out_puts = counts.puts_applied;
    sim_destroy(sim);
    (void)alarm(0);
    return history;
}

static void run_seed(const struct command *c, const struct sim_scenario *s, uint64_t seed,
                     struct totals *t)
{
    uint64_t puts = 0;

    uint64_t history = run_once(c, s, seed, c->crash_at, t, &puts);
    if (c->twice && run_once(c, s, seed, c->crash_at, t, NULL) != history)
        end_broken("the second run of the seed went another way");
    for (uint64_t at = 1; c->crash_points && at <= puts; at++)
        (void)run_once(c, s, seed, at, t, NULL);
}

static bool wanted(const struct command *c, const struct sim_scenario *s)
{
    if (c->scenario != NULL && strcmp(c->scenario, s->name) != 0)
        return false;
    if (c->crash_points && s->own_crashes)
        return false;
    if (running_mutant == SF_MUTANT_ID_NONE)
        return true;
    return s->area != NULL && strcmp(s->area, sf_mutant_info(running_mutant)->area) == 0;
}

/* Has the schedule shown what it has to show? */
static bool beyond(const struct command *c, const struct sim_scenario *s, uint64_t seed)
{
    return c->scenario == NULL && s->most_seeds != 0 && seed > s->most_seeds;
}

/* Keeps a share on one processor: the baton then passes without waking another one. */
static void stay_on_one_cpu(unsigned share)
{
    cpu_set_t allowed;
    cpu_set_t one;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return;
    unsigned wanted = share % (unsigned)CPU_COUNT(&allowed);
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && wanted-- == 0)
            CPU_SET(cpu, &one);
    }
    (void)sched_setaffinity(0, sizeof(one), &one); /* only a matter of speed */
}

/* Runs this process's share of the seeds over the wanted scenarios. */
static int run_share(const struct command *c, const struct sim_scenario *scenarios, size_t count,
                     unsigned share)
{
    time_t start = time(NULL);
    struct totals t = {0};
    bool any = false;

    install_handlers();
    if (c->jobs > 1)
        stay_on_one_cpu(share);
    sf_mutant_set(running_mutant);
    if (!c->trace)
        sf_log_set_fd(-1);
    for (uint64_t seed = c->first_seed + share; seed <= c->last_seed; seed += c->jobs) {
        for (size_t i = 0; i < count; i++) {
            if (!wanted(c, &scenarios[i]) || beyond(c, &scenarios[i], seed))
                continue;
            any = true;
            run_seed(c, &scenarios[i], seed, &t);
        }
        if (c->seconds != 0 && time(NULL) - start >= c->seconds) {
            stopped_early = seed + c->jobs <= c->last_seed;
            break;
        }
    }
    (void)fprintf(
        stderr, "%llu runs, %llu steps, %llu puts, %llu crashes, %lld virtual s, %ld s%s\n",
        (unsigned long long)t.runs, (unsigned long long)t.steps, (unsigned long long)t.puts,
        (unsigned long long)t.crashes, (long long)(t.virtual_ms / 1000), (long)(time(NULL) - start),
        stopped_early ? " (time budget)" : "");
    if (!any && share == 0) {
        (void)fprintf(stderr, "no scenario runs here\n");
        return EXIT_VIOLATION;
    }
    return running_mutant == SF_MUTANT_ID_NONE ? 0 : EXIT_NOT_CAUGHT;
}

static void stop_children(const pid_t *children, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (children[i] != 0)
            (void)kill(children[i], SIGKILL);
    }
}

/* Runs all shares; in children when there are several. A caught mutant ends its share with 0. */
static int run_seeds(const struct command *c, const struct sim_scenario *scenarios, size_t count)
{
    bool mutant = running_mutant != SF_MUTANT_ID_NONE;
    int result = 0;
    bool caught = false;

    if (c->jobs == 1 && !mutant)
        return run_share(c, scenarios, count, 0);
    pid_t children[MOST_JOBS];
    (void)fflush(NULL);
    for (unsigned share = 0; share < c->jobs; share++) {
        children[share] = fork();
        SF_ASSERT(children[share] >= 0);
        if (children[share] == 0)
            _exit(run_share(c, scenarios, count, share));
    }
    for (unsigned share = 0; share < c->jobs; share++) {
        int status = 0;
        pid_t ended = wait(&status);
        SF_ASSERT(ended > 0);
        for (unsigned other = 0; other < c->jobs; other++)
            children[other] = children[other] == ended ? 0 : children[other];
        if (mutant && caught)
            continue; /* was stopped */
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_VIOLATION;
        caught = caught || code == 0;
        if (mutant && caught) /* once is enough */
            stop_children(children, c->jobs);
        if (code != 0 && !(mutant && code == EXIT_NOT_CAUGHT))
            result = code;
    }
    if (mutant && result == 0 && !caught) {
        (void)fprintf(stderr,
                      "mutant %s was not caught: nothing needs \"%s\", or the seeds do "
                      "not reach it\n",
                      sf_mutant_info(running_mutant)->name, sf_mutant_info(running_mutant)->fence);
        return EXIT_NOT_CAUGHT;
    }
    return result;
}

static int run_mutants(const struct command *c, const struct sim_scenario *scenarios, size_t count)
{
    int result = 0;

    for (int m = 1; m < (int)SF_MUTANT_COUNT; m++) {
        bool ours = false;
        running_mutant = (enum sf_mutant)m;
        for (size_t i = 0; i < count; i++)
            ours = ours || wanted(c, &scenarios[i]);
        if (!ours)
            continue;
        (void)fprintf(stderr, "mutant %s\n", sf_mutant_info(running_mutant)->name);
        int code = run_seeds(c, scenarios, count);
        if (code != 0)
            result = code;
    }
    return result;
}

static void list(const struct sim_scenario *scenarios, size_t count)
{
    for (size_t i = 0; i < count; i++)
        (void)printf("scenario %-24s mutants of: %s\n", scenarios[i].name,
                     scenarios[i].area == NULL ? "-" : scenarios[i].area);
    for (int m = 1; m < (int)SF_MUTANT_COUNT; m++) {
        const struct sf_mutant_info *info = sf_mutant_info((enum sf_mutant)m);
        (void)printf("mutant   %-32s %-10s removes %s\n", info->name, info->area, info->fence);
    }
}

static uint64_t number(const char *text, char **end, struct argp_state *state)
{
    errno = 0;
    unsigned long long value = strtoull(text, end, 10);
    if (errno != 0 || *end == text)
        argp_error(state, "not a number: %s", text);
    return value;
}

static void parse_seeds(struct command *c, const char *arg, struct argp_state *state)
{
    char *end = NULL;

    c->first_seed = number(arg, &end, state);
    if (strncmp(end, "..", 2) != 0)
        argp_error(state, "seeds are given as A..B");
    c->last_seed = number(end + 2, &end, state);
    if (*end != '\0' || c->last_seed < c->first_seed)
        argp_error(state, "seeds are given as A..B");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct command *c = state->input;
    char *end = NULL;

    switch (key) {
    case OPT_SEED:
        c->first_seed = c->last_seed = number(arg, &end, state);
        break;
    case OPT_SEEDS:
        parse_seeds(c, arg, state);
        break;
    case OPT_SCENARIO:
        c->scenario = arg;
        break;
    case OPT_MUTANT:
        c->mutant = sf_mutant_find(arg);
        if (c->mutant == SF_MUTANT_ID_NONE)
            argp_error(state, "no such mutant: %s", arg);
        break;
    case OPT_MUTANTS:
        c->all_mutants = true;
        break;
    case OPT_TRACE:
        c->trace = true;
        break;
    case OPT_CALM:
        c->calm = true;
        break;
    case OPT_CRASH_AT:
        c->crash_at = number(arg, &end, state);
        break;
    case OPT_CRASH_POINTS:
        c->crash_points = true;
        break;
    case OPT_SECONDS:
        c->seconds = (long)number(arg, &end, state);
        break;
    case OPT_JOBS:
        c->jobs = (unsigned)number(arg, &end, state);
        if (c->jobs == 0 || c->jobs > MOST_JOBS)
            argp_error(state, "between 1 and %u jobs", MOST_JOBS);
        break;
    case OPT_TWICE:
        c->twice = true;
        break;
    case OPT_EMBEDDED:
        c->embedded = true;
        break;
    case OPT_LIST:
        c->list = true;
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int sim_main(int argc, char **argv, const struct sim_scenario *scenarios, size_t count)
{
    const struct argp argp = {
        option_table, parse,
        NULL,         "Runs seeded simulations; a violation prints its replay command.",
        NULL,         NULL,
        NULL};
    struct command c = {.first_seed = 1, .last_seed = 100, .jobs = 1};

    program = argv[0];
    if (argp_parse(&argp, argc, argv, 0, NULL, &c) != 0)
        return EXIT_VIOLATION;
    if (c.list) {
        list(scenarios, count);
        return 0;
    }
    if (c.all_mutants)
        return run_mutants(&c, scenarios, count);
    running_mutant = c.mutant;
    int result = run_seeds(&c, scenarios, count);
    for (size_t i = 0; result == 0 && i < count; i++) {
        if (c.mutant == SF_MUTANT_ID_NONE && wanted(&c, &scenarios[i]) &&
            scenarios[i].proves != NULL)
            sf_proves_record(scenarios[i].name, scenarios[i].proves);
    }
    return result;
}
