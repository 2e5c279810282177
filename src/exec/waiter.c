/*
 * Waiters. A waiter belongs to a scheduler that knows how to block its tasks; without one, and for
 * the thread pool, it is one word in the waiter's private space on which the kernel lets the thread
 * sleep: wakes not yet consumed, and whether the waiter sleeps. A wake of one who does not sleep
 * costs no system call, one of a sleeper costs one and no lock that both would meet at.
 *
 * The waker's last look at the waiter's memory is the addition that opens the gate. The system call
 * after it names the address alone: whoever sleeps on that address by then is woken for nothing and
 * looks again, as every sleeper here and in the C library does.
 */
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exec/exec_priv.h"

#define SLEEPS ((uint32_t)1 << 31) /* set by the waiter only */

struct gate {
    _Atomic uint32_t state; /* wakes not yet consumed by a wait; SLEEPS */
};

_Static_assert(sizeof(struct gate) <= sizeof(((struct sf_waiter *)0)->impl),
               "the gate lives in the waiter's private space");

static struct gate *gate_of(struct sf_waiter *waiter)
{
    return (struct gate *)(void *)waiter->impl;
}

void sf_gate_init(struct sf_waiter *waiter)
{
    atomic_init(&gate_of(waiter)->state, 0);
}

/* Takes one wake if there is one; else notes that the waiter sleeps. */
static bool take_wake(struct gate *gate)
{
    uint32_t seen = atomic_load_explicit(&gate->state, memory_order_acquire);
    uint32_t next;

    do {
        uint32_t wakes = seen & ~SLEEPS;
        next = wakes == 0 ? SLEEPS : wakes - 1;
    } while (!atomic_compare_exchange_weak_explicit(&gate->state, &seen, next, memory_order_acquire,
                                                    memory_order_acquire));
    return next != SLEEPS;
}

void sf_gate_wait(struct sf_waiter *waiter)
{
    struct gate *gate = gate_of(waiter);

    while (!take_wake(gate)) /* the kernel looks at the word again: no wake is missed */
        (void)syscall(SYS_futex, &gate->state, FUTEX_WAIT_PRIVATE, SLEEPS, NULL, NULL, 0);
}

void sf_gate_wake(struct sf_waiter *waiter)
{
    struct gate *gate = gate_of(waiter);

    if ((atomic_fetch_add_explicit(&gate->state, 1, memory_order_release) & SLEEPS) != 0)
        (void)syscall(SYS_futex, &gate->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void sf_gate_fini(struct sf_waiter *waiter)
{
    (void)waiter; /* the word needs no end */
}

void sf_waiter_init(struct sf_waiter *waiter, struct sf_sched *sched)
{
    *waiter = (struct sf_waiter){.sched = sched};
    if (sched == NULL)
        sf_gate_init(waiter);
    else
        sched->vtable->waiter_init(sched, waiter);
}

void sf_waiter_wait(struct sf_waiter *waiter)
{
    if (waiter->sched == NULL)
        sf_gate_wait(waiter);
    else
        waiter->sched->vtable->waiter_wait(waiter->sched, waiter);
}

void sf_waiter_wake(struct sf_waiter *waiter)
{
    if (waiter->sched == NULL)
        sf_gate_wake(waiter);
    else
        waiter->sched->vtable->waiter_wake(waiter->sched, waiter);
}

void sf_waiter_fini(struct sf_waiter *waiter)
{
    if (waiter->sched == NULL)
        sf_gate_fini(waiter);
    else
        waiter->sched->vtable->waiter_fini(waiter->sched, waiter);
}
