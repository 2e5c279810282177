/*
 * gRPC's texts in HTTP/2 headers: timeouts, percent-encoded messages, binary metadata (base64).
 * Pure functions. Source: gRPC over HTTP2 (PROTOCOL-HTTP2.md).
 */
#ifndef SF_RPC_WIRE_H
#define SF_RPC_WIRE_H

#include "base/base64.h"
#include "base/buf.h"

#define SF_GRPC_TIMEOUT_MAX_DIGITS 8

/* Parses a grpc-timeout value ("250m") to milliseconds, rounded up; far ones are cut to about 68
 * years. False when malformed. */
bool sf_grpc_timeout_parse(struct sf_view text, int64_t *out_ms);

/* Writes the shortest grpc-timeout of at least `ms` (> 0) milliseconds, NUL-terminated. */
void sf_grpc_timeout_format(int64_t ms, char out_text[SF_GRPC_TIMEOUT_MAX_DIGITS + 2]);

/* Appends `text` with every byte outside 0x20..0x7e and '%' as %XX. */
void sf_grpc_message_encode(struct sf_view text, struct sf_buf *out);

/* Appends the decoded form; a malformed escape stays as it is. */
void sf_grpc_message_decode(struct sf_view text, struct sf_buf *out);

/* True for a content-type of gRPC: "application/grpc", alone or followed by '+', ';' or a space. */
bool sf_grpc_content_type(struct sf_view text);

#endif
