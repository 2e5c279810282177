/*
 * The operator's service of the allocator. A call runs on the lane of what it works on, never
 * beside a background round or the export's writer (looks aside, allocator_explain.c); a drain
 * waits for it.
 */
#include "allocator/allocator_artifacts.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_export.h"
#include "allocator/allocator_retention.h"
#include "base/limits.h"
#include "base/mem.h"

/* One call. */
struct operation {
    struct sf_task task;             /* on the lane */
    struct sf_allocator *allocator;  /* whose */
    struct sf_call *call;            /* to be answered */
    const ProtobufCMessage *request; /* valid as long as the call */
    const char *authority;           /* what failed when it could not be done */
    /* Answers the call, or returns an error that stands in its diag. */
    enum sf_err (*run)(struct operation *op);
};

static void on_lane(struct sf_task *task)
{
    struct operation *op = SF_CONTAINER_OF(task, struct operation, task);
    struct sf_allocator *a = op->allocator;
    enum sf_err err = op->run(op);

    if (err != SF_OK) {
        struct sf_diag *diag = sf_call_diag(op->call);
        if (sf_err_public(diag->err) != diag->err) {
            sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "%s", diag->message);
            sf_diag_detail(diag, "failing_authority", "%s", op->authority);
        }
        sf_call_fail(op->call, diag);
    }
    free(op);
    sf_alloc_closed_one(a);
}

/* `lane` of the pool: that of the retention, or of a feed's writer. */
static void submit(struct sf_allocator *a, struct sf_call *call, const ProtobufCMessage *request,
                   uint64_t lane, const char *authority, enum sf_err (*run)(struct operation *op))
{
    struct operation *op = sf_calloc(1, sizeof(*op));
    bool stopping;

    *op = (struct operation){.task.run = on_lane,
                             .allocator = a,
                             .call = call,
                             .request = request,
                             .authority = authority,
                             .run = run};
    sf_diag_init(sf_call_diag(call));
    atomic_fetch_add(&a->open, 1);
    stopping = atomic_load(&a->draining) || a->retention == NULL;
    if (!stopping && sf_sched_submit(a->deps.sched, lane, &op->task) == SF_OK)
        return;
    free(op);
    sf_diag_set(sf_call_diag(call), SF_BACKEND_UNAVAILABLE,
                stopping ? "the allocator is stopping" : "the allocator is busy");
    sf_diag_detail(sf_call_diag(call), "failing_authority", "allocator");
    sf_call_fail(call, sf_call_diag(call));
    sf_alloc_closed_one(a);
}

/* ---- RunAllocatorRetention ---- */

static enum sf_err run_retention(struct operation *op)
{
    const Searchfabric__V1__RunAllocatorRetentionRequest *request = (const void *)op->request;
    Searchfabric__V1__RunAllocatorRetentionResponse response =
        SEARCHFABRIC__V1__RUN_ALLOCATOR_RETENTION_RESPONSE__INIT;
    struct sf_alloc_round round = {.dry_run = request->dry_run,
                                   .max_objects = SF_LIMIT_ALLOC_RETENTION_OBJECTS};

    if (request->max_objects != 0 && request->max_objects < round.max_objects)
        round.max_objects = request->max_objects;
    sf_buf_append_str(&round.cursor, request->cursor);
    enum sf_err err =
        sf_alloc_retention_round(op->allocator->retention, &round, sf_call_diag(op->call));
    response.objects_examined = round.examined;
    response.results_removed = round.results;
    response.artifacts_removed = round.artifacts;
    response.kept_needed = round.needed;
    response.kept_without_state = round.without_state;
    response.kept_in_doubt = round.in_doubt;
    response.broken = round.broken;
    response.receipts_without_key = round.keyless;
    response.cut_unix_ms = round.cut_unix_ms;
    sf_buf_append(&round.cursor, "", 1);
    response.next_cursor = (char *)round.cursor.data;
    if (err == SF_OK)
        sf_call_respond(op->call, &response.base);
    sf_buf_fini(&round.cursor);
    return err;
}

static void handle_retention(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    const Searchfabric__V1__RunAllocatorRetentionRequest *request = (const void *)message;

    if (strlen(request->cursor) > SF_LIMIT_OBJECT_KEY_BYTES) {
        sf_diag_init(sf_call_diag(call));
        (void)sf_diag_bad_field(sf_call_diag(call), "cursor", "out_of_range",
                                "a cursor is the next_cursor of an earlier answer");
        sf_call_fail(call, sf_call_diag(call));
        return;
    }
    submit(self, call, message, SF_ALLOC_RETENTION_LANE, "object_store", run_retention);
}

/* ---- RebuildAllocatorExport ---- */

static enum sf_err run_rebuild(struct operation *op)
{
    Searchfabric__V1__RebuildAllocatorExportResponse response =
        SEARCHFABRIC__V1__REBUILD_ALLOCATOR_EXPORT_RESPONSE__INIT;
    struct sf_alloc_export_sum sum;
    enum sf_err err = sf_alloc_export_rebuild(op->allocator->export, sf_call_diag(op->call), &sum);

    response.collections = sum.collections;
    response.allocations = sum.allocations;
    response.broken = sum.broken;
    if (err == SF_OK)
        sf_call_respond(op->call, &response.base);
    return err;
}

static void handle_rebuild(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct sf_allocator *a = self;

    if (a->export == NULL) {
        sf_diag_init(sf_call_diag(call));
        (void)sf_diag_bad_field(sf_call_diag(call), "export", "off",
                                "the export is off (allocator.export.enabled)");
        sf_call_fail(call, sf_call_diag(call));
        return;
    }
    /* its objects were read to begin with; what goes away is its database */
    submit(a, call, message, sf_alloc_feed_lane(SF_ALLOC_EXPORT_NAME), "allocator_export",
           run_rebuild);
}

/* ---- the service ---- */

static const struct sf_method methods[] = {
    {.name = "RunAllocatorRetention",
     .request = &searchfabric__v1__run_allocator_retention_request__descriptor,
     .response = &searchfabric__v1__run_allocator_retention_response__descriptor,
     .unary = handle_retention},
    {.name = "RebuildAllocatorExport",
     .request = &searchfabric__v1__rebuild_allocator_export_request__descriptor,
     .response = &searchfabric__v1__rebuild_allocator_export_response__descriptor,
     .unary = handle_rebuild},
    {.name = "ExplainAllocator",
     .request = &searchfabric__v1__explain_allocator_request__descriptor,
     .response = &searchfabric__v1__explain_allocator_response__descriptor,
     .unary = sf_alloc_explain},
};

void sf_alloc_operate_init(struct sf_allocator *a)
{
    a->operations = (struct sf_service){.full_name = SF_ALLOCATOR_OPERATIONS_NAME,
                                        .methods = methods,
                                        .method_count = SF_ARRAY_LEN(methods),
                                        .self = a};
}

const struct sf_service *sf_allocator_operations(struct sf_allocator *allocator)
{
    return &allocator->operations;
}
