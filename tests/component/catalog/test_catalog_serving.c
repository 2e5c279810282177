/* What the serving side reports and asks: fences, complete descriptors, drift and its repair. */
#include <semaphore.h>
#include <stdio.h>

#include "base/pbjson.h"
#include "catalog/catalog_serving.h"
#include "component/catalog/catalog_manifests.h"
#include "component/catalog/lineage_world.h"

static SF_PB(ResolveServingGenerationRequest) *
    resolve_request(struct world *w, uint64_t ns, uint64_t c, const char *expected)
{
    SF_PB(ResolveServingGenerationRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
    searchfabric__v1__resolve_serving_generation_request__init(out);
    out->collection = world_ref(w, ns, c);
    if (expected != NULL) {
        out->_expected_schema_generation_token_case =
            SEARCHFABRIC__V1__RESOLVE_SERVING_GENERATION_REQUEST___EXPECTED_SCHEMA_GENERATION_TOKEN_EXPECTED_SCHEMA_GENERATION_TOKEN;
        out->expected_schema_generation_token = world_text(w, expected);
    }
    return out;
}

static const SF_PB(ResolveServingGenerationResponse) *
    resolve(struct world *w, uint64_t ns, uint64_t c, const char *expected)
{
    return world_call(w, "ResolveServingGeneration", resolve_request(w, ns, c, expected));
}

static const SF_PB(ReportServingObservationResponse) *
    observe(struct world *w, uint64_t ns, uint64_t c, const char *token, const char *digest)
{
    SF_PB(ReportServingObservationRequest) report;
    searchfabric__v1__report_serving_observation_request__init(&report);
    report.collection = world_ref(w, ns, c);
    report.schema_generation_token = world_text(w, token);
    report.definition_sha256 = world_text(w, digest == NULL ? "" : digest);
    return world_call(w, "ReportServingObservation", &report);
}

/* Every read that needs a schema, on a collection that has none, or none that is READY. */
static void test_closed_without_a_generation(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-7-14", "CCS-7-18");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = world_collection(w, "c", ns, "books");
    SF_PB(RequestMeta) *meta = world_meta(w, "", SF_PBE(CLIENT_KIND, ES_QUERY_GATEWAY));
    SF_PB(GetCollectionSchemaRequest) schema;
    SF_PB(GetSchemaSyncStatusRequest) sync;
    SF_PB(GetCollectionStatisticsRequest) statistics;
    SF_PB(GetCollectionAdmissionStateRequest) admission;
    searchfabric__v1__get_collection_schema_request__init(&schema);
    searchfabric__v1__get_schema_sync_status_request__init(&sync);
    searchfabric__v1__get_collection_statistics_request__init(&statistics);
    searchfabric__v1__get_collection_admission_state_request__init(&admission);
    schema.meta = sync.meta = statistics.meta = meta;
    schema.collection = sync.collection = statistics.collection = admission.collection =
        world_ref(w, ns, c);
    const struct {
        const char *method;
        const void *request;
    } reads[] = {{"GetCollectionSchema", &schema},
                 {"GetSchemaSyncStatus", &sync},
                 {"GetCollectionStatistics", &statistics},
                 {"ResolveServingGeneration", resolve_request(w, ns, c, NULL)},
                 {"ResolveServingGeneration", resolve_request(w, ns, c, "tok-1")}};
    for (size_t i = 0; i < SF_ARRAY_LEN(reads); i++) {
        assert_null(world_call(w, reads[i].method, reads[i].request));
        assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
        assert_string_equal(sf_diag_get(&w->diag, "catalog_unavailable_reason"),
                            "schema_bootstrap");
        assert_string_equal(sf_diag_get(&w->diag, "schema_bootstrap_state"),
                            "no_active_schema_generation");
    }
    const SF_PB(GetCollectionAdmissionStateResponse) *facts =
        world_call(w, "GetCollectionAdmissionState", &admission);
    assert_int_equal(facts->state->schema_bootstrap_state,
                     SF_PBE(SCHEMA_BOOTSTRAP_STATE, NO_ACTIVE_SCHEMA_GENERATION));
    world_schema(w, "s", ns, c, 1, "tok-1");
    for (size_t i = 2; i < SF_ARRAY_LEN(reads); i++) { /* what queries depend on */
        assert_null(world_call(w, reads[i].method, reads[i].request));
        assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
        assert_string_equal(sf_diag_get(&w->diag, "catalog_unavailable_reason"),
                            "schema_convergence");
        assert_string_equal(sf_diag_get(&w->diag, "schema_convergence_state"),
                            "no_ready_serving_generation");
    }
    facts = world_call(w, "GetCollectionAdmissionState", &admission);
    assert_int_equal(facts->state->schema_convergence_state,
                     SF_PBE(SCHEMA_CONVERGENCE_STATE, NO_READY_SERVING_GENERATION));
    assert_int_equal(facts->state->_ready_generation_token_case, 0);
}

static void test_fence(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-7-19");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = world_collection(w, "c", ns, "books");
    world_schema(w, "s", ns, c, 1, "tok-1");
    world_ready(w, ns, c, 1, "tok-1");
    world_schema(w, "s2", ns, c, 2, "tok-2");
    const SF_PB(ResolveServingGenerationResponse) *answer = resolve(w, ns, c, "tok-1");
    assert_non_null(answer);
    assert_string_equal(answer->ready_generation_token, "tok-1");
    assert_int_equal(answer->ready_generation_version, 1);
    assert_int_equal(answer->effective_max_result_window, 10000);
    assert_null(answer->collection_descriptor);
    assert_null(resolve(w, ns, c, "tok-2")); /* active, not READY */
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_string_equal(sf_diag_get(&w->diag, "violated_precondition"), "schema_generation_token");
    assert_string_equal(sf_diag_get(&w->diag, "active_schema_generation_token"), "tok-2");
    assert_null(resolve(w, ns, c, "tok-0"));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_null(resolve(w, ns, c, ""));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_non_null(resolve(w, ns, c, NULL));
    world_ready(w, ns, c, 2, "tok-2");
    assert_non_null(resolve(w, ns, c, "tok-2"));
    assert_null(resolve(w, ns, c, "tok-1"));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_int_equal(lineage_drop(w, "d", ns, c, NULL), DROPPED);
    assert_null(resolve(w, ns, c, NULL));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
}

static void test_complete_descriptors(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = world_collection(w, "c", ns, "books");
    world_schema(w, "s", ns, c, 1, "tok-1");
    world_ready(w, ns, c, 1, "tok-1");
    SF_PB(ResolveServingGenerationRequest) *request = resolve_request(w, ns, c, NULL);
    request->complete_namespace_descriptor = true;
    const SF_PB(ResolveServingGenerationResponse) *answer =
        world_call(w, "ResolveServingGeneration", request);
    assert_non_null(answer); /* the zero-child aggregate stands until the aggregator ran */
    assert_non_null(answer->namespace_descriptor);
    request->complete_collection_descriptor = true;
    assert_null(world_call(w, "ResolveServingGeneration", request));
    assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
    assert_string_equal(sf_diag_get(&w->diag, "catalog_unavailable_reason"),
                        "descriptor_publishing");
    assert_string_equal(sf_diag_get(&w->diag, "missing_descriptor_fields"), "approx_stats,index");
    world_job(w, "collection-stats");
    assert_null(world_call(w, "ResolveServingGeneration", request));
    assert_string_equal(sf_diag_get(&w->diag, "missing_descriptor_fields"), "index");
    SF_PB(ReportIndexBacklogRequest) report;
    searchfabric__v1__report_index_backlog_request__init(&report);
    report.collection = world_ref(w, ns, c);
    report.schema_generation_token = world_text(w, "tok-1");
    assert_non_null(world_call(w, "ReportIndexBacklog", &report));
    world_enrich(w);
    answer = world_call(w, "ResolveServingGeneration", request);
    assert_non_null(answer);
    assert_non_null(answer->collection_descriptor->approx_stats);
    assert_non_null(answer->collection_descriptor->index);
    world_rebuild(w); /* fails closed again until the projectors ran */
    assert_null(world_call(w, "ResolveServingGeneration", request));
    request->complete_collection_descriptor = false;
    assert_null(world_call(w, "ResolveServingGeneration", request));
    assert_string_equal(sf_diag_get(&w->diag, "missing_descriptor_fields"), "approx_stats,index");
}

static const char *sync_state(struct world *w)
{
    return world_rows(w, "SELECT sync_state, drift_reason, error_reason FROM schema_generations",
                      3);
}

static void test_drift_and_repair(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-7-09", "CCS-7-10", "CCS-7-11");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = world_collection(w, "c", ns, "books");
    world_schema(w, "s", ns, c, 1, "tok-1");
    const SF_PB(ReportServingObservationResponse) *answer = observe(w, ns, c, "tok-0", NULL);
    assert_false(answer->changed); /* APPLYING: not yet */
    world_ready(w, ns, c, 1, "tok-1");
    answer = observe(w, ns, c, "tok-1", NULL);
    assert_false(answer->changed);
    assert_int_equal(answer->state->state_case, SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY);
    answer = observe(w, ns, c, "tok-0", NULL); /* an observed mismatch */
    assert_true(answer->changed);
    assert_string_equal(sync_state(w), "DRIFTED|observed_generation_mismatch|NULL\n");
    answer = observe(w, ns, c, "tok-1", NULL); /* healed */
    assert_true(answer->changed);
    assert_string_equal(sync_state(w), "READY|NULL|NULL\n");

    observe(w, ns, c, "tok-0", NULL);
    for (uint32_t i = 1; i < SF_CATALOG_REPAIR_LIMIT; i++) {
        answer = observe(w, ns, c, "tok-0", NULL);
        assert_false(answer->changed);
        assert_int_equal(answer->failed_repairs, i);
        assert_non_null(strstr(sync_state(w), "DRIFTED"));
        if (i == 2)
            world_restart(w); /* the count is kept */
    }
    answer = observe(w, ns, c, "tok-0", NULL); /* the policy's limit */
    assert_true(answer->changed);
    assert_int_equal(answer->failed_repairs, SF_CATALOG_REPAIR_LIMIT);
    assert_string_equal(sync_state(w), "ERROR|NULL|still different after 5 observations\n");
    answer = observe(w, ns, c, "tok-1", NULL); /* an operator's move from here */
    assert_false(answer->changed);
    assert_non_null(strstr(sync_state(w), "ERROR"));
    assert_null(observe(w, ns, c, "tok-1", "abc"));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_null(observe(w, ns, c, "", NULL));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
}

/* The right token with another definition is drift too. */
static void test_definition_drift(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = world_collection(w, "c", ns, "books");
    SF_PB(PutCollectionSchemaRequest) *put = world_schema_request(w, "s", ns, c, 1, "tok-1");
    assert_non_null(world_call(w, "PutCollectionSchema", put));
    world_ready(w, ns, c, 1, "tok-1");
    struct sf_buf json = {0};
    char digest[SF_SHA256_HEX_BYTES];
    sf_pbjson_encode(&put->definition->base, &json);
    sf_sha256_hex(sf_buf_view(&json), digest);
    sf_buf_fini(&json);
    assert_false(observe(w, ns, c, "tok-1", digest)->changed);
    digest[0] = digest[0] == '0' ? '1' : '0';
    assert_true(observe(w, ns, c, "tok-1", digest)->changed);
    assert_string_equal(sync_state(w), "DRIFTED|observed_definition_mismatch|NULL\n");
}

static void test_verdicts(void **state)
{
    (void)state;
    SF_PROVES("CCS-7-10");
    enum {
        APPLYING = SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_APPLYING,
        READY = SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY,
        DRIFTED = SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_DRIFTED,
        ERROR = SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_ERROR
    };
    static const struct {
        int state;
        bool matches;
        uint32_t failed;
        enum sf_catalog_verdict verdict;
    } rows[] = {
        {APPLYING, false, 0, SF_CATALOG_VERDICT_NONE},
        {APPLYING, true, 0, SF_CATALOG_VERDICT_NONE},
        {READY, true, 0, SF_CATALOG_VERDICT_NONE},
        {READY, false, 0, SF_CATALOG_VERDICT_DRIFT},
        {DRIFTED, true, 0, SF_CATALOG_VERDICT_HEALED},
        {DRIFTED, true, SF_CATALOG_REPAIR_LIMIT - 1, SF_CATALOG_VERDICT_HEALED},
        {DRIFTED, false, 0, SF_CATALOG_VERDICT_UNHEALED},
        {DRIFTED, false, SF_CATALOG_REPAIR_LIMIT - 2, SF_CATALOG_VERDICT_UNHEALED},
        {DRIFTED, false, SF_CATALOG_REPAIR_LIMIT - 1, SF_CATALOG_VERDICT_FAILED},
        {ERROR, false, 9, SF_CATALOG_VERDICT_NONE},
        {ERROR, true, 9, SF_CATALOG_VERDICT_NONE},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++)
        assert_int_equal(sf_catalog_compare((SF_PB(SchemaSyncState__StateCase))rows[i].state,
                                            rows[i].matches, rows[i].failed),
                         rows[i].verdict);
}

/* ---- whale namespaces --------------------------------------------------------------------- */

/* A hook that takes as long as the test wants, and then fails. */
struct slow_hook {
    struct sf_catalog_presplit base;
    sem_t begun, may_end;
    uint64_t namespace_id;
    unsigned calls;
};

static enum sf_err slow_split(struct sf_catalog_presplit *presplit, struct sf_sched *sched,
                              uint64_t namespace_id)
{
    struct slow_hook *hook = SF_CONTAINER_OF(presplit, struct slow_hook, base);
    (void)sched;
    hook->namespace_id = namespace_id;
    hook->calls++;
    sem_post(&hook->begun);
    sem_wait(&hook->may_end);
    return SF_ERR_UNAVAILABLE;
}

static void test_presplit(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-10.1-02", "CCS-10.1-03");
    static const struct sf_catalog_namespace_policy rules[] = {
        {.name_prefix = "big", .quota_class = "", .policy_profile = "whale"}};
    const struct sf_catalog_policy policy = {.namespaces = rules, .namespace_count = 1};
    struct slow_hook hook = {.base.split = slow_split};
    sem_init(&hook.begun, 0, 0);
    sem_init(&hook.may_end, 0, 0);
    world_stop(w);
    w->policy = &policy;
    w->presplit = &hook.base;
    assert_int_equal(world_open(w), SF_OK);
    world_namespace(w, "n0", "small");
    uint64_t big = world_namespace(w, "n1", "big-1"); /* answered while the hook hangs */
    sem_wait(&hook.begun);
    assert_int_equal(hook.namespace_id, big);
    world_collection(w, "c", big, "books"); /* and so is everything else */
    uint64_t second = world_namespace(w, "n2", "big-2");
    assert_non_null(
        world_call(w, "PutNamespaceMetadata", world_namespace_request(w, "u", "big-1")));
    const char *answers = world_answers(w, big);
    assert_null(strstr(answers, "whale"));
    assert_null(strstr(answers, "policy"));
    assert_null(strstr(world_answers(w, second), "whale"));
    sem_post(&hook.may_end); /* fails: nothing follows */
    sem_wait(&hook.begun);
    sem_post(&hook.may_end);
    world_stop(w);
    assert_int_equal(hook.calls, 2); /* once a namespace, at its creation */
    assert_int_equal(hook.namespace_id, second);
    w->presplit = NULL; /* none configured: nothing runs */
    assert_int_equal(world_open(w), SF_OK);
    assert_string_equal(world_answers(w, big), answers);
    world_namespace(w, "n3", "big-3");
    world_stop(w);
    assert_int_equal(hook.calls, 2);
    assert_int_equal(world_open(w), SF_OK);
    sem_destroy(&hook.begun);
    sem_destroy(&hook.may_end);
    w->policy = NULL;
    world_restart(w);
}

/* Nothing but PutNamespaceMetadata makes a namespace. */
static void test_provisioning(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-10.1-01");
    uint64_t nowhere = 4711;
    SF_PB(ReportIndexBacklogRequest) backlog;
    SF_PB(ReportSchemaConvergenceSignalRequest) signal;
    searchfabric__v1__report_index_backlog_request__init(&backlog);
    searchfabric__v1__report_schema_convergence_signal_request__init(&signal);
    backlog.collection = signal.collection = world_ref(w, nowhere, 1);
    backlog.schema_generation_token = signal.schema_generation_token = world_text(w, "tok");
    signal.schema_version = 1;
    signal.signal = SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SERVING_GENERATION_READY);
    const struct {
        const char *method;
        const void *request;
    } calls[] = {
        {"PutCollectionMetadata", world_collection_request(w, "c", nowhere, "books")},
        {"PutCollectionSchema", world_schema_request(w, "s", nowhere, 1, 1, "tok")},
        {"DropCollection", lineage_drop_request(w, "d", nowhere, 1, NULL)},
        {"ReportIndexBacklog", &backlog},
        {"ReportSchemaConvergenceSignal", &signal},
        {"ResolveServingGeneration", resolve_request(w, nowhere, 1, NULL)},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(calls); i++)
        assert_null(world_call(w, calls[i].method, calls[i].request));
    assert_null(lineage_transition(w, nowhere, NS_STATE(QUIESCING), 1));
    assert_int_equal(lineage_listed_namespaces(w, ""), 0);
    assert_string_equal(world_rows(w, "SELECT namespace_name FROM namespaces", 1), "");
    world_namespace(w, "n", "alpha");
    assert_int_equal(lineage_listed_namespaces(w, ""), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_closed_without_a_generation, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(test_closed_without_a_generation, world_setup_shared,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(test_fence, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_fence, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_complete_descriptors, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_drift_and_repair, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_drift_and_repair, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_definition_drift, world_setup, world_teardown),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test_setup_teardown(test_presplit, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_provisioning, world_setup, world_teardown),
    };
    return SF_RUN_TESTS("catalog_serving", tests);
}
