/*
 * Model: a state object that is lost or does not verify is made anew from what tells of its ids
 * the collection's results, what of the state can still be read, and, when asked for,
 * recovery segments and a bound of the operator's. One walk over the results serves all
 * collections. next_doc_id, version and epoch come to lie above everything found, so that no owner
 * of before goes on. What is whole and covers its results is left as it is; nothing is lowered.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_items.h"
#include "allocator/allocator_priv.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"
#include "object/compress.h"

/* What is known of one collection. */
struct found {
    struct sf_collection_ref collection; /* which */
    struct sf_watermark mark;            /* above every id found */
    uint64_t version;                    /* highest state version found */
    uint64_t epoch;                      /* highest allocation epoch found */
    uint64_t results;                    /* replay-success objects */
};

/* One rebuild. */
struct rebuild {
    const struct sf_allocator_rebuild_options *options; /* as given */
    struct sf_map *collections;                         /* (namespace, collection) -> found */
    struct sf_watermark floor;                          /* of the options */
    struct sf_arena *arena;                             /* of one object; reset between */
    struct sf_diag *diag;                               /* of the caller */
    uint64_t broken; /* results and segments that do not verify */
};

static bool wanted(const struct rebuild *b, struct sf_collection_ref ref)
{
    const struct sf_collection_ref *only = &b->options->only;

    return (only->namespace_id.v == 0 && only->collection_id.v == 0) ||
           (only->namespace_id.v == ref.namespace_id.v &&
            only->collection_id.v == ref.collection_id.v);
}

static struct found *found_of(struct rebuild *b, struct sf_collection_ref ref)
{
    const uint64_t key[2] = {ref.namespace_id.v, ref.collection_id.v};
    struct sf_view view = sf_view_bytes(key, sizeof(key));
    struct found *f = sf_map_get(b->collections, view);

    if (f == NULL) {
        f = sf_calloc(1, sizeof(*f));
        f->collection = ref;
        (void)sf_map_put(b->collections, view, f);
    }
    return f;
}

static void raise(struct found *f, struct sf_watermark mark, uint64_t version, uint64_t epoch)
{
    if (sf_watermark_compare(mark, f->mark) > 0)
        f->mark = mark;
    if (version > f->version)
        f->version = version;
    if (epoch > f->epoch)
        f->epoch = epoch;
}

/* ---- what tells of ids ---- */

static enum sf_err take_result(struct rebuild *b, struct sf_view key)
{
    ProtobufCMessage *message = NULL;
    enum sf_err err =
        sf_durable_read_wait(b->options->store, b->options->sched, key,
                             &searchfabric__v1__allocator_replay_success_object__descriptor,
                             b->arena, b->diag, &message, NULL);

    if (err == SF_ERR_NOT_FOUND)
        return SF_OK;
    if (err == SF_ERR_CORRUPT ||
        (err == SF_OK && !sf_alloc_record_is_at((const sf_replay_record *)message, key))) {
        sf_diag_init(b->diag);
        b->broken++;
        return SF_OK;
    }
    if (err != SF_OK)
        return err;
    const sf_replay_record *record = (const sf_replay_record *)message;
    const struct sf_collection_ref ref = {{record->namespace_id}, {record->collection_id}};
    if (!wanted(b, ref))
        return SF_OK;
    struct found *f = found_of(b, ref);
    f->results++;
    raise(f, sf_alloc_items_end(record), sf_alloc_record_version(record), record->allocation_epoch);
    return SF_OK;
}

/* The bound above the ids of a run; false: there is no such run. */
static bool run_end(const Searchfabric__V1__AllocatorIdRun *run, struct sf_watermark *out_end)
{
    if (run->count == 0 || run->count - 1 > UINT64_MAX - run->first_doc_id)
        return false;
    *out_end = sf_watermark_up((struct sf_watermark){.next = run->first_doc_id}, run->count);
    return true;
}

/* Takes the applies of one recovery segment. They only raise. */
static enum sf_err take_segment(struct rebuild *b, struct sf_view key)
{
    struct sf_buf stored = {0};
    struct sf_buf plain = {0};
    ProtobufCMessage *message = NULL;
    enum sf_err err = sf_store_get_wait(b->options->store, b->options->sched, key, &stored, NULL);

    if (err == SF_OK &&
        (sf_expand(sf_buf_view(&stored), &plain, NULL) != SF_OK ||
         sf_durable_decode(&searchfabric__v1__allocator_recovery_segment_object__descriptor,
                           sf_buf_view(&plain), b->arena, NULL, &message) != SF_OK))
        b->broken++;
    const Searchfabric__V1__AllocatorRecoverySegmentObject *segment = (const void *)message;
    for (size_t i = 0; segment != NULL && i < segment->n_entries; i++) {
        const Searchfabric__V1__AllocatorAppliedEntry *entry = segment->entries[i];
        const struct sf_collection_ref ref = {{entry->namespace_id}, {entry->collection_id}};
        for (size_t k = 0; wanted(b, ref) && k < entry->n_runs; k++) {
            struct sf_watermark end;
            if (!run_end(entry->runs[k], &end)) {
                b->broken++;
                continue;
            }
            raise(found_of(b, ref), end,
                  entry->lease_epoch != 0 ? entry->lease_epoch : entry->allocator_state_version,
                  entry->allocation_epoch);
        }
    }
    sf_buf_fini(&stored);
    sf_buf_fini(&plain);
    return err == SF_ERR_NOT_FOUND ? SF_OK : err;
}

/* Notes the collection that a state object's key names. */
static enum sf_err take_state_key(struct rebuild *b, struct sf_view key)
{
    size_t at = strlen(SF_ALLOC_STATE_PREFIX) + 3; /* two digits and a slash */
    struct sf_collection_ref ref = {{0}, {0}};
    struct sf_buf own = {0};

    if (key.len <= at)
        return SF_OK;
    const uint8_t *slash = memchr(key.ptr + at, '/', key.len - at);
    size_t tail = slash == NULL ? 0 : key.len - (size_t)(slash - key.ptr) - 1;
    if (tail <= strlen(".json") ||
        !sf_parse_u64(sf_view_bytes(key.ptr + at, (size_t)(slash - key.ptr) - at),
                      &ref.namespace_id.v) ||
        !sf_parse_u64(sf_view_bytes(slash + 1, tail - strlen(".json")), &ref.collection_id.v))
        return SF_OK;
    sf_alloc_state_key(ref, &own);
    if (sf_view_equal(sf_buf_view(&own), key) && wanted(b, ref))
        (void)found_of(b, ref);
    sf_buf_fini(&own);
    return SF_OK;
}

/* A walk over the keys below a prefix. */
struct keys {
    struct rebuild *b;                                          /* whose */
    enum sf_err (*take)(struct rebuild *b, struct sf_view key); /* gets each */
};

static enum sf_err take_page(void *user, const struct sf_list_entry *entries, size_t count)
{
    const struct keys *keys = user;
    enum sf_err err = SF_OK;

    for (size_t i = 0; err == SF_OK && i < count; i++) {
        sf_arena_reset(keys->b->arena);
        err = keys->take(keys->b, entries[i].key);
    }
    return err;
}

/* Calls `take` for every key below the prefix. */
static enum sf_err each_key(struct rebuild *b, const char *prefix,
                            enum sf_err (*take)(struct rebuild *b, struct sf_view key))
{
    struct keys keys = {.b = b, .take = take};
    enum sf_err err =
        sf_alloc_each_page_wait(b->options->store, b->options->sched, prefix, take_page, &keys);

    if (err != SF_OK && b->diag->err == SF_OK)
        sf_diag_set(b->diag, err, "objects below %s cannot be read", prefix);
    return err;
}

static enum sf_err gather(struct rebuild *b)
{
    enum sf_err err = SF_OK;

    if (b->options->only.namespace_id.v != 0)
        (void)found_of(b, b->options->only);
    else
        err = each_key(b, SF_ALLOC_STATE_PREFIX, take_state_key);
    if (err == SF_OK)
        err = each_key(b, SF_ALLOC_REPLAY_PREFIX, take_result);
    if (err == SF_OK && b->options->use_segments)
        err = each_key(b, SF_ALLOC_SEGMENT_PREFIX, take_segment);
    if (err == SF_OK && b->broken != 0 && b->options->floor == NULL)
        err = sf_diag_set(b->diag, SF_ERR_CORRUPT,
                          "%" PRIu64 " results or segments do not verify, their ids are not known: "
                          "name a bound above them (--floor)",
                          b->broken);
    return err;
}

/* ---- the state object ---- */

/* What stands for a collection. */
struct standing {
    bool exists;                                    /* an object is there, with `etag` */
    struct sf_etag etag;                            /* of it */
    Searchfabric__V1__AllocatorStateObject *object; /* NULL: it does not verify */
    struct sf_watermark mark;                       /* its next_doc_id */
};

static enum sf_err read_standing(struct rebuild *b, const struct found *f, struct standing *out)
{
    sf_arena_reset(b->arena);
    enum sf_err err =
        sf_alloc_state_read_wait(b->options->store, b->options->sched, f->collection, b->arena,
                                 NULL, &out->object, &out->mark, &out->etag);
    out->exists = err == SF_OK || err == SF_INTERNAL;
    if (!out->exists && err != SF_ERR_NOT_FOUND)
        return sf_diag_set(b->diag, err, "a state object cannot be read");
    return SF_OK;
}

/* Writes the state that covers what was found, under the condition of what stands. */
static enum sf_err write_state(struct rebuild *b, const struct found *f, struct sf_view key,
                               const struct standing *standing, const char *next)
{
    const struct sf_allocator_rebuild_options *o = b->options;
    Searchfabric__V1__AllocatorStateObject fresh = SEARCHFABRIC__V1__ALLOCATOR_STATE_OBJECT__INIT;
    Searchfabric__V1__AllocatorStateObject *state =
        standing->object == NULL ? &fresh : standing->object; /* its pending applies go on */
    char attempt[SF_ATTEMPT_ID_BYTES];
    struct sf_buf body = {0};

    sf_attempts_next(o->attempts, attempt);
    state->attempt_id = attempt;
    state->namespace_id = f->collection.namespace_id.v;
    state->collection_id = f->collection.collection_id.v;
    state->next_doc_id = (char *)next;
    state->allocation_epoch = 1 + f->epoch;
    state->allocator_state_version = 1 + f->version;
    state->owner_id = o->attempts->process;
    state->lease = NULL;
    if (state->updated_at_unix_ms < o->now_unix_ms)
        state->updated_at_unix_ms = o->now_unix_ms;
    sf_durable_encode(&state->base, &body, NULL);
    struct sf_put put = {.key = key,
                         .body = sf_buf_view(&body),
                         .cond = standing->exists ? SF_PUT_MATCH : SF_PUT_ABSENT,
                         .match = standing->etag};
    enum sf_err err = sf_store_put_wait(o->store, o->sched, &put);
    sf_buf_fini(&body);
    return err == SF_OK ? err
                        : sf_diag_set(b->diag, err, "the rebuilt state was not written: %s",
                                      sf_err_info(err)->meaning);
}

static enum sf_err rebuild_one(struct rebuild *b, struct found *f,
                               struct sf_allocator_rebuilt *report)
{
    struct standing standing = {0};
    struct sf_buf key = {0};

    sf_alloc_state_key(f->collection, &key);
    enum sf_err err = read_standing(b, f, &standing);
    *report = (struct sf_allocator_rebuilt){.collection = f->collection,
                                            .state_found = standing.exists,
                                            .state_whole = standing.object != NULL,
                                            .replay_objects = f->results};
    if (sf_watermark_compare(b->floor, f->mark) > 0)
        f->mark = b->floor;
    if (standing.object != NULL) {
        sf_watermark_text(standing.mark, report->next_before);
        /* a bound that the operator names stands for results that cannot be read */
        report->rebuilt =
            b->options->floor != NULL || sf_watermark_compare(f->mark, standing.mark) > 0;
        raise(f, standing.mark, standing.object->allocator_state_version,
              standing.object->allocation_epoch);
    } else { /* a lost state of a collection of which nothing tells was never used */
        report->rebuilt = standing.exists || f->mark.next != 0 || f->mark.exhausted;
    }
    sf_watermark_text(f->mark, report->next_after);
    if (err == SF_OK && report->rebuilt && !b->options->dry_run)
        err = write_state(b, f, sf_buf_view(&key), &standing, report->next_after);
    sf_buf_fini(&key);
    return err;
}

static int by_ref(const void *left, const void *right)
{
    const struct found *const *a = left;
    const struct found *const *b = right;
    uint64_t x = (*a)->collection.namespace_id.v;
    uint64_t y = (*b)->collection.namespace_id.v;

    if (x == y) {
        x = (*a)->collection.collection_id.v;
        y = (*b)->collection.collection_id.v;
    }
    return x < y ? -1 : x > y ? 1 : 0;
}

static enum sf_err rebuild_all(struct rebuild *b, sf_allocator_rebuilt_fn told, void *user)
{
    size_t count = 0;
    struct found **list = sf_malloc((sf_map_count(b->collections) + 1) * sizeof(struct found *));
    struct sf_map_iter iter = {0};
    enum sf_err err = SF_OK;

    while (sf_map_next(b->collections, &iter))
        list[count++] = iter.value;
    qsort(list, count, sizeof(struct found *), by_ref);
    for (size_t i = 0; err == SF_OK && i < count; i++) {
        struct sf_allocator_rebuilt report;
        err = rebuild_one(b, list[i], &report);
        if (err == SF_OK)
            told(user, &report);
    }
    free(list);
    return err;
}

enum sf_err sf_allocator_rebuild_wait(const struct sf_allocator_rebuild_options *options,
                                      struct sf_diag *diag, sf_allocator_rebuilt_fn told,
                                      void *user)
{
    struct rebuild b = {.options = options, .diag = diag};

    if (options->floor != NULL && !sf_watermark_parse(sf_view_str(options->floor), &b.floor))
        return sf_diag_set(diag, SF_INVALID_ARGUMENT,
                           "the floor is not a number of 0 to 18446744073709551616");
    b.collections = sf_map_new();
    b.arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    enum sf_err err = gather(&b);
    if (err == SF_OK)
        err = rebuild_all(&b, told, user);
    sf_arena_destroy(b.arena);
    sf_map_destroy(b.collections, free);
    return err == SF_ERR_CORRUPT ? SF_INTERNAL : err;
}
