/*
 * Model: a key's hash chooses one of a fixed number of shards, each with its own short lock, hash
 * table and two rings: facts that exist, and names that do not (one eighth of the room, so that
 * made-up names displace each other alone). A ring is a clock: a hit marks the entry, the hand
 * unmarks once and then evicts; a fresh entry is unmarked and stands behind the hand, so a scan
 * passes through without displacing what is asked for again. The hand's work under the lock is
 * bounded. Flights stand in a table of their own; to forget a key takes its flight out of the
 * table: it lands for those who already wait, and keeps nothing.
 */
#include "catalog/catalog_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "base/rng.h"

#define FLIGHT_SLOTS   64u
#define MIN_SLOTS      64u
#define MAX_CHANCES    256 /* entries that the hand passes over for one eviction */
#define NEGATIVE_SHARE 8u  /* one part in so many is room for names that are not bound */
#define BIGGEST_SHARE  4u  /* a value above one part in so many of its ring is not kept */
#define MALLOC_BYTES   32u /* of the two blocks of an entry */

enum ring_kind { RING_POSITIVE, RING_NEGATIVE, RING_COUNT };

struct entry {
    struct entry *chain;             /* same slot of the table */
    struct entry *prev, *next;       /* ring */
    struct sf_catalog_value *value;  /* held */
    uint64_t hash;                   /* of the key */
    struct sf_catalog_cache_key key; /* text points to `text` */
    enum ring_kind ring;             /* where it stands */
    bool marked;                     /* asked for since the hand last came by */
    uint8_t text[];                  /* of the key */
};

struct sf_catalog_flight {
    struct sf_catalog_flight *chain;        /* same slot; while it can be joined */
    struct sf_catalog_waiter *first, *last; /* who waits; the leader first */
    uint64_t hash;                          /* of the key */
    struct sf_catalog_cache_key key;        /* text points to `text` */
    bool forgotten;                         /* out of the table: keeps nothing */
    uint8_t text[];                         /* of the key */
};

struct ring {
    struct entry *hand; /* looked at next; NULL = empty */
    size_t bytes;       /* of its entries */
    size_t max_bytes;   /* immutable */
};

struct shard {
    pthread_mutex_t mu;
    struct entry **slots; /* chains; power of two */
    size_t slot_count;    /* of slots */
    size_t entry_count;   /* over both rings */
    struct ring rings[RING_COUNT];
    struct sf_catalog_flight *flights[FLIGHT_SLOTS]; /* chains */
    uint64_t hits, misses, waits, evictions;         /* counted */
};

struct sf_catalog_cache {
    uint64_t seed; /* of the hash, random: a peer cannot make keys collide */
    struct shard shards[SF_CATALOG_CACHE_SHARDS];
    struct sf_metric *metric_hits, *metric_misses, *metric_waits; /* NULL = none */
    struct sf_metric *metric_evictions, *metric_bytes;            /* NULL = none */
};

/* ---- values ------------------------------------------------------------------------------- */

struct sf_catalog_value *sf_catalog_value_new(uint64_t number, size_t len)
{
    struct sf_catalog_value *value = sf_malloc(sizeof(*value) + len);
    *value = (struct sf_catalog_value){.number = number, .len = len};
    atomic_init(&value->refs, 1);
    return value;
}

static struct sf_catalog_value *hold(struct sf_catalog_value *value)
{
    atomic_fetch_add_explicit(&value->refs, 1, memory_order_relaxed);
    return value;
}

void sf_catalog_value_drop(struct sf_catalog_value *value)
{
    if (value != NULL && atomic_fetch_sub_explicit(&value->refs, 1, memory_order_acq_rel) == 1)
        free(value);
}

/* ---- keys --------------------------------------------------------------------------------- */

static uint64_t hash_of(const struct sf_catalog_cache *cache,
                        const struct sf_catalog_cache_key *key)
{
    uint64_t fixed[3] = {(uint64_t)key->fact, key->namespace_id, key->collection_id};
    uint64_t hash = sf_xxh64(fixed, sizeof(fixed), cache->seed);
    return key->text.len == 0 ? hash : sf_xxh64(key->text.ptr, key->text.len, hash);
}

static bool same_key(const struct sf_catalog_cache_key *a, const struct sf_catalog_cache_key *b)
{
    return a->fact == b->fact && a->namespace_id == b->namespace_id &&
           a->collection_id == b->collection_id && sf_view_equal(a->text, b->text);
}

/* The key with its text copied to `text`. */
static struct sf_catalog_cache_key keep_key(const struct sf_catalog_cache_key *key, uint8_t *text)
{
    struct sf_catalog_cache_key kept = *key;
    if (key->text.len != 0)
        memcpy(text, key->text.ptr, key->text.len);
    kept.text = sf_view_bytes(text, key->text.len);
    return kept;
}

/* The low bits choose the shard, the others the slot. */
static struct shard *shard_of(struct sf_catalog_cache *cache, uint64_t hash)
{
    return &cache->shards[hash % SF_CATALOG_CACHE_SHARDS];
}

static size_t slot_of(uint64_t hash, size_t slot_count)
{
    return (size_t)(hash / SF_CATALOG_CACHE_SHARDS) & (slot_count - 1);
}

static void count(struct sf_metric *metric, int64_t delta)
{
    if (metric != NULL)
        sf_metric_add(metric, delta);
}

/* ---- entries, under the shard's lock ------------------------------------------------------ */

static size_t entry_bytes(const struct entry *entry)
{
    return sizeof(*entry) + entry->key.text.len + sizeof(*entry->value) + entry->value->len +
           MALLOC_BYTES;
}

static struct entry **find(struct shard *shard, const struct sf_catalog_cache_key *key,
                           uint64_t hash)
{
    struct entry **at = &shard->slots[slot_of(hash, shard->slot_count)];
    while (*at != NULL && ((*at)->hash != hash || !same_key(&(*at)->key, key)))
        at = &(*at)->chain;
    return at;
}

static void grow(struct shard *shard)
{
    size_t slot_count = shard->slot_count * 2;
    struct entry **slots = sf_calloc(slot_count, sizeof(struct entry *));
    for (size_t i = 0; i < shard->slot_count; i++) {
        for (struct entry *entry = shard->slots[i], *next; entry != NULL; entry = next) {
            next = entry->chain;
            struct entry **at = &slots[slot_of(entry->hash, slot_count)];
            entry->chain = *at;
            *at = entry;
        }
    }
    free(shard->slots);
    shard->slots = slots;
    shard->slot_count = slot_count;
}

/* Takes the entry at `at` out and frees it. */
static void erase(struct sf_catalog_cache *cache, struct shard *shard, struct entry **at)
{
    struct entry *entry = *at;
    struct ring *ring = &shard->rings[entry->ring];
    *at = entry->chain;
    if (entry->next == entry) {
        ring->hand = NULL;
    } else {
        entry->prev->next = entry->next;
        entry->next->prev = entry->prev;
        if (ring->hand == entry)
            ring->hand = entry->next;
    }
    size_t bytes = entry_bytes(entry);
    ring->bytes -= bytes;
    shard->entry_count--;
    count(cache->metric_bytes, -(int64_t)bytes);
    sf_catalog_value_drop(entry->value);
    free(entry);
}

/* Makes room in a ring for what was added. */
static void evict(struct sf_catalog_cache *cache, struct shard *shard, struct ring *ring)
{
    while (ring->bytes > ring->max_bytes) {
        for (int chances = 0; ring->hand->marked && chances < MAX_CHANCES; chances++) {
            ring->hand->marked = false;
            ring->hand = ring->hand->next;
        }
        struct entry *victim = ring->hand;
        erase(cache, shard, find(shard, &victim->key, victim->hash));
        shard->evictions++;
        count(cache->metric_evictions, 1);
    }
}

static void insert(struct sf_catalog_cache *cache, struct shard *shard,
                   const struct sf_catalog_cache_key *key, uint64_t hash,
                   struct sf_catalog_value *value)
{
    struct entry **at = find(shard, key, hash);
    if (*at != NULL)
        erase(cache, shard, at);
    struct entry *entry = sf_malloc(sizeof(*entry) + key->text.len);
    *entry = (struct entry){
        .hash = hash, .value = value, .ring = value->negative ? RING_NEGATIVE : RING_POSITIVE};
    entry->key = keep_key(key, entry->text);
    struct ring *ring = &shard->rings[entry->ring];
    size_t bytes = entry_bytes(entry);
    if (bytes > ring->max_bytes / BIGGEST_SHARE) {
        free(entry);
        return;
    }
    (void)hold(value);
    if (ring->hand == NULL) {
        ring->hand = entry->prev = entry->next = entry;
    } else { /* behind the hand: the last that it comes to */
        entry->next = ring->hand;
        entry->prev = ring->hand->prev;
        entry->prev->next = entry;
        entry->next->prev = entry;
    }
    if (shard->entry_count++ >= shard->slot_count)
        grow(shard);
    at = &shard->slots[slot_of(hash, shard->slot_count)];
    entry->chain = *at;
    *at = entry;
    ring->bytes += bytes;
    count(cache->metric_bytes, (int64_t)bytes);
    evict(cache, shard, ring);
}

static struct sf_catalog_value *look_up(struct sf_catalog_cache *cache, struct shard *shard,
                                        const struct sf_catalog_cache_key *key, uint64_t hash)
{
    struct entry *entry = *find(shard, key, hash);
    if (entry == NULL)
        return NULL;
    entry->marked = true;
    shard->hits++;
    count(cache->metric_hits, 1);
    return hold(entry->value);
}

/* ---- flights, under the shard's lock ------------------------------------------------------ */

static struct sf_catalog_flight **find_flight(struct shard *shard,
                                              const struct sf_catalog_cache_key *key, uint64_t hash)
{
    struct sf_catalog_flight **at = &shard->flights[slot_of(hash, FLIGHT_SLOTS)];
    while (*at != NULL && ((*at)->hash != hash || !same_key(&(*at)->key, key)))
        at = &(*at)->chain;
    return at;
}

static void detach(struct sf_catalog_flight **at)
{
    struct sf_catalog_flight *flight = *at;
    *at = flight->chain;
    flight->forgotten = true;
}

static struct sf_catalog_flight *begin_flight(struct shard *shard,
                                              const struct sf_catalog_cache_key *key, uint64_t hash,
                                              struct sf_catalog_waiter *waiter)
{
    struct sf_catalog_flight *flight = sf_malloc(sizeof(*flight) + key->text.len);
    *flight = (struct sf_catalog_flight){.hash = hash, .first = waiter, .last = waiter};
    flight->key = keep_key(key, flight->text);
    struct sf_catalog_flight **at = &shard->flights[slot_of(hash, FLIGHT_SLOTS)];
    flight->chain = *at;
    *at = flight;
    return flight;
}

/* ---- the cache ---------------------------------------------------------------------------- */

struct sf_catalog_value *sf_catalog_cache_get(struct sf_catalog_cache *cache,
                                              const struct sf_catalog_cache_key *key)
{
    uint64_t hash = hash_of(cache, key);
    struct shard *shard = shard_of(cache, hash);
    pthread_mutex_lock(&shard->mu);
    struct sf_catalog_value *value = look_up(cache, shard, key, hash);
    pthread_mutex_unlock(&shard->mu);
    return value;
}

enum sf_catalog_ask sf_catalog_cache_ask(struct sf_catalog_cache *cache,
                                         const struct sf_catalog_cache_key *key,
                                         struct sf_catalog_waiter *waiter,
                                         struct sf_catalog_value **out_value,
                                         struct sf_catalog_flight **out_flight)
{
    uint64_t hash = hash_of(cache, key);
    struct shard *shard = shard_of(cache, hash);
    enum sf_catalog_ask ask = SF_CATALOG_ASK_HIT;
    waiter->next = NULL;
    pthread_mutex_lock(&shard->mu);
    *out_value = look_up(cache, shard, key, hash);
    if (*out_value == NULL) {
        struct sf_catalog_flight *flight = *find_flight(shard, key, hash);
        if (flight != NULL) {
            ask = SF_CATALOG_ASK_JOINED;
            flight->last = flight->last->next = waiter;
            shard->waits++;
            count(cache->metric_waits, 1);
        } else {
            ask = SF_CATALOG_ASK_LEAD;
            *out_flight = begin_flight(shard, key, hash, waiter);
            shard->misses++;
            count(cache->metric_misses, 1);
        }
    }
    pthread_mutex_unlock(&shard->mu);
    return ask;
}

struct sf_catalog_waiter *sf_catalog_cache_land(struct sf_catalog_cache *cache,
                                                struct sf_catalog_flight *flight,
                                                struct sf_catalog_value *value)
{
    struct shard *shard = shard_of(cache, flight->hash);
    pthread_mutex_lock(&shard->mu);
    if (!flight->forgotten) {
        detach(find_flight(shard, &flight->key, flight->hash));
        if (value != NULL)
            insert(cache, shard, &flight->key, flight->hash, value);
    }
    pthread_mutex_unlock(&shard->mu);
    struct sf_catalog_waiter *first = flight->first;
    free(flight);
    return first;
}

void sf_catalog_cache_put(struct sf_catalog_cache *cache, const struct sf_catalog_cache_key *key,
                          struct sf_catalog_value *value)
{
    uint64_t hash = hash_of(cache, key);
    struct shard *shard = shard_of(cache, hash);
    pthread_mutex_lock(&shard->mu);
    insert(cache, shard, key, hash, value);
    pthread_mutex_unlock(&shard->mu);
}

void sf_catalog_cache_forget(struct sf_catalog_cache *cache, const struct sf_catalog_cache_key *key)
{
    uint64_t hash = hash_of(cache, key);
    struct shard *shard = shard_of(cache, hash);
    if (SF_MUTANT(ccs_no_forget))
        return;
    pthread_mutex_lock(&shard->mu);
    struct entry **at = find(shard, key, hash);
    if (*at != NULL)
        erase(cache, shard, at);
    struct sf_catalog_flight **flight = find_flight(shard, key, hash);
    if (*flight != NULL)
        detach(flight);
    pthread_mutex_unlock(&shard->mu);
}

void sf_catalog_cache_forget_value(struct sf_catalog_cache *cache,
                                   const struct sf_catalog_cache_key *key,
                                   const struct sf_catalog_value *value)
{
    uint64_t hash = hash_of(cache, key);
    struct shard *shard = shard_of(cache, hash);
    pthread_mutex_lock(&shard->mu);
    struct entry **at = find(shard, key, hash);
    if (*at != NULL && (*at)->value == value)
        erase(cache, shard, at);
    pthread_mutex_unlock(&shard->mu);
}

void sf_catalog_cache_flush(struct sf_catalog_cache *cache)
{
    for (size_t i = 0; i < SF_CATALOG_CACHE_SHARDS; i++) {
        struct shard *shard = &cache->shards[i];
        pthread_mutex_lock(&shard->mu);
        for (size_t slot = 0; slot < shard->slot_count; slot++) {
            while (shard->slots[slot] != NULL)
                erase(cache, shard, &shard->slots[slot]);
        }
        for (size_t slot = 0; slot < FLIGHT_SLOTS; slot++) {
            while (shard->flights[slot] != NULL)
                detach(&shard->flights[slot]);
        }
        pthread_mutex_unlock(&shard->mu);
    }
}

void sf_catalog_cache_stats(struct sf_catalog_cache *cache,
                            struct sf_catalog_cache_stats *out_stats)
{
    *out_stats = (struct sf_catalog_cache_stats){0};
    for (size_t i = 0; i < SF_CATALOG_CACHE_SHARDS; i++) {
        struct shard *shard = &cache->shards[i];
        pthread_mutex_lock(&shard->mu);
        out_stats->hits += shard->hits;
        out_stats->misses += shard->misses;
        out_stats->waits += shard->waits;
        out_stats->evictions += shard->evictions;
        out_stats->entries += shard->entry_count;
        out_stats->bytes += shard->rings[RING_POSITIVE].bytes + shard->rings[RING_NEGATIVE].bytes;
        pthread_mutex_unlock(&shard->mu);
    }
}

/* ---- life --------------------------------------------------------------------------------- */

static struct sf_metric *metric(struct sf_metrics *metrics, enum sf_metric_type type,
                                const char *name, const char *help)
{
    if (metrics == NULL)
        return NULL;
    return sf_metric_series(sf_metrics_family(metrics, type, name, help, NULL), NULL);
}

struct sf_catalog_cache *sf_catalog_cache_new(size_t max_bytes, struct sf_metrics *metrics)
{
    struct sf_catalog_cache *cache = sf_calloc(1, sizeof(*cache));
    size_t share = max_bytes / SF_CATALOG_CACHE_SHARDS;
    sf_random_bytes(&cache->seed, sizeof(cache->seed));
    for (size_t i = 0; i < SF_CATALOG_CACHE_SHARDS; i++) {
        struct shard *shard = &cache->shards[i];
        pthread_mutex_init(&shard->mu, NULL);
        shard->slot_count = MIN_SLOTS;
        shard->slots = sf_calloc(shard->slot_count, sizeof(struct entry *));
        shard->rings[RING_NEGATIVE].max_bytes = share / NEGATIVE_SHARE;
        shard->rings[RING_POSITIVE].max_bytes = share - share / NEGATIVE_SHARE;
    }
    cache->metric_hits = metric(metrics, SF_METRIC_COUNTER, "searchfabric_catalog_cache_hits_total",
                                "Facts that reads found in memory.");
    cache->metric_misses =
        metric(metrics, SF_METRIC_COUNTER, "searchfabric_catalog_cache_misses_total",
               "Facts that were read from the projection.");
    cache->metric_waits =
        metric(metrics, SF_METRIC_COUNTER, "searchfabric_catalog_cache_waits_total",
               "Reads that waited for the miss of another.");
    cache->metric_evictions =
        metric(metrics, SF_METRIC_COUNTER, "searchfabric_catalog_cache_evictions_total",
               "Facts that left memory for room.");
    cache->metric_bytes = metric(metrics, SF_METRIC_GAUGE, "searchfabric_catalog_cache_bytes",
                                 "Bytes of facts in memory.");
    return cache;
}

void sf_catalog_cache_destroy(struct sf_catalog_cache *cache)
{
    if (cache == NULL)
        return;
    sf_catalog_cache_flush(cache);
    for (size_t i = 0; i < SF_CATALOG_CACHE_SHARDS; i++) {
        free(cache->shards[i].slots);
        pthread_mutex_destroy(&cache->shards[i].mu);
    }
    free(cache);
}
