/*
 * Canonical proto3 JSON for any message, driven by descriptors (decision "Contract first"). Output:
 * proto field names, 64-bit numbers as strings, bytes as base64, enums by name, fields in
 * field-number order, map entries sorted by key, absent and default-valued fields without presence
 * left out, no insignificant space: equal messages give equal bytes. Input: both field name forms,
 * unknown members kept as raw slices and written back after the known ones, sorted by name, so that
 * a rewrite by an older binary loses nothing. Side tables (map flag, json_name) come from the
 * FileDescriptorSet registered at start.
 */
#ifndef SF_BASE_PBJSON_H
#define SF_BASE_PBJSON_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"

/* Registers a serialized google.protobuf.FileDescriptorSet that covers every message to be coded.
 * Called once at start before threads; a second call with the same bytes is a no-op. The bytes must
 * stay valid. */
SF_MUST_USE enum sf_err sf_pbjson_register(struct sf_view descriptor_set);

/* Appends the canonical JSON of `message`. Unknown members kept by sf_pbjson_decode are included.
 */
void sf_pbjson_encode(const ProtobufCMessage *message, struct sf_buf *out);

/* Appends indented JSON for people (two spaces), otherwise the same. */
void sf_pbjson_encode_pretty(const ProtobufCMessage *message, struct sf_buf *out);

/* Decodes JSON to a message in `arena`. Unknown members are kept in the message's unknown fields
 * under a private field number. Errors: SF_ERR_PARSE (bad JSON, wrong type, number out of range;
 * path in detail "field"), SF_ERR_LIMIT (depth, arena). Numbers above 2^53 or with an exponent are
 * refused for 64-bit fields unless they are strings. Fuzzed. */
SF_MUST_USE enum sf_err sf_pbjson_decode(const ProtobufCMessageDescriptor *desc,
                                         struct sf_view json, struct sf_arena *arena,
                                         struct sf_diag *diag, ProtobufCMessage **out_message);

#endif
