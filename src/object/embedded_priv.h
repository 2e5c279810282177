/*
 * The embedded store's parts, shared by its files.
 *
 *   embedded_store.c   open and close, reads, lists
 *   embedded_commit.c  the committer: conditions, merges, writes
 *   embedded_keys.c    what the committer knows of keys without a read
 *   embedded_rows.c    rows and etags
 */
#ifndef SF_OBJECT_EMBEDDED_PRIV_H
#define SF_OBJECT_EMBEDDED_PRIV_H

#include <pthread.h>
#include <rocksdb/c.h>
#include <stdatomic.h>

#include "object/embedded_keys.h"
#include "object/object_priv.h"

#define SF_EMBEDDED_ROW_BYTES    10u /* of a row, before the body */
#define SF_EMBEDDED_SEQUENCE_KEY "msequence"
#define SF_EMBEDDED_READERS      2

struct sf_embedded_op;
struct sf_embedded_staged;

/* The store. */
struct sf_embedded_store {
    struct sf_store base;                /* what callers hold */
    rocksdb_t *db;                       /* immutable */
    rocksdb_options_t *options;          /* immutable */
    rocksdb_readoptions_t *read_options; /* immutable */
    rocksdb_readoptions_t *memory_only;  /* immutable; reads that touch no disk */
    rocksdb_writeoptions_t *sync_write;  /* immutable */
    _Atomic uint64_t syncs;              /* synced writes so far */
    _Atomic uint64_t visible;            /* reads that begin now see every sequence up to it */
    /* committer only */
    uint64_t sequence;                 /* last one used */
    _Atomic bool failed;               /* a write failed: nothing is written any more */
    struct sf_embedded_keys *keys;     /* what is known of keys without a read */
    rocksdb_writebatch_t *wb;          /* used again and again */
    struct sf_embedded_staged *staged; /* puts of the present merge; owned array */
    size_t staged_count;               /* of them */
    size_t staged_cap;                 /* entries there is room for */
    /* under mu */
    pthread_mutex_t mu;                     /* guards what follows, but the threads */
    pthread_cond_t work;                    /* writes or stop */
    pthread_cond_t reads;                   /* reads or stop */
    struct sf_embedded_op *head;            /* oldest queued write */
    struct sf_embedded_op **tail;           /* where the next one goes */
    struct sf_get *get_head;                /* oldest queued read; linked through impl */
    struct sf_get *get_tail;                /* newest one */
    bool stop;                              /* threads end once the queues are empty */
    pthread_t committer;                    /* evaluates conditions and writes */
    pthread_t readers[SF_EMBEDDED_READERS]; /* serve gets */
};

static inline struct sf_embedded_store *sf_embedded_of(struct sf_store *store)
{
    return SF_CONTAINER_OF(store, struct sf_embedded_store, base);
}

/* ---- embedded_rows.c ---- */

/* Numbers as rows hold them: 8 bytes, big-endian. */
void sf_embedded_u64_put(uint8_t *out, uint64_t value);
uint64_t sf_embedded_u64_get(const uint8_t *in);

/* 16 lower-case hex digits. */
void sf_embedded_etag_format(uint64_t sequence, struct sf_etag *out);

/* The sequence number of an etag; false for text that no etag of this store has. */
bool sf_embedded_etag_parse(const struct sf_etag *etag, uint64_t *out_sequence);

/* Row key of an object key; `out` has SF_LIMIT_OBJECT_KEY_BYTES + 1 bytes. Longer keys never
 * match. */
size_t sf_embedded_row_key(struct sf_view key, char *out);

/* Writes what stands before the body of a row. */
void sf_embedded_row_header(uint64_t sequence, uint8_t out[SF_EMBEDDED_ROW_BYTES]);

/* Checks a stored row and splits it. SF_ERR_CORRUPT. */
SF_MUST_USE enum sf_err sf_embedded_row_parse(const char *row, size_t len, uint64_t *out_sequence,
                                              struct sf_view *out_body);

/* Logs why the database failed and frees the message. */
void sf_embedded_log_failure(const char *operation, char *message);

/* What a row that does not verify is to callers, who must not take it for absent. */
SF_MUST_USE enum sf_err sf_embedded_log_corrupt(struct sf_view key);

/* ---- embedded_commit.c ---- */

/* The committer's thread; `arg` is the store. Ends with `stop`, once the queue is empty. */
void *sf_embedded_committer_main(void *arg);

/* sf_store_submit and sf_store_remove_wait. */
void sf_embedded_submit(struct sf_store *store, struct sf_batch *batch);
enum sf_err sf_embedded_remove(struct sf_store *store, struct sf_sched *sched, struct sf_view key);

#endif
