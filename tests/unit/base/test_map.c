/* The map against a plain list of pairs: the same answers and the order of insertion. */
#include "base/map.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "support/proves.h"

static int values[16]; /* addresses to store */

static void test_basics(void **state)
{
    (void)state;
    struct sf_map *map = sf_map_new();
    struct sf_view key = sf_view_str("key");

    assert_null(sf_map_get(map, key));
    assert_null(sf_map_del(map, key));
    assert_null(sf_map_put(map, key, &values[0]));
    assert_ptr_equal(sf_map_get(map, key), &values[0]);
    assert_ptr_equal(sf_map_put(map, key, &values[1]), &values[0]);
    assert_int_equal(sf_map_count(map), 1);
    /* the empty key and keys with NUL are keys like others */
    assert_null(sf_map_put(map, sf_view_bytes(NULL, 0), &values[2]));
    assert_null(sf_map_put(map, sf_view_bytes("a\0b", 3), &values[3]));
    assert_ptr_equal(sf_map_get(map, sf_view_str("")), &values[2]);
    assert_null(sf_map_get(map, sf_view_str("a")));
    assert_ptr_equal(sf_map_del(map, key), &values[1]);
    assert_int_equal(sf_map_count(map), 2);
    sf_map_destroy(map, NULL);
    sf_map_destroy(NULL, NULL);
}

static void test_iteration_keeps_insertion_order(void **state)
{
    (void)state;
    struct sf_map *map = sf_map_new();
    struct sf_map_iter iter = {0};
    uint64_t expected = 0;

    for (uint64_t i = 0; i < 1000; i++)
        assert_null(sf_map_put(map, sf_map_key_u64(&i), &values[i % 16]));
    for (uint64_t i = 0; i < 1000; i += 3)
        assert_non_null(sf_map_del(map, sf_map_key_u64(&i)));
    while (sf_map_next(map, &iter)) {
        uint64_t key;
        if (expected % 3 == 0)
            expected++;
        memcpy(&key, iter.key.ptr, sizeof(key));
        assert_int_equal(key, expected);
        assert_ptr_equal(iter.value, &values[expected % 16]);
        /* removing the entry of the walk is allowed */
        assert_ptr_equal(sf_map_del(map, sf_map_key_u64(&key)), iter.value);
        expected++;
    }
    assert_int_equal(sf_map_count(map), 0);
    sf_map_destroy(map, NULL);
}

static void test_values_are_freed(void **state)
{
    (void)state;
    struct sf_map *map = sf_map_new();

    for (uint64_t i = 0; i < 100; i++)
        assert_null(sf_map_put(map, sf_map_key_u64(&i), sf_malloc(8)));
    sf_map_clear(map, free);
    assert_int_equal(sf_map_count(map), 0);
    for (uint64_t i = 0; i < 100; i++)
        assert_null(sf_map_put(map, sf_map_key_u64(&i), sf_malloc(8)));
    sf_map_destroy(map, free);
}

/* Random puts and removals on few keys, so that erased slots and rebuilds are met, compared with
 * an array after every step. */
static void test_against_an_array(void **state)
{
    (void)state;
    enum { KEYS = 300, STEPS = 60000 };
    struct sf_map *map = sf_map_new();
    struct sf_rng rng;
    void *model[KEYS] = {0};
    size_t count = 0;

    sf_rng_init(&rng, 7);
    for (unsigned step = 0; step < STEPS; step++) {
        uint64_t key = sf_rng_below(&rng, KEYS);
        void *value = &values[sf_rng_below(&rng, 16)];
        char text[24];
        int n = snprintf(text, sizeof(text), "key-%u", (unsigned)key);
        struct sf_view view = sf_view_bytes(text, (size_t)n);
        if (sf_rng_below(&rng, 2) == 0) {
            assert_ptr_equal(sf_map_put(map, view, value), model[key]);
            count += model[key] == NULL;
            model[key] = value;
        } else {
            assert_ptr_equal(sf_map_del(map, view), model[key]);
            count -= model[key] != NULL;
            model[key] = NULL;
        }
        assert_ptr_equal(sf_map_get(map, view), model[key]);
        assert_int_equal(sf_map_count(map), count);
    }
    struct sf_map_iter iter = {0};
    size_t walked = 0;
    while (sf_map_next(map, &iter))
        walked++;
    assert_int_equal(walked, count);
    sf_map_destroy(map, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_basics),
        cmocka_unit_test(test_iteration_keeps_insertion_order),
        cmocka_unit_test(test_values_are_freed),
        cmocka_unit_test(test_against_an_array),
    };

    return SF_RUN_TESTS("map", tests);
}
