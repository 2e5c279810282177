/* Receipts: what is signed verifies, and every claim that differs is refused by its name. */
#include "support/proves.h"

#include <string.h>

#include "base/hash.h"
#include "base/limits.h"
#include "contract/receipt.h"

#define ES SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY
#define TP SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_TP_WRITE_GATEWAY
#define CREATE_INSERT                                                                              \
    SEARCHFABRIC__V1__ID_ALLOCATION_ROUTE_INTENT__ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT

static struct sf_keyring *ring;
static struct sf_arena *arena;
static struct sf_buf receipt;

static const struct sf_receipt_item items[] = {{10, true}, {12, false}, {13, true}};
static const uint64_t ids[] = {10, 12, 13};

static struct sf_receipt_facts facts(void)
{
    return (struct sf_receipt_facts){.identity_hash_hex = "aa",
                                     .client_id = "gw-1",
                                     .client_kind = ES,
                                     .collection = {{7}, {9}},
                                     .route_intent = CREATE_INSERT,
                                     .transport_lookup_key = "key",
                                     .payload_fingerprint = "print",
                                     .items = items,
                                     .item_count = 3,
                                     .schema_generation_token = "tok-1",
                                     .applied_at_unix_ms = 1767225600000};
}

static struct sf_receipt_expected expected(void)
{
    return (struct sf_receipt_expected){.identity_hash_hex = "aa",
                                        .client_id = "gw-1",
                                        .client_kind = ES,
                                        .collection = {{7}, {9}},
                                        .doc_ids = ids,
                                        .doc_id_count = 3,
                                        .schema_generation_token = "tok-1"};
}

static int setup(void **state)
{
    (void)state;
    struct sf_receipt_facts f = facts();
    ring = sf_keyring_new_for_test(1);
    arena = sf_arena_new(1u << 20);
    sf_receipt_sign(ring, &f, &receipt);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sf_buf_fini(&receipt);
    sf_arena_destroy(arena);
    sf_keyring_destroy(ring);
    return 0;
}

static void refused(struct sf_view token, const struct sf_receipt_expected *e,
                    const char *violation)
{
    Searchfabric__V1__AllocatorReceiptClaims *claims = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(sf_receipt_verify(ring, token, e, arena, &diag, &claims), SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&diag, "field"), "allocator_receipt");
    if (violation != NULL)
        assert_string_equal(sf_diag_get(&diag, "violation"), violation);
    assert_null(claims);
}

static void accepted(struct sf_view token, const struct sf_receipt_expected *e)
{
    Searchfabric__V1__AllocatorReceiptClaims *claims = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(sf_receipt_verify(ring, token, e, arena, &diag, &claims), SF_OK);
    assert_int_equal(claims->item_count, e->doc_id_count);
    assert_int_equal(claims->applied_at_unix_ms, 1767225600000);
}

static void test_digest(void **state)
{
    (void)state;
    uint8_t digest[32];
    char hex[65];

    sf_receipt_ids_digest(items, 3, digest);
    sf_hex_encode(digest, 32, hex);
    assert_string_equal(hex, "1f77b0b5559ac35cb2484b00ba297c217784249741765dfc47dcb90b2c313cac");
}

static void test_accepts_its_batch(void **state)
{
    (void)state;
    struct sf_receipt_expected e = expected();

    accepted(sf_buf_view(&receipt), &e);
    e.client_id = NULL;
    e.client_kind = SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_UNSPECIFIED;
    accepted(sf_buf_view(&receipt), &e);
}

static void test_identity(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-6.3-04");
    struct sf_receipt_expected e = expected();

    e.identity_hash_hex = "bb";
    refused(sf_buf_view(&receipt), &e, "identity");
    e = expected();
    e.client_id = "gw-2";
    refused(sf_buf_view(&receipt), &e, "client");
    e = expected();
    e.client_kind = TP;
    refused(sf_buf_view(&receipt), &e, "client");
}

static void test_collection(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-6.3-05", "ALLOC-2.2-06");
    struct sf_receipt_expected e = expected();

    /* a collection of the same name made again has another id */
    e.collection.collection_id.v = 10;
    refused(sf_buf_view(&receipt), &e, "collection");
    e = expected();
    e.collection.namespace_id.v = 8;
    refused(sf_buf_view(&receipt), &e, "collection");
}

static void test_route_intent(void **state)
{
    (void)state;
    struct sf_receipt_facts f = facts();
    struct sf_receipt_expected e = expected();

    f.route_intent = 0;
    sf_buf_clear(&receipt);
    sf_receipt_sign(ring, &f, &receipt);
    refused(sf_buf_view(&receipt), &e, "route_intent");
}

static void test_ids(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-6.3-07");
    static const uint64_t rows[][4] = {
        {12, 10, 13, 0}, {10, 12, 14, 0}, {11, 12, 13, 0}, {10, 12, 13, 14}};
    static const size_t counts[] = {3, 3, 3, 4};
    struct sf_receipt_expected e = expected();

    for (size_t i = 0; i < SF_ARRAY_LEN(counts); i++) {
        e.doc_ids = rows[i];
        e.doc_id_count = counts[i];
        refused(sf_buf_view(&receipt), &e, "doc_ids");
    }
    e.doc_ids = ids;
    e.doc_id_count = 2;
    refused(sf_buf_view(&receipt), &e, "doc_ids");
    e.doc_id_count = 0;
    refused(sf_buf_view(&receipt), &e, "doc_ids");
}

static void test_schema_token(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-6.3-08", "ALLOC-5.1-07");
    struct sf_receipt_expected e = expected();

    e.schema_generation_token = "tok-2";
    refused(sf_buf_view(&receipt), &e, "schema_generation_token");
}

static void test_every_bit_counts(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-5.1-08");
    struct sf_receipt_expected e = expected();

    for (size_t bit = 0; bit < 8 * receipt.len; bit++) {
        receipt.data[bit / 8] = (uint8_t)(receipt.data[bit / 8] ^ 1u << (bit % 8));
        refused(sf_buf_view(&receipt), &e, NULL);
        receipt.data[bit / 8] = (uint8_t)(receipt.data[bit / 8] ^ 1u << (bit % 8));
    }
    for (size_t len = 0; len < receipt.len; len++)
        refused(sf_view_bytes(receipt.data, len), &e, NULL);
    accepted(sf_buf_view(&receipt), &e);
    refused((struct sf_view){0}, &e, "missing");
}

static void test_other_key(void **state)
{
    (void)state;
    struct sf_keyring *other = sf_keyring_new_for_test(2);
    struct sf_receipt_facts f = facts();
    struct sf_receipt_expected e = expected();

    sf_buf_clear(&receipt);
    sf_receipt_sign(other, &f, &receipt);
    refused(sf_buf_view(&receipt), &e, NULL);
    sf_keyring_destroy(other);
}

static void test_largest_plans(void **state)
{
    (void)state;
    static struct sf_receipt_item many[SF_LIMIT_ALLOC_PLAN_ITEMS];
    static uint64_t many_ids[SF_LIMIT_ALLOC_PLAN_ITEMS];
    struct sf_receipt_facts f = facts();
    struct sf_receipt_expected e = expected();

    f.items = many;
    f.item_count = SF_ARRAY_LEN(many);
    e.doc_ids = many_ids;
    e.doc_id_count = SF_ARRAY_LEN(many);
    for (int shape = 0; shape < 3; shape++) { /* all issued, none, all but the first */
        for (size_t i = 0; i < SF_ARRAY_LEN(many); i++) {
            many_ids[i] = i * 3;
            many[i] = (struct sf_receipt_item){i * 3, shape == 0 || (shape == 2 && i > 0)};
        }
        sf_buf_clear(&receipt);
        sf_receipt_sign(ring, &f, &receipt);
        assert_true(receipt.len <= (shape == 2 ? SF_LIMIT_RECEIPT_BYTES : 512));
        accepted(sf_buf_view(&receipt), &e);
        sf_arena_reset(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_digest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_accepts_its_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_identity, setup, teardown),
        cmocka_unit_test_setup_teardown(test_collection, setup, teardown),
        cmocka_unit_test_setup_teardown(test_route_intent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(test_schema_token, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_bit_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_key, setup, teardown),
        cmocka_unit_test_setup_teardown(test_largest_plans, setup, teardown),
    };
    return SF_RUN_TESTS("receipt", tests);
}
