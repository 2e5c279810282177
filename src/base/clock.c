/*
 * The machine's clocks and one that is moved by hand. mono_ms counts time spent suspended
 * (CLOCK_BOOTTIME), because leases and TTLs run on while a laptop sleeps; mono_ns is for measuring.
 */
#include "base/clock.h"

#include <time.h>

#include "base/compiler.h"

static int64_t read_ns(clockid_t id)
{
    struct timespec ts;

    SF_ASSERT(clock_gettime(id, &ts) == 0);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int64_t system_unix_ms(struct sf_clock *clock)
{
    (void)clock;
    return read_ns(CLOCK_REALTIME) / 1000000;
}

static int64_t system_mono_ms(struct sf_clock *clock)
{
    (void)clock;
    return read_ns(CLOCK_BOOTTIME) / 1000000;
}

static int64_t system_mono_ns(struct sf_clock *clock)
{
    (void)clock;
    return read_ns(CLOCK_MONOTONIC);
}

struct sf_clock *sf_clock_system(void)
{
    static const struct sf_clock_vtable vtable = {system_unix_ms, system_mono_ms, system_mono_ns};
    static struct sf_clock clock = {&vtable};

    return &clock;
}

static int64_t manual_unix_ms(struct sf_clock *clock)
{
    return SF_CONTAINER_OF(clock, struct sf_clock_manual, base)->unix_ms;
}

static int64_t manual_mono_ms(struct sf_clock *clock)
{
    return SF_CONTAINER_OF(clock, struct sf_clock_manual, base)->mono_ns / 1000000;
}

static int64_t manual_mono_ns(struct sf_clock *clock)
{
    return SF_CONTAINER_OF(clock, struct sf_clock_manual, base)->mono_ns;
}

void sf_clock_manual_init(struct sf_clock_manual *manual, int64_t unix_ms, int64_t mono_ns)
{
    static const struct sf_clock_vtable vtable = {manual_unix_ms, manual_mono_ms, manual_mono_ns};

    manual->base.vtable = &vtable;
    manual->unix_ms = unix_ms;
    manual->mono_ns = mono_ns;
}

void sf_clock_manual_advance(struct sf_clock_manual *manual, int64_t ms)
{
    SF_ASSERT(ms >= 0);
    manual->unix_ms += ms;
    manual->mono_ns += ms * 1000000;
}
