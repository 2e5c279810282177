#include "fault/alloc/sim_alloc_world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/pb.h"
#include "fault/alloc/sim_alloc_throttle.h"
#include "searchfabric/v1/allocator_operations_private.pb-c.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"

#define ES SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY

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
    struct sf_channel *operations; /* the operator's service */
    unsigned in_flight;            /* calls of clients */
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
    char etag[48];
    struct sf_diag diag;

    if (!service->world->settled && sf_rng_below(rng, 20) == 0) {
        sf_diag_init(&diag);
        sf_diag_set(&diag, SF_BACKEND_UNAVAILABLE, "the catalog is away");
        sf_call_fail(call, &diag);
        return;
    }
    (void)snprintf(token, sizeof(token), "tok-%lld",
                   (long long)sim_now_ms(service->world->sim) / 1000);
    (void)snprintf(etag, sizeof(etag), "%s-%d", token,
                   world_dropped(service->world, request->collection->collection_id));
    policy.caller_profile = 1;
    policy.max_plan_items_per_request = 100;
    policy.max_forward_reservation_jump = MODEL_MAX_JUMP;
    s.collection = request->collection;
    s.lifecycle = world_dropped(service->world, request->collection->collection_id) ? 2 : 1;
    s.descriptor_etag = etag;
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
        /* retention waits for its puts, which the throttle cannot do */
        .store = service->world->retention_ms != 0 ? sim_process_store(process) : service->store,
        .sched = sim_process_sched(process),
        .replay_retention_ms = service->world->retention_ms,
        .loops = loops,
        .loop_count = SF_ARRAY_LEN(loops),
        .clock = sim_process_clock(process),
        .catalog = service->catalog,
        .keyring = service->world->keyring,
        .attempts = &service->attempts,
        .random_seed = sim_process_random(process) + 1,
        .metrics = service->metrics,
        /* small, so that lanes and answers come and go */
        .limits = {.max_lanes_per_loop = service->world->max_lanes, .cache_bytes_per_loop = 2048},
        .leases = service->world->leases};
    service->allocator = sf_allocator_new(&deps);
    const struct sf_service *services[] = {sf_allocator_service(service->allocator)};
    service->channel = sf_inproc_channel_new(services, 1, "loopback", sim_process_clock(process));
    const struct sf_service *operations[] = {sf_allocator_operations(service->allocator)};
    service->operations =
        sf_inproc_channel_new(operations, 1, "loopback", sim_process_clock(process));
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
    sf_channel_destroy(service->operations);
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

bool world_call(struct sim_process *client, struct world *w, unsigned node,
                const struct model_request *q, struct world_answer *out_answer)
{
    uint64_t life = 0;
    struct alloc_service *service = sim_node_service(w->nodes[node], &life);
    struct call c = {.err = SF_OK};

    *out_answer = (struct world_answer){.err = SF_OK};
    if (service == NULL || service->stopping)
        return false;
    call_fill(&c, q);
    sf_waiter_init(&c.answered, sim_process_sched(client));
    service->in_flight++;
    sf_channel_unary(service->channel, SF_ALLOCATOR_METHOD, &c.request.base,
                     &(struct sf_call_options){0}, sim_process_loop(client, 0), on_answer, &c);
    sf_waiter_wait(&c.answered);
    sf_waiter_fini(&c.answered);
    if (--service->in_flight == 0 && service->idle != NULL)
        sf_waiter_wake(service->idle);
    *out_answer = (struct world_answer){.err = c.err, .packed = c.packed};
    if (sim_node_is_current(w->nodes[node], life))
        return true;
    sf_buf_fini(&out_answer->packed);
    return false;
}

static void on_round(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    (void)diag;
    (void)response;
    sf_waiter_wake(user);
}

void world_retain(struct sim_process *client, struct world *w, unsigned node)
{
    uint64_t life = 0;
    struct alloc_service *service = sim_node_service(w->nodes[node], &life);
    Searchfabric__V1__RunAllocatorRetentionRequest request =
        SEARCHFABRIC__V1__RUN_ALLOCATOR_RETENTION_REQUEST__INIT;
    struct sf_waiter answered;

    if (service == NULL || service->stopping)
        return;
    sf_waiter_init(&answered, sim_process_sched(client));
    service->in_flight++;
    sf_channel_unary(service->operations, "/" SF_ALLOCATOR_OPERATIONS_NAME "/RunAllocatorRetention",
                     &request.base, &(struct sf_call_options){0}, sim_process_loop(client, 0),
                     on_round, &answered);
    sf_waiter_wait(&answered);
    sf_waiter_fini(&answered);
    if (--service->in_flight == 0 && service->idle != NULL)
        sf_waiter_wake(service->idle);
}

/* ---- the world ---- */

bool world_dropped(const struct world *w, uint64_t collection_id)
{
    return collection_id == 2 && w->drop_at_ms != 0 && sim_now_ms(w->sim) >= w->drop_at_ms;
}

bool world_all_done(struct sim *sim, void *ctx)
{
    const struct world *w = ctx;

    (void)sim;
    return w->clients_done == w->clients;
}

void world_open(struct world *w, struct sim *sim, const struct sf_alloc_lease_policy *leases)
{
    *w = (struct world){.sim = sim, .max_lanes = 1};
    if (leases != NULL)
        w->leases = *leases;
    w->keyring = sf_keyring_new_for_test(sim_seed(sim));
    w->model = model_new(sim, leases == NULL ? 33 : 80, w->leases.confirm_ms);
}

void world_start_nodes(struct world *w, unsigned count)
{
    static const char *const names[WORLD_MAX_NODES] = {"a", "b", "c"};
    const struct sim_service service = {.start = alloc_start, .stop = alloc_stop, .ctx = w};

    w->node_count = count;
    for (unsigned i = 0; i < count; i++)
        w->nodes[i] = sim_node_new(w->sim, names[i], &service);
}

void world_close(struct world *w)
{
    sim_stop_nodes(w->sim);
    sim_set_invariant(w->sim, NULL, NULL);
    model_free(w->model);
    sf_keyring_destroy(w->keyring);
}
