/* zstd frames of a stated size: what `.zst` objects hold. */
#ifndef SF_OBJECT_COMPRESS_H
#define SF_OBJECT_COMPRESS_H

#include "base/buf.h"
#include "base/diag.h"

/* Appends `plain` as one frame. Any thread. */
void sf_compress(struct sf_view plain, struct sf_buf *out);

/* Replaces *out by what the frame holds. Any thread. Errors: SF_ERR_CORRUPT (not a frame that
 * states its size, a size above SF_LIMIT_OBJECT_BYTES, damaged); `diag` may be NULL. */
SF_MUST_USE enum sf_err sf_expand(struct sf_view frame, struct sf_buf *out, struct sf_diag *diag);

#endif
