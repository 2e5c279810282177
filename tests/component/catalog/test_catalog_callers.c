/* Who may call what: every public method by every client kind and truth mode, every private and
 * operator's method by every role; a refusal writes nothing. The expectations are those of note 2.1
 * with OP-06 to OP-08, written down here once more. */
#include <stdio.h>
#include <stdlib.h>

#include "catalog/catalog_callers.h"
#include "component/catalog/reject_world.h"
#include "contract/served.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define KINDS 10 /* 0..9 */

/* Letters: adapter, Control admin, ES write, ES query, TP write, TP query, TiDB write, query, CDC.
 * '+' admitted, 'f' SF_FORBIDDEN, 'o' SF_OWNERSHIP_CONFLICT. */
static const char *const matrix[][3] = {
    /* method                 EXTERNAL      SEARCH_FABRIC */
    {"PutNamespaceMetadata", "++fffffff", "++fffffff"},
    {"PutCollectionMetadata", "+ooooofff", "o+++++fff"},
    {"PutCollectionSchema", "+ooooofff", "o+++++fff"},
    {"DropCollection", "+oofoffff", "o++f+ffff"},
    {"ListNamespaces", "+++++++++", "+++++++++"},
    {"GetNamespaceMetadata", "+++++++++", "+++++++++"},
    {"ListCollections", "+++++++++", "+++++++++"},
    {"GetCollectionMetadata", "+++++++++", "+++++++++"},
    {"GetCollectionSchema", "+++++++++", "+++++++++"},
    {"GetSchemaSyncStatus", "+++++++++", "+++++++++"},
    {"GetCollectionStatistics", "+++++++++", "+++++++++"},
};

struct fixture {
    struct world *w;
    uint64_t ns;
    uint64_t ids[2]; /* a collection of either mode with a schema */
    unsigned serial; /* makes names and keys */
};

static const SF_PB(CollectionTruthMode) modes[2] = {SF_PBE(COLLECTION_TRUTH_MODE, EXTERNAL),
                                                    SF_PBE(COLLECTION_TRUTH_MODE, SEARCH_FABRIC)};

static const char *word(struct fixture *f, const char *stem)
{
    char text[48];
    snprintf(text, sizeof(text), "%s-%u", stem, ++f->serial);
    return sf_arena_str(f->w->arena, sf_view_str(text));
}

static SF_PB(CollectionRef) * ref_of(struct fixture *f, uint64_t id)
{
    SF_PB(CollectionRef) *ref = sf_arena_alloc(f->w->arena, sizeof(*ref));
    searchfabric__v1__collection_ref__init(ref);
    ref->namespace_id = f->ns;
    ref->collection_id = id;
    return ref;
}

static uint64_t make_collection(struct fixture *f, int mode)
{
    SF_PB(PutCollectionMetadataRequest) *put =
        world_collection_request(f->w, word(f, "key"), f->ns, word(f, "made"));
    if (mode == 0)
        put->meta->client_kind = SF_PBE(CLIENT_KIND, TIDB_DDL_ADAPTER);
    const SF_PB(PutCollectionMetadataResponse) *made =
        world_call(f->w, "PutCollectionMetadata", put);
    assert_non_null(made);
    return made->descriptor->collection->collection_id;
}

static SF_PB(PutCollectionSchemaRequest) *
    schema_request(struct fixture *f, uint64_t id, int mode, uint64_t version)
{
    SF_PB(PutCollectionSchemaRequest) *put =
        world_schema_request(f->w, word(f, "key"), f->ns, id, version, word(f, "tok"));
    put->definition->collection_truth_mode = modes[mode];
    return put;
}

static void setup_fixture(struct fixture *f)
{
    f->w = world_new(true);
    f->ns = world_namespace(f->w, "n", "alpha");
    for (int mode = 0; mode < 2; mode++) {
        f->ids[mode] = make_collection(f, mode);
        SF_PB(PutCollectionSchemaRequest) *put = schema_request(f, f->ids[mode], mode, 1);
        if (mode == 0)
            put->meta->client_kind = SF_PBE(CLIENT_KIND, TIDB_DDL_ADAPTER);
        assert_non_null(world_call(f->w, "PutCollectionSchema", put));
    }
}

/* A fresh well-formed mutation of `method`, NULL when it is a read. */
static ProtobufCMessage *mutation_of(struct fixture *f, const char *method, int mode)
{
    struct world *w = f->w;
    if (strcmp(method, "PutNamespaceMetadata") == 0)
        return &world_namespace_request(w, word(f, "key"), word(f, "ns"))->base;
    if (strcmp(method, "PutCollectionMetadata") == 0) {
        SF_PB(PutCollectionMetadataRequest) *put =
            world_collection_request(w, word(f, "key"), f->ns, word(f, "c"));
        put->collection_truth_mode = modes[mode];
        return &put->base;
    }
    if (strcmp(method, "PutCollectionSchema") == 0)
        return &schema_request(f, make_collection(f, mode), mode, 1)->base;
    if (strcmp(method, "DropCollection") == 0) {
        SF_PB(DropCollectionRequest) *drop = sf_arena_alloc(w->arena, sizeof(*drop));
        searchfabric__v1__drop_collection_request__init(drop);
        drop->meta = world_meta(w, word(f, "key"), SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
        drop->collection = ref_of(f, make_collection(f, mode));
        return &drop->base;
    }
    return NULL;
}

static ProtobufCMessage *read_of(struct fixture *f, const char *method, int mode)
{
    struct world *w = f->w;
    SF_PB(RequestMeta) *meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    if (strcmp(method, "ListNamespaces") == 0) {
        SF_PB(ListNamespacesRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
        searchfabric__v1__list_namespaces_request__init(out);
        out->meta = meta;
        return &out->base;
    }
    if (strcmp(method, "GetNamespaceMetadata") == 0) {
        SF_PB(GetNamespaceMetadataRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
        searchfabric__v1__get_namespace_metadata_request__init(out);
        out->meta = meta;
        out->lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID;
        out->namespace_id = f->ns;
        return &out->base;
    }
    if (strcmp(method, "ListCollections") == 0) {
        SF_PB(ListCollectionsRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
        searchfabric__v1__list_collections_request__init(out);
        out->meta = meta;
        out->namespace_id = f->ns;
        return &out->base;
    }
    if (strcmp(method, "GetCollectionMetadata") == 0) {
        SF_PB(GetCollectionMetadataRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
        searchfabric__v1__get_collection_metadata_request__init(out);
        out->meta = meta;
        out->lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_COLLECTION;
        out->collection = ref_of(f, f->ids[mode]);
        return &out->base;
    }
    if (strcmp(method, "GetCollectionSchema") == 0) {
        SF_PB(GetCollectionSchemaRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
        searchfabric__v1__get_collection_schema_request__init(out);
        out->meta = meta;
        out->collection = ref_of(f, f->ids[mode]);
        return &out->base;
    }
    if (strcmp(method, "GetCollectionStatistics") == 0) {
        SF_PB(GetCollectionStatisticsRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
        searchfabric__v1__get_collection_statistics_request__init(out);
        out->meta = meta;
        out->collection = ref_of(f, f->ids[mode]);
        return &out->base;
    }
    SF_PB(GetSchemaSyncStatusRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
    searchfabric__v1__get_schema_sync_status_request__init(out);
    out->meta = meta;
    out->collection = ref_of(f, f->ids[mode]);
    return &out->base;
}

static enum sf_err expected(char c)
{
    switch (c) {
    case '+':
        return SF_OK;
    case 'f':
        return SF_FORBIDDEN;
    default:
        return SF_OWNERSHIP_CONFLICT;
    }
}

/* One cell: the call, its error, and that a refusal wrote nothing. */
static void check_cell(struct fixture *f, const char *method, int mode, int kind, enum sf_err want)
{
    ProtobufCMessage *request = mutation_of(f, method, mode);
    if (request == NULL)
        request = read_of(f, method, mode);
    sf_catalog_meta_of(request)->client_kind = (SF_PB(ClientKind))kind;
    if (want == SF_OK && strcmp(method, "GetCollectionStatistics") == 0)
        want = SF_CATALOG_UNAVAILABLE; /* admitted, but no generation is READY */
    const char *before = reject_mark(f->w);
    const void *answer = world_call(f->w, method, request);
    if (f->w->diag.err != want)
        fail_msg("%s, mode %d, kind %d: %s instead of %s", method, mode, kind,
                 sf_err_info(f->w->diag.err)->name, sf_err_info(want)->name);
    assert_int_equal(answer != NULL, want == SF_OK);
    if (want != SF_OK)
        assert_string_equal(reject_mark(f->w), before);
}

static void test_kinds(void **state)
{
    (void)state;
    SF_PROVES("CCS-2.1-13");
    struct fixture f = {0};
    setup_fixture(&f);
    for (size_t i = 0; i < SF_ARRAY_LEN(matrix); i++) {
        for (int mode = 0; mode < 2; mode++) {
            for (int kind = 1; kind < KINDS; kind++)
                check_cell(&f, matrix[i][0], mode, kind, expected(matrix[i][1 + mode][kind - 1]));
            check_cell(&f, matrix[i][0], mode, 0, SF_BAD_REQUEST);
            check_cell(&f, matrix[i][0], mode, KINDS, SF_BAD_REQUEST);
            check_cell(&f, matrix[i][0], mode, 31, SF_BAD_REQUEST);
            check_cell(&f, matrix[i][0], mode, -1, SF_BAD_REQUEST);
        }
    }
    world_destroy(f.w);
}

/* First creation of an EXTERNAL lineage, from the namespace to the drop, by its adapter alone. */
static void test_bootstrap(void **state)
{
    (void)state;
    SF_PROVES("CCS-2.1-07", "CCS-2.1-06", "CCS-2.1-10");
    struct world *w = world_new(true);
    struct fixture f = {.w = w};
    SF_PB(PutNamespaceMetadataRequest) *ns = world_namespace_request(w, "n", "tidb");
    ns->meta->client_kind = SF_PBE(CLIENT_KIND, TIDB_DDL_ADAPTER);
    const SF_PB(PutNamespaceMetadataResponse) *made = world_call(w, "PutNamespaceMetadata", ns);
    assert_non_null(made);
    f.ns = made->descriptor->namespace_id;
    static const int others[] = {2, 3, 4, 5, 6, 7, 8, 9};
    for (size_t i = 0; i < SF_ARRAY_LEN(others); i++) { /* nobody else creates one */
        SF_PB(PutCollectionMetadataRequest) *put =
            world_collection_request(w, word(&f, "k"), f.ns, "orders");
        put->meta->client_kind = (SF_PB(ClientKind))others[i];
        put->collection_truth_mode = SF_PBE(COLLECTION_TRUTH_MODE, EXTERNAL);
        const char *before = reject_mark(w);
        assert_null(world_call(w, "PutCollectionMetadata", put));
        assert_string_equal(reject_mark(w), before);
    }
    SF_PB(PutCollectionMetadataRequest) *put = world_collection_request(w, "c", f.ns, "orders");
    put->meta->client_kind = SF_PBE(CLIENT_KIND, TIDB_DDL_ADAPTER);
    const SF_PB(PutCollectionMetadataResponse) *collection =
        world_call(w, "PutCollectionMetadata", put);
    assert_non_null(collection);
    uint64_t id = collection->descriptor->collection->collection_id;
    SF_PB(PutCollectionSchemaRequest) *schema = schema_request(&f, id, 0, 1);
    schema->meta->client_kind = SF_PBE(CLIENT_KIND, TIDB_DDL_ADAPTER);
    assert_non_null(world_call(w, "PutCollectionSchema", schema));
    SF_PB(DropCollectionRequest) drop;
    searchfabric__v1__drop_collection_request__init(&drop);
    drop.meta = world_meta(w, "d", SF_PBE(CLIENT_KIND, TIDB_DDL_ADAPTER));
    drop.collection = ref_of(&f, id);
    assert_non_null(world_call(w, "DropCollection", &drop));
    f.ids[0] = id;
    assert_null(world_call(w, "GetCollectionMetadata", read_of(&f, "GetCollectionMetadata", 0)));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);

    /* a TiDB caller that misses a SEARCH_FABRIC identity gets no replacement */
    for (int kind = 7; kind <= 9; kind++) {
        SF_PB(PutCollectionMetadataRequest) *ensure =
            world_collection_request(w, word(&f, "k"), f.ns, "fabric");
        ensure->meta->client_kind = (SF_PB(ClientKind))kind;
        assert_null(world_call(w, "PutCollectionMetadata", ensure));
        assert_int_equal(w->diag.err, SF_FORBIDDEN);
        SF_PB(GetCollectionMetadataRequest) get;
        searchfabric__v1__get_collection_metadata_request__init(&get);
        get.meta = world_meta(w, "", (SF_PB(ClientKind))kind);
        get.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_NAME_BINDING;
        get.name_binding = ensure->name_binding;
        assert_null(world_call(w, "GetCollectionMetadata", &get));
        assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
    }
    SF_PB(PutCollectionMetadataRequest) *adapter =
        world_collection_request(w, word(&f, "k"), f.ns, "fabric");
    adapter->meta->client_kind = SF_PBE(CLIENT_KIND, TIDB_DDL_ADAPTER);
    adapter->collection_truth_mode = SF_PBE(COLLECTION_TRUTH_MODE, SEARCH_FABRIC);
    assert_null(world_call(w, "PutCollectionMetadata", adapter));
    assert_int_equal(w->diag.err, SF_OWNERSHIP_CONFLICT);
    world_collection(w, "admin", f.ns, "fabric");
    assert_int_equal(world_list(w, "catalog-allocator/collection-name/", NULL), 2);
    struct sf_sql_stmt *stmt;
    bool row;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    assert_int_equal(sf_sql_prepare(conn,
                                    "SELECT last_allocated_epoch FROM collection_name_epochs"
                                    " WHERE collection_name = 'fabric'",
                                    &w->diag, &stmt),
                     SF_OK);
    assert_int_equal(sf_sql_step(stmt, &w->diag, &row), SF_OK);
    assert_true(row);
    assert_int_equal(sf_sql_col_u64(stmt, 0), 1);
    sf_sql_finish(stmt);
    sf_sql_release(conn);
    world_destroy(w);
}

/* ---- roles -------------------------------------------------------------------------------- */

/* Who may call the private surface: letters of the roles below. */
static const struct {
    char letter;
    const char *identity;
} roles[] = {
    {'Q', "searchfabric:query-gateway"}, {'I', "searchfabric:ingest-gateway"},
    {'B', "searchfabric:query-broker"},  {'P', "searchfabric:publisher"},
    {'A', "searchfabric:allocator"},     {'C', "searchfabric:coordinator"},
    {'S', "searchfabric:serving"},       {'O', "searchfabric:operator"},
};
static const char *const private_roles[][2] = {
    {"ResolveCollectionNameBinding", "QIB"},
    {"GetCollectionAdmissionState", "QIBAC"},
    {"ReportSchemaConvergenceSignal", "SO"},
    {"ReportIndexBacklog", "S"},
    {"ReportServingObservation", "S"},
    {"ResolveServingGeneration", "QBS"},
    {"ClaimLifecycleTransitions", "S"},
    {"ReportLifecycleTransitionFailed", "S"},
    {"ListReclaimableWindows", "SO"},
    {"AcquireQuotaLease", "QI"},
    {"ReturnQuotaLease", "QI"},
    {"ReportIngestPressure", "C"},
    {"SubmitHeadAdvanceIntent", "P"},
    {"SubmitNamespaceLifecycleTransition", "O"},
    {"RunReleaseSweep", "O"},
};

/* An empty request of a method, from the descriptors of the services. */
static ProtobufCMessage *empty_request(struct world *w, const char *service, const char *method)
{
    const ProtobufCServiceDescriptor *desc =
        strstr(service, "Operations") != NULL
            ? &searchfabric__v1__catalog_operations_service__descriptor
            : &searchfabric__v1__catalog_control_private_service__descriptor;
    const ProtobufCMethodDescriptor *found =
        protobuf_c_service_descriptor_get_method_by_name(desc, method);
    assert_non_null(found);
    ProtobufCMessage *out = sf_arena_alloc(w->arena, found->input->sizeof_message);
    protobuf_c_message_init(found->input, out);
    return out;
}

static enum sf_err call_error(struct world *w, const char *identity, const char *method,
                              const void *request)
{
    world_call_as(w, identity, method, request);
    return w->diag.err;
}

/* Quota is no part of the public service: not its RPCs, not one by a name like theirs. */
static void check_no_public_lease(void)
{
    static const ProtobufCServiceDescriptor *const desc =
        &searchfabric__v1__catalog_control_service__descriptor;
    static const char *const names[] = {"AcquireQuotaLease", "ReturnQuotaLease",
                                        "ReportIngestPressure", "ShowQuota"};
    for (size_t i = 0; i < SF_ARRAY_LEN(names); i++) {
        assert_null(protobuf_c_service_descriptor_get_method_by_name(desc, names[i]));
        const struct sf_catalog_rpc *rpc = sf_catalog_rpc_find(names[i]);
        assert_non_null(rpc);
        assert_int_not_equal(rpc->surface, SF_CATALOG_SURFACE_PUBLIC);
    }
    assert_int_equal(desc->n_methods, SF_ARRAY_LEN(matrix));
    for (unsigned i = 0; i < desc->n_methods; i++) {
        assert_null(strstr(desc->methods[i].name, "Quota"));
        assert_null(strstr(desc->methods[i].name, "Lease"));
    }
}

static void test_roles(void **state)
{
    (void)state;
    SF_PROVES("CCS-5.10-01");
    check_no_public_lease();
    struct world *w = world_new(true);
    size_t count, seen = 0;
    const struct sf_contract_method *methods = sf_contract_methods(&count);
    for (size_t i = 0; i < count; i++) {
        const char *service = methods[i].service;
        bool operations = strstr(service, "CatalogOperationsService") != NULL;
        if (!operations && strstr(service, "CatalogControlPrivateService") == NULL)
            continue;
        const char *admitted = operations ? "O" : NULL;
        for (size_t k = 0; k < SF_ARRAY_LEN(private_roles); k++) {
            if (strcmp(private_roles[k][0], methods[i].method) == 0)
                admitted = private_roles[k][1];
        }
        assert_non_null(admitted); /* every method is in the table */
        assert_non_null(sf_catalog_rpc_find(methods[i].method));
        seen++;
        if (!methods[i].served)
            continue;
        const void *request = empty_request(w, service, methods[i].method);
        const char *before = reject_mark(w);
        for (size_t k = 0; k < SF_ARRAY_LEN(roles); k++) {
            enum sf_err err = call_error(w, roles[k].identity, methods[i].method, request);
            bool may = strchr(admitted, roles[k].letter) != NULL;
            if ((err == SF_FORBIDDEN) == may)
                fail_msg("%s by %s: %s", methods[i].method, roles[k].identity,
                         sf_err_info(err)->name);
            if (!may)
                assert_string_equal(reject_mark(w), before);
        }
        assert_int_equal(call_error(w, "stranger", methods[i].method, request), SF_FORBIDDEN);
        assert_int_equal(call_error(w, "", methods[i].method, request), SF_FORBIDDEN);
        assert_true(call_error(w, "loopback", methods[i].method, request) != SF_FORBIDDEN);
    }
    assert_true(seen >= 25);
    world_destroy(w);
}

/* The configured map: adds identities, and replaces the built-in roles of one. */
static void test_configured(void **state)
{
    (void)state;
    static const struct sf_catalog_caller callers[] = {
        {"spiffe://acme/gateway", SF_CATALOG_ROLE_INGEST_GATEWAY | SF_CATALOG_ROLE_OPERATOR},
        {"searchfabric:allocator", SF_CATALOG_ROLE_SERVING},
    };
    static const struct sf_catalog_policy policy = {.callers = callers, .caller_count = 2};
    struct world *w = world_new(true);
    w->policy = &policy;
    world_restart(w);
    const char *list = "ListCatalogJobs", *admission = "GetCollectionAdmissionState";
    SF_PB(ListCatalogJobsRequest) jobs;
    SF_PB(GetCollectionAdmissionStateRequest) get;
    searchfabric__v1__list_catalog_jobs_request__init(&jobs);
    searchfabric__v1__get_collection_admission_state_request__init(&get);
    assert_int_equal(call_error(w, "spiffe://acme/gateway", list, &jobs), SF_OK);
    assert_int_equal(call_error(w, "spiffe://acme/gateway", admission, &get), SF_BAD_REQUEST);
    assert_int_equal(call_error(w, "searchfabric:allocator", admission, &get), SF_FORBIDDEN);
    assert_int_equal(call_error(w, "loopback", list, &jobs), SF_OK);
    world_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_bootstrap),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_configured),
    };
    return SF_RUN_TESTS("catalog_callers", tests);
}
