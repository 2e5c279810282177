/*
 * Model: the object lists every key that is being deleted or in doubt. It is swapped before a
 * batch's deletes are sent, so whoever swaps it next meets the keys and leaves them alone for an
 * hour: by then an earlier process's delete has landed or never will. That process itself stops
 * sending a minute after its swap, by a clock that counts suspension, and its next swap fails.
 *
 * From the swap on nobody else deletes what it lists, so the sender reads each object once more
 * then: one that was removed since it was looked at, and perhaps made anew, is left alone.
 *
 * Who asks for a key never needs the list: a request runs afresh only when its object is gone, and
 * then the one delete that was under way has landed.
 */
#include "allocator/allocator_removals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/mutant.h"

/* A listing of a key by which it is, or was, left alone. */
struct doubt {
    char key[SF_SHA256_HEX_BYTES];       /* transport_lookup_key */
    char listed_by[SF_ATTEMPT_ID_BYTES]; /* the swap that listed it first */
    int64_t until_mono_ms;               /* how long */
    bool seen;                           /* the object that was read last lists it */
};

struct sf_alloc_removals {
    struct sf_allocator *allocator;    /* whose */
    struct doubt *doubts;              /* owned array */
    size_t count;                      /* of them */
    char attempt[SF_ATTEMPT_ID_BYTES]; /* of this process's last swap */
    int64_t swapped_mono_ms;           /* when it was sent */
};

struct sf_alloc_removals *sf_alloc_removals_new(struct sf_allocator *allocator)
{
    struct sf_alloc_removals *r = sf_calloc(1, sizeof(*r));

    r->allocator = allocator;
    r->doubts = sf_calloc(SF_LIMIT_ALLOC_REMOVALS, sizeof(*r->doubts));
    return r;
}

void sf_alloc_removals_destroy(struct sf_alloc_removals *r)
{
    if (r == NULL)
        return;
    free(r->doubts);
    free(r);
}

static int64_t now_ms(const struct sf_alloc_removals *r)
{
    return sf_clock_mono_ms(r->allocator->deps.clock);
}

static struct doubt *find(struct sf_alloc_removals *r, const char *key, const char *listed_by)
{
    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->doubts[i].key, key) == 0 && strcmp(r->doubts[i].listed_by, listed_by) == 0)
            return &r->doubts[i];
    return NULL;
}

/* Forgets listings that are over, unless the object still carries them: their hour does not begin
 * again. */
static void expire(struct sf_alloc_removals *r)
{
    int64_t now = now_ms(r);
    size_t left = 0;

    for (size_t i = 0; i < r->count; i++)
        if (r->doubts[i].until_mono_ms > now || r->doubts[i].seen)
            r->doubts[left++] = r->doubts[i];
    r->count = left;
}

bool sf_alloc_removals_in_doubt(struct sf_alloc_removals *r, const char *key)
{
    int64_t now = now_ms(r);

    for (size_t i = 0; i < r->count && !SF_MUTANT(alloc_repeats_deletes); i++)
        if (r->doubts[i].until_mono_ms > now && strcmp(r->doubts[i].key, key) == 0)
            return true;
    return false;
}

/* Leaves the key alone for an hour; room was looked for. */
static void doubt_add(struct sf_alloc_removals *r, const char *key, const char *listed_by)
{
    struct doubt *doubt = find(r, key, listed_by);

    if (doubt == NULL) {
        SF_ASSERT(r->count < SF_LIMIT_ALLOC_REMOVALS && strlen(key) == SF_SHA256_HEX_BYTES - 1);
        doubt = &r->doubts[r->count++];
        memcpy(doubt->key, key, sizeof(doubt->key));
        (void)snprintf(doubt->listed_by, sizeof(doubt->listed_by), "%s", listed_by);
    }
    doubt->seen = true;
    doubt->until_mono_ms = now_ms(r) + SF_ALLOC_DELETE_DOUBT_MS;
}

void sf_alloc_removals_doubt(struct sf_alloc_removals *r, const char *key)
{
    doubt_add(r, key, r->attempt);
}

bool sf_alloc_removals_may_send(struct sf_alloc_removals *r)
{
    return r->allocator->deps.store->exclusive || SF_MUTANT(alloc_deletes_late) ||
           now_ms(r) - r->swapped_mono_ms < SF_ALLOC_DELETE_SEND_MS;
}

/* ---- the object ---- */

/* Takes one listing of another process over, unless it is known. */
static enum sf_err adopt_one(struct sf_alloc_removals *r,
                             const Searchfabric__V1__AllocatorRemoval *removal,
                             struct sf_diag *diag)
{
    const char *key = removal->transport_lookup_key;
    struct doubt *known = find(r, key, removal->listed_by);

    if (known != NULL)
        known->seen = true;
    else if (strlen(key) != SF_SHA256_HEX_BYTES - 1 || r->count == SF_LIMIT_ALLOC_REMOVALS)
        return sf_diag_set(diag, SF_ERR_LIMIT, "too many deletes are in doubt");
    else if (!SF_MUTANT(alloc_ignores_removals))
        doubt_add(r, key, removal->listed_by);
    return SF_OK;
}

/* Reads what stands and takes over what another process listed. *out_found false: nothing stands.
 */
static enum sf_err adopt(struct sf_alloc_removals *r, struct sf_diag *diag, bool *out_found,
                         struct sf_etag *out_etag)
{
    const struct sf_allocator_deps *deps = &r->allocator->deps;
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    ProtobufCMessage *message = NULL;
    enum sf_err err = sf_durable_read_wait(
        deps->store, deps->sched, sf_view_str(SF_ALLOC_REMOVALS_KEY),
        &searchfabric__v1__allocator_removals_object__descriptor, arena, diag, &message, out_etag);

    *out_found = err == SF_OK;
    if (err == SF_ERR_NOT_FOUND)
        err = SF_OK;
    for (size_t i = 0; i < r->count; i++)
        r->doubts[i].seen = false;
    if (*out_found) {
        const Searchfabric__V1__AllocatorRemovalsObject *object = (const void *)message;
        bool own = strcmp(object->owner_id, deps->attempts->process) == 0;
        for (size_t i = 0; !own && err == SF_OK && i < object->n_removals; i++)
            err = adopt_one(r, object->removals[i], diag);
    }
    expire(r);
    sf_arena_destroy(arena);
    return err;
}

/* Appends a key to the object. */
static void list_key(Searchfabric__V1__AllocatorRemovalsObject *object,
                     Searchfabric__V1__AllocatorRemoval *entry, const char *key,
                     const char *listed_by, int64_t leave_until_unix_ms)
{
    searchfabric__v1__allocator_removal__init(entry);
    entry->transport_lookup_key = (char *)key;
    entry->listed_by = (char *)listed_by;
    entry->leave_until_unix_ms = leave_until_unix_ms;
    object->removals[object->n_removals++] = entry;
}

/* Swaps the list of doubts and `keys` in place of what `match` names (NULL = nothing). */
static enum sf_err swap(struct sf_alloc_removals *r, const char *const *keys, size_t count,
                        const struct sf_etag *match)
{
    const struct sf_allocator_deps *deps = &r->allocator->deps;
    Searchfabric__V1__AllocatorRemovalsObject object =
        SEARCHFABRIC__V1__ALLOCATOR_REMOVALS_OBJECT__INIT;
    Searchfabric__V1__AllocatorRemoval *entries = sf_calloc(r->count + count, sizeof(*entries));
    int64_t unix_ms = sf_clock_unix_ms(deps->clock);
    int64_t now = now_ms(r);
    struct sf_buf body = {0};

    sf_attempts_next(deps->attempts, r->attempt);
    object.removals = sf_calloc(r->count + count, sizeof(*object.removals));
    for (size_t i = 0; i < r->count; i++)
        if (r->doubts[i].until_mono_ms > now)
            list_key(&object, &entries[object.n_removals], r->doubts[i].key, r->doubts[i].listed_by,
                     unix_ms + r->doubts[i].until_mono_ms - now);
    for (size_t i = 0; i < count; i++)
        if (!sf_alloc_removals_in_doubt(r, keys[i])) /* else it is not deleted now */
            list_key(&object, &entries[object.n_removals], keys[i], r->attempt,
                     unix_ms + SF_ALLOC_DELETE_DOUBT_MS);
    object.attempt_id = r->attempt;
    object.owner_id = deps->attempts->process;
    object.updated_at_unix_ms = unix_ms;
    sf_durable_encode(&object.base, &body, NULL);
    struct sf_put put = {.key = sf_view_str(SF_ALLOC_REMOVALS_KEY),
                         .body = sf_buf_view(&body),
                         .cond = match == NULL ? SF_PUT_ABSENT : SF_PUT_MATCH};
    if (match != NULL)
        put.match = *match;
    r->swapped_mono_ms = now; /* of the sending: the swap stands later at the earliest */
    enum sf_err err = sf_store_put_wait(deps->store, deps->sched, &put);
    sf_buf_fini(&body);
    free(object.removals);
    free(entries);
    return err;
}

enum sf_err sf_alloc_removals_begin(struct sf_alloc_removals *r, const char *const *keys,
                                    size_t count, struct sf_diag *diag)
{
    struct sf_etag etag;
    bool found = false;

    if (r->allocator->deps.store->exclusive) {
        for (size_t i = 0; i < r->count; i++)
            r->doubts[i].seen = false;
        expire(r);
        return r->count + count > SF_LIMIT_ALLOC_REMOVALS
                   ? sf_diag_set(diag, SF_ERR_LIMIT, "too many deletes are in doubt")
                   : SF_OK;
    }
    enum sf_err err = adopt(r, diag, &found, &etag);
    if (err == SF_OK && r->count + count > SF_LIMIT_ALLOC_REMOVALS)
        err = SF_ERR_LIMIT;
    if (err == SF_OK)
        err = swap(r, keys, count, found ? &etag : NULL);
    if (err != SF_OK)
        sf_diag_set(diag, err, "the list of removals was not written: %s",
                    sf_err_info(err)->meaning);
    return err;
}
