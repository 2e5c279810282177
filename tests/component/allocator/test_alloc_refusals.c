/*
 * Every branch of the note's failure model (section 12), as it goes over the wire: the code, the
 * typed context and the diagnostics, nothing more and nothing less. And in which order the checks
 * come.
 */
#include "component/allocator/alloc_fates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pbjson.h"
#include "contract/error_status.h"

static struct result r; /* of the running test */
static struct result r2;

static int setup(void **state)
{
    return fates_setup(state);
}

static int teardown(void **state)
{
    result_fini(&r);
    result_fini(&r2);
    r = (struct result){0};
    r2 = (struct result){0};
    return fates_teardown(state);
}

static bool not_mallory(void *self, const struct sf_identity *identity,
                        struct sf_collection_ref collection)
{
    (void)self, (void)collection;
    return strcmp(identity->name, "mallory") != 0;
}

/* ---- what makes it fail ---- */

static void gone(struct world *w)
{
    w->facts.exists = false;
}

static void dropped(struct world *w)
{
    w->facts.lifecycle = 2;
}

static void catalog_down(struct world *w)
{
    w->facts.down = true;
}

static void catalog_busy(struct world *w)
{
    w->facts.busy = true;
}

static void catalog_silent(struct world *w)
{
    w->facts.hold = true;
}

static void other_collection(struct world *w)
{
    w->facts.collection_id = 77;
}

static void no_truth_mode(struct world *w)
{
    w->facts.truth_mode = 0;
}

static void no_policy(struct world *w)
{
    w->facts.policy = false;
}

static void no_ceiling(struct world *w)
{
    w->facts.max_items = 0;
}

static void no_schema(struct world *w)
{
    w->facts.token = NULL;
}

static void external(struct world *w)
{
    w->facts.truth_mode = 1;
}

static void caller_required(struct world *w)
{
    w->facts.generation_policy = 2;
}

static void other_profile(struct world *w)
{
    w->facts.caller_profile = 9;
}

static void ceiling_of_two(struct world *w)
{
    w->facts.max_items = 2;
}

static void window_of_five(struct world *w)
{
    w->facts.max_jump = 5;
}

/* The state of a collection near its end, planted as it stands in the store. */
static void near_the_end(struct world *w)
{
    w->facts.max_jump = UINT64_MAX;
    allocate(&w->processes[0], &r2, "last but one", PLAN(UINT64_MAX - 1));
    expect_err(&r2, SF_OK);
}

static void at_the_end(struct world *w)
{
    near_the_end(w);
    allocate(&w->processes[0], &r2, "last", PLAN(ISSUE));
    expect_err(&r2, SF_OK);
}

static void key_taken(struct world *w)
{
    allocate(&w->processes[0], &r2, "k", PLAN(ISSUE, ISSUE, ISSUE));
    expect_err(&r2, SF_OK);
}

static void state_unwritable(struct world *w)
{
    (void)w;
    fates.state_rest = SCRIPT_REFUSE;
}

static void state_in_doubt(struct world *w)
{
    (void)w;
    fates.state_rest = SCRIPT_LOSE;
}

static void store_unreadable(struct world *w)
{
    (void)w;
    fates.get_failure = SF_ERR_UNAVAILABLE;
}

/* ---- the table ---- */

#define CODE(name)    "{\"code\":\"" name "\""
#define DIAG(...)     ",\"diagnostics\":{" __VA_ARGS__ "}}"
#define ALLOC(branch) ",\"context\":{\"allocator\":{" branch "}}"
#define FIELD(code, name, word)                                                                    \
    CODE(code)                                                                                     \
    ",\"context\":{\"bad_request\":{\"field\":\"" name "\",\"violation\":\"" word                  \
    "\"}}" DIAG("\"field\":\"" name "\",\"violation\":\"" word "\"")
#define LIMIT(scope, text, configured, requested)                                                  \
    CODE("SF_TOO_MANY_OPERATIONS")                                                                 \
    ALLOC("\"limit_rejection\":{\"limit_scope\":\"ALLOCATOR_LIMIT_SCOPE_" scope                    \
          "\",\"configured_limit\":\"" configured "\",\"requested_value\":\"" requested "\"}")     \
    DIAG("\"configured_limit\":\"" configured "\",\"limit_scope\":\"" text                         \
         "\",\"requested_value\":\"" requested "\"")
/* a limit of 0 is left out of the JSON, as every default is */
#define NO_SPACE                                                                                   \
    CODE("SF_TOO_MANY_OPERATIONS")                                                                 \
    ALLOC("\"limit_rejection\":{\"limit_scope\":\"ALLOCATOR_LIMIT_SCOPE_IDENTITY_SPACE_REMAINING"  \
          "\",\"requested_value\":\"1\"}")                                                         \
    DIAG("\"configured_limit\":\"0\",\"limit_scope\":\"allocator_identity_space_remaining"         \
         "\",\"requested_value\":\"1\"")
#define BURNED(id)                                                                                 \
    CODE("SF_VERSION_CONFLICT")                                                                    \
    ALLOC("\"reservation_conflict\":{\"doc_id\":{\"u64\":\"" id "\"},\"conflict_reason\":"         \
          "\"ALLOCATOR_RESERVATION_CONFLICT_REASON_BELOW_WATERMARK_BURNED_GAP\"}")                 \
    DIAG("\"allocator_conflict_reason\":\"below_watermark_burned_gap\",\"doc_id\":\"" id "\"")
#define NO_FACTS(reason)                                                                           \
    CODE("SF_CATALOG_UNAVAILABLE") DIAG("\"catalog_unavailable_reason\":\"" reason "\"")
#define NO_STATE(context, unknown)                                                                 \
    CODE("SF_BACKEND_UNAVAILABLE")                                                                 \
    ",\"context\":{\"backend_unavailable\":{\"failing_authority\":\"allocator_state\"" context     \
    "}}" DIAG("\"failing_authority\":\"allocator_state\",\"outcome_unknown\":\"" unknown "\"")

static const uint64_t issue_one[] = {ISSUE};
static const uint64_t issue_two[] = {ISSUE, ISSUE};
static const uint64_t issue_three[] = {ISSUE, ISSUE, ISSUE};
static const uint64_t twice[] = {7, ISSUE, 7};
static const uint64_t hollow[] = {ISSUE, NO_BRANCH};
static const uint64_t twice_hollow[] = {7, 7, NO_BRANCH};
static const uint64_t falling[] = {5, 4};
static const uint64_t far[] = {6};
static const uint64_t zero[] = {0};
static const uint64_t largest[] = {UINT64_MAX};

#define ITEMS(list) .items = (list), .count = SF_ARRAY_LEN(list)

static const struct branch {
    const char *what;
    void (*prepare)(struct world *w); /* NULL = nothing */
    struct call_spec spec;
    const char *status; /* the ErrorStatus without its message */
} branches[] = {
    {"unknown", gone, {ITEMS(issue_one)}, CODE("SF_RESOURCE_NOT_FOUND") "}"},
    {"tombstoned", dropped, {ITEMS(issue_one)}, CODE("SF_RESOURCE_NOT_FOUND") "}"},
    {"no route intent",
     NULL,
     {ITEMS(issue_one), .route_intent = -1},
     FIELD("SF_INVALID_ARGUMENT", "route_intent", "unspecified")},
    {"update route",
     NULL,
     {ITEMS(issue_one), .route_intent = 2},
     FIELD("SF_INVALID_ARGUMENT", "route_intent", "unknown_value")},
    {"no items", NULL, {.count = 0}, FIELD("SF_INVALID_ARGUMENT", "plan.items", "empty")},
    {"no branch",
     NULL,
     {ITEMS(hollow)},
     FIELD("SF_INVALID_ARGUMENT", "plan.items", "no_valid_branch")},
    {"duplicate ids",
     NULL,
     {ITEMS(twice)},
     FIELD("SF_BAD_REQUEST", "plan.items", "duplicate_explicit_doc_id")},
    {"malformed before illegal",
     NULL,
     {ITEMS(twice_hollow)},
     FIELD("SF_INVALID_ARGUMENT", "plan.items", "no_valid_branch")},
    {"no access", NULL, {ITEMS(issue_one), .identity = "mallory"}, CODE("SF_FORBIDDEN") "}"},
    {"no access to nothing",
     gone,
     {ITEMS(issue_one), .identity = "mallory"},
     CODE("SF_FORBIDDEN") "}"},
    {"no access to a known key",
     key_taken,
     {ITEMS(issue_one), .identity = "mallory"},
     CODE("SF_FORBIDDEN") "}"},
    {"malformed without access",
     NULL,
     {ITEMS(hollow), .identity = "mallory"},
     FIELD("SF_INVALID_ARGUMENT", "plan.items", "no_valid_branch")},
    {"catalog down", catalog_down, {ITEMS(issue_one)}, NO_FACTS("admission_facts_unavailable")},
    {"catalog busy", catalog_busy, {ITEMS(issue_one)}, NO_FACTS("admission_facts_unavailable")},
    {"catalog silent", catalog_silent, {ITEMS(issue_one)}, NO_FACTS("admission_facts_unavailable")},
    {"another collection's facts",
     other_collection,
     {ITEMS(issue_one)},
     NO_FACTS("admission_facts_incomplete")},
    {"no truth mode", no_truth_mode, {ITEMS(issue_one)}, NO_FACTS("admission_facts_incomplete")},
    {"no policy", no_policy, {ITEMS(issue_one)}, NO_FACTS("admission_facts_incomplete")},
    {"no ceiling", no_ceiling, {ITEMS(issue_one)}, NO_FACTS("admission_facts_incomplete")},
    {"no schema yet",
     no_schema,
     {ITEMS(issue_one)},
     CODE("SF_CATALOG_UNAVAILABLE")
         ALLOC("\"catalog_unavailable\":{\"schema_bootstrap\":{\"schema_bootstrap_state\":"
               "\"no_active_schema_generation\"}}")
             DIAG("\"catalog_unavailable_reason\":\"schema_bootstrap\",\"schema_bootstrap_state\":"
                  "\"no_active_schema_generation\"")},
    {"truth mode", external, {ITEMS(issue_one)}, CODE("SF_OWNERSHIP_CONFLICT") "}"},
    {"generation policy", caller_required, {ITEMS(issue_one)}, CODE("SF_OWNERSHIP_CONFLICT") "}"},
    {"caller profile", other_profile, {ITEMS(issue_one)}, CODE("SF_OWNERSHIP_CONFLICT") "}"},
    {"client kind", NULL, {ITEMS(issue_one), .client_kind = 5}, CODE("SF_OWNERSHIP_CONFLICT") "}"},
    {"unknown client kind",
     NULL,
     {ITEMS(issue_one), .client_kind = 4711},
     CODE("SF_OWNERSHIP_CONFLICT") "}"},
    {"burned in the plan", NULL, {ITEMS(falling)}, BURNED("4")},
    {"burned at the end", at_the_end, {ITEMS(largest)}, BURNED("18446744073709551615")},
    {"burned below the end", at_the_end, {ITEMS(zero)}, BURNED("0")},
    {"items",
     ceiling_of_two,
     {ITEMS(issue_three)},
     LIMIT("PLAN_ITEMS", "allocator_plan_items", "2", "3")},
    {"window",
     window_of_five,
     {ITEMS(far)},
     LIMIT("FORWARD_RESERVATION_WINDOW", "allocator_forward_reservation_window", "5", "6")},
    {"window from zero",
     NULL,
     {ITEMS(largest)},
     LIMIT("FORWARD_RESERVATION_WINDOW", "allocator_forward_reservation_window", "1000",
           "18446744073709551615")},
    {"space for one", near_the_end, {ITEMS(issue_two)}, NO_SPACE},
    {"no space", at_the_end, {ITEMS(issue_one)}, NO_SPACE},
    {"key of another payload", key_taken, {ITEMS(issue_two)}, CODE("SF_IDEMPOTENCY_CONFLICT") "}"},
    {"state not written", state_unwritable, {ITEMS(issue_one)}, NO_STATE("", "false")},
    {"state in doubt",
     state_in_doubt,
     {ITEMS(issue_one)},
     NO_STATE(",\"outcome_unknown\":true", "true")},
    {"store not read", store_unreadable, {ITEMS(issue_one)}, NO_STATE("", "false")},
};

/* The ErrorStatus of a refusal as JSON, without its message. */
static void status_json(const struct sf_diag *diag, struct sf_buf *out)
{
    struct sf_arena *arena = sf_arena_new(1u << 16);
    Searchfabric__V1__ErrorStatus *status = sf_error_status_build(diag, arena);

    assert_non_null(status);
    assert_true(status->message[0] != '\0');
    status->message = "";
    sf_buf_clear(out);
    sf_pbjson_encode(&status->base, out);
    sf_buf_append(out, "", 1);
    sf_arena_destroy(arena);
}

static void test_every_branch(void **state)
{
    static const struct sf_allocator_grants grants = {.allows = not_mallory};
    struct sf_buf json = {0};
    SF_PROVES("ALLOC-12-01", "ALLOC-12-02", "ALLOC-12-03", "ALLOC-12-04", "ALLOC-12-05",
              "ALLOC-12-06", "ALLOC-12-07", "ALLOC-12-08", "ALLOC-12-09", "ALLOC-12-10",
              "ALLOC-12-11", "ALLOC-12-12", "ALLOC-12-13", "ALLOC-12-14", "ALLOC-6.4-01");

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(branches); i++) {
        const struct branch *b = &branches[i];
        struct call_spec spec = b->spec;
        void *world = NULL;
        assert_int_equal(setup(&world), 0);
        struct world *w = world;
        w->grants = &grants;
        world_kill(&w->processes[0]);
        w->process_count = 0;
        struct process *p = world_start(w);
        if (b->prepare != NULL)
            b->prepare(w);
        size_t objects = world_replay_count(w);
        char next[32];
        (void)snprintf(next, sizeof(next), "%s", world_next(w));
        spec.key = "k";
        call_run(p, &r, &spec);
        if (r.diag.err == SF_OK)
            fail_msg("%s: admitted", b->what);
        status_json(&r.diag, &json);
        if (strcmp((const char *)json.data, b->status) != 0)
            fail_msg("%s:\n%s\nnot\n%s", b->what, (const char *)json.data, b->status);
        assert_int_equal(world_replay_count(w), objects);
        assert_string_equal(world_next(w), next);
        world_ccs_release(w);
        assert_int_equal(teardown(&world), 0);
    }
    sf_buf_fini(&json);
}

/* The catalog has too much to do, or none of it answers: what stands is answered all the same, and
 * nothing of the allocator's own bounds is used up. */
static void test_an_overloaded_catalog(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    struct sf_allocator_stats stats;
    SF_PROVES("ALLOC-13.3-01", "ALLOC-6.1-10", "ALLOC-7.1-07", "ALLOC-2.1-09");

    allocate(p, &r, "k", PLAN(ISSUE, 9));
    EXPECT_IDS(&r, 0, 9);
    for (int how = 0; how < 3; how++) {
        w->facts.busy = how == 0;
        w->facts.down = how == 1;
        w->facts.hold = how == 2;
        if (how > 0) { /* a process that remembers nothing */
            world_kill(p);
            p = world_start(w);
        }
        unsigned reads = w->ccs_reads;
        allocate(p, &r2, "k", PLAN(ISSUE, 9));
        expect_same(&r, &r2);
        assert_int_equal(w->ccs_reads, reads);
        for (int i = 0; i < 20; i++) {
            char key[16];
            (void)snprintf(key, sizeof(key), "f%d-%d", how, i % 5);
            allocate(p, &r2, key, PLAN(ISSUE));
            expect_err(&r2, SF_CATALOG_UNAVAILABLE);
            if (how == 2)
                world_ccs_release(w), w->facts.hold = true;
        }
        sf_allocator_stats(p->allocator, &stats);
        assert_int_equal(stats.ops, 0);
    }
    w->facts.busy = w->facts.down = w->facts.hold = false;
    allocate(p, &r2, "f0-0", PLAN(ISSUE)); /* the refused keys are as good as new */
    EXPECT_IDS(&r2, 10);
    assert_int_equal(w->ccs_lookups, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_branch),
        cmocka_unit_test_setup_teardown(test_an_overloaded_catalog, setup, teardown),
    };
    return SF_RUN_TESTS("alloc_refusals", tests);
}
