/* The allocator's pure decisions: watermark arithmetic, shape, admission facts, keys. Digests were
 * worked out with an independent SHA-256, from the derivations in allocator_rules.h. */
#include "support/proves.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_rules.h"
#include "base/limits.h"
#include "base/rng.h"

#define ES SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY
#define CREATE_INSERT                                                                              \
    SEARCHFABRIC__V1__ID_ALLOCATION_ROUTE_INTENT__ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT
#define METHOD "/searchfabric.v1.IdAllocatorService/AllocateIds"

/* Items in a table: ISSUE or an explicit id. */
#define ISSUE     (-1)
#define MAX_ITEMS 8

static void test_watermark_text(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-7.2-03");
    static const struct {
        const char *text;
        uint64_t next;
        bool exhausted;
    } rows[] = {{"0", 0, false},
                {"9007199254740993", 9007199254740993u, false},
                {"9223372036854775808", 9223372036854775808u, false},
                {"18446744073709551615", UINT64_MAX, false},
                {"18446744073709551616", 0, true}};
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        struct sf_watermark mark;
        char text[SF_ALLOC_DECIMAL_BYTES];
        assert_true(sf_watermark_parse(sf_view_str(rows[i].text), &mark));
        assert_int_equal(mark.next, rows[i].next);
        assert_int_equal(mark.exhausted, rows[i].exhausted);
        sf_watermark_text(mark, text);
        assert_string_equal(text, rows[i].text);
    }
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      "01",
                                      "1.0",
                                      "1e3",
                                      "0x1",
                                      " 1",
                                      "1 ",
                                      "18446744073709551617",
                                      "99999999999999999999"};
    for (size_t i = 0; i < SF_ARRAY_LEN(bad); i++) {
        struct sf_watermark mark;
        assert_false(sf_watermark_parse(sf_view_str(bad[i]), &mark));
    }
    struct sf_watermark low = {.next = 5};
    struct sf_watermark high = {.next = 6};
    struct sf_watermark top = {.exhausted = true};
    assert_true(sf_watermark_compare(low, high) < 0);
    assert_true(sf_watermark_compare(high, low) > 0);
    assert_true(sf_watermark_compare(top, high) > 0);
    assert_true(sf_watermark_compare(low, top) < 0);
    assert_int_equal(sf_watermark_compare(top, top), 0);
}

/* One row of the plan table (contract section 9 and the requirement rows). */
struct plan_row {
    const char *name;
    uint64_t next;
    uint64_t jump;
    int64_t items[MAX_ITEMS]; /* 0-terminated by count */
    size_t count;
    enum sf_err err;
    uint64_t ids[MAX_ITEMS];
    uint64_t next_after;
    const char *key; /* detail that must be there, with its value */
    const char *value;
};

static const struct plan_row plan_rows[] = {
    {"two issues", 10, 1000, {ISSUE, ISSUE}, 2, SF_OK, {10, 11}, 12, NULL, NULL},
    {"three issues", 10, 1000, {ISSUE, ISSUE, ISSUE}, 3, SF_OK, {10, 11, 12}, 13, NULL, NULL},
    {"mixed", 10, 1000, {12, ISSUE, 20}, 3, SF_OK, {12, 13, 20}, 21, NULL, NULL},
    {"mixed, four", 10, 1000, {12, ISSUE, 20, ISSUE}, 4, SF_OK, {12, 13, 20, 21}, 22, NULL, NULL},
    {"descending", 10, 1000, {12, 11}, 2, SF_VERSION_CONFLICT, {0}, 10, "doc_id", "11"},
    {"own issue", 10, 1000, {ISSUE, 10}, 2, SF_VERSION_CONFLICT, {0}, 10, "doc_id", "10"},
    {"below",
     10,
     1000,
     {9},
     1,
     SF_VERSION_CONFLICT,
     {0},
     10,
     "allocator_conflict_reason",
     "below_watermark_burned_gap"},
    {"at the watermark", 10, 1000, {10}, 1, SF_OK, {10}, 11, NULL, NULL},
    {"window full", 10, 1000, {1010}, 1, SF_OK, {1010}, 1011, NULL, NULL},
    {"window passed",
     10,
     1000,
     {1011},
     1,
     SF_TOO_MANY_OPERATIONS,
     {0},
     10,
     "requested_value",
     "1001"},
    {"jump 5 passes", 10, 5, {15}, 1, SF_OK, {15}, 16, NULL, NULL},
    {"jump 6 fails", 10, 5, {16}, 1, SF_TOO_MANY_OPERATIONS, {0}, 10, "requested_value", "6"},
    {"jump names the limit",
     10,
     5,
     {16},
     1,
     SF_TOO_MANY_OPERATIONS,
     {0},
     10,
     "configured_limit",
     "5"},
    {"jump names the scope",
     10,
     5,
     {16},
     1,
     SF_TOO_MANY_OPERATIONS,
     {0},
     10,
     "limit_scope",
     "allocator_forward_reservation_window"},
    {"the window moves along", 10, 5, {15, 20}, 2, SF_OK, {15, 20}, 21, NULL, NULL},
    {"one jump of the same length",
     10,
     5,
     {20},
     1,
     SF_TOO_MANY_OPERATIONS,
     {0},
     10,
     "requested_value",
     "10"},
    {"after a gap", 101, 1000, {50}, 1, SF_VERSION_CONFLICT, {0}, 101, "doc_id", "50"},
    {"last item fails",
     10,
     5,
     {ISSUE, ISSUE, 99},
     3,
     SF_TOO_MANY_OPERATIONS,
     {0},
     10,
     "limit_scope",
     "allocator_forward_reservation_window"},
};

static enum sf_err run_plan(const int64_t *items, size_t count, uint64_t jump,
                            struct sf_watermark *mark, struct sf_plan_item *out,
                            struct sf_diag *diag)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (struct sf_plan_item){.doc_id = items[i] == ISSUE ? 0 : (uint64_t)items[i],
                                       .allocator_issued = items[i] == ISSUE};
    sf_diag_init(diag);
    return sf_alloc_plan_run(out, count, jump, mark, diag);
}

static void test_plan_table(void **state)
{
    (void)state;
    for (size_t r = 0; r < SF_ARRAY_LEN(plan_rows); r++) {
        const struct plan_row *row = &plan_rows[r];
        struct sf_watermark mark = {.next = row->next};
        struct sf_plan_item items[MAX_ITEMS];
        struct sf_diag diag;
        enum sf_err err = run_plan(row->items, row->count, row->jump, &mark, items, &diag);
        if (err != row->err || mark.next != row->next_after || mark.exhausted)
            fail_msg("%s: error %s, next %" PRIu64, row->name, sf_err_info(err)->name, mark.next);
        for (size_t i = 0; err == SF_OK && i < row->count; i++)
            assert_int_equal(items[i].doc_id, row->ids[i]);
        if (row->key != NULL) {
            assert_non_null(sf_diag_get(&diag, row->key));
            assert_string_equal(sf_diag_get(&diag, row->key), row->value);
            assert_string_equal(diag.area, "allocator");
        }
    }
}

static void test_plan_at_the_end_of_the_space(void **state)
{
    (void)state;
    struct sf_plan_item items[MAX_ITEMS];
    struct sf_diag diag;
    struct sf_watermark mark = {.next = UINT64_MAX - 1};

    /* 2^64-2 and 2^64-1 are left: three do not fit, and nothing moves */
    assert_int_equal(run_plan((int64_t[]){ISSUE, ISSUE, ISSUE}, 3, 9, &mark, items, &diag),
                     SF_TOO_MANY_OPERATIONS);
    assert_int_equal(mark.next, UINT64_MAX - 1);
    assert_string_equal(sf_diag_get(&diag, "limit_scope"), "allocator_identity_space_remaining");
    assert_string_equal(sf_diag_get(&diag, "configured_limit"), "0");
    assert_string_equal(sf_diag_get(&diag, "requested_value"), "1");
    /* two do */
    assert_int_equal(run_plan((int64_t[]){ISSUE, ISSUE}, 2, 9, &mark, items, &diag), SF_OK);
    assert_int_equal(items[0].doc_id, UINT64_MAX - 1);
    assert_int_equal(items[1].doc_id, UINT64_MAX);
    assert_true(mark.exhausted);
    /* exhausted: nothing is issued, every explicit id lies below the watermark */
    assert_int_equal(run_plan((int64_t[]){ISSUE}, 1, 9, &mark, items, &diag),
                     SF_TOO_MANY_OPERATIONS);
    assert_int_equal(run_plan((int64_t[]){0}, 1, 9, &mark, items, &diag), SF_VERSION_CONFLICT);
    assert_true(mark.exhausted);
    items[0] = (struct sf_plan_item){.doc_id = UINT64_MAX};
    assert_int_equal(sf_alloc_plan_run(items, 1, 9, &mark, &diag), SF_VERSION_CONFLICT);
    /* the window is measured without overflow at both ends */
    mark = (struct sf_watermark){.next = 0};
    items[0] = (struct sf_plan_item){.doc_id = UINT64_MAX};
    assert_int_equal(sf_alloc_plan_run(items, 1, UINT64_MAX, &mark, &diag), SF_OK);
    assert_true(mark.exhausted);
    mark = (struct sf_watermark){.next = 1};
    assert_int_equal(sf_alloc_plan_run(items, 1, UINT64_MAX - 2, &mark, &diag),
                     SF_TOO_MANY_OPERATIONS);
    assert_string_equal(sf_diag_get(&diag, "requested_value"), "18446744073709551614");
}

/* A reference allocator over a small space: a set of burned ids instead of a watermark. */
static void test_plan_against_a_set(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-5.3-03");
    struct sf_rng rng;
    bool burned[4096] = {false};
    struct sf_watermark mark = {0};
    uint64_t bound = 0;

    sf_rng_init(&rng, 42);
    for (int round = 0; round < 2000 && bound < 4000; round++) {
        struct sf_plan_item items[MAX_ITEMS];
        size_t count = 1 + sf_rng_below(&rng, MAX_ITEMS);
        struct sf_watermark before = mark;
        struct sf_diag diag;
        for (size_t i = 0; i < count; i++) {
            items[i].allocator_issued = sf_rng_below(&rng, 2) == 0;
            items[i].doc_id = bound + sf_rng_below(&rng, 12);
        }
        sf_diag_init(&diag);
        enum sf_err err = sf_alloc_plan_run(items, count, 6, &mark, &diag);
        if (err != SF_OK) {
            assert_int_equal(sf_watermark_compare(before, mark), 0);
            continue;
        }
        for (size_t i = 0; i < count; i++) {
            assert_false(burned[items[i].doc_id]);
            assert_true(items[i].doc_id >= bound);
            while (bound <= items[i].doc_id)
                burned[bound++] = true; /* the id and every gap below it */
        }
        assert_int_equal(mark.next, bound);
    }
    assert_true(bound > 1000);
}

/* ---- shape ---- */

struct request_box {
    Searchfabric__V1__RequestMeta meta;
    Searchfabric__V1__CollectionRef collection;
    Searchfabric__V1__AllocationPlan plan;
    Searchfabric__V1__AllocationPlanItem items[MAX_ITEMS];
    Searchfabric__V1__AllocationPlanItem *list[MAX_ITEMS];
    Searchfabric__V1__IssueItem issue;
    Searchfabric__V1__DocumentID ids[MAX_ITEMS];
    Searchfabric__V1__AllocateIdsRequest request;
};

static void box_fill(struct request_box *b, const int64_t *items, size_t count)
{
    searchfabric__v1__request_meta__init(&b->meta);
    searchfabric__v1__collection_ref__init(&b->collection);
    searchfabric__v1__allocation_plan__init(&b->plan);
    searchfabric__v1__allocate_ids_request__init(&b->request);
    searchfabric__v1__issue_item__init(&b->issue);
    b->meta.idempotency_key = (char *)"k1";
    b->meta.client_id = (char *)"gw-1";
    b->meta.client_kind = ES;
    b->collection.namespace_id = 7;
    b->collection.collection_id = 9;
    for (size_t i = 0; i < count; i++) {
        searchfabric__v1__allocation_plan_item__init(&b->items[i]);
        searchfabric__v1__document_id__init(&b->ids[i]);
        b->list[i] = &b->items[i];
        if (items[i] == ISSUE) {
            b->items[i].item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE;
            b->items[i].issue = &b->issue;
        } else {
            b->items[i].item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_EXPLICIT_DOC_ID;
            b->items[i].explicit_doc_id = &b->ids[i];
            b->ids[i].id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
            b->ids[i].u64 = (uint64_t)items[i];
        }
    }
    b->plan.items = b->list;
    b->plan.n_items = count;
    b->request.meta = &b->meta;
    b->request.collection = &b->collection;
    b->request.route_intent = CREATE_INSERT;
    b->request.plan = &b->plan;
}

static struct sf_arena *arena; /* of the group */

static int group_setup(void **state)
{
    (void)state;
    arena = sf_arena_new(8u << 20);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    sf_arena_destroy(arena);
    return 0;
}

static enum sf_err check(const struct request_box *b, struct sf_alloc_request *out,
                         struct sf_diag *diag)
{
    sf_diag_init(diag);
    return sf_alloc_request_check(&b->request, arena, out, diag);
}

/* Breaks one thing of a good request. */
typedef void (*break_fn)(struct request_box *b);

static void break_meta(struct request_box *b)
{
    b->request.meta = NULL;
}
static void break_key(struct request_box *b)
{
    b->meta.idempotency_key = (char *)protobuf_c_empty_string;
}
static void break_client(struct request_box *b)
{
    b->meta.client_id = (char *)protobuf_c_empty_string;
}
static void break_kind(struct request_box *b)
{
    b->meta.client_kind = SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_UNSPECIFIED;
}
static void break_collection(struct request_box *b)
{
    b->request.collection = NULL;
}
static void break_namespace_id(struct request_box *b)
{
    b->collection.namespace_id = 0;
}
static void break_collection_id(struct request_box *b)
{
    b->collection.collection_id = 0;
}
static void break_intent(struct request_box *b)
{
    b->request.route_intent =
        SEARCHFABRIC__V1__ID_ALLOCATION_ROUTE_INTENT__ID_ALLOCATION_ROUTE_INTENT_UNSPECIFIED;
}
static void break_intent_unknown(struct request_box *b)
{
    b->request.route_intent = (Searchfabric__V1__IdAllocationRouteIntent)2;
}
static void break_plan(struct request_box *b)
{
    b->request.plan = NULL;
}
static void break_empty(struct request_box *b)
{
    b->plan.n_items = 0;
}
static void break_branch(struct request_box *b)
{
    b->items[1].item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM__NOT_SET;
}
static void break_doc_id(struct request_box *b)
{
    b->ids[0].id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE__NOT_SET;
}
static char long_text[4 * 300 + 1];
static void break_key_length(struct request_box *b)
{
    b->meta.idempotency_key = long_text + 300 - 129;
}
static void break_client_length(struct request_box *b)
{
    b->meta.client_id = long_text + 300 - 257;
}
static void break_duplicate(struct request_box *b)
{
    b->ids[2].u64 = b->ids[0].u64;
}
static void break_duplicate_and_branch(struct request_box *b)
{
    break_duplicate(b);
    break_branch(b);
}
static void break_length_and_intent(struct request_box *b)
{
    break_key_length(b);
    break_intent(b);
}

static void test_shape_table(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-12-02");
    static const struct {
        break_fn fn;
        enum sf_err err;
        const char *field;
    } rows[] = {
        {break_meta, SF_INVALID_ARGUMENT, "meta"},
        {break_key, SF_INVALID_ARGUMENT, "meta.idempotency_key"},
        {break_client, SF_INVALID_ARGUMENT, "meta.client_id"},
        {break_kind, SF_INVALID_ARGUMENT, "meta.client_kind"},
        {break_collection, SF_INVALID_ARGUMENT, "collection"},
        {break_namespace_id, SF_INVALID_ARGUMENT, "collection"},
        {break_collection_id, SF_INVALID_ARGUMENT, "collection"},
        {break_intent, SF_INVALID_ARGUMENT, "route_intent"},
        {break_intent_unknown, SF_INVALID_ARGUMENT, "route_intent"},
        {break_plan, SF_INVALID_ARGUMENT, "plan.items"},
        {break_empty, SF_INVALID_ARGUMENT, "plan.items"},
        {break_branch, SF_INVALID_ARGUMENT, "plan.items"},
        {break_doc_id, SF_INVALID_ARGUMENT, "plan.items"},
        {break_key_length, SF_BAD_REQUEST, "meta.idempotency_key"},
        {break_client_length, SF_BAD_REQUEST, "meta.client_id"},
        {break_duplicate, SF_BAD_REQUEST, "plan.items"},
        /* two at once: malformed wins over semantic */
        {break_duplicate_and_branch, SF_INVALID_ARGUMENT, "plan.items"},
        {break_length_and_intent, SF_INVALID_ARGUMENT, "route_intent"},
    };
    struct sf_alloc_request out;
    struct sf_diag diag;
    struct request_box b;

    memset(long_text, 'x', 300);
    long_text[300] = '\0';
    box_fill(&b, (int64_t[]){7, ISSUE, 8}, 3);
    assert_int_equal(check(&b, &out, &diag), SF_OK);
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        box_fill(&b, (int64_t[]){7, ISSUE, 8}, 3);
        rows[i].fn(&b);
        enum sf_err err = check(&b, &out, &diag);
        if (err != rows[i].err || sf_diag_get(&diag, "field") == NULL ||
            strcmp(sf_diag_get(&diag, "field"), rows[i].field) != 0 ||
            sf_diag_get(&diag, "violation") == NULL || out.shape != SF_PLAN_INVALID)
            fail_msg("row %zu: %s", i, sf_err_info(err)->name);
    }
}

static void test_shape_labels_and_bounds(void **state)
{
    (void)state;
    struct sf_alloc_request out;
    struct sf_diag diag;
    struct request_box b;

    box_fill(&b, (int64_t[]){ISSUE, ISSUE, ISSUE}, 3);
    assert_int_equal(check(&b, &out, &diag), SF_OK);
    assert_string_equal(sf_plan_shape_text(out.shape), "issue_only");
    assert_int_equal(out.issue_count, 3);
    box_fill(&b, (int64_t[]){1, 2, 3}, 3);
    assert_int_equal(check(&b, &out, &diag), SF_OK);
    assert_string_equal(sf_plan_shape_text(out.shape), "explicit_only");
    box_fill(&b, (int64_t[]){1, ISSUE}, 2);
    assert_int_equal(check(&b, &out, &diag), SF_OK);
    assert_string_equal(sf_plan_shape_text(out.shape), "mixed");
    /* ids that descend are no error of the shape: the watermark decides */
    box_fill(&b, (int64_t[]){3, 2, 1}, 3);
    assert_int_equal(check(&b, &out, &diag), SF_OK);
    /* 128 and 256 scalars pass, also as four-byte ones */
    for (size_t i = 0; i < 128; i++)
        memcpy(long_text + 4 * i, "\xf0\x9f\x98\x80", 4);
    long_text[4 * 128] = '\0';
    b.meta.idempotency_key = long_text;
    assert_int_equal(check(&b, &out, &diag), SF_OK);
    /* more items than any policy can admit */
    size_t count = SF_LIMIT_ALLOC_PLAN_ITEMS + 1;
    Searchfabric__V1__AllocationPlanItem **many =
        calloc(count, sizeof(Searchfabric__V1__AllocationPlanItem *));
    assert_non_null(many);
    box_fill(&b, (int64_t[]){ISSUE}, 1);
    for (size_t i = 0; i < count; i++)
        many[i] = &b.items[0];
    b.plan.items = many;
    b.plan.n_items = count;
    assert_int_equal(check(&b, &out, &diag), SF_TOO_MANY_OPERATIONS);
    assert_string_equal(sf_diag_get(&diag, "limit_scope"), "allocator_plan_items");
    b.plan.n_items = count - 1;
    assert_int_equal(check(&b, &out, &diag), SF_OK);
    free(many);
}

/* ---- admission facts ---- */

struct facts_box {
    Searchfabric__V1__CollectionRef collection;
    Searchfabric__V1__AllocatorAdmissionPolicy policy;
    Searchfabric__V1__CollectionAdmissionState state;
};

static void facts_fill(struct facts_box *b)
{
    searchfabric__v1__collection_ref__init(&b->collection);
    searchfabric__v1__allocator_admission_policy__init(&b->policy);
    searchfabric__v1__collection_admission_state__init(&b->state);
    b->collection.namespace_id = 7;
    b->collection.collection_id = 9;
    b->policy.caller_profile =
        SEARCHFABRIC__V1__ALLOCATOR_CALLER_PROFILE__ALLOCATOR_CALLER_PROFILE_ES_WRITE_GATEWAY_ONLY;
    b->policy.max_plan_items_per_request = 5;
    b->policy.max_forward_reservation_jump = 1000;
    b->state.collection = &b->collection;
    b->state.lifecycle =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_LIFECYCLE__COLLECTION_ADMISSION_LIFECYCLE_ACTIVE;
    b->state.descriptor_etag = (char *)"e1";
    b->state.collection_name_binding_revision = 3;
    b->state.collection_truth_mode =
        SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_SEARCH_FABRIC;
    b->state.generation_policy =
        SEARCHFABRIC__V1__DOC_ID_GENERATION_POLICY__DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL;
    b->state._active_schema_generation_token_case =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE___ACTIVE_SCHEMA_GENERATION_TOKEN_ACTIVE_SCHEMA_GENERATION_TOKEN;
    b->state.active_schema_generation_token = (char *)"tok-1";
    b->state.allocator_admission_policy = &b->policy;
}

/* A change of one fact, and what it makes of the admission. */
enum fact {
    F_NONE,
    F_NAMESPACE,
    F_COLLECTION,
    F_NO_REF,
    F_TOMBSTONED,
    F_NO_LIFECYCLE,
    F_EXTERNAL,
    F_EXTERNAL_BOOTSTRAP,
    F_NO_MODE,
    F_UNKNOWN_MODE,
    F_NO_TOKEN,
    F_EMPTY_TOKEN,
    F_NO_GENERATION,
    F_CALLER_REQUIRED,
    F_UNKNOWN_GENERATION,
    F_NO_POLICY,
    F_NO_PROFILE,
    F_OTHER_PROFILE,
    F_NO_ITEMS,
    F_NO_JUMP,
    F_NO_ETAG
};

static void facts_change(struct facts_box *b, enum fact fact)
{
    switch (fact) {
    case F_NONE:
        break;
    case F_NAMESPACE:
        b->collection.namespace_id = 8;
        break;
    case F_COLLECTION:
        b->collection.collection_id = 8;
        break;
    case F_NO_REF:
        b->state.collection = NULL;
        break;
    case F_TOMBSTONED:
        b->state.lifecycle =
            SEARCHFABRIC__V1__COLLECTION_ADMISSION_LIFECYCLE__COLLECTION_ADMISSION_LIFECYCLE_TOMBSTONED;
        break;
    case F_NO_LIFECYCLE:
        b->state.lifecycle =
            SEARCHFABRIC__V1__COLLECTION_ADMISSION_LIFECYCLE__COLLECTION_ADMISSION_LIFECYCLE_UNSPECIFIED;
        break;
    case F_EXTERNAL_BOOTSTRAP:
        b->state._active_schema_generation_token_case = 0;
        b->state.generation_policy = 0;
        b->state.allocator_admission_policy = NULL;
        b->state.collection_truth_mode =
            SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_EXTERNAL;
        break;
    case F_EXTERNAL:
        b->state.collection_truth_mode =
            SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_EXTERNAL;
        break;
    case F_NO_MODE:
        b->state.collection_truth_mode = 0;
        break;
    case F_UNKNOWN_MODE:
        b->state.collection_truth_mode = (Searchfabric__V1__CollectionTruthMode)99;
        break;
    case F_NO_TOKEN:
        b->state._active_schema_generation_token_case = 0;
        break;
    case F_EMPTY_TOKEN:
        b->state.active_schema_generation_token = (char *)protobuf_c_empty_string;
        break;
    case F_NO_GENERATION:
        b->state.generation_policy = 0;
        break;
    case F_CALLER_REQUIRED:
        b->state.generation_policy =
            SEARCHFABRIC__V1__DOC_ID_GENERATION_POLICY__DOC_ID_GENERATION_POLICY_CALLER_REQUIRED;
        b->state.allocator_admission_policy = NULL;
        break;
    case F_UNKNOWN_GENERATION:
        b->state.generation_policy = (Searchfabric__V1__DocIdGenerationPolicy)99;
        break;
    case F_NO_POLICY:
        b->state.allocator_admission_policy = NULL;
        break;
    case F_NO_PROFILE:
        b->policy.caller_profile = 0;
        break;
    case F_OTHER_PROFILE:
        b->policy.caller_profile = (Searchfabric__V1__AllocatorCallerProfile)2;
        break;
    case F_NO_ITEMS:
        b->policy.max_plan_items_per_request = 0;
        break;
    case F_NO_JUMP:
        b->policy.max_forward_reservation_jump = 0;
        break;
    case F_NO_ETAG:
        b->state.descriptor_etag = (char *)protobuf_c_empty_string;
        break;
    }
}

static void test_facts_table(void **state)
{
    (void)state;
    static const struct {
        enum fact fact;
        enum sf_err err;
        bool bootstrap;
    } rows[] = {{F_NONE, SF_OK, false},
                {F_NAMESPACE, SF_CATALOG_UNAVAILABLE, false},
                {F_COLLECTION, SF_CATALOG_UNAVAILABLE, false},
                {F_NO_REF, SF_CATALOG_UNAVAILABLE, false},
                {F_TOMBSTONED, SF_RESOURCE_NOT_FOUND, false},
                {F_NO_LIFECYCLE, SF_CATALOG_UNAVAILABLE, false},
                {F_EXTERNAL, SF_OWNERSHIP_CONFLICT, false},
                {F_EXTERNAL_BOOTSTRAP, SF_OWNERSHIP_CONFLICT, false},
                {F_NO_MODE, SF_CATALOG_UNAVAILABLE, false},
                {F_UNKNOWN_MODE, SF_OWNERSHIP_CONFLICT, false},
                {F_NO_TOKEN, SF_CATALOG_UNAVAILABLE, true},
                {F_EMPTY_TOKEN, SF_CATALOG_UNAVAILABLE, true},
                {F_NO_GENERATION, SF_CATALOG_UNAVAILABLE, false},
                {F_CALLER_REQUIRED, SF_OWNERSHIP_CONFLICT, false},
                {F_UNKNOWN_GENERATION, SF_OWNERSHIP_CONFLICT, false},
                {F_NO_POLICY, SF_CATALOG_UNAVAILABLE, false},
                {F_NO_PROFILE, SF_OWNERSHIP_CONFLICT, false},
                {F_OTHER_PROFILE, SF_OWNERSHIP_CONFLICT, false},
                {F_NO_ITEMS, SF_CATALOG_UNAVAILABLE, false},
                {F_NO_JUMP, SF_CATALOG_UNAVAILABLE, false},
                {F_NO_ETAG, SF_OK, false}};
    struct sf_collection_ref ref = {{7}, {9}};

    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        struct facts_box b;
        struct sf_alloc_facts facts;
        struct sf_diag diag;
        facts_fill(&b);
        facts_change(&b, rows[i].fact);
        sf_diag_init(&diag);
        enum sf_err err = sf_alloc_facts_read(&b.state, ref, &facts, &diag);
        if (err != rows[i].err)
            fail_msg("fact %d: %s", (int)rows[i].fact, sf_err_info(err)->name);
        bool bootstrap = sf_diag_get(&diag, "schema_bootstrap_state") != NULL;
        assert_int_equal(bootstrap, rows[i].bootstrap);
        if (bootstrap) {
            assert_string_equal(sf_diag_get(&diag, "catalog_unavailable_reason"),
                                "schema_bootstrap");
            assert_string_equal(sf_diag_get(&diag, "schema_bootstrap_state"),
                                "no_active_schema_generation");
        }
        if (err == SF_OK) {
            assert_string_equal(facts.token, "tok-1");
            assert_string_equal(facts.etag, rows[i].fact == F_NO_ETAG ? "" : "e1");
            assert_int_equal(facts.max_jump, 1000);
            assert_int_equal(facts.max_plan_items, 5);
            assert_int_equal(facts.binding_revision, 3);
        }
        sf_alloc_facts_fini(&facts);
    }
}

static void test_admit_kinds_and_ceiling(void **state)
{
    (void)state;
    struct sf_alloc_facts facts = {.max_plan_items = 5, .max_jump = 1};
    struct sf_alloc_request request = {.item_count = 5};
    struct sf_diag diag;

    for (int kind = 0; kind < 20; kind++) {
        request.client_kind = (Searchfabric__V1__ClientKind)kind;
        sf_diag_init(&diag);
        assert_int_equal(sf_alloc_admit(&facts, &request, &diag),
                         kind == ES ? SF_OK : SF_OWNERSHIP_CONFLICT);
    }
    request.client_kind = ES;
    request.item_count = 6;
    assert_int_equal(sf_alloc_admit(&facts, &request, &diag), SF_TOO_MANY_OPERATIONS);
    assert_string_equal(sf_diag_get(&diag, "limit_scope"), "allocator_plan_items");
    assert_string_equal(sf_diag_get(&diag, "configured_limit"), "5");
    assert_string_equal(sf_diag_get(&diag, "requested_value"), "6");
}

/* ---- keys ---- */

static void key_of(const char *identity, const char *client, int kind, const char *method,
                   uint64_t ns, uint64_t collection, const char *idempotency_key,
                   char out[SF_SHA256_HEX_BYTES])
{
    struct sf_alloc_request request = {.client_id = client,
                                       .client_kind = (Searchfabric__V1__ClientKind)kind,
                                       .idempotency_key = idempotency_key,
                                       .collection = {{ns}, {collection}}};
    char hash[SF_SHA256_HEX_BYTES];

    sf_sha256_hex(sf_view_str(identity), hash);
    sf_alloc_transport_key(hash, method, &request, out);
}

static void test_transport_key(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-6.1-04", "ALLOC-6.1-05");
    char a[SF_SHA256_HEX_BYTES];
    char b[SF_SHA256_HEX_BYTES];

    key_of("loopback", "gw-1", 3, METHOD, 7, 9, "k1", a);
    assert_string_equal(a, "a0293aaf9706c34e26edec6d81b35135342a3198c537d948eb1df237d1e6bfd5");
    key_of("loopback", "gw-1", 5, METHOD, 7, 9, "k1", b);
    assert_string_equal(b, "88c3e01bc9ddb1bec399d03d3d37c135578898f9948ecf7b0022d3d182e5fb1a");
    key_of("spiffe://a/b", "gw-\xc3\xa9", 3, METHOD, UINT64_MAX, 1, "schl\xc3\xbcssel", b);
    assert_string_equal(b, "2a2cd9a2a692ca2f7ec192a39aace5abc375f90610e0c659443cb7f085717f7d");
    /* each part counts, and parts cannot flow into each other */
    key_of("other", "gw-1", 3, METHOD, 7, 9, "k1", b);
    assert_string_not_equal(a, b);
    key_of("loopback", "gw-2", 3, METHOD, 7, 9, "k1", b);
    assert_string_not_equal(a, b);
    key_of("loopback", "gw-1", 3, METHOD "X", 7, 9, "k1", b);
    assert_string_not_equal(a, b);
    key_of("loopback", "gw-1", 3, METHOD, 8, 9, "k1", b);
    assert_string_not_equal(a, b);
    key_of("loopback", "gw-1", 3, METHOD, 7, 10, "k1", b);
    assert_string_not_equal(a, b);
    key_of("loopback", "gw-1", 3, METHOD, 7, 9, "k2", b);
    assert_string_not_equal(a, b);
}

static void fingerprint_of(const int64_t *items, size_t count, uint64_t ns, int intent,
                           char out[SF_SHA256_HEX_BYTES])
{
    struct sf_plan_item list[MAX_ITEMS];
    struct sf_alloc_request request = {.collection = {{ns}, {9}},
                                       .route_intent =
                                           (Searchfabric__V1__IdAllocationRouteIntent)intent,
                                       .items = list,
                                       .item_count = count};

    for (size_t i = 0; i < count; i++)
        list[i] = (struct sf_plan_item){.doc_id = (uint64_t)items[i],
                                        .allocator_issued = items[i] == ISSUE};
    sf_alloc_fingerprint(&request, out);
}

static void test_fingerprint(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-6.2-01", "ALLOC-6.2-02");
    static const struct {
        int64_t items[3];
        size_t count;
        const char *hex;
    } golden[] = {
        {{ISSUE, 12, ISSUE}, 3, "1b711cffee5c241fd972161adea8d86740b4de14c1812e755dc71f3038760e98"},
        {{0}, 1, "f2f7f9c3eb1f03d26fa0ed714392df94b4e57767458b971eacd00c0490f02982"},
        {{ISSUE}, 1, "d8c2f3e31c2c5e31a9c30c119bfd5068d90af783d83d61fa61b83aedee1ad6ae"}};
    char a[SF_SHA256_HEX_BYTES];
    char b[SF_SHA256_HEX_BYTES];

    for (size_t i = 0; i < SF_ARRAY_LEN(golden); i++) {
        fingerprint_of(golden[i].items, golden[i].count, 7, 1, a);
        assert_string_equal(a, golden[i].hex);
    }
    /* the largest id is not taken for an issue */
    struct sf_plan_item top = {.doc_id = UINT64_MAX};
    struct sf_alloc_request request = {
        .collection = {{7}, {9}}, .route_intent = CREATE_INSERT, .items = &top, .item_count = 1};
    sf_alloc_fingerprint(&request, a);
    assert_string_equal(a, "03e698bb44452b144ec75f22d47c343c033c0cd20932b40a50a7b1f3178d77ff");
    /* order, collection and intent count */
    fingerprint_of((int64_t[]){12, ISSUE, ISSUE}, 3, 7, 1, a);
    fingerprint_of((int64_t[]){ISSUE, ISSUE, 12}, 3, 7, 1, b);
    assert_string_not_equal(a, b);
    fingerprint_of((int64_t[]){12, ISSUE, ISSUE}, 3, 8, 1, b);
    assert_string_not_equal(a, b);
    fingerprint_of((int64_t[]){12, ISSUE, ISSUE}, 3, 7, 2, b);
    assert_string_not_equal(a, b);
    fingerprint_of((int64_t[]){12, ISSUE, ISSUE}, 2, 7, 1, b);
    assert_string_not_equal(a, b);
    fingerprint_of((int64_t[]){12, ISSUE, ISSUE}, 3, 7, 1, b);
    assert_string_equal(a, b);
}

static void test_object_keys(void **state)
{
    (void)state;
    struct sf_buf key = {0};

    sf_alloc_state_key((struct sf_collection_ref){{7}, {9}}, &key);
    sf_buf_append(&key, "", 1);
    assert_string_equal((char *)key.data, "id-allocator/state/79/7/9.json");
    sf_buf_clear(&key);
    sf_alloc_state_key((struct sf_collection_ref){{UINT64_MAX}, {1}}, &key);
    sf_buf_append(&key, "", 1);
    assert_string_equal((char *)key.data, "id-allocator/state/2c/18446744073709551615/1.json");
    sf_buf_clear(&key);
    sf_alloc_replay_key("a0293aaf9706c34e26edec6d81b35135342a3198c537d948eb1df237d1e6bfd5", &key);
    sf_buf_append(&key, "", 1);
    assert_string_equal((char *)key.data,
                        "id-allocator/replay-success/e8/"
                        "a0293aaf9706c34e26edec6d81b35135342a3198c537d948eb1df237d1e6bfd5.json");
    sf_buf_fini(&key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watermark_text),
        cmocka_unit_test(test_plan_table),
        cmocka_unit_test(test_plan_at_the_end_of_the_space),
        cmocka_unit_test(test_plan_against_a_set),
        cmocka_unit_test(test_shape_table),
        cmocka_unit_test(test_shape_labels_and_bounds),
        cmocka_unit_test(test_facts_table),
        cmocka_unit_test(test_admit_kinds_and_ceiling),
        cmocka_unit_test(test_transport_key),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_object_keys),
    };
    return SF_RUN_TESTS_WITH("alloc_rules", tests, group_setup, group_teardown);
}
