/*
 * Model: the lock is flock(2) on a file in the folder, so it goes with its process however that
 * ends. The file holds the owner's pid for people who meet the lock; the text is never trusted.
 */
#include "daemon/data_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

#define LOCK_NAME "lock"

struct sf_data_dir {
    char *path;          /* owned, without a trailing slash */
    int lock_fd;         /* holds the lock */
    struct sf_buf built; /* of sf_data_dir_path */
};

/* Makes `path` and the folders above it. */
static enum sf_err make_folders(char *path, struct sf_diag *diag)
{
    for (char *at = path + 1;; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char saved = *at;
        *at = '\0';
        int rc = mkdir(path, 0700);
        int error = errno;
        *at = saved;
        if (rc != 0 && error != EEXIST)
            return sf_diag_set(diag, SF_ERR_IO, "cannot make folder %s: %s", path, strerror(error));
        if (saved == '\0')
            return SF_OK;
    }
}

static enum sf_err locked_by(int fd, const char *path, struct sf_diag *diag)
{
    char text[32] = {0};
    ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
    long pid = got > 0 ? strtol(text, NULL, 10) : 0;

    if (pid > 0)
        return sf_diag_set(diag, SF_ERR_LOCKED, "data folder %s is in use by process %ld", path,
                           pid);
    return sf_diag_set(diag, SF_ERR_LOCKED, "data folder %s is in use by another process", path);
}

static enum sf_err take_lock(struct sf_data_dir *dir, struct sf_diag *diag)
{
    char pid[32];

    dir->lock_fd = open(sf_data_dir_path(dir, LOCK_NAME), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (dir->lock_fd < 0)
        return sf_diag_set(diag, SF_ERR_IO, "cannot open %s: %s", sf_data_dir_path(dir, LOCK_NAME),
                           strerror(errno));
    if (flock(dir->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return locked_by(dir->lock_fd, dir->path, diag);
        return sf_diag_set(diag, SF_ERR_IO, "cannot lock %s: %s", dir->path, strerror(errno));
    }
    int len = snprintf(pid, sizeof(pid), "%" PRIdMAX "\n", (intmax_t)getpid());
    if (ftruncate(dir->lock_fd, 0) != 0 || pwrite(dir->lock_fd, pid, (size_t)len, 0) != len)
        return sf_diag_set(diag, SF_ERR_IO, "cannot write %s: %s", sf_data_dir_path(dir, LOCK_NAME),
                           strerror(errno));
    return SF_OK;
}

enum sf_err sf_data_dir_open(const char *path, struct sf_diag *diag, struct sf_data_dir **out_dir)
{
    struct sf_data_dir *dir = sf_calloc(1, sizeof(*dir));
    size_t len;

    dir->lock_fd = -1;
    dir->path = sf_strdup(path);
    for (len = strlen(dir->path); len > 1 && dir->path[len - 1] == '/'; len--)
        dir->path[len - 1] = '\0';
    enum sf_err err = len == 0 ? sf_diag_set(diag, SF_ERR_CONFIG, "the data folder has no name")
                               : make_folders(dir->path, diag);
    if (err == SF_OK)
        err = take_lock(dir, diag);
    if (err != SF_OK) {
        sf_data_dir_close(dir);
        return err;
    }
    *out_dir = dir;
    return SF_OK;
}

const char *sf_data_dir_path(struct sf_data_dir *dir, const char *name)
{
    sf_buf_clear(&dir->built);
    sf_buf_append_str(&dir->built, dir->path);
    sf_buf_append_str(&dir->built, "/");
    sf_buf_append(&dir->built, name, strlen(name) + 1);
    return (const char *)dir->built.data;
}

void sf_data_dir_close(struct sf_data_dir *dir)
{
    if (dir == NULL)
        return;
    if (dir->lock_fd >= 0)
        (void)close(dir->lock_fd);
    sf_buf_fini(&dir->built);
    free(dir->path);
    free(dir);
}
