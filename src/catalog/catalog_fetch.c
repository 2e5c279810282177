/*
 * Model: a round starts all its reads and waits for the last one. What the store could not answer
 * is asked again after a pause, a few times. Reads ahead are a hint: whoever reads a key takes what
 * is there or asks the store, so a read ahead can be old, never wrong for long: conditions of later
 * puts name the etag that was read.
 */
#include "catalog/catalog_fetch.h"

#include <stdlib.h>

void sf_catalog_fetch_fini(struct sf_catalog_fetch *fetch)
{
    sf_buf_fini(&fetch->key);
    sf_buf_fini(&fetch->body);
}

/* ---- rounds ------------------------------------------------------------------------------- */

struct round {
    _Atomic size_t open;     /* reads under way, and one for the starter */
    struct sf_waiter waiter; /* opened by the last */
};

struct reading {
    struct sf_get get;
    struct round *round;
};

static void one_less(struct round *round)
{
    if (atomic_fetch_sub(&round->open, 1) == 1)
        sf_waiter_wake(&round->waiter);
}

static void reading_done(struct sf_get *get)
{
    one_less(SF_CONTAINER_OF(get, struct reading, get)->round);
}

/* Reads every item that is still SF_ERR_UNAVAILABLE; true when one stays so. */
static bool run_round(struct sf_catalog *catalog, struct sf_sched *sched,
                      struct sf_catalog_fetch *items, size_t count, struct reading *readings)
{
    struct round round;
    bool again = false;
    atomic_init(&round.open, 1);
    sf_waiter_init(&round.waiter, sched);
    for (size_t i = 0; i < count; i++) {
        if (items[i].err != SF_ERR_UNAVAILABLE)
            continue;
        readings[i] = (struct reading){
            .get = {.key = sf_buf_view(&items[i].key), .done = reading_done}, .round = &round};
        atomic_fetch_add(&round.open, 1);
        sf_store_get(catalog->deps.store, &readings[i].get);
    }
    one_less(&round);
    sf_waiter_wait(&round.waiter);
    sf_waiter_fini(&round.waiter);
    for (size_t i = 0; i < count; i++) {
        if (items[i].err != SF_ERR_UNAVAILABLE)
            continue;
        sf_buf_fini(&items[i].body);
        items[i].err = readings[i].get.err;
        items[i].body = readings[i].get.body;
        items[i].etag = readings[i].get.etag;
        again = again || items[i].err == SF_ERR_UNAVAILABLE;
    }
    return again;
}

void sf_catalog_fetch(struct sf_catalog *catalog, struct sf_sched *sched,
                      struct sf_catalog_fetch *items, size_t count)
{
    SF_ASSERT(count <= SF_CATALOG_FETCH_MAX);
    struct reading *readings = sf_calloc(count + 1, sizeof(*readings));
    for (size_t i = 0; i < count; i++)
        items[i].err = SF_ERR_UNAVAILABLE;
    for (unsigned tries = 1; count != 0 && tries <= SF_CATALOG_PUT_TRIES; tries++) {
        if (!run_round(catalog, sched, items, count, readings) || sf_catalog_ending(catalog))
            break;
        sf_catalog_pause(catalog, sched, tries);
    }
    free(readings);
}

/* ---- reads ahead -------------------------------------------------------------------------- */

struct sf_catalog_ahead {
    struct sf_map *items; /* key -> struct sf_catalog_fetch, owned */
};

static void item_destroy(void *item)
{
    sf_catalog_fetch_fini(item);
    free(item);
}

struct sf_catalog_ahead *sf_catalog_ahead_new(void)
{
    struct sf_catalog_ahead *ahead = sf_calloc(1, sizeof(*ahead));
    ahead->items = sf_map_new();
    return ahead;
}

void sf_catalog_ahead_destroy(struct sf_catalog_ahead *ahead)
{
    if (ahead == NULL)
        return;
    sf_map_destroy(ahead->items, item_destroy);
    free(ahead);
}

static void fetch_some(struct sf_catalog *catalog, struct sf_sched *sched,
                       struct sf_catalog_ahead *ahead, const struct sf_buf *keys, size_t count)
{
    struct sf_catalog_fetch *items = sf_calloc(count + 1, sizeof(*items));
    for (size_t i = 0; i < count; i++)
        sf_buf_append(&items[i].key, keys[i].data, keys[i].len);
    sf_catalog_fetch(catalog, sched, items, count);
    for (size_t i = 0; i < count; i++) {
        if (items[i].err != SF_OK) {
            sf_catalog_fetch_fini(&items[i]);
            continue;
        }
        struct sf_catalog_fetch *kept = sf_malloc(sizeof(*kept));
        *kept = items[i];
        void *old = sf_map_put(ahead->items, sf_buf_view(&kept->key), kept);
        if (old != NULL)
            item_destroy(old);
    }
    free(items);
}

void sf_catalog_ahead_forget(struct sf_catalog_ahead *ahead)
{
    sf_map_clear(ahead->items, item_destroy);
}

void sf_catalog_ahead_add(struct sf_catalog *catalog, struct sf_sched *sched,
                          struct sf_catalog_ahead *ahead, const struct sf_buf *keys, size_t count)
{
    for (size_t i = 0; i < count; i += SF_CATALOG_FETCH_MAX) {
        size_t some = count - i < SF_CATALOG_FETCH_MAX ? count - i : SF_CATALOG_FETCH_MAX;
        fetch_some(catalog, sched, ahead, keys + i, some);
    }
}

void sf_catalog_ahead_fetch(struct sf_catalog *catalog, struct sf_sched *sched,
                            const struct sf_buf *keys, size_t count)
{
    if (catalog->ahead == NULL)
        return;
    sf_catalog_ahead_forget(catalog->ahead);
    sf_catalog_ahead_add(catalog, sched, catalog->ahead, keys, count);
}

bool sf_catalog_ahead_take(struct sf_catalog_ahead *ahead, struct sf_view key,
                           struct sf_buf *out_body, struct sf_etag *out_etag)
{
    struct sf_catalog_fetch *item = ahead == NULL ? NULL : sf_map_del(ahead->items, key);
    if (item == NULL)
        return false;
    sf_buf_fini(out_body);
    *out_body = item->body;
    if (out_etag != NULL)
        *out_etag = item->etag;
    item->body = (struct sf_buf){0};
    item_destroy(item);
    return true;
}

/* ---- pointers ----------------------------------------------------------------------------- */

/* Puts what is missing in one batch, and brings each put to its end. */
static enum sf_err put_missing(struct sf_catalog *catalog, struct sf_sched *sched,
                               struct sf_catalog_put **missing, size_t count)
{
    struct sf_put *puts = sf_calloc(count + 1, sizeof(*puts));
    struct sf_batch batch = {.puts = puts, .count = count};
    for (size_t i = 0; i < count; i++)
        sf_catalog_put_fill(missing[i], 0, (uint32_t)i, &puts[i]);
    if (count != 0)
        sf_store_submit_wait(catalog->deps.store, sched, &batch);
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < count && err == SF_OK; i++) {
        err = sf_catalog_put_settle(catalog, sched, missing[i], puts[i].err, &puts[i].etag, 0);
        if (err == SF_OK && missing[i]->state == SF_CATALOG_PUT_UNSENT)
            err = SF_ERR_STOPPED;
    }
    free(puts);
    return err;
}

/* Prepares the swap of an elder business pointer. */
static bool replaces(const struct sf_catalog_fetch *look, struct sf_catalog_put *put)
{
    static const char business[] = "catalog-replay-business/";
    if (look->key.len < sizeof(business) ||
        memcmp(look->key.data, business, sizeof(business) - 1) != 0 ||
        !sf_catalog_pointer_elder(sf_buf_view(&look->body), sf_buf_view(&put->body)))
        return false;
    put->cond = SF_PUT_MATCH;
    put->match = look->etag;
    return true;
}

enum sf_err sf_catalog_pointers_all(struct sf_catalog *catalog, struct sf_sched *sched,
                                    SF_PB(CommandOutcomeObject) *const *outcomes, size_t count,
                                    uint64_t *out_missing)
{
    enum sf_err err = SF_OK;
    const size_t step = SF_CATALOG_FETCH_MAX / 2;
    struct sf_catalog_put(*puts)[2] = sf_calloc(step, sizeof(*puts));
    struct sf_catalog_fetch *looks = sf_calloc(SF_CATALOG_FETCH_MAX, sizeof(*looks));
    struct sf_catalog_put **missing = sf_calloc(SF_CATALOG_FETCH_MAX, sizeof(*missing));
    struct sf_catalog_put **whose = sf_calloc(SF_CATALOG_FETCH_MAX, sizeof(*whose));
    for (size_t from = 0; from < count && err == SF_OK; from += step) {
        size_t some = count - from < step ? count - from : step, n = 0, lacks = 0;
        for (size_t i = 0; i < some; i++) {
            size_t pointers = sf_catalog_pointer_puts(outcomes[from + i], puts[i]);
            for (size_t k = 0; k < pointers; k++, n++) {
                whose[n] = &puts[i][k];
                sf_buf_append(&looks[n].key, puts[i][k].key.data, puts[i][k].key.len);
            }
        }
        sf_catalog_fetch(catalog, sched, looks, n);
        for (size_t i = 0; i < n; i++) {
            if (looks[i].err != SF_OK || replaces(&looks[i], whose[i]))
                missing[lacks++] = whose[i];
            sf_catalog_fetch_fini(&looks[i]);
        }
        err = put_missing(catalog, sched, missing, lacks);
        *out_missing += lacks;
        for (size_t i = 0; i < some; i++) {
            sf_catalog_put_fini(&puts[i][0]);
            sf_catalog_put_fini(&puts[i][1]);
        }
    }
    free(puts);
    free(looks);
    free(missing);
    free(whose);
    return err;
}
