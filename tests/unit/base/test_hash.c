/* Hashes against published vectors, and the frozen encoding of key digests. */
#include "base/hash.h"

#include "support/proves.h"

static void test_sha256(void **state)
{
    (void)state;
    char hex[SF_SHA256_HEX_BYTES];

    /* FIPS 180-4 examples */
    sf_sha256_hex(sf_view_str("abc"), hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sf_sha256_hex(sf_view_bytes(NULL, 0), hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void test_hmac(void **state)
{
    (void)state;
    uint8_t mac[SF_SHA256_BYTES];
    uint8_t key[131];
    char hex[SF_SHA256_HEX_BYTES];

    /* RFC 4231, test cases 2 and 6 (a key longer than a block) */
    sf_hmac_sha256(sf_view_str("Jefe"), sf_view_str("what do ya want for nothing?"), mac);
    sf_hex_encode(mac, sizeof(mac), hex);
    assert_string_equal(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof(key));
    struct sf_hmac_key hk;
    sf_hmac_key_init(&hk, sf_view_bytes(key, sizeof(key)));
    for (unsigned i = 0; i < 2; i++) {
        sf_hmac_key_mac(&hk, sf_view_str("Test Using Larger Than Block-Size Key - Hash Key First"),
                        mac);
        sf_hex_encode(mac, sizeof(mac), hex);
        assert_string_equal(hex,
                            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }
    sf_hmac_key_fini(&hk);
    sf_hmac_key_fini(&hk);
}

/* SHA-256(len64 tag, len64 f1, ...), worked out by another implementation of SHA-256. */
static void test_keyhash_is_frozen(void **state)
{
    (void)state;
    struct sf_keyhash kh;
    char hex[SF_SHA256_HEX_BYTES];
    uint8_t digest[SF_SHA256_BYTES];

    sf_keyhash_init(&kh, "sf/test/1");
    sf_keyhash_bytes(&kh, sf_view_str("ab"));
    sf_keyhash_bytes(&kh, sf_view_str(""));
    sf_keyhash_u64(&kh, 258);
    sf_keyhash_finish_hex(&kh, hex);
    assert_string_equal(hex, "48ef46b3c543a80e9e58d76a3fd1873c649ab0c77c95740dbb33b185ae0bbf3b");
    sf_keyhash_init(&kh, "sf/test/1");
    sf_keyhash_finish(&kh, digest);
    sf_hex_encode(digest, sizeof(digest), hex);
    assert_string_equal(hex, "8540fd7f7e091e7ec221cb1869b79154b33ecb9607af0707c25fc2e99e4ccd2c");
}

static void test_keyhash_fields_do_not_run_together(void **state)
{
    (void)state;
    struct sf_keyhash a;
    struct sf_keyhash b;
    char one[SF_SHA256_HEX_BYTES];
    char two[SF_SHA256_HEX_BYTES];

    sf_keyhash_init(&a, "t");
    sf_keyhash_bytes(&a, sf_view_str("ab"));
    sf_keyhash_bytes(&a, sf_view_str("c"));
    sf_keyhash_finish_hex(&a, one);
    sf_keyhash_init(&b, "t");
    sf_keyhash_bytes(&b, sf_view_str("a"));
    sf_keyhash_bytes(&b, sf_view_str("bc"));
    sf_keyhash_finish_hex(&b, two);
    assert_string_not_equal(one, two);
}

static void test_hex(void **state)
{
    (void)state;
    uint8_t bytes[3];
    char hex[7];

    assert_true(sf_hex_decode(sf_view_str("00aBfF"), bytes, 3));
    assert_memory_equal(bytes, "\x00\xab\xff", 3);
    sf_hex_encode(bytes, 3, hex);
    assert_string_equal(hex, "00abff");
    assert_false(sf_hex_decode(sf_view_str("00abf"), bytes, 3));
    assert_false(sf_hex_decode(sf_view_str("00abfff"), bytes, 3));
    assert_false(sf_hex_decode(sf_view_str("00abfg"), bytes, 3));
    assert_false(sf_hex_decode(sf_view_str("00ab@`"), bytes, 3));
    assert_true(sf_hex_decode(sf_view_bytes(NULL, 0), bytes, 0));
}

static void test_compare(void **state)
{
    (void)state;
    assert_true(sf_equal_const_time("abc", "abc", 3));
    assert_false(sf_equal_const_time("abc", "abd", 3));
    /* the xxHash64 of no bytes under seed 0, from its specification */
    assert_true(sf_xxh64("", 0, 0) == 0xef46db3751d8e999u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_hmac),
        cmocka_unit_test(test_keyhash_is_frozen),
        cmocka_unit_test(test_keyhash_fields_do_not_run_together),
        cmocka_unit_test(test_hex),
        cmocka_unit_test(test_compare),
    };

    return SF_RUN_TESTS("hash", tests);
}
