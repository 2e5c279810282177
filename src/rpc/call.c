/*
 * A call as handlers see it: accessors over the common part, and the hand-over of answers to the
 * binding. That a call ends exactly once is asserted here, for all bindings.
 */
#include "rpc/call.h"

#include "base/hash.h"
#include "rpc/rpc_priv.h"

void sf_call_init(struct sf_call *call, const struct sf_call_ops *ops,
                  const struct sf_rpc_route *route, struct sf_arena *arena)
{
    call->ops = ops;
    call->route = route;
    call->identity.name = "";
    call->identity.hash_hex[0] = '\0';
    call->deadline_ms = INT64_MAX;
    call->arena = arena;
    sf_diag_init(&call->diag);
    call->state = NULL;
    atomic_init(&call->cancelled, false);
    atomic_init(&call->ended, false);
}

void sf_identity_set(struct sf_identity *identity, const char *name)
{
    identity->name = name;
    sf_sha256_hex(sf_view_str(name), identity->hash_hex);
}

const struct sf_identity *sf_call_identity(const struct sf_call *call)
{
    return &call->identity;
}

const char *sf_call_method(const struct sf_call *call)
{
    return call->route->path;
}

int64_t sf_call_deadline_ms(const struct sf_call *call)
{
    return call->deadline_ms;
}

const char *sf_call_metadata(const struct sf_call *call, const char *name)
{
    return call->ops->metadata(call, name);
}

struct sf_view sf_call_metadata_bin(const struct sf_call *call, const char *name)
{
    return call->ops->metadata_bin(call, name);
}

struct sf_arena *sf_call_arena(struct sf_call *call)
{
    return call->arena;
}

struct sf_diag *sf_call_diag(struct sf_call *call)
{
    return &call->diag;
}

bool sf_call_cancelled(const struct sf_call *call)
{
    return atomic_load_explicit(&call->cancelled, memory_order_acquire);
}

static void end_once(struct sf_call *call)
{
    SF_ASSERT(!atomic_exchange(&call->ended, true));
}

void sf_call_respond(struct sf_call *call, const ProtobufCMessage *response)
{
    SF_ASSERT(response->descriptor == call->route->method->response);
    end_once(call);
    call->ops->respond(call, response);
}

void sf_call_respond_bytes(struct sf_call *call, struct sf_view packed)
{
    end_once(call);
    call->ops->respond_bytes(call, packed);
}

void sf_call_fail(struct sf_call *call, const struct sf_diag *diag)
{
    SF_ASSERT(diag->err != SF_OK);
    end_once(call);
    call->ops->fail(call, diag);
}

enum sf_err sf_call_send(struct sf_call *call, const ProtobufCMessage *message)
{
    SF_ASSERT(message->descriptor == call->route->method->response);
    SF_ASSERT(!atomic_load(&call->ended));
    return call->ops->send(call, message);
}

void sf_call_finish(struct sf_call *call)
{
    end_once(call);
    call->ops->finish(call);
}

void sf_call_pause(struct sf_call *call)
{
    call->ops->pause(call);
}

void sf_call_resume(struct sf_call *call)
{
    call->ops->resume(call);
}

void sf_call_acquire(struct sf_call *call)
{
    call->ops->acquire(call);
}

void sf_call_release(struct sf_call *call)
{
    call->ops->release(call);
}

void sf_call_set_state(struct sf_call *call, void *state)
{
    call->state = state;
}

void *sf_call_state(const struct sf_call *call)
{
    return call->state;
}
