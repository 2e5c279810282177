/*
 * The merge's table: open addressing over an array sized for the merge, emptied by raising a
 * generation. The table of the last writes: buckets of WAYS entries; a new key takes the place of
 * the bucket's oldest one, and what was known of that one counts no more: marks that do not cover
 * its write are answered "unknown" from then on (`floor`). Since the oldest of a bucket is some
 * 50,000 writes old, marks of requests under way stay above the floor.
 *
 * Two keys with one hash share an entry: the newer write hides the older one. That makes answers
 * less certain, never wrong: "absent" needs that nothing was written under the hash, "stands" that
 * the number is the hash's newest, and a number belongs to one key only.
 */
#include "object/embedded_keys.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

#define WAYS         4u
#define BUCKETS      16384u /* 1 MiB in all */
#define LEAST_SLOTS  64u
#define REMOVED_FLAG (UINT64_C(1) << 63)

/* A write of the present merge. */
struct slot {
    uint64_t generation; /* of the merge; another one: the slot is free */
    uint64_t hash;       /* of the key */
    struct sf_view key;  /* borrowed for the merge */
    uint64_t sequence;   /* of its newest write, 0 = removed */
};

/* A write some time ago; sequence 0 = free. */
struct recent {
    uint64_t hash;     /* of the key */
    uint64_t sequence; /* of its newest write, with REMOVED_FLAG when that was a removal */
};

struct sf_embedded_keys {
    uint64_t seed;         /* of hashes; immutable */
    struct slot *slots;    /* of the merge; owned */
    size_t slot_count;     /* power of two */
    uint64_t generation;   /* of the present merge */
    uint64_t floor;        /* marks below it prove nothing */
    struct recent *recent; /* BUCKETS * WAYS entries; owned */
};

struct sf_embedded_keys *sf_embedded_keys_new(void)
{
    struct sf_embedded_keys *keys = sf_calloc(1, sizeof(*keys));

    sf_random_bytes(&keys->seed, sizeof(keys->seed));
    keys->recent = sf_calloc((size_t)BUCKETS * WAYS, sizeof(*keys->recent));
    return keys;
}

void sf_embedded_keys_destroy(struct sf_embedded_keys *keys)
{
    if (keys == NULL)
        return;
    free(keys->slots);
    free(keys->recent);
    free(keys);
}

void sf_embedded_keys_begin(struct sf_embedded_keys *keys, size_t most_keys)
{
    size_t wanted = keys->slot_count == 0 ? LEAST_SLOTS : keys->slot_count;

    while (wanted < 2 * most_keys)
        wanted *= 2;
    keys->generation++;
    if (wanted == keys->slot_count)
        return;
    free(keys->slots);
    keys->slots = sf_calloc(wanted, sizeof(*keys->slots));
    keys->slot_count = wanted;
}

uint64_t sf_embedded_keys_hash(const struct sf_embedded_keys *keys, struct sf_view key)
{
    return sf_xxh64(key.ptr, key.len, keys->seed);
}

/* The slot of a key, or the free one where it would go. */
static struct slot *slot_of(const struct sf_embedded_keys *keys, struct sf_view key, uint64_t hash)
{
    size_t mask = keys->slot_count - 1;

    for (size_t at = (size_t)hash & mask;; at = (at + 1) & mask) {
        struct slot *slot = &keys->slots[at];
        if (slot->generation != keys->generation ||
            (slot->hash == hash && sf_view_equal(slot->key, key)))
            return slot;
    }
}

static struct recent *bucket_of(const struct sf_embedded_keys *keys, uint64_t hash)
{
    return &keys->recent[(size_t)(hash >> 32) % BUCKETS * WAYS];
}

/* The entry of a hash, NULL when there is none. */
static struct recent *recent_of(const struct sf_embedded_keys *keys, uint64_t hash)
{
    struct recent *bucket = bucket_of(keys, hash);

    for (unsigned i = 0; i < WAYS; i++)
        if (bucket[i].sequence != 0 && bucket[i].hash == hash)
            return &bucket[i];
    return NULL;
}

static void recent_note(struct sf_embedded_keys *keys, uint64_t hash, uint64_t sequence,
                        bool removed)
{
    struct recent *entry = recent_of(keys, hash);

    if (entry == NULL) {
        struct recent *bucket = bucket_of(keys, hash);
        entry = &bucket[0];
        for (unsigned i = 1; i < WAYS; i++)
            if ((bucket[i].sequence & ~REMOVED_FLAG) < (entry->sequence & ~REMOVED_FLAG))
                entry = &bucket[i];
        uint64_t lost = entry->sequence & ~REMOVED_FLAG;
        if (lost >= keys->floor)
            keys->floor = lost + 1;
    }
    *entry = (struct recent){hash, sequence | (removed ? REMOVED_FLAG : 0)};
}

void sf_embedded_keys_note(struct sf_embedded_keys *keys, struct sf_view key, uint64_t hash,
                           uint64_t sequence, bool removed)
{
    *slot_of(keys, key, hash) = (struct slot){.generation = keys->generation,
                                              .hash = hash,
                                              .key = key,
                                              .sequence = removed ? 0 : sequence};
    recent_note(keys, hash, sequence, removed);
}

bool sf_embedded_keys_in_merge(const struct sf_embedded_keys *keys, struct sf_view key,
                               uint64_t hash, uint64_t *out_sequence)
{
    const struct slot *slot = slot_of(keys, key, hash);

    if (slot->generation != keys->generation)
        return false;
    *out_sequence = slot->sequence;
    return true;
}

bool sf_embedded_keys_absent(const struct sf_embedded_keys *keys, uint64_t hash, uint64_t mark)
{
    const struct recent *entry = recent_of(keys, hash);

    return mark != 0 && mark >= keys->floor &&
           (entry == NULL || (entry->sequence & ~REMOVED_FLAG) < mark);
}

bool sf_embedded_keys_stands(const struct sf_embedded_keys *keys, uint64_t hash, uint64_t sequence)
{
    const struct recent *entry = recent_of(keys, hash);

    return entry != NULL && entry->sequence == sequence;
}
