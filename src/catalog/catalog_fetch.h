/*
 * Many objects at once: reads that run side by side, pointers that are put in batches. For the
 * start and the check, where the rest of the code reads one object after another: what was fetched
 * ahead is found without a request.
 */
#ifndef SF_CATALOG_FETCH_H
#define SF_CATALOG_FETCH_H

#include "catalog/catalog_priv.h"

#define SF_CATALOG_FETCH_MAX 256 /* objects of one round; their bodies are held together */

/* One read. */
struct sf_catalog_fetch {
    struct sf_buf key;   /* owned by the caller */
    struct sf_buf body;  /* result, owned by the caller */
    struct sf_etag etag; /* result */
    enum sf_err err;     /* SF_OK, SF_ERR_NOT_FOUND, SF_ERR_UNAVAILABLE after some tries */
};
void sf_catalog_fetch_fini(struct sf_catalog_fetch *fetch);

/* Reads all (at most SF_CATALOG_FETCH_MAX), repeating what the store refused. Blocks. */
void sf_catalog_fetch(struct sf_catalog *catalog, struct sf_sched *sched,
                      struct sf_catalog_fetch *items, size_t count);

/* Objects fetched ahead of sf_catalog_read, by key; each serves once. Of one thread. */
struct sf_catalog_ahead;
struct sf_catalog_ahead *sf_catalog_ahead_new(void);
void sf_catalog_ahead_destroy(struct sf_catalog_ahead *ahead);

/* Fetches `keys` (any number, SF_CATALOG_FETCH_MAX at once; buffers stay the caller's) into
 * `ahead`; what is absent or cannot be read is left to the read itself. Forgets: what nobody took.
 */
void sf_catalog_ahead_add(struct sf_catalog *catalog, struct sf_sched *sched,
                          struct sf_catalog_ahead *ahead, const struct sf_buf *keys, size_t count);
void sf_catalog_ahead_forget(struct sf_catalog_ahead *ahead);

/* The same for sf_catalog_read, while opening; forgets what an earlier call fetched. */
void sf_catalog_ahead_fetch(struct sf_catalog *catalog, struct sf_sched *sched,
                            const struct sf_buf *keys, size_t count);

/* Takes an object fetched ahead; false when it is not there. */
bool sf_catalog_ahead_take(struct sf_catalog_ahead *ahead, struct sf_view key,
                           struct sf_buf *out_body, struct sf_etag *out_etag);

/* Makes the replay pointers of committed outcomes stand: looks which are missing, puts those.
 * Errors as sf_catalog_put_settle. */
SF_MUST_USE enum sf_err sf_catalog_pointers_all(struct sf_catalog *catalog, struct sf_sched *sched,
                                                SF_PB(CommandOutcomeObject) *const *outcomes,
                                                size_t count, uint64_t *out_missing);

#endif
