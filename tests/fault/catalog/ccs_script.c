/*
 * Scripted schedules (ccs_script.h) around one command, one convergence block or one record: puts
 * in doubt, swaps and rows of an owner that was taken over from, what a projection lost.
 */
#include "fault/catalog/ccs_script.h"

#include <stdlib.h>

#include "searchfabric/v1/catalog_operations_private.pb-c.h"

void part_create_shared(struct client *c)
{
    put_shared_namespace(c);
}

void part_create_own(struct client *c)
{
    put_own(c, 1);
}

void part_update_own(struct client *c)
{
    put_own(c, 2);
}

static void create_schema(struct client *c)
{
    put_shared_namespace(c);
    put_shared_collection(c);
    put_schema(c, 1, "");
}

void part_create_collection(struct client *c)
{
    put_shared_namespace(c);
    put_shared_collection(c);
}

static void create_generation(struct client *c)
{
    put_schema(c, 1, "");
}

static void signal_ready(struct client *c)
{
    report_once(c, 1, SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SERVING_GENERATION_READY));
}

static void signal_drift(struct client *c)
{
    c->w->drift_sent = true;
    report(c, 1, SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, DRIFT_DETECTED));
}

static void see_sync(struct client *c)
{
    read_sync(c);
}

/* An outcome in doubt: its lane may take nothing else until that is settled. */
static void run_outcome_in_doubt(struct sim *sim)
{
    struct script script = {.part = "catalog-log/"};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, script_tick, NULL);
    struct part first = {.client = {.w = w, .id = 0}, .run = part_create_shared};
    struct part second = {.client = {.w = w, .id = 1}, .run = part_create_shared};
    sim_spawn(clients, script_run_part, &first);
    sim_run_for(sim, 1500);
    sim_spawn(clients, script_run_part, &second);
    sim_run_for(sim, 6000);
    script_land(w);
    script_until(w, 2);
    script_finish(w, clients);
}

/* A control object of a deposed owner's attempt, still being put when its successor has committed
 * another one there. */
static void run_late_control(struct sim *sim)
{
    struct script script = {0};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, script_tick, NULL);
    struct part create = {.client = {.w = w, .id = 0}, .run = part_create_own};
    struct part update = {.client = {.w = w, .id = 0}, .run = part_update_own};
    struct part again = {.client = {.w = w, .id = 0}, .run = part_update_own};
    sim_spawn(clients, script_run_part, &create);
    script_until(w, 1);
    script.part = "namespace_descriptor_v2";
    sim_spawn(clients, script_run_part, &update);
    sim_run_for(sim, 2000);
    struct sim_node *a = script_next_owner(w);
    sim_spawn(clients, script_run_part, &again);
    sim_run_for(sim, 8000);
    w->nodes[0] = a;
    script.part = NULL;
    script_until(w, 3);
    script_finish(w, clients);
}

/* A swap of a convergence block by a deposed owner lands after its successor answered from it. */
static void run_late_swap(struct sim *sim)
{
    struct script script = {0};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, script_tick, NULL);
    struct part create = {.client = {.w = w, .id = 0}, .run = create_schema};
    struct part ready = {.client = {.w = w, .id = 0}, .run = signal_ready};
    struct part look = {.client = {.w = w, .id = 1}, .run = see_sync};
    sim_spawn(clients, script_run_part, &create);
    script_until(w, 1);
    script.part = "schema_generation_v1";
    sim_spawn(clients, script_run_part, &ready);
    sim_run_for(sim, 2000);
    struct sim_node *a = script_next_owner(w);
    sim_run_for(sim, 3000);
    sim_spawn(clients, script_run_part, &look);
    sim_run_for(sim, 3000);
    script_land(w);
    w->nodes[0] = a;
    script_until(w, 3);
    script_finish(w, clients);
}

static void promote_next(struct client *c)
{
    put_schema(c, 2, "");
    report_once(c, 2, SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SERVING_GENERATION_READY));
}

/* An owner freezes before it reads the statistics head; its successor moves that meanwhile. What
 * the elder one then meets is of a newer owner. */
static void run_late_look(struct sim *sim)
{
    struct script script = {0};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, script_tick, NULL);
    struct part create = {.client = {.w = w, .id = 0}, .run = create_schema};
    struct part ready = {.client = {.w = w, .id = 0}, .run = signal_ready};
    struct part next = {.client = {.w = w, .id = 1}, .run = promote_next};
    sim_spawn(clients, script_run_part, &create);
    script_until(w, 1);
    script.late_ms = 12000;
    script.look = "optimizer_statistics_head";
    sim_spawn(clients, script_run_part, &ready);
    sim_run_for(sim, 2000);
    struct sim_node *a = script_next_owner(w);
    sim_run_for(sim, 1000);
    sim_spawn(clients, script_run_part, &next);
    sim_run_for(sim, 12000);
    w->nodes[0] = a;
    script_until(w, 3);
    script_finish(w, clients);
}

/* An owner that is about to show a promotion freezes; its successor shows a later state. */
static void run_late_show(struct sim *sim)
{
    struct script script = {0};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, script_tick, NULL);
    struct part create = {.client = {.w = w, .id = 0}, .run = create_schema};
    struct part ready = {.client = {.w = w, .id = 0}, .run = signal_ready};
    struct part drift = {.client = {.w = w, .id = 1}, .run = signal_drift};
    sim_spawn(clients, script_run_part, &create);
    script_until(w, 1);
    script.delay_ms = 12000;
    script.part = "optimizer_statistics_head";
    sim_spawn(clients, script_run_part, &ready);
    sim_run_for(sim, 2000);
    struct sim_node *a = script_next_owner(w);
    sim_spawn(clients, script_run_part, &drift);
    sim_run_for(sim, 12000);
    w->nodes[0] = a;
    script_until(w, 3);
    script_finish(w, clients);
}

/* An owner freezes with a schema generation committed and not shown. The projection is lost, and
 * the owner goes on while its successor is writing the rows again: a generation that stands there
 * before its collection would never become the active one. */
static void run_show_into_rebuild(struct sim *sim)
{
    struct script script = {0};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, script_tick, NULL);
    struct part create = {.client = {.w = w, .id = 0}, .run = part_create_collection};
    struct part schema = {.client = {.w = w, .id = 0}, .run = create_generation};
    sim_spawn(clients, script_run_part, &create);
    script_until(w, 1);
    script.delay_ms = 8000;
    script.part = "catalog-log/";
    sim_spawn(clients, script_run_part, &schema);
    sim_run_for(sim, 2000);
    script_lose_rows(w, "DELETE FROM catalog_lane_shards;");
    script.hold_ms = 10000;
    struct sim_node *a = script_next_owner(w);
    sim_run_for(sim, 14000);
    w->nodes[0] = a;
    script_until(w, 2);
    script_finish(w, clients);
}

/* The store refuses a control object of a listed command again and again: its owner gives it up,
 * and the watermark may pass its entries once they are settled. */
static void run_given_up(struct sim *sim)
{
    struct script script = {0};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, script_tick, NULL);
    struct part create = {.client = {.w = w, .id = 0}, .run = part_create_own};
    struct part update = {.client = {.w = w, .id = 0}, .run = part_update_own};
    struct part other = {.client = {.w = w, .id = 1}, .run = part_create_own};
    sim_spawn(clients, script_run_part, &create);
    script_until(w, 1);
    script.refuse = true;
    script.part = "namespace_descriptor_v2";
    sim_spawn(clients, script_run_part, &update);
    sim_run_for(sim, 4000);
    sim_spawn(clients, script_run_part, &other);
    script_until(w, 2);
    check_settled(w);
    script.part = NULL;
    script_until(w, 3);
    script_finish(w, clients);
}

/* The projection takes back the commit of a command that was answered, rows and watermark together:
 * a repeat is answered from the record, and only once the rows stand again. */
static void run_lost_commit(struct sim *sim)
{
    struct script script = {0};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, script_tick, NULL);
    struct part create = {.client = {.w = w, .id = 0}, .run = part_create_own};
    struct part again = {.client = {.w = w, .id = 0}, .run = part_create_own};
    sim_spawn(clients, script_run_part, &create);
    script_until(w, 1);
    uint64_t life = 0;
    (void)sim_node_service(w->nodes[0], &life);
    if (life == 1) { /* a later life answered from rows it has read: nothing of its own was lost */
        script_lose_rows(w, "DELETE FROM catalog_replay_index; DELETE FROM namespaces;"
                            "DELETE FROM namespace_name_epochs;"
                            /* 0 as an unsigned column holds it */
                            "UPDATE catalog_lane_shards SET watermark = -9223372036854775807 - 1;");
        sim_spawn(clients, script_run_part, &again);
        script_until(w, 2);
    }
    script_finish(w, clients);
}

void part_cut_checkpoint(struct client *c)
{
    SF_PB(CreateCheckpointRequest) request;
    const ProtobufCMessage *response = NULL;
    searchfabric__v1__create_checkpoint_request__init(&request);
    SIM_CHECK(c->w->sim, operate(c, true, "CreateCheckpoint", &request.base, &response) == SF_OK);
}

void part_retain(struct client *c)
{
    SF_PB(RunRetentionRequest) request;
    const ProtobufCMessage *response = NULL;
    searchfabric__v1__run_retention_request__init(&request);
    (void)operate(c, false, "RunRetention", &request.base, &response);
}

void part_make_old(struct client *c)
{
    put_own(c, 1);
    put_own(c, 2);
    put_own(c, 3);
    sim_sleep(c->process, MONTH_MS);
    part_cut_checkpoint(c);
    part_cut_checkpoint(c);
    c->w->aged = true;
}

void script_forget_key(struct world *w, const char *key, struct sf_buf *out)
{
    for (size_t i = 0; i < w->key_count; i++) {
        if (strcmp(w->keys[i].key, key) != 0)
            continue;
        sf_buf_fini(out);
        *out = w->keys[i].bytes;
        w->keys[i] = w->keys[--w->key_count];
        memset(&w->keys[w->key_count], 0, sizeof(w->keys[0]));
        return;
    }
}

void part_retain_all(struct client *c)
{
    SF_PB(RunRetentionRequest) request;
    const ProtobufCMessage *response = NULL;
    searchfabric__v1__run_retention_request__init(&request);
    (void)operate(c, true, "RunRetention", &request.base, &response);
    sim_sleep(c->process, HOURS_MS);
    (void)operate(c, true, "RunRetention", &request.base, &response);
}

void script_forget_superseded(struct world *w, struct sf_buf *first)
{
    bool is_new = false;
    for (size_t i = 0; i < w->key_count; i++) {
        if (strcmp(w->keys[i].key, "c0-own-2") == 0)
            is_new = !sf_view_equal(sf_buf_view(&w->keys[i].bytes), sf_buf_view(first));
    }
    script_forget_key(w, is_new ? "c0-own-3" : "c0-own-2", first);
    w->own_acked[0] = is_new ? 2 : 3;
}

static uint64_t count_replay_rows(struct world *w)
{
    struct sf_sql_stmt *stmt;
    struct sf_diag diag;
    bool row = false;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    enum sf_err err =
        sf_sql_prepare(conn, "SELECT COUNT(*) FROM catalog_replay_index", &diag, &stmt);
    SF_ASSERT(err == SF_OK);
    err = sf_sql_step(stmt, &diag, &row);
    SF_ASSERT(err == SF_OK && row);
    uint64_t count = (uint64_t)sf_sql_col_i64(stmt, 0);
    sf_sql_finish(stmt);
    sf_sql_release(conn);
    return count;
}

/* The successor removes it too; then it comes again, and its row stays. */
static void retain_and_update(struct client *c)
{
    part_retain_all(c);
    part_update_own(c);
    uint64_t count = count_replay_rows(c->w);
    sim_sleep(c->process, 3 * HOURS_MS);
    if (count_replay_rows(c->w) != count)
        sim_violation(c->w->sim, "an owner that was taken over from removed a row");
}

/* An owner is held in a round of retention and taken over from; a command that it was removing
 * comes again at the successor, by `repeat`. */
static void run_stale_retention(struct sim *sim, const struct script *held,
                                void (*repeat)(struct client *c))
{
    struct script script = {0};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    struct part old = {.client = {.w = w, .id = 0}, .run = part_make_old};
    struct part round = {.client = {.w = w, .id = 1}, .run = part_retain};
    struct part again = {.client = {.w = w, .id = 0}, .run = repeat};
    struct part last = {.client = {.w = w, .id = 1}, .run = part_retain_all};
    struct sf_buf first = {0};
    sim_spawn(clients, script_run_part, &old);
    script_until_within(w, 1, 2 * MONTH_MS);
    sim_spawn(clients, script_tick, NULL);
    if (held->early_ms != 0) /* a removal was cut short: its row is gone, its objects stand */
        script_lose_rows(w, "DELETE FROM catalog_replay_index WHERE idempotency_key = 'c0-own-2';");
    script = *held;
    script.done = 1;
    sim_spawn(clients, script_run_part, &round);
    sim_run_for(sim, 2000);
    SIM_CHECK(sim, script.late_ms == 0 && script.deleted_ms == 0 && script.listed_ms == 0 &&
                       script.part == NULL);
    (void)script_next_owner(w);
    sim_run_for(sim, 2000);
    script_forget_key(w, "c0-own-2", &first);
    sim_spawn(clients, script_run_part, &again);
    script_until_within(w, 3, 6 * HOURS_MS);
    script_forget_superseded(w, &first);
    sim_spawn(clients, script_run_part, &last);
    script_until_within(w, 4, 3 * HOURS_MS);
    sf_buf_fini(&first);
    script_finish(w, clients);
}

/* A delete of an aged record is on its way. */
static void run_late_delete(struct sim *sim)
{
    run_stale_retention(sim, &(struct script){.late_ms = 12000}, part_update_own);
}

/* The keys are listed and the chain was looked at, nothing is removed yet; then hours pass. */
static void run_late_rows(struct sim *sim)
{
    run_stale_retention(sim, &(struct script){.listed_ms = 3 * HOURS_MS, .pass = 2},
                        retain_and_update);
}

/* The list of what is left of a removal is on its way, and its successor does not know it. */
static void run_late_list(struct sim *sim)
{
    run_stale_retention(sim, &(struct script){.part = "catalog-removals", .early_ms = 12000},
                        part_update_own);
}

/* The first delete of a batch is done; then hours pass before the next one. */
static void run_late_batch(struct sim *sim)
{
    run_stale_retention(sim, &(struct script){.deleted_ms = HOURS_MS}, part_update_own);
}

const struct sim_scenario ccs_scripts[] = {
    SCRIPT(outcome_in_doubt), SCRIPT(late_control),      SCRIPT(late_swap),
    SCRIPT(late_show),        SCRIPT(show_into_rebuild), SCRIPT(given_up),
    SCRIPT(lost_commit),      SCRIPT(late_look),         HELD_SCRIPT(late_delete),
    HELD_SCRIPT(late_rows),   HELD_SCRIPT(late_list),    HELD_SCRIPT(late_batch),
};
const size_t ccs_script_count = SF_ARRAY_LEN(ccs_scripts);
