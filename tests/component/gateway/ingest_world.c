#include "component/gateway/ingest_world.h"

#include <stdlib.h>

#include "base/pb.h"
#include "contract/receipt.h"

/* ---- catalog --------------------------------------------------------------------------------- */

static void answer_read(struct world *w, struct sf_call *call, bool known)
{
    Searchfabric__V1__GetCollectionAdmissionStateResponse response =
        SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__INIT;
    Searchfabric__V1__AdmissionStateNotModified same =
        SEARCHFABRIC__V1__ADMISSION_STATE_NOT_MODIFIED__INIT;

    if (w->catalog_err != SF_OK) {
        (void)sf_diag_set(sf_call_diag(call), w->catalog_err, "the catalog says no");
        sf_call_fail(call, sf_call_diag(call));
        return;
    }
    if (known) {
        w->not_modified++;
        response.result_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_NOT_MODIFIED;
        response.not_modified = &same;
    } else {
        response.result_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_STATE;
        response.state = &w->facts.state;
    }
    sf_call_respond(call, &response.base);
}

static void handle_read(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct world *w = self;
    const Searchfabric__V1__GetCollectionAdmissionStateRequest *request =
        (const Searchfabric__V1__GetCollectionAdmissionStateRequest *)(const void *)message;

    w->reads++;
    if (w->catalog_holds) {
        w->held[w->held_count++] = call;
        return;
    }
    bool known =
        request->_known_descriptor_etag_case ==
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_REQUEST___KNOWN_DESCRIPTOR_ETAG_KNOWN_DESCRIPTOR_ETAG &&
        strcmp(request->known_descriptor_etag, w->facts.state.descriptor_etag) == 0;
    answer_read(w, call, known);
}

void world_catalog_release(struct world *w)
{
    unsigned count = w->held_count;

    w->held_count = 0;
    for (unsigned i = 0; i < count; i++)
        answer_read(w, w->held[i], false);
    world_run(w);
}

static const struct sf_method catalog_methods[] = {
    {.name = "GetCollectionAdmissionState",
     .request = &searchfabric__v1__get_collection_admission_state_request__descriptor,
     .response = &searchfabric__v1__get_collection_admission_state_response__descriptor,
     .unary = handle_read}};

/* ---- coordinator ----------------------------------------------------------------------------- */

static void coordinator_open(void *self, struct sf_call *call)
{
    struct world *w = self;

    w->coordinator_call = call;
    w->streams++;
}

static void coordinator_message(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct world *w = self;

    (void)call;
    assert_true(w->planned_count < WORLD_MAX);
    w->planned[w->planned_count++] =
        (const Searchfabric__V1__SubmitPlannedBatchRequest *)(const void *)sf_pb_dup(message,
                                                                                     w->arena);
}

static void coordinator_half_close(void *self, struct sf_call *call)
{
    (void)self, (void)call;
}

static void coordinator_closed(void *self, struct sf_call *call)
{
    struct world *w = self;

    (void)call;
    w->coordinator_call = NULL;
}

static const struct sf_stream_ops coordinator_ops = {.open = coordinator_open,
                                                     .message = coordinator_message,
                                                     .half_close = coordinator_half_close,
                                                     .closed = coordinator_closed};

static const struct sf_method coordinator_methods[] = {
    {.name = "SubmitPlannedBatch",
     .request = &searchfabric__v1__submit_planned_batch_request__descriptor,
     .response = &searchfabric__v1__submit_planned_batch_response__descriptor,
     .stream = &coordinator_ops}};

static void send_event(struct world *w, Searchfabric__V1__SubmitPlannedBatchResponse *event,
                       unsigned i)
{
    event->submission_id = w->planned[i]->submission_id;
    event->coordinator_epoch = 1;
    assert_int_equal(sf_call_send(w->coordinator_call, &event->base), SF_OK);
    world_run(w);
}

void world_admit(struct world *w, unsigned i, bool duplicate, uint64_t commit_ts)
{
    Searchfabric__V1__SubmitPlannedBatchResponse event =
        SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__INIT;
    Searchfabric__V1__BatchAdmitted admitted = SEARCHFABRIC__V1__BATCH_ADMITTED__INIT;
    Searchfabric__V1__BatchSlice slice = SEARCHFABRIC__V1__BATCH_SLICE__INIT;
    Searchfabric__V1__BatchSlice *slices[] = {&slice};

    slice.last_entry_index = (uint32_t)w->planned[i]->planned_batch->batch->n_entries - 1;
    slice.first_source_seq = 1;
    slice.last_source_seq = slice.last_entry_index + 1;
    slice.commit_ts = commit_ts;
    slice.row_count = slice.last_entry_index + 1;
    admitted.n_slices = 1;
    admitted.slices = slices;
    admitted.duplicate = duplicate;
    event.event_case = SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_ADMITTED;
    event.admitted = &admitted;
    send_event(w, &event, i);
}

void world_gate(struct world *w, unsigned i, Searchfabric__V1__BatchGate gate)
{
    Searchfabric__V1__SubmitPlannedBatchResponse event =
        SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__INIT;
    Searchfabric__V1__BatchGateReached reached = SEARCHFABRIC__V1__BATCH_GATE_REACHED__INIT;
    Searchfabric__V1__EngineWatermarks watermarks = SEARCHFABRIC__V1__ENGINE_WATERMARKS__INIT;

    watermarks._applied_ts_metadata_search_case =
        SEARCHFABRIC__V1__ENGINE_WATERMARKS___APPLIED_TS_METADATA_SEARCH_APPLIED_TS_METADATA_SEARCH;
    watermarks.applied_ts_metadata_search = 500;
    reached.gate = gate;
    reached.safe_ts = 500;
    reached.watermarks = &watermarks;
    reached.committed_manifest_version =
        gate == SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_VISIBLE ? 3 : 0;
    event.event_case = SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_GATE_REACHED;
    event.gate_reached = &reached;
    send_event(w, &event, i);
}

void world_refuse(struct world *w, unsigned i, Searchfabric__V1__BatchRefusal refusal)
{
    Searchfabric__V1__SubmitPlannedBatchResponse event =
        SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__INIT;
    Searchfabric__V1__BatchRefused refused = SEARCHFABRIC__V1__BATCH_REFUSED__INIT;

    refused.refusal = refusal;
    event.event_case = SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_REFUSED;
    event.refused = &refused;
    send_event(w, &event, i);
}

/* ---- timestamps ------------------------------------------------------------------------------ */

static void on_tso(struct sf_task *task)
{
    struct sf_tso_request *request = SF_CONTAINER_OF(task, struct sf_tso_request, task);

    request->done(request);
}

static void tso_get(struct sf_tso_source *source, struct sf_tso_request *request)
{
    struct world *w = SF_CONTAINER_OF(source, struct world, tso);

    request->err = w->tso_err;
    request->first.v = w->tso_next;
    w->tso_next += request->count;
    request->task.run = on_tso;
    sf_loop_post(&w->loop.base, &request->task);
}

static void tso_destroy(struct sf_tso_source *source)
{
    (void)source;
}

static const struct sf_tso_source_vtable tso_vtable = {.get = tso_get, .destroy = tso_destroy};

/* ---- gateway --------------------------------------------------------------------------------- */

static enum sf_err check_write(void *self, const struct sf_identity *identity,
                               struct sf_collection_ref collection, struct sf_diag *diag)
{
    struct world *w = self;

    (void)identity, (void)collection;
    return w->forbid ? sf_diag_set(diag, SF_FORBIDDEN, "no grant") : SF_OK;
}

void world_init(struct world *w)
{
    memset(w, 0, sizeof(*w));
    manual_loop_init(&w->loop);
    w->keyring = sf_keyring_new_for_test(1);
    w->metrics = sf_metrics_new();
    w->arena = sf_arena_new(256u << 20);
    state_init(&w->facts);
    w->catalog = (struct sf_service){.full_name = "searchfabric.v1.CatalogControlPrivateService",
                                     .methods = catalog_methods,
                                     .method_count = 1,
                                     .self = w};
    w->coordinator = (struct sf_service){.full_name = "searchfabric.v1.CommitCoordinatorService",
                                         .methods = coordinator_methods,
                                         .method_count = 1,
                                         .self = w};
    const struct sf_service *service = &w->catalog;
    w->catalog_channel = sf_inproc_channel_new(&service, 1, "ingest", w->loop.base.clock);
    service = &w->coordinator;
    w->coordinator_channel = sf_inproc_channel_new(&service, 1, "ingest", w->loop.base.clock);
    w->tso.vtable = &tso_vtable;
    w->tso_next = sf_tso_from_ms(1000000).v;
    w->grants = (struct sf_ingest_grants){.check_write = check_write, .self = w};

    struct sf_loop *loop = &w->loop.base;
    const struct sf_ingest_deps deps = {.loops = &loop,
                                        .loop_count = 1,
                                        .clock = loop->clock,
                                        .catalog = w->catalog_channel,
                                        .coordinator = w->coordinator_channel,
                                        .tso = &w->tso,
                                        .keyring = w->keyring,
                                        .grants = &w->grants,
                                        .metrics = w->metrics};
    w->ingest = sf_ingest_new(&deps);
    service = sf_ingest_service(w->ingest);
    w->channel = sf_inproc_channel_new(&service, 1, "loopback", loop->clock);
}

void world_fini(struct world *w)
{
    if (!w->done && w->stream != NULL)
        sf_client_stream_cancel(w->stream);
    world_run(w);
    sf_channel_destroy(w->channel);
    sf_channel_destroy(w->coordinator_channel);
    world_run(w);
    sf_ingest_destroy(w->ingest);
    sf_channel_destroy(w->catalog_channel);
    sf_keyring_destroy(w->keyring);
    sf_metrics_destroy(w->metrics);
    sf_arena_destroy(w->arena);
    manual_loop_fini(&w->loop);
}

void world_run(struct world *w)
{
    manual_loop_run(&w->loop);
}

/* ---- client ---------------------------------------------------------------------------------- */

static void on_message(void *user, const ProtobufCMessage *message)
{
    struct world *w = user;
    const Searchfabric__V1__StreamMutationsResponse *response =
        (const Searchfabric__V1__StreamMutationsResponse *)(const void *)sf_pb_dup(message,
                                                                                   w->arena);

    if (response->response_case == SEARCHFABRIC__V1__STREAM_MUTATIONS_RESPONSE__RESPONSE_OPENED) {
        w->opened = response->opened;
        return;
    }
    assert_int_equal(response->response_case,
                     SEARCHFABRIC__V1__STREAM_MUTATIONS_RESPONSE__RESPONSE_ACK);
    assert_true(w->ack_count < WORLD_MAX);
    w->acks[w->ack_count++] = response->ack;
}

static void on_writable(void *user)
{
    (void)user;
}

static void on_done(void *user, const struct sf_diag *diag)
{
    struct world *w = user;

    w->done = true;
    w->end = *diag;
}

static const struct sf_client_stream_ops client_ops = {
    .message = on_message, .writable = on_writable, .done = on_done};

void world_stream(struct world *w, const char *identity)
{
    struct sf_identity who = {.name = identity};
    struct sf_call_options options = {0};

    if (identity != NULL) {
        sf_sha256_hex(sf_view_str(identity), who.hash_hex);
        options.identity = &who;
    }
    w->done = false;
    w->stream =
        sf_channel_stream(w->channel, "/searchfabric.v1.IngestGatewayService/StreamMutations",
                          &options, &w->loop.base, &client_ops, w);
}

void world_open(struct world *w, const char *identity, Searchfabric__V1__ClientKind kind)
{
    Searchfabric__V1__StreamMutationsRequest request =
        SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__INIT;
    Searchfabric__V1__StreamOpen open = SEARCHFABRIC__V1__STREAM_OPEN__INIT;
    Searchfabric__V1__RequestMeta meta = SEARCHFABRIC__V1__REQUEST_META__INIT;

    world_stream(w, identity);
    meta.client_id = "gw-1";
    meta.client_kind = kind;
    open.meta = &meta;
    request.request_case = SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__REQUEST_OPEN;
    request.open = &open;
    assert_int_equal(sf_client_stream_send(w->stream, &request.base), SF_OK);
    world_run(w);
}

enum sf_err world_queue(struct world *w, const Searchfabric__V1__MutationBatch *batch)
{
    Searchfabric__V1__StreamMutationsRequest request =
        SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__INIT;

    request.request_case = SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__REQUEST_BATCH;
    request.batch = (Searchfabric__V1__MutationBatch *)(uintptr_t)batch;
    return sf_client_stream_send(w->stream, &request.base);
}

void world_send(struct world *w, const Searchfabric__V1__MutationBatch *batch)
{
    assert_int_equal(world_queue(w, batch), SF_OK);
    world_run(w);
}

void world_receipt(struct world *w, const struct sf_receipt_facts *facts,
                   Searchfabric__V1__MutationBatch *batch)
{
    struct sf_buf bytes = {0};

    sf_receipt_sign(w->keyring, facts, &bytes);
    batch->allocator_receipt.data = sf_arena_dup(w->arena, bytes.data, bytes.len);
    batch->allocator_receipt.len = bytes.len;
    sf_buf_fini(&bytes);
}

const char *ack_detail(const Searchfabric__V1__MutationAck *ack, const char *key)
{
    for (size_t i = 0; ack->error != NULL && i < ack->error->n_diagnostics; i++)
        if (strcmp(ack->error->diagnostics[i]->key, key) == 0)
            return ack->error->diagnostics[i]->value;
    return "";
}
