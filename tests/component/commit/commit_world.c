#include "component/commit/commit_world.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pb.h"
#include "contract/descriptor_set.h"
#include "object/memory_store.h"
#include "publish/keys.h"

#define NAMESPACE 7
#define SUBMIT    "/searchfabric.v1.CommitCoordinatorService/SubmitPlannedBatch"

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* ---- gate store --------------------------------------------------------------------------------
 */

struct gated {
    struct gated *next;
    struct sf_batch *batch;
};

struct counted {
    struct counted *next;
    bool put;
    char key[256];
};

struct gate_store {
    struct sf_store base;
    struct sf_store *backend;
    pthread_mutex_t mu;
    char hold[64];
    char fail[64];
    char fail_get[64];
    enum sf_err fail_err;
    struct gated *held;
    struct gated *held_last;
    unsigned held_count;
    struct counted *seen;
    unsigned requests;
};

static bool contains(struct sf_view key, const char *text)
{
    return text[0] != '\0' && memmem(key.ptr, key.len, text, strlen(text)) != NULL;
}

static void note_locked(struct gate_store *gate, struct sf_view key, bool put)
{
    struct counted *c = sf_calloc(1, sizeof(*c));
    c->put = put;
    memcpy(c->key, key.ptr, key.len < sizeof(c->key) ? key.len : sizeof(c->key) - 1);
    c->next = gate->seen;
    gate->seen = c;
    gate->requests++;
}

static void fail_done(struct sf_task *task)
{
    struct sf_batch *batch = SF_CONTAINER_OF(task, struct sf_batch, task);
    batch->done(batch);
}

static void answer_failed(struct sf_batch *batch);

/* True when the batch was answered here. */
static bool refuse_locked(struct gate_store *gate, struct sf_batch *batch)
{
    bool hit = false;
    for (size_t i = 0; i < batch->count; i++)
        hit = hit || contains(batch->puts[i].key, gate->fail);
    if (!hit)
        return false;
    for (size_t i = 0; i < batch->count; i++)
        batch->puts[i].err =
            contains(batch->puts[i].key, gate->fail) ? gate->fail_err : SF_ERR_CANCELLED_STAGE;
    return true;
}

static void gate_submit(struct sf_store *store, struct sf_batch *batch)
{
    struct gate_store *gate = SF_CONTAINER_OF(store, struct gate_store, base);
    pthread_mutex_lock(&gate->mu);
    bool hold = false;
    for (size_t i = 0; i < batch->count; i++) {
        note_locked(gate, batch->puts[i].key, true);
        hold = hold || contains(batch->puts[i].key, gate->hold);
    }
    bool refused = refuse_locked(gate, batch);
    if (hold && !refused) {
        struct gated *g = sf_calloc(1, sizeof(*g));
        g->batch = batch;
        if (gate->held == NULL)
            gate->held = g;
        else
            gate->held_last->next = g;
        gate->held_last = g;
        gate->held_count++;
    }
    pthread_mutex_unlock(&gate->mu);
    if (refused)
        answer_failed(batch);
    else if (!hold)
        sf_store_submit(gate->backend, batch);
}

static void get_fail_done(struct sf_task *task)
{
    struct sf_get *get = SF_CONTAINER_OF(task, struct sf_get, task);
    get->done(get);
}

static void gate_get(struct sf_store *store, struct sf_get *get)
{
    struct gate_store *gate = SF_CONTAINER_OF(store, struct gate_store, base);
    pthread_mutex_lock(&gate->mu);
    note_locked(gate, get->key, false);
    bool fail = contains(get->key, gate->fail_get);
    pthread_mutex_unlock(&gate->mu);
    if (!fail) {
        sf_store_get(gate->backend, get);
        return;
    }
    get->err = SF_ERR_UNAVAILABLE;
    get->task.run = get_fail_done;
    if (get->loop == NULL)
        get->done(get);
    else
        sf_loop_post(get->loop, &get->task);
}

static enum sf_err gate_list(struct sf_store *store, struct sf_sched *sched, struct sf_view prefix,
                             struct sf_view start_after, size_t limit, struct sf_arena *arena,
                             struct sf_list_entry **out_entries, size_t *out_count)
{
    struct gate_store *gate = SF_CONTAINER_OF(store, struct gate_store, base);
    pthread_mutex_lock(&gate->mu);
    gate->requests++;
    pthread_mutex_unlock(&gate->mu);
    return sf_store_list_wait(gate->backend, sched, prefix, start_after, limit, arena, out_entries,
                              out_count);
}

static enum sf_err gate_remove(struct sf_store *store, struct sf_sched *sched, struct sf_view key)
{
    struct gate_store *gate = SF_CONTAINER_OF(store, struct gate_store, base);
    return sf_store_remove_wait(gate->backend, sched, key);
}

static void gate_no_destroy(struct sf_store *store)
{
    (void)store;
}

static const struct sf_store_vtable gate_vtable = {.submit = gate_submit,
                                                   .get = gate_get,
                                                   .list = gate_list,
                                                   .remove = gate_remove,
                                                   .destroy = gate_no_destroy};

struct gate_store *gate_store_new(struct sf_store *backend)
{
    struct gate_store *gate = sf_calloc(1, sizeof(*gate));
    gate->base.vtable = &gate_vtable;
    gate->base.exclusive = true; /* as the embedded store; the simulator's is not */
    gate->backend = backend;
    pthread_mutex_init(&gate->mu, NULL);
    return gate;
}

struct sf_store *gate_store_base(struct gate_store *gate)
{
    return &gate->base;
}

void gate_store_destroy(struct gate_store *gate)
{
    while (gate->seen != NULL) {
        struct counted *c = gate->seen;
        gate->seen = c->next;
        free(c);
    }
    pthread_mutex_destroy(&gate->mu);
    free(gate);
}

static struct gated *take_held(struct gate_store *gate, const char *text)
{
    pthread_mutex_lock(&gate->mu);
    struct gated *held = gate->held;
    snprintf(gate->hold, sizeof(gate->hold), "%s", text == NULL ? "" : text);
    gate->held = gate->held_last = NULL;
    gate->held_count = 0;
    pthread_mutex_unlock(&gate->mu);
    return held;
}

static void answer_failed(struct sf_batch *batch)
{
    if (batch->loop == NULL) {
        batch->done(batch);
        return;
    }
    batch->task.run = fail_done;
    sf_loop_post(batch->loop, &batch->task);
}

void gate_store_hold(struct gate_store *gate, const char *text)
{
    struct gated *held = take_held(gate, text);
    while (held != NULL) {
        struct gated *next = held->next;
        sf_store_submit(gate->backend, held->batch);
        free(held);
        held = next;
    }
}

void gate_store_drop(struct gate_store *gate)
{
    struct gated *held = take_held(gate, NULL);
    while (held != NULL) {
        struct gated *next = held->next;
        for (size_t i = 0; i < held->batch->count; i++)
            held->batch->puts[i].err = SF_ERR_UNAVAILABLE;
        answer_failed(held->batch);
        free(held);
        held = next;
    }
}

void gate_store_fail(struct gate_store *gate, const char *text, enum sf_err err)
{
    pthread_mutex_lock(&gate->mu);
    snprintf(gate->fail, sizeof(gate->fail), "%s", text == NULL ? "" : text);
    gate->fail_err = err;
    pthread_mutex_unlock(&gate->mu);
}

void gate_store_fail_gets(struct gate_store *gate, const char *text)
{
    pthread_mutex_lock(&gate->mu);
    snprintf(gate->fail_get, sizeof(gate->fail_get), "%s", text == NULL ? "" : text);
    pthread_mutex_unlock(&gate->mu);
}

static unsigned count(struct gate_store *gate, const char *text, bool put)
{
    unsigned n = 0;
    pthread_mutex_lock(&gate->mu);
    for (const struct counted *c = gate->seen; c != NULL; c = c->next)
        n += c->put == put && strstr(c->key, text) != NULL ? 1 : 0;
    pthread_mutex_unlock(&gate->mu);
    return n;
}

unsigned gate_store_puts(struct gate_store *gate, const char *text)
{
    return count(gate, text, true);
}

unsigned gate_store_gets(struct gate_store *gate, const char *text)
{
    return count(gate, text, false);
}

unsigned gate_store_requests(struct gate_store *gate)
{
    pthread_mutex_lock(&gate->mu);
    unsigned n = gate->requests;
    pthread_mutex_unlock(&gate->mu);
    return n;
}

void gate_store_wait_held(struct gate_store *gate, unsigned wanted)
{
    for (unsigned held = 0; held < wanted;) {
        pthread_mutex_lock(&gate->mu);
        held = gate->held_count;
        pthread_mutex_unlock(&gate->mu);
        if (held < wanted)
            nap();
    }
}

/* ---- timestamps --------------------------------------------------------------------------------
 */

static void tso_answer(struct sf_task *task)
{
    struct sf_tso_request *request = SF_CONTAINER_OF(task, struct sf_tso_request, task);
    request->done(request);
}

static void tso_give_locked(struct hand_tso *tso, struct sf_tso_request *request)
{
    request->err = tso->down ? SF_BACKEND_UNAVAILABLE : SF_OK;
    request->first.v = tso->next;
    if (!tso->down && !tso->frozen)
        tso->next += request->count;
    tso->values += tso->down ? 0 : request->count;
    request->task.run = tso_answer;
    sf_loop_post(request->loop, &request->task);
}

static void tso_get(struct sf_tso_source *source, struct sf_tso_request *request)
{
    struct hand_tso *tso = SF_CONTAINER_OF(source, struct hand_tso, base);
    pthread_mutex_lock(&tso->mu);
    tso->requests++;
    if (tso->held) {
        request->next = tso->kept;
        tso->kept = request;
    } else {
        tso_give_locked(tso, request);
    }
    pthread_mutex_unlock(&tso->mu);
}

unsigned hand_tso_requests(struct hand_tso *tso)
{
    pthread_mutex_lock(&tso->mu);
    unsigned n = tso->requests;
    pthread_mutex_unlock(&tso->mu);
    return n;
}

uint64_t hand_tso_values(struct hand_tso *tso)
{
    pthread_mutex_lock(&tso->mu);
    uint64_t n = tso->values;
    pthread_mutex_unlock(&tso->mu);
    return n;
}

void hand_tso_down(struct hand_tso *tso, bool down)
{
    pthread_mutex_lock(&tso->mu);
    tso->down = down;
    pthread_mutex_unlock(&tso->mu);
}

void hand_tso_hold(struct hand_tso *tso)
{
    pthread_mutex_lock(&tso->mu);
    tso->held = true;
    pthread_mutex_unlock(&tso->mu);
}

void hand_tso_wait_held(struct hand_tso *tso)
{
    for (bool kept = false; !kept;) {
        pthread_mutex_lock(&tso->mu);
        kept = tso->kept != NULL;
        pthread_mutex_unlock(&tso->mu);
        if (!kept)
            nap();
    }
}

void hand_tso_release(struct hand_tso *tso)
{
    pthread_mutex_lock(&tso->mu);
    tso->held = false;
    while (tso->kept != NULL) {
        struct sf_tso_request *request = tso->kept;
        tso->kept = request->next;
        tso_give_locked(tso, request);
    }
    pthread_mutex_unlock(&tso->mu);
}

static void tso_destroy(struct sf_tso_source *source)
{
    (void)source;
}

static const struct sf_tso_source_vtable tso_vtable = {.get = tso_get, .destroy = tso_destroy};

void hand_tso_set(struct hand_tso *tso, uint64_t next)
{
    pthread_mutex_lock(&tso->mu);
    tso->next = next;
    pthread_mutex_unlock(&tso->mu);
}

/* ---- submissions -------------------------------------------------------------------------------
 */

#define MOST 4096

struct submitter {
    pthread_mutex_t mu;
    struct outcome outcomes[MOST];
    uint64_t next_id;
    unsigned streams_done;
    bool second; /* use the second stream */
    struct sf_client_stream *streams[2];
};

static void note_details(struct outcome *out, const Searchfabric__V1__BatchRefused *refused)
{
    for (size_t i = 0; i < refused->n_details; i++) {
        size_t used = strlen(out->details);
        snprintf(out->details + used, sizeof(out->details) - used, "%s=%s;",
                 refused->details[i]->key, refused->details[i]->value);
    }
}

static void on_event(void *user, const ProtobufCMessage *message)
{
    struct submitter *s = user;
    const Searchfabric__V1__SubmitPlannedBatchResponse *event = (const void *)message;
    pthread_mutex_lock(&s->mu);
    struct outcome *out = &s->outcomes[event->submission_id % MOST];
    out->epoch = event->coordinator_epoch;
    switch (event->event_case) {
    case SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_ADMITTED:
        out->admitted = true;
        out->duplicate = event->admitted->duplicate;
        out->slices = (unsigned)event->admitted->n_slices;
        for (unsigned i = 0; i < out->slices && i < SF_ARRAY_LEN(out->commit_ts); i++) {
            out->commit_ts[i] = event->admitted->slices[i]->commit_ts;
            out->ordinals[i] = event->admitted->slices[i]->slice_ordinal;
        }
        break;
    case SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_GATE_REACHED:
        out->gate = event->gate_reached->gate;
        out->gates++;
        out->safe_ts = event->gate_reached->safe_ts;
        out->manifest_version = event->gate_reached->committed_manifest_version;
        break;
    case SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_REFUSED:
        out->refusal = event->refused->refusal;
        note_details(out, event->refused);
        break;
    default:
        break;
    }
    pthread_mutex_unlock(&s->mu);
}

static void on_writable(void *user)
{
    (void)user;
}

static void on_done(void *user, const struct sf_diag *diag)
{
    struct submitter *s = user;
    (void)diag;
    pthread_mutex_lock(&s->mu);
    s->streams_done++;
    pthread_mutex_unlock(&s->mu);
}

static const struct sf_client_stream_ops stream_ops = {
    .message = on_event, .writable = on_writable, .done = on_done};

/* Runs `fn(arg)` on the client's loop and waits. */
struct hop {
    struct sf_task task;
    void (*fn)(void *arg);
    void *arg;
    struct sf_waiter waiter;
};

static void hop_run(struct sf_task *task)
{
    struct hop *hop = SF_CONTAINER_OF(task, struct hop, task);
    hop->fn(hop->arg);
    sf_waiter_wake(&hop->waiter);
}

static void on_loop(struct world *w, void (*fn)(void *arg), void *arg)
{
    struct hop hop = {.task.run = hop_run, .fn = fn, .arg = arg};
    sf_waiter_init(&hop.waiter, NULL);
    sf_loop_post(w->loops[1], &hop.task);
    sf_waiter_wait(&hop.waiter);
    sf_waiter_fini(&hop.waiter);
}

static void open_stream(void *arg)
{
    struct world *w = arg;
    for (unsigned i = 0; i < 2; i++)
        w->submitter->streams[i] =
            sf_channel_stream(w->channel, SUBMIT, NULL, w->loops[1], &stream_ops, w->submitter);
}

static void end_stream(void *arg)
{
    struct world *w = arg;
    for (unsigned i = 0; i < 2; i++)
        sf_client_stream_cancel(w->submitter->streams[i]);
}

struct sending {
    struct world *w;
    const Searchfabric__V1__SubmitPlannedBatchRequest *request;
};

static void send_request(void *arg)
{
    struct sending *sending = arg;
    const struct submitter *s = sending->w->submitter;
    enum sf_err err = sf_client_stream_send(s->streams[s->second ? 1 : 0], &sending->request->base);
    assert_int_equal(err, SF_OK);
}

static void fill_entry(const struct batch_spec *spec, size_t i, struct sf_arena *arena,
                       Searchfabric__V1__MutationBatch *batch,
                       Searchfabric__V1__PlannedBatch *planned)
{
    const struct entry *from = &spec->entries[i];
    Searchfabric__V1__MutationEntry *entry = sf_arena_alloc(arena, sizeof(*entry));
    Searchfabric__V1__EntryPlan *plan = sf_arena_alloc(arena, sizeof(*plan));
    searchfabric__v1__mutation_entry__init(entry);
    searchfabric__v1__entry_plan__init(plan);
    batch->entries[i] = entry;
    planned->entry_plans[i] = plan;
    plan->first_entry_index = plan->last_entry_index = (uint32_t)i;
    if (from->barrier) {
        entry->entry_case = SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_BARRIER_MARK;
        entry->barrier_mark = sf_arena_alloc(arena, sizeof(*entry->barrier_mark));
        searchfabric__v1__barrier_mark__init(entry->barrier_mark);
        return;
    }
    Searchfabric__V1__RowMutation *row = sf_arena_alloc(arena, sizeof(*row));
    searchfabric__v1__row_mutation__init(row);
    entry->entry_case = SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW;
    entry->row = row;
    row->doc_id = sf_arena_alloc(arena, sizeof(*row->doc_id));
    searchfabric__v1__document_id__init(row->doc_id);
    row->doc_id->id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
    row->doc_id->u64 = from->doc_id;
    row->op = from->deletes ? SEARCHFABRIC__V1__ROW_OP__ROW_OP_DELETE
                            : SEARCHFABRIC__V1__ROW_OP__ROW_OP_INDEX;
    row->body.data = (uint8_t *)(uintptr_t)from->body;
    row->body.len = from->body == NULL ? 0 : strlen(from->body);
    row->source_partition = (UINT64_C(1) << 63) | 5;
    row->source_epoch = 1;
    row->source_seq = (spec->first_seq == 0 ? 1 : spec->first_seq) + i;
    unsigned touched = from->touched == 0 ? 1 : from->touched;
    plan->touched_modalities = sf_arena_alloc(arena, 3 * sizeof(plan->touched_modalities[0]));
    for (unsigned m = 0; m < 3; m++) {
        if ((touched & (1u << m)) != 0)
            plan->touched_modalities[plan->n_touched_modalities++] =
                (Searchfabric__V1__Modality)(m + 1);
    }
}

uint64_t world_submit_with(struct world *w, const struct batch_spec *spec,
                           void (*change)(Searchfabric__V1__PlannedBatch *planned))
{
    struct sf_arena *arena = sf_arena_new(32u << 20);
    Searchfabric__V1__SubmitPlannedBatchRequest request =
        SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_REQUEST__INIT;
    Searchfabric__V1__PlannedBatch planned = SEARCHFABRIC__V1__PLANNED_BATCH__INIT;
    Searchfabric__V1__MutationBatch batch = SEARCHFABRIC__V1__MUTATION_BATCH__INIT;
    Searchfabric__V1__CollectionRef ref = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    Searchfabric__V1__Modality enabled[3];
    char fingerprint[SF_SHA256_HEX_BYTES];
    unsigned set = spec->enabled == 0 ? 3 : spec->enabled;
    const char *of = spec->fingerprint_of == NULL ? spec->batch_id : spec->fingerprint_of;
    sf_sha256_hex(sf_view_str(of), fingerprint);
    ref.namespace_id = NAMESPACE;
    ref.collection_id = spec->collection_id;
    batch.collection = &ref;
    batch.batch_id = (char *)(uintptr_t)spec->batch_id;
    batch.batch_fingerprint = fingerprint;
    batch.stream_identity = (char *)"stream";
    batch.schema_generation_token = (char *)"tok";
    batch.durability =
        spec->ingest_ack ? SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_INGEST_ACK
                         : SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_WAL_CHUNK_DURABLE;
    batch.visibility = spec->visible
                           ? SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_WAIT_FOR_VISIBLE
                           : SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_ASYNC;
    batch.entries = sf_arena_alloc(arena, (spec->count + 1) * sizeof(batch.entries[0]));
    batch.n_entries = spec->count;
    planned.batch = &batch;
    planned.flow_kind = SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_B;
    planned.source_kind = SEARCHFABRIC__V1__SOURCE_KIND__SOURCE_KIND_NATIVE_SEARCH_API;
    planned.writer_mode = spec->batch_mode ? SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_BATCH
                                           : SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_STREAM;
    planned.entry_plans = sf_arena_alloc(arena, (spec->count + 1) * sizeof(planned.entry_plans[0]));
    planned.n_entry_plans = spec->count;
    planned.enabled_modalities = enabled;
    for (unsigned m = 0; m < 3; m++) {
        if ((set & (1u << m)) != 0)
            enabled[planned.n_enabled_modalities++] = (Searchfabric__V1__Modality)(m + 1);
    }
    planned.first_admitted_ts = spec->first_admitted_ts == 0 ? WORLD_TSO0 : spec->first_admitted_ts;
    for (size_t i = 0; i < spec->count; i++)
        fill_entry(spec, i, arena, &batch, &planned);
    if (change != NULL)
        change(&planned);
    pthread_mutex_lock(&w->submitter->mu);
    uint64_t id = ++w->submitter->next_id;
    w->submitter->outcomes[id % MOST] = (struct outcome){.submission_id = id};
    pthread_mutex_unlock(&w->submitter->mu);
    request.submission_id = id;
    request.planned_batch = &planned;
    on_loop(w, send_request, &(struct sending){w, &request});
    sf_arena_destroy(arena);
    return id;
}

void world_second_stream(struct world *w, bool second)
{
    w->submitter->second = second;
}

uint64_t world_submit(struct world *w, const struct batch_spec *spec)
{
    return world_submit_with(w, spec, NULL);
}

struct outcome world_look(struct world *w, uint64_t id)
{
    pthread_mutex_lock(&w->submitter->mu);
    struct outcome out = w->submitter->outcomes[id % MOST];
    pthread_mutex_unlock(&w->submitter->mu);
    return out;
}

struct outcome world_wait(struct world *w, uint64_t id)
{
    struct outcome out = world_look(w, id);
    while (out.gate == 0 && out.refusal == 0) {
        nap();
        out = world_look(w, id);
    }
    return out;
}

struct outcome world_wait_admitted(struct world *w, uint64_t id)
{
    struct outcome out = world_look(w, id);
    while (!out.admitted && out.refusal == 0) {
        nap();
        out = world_look(w, id);
    }
    return out;
}

struct outcome world_put(struct world *w, uint64_t collection_id, uint64_t doc_id,
                         const char *batch, const char *body)
{
    struct entry entry = {.doc_id = doc_id, .body = body};
    return world_wait(w, world_submit(w, &(struct batch_spec){.collection_id = collection_id,
                                                              .batch_id = batch,
                                                              .entries = &entry,
                                                              .count = 1}));
}

/* ---- queries -----------------------------------------------------------------------------------
 */

const Searchfabric__V1__GetCollectionWatermarksResponse *
world_watermarks(struct world *w, uint64_t collection_id, struct sf_arena *arena)
{
    Searchfabric__V1__GetCollectionWatermarksRequest request =
        SEARCHFABRIC__V1__GET_COLLECTION_WATERMARKS_REQUEST__INIT;
    Searchfabric__V1__CollectionRef ref = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    const ProtobufCMessage *response = NULL;
    struct sf_diag diag;
    ref.namespace_id = NAMESPACE;
    ref.collection_id = collection_id;
    request.collection = &ref;
    sf_diag_init(&diag);
    enum sf_err err = sf_channel_unary_wait(
        w->channel, NULL, "/searchfabric.v1.CommitCoordinatorService/GetCollectionWatermarks",
        &request.base, NULL, arena, &diag, &response);
    return err == SF_OK ? (const void *)response : NULL;
}

const Searchfabric__V1__GetLaneStateResponse *world_lane(struct world *w, uint64_t collection_id,
                                                         struct sf_arena *arena)
{
    Searchfabric__V1__GetLaneStateRequest request = SEARCHFABRIC__V1__GET_LANE_STATE_REQUEST__INIT;
    Searchfabric__V1__CollectionRef ref = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    const ProtobufCMessage *response = NULL;
    struct sf_diag diag;
    ref.namespace_id = NAMESPACE;
    ref.collection_id = collection_id;
    request.collection = &ref;
    sf_diag_init(&diag);
    enum sf_err err = sf_channel_unary_wait(
        w->channel, NULL, "/searchfabric.v1.CommitCoordinatorService/GetLaneState", &request.base,
        NULL, arena, &diag, &response);
    return err == SF_OK ? (const void *)response : NULL;
}

int64_t world_metric(struct world *w, const char *name)
{
    static const char *const none[] = {NULL};
    char full[128];
    snprintf(full, sizeof(full), "searchfabric_commit_coordinator_%s", name);
    enum sf_metric_type type = strstr(name, "_total") != NULL ? SF_METRIC_COUNTER
                               : strstr(name, "_ms") != NULL  ? SF_METRIC_HISTOGRAM
                                                              : SF_METRIC_GAUGE;
    return sf_metric_value(
        sf_metric_series(sf_metrics_family(w->metrics, type, full, "", none), none));
}

int64_t world_pressure(struct world *w, const char *source, const char *modality)
{
    static const char *const labels[] = {"shard", "source", "modality", NULL};
    return sf_metric_value(
        sf_metric_series(sf_metrics_family(w->metrics, SF_METRIC_GAUGE,
                                           "searchfabric_commit_coordinator_pressure", "", labels),
                         (const char *const[]){"0", source, modality, NULL}));
}

struct row_list {
    struct sf_buf *out;
    unsigned count;
};

static bool note_row(void *user, const struct sf_row *row)
{
    struct row_list *list = user;
    list->count++;
    if (list->out != NULL)
        sf_buf_printf(list->out, "%" PRIu64 "=%.*s\n", row->doc_id.v, (int)row->body.len,
                      (const char *)row->body.ptr);
    return true;
}

unsigned world_rows(struct world *w, uint64_t collection_id, struct sf_buf *out,
                    struct sf_rows_head *out_head)
{
    struct row_list list = {.out = out};
    struct sf_diag diag;
    sf_diag_init(&diag);
    enum sf_err err =
        sf_rows_read(w->memory, NULL, (struct sf_collection_ref){{NAMESPACE}, {collection_id}},
                     note_row, &list, out_head, &diag);
    if (err != SF_OK)
        print_error("rows: %s\n", diag.message);
    assert_int_equal(err, SF_OK);
    if (out != NULL)
        sf_buf_append(out, "", 1);
    return list.count;
}

void world_settle(struct world *w)
{
    struct sf_commit_stats stats;
    do {
        nap();
        sf_commit_stats_get(w->commit, &stats);
    } while (stats.queued_batches + stats.pending_intents + stats.unpublished > 0);
}

/* ---- life --------------------------------------------------------------------------------------
 */

struct world *world_new(void)
{
    struct world *w = sf_calloc(1, sizeof(*w));
    struct sf_diag diag;
    sf_log_set_fd(-1);
    assert_int_equal(sf_pbjson_register(sf_view_bytes(sf_contract_descriptor_set,
                                                      sf_contract_descriptor_set_size)),
                     SF_OK);
    w->memory = sf_memory_store_new(NULL);
    w->gate = gate_store_new(w->memory);
    w->tso.base.vtable = &tso_vtable;
    w->tso.next = WORLD_TSO0 + 1000;
    pthread_mutex_init(&w->tso.mu, NULL);
    sf_diag_init(&diag);
    assert_int_equal(sf_reactors_start(2, sf_clock_system(), &diag, &w->reactors), SF_OK);
    w->loops[0] = sf_reactors_loop(w->reactors, 0);
    w->loops[1] = sf_reactors_loop(w->reactors, 1);
    sf_attempts_init(&w->attempts, 42);
    w->metrics = sf_metrics_new();
    sf_clock_manual_init(&w->clock, WORLD_TSO0 >> 18, 1);
    w->deps = (struct sf_commit_deps){.store = gate_store_base(w->gate),
                                      .loops = w->loops,
                                      .loop_count = 2,
                                      .clock = &w->clock.base,
                                      .tso = &w->tso.base,
                                      .attempts = &w->attempts,
                                      .metrics = w->metrics,
                                      .owner_id = "node-a",
                                      .random_seed = 1,
                                      .shard_count = 4};
    return w;
}

enum sf_err world_open(struct world *w)
{
    struct sf_diag diag;
    sf_diag_init(&diag);
    enum sf_err err = sf_commit_open(&w->deps, NULL, &diag, &w->commit);
    if (err != SF_OK)
        return err;
    const struct sf_service *services[] = {sf_commit_service(w->commit)};
    w->channel = sf_inproc_channel_new(services, 1, "planner", sf_clock_system());
    w->submitter = sf_calloc(1, sizeof(*w->submitter));
    pthread_mutex_init(&w->submitter->mu, NULL);
    on_loop(w, open_stream, w);
    return SF_OK;
}

void world_close(struct world *w)
{
    on_loop(w, end_stream, w);
    for (bool done = false; !done;) {
        nap();
        pthread_mutex_lock(&w->submitter->mu);
        done = w->submitter->streams_done == 2;
        pthread_mutex_unlock(&w->submitter->mu);
    }
    sf_channel_destroy(w->channel);
    sf_commit_close(w->commit, NULL);
    pthread_mutex_destroy(&w->submitter->mu);
    free(w->submitter);
    w->commit = NULL;
    w->channel = NULL;
    w->submitter = NULL;
}

void world_free(struct world *w)
{
    if (w->commit != NULL)
        world_close(w);
    sf_reactors_stop(w->reactors);
    gate_store_destroy(w->gate);
    sf_store_destroy(w->memory);
    sf_metrics_destroy(w->metrics);
    pthread_mutex_destroy(&w->tso.mu);
    free(w);
}
