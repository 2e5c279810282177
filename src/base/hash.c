/*
 * Hashes over OpenSSL's libcrypto and xxHash. SHA-256 goes through the library's plain functions:
 * keys are short, and there the EVP layer (a context on the heap, its parameters, a dispatch for
 * each field) costs several times the hashing. A key digest is SHA-256(len64(tag) tag len64(f1) f1
 * ...) with every length as 8 bytes big-endian, so that no two field lists share an encoding.
 */
#define OPENSSL_SUPPRESS_DEPRECATED /* the plain functions; EVP is what is recommended instead */
#include "base/hash.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <xxhash.h>

#define HMAC_BLOCK_BYTES 64u

static_assert(sizeof(SHA256_CTX) == sizeof(struct sf_sha256_state), "the library's context");
static_assert(_Alignof(SHA256_CTX) <= _Alignof(struct sf_sha256_state), "its alignment");

static SHA256_CTX *ctx_of(struct sf_sha256_state *state)
{
    return (SHA256_CTX *)state;
}

static void digest_start(struct sf_sha256_state *state)
{
    SF_ASSERT(SHA256_Init(ctx_of(state)) == 1);
}

static void digest_add(struct sf_sha256_state *state, const void *bytes, size_t len)
{
    if (len > 0)
        SF_ASSERT(SHA256_Update(ctx_of(state), bytes, len) == 1);
}

static void digest_end(struct sf_sha256_state *state, uint8_t out_digest[SF_SHA256_BYTES])
{
    SF_ASSERT(SHA256_Final(out_digest, ctx_of(state)) == 1);
}

void sf_sha256(struct sf_view data, uint8_t out_digest[SF_SHA256_BYTES])
{
    struct sf_sha256_state state;

    digest_start(&state);
    digest_add(&state, data.ptr, data.len);
    digest_end(&state, out_digest);
}

void sf_sha256_hex(struct sf_view data, char out_hex[SF_SHA256_HEX_BYTES])
{
    uint8_t digest[SF_SHA256_BYTES];

    sf_sha256(data, digest);
    sf_hex_encode(digest, sizeof(digest), out_hex);
}

/* HMAC is written out over the digest (RFC 2104): a prepared key saves half of the hashing. */
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
    digest_start(&hk->inner);
    digest_add(&hk->inner, pad, sizeof(pad));
    for (size_t i = 0; i < sizeof(pad); i++)
        pad[i] = block[i] ^ 0x5cu;
    digest_start(&hk->outer);
    digest_add(&hk->outer, pad, sizeof(pad));

    OPENSSL_cleanse(block, sizeof(block));
    OPENSSL_cleanse(pad, sizeof(pad));
}

void sf_hmac_key_fini(struct sf_hmac_key *hk)
{
    OPENSSL_cleanse(hk, sizeof(*hk));
}

void sf_hmac_key_mac(const struct sf_hmac_key *hk, struct sf_view data,
                     uint8_t out_mac[SF_SHA256_BYTES])
{
    uint8_t inner[SF_SHA256_BYTES];
    struct sf_sha256_state state = hk->inner;

    digest_add(&state, data.ptr, data.len);
    digest_end(&state, inner);
    state = hk->outer;
    digest_add(&state, inner, sizeof(inner));
    digest_end(&state, out_mac);
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
    digest_add(&kh->state, be, sizeof(be));
}

void sf_keyhash_init(struct sf_keyhash *kh, const char *tag)
{
    digest_start(&kh->state);
    sf_keyhash_bytes(kh, sf_view_str(tag));
}

void sf_keyhash_bytes(struct sf_keyhash *kh, struct sf_view field)
{
    keyhash_length(kh, field.len);
    digest_add(&kh->state, field.ptr, field.len);
}

void sf_keyhash_u64(struct sf_keyhash *kh, uint64_t value)
{
    keyhash_length(kh, 8);
    keyhash_length(kh, value);
}

void sf_keyhash_finish(struct sf_keyhash *kh, uint8_t out_digest[SF_SHA256_BYTES])
{
    digest_end(&kh->state, out_digest);
}

void sf_keyhash_finish_hex(struct sf_keyhash *kh, char out_hex[SF_SHA256_HEX_BYTES])
{
    uint8_t digest[SF_SHA256_BYTES];

    sf_keyhash_finish(kh, digest);
    sf_hex_encode(digest, sizeof(digest), out_hex);
}
