/* Arena and buffer: alignment, caps, sticky overflow, reuse. */
#include "base/arena.h"

#include "base/buf.h"
#include "base/rng.h"
#include "support/proves.h"

static void test_alloc(void **state)
{
    (void)state;
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct sf_rng rng;
    size_t used = 0;

    sf_rng_init(&rng, 1);
    for (unsigned i = 0; i < 300; i++) {
        size_t size = (size_t)sf_rng_below(&rng, 3000);
        uint8_t *at = sf_arena_alloc(arena, size);
        assert_non_null(at);
        assert_int_equal((uintptr_t)at % 16, 0);
        for (size_t k = 0; k < size; k++)
            assert_int_equal(at[k], 0);
        memset(at, 0xff, size);
        used += size;
    }
    assert_true(sf_arena_used_bytes(arena) >= used);
    assert_int_equal(sf_arena_left_bytes(arena), (1u << 20) - sf_arena_used_bytes(arena));
    sf_arena_destroy(arena);
    sf_arena_destroy(NULL);
}

static void test_overflow_is_sticky(void **state)
{
    (void)state;
    struct sf_arena *arena = sf_arena_new(100);

    assert_non_null(sf_arena_alloc(arena, 64));
    assert_non_null(sf_arena_alloc(arena, 32));
    assert_null(sf_arena_alloc(arena, 16));
    assert_true(sf_arena_overflowed(arena));
    assert_null(sf_arena_alloc(arena, 1)); /* would fit, but the mark stands */
    assert_null(sf_arena_str(arena, sf_view_str("x")));
    assert_int_equal(sf_arena_left_bytes(arena), 0);
    sf_arena_reset(arena);
    assert_false(sf_arena_overflowed(arena));
    assert_int_equal(sf_arena_used_bytes(arena), 0);
    assert_non_null(sf_arena_alloc(arena, 96));
    assert_null(sf_arena_alloc(arena, SIZE_MAX));
    sf_arena_destroy(arena);
}

static void test_copies(void **state)
{
    (void)state;
    struct sf_arena *arena = sf_arena_new(1u << 16);

    assert_string_equal(sf_arena_str(arena, sf_view_bytes("abcdef", 3)), "abc");
    assert_string_equal(sf_arena_str(arena, sf_view_bytes(NULL, 0)), "");
    assert_string_equal(sf_arena_printf(arena, "%d-%s", 7, "x"), "7-x");
    assert_memory_equal(sf_arena_dup(arena, "\0\1\2", 3), "\0\1\2", 3);
    assert_non_null(sf_arena_dup(arena, NULL, 0));
    sf_arena_destroy(arena);
}

static void test_many_resets(void **state)
{
    (void)state;
    struct sf_arena *arena = sf_arena_new(4u << 20);

    for (unsigned round = 0; round < 50; round++) {
        for (unsigned i = 0; i < 20; i++)
            assert_non_null(sf_arena_alloc(arena, 1u << (i % 16)));
        sf_arena_reset(arena);
    }
    sf_arena_destroy(arena);
}

static void test_buf(void **state)
{
    (void)state;
    struct sf_buf buf = {0};

    sf_buf_append(&buf, NULL, 0);
    assert_int_equal(buf.len, 0);
    sf_buf_append_str(&buf, "hello ");
    sf_buf_printf(&buf, "%s %d", "world", 42);
    assert_true(sf_view_equal(sf_buf_view(&buf), sf_view_str("hello world 42")));
    sf_buf_consume(&buf, 6);
    assert_true(sf_view_equal(sf_buf_view(&buf), sf_view_str("world 42")));
    sf_buf_consume(&buf, 8);
    assert_int_equal(buf.len, 0);
    sf_buf_clear(&buf);
    sf_buf_printf(&buf, "%*d", 1000, 1); /* longer than the stack buffer */
    assert_int_equal(buf.len, 1000);
    assert_int_equal(buf.data[999], '1');
    sf_buf_fini(&buf);
    sf_buf_fini(&buf);
}

static void test_buf_cap(void **state)
{
    (void)state;
    struct sf_buf buf = {.max_bytes = 10};

    sf_buf_append_str(&buf, "12345678");
    sf_buf_append_str(&buf, "abc"); /* dropped whole */
    assert_true(buf.overflowed);
    assert_int_equal(buf.len, 8);
    sf_buf_append_str(&buf, "9a");
    assert_int_equal(buf.len, 10);
    assert_true(buf.overflowed);
    assert_false(sf_buf_reserve(&buf, 1));
    sf_buf_clear(&buf);
    assert_false(buf.overflowed);
    assert_false(sf_buf_reserve(&buf, SIZE_MAX));
    sf_buf_fini(&buf);
    assert_int_equal(buf.max_bytes, 10);
}

static void test_views(void **state)
{
    (void)state;
    assert_true(sf_view_compare(sf_view_str("a"), sf_view_str("b")) < 0);
    assert_true(sf_view_compare(sf_view_str("a"), sf_view_str("ab")) < 0);
    assert_true(sf_view_compare(sf_view_str("\xff"), sf_view_str("a")) > 0);
    assert_int_equal(sf_view_compare(sf_view_str(""), sf_view_bytes(NULL, 0)), 0);
    assert_true(sf_view_equal(sf_view_str(NULL), sf_view_str("")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc),  cmocka_unit_test(test_overflow_is_sticky),
        cmocka_unit_test(test_copies), cmocka_unit_test(test_many_resets),
        cmocka_unit_test(test_buf),    cmocka_unit_test(test_buf_cap),
        cmocka_unit_test(test_views),
    };

    return SF_RUN_TESTS("arena", tests);
}
