/*
 * The allocator beside a real catalog on one store: what one of them suffers, the other does not
 * see. Work of the catalog is compared in pairs, by its requests to the store and its answers: once
 * alone, once beside an allocator that is full, that is stopping, or that is not there.
 */
#include "allocator/allocator.h"
#include "component/catalog/catalog_world.h"
#include "component/catalog/lineage_world.h"
#include "exec/reactor.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define ASKS      12
#define MOST_ASKS 8

/* A store that keeps what it is asked while it is closed. */
struct gate {
    struct sf_store base;
    struct sf_store *inner;
    pthread_mutex_t mu;
    bool closed;
    struct sf_batch *batches[64]; /* kept */
    size_t batch_count;
    struct sf_get *gets[64]; /* kept */
    size_t get_count;
};

/* One request for an id and its answer. */
struct ask {
    struct rig *rig;

    /* the request: kept until the answer */
    Searchfabric__V1__AllocateIdsRequest request;
    Searchfabric__V1__CollectionRef ref;
    Searchfabric__V1__AllocationPlan plan;
    Searchfabric__V1__AllocationPlanItem item;
    Searchfabric__V1__AllocationPlanItem *items[1];
    Searchfabric__V1__IssueItem issue;

    /* under the rig's mutex */
    bool done;
    struct sf_diag diag; /* of the answer */
    uint64_t id;         /* the one realized */
};

/* An allocator beside a catalog. */
struct rig {
    struct world *w;
    struct sf_reactors *reactors;
    struct gate gate;
    struct sf_attempts attempts;
    struct sf_metrics *metrics;
    struct sf_allocator *allocator;
    struct sf_channel *channel;
    pthread_mutex_t mu;
    pthread_cond_t changed;
    bool drained;
    uint64_t ns;
    uint64_t collection;
};

/* ---- the gate -------------------------------------------------------------------------------- */

static void gate_submit(struct sf_store *store, struct sf_batch *batch)
{
    struct gate *gate = SF_CONTAINER_OF(store, struct gate, base);

    (void)pthread_mutex_lock(&gate->mu);
    bool closed = gate->closed;
    if (closed) {
        assert_true(gate->batch_count < SF_ARRAY_LEN(gate->batches));
        gate->batches[gate->batch_count++] = batch;
    }
    (void)pthread_mutex_unlock(&gate->mu);
    if (!closed)
        sf_store_submit(gate->inner, batch);
}

static void gate_get(struct sf_store *store, struct sf_get *get)
{
    struct gate *gate = SF_CONTAINER_OF(store, struct gate, base);

    (void)pthread_mutex_lock(&gate->mu);
    bool closed = gate->closed;
    if (closed) {
        assert_true(gate->get_count < SF_ARRAY_LEN(gate->gets));
        gate->gets[gate->get_count++] = get;
    }
    (void)pthread_mutex_unlock(&gate->mu);
    if (!closed)
        sf_store_get(gate->inner, get);
}

static const struct sf_store_vtable gate_vtable = {.submit = gate_submit, .get = gate_get};

static void gate_set(struct gate *gate, bool closed)
{
    (void)pthread_mutex_lock(&gate->mu);
    gate->closed = closed;
    (void)pthread_mutex_unlock(&gate->mu);
    if (closed)
        return;
    for (size_t i = 0; i < gate->get_count; i++)
        sf_store_get(gate->inner, gate->gets[i]);
    for (size_t i = 0; i < gate->batch_count; i++)
        sf_store_submit(gate->inner, gate->batches[i]);
    gate->get_count = gate->batch_count = 0;
}

/* ---- the rig --------------------------------------------------------------------------------- */

static void rig_allocator(struct rig *rig)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(sf_reactors_start(1, sf_clock_system(), &diag, &rig->reactors), SF_OK);
    rig->gate.base = (struct sf_store){.vtable = &gate_vtable};
    rig->gate.inner = rig->w->truth;
    sf_attempts_init(&rig->attempts, 99);
    rig->metrics = sf_metrics_new();
    struct sf_loop *loops[] = {sf_reactors_loop(rig->reactors, 0)};
    const struct sf_allocator_deps deps = {.store = &rig->gate.base,
                                           .loops = loops,
                                           .loop_count = 1,
                                           .clock = sf_clock_system(),
                                           .catalog = rig->w->channel,
                                           .keyring = rig->w->keyring,
                                           .attempts = &rig->attempts,
                                           .random_seed = 1,
                                           .metrics = rig->metrics,
                                           .limits = {.max_ops_per_loop = MOST_ASKS}};
    rig->allocator = sf_allocator_new(&deps);
    const struct sf_service *services[] = {sf_allocator_service(rig->allocator)};
    rig->channel = sf_inproc_channel_new(services, 1, "loopback", sf_clock_system());
}

/* A schema that takes ids from the allocator. */
static void put_schema(struct rig *rig)
{
    static SF_PB(AllocatorAdmissionPolicy) policy;
    static SF_PB(CollectionSettings) settings;
    SF_PB(PutCollectionSchemaRequest) *put =
        world_schema_request(rig->w, "s", rig->ns, rig->collection, 1, "tok");

    searchfabric__v1__allocator_admission_policy__init(&policy);
    searchfabric__v1__collection_settings__init(&settings);
    policy.caller_profile = SF_PBE(ALLOCATOR_CALLER_PROFILE, ES_WRITE_GATEWAY_ONLY);
    policy.max_plan_items_per_request = 10;
    policy.max_forward_reservation_jump = 10;
    settings.allocator_admission_policy = &policy;
    put->definition->doc_id_mapping->generation_policy =
        SF_PBE(DOC_ID_GENERATION_POLICY, ALLOCATOR_OPTIONAL);
    put->definition->settings = &settings;
    assert_non_null(world_call(rig->w, "PutCollectionSchema", put));
}

static void rig_open(struct rig *rig, bool with_allocator)
{
    *rig = (struct rig){.mu = PTHREAD_MUTEX_INITIALIZER,
                        .changed = PTHREAD_COND_INITIALIZER,
                        .gate = {.mu = PTHREAD_MUTEX_INITIALIZER}};
    rig->w = world_new(false);
    rig->ns = world_namespace(rig->w, "n", "alpha");
    rig->collection = world_collection(rig->w, "c", rig->ns, "books");
    put_schema(rig);
    if (with_allocator)
        rig_allocator(rig);
}

static void on_drained(void *user)
{
    struct rig *rig = user;

    (void)pthread_mutex_lock(&rig->mu);
    rig->drained = true;
    (void)pthread_cond_broadcast(&rig->changed);
    (void)pthread_mutex_unlock(&rig->mu);
}

static void rig_drain(struct rig *rig)
{
    if (rig->drained)
        return;
    sf_allocator_drain(rig->allocator, on_drained, rig);
    (void)pthread_mutex_lock(&rig->mu);
    while (!rig->drained)
        (void)pthread_cond_wait(&rig->changed, &rig->mu);
    (void)pthread_mutex_unlock(&rig->mu);
}

static void rig_close(struct rig *rig)
{
    if (rig->allocator != NULL) {
        rig_drain(rig);
        sf_channel_destroy(rig->channel);
        sf_reactors_stop(rig->reactors);
        sf_allocator_destroy(rig->allocator);
        sf_metrics_destroy(rig->metrics);
    }
    world_destroy(rig->w);
}

static void on_answer(void *user, const struct sf_diag *diag, const ProtobufCMessage *message)
{
    struct ask *ask = user;
    const Searchfabric__V1__AllocateIdsSuccessResponse *response = (const void *)message;

    (void)pthread_mutex_lock(&ask->rig->mu);
    ask->diag = *diag;
    if (response != NULL)
        ask->id = response->realized_doc_ids[0]->doc_id->u64;
    ask->done = true;
    (void)pthread_cond_broadcast(&ask->rig->changed);
    (void)pthread_mutex_unlock(&ask->rig->mu);
}

/* Asks for one id under a key. */
static void ask_start(struct rig *rig, struct ask *ask, const char *key)
{
    *ask = (struct ask){.rig = rig};
    searchfabric__v1__allocate_ids_request__init(&ask->request);
    searchfabric__v1__collection_ref__init(&ask->ref);
    searchfabric__v1__allocation_plan__init(&ask->plan);
    searchfabric__v1__allocation_plan_item__init(&ask->item);
    searchfabric__v1__issue_item__init(&ask->issue);
    ask->item.item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE;
    ask->item.issue = &ask->issue;
    ask->items[0] = &ask->item;
    ask->plan.items = ask->items;
    ask->plan.n_items = 1;
    ask->ref.namespace_id = rig->ns;
    ask->ref.collection_id = rig->collection;
    ask->request.meta = world_meta(rig->w, key, SF_PBE(CLIENT_KIND, ES_WRITE_GATEWAY));
    ask->request.collection = &ask->ref;
    ask->request.route_intent =
        SEARCHFABRIC__V1__ID_ALLOCATION_ROUTE_INTENT__ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT;
    ask->request.plan = &ask->plan;
    sf_channel_unary(rig->channel, SF_ALLOCATOR_METHOD, &ask->request.base,
                     &(struct sf_call_options){0}, sf_reactors_loop(rig->reactors, 0), on_answer,
                     ask);
}

static enum sf_err ask_wait(struct rig *rig, struct ask *ask)
{
    (void)pthread_mutex_lock(&rig->mu);
    while (!ask->done)
        (void)pthread_cond_wait(&rig->changed, &rig->mu);
    (void)pthread_mutex_unlock(&rig->mu);
    return ask->diag.err;
}

/* ---- the catalog's work ---------------------------------------------------------------------- */

/* What the catalog's work took and told. */
struct work {
    uint64_t puts;
    uint64_t gets;
    uint64_t lists;
    const char *answers; /* every public answer about the namespace */
};

/* Commands and reads of every kind, one after the other; each must succeed. */
static struct work catalog_work(struct rig *rig)
{
    struct world *w = rig->w;
    struct work work = {atomic_load(&w->wire.applied), atomic_load(&w->wire.gets),
                        atomic_load(&w->wire.lists), NULL};

    uint64_t ns = world_namespace(w, "work-n", "beta");
    uint64_t id = world_collection(w, "work-c", ns, "papers");
    world_schema(w, "work-s1", ns, id, 1, "p1");
    world_ready(w, ns, id, 1, "p1");
    world_schema(w, "work-s2", ns, id, 2, "p2");
    uint64_t gone = world_collection(w, "work-g", ns, "gone");
    assert_int_equal(lineage_drop(w, "work-d", ns, gone, NULL), DROPPED);
    work.answers = world_answers(w, ns);
    work.puts = atomic_load(&w->wire.applied) - work.puts;
    work.gets = atomic_load(&w->wire.gets) - work.gets;
    work.lists = atomic_load(&w->wire.lists) - work.lists;
    return work;
}

static void assert_same_work(const struct work *alone, const struct work *beside)
{
    assert_true(alone->puts > 0);
    assert_int_equal(alone->puts, beside->puts);
    assert_int_equal(alone->gets, beside->gets);
    assert_int_equal(alone->lists, beside->lists);
    assert_string_equal(alone->answers, beside->answers);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_a_full_allocator(void **state)
{
    SF_PROVES("ALLOC-13.3-01", "ALLOC-13.3-02", "ALLOC-13.3-04", "ALLOC-4.3-03");
    struct rig alone;
    struct rig rig;
    struct ask asks[ASKS];
    char key[16];

    (void)state;
    rig_open(&alone, false);
    struct work work_alone = catalog_work(&alone);
    rig_open(&rig, true);
    gate_set(&rig.gate, true);
    for (int i = 0; i < ASKS; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        ask_start(&rig, &asks[i], key);
    }
    for (int i = MOST_ASKS; i < ASKS; i++) { /* shed at once, while the others wait for the store */
        assert_int_equal(ask_wait(&rig, &asks[i]), SF_RATE_LIMITED);
        assert_string_equal(sf_diag_get(&asks[i].diag, "throttled_dimension"),
                            "allocator_loop_requests");
    }
    struct work work_beside = catalog_work(&rig);
    assert_same_work(&work_alone, &work_beside);
    struct sf_allocator_stats stats;
    sf_allocator_stats(rig.allocator, &stats);
    assert_int_equal(stats.ops, MOST_ASKS);
    gate_set(&rig.gate, false);
    for (int i = 0; i < MOST_ASKS; i++)
        assert_int_equal(ask_wait(&rig, &asks[i]), SF_OK);
    rig_close(&rig);
    rig_close(&alone);
}

static void test_a_stopped_allocator(void **state)
{
    SF_PROVES("ALLOC-2.3-01");
    struct rig alone;
    struct rig rig;
    struct ask ask;

    (void)state;
    rig_open(&alone, false); /* the process has none */
    struct work work_alone = catalog_work(&alone);
    rig_open(&rig, true);
    rig_drain(&rig);
    ask_start(&rig, &ask, "k");
    assert_int_equal(ask_wait(&rig, &ask), SF_BACKEND_UNAVAILABLE);
    struct work work_beside = catalog_work(&rig);
    assert_same_work(&work_alone, &work_beside);
    rig_close(&rig);
    rig_close(&alone);
}

/* The catalog has stopped: what stands is answered, nothing new is given, in the right words. */
static void test_a_stopped_catalog(void **state)
{
    struct rig rig;
    struct ask first;
    struct ask again;

    (void)state;
    rig_open(&rig, true);
    ask_start(&rig, &first, "k");
    assert_int_equal(ask_wait(&rig, &first), SF_OK);
    world_execute(rig.w, "DROP TABLE catalog_lane_shards"); /* its looks at owner epochs fail */
    ask_start(&rig, &again, "k");
    assert_int_equal(ask_wait(&rig, &again), SF_OK);
    assert_int_equal(again.id, first.id);
    ask_start(&rig, &again, "k2");
    assert_int_equal(ask_wait(&rig, &again), SF_CATALOG_UNAVAILABLE);
    assert_null(sf_diag_get(&again.diag, "schema_bootstrap_state"));
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_full_allocator),
        cmocka_unit_test(test_a_stopped_allocator),
        cmocka_unit_test(test_a_stopped_catalog),
    };
    return SF_RUN_TESTS("alloc_isolation", tests);
}
