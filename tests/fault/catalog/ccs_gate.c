/*
 * What stands between a catalog and its store in a scripted run (ccs_script.h): it answers chosen
 * puts of the first owner as unknown and keeps them, to land them later, refuses them, or holds
 * back the answer of a put that was applied, a read or a delete.
 */
#include "fault/catalog/ccs_script.h"

#include <stdlib.h>

#define RECORDS "catalog-log/"

struct gate {
    struct sf_store base;
    struct sf_store *inner;
    struct world *w;
    struct sim_process *process;
};

static struct gate *gate_of(struct sf_store *store)
{
    return SF_CONTAINER_OF(store, struct gate, base);
}

/* Does it stand before the owner that the script is about? */
static bool is_ours(const struct gate *gate)
{
    const char *owner = gate->w->script->owner;
    return strcmp(sim_process_name(gate->process), owner == NULL ? "a.1" : owner) == 0;
}

static bool holds(struct sf_view key, const char *part)
{
    return memmem(key.ptr, key.len, part, strlen(part)) != NULL;
}

static bool chosen(const struct gate *gate, const struct sf_put *put)
{
    const struct script *script = gate->w->script;
    if (script == NULL || script->part == NULL || !is_ours(gate))
        return false;
    if (script->key != NULL)
        return sf_view_equal(put->key, sf_view_str(script->key));
    return holds(put->key, script->part);
}

static void keep(struct gate *gate, const struct sf_put *put)
{
    struct script *script = gate->w->script;
    if (script->key != NULL)
        return;
    script->key = sf_calloc(1, put->key.len + 1);
    memcpy(script->key, put->key.ptr, put->key.len);
    sf_buf_append(&script->body, put->body.ptr, put->body.len);
    script->cond = put->cond;
    script->match = put->match;
    sim_trace(gate->w->sim, "gate: keeps %s", script->key);
}

/* Runs the batch with the chosen puts taken out; on the calling task. */
static void gate_submit(struct sf_store *store, struct sf_batch *batch)
{
    struct gate *gate = gate_of(store);
    struct script *script = gate->w->script;
    struct sf_put *puts = sf_calloc(batch->count, sizeof(*puts));
    size_t *from = sf_calloc(batch->count, sizeof(*from));
    struct sf_batch rest = {.puts = puts};
    int64_t delay_ms = 0, early_ms = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct sf_put *put = &batch->puts[i];
        bool cancelled = false;
        for (size_t k = 0; k < i; k++)
            cancelled = cancelled || (batch->puts[k].stage < put->stage &&
                                      batch->puts[k].command == put->command &&
                                      (batch->puts[k].err == SF_ERR_AMBIGUOUS ||
                                       batch->puts[k].err == SF_ERR_UNAVAILABLE));
        put->err = SF_OK;
        if (cancelled) {
            put->err = SF_ERR_CANCELLED_STAGE;
        } else if (chosen(gate, put) && script->refuse) {
            put->err = SF_ERR_UNAVAILABLE;
        } else if (chosen(gate, put) && script->delay_ms == 0 && script->early_ms == 0) {
            keep(gate, put);
            put->err = SF_ERR_AMBIGUOUS;
        } else {
            if (chosen(gate, put)) {
                delay_ms = script->delay_ms;
                early_ms = script->early_ms;
                script->part = NULL;
            }
            from[rest.count] = i;
            puts[rest.count++] = *put;
        }
    }
    if (early_ms != 0)
        sim_sleep(gate->process, early_ms);
    if (rest.count != 0)
        sf_store_submit_wait(gate->inner, sim_process_sched(gate->process), &rest);
    for (size_t i = 0; i < rest.count; i++) {
        batch->puts[from[i]].err = puts[i].err;
        batch->puts[from[i]].etag = puts[i].etag;
    }
    free(puts);
    free(from);
    if (delay_ms != 0)
        sim_sleep(gate->process, delay_ms);
    batch->done(batch);
}

/* On the calling task. */
static void gate_get(struct sf_store *store, struct sf_get *get)
{
    struct gate *gate = gate_of(store);
    struct script *script = gate->w->script;
    int64_t hold_ms = script->hold_ms;
    if (hold_ms != 0 && strcmp(sim_process_name(gate->process), "b.1") == 0 &&
        holds(get->key, RECORDS)) {
        script->hold_ms = 0;
        sim_trace(gate->w->sim, "gate: holds a read");
        sim_sleep(gate->process, hold_ms);
    }
    if (script->look != NULL && is_ours(gate) && holds(get->key, script->look) &&
        script->pass-- == 0) {
        script->look = NULL;
        sim_trace(gate->w->sim, "gate: holds a read");
        sim_sleep(gate->process, script->late_ms);
    }
    sf_store_get(gate->inner, get);
}

static enum sf_err gate_list(struct sf_store *store, struct sf_sched *sched, struct sf_view prefix,
                             struct sf_view start_after, size_t limit, struct sf_arena *arena,
                             struct sf_list_entry **out_entries, size_t *out_count)
{
    struct gate *gate = gate_of(store);
    struct script *script = gate->w->script;
    enum sf_err err = sf_store_list_wait(gate->inner, sched, prefix, start_after, limit, arena,
                                         out_entries, out_count);
    int64_t listed_ms = script->listed_ms;
    if (listed_ms != 0 && is_ours(gate) && holds(prefix, SF_CATALOG_SEGMENT_PREFIX) &&
        script->pass-- == 0) {
        script->listed_ms = 0;
        sim_trace(gate->w->sim, "gate: holds a listing");
        sim_sleep(gate->process, listed_ms);
    }
    return err;
}

static enum sf_err gate_remove(struct sf_store *store, struct sf_sched *sched, struct sf_view key)
{
    struct gate *gate = gate_of(store);
    struct script *script = gate->w->script;
    int64_t late_ms = script->late_ms;
    int64_t deleted_ms = script->deleted_ms;
    if (late_ms != 0 && is_ours(gate) && holds(key, RECORDS)) {
        script->late_ms = 0;
        sim_trace(gate->w->sim, "gate: holds a delete");
        sim_sleep(gate->process, late_ms);
    }
    enum sf_err err = sf_store_remove_wait(gate->inner, sched, key);
    if (deleted_ms != 0 && is_ours(gate)) {
        script->deleted_ms = 0;
        sim_trace(gate->w->sim, "gate: holds a delete's answer");
        sim_sleep(gate->process, deleted_ms);
    }
    return err;
}

static void gate_nothing(struct sf_store *store)
{
    (void)store;
}

static const struct sf_store_vtable gate_vtable = {.submit = gate_submit,
                                                   .get = gate_get,
                                                   .list = gate_list,
                                                   .remove = gate_remove,
                                                   .destroy = gate_nothing};

struct sf_store *ccs_gate_new(struct world *w, struct sim_process *process, struct sf_store *inner)
{
    if (w->script == NULL)
        return inner;
    struct gate *gate = sf_calloc(1, sizeof(*gate));
    *gate =
        (struct gate){.base = {.vtable = &gate_vtable}, .inner = inner, .w = w, .process = process};
    return &gate->base;
}

void ccs_gate_destroy(struct sf_store *gate)
{
    if (gate != NULL && gate->vtable == &gate_vtable)
        free(gate_of(gate));
}

/* ---- the director ------------------------------------------------------------------------- */

void script_tick(struct sim_process *process, void *arg)
{
    (void)arg;
    for (int i = 0; i < 80; i++)
        sim_sleep(process, 250);
}

struct sim_node *script_next_owner(struct world *w)
{
    struct sim_node *before = w->nodes[0];
    w->nodes[0] = w->nodes[1] = sim_node_new(w->sim, "b", &w->service);
    return before;
}

struct world *script_begin(struct sim *sim, struct script *script)
{
    struct sim_options options = sim_default_options();
    memset(&options.rates, 0, sizeof(options.rates));
    memset(&options.sql, 0, sizeof(options.sql));
    memset(&options.chaos, 0, sizeof(options.chaos));
    options.max_crashes = 0;
    struct world *w = world_new(sim, &options);
    w->script = script;
    w->nodes[0] = w->nodes[1] = sim_node_new(sim, "a", &w->service);
    return w;
}

void script_land(struct world *w)
{
    struct script *script = w->script;
    script->part = NULL;
    if (script->key == NULL)
        return;
    struct sf_put put = {.key = sf_view_str(script->key),
                         .body = sf_buf_view(&script->body),
                         .cond = script->cond,
                         .match = script->match};
    enum sf_err err = sf_store_put_wait(sim_backend(w->sim), NULL, &put);
    sim_trace(w->sim, "gate: lands %s: %s", script->key, sf_err_info(err)->name);
}

void script_lose_rows(struct world *w, const char *sql)
{
    struct sf_diag diag;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    enum sf_err err = sf_sql_exec(conn, sql, &diag);
    SF_ASSERT(err == SF_OK);
    sf_sql_release(conn);
    sim_trace(w->sim, "rows lost: %s", sql);
}

void script_run_part(struct sim_process *process, void *arg)
{
    struct part *part = arg;
    part->client.process = process;
    part->client.arena = sf_arena_new((size_t)64 << 20);
    part->run(&part->client);
    sf_arena_destroy(part->client.arena);
    part->client.w->script->done++;
}

struct wanted {
    struct world *w;
    unsigned done;
};

static bool is_done(struct sim *sim, void *ctx)
{
    const struct wanted *wanted = ctx;
    (void)sim;
    return wanted->w->script->done >= wanted->done;
}

void script_until_within(struct world *w, unsigned done, int64_t max_ms)
{
    struct wanted wanted = {w, done};
    sim_run_until(w->sim, is_done, &wanted, max_ms, "the scripted clients are through");
}

void script_until(struct world *w, unsigned done)
{
    script_until_within(w, done, 300000);
}

void script_finish(struct world *w, struct sim_process *clients)
{
    struct script *script = w->script;
    check_end(w, clients);
    free(script->key);
    sf_buf_fini(&script->body);
    world_destroy(w);
}
