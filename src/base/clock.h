/* Clocks, handed in at construction so that tests and the simulator own time. */
#ifndef SF_BASE_CLOCK_H
#define SF_BASE_CLOCK_H

#include <stdint.h>

struct sf_clock;

struct sf_clock_vtable {
    int64_t (*unix_ms)(struct sf_clock *clock); /* wall clock, may step */
    int64_t (*mono_ms)(struct sf_clock *clock); /* monotonic, counts suspension (CLOCK_BOOTTIME) */
    int64_t (*mono_ns)(struct sf_clock *clock); /* monotonic, for measuring */
};

struct sf_clock {
    const struct sf_clock_vtable *vtable; /* never NULL */
};

/* The machine's clock; static, any thread. */
struct sf_clock *sf_clock_system(void);

static inline int64_t sf_clock_unix_ms(struct sf_clock *clock)
{
    return clock->vtable->unix_ms(clock);
}

static inline int64_t sf_clock_mono_ms(struct sf_clock *clock)
{
    return clock->vtable->mono_ms(clock);
}

static inline int64_t sf_clock_mono_ns(struct sf_clock *clock)
{
    return clock->vtable->mono_ns(clock);
}

/* A clock moved by hand. Not thread safe. */
struct sf_clock_manual {
    struct sf_clock base; /* pass &manual.base */
    int64_t unix_ms;      /* wall clock to answer */
    int64_t mono_ns;      /* monotonic nanoseconds to answer */
};

/* Sets both readings. */
void sf_clock_manual_init(struct sf_clock_manual *manual, int64_t unix_ms, int64_t mono_ns);

/* Moves both readings forward by `ms` >= 0. */
void sf_clock_manual_advance(struct sf_clock_manual *manual, int64_t ms);

#endif
