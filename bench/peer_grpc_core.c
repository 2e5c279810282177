/*
 * The peer of bench_rpc_echo: the same unary echo on the gRPC C core, one completion queue, one
 * thread. Writes its port (two bytes, host order) to file descriptor 3 and serves until SIGTERM.
 * Built only where the C core's headers are; nothing of the product uses it.
 */
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/mem.h"
#include "echo.pb-c.h"

#define CALLS 512 /* calls waited for at once */

enum state { WAITING, READING, ANSWERING };

/* One call, from the wait for it to its end; then it waits for the next. */
struct peer_call {
    enum state state;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *request;
    grpc_byte_buffer *response;
    int cancelled;
};

static grpc_server *server;
static grpc_completion_queue *queue;

static void wait_for_call(struct peer_call *call)
{
    call->state = WAITING;
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    SF_ASSERT(grpc_server_request_call(server, &call->call, &call->details, &call->metadata, queue,
                                       queue, call) == GRPC_CALL_OK);
}

static void read_request(struct peer_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

    call->state = READING;
    op.data.recv_message.recv_message = &call->request;
    SF_ASSERT(grpc_call_start_batch(call->call, &op, 1, call, NULL) == GRPC_CALL_OK);
}

/* The same work as the echo service: unpack, copy text and body to the reply, pack. */
static grpc_byte_buffer *echo(grpc_byte_buffer *request)
{
    Sftest__V1__EchoReply reply = SFTEST__V1__ECHO_REPLY__INIT;
    grpc_byte_buffer_reader reader;

    SF_ASSERT(grpc_byte_buffer_reader_init(&reader, request));
    grpc_slice bytes = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    Sftest__V1__EchoRequest *message = sftest__v1__echo_request__unpack(
        NULL, GRPC_SLICE_LENGTH(bytes), GRPC_SLICE_START_PTR(bytes));
    SF_ASSERT(message != NULL);
    reply.text = message->text;
    reply.body = message->body;
    grpc_slice packed = grpc_slice_malloc(sftest__v1__echo_reply__get_packed_size(&reply));
    (void)sftest__v1__echo_reply__pack(&reply, GRPC_SLICE_START_PTR(packed));
    grpc_byte_buffer *response = grpc_raw_byte_buffer_create(&packed, 1);
    grpc_slice_unref(packed);
    sftest__v1__echo_request__free_unpacked(message, NULL);
    grpc_slice_unref(bytes);
    return response;
}

static void answer(struct peer_call *call)
{
    grpc_op ops[4] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_MESSAGE},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
                      {.op = GRPC_OP_RECV_CLOSE_ON_SERVER}};

    call->state = ANSWERING;
    call->response = echo(call->request);
    ops[1].data.send_message.send_message = call->response;
    ops[2].data.send_status_from_server.status = GRPC_STATUS_OK;
    ops[3].data.recv_close_on_server.cancelled = &call->cancelled;
    SF_ASSERT(grpc_call_start_batch(call->call, ops, 4, call, NULL) == GRPC_CALL_OK);
}

static void end(struct peer_call *call)
{
    if (call->request != NULL)
        grpc_byte_buffer_destroy(call->request);
    if (call->response != NULL)
        grpc_byte_buffer_destroy(call->response);
    call->request = call->response = NULL;
    grpc_call_details_destroy(&call->details);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_unref(call->call);
    wait_for_call(call);
}

static void *serve(void *arg)
{
    struct peer_call *calls = sf_calloc(CALLS, sizeof(*calls));

    (void)arg;
    for (size_t i = 0; i < CALLS; i++)
        wait_for_call(&calls[i]);
    for (;;) {
        grpc_event event =
            grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        struct peer_call *call = event.tag;
        if (event.type != GRPC_OP_COMPLETE)
            break;
        if (call->state == WAITING)
            read_request(call);
        else if (call->state == READING && call->request != NULL)
            answer(call);
        else
            end(call);
    }
    free(calls);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    sigset_t set;
    int got;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    grpc_init();
    server = grpc_server_create(NULL, NULL);
    queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(server, queue, NULL);
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    int bound = grpc_server_add_http2_port(server, "127.0.0.1:0", plain);
    grpc_server_credentials_release(plain);
    SF_ASSERT(bound > 0);
    grpc_server_start(server);
    uint16_t port = (uint16_t)bound;
    SF_ASSERT(write(3, &port, sizeof(port)) == sizeof(port));
    SF_ASSERT(pthread_create(&thread, NULL, serve, NULL) == 0);
    (void)sigwait(&set, &got);
    _exit(0); /* the core's own shutdown is of no interest here */
}
