/*
 * Lineages come and go under two contending owners: names are created, dropped, released and
 * created again, namespaces go from ACTIVE to TOMBSTONED and back to nothing. What was answered is
 * judged afterwards (ccs_history.h); then everything is asked again, and once more at a node that
 * rebuilds the projection from the store alone.
 *
 * Checked (protocols.md section 5): 1, 2, 3, 8, 9, 11.
 */
#include "fault/catalog/ccs_history.h"

#define STEPS  20 /* of a client */
#define ROUNDS 8  /* of the operator */

static void run_client(struct sim_process *process, void *arg)
{
    struct client *c = arg;
    c->process = process;
    c->arena = sf_arena_new((size_t)64 << 20);
    for (int i = 0; i < STEPS; i++) {
        work_step(c);
        sim_sleep(process, (int64_t)sf_rng_below(sim_rng(c->w->sim), 150));
    }
    sf_arena_destroy(c->arena);
    c->w->clients_done++;
}

static void run_operator(struct sim_process *process, void *arg)
{
    struct client *c = arg;
    c->process = process;
    c->arena = sf_arena_new((size_t)64 << 20);
    for (int i = 0; i < ROUNDS; i++) {
        sim_sleep(process, (int64_t)sf_rng_below(sim_rng(c->w->sim), 1200));
        operate_step(c);
    }
    sf_arena_destroy(c->arena);
    c->w->clients_done++;
}

bool lineage_done(struct sim *sim, void *ctx)
{
    const struct lineage_wait *wait = ctx;
    (void)sim;
    return wait->w->clients_done >= wait->done;
}

/* ---- the survey --------------------------------------------------------------------------- */

static bool asked_before(const struct history *h, size_t count, const struct op *op)
{
    for (size_t i = 0; i < count; i++) {
        const struct op *other = &h->calls[i].op;
        if (other->kind == op->kind && strcmp(other->key, op->key) == 0 &&
            other->value == op->value && other->fenced == op->fenced && other->ns_id == op->ns_id &&
            other->coll_id == op->coll_id && other->expected == op->expected &&
            other->version == op->version && other->target == op->target)
            return true;
    }
    return false;
}

static void survey_one(struct client *c, const struct op *op)
{
    struct history *h = c->w->history;
    struct sim_node *node = c->w->rebuilder;
    h->survey[h->survey_count++] = (size_t)(perform(c, node, op) - h->calls);
    sf_arena_reset(c->arena);
}

/* Each committed key and intent again, once with each payload that it was sent with. Those whose
 * record may be gone would run afresh. */
static void survey_commands(struct client *c)
{
    struct history *h = c->w->history;
    size_t count = h->call_count;
    for (size_t i = 0; i < count; i++) {
        const struct op op = h->calls[i].op;
        size_t pos = 0;
        const struct command *own =
            op.kind <= OP_LAST_COMMAND ? history_command(h, &op, &pos) : NULL;
        bool stands = own != NULL && !history_aged(h, own, sim_now_ms(c->w->sim));
        if (stands && !asked_before(h, i, &op))
            survey_one(c, &op);
    }
}

static void survey_reads(struct client *c)
{
    struct history *h = c->w->history;
    struct op op = {.kind = OP_LIST_NS, .ns_name = NO_NAME, .coll_name = NO_NAME};
    survey_one(c, &op);
    for (int i = 0; i < NS_NAMES; i++)
        survey_one(c, &(struct op){.kind = OP_GET_NS, .ns_name = i, .coll_name = NO_NAME});
    for (size_t i = 0; i < h->seen_count; i++) {
        const struct seen s = h->seen[i];
        op = (struct op){
            .ns_name = s.ns_name, .coll_name = s.coll_name, .ns_id = s.ns_id, .coll_id = s.coll_id};
        static const enum op_kind of_ns[] = {OP_GET_NS, OP_LIST_COLL, OP_COUNT};
        static const enum op_kind of_coll[] = {OP_GET_COLL, OP_RESOLVE, OP_GET_SCHEMA, OP_ADMISSION,
                                               OP_COUNT};
        for (const enum op_kind *kind = s.coll_id == 0 ? of_ns : of_coll; *kind != OP_COUNT;
             kind++) {
            op.kind = *kind;
            survey_one(c, &op);
        }
    }
}

static void run_survey(struct sim_process *process, void *arg)
{
    struct world *w = arg;
    struct client c = {.w = w, .process = process};
    c.arena = sf_arena_new((size_t)64 << 20);
    revive_names(&c);
    history_collect(w->history);
    survey_commands(&c);
    survey_reads(&c);
    operate_sound(&c);
    if (sf_rng_below(sim_rng(w->sim), 2) == 0)
        operate_checkpoint(&c);
    sf_arena_destroy(c.arena);
    w->reread = true;
}

/* The same calls at the node that rebuilt. */
static void run_resurvey(struct sim_process *process, void *arg)
{
    struct world *w = arg;
    struct client c = {.w = w, .process = process};
    struct history *h = w->history;
    size_t count = h->survey_count;
    c.arena = sf_arena_new((size_t)64 << 20);
    check_run_projectors(w, process, c.arena);
    for (size_t i = 0; i < count; i++)
        survey_one(&c, &h->calls[h->survey[i]].op);
    operate_sound(&c);
    sf_arena_destroy(c.arena);
    w->reread = true;
}

static void run_mended(struct sim_process *process, void *arg)
{
    struct world *w = arg;
    struct client c = {.w = w, .process = process};
    c.arena = sf_arena_new((size_t)64 << 20);
    operate_mended(&c);
    sf_arena_destroy(c.arena);
    w->reread = true;
}

static bool is_surveyed(struct sim *sim, void *ctx)
{
    const struct world *w = ctx;
    (void)sim;
    return w->reread;
}

static void comparable_ns(const SF_PB(NamespaceDescriptor) * seen, struct sf_buf *out)
{
    SF_PB(NamespaceDescriptor) copy = *seen;
    copy.approx_stats = NULL;
    copy.index = NULL;
    copy.completeness = NULL;
    sf_pbjson_encode(&copy.base, out);
}

static void comparable_coll(const SF_PB(CollectionDescriptor) * seen, struct sf_buf *out)
{
    SF_PB(CollectionDescriptor) copy = *seen;
    copy.approx_stats = NULL;
    copy.index = NULL;
    copy.completeness = NULL;
    sf_pbjson_encode(&copy.base, out);
}

/* The parts of a read that must be the same after a rebuild. */
static void comparable_read(const struct asked *asked, struct sf_buf *out)
{
    if (asked->op.kind == OP_GET_NS) {
        comparable_ns(((const SF_PB(GetNamespaceMetadataResponse) *)asked->response)->descriptor,
                      out);
    } else if (asked->op.kind == OP_GET_COLL) {
        comparable_coll(((const SF_PB(GetCollectionMetadataResponse) *)asked->response)->descriptor,
                        out);
    } else if (asked->op.kind == OP_LIST_NS) {
        const SF_PB(ListNamespacesResponse) *list = (const void *)asked->response;
        for (size_t i = 0; i < list->n_namespaces; i++)
            comparable_ns(list->namespaces[i], out);
    } else if (asked->op.kind == OP_LIST_COLL) {
        const SF_PB(ListCollectionsResponse) *list = (const void *)asked->response;
        for (size_t i = 0; i < list->n_collections; i++)
            comparable_coll(list->collections[i], out);
    } else if (asked->op.kind == OP_RESOLVE) {
        const SF_PB(ResolveCollectionNameBindingResponse) *resolve = (const void *)asked->response;
        if (resolve->collection != NULL)
            sf_pbjson_encode(&resolve->collection->base, out);
    } else if (asked->op.kind == OP_ADMISSION) {
        SF_PB(CollectionAdmissionState)
        state = *((const SF_PB(GetCollectionAdmissionStateResponse) *)asked->response)->state;
        state.collection_name_binding_revision = 0;
        sf_pbjson_encode(&state.base, out);
    } else {
        sf_pbjson_encode(asked->response, out);
    }
}

/* What must be the same after a rebuild. The binding revision must not, and what projectors derive
 * may be missing until they have run. */
static void comparable(const struct asked *asked, struct sf_buf *out)
{
    sf_buf_clear(out);
    sf_buf_append_str(out, sf_err_info(asked->err)->name);
    if (asked->err == SF_OK)
        comparable_read(asked, out);
}

static void compare_surveys(struct history *h)
{
    struct sf_buf before = {0};
    struct sf_buf after = {0};
    char text[160];
    size_t count = h->survey_count / 2;
    for (size_t i = 0; i < count; i++) {
        const struct asked *asked = &h->calls[h->survey[i]];
        comparable(asked, &before);
        comparable(&h->calls[h->survey[count + i]], &after);
        if (!sf_view_equal(sf_buf_view(&before), sf_buf_view(&after)))
            sim_violation(h->w->sim, "%s was answered %.*s, after a rebuild %.*s",
                          op_text(&asked->op, text), (int)before.len, (const char *)before.data,
                          (int)after.len, (const char *)after.data);
    }
    sf_buf_fini(&before);
    sf_buf_fini(&after);
}

static void survey(struct world *w, struct sim_process *clients,
                   void (*run)(struct sim_process *process, void *arg), const char *what)
{
    w->reread = false;
    sim_spawn(clients, run, w);
    sim_run_until(w->sim, is_surveyed, w, 300000, what);
}

/* ---- scenarios ---------------------------------------------------------------------------- */

void lineage_finish(struct world *w, struct sim_process *clients)
{
    const struct sim_service rebuild = {.start = ccs_start_rebuilding, .stop = ccs_stop, .ctx = w};
    struct history *h = w->history;
    struct sf_buf before = {0};
    struct sf_buf after = {0};
    uint64_t since = check_since(w);
    h->survey = sf_calloc(MAX_CALLS, sizeof(*h->survey));
    survey(w, clients, run_survey, "every key is answered again");
    check_settled(w);
    check_dump_rows(w->sql, since, &before);
    w->rebuilder = sim_node_new(w->sim, "rebuild", &rebuild);
    survey(w, clients, run_resurvey, "every key is answered after a rebuild");
    check_dump_rows(w->rebuilt, since, &after);
    history_collect(h);
    model_run(h);
    check_epochs(h, w->sql);
    check_epochs(h, w->rebuilt);
    judge_calls(h);
    judge_bindings(h);
    compare_surveys(h);
    check_same_text(w, "rows", &before, &after);
    survey(w, clients, run_mended, "a repair mends what it can");
    sim_trace(w->sim, "%zu calls, %zu commands", h->call_count, h->command_count);
    free(h->survey);
    sf_buf_fini(&before);
    sf_buf_fini(&after);
    world_destroy(w);
}

struct sim_process *lineage_begin(struct world *w, struct client clients[CLIENTS + 1],
                                  struct sim_process *process)
{
    if (process == NULL) {
        w->history = history_new(w);
        w->nodes[0] = sim_node_new(w->sim, "a", &w->service);
        w->nodes[1] = sim_node_new(w->sim, "b", &w->service);
        process = sim_process_new(w->sim, "clients");
    }
    for (unsigned i = 0; i <= CLIENTS; i++) {
        clients[i] = (struct client){.w = w, .id = i};
        sim_spawn(process, i == CLIENTS ? run_operator : run_client, &clients[i]);
    }
    return process;
}

static void run_with(struct sim *sim, const struct sim_options *options, bool lose)
{
    struct client clients[CLIENTS + 1];
    struct world *w = world_new(sim, options);
    struct sim_process *process = lineage_begin(w, clients, NULL);
    sim_run_for(sim, 3000);
    if (lose)
        lose_projection(w, "DELETE FROM catalog_lane_shards;");
    sim_run_for(sim, 2500);
    if (lose)
        lose_projection(w, "DELETE FROM catalog_lane_shards; DELETE FROM namespaces;"
                           "DELETE FROM collections; DELETE FROM catalog_replay_index;"
                           "DELETE FROM schema_generations;"
                           "DELETE FROM namespace_name_epochs;"
                           "DELETE FROM collection_name_epochs;"
                           "DELETE FROM collection_statistics_heads;");
    sim_run_for(sim, 2500);
    sim_settle(sim);
    sim_node_kill(w->nodes[0]);
    struct lineage_wait wait = {w, CLIENTS + 1};
    sim_run_until(sim, lineage_done, &wait, 300000, "every call is answered");
    lineage_finish(w, process);
}

static void run_lineage(struct sim *sim)
{
    struct sim_options options = sim_default_options();
    run_with(sim, &options, false);
}

static void run_doubt(struct sim *sim)
{
    struct sim_options options = ccs_doubt_options();
    run_with(sim, &options, false);
}

/* The projection is lost twice, the second time with its rows. */
static void run_lost(struct sim *sim)
{
    struct sim_options options = sim_default_options();
    options.max_restart_ms = 300;
    run_with(sim, &options, true);
}

static const char *const proves[] = {"CCS-3.1-04", "CCS-3.1-13", "CCS-3.4-06", "CCS-4.5-14",
                                     "CCS-4.5-21", "CCS-6.2-04", "CCS-11-07",  "CCS-11-11",
                                     "CCS-11-13",  NULL};
static const char *const proves_lost[] = {"CCS-4.5-24", "CCS-4.5-26", NULL};

const struct sim_scenario ccs_lineages[] = {
    {.name = "ccs_lineage", .area = "ccs", .run = run_lineage, .proves = proves},
    {.name = "ccs_lineage_doubt", .area = "ccs", .run = run_doubt},
    {.name = "ccs_lineage_lost", .area = "ccs", .run = run_lost, .proves = proves_lost},
    {.name = "ccs_retention", .area = "ccs", .run = ccs_retention_run},
};
const size_t ccs_lineage_count = SF_ARRAY_LEN(ccs_lineages);
