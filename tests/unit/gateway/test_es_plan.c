/*
 * The sequence of plans of a bulk, against a model of the allocator: whatever the watermark is, the
 * plan that succeeds refuses exactly the ids that cannot be had in order, and a retry, with a
 * higher watermark, walks to the plan that succeeded before.
 */
#include "support/proves.h"

#include <string.h>

#include "base/compiler.h"
#include "base/rng.h"
#include "gateway/es_plan.h"

#define ISSUE                                                                                      \
    {                                                                                              \
        .explicit_id = false                                                                       \
    }
#define ID(n)                                                                                      \
    {                                                                                              \
        .explicit_id = true, .id = (n)                                                             \
    }

/* Runs the kept items as the allocator does (note 5.3). Returns the position of the first explicit
 * id below the watermark, or `count`; then *next is the new watermark. */
static size_t allocate(const struct sf_es_plan_item *items, size_t count, uint64_t *next)
{
    uint64_t at = *next;

    for (size_t i = 0; i < count; i++) {
        if (items[i].refused)
            continue;
        if (items[i].explicit_id) {
            if (items[i].id < at)
                return i;
            at = items[i].id;
        }
        at++;
    }
    *next = at;
    return count;
}

/* Walks the sequence until a plan succeeds; returns its `first`. */
static size_t walk(struct sf_es_plan_item *items, size_t count, uint64_t *next)
{
    size_t first = sf_es_plan_first(items, count);

    for (;;) {
        (void)sf_es_plan_select(items, count, first);
        size_t conflict = allocate(items, count, next);
        if (conflict == count)
            return first;
        assert_int_equal(conflict, first); /* nothing else can conflict */
        first = sf_es_plan_next(items, count, first);
    }
}

static void test_all_issued(void **state)
{
    struct sf_es_plan_item items[] = {ISSUE, ISSUE, ISSUE};

    (void)state;
    assert_int_equal(sf_es_plan_first(items, 3), 3);
    assert_int_equal(sf_es_plan_select(items, 3, 3), 3);
}

static void test_what_cannot_follow_is_refused_with_it(void **state)
{
    /* 12, then 11 can never follow, 12 neither; 13 is taken by the id issued after 12; 14 is free.
     */
    struct sf_es_plan_item items[] = {ID(12), ID(11), ID(12), ISSUE, ID(13), ID(14), ISSUE};

    (void)state;
    assert_int_equal(sf_es_plan_select(items, 7, 0), 4);
    assert_false(items[0].refused);
    assert_true(items[1].refused);
    assert_true(items[2].refused);
    assert_false(items[3].refused);
    assert_true(items[4].refused);
    assert_false(items[5].refused);
    assert_false(items[6].refused);
}

static void test_before_first_only_issues_are_kept(void **state)
{
    struct sf_es_plan_item items[] = {ID(3), ISSUE, ID(5), ISSUE, ID(9)};

    (void)state;
    assert_int_equal(sf_es_plan_select(items, 5, 2), 4);
    assert_true(items[0].refused);
    assert_false(items[1].refused);
    assert_false(items[2].refused);
    assert_int_equal(sf_es_plan_next(items, 5, 2), 4);
    assert_int_equal(sf_es_plan_next(items, 5, 4), 5);
    assert_int_equal(sf_es_plan_select(items, 5, 5), 2);
}

static void test_next_passes_ids_that_are_lower_still(void **state)
{
    struct sf_es_plan_item items[] = {ID(12), ID(7), ID(12), ID(13)};

    (void)state;
    assert_int_equal(sf_es_plan_next(items, 4, 0), 3);
}

static void test_the_last_id_exhausts_the_space(void **state)
{
    struct sf_es_plan_item items[] = {ID(UINT64_MAX), ID(0), ID(UINT64_MAX)};

    (void)state;
    assert_int_equal(sf_es_plan_select(items, 3, 0), 1);
    assert_false(items[0].refused);
    assert_true(items[1].refused);
    assert_true(items[2].refused);
}

static void test_zero_is_an_id(void **state)
{
    struct sf_es_plan_item items[] = {ID(0), ISSUE, ID(1), ID(2)};

    (void)state;
    assert_int_equal(sf_es_plan_select(items, 4, 0), 3);
    assert_true(items[2].refused);
    assert_false(items[3].refused);
}

static void test_a_retry_walks_to_the_same_plan(void **state)
{
    struct sf_rng rng;

    (void)state;
    sf_rng_init(&rng, 42);
    for (int round = 0; round < 20000; round++) {
        struct sf_es_plan_item items[12];
        bool refused[12];
        size_t count = 1 + sf_rng_below(&rng, SF_ARRAY_LEN(items));
        memset(items, 0, sizeof(items));
        for (size_t i = 0; i < count; i++) {
            items[i].explicit_id = sf_rng_below(&rng, 3) != 0;
            items[i].id = sf_rng_below(&rng, 40);
        }
        uint64_t next = sf_rng_below(&rng, 40);
        size_t first = walk(items, count, &next);
        for (size_t i = 0; i < count; i++)
            refused[i] = items[i].refused;

        /* The retry: every plan before `first` is refused again, whatever happened meanwhile. */
        uint64_t later = next + sf_rng_below(&rng, 5);
        size_t at = sf_es_plan_first(items, count);
        while (at != first) {
            uint64_t copy = later;
            assert_true(at < count);
            (void)sf_es_plan_select(items, count, at);
            assert_int_equal(allocate(items, count, &copy), at);
            at = sf_es_plan_next(items, count, at);
        }
        (void)sf_es_plan_select(items, count, at);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(items[i].refused, refused[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_issued),
        cmocka_unit_test(test_what_cannot_follow_is_refused_with_it),
        cmocka_unit_test(test_before_first_only_issues_are_kept),
        cmocka_unit_test(test_next_passes_ids_that_are_lower_still),
        cmocka_unit_test(test_the_last_id_exhausts_the_space),
        cmocka_unit_test(test_zero_is_an_id),
        cmocka_unit_test(test_a_retry_walks_to_the_same_plan),
    };
    return SF_RUN_TESTS("es_plan", tests);
}
