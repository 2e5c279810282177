/*
 * Model: StreamMutations. Handlers run on whatever thread delivers the call; they copy the message,
 * count it against the stream's budget (pausing the peer above it) and post it to the loop that the
 * call is tied to. There the batches take their way, and each is answered once, in any order.
 *
 * Back pressure: a stream's batches count from their arrival until their acknowledgement was taken
 * by the peer. Above the limit the peer is paused, at half of it it goes on. A peer that does not
 * read its acknowledgements therefore stops being read.
 */
#include "gateway/ingest_priv.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pb.h"
#include "base/text.h"
#include "contract/error_status.h"

/* Holds the largest ErrorStatus: twelve details, twice, and a message. */
#define ERROR_ARENA_BYTES (1u << 16)

/* A batch copied, unpacked and planned: its bytes, the structures of its entries, its plan. */
#define BATCH_ARENA_BYTES SF_LIMIT_RPC_ARENA_BYTES

void ingest_queue_push(struct ingest_queue *queue, struct ingest_batch *batch)
{
    batch->next = NULL;
    if (queue->tail == NULL)
        queue->head = batch;
    else
        queue->tail->next = batch;
    queue->tail = batch;
}

struct ingest_batch *ingest_queue_pop(struct ingest_queue *queue)
{
    struct ingest_batch *batch = queue->head;

    if (batch == NULL)
        return NULL;
    queue->head = batch->next;
    if (queue->head == NULL)
        queue->tail = NULL;
    batch->next = NULL;
    return batch;
}

/* ---- calls ----------------------------------------------------------------------------------- */

void ingest_call_release(struct ingest_call *call)
{
    if (atomic_fetch_sub(&call->refs, 1) != 1)
        return;
    SF_ASSERT(call->unsent.head == NULL);
    sf_call_release(call->call);
    sf_arena_destroy(call->arena);
    free(call);
}

static bool over_budget(const struct ingest_call *call)
{
    return atomic_load(&call->inflight_bytes) > SF_LIMIT_INGEST_INFLIGHT_BYTES ||
           atomic_load(&call->inflight_batches) >= SF_LIMIT_INGEST_INFLIGHT_BATCHES;
}

static bool under_half_budget(const struct ingest_call *call)
{
    return atomic_load(&call->inflight_bytes) <= SF_LIMIT_INGEST_INFLIGHT_BYTES / 2 &&
           atomic_load(&call->inflight_batches) <= SF_LIMIT_INGEST_INFLIGHT_BATCHES / 2;
}

static void budget_resume(struct ingest_call *call)
{
    if (under_half_budget(call) && atomic_exchange(&call->paused, false))
        sf_call_resume(call->call);
}

/* Counts a batch in; on the deliverer's thread. */
static void budget_take(struct ingest_call *call, size_t bytes)
{
    struct sf_ingest *ingest = call->link->ingest;

    atomic_fetch_add(&call->inflight_bytes, bytes);
    atomic_fetch_add(&call->inflight_batches, 1);
    atomic_fetch_add(&ingest->active, 1);
    if (ingest->inflight != NULL)
        sf_metric_add(ingest->inflight, 1);
    if (over_budget(call) && !atomic_exchange(&call->paused, true)) {
        sf_call_pause(call->call);
        budget_resume(call); /* what finished in between has not seen the pause */
    }
}

/* Ends the stop's wait for open batches, if it still waits. */
static void drain_wake(struct sf_ingest *ingest)
{
    pthread_mutex_lock(&ingest->mu);
    struct sf_waiter *waiter = ingest->drain_waiter;
    ingest->drain_waiter = NULL;
    pthread_mutex_unlock(&ingest->mu);
    if (waiter != NULL)
        sf_waiter_wake(waiter);
}

static void budget_give(struct ingest_call *call, size_t bytes)
{
    struct sf_ingest *ingest = call->link->ingest;

    atomic_fetch_sub(&call->inflight_bytes, bytes);
    atomic_fetch_sub(&call->inflight_batches, 1);
    if (ingest->inflight != NULL)
        sf_metric_add(ingest->inflight, -1);
    budget_resume(call);
    if (atomic_fetch_sub(&ingest->active, 1) == 1 && atomic_load(&ingest->draining))
        drain_wake(ingest);
}

static void batch_destroy(struct ingest_batch *batch)
{
    struct ingest_call *call = batch->call;

    budget_give(call, batch->bytes);
    sf_arena_destroy(batch->error_arena);
    sf_arena_destroy(batch->arena);
    free(batch);
    ingest_call_release(call);
}

static void call_fail(struct ingest_call *call, const struct sf_diag *diag)
{
    if (call->ended)
        return;
    call->ended = true;
    sf_call_fail(call->call, diag);
}

static void say_draining(struct sf_diag *diag)
{
    sf_diag_init(diag);
    (void)sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "the ingest gateway is shutting down");
    sf_diag_detail(diag, "failing_authority", "ingest");
}

/* A client that has every answer is done when it has said everything, or when this process ends. */
static void call_finish_if_done(struct ingest_call *call)
{
    if (call->ended || atomic_load(&call->inflight_batches) != 0)
        return;
    if (call->half_closed) {
        call->ended = true;
        sf_call_finish(call->call);
    } else if (atomic_load(&call->link->ingest->draining)) {
        struct sf_diag diag;
        say_draining(&diag);
        call_fail(call, &diag);
    }
}

static enum sf_err ack_send(struct ingest_batch *batch)
{
    struct ingest_call *call = batch->call;
    Searchfabric__V1__StreamMutationsResponse response =
        SEARCHFABRIC__V1__STREAM_MUTATIONS_RESPONSE__INIT;

    response.response_case = SEARCHFABRIC__V1__STREAM_MUTATIONS_RESPONSE__RESPONSE_ACK;
    response.ack = &batch->ack;
    response.inflight_batches = atomic_load(&call->inflight_batches) - 1;
    response.inflight_bytes = atomic_load(&call->inflight_bytes) - batch->bytes;
    return sf_call_send(call->call, &response.base);
}

/* Sends what waits, in order, as far as the peer has room. */
static void acks_flush(struct ingest_call *call)
{
    atomic_fetch_add(&call->refs, 1); /* the last batch may hold the last reference */
    while (call->unsent.head != NULL) {
        if (!call->ended && !call->gone && ack_send(call->unsent.head) == SF_ERR_FULL)
            break;
        batch_destroy(ingest_queue_pop(&call->unsent));
    }
    call_finish_if_done(call);
    ingest_call_release(call);
}

static void count_answer(const struct ingest_batch *batch, enum sf_err err)
{
    struct sf_ingest *ingest = batch->call->link->ingest;
    const ProtobufCEnumValue *kind = protobuf_c_enum_descriptor_get_value(
        &searchfabric__v1__client_kind__descriptor, (int)batch->call->meta.client_kind);
    const char *result = err != SF_OK           ? sf_err_info(sf_err_public(err))->code
                         : batch->ack.duplicate ? "duplicate"
                                                : "ok";

    if (ingest->batches_total == NULL)
        return;
    const char *const values[] = {kind == NULL ? "" : kind->name, result, NULL};
    sf_metric_add(sf_metric_series(ingest->batches_total, values), 1);
    if (err != SF_OK)
        return;
    const ProtobufCEnumValue *gate = protobuf_c_enum_descriptor_get_value(
        &searchfabric__v1__ack_gate__descriptor, (int)batch->gate);
    const char *const gates[] = {gate == NULL ? "" : gate->name, NULL};
    int64_t ns = sf_clock_mono_ns(ingest->deps.clock) - batch->start_ns;
    sf_metric_observe_ms(sf_metric_series(ingest->latency_ms, gates), (double)ns / 1e6);
    sf_metric_add(ingest->rows_total, batch->ack.row_count);
}

void ingest_batch_answer(struct ingest_batch *batch, const struct sf_diag *diag)
{
    struct ingest_call *call = batch->call;
    Searchfabric__V1__MutationAck *ack = &batch->ack;
    enum sf_err err = diag == NULL ? SF_OK : diag->err;

    ack->batch_id = batch->batch->batch_id;
    ack->stream_identity = batch->batch->stream_identity;
    ack->collection = batch->batch->collection;
    if (err != SF_OK) {
        ack->gate = SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_UNSPECIFIED;
        ack->n_ranges = 0;
        ack->watermarks = NULL;
        /* The batch's arena may be what is full: the error has one of its own. */
        batch->error_arena = sf_arena_new(ERROR_ARENA_BYTES);
        ack->error = sf_error_status_build(diag, batch->error_arena);
        SF_ASSERT(ack->error != NULL);
    } else {
        for (size_t i = 0; i < batch->batch->n_entries; i++)
            ack->row_count +=
                batch->batch->entries[i]->entry_case == SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW;
    }
    count_answer(batch, err);
    ingest_queue_push(&call->unsent, batch);
    acks_flush(call);
}

/* ---- arrival on the loop --------------------------------------------------------------------- */

static void refuse_call(struct ingest_call *call, enum sf_err code, const char *field,
                        const char *violation, const char *message)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, code, "%s", message);
    sf_diag_detail(&diag, "field", "%s", field);
    sf_diag_detail(&diag, "violation", "%s", violation);
    call_fail(call, &diag);
}

/* Checks and keeps who opens the stream. */
static enum sf_err open_check(struct ingest_call *call, const Searchfabric__V1__StreamOpen *open,
                              struct sf_diag *diag)
{
    const Searchfabric__V1__RequestMeta *meta = open->meta;
    bool has_correlation;

    if (meta == NULL)
        return sf_diag_bad_field(diag, "open.meta", "required", "the stream's client is not named");
    has_correlation = meta->_correlation_id_case ==
                      SEARCHFABRIC__V1__REQUEST_META___CORRELATION_ID_CORRELATION_ID;
    enum sf_err err = sf_identity_check("open.meta.client_id", sf_view_str(meta->client_id), 1,
                                        SF_LIMIT_CLIENT_ID_SCALARS, diag);
    if (err == SF_OK && has_correlation)
        err = sf_identity_check("open.meta.correlation_id", sf_view_str(meta->correlation_id), 1,
                                SF_LIMIT_CORRELATION_ID_SCALARS, diag);
    if (err == SF_OK && meta->_principal_subject_case != 0)
        err = sf_identity_check("open.meta.principal_subject", sf_view_str(meta->principal_subject),
                                1, SF_LIMIT_PRINCIPAL_SUBJECT_SCALARS, diag);
    if (err != SF_OK)
        return err;
    if (meta->client_kind == SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_UNSPECIFIED ||
        protobuf_c_enum_descriptor_get_value(&searchfabric__v1__client_kind__descriptor,
                                             (int)meta->client_kind) == NULL) {
        (void)sf_diag_bad_field(diag, "open.meta.client_kind", "unknown_value",
                                "the client's kind is unset or unknown");
        diag->err = SF_INVALID_ARGUMENT; /* malformed, not merely illegal */
        return diag->err;
    }
    call->arena = sf_arena_new(4096);
    searchfabric__v1__request_meta__init(&call->meta);
    call->meta.client_id = sf_arena_str(call->arena, sf_view_str(meta->client_id));
    call->meta.client_kind = meta->client_kind;
    if (has_correlation) {
        call->meta._correlation_id_case = meta->_correlation_id_case;
        call->meta.correlation_id = sf_arena_str(call->arena, sf_view_str(meta->correlation_id));
    }
    return SF_OK;
}

static void accept_open(struct ingest_call *call, const Searchfabric__V1__StreamOpen *open)
{
    Searchfabric__V1__StreamOpened opened = SEARCHFABRIC__V1__STREAM_OPENED__INIT;
    Searchfabric__V1__StreamMutationsResponse response =
        SEARCHFABRIC__V1__STREAM_MUTATIONS_RESPONSE__INIT;
    struct sf_diag diag;

    sf_diag_init(&diag);
    if (open_check(call, open, &diag) != SF_OK) {
        call_fail(call, &diag);
        return;
    }
    call->opened = true;
    opened.max_inflight_batches = SF_LIMIT_INGEST_INFLIGHT_BATCHES;
    opened.max_inflight_bytes = SF_LIMIT_INGEST_INFLIGHT_BYTES;
    opened.max_batch_entries = SF_LIMIT_BATCH_ENTRIES;
    opened.max_batch_bytes = SF_LIMIT_BATCH_BYTES;
    opened.max_row_body_bytes = SF_LIMIT_DOCUMENT_BYTES;
    opened.duplicate_window_ms = call->link->ingest->deps.duplicate_window_ms;
    response.response_case = SEARCHFABRIC__V1__STREAM_MUTATIONS_RESPONSE__RESPONSE_OPENED;
    response.opened = &opened;
    /* The first message of a fresh stream always has room; a peer that is gone needs none. */
    enum sf_err err = sf_call_send(call->call, &response.base);
    SF_ASSERT(err != SF_ERR_FULL);
}

static void on_arrival(struct sf_task *task)
{
    struct ingest_batch *batch = SF_CONTAINER_OF(task, struct ingest_batch, task);
    struct ingest_call *call = batch->call;
    const Searchfabric__V1__StreamMutationsRequest *request = batch->request;

    if (call->ended || call->gone) {
        batch_destroy(batch);
        return;
    }
    if (request->request_case == SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__REQUEST_BATCH &&
        call->opened) {
        batch->batch = request->batch;
        if (!atomic_load(&call->link->ingest->draining)) {
            ingest_batch_accept(batch);
            return;
        }
        struct sf_diag diag;
        say_draining(&diag);
        searchfabric__v1__mutation_ack__init(&batch->ack);
        ingest_batch_answer(batch, &diag);
        return;
    }
    if (request->request_case == SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__REQUEST_OPEN &&
        !call->opened)
        accept_open(call, request->open);
    else
        refuse_call(call, SF_INVALID_ARGUMENT, "request", "malformed",
                    "a stream begins with one open; batches follow");
    batch_destroy(batch);
}

/* ---- handlers, on the deliverer's thread ----------------------------------------------------- */

/* Something that happened to the call, on its way to the loop. */
struct call_event {
    struct sf_task task;
    struct ingest_call *call; /* one reference */
    bool closed;              /* else half closed */
};

static void call_list(struct ingest_call *call)
{
    struct ingest_link *link = call->link;

    call->listed = true;
    call->next = link->calls;
    if (link->calls != NULL)
        link->calls->prev = call;
    link->calls = call;
}

static void call_unlist(struct ingest_call *call)
{
    if (!call->listed)
        return;
    call->listed = false;
    if (call->prev != NULL)
        call->prev->next = call->next;
    else
        call->link->calls = call->next;
    if (call->next != NULL)
        call->next->prev = call->prev;
}

static void on_call_open(struct sf_task *task)
{
    struct call_event *event = SF_CONTAINER_OF(task, struct call_event, task);
    struct ingest_call *call = event->call;

    free(event);
    call_list(call);
    call_finish_if_done(call); /* while the gateway drains */
    ingest_call_release(call);
}

static void on_call_event(struct sf_task *task)
{
    struct call_event *event = SF_CONTAINER_OF(task, struct call_event, task);
    struct ingest_call *call = event->call;

    if (event->closed) {
        call->gone = true;
        call_unlist(call);
    } else {
        call->half_closed = true;
    }
    free(event);
    acks_flush(call);
    ingest_call_release(call);
}

static void on_room(struct sf_task *task)
{
    struct call_event *event = SF_CONTAINER_OF(task, struct call_event, task);
    struct ingest_call *call = event->call;

    free(event);
    acks_flush(call);
    ingest_call_release(call);
}

static void post_event(struct ingest_call *call, sf_task_fn run, bool closed)
{
    struct call_event *event = sf_calloc(1, sizeof(*event));

    event->task.run = run;
    event->call = call;
    event->closed = closed;
    atomic_fetch_add(&call->refs, 1);
    sf_loop_post(call->link->loop, &event->task);
}

static void handle_open(void *self, struct sf_call *rpc)
{
    struct sf_ingest *ingest = self;
    struct ingest_call *call = sf_calloc(1, sizeof(*call));
    unsigned turn = atomic_fetch_add(&ingest->next_link, 1);

    call->link = &ingest->links[turn % ingest->link_count];
    call->call = rpc;
    memcpy(call->identity_hash, sf_call_identity(rpc)->hash_hex, sizeof(call->identity_hash));
    atomic_init(&call->refs, 1);
    sf_call_acquire(rpc);
    sf_call_set_state(rpc, call);
    post_event(call, on_call_open, false);
}

static void handle_message(void *self, struct sf_call *rpc, const ProtobufCMessage *message)
{
    struct ingest_call *call = sf_call_state(rpc);
    struct sf_ingest *ingest = self;
    struct ingest_batch *batch = sf_calloc(1, sizeof(*batch));

    batch->task.run = on_arrival;
    batch->call = call;
    batch->start_ns = sf_clock_mono_ns(ingest->deps.clock);
    batch->bytes = protobuf_c_message_get_packed_size(message);
    batch->arena = sf_arena_new(BATCH_ARENA_BYTES);
    atomic_fetch_add(&call->refs, 1);
    budget_take(call, batch->bytes);
    batch->request =
        (Searchfabric__V1__StreamMutationsRequest *)(void *)sf_pb_dup(message, batch->arena);
    if (batch->request == NULL) {
        /* More structure than the limits of a batch allow: read as a request that is none. */
        sf_arena_reset(batch->arena);
        batch->request = sf_arena_alloc(batch->arena, sizeof(*batch->request));
        SF_ASSERT(batch->request != NULL);
        searchfabric__v1__stream_mutations_request__init(batch->request);
    }
    sf_loop_post(call->link->loop, &batch->task);
}

static void handle_half_close(void *self, struct sf_call *rpc)
{
    (void)self;
    post_event(sf_call_state(rpc), on_call_event, false);
}

static void handle_writable(void *self, struct sf_call *rpc)
{
    (void)self;
    post_event(sf_call_state(rpc), on_room, false);
}

static void handle_closed(void *self, struct sf_call *rpc)
{
    struct ingest_call *call = sf_call_state(rpc);

    (void)self;
    post_event(call, on_call_event, true);
    ingest_call_release(call); /* the stream's share */
}

static const struct sf_stream_ops stream_ops = {
    .open = handle_open,
    .message = handle_message,
    .half_close = handle_half_close,
    .closed = handle_closed,
    .writable = handle_writable,
};

/* ---- the gateway ----------------------------------------------------------------------------- */

static void metrics_init(struct sf_ingest *ingest, struct sf_metrics *metrics)
{
    static const char *const batch_labels[] = {"client_kind", "result", NULL};
    static const char *const gate_labels[] = {"gate", NULL};

    ingest->batches_total =
        sf_metrics_family(metrics, SF_METRIC_COUNTER, "searchfabric_ingest_batches_total",
                          "Answered mutation batches", batch_labels);
    ingest->latency_ms =
        sf_metrics_family(metrics, SF_METRIC_HISTOGRAM, "searchfabric_ingest_latency_ms",
                          "From arrival of a batch to its acknowledgement", gate_labels);
    ingest->rows_total = sf_metric_series(sf_metrics_family(metrics, SF_METRIC_COUNTER,
                                                            "searchfabric_ingest_rows_total",
                                                            "Acknowledged rows", NULL),
                                          NULL);
    ingest->inflight = sf_metric_series(
        sf_metrics_family(metrics, SF_METRIC_GAUGE, "searchfabric_ingest_inflight_batches",
                          "Batches that are not answered yet", NULL),
        NULL);
}

struct sf_ingest *sf_ingest_new(const struct sf_ingest_deps *deps)
{
    struct sf_ingest *ingest = sf_calloc(1, sizeof(*ingest));

    SF_ASSERT(deps->loop_count >= 1);
    ingest->deps = *deps;
    if (ingest->deps.duplicate_window_ms == 0)
        ingest->deps.duplicate_window_ms = 15u * 60 * 1000;
    ingest->links = sf_calloc(deps->loop_count, sizeof(*ingest->links));
    ingest->link_count = deps->loop_count;
    for (size_t i = 0; i < deps->loop_count; i++) {
        struct ingest_link *link = &ingest->links[i];
        link->ingest = ingest;
        link->loop = deps->loops[i];
        link->tso = sf_tso_batcher_new(deps->tso, link->loop);
        if (deps->metrics != NULL)
            sf_tso_batcher_meter(link->tso, deps->metrics, deps->clock);
        link->inflight = sf_map_new();
        link->collections = sf_map_new();
    }
    ingest->methods[0] = (struct sf_method){
        .name = "StreamMutations",
        .request = &searchfabric__v1__stream_mutations_request__descriptor,
        .response = &searchfabric__v1__stream_mutations_response__descriptor,
        .stream = &stream_ops,
    };
    ingest->service = (struct sf_service){.full_name = "searchfabric.v1.IngestGatewayService",
                                          .methods = ingest->methods,
                                          .method_count = 1,
                                          .self = ingest};
    if (deps->metrics != NULL)
        metrics_init(ingest, deps->metrics);
    SF_ASSERT(pthread_mutex_init(&ingest->mu, NULL) == 0);
    return ingest;
}

const struct sf_service *sf_ingest_service(struct sf_ingest *ingest)
{
    return &ingest->service;
}

/* ---- the end -------------------------------------------------------------------------------- */

static void on_drain(struct sf_task *task)
{
    struct ingest_link *link = SF_CONTAINER_OF(task, struct ingest_link, drain_task);

    for (struct ingest_call *call = link->calls, *next; call != NULL; call = next) {
        next = call->next;
        call_finish_if_done(call);
    }
}

void sf_ingest_drain(struct sf_ingest *ingest)
{
    if (atomic_exchange(&ingest->draining, true))
        return;
    for (size_t i = 0; i < ingest->link_count; i++) {
        ingest->links[i].drain_task.run = on_drain;
        sf_loop_post(ingest->links[i].loop, &ingest->links[i].drain_task);
    }
}

static void on_limit(struct sf_timer *timer)
{
    drain_wake(SF_CONTAINER_OF(timer, struct sf_ingest, limit));
}

static void on_limit_start(struct sf_task *task)
{
    struct sf_ingest *ingest = SF_CONTAINER_OF(task, struct sf_ingest, limit_task);

    sf_timer_start(&ingest->limit, ingest->limit_ms);
}

static void on_close(struct sf_task *task)
{
    struct ingest_link *link = SF_CONTAINER_OF(task, struct ingest_link, close_task);

    if (link == &link->ingest->links[0])
        sf_timer_stop(&link->ingest->limit);
    ingest_link_close(link);
}

/* What was posted to the loop before has run. */
static void on_turn(struct sf_task *task)
{
    ingest_link_closed(SF_CONTAINER_OF(task, struct ingest_link, close_task));
}

void ingest_link_closed(struct ingest_link *link)
{
    struct sf_ingest *ingest = link->ingest;

    pthread_mutex_lock(&ingest->mu);
    struct sf_waiter *waiter =
        ++ingest->links_closed == ingest->link_count ? ingest->close_waiter : NULL;
    pthread_mutex_unlock(&ingest->mu);
    if (waiter != NULL)
        sf_waiter_wake(waiter);
}

/* Waits until no batch is open, or for the limit if its timer runs. */
static void idle_wait(struct sf_ingest *ingest, struct sf_sched *sched, bool limited)
{
    struct sf_waiter waiter;

    sf_waiter_init(&waiter, sched);
    pthread_mutex_lock(&ingest->mu);
    bool busy = atomic_load(&ingest->active) != 0;
    if (busy)
        ingest->drain_waiter = &waiter;
    pthread_mutex_unlock(&ingest->mu);
    if (busy && limited)
        sf_loop_post(ingest->links[0].loop, &ingest->limit_task);
    if (busy)
        sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
}

/* Runs `run` on every link and waits until each has said ingest_link_closed. */
static void links_run(struct sf_ingest *ingest, struct sf_sched *sched, sf_task_fn run)
{
    struct sf_waiter waiter;

    sf_waiter_init(&waiter, sched);
    pthread_mutex_lock(&ingest->mu);
    ingest->links_closed = 0;
    ingest->close_waiter = &waiter;
    pthread_mutex_unlock(&ingest->mu);
    for (size_t i = 0; i < ingest->link_count; i++) {
        ingest->links[i].close_task.run = run;
        sf_loop_post(ingest->links[i].loop, &ingest->links[i].close_task);
    }
    sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
}

void sf_ingest_stop(struct sf_ingest *ingest, struct sf_sched *sched, int64_t limit_ms)
{
    ingest->limit_ms = limit_ms;
    ingest->limit_task.run = on_limit_start;
    sf_timer_init(&ingest->limit, ingest->links[0].loop, on_limit);
    sf_ingest_drain(ingest);
    idle_wait(ingest, sched, true);
    if (atomic_load(&ingest->active) != 0)
        SF_LOG(WARN, "ingest_drain_incomplete", SF_KV_U64("batches", atomic_load(&ingest->active)));
    links_run(ingest, sched, on_close);
    /* What was being admitted ends by itself: reads and timestamps have their own limits. */
    idle_wait(ingest, sched, false);
    links_run(ingest, sched, on_turn);
}

void sf_ingest_destroy(struct sf_ingest *ingest)
{
    if (ingest == NULL)
        return;
    for (size_t i = 0; i < ingest->link_count; i++) {
        struct ingest_link *link = &ingest->links[i];
        sf_tso_source_destroy(link->tso);
        sf_map_destroy(link->inflight, NULL);
        sf_map_destroy(link->collections, ingest_collection_destroy);
    }
    (void)pthread_mutex_destroy(&ingest->mu);
    free(ingest->links);
    free(ingest);
}
