/*
 * The data folder of a process: made when absent, locked while it runs. A second process is refused
 * with the pid of the owner (decision 19). The lock is an advisory lock on `{folder}/lock`, which
 * the kernel drops when the process ends, however it ends; the pid in the file is for people.
 */
#ifndef SF_CLUSTER_DATADIR_H
#define SF_CLUSTER_DATADIR_H

#include <stddef.h>

#include "base/diag.h"

struct sf_datadir;

/* Makes folder `path`, with the folders above it (mode 0700), and locks it. Errors: SF_ERR_LOCKED
 * (the message names the owner's pid; detail "owner_pid"), SF_ERR_IO, SF_ERR_CONFIG (empty, not a
 * folder, or too long). */
SF_MUST_USE enum sf_err sf_datadir_open(const char *path, struct sf_diag *diag,
                                        struct sf_datadir **out_datadir);

/* Path of `name` inside the folder, written to `out` (size bytes). Asserts that it fits: names are
 * ours and the folder's length was checked at open. */
void sf_datadir_path(const struct sf_datadir *datadir, const char *name, char *out, size_t size);

/* Room that every path inside the folder fits in. */
#define SF_DATADIR_PATH_BYTES 1024

/* Releases the lock and frees. NULL is fine. */
void sf_datadir_close(struct sf_datadir *datadir);

#endif
