/* What commands read from their command lines in the same way: addresses, keys, words. */
#include "support/proves.h"

#include <string.h>

#include "cli/cli_priv.h"

#define ARENA_BYTES 65536

static void expect_server(const char *text, const char *host, uint16_t port)
{
    struct sf_cli cli = {.arena = sf_arena_new(ARENA_BYTES)};

    assert_true(sf_cli_parse_server(&cli, text));
    assert_string_equal(cli.host, host);
    assert_int_equal(cli.port, port);
    sf_arena_destroy(cli.arena);
}

static void expect_no_server(const char *text)
{
    struct sf_cli cli = {.host = "before", .port = 7, .arena = sf_arena_new(ARENA_BYTES)};

    assert_false(sf_cli_parse_server(&cli, text));
    assert_string_equal(cli.host, "before");
    assert_int_equal(cli.port, 7);
    sf_arena_destroy(cli.arena);
}

static void test_server(void **state)
{
    (void)state;
    expect_server("127.0.0.1:7400", "127.0.0.1", 7400);
    expect_server("localhost:1", "localhost", 1);
    expect_server("[::1]:65535", "::1", 65535);
    expect_no_server("");
    expect_no_server("localhost");
    expect_no_server("localhost:");
    expect_no_server(":7400");
    expect_no_server("[]:7400");
    expect_no_server("::1:7400");
    expect_no_server("localhost:0");
    expect_no_server("localhost:65536");
    expect_no_server("localhost:74x");
    expect_no_server("localhost:-1");
    expect_no_server("localhost: 7400");
}

static bool key_ok(const char *key)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    bool ok = sf_cli_check_key(&diag, key);
    assert_true(ok == (diag.err == SF_OK));
    return ok;
}

/* 128 characters (contract: idempotency_key), less "-" and the 20 digits of the greatest request
 * number of a load. */
static void test_key(void **state)
{
    char key[109];

    (void)state;
    memset(key, 'k', sizeof(key));
    key[107] = '\0';
    assert_true(key_ok(key));
    key[107] = 'k';
    key[108] = '\0';
    assert_false(key_ok(key));
    assert_false(key_ok(""));
    assert_true(key_ok("a\"b c"));
    assert_true(key_ok("Schl\xc3\xbcssel"));
    assert_false(key_ok("a\xff"));
    /* a line end would end the HTTP header it travels in */
    assert_false(key_ok("a\r\nX-Other: b"));
    assert_false(key_ok("a\x7f"));
}

static void test_words(void **state)
{
    const char *words[2] = {NULL, NULL};
    struct argp_state argp = {0};

    (void)state;
    assert_int_equal(sf_cli_take_word(words, 2, "get", &argp), 0);
    argp.arg_num = 1;
    assert_int_equal(sf_cli_take_word(words, 2, "demo", &argp), 0);
    argp.arg_num = 2;
    assert_int_equal(sf_cli_take_word(words, 2, "more", &argp), ARGP_ERR_UNKNOWN);
    assert_string_equal(words[0], "get");
    assert_string_equal(words[1], "demo");
}

static void test_made_up_key(void **state)
{
    struct sf_cli cli = {0};

    (void)state;
    const char *key = sf_cli_key(&cli);
    assert_int_equal(strlen(key), 32);
    assert_int_equal(strspn(key, "0123456789abcdef"), 32);
    assert_ptr_equal(sf_cli_key(&cli), key); /* one key a run */
    struct sf_cli given = {.idempotency_key = "mine"};
    assert_string_equal(sf_cli_key(&given), "mine");
}

/* docs/operations/sfctl.md: 3 when a retry is worth it, 4 when bytes do not verify, 1 otherwise. */
static void test_exit_codes(void **state)
{
    static const struct {
        enum sf_err err;
        int exit_code;
    } rows[] = {
        {SF_BAD_REQUEST, SF_CLI_REFUSED},
        {SF_RESOURCE_NOT_FOUND, SF_CLI_REFUSED},
        {SF_IDEMPOTENCY_CONFLICT, SF_CLI_REFUSED},
        {SF_VERSION_CONFLICT, SF_CLI_REFUSED},
        {SF_INTERNAL, SF_CLI_REFUSED},
        {SF_RATE_LIMITED, SF_CLI_UNAVAILABLE},
        {SF_CATALOG_UNAVAILABLE, SF_CLI_UNAVAILABLE},
        {SF_BACKEND_UNAVAILABLE, SF_CLI_UNAVAILABLE},
        {SF_DEADLINE_EXCEEDED, SF_CLI_UNAVAILABLE},
        {SF_ERR_CORRUPT, SF_CLI_DATA},
    };

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        struct sf_cli cli = {0};
        sf_diag_init(&cli.diag);
        sf_diag_set(&cli.diag, rows[i].err, "a test of exit codes");
        assert_int_equal(sf_cli_fail(&cli, "test"), rows[i].exit_code);
    }
}

static void test_list_flags(void **state)
{
    struct sf_cli_list list = {.prefix = "", .limit = UINT32_MAX};

    (void)state;
    assert_int_equal(sf_cli_page_size(&list), 0); /* the server's own pages */
    assert_true(sf_cli_take_list(&list, SF_CLI_FLAG_PREFIX, "boo", NULL));
    assert_string_equal(list.prefix, "boo");
    assert_true(sf_cli_take_list(&list, SF_CLI_FLAG_LIMIT, "999", NULL));
    assert_int_equal(sf_cli_page_size(&list), 999);
    assert_true(sf_cli_take_list(&list, SF_CLI_FLAG_LIMIT, "1000", NULL));
    assert_int_equal(sf_cli_page_size(&list), 0);
    assert_true(sf_cli_take_list(&list, SF_CLI_FLAG_LIMIT, "4294967295", NULL));
    assert_int_equal(list.limit, UINT32_MAX);
    assert_false(sf_cli_take_list(&list, SF_CLI_FLAG_RAW, NULL, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_flags),  cmocka_unit_test(test_server),
        cmocka_unit_test(test_key),         cmocka_unit_test(test_words),
        cmocka_unit_test(test_made_up_key), cmocka_unit_test(test_exit_codes),
    };
    return SF_RUN_TESTS("cli_args", tests);
}
