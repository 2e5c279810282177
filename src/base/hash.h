/*
 * Hashes. SHA-256 (OpenSSL) for everything durable or public, xxHash64 for memory only. Key digests
 * are SHA-256 over a domain tag and length-prefixed fields (OP-11, A-18): tag and every field are
 * preceded by their length as 8 bytes big-endian; a u64 field is its 8 bytes big-endian. Golden
 * vectors are frozen in tests.
 */
#ifndef SF_BASE_HASH_H
#define SF_BASE_HASH_H

#include "base/view.h"

#define SF_SHA256_BYTES     32
#define SF_SHA256_HEX_BYTES 65 /* 64 digits and NUL */

/* SHA-256 of `data`. */
void sf_sha256(struct sf_view data, uint8_t out_digest[SF_SHA256_BYTES]);

/* Lower-case hex of SHA-256 of `data`, NUL-terminated. */
void sf_sha256_hex(struct sf_view data, char out_hex[SF_SHA256_HEX_BYTES]);

/* HMAC-SHA256 of `data` under `key`. */
void sf_hmac_sha256(struct sf_view key, struct sf_view data, uint8_t out_mac[SF_SHA256_BYTES]);

/* A running SHA-256: the library's context, which needs no release. */
struct sf_sha256_state {
    uint64_t words[14]; /* SHA256_CTX */
};

/* A key prepared for many HMAC-SHA256 computations: the two padded blocks are hashed once. */
struct sf_hmac_key {
    struct sf_sha256_state inner; /* after the inner block */
    struct sf_sha256_state outer; /* after the outer block */
};

/* Prepares `key`; the bytes are not kept. End with sf_hmac_key_fini. */
void sf_hmac_key_init(struct sf_hmac_key *hk, struct sf_view key);

/* Wipes what the key left behind; may be called twice. */
void sf_hmac_key_fini(struct sf_hmac_key *hk);

/* HMAC-SHA256 of `data`. Any thread; the key is not changed. */
void sf_hmac_key_mac(const struct sf_hmac_key *hk, struct sf_view data,
                     uint8_t out_mac[SF_SHA256_BYTES]);

/* Compares without a data-dependent time; true when equal. */
bool sf_equal_const_time(const void *a, const void *b, size_t len);

/* Lower-case hex of `len` bytes into out_hex (2 * len + 1 bytes, NUL-terminated). */
void sf_hex_encode(const void *bytes, size_t len, char *out_hex);

/* Decodes lower or upper case hex; false unless text.len == 2 * len and all digits are hex. */
bool sf_hex_decode(struct sf_view text, void *out_bytes, size_t len);

/* xxHash64 for tables in memory; never stored. */
uint64_t sf_xxh64(const void *bytes, size_t len, uint64_t seed);

/* Running digest of a domain tag and length-prefixed fields. */
struct sf_keyhash {
    struct sf_sha256_state state; /* of the digest so far */
};

/* Starts a digest under domain tag `tag` (static text such as "sf/alloc/transport/1"). */
void sf_keyhash_init(struct sf_keyhash *kh, const char *tag);

/* Adds a bytes or text field. */
void sf_keyhash_bytes(struct sf_keyhash *kh, struct sf_view field);

/* Adds an unsigned field (8 bytes big-endian, length prefix 8). */
void sf_keyhash_u64(struct sf_keyhash *kh, uint64_t value);

/* Ends the digest; one finish per init. */
void sf_keyhash_finish(struct sf_keyhash *kh, uint8_t out_digest[SF_SHA256_BYTES]);

/* Ends the digest as 64 lower-case hex digits and NUL. */
void sf_keyhash_finish_hex(struct sf_keyhash *kh, char out_hex[SF_SHA256_HEX_BYTES]);

#endif
