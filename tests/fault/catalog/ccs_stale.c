/*
 * Scripted schedules (ccs_script.h) of one kind: an owner is held in the middle of something, its
 * successor does the same or more, and the elder one goes on. What it then finds of a newer owner
 * must stop it, and what it still writes must be refused.
 */
#include "fault/catalog/ccs_script.h"

#include <stdlib.h>

#include "catalog/catalog_head.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

/* Who does what. */
struct stale {
    const char *look;                /* key of the read that the first owner is held before */
    unsigned pass;                   /* reads of it that are not held */
    const char *part;                /* or: key of its put that is kept and lands at the end */
    int64_t listed_ms;               /* or: how long a listing of segments is held */
    int64_t late_ms;                 /* how long a read is held */
    int64_t land_ms;                 /* when the put lands after that; 0 = when all is long over */
    void (*before)(struct client *); /* at the first owner */
    void (*held)(struct client *);   /* at the first owner, held in it */
    void (*after)(struct client *);  /* at its successor */
    void (*last)(struct client *);   /* at its successor, once the put has landed; NULL = nothing */
};

static void run_stale(struct sim *sim, const struct stale *stale)
{
    struct script script = {0};
    struct sf_buf forgotten = {0};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    struct part before = {.client = {.w = w, .id = 0}, .run = stale->before};
    struct part held = {.client = {.w = w, .id = 0}, .run = stale->held};
    struct part after = {.client = {.w = w, .id = 1}, .run = stale->after};
    w->history = history_new(w); /* for the publisher */
    sim_spawn(clients, script_run_part, &before);
    script_until_within(w, 1, 2 * MONTH_MS);
    sim_spawn(clients, script_tick, NULL);
    script.look = stale->look;
    script.pass = stale->pass;
    script.late_ms = stale->look == NULL ? 0 : stale->late_ms;
    script.listed_ms = stale->listed_ms;
    script.part = stale->part;
    sim_spawn(clients, script_run_part, &held);
    sim_run_for(sim, 2000);
    SIM_CHECK(sim, script.look == NULL && (stale->part == NULL || script.key != NULL));
    SIM_CHECK(sim, script.listed_ms == 0);
    script.late_ms = 0;
    struct sim_node *a = script_next_owner(w);
    sim_run_for(sim, 1000);
    sim_spawn(clients, script_run_part, &after);
    if (stale->late_ms > HOURS_MS)
        script_until_within(w, 2, 3 * MONTH_MS);
    int64_t rest_ms = stale->late_ms < HOURS_MS ? 12000 : HOURS_MS;
    sim_run_for(sim, stale->land_ms == 0 ? rest_ms : stale->land_ms);
    script_land(w);
    struct part last = {.client = {.w = w, .id = 1}, .run = stale->last};
    if (stale->last != NULL) {
        script_until(w, 2);
        sim_spawn(clients, script_run_part, &last);
    }
    w->nodes[0] = stale->last == NULL ? a : w->nodes[1];
    script_until_within(w, stale->last == NULL ? 3 : 4, 3 * MONTH_MS);
    if (w->aged) /* superseded, and gone by now: a new key */
        script_forget_key(w, "c0-own-2", &forgotten);
    sf_buf_fini(&forgotten);
    script_finish(w, clients);
}

static void create_schema(struct client *c)
{
    part_create_collection(c);
    put_schema(c, 1, "");
}

/* ---- the manifest head -------------------------------------------------------------------- */

/* What the publisher knows of the shared collection. */
static struct seen *books(struct world *w)
{
    struct history *h = w->history;
    if (h->seen_count == 0)
        h->seen[h->seen_count++] =
            (struct seen){.ns_id = w->shared_namespace, .coll_id = w->shared_collection};
    return &h->seen[0];
}

/* Submits an advance of the head until it is answered. */
static void advance(struct client *c, uint64_t from, uint64_t to)
{
    const struct seen *seen = books(c->w);
    struct op op = {.kind = OP_HEAD,
                    .ns_name = NO_NAME,
                    .coll_name = NO_NAME,
                    .ns_id = seen->ns_id,
                    .coll_id = seen->coll_id,
                    .version = to,
                    .expected = from == 0 ? -1 : (int64_t)from};
    snprintf(op.sum, sizeof(op.sum), "%s", seen->checksums[to]);
    (void)perform(c, NULL, &op);
}

static void run_job(struct client *c, const char *name)
{
    SF_PB(RunCatalogJobRequest) request;
    const ProtobufCMessage *response = NULL;
    searchfabric__v1__run_catalog_job_request__init(&request);
    request.name = (char *)(uintptr_t)name;
    (void)operate(c, false, "RunCatalogJob", &request.base, &response);
}

/* A head that lags behind its pointer. */
static void leave_gap(struct client *c)
{
    create_schema(c);
    for (int i = 0; i < 3; i++)
        publish(c->w->history, books(c->w));
    advance(c, 0, 1);
    advance(c, 1, 2);
}

static void repair_head(struct client *c)
{
    run_job(c, "manifest-head");
}

static void advance_twice(struct client *c)
{
    advance(c, 2, 3);
    publish(c->w->history, books(c->w));
    advance(c, 3, 4);
}

/* A repair reads the head object once its successor has moved it. */
static void run_late_head(struct sim *sim)
{
    run_stale(sim, &(struct stale){.look = "/manifest_head.json",
                                   .late_ms = 8000,
                                   .before = leave_gap,
                                   .held = repair_head,
                                   .after = advance_twice});
}

/* A repair's swap of the head object lands once its successor has moved it. */
static void run_late_head_swap(struct sim *sim)
{
    run_stale(sim, &(struct stale){.part = "/manifest_head.json",
                                   .before = leave_gap,
                                   .held = repair_head,
                                   .after = advance_twice});
}

static uint64_t head_row_epoch(struct world *w)
{
    struct sf_sql_stmt *stmt;
    struct sf_diag diag;
    bool row = false;
    uint64_t epoch = 0;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    enum sf_err err = sf_sql_prepare(
        conn, "SELECT manifest_head_last_update_epoch FROM collections", &diag, &stmt);
    SF_ASSERT(err == SF_OK);
    err = sf_sql_step(stmt, &diag, &row);
    SF_ASSERT(err == SF_OK);
    if (row)
        epoch = sf_sql_col_u64(stmt, 0);
    sf_sql_finish(stmt);
    sf_sql_release(conn);
    return epoch;
}

/* After the successor's advances: what it left is the floor of the rest of the run. */
static void advance_and_wait(struct client *c)
{
    advance_twice(c);
    uint64_t floor = head_row_epoch(c->w);
    sim_sleep(c->process, 9000);
    uint64_t epoch = head_row_epoch(c->w);
    if (epoch < floor)
        sim_violation(c->w->sim, "the head's update epoch is %" PRIu64 " after %" PRIu64, epoch,
                      floor);
}

/* A repair judges the manifest of a head that its successor moves meanwhile. */
static void run_late_head_row(struct sim *sim)
{
    run_stale(sim, &(struct stale){.look = "manifests/",
                                   .late_ms = 6000,
                                   .before = leave_gap,
                                   .held = repair_head,
                                   .after = advance_and_wait});
}

/* ---- projectors --------------------------------------------------------------------------- */

static void create_books(struct client *c)
{
    create_schema(c);
    run_job(c, "collection-stats");
}

static void publish_and_project(struct client *c)
{
    uint64_t from = books(c->w)->published;
    publish(c->w->history, books(c->w));
    advance(c, from, from + 1);
    run_job(c, "collection-stats");
}

/* A projector shows sums of a manifest once its successor has shown those of a later one. */
static void run_late_projector(struct sim *sim)
{
    run_stale(sim, &(struct stale){.look = "manifests/",
                                   .late_ms = 8000,
                                   .before = create_books,
                                   .held = publish_and_project,
                                   .after = publish_and_project});
}

static void publish_more(struct client *c)
{
    uint64_t from = books(c->w)->published;
    publish(c->w->history, books(c->w));
    advance(c, from, from + 1);
}

/* A projector reads a manifest; until it shows its sums the same owner has followed a later one. */
static void run_noted_meanwhile(struct sim *sim)
{
    struct script script = {0};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    struct part before = {.client = {.w = w, .id = 0}, .run = create_books};
    struct part first = {.client = {.w = w, .id = 0}, .run = publish_and_project};
    struct part next = {.client = {.w = w, .id = 1}, .run = publish_more};
    w->history = history_new(w);
    sim_spawn(clients, script_tick, NULL);
    sim_spawn(clients, script_run_part, &before);
    script_until(w, 1);
    script.look = "manifests/";
    script.late_ms = 4000;
    sim_spawn(clients, script_run_part, &first);
    sim_run_for(sim, 2000);
    SIM_CHECK(sim, script.look == NULL);
    sim_spawn(clients, script_run_part, &next);
    script_until(w, 3);
    script_finish(w, clients);
}

/* ---- quota -------------------------------------------------------------------------------- */

void part_take_lease(struct client *c)
{
    char request_id[24];
    SF_PB(AcquireQuotaLeaseRequest) request;
    SF_PB(QuotaLeaseKey) lease;
    snprintf(request_id, sizeof(request_id), "request-%u", c->id);
    searchfabric__v1__quota_lease_key__init(&lease);
    lease.namespace_id = c->w->shared_namespace;
    lease.api_plane = SF_PBE(API_PLANE, WRITE);
    lease.throttled_dimension = "ingest_entries";
    lease.lease_holder_id = "holder";
    lease.lease_request_id = request_id;
    searchfabric__v1__acquire_quota_lease_request__init(&request);
    request.lease = &lease;
    request.requested_units = 1;
    const SF_PB(AcquireQuotaLeaseResponse) *response =
        (const void *)ask(c->w, c->process, PRIVATE "AcquireQuotaLease", &request.base, c->arena);
    c->w->script->lease_epoch = response->lease_epoch;
}

/* An owner reads the budgets that it is about to adopt once its successor has granted from them. */
static void run_late_quota(struct sim *sim)
{
    run_stale(sim, &(struct stale){.look = "namespace_quota_state",
                                   .late_ms = 8000,
                                   .before = part_create_shared,
                                   .held = part_take_lease,
                                   .after = part_take_lease});
}

/* ---- names -------------------------------------------------------------------------------- */

/* An owner reads a name's epoch object once its successor has allocated the name. */
static void run_late_name(struct sim *sim)
{
    run_stale(sim, &(struct stale){.look = "catalog-allocator/namespace-name/",
                                   .late_ms = 8000,
                                   .before = part_create_own,
                                   .held = part_create_shared,
                                   .after = part_create_shared});
}

/* ---- statistics --------------------------------------------------------------------------- */

static void signal_ready(struct client *c)
{
    report_once(c, 1, SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SERVING_GENERATION_READY));
}

/* The epoch of the owner that serves, as the projection has it. */
static uint64_t owner_epoch(struct world *w)
{
    struct sf_diag diag;
    uint64_t count = 0, low = 0, high = 0;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    enum sf_err err = sf_catalog_sql_shards(conn, &diag, &count, &low, &high);
    SF_ASSERT(err == SF_OK);
    sf_sql_release(conn);
    return count == 0 ? 0 : high;
}

/* READY, with the statistics head moved once. */
static void serve_schema(struct client *c)
{
    create_schema(c);
    signal_ready(c);
    read_sync(c);
}

static void publish_statistics(struct client *c)
{
    publish(c->w->history, books(c->w));
    advance(c, 0, 1);
    run_job(c, "statistics");
}

/* An answer from the head: from here on an elder owner swaps it no more. */
static void answer_from_statistics(struct client *c)
{
    struct sf_buf key = {0};
    read_sync(c);
    sf_catalog_key_statistics_head(&key, c->w->shared_namespace, c->w->shared_collection);
    elders_raise(c->w, &key, owner_epoch(c->w));
    sf_buf_fini(&key);
}

/* A swap of the statistics head lands once the successor has answered from it. */
static void run_late_snapshot(struct sim *sim)
{
    run_stale(sim, &(struct stale){.part = "optimizer_statistics_head",
                                   .land_ms = 2000,
                                   .before = serve_schema,
                                   .held = publish_statistics,
                                   .after = answer_from_statistics});
}

/* A swap of the statistics head lands once the successor has moved it. */
static void run_late_statistics(struct sim *sim)
{
    run_stale(sim, &(struct stale){.part = "optimizer_statistics_head",
                                   .before = create_schema,
                                   .held = signal_ready,
                                   .after = read_sync});
}

/* ---- retention ---------------------------------------------------------------------------- */

/* An owner reads the list of removals once its successor has swapped its own in. */
static void run_late_removals(struct sim *sim)
{
    run_stale(sim, &(struct stale){.look = "catalog-removals",
                                   .late_ms = 8000,
                                   .before = part_make_old,
                                   .held = part_retain,
                                   .after = part_retain_all});
}

static void age_and_retain(struct client *c)
{
    put_own(c, 1);
    sim_sleep(c->process, MONTH_MS);
    c->w->aged = true;
    part_cut_checkpoint(c);
    part_cut_checkpoint(c);
    part_retain_all(c);
}

/* An owner reads the boundary once its successor has moved it further. */
static void run_late_boundary(struct sim *sim)
{
    run_stale(sim, &(struct stale){.look = SF_CATALOG_BOUNDARY_KEY,
                                   .pass = 1,
                                   .late_ms = MONTH_MS + HOURS_MS,
                                   .before = part_make_old,
                                   .held = part_retain,
                                   .after = age_and_retain});
}

/* An owner appends where its successor's takeover record stood a month before. */
static void run_late_append(struct sim *sim)
{
    run_stale(sim, &(struct stale){.look = "catalog-allocator/namespace-name/",
                                   .late_ms = MONTH_MS + 3 * HOURS_MS,
                                   .before = part_create_own,
                                   .held = part_create_shared,
                                   .after = age_and_retain});
}

/* ---- checkpoints -------------------------------------------------------------------------- */

/* A shard of a checkpoint lands once the successor has cut one under the same number. */
static void run_late_shard(struct sim *sim)
{
    run_stale(sim, &(struct stale){.part = "catalog-checkpoints/shard=",
                                   .before = part_create_own,
                                   .held = part_cut_checkpoint,
                                   .after = part_cut_checkpoint,
                                   .last = operate_verify});
}

/* ---- starts ------------------------------------------------------------------------------- */

/* An owner is held in its first start, between takeover and claim; its successor builds the
 * projection and serves. */
static void run_late_claim(struct sim *sim)
{
    struct script script = {.part = SF_CATALOG_SEGMENT_PREFIX, .delay_ms = 9000};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    struct part create = {.client = {.w = w, .id = 0}, .run = part_create_own};
    struct part update = {.client = {.w = w, .id = 0}, .run = part_update_own};
    sim_spawn(clients, script_tick, NULL);
    sim_run_for(sim, 2000);
    SIM_CHECK(sim, script.part == NULL);
    struct sim_node *a = script_next_owner(w);
    sim_spawn(clients, script_run_part, &create);
    script_until(w, 1);
    sim_run_for(sim, 8000);
    sim_spawn(clients, script_run_part, &update);
    w->nodes[0] = a;
    script_until(w, 2);
    script_finish(w, clients);
}

/* The owner epoch of the projection, after every step: it only rises. */
struct owner_watch {
    struct world *w;
    uint64_t epoch;
};

static void watch_owner(struct sim *sim, void *ctx)
{
    struct owner_watch *watch = ctx;
    uint64_t epoch = owner_epoch(watch->w);
    elders_watch(sim, watch->w);
    if (epoch < watch->epoch)
        sim_violation(sim, "the projection's owner epoch is %" PRIu64 " after %" PRIu64, epoch,
                      watch->epoch);
    watch->epoch = epoch;
}

/* An owner is held in its start, between takeover and projection; its successor serves. */
static void run_late_start(struct sim *sim)
{
    struct script script = {.owner = "b.1"};
    struct world *w = script_begin(sim, &script);
    struct owner_watch watch = {.w = w};
    struct sim_process *clients = sim_process_new(sim, "clients");
    struct part create = {.client = {.w = w, .id = 0}, .run = part_create_own};
    struct part update = {.client = {.w = w, .id = 0}, .run = part_update_own};
    sim_spawn(clients, script_tick, NULL);
    sim_spawn(clients, script_run_part, &create);
    script_until(w, 1);
    script.part = SF_CATALOG_SEGMENT_PREFIX;
    script.delay_ms = 6000;
    struct sim_node *a = script_next_owner(w);
    sim_run_for(sim, 2000);
    SIM_CHECK(sim, script.part == NULL);
    sim_node_kill(a);
    struct sim_node *b = w->nodes[1];
    w->nodes[0] = w->nodes[1] = sim_node_new(sim, "c", &w->service);
    sim_set_invariant(sim, watch_owner, &watch);
    sim_spawn(clients, script_run_part, &update);
    sim_run_for(sim, 8000);
    w->nodes[0] = b;
    script_until(w, 2);
    sim_set_invariant(sim, elders_watch, w);
    script_finish(w, clients);
}

const struct sim_scenario ccs_stale_scripts[] = {
    HELD_SCRIPT(late_head),      HELD_SCRIPT(late_head_swap),  HELD_SCRIPT(late_head_row),
    HELD_SCRIPT(late_projector), HELD_SCRIPT(noted_meanwhile), HELD_SCRIPT(late_quota),
    HELD_SCRIPT(late_name),      HELD_SCRIPT(late_statistics), HELD_SCRIPT(late_removals),
    HELD_SCRIPT(late_boundary),  HELD_SCRIPT(late_append),     HELD_SCRIPT(late_shard),
    HELD_SCRIPT(late_snapshot),  SCRIPT(late_start),           HELD_SCRIPT(late_claim),
};
const size_t ccs_stale_script_count = SF_ARRAY_LEN(ccs_stale_scripts);
