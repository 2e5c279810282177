/*
 * Small whole files. A private file is written under a temporary name in the same folder, synced,
 * and linked to its name, which fails when the name is taken; the folder is synced last. So a crash
 * leaves the whole file or none, and two processes cannot both create it.
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

static enum sf_err io_error(struct sf_diag *diag, const char *what, const char *path)
{
    return sf_diag_set(diag, SF_ERR_IO, "%s %s: %s", what, path, strerror(errno));
}

static enum sf_err read_all(int fd, const char *path, size_t max_bytes, struct sf_diag *diag,
                            struct sf_buf *out)
{
    size_t total = 0;

    for (;;) {
        uint8_t chunk[4096];
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return io_error(diag, "cannot read", path);
        if (n == 0)
            return SF_OK;
        total += (size_t)n;
        if (total > max_bytes)
            return sf_diag_set(diag, SF_ERR_LIMIT, "%s is larger than %zu bytes", path, max_bytes);
        sf_buf_append(out, chunk, (size_t)n);
    }
}

enum sf_err sf_file_read(const char *path, size_t max_bytes, bool private_only,
                         struct sf_diag *diag, struct sf_buf *out)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum sf_err err;

    if (fd < 0)
        return io_error(diag, "cannot open", path);
    if (fstat(fd, &st) != 0)
        err = io_error(diag, "cannot look at", path);
    else if (!S_ISREG(st.st_mode))
        err = sf_diag_set(diag, SF_ERR_CONFIG, "%s is not a regular file", path);
    else if (private_only && (st.st_mode & 077) != 0)
        err = sf_diag_set(diag, SF_ERR_CONFIG,
                          "%s holds secrets but its mode is %03o; only its owner may have access "
                          "(chmod 600)",
                          path, (unsigned)st.st_mode & 0777u);
    else
        err = read_all(fd, path, max_bytes, diag, out);
    (void)close(fd);
    return err;
}

static bool write_all(int fd, struct sf_view bytes)
{
    while (bytes.len > 0) {
        ssize_t n = write(fd, bytes.ptr, bytes.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        bytes.ptr += n;
        bytes.len -= (size_t)n;
    }
    return true;
}

/* Syncs the folder that `path` is in. */
static bool sync_folder(const char *path)
{
    char *folder = sf_strdup(path);
    char *slash = strrchr(folder, '/');
    int fd;

    if (slash == folder)
        slash[1] = '\0';
    else if (slash != NULL)
        slash[0] = '\0';
    fd = open(slash == NULL ? "." : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    if (fd < 0)
        return false;
    bool good = fsync(fd) == 0;
    (void)close(fd);
    return good;
}

enum sf_err sf_file_create_private(const char *path, struct sf_view bytes, struct sf_diag *diag)
{
    uint8_t random[8];
    char hex[2 * sizeof(random) + 1];
    struct sf_buf name = {0};
    enum sf_err err = SF_OK;

    sf_random_bytes(random, sizeof(random));
    sf_hex_encode(random, sizeof(random), hex);
    sf_buf_printf(&name, "%s.%s.tmp", path, hex);
    sf_buf_append(&name, "", 1);
    const char *temporary = (const char *)name.data;

    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        err = io_error(diag, "cannot create", temporary);
    } else {
        if (!write_all(fd, bytes) || fsync(fd) != 0)
            err = io_error(diag, "cannot write", temporary);
        else if (link(temporary, path) != 0)
            err = errno == EEXIST ? sf_diag_set(diag, SF_ERR_EXISTS, "%s exists", path)
                                  : io_error(diag, "cannot create", path);
        (void)close(fd);
        (void)unlink(temporary);
        if (err == SF_OK && !sync_folder(path))
            err = io_error(diag, "cannot sync the folder of", path);
    }
    sf_buf_fini(&name);
    return err;
}
