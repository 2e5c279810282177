/*
 * Memory of facts that reads answer from: disposable entries bounded in bytes, sharded, evicted by
 * a clock, with one backend read for all who miss the same key. Nothing here decides a mutation.
 * Facts are keyed by namespace name, namespace id, (namespace, collection name), (namespace,
 * collection id) and command identity (note section 3.2). Any thread.
 *
 * Freshness: whoever changes a fact forgets its key after the change stands and before anybody is
 * told of it. A read under way at that moment keeps nothing, and nobody joins it any more.
 */
#ifndef SF_CATALOG_CATALOG_CACHE_H
#define SF_CATALOG_CATALOG_CACHE_H

#include <stdatomic.h>

#include "base/metrics.h"
#include "base/view.h"

#define SF_CATALOG_CACHE_BYTES     ((size_t)64 << 20) /* unless configured */
#define SF_CATALOG_CACHE_BYTES_MIN ((size_t)1 << 20)
#define SF_CATALOG_CACHE_BYTES_MAX ((size_t)1 << 40)
#define SF_CATALOG_CACHE_SHARDS    16u

/* What an entry holds. */
enum sf_catalog_fact {
    SF_CATALOG_FACT_NAMESPACE_NAME,  /* name -> number = namespace id; negative */
    SF_CATALOG_FACT_NAMESPACE,       /* id -> packed GetNamespaceMetadataResponse */
    SF_CATALOG_FACT_BINDING,         /* namespace id -> number = collection name binding revision;
                                        negative when the namespace is not readable */
    SF_CATALOG_FACT_COLLECTION_NAME, /* (namespace, name) -> number = collection id; negative;
                                        bound = binding revision of the same snapshot */
    SF_CATALOG_FACT_COLLECTION,      /* (namespace, id) -> packed GetCollectionMetadataResponse */
    SF_CATALOG_FACT_SCHEMA,          /* (namespace, id) -> packed GetCollectionSchemaResponse */
    SF_CATALOG_FACT_SYNC,            /* (namespace, id) -> packed GetSchemaSyncStatusResponse */
    SF_CATALOG_FACT_ADMISSION,       /* (namespace, id) -> etag, NUL, packed admission state;
                                        number = where the state begins; bound = binding revision
                                        of the same snapshot */
    SF_CATALOG_FACT_COMMAND,         /* command identity -> packed CommandOutcomeObject */
    SF_CATALOG_FACT_COUNT
};

/* Names an entry. Unused members are zero. */
struct sf_catalog_cache_key {
    enum sf_catalog_fact fact; /* kind */
    uint64_t namespace_id;     /* 0 = none */
    uint64_t collection_id;    /* 0 = none */
    struct sf_view text;       /* name or command identity; copied where it is kept */
};

/* A fact; immutable, counted. */
struct sf_catalog_value {
    _Atomic uint32_t refs; /* holders */
    bool negative;         /* the name is not bound; see the fact */
    uint64_t number;       /* see the fact */
    uint64_t bound;        /* revision that the fact holds under, 0 = none */
    size_t len;            /* of `bytes` */
    uint8_t bytes[];       /* see the fact */
};

/* A value with one holder and `len` bytes to be filled in by the caller. */
SF_NONNULL struct sf_catalog_value *sf_catalog_value_new(uint64_t number, size_t len);

/* Ends one hold. NULL is fine. */
void sf_catalog_value_drop(struct sf_catalog_value *value);

struct sf_catalog_cache;
struct sf_catalog_flight; /* one backend read under way */

/* Whoever waits for a flight; embedded in the caller's own object. */
struct sf_catalog_waiter {
    struct sf_catalog_waiter *next; /* list */
};

/* Counters, summed over the shards. */
struct sf_catalog_cache_stats {
    uint64_t hits;      /* answered from memory */
    uint64_t misses;    /* flights begun: backend reads */
    uint64_t waits;     /* joined the flight of another */
    uint64_t evictions; /* entries dropped for room */
    uint64_t entries;   /* held now */
    uint64_t bytes;     /* held now, bookkeeping included */
};

/* `max_bytes` of entries; `metrics` NULL = none. Destroy when no flight is under way. */
SF_NONNULL struct sf_catalog_cache *sf_catalog_cache_new(size_t max_bytes,
                                                         struct sf_metrics *metrics);
void sf_catalog_cache_destroy(struct sf_catalog_cache *cache);

/* The value under `key`, held for the caller, or NULL. Counts a hit, never a miss. */
struct sf_catalog_value *sf_catalog_cache_get(struct sf_catalog_cache *cache,
                                              const struct sf_catalog_cache_key *key);

/* What became of a question. */
enum sf_catalog_ask {
    SF_CATALOG_ASK_HIT,   /* *out_value is held for the caller */
    SF_CATALOG_ASK_LEAD,  /* *out_flight is the caller's to land; the waiter is its first */
    SF_CATALOG_ASK_JOINED /* the waiter was handed to a flight: do not touch it any more */
};

/* The value, or a place at the one flight that reads it. */
enum sf_catalog_ask sf_catalog_cache_ask(struct sf_catalog_cache *cache,
                                         const struct sf_catalog_cache_key *key,
                                         struct sf_catalog_waiter *waiter,
                                         struct sf_catalog_value **out_value,
                                         struct sf_catalog_flight **out_flight);

/* Ends a flight: keeps `value` (borrowed; NULL = nothing to keep) unless its key was forgotten
 * since the flight began. Returns all who wait, the leader first. */
struct sf_catalog_waiter *sf_catalog_cache_land(struct sf_catalog_cache *cache,
                                                struct sf_catalog_flight *flight,
                                                struct sf_catalog_value *value);

/* Keeps `value` (borrowed) whatever stood there: for facts that have one writer at a time. */
void sf_catalog_cache_put(struct sf_catalog_cache *cache, const struct sf_catalog_cache_key *key,
                          struct sf_catalog_value *value);

/* The fact changed: forgets it. */
void sf_catalog_cache_forget(struct sf_catalog_cache *cache,
                             const struct sf_catalog_cache_key *key);

/* Forgets `value` if it is what stands under `key`. */
void sf_catalog_cache_forget_value(struct sf_catalog_cache *cache,
                                   const struct sf_catalog_cache_key *key,
                                   const struct sf_catalog_value *value);

/* Forgets everything. */
void sf_catalog_cache_flush(struct sf_catalog_cache *cache);

void sf_catalog_cache_stats(struct sf_catalog_cache *cache,
                            struct sf_catalog_cache_stats *out_stats);

#endif
