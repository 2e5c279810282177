/*
 * Model: one row per method of the contract. A method starts as `false` when it is declared and is
 * turned to `true` in the change that brings its handler. Tests compare the rows with the
 * descriptors, in both directions, so that a method of the contract cannot be forgotten here.
 */
#include "contract/served.h"

#include <string.h>

#define CATALOG     "searchfabric.v1.CatalogControlService"
#define CATALOG_INT "searchfabric.v1.CatalogControlPrivateService"
#define CATALOG_OPS "searchfabric.v1.CatalogOperationsService"
#define COORDINATOR "searchfabric.v1.CommitCoordinatorService"
#define ALLOCATOR   "searchfabric.v1.IdAllocatorService"
#define ALLOC_OPS   "searchfabric.v1.AllocatorOperationsService"
#define INGEST      "searchfabric.v1.IngestGatewayService"
#define OPERATIONS  "searchfabric.v1.OperationsService"
#define PUBLISHER   "searchfabric.v1.ManifestPublisherService"
#define WRITER      "searchfabric.v1.ModalityWriterService"
#define BARRIER     "searchfabric.v1.VisibilityBarrierService"

static const struct sf_contract_method methods[] = {
    {CATALOG_INT, "ResolveCollectionNameBinding", true},
    {CATALOG_INT, "GetCollectionAdmissionState", true},
    {CATALOG_INT, "ReportSchemaConvergenceSignal", true},
    {CATALOG_INT, "AcquireQuotaLease", true},
    {CATALOG_INT, "ReturnQuotaLease", true},
    {CATALOG_INT, "ReportIngestPressure", true},
    {CATALOG_INT, "ReportIndexBacklog", true},
    {CATALOG_INT, "ReportServingObservation", true},
    {CATALOG_INT, "ResolveServingGeneration", true},
    {CATALOG_INT, "ClaimLifecycleTransitions", true},
    {CATALOG_INT, "ReportLifecycleTransitionFailed", true},
    {CATALOG_INT, "ListReclaimableWindows", true},
    {CATALOG_INT, "SubmitHeadAdvanceIntent", true},
    {CATALOG_INT, "SubmitNamespaceLifecycleTransition", true},
    {CATALOG_INT, "RunReleaseSweep", true},
    {CATALOG_OPS, "ListCatalogJobs", true},
    {CATALOG_OPS, "RunCatalogJob", true},
    {CATALOG_OPS, "CreateCheckpoint", true},
    {CATALOG_OPS, "ListCheckpoints", true},
    {CATALOG_OPS, "VerifyCheckpoint", true},
    {CATALOG_OPS, "DigestProjection", true},
    {CATALOG_OPS, "CheckCatalog", true},
    {CATALOG_OPS, "RunRetention", true},
    {CATALOG_OPS, "ShowReplay", true},
    {CATALOG_OPS, "ShowQuota", true},
    {CATALOG_OPS, "ShowStatistics", true},
    {CATALOG_OPS, "ShowManifestHead", true},
    {CATALOG_OPS, "RepairManifestHead", true},
    {CATALOG_OPS, "ShowLineage", true},
    {CATALOG_OPS, "ShowLifecycleWindows", true},
    {CATALOG, "PutNamespaceMetadata", true},
    {CATALOG, "ListNamespaces", true},
    {CATALOG, "GetNamespaceMetadata", true},
    {CATALOG, "PutCollectionMetadata", true},
    {CATALOG, "ListCollections", true},
    {CATALOG, "GetCollectionMetadata", true},
    {CATALOG, "PutCollectionSchema", true},
    {CATALOG, "GetCollectionSchema", true},
    {CATALOG, "GetSchemaSyncStatus", true},
    {CATALOG, "DropCollection", true},
    {CATALOG, "GetCollectionStatistics", true},
    {COORDINATOR, "SubmitPlannedBatch", false},
    {COORDINATOR, "GetCollectionWatermarks", true},
    {COORDINATOR, "GetLaneState", true},
    {ALLOCATOR, "AllocateIds", true},
    {ALLOC_OPS, "RunAllocatorRetention", true},
    {ALLOC_OPS, "RebuildAllocatorExport", true},
    {ALLOC_OPS, "ExplainAllocator", true},
    {INGEST, "StreamMutations", true},
    {PUBLISHER, "SubmitPublishReady", false},
    {PUBLISHER, "ReleaseWalReplayStart", false},
    {WRITER, "ApplySlice", false},
    {OPERATIONS, "GetStatus", true},
    {OPERATIONS, "ListObjects", true},
    {OPERATIONS, "GetObject", true},
    {BARRIER, "RegisterWriteIntent", false},
    {BARRIER, "ReportModalityDurable", false},
    {BARRIER, "ReportPublished", false},
};

const struct sf_contract_method *sf_contract_methods(size_t *out_count)
{
    *out_count = SF_ARRAY_LEN(methods);
    return methods;
}

const struct sf_contract_method *sf_contract_method_find(struct sf_view path)
{
    if (path.len == 0 || path.ptr[0] != '/')
        return NULL;
    struct sf_view rest = sf_view_bytes(path.ptr + 1, path.len - 1);
    for (size_t i = 0; i < SF_ARRAY_LEN(methods); i++) {
        size_t service_len = strlen(methods[i].service);
        if (rest.len <= service_len || rest.ptr[service_len] != '/' ||
            memcmp(rest.ptr, methods[i].service, service_len) != 0)
            continue;
        struct sf_view name = sf_view_bytes(rest.ptr + service_len + 1, rest.len - service_len - 1);
        if (sf_view_equal(name, sf_view_str(methods[i].method)))
            return &methods[i];
    }
    return NULL;
}

enum sf_err sf_contract_unserved(struct sf_view path, struct sf_diag *diag)
{
    bool declared = sf_contract_method_find(path) != NULL;
    int len = (int)(path.len < SF_DIAG_VALUE_BYTES - 1 ? path.len : SF_DIAG_VALUE_BYTES - 1);
    const char *text = path.len == 0 ? "" : (const char *)path.ptr;
    sf_diag_set(diag, SF_UNIMPLEMENTED, "%.*s is %s", len, text,
                declared ? "declared by the contract and not served by this build"
                         : "not a method of this server");
    sf_diag_detail(diag, "rpc_method", "%.*s", len, text);
    return SF_UNIMPLEMENTED;
}
