/* mkdtemp and a depth-first walk that removes; the folders hold test data only. */
#include "support/tempdir.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

void sf_tempdir_make(char out_path[SF_TEMPDIR_BYTES])
{
    const char *base = getenv("TMPDIR");

    (void)snprintf(out_path, SF_TEMPDIR_BYTES, "%s/sf-test-XXXXXX",
                   base == NULL || base[0] == '\0' ? "/tmp" : base);
    if (mkdtemp(out_path) == NULL) {
        perror(out_path);
        exit(1);
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

void sf_tempdir_remove(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
