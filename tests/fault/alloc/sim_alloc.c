/*
 * The allocator under the simulator.
 *
 * "alloc": two nodes contend for two collections while stores fail, processes die and pause. Three
 * clients send the same requests, each in its own order, to either node, until each has an answer,
 * and now and then ask again for what was answered, or with another payload. The catalog of each
 * process is a stand-in that answers at once, refuses now and then, and changes the schema token.
 *
 * "alloc_throttled": the same while replay-success objects cannot be written at times.
 *
 * "alloc_owners": one schedule without faults, for what only an operator would see: a deposed
 * process serves nothing, a state that went back is not followed, unfinished applies are finished
 * first, state older than a restore stays closed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator.h"
#include "allocator/allocator_rules.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pb.h"
#include "contract/descriptor_set.h"
#include "fault/alloc/sim_alloc_model.h"
#include "fault/alloc/sim_alloc_throttle.h"
#include "fault/sim/sim.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"

#define CLIENTS 3
#define ES      SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY

/* What the run is about; ctx of everything. */
struct world {
    struct sim *sim;
    struct sf_keyring *keyring;
    struct sim_node *nodes[2];
    struct model *model;
    uint64_t lives[2]; /* of the nodes, for a schedule */
    bool throttle;     /* replay objects are refused at times */
    bool settled;      /* the catalog refuses no more */
    unsigned clients_done;
};

/* ---- the service in its process ---- */

struct alloc_service {
    struct world *world;
    struct sim_process *process;
    struct sf_attempts attempts;
    struct sf_store *store; /* throttled at times */
    struct sf_metrics *metrics;
    struct sf_service ccs;
    struct sf_channel *catalog;
    struct sf_allocator *allocator;
    struct sf_channel *channel;
    unsigned in_flight; /* calls of clients */
    bool stopping;
    struct sf_waiter *idle; /* woken when the last call ends; NULL while nobody waits */
    bool drained;
    struct sf_waiter *drain; /* woken when drained; NULL while nobody waits */
};

static void ccs_read(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct alloc_service *service = self;
    struct sf_rng *rng = sim_rng(service->world->sim);
    const Searchfabric__V1__GetCollectionAdmissionStateRequest *request = (const void *)message;
    Searchfabric__V1__GetCollectionAdmissionStateResponse response =
        SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__INIT;
    Searchfabric__V1__CollectionAdmissionState s =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE__INIT;
    Searchfabric__V1__AllocatorAdmissionPolicy policy =
        SEARCHFABRIC__V1__ALLOCATOR_ADMISSION_POLICY__INIT;
    char token[32];
    struct sf_diag diag;

    if (!service->world->settled && sf_rng_below(rng, 20) == 0) {
        sf_diag_init(&diag);
        sf_diag_set(&diag, SF_BACKEND_UNAVAILABLE, "the catalog is away");
        sf_call_fail(call, &diag);
        return;
    }
    (void)snprintf(token, sizeof(token), "tok-%lld",
                   (long long)sim_now_ms(service->world->sim) / 1000);
    policy.caller_profile = 1;
    policy.max_plan_items_per_request = 100;
    policy.max_forward_reservation_jump = 1000;
    s.collection = request->collection;
    s.lifecycle = 1;
    s.descriptor_etag = token;
    s.collection_truth_mode =
        SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_SEARCH_FABRIC;
    s.generation_policy = 1;
    s._active_schema_generation_token_case =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE___ACTIVE_SCHEMA_GENERATION_TOKEN_ACTIVE_SCHEMA_GENERATION_TOKEN;
    s.active_schema_generation_token = token;
    s.allocator_admission_policy = &policy;
    response.result_case = SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_STATE;
    response.state = &s;
    sf_call_respond(call, &response.base);
}

static const struct sf_method ccs_methods[] = {
    {.name = "GetCollectionAdmissionState",
     .request = &searchfabric__v1__get_collection_admission_state_request__descriptor,
     .response = &searchfabric__v1__get_collection_admission_state_response__descriptor,
     .unary = ccs_read}};

/* Replay-success objects are refused for a third of the time, by periods. */
static bool replay_prefix_busy(void *ctx)
{
    const struct world *w = ctx;

    return w->throttle && !w->settled && sim_now_ms(w->sim) / 400 % 3 == 1;
}

static void *alloc_start(struct sim_process *process, void *ctx)
{
    struct alloc_service *service = sf_calloc(1, sizeof(*service));
    struct sf_loop *loops[] = {sim_process_loop(process, 0), sim_process_loop(process, 1)};

    service->world = ctx;
    service->process = process;
    sf_attempts_init(&service->attempts, sim_process_random(process));
    service->metrics = sf_metrics_new();
    service->store = throttle_store_new(sim_process_store(process), "id-allocator/replay-success/",
                                        replay_prefix_busy, service->world);
    service->ccs = (struct sf_service){.full_name = "searchfabric.v1.CatalogControlPrivateService",
                                       .methods = ccs_methods,
                                       .method_count = SF_ARRAY_LEN(ccs_methods),
                                       .self = service};
    const struct sf_service *ccs[] = {&service->ccs};
    service->catalog = sf_inproc_channel_new(ccs, 1, "loopback", sim_process_clock(process));
    struct sf_allocator_deps deps = {
        .store = service->store,
        .loops = loops,
        .loop_count = SF_ARRAY_LEN(loops),
        .clock = sim_process_clock(process),
        .catalog = service->catalog,
        .keyring = service->world->keyring,
        .attempts = &service->attempts,
        .random_seed = sim_process_random(process) + 1,
        .metrics = service->metrics,
        /* small, so that lanes and answers come and go */
        .limits = {.max_lanes_per_loop = 1, .cache_bytes_per_loop = 2048}};
    service->allocator = sf_allocator_new(&deps);
    const struct sf_service *services[] = {sf_allocator_service(service->allocator)};
    service->channel = sf_inproc_channel_new(services, 1, "loopback", sim_process_clock(process));
    return service;
}

static void on_drained(void *user)
{
    struct alloc_service *service = user;

    service->drained = true;
    if (service->drain != NULL)
        sf_waiter_wake(service->drain);
}

static void alloc_stop(struct sim_process *process, void *started, void *ctx)
{
    struct alloc_service *service = started;
    struct sf_waiter waiter;

    (void)ctx;
    service->stopping = true;
    sf_waiter_init(&waiter, sim_process_sched(process));
    service->drain = &waiter;
    sf_allocator_drain(service->allocator, on_drained, service);
    if (!service->drained)
        sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
    sf_waiter_init(&waiter, sim_process_sched(process));
    service->idle = &waiter;
    if (service->in_flight > 0)
        sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
    sf_channel_destroy(service->channel);
    sf_allocator_destroy(service->allocator);
    sf_channel_destroy(service->catalog);
    sf_store_destroy(service->store);
    sf_metrics_destroy(service->metrics);
    free(service);
}

/* ---- calls ---- */

/* One call from a client's task. */
struct call {
    Searchfabric__V1__AllocateIdsRequest request;
    Searchfabric__V1__RequestMeta meta;
    Searchfabric__V1__CollectionRef collection;
    Searchfabric__V1__AllocationPlan plan;
    Searchfabric__V1__IssueItem issue;
    Searchfabric__V1__AllocationPlanItem items[MODEL_ITEMS];
    Searchfabric__V1__AllocationPlanItem *list[MODEL_ITEMS];
    Searchfabric__V1__DocumentID ids[MODEL_ITEMS];
    enum sf_err err;
    struct sf_buf packed; /* the answer */
    struct sf_waiter answered;
};

static void call_fill(struct call *c, const struct model_request *q)
{
    searchfabric__v1__allocate_ids_request__init(&c->request);
    searchfabric__v1__request_meta__init(&c->meta);
    searchfabric__v1__collection_ref__init(&c->collection);
    searchfabric__v1__allocation_plan__init(&c->plan);
    searchfabric__v1__issue_item__init(&c->issue);
    c->meta.idempotency_key = (char *)q->key;
    c->meta.client_id = (char *)"sim";
    c->meta.client_kind = ES;
    c->collection.namespace_id = MODEL_NS;
    c->collection.collection_id = q->collection_id;
    for (size_t i = 0; i < q->count; i++) {
        searchfabric__v1__allocation_plan_item__init(&c->items[i]);
        searchfabric__v1__document_id__init(&c->ids[i]);
        c->list[i] = &c->items[i];
        c->items[i].item_case = q->items[i] == MODEL_ISSUE
                                    ? SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE
                                    : SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_EXPLICIT_DOC_ID;
        c->ids[i].id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
        c->ids[i].u64 = q->items[i];
        if (q->items[i] == MODEL_ISSUE)
            c->items[i].issue = &c->issue;
        else
            c->items[i].explicit_doc_id = &c->ids[i];
    }
    c->plan.items = c->list;
    c->plan.n_items = q->count;
    c->request.meta = &c->meta;
    c->request.collection = &c->collection;
    c->request.plan = &c->plan;
    c->request.route_intent = 1;
}

static void on_answer(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct call *c = user;

    c->err = diag->err;
    if (response != NULL)
        sf_pb_pack(response, &c->packed);
    sf_waiter_wake(&c->answered);
}

/* Sends `q` to `node`; true when the answer counts (c->err, c->packed; free with sf_buf_fini). */
static bool call_node(struct sim_process *client, struct sim_node *node,
                      const struct model_request *q, struct call *c)
{
    uint64_t life = 0;
    struct alloc_service *service = sim_node_service(node, &life);

    if (service == NULL || service->stopping)
        return false;
    *c = (struct call){.err = SF_OK};
    call_fill(c, q);
    sf_waiter_init(&c->answered, sim_process_sched(client));
    service->in_flight++;
    sf_channel_unary(service->channel, SF_ALLOCATOR_METHOD, &c->request.base,
                     &(struct sf_call_options){0}, sim_process_loop(client, 0), on_answer, c);
    sf_waiter_wait(&c->answered);
    sf_waiter_fini(&c->answered);
    if (--service->in_flight == 0 && service->idle != NULL)
        sf_waiter_wake(service->idle);
    if (sim_node_is_current(node, life))
        return true;
    sf_buf_fini(&c->packed);
    return false;
}

/* ---- "alloc" ---- */

struct client {
    struct world *w;
    unsigned id;
};

/* True when the client may stop asking. */
static bool is_final(enum sf_err err)
{
    return err == SF_OK || err == SF_VERSION_CONFLICT || err == SF_TOO_MANY_OPERATIONS;
}

/* Asks until there is an answer. */
static void send_request(struct sim_process *process, struct world *w, unsigned index)
{
    const struct model_request *q = model_request(w->model, index);

    for (;;) {
        struct call c;
        struct sim_node *node = w->nodes[sf_rng_below(sim_rng(w->sim), 2)];
        if (call_node(process, node, q, &c)) {
            sim_trace(w->sim, "client: %s -> %s", q->key, sf_err_info(c.err)->name);
            bool done = is_final(c.err);
            if (done)
                model_answered(w->model, index, c.err, sf_buf_view(&c.packed));
            else if (!sf_err_info(c.err)->retry_same_key)
                sim_violation(w->sim, "%s answered %s", q->key, sf_err_info(c.err)->name);
            sf_buf_fini(&c.packed);
            if (done)
                return;
        }
        sim_sleep(process, 1 + (int64_t)sf_rng_below(sim_rng(w->sim), 150));
    }
}

/* Another payload under a key that has a success: it must never get ids, nor take the key away. */
static void send_other_payload(struct sim_process *process, struct world *w, unsigned index)
{
    struct model_request other = *model_request(w->model, index);
    struct call c;

    if (other.count == MODEL_ITEMS)
        other.count--;
    else
        other.items[other.count++] = MODEL_ISSUE;
    if (!call_node(process, w->nodes[sf_rng_below(sim_rng(w->sim), 2)], &other, &c))
        return;
    if (c.err == SF_OK)
        sim_violation(w->sim, "%s gave its ids to another payload", other.key);
    sf_buf_fini(&c.packed);
}

static void run_client(struct sim_process *process, void *arg)
{
    struct client *client = arg;
    struct world *w = client->w;
    struct sf_rng *rng = sim_rng(w->sim);
    unsigned order[MODEL_REQUESTS];

    for (unsigned i = 0; i < MODEL_REQUESTS; i++)
        order[i] = i;
    for (unsigned i = 0; i + 1 < MODEL_REQUESTS; i++) { /* mostly in order, with some swaps */
        unsigned k = i + (unsigned)sf_rng_below(rng, i + 3 < MODEL_REQUESTS ? 3 : 1);
        unsigned t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
    for (unsigned i = 0; i < MODEL_REQUESTS; i++) {
        send_request(process, w, order[i]);
        if (sf_rng_below(rng, 3) == 0)
            send_request(process, w, order[sf_rng_below(rng, i + 1)]);
        if (model_succeeded(w->model, order[i]) && sf_rng_below(rng, 4) == 0)
            send_other_payload(process, w, order[i]);
    }
    w->clients_done++;
}

static void check_step(struct sim *sim, void *ctx)
{
    struct world *w = ctx;

    (void)sim;
    model_check_step(w->model);
}

static bool all_done(struct sim *sim, void *ctx)
{
    const struct world *w = ctx;

    (void)sim;
    return w->clients_done == CLIENTS;
}

static void world_open(struct world *w, struct sim *sim)
{
    *w = (struct world){.sim = sim};
    w->keyring = sf_keyring_new_for_test(sim_seed(sim));
    w->model = model_new(sim);
}

static void nodes_start(struct world *w)
{
    const struct sim_service service = {.start = alloc_start, .stop = alloc_stop, .ctx = w};

    w->nodes[0] = sim_node_new(w->sim, "a", &service);
    w->nodes[1] = sim_node_new(w->sim, "b", &service);
}

static void world_close(struct world *w)
{
    sim_stop_nodes(w->sim);
    sim_set_invariant(w->sim, NULL, NULL);
    model_free(w->model);
    sf_keyring_destroy(w->keyring);
}

static void run_clients(struct sim *sim, bool throttle)
{
    struct world w;
    struct client clients[CLIENTS];

    world_open(&w, sim);
    w.throttle = throttle;
    nodes_start(&w);
    sim_set_invariant(sim, check_step, &w);
    struct sim_process *process = sim_process_new(sim, "clients");
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.w = &w, .id = i};
        sim_spawn(process, run_client, &clients[i]);
    }
    sim_run_for(sim, 8000);
    sim_settle(sim);
    w.settled = true;
    sim_run_until(sim, all_done, &w, 120000, "every key is answered");
    sim_run_for(sim, 4000); /* what is still on its way lands */
    model_check_end(w.model);
    world_close(&w);
}

static void run_alloc(struct sim *sim)
{
    run_clients(sim, false);
}

/* Applies start and cannot be finished for a while: what one could not finish, it must carry on. */
static void run_throttled(struct sim *sim)
{
    struct sim_options options = sim_default_options();

    options.max_crashes = 10;
    options.chaos.interval_ms = 700;
    options.chaos.max_kills = 8;
    sim_configure(sim, &options);
    run_clients(sim, true);
}

/* ---- "alloc_owners" ---- */

/* Sends one issue request and tells the outcome; the node must be up. */
static enum sf_err ask(struct sim_process *process, struct world *w, unsigned node,
                       uint64_t collection_id, const char *key)
{
    struct model_request q = {.collection_id = collection_id, .items = {MODEL_ISSUE}, .count = 1};
    struct call c;

    (void)snprintf(q.key, sizeof(q.key), "%s", key);
    for (int i = 0; i < 500; i++) {
        if (call_node(process, w->nodes[node], &q, &c)) {
            sf_buf_fini(&c.packed);
            return c.err;
        }
        sim_sleep(process, 10);
    }
    return SF_ERR_STOPPED;
}

static void state_key(uint64_t collection_id, struct sf_buf *out)
{
    sf_alloc_state_key((struct sf_collection_ref){{MODEL_NS}, {collection_id}}, out);
}

static void put_any(struct world *w, struct sf_view key, struct sf_view body)
{
    struct sf_put put = {.key = key, .body = body, .cond = SF_PUT_ANY};
    SIM_CHECK(w->sim, sf_store_put_wait(sim_backend(w->sim), NULL, &put) == SF_OK);
}

/* Plants a state object whose one pending apply has no object of its own. */
static void plant_unfinished(struct world *w, uint64_t collection_id, const char *lookup_key)
{
    Searchfabric__V1__AllocatorStateObject state = SEARCHFABRIC__V1__ALLOCATOR_STATE_OBJECT__INIT;
    Searchfabric__V1__AllocatorReplaySuccessObject record =
        SEARCHFABRIC__V1__ALLOCATOR_REPLAY_SUCCESS_OBJECT__INIT;
    Searchfabric__V1__AllocatorReplaySuccessObject *records[] = {&record};
    Searchfabric__V1__AllocationPlan plan = SEARCHFABRIC__V1__ALLOCATION_PLAN__INIT;
    Searchfabric__V1__AllocationPlanItem item = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__INIT;
    Searchfabric__V1__AllocationPlanItem *items[] = {&item};
    Searchfabric__V1__DocumentID id = SEARCHFABRIC__V1__DOCUMENT_ID__INIT;
    Searchfabric__V1__RealizedDocId realized = SEARCHFABRIC__V1__REALIZED_DOC_ID__INIT;
    Searchfabric__V1__RealizedDocId *list[] = {&realized};
    struct sf_buf key = {0};
    struct sf_buf body = {0};

    id.id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
    id.u64 = 4;
    item.item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_EXPLICIT_DOC_ID;
    item.explicit_doc_id = &id;
    plan.items = items;
    plan.n_items = 1;
    realized.doc_id = &id;
    record.transport_lookup_key = (char *)lookup_key;
    record.payload_fingerprint = (char *)lookup_key;
    record.idempotency_key = (char *)"planted";
    record.plan = &plan;
    record.realized_doc_ids = list;
    record.n_realized_doc_ids = 1;
    state.attempt_id = (char *)"planted-1";
    state.namespace_id = MODEL_NS;
    state.collection_id = collection_id;
    state.next_doc_id = (char *)"5";
    state.allocation_epoch = 1;
    state.allocator_state_version = 1;
    state.owner_id = (char *)"planted";
    state.pending_applies = records;
    state.n_pending_applies = 1;
    state_key(collection_id, &key);
    sf_durable_encode(&state.base, &body, NULL);
    put_any(w, sf_buf_view(&key), sf_buf_view(&body));
    sf_buf_fini(&key);
    sf_buf_fini(&body);
}

/* True once a node died: the schedule is about undisturbed owners. */
static bool disturbed(const struct world *w)
{
    for (unsigned i = 0; i < 2; i++) {
        uint64_t life = 0;
        if (sim_node_service(w->nodes[i], &life) == NULL || life != w->lives[i])
            return true;
    }
    return false;
}

/* Ends the schedule early when a node died; else the condition must hold. */
#define UNDISTURBED(cond)                                                                          \
    do {                                                                                           \
        bool holds = (cond);                                                                       \
        if (disturbed(w))                                                                          \
            goto out;                                                                              \
        SIM_CHECK(w->sim, holds);                                                                  \
    } while (0)

static bool object_stands(struct world *w, struct sf_view key, struct sf_buf *out_body)
{
    return sf_store_get_wait(sim_backend(w->sim), NULL, key, out_body, NULL) == SF_OK;
}

static void run_schedule(struct sim_process *process, void *arg)
{
    struct world *w = arg;
    struct sf_buf key = {0};
    struct sf_buf old = {0};
    struct sf_buf object = {0};
    char lookup[SF_SHA256_HEX_BYTES];
    struct sf_attempts tool;

    sf_attempts_init(&tool, 1);
    for (unsigned i = 0; i < 2; i++)
        while (sim_node_service(w->nodes[i], &w->lives[i]) == NULL)
            sim_sleep(process, 1);
    /* a owns, b takes over, a is deposed and stays so */
    UNDISTURBED(ask(process, w, 0, 1, "k1") == SF_OK);
    UNDISTURBED(ask(process, w, 1, 1, "k2") == SF_OK);
    UNDISTURBED(ask(process, w, 0, 1, "k3") == SF_BACKEND_UNAVAILABLE);
    UNDISTURBED(ask(process, w, 0, 1, "k1") == SF_BACKEND_UNAVAILABLE);
    /* b's state is put back to an earlier version: b does not follow it */
    state_key(1, &key);
    SIM_CHECK(w->sim, object_stands(w, sf_buf_view(&key), &old));
    UNDISTURBED(ask(process, w, 1, 1, "k4") == SF_OK);
    put_any(w, sf_buf_view(&key), sf_buf_view(&old));
    UNDISTURBED(ask(process, w, 1, 1, "k5") != SF_OK);
    /* a collection with an unfinished apply: nothing is answered before it is finished */
    sf_sha256_hex(sf_view_str("planted"), lookup);
    plant_unfinished(w, 2, lookup);
    UNDISTURBED(ask(process, w, 0, 2, "k6") == SF_OK);
    sf_buf_clear(&key);
    sf_alloc_replay_key(lookup, &key);
    UNDISTURBED(object_stands(w, sf_buf_view(&key), &object));
    /* restored from a backup: what the state says of then is not followed */
    SIM_CHECK(w->sim, sf_allocator_restore_mark_wait(sim_backend(w->sim), NULL, &tool,
                                                     SIM_EPOCH_UNIX_MS + 86400000, "operator",
                                                     "drill") == SF_OK);
    plant_unfinished(w, 3, lookup);
    UNDISTURBED(ask(process, w, 0, 3, "k7") == SF_BACKEND_UNAVAILABLE);
out:
    sf_buf_fini(&key);
    sf_buf_fini(&old);
    sf_buf_fini(&object);
    w->clients_done = CLIENTS;
}

static void run_owners(struct sim *sim)
{
    struct sim_options options = sim_default_options();
    struct world w;

    options.rates = (struct sf_fault_rates){0};
    options.max_crashes = 0;
    options.slow_cpu_per_mille = 0;
    options.chaos = (struct sim_chaos){0};
    sim_configure(sim, &options);
    world_open(&w, sim);
    w.settled = true;
    nodes_start(&w);
    sim_spawn(sim_process_new(sim, "operator"), run_schedule, &w);
    sim_run_until(sim, all_done, &w, 60000, "the schedule ends");
    world_close(&w);
}

int main(int argc, char **argv)
{
    static const char *const proves[] = {"ALLOC-2.1-03",
                                         "ALLOC-2.1-04",
                                         "ALLOC-2.3-02",
                                         "ALLOC-3.2-03",
                                         "ALLOC-5.3-01",
                                         "ALLOC-5.3-05",
                                         "ALLOC-7.1-05",
                                         "ALLOC-9-05",
                                         "ALLOC-9-09",
                                         "ALLOC-13.1-02",
                                         NULL};
    static const struct sim_scenario scenarios[] = {
        {.name = "alloc", .area = "alloc", .run = run_alloc, .proves = proves},
        {.name = "alloc_throttled", .area = "alloc", .run = run_throttled},
        {.name = "alloc_owners", .area = "alloc", .run = run_owners}};

    sf_log_set_fd(-1);
    if (sf_pbjson_register(
            sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size)) != SF_OK)
        return 1;
    return sim_main(argc, argv, scenarios, SF_ARRAY_LEN(scenarios));
}
