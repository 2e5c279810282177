/* A catalog owner in a process of the simulator: timestamps and projection are shared. */
#include "fault/catalog/ccs_script.h"

#include <stdlib.h>

static void shared_tso_get(struct sf_tso_source *source, struct sf_tso_request *request)
{
    struct world *w = SF_CONTAINER_OF(source, struct life, tso)->w;
    uint64_t now = (uint64_t)(SIM_EPOCH_UNIX_MS + sim_now_ms(w->sim)) << 18;
    if (w->next_tso < now)
        w->next_tso = now;
    request->first.v = w->next_tso;
    w->next_tso += request->count;
    request->err = SF_OK;
    request->done(request);
}

static const struct sf_tso_source_vtable shared_tso = {.get = shared_tso_get};

/* Every budget of a namespace, see ccs_quota.c. */
#define BUDGET                                                                                     \
    {                                                                                              \
        CCS_QUOTA_RATE, CCS_QUOTA_BURST                                                            \
    }
static const struct sf_catalog_quota_class quota_class = {
    .name = "default", .budgets = {BUDGET, BUDGET, BUDGET, BUDGET}};
static const struct sf_catalog_policy policy = {.classes = &quota_class, .class_count = 1};

static void life_destroy(struct life *life)
{
    ccs_gate_destroy(life->gate);
    sf_sql_close(life->sql);
    sf_keyring_destroy(life->keyring);
    free(life);
}

static void *start_on(struct sim_process *process, struct world *w, struct sf_sql *sql)
{
    struct life *life = sf_calloc(1, sizeof(*life));
    struct sf_diag diag;
    life->w = w;
    life->tso.vtable = &shared_tso;
    life->sql = sf_sql_share(sql, sim_process_sql_faults(process));
    life->keyring = sf_keyring_new_for_test(1);
    sf_attempts_init(&life->attempts, sim_process_random(process));
    life->gate = ccs_gate_new(w, process, sim_process_store(process));
    struct sf_catalog_deps deps = {.store = life->gate,
                                   .sched = sim_process_sched(process),
                                   .loop = sim_process_loop(process, 0),
                                   .clock = sim_process_clock(process),
                                   .tso = &life->tso,
                                   .sql = life->sql,
                                   .keyring = life->keyring,
                                   .attempts = &life->attempts,
                                   .owner_id = sim_process_name(process),
                                   .policy = &policy,
                                   .lane_shards = 4,
                                   .collection_gc_delay_ms = CCS_GC_DELAY_MS,
                                   .namespace_gc_delay_ms = CCS_GC_DELAY_MS};
    enum sf_err err = sf_catalog_open(&deps, sim_process_sched(process), &diag, &life->catalog);
    if (err != SF_OK) {
        sim_trace(w->sim, "%s: open: %s %s", sim_process_name(process), sf_err_info(err)->name,
                  diag.message);
        bool may_fail = w->script != NULL && w->script->may_fail;
        if (may_fail && err == SF_ERR_CORRUPT)
            w->script->shuts++;
        else if (err == SF_ERR_CORRUPT && !sim_process_is_dead(process))
            sim_violation(w->sim, "%s cannot open: %s", sim_process_name(process), diag.message);
        life_destroy(life);
        return NULL;
    }
    sf_catalog_services(life->catalog, life->services);
    return life;
}

void *ccs_start(struct sim_process *process, void *ctx)
{
    struct world *w = ctx;
    return start_on(process, w, w->sql);
}

void *ccs_start_rebuilding(struct sim_process *process, void *ctx)
{
    struct world *w = ctx;
    return start_on(process, w, w->rebuilt);
}

void ccs_stop(struct sim_process *process, void *service, void *ctx)
{
    struct life *life = service;
    struct sf_waiter waiter;
    (void)ctx;
    sf_catalog_drain(life->catalog);
    sf_waiter_init(&waiter, sim_process_sched(process));
    life->stopping = &waiter;
    if (life->callers > 0)
        sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
    sf_catalog_close(life->catalog, sim_process_sched(process));
    life_destroy(life);
}
