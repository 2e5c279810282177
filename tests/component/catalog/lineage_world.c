#include "component/catalog/lineage_world.h"

#include <inttypes.h>
#include <stdio.h>

static SF_PB(CollectionRef) * ref_of(struct world *w, uint64_t ns, uint64_t id)
{
    SF_PB(CollectionRef) *ref = sf_arena_alloc(w->arena, sizeof(*ref));
    searchfabric__v1__collection_ref__init(ref);
    ref->namespace_id = ns;
    ref->collection_id = id;
    return ref;
}

SF_PB(DropCollectionRequest) * lineage_drop_request(struct world *w, const char *key, uint64_t ns,
                                                    uint64_t id, const char *token)
{
    SF_PB(DropCollectionRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
    searchfabric__v1__drop_collection_request__init(out);
    out->meta = world_meta(w, key, SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    out->collection = ref_of(w, ns, id);
    if (token != NULL) {
        out->fence = sf_arena_alloc(w->arena, sizeof(*out->fence));
        searchfabric__v1__schema_fence_precondition__init(out->fence);
        out->fence->schema_generation_token = sf_arena_str(w->arena, sf_view_str(token));
    }
    return out;
}

int lineage_drop(struct world *w, const char *key, uint64_t ns, uint64_t id, const char *token)
{
    const SF_PB(DropCollectionSuccessResponse) *response =
        world_call(w, "DropCollection", lineage_drop_request(w, key, ns, id, token));
    return response == NULL ? 0 : (int)response->status;
}

const SF_PB(SubmitNamespaceLifecycleTransitionResponse) *
    lineage_transition(struct world *w, uint64_t ns, SF_PB(NamespaceLifecycleState) target,
                       uint64_t expected)
{
    SF_PB(SubmitNamespaceLifecycleTransitionRequest) request;
    searchfabric__v1__submit_namespace_lifecycle_transition_request__init(&request);
    request.namespace_id = ns;
    request.target_lifecycle_state = target;
    request.expected_namespace_revision = expected;
    return world_call(w, "SubmitNamespaceLifecycleTransition", &request);
}

const SF_PB(RunReleaseSweepResponse) * lineage_sweep(struct world *w)
{
    SF_PB(RunReleaseSweepRequest) request;
    searchfabric__v1__run_release_sweep_request__init(&request);
    const SF_PB(RunReleaseSweepResponse) *response = world_call(w, "RunReleaseSweep", &request);
    assert_non_null(response);
    return response;
}

const SF_PB(ShowLineageResponse) * lineage_show(struct world *w, uint64_t ns, uint64_t id)
{
    SF_PB(ShowLineageRequest) request;
    searchfabric__v1__show_lineage_request__init(&request);
    if (id == 0) {
        request.lookup_case = SEARCHFABRIC__V1__SHOW_LINEAGE_REQUEST__LOOKUP_NAMESPACE_ID;
        request.namespace_id = ns;
    } else {
        request.lookup_case = SEARCHFABRIC__V1__SHOW_LINEAGE_REQUEST__LOOKUP_COLLECTION;
        request.collection = ref_of(w, ns, id);
    }
    return world_call(w, "ShowLineage", &request);
}

uint64_t lineage_revision(struct world *w, uint64_t ns)
{
    const SF_PB(ShowLineageResponse) *shown = lineage_show(w, ns, 0);
    assert_non_null(shown);
    return shown->namespace_row->namespace_revision;
}

uint64_t lineage_binding(struct world *w, uint64_t ns)
{
    SF_PB(ResolveCollectionNameBindingRequest) request;
    SF_PB(CollectionNameBinding) binding;
    searchfabric__v1__resolve_collection_name_binding_request__init(&request);
    searchfabric__v1__collection_name_binding__init(&binding);
    binding.namespace_id = ns;
    binding.collection_name = "nobody";
    request.name_binding = &binding;
    const SF_PB(ResolveCollectionNameBindingResponse) *response =
        world_call(w, "ResolveCollectionNameBinding", &request);
    assert_non_null(response);
    return response->collection_name_binding_revision;
}

void lineage_conflict(struct world *w, const void *answer, const char *scope, const char *state)
{
    assert_null(answer);
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_non_null(sf_diag_get(&w->diag, "reservation_scope"));
    assert_string_equal(sf_diag_get(&w->diag, "reservation_scope"), scope);
    assert_string_equal(sf_diag_get(&w->diag, "conflicting_lifecycle_state"), state);
}

/* ---- records ------------------------------------------------------------------------------ */

const SF_PB(CommandOutcomeObject) *
    lineage_record(struct world *w, SF_PB(CommandKind) kind, size_t nth)
{
    struct sf_list_entry *entries = NULL;
    const SF_PB(CommandOutcomeObject) * found[256];
    size_t count = 0;
    size_t matches = 0;
    assert_int_equal(sf_store_list_wait(w->truth, NULL, sf_view_str("catalog-log/"),
                                        sf_view_str(""), 256, w->arena, &entries, &count),
                     SF_OK);
    for (size_t i = 0; i < count; i++) {
        const SF_PB(CommandOutcomeObject) *record =
            world_object(w, sf_arena_str(w->arena, entries[i].key),
                         &searchfabric__v1__command_outcome_object__descriptor);
        if (record->command_kind != kind || record->abort != NULL)
            continue;
        size_t at = matches++;
        while (at > 0 && found[at - 1]->applied_ts > record->applied_ts) {
            found[at] = found[at - 1];
            at--;
        }
        found[at] = record;
    }
    return nth < matches ? found[nth] : NULL;
}

size_t lineage_records(struct world *w)
{
    return world_list(w, "catalog-log/", NULL);
}

/* ---- reads -------------------------------------------------------------------------------- */

static enum sf_err err_of(struct world *w, const void *answer)
{
    return answer == NULL ? w->diag.err : SF_OK;
}

static SF_PB(RequestMeta) * reader(struct world *w)
{
    return world_meta(w, "", SF_PBE(CLIENT_KIND, ES_QUERY_GATEWAY));
}

enum sf_err lineage_get_collection(struct world *w, uint64_t ns, uint64_t id)
{
    SF_PB(GetCollectionMetadataRequest) get;
    searchfabric__v1__get_collection_metadata_request__init(&get);
    get.meta = reader(w);
    get.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_COLLECTION;
    get.collection = ref_of(w, ns, id);
    return err_of(w, world_call(w, "GetCollectionMetadata", &get));
}

enum sf_err lineage_get_named(struct world *w, uint64_t ns, const char *name)
{
    SF_PB(GetCollectionMetadataRequest) get;
    SF_PB(CollectionNameBinding) binding;
    searchfabric__v1__get_collection_metadata_request__init(&get);
    searchfabric__v1__collection_name_binding__init(&binding);
    binding.namespace_id = ns;
    binding.collection_name = sf_arena_str(w->arena, sf_view_str(name));
    get.meta = reader(w);
    get.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_NAME_BINDING;
    get.name_binding = &binding;
    return err_of(w, world_call(w, "GetCollectionMetadata", &get));
}

enum sf_err lineage_get_schema(struct world *w, uint64_t ns, uint64_t id)
{
    SF_PB(GetCollectionSchemaRequest) get;
    searchfabric__v1__get_collection_schema_request__init(&get);
    get.meta = reader(w);
    get.collection = ref_of(w, ns, id);
    return err_of(w, world_call(w, "GetCollectionSchema", &get));
}

enum sf_err lineage_get_sync(struct world *w, uint64_t ns, uint64_t id)
{
    SF_PB(GetSchemaSyncStatusRequest) get;
    searchfabric__v1__get_schema_sync_status_request__init(&get);
    get.meta = reader(w);
    get.collection = ref_of(w, ns, id);
    return err_of(w, world_call(w, "GetSchemaSyncStatus", &get));
}

enum sf_err lineage_get_namespace(struct world *w, uint64_t ns)
{
    SF_PB(GetNamespaceMetadataRequest) get;
    searchfabric__v1__get_namespace_metadata_request__init(&get);
    get.meta = reader(w);
    get.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID;
    get.namespace_id = ns;
    return err_of(w, world_call(w, "GetNamespaceMetadata", &get));
}

enum sf_err lineage_get_namespace_named(struct world *w, const char *name)
{
    SF_PB(GetNamespaceMetadataRequest) get;
    searchfabric__v1__get_namespace_metadata_request__init(&get);
    get.meta = reader(w);
    get.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_NAME;
    get.namespace_name = sf_arena_str(w->arena, sf_view_str(name));
    return err_of(w, world_call(w, "GetNamespaceMetadata", &get));
}

size_t lineage_listed(struct world *w, uint64_t ns, const char *prefix)
{
    SF_PB(ListCollectionsRequest) list;
    searchfabric__v1__list_collections_request__init(&list);
    list.meta = reader(w);
    list.namespace_id = ns;
    list.prefix = sf_arena_str(w->arena, sf_view_str(prefix));
    const SF_PB(ListCollectionsResponse) *response = world_call(w, "ListCollections", &list);
    assert_non_null(response);
    return response->n_collections;
}

size_t lineage_listed_namespaces(struct world *w, const char *prefix)
{
    SF_PB(ListNamespacesRequest) list;
    searchfabric__v1__list_namespaces_request__init(&list);
    list.meta = reader(w);
    list.prefix = sf_arena_str(w->arena, sf_view_str(prefix));
    const SF_PB(ListNamespacesResponse) *response = world_call(w, "ListNamespaces", &list);
    assert_non_null(response);
    return response->n_namespaces;
}

/* ---- projection --------------------------------------------------------------------------- */

const char *lineage_sql(struct world *w, const char *sql, uint64_t ns, uint64_t id)
{
    struct sf_sql_stmt *stmt;
    bool row = false;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    assert_int_equal(sf_sql_prepare(conn, sql, &w->diag, &stmt), SF_OK);
    if (ns != 0)
        sf_sql_bind_u64(stmt, 1, ns);
    if (id != 0)
        sf_sql_bind_u64(stmt, 2, id);
    assert_int_equal(sf_sql_step(stmt, &w->diag, &row), SF_OK);
    const char *text = row ? sf_arena_str(w->arena, sf_sql_col_text(stmt, 0)) : "";
    sf_sql_finish(stmt);
    sf_sql_release(conn);
    return text;
}

void lineage_exec(struct world *w, const char *sql)
{
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    assert_int_equal(sf_sql_exec(conn, sql, &w->diag), SF_OK);
    sf_sql_release(conn);
}

uint64_t lineage_epoch(struct world *w, uint64_t ns, const char *name)
{
    struct sf_buf key = {0};
    if (ns == 0)
        sf_catalog_key_namespace_name(&key, name);
    else
        sf_catalog_key_collection_name(&key, ns, name);
    const char *text = sf_arena_str(w->arena, sf_buf_view(&key));
    sf_buf_fini(&key);
    if (ns == 0) {
        const SF_PB(NamespaceNameEpochObject) *object =
            world_object(w, text, &searchfabric__v1__namespace_name_epoch_object__descriptor);
        return object == NULL ? 0 : object->last_allocated_epoch;
    }
    const SF_PB(CollectionNameEpochObject) *object =
        world_object(w, text, &searchfabric__v1__collection_name_epoch_object__descriptor);
    return object == NULL ? 0 : object->last_allocated_epoch;
}
