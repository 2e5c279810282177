/* The store's identity: made once, fixed for ever. */
#include "support/proves.h"

#include <stdio.h>

#include "cluster/store_identity.h"
#include "contract/descriptor_set.h"
#include "object/memory_store.h"

static struct sf_store *store;
static struct sf_attempts attempts;
static struct sf_clock_manual hand_clock;

static int setup(void **state)
{
    (void)state;
    store = sf_memory_store_new(NULL);
    sf_attempts_init(&attempts, 1);
    sf_clock_manual_init(&hand_clock, 1767225600123, 0);
    return sf_pbjson_register(
               sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size)) == SF_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    (void)state;
    sf_store_destroy(store);
    return 0;
}

static enum sf_err open_identity(uint8_t random, uint32_t lanes, uint32_t shards,
                                 struct sf_diag *diag, struct sf_store_identity *out)
{
    struct sf_store_identity_options options = {.store = store,
                                                .clock = &hand_clock.base,
                                                .attempts = &attempts,
                                                .catalog_lane_shard_count = lanes,
                                                .coordinator_shard_count = shards};

    memset(options.random, random, sizeof(options.random));
    sf_diag_init(diag);
    return sf_store_identity_open(&options, diag, out);
}

static void test_first_start_fixes_it(void **state)
{
    struct sf_store_identity id;
    struct sf_diag diag;

    (void)state;
    assert_int_equal(open_identity(0xab, 0, 0, &diag, &id), SF_OK);
    assert_string_equal(id.store_id, "abababababababababababababababab");
    assert_int_equal(id.catalog_lane_shard_count, 64);
    assert_int_equal(id.coordinator_shard_count, 16);
    assert_true(id.created_at_unix_ms == 1767225600123);
    sf_clock_manual_advance(&hand_clock, 1000);
    assert_int_equal(open_identity(0xcd, 64, 16, &diag, &id), SF_OK);
    assert_string_equal(id.store_id, "abababababababababababababababab");
    assert_true(id.created_at_unix_ms == 1767225600123);
}

static void test_other_counts_are_refused(void **state)
{
    struct sf_store_identity id;
    struct sf_diag diag;

    (void)state;
    assert_int_equal(open_identity(1, 8, 4, &diag, &id), SF_OK);
    assert_int_equal(open_identity(1, 0, 0, &diag, &id), SF_OK);
    assert_int_equal(id.catalog_lane_shard_count, 8);
    assert_int_equal(id.coordinator_shard_count, 4);
    assert_int_equal(open_identity(1, 9, 4, &diag, &id), SF_ERR_CONFIG);
    assert_non_null(strstr(diag.message, "created with 8"));
    assert_int_equal(open_identity(1, 8, 5, &diag, &id), SF_ERR_CONFIG);
    assert_int_equal(open_identity(1, 65537, 0, &diag, &id), SF_ERR_CONFIG);
}

static void test_damage_is_refused(void **state)
{
    struct sf_put put = {.key = sf_view_str("control/store.json"), .body = sf_view_str("{}")};
    struct sf_store_identity id;
    struct sf_diag diag;

    (void)state;
    assert_int_equal(sf_store_put_wait(store, NULL, &put), SF_OK);
    assert_int_equal(open_identity(1, 0, 0, &diag, &id), SF_ERR_CORRUPT);
}

#define IDENTITY(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {IDENTITY(test_first_start_fixes_it),
                                       IDENTITY(test_other_counts_are_refused),
                                       IDENTITY(test_damage_is_refused)};

    return SF_RUN_TESTS("store_identity", tests);
}
