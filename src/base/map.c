/*
 * Hash map with insertion order: a dense array of entries beside an open-addressing table of
 * indexes into it (linear probing, power of two, at most 3/4 full, erased slots counted). Removing
 * an entry leaves a hole in the array; both are rebuilt without holes when the array is full. The
 * hash seed is random per map, so that keys chosen by a peer cannot collide on purpose; nothing
 * that is visible depends on it.
 */
#include "base/map.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

#define SLOT_EMPTY  0u
#define SLOT_ERASED UINT32_MAX
#define MIN_SLOTS   16u
#define MAX_SLOTS   (1u << 31)

struct entry {
    uint64_t hash;  /* of the key under the map's seed */
    uint8_t *key;   /* owned copy; NULL marks a hole */
    size_t key_len; /* bytes of key */
    void *value;    /* the caller's */
};

struct sf_map {
    uint64_t seed;         /* immutable */
    struct entry *entries; /* in order of insertion; room for slot_count * 3 / 4 */
    uint32_t entry_count;  /* used part of entries, holes included */
    uint32_t live_count;   /* entries that are not holes */
    uint32_t *slots;       /* SLOT_EMPTY, SLOT_ERASED or index + 1 */
    uint32_t slot_count;   /* power of two */
};

static uint32_t entry_room(uint32_t slot_count)
{
    return slot_count / 4 * 3;
}

struct sf_map *sf_map_new(void)
{
    struct sf_map *map = sf_calloc(1, sizeof(*map));

    sf_random_bytes(&map->seed, sizeof(map->seed));
    return map;
}

void sf_map_clear(struct sf_map *map, sf_map_free_fn free_fn)
{
    for (uint32_t i = 0; i < map->entry_count; i++) {
        struct entry *e = &map->entries[i];
        if (e->key == NULL)
            continue;
        free(e->key);
        if (free_fn != NULL)
            free_fn(e->value);
    }
    map->entry_count = 0;
    map->live_count = 0;
    if (map->slot_count > 0)
        memset(map->slots, 0, map->slot_count * sizeof(*map->slots));
}

void sf_map_destroy(struct sf_map *map, sf_map_free_fn free_fn)
{
    if (map == NULL)
        return;
    sf_map_clear(map, free_fn);
    free(map->entries);
    free(map->slots);
    free(map);
}

/* The slot that holds `key`, or NULL. */
static uint32_t *find_slot(const struct sf_map *map, struct sf_view key, uint64_t hash)
{
    if (map->slot_count == 0)
        return NULL;
    uint32_t mask = map->slot_count - 1;
    for (uint32_t at = (uint32_t)hash & mask;; at = (at + 1) & mask) {
        uint32_t slot = map->slots[at];
        if (slot == SLOT_EMPTY)
            return NULL;
        if (slot == SLOT_ERASED)
            continue;
        const struct entry *e = &map->entries[slot - 1];
        if (e->hash == hash && sf_view_equal(sf_view_bytes(e->key, e->key_len), key))
            return &map->slots[at];
    }
}

static void place(struct sf_map *map, uint64_t hash, uint32_t index)
{
    uint32_t mask = map->slot_count - 1;
    uint32_t at = (uint32_t)hash & mask;

    while (map->slots[at] != SLOT_EMPTY)
        at = (at + 1) & mask;
    map->slots[at] = index + 1;
}

/* Closes the holes and sizes the tables for one entry more than now. */
static void rebuild(struct sf_map *map)
{
    uint32_t slot_count = map->slot_count < MIN_SLOTS ? MIN_SLOTS : map->slot_count;
    while (entry_room(slot_count) / 2 < map->live_count) {
        SF_ASSERT(slot_count < MAX_SLOTS);
        slot_count *= 2;
    }

    uint32_t kept = 0;
    for (uint32_t i = 0; i < map->entry_count; i++) {
        if (map->entries[i].key != NULL)
            map->entries[kept++] = map->entries[i];
    }
    SF_ASSERT(kept == map->live_count);
    map->entry_count = kept;
    map->entries = sf_realloc(map->entries, entry_room(slot_count) * sizeof(*map->entries));
    free(map->slots);
    map->slots = sf_calloc(slot_count, sizeof(*map->slots));
    map->slot_count = slot_count;
    for (uint32_t i = 0; i < kept; i++)
        place(map, map->entries[i].hash, i);
}

static uint64_t hash_key(const struct sf_map *map, struct sf_view key)
{
    return sf_xxh64(key.ptr, key.len, map->seed);
}

void *sf_map_get(const struct sf_map *map, struct sf_view key)
{
    const uint32_t *slot = find_slot(map, key, hash_key(map, key));

    return slot == NULL ? NULL : map->entries[*slot - 1].value;
}

void *sf_map_put(struct sf_map *map, struct sf_view key, void *value)
{
    SF_ASSERT(value != NULL);
    uint64_t hash = hash_key(map, key);
    const uint32_t *slot = find_slot(map, key, hash);

    if (slot != NULL) {
        struct entry *e = &map->entries[*slot - 1];
        void *old = e->value;
        e->value = value;
        return old;
    }
    if (map->slot_count == 0 || map->entry_count == entry_room(map->slot_count))
        rebuild(map);
    map->entries[map->entry_count] = (struct entry){
        .hash = hash, .key = sf_memdup(key.ptr, key.len), .key_len = key.len, .value = value};
    place(map, hash, map->entry_count);
    map->entry_count++;
    map->live_count++;
    return NULL;
}

void *sf_map_del(struct sf_map *map, struct sf_view key)
{
    uint32_t *slot = find_slot(map, key, hash_key(map, key));

    if (slot == NULL)
        return NULL;
    struct entry *e = &map->entries[*slot - 1];
    void *value = e->value;
    free(e->key);
    *e = (struct entry){0};
    *slot = SLOT_ERASED;
    map->live_count--;
    return value;
}

size_t sf_map_count(const struct sf_map *map)
{
    return map->live_count;
}

bool sf_map_next(const struct sf_map *map, struct sf_map_iter *iter)
{
    while (iter->next < map->entry_count) {
        const struct entry *e = &map->entries[iter->next++];
        if (e->key == NULL)
            continue;
        iter->key = sf_view_bytes(e->key, e->key_len);
        iter->value = e->value;
        return true;
    }
    return false;
}
