/*
 * The object store contract (protocols.md section 1): strongly consistent get, conditional put,
 * delete, list in byte order. The store is the only durable truth. ETags are opaque. Two forms:
 * submit (never blocks; completion always later, exactly once, on the given loop) and wait (worker
 * tasks and tools).
 *
 * A batch has stages: puts of one stage are unordered; on a crash any subset may be there; stage
 * k+1 of a command starts only after its stage k is durable. A put that fails cancels the later
 * stages of its command and nothing of its neighbours; a put of SF_COMMAND_ALL that fails cancels
 * the later stages of every command of the batch. The embedded store evaluates conditions in order
 * and commits all stages of many callers in one synced WriteBatch.
 */
#ifndef SF_OBJECT_STORE_H
#define SF_OBJECT_STORE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"
#include "exec/loop.h"
#include "exec/sched.h"

#define SF_ETAG_BYTES  72
#define SF_COMMAND_ALL UINT32_MAX

/* Opaque version of one object; NUL-terminated text, empty = none. */
struct sf_etag {
    char text[SF_ETAG_BYTES]; /* compared byte by byte */
};

enum sf_put_cond {
    SF_PUT_ANY,    /* no condition */
    SF_PUT_ABSENT, /* create only (If-None-Match: *) */
    SF_PUT_MATCH   /* compare and swap (If-Match: etag); an absent key is a failed condition */
};

/* One put of a batch. Key and body are borrowed until the completion. */
struct sf_put {
    struct sf_view key;    /* 1..SF_LIMIT_OBJECT_KEY_BYTES bytes, valid UTF-8 */
    struct sf_view body;   /* at most SF_LIMIT_OBJECT_BYTES; never bytes the key held before
                              (attempt_id inside) */
    enum sf_put_cond cond; /* condition */
    struct sf_etag match;  /* for SF_PUT_MATCH */
    uint64_t absent_mark;  /* for SF_PUT_ABSENT: `absent_mark` of a read of this very key that found
                              nothing; spares the store its own look. 0 = none */
    uint32_t stage;        /* 0-based; the batch's puts are sorted by stage */
    uint32_t command;      /* 0-based command of the batch, or SF_COMMAND_ALL */
    enum sf_err
        err; /* result: SF_OK, SF_ERR_PRECONDITION, SF_ERR_UNAVAILABLE (certain: not applied),
                SF_ERR_AMBIGUOUS, SF_ERR_CANCELLED_STAGE (never sent), SF_ERR_LIMIT */
    struct sf_etag etag; /* result: the new etag when err is SF_OK */
};

struct sf_batch;
typedef void (*sf_batch_done_fn)(struct sf_batch *batch);

/* A batch; owned by the caller, untouched by others after `done` ran. */
struct sf_batch {
    struct sf_put *puts;   /* sorted by stage */
    size_t count;          /* >= 1 */
    struct sf_loop *loop;  /* where `done` runs; NULL = on a thread of the store (wake-ups only) */
    sf_batch_done_fn done; /* always later, exactly once */
    struct sf_task task;   /* private to the store */
    void *impl;            /* private to the store */
};

struct sf_get;
typedef void (*sf_get_done_fn)(struct sf_get *get);

/* A read; owned by the caller. */
struct sf_get {
    struct sf_view key;    /* borrowed until done */
    struct sf_loop *loop;  /* as in sf_batch */
    sf_get_done_fn done;   /* always later, exactly once */
    enum sf_err err;       /* SF_OK, SF_ERR_NOT_FOUND, SF_ERR_UNAVAILABLE */
    struct sf_buf body;    /* result, owned by the caller (sf_buf_fini) */
    struct sf_etag etag;   /* result */
    uint64_t absent_mark;  /* result with SF_ERR_NOT_FOUND, for a create-only put of the key to the
                              same store; 0 = none */
    uint64_t range_offset; /* first byte wanted */
    uint64_t range_len;    /* bytes wanted, 0 = to the end */
    struct sf_task task;   /* private to the store */
    void *impl;            /* private to the store */
};

/* One entry of a listing. */
struct sf_list_entry {
    struct sf_view key;  /* in the arena given to the list */
    uint64_t size_bytes; /* of the body */
};

struct sf_store;

struct sf_store_vtable {
    void (*submit)(struct sf_store *store, struct sf_batch *batch); /* sf_store_submit */
    void (*get)(struct sf_store *store, struct sf_get *get);        /* sf_store_get */
    /* Waiting forms; on a worker task or a plain thread, never on a loop. `sched` as in
     * sf_waiter_init. */
    enum sf_err (*list)(struct sf_store *store, struct sf_sched *sched, struct sf_view prefix,
                        struct sf_view start_after, size_t limit, struct sf_arena *arena,
                        struct sf_list_entry **out_entries, size_t *out_count);
    enum sf_err (*remove)(struct sf_store *store, struct sf_sched *sched,
                          struct sf_view key); /* sf_store_remove_wait */
    void (*destroy)(struct sf_store *store);   /* sf_store_destroy */
    /* A read on the caller's thread, which may block: true = get->err, body and etag are set and
     * `done` is not called. False, or NULL here: ask with `get`. */
    bool (*get_now)(struct sf_store *store, struct sf_get *get);
    /* sf_store_get_cached; NULL = never */
    bool (*get_cached)(struct sf_store *store, struct sf_get *get);
};

struct sf_store {
    const struct sf_store_vtable *vtable; /* never NULL */
    bool exclusive; /* this process alone holds the store (embedded): reads cost no round trip, no
                       second owner */
};

static inline void sf_store_submit(struct sf_store *store, struct sf_batch *batch)
{
    store->vtable->submit(store, batch);
}

static inline void sf_store_get(struct sf_store *store, struct sf_get *get)
{
    store->vtable->get(store, get);
}

/* A read from memory alone, on the caller's thread, a loop included: true = get->err, body and etag
 * are set and `done` is not called. False: it may need a disk or the network, ask with
 * sf_store_get.
 */
static inline bool sf_store_get_cached(struct sf_store *store, struct sf_get *get)
{
    return store->vtable->get_cached != NULL && store->vtable->get_cached(store, get);
}

/* Runs a batch and waits; results stand in the puts. */
void sf_store_submit_wait(struct sf_store *store, struct sf_sched *sched, struct sf_batch *batch);

/* One put, waited for. Returns put->err. */
SF_MUST_USE enum sf_err sf_store_put_wait(struct sf_store *store, struct sf_sched *sched,
                                          struct sf_put *put);

/* Reads the whole object into `out_body` (appended) and waits. Errors as sf_get.err. out_etag may
 * be NULL. */
SF_MUST_USE enum sf_err sf_store_get_wait(struct sf_store *store, struct sf_sched *sched,
                                          struct sf_view key, struct sf_buf *out_body,
                                          struct sf_etag *out_etag);

/* Reads `len` bytes (0 = to the end) from `offset` on into `out_body` (appended) and waits; less
 * where the object ends earlier. Errors as sf_get.err. */
SF_MUST_USE enum sf_err sf_store_get_range_wait(struct sf_store *store, struct sf_sched *sched,
                                                struct sf_view key, uint64_t offset, uint64_t len,
                                                struct sf_buf *out_body);

/* Up to `limit` entries (<= SF_LIMIT_LIST_PAGE_ENTRIES) of `prefix` with key > start_after, in byte
 * order; keys in `arena`. Fewer than `limit` means the end. */
SF_MUST_USE enum sf_err sf_store_list_wait(struct sf_store *store, struct sf_sched *sched,
                                           struct sf_view prefix, struct sf_view start_after,
                                           size_t limit, struct sf_arena *arena,
                                           struct sf_list_entry **out_entries, size_t *out_count);

/* Unconditional delete; absent is success. */
SF_MUST_USE enum sf_err sf_store_remove_wait(struct sf_store *store, struct sf_sched *sched,
                                             struct sf_view key);

/* Closes the store after all completions ran. NULL is fine. */
void sf_store_destroy(struct sf_store *store);

/* The RocksDB-backed embedded store in folder `path` (made when absent). One committer thread
 * merges the batches of all callers into one synced WriteBatch. Errors: SF_ERR_IO, SF_ERR_LOCKED
 * (another process holds it). */
SF_MUST_USE enum sf_err sf_embedded_store_open(const char *path, struct sf_diag *diag,
                                               struct sf_store **out_store);

/* Synced writes of an embedded store so far; each carries the batches that gathered meanwhile. Any
 * thread. */
uint64_t sf_embedded_store_syncs(const struct sf_store *store);

/* True once a write of an embedded store failed (a full disk): it reads on but takes nothing more,
 * for what the write left behind is known only to the next open. Its process should say so. Any
 * thread. */
bool sf_embedded_store_failed(const struct sf_store *store);

/* Proves conditions and listing through the store under `probe/{random}/`: create-only twice, stale
 * etag, missing key, concurrent pair, list after put. Error: SF_ERR_CONFIG with the reason: do not
 * serve. */
SF_MUST_USE enum sf_err sf_store_probe(struct sf_store *store, struct sf_sched *sched,
                                       struct sf_diag *diag);

#endif
