/*
 * Model: background work of the catalog. A job is a row of the table below: a name, a period and a
 * function that does one bounded cycle. Its timer runs on the loop; the cycle runs as a task on the
 * lane of the jobs of its pace, so that a job never overlaps itself; the next period
 * begins when the cycle ended. A cycle that fails is counted, its reason kept, and the job goes on.
 * Jobs find their work in memory or in the projection: an idle catalog causes no store request.
 *
 *   start -> armed -> (timer) -> queued -> running -> armed ... -> stopped (close)
 */
#include "catalog/catalog_job.h"

#include "catalog/catalog_head.h"
#include "catalog/catalog_projector.h"
#include "catalog/catalog_lifecycle.h"
#include "catalog/catalog_quota.h"

#include "catalog/catalog_checkpoint.h"
#include "catalog/catalog_tier.h"
#include "catalog/catalog_rules.h"
#include "catalog/catalog_statistics.h"
#include "catalog/catalog_retention.h"

#include <stdio.h>
#include <stdlib.h>

#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define PROJECTOR_PERIOD_MS  500
#define STATISTICS_PERIOD_MS 5000
#define RETENTION_PERIOD_MS  60000
#define LOOK_PERIOD_MS       1000

/* One row per job; a cycle by hand (`sfctl catalog run-job`) runs the same function. */
static const struct sf_catalog_job_kind kinds[] = {
    {NULL, 0, SF_CATALOG_JOB_QUICK, NULL}, /* keeps the table from being empty */
    {"forget-facts", 0, SF_CATALOG_JOB_QUICK, sf_catalog_forget_job},
    {"collection-stats", PROJECTOR_PERIOD_MS, SF_CATALOG_JOB_QUICK, sf_catalog_run_stats},
    {"collection-index", PROJECTOR_PERIOD_MS, SF_CATALOG_JOB_QUICK, sf_catalog_run_index},
    {"namespace-aggregate", PROJECTOR_PERIOD_MS, SF_CATALOG_JOB_QUICK, sf_catalog_run_aggregate},
    {"release-sweep", 60000, SF_CATALOG_JOB_QUICK, sf_catalog_sweep_job},
    {"tombstone-repair", 300000, SF_CATALOG_JOB_QUICK, sf_catalog_tombstone_repair},
    {"quota-sweep", 5000, SF_CATALOG_JOB_QUICK, sf_catalog_quota_sweep},
    {"checkpoint", 10000, SF_CATALOG_JOB_SLOW, sf_catalog_checkpoint_job},
    {"lifecycle-windows", PROJECTOR_PERIOD_MS, SF_CATALOG_JOB_QUICK, sf_catalog_run_windows},
    {"statistics", STATISTICS_PERIOD_MS, SF_CATALOG_JOB_QUICK, sf_catalog_run_statistics},
    {"statistics-retention", RETENTION_PERIOD_MS, SF_CATALOG_JOB_QUICK,
     sf_catalog_run_statistics_retention},
    {"retention", 600000, SF_CATALOG_JOB_SLOW, sf_catalog_retention_job},
    {"manifest-head", 5000, SF_CATALOG_JOB_QUICK, sf_catalog_heads_run},
    {"projection-look", LOOK_PERIOD_MS, SF_CATALOG_JOB_LOOK, sf_catalog_projection_job},
    {"manifest-head-audit", 0, SF_CATALOG_JOB_QUICK, sf_catalog_heads_audit},
};

struct sf_catalog_job {
    struct sf_task loop_task;               /* arms the timer; loop */
    struct sf_task lane_task;               /* one cycle; its lane */
    struct sf_timer timer;                  /* loop */
    struct sf_catalog *catalog;             /* immutable */
    const struct sf_catalog_job_kind *kind; /* immutable */
    pthread_mutex_t mu;                     /* guards what follows */
    uint64_t runs, failures, last_done;     /* under mu */
    int64_t last_success_unix_ms;           /* under mu; 0 = never */
    char last_failure[SF_DIAG_VALUE_BYTES]; /* under mu; "" = the last cycle succeeded */
};

struct sf_catalog_jobs {
    struct sf_catalog *catalog;
    bool stopped;           /* loop: no timer is armed any more */
    struct sf_task stop;    /* posted by the close */
    struct sf_waiter ended; /* opened when the stop ran */
    struct sf_catalog_job items[SF_ARRAY_LEN(kinds)];
};

static size_t job_count(void)
{
    return SF_ARRAY_LEN(kinds) - 1;
}

static const struct sf_catalog_job_kind *kind_at(size_t i)
{
    return &kinds[i + 1];
}

bool sf_catalog_own_fault(enum sf_err err)
{
    enum sf_err_class class = sf_err_info(err)->cls;
    if (err == SF_CATALOG_UNAVAILABLE) /* a row that lost a field */
        return true;
    return class == SF_CLASS_CORRUPT || class == SF_CLASS_CALLER_FAULT;
}

/* Jobs wait for commands of their own (sf_catalog_intend), so only two of them may hold a worker at
 * a time: a quick one and a slow one. A look waits for the projection alone. */
uint64_t sf_catalog_job_lane(enum sf_catalog_job_pace pace)
{
    uint8_t which = (uint8_t)pace;
    return sf_xxh64(&which, sizeof(which), SF_CATALOG_JOB_LANE_SEED);
}

static uint64_t lane_of(const struct sf_catalog_job_kind *kind)
{
    return sf_catalog_job_lane(kind->pace);
}

/* One cycle and its record. */
static enum sf_err run_cycle(struct sf_catalog_job *job, struct sf_sched *sched,
                             struct sf_diag *diag, uint64_t *out_done)
{
    struct sf_catalog *catalog = job->catalog;
    sf_diag_init(diag);
    *out_done = 0;
    enum sf_err err = job->kind->run(catalog, sched, diag, out_done);
    if (err != SF_OK && diag->err == SF_OK)
        sf_diag_set(diag, err, "%s", sf_err_info(err)->meaning);
    bool told = false; /* the same failure as last time is not logged again */
    pthread_mutex_lock(&job->mu);
    job->runs++;
    if (err == SF_OK) {
        job->last_done = *out_done;
        job->last_success_unix_ms = sf_clock_unix_ms(catalog->deps.clock);
        job->last_failure[0] = '\0';
    } else {
        job->failures++;
        told = strcmp(job->last_failure, diag->message) == 0;
        snprintf(job->last_failure, sizeof(job->last_failure), "%s", diag->message);
    }
    pthread_mutex_unlock(&job->mu);
    if (err != SF_OK && !told && !sf_catalog_ending(catalog))
        SF_LOG(WARN, "catalog_job_failed", SF_KV_STR("job", job->kind->name),
               SF_KV_STR("reason", diag->message));
    return err;
}

/* ---- timers ------------------------------------------------------------------------------- */

static void arm(struct sf_task *task)
{
    struct sf_catalog_job *job = SF_CONTAINER_OF(task, struct sf_catalog_job, loop_task);
    struct sf_catalog *catalog = job->catalog;
    if (catalog->jobs->stopped || sf_catalog_ending(catalog))
        return;
    uint64_t salt[2] = {catalog->owner_epoch, atomic_fetch_add(&catalog->read_turn, 1)};
    uint64_t spread = job->kind->period_ms / 8 + 1; /* so that jobs do not fall together */
    sf_timer_start(&job->timer,
                   job->kind->period_ms + (int64_t)(sf_xxh64(salt, sizeof(salt), 0) % spread));
}

static void on_lane(struct sf_task *task)
{
    struct sf_catalog_job *job = SF_CONTAINER_OF(task, struct sf_catalog_job, lane_task);
    struct sf_catalog *catalog = job->catalog;
    struct sf_diag diag;
    uint64_t done;
    if (!sf_catalog_ending(catalog))
        run_cycle(job, catalog->deps.sched, &diag, &done);
    sf_loop_post(catalog->deps.loop, &job->loop_task);
    sf_catalog_leave(catalog);
}

static void fired(struct sf_timer *timer)
{
    struct sf_catalog_job *job = SF_CONTAINER_OF(timer, struct sf_catalog_job, timer);
    struct sf_catalog *catalog = job->catalog;
    struct sf_diag diag;
    sf_diag_init(&diag);
    if (!sf_catalog_enter(catalog, false, &diag))
        return; /* draining or deposed: for ever */
    if (sf_sched_submit(catalog->deps.sched, lane_of(job->kind), &job->lane_task) == SF_OK)
        return;
    sf_catalog_leave(catalog); /* the pool is full: the next period */
    arm(&job->loop_task);
}

/* ---- life --------------------------------------------------------------------------------- */

void sf_catalog_jobs_start(struct sf_catalog *catalog)
{
    struct sf_catalog_jobs *jobs = sf_calloc(1, sizeof(*jobs));
    catalog->jobs = jobs;
    jobs->catalog = catalog;
    for (size_t i = 0; i < job_count(); i++) {
        struct sf_catalog_job *job = &jobs->items[i];
        job->catalog = catalog;
        job->kind = kind_at(i);
        job->loop_task.run = arm;
        job->lane_task.run = on_lane;
        pthread_mutex_init(&job->mu, NULL);
        if (!catalog->deps.run_jobs || job->kind->period_ms == 0)
            continue;
        SF_ASSERT(catalog->deps.loop != NULL);
        sf_timer_init(&job->timer, catalog->deps.loop, fired);
        sf_loop_post(catalog->deps.loop, &job->loop_task);
    }
}

static void stop_on_loop(struct sf_task *task)
{
    struct sf_catalog_jobs *jobs = SF_CONTAINER_OF(task, struct sf_catalog_jobs, stop);
    jobs->stopped = true;
    for (size_t i = 0; i < job_count(); i++) {
        if (jobs->items[i].timer.loop != NULL)
            sf_timer_stop(&jobs->items[i].timer);
    }
    sf_waiter_wake(&jobs->ended);
}

void sf_catalog_jobs_stop(struct sf_catalog *catalog, struct sf_sched *sched)
{
    struct sf_catalog_jobs *jobs = catalog->jobs;
    if (jobs == NULL)
        return;
    if (catalog->deps.run_jobs) {
        jobs->stop.run = stop_on_loop;
        sf_waiter_init(&jobs->ended, sched);
        sf_loop_post(catalog->deps.loop, &jobs->stop);
        sf_waiter_wait(&jobs->ended);
        sf_waiter_fini(&jobs->ended);
    }
    for (size_t i = 0; i < job_count(); i++)
        pthread_mutex_destroy(&jobs->items[i].mu);
    free(jobs);
    catalog->jobs = NULL;
}

/* ---- by hand ------------------------------------------------------------------------------ */

static struct sf_catalog_job *find(struct sf_catalog *catalog, const char *name)
{
    for (size_t i = 0; i < job_count(); i++) {
        if (strcmp(kind_at(i)->name, name) == 0)
            return &catalog->jobs->items[i];
    }
    return NULL;
}

struct by_hand {
    struct sf_task task;
    struct sf_call *call;
    struct sf_catalog_job *job;
};

static void run_by_hand(struct sf_task *task)
{
    struct by_hand *hand = SF_CONTAINER_OF(task, struct by_hand, task);
    struct sf_catalog *catalog = hand->job->catalog;
    struct sf_diag *diag = sf_call_diag(hand->call);
    SF_PB(RunCatalogJobResponse) response;
    searchfabric__v1__run_catalog_job_response__init(&response);
    if (run_cycle(hand->job, catalog->deps.sched, diag, &response.done) == SF_OK)
        sf_call_respond(hand->call, &response.base);
    else
        sf_catalog_refuse(hand->call, diag);
    free(hand);
    sf_catalog_leave(catalog);
}

void sf_catalog_job_call(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    struct sf_catalog *catalog = self;
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    struct sf_catalog_job *job =
        find(catalog, ((const SF_PB(RunCatalogJobRequest) *)request)->name);
    const SF_PB(CollectionRef) *ref = ((const SF_PB(RunCatalogJobRequest) *)request)->collection;
    if (job == NULL)
        sf_diag_bad_field(diag, "name", "unknown", "no such job: ListCatalogJobs names them");
    if (job != NULL && ref != NULL && sf_catalog_ref_check(ref, diag) != SF_OK)
        job = NULL;
    if (job != NULL && ref != NULL)
        sf_catalog_projectors_wake(catalog, ref->namespace_id, ref->collection_id);
    if (job == NULL || !sf_catalog_enter(catalog, false, diag)) {
        sf_catalog_refuse(call, diag);
        return;
    }
    struct by_hand *hand = sf_calloc(1, sizeof(*hand));
    *hand = (struct by_hand){.task.run = run_by_hand, .call = call, .job = job};
    if (sf_sched_submit(catalog->deps.sched, lane_of(job->kind), &hand->task) == SF_OK)
        return;
    free(hand);
    sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "the catalog is busy");
    sf_catalog_refuse(call, diag);
    sf_catalog_leave(catalog);
}

void sf_catalog_jobs_list(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    struct sf_catalog *catalog = self;
    struct sf_arena *arena = sf_call_arena(call);
    (void)request;
    SF_PB(ListCatalogJobsResponse) response;
    searchfabric__v1__list_catalog_jobs_response__init(&response);
    response.jobs = sf_arena_alloc(arena, (job_count() + 1) * sizeof(*response.jobs));
    for (size_t i = 0; response.jobs != NULL && i < job_count(); i++) {
        struct sf_catalog_job *job = &catalog->jobs->items[i];
        SF_PB(CatalogJobStatus) *status = sf_arena_alloc(arena, sizeof(*status));
        if (status == NULL)
            break;
        searchfabric__v1__catalog_job_status__init(status);
        status->name = (char *)(uintptr_t)job->kind->name;
        status->period_ms = job->kind->period_ms;
        pthread_mutex_lock(&job->mu);
        status->runs = job->runs;
        status->failures = job->failures;
        status->last_success_unix_ms = job->last_success_unix_ms;
        status->last_done = job->last_done;
        status->last_failure = sf_arena_str(arena, sf_view_str(job->last_failure));
        pthread_mutex_unlock(&job->mu);
        response.jobs[response.n_jobs++] = status;
    }
    sf_call_respond(call, &response.base);
}
