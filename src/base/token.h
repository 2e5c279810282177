/*
 * Signed wrapper shared by page tokens and allocator receipts: version, token family, key_id,
 * issued, optional expiry (unix ms), claims (a protobuf message's bytes), HMAC-SHA256 over all of
 * it; checked in constant time. The key ring file holds one signing key, keys in overlap and
 * retired verification keys; it is reloaded on SIGHUP:
 *
 *     keys:
 *       - id: k2                        # 1 to 32 of A-Z a-z 0-9 . _ -
 *         secret: <64 hex digits>
 *         state: signing                # exactly one
 *       - id: k1
 *         secret: <64 hex digits>
 *         state: overlap                # still verifies every token, to the end of its window
 *         verify_until_unix_ms: 1767225600000
 *       - id: k0
 *         secret: <64 hex digits>
 *         state: retired                # verifies tokens without expiry (receipts) only
 *
 * The file must not be readable by group or others. Source: OP-51, A-04, CCS-10.2-15.
 */
#ifndef SF_BASE_TOKEN_H
#define SF_BASE_TOKEN_H

#include "base/buf.h"
#include "base/diag.h"

struct sf_keyring; /* thread safe: readers see one whole ring, old or new */

enum sf_token_family { SF_TOKEN_PAGE = 1, SF_TOKEN_ALLOCATOR_RECEIPT = 2 };

/* Why a token was refused; text form in sf_token_reason_text ("malformed", "signature",
 * "unknown_key", "expired"). */
enum sf_token_reason {
    SF_TOKEN_OK,
    SF_TOKEN_MALFORMED,
    SF_TOKEN_SIGNATURE,
    SF_TOKEN_UNKNOWN_KEY,
    SF_TOKEN_EXPIRED
};

/* Text of a reason, for the detail key of a refusal; static. */
const char *sf_token_reason_text(enum sf_token_reason reason);

/* Loads a ring from a YAML file. Errors: SF_ERR_CONFIG, SF_ERR_IO (in `diag`). */
SF_MUST_USE enum sf_err sf_keyring_load(const char *path, struct sf_diag *diag,
                                        struct sf_keyring **out_ring);

/* Creates the ring file with one fresh key, mode 0600, when it is absent; then loads it. */
SF_MUST_USE enum sf_err sf_keyring_open_or_create(const char *path, struct sf_diag *diag,
                                                  struct sf_keyring **out_ring);

/* A ring with one key made from `seed` (tests, simulator). */
struct sf_keyring *sf_keyring_new_for_test(uint64_t seed);

/* Reads the file again; on error the present ring stays in force. */
SF_MUST_USE enum sf_err sf_keyring_reload(struct sf_keyring *ring, struct sf_diag *diag);

/* Wipes and frees the keys; NULL is fine. */
void sf_keyring_destroy(struct sf_keyring *ring);

/* Appends a signed token. expires_unix_ms 0 = no expiry. */
void sf_token_sign(struct sf_keyring *ring, enum sf_token_family family, int64_t issued_unix_ms,
                   int64_t expires_unix_ms, struct sf_view claims, struct sf_buf *out);

/* The id of the key that a token says it was signed with (nothing is verified), as a view into
 * `token`; false when it is no token. */
bool sf_token_key_id(struct sf_view token, struct sf_view *out_key_id);

/* Verifies; on SF_TOKEN_OK *out_claims points into `token`. Fuzzed. */
SF_MUST_USE enum sf_token_reason sf_token_verify(struct sf_keyring *ring,
                                                 enum sf_token_family family, int64_t now_unix_ms,
                                                 struct sf_view token, struct sf_view *out_claims);

#endif
