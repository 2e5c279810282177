/* Small whole files: configuration, keys. */
#ifndef SF_BASE_FILE_H
#define SF_BASE_FILE_H

#include "base/buf.h"
#include "base/diag.h"

/* Appends the bytes of the regular file `path` to `out`, at most `max_bytes` of it. With
 * `private_only`, a file that group or others may read or write is refused. Blocks. Errors:
 * SF_ERR_IO (errno in the message), SF_ERR_LIMIT, SF_ERR_CONFIG (permissions, not a regular file).
 */
SF_MUST_USE enum sf_err sf_file_read(const char *path, size_t max_bytes, bool private_only,
                                     struct sf_diag *diag, struct sf_buf *out);

/* Creates `path` with `bytes` and mode 0600, complete and synced, or not at all. Blocks. Errors:
 * SF_ERR_EXISTS (nothing changed), SF_ERR_IO. */
SF_MUST_USE enum sf_err sf_file_create_private(const char *path, struct sf_view bytes,
                                               struct sf_diag *diag);

#endif
