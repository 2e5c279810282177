/*
 * Model: GetCollectionStatistics is answered from rows alone, checked in one order (OP-42): what
 * the request says of itself, schema bootstrap, convergence, freshness, fields, tuples. It runs on
 * the collection's lane, which adopts the convergence block first. Rows that are missing are
 * restored from head and snapshot objects before anything is answered (note 9.2).
 */
#include "catalog/catalog_rules.h"
#include "catalog/catalog_statistics.h"

#include <inttypes.h>

#include "searchfabric/v1/catalog_operations_private.pb-c.h"

/* ---- pure --------------------------------------------------------------------------------- */

static enum sf_err entry_fault(struct sf_diag *diag, const char *field, size_t index,
                               const char *violation, const char *message)
{
    sf_diag_bad_field(diag, field, violation, "%s", message);
    sf_diag_detail(diag, "entry_index", "%zu", index);
    return SF_BAD_REQUEST;
}

/* A field path of the entry `index`: as long as a declared name may be. */
static enum sf_err check_path(const char *field, size_t index, const char *path,
                              struct sf_diag *diag)
{
    enum sf_err err =
        sf_identity_check(field, sf_view_str(path), 1, SF_CATALOG_FIELD_NAME_SCALARS, diag);
    if (err != SF_OK)
        sf_diag_detail(diag, "entry_index", "%zu", index);
    return err;
}

enum sf_err sf_catalog_statistics_check(const SF_PB(GetCollectionStatisticsRequest) * request,
                                        struct sf_diag *diag)
{
    if (request->n_target_fields == 0 && request->n_extended_requests != 0)
        return sf_diag_bad_field(diag, "extended_requests", "forbidden",
                                 "without target_fields no tuples may be asked for");
    if (request->n_target_fields > SF_CATALOG_STATISTICS_FIELDS)
        return sf_diag_bad_field(diag, "target_fields", "too_many", "at most %d fields",
                                 SF_CATALOG_STATISTICS_FIELDS);
    if (request->n_extended_requests > SF_CATALOG_STATISTICS_TUPLES)
        return sf_diag_bad_field(diag, "extended_requests", "too_many", "at most %d tuples",
                                 SF_CATALOG_STATISTICS_TUPLES);
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < request->n_target_fields && err == SF_OK; i++)
        err = check_path("target_fields", i, request->target_fields[i], diag);
    for (size_t i = 0; i < request->n_extended_requests && err == SF_OK; i++) {
        const SF_PB(ExtendedStatisticsRequest) *tuple = request->extended_requests[i];
        if (tuple->n_field_paths == 0)
            return entry_fault(diag, "extended_requests", i, "empty", "a tuple is not empty");
        if (tuple->n_field_paths > SF_CATALOG_TUPLE_PATHS)
            return entry_fault(diag, "extended_requests", i, "too_many", "a tuple has 2..8 paths");
        for (size_t k = 0; k < tuple->n_field_paths && err == SF_OK; k++)
            err = check_path("extended_requests", i, tuple->field_paths[k], diag);
    }
    return err;
}

bool sf_catalog_statistics_fresh(int64_t collected_at_unix_ms, uint64_t max_staleness_ms,
                                 int64_t now_unix_ms)
{
    if (max_staleness_ms == 0 || now_unix_ms <= collected_at_unix_ms)
        return true;
    return (uint64_t)now_unix_ms - (uint64_t)collected_at_unix_ms <= max_staleness_ms;
}

/* Position of a declared field, SIZE_MAX = not declared. Field statistics stand in byte order. */
static size_t find_field(const SF_PB(OptimizerStatisticsSnapshotObject) * snapshot,
                         const char *name)
{
    size_t low = 0, high = snapshot->n_field_stats;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, snapshot->field_stats[middle]->field_name);
        if (order == 0)
            return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return SIZE_MAX;
}

static enum sf_err fill_fields(const SF_PB(OptimizerStatisticsSnapshotObject) * snapshot,
                               const SF_PB(GetCollectionStatisticsRequest) * request,
                               struct sf_arena *arena, struct sf_diag *diag,
                               SF_PB(GetCollectionStatisticsResponse) * out)
{
    size_t declared = snapshot->n_field_stats;
    bool *asked = sf_arena_alloc(arena, (declared + 1) * sizeof(*asked));
    out->field_stats = sf_arena_alloc(arena, (declared + 1) * sizeof(*out->field_stats));
    if (asked == NULL || out->field_stats == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    memset(asked, 0, (declared + 1) * sizeof(*asked));
    for (size_t i = 0; i < request->n_target_fields; i++) {
        size_t at = find_field(snapshot, request->target_fields[i]);
        if (at == SIZE_MAX)
            return entry_fault(diag, "target_fields", i, "unknown",
                               "the serving schema generation does not declare the field");
        asked[at] = true;
    }
    for (size_t i = 0; i < declared; i++) {
        if (asked[i])
            out->field_stats[out->n_field_stats++] = snapshot->field_stats[i];
    }
    return SF_OK;
}

static enum sf_err fill_tuples(const SF_PB(OptimizerStatisticsSnapshotObject) * snapshot,
                               const SF_PB(GetCollectionStatisticsRequest) * request,
                               struct sf_arena *arena, struct sf_diag *diag,
                               SF_PB(GetCollectionStatisticsResponse) * out)
{
    size_t count = request->n_extended_requests;
    out->extended_stats = sf_arena_alloc(arena, (count + 1) * sizeof(*out->extended_stats));
    if (out->extended_stats == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    for (size_t i = 0; i < count; i++) {
        const SF_PB(ExtendedStatisticsRequest) *asked = request->extended_requests[i];
        SF_PB(ExtendedStatistics) *found = NULL;
        for (size_t k = 0; k < snapshot->n_extended_stats && found == NULL; k++) {
            SF_PB(ExtendedStatistics) *tuple = snapshot->extended_stats[k];
            if (sf_catalog_tuple_compare(tuple->field_paths, tuple->n_field_paths,
                                         asked->field_paths, asked->n_field_paths) == 0)
                found = tuple;
        }
        if (found == NULL)
            return entry_fault(diag, "extended_requests", i, "unknown",
                               "the tuple is not of the family that the schema declares");
        out->extended_stats[out->n_extended_stats++] = found;
    }
    return SF_OK;
}

enum sf_err sf_catalog_statistics_fill(const SF_PB(OptimizerStatisticsSnapshotObject) * snapshot,
                                       const SF_PB(GetCollectionStatisticsRequest) * request,
                                       struct sf_arena *arena, struct sf_diag *diag,
                                       SF_PB(GetCollectionStatisticsResponse) * out_response)
{
    searchfabric__v1__get_collection_statistics_response__init(out_response);
    out_response->applied_schema_version = snapshot->applied_schema_version;
    out_response->applied_schema_generation_token = snapshot->applied_schema_generation_token;
    out_response->collected_at_unix_ms = snapshot->collected_at_unix_ms;
    out_response->collection_stats = snapshot->collection_stats;
    enum sf_err err = fill_fields(snapshot, request, arena, diag, out_response);
    if (err == SF_OK)
        err = fill_tuples(snapshot, request, arena, diag, out_response);
    return err;
}

/* ---- rows --------------------------------------------------------------------------------- */

/* The head row; *out_found false without one. */
struct head_row {
    const char *token; /* in the arena */
    uint64_t stats_commit_ts;
    int64_t collected_at_unix_ms;
};

static enum sf_err read_head_row(struct sf_sql_conn *conn, const SF_PB(CollectionRef) * ref,
                                 struct sf_arena *arena, struct sf_diag *diag,
                                 struct head_row *out_head, bool *out_found)
{
    struct sf_sql_stmt *stmt;
    *out_found = false;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT latest_applied_schema_generation_token,"
                                     " latest_stats_commit_ts, latest_collected_at_unix_ms"
                                     " FROM collection_statistics_heads"
                                     " WHERE namespace_id = ?1 AND collection_id = ?2",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, ref->namespace_id);
    sf_sql_bind_u64(stmt, 2, ref->collection_id);
    err = sf_sql_step(stmt, diag, out_found);
    if (err == SF_OK && *out_found)
        *out_head = (struct head_row){.token = sf_arena_str(arena, sf_sql_col_text(stmt, 0)),
                                      .stats_commit_ts = sf_sql_col_u64(stmt, 1),
                                      .collected_at_unix_ms = sf_sql_col_i64(stmt, 2)};
    sf_sql_finish(stmt);
    return err;
}

/* The snapshot that the head names. */
static enum sf_err read_snapshot(struct sf_sql_conn *conn, const SF_PB(CollectionRef) * ref,
                                 const char *token, uint64_t stats_commit_ts,
                                 struct sf_arena *arena, struct sf_diag *diag,
                                 SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot)
{
    struct sf_sql_stmt *stmt;
    *out_snapshot = NULL;
    enum sf_err err = sf_catalog_sql_statistics_prepare(
        conn, SF_CATALOG_STATISTICS_SELECT " AND stats_commit_ts = ?4", ref, token, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 4, stats_commit_ts);
    return sf_catalog_sql_one_message(
        stmt, &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor, arena, diag,
        out_snapshot);
}

/* The newest snapshot of a generation that was collected within the budget; NULL = none. After a
 * clock that was set back that need not be the head's. */
static enum sf_err read_fresh(struct sf_sql_conn *conn, const SF_PB(CollectionRef) * ref,
                              const char *token, int64_t oldest_unix_ms, struct sf_arena *arena,
                              struct sf_diag *diag,
                              SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot)
{
    struct sf_sql_stmt *stmt;
    *out_snapshot = NULL;
    enum sf_err err = sf_catalog_sql_statistics_prepare(
        conn,
        SF_CATALOG_STATISTICS_SELECT
        " AND collected_at_unix_ms >= ?4 ORDER BY stats_commit_ts DESC LIMIT 1",
        ref, token, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_i64(stmt, 4, oldest_unix_ms);
    return sf_catalog_sql_one_message(
        stmt, &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor, arena, diag,
        out_snapshot);
}

/* ---- the call ----------------------------------------------------------------------------- */

/* One answer on its way. */
struct answer {
    const SF_PB(GetCollectionStatisticsRequest) * request;
    struct sf_call *call;
    bool missing; /* rows of the serving generation are not there */
};

static enum sf_err not_fresh(const struct head_row *head, uint64_t max_staleness_ms,
                             struct sf_diag *diag)
{
    sf_diag_set(diag, SF_CATALOG_UNAVAILABLE, "no statistics snapshot is fresh enough");
    sf_diag_detail(diag, "catalog_unavailable_reason", "statistics_freshness");
    sf_diag_detail(diag, "max_staleness_ms", "%" PRIu64, max_staleness_ms);
    sf_diag_detail(diag, "latest_stats_commit_ts", "%" PRIu64, head->stats_commit_ts);
    sf_diag_detail(diag, "latest_stats_collected_at_unix_ms", "%" PRId64,
                   head->collected_at_unix_ms);
    return SF_CATALOG_UNAVAILABLE;
}

/* The serving generation of an active collection, or the refusal. */
static enum sf_err serving_generation(struct sf_sql_conn *conn, const SF_PB(CollectionRef) * ref,
                                      struct sf_arena *arena, struct sf_diag *diag,
                                      SF_PB(SchemaGenerationRow) * *out_ready)
{
    SF_PB(CollectionRow) *row = NULL;
    enum sf_err err =
        sf_catalog_sql_collection(conn, ref->namespace_id, ref->collection_id, arena, diag, &row);
    if (err != SF_OK)
        return err;
    if (row == NULL || row->lifecycle_state != SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE))
        return sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such active collection");
    if (row->_active_schema_version_case == 0)
        return sf_catalog_bootstrap_refusal(diag);
    err = sf_catalog_sql_generation(conn, ref->namespace_id, ref->collection_id,
                                    SF_CATALOG_GENERATION_READY, 0, NULL, arena, diag, out_ready);
    if (err == SF_OK && *out_ready == NULL)
        return sf_catalog_convergence_refusal(diag);
    return err;
}

static enum sf_err answer_rows(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                               struct sf_diag *diag)
{
    struct answer *answer = arg;
    struct sf_arena *arena = sf_call_arena(answer->call);
    const SF_PB(CollectionRef) *ref = answer->request->collection;
    SF_PB(SchemaGenerationRow) *ready = NULL;
    SF_PB(OptimizerStatisticsSnapshotObject) *snapshot = NULL;
    struct head_row head = {0};
    bool found = false;
    answer->missing = false;
    enum sf_err err = serving_generation(conn, ref, arena, diag, &ready);
    if (err == SF_OK)
        err = read_head_row(conn, ref, arena, diag, &head, &found);
    if (err == SF_OK && found)
        err = read_snapshot(conn, ref, head.token, head.stats_commit_ts, arena, diag, &snapshot);
    if (err != SF_OK)
        return err;
    SF_ASSERT(ready != NULL);
    if (snapshot == NULL || strcmp(head.token, ready->body->schema_generation_token) != 0) {
        answer->missing = true;
        return sf_diag_set(diag, SF_ERR_UNAVAILABLE, "the statistics rows are not restored");
    }
    int64_t now = sf_clock_unix_ms(catalog->deps.clock);
    uint64_t budget = answer->request->max_staleness_ms;
    if (!sf_catalog_statistics_fresh(snapshot->collected_at_unix_ms, budget, now)) {
        /* the budget is below an age, so it fits */
        err = read_fresh(conn, ref, head.token, now - (int64_t)budget, arena, diag, &snapshot);
        if (err == SF_OK && snapshot == NULL)
            err = not_fresh(&head, budget, diag);
        if (err != SF_OK)
            return err;
    }
    SF_PB(GetCollectionStatisticsResponse) response;
    err = sf_catalog_statistics_fill(snapshot, answer->request, arena, diag, &response);
    if (err == SF_OK)
        sf_call_respond(answer->call, &response.base);
    return err;
}

enum sf_err sf_catalog_statistics_run(struct sf_catalog *catalog, struct sf_call *call,
                                      const ProtobufCMessage *request)
{
    struct answer answer = {.request = (const SF_PB(GetCollectionStatisticsRequest) *)request,
                            .call = call};
    const SF_PB(CollectionRef) *ref = answer.request->collection;
    struct sf_arena *arena = sf_call_arena(call);
    struct sf_diag *diag = sf_call_diag(call);
    enum sf_err err =
        sf_catalog_adopt_alone(catalog, ref->namespace_id, ref->collection_id, arena, diag);
    if (err == SF_OK)
        err = sf_catalog_projectors_read(catalog, answer_rows, &answer, diag);
    if (err == SF_OK || !answer.missing)
        return err;
    sf_diag_init(diag);
    err = sf_catalog_statistics_repair(catalog, ref, arena, diag);
    if (err == SF_OK)
        err = sf_catalog_projectors_read(catalog, answer_rows, &answer, diag);
    return err;
}

/* ---- for operators ------------------------------------------------------------------------ */

#define SHOWN 100 /* snapshots of one answer */

/* What `sfctl stats show` prints. */
struct shown {
    const SF_PB(CollectionRef) * ref;
    struct sf_arena *arena;
    SF_PB(ShowStatisticsResponse) response;
};

static enum sf_err show_rows(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                             struct sf_diag *diag)
{
    struct shown *shown = arg;
    struct sf_sql_stmt *stmt;
    (void)catalog;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT snapshot_json FROM collection_statistics_snapshots"
                                     " WHERE namespace_id = ?1 AND collection_id = ?2"
                                     " ORDER BY applied_schema_version DESC, stats_commit_ts DESC"
                                     " LIMIT 100",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, shown->ref->namespace_id);
    sf_sql_bind_u64(stmt, 2, shown->ref->collection_id);
    shown->response.snapshots = sf_arena_alloc(shown->arena, SHOWN * sizeof(void *));
    while (shown->response.snapshots != NULL) {
        SF_PB(OptimizerStatisticsSnapshotObject) *snapshot = NULL;
        err = sf_catalog_sql_next_statistics(stmt, shown->arena, diag, &snapshot);
        if (err != SF_OK || snapshot == NULL)
            break;
        snapshot->n_field_stats = 0;
        shown->response.snapshots[shown->response.n_snapshots++] = snapshot;
    }
    sf_sql_finish(stmt);
    return err;
}

/* The head's row as the object that it mirrors. */
static enum sf_err show_head(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                             struct sf_diag *diag)
{
    struct shown *shown = arg;
    struct head_row row;
    bool found = false;
    (void)catalog;
    enum sf_err err = read_head_row(conn, shown->ref, shown->arena, diag, &row, &found);
    if (err != SF_OK || !found)
        return err;
    SF_PB(OptimizerStatisticsHeadObject) *head = sf_arena_alloc(shown->arena, sizeof(*head));
    if (head == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    searchfabric__v1__optimizer_statistics_head_object__init(head);
    head->collection = (SF_PB(CollectionRef) *)(uintptr_t)shown->ref;
    head->latest_applied_schema_generation_token = (char *)(uintptr_t)row.token;
    head->latest_stats_commit_ts = row.stats_commit_ts;
    head->latest_collected_at_unix_ms = row.collected_at_unix_ms;
    shown->response.head = head;
    return SF_OK;
}

enum sf_err sf_catalog_statistics_show_run(struct sf_catalog *catalog, struct sf_call *call,
                                           const ProtobufCMessage *request)
{
    struct shown shown = {.ref = ((const SF_PB(ShowStatisticsRequest) *)request)->collection,
                          .arena = sf_call_arena(call)};
    struct sf_diag *diag = sf_call_diag(call);
    searchfabric__v1__show_statistics_response__init(&shown.response);
    enum sf_err err = sf_catalog_projectors_read(catalog, show_head, &shown, diag);
    if (err == SF_OK)
        err = sf_catalog_projectors_read(catalog, show_rows, &shown, diag);
    if (err == SF_OK)
        sf_call_respond(call, &shown.response.base);
    return err;
}
