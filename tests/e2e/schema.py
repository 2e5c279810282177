"""Callers and truth modes, schema generations, their fences and convergence, private reads, what is not served."""
import time

import grpc

from catalog_calls import (admission, drop_projection, get_schema, get_sync, list_page, put_collection, put_namespace)
from harness import (ADMIN, DDL, ES, Api, definition, error_of, fresh, meta, private, proves, refused, refused_field, run,
                     schema_request, server, sf, sha256_hex)

SERVER = server()
SERVER.start()
READY = private.SCHEMA_CONVERGENCE_SIGNAL_SERVING_GENERATION_READY
DRIFT = private.SCHEMA_CONVERGENCE_SIGNAL_DRIFT_DETECTED
FAILED = private.SCHEMA_CONVERGENCE_SIGNAL_REPAIR_FAILED
REPAIRED = private.SCHEMA_CONVERGENCE_SIGNAL_REPAIR_SUCCEEDED
BOOTSTRAP = {"catalog_unavailable_reason": "schema_bootstrap", "schema_bootstrap_state": "no_active_schema_generation"}


def api():
    return Api(SERVER)


# ---- callers ------------------------------------------------------------------------------------------

def test_caller_matrix():
    proves("CCS-2.1-08", "CCS-2.1-09", "CCS-2.1-11", "CCS-2.1-12")
    a = api()
    external, ours = sf.COLLECTION_TRUTH_MODE_EXTERNAL, sf.COLLECTION_TRUTH_MODE_SEARCH_FABRIC
    ns = a.namespace().namespace_id
    es_tp = {sf.CLIENT_KIND_ES_WRITE_GATEWAY, sf.CLIENT_KIND_ES_QUERY_GATEWAY, sf.CLIENT_KIND_TP_WRITE_GATEWAY,
             sf.CLIENT_KIND_TP_QUERY_GATEWAY}
    writers = {sf.CLIENT_KIND_ES_WRITE_GATEWAY, sf.CLIENT_KIND_TP_WRITE_GATEWAY}
    refs = {ours: a.collection(ns).collection,
            external: a.catalog.PutCollectionMetadata(put_collection(ns, fresh(), kind=DDL)).descriptor.collection}
    version = iter(range(1, 1000))
    for kind in sf.ClientKind.values():
        calls = {
            "namespace": lambda: a.catalog.PutNamespaceMetadata(put_namespace(fresh(), kind=kind)),
            ours: lambda: a.catalog.PutCollectionMetadata(put_collection(ns, fresh(), mode=ours, kind=kind)),
            external: lambda: a.catalog.PutCollectionMetadata(put_collection(ns, fresh(), mode=external, kind=kind)),
        }
        schemas = {mode: (lambda mode=mode: a.schema(refs[mode], next(version), fresh("t"), kind, mode=mode,
                                                     policy=sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED)) for mode in refs}
        keys = a.keys()
        if kind == sf.CLIENT_KIND_UNSPECIFIED:
            for call in [*calls.values(), *schemas.values(), lambda: list_page(a, kind=kind)]:
                error = refused("SF_BAD_REQUEST", call, "bad_request", field="meta.client_kind")
            assert a.keys() == keys
            continue
        list_page(a, "x", kind=kind)  # every known kind may read
        a.catalog.GetCollectionMetadata(sf.GetCollectionMetadataRequest(meta=meta("", kind), collection=refs[ours]))
        if kind not in (ADMIN, DDL):
            refused("SF_FORBIDDEN", calls["namespace"], "", {})
            assert a.keys() == keys
        if kind not in (ADMIN, DDL) and kind not in es_tp:
            for call in (calls[ours], calls[external], *schemas.values()):
                refused("SF_FORBIDDEN", call, "", {})
            assert a.keys() == keys
            continue
        wrong, right = (ours, external) if kind == DDL else (external, ours)
        name_of = {ours: "COLLECTION_TRUTH_MODE_SEARCH_FABRIC", external: "COLLECTION_TRUTH_MODE_EXTERNAL"}
        for call in (calls[wrong], schemas[wrong]):
            refused("SF_OWNERSHIP_CONFLICT", call, "catalog.ownership_conflict",
                    {"collection_truth_mode": name_of[wrong], "client_kind": sf.ClientKind.Name(kind)},
                    collection_truth_mode=wrong, client_kind=kind)
        assert a.keys() == keys
        if kind in (ADMIN, DDL):
            calls["namespace"]()
        if kind in writers or kind in (ADMIN, DDL):
            calls[right]()
            schemas[right]()


def test_truth_mode_is_reserved():
    a = api()
    external, ours = sf.COLLECTION_TRUTH_MODE_EXTERNAL, sf.COLLECTION_TRUTH_MODE_SEARCH_FABRIC
    ns = a.catalog.PutNamespaceMetadata(put_namespace(fresh(), kind=DDL)).descriptor.namespace_id
    name = fresh()
    ref = a.catalog.PutCollectionMetadata(put_collection(ns, name, kind=DDL)).descriptor.collection
    assert admission(a, ref).state.collection_truth_mode == external
    policy = sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED
    for kind in (ADMIN, ES):
        for call in (lambda: a.catalog.PutCollectionMetadata(put_collection(ns, name, kind=kind)),
                     lambda: a.schema(ref, 1, "t1", kind, mode=external, policy=policy)):
            refused("SF_OWNERSHIP_CONFLICT", call, "catalog.ownership_conflict")
    refused("SF_OWNERSHIP_CONFLICT", lambda: a.schema(ref, 1, "t1", DDL, mode=ours, policy=policy),
            "catalog.ownership_conflict")
    a.catalog.PutCollectionMetadata(put_collection(ns, name, kind=DDL, mode=external, encryption=None))
    made = a.schema(ref, 1, "t1", DDL, mode=external, policy=policy)
    assert made.definition.collection_truth_mode == external
    mine = a.collection(ns).collection
    assert admission(a, mine).state.collection_truth_mode == ours


# ---- schema -------------------------------------------------------------------------------------------

def keyword(name, *modalities, type_=sf.FIELD_TYPE_KEYWORD, **more):
    return sf.FieldDefinition(name=name, type=type_, modalities=modalities or [sf.MODALITY_METADATA_SEARCH], **more)


def test_bootstrap():
    proves("CCS-5.3-14", "CCS-5.3-15", "CCS-7-15", "CCS-5.2-49")
    a = api()
    ref = a.collection(a.namespace().namespace_id).collection
    for call in (lambda: get_schema(a, ref), lambda: get_sync(a, ref)):
        error = refused("SF_CATALOG_UNAVAILABLE", call, "catalog.catalog_unavailable.schema_bootstrap", BOOTSTRAP,
                        schema_bootstrap_state="no_active_schema_generation")
        assert error.context.WhichOneof("context") == "catalog"
    state = admission(a, ref).state
    assert state.schema_bootstrap_state == private.SCHEMA_BOOTSTRAP_STATE_NO_ACTIVE_SCHEMA_GENERATION
    assert state.schema_convergence_state == private.SCHEMA_CONVERGENCE_STATE_UNSPECIFIED
    assert not state.HasField("active_schema_version") and not state.HasField("ready_generation_version")
    assert state.effective_max_result_window == 0 and state.generation_policy == 0


def test_schema_readback():
    proves("CCS-2.1-05", "CCS-5.5-03", "CCS-7-03", "CCS-3.2-10", "CCS-5.5-06",
           "CCS-7-01")
    a = api()
    ref = a.collection(a.namespace().namespace_id).collection
    body = definition(fields=[keyword("b"), keyword("a.x", sf.MODALITY_METADATA_SEARCH, sf.MODALITY_METADATA_AUX),
                              keyword("v", sf.MODALITY_SEMANTIC_SEARCH, type_=sf.FIELD_TYPE_DENSE_VECTOR,
                                      vector=sf.VectorSettings(dimensions=3))], options={"o": "p"}, undeclared_fields=2)
    made = a.schema(ref, 5, "five", body=body, ddl=77)
    assert made.definition == body and made.collection == ref
    assert (made.applied_schema_version, made.applied_schema_generation_token) == (5, "five")
    assert made.effective_max_result_window == 10000
    assert made.active_schema_update_policy == sf.ACTIVE_SCHEMA_UPDATE_POLICY_COMPATIBLE_ONLY
    assert abs((made.applied_commit_ts >> 18) - time.time() * 1000) < 60_000
    assert get_schema(a, ref) == made
    sync = get_sync(a, ref)
    assert sync.state.WhichOneof("state") == "applying"
    assert (sync.applied_schema_version, sync.applied_schema_generation_token) == (5, "five")
    second = a.schema(ref, 6, "six", fields=body.fields, settings=sf.CollectionSettings(max_result_window=1))
    assert second.effective_max_result_window == 1 and get_schema(a, ref) == second
    assert get_sync(a, ref).applied_schema_generation_token == "six"
    assert admission(a, ref).state.active_schema_generation_token == "six"


def test_schema_token_length():
    proves("CCS-5.1-21")
    a = api()
    ref = a.collection(a.namespace().namespace_id).collection
    field_ = "fence.schema_generation_token"
    refused_field(lambda: a.schema(ref, 1, fence=sf.SchemaFencePrecondition()), field_, "empty")
    refused_field(lambda: a.schema(ref, 1, "\U0001F600" * 65), field_, "too_long")
    token = "\U0001F600/" * 32
    assert a.schema(ref, 1, token).applied_schema_generation_token == token
    assert get_sync(a, ref).applied_schema_generation_token == token


def fence_conflict(call, violated, version, token):
    refused("SF_VERSION_CONFLICT", call, "catalog.schema_fence_conflict",
            {"violated_precondition": violated, "active_schema_version": str(version), "active_schema_generation_token": token},
            violated_precondition=violated, active_schema_version=version, active_schema_generation_token=token)


def test_schema_fence():
    a = api()
    ref = a.collection(a.namespace().namespace_id).collection

    def fence(token, prev=None, monotonic=None):
        out = sf.SchemaFencePrecondition(schema_generation_token=token)
        if prev is not None:
            out.expected_prev_schema_version = prev
        if monotonic is not None:
            out.enforce_monotonic_apply = monotonic
        return out

    fence_conflict(lambda: a.schema(ref, 1, fence=fence("t1", prev=1)), "expected_prev_schema_version", 0, "")
    a.schema(ref, 2, fence=fence("t2", prev=0), ddl=100)
    fence_conflict(lambda: a.schema(ref, 3, fence=fence("t3", prev=0)), "expected_prev_schema_version", 2, "t2")
    fence_conflict(lambda: a.schema(ref, 3, fence=fence("t3", prev=3)), "expected_prev_schema_version", 2, "t2")
    fence_conflict(lambda: a.schema(ref, 1, fence=fence("t1")), "schema_version", 2, "t2")
    fence_conflict(lambda: a.schema(ref, 2, fence=fence("other")), "schema_generation_token", 2, "t2")
    fence_conflict(lambda: a.schema(ref, 3, fence=fence("t2")), "schema_generation_token", 2, "t2")
    fence_conflict(lambda: a.schema(ref, 3, fence=fence("t3", monotonic=True), ddl=99), "ddl_commit_ts", 2, "t2")
    assert get_schema(a, ref).applied_schema_version == 2
    a.schema(ref, 3, fence=fence("t3", prev=2, monotonic=True), ddl=100)  # not going back is enough
    a.schema(ref, 4, fence=fence("t4"), ddl=1)  # not asked for
    fence_conflict(lambda: a.schema(ref, 5, fence=fence("t2")), "schema_generation_token", 4, "t4")
    assert (get_schema(a, ref).applied_schema_version, get_sync(a, ref).applied_schema_generation_token) == (4, "t4")


def test_schema_business_replay():
    proves("CCS-4.5-12", "CCS-4.5-13", "CCS-4.2-05")
    a = api()
    ref = a.collection(a.namespace().namespace_id).collection
    first = a.catalog.PutCollectionSchema(schema_request(ref, 1, "t1", key=fresh()))
    base = f"catalog/{sha256_hex(str(ref.namespace_id))[:2]}/{ref.namespace_id}/{ref.collection_id}/"
    objects = a.keys(base)
    pointers = a.keys("catalog-replay-business/")
    for _ in range(2):
        again = a.catalog.PutCollectionSchema(schema_request(ref, 1, "t1", key=fresh()))
        assert again.SerializeToString() == first.SerializeToString()
    key = fresh()
    for _ in range(2):  # recorded, and the same refusal again
        refused("SF_IDEMPOTENCY_CONFLICT", lambda: a.schema(ref, 1, "t1", key=key, jump=7))
    refused("SF_IDEMPOTENCY_CONFLICT", lambda: a.schema(ref, 1, "t1", ddl=5))
    # Only the fence differs.
    refused("SF_VERSION_CONFLICT", lambda: a.schema(ref, 1, fence=sf.SchemaFencePrecondition(
        schema_generation_token="t1", expected_prev_schema_version=0)))
    assert a.keys(base) == objects and a.keys("catalog-replay-business/") == pointers
    a.schema(ref, 2, "t2")
    again = a.catalog.PutCollectionSchema(schema_request(ref, 1, "t1", key=fresh()))
    assert again.SerializeToString() == first.SerializeToString() and get_schema(a, ref).applied_schema_version == 2


def test_schema_rules():
    proves("ALLOC-3.3-06", "ALLOC-3.4-01", "CCS-5.9-08")
    a = api()
    ref = a.collection(a.namespace().namespace_id).collection
    optional, required = sf.DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL, sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED

    def body(change):
        out = definition()
        change(out)
        return out

    def policy(**more):
        return lambda out: [setattr(out.settings.allocator_admission_policy, name, value) for name, value in more.items()]

    ladder = lambda *steps: lambda out: (
        out.fields.append(keyword("at", type_=sf.FIELD_TYPE_TIMESTAMP)),
        out.settings.lifecycle_policy.CopyFrom(sf.LifecyclePolicy(
            time_partition_field="at", window_ms=1000,
            transitions=[sf.LifecycleTransition(after_ms=after, target_tier=tier) for after, tier in steps])))
    cases = [
        lambda out: out.ClearField("collection_truth_mode"),
        lambda out: out.ClearField("doc_id_mapping"),
        lambda out: setattr(out.doc_id_mapping, "generation_policy", 0),
        lambda out: setattr(out.doc_id_mapping, "generation_policy", 3),
        lambda out: setattr(out.doc_id_mapping, "generation_policy", required),  # with a policy
        lambda out: out.ClearField("settings"),  # ALLOCATOR_OPTIONAL without one
        policy(caller_profile=0), policy(caller_profile=2), policy(caller_profile=99),
        policy(max_plan_items_per_request=0), policy(max_plan_items_per_request=65537),
        policy(max_forward_reservation_jump=0),
        lambda out: setattr(out.settings, "max_result_window", 0),
        lambda out: setattr(out.settings, "max_result_window", 1_000_001),
        lambda out: out.fields.extend([keyword("x"), keyword("x")]),
        lambda out: out.fields.append(keyword("")),
        lambda out: out.fields.append(keyword("x" * 257)),
        lambda out: out.fields.append(keyword("x", type_=0)),
        lambda out: out.fields.append(keyword("x", type_=99)),
        lambda out: out.fields.append(sf.FieldDefinition(name="x", type=1)),
        lambda out: out.fields.append(keyword("x", 0)),
        lambda out: out.fields.append(keyword("x", vector=sf.VectorSettings(dimensions=3))),
        lambda out: out.fields.append(keyword("x", type_=sf.FIELD_TYPE_DENSE_VECTOR)),
        lambda out: out.fields.append(keyword("x", type_=sf.FIELD_TYPE_DENSE_VECTOR, vector=sf.VectorSettings(dimensions=4097))),
        lambda out: out.fields.extend([keyword(f"f{i}") for i in range(1001)]),
        ladder((10, sf.DATA_TIER_WARM), (10, sf.DATA_TIER_COLD)), ladder((10, sf.DATA_TIER_COLD), (20, sf.DATA_TIER_WARM)),
        ladder((10, sf.DATA_TIER_HOT)), ladder((10, 2), (20, 3), (30, 3)),
    ]
    keys = a.keys()
    for at, change in enumerate(cases):
        try:
            error = refused("SF_BAD_REQUEST", lambda: a.schema(ref, 1, "t1", body=body(change)), "bad_request")
        except AssertionError as failure:
            raise AssertionError(f"case {at}: {failure}") from failure
        assert error.diagnostics["field"].startswith("definition"), error
    refused_field(lambda: a.schema(ref, 0, "t0"), "schema_version", "zero")
    request = schema_request(ref)
    request.ClearField("fence")
    refused("SF_BAD_REQUEST", lambda: a.catalog.PutCollectionSchema(request), "bad_request", field="fence")
    request = schema_request(ref)
    request.ClearField("definition")
    refused("SF_BAD_REQUEST", lambda: a.catalog.PutCollectionSchema(request), "bad_request", field="definition")
    assert a.keys() == keys
    a.schema(ref, 1, "t1", body=body(ladder((10, sf.DATA_TIER_WARM), (20, sf.DATA_TIER_COLD))))
    assert get_schema(a, ref).definition.doc_id_mapping.generation_policy == optional


def test_compatible_generations():
    a = api()
    ref = a.collection(a.namespace().namespace_id).collection
    a.schema(ref, 1, "t1", fields=[keyword("x")])
    for fields in ([], [keyword("x", type_=sf.FIELD_TYPE_TEXT)], [keyword("x", sf.MODALITY_METADATA_AUX)]):
        refused("SF_BAD_REQUEST", lambda: a.schema(ref, 2, "t2", fields=fields), "bad_request", field="definition.fields")
    a.schema(ref, 2, "t2", fields=[keyword("y"), keyword("x")])
    a.schema(ref, 3, "t3", fields=[], update_policy=sf.ACTIVE_SCHEMA_UPDATE_POLICY_REBUILD)


# ---- convergence --------------------------------------------------------------------------------------

def state_of(a, ref):
    return get_sync(a, ref).state.WhichOneof("state")


def test_convergence():
    proves("CCS-5.5-08", "CCS-7-13", "CCS-7-16", "CCS-7-02", "CCS-7-03", "CCS-7-05", "CCS-7-06", "CCS-7-08", "CCS-5.5-05", "CCS-7-17", "CCS-5.3-17",
           "CCS-5.3-16", "CCS-5.5-09", "CCS-5.2-44", "CCS-5.2-45", "CCS-5.2-46", "CCS-5.2-50")
    a = api()
    ref = a.collection(a.namespace().namespace_id).collection
    a.schema(ref, 1, "t1")
    state = admission(a, ref).state
    assert state.schema_convergence_state == private.SCHEMA_CONVERGENCE_STATE_NO_READY_SERVING_GENERATION
    assert state.schema_bootstrap_state == private.SCHEMA_BOOTSTRAP_STATE_UNSPECIFIED
    assert state.effective_max_result_window == 0 and not state.HasField("ready_generation_token")
    # Signals of a generation that is not the active one change nothing.
    for version, token in ((2, "t2"), (1, "other")):
        try:
            assert not a.signal(ref, version, token).changed
        except grpc.RpcError as error:
            assert error_of(error).code in ("SF_VERSION_CONFLICT", "SF_RESOURCE_NOT_FOUND"), error_of(error)
        assert state_of(a, ref) == "applying"
    answer = a.signal(ref, 1, "t1")
    assert answer.changed and answer.state.WhichOneof("state") == "ready" and state_of(a, ref) == "ready"
    assert not a.signal(ref, 1, "t1").changed
    state = admission(a, ref).state
    assert (state.ready_generation_version, state.ready_generation_token) == (1, "t1")
    assert state.effective_max_result_window == 10000
    assert state.schema_convergence_state == private.SCHEMA_CONVERGENCE_STATE_UNSPECIFIED
    # A newer generation is active at once; queries stay where they are until it is reported.
    a.schema(ref, 2, "t2")
    for signal, reason, name in ((None, "", "applying"), (DRIFT, "rows are missing", "drifted"),
                                 (FAILED, "disk is full", "error")):
        if signal:
            assert a.signal(ref, 2, "t2", signal, reason).changed
        assert state_of(a, ref) == name
        state = admission(a, ref).state
        assert (state.active_schema_version, state.ready_generation_version) == (2, 1)
        assert get_schema(a, ref).applied_schema_generation_token == get_sync(a, ref).applied_schema_generation_token == "t2"
        now = get_sync(a, ref).state
        assert name != "drifted" or now.drifted.drift_reason == "rows are missing"
        assert name != "error" or now.error.error_reason == "disk is full"
    assert a.signal(ref, 2, "t2", REPAIRED).changed and state_of(a, ref) == "ready"
    assert admission(a, ref).state.ready_generation_version == 2
    refused("SF_BAD_REQUEST", lambda: a.signal(ref, 2, "t2", DRIFT, ""), "bad_request", field="reason")
    refused("SF_BAD_REQUEST", lambda: a.signal(ref, 2, "t2", DRIFT, "r" * 256), "bad_request", field="reason")
    refused("SF_BAD_REQUEST", lambda: a.signal(ref, 2, "t2", 0), "bad_request", field="signal")
    SERVER.crash()
    a = api()
    assert state_of(a, ref) == "ready"
    SERVER.stop()
    drop_projection(SERVER)
    SERVER.start()
    assert state_of(api(), ref) == "ready"


def test_promotion_publishes_statistics():
    proves("CCS-7-04")
    a = api()
    ref = a.collection(a.namespace().namespace_id).collection
    a.schema(ref, 1, "t1", fields=[keyword(name) for name in ("b", "\u00e9", "aa", "a")])
    base = f"catalog/{sha256_hex(str(ref.namespace_id))[:2]}/{ref.namespace_id}/{ref.collection_id}/optimizer_statistics_"
    assert not a.keys(base)  # nothing is assumed ready
    a.signal(ref, 1, "t1")
    keys = set(a.keys(base))
    assert base + "head.json" in keys and len(keys) == 2
    snapshot = a.json_object(next(key for key in keys if "_vt1_" in key))
    head = a.json_object(base + "head.json")
    assert snapshot["applied_schema_generation_token"] == head["latest_applied_schema_generation_token"] == "t1"
    assert snapshot["applied_schema_version"] == "1"
    assert [one["field_name"] for one in snapshot["field_stats"]] == ["a", "aa", "b", "\u00e9"]
    assert snapshot.get("collection_stats", {}).get("row_count", "0") == "0"
    assert head["latest_collected_at_unix_ms"] == snapshot["collected_at_unix_ms"]
    a.schema(ref, 2, "t2", fields=[keyword(name) for name in ("b", "\u00e9", "aa", "a")])
    assert a.json_object(base + "head.json") == head
    a.signal(ref, 2, "t2")
    assert a.json_object(base + "head.json")["latest_applied_schema_generation_token"] == "t2"


# ---- private reads ------------------------------------------------------------------------------------

def test_admission_state():
    proves("CCS-5.2-39", "CCS-5.2-40", "CCS-5.2-41", "CCS-5.2-42", "CCS-5.2-43", "CCS-5.2-47", "CCS-5.2-48",
           "CCS-5.2-51")
    a = api()
    ns, name = a.namespace().namespace_id, fresh()
    ref = a.collection(ns, name).collection
    seen = [admission(a, ref).state]
    assert seen[0].lifecycle == private.COLLECTION_ADMISSION_LIFECYCLE_ACTIVE
    assert not seen[0].HasField("allocator_admission_policy") and not seen[0].HasField("event_time")
    for at in range(2):
        a.catalog.PutCollectionMetadata(put_collection(ns, name, encryption=None, options={"n": str(at)}))
        seen.append(admission(a, ref).state)
    assert [state.descriptor_revision for state in seen] == [1, 2, 3]
    body = definition(items=5, jump=9, fields=[keyword("at", type_=sf.FIELD_TYPE_TIMESTAMP),
                                               keyword("v", sf.MODALITY_SEMANTIC_SEARCH)])
    body.settings.lifecycle_policy.CopyFrom(sf.LifecyclePolicy(time_partition_field="at", window_ms=1))
    a.schema(ref, 1, "t1", body=body)
    seen.append(admission(a, ref).state)
    a.signal(ref, 1, "t1")
    seen.append(admission(a, ref).state)
    assert len({state.descriptor_etag for state in seen}) == len(seen)
    last = seen[-1]
    assert last.collection_truth_mode == sf.COLLECTION_TRUTH_MODE_SEARCH_FABRIC
    assert last.generation_policy == sf.DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL
    assert last.allocator_admission_policy == body.settings.allocator_admission_policy
    assert (last.active_schema_version, last.active_schema_generation_token) == (1, "t1")
    assert (last.event_time.time_partition_field, last.event_time.field_type) == ("at", sf.FIELD_TYPE_TIMESTAMP)
    assert last.event_time.required_on_upsert_and_patch
    assert list(last.enabled_modalities) == [sf.MODALITY_METADATA_SEARCH, sf.MODALITY_SEMANTIC_SEARCH]
    known = dict(known_descriptor_etag=last.descriptor_etag,
                 known_collection_name_binding_revision=last.collection_name_binding_revision)
    assert admission(a, ref, **known).WhichOneof("result") == "not_modified"
    assert admission(a, ref, **{**known, "known_descriptor_etag": seen[0].descriptor_etag}).WhichOneof("result") == "state"
    a.collection(ns)  # a binding was added: the old validator no longer holds
    assert admission(a, ref, **known).WhichOneof("result") == "state"
    plain = a.ready_collection(ns, policy=sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED)
    assert not admission(a, plain).state.HasField("allocator_admission_policy")


def test_name_bindings():
    proves("CCS-3.2-02", "CCS-5.2-35", "CCS-5.2-36")
    a = api()
    ns = a.namespace().namespace_id

    def resolve(name):
        return a.private.ResolveCollectionNameBinding(private.ResolveCollectionNameBindingRequest(
            name_binding=sf.CollectionNameBinding(namespace_id=ns, collection_name=name)))

    miss = resolve("one")
    assert not miss.HasField("collection")
    ref = a.collection(ns, "one").collection
    hit, other = resolve("one"), resolve("two")
    assert hit.collection == ref and not other.HasField("collection")
    revision = miss.collection_name_binding_revision
    assert hit.collection_name_binding_revision == other.collection_name_binding_revision == revision + 1
    a.catalog.PutCollectionMetadata(put_collection(ns, "one", encryption=None, options={"x": "y"}))
    assert resolve("one").collection_name_binding_revision == revision + 1  # an update binds nothing
    assert admission(a, ref).state.collection_name_binding_revision == revision + 1
    refused("SF_RESOURCE_NOT_FOUND", lambda: a.private.ResolveCollectionNameBinding(
        private.ResolveCollectionNameBindingRequest(
            name_binding=sf.CollectionNameBinding(namespace_id=ns + 1, collection_name="one"))))


# ---- descriptors, unserved ----------------------------------------------------------------------------

def test_descriptors_hold_no_private_state():
    proves("CCS-2.2-04", "CCS-2.2-07", "CCS-3.4-09", "CCS-5.2-17", "CCS-5.3-10", "CCS-5.2-28", "ALLOC-2.2-07")
    fields = {name for message in (sf.NamespaceDescriptor, sf.CollectionDescriptor) for name in message.DESCRIPTOR.fields_by_name}
    assert fields == {"namespace_id", "namespace_name", "created_at_unix_ms", "updated_at_unix_ms", "lifecycle", "options",
                      "encryption", "approx_stats", "index", "completeness", "collection", "collection_name"}
    assert set(sf.NamespaceLifecycle.DESCRIPTOR.fields_by_name) == {"active", "quiescing"}
    proves("CCS-3.3-01", "CCS-5.2-37")
    assert "namespace_id" not in sf.PutNamespaceMetadataRequest.DESCRIPTOR.fields_by_name
    assert set(sf.CollectionNameBinding.DESCRIPTOR.fields_by_name) == {"namespace_id", "collection_name"}
    assert not {"collection_id", "collection"} & set(sf.PutCollectionMetadataRequest.DESCRIPTOR.fields_by_name)
    public = sf.DESCRIPTOR.services_by_name["CatalogControlService"]
    assert "GetCollectionAdmissionState" not in public.methods_by_name
    assert "GetCollectionAdmissionState" in private.DESCRIPTOR.services_by_name["CatalogControlPrivateService"].methods_by_name
    assert not [one.name for one in sf.DESCRIPTOR.dependencies if "private" in one.name]
    assert set(sf.SchemaSyncState.DESCRIPTOR.fields_by_name) == {"applying", "ready", "drifted", "error"}


def test_unserved_methods():
    a = api()
    ref = a.ready_collection()
    for method in ("ManifestPublisherService/ReleaseWalReplayStart",
                   "ManifestPublisherService/SubmitPublishReady",
                   "VisibilityBarrierService/RegisterWriteIntent", "ModalityWriterService/ApplySlice",
                   "NoSuchService/Method", "CatalogControlService/NoSuchMethod"):
        path = f"/searchfabric.v1.{method}"
        service, name = method.split("/")
        refused("SF_UNIMPLEMENTED", lambda: a.raw(path, b""), "unimplemented", {"rpc_method": path},
                service="searchfabric.v1." + service, method=name)
    assert state_of(a, ref) == "applying"


run(globals())
