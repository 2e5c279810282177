/* When a lane leases and how much: tables. */
#include "allocator/lease_rules.h"

#include "support/proves.h"

static const struct sf_alloc_lease_policy policy = {
    .on = true, .hot_per_s = 3, .min_ids = 8, .max_ids = 64, .quiet_ms = 10000};

static void test_heat(void **state)
{
    (void)state;
    struct sf_lease_use use = {0};
    struct sf_alloc_lease_policy off = policy;

    assert_int_equal(sf_lease_heat(&policy, &use, 0), SF_LEASE_SLOW);
    sf_lease_note_issue(&use, 5100, 1);
    sf_lease_note_issue(&use, 5900, 1);
    assert_int_equal(sf_lease_heat(&policy, &use, 5999), SF_LEASE_SLOW);
    sf_lease_note_issue(&use, 5999, 1);
    assert_int_equal(sf_lease_rate(&use, 5999), 3);
    assert_int_equal(sf_lease_heat(&policy, &use, 5999), SF_LEASE_HOT);
    /* the second before counts too, the one before that does not */
    assert_int_equal(sf_lease_heat(&policy, &use, 6999), SF_LEASE_HOT);
    assert_int_equal(sf_lease_heat(&policy, &use, 7000), SF_LEASE_SLOW);
    assert_int_equal(sf_lease_rate(&use, 7000), 0);
    off.on = false;
    assert_int_equal(sf_lease_heat(&off, &use, 5999), SF_LEASE_OFF);
    /* an explicit id cools the lane for a while */
    sf_lease_note_explicit(&use, 6000);
    assert_int_equal(sf_lease_heat(&policy, &use, 6500), SF_LEASE_EXPLICIT);
    for (int i = 0; i < 3; i++)
        sf_lease_note_issue(&use, 15999, 1);
    assert_int_equal(sf_lease_heat(&policy, &use, 15999), SF_LEASE_EXPLICIT);
    assert_int_equal(sf_lease_heat(&policy, &use, 16000), SF_LEASE_HOT);
    assert_string_equal(sf_lease_heat_text(SF_LEASE_HOT), "hot");
    assert_string_equal(sf_lease_heat_text(SF_LEASE_OFF), "leasing_off");
    assert_string_equal(sf_lease_heat_text(SF_LEASE_EXPLICIT), "explicit_ids_lately");
    assert_string_equal(sf_lease_heat_text(SF_LEASE_SLOW), "rate_below_threshold");
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        uint64_t had;      /* the last range */
        int64_t lasted_ms; /* until the next is wanted */
        uint64_t next;
    } cases[] = {
        {8, 0, 16},         {8, 999, 16},  {8, 1000, 8},  {8, 4000, 8}, {8, 4001, 8},
        {32, 4001, 16},     {32, 999, 64}, {33, 1, 64},   {64, 1, 64},  {64, 2000, 64},
        {64, 86400000, 32}, {17, 5000, 8}, {16, 5000, 8},
    };
    struct sf_lease_use use = {0};

    for (size_t i = 0; i < SF_ARRAY_LEN(cases); i++) {
        sf_lease_note_range(&use, 7000, cases[i].had);
        assert_int_equal(sf_lease_range_ids(&policy, &use, 7000 + cases[i].lasted_ms),
                         cases[i].next);
    }
    /* the first covers the second that made the lane hot, within the bounds */
    static const struct {
        uint64_t ids;
        uint64_t first;
    } firsts[] = {{1, 8}, {8, 8}, {9, 9}, {64, 64}, {65, 64}, {100000, 64}};
    for (size_t i = 0; i < SF_ARRAY_LEN(firsts); i++) {
        use = (struct sf_lease_use){0};
        sf_lease_note_issue(&use, 3000, firsts[i].ids);
        assert_int_equal(sf_lease_range_ids(&policy, &use, 3999), firsts[i].first);
        assert_int_equal(sf_lease_range_ids(&policy, &use, 4999), firsts[i].first);
        assert_int_equal(sf_lease_range_ids(&policy, &use, 5000), 8);
    }
}

static void test_ranges(void **state)
{
    (void)state;
    const struct sf_watermark zero = {0};
    const struct sf_watermark ten = {.next = 10};
    const struct sf_watermark last = {.next = UINT64_MAX};
    const struct sf_watermark end = {.exhausted = true};

    assert_int_equal(sf_watermark_up(zero, 10).next, 10);
    assert_int_equal(sf_watermark_up(ten, 0).next, 10);
    assert_int_equal(sf_watermark_compare(sf_watermark_up(last, 0), last), 0);
    assert_true(sf_watermark_up(last, 1).exhausted);
    assert_int_equal(sf_watermark_up(last, 1).next, 0);
    assert_true(sf_watermark_up(ten, UINT64_MAX).exhausted);
    assert_int_equal(sf_watermark_up(ten, UINT64_MAX - 10).next, UINT64_MAX);
    assert_true(sf_watermark_up(end, 5).exhausted);
    assert_true(sf_watermark_between(zero, zero) == 0);
    assert_true(sf_watermark_between(ten, zero) == 0);
    assert_true(sf_watermark_between(zero, ten) == 10);
    assert_true(sf_watermark_between(last, end) == 1);
    assert_true(sf_watermark_between(ten, end) == UINT64_MAX - 9);
    assert_true(sf_watermark_between(zero, end) == UINT64_MAX);
    assert_true(sf_watermark_between(end, end) == 0);
    assert_true(sf_watermark_between(end, ten) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heat),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_ranges),
    };
    return SF_RUN_TESTS("lease_rules", tests);
}
