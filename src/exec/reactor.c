/*
 * Reactors. Each is a libuv loop on its own thread.
 *
 *   other threads --CAS--> mailbox (a stack) --uv_async--> reversed, run in post order
 *   own thread    -------> local queue       --uv_idle---> run in the next turn, no system call
 *   timers        -------> heap, one uv_timer armed for the earliest
 *
 * A poster wakes the loop only when it found the mailbox empty, so a burst costs one wake-up. The
 * exchange that empties the mailbox and the push that finds it empty are ordered both ways: libuv
 * drops a wake-up whose note "one is pending" it still sees, and the loop takes that note away
 * before it empties the mailbox. What a task posts runs in the next turn; sockets get their share
 * in between. `now_ms` is read once at the start of each phase: a blocking poll lies between two
 * phases.
 */
#include "exec/reactor.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <uv.h>

#include "base/mem.h"
#include "exec/exec_priv.h"
#include "exec/timer_heap.h"

struct sf_reactor {
    struct sf_loop base; /* first: what callers hold */

    /* immutable */
    pthread_t thread; /* runs the loop */
    uv_loop_t uv;     /* its libuv loop */

    /* atomic */
    _Atomic(struct sf_task *) mailbox; /* newest first */

    /* loop */
    uv_async_t wake;             /* the mailbox was empty and is no more */
    uv_idle_t again;             /* active while `local` is not empty */
    uv_timer_t alarm;            /* armed for the earliest timer */
    struct sf_task_queue local;  /* posted by this thread */
    struct sf_timer_heap timers; /* earliest first */
    int64_t armed_ms;            /* due time the alarm is armed for, INT64_MAX = not armed */
    struct sf_task stop;         /* lets the loop end once nothing is left to do */
};

struct sf_reactors {
    unsigned count;             /* started */
    struct sf_reactor *reactor; /* array of `count` */
};

static _Thread_local struct sf_reactor *current_reactor;

static struct sf_reactor *reactor_of(struct sf_loop *loop)
{
    return SF_CONTAINER_OF(loop, struct sf_reactor, base);
}

static void turn_begin(struct sf_reactor *reactor)
{
    reactor->base.now_ms = sf_clock_mono_ms(reactor->base.clock);
}

static void on_idle(uv_idle_t *handle);

static void reactor_post(struct sf_loop *loop, struct sf_task *task)
{
    struct sf_reactor *reactor = reactor_of(loop);

    if (current_reactor == reactor) {
        if (reactor->local.head == NULL)
            (void)uv_idle_start(&reactor->again, on_idle);
        sf_task_queue_push(&reactor->local, task);
        return;
    }
    struct sf_task *head = atomic_load_explicit(&reactor->mailbox, memory_order_relaxed);
    do {
        task->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&reactor->mailbox, &head, task,
                                                    memory_order_acq_rel, memory_order_relaxed));
    if (head == NULL)
        (void)uv_async_send(&reactor->wake);
}

/* Runs what the mailbox held on entry, in post order; false when it was empty. */
static bool mailbox_run(struct sf_reactor *reactor)
{
    struct sf_task *newest =
        atomic_exchange_explicit(&reactor->mailbox, NULL, memory_order_acq_rel);
    struct sf_task *oldest = NULL;

    while (newest != NULL) {
        struct sf_task *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    bool any = oldest != NULL;
    while (oldest != NULL) {
        struct sf_task *task = oldest;
        oldest = task->next;
        task->next = NULL;
        task->run(task);
    }
    return any;
}

/* Runs what the local queue held on entry; false when it was empty. */
static bool local_run(struct sf_reactor *reactor)
{
    struct sf_task_queue batch = reactor->local;
    bool any = batch.head != NULL;

    reactor->local = (struct sf_task_queue){0};
    for (struct sf_task *task; (task = sf_task_queue_pop(&batch)) != NULL;)
        task->run(task);
    return any;
}

static void on_wake(uv_async_t *handle)
{
    struct sf_reactor *reactor = handle->data;

    turn_begin(reactor);
    (void)mailbox_run(reactor);
}

static void on_idle(uv_idle_t *handle)
{
    struct sf_reactor *reactor = handle->data;

    (void)uv_idle_stop(handle);
    turn_begin(reactor);
    (void)local_run(reactor);
}

static void on_alarm(uv_timer_t *handle);

static void alarm_arm(struct sf_reactor *reactor)
{
    struct sf_timer *first = sf_timer_heap_first(&reactor->timers);
    int64_t due_ms = first == NULL ? INT64_MAX : first->due_ms;

    if (due_ms >= reactor->armed_ms)
        return; /* an alarm that is too early costs one look */
    int64_t now_ms = sf_clock_mono_ms(reactor->base.clock);
    reactor->armed_ms = due_ms;
    uv_update_time(&reactor->uv);
    (void)uv_timer_start(&reactor->alarm, on_alarm,
                         due_ms > now_ms ? (uint64_t)(due_ms - now_ms) : 0, 0);
}

static void on_alarm(uv_timer_t *handle)
{
    struct sf_reactor *reactor = handle->data;

    turn_begin(reactor);
    sf_timer_heap_run(&reactor->timers, reactor->base.now_ms);
    reactor->armed_ms = INT64_MAX;
    alarm_arm(reactor);
}

static void reactor_timer_start(struct sf_loop *loop, struct sf_timer *timer, int64_t delay_ms)
{
    struct sf_reactor *reactor = reactor_of(loop);

    SF_ASSERT(current_reactor == reactor && delay_ms >= 0);
    int64_t room_ms = INT64_MAX - loop->now_ms;
    sf_timer_heap_start(&reactor->timers, timer,
                        loop->now_ms + (delay_ms < room_ms ? delay_ms : room_ms));
    alarm_arm(reactor);
}

static void reactor_timer_stop(struct sf_loop *loop, struct sf_timer *timer)
{
    struct sf_reactor *reactor = reactor_of(loop);

    SF_ASSERT(current_reactor == reactor);
    sf_timer_heap_stop(&reactor->timers, timer);
}

static bool reactor_is_current(struct sf_loop *loop)
{
    return current_reactor == reactor_of(loop);
}

static const struct sf_loop_vtable reactor_vtable = {
    .post = reactor_post,
    .timer_start = reactor_timer_start,
    .timer_stop = reactor_timer_stop,
    .is_current = reactor_is_current,
};

static void on_stop(struct sf_task *task)
{
    struct sf_reactor *reactor = SF_CONTAINER_OF(task, struct sf_reactor, stop);

    uv_unref((uv_handle_t *)&reactor->wake);
    uv_unref((uv_handle_t *)&reactor->alarm);
}

static void *reactor_main(void *arg)
{
    struct sf_reactor *reactor = arg;
    sigset_t all;

    /* Signals are the main thread's; SIGPIPE of a lost peer comes as an error of the write. */
    sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, NULL);
    current_reactor = reactor;
    turn_begin(reactor);
    (void)uv_run(&reactor->uv, UV_RUN_DEFAULT);
    while (local_run(reactor) || mailbox_run(reactor))
        ;
    return NULL;
}

static enum sf_err reactor_init(struct sf_reactor *reactor, struct sf_clock *clock,
                                struct sf_diag *diag)
{
    *reactor = (struct sf_reactor){
        .base = {.vtable = &reactor_vtable, .clock = clock},
        .armed_ms = INT64_MAX,
        .stop = {.run = on_stop},
    };
    int rc = uv_loop_init(&reactor->uv);
    if (rc != 0)
        return sf_diag_set(diag, SF_ERR_IO, "event loop: %s", uv_strerror(rc));
    rc = uv_async_init(&reactor->uv, &reactor->wake, on_wake);
    if (rc != 0) {
        (void)uv_loop_close(&reactor->uv);
        return sf_diag_set(diag, SF_ERR_IO, "event loop wake-up: %s", uv_strerror(rc));
    }
    (void)uv_idle_init(&reactor->uv, &reactor->again);
    (void)uv_timer_init(&reactor->uv, &reactor->alarm);
    reactor->wake.data = reactor->again.data = reactor->alarm.data = reactor;
    reactor->base.now_ms = sf_clock_mono_ms(clock);
    return SF_OK;
}

/* Closes the loop; its thread is gone or never was. */
static void reactor_fini(struct sf_reactor *reactor)
{
    current_reactor = NULL;
    uv_close((uv_handle_t *)&reactor->wake, NULL);
    uv_close((uv_handle_t *)&reactor->again, NULL);
    uv_close((uv_handle_t *)&reactor->alarm, NULL);
    (void)uv_run(&reactor->uv, UV_RUN_DEFAULT);
    SF_ASSERT(uv_loop_close(&reactor->uv) == 0);
    sf_timer_heap_fini(&reactor->timers);
}

/* Runs tasks that other reactors posted to one that had ended already. */
static bool reactor_run_late(struct sf_reactor *reactor)
{
    current_reactor = reactor;
    bool any = local_run(reactor);
    any = mailbox_run(reactor) || any;
    current_reactor = NULL;
    return any;
}

void sf_reactors_stop(struct sf_reactors *reactors)
{
    if (reactors == NULL)
        return;
    for (unsigned i = 0; i < reactors->count; i++)
        sf_loop_post(&reactors->reactor[i].base, &reactors->reactor[i].stop);
    for (unsigned i = 0; i < reactors->count; i++)
        pthread_join(reactors->reactor[i].thread, NULL);
    for (bool any = true; any;) {
        any = false;
        for (unsigned i = 0; i < reactors->count; i++)
            any = reactor_run_late(&reactors->reactor[i]) || any;
    }
    for (unsigned i = 0; i < reactors->count; i++)
        reactor_fini(&reactors->reactor[i]);
    free(reactors->reactor);
    free(reactors);
}

enum sf_err sf_reactors_start(unsigned count, struct sf_clock *clock, struct sf_diag *diag,
                              struct sf_reactors **out_reactors)
{
    struct sf_reactors *reactors = sf_calloc(1, sizeof(*reactors));
    enum sf_err err = SF_OK;

    SF_ASSERT(count >= 1);
    reactors->reactor = sf_calloc(count, sizeof(*reactors->reactor));
    while (err == SF_OK && reactors->count < count) {
        struct sf_reactor *reactor = &reactors->reactor[reactors->count];
        err = reactor_init(reactor, clock, diag);
        if (err != SF_OK)
            break;
        int rc = pthread_create(&reactor->thread, NULL, reactor_main, reactor);
        if (rc == 0) {
            reactors->count++;
            continue;
        }
        err = sf_diag_set(diag, SF_ERR_IO, "reactor thread: %s", uv_strerror(-rc));
        reactor_fini(reactor);
    }
    if (err != SF_OK) {
        sf_reactors_stop(reactors);
        reactors = NULL;
    }
    *out_reactors = reactors;
    return err;
}

unsigned sf_reactors_count(const struct sf_reactors *reactors)
{
    return reactors->count;
}

struct sf_loop *sf_reactors_loop(struct sf_reactors *reactors, unsigned index)
{
    SF_ASSERT(index < reactors->count);
    return &reactors->reactor[index].base;
}

void *sf_reactor_uv(struct sf_loop *loop)
{
    SF_ASSERT(loop->vtable == &reactor_vtable);
    return &reactor_of(loop)->uv;
}

void sf_reactor_turn(struct sf_loop *loop)
{
    struct sf_reactor *reactor = reactor_of(loop);

    SF_ASSERT(current_reactor == reactor);
    turn_begin(reactor);
}
