/*
 * Echo. Chat shows how a handler lives with back pressure: a reply that does not fit is kept, the
 * peer is paused, and `writable` goes on where it stopped.
 */
#include "interop/echo_service.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/pb.h"

struct sf_echo {
    struct sf_loop *loop;
    struct sf_service service;
    uint8_t *filler; /* zeroed bytes that reply bodies point to */
    atomic_uint open_count;
    atomic_uint cancelled_count;
};

/* A unary answer that waits on the echo's loop. */
struct delayed {
    struct sf_task task;
    struct sf_timer timer;
    struct sf_echo *echo;
    struct sf_call *call;
    const Sftest__V1__EchoRequest *request;
};

struct chat {
    uint64_t number;                  /* of the next reply */
    uint64_t messages;                /* received */
    uint64_t body_bytes;              /* received */
    Sftest__V1__EchoRequest *pending; /* being answered, NULL when none */
    struct sf_arena *arena;           /* holds `pending` */
    uint32_t left;                    /* replies still to send for it */
    bool half_closed;
};

static bool fail_if_asked(struct sf_call *call, const Sftest__V1__EchoRequest *request)
{
    if (request->fail_code[0] == '\0')
        return false;
    struct sf_diag *diag = sf_call_diag(call);
    enum sf_err err = sf_err_from_code(request->fail_code);
    (void)sf_diag_set(diag, err == SF_ERR_COUNT ? SF_INTERNAL : err, "%s", request->text);
    sf_diag_detail(diag, "field", "text");
    sf_diag_detail(diag, "violation", "asked_for");
    sf_call_fail(call, diag);
    return true;
}

static void set_body(const struct sf_echo *echo, const Sftest__V1__EchoRequest *request,
                     Sftest__V1__EchoReply *reply)
{
    reply->text = request->text;
    reply->body = request->body;
    if (request->reply_bytes > 0)
        reply->body = (ProtobufCBinaryData){request->reply_bytes, echo->filler};
}

static void answer(struct sf_echo *echo, struct sf_call *call,
                   const Sftest__V1__EchoRequest *request)
{
    Sftest__V1__EchoReply reply = SFTEST__V1__ECHO_REPLY__INIT;
    const char *metadata = sf_call_metadata(call, request->metadata_name);

    if (sf_call_cancelled(call))
        atomic_fetch_add(&echo->cancelled_count, 1);
    if (fail_if_asked(call, request))
        return;
    set_body(echo, request, &reply);
    if (request->metadata_name[0] != '\0')
        reply.text = (char *)(uintptr_t)(metadata == NULL ? "(none)" : metadata);
    if (request->counters) {
        reply.cancelled_count = atomic_load(&echo->cancelled_count);
        reply.open_count = atomic_load(&echo->open_count);
    }
    reply.identity_name = (char *)(uintptr_t)sf_call_identity(call)->name;
    reply.identity_hash = (char *)(uintptr_t)sf_call_identity(call)->hash_hex;
    reply.has_deadline = sf_call_deadline_ms(call) != INT64_MAX;
    sf_call_respond(call, &reply.base);
}

static void on_delay_over(struct sf_timer *timer)
{
    struct delayed *delayed = SF_CONTAINER_OF(timer, struct delayed, timer);

    atomic_fetch_sub(&delayed->echo->open_count, 1);
    answer(delayed->echo, delayed->call, delayed->request);
    free(delayed);
}

static void on_delay(struct sf_task *task)
{
    struct delayed *delayed = SF_CONTAINER_OF(task, struct delayed, task);

    sf_timer_init(&delayed->timer, delayed->echo->loop, on_delay_over);
    sf_timer_start(&delayed->timer, delayed->request->delay_ms);
}

static void echo_unary(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct sf_echo *echo = self;
    const Sftest__V1__EchoRequest *request = (const Sftest__V1__EchoRequest *)(const void *)message;

    if (request->reply_bytes > 2 * SF_LIMIT_RPC_MESSAGE_BYTES ||
        (request->delay_ms > 0 && echo->loop == NULL)) {
        (void)sf_diag_bad_field(sf_call_diag(call), "reply_bytes", "range", "cannot do that");
        sf_call_fail(call, sf_call_diag(call));
    } else if (request->delay_ms == 0) {
        answer(echo, call, request);
    } else {
        struct delayed *delayed = sf_calloc(1, sizeof(*delayed));
        *delayed = (struct delayed){
            .task = {.run = on_delay}, .echo = echo, .call = call, .request = request};
        atomic_fetch_add(&echo->open_count, 1);
        sf_loop_post(echo->loop, &delayed->task);
    }
}

static void echo_many(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct sf_echo *echo = self;
    const Sftest__V1__EchoRequest *request = (const Sftest__V1__EchoRequest *)(const void *)message;

    for (uint32_t i = 0; i < request->count; i++) {
        Sftest__V1__EchoReply reply = SFTEST__V1__ECHO_REPLY__INIT;
        set_body(echo, request, &reply);
        reply.number = i;
        enum sf_err err = sf_call_send(call, &reply.base);
        if (err != SF_OK) {
            (void)sf_diag_set(sf_call_diag(call), err, "stopped at reply %u", i);
            sf_call_fail(call, sf_call_diag(call));
            return;
        }
    }
    if (!fail_if_asked(call, request))
        sf_call_finish(call);
}

static void stream_open(void *self, struct sf_call *call)
{
    struct sf_echo *echo = self;

    atomic_fetch_add(&echo->open_count, 1);
    sf_call_set_state(call, sf_calloc(1, sizeof(struct chat)));
}

static void stream_closed(void *self, struct sf_call *call)
{
    struct sf_echo *echo = self;
    struct chat *chat = sf_call_state(call);

    atomic_fetch_sub(&echo->open_count, 1);
    if (sf_call_cancelled(call))
        atomic_fetch_add(&echo->cancelled_count, 1);
    sf_arena_destroy(chat->arena);
    free(chat);
}

static void collect_message(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct chat *chat = sf_call_state(call);
    const Sftest__V1__EchoRequest *request = (const Sftest__V1__EchoRequest *)(const void *)message;

    (void)self;
    chat->messages++;
    chat->body_bytes += request->body.len;
    (void)fail_if_asked(call, request);
}

static void collect_half_close(void *self, struct sf_call *call)
{
    struct chat *chat = sf_call_state(call);
    Sftest__V1__EchoReply reply = SFTEST__V1__ECHO_REPLY__INIT;

    (void)self;
    reply.number = chat->messages;
    reply.body_bytes = chat->body_bytes;
    sf_call_respond(call, &reply.base);
}

/* Sends replies to the pending message until all are gone or the peer is behind. */
static void chat_go_on(struct sf_echo *echo, struct sf_call *call, struct chat *chat)
{
    while (chat->left > 0) {
        Sftest__V1__EchoReply reply = SFTEST__V1__ECHO_REPLY__INIT;
        set_body(echo, chat->pending, &reply);
        reply.number = chat->number;
        if (sf_call_send(call, &reply.base) != SF_OK)
            return;
        chat->number++;
        chat->left--;
    }
}

static void chat_message(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct chat *chat = sf_call_state(call);
    const Sftest__V1__EchoRequest *request = (const Sftest__V1__EchoRequest *)(const void *)message;

    if (fail_if_asked(call, request))
        return;
    chat->pending = (Sftest__V1__EchoRequest *)(uintptr_t)request;
    chat->left = request->count == 0 ? 1 : request->count;
    chat_go_on(self, call, chat);
    chat->pending = NULL;
    if (chat->left == 0 || sf_call_cancelled(call))
        return;
    if (chat->arena == NULL)
        chat->arena = sf_arena_new(SF_LIMIT_RPC_ARENA_BYTES);
    sf_arena_reset(chat->arena);
    chat->pending = (Sftest__V1__EchoRequest *)(void *)sf_pb_dup(message, chat->arena);
    sf_call_pause(call);
}

static void chat_half_close(void *self, struct sf_call *call)
{
    struct chat *chat = sf_call_state(call);

    (void)self;
    chat->half_closed = true;
    if (chat->left == 0)
        sf_call_finish(call);
}

static void chat_writable(void *self, struct sf_call *call)
{
    struct chat *chat = sf_call_state(call);

    if (chat->pending == NULL)
        return;
    chat_go_on(self, call, chat);
    if (chat->left > 0)
        return;
    chat->pending = NULL;
    sf_call_resume(call);
    if (chat->half_closed)
        sf_call_finish(call);
}

static const struct sf_stream_ops collect_ops = {
    .open = stream_open,
    .message = collect_message,
    .half_close = collect_half_close,
    .closed = stream_closed,
};

static const struct sf_stream_ops chat_ops = {
    .open = stream_open,
    .message = chat_message,
    .half_close = chat_half_close,
    .closed = stream_closed,
    .writable = chat_writable,
};

#define TYPES                                                                                      \
    .request = &sftest__v1__echo_request__descriptor,                                              \
    .response = &sftest__v1__echo_reply__descriptor

static const struct sf_method methods[] = {
    {.name = "Unary", TYPES, .unary = echo_unary},
    {.name = "Many", TYPES, .unary = echo_many, .server_stream = true},
    {.name = "Collect", TYPES, .stream = &collect_ops},
    {.name = "Chat", TYPES, .stream = &chat_ops},
};

struct sf_echo *sf_echo_new(struct sf_loop *loop)
{
    struct sf_echo *echo = sf_calloc(1, sizeof(*echo));

    echo->loop = loop;
    echo->filler = sf_calloc(1, 2 * SF_LIMIT_RPC_MESSAGE_BYTES);
    echo->service = (struct sf_service){
        .full_name = "sftest.v1.Echo",
        .methods = methods,
        .method_count = SF_ARRAY_LEN(methods),
        .self = echo,
    };
    return echo;
}

void sf_echo_destroy(struct sf_echo *echo)
{
    if (echo == NULL)
        return;
    free(echo->filler);
    free(echo);
}

const struct sf_service *sf_echo_service(const struct sf_echo *echo)
{
    return &echo->service;
}

unsigned sf_echo_open_count(const struct sf_echo *echo)
{
    return atomic_load(&echo->open_count);
}

unsigned sf_echo_cancelled_count(const struct sf_echo *echo)
{
    return atomic_load(&echo->cancelled_count);
}
