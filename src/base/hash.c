/*
 * Hashes over OpenSSL's libcrypto and xxHash. The digest implementation is fetched once: fetching
 * it per call costs more than hashing a short key. A key digest is
 * SHA-256(len64(tag) tag len64(f1) f1 ...) with every length as 8 bytes big-endian, so that no two
 * field lists share an encoding.
 */
#include "base/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <xxhash.h>

#define HMAC_BLOCK_BYTES 64u

static pthread_once_t sha256_once = PTHREAD_ONCE_INIT;
static EVP_MD *sha256_md; /* fetched once, lives as long as the process */

static void release_sha256(void)
{
    EVP_MD_free(sha256_md);
    sha256_md = NULL;
}

static void fetch_sha256(void)
{
    sha256_md = EVP_MD_fetch(NULL, "SHA256", NULL);
    SF_ASSERT(sha256_md != NULL);
    (void)OPENSSL_atexit(release_sha256);
}

static EVP_MD_CTX *digest_start(void)
{
    (void)pthread_once(&sha256_once, fetch_sha256);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    SF_ASSERT(ctx != NULL);
    SF_ASSERT(EVP_DigestInit_ex2(ctx, sha256_md, NULL) == 1);
    return ctx;
}

static void digest_add(EVP_MD_CTX *ctx, const void *bytes, size_t len)
{
    if (len > 0)
        SF_ASSERT(EVP_DigestUpdate(ctx, bytes, len) == 1);
}

static void digest_end(EVP_MD_CTX *ctx, uint8_t out_digest[SF_SHA256_BYTES])
{
    unsigned len = 0;

    SF_ASSERT(EVP_DigestFinal_ex(ctx, out_digest, &len) == 1);
    SF_ASSERT(len == SF_SHA256_BYTES);
    EVP_MD_CTX_free(ctx);
}

void sf_sha256(struct sf_view data, uint8_t out_digest[SF_SHA256_BYTES])
{
    EVP_MD_CTX *ctx = digest_start();

    digest_add(ctx, data.ptr, data.len);
    digest_end(ctx, out_digest);
}

void sf_sha256_hex(struct sf_view data, char out_hex[SF_SHA256_HEX_BYTES])
{
    uint8_t digest[SF_SHA256_BYTES];

    sf_sha256(data, digest);
    sf_hex_encode(digest, sizeof(digest), out_hex);
}

/* HMAC is written out over the digest (RFC 2104): the library's one-shot function fetches its MAC
 * at each call, and a prepared key saves half of the hashing besides. */
void sf_hmac_key_init(struct sf_hmac_key *hk, struct sf_view key)
{
    uint8_t block[HMAC_BLOCK_BYTES] = {0};
    uint8_t pad[HMAC_BLOCK_BYTES];

    if (key.len > sizeof(block))
        sf_sha256(key, block);
    else if (key.len > 0)
        memcpy(block, key.ptr, key.len);

    for (size_t i = 0; i < sizeof(pad); i++)
        pad[i] = block[i] ^ 0x36u;
    hk->inner = digest_start();
    digest_add(hk->inner, pad, sizeof(pad));
    for (size_t i = 0; i < sizeof(pad); i++)
        pad[i] = block[i] ^ 0x5cu;
    hk->outer = digest_start();
    digest_add(hk->outer, pad, sizeof(pad));

    OPENSSL_cleanse(block, sizeof(block));
    OPENSSL_cleanse(pad, sizeof(pad));
}

void sf_hmac_key_fini(struct sf_hmac_key *hk)
{
    EVP_MD_CTX_free(hk->inner);
    EVP_MD_CTX_free(hk->outer);
    hk->inner = NULL;
    hk->outer = NULL;
}

void sf_hmac_key_mac(const struct sf_hmac_key *hk, struct sf_view data,
                     uint8_t out_mac[SF_SHA256_BYTES])
{
    uint8_t inner[SF_SHA256_BYTES];
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    SF_ASSERT(ctx != NULL && EVP_MD_CTX_copy_ex(ctx, hk->inner) == 1);
    digest_add(ctx, data.ptr, data.len);
    digest_end(ctx, inner);
    ctx = EVP_MD_CTX_new();
    SF_ASSERT(ctx != NULL && EVP_MD_CTX_copy_ex(ctx, hk->outer) == 1);
    digest_add(ctx, inner, sizeof(inner));
    digest_end(ctx, out_mac);
}

void sf_hmac_sha256(struct sf_view key, struct sf_view data, uint8_t out_mac[SF_SHA256_BYTES])
{
    struct sf_hmac_key hk;

    sf_hmac_key_init(&hk, key);
    sf_hmac_key_mac(&hk, data, out_mac);
    sf_hmac_key_fini(&hk);
}

bool sf_equal_const_time(const void *a, const void *b, size_t len)
{
    return CRYPTO_memcmp(a, b, len) == 0;
}

void sf_hex_encode(const void *bytes, size_t len, char *out_hex)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *in = bytes;

    for (size_t i = 0; i < len; i++) {
        out_hex[2 * i] = digits[in[i] >> 4];
        out_hex[2 * i + 1] = digits[in[i] & 15u];
    }
    out_hex[2 * len] = '\0';
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20u;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool sf_hex_decode(struct sf_view text, void *out_bytes, size_t len)
{
    uint8_t *out = out_bytes;

    if (text.len / 2 != len || text.len % 2 != 0)
        return false;
    for (size_t i = 0; i < len; i++) {
        int high = hex_digit(text.ptr[2 * i]);
        int low = hex_digit(text.ptr[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

uint64_t sf_xxh64(const void *bytes, size_t len, uint64_t seed)
{
    return XXH64(bytes, len, seed);
}

static void keyhash_length(struct sf_keyhash *kh, uint64_t value)
{
    uint8_t be[8];

    for (unsigned i = 0; i < 8; i++)
        be[i] = (uint8_t)(value >> (56 - 8 * i));
    digest_add(kh->ctx, be, sizeof(be));
}

void sf_keyhash_init(struct sf_keyhash *kh, const char *tag)
{
    kh->ctx = digest_start();
    sf_keyhash_bytes(kh, sf_view_str(tag));
}

void sf_keyhash_bytes(struct sf_keyhash *kh, struct sf_view field)
{
    SF_ASSERT(kh->ctx != NULL);
    keyhash_length(kh, field.len);
    digest_add(kh->ctx, field.ptr, field.len);
}

void sf_keyhash_u64(struct sf_keyhash *kh, uint64_t value)
{
    SF_ASSERT(kh->ctx != NULL);
    keyhash_length(kh, 8);
    keyhash_length(kh, value);
}

void sf_keyhash_finish(struct sf_keyhash *kh, uint8_t out_digest[SF_SHA256_BYTES])
{
    SF_ASSERT(kh->ctx != NULL);
    digest_end(kh->ctx, out_digest);
    kh->ctx = NULL;
}

void sf_keyhash_finish_hex(struct sf_keyhash *kh, char out_hex[SF_SHA256_HEX_BYTES])
{
    uint8_t digest[SF_SHA256_BYTES];

    sf_keyhash_finish(kh, digest);
    sf_hex_encode(digest, sizeof(digest), out_hex);
}
