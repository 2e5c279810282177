/*
 * Request arena. Chunks form a list, newest first; the oldest stays over a reset. Chunks double
 * from 4 KiB to 1 MiB; an allocation larger than what is left of a chunk gets a chunk of its own
 * size when it is large, so that the tail of the present chunk is not wasted. The cap counts bytes
 * handed out, rounded to the alignment.
 *
 * Under AddressSanitizer every allocation is a chunk of its own, so that running past one is
 * caught, and a reset frees them all, so that use after it is caught.
 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_SPLIT 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_SPLIT 1
#endif
#endif
#ifndef ARENA_SPLIT
#define ARENA_SPLIT 0
#endif

#define ARENA_ALIGN           16u
#define ARENA_FIRST_CHUNK     4096u
#define ARENA_LARGEST_CHUNK   (1u << 20)
#define ARENA_ROUND(n)        (((n) + (ARENA_ALIGN - 1)) & ~(size_t)(ARENA_ALIGN - 1))
#define ARENA_OWN_CHUNK_BYTES 2048u

struct chunk {
    struct chunk *next; /* older chunk */
    size_t size;        /* bytes of data */
    size_t used;        /* bytes handed out of data */
    size_t pad;         /* keeps data aligned */
    uint8_t data[];     /* handed out from the front */
};

_Static_assert(sizeof(struct chunk) % ARENA_ALIGN == 0, "chunk data must be aligned");

struct sf_arena {
    ProtobufCAllocator pb;  /* allocator_data points back here */
    struct chunk *head;     /* chunk in use, NULL when none */
    size_t cap_bytes;       /* immutable: most bytes handed out */
    size_t used_bytes;      /* handed out since the last reset */
    size_t next_chunk_size; /* size of the next ordinary chunk */
    bool overflowed;        /* sticky until the reset */
};

static void *pb_alloc(void *data, size_t size);
static void pb_free(void *data, void *ptr);

struct sf_arena *sf_arena_new(size_t cap_bytes)
{
    struct sf_arena *arena = sf_calloc(1, sizeof(*arena));

    arena->pb = (ProtobufCAllocator){.alloc = pb_alloc, .free = pb_free, .allocator_data = arena};
    arena->cap_bytes = cap_bytes;
    arena->next_chunk_size = ARENA_FIRST_CHUNK;
    return arena;
}

void sf_arena_destroy(struct sf_arena *arena)
{
    if (arena == NULL)
        return;
    for (struct chunk *c = arena->head; c != NULL;) {
        struct chunk *next = c->next;
        free(c);
        c = next;
    }
    free(arena);
}

void sf_arena_reset(struct sf_arena *arena)
{
    struct chunk *c = arena->head;

    while (c != NULL && (ARENA_SPLIT || c->next != NULL)) {
        struct chunk *next = c->next;
        free(c);
        c = next;
    }
    arena->head = c;
    if (c != NULL)
        c->used = 0;
    arena->used_bytes = 0;
    arena->overflowed = false;
    arena->next_chunk_size = ARENA_FIRST_CHUNK;
}

static struct chunk *chunk_new(size_t size)
{
    struct chunk *c = sf_malloc(sizeof(*c) + size);

    c->next = NULL;
    c->size = size;
    c->used = 0;
    c->pad = 0;
    return c;
}

/* A chunk for one large allocation, kept behind the head so that the head's tail stays usable. */
static void *alloc_own_chunk(struct sf_arena *arena, size_t size)
{
    struct chunk *c = chunk_new(size);

    c->used = size;
    if (arena->head == NULL || ARENA_SPLIT) {
        c->next = arena->head;
        arena->head = c;
    } else {
        c->next = arena->head->next;
        arena->head->next = c;
    }
    return c->data;
}

static void *alloc_raw(struct sf_arena *arena, size_t size)
{
    size_t rounded = ARENA_ROUND(size == 0 ? 1 : size);

    if (arena->overflowed || rounded < size || rounded > arena->cap_bytes - arena->used_bytes) {
        arena->overflowed = true;
        return NULL;
    }
    arena->used_bytes += rounded;
    if (ARENA_SPLIT)
        return alloc_own_chunk(arena, size == 0 ? 1 : size);

    struct chunk *c = arena->head;
    if (c == NULL || c->size - c->used < rounded) {
        if (rounded >= ARENA_OWN_CHUNK_BYTES && c != NULL)
            return alloc_own_chunk(arena, rounded);
        size_t chunk_size = arena->next_chunk_size > rounded ? arena->next_chunk_size : rounded;
        c = chunk_new(chunk_size);
        c->next = arena->head;
        arena->head = c;
        if (arena->next_chunk_size < ARENA_LARGEST_CHUNK)
            arena->next_chunk_size *= 2;
    }
    void *ptr = c->data + c->used;
    c->used += rounded;
    return ptr;
}

void *sf_arena_alloc(struct sf_arena *arena, size_t size)
{
    void *ptr = alloc_raw(arena, size);

    if (ptr != NULL)
        memset(ptr, 0, size);
    return ptr;
}

void *sf_arena_dup(struct sf_arena *arena, const void *src, size_t len)
{
    void *ptr = alloc_raw(arena, len);

    if (ptr != NULL && len > 0)
        memcpy(ptr, src, len);
    return ptr;
}

char *sf_arena_str(struct sf_arena *arena, struct sf_view text)
{
    char *copy = text.len == SIZE_MAX ? NULL : alloc_raw(arena, text.len + 1);

    if (copy == NULL)
        return NULL;
    if (text.len > 0)
        memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    return copy;
}

char *sf_arena_printf(struct sf_arena *arena, const char *fmt, ...)
{
    va_list args;
    va_list again;

    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = n < 0 ? NULL : alloc_raw(arena, (size_t)n + 1);
    if (text != NULL)
        (void)vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

bool sf_arena_overflowed(const struct sf_arena *arena)
{
    return arena->overflowed;
}

size_t sf_arena_used_bytes(const struct sf_arena *arena)
{
    return arena->used_bytes;
}

size_t sf_arena_left_bytes(const struct sf_arena *arena)
{
    return arena->overflowed ? 0 : arena->cap_bytes - arena->used_bytes;
}

static void *pb_alloc(void *data, size_t size)
{
    return alloc_raw(data, size);
}

static void pb_free(void *data, void *ptr)
{
    (void)data;
    (void)ptr;
}

ProtobufCAllocator *sf_arena_pb_allocator(struct sf_arena *arena)
{
    return &arena->pb;
}
