/*
 * A storm: calls and streams of all kinds from two loops, with deadlines that race their answers,
 * cancels at random moments, and a server that is stopped and started in the middle. Whatever
 * happens, each call is done exactly once and nothing stays open. Seeded; the interleaving is the
 * machine's, the sanitizers look on.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "exec/reactor.h"
#include "interop/echo_service.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "support/proves.h"

#define ROUNDS    4
#define UNARY     400 /* of one loop and round */
#define STREAMS   100
#define LOOPS     2
#define MAX_DELAY 8

struct storm;

/* One call of either kind. */
struct one {
    struct storm *storm;
    struct sf_client_stream *stream;
    struct sf_timer cancel;
    Sftest__V1__EchoRequest request;
    unsigned done;
    uint64_t next_number;
};

/* What one loop does in one round. */
struct storm {
    struct sf_task task;
    struct sf_loop *loop;
    struct sf_rng rng;
    struct one *ones; /* UNARY + STREAMS */
    unsigned left;
    unsigned wrong;
    unsigned answered;
    struct sf_waiter *finished;
};

static struct sf_reactors *reactors;
static struct sf_channel *channel;

static void one_done(struct one *one, const struct sf_diag *diag)
{
    struct storm *storm = one->storm;

    if (++one->done != 1 || !sf_loop_is_current(storm->loop))
        storm->wrong++;
    switch (diag->err) {
    case SF_OK:
        storm->answered++;
        break;
    case SF_DEADLINE_EXCEEDED:
    case SF_CANCELLED:
    case SF_BACKEND_UNAVAILABLE:
    case SF_FORBIDDEN:
        break;
    default:
        (void)fprintf(stderr, "%s: %s\n", sf_err_info(diag->err)->name, diag->message);
        storm->wrong++;
    }
    if (--storm->left == 0)
        sf_waiter_wake(storm->finished);
}

static void unary_done(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct one *one = user;

    if ((response != NULL) != (diag->err == SF_OK))
        one->storm->wrong++;
    one_done(one, diag);
}

static void stream_message(void *user, const ProtobufCMessage *message)
{
    struct one *one = user;
    const Sftest__V1__EchoReply *reply = (const Sftest__V1__EchoReply *)(const void *)message;

    if (reply->number != one->next_number++ || one->done > 0)
        one->storm->wrong++;
}

static void stream_done(void *user, const struct sf_diag *diag)
{
    struct one *one = user;

    sf_timer_stop(&one->cancel);
    one_done(one, diag);
}

static void on_cancel(struct sf_timer *timer)
{
    sf_client_stream_cancel(SF_CONTAINER_OF(timer, struct one, cancel)->stream);
}

static void fill(struct storm *storm, struct one *one)
{
    one->storm = storm;
    one->request = (Sftest__V1__EchoRequest)SFTEST__V1__ECHO_REQUEST__INIT;
    if (sf_rng_below(&storm->rng, 4) == 0)
        one->request.delay_ms = (uint32_t)sf_rng_below(&storm->rng, MAX_DELAY);
    if (sf_rng_below(&storm->rng, 8) == 0)
        one->request.reply_bytes = (uint32_t)sf_rng_below(&storm->rng, 200000);
    if (sf_rng_below(&storm->rng, 16) == 0)
        one->request.fail_code = (char *)(uintptr_t) "SF_FORBIDDEN";
}

static void start_unary(struct storm *storm, struct one *one)
{
    struct sf_call_options options = {0};

    fill(storm, one);
    if (sf_rng_below(&storm->rng, 2) == 0)
        options.timeout_ms = 1 + (int64_t)sf_rng_below(&storm->rng, MAX_DELAY);
    sf_channel_unary(channel, "/sftest.v1.Echo/Unary", &one->request.base, &options, storm->loop,
                     unary_done, one);
}

static void start_stream(struct storm *storm, struct one *one)
{
    static const struct sf_client_stream_ops ops = {stream_message, NULL, stream_done};
    struct sf_call_options options = {0};

    fill(storm, one);
    one->request.count = (uint32_t)sf_rng_below(&storm->rng, 20);
    sf_timer_init(&one->cancel, storm->loop, on_cancel);
    if (sf_rng_below(&storm->rng, 3) == 0)
        options.timeout_ms = 1 + (int64_t)sf_rng_below(&storm->rng, MAX_DELAY);
    one->stream =
        sf_channel_stream(channel, "/sftest.v1.Echo/Chat", &options, storm->loop, &ops, one);
    for (uint64_t n = sf_rng_below(&storm->rng, 20); n > 0; n--)
        (void)(sf_client_stream_send(one->stream, &one->request.base) == SF_OK);
    if (sf_rng_below(&storm->rng, 2) == 0) {
        sf_timer_start(&one->cancel, (int64_t)sf_rng_below(&storm->rng, MAX_DELAY));
        if (sf_rng_below(&storm->rng, 2) == 0)
            return; /* only the cancel ends it */
    }
    sf_client_stream_half_close(one->stream);
}

static void on_storm(struct sf_task *task)
{
    struct storm *storm = SF_CONTAINER_OF(task, struct storm, task);

    for (unsigned i = 0; i < UNARY + STREAMS; i++) {
        if (i % ((UNARY + STREAMS) / STREAMS) == 0)
            start_stream(storm, &storm->ones[i]);
        else
            start_unary(storm, &storm->ones[i]);
    }
}

static struct sf_rpc_server *server_start(const struct sf_echo *echo, uint16_t port)
{
    const struct sf_service *services[] = {sf_echo_service(echo)};
    struct sf_rpc_server_options options = {.host = "127.0.0.1",
                                            .port = port,
                                            .reactors = reactors,
                                            .services = services,
                                            .service_count = 1};
    struct sf_rpc_server *server = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    assert_int_equal(sf_rpc_server_start(&options, &diag, &server), SF_OK);
    return server;
}

static void test_storm(void **state)
{
    (void)state;
    struct storm storms[LOOPS] = {0};
    struct sf_waiter finished;
    struct sf_diag diag;
    unsigned answered = 0;

    sf_diag_init(&diag);
    assert_int_equal(sf_reactors_start(LOOPS, sf_clock_system(), &diag, &reactors), SF_OK);
    struct sf_echo *echo = sf_echo_new(sf_reactors_loop(reactors, 1));
    struct sf_rpc_server *server = server_start(echo, 0);
    uint16_t port = sf_rpc_server_port(server);
    assert_int_equal(
        sf_grpc_channel_new(sf_reactors_loop(reactors, 0), "127.0.0.1", port, &diag, &channel),
        SF_OK);
    sf_grpc_channel_add_service(channel, &sftest__v1__echo__descriptor);
    sf_waiter_init(&finished, NULL);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < LOOPS; i++) {
            storms[i] = (struct storm){.task = {.run = on_storm},
                                       .loop = sf_reactors_loop(reactors, i),
                                       .ones = sf_calloc(UNARY + STREAMS, sizeof(struct one)),
                                       .left = UNARY + STREAMS,
                                       .finished = &finished};
            sf_rng_init(&storms[i].rng, round * LOOPS + i);
            sf_loop_post(storms[i].loop, &storms[i].task);
        }
        if (round % 2 == 1) { /* in the middle of it, gently and not */
            sf_rpc_server_stop(server, round == 1 ? 2000 : 0);
            server = server_start(echo, port);
        }
        for (unsigned i = 0; i < LOOPS; i++)
            sf_waiter_wait(&finished);
        for (unsigned i = 0; i < LOOPS; i++) {
            assert_int_equal(storms[i].wrong, 0);
            answered += storms[i].answered;
            free(storms[i].ones);
        }
    }
    assert_true(answered > 0);
    sf_channel_destroy(channel);
    sf_rpc_server_stop(server, 2000);
    while (sf_echo_open_count(echo) > 0) /* handlers whose clients are long gone */
        (void)sched_yield();
    sf_reactors_stop(reactors);
    sf_waiter_fini(&finished);
    sf_echo_destroy(echo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_storm)};
    return SF_RUN_TESTS("storm", tests);
}
