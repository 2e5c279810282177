#include "publish/reader.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/limits.h"
#include "base/mem.h"
#include "publish/chain.h"
#include "publish/keys.h"
#include "publish/wal_chunk.h"

/*
 * The lineage names every slice with its anchors; a slice's rows stand in the frames that the
 * anchors name, each frame holding the rows that touch its modality. All rows are gathered, sorted
 * by document and age, and the last of each document wins. One chunk a stream is kept, because
 * neighbouring slices mostly share one.
 */

struct read_row {
    uint64_t doc_id;
    uint64_t commit_ts;
    uint64_t source_partition;
    uint64_t source_epoch;
    uint64_t source_seq;
    Searchfabric__V1__RowOp op;
    uint32_t body_len;
    uint8_t *body; /* owned */
};

struct cached_chunk {
    struct sf_buf key;
    struct sf_buf body;
};

struct rows_read {
    struct sf_store *store;
    struct sf_sched *sched;
    struct sf_diag *diag;
    struct read_row *rows;
    size_t count;
    size_t cap;
    struct cached_chunk chunks[SF_WAL_STREAMS];
    enum sf_err err; /* sticky */
    uint64_t slices;
};

static void rows_fini(struct rows_read *read)
{
    for (size_t i = 0; i < read->count; i++)
        free(read->rows[i].body);
    free(read->rows);
    for (unsigned i = 0; i < SF_WAL_STREAMS; i++) {
        sf_buf_fini(&read->chunks[i].key);
        sf_buf_fini(&read->chunks[i].body);
    }
}

static void add_row(struct rows_read *read, const Searchfabric__V1__WalRow *row, uint64_t commit_ts)
{
    if (read->count == read->cap) {
        read->cap = read->cap == 0 ? 1024 : read->cap * 2;
        read->rows = sf_realloc(read->rows, read->cap * sizeof(read->rows[0]));
    }
    read->rows[read->count++] = (struct read_row){
        .doc_id = row->doc_id,
        .commit_ts = commit_ts,
        .source_partition = row->source_partition,
        .source_epoch = row->source_epoch,
        .source_seq = row->source_seq,
        .op = row->op,
        .body_len = (uint32_t)row->body.len,
        .body = row->body.len == 0 ? NULL : sf_memdup(row->body.data, row->body.len),
    };
}

static enum sf_err fetch_chunk(struct rows_read *read, const Searchfabric__V1__WalAnchor *anchor,
                               struct cached_chunk *chunk)
{
    struct sf_buf key = {0};
    unsigned stream = sf_wal_stream_of(anchor->modality, anchor->writer_mode);
    sf_wal_chunk_key(&key, stream, anchor->shard_id, anchor->chunk_epoch, anchor->chunk_seq);
    enum sf_err err = SF_OK;
    if (!sf_view_equal(sf_buf_view(&key), sf_buf_view(&chunk->key))) {
        sf_buf_clear(&chunk->body);
        sf_buf_clear(&chunk->key);
        err = sf_store_get_wait(read->store, read->sched, sf_buf_view(&key), &chunk->body, NULL);
        if (err == SF_OK)
            sf_buf_append(&chunk->key, key.data, key.len);
        else if (err == SF_ERR_NOT_FOUND)
            err =
                sf_diag_set(read->diag, SF_ERR_CORRUPT, "%.*s: chunk of a committed slice is gone",
                            (int)key.len, (const char *)key.data);
        else
            (void)sf_diag_set(read->diag, err, "%.*s: read failed", (int)key.len,
                              (const char *)key.data);
    }
    sf_buf_fini(&key);
    return err;
}

/* The frame that an anchor names, verified. */
static enum sf_err read_frame(struct rows_read *read, const Searchfabric__V1__ManifestSlice *slice,
                              const Searchfabric__V1__WalAnchor *anchor, struct sf_arena *arena,
                              const Searchfabric__V1__WalFrame **out_frame)
{
    if (anchor->modality < 1 || (unsigned)anchor->modality > SF_MODALITY_COUNT ||
        anchor->writer_mode < 1 || anchor->writer_mode > 2)
        return sf_diag_set(read->diag, SF_ERR_CORRUPT, "anchor of an unknown stream");
    struct cached_chunk *chunk =
        &read->chunks[sf_wal_stream_of(anchor->modality, anchor->writer_mode)];
    enum sf_err err = fetch_chunk(read, anchor, chunk);
    if (err != SF_OK)
        return err;
    if (anchor->offset_bytes > chunk->body.len ||
        anchor->length_bytes > chunk->body.len - anchor->offset_bytes)
        err = sf_diag_set(read->diag, SF_ERR_CORRUPT, "anchor lies outside its chunk");
    else
        err = sf_wal_record_decode(
            sf_view_bytes(chunk->body.data + anchor->offset_bytes, anchor->length_bytes),
            anchor->checksum_xxh3, arena, read->diag, out_frame);
    if (err == SF_OK &&
        ((*out_frame)->intent == NULL ||
         strcmp((*out_frame)->intent->write_intent_id, slice->write_intent_id) != 0))
        err = sf_diag_set(read->diag, SF_ERR_CORRUPT, "frame belongs to another slice");
    if (err != SF_OK && read->diag != NULL)
        sf_diag_wrap(read->diag, "%.*s", (int)chunk->key.len, (const char *)chunk->key.data);
    return err;
}

/* Rows of one slice: the union over its frames, by entry index. */
static enum sf_err read_slice(struct rows_read *read, const Searchfabric__V1__ManifestSlice *slice)
{
    struct sf_arena *arena = sf_arena_new(SF_LIMIT_WAL_CHUNK_ARENA_BYTES);
    struct sf_buf seen = {0};
    size_t found = 0;
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < slice->n_anchors && found < slice->row_count && err == SF_OK; i++) {
        const Searchfabric__V1__WalFrame *frame = NULL;
        err = read_frame(read, slice, slice->anchors[i], arena, &frame);
        for (size_t k = 0; err == SF_OK && k < frame->n_rows; k++) {
            size_t at = frame->rows[k]->entry_index;
            if (at >= SF_LIMIT_BATCH_ENTRIES) {
                err = sf_diag_set(read->diag, SF_ERR_CORRUPT, "entry index out of range");
                break;
            }
            while (seen.len <= at)
                sf_buf_append(&seen, "", 1);
            if (seen.data[at] != 0)
                continue;
            seen.data[at] = 1;
            found++;
            add_row(read, frame->rows[k], slice->commit_ts);
        }
    }
    if (err == SF_OK && found != slice->row_count)
        err = sf_diag_set(read->diag, SF_ERR_CORRUPT, "slice %s: %zu of %u rows found",
                          slice->write_intent_id, found, slice->row_count);
    sf_buf_fini(&seen);
    sf_arena_destroy(arena);
    return err;
}

static void each_slice(void *user, const Searchfabric__V1__ManifestSlice *slice)
{
    struct rows_read *read = user;
    if (read->err != SF_OK)
        return;
    read->slices++;
    read->err = read_slice(read, slice);
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* By document, then oldest first: the last of a document wins (COORD-4.3-11, -12). */
static int compare_rows(const void *left, const void *right)
{
    const struct read_row *a = left;
    const struct read_row *b = right;
    int c = compare_u64(a->doc_id, b->doc_id);
    c = c != 0 ? c : compare_u64(a->commit_ts, b->commit_ts);
    c = c != 0 ? c : compare_u64(a->source_partition, b->source_partition);
    c = c != 0 ? c : compare_u64(a->source_epoch, b->source_epoch);
    return c != 0 ? c : compare_u64(a->source_seq, b->source_seq);
}

static void emit(const struct rows_read *read, sf_row_fn each, void *user)
{
    for (size_t i = 0; i < read->count; i++) {
        const struct read_row *row = &read->rows[i];
        if (i + 1 < read->count && read->rows[i + 1].doc_id == row->doc_id)
            continue;
        if (row->op == SEARCHFABRIC__V1__ROW_OP__ROW_OP_DELETE)
            continue;
        struct sf_row out = {.doc_id = {row->doc_id},
                             .op = row->op,
                             .commit_ts = {row->commit_ts},
                             .body = sf_view_bytes(row->body, row->body_len),
                             .source_partition = row->source_partition,
                             .source_epoch = row->source_epoch,
                             .source_seq = row->source_seq};
        if (!each(user, &out))
            return;
    }
}

static void fill_head(const struct sf_chain *chain, uint64_t slices, struct sf_rows_head *out)
{
    *out = (struct sf_rows_head){0};
    if (chain->head == NULL)
        return;
    out->manifest_version = chain->head->committed_manifest_version;
    out->safe_ts.v = chain->head->safe_ts;
    out->publisher_epoch = chain->head->publisher_epoch;
    out->total_rows = sf_chain_newest(chain)->total_rows;
    out->slices = slices;
}

static void count_slice(void *user, const Searchfabric__V1__ManifestSlice *slice)
{
    (void)slice;
    ++*(uint64_t *)user;
}

enum sf_err sf_rows_read(struct sf_store *store, struct sf_sched *sched,
                         struct sf_collection_ref collection, sf_row_fn each, void *user,
                         struct sf_rows_head *out_head, struct sf_diag *diag)
{
    struct rows_read read = {.store = store, .sched = sched, .diag = diag};
    struct sf_chain chain;
    sf_chain_init(&chain, collection, 0);
    enum sf_err err = sf_chain_read_wait(&chain, store, sched, diag);
    if (err == SF_OK && chain.head != NULL) {
        sf_chain_each_slice(&chain, each_slice, &read);
        err = read.err;
    }
    if (err == SF_OK) {
        if (read.count > 0)
            qsort(read.rows, read.count, sizeof(read.rows[0]), compare_rows);
        if (out_head != NULL)
            fill_head(&chain, read.slices, out_head);
        emit(&read, each, user);
    }
    rows_fini(&read);
    sf_chain_fini(&chain);
    return err;
}

enum sf_err sf_rows_head_read(struct sf_store *store, struct sf_sched *sched,
                              struct sf_collection_ref collection, struct sf_rows_head *out_head,
                              struct sf_diag *diag)
{
    struct sf_chain chain;
    uint64_t slices = 0;
    sf_chain_init(&chain, collection, UINT64_MAX); /* lists are counted by their references */
    enum sf_err err = sf_chain_read_wait(&chain, store, sched, diag);
    if (err == SF_OK) {
        sf_chain_each_slice(&chain, count_slice, &slices);
        if (sf_chain_base(&chain) != NULL) {
            for (size_t i = 0; i < sf_chain_base(&chain)->n_slice_lists; i++)
                slices += sf_chain_base(&chain)->slice_lists[i]->entry_count;
        }
        fill_head(&chain, slices, out_head);
    }
    sf_chain_fini(&chain);
    return err;
}
