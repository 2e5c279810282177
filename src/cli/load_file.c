/*
 * The file is mapped and cut into lines once, so that documents go out as the very bytes of the
 * file and a broken line is found before the first request is sent.
 */
#include "cli/load_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

/* Appends one line; grows by doubling. */
static void add_doc(struct sf_load_file *file, size_t *capacity, struct sf_view line)
{
    if (file->doc_count == *capacity) {
        *capacity = *capacity == 0 ? 1024 : *capacity * 2;
        file->docs = sf_realloc(file->docs, *capacity * sizeof(*file->docs));
    }
    file->docs[file->doc_count++] = line;
}

static enum sf_err split_lines(struct sf_load_file *file, const char *path, struct sf_diag *diag)
{
    const uint8_t *at = file->map;
    const uint8_t *end = at + file->map_bytes;
    size_t capacity = 0;
    for (unsigned long number = 1; at < end; number++) {
        const uint8_t *stop = memchr(at, '\n', (size_t)(end - at));
        const uint8_t *next = stop == NULL ? end : stop + 1;
        stop = stop == NULL ? end : stop;
        if (stop > at && stop[-1] == '\r')
            stop--;
        if (stop > at && *at != '{')
            return sf_diag_set(diag, SF_ERR_PARSE, "%s:%lu: not a JSON object", path, number);
        if (stop > at)
            add_doc(file, &capacity, sf_view_bytes(at, (size_t)(stop - at)));
        at = next;
    }
    return SF_OK;
}

enum sf_err sf_load_file_open(const char *path, struct sf_diag *diag, struct sf_load_file *out_file)
{
    *out_file = (struct sf_load_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        enum sf_err err = sf_diag_set(diag, SF_ERR_IO, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            (void)close(fd);
        return err;
    }
    if (!S_ISREG(st.st_mode)) {
        (void)close(fd);
        return sf_diag_set(diag, SF_ERR_IO, "%s is not a regular file", path);
    }
    out_file->map_bytes = (size_t)st.st_size;
    if (st.st_size > 0)
        out_file->map = mmap(NULL, out_file->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)close(fd);
    if (out_file->map == MAP_FAILED) {
        out_file->map = NULL;
        return sf_diag_set(diag, SF_ERR_IO, "%s: %s", path, strerror(errno));
    }
    enum sf_err err = split_lines(out_file, path, diag);
    if (err != SF_OK)
        sf_load_file_close(out_file);
    return err;
}

void sf_load_file_close(struct sf_load_file *file)
{
    if (file->map != NULL)
        (void)munmap(file->map, file->map_bytes);
    free(file->docs);
    *file = (struct sf_load_file){0};
}
