/* The data folder: made when absent, locked by the one process that uses it. Private to the daemon.
 */
#ifndef SF_DAEMON_DATA_DIR_H
#define SF_DAEMON_DATA_DIR_H

#include "base/diag.h"

struct sf_data_dir;

/* Makes the folder (mode 0700) and locks it. Errors: SF_ERR_LOCKED (the message names the owner's
 * pid), SF_ERR_IO. */
SF_MUST_USE enum sf_err sf_data_dir_open(const char *path, struct sf_diag *diag,
                                         struct sf_data_dir **out_dir);

/* "{folder}/{name}"; valid until the next call with the same folder or its close. */
const char *sf_data_dir_path(struct sf_data_dir *dir, const char *name);

/* Gives the lock up. NULL is fine. */
void sf_data_dir_close(struct sf_data_dir *dir);

#endif
