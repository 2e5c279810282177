/*
 * Hash map from bytes to pointers. Keys are copied, values are the caller's. Iteration runs in the
 * order of insertion, so that equal histories walk equally whatever the hash seed is. One owner at
 * a time.
 */
#ifndef SF_BASE_MAP_H
#define SF_BASE_MAP_H

#include "base/view.h"

struct sf_map;

/* Releases one value; called by sf_map_clear and sf_map_destroy. */
typedef void (*sf_map_free_fn)(void *value);

/* New empty map. Destroy with sf_map_destroy. */
SF_NONNULL struct sf_map *sf_map_new(void);

/* Frees the map and its keys; each value goes through `free_fn` unless that is NULL. NULL is fine.
 */
void sf_map_destroy(struct sf_map *map, sf_map_free_fn free_fn);

/* Empties the map as sf_map_destroy does, but keeps its memory. */
void sf_map_clear(struct sf_map *map, sf_map_free_fn free_fn);

/* The value under `key`, or NULL. */
void *sf_map_get(const struct sf_map *map, struct sf_view key);

/* Stores `value` (not NULL) under a copy of `key`; returns the value that was there, or NULL. A
 * replaced entry keeps its place in the order. */
void *sf_map_put(struct sf_map *map, struct sf_view key, void *value);

/* Removes `key`; returns its value, or NULL when it was absent. */
void *sf_map_del(struct sf_map *map, struct sf_view key);

/* Number of entries. */
size_t sf_map_count(const struct sf_map *map);

/* Cursor of a walk; zero it to start. */
struct sf_map_iter {
    size_t next;        /* position in insertion order to look at next */
    struct sf_view key; /* key of the present entry; valid until it is removed */
    void *value;        /* value of the present entry */
};

/* Moves to the next entry; false at the end. During a walk sf_map_del is allowed, sf_map_put of a
 * new key is not. */
bool sf_map_next(const struct sf_map *map, struct sf_map_iter *iter);

/* Key of an unsigned number (its eight bytes in memory order), for maps that live in memory only;
 * `value` must outlive the view. */
static inline struct sf_view sf_map_key_u64(const uint64_t *value)
{
    return sf_view_bytes(value, sizeof(*value));
}

#endif
