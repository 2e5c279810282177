/*
 * Model: public reads are served from one snapshot of the projection, begun after the request came
 * in; the look at the owner epoch is part of the snapshot. What depends on a convergence block
 * (GetSchemaSyncStatus, admission state, signals) runs on the collection's lane and adopts the
 * block first. Admission state is the hot path of allocator and ingest: it is answered on the
 * caller's thread from memory; on a store that is not held exclusively one look serves all that
 * wait.
 */
#include "catalog/catalog_rules.h"

#include <stdlib.h>

#define READ_LANES    64
#define READ_LANE_TAG UINT64_C(0x5265616400000000)
#define LOOK_LANE     UINT64_C(0x4c6f6f6b00000000)

/* One read on its way. */
struct read {
    struct sf_task task;             /* on a lane */
    struct sf_catalog *catalog;      /* immutable */
    enum sf_catalog_read_kind kind;  /* immutable */
    struct sf_call *call;            /* answered once */
    const ProtobufCMessage *request; /* valid as long as the call */
};

static enum sf_err not_found(struct sf_diag *diag, const char *what)
{
    return sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such %s", what);
}

static enum sf_err too_large(struct sf_diag *diag)
{
    return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
}

static enum sf_err bootstrap(struct sf_diag *diag)
{
    sf_diag_set(diag, SF_CATALOG_UNAVAILABLE, "the collection has no schema generation yet");
    sf_diag_detail(diag, "catalog_unavailable_reason", "schema_bootstrap");
    sf_diag_detail(diag, "schema_bootstrap_state", "no_active_schema_generation");
    return SF_CATALOG_UNAVAILABLE;
}

static bool readable_namespace(const SF_PB(NamespaceRow) * row)
{
    return row != NULL && row->lifecycle_state != SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED);
}

static bool active_collection(const SF_PB(CollectionRow) * row)
{
    return row != NULL && row->lifecycle_state == SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE);
}

/* ---- in one snapshot ---------------------------------------------------------------------- */

static enum sf_err read_namespace(struct read *read, struct sf_sql_conn *conn)
{
    const SF_PB(GetNamespaceMetadataRequest) *get =
        (const SF_PB(GetNamespaceMetadataRequest) *)read->request;
    struct sf_arena *arena = sf_call_arena(read->call);
    struct sf_diag *diag = sf_call_diag(read->call);
    SF_PB(NamespaceRow) *row = NULL;
    enum sf_err err;
    if (get->lookup_case == SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID)
        err = sf_catalog_sql_namespace(conn, get->namespace_id, arena, diag, &row);
    else
        err = sf_catalog_sql_namespace_named(conn, get->namespace_name, arena, diag, &row);
    if (err != SF_OK)
        return err;
    if (!readable_namespace(row))
        return not_found(diag, "namespace");
    SF_PB(GetNamespaceMetadataResponse) response;
    searchfabric__v1__get_namespace_metadata_response__init(&response);
    response.descriptor = sf_catalog_namespace_descriptor(row, arena);
    if (response.descriptor == NULL)
        return too_large(diag);
    sf_call_respond(read->call, &response.base);
    return SF_OK;
}

static enum sf_err list_namespaces(struct read *read, struct sf_sql_conn *conn)
{
    const SF_PB(ListNamespacesRequest) *list = (const SF_PB(ListNamespacesRequest) *)read->request;
    struct sf_arena *arena = sf_call_arena(read->call);
    struct sf_diag *diag = sf_call_diag(read->call);
    struct sf_catalog_page page;
    SF_PB(NamespaceRow) **rows = NULL;
    size_t count = 0;
    enum sf_err err = sf_catalog_page_open(read->catalog, read->call, list->meta, 0, list->prefix,
                                           list->page, &page);
    if (err == SF_OK)
        err = sf_catalog_sql_list_namespaces(conn, sf_view_str(list->prefix), page.after,
                                             (size_t)page.size + 1, arena, diag, &rows, &count);
    if (err != SF_OK)
        return err;
    bool more = count > page.size;
    count = more ? page.size : count;
    SF_PB(ListNamespacesResponse) response;
    searchfabric__v1__list_namespaces_response__init(&response);
    response.namespaces = sf_arena_alloc(arena, (count + 1) * sizeof(*response.namespaces));
    for (size_t i = 0; i < count && response.namespaces != NULL; i++)
        response.namespaces[i] = sf_catalog_namespace_descriptor(rows[i], arena);
    response.n_namespaces = count;
    response.next_page =
        sf_catalog_page_next(read->catalog, read->call, list->meta, 0, list->prefix, page.size,
                             more ? rows[count - 1]->namespace_name : NULL);
    if (sf_arena_overflowed(arena))
        return too_large(diag);
    sf_call_respond(read->call, &response.base);
    return SF_OK;
}

static enum sf_err read_collection(struct read *read, struct sf_sql_conn *conn)
{
    const SF_PB(GetCollectionMetadataRequest) *get =
        (const SF_PB(GetCollectionMetadataRequest) *)read->request;
    struct sf_arena *arena = sf_call_arena(read->call);
    struct sf_diag *diag = sf_call_diag(read->call);
    SF_PB(CollectionRow) *row = NULL;
    enum sf_err err;
    if (get->lookup_case == SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_COLLECTION)
        err = sf_catalog_sql_collection(conn, get->collection->namespace_id,
                                        get->collection->collection_id, arena, diag, &row);
    else
        err =
            sf_catalog_sql_collection_named(conn, get->name_binding->namespace_id,
                                            get->name_binding->collection_name, arena, diag, &row);
    if (err != SF_OK)
        return err;
    if (!active_collection(row))
        return not_found(diag, "active collection");
    SF_PB(GetCollectionMetadataResponse) response;
    searchfabric__v1__get_collection_metadata_response__init(&response);
    response.descriptor = sf_catalog_collection_descriptor(row, arena);
    if (response.descriptor == NULL)
        return too_large(diag);
    sf_call_respond(read->call, &response.base);
    return SF_OK;
}

static enum sf_err list_collections(struct read *read, struct sf_sql_conn *conn)
{
    const SF_PB(ListCollectionsRequest) *list =
        (const SF_PB(ListCollectionsRequest) *)read->request;
    struct sf_arena *arena = sf_call_arena(read->call);
    struct sf_diag *diag = sf_call_diag(read->call);
    struct sf_catalog_page page;
    SF_PB(NamespaceRow) *ns = NULL;
    SF_PB(CollectionRow) **rows = NULL;
    size_t count = 0;
    enum sf_err err = sf_catalog_page_open(read->catalog, read->call, list->meta,
                                           list->namespace_id, list->prefix, list->page, &page);
    if (err == SF_OK)
        err = sf_catalog_sql_namespace(conn, list->namespace_id, arena, diag, &ns);
    if (err == SF_OK && !readable_namespace(ns))
        return not_found(diag, "namespace");
    if (err == SF_OK)
        err = sf_catalog_sql_list_collections(conn, list->namespace_id, sf_view_str(list->prefix),
                                              page.after, (size_t)page.size + 1, arena, diag, &rows,
                                              &count);
    if (err != SF_OK)
        return err;
    bool more = count > page.size;
    count = more ? page.size : count;
    SF_PB(ListCollectionsResponse) response;
    searchfabric__v1__list_collections_response__init(&response);
    response.collections = sf_arena_alloc(arena, (count + 1) * sizeof(*response.collections));
    for (size_t i = 0; i < count && response.collections != NULL; i++)
        response.collections[i] = sf_catalog_collection_descriptor(rows[i], arena);
    response.n_collections = count;
    response.next_page = sf_catalog_page_next(read->catalog, read->call, list->meta,
                                              list->namespace_id, list->prefix, page.size,
                                              more ? rows[count - 1]->collection_name : NULL);
    if (sf_arena_overflowed(arena))
        return too_large(diag);
    sf_call_respond(read->call, &response.base);
    return SF_OK;
}

/* The active generation of an active collection, or the refusal. */
static enum sf_err active_generation(struct read *read, struct sf_sql_conn *conn,
                                     const SF_PB(CollectionRef) * ref,
                                     SF_PB(SchemaGenerationRow) * *out_row)
{
    struct sf_arena *arena = sf_call_arena(read->call);
    struct sf_diag *diag = sf_call_diag(read->call);
    SF_PB(CollectionRow) *row = NULL;
    enum sf_err err =
        sf_catalog_sql_collection(conn, ref->namespace_id, ref->collection_id, arena, diag, &row);
    if (err != SF_OK)
        return err;
    if (!active_collection(row))
        return not_found(diag, "active collection");
    if (row->_active_schema_version_case == 0)
        return bootstrap(diag);
    err = sf_catalog_sql_generation(conn, ref->namespace_id, ref->collection_id,
                                    SF_CATALOG_GENERATION_VERSION, row->active_schema_version, NULL,
                                    arena, diag, out_row);
    if (err == SF_OK && *out_row == NULL)
        return sf_diag_set(diag, SF_ERR_CORRUPT, "the active schema generation has no row");
    return err;
}

static enum sf_err read_schema(struct read *read, struct sf_sql_conn *conn)
{
    const SF_PB(GetCollectionSchemaRequest) *get =
        (const SF_PB(GetCollectionSchemaRequest) *)read->request;
    SF_PB(SchemaGenerationRow) *row = NULL;
    enum sf_err err = active_generation(read, conn, get->collection, &row);
    if (err != SF_OK)
        return err;
    SF_ASSERT(row != NULL);
    SF_PB(GetCollectionSchemaResponse) response;
    searchfabric__v1__get_collection_schema_response__init(&response);
    response.schema = sf_catalog_schema_descriptor(row->body, sf_call_arena(read->call));
    if (response.schema == NULL)
        return too_large(sf_call_diag(read->call));
    sf_call_respond(read->call, &response.base);
    return SF_OK;
}

static enum sf_err read_sync(struct read *read, struct sf_sql_conn *conn)
{
    const SF_PB(GetSchemaSyncStatusRequest) *get =
        (const SF_PB(GetSchemaSyncStatusRequest) *)read->request;
    SF_PB(SchemaGenerationRow) *row = NULL;
    enum sf_err err = active_generation(read, conn, get->collection, &row);
    if (err != SF_OK)
        return err;
    SF_ASSERT(row != NULL);
    SF_PB(GetSchemaSyncStatusResponse) response;
    searchfabric__v1__get_schema_sync_status_response__init(&response);
    response.state = row->convergence->state;
    response.applied_schema_version = row->body->schema_version;
    response.applied_schema_generation_token = row->body->schema_generation_token;
    sf_call_respond(read->call, &response.base);
    return SF_OK;
}

static enum sf_err read_binding(struct read *read, struct sf_sql_conn *conn)
{
    const SF_PB(ResolveCollectionNameBindingRequest) *get =
        (const SF_PB(ResolveCollectionNameBindingRequest) *)read->request;
    struct sf_arena *arena = sf_call_arena(read->call);
    struct sf_diag *diag = sf_call_diag(read->call);
    SF_PB(NamespaceRow) *ns = NULL;
    SF_PB(CollectionRow) *row = NULL;
    enum sf_err err =
        sf_catalog_sql_namespace(conn, get->name_binding->namespace_id, arena, diag, &ns);
    if (err == SF_OK && !readable_namespace(ns))
        return not_found(diag, "namespace");
    if (err == SF_OK)
        err =
            sf_catalog_sql_collection_named(conn, get->name_binding->namespace_id,
                                            get->name_binding->collection_name, arena, diag, &row);
    if (err != SF_OK)
        return err;
    SF_PB(ResolveCollectionNameBindingResponse) response;
    searchfabric__v1__resolve_collection_name_binding_response__init(&response);
    response.collection = active_collection(row) ? row->collection : NULL;
    response.collection_name_binding_revision = ns->collection_name_binding_revision;
    sf_call_respond(read->call, &response.base);
    return SF_OK;
}

/* Admission facts, answered and kept in memory. `version` was read before the snapshot. */
static enum sf_err read_admission(struct read *read, struct sf_sql_conn *conn, uint64_t version)
{
    const SF_PB(GetCollectionAdmissionStateRequest) *get =
        (const SF_PB(GetCollectionAdmissionStateRequest) *)read->request;
    struct sf_diag *diag = sf_call_diag(read->call);
    uint64_t namespace_id = get->collection->namespace_id;
    uint64_t collection_id = get->collection->collection_id;
    struct sf_catalog_admission *entry = sf_calloc(1, sizeof(*entry));
    entry->arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    SF_PB(NamespaceRow) *ns = NULL;
    SF_PB(CollectionRow) *row = NULL;
    SF_PB(SchemaGenerationRow) *active = NULL;
    SF_PB(SchemaGenerationRow) *ready = NULL;
    enum sf_err err = sf_catalog_sql_namespace(conn, namespace_id, entry->arena, diag, &ns);
    if (err == SF_OK)
        err =
            sf_catalog_sql_collection(conn, namespace_id, collection_id, entry->arena, diag, &row);
    if (err == SF_OK && (ns == NULL || row == NULL))
        err = not_found(diag, "collection");
    if (err == SF_OK && row != NULL && row->_active_schema_version_case != 0)
        err = sf_catalog_sql_generation(conn, namespace_id, collection_id,
                                        SF_CATALOG_GENERATION_VERSION, row->active_schema_version,
                                        NULL, entry->arena, diag, &active);
    if (err == SF_OK)
        err = sf_catalog_sql_generation(conn, namespace_id, collection_id,
                                        SF_CATALOG_GENERATION_READY, 0, NULL, entry->arena, diag,
                                        &ready);
    if (err == SF_OK)
        entry->state = sf_catalog_admission_build(row, active, ready, entry->arena);
    if (err == SF_OK && entry->state == NULL)
        err = too_large(diag);
    if (err != SF_OK) {
        sf_catalog_admission_destroy(entry);
        return err;
    }
    SF_ASSERT(ns != NULL);
    sf_catalog_admission_respond(read->call, get, entry->state,
                                 ns->collection_name_binding_revision);
    sf_catalog_state_keep(read->catalog, version, entry, ns->collection_name_binding_revision);
    return SF_OK;
}

static enum sf_err run_in_snapshot(struct read *read, struct sf_sql_conn *conn, uint64_t version)
{
    switch (read->kind) {
    case SF_CATALOG_READ_NAMESPACE:
        return read_namespace(read, conn);
    case SF_CATALOG_READ_NAMESPACES:
        return list_namespaces(read, conn);
    case SF_CATALOG_READ_COLLECTION:
        return read_collection(read, conn);
    case SF_CATALOG_READ_COLLECTIONS:
        return list_collections(read, conn);
    case SF_CATALOG_READ_SCHEMA:
        return read_schema(read, conn);
    case SF_CATALOG_READ_SYNC:
        return read_sync(read, conn);
    case SF_CATALOG_READ_BINDING:
        return read_binding(read, conn);
    default:
        return read_admission(read, conn, version);
    }
}

/* ---- tasks -------------------------------------------------------------------------------- */

/* The collection whose lane the read needs, or NULL. */
static const SF_PB(CollectionRef) * lane_collection(const struct read *read)
{
    switch (read->kind) {
    case SF_CATALOG_READ_SYNC:
        return ((const SF_PB(GetSchemaSyncStatusRequest) *)read->request)->collection;
    case SF_CATALOG_READ_ADMISSION:
        return ((const SF_PB(GetCollectionAdmissionStateRequest) *)read->request)->collection;
    case SF_CATALOG_READ_SIGNAL:
        return ((const SF_PB(ReportSchemaConvergenceSignalRequest) *)read->request)->collection;
    default:
        return NULL;
    }
}

static enum sf_err run_signal(struct read *read)
{
    SF_PB(ReportSchemaConvergenceSignalResponse) response;
    searchfabric__v1__report_schema_convergence_signal_response__init(&response);
    bool changed = false;
    enum sf_err err = sf_catalog_signal(
        read->catalog, (const SF_PB(ReportSchemaConvergenceSignalRequest) *)read->request,
        sf_call_arena(read->call), sf_call_diag(read->call), &response.state, &changed);
    response.changed = changed;
    if (err == SF_OK)
        sf_call_respond(read->call, &response.base);
    return err;
}

static enum sf_err run_snapshot(struct read *read)
{
    struct sf_catalog *catalog = read->catalog;
    struct sf_diag *diag = sf_call_diag(read->call);
    uint64_t version = sf_catalog_state_version(catalog);
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, diag);
    if (err == SF_OK)
        err = sf_catalog_sql_look(catalog, conn, diag);
    if (err == SF_OK)
        err = run_in_snapshot(read, conn, version);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    return err;
}

static void read_run(struct sf_task *task)
{
    struct read *read = SF_CONTAINER_OF(task, struct read, task);
    struct sf_catalog *catalog = read->catalog;
    struct sf_diag *diag = sf_call_diag(read->call);
    const SF_PB(CollectionRef) *ref = lane_collection(read);
    sf_diag_init(diag);
    enum sf_err err = SF_OK;
    if (read->kind == SF_CATALOG_READ_SIGNAL) {
        err = run_signal(read);
    } else {
        if (ref != NULL)
            err = sf_catalog_adopt(catalog, ref->namespace_id, ref->collection_id,
                                   sf_call_arena(read->call), diag);
        if (err == SF_OK)
            err = run_snapshot(read);
    }
    if (err != SF_OK) {
        if (diag->err != err)
            sf_diag_set(diag, err, "%s", sf_err_info(err)->meaning);
        sf_catalog_refuse(read->call, diag);
    }
    free(read);
    sf_catalog_leave(catalog);
}

/* Queues a read that was counted in; refuses it when the pool is full. */
static void queue_read(struct sf_catalog *catalog, enum sf_catalog_read_kind kind,
                       struct sf_call *call, const ProtobufCMessage *request)
{
    struct read *read = sf_calloc(1, sizeof(*read));
    *read = (struct read){
        .task.run = read_run, .catalog = catalog, .kind = kind, .call = call, .request = request};
    const SF_PB(CollectionRef) *ref = lane_collection(read);
    uint64_t lane = READ_LANE_TAG + atomic_fetch_add(&catalog->read_turn, 1) % READ_LANES;
    if (ref != NULL)
        lane = sf_catalog_collection_lane(ref->namespace_id, ref->collection_id);
    enum sf_err err = sf_sched_submit(catalog->deps.sched, lane, &read->task);
    if (err == SF_OK)
        return;
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_set(diag, err == SF_ERR_FULL ? SF_RATE_LIMITED : SF_BACKEND_UNAVAILABLE,
                "the catalog takes no more work now");
    if (err == SF_ERR_FULL) {
        sf_diag_detail(diag, "retry_after_ms", "%d", 100);
        sf_diag_detail(diag, "throttled_dimension", "catalog_reads");
        sf_diag_detail(diag, "server_limit", "queued_tasks");
    }
    sf_catalog_refuse(call, diag);
    free(read);
    sf_catalog_leave(catalog);
}

void sf_catalog_read_start(struct sf_catalog *catalog, enum sf_catalog_read_kind kind,
                           struct sf_call *call, const ProtobufCMessage *request)
{
    struct sf_diag *diag = sf_call_diag(call);
    if (!sf_catalog_enter(catalog, kind == SF_CATALOG_READ_SIGNAL, diag)) {
        sf_catalog_refuse(call, diag);
        return;
    }
    queue_read(catalog, kind, call, request);
}

/* ---- admission ---------------------------------------------------------------------------- */

static struct sf_catalog_look *take_looks(struct sf_catalog *catalog)
{
    pthread_mutex_lock(&catalog->state_mu);
    struct sf_catalog_look *list = catalog->look_head;
    catalog->look_head = catalog->look_tail = NULL;
    catalog->look_running = false;
    pthread_mutex_unlock(&catalog->state_mu);
    return list;
}

/* Answers or goes on with each request of the list; `err` is what the look found. */
static void serve_looks(struct sf_catalog *catalog, struct sf_catalog_look *list, enum sf_err err)
{
    while (list != NULL) {
        struct sf_catalog_look *look = list;
        list = look->next;
        if (err != SF_OK) {
            sf_diag_set(sf_call_diag(look->call), err, "the catalog's owner epoch is not known");
            sf_catalog_refuse(look->call, sf_call_diag(look->call));
            sf_catalog_leave(catalog);
        } else if (sf_catalog_state_answer(
                       catalog, look->call,
                       (const SF_PB(GetCollectionAdmissionStateRequest) *)look->request)) {
            sf_catalog_leave(catalog);
        } else {
            queue_read(catalog, SF_CATALOG_READ_ADMISSION, look->call, look->request);
        }
        free(look);
    }
}

struct look_task {
    struct sf_task task;
    struct sf_catalog *catalog;
};

static void look_run(struct sf_task *task)
{
    struct look_task *self = SF_CONTAINER_OF(task, struct look_task, task);
    struct sf_catalog *catalog = self->catalog;
    struct sf_diag diag;
    sf_diag_init(&diag);
    free(self);
    struct sf_catalog_look *list = take_looks(catalog);
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, &diag);
    if (err == SF_OK)
        err = sf_catalog_sql_look(catalog, conn, &diag);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    serve_looks(catalog, list, err);
}

static void wait_for_look(struct sf_catalog *catalog, struct sf_call *call,
                          const ProtobufCMessage *request)
{
    struct sf_catalog_look *look = sf_calloc(1, sizeof(*look));
    look->call = call;
    look->request = request;
    pthread_mutex_lock(&catalog->state_mu);
    if (catalog->look_tail != NULL)
        catalog->look_tail->next = look;
    else
        catalog->look_head = look;
    catalog->look_tail = look;
    bool submit = !catalog->look_running;
    catalog->look_running = true;
    pthread_mutex_unlock(&catalog->state_mu);
    if (!submit)
        return;
    struct look_task *task = sf_calloc(1, sizeof(*task));
    task->task.run = look_run;
    task->catalog = catalog;
    enum sf_err err = sf_sched_submit(catalog->deps.sched, LOOK_LANE, &task->task);
    if (err != SF_OK) {
        free(task);
        serve_looks(catalog, take_looks(catalog), SF_ERR_UNAVAILABLE);
    }
}

void sf_catalog_admission_start(struct sf_catalog *catalog, struct sf_call *call,
                                const SF_PB(GetCollectionAdmissionStateRequest) * request)
{
    struct sf_diag *diag = sf_call_diag(call);
    if (!sf_catalog_enter(catalog, false, diag)) {
        sf_catalog_refuse(call, diag);
        return;
    }
    if (!catalog->deps.store->exclusive && !SF_MUTANT(ccs_no_epoch_look)) {
        wait_for_look(catalog, call, &request->base);
        return;
    }
    if (sf_catalog_state_answer(catalog, call, request))
        sf_catalog_leave(catalog);
    else
        queue_read(catalog, SF_CATALOG_READ_ADMISSION, call, &request->base);
}
