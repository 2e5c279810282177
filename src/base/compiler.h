/* Compiler attributes and the invariant assertion that stays on in release builds. */
#ifndef SF_BASE_COMPILER_H
#define SF_BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>

#define SF_MUST_USE          __attribute__((warn_unused_result))
#define SF_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define SF_NORETURN          __attribute__((noreturn))
#define SF_NONNULL           __attribute__((returns_nonnull))

#define SF_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* The structure of type `type` whose member `member` is at `ptr`. */
#define SF_CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Prints file, line and the broken condition to stderr and aborts the process. Any thread. */
SF_NORETURN void sf_assert_failed(const char *file, int line, const char *condition);

/* Guards our own invariants only; input, peers and disk give errors. On in every build. */
#define SF_ASSERT(cond)                                                                            \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0))                                                          \
            sf_assert_failed(__FILE__, __LINE__, #cond);                                           \
    } while (0)

#endif
