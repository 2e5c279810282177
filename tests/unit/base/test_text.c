/*
 * Text rules. The sets of code points are compared with the published Unicode tables (Debian's
 * unicode-data package), code point by code point; without the package those tests are skipped.
 */
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "base/limits.h"
#include "base/mem.h"
#include "support/proves.h"

#define UNICODE_FOLDER "/usr/share/unicode/"
#define CODE_POINTS    0x110000

/* Marks in `set` every code point that `file` gives the property `name` (";" separated columns). */
static bool read_property(const char *file, const char *name, bool *set)
{
    char line[1024];
    FILE *in = fopen(file, "r");

    if (in == NULL)
        return false;
    while (fgets(line, sizeof(line), in) != NULL) {
        char *hash = strchr(line, '#');
        if (hash != NULL)
            *hash = '\0';
        char *semicolon = strchr(line, ';');
        if (semicolon == NULL)
            continue;
        char *value = semicolon + 1 + strspn(semicolon + 1, " \t");
        value[strcspn(value, " \t;\n")] = '\0';
        if (strcmp(value, name) != 0)
            continue;
        char *end;
        unsigned long low = strtoul(line, &end, 16);
        unsigned long high = strncmp(end, "..", 2) == 0 ? strtoul(end + 2, NULL, 16) : low;
        for (unsigned long c = low; c <= high && c < CODE_POINTS; c++)
            set[c] = true;
    }
    (void)fclose(in);
    return true;
}

static const char *violation(struct sf_view name)
{
    static struct sf_diag diag;

    sf_diag_init(&diag);
    if (sf_name_check("name", name, false, &diag) == SF_OK)
        return "";
    assert_int_equal(diag.err, SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&diag, "field"), "name");
    return sf_diag_get(&diag, "violation");
}

static const char *violation_str(const char *name)
{
    return violation(sf_view_str(name));
}

/* Every scalar alone as a name: refused exactly when a published table says so. */
static void test_forbidden_characters_match_unicode(void **state)
{
    (void)state;
    bool *ignorable = sf_calloc(CODE_POINTS, sizeof(bool));
    bool *bidi = sf_calloc(CODE_POINTS, sizeof(bool));
    bool *nonchar = sf_calloc(CODE_POINTS, sizeof(bool));
    bool found = read_property(UNICODE_FOLDER "DerivedCoreProperties.txt",
                               "Default_Ignorable_Code_Point", ignorable) &&
                 read_property(UNICODE_FOLDER "PropList.txt", "Bidi_Control", bidi) &&
                 read_property(UNICODE_FOLDER "PropList.txt", "Noncharacter_Code_Point", nonchar);
    unsigned wrong = 0;

    for (int32_t c = 0; found && c < CODE_POINTS; c++) {
        uint8_t encoded[4];
        if (c >= 0xd800 && c <= 0xdfff)
            continue;
        size_t n = (size_t)utf8proc_encode_char(c, encoded);
        const char *got = violation(sf_view_bytes(encoded, n));
        bool control = c < 0x20 || (c >= 0x7f && c <= 0x9f);
        bool forbidden = control || bidi[c] || nonchar[c] || ignorable[c];
        bool refused = got[0] != '\0' && strcmp(got, "not_nfc") != 0;
        if (refused != forbidden && wrong++ < 10)
            print_error("U+%04X: %s\n", (unsigned)c, got);
    }
    free(ignorable);
    free(bidi);
    free(nonchar);
    if (!found)
        skip();
    assert_int_equal(wrong, 0);
}

/* Appends the space separated code points of column `column` of `line`. */
static void column_text(const char *line, unsigned column, struct sf_buf *out)
{
    for (unsigned i = 0; i < column; i++)
        line = strchr(line, ';') + 1;
    while (*line != ';') {
        char *end;
        uint8_t encoded[4];
        long c = strtol(line, &end, 16);
        sf_buf_append(out, encoded, (size_t)utf8proc_encode_char((int32_t)c, encoded));
        line = end + strspn(end, " ");
    }
}

/* The published normalization tests: column 2 is in form C, columns 1 and 3 are when equal to it.
 */
static void test_nfc_matches_unicode(void **state)
{
    (void)state;
    /* the package ships this file packed */
    FILE *in = popen("exec bzip2 -dc " UNICODE_FOLDER "NormalizationTest.txt.bz2 2>/dev/null", "r");
    char line[1024];
    unsigned wrong = 0;
    unsigned count = 0;

    if (in == NULL)
        skip();
    while (fgets(line, sizeof(line), in) != NULL) {
        struct sf_buf source = {0};
        struct sf_buf nfc = {0};
        struct sf_buf nfd = {0};
        if (line[0] == '#' || line[0] == '@' || strchr(line, ';') == NULL)
            continue;
        column_text(line, 0, &source);
        column_text(line, 1, &nfc);
        column_text(line, 2, &nfd);
        bool nfc_good = strcmp(violation(sf_buf_view(&nfc)), "not_nfc") != 0;
        bool nfd_good = strcmp(violation(sf_buf_view(&nfd)), "not_nfc") != 0;
        bool source_good = strcmp(violation(sf_buf_view(&source)), "not_nfc") != 0;
        /* names with a forbidden character are refused for that before normalization */
        const char *other = violation(sf_buf_view(&nfd));
        if (other[0] == '\0' || strcmp(other, "not_nfc") == 0) {
            wrong += !nfc_good;
            wrong += nfd_good != sf_view_equal(sf_buf_view(&nfd), sf_buf_view(&nfc));
            wrong += source_good != sf_view_equal(sf_buf_view(&source), sf_buf_view(&nfc));
            count++;
        }
        sf_buf_fini(&source);
        sf_buf_fini(&nfc);
        sf_buf_fini(&nfd);
    }
    if (pclose(in) != 0)
        skip();
    assert_true(count > 15000);
    assert_int_equal(wrong, 0);
}

static void test_names(void **state)
{
    (void)state;
    char ascii[SF_LIMIT_NAME_SCALARS + 2] = {0};
    char wide[SF_LIMIT_NAME_SCALARS * 4 + 5] = {0};

    assert_string_equal(violation_str("products"), "");
    assert_string_equal(violation_str(" a b "), ""); /* spaces count and are allowed */
    assert_string_equal(violation_str("\xc3\xa9"), "");
    assert_string_equal(violation_str("e\xcc\x81"), "not_nfc");
    assert_string_equal(violation_str(""), "empty");
    assert_string_equal(violation_str("\xed\xa0\x80"), "invalid_utf8");
    assert_string_equal(violation_str("\xc0\x80"), "invalid_utf8");
    assert_string_equal(violation_str("a\x80"), "invalid_utf8");
    assert_string_equal(violation_str("\xf4\x90\x80\x80"), "invalid_utf8");
    assert_string_equal(violation(sf_view_bytes("a\0b", 3)), "control_character");
    assert_string_equal(violation_str("a\x7f"), "control_character");
    assert_string_equal(violation_str("a\xc2\x85"), "control_character");
    assert_string_equal(violation_str("\xd8\x9c"), "bidi_control");          /* U+061C */
    assert_string_equal(violation_str("\xe2\x80\x8b"), "default_ignorable"); /* U+200B */
    assert_string_equal(violation_str("\xef\xbb\xbf"), "default_ignorable"); /* U+FEFF */
    assert_string_equal(violation_str("\xe2\x81\xa5"), "default_ignorable"); /* U+2065 */
    assert_string_equal(violation_str("\xef\xbf\xbf"), "noncharacter");
    memset(ascii, 'a', SF_LIMIT_NAME_SCALARS + 1);
    assert_string_equal(violation_str(ascii), "too_long");
    ascii[SF_LIMIT_NAME_SCALARS] = '\0';
    assert_string_equal(violation_str(ascii), "");
    for (size_t i = 0; i < SF_LIMIT_NAME_SCALARS; i++)
        (void)snprintf(wide + 4 * i, 5, "\xf0\x9f\x98\x80");
    assert_string_equal(violation_str(wide), "");
    assert_int_equal(sf_name_check("prefix", sf_view_str(""), true, NULL), SF_OK);
}

static void test_identities(void **state)
{
    (void)state;
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(sf_identity_check("key", sf_view_str("k"), 1, 1, &diag), SF_OK);
    assert_int_equal(sf_identity_check("key", sf_view_str("\xf0\x9f\x98\x80"), 1, 1, &diag), SF_OK);
    assert_int_equal(sf_identity_check("key", sf_view_str(""), 1, 4, &diag), SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&diag, "violation"), "empty");
    assert_int_equal(sf_identity_check("key", sf_view_str("abcde"), 1, 4, &diag), SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&diag, "violation"), "too_long");
    assert_int_equal(sf_identity_check("key", sf_view_str("\xff"), 0, 4, &diag), SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&diag, "violation"), "invalid_utf8");
}

static void key_is(const char *component, const char *want)
{
    struct sf_buf out = {0};

    sf_key_append_component(&out, sf_view_str(component));
    assert_true(sf_view_equal(sf_buf_view(&out), sf_view_str(want)));
    sf_buf_fini(&out);
}

static void test_key_components(void **state)
{
    (void)state;
    key_is("plain name", "plain name");
    key_is("a/b\\c%d", "a%2Fb%5Cc%25d");
    key_is(".", "%2E");
    key_is("..", "%2E%2E");
    key_is("...", "...");
    key_is("\xc3\xa9", "\xc3\xa9");
}

static void test_parse_u64(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      "01",
                                      "00",
                                      " 1",
                                      "1 ",
                                      "1x",
                                      "0x1",
                                      "18446744073709551616",
                                      "99999999999999999999",
                                      "100000000000000000000"};
    uint64_t value = 1;

    assert_true(sf_parse_u64(sf_view_str("0"), &value) && value == 0);
    assert_true(sf_parse_u64(sf_view_str("18446744073709551615"), &value) && value == UINT64_MAX);
    for (size_t i = 0; i < SF_ARRAY_LEN(bad); i++)
        assert_false(sf_parse_u64(sf_view_str(bad[i]), &value));
}

static void successor_is(const char *prefix, const char *want)
{
    struct sf_buf out = {0};

    assert_true(sf_prefix_successor(sf_view_str(prefix), &out));
    assert_true(sf_view_equal(sf_buf_view(&out), sf_view_str(want)));
    assert_true(sf_utf8_valid(sf_buf_view(&out)));
    sf_buf_fini(&out);
}

static void test_prefix_successor(void **state)
{
    (void)state;
    SF_PROVES("CCS-10.2-08");
    struct sf_buf out = {0};

    successor_is("a", "b");
    successor_is("ab\x7f", "ab\xc2\x80");                   /* one byte to two */
    successor_is("\xc2\xbf", "\xc3\x80");                   /* last byte BF carries */
    successor_is("\xdf\xbf", "\xe0\xa0\x80");               /* U+07FF, two bytes to three */
    successor_is("x\xed\x9f\xbf", "x\xee\x80\x80");         /* U+D7FF skips the surrogates */
    successor_is("\xef\xbf\xbf", "\xf0\x90\x80\x80");       /* U+FFFF, three bytes to four */
    successor_is("a\xf4\x8f\xbf\xbf", "b");                 /* U+10FFFF is dropped, carries */
    successor_is("a\xf4\x8f\xbf\xbf\xf4\x8f\xbf\xbf", "b"); /* a run of them */
    successor_is("\xf4\x8f\xbf\xbe", "\xf4\x8f\xbf\xbf");
    assert_false(sf_prefix_successor(sf_view_str("\xf4\x8f\xbf\xbf"), &out));
    assert_false(sf_prefix_successor(sf_view_str("\xf4\x8f\xbf\xbf\xf4\x8f\xbf\xbf"), &out));
    assert_false(sf_prefix_successor(sf_view_str(""), &out));
    assert_int_equal(out.len, 0);
}

/* All one- to three-byte texts over the bytes where the rules change, against the definition. */
static void test_utf8_by_definition(void **state)
{
    (void)state;
    for (unsigned a = 0; a < 256; a++) {
        for (unsigned b = 0; b < 256; b++) {
            uint8_t two[2] = {(uint8_t)a, (uint8_t)b};
            bool first = a < 0x80;
            bool want = (first && b < 0x80) || (a >= 0xc2 && a <= 0xdf && b >= 0x80 && b <= 0xbf);
            assert_int_equal(sf_utf8_valid(sf_view_bytes(two, 2)), want);
            for (unsigned c = 0x7f; c <= 0xc0; c++) {
                uint8_t three[3] = {(uint8_t)a, (uint8_t)b, (uint8_t)c};
                uint32_t scalar = (a & 15u) << 12 | (b & 63u) << 6 | (c & 63u);
                bool shape = (a & 0xf0u) == 0xe0 && (b & 0xc0u) == 0x80 && (c & 0xc0u) == 0x80;
                if (!shape)
                    continue;
                want = scalar >= 0x800 && (scalar < 0xd800 || scalar > 0xdfff);
                assert_int_equal(sf_utf8_valid(sf_view_bytes(three, 3)), want);
            }
        }
    }
    assert_true(sf_utf8_valid(sf_view_bytes(NULL, 0)));
    assert_true(sf_utf8_valid(sf_view_str("0123456789\xf0\x90\x80\x80"
                                          "0123456789abcdef")));
    assert_false(sf_utf8_valid(sf_view_str("0123456789\xf0\x8f\xbf\xbf")));
    assert_false(sf_utf8_valid(sf_view_str("01234567890123456\xff")));
    assert_int_equal(sf_utf8_scalars(sf_view_str("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80")), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forbidden_characters_match_unicode),
        cmocka_unit_test(test_nfc_matches_unicode),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_identities),
        cmocka_unit_test(test_key_components),
        cmocka_unit_test(test_parse_u64),
        cmocka_unit_test(test_prefix_successor),
        cmocka_unit_test(test_utf8_by_definition),
    };

    return SF_RUN_TESTS("text", tests);
}
