/* AllocateIds as its callers see it: results, refusals, replays, what is durable, what is counted.
 */
#include "component/allocator/alloc_world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rng.h"
#include "contract/error_status.h"
#include "contract/receipt.h"

static struct result r; /* of the running test */
static struct result r2;

static int setup(void **state)
{
    return world_setup(state);
}

static int teardown(void **state)
{
    result_fini(&r);
    result_fini(&r2);
    r = (struct result){0};
    r2 = (struct result){0};
    return world_teardown(state);
}

/* The watermark of the usual collection becomes `next`. */
static void start_at(struct world *w, uint64_t next)
{
    char key[32];

    uint64_t jump = w->facts.max_jump;
    const char *etag = w->facts.etag;
    w->facts.max_jump = UINT64_MAX;
    w->facts.etag = "etag-start";
    (void)snprintf(key, sizeof(key), "start-%llu", (unsigned long long)next);
    allocate(&w->processes[0], &r, key, PLAN(next - 1));
    expect_err(&r, SF_OK);
    w->facts.max_jump = jump;
    w->facts.etag = etag;
}

static void test_issue_explicit_mixed(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-1-01", "ALLOC-1-02", "ALLOC-1-03", "ALLOC-2.2-01", "ALLOC-5.1-01",
              "ALLOC-3.2-02", "ALLOC-5.3-07", "ALLOC-5.3-06");

    allocate(p, &r, "k0", PLAN(ISSUE));
    EXPECT_IDS(&r, 0); /* zero is a value */
    assert_true(r.issued[0]);
    allocate(p, &r, "k1", PLAN(9));
    EXPECT_IDS(&r, 9);
    assert_false(r.issued[0]);
    allocate(p, &r, "k2", PLAN(12, ISSUE, 20, ISSUE));
    EXPECT_IDS(&r, 12, 13, 20, 21);
    assert_false(r.issued[0]);
    assert_true(r.issued[1]);
    assert_false(r.issued[2]);
    assert_true(r.issued[3]);
    assert_string_equal(world_next(w), "22");
    allocate(p, &r, "k3", PLAN(ISSUE, ISSUE, ISSUE));
    EXPECT_IDS(&r, 22, 23, 24);
    allocate(p, &r, "k4", PLAN(ISSUE, 26, ISSUE));
    EXPECT_IDS(&r, 25, 26, 27);
    allocate(p, &r, "k5", PLAN(26));
    expect_err(&r, SF_VERSION_CONFLICT);

    /* 1,000 items of each shape in one call */
    uint64_t *many = calloc(1000, sizeof(*many));
    assert_non_null(many);
    for (size_t shape = 0; shape < 3; shape++) {
        uint64_t base = strtoull(world_next(w), NULL, 10);
        for (size_t i = 0; i < 1000; i++)
            many[i] = shape == 0 || (shape == 2 && i % 2 == 0) ? ISSUE : base + i;
        char key[8] = {'m', (char)('0' + shape)};
        allocate(p, &r, key, many, 1000);
        assert_int_equal(r.diag.err, SF_OK);
        assert_int_equal(r.count, 1000);
        for (size_t i = 0; i < SF_ARRAY_LEN(r.ids); i++)
            assert_int_equal(r.ids[i], base + i);
    }
    free(many);
}

static void test_plan_rules_at_the_surface(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-5.3-04", "ALLOC-5.3-08", "ALLOC-5.3-09", "ALLOC-5.3-11", "ALLOC-12-08",
              "ALLOC-12-09", "ALLOC-5.5-02", "ALLOC-3.5-15", "ALLOC-12-11", "ALLOC-9-06");
    struct sf_arena *arena = sf_arena_new(1u << 20);

    start_at(w, 10);
    w->facts.max_jump = 5;
    w->facts.etag = "etag-jump";
    allocate(p, &r, "a", PLAN(12, 11));
    expect_err(&r, SF_VERSION_CONFLICT);
    expect_detail(&r, "doc_id", "11");
    expect_detail(&r, "allocator_conflict_reason", "below_watermark_burned_gap");
    Searchfabric__V1__ErrorStatus *status = sf_error_status_build(&r.diag, arena);
    assert_string_equal(status->code, "SF_VERSION_CONFLICT");
    const Searchfabric__V1__AllocatorErrorContext *context = status->context->allocator;
    assert_int_equal(context->reason_case,
                     SEARCHFABRIC__V1__ALLOCATOR_ERROR_CONTEXT__REASON_RESERVATION_CONFLICT);
    assert_int_equal(context->reservation_conflict->doc_id->u64, 11);
    assert_int_equal(
        context->reservation_conflict->conflict_reason,
        SEARCHFABRIC__V1__ALLOCATOR_RESERVATION_CONFLICT_REASON__ALLOCATOR_RESERVATION_CONFLICT_REASON_BELOW_WATERMARK_BURNED_GAP);
    allocate(p, &r, "b", PLAN(ISSUE, 10));
    expect_err(&r, SF_VERSION_CONFLICT);
    expect_detail(&r, "doc_id", "10");
    allocate(p, &r, "c", PLAN(16));
    expect_err(&r, SF_TOO_MANY_OPERATIONS);
    expect_detail(&r, "limit_scope", "allocator_forward_reservation_window");
    expect_detail(&r, "configured_limit", "5");
    expect_detail(&r, "requested_value", "6");
    status = sf_error_status_build(&r.diag, arena);
    assert_int_equal(
        status->context->allocator->limit_rejection->limit_scope,
        SEARCHFABRIC__V1__ALLOCATOR_LIMIT_SCOPE__ALLOCATOR_LIMIT_SCOPE_FORWARD_RESERVATION_WINDOW);
    unsigned puts = script_store_counts(w->script).state_puts;
    size_t objects = world_replay_count(w);
    allocate(p, &r, "d", PLAN(ISSUE, ISSUE, 20));
    expect_err(&r, SF_TOO_MANY_OPERATIONS);
    assert_string_equal(world_next(w), "10");
    assert_int_equal(script_store_counts(w->script).state_puts, puts);
    assert_int_equal(world_replay_count(w), objects);
    allocate(p, &r, "d", PLAN(20));
    expect_err(&r, SF_TOO_MANY_OPERATIONS);
    allocate(p, &r, "e", PLAN(15, 20));
    EXPECT_IDS(&r, 15, 20);
    /* an issued id, a reserved id and a skipped one are burned alike */
    allocate(p, &r, "f", PLAN(ISSUE));
    EXPECT_IDS(&r, 21);
    const uint64_t burned[] = {21, 15, 17, 0};
    for (size_t i = 0; i < SF_ARRAY_LEN(burned); i++) {
        char key[8] = {'g', (char)('0' + i)};
        allocate(p, &r, key, &burned[i], 1);
        expect_err(&r, SF_VERSION_CONFLICT);
    }
    allocate(p, &r, "h", PLAN(22));
    EXPECT_IDS(&r, 22);
    sf_arena_destroy(arena);
}

static void test_ceiling(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-3.5-14", "ALLOC-5.5-01", "ALLOC-12-10", "ALLOC-5.4-02");

    w->facts.max_items = 5;
    allocate(p, &r, "six", PLAN(ISSUE, 7, ISSUE, 9, ISSUE, 11));
    expect_err(&r, SF_TOO_MANY_OPERATIONS);
    expect_detail(&r, "limit_scope", "allocator_plan_items");
    expect_detail(&r, "configured_limit", "5");
    expect_detail(&r, "requested_value", "6");
    assert_int_equal(script_store_counts(w->script).state_gets, 0);
    allocate(p, &r, "five", PLAN(ISSUE, 7, ISSUE, 9, ISSUE));
    EXPECT_IDS(&r, 0, 7, 8, 9, 10);
}

static void test_end_of_the_space(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-3.5-16", "ALLOC-5.2-05", "ALLOC-12-12");

    start_at(w, UINT64_MAX - 1); /* next is 2^64-2 */
    allocate(p, &r, "three", PLAN(ISSUE, ISSUE, ISSUE));
    expect_err(&r, SF_TOO_MANY_OPERATIONS);
    expect_detail(&r, "limit_scope", "allocator_identity_space_remaining");
    expect_detail(&r, "configured_limit", "0");
    expect_detail(&r, "requested_value", "1");
    assert_string_equal(world_next(w), "18446744073709551614");
    allocate(p, &r, "one", PLAN(ISSUE));
    EXPECT_IDS(&r, UINT64_MAX - 1);
    allocate(p, &r, "two", PLAN(ISSUE, ISSUE)); /* only 2^64-1 is left */
    expect_err(&r, SF_TOO_MANY_OPERATIONS);
    allocate(p, &r, "last", PLAN(ISSUE));
    EXPECT_IDS(&r, UINT64_MAX);
    assert_string_equal(world_next(w), "18446744073709551616");
    /* a new process finds it exhausted, not wrapped */
    world_kill(p);
    p = world_start(w);
    allocate(p, &r, "more", PLAN(ISSUE));
    expect_err(&r, SF_TOO_MANY_OPERATIONS);
    allocate(p, &r, "zero", PLAN(0));
    expect_err(&r, SF_VERSION_CONFLICT);
    /* and what was answered still is */
    allocate(p, &r, "last", PLAN(ISSUE));
    EXPECT_IDS(&r, UINT64_MAX);
}

/* ---- refusals ---- */

static void test_malformed(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-2.1-12", "ALLOC-3.5-10", "ALLOC-3.5-11", "ALLOC-3.5-13", "ALLOC-3.5-18",
              "ALLOC-3.5-12", "ALLOC-3.5-20", "ALLOC-6.1-01", "ALLOC-6.2-03", "ALLOC-9-01");
    const uint64_t issue[] = {ISSUE};
    const uint64_t twice[] = {7, ISSUE, 7};
    const uint64_t hollow[] = {ISSUE, NO_BRANCH, 7};
    const struct {
        struct call_spec spec;
        enum sf_err err;
    } rows[] = {
        {{.key = "", .items = issue, .count = 1}, SF_INVALID_ARGUMENT},
        {{.key = "k", .items = issue, .count = 1, .client_id = ""}, SF_INVALID_ARGUMENT},
        {{.key = "k", .items = issue, .count = 1, .route_intent = -1}, SF_INVALID_ARGUMENT},
        {{.key = "k", .items = issue, .count = 1, .route_intent = 2}, SF_INVALID_ARGUMENT},
        {{.key = "k", .items = issue, .count = 1, .route_intent = 99}, SF_INVALID_ARGUMENT},
        {{.key = "k", .items = issue, .count = 0}, SF_INVALID_ARGUMENT},
        {{.key = "k", .items = twice, .count = 3}, SF_BAD_REQUEST},
        {{.key = "k", .items = twice, .count = 3, .route_intent = 2}, SF_INVALID_ARGUMENT},
        {{.key = "k", .items = hollow, .count = 3}, SF_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        call_run(p, &r, &rows[i].spec);
        expect_err(&r, rows[i].err);
        assert_non_null(sf_diag_get(&r.diag, "field"));
        assert_non_null(sf_diag_get(&r.diag, "violation"));
    }
    struct script_counts counts = script_store_counts(w->script);
    assert_int_equal(counts.state_gets + counts.replay_gets + counts.state_puts, 0);
    assert_int_equal(w->ccs_reads, 0);
    allocate(p, &r, "k", PLAN(ISSUE)); /* none of them left a trace under the key */
    EXPECT_IDS(&r, 0);
}

/* Changes facts, expects a refusal that touches no allocator state. */
static void refused_by(struct world *w, const char *key, enum sf_err err)
{
    struct script_counts before = script_store_counts(w->script);

    allocate(&w->processes[0], &r, key, PLAN(ISSUE, 500));
    expect_err(&r, err);
    struct script_counts after = script_store_counts(w->script);
    assert_int_equal(before.state_gets, after.state_gets);
    assert_int_equal(before.state_puts + before.replay_puts, after.state_puts + after.replay_puts);
    char lacks[SF_DIAG_KEY_BYTES];
    if (sf_error_status_lacks_key(&r.diag, lacks))
        fail_msg("%s lacks %s", sf_err_info(err)->name, lacks);
}

static void test_facts_refuse(void **state)
{
    struct world *w = *state;
    SF_PROVES("ALLOC-1-04", "ALLOC-2.1-01", "ALLOC-2.1-06", "ALLOC-3.3-07", "ALLOC-3.5-01",
              "ALLOC-3.5-02", "ALLOC-3.5-03", "ALLOC-3.5-04", "ALLOC-3.5-05", "ALLOC-3.5-06",
              "ALLOC-3.5-08", "ALLOC-3.5-09", "ALLOC-4.1-02", "ALLOC-4.1-03", "ALLOC-4.1-04",
              "ALLOC-4.1-05", "ALLOC-4.1-06", "ALLOC-4.1-07", "ALLOC-4.1-08", "ALLOC-4.1-09",
              "ALLOC-4.1-10", "ALLOC-9-04", "ALLOC-10.1-01", "ALLOC-10.1-02", "ALLOC-12-04",
              "ALLOC-12-01", "ALLOC-12-05", "ALLOC-12-06", "ALLOC-12-07", "ALLOC-5.1-03");
    struct fake_facts good = w->facts;
    struct sf_arena *arena = sf_arena_new(1u << 20);

    w->facts.exists = false;
    refused_by(w, "a", SF_RESOURCE_NOT_FOUND);
    w->facts = good;
    w->facts.lifecycle = 2;
    refused_by(w, "b", SF_RESOURCE_NOT_FOUND);
    w->facts = good;
    w->facts.truth_mode = 1;
    refused_by(w, "c", SF_OWNERSHIP_CONFLICT);
    w->facts = good;
    w->facts.truth_mode = 0;
    refused_by(w, "d", SF_CATALOG_UNAVAILABLE);
    for (int policy = 0; policy < 5; policy++) {
        char key[8] = {'e', (char)('0' + policy)};
        w->facts = good;
        w->facts.generation_policy = policy;
        if (policy != 1)
            refused_by(w, key, policy == 0 ? SF_CATALOG_UNAVAILABLE : SF_OWNERSHIP_CONFLICT);
    }
    for (int profile = 0; profile < 5; profile++) {
        char key[8] = {'f', (char)('0' + profile)};
        w->facts = good;
        w->facts.caller_profile = profile;
        if (profile != 1)
            refused_by(w, key, SF_OWNERSHIP_CONFLICT);
    }
    w->facts = good;
    w->facts.policy = false;
    refused_by(w, "g", SF_CATALOG_UNAVAILABLE);
    w->facts = good;
    w->facts.max_items = 0;
    refused_by(w, "h", SF_CATALOG_UNAVAILABLE);
    w->facts = good;
    w->facts.max_jump = 0;
    refused_by(w, "i", SF_CATALOG_UNAVAILABLE);
    w->facts = good;
    w->facts.namespace_id = 8;
    refused_by(w, "j", SF_CATALOG_UNAVAILABLE);
    w->facts = good;
    w->facts.collection_id = 8;
    refused_by(w, "k", SF_CATALOG_UNAVAILABLE);
    w->facts = good;
    w->facts.down = true;
    refused_by(w, "l", SF_CATALOG_UNAVAILABLE);
    assert_null(sf_diag_get(&r.diag, "schema_bootstrap_state"));
    assert_null(sf_error_status_build(&r.diag, arena)->context);
    w->facts = good;
    w->facts.token = NULL;
    w->facts.generation_policy = 0;
    w->facts.policy = false;
    refused_by(w, "m", SF_CATALOG_UNAVAILABLE);
    expect_detail(&r, "catalog_unavailable_reason", "schema_bootstrap");
    expect_detail(&r, "schema_bootstrap_state", "no_active_schema_generation");
    Searchfabric__V1__ErrorStatus *status = sf_error_status_build(&r.diag, arena);
    assert_string_equal(
        status->context->allocator->catalog_unavailable->schema_bootstrap->schema_bootstrap_state,
        "no_active_schema_generation");
    /* no refusal was recorded as a result */
    assert_int_equal(world_replay_count(w), 0);
    w->facts = good;
    allocate(&w->processes[0], &r, "a", PLAN(ISSUE));
    EXPECT_IDS(&r, 0);
    sf_arena_destroy(arena);
}

static void test_client_kinds(void **state)
{
    struct world *w = *state;
    SF_PROVES("ALLOC-3.3-05", "ALLOC-3.5-07", "ALLOC-11.2-01");

    for (int kind = 1; kind < 12; kind++) {
        char key[8] = {'k', (char)('a' + kind)};
        call_run(&w->processes[0], &r,
                 &(struct call_spec){
                     .key = key, .client_kind = kind, .items = &(uint64_t){ISSUE}, .count = 1});
        expect_err(&r, kind == ES ? SF_OK : SF_OWNERSHIP_CONFLICT);
    }
    assert_int_equal(world_replay_count(w), 1);
}

static bool not_mallory(void *self, const struct sf_identity *identity,
                        struct sf_collection_ref collection)
{
    (void)self;
    (void)collection;
    return strcmp(identity->name, "mallory") != 0;
}

static void test_grants_come_before_everything(void **state)
{
    struct world *w = *state;
    static const struct sf_allocator_grants grants = {.allows = not_mallory};
    SF_PROVES("ALLOC-3.5-17", "ALLOC-12-03");

    w->grants = &grants;
    struct process *p = world_start(w);
    struct call_spec spec = {
        .key = "k", .identity = "mallory", .items = &(uint64_t){ISSUE}, .count = 1};
    call_run(p, &r, &spec);
    expect_err(&r, SF_FORBIDDEN);
    w->facts.exists = false; /* a caller without access cannot tell whether there is one */
    call_run(p, &r, &spec);
    expect_err(&r, SF_FORBIDDEN);
    assert_int_equal(w->ccs_reads, 0);
    struct script_counts counts = script_store_counts(w->script);
    assert_int_equal(counts.replay_gets + counts.state_gets, 0);
    w->facts.exists = true;
    spec.identity = "alice";
    call_run(p, &r, &spec);
    EXPECT_IDS(&r, 0);
}

/* ---- replay ---- */

static void test_replay_is_verbatim(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-6.1-08", "ALLOC-6.1-10", "ALLOC-6.1-11", "ALLOC-3.5-19", "ALLOC-9-02",
              "ALLOC-9-03", "ALLOC-2.1-07", "ALLOC-4.1-15", "ALLOC-7.4-02", "ALLOC-13.1-03",
              "ALLOC-6.3-03", "ALLOC-10.1-03", "ALLOC-10.3-01", "ALLOC-10.3-02");

    allocate(p, &r, "k", PLAN(3, ISSUE));
    EXPECT_IDS(&r, 3, 4);
    assert_string_equal(r.token, "tok-1");
    assert_true(r.receipt.len > 0);
    struct fake_facts good = w->facts;
    for (int i = 0; i < 8; i++) {
        unsigned reads = w->ccs_reads;
        w->facts = good;
        w->facts.etag = "etag-2";
        w->facts.lifecycle = i == 0 ? 2 : 1;
        w->facts.truth_mode = i == 1 ? 1 : 2;
        w->facts.generation_policy = i == 2 ? 2 : 1;
        w->facts.caller_profile = i == 3 ? 2 : 1;
        w->facts.max_items = i == 4 ? 1 : 1000;
        w->facts.down = i == 5;
        w->facts.token = i == 6 ? "tok-2" : "tok-1";
        w->facts.exists = i != 7; /* gone from the catalog altogether */
        unsigned puts = script_store_counts(w->script).state_puts;
        if (i % 2 == 1) { /* a process that remembers nothing */
            world_kill(p);
            p = world_start(w);
        }
        allocate(p, &r2, "k", PLAN(3, ISSUE));
        expect_same(&r, &r2);
        assert_int_equal(w->ccs_reads, reads);
        assert_int_equal(script_store_counts(w->script).state_puts, puts);
    }
    /* a new key meets the facts of now */
    w->facts = good;
    w->facts.etag = "etag-3";
    w->facts.token = "tok-3";
    allocate(p, &r2, "k2", PLAN(ISSUE));
    EXPECT_IDS(&r2, 5);
    assert_string_equal(r2.token, "tok-3");
    w->facts.lifecycle = 2;
    w->facts.etag = "etag-4";
    allocate(p, &r2, "k3", PLAN(ISSUE));
    expect_err(&r2, SF_RESOURCE_NOT_FOUND);
    allocate(p, &r2, "k", PLAN(3, ISSUE));
    expect_same(&r, &r2);
    assert_string_equal(world_next(w), "6");
}

static void test_many_equal_requests_at_once(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-6.1-08");
    enum { N = 100 };
    struct result *many = calloc(N, sizeof(*many));
    assert_non_null(many);

    for (int i = 0; i < N; i++)
        call_start(p, &many[i],
                   &(struct call_spec){.key = "k", .items = (uint64_t[]){ISSUE, 7}, .count = 2});
    for (int i = 0; i < N; i++)
        world_finish(w, &many[i]);
    EXPECT_IDS(&many[0], 0, 7);
    for (int i = 1; i < N; i++)
        expect_same(&many[0], &many[i]);
    assert_string_equal(world_next(w), "8");
    assert_int_equal(world_replay_count(w), 1);
    for (int i = 0; i < N; i++)
        result_fini(&many[i]);
    free(many);
}

static void test_another_payload_conflicts(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-6.1-09", "ALLOC-12-13");

    allocate(p, &r, "k", PLAN(ISSUE, 5, ISSUE));
    EXPECT_IDS(&r, 0, 5, 6);
    for (int round = 0; round < 2; round++) { /* remembered, then read from the store */
        allocate(p, &r2, "k", PLAN(ISSUE, 8, ISSUE));
        expect_err(&r2, SF_IDEMPOTENCY_CONFLICT);
        allocate(p, &r2, "k", PLAN(ISSUE, ISSUE, ISSUE));
        expect_err(&r2, SF_IDEMPOTENCY_CONFLICT);
        allocate(p, &r2, "k", PLAN(5, ISSUE, ISSUE));
        expect_err(&r2, SF_IDEMPOTENCY_CONFLICT);
        allocate(p, &r2, "k", PLAN(ISSUE, 5));
        expect_err(&r2, SF_IDEMPOTENCY_CONFLICT);
        allocate(p, &r2, "k", PLAN(ISSUE, 5, ISSUE));
        expect_same(&r, &r2);
        world_kill(p);
        p = world_start(w);
    }
    assert_string_equal(world_next(w), "7");
}

static void test_what_makes_a_key(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-6.1-02", "ALLOC-6.1-03", "ALLOC-6.1-06", "ALLOC-6.1-07");
    struct call_spec spec = {.key = "k", .items = &(uint64_t){ISSUE}, .count = 1};

    call_run(p, &r, &spec);
    EXPECT_IDS(&r, 0);
    spec.identity = "alice";
    call_run(p, &r, &spec);
    EXPECT_IDS(&r, 1);
    spec.client_id = "gw-2";
    call_run(p, &r, &spec);
    EXPECT_IDS(&r, 2);
    spec.key = "k2";
    call_run(p, &r, &spec);
    EXPECT_IDS(&r, 3);
    spec.collection_id = 10;
    call_run(p, &r, &spec);
    EXPECT_IDS(&r, 0);
}

static void test_refused_key_is_free(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-6.4-01");

    w->facts.lifecycle = 2;
    allocate(p, &r, "k", PLAN(ISSUE));
    expect_err(&r, SF_RESOURCE_NOT_FOUND);
    w->facts.lifecycle = 1;
    allocate(p, &r, "k", PLAN(4));
    EXPECT_IDS(&r, 4);
}

/* ---- durable objects ---- */

static void test_objects(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-2.1-05", "ALLOC-5.2-02", "ALLOC-5.3-10", "ALLOC-7.1-01", "ALLOC-7.1-02",
              "ALLOC-7.1-03", "ALLOC-7.1-04", "ALLOC-7.2-01", "ALLOC-7.2-02", "ALLOC-7.2-05",
              "ALLOC-7.2-06", "ALLOC-7.3-01", "ALLOC-7.3-02", "ALLOC-7.3-03", "ALLOC-7.3-04",
              "ALLOC-7.3-05", "ALLOC-7.3-06", "ALLOC-7.3-07", "ALLOC-7.3-08", "ALLOC-7.3-09",
              "ALLOC-7.3-10", "ALLOC-7.3-11", "ALLOC-7.3-12", "ALLOC-7.4-06", "ALLOC-9-07",
              "ALLOC-4.3-01", "ALLOC-5.2-07", "ALLOC-4.2-02", "ALLOC-2.1-10");
    struct sf_arena *arena = sf_arena_new(16u << 20);

    allocate(p, &r, "k1", PLAN(ISSUE, 12, ISSUE));
    EXPECT_IDS(&r, 0, 12, 13);
    Searchfabric__V1__AllocatorStateObject *s = world_state(w, COLL, arena);
    assert_int_equal(s->namespace_id, NS);
    assert_int_equal(s->collection_id, COLL);
    assert_string_equal(s->next_doc_id, "14");
    assert_int_equal(s->allocation_epoch, 1);
    assert_int_equal(s->allocator_state_version, 1);
    assert_int_equal(s->updated_at_unix_ms, w->loop.clock.unix_ms);
    assert_string_equal(s->owner_id, p->attempts.process);
    assert_int_equal(s->n_pending_applies, 1); /* its object stands by now: trimmed by the next */
    assert_int_equal(world_replay_count(w), 1);

    Searchfabric__V1__AllocatorReplaySuccessObject *o = world_replay(w, "k1", arena);
    /* key and fingerprint as an independent tool computes them */
    assert_string_equal(o->transport_lookup_key,
                        "a0293aaf9706c34e26edec6d81b35135342a3198c537d948eb1df237d1e6bfd5");
    assert_string_equal(o->authenticated_client_identity_hash,
                        "64edaa3fb9310e98cdb183cddbf156d9964a05c017fa7f8ee3c262909fa36759");
    assert_string_equal(o->payload_fingerprint,
                        "1b711cffee5c241fd972161adea8d86740b4de14c1812e755dc71f3038760e98");
    struct sf_buf body = {0};
    assert_int_equal(sf_store_get_wait(
                         w->backend, NULL,
                         sf_view_str("id-allocator/replay-success/e8/"
                                     "a0293aaf9706c34e26edec6d81b35135342a3198c537d948eb1df237d1e6b"
                                     "fd5.json"),
                         &body, NULL),
                     SF_OK);
    sf_buf_fini(&body);
    assert_string_equal(o->idempotency_key, "k1");
    assert_string_equal(o->client_id, "gw-1");
    assert_int_equal(o->client_kind, ES);
    assert_int_equal(o->namespace_id, NS);
    assert_int_equal(o->collection_id, COLL);
    assert_int_equal(o->route_intent, 1);
    assert_int_equal(o->plan->n_items, 3);
    assert_int_equal(o->plan->items[0]->item_case,
                     SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE);
    assert_int_equal(o->plan->items[1]->explicit_doc_id->u64, 12);
    assert_int_equal(o->n_realized_doc_ids, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(o->realized_doc_ids[i]->doc_id->u64, r.ids[i]);
        assert_int_equal(o->realized_doc_ids[i]->allocator_issued, r.issued[i]);
    }
    assert_string_equal(o->schema_generation_token, r.token);
    assert_true(sf_view_equal(sf_view_bytes(o->allocator_receipt.data, o->allocator_receipt.len),
                              sf_buf_view(&r.receipt)));
    assert_true(o->key_id[0] != '\0');
    assert_int_equal(o->created_at_unix_ms, w->loop.clock.unix_ms);
    assert_int_equal(o->applied_at_unix_ms, w->loop.clock.unix_ms);
    assert_int_equal(o->allocator_state_version, s->allocator_state_version);
    assert_int_equal(o->allocation_epoch, s->allocation_epoch);
    assert_int_equal(script_store_counts(w->script).other, 0);

    /* one rewrite, one version; time does not run back even when the clock does */
    w->loop.clock.unix_ms -= 5000;
    allocate(p, &r, "k2", PLAN(ISSUE));
    Searchfabric__V1__AllocatorStateObject *next = world_state(w, COLL, arena);
    assert_int_equal(next->allocator_state_version, 2);
    assert_int_equal(next->allocation_epoch, 1);
    assert_true(next->updated_at_unix_ms >= s->updated_at_unix_ms);
    /* a clock that once ran ahead does not make receipts look younger than they are */
    assert_int_equal(world_replay(w, "k2", arena)->applied_at_unix_ms, w->loop.clock.unix_ms);
    assert_int_equal(next->n_pending_applies, 0);
    sf_arena_destroy(arena);
}

static void test_receipt_of_a_call(void **state)
{
    struct world *w = *state;
    SF_PROVES("ALLOC-2.2-02", "ALLOC-3.2-04");
    struct sf_arena *arena = sf_arena_new(1u << 20);
    Searchfabric__V1__AllocatorReceiptClaims *claims = NULL;
    struct sf_diag diag;

    allocate_ok(&w->processes[0], &r, "k1", PLAN(ISSUE, 12, ISSUE));
    struct sf_receipt_expected e = {
        .identity_hash_hex = "64edaa3fb9310e98cdb183cddbf156d9964a05c017fa7f8ee3c262909fa36759",
        .client_id = "gw-1",
        .client_kind = ES,
        .collection = {{NS}, {COLL}},
        .doc_ids = r.ids,
        .doc_id_count = r.count,
        .schema_generation_token = r.token};
    sf_diag_init(&diag);
    assert_int_equal(
        sf_receipt_verify(w->keyring, sf_buf_view(&r.receipt), &e, arena, &diag, &claims), SF_OK);
    assert_string_equal(claims->schema_generation_token, "tok-1");
    assert_string_equal(claims->transport_lookup_key,
                        "a0293aaf9706c34e26edec6d81b35135342a3198c537d948eb1df237d1e6bfd5");
    assert_int_equal(claims->applied_at_unix_ms, w->loop.clock.unix_ms);
    /* without any one of the three it does not hold */
    e.schema_generation_token = "";
    assert_int_equal(
        sf_receipt_verify(w->keyring, sf_buf_view(&r.receipt), &e, arena, &diag, &claims),
        SF_BAD_REQUEST);
    e.schema_generation_token = r.token;
    assert_int_equal(sf_receipt_verify(w->keyring, (struct sf_view){0}, &e, arena, &diag, &claims),
                     SF_BAD_REQUEST);
    e.doc_id_count = 0;
    assert_int_equal(
        sf_receipt_verify(w->keyring, sf_buf_view(&r.receipt), &e, arena, &diag, &claims),
        SF_BAD_REQUEST);
    sf_arena_destroy(arena);
}

static void test_collections_are_apart(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-5.2-01", "ALLOC-5.2-06", "ALLOC-10.2-01", "ALLOC-10.2-02");
    struct call_spec spec = {.items = (uint64_t[]){ISSUE, 40}, .count = 2, .key = "a"};
    struct sf_arena *arena = sf_arena_new(1u << 20);

    call_run(p, &r, &spec);
    EXPECT_IDS(&r, 0, 40);
    spec.collection_id = 10; /* the same name, made again: another id */
    call_run(p, &r, &spec);
    EXPECT_IDS(&r, 0, 40);
    spec.collection_id = COLL;
    spec.namespace_id = 8;
    call_run(p, &r, &spec);
    EXPECT_IDS(&r, 0, 40);
    assert_string_equal(world_state(w, COLL, arena)->next_doc_id, "41");
    assert_int_equal(world_state(w, COLL, arena)->allocator_state_version, 1);
    assert_string_equal(world_state(w, 10, arena)->next_doc_id, "41");
    sf_arena_destroy(arena);
}

/* ---- properties ---- */

static void test_random_plans_stay_unique(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-2.1-02", "ALLOC-2.1-03", "ALLOC-5.1-05", "ALLOC-5.1-06", "ALLOC-5.2-04",
              "ALLOC-5.3-02", "ALLOC-9-10", "ALLOC-12-15");
    struct sf_rng rng;
    static bool realized[20000];
    uint64_t top = 0;

    memset(realized, 0, sizeof(realized));
    sf_rng_init(&rng, 7);
    for (int round = 0; round < 400; round++) {
        uint64_t items[8];
        size_t count = 1 + sf_rng_below(&rng, 8);
        char key[16];
        uint64_t at = top;
        for (size_t i = 0; i < count; i++) {
            items[i] = sf_rng_below(&rng, 2) == 0 ? ISSUE : at + sf_rng_below(&rng, 5);
            at = items[i] == ISSUE ? at + 1 : items[i] + 1;
            if (sf_rng_below(&rng, 10) == 0)
                at += 3; /* now and then a plan that fails */
        }
        (void)snprintf(key, sizeof(key), "k%d", round);
        allocate(p, &r, key, items, count);
        if (r.diag.err != SF_OK)
            continue;
        assert_int_equal(r.count, count);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(r.issued[i], items[i] == ISSUE);
            if (items[i] != ISSUE)
                assert_int_equal(r.ids[i], items[i]);
            assert_true(r.ids[i] >= top);
            assert_false(realized[r.ids[i]]);
            realized[r.ids[i]] = true;
            top = r.ids[i] + 1;
        }
        assert_int_equal(strtoull(world_next(w), NULL, 10), top);
        if (round % 50 == 49) {
            world_kill(p);
            if (w->process_count == MAX_PROCESSES)
                break;
            p = world_start(w);
        }
    }
    assert_true(top > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_issue_explicit_mixed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plan_rules_at_the_surface, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ceiling, setup, teardown),
        cmocka_unit_test_setup_teardown(test_end_of_the_space, setup, teardown),
        cmocka_unit_test_setup_teardown(test_malformed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_facts_refuse, setup, teardown),
        cmocka_unit_test_setup_teardown(test_client_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_grants_come_before_everything, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replay_is_verbatim, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_equal_requests_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_payload_conflicts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_makes_a_key, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_key_is_free, setup, teardown),
        cmocka_unit_test_setup_teardown(test_objects, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receipt_of_a_call, setup, teardown),
        cmocka_unit_test_setup_teardown(test_collections_are_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random_plans_stay_unique, setup, teardown),
    };
    return SF_RUN_TESTS("alloc_calls", tests);
}
