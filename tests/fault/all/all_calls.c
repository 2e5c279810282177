#include "fault/all/all_calls.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/pb.h"
#include "contract/error_status.h"
#include "rpc/channel.h"

#define ARENA_BYTES (1u << 20)

struct all_call *all_call_new(struct all_cluster *cluster, enum all_role role, const char *method)
{
    struct all_call *call = sf_calloc(1, sizeof(*call));

    call->cluster = cluster;
    call->role = role;
    call->method = method;
    call->arena = sf_arena_new(ARENA_BYTES);
    call->refs = 1;
    sf_diag_init(&call->diag);
    return call;
}

void all_call_release(struct all_call *call)
{
    if (--call->refs != 0)
        return;
    sf_buf_fini(&call->response);
    sf_arena_destroy(call->arena);
    free(call);
}

/* Takes the answer, if the node that gives it still lives. */
static void take(struct all_call *call, const struct sf_diag *diag,
                 const ProtobufCMessage *response)
{
    if (call->counts || !sim_node_is_current(call->where, call->life))
        return;
    call->counts = true;
    call->diag = *diag;
    call->err = diag->err;
    if (diag->err == SF_OK)
        sf_pb_pack(response, &call->response);
    if (call->answered != NULL)
        call->answered(call);
}

static void finish(struct all_call *call)
{
    if (call->waiting) {
        call->waiting = false;
        sf_timer_stop(&call->patience);
        sf_waiter_wake(&call->waiter);
    }
    all_node_call_ended(call->node);
    all_call_release(call);
}

/* ---- unary ----------------------------------------------------------------------------------- */

static void on_unary(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    take(user, diag, response);
    finish(user);
}

static void send_unary(struct all_call *call)
{
    struct sf_channel *channel =
        call->role == ALL_CATALOG ? call->node->catalog_channel : call->node->allocator_channel;

    sf_channel_unary(channel, call->method, call->request, &(struct sf_call_options){0},
                     all_node_edge(call->node), on_unary, call);
}

/* ---- a stream with one batch ------------------------------------------------------------------
 */

static void on_message(void *user, const ProtobufCMessage *message)
{
    struct all_call *call = user;
    const Searchfabric__V1__StreamMutationsResponse *response = (const void *)message;
    struct sf_diag diag;

    if (response->response_case != SEARCHFABRIC__V1__STREAM_MUTATIONS_RESPONSE__RESPONSE_ACK)
        return;
    sf_diag_init(&diag);
    if (response->ack->error != NULL)
        (void)sf_error_status_read(response->ack->error, &diag);
    take(call, &diag, &response->ack->base);
}

static void on_writable(void *user)
{
    (void)user;
}

static void on_done(void *user, const struct sf_diag *diag)
{
    struct all_call *call = user;
    struct sf_diag lost = *diag;

    if (!call->counts && lost.err != SF_OK)
        take(call, &lost, NULL);
    else if (!call->counts && sim_node_is_current(call->where, call->life))
        sim_violation(call->cluster->sim, "a stream ended well without its acknowledgement");
    finish(call);
}

static const struct sf_client_stream_ops stream_ops = {
    .message = on_message, .writable = on_writable, .done = on_done};

static void send_stream(struct all_call *call)
{
    Searchfabric__V1__StreamMutationsRequest request =
        SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__INIT;
    Searchfabric__V1__StreamOpen open = SEARCHFABRIC__V1__STREAM_OPEN__INIT;
    Searchfabric__V1__RequestMeta meta = SEARCHFABRIC__V1__REQUEST_META__INIT;

    call->stream = sf_channel_stream(
        call->node->ingest_channel, "/searchfabric.v1.IngestGatewayService/StreamMutations",
        &(struct sf_call_options){0}, all_node_edge(call->node), &stream_ops, call);
    meta.client_id = (char *)(uintptr_t) "sim";
    meta.client_kind = SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY;
    open.meta = &meta;
    request.request_case = SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__REQUEST_OPEN;
    request.open = &open;
    enum sf_err err = sf_client_stream_send(call->stream, &request.base);
    request.request_case = SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__REQUEST_BATCH;
    request.batch = (Searchfabric__V1__MutationBatch *)(uintptr_t)call->request;
    if (err == SF_OK)
        err = sf_client_stream_send(call->stream, &request.base);
    SF_ASSERT(err == SF_OK || err == SF_ERR_STOPPED);
    sf_client_stream_half_close(call->stream);
}

/* ---- the way in ------------------------------------------------------------------------------ */

static void on_edge(struct sf_task *task)
{
    struct all_call *call = SF_CONTAINER_OF(task, struct all_call, task);
    struct sf_diag diag;

    if (call->node->stopping) {
        sf_diag_init(&diag);
        sf_diag_set(&diag, SF_BACKEND_UNAVAILABLE, "the node stops");
        take(call, &diag, NULL);
        finish(call);
    } else if (call->role == ALL_INGEST) {
        send_stream(call);
    } else {
        send_unary(call);
    }
}

static void on_impatient(struct sf_timer *timer)
{
    struct all_call *call = SF_CONTAINER_OF(timer, struct all_call, patience);

    call->waiting = false;
    sf_waiter_wake(&call->waiter);
}

bool all_call_run(struct all_call *call, struct sim_process *client, unsigned index,
                  int64_t patience_ms)
{
    call->where = call->cluster->nodes[index];
    call->node = sim_node_service(call->where, &call->life);
    if (call->node == NULL || call->node->stopping)
        return false;
    call->started_ms = sim_now_ms(call->cluster->sim);
    call->refs++;
    call->node->in_flight++;
    call->waiting = true;
    call->task.run = on_edge;
    sf_waiter_init(&call->waiter, sim_process_sched(client));
    sf_timer_init(&call->patience, sim_process_loop(client, 0), on_impatient);
    sf_timer_start(&call->patience, patience_ms);
    sf_loop_post(all_node_edge(call->node), &call->task);
    sf_waiter_wait(&call->waiter);
    sf_waiter_fini(&call->waiter);
    return call->counts;
}
