/*
 * Model: OperationsService for sfctl: reads only. What blocks (listing, reading leader objects,
 * taking a timestamp) runs as a task on the worker pool; a range of an object is read through the
 * store's own completion.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/mem.h"
#include "daemon/server_priv.h"
#include "searchfabric/v1/durable.pb-c.h"
#include "searchfabric/v1/operations_private.pb-c.h"

#define OPERATION_LANE UINT64_C(0x6f70657261746f72) /* own serial lane: one look at a time */

struct sf_operations {
    struct sf_server *server;    /* what it looks at */
    struct sf_service service;   /* what the RPC server serves */
    struct sf_method methods[3]; /* of service */
};

/* A call that runs on the worker pool. */
struct op_task {
    struct sf_task task;             /* on the worker pool */
    struct sf_server *server;        /* what it looks at */
    struct sf_call *call;            /* to be answered, exactly once */
    const ProtobufCMessage *request; /* valid until the call is answered */
};

static void respond_or_fail(struct sf_call *call, const ProtobufCMessage *response)
{
    if (!sf_arena_overflowed(sf_call_arena(call))) {
        sf_call_respond(call, response);
        return;
    }
    (void)sf_diag_set(sf_call_diag(call), SF_ERR_LIMIT, "the answer exceeds its memory");
    sf_call_fail(call, sf_call_diag(call));
}

static void run_on_pool(struct sf_server *server, struct sf_call *call,
                        const ProtobufCMessage *request, sf_task_fn run)
{
    struct op_task *op = sf_calloc(1, sizeof(*op));

    op->task.run = run;
    op->server = server;
    op->call = call;
    op->request = request;
    if (sf_sched_submit(server->pool, OPERATION_LANE, &op->task) == SF_OK)
        return;
    free(op);
    (void)sf_diag_set(sf_call_diag(call), SF_BACKEND_UNAVAILABLE, "the worker pool is full");
    sf_diag_detail(sf_call_diag(call), "failing_authority", "workers");
    sf_call_fail(call, sf_call_diag(call));
}

/* ---- GetStatus ------------------------------------------------------------------------------- */

struct status {
    struct sf_server *server;                      /* what it looks at */
    struct sf_arena *arena;                        /* of the call */
    Searchfabric__V1__GetStatusResponse *response; /* being filled; in arena */
};

static void add_workers(struct status *s)
{
    struct sf_worker_status looked[SF_WORKER_COUNT];
    Searchfabric__V1__WorkerStatus *workers =
        sf_arena_alloc(s->arena, SF_WORKER_COUNT * sizeof(*workers));

    s->response->workers =
        sf_arena_alloc(s->arena, SF_WORKER_COUNT * sizeof(*s->response->workers));
    if (workers == NULL || s->response->workers == NULL)
        return;
    (void)sf_workers_look(s->server, looked);
    for (size_t i = 0; i < SF_WORKER_COUNT; i++) {
        searchfabric__v1__worker_status__init(&workers[i]);
        workers[i].name = (char *)(uintptr_t)looked[i].name;
        workers[i].role = (char *)(uintptr_t)looked[i].role;
        workers[i].state = (Searchfabric__V1__WorkerState)looked[i].state;
        workers[i].detail = (char *)(uintptr_t)looked[i].detail;
        workers[i].heartbeat_age_ms = looked[i].heartbeat_age_ms;
        s->response->workers[i] = &workers[i];
    }
    s->response->n_workers = SF_WORKER_COUNT;
}

/* May `worker`'s part be looked at? It is there from when it first served until the edges, this
 * service among them, have stopped. */
static bool is_there(const struct status *s, enum sf_worker worker)
{
    return sf_worker_started(s->server, worker);
}

/* Who leads a shard stands in its leader object, the truth for everybody. */
static void add_shard(struct status *s, uint32_t shard)
{
    Searchfabric__V1__CoordinatorShardStatus *out = sf_arena_alloc(s->arena, sizeof(*out));
    char key[64];
    ProtobufCMessage *message;
    struct sf_diag diag;

    if (out == NULL)
        return;
    searchfabric__v1__coordinator_shard_status__init(out);
    out->shard_id = shard;
    sf_diag_init(&diag);
    (void)snprintf(key, sizeof(key), "coordinator/shard=%" PRIu32 "/leader.json", shard);
    if (sf_durable_read_wait(s->server->store, s->server->pool, sf_view_str(key),
                             &searchfabric__v1__coordinator_leader_object__descriptor, s->arena,
                             &diag, &message, NULL) == SF_OK) {
        const Searchfabric__V1__CoordinatorLeaderObject *leader =
            (const Searchfabric__V1__CoordinatorLeaderObject *)(const void *)message;
        out->coordinator_epoch = leader->coordinator_epoch;
        out->leading = strcmp(leader->owner_id, s->server->owner_id) == 0;
    }
    s->response->coordinator_shards[s->response->n_coordinator_shards++] = out;
}

static void add_shards(struct status *s)
{
    if (!is_there(s, SF_WORKER_STORE))
        return;
    uint32_t count = s->server->identity.coordinator_shard_count;

    s->response->coordinator_shards =
        sf_arena_alloc(s->arena, count * sizeof(*s->response->coordinator_shards));
    for (uint32_t i = 0; s->response->coordinator_shards != NULL && i < count; i++)
        add_shard(s, i);
}

#define NUMBERS_MAX 32

static void add_number(struct status *s, const char *name, uint64_t value)
{
    Searchfabric__V1__StatusNumber *number = sf_arena_alloc(s->arena, sizeof(*number));

    SF_ASSERT(s->response->n_numbers < NUMBERS_MAX);
    if (number == NULL)
        return;
    searchfabric__v1__status_number__init(number);
    number->name = (char *)(uintptr_t)name;
    number->value = (int64_t)value;
    s->response->numbers[s->response->n_numbers++] = number;
}

/* In byte order of the names. */
static void add_numbers(struct status *s)
{
    struct sf_allocator_stats allocator = {0};
    struct sf_catalog_stats catalog = {0};
    struct sf_commit_stats commit = {0};

    s->response->numbers = sf_arena_alloc(s->arena, NUMBERS_MAX * sizeof(*s->response->numbers));
    if (s->response->numbers == NULL)
        return;
    if (is_there(s, SF_WORKER_ALLOCATOR))
        sf_allocator_stats(s->server->allocator, &allocator);
    if (is_there(s, SF_WORKER_CCS))
        sf_catalog_stats(s->server->catalog, &catalog);
    if (is_there(s, SF_WORKER_COORDINATOR))
        sf_commit_stats_get(s->server->commit, &commit);
    s->response->catalog_owner_epoch = catalog.owner_epoch;
    s->response->allocator_lanes = allocator.lanes;
    s->response->open_lanes = commit.lanes;
    s->response->max_safe_ts_lag_ms = commit.lag_ms;
    add_number(s, "allocator_allocations", allocator.allocations);
    add_number(s, "allocator_groups", allocator.groups);
    add_number(s, "allocator_ids_burned", allocator.ids_burned);
    add_number(s, "allocator_ids_issued", allocator.ids_issued);
    add_number(s, "allocator_lanes_closed", allocator.lanes_closed);
    add_number(s, "allocator_lease_local", allocator.lease_local);
    add_number(s, "allocator_leases_granted", allocator.leases_granted);
    add_number(s, "allocator_rolled_forward", allocator.rolled_forward);
    add_number(s, "allocator_state_conflicts", allocator.state_conflicts);
    add_number(s, "catalog_attempts_aborted", catalog.attempts_aborted);
    add_number(s, "catalog_commands_applied", catalog.commands_applied);
    add_number(s, "catalog_groups_committed", catalog.groups_committed);
    add_number(s, "catalog_newest_segment", catalog.newest_segment);
    add_number(s, "catalog_open_ms", catalog.open_ms);
    add_number(s, "catalog_recovered", catalog.recovered);
    add_number(s, "catalog_watermark", catalog.watermark);
    add_number(s, "coordinator_pending_bytes", commit.pending_bytes);
    add_number(s, "coordinator_pending_intents", commit.pending_intents);
    add_number(s, "coordinator_queued_batches", commit.queued_batches);
    add_number(s, "coordinator_recovered_chunks", commit.recovered_chunks);
    add_number(s, "coordinator_recovered_slices", commit.recovered_slices);
    add_number(s, "coordinator_recovery_ms", (uint64_t)commit.recovery_ms);
    add_number(s, "coordinator_unpublished", commit.unpublished);
    pthread_mutex_lock(&s->server->health_mu); /* its stop frees it, and waits for this */
    unsigned active =
        s->server->states[SF_WORKER_ES] == SF_WORKER_DRAINING ? 0 : sf_es_active(s->server->es);
    pthread_mutex_unlock(&s->server->health_mu);
    add_number(s, "es_active_requests", active);
}

static void add_process(struct status *s)
{
    static char *roles[] = {"ccs", "allocator", "coordinator", "tso", "ingest", "es-gateway"};
    struct sf_server *server = s->server;
    Searchfabric__V1__GetStatusResponse *response = s->response;
    struct sf_tso now;

    response->version = (char *)(uintptr_t)SF_VERSION;
    if (is_there(s, SF_WORKER_STORE))
        response->store_id = server->identity.store_id;
    response->started_at_unix_ms = server->started_unix_ms;
    response->uptime_ms = (uint64_t)(sf_clock_mono_ms(server->clock) - server->started_mono_ms);
    response->start_duration_ms = (uint64_t)server->start_duration_ms;
    response->process_id = (uint32_t)getpid();
    response->n_roles = SF_ARRAY_LEN(roles);
    response->roles = roles;
    response->admin_port = sf_admin_port(server->admin);
    pthread_mutex_lock(&server->health_mu);
    response->grpc_port =
        server->rpc == NULL ? server->config->grpc.port : sf_rpc_server_port(server->rpc);
    response->es_port =
        server->states[SF_WORKER_ES] == SF_WORKER_DRAINING ? 0 : sf_es_port(server->es);
    pthread_mutex_unlock(&server->health_mu);
    response->data_dir = server->config->data_dir;
    if (is_there(s, SF_WORKER_TSO) && sf_tso_get_wait(server->tso, server->pool, 1, &now) == SF_OK)
        response->tso_now = now.v;
}

static void run_status(struct sf_task *task)
{
    struct op_task *op = SF_CONTAINER_OF(task, struct op_task, task);
    Searchfabric__V1__GetStatusResponse response = SEARCHFABRIC__V1__GET_STATUS_RESPONSE__INIT;
    struct status s = {
        .server = op->server, .arena = sf_call_arena(op->call), .response = &response};

    add_process(&s);
    add_workers(&s);
    add_shards(&s);
    add_numbers(&s);
    respond_or_fail(op->call, &response.base);
    free(op);
}

static void handle_status(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    struct sf_operations *operations = self;

    run_on_pool(operations->server, call, request, run_status);
}

/* The store is there, or the call was refused. */
static bool admit_store(struct sf_operations *operations, struct sf_call *call)
{
    if (sf_worker_started(operations->server, SF_WORKER_STORE))
        return true;
    (void)sf_diag_set(sf_call_diag(call), SF_BACKEND_UNAVAILABLE, "the store is being opened");
    sf_diag_detail(sf_call_diag(call), "failing_authority", "object_store");
    sf_call_fail(call, sf_call_diag(call));
    return false;
}

/* ---- ListObjects ----------------------------------------------------------------------------- */

static void respond_list(struct sf_call *call, const struct sf_list_entry *entries, size_t count,
                         size_t limit)
{
    Searchfabric__V1__ListObjectsResponse response = SEARCHFABRIC__V1__LIST_OBJECTS_RESPONSE__INIT;
    struct sf_arena *arena = sf_call_arena(call);
    Searchfabric__V1__ObjectEntry *objects = sf_arena_alloc(arena, (count + 1) * sizeof(*objects));

    response.objects = sf_arena_alloc(arena, (count + 1) * sizeof(*response.objects));
    for (size_t i = 0; objects != NULL && response.objects != NULL && i < count; i++) {
        searchfabric__v1__object_entry__init(&objects[i]);
        objects[i].key = sf_arena_str(arena, entries[i].key);
        objects[i].size_bytes = entries[i].size_bytes;
        if (objects[i].key == NULL)
            break;
        response.objects[response.n_objects++] = &objects[i];
    }
    response.more = count == limit;
    respond_or_fail(call, &response.base);
}

static void run_list(struct sf_task *task)
{
    struct op_task *op = SF_CONTAINER_OF(task, struct op_task, task);
    const Searchfabric__V1__ListObjectsRequest *request =
        (const Searchfabric__V1__ListObjectsRequest *)(const void *)op->request;
    struct sf_call *call = op->call;
    size_t limit = request->limit == 0 || request->limit > SF_LIMIT_LIST_PAGE_ENTRIES
                       ? SF_LIMIT_LIST_PAGE_ENTRIES
                       : request->limit;
    struct sf_list_entry *entries;
    size_t count;
    enum sf_err err = sf_store_list_wait(
        op->server->store, op->server->pool, sf_view_str(request->prefix),
        sf_view_str(request->start_after), limit, sf_call_arena(call), &entries, &count);

    free(op);
    if (err == SF_OK) {
        respond_list(call, entries, count, limit);
        return;
    }
    (void)sf_diag_set(sf_call_diag(call), SF_BACKEND_UNAVAILABLE, "the store does not answer");
    sf_diag_detail(sf_call_diag(call), "failing_authority", "object_store");
    sf_call_fail(call, sf_call_diag(call));
}

static void handle_list(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    struct sf_operations *operations = self;

    if (admit_store(operations, call))
        run_on_pool(operations->server, call, request, run_list);
}

/* ---- GetObject ------------------------------------------------------------------------------- */

struct op_get {
    struct sf_get get;    /* the read */
    struct sf_call *call; /* to be answered, exactly once */
    uint64_t wanted;      /* bytes asked of the store */
    bool capped;          /* the request wanted more than one answer holds */
};

static void on_got(struct sf_get *get)
{
    struct op_get *op = SF_CONTAINER_OF(get, struct op_get, get);
    struct sf_call *call = op->call;
    struct sf_diag *diag = sf_call_diag(call);

    if (get->err == SF_OK) {
        Searchfabric__V1__GetObjectResponse response = SEARCHFABRIC__V1__GET_OBJECT_RESPONSE__INIT;
        response.body.data = get->body.data;
        response.body.len = get->body.len;
        response.etag = get->etag.text;
        response.more = op->capped && get->body.len == op->wanted;
        if (response.more)
            response.body.len--; /* the byte beyond only told that there is one */
        sf_call_respond(call, &response.base);
    } else if (get->err == SF_ERR_NOT_FOUND) {
        (void)sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such object");
        sf_call_fail(call, diag);
    } else {
        (void)sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "the store does not answer");
        sf_diag_detail(diag, "failing_authority", "object_store");
        sf_call_fail(call, diag);
    }
    sf_buf_fini(&get->body);
    free(op);
}

static void handle_get(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct sf_operations *operations = self;
    const Searchfabric__V1__GetObjectRequest *request =
        (const Searchfabric__V1__GetObjectRequest *)(const void *)message;
    size_t key_len = strlen(request->key);

    if (key_len == 0 || key_len > SF_LIMIT_OBJECT_KEY_BYTES) {
        (void)sf_diag_bad_field(sf_call_diag(call), "key", "out_of_range",
                                "a key has 1 to 1024 bytes");
        sf_call_fail(call, sf_call_diag(call));
        return;
    }
    if (!admit_store(operations, call))
        return;
    struct op_get *op = sf_calloc(1, sizeof(*op));
    op->call = call;
    op->capped = request->length_bytes == 0 || request->length_bytes > SF_LIMIT_OPERATOR_GET_BYTES;
    op->wanted = op->capped ? SF_LIMIT_OPERATOR_GET_BYTES + 1 : request->length_bytes;
    op->get.key = sf_view_bytes(request->key, key_len);
    op->get.range_offset = request->offset_bytes;
    op->get.range_len = op->wanted;
    op->get.loop = operations->server->loops[0];
    op->get.done = on_got;
    sf_store_get(operations->server->store, &op->get);
}

/* ---- the service ----------------------------------------------------------------------------- */

struct sf_operations *sf_operations_new(struct sf_server *server)
{
    struct sf_operations *operations = sf_calloc(1, sizeof(*operations));

    operations->server = server;
    operations->methods[0] =
        (struct sf_method){.name = "GetStatus",
                           .request = &searchfabric__v1__get_status_request__descriptor,
                           .response = &searchfabric__v1__get_status_response__descriptor,
                           .unary = handle_status};
    operations->methods[1] =
        (struct sf_method){.name = "ListObjects",
                           .request = &searchfabric__v1__list_objects_request__descriptor,
                           .response = &searchfabric__v1__list_objects_response__descriptor,
                           .unary = handle_list};
    operations->methods[2] =
        (struct sf_method){.name = "GetObject",
                           .request = &searchfabric__v1__get_object_request__descriptor,
                           .response = &searchfabric__v1__get_object_response__descriptor,
                           .unary = handle_get};
    operations->service = (struct sf_service){.full_name = "searchfabric.v1.OperationsService",
                                              .methods = operations->methods,
                                              .method_count = SF_ARRAY_LEN(operations->methods),
                                              .self = operations};
    return operations;
}

const struct sf_service *sf_operations_service(struct sf_operations *operations)
{
    return &operations->service;
}

void sf_operations_destroy(struct sf_operations *operations)
{
    free(operations);
}
