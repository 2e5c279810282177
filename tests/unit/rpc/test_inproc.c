/* The in-process channel on a loop that the test turns, and across threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "exec/reactor.h"
#include "interop/echo_service.h"
#include "manual_loop.h"
#include "rpc/channel.h"
#include "support/proves.h"

#define PATH(name) "/sftest.v1.Echo/" name

static struct manual_loop loop;
static struct sf_echo *echo;
static struct sf_channel *channel;

static int setup(void **state)
{
    (void)state;
    manual_loop_init(&loop);
    echo = sf_echo_new(&loop.base);
    const struct sf_service *services[] = {sf_echo_service(echo)};
    channel = sf_inproc_channel_new(services, 1, "tester", &loop.clock.base);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sf_channel_destroy(channel);
    manual_loop_run(&loop);
    assert_int_equal(sf_echo_open_count(echo), 0);
    sf_echo_destroy(echo);
    manual_loop_fini(&loop);
    return 0;
}

/* What a unary call brought. */
struct result {
    unsigned calls;
    struct sf_diag diag;
    char text[256];
    char identity[64];
    char identity_hash[80];
    size_t body_len;
    bool has_deadline;
};

static void on_done(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct result *result = user;
    const Sftest__V1__EchoReply *reply = (const Sftest__V1__EchoReply *)(const void *)response;

    result->calls++;
    result->diag = *diag;
    if (diag->err != SF_OK) {
        assert_null(response);
        return;
    }
    (void)snprintf(result->text, sizeof(result->text), "%s", reply->text);
    (void)snprintf(result->identity, sizeof(result->identity), "%s", reply->identity_name);
    (void)snprintf(result->identity_hash, sizeof(result->identity_hash), "%s",
                   reply->identity_hash);
    result->body_len = reply->body.len;
    result->has_deadline = reply->has_deadline;
}

static Sftest__V1__EchoRequest request_of(const char *text)
{
    Sftest__V1__EchoRequest request = SFTEST__V1__ECHO_REQUEST__INIT;

    request.text = (char *)(uintptr_t)text;
    return request;
}

static void test_unary_is_later_and_once(void **state)
{
    (void)state;
    Sftest__V1__EchoRequest request = request_of("hello");
    struct result result = {0};

    sf_channel_unary(channel, PATH("Unary"), &request.base, NULL, &loop.base, on_done, &result);
    assert_int_equal(result.calls, 0);
    manual_loop_run(&loop);
    assert_int_equal(result.calls, 1);
    assert_int_equal(result.diag.err, SF_OK);
    assert_string_equal(result.text, "hello");
    assert_string_equal(result.identity, "tester");
    /* printf tester | sha256sum */
    assert_string_equal(result.identity_hash,
                        "9bba5c53a0545e0c80184b946153c9f58387e3bd1d4ee35740f29ac2e718b019");
    assert_false(result.has_deadline);
}

static void test_unary_error_keeps_its_details(void **state)
{
    (void)state;
    Sftest__V1__EchoRequest request = request_of("no such thing");
    struct result result = {0};

    request.fail_code = (char *)(uintptr_t) "SF_RESOURCE_NOT_FOUND";
    sf_channel_unary(channel, PATH("Unary"), &request.base, NULL, &loop.base, on_done, &result);
    manual_loop_run(&loop);
    assert_int_equal(result.calls, 1);
    assert_int_equal(result.diag.err, SF_RESOURCE_NOT_FOUND);
    assert_string_equal(result.diag.message, "no such thing");
    assert_string_equal(sf_diag_get(&result.diag, "violation"), "asked_for");
}

static void test_unknown_and_streaming_methods_are_unimplemented(void **state)
{
    (void)state;
    Sftest__V1__EchoRequest request = request_of("");
    static const char *const paths[] = {PATH("Unserved"), PATH("Chat"), "/none/None", ""};

    for (size_t i = 0; i < SF_ARRAY_LEN(paths); i++) {
        struct result result = {0};
        sf_channel_unary(channel, paths[i], &request.base, NULL, &loop.base, on_done, &result);
        assert_int_equal(result.calls, 0);
        manual_loop_run(&loop);
        assert_int_equal(result.calls, 1);
        assert_int_equal(result.diag.err, SF_UNIMPLEMENTED);
    }
}

static void test_deadline_ends_the_call_and_late_answer_is_dropped(void **state)
{
    (void)state;
    Sftest__V1__EchoRequest *request = sf_malloc(sizeof(*request));
    struct sf_call_options options = {.timeout_ms = 100};
    struct result result = {0};

    *request = request_of("slow");
    request->delay_ms = 300;
    sf_channel_unary(channel, PATH("Unary"), &request->base, &options, &loop.base, on_done,
                     &result);
    manual_loop_run(&loop);
    manual_loop_advance(&loop, 99);
    assert_int_equal(result.calls, 0);
    manual_loop_advance(&loop, 1);
    assert_int_equal(result.calls, 1);
    assert_int_equal(result.diag.err, SF_DEADLINE_EXCEEDED);
    free(request); /* the handler still runs, on its own copy */
    manual_loop_advance(&loop, 200);
    assert_int_equal(result.calls, 1);
    assert_int_equal(sf_echo_cancelled_count(echo), 1);
}

static void test_answer_before_the_deadline(void **state)
{
    (void)state;
    Sftest__V1__EchoRequest request = request_of("quick");
    struct sf_call_options options = {.timeout_ms = 100};
    struct result result = {0};

    request.delay_ms = 50;
    sf_channel_unary(channel, PATH("Unary"), &request.base, &options, &loop.base, on_done, &result);
    manual_loop_advance(&loop, 0);
    manual_loop_advance(&loop, 50);
    assert_int_equal(result.calls, 1);
    assert_int_equal(result.diag.err, SF_OK);
    assert_true(result.has_deadline);
    manual_loop_advance(&loop, 1000);
    assert_int_equal(result.calls, 1);
}

static void test_response_above_the_limit(void **state)
{
    (void)state;
    Sftest__V1__EchoRequest request = request_of("");
    struct result result = {0};

    request.reply_bytes = SF_LIMIT_RPC_MESSAGE_BYTES;
    sf_channel_unary(channel, PATH("Unary"), &request.base, NULL, &loop.base, on_done, &result);
    manual_loop_run(&loop);
    assert_int_equal(result.diag.err, SF_ERR_LIMIT);
    request.reply_bytes = SF_LIMIT_RPC_MESSAGE_BYTES - 4096;
    sf_channel_unary(channel, PATH("Unary"), &request.base, NULL, &loop.base, on_done, &result);
    manual_loop_run(&loop);
    assert_int_equal(result.diag.err, SF_OK);
    assert_int_equal(result.body_len, SF_LIMIT_RPC_MESSAGE_BYTES - 4096);
}

static void test_identity_of_the_options_wins(void **state)
{
    (void)state;
    Sftest__V1__EchoRequest request = request_of("");
    struct sf_identity identity = {.name = "somebody", .hash_hex = "abc"};
    struct sf_call_options options = {.identity = &identity};
    struct result result = {0};

    sf_channel_unary(channel, PATH("Unary"), &request.base, &options, &loop.base, on_done, &result);
    manual_loop_run(&loop);
    assert_string_equal(result.identity, "somebody");
    assert_string_equal(result.identity_hash, "abc");
}

static void test_waiting_form(void **state)
{
    (void)state;
    Sftest__V1__EchoRequest request = request_of("wait for me");
    struct sf_arena *arena = sf_arena_new(1 << 20);
    const ProtobufCMessage *response = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(sf_channel_unary_wait(channel, NULL, PATH("Unary"), &request.base, NULL, arena,
                                           &diag, &response),
                     SF_OK);
    assert_string_equal(((const Sftest__V1__EchoReply *)(const void *)response)->text,
                        "wait for me");
    request.fail_code = (char *)(uintptr_t) "SF_FORBIDDEN";
    assert_int_equal(sf_channel_unary_wait(channel, NULL, PATH("Unary"), &request.base, NULL, arena,
                                           &diag, &response),
                     SF_FORBIDDEN);
    assert_null(response);
    request.fail_code = (char *)(uintptr_t) "";
    request.reply_bytes = 2u << 20;
    assert_int_equal(sf_channel_unary_wait(channel, NULL, PATH("Unary"), &request.base, NULL, arena,
                                           &diag, &response),
                     SF_ERR_LIMIT);
    sf_arena_destroy(arena);
}

/* The client's end of a stream. */
struct client {
    struct sf_client_stream *stream;
    uint64_t messages;
    uint64_t body_bytes;
    uint64_t out_of_order;
    unsigned writable;
    unsigned done;
    bool stop_on_first;                   /* cancels in the first message */
    const Sftest__V1__EchoRequest *again; /* sent in writable, NULL for none */
    struct sf_diag diag;
};

static void client_message(void *user, const ProtobufCMessage *message)
{
    struct client *client = user;
    const Sftest__V1__EchoReply *reply = (const Sftest__V1__EchoReply *)(const void *)message;

    assert_int_equal(client->done, 0);
    if (reply->number != client->messages && reply->body_bytes == 0)
        client->out_of_order++;
    client->messages++;
    client->body_bytes += reply->body_bytes;
    if (client->stop_on_first)
        sf_client_stream_cancel(client->stream);
}

static void client_writable(void *user)
{
    struct client *client = user;

    client->writable++;
    if (client->again != NULL)
        assert_int_equal(sf_client_stream_send(client->stream, &client->again->base), SF_OK);
}

static void client_done(void *user, const struct sf_diag *diag)
{
    struct client *client = user;

    client->done++;
    client->diag = *diag;
}

static const struct sf_client_stream_ops client_ops = {client_message, client_writable,
                                                       client_done};

static void client_open(struct client *client, const char *path, int64_t timeout_ms)
{
    struct sf_call_options options = {.timeout_ms = timeout_ms};

    client->stream = sf_channel_stream(channel, path, &options, &loop.base, &client_ops, client);
    sf_diag_init(&client->diag);
}

static void test_chat_in_order(void **state)
{
    (void)state;
    struct client client = {0};
    Sftest__V1__EchoRequest request = request_of("x");

    client_open(&client, PATH("Chat"), 0);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(sf_client_stream_send(client.stream, &request.base), SF_OK);
    assert_int_equal(client.messages, 0);
    manual_loop_run(&loop);
    assert_int_equal(client.messages, 1000);
    assert_int_equal(client.out_of_order, 0);
    assert_int_equal(client.done, 0);
    assert_int_equal(sf_echo_open_count(echo), 1);
    sf_client_stream_half_close(client.stream);
    assert_int_equal(sf_client_stream_send(client.stream, &request.base), SF_ERR_STOPPED);
    manual_loop_run(&loop);
    assert_int_equal(client.done, 1);
    assert_int_equal(client.diag.err, SF_OK);
    assert_int_equal(sf_echo_open_count(echo), 0);
    assert_int_equal(sf_echo_cancelled_count(echo), 0);
}

/* 40 replies of 1 MiB through a budget of 4 MiB: the handler pauses and goes on. */
static void test_handler_back_pressure(void **state)
{
    (void)state;
    struct client client = {0};
    Sftest__V1__EchoRequest request = request_of("x");

    request.reply_bytes = 1u << 20;
    request.count = 40;
    client_open(&client, PATH("Chat"), 0);
    assert_int_equal(sf_client_stream_send(client.stream, &request.base), SF_OK);
    assert_int_equal(sf_client_stream_send(client.stream, &request.base), SF_OK);
    sf_client_stream_half_close(client.stream);
    manual_loop_run(&loop);
    assert_int_equal(client.messages, 80);
    assert_int_equal(client.out_of_order, 0);
    assert_int_equal(client.done, 1);
    assert_int_equal(client.diag.err, SF_OK);
}

static void test_client_back_pressure(void **state)
{
    (void)state;
    struct client client = {0};
    Sftest__V1__EchoRequest request = request_of("x");
    uint8_t *body = sf_calloc(1, 1u << 20);
    unsigned sent = 0;

    request.body = (ProtobufCBinaryData){1u << 20, body};
    client_open(&client, PATH("Collect"), 0);
    while (sent < 100 && sf_client_stream_send(client.stream, &request.base) == SF_OK)
        sent++;
    /* 1 MiB bodies and a few bytes of framing each: three fit in 4 MiB. */
    assert_int_equal(sent, SF_LIMIT_RPC_STREAM_BUDGET_BYTES / (1u << 20) - 1);
    assert_int_equal(client.writable, 0);
    manual_loop_run(&loop);
    assert_int_equal(client.writable, 1);
    assert_int_equal(sf_client_stream_send(client.stream, &request.base), SF_OK);
    sf_client_stream_half_close(client.stream);
    manual_loop_run(&loop);
    assert_int_equal(client.done, 1);
    assert_int_equal(client.messages, 1);
    assert_int_equal(client.body_bytes, (sent + 1) * (uint64_t)(1u << 20));
    free(body);
}

/* A message as large as the whole budget behind a small one: writable means that it fits. */
static void test_writable_means_that_it_fits(void **state)
{
    (void)state;
    struct client client = {0};
    Sftest__V1__EchoRequest small = request_of("x");
    Sftest__V1__EchoRequest large = request_of("x");
    uint8_t *body = sf_calloc(1, SF_LIMIT_RPC_STREAM_BUDGET_BYTES);

    large.body = (ProtobufCBinaryData){SF_LIMIT_RPC_STREAM_BUDGET_BYTES, body};
    client.again = &large;
    client_open(&client, PATH("Collect"), 0);
    assert_int_equal(sf_client_stream_send(client.stream, &small.base), SF_OK);
    assert_int_equal(sf_client_stream_send(client.stream, &large.base), SF_ERR_FULL);
    manual_loop_run(&loop);
    assert_int_equal(client.writable, 1);
    sf_client_stream_half_close(client.stream);
    manual_loop_run(&loop);
    assert_int_equal(client.done, 1);
    assert_int_equal(client.body_bytes, SF_LIMIT_RPC_STREAM_BUDGET_BYTES);
    free(body);
}

static void test_client_cancel(void **state)
{
    (void)state;
    struct client client = {.stop_on_first = true};
    Sftest__V1__EchoRequest request = request_of("x");

    request.count = 10;
    client_open(&client, PATH("Chat"), 0);
    assert_int_equal(sf_client_stream_send(client.stream, &request.base), SF_OK);
    manual_loop_run(&loop);
    assert_int_equal(client.messages, 1);
    assert_int_equal(client.done, 1);
    assert_int_equal(client.diag.err, SF_CANCELLED);
    assert_int_equal(sf_echo_cancelled_count(echo), 1);
    assert_int_equal(sf_echo_open_count(echo), 0);
}

static void test_cancel_before_open_calls_no_handler(void **state)
{
    (void)state;
    struct client client = {0};

    client_open(&client, PATH("Chat"), 0);
    sf_client_stream_cancel(client.stream);
    sf_client_stream_cancel(client.stream);
    assert_int_equal(client.done, 0);
    manual_loop_run(&loop);
    assert_int_equal(client.done, 1);
    assert_int_equal(sf_echo_cancelled_count(echo), 0);
}

static void test_stream_deadline(void **state)
{
    (void)state;
    struct client client = {0};
    Sftest__V1__EchoRequest request = request_of("x");

    client_open(&client, PATH("Chat"), 100);
    assert_int_equal(sf_client_stream_send(client.stream, &request.base), SF_OK);
    manual_loop_advance(&loop, 99);
    assert_int_equal(client.messages, 1);
    assert_int_equal(client.done, 0);
    manual_loop_advance(&loop, 1);
    assert_int_equal(client.done, 1);
    assert_int_equal(client.diag.err, SF_DEADLINE_EXCEEDED);
}

static void test_handler_fails_in_mid_stream(void **state)
{
    (void)state;
    struct client client = {0};
    Sftest__V1__EchoRequest request = request_of("enough");

    client_open(&client, PATH("Chat"), 0);
    assert_int_equal(sf_client_stream_send(client.stream, &request.base), SF_OK);
    request.fail_code = (char *)(uintptr_t) "SF_VERSION_CONFLICT";
    assert_int_equal(sf_client_stream_send(client.stream, &request.base), SF_OK);
    request.fail_code = (char *)(uintptr_t) "";
    assert_int_equal(sf_client_stream_send(client.stream, &request.base), SF_OK);
    manual_loop_run(&loop);
    assert_int_equal(client.messages, 1);
    assert_int_equal(client.done, 1);
    assert_int_equal(client.diag.err, SF_VERSION_CONFLICT);
    assert_string_equal(client.diag.message, "enough");
    assert_int_equal(sf_echo_cancelled_count(echo), 0);
}

/* Server-streaming and unary methods through the stream interface; no message is an error. */
static void test_unary_handlers_on_a_stream(void **state)
{
    (void)state;
    struct client many = {0}, unary = {0}, none = {0}, two = {0}, unknown = {0}, slow = {0};
    Sftest__V1__EchoRequest request = request_of("x");

    request.count = 5;
    client_open(&many, PATH("Many"), 0);
    client_open(&unary, PATH("Unary"), 0);
    client_open(&none, PATH("Unary"), 0);
    client_open(&two, PATH("Unary"), 0);
    client_open(&unknown, PATH("Unserved"), 0);
    client_open(&slow, PATH("Unary"), 10);
    assert_int_equal(sf_client_stream_send(many.stream, &request.base), SF_OK);
    assert_int_equal(sf_client_stream_send(unary.stream, &request.base), SF_OK);
    assert_int_equal(sf_client_stream_send(two.stream, &request.base), SF_OK);
    assert_int_equal(sf_client_stream_send(two.stream, &request.base), SF_OK);
    request.delay_ms = 50;
    assert_int_equal(sf_client_stream_send(slow.stream, &request.base), SF_OK);
    sf_client_stream_half_close(many.stream);
    sf_client_stream_half_close(unary.stream);
    sf_client_stream_half_close(none.stream);
    sf_client_stream_half_close(slow.stream);
    manual_loop_run(&loop);
    assert_int_equal(many.messages, 5);
    assert_int_equal(many.done, 1);
    assert_int_equal(many.diag.err, SF_OK);
    assert_int_equal(unary.messages, 1);
    assert_int_equal(unary.diag.err, SF_OK);
    assert_int_equal(none.diag.err, SF_UNIMPLEMENTED);
    assert_int_equal(two.diag.err, SF_UNIMPLEMENTED);
    assert_int_equal(unknown.diag.err, SF_UNIMPLEMENTED);
    assert_int_equal(slow.done, 0);
    manual_loop_advance(&loop, 10);
    assert_int_equal(slow.done, 1);
    assert_int_equal(slow.diag.err, SF_DEADLINE_EXCEEDED);
    manual_loop_advance(&loop, 50); /* its handler answers into the void */
}

static void test_channel_destroy_ends_streams(void **state)
{
    (void)state;
    struct client client = {0};
    const struct sf_service *services[] = {sf_echo_service(echo)};
    struct sf_channel *kept = channel;

    channel = sf_inproc_channel_new(services, 1, "other", &loop.clock.base);
    client_open(&client, PATH("Chat"), 0);
    manual_loop_run(&loop);
    sf_channel_destroy(channel);
    channel = kept;
    assert_int_equal(client.done, 0);
    manual_loop_run(&loop);
    assert_int_equal(client.done, 1);
    assert_int_equal(client.diag.err, SF_ERR_STOPPED);
    sf_channel_destroy(NULL);
}

/* A handler on one reactor, callers on another and on a plain thread. */
struct crossing {
    struct sf_task task;
    struct sf_loop *loop;
    struct sf_channel *channel;
    Sftest__V1__EchoRequest request;
    unsigned left;
    unsigned wrong;
    struct sf_waiter done;
};

static void crossing_done(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct crossing *c = user;
    const Sftest__V1__EchoReply *reply = (const Sftest__V1__EchoReply *)(const void *)response;

    if (diag->err != SF_OK || !sf_loop_is_current(c->loop) || strcmp(reply->text, "x") != 0)
        c->wrong++;
    if (--c->left == 0)
        sf_waiter_wake(&c->done);
}

static void crossing_run(struct sf_task *task)
{
    struct crossing *c = SF_CONTAINER_OF(task, struct crossing, task);
    struct sf_call_options options = {.timeout_ms = 60000};
    unsigned count = c->left;

    for (unsigned i = 0; i < count; i++)
        sf_channel_unary(c->channel, PATH("Unary"), &c->request.base, i % 2 == 0 ? NULL : &options,
                         c->loop, crossing_done, c);
}

static void test_across_threads(void **state)
{
    (void)state;
    struct sf_reactors *reactors;
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(sf_reactors_start(2, sf_clock_system(), &diag, &reactors), SF_OK);
    struct sf_echo *far = sf_echo_new(sf_reactors_loop(reactors, 0));
    const struct sf_service *services[] = {sf_echo_service(far)};
    struct crossing c = {
        .task = {.run = crossing_run},
        .loop = sf_reactors_loop(reactors, 1),
        .channel = sf_inproc_channel_new(services, 1, "tester", sf_clock_system()),
        .request = request_of("x"),
        .left = 500,
    };
    sf_waiter_init(&c.done, NULL);
    c.request.delay_ms = 1;
    sf_loop_post(c.loop, &c.task);
    struct sf_arena *arena = sf_arena_new(1 << 20);
    for (unsigned i = 0; i < 20; i++) {
        const ProtobufCMessage *response;
        assert_int_equal(sf_channel_unary_wait(c.channel, NULL, PATH("Unary"), &c.request.base,
                                               NULL, arena, &diag, &response),
                         SF_OK);
    }
    sf_waiter_wait(&c.done);
    assert_int_equal(c.wrong, 0);
    sf_channel_destroy(c.channel);
    sf_reactors_stop(reactors);
    sf_waiter_fini(&c.done);
    sf_arena_destroy(arena);
    sf_echo_destroy(far);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_unary_is_later_and_once),
        CASE(test_unary_error_keeps_its_details),
        CASE(test_unknown_and_streaming_methods_are_unimplemented),
        CASE(test_deadline_ends_the_call_and_late_answer_is_dropped),
        CASE(test_answer_before_the_deadline),
        CASE(test_response_above_the_limit),
        CASE(test_identity_of_the_options_wins),
        CASE(test_waiting_form),
        CASE(test_chat_in_order),
        CASE(test_handler_back_pressure),
        CASE(test_client_back_pressure),
        CASE(test_writable_means_that_it_fits),
        CASE(test_client_cancel),
        CASE(test_cancel_before_open_calls_no_handler),
        CASE(test_stream_deadline),
        CASE(test_handler_fails_in_mid_stream),
        CASE(test_unary_handlers_on_a_stream),
        CASE(test_channel_destroy_ends_streams),
        CASE(test_across_threads),
    };
    return SF_RUN_TESTS("inproc", tests);
}
