/* An NDJSON file as numbered documents: one JSON object a line, empty lines skipped. */
#ifndef SF_CLI_LOAD_FILE_H
#define SF_CLI_LOAD_FILE_H

#include "base/diag.h"
#include "base/view.h"

/* The whole file, mapped; documents are found once at the open. */
struct sf_load_file {
    void *map;            /* owned mapping, NULL when the file is empty */
    size_t map_bytes;     /* of the mapping */
    struct sf_view *docs; /* owned array; each view is one line without its line end */
    size_t doc_count;     /* of docs */
};

/* Maps `path`. Errors: SF_ERR_IO (with the reason), SF_ERR_PARSE (a line that does not start with
 * '{'; its number is in the message). */
SF_MUST_USE enum sf_err sf_load_file_open(const char *path, struct sf_diag *diag,
                                          struct sf_load_file *out_file);

/* Unmaps; may be called twice. */
void sf_load_file_close(struct sf_load_file *file);

#endif
