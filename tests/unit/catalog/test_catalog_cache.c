/* The cache of facts: hits, forgetting, flights, room. */
#include "catalog/catalog_cache.h"

#include <pthread.h>
#include <stdio.h>

#include "support/proves.h"

/* One key of each of the five kinds, with `n` in it. */
enum { KINDS = 5, NAME_BYTES = 72 };

static struct sf_catalog_cache_key key_of(int kind, uint64_t n, char name[NAME_BYTES])
{
    struct sf_view text = sf_view_bytes(
        name, (size_t)snprintf(name, NAME_BYTES, "name-%020llu", (unsigned long long)n));
    switch (kind) {
    case 0:
        return (struct sf_catalog_cache_key){.fact = SF_CATALOG_FACT_NAMESPACE_NAME, .text = text};
    case 1:
        return (struct sf_catalog_cache_key){.fact = SF_CATALOG_FACT_NAMESPACE, .namespace_id = n};
    case 2:
        return (struct sf_catalog_cache_key){
            .fact = SF_CATALOG_FACT_COLLECTION_NAME, .namespace_id = 7, .text = text};
    case 3:
        return (struct sf_catalog_cache_key){
            .fact = SF_CATALOG_FACT_COLLECTION, .namespace_id = 7, .collection_id = n};
    default:
        return (struct sf_catalog_cache_key){.fact = SF_CATALOG_FACT_COMMAND, .text = text};
    }
}

/* Puts a value of `len` bytes; `negative` as the value says. */
static void put(struct sf_catalog_cache *cache, const struct sf_catalog_cache_key *key,
                uint64_t number, size_t len, bool negative)
{
    struct sf_catalog_value *value = sf_catalog_value_new(number, len);
    value->negative = negative;
    for (size_t i = 0; i < len; i++)
        value->bytes[i] = (uint8_t)i;
    sf_catalog_cache_put(cache, key, value);
    sf_catalog_value_drop(value);
}

/* Number under the key, 0 = not there. */
static uint64_t got(struct sf_catalog_cache *cache, const struct sf_catalog_cache_key *key)
{
    struct sf_catalog_value *value = sf_catalog_cache_get(cache, key);
    uint64_t number = value == NULL ? 0 : value->number;
    sf_catalog_value_drop(value);
    return number;
}

static struct sf_catalog_cache_stats stats_of(struct sf_catalog_cache *cache)
{
    struct sf_catalog_cache_stats stats;
    sf_catalog_cache_stats(cache, &stats);
    return stats;
}

static void test_kinds(void **state)
{
    (void)state;
    SF_PROVES("CCS-3.2-04");
    struct sf_catalog_cache *cache = sf_catalog_cache_new(SF_CATALOG_CACHE_BYTES_MIN, NULL);
    char name[NAME_BYTES];
    for (int kind = 0; kind < KINDS; kind++) {
        struct sf_catalog_cache_key key = key_of(kind, 1, name);
        assert_int_equal(got(cache, &key), 0);
        put(cache, &key, 5, 10, false);
        assert_int_equal(got(cache, &key), 5);
        put(cache, &key, 6, 10, false); /* replaced, not doubled */
        assert_int_equal(got(cache, &key), 6);
        assert_int_equal(stats_of(cache).entries, 1);
        sf_catalog_cache_forget(cache, &key); /* a mutation */
        assert_int_equal(got(cache, &key), 0);
        assert_int_equal(stats_of(cache).entries, 0);
        assert_int_equal(stats_of(cache).bytes, 0);
        uint64_t evicted = stats_of(cache).evictions;
        put(cache, &key, 7, 10, false);
        uint64_t n = 2;
        while (got(cache, &key) != 0 && n < 100000) { /* asked for again and again: it stays */
            char other_name[NAME_BYTES];
            struct sf_catalog_cache_key other = key_of(kind, n++, other_name);
            put(cache, &other, n, 100, false);
        }
        assert_int_equal(got(cache, &key), 7);
        assert_true(stats_of(cache).evictions > evicted);
        for (uint64_t more = 0; more < 100000; more++) { /* not asked for: it goes */
            char other_name[NAME_BYTES];
            struct sf_catalog_cache_key other = key_of(kind, n++, other_name);
            put(cache, &other, n, 100, false);
        }
        assert_int_equal(got(cache, &key), 0);
        assert_true(stats_of(cache).bytes <= SF_CATALOG_CACHE_BYTES_MIN);
        assert_true(stats_of(cache).bytes > SF_CATALOG_CACHE_BYTES_MIN / 2);
        sf_catalog_cache_flush(cache);
        assert_int_equal(stats_of(cache).bytes, 0);
    }
    sf_catalog_cache_destroy(cache);
}

/* Names that are not bound displace each other alone, in one eighth of the room. */
static void test_negative_room(void **state)
{
    (void)state;
    struct sf_catalog_cache *cache = sf_catalog_cache_new(SF_CATALOG_CACHE_BYTES_MIN, NULL);
    char name[NAME_BYTES];
    for (uint64_t n = 1; n <= 1000; n++) {
        struct sf_catalog_cache_key key = key_of(3, n, name);
        put(cache, &key, n, 100, false);
    }
    for (uint64_t n = 1; n <= 100000; n++) {
        struct sf_catalog_cache_key key = key_of(2, n, name);
        put(cache, &key, 0, 0, true);
    }
    for (uint64_t n = 1; n <= 1000; n++) {
        struct sf_catalog_cache_key key = key_of(3, n, name);
        assert_int_equal(got(cache, &key), n);
    }
    struct sf_catalog_cache_stats stats = stats_of(cache);
    assert_true(stats.evictions > 50000);
    assert_true(stats.bytes < SF_CATALOG_CACHE_BYTES_MIN / 2);
    sf_catalog_cache_destroy(cache);
}

/* A value may take a quarter of its ring; one byte more is not kept. */
static void test_biggest(void **state)
{
    (void)state;
    struct sf_catalog_cache *cache = sf_catalog_cache_new(SF_CATALOG_CACHE_BYTES_MIN, NULL);
    char name[NAME_BYTES];
    struct sf_catalog_cache_key key = key_of(1, 1, name);
    put(cache, &key, 1, 0, false);
    size_t overhead = (size_t)stats_of(cache).bytes;
    size_t share = SF_CATALOG_CACHE_BYTES_MIN / SF_CATALOG_CACHE_SHARDS;
    size_t most = (share - share / 8) / 4 - overhead;
    put(cache, &key, 2, most, false);
    assert_int_equal(got(cache, &key), 2);
    put(cache, &key, 3, most + 1, false); /* and what it replaces is gone */
    assert_int_equal(got(cache, &key), 0);
    sf_catalog_cache_destroy(cache);
}

/* A flight keeps its fact; one that was forgotten meanwhile lands for who waits and keeps nothing.
 */
static void test_flights(void **state)
{
    (void)state;
    struct sf_catalog_cache *cache = sf_catalog_cache_new(SF_CATALOG_CACHE_BYTES_MIN, NULL);
    char name[NAME_BYTES];
    struct sf_catalog_cache_key key = key_of(2, 1, name);
    struct sf_catalog_waiter waiters[4];
    struct sf_catalog_value *value = NULL;
    struct sf_catalog_flight *first = NULL, *second = NULL, *none = NULL;
    assert_int_equal(sf_catalog_cache_ask(cache, &key, &waiters[0], &value, &first),
                     SF_CATALOG_ASK_LEAD);
    assert_int_equal(sf_catalog_cache_ask(cache, &key, &waiters[1], &value, &none),
                     SF_CATALOG_ASK_JOINED);
    sf_catalog_cache_forget(cache, &key); /* a commit */
    assert_int_equal(sf_catalog_cache_ask(cache, &key, &waiters[2], &value, &second),
                     SF_CATALOG_ASK_LEAD); /* nobody joins what was read before it */
    struct sf_catalog_value *old = sf_catalog_value_new(1, 0);
    struct sf_catalog_value *fresh = sf_catalog_value_new(2, 0);
    assert_ptr_equal(sf_catalog_cache_land(cache, first, old), &waiters[0]);
    assert_ptr_equal(waiters[0].next, &waiters[1]);
    assert_null(waiters[1].next);
    assert_int_equal(got(cache, &key), 0);
    assert_ptr_equal(sf_catalog_cache_land(cache, second, fresh), &waiters[2]);
    assert_int_equal(got(cache, &key), 2);
    assert_int_equal(sf_catalog_cache_ask(cache, &key, &waiters[3], &value, &none),
                     SF_CATALOG_ASK_HIT);
    assert_ptr_equal(value, fresh);
    sf_catalog_value_drop(value);
    sf_catalog_cache_forget_value(cache, &key, old); /* not what stands there */
    assert_int_equal(got(cache, &key), 2);
    sf_catalog_cache_forget_value(cache, &key, fresh);
    assert_int_equal(got(cache, &key), 0);
    assert_int_equal(sf_catalog_cache_ask(cache, &key, &waiters[0], &value, &first),
                     SF_CATALOG_ASK_LEAD);
    sf_catalog_cache_flush(cache);
    (void)sf_catalog_cache_land(cache, first, old);
    assert_int_equal(got(cache, &key), 0);
    assert_int_equal(sf_catalog_cache_ask(cache, &key, &waiters[0], &value, &first),
                     SF_CATALOG_ASK_LEAD);
    (void)sf_catalog_cache_land(cache, first, NULL); /* a refusal */
    assert_int_equal(got(cache, &key), 0);
    struct sf_catalog_cache_stats stats = stats_of(cache);
    assert_int_equal(stats.misses, 4);
    assert_int_equal(stats.waits, 1);
    sf_catalog_value_drop(old);
    sf_catalog_value_drop(fresh);
    sf_catalog_cache_destroy(cache);
}

/* The revision that a writer raised, and the cache it forgets in. */
struct truth {
    struct sf_catalog_cache *cache;
    _Atomic uint64_t revision; /* committed */
    _Atomic uint64_t told;     /* acknowledged */
    _Atomic bool over;
    _Atomic uint64_t stale; /* answers older than what was acknowledged before the question */
};

static void *read_on(void *user)
{
    struct truth *t = user;
    struct sf_catalog_cache_key key = {.fact = SF_CATALOG_FACT_NAMESPACE, .namespace_id = 1};
    while (!atomic_load(&t->over)) {
        struct sf_catalog_waiter waiter;
        struct sf_catalog_value *value = NULL;
        struct sf_catalog_flight *flight = NULL;
        uint64_t least = atomic_load(&t->told);
        value = sf_catalog_cache_get(t->cache, &key);
        /* one reader leads at a time: a join would leave the waiter behind */
        static pthread_mutex_t lead = PTHREAD_MUTEX_INITIALIZER;
        if (value == NULL && pthread_mutex_trylock(&lead) == 0) {
            if (sf_catalog_cache_ask(t->cache, &key, &waiter, &value, &flight) ==
                SF_CATALOG_ASK_LEAD) {
                value = sf_catalog_value_new(atomic_load(&t->revision), 0);
                (void)sf_catalog_cache_land(t->cache, flight, value);
            }
            pthread_mutex_unlock(&lead);
        }
        if (value != NULL && value->number < least)
            atomic_fetch_add(&t->stale, 1);
        sf_catalog_value_drop(value);
    }
    return NULL;
}

/* No reader is told less than what was acknowledged before it asked. */
static void test_fresh(void **state)
{
    (void)state;
    struct truth t = {.cache = sf_catalog_cache_new(SF_CATALOG_CACHE_BYTES_MIN, NULL)};
    struct sf_catalog_cache_key key = {.fact = SF_CATALOG_FACT_NAMESPACE, .namespace_id = 1};
    pthread_t threads[4];
    for (size_t i = 0; i < SF_ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &t), 0);
    for (uint64_t revision = 1; revision <= 50000; revision++) {
        atomic_store(&t.revision, revision);
        sf_catalog_cache_forget(t.cache, &key);
        atomic_store(&t.told, revision);
    }
    atomic_store(&t.over, true);
    for (size_t i = 0; i < SF_ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&t.stale), 0);
    sf_catalog_cache_destroy(t.cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),   cmocka_unit_test(test_negative_room),
        cmocka_unit_test(test_biggest), cmocka_unit_test(test_flights),
        cmocka_unit_test(test_fresh),
    };
    return SF_RUN_TESTS("catalog_cache", tests);
}
