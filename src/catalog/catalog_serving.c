/*
 * Model: the serving side reports and asks about the active generation of a collection; whatever it
 * says of another one is refused. Reports are lagging facts: they live in rows and are lost with
 * them. An observation is compared with what should be served: a mismatch of a READY generation is
 * drift, a match of a drifted one heals it, and a drifted one that stays different for some reports
 * in a row has failed its repair. The moves themselves are signals (catalog_converge.c).
 */
#include "catalog/catalog_serving.h"

#include <stdio.h>

#include "base/pbjson.h"
#include "catalog/catalog_projector.h"
#include "catalog/catalog_rules.h"
#include "catalog/catalog_statistics.h"

#define STATE_READY   SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY
#define STATE_DRIFTED SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_DRIFTED

/* ---- requests ----------------------------------------------------------------------------- */

static enum sf_err check_token(const char *token, struct sf_diag *diag)
{
    return sf_identity_check("schema_generation_token", sf_view_str(token), 1,
                             SF_LIMIT_SCHEMA_TOKEN_SCALARS, diag);
}

enum sf_err sf_catalog_backlog_check(const SF_PB(ReportIndexBacklogRequest) * request,
                                     struct sf_diag *diag)
{
    enum sf_err err = sf_catalog_ref_check(request->collection, diag);
    return err == SF_OK ? check_token(request->schema_generation_token, diag) : err;
}

enum sf_err sf_catalog_observation_check(const SF_PB(ReportServingObservationRequest) * request,
                                         struct sf_diag *diag)
{
    const char *digest = request->definition_sha256;
    enum sf_err err = sf_catalog_ref_check(request->collection, diag);
    if (err == SF_OK)
        err = check_token(request->schema_generation_token, diag);
    if (err == SF_OK && digest[0] != '\0' &&
        (strlen(digest) != SF_SHA256_HEX_BYTES - 1 ||
         strspn(digest, "0123456789abcdef") != SF_SHA256_HEX_BYTES - 1))
        err = sf_diag_bad_field(diag, "definition_sha256", "malformed",
                                "a digest is 64 lower-case hex digits");
    return err;
}

enum sf_err sf_catalog_resolve_check(const SF_PB(ResolveServingGenerationRequest) * request,
                                     struct sf_diag *diag)
{
    enum sf_err err = sf_catalog_ref_check(request->collection, diag);
    if (err == SF_OK && request->_expected_schema_generation_token_case != 0)
        err = sf_identity_check("expected_schema_generation_token",
                                sf_view_str(request->expected_schema_generation_token), 1,
                                SF_LIMIT_SCHEMA_TOKEN_SCALARS, diag);
    return err;
}

/* The lineage of an active collection that has a schema, or the refusal. */
static enum sf_err read_active(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                               struct sf_arena *arena, struct sf_diag *diag,
                               struct sf_catalog_lineage *out)
{
    enum sf_err err =
        sf_catalog_adopt_alone(catalog, ref->namespace_id, ref->collection_id, arena, diag);
    if (err == SF_OK)
        err = sf_catalog_lineage_read(catalog, ref->namespace_id, ref->collection_id, arena, diag,
                                      out);
    if (err != SF_OK)
        return err;
    if (out->collection == NULL ||
        out->collection->lifecycle_state != SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE))
        return sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such active collection");
    return out->active == NULL ? sf_catalog_bootstrap_refusal(diag) : SF_OK;
}

/* ---- backlog ------------------------------------------------------------------------------ */

static const struct sf_sql_upsert backlog_row = {
    .table = "collection_index_backlogs",
    .columns = "namespace_id, collection_id, schema_generation_token, unindexed_bytes, "
               "reported_at_unix_ms",
    .key = "namespace_id, collection_id",
    .update = "schema_generation_token, unindexed_bytes, reported_at_unix_ms",
};

/* Keeps a report; one that says what is known writes nothing. */
static enum sf_err keep_backlog(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                                struct sf_diag *diag)
{
    const SF_PB(ReportIndexBacklogRequest) *request = arg;
    const SF_PB(CollectionRef) *ref = request->collection;
    struct sf_catalog_backlog known;
    struct sf_sql_stmt *stmt;
    enum sf_err err =
        sf_catalog_sql_backlog(conn, ref->namespace_id, ref->collection_id, diag, &known);
    if (err != SF_OK || (known.present && known.unindexed_bytes == request->unindexed_bytes &&
                         strcmp(known.token, request->schema_generation_token) == 0))
        return err;
    err = sf_sql_prepare_upsert(conn, &backlog_row, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, ref->namespace_id);
    sf_sql_bind_u64(stmt, 2, ref->collection_id);
    sf_sql_bind_text(stmt, 3, sf_view_str(request->schema_generation_token));
    sf_sql_bind_u64(stmt, 4, request->unindexed_bytes);
    sf_sql_bind_i64(stmt, 5, sf_clock_unix_ms(catalog->deps.clock));
    err = sf_sql_run(stmt, diag, NULL);
    if (err == SF_OK)
        err = sf_catalog_projectors_note(catalog, conn, ref->namespace_id, ref->collection_id,
                                         SF_CATALOG_NOTE_BACKLOG, diag);
    return err;
}

enum sf_err sf_catalog_backlog_run(struct sf_catalog *catalog, struct sf_call *call,
                                   const ProtobufCMessage *request)
{
    const SF_PB(ReportIndexBacklogRequest) *report =
        (const SF_PB(ReportIndexBacklogRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    struct sf_catalog_lineage lineage;
    enum sf_err err = read_active(catalog, report->collection, sf_call_arena(call), diag, &lineage);
    if (err == SF_OK &&
        strcmp(lineage.active->body->schema_generation_token, report->schema_generation_token) != 0)
        err = sf_diag_set(diag, SF_VERSION_CONFLICT,
                          "the backlog is not of the active schema generation");
    if (err == SF_OK)
        err = sf_catalog_projectors_write(catalog, keep_backlog, (void *)(uintptr_t)report, diag);
    if (err != SF_OK)
        return err;
    sf_catalog_projectors_changed(catalog);
    SF_PB(ReportIndexBacklogResponse) response;
    searchfabric__v1__report_index_backlog_response__init(&response);
    sf_call_respond(call, &response.base);
    return SF_OK;
}

/* ---- observations ------------------------------------------------------------------------- */

enum sf_catalog_verdict sf_catalog_compare(SF_PB(SchemaSyncState__StateCase) state, bool matches,
                                           uint32_t failed_repairs)
{
    if (state == STATE_READY)
        return matches ? SF_CATALOG_VERDICT_NONE : SF_CATALOG_VERDICT_DRIFT;
    if (state != STATE_DRIFTED)
        return SF_CATALOG_VERDICT_NONE; /* APPLYING is not yet, ERROR is not any more */
    if (matches)
        return SF_CATALOG_VERDICT_HEALED;
    return failed_repairs + 1 >= SF_CATALOG_REPAIR_LIMIT ? SF_CATALOG_VERDICT_FAILED
                                                         : SF_CATALOG_VERDICT_UNHEALED;
}

/* The count of failed repairs of one generation. */
struct repairs {
    const SF_PB(CollectionRef) * ref;
    const char *token;
    uint32_t failed;
};

static enum sf_err read_repairs(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                                struct sf_diag *diag)
{
    struct repairs *repairs = arg;
    struct sf_sql_stmt *stmt;
    bool row = false;
    (void)catalog;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT failed_repairs FROM collection_observations"
                                     " WHERE namespace_id = ?1 AND collection_id = ?2"
                                     " AND schema_generation_token = ?3",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, repairs->ref->namespace_id);
    sf_sql_bind_u64(stmt, 2, repairs->ref->collection_id);
    sf_sql_bind_text(stmt, 3, sf_view_str(repairs->token));
    err = sf_sql_step(stmt, diag, &row);
    repairs->failed = err == SF_OK && row ? (uint32_t)sf_sql_col_i64(stmt, 0) : 0;
    sf_sql_finish(stmt);
    return err;
}

static const struct sf_sql_upsert observation_row = {
    .table = "collection_observations",
    .columns = "namespace_id, collection_id, schema_generation_token, failed_repairs, "
               "observed_at_unix_ms",
    .key = "namespace_id, collection_id",
    .update = "schema_generation_token, failed_repairs, observed_at_unix_ms",
};

static enum sf_err keep_repairs(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                                struct sf_diag *diag)
{
    const struct repairs *repairs = arg;
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare_upsert(conn, &observation_row, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, repairs->ref->namespace_id);
    sf_sql_bind_u64(stmt, 2, repairs->ref->collection_id);
    sf_sql_bind_text(stmt, 3, sf_view_str(repairs->token));
    sf_sql_bind_i64(stmt, 4, repairs->failed);
    sf_sql_bind_i64(stmt, 5, sf_clock_unix_ms(catalog->deps.clock));
    return sf_sql_run(stmt, diag, NULL);
}

static bool observed_matches(const SF_PB(ReportServingObservationRequest) * report,
                             const SF_PB(SchemaGenerationBody) * expected)
{
    char digest[SF_SHA256_HEX_BYTES];
    if (strcmp(report->schema_generation_token, expected->schema_generation_token) != 0)
        return false;
    if (report->definition_sha256[0] == '\0')
        return true;
    struct sf_buf json = {0};
    sf_pbjson_encode(&expected->definition->base, &json);
    sf_sha256_hex(sf_buf_view(&json), digest);
    sf_buf_fini(&json);
    return strcmp(digest, report->definition_sha256) == 0;
}

/* Runs the signal that follows from a verdict. */
static enum sf_err run_verdict(struct sf_catalog *catalog, enum sf_catalog_verdict verdict,
                               const SF_PB(ReportServingObservationRequest) * report,
                               const SF_PB(SchemaGenerationBody) * expected, struct sf_arena *arena,
                               struct sf_diag *diag,
                               SF_PB(ReportServingObservationResponse) * response)
{
    char reason[128];
    SF_PB(ReportSchemaConvergenceSignalRequest) signal;
    searchfabric__v1__report_schema_convergence_signal_request__init(&signal);
    signal.collection = report->collection;
    signal.schema_version = expected->schema_version;
    signal.schema_generation_token = expected->schema_generation_token;
    signal.reason = reason;
    reason[0] = '\0';
    switch (verdict) {
    case SF_CATALOG_VERDICT_DRIFT:
        signal.signal = SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, DRIFT_DETECTED);
        snprintf(reason, sizeof(reason), "observed_%s_mismatch",
                 strcmp(report->schema_generation_token, expected->schema_generation_token) != 0
                     ? "generation"
                     : "definition");
        break;
    case SF_CATALOG_VERDICT_HEALED:
        signal.signal = SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, REPAIR_SUCCEEDED);
        break;
    case SF_CATALOG_VERDICT_FAILED:
        signal.signal = SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, REPAIR_FAILED);
        snprintf(reason, sizeof(reason), "still different after %d observations",
                 SF_CATALOG_REPAIR_LIMIT);
        break;
    default:
        return SF_OK;
    }
    bool changed = false;
    enum sf_err err = sf_catalog_signal(catalog, &signal, arena, diag, &response->state, &changed);
    response->changed = changed;
    return err;
}

enum sf_err sf_catalog_observation_run(struct sf_catalog *catalog, struct sf_call *call,
                                       const ProtobufCMessage *request)
{
    const SF_PB(ReportServingObservationRequest) *report =
        (const SF_PB(ReportServingObservationRequest) *)request;
    struct sf_arena *arena = sf_call_arena(call);
    struct sf_diag *diag = sf_call_diag(call);
    struct sf_catalog_lineage lineage;
    SF_PB(ReportServingObservationResponse) response;
    searchfabric__v1__report_serving_observation_response__init(&response);
    enum sf_err err = read_active(catalog, report->collection, arena, diag, &lineage);
    if (err != SF_OK)
        return err;
    const SF_PB(SchemaGenerationBody) *expected = lineage.active->body;
    struct repairs repairs = {.ref = report->collection,
                              .token = expected->schema_generation_token};
    response.state = lineage.active->convergence->state;
    err = sf_catalog_projectors_read(catalog, read_repairs, &repairs, diag);
    if (err != SF_OK)
        return err;
    enum sf_catalog_verdict verdict = sf_catalog_compare(
        response.state->state_case, observed_matches(report, expected), repairs.failed);
    uint32_t failed = verdict == SF_CATALOG_VERDICT_UNHEALED ? repairs.failed + 1 : 0;
    err = run_verdict(catalog, verdict, report, expected, arena, diag, &response);
    if (err == SF_OK && failed != repairs.failed) {
        repairs.failed = failed;
        err = sf_catalog_projectors_write(catalog, keep_repairs, &repairs, diag);
    }
    response.failed_repairs =
        verdict == SF_CATALOG_VERDICT_FAILED ? SF_CATALOG_REPAIR_LIMIT : failed;
    if (err == SF_OK)
        sf_call_respond(call, &response.base);
    return err;
}

/* ---- queries ------------------------------------------------------------------------------ */

enum sf_err sf_catalog_complete_check(const SF_PB(DescriptorCompleteness) * completeness,
                                      struct sf_diag *diag)
{
    char list[64] = "";
    size_t len = 0;
    if (completeness->state_case == SEARCHFABRIC__V1__DESCRIPTOR_COMPLETENESS__STATE_READY)
        return SF_OK;
    for (size_t i = 0; i < completeness->publishing->n_missing_fields; i++)
        len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s", i == 0 ? "" : ",",
                                completeness->publishing->missing_fields[i]);
    sf_diag_set(diag, SF_CATALOG_UNAVAILABLE, "the descriptor is still being published");
    sf_diag_detail(diag, "catalog_unavailable_reason", "descriptor_publishing");
    sf_diag_detail(diag, "missing_descriptor_fields", "%s", list);
    return SF_CATALOG_UNAVAILABLE;
}

/* The descriptors that were asked for, complete or refused. */
struct descriptors {
    const SF_PB(ResolveServingGenerationRequest) * request;
    const SF_PB(CollectionRow) * collection;
    struct sf_arena *arena;
    SF_PB(ResolveServingGenerationResponse) * response;
};

static enum sf_err read_descriptors(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                                    struct sf_diag *diag)
{
    struct descriptors *d = arg;
    SF_PB(ResolveServingGenerationResponse) *response = d->response;
    enum sf_err err = SF_OK;
    (void)catalog;
    if (d->request->complete_collection_descriptor) {
        response->collection_descriptor = sf_catalog_collection_descriptor(d->collection, d->arena);
        if (response->collection_descriptor == NULL)
            return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
        err = sf_catalog_complete_check(response->collection_descriptor->completeness, diag);
    }
    if (err != SF_OK || !d->request->complete_namespace_descriptor)
        return err;
    SF_PB(NamespaceRow) *row = NULL;
    err =
        sf_catalog_sql_namespace(conn, d->request->collection->namespace_id, d->arena, diag, &row);
    if (err == SF_OK && row == NULL)
        err = sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such namespace");
    if (err != SF_OK)
        return err;
    response->namespace_descriptor = sf_catalog_namespace_descriptor(row, d->arena);
    if (response->namespace_descriptor == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    return sf_catalog_complete_check(response->namespace_descriptor->completeness, diag);
}

static enum sf_err check_fence(const SF_PB(ResolveServingGenerationRequest) * request,
                               const struct sf_catalog_lineage *lineage, struct sf_diag *diag)
{
    const SF_PB(SchemaGenerationBody) *active = lineage->active->body;
    if (request->_expected_schema_generation_token_case == 0 ||
        strcmp(request->expected_schema_generation_token,
               lineage->ready->body->schema_generation_token) == 0)
        return SF_OK;
    sf_diag_set(diag, SF_VERSION_CONFLICT, "another schema generation serves");
    sf_diag_detail(diag, "violated_precondition", "schema_generation_token");
    sf_diag_detail(diag, "active_schema_version", "%llu",
                   (unsigned long long)active->schema_version);
    sf_diag_detail(diag, "active_schema_generation_token", "%s", active->schema_generation_token);
    return SF_VERSION_CONFLICT;
}

enum sf_err sf_catalog_resolve_run(struct sf_catalog *catalog, struct sf_call *call,
                                   const ProtobufCMessage *request)
{
    const SF_PB(ResolveServingGenerationRequest) *get =
        (const SF_PB(ResolveServingGenerationRequest) *)request;
    struct sf_arena *arena = sf_call_arena(call);
    struct sf_diag *diag = sf_call_diag(call);
    struct sf_catalog_lineage lineage;
    SF_PB(ResolveServingGenerationResponse) response;
    searchfabric__v1__resolve_serving_generation_response__init(&response);
    enum sf_err err = read_active(catalog, get->collection, arena, diag, &lineage);
    if (err == SF_OK && lineage.ready == NULL)
        err = sf_catalog_convergence_refusal(diag);
    if (err == SF_OK)
        err = check_fence(get, &lineage, diag);
    if (err != SF_OK)
        return err;
    response.ready_generation_version = lineage.ready->body->schema_version;
    response.ready_generation_token = lineage.ready->body->schema_generation_token;
    response.effective_max_result_window = lineage.ready->body->effective_max_result_window;
    struct descriptors descriptors = {
        .request = get, .collection = lineage.collection, .arena = arena, .response = &response};
    err = sf_catalog_projectors_read(catalog, read_descriptors, &descriptors, diag);
    if (err == SF_OK)
        sf_call_respond(call, &response.base);
    return err;
}
