/*
 * "alloc_owners": one schedule without faults, for what only an operator would see: a deposed
 * process serves nothing, a state that went back is not followed, unfinished applies are finished
 * first, a result without its state opens nothing, state older than a restore stays closed.
 */
#include <stdio.h>

#include "allocator/allocator_rules.h"
#include "base/hash.h"
#include "fault/alloc/sim_alloc_world.h"

/* Sends one issue request and tells the outcome; the node must be up. */
static enum sf_err ask(struct sim_process *process, struct world *w, unsigned node,
                       uint64_t collection_id, const char *key)
{
    struct model_request q = {.collection_id = collection_id, .items = {MODEL_ISSUE}, .count = 1};
    struct world_answer answer;

    (void)snprintf(q.key, sizeof(q.key), "%s", key);
    for (int i = 0; i < 500; i++) {
        if (world_call(process, w, node, &q, &answer)) {
            sf_buf_fini(&answer.packed);
            return answer.err;
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
static bool disturbed(const struct world *w, const uint64_t lives[2])
{
    for (unsigned i = 0; i < 2; i++) {
        uint64_t life = 0;
        if (sim_node_service(w->nodes[i], &life) == NULL || life != lives[i])
            return true;
    }
    return false;
}

/* Ends the schedule early when a node died; else the condition must hold. */
#define UNDISTURBED(cond)                                                                          \
    do {                                                                                           \
        bool holds = (cond);                                                                       \
        if (disturbed(w, lives))                                                                   \
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
    uint64_t lives[2];

    sf_attempts_init(&tool, 1);
    for (unsigned i = 0; i < 2; i++)
        while (sim_node_service(w->nodes[i], &lives[i]) == NULL)
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
    /* the state is gone and its result stands: who has read the result starts no new collection */
    UNDISTURBED(ask(process, w, 0, 4, "k8") == SF_OK);
    sf_buf_clear(&key);
    state_key(4, &key);
    SIM_CHECK(w->sim, sf_store_remove_wait(sim_backend(w->sim), NULL, sf_buf_view(&key)) == SF_OK);
    UNDISTURBED(ask(process, w, 1, 4, "k8") == SF_OK);
    UNDISTURBED(ask(process, w, 1, 4, "k9") == SF_BACKEND_UNAVAILABLE);
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
    w->clients_done = 1;
}

void run_alloc_owners(struct sim *sim)
{
    struct sim_options options = sim_default_options();
    struct world w;

    options.rates = (struct sf_fault_rates){0};
    options.max_crashes = 0;
    options.slow_cpu_per_mille = 0;
    options.chaos = (struct sim_chaos){0};
    sim_configure(sim, &options);
    world_open(&w, sim, NULL);
    w.settled = true;
    world_start_nodes(&w, 2);
    w.clients = 1;
    sim_spawn(sim_process_new(sim, "operator"), run_schedule, &w);
    sim_run_until(sim, world_all_done, &w, 60000, "the schedule ends");
    world_close(&w);
}
