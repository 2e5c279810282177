/*
 * In-process channel, unary calls. The handler runs on the caller's thread, inside
 * sf_channel_unary, with the caller's own request. Its answer is stored in the call and hops to the
 * caller's loop by one posted task; without a loop the caller only wants to be woken and done runs
 * where the answer is given, with the handler's own response.
 *
 *   caller ---request---> handler ---answer (any thread)---> deliver task on the loop ---> done
 *
 * A call has two owners, the handler until it answers and the caller until done; a deadline on the
 * loop may end the caller's part first, so such a call has its own copy of the request. Everything
 * goes through sf_loop_post and the loop's timers, so a simulated loop owns the order.
 */
#include "rpc/inproc.h"

#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "contract/served.h"

struct inproc_unary {
    struct sf_call call; /* first: what the handler holds */

    /* immutable */
    struct sf_inproc *channel; /* one reference */
    struct sf_loop *loop;      /* NULL: done on any thread */
    sf_unary_done_fn done;
    void *user;

    /* atomic */
    atomic_uint refs; /* handler, caller, and each posted task */

    /* written by the answering thread, then read on the loop */
    ProtobufCMessage *response; /* in the arena; NULL: call.diag says why */

    /* loop */
    struct sf_task deliver;
    struct sf_task arm; /* starts the deadline timer */
    struct sf_timer deadline;
    bool delivered; /* done was called */
};

static void unary_release(struct inproc_unary *unary)
{
    if (atomic_fetch_sub(&unary->refs, 1) != 1)
        return;
    sf_arena_destroy(unary->call.arena);
    sf_inproc_release(unary->channel);
    free(unary);
}

static void done_once(struct inproc_unary *unary, const struct sf_diag *diag,
                      const ProtobufCMessage *response)
{
    unary->delivered = true;
    unary->done(unary->user, diag, response);
    unary_release(unary);
}

static void on_deliver(struct sf_task *task)
{
    struct inproc_unary *unary = SF_CONTAINER_OF(task, struct inproc_unary, deliver);

    if (!unary->delivered) {
        if (unary->deadline.loop != NULL)
            sf_timer_stop(&unary->deadline);
        done_once(unary, &unary->call.diag, unary->response);
    }
    unary_release(unary); /* the handler's share */
}

/* The handler has answered: `response` or, when NULL, the error in call.diag. */
static void answer(struct inproc_unary *unary, ProtobufCMessage *response)
{
    unary->response = response;
    if (response != NULL)
        sf_diag_init(&unary->call.diag);
    if (unary->loop != NULL)
        sf_loop_post(unary->loop, &unary->deliver);
    else
        on_deliver(&unary->deliver);
}

static struct inproc_unary *unary_of(struct sf_call *call)
{
    return SF_CONTAINER_OF(call, struct inproc_unary, call);
}

static void unary_respond(struct sf_call *call, const ProtobufCMessage *response)
{
    struct inproc_unary *unary = unary_of(call);

    if (unary->loop != NULL) {
        answer(unary, sf_rpc_copy(response, call->arena, &call->diag));
        return;
    }
    struct sf_diag diag;
    sf_diag_init(&diag);
    done_once(unary, &diag, response);
    unary_release(unary);
}

static void unary_respond_bytes(struct sf_call *call, struct sf_view packed)
{
    answer(unary_of(call),
           sf_rpc_unpack(call->route->method->response, packed, call->arena, &call->diag));
}

static void unary_fail(struct sf_call *call, const struct sf_diag *diag)
{
    if (diag != &call->diag)
        call->diag = *diag;
    answer(unary_of(call), NULL);
}

static enum sf_err unary_send(struct sf_call *call, const ProtobufCMessage *message)
{
    (void)call, (void)message;
    SF_ASSERT(false && "send on a unary call");
    return SF_INTERNAL;
}

static void unary_finish(struct sf_call *call)
{
    (void)call;
    SF_ASSERT(false && "finish of a unary call without a response");
}

static void unary_no_pause(struct sf_call *call)
{
    (void)call;
}

static void unary_call_acquire(struct sf_call *call)
{
    atomic_fetch_add(&unary_of(call)->refs, 1);
}

static void unary_call_release(struct sf_call *call)
{
    unary_release(unary_of(call));
}

static struct sf_view no_metadata_bin(const struct sf_call *call, const char *name)
{
    (void)call, (void)name;
    return (struct sf_view){0};
}

static const char *no_metadata(const struct sf_call *call, const char *name)
{
    (void)call, (void)name;
    return NULL;
}

static const struct sf_call_ops unary_ops = {
    .respond = unary_respond,
    .respond_bytes = unary_respond_bytes,
    .fail = unary_fail,
    .send = unary_send,
    .finish = unary_finish,
    .pause = unary_no_pause,
    .resume = unary_no_pause,
    .metadata = no_metadata,
    .metadata_bin = no_metadata_bin,
    .acquire = unary_call_acquire,
    .release = unary_call_release,
};

static void on_deadline(struct sf_timer *timer)
{
    struct inproc_unary *unary = SF_CONTAINER_OF(timer, struct inproc_unary, deadline);
    struct sf_diag diag;

    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, SF_DEADLINE_EXCEEDED, "no answer before the deadline");
    atomic_store(&unary->call.cancelled, true);
    done_once(unary, &diag, NULL);
}

static void on_arm(struct sf_task *task)
{
    struct inproc_unary *unary = SF_CONTAINER_OF(task, struct inproc_unary, arm);

    if (!unary->delivered) {
        int64_t left_ms = unary->call.deadline_ms - unary->loop->now_ms;
        sf_timer_init(&unary->deadline, unary->loop, on_deadline);
        sf_timer_start(&unary->deadline, left_ms > 0 ? left_ms : 0);
    }
    unary_release(unary);
}

void sf_inproc_call_set(struct sf_inproc *channel, struct sf_call *call,
                        const struct sf_call_options *options, struct sf_loop *loop)
{
    call->identity = channel->identity;
    if (options->identity != NULL) {
        call->identity = *options->identity;
        call->identity.name = sf_arena_str(call->arena, sf_view_str(options->identity->name));
    }
    if (options->timeout_ms > 0) {
        int64_t now_ms = sf_clock_mono_ms(loop != NULL ? loop->clock : channel->clock);
        call->deadline_ms =
            options->timeout_ms < INT64_MAX - now_ms ? now_ms + options->timeout_ms : INT64_MAX;
    }
}

/* The method's handler, or an error in call.diag that takes its place. */
static enum sf_err check_route(struct sf_call *call, const char *path,
                               const ProtobufCMessage *request)
{
    if (call->route == NULL)
        return sf_contract_unserved(sf_view_str(path), &call->diag);
    const struct sf_method *method = call->route->method;
    if (method->unary == NULL || method->server_stream)
        return sf_diag_set(&call->diag, SF_UNIMPLEMENTED, "%s is a streaming method", path);
    if (request->descriptor != method->request)
        return sf_diag_set(&call->diag, SF_INVALID_ARGUMENT, "%s takes %s, not %s", path,
                           method->request->name, request->descriptor->name);
    return SF_OK;
}

static void inproc_unary_call(struct sf_channel *base, const char *method,
                              const ProtobufCMessage *request,
                              const struct sf_call_options *options, struct sf_loop *loop,
                              sf_unary_done_fn done, void *user)
{
    struct sf_inproc *channel = SF_CONTAINER_OF(base, struct sf_inproc, base);
    struct inproc_unary *unary = sf_malloc(sizeof(*unary));

    sf_call_init(&unary->call, &unary_ops,
                 sf_rpc_registry_find(&channel->registry, sf_view_str(method)),
                 sf_arena_new(SF_LIMIT_RPC_ARENA_BYTES));
    sf_inproc_acquire(channel);
    unary->channel = channel;
    unary->loop = loop;
    unary->done = done;
    unary->user = user;
    atomic_init(&unary->refs, 2);
    unary->response = NULL;
    unary->deliver = (struct sf_task){.run = on_deliver};
    unary->arm = (struct sf_task){.run = on_arm};
    unary->deadline = (struct sf_timer){0};
    unary->delivered = false;
    sf_inproc_call_set(channel, &unary->call, options, loop);

    enum sf_err err = check_route(&unary->call, method, request);
    if (err == SF_OK && loop != NULL && unary->call.deadline_ms != INT64_MAX) {
        request = sf_rpc_copy(request, unary->call.arena, &unary->call.diag);
        err = request != NULL ? SF_OK : unary->call.diag.err;
        atomic_fetch_add(&unary->refs, 1);
        if (sf_loop_is_current(loop))
            on_arm(&unary->arm);
        else
            sf_loop_post(loop, &unary->arm);
    }
    if (err != SF_OK) {
        atomic_store(&unary->call.ended, true);
        answer(unary, NULL);
        return;
    }
    const struct sf_rpc_route *route = unary->call.route;
    route->method->unary(route->service->self, &unary->call, request);
}

void sf_inproc_acquire(struct sf_inproc *channel)
{
    atomic_fetch_add_explicit(&channel->refs, 1, memory_order_relaxed);
}

void sf_inproc_release(struct sf_inproc *channel)
{
    if (atomic_fetch_sub(&channel->refs, 1) != 1)
        return;
    sf_rpc_registry_fini(&channel->registry);
    pthread_mutex_destroy(&channel->mu);
    free((void *)(uintptr_t)channel->identity.name);
    free(channel);
}

static void inproc_destroy(struct sf_channel *base)
{
    struct sf_inproc *channel = SF_CONTAINER_OF(base, struct sf_inproc, base);

    pthread_mutex_lock(&channel->mu);
    for (struct sf_inproc_stream *s = channel->streams; s != NULL;
         s = sf_inproc_stream_next_locked(s))
        sf_inproc_stream_stop_locked(s);
    pthread_mutex_unlock(&channel->mu);
    sf_inproc_release(channel);
}

static const struct sf_channel_vtable inproc_vtable = {
    .unary = inproc_unary_call,
    .stream = sf_inproc_stream_open,
    .destroy = inproc_destroy,
};

struct sf_channel *sf_inproc_channel_new(const struct sf_service *const *services, size_t count,
                                         const char *identity, struct sf_clock *clock)
{
    struct sf_inproc *channel = sf_calloc(1, sizeof(*channel));

    channel->base.vtable = &inproc_vtable;
    channel->clock = clock;
    sf_rpc_registry_init(&channel->registry, services, count, 0);
    sf_identity_set(&channel->identity, sf_strdup(identity));
    atomic_init(&channel->refs, 1);
    SF_ASSERT(pthread_mutex_init(&channel->mu, NULL) == 0);
    return &channel->base;
}
