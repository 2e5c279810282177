/*
 * Signed tokens and the key ring: what a key may verify in each state, refusal of every altered
 * byte, reload, and the ring file's own checks.
 */
#include "base/token.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "support/proves.h"

#define NOW 1000000

#define SECRET_A "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define SECRET_B "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static char folder[] = "/tmp/sf-token-XXXXXX";
static char path[64];

static int group_setup(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return 1;
    (void)snprintf(path, sizeof(path), "%s/ring.yaml", folder);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static void write_ring(const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, 0600), 0);
    (void)close(fd);
}

static struct sf_keyring *load(const char *text)
{
    struct sf_keyring *ring = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    write_ring(text);
    enum sf_err err = sf_keyring_load(path, &diag, &ring);
    if (err != SF_OK)
        print_error("%s\n", diag.message);
    assert_int_equal(err, SF_OK);
    return ring;
}

static enum sf_token_reason verify(struct sf_keyring *ring, enum sf_token_family family,
                                   int64_t now, const struct sf_buf *token)
{
    struct sf_view claims = {0};

    return sf_token_verify(ring, family, now, sf_buf_view(token), &claims);
}

static void test_sign_and_verify(void **state)
{
    (void)state;
    SF_PROVES("CCS-10.2-16");
    struct sf_keyring *ring = sf_keyring_new_for_test(1);
    struct sf_buf page = {0};
    struct sf_buf receipt = {0};
    struct sf_view claims;

    sf_token_sign(ring, SF_TOKEN_PAGE, NOW, NOW + 900000, sf_view_str("page"), &page);
    sf_token_sign(ring, SF_TOKEN_ALLOCATOR_RECEIPT, NOW, 0, sf_view_str("receipt"), &receipt);
    assert_int_equal(sf_token_verify(ring, SF_TOKEN_PAGE, NOW, sf_buf_view(&page), &claims),
                     SF_TOKEN_OK);
    assert_true(sf_view_equal(claims, sf_view_str("page")));
    assert_true(claims.ptr > page.data && claims.ptr < page.data + page.len);
    assert_int_equal(sf_token_verify(ring, SF_TOKEN_ALLOCATOR_RECEIPT, INT64_MAX,
                                     sf_buf_view(&receipt), &claims),
                     SF_TOKEN_OK);
    assert_true(sf_view_equal(claims, sf_view_str("receipt")));
    /* families do not mix */
    assert_int_equal(verify(ring, SF_TOKEN_PAGE, NOW, &receipt), SF_TOKEN_MALFORMED);
    assert_int_equal(verify(ring, SF_TOKEN_ALLOCATOR_RECEIPT, NOW, &page), SF_TOKEN_MALFORMED);
    sf_buf_fini(&page);
    sf_buf_fini(&receipt);
    sf_keyring_destroy(ring);
}

/* The layout is frozen: stored receipts must verify for years. */
static void test_layout(void **state)
{
    (void)state;
    struct sf_keyring *ring = load("keys:\n  - id: k1\n    secret: \"" SECRET_A "\"\n"
                                   "    state: signing\n");
    struct sf_buf token = {0};
    static const uint8_t head[] = {1, 2, 2, 'k', '1',             /* version, family, key id */
                                   0, 0, 0, 0,   0,   0,   1,  2, /* issued 258 */
                                   0, 0, 0, 0,   0,   0,   0,  0, /* no expiry */
                                   0, 0, 0, 3,   'a', 'b', 'c' /* claims */};
    uint8_t key[32];
    uint8_t mac[SF_SHA256_BYTES];

    sf_token_sign(ring, SF_TOKEN_ALLOCATOR_RECEIPT, 258, 0, sf_view_str("abc"), &token);
    assert_int_equal(token.len, sizeof(head) + 32);
    assert_memory_equal(token.data, head, sizeof(head));
    assert_true(sf_hex_decode(sf_view_str(SECRET_A), key, sizeof(key)));
    sf_hmac_sha256(sf_view_bytes(key, sizeof(key)), sf_view_bytes(head, sizeof(head)), mac);
    assert_memory_equal(token.data + sizeof(head), mac, sizeof(mac));
    sf_buf_fini(&token);
    sf_keyring_destroy(ring);
}

static void test_expiry_is_exact(void **state)
{
    (void)state;
    struct sf_keyring *ring = sf_keyring_new_for_test(2);
    struct sf_buf token = {0};

    sf_token_sign(ring, SF_TOKEN_PAGE, NOW, NOW + 10, sf_view_str("x"), &token);
    assert_int_equal(verify(ring, SF_TOKEN_PAGE, NOW + 9, &token), SF_TOKEN_OK);
    assert_int_equal(verify(ring, SF_TOKEN_PAGE, NOW + 10, &token), SF_TOKEN_EXPIRED);
    sf_buf_fini(&token);
    sf_keyring_destroy(ring);
}

static void test_every_bit_counts(void **state)
{
    (void)state;
    struct sf_keyring *ring = sf_keyring_new_for_test(3);
    struct sf_buf token = {0};

    sf_token_sign(ring, SF_TOKEN_PAGE, NOW, NOW + 10, sf_view_str("claims"), &token);
    for (size_t i = 0; i < token.len * 8; i++) {
        token.data[i / 8] ^= (uint8_t)(1u << (i % 8));
        assert_int_not_equal(verify(ring, SF_TOKEN_PAGE, NOW, &token), SF_TOKEN_OK);
        token.data[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
    size_t len = token.len;
    for (token.len = 0; token.len < len; token.len++)
        assert_int_equal(verify(ring, SF_TOKEN_PAGE, NOW, &token), SF_TOKEN_MALFORMED);
    sf_buf_append(&token, "", 1);
    assert_int_equal(verify(ring, SF_TOKEN_PAGE, NOW, &token), SF_TOKEN_MALFORMED);
    sf_buf_fini(&token);
    sf_keyring_destroy(ring);
}

static void test_other_ring_is_a_bad_signature(void **state)
{
    (void)state;
    struct sf_keyring *one = sf_keyring_new_for_test(4);
    struct sf_keyring *two = sf_keyring_new_for_test(5);
    struct sf_buf token = {0};

    sf_token_sign(one, SF_TOKEN_PAGE, NOW, 0, sf_view_str("x"), &token);
    assert_int_equal(verify(two, SF_TOKEN_PAGE, NOW, &token), SF_TOKEN_SIGNATURE);
    sf_buf_fini(&token);
    sf_keyring_destroy(one);
    sf_keyring_destroy(two);
}

/* A key signs, overlaps, and retires; reload moves the ring from one to the next. */
static void test_rotation(void **state)
{
    (void)state;
    struct sf_buf page = {0};
    struct sf_buf receipt = {0};
    struct sf_keyring *ring =
        load("keys:\n  - {id: k1, secret: \"" SECRET_A "\", state: signing}\n");

    sf_token_sign(ring, SF_TOKEN_PAGE, NOW, NOW + 900000, sf_view_str("p"), &page);
    sf_token_sign(ring, SF_TOKEN_ALLOCATOR_RECEIPT, NOW, 0, sf_view_str("r"), &receipt);

    write_ring("keys:\n  - {id: k2, secret: \"" SECRET_B "\", state: signing}\n"
               "  - {id: k1, secret: \"" SECRET_A "\", state: overlap, "
               "verify_until_unix_ms: 1000500}\n");
    assert_int_equal(sf_keyring_reload(ring, NULL), SF_OK);
    assert_int_equal(verify(ring, SF_TOKEN_PAGE, 1000499, &page), SF_TOKEN_OK);
    assert_int_equal(verify(ring, SF_TOKEN_PAGE, 1000500, &page), SF_TOKEN_UNKNOWN_KEY);
    assert_int_equal(verify(ring, SF_TOKEN_ALLOCATOR_RECEIPT, 1000500, &receipt), SF_TOKEN_OK);

    write_ring("keys:\n  - {id: k2, secret: \"" SECRET_B "\", state: signing}\n"
               "  - {id: k1, secret: \"" SECRET_A "\", state: retired}\n");
    assert_int_equal(sf_keyring_reload(ring, NULL), SF_OK);
    assert_int_equal(verify(ring, SF_TOKEN_PAGE, NOW, &page), SF_TOKEN_UNKNOWN_KEY);
    assert_int_equal(verify(ring, SF_TOKEN_ALLOCATOR_RECEIPT, NOW, &receipt), SF_TOKEN_OK);

    write_ring("keys:\n  - {id: k2, secret: \"" SECRET_B "\", state: signing}\n");
    assert_int_equal(sf_keyring_reload(ring, NULL), SF_OK);
    assert_int_equal(verify(ring, SF_TOKEN_ALLOCATOR_RECEIPT, NOW, &receipt), SF_TOKEN_UNKNOWN_KEY);

    /* a broken file leaves the present ring in force */
    sf_buf_clear(&page);
    sf_token_sign(ring, SF_TOKEN_PAGE, NOW, 0, sf_view_str("p"), &page);
    write_ring("keys: [\n");
    assert_int_equal(sf_keyring_reload(ring, NULL), SF_ERR_CONFIG);
    assert_int_equal(verify(ring, SF_TOKEN_PAGE, NOW, &page), SF_TOKEN_OK);

    sf_buf_fini(&page);
    sf_buf_fini(&receipt);
    sf_keyring_destroy(ring);
}

static void refused(const char *text, const char *part)
{
    struct sf_keyring *ring = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    write_ring(text);
    assert_int_equal(sf_keyring_load(path, &diag, &ring), SF_ERR_CONFIG);
    if (strstr(diag.message, part) == NULL)
        print_error("message: %s\n", diag.message);
    assert_non_null(strstr(diag.message, part));
    assert_null(strstr(diag.message, "0102030405")); /* secrets never */
}

static void test_ring_file_is_checked(void **state)
{
    (void)state;
    refused("# nothing\n", "holds no keys");
    refused("keys: []\n", "ring.yaml");
    refused("keys:\n  - {id: k, secret: \"" SECRET_A "\", state: retired}\n",
            "no key has the state");
    refused("keys:\n  - {id: k, secret: \"" SECRET_A "\", state: signing}\n"
            "  - {id: k, secret: \"" SECRET_A "\", state: retired}\n",
            "is there twice");
    refused("keys:\n  - {id: a, secret: \"" SECRET_A "\", state: signing}\n"
            "  - {id: b, secret: \"" SECRET_A "\", state: signing}\n",
            "are signing keys");
    refused("keys:\n  - {id: \"a b\", secret: \"" SECRET_A "\", state: signing}\n", "may hold");
    refused("keys:\n  - {id: a, secret: \"zz0102030405060708090a0b0c0d0e0f101112131415161718191a1b"
            "1c1d1e1f\", state: signing}\n",
            "hex digits");
    refused("keys:\n  - {id: a, secret: \"00\", state: signing}\n", "ring.yaml:2");
    refused("keys:\n  - {id: a, secret: \"" SECRET_A "\", state: active}\n", "ring.yaml:2");
    refused("keys:\n  - {id: a, secret: \"" SECRET_A
            "\", state: signing, verify_until_unix_ms: 5}\n",
            "belongs to an overlap key");
    refused("keys:\n  - {id: a, secret: \"" SECRET_A
            "\", state: overlap, verify_until_unix_ms: -1}\n",
            "greater than 0");
}

static void test_ring_file_must_be_private(void **state)
{
    (void)state;
    struct sf_keyring *ring = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    write_ring("keys:\n  - {id: k, secret: \"" SECRET_A "\", state: signing}\n");
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(sf_keyring_load(path, &diag, &ring), SF_ERR_CONFIG);
    assert_non_null(strstr(diag.message, "640"));
}

static void test_create_on_first_start(void **state)
{
    (void)state;
    struct sf_keyring *first = NULL;
    struct sf_keyring *second = NULL;
    struct sf_buf token = {0};
    struct stat st;

    (void)unlink(path);
    assert_int_equal(sf_keyring_load(path, NULL, &first), SF_ERR_IO);
    assert_int_equal(sf_keyring_open_or_create(path, NULL, &first), SF_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(sf_keyring_open_or_create(path, NULL, &second), SF_OK);
    sf_token_sign(first, SF_TOKEN_PAGE, NOW, 0, sf_view_str("x"), &token);
    assert_int_equal(verify(second, SF_TOKEN_PAGE, NOW, &token), SF_TOKEN_OK);
    sf_buf_fini(&token);
    sf_keyring_destroy(first);
    sf_keyring_destroy(second);
    assert_int_equal(sf_keyring_open_or_create("/nonexistent/ring.yaml", NULL, &first), SF_ERR_IO);
}

static void test_reason_texts(void **state)
{
    (void)state;
    assert_string_equal(sf_token_reason_text(SF_TOKEN_MALFORMED), "malformed");
    assert_string_equal(sf_token_reason_text(SF_TOKEN_SIGNATURE), "signature");
    assert_string_equal(sf_token_reason_text(SF_TOKEN_UNKNOWN_KEY), "unknown_key");
    assert_string_equal(sf_token_reason_text(SF_TOKEN_EXPIRED), "expired");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sign_and_verify),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_expiry_is_exact),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_other_ring_is_a_bad_signature),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_ring_file_is_checked),
        cmocka_unit_test(test_ring_file_must_be_private),
        cmocka_unit_test(test_create_on_first_start),
        cmocka_unit_test(test_reason_texts),
    };

    return SF_RUN_TESTS_WITH("token", tests, group_setup, group_teardown);
}
