/* The fake catalog answers from `facts`, conditionally as the real one does; requests of calls live
 * until the call is done. */
#include "component/allocator/alloc_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pb.h"
#include "contract/descriptor_set.h"

#define CREATE_INSERT 1

/* ---- the fake catalog ---- */

static void ccs_answer(struct world *w, struct sf_call *call, const ProtobufCMessage *message)
{
    const Searchfabric__V1__GetCollectionAdmissionStateRequest *request = (const void *)message;
    const struct fake_facts *f = &w->facts;
    Searchfabric__V1__GetCollectionAdmissionStateResponse response =
        SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__INIT;
    Searchfabric__V1__AdmissionStateNotModified same =
        SEARCHFABRIC__V1__ADMISSION_STATE_NOT_MODIFIED__INIT;
    Searchfabric__V1__CollectionAdmissionState s =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE__INIT;
    Searchfabric__V1__CollectionRef ref = *request->collection;
    Searchfabric__V1__AllocatorAdmissionPolicy policy =
        SEARCHFABRIC__V1__ALLOCATOR_ADMISSION_POLICY__INIT;
    struct sf_diag diag;

    sf_diag_init(&diag);
    if (f->down || f->busy || !f->exists) {
        sf_diag_set(&diag,
                    f->down   ? SF_BACKEND_UNAVAILABLE
                    : f->busy ? SF_RATE_LIMITED
                              : SF_RESOURCE_NOT_FOUND,
                    "fake");
        sf_call_fail(call, &diag);
        return;
    }
    if (request->_known_descriptor_etag_case != 0 &&
        request->_known_collection_name_binding_revision_case != 0 && f->etag[0] != '\0' &&
        strcmp(request->known_descriptor_etag, f->etag) == 0 &&
        request->known_collection_name_binding_revision == f->binding_revision) {
        w->ccs_not_modified++;
        response.result_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_NOT_MODIFIED;
        response.not_modified = &same;
        sf_call_respond(call, &response.base);
        return;
    }
    if (f->namespace_id != 0)
        ref.namespace_id = f->namespace_id;
    if (f->collection_id != 0)
        ref.collection_id = f->collection_id;
    s.collection = &ref;
    s.lifecycle = (Searchfabric__V1__CollectionAdmissionLifecycle)f->lifecycle;
    s.descriptor_etag = (char *)f->etag;
    s.collection_name_binding_revision = f->binding_revision;
    s.collection_truth_mode = (Searchfabric__V1__CollectionTruthMode)f->truth_mode;
    s.generation_policy = (Searchfabric__V1__DocIdGenerationPolicy)f->generation_policy;
    if (f->token != NULL) {
        s._active_schema_generation_token_case =
            SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE___ACTIVE_SCHEMA_GENERATION_TOKEN_ACTIVE_SCHEMA_GENERATION_TOKEN;
        s.active_schema_generation_token = (char *)f->token;
    }
    policy.caller_profile = (Searchfabric__V1__AllocatorCallerProfile)f->caller_profile;
    policy.max_plan_items_per_request = f->max_items;
    policy.max_forward_reservation_jump = f->max_jump;
    s.allocator_admission_policy = f->policy ? &policy : NULL;
    response.result_case = SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_STATE;
    response.state = &s;
    sf_call_respond(call, &response.base);
}

static void ccs_read(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct world *w = self;

    w->ccs_reads++;
    if (w->facts.hold) {
        assert_true(w->held_count < SF_ARRAY_LEN(w->held));
        w->held_request[w->held_count] = message;
        w->held[w->held_count++] = call;
        return;
    }
    ccs_answer(w, call, message);
}

void world_ccs_release(struct world *w)
{
    w->facts.hold = false;
    for (unsigned i = 0; i < w->held_count; i++)
        ccs_answer(w, w->held[i], w->held_request[i]);
    w->held_count = 0;
}

static void ccs_lookup(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct world *w = self;
    struct sf_diag diag;

    (void)message;
    w->ccs_lookups++;
    sf_diag_init(&diag);
    sf_diag_set(&diag, SF_INTERNAL, "the allocator looked a name up");
    sf_call_fail(call, &diag);
}

/* The allocator may call the first one. The second is what it must never call; any other one is
 * UNIMPLEMENTED and fails the test's expectations. */
static const struct sf_method ccs_methods[] = {
    {.name = "GetCollectionAdmissionState",
     .request = &searchfabric__v1__get_collection_admission_state_request__descriptor,
     .response = &searchfabric__v1__get_collection_admission_state_response__descriptor,
     .unary = ccs_read},
    {.name = "ResolveCollectionNameBinding",
     .request = &searchfabric__v1__resolve_collection_name_binding_request__descriptor,
     .response = &searchfabric__v1__resolve_collection_name_binding_response__descriptor,
     .unary = ccs_lookup}};

/* ---- the scheduler ---- */

static enum sf_err sched_submit(struct sf_sched *sched, uint64_t lane_key, struct sf_task *task)
{
    struct world *w = SF_CONTAINER_OF(sched, struct world, sched);

    (void)lane_key;
    if (!w->sched_hangs)
        sf_loop_post(&w->loop.base, task);
    return SF_OK;
}

static void waiter_init(struct sf_sched *sched, struct sf_waiter *waiter)
{
    (void)sched;
    sf_gate_init(waiter);
}

static void waiter_wait(struct sf_sched *sched, struct sf_waiter *waiter)
{
    (void)sched;
    sf_gate_wait(waiter);
}

static void waiter_wake(struct sf_sched *sched, struct sf_waiter *waiter)
{
    (void)sched;
    sf_gate_wake(waiter);
}

static void waiter_fini(struct sf_sched *sched, struct sf_waiter *waiter)
{
    (void)sched;
    sf_gate_fini(waiter);
}

static const struct sf_sched_vtable sched_vtable = {.submit = sched_submit,
                                                    .waiter_init = waiter_init,
                                                    .waiter_wait = waiter_wait,
                                                    .waiter_wake = waiter_wake,
                                                    .waiter_fini = waiter_fini};

/* ---- the world ---- */

static struct fake_facts facts_default(void)
{
    return (struct fake_facts){.exists = true,
                               .lifecycle = 1,
                               .truth_mode = 2,
                               .generation_policy = 1,
                               .caller_profile = 1,
                               .policy = true,
                               .max_items = 1000,
                               .max_jump = 1000,
                               .token = "tok-1",
                               .etag = "etag-1",
                               .binding_revision = 1};
}

int world_setup(void **state)
{
    struct world *w = sf_calloc(1, sizeof(*w));

    if (sf_pbjson_register(
            sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size)) != SF_OK)
        return -1;
    sf_log_set_fd(-1);
    manual_loop_init(&w->loop);
    w->loop.clock.unix_ms = 1767225600000;
    w->sched = (struct sf_sched){.vtable = &sched_vtable, .clock = &w->loop.clock.base};
    w->backend = sf_memory_store_new_inline();
    w->script = script_store_new(w->backend, &w->loop.base);
    w->keyring = sf_keyring_new_for_test(1);
    w->facts = facts_default();
    w->ccs = (struct sf_service){.full_name = "searchfabric.v1.CatalogControlPrivateService",
                                 .methods = ccs_methods,
                                 .method_count = SF_ARRAY_LEN(ccs_methods),
                                 .self = w};
    const struct sf_service *services[] = {&w->ccs};
    w->ccs_channel = sf_inproc_channel_new(services, 1, "loopback", &w->loop.clock.base);
    *state = w;
    (void)world_start(w);
    return 0;
}

/* SF_TEST_ALLOC_ARTIFACTS runs any suite with all artifacts on and the export "failing" (its
 * database cannot be opened), or every writer "hung". */
static void artifacts_of_environment(struct world *w)
{
    static const struct sf_sql_options nowhere = {.kind = SF_SQL_SQLITE,
                                                  .path = "/nonexistent/export.sqlite"};
    const char *how = getenv("SF_TEST_ALLOC_ARTIFACTS");

    if (how == NULL)
        return;
    w->artifacts = (struct sf_allocator_artifacts){
        .failure_audit = true, .recovery_segments = true, .export_where = &nowhere};
    w->sched_hangs = strcmp(how, "hung") == 0;
}

struct process *world_start(struct world *w)
{
    artifacts_of_environment(w);
    assert_true(w->process_count < MAX_PROCESSES);
    struct process *p = &w->processes[w->process_count++];
    struct sf_loop *loops[] = {&w->loop.base};

    p->world = w;
    sf_attempts_init(&p->attempts, 1000 + w->process_count);
    p->metrics = sf_metrics_new();
    struct sf_allocator_deps deps = {.store = script_store_store(w->script),
                                     .loops = loops,
                                     .loop_count = 1,
                                     .clock = &w->loop.clock.base,
                                     .applied_clock = w->applied_clock,
                                     .catalog = w->ccs_channel,
                                     .keyring = w->keyring,
                                     .attempts = &p->attempts,
                                     .random_seed = w->process_count,
                                     .metrics = p->metrics,
                                     .grants = w->grants,
                                     .sched = &w->sched,
                                     .artifacts = w->artifacts,
                                     .replay_retention_ms = w->replay_retention_ms,
                                     .run_retention = w->run_retention,
                                     .limits = w->limits,
                                     .leases = w->leases};
    p->allocator = sf_allocator_new(&deps);
    const struct sf_service *services[] = {sf_allocator_service(p->allocator)};
    p->channel = sf_inproc_channel_new(services, 1, "loopback", &w->loop.clock.base);
    const struct sf_service *operations[] = {sf_allocator_operations(p->allocator)};
    p->operations = sf_inproc_channel_new(operations, 1, "loopback", &w->loop.clock.base);
    return p;
}

void world_kill(struct process *p)
{
    if (p->allocator == NULL)
        return;
    sf_channel_destroy(p->channel);
    sf_channel_destroy(p->operations);
    sf_allocator_destroy(p->allocator);
    sf_metrics_destroy(p->metrics);
    p->allocator = NULL;
}

int world_teardown(void **state)
{
    struct world *w = *state;

    for (unsigned i = 0; i < 100; i++)
        manual_loop_advance(&w->loop, 1000);
    for (unsigned i = 0; i < w->process_count; i++)
        world_kill(&w->processes[i]);
    sf_channel_destroy(w->ccs_channel);
    manual_loop_run(&w->loop);
    script_store_destroy(w->script);
    sf_store_destroy(w->backend);
    sf_keyring_destroy(w->keyring);
    manual_loop_fini(&w->loop);
    free(w);
    return 0;
}

/* ---- calls ---- */

/* The request of one call, alive until it is done. */
struct result_call {
    Searchfabric__V1__AllocateIdsRequest request;
    Searchfabric__V1__RequestMeta meta;
    Searchfabric__V1__CollectionRef collection;
    Searchfabric__V1__AllocationPlan plan;
    Searchfabric__V1__IssueItem issue;
    Searchfabric__V1__AllocationPlanItem *items;
    Searchfabric__V1__AllocationPlanItem **list;
    Searchfabric__V1__DocumentID *ids;
    struct sf_identity identity;
    char key[600];
};

static void call_free(struct result_call *call)
{
    free(call->items);
    free(call->list);
    free(call->ids);
    free(call);
}

static void call_done(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct result *r = user;

    assert_false(r->done);
    r->done = true;
    r->diag = *diag;
    if (response != NULL) {
        const Searchfabric__V1__AllocateIdsSuccessResponse *m = (const void *)response;
        sf_pb_pack(response, &r->packed);
        r->count = m->n_realized_doc_ids;
        for (size_t i = 0; i < m->n_realized_doc_ids && i < SF_ARRAY_LEN(r->ids); i++) {
            assert_int_equal(m->realized_doc_ids[i]->doc_id->id_value_case,
                             SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64);
            r->ids[i] = m->realized_doc_ids[i]->doc_id->u64;
            r->issued[i] = m->realized_doc_ids[i]->allocator_issued != 0;
        }
        (void)snprintf(r->token, sizeof(r->token), "%s", m->schema_generation_token);
        sf_buf_append(&r->receipt, m->allocator_receipt.data, m->allocator_receipt.len);
    }
    call_free(r->call);
    r->call = NULL;
}

static void call_fill(struct result_call *c, const struct call_spec *spec)
{
    searchfabric__v1__allocate_ids_request__init(&c->request);
    searchfabric__v1__request_meta__init(&c->meta);
    searchfabric__v1__collection_ref__init(&c->collection);
    searchfabric__v1__allocation_plan__init(&c->plan);
    searchfabric__v1__issue_item__init(&c->issue);
    (void)snprintf(c->key, sizeof(c->key), "%s", spec->key);
    c->meta.idempotency_key = c->key;
    c->meta.client_id = (char *)(spec->client_id == NULL ? "gw-1" : spec->client_id);
    c->meta.client_kind =
        spec->client_kind == 0 ? ES : (Searchfabric__V1__ClientKind)spec->client_kind;
    c->collection.namespace_id = spec->namespace_id == 0 ? NS : spec->namespace_id;
    c->collection.collection_id = spec->collection_id == 0 ? COLL : spec->collection_id;
    c->items = sf_calloc(spec->count + 1, sizeof(*c->items));
    c->list = sf_calloc(spec->count + 1, sizeof(Searchfabric__V1__AllocationPlanItem *));
    c->ids = sf_calloc(spec->count + 1, sizeof(*c->ids));
    for (size_t i = 0; i < spec->count; i++) {
        searchfabric__v1__allocation_plan_item__init(&c->items[i]);
        searchfabric__v1__document_id__init(&c->ids[i]);
        c->list[i] = &c->items[i];
        if (spec->items[i] == ISSUE) {
            c->items[i].item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE;
            c->items[i].issue = &c->issue;
        } else if (spec->items[i] != NO_BRANCH) {
            c->items[i].item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_EXPLICIT_DOC_ID;
            c->items[i].explicit_doc_id = &c->ids[i];
            c->ids[i].id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
            c->ids[i].u64 = spec->items[i];
        }
    }
    c->plan.items = c->list;
    c->plan.n_items = spec->count;
    c->request.meta = &c->meta;
    c->request.collection = &c->collection;
    c->request.plan = &c->plan;
    c->request.route_intent =
        (Searchfabric__V1__IdAllocationRouteIntent)(spec->route_intent == 0 ? CREATE_INSERT
                                                    : spec->route_intent == -1
                                                        ? 0
                                                        : spec->route_intent);
    c->identity.name = spec->identity;
    if (spec->identity != NULL)
        sf_sha256_hex(sf_view_str(spec->identity), c->identity.hash_hex);
}

void call_start(struct process *p, struct result *result, const struct call_spec *spec)
{
    struct result_call *call = sf_calloc(1, sizeof(*call));

    result_fini(result);
    *result = (struct result){.call = call};
    call_fill(call, spec);
    struct sf_call_options options = {.identity = spec->identity == NULL ? NULL : &call->identity};
    sf_channel_unary(p->channel, SF_ALLOCATOR_METHOD, &call->request.base, &options,
                     &p->world->loop.base, call_done, result);
}

void world_finish(struct world *w, struct result *result)
{
    manual_loop_run(&w->loop);
    for (int i = 0; i < 200 && !result->done; i++)
        manual_loop_advance(&w->loop, 100);
    assert_true(result->done);
}

void call_run(struct process *p, struct result *result, const struct call_spec *spec)
{
    call_start(p, result, spec);
    world_finish(p->world, result);
}

void allocate(struct process *p, struct result *result, const char *key, const uint64_t *items,
              size_t count)
{
    call_run(p, result, &(struct call_spec){.key = key, .items = items, .count = count});
}

void allocate_ok(struct process *p, struct result *result, const char *key, const uint64_t *items,
                 size_t count)
{
    allocate(p, result, key, items, count);
    if (result->diag.err != SF_OK)
        fail_msg("%s: %s", key, result->diag.message);
}

void result_fini(struct result *result)
{
    sf_buf_fini(&result->packed);
    sf_buf_fini(&result->receipt);
}

/* ---- expectations ---- */

void expect_ids(const struct result *r, const uint64_t *ids, size_t count)
{
    assert_true(r->done);
    if (r->diag.err != SF_OK)
        fail_msg("%s: %s", sf_err_info(r->diag.err)->name, r->diag.message);
    assert_int_equal(r->count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(r->ids[i], ids[i]);
}

void expect_err(const struct result *r, enum sf_err err)
{
    assert_true(r->done);
    if (r->diag.err != err)
        fail_msg("%s instead of %s: %s", sf_err_info(r->diag.err)->name, sf_err_info(err)->name,
                 r->diag.message);
    assert_true(r->packed.len == 0 || err == SF_OK);
}

void expect_detail(const struct result *r, const char *key, const char *value)
{
    const char *have = sf_diag_get(&r->diag, key);

    if (have == NULL)
        fail_msg("no detail %s", key);
    assert_string_equal(have, value);
}

void expect_same(const struct result *a, const struct result *b)
{
    assert_int_equal(b->diag.err, SF_OK);
    assert_true(a->packed.len > 0);
    assert_true(sf_view_equal(sf_buf_view(&a->packed), sf_buf_view(&b->packed)));
}

void world_settle(struct world *w)
{
    for (unsigned i = 0; i < 3; i++)
        manual_loop_advance(&w->loop, 1000);
}

void world_run_script(struct world *w, struct process *p, void (*harm)(struct world *w),
                      struct sf_buf *out)
{
    static const struct {
        const char *key;
        uint64_t items[3];
        size_t count;
    } script[] = {{"k1", {ISSUE, ISSUE}, 2}, {"k2", {10}, 1},     {"k3", {ISSUE, 20, ISSUE}, 3},
                  {"k2", {11}, 1},           {"k4", {3}, 1},      {"k1", {ISSUE, ISSUE}, 2},
                  {"k5", {9000}, 1},         {"k6", {ISSUE}, 1},  {"k3", {ISSUE, 20, ISSUE}, 3},
                  {"k7", {30, 31}, 2},       {"k7", {30, 31}, 2}, {"k8", {0}, 1}};

    for (size_t i = 0; i < SF_ARRAY_LEN(script); i++) {
        struct result result = {0};
        int64_t began_ns = w->loop.clock.mono_ns;
        allocate(p, &result, script[i].key, script[i].items, script[i].count);
        sf_buf_printf(out, "%s %lld ", sf_err_info(result.diag.err)->name,
                      (long long)(w->loop.clock.mono_ns - began_ns));
        sf_buf_append(out, result.packed.data, result.packed.len);
        result_fini(&result);
        world_settle(w);
        harm(w);
    }
}

/* ---- the store ---- */

/* Reads and verifies an object of `desc`; NULL when absent. */
static ProtobufCMessage *object_read(struct world *w, struct sf_view key,
                                     const ProtobufCMessageDescriptor *desc, struct sf_arena *arena)
{
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    enum sf_err err =
        sf_durable_read_wait(w->backend, NULL, key, desc, arena, &diag, &message, NULL);
    if (err == SF_ERR_NOT_FOUND)
        return NULL;
    assert_int_equal(err, SF_OK);
    return message;
}

Searchfabric__V1__AllocatorStateObject *world_state(struct world *w, uint64_t collection_id,
                                                    struct sf_arena *arena)
{
    char key[128];
    /* SHA-256 of "7" begins with 79 */
    int len = snprintf(key, sizeof(key), "id-allocator/state/79/7/%llu.json",
                       (unsigned long long)collection_id);
    return (void *)object_read(w, sf_view_bytes(key, (size_t)len),
                               &searchfabric__v1__allocator_state_object__descriptor, arena);
}

const char *world_next(struct world *w)
{
    static char text[32];
    struct sf_arena *arena = sf_arena_new(64u << 20);
    const Searchfabric__V1__AllocatorStateObject *object = world_state(w, COLL, arena);

    (void)snprintf(text, sizeof(text), "%s", object == NULL ? "" : object->next_doc_id);
    sf_arena_destroy(arena);
    return text;
}

static size_t replay_list(struct world *w, struct sf_arena *arena, struct sf_list_entry **out)
{
    size_t count = 0;
    enum sf_err err =
        sf_store_list_wait(w->backend, NULL, sf_view_str("id-allocator/replay-success/"),
                           (struct sf_view){0}, 1000, arena, out, &count);
    assert_int_equal(err, SF_OK);
    return count;
}

size_t world_replay_count(struct world *w)
{
    struct sf_arena *arena = sf_arena_new(16u << 20);
    struct sf_list_entry *entries = NULL;
    size_t count = replay_list(w, arena, &entries);

    sf_arena_destroy(arena);
    return count;
}

Searchfabric__V1__AllocatorReplaySuccessObject *world_replay(struct world *w, const char *key,
                                                             struct sf_arena *arena)
{
    struct sf_list_entry *entries = NULL;
    size_t count = replay_list(w, arena, &entries);

    for (size_t i = 0; i < count; i++) {
        Searchfabric__V1__AllocatorReplaySuccessObject *object = (void *)object_read(
            w, entries[i].key, &searchfabric__v1__allocator_replay_success_object__descriptor,
            arena);
        if (strcmp(object->idempotency_key, key) == 0)
            return object;
    }
    return NULL;
}

bool metrics_have(struct process *p, const char *line)
{
    struct sf_buf text = {0};
    struct sf_buf want = {0};

    sf_buf_append(&text, "\n", 1);
    sf_metrics_render(p->metrics, &text);
    sf_buf_append(&text, "", 1);
    sf_buf_printf(&want, "\n%s\n", line);
    sf_buf_append(&want, "", 1);
    bool found = strstr((char *)text.data, (char *)want.data) != NULL;
    sf_buf_fini(&text);
    sf_buf_fini(&want);
    return found;
}
