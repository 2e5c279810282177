/*
 * Request arena: bump allocation with a hard cap and one reset. Overflow is sticky: the allocation
 * that does not fit returns NULL and every later one too, so that a caller may check once. Under
 * ASan each allocation is its own heap block. Nothing long-lived points into an arena. Not thread
 * safe: one owner at a time.
 */
#ifndef SF_BASE_ARENA_H
#define SF_BASE_ARENA_H

#include <stdbool.h>

#include <protobuf-c/protobuf-c.h>

#include "base/view.h"

struct sf_arena;

/* New arena that hands out at most `cap_bytes` in all. Destroy with sf_arena_destroy. */
struct sf_arena *sf_arena_new(size_t cap_bytes);

/* Frees the arena and all that came from it. NULL is fine. */
void sf_arena_destroy(struct sf_arena *arena);

/* Forgets all allocations and the overflow mark; keeps the first chunk. */
void sf_arena_reset(struct sf_arena *arena);

/* `size` bytes, zeroed, aligned for any type; NULL once the cap is passed (sticky). */
void *sf_arena_alloc(struct sf_arena *arena, size_t size);

/* Copy of `len` bytes; NULL on overflow. */
void *sf_arena_dup(struct sf_arena *arena, const void *src, size_t len);

/* NUL-terminated copy of a view; NULL on overflow. */
char *sf_arena_str(struct sf_arena *arena, struct sf_view text);

/* NUL-terminated formatted text; NULL on overflow. */
char *sf_arena_printf(struct sf_arena *arena, const char *fmt, ...) SF_PRINTF(2, 3);

/* True once an allocation did not fit. */
bool sf_arena_overflowed(const struct sf_arena *arena);

/* Bytes handed out since the last reset. */
size_t sf_arena_used_bytes(const struct sf_arena *arena);

/* Bytes that may still be handed out; 0 once overflowed. */
size_t sf_arena_left_bytes(const struct sf_arena *arena);

/* A protobuf-c allocator that takes from the arena and never frees; valid as long as the arena. */
ProtobufCAllocator *sf_arena_pb_allocator(struct sf_arena *arena);

#endif
