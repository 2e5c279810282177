/*
 * The world: picks what runs next, keeps time, owns processes. Time stands still while something
 * can run, except that now and then, by seed, it goes on anyway: that is a slow CPU. When nothing
 * can run it jumps to the next timer. A paused process has nothing that can run; its timers are
 * overdue when it goes on.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "fault/sim/sim_priv.h"
#include "object/memory_store.h"

#define SIM_MOST_STEPS    UINT64_C(50000000)
#define SIM_MOST_STALL_MS 1000 /* a slow CPU runs nothing for at most so long */

/* ---- clocks ---- */

static struct sim_clock *clock_of(struct sf_clock *clock)
{
    return SF_CONTAINER_OF(clock, struct sim_clock, base);
}

static int64_t clock_unix_ms(struct sf_clock *clock)
{
    struct sim_clock *c = clock_of(clock);

    return SIM_EPOCH_UNIX_MS + c->sim->now_ms + c->skew_ms;
}

static int64_t clock_mono_ms(struct sf_clock *clock)
{
    return clock_of(clock)->sim->now_ms;
}

static int64_t clock_mono_ns(struct sf_clock *clock)
{
    return clock_of(clock)->sim->now_ms * 1000000;
}

static const struct sf_clock_vtable clock_vtable = {
    .unix_ms = clock_unix_ms, .mono_ms = clock_mono_ms, .mono_ns = clock_mono_ns};

int64_t sim_draw_ms(struct sf_rng *rng, int64_t most_ms)
{
    return most_ms <= 0 ? 0 : (int64_t)sf_rng_below(rng, (uint64_t)most_ms + 1);
}

bool sim_draw(struct sf_rng *rng, uint16_t per_mille)
{
    return per_mille != 0 && sf_rng_below(rng, 1000) < per_mille;
}

/* ---- SQL faults ---- */

static bool sql_may_crash(struct sim *sim)
{
    return sim->sql_crashes < sim->options.max_crashes;
}

static enum sf_err sql_before_commit(struct sf_sql_faults *faults)
{
    struct sim_process *p = SF_CONTAINER_OF(faults, struct sim_sql, base)->process;
    struct sim *sim = p->sim;

    if (p->dead)
        return SF_ERR_UNAVAILABLE;
    if (sim_draw(&sim->chaos, sim->options.sql.refused))
        return SF_ERR_UNAVAILABLE;
    if (sim_draw(&sim->chaos, sim->options.sql.unknown / 2))
        return SF_ERR_AMBIGUOUS;
    if (sim_draw(&sim->chaos, sim->options.sql.crash_before) && sql_may_crash(sim)) {
        sim->sql_crashes++;
        sim_process_kill(p);
        return SF_ERR_UNAVAILABLE;
    }
    return SF_OK;
}

static enum sf_err sql_after_commit(struct sf_sql_faults *faults)
{
    struct sim_process *p = SF_CONTAINER_OF(faults, struct sim_sql, base)->process;
    struct sim *sim = p->sim;

    if (sim_draw(&sim->chaos, sim->options.sql.unknown / 2))
        return SF_ERR_AMBIGUOUS;
    if (sim_draw(&sim->chaos, sim->options.sql.crash_after) && sql_may_crash(sim)) {
        sim->sql_crashes++;
        sim_process_kill(p);
        return SF_ERR_AMBIGUOUS;
    }
    return SF_OK;
}

/* ---- processes ---- */

struct sim_process *sim_process_make(struct sim *sim, const char *name, unsigned workers)
{
    struct sim_process *p = sf_calloc(1, sizeof(*p));

    p->sim = sim;
    (void)snprintf(p->name, sizeof(p->name), "%s", name);
    p->random = sf_rng_u64(&sim->chaos);
    p->clock = (struct sim_clock){.base = {&clock_vtable}, .sim = sim};
    p->clock.skew_ms =
        sim_draw_ms(&sim->chaos, 2 * sim->options.max_skew_ms) - sim->options.max_skew_ms;
    for (unsigned i = 0; i < SIM_LOOPS; i++)
        sim_loop_init(&p->loops[i], p);
    sim_sched_init(&p->sched, p, workers);
    p->sql = (struct sim_sql){
        .base = {.before_commit = sql_before_commit, .after_commit = sql_after_commit},
        .process = p};
    if (sim->fault != NULL)
        p->store = sf_fault_store_handle_new(sim->fault, p);
    struct sim_process **at = &sim->processes; /* in the order of birth: picks count on it */
    while (*at != NULL)
        at = &(*at)->next;
    *at = p;
    return p;
}

struct sim_process *sim_process_new(struct sim *sim, const char *name)
{
    return sim_process_make(sim, name, UINT32_MAX);
}

struct sf_loop *sim_process_loop(struct sim_process *process, unsigned index)
{
    SF_ASSERT(index < SIM_LOOPS);
    return &process->loops[index].base;
}

struct sf_sched *sim_process_sched(struct sim_process *process)
{
    return &process->sched.base;
}

struct sf_store *sim_process_store(struct sim_process *process)
{
    return process->store;
}

struct sf_clock *sim_process_clock(struct sim_process *process)
{
    return &process->clock.base;
}

struct sf_sql_faults *sim_process_sql_faults(struct sim_process *process)
{
    return &process->sql.base;
}

struct sim *sim_process_sim(struct sim_process *process)
{
    return process->sim;
}

uint64_t sim_process_random(struct sim_process *process)
{
    return process->random;
}

const char *sim_process_name(const struct sim_process *process)
{
    return process->name;
}

bool sim_process_is_dead(const struct sim_process *process)
{
    return process->dead;
}

void sim_process_kill(struct sim_process *process)
{
    if (process->dead)
        return;
    process->dead = true;
    process->paused_until_ms = 0;
    sim_trace(process->sim, "%s killed", process->name);
    sf_fault_store_crash(process->store);
}

void sim_process_pause(struct sim_process *process, int64_t ms)
{
    if (process->dead)
        return;
    process->paused_until_ms = process->sim->now_ms + ms;
    sim_trace(process->sim, "%s paused for %lld ms", process->name, (long long)ms);
}

static bool loops_empty(const struct sim_process *p)
{
    for (unsigned i = 0; i < SIM_LOOPS; i++) {
        if (!sim_loop_empty(&p->loops[i]))
            return false;
    }
    return true;
}

bool sim_process_is_quiet(struct sim_process *process)
{
    return loops_empty(process) && process->sched.lane_count == 0 &&
           (process->store == NULL || sf_fault_store_pending(process->store) == 0);
}

void sim_process_destroy(struct sim_process *process)
{
    struct sim *sim = process->sim;
    struct sim_process **at = &sim->processes;

    SF_ASSERT(process == sim->net || sim_process_is_quiet(process));
    while (*at != process)
        at = &(*at)->next;
    *at = process->next;
    sf_store_destroy(process->store);
    for (unsigned i = 0; i < SIM_LOOPS; i++)
        sim_loop_fini(&process->loops[i]);
    sim_sched_fini(&process->sched);
    free(process);
}

/* ---- picking ---- */

static bool paused(const struct sim_process *p)
{
    return p->paused_until_ms > p->sim->now_ms;
}

static size_t process_candidates(const struct sim_process *p)
{
    size_t count = 0;

    if (paused(p))
        return 0;
    for (unsigned i = 0; i < SIM_LOOPS; i++)
        count += sim_loop_ready(&p->loops[i]);
    return count + sim_sched_candidates(&p->sched);
}

static void process_run(struct sim_process *p, size_t candidate)
{
    for (unsigned i = 0; i < SIM_LOOPS; i++) {
        if (!sim_loop_ready(&p->loops[i]))
            continue;
        if (candidate-- == 0) {
            sim_loop_run_one(&p->loops[i]);
            return;
        }
    }
    sim_sched_run(&p->sched, candidate);
}

static void earlier(int64_t *next, int64_t ms, int64_t now_ms)
{
    if (ms > now_ms && ms < *next)
        *next = ms;
}

/* The next moment at which something happens by itself, INT64_MAX for never. */
static int64_t next_moment(const struct sim *sim)
{
    int64_t next = INT64_MAX;

    earlier(&next, sim_nodes_next_ms(sim), sim->now_ms);
    for (const struct sim_process *p = sim->processes; p != NULL; p = p->next) {
        if (paused(p)) {
            earlier(&next, p->paused_until_ms, sim->now_ms);
            continue;
        }
        for (unsigned i = 0; i < SIM_LOOPS; i++) {
            const struct sf_timer *first = sf_timer_heap_first(&p->loops[i].timers);
            if (first != NULL)
                earlier(&next, first->due_ms, sim->now_ms);
        }
    }
    return next;
}

static void note(struct sim *sim, uint64_t value)
{
    sim->history = (sim->history ^ value) * UINT64_C(0x100000001b3);
}

static void run_candidate(struct sim *sim, size_t pick)
{
    for (struct sim_process *p = sim->processes; p != NULL; p = p->next) {
        size_t count = process_candidates(p);
        if (pick < count) {
            process_run(p, pick);
            return;
        }
        pick -= count;
    }
    SF_ASSERT(false);
}

bool sim_step(struct sim *sim)
{
    size_t total = 0;

    sim_nodes_tick(sim);
    for (const struct sim_process *p = sim->processes; p != NULL; p = p->next)
        total += process_candidates(p);
    if (total == 0 || sim_draw(&sim->pick, sim->options.slow_cpu_per_mille)) {
        int64_t next = next_moment(sim);
        if (next != INT64_MAX) {
            if (total != 0 && next > sim->now_ms + SIM_MOST_STALL_MS)
                next = sim->now_ms + SIM_MOST_STALL_MS;
            sim->now_ms = next;
            note(sim, (uint64_t)next);
            return true;
        }
        if (total == 0)
            return false;
    }
    size_t pick = (size_t)sf_rng_below(&sim->pick, total);
    note(sim, pick << 32 | total);
    run_candidate(sim, pick);
    if (++sim->steps > SIM_MOST_STEPS)
        sim_violation(sim, "no end after %llu steps", (unsigned long long)sim->steps);
    if (sim->check != NULL)
        sim->check(sim, sim->check_ctx);
    return true;
}

void sim_run_until(struct sim *sim, bool (*done)(struct sim *sim, void *ctx), void *ctx,
                   int64_t max_ms, const char *what)
{
    int64_t end_ms = sim->now_ms + max_ms;

    while (!done(sim, ctx)) {
        if (!sim_step(sim))
            sim_violation(sim, "%s: nothing is left to do, and it has not happened", what);
        if (sim->now_ms > end_ms)
            sim_violation(sim, "%s: not within %lld virtual ms", what, (long long)max_ms);
    }
}

void sim_run_for(struct sim *sim, int64_t ms)
{
    int64_t end_ms = sim->now_ms + ms;

    while (sim->now_ms < end_ms && sim_step(sim)) {
    }
}

/* ---- the world itself ---- */

struct sim_options sim_default_options(void)
{
    return (struct sim_options){
        .rates = {.refused = 20,
                  .lost_request = 15,
                  .lost_answer = 25,
                  .late = 15,
                  .duplicate = 15,
                  .conflict_409 = 20,
                  .own_412 = 15,
                  .swap_500 = 200,
                  .read_failed = 15,
                  .slow = 30,
                  .crash_before = 4,
                  .crash_after = 8},
        .delay_ms = 10,
        .slow_ms = 400,
        .timeout_ms = 100,
        .late_ms = 2000,
        .max_crashes = 6,
        .sql = {.refused = 15, .unknown = 15, .crash_before = 6, .crash_after = 6},
        .chaos = {.interval_ms = 1500, .max_kills = 4, .max_pauses = 3, .max_pause_ms = 3000},
        .max_restart_ms = 1000,
        .max_skew_ms = 100,
        .workers = 4,
        .slow_cpu_per_mille = 30};
}

static void on_crash(void *ctx, void *process)
{
    (void)ctx;
    sim_process_kill(process);
}

static void on_store_trace(void *ctx, const char *line)
{
    sim_trace(ctx, "%s", line);
}

void sim_configure(struct sim *sim, const struct sim_options *options)
{
    sim->options = *options;
    if (sim->run.calm) {
        sim->options.rates = (struct sf_fault_rates){0};
        sim->options.sql = (struct sim_sql_rates){0};
        sim->options.chaos = (struct sim_chaos){0};
    }
    SF_ASSERT(sim->processes == sim->net && sim->net->next == NULL);
    sf_fault_store_destroy(sim->fault);
    struct sf_fault_options fault = {.seed = sf_rng_u64(&sim->chaos),
                                     .rates = sim->options.rates,
                                     .delay_ms = options->delay_ms,
                                     .slow_ms = options->slow_ms,
                                     .timeout_ms = options->timeout_ms,
                                     .late_ms = options->late_ms,
                                     .max_crashes = options->max_crashes,
                                     .crash_at_put = sim->run.crash_at_put,
                                     .on_crash = on_crash,
                                     .trace = sim->run.trace ? on_store_trace : NULL,
                                     .ctx = sim};
    sim->fault = sf_fault_store_new(sim->backend, &sim->net->loops[0].base, &fault);
    sim->next_chaos_ms = 1 + sim_draw_ms(&sim->chaos, 2 * sim->options.chaos.interval_ms);
}

static void open_backend(struct sim *sim)
{
    if (!sim->run.embedded) {
        sim->backend = sf_memory_store_new_inline();
        return;
    }
    sf_tempdir_make(sim->folder);
    enum sf_err err = sf_embedded_store_open(sim->folder, NULL, &sim->backend);
    SF_ASSERT(err == SF_OK);
}

struct sim *sim_new(const struct sim_run_options *run)
{
    struct sim *sim = sf_calloc(1, sizeof(*sim));
    struct sim_options options = sim_default_options();

    sim->run = *run;
    sf_rng_init(&sim->pick, run->seed * 3 + 1);
    sf_rng_init(&sim->chaos, run->seed * 3 + 2);
    sf_rng_init(&sim->user, run->seed * 3 + 3);
    sim->history = UINT64_C(0xcbf29ce484222325);
    sim_threads_init(sim);
    open_backend(sim);
    sim->net = sim_process_make(sim, "net", 0);
    sim_configure(sim, &options);
    return sim;
}

void sim_destroy(struct sim *sim)
{
    SF_ASSERT(sim->nodes == NULL);
    for (struct sim_process *p = sim->processes; p != NULL; p = p->next) {
        while (p != sim->net && !sim_process_is_quiet(p)) {
            if (!sim_step(sim))
                sim_violation(sim, "%s: tasks are left that wait for ever", p->name);
        }
    }
    while (sim->net->next != NULL)
        sim_process_destroy(sim->net->next);
    sf_fault_store_destroy(sim->fault);
    sim_process_destroy(sim->net);
    sf_store_destroy(sim->backend);
    if (sim->run.embedded)
        sf_tempdir_remove(sim->folder);
    sim_threads_fini(sim);
    free(sim);
}

uint64_t sim_seed(const struct sim *sim)
{
    return sim->run.seed;
}

struct sf_rng *sim_rng(struct sim *sim)
{
    return &sim->user;
}

int64_t sim_now_ms(const struct sim *sim)
{
    return sim->now_ms;
}

bool sim_tracing(const struct sim *sim)
{
    return sim->run.trace;
}

void sim_set_invariant(struct sim *sim, void (*check)(struct sim *sim, void *ctx), void *ctx)
{
    sim->check = check;
    sim->check_ctx = ctx;
}

void sim_storm(struct sim *sim, const struct sim_options *options)
{
    if (sim->run.calm)
        return;
    sim_trace(sim, "storm");
    sim->options.rates = options->rates;
    sim->options.sql = options->sql;
    sim->options.chaos = options->chaos;
    sf_fault_store_set_rates(sim->fault, &options->rates);
    sim->next_chaos_ms = sim->now_ms + 1 + sim_draw_ms(&sim->chaos, 2 * options->chaos.interval_ms);
}

void sim_settle(struct sim *sim)
{
    const struct sf_fault_rates none = {0};

    sim_trace(sim, "settle");
    sim->settled = true;
    sim->options.sql = (struct sim_sql_rates){0};
    sim->options.chaos = (struct sim_chaos){0};
    sf_fault_store_set_rates(sim->fault, &none);
    for (struct sim_process *p = sim->processes; p != NULL; p = p->next)
        p->paused_until_ms = 0;
}

struct sf_store *sim_backend(struct sim *sim)
{
    return sim->backend;
}

struct sf_fault_store *sim_network(struct sim *sim)
{
    return sim->fault;
}
