#include "component/gateway/edge_world.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/pb.h"

/* ---- catalog --------------------------------------------------------------------------------- */

static void handle_namespace(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    Searchfabric__V1__GetNamespaceMetadataResponse response =
        SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_RESPONSE__INIT;
    Searchfabric__V1__NamespaceDescriptor descriptor = SEARCHFABRIC__V1__NAMESPACE_DESCRIPTOR__INIT;

    (void)self, (void)request;
    descriptor.namespace_id = 7;
    response.descriptor = &descriptor;
    sf_call_respond(call, &response.base);
}

static void handle_resolve(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct edge *e = self;
    const Searchfabric__V1__ResolveCollectionNameBindingRequest *request =
        (const Searchfabric__V1__ResolveCollectionNameBindingRequest *)(const void *)message;
    Searchfabric__V1__ResolveCollectionNameBindingResponse response =
        SEARCHFABRIC__V1__RESOLVE_COLLECTION_NAME_BINDING_RESPONSE__INIT;

    pthread_mutex_lock(&e->mu);
    e->resolves++;
    response.collection_name_binding_revision = e->binding_revision;
    if (strcmp(request->name_binding->collection_name, "books") == 0)
        response.collection = &e->facts.ref;
    sf_call_respond(call, &response.base);
    pthread_mutex_unlock(&e->mu);
}

static void handle_state(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct edge *e = self;
    const Searchfabric__V1__GetCollectionAdmissionStateRequest *request =
        (const Searchfabric__V1__GetCollectionAdmissionStateRequest *)(const void *)message;
    Searchfabric__V1__GetCollectionAdmissionStateResponse response =
        SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__INIT;
    Searchfabric__V1__AdmissionStateNotModified same =
        SEARCHFABRIC__V1__ADMISSION_STATE_NOT_MODIFIED__INIT;

    pthread_mutex_lock(&e->mu);
    e->reads++;
    if (e->catalog_err != SF_OK) {
        (void)sf_diag_set(sf_call_diag(call), e->catalog_err, "the catalog says no");
        sf_call_fail(call, sf_call_diag(call));
        pthread_mutex_unlock(&e->mu);
        return;
    }
    e->facts.state.collection_name_binding_revision = e->binding_revision;
    if (request->_known_collection_name_binding_revision_case != 0 &&
        request->known_collection_name_binding_revision == e->binding_revision &&
        strcmp(request->known_descriptor_etag, e->facts.state.descriptor_etag) == 0) {
        e->confirmed++;
        response.result_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_NOT_MODIFIED;
        response.not_modified = &same;
    } else {
        response.result_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_STATE;
        response.state = &e->facts.state;
    }
    sf_call_respond(call, &response.base);
    pthread_mutex_unlock(&e->mu);
}

/* ---- allocator ------------------------------------------------------------------------------- */

static void refuse_burned(struct sf_call *call, uint64_t doc_id)
{
    struct sf_diag *diag = sf_call_diag(call);

    (void)sf_diag_set(diag, SF_VERSION_CONFLICT, "burned");
    sf_diag_area(diag, "allocator");
    sf_diag_detail(diag, "doc_id", "%" PRIu64, doc_id);
    sf_diag_detail(diag, "allocator_conflict_reason", "below_watermark_burned_gap");
    sf_call_fail(call, diag);
}

/* Runs the plan on the watermark; false when an explicit id is burned. */
static bool run_plan(struct edge *e, const Searchfabric__V1__AllocationPlan *plan,
                     Searchfabric__V1__AllocateIdsSuccessResponse *response, uint64_t *out_burned)
{
    uint64_t next = e->next_doc_id;
    Searchfabric__V1__RealizedDocId *items =
        sf_arena_alloc(e->arena, plan->n_items * sizeof(*items));
    Searchfabric__V1__DocumentID *ids = sf_arena_alloc(e->arena, plan->n_items * sizeof(*ids));

    response->realized_doc_ids = sf_arena_alloc(e->arena, plan->n_items * sizeof(void *));
    for (size_t i = 0; i < plan->n_items; i++) {
        const Searchfabric__V1__AllocationPlanItem *item = plan->items[i];
        bool issue = item->item_case == SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE;
        uint64_t id = issue ? next : item->explicit_doc_id->u64;
        if (id < next) {
            *out_burned = id;
            return false;
        }
        next = id + 1;
        searchfabric__v1__document_id__init(&ids[i]);
        ids[i].id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
        ids[i].u64 = id;
        searchfabric__v1__realized_doc_id__init(&items[i]);
        items[i].doc_id = &ids[i];
        items[i].allocator_issued = issue;
        response->realized_doc_ids[response->n_realized_doc_ids++] = &items[i];
    }
    e->next_doc_id = next;
    return true;
}

static void respond_or_lose(struct edge *e, struct sf_call *call,
                            const Searchfabric__V1__AllocateIdsSuccessResponse *response)
{
    if (e->allocator_forgets) {
        (void)sf_diag_set(sf_call_diag(call), SF_BACKEND_UNAVAILABLE, "the answer is lost");
        sf_call_fail(call, sf_call_diag(call));
        return;
    }
    sf_call_respond(call, &response->base);
}

static void answer_allocate(struct edge *e, struct sf_call *call,
                            const Searchfabric__V1__AllocateIdsRequest *request)
{
    const char *key = request->meta->idempotency_key;
    uint64_t burned;

    for (unsigned i = 0; i < e->replay_count; i++) {
        if (strcmp(e->replays[i].key, key) != 0)
            continue;
        if (e->replays[i].items != request->plan->n_items) {
            (void)sf_diag_set(sf_call_diag(call), SF_IDEMPOTENCY_CONFLICT, "another payload");
            sf_call_fail(call, sf_call_diag(call));
            return;
        }
        respond_or_lose(e, call, e->replays[i].response);
        return;
    }
    Searchfabric__V1__AllocateIdsSuccessResponse *response =
        sf_arena_alloc(e->arena, sizeof(*response));
    searchfabric__v1__allocate_ids_success_response__init(response);
    if (!run_plan(e, request->plan, response, &burned)) {
        refuse_burned(call, burned);
        return;
    }
    response->schema_generation_token = "gen-1";
    response->allocator_receipt.data = (uint8_t *)sf_arena_printf(e->arena, "receipt of %s", key);
    response->allocator_receipt.len = strlen((const char *)response->allocator_receipt.data);
    struct replay *replay = &e->replays[e->replay_count++];
    (void)snprintf(replay->key, sizeof(replay->key), "%s", key);
    replay->items = request->plan->n_items;
    replay->response = response;
    respond_or_lose(e, call, response);
}

static void handle_allocate(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct edge *e = self;

    pthread_mutex_lock(&e->mu);
    assert_true(e->allocation_count < EDGE_CALLS);
    const Searchfabric__V1__AllocateIdsRequest *request =
        (const Searchfabric__V1__AllocateIdsRequest *)(const void *)sf_pb_dup(message, e->arena);
    e->allocations[e->allocation_count++] = request;
    if (e->allocator_err != SF_OK) {
        (void)sf_diag_set(sf_call_diag(call), e->allocator_err, "the allocator says no");
        sf_call_fail(call, sf_call_diag(call));
    } else {
        answer_allocate(e, call, request);
    }
    pthread_mutex_unlock(&e->mu);
}

/* ---- ingest ---------------------------------------------------------------------------------- */

static void ingest_open(void *self, struct sf_call *call)
{
    (void)self, (void)call;
}

static void send_ack(struct edge *e, struct sf_call *call,
                     const Searchfabric__V1__MutationBatch *batch)
{
    Searchfabric__V1__StreamMutationsResponse response =
        SEARCHFABRIC__V1__STREAM_MUTATIONS_RESPONSE__INIT;
    Searchfabric__V1__MutationAck ack = SEARCHFABRIC__V1__MUTATION_ACK__INIT;
    Searchfabric__V1__AckedRange range = SEARCHFABRIC__V1__ACKED_RANGE__INIT;
    Searchfabric__V1__AckedRange *ranges[] = {&range};
    Searchfabric__V1__ErrorStatus error = SEARCHFABRIC__V1__ERROR_STATUS__INIT;

    ack.batch_id = batch->batch_id;
    ack.stream_identity = batch->stream_identity;
    ack.collection = batch->collection;
    if (e->ingest_mode == INGEST_REFUSE) {
        error.code = "SF_RATE_LIMITED";
        error.message = "busy";
        ack.error = &error;
    } else {
        ack.gate = SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_DURABLE;
        ack.row_count = (uint32_t)batch->n_entries;
        range.last_entry_index = (uint32_t)batch->n_entries - 1;
        range.commit_ts = UINT64_C(1000) << 18;
        ack.n_ranges = 1;
        ack.ranges = ranges;
    }
    response.response_case = SEARCHFABRIC__V1__STREAM_MUTATIONS_RESPONSE__RESPONSE_ACK;
    response.ack = &ack;
    assert_int_equal(sf_call_send(call, &response.base), SF_OK);
}

static void ingest_message(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct edge *e = self;
    const Searchfabric__V1__StreamMutationsRequest *request =
        (const Searchfabric__V1__StreamMutationsRequest *)(const void *)message;
    struct sf_diag diag;

    if (request->request_case != SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__REQUEST_BATCH)
        return;
    pthread_mutex_lock(&e->mu);
    assert_true(e->batch_count < EDGE_CALLS);
    const Searchfabric__V1__MutationBatch *batch =
        (const Searchfabric__V1__MutationBatch *)(const void *)sf_pb_dup(&request->batch->base,
                                                                         e->arena);
    e->batches[e->batch_count++] = batch;
    enum ingest_mode mode = e->ingest_mode;
    pthread_mutex_unlock(&e->mu);
    if (mode == INGEST_BREAK) {
        sf_diag_init(&diag);
        (void)sf_diag_set(&diag, SF_BACKEND_UNAVAILABLE, "gone");
        sf_call_fail(call, &diag);
    } else if (mode != INGEST_SILENT) {
        send_ack(e, call, batch);
    }
}

static void ingest_half_close(void *self, struct sf_call *call)
{
    (void)self, (void)call;
}

static const struct sf_stream_ops ingest_ops = {.open = ingest_open,
                                                .message = ingest_message,
                                                .half_close = ingest_half_close,
                                                .closed = ingest_half_close};

/* ---- wiring ---------------------------------------------------------------------------------- */

#define MESSAGES(name)                                                                             \
    .request = &searchfabric__v1__##name##_request__descriptor,                                    \
    .response = &searchfabric__v1__##name##_response__descriptor

static const struct sf_method catalog_methods[] = {
    {.name = "GetNamespaceMetadata", MESSAGES(get_namespace_metadata), .unary = handle_namespace}};

static const struct sf_method private_methods[] = {{.name = "ResolveCollectionNameBinding",
                                                    MESSAGES(resolve_collection_name_binding),
                                                    .unary = handle_resolve},
                                                   {.name = "GetCollectionAdmissionState",
                                                    MESSAGES(get_collection_admission_state),
                                                    .unary = handle_state}};

static const struct sf_method allocator_methods[] = {
    {.name = "AllocateIds",
     .request = &searchfabric__v1__allocate_ids_request__descriptor,
     .response = &searchfabric__v1__allocate_ids_success_response__descriptor,
     .unary = handle_allocate}};

static const struct sf_method ingest_methods[] = {
    {.name = "StreamMutations", MESSAGES(stream_mutations), .stream = &ingest_ops}};

void edge_start(struct edge *e, int64_t write_timeout_ms)
{
    struct sf_diag diag;

    memset(e, 0, sizeof(*e));
    sf_diag_init(&diag);
    assert_int_equal(pthread_mutex_init(&e->mu, NULL), 0);
    e->arena = sf_arena_new(64u << 20);
    e->metrics = sf_metrics_new();
    e->binding_revision = 1;
    state_init(&e->facts);
    state_field(&e->facts, "v", F(DENSE_VECTOR), 2);
    e->services[0] = (struct sf_service){"searchfabric.v1.CatalogControlService", catalog_methods,
                                         SF_ARRAY_LEN(catalog_methods), e};
    e->services[1] = (struct sf_service){"searchfabric.v1.CatalogControlPrivateService",
                                         private_methods, SF_ARRAY_LEN(private_methods), e};
    e->services[2] = (struct sf_service){"searchfabric.v1.IdAllocatorService", allocator_methods,
                                         SF_ARRAY_LEN(allocator_methods), e};
    e->services[3] = (struct sf_service){"searchfabric.v1.IngestGatewayService", ingest_methods,
                                         SF_ARRAY_LEN(ingest_methods), e};
    for (int i = 0; i < 4; i++) {
        const struct sf_service *service = &e->services[i];
        e->channels[i] = sf_inproc_channel_new(&service, 1, "loopback", sf_clock_system());
    }
    assert_int_equal(sf_reactors_start(1, sf_clock_system(), &diag, &e->reactors), SF_OK);
    const struct sf_es_options options = {.namespace_name = "demo",
                                          .write_timeout_ms = write_timeout_ms,
                                          .channels = {.catalog = e->channels[0],
                                                       .catalog_private = e->channels[1],
                                                       .allocator = e->channels[2],
                                                       .ingest = e->channels[3]},
                                          .loop = sf_reactors_loop(e->reactors, 0),
                                          .clock = sf_clock_system(),
                                          .seed = 42,
                                          .metrics = e->metrics};
    assert_int_equal(sf_es_start(&options, &diag, &e->es), SF_OK);
}

void edge_stop(struct edge *e)
{
    sf_es_stop(e->es, 1000);
    for (int i = 0; i < 4; i++)
        sf_channel_destroy(e->channels[i]);
    sf_reactors_stop(e->reactors);
    sf_metrics_destroy(e->metrics);
    sf_arena_destroy(e->arena);
    (void)pthread_mutex_destroy(&e->mu);
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

static int dial(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void write_all(int fd, struct sf_view bytes)
{
    while (bytes.len > 0) {
        ssize_t n = send(fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
        assert_true(n > 0);
        bytes.ptr += n;
        bytes.len -= (size_t)n;
    }
}

void edge_request(struct edge *e, const char *method, const char *path, const char *key,
                  const char *body, size_t len, struct answer *out)
{
    struct sf_buf bytes = {0};
    uint8_t chunk[4096];
    ssize_t n;
    int fd = dial(sf_es_port(e->es));

    sf_buf_printf(&bytes,
                  "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n",
                  method, path, len);
    if (len > 0)
        sf_buf_append_str(&bytes, "Content-Type: application/json\r\n");
    if (key != NULL)
        sf_buf_printf(&bytes, "Idempotency-Key: %s\r\n", key);
    sf_buf_append_str(&bytes, "\r\n");
    sf_buf_append(&bytes, body, len);
    write_all(fd, sf_buf_view(&bytes));
    sf_buf_clear(&bytes);
    while ((n = recv(fd, chunk, sizeof(chunk), 0)) > 0)
        sf_buf_append(&bytes, chunk, (size_t)n);
    (void)close(fd);
    sf_buf_append(&bytes, "", 1);
    char *end = strstr((char *)bytes.data, "\r\n\r\n");
    assert_non_null(end);
    *end = '\0';
    (void)snprintf(out->head, sizeof(out->head), "%s", (const char *)bytes.data);
    out->status = atoi(out->head + strlen("HTTP/1.1 "));
    out->body = strdup(end + 4);
    sf_buf_fini(&bytes);
}

void edge_send(struct edge *e, struct answer *answer, const char *method, const char *path,
               const char *key, const char *body)
{
    free(answer->body);
    edge_request(e, method, path, key, body, strlen(body), answer);
}
