/*
 * Scripted schedules, each for one fence that chance hardly reaches. The gate stands between a
 * catalog and its store: it answers chosen puts of the first owner as unknown and keeps them, to
 * land them later, or holds back the answer of a put that was applied.
 */
#include "fault/catalog/ccs_history.h"

#include <stdlib.h>

#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define MONTH_MS (RETENTION_MS + INT64_C(86400000))
#define HOURS_MS INT64_C(7200000)

/* What happens to puts of owner `a`'s first life whose key holds `part`. */
struct script {
    const char *part;   /* NULL = nothing */
    int64_t delay_ms;   /* > 0: applied, the answer comes this much later, once */
    bool refuse;        /* not applied, and the answer says so */
    int64_t hold_ms;    /* > 0: the next owner's first read of a record takes this much longer */
    int64_t late_ms;    /* > 0: the first delete of a record lands this much later */
    const char *look;   /* the first owner's next read of such a key takes late_ms longer */
    char *key;          /* of the put that is being kept; others of that kind pass */
    struct sf_buf body; /* its bytes */
    enum sf_put_cond cond;
    struct sf_etag match;
    unsigned done; /* clients that are through */
};

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

static bool chosen(const struct gate *gate, const struct sf_put *put)
{
    const struct script *script = gate->w->script;
    if (script == NULL || script->part == NULL ||
        strcmp(sim_process_name(gate->process), "a.1") != 0)
        return false;
    if (script->key != NULL)
        return sf_view_equal(put->key, sf_view_str(script->key));
    return memmem(put->key.ptr, put->key.len, script->part, strlen(script->part)) != NULL;
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
    int64_t delay_ms = 0;
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
        } else if (chosen(gate, put) && script->delay_ms == 0) {
            keep(gate, put);
            put->err = SF_ERR_AMBIGUOUS;
        } else {
            if (chosen(gate, put)) {
                delay_ms = script->delay_ms;
                script->part = NULL;
            }
            from[rest.count] = i;
            puts[rest.count++] = *put;
        }
    }
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
    static const char record[] = "catalog-log/";
    struct gate *gate = gate_of(store);
    struct script *script = gate->w->script;
    int64_t hold_ms = script->hold_ms;
    if (hold_ms != 0 && strcmp(sim_process_name(gate->process), "b.1") == 0 &&
        memmem(get->key.ptr, get->key.len, record, sizeof(record) - 1) != NULL) {
        script->hold_ms = 0;
        sim_trace(gate->w->sim, "gate: holds a read");
        sim_sleep(gate->process, hold_ms);
    }
    if (script->look != NULL && strcmp(sim_process_name(gate->process), "a.1") == 0 &&
        memmem(get->key.ptr, get->key.len, script->look, strlen(script->look)) != NULL) {
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
    return sf_store_list_wait(gate_of(store)->inner, sched, prefix, start_after, limit, arena,
                              out_entries, out_count);
}

static enum sf_err gate_remove(struct sf_store *store, struct sf_sched *sched, struct sf_view key)
{
    static const char record[] = "catalog-log/";
    struct gate *gate = gate_of(store);
    int64_t late_ms = gate->w->script->late_ms;
    if (late_ms != 0 && strcmp(sim_process_name(gate->process), "a.1") == 0 &&
        memmem(key.ptr, key.len, record, sizeof(record) - 1) != NULL) {
        gate->w->script->late_ms = 0;
        sim_trace(gate->w->sim, "gate: holds a delete");
        sim_sleep(gate->process, late_ms);
    }
    return sf_store_remove_wait(gate->inner, sched, key);
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

/* Keeps time going in small steps, so that the director's waits end when they should. */
static void tick(struct sim_process *process, void *arg)
{
    (void)arg;
    for (int i = 0; i < 80; i++)
        sim_sleep(process, 250);
}

static struct world *begin(struct sim *sim, struct script *script)
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

/* The put that was kept lands, if its condition holds; later ones pass. */
static void land(struct world *w)
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

/* Takes rows out of the projection while its owner serves. */
static void lose_rows(struct world *w, const char *sql)
{
    struct sf_diag diag;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    enum sf_err err = sf_sql_exec(conn, sql, &diag);
    SF_ASSERT(err == SF_OK);
    sf_sql_release(conn);
    sim_trace(w->sim, "rows lost: %s", sql);
}

/* One client's doing. */
struct part {
    struct client client;
    void (*run)(struct client *c);
};

static void run_part(struct sim_process *process, void *arg)
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

static void until_within(struct world *w, unsigned done, int64_t max_ms)
{
    struct wanted wanted = {w, done};
    sim_run_until(w->sim, is_done, &wanted, max_ms, "the scripted clients are through");
}

static void until(struct world *w, unsigned done)
{
    until_within(w, done, 300000);
}

static void finish(struct world *w, struct sim_process *clients)
{
    struct script *script = w->script;
    check_end(w, clients);
    free(script->key);
    sf_buf_fini(&script->body);
    world_destroy(w);
}

static void create_shared(struct client *c)
{
    put_shared_namespace(c);
}

static void create_own(struct client *c)
{
    put_own(c, 1);
}

static void update_own(struct client *c)
{
    put_own(c, 2);
}

static void create_schema(struct client *c)
{
    put_shared_namespace(c);
    put_shared_collection(c);
    put_schema(c, 1, "");
}

static void create_collection(struct client *c)
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
    struct world *w = begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, tick, NULL);
    struct part first = {.client = {.w = w, .id = 0}, .run = create_shared};
    struct part second = {.client = {.w = w, .id = 1}, .run = create_shared};
    sim_spawn(clients, run_part, &first);
    sim_run_for(sim, 1500);
    sim_spawn(clients, run_part, &second);
    sim_run_for(sim, 6000);
    land(w);
    until(w, 2);
    finish(w, clients);
}

/* A control object of a deposed owner's attempt, still being put when its successor has committed
 * another one there. */
static void run_late_control(struct sim *sim)
{
    struct script script = {0};
    struct world *w = begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, tick, NULL);
    struct part create = {.client = {.w = w, .id = 0}, .run = create_own};
    struct part update = {.client = {.w = w, .id = 0}, .run = update_own};
    struct part again = {.client = {.w = w, .id = 0}, .run = update_own};
    sim_spawn(clients, run_part, &create);
    until(w, 1);
    script.part = "namespace_descriptor_v2";
    sim_spawn(clients, run_part, &update);
    sim_run_for(sim, 2000);
    struct sim_node *a = w->nodes[0];
    struct sim_node *b = sim_node_new(sim, "b", &w->service);
    w->nodes[0] = w->nodes[1] = b;
    sim_spawn(clients, run_part, &again);
    sim_run_for(sim, 8000);
    w->nodes[0] = a;
    script.part = NULL;
    until(w, 3);
    finish(w, clients);
}

/* A swap of a convergence block by a deposed owner lands after its successor answered from it. */
static void run_late_swap(struct sim *sim)
{
    struct script script = {0};
    struct world *w = begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, tick, NULL);
    struct part create = {.client = {.w = w, .id = 0}, .run = create_schema};
    struct part ready = {.client = {.w = w, .id = 0}, .run = signal_ready};
    struct part look = {.client = {.w = w, .id = 1}, .run = see_sync};
    sim_spawn(clients, run_part, &create);
    until(w, 1);
    script.part = "schema_generation_v1";
    sim_spawn(clients, run_part, &ready);
    sim_run_for(sim, 2000);
    struct sim_node *a = w->nodes[0];
    struct sim_node *b = sim_node_new(sim, "b", &w->service);
    w->nodes[0] = w->nodes[1] = b;
    sim_run_for(sim, 3000);
    sim_spawn(clients, run_part, &look);
    sim_run_for(sim, 3000);
    land(w);
    w->nodes[0] = a;
    until(w, 3);
    finish(w, clients);
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
    struct world *w = begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, tick, NULL);
    struct part create = {.client = {.w = w, .id = 0}, .run = create_schema};
    struct part ready = {.client = {.w = w, .id = 0}, .run = signal_ready};
    struct part next = {.client = {.w = w, .id = 1}, .run = promote_next};
    sim_spawn(clients, run_part, &create);
    until(w, 1);
    script.late_ms = 12000;
    script.look = "optimizer_statistics_head";
    sim_spawn(clients, run_part, &ready);
    sim_run_for(sim, 2000);
    struct sim_node *a = w->nodes[0];
    struct sim_node *b = sim_node_new(sim, "b", &w->service);
    w->nodes[0] = w->nodes[1] = b;
    sim_run_for(sim, 1000);
    sim_spawn(clients, run_part, &next);
    sim_run_for(sim, 12000);
    w->nodes[0] = a;
    until(w, 3);
    finish(w, clients);
}

/* An owner that is about to show a promotion freezes; its successor shows a later state. */
static void run_late_show(struct sim *sim)
{
    struct script script = {0};
    struct world *w = begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, tick, NULL);
    struct part create = {.client = {.w = w, .id = 0}, .run = create_schema};
    struct part ready = {.client = {.w = w, .id = 0}, .run = signal_ready};
    struct part drift = {.client = {.w = w, .id = 1}, .run = signal_drift};
    sim_spawn(clients, run_part, &create);
    until(w, 1);
    script.delay_ms = 12000;
    script.part = "optimizer_statistics_head";
    sim_spawn(clients, run_part, &ready);
    sim_run_for(sim, 2000);
    struct sim_node *a = w->nodes[0];
    struct sim_node *b = sim_node_new(sim, "b", &w->service);
    w->nodes[0] = w->nodes[1] = b;
    sim_spawn(clients, run_part, &drift);
    sim_run_for(sim, 12000);
    w->nodes[0] = a;
    until(w, 3);
    finish(w, clients);
}

/* An owner freezes with a schema generation committed and not shown. The projection is lost, and
 * the owner goes on while its successor is writing the rows again: a generation that stands there
 * before its collection would never become the active one. */
static void run_show_into_rebuild(struct sim *sim)
{
    struct script script = {0};
    struct world *w = begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, tick, NULL);
    struct part create = {.client = {.w = w, .id = 0}, .run = create_collection};
    struct part schema = {.client = {.w = w, .id = 0}, .run = create_generation};
    sim_spawn(clients, run_part, &create);
    until(w, 1);
    script.delay_ms = 8000;
    script.part = "catalog-log/";
    sim_spawn(clients, run_part, &schema);
    sim_run_for(sim, 2000);
    lose_rows(w, "DELETE FROM catalog_lane_shards;");
    script.hold_ms = 10000;
    struct sim_node *a = w->nodes[0];
    struct sim_node *b = sim_node_new(sim, "b", &w->service);
    w->nodes[0] = w->nodes[1] = b;
    sim_run_for(sim, 14000);
    w->nodes[0] = a;
    until(w, 2);
    finish(w, clients);
}

/* The store refuses a control object of a listed command again and again: its owner gives it up,
 * and the watermark may pass its entries once they are settled. */
static void run_given_up(struct sim *sim)
{
    struct script script = {0};
    struct world *w = begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, tick, NULL);
    struct part create = {.client = {.w = w, .id = 0}, .run = create_own};
    struct part update = {.client = {.w = w, .id = 0}, .run = update_own};
    struct part other = {.client = {.w = w, .id = 1}, .run = create_own};
    sim_spawn(clients, run_part, &create);
    until(w, 1);
    script.refuse = true;
    script.part = "namespace_descriptor_v2";
    sim_spawn(clients, run_part, &update);
    sim_run_for(sim, 4000);
    sim_spawn(clients, run_part, &other);
    until(w, 2);
    check_settled(w);
    script.part = NULL;
    until(w, 3);
    finish(w, clients);
}

/* The projection takes back the commit of a command that was answered, rows and watermark together:
 * a repeat is answered from the record, and only once the rows stand again. */
static void run_lost_commit(struct sim *sim)
{
    struct script script = {0};
    struct world *w = begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    sim_spawn(clients, tick, NULL);
    struct part create = {.client = {.w = w, .id = 0}, .run = create_own};
    struct part again = {.client = {.w = w, .id = 0}, .run = create_own};
    sim_spawn(clients, run_part, &create);
    until(w, 1);
    uint64_t life = 0;
    (void)sim_node_service(w->nodes[0], &life);
    if (life == 1) { /* a later life answered from rows it has read: nothing of its own was lost */
        lose_rows(w, "DELETE FROM catalog_replay_index; DELETE FROM namespaces;"
                     "DELETE FROM namespace_name_epochs;"
                     /* 0 as an unsigned column holds it */
                     "UPDATE catalog_lane_shards SET watermark = -9223372036854775807 - 1;");
        sim_spawn(clients, run_part, &again);
        until(w, 2);
    }
    finish(w, clients);
}

static void cut_checkpoint(struct client *c)
{
    SF_PB(CreateCheckpointRequest) request;
    const ProtobufCMessage *response = NULL;
    searchfabric__v1__create_checkpoint_request__init(&request);
    SIM_CHECK(c->w->sim, operate(c, true, "CreateCheckpoint", &request.base, &response) == SF_OK);
}

static void retain(struct client *c)
{
    SF_PB(RunRetentionRequest) request;
    const ProtobufCMessage *response = NULL;
    searchfabric__v1__run_retention_request__init(&request);
    (void)operate(c, false, "RunRetention", &request.base, &response);
}

/* An own namespace with a superseded update that is past the retention. */
static void make_old(struct client *c)
{
    put_own(c, 1);
    put_own(c, 2);
    put_own(c, 3);
    sim_sleep(c->process, MONTH_MS);
    cut_checkpoint(c);
    cut_checkpoint(c);
    c->w->aged = true;
}

/* The key is no longer one that has an answer; `out` gets what it was. */
static void forget_key(struct world *w, const char *key, struct sf_buf *out)
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

/* Retention to its end, and once more when no delete is in doubt. */
static void retain_all(struct client *c)
{
    SF_PB(RunRetentionRequest) request;
    const ProtobufCMessage *response = NULL;
    searchfabric__v1__run_retention_request__init(&request);
    (void)operate(c, true, "RunRetention", &request.base, &response);
    sim_sleep(c->process, HOURS_MS);
    (void)operate(c, true, "RunRetention", &request.base, &response);
}

/* Whether the second update's key was a new one (and its value is the namespace's again), or was
 * answered as before; what of the two updates is superseded is no longer asked for. */
static void forget_superseded(struct world *w, struct sf_buf *first)
{
    bool is_new = false;
    for (size_t i = 0; i < w->key_count; i++) {
        if (strcmp(w->keys[i].key, "c0-own-2") == 0)
            is_new = !sf_view_equal(sf_buf_view(&w->keys[i].bytes), sf_buf_view(first));
    }
    forget_key(w, is_new ? "c0-own-3" : "c0-own-2", first);
    w->own_acked[0] = is_new ? 2 : 3;
}

/* A delete of an aged record is on its way when its owner is taken over from; its command comes
 * again at the successor. */
static void run_late_delete(struct sim *sim)
{
    struct script script = {0};
    struct world *w = begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    struct part old = {.client = {.w = w, .id = 0}, .run = make_old};
    struct part round = {.client = {.w = w, .id = 1}, .run = retain};
    struct part again = {.client = {.w = w, .id = 0}, .run = update_own};
    struct part last = {.client = {.w = w, .id = 1}, .run = retain_all};
    struct sf_buf first = {0};
    sim_spawn(clients, run_part, &old);
    until_within(w, 1, 2 * MONTH_MS);
    sim_spawn(clients, tick, NULL);
    script.late_ms = 12000;
    sim_spawn(clients, run_part, &round);
    sim_run_for(sim, 2000);
    w->nodes[0] = w->nodes[1] = sim_node_new(sim, "b", &w->service);
    sim_run_for(sim, 2000);
    forget_key(w, "c0-own-2", &first);
    sim_spawn(clients, run_part, &again);
    until_within(w, 3, HOURS_MS);
    forget_superseded(w, &first);
    sim_spawn(clients, run_part, &last);
    until_within(w, 4, 3 * HOURS_MS);
    sf_buf_fini(&first);
    finish(w, clients);
}

const struct sim_scenario ccs_scripts[] = {
    {.name = "ccs_outcome_in_doubt", .area = "ccs", .run = run_outcome_in_doubt},
    {.name = "ccs_late_control", .area = "ccs", .run = run_late_control},
    {.name = "ccs_late_swap", .area = "ccs", .run = run_late_swap},
    {.name = "ccs_late_show", .area = "ccs", .run = run_late_show},
    {.name = "ccs_show_into_rebuild", .area = "ccs", .run = run_show_into_rebuild},
    {.name = "ccs_given_up", .area = "ccs", .run = run_given_up},
    {.name = "ccs_lost_commit", .area = "ccs", .run = run_lost_commit},
    {.name = "ccs_late_look", .area = "ccs", .run = run_late_look},
    {.name = "ccs_late_delete", .area = "ccs", .run = run_late_delete},
};
const size_t ccs_script_count = SF_ARRAY_LEN(ccs_scripts);
