/*
 * Model: one row per RPC of the catalog says whom it is for; one gate stands in front of all of
 * them and is passed before anything else is done. Callers of the private surface are known by the
 * identity that the transport proved, never by what a request says of itself. Parts of one process
 * name themselves ("searchfabric:allocator"). On plaintext loopback everybody is "loopback", which
 * may do everything: whoever reaches the port can also reach the data folder.
 */
#include "catalog/catalog_callers.h"

#include <stdlib.h>

#define QUERY_GATEWAY  SF_CATALOG_ROLE_QUERY_GATEWAY
#define INGEST_GATEWAY SF_CATALOG_ROLE_INGEST_GATEWAY
#define QUERY_BROKER   SF_CATALOG_ROLE_QUERY_BROKER
#define PUBLISHER      SF_CATALOG_ROLE_PUBLISHER
#define ALLOCATOR      SF_CATALOG_ROLE_ALLOCATOR
#define COORDINATOR    SF_CATALOG_ROLE_COORDINATOR
#define SERVING        SF_CATALOG_ROLE_SERVING
#define OPERATOR       SF_CATALOG_ROLE_OPERATOR

#define PUBLIC(name)                                                                               \
    {                                                                                              \
        (name), SF_CATALOG_SURFACE_PUBLIC, 0                                                       \
    }
#define PRIVATE(name, mask)                                                                        \
    {                                                                                              \
        (name), SF_CATALOG_SURFACE_PRIVATE, (mask)                                                 \
    }
#define FOR_OPERATORS(name)                                                                        \
    {                                                                                              \
        (name), SF_CATALOG_SURFACE_OPERATOR, OPERATOR                                              \
    }

static const struct sf_catalog_rpc rpcs[] = {
    PUBLIC("PutNamespaceMetadata"),
    PUBLIC("ListNamespaces"),
    PUBLIC("GetNamespaceMetadata"),
    PUBLIC("PutCollectionMetadata"),
    PUBLIC("ListCollections"),
    PUBLIC("GetCollectionMetadata"),
    PUBLIC("PutCollectionSchema"),
    PUBLIC("GetCollectionSchema"),
    PUBLIC("GetSchemaSyncStatus"),
    PUBLIC("DropCollection"),
    PUBLIC("GetCollectionStatistics"),
    PRIVATE("ResolveCollectionNameBinding", QUERY_GATEWAY | INGEST_GATEWAY | QUERY_BROKER),
    PRIVATE("GetCollectionAdmissionState",
            QUERY_GATEWAY | INGEST_GATEWAY | QUERY_BROKER | ALLOCATOR | COORDINATOR),
    PRIVATE("ReportSchemaConvergenceSignal", SERVING | OPERATOR),
    PRIVATE("ReportIndexBacklog", SERVING),
    PRIVATE("ReportServingObservation", SERVING),
    PRIVATE("ResolveServingGeneration", QUERY_GATEWAY | QUERY_BROKER | SERVING),
    PRIVATE("ClaimLifecycleTransitions", SERVING),
    PRIVATE("ReportLifecycleTransitionFailed", SERVING),
    PRIVATE("ListReclaimableWindows", SERVING | OPERATOR),
    PRIVATE("AcquireQuotaLease", QUERY_GATEWAY | INGEST_GATEWAY),
    PRIVATE("ReturnQuotaLease", QUERY_GATEWAY | INGEST_GATEWAY),
    PRIVATE("ReportIngestPressure", COORDINATOR),
    PRIVATE("SubmitHeadAdvanceIntent", PUBLISHER),
    PRIVATE("SubmitNamespaceLifecycleTransition", OPERATOR),
    PRIVATE("RunReleaseSweep", OPERATOR),
    FOR_OPERATORS("ListCatalogJobs"),
    FOR_OPERATORS("RunCatalogJob"),
    FOR_OPERATORS("CreateCheckpoint"),
    FOR_OPERATORS("ListCheckpoints"),
    FOR_OPERATORS("VerifyCheckpoint"),
    FOR_OPERATORS("DigestProjection"),
    FOR_OPERATORS("CheckCatalog"),
    FOR_OPERATORS("RunRetention"),
    FOR_OPERATORS("ShowReplay"),
    FOR_OPERATORS("ShowQuota"),
    FOR_OPERATORS("ShowStatistics"),
    FOR_OPERATORS("ShowManifestHead"),
    FOR_OPERATORS("RepairManifestHead"),
    FOR_OPERATORS("ShowLifecycleWindows"),
    FOR_OPERATORS("ShowLineage"),
};

static const struct sf_catalog_caller built_in[] = {
    {"loopback", SF_CATALOG_ROLE_ALL},
    {"searchfabric:query-gateway", QUERY_GATEWAY},
    {"searchfabric:ingest-gateway", INGEST_GATEWAY},
    {"searchfabric:es-gateway", INGEST_GATEWAY},
    {"searchfabric:query-broker", QUERY_BROKER},
    {"searchfabric:publisher", PUBLISHER},
    {"searchfabric:allocator", ALLOCATOR},
    {"searchfabric:coordinator", COORDINATOR},
    {"searchfabric:serving", SERVING},
    {"searchfabric:operator", OPERATOR},
};

/* One guarded method. */
struct guarded {
    sf_unary_fn handler; /* behind the gate */
    uint32_t roles;      /* needed: one of them; 0 = none */
};

struct sf_catalog_callers {
    struct sf_map *methods;                             /* name -> struct guarded */
    struct sf_map *identities;                          /* name -> uint32_t of roles */
    struct sf_method *tables[SF_CATALOG_SERVICE_COUNT]; /* method tables with the gate in front */
    size_t table_count;                                 /* used entries */
};

const struct sf_catalog_rpc *sf_catalog_rpc_find(const char *method)
{
    for (size_t i = 0; i < SF_ARRAY_LEN(rpcs); i++) {
        if (strcmp(rpcs[i].method, method) == 0)
            return &rpcs[i];
    }
    return NULL;
}

static void add_identity(struct sf_catalog_callers *callers, const struct sf_catalog_caller *caller)
{
    uint32_t *roles = sf_memdup(&caller->roles, sizeof(caller->roles));
    free(sf_map_put(callers->identities, sf_view_str(caller->identity), roles));
}

struct sf_catalog_callers *sf_catalog_callers_new(const struct sf_catalog_policy *policy)
{
    struct sf_catalog_callers *callers = sf_calloc(1, sizeof(*callers));
    callers->methods = sf_map_new();
    callers->identities = sf_map_new();
    for (size_t i = 0; i < SF_ARRAY_LEN(built_in); i++)
        add_identity(callers, &built_in[i]);
    for (size_t i = 0; policy != NULL && i < policy->caller_count; i++)
        add_identity(callers, &policy->callers[i]);
    return callers;
}

void sf_catalog_callers_destroy(struct sf_catalog_callers *callers)
{
    if (callers == NULL)
        return;
    for (size_t i = 0; i < callers->table_count; i++)
        free(callers->tables[i]);
    sf_map_destroy(callers->methods, free);
    sf_map_destroy(callers->identities, free);
    free(callers);
}

/* The gate: in front of every handler. */
static void gate(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    struct sf_catalog *catalog = self;
    const char *path = sf_call_method(call);
    const char *slash = strrchr(path, '/');
    const struct guarded *method =
        sf_map_get(catalog->callers->methods, sf_view_str(slash == NULL ? path : slash + 1));
    const char *identity = sf_call_identity(call)->name;
    SF_ASSERT(method != NULL);
    const uint32_t *roles = sf_map_get(catalog->callers->identities, sf_view_str(identity));
    if (identity[0] != '\0' &&
        (method->roles == 0 || (roles != NULL && (*roles & method->roles) != 0))) {
        method->handler(self, call, request);
        return;
    }
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    sf_diag_set(diag, SF_FORBIDDEN, "this caller has no role that may call this method");
    sf_catalog_refuse(call, diag);
}

void sf_catalog_callers_guard(struct sf_catalog_callers *callers, struct sf_service *service)
{
    struct sf_method *table =
        sf_memdup(service->methods, service->method_count * sizeof(*service->methods));
    SF_ASSERT(callers->table_count < SF_CATALOG_SERVICE_COUNT);
    callers->tables[callers->table_count++] = table;
    for (size_t i = 0; i < service->method_count; i++) {
        const struct sf_catalog_rpc *rpc = sf_catalog_rpc_find(table[i].name);
        struct guarded *method = sf_calloc(1, sizeof(*method));
        SF_ASSERT(table[i].unary != NULL);
        *method = (struct guarded){.handler = table[i].unary,
                                   .roles = rpc == NULL ? OPERATOR : rpc->roles};
        free(sf_map_put(callers->methods, sf_view_str(table[i].name), method));
        table[i].unary = gate;
    }
    service->methods = table;
}
