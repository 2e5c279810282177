/* The items of a replay record, one by one or as runs: what is stored is what was realized, the
 * answer is byte for byte what the general packer gives, and no stored runs can lead a reader
 * astray. */
#include "support/proves.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_items.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/pb.h"
#include "base/rng.h"

#define MOST_ITEMS 1000u

/* A realized request over `count` items that ascend: from `first`, each next id `step`s on average
 * ahead, issued or explicit at random. */
static void realize(struct sf_rng *rng, struct sf_plan_item *items, size_t count, uint64_t first,
                    unsigned step)
{
    uint64_t next = first;

    for (size_t i = 0; i < count; i++) {
        bool issue = sf_rng_below(rng, 3) != 0;
        next += issue ? 0 : sf_rng_below(rng, step);
        items[i] = (struct sf_plan_item){.doc_id = next++, .allocator_issued = issue};
    }
}

/* The message of a plan with these items. */
static Searchfabric__V1__AllocationPlan *plan_of(const struct sf_plan_item *items, size_t count,
                                                 struct sf_arena *arena)
{
    Searchfabric__V1__AllocationPlan *plan = sf_arena_alloc(arena, sizeof(*plan));

    searchfabric__v1__allocation_plan__init(plan);
    plan->items = sf_arena_alloc(arena, count * sizeof(Searchfabric__V1__AllocationPlanItem *));
    plan->n_items = count;
    for (size_t i = 0; i < count; i++) {
        plan->items[i] = sf_arena_alloc(arena, sizeof(*plan->items[i]));
        searchfabric__v1__allocation_plan_item__init(plan->items[i]);
        plan->items[i]->item_case =
            items[i].allocator_issued
                ? SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE
                : SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_EXPLICIT_DOC_ID;
    }
    return plan;
}

/* The answer as the general packer writes it. */
static void pack_generally(const struct sf_plan_item *items, size_t count, struct sf_buf *out)
{
    Searchfabric__V1__AllocateIdsSuccessResponse response =
        SEARCHFABRIC__V1__ALLOCATE_IDS_SUCCESS_RESPONSE__INIT;
    Searchfabric__V1__RealizedDocId *realized = sf_calloc(count, sizeof(*realized));
    Searchfabric__V1__DocumentID *ids = sf_calloc(count, sizeof(*ids));
    Searchfabric__V1__RealizedDocId **list =
        sf_calloc(count, sizeof(Searchfabric__V1__RealizedDocId *));

    for (size_t i = 0; i < count; i++) {
        searchfabric__v1__realized_doc_id__init(&realized[i]);
        searchfabric__v1__document_id__init(&ids[i]);
        ids[i].id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
        ids[i].u64 = items[i].doc_id;
        realized[i].doc_id = &ids[i];
        realized[i].allocator_issued = items[i].allocator_issued;
        list[i] = &realized[i];
    }
    response.realized_doc_ids = list;
    response.n_realized_doc_ids = count;
    response.schema_generation_token = (char *)"token";
    response.allocator_receipt = (ProtobufCBinaryData){7, (uint8_t *)(uintptr_t) "receipt"};
    sf_pb_pack(&response.base, out);
    free(realized);
    free(ids);
    free(list);
}

static void check_record(const sf_replay_record *record, const struct sf_plan_item *items,
                         size_t count)
{
    struct sf_alloc_items walk = sf_alloc_items_of(record);
    struct sf_plan_item item;
    struct sf_buf general = {0}, own = {0};

    assert_true(sf_alloc_items_whole(record));
    assert_int_equal(sf_alloc_items_count(record), count);
    for (size_t i = 0; i < count; i++) {
        assert_true(sf_alloc_items_next(&walk, &item));
        assert_int_equal(item.doc_id, items[i].doc_id);
        assert_int_equal(item.allocator_issued, items[i].allocator_issued);
    }
    assert_false(sf_alloc_items_next(&walk, &item));
    assert_false(sf_alloc_items_next(&walk, &item));
    struct sf_watermark end = sf_alloc_items_end(record);
    assert_int_equal(sf_alloc_items_first(record), items[0].doc_id);
    assert_int_equal(end.next, items[count - 1].doc_id + 1);
    assert_int_equal(end.exhausted, items[count - 1].doc_id == UINT64_MAX);
    pack_generally(items, count, &general);
    sf_alloc_items_answer(record, &own);
    assert_true(sf_view_equal(sf_buf_view(&general), sf_buf_view(&own)));
    sf_buf_fini(&general);
    sf_buf_fini(&own);
}

static void check_plan(const struct sf_plan_item *items, size_t count)
{
    struct sf_arena *arena = sf_arena_new(1u << 20);
    sf_replay_record record = SEARCHFABRIC__V1__ALLOCATOR_REPLAY_SUCCESS_OBJECT__INIT;
    struct sf_alloc_request request = {.items = (struct sf_plan_item *)(uintptr_t)items,
                                       .item_count = count,
                                       .plan = plan_of(items, count, arena)};
    Searchfabric__V1__AllocatorIdRun **runs = NULL;
    size_t run_count = 0;
    uint64_t covered = 0;

    record.schema_generation_token = (char *)"token";
    record.allocator_receipt = (ProtobufCBinaryData){7, (uint8_t *)(uintptr_t) "receipt"};
    assert_true(sf_alloc_items_store(&request, arena, &record));
    assert_int_equal(record.item_runs.len != 0, count > SF_LIMIT_ALLOC_PLAIN_ITEMS);
    check_record(&record, items, count);
    assert_true(sf_alloc_items_runs(&record, arena, &runs, &run_count));
    for (size_t i = 0; i < run_count; i++) {
        assert_int_equal(runs[i]->first_doc_id, items[covered].doc_id);
        assert_int_equal(runs[i]->allocator_issued, items[covered].allocator_issued);
        covered += runs[i]->count;
    }
    assert_int_equal(covered, count);
    sf_arena_destroy(arena);
}

static void test_what_is_stored_is_what_was_realized(void **state)
{
    struct sf_plan_item items[MOST_ITEMS];
    struct sf_rng rng;

    (void)state;
    SF_PROVES("ALLOC-7.3-07");
    SF_PROVES("ALLOC-7.3-09");
    sf_rng_init(&rng, 1);
    for (unsigned round = 0; round < 500; round++) {
        size_t count = 1 + sf_rng_below(&rng, round % 2 == 0 ? 40 : MOST_ITEMS);
        realize(&rng, items, count, sf_rng_u64(&rng) >> (2 + sf_rng_below(&rng, 62)),
                1 + (unsigned)sf_rng_below(&rng, 300));
        check_plan(items, count);
    }
    realize(&rng, items, MOST_ITEMS, UINT64_MAX - MOST_ITEMS + 1, 1); /* up to the last id */
    assert_true(items[MOST_ITEMS - 1].doc_id == UINT64_MAX);
    check_plan(items, MOST_ITEMS);
}

static void test_runs_that_are_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        bool whole;
    } rows[] = {
        {"\x00\x03", 2, true},                                               /* id 0, issued */
        {"\x05\x02\x00\x03", 4, true},                                       /* 5, then 6 issued */
        {"\x00", 1, false},                                                  /* no length */
        {"\x00\x01", 2, false},                                              /* of no items */
        {"\x00\x80", 2, false},                                              /* cut */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x03", 11, true},          /* the last id */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x03", 11, false},         /* above 64 bits */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x81\x00\x03", 12, false},     /* too long */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x05", 11, false},         /* past the last */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x03\x00\x03", 13, false}, /* after the last */
        {"\x01\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x03", 13, false}, /* gap too wide */
        {"\x00\x80\x80\x08", 4, true},                                       /* 65,536 items */
        {"\x00\x82\x80\x08", 4, false},                                      /* one more */
        {"\x00\x80\x80\x08\x00\x02", 6, false},                              /* in two runs */
        {"\x00\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, false}};        /* 2^63 - 1 */

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        sf_replay_record record = SEARCHFABRIC__V1__ALLOCATOR_REPLAY_SUCCESS_OBJECT__INIT;
        record.item_runs = (ProtobufCBinaryData){rows[i].len, (uint8_t *)(uintptr_t)rows[i].bytes};
        assert_int_equal(sf_alloc_items_whole(&record), rows[i].whole);
    }
}

static void test_one_form_only(void **state)
{
    Searchfabric__V1__AllocationPlan plan = SEARCHFABRIC__V1__ALLOCATION_PLAN__INIT;
    sf_replay_record record = SEARCHFABRIC__V1__ALLOCATOR_REPLAY_SUCCESS_OBJECT__INIT;

    (void)state;
    assert_false(sf_alloc_items_whole(&record)); /* neither */
    record.item_runs = (ProtobufCBinaryData){2, (uint8_t *)(uintptr_t) "\x00\x03"};
    assert_true(sf_alloc_items_whole(&record));
    record.plan = &plan;
    assert_false(sf_alloc_items_whole(&record));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_stored_is_what_was_realized),
                                       cmocka_unit_test(test_runs_that_are_refused),
                                       cmocka_unit_test(test_one_form_only)};

    return SF_RUN_TESTS("alloc_items", tests);
}
