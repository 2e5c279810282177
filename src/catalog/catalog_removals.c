/*
 * Model: a DELETE has no condition. One that an owner has sent may land after it was killed or
 * taken over from, on what a later command wrote there by then. So, before the deletes of a batch:
 *
 *   1. the object is swapped to list every key that is being removed or in doubt
 *   2. the chain is looked at: a takeover after this point meets the list
 *
 * A new owner appends its takeover record first and reads the object then, so of every delete that
 * an elder owner sends either the new owner knows the key, or step 2 stops the elder one. It swaps
 * its epoch in, which ends the elder owner's next batch at step 1, and leaves the keys alone for an
 * hour; it lists them again with its own batches meanwhile. The hour holds only if the elder owner
 * sends nothing late: a batch ends ten minutes after it was begun, on a clock that counts
 * suspension (catalog_retention.c). What was deleted for certain drops out with the next swap, the
 * last of a round included.
 */
#include "catalog/catalog_removals.h"

#include <stdlib.h>

#include "catalog/catalog_checkpoint.h"

/* Reads the object; NULL = there is none. A newer owner's ends this one. */
static enum sf_err read_object(struct sf_catalog *catalog, struct sf_sched *sched,
                               struct sf_arena *arena, struct sf_diag *diag,
                               const SF_PB(CatalogRemovalsObject) * *out, struct sf_etag *out_etag)
{
    ProtobufCMessage *message = NULL;
    enum sf_err err = sf_catalog_read(catalog, sched, sf_view_str(SF_CATALOG_REMOVALS_KEY),
                                      &searchfabric__v1__catalog_removals_object__descriptor, false,
                                      arena, diag, &message, NULL, out_etag);
    *out = err == SF_OK ? (const SF_PB(CatalogRemovalsObject) *)message : NULL;
    if (err == SF_ERR_NOT_FOUND)
        return SF_OK;
    if (err == SF_OK && (*out)->owner_epoch > catalog->owner_epoch &&
        !SF_MUTANT(ccs_no_removals_elder)) {
        sf_catalog_depose(catalog, "removals", (*out)->owner_epoch);
        err = sf_diag_set(diag, SF_ERR_DEPOSED, "a newer owner took the catalog over");
    }
    return err;
}

/* The object as it is to stand; `keys` are claims. NULL: the arena is full. */
static SF_PB(CatalogRemovalsObject) *
    make_object(struct sf_catalog *catalog, const char **keys, size_t count, struct sf_arena *arena)
{
    SF_PB(CatalogRemovalsObject) *object = sf_arena_alloc(arena, sizeof(*object));
    char **identities = sf_arena_alloc(arena, (count + 1) * sizeof(*identities));
    char **business = sf_arena_alloc(arena, (count + 1) * sizeof(*business));
    if (object == NULL || identities == NULL || business == NULL)
        return NULL;
    searchfabric__v1__catalog_removals_object__init(object);
    object->format_version = SF_CATALOG_FORMAT_VERSION;
    object->owner_epoch = catalog->owner_epoch;
    object->updated_at_unix_ms = sf_clock_unix_ms(catalog->deps.clock);
    object->command_identities = identities;
    object->business_keys = business;
    for (size_t i = 0; i < count; i++) {
        if (strchr(keys[i], '/') == NULL)
            identities[object->n_command_identities++] = (char *)(uintptr_t)keys[i];
        else
            business[object->n_business_keys++] = (char *)(uintptr_t)keys[i];
    }
    return object;
}

/* Puts `object` in place of what `match` names (NULL = nothing). *out_stands false: another swap
 * came first. */
static enum sf_err put_object(struct sf_catalog *catalog, struct sf_sched *sched,
                              SF_PB(CatalogRemovalsObject) * object, const struct sf_etag *match,
                              bool *out_stands)
{
    char attempt_id[SF_ATTEMPT_ID_BYTES];
    struct sf_catalog_put put = {.cond = match == NULL ? SF_PUT_ABSENT : SF_PUT_MATCH};
    if (match != NULL)
        put.match = *match;
    sf_attempts_next(catalog->deps.attempts, attempt_id);
    object->attempt_id = attempt_id;
    sf_buf_append_str(&put.key, SF_CATALOG_REMOVALS_KEY);
    sf_catalog_put_encode(&put, &object->base, false, NULL);
    enum sf_err err = sf_catalog_put_run(catalog, sched, &put, SF_CATALOG_PUT_TRIES);
    if (err == SF_OK && put.state == SF_CATALOG_PUT_UNSENT)
        err = SF_ERR_UNAVAILABLE;
    *out_stands = err == SF_OK && put.state == SF_CATALOG_PUT_STANDS;
    sf_catalog_put_fini(&put);
    return err;
}

static void adopt_keys(struct sf_catalog *catalog, char **keys, size_t count)
{
    for (size_t i = 0; i < count && !SF_MUTANT(ccs_no_removals_fence); i++)
        sf_catalog_claim_doubt(catalog, keys[i]);
}

/* One try to swap the list of today's claims in; `create` when there is no object. */
static enum sf_err swap_once(struct sf_catalog *catalog, struct sf_sched *sched, bool create,
                             struct sf_arena *arena, struct sf_diag *diag, bool *out_done)
{
    const SF_PB(CatalogRemovalsObject) *stands = NULL;
    struct sf_etag etag;
    size_t count = 0;
    enum sf_err err = read_object(catalog, sched, arena, diag, &stands, &etag);
    *out_done = stands == NULL && !create;
    if (err != SF_OK || *out_done)
        return err;
    if (stands != NULL && stands->owner_epoch < catalog->owner_epoch) {
        adopt_keys(catalog, stands->command_identities, stands->n_command_identities);
        adopt_keys(catalog, stands->business_keys, stands->n_business_keys);
    }
    const char **keys = sf_catalog_claims_list(catalog, arena, &count);
    SF_PB(CatalogRemovalsObject) *object =
        keys == NULL ? NULL : make_object(catalog, keys, count, arena);
    if (object == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "no memory for the list of removals");
    err = put_object(catalog, sched, object, stands == NULL ? NULL : &etag, out_done);
    if (err == SF_OK && *out_done) {
        atomic_store(
            &catalog->removals_until_ms,
            count == 0 ? 0 : sf_clock_mono_ms(catalog->deps.clock) + SF_CATALOG_DELETE_DOUBT_MS);
        atomic_store(&catalog->removals_listed, count);
    }
    return err;
}

static enum sf_err swap(struct sf_catalog *catalog, struct sf_sched *sched, bool create,
                        struct sf_diag *diag)
{
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    enum sf_err err = SF_OK;
    bool done = false;
    for (unsigned tries = 0; err == SF_OK && !done; tries++) {
        sf_arena_reset(arena);
        err = tries < SF_CATALOG_REMOVALS_TRIES
                  ? swap_once(catalog, sched, create, arena, diag, &done)
                  : SF_ERR_UNAVAILABLE;
    }
    if (err != SF_OK && diag->err == SF_OK)
        sf_diag_set(diag, err, "cannot swap %s", SF_CATALOG_REMOVALS_KEY);
    sf_arena_destroy(arena);
    return err;
}

enum sf_err sf_catalog_removals_adopt(struct sf_catalog *catalog, struct sf_sched *sched,
                                      struct sf_diag *diag)
{
    if (catalog->deps.store->exclusive)
        return SF_OK;
    enum sf_err err = swap(catalog, sched, false, diag);
    if (err == SF_OK && atomic_load(&catalog->removals_listed) != 0)
        SF_LOG(INFO, "catalog_removals_in_doubt",
               SF_KV_U64("keys", atomic_load(&catalog->removals_listed)),
               SF_KV_I64("wait_ms", SF_CATALOG_DELETE_DOUBT_MS));
    return err;
}

enum sf_err sf_catalog_removals_begin(struct sf_catalog *catalog, struct sf_sched *sched,
                                      struct sf_diag *diag)
{
    if (catalog->deps.store->exclusive)
        return SF_OK;
    enum sf_err err = SF_MUTANT(ccs_removals_unlisted) ? SF_OK : swap(catalog, sched, true, diag);
    if (SF_MUTANT(ccs_no_removals_look))
        return err;
    return err == SF_OK ? sf_catalog_owner_check(catalog, sched, diag) : err;
}

bool sf_catalog_removals_over(struct sf_catalog *catalog)
{
    return atomic_load(&catalog->removals_listed) != 0 &&
           sf_clock_mono_ms(catalog->deps.clock) >= atomic_load(&catalog->removals_until_ms);
}

enum sf_err sf_catalog_removals_end(struct sf_catalog *catalog, struct sf_sched *sched,
                                    struct sf_diag *diag)
{
    uint64_t listed = atomic_load(&catalog->removals_listed);
    size_t count = 0;
    if (listed == 0)
        return SF_OK;
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    bool known = sf_catalog_claims_list(catalog, arena, &count) != NULL;
    sf_arena_destroy(arena);
    return known && count >= listed ? SF_OK : swap(catalog, sched, false, diag);
}
