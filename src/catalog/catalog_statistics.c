/*
 * Model: each cycle of the projector makes one snapshot of a changed collection: totals and field
 * and tuple statistics of its committed manifest, cut to what the serving generation declares,
 * under a fresh timestamp as the frontier that it covers, so that every cycle has an identity of
 * its own. Order: snapshot object, head object, one transaction with the rows. Whoever moves the
 * head holds the collection's gate, so that a signal that changes the serving lineage and a cycle
 * never cross. What a generation declares and nobody computed is said to be not collected, never
 * made up.
 *
 * Rows keep the newest few snapshots; the objects of others go after a while, base and head never.
 */
#include "catalog/catalog_statistics.h"

#include <stdlib.h>

#include "base/pbjson.h"
#include "catalog/catalog_gate.h"
#include "catalog/catalog_rules.h"

/* ---- snapshots ---------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const SF_PB(FieldStatistics) *const *left = a;
    const SF_PB(FieldStatistics) *const *right = b;
    return strcmp((*left)->field_name, (*right)->field_name);
}

static int by_tuple(const void *a, const void *b)
{
    const SF_PB(FieldPathTuple) *const *left = a;
    const SF_PB(FieldPathTuple) *const *right = b;
    return sf_catalog_tuple_compare((*left)->field_paths, (*left)->n_field_paths,
                                    (*right)->field_paths, (*right)->n_field_paths);
}

/* What a manifest has to say of rows; zeroed = there are none. */
struct content {
    uint64_t rows;
    uint64_t bytes;
    const SF_PB(ManifestSummaryObject) * summary; /* NULL = nothing was computed */
};

static struct content content_of(const struct sf_catalog_manifest *manifest)
{
    if (manifest == NULL || manifest->object == NULL)
        return (struct content){0};
    return (struct content){manifest->object->total_rows, manifest->object->total_logical_bytes,
                            manifest->summary};
}

static void fill_field(const struct content *content, SF_PB(FieldStatistics) * field)
{
    const SF_PB(ManifestSummaryObject) *summary = content->summary;
    for (size_t i = 0; content->rows != 0 && summary != NULL && i < summary->n_field_stats; i++) {
        if (strcmp(summary->field_stats[i]->field_name, field->field_name) != 0)
            continue;
        *field = *summary->field_stats[i];
        return;
    }
    field->not_collected = content->rows != 0;
}

/* One entry for each declared field, in byte order. */
static bool build_fields(const SF_PB(CollectionSchemaDefinition) * definition,
                         const struct content *content, struct sf_arena *arena,
                         SF_PB(OptimizerStatisticsSnapshotObject) * out)
{
    size_t count = definition->n_fields;
    SF_PB(FieldStatistics) **list = sf_arena_alloc(arena, (count + 1) * sizeof(*list));
    SF_PB(FieldStatistics) *fields = sf_arena_alloc(arena, (count + 1) * sizeof(*fields));
    if (list == NULL || fields == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        searchfabric__v1__field_statistics__init(&fields[i]);
        fields[i].field_name = definition->fields[i]->name;
        fill_field(content, &fields[i]);
        list[i] = &fields[i];
    }
    qsort(list, count, sizeof(SF_PB(FieldStatistics) *), by_name);
    out->field_stats = list;
    out->n_field_stats = count;
    return true;
}

static void fill_tuple(const struct content *content, SF_PB(ExtendedStatistics) * tuple)
{
    const SF_PB(ManifestSummaryObject) *summary = content->summary;
    for (size_t i = 0; content->rows != 0 && summary != NULL && i < summary->n_extended_stats;
         i++) {
        const SF_PB(ExtendedStatistics) *found = summary->extended_stats[i];
        if (sf_catalog_tuple_compare(found->field_paths, found->n_field_paths, tuple->field_paths,
                                     tuple->n_field_paths) != 0)
            continue;
        *tuple = *found;
        return;
    }
    tuple->not_collected = content->rows != 0;
}

/* The declared family and exactly its statistics, both in tuple order. */
static bool build_tuples(const SF_PB(CollectionSchemaDefinition) * definition,
                         const struct content *content, struct sf_arena *arena,
                         SF_PB(OptimizerStatisticsSnapshotObject) * out)
{
    size_t count = definition->n_extended_statistics;
    SF_PB(FieldPathTuple) **family = sf_arena_alloc(arena, (count + 1) * sizeof(*family));
    SF_PB(FieldPathTuple) *tuples = sf_arena_alloc(arena, (count + 1) * sizeof(*tuples));
    SF_PB(ExtendedStatistics) **list = sf_arena_alloc(arena, (count + 1) * sizeof(*list));
    SF_PB(ExtendedStatistics) *stats = sf_arena_alloc(arena, (count + 1) * sizeof(*stats));
    if (family == NULL || tuples == NULL || list == NULL || stats == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        searchfabric__v1__field_path_tuple__init(&tuples[i]);
        tuples[i].field_paths = definition->extended_statistics[i]->field_paths;
        tuples[i].n_field_paths = definition->extended_statistics[i]->n_field_paths;
        family[i] = &tuples[i];
    }
    qsort(family, count, sizeof(SF_PB(FieldPathTuple) *), by_tuple);
    for (size_t i = 0; i < count; i++) {
        searchfabric__v1__extended_statistics__init(&stats[i]);
        stats[i].field_paths = family[i]->field_paths;
        stats[i].n_field_paths = family[i]->n_field_paths;
        fill_tuple(content, &stats[i]);
        list[i] = &stats[i];
    }
    out->declared_tuples = family;
    out->n_declared_tuples = count;
    out->extended_stats = list;
    out->n_extended_stats = count;
    return true;
}

SF_PB(OptimizerStatisticsSnapshotObject) *
    sf_catalog_statistics_build(struct sf_catalog *catalog,
                                const SF_PB(SchemaGenerationBody) * body,
                                const struct sf_catalog_manifest *manifest,
                                uint64_t stats_commit_ts, struct sf_arena *arena)
{
    const struct content content = content_of(manifest);
    SF_PB(OptimizerStatisticsSnapshotObject) *out = sf_arena_alloc(arena, sizeof(*out));
    SF_PB(CollectionStatistics) *stats = sf_arena_alloc(arena, sizeof(*stats));
    char *attempt_id = sf_arena_alloc(arena, SF_ATTEMPT_ID_BYTES);
    if (out == NULL || stats == NULL || attempt_id == NULL)
        return NULL;
    searchfabric__v1__optimizer_statistics_snapshot_object__init(out);
    searchfabric__v1__collection_statistics__init(stats);
    sf_attempts_next(catalog->deps.attempts, attempt_id);
    stats->row_count = content.rows;
    stats->logical_bytes = content.bytes;
    out->format_version = SF_CATALOG_FORMAT_VERSION;
    out->attempt_id = attempt_id;
    out->owner_epoch = catalog->owner_epoch;
    out->collection = body->collection;
    out->applied_schema_version = body->schema_version;
    out->applied_schema_generation_token = body->schema_generation_token;
    out->stats_commit_ts = stats_commit_ts;
    out->collected_at_unix_ms = sf_clock_unix_ms(catalog->deps.clock);
    out->collection_stats = stats;
    if (!build_fields(body->definition, &content, arena, out) ||
        !build_tuples(body->definition, &content, arena, out))
        return NULL;
    return out;
}

enum sf_err sf_catalog_statistics_base(struct sf_catalog *catalog, struct sf_sched *sched,
                                       const SF_PB(SchemaGenerationBody) * body,
                                       struct sf_arena *arena, struct sf_diag *diag,
                                       SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot)
{
    SF_PB(OptimizerStatisticsSnapshotObject) *snapshot =
        sf_catalog_statistics_build(catalog, body, NULL, 0, arena);
    if (snapshot == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the statistics base is too large");
    struct sf_catalog_put put = {.cond = SF_PUT_ABSENT};
    sf_catalog_key_statistics(&put.key, body->collection->namespace_id,
                              body->collection->collection_id, body->schema_generation_token, 0);
    sf_catalog_put_encode(&put, &snapshot->base, false, NULL);
    enum sf_err err = sf_catalog_put_run(catalog, sched, &put, 0);
    if (err == SF_OK && put.state == SF_CATALOG_PUT_LOST) {
        ProtobufCMessage *found = NULL; /* immutable: what stands is the base */
        err = sf_catalog_decode(put.desc, false, sf_buf_view(&put.found), arena, diag, &found);
        snapshot = (SF_PB(OptimizerStatisticsSnapshotObject) *)found;
    } else if (err == SF_OK && put.state == SF_CATALOG_PUT_UNSENT) {
        err = sf_diag_set(diag, SF_ERR_UNAVAILABLE, "the statistics base was not published");
    }
    sf_catalog_put_fini(&put);
    *out_snapshot = snapshot;
    return err;
}

static void fill_head(struct sf_catalog *catalog,
                      const SF_PB(OptimizerStatisticsSnapshotObject) * snapshot,
                      char attempt_id[SF_ATTEMPT_ID_BYTES],
                      SF_PB(OptimizerStatisticsHeadObject) * head)
{
    searchfabric__v1__optimizer_statistics_head_object__init(head);
    sf_attempts_next(catalog->deps.attempts, attempt_id);
    head->format_version = SF_CATALOG_FORMAT_VERSION;
    head->attempt_id = attempt_id;
    head->owner_epoch = catalog->owner_epoch;
    head->collection = snapshot->collection;
    head->latest_applied_schema_version = snapshot->applied_schema_version;
    head->latest_applied_schema_generation_token = snapshot->applied_schema_generation_token;
    head->latest_stats_commit_ts = snapshot->stats_commit_ts;
    head->latest_collected_at_unix_ms = snapshot->collected_at_unix_ms;
}

enum sf_err sf_catalog_statistics_point(struct sf_catalog *catalog, struct sf_sched *sched,
                                        const SF_PB(OptimizerStatisticsSnapshotObject) * snapshot,
                                        struct sf_arena *arena, struct sf_diag *diag)
{
    struct sf_catalog_put put = {0};
    sf_catalog_key_statistics_head(&put.key, snapshot->collection->namespace_id,
                                   snapshot->collection->collection_id);
    enum sf_err err = SF_OK;
    for (bool stands = false; !stands && err == SF_OK;) {
        ProtobufCMessage *found = NULL;
        err = sf_catalog_read(catalog, sched, sf_buf_view(&put.key),
                              &searchfabric__v1__optimizer_statistics_head_object__descriptor,
                              false, arena, diag, &found, NULL, &put.match);
        put.cond = err == SF_ERR_NOT_FOUND ? SF_PUT_ABSENT : SF_PUT_MATCH;
        if (err == SF_ERR_NOT_FOUND)
            err = SF_OK;
        if (err != SF_OK)
            break;
        if (SF_MUTANT(ccs_statistics_overwrites))
            put.cond = SF_PUT_ANY;
        const SF_PB(OptimizerStatisticsHeadObject) *now =
            (const SF_PB(OptimizerStatisticsHeadObject) *)found;
        if (now != NULL && now->owner_epoch > catalog->owner_epoch &&
            !SF_MUTANT(ccs_no_statistics_elder)) {
            err = sf_catalog_depose(catalog, "statistics head", now->owner_epoch);
            break;
        }
        SF_PB(OptimizerStatisticsHeadObject) head;
        char attempt_id[SF_ATTEMPT_ID_BYTES];
        fill_head(catalog, snapshot, attempt_id, &head);
        sf_catalog_put_encode(&put, &head.base, false, NULL);
        err = sf_catalog_put_run(catalog, sched, &put, 0);
        if (err == SF_OK && put.state == SF_CATALOG_PUT_UNSENT)
            err = SF_ERR_UNAVAILABLE;
        stands = put.state == SF_CATALOG_PUT_STANDS;
    }
    sf_catalog_put_fini(&put);
    if (err != SF_OK && diag->err == SF_OK)
        sf_diag_set(diag, err, "the statistics head was not moved");
    return err;
}

/* ---- rows --------------------------------------------------------------------------------- */

enum sf_err sf_catalog_sql_next_statistics(struct sf_sql_stmt *stmt, struct sf_arena *arena,
                                           struct sf_diag *diag,
                                           SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot)
{
    bool row = false;
    ProtobufCMessage *message = NULL;
    enum sf_err err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row &&
        sf_pbjson_decode(&searchfabric__v1__optimizer_statistics_snapshot_object__descriptor,
                         sf_sql_col_text(stmt, 0), arena, diag, &message) != SF_OK)
        err = sf_diag_set(diag, SF_ERR_CORRUPT, "a projected row is broken");
    *out_snapshot = (SF_PB(OptimizerStatisticsSnapshotObject) *)message;
    return err;
}

enum sf_err sf_catalog_sql_statistics_prepare(struct sf_sql_conn *conn, const char *sql,
                                              const SF_PB(CollectionRef) * ref, const char *token,
                                              struct sf_diag *diag, struct sf_sql_stmt **out_stmt)
{
    enum sf_err err = sf_sql_prepare(conn, sql, diag, out_stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(*out_stmt, 1, ref->namespace_id);
    sf_sql_bind_u64(*out_stmt, 2, ref->collection_id);
    sf_sql_bind_text(*out_stmt, 3, sf_view_str(token));
    return SF_OK;
}

enum sf_err
sf_catalog_sql_statistics_newest(struct sf_sql_conn *conn, const SF_PB(CollectionRef) * ref,
                                 const char *token, struct sf_arena *arena, struct sf_diag *diag,
                                 SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot)
{
    struct sf_sql_stmt *stmt;
    *out_snapshot = NULL;
    enum sf_err err = sf_catalog_sql_statistics_prepare(
        conn, SF_CATALOG_STATISTICS_SELECT " ORDER BY stats_commit_ts DESC LIMIT 1", ref, token,
        diag, &stmt);
    if (err != SF_OK)
        return err;
    return sf_catalog_sql_one_message(
        stmt, &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor, arena, diag,
        out_snapshot);
}

enum sf_err sf_catalog_statistics_newest(struct sf_catalog *catalog, struct sf_sched *sched,
                                         const SF_PB(SchemaGenerationBody) * body,
                                         struct sf_arena *arena, struct sf_diag *diag,
                                         SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot)
{
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, sched, SF_SQL_READ);
    enum sf_err err = sf_catalog_sql_statistics_newest(
        conn, body->collection, body->schema_generation_token, arena, diag, out_snapshot);
    sf_sql_release(conn);
    if (err == SF_OK && *out_snapshot == NULL)
        err = sf_catalog_statistics_base(catalog, sched, body, arena, diag, out_snapshot);
    return err;
}

/* ---- restoring ---------------------------------------------------------------------------- */

/* The head object, NULL = there is none. */
static enum sf_err read_head(struct sf_catalog *catalog, struct sf_sched *sched,
                             const SF_PB(CollectionRef) * ref, struct sf_arena *arena,
                             struct sf_diag *diag, SF_PB(OptimizerStatisticsHeadObject) * *out_head)
{
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    sf_catalog_key_statistics_head(&key, ref->namespace_id, ref->collection_id);
    enum sf_err err =
        sf_catalog_read(catalog, sched, sf_buf_view(&key),
                        &searchfabric__v1__optimizer_statistics_head_object__descriptor, false,
                        arena, diag, &message, NULL, NULL);
    sf_buf_fini(&key);
    *out_head = (SF_PB(OptimizerStatisticsHeadObject) *)message;
    return err == SF_ERR_NOT_FOUND ? SF_OK : err;
}

/* The snapshot that a head names. */
static enum sf_err read_named(struct sf_catalog *catalog, struct sf_sched *sched,
                              const SF_PB(CollectionRef) * ref,
                              const SF_PB(OptimizerStatisticsHeadObject) * head,
                              struct sf_arena *arena, struct sf_diag *diag,
                              SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot)
{
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    sf_catalog_key_statistics(&key, ref->namespace_id, ref->collection_id,
                              head->latest_applied_schema_generation_token,
                              head->latest_stats_commit_ts);
    enum sf_err err =
        sf_catalog_read(catalog, sched, sf_buf_view(&key),
                        &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor, false,
                        arena, diag, &message, NULL, NULL);
    sf_buf_fini(&key);
    *out_snapshot = (SF_PB(OptimizerStatisticsSnapshotObject) *)message;
    if (err == SF_ERR_NOT_FOUND)
        return sf_diag_set(diag, SF_ERR_CORRUPT, "a statistics head names no snapshot");
    return err;
}

enum sf_err sf_catalog_statistics_serving(struct sf_catalog *catalog, struct sf_sched *sched,
                                          const SF_PB(SchemaGenerationBody) * body,
                                          struct sf_arena *arena, struct sf_diag *diag,
                                          SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot)
{
    SF_PB(OptimizerStatisticsHeadObject) *head = NULL;
    enum sf_err err = read_head(catalog, sched, body->collection, arena, diag, &head);
    if (err != SF_OK)
        return err;
    if (head != NULL &&
        strcmp(head->latest_applied_schema_generation_token, body->schema_generation_token) == 0)
        return read_named(catalog, sched, body->collection, head, arena, diag, out_snapshot);
    return sf_catalog_statistics_newest(catalog, sched, body, arena, diag, out_snapshot);
}

enum sf_err sf_catalog_statistics_load(struct sf_catalog *catalog, struct sf_sched *sched,
                                       const SF_PB(CollectionRef) * ref, struct sf_arena *arena,
                                       struct sf_diag *diag,
                                       SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot)
{
    SF_PB(SchemaGenerationRow) *ready = NULL;
    SF_PB(OptimizerStatisticsHeadObject) *head = NULL;
    *out_snapshot = NULL;
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, sched, SF_SQL_READ);
    enum sf_err err =
        sf_catalog_sql_generation(conn, ref->namespace_id, ref->collection_id,
                                  SF_CATALOG_GENERATION_READY, 0, NULL, arena, diag, &ready);
    sf_sql_release(conn);
    if (err == SF_OK)
        err = read_head(catalog, sched, ref, arena, diag, &head);
    if (err != SF_OK || (head == NULL && ready == NULL))
        return err;
    if (ready == NULL || (head != NULL && strcmp(head->latest_applied_schema_generation_token,
                                                 ready->body->schema_generation_token) == 0))
        return read_named(catalog, sched, ref, head, arena, diag, out_snapshot);
    err = sf_catalog_statistics_newest(catalog, sched, ready->body, arena, diag, out_snapshot);
    if (err == SF_OK) /* the head is of another lineage, or there is none */
        err = sf_catalog_statistics_point(catalog, sched, *out_snapshot, arena, diag);
    return err;
}

static enum sf_err show_restored(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                                 struct sf_diag *diag)
{
    (void)catalog;
    return sf_catalog_project_statistics(conn, arg, diag);
}

/* Do head row and snapshot row say what the head object says? */
static enum sf_err rows_follow(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                               const SF_PB(OptimizerStatisticsHeadObject) * head,
                               struct sf_diag *diag, bool *out_same)
{
    struct sf_sql_stmt *stmt;
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    enum sf_err err = sf_sql_prepare(
        conn,
        "SELECT COUNT(*) FROM collection_statistics_heads h, collection_statistics_snapshots s"
        " WHERE h.namespace_id = ?1 AND h.collection_id = ?2"
        " AND h.latest_applied_schema_generation_token = ?3 AND h.latest_stats_commit_ts = ?4"
        " AND s.namespace_id = ?1 AND s.collection_id = ?2"
        " AND s.applied_schema_generation_token = ?3 AND s.stats_commit_ts = ?4",
        diag, &stmt);
    bool row = false;
    *out_same = false;
    if (err == SF_OK) {
        sf_sql_bind_u64(stmt, 1, ref->namespace_id);
        sf_sql_bind_u64(stmt, 2, ref->collection_id);
        sf_sql_bind_text(stmt, 3, sf_view_str(head->latest_applied_schema_generation_token));
        sf_sql_bind_u64(stmt, 4, head->latest_stats_commit_ts);
        err = sf_sql_step(stmt, diag, &row);
        *out_same = err == SF_OK && row && sf_sql_col_i64(stmt, 0) != 0;
        sf_sql_finish(stmt);
    }
    sf_sql_release(conn);
    return err;
}

enum sf_err sf_catalog_statistics_adopt(struct sf_catalog *catalog,
                                        const SF_PB(CollectionRef) * ref, struct sf_arena *arena,
                                        struct sf_diag *diag)
{
    SF_PB(OptimizerStatisticsHeadObject) *head = NULL;
    SF_PB(OptimizerStatisticsSnapshotObject) *snapshot = NULL;
    bool same = false;
    enum sf_err err = read_head(catalog, catalog->deps.sched, ref, arena, diag, &head);
    if (err != SF_OK || head == NULL)
        return err;
    err = rows_follow(catalog, ref, head, diag, &same);
    if (err != SF_OK ||
        (same && (head->owner_epoch == catalog->owner_epoch || SF_MUTANT(ccs_no_statistics_adopt))))
        return err;
    err = sf_catalog_statistics_load(catalog, catalog->deps.sched, ref, arena, diag, &snapshot);
    if (err == SF_OK && snapshot != NULL)
        err = sf_catalog_statistics_point(catalog, catalog->deps.sched, snapshot, arena, diag);
    if (err == SF_OK && snapshot != NULL && !same)
        err = sf_catalog_projectors_write(catalog, show_restored, snapshot, diag);
    return err;
}

enum sf_err sf_catalog_statistics_repair(struct sf_catalog *catalog,
                                         const SF_PB(CollectionRef) * ref, struct sf_arena *arena,
                                         struct sf_diag *diag)
{
    const struct sf_catalog_gates gates = {.namespace_id = ref->namespace_id,
                                           .collection_id = ref->collection_id};
    SF_PB(OptimizerStatisticsSnapshotObject) *snapshot = NULL;
    sf_catalog_gates_acquire(catalog, &gates);
    enum sf_err err =
        sf_catalog_statistics_load(catalog, catalog->deps.sched, ref, arena, diag, &snapshot);
    if (err == SF_OK && snapshot != NULL)
        err = sf_catalog_projectors_write(catalog, show_restored, snapshot, diag);
    sf_catalog_gates_release(catalog, &gates);
    if (err == SF_OK)
        SF_LOG(WARN, "catalog_statistics_restored", SF_KV_U64("namespace_id", ref->namespace_id),
               SF_KV_U64("collection_id", ref->collection_id),
               SF_KV_U64("found", snapshot != NULL));
    return err;
}
