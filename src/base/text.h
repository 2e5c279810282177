/* Rules for text that callers give: UTF-8, scalar counts, names (CCS note 3.1, OP-05, OP-54),
 * object key parts. */
#ifndef SF_BASE_TEXT_H
#define SF_BASE_TEXT_H

#include "base/buf.h"
#include "base/diag.h"

/* True for well-formed UTF-8 (no surrogates, no overlong forms, at most U+10FFFF). */
bool sf_utf8_valid(struct sf_view text);

/* Length (1 to 4) of the well-formed UTF-8 sequence at `at`, 0 when there is none in `len` bytes.
 */
size_t sf_utf8_scalar_length(const uint8_t *at, size_t len);

/* Number of Unicode scalars of valid UTF-8. */
size_t sf_utf8_scalars(struct sf_view text);

/* Checks a catalog name or, with `allow_empty`, a name prefix: valid UTF-8, NFC, at most
 * SF_LIMIT_NAME_SCALARS scalars, no Cc, Bidi_Control, Default_Ignorable_Code_Point or noncharacter.
 * Error: SF_BAD_REQUEST with details field and violation. */
SF_MUST_USE enum sf_err sf_name_check(const char *field, struct sf_view name, bool allow_empty,
                                      struct sf_diag *diag);

/* Checks an identity string: valid UTF-8 of min..max scalars. Error: SF_BAD_REQUEST with field and
 * violation. */
SF_MUST_USE enum sf_err sf_identity_check(const char *field, struct sf_view text,
                                          size_t min_scalars, size_t max_scalars,
                                          struct sf_diag *diag);

/* Appends one object key component: percent-encodes only '%', '/', '\' and a component that is "."
 * or ".." (protocols.md section 1, Keys). */
void sf_key_append_component(struct sf_buf *out, struct sf_view component);

/* Parses a canonical decimal uint64: digits only, no sign, no leading zero but "0" itself. */
bool sf_parse_u64(struct sf_view text, uint64_t *out_value);

/* Least text greater than every text that starts with `prefix` (OP-52), appended to `out`; false
 * when there is none. */
bool sf_prefix_successor(struct sf_view prefix, struct sf_buf *out);

#endif
