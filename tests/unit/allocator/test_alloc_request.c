/* The allocator's own reader of its request agrees with the general one on all bytes: on requests
 * of every shape, and on what is left of them after damage. */
#include "support/proves.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_rules.h"
#include "base/mem.h"
#include "base/pb.h"
#include "base/rng.h"

#define ARENA_BYTES ((size_t)48 << 20)

static const ProtobufCMessageDescriptor *const desc =
    &searchfabric__v1__allocate_ids_request__descriptor;

/* Reads both ways; the outcome and what was read must be the same. True when it could be read. */
static bool check_bytes(struct sf_view bytes)
{
    struct sf_arena *own_arena = sf_arena_new(ARENA_BYTES);
    struct sf_arena *arena = sf_arena_new(ARENA_BYTES);
    ProtobufCMessage *own = NULL, *general = NULL;
    struct sf_diag own_diag, diag;
    struct sf_buf own_packed = {0}, packed = {0};

    sf_diag_init(&own_diag);
    sf_diag_init(&diag);
    enum sf_err err = sf_pb_unpack(desc, bytes, arena, &diag, &general);
    assert_int_equal(sf_alloc_request_unpack(bytes, own_arena, &own_diag, &own), err);
    if (err == SF_OK) {
        sf_pb_pack(own, &own_packed);
        sf_pb_pack(general, &packed);
        assert_true(sf_view_equal(sf_buf_view(&own_packed), sf_buf_view(&packed)));
    } else {
        assert_string_equal(own_diag.message, diag.message);
    }
    sf_buf_fini(&own_packed);
    sf_buf_fini(&packed);
    sf_arena_destroy(own_arena);
    sf_arena_destroy(arena);
    return err == SF_OK;
}

/* Packs a request with `count` items, each of a random form. */
static void pack_request(struct sf_rng *rng, size_t count, struct sf_buf *out)
{
    struct sf_arena *arena = sf_arena_new(ARENA_BYTES);
    Searchfabric__V1__AllocateIdsRequest request = SEARCHFABRIC__V1__ALLOCATE_IDS_REQUEST__INIT;
    Searchfabric__V1__RequestMeta meta = SEARCHFABRIC__V1__REQUEST_META__INIT;
    Searchfabric__V1__CollectionRef collection = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    Searchfabric__V1__AllocationPlan plan = SEARCHFABRIC__V1__ALLOCATION_PLAN__INIT;
    Searchfabric__V1__IssueItem issue = SEARCHFABRIC__V1__ISSUE_ITEM__INIT;
    unsigned forms = 1 + (unsigned)sf_rng_below(rng, 4);

    meta.idempotency_key = (char *)"key";
    meta.client_id = (char *)"client";
    collection.namespace_id = sf_rng_u64(rng);
    collection.collection_id = 1;
    plan.items = sf_arena_alloc(arena, count * sizeof(Searchfabric__V1__AllocationPlanItem *));
    plan.n_items = count;
    for (size_t i = 0; i < count; i++) {
        Searchfabric__V1__AllocationPlanItem *item = sf_arena_alloc(arena, sizeof(*item));
        Searchfabric__V1__DocumentID *id = sf_arena_alloc(arena, sizeof(*id));
        searchfabric__v1__allocation_plan_item__init(item);
        searchfabric__v1__document_id__init(id);
        uint64_t form = sf_rng_below(rng, forms);
        if (form == 0) {
            item->item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE;
            item->issue = &issue;
        } else if (form < 3) {
            item->item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_EXPLICIT_DOC_ID;
            item->explicit_doc_id = id;
            if (form == 1 || sf_rng_below(rng, 50) != 0)
                id->id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
            id->u64 = sf_rng_u64(rng) >> sf_rng_below(rng, 64);
        }
        plan.items[i] = item;
    }
    request.meta = sf_rng_below(rng, 8) == 0 ? NULL : &meta;
    request.collection = sf_rng_below(rng, 8) == 0 ? NULL : &collection;
    request.plan = sf_rng_below(rng, 8) == 0 ? NULL : &plan;
    request.route_intent =
        (Searchfabric__V1__IdAllocationRouteIntent)sf_rng_below(rng, 3); /* one is unknown */
    sf_pb_pack(&request.base, out);
    sf_arena_destroy(arena);
}

static void test_requests_read_alike(void **state)
{
    struct sf_rng rng;
    unsigned read = 0;

    (void)state;
    sf_rng_init(&rng, 1);
    for (unsigned round = 0; round < 4000; round++) {
        struct sf_buf bytes = {0};
        pack_request(&rng, sf_rng_below(&rng, round % 50 == 0 ? 5000 : 30), &bytes);
        assert_true(check_bytes(sf_buf_view(&bytes)));
        if (sf_rng_below(&rng, 4) == 0) { /* two messages on end may be one */
            pack_request(&rng, sf_rng_below(&rng, 10), &bytes);
            read += check_bytes(sf_buf_view(&bytes)) ? 1 : 0;
        }
        for (unsigned i = 0; i < 8 && bytes.len > 0; i++) {
            size_t at = sf_rng_below(&rng, bytes.len);
            bytes.data[at] = (uint8_t)sf_rng_u64(&rng);
            read += check_bytes(sf_buf_view(&bytes)) ? 1 : 0;
            read += check_bytes(sf_view_bytes(bytes.data, at)) ? 1 : 0;
        }
        sf_buf_fini(&bytes);
    }
    assert_true(read > 1000); /* not all damage is fatal */
}

static void test_forms_that_are_not_plain(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } rows[] = {{"\x52\x00", 2},                                          /* an empty plan */
                {"\x52\x04\x0a\x02\x0a\x00", 6},                          /* one issue item */
                {"\x52\x05\x0a\x03\x0a\x81\x00", 7},                      /* a long length */
                {"\x52\x06\x0a\x04\x12\x02\x08\x00", 8},                  /* id 0 */
                {"\x52\x07\x0a\x05\x12\x03\x08\x80\x00", 9},              /* id 0, two bytes */
                {"\x52\x04\x0a\x02\x12\x00", 6},                          /* no id */
                {"\x52\x06\x0a\x04\x0a\x00\x12\x00", 8},                  /* two branches */
                {"\x52\x04\x0a\x02\x0a\x00\x52\x04\x0a\x02\x0a\x00", 12}, /* two plans: merged */
                {"\x52\x06\x0a\x02\x0a\x00\x78\x01", 8},                  /* an unknown field */
                {"\x52\x04\x0a\x02\x0a\x00\x18\x01", 8},                  /* a field after it */
                {"\xd2\x00\x04\x0a\x02\x0a\x00", 7},                      /* a long key */
                {"\x52\x05\x0a\x02\x0a\x00", 6},                          /* cut */
                {"\x50\x01", 2},                                          /* the wrong type */
                {"\x52\x10\x0a\x0e\x12\x0c\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 17},
                {"\x52\x0f\x0a\x0d\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 17}};

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++)
        (void)check_bytes(sf_view_bytes(rows[i].bytes, rows[i].len));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_requests_read_alike),
                                       cmocka_unit_test(test_forms_that_are_not_plain)};

    return SF_RUN_TESTS("alloc_request", tests);
}
