/*
 * Protobuf at the door. protobuf-c's unpack trusts its input, so raw bytes are scanned against the
 * descriptor first (wire form, UTF-8, NUL in strings, depth, element and memory budget) and
 * unpacked into an arena only then.
 */
#ifndef SF_BASE_PB_H
#define SF_BASE_PB_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"

/* Detail "violation" of SF_ERR_PARSE when the wire form is good and a string is no text. */
#define SF_PB_VIOLATION_UTF8 "invalid_utf8"
#define SF_PB_VIOLATION_NUL  "control_character"

/* Checks `bytes` as a message of type `desc`. Unknown fields are walked, bounded and allowed.
 * Errors: SF_ERR_PARSE (malformed wire form, invalid UTF-8 or NUL in a string; the field path is in
 * `diag` detail "field"), SF_ERR_LIMIT (depth, elements or memory above the limits of limits.h). No
 * allocation. Any thread. Fuzzed. */
SF_MUST_USE enum sf_err sf_pb_scan(const ProtobufCMessageDescriptor *desc, struct sf_view bytes,
                                   size_t memory_budget, struct sf_diag *diag);

/* Scans, then unpacks into `arena` (also the memory budget). Errors as sf_pb_scan. The message
 * lives as long as the arena and is never freed on its own. */
SF_MUST_USE enum sf_err sf_pb_unpack(const ProtobufCMessageDescriptor *desc, struct sf_view bytes,
                                     struct sf_arena *arena, struct sf_diag *diag,
                                     ProtobufCMessage **out_message);

/* Appends the packed message to `out` (deterministic: fields in number order as protobuf-c packs
 * them). */
void sf_pb_pack(const ProtobufCMessage *message, struct sf_buf *out);

/* Deep copy of a message into `arena` (pack and unpack); NULL on arena overflow. */
ProtobufCMessage *sf_pb_dup(const ProtobufCMessage *message, struct sf_arena *arena);

#endif
