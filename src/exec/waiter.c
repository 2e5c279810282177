/*
 * Waiters. A waiter belongs to a scheduler that knows how to block its tasks; without one, and for
 * the thread pool, it is a mutex, a condition variable and a count of wakes kept in the waiter's
 * private space. The waker signals while it holds the mutex, so that the waiter, which may destroy
 * both as soon as it has the mutex, never does so under the waker's feet.
 */
#include <pthread.h>

#include "exec/exec_priv.h"

struct gate {
    pthread_mutex_t mu;   /* guards wakes */
    pthread_cond_t woken; /* wakes is above 0 */
    unsigned wakes;       /* under mu: wakes not yet consumed by a wait */
};

_Static_assert(sizeof(struct gate) <= sizeof(((struct sf_waiter *)0)->impl),
               "the gate lives in the waiter's private space");

static struct gate *gate_of(struct sf_waiter *waiter)
{
    return (struct gate *)(void *)waiter->impl;
}

void sf_gate_init(struct sf_waiter *waiter)
{
    struct gate *gate = gate_of(waiter);

    SF_ASSERT(pthread_mutex_init(&gate->mu, NULL) == 0);
    SF_ASSERT(pthread_cond_init(&gate->woken, NULL) == 0);
    gate->wakes = 0;
}

void sf_gate_wait(struct sf_waiter *waiter)
{
    struct gate *gate = gate_of(waiter);

    pthread_mutex_lock(&gate->mu);
    while (gate->wakes == 0)
        pthread_cond_wait(&gate->woken, &gate->mu);
    gate->wakes--;
    pthread_mutex_unlock(&gate->mu);
}

void sf_gate_wake(struct sf_waiter *waiter)
{
    struct gate *gate = gate_of(waiter);

    pthread_mutex_lock(&gate->mu);
    gate->wakes++;
    pthread_cond_signal(&gate->woken);
    pthread_mutex_unlock(&gate->mu);
}

void sf_gate_fini(struct sf_waiter *waiter)
{
    struct gate *gate = gate_of(waiter);

    /* The last waker may still be inside its unlock: take the mutex once after it. */
    pthread_mutex_lock(&gate->mu);
    pthread_mutex_unlock(&gate->mu);
    pthread_cond_destroy(&gate->woken);
    pthread_mutex_destroy(&gate->mu);
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
