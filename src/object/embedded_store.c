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
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "object/embedded_priv.h"

#define READ_TIER_MEMORY 1 /* memtables and block cache */

/* ---- reads ---- */

/* Reads with `options`; false when that would need a disk and the options forbid it. */
static bool read_object(struct sf_embedded_store *s, const rocksdb_readoptions_t *options,
                        struct sf_get *get)
{
    char row[SF_LIMIT_OBJECT_KEY_BYTES + 1];
    char *error = NULL;
    struct sf_view body;
    uint64_t sequence;
    uint64_t seen = atomic_load_explicit(&s->visible, memory_order_acquire);

    get->err = SF_ERR_NOT_FOUND;
    get->absent_mark = 0;
    if (get->key.len == 0 || get->key.len > SF_LIMIT_OBJECT_KEY_BYTES)
        return true;
    rocksdb_pinnableslice_t *slice =
        rocksdb_get_pinned(s->db, options, row, sf_embedded_row_key(get->key, row), &error);
    if (error != NULL && options == s->memory_only) {
        rocksdb_free(error); /* not in memory, or a fault that the read proper will report */
        return false;
    }
    if (error != NULL) {
        sf_embedded_log_failure("get", error);
        get->err = SF_ERR_UNAVAILABLE;
    } else if (slice != NULL) {
        size_t len;
        const char *value = rocksdb_pinnableslice_value(slice, &len);
        get->err = sf_embedded_row_parse(value, len, &sequence, &body);
        if (get->err == SF_OK) {
            sf_get_fill(get, body);
            sf_embedded_etag_format(sequence, &get->etag);
        } else {
            get->err = sf_embedded_log_corrupt(get->key);
        }
    } else {
        get->absent_mark = seen + 1;
    }
    if (slice != NULL)
        rocksdb_pinnableslice_destroy(slice);
    return true;
}

static void *reader_main(void *arg)
{
    struct sf_embedded_store *s = arg;

    (void)pthread_mutex_lock(&s->mu);
    for (;;) {
        while (s->get_head == NULL && !s->stop)
            (void)pthread_cond_wait(&s->reads, &s->mu);
        struct sf_get *get = s->get_head;
        if (get == NULL)
            break;
        s->get_head = get->impl;
        (void)pthread_mutex_unlock(&s->mu);
        (void)read_object(s, s->read_options, get);
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
    struct sf_embedded_store *s = sf_embedded_of(store);

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
    struct sf_embedded_store *s = sf_embedded_of(store);

    return read_object(s, s->read_options, get);
}

static bool embedded_get_cached(struct sf_store *store, struct sf_get *get)
{
    struct sf_embedded_store *s = sf_embedded_of(store);

    return read_object(s, s->memory_only, get);
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
        if (value_len < SF_EMBEDDED_ROW_BYTES)
            return sf_embedded_log_corrupt(key);
        entries[count].key = sf_view_bytes(sf_arena_dup(arena, key.ptr, key.len), key.len);
        entries[count++].size_bytes = value_len - SF_EMBEDDED_ROW_BYTES;
    }
    *out_count = count;
    return sf_arena_overflowed(arena) ? SF_ERR_LIMIT : SF_OK;
}

static enum sf_err embedded_list(struct sf_store *store, struct sf_sched *sched,
                                 struct sf_view prefix, struct sf_view start_after, size_t limit,
                                 struct sf_arena *arena, struct sf_list_entry **out_entries,
                                 size_t *out_count)
{
    struct sf_embedded_store *s = sf_embedded_of(store);
    char row[SF_LIMIT_OBJECT_KEY_BYTES + 1];
    char *error = NULL;

    (void)sched;
    *out_count = 0;
    *out_entries = sf_arena_alloc(arena, limit * sizeof(**out_entries));
    if (*out_entries == NULL)
        return SF_ERR_LIMIT;
    struct sf_view seek = sf_view_compare(start_after, prefix) > 0 ? start_after : prefix;
    rocksdb_iterator_t *it = rocksdb_create_iterator(s->db, s->read_options);
    rocksdb_iter_seek(it, row, sf_embedded_row_key(seek, row));
    enum sf_err err = list_collect(it, prefix, start_after, limit, arena, *out_entries, out_count);
    rocksdb_iter_get_error(it, &error);
    if (error != NULL) {
        sf_embedded_log_failure("list", error);
        err = SF_ERR_UNAVAILABLE;
    }
    rocksdb_iter_destroy(it);
    return err;
}

/* ---- open and close ---- */

static void close_db(struct sf_embedded_store *s)
{
    if (s->db != NULL)
        rocksdb_close(s->db);
    rocksdb_options_destroy(s->options);
    rocksdb_readoptions_destroy(s->read_options);
    rocksdb_writeoptions_destroy(s->sync_write);
    rocksdb_readoptions_destroy(s->memory_only);
    rocksdb_writebatch_destroy(s->wb);
    sf_embedded_keys_destroy(s->keys);
    free(s->staged);
    (void)pthread_cond_destroy(&s->work);
    (void)pthread_cond_destroy(&s->reads);
    (void)pthread_mutex_destroy(&s->mu);
    free(s);
}

static void embedded_destroy(struct sf_store *store)
{
    struct sf_embedded_store *s = sf_embedded_of(store);

    (void)pthread_mutex_lock(&s->mu);
    s->stop = true;
    (void)pthread_cond_broadcast(&s->work);
    (void)pthread_cond_broadcast(&s->reads);
    (void)pthread_mutex_unlock(&s->mu);
    (void)pthread_join(s->committer, NULL);
    for (int i = 0; i < SF_EMBEDDED_READERS; i++)
        (void)pthread_join(s->readers[i], NULL);
    close_db(s);
}

static const struct sf_store_vtable embedded_vtable = {.submit = sf_embedded_submit,
                                                       .get = embedded_get,
                                                       .list = embedded_list,
                                                       .remove = sf_embedded_remove,
                                                       .destroy = embedded_destroy,
                                                       .get_now = embedded_get_now,
                                                       .get_cached = embedded_get_cached};

uint64_t sf_embedded_store_syncs(const struct sf_store *store)
{
    const struct sf_embedded_store *s =
        SF_CONTAINER_OF(store, const struct sf_embedded_store, base);

    SF_ASSERT(store->vtable == &embedded_vtable);
    return atomic_load_explicit(&s->syncs, memory_order_relaxed);
}

bool sf_embedded_store_failed(const struct sf_store *store)
{
    const struct sf_embedded_store *s =
        SF_CONTAINER_OF(store, const struct sf_embedded_store, base);

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

static enum sf_err read_sequence(struct sf_embedded_store *s, struct sf_diag *diag)
{
    char *error = NULL;
    size_t len = 0;
    char *value = rocksdb_get(s->db, s->read_options, SF_EMBEDDED_SEQUENCE_KEY,
                              sizeof(SF_EMBEDDED_SEQUENCE_KEY) - 1, &len, &error);
    enum sf_err err = SF_OK;

    if (error != NULL) {
        err = sf_diag_set(diag, SF_ERR_IO, "object store: %s", error);
        rocksdb_free(error);
    } else if (value != NULL && len != 8) {
        err = sf_diag_set(diag, SF_ERR_IO, "object store: the sequence row is damaged");
    } else if (value != NULL) {
        s->sequence = sf_embedded_u64_get((const uint8_t *)value);
        atomic_init(&s->visible, s->sequence);
    }
    rocksdb_free(value);
    return err;
}

static enum sf_err open_db(struct sf_embedded_store *s, const char *path, struct sf_diag *diag)
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
    struct sf_embedded_store *s = sf_calloc(1, sizeof(*s));

    s->base = (struct sf_store){.vtable = &embedded_vtable, .exclusive = true};
    s->options = db_options();
    s->read_options = rocksdb_readoptions_create();
    s->sync_write = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(s->sync_write, 1);
    s->memory_only = rocksdb_readoptions_create();
    rocksdb_readoptions_set_read_tier(s->memory_only, READ_TIER_MEMORY);
    s->keys = sf_embedded_keys_new();
    s->wb = rocksdb_writebatch_create();
    s->tail = &s->head;
    (void)pthread_mutex_init(&s->mu, NULL);
    (void)pthread_cond_init(&s->work, NULL);
    (void)pthread_cond_init(&s->reads, NULL);
    enum sf_err err = open_db(s, path, diag);
    if (err != SF_OK) {
        close_db(s);
        return err;
    }
    SF_ASSERT(pthread_create(&s->committer, NULL, sf_embedded_committer_main, s) == 0);
    for (int i = 0; i < SF_EMBEDDED_READERS; i++)
        SF_ASSERT(pthread_create(&s->readers[i], NULL, reader_main, s) == 0);
    *out_store = &s->base;
    return SF_OK;
}
