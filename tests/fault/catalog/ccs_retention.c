/*
 * Replays age. A lineage run, then a month passes; retention runs round by round while owners
 * change and clients go on, under old keys too: each gets its whole old answer or is a new key, and
 * no delete of an elder owner lands on what it holds by then. In the end retention runs until it
 * finds nothing more: what is left of old records names an object that is still current. Old keys
 * are sent once more. Then the survey and the rebuild, as in every lineage run.
 */
#include "fault/catalog/ccs_history.h"

#define MONTH_MS (RETENTION_MS + INT64_C(86400000))
#define DOUBT_MS INT64_C(7200000)
#define ROUNDS   8
#define OLD_KEYS 16

/* Two checkpoints, the month, and one more: nothing old is above the bound of either kept one. */
static void run_ageing(struct sim_process *process, void *arg)
{
    struct client *c = arg;
    c->process = process;
    c->arena = sf_arena_new((size_t)64 << 20);
    operate_checkpoint(c);
    (void)history_tail(c->w->history);
    sim_sleep(process, MONTH_MS);
    c->w->aged = true;
    operate_checkpoint(c);
    operate_checkpoint(c);
    sf_arena_destroy(c->arena);
    c->w->clients_done++;
}

static void run_keeper(struct sim_process *process, void *arg)
{
    struct client *c = arg;
    c->process = process;
    c->arena = sf_arena_new((size_t)64 << 20);
    for (int i = 0; i < ROUNDS; i++) {
        sim_sleep(process, (int64_t)sf_rng_below(sim_rng(c->w->sim), 700));
        if (sf_rng_below(sim_rng(c->w->sim), 100) < 65)
            operate_retention(c, false);
        else
            operate_step(c);
        sf_arena_reset(c->arena);
    }
    sf_arena_destroy(c->arena);
    c->w->clients_done++;
}

/* ---- what may be left --------------------------------------------------------------------- */

/* A create that took the newest epoch of its name: the next create asks whether it was applied. */
static bool has_newest_epoch(const struct state *s, const struct command *command)
{
    const SF_PB(CommandOutcomeObject) *o = command->outcome;
    uint64_t newest = 0;
    if (model_object_number(o) != 1)
        return false;
    if (o->command_kind == SF_PBE(COMMAND_KIND, PUT_NAMESPACE_METADATA))
        return o->namespace_name_allocation_epoch == s->ns_epoch[command->ns_name];
    for (size_t i = 0; i < s->coll_count; i++) {
        const struct coll_state *coll = &s->coll[i];
        if (coll->ns_id == o->scope->namespace_id && coll->name == command->coll_name &&
            coll->epoch > newest)
            newest = coll->epoch;
    }
    return o->command_kind == SF_PBE(COMMAND_KIND, PUT_COLLECTION_METADATA) &&
           o->collection_name_allocation_epoch == newest;
}

static bool is_current(const struct history *h, const struct command *command)
{
    const SF_PB(CommandOutcomeObject) *o = command->outcome;
    const struct state *s = h->states[h->command_count];
    const struct ns_state *ns = model_ns(s, o->scope->namespace_id);
    const struct coll_state *coll = model_coll(s, o->scope->namespace_id, o->scope->collection_id);
    if (o->n_control_objects == 0)
        return false;
    if (has_newest_epoch(s, command))
        return true;
    if (o->command_kind == SF_PBE(COMMAND_KIND, PUT_NAMESPACE_METADATA) ||
        o->command_kind == SF_PBE(COMMAND_KIND, NAMESPACE_LIFECYCLE_TRANSITION))
        return ns != NULL && ns->life != LIFE_RELEASED && model_object_number(o) == ns->revision;
    if (coll == NULL || coll->life == LIFE_RELEASED)
        return false;
    return o->command_kind != SF_PBE(COMMAND_KIND, PUT_COLLECTION_METADATA) ||
           model_object_number(o) == coll->revision;
}

/* One without a row answers nothing; a crash may leave it. */
static bool has_row(const struct history *h, const char *command_identity)
{
    struct sf_sql_stmt *stmt;
    struct sf_diag diag;
    bool row = false;
    struct sf_sql_conn *conn = sf_sql_acquire(h->w->sql, NULL, SF_SQL_READ);
    enum sf_err err = sf_sql_prepare(
        conn, "SELECT command_kind FROM catalog_replay_index WHERE command_identity = ?1", &diag,
        &stmt);
    SF_ASSERT(err == SF_OK);
    sf_sql_bind_text(stmt, 1, sf_view_str(command_identity));
    err = sf_sql_step(stmt, &diag, &row);
    SF_ASSERT(err == SF_OK);
    sf_sql_finish(stmt);
    sf_sql_release(conn);
    return row;
}

static void check_forgotten(struct history *h)
{
    struct sf_buf key = {0};
    for (size_t i = 0; i < h->command_count; i++) {
        const struct command *command = &h->commands[i];
        ProtobufCMessage *message = NULL;
        struct sf_diag diag;
        if (!history_aged(h, command, sim_now_ms(h->w->sim) - 1000) || is_current(h, command))
            continue;
        sf_buf_clear(&key);
        sf_catalog_key_outcome(&key, command->outcome->command_identity);
        enum sf_err err = sf_durable_read_wait(
            sim_backend(h->w->sim), NULL, sf_buf_view(&key),
            &searchfabric__v1__command_outcome_object__descriptor, h->arena, &diag, &message, NULL);
        const SF_PB(CommandOutcomeObject) *found = (const void *)message;
        if (err == SF_OK && found->abort == NULL &&
            found->entry->recovery_segment_epoch == command->slot &&
            has_row(h, command->outcome->command_identity))
            sim_violation(
                h->w->sim,
                "the record of segment %" PRIu64 " (%s of n%d/c%d) is never removed: %.*s",
                command->slot,
                protobuf_c_enum_descriptor_get_value(&searchfabric__v1__command_kind__descriptor,
                                                     (int)command->outcome->command_kind)
                    ->name,
                command->ns_name, command->coll_name, (int)key.len, (const char *)key.data);
    }
    sf_buf_fini(&key);
}

/* ---- the end of it ------------------------------------------------------------------------ */

static void send_old_keys(struct client *c)
{
    struct history *h = c->w->history;
    for (int i = 0; i < OLD_KEYS && h->aged_count > 0; i++) {
        const struct op op = h->calls[sf_rng_below(sim_rng(c->w->sim), h->aged_count)].op;
        if (op.kind <= OP_LAST_COMMAND)
            work_learn(h, perform(c, NULL, &op));
        sf_arena_reset(c->arena);
    }
}

static void run_last_rounds(struct sim_process *process, void *arg)
{
    struct client *c = arg;
    c->process = process;
    c->arena = sf_arena_new((size_t)64 << 20);
    operate_checkpoint(c);
    operate_checkpoint(c);
    operate_retention(c, true);
    sim_sleep(process, DOUBT_MS); /* a delete in doubt is left alone for an hour */
    operate_retention(c, true);
    history_collect(c->w->history);
    model_run(c->w->history);
    check_forgotten(c->w->history);
    send_old_keys(c);
    sf_arena_destroy(c->arena);
    c->w->clients_done++;
}

/* ---- the scenario ------------------------------------------------------------------------- */

static void wait_for(struct world *w, unsigned done, int64_t max_ms, const char *what)
{
    struct lineage_wait wait = {w, done};
    sim_run_until(w->sim, lineage_done, &wait, max_ms, what);
}

void ccs_retention_run(struct sim *sim)
{
    struct sim_options options = sim_default_options();
    struct client clients[CLIENTS + 1];
    if (!operate_serves("RunRetention"))
        return;
    struct world *w = world_new(sim, &options);
    struct sim_process *process = lineage_begin(w, clients, NULL);
    sim_run_for(sim, 5000);
    sim_settle(sim);
    sim_node_kill(w->nodes[0]);
    wait_for(w, CLIENTS + 1, 300000, "every call is answered");
    struct client keeper = {.w = w, .id = CLIENTS};
    sim_spawn(process, run_ageing, &keeper);
    wait_for(w, CLIENTS + 2, MONTH_MS + 300000, "a month passes");
    w->clients_done = 0;
    w->history->repeat_percent = 40;
    w->history->aged_count = w->history->call_count;
    options.chaos.max_kills += 4;
    options.chaos.max_pauses += 3;
    sim_storm(sim, &options);
    (void)lineage_begin(w, clients, process);
    sim_spawn(process, run_keeper, &keeper);
    sim_run_for(sim, 5000);
    sim_settle(sim);
    sim_node_kill(w->nodes[0]);
    wait_for(w, CLIENTS + 2, 3 * DOUBT_MS, "every call is answered a month later");
    sim_spawn(process, run_last_rounds, &keeper);
    wait_for(w, CLIENTS + 3, 3 * DOUBT_MS, "retention ends");
    lineage_finish(w, process);
}
