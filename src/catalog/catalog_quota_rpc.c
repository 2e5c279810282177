/*
 * Model: what comes in about quota. A request is judged alone here, on the caller's thread; the
 * namespace's lane does the rest. ShowQuota reads one snapshot of the projection. The plane of a
 * dimension is fixed: a dimension of the other plane is as unknown as any other word.
 */
#include "catalog/catalog_quota.h"
#include "catalog/catalog_rules.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#include <stdlib.h>

#define SHOW_LEASES 1000

/* ---- life --------------------------------------------------------------------------------- */

static struct sf_metric *counter(struct sf_metrics *metrics, const char *name, const char *help)
{
    if (metrics == NULL)
        return NULL;
    return sf_metric_series(sf_metrics_family(metrics, SF_METRIC_COUNTER, name, help, NULL), NULL);
}

void sf_catalog_quotas_open(struct sf_catalog *catalog)
{
    struct sf_catalog_quotas *quotas = sf_calloc(1, sizeof(*quotas));
    struct sf_metrics *metrics = catalog->deps.metrics;
    pthread_mutex_init(&quotas->mu, NULL);
    quotas->namespaces = sf_map_new();
    quotas->metric_granted =
        counter(metrics, "searchfabric_catalog_quota_leases_total", "Quota leases granted.");
    quotas->metric_replayed = counter(metrics, "searchfabric_catalog_quota_replays_total",
                                      "Quota lease requests answered by an earlier grant.");
    quotas->metric_limited = counter(metrics, "searchfabric_catalog_quota_limited_total",
                                     "Quota lease requests refused for want of units.");
    quotas->metric_swaps = counter(metrics, "searchfabric_catalog_quota_puts_total",
                                   "Puts of a namespace's quota state.");
    quotas->metric_expired = counter(metrics, "searchfabric_catalog_quota_expired_total",
                                     "Quota leases that the sweeper ended.");
    catalog->quotas = quotas;
}

void sf_catalog_quotas_close(struct sf_catalog *catalog)
{
    struct sf_catalog_quotas *quotas = catalog->quotas;
    if (quotas == NULL)
        return;
    sf_map_destroy(quotas->namespaces, free);
    pthread_mutex_destroy(&quotas->mu);
    free(quotas);
    catalog->quotas = NULL;
}

/* ---- checks ------------------------------------------------------------------------------- */

/* Plane and dimension of a budget. */
static enum sf_err budget_check(const char *field, SF_PB(ApiPlane) plane, const char *dimension,
                                struct sf_diag *diag)
{
    enum sf_err err =
        sf_identity_check(field, sf_view_str(dimension), 1, SF_LIMIT_QUOTA_DIMENSION, diag);
    if (err != SF_OK)
        return err;
    enum sf_catalog_dimension found = sf_quota_dimension(dimension);
    if (found == SF_CATALOG_DIMENSIONS || sf_quota_plane(found) != plane)
        return sf_diag_bad_field(diag, field, "unknown", "the plane has no such dimension");
    return SF_OK;
}

static enum sf_err key_check(const SF_PB(QuotaLeaseKey) * key, struct sf_diag *diag)
{
    if (key == NULL)
        return sf_diag_bad_field(diag, "lease", "missing", "lease is required");
    if (key->namespace_id == 0)
        return sf_diag_bad_field(diag, "lease.namespace_id", "zero", "an id is above 0");
    if (key->api_plane != SF_PBE(API_PLANE, QUERY) && key->api_plane != SF_PBE(API_PLANE, WRITE))
        return sf_diag_bad_field(diag, "lease.api_plane", "unknown", "api_plane is QUERY or WRITE");
    enum sf_err err =
        budget_check("lease.throttled_dimension", key->api_plane, key->throttled_dimension, diag);
    if (err == SF_OK)
        err = sf_identity_check("lease.lease_holder_id", sf_view_str(key->lease_holder_id), 1,
                                SF_LIMIT_QUOTA_ID, diag);
    if (err == SF_OK)
        err = sf_identity_check("lease.lease_request_id", sf_view_str(key->lease_request_id), 1,
                                SF_LIMIT_QUOTA_ID, diag);
    return err;
}

/* ---- handlers ----------------------------------------------------------------------------- */

void sf_catalog_quota_acquire(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(AcquireQuotaLeaseRequest) *acquire =
        (const SF_PB(AcquireQuotaLeaseRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    enum sf_err err = sf_catalog_unknown_check(request, diag);
    if (err == SF_OK)
        err = key_check(acquire->lease, diag);
    if (err == SF_OK && acquire->requested_units == 0)
        err = sf_diag_bad_field(diag, "requested_units", "zero", "units are above 0");
    if (err == SF_OK)
        sf_quota_start(self, SF_QUOTA_ACQUIRE, acquire->lease->namespace_id, call, request);
    else
        sf_catalog_refuse(call, diag);
}

void sf_catalog_quota_return(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(ReturnQuotaLeaseRequest) *back = (const SF_PB(ReturnQuotaLeaseRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    enum sf_err err = sf_catalog_unknown_check(request, diag);
    if (err == SF_OK)
        err = key_check(back->lease, diag);
    if (err == SF_OK)
        sf_quota_start(self, SF_QUOTA_RETURN, back->lease->namespace_id, call, request);
    else
        sf_catalog_refuse(call, diag);
}

void sf_catalog_quota_pressure(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(ReportIngestPressureRequest) *report =
        (const SF_PB(ReportIngestPressureRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    enum sf_err err = sf_catalog_unknown_check(request, diag);
    if (err == SF_OK)
        err = sf_catalog_ref_check(report->collection, diag);
    if (err == SF_OK)
        err = budget_check("throttled_dimension", SF_PBE(API_PLANE, WRITE),
                           report->throttled_dimension, diag);
    if (err == SF_OK && (report->source < SF_PBE(INGEST_PRESSURE_SOURCE, TSO) ||
                         report->source > SF_PBE(INGEST_PRESSURE_SOURCE, PUBLISH_BACKLOG)))
        err = sf_diag_bad_field(diag, "source", "unknown", "no such source");
    if (err == SF_OK)
        sf_quota_start(self, SF_QUOTA_PRESSURE, report->collection->namespace_id, call, request);
    else
        sf_catalog_refuse(call, diag);
}

/* ---- ShowQuota ---------------------------------------------------------------------------- */

struct show {
    struct sf_task task;
    struct sf_catalog *catalog;
    struct sf_call *call;
    uint64_t namespace_id;
};

static enum sf_err fill_leases(const struct sf_quota_lease *leases, size_t count,
                               uint64_t namespace_id, struct sf_arena *arena,
                               SF_PB(ShowQuotaResponse) * response)
{
    response->leases = sf_arena_alloc(arena, (count + 1) * sizeof(*response->leases));
    for (size_t i = 0; i < count && response->leases != NULL; i++) {
        SF_PB(QuotaLeaseView) *view = sf_arena_alloc(arena, sizeof(*view));
        SF_PB(QuotaLeaseKey) *key = sf_arena_alloc(arena, sizeof(*key));
        if (view == NULL || key == NULL)
            return SF_ERR_LIMIT;
        searchfabric__v1__quota_lease_view__init(view);
        searchfabric__v1__quota_lease_key__init(key);
        key->namespace_id = namespace_id;
        key->api_plane = leases[i].plane;
        key->throttled_dimension = (char *)(uintptr_t)leases[i].dimension;
        key->lease_holder_id = (char *)(uintptr_t)leases[i].holder_id;
        key->lease_request_id = (char *)(uintptr_t)leases[i].request_id;
        view->lease = key;
        view->granted_units = leases[i].granted_units;
        view->lease_epoch = leases[i].lease_epoch;
        view->expires_at_unix_ms = leases[i].expires_at_unix_ms;
        view->state = leases[i].state;
        response->leases[response->n_leases++] = view;
    }
    return response->leases == NULL ? SF_ERR_LIMIT : SF_OK;
}

static enum sf_err read_quota(struct show *show, struct sf_sql_conn *conn,
                              SF_PB(ShowQuotaResponse) * response)
{
    struct sf_arena *arena = sf_call_arena(show->call);
    struct sf_diag *diag = sf_call_diag(show->call);
    struct sf_quota_lease *leases = NULL;
    size_t count = 0;
    uint64_t revision = 0;
    enum sf_err err = sf_sql_begin(conn, diag);
    if (err == SF_OK)
        err = sf_catalog_sql_look(show->catalog, conn, diag);
    if (err == SF_OK)
        err = sf_quota_sql_namespace(conn, show->namespace_id, diag, &revision);
    if (err == SF_OK && revision == 0)
        return sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such namespace");
    if (err == SF_OK)
        err = sf_quota_sql_state(conn, show->namespace_id, arena, diag, &response->state);
    if (err == SF_OK)
        err = sf_quota_sql_active(conn, show->namespace_id, SHOW_LEASES, arena, diag, &leases,
                                  &count);
    if (err == SF_OK)
        err = fill_leases(leases, count, show->namespace_id, arena, response);
    return err;
}

static void show_run(struct sf_task *task)
{
    struct show *show = SF_CONTAINER_OF(task, struct show, task);
    struct sf_catalog *catalog = show->catalog;
    struct sf_diag *diag = sf_call_diag(show->call);
    SF_PB(ShowQuotaResponse) response;
    searchfabric__v1__show_quota_response__init(&response);
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    enum sf_err err = read_quota(show, conn, &response);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    if (err == SF_OK) {
        sf_call_respond(show->call, &response.base);
    } else {
        if (diag->err != err)
            sf_diag_set(diag, err, "%s", sf_err_info(err)->meaning);
        sf_catalog_refuse(show->call, diag);
    }
    free(show);
    sf_catalog_leave(catalog);
}

void sf_catalog_quota_show(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    struct sf_catalog *catalog = self;
    struct sf_diag *diag = sf_call_diag(call);
    uint64_t namespace_id = ((const SF_PB(ShowQuotaRequest) *)request)->namespace_id;
    sf_diag_init(diag);
    enum sf_err err = sf_catalog_unknown_check(request, diag);
    if (err == SF_OK && namespace_id == 0)
        err = sf_diag_bad_field(diag, "namespace_id", "zero", "an id is above 0");
    if (err != SF_OK || !sf_catalog_enter(catalog, false, diag)) {
        sf_catalog_refuse(call, diag);
        return;
    }
    struct show *show = sf_calloc(1, sizeof(*show));
    *show = (struct show){
        .task.run = show_run, .catalog = catalog, .call = call, .namespace_id = namespace_id};
    uint64_t lane =
        sf_catalog_lane_key(SF_CATALOG_LANE_NAMESPACE_ID, namespace_id, 0, sf_view_str(""));
    if (sf_sched_submit(catalog->deps.sched, lane, &show->task) == SF_OK)
        return;
    free(show);
    sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "the catalog takes no more work now");
    sf_catalog_refuse(call, diag);
    sf_catalog_leave(catalog);
}
