"""Drops, lifecycle transitions and releases through the real server, its tool and kill -9."""
import json
import pathlib
import re
import time

import grpc

from catalog_calls import admission, drop_projection, get_collection, get_namespace, get_schema, get_sync, list_collections, \
    list_page, put_collection, put_namespace
from harness import (DDL, ES, Api, catalog_operations, check_error, error_of, fresh, meta, private, proves, refused, run, server, sf,
                     sha256_hex, wait_for)

DELAY_MS = 700
SERVER = server(f"catalog:\n  collection_gc_delay_ms: {DELAY_MS}\n  namespace_gc_delay_ms: {DELAY_MS}\n")
SERVER.start()
ACTIVE, QUIESCING, TOMBSTONED = (private.NAMESPACE_LIFECYCLE_STATE_ACTIVE, private.NAMESPACE_LIFECYCLE_STATE_QUIESCING,
                                 private.NAMESPACE_LIFECYCLE_STATE_TOMBSTONED)
DROPPED, ALREADY = sf.DROP_COLLECTION_STATUS_DROPPED, sf.DROP_COLLECTION_STATUS_ALREADY_DROPPED


def api():
    return Api(SERVER)


def drop(a, ref, key=None, token=None, **more):
    request = sf.DropCollectionRequest(meta=meta(key or fresh(), **more), collection=ref)
    if token is not None:
        request.fence.schema_generation_token = token
    return a.catalog.DropCollection(request, timeout=20).status


def transition(a, namespace_id, target, expected):
    return a.private.SubmitNamespaceLifecycleTransition(private.SubmitNamespaceLifecycleTransitionRequest(
        namespace_id=namespace_id, target_lifecycle_state=target, expected_namespace_revision=expected), timeout=20)


def sweep(a, namespace_id=0):
    return a.private.RunReleaseSweep(private.RunReleaseSweepRequest(namespace_id=namespace_id), timeout=20)


def conflict(call, scope, state):
    refused("SF_VERSION_CONFLICT", call, "catalog.lifecycle_conflict",
            {"reservation_scope": scope, "conflicting_lifecycle_state": state})


def not_found(call):
    refused("SF_RESOURCE_NOT_FOUND", call)


def tombstone_key(ref):
    return (f"catalog/{sha256_hex(str(ref.namespace_id))[:2]}/{ref.namespace_id}/{ref.collection_id}/"
            "collection_tombstone_v1.json")


def test_drop():
    proves("CCS-2.1-06", "CCS-6.1-02", "CCS-6.1-03", "CCS-6.2-01", "CCS-6.2-02", "CCS-6.2-03", "CCS-4.5-14", "CCS-4.5-16",
           "CCS-4.5-17")
    a = api()
    ns = a.namespace().namespace_id
    ref = a.ready_collection(ns)
    name = get_collection(a, collection=ref).collection_name
    token = get_schema(a, ref).applied_schema_generation_token
    binding = sf.CollectionNameBinding(namespace_id=ns, collection_name=name)
    key = fresh()
    before = int(time.time() * 1000) - 5
    refused("SF_VERSION_CONFLICT", lambda: drop(a, ref, key, token="other"))
    assert drop(a, ref, key + "x", token) == DROPPED
    not_found(lambda: get_collection(a, collection=ref))
    not_found(lambda: get_collection(a, name_binding=binding))
    not_found(lambda: get_schema(a, ref))
    not_found(lambda: get_sync(a, ref))
    assert not list_collections(a, ns).collections and not list_collections(a, ns, prefix=name).collections
    assert admission(a, ref).state.lifecycle == private.COLLECTION_ADMISSION_LIFECYCLE_TOMBSTONED
    tombstone = a.json_object(tombstone_key(ref))
    assert tombstone["collection_name"] == name and tombstone["drop_revision"] == "1"
    assert tombstone["collection"] == {"namespace_id": str(ns), "collection_id": str(ref.collection_id)}
    assert tombstone["collection_name_allocation_epoch"] == "1"
    assert before <= int(tombstone["dropped_at_unix_ms"]) <= int(time.time() * 1000) + 5
    assert int(tombstone["gc_after_unix_ms"]) == int(tombstone["dropped_at_unix_ms"]) + DELAY_MS
    assert tombstone["drop_fence"]["schema_generation_token"] == token
    assert drop(a, ref, key + "x", token) == ALREADY  # the same key
    assert drop(a, ref, None, token) == ALREADY  # the same fence
    assert drop(a, ref) == ALREADY  # another
    refused("SF_IDEMPOTENCY_CONFLICT", lambda: drop(a, ref, key + "x"))
    assert a.json_object(tombstone_key(ref)) == tombstone
    conflict(lambda: a.catalog.PutCollectionMetadata(put_collection(ns, name)), "collection_name", "tombstoned")
    not_found(lambda: drop(a, sf.CollectionRef(namespace_id=ns, collection_id=ref.collection_id + 1)))


def test_callers():
    a = api()
    ns = a.namespace().namespace_id
    native, external = a.collection(ns).collection, a.collection(ns, kind=DDL).collection
    refused("SF_OWNERSHIP_CONFLICT", lambda: drop(a, native, kind=DDL))
    refused("SF_OWNERSHIP_CONFLICT", lambda: drop(a, external))
    refused("SF_FORBIDDEN", lambda: drop(a, native, kind=sf.CLIENT_KIND_ES_QUERY_GATEWAY))
    refused("SF_FORBIDDEN", lambda: drop(a, native, kind=sf.CLIENT_KIND_TIDB_CDC_ADAPTER))
    assert drop(a, native, kind=ES) == DROPPED and drop(a, external, kind=DDL) == DROPPED


def test_release_and_recreate():
    proves("CCS-3.4-06", "CCS-4.5-18", "CCS-5.4-10", "CCS-6.2-05")
    a = api()
    ns = a.namespace().namespace_id
    made = a.collection(ns)
    ref, name, key = made.collection, made.collection_name, fresh()
    assert drop(a, ref, key) == DROPPED
    wait_for(lambda: not_reserved(a, ns, name), "the release of a name")
    not_found(lambda: drop(a, ref, key))
    not_found(lambda: drop(a, ref))
    assert not list_collections(a, ns).collections
    again = a.collection(ns, name)
    assert again.collection.collection_id > ref.collection_id
    epoch = a.json_object(f"catalog-allocator/collection-name/{sha256_hex(str(ns))[:2]}/{ns}/{sha256_hex(name)[:2]}/{name}.json")
    assert epoch["last_allocated_epoch"] == "2"


def not_reserved(a, ns, name):
    """Sweeps once; true when the lineage of the name is gone."""
    sweep(a, ns)
    try:
        a.catalog_operations.ShowLineage(catalog_operations.ShowLineageRequest(
            name_binding=sf.CollectionNameBinding(namespace_id=ns, collection_name=name)), timeout=20)
    except grpc.RpcError as error:
        check_error(error_of(error), "SF_RESOURCE_NOT_FOUND")
        return True
    return False


def test_namespace_lifecycle():
    proves("CCS-5.2-04", "CCS-5.2-21", "CCS-5.2-22", "CCS-5.2-23", "CCS-5.2-24", "CCS-5.2-25", "CCS-5.2-26", "CCS-5.2-27",
           "CCS-5.2-29")
    a = api()
    made = a.namespace()
    ns, name = made.namespace_id, made.namespace_name
    child = a.collection(ns).collection
    assert transition(a, ns, QUIESCING, 1).outcome == private.INTENT_OUTCOME_ACCEPTED
    assert transition(a, ns, QUIESCING, 1).outcome == private.INTENT_OUTCOME_DUPLICATE
    for read in (get_namespace(a, namespace_id=ns), get_namespace(a, namespace_name=name), list_page(a, name).namespaces[0],
                 a.catalog.PutNamespaceMetadata(put_namespace(name, encryption=None)).descriptor):
        assert read.lifecycle.WhichOneof("state") == "quiescing"
    conflict(lambda: a.collection(ns), "parent_namespace", "quiescing")
    a.catalog.PutCollectionMetadata(put_collection(ns, get_collection(a, collection=child).collection_name))
    conflict(lambda: transition(a, ns, TOMBSTONED, 3), "resolved_collection_lineage", "active")
    conflict(lambda: transition(a, ns, QUIESCING, 3), "resolved_namespace_lineage", "quiescing")
    assert transition(a, ns, ACTIVE, 3).namespace_revision == 4
    assert get_namespace(a, namespace_id=ns).lifecycle.WhichOneof("state") == "active"
    assert drop(a, child) == DROPPED
    assert get_namespace(a, namespace_id=ns).completeness.WhichOneof("state") == "ready"
    SERVER.crash()
    a = api()
    assert transition(a, ns, TOMBSTONED, 4).lifecycle_state == TOMBSTONED
    SERVER.crash()
    a = api()
    assert not list_page(a, name).namespaces
    not_found(lambda: get_namespace(a, namespace_id=ns))
    not_found(lambda: get_namespace(a, namespace_name=name))
    not_found(lambda: list_collections(a, ns))
    conflict(lambda: a.collection(ns), "parent_namespace", "tombstoned")

    conflict(lambda: a.catalog.PutNamespaceMetadata(put_namespace(name)), "namespace_name", "tombstoned")

    def recreated():
        """Refused as long as the name is reserved; then a new lineage."""
        sweep(a)
        try:
            return a.catalog.PutNamespaceMetadata(put_namespace(name)).descriptor
        except grpc.RpcError as error:
            check_error(error_of(error), "SF_VERSION_CONFLICT", "catalog.lifecycle_conflict",
                        {"reservation_scope": "namespace_name", "conflicting_lifecycle_state": "tombstoned"})
            return None

    assert wait_for(recreated, "the release of a namespace's name").namespace_id > ns


def test_kill_and_lose():
    proves("CCS-6.2-04", "CCS-11-11")
    a = api()
    ns = a.namespace().namespace_id
    refs, keys, names = [], [], []
    for _ in range(4):
        made = a.collection(ns)
        refs.append(made.collection)
        names.append(made.collection_name)
        keys.append(fresh())
    for ref, key in zip(refs, keys):
        assert drop(a, ref, key) == DROPPED
    SERVER.crash()
    a = api()
    assert [drop(a, ref, key) for ref, key in zip(refs, keys)] == [ALREADY] * 4
    wait_for(lambda: not_reserved(a, ns, names[0]), "the release of a name")
    sweep(a, ns)
    again = a.collection(ns, names[0]).collection
    SERVER.stop()
    drop_projection(SERVER)
    SERVER.start()
    a = api()
    assert [one.collection for one in list_collections(a, ns).collections] == [again]
    not_found(lambda: drop(a, refs[0], keys[0]))
    not_found(lambda: get_collection(a, collection=refs[0]))


def test_sfctl():
    a = api()
    name = fresh("ops")
    assert SERVER.sfctl("namespace", "create", name).returncode == 0
    assert SERVER.sfctl("collection", "create", f"{name}/books").returncode == 0
    shown = json.loads(SERVER.sfctl("--json", "collection", "show", f"{name}/books").stdout)
    assert shown["collection_row"]["collection_name"] == "books" and "tombstone" not in shown
    out = SERVER.sfctl("collection", "drop", f"{name}/books", "--fence", "no-such")
    assert out.returncode == 1 and b"SF_VERSION_CONFLICT" in out.stderr
    out = SERVER.sfctl("namespace", "transition", name, "tombstoned")
    assert out.returncode == 1 and b"conflicting_lifecycle_state=active" in out.stderr
    out = SERVER.sfctl("collection", "drop", f"{name}/books")
    assert out.returncode == 0 and out.stdout == f"{name}/books dropped\n".encode()
    out = SERVER.sfctl("collection", "drop", f"{name}/books")
    assert out.returncode == 0 and b"was dropped before" in out.stdout
    out = SERVER.sfctl("collection", "show", f"{name}/books")
    assert out.returncode == 0 and b"tombstoned" in out.stdout and b"name reserved until" in out.stdout
    assert SERVER.sfctl("collection", "get", f"{name}/books").returncode == 1
    out = SERVER.sfctl("namespace", "transition", name, "quiescing")
    assert out.returncode == 0 and b"is quiescing, revision 2" in out.stdout, out
    assert b"quiescing" in SERVER.sfctl("namespace", "get", name).stdout
    out = SERVER.sfctl("namespace", "transition", name, "gone")
    assert out.returncode == 2
    ns = str(json.loads(SERVER.sfctl("--json", "namespace", "show", name).stdout)["namespace_row"]["namespace_id"])
    assert SERVER.sfctl("namespace", "transition", ns, "tombstoned").returncode == 0
    out = SERVER.sfctl("namespace", "show", name)
    assert out.returncode == 0 and b"tombstoned" in out.stdout and b"collections_remain" in out.stdout
    wait_for(lambda: SERVER.sfctl("catalog", "release-sweep", "--namespace", ns).returncode != 0, "the end of the lineage")
    assert SERVER.sfctl("namespace", "show", name).returncode == 1
    out = SERVER.sfctl("--json", "catalog", "release-sweep", "--limit", "5")
    assert out.returncode == 0 and set(json.loads(out.stdout)) <= {"released_namespace_names", "released_collection_names", "kept"}
    assert SERVER.sfctl("catalog", "release-sweep", "--limit", "0").returncode == 2
    jobs = [json.loads(line)["name"] for line in SERVER.sfctl("--json", "catalog", "jobs").stdout.splitlines()]
    assert {"release-sweep", "tombstone-repair"} <= set(jobs)
    assert b"release-sweep" in SERVER.sfctl("catalog", "jobs").stdout
    assert SERVER.sfctl("catalog", "run-job", "tombstone-repair").stdout == b"tombstone-repair: 0 done\n"
    assert SERVER.sfctl("catalog", "run-job", "no-such").returncode == 1
    assert SERVER.sfctl("catalog", "walk").returncode == 2


def test_conformance_matrix():
    proves("CCS-4.5-07", "CCS-5.7-20", "CCS-5.8-16")
    matrix = pathlib.Path(__file__).resolve().parents[2] / "docs/testing/api-contract-conformance-matrix.md"
    lines = matrix.read_text().splitlines()
    for invariant, meaning in (("SF-CONF-CATALOG-001", "Descriptor completeness"), ("SF-CONF-CATALOG-002", "Metadata mutations"),
                               ("SF-CONF-QUERY-003", "Optimizer statistics")):
        rows = [line for line in lines if line.startswith(f"| `{invariant}`")]
        assert len(rows) == 1 and meaning in rows[0], invariant
        assert re.search(r"`\w+/test_\w+`", rows[0].split("|")[-2]), rows[0]


run(globals())
