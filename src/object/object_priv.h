/* Shared by the stores of this folder: limits, stage cancellation, completion. */
#ifndef SF_OBJECT_PRIV_H
#define SF_OBJECT_PRIV_H

#include "object/store.h"

/* What failed so far in one batch. Zero-initialise; end with sf_cancels_fini. */
struct sf_cancels {
    struct sf_cancel *failed; /* owned; one entry per failed command */
    size_t count;             /* used entries */
    size_t cap;               /* allocated entries */
};

/* One command that failed, with the stage it failed in. */
struct sf_cancel {
    uint32_t command; /* or SF_COMMAND_ALL */
    uint32_t stage;   /* lowest stage that failed */
};

/* Notes the failure of `put`. */
void sf_cancels_add(struct sf_cancels *cancels, const struct sf_put *put);

/* True when an earlier stage of the put's command, or of SF_COMMAND_ALL, failed. */
bool sf_cancels_hit(const struct sf_cancels *cancels, const struct sf_put *put);

/* Frees; may be called twice. */
void sf_cancels_fini(struct sf_cancels *cancels);

/* SF_OK, or SF_ERR_LIMIT for a key or body out of bounds. */
enum sf_err sf_put_check_limits(const struct sf_put *put);

/* Asserts that the puts are sorted by stage and that there is one. */
void sf_batch_check(const struct sf_batch *batch);

/* Posts the completion of a batch or a get to its loop, which must not be NULL. */
void sf_batch_post_done(struct sf_batch *batch);
void sf_get_post_done(struct sf_get *get);

/* Appends the wanted range of `body` to get->body. */
void sf_get_fill(struct sf_get *get, struct sf_view body);

#endif
