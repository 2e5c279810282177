/*
 * Model: a list is served page by page, each from one snapshot of the projection begun after the
 * request came in; nothing of it is kept. A page is one range of one index, so that its cost
 * follows the page alone. The look at the owner epoch is part of the snapshot.
 */
#include "catalog/catalog_read.h"

static enum sf_err list_namespaces(struct sf_catalog *catalog, struct sf_call *call,
                                   const ProtobufCMessage *request, struct sf_sql_conn *conn)
{
    const SF_PB(ListNamespacesRequest) *list = (const SF_PB(ListNamespacesRequest) *)request;
    struct sf_arena *arena = sf_call_arena(call);
    struct sf_diag *diag = sf_call_diag(call);
    struct sf_catalog_page page;
    SF_PB(NamespaceRow) **rows = NULL;
    size_t count = 0;
    enum sf_err err =
        sf_catalog_page_open(catalog, call, list->meta, 0, list->prefix, list->page, &page);
    if (err == SF_OK)
        err = sf_catalog_sql_list_namespaces(conn, sf_view_str(list->prefix), page.after,
                                             (size_t)page.size + 1, arena, diag, &rows, &count);
    if (err != SF_OK)
        return err;
    bool more = count > page.size;
    count = more ? page.size : count;
    SF_PB(ListNamespacesResponse) response;
    searchfabric__v1__list_namespaces_response__init(&response);
    response.namespaces = sf_arena_alloc(arena, (count + 1) * sizeof(*response.namespaces));
    for (size_t i = 0; i < count && response.namespaces != NULL; i++)
        response.namespaces[i] = sf_catalog_namespace_descriptor(rows[i], arena);
    response.n_namespaces = count;
    response.next_page = sf_catalog_page_next(catalog, call, list->meta, 0, list->prefix, page.size,
                                              more ? rows[count - 1]->namespace_name : NULL);
    if (sf_arena_overflowed(arena))
        return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    sf_call_respond(call, &response.base);
    return SF_OK;
}

static enum sf_err list_collections(struct sf_catalog *catalog, struct sf_call *call,
                                    const ProtobufCMessage *request, struct sf_sql_conn *conn)
{
    const SF_PB(ListCollectionsRequest) *list = (const SF_PB(ListCollectionsRequest) *)request;
    struct sf_arena *arena = sf_call_arena(call);
    struct sf_diag *diag = sf_call_diag(call);
    struct sf_catalog_page page;
    SF_PB(NamespaceRow) *ns = NULL;
    SF_PB(CollectionRow) **rows = NULL;
    size_t count = 0;
    enum sf_err err = sf_catalog_page_open(catalog, call, list->meta, list->namespace_id,
                                           list->prefix, list->page, &page);
    if (err == SF_OK)
        err = sf_catalog_sql_namespace(conn, list->namespace_id, arena, diag, &ns);
    if (err == SF_OK &&
        (ns == NULL || ns->lifecycle_state == SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED)))
        return sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such namespace");
    if (err == SF_OK)
        err = sf_catalog_sql_list_collections(conn, list->namespace_id, sf_view_str(list->prefix),
                                              page.after, (size_t)page.size + 1, arena, diag, &rows,
                                              &count);
    if (err != SF_OK)
        return err;
    bool more = count > page.size;
    count = more ? page.size : count;
    SF_PB(ListCollectionsResponse) response;
    searchfabric__v1__list_collections_response__init(&response);
    response.collections = sf_arena_alloc(arena, (count + 1) * sizeof(*response.collections));
    for (size_t i = 0; i < count && response.collections != NULL; i++)
        response.collections[i] = sf_catalog_collection_descriptor(rows[i], arena);
    response.n_collections = count;
    response.next_page =
        sf_catalog_page_next(catalog, call, list->meta, list->namespace_id, list->prefix, page.size,
                             more ? rows[count - 1]->collection_name : NULL);
    if (sf_arena_overflowed(arena))
        return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    sf_call_respond(call, &response.base);
    return SF_OK;
}

enum sf_err sf_catalog_list_run(struct sf_catalog *catalog, enum sf_catalog_read_kind kind,
                                struct sf_call *call, const ProtobufCMessage *request)
{
    struct sf_diag *diag = sf_call_diag(call);
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, diag);
    if (err == SF_OK)
        err = sf_catalog_sql_look(catalog, conn, diag);
    if (err == SF_OK && kind == SF_CATALOG_READ_NAMESPACES)
        err = list_namespaces(catalog, call, request, conn);
    else if (err == SF_OK)
        err = list_collections(catalog, call, request, conn);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    return err;
}
