/* Durable objects: canonical bytes, own checksum, refusal of damage and of a newer format. */
#include "support/proves.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "contract/descriptor_set.h"
#include "object/durable.h"
#include "object/memory_store.h"
#include "searchfabric/v1/durable.pb-c.h"

#define WINDOW_DESC &searchfabric__v1__tso_window__descriptor

static int setup(void **state)
{
    (void)state;
    return sf_pbjson_register(
               sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size)) == SF_OK
               ? 0
               : -1;
}

/* The canonical JSON by hand: field order, 64-bit numbers as strings, zero fields left out. */
static const char content[] = "{\"format_version\":1,\"attempt_id\":\"a-1\","
                              "\"window_end_ts\":\"18446744073709551615\",\"tso_epoch\":\"3\"}";

static void expected_bytes(char *out, size_t size)
{
    char hex[SF_SHA256_HEX_BYTES];

    sf_sha256_hex(sf_view_str(content), hex);
    (void)snprintf(out, size,
                   "{\"format_version\":1,\"attempt_id\":\"a-1\",\"sha256\":\"%s\","
                   "\"window_end_ts\":\"18446744073709551615\",\"tso_epoch\":\"3\"}",
                   hex);
}

static void encode_window(struct sf_buf *out, char *out_sha)
{
    Searchfabric__V1__TsoWindow w = SEARCHFABRIC__V1__TSO_WINDOW__INIT;
    char attempt[] = "a-1";

    w.attempt_id = attempt;
    w.window_end_ts = UINT64_MAX;
    w.tso_epoch = 3;
    sf_durable_encode(&w.base, out, out_sha);
    assert_string_equal(w.sha256, "");
}

static void test_encode_is_canonical_with_own_checksum(void **state)
{
    struct sf_buf out = {0};
    char sha[SF_SHA256_HEX_BYTES];
    char want_sha[SF_SHA256_HEX_BYTES];
    char want[512];

    (void)state;
    expected_bytes(want, sizeof(want));
    sf_buf_append_str(&out, "before");
    encode_window(&out, sha);
    assert_int_equal(out.len, 6 + strlen(want));
    assert_memory_equal(out.data + 6, want, strlen(want));
    sf_sha256_hex(sf_view_str(want), want_sha);
    assert_string_equal(sha, want_sha);
    sf_buf_fini(&out);
}

static enum sf_err decode(const char *text, uint64_t *out_end)
{
    struct sf_arena *arena = sf_arena_new(1u << 16);
    struct sf_diag diag;
    ProtobufCMessage *message = NULL;

    sf_diag_init(&diag);
    enum sf_err err = sf_durable_decode(WINDOW_DESC, sf_view_str(text), arena, &diag, &message);
    if (err == SF_OK)
        *out_end = ((Searchfabric__V1__TsoWindow *)(void *)message)->window_end_ts;
    sf_arena_destroy(arena);
    return err;
}

static void test_decode_verifies(void **state)
{
    char text[512];
    uint64_t end = 0;

    (void)state;
    expected_bytes(text, sizeof(text));
    assert_int_equal(decode(text, &end), SF_OK);
    assert_true(end == UINT64_MAX);
    *strstr(text, "\"3\"}") = '"';
    char *digit = strstr(text, "3\"}");
    *digit = '4';
    assert_int_equal(decode(text, &end), SF_ERR_CORRUPT);
    assert_int_equal(decode("", &end), SF_ERR_CORRUPT);
    assert_int_equal(decode("{}", &end), SF_ERR_CORRUPT);
    assert_int_equal(decode("{\"format_version\":2}", &end), SF_ERR_CORRUPT);
}

/* Every byte of the object is covered: no single changed byte is accepted. */
/* Spaces and another order: the same content, so the checksum holds. */
static void test_other_text_of_the_content_verifies(void **state)
{
    struct sf_arena *arena = sf_arena_new(1 << 20);
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;
    char hex[SF_SHA256_HEX_BYTES], text[512];

    (void)state;
    sf_diag_init(&diag);
    sf_sha256_hex(sf_view_str(content), hex);
    (void)snprintf(text, sizeof(text),
                   "{\"tso_epoch\": \"3\", \"format_version\":1,\"sha256\":\"%s\","
                   "\"window_end_ts\":\"18446744073709551615\",\"attempt_id\":\"a-1\"}",
                   hex);
    assert_int_equal(sf_durable_decode(WINDOW_DESC, sf_view_str(text), arena, &diag, &message),
                     SF_OK);
    *strstr(text, "\"3\"") = ' '; /* no longer JSON */
    assert_int_equal(sf_durable_decode(WINDOW_DESC, sf_view_str(text), arena, &diag, &message),
                     SF_ERR_CORRUPT);
    sf_arena_destroy(arena);
}

static void test_any_changed_byte_is_refused(void **state)
{
    char text[512];
    uint64_t end = 0;

    (void)state;
    expected_bytes(text, sizeof(text));
    for (size_t i = 0; i < strlen(text); i++) {
        char saved = text[i];
        text[i] = (char)(saved ^ 1);
        assert_int_equal(decode(text, &end), SF_ERR_CORRUPT);
        text[i] = saved;
    }
}

static void test_member_of_a_newer_binary_verifies_and_survives(void **state)
{
    static const char newer[] = "{\"format_version\":1,\"attempt_id\":\"a-1\",\"tso_epoch\":\"3\","
                                "\"zone\":[1,2]}";
    struct sf_arena *arena = sf_arena_new(1u << 16);
    ProtobufCMessage *message = NULL;
    struct sf_buf again = {0};
    char hex[SF_SHA256_HEX_BYTES];
    char text[512];

    (void)state;
    sf_sha256_hex(sf_view_str(newer), hex);
    (void)snprintf(text, sizeof(text),
                   "{\"format_version\":1,\"attempt_id\":\"a-1\",\"sha256\":\"%s\","
                   "\"tso_epoch\":\"3\",\"zone\":[1,2]}",
                   hex);
    assert_int_equal(sf_durable_decode(WINDOW_DESC, sf_view_str(text), arena, NULL, &message),
                     SF_OK);
    sf_durable_encode(message, &again, NULL);
    assert_int_equal(again.len, strlen(text));
    assert_memory_equal(again.data, text, again.len);
    sf_buf_fini(&again);
    sf_arena_destroy(arena);
}

static void test_read_names_the_key(void **state)
{
    struct sf_store *store = sf_memory_store_new(NULL);
    struct sf_arena *arena = sf_arena_new(1u << 16);
    ProtobufCMessage *message = NULL;
    struct sf_etag etag = {{0}};
    struct sf_diag diag;
    struct sf_buf body = {0};

    (void)state;
    sf_diag_init(&diag);
    assert_int_equal(sf_durable_read_wait(store, NULL, sf_view_str("tso/window.json"), WINDOW_DESC,
                                          arena, &diag, &message, &etag),
                     SF_ERR_NOT_FOUND);
    assert_non_null(strstr(diag.message, "tso/window.json"));
    encode_window(&body, NULL);
    struct sf_put put = {.key = sf_view_str("tso/window.json"), .body = sf_buf_view(&body)};
    assert_int_equal(sf_store_put_wait(store, NULL, &put), SF_OK);
    assert_int_equal(sf_durable_read_wait(store, NULL, sf_view_str("tso/window.json"), WINDOW_DESC,
                                          arena, &diag, &message, &etag),
                     SF_OK);
    assert_string_equal(etag.text, put.etag.text);
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
    sf_store_destroy(store);
}

static void test_attempt_ids_are_unique(void **state)
{
    struct sf_attempts a;
    struct sf_attempts b;
    char one[SF_ATTEMPT_ID_BYTES];
    char two[SF_ATTEMPT_ID_BYTES];

    (void)state;
    sf_attempts_init(&a, 0x0123456789abcdef);
    sf_attempts_init(&b, UINT64_MAX);
    sf_attempts_next(&a, one);
    assert_string_equal(one, "0123456789abcdef-1");
    sf_attempts_next(&a, two);
    assert_string_equal(two, "0123456789abcdef-2");
    atomic_store(&b.counter, UINT64_MAX - 1);
    sf_attempts_next(&b, one);
    assert_string_equal(one, "ffffffffffffffff-18446744073709551615");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode_is_canonical_with_own_checksum),
        cmocka_unit_test(test_decode_verifies),
        cmocka_unit_test(test_other_text_of_the_content_verifies),
        cmocka_unit_test(test_any_changed_byte_is_refused),
        cmocka_unit_test(test_member_of_a_newer_binary_verifies_and_survives),
        cmocka_unit_test(test_read_names_the_key),
        cmocka_unit_test(test_attempt_ids_are_unique)};

    return SF_RUN_TESTS_WITH("durable", tests, setup, NULL);
}
