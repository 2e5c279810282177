/*
 * The scan of raw protobuf: what the unpacker would take wrongly is refused with the path of the
 * field, what is well formed passes and unpacks. Wire bytes are written out by hand from the
 * encoding's definition.
 */
#include "base/pb.h"

#include "base/limits.h"
#include "base/mem.h"
#include "support/proves.h"
#include "test.pb-c.h"

#include <stdlib.h>
#include <time.h>

#define KINDS  (&sf__test__v1__kinds__descriptor)
#define TREE   (&sf__test__v1__tree__descriptor)
#define BUDGET (1u << 20)

/* Scans a byte string literal. */
#define SCAN(desc, literal, diag)                                                                  \
    sf_pb_scan((desc), sf_view_bytes((literal), sizeof(literal) - 1), BUDGET, (diag))

static void refused(const ProtobufCMessageDescriptor *desc, const char *bytes, size_t len,
                    enum sf_err want, const char *field)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(sf_pb_scan(desc, sf_view_bytes(bytes, len), BUDGET, &diag), want);
    assert_int_equal(diag.err, want);
    assert_string_equal(sf_diag_get(&diag, "field"), field);
    assert_non_null(sf_diag_get(&diag, "violation"));
}

#define REFUSED(desc, literal, want, field)                                                        \
    refused((desc), (literal), sizeof(literal) - 1, (want), (field))

static void test_empty_message(void **state)
{
    (void)state;
    assert_int_equal(sf_pb_scan(KINDS, sf_view_bytes(NULL, 0), BUDGET, NULL), SF_OK);
}

static void test_well_formed(void **state)
{
    (void)state;
    /* i32 = 1; text = "a"; leaf {text "b", number 5}; numbers packed 1 2, unpacked 3 */
    assert_int_equal(SCAN(KINDS,
                          "\x08\x01"
                          "\x7a\x01"
                          "a"
                          "\x8a\x01\x05\x0a\x01"
                          "b"
                          "\x10\x05"
                          "\xa2\x01\x02\x01\x02"
                          "\xa0\x01\x03",
                          NULL),
                     SF_OK);
}

static void test_unknown_fields_pass(void **state)
{
    (void)state;
    /* number 1000 as varint, fixed64, bytes and fixed32 */
    assert_int_equal(SCAN(KINDS,
                          "\xc0\x3e\x07"
                          "\xc1\x3e"
                          "12345678"
                          "\xc2\x3e\x02"
                          "\xff\xfe"
                          "\xc5\x3e"
                          "1234",
                          NULL),
                     SF_OK);
}

static void test_malformed_wire(void **state)
{
    (void)state;
    REFUSED(KINDS, "\x08", SF_ERR_PARSE, "i32");   /* value missing */
    REFUSED(KINDS, "\x80", SF_ERR_PARSE, "?");     /* tag cut */
    REFUSED(KINDS, "\x00\x01", SF_ERR_PARSE, "?"); /* field number 0 */
    REFUSED(KINDS,
            "\x7a\x02"
            "a",
            SF_ERR_PARSE, "text");                         /* string longer than the message */
    REFUSED(KINDS, "\x1d\x01\x02", SF_ERR_PARSE, "sf32");  /* fixed32 cut */
    REFUSED(KINDS, "\xc3\x3e\xc4\x3e", SF_ERR_PARSE, "?"); /* group */
    REFUSED(KINDS, "\x0f\x01", SF_ERR_PARSE, "i32");       /* wire type 7 */
    /* varint of eleven bytes, and one above 2^64 */
    REFUSED(KINDS, "\x48\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", SF_ERR_PARSE, "u64");
    REFUSED(KINDS, "\x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", SF_ERR_PARSE, "u64");
    /* field number above 2^29 - 1 */
    REFUSED(KINDS, "\x80\x80\x80\x80\x10\x01", SF_ERR_PARSE, "?");
    /* length above 2^31 */
    REFUSED(KINDS, "\x7a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", SF_ERR_PARSE, "text");
}

static void test_wire_type_must_fit(void **state)
{
    (void)state;
    REFUSED(KINDS,
            "\x0d"
            "1234",
            SF_ERR_PARSE, "i32");
    REFUSED(KINDS, "\x78\x01", SF_ERR_PARSE, "text");
    REFUSED(KINDS, "\x0a\x01\x01", SF_ERR_PARSE, "i32"); /* packed form of a single field */
    /* doubles packed with a length that eight does not divide */
    REFUSED(KINDS,
            "\xca\x01\x07"
            "1234567",
            SF_ERR_PARSE, "doubles[0]");
    /* numbers packed with a varint cut at the end */
    REFUSED(KINDS, "\xa2\x01\x02\x01\x80", SF_ERR_PARSE, "numbers[0]");
}

static void test_strings_are_utf8_without_nul(void **state)
{
    (void)state;
    REFUSED(KINDS,
            "\x7a\x03"
            "a\0b",
            SF_ERR_PARSE, "text");
    REFUSED(KINDS, "\x7a\x02\xc0\x80", SF_ERR_PARSE, "text");         /* overlong */
    REFUSED(KINDS, "\x7a\x03\xed\xa0\x80", SF_ERR_PARSE, "text");     /* surrogate */
    REFUSED(KINDS, "\x7a\x04\xf4\x90\x80\x80", SF_ERR_PARSE, "text"); /* above U+10FFFF */
    assert_int_equal(SCAN(KINDS,
                          "\x82\x01\x03"
                          "a\0\xff",
                          NULL),
                     SF_OK); /* bytes may hold all */
    assert_int_equal(SCAN(KINDS, "\x7a\x04\xf4\x8f\xbf\xbf", NULL), SF_OK);
}

/* Bad text makes a request illegal, a bad wire form makes it malformed, and malformed wins. */
static void test_malformed_wins_over_bad_text(void **state)
{
    struct sf_diag diag;

    (void)state;
    sf_diag_init(&diag);
    assert_int_equal(SCAN(KINDS, "\x7a\x01\xff", &diag), SF_ERR_PARSE);
    assert_string_equal(sf_diag_get(&diag, "violation"), SF_PB_VIOLATION_UTF8);
    sf_diag_init(&diag);
    assert_int_equal(SCAN(KINDS, "\x7a\x01\0", &diag), SF_ERR_PARSE);
    assert_string_equal(sf_diag_get(&diag, "violation"), SF_PB_VIOLATION_NUL);
    sf_diag_init(&diag);
    assert_int_equal(SCAN(KINDS, "\x7a\x01\xff\x7a\x09", &diag), SF_ERR_PARSE);
    assert_string_not_equal(sf_diag_get(&diag, "violation"), SF_PB_VIOLATION_UTF8);
}

static void test_path_names_list_positions(void **state)
{
    (void)state;
    /* leaves: {} {} {text: NUL} */
    REFUSED(KINDS,
            "\xb2\x01\x00"
            "\xb2\x01\x00"
            "\xb2\x01\x03\x0a\x01\0",
            SF_ERR_PARSE, "leaves[2].text");
    /* a map's entry: labels {key "k", value NUL} */
    REFUSED(KINDS,
            "\xf2\x01\x06\x0a\x01"
            "k"
            "\x12\x01\0",
            SF_ERR_PARSE, "labels[0].value");
}

/* A tree of `depth` messages, each the child of the one before. */
static struct sf_buf nested_tree(unsigned depth)
{
    struct sf_buf inner = {0};

    for (unsigned i = 1; i < depth; i++) {
        struct sf_buf outer = {0};
        uint8_t head[4] = {0x0a};
        size_t n = 1;
        size_t len = inner.len;
        while (len >= 0x80) {
            head[n++] = (uint8_t)(len | 0x80u);
            len >>= 7;
        }
        head[n++] = (uint8_t)len;
        sf_buf_append(&outer, head, n);
        sf_buf_append(&outer, inner.data, inner.len);
        sf_buf_fini(&inner);
        inner = outer;
    }
    return inner;
}

static void test_depth_is_bounded(void **state)
{
    (void)state;
    struct sf_buf fits = nested_tree(SF_LIMIT_PB_DEPTH);
    struct sf_buf deep = nested_tree(SF_LIMIT_PB_DEPTH + 1);

    assert_int_equal(sf_pb_scan(TREE, sf_buf_view(&fits), BUDGET, NULL), SF_OK);
    assert_int_equal(sf_pb_scan(TREE, sf_buf_view(&deep), BUDGET, NULL), SF_ERR_LIMIT);
    sf_buf_fini(&fits);
    sf_buf_fini(&deep);
}

static void test_elements_are_bounded(void **state)
{
    (void)state;
    /* one packed list of more elements than a message may have: 2^20 + 1 bytes of value 0 */
    size_t count = SF_LIMIT_PB_ELEMENTS + 1;
    uint8_t head[5] = {0xa2, 0x01, 0x81, 0x80, 0x40};
    struct sf_buf bytes = {0};

    sf_buf_append(&bytes, head, sizeof(head));
    assert_true(sf_buf_reserve(&bytes, count));
    memset(bytes.data + bytes.len, 0, count);
    bytes.len += count;
    assert_int_equal(sf_pb_scan(KINDS, sf_buf_view(&bytes), SIZE_MAX, NULL), SF_ERR_LIMIT);
    sf_buf_fini(&bytes);
}

static void test_memory_is_bounded(void **state)
{
    (void)state;
    struct sf_buf bytes = {0};
    struct sf_arena *arena = sf_arena_new(1u << 20);
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;

    /* empty map entries, three bytes each: 100,000 of them would need several megabytes */
    for (unsigned i = 0; i < 100000; i++)
        sf_buf_append(&bytes, "\xf2\x01\x00", 3);
    sf_diag_init(&diag);
    assert_int_equal(sf_pb_unpack(KINDS, sf_buf_view(&bytes), arena, &diag, &message),
                     SF_ERR_LIMIT);
    assert_null(message);
    assert_int_equal(sf_arena_used_bytes(arena), 0);
    sf_arena_destroy(arena);
    sf_buf_fini(&bytes);
}

/* The estimate must cover what the unpacker takes, or a scan that passed would fail later. */
static void test_estimate_covers_unpack(void **state)
{
    (void)state;
    struct sf_buf bytes = {0};
    Sf__Test__V1__Kinds kinds = SF__TEST__V1__KINDS__INIT;
    Sf__Test__V1__Leaf leaf = SF__TEST__V1__LEAF__INIT;
    Sf__Test__V1__Leaf *leaves[300];
    char *texts[500];
    uint32_t numbers[700];
    size_t budget = 0;

    leaf.text = (char *)"some text";
    leaf.number = 7;
    for (size_t i = 0; i < SF_ARRAY_LEN(leaves); i++)
        leaves[i] = &leaf;
    for (size_t i = 0; i < SF_ARRAY_LEN(texts); i++)
        texts[i] = (char *)"t";
    for (size_t i = 0; i < SF_ARRAY_LEN(numbers); i++)
        numbers[i] = (uint32_t)(i * i);
    kinds.leaf = &leaf;
    kinds.n_leaves = SF_ARRAY_LEN(leaves);
    kinds.leaves = leaves;
    kinds.n_texts = SF_ARRAY_LEN(texts);
    kinds.texts = texts;
    kinds.n_numbers = SF_ARRAY_LEN(numbers);
    kinds.numbers = numbers;
    sf_pb_pack(&kinds.base, &bytes);
    sf_buf_append(&bytes, "\xc0\x3e\x07", 3);

    /* the least budget that passes, to 64 bytes */
    while (sf_pb_scan(KINDS, sf_buf_view(&bytes), budget, NULL) != SF_OK)
        budget += 64;
    struct sf_arena *arena = sf_arena_new(budget);
    ProtobufCMessage *message = NULL;
    assert_int_equal(sf_pb_unpack(KINDS, sf_buf_view(&bytes), arena, NULL, &message), SF_OK);
    const Sf__Test__V1__Kinds *back = (const Sf__Test__V1__Kinds *)(const void *)message;
    assert_int_equal(back->n_leaves, SF_ARRAY_LEN(leaves));
    assert_string_equal(back->leaves[299]->text, "some text");
    assert_int_equal(back->numbers[699], 699 * 699);
    assert_int_equal(back->base.n_unknown_fields, 1);
    sf_arena_destroy(arena);
    sf_buf_fini(&bytes);
}

static void test_pack_and_dup_round_trip(void **state)
{
    (void)state;
    Sf__Test__V1__Kinds kinds = SF__TEST__V1__KINDS__INIT;
    struct sf_arena *arena = sf_arena_new(1u << 16);
    struct sf_buf first = {0};
    struct sf_buf second = {0};

    kinds.i64 = INT64_MIN;
    kinds._maybe_number_case = SF__TEST__V1__KINDS___MAYBE_NUMBER_MAYBE_NUMBER;
    kinds.maybe_number = 0;
    sf_pb_pack(&kinds.base, &first);
    ProtobufCMessage *copy = sf_pb_dup(&kinds.base, arena);
    assert_non_null(copy);
    const Sf__Test__V1__Kinds *back = (const Sf__Test__V1__Kinds *)(const void *)copy;
    assert_true(back->i64 == INT64_MIN);
    assert_int_equal(back->_maybe_number_case, 40); /* presence of zero survives */
    sf_pb_pack(copy, &second);
    assert_true(sf_view_equal(sf_buf_view(&first), sf_buf_view(&second)));
    sf_arena_destroy(arena);

    arena = sf_arena_new(64);
    assert_null(sf_pb_dup(&kinds.base, arena));
    assert_true(sf_arena_overflowed(arena));
    sf_arena_destroy(arena);
    sf_buf_fini(&first);
    sf_buf_fini(&second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_message),
        cmocka_unit_test(test_well_formed),
        cmocka_unit_test(test_unknown_fields_pass),
        cmocka_unit_test(test_malformed_wire),
        cmocka_unit_test(test_wire_type_must_fit),
        cmocka_unit_test(test_strings_are_utf8_without_nul),
        cmocka_unit_test(test_malformed_wins_over_bad_text),
        cmocka_unit_test(test_path_names_list_positions),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_elements_are_bounded),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_estimate_covers_unpack),
        cmocka_unit_test(test_pack_and_dup_round_trip),
    };

    return SF_RUN_TESTS("pb", tests);
}
