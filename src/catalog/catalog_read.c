/*
 * Model: a read is answered on the caller's thread as long as memory holds what it asks for; no SQL
 * statement, no lane, nothing allocated but the answer. At the first fact that is missing it goes
 * on as an object of its own: it leads the one flight that reads the fact from a snapshot, or joins
 * the flight that is under way, and moves on when the flight lands. Facts with a convergence block
 * (GetSchemaSyncStatus, admission state, signals) are read on the collection's lane, which adopts
 * the block first. On a store that is not held exclusively a read first waits for a look at the
 * owner epoch, begun after the read came in; one look serves all that wait. Lists are read anew.
 */
#include "catalog/catalog_read.h"

#include <stdlib.h>

#define READ_LANES    64
#define READ_LANE_TAG UINT64_C(0x5265616400000000)
#define LOOK_LANE     UINT64_C(0x4c6f6f6b00000000)

static struct sf_catalog_reading *reading_of(struct sf_catalog_waiter *waiter)
{
    return SF_CONTAINER_OF(waiter, struct sf_catalog_reading, waiter);
}

/* Ends a reading whose call was answered. */
static void end(struct sf_catalog_reading *reading)
{
    struct sf_catalog *catalog = reading->catalog;
    free(reading);
    sf_catalog_leave(catalog);
}

static void end_refused(struct sf_catalog_reading *reading, enum sf_err err,
                        const struct sf_diag *diag)
{
    struct sf_diag copy = *diag;
    if (copy.err != err)
        sf_diag_set(&copy, err, "%s", sf_err_info(err)->meaning);
    sf_catalog_refuse(reading->call, &copy);
    end(reading);
}

/* Queues a task of the reading on `lane`; *diag says why not. */
static enum sf_err submit(struct sf_catalog_reading *reading, uint64_t lane,
                          void (*run)(struct sf_task *), struct sf_diag *diag)
{
    reading->task.run = run;
    enum sf_err err = sf_sched_submit(reading->catalog->deps.sched, lane, &reading->task);
    if (err == SF_OK)
        return SF_OK;
    sf_diag_init(diag);
    sf_diag_set(diag, err == SF_ERR_FULL ? SF_RATE_LIMITED : SF_BACKEND_UNAVAILABLE,
                "the catalog takes no more work now");
    if (err == SF_ERR_FULL) {
        sf_diag_detail(diag, "retry_after_ms", "%d", 100);
        sf_diag_detail(diag, "throttled_dimension", "catalog_reads");
        sf_diag_detail(diag, "server_limit", "queued_tasks");
    }
    return diag->err;
}

static uint64_t any_lane(struct sf_catalog *catalog)
{
    return READ_LANE_TAG + atomic_fetch_add(&catalog->read_turn, 1) % READ_LANES;
}

/* Tells the trace on which lane the reading goes on. */
static void trace_lane(const struct sf_catalog_reading *reading)
{
    struct sf_catalog_trace *trace = reading->catalog->deps.trace;
    if (trace == NULL || trace->lane == NULL)
        return;
    struct sf_catalog_cache_key key = sf_catalog_reading_key(reading);
    enum sf_catalog_lane lane = SF_CATALOG_LANE_COLLECTION_ID;
    if (key.fact == SF_CATALOG_FACT_NAMESPACE_NAME)
        lane = SF_CATALOG_LANE_NAMESPACE_NAME;
    else if (key.fact == SF_CATALOG_FACT_NAMESPACE || key.fact == SF_CATALOG_FACT_BINDING)
        lane = SF_CATALOG_LANE_NAMESPACE_ID;
    else if (key.fact == SF_CATALOG_FACT_COLLECTION_NAME)
        lane = SF_CATALOG_LANE_COLLECTION_NAME;
    trace->lane(trace, sf_call_method(reading->call), sf_catalog_lane_name(lane),
                sf_catalog_lane_key(lane, key.namespace_id, key.collection_id, key.text));
}

/* Takes a fact: true when the call was answered. */
static bool take(struct sf_catalog_reading *reading, const struct sf_catalog_value *value)
{
    bool answered = sf_catalog_reading_take(reading, value);
    if (!answered)
        trace_lane(reading);
    return answered;
}

/* ---- flights ------------------------------------------------------------------------------ */

static void go_on(struct sf_catalog_reading *reading);

/* Ends the flight that `reading` leads: everybody takes the fact, or the refusal. */
static void land(struct sf_catalog_reading *reading, struct sf_catalog_value *value,
                 enum sf_err err, const struct sf_diag *diag)
{
    struct sf_catalog_waiter *next =
        sf_catalog_cache_land(reading->catalog->cache, reading->flight, value);
    while (next != NULL) {
        struct sf_catalog_reading *one = reading_of(next);
        next = next->next;
        if (err != SF_OK)
            end_refused(one, err, diag);
        else if (take(one, value))
            end(one);
        else
            go_on(one);
    }
    sf_catalog_value_drop(value);
}

static void flight_run(struct sf_task *task)
{
    struct sf_catalog_reading *reading = SF_CONTAINER_OF(task, struct sf_catalog_reading, task);
    struct sf_catalog_cache_key key = sf_catalog_reading_key(reading);
    struct sf_catalog_value *value = NULL;
    struct sf_diag diag;
    sf_diag_init(&diag);
    enum sf_err err =
        sf_catalog_fact_load(reading->catalog, &key, sf_call_arena(reading->call), &diag, &value);
    land(reading, value, err, &diag);
}

/* Moves a reading of its own on: from memory, or by a flight. It may be gone on return. */
static void go_on(struct sf_catalog_reading *reading)
{
    for (;;) {
        struct sf_catalog *catalog = reading->catalog;
        struct sf_catalog_cache_key key = sf_catalog_reading_key(reading);
        struct sf_catalog_value *value = NULL;
        struct sf_catalog_flight *flight = NULL;
        enum sf_catalog_ask ask =
            sf_catalog_cache_ask(catalog->cache, &key, &reading->waiter, &value, &flight);
        if (ask == SF_CATALOG_ASK_JOINED)
            return;
        if (ask == SF_CATALOG_ASK_LEAD) {
            struct sf_diag diag;
            uint64_t lane = any_lane(catalog);
            if (key.fact == SF_CATALOG_FACT_SYNC || key.fact == SF_CATALOG_FACT_ADMISSION)
                lane = sf_catalog_collection_lane(key.namespace_id, key.collection_id);
            reading->flight = flight;
            enum sf_err err = submit(reading, lane, flight_run, &diag);
            if (err != SF_OK)
                land(reading, NULL, err, &diag);
            return;
        }
        bool answered = take(reading, value);
        sf_catalog_value_drop(value);
        if (answered) {
            end(reading);
            return;
        }
    }
}

static struct sf_catalog_reading *keep(const struct sf_catalog_reading *reading)
{
    return sf_memdup(reading, sizeof(*reading));
}

/* Answers from memory alone; what is missing is gone after by a copy. */
static void serve(struct sf_catalog_reading *reading)
{
    struct sf_catalog *catalog = reading->catalog;
    bool answered = false;
    while (!answered) {
        struct sf_catalog_cache_key key = sf_catalog_reading_key(reading);
        struct sf_catalog_value *value = sf_catalog_cache_get(catalog->cache, &key);
        if (value == NULL) {
            go_on(keep(reading));
            return;
        }
        answered = take(reading, value);
        sf_catalog_value_drop(value);
    }
    sf_catalog_leave(catalog);
}

/* ---- looks -------------------------------------------------------------------------------- */

static struct sf_catalog_waiter *take_looks(struct sf_catalog *catalog)
{
    pthread_mutex_lock(&catalog->state_mu);
    struct sf_catalog_waiter *list = catalog->look_head;
    catalog->look_head = catalog->look_tail = NULL;
    catalog->look_running = false;
    pthread_mutex_unlock(&catalog->state_mu);
    return list;
}

/* Refuses or goes on with each reading of the list; `err` is what the look found. */
static void serve_looks(struct sf_catalog_waiter *list, enum sf_err err, const struct sf_diag *diag)
{
    while (list != NULL) {
        struct sf_catalog_reading *reading = reading_of(list);
        list = list->next;
        if (err != SF_OK)
            end_refused(reading, err, diag);
        else
            go_on(reading);
    }
}

/* A look on its way. */
struct look_task {
    struct sf_task task;        /* on the look's lane */
    struct sf_catalog *catalog; /* immutable */
};

static void look_run(struct sf_task *task)
{
    struct look_task *self = SF_CONTAINER_OF(task, struct look_task, task);
    struct sf_catalog *catalog = self->catalog;
    struct sf_diag diag;
    sf_diag_init(&diag);
    free(self);
    struct sf_catalog_waiter *list = take_looks(catalog);
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, &diag);
    if (err == SF_OK)
        err = sf_catalog_sql_look(catalog, conn, &diag);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    serve_looks(list, err, &diag);
}

static void wait_for_look(struct sf_catalog_reading *reading)
{
    struct sf_catalog *catalog = reading->catalog;
    reading->waiter.next = NULL;
    pthread_mutex_lock(&catalog->state_mu);
    if (catalog->look_tail != NULL)
        catalog->look_tail->next = &reading->waiter;
    else
        catalog->look_head = &reading->waiter;
    catalog->look_tail = &reading->waiter;
    bool first = !catalog->look_running;
    catalog->look_running = true;
    pthread_mutex_unlock(&catalog->state_mu);
    if (!first)
        return;
    struct look_task *task = sf_calloc(1, sizeof(*task));
    task->task.run = look_run;
    task->catalog = catalog;
    if (sf_sched_submit(catalog->deps.sched, LOOK_LANE, &task->task) == SF_OK)
        return;
    struct sf_diag diag;
    sf_diag_init(&diag);
    free(task);
    sf_diag_set(&diag, SF_BACKEND_UNAVAILABLE, "the catalog takes no more work now");
    serve_looks(take_looks(catalog), SF_BACKEND_UNAVAILABLE, &diag);
}

/* ---- lists and signals -------------------------------------------------------------------- */

static enum sf_err run_signal(struct sf_catalog_reading *reading)
{
    SF_PB(ReportSchemaConvergenceSignalResponse) response;
    searchfabric__v1__report_schema_convergence_signal_response__init(&response);
    bool changed = false;
    enum sf_err err = sf_catalog_signal(
        reading->catalog, (const SF_PB(ReportSchemaConvergenceSignalRequest) *)reading->request,
        sf_call_arena(reading->call), sf_call_diag(reading->call), &response.state, &changed);
    response.changed = changed;
    if (err == SF_OK)
        sf_call_respond(reading->call, &response.base);
    return err;
}

static void task_run(struct sf_task *task)
{
    struct sf_catalog_reading *reading = SF_CONTAINER_OF(task, struct sf_catalog_reading, task);
    struct sf_diag *diag = sf_call_diag(reading->call);
    enum sf_err err;
    sf_diag_init(diag);
    if (reading->kind == SF_CATALOG_READ_SIGNAL)
        err = run_signal(reading);
    else if (reading->kind == SF_CATALOG_READ_CALL)
        err = reading->run(reading->catalog, reading->call, reading->request);
    else
        err = sf_catalog_list_run(reading->catalog, reading->kind, reading->call, reading->request);
    if (err == SF_OK)
        end(reading);
    else
        end_refused(reading, err, diag);
}

static void queue_task(const struct sf_catalog_reading *from)
{
    struct sf_catalog_reading *reading = keep(from);
    uint64_t lane = any_lane(reading->catalog);
    struct sf_diag diag;
    if (reading->kind == SF_CATALOG_READ_SIGNAL) {
        const SF_PB(CollectionRef) *ref =
            ((const SF_PB(ReportSchemaConvergenceSignalRequest) *)reading->request)->collection;
        lane = sf_catalog_collection_lane(ref->namespace_id, ref->collection_id);
    } else if (reading->collection_id != 0) {
        lane = sf_catalog_collection_lane(reading->namespace_id, reading->collection_id);
    }
    enum sf_err err = submit(reading, lane, task_run, &diag);
    if (err != SF_OK)
        end_refused(reading, err, &diag);
}

void sf_catalog_read_start(struct sf_catalog *catalog, enum sf_catalog_read_kind kind,
                           struct sf_call *call, const ProtobufCMessage *request)
{
    struct sf_diag *diag = sf_call_diag(call);
    if (!sf_catalog_enter(catalog, kind == SF_CATALOG_READ_SIGNAL, diag)) {
        sf_catalog_refuse(call, diag);
        return;
    }
    struct sf_catalog_reading reading = {
        .catalog = catalog, .kind = kind, .call = call, .request = request};
    bool facts = sf_catalog_reading_init(&reading);
    if (facts)
        trace_lane(&reading);
    if (!facts)
        queue_task(&reading);
    else if (!catalog->deps.store->exclusive && !SF_MUTANT(ccs_no_epoch_look))
        wait_for_look(keep(&reading));
    else
        serve(&reading);
}

void sf_catalog_call_start(struct sf_catalog *catalog, struct sf_call *call,
                           const ProtobufCMessage *request, const SF_PB(CollectionRef) * ref,
                           bool mutation, sf_catalog_call_fn run)
{
    struct sf_diag *diag = sf_call_diag(call);
    if (!sf_catalog_enter(catalog, mutation, diag)) {
        sf_catalog_refuse(call, diag);
        return;
    }
    struct sf_catalog_reading reading = {.catalog = catalog,
                                         .kind = SF_CATALOG_READ_CALL,
                                         .call = call,
                                         .request = request,
                                         .run = run};
    if (ref != NULL) {
        reading.namespace_id = ref->namespace_id;
        reading.collection_id = ref->collection_id;
    }
    queue_task(&reading);
}
