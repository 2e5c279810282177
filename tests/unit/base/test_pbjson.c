/*
 * The JSON codec. Expected text follows the proto3 JSON mapping with the product's choices (proto
 * field names, nothing left to chance), worked out by hand.
 */
#include "base/pbjson.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/limits.h"
#include "base/pb.h"
#include "support/proves.h"
#include "test.pb-c.h"
#include "test_descriptor_set.h"

#define KINDS         (&sf__test__v1__kinds__descriptor)
#define TEXT(literal) ((char *)(literal))

static struct sf_arena *arena;

static int group_setup(void **state)
{
    (void)state;
    struct sf_view set = sf_view_bytes(sf_test_descriptor_set, sf_test_descriptor_set_size);
    arena = sf_arena_new(1u << 20);
    enum sf_err first = sf_pbjson_register(set);
    enum sf_err again = sf_pbjson_register(set);
    return first == SF_OK && again == SF_OK ? 0 : 1;
}

static int group_teardown(void **state)
{
    (void)state;
    sf_arena_destroy(arena);
    return 0;
}

static void encodes_to(const ProtobufCMessage *message, const char *want)
{
    struct sf_buf out = {0};

    sf_pbjson_encode(message, &out);
    sf_buf_append(&out, "", 1);
    assert_string_equal((const char *)out.data, want);
    sf_buf_fini(&out);
}

static const Sf__Test__V1__Kinds *decode(const char *json)
{
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    enum sf_err err = sf_pbjson_decode(KINDS, sf_view_str(json), arena, &diag, &message);
    if (err != SF_OK)
        print_error("%s\n", diag.message);
    assert_int_equal(err, SF_OK);
    return (const Sf__Test__V1__Kinds *)(const void *)message;
}

/* Decodes `json` and expects the canonical form `want`, twice over. */
static void becomes(const char *json, const char *want)
{
    sf_arena_reset(arena);
    encodes_to(&decode(json)->base, want);
    encodes_to(&decode(want)->base, want);
}

static void refused(const char *json, enum sf_err want, const char *field)
{
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;

    sf_arena_reset(arena);
    sf_diag_init(&diag);
    enum sf_err err = sf_pbjson_decode(KINDS, sf_view_str(json), arena, &diag, &message);
    if (err != want)
        print_error("%s\n", json);
    assert_int_equal(err, want);
    assert_null(message);
    assert_string_equal(sf_diag_get(&diag, "field"), field);
}

static void test_scalars(void **state)
{
    (void)state;
    Sf__Test__V1__Kinds kinds = SF__TEST__V1__KINDS__INIT;
    Sf__Test__V1__Leaf leaf = SF__TEST__V1__LEAF__INIT;
    uint8_t raw[] = {0xfb, 0xff, 0x00, 0x01};

    encodes_to(&kinds.base, "{}");
    kinds.i32 = INT32_MIN;
    kinds.s32 = -1;
    kinds.sf32 = 1;
    kinds.u32 = UINT32_MAX;
    kinds.f32 = 2;
    kinds.i64 = INT64_MIN;
    kinds.s64 = INT64_MAX;
    kinds.sf64 = -7;
    kinds.u64 = UINT64_MAX;
    kinds.f64 = 9007199254740993;
    kinds.single = 0.1f;
    kinds.twice = 0.1;
    kinds.flag = 1;
    kinds.color = SF__TEST__V1__COLOR__COLOR_DEEP_BLUE;
    kinds.text = TEXT("q\" b\\ n\n t\t c\x01 \xc3\xa9");
    kinds.raw = (ProtobufCBinaryData){sizeof(raw), raw};
    kinds.leaf = &leaf;
    encodes_to(&kinds.base,
               "{\"i32\":-2147483648,\"s32\":-1,\"sf32\":1,\"u32\":4294967295,\"f32\":2,"
               "\"i64\":\"-9223372036854775808\",\"s64\":\"9223372036854775807\",\"sf64\":\"-7\","
               "\"u64\":\"18446744073709551615\",\"f64\":\"9007199254740993\",\"single\":0.1,"
               "\"twice\":0.1,\"flag\":true,\"color\":\"COLOR_DEEP_BLUE\","
               "\"text\":\"q\\\" b\\\\ n\\n t\\t c\\u0001 \xc3\xa9\",\"raw\":\"+/8AAQ==\","
               "\"leaf\":{}}");
}

static void test_scalars_round_trip(void **state)
{
    (void)state;
    const char *text =
        "{\"i32\":-2147483648,\"s32\":-1,\"sf32\":1,\"u32\":4294967295,\"f32\":2,"
        "\"i64\":\"-9223372036854775808\",\"s64\":\"9223372036854775807\",\"sf64\":\"-7\","
        "\"u64\":\"18446744073709551615\",\"f64\":\"9007199254740993\",\"single\":0.1,"
        "\"twice\":1e+300,\"flag\":true,\"color\":\"COLOR_NEGATIVE\",\"text\":\"\\\"\xc3\xa9\","
        "\"raw\":\"+/8AAQ==\",\"leaf\":{\"text\":\"x\",\"number\":\"1\"}}";

    becomes(text, text);
    const Sf__Test__V1__Kinds *kinds = decode(text);
    assert_true(kinds->u64 == UINT64_MAX && kinds->i64 == INT64_MIN);
    assert_int_equal(kinds->color, -2);
    assert_int_equal(kinds->raw.len, 4);
    assert_memory_equal(kinds->raw.data, "\xfb\xff\x00\x01", 4);
}

static void test_lists_and_maps(void **state)
{
    (void)state;
    becomes("{\"numbers\":[3,1,2],\"texts\":[\"\",\"b\"],\"leaves\":[{},{\"number\":\"4\"}],"
            "\"colors\":[\"COLOR_RED\",\"COLOR_UNSPECIFIED\",99],\"raws\":[\"\",\"AA==\"],"
            "\"doubles\":[0,-0.5,1e-7],\"flags\":[true,false],\"wide_numbers\":[\"0\"]}",
            "{\"numbers\":[3,1,2],\"texts\":[\"\",\"b\"],\"leaves\":[{},{\"number\":\"4\"}],"
            "\"colors\":[\"COLOR_RED\",\"COLOR_UNSPECIFIED\",99],\"raws\":[\"\",\"AA==\"],"
            "\"doubles\":[0,-0.5,1e-07],\"flags\":[true,false],\"wide_numbers\":[\"0\"]}");
    becomes("{\"labels\":{\"b\":\"2\",\"a\":\"1\",\"\":\"0\"},"
            "\"by_id\":{\"10\":{},\"9\":{\"text\":\"x\"}},\"by_int\":{\"5\":false,\"-3\":true},"
            "\"by_flag\":{\"true\":\"t\",\"false\":\"f\"}}",
            "{\"labels\":{\"\":\"0\",\"a\":\"1\",\"b\":\"2\"},"
            "\"by_id\":{\"9\":{\"text\":\"x\"},\"10\":{}},\"by_int\":{\"-3\":true,\"5\":false},"
            "\"by_flag\":{\"false\":\"f\",\"true\":\"t\"}}");
    becomes("{\"numbers\":[],\"labels\":{}}", "{}");
}

/* A map from the wire may be in any order and hold a key twice: sorted, and the last one counts. */
static void test_map_from_the_wire(void **state)
{
    (void)state;
    Sf__Test__V1__Kinds kinds = SF__TEST__V1__KINDS__INIT;
    Sf__Test__V1__Kinds__LabelsEntry entries[3];
    Sf__Test__V1__Kinds__LabelsEntry *list[] = {&entries[0], &entries[1], &entries[2]};
    const char *const keys[] = {"b", "a", "b"};
    const char *const values[] = {"old", "1", "new"};

    for (size_t i = 0; i < 3; i++) {
        sf__test__v1__kinds__labels_entry__init(&entries[i]);
        entries[i].key = TEXT(keys[i]);
        entries[i].value = TEXT(values[i]);
    }
    kinds.n_labels = 3;
    kinds.labels = list;
    encodes_to(&kinds.base, "{\"labels\":{\"a\":\"1\",\"b\":\"new\"}}");
}

static void test_presence(void **state)
{
    (void)state;
    becomes("{\"maybe_number\":\"0\",\"maybe_text\":\"\",\"maybe_leaf\":{},\"maybe_flag\":false}",
            "{\"maybe_number\":\"0\",\"maybe_text\":\"\",\"maybe_leaf\":{},\"maybe_flag\":false}");
    becomes("{\"choice_number\":\"0\"}", "{\"choice_number\":\"0\"}");
    becomes("{\"i32\":0,\"text\":\"\",\"raw\":\"\",\"color\":\"COLOR_UNSPECIFIED\"}", "{}");
    becomes("{\"i32\":null,\"maybe_number\":null,\"leaf\":null,\"numbers\":null}", "{}");
    const Sf__Test__V1__Kinds *kinds = decode("{\"choice_leaf\":{\"number\":\"3\"}}");
    assert_int_equal(kinds->choice_case, SF__TEST__V1__KINDS__CHOICE_CHOICE_LEAF);
    assert_true(kinds->choice_leaf->number == 3);
    refused("{\"choice_number\":\"1\",\"choice_text\":\"x\"}", SF_ERR_PARSE, "choice_text");
}

static void test_both_name_forms(void **state)
{
    (void)state;
    becomes("{\"snakeCaseName\":\"x\"}", "{\"snake_case_name\":\"x\"}");
    becomes("{\"snake\\u005fcase_name\":\"x\"}", "{\"snake_case_name\":\"x\"}");
    refused("{\"snakeCaseName\":\"x\",\"snake_case_name\":\"y\"}", SF_ERR_PARSE, "snake_case_name");
}

static void test_number_rules(void **state)
{
    (void)state;
    becomes("{\"u64\":9007199254740992}", "{\"u64\":\"9007199254740992\"}");
    becomes("{\"i64\":-9007199254740992}", "{\"i64\":\"-9007199254740992\"}");
    becomes("{\"i32\":\"12\"}", "{\"i32\":12}");
    refused("{\"u64\":9007199254740993}", SF_ERR_PARSE, "u64");
    refused("{\"u64\":1e3}", SF_ERR_PARSE, "u64");
    refused("{\"u64\":1.0}", SF_ERR_PARSE, "u64");
    refused("{\"u64\":-1}", SF_ERR_PARSE, "u64");
    refused("{\"u64\":\"-1\"}", SF_ERR_PARSE, "u64");
    refused("{\"u64\":\"18446744073709551616\"}", SF_ERR_PARSE, "u64");
    refused("{\"u64\":\"01\"}", SF_ERR_PARSE, "u64");
    refused("{\"u64\":\"+1\"}", SF_ERR_PARSE, "u64");
    refused("{\"u64\":\" 1\"}", SF_ERR_PARSE, "u64");
    refused("{\"u64\":\"\"}", SF_ERR_PARSE, "u64");
    refused("{\"i64\":\"9223372036854775808\"}", SF_ERR_PARSE, "i64");
    refused("{\"i64\":\"-9223372036854775809\"}", SF_ERR_PARSE, "i64");
    refused("{\"i64\":\"-0\"}", SF_ERR_PARSE, "i64");
    refused("{\"i32\":2147483648}", SF_ERR_PARSE, "i32");
    refused("{\"u32\":4294967296}", SF_ERR_PARSE, "u32");
    refused("{\"single\":1e39}", SF_ERR_PARSE, "single");
    refused("{\"twice\":1e309}", SF_ERR_PARSE, "twice");
    refused("{\"twice\":\"1x\"}", SF_ERR_PARSE, "twice");
    becomes("{\"single\":\"NaN\",\"twice\":\"-Infinity\"}",
            "{\"single\":\"NaN\",\"twice\":\"-Infinity\"}");
    becomes("{\"twice\":0.30000000000000004}", "{\"twice\":0.30000000000000004}");
    becomes("{\"single\":16777216}", "{\"single\":16777216}");
    becomes("{\"twice\":\"2.50\"}", "{\"twice\":2.5}");
}

static void test_wrong_types(void **state)
{
    (void)state;
    refused("{\"i32\":true}", SF_ERR_PARSE, "i32");
    refused("{\"flag\":\"true\"}", SF_ERR_PARSE, "flag");
    refused("{\"flag\":1}", SF_ERR_PARSE, "flag");
    refused("{\"text\":1}", SF_ERR_PARSE, "text");
    refused("{\"raw\":\"a\"}", SF_ERR_PARSE, "raw");
    refused("{\"raw\":\"QQ=\"}", SF_ERR_PARSE, "raw");
    refused("{\"raw\":\"Q!==\"}", SF_ERR_PARSE, "raw");
    refused("{\"raw\":\"QR==\"}", SF_ERR_PARSE, "raw"); /* bits that stand for nothing */
    becomes("{\"raw\":\"-_8AAQ\"}", "{\"raw\":\"+/8AAQ==\"}");
    refused("{\"color\":\"COLOR_PINK\"}", SF_ERR_PARSE, "color");
    refused("{\"color\":\"COLOR_RED\\u0000\"}", SF_ERR_PARSE, "color");
    refused("{\"leaf\":[]}", SF_ERR_PARSE, "leaf");
    refused("{\"numbers\":1}", SF_ERR_PARSE, "numbers");
    refused("{\"numbers\":[1,null]}", SF_ERR_PARSE, "numbers[1]");
    refused("{\"leaves\":[{},{\"number\":\"x\"}]}", SF_ERR_PARSE, "leaves[1].number");
    refused("{\"labels\":{\"k\":null}}", SF_ERR_PARSE, "labels[\"k\"]");
    refused("{\"labels\":{\"k\":\"1\",\"\\u006b\":\"2\"}}", SF_ERR_PARSE, "labels");
    refused("{\"by_id\":{\"01\":{}}}", SF_ERR_PARSE, "by_id[\"01\"]");
    refused("{\"by_flag\":{\"yes\":\"\"}}", SF_ERR_PARSE, "by_flag[\"yes\"]");
    refused("{\"i32\":1,\"i32\":1}", SF_ERR_PARSE, "i32");
}

static void test_text_rules(void **state)
{
    (void)state;
    refused("{\"text\":\"a\\u0000b\"}", SF_ERR_PARSE, "text");
    refused("{\"text\":\"\\ud800\"}", SF_ERR_PARSE, "text");
    refused("{\"text\":\"\xed\xa0\x80\"}", SF_ERR_PARSE, "text");
    refused("{\"text\":\"\xc0\xaf\"}", SF_ERR_PARSE, "text");
    refused("{\"text\":\"a\nb\"}", SF_ERR_PARSE, "text");
    becomes("{\"text\":\"\\ud83d\\ude00\\/\"}", "{\"text\":\"\xf0\x9f\x98\x80/\"}");
}

static void test_bad_json(void **state)
{
    (void)state;
    refused("", SF_ERR_PARSE, "");
    refused("[]", SF_ERR_PARSE, "");
    refused("{} {}", SF_ERR_PARSE, "");
    refused("{\"i32\":1,}", SF_ERR_PARSE, "i32");
    refused("{\"i32\" 1}", SF_ERR_PARSE, "");
    refused("{\"i32\":01}", SF_ERR_PARSE, "i32");
    refused("{i32:1}", SF_ERR_PARSE, "");
    refused("{\"leaf\":{\"text\":\"x\"", SF_ERR_PARSE, "leaf.text");
}

static void test_unknown_members_are_kept(void **state)
{
    (void)state;
    /* after the known ones, sorted by name, values byte for byte */
    becomes("{\"zz\": 1.50 ,\"i32\":1,\"aa\":{\"x\": [ 18446744073709551616 , 1e400, \"\\u0000\"]},"
            "\"leaf\":{\"new\":null}}",
            "{\"i32\":1,\"leaf\":{\"new\":null},\"aa\":{\"x\": [ 18446744073709551616 , 1e400, "
            "\"\\u0000\"]},\"zz\":1.50}");
    becomes("{\"\\u0061\\\"b\":1}", "{\"a\\\"b\":1}");
    refused("{\"x\":1,\"x\":2}", SF_ERR_PARSE, "x");
    refused("{\"x\":1,\"\\u0078\":2}", SF_ERR_PARSE, "x");
    refused("{\"x\":tru}", SF_ERR_PARSE, "x");
}

/* What an older binary decodes, packs, hands on and encodes still holds what it did not know. */
static void test_unknown_members_survive_the_wire(void **state)
{
    (void)state;
    sf_arena_reset(arena);
    const char *text = "{\"i32\":1,\"new_a\":[1, 2],\"new_b\":\"x\"}";
    struct sf_buf packed = {0};
    ProtobufCMessage *back = NULL;

    sf_pb_pack(&decode(text)->base, &packed);
    assert_int_equal(sf_pb_unpack(KINDS, sf_buf_view(&packed), arena, NULL, &back), SF_OK);
    encodes_to(back, text);
    sf_buf_fini(&packed);
}

/* The same field numbers sent by a peer cannot write anything but well-formed, new members. */
static void test_forged_unknown_members_are_dropped(void **state)
{
    (void)state;
    static const char *const forged[] = {
        "\"x\":}{",
        "\"x\"",
        "\"x\":1,\"i32\":5",
        "\"i32\":5",
        "\"\\u0069\\u00332\":5",
        "\"x\": 1",
        " \"x\":1",
        "x:1",
        "\"x\":1 ",
        "",
        "\"snakeCaseName\":\"y\"",
        "\"x\":\"\xff\"",
    };

    for (size_t i = 0; i < SF_ARRAY_LEN(forged); i++) {
        Sf__Test__V1__Kinds kinds = SF__TEST__V1__KINDS__INIT;
        uint8_t data[64];
        size_t len = strlen(forged[i]);
        data[0] = (uint8_t)len;
        memcpy(data + 1, forged[i], len);
        ProtobufCMessageUnknownField field = {
            .tag = 19999, .wire_type = 2, .len = len + 1, .data = data};
        kinds.base.n_unknown_fields = 1;
        kinds.base.unknown_fields = &field;
        encodes_to(&kinds.base, "{}");
    }
    Sf__Test__V1__Kinds kinds = SF__TEST__V1__KINDS__INIT;
    uint8_t a[] = "\5\"b\":1";
    uint8_t b[] = "\5\"b\":2";
    uint8_t c[] = "\5\"a\":3";
    ProtobufCMessageUnknownField fields[] = {
        {19999, 2, 6, a}, {19999, 2, 6, b}, {19999, 2, 6, c}, {1000, 0, 1, a}};
    kinds.base.n_unknown_fields = 4;
    kinds.base.unknown_fields = fields;
    encodes_to(&kinds.base, "{\"b\":1}");
}

static void test_depth(void **state)
{
    (void)state;
    struct sf_buf json = {0};

    /* Kinds, its tree, and children to the 64th message; then one more */
    for (unsigned depth = SF_LIMIT_PB_DEPTH; depth <= SF_LIMIT_PB_DEPTH + 1; depth++) {
        ProtobufCMessage *message = NULL;
        sf_arena_reset(arena);
        sf_buf_clear(&json);
        sf_buf_append_str(&json, "{\"tree\":");
        for (unsigned i = 2; i < depth; i++)
            sf_buf_append_str(&json, "{\"child\":");
        sf_buf_append_str(&json, "{}");
        for (unsigned i = 1; i < depth; i++)
            sf_buf_append_str(&json, "}");
        assert_int_equal(sf_pbjson_decode(KINDS, sf_buf_view(&json), arena, NULL, &message),
                         depth <= SF_LIMIT_PB_DEPTH ? SF_OK : SF_ERR_LIMIT);
    }
    sf_buf_clear(&json);
    sf_buf_append_str(&json, "{\"x\":");
    for (unsigned i = 0; i < SF_LIMIT_JSON_DEPTH; i++)
        sf_buf_append_str(&json, "[");
    sf_buf_append(&json, "", 1);
    refused((const char *)json.data, SF_ERR_LIMIT, "x");
    sf_buf_fini(&json);
}

static void test_arena_is_the_budget(void **state)
{
    (void)state;
    struct sf_arena *small = sf_arena_new(2048);
    struct sf_buf json = {0};
    ProtobufCMessage *message = NULL;

    sf_buf_append_str(&json, "{\"numbers\":[0");
    for (unsigned i = 0; i < 4096; i++)
        sf_buf_append_str(&json, ",0");
    sf_buf_append_str(&json, "]}");
    assert_int_equal(sf_pbjson_decode(KINDS, sf_buf_view(&json), small, NULL, &message),
                     SF_ERR_LIMIT);
    sf_buf_fini(&json);
    sf_arena_destroy(small);
}

static void test_pretty(void **state)
{
    (void)state;
    struct sf_buf out = {0};

    sf_arena_reset(arena);
    sf_pbjson_encode_pretty(
        &decode("{\"i32\":1,\"leaf\":{},\"numbers\":[1,2],\"labels\":{\"a\":\"b\"}}")->base, &out);
    sf_buf_append(&out, "", 1);
    assert_string_equal((const char *)out.data, "{\n"
                                                "  \"i32\": 1,\n"
                                                "  \"leaf\": {},\n"
                                                "  \"numbers\": [\n"
                                                "    1,\n"
                                                "    2\n"
                                                "  ],\n"
                                                "  \"labels\": {\n"
                                                "    \"a\": \"b\"\n"
                                                "  }\n"
                                                "}");
    sf_buf_fini(&out);
}

static void test_bad_descriptor_sets(void **state)
{
    (void)state;
    /* a file cut short, and a message without a name */
    assert_int_equal(sf_pbjson_register(sf_view_bytes("\x0a\x05\x0a", 3)), SF_ERR_PARSE);
    assert_int_equal(sf_pbjson_register(sf_view_bytes("\x0a\x02\x22\x00", 4)), SF_ERR_PARSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_scalars_round_trip),
        cmocka_unit_test(test_lists_and_maps),
        cmocka_unit_test(test_map_from_the_wire),
        cmocka_unit_test(test_presence),
        cmocka_unit_test(test_both_name_forms),
        cmocka_unit_test(test_number_rules),
        cmocka_unit_test(test_wrong_types),
        cmocka_unit_test(test_text_rules),
        cmocka_unit_test(test_bad_json),
        cmocka_unit_test(test_unknown_members_are_kept),
        cmocka_unit_test(test_unknown_members_survive_the_wire),
        cmocka_unit_test(test_forged_unknown_members_are_dropped),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_arena_is_the_budget),
        cmocka_unit_test(test_pretty),
        cmocka_unit_test(test_bad_descriptor_sets),
    };

    return SF_RUN_TESTS_WITH("pbjson", tests, group_setup, group_teardown);
}
