/*
 * Errors on the wire: a struct sf_diag becomes one searchfabric.v1.ErrorStatus (typed context
 * branch plus compatibility diagnostics map) inside a google.rpc.Status, and back.
 *
 * The context branch follows from the detail keys that a diag carries (docs/specs/core/
 * error-codes.md lists them) and, where several services use the same key, from its area.
 */
#ifndef SF_CONTRACT_ERROR_STATUS_H
#define SF_CONTRACT_ERROR_STATUS_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"
#include "searchfabric/v1/search_fabric.pb-c.h"

/* Builds the ErrorStatus of `diag` in `arena`; texts are copied. diag->err must not be SF_OK; an
 * internal code becomes its public one. Returns NULL on arena overflow. Any thread. Source:
 * contract/ccs.md OP-02, allocator.md A-28. */
Searchfabric__V1__ErrorStatus *sf_error_status_build(const struct sf_diag *diag,
                                                     struct sf_arena *arena);

/* Appends the serialized google.rpc.Status of `diag`: gRPC code, message and exactly one
 * ErrorStatus detail. These are the bytes of grpc-status-details-bin before base64. diag->err must
 * not be SF_OK. Any thread. */
void sf_error_status_encode(const struct sf_diag *diag, struct sf_buf *out);

/* Reads an ErrorStatus into `diag` (code, message, area, diagnostics). Returns diag->err: the error
 * that the peer reported, SF_INTERNAL for a code this build does not know. Any thread. */
enum sf_err sf_error_status_read(const Searchfabric__V1__ErrorStatus *status, struct sf_diag *diag);

/* Client side: what a peer's trailers say. `grpc_status` is the grpc-status value, `message` the
 * decoded grpc-message (may be empty), `details` the decoded grpc-status-details-bin (may be empty
 * or garbage: then code and message decide alone). Fills `diag` and returns diag->err, which is
 * SF_OK exactly for grpc_status 0. Any thread. */
enum sf_err sf_error_status_decode(int grpc_status, struct sf_view message, struct sf_view details,
                                   struct sf_diag *diag);

/* The public error that a bare gRPC status stands for. Any thread. */
enum sf_err sf_error_from_grpc(int grpc_status);

/* First required detail key of diag's (public) code that `diag` lacks, or NULL when it has all of
 * them: what tests check of every error path. `out_key` receives the name. Any thread. */
bool sf_error_status_lacks_key(const struct sf_diag *diag, char out_key[SF_DIAG_KEY_BYTES]);

#endif
