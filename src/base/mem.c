/*
 * Heap allocation. Memory that runs out cannot be handled sensibly in the middle of a request, so
 * these functions abort; what a peer may claim is bounded by the limits instead, which are ordinary
 * errors. The failed assertion lives here too: it must not depend on the log.
 */
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sf_assert_failed(const char *file, int line, const char *condition)
{
    (void)fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    abort();
}

static void *checked(void *ptr)
{
    if (__builtin_expect(ptr == NULL, 0)) {
        (void)fputs("out of memory\n", stderr);
        abort();
    }
    return ptr;
}

void *sf_calloc(size_t count, size_t size)
{
    if (count == 0 || size == 0)
        return checked(calloc(1, 1));
    return checked(calloc(count, size));
}

void *sf_malloc(size_t size)
{
    return checked(malloc(size == 0 ? 1 : size));
}

void *sf_realloc(void *ptr, size_t size)
{
    return checked(realloc(ptr, size == 0 ? 1 : size));
}

void *sf_memdup(const void *src, size_t size)
{
    void *copy = sf_malloc(size);

    if (size > 0)
        memcpy(copy, src, size);
    return copy;
}

char *sf_strdup(const char *text)
{
    return sf_memdup(text, strlen(text) + 1);
}
