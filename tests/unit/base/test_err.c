/* The error table keeps its own rules; diagnostics keep theirs. */
#include "base/diag.h"

#include "base/text.h"
#include "support/proves.h"

static void test_table(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SF_ERR_COUNT; i++) {
        const struct sf_err_info *info = sf_err_info((enum sf_err)i);
        bool public_code = info->code[0] != '\0';
        assert_non_null(info->name);
        assert_true(info->meaning[0] != '\0');
        assert_true(info->http >= 200 && info->http < 600);
        /* what is a public code carries its own name, and is found by it */
        if (public_code) {
            assert_string_equal(info->code, info->name);
            assert_int_equal(sf_err_from_code(info->code), i);
            assert_int_equal(sf_err_public((enum sf_err)i), i);
        }
        /* safe to retry under the same key: all of UNAVAILABLE and ABORTED that leave the process
         */
        if (public_code && (info->grpc == SF_GRPC_UNAVAILABLE || info->grpc == SF_GRPC_ABORTED))
            assert_true(info->retry_same_key);
        /* no internal code leaves the process */
        if (i != SF_OK)
            assert_true(sf_err_info(sf_err_public((enum sf_err)i))->code[0] != '\0');
    }
    assert_int_equal(sf_err_from_code("SF_NO_SUCH"), SF_ERR_COUNT);
    assert_int_equal(sf_err_from_code(""), SF_ERR_COUNT);
    assert_int_equal(sf_err_from_code(NULL), SF_ERR_COUNT);
    assert_int_equal(sf_err_public(SF_OK), SF_OK);
}

static void test_set_and_details(void **state)
{
    (void)state;
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(diag.err, SF_OK);
    assert_int_equal(sf_diag_set(&diag, SF_RATE_LIMITED, "slow %s", "down"), SF_RATE_LIMITED);
    assert_string_equal(diag.message, "slow down");
    sf_diag_detail(&diag, "retry_after_ms", "%d", 5);
    sf_diag_detail(&diag, "retry_after_ms", "%d", 6);
    assert_int_equal(diag.detail_count, 1);
    assert_string_equal(sf_diag_get(&diag, "retry_after_ms"), "6");
    assert_null(sf_diag_get(&diag, "other"));
    sf_diag_wrap(&diag, "while %d", 1);
    assert_string_equal(diag.message, "while 1: slow down");
    /* the message may be made from itself; details go with the old error */
    (void)sf_diag_set(&diag, SF_INTERNAL, "%s!", diag.message);
    assert_string_equal(diag.message, "while 1: slow down!");
    assert_int_equal(diag.detail_count, 0);
    assert_int_equal(sf_diag_bad_field(&diag, "name", "empty", "no name"), SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&diag, "field"), "name");
    assert_string_equal(sf_diag_get(&diag, "violation"), "empty");
}

static void test_null_is_fine(void **state)
{
    (void)state;
    assert_int_equal(sf_diag_set(NULL, SF_INTERNAL, "x"), SF_INTERNAL);
    assert_int_equal(sf_diag_bad_field(NULL, "f", "v", "x"), SF_BAD_REQUEST);
    sf_diag_detail(NULL, "k", "v");
    sf_diag_wrap(NULL, "x");
    sf_diag_area(NULL, "allocator");
}

static void test_long_text_is_cut_at_a_character(void **state)
{
    (void)state;
    struct sf_diag diag;
    char text[2000];

    /* two-byte characters at either alignment: the cut must not split one */
    for (size_t shift = 0; shift < 2; shift++) {
        memset(text, 'a', sizeof(text));
        for (size_t i = shift; i + 2 < sizeof(text); i += 2)
            memcpy(text + i, "\xc3\xa9", 2);
        text[sizeof(text) - 1] = '\0';
        sf_diag_init(&diag);
        (void)sf_diag_set(&diag, SF_INTERNAL, "%s", text);
        assert_true(strlen(diag.message) < SF_DIAG_TEXT_BYTES);
        assert_string_equal(diag.message + strlen(diag.message) - 3, "...");
        assert_true(sf_utf8_valid(sf_view_str(diag.message)));
        sf_diag_detail(&diag, "k", "%s", text);
        assert_true(sf_utf8_valid(sf_view_str(sf_diag_get(&diag, "k"))));
        sf_diag_wrap(&diag, "outer");
        assert_int_equal(strncmp(diag.message, "outer: ", 7), 0);
        assert_true(sf_utf8_valid(sf_view_str(diag.message)));
        sf_diag_wrap(&diag, "%s", text);
        assert_true(sf_utf8_valid(sf_view_str(diag.message)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_set_and_details),
        cmocka_unit_test(test_null_is_fine),
        cmocka_unit_test(test_long_text_is_cut_at_a_character),
    };

    return SF_RUN_TESTS("err", tests);
}
