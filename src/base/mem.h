/* Heap allocation that never returns NULL: out of memory aborts (limits are ordinary errors). */
#ifndef SF_BASE_MEM_H
#define SF_BASE_MEM_H

#include "base/compiler.h"

/* Allocates `size` bytes, zeroed; size 0 gives a pointer that may be freed. Free with free(). */
SF_NONNULL void *sf_calloc(size_t count, size_t size);

/* Allocates `size` bytes, not initialised. Free with free(). */
SF_NONNULL void *sf_malloc(size_t size);

/* Resizes `ptr` (NULL allowed) to `size` bytes. Free with free(). */
SF_NONNULL void *sf_realloc(void *ptr, size_t size);

/* Copies `size` bytes from `src` to a new block. Free with free(). */
SF_NONNULL void *sf_memdup(const void *src, size_t size);

/* Copies a NUL-terminated string to a new block. Free with free(). */
SF_NONNULL char *sf_strdup(const char *text);

#endif
