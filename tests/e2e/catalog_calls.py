"""Catalog requests that several test files send."""
from harness import ADMIN, MANAGED, catalog_operations, fresh, meta, private, sf


def put_namespace(name, key=None, encryption=MANAGED, options=None, **more):
    request = sf.PutNamespaceMetadataRequest(meta=meta(key or fresh(), **more), namespace_name=name)
    if encryption is not None:
        request.encryption.CopyFrom(encryption)
    if options is not None:
        request.options.CopyFrom(sf.DescriptorOptions(entries=options))
    return request


def put_collection(namespace_id, name, key=None, encryption=MANAGED, options=None, mode=0, **more):
    request = sf.PutCollectionMetadataRequest(
        meta=meta(key or fresh(), **more), collection_truth_mode=mode,
        name_binding=sf.CollectionNameBinding(namespace_id=namespace_id, collection_name=name))
    if encryption is not None:
        request.encryption.CopyFrom(encryption)
    if options is not None:
        request.options.CopyFrom(sf.DescriptorOptions(entries=options))
    return request


def get_namespace(a, **lookup):
    return a.catalog.GetNamespaceMetadata(sf.GetNamespaceMetadataRequest(meta=meta(), **lookup), timeout=20).descriptor


def get_collection(a, **lookup):
    return a.catalog.GetCollectionMetadata(sf.GetCollectionMetadataRequest(meta=meta(), **lookup), timeout=20).descriptor


def get_schema(a, ref):
    return a.catalog.GetCollectionSchema(sf.GetCollectionSchemaRequest(meta=meta(), collection=ref), timeout=20).schema


def get_sync(a, ref):
    return a.catalog.GetSchemaSyncStatus(sf.GetSchemaSyncStatusRequest(meta=meta(), collection=ref), timeout=20)


def admission(a, ref, **known):
    return a.private.GetCollectionAdmissionState(
        private.GetCollectionAdmissionStateRequest(collection=ref, **known), timeout=20)


def list_page(a, prefix="", size=0, token="", kind=ADMIN, client="e2e", **more):
    return a.catalog.ListNamespaces(sf.ListNamespacesRequest(
        meta=meta("", kind, client, **more), prefix=prefix, page=sf.PageRequest(page_size=size, page_token=token)), timeout=20)


def list_collections(a, namespace_id, prefix="", size=0, token="", **more):
    return a.catalog.ListCollections(sf.ListCollectionsRequest(
        meta=meta("", **more), namespace_id=namespace_id, prefix=prefix,
        page=sf.PageRequest(page_size=size, page_token=token)), timeout=20)


def run_job(a, name):
    """One cycle of a background job by hand; how much it worked on."""
    return a.catalog_operations.RunCatalogJob(catalog_operations.RunCatalogJobRequest(name=name), timeout=20).done


PROJECTORS = ("collection-stats", "collection-index", "namespace-aggregate")


def caught_up(a):
    """Lets the projectors of lagging descriptor fields work off what is due, so that answers can be compared."""
    while sum(run_job(a, name) for name in PROJECTORS):
        pass
    return a


def drop_projection(server_):
    for path in server_.data.glob("projection.sqlite*"):
        path.unlink()
