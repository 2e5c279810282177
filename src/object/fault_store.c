/*
 * A `wire` is one put or delete on its way: it owns copies of key and body, because it may outlive
 * the call, its handle and its process. It has two timers: one applies it to the backend, one
 * answers. A plan, drawn when it is sent, says which of the two happen and when. Reads and lists
 * are `query`s: they look at the backend in the middle of their delay, which is the moment they are
 * linearized at.
 *
 * A crash cuts the answers: every call of the handle ends with UNAVAILABLE at once, wires that were
 * not applied yet land or not by a coin.
 */
#include "object/fault_store.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "object/object_priv.h"
#include "object/staged.h"

struct handle;

enum wire_kind { WIRE_PUT, WIRE_DELETE };

/* What becomes of a request. */
struct plan {
    int64_t apply_after_ms;     /* < 0: never applied */
    int64_t answer_after_ms;    /* < 0: answered after it is applied, with what came of it */
    enum sf_try_result answer;  /* with answer_after_ms >= 0 */
    int64_t duplicate_after_ms; /* < 0: arrives once */
    bool own_412;               /* answer a successful create with 412 */
    bool swap_500;              /* answer a lost swap with an unknown outcome */
    bool crash_before;          /* the process dies instead of the application */
    bool crash_after;           /* the process dies once it is applied */
    const char *name;           /* for the trace */
};

struct wire {
    struct wire *prev, *next;     /* all wires of the network */
    struct sf_fault_store *fault; /* the network */
    struct handle *handle;        /* sender; NULL once it crashed or was answered */
    enum wire_kind kind;          /* put or delete */
    uint8_t *key;                 /* owned copy */
    uint8_t *body;                /* owned copy */
    struct sf_put put;            /* refers to both */
    struct plan plan;             /* what will happen to it */
    struct sf_timer apply_timer;  /* it reaches the backend */
    struct sf_timer answer_timer; /* the answer reaches the sender */
    struct sf_try *attempt;       /* WIRE_PUT: whom to answer, NULL once answered */
    struct query *deleter;        /* WIRE_DELETE: whom to answer, NULL once answered */
    enum sf_try_result result;    /* what came of it, for an answer after the application */
    struct sf_etag etag;          /* with SF_TRY_OK */
};

enum query_kind { QUERY_GET, QUERY_LIST, QUERY_DELETE };

/* A read under way, or a waiting form of list and delete. */
struct query {
    struct query *prev, *next;     /* of its handle */
    struct handle *handle;         /* sender */
    enum query_kind kind;          /* which fields count */
    struct sf_timer timer;         /* next step */
    bool looked;                   /* the backend was asked; what is left is the answer */
    struct sf_get *get;            /* QUERY_GET */
    struct sf_task task;           /* QUERY_LIST, QUERY_DELETE: brings it to the loop */
    struct sf_waiter waiter;       /* QUERY_LIST, QUERY_DELETE */
    struct sf_view key;            /* QUERY_DELETE: key; QUERY_LIST: prefix */
    struct sf_view start_after;    /* QUERY_LIST */
    size_t limit;                  /* QUERY_LIST */
    struct sf_arena *arena;        /* QUERY_LIST */
    struct sf_list_entry *entries; /* QUERY_LIST */
    size_t count;                  /* QUERY_LIST */
    enum sf_err err;               /* result */
};

struct handle {
    struct sf_store base;             /* what callers hold */
    struct sf_staged_backend backend; /* what the staged runner sends through */
    struct sf_fault_store *fault;     /* the network */
    struct sf_staged *staged;         /* owned: sends batches stage by stage */
    void *process;                    /* token for on_crash */
    bool dead;                        /* its process crashed */
    struct query *queries;            /* under way */
    size_t query_count;               /* entries of queries */
};

struct sf_fault_store {
    struct sf_store *backend;        /* borrowed: the truth */
    struct sf_loop *loop;            /* borrowed: owns the time */
    struct sf_fault_options options; /* as given; rates may change */
    struct sf_rng rng;               /* of every choice */
    struct sf_fault_counts counts;   /* so far */
    struct wire *wires;              /* on their way */
    size_t wire_count;               /* entries of wires */
    size_t handle_count;             /* handles that are not destroyed */
};

static struct handle *handle_of(const struct sf_store *store)
{
    return SF_CONTAINER_OF(store, struct handle, base);
}

static bool draw(struct sf_fault_store *f, uint16_t per_mille)
{
    return per_mille != 0 && sf_rng_below(&f->rng, 1000) < per_mille;
}

static int64_t draw_ms(struct sf_fault_store *f, int64_t most_ms)
{
    return most_ms <= 0 ? 0 : (int64_t)sf_rng_below(&f->rng, (uint64_t)most_ms + 1);
}

/* One way over the network. */
static int64_t draw_way(struct sf_fault_store *f)
{
    bool slow = draw(f, f->options.rates.slow);

    return draw_ms(f, slow ? f->options.slow_ms : f->options.delay_ms);
}

static void trace(struct sf_fault_store *f, const char *what, const char *how, struct sf_view key,
                  const char *result)
{
    char line[256];

    if (f->options.trace == NULL)
        return;
    (void)snprintf(line, sizeof(line), "store %s%s%s %.*s%s%s", what, how[0] == '\0' ? "" : " ",
                   how, (int)(key.len > 120 ? 120 : key.len), (const char *)key.ptr,
                   result[0] == '\0' ? "" : ": ", result);
    f->options.trace(f->options.ctx, line);
}

/* ---- wires ---- */

static void wire_free(struct wire *w)
{
    struct sf_fault_store *f = w->fault;

    sf_timer_stop(&w->apply_timer);
    sf_timer_stop(&w->answer_timer);
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        f->wires = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
    f->wire_count--;
    free(w->key);
    free(w->body);
    free(w);
}

static void wire_free_if_over(struct wire *w)
{
    if (w->attempt == NULL && w->deleter == NULL && !sf_timer_active(&w->apply_timer))
        wire_free(w);
}

static uint8_t *copy_bytes(struct sf_view v)
{
    return sf_memdup(v.len == 0 ? (const uint8_t *)"" : v.ptr, v.len);
}

static void query_finish(struct query *q, enum sf_err err);

/* Hands the outcome to whoever waits; may free what belongs to the handle, never the wire. */
static void wire_answer(struct wire *w, enum sf_try_result result)
{
    struct sf_try *attempt = w->attempt;
    struct query *deleter = w->deleter;

    w->attempt = NULL;
    w->deleter = NULL;
    w->handle = NULL;
    sf_timer_stop(&w->answer_timer);
    if (attempt != NULL) {
        attempt->result = result;
        attempt->etag = w->etag;
        attempt->done(attempt);
    } else if (deleter != NULL) {
        query_finish(deleter, result == SF_TRY_OK            ? SF_OK
                              : result == SF_TRY_UNAVAILABLE ? SF_ERR_UNAVAILABLE
                                                             : SF_ERR_AMBIGUOUS);
    }
}

static void on_answer(struct sf_timer *timer)
{
    struct wire *w = SF_CONTAINER_OF(timer, struct wire, answer_timer);

    wire_answer(w, w->plan.answer_after_ms >= 0 ? w->plan.answer : w->result);
    wire_free_if_over(w);
}

static const char *result_name(enum sf_try_result result)
{
    static const char *const names[] = {"ok", "412", "409", "unavailable", "unknown"};

    return names[result];
}

/* Applies the wire to the backend; the answer that the store would give is left in w->result. */
static void wire_apply(struct wire *w)
{
    struct sf_fault_store *f = w->fault;

    if (w->kind == WIRE_DELETE) {
        enum sf_err err = sf_store_remove_wait(f->backend, NULL, w->put.key);
        SF_ASSERT(err == SF_OK);
        w->result = SF_TRY_OK;
        trace(f, "deleted", w->plan.name, w->put.key, "");
        return;
    }
    struct sf_put put = w->put;
    enum sf_err err = sf_store_put_wait(f->backend, NULL, &put);
    SF_ASSERT(err == SF_OK || err == SF_ERR_PRECONDITION);
    w->result = err == SF_OK ? SF_TRY_OK : SF_TRY_PRECONDITION;
    w->etag = put.etag;
    f->counts.puts_applied += err == SF_OK;
    trace(f, "applied", w->plan.name, w->put.key, result_name(w->result));
    if (err == SF_OK && w->plan.own_412)
        w->result = SF_TRY_PRECONDITION;
    if (err != SF_OK && w->plan.swap_500 && w->put.cond == SF_PUT_MATCH)
        w->result = SF_TRY_AMBIGUOUS;
}

static void crash_by(struct wire *w, const char *when)
{
    struct sf_fault_store *f = w->fault;
    struct handle *h = w->handle;

    if (h == NULL || h->dead)
        return;
    f->counts.crashes++;
    trace(f, "crash", when, w->put.key, "");
    void *process = h->process;
    /* The wire's own fate is settled by the caller. */
    w->handle = NULL;
    sf_fault_store_crash(&h->base);
    if (f->options.on_crash != NULL)
        f->options.on_crash(f->options.ctx, process);
}

static bool may_crash(const struct sf_fault_store *f)
{
    return f->counts.crashes < f->options.max_crashes;
}

static void on_apply(struct sf_timer *timer)
{
    struct wire *w = SF_CONTAINER_OF(timer, struct wire, apply_timer);
    struct sf_fault_store *f = w->fault;

    if (w->plan.crash_before && may_crash(f) && w->handle != NULL) {
        crash_by(w, "before");
        wire_answer(w, SF_TRY_UNAVAILABLE);
        wire_free_if_over(w);
        return;
    }
    uint64_t before = f->counts.puts_applied;
    wire_apply(w);
    bool counted = f->counts.puts_applied != before;
    bool chosen = counted && f->options.crash_at_put == f->counts.puts_applied;
    if (chosen || (w->plan.crash_after && may_crash(f))) {
        struct handle *h = w->handle;
        crash_by(w, "after");
        if (h != NULL)
            wire_answer(w, SF_TRY_UNAVAILABLE);
    }
    if (w->plan.duplicate_after_ms >= 0) {
        sf_timer_start(&w->apply_timer, w->plan.duplicate_after_ms);
        w->plan.duplicate_after_ms = -1;
        w->plan.name = "again";
    }
    bool waiting = w->attempt != NULL || w->deleter != NULL;
    if (waiting && w->plan.answer_after_ms < 0 && !sf_timer_active(&w->answer_timer))
        sf_timer_start(&w->answer_timer, draw_way(f));
    wire_free_if_over(w);
}

/* The plans that only end the request in another way. */
static bool plan_fault(struct sf_fault_store *f, enum wire_kind kind, struct plan *plan)
{
    const struct sf_fault_rates *r = &f->options.rates;

    if (draw(f, r->lost_request)) {
        *plan = (struct plan){-1, f->options.timeout_ms, SF_TRY_AMBIGUOUS, .name = "lost-request"};
    } else if (draw(f, r->lost_answer)) {
        *plan = (struct plan){draw_way(f), f->options.timeout_ms, SF_TRY_AMBIGUOUS,
                              .name = "lost-answer"};
    } else if (draw(f, r->late)) {
        *plan = (struct plan){f->options.timeout_ms + draw_ms(f, f->options.late_ms),
                              draw_ms(f, f->options.timeout_ms), SF_TRY_AMBIGUOUS, .name = "late"};
        if (sf_rng_below(&f->rng, 4) == 0)
            plan->apply_after_ms = -1;
    } else if (kind == WIRE_PUT && draw(f, r->refused)) {
        *plan = (struct plan){-1, draw_way(f), SF_TRY_UNAVAILABLE, .name = "refused"};
    } else if (kind == WIRE_PUT && draw(f, r->conflict_409)) {
        *plan = (struct plan){-1, draw_way(f), SF_TRY_CONFLICT, .name = "409"};
    } else {
        return false;
    }
    plan->duplicate_after_ms = -1;
    return true;
}

static struct plan make_plan(struct sf_fault_store *f, enum wire_kind kind, enum sf_put_cond cond)
{
    const struct sf_fault_rates *r = &f->options.rates;
    struct plan plan = {
        .apply_after_ms = draw_way(f), .answer_after_ms = -1, .duplicate_after_ms = -1, .name = ""};

    if (!plan_fault(f, kind, &plan) && kind == WIRE_PUT) {
        plan.own_412 = cond == SF_PUT_ABSENT && draw(f, r->own_412);
        plan.swap_500 = cond == SF_PUT_MATCH && draw(f, r->swap_500);
    }
    if (kind == WIRE_PUT && plan.apply_after_ms >= 0) {
        if (draw(f, r->duplicate))
            plan.duplicate_after_ms = draw_ms(f, f->options.late_ms);
        plan.crash_before = draw(f, r->crash_before);
        plan.crash_after = draw(f, r->crash_after);
    }
    return plan;
}

static void wire_send(struct handle *h, enum wire_kind kind, const struct sf_put *put,
                      struct sf_try *attempt, struct query *deleter)
{
    struct sf_fault_store *f = h->fault;
    struct wire *w = sf_calloc(1, sizeof(*w));

    *w = (struct wire){.next = f->wires, .fault = f, .handle = h, .kind = kind, .put = *put};
    w->key = copy_bytes(put->key);
    w->body = copy_bytes(put->body);
    w->put.key.ptr = w->key;
    w->put.body.ptr = w->body;
    w->attempt = attempt;
    w->deleter = deleter;
    if (f->wires != NULL)
        f->wires->prev = w;
    f->wires = w;
    f->wire_count++;
    w->plan = make_plan(f, kind, put->cond);
    sf_timer_init(&w->apply_timer, f->loop, on_apply);
    sf_timer_init(&w->answer_timer, f->loop, on_answer);
    if (w->plan.apply_after_ms >= 0)
        sf_timer_start(&w->apply_timer, w->plan.apply_after_ms);
    if (w->plan.answer_after_ms >= 0)
        sf_timer_start(&w->answer_timer, w->plan.answer_after_ms);
    trace(f, kind == WIRE_PUT ? "put" : "delete", w->plan.name, put->key, "");
}

static void fault_put(struct sf_staged_backend *backend, struct sf_try *attempt)
{
    struct handle *h = SF_CONTAINER_OF(backend, struct handle, backend);
    struct sf_fault_store *f = h->fault;

    f->counts.puts_sent++;
    wire_send(h, WIRE_PUT, attempt->put, attempt, NULL);
    if (h->dead) { /* sent by a dead process: it never leaves the machine */
        struct wire *w = f->wires;
        sf_timer_stop(&w->apply_timer);
        w->plan.answer_after_ms = 0;
        w->plan.answer = SF_TRY_UNAVAILABLE;
        sf_timer_start(&w->answer_timer, 0);
    }
}

static bool fault_closed(struct sf_staged_backend *backend)
{
    return SF_CONTAINER_OF(backend, struct handle, backend)->dead;
}

/* ---- queries ---- */

static void query_add(struct handle *h, struct query *q)
{
    q->handle = h;
    q->prev = NULL;
    q->next = h->queries;
    if (h->queries != NULL)
        h->queries->prev = q;
    h->queries = q;
    h->query_count++;
}

/* Ends a query and hands it back: after this it is gone. */
static void query_finish(struct query *q, enum sf_err err)
{
    struct handle *h = q->handle;

    sf_timer_stop(&q->timer);
    if (q->prev != NULL)
        q->prev->next = q->next;
    else
        h->queries = q->next;
    if (q->next != NULL)
        q->next->prev = q->prev;
    h->query_count--;
    q->err = err;
    if (q->kind != QUERY_GET) {
        sf_waiter_wake(&q->waiter);
        return;
    }
    struct sf_get *get = q->get;
    free(q);
    get->err = err;
    if (err != SF_OK)
        sf_buf_fini(&get->body);
    if (get->loop != NULL && get->loop != h->fault->loop)
        sf_get_post_done(get);
    else
        get->done(get);
}

static void query_look(struct query *q)
{
    struct sf_fault_store *f = q->handle->fault;

    if (draw(f, f->options.rates.read_failed)) {
        q->err = SF_ERR_UNAVAILABLE;
    } else if (q->kind == QUERY_LIST) {
        q->err = sf_store_list_wait(f->backend, NULL, q->key, q->start_after, q->limit, q->arena,
                                    &q->entries, &q->count);
    } else {
        struct sf_buf body = {0};
        q->err = sf_store_get_wait(f->backend, NULL, q->get->key, &body, &q->get->etag);
        if (q->err == SF_OK)
            sf_get_fill(q->get, sf_buf_view(&body));
        sf_buf_fini(&body);
        trace(f, "read", "", q->get->key, q->err == SF_OK ? "" : "absent");
    }
}

static void on_query(struct sf_timer *timer)
{
    struct query *q = SF_CONTAINER_OF(timer, struct query, timer);
    struct handle *h = q->handle;

    if (h->dead) {
        query_finish(q, SF_ERR_UNAVAILABLE);
    } else if (!q->looked) {
        q->looked = true;
        query_look(q);
        sf_timer_start(&q->timer, draw_way(h->fault));
    } else {
        query_finish(q, q->err);
    }
}

static void query_start(struct handle *h, struct query *q)
{
    query_add(h, q);
    sf_timer_init(&q->timer, h->fault->loop, on_query);
    sf_timer_start(&q->timer, h->dead ? 0 : draw_way(h->fault));
}

static void get_start(struct handle *h, struct sf_get *get)
{
    struct query *q = sf_calloc(1, sizeof(*q));

    *q = (struct query){.kind = QUERY_GET, .get = get};
    h->fault->counts.gets++;
    query_start(h, q);
}

static void fault_get_on_loop(struct sf_staged_backend *backend, struct sf_get *get)
{
    get_start(SF_CONTAINER_OF(backend, struct handle, backend), get);
}

static void on_get_submitted(struct sf_task *task)
{
    struct sf_get *get = SF_CONTAINER_OF(task, struct sf_get, task);

    get_start(get->impl, get);
}

static void fault_get(struct sf_store *store, struct sf_get *get)
{
    get->impl = handle_of(store);
    get->task.run = on_get_submitted;
    sf_loop_post(handle_of(store)->fault->loop, &get->task);
}

static void fault_submit(struct sf_store *store, struct sf_batch *batch)
{
    sf_staged_submit(handle_of(store)->staged, batch);
}

static void on_query_submitted(struct sf_task *task)
{
    struct query *q = SF_CONTAINER_OF(task, struct query, task);
    struct handle *h = q->handle;

    if (q->kind == QUERY_LIST || h->dead) {
        query_start(h, q);
        return;
    }
    struct sf_put put = {.key = q->key};
    query_add(h, q);
    sf_timer_init(&q->timer, h->fault->loop, on_query);
    wire_send(h, WIRE_DELETE, &put, NULL, q);
}

static enum sf_err query_wait(struct query *q, struct sf_sched *sched)
{
    SF_ASSERT(sched != NULL); /* a plain thread would stop the loop that it waits for */
    q->task.run = on_query_submitted;
    sf_waiter_init(&q->waiter, sched);
    sf_loop_post(q->handle->fault->loop, &q->task);
    sf_waiter_wait(&q->waiter);
    sf_waiter_fini(&q->waiter);
    return q->err;
}

static enum sf_err fault_list(struct sf_store *store, struct sf_sched *sched, struct sf_view prefix,
                              struct sf_view start_after, size_t limit, struct sf_arena *arena,
                              struct sf_list_entry **out_entries, size_t *out_count)
{
    struct query q = {.kind = QUERY_LIST,
                      .handle = handle_of(store),
                      .key = prefix,
                      .start_after = start_after,
                      .limit = limit,
                      .arena = arena};

    q.handle->fault->counts.lists++;
    enum sf_err err = query_wait(&q, sched);
    *out_entries = q.entries;
    *out_count = q.count;
    return err;
}

static enum sf_err fault_remove(struct sf_store *store, struct sf_sched *sched, struct sf_view key)
{
    struct query q = {.kind = QUERY_DELETE, .handle = handle_of(store), .key = key};

    q.handle->fault->counts.deletes++;
    return query_wait(&q, sched);
}

/* ---- handles and the network ---- */

static void fault_destroy(struct sf_store *store)
{
    struct handle *h = handle_of(store);
    struct sf_fault_store *f = h->fault;

    SF_ASSERT(h->queries == NULL && sf_staged_pending(h->staged) == 0);
    for (struct wire *w = f->wires; w != NULL; w = w->next) {
        if (w->handle == h)
            w->handle = NULL;
    }
    f->handle_count--;
    sf_staged_destroy(h->staged);
    free(h);
}

static const struct sf_store_vtable fault_vtable = {.submit = fault_submit,
                                                    .get = fault_get,
                                                    .list = fault_list,
                                                    .remove = fault_remove,
                                                    .destroy = fault_destroy};

struct sf_store *sf_fault_store_handle_new(struct sf_fault_store *fault, void *process)
{
    struct handle *h = sf_calloc(1, sizeof(*h));

    h->base = (struct sf_store){.vtable = &fault_vtable, .exclusive = false};
    h->backend = (struct sf_staged_backend){
        .loop = fault->loop, .put = fault_put, .get = fault_get_on_loop, .closed = fault_closed};
    h->fault = fault;
    h->process = process;
    h->staged = sf_staged_new(&h->backend, sf_rng_u64(&fault->rng));
    fault->handle_count++;
    return &h->base;
}

void sf_fault_store_crash(struct sf_store *handle)
{
    struct handle *h = handle_of(handle);
    struct sf_fault_store *f = h->fault;

    if (h->dead)
        return;
    h->dead = true;
    for (struct wire *w = f->wires; w != NULL; w = w->next) {
        if (w->handle != h)
            continue;
        w->handle = NULL;
        if (sf_timer_active(&w->apply_timer) && sf_rng_below(&f->rng, 2) == 0)
            sf_timer_stop(&w->apply_timer);
        w->plan.answer_after_ms = 0; /* the calls unwind at once, one by one, on the loop */
        w->plan.answer = SF_TRY_UNAVAILABLE;
        sf_timer_start(&w->answer_timer, 0);
    }
    for (struct query *q = h->queries; q != NULL; q = q->next) {
        if (sf_timer_active(&q->timer))
            sf_timer_start(&q->timer, 0);
    }
}

size_t sf_fault_store_pending(const struct sf_store *handle)
{
    const struct handle *h = handle_of(handle);

    return h->query_count + sf_staged_pending(h->staged);
}

struct sf_fault_store *sf_fault_store_new(struct sf_store *backend, struct sf_loop *loop,
                                          const struct sf_fault_options *options)
{
    struct sf_fault_store *f = sf_calloc(1, sizeof(*f));

    f->backend = backend;
    f->loop = loop;
    f->options = *options;
    sf_rng_init(&f->rng, options->seed);
    return f;
}

void sf_fault_store_destroy(struct sf_fault_store *fault)
{
    if (fault == NULL)
        return;
    SF_ASSERT(fault->handle_count == 0);
    for (struct wire *w = fault->wires, *next; w != NULL; w = next) {
        next = w->next;
        wire_free(w);
    }
    free(fault);
}

void sf_fault_store_set_rates(struct sf_fault_store *fault, const struct sf_fault_rates *rates)
{
    fault->options.rates = *rates;
}

struct sf_fault_counts sf_fault_store_counts(const struct sf_fault_store *fault)
{
    return fault->counts;
}
