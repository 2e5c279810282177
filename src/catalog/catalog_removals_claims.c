/*
 * Model: a claim keeps a removal and a command of the same key apart: identities decide lanes, so
 * this is the command's lane. Commands share a claim, a removal has it alone. A delete whose end is
 * not known may land within the hour, on a clock that counts suspension; until then nothing else
 * touches the key. Claims of idle keys take no memory.
 */
#include "catalog/catalog_removals.h"

#include <stdio.h>
#include <stdlib.h>

/* One key. */
struct claim {
    unsigned running; /* commands under way */
    bool removing;    /* a removal is */
    int64_t until_ms; /* a delete is in doubt until then, monotonic; 0 = none */
};

struct sf_catalog_claims {
    pthread_mutex_t mu;
    struct sf_map *items; /* key -> struct claim, owned */
    size_t doubts;        /* with until_ms */
};

struct sf_catalog_claims *sf_catalog_claims_new(void)
{
    struct sf_catalog_claims *claims = sf_calloc(1, sizeof(*claims));
    pthread_mutex_init(&claims->mu, NULL);
    claims->items = sf_map_new();
    return claims;
}

void sf_catalog_claims_destroy(struct sf_catalog_claims *claims)
{
    if (claims == NULL)
        return;
    sf_map_destroy(claims->items, free);
    pthread_mutex_destroy(&claims->mu);
    free(claims);
}

void sf_catalog_claim_of_business(const char *kind_name, const char *lookup_key,
                                  char out[SF_CATALOG_CLAIM_BYTES])
{
    int len = snprintf(out, SF_CATALOG_CLAIM_BYTES, "%s/%s", kind_name, lookup_key);
    SF_ASSERT(len > 0 && len < SF_CATALOG_CLAIM_BYTES);
}

/* The claim of a key, made when absent. */
static struct claim *find_locked(struct sf_catalog_claims *claims, const char *key)
{
    struct claim *claim = sf_map_get(claims->items, sf_view_str(key));
    if (claim == NULL) {
        claim = sf_calloc(1, sizeof(*claim));
        sf_map_put(claims->items, sf_view_str(key), claim);
    }
    return claim;
}

/* Is a delete of it in doubt? Forgets a doubt that is over. */
static bool in_doubt_locked(struct sf_catalog *catalog, struct claim *claim)
{
    if (claim->until_ms != 0 && sf_clock_mono_ms(catalog->deps.clock) >= claim->until_ms) {
        claim->until_ms = 0;
        catalog->claims->doubts--;
    }
    return claim->until_ms != 0;
}

static void doubt_locked(struct sf_catalog *catalog, struct claim *claim)
{
    catalog->claims->doubts += claim->until_ms == 0 ? 1 : 0;
    claim->until_ms = sf_clock_mono_ms(catalog->deps.clock) + SF_CATALOG_DELETE_DOUBT_MS;
}

static bool is_idle(const struct claim *claim)
{
    return claim->running == 0 && !claim->removing && claim->until_ms == 0;
}

static void drop_idle_locked(struct sf_catalog_claims *claims, const char *key, struct claim *claim)
{
    if (is_idle(claim))
        free(sf_map_del(claims->items, sf_view_str(key)));
}

bool sf_catalog_claim_command(struct sf_catalog *catalog, const char *key)
{
    struct sf_catalog_claims *claims = catalog->claims;
    pthread_mutex_lock(&claims->mu);
    struct claim *claim = find_locked(claims, key);
    bool free_to_run =
        (!claim->removing || SF_MUTANT(ccs_no_claims)) && !in_doubt_locked(catalog, claim);
    claim->running += free_to_run ? 1 : 0;
    pthread_mutex_unlock(&claims->mu);
    return free_to_run;
}

void sf_catalog_unclaim_command(struct sf_catalog *catalog, const char *key)
{
    struct sf_catalog_claims *claims = catalog->claims;
    pthread_mutex_lock(&claims->mu);
    struct claim *claim = find_locked(claims, key);
    SF_ASSERT(claim->running > 0);
    claim->running--;
    drop_idle_locked(claims, key, claim);
    pthread_mutex_unlock(&claims->mu);
}

/* Doubts are bounded, so that the list of them is. */
static bool has_room_locked(struct sf_catalog *catalog)
{
    struct sf_catalog_claims *claims = catalog->claims;
    struct sf_map_iter iter = {0};
    if (claims->doubts < SF_CATALOG_DELETES_IN_DOUBT)
        return true;
    while (sf_map_next(claims->items, &iter)) /* those that are over do not count */
        (void)in_doubt_locked(catalog, iter.value);
    return claims->doubts < SF_CATALOG_DELETES_IN_DOUBT;
}

bool sf_catalog_claim_removal(struct sf_catalog *catalog, const char *key)
{
    struct sf_catalog_claims *claims = catalog->claims;
    pthread_mutex_lock(&claims->mu);
    struct claim *claim = find_locked(claims, key);
    bool mine = (claim->running == 0 || SF_MUTANT(ccs_no_claims)) && !claim->removing &&
                !in_doubt_locked(catalog, claim) && has_room_locked(catalog);
    claim->removing = claim->removing || mine;
    drop_idle_locked(claims, key, claim);
    pthread_mutex_unlock(&claims->mu);
    return mine;
}

void sf_catalog_unclaim_removal(struct sf_catalog *catalog, const char *key, bool doubt)
{
    struct sf_catalog_claims *claims = catalog->claims;
    pthread_mutex_lock(&claims->mu);
    struct claim *claim = find_locked(claims, key);
    claim->removing = false;
    if (doubt)
        doubt_locked(catalog, claim);
    drop_idle_locked(claims, key, claim);
    pthread_mutex_unlock(&claims->mu);
}

void sf_catalog_claim_doubt(struct sf_catalog *catalog, const char *key)
{
    struct sf_catalog_claims *claims = catalog->claims;
    pthread_mutex_lock(&claims->mu);
    doubt_locked(catalog, find_locked(claims, key));
    pthread_mutex_unlock(&claims->mu);
}

int64_t sf_catalog_claim_wait_ms(struct sf_catalog *catalog, const char *key)
{
    struct sf_catalog_claims *claims = catalog->claims;
    int64_t wait_ms = 0;
    pthread_mutex_lock(&claims->mu);
    struct claim *claim = sf_map_get(claims->items, sf_view_str(key));
    if (claim != NULL && in_doubt_locked(catalog, claim))
        wait_ms = claim->until_ms - sf_clock_mono_ms(catalog->deps.clock);
    pthread_mutex_unlock(&claims->mu);
    return wait_ms;
}

const char **sf_catalog_claims_list(struct sf_catalog *catalog, struct sf_arena *arena,
                                    size_t *out_count)
{
    struct sf_catalog_claims *claims = catalog->claims;
    struct sf_map_iter iter = {0};
    pthread_mutex_lock(&claims->mu);
    const char **keys = sf_arena_alloc(arena, (sf_map_count(claims->items) + 1) * sizeof(*keys));
    *out_count = 0;
    while (keys != NULL && sf_map_next(claims->items, &iter)) {
        struct claim *claim = iter.value;
        bool doubt = in_doubt_locked(catalog, claim);
        if (doubt || claim->removing)
            keys[(*out_count)++] = sf_arena_str(arena, iter.key);
        else if (is_idle(claim))
            free(sf_map_del(claims->items, iter.key));
    }
    pthread_mutex_unlock(&claims->mu);
    return sf_arena_overflowed(arena) ? NULL : keys;
}
