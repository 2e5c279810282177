/* Quota leases: grants, repeats, ends, recovery of the budgets, and what never gets out. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "component/catalog/quota_world.h"

/* 1000 units a second and 5000 at once for query_rcu; the other budgets are smaller. */
static const struct sf_catalog_quota_class classes[] = {
    {.name = "default",
     .budgets = {[SF_CATALOG_QUERY_RCU] = {1000, 5000},
                 [SF_CATALOG_QUERY_QPS] = {10, 100},
                 [SF_CATALOG_INGEST_BYTES] = {1000, 4000},
                 [SF_CATALOG_INGEST_ENTRIES] = {10, 100}}},
    {.name = "marker-class", .budgets = {[SF_CATALOG_QUERY_RCU] = {7, 70}}},
};
static const struct sf_catalog_namespace_policy bindings[] = {
    {.name_prefix = "whale-", .quota_class = "marker-class", .policy_profile = "marker-profile"},
};
static const struct sf_catalog_policy policy = {.classes = classes,
                                                .class_count = SF_ARRAY_LEN(classes),
                                                .namespaces = bindings,
                                                .namespace_count = SF_ARRAY_LEN(bindings)};

static int setup_as(void **state, bool exclusive)
{
    struct world *w = world_new(exclusive);
    w->policy = &policy;
    world_restart(w);
    *state = w;
    return 0;
}

static int setup(void **state)
{
    return setup_as(state, true);
}

static int setup_shared(void **state)
{
    return setup_as(state, false);
}

/* ---- grants ------------------------------------------------------------------------------- */

static void test_grant(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.10-05", "CCS-5.10-10", "CCS-5.10-12");
    uint64_t ns = world_namespace(w, "n", "alpha");
    const struct lease *a = lease(w, ns, "query_rcu", "gw-1", "r1", 1200, 0);
    assert_non_null(a);
    assert_int_equal(a->granted_units, 1200);
    assert_true(a->expires_at_unix_ms >= WORLD_UNIX_MS + 8000);
    assert_true(a->expires_at_unix_ms <= WORLD_UNIX_MS + 12000);
    const SF_PB(NamespaceQuotaStateObject) *object = quota_object(w, ns);
    assert_non_null(object);
    assert_int_equal(a->lease_epoch, object->quota_epoch);
    assert_int_equal(object->namespace_id, ns);

    /* a stale epoch: no grant, and the current one is told */
    assert_null(lease(w, ns, "query_rcu", "gw-1", "r2", 10, a->lease_epoch + 5));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, a->lease_epoch);
    assert_string_equal(sf_diag_get(&w->diag, "quota_epoch"), text);
    assert_non_null(lease(w, ns, "query_rcu", "gw-1", "r2", 10, a->lease_epoch));
}

static void test_partial_then_limited(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    assert_int_equal(lease(w, ns, "query_rcu", "gw-1", "r1", 4000, 0)->granted_units, 4000);
    assert_int_equal(lease(w, ns, "query_rcu", "gw-1", "r2", 4000, 0)->granted_units, 1000);
    assert_null(lease(w, ns, "query_rcu", "gw-1", "r3", 1000, 0));
    assert_int_equal(w->diag.err, SF_RATE_LIMITED);
    assert_string_equal(sf_diag_get(&w->diag, "throttled_dimension"), "query_rcu");
    assert_string_equal(sf_diag_get(&w->diag, "server_limit"), "1000");
    int64_t wait_ms = atoll(sf_diag_get(&w->diag, "retry_after_ms"));
    assert_in_range(wait_ms, 1000, 1500);
    sf_clock_manual_advance(&w->clock, wait_ms);
    assert_int_equal(lease(w, ns, "query_rcu", "gw-1", "r3", 1000, 0)->granted_units, 1000);
}

static void test_budgets_are_apart(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.10-02", "CCS-5.10-03");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t other = world_namespace(w, "n2", "beta");
    assert_int_equal(lease(w, ns, "query_rcu", "g", "r", 9999, 0)->granted_units, 5000);
    assert_int_equal(lease(w, ns, "query_qps", "g", "r", 9999, 0)->granted_units, 100);
    assert_int_equal(lease(w, ns, "ingest_bytes", "g", "r", 9999, 0)->granted_units, 4000);
    assert_int_equal(lease(w, ns, "ingest_entries", "g", "r", 9999, 0)->granted_units, 100);
    assert_int_equal(lease(w, other, "query_rcu", "g", "r", 9999, 0)->granted_units, 5000);

    SF_PB(AcquireQuotaLeaseRequest) *request = lease_request(w, ns, "query_rcu", "g", "r9", 1, 0);
    request->lease->api_plane = SF_PBE(API_PLANE, WRITE); /* a dimension of the other plane */
    assert_null(world_call(w, "AcquireQuotaLease", request));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&w->diag, "field"), "lease.throttled_dimension");
    request->lease->api_plane = (SF_PB(ApiPlane))3;
    assert_null(world_call(w, "AcquireQuotaLease", request));
    assert_string_equal(sf_diag_get(&w->diag, "field"), "lease.api_plane");
    request = lease_request(w, ns, "query_rcu", "g", "r9", 1, 0);
    request->lease->throttled_dimension = (char *)(uintptr_t) "query_coffee";
    assert_null(world_call(w, "AcquireQuotaLease", request));
    assert_string_equal(sf_diag_get(&w->diag, "field"), "lease.throttled_dimension");
}

static void test_required_fields(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.10-11");
    static const char *const fields[] = {"lease",
                                         "lease.namespace_id",
                                         "lease.api_plane",
                                         "lease.throttled_dimension",
                                         "lease.lease_holder_id",
                                         "lease.lease_request_id",
                                         "requested_units"};
    uint64_t ns = world_namespace(w, "n", "alpha");
    for (size_t i = 0; i < SF_ARRAY_LEN(fields); i++) {
        SF_PB(AcquireQuotaLeaseRequest) *request =
            lease_request(w, ns, "query_rcu", "gw", "r", 5, 0);
        char *empty = (char *)(uintptr_t) "";
        if (i == 1)
            request->lease->namespace_id = 0;
        if (i == 2)
            request->lease->api_plane = SF_PBE(API_PLANE, UNSPECIFIED);
        if (i == 3)
            request->lease->throttled_dimension = empty;
        if (i == 4)
            request->lease->lease_holder_id = empty;
        if (i == 5)
            request->lease->lease_request_id = empty;
        if (i == 6)
            request->requested_units = 0;
        if (i == 0)
            request->lease = NULL;
        assert_null(world_call(w, "AcquireQuotaLease", request));
        assert_int_equal(w->diag.err, SF_BAD_REQUEST);
        assert_string_equal(sf_diag_get(&w->diag, "field"), fields[i]);
    }
    assert_null(quota_object(w, ns)); /* nothing was written */
    assert_null(lease(w, ns + 1, "query_rcu", "gw", "r", 5, 0));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
}

/* ---- repeats ------------------------------------------------------------------------------ */

static void test_repeat(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.1-09", "CCS-5.10-13", "CCS-5.10-14");
    uint64_t ns = world_namespace(w, "n", "alpha");
    const struct lease *a = lease(w, ns, "query_rcu", "gw", "r1", 4000, 0);
    sf_clock_manual_advance(&w->clock, 500);
    const struct lease *b = lease(w, ns, "query_rcu", "gw", "r1", 4000, 0);
    assert_same_lease(a, b);
    /* debited once: 1000 left and 500 refilled */
    assert_int_equal(lease(w, ns, "query_rcu", "gw", "r2", 4000, 0)->granted_units, 1500);
    /* other units under the same key; the same id of another holder or dimension is another key */
    assert_null(lease(w, ns, "query_rcu", "gw", "r1", 3999, 0));
    assert_int_equal(w->diag.err, SF_IDEMPOTENCY_CONFLICT);
    assert_non_null(lease(w, ns, "query_qps", "gw", "r1", 1, 0));
    sf_clock_manual_advance(&w->clock, 1000);
    assert_non_null(lease(w, ns, "query_rcu", "gw-2", "r1", 3999, 0));
    /* also when it is over, and after a start that can trust the leases */
    sf_clock_manual_advance(&w->clock, 60000);
    assert_same_lease(a, lease(w, ns, "query_rcu", "gw", "r1", 4000, 0));
    assert_int_equal(run_sweep(w), 4);
    assert_same_lease(a, lease(w, ns, "query_rcu", "gw", "r1", 4000, 0));
    world_restart(w);
    assert_same_lease(a, lease(w, ns, "query_rcu", "gw", "r1", 4000, 0));
}

/* ---- ends --------------------------------------------------------------------------------- */

static void test_return(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    assert_int_equal(lease(w, ns, "query_rcu", "gw", "r1", 5000, 0)->granted_units, 5000);
    assert_null(lease(w, ns, "query_rcu", "gw", "r2", 1, 0));
    assert_int_equal(give_back(w, ns, "query_rcu", "gw", "r1", 5001), 0); /* more than it has */
    assert_string_equal(sf_diag_get(&w->diag, "field"), "unspent_units");
    assert_int_equal(give_back(w, ns, "query_rcu", "gw", "r1", 3000), RETURNED);
    assert_int_equal(give_back(w, ns, "query_rcu", "gw", "r1", 3000), RETURNED); /* credited once */
    assert_int_equal(lease(w, ns, "query_rcu", "gw", "r3", 5000, 0)->granted_units, 3000);
    assert_int_equal(give_back(w, ns, "query_rcu", "gw", "r9", 0), 0);
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
}

static void test_expiry(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.10-15");
    uint64_t ns = world_namespace(w, "n", "alpha");
    lease(w, ns, "query_rcu", "gw", "r1", 3000, 0);
    lease(w, ns, "query_rcu", "gw", "r2", 2000, 0);
    assert_null(lease(w, ns, "query_rcu", "gw", "r3", 1, 0));
    assert_int_equal(give_back(w, ns, "query_rcu", "gw", "r1", 0), RETURNED);
    assert_int_equal(run_sweep(w), 0);
    assert_int_equal(active_leases(w, ns), 1);
    sf_clock_manual_advance(&w->clock, 12001);
    assert_int_equal(run_sweep(w), 1);
    assert_string_equal(lease_state(w, "r1"), "RETURNED");
    assert_string_equal(lease_state(w, "r2"), "EXPIRED");
    assert_int_equal(active_leases(w, ns), 0);
    assert_int_equal(give_back(w, ns, "query_rcu", "gw", "r2", 2000), EXPIRED); /* too late */
    /* what nobody gave back counts as spent; the refill has brought it back meanwhile */
    assert_int_equal(lease(w, ns, "query_rcu", "gw", "r4", 5000, 0)->granted_units, 5000);
    /* an ended lease answers for the retention past its expiry, then it is gone */
    sf_clock_manual_advance(&w->clock, 885000);
    run_sweep(w);
    assert_string_equal(lease_state(w, "r1"), "RETURNED");
    sf_clock_manual_advance(&w->clock, 20000);
    run_sweep(w);
    assert_null(lease_state(w, "r1"));
    assert_null(lease_state(w, "r2"));
}

/* More leases than one cycle of the sweeper takes. */
static void test_sweep_is_bounded(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    enum { LEASES = 2100 };
    for (int i = 0; i < LEASES; i++) {
        char id[16];
        snprintf(id, sizeof(id), "r%d", i);
        assert_non_null(lease(w, ns, "query_rcu", "gw", id, 1, 0));
    }
    sf_clock_manual_advance(&w->clock, 13000);
    assert_int_equal(run_sweep(w), 2000);
    assert_int_equal(run_sweep(w), 100);
    assert_int_equal(run_sweep(w), 0);
    assert_int_equal(active_leases(w, ns), 0);
}

/* ---- puts --------------------------------------------------------------------------------- */

static void test_thousand_leases(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.1-08");
    uint64_t ns = world_namespace(w, "n", "alpha");
    size_t log = world_list(w, "catalog-log/", NULL);
    size_t transport = world_list(w, "catalog-replay-transport/", NULL);
    size_t business = world_list(w, "catalog-replay-business/", NULL);
    size_t all = world_list(w, "", NULL);
    atomic_store(&w->wire.applied, 0);
    for (int i = 0; i < 1000; i++) {
        char id[16];
        snprintf(id, sizeof(id), "r%d", i);
        assert_int_equal(lease(w, ns, "query_rcu", "gw", id, 3, 0)->granted_units, 3);
    }
    assert_int_equal(world_list(w, "catalog-log/", NULL), log);
    assert_int_equal(world_list(w, "catalog-replay-transport/", NULL), transport);
    assert_int_equal(world_list(w, "catalog-replay-business/", NULL), business);
    assert_int_equal(world_list(w, "", NULL), all + 1);   /* the quota state */
    assert_in_range(atomic_load(&w->wire.applied), 1, 2); /* chunks of 2000 units */
}

struct client {
    struct world *w;
    uint64_t ns;
    int id;
    uint64_t granted;
};

static void *take_all(void *arg)
{
    struct client *client = arg;
    for (int i = 0; i < 40; i++) {
        SF_PB(AcquireQuotaLeaseRequest) request;
        SF_PB(QuotaLeaseKey) key;
        struct sf_diag diag;
        char holder[16], id[16];
        struct sf_arena *arena = sf_arena_new(1 << 16);
        const ProtobufCMessage *response = NULL;
        struct sf_call_options options = {0};
        searchfabric__v1__acquire_quota_lease_request__init(&request);
        searchfabric__v1__quota_lease_key__init(&key);
        snprintf(holder, sizeof(holder), "gw-%d", client->id);
        snprintf(id, sizeof(id), "r%d", i);
        key.namespace_id = client->ns;
        key.api_plane = SF_PBE(API_PLANE, QUERY);
        key.throttled_dimension = (char *)(uintptr_t) "query_rcu";
        key.lease_holder_id = holder;
        key.lease_request_id = id;
        request.lease = &key;
        request.requested_units = 170;
        sf_diag_init(&diag);
        enum sf_err err =
            sf_channel_unary_wait(client->w->channel, NULL,
                                  "/searchfabric.v1.CatalogControlPrivateService/AcquireQuotaLease",
                                  &request.base, &options, arena, &diag, &response);
        if (err == SF_OK)
            client->granted += ((const SF_PB(AcquireQuotaLeaseResponse) *)response)->granted_units;
        else
            assert_int_equal(err, SF_RATE_LIMITED);
        sf_arena_destroy(arena);
    }
    return NULL;
}

static void test_concurrent(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.1-07");
    struct client clients[8];
    pthread_t threads[8];
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t granted = 0;
    for (int i = 0; i < 8; i++) {
        clients[i] = (struct client){.w = w, .ns = ns, .id = i};
        assert_int_equal(pthread_create(&threads[i], NULL, take_all, &clients[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        granted += clients[i].granted;
    }
    assert_int_equal(granted, 5000); /* the clock stands: the burst, to the unit */
}

/* ---- pressure ----------------------------------------------------------------------------- */

static void test_pressure(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t books = world_collection(w, "c", ns, "books");
    /* 10 percent of 4000 at once while the lag is 6 s */
    assert_true(press(w, ns, books, "ingest_bytes", 6000, true));
    assert_int_equal(lease(w, ns, "ingest_bytes", "g", "r1", 4000, 0)->granted_units, 400);
    assert_int_equal(lease(w, ns, "ingest_entries", "g", "r1", 100, 0)->granted_units, 100);
    sf_clock_manual_advance(&w->clock, 1000);
    assert_int_equal(lease(w, ns, "ingest_bytes", "g", "r2", 4000, 0)->granted_units, 100);
    /* a milder report of another origin does not loosen it */
    assert_true(press(w, ns, world_collection(w, "c2", ns, "films"), "ingest_bytes", 10, true));
    sf_clock_manual_advance(&w->clock, 1000);
    assert_int_equal(lease(w, ns, "ingest_bytes", "g", "r3", 4000, 0)->granted_units, 100);
    /* over: the milder one counts, then none */
    assert_true(press(w, ns, books, "ingest_bytes", 0, false));
    sf_clock_manual_advance(&w->clock, 1000);
    assert_int_equal(lease(w, ns, "ingest_bytes", "g", "r4", 4000, 0)->granted_units, 500);
    sf_clock_manual_advance(&w->clock, 60000);
    assert_int_equal(lease(w, ns, "ingest_bytes", "g", "r5", 9999, 0)->granted_units, 4000);
    /* a reporter that died is forgotten after 30 s */
    assert_true(press(w, ns, books, "ingest_bytes", 6000, true));
    sf_clock_manual_advance(&w->clock, 40000);
    assert_int_equal(lease(w, ns, "ingest_bytes", "g", "r6", 9999, 0)->granted_units, 4000);

    assert_false(press(w, ns, books, "query_rcu", 10, true));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_false(press(w, ns, books + 77, "ingest_bytes", 10, true));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
}

/* ---- policy ------------------------------------------------------------------------------- */

static void test_policy(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-2.2-02", "CCS-2.2-06");
    uint64_t ns = world_namespace(w, "n", "whale-1");
    uint64_t plain = world_namespace(w, "p", "minnow");
    world_collection(w, "c", ns, "books");
    assert_int_equal(lease(w, ns, "query_rcu", "gw", "r", 9999, 0)->granted_units, 70);
    assert_int_equal(lease(w, plain, "query_rcu", "gw", "r", 9999, 0)->granted_units, 5000);
    const char *row = sql_text(w, "SELECT internal_policy_state_json FROM namespaces"
                                  " WHERE namespace_name = 'whale-1'");
    assert_non_null(strstr(row, "marker-class"));
    assert_non_null(strstr(row, "marker-profile"));
    const char *answers = world_answers(w, ns);
    static const char *const secrets[] = {"marker", "quota", "lease",
                                          "policy", "epoch", "query_rcu"};
    for (size_t i = 0; i < SF_ARRAY_LEN(secrets); i++)
        assert_null(strstr(answers, secrets[i]));
    /* an update keeps the binding, so does a rebuild */
    SF_PB(PutNamespaceMetadataRequest) *update = world_namespace_request(w, "u", "whale-1");
    update->options = world_options(w, "a", "b");
    assert_non_null(world_call(w, "PutNamespaceMetadata", update));
    world_rebuild(w);
    sf_clock_manual_advance(&w->clock, 60000);
    assert_int_equal(lease(w, ns, "query_rcu", "gw", "r2", 9999, 0)->granted_units, 70);
    assert_string_equal(sql_text(w, "SELECT internal_policy_state_json FROM namespaces"
                                    " WHERE namespace_name = 'whale-1'"),
                        row);
}

/* ---- recovery ----------------------------------------------------------------------------- */

static void test_state_and_row(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.10-08");
    uint64_t ns = world_namespace(w, "n", "alpha");
    for (int i = 0; i < 4; i++) {
        char id[16];
        snprintf(id, sizeof(id), "r%d", i);
        assert_non_null(lease(w, ns, "query_rcu", "gw", id, 1500, 0));
        assert_row_is_object(w, ns);
        sf_clock_manual_advance(&w->clock, 1000);
    }
    const SF_PB(NamespaceQuotaStateObject) *object = quota_object(w, ns);
    assert_int_equal(object->n_dimensions, SF_CATALOG_DIMENSIONS);
    assert_int_equal(object->dimensions[0]->refill_units_per_second, 1000);
    assert_int_equal(object->dimensions[0]->burst_units, 5000);
    assert_true(object->last_refill_at_unix_ms >= WORLD_UNIX_MS);
    assert_true(object->quota_epoch > 0);
}

static void test_lost_projection(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.10-09", "CCS-5.10-16", "CCS-5.10-17", "CCS-5.10-18", "CCS-5.10-19");
    uint64_t ns = world_namespace(w, "n", "alpha");
    const struct lease *a = lease(w, ns, "query_rcu", "gw", "r1", 2500, 0);
    assert_int_equal(active_leases(w, ns), 1);
    world_rebuild(w);
    /* before anybody asks: epoch raised in object and row, no lease */
    assert_int_equal(quota_object(w, ns)->quota_epoch, a->lease_epoch + 1);
    assert_row_is_object(w, ns);
    assert_string_equal(sql_text(w, "SELECT COUNT(*) FROM namespace_quota_leases"), "0");
    /* the old epoch is refused, under new and old request ids; the new one is granted */
    assert_null(lease(w, ns, "query_rcu", "gw", "r2", 10, a->lease_epoch));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_null(lease(w, ns, "query_rcu", "gw", "r1", 2500, a->lease_epoch));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    const struct lease *b = lease(w, ns, "query_rcu", "gw", "r2", 10, a->lease_epoch + 1);
    assert_int_equal(b->lease_epoch, a->lease_epoch + 1);
    assert_int_equal(lease(w, ns, "query_rcu", "gw", "r3", 9999, 0)->granted_units, 2490);
}

/* The tables alone are emptied: the row is not the object's any more, so the leases are unknown. */
static void test_truncated_tables(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    const struct lease *a = lease(w, ns, "query_rcu", "gw", "r1", 100, 0);
    sql_run(w, "DELETE FROM namespace_quota_state; DELETE FROM namespace_quota_leases;");
    world_restart(w);
    const struct lease *b = lease(w, ns, "query_rcu", "gw", "r2", 100, 0);
    assert_int_equal(b->lease_epoch, a->lease_epoch + 1);
    assert_row_is_object(w, ns);
}

/* A start swaps its owner epoch in before it first grants, and keeps the quota epoch. */
static void test_restart_keeps_epoch(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    const struct lease *a = lease(w, ns, "query_rcu", "gw", "r1", 100, 0);
    uint64_t owner = quota_object(w, ns)->owner_epoch;
    world_restart(w);
    assert_int_equal(quota_object(w, ns)->owner_epoch, owner);
    const struct lease *b = lease(w, ns, "query_rcu", "gw", "r2", 100, a->lease_epoch);
    assert_int_equal(b->lease_epoch, a->lease_epoch);
    assert_true(quota_object(w, ns)->owner_epoch > owner);
    /* the chunk of 2000 that the first start had debited is forfeited but for what it granted */
    assert_int_equal(lease(w, ns, "query_rcu", "gw", "r3", 9999, 0)->granted_units,
                     5000 - 2000 - 100);
}

/* Kill after every put of a run of leases: no unit is granted twice under an epoch, and the sum of
 * all grants stays within what the bucket ever held (invariant 10). */
static void test_crash_points(void **state)
{
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        for (uint64_t cut = 0; cut < 6; cut++) {
            void *fresh = NULL;
            setup_shared(&fresh);
            struct world *w = fresh;
            uint64_t ns = world_namespace(w, "n", "alpha");
            struct ledger ledger = {0};
            atomic_store(&w->wire.applied, 0);
            atomic_store(&w->wire.cut_after, cut);
            spend(w, ns, "a", &ledger);
            if (lost)
                world_rebuild(w);
            else
                world_restart(w);
            spend(w, ns, "b", &ledger);
            assert_true(ledger.total <= 5000 + 1000 * (uint64_t)ledger.steps / 10);
            assert_true(ledger.grants > 4); /* whoever comes after goes on */
            assert_row_is_object(w, ns);
            world_destroy(w);
        }
    }
}

/* An owner that was taken over from, with a projection of its own, grants nothing any more once its
 * credit needs a swap, and nothing at all on a shared projection. */
static void test_deposed(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    assert_non_null(lease(w, ns, "query_rcu", "gw", "r1", 100, 0));
    struct sf_catalog *old = w->catalog;
    struct sf_channel *old_channel = w->channel;
    assert_int_equal(world_open(w), SF_OK);
    struct sf_channel *channel = w->channel;
    w->channel = old_channel;
    assert_null(lease(w, ns, "query_rcu", "gw", "r2", 100, 0));
    assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
    w->channel = channel;
    assert_non_null(lease(w, ns, "query_rcu", "gw", "r2", 100, 0));
    sf_channel_destroy(old_channel);
    sf_catalog_close(old, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_grant, setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_partial_then_limited, setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_budgets_are_apart, setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_required_fields, setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_repeat, setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_return, setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_expiry, setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_sweep_is_bounded, setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_thousand_leases, setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_concurrent, setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_pressure, setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_policy, setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_state_and_row, setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_lost_projection, setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_truncated_tables, setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_restart_keeps_epoch, setup_shared, world_teardown),
        cmocka_unit_test(test_crash_points),
        cmocka_unit_test_setup_teardown(test_deposed, setup_shared, world_teardown),
    };
    return SF_RUN_TESTS("catalog_quota", tests);
}
