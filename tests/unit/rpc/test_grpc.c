/*
 * Our gRPC channel against our gRPC server over loopback, on real reactors: the channel lives on
 * one, callers on another or on plain threads.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/mem.h"
#include "exec/reactor.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "interop/echo_service.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "support/proves.h"

#define PATH(name) "/sftest.v1.Echo/" name

static struct sf_reactors *reactors;
static struct sf_echo *echo;
static struct sf_rpc_server *server;
static struct sf_channel *channel;
static struct sf_metrics *metrics;

static enum sf_err auth_by_metadata(void *self, struct sf_call *call,
                                    struct sf_identity *out_identity, struct sf_diag *diag)
{
    const char *token = sf_call_metadata(call, "authorization");

    (void)self;
    if (token != NULL && strcmp(token, "deny") == 0)
        return sf_diag_set(diag, SF_FORBIDDEN, "denied");
    *out_identity = (struct sf_identity){.name = "seam", .hash_hex = "00"};
    return SF_OK;
}

static const struct sf_rpc_auth auth = {.authenticate = auth_by_metadata};

static void server_start(uint16_t port)
{
    const struct sf_service *services[] = {sf_echo_service(echo)};
    struct sf_rpc_server_options options = {
        .host = "127.0.0.1",
        .port = port,
        .reactors = reactors,
        .services = services,
        .service_count = 1,
        .auth = &auth,
        .metrics = metrics,
    };
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(sf_rpc_server_start(&options, &diag, &server), SF_OK);
}

static int setup(void **state)
{
    struct sf_diag diag;

    (void)state;
    sf_diag_init(&diag);
    assert_int_equal(sf_reactors_start(2, sf_clock_system(), &diag, &reactors), SF_OK);
    metrics = sf_metrics_new();
    echo = sf_echo_new(sf_reactors_loop(reactors, 1));
    server_start(0);
    assert_int_equal(sf_grpc_channel_new(sf_reactors_loop(reactors, 0), "127.0.0.1",
                                         sf_rpc_server_port(server), &diag, &channel),
                     SF_OK);
    sf_grpc_channel_add_service(channel, &sftest__v1__echo__descriptor);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sf_channel_destroy(channel);
    sf_rpc_server_stop(server, 5000);
    sf_reactors_stop(reactors);
    assert_int_equal(sf_echo_open_count(echo), 0);
    sf_echo_destroy(echo);
    sf_metrics_destroy(metrics);
    return 0;
}

static Sftest__V1__EchoRequest request_of(const char *text)
{
    Sftest__V1__EchoRequest request = SFTEST__V1__ECHO_REQUEST__INIT;

    request.text = (char *)(uintptr_t)text;
    return request;
}

/* One waiting call; the reply lives in `arena`. */
static const Sftest__V1__EchoReply *call_echo(const Sftest__V1__EchoRequest *request,
                                              int64_t timeout_ms, struct sf_arena *arena,
                                              struct sf_diag *diag)
{
    struct sf_call_options options = {.timeout_ms = timeout_ms};
    const ProtobufCMessage *response = NULL;

    sf_diag_init(diag);
    enum sf_err err = sf_channel_unary_wait(channel, NULL, PATH("Unary"), &request->base, &options,
                                            arena, diag, &response);
    assert_int_equal(err, diag->err);
    assert_int_equal(response != NULL, err == SF_OK);
    return (const Sftest__V1__EchoReply *)(const void *)response;
}

static void test_unary(void **state)
{
    (void)state;
    struct sf_arena *arena = sf_arena_new(1 << 20);
    Sftest__V1__EchoRequest request = request_of("hello");
    struct sf_diag diag;

    const Sftest__V1__EchoReply *reply = call_echo(&request, 0, arena, &diag);
    assert_non_null(reply);
    assert_string_equal(reply->text, "hello");
    assert_string_equal(reply->identity_name, "seam");
    assert_false(reply->has_deadline);
    reply = call_echo(&request, 60000, arena, &diag);
    assert_true(reply->has_deadline);
    request.delay_ms = 1; /* answered from another thread */
    reply = call_echo(&request, 0, arena, &diag);
    assert_string_equal(reply->text, "hello");
    sf_arena_destroy(arena);
}

static void test_error_with_details(void **state)
{
    (void)state;
    Sftest__V1__EchoRequest request = request_of("not 100% \xe2\x82\xac\nthere");
    struct sf_diag diag;

    request.fail_code = (char *)(uintptr_t) "SF_VERSION_CONFLICT";
    assert_null(call_echo(&request, 0, NULL, &diag));
    assert_int_equal(diag.err, SF_VERSION_CONFLICT);
    assert_string_equal(diag.message, "not 100% \xe2\x82\xac\nthere");
    assert_string_equal(sf_diag_get(&diag, "field"), "text");
    assert_string_equal(sf_diag_get(&diag, "violation"), "asked_for");
}

static void test_unknown_methods(void **state)
{
    (void)state;
    Sftest__V1__EchoRequest request = request_of("");
    static const char *const paths[] = {PATH("Unserved"), "/none/None"};

    for (size_t i = 0; i < SF_ARRAY_LEN(paths); i++) {
        const ProtobufCMessage *response;
        struct sf_diag diag;
        sf_diag_init(&diag);
        assert_int_equal(sf_channel_unary_wait(channel, NULL, paths[i], &request.base, NULL, NULL,
                                               &diag, &response),
                         SF_UNIMPLEMENTED);
        assert_string_equal(sf_diag_get(&diag, "rpc_method"), paths[i]);
    }
}

/* The server counts a stream as cancelled a little later: ask until it has. */
static void wait_for_cancelled(unsigned count)
{
    struct sf_arena *arena = sf_arena_new(1 << 20);
    Sftest__V1__EchoRequest request = request_of("");
    struct sf_diag diag;
    uint64_t seen = 0;

    request.counters = true;
    for (unsigned tries = 0; tries < 100000 && seen < count; tries++) {
        const Sftest__V1__EchoReply *reply = call_echo(&request, 0, arena, &diag);
        assert_non_null(reply);
        seen = reply->cancelled_count;
        sf_arena_reset(arena);
    }
    assert_int_equal(seen, count);
    sf_arena_destroy(arena);
}

static void test_deadline(void **state)
{
    (void)state;
    Sftest__V1__EchoRequest request = request_of("");
    struct sf_clock *clock = sf_clock_system();
    struct sf_diag diag;

    request.delay_ms = 1000;
    int64_t start_ms = sf_clock_mono_ms(clock);
    assert_null(call_echo(&request, 100, NULL, &diag));
    int64_t took_ms = sf_clock_mono_ms(clock) - start_ms;
    assert_int_equal(diag.err, SF_DEADLINE_EXCEEDED);
    assert_true(took_ms >= 100 && took_ms < 1000);
    wait_for_cancelled(1); /* the handler has answered into the void */
}

static void test_large_messages(void **state)
{
    (void)state;
    const size_t size = 4u << 20;
    struct sf_arena *arena = sf_arena_new(64u << 20);
    Sftest__V1__EchoRequest request = request_of("");
    struct sf_diag diag;

    request.body = (ProtobufCBinaryData){size, sf_malloc(size)};
    for (size_t i = 0; i < size; i++)
        request.body.data[i] = (uint8_t)(i * 7 + i / 4093);
    const Sftest__V1__EchoReply *reply = call_echo(&request, 0, arena, &diag);
    assert_non_null(reply);
    assert_int_equal(reply->body.len, size);
    assert_memory_equal(reply->body.data, request.body.data, size);
    free(request.body.data);

    /* The answer is above the limit. */
    request.body = (ProtobufCBinaryData){0};
    request.reply_bytes = SF_LIMIT_RPC_MESSAGE_BYTES;
    assert_null(call_echo(&request, 0, arena, &diag));
    assert_int_equal(diag.err, SF_TOO_MANY_OPERATIONS);
    assert_string_equal(sf_diag_get(&diag, "limit_scope"), "rpc_response_bytes");

    /* The request is above the limit: refused on this side. */
    request.reply_bytes = 0;
    request.body =
        (ProtobufCBinaryData){SF_LIMIT_RPC_MESSAGE_BYTES, sf_calloc(1, SF_LIMIT_RPC_MESSAGE_BYTES)};
    assert_null(call_echo(&request, 0, arena, &diag));
    assert_int_equal(diag.err, SF_ERR_LIMIT);
    free(request.body.data);
    sf_arena_destroy(arena);
}

/* Many calls at once from a loop that is not the channel's. */
struct burst {
    struct sf_task task;
    struct sf_loop *loop;
    Sftest__V1__EchoRequest request;
    unsigned left;
    unsigned wrong;
    struct sf_waiter done;
};

static void burst_done(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct burst *burst = user;
    const Sftest__V1__EchoReply *reply = (const Sftest__V1__EchoReply *)(const void *)response;

    if (diag->err != SF_OK || !sf_loop_is_current(burst->loop) ||
        reply->body.len != burst->request.body.len)
        burst->wrong++;
    if (--burst->left == 0)
        sf_waiter_wake(&burst->done);
}

static void burst_run(struct sf_task *task)
{
    struct burst *burst = SF_CONTAINER_OF(task, struct burst, task);
    unsigned count = burst->left;

    for (unsigned i = 0; i < count; i++)
        sf_channel_unary(channel, PATH("Unary"), &burst->request.base, NULL, burst->loop,
                         burst_done, burst);
}

static void run_burst(unsigned count, size_t body_len)
{
    struct burst burst = {.task = {.run = burst_run},
                          .loop = sf_reactors_loop(reactors, 1),
                          .request = request_of("x"),
                          .left = count};

    burst.request.body = (ProtobufCBinaryData){body_len, sf_calloc(1, body_len + 1)};
    sf_waiter_init(&burst.done, NULL);
    sf_loop_post(burst.loop, &burst.task);
    sf_waiter_wait(&burst.done);
    sf_waiter_fini(&burst.done);
    assert_int_equal(burst.wrong, 0);
    free(burst.request.body.data);
}

static void test_more_calls_than_streams(void **state)
{
    (void)state;
    run_burst(2000, 10);
}

/* 24 requests of 4 MiB over one connection, three times its byte budget. */
static void test_more_bytes_than_budget(void **state)
{
    (void)state;
    run_burst(24, 4u << 20);
}

/* A stream driven on a loop. */
struct talk {
    struct sf_task task;
    struct sf_loop *loop;
    struct sf_client_stream *stream;
    const char *path;
    int64_t timeout_ms;
    Sftest__V1__EchoRequest request;
    unsigned to_send;
    bool half_close;
    unsigned cancel_at; /* message number, 0 = never */
    uint64_t got, out_of_order, body_bytes, writable;
    uint64_t number, sum_bytes;
    struct sf_diag diag;
    struct sf_waiter done;
};

static void talk_send(struct talk *talk)
{
    while (talk->to_send > 0 && sf_client_stream_send(talk->stream, &talk->request.base) == SF_OK)
        talk->to_send--;
    if (talk->to_send == 0 && talk->half_close) {
        talk->half_close = false;
        sf_client_stream_half_close(talk->stream);
    }
}

static void talk_message(void *user, const ProtobufCMessage *message)
{
    struct talk *talk = user;
    const Sftest__V1__EchoReply *reply = (const Sftest__V1__EchoReply *)(const void *)message;

    if (reply->number != talk->got)
        talk->out_of_order++;
    talk->got++;
    talk->body_bytes += reply->body.len;
    talk->number = reply->number;
    talk->sum_bytes = reply->body_bytes;
    if (talk->got == talk->cancel_at)
        sf_client_stream_cancel(talk->stream);
}

static void talk_writable(void *user)
{
    struct talk *talk = user;

    talk->writable++;
    talk_send(talk);
}

static void talk_done(void *user, const struct sf_diag *diag)
{
    struct talk *talk = user;

    talk->diag = *diag;
    sf_waiter_wake(&talk->done);
}

static void talk_run(struct sf_task *task)
{
    static const struct sf_client_stream_ops ops = {talk_message, talk_writable, talk_done};
    struct talk *talk = SF_CONTAINER_OF(task, struct talk, task);
    struct sf_call_options options = {.timeout_ms = talk->timeout_ms};

    talk->stream = sf_channel_stream(channel, talk->path, &options, talk->loop, &ops, talk);
    talk_send(talk);
}

static void run_talk(struct talk *talk, unsigned reactor)
{
    talk->task.run = talk_run;
    talk->loop = sf_reactors_loop(reactors, reactor);
    sf_waiter_init(&talk->done, NULL);
    sf_loop_post(talk->loop, &talk->task);
    sf_waiter_wait(&talk->done);
    sf_waiter_fini(&talk->done);
}

static void test_chat_10000(void **state)
{
    (void)state;
    for (unsigned reactor = 0; reactor < 2; reactor++) {
        struct talk talk = {
            .path = PATH("Chat"), .request = request_of("m"), .to_send = 10000, .half_close = true};
        run_talk(&talk, reactor);
        assert_int_equal(talk.diag.err, SF_OK);
        assert_int_equal(talk.got, 10000);
        assert_int_equal(talk.out_of_order, 0);
    }
}

static void test_chat_back_pressure_both_ways(void **state)
{
    (void)state;
    const size_t body = 512u << 10;
    struct talk talk = {
        .path = PATH("Chat"), .request = request_of("m"), .to_send = 60, .half_close = true};

    talk.request.body = (ProtobufCBinaryData){body, sf_calloc(1, body)};
    talk.request.count = 3;
    run_talk(&talk, 1);
    assert_int_equal(talk.diag.err, SF_OK);
    assert_int_equal(talk.got, 180);
    assert_int_equal(talk.out_of_order, 0);
    assert_int_equal(talk.body_bytes, 180 * body);
    assert_true(talk.writable > 0);
    free(talk.request.body.data);
}

static void test_collect_and_many(void **state)
{
    (void)state;
    uint8_t body[1000] = {0};
    struct talk collect = {
        .path = PATH("Collect"), .request = request_of("m"), .to_send = 500, .half_close = true};
    struct talk many = {
        .path = PATH("Many"), .request = request_of("m"), .to_send = 1, .half_close = true};

    collect.request.body = (ProtobufCBinaryData){sizeof(body), body};
    run_talk(&collect, 1);
    assert_int_equal(collect.diag.err, SF_OK);
    assert_int_equal(collect.got, 1);
    assert_int_equal(collect.number, 500);
    assert_int_equal(collect.sum_bytes, 500 * sizeof(body));
    many.request.count = 1000;
    run_talk(&many, 0);
    assert_int_equal(many.diag.err, SF_OK);
    assert_int_equal(many.got, 1000);
    assert_int_equal(many.out_of_order, 0);
}

static void test_cancel_and_stream_deadline(void **state)
{
    (void)state;
    struct talk cancel = {
        .path = PATH("Chat"), .request = request_of("m"), .to_send = 1, .cancel_at = 2};
    struct talk late = {
        .path = PATH("Chat"), .request = request_of("m"), .to_send = 1, .timeout_ms = 50};

    cancel.request.count = 1000000;
    run_talk(&cancel, 1);
    assert_int_equal(cancel.diag.err, SF_CANCELLED);
    wait_for_cancelled(1);
    run_talk(&late, 1);
    assert_int_equal(late.diag.err, SF_DEADLINE_EXCEEDED);
    assert_int_equal(late.got, 1);
    wait_for_cancelled(2);
}

static void test_stream_error(void **state)
{
    (void)state;
    struct talk talk = {.path = PATH("Chat"), .request = request_of("enough"), .to_send = 3};

    talk.request.fail_code = (char *)(uintptr_t) "SF_OWNERSHIP_CONFLICT";
    run_talk(&talk, 1);
    assert_int_equal(talk.diag.err, SF_OWNERSHIP_CONFLICT);
    assert_string_equal(talk.diag.message, "enough");
}

static void test_health(void **state)
{
    (void)state;
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    struct sf_arena *arena = sf_arena_new(1 << 20);
    struct {
        const char *service;
        enum sf_err err;
        int status;
    } cases[] = {{"", SF_OK, 1}, {"sftest.v1.Echo", SF_OK, 2}, {"other", SF_RESOURCE_NOT_FOUND, 0}};

    sf_rpc_server_set_serving(server, "sftest.v1.Echo", false);
    for (size_t i = 0; i < SF_ARRAY_LEN(cases); i++) {
        const ProtobufCMessage *response;
        struct sf_diag diag;
        sf_diag_init(&diag);
        request.service = (char *)(uintptr_t)cases[i].service;
        assert_int_equal(sf_channel_unary_wait(channel, NULL, "/grpc.health.v1.Health/Check",
                                               &request.base, NULL, arena, &diag, &response),
                         cases[i].err);
        if (response != NULL)
            assert_int_equal(
                ((const Grpc__Health__V1__HealthCheckResponse *)(const void *)response)->status,
                cases[i].status);
    }
    sf_arena_destroy(arena);
}

/* Watches a service whose state changes while it watches; the drain ends the watch. */
struct watching {
    struct sf_task task;
    struct sf_loop *loop;
    int states[8];
    unsigned count;
    struct sf_diag diag;
    struct sf_waiter news;
};

static void watching_message(void *user, const ProtobufCMessage *message)
{
    struct watching *w = user;

    w->states[w->count++] =
        (int)((const Grpc__Health__V1__HealthCheckResponse *)(const void *)message)->status;
    sf_waiter_wake(&w->news);
}

static void watching_done(void *user, const struct sf_diag *diag)
{
    struct watching *w = user;

    w->diag = *diag;
    sf_waiter_wake(&w->news);
}

static void watching_run(struct sf_task *task)
{
    static const struct sf_client_stream_ops ops = {watching_message, NULL, watching_done};
    struct watching *w = SF_CONTAINER_OF(task, struct watching, task);
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;

    request.service = (char *)(uintptr_t) "part";
    struct sf_client_stream *stream =
        sf_channel_stream(channel, "/grpc.health.v1.Health/Watch", NULL, w->loop, &ops, w);
    assert_int_equal(sf_client_stream_send(stream, &request.base), SF_OK);
    sf_client_stream_half_close(stream);
}

static void test_health_watch_and_drain(void **state)
{
    (void)state;
    struct watching w = {.task = {.run = watching_run}, .loop = sf_reactors_loop(reactors, 1)};
    uint16_t port = sf_rpc_server_port(server);

    sf_waiter_init(&w.news, NULL);
    sf_loop_post(w.loop, &w.task);
    sf_waiter_wait(&w.news);
    sf_rpc_server_set_serving(server, "part", true);
    sf_waiter_wait(&w.news);
    sf_rpc_server_set_serving(server, "part", true); /* no news */
    sf_rpc_server_set_serving(server, "part", false);
    sf_waiter_wait(&w.news);
    sf_rpc_server_set_serving(server, "part", true);
    sf_waiter_wait(&w.news);
    sf_rpc_server_stop(server, 5000);
    sf_waiter_wait(&w.news); /* NOT_SERVING */
    sf_waiter_wait(&w.news); /* done */
    assert_int_equal(w.count, 5);
    assert_int_equal(w.states[0], 3); /* SERVICE_UNKNOWN */
    assert_int_equal(w.states[1], 1); /* SERVING */
    assert_int_equal(w.states[2], 2); /* NOT_SERVING */
    assert_int_equal(w.states[3], 1);
    assert_int_equal(w.states[4], 2);
    assert_int_equal(w.diag.err, SF_OK);
    sf_waiter_fini(&w.news);
    server_start(port);
}

/* Open calls finish during a drain; the channel finds the next server by itself. */
static void test_drain_and_reconnect(void **state)
{
    (void)state;
    struct burst burst = {.task = {.run = burst_run},
                          .loop = sf_reactors_loop(reactors, 1),
                          .request = request_of("x"),
                          .left = 50};
    struct sf_arena *arena = sf_arena_new(1 << 20);
    Sftest__V1__EchoRequest request = request_of("again");
    uint16_t port = sf_rpc_server_port(server);
    struct sf_diag diag;

    assert_non_null(call_echo(&request, 0, arena, &diag));
    burst.request.delay_ms = 200;
    sf_waiter_init(&burst.done, NULL);
    sf_loop_post(burst.loop, &burst.task);
    struct talk hello = {
        .path = PATH("Chat"), .request = request_of(""), .to_send = 1, .half_close = true};
    run_talk(&hello, 1); /* behind the burst on the same loop and connection: it is under way */
    sf_rpc_server_stop(server, 5000);
    sf_waiter_wait(&burst.done);
    assert_int_equal(burst.wrong, 0);
    sf_waiter_fini(&burst.done);

    assert_null(call_echo(&request, 0, arena, &diag));
    assert_int_equal(diag.err, SF_BACKEND_UNAVAILABLE);
    server_start(port);
    const Sftest__V1__EchoReply *reply = NULL;
    for (unsigned tries = 0; reply == NULL && tries < 100000; tries++)
        reply = call_echo(&request, 0, arena, &diag);
    assert_non_null(reply);
    assert_string_equal(reply->text, "again");
    sf_arena_destroy(arena);
}

/* The limit ends what does not finish. */
static void test_drain_limit(void **state)
{
    (void)state;
    struct talk talk = {.path = PATH("Chat"), .request = request_of("m"), .to_send = 1};
    uint16_t port = sf_rpc_server_port(server);

    talk.task.run = talk_run;
    talk.loop = sf_reactors_loop(reactors, 1);
    sf_waiter_init(&talk.done, NULL);
    sf_loop_post(talk.loop, &talk.task);
    struct talk hello = {
        .path = PATH("Chat"), .request = request_of(""), .to_send = 1, .half_close = true};
    run_talk(&hello, 1);
    sf_rpc_server_stop(server, 50);
    sf_waiter_wait(&talk.done);
    assert_int_equal(talk.diag.err, SF_BACKEND_UNAVAILABLE);
    assert_int_equal(sf_echo_cancelled_count(echo), 1);
    sf_waiter_fini(&talk.done);
    server_start(port);
}

/* Reflection: a client that finds the health service's file by symbol. */
struct reflecting {
    struct sf_task task;
    struct sf_loop *loop;
    const char *path;
    unsigned files, services, errors;
    bool has_health;
    struct sf_waiter done;
};

static void reflecting_message(void *user, const ProtobufCMessage *message)
{
    struct reflecting *r = user;
    const Grpc__Reflection__V1__ServerReflectionResponse *response =
        (const Grpc__Reflection__V1__ServerReflectionResponse *)(const void *)message;

    if (response->file_descriptor_response != NULL &&
        response->message_response_case ==
            GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE)
        r->files += (unsigned)response->file_descriptor_response->n_file_descriptor_proto;
    else if (
        response->message_response_case ==
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE) {
        r->services += (unsigned)response->list_services_response->n_service;
        for (size_t i = 0; i < response->list_services_response->n_service; i++)
            if (strcmp(response->list_services_response->service[i]->name,
                       "grpc.health.v1.Health") == 0)
                r->has_health = true;
    } else {
        r->errors++;
    }
}

static void reflecting_done(void *user, const struct sf_diag *diag)
{
    struct reflecting *r = user;

    if (diag->err != SF_OK)
        r->errors += 100;
    sf_waiter_wake(&r->done);
}

static void reflecting_run(struct sf_task *task)
{
    static const struct sf_client_stream_ops ops = {reflecting_message, NULL, reflecting_done};
    struct reflecting *r = SF_CONTAINER_OF(task, struct reflecting, task);
    Grpc__Reflection__V1__ServerReflectionRequest request =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    struct sf_client_stream *stream = sf_channel_stream(channel, r->path, NULL, r->loop, &ops, r);

    request.message_request_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES;
    request.list_services = (char *)(uintptr_t) "";
    assert_int_equal(sf_client_stream_send(stream, &request.base), SF_OK);
    request.message_request_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL;
    request.file_containing_symbol = (char *)(uintptr_t) "grpc.health.v1.Health.Check";
    assert_int_equal(sf_client_stream_send(stream, &request.base), SF_OK);
    request.file_containing_symbol = (char *)(uintptr_t) "grpc.health.v1.Nothing";
    assert_int_equal(sf_client_stream_send(stream, &request.base), SF_OK);
    sf_client_stream_half_close(stream);
}

static void test_reflection(void **state)
{
    (void)state;
    struct reflecting r = {.task = {.run = reflecting_run},
                           .loop = sf_reactors_loop(reactors, 1),
                           .path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"};

    sf_waiter_init(&r.done, NULL);
    sf_loop_post(r.loop, &r.task);
    sf_waiter_wait(&r.done);
    sf_waiter_fini(&r.done);
    assert_int_equal(r.services, 4); /* echo, health, two reflections */
    assert_true(r.has_health);
    assert_int_equal(r.files, 1); /* health.proto imports nothing */
    assert_int_equal(r.errors, 1);
}

static void test_metrics(void **state)
{
    (void)state;
    struct sf_arena *arena = sf_arena_new(1 << 20);
    Sftest__V1__EchoRequest request = request_of("");
    struct sf_buf text = {0};
    struct sf_diag diag;

    assert_non_null(call_echo(&request, 0, arena, &diag));
    request.fail_code = (char *)(uintptr_t) "SF_FORBIDDEN";
    assert_null(call_echo(&request, 0, arena, &diag));
    request.fail_code = (char *)(uintptr_t) "";
    assert_non_null(call_echo(&request, 0, arena, &diag)); /* the failed one is counted by now */
    sf_metrics_render(metrics, &text);
    sf_buf_append(&text, "", 1);
    assert_non_null(strstr((char *)text.data, "searchfabric_rpc_server_connections 1"));
    assert_non_null(strstr((char *)text.data,
                           "searchfabric_rpc_server_handled_total{method=\"/sftest.v1.Echo/"
                           "Unary\",code=\"PERMISSION_DENIED\"} 1"));
    sf_buf_fini(&text);
    sf_arena_destroy(arena);
}

static void test_bad_addresses(void **state)
{
    (void)state;
    static const char *const hosts[] = {
        "nowhere", "0.0.0.0", "10.0.0.1",        "128.0.0.1",
        "::",      "fe80::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1"};
    struct sf_rpc_server_options options = {.reactors = reactors};
    struct sf_rpc_server *none = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    for (size_t i = 0; i < SF_ARRAY_LEN(hosts); i++) {
        options.host = hosts[i];
        assert_int_equal(sf_rpc_server_start(&options, &diag, &none), SF_ERR_CONFIG);
        assert_null(none);
    }
    options.host = "127.0.0.1";
    options.port = sf_rpc_server_port(server);
    assert_int_equal(sf_rpc_server_start(&options, &diag, &none), SF_ERR_IO);
    sf_rpc_server_stop(NULL, 0);
}

/* ---- services that come later ---- */

static void refuse_early(void *self, struct sf_view path, struct sf_diag *diag)
{
    sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "%.*s is not served yet", (int)path.len,
                (const char *)path.ptr);
    sf_diag_detail(diag, "failing_authority", "%s", (const char *)self);
}

/* The code of one call of the echo to a server with an expected service. */
static enum sf_err call_early(struct sf_channel *to, const char *path, struct sf_diag *diag)
{
    struct sf_arena *arena = sf_arena_new(1u << 20);
    Sftest__V1__EchoRequest request = request_of("early");
    struct sf_call_options options = {.timeout_ms = 10000};
    const ProtobufCMessage *response = NULL;

    sf_diag_init(diag);
    enum sf_err err =
        sf_channel_unary_wait(to, NULL, path, &request.base, &options, arena, diag, &response);
    sf_arena_destroy(arena);
    return err;
}

static void test_services_that_come_later(void **state)
{
    (void)state;
    static const char *const names[] = {"sftest.v1.Echo"};
    static char authority[] = "echo";
    const struct sf_rpc_expected expected = {
        .services = names, .count = 1, .refuse = refuse_early, .self = authority};
    struct sf_rpc_server_options options = {
        .host = "127.0.0.1", .reactors = reactors, .expected = &expected, .metrics = metrics};
    const struct sf_service *services[] = {sf_echo_service(echo)};
    struct sf_rpc_server *early = NULL;
    struct sf_channel *to = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(sf_rpc_server_start(&options, &diag, &early), SF_OK);
    assert_int_equal(sf_grpc_channel_new(sf_reactors_loop(reactors, 0), "127.0.0.1",
                                         sf_rpc_server_port(early), &diag, &to),
                     SF_OK);
    sf_grpc_channel_add_service(to, &sftest__v1__echo__descriptor);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(call_early(to, PATH("Unary"), &diag), SF_BACKEND_UNAVAILABLE);
        assert_string_equal(sf_diag_get(&diag, "failing_authority"), "echo");
        assert_string_equal(diag.message, "/sftest.v1.Echo/Unary is not served yet");
    }
    sf_rpc_server_add(early, services, 1);
    assert_int_equal(call_early(to, PATH("Unary"), &diag), SF_OK);
    sf_channel_destroy(to);
    sf_rpc_server_stop(early, 5000);
}

/* ---- limits that options lower ---- */

static struct sf_rpc_server *limited_start(struct sf_rpc_server_options options)
{
    const struct sf_service *services[] = {sf_echo_service(echo)};
    struct sf_rpc_server *limited = NULL;
    struct sf_diag diag;

    options.host = "127.0.0.1";
    options.reactors = reactors;
    options.services = services;
    options.service_count = 1;
    sf_diag_init(&diag);
    assert_int_equal(sf_rpc_server_start(&options, &diag, &limited), SF_OK);
    return limited;
}

static enum sf_err call_limited(struct sf_channel *to, size_t body_len, uint32_t reply_bytes,
                                struct sf_diag *diag)
{
    struct sf_arena *arena = sf_arena_new(16u << 20);
    Sftest__V1__EchoRequest request = request_of("");
    const ProtobufCMessage *response = NULL;

    request.body = (ProtobufCBinaryData){body_len, sf_calloc(1, body_len + 1)};
    request.reply_bytes = reply_bytes;
    sf_diag_init(diag);
    enum sf_err err =
        sf_channel_unary_wait(to, NULL, PATH("Unary"), &request.base, NULL, arena, diag, &response);
    free(request.body.data);
    sf_arena_destroy(arena);
    return err;
}

/* What a client sends is bounded by the option, call after call; answers keep the fixed limit. */
static void test_option_message_bytes(void **state)
{
    (void)state;
    const uint32_t limit = 64u << 10;
    struct sf_rpc_server *limited =
        limited_start((struct sf_rpc_server_options){.max_message_bytes = limit});
    struct sf_channel *to = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(sf_grpc_channel_new(sf_reactors_loop(reactors, 0), "127.0.0.1",
                                         sf_rpc_server_port(limited), &diag, &to),
                     SF_OK);
    sf_grpc_channel_add_service(to, &sftest__v1__echo__descriptor);
    for (unsigned i = 0; i < 3; i++) { /* calls are used again */
        assert_int_equal(call_limited(to, limit, 0, &diag), SF_TOO_MANY_OPERATIONS);
        assert_string_equal(sf_diag_get(&diag, "limit_scope"), "rpc_message_bytes");
        assert_string_equal(sf_diag_get(&diag, "configured_limit"), "65536");
        assert_int_equal(call_limited(to, limit - 16, 0, &diag), SF_OK); /* tag and length */
        assert_int_equal(call_limited(to, 0, 2 * limit, &diag), SF_OK);
    }
    sf_channel_destroy(to);
    sf_rpc_server_stop(limited, 5000);
}

/* A plain connection to the server. */
static int connect_to(const struct sf_rpc_server *to)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(sf_rpc_server_port(to)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)(const void *)&address, sizeof(address)),
                     0);
    return fd;
}

static bool read_exactly(int fd, uint8_t *out, size_t len)
{
    return recv(fd, out, len, MSG_WAITALL) == (ssize_t)len;
}

/* The connection's limit of calls as the first SETTINGS frame says it (RFC 9113, 6.5). */
static uint32_t announced_streams(const struct sf_rpc_server *to)
{
    uint8_t header[9];
    uint8_t entries[256];
    int fd = connect_to(to);
    uint32_t streams = 0;

    assert_true(read_exactly(fd, header, sizeof(header)));
    size_t len = (size_t)header[0] << 16 | (size_t)header[1] << 8 | header[2];
    assert_int_equal(header[3], 4); /* SETTINGS */
    assert_true(len <= sizeof(entries) && len % 6 == 0);
    assert_true(read_exactly(fd, entries, len));
    for (const uint8_t *e = entries; e < entries + len; e += 6)
        if (e[0] == 0 && e[1] == 3) /* SETTINGS_MAX_CONCURRENT_STREAMS */
            streams = (uint32_t)e[2] << 24 | (uint32_t)e[3] << 16 | (uint32_t)e[4] << 8 | e[5];
    (void)close(fd);
    return streams;
}

static void test_option_streams(void **state)
{
    (void)state;
    struct sf_rpc_server *limited =
        limited_start((struct sf_rpc_server_options){.max_streams_per_conn = 3});
    struct sf_rpc_server *above =
        limited_start((struct sf_rpc_server_options){.max_streams_per_conn = 10000});

    assert_int_equal(announced_streams(limited), 3);
    assert_int_equal(announced_streams(server), SF_LIMIT_RPC_STREAMS_PER_CONN); /* 0 */
    assert_int_equal(announced_streams(above), SF_LIMIT_RPC_STREAMS_PER_CONN);  /* never raised */
    sf_rpc_server_stop(limited, 5000);
    sf_rpc_server_stop(above, 5000);
}

/* The third connection is closed unanswered; a place that gets free is given again. */
static void test_option_connections(void **state)
{
    (void)state;
    struct sf_rpc_server *limited =
        limited_start((struct sf_rpc_server_options){.max_connections = 2});
    uint8_t byte;
    int fds[2];

    for (size_t i = 0; i < SF_ARRAY_LEN(fds); i++) {
        fds[i] = connect_to(limited);
        assert_true(read_exactly(fds[i], &byte, 1)); /* its SETTINGS */
    }
    int refused = connect_to(limited);
    assert_false(read_exactly(refused, &byte, 1));
    (void)close(refused);
    (void)close(fds[0]);
    bool taken = false;
    for (unsigned tries = 0; tries < 100000 && !taken; tries++) { /* until it saw the end */
        fds[0] = connect_to(limited);
        taken = read_exactly(fds[0], &byte, 1);
        if (!taken)
            (void)close(fds[0]);
    }
    assert_true(taken);
    (void)close(fds[0]);
    (void)close(fds[1]);
    sf_rpc_server_stop(limited, 5000);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_unary),
        CASE(test_error_with_details),
        CASE(test_unknown_methods),
        CASE(test_deadline),
        CASE(test_large_messages),
        CASE(test_more_calls_than_streams),
        CASE(test_more_bytes_than_budget),
        CASE(test_chat_10000),
        CASE(test_chat_back_pressure_both_ways),
        CASE(test_collect_and_many),
        CASE(test_cancel_and_stream_deadline),
        CASE(test_stream_error),
        CASE(test_health),
        CASE(test_health_watch_and_drain),
        CASE(test_drain_and_reconnect),
        CASE(test_drain_limit),
        CASE(test_reflection),
        CASE(test_metrics),
        CASE(test_bad_addresses),
        CASE(test_services_that_come_later),
        CASE(test_option_message_bytes),
        CASE(test_option_streams),
        CASE(test_option_connections),
    };
    return SF_RUN_TESTS("grpc", tests);
}
