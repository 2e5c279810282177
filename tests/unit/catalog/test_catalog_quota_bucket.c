/* One budget: refill, debits ahead of grants, what a dead owner forfeits, and the two bounds. */
#include "base/limits.h"
#include "base/rng.h"
#include "catalog/catalog_quota_bucket.h"
#include "support/proves.h"

#define T0 INT64_C(1767225600000)

static void test_refill(void **state)
{
    struct sf_quota_bucket b;
    (void)state;
    sf_quota_bucket_init(&b, 1000, 5000, T0);
    assert_int_equal(b.now.units, 5000);
    sf_quota_bucket_debit(&b, 5000, T0);
    assert_int_equal(b.credit, 5000); /* above the chunk of 2000: all that was asked for */
    assert_int_equal(b.stored.units, 0);
    sf_quota_bucket_grant(&b, 5000);
    assert_int_equal(b.now.units, 0);
    sf_quota_bucket_refill(&b, T0 + 999, 100);
    assert_int_equal(b.now.units, 999);
    sf_quota_bucket_refill(&b, T0 + 1000, 100);
    assert_int_equal(b.now.units, 1000);
    sf_quota_bucket_refill(&b, T0 + 60000, 100);
    assert_int_equal(b.now.units, 5000); /* never above the burst */
    sf_quota_bucket_refill(&b, T0, 100);
    assert_int_equal(b.now.units, 5000); /* a clock set back takes nothing */
}

/* No fraction of a unit is lost however often the bucket is looked at. */
static void test_slow_rate(void **state)
{
    struct sf_quota_bucket b;
    (void)state;
    sf_quota_bucket_init(&b, 3, 10, T0);
    sf_quota_bucket_debit(&b, 10, T0);
    sf_quota_bucket_grant(&b, 10);
    for (int64_t ms = 1; ms <= 3000; ms++)
        sf_quota_bucket_refill(&b, T0 + ms, 100);
    assert_int_equal(b.now.units, 9);
}

static void test_debit_runs_ahead_by_a_chunk(void **state)
{
    struct sf_quota_bucket b;
    (void)state;
    sf_quota_bucket_init(&b, 1000, 5000, T0);
    sf_quota_bucket_debit(&b, 5000, T0);
    sf_quota_bucket_debit(&b, 5001, T0); /* one unit is missing: a chunk of two seconds */
    assert_int_equal(b.credit, 7000);
    assert_int_equal(b.stored.units, 0);
    assert_int_equal(b.stored.at_ms, T0 + 2000);
    sf_quota_bucket_debit(&b, 9000, T0); /* no further ahead than that */
    assert_int_equal(b.credit, 7000);
}

/* A new owner goes on from the durable level; what was debited and not granted is gone. */
static void test_forfeit(void **state)
{
    struct sf_quota_bucket b, next;
    (void)state;
    sf_quota_bucket_init(&b, 1000, 5000, T0);
    sf_quota_bucket_debit(&b, 1, T0);
    assert_int_equal(b.credit, 2000);
    sf_quota_bucket_load(&next, 1000, 5000,
                         &(struct sf_quota_stored){b.stored.units, b.stored.at_ms, 2000}, T0);
    assert_int_equal(next.now.units, 3000);
    assert_int_equal(next.credit, 0);
    /* a level in the future waits for it; one that no debit explains does not */
    sf_quota_bucket_load(&next, 1000, 5000, &(struct sf_quota_stored){0, T0 + 2000, 0}, T0);
    sf_quota_bucket_refill(&next, T0 + 2500, 100);
    assert_int_equal(next.now.units, 500);
    sf_quota_bucket_load(&next, 1000, 5000, &(struct sf_quota_stored){77, T0 + 3600000, 0}, T0);
    sf_quota_bucket_refill(&next, T0 + 1000, 100);
    assert_int_equal(next.now.units, 1000);
    /* a class that became smaller */
    sf_quota_bucket_load(&next, 10, 50, &(struct sf_quota_stored){4000, T0, 0}, T0);
    assert_int_equal(next.now.units, 50);
}

static void test_wait(void **state)
{
    struct sf_quota_bucket b;
    (void)state;
    sf_quota_bucket_init(&b, 1000, 5000, T0);
    sf_quota_bucket_debit(&b, 5000, T0);
    sf_quota_bucket_grant(&b, 5000);
    assert_int_equal(sf_quota_bucket_wait_ms(&b, 100, T0, 100), 100);
    assert_int_equal(sf_quota_bucket_wait_ms(&b, 100, T0, 10), 1000);
    assert_int_equal(sf_quota_bucket_wait_ms(&b, 1000000, T0, 100), 5000); /* the burst at most */
}

static void test_limits(void **state)
{
    struct sf_quota_bucket b;
    (void)state;
    sf_quota_bucket_init(&b, SF_LIMIT_QUOTA_UNITS, SF_LIMIT_QUOTA_UNITS, T0);
    sf_quota_bucket_debit(&b, SF_LIMIT_QUOTA_UNITS, T0);
    sf_quota_bucket_grant(&b, SF_LIMIT_QUOTA_UNITS);
    sf_quota_bucket_refill(&b, T0 + 500, 100);
    assert_int_equal(b.now.units, SF_LIMIT_QUOTA_UNITS / 2);
    sf_quota_bucket_init(&b, 1, SF_LIMIT_QUOTA_UNITS, T0);
    sf_quota_bucket_debit(&b, SF_LIMIT_QUOTA_UNITS, T0);
    sf_quota_bucket_grant(&b, SF_LIMIT_QUOTA_UNITS);
    sf_quota_bucket_refill(&b, INT64_MAX / 2, 100);
    assert_true(b.now.units > 0 && b.now.units <= SF_LIMIT_QUOTA_UNITS);
}

/* Owners that come and go without a word: what is granted stays within burst + rate * time. */
static void test_bounds(void **state)
{
    struct sf_rng rng;
    (void)state;
    sf_rng_init(&rng, 7);
    for (int round = 0; round < 200; round++) {
        struct sf_quota_bucket b;
        uint64_t rate = 1 + sf_rng_below(&rng, 5000);
        uint64_t burst = 1 + sf_rng_below(&rng, 20000);
        uint64_t granted = 0;
        int64_t now = T0;
        sf_quota_bucket_init(&b, rate, burst, now);
        struct sf_quota_stored stored = {burst, now, 0};
        for (int step = 0; step < 300; step++) {
            now += (int64_t)sf_rng_below(&rng, 400);
            if (sf_rng_below(&rng, 20) == 0)
                sf_quota_bucket_load(&b, rate, burst, &stored, now);
            sf_quota_bucket_refill(&b, now, 100);
            uint64_t units = 1 + sf_rng_below(&rng, burst);
            units = units < b.now.units ? units : b.now.units;
            if (units > b.credit) {
                sf_quota_bucket_debit(&b, units, now);
                stored = (struct sf_quota_stored){b.stored.units, b.stored.at_ms, b.credit};
            }
            units = units < b.credit ? units : b.credit;
            sf_quota_bucket_grant(&b, units);
            granted += units;
            if (units > 0 && sf_rng_below(&rng, 4) == 0) {
                uint64_t back = sf_rng_below(&rng, units);
                sf_quota_bucket_return(&b, back);
                granted -= back;
            }
            assert_true(granted <= burst + rate * (uint64_t)(now - T0) / 1000 + 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refill),
        cmocka_unit_test(test_slow_rate),
        cmocka_unit_test(test_debit_runs_ahead_by_a_chunk),
        cmocka_unit_test(test_forfeit),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_bounds),
    };
    return SF_RUN_TESTS("catalog_quota_bucket", tests);
}
