/*
 * Signed wrapper. A token is, all numbers big-endian:
 *
 *     version (1) family (1) key id length (1) key id
 *     issued unix ms (8) expires unix ms, 0 = never (8) claims length (4) claims
 *     HMAC-SHA256 over everything before it (32)
 *
 * The ring behind a keyring is replaced whole under a read-write lock, so that a reload is seen
 * entirely or not at all. A key in overlap verifies every token to the end of its window; after it,
 * and when retired, a key verifies only tokens without expiry, which are the receipts that replays
 * hand out for as long as they are kept.
 */
#include "base/token.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/yaml_priv.h"

#define TOKEN_VERSION     1u
#define TOKEN_HEAD_BYTES  3u
#define TOKEN_FIXED_BYTES 20u /* issued, expires, claims length */
#define KEY_ID_MAX        32u
#define KEY_BYTES         32u

enum key_state { KEY_SIGNING, KEY_OVERLAP, KEY_RETIRED };

struct key {
    char id[KEY_ID_MAX + 1];      /* NUL-terminated */
    struct sf_hmac_key hmac;      /* prepared secret */
    enum key_state state;         /* what it may still do */
    int64_t verify_until_unix_ms; /* end of the overlap window, 0 = open */
};

struct ring {
    size_t count;     /* number of keys */
    struct key *keys; /* owned */
    size_t signing;   /* index of the signing key */
};

struct sf_keyring {
    char *path;            /* immutable: file to reload, NULL for a test ring */
    pthread_rwlock_t lock; /* guards ring */
    struct ring *ring;     /* never NULL */
};

/* The file as libcyaml reads it. */
struct key_file_entry {
    char *id;                      /* owned: key_id */
    char *secret;                  /* owned: 64 hex digits */
    enum key_state state;          /* signing, overlap or retired */
    int64_t *verify_until_unix_ms; /* NULL when absent */
};

struct key_file {
    struct key_file_entry *keys; /* owned array */
    unsigned keys_count;         /* entries of keys */
};

static const cyaml_strval_t state_names[] = {
    {"signing", KEY_SIGNING}, {"overlap", KEY_OVERLAP}, {"retired", KEY_RETIRED}};

static const cyaml_schema_field_t entry_fields[] = {
    CYAML_FIELD_STRING_PTR("id", CYAML_FLAG_POINTER, struct key_file_entry, id, 1, KEY_ID_MAX),
    CYAML_FIELD_STRING_PTR("secret", CYAML_FLAG_POINTER, struct key_file_entry, secret,
                           2 * KEY_BYTES, 2 * KEY_BYTES),
    CYAML_FIELD_ENUM("state", CYAML_FLAG_STRICT, struct key_file_entry, state, state_names,
                     SF_ARRAY_LEN(state_names)),
    CYAML_FIELD_INT_PTR("verify_until_unix_ms", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
                        struct key_file_entry, verify_until_unix_ms),
    CYAML_FIELD_END};

static const cyaml_schema_value_t entry_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct key_file_entry, entry_fields)};

static const cyaml_schema_field_t file_fields[] = {
    CYAML_FIELD_SEQUENCE("keys", CYAML_FLAG_POINTER, struct key_file, keys, &entry_schema, 1,
                         SF_LIMIT_KEYRING_KEYS),
    CYAML_FIELD_END};

static const cyaml_schema_value_t file_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct key_file, file_fields)};

const char *sf_token_reason_text(enum sf_token_reason reason)
{
    static const char *const texts[] = {"ok", "malformed", "signature", "unknown_key", "expired"};

    SF_ASSERT((size_t)reason < SF_ARRAY_LEN(texts));
    return texts[reason];
}

static void ring_destroy(struct ring *ring)
{
    if (ring == NULL)
        return;
    for (size_t i = 0; i < ring->count; i++)
        sf_hmac_key_fini(&ring->keys[i].hmac);
    free(ring->keys);
    free(ring);
}

static bool valid_id(const char *id)
{
    return strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
           strlen(id);
}

/* Turns one entry into a key of the ring; entries before it are in place. */
static enum sf_err take_entry(const char *path, const struct key_file_entry *entry,
                              struct ring *ring, struct sf_diag *diag)
{
    struct key *key = &ring->keys[ring->count];
    uint8_t secret[KEY_BYTES];

    if (!valid_id(entry->id))
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "%s: key id '%s' may hold letters, digits, '.', '_' and '-' only", path,
                           entry->id);
    for (size_t i = 0; i < ring->count; i++) {
        if (strcmp(ring->keys[i].id, entry->id) == 0)
            return sf_diag_set(diag, SF_ERR_CONFIG, "%s: key id '%s' is there twice", path,
                               entry->id);
        if (entry->state == KEY_SIGNING && ring->keys[i].state == KEY_SIGNING)
            return sf_diag_set(diag, SF_ERR_CONFIG, "%s: both '%s' and '%s' are signing keys", path,
                               ring->keys[i].id, entry->id);
    }
    if (!sf_hex_decode(sf_view_str(entry->secret), secret, sizeof(secret)))
        return sf_diag_set(diag, SF_ERR_CONFIG, "%s: the secret of key '%s' is not %u hex digits",
                           path, entry->id, 2 * KEY_BYTES);
    if (entry->verify_until_unix_ms != NULL &&
        (entry->state != KEY_OVERLAP || *entry->verify_until_unix_ms <= 0)) {
        OPENSSL_cleanse(secret, sizeof(secret));
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "%s: key '%s': verify_until_unix_ms belongs to an overlap key and is "
                           "greater than 0",
                           path, entry->id);
    }
    memcpy(key->id, entry->id, strlen(entry->id) + 1);
    key->state = entry->state;
    key->verify_until_unix_ms =
        entry->verify_until_unix_ms == NULL ? 0 : *entry->verify_until_unix_ms;
    sf_hmac_key_init(&key->hmac, sf_view_bytes(secret, sizeof(secret)));
    OPENSSL_cleanse(secret, sizeof(secret));
    if (key->state == KEY_SIGNING)
        ring->signing = ring->count;
    ring->count++;
    return SF_OK;
}

static enum sf_err ring_build(const char *path, const struct key_file *file, struct sf_diag *diag,
                              struct ring **out_ring)
{
    struct ring *ring = sf_calloc(1, sizeof(*ring));
    enum sf_err err = SF_OK;

    ring->keys = sf_calloc(file->keys_count, sizeof(*ring->keys));
    ring->signing = SIZE_MAX;
    for (unsigned i = 0; i < file->keys_count && err == SF_OK; i++)
        err = take_entry(path, &file->keys[i], ring, diag);
    if (err == SF_OK && ring->signing == SIZE_MAX)
        err = sf_diag_set(diag, SF_ERR_CONFIG, "%s: no key has the state 'signing'", path);
    if (err != SF_OK) {
        ring_destroy(ring);
        return err;
    }
    *out_ring = ring;
    return SF_OK;
}

static enum sf_err ring_load(const char *path, struct sf_diag *diag, struct ring **out_ring)
{
    struct sf_buf text = {0};
    void *data = NULL;
    enum sf_err err;

    err = sf_file_read(path, SF_LIMIT_KEYRING_FILE_BYTES, true, diag, &text);
    if (err == SF_OK)
        err = sf_yaml_load(path, sf_buf_view(&text), &file_schema, diag, &data);
    if (err == SF_OK && data == NULL)
        err = sf_diag_set(diag, SF_ERR_CONFIG, "%s holds no keys", path);
    if (err == SF_OK)
        err = ring_build(path, data, diag, out_ring);
    if (data != NULL) {
        struct key_file *file = data;
        for (unsigned i = 0; i < file->keys_count; i++)
            OPENSSL_cleanse(file->keys[i].secret, strlen(file->keys[i].secret));
    }
    sf_yaml_free(&file_schema, data);
    if (text.cap > 0)
        OPENSSL_cleanse(text.data, text.cap);
    sf_buf_fini(&text);
    return err;
}

static struct sf_keyring *keyring_new(const char *path, struct ring *ring)
{
    struct sf_keyring *kr = sf_calloc(1, sizeof(*kr));

    kr->path = path == NULL ? NULL : sf_strdup(path);
    SF_ASSERT(pthread_rwlock_init(&kr->lock, NULL) == 0);
    kr->ring = ring;
    return kr;
}

enum sf_err sf_keyring_load(const char *path, struct sf_diag *diag, struct sf_keyring **out_ring)
{
    struct ring *ring = NULL;
    enum sf_err err = ring_load(path, diag, &ring);

    if (err == SF_OK)
        *out_ring = keyring_new(path, ring);
    return err;
}

enum sf_err sf_keyring_open_or_create(const char *path, struct sf_diag *diag,
                                      struct sf_keyring **out_ring)
{
    uint8_t secret[KEY_BYTES];
    uint8_t id[4];
    char secret_hex[2 * KEY_BYTES + 1];
    char id_hex[2 * sizeof(id) + 1];
    struct sf_buf text = {0};

    sf_random_bytes(secret, sizeof(secret));
    sf_random_bytes(id, sizeof(id));
    sf_hex_encode(secret, sizeof(secret), secret_hex);
    sf_hex_encode(id, sizeof(id), id_hex);
    sf_buf_printf(&text, "keys:\n  - id: k-%s\n    secret: \"%s\"\n    state: signing\n", id_hex,
                  secret_hex);
    enum sf_err err = sf_file_create_private(path, sf_buf_view(&text), diag);
    OPENSSL_cleanse(secret, sizeof(secret));
    OPENSSL_cleanse(secret_hex, sizeof(secret_hex));
    OPENSSL_cleanse(text.data, text.cap);
    sf_buf_fini(&text);
    if (err != SF_OK && err != SF_ERR_EXISTS)
        return err;
    if (diag != NULL)
        sf_diag_init(diag);
    return sf_keyring_load(path, diag, out_ring);
}

struct sf_keyring *sf_keyring_new_for_test(uint64_t seed)
{
    struct ring *ring = sf_calloc(1, sizeof(*ring));
    struct sf_rng rng;
    uint64_t secret[KEY_BYTES / sizeof(uint64_t)];

    sf_rng_init(&rng, seed);
    for (size_t i = 0; i < SF_ARRAY_LEN(secret); i++)
        secret[i] = sf_rng_u64(&rng);
    ring->keys = sf_calloc(1, sizeof(*ring->keys));
    ring->count = 1;
    memcpy(ring->keys[0].id, "test", sizeof("test"));
    sf_hmac_key_init(&ring->keys[0].hmac, sf_view_bytes(secret, sizeof(secret)));
    return keyring_new(NULL, ring);
}

enum sf_err sf_keyring_reload(struct sf_keyring *kr, struct sf_diag *diag)
{
    struct ring *fresh = NULL;

    if (kr->path == NULL)
        return sf_diag_set(diag, SF_ERR_CONFIG, "this key ring has no file");
    enum sf_err err = ring_load(kr->path, diag, &fresh);
    if (err != SF_OK)
        return err;
    (void)pthread_rwlock_wrlock(&kr->lock);
    struct ring *old = kr->ring;
    kr->ring = fresh;
    (void)pthread_rwlock_unlock(&kr->lock);
    ring_destroy(old);
    return SF_OK;
}

void sf_keyring_destroy(struct sf_keyring *kr)
{
    if (kr == NULL)
        return;
    ring_destroy(kr->ring);
    (void)pthread_rwlock_destroy(&kr->lock);
    free(kr->path);
    free(kr);
}

static void put_be(uint8_t *out, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
}

static uint64_t get_be(const uint8_t *at, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

void sf_token_sign(struct sf_keyring *kr, enum sf_token_family family, int64_t issued_unix_ms,
                   int64_t expires_unix_ms, struct sf_view claims, struct sf_buf *out)
{
    uint8_t head[TOKEN_HEAD_BYTES + KEY_ID_MAX + TOKEN_FIXED_BYTES];
    uint8_t mac[SF_SHA256_BYTES];
    size_t start = out->len;

    SF_ASSERT(issued_unix_ms >= 0 && expires_unix_ms >= 0 && claims.len <= UINT32_MAX);
    (void)pthread_rwlock_rdlock(&kr->lock);
    const struct key *key = &kr->ring->keys[kr->ring->signing];
    size_t id_len = strlen(key->id);
    head[0] = TOKEN_VERSION;
    head[1] = (uint8_t)family;
    head[2] = (uint8_t)id_len;
    memcpy(head + TOKEN_HEAD_BYTES, key->id, id_len);
    put_be(head + TOKEN_HEAD_BYTES + id_len, (uint64_t)issued_unix_ms, 8);
    put_be(head + TOKEN_HEAD_BYTES + id_len + 8, (uint64_t)expires_unix_ms, 8);
    put_be(head + TOKEN_HEAD_BYTES + id_len + 16, claims.len, 4);
    if (sf_buf_reserve(out,
                       TOKEN_HEAD_BYTES + id_len + TOKEN_FIXED_BYTES + claims.len + sizeof(mac))) {
        sf_buf_append(out, head, TOKEN_HEAD_BYTES + id_len + TOKEN_FIXED_BYTES);
        sf_buf_append(out, claims.ptr, claims.len);
        sf_hmac_key_mac(&key->hmac, sf_view_bytes(out->data + start, out->len - start), mac);
        sf_buf_append(out, mac, sizeof(mac));
    }
    (void)pthread_rwlock_unlock(&kr->lock);
}

/* A token taken apart; views point into it. */
struct parts {
    uint8_t family;          /* enum sf_token_family as it stands */
    struct sf_view key_id;   /* names the key */
    int64_t expires_unix_ms; /* 0 = never */
    struct sf_view claims;   /* the signed message */
    struct sf_view covered;  /* what the code is over */
    const uint8_t *mac;      /* HMAC-SHA256, 32 bytes */
};

static bool take_apart(struct sf_view token, struct parts *out)
{
    const uint8_t *at = token.ptr;

    if (token.len < TOKEN_HEAD_BYTES + 1 + TOKEN_FIXED_BYTES + SF_SHA256_BYTES ||
        at[0] != TOKEN_VERSION || at[2] == 0 || at[2] > KEY_ID_MAX)
        return false;
    size_t id_len = at[2];
    size_t fixed = TOKEN_HEAD_BYTES + id_len + TOKEN_FIXED_BYTES + SF_SHA256_BYTES;
    if (token.len < fixed)
        return false;
    const uint8_t *numbers = at + TOKEN_HEAD_BYTES + id_len;
    uint64_t issued = get_be(numbers, 8);
    uint64_t expires = get_be(numbers + 8, 8);
    if (issued > INT64_MAX || expires > INT64_MAX || get_be(numbers + 16, 4) != token.len - fixed)
        return false;
    out->family = at[1];
    out->key_id = sf_view_bytes(at + TOKEN_HEAD_BYTES, id_len);
    out->expires_unix_ms = (int64_t)expires;
    out->claims = sf_view_bytes(numbers + TOKEN_FIXED_BYTES, token.len - fixed);
    out->covered = sf_view_bytes(at, token.len - SF_SHA256_BYTES);
    out->mac = at + out->covered.len;
    return true;
}

bool sf_token_key_id(struct sf_view token, struct sf_view *out_key_id)
{
    struct parts parts;

    if (!take_apart(token, &parts))
        return false;
    *out_key_id = parts.key_id;
    return true;
}

/* The key that may verify the token now, or NULL. */
static const struct key *find_key(const struct ring *ring, const struct parts *parts,
                                  int64_t now_unix_ms)
{
    for (size_t i = 0; i < ring->count; i++) {
        const struct key *key = &ring->keys[i];
        if (!sf_view_equal(sf_view_str(key->id), parts->key_id))
            continue;
        bool closed = key->state == KEY_RETIRED ||
                      (key->state == KEY_OVERLAP && key->verify_until_unix_ms != 0 &&
                       now_unix_ms >= key->verify_until_unix_ms);
        return closed && parts->expires_unix_ms != 0 ? NULL : key;
    }
    return NULL;
}

enum sf_token_reason sf_token_verify(struct sf_keyring *kr, enum sf_token_family family,
                                     int64_t now_unix_ms, struct sf_view token,
                                     struct sf_view *out_claims)
{
    struct parts parts;
    uint8_t mac[SF_SHA256_BYTES];
    bool known = false;
    bool genuine = false;

    if (!take_apart(token, &parts) || parts.family != (uint8_t)family)
        return SF_TOKEN_MALFORMED;
    (void)pthread_rwlock_rdlock(&kr->lock);
    const struct key *key = find_key(kr->ring, &parts, now_unix_ms);
    if (key != NULL) {
        known = true;
        sf_hmac_key_mac(&key->hmac, parts.covered, mac);
        genuine = sf_equal_const_time(mac, parts.mac, sizeof(mac));
    }
    (void)pthread_rwlock_unlock(&kr->lock);
    if (!known)
        return SF_TOKEN_UNKNOWN_KEY;
    if (!genuine)
        return SF_TOKEN_SIGNATURE;
    if (parts.expires_unix_ms != 0 && now_unix_ms >= parts.expires_unix_ms)
        return SF_TOKEN_EXPIRED;
    *out_claims = parts.claims;
    return SF_TOKEN_OK;
}
