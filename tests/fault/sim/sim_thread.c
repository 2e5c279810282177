/*
 * The stacks that tasks run on, and the baton. Under a sanitizer they are real threads that hand
 * the baton over by semaphores, so that it sees what it understands. Otherwise they are contexts of
 * one thread: a change costs a fraction of a microsecond instead of a trip through the kernel's
 * scheduler, which was more than half of a run. Both go the same way under the same seed.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "fault/sim/sim_priv.h"

static struct sim_thread *thread_new(struct sim *sim)
{
    struct sim_thread *t = sf_calloc(1, sizeof(*t));
    t->sim = sim;
    t->all_next = sim->threads;
    sim->threads = t;
    return t;
}

#ifdef SF_SANITIZED

void sim_threads_init(struct sim *sim)
{
    SF_ASSERT(sem_init(&sim->back, 0, 0) == 0);
}

void sim_thread_run(struct sim *sim, struct sim_thread *t)
{
    SF_ASSERT(sim->current == NULL);
    sim->current = t;
    SF_ASSERT(sem_post(&t->go) == 0);
    while (sem_wait(&sim->back) != 0) {
    }
    sim->current = NULL;
}

void sim_thread_give_back(struct sim_thread *t)
{
    SF_ASSERT(sem_post(&t->sim->back) == 0);
    while (sem_wait(&t->go) != 0) {
    }
}

static void *thread_main(void *arg)
{
    struct sim_thread *t = arg;
    while (sem_wait(&t->go) != 0) {
    }
    while (!t->quit) {
        sim_thread_work(t);
        sim_thread_give_back(t);
    }
    return NULL;
}

struct sim_thread *sim_thread_take(struct sim *sim)
{
    struct sim_thread *t = sim->idle;
    if (t != NULL) {
        sim->idle = t->next;
        return t;
    }
    t = thread_new(sim);
    SF_ASSERT(sem_init(&t->go, 0, 0) == 0);
    SF_ASSERT(pthread_create(&t->thread, NULL, thread_main, t) == 0);
    return t;
}

void sim_threads_fini(struct sim *sim)
{
    while (sim->threads != NULL) {
        struct sim_thread *t = sim->threads;
        sim->threads = t->all_next;
        t->quit = true;
        SF_ASSERT(sem_post(&t->go) == 0);
        SF_ASSERT(pthread_join(t->thread, NULL) == 0);
        (void)sem_destroy(&t->go);
        free(t);
    }
    (void)sem_destroy(&sim->back);
}

#else

#include <sys/mman.h>

#define STACK_BYTES ((size_t)1 << 20)
#define GUARD_BYTES ((size_t)1 << 16)

/* Stacks of worlds that ended: they are warm. Only one world runs at a time. */
static struct sim_thread *spare;

void sim_threads_init(struct sim *sim)
{
    (void)sim;
}

void sim_thread_run(struct sim *sim, struct sim_thread *t)
{
    SF_ASSERT(sim->current == NULL);
    sim->current = t;
    SF_ASSERT(swapcontext(&sim->main, &t->context) == 0);
    sim->current = NULL;
}

void sim_thread_give_back(struct sim_thread *t)
{
    SF_ASSERT(swapcontext(&t->context, &t->sim->main) == 0);
}

/* A pointer in two halves: arguments of a context are ints. */
static void thread_main(unsigned high, unsigned low)
{
    struct sim_thread *t = (struct sim_thread *)((uintptr_t)high << 32 | (uintptr_t)low);
    for (;;) {
        sim_thread_work(t);
        sim_thread_give_back(t);
    }
}

static void give_stack(struct sim_thread *t)
{
    void *memory = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SF_ASSERT(memory != MAP_FAILED);
    SF_ASSERT(mprotect(memory, GUARD_BYTES, PROT_NONE) == 0);
    SF_ASSERT(getcontext(&t->context) == 0);
    t->context.uc_stack.ss_sp = (char *)memory + GUARD_BYTES;
    t->context.uc_stack.ss_size = STACK_BYTES;
    t->context.uc_link = NULL;
    uint64_t address = (uintptr_t)t;
    makecontext(&t->context, (void (*)(void))thread_main, 2, (unsigned)(address >> 32),
                (unsigned)address);
}

struct sim_thread *sim_thread_take(struct sim *sim)
{
    struct sim_thread *t = sim->idle;
    if (t != NULL) {
        sim->idle = t->next;
        return t;
    }
    if (spare == NULL) {
        t = thread_new(sim);
        give_stack(t);
        return t;
    }
    t = spare;
    spare = t->next;
    t->sim = sim;
    t->all_next = sim->threads;
    sim->threads = t;
    return t;
}

void sim_threads_fini(struct sim *sim)
{
    while (sim->threads != NULL) {
        struct sim_thread *t = sim->threads;
        sim->threads = t->all_next;
        t->next = spare;
        spare = t;
    }
}

#endif
