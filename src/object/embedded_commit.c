/*
 * The committer takes the whole queue, evaluates the conditions in order, effects of earlier puts
 * of the same merge included, stages everything in one write batch and syncs once. While it syncs,
 * the next merge gathers.
 */
#include "object/embedded_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"

enum op_kind { OP_PUTS, OP_REMOVE };

/* One queued write. Puts: made by submit, freed by the committer. Remove: on the caller's stack. */
struct sf_embedded_op {
    struct sf_embedded_op *next; /* in the queue */
    enum op_kind kind;           /* which of the two */
    struct sf_batch *batch;      /* OP_PUTS */
    struct sf_view key;          /* OP_REMOVE */
    struct sf_waiter *waiter;    /* OP_REMOVE: woken at the end */
    enum sf_err *out_err;        /* OP_REMOVE: result */
    size_t body_bytes;           /* of all its puts */
};

/* A put that this merge writes. */
struct sf_embedded_staged {
    const struct sf_put *put; /* borrowed for the merge */
    uint64_t sequence;        /* its etag */
};

/* Sequence that the database holds at `key`, 0 when absent. */
static enum sf_err stored_sequence(struct sf_embedded_store *s, struct sf_view key,
                                   uint64_t *out_sequence)
{
    char row[SF_LIMIT_OBJECT_KEY_BYTES + 1];
    char *error = NULL;
    enum sf_err err = SF_OK;

    *out_sequence = 0;
    rocksdb_pinnableslice_t *slice =
        rocksdb_get_pinned(s->db, s->read_options, row, sf_embedded_row_key(key, row), &error);
    if (error != NULL) {
        sf_embedded_log_failure("get", error);
        err = SF_ERR_UNAVAILABLE;
    } else if (slice != NULL) {
        size_t len;
        const char *value = rocksdb_pinnableslice_value(slice, &len);
        struct sf_view body;
        err = sf_embedded_row_parse(value, len, out_sequence, &body);
    }
    if (slice != NULL)
        rocksdb_pinnableslice_destroy(slice);
    return err == SF_ERR_CORRUPT ? sf_embedded_log_corrupt(key) : err;
}

/* True when the put's condition is certain to hold without a look at the database. */
static bool condition_is_known(const struct sf_embedded_store *s, const struct sf_put *put,
                               uint64_t hash)
{
    uint64_t wanted = 0;

    if (put->cond == SF_PUT_ABSENT)
        return sf_embedded_keys_absent(s->keys, hash, put->absent_mark);
    return sf_embedded_etag_parse(&put->match, &wanted) &&
           sf_embedded_keys_stands(s->keys, hash, wanted);
}

/* SF_OK when the put's condition holds, effects of earlier puts of this merge included. */
static enum sf_err condition_check(struct sf_embedded_store *s, const struct sf_put *put,
                                   uint64_t hash)
{
    uint64_t standing = 0;
    uint64_t wanted = 0;

    if (put->cond == SF_PUT_ANY || condition_is_known(s, put, hash))
        return SF_OK;
    if (!sf_embedded_keys_in_merge(s->keys, put->key, hash, &standing)) {
        enum sf_err err = stored_sequence(s, put->key, &standing);
        if (err != SF_OK)
            return err;
    }
    bool holds =
        put->cond == SF_PUT_ABSENT
            ? standing == 0
            : standing != 0 && sf_embedded_etag_parse(&put->match, &wanted) && wanted == standing;
    return holds ? SF_OK : SF_ERR_PRECONDITION;
}

static enum sf_err evaluate_put(struct sf_embedded_store *s, struct sf_put *put)
{
    enum sf_err err = sf_put_check_limits(put);
    if (err != SF_OK)
        return err;
    uint64_t hash = sf_embedded_keys_hash(s->keys, put->key);
    err = condition_check(s, put, hash);
    if (err != SF_OK)
        return err;
    s->sequence++;
    s->staged[s->staged_count++] = (struct sf_embedded_staged){put, s->sequence};
    sf_embedded_keys_note(s->keys, put->key, hash, s->sequence, false);
    sf_embedded_etag_format(s->sequence, &put->etag);
    return SF_OK;
}

static void evaluate_batch(struct sf_embedded_store *s, struct sf_batch *batch)
{
    struct sf_cancels cancels = {0};

    for (size_t i = 0; i < batch->count; i++) {
        struct sf_put *put = &batch->puts[i];
        if (sf_cancels_hit(&cancels, put))
            put->err = SF_ERR_CANCELLED_STAGE;
        else
            put->err = s->failed ? SF_ERR_UNAVAILABLE : evaluate_put(s, put);
        if (put->err != SF_OK)
            sf_cancels_add(&cancels, put);
    }
    sf_cancels_fini(&cancels);
}

static int staged_compare(const void *a, const void *b)
{
    const struct sf_embedded_staged *x = a;
    const struct sf_embedded_staged *y = b;
    int by_key = sf_view_compare(x->put->key, y->put->key);

    return by_key != 0 ? by_key : (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

static void write_row(rocksdb_writebatch_t *wb, const struct sf_embedded_staged *staged)
{
    const struct sf_put *put = staged->put;
    uint8_t header[SF_EMBEDDED_ROW_BYTES];
    char row[SF_LIMIT_OBJECT_KEY_BYTES + 1];
    const char *keys[1] = {row};
    const size_t key_lens[1] = {sf_embedded_row_key(put->key, row)};
    const char *values[2] = {(const char *)header,
                             put->body.len == 0 ? "" : (const char *)put->body.ptr};
    const size_t value_lens[2] = {sizeof(header), put->body.len};

    sf_embedded_row_header(staged->sequence, header);
    rocksdb_writebatch_putv(wb, 1, keys, key_lens, 2, values, value_lens);
}

/* Puts what was staged into the write batch, in key order: rows that lie beside each other are
 * cheaper to insert. Puts of one key stay in their order. */
static void write_staged(struct sf_embedded_store *s)
{
    if (s->staged_count > 1)
        qsort(s->staged, s->staged_count, sizeof(*s->staged), staged_compare);
    for (size_t i = 0; i < s->staged_count; i++)
        write_row(s->wb, &s->staged[i]);
    s->staged_count = 0;
}

/* A removal takes a sequence number too, and what was staged before it goes first. */
static void evaluate_remove(struct sf_embedded_store *s, struct sf_embedded_op *op)
{
    char row[SF_LIMIT_OBJECT_KEY_BYTES + 1];
    size_t row_len = sf_embedded_row_key(op->key, row);

    *op->out_err = s->failed ? SF_ERR_UNAVAILABLE : SF_OK;
    if (s->failed)
        return;
    write_staged(s);
    rocksdb_writebatch_delete(s->wb, row, row_len);
    s->sequence++;
    sf_embedded_keys_note(s->keys, op->key, sf_embedded_keys_hash(s->keys, op->key), s->sequence,
                          true);
}

/* What was decided in a merge whose write failed holds no more. */
static void void_merge(struct sf_embedded_op *ops)
{
    for (struct sf_embedded_op *op = ops; op != NULL; op = op->next) {
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

static void write_merge(struct sf_embedded_store *s, struct sf_embedded_op *ops)
{
    uint8_t sequence[8];
    char *error = NULL;

    if (rocksdb_writebatch_count(s->wb) == 0)
        return;
    sf_embedded_u64_put(sequence, s->sequence);
    rocksdb_writebatch_put(s->wb, SF_EMBEDDED_SEQUENCE_KEY, sizeof(SF_EMBEDDED_SEQUENCE_KEY) - 1,
                           (const char *)sequence, sizeof(sequence));
    rocksdb_write(s->db, s->sync_write, s->wb, &error);
    if (error == NULL) {
        atomic_store_explicit(&s->visible, s->sequence, memory_order_release);
        atomic_fetch_add_explicit(&s->syncs, 1, memory_order_relaxed);
        return;
    }
    sf_embedded_log_failure("write", error);
    s->failed = true;
    void_merge(ops);
}

static void complete_ops(struct sf_embedded_op *ops)
{
    while (ops != NULL) {
        struct sf_embedded_op *op = ops;
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

/* Room for all that a merge may stage. */
static void merge_begin(struct sf_embedded_store *s, const struct sf_embedded_op *ops)
{
    size_t most = 0;

    for (const struct sf_embedded_op *op = ops; op != NULL; op = op->next)
        most += op->kind == OP_PUTS ? op->batch->count : 1;
    if (most > s->staged_cap) {
        s->staged_cap = most;
        s->staged = sf_realloc(s->staged, most * sizeof(*s->staged));
    }
    sf_embedded_keys_begin(s->keys, most);
    rocksdb_writebatch_clear(s->wb);
}

static void run_merge(struct sf_embedded_store *s, struct sf_embedded_op *ops)
{
    merge_begin(s, ops);
    for (struct sf_embedded_op *op = ops; op != NULL; op = op->next) {
        if (op->kind == OP_PUTS)
            evaluate_batch(s, op->batch);
        else
            evaluate_remove(s, op);
    }
    write_staged(s);
    write_merge(s, ops);
    complete_ops(ops);
}

/* Takes queued writes, oldest first, up to the bound of one merge, but at least one. */
static struct sf_embedded_op *take_merge_locked(struct sf_embedded_store *s)
{
    struct sf_embedded_op *first = s->head;
    struct sf_embedded_op **end = &s->head;
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

void *sf_embedded_committer_main(void *arg)
{
    struct sf_embedded_store *s = arg;

    (void)pthread_mutex_lock(&s->mu);
    for (;;) {
        while (s->head == NULL && !s->stop)
            (void)pthread_cond_wait(&s->work, &s->mu);
        struct sf_embedded_op *ops = take_merge_locked(s);
        if (ops == NULL)
            break;
        (void)pthread_mutex_unlock(&s->mu);
        run_merge(s, ops);
        (void)pthread_mutex_lock(&s->mu);
    }
    (void)pthread_mutex_unlock(&s->mu);
    return NULL;
}

static void queue_op(struct sf_embedded_store *s, struct sf_embedded_op *op)
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

void sf_embedded_submit(struct sf_store *store, struct sf_batch *batch)
{
    struct sf_embedded_op *op = sf_calloc(1, sizeof(*op));

    sf_batch_check(batch);
    *op = (struct sf_embedded_op){.kind = OP_PUTS, .batch = batch};
    for (size_t i = 0; i < batch->count; i++)
        op->body_bytes += batch->puts[i].body.len;
    queue_op(sf_embedded_of(store), op);
}

enum sf_err sf_embedded_remove(struct sf_store *store, struct sf_sched *sched, struct sf_view key)
{
    enum sf_err err = SF_ERR_UNAVAILABLE;
    struct sf_waiter waiter;
    struct sf_embedded_op op = {.kind = OP_REMOVE, .key = key, .waiter = &waiter, .out_err = &err};

    if (key.len == 0 || key.len > SF_LIMIT_OBJECT_KEY_BYTES)
        return SF_ERR_LIMIT;
    sf_waiter_init(&waiter, sched);
    queue_op(sf_embedded_of(store), &op);
    sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
    return err;
}
