/*
 * The embedded store. RocksDB has no conditional batch, so one committer thread is the only writer:
 * it takes the whole queue, evaluates the conditions in order, effects of earlier puts of the same
 * merge included, stages everything in one WriteBatch and syncs once. While it syncs, the next
 * merge gathers; that is the group commit. All stages of a batch stand or fall together, which
 * equals a run stage by stage in which no crash falls between stages.
 *
 * Rows: 'o' + object key -> layout version, flags, sequence (8 bytes big-endian), body. The etag is
 * the sequence number of the put, which only grows; 'm' + "sequence" holds the last one used and is
 * written in each batch. So an etag never comes back, restart included.
 *
 * A write that fails leaves RocksDB in an unknown state: the puts of that merge are AMBIGUOUS, and
 * the store refuses all later ones (UNAVAILABLE) until the process starts anew.
 *
 * Reads run on a small pool of reader threads, so no reactor waits for a disk; lists run on the
 * calling worker.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <rocksdb/c.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "object/object_priv.h"

#define ROW_HEADER_BYTES 10u
#define ROW_LAYOUT       1u
#define READER_THREADS   2
#define SEQUENCE_KEY     "msequence"

static_assert(ROW_HEADER_BYTES == 1 + 1 + sizeof(uint64_t), "row layout");

enum op_kind { OP_PUTS, OP_REMOVE };

/* One queued write. Puts: made by submit, freed by the committer. Remove: on the caller's stack. */
struct op {
    struct op *next;          /* in the queue */
    enum op_kind kind;        /* which of the two */
    struct sf_batch *batch;   /* OP_PUTS */
    struct sf_view key;       /* OP_REMOVE */
    struct sf_waiter *waiter; /* OP_REMOVE: woken at the end */
    enum sf_err *out_err;     /* OP_REMOVE: result */
    size_t body_bytes;        /* of all its puts */
};

/* What a key holds after the puts evaluated so far in this merge. */
struct overlay {
    uint64_t sequence; /* 0 = absent */
};

struct embedded_store {
    struct sf_store base;                /* what callers hold */
    rocksdb_t *db;                       /* immutable */
    rocksdb_options_t *options;          /* immutable */
    rocksdb_readoptions_t *read_options; /* immutable */
    rocksdb_writeoptions_t *sync_write;  /* immutable */
    _Atomic uint64_t syncs;              /* synced writes so far */
    /* committer only */
    uint64_t sequence;      /* last one used */
    _Atomic bool failed;    /* a write failed: nothing is written any more */
    struct sf_map *overlay; /* key -> struct overlay of the present merge */
    /* under mu */
    pthread_mutex_t mu;                /* guards what follows, but the threads */
    pthread_cond_t work;               /* writes or stop */
    pthread_cond_t reads;              /* reads or stop */
    struct op *head;                   /* oldest queued write */
    struct op **tail;                  /* where the next one goes */
    struct sf_get *get_head;           /* oldest queued read; linked through impl */
    struct sf_get *get_tail;           /* newest one */
    bool stop;                         /* threads end once the queues are empty */
    pthread_t committer;               /* evaluates conditions and writes */
    pthread_t readers[READER_THREADS]; /* serve gets */
};

static struct embedded_store *store_of(struct sf_store *store)
{
    return SF_CONTAINER_OF(store, struct embedded_store, base);
}

/* ---- rows ---- */

static void put_u64_be(uint8_t *out, uint64_t value)
{
    for (int i = 7; i >= 0; i--) {
        out[i] = (uint8_t)value;
        value >>= 8;
    }
}

static uint64_t get_u64_be(const uint8_t *in)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value = value << 8 | in[i];
    return value;
}

static void etag_format(uint64_t sequence, struct sf_etag *out)
{
    *out = (struct sf_etag){{0}};
    (void)snprintf(out->text, sizeof(out->text), "%016llx", (unsigned long long)sequence);
}

/* Row key of an object key; `out` has SF_LIMIT_OBJECT_KEY_BYTES + 1 bytes. Longer keys never
 * match. */
static size_t row_key(struct sf_view key, char *out)
{
    size_t len = key.len <= SF_LIMIT_OBJECT_KEY_BYTES ? key.len : SF_LIMIT_OBJECT_KEY_BYTES;

    out[0] = 'o';
    if (len > 0)
        memcpy(out + 1, key.ptr, len);
    return len + 1;
}

/* Checks a stored row and splits it. */
static enum sf_err row_parse(const char *row, size_t len, uint64_t *out_sequence,
                             struct sf_view *out_body)
{
    const uint8_t *bytes = (const uint8_t *)row;

    if (len < ROW_HEADER_BYTES || bytes[0] != ROW_LAYOUT || bytes[1] != 0)
        return SF_ERR_CORRUPT;
    *out_sequence = get_u64_be(bytes + 2);
    *out_body = sf_view_bytes(bytes + ROW_HEADER_BYTES, len - ROW_HEADER_BYTES);
    return SF_OK;
}

/* Logs why the database failed and frees the message. */
static void log_failure(const char *operation, char *message)
{
    SF_LOG(ERROR, "object_store_failed", SF_KV_STR("operation", operation),
           SF_KV_STR("error", message));
    rocksdb_free(message);
}

/* What a row that does not verify is to callers, who must not take it for absent. */
static enum sf_err log_corrupt(struct sf_view key)
{
    SF_LOG(ERROR, "object_row_corrupt", SF_KV_VIEW("key", key));
    return SF_ERR_UNAVAILABLE;
}

/* ---- committer ---- */

/* Sequence that stands at `key`, 0 when absent. */
static enum sf_err current_sequence(struct embedded_store *s, struct sf_view key,
                                    uint64_t *out_sequence)
{
    const struct overlay *seen = sf_map_get(s->overlay, key);
    char row[SF_LIMIT_OBJECT_KEY_BYTES + 1];
    char *error = NULL;
    enum sf_err err = SF_OK;

    *out_sequence = 0;
    if (seen != NULL) {
        *out_sequence = seen->sequence;
        return SF_OK;
    }
    rocksdb_pinnableslice_t *slice =
        rocksdb_get_pinned(s->db, s->read_options, row, row_key(key, row), &error);
    if (error != NULL) {
        log_failure("get", error);
        err = SF_ERR_UNAVAILABLE;
    } else if (slice != NULL) {
        size_t len;
        const char *value = rocksdb_pinnableslice_value(slice, &len);
        struct sf_view body;
        err = row_parse(value, len, out_sequence, &body);
    }
    if (slice != NULL)
        rocksdb_pinnableslice_destroy(slice);
    return err == SF_ERR_CORRUPT ? log_corrupt(key) : err;
}

static void overlay_set(struct embedded_store *s, struct sf_view key, uint64_t sequence)
{
    struct overlay *seen = sf_map_get(s->overlay, key);

    if (seen == NULL) {
        seen = sf_malloc(sizeof(*seen));
        (void)sf_map_put(s->overlay, key, seen);
    }
    seen->sequence = sequence;
}

static void stage_row(struct embedded_store *s, rocksdb_writebatch_t *wb, const struct sf_put *put)
{
    uint8_t header[ROW_HEADER_BYTES] = {ROW_LAYOUT, 0};
    char row[SF_LIMIT_OBJECT_KEY_BYTES + 1];
    size_t row_len = row_key(put->key, row);
    const char *keys[1] = {row};
    const size_t key_lens[1] = {row_len};
    const char *values[2] = {(const char *)header,
                             put->body.len == 0 ? "" : (const char *)put->body.ptr};
    const size_t value_lens[2] = {sizeof(header), put->body.len};

    put_u64_be(header + 2, s->sequence);
    rocksdb_writebatch_putv(wb, 1, keys, key_lens, 2, values, value_lens);
}

static enum sf_err evaluate_put(struct embedded_store *s, rocksdb_writebatch_t *wb,
                                struct sf_put *put)
{
    uint64_t standing = 0;
    struct sf_etag etag;

    enum sf_err err = sf_put_check_limits(put);
    if (err != SF_OK)
        return err;
    if (put->cond != SF_PUT_ANY) {
        err = current_sequence(s, put->key, &standing);
        if (err != SF_OK)
            return err;
    }
    if (put->cond == SF_PUT_ABSENT && standing != 0)
        return SF_ERR_PRECONDITION;
    if (put->cond == SF_PUT_MATCH) {
        etag_format(standing, &etag);
        if (standing == 0 || strcmp(etag.text, put->match.text) != 0)
            return SF_ERR_PRECONDITION;
    }
    s->sequence++;
    stage_row(s, wb, put);
    overlay_set(s, put->key, s->sequence);
    etag_format(s->sequence, &put->etag);
    return SF_OK;
}

static void evaluate_batch(struct embedded_store *s, rocksdb_writebatch_t *wb,
                           struct sf_batch *batch)
{
    struct sf_cancels cancels = {0};

    for (size_t i = 0; i < batch->count; i++) {
        struct sf_put *put = &batch->puts[i];
        if (sf_cancels_hit(&cancels, put))
            put->err = SF_ERR_CANCELLED_STAGE;
        else
            put->err = s->failed ? SF_ERR_UNAVAILABLE : evaluate_put(s, wb, put);
        if (put->err != SF_OK)
            sf_cancels_add(&cancels, put);
    }
    sf_cancels_fini(&cancels);
}

static void evaluate_remove(struct embedded_store *s, rocksdb_writebatch_t *wb, struct op *op)
{
    char row[SF_LIMIT_OBJECT_KEY_BYTES + 1];
    size_t row_len = row_key(op->key, row);

    *op->out_err = s->failed ? SF_ERR_UNAVAILABLE : SF_OK;
    if (s->failed)
        return;
    rocksdb_writebatch_delete(wb, row, row_len);
    overlay_set(s, op->key, 0);
}

/* What was decided in a merge whose write failed holds no more. */
static void void_merge(struct op *ops)
{
    for (struct op *op = ops; op != NULL; op = op->next) {
        if (op->kind == OP_REMOVE) {
            *op->out_err = SF_ERR_AMBIGUOUS;
            continue;
        }
        for (size_t i = 0; i < op->batch->count; i++) {
            struct sf_put *put = &op->batch->puts[i];
            if (put->err == SF_OK)
                put->err = SF_ERR_AMBIGUOUS;
            else if (put->err == SF_ERR_PRECONDITION)
                put->err = SF_ERR_UNAVAILABLE;
        }
    }
}

static void write_merge(struct embedded_store *s, rocksdb_writebatch_t *wb, struct op *ops)
{
    uint8_t sequence[8];
    char *error = NULL;

    if (rocksdb_writebatch_count(wb) == 0)
        return;
    put_u64_be(sequence, s->sequence);
    rocksdb_writebatch_put(wb, SEQUENCE_KEY, sizeof(SEQUENCE_KEY) - 1, (const char *)sequence,
                           sizeof(sequence));
    rocksdb_write(s->db, s->sync_write, wb, &error);
    if (error == NULL) {
        atomic_fetch_add_explicit(&s->syncs, 1, memory_order_relaxed);
        return;
    }
    log_failure("write", error);
    s->failed = true;
    void_merge(ops);
}

static void complete_ops(struct op *ops)
{
    while (ops != NULL) {
        struct op *op = ops;
        ops = op->next;
        if (op->kind == OP_REMOVE) {
            sf_waiter_wake(op->waiter); /* op lives on the waiter's stack: gone from here on */
            continue;
        }
        struct sf_batch *batch = op->batch;
        free(op);
        if (batch->loop != NULL)
            sf_batch_post_done(batch);
        else
            batch->done(batch);
    }
}

static void run_merge(struct embedded_store *s, struct op *ops)
{
    rocksdb_writebatch_t *wb = rocksdb_writebatch_create();

    for (struct op *op = ops; op != NULL; op = op->next) {
        if (op->kind == OP_PUTS)
            evaluate_batch(s, wb, op->batch);
        else
            evaluate_remove(s, wb, op);
    }
    write_merge(s, wb, ops);
    rocksdb_writebatch_destroy(wb);
    sf_map_clear(s->overlay, free);
    complete_ops(ops);
}

/* Takes queued writes, oldest first, up to the bound of one merge, but at least one. */
static struct op *take_merge_locked(struct embedded_store *s)
{
    struct op *first = s->head;
    struct op **end = &s->head;
    size_t bytes = 0;

    while (*end != NULL &&
           (*end == first || bytes + (*end)->body_bytes <= SF_LIMIT_STORE_MERGE_BYTES)) {
        bytes += (*end)->body_bytes;
        end = &(*end)->next;
    }
    s->head = *end;
    *end = NULL;
    if (s->head == NULL)
        s->tail = &s->head;
    return first;
}

static void *committer_main(void *arg)
{
    struct embedded_store *s = arg;

    (void)pthread_mutex_lock(&s->mu);
    for (;;) {
        while (s->head == NULL && !s->stop)
            (void)pthread_cond_wait(&s->work, &s->mu);
        struct op *ops = take_merge_locked(s);
        if (ops == NULL)
            break;
        (void)pthread_mutex_unlock(&s->mu);
        run_merge(s, ops);
        (void)pthread_mutex_lock(&s->mu);
    }
    (void)pthread_mutex_unlock(&s->mu);
    return NULL;
}

static void queue_op(struct embedded_store *s, struct op *op)
{
    (void)pthread_mutex_lock(&s->mu);
    SF_ASSERT(!s->stop);
    bool was_empty = s->head == NULL;
    *s->tail = op;
    s->tail = &op->next;
    (void)pthread_mutex_unlock(&s->mu);
    if (was_empty)
        (void)pthread_cond_signal(&s->work);
}

static void embedded_submit(struct sf_store *store, struct sf_batch *batch)
{
    struct op *op = sf_calloc(1, sizeof(*op));

    sf_batch_check(batch);
    *op = (struct op){.kind = OP_PUTS, .batch = batch};
    for (size_t i = 0; i < batch->count; i++)
        op->body_bytes += batch->puts[i].body.len;
    queue_op(store_of(store), op);
}

static enum sf_err embedded_remove(struct sf_store *store, struct sf_sched *sched,
                                   struct sf_view key)
{
    enum sf_err err = SF_ERR_UNAVAILABLE;
    struct sf_waiter waiter;
    struct op op = {.kind = OP_REMOVE, .key = key, .waiter = &waiter, .out_err = &err};

    if (key.len == 0 || key.len > SF_LIMIT_OBJECT_KEY_BYTES)
        return SF_ERR_LIMIT;
    sf_waiter_init(&waiter, sched);
    queue_op(store_of(store), &op);
    sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
    return err;
}

/* ---- reads ---- */

static void read_object(struct embedded_store *s, struct sf_get *get)
{
    char row[SF_LIMIT_OBJECT_KEY_BYTES + 1];
    char *error = NULL;
    struct sf_view body;
    uint64_t sequence;

    get->err = SF_ERR_NOT_FOUND;
    if (get->key.len == 0 || get->key.len > SF_LIMIT_OBJECT_KEY_BYTES)
        return;
    rocksdb_pinnableslice_t *slice =
        rocksdb_get_pinned(s->db, s->read_options, row, row_key(get->key, row), &error);
    if (error != NULL) {
        log_failure("get", error);
        get->err = SF_ERR_UNAVAILABLE;
    } else if (slice != NULL) {
        size_t len;
        const char *value = rocksdb_pinnableslice_value(slice, &len);
        get->err = row_parse(value, len, &sequence, &body);
        if (get->err == SF_OK) {
            sf_get_fill(get, body);
            etag_format(sequence, &get->etag);
        } else {
            get->err = log_corrupt(get->key);
        }
    }
    if (slice != NULL)
        rocksdb_pinnableslice_destroy(slice);
}

static void *reader_main(void *arg)
{
    struct embedded_store *s = arg;

    (void)pthread_mutex_lock(&s->mu);
    for (;;) {
        while (s->get_head == NULL && !s->stop)
            (void)pthread_cond_wait(&s->reads, &s->mu);
        struct sf_get *get = s->get_head;
        if (get == NULL)
            break;
        s->get_head = get->impl;
        (void)pthread_mutex_unlock(&s->mu);
        read_object(s, get);
        if (get->loop != NULL)
            sf_get_post_done(get);
        else
            get->done(get);
        (void)pthread_mutex_lock(&s->mu);
    }
    (void)pthread_mutex_unlock(&s->mu);
    return NULL;
}

static void embedded_get(struct sf_store *store, struct sf_get *get)
{
    struct embedded_store *s = store_of(store);

    get->impl = NULL;
    (void)pthread_mutex_lock(&s->mu);
    SF_ASSERT(!s->stop);
    if (s->get_head == NULL)
        s->get_head = get;
    else
        s->get_tail->impl = get;
    s->get_tail = get;
    (void)pthread_mutex_unlock(&s->mu);
    (void)pthread_cond_signal(&s->reads);
}

static bool embedded_get_now(struct sf_store *store, struct sf_get *get)
{
    read_object(store_of(store), get);
    return true;
}

static enum sf_err list_collect(rocksdb_iterator_t *it, struct sf_view prefix,
                                struct sf_view start_after, size_t limit, struct sf_arena *arena,
                                struct sf_list_entry *entries, size_t *out_count)
{
    size_t count = 0;

    for (; count < limit && rocksdb_iter_valid(it); rocksdb_iter_next(it)) {
        size_t row_len;
        size_t value_len;
        const char *row = rocksdb_iter_key(it, &row_len);
        if (row_len < 1 + prefix.len || row[0] != 'o' ||
            (prefix.len > 0 && memcmp(row + 1, prefix.ptr, prefix.len) != 0))
            break;
        struct sf_view key = sf_view_bytes(row + 1, row_len - 1);
        if (sf_view_equal(key, start_after))
            continue;
        (void)rocksdb_iter_value(it, &value_len);
        if (value_len < ROW_HEADER_BYTES)
            return log_corrupt(key);
        entries[count].key = sf_view_bytes(sf_arena_dup(arena, key.ptr, key.len), key.len);
        entries[count++].size_bytes = value_len - ROW_HEADER_BYTES;
    }
    *out_count = count;
    return sf_arena_overflowed(arena) ? SF_ERR_LIMIT : SF_OK;
}

static enum sf_err embedded_list(struct sf_store *store, struct sf_sched *sched,
                                 struct sf_view prefix, struct sf_view start_after, size_t limit,
                                 struct sf_arena *arena, struct sf_list_entry **out_entries,
                                 size_t *out_count)
{
    struct embedded_store *s = store_of(store);
    char row[SF_LIMIT_OBJECT_KEY_BYTES + 1];
    char *error = NULL;

    (void)sched;
    *out_count = 0;
    *out_entries = sf_arena_alloc(arena, limit * sizeof(**out_entries));
    if (*out_entries == NULL)
        return SF_ERR_LIMIT;
    struct sf_view seek = sf_view_compare(start_after, prefix) > 0 ? start_after : prefix;
    rocksdb_iterator_t *it = rocksdb_create_iterator(s->db, s->read_options);
    rocksdb_iter_seek(it, row, row_key(seek, row));
    enum sf_err err = list_collect(it, prefix, start_after, limit, arena, *out_entries, out_count);
    rocksdb_iter_get_error(it, &error);
    if (error != NULL) {
        log_failure("list", error);
        err = SF_ERR_UNAVAILABLE;
    }
    rocksdb_iter_destroy(it);
    return err;
}

/* ---- open and close ---- */

static void close_db(struct embedded_store *s)
{
    if (s->db != NULL)
        rocksdb_close(s->db);
    rocksdb_options_destroy(s->options);
    rocksdb_readoptions_destroy(s->read_options);
    rocksdb_writeoptions_destroy(s->sync_write);
    sf_map_destroy(s->overlay, free);
    (void)pthread_cond_destroy(&s->work);
    (void)pthread_cond_destroy(&s->reads);
    (void)pthread_mutex_destroy(&s->mu);
    free(s);
}

static void embedded_destroy(struct sf_store *store)
{
    struct embedded_store *s = store_of(store);

    (void)pthread_mutex_lock(&s->mu);
    s->stop = true;
    (void)pthread_cond_broadcast(&s->work);
    (void)pthread_cond_broadcast(&s->reads);
    (void)pthread_mutex_unlock(&s->mu);
    (void)pthread_join(s->committer, NULL);
    for (int i = 0; i < READER_THREADS; i++)
        (void)pthread_join(s->readers[i], NULL);
    close_db(s);
}

static const struct sf_store_vtable embedded_vtable = {.submit = embedded_submit,
                                                       .get = embedded_get,
                                                       .list = embedded_list,
                                                       .remove = embedded_remove,
                                                       .destroy = embedded_destroy,
                                                       .get_now = embedded_get_now};

uint64_t sf_embedded_store_syncs(const struct sf_store *store)
{
    const struct embedded_store *s = SF_CONTAINER_OF(store, const struct embedded_store, base);

    SF_ASSERT(store->vtable == &embedded_vtable);
    return atomic_load_explicit(&s->syncs, memory_order_relaxed);
}

bool sf_embedded_store_failed(const struct sf_store *store)
{
    const struct embedded_store *s = SF_CONTAINER_OF(store, const struct embedded_store, base);

    SF_ASSERT(store->vtable == &embedded_vtable);
    return atomic_load(&s->failed);
}

/* Level of RocksDB's own log at which it stays empty. */
#define INFO_LOG_SILENT 4

static rocksdb_options_t *db_options(void)
{
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();

    /* A create-only put asks for a key that is usually absent: the filter answers from memory. */
    rocksdb_block_based_options_set_filter_policy(table,
                                                  rocksdb_filterpolicy_create_bloom_full(10));
    rocksdb_options_set_block_based_table_factory(options, table);
    rocksdb_block_based_options_destroy(table);
    rocksdb_options_set_create_if_missing(options, 1);
    /* A crash cuts the log's end, which nobody was told of. Damage before the end would take what
     * was acknowledged with it: refused, never passed over. */
    rocksdb_options_set_wal_recovery_mode(options,
                                          rocksdb_tolerate_corrupted_tail_records_recovery);
    /* A second line of RocksDB's own log that cannot be written ends the process (an assertion of
     * its file writer): on a full disk nothing may be said there. Errors come back from the calls.
     */
    rocksdb_options_set_info_log_level(options, INFO_LOG_SILENT);
    rocksdb_options_set_stats_dump_period_sec(options, 0);
    rocksdb_options_set_compression(options, rocksdb_lz4_compression);
    rocksdb_options_set_write_buffer_size(options, (size_t)64 << 20);
    rocksdb_options_set_memtable_prefix_bloom_size_ratio(options, 0.01); /* the same there */
    rocksdb_options_set_memtable_whole_key_filtering(options, 1);
    rocksdb_options_set_recycle_log_file_num(options, 0);
    rocksdb_options_set_keep_log_file_num(options, 4);
    rocksdb_options_set_max_background_jobs(options, 2);
    return options;
}

static enum sf_err read_sequence(struct embedded_store *s, struct sf_diag *diag)
{
    char *error = NULL;
    size_t len = 0;
    char *value =
        rocksdb_get(s->db, s->read_options, SEQUENCE_KEY, sizeof(SEQUENCE_KEY) - 1, &len, &error);
    enum sf_err err = SF_OK;

    if (error != NULL) {
        err = sf_diag_set(diag, SF_ERR_IO, "object store: %s", error);
        rocksdb_free(error);
    } else if (value != NULL && len != 8) {
        err = sf_diag_set(diag, SF_ERR_IO, "object store: the sequence row is damaged");
    } else if (value != NULL) {
        s->sequence = get_u64_be((const uint8_t *)value);
    }
    rocksdb_free(value);
    return err;
}

static enum sf_err open_db(struct embedded_store *s, const char *path, struct sf_diag *diag)
{
    char *error = NULL;

    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return sf_diag_set(diag, SF_ERR_IO, "%s: %s", path, strerror(errno));
    s->db = rocksdb_open(s->options, path, &error);
    if (error == NULL)
        return read_sequence(s, diag);
    enum sf_err err = strstr(error, "lock") != NULL ? SF_ERR_LOCKED : SF_ERR_IO;
    if (err == SF_ERR_LOCKED)
        (void)sf_diag_set(diag, err, "object store %s is held by a running process", path);
    else
        (void)sf_diag_set(diag, err, "object store %s: %s", path, error);
    rocksdb_free(error);
    return err;
}

enum sf_err sf_embedded_store_open(const char *path, struct sf_diag *diag,
                                   struct sf_store **out_store)
{
    struct embedded_store *s = sf_calloc(1, sizeof(*s));

    s->base = (struct sf_store){.vtable = &embedded_vtable, .exclusive = true};
    s->options = db_options();
    s->read_options = rocksdb_readoptions_create();
    s->sync_write = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(s->sync_write, 1);
    s->overlay = sf_map_new();
    s->tail = &s->head;
    (void)pthread_mutex_init(&s->mu, NULL);
    (void)pthread_cond_init(&s->work, NULL);
    (void)pthread_cond_init(&s->reads, NULL);
    enum sf_err err = open_db(s, path, diag);
    if (err != SF_OK) {
        close_db(s);
        return err;
    }
    SF_ASSERT(pthread_create(&s->committer, NULL, committer_main, s) == 0);
    for (int i = 0; i < READER_THREADS; i++)
        SF_ASSERT(pthread_create(&s->readers[i], NULL, reader_main, s) == 0);
    *out_store = &s->base;
    return SF_OK;
}
