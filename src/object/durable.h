/*
 * Durable control objects: a protobuf message as canonical JSON with its own SHA-256 and
 * attempt_id, checked on every read. Every message of durable.proto has the fields `format_version`
 * (uint32), `attempt_id` (string) and `sha256` (string: lower-case hex over the canonical JSON of
 * the message with `sha256` empty).
 */
#ifndef SF_OBJECT_DURABLE_H
#define SF_OBJECT_DURABLE_H

#include "base/pbjson.h"
#include "object/store.h"

/* Fresh attempt id, never used before by any process: `{process}-{counter}`; process is random per
 * start. Written to out_id (SF_ATTEMPT_ID_BYTES with NUL). Under the simulator it comes from the
 * seed. */
#define SF_ATTEMPT_ID_BYTES 48
struct sf_attempts {
    char process[24];         /* hex of 8 random bytes, NUL-terminated; immutable */
    _Atomic uint64_t counter; /* ids given out */
};
void sf_attempts_init(struct sf_attempts *attempts, uint64_t process_random);
void sf_attempts_next(struct sf_attempts *attempts, char out_id[SF_ATTEMPT_ID_BYTES]);

/* Encodes `message` (its sha256 field is computed, the message itself is not changed) and appends
 * the object's bytes; out_sha256_hex (65 bytes, may be NULL) gets the digest of the whole body as
 * stored, as outcomes name it. */
void sf_durable_encode(const ProtobufCMessage *message, struct sf_buf *out, char *out_sha256_hex);

/* Decodes and verifies an object's bytes. Errors: SF_ERR_CORRUPT (checksum, JSON, too new a
 * format). */
SF_MUST_USE enum sf_err sf_durable_decode(const ProtobufCMessageDescriptor *desc,
                                          struct sf_view body, struct sf_arena *arena,
                                          struct sf_diag *diag, ProtobufCMessage **out_message);

/* Reads, verifies and decodes one object. SF_ERR_NOT_FOUND, SF_ERR_UNAVAILABLE, SF_ERR_CORRUPT.
 * out_etag may be NULL. */
SF_MUST_USE enum sf_err sf_durable_read_wait(struct sf_store *store, struct sf_sched *sched,
                                             struct sf_view key,
                                             const ProtobufCMessageDescriptor *desc,
                                             struct sf_arena *arena, struct sf_diag *diag,
                                             ProtobufCMessage **out_message,
                                             struct sf_etag *out_etag);

#endif
