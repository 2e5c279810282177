/*
 * Base64 (RFC 4648). Decoding is strict: no white space, no digits of another alphabet, and bits
 * that stand for nothing must be zero, so that no two texts mean the same bytes except by padding.
 */
#ifndef SF_BASE_BASE64_H
#define SF_BASE_BASE64_H

#include "base/buf.h"

/* Appends base64 with '+' and '/', without padding. */
void sf_base64_encode(struct sf_view bytes, struct sf_buf *out);

/* Appends base64 with '-' and '_', without padding. */
void sf_base64_url_encode(struct sf_view bytes, struct sf_buf *out);

/* Appends the bytes of text as sf_base64_encode writes it, with or without padding; false (and
 * `out` as before) when malformed. */
bool sf_base64_decode(struct sf_view text, struct sf_buf *out);

/* Appends the bytes of exactly what sf_base64_url_encode writes; false (and `out` as before) for
 * anything else, padding included. */
bool sf_base64_url_decode(struct sf_view text, struct sf_buf *out);

/* Room that the bytes of `text_len` digits need. */
static inline size_t sf_base64_room(size_t text_len)
{
    return text_len / 4 * 3 + 3;
}

/* Decodes digits of both alphabets, padded or not (proto3 JSON takes them all), into `out_bytes`
 * with sf_base64_room(text.len) bytes; false when malformed. */
bool sf_base64_decode_any(struct sf_view text, uint8_t *out_bytes, size_t *out_len);

#endif
