/*
 * Model: after a restore from a backup the state object of a collection may lie behind ids that
 * were handed out. What can be known of them stands in the replay-success objects, so a
 * verification reads them all, raises the watermark above the highest id, finishes unfinished
 * applies, and writes the state with a higher epoch by compare-and-swap. It never lowers anything
 * and may be run again at any time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_priv.h"
#include "base/limits.h"

/* One verification. */
struct verify {
    struct sf_store *store;                        /* holds the objects */
    struct sf_sched *sched;                        /* of the task; NULL = a plain thread */
    struct sf_attempts *attempts;                  /* ids of its writes */
    struct sf_collection_ref collection;           /* which one */
    bool dry_run;                                  /* nothing is written */
    struct sf_arena *arena;                        /* of the state object */
    struct sf_diag *diag;                          /* of the caller */
    struct sf_allocator_verification *report;      /* being filled */
    Searchfabric__V1__AllocatorStateObject *state; /* NULL when there is none */
    struct sf_etag etag;                           /* of the state object */
    struct sf_watermark mark;                      /* above every id of a result */
    uint64_t version;                              /* highest allocator_state_version of a result */
    uint64_t epoch;                                /* highest allocation_epoch of a result */
    int64_t restored_at_unix_ms;
};

static enum sf_err read_state(struct verify *v)
{
    enum sf_err err = sf_alloc_state_read_wait(v->store, v->sched, v->collection, v->arena, v->diag,
                                               &v->state, &v->mark, &v->etag);

    if (err == SF_ERR_NOT_FOUND)
        return SF_OK;
    if (err != SF_OK && err != SF_INTERNAL)
        return sf_diag_set(v->diag, err, "the state object cannot be read");
    return err;
}

/* Reads the restore mark; 0 when there is none. */
static enum sf_err read_mark(struct sf_store *store, struct sf_sched *sched, struct sf_arena *arena,
                             struct sf_diag *diag, int64_t *out_restored_at_unix_ms)
{
    struct sf_buf body = {0};
    enum sf_err err =
        sf_store_get_wait(store, sched, sf_view_str(SF_ALLOC_RESTORE_MARK_KEY), &body, NULL);

    *out_restored_at_unix_ms = 0;
    if (err == SF_OK)
        err = sf_alloc_mark_decode(sf_buf_view(&body), arena, diag, out_restored_at_unix_ms);
    else if (err == SF_ERR_NOT_FOUND)
        err = SF_OK;
    else
        sf_diag_set(diag, err, "the restore mark cannot be read");
    sf_buf_fini(&body);
    return err;
}

/* Raises the mark above what `record` realized, version and epoch to those of its apply: no result
 * may be of a later write than the state that covers it. */
static void cover(struct verify *v, const sf_replay_record *record)
{
    if (sf_alloc_record_version(record) > v->version)
        v->version = sf_alloc_record_version(record);
    if (record->allocation_epoch > v->epoch)
        v->epoch = record->allocation_epoch;
    struct sf_watermark above = sf_alloc_items_end(record);
    if (sf_watermark_compare(above, v->mark) > 0)
        v->mark = above;
}

/* Creates the objects of the state's pending applies. */
static enum sf_err finish_pending(struct verify *v)
{
    for (size_t i = 0; v->state != NULL && i < v->state->n_pending_applies; i++) {
        const sf_replay_record *record = v->state->pending_applies[i];
        char attempt[SF_ATTEMPT_ID_BYTES];
        struct sf_buf key = {0};
        struct sf_buf body = {0};
        enum sf_err err = SF_OK;

        cover(v, record);
        v->report->pending_applies++;
        sf_attempts_next(v->attempts, attempt);
        sf_alloc_record_encode(record, attempt, &body);
        sf_alloc_replay_key(record->transport_lookup_key, &key);
        struct sf_put put = {
            .key = sf_buf_view(&key), .body = sf_buf_view(&body), .cond = SF_PUT_ABSENT};
        if (!v->dry_run)
            err = sf_store_put_wait(v->store, v->sched, &put);
        sf_buf_fini(&key);
        sf_buf_fini(&body);
        if (err != SF_OK && err != SF_ERR_PRECONDITION)
            return sf_diag_set(v->diag, err, "a pending apply cannot be finished");
    }
    return SF_OK;
}

/* Takes one replay-success object into account. */
static enum sf_err scan_one(struct verify *v, struct sf_view object_key)
{
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    ProtobufCMessage *message = NULL;
    enum sf_err err =
        sf_durable_read_wait(v->store, v->sched, object_key,
                             &searchfabric__v1__allocator_replay_success_object__descriptor, arena,
                             v->diag, &message, NULL);

    if (err == SF_OK && !sf_alloc_record_is_at((const sf_replay_record *)message, object_key))
        err = sf_diag_set(v->diag, SF_INTERNAL, "result %.*s is not whole, or not its key's",
                          (int)object_key.len, (const char *)object_key.ptr);
    if (err == SF_OK) {
        const sf_replay_record *record = (const sf_replay_record *)message;
        if (record->namespace_id == v->collection.namespace_id.v &&
            record->collection_id == v->collection.collection_id.v) {
            v->report->replay_objects++;
            cover(v, record);
        }
    } else if (err == SF_ERR_NOT_FOUND) {
        err = SF_OK; /* removed by retention meanwhile */
    }
    sf_arena_destroy(arena);
    return err;
}

static enum sf_err scan_page(void *user, const struct sf_list_entry *entries, size_t count)
{
    enum sf_err err = SF_OK;

    for (size_t i = 0; err == SF_OK && i < count; i++)
        err = scan_one(user, entries[i].key);
    return err;
}

static enum sf_err scan(struct verify *v)
{
    enum sf_err err =
        sf_alloc_each_page_wait(v->store, v->sched, SF_ALLOC_REPLAY_PREFIX, scan_page, v);

    if (err != SF_OK && v->diag->err == SF_OK)
        sf_diag_set(v->diag, err, "replay objects cannot be listed");
    return err;
}

/* Writes the reconciled state under the condition of what was read. */
static enum sf_err write_state(struct verify *v, int64_t now_unix_ms)
{
    Searchfabric__V1__AllocatorStateObject fresh = SEARCHFABRIC__V1__ALLOCATOR_STATE_OBJECT__INIT;
    Searchfabric__V1__AllocatorStateObject *state = v->state == NULL ? &fresh : v->state;
    char attempt[SF_ATTEMPT_ID_BYTES];
    struct sf_buf key = {0};
    struct sf_buf body = {0};

    sf_attempts_next(v->attempts, attempt);
    state->attempt_id = attempt;
    state->namespace_id = v->collection.namespace_id.v;
    state->collection_id = v->collection.collection_id.v;
    state->next_doc_id = v->report->next_after;
    state->allocation_epoch =
        1 + (state->allocation_epoch > v->epoch ? state->allocation_epoch : v->epoch);
    state->allocator_state_version =
        1 +
        (state->allocator_state_version > v->version ? state->allocator_state_version : v->version);
    state->owner_id = v->attempts->process;
    state->n_pending_applies = 0;
    state->lease = NULL; /* its range lies below next_doc_id; the new epoch ends it */
    if (state->updated_at_unix_ms < now_unix_ms)
        state->updated_at_unix_ms = now_unix_ms;
    if (state->updated_at_unix_ms < v->restored_at_unix_ms)
        state->updated_at_unix_ms = v->restored_at_unix_ms;
    sf_alloc_state_key(v->collection, &key);
    sf_durable_encode(&state->base, &body, NULL);
    struct sf_put put = {.key = sf_buf_view(&key),
                         .body = sf_buf_view(&body),
                         .cond = v->state == NULL ? SF_PUT_ABSENT : SF_PUT_MATCH,
                         .match = v->etag};
    enum sf_err err = sf_store_put_wait(v->store, v->sched, &put);
    sf_buf_fini(&key);
    sf_buf_fini(&body);
    if (err != SF_OK)
        sf_diag_set(v->diag, err, "the reconciled state was not written: %s",
                    sf_err_info(err)->meaning);
    return err;
}

enum sf_err sf_allocator_verify_wait(struct sf_store *store, struct sf_sched *sched,
                                     struct sf_attempts *attempts, int64_t now_unix_ms,
                                     struct sf_collection_ref collection, bool dry_run,
                                     struct sf_diag *diag,
                                     struct sf_allocator_verification *out_report)
{
    struct verify v = {.store = store,
                       .sched = sched,
                       .attempts = attempts,
                       .collection = collection,
                       .dry_run = dry_run,
                       .arena = sf_arena_new(SF_ALLOC_DECODE_BYTES),
                       .diag = diag,
                       .report = out_report};

    *out_report = (struct sf_allocator_verification){0};
    enum sf_err err = read_state(&v);
    if (err == SF_OK) {
        out_report->state_found = v.state != NULL;
        sf_watermark_text(v.mark, out_report->next_before);
        err = read_mark(store, sched, v.arena, diag, &v.restored_at_unix_ms);
    }
    if (err == SF_OK)
        err = finish_pending(&v);
    if (err == SF_OK)
        err = scan(&v);
    if (err == SF_OK) {
        sf_watermark_text(v.mark, out_report->next_after);
        if (!dry_run)
            err = write_state(&v, now_unix_ms);
    }
    sf_arena_destroy(v.arena);
    return err == SF_ERR_CORRUPT ? SF_INTERNAL : err;
}

enum sf_err sf_allocator_restore_mark_wait(struct sf_store *store, struct sf_sched *sched,
                                           struct sf_attempts *attempts, int64_t now_unix_ms,
                                           const char *operator_name, const char *reason)
{
    Searchfabric__V1__AllocRestoreMarkObject mark =
        SEARCHFABRIC__V1__ALLOC_RESTORE_MARK_OBJECT__INIT;
    char attempt[SF_ATTEMPT_ID_BYTES];
    struct sf_buf body = {0};
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    int64_t standing = 0;

    /* What an earlier mark closed stays closed, whatever the clock says now. One that does not
     * verify closes everything; this one takes its place. */
    enum sf_err err = read_mark(store, sched, arena, NULL, &standing);
    sf_arena_destroy(arena);
    if (err != SF_OK && err != SF_INTERNAL)
        return err;
    sf_attempts_next(attempts, attempt);
    mark.attempt_id = attempt;
    mark.restored_at_unix_ms = standing > now_unix_ms ? standing : now_unix_ms;
    mark.operator_name = (char *)operator_name;
    mark.reason = (char *)reason;
    sf_durable_encode(&mark.base, &body, NULL);
    struct sf_put put = {.key = sf_view_str(SF_ALLOC_RESTORE_MARK_KEY),
                         .body = sf_buf_view(&body),
                         .cond = SF_PUT_ANY};
    err = sf_store_put_wait(store, sched, &put);
    sf_buf_fini(&body);
    return err;
}
