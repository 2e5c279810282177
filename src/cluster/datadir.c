/*
 * flock on an open file description: it goes with the process, is not inherited by name, and works
 * on every local file system. The file is never removed, or two processes could each hold a lock on
 * a file of that name. The pid is written after the lock is taken and read, by a refused process,
 * without it: it may be missing for a moment, which the message then says.
 */
#include "cluster/datadir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define LOCK_NAME      "lock"
#define LONGEST_NAME   128u
#define PID_TEXT_BYTES 32u

struct sf_datadir {
    char *path; /* owned */
    int fd;     /* of the lock file, locked */
};

void sf_datadir_path(const struct sf_datadir *datadir, const char *name, char *out, size_t size)
{
    int n = snprintf(out, size, "%s/%s", datadir->path, name);

    SF_ASSERT(n > 0 && (size_t)n < size);
}

static enum sf_err io_error(struct sf_diag *diag, const char *path)
{
    return sf_diag_set(diag, SF_ERR_IO, "%s: %s", path, strerror(errno));
}

/* Makes `path` and the folders above it; `path` is changed meanwhile. */
static enum sf_err make_folders(char *path, struct sf_diag *diag)
{
    for (char *at = path + 1; *path != '\0'; at++) {
        char saved = *at;
        if (saved != '/' && saved != '\0')
            continue;
        *at = '\0';
        bool failed = mkdir(path, 0700) != 0 && errno != EEXIST;
        enum sf_err err = failed ? io_error(diag, path) : SF_OK;
        *at = saved;
        if (err != SF_OK || saved == '\0')
            return err;
    }
    return sf_diag_set(diag, SF_ERR_CONFIG, "the data folder has no name");
}

static enum sf_err make_folder(char *path, struct sf_diag *diag)
{
    struct stat st;

    if (strlen(path) + LONGEST_NAME >= SF_DATADIR_PATH_BYTES)
        return sf_diag_set(diag, SF_ERR_CONFIG, "the path of the data folder is too long");
    enum sf_err err = make_folders(path, diag);
    if (err != SF_OK)
        return err;
    if (stat(path, &st) != 0)
        return io_error(diag, path);
    if (!S_ISDIR(st.st_mode))
        return sf_diag_set(diag, SF_ERR_CONFIG, "%s is not a folder", path);
    return SF_OK;
}

/* Says who holds the lock. */
static enum sf_err refused(const struct sf_datadir *d, struct sf_diag *diag)
{
    char text[PID_TEXT_BYTES] = "";

    ssize_t n = pread(d->fd, text, sizeof(text) - 1, 0);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;
    if (pid <= 0)
        return sf_diag_set(diag, SF_ERR_LOCKED,
                           "data folder %s is in use by a process that is just starting", d->path);
    (void)sf_diag_set(diag, SF_ERR_LOCKED, "data folder %s is in use by process %ld", d->path, pid);
    if (diag != NULL)
        sf_diag_detail(diag, "owner_pid", "%ld", pid);
    return SF_ERR_LOCKED;
}

static enum sf_err write_pid(const struct sf_datadir *d, struct sf_diag *diag)
{
    char text[PID_TEXT_BYTES];
    int n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());

    if (ftruncate(d->fd, 0) != 0 || pwrite(d->fd, text, (size_t)n, 0) != n)
        return io_error(diag, d->path);
    return SF_OK;
}

static enum sf_err lock_folder(struct sf_datadir *d, struct sf_diag *diag)
{
    char path[SF_DATADIR_PATH_BYTES];

    sf_datadir_path(d, LOCK_NAME, path, sizeof(path));
    d->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d->fd < 0)
        return io_error(diag, path);
    int rc = flock(d->fd, LOCK_EX | LOCK_NB);
    if (rc != 0 && errno == EWOULDBLOCK)
        return refused(d, diag);
    if (rc != 0)
        return io_error(diag, path);
    return write_pid(d, diag);
}

enum sf_err sf_datadir_open(const char *path, struct sf_diag *diag, struct sf_datadir **out_datadir)
{
    struct sf_datadir *d = sf_calloc(1, sizeof(*d));

    *d = (struct sf_datadir){.path = sf_strdup(path), .fd = -1};
    for (size_t len = strlen(d->path); len > 1 && d->path[len - 1] == '/'; len--)
        d->path[len - 1] = '\0';
    enum sf_err err = make_folder(d->path, diag);
    if (err == SF_OK)
        err = lock_folder(d, diag);
    if (err != SF_OK) {
        sf_datadir_close(d);
        return err;
    }
    *out_datadir = d;
    return SF_OK;
}

void sf_datadir_close(struct sf_datadir *datadir)
{
    if (datadir == NULL)
        return;
    if (datadir->fd >= 0)
        (void)close(datadir->fd);
    free(datadir->path);
    free(datadir);
}
