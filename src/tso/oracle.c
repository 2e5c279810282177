/*
 * The built-in oracle. `tso/window.json` holds the exclusive end of the reserved window; nothing at
 * or above the end known to stand is ever given out, and whoever starts continues at or above the
 * end that stands, so timestamps never repeat, whatever the clock does. Time is one integer: when a
 * millisecond's logical part is used up the count runs on into the next millisecond, which is then
 * ahead of the clock until the clock catches up.
 *
 * While the clock lies behind (it was set back, or an earlier oracle reserved ahead) timestamps go
 * on at half the pace of the time that passes: whoever waits until they pass a bound waits a second
 * and not until the clock is there again, and the clock still catches up.
 *
 * One operation on the window at a time:
 *
 *   IDLE --window is needed--> SWAPPING --ok--> IDLE
 *                                |  lost, or outcome unknown
 *                                v
 *                             READING --own object stands--> IDLE (adopted)
 *                                |  old object stands: nothing is settled, swap again (doubt)
 *                                |  somebody else's: STOPPED for good
 *
 * A swap starts when half of the window is used, on a request; an idle oracle costs nothing. The
 * window only ever moves under the etag read or written last.
 *
 * A thread that may wait takes what the window holds at once, under the mutex; whatever else there
 * is to do (nobody is overtaken, the window is to be extended, the clock jumped) is the loop's.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "searchfabric/v1/durable.pb-c.h"
#include "tso/tso.h"
#include "tso/tso_priv.h"

#define WINDOW_KEY        "tso/window.json"
#define DEFAULT_WINDOW_MS 3000u
#define DAY_MS            INT64_C(86400000)
#define OPEN_TRIES        8
#define FRUITLESS_SWAPS   4u
#define ARENA_BYTES       ((size_t)1 << 16)

enum window_state { WINDOW_IDLE, WINDOW_SWAPPING, WINDOW_READING, WINDOW_STOPPED };

struct oracle {
    struct sf_tso_source base;          /* what callers hold */
    struct sf_clock axis;               /* immutable: what sf_oracle_clock hands out */
    struct sf_oracle_options options;   /* immutable */
    struct sf_sched *sched;             /* immutable: how open and destroy wait */
    char owner_id[SF_ATTEMPT_ID_BYTES]; /* immutable */
    uint64_t epoch;                     /* immutable */
    pthread_mutex_t mu;                 /* of what follows `loop`: held on the loop, and to take */
    _Atomic bool stopped;               /* state is WINDOW_STOPPED; for other threads */
    _Atomic uint64_t issued;            /* `next`, for other threads */
    _Atomic int64_t issued_mono_ms;     /* monotonic clock then */
    /* loop; written under mu */
    enum window_state state;     /* of the window object */
    bool doubt;                  /* the last swap may still land: look before the next one */
    bool jump_logged;            /* the clock's present jump was reported */
    unsigned fruitless;          /* swaps in a row that moved nothing */
    uint64_t next;               /* next timestamp to give out */
    uint64_t lead;               /* timestamp from which on the clock may lie behind */
    int64_t lead_mono_ms;        /* monotonic clock then */
    uint64_t end;                /* end of the window that is known to stand */
    int64_t end_unix_ms;         /* wall clock when it was reserved */
    int64_t end_mono_ms;         /* monotonic clock then */
    struct sf_etag etag;         /* of the object that is known to stand */
    struct sf_tso_queue waiting; /* for a window */
    struct sf_batch batch;       /* swap under way */
    struct sf_put put;           /* its put */
    struct sf_buf body;          /* its body */
    uint64_t put_end;            /* end of the window in it */
    struct sf_get get;           /* read under way */
    struct sf_task close_task;   /* brings the end to the loop */
    struct sf_waiter *closing;   /* destroy's; immutable once close_task is posted */
    struct sf_waiter *closer;    /* the same, once the loop has seen it; NULL while serving */
};

static struct oracle *oracle_of(struct sf_tso_source *source)
{
    return SF_CONTAINER_OF(source, struct oracle, base);
}

/* ---- the window object ---- */

static uint64_t window_ticks(const struct oracle *o)
{
    return (uint64_t)o->options.window_ms << SF_TSO_LOGICAL_BITS;
}

static uint64_t clock_ts(const struct oracle *o)
{
    int64_t ms = sf_clock_unix_ms(o->options.clock);

    return sf_tso_from_ms(ms < 0 ? 0 : (uint64_t)ms).v;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Body of a window object with a fresh attempt, in o->body, and the put that would place it. */
static void make_put(struct oracle *o, uint64_t end)
{
    Searchfabric__V1__TsoWindow w = SEARCHFABRIC__V1__TSO_WINDOW__INIT;
    char attempt[SF_ATTEMPT_ID_BYTES];

    sf_attempts_next(o->options.attempts, attempt);
    w.attempt_id = attempt;
    w.window_end_ts = end;
    w.tso_epoch = o->epoch;
    w.owner_id = o->owner_id;
    w.updated_at_unix_ms = sf_clock_unix_ms(o->options.clock);
    sf_buf_clear(&o->body);
    sf_durable_encode(&w.base, &o->body, NULL);
    bool create = o->etag.text[0] == '\0';
    o->put = (struct sf_put){.key = sf_view_str(WINDOW_KEY),
                             .body = sf_buf_view(&o->body),
                             .cond = create ? SF_PUT_ABSENT : SF_PUT_MATCH,
                             .match = o->etag};
    if (SF_MUTANT(tso_window_unconditional))
        o->put.cond = SF_PUT_ANY;
}

static void window_stands(struct oracle *o, uint64_t end, const struct sf_etag *etag)
{
    o->end = end;
    o->etag = *etag;
    o->doubt = false;
    o->jump_logged = false;
    o->end_unix_ms = sf_clock_unix_ms(o->options.clock);
    o->end_mono_ms = sf_clock_mono_ms(o->options.clock);
}

/* ---- opening ---- */

static enum sf_err check_clock(const struct oracle *o, uint64_t old_end, struct sf_diag *diag)
{
    int64_t end_ms = (int64_t)sf_tso_physical_ms((struct sf_tso){old_end});
    int64_t now_ms = sf_clock_unix_ms(o->options.clock);

    if (now_ms - end_ms <= DAY_MS || o->options.accept_clock_jump)
        return SF_OK;
    return sf_diag_set(diag, SF_ERR_CONFIG,
                       "the clock (%" PRId64 " ms) is more than a day past the last timestamp "
                       "window (%" PRId64 " ms); if the clock is right, start with "
                       "--accept-clock-jump",
                       now_ms, end_ms);
}

/* Reads the window and swaps in one of our own. SF_ERR_PRECONDITION and SF_ERR_AMBIGUOUS: read
 * again. */
static enum sf_err open_once(struct oracle *o, struct sf_arena *arena, struct sf_diag *diag)
{
    ProtobufCMessage *message = NULL;
    uint64_t old_end = 0;

    o->etag = (struct sf_etag){{0}};
    o->epoch = 1;
    enum sf_err err = sf_durable_read_wait(o->options.store, o->sched, sf_view_str(WINDOW_KEY),
                                           &searchfabric__v1__tso_window__descriptor, arena, diag,
                                           &message, &o->etag);
    if (err == SF_OK) {
        const Searchfabric__V1__TsoWindow *w = (const void *)message;
        old_end = w->window_end_ts;
        o->epoch = w->tso_epoch + 1;
        err = check_clock(o, old_end, diag);
        if (err != SF_OK)
            return err;
    } else if (err != SF_ERR_NOT_FOUND) {
        return err;
    }
    o->next = max_u64(old_end, clock_ts(o));
    if (SF_MUTANT(tso_start_at_clock))
        o->next = clock_ts(o);
    uint64_t end = o->next + window_ticks(o);
    make_put(o, end);
    err = sf_store_put_wait(o->options.store, o->sched, &o->put);
    if (err == SF_OK)
        window_stands(o, end, &o->put.etag);
    return err;
}

static enum sf_err open_window(struct oracle *o, struct sf_diag *diag)
{
    struct sf_arena *arena = sf_arena_new(ARENA_BYTES);
    enum sf_err err = SF_ERR_AMBIGUOUS;

    for (int i = 0; i < OPEN_TRIES && (err == SF_ERR_PRECONDITION || err == SF_ERR_AMBIGUOUS);
         i++) {
        sf_arena_reset(arena);
        err = open_once(o, arena, diag);
    }
    sf_arena_destroy(arena);
    if (err == SF_OK || err == SF_ERR_CONFIG || err == SF_ERR_CORRUPT)
        return err;
    return sf_diag_set(diag, SF_ERR_UNAVAILABLE, "the timestamp window could not be reserved: %s",
                       sf_err_info(err)->meaning);
}

/* ---- serving, on the loop ---- */

static void fail_waiting(struct oracle *o)
{
    struct sf_tso_queue failed = o->waiting;
    struct sf_tso_request *r;

    o->waiting = (struct sf_tso_queue){0};
    while ((r = sf_tso_queue_pop(&failed)) != NULL) {
        r->err = SF_BACKEND_UNAVAILABLE;
        r->first = (struct sf_tso){0};
        sf_tso_complete_on_loop(r, o->options.loop);
    }
}

static void stop_for_good(struct oracle *o, const char *why)
{
    o->state = WINDOW_STOPPED;
    atomic_store(&o->stopped, true);
    SF_LOG(ERROR, "tso_stopped", SF_KV_U64("tso_epoch", o->epoch), SF_KV_STR("reason", why));
    fail_waiting(o);
}

/* From here on the clock may lie behind. */
static void take_lead(struct oracle *o)
{
    o->lead = o->next;
    o->lead_mono_ms = sf_clock_mono_ms(o->options.clock);
}

/* Follows the clock; never back. */
static void follow_clock(struct oracle *o)
{
    uint64_t clock = clock_ts(o);

    if (SF_MUTANT(tso_follow_clock_back)) {
        o->next = clock;
    } else if (clock >= o->next) {
        o->next = clock;
        take_lead(o);
    } else {
        int64_t passed_ms = sf_clock_mono_ms(o->options.clock) - o->lead_mono_ms;
        o->next = max_u64(o->next, o->lead + sf_tso_from_ms((uint64_t)passed_ms / 2).v);
    }
}

static void note_issued(struct oracle *o)
{
    atomic_store(&o->issued, o->next);
    atomic_store(&o->issued_mono_ms, sf_clock_mono_ms(o->options.clock));
}

static bool fits(const struct oracle *o, uint32_t count)
{
    return o->next < o->end && count <= o->end - o->next;
}

/* Serves, in order, what the window holds. */
static void serve_on_loop(struct oracle *o)
{
    while (o->waiting.head != NULL && fits(o, o->waiting.head->count)) {
        struct sf_tso_request *r = sf_tso_queue_pop(&o->waiting);
        r->err = SF_OK;
        r->first = (struct sf_tso){o->next};
        o->next += r->count;
        note_issued(o);
        sf_tso_complete_on_loop(r, o->options.loop);
    }
}

/* True when the wall clock ran away from the window by more than the time that passed explains:
 * then nothing is given out until it is back, or the operator restarts with accept_clock_jump. */
static bool clock_jumped(const struct oracle *o)
{
    int64_t wall_ms = sf_clock_unix_ms(o->options.clock) - o->end_unix_ms;
    int64_t passed_ms = sf_clock_mono_ms(o->options.clock) - o->end_mono_ms;

    return wall_ms - passed_ms > DAY_MS && !o->options.accept_clock_jump;
}

static void send_swap(struct oracle *o);
static void send_read(struct oracle *o);

/* The store did not answer: who waits is told, the next request tries again. */
static void give_up_for_now(struct oracle *o)
{
    o->state = WINDOW_IDLE;
    o->fruitless = 0;
    fail_waiting(o);
}

/* The window is settled: serve, and go on extending while somebody waits. */
static void settled(struct oracle *o)
{
    o->state = WINDOW_IDLE;
    if (o->closer != NULL)
        return;
    serve_on_loop(o);
    if (o->waiting.head == NULL)
        o->fruitless = 0;
    else if (++o->fruitless < FRUITLESS_SWAPS)
        send_swap(o);
    else
        give_up_for_now(o);
}

static void closed_on_loop(struct oracle *o)
{
    if (o->closer == NULL || o->state == WINDOW_SWAPPING || o->state == WINDOW_READING)
        return;
    struct sf_waiter *closer = o->closer;
    o->closer = NULL;
    sf_waiter_wake(closer); /* `o` may be gone from here on */
}

static void on_read(struct sf_get *get)
{
    struct oracle *o = SF_CONTAINER_OF(get, struct oracle, get);
    struct sf_arena *arena = sf_arena_new(ARENA_BYTES);
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    (void)pthread_mutex_lock(&o->mu);
    if (get->err == SF_ERR_UNAVAILABLE) {
        give_up_for_now(o);
    } else if (get->err != SF_OK) {
        stop_for_good(o, "the window object is gone");
    } else if (sf_durable_decode(&searchfabric__v1__tso_window__descriptor, sf_buf_view(&get->body),
                                 arena, &diag, &message) != SF_OK) {
        stop_for_good(o, diag.message);
    } else {
        const Searchfabric__V1__TsoWindow *w = (const void *)message;
        bool own = w->tso_epoch == o->epoch && strcmp(w->owner_id, o->owner_id) == 0;
        if (!own && !SF_MUTANT(tso_ignores_other_owner)) {
            stop_for_good(o, "another oracle has the window");
        } else {
            window_stands(o, w->window_end_ts, &get->etag);
            settled(o);
        }
    }
    (void)pthread_mutex_unlock(&o->mu);
    sf_buf_fini(&get->body);
    sf_arena_destroy(arena);
    closed_on_loop(o);
}

static void send_read(struct oracle *o)
{
    o->state = WINDOW_READING;
    o->get =
        (struct sf_get){.key = sf_view_str(WINDOW_KEY), .loop = o->options.loop, .done = on_read};
    sf_store_get(o->options.store, &o->get);
}

static void on_swapped(struct sf_batch *batch)
{
    struct oracle *o = SF_CONTAINER_OF(batch, struct oracle, batch);
    enum sf_err err = o->put.err;

    (void)pthread_mutex_lock(&o->mu);
    if (err == SF_OK) {
        window_stands(o, o->put_end, &o->put.etag);
        settled(o);
    } else if (o->closer != NULL) {
        o->state = WINDOW_IDLE;
    } else if (err == SF_ERR_UNAVAILABLE) {
        give_up_for_now(o);
    } else {
        o->doubt = true;
        send_read(o);
    }
    (void)pthread_mutex_unlock(&o->mu);
    closed_on_loop(o);
}

static void send_swap(struct oracle *o)
{
    uint64_t want = o->waiting.head == NULL ? 0 : o->waiting.head->count;

    if (o->doubt) {
        send_read(o);
        return;
    }
    o->state = WINDOW_SWAPPING;
    o->put_end = max_u64(o->next, o->end) + max_u64(window_ticks(o), want);
    make_put(o, o->put_end);
    if (SF_MUTANT(tso_early_window)) {
        o->end = o->put_end;
        serve_on_loop(o);
    }
    o->batch =
        (struct sf_batch){.puts = &o->put, .count = 1, .loop = o->options.loop, .done = on_swapped};
    sf_store_submit(o->options.store, &o->batch);
}

static void report_jump(struct oracle *o)
{
    if (o->state == WINDOW_STOPPED || o->jump_logged)
        return;
    o->jump_logged = true;
    SF_LOG(ERROR, "tso_clock_jumped", SF_KV_U64("tso_epoch", o->epoch),
           SF_KV_I64("clock_unix_ms", sf_clock_unix_ms(o->options.clock)));
}

static bool low(const struct oracle *o)
{
    return o->next >= o->end || o->end - o->next < window_ticks(o) / 2;
}

static void on_request(struct sf_task *task)
{
    struct sf_tso_request *r = SF_CONTAINER_OF(task, struct sf_tso_request, task);
    struct oracle *o = r->owner;

    (void)pthread_mutex_lock(&o->mu);
    sf_tso_queue_push(&o->waiting, r);
    if (o->state == WINDOW_STOPPED || clock_jumped(o)) {
        report_jump(o);
        fail_waiting(o);
    } else {
        follow_clock(o);
        serve_on_loop(o);
        if (o->state == WINDOW_IDLE && low(o))
            send_swap(o);
    }
    (void)pthread_mutex_unlock(&o->mu);
}

static bool oracle_take(struct sf_tso_source *source, uint32_t count, struct sf_tso *out_first)
{
    struct oracle *o = oracle_of(source);

    SF_ASSERT(count >= 1 && count <= SF_LIMIT_TSO_PER_REQUEST);
    (void)pthread_mutex_lock(&o->mu);
    bool taken = o->state == WINDOW_IDLE && o->waiting.head == NULL && !clock_jumped(o);
    if (taken) {
        follow_clock(o);
        taken = fits(o, count) && !low(o);
    }
    if (taken) {
        *out_first = (struct sf_tso){o->next};
        o->next += count;
        note_issued(o);
    }
    (void)pthread_mutex_unlock(&o->mu);
    return taken;
}

static void oracle_get(struct sf_tso_source *source, struct sf_tso_request *request)
{
    struct oracle *o = oracle_of(source);

    SF_ASSERT(request->count >= 1 && request->count <= SF_LIMIT_TSO_PER_REQUEST);
    request->owner = o;
    request->task.run = on_request;
    sf_loop_post(o->options.loop, &request->task);
}

static void on_close(struct sf_task *task)
{
    struct oracle *o = SF_CONTAINER_OF(task, struct oracle, close_task);

    SF_ASSERT(o->waiting.head == NULL);
    (void)pthread_mutex_lock(&o->mu);
    o->closer = o->closing;
    (void)pthread_mutex_unlock(&o->mu);
    closed_on_loop(o);
}

static void oracle_free(struct oracle *o)
{
    sf_buf_fini(&o->body);
    (void)pthread_mutex_destroy(&o->mu);
    free(o);
}

static void oracle_destroy(struct sf_tso_source *source)
{
    struct oracle *o = oracle_of(source);
    struct sf_waiter closer;

    sf_waiter_init(&closer, o->sched);
    o->closing = &closer;
    o->close_task.run = on_close;
    sf_loop_post(o->options.loop, &o->close_task);
    sf_waiter_wait(&closer);
    sf_waiter_fini(&closer);
    oracle_free(o);
}

static const struct sf_tso_source_vtable oracle_vtable = {
    .get = oracle_get, .destroy = oracle_destroy, .take = oracle_take};

/* ---- the clock on the oracle's axis ---- */

static struct sf_clock *clock_below(struct sf_clock *axis)
{
    return SF_CONTAINER_OF(axis, struct oracle, axis)->options.clock;
}

static int64_t axis_unix_ms(struct sf_clock *axis)
{
    struct oracle *o = SF_CONTAINER_OF(axis, struct oracle, axis);
    int64_t passed_ms = sf_clock_mono_ms(o->options.clock) - atomic_load(&o->issued_mono_ms);
    int64_t issued_ms = (int64_t)sf_tso_physical_ms((struct sf_tso){atomic_load(&o->issued)});
    int64_t wall_ms = sf_clock_unix_ms(o->options.clock);

    issued_ms += passed_ms / 2; /* as follow_clock will when it is asked */
    return wall_ms > issued_ms ? wall_ms : issued_ms;
}

static int64_t axis_mono_ms(struct sf_clock *axis)
{
    return sf_clock_mono_ms(clock_below(axis));
}

static int64_t axis_mono_ns(struct sf_clock *axis)
{
    return sf_clock_mono_ns(clock_below(axis));
}

static const struct sf_clock_vtable axis_vtable = {
    .unix_ms = axis_unix_ms, .mono_ms = axis_mono_ms, .mono_ns = axis_mono_ns};

struct sf_clock *sf_oracle_clock(struct sf_tso_source *source)
{
    SF_ASSERT(source->vtable == &oracle_vtable);
    return &oracle_of(source)->axis;
}

bool sf_oracle_is_serving(const struct sf_tso_source *source)
{
    const struct oracle *o = SF_CONTAINER_OF(source, const struct oracle, base);

    SF_ASSERT(source->vtable == &oracle_vtable);
    return !atomic_load(&o->stopped);
}

enum sf_err sf_oracle_open(const struct sf_oracle_options *options, struct sf_sched *sched,
                           struct sf_diag *diag, struct sf_tso_source **out_source)
{
    struct oracle *o = sf_calloc(1, sizeof(*o));

    (void)pthread_mutex_init(&o->mu, NULL);
    o->base.vtable = &oracle_vtable;
    o->axis.vtable = &axis_vtable;
    o->options = *options;
    if (o->options.window_ms == 0)
        o->options.window_ms = DEFAULT_WINDOW_MS;
    o->sched = sched;
    sf_attempts_next(o->options.attempts, o->owner_id);
    enum sf_err err = open_window(o, diag);
    if (err != SF_OK) {
        oracle_free(o);
        return err;
    }
    take_lead(o);
    note_issued(o);
    *out_source = &o->base;
    return SF_OK;
}
