/* The allocator as the daemon runs it: reactors on threads, the embedded store, callers on threads
 * of their own, a restart on the same folder. */
#include "component/allocator/alloc_world.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "contract/descriptor_set.h"
#include "exec/reactor.h"
#include "support/tempdir.h"

#define THREADS     4
#define CALLS       40
#define COLLECTIONS 3

struct rig {
    struct sf_reactors *reactors;
    struct sf_store *store;
    struct sf_keyring *keyring;
    struct sf_attempts attempts;
    struct sf_metrics *metrics;
    struct sf_service ccs;
    struct sf_channel *catalog;
    struct sf_allocator *allocator;
    struct sf_channel *channel;
    pthread_mutex_t mu;
    pthread_cond_t drained_cond;
    bool drained;
};

static void ccs_read(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    const Searchfabric__V1__GetCollectionAdmissionStateRequest *request = (const void *)message;
    Searchfabric__V1__GetCollectionAdmissionStateResponse response =
        SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__INIT;
    Searchfabric__V1__CollectionAdmissionState s =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE__INIT;
    Searchfabric__V1__AllocatorAdmissionPolicy policy =
        SEARCHFABRIC__V1__ALLOCATOR_ADMISSION_POLICY__INIT;

    (void)self;
    policy.caller_profile = 1;
    policy.max_plan_items_per_request = 100;
    policy.max_forward_reservation_jump = 1000;
    s.collection = request->collection;
    s.lifecycle = 1;
    s.descriptor_etag = (char *)"e";
    s.collection_truth_mode =
        SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_SEARCH_FABRIC;
    s.generation_policy = 1;
    s._active_schema_generation_token_case =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE___ACTIVE_SCHEMA_GENERATION_TOKEN_ACTIVE_SCHEMA_GENERATION_TOKEN;
    s.active_schema_generation_token = (char *)"tok";
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

static void rig_open(struct rig *rig, const char *folder, uint64_t life)
{
    struct sf_diag diag;

    *rig = (struct rig){.mu = PTHREAD_MUTEX_INITIALIZER, .drained_cond = PTHREAD_COND_INITIALIZER};
    sf_diag_init(&diag);
    assert_int_equal(sf_reactors_start(2, sf_clock_system(), &diag, &rig->reactors), SF_OK);
    assert_int_equal(sf_embedded_store_open(folder, &diag, &rig->store), SF_OK);
    rig->keyring = sf_keyring_new_for_test(1);
    sf_attempts_init(&rig->attempts, life);
    rig->metrics = sf_metrics_new();
    rig->ccs = (struct sf_service){.full_name = "searchfabric.v1.CatalogControlPrivateService",
                                   .methods = ccs_methods,
                                   .method_count = 1,
                                   .self = rig};
    const struct sf_service *ccs[] = {&rig->ccs};
    rig->catalog = sf_inproc_channel_new(ccs, 1, "loopback", sf_clock_system());
    struct sf_loop *loops[] = {sf_reactors_loop(rig->reactors, 0),
                               sf_reactors_loop(rig->reactors, 1)};
    struct sf_allocator_deps deps = {.store = rig->store,
                                     .loops = loops,
                                     .loop_count = 2,
                                     .clock = sf_clock_system(),
                                     .catalog = rig->catalog,
                                     .keyring = rig->keyring,
                                     .attempts = &rig->attempts,
                                     .random_seed = life,
                                     .metrics = rig->metrics};
    rig->allocator = sf_allocator_new(&deps);
    const struct sf_service *services[] = {sf_allocator_service(rig->allocator)};
    rig->channel = sf_inproc_channel_new(services, 1, "loopback", sf_clock_system());
}

static void on_drained(void *user)
{
    struct rig *rig = user;

    (void)pthread_mutex_lock(&rig->mu);
    rig->drained = true;
    (void)pthread_cond_signal(&rig->drained_cond);
    (void)pthread_mutex_unlock(&rig->mu);
}

static void rig_close(struct rig *rig)
{
    sf_allocator_drain(rig->allocator, on_drained, rig);
    (void)pthread_mutex_lock(&rig->mu);
    while (!rig->drained)
        (void)pthread_cond_wait(&rig->drained_cond, &rig->mu);
    (void)pthread_mutex_unlock(&rig->mu);
    sf_channel_destroy(rig->channel);
    sf_reactors_stop(rig->reactors);
    sf_allocator_destroy(rig->allocator);
    sf_channel_destroy(rig->catalog);
    sf_store_destroy(rig->store);
    sf_metrics_destroy(rig->metrics);
    sf_keyring_destroy(rig->keyring);
}

struct caller {
    struct rig *rig;
    unsigned id;
    uint64_t ids[CALLS][2];
};

/* One call of two issue items; its ids. */
static void call(struct rig *rig, const char *key, uint64_t collection_id, uint64_t out_ids[2])
{
    Searchfabric__V1__AllocateIdsRequest request = SEARCHFABRIC__V1__ALLOCATE_IDS_REQUEST__INIT;
    Searchfabric__V1__RequestMeta meta = SEARCHFABRIC__V1__REQUEST_META__INIT;
    Searchfabric__V1__CollectionRef collection = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    Searchfabric__V1__AllocationPlan plan = SEARCHFABRIC__V1__ALLOCATION_PLAN__INIT;
    Searchfabric__V1__AllocationPlanItem item = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__INIT;
    Searchfabric__V1__AllocationPlanItem *items[] = {&item, &item};
    Searchfabric__V1__IssueItem issue = SEARCHFABRIC__V1__ISSUE_ITEM__INIT;
    const ProtobufCMessage *response = NULL;
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct sf_diag diag;

    meta.idempotency_key = (char *)key;
    meta.client_id = (char *)"threads";
    meta.client_kind = ES;
    collection.namespace_id = NS;
    collection.collection_id = collection_id;
    item.item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE;
    item.issue = &issue;
    plan.items = items;
    plan.n_items = 2;
    request.meta = &meta;
    request.collection = &collection;
    request.plan = &plan;
    request.route_intent = 1;
    sf_diag_init(&diag);
    enum sf_err err = sf_channel_unary_wait(rig->channel, NULL, SF_ALLOCATOR_METHOD, &request.base,
                                            &(struct sf_call_options){0}, arena, &diag, &response);
    if (err != SF_OK) {
        (void)fprintf(stderr, "%s\n", diag.message);
        abort();
    }
    const Searchfabric__V1__AllocateIdsSuccessResponse *m = (const void *)response;
    out_ids[0] = m->realized_doc_ids[0]->doc_id->u64;
    out_ids[1] = m->realized_doc_ids[1]->doc_id->u64;
    sf_arena_destroy(arena);
}

static void *run_caller(void *arg)
{
    struct caller *c = arg;

    for (unsigned i = 0; i < CALLS; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "t%u-%u", c->id, i);
        call(c->rig, key, 1 + i % COLLECTIONS, c->ids[i]);
    }
    return NULL;
}

static void run_all(struct rig *rig, struct caller callers[THREADS])
{
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        callers[i].rig = rig;
        callers[i].id = i;
        assert_int_equal(pthread_create(&threads[i], NULL, run_caller, &callers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
}

static void test_threads_and_restart(void **state)
{
    (void)state;
    static bool seen[COLLECTIONS][2 * THREADS * CALLS];
    struct caller *first = sf_calloc(THREADS, sizeof(*first));
    struct caller *again = sf_calloc(THREADS, sizeof(*again));
    char folder[SF_TEMPDIR_BYTES];
    struct rig rig;

    sf_tempdir_make(folder);
    assert_int_equal(sf_pbjson_register(sf_view_bytes(sf_contract_descriptor_set,
                                                      sf_contract_descriptor_set_size)),
                     SF_OK);
    sf_log_set_fd(-1);
    rig_open(&rig, folder, 1);
    run_all(&rig, first);
    for (unsigned t = 0; t < THREADS; t++)
        for (unsigned i = 0; i < CALLS; i++)
            for (unsigned k = 0; k < 2; k++) {
                uint64_t id = first[t].ids[i][k];
                assert_true(id < SF_ARRAY_LEN(seen[0]));
                assert_false(seen[i % COLLECTIONS][id]);
                seen[i % COLLECTIONS][id] = true;
            }
    struct sf_allocator_stats stats;
    sf_allocator_stats(rig.allocator, &stats);
    assert_int_equal(stats.allocations, THREADS * CALLS);
    assert_true(stats.groups <= stats.allocations);
    assert_int_equal(stats.ids_burned, 0);
    rig_close(&rig);

    rig_open(&rig, folder, 2);
    run_all(&rig, again);
    for (unsigned t = 0; t < THREADS; t++)
        assert_memory_equal(first[t].ids, again[t].ids, sizeof(first[t].ids));
    sf_allocator_stats(rig.allocator, &stats);
    assert_int_equal(stats.allocations, 0);
    rig_close(&rig);
    sf_tempdir_remove(folder);
    free(first);
    free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads_and_restart)};
    return SF_RUN_TESTS("alloc_threads", tests);
}
