/*
 * Model: the lifecycle's garbage collection. A sweep walks the tombstones whose horizon has passed,
 * in the order of their horizons and by an index, judges each in the snapshot that found it, and
 * submits the release intents of those that nothing keeps, collections before namespaces, so that a
 * namespace may go in the same sweep as its last collection. It looks at a bounded number; the next
 * one goes on behind them, or behind what failed, so that nothing hides what comes after it: names
 * that a condition keeps for long, or one that is broken. Without a tombstone that is due it reads
 * two index ranges and asks the store for nothing.
 */
#include "catalog/catalog_job.h"
#include "catalog/catalog_lifecycle.h"

#include <stdlib.h>

#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define SWEEP_PAGE 100

struct sweep {
    struct sf_catalog *catalog;
    struct sf_sched *sched;
    struct sf_diag *diag;
    struct sf_arena *arena; /* of one page */
    uint64_t namespace_id;  /* 0 = all */
    uint32_t limit;         /* names */
    uint32_t looked;        /* lineages judged */
    int64_t now_unix_ms;
    struct sf_catalog_sweep_place at;
    struct sf_catalog_swept *out;
};

/* A lineage of the page at hand. */
struct due {
    SF_PB(NamespaceRow) * ns;
    SF_PB(CollectionRow) * collection; /* NULL = the namespace itself */
    bool blocked;
    bool failed; /* broken rows */
};

/* Reads the ids of one page behind the cursor; *out_count below SWEEP_PAGE ends the walk. */
static enum sf_err read_page(struct sweep *s, struct sf_sql_conn *conn,
                             struct sf_catalog_sweep_place *out, size_t *out_count)
{
    struct sf_sql_stmt *stmt;
    bool row = false;
    const char *sql =
        !s->at.of_namespaces
            ? "SELECT gc_after_unix_ms, namespace_id, collection_id FROM collections"
              " WHERE gc_after_unix_ms <= ?1 AND (gc_after_unix_ms > ?2 OR (gc_after_unix_ms = ?2"
              " AND (namespace_id > ?3 OR (namespace_id = ?3 AND collection_id > ?4))))"
              " AND (?5 = 0 OR namespace_id = ?6)"
              " ORDER BY gc_after_unix_ms, namespace_id, collection_id LIMIT ?7"
            : "SELECT lifecycle_gc_after_unix_ms, namespace_id, 0 FROM namespaces"
              " WHERE lifecycle_gc_after_unix_ms <= ?1 AND (lifecycle_gc_after_unix_ms > ?2"
              " OR (lifecycle_gc_after_unix_ms = ?2 AND namespace_id > ?3))"
              " AND (?4 = 0 OR namespace_id = ?5)"
              " ORDER BY lifecycle_gc_after_unix_ms, namespace_id LIMIT ?6";
    *out_count = 0;
    enum sf_err err = sf_sql_prepare(conn, sql, s->diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_i64(stmt, 1, SF_MUTANT(ccs_release_early) ? INT64_MAX : s->now_unix_ms);
    sf_sql_bind_i64(stmt, 2, s->at.begun ? s->at.horizon_unix_ms : INT64_MIN);
    sf_sql_bind_u64(stmt, 3, s->at.namespace_id);
    int next = 4;
    if (!s->at.of_namespaces)
        sf_sql_bind_u64(stmt, next++, s->at.collection_id);
    sf_sql_bind_i64(stmt, next++, s->namespace_id == 0 ? 0 : 1);
    sf_sql_bind_u64(stmt, next++, s->namespace_id);
    sf_sql_bind_i64(stmt, next, SWEEP_PAGE);
    while (err == SF_OK && (err = sf_sql_step(stmt, s->diag, &row)) == SF_OK && row) {
        struct sf_catalog_sweep_place *found = &out[(*out_count)++];
        *found = s->at;
        found->begun = true;
        found->horizon_unix_ms = sf_sql_col_i64(stmt, 0);
        found->namespace_id = sf_sql_col_u64(stmt, 1);
        found->collection_id = !s->at.of_namespaces ? sf_sql_col_u64(stmt, 2) : 0;
    }
    return err;
}

/* Reads and judges one lineage of the page. */
static enum sf_err judge(struct sweep *s, struct sf_sql_conn *conn,
                         const struct sf_catalog_sweep_place *at, struct due *out)
{
    size_t index = 0;
    const char *blocked_by = NULL;
    *out = (struct due){.blocked = true};
    enum sf_err err = sf_catalog_sql_namespace(conn, at->namespace_id, s->arena, s->diag, &out->ns);
    if (err == SF_OK && !s->at.of_namespaces)
        err = sf_catalog_sql_collection(conn, at->namespace_id, at->collection_id, s->arena,
                                        s->diag, &out->collection);
    if (err != SF_OK || out->ns == NULL || (!s->at.of_namespaces && out->collection == NULL))
        return err;
    const struct sf_catalog_reservation reservation = {.catalog = s->catalog,
                                                       .conn = conn,
                                                       .arena = s->arena,
                                                       .ns = out->ns,
                                                       .collection = out->collection,
                                                       .now_unix_ms = s->now_unix_ms};
    err = sf_catalog_release_blocked(&reservation, s->diag, &index, &blocked_by);
    out->blocked = blocked_by != NULL;
    return err;
}

/* Counts a lineage that is broken and takes the failure out of the way. */
static void set_aside(struct sweep *s)
{
    if (s->out->failed++ == 0)
        s->out->first = *s->diag;
    sf_diag_init(s->diag);
}

/* Submits the release of one lineage; a condition that closed meanwhile keeps it. */
static enum sf_err release(struct sweep *s, const struct due *due)
{
    enum sf_err err;
    if (due->collection != NULL) {
        SF_PB(CollectionNameReservationReleaseIntent) intent;
        searchfabric__v1__collection_name_reservation_release_intent__init(&intent);
        intent.namespace_id = due->collection->collection->namespace_id;
        intent.collection_id = due->collection->collection->collection_id;
        intent.collection_name = due->collection->collection_name;
        intent.releasing_collection_name_allocation_epoch =
            due->collection->collection_name_allocation_epoch;
        intent.release_cutoff_unix_ms = due->collection->gc_after_unix_ms;
        err = sf_catalog_intend(s->catalog, &sf_catalog_release_collection, &intent.base, s->arena,
                                s->diag, NULL);
    } else {
        SF_PB(NamespaceNameReservationReleaseIntent) intent;
        searchfabric__v1__namespace_name_reservation_release_intent__init(&intent);
        intent.namespace_id = due->ns->namespace_id;
        intent.namespace_name = due->ns->namespace_name;
        intent.releasing_namespace_name_allocation_epoch = due->ns->namespace_name_allocation_epoch;
        intent.release_cutoff_unix_ms = due->ns->lifecycle_gc_after_unix_ms;
        err = sf_catalog_intend(s->catalog, &sf_catalog_release_namespace, &intent.base, s->arena,
                                s->diag, NULL);
    }
    if (err == SF_VERSION_CONFLICT || err == SF_RESOURCE_NOT_FOUND) {
        sf_diag_init(s->diag);
        s->out->kept++;
        return SF_OK;
    }
    if (sf_catalog_own_fault(err)) {
        set_aside(s);
        return SF_OK;
    }
    if (err == SF_OK && due->collection != NULL)
        s->out->collections++;
    else if (err == SF_OK)
        s->out->namespaces++;
    return err;
}

static bool full(const struct sweep *s)
{
    return s->out->collections + s->out->namespaces >= s->limit ||
           s->looked >= SF_CATALOG_SWEEP_LOOKED || sf_catalog_ending(s->catalog);
}

/* One page: found and judged in one snapshot, then released one by one. */
static enum sf_err sweep_page(struct sweep *s, bool *out_more)
{
    struct sf_catalog_sweep_place page[SWEEP_PAGE] = {0};
    struct due due[SWEEP_PAGE];
    size_t count = 0;
    size_t judged = 0;
    sf_arena_reset(s->arena);
    struct sf_sql_conn *conn = sf_sql_acquire(s->catalog->deps.sql, s->sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, s->diag);
    if (err == SF_OK)
        err = sf_catalog_sql_look(s->catalog, conn, s->diag);
    if (err == SF_OK)
        err = read_page(s, conn, page, &count);
    for (; judged < count && err == SF_OK; judged++) {
        err = judge(s, conn, &page[judged], &due[judged]);
        due[judged].failed = sf_catalog_own_fault(err);
        if (due[judged].failed) {
            set_aside(s);
            err = SF_OK;
        }
    }
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    for (size_t i = 0; i < count && err == SF_OK && !full(s); i++) {
        s->looked++;
        s->at = page[i];
        if (due[i].blocked)
            s->out->kept += due[i].failed ? 0 : 1;
        else
            err = release(s, &due[i]);
    }
    *out_more = count == SWEEP_PAGE;
    return err;
}

/* Tombstones whose horizon is still to come. */
static enum sf_err count_waiting(struct sweep *s, const char *sql)
{
    struct sf_sql_stmt *stmt;
    bool row = false;
    struct sf_sql_conn *conn = sf_sql_acquire(s->catalog->deps.sql, s->sched, SF_SQL_READ);
    enum sf_err err = sf_sql_prepare(conn, sql, s->diag, &stmt);
    if (err == SF_OK) {
        sf_sql_bind_i64(stmt, 1, s->now_unix_ms);
        sf_sql_bind_i64(stmt, 2, s->namespace_id == 0 ? 0 : 1);
        sf_sql_bind_u64(stmt, 3, s->namespace_id);
        err = sf_sql_step(stmt, s->diag, &row);
        if (err == SF_OK && row)
            s->out->kept += (uint32_t)sf_sql_col_i64(stmt, 0);
        sf_sql_finish(stmt);
    }
    sf_sql_release(conn);
    return err;
}

/* From s->at on, which ends in front again unless something is left to look at. */
static enum sf_err walk(struct sweep *s)
{
    enum sf_err err = SF_OK;
    bool more = true;
    while (err == SF_OK && !full(s)) {
        err = sweep_page(s, &more);
        if (err == SF_OK && !more && s->at.of_namespaces)
            break;
        if (err == SF_OK && !more)
            s->at = (struct sf_catalog_sweep_place){.only = s->at.only, .of_namespaces = true};
    }
    if (err == SF_OK && s->looked < SF_CATALOG_SWEEP_LOOKED)
        s->at = (struct sf_catalog_sweep_place){.only = s->at.only};
    return err;
}

enum sf_err sf_catalog_sweep(struct sf_catalog *catalog, struct sf_sched *sched,
                             uint64_t namespace_id, uint32_t limit, struct sf_diag *diag,
                             struct sf_catalog_swept *out_swept)
{
    struct sweep s = {.catalog = catalog,
                      .sched = sched,
                      .diag = diag,
                      .arena = sf_arena_new(SF_CATALOG_ARENA_BYTES),
                      .namespace_id = namespace_id,
                      .limit = limit,
                      .now_unix_ms = sf_clock_unix_ms(catalog->deps.clock),
                      .out = out_swept};
    struct sf_catalog_sweep_place *place = &catalog->swept[namespace_id == 0 ? 0 : 1];
    *out_swept = (struct sf_catalog_swept){0};
    s.at = place->only == namespace_id ? *place
                                       : (struct sf_catalog_sweep_place){.only = namespace_id};
    enum sf_err err = walk(&s);
    *place = s.at;
    if (err == SF_OK)
        err = count_waiting(&s, "SELECT COUNT(*) FROM collections WHERE gc_after_unix_ms > ?1"
                                " AND (?2 = 0 OR namespace_id = ?3)");
    if (err == SF_OK)
        err = count_waiting(&s,
                            "SELECT COUNT(*) FROM namespaces WHERE lifecycle_gc_after_unix_ms > ?1"
                            " AND (?2 = 0 OR namespace_id = ?3)");
    sf_arena_destroy(s.arena);
    if (out_swept->collections + out_swept->namespaces != 0)
        SF_LOG(INFO, "catalog_released", SF_KV_U64("namespace_names", out_swept->namespaces),
               SF_KV_U64("collection_names", out_swept->collections),
               SF_KV_U64("kept", out_swept->kept));
    return err;
}

enum sf_err sf_catalog_sweep_job(struct sf_catalog *catalog, struct sf_sched *sched,
                                 struct sf_diag *diag, uint64_t *out_done)
{
    struct sf_catalog_swept swept;
    enum sf_err err = sf_catalog_sweep(catalog, sched, 0, SF_CATALOG_SWEEP_RELEASES, diag, &swept);
    *out_done = swept.collections + swept.namespaces;
    if (err == SF_OK && swept.failed != 0) {
        *diag = swept.first;
        err = swept.first.err;
    }
    return err;
}

/* ---- RPCs --------------------------------------------------------------------------------- */

/* One request on a task of its own. */
struct asked {
    struct sf_task task;
    struct sf_catalog *catalog;
    struct sf_call *call;
    const ProtobufCMessage *request;
};

static void start(struct sf_catalog *catalog, struct sf_call *call, const ProtobufCMessage *request,
                  void (*run)(struct sf_task *task))
{
    struct sf_diag *diag = sf_call_diag(call);
    if (!sf_catalog_enter(catalog, false, diag)) {
        sf_catalog_refuse(call, diag);
        return;
    }
    struct asked *asked = sf_calloc(1, sizeof(*asked));
    *asked = (struct asked){.task.run = run, .catalog = catalog, .call = call, .request = request};
    if (sf_sched_submit(catalog->deps.sched, sf_catalog_job_lane(SF_CATALOG_JOB_QUICK),
                        &asked->task) == SF_OK)
        return;
    free(asked);
    sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "the catalog is busy");
    sf_catalog_refuse(call, diag);
    sf_catalog_leave(catalog);
}

static void end(struct asked *asked, enum sf_err err)
{
    struct sf_catalog *catalog = asked->catalog;
    struct sf_diag *diag = sf_call_diag(asked->call);
    if (err != SF_OK) {
        if (diag->err != err)
            sf_diag_set(diag, err, "%s", sf_err_info(err)->meaning);
        sf_catalog_refuse(asked->call, diag);
    }
    free(asked);
    sf_catalog_leave(catalog);
}

static void run_sweep(struct sf_task *task)
{
    struct asked *asked = SF_CONTAINER_OF(task, struct asked, task);
    const SF_PB(RunReleaseSweepRequest) *run =
        (const SF_PB(RunReleaseSweepRequest) *)asked->request;
    struct sf_catalog *catalog = asked->catalog;
    struct sf_catalog_swept swept;
    enum sf_err err =
        sf_catalog_sweep(catalog, catalog->deps.sched, run->namespace_id,
                         run->max_releases == 0 ? SF_CATALOG_SWEEP_RELEASES : run->max_releases,
                         sf_call_diag(asked->call), &swept);
    SF_PB(RunReleaseSweepResponse) response;
    searchfabric__v1__run_release_sweep_response__init(&response);
    response.released_namespace_names = swept.namespaces;
    response.released_collection_names = swept.collections;
    response.kept = swept.kept;
    response.failed = swept.failed;
    response.first_failure = swept.first.message;
    if (err == SF_OK)
        sf_call_respond(asked->call, &response.base);
    end(asked, err);
}

void sf_catalog_sweep_call(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    sf_diag_init(sf_call_diag(call));
    start(self, call, request, run_sweep);
}

/* Rows of the lineage that is asked for. */
static enum sf_err read_lineage(const struct asked *asked, struct sf_sql_conn *conn,
                                SF_PB(ShowLineageResponse) * out)
{
    const SF_PB(ShowLineageRequest) *show = (const SF_PB(ShowLineageRequest) *)asked->request;
    struct sf_arena *arena = sf_call_arena(asked->call);
    struct sf_diag *diag = sf_call_diag(asked->call);
    uint64_t ns = show->namespace_id;
    enum sf_err err = SF_OK;
    bool of_collection = false;
    switch (show->lookup_case) {
    case SEARCHFABRIC__V1__SHOW_LINEAGE_REQUEST__LOOKUP_NAMESPACE_NAME:
        err = sf_catalog_sql_namespace_named(conn, show->namespace_name, arena, diag,
                                             &out->namespace_row);
        break;
    case SEARCHFABRIC__V1__SHOW_LINEAGE_REQUEST__LOOKUP_COLLECTION:
        of_collection = true;
        ns = show->collection->namespace_id;
        err = sf_catalog_sql_collection(conn, ns, show->collection->collection_id, arena, diag,
                                        &out->collection_row);
        break;
    case SEARCHFABRIC__V1__SHOW_LINEAGE_REQUEST__LOOKUP_NAME_BINDING:
        of_collection = true;
        ns = show->name_binding->namespace_id;
        err = sf_catalog_sql_collection_named(conn, ns, show->name_binding->collection_name, arena,
                                              diag, &out->collection_row);
        break;
    default:
        break;
    }
    if (err == SF_OK && out->namespace_row == NULL && ns != 0)
        err = sf_catalog_sql_namespace(conn, ns, arena, diag, &out->namespace_row);
    if (err == SF_OK &&
        (out->namespace_row == NULL || (of_collection && out->collection_row == NULL)))
        err = sf_diag_set(diag, SF_RESOURCE_NOT_FOUND,
                          out->namespace_row == NULL ? "no such namespace" : "no such collection");
    if (err == SF_OK && of_collection)
        err = sf_catalog_sql_tombstone(conn, ns, out->collection_row->collection->collection_id,
                                       arena, diag, &out->tombstone);
    return err;
}

/* Everything that keeps the lineage's name reserved. */
static enum sf_err list_blocks(const struct asked *asked, struct sf_sql_conn *conn,
                               SF_PB(ShowLineageResponse) * out)
{
    struct sf_arena *arena = sf_call_arena(asked->call);
    const struct sf_catalog_reservation reservation = {
        .catalog = asked->catalog,
        .conn = conn,
        .arena = arena,
        .ns = out->namespace_row,
        .collection = out->collection_row,
        .now_unix_ms = sf_clock_unix_ms(asked->catalog->deps.clock)};
    enum sf_err err = SF_OK;
    size_t index = 0;
    const char *name = "";
    out->release_blocked_by = sf_arena_alloc(arena, 64 * sizeof(*out->release_blocked_by));
    if (out->release_blocked_by == NULL)
        return sf_diag_set(sf_call_diag(asked->call), SF_ERR_LIMIT, "the answer is too large");
    while (err == SF_OK && name != NULL && out->n_release_blocked_by < 64) {
        err = sf_catalog_release_blocked(&reservation, sf_call_diag(asked->call), &index, &name);
        if (err == SF_OK && name != NULL)
            out->release_blocked_by[out->n_release_blocked_by++] = (char *)(uintptr_t)name;
    }
    return err;
}

static void run_lineage(struct sf_task *task)
{
    struct asked *asked = SF_CONTAINER_OF(task, struct asked, task);
    struct sf_catalog *catalog = asked->catalog;
    SF_PB(ShowLineageResponse) response;
    searchfabric__v1__show_lineage_response__init(&response);
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, sf_call_diag(asked->call));
    if (err == SF_OK)
        err = sf_catalog_sql_look(catalog, conn, sf_call_diag(asked->call));
    if (err == SF_OK)
        err = read_lineage(asked, conn, &response);
    if (err == SF_OK)
        err = list_blocks(asked, conn, &response);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    if (err == SF_OK)
        sf_call_respond(asked->call, &response.base);
    end(asked, err);
}

void sf_catalog_lineage_call(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(ShowLineageRequest) *show = (const SF_PB(ShowLineageRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    enum sf_err err = SF_OK;
    switch (show->lookup_case) {
    case SEARCHFABRIC__V1__SHOW_LINEAGE_REQUEST__LOOKUP_NAMESPACE_ID:
        if (show->namespace_id == 0)
            err = sf_diag_bad_field(diag, "namespace_id", "zero", "an id is above 0");
        break;
    case SEARCHFABRIC__V1__SHOW_LINEAGE_REQUEST__LOOKUP_NAMESPACE_NAME:
        err = sf_name_check("namespace_name", sf_view_str(show->namespace_name), false, diag);
        break;
    case SEARCHFABRIC__V1__SHOW_LINEAGE_REQUEST__LOOKUP_COLLECTION:
        err = sf_catalog_ref_check(show->collection, diag);
        break;
    case SEARCHFABRIC__V1__SHOW_LINEAGE_REQUEST__LOOKUP_NAME_BINDING:
        err = sf_catalog_binding_check(show->name_binding, diag);
        break;
    default:
        err = sf_diag_bad_field(diag, "lookup", "missing", "lookup must name a lineage");
        break;
    }
    if (err == SF_OK)
        start(self, call, request, run_lineage);
    else
        sf_catalog_refuse(call, diag);
}
