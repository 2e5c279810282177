/*
 * Model: RPC in, RPC out. A handler checks what the request says of itself on the caller's thread
 * (malformed input, caller kind) and hands it to a lane; it never blocks. Also here: construction,
 * drain and close. Methods that this build does not serve have no entry in the tables.
 */
#include "catalog/catalog_cache.h"
#include "catalog/catalog_callers.h"
#include "catalog/catalog_gate.h"
#include "catalog/catalog_quota.h"
#include "catalog/catalog_head.h"
#include "catalog/catalog_retention.h"
#include "catalog/catalog_checkpoint.h"
#include "catalog/catalog_digest.h"
#include "catalog/catalog_check.h"
#include "catalog/catalog_job.h"
#include "catalog/catalog_projector.h"
#include "catalog/catalog_lifecycle.h"
#include "catalog/catalog_on_serving.h"
#include "catalog/catalog_rules.h"

#include <stdlib.h>

#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define DEFAULT_RESULT_WINDOW 10000

/* ---- mutations ---------------------------------------------------------------------------- */

static void put_namespace(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    sf_catalog_mutate(self, &sf_catalog_put_namespace, call, request);
}

static void put_collection(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    sf_catalog_mutate(self, &sf_catalog_put_collection, call, request);
}

static void put_schema(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    sf_catalog_mutate(self, &sf_catalog_put_schema, call, request);
}

static void drop_collection(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    sf_catalog_mutate(self, &sf_catalog_drop_collection, call, request);
}

static void transition_namespace(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    sf_catalog_intent(self, &sf_catalog_transition_namespace, call, request);
}

/* ---- public reads ------------------------------------------------------------------------- */

/* RequestMeta and caller kind of a read. */
static enum sf_err admit_read(const SF_PB(RequestMeta) * meta, struct sf_diag *diag)
{
    sf_diag_init(diag);
    enum sf_err err = sf_catalog_meta_check(meta, false, diag);
    if (err == SF_OK)
        err = sf_catalog_caller_check(SF_CATALOG_FAMILY_READ, meta->client_kind, diag);
    return err;
}

/* Starts the read, or answers the refusal. */
static void go_on(struct sf_catalog *catalog, enum sf_catalog_read_kind kind, struct sf_call *call,
                  const ProtobufCMessage *request, enum sf_err err)
{
    if (err == SF_OK)
        sf_catalog_read_start(catalog, kind, call, request);
    else
        sf_catalog_refuse(call, sf_call_diag(call));
}

static void get_namespace(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(GetNamespaceMetadataRequest) *get =
        (const SF_PB(GetNamespaceMetadataRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    enum sf_err err = admit_read(get->meta, diag);
    if (err == SF_OK) {
        switch (get->lookup_case) {
        case SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID:
            if (get->namespace_id == 0)
                err = sf_diag_bad_field(diag, "namespace_id", "zero", "an id is above 0");
            break;
        case SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_NAME:
            err = sf_name_check("namespace_name", sf_view_str(get->namespace_name), false, diag);
            break;
        default:
            err = sf_diag_bad_field(diag, "lookup", "missing", "lookup must name a namespace");
            break;
        }
    }
    go_on(self, SF_CATALOG_READ_NAMESPACE, call, request, err);
}

static void list_namespaces(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(ListNamespacesRequest) *list = (const SF_PB(ListNamespacesRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    enum sf_err err = admit_read(list->meta, diag);
    if (err == SF_OK)
        err = sf_name_check("prefix", sf_view_str(list->prefix), true, diag);
    go_on(self, SF_CATALOG_READ_NAMESPACES, call, request, err);
}

static void get_collection(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(GetCollectionMetadataRequest) *get =
        (const SF_PB(GetCollectionMetadataRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    enum sf_err err = admit_read(get->meta, diag);
    if (err == SF_OK) {
        switch (get->lookup_case) {
        case SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_COLLECTION:
            err = sf_catalog_ref_check(get->collection, diag);
            break;
        case SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_NAME_BINDING:
            err = sf_catalog_binding_check(get->name_binding, diag);
            break;
        default:
            err = sf_diag_bad_field(diag, "lookup", "missing", "lookup must name a collection");
            break;
        }
    }
    go_on(self, SF_CATALOG_READ_COLLECTION, call, request, err);
}

static void list_collections(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(ListCollectionsRequest) *list = (const SF_PB(ListCollectionsRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    enum sf_err err = admit_read(list->meta, diag);
    if (err == SF_OK && list->namespace_id == 0)
        err = sf_diag_bad_field(diag, "namespace_id", "zero", "an id is above 0");
    if (err == SF_OK)
        err = sf_name_check("prefix", sf_view_str(list->prefix), true, diag);
    go_on(self, SF_CATALOG_READ_COLLECTIONS, call, request, err);
}

static void get_schema(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(GetCollectionSchemaRequest) *get =
        (const SF_PB(GetCollectionSchemaRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    enum sf_err err = admit_read(get->meta, diag);
    if (err == SF_OK)
        err = sf_catalog_ref_check(get->collection, diag);
    go_on(self, SF_CATALOG_READ_SCHEMA, call, request, err);
}

static void get_sync(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(GetSchemaSyncStatusRequest) *get =
        (const SF_PB(GetSchemaSyncStatusRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    enum sf_err err = admit_read(get->meta, diag);
    if (err == SF_OK)
        err = sf_catalog_ref_check(get->collection, diag);
    go_on(self, SF_CATALOG_READ_SYNC, call, request, err);
}

/* ---- private ------------------------------------------------------------------------------ */

static void resolve_binding(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(ResolveCollectionNameBindingRequest) *get =
        (const SF_PB(ResolveCollectionNameBindingRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    go_on(self, SF_CATALOG_READ_BINDING, call, request,
          sf_catalog_binding_check(get->name_binding, diag));
}

static void get_admission(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(GetCollectionAdmissionStateRequest) *get =
        (const SF_PB(GetCollectionAdmissionStateRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    go_on(self, SF_CATALOG_READ_ADMISSION, call, request,
          sf_catalog_ref_check(get->collection, diag));
}

static void report_signal(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(ReportSchemaConvergenceSignalRequest) *report =
        (const SF_PB(ReportSchemaConvergenceSignalRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    bool reason_needed = report->signal == SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, DRIFT_DETECTED) ||
                         report->signal == SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, REPAIR_FAILED);
    enum sf_err err = sf_catalog_ref_check(report->collection, diag);
    if (err == SF_OK && report->schema_version == 0)
        err = sf_diag_bad_field(diag, "schema_version", "zero", "a schema version is above 0");
    if (err == SF_OK)
        err = sf_identity_check("schema_generation_token",
                                sf_view_str(report->schema_generation_token), 1,
                                SF_LIMIT_SCHEMA_TOKEN_SCALARS, diag);
    if (err == SF_OK &&
        (report->signal < SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SCHEMA_OBJECT_PERSISTED) ||
         report->signal > SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, REPAIR_SUCCEEDED)))
        err = sf_diag_bad_field(diag, "signal", "unknown", "no such signal");
    if (err == SF_OK)
        err = sf_identity_check("reason", sf_view_str(report->reason), reason_needed ? 1 : 0, 255,
                                diag);
    go_on(self, SF_CATALOG_READ_SIGNAL, call, request, err);
}

/* ---- tables ------------------------------------------------------------------------------- */

#define METHOD(rpc, snake_request, snake_response, handler)                                        \
    {                                                                                              \
        .name = (rpc), .request = &searchfabric__v1__##snake_request##__descriptor,                \
        .response = &searchfabric__v1__##snake_response##__descriptor, .unary = (handler)          \
    }

static const struct sf_method public_methods[] = {
    METHOD("PutNamespaceMetadata", put_namespace_metadata_request, put_namespace_metadata_response,
           put_namespace),
    METHOD("ListNamespaces", list_namespaces_request, list_namespaces_response, list_namespaces),
    METHOD("GetNamespaceMetadata", get_namespace_metadata_request, get_namespace_metadata_response,
           get_namespace),
    METHOD("PutCollectionMetadata", put_collection_metadata_request,
           put_collection_metadata_response, put_collection),
    METHOD("ListCollections", list_collections_request, list_collections_response,
           list_collections),
    METHOD("GetCollectionMetadata", get_collection_metadata_request,
           get_collection_metadata_response, get_collection),
    METHOD("PutCollectionSchema", put_collection_schema_request, put_collection_schema_response,
           put_schema),
    METHOD("GetCollectionSchema", get_collection_schema_request, get_collection_schema_response,
           get_schema),
    METHOD("GetSchemaSyncStatus", get_schema_sync_status_request, get_schema_sync_status_response,
           get_sync),
    METHOD("DropCollection", drop_collection_request, drop_collection_success_response,
           drop_collection),
    METHOD("GetCollectionStatistics", get_collection_statistics_request,
           get_collection_statistics_response, sf_catalog_on_get_statistics),
};

static const struct sf_method private_methods[] = {
    METHOD("ResolveCollectionNameBinding", resolve_collection_name_binding_request,
           resolve_collection_name_binding_response, resolve_binding),
    METHOD("GetCollectionAdmissionState", get_collection_admission_state_request,
           get_collection_admission_state_response, get_admission),
    METHOD("ReportSchemaConvergenceSignal", report_schema_convergence_signal_request,
           report_schema_convergence_signal_response, report_signal),
    METHOD("SubmitNamespaceLifecycleTransition", submit_namespace_lifecycle_transition_request,
           submit_namespace_lifecycle_transition_response, transition_namespace),
    METHOD("RunReleaseSweep", run_release_sweep_request, run_release_sweep_response,
           sf_catalog_sweep_call),
    METHOD("AcquireQuotaLease", acquire_quota_lease_request, acquire_quota_lease_response,
           sf_catalog_quota_acquire),
    METHOD("ReturnQuotaLease", return_quota_lease_request, return_quota_lease_response,
           sf_catalog_quota_return),
    METHOD("ReportIngestPressure", report_ingest_pressure_request, report_ingest_pressure_response,
           sf_catalog_quota_pressure),
    METHOD("ReportIndexBacklog", report_index_backlog_request, report_index_backlog_response,
           sf_catalog_on_report_backlog),
    METHOD("ReportServingObservation", report_serving_observation_request,
           report_serving_observation_response, sf_catalog_on_report_observation),
    METHOD("ResolveServingGeneration", resolve_serving_generation_request,
           resolve_serving_generation_response, sf_catalog_on_resolve_serving),
    METHOD("ClaimLifecycleTransitions", claim_lifecycle_transitions_request,
           claim_lifecycle_transitions_response, sf_catalog_on_claim_transitions),
    METHOD("ReportLifecycleTransitionFailed", report_lifecycle_transition_failed_request,
           report_lifecycle_transition_failed_response, sf_catalog_on_report_transition_failed),
    METHOD("ListReclaimableWindows", list_reclaimable_windows_request,
           list_reclaimable_windows_response, sf_catalog_on_list_reclaimable),
    METHOD("SubmitHeadAdvanceIntent", submit_head_advance_intent_request,
           submit_head_advance_intent_response, sf_catalog_head_submit),
};

static const struct sf_method operations_methods[] = {
    METHOD("ListCatalogJobs", list_catalog_jobs_request, list_catalog_jobs_response,
           sf_catalog_jobs_list),
    METHOD("CheckCatalog", check_catalog_request, check_catalog_response, sf_catalog_check_call),
    METHOD("ShowReplay", show_replay_request, show_replay_response, sf_catalog_replay_call),
    METHOD("RunRetention", run_retention_request, run_retention_response,
           sf_catalog_retention_call),
    METHOD("CreateCheckpoint", create_checkpoint_request, create_checkpoint_response,
           sf_catalog_checkpoint_create),
    METHOD("ListCheckpoints", list_checkpoints_request, list_checkpoints_response,
           sf_catalog_checkpoint_list),
    METHOD("VerifyCheckpoint", verify_checkpoint_request, verify_checkpoint_response,
           sf_catalog_checkpoint_verify),
    METHOD("RunCatalogJob", run_catalog_job_request, run_catalog_job_response, sf_catalog_job_call),
    METHOD("DigestProjection", digest_projection_request, digest_projection_response,
           sf_catalog_digest_call),
    METHOD("ShowLineage", show_lineage_request, show_lineage_response, sf_catalog_lineage_call),
    METHOD("ShowQuota", show_quota_request, show_quota_response, sf_catalog_quota_show),
    METHOD("ShowStatistics", show_statistics_request, show_statistics_response,
           sf_catalog_on_show_statistics),
    METHOD("ShowLifecycleWindows", show_lifecycle_windows_request, show_lifecycle_windows_response,
           sf_catalog_on_show_windows),
    METHOD("ShowManifestHead", show_manifest_head_request, show_manifest_head_response,
           sf_catalog_head_show),
    METHOD("RepairManifestHead", repair_manifest_head_request, repair_manifest_head_response,
           sf_catalog_head_repair_call),
};

void sf_catalog_services(struct sf_catalog *catalog,
                         const struct sf_service *out_services[SF_CATALOG_SERVICE_COUNT])
{
    for (int i = 0; i < SF_CATALOG_SERVICE_COUNT; i++)
        out_services[i] = &catalog->services[i];
}

/* ---- life --------------------------------------------------------------------------------- */

static void register_metrics(struct sf_catalog *catalog)
{
    struct sf_metrics *metrics = catalog->deps.metrics;
    if (metrics == NULL)
        return;
    catalog->metric_commands = sf_metric_series(
        sf_metrics_family(metrics, SF_METRIC_COUNTER, "searchfabric_catalog_commands_total",
                          "Mutations admitted to a lane.", NULL),
        NULL);
    catalog->metric_replays = sf_metric_series(
        sf_metrics_family(metrics, SF_METRIC_COUNTER, "searchfabric_catalog_replays_total",
                          "Mutations answered by a stored outcome.", NULL),
        NULL);
    catalog->metric_group_ms = sf_metric_series(
        sf_metrics_family(metrics, SF_METRIC_HISTOGRAM, "searchfabric_catalog_group_commit_ms",
                          "Time from a group's append to its rows.", NULL),
        NULL);
}

static void destroy(struct sf_catalog *catalog)
{
    sf_catalog_cache_destroy(catalog->cache);
    sf_catalog_projectors_destroy(catalog->projectors);
    sf_catalog_gate_table_destroy(catalog->gates);
    sf_catalog_quotas_close(catalog);
    sf_catalog_heads_destroy(catalog->heads);
    sf_catalog_callers_destroy(catalog->callers);
    pthread_mutex_destroy(&catalog->group_mu);
    pthread_mutex_destroy(&catalog->state_mu);
    sf_catalog_claims_destroy(catalog->claims);
    free(catalog->owner_id);
    free(catalog);
}

enum sf_err sf_catalog_open(const struct sf_catalog_deps *deps, struct sf_sched *sched,
                            struct sf_diag *diag, struct sf_catalog **out_catalog)
{
    sf_diag_init(diag);
    if (deps->lane_shards > 1024)
        return sf_diag_set(diag, SF_ERR_CONFIG, "lane_shards is 1..1024");
    if (deps->cache_bytes != 0 && (deps->cache_bytes < SF_CATALOG_CACHE_BYTES_MIN ||
                                   deps->cache_bytes > SF_CATALOG_CACHE_BYTES_MAX))
        return sf_diag_set(diag, SF_ERR_CONFIG, "the catalog's cache takes 1 MiB to 1 TiB");
    enum sf_err checked = sf_catalog_policy_check(deps->policy, diag);
    if (checked != SF_OK)
        return checked;
    struct sf_catalog *catalog = sf_calloc(1, sizeof(*catalog));
    catalog->deps = *deps;
    catalog->owner_id = sf_strdup(deps->owner_id == NULL ? "ccs" : deps->owner_id);
    catalog->max_result_window =
        deps->max_result_window == 0 ? DEFAULT_RESULT_WINDOW : deps->max_result_window;
    pthread_mutex_init(&catalog->group_mu, NULL);
    pthread_mutex_init(&catalog->state_mu, NULL);
    catalog->cache = sf_catalog_cache_new(
        deps->cache_bytes == 0 ? SF_CATALOG_CACHE_BYTES : deps->cache_bytes, deps->metrics);
    catalog->projectors = sf_catalog_projectors_new();
    catalog->gates = sf_catalog_gate_table_new();
    sf_catalog_quotas_open(catalog);
    catalog->heads = sf_catalog_heads_new();
    catalog->callers = sf_catalog_callers_new(deps->policy);
    catalog->services[0] = (struct sf_service){
        .full_name = "searchfabric.v1.CatalogControlService",
        .methods = public_methods,
        .method_count = SF_ARRAY_LEN(public_methods),
        .self = catalog,
    };
    catalog->services[1] = (struct sf_service){
        .full_name = "searchfabric.v1.CatalogControlPrivateService",
        .methods = private_methods,
        .method_count = SF_ARRAY_LEN(private_methods),
        .self = catalog,
    };
    catalog->services[2] = (struct sf_service){
        .full_name = "searchfabric.v1.CatalogOperationsService",
        .methods = operations_methods,
        .method_count = SF_ARRAY_LEN(operations_methods),
        .self = catalog,
    };
    for (int i = 0; i < SF_CATALOG_SERVICE_COUNT; i++)
        sf_catalog_callers_guard(catalog->callers, &catalog->services[i]);
    register_metrics(catalog);
    catalog->claims = sf_catalog_claims_new();
    catalog->opening = true;
    enum sf_err err = sf_catalog_recover(catalog, sched, diag);
    if (err != SF_OK) {
        destroy(catalog);
        return err == SF_ERR_STOPPED || err == SF_ERR_AMBIGUOUS ? SF_ERR_UNAVAILABLE : err;
    }
    catalog->opening = false;
    sf_catalog_jobs_start(catalog);
    *out_catalog = catalog;
    return SF_OK;
}

void sf_catalog_drain(struct sf_catalog *catalog)
{
    atomic_store(&catalog->draining, true);
}

void sf_catalog_close(struct sf_catalog *catalog, struct sf_sched *sched)
{
    if (catalog == NULL)
        return;
    sf_waiter_init(&catalog->idle, sched);
    pthread_mutex_lock(&catalog->state_mu);
    atomic_store(&catalog->draining, true);
    bool busy = catalog->in_flight != 0;
    catalog->idle_wanted = busy;
    pthread_mutex_unlock(&catalog->state_mu);
    if (busy)
        sf_waiter_wait(&catalog->idle);
    sf_waiter_fini(&catalog->idle);
    sf_catalog_jobs_stop(catalog, sched);
    destroy(catalog);
}

void sf_catalog_stats(struct sf_catalog *catalog, struct sf_catalog_stats *out_stats)
{
    struct sf_catalog_cache_stats cache;
    sf_catalog_cache_stats(catalog->cache, &cache);
    *out_stats = (struct sf_catalog_stats){
        .cache_hits = cache.hits,
        .cache_misses = cache.misses,
        .cache_waits = cache.waits,
        .cache_evictions = cache.evictions,
        .cache_entries = cache.entries,
        .cache_bytes = cache.bytes,
        .owner_epoch = catalog->owner_epoch,
        .newest_segment = atomic_load(&catalog->newest_segment),
        .watermark = atomic_load(&catalog->watermark),
        .commands_applied = atomic_load(&catalog->commands_applied),
        .groups_committed = atomic_load(&catalog->groups_committed),
        .attempts_aborted = atomic_load(&catalog->attempts_aborted),
        .recovered = atomic_load(&catalog->recovered),
        .open_ms = atomic_load(&catalog->open_ms),
        .lane_shards = catalog->lane_shards,
        .rebuilt = atomic_load(&catalog->rebuilt),
        .stalled = atomic_load(&catalog->stalled) != 0,
        .projection_lost = atomic_load(&catalog->projection_lost),
        .deposed = atomic_load(&catalog->deposed),
    };
}
