/* Rows: 'o' + object key -> layout version, flags, sequence (8 bytes big-endian), body. */
#include "object/embedded_priv.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/log.h"

#define ROW_LAYOUT  1u
#define ETAG_DIGITS 16u

static_assert(SF_EMBEDDED_ROW_BYTES == 1 + 1 + sizeof(uint64_t), "row layout");

void sf_embedded_u64_put(uint8_t *out, uint64_t value)
{
    for (int i = 7; i >= 0; i--) {
        out[i] = (uint8_t)value;
        value >>= 8;
    }
}

uint64_t sf_embedded_u64_get(const uint8_t *in)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value = value << 8 | in[i];
    return value;
}

void sf_embedded_etag_format(uint64_t sequence, struct sf_etag *out)
{
    uint8_t bytes[8];

    sf_embedded_u64_put(bytes, sequence);
    sf_hex_encode(bytes, sizeof(bytes), out->text);
}

bool sf_embedded_etag_parse(const struct sf_etag *etag, uint64_t *out_sequence)
{
    uint8_t bytes[8];
    char again[2 * sizeof(bytes) + 1];

    if (!sf_hex_decode(sf_view_bytes(etag->text, ETAG_DIGITS), bytes, sizeof(bytes)))
        return false;
    sf_hex_encode(bytes, sizeof(bytes), again);
    *out_sequence = sf_embedded_u64_get(bytes);
    return strcmp(again, etag->text) == 0;
}

size_t sf_embedded_row_key(struct sf_view key, char *out)
{
    size_t len = key.len <= SF_LIMIT_OBJECT_KEY_BYTES ? key.len : SF_LIMIT_OBJECT_KEY_BYTES;

    out[0] = 'o';
    if (len > 0)
        memcpy(out + 1, key.ptr, len);
    return len + 1;
}

void sf_embedded_row_header(uint64_t sequence, uint8_t out[SF_EMBEDDED_ROW_BYTES])
{
    out[0] = ROW_LAYOUT;
    out[1] = 0;
    sf_embedded_u64_put(out + 2, sequence);
}

enum sf_err sf_embedded_row_parse(const char *row, size_t len, uint64_t *out_sequence,
                                  struct sf_view *out_body)
{
    const uint8_t *bytes = (const uint8_t *)row;

    if (len < SF_EMBEDDED_ROW_BYTES || bytes[0] != ROW_LAYOUT || bytes[1] != 0)
        return SF_ERR_CORRUPT;
    *out_sequence = sf_embedded_u64_get(bytes + 2);
    *out_body = sf_view_bytes(bytes + SF_EMBEDDED_ROW_BYTES, len - SF_EMBEDDED_ROW_BYTES);
    return SF_OK;
}

void sf_embedded_log_failure(const char *operation, char *message)
{
    SF_LOG(ERROR, "object_store_failed", SF_KV_STR("operation", operation),
           SF_KV_STR("error", message));
    rocksdb_free(message);
}

enum sf_err sf_embedded_log_corrupt(struct sf_view key)
{
    SF_LOG(ERROR, "object_row_corrupt", SF_KV_VIEW("key", key));
    return SF_ERR_UNAVAILABLE;
}
