"""One scenario per area of the catalog, all against one running server; what a gateway decides alone; a start that is waited for."""
import json
import subprocess
import time

import grpc

from catalog_calls import (admission, caught_up, drop_projection, get_collection, get_namespace, get_schema, get_sync, list_collections,
                           put_collection, put_namespace, run_job)
from harness import (DDL, DURABLE, ES, VISIBLE, Api, Stream, batch, definition, error_of, fresh, meta, private, proves, refused, row, run,
                     server, sf, wait_for)

DELAY_MS = 300
SERVER = server(f"catalog:\n  collection_gc_delay_ms: {DELAY_MS}\n  namespace_gc_delay_ms: {DELAY_MS}\n")
SERVER.start()
REQUIRED = sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED


def api():
    return Api(SERVER)


# ---- one scenario per area ----------------------------------------------------------------------------

def namespace_descriptors(a):
    request = put_namespace(fresh(), options={"tier": "gold"})
    made = a.catalog.PutNamespaceMetadata(request)
    assert a.catalog.PutNamespaceMetadata(request) == made  # the same key: the same answer
    update = put_namespace(request.namespace_name, encryption=None, options={"tier": "silver"})
    assert a.catalog.PutNamespaceMetadata(update).descriptor.namespace_id == made.descriptor.namespace_id
    got = get_namespace(a, namespace_name=request.namespace_name)
    assert got == get_namespace(a, namespace_id=made.descriptor.namespace_id) and got.options.entries == {"tier": "silver"}
    listed = a.catalog.ListNamespaces(sf.ListNamespacesRequest(meta=meta(), prefix=request.namespace_name)).namespaces
    assert [one.namespace_id for one in listed] == [got.namespace_id]
    return got


def collection_descriptors(a, ns):
    request = put_collection(ns.namespace_id, "books", options={"of": "paper"})
    ref = a.catalog.PutCollectionMetadata(request).descriptor.collection
    a.catalog.PutCollectionMetadata(put_collection(ns.namespace_id, "books", encryption=None, options={"of": "ink"}))
    got = get_collection(a, collection=ref)
    binding = sf.CollectionNameBinding(namespace_id=ns.namespace_id, collection_name="books")
    assert got == get_collection(a, name_binding=binding) and got.options.entries == {"of": "ink"}
    assert [one.collection for one in list_collections(a, ns.namespace_id).collections] == [ref]
    resolved = a.private.ResolveCollectionNameBinding(private.ResolveCollectionNameBindingRequest(name_binding=binding))
    assert resolved.collection == ref and resolved.collection_name_binding_revision > 0
    return ref


def managed_schema(version):
    """Event times in windows of a second, cold after a day, gone after a week."""
    field = sf.FieldDefinition(name="at", type=sf.FIELD_TYPE_TIMESTAMP, modalities=[sf.MODALITY_METADATA_SEARCH])
    out = definition(policy=REQUIRED, fields=[field])
    policy = out.settings.lifecycle_policy
    policy.time_partition_field, policy.window_ms, policy.retention_ms = "at", 1000, 604_800_000
    policy.transitions.add(after_ms=86_400_000, target_tier=sf.DATA_TIER_COLD)
    assert version > 0
    return out


def schema_generations(a, ref):
    refused("SF_CATALOG_UNAVAILABLE", lambda: get_schema(a, ref))
    a.schema(ref, 1, "t1", body=managed_schema(1))
    assert get_sync(a, ref).state.WhichOneof("state") == "applying"
    a.signal(ref, 1, "t1")
    assert get_sync(a, ref).state.WhichOneof("state") == "ready"
    assert admission(a, ref).state.ready_generation_token == "t1"
    serving = a.private.ResolveServingGeneration(private.ResolveServingGenerationRequest(collection=ref))
    assert "t1" in str(serving)


def lifecycle_policy(a, ref):
    assert get_schema(a, ref).definition.settings.lifecycle_policy == managed_schema(1).settings.lifecycle_policy
    state = admission(a, ref).state
    assert state.HasField("event_time") and "at" in str(state.event_time)
    run_job(a, "lifecycle-windows")
    out = SERVER.sfctl("--json", "stats", "windows", NAMES["path"])
    assert out.returncode == 0, out
    claims = a.private.ClaimLifecycleTransitions(private.ClaimLifecycleTransitionsRequest(worker_id="w", max_claims=10, claim_ms=60000))
    assert not claims.claims  # no manifest holds a window that is due


def manifest_heads(a, ref):
    stream = Stream(a)
    for at in range(3):
        assert not stream.put(batch(ref, row(at, b'{"at":%d}' % (1_700_000_000_000 + at)), durability=DURABLE,
                                    visibility=VISIBLE)).HasField("error")
    stream.close()
    assert SERVER.sfctl("manifest", "head", "repair", NAMES["path"]).returncode == 0
    shown = json.loads(SERVER.sfctl("--json", "manifest", "head", "show", NAMES["path"]).stdout)
    assert shown["projected_head_version"] == shown["committed_head"]["committed_manifest_version"] == shown["head"]["manifest_head_version"]
    assert shown["projected_reconciler_status"].endswith("IDLE"), shown


def optimizer_statistics(a, ref):
    assert SERVER.sfctl("stats", "analyze", NAMES["path"]).returncode == 0
    answer = a.catalog.GetCollectionStatistics(sf.GetCollectionStatisticsRequest(
        meta=meta("", sf.CLIENT_KIND_ES_QUERY_GATEWAY), collection=ref))
    assert answer.collection_stats.row_count == 3 and answer.applied_schema_generation_token == "t1", answer
    assert get_collection(caught_up(a), collection=ref).approx_stats.approx_row_count == 3


def quota_leases(a, ns):
    key = private.QuotaLeaseKey(namespace_id=ns.namespace_id, api_plane=private.API_PLANE_WRITE, throttled_dimension="ingest_entries",
                                lease_holder_id="gw", lease_request_id="r1")
    request = private.AcquireQuotaLeaseRequest(lease=key, requested_units=10)
    grant = a.private.AcquireQuotaLease(request)
    assert grant.granted_units == 10 and a.private.AcquireQuotaLease(request) == grant
    a.private.ReturnQuotaLease(private.ReturnQuotaLeaseRequest(lease=key, unspent_units=4))
    refused("SF_VERSION_CONFLICT", lambda: a.private.AcquireQuotaLease(private.AcquireQuotaLeaseRequest(
        lease=private.QuotaLeaseKey(namespace_id=ns.namespace_id, api_plane=private.API_PLANE_WRITE, throttled_dimension="ingest_entries",
                                    lease_holder_id="gw", lease_request_id="r2"), requested_units=1, observed_quota_epoch=99)))


def drops(a, ns, ref):
    drop = lambda: a.catalog.DropCollection(sf.DropCollectionRequest(meta=meta(fresh()), collection=ref)).status  # noqa: E731
    assert drop() == sf.DROP_COLLECTION_STATUS_DROPPED and drop() == sf.DROP_COLLECTION_STATUS_ALREADY_DROPPED
    refused("SF_RESOURCE_NOT_FOUND", lambda: get_collection(a, collection=ref))
    refused("SF_VERSION_CONFLICT", lambda: a.collection(ns.namespace_id, "books"), "catalog.lifecycle_conflict")
    wait_for(lambda: a.private.RunReleaseSweep(private.RunReleaseSweepRequest(namespace_id=ns.namespace_id)).released_collection_names,
             "the name is released")
    again = a.collection(ns.namespace_id, "books").collection
    assert again.collection_id > ref.collection_id


NAMES = {}


def test_areas():
    proves("CCS-1-03")
    a = api()
    pid = SERVER.process.pid
    ns = namespace_descriptors(a)
    ref = collection_descriptors(a, ns)
    NAMES["path"] = f"{ns.namespace_name}/books"
    schema_generations(a, ref)
    lifecycle_policy(a, ref)
    manifest_heads(a, ref)
    optimizer_statistics(a, ref)
    quota_leases(a, ns)
    drops(a, ns, ref)
    assert SERVER.alive() and SERVER.process.pid == pid


# ---- what a gateway decides alone ---------------------------------------------------------------------

def decide(state, token, kind, allocate):
    """Admission of a write from the snapshot `state` and the request alone; nothing else is kept or asked."""
    if state.lifecycle != private.COLLECTION_ADMISSION_LIFECYCLE_ACTIVE:
        return "SF_RESOURCE_NOT_FOUND"
    if state.schema_bootstrap_state == private.SCHEMA_BOOTSTRAP_STATE_NO_ACTIVE_SCHEMA_GENERATION:
        return "SF_CATALOG_UNAVAILABLE"
    if allocate:
        if not state.HasField("allocator_admission_policy"):
            return "SF_OWNERSHIP_CONFLICT"
        return "" if allocate <= state.allocator_admission_policy.max_plan_items_per_request else "SF_TOO_MANY_OPERATIONS"
    if token != state.active_schema_generation_token:
        return "SF_VERSION_CONFLICT"
    return "SF_OWNERSHIP_CONFLICT" if state.collection_truth_mode == sf.COLLECTION_TRUTH_MODE_EXTERNAL and kind == ES else ""


def answered(a, ref, token, kind, allocate):
    """The code that the server answers the same write with; "" = admitted."""
    if allocate:
        try:
            a.allocate(ref, *[None] * allocate, kind=kind)
            return ""
        except grpc.RpcError as error:
            return error_of(error).code
    stream = Stream(a, kind=kind)
    ack = stream.put(batch(ref, row(1, b"{}", sf.ROW_OP_INDEX), token=token))
    stream.close()
    return ack.error.code if ack.HasField("error") else ""


def test_gateway_needs_the_snapshot_alone():
    proves("CCS-5.2-52")
    a = api()
    ns = a.namespace().namespace_id
    bare, required, optional, superseded = (a.collection(ns, name).collection for name in ("bare", "required", "optional", "superseded"))
    a.schema(required, 1, "t1", policy=REQUIRED)
    a.schema(optional, 1, "t1", items=3)
    for version in (1, 2):
        a.schema(superseded, version, f"t{version}", policy=REQUIRED)
        a.signal(superseded, version, f"t{version}")
    external = a.catalog.PutCollectionMetadata(put_collection(ns, "external", mode=sf.COLLECTION_TRUTH_MODE_EXTERNAL, kind=DDL),
                                               timeout=20).descriptor.collection
    a.schema(external, 1, "t1", DDL, mode=sf.COLLECTION_TRUTH_MODE_EXTERNAL, policy=REQUIRED)
    dropped = a.ready_collection(ns, "dropped", policy=REQUIRED)
    a.catalog.DropCollection(sf.DropCollectionRequest(meta=meta(fresh()), collection=dropped))
    seen = set()
    for ref in (bare, required, optional, superseded, external, dropped):
        for kind, token, allocate in ((ES, "t1", 0), (ES, "t2", 0), (ES, "", 3), (ES, "", 4)):
            if allocate == 0 and ref is optional:
                continue  # rows of it come with a receipt, which is the allocator's to judge
            snapshot = private.CollectionAdmissionState.FromString(admission(a, ref).state.SerializeToString())
            wanted = decide(snapshot, token, kind, allocate)
            got = answered(a, ref, token, kind, allocate)
            assert got == wanted, (snapshot, token, allocate, got, wanted)
            seen.add(wanted)
    assert seen == {"", "SF_RESOURCE_NOT_FOUND", "SF_CATALOG_UNAVAILABLE", "SF_VERSION_CONFLICT", "SF_OWNERSHIP_CONFLICT", "SF_TOO_MANY_OPERATIONS"}, seen


# ---- a start that is waited for -----------------------------------------------------------------------

def test_nobody_is_served_before_the_rebuild():
    proves("CCS-11-17")
    one = server()
    one.start()
    a = Api(one)
    spaces = [a.namespace(f"n{at}") for at in range(8)]
    sent = [a.catalog.PutCollectionMetadata.future(put_collection(spaces[at % 8].namespace_id, f"c{at}")) for at in range(1200)]
    made = [call.result().descriptor for call in sent]
    one.kill()
    drop_projection(one)
    with open(one.folder / "server.log", "ab") as log:
        one.process = subprocess.Popen(one.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    request = put_namespace("during")
    refusals = 0
    deadline = time.monotonic() + 30
    while True:
        assert time.monotonic() < deadline and one.alive(), one.log()[-2000:]
        ready = one.get("/readyz")[0] == 200
        b = Api(one)
        try:
            b.catalog.PutNamespaceMetadata(request, timeout=20 if ready else 0.2)
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), error
            assert not ready, "ready, and a mutation is refused"
            refusals += 1
            continue
        break
    assert refusals >= 3, refusals
    # The first reads are those of the whole catalog.
    for at in range(0, 1200, 100):
        got = get_collection(b, collection=made[at].collection)
        assert (got.collection_name, got.created_at_unix_ms) == (f"c{at}", made[at].created_at_unix_ms)
    assert sum(len(list_collections(b, space.namespace_id, size=1000).collections) for space in spaces) == 1200
    assert one.stop() == 0


run(globals())
