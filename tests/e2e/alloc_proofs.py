"""AllocateIds: input of every bad kind over raw bytes, what the contract files say, where allocator values stand."""
import random
import re
import signal
import sqlite3

import grpc
from google.protobuf import descriptor_pb2

from allocator_calls import burned, limited, next_id, state
from harness import (ES, MAX_U64, Api, Stream, batch, check_error, error_of, fresh, ids, keyring, meta, plan_request, proves, refused,
                     row, run, server, sf, wait_for)

SERVER = server()
SERVER.start()
METHOD = "/searchfabric.v1.IdAllocatorService/AllocateIds"
CCS_READS = "searchfabric_id_allocator_ccs_dependency_latency_ms_count"


def api():
    return Api(SERVER)


class Untouched:
    """Nothing is written below id-allocator/ and no admission fact is asked for, in this block."""

    def __init__(self, a):
        self.a = a

    def __enter__(self):
        self.keys, self.reads = self.a.keys("id-allocator/"), SERVER.metrics().get(CCS_READS, 0)

    def __exit__(self, kind, *_):
        if kind is None:
            assert self.a.keys("id-allocator/") == self.keys and SERVER.metrics().get(CCS_READS, 0) == self.reads


# ---- bad input ----------------------------------------------------------------------------------------

def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def with_text(ref, name, text):
    """A good request whose RequestMeta holds these bytes as `name`; None = the field is left out."""
    request = plan_request(ref, None, 7)
    request.meta.ClearField(name)
    number = sf.RequestMeta.DESCRIPTOR.fields_by_name[name].number
    packed = request.meta.SerializeToString() + (b"" if text is None else field(number, text))
    request.ClearField("meta")
    return request.SerializeToString() + field(1, packed)


def refused_raw(a, body, code, name=None, violation=None):
    try:
        a.raw(METHOD, body)
    except grpc.RpcError as error:
        status = check_error(error_of(error), code, "bad_request" if name else None)
        if name is not None:
            assert status.diagnostics["field"] == name, status
            assert violation is None or status.diagnostics["violation"] == violation, status
        return
    raise AssertionError(f"admitted instead of {code}: {body[:80]}")


# Rules of names do not hold for these texts: they are compared byte for byte and never shown as names.
ANY_TEXT = ("e\u0301", "a\u061c", "a\u200e", "a\u202e", "a\u2066", "a\u00ad", "\u200b", "a\ufeff", "a\x1f", "a\x7f", "a\u0085", "\ufdd0",
            "a\uffff", "\U0010ffff", " ", "a/b", "..")
BAD_UTF8 = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\x80", b"\xe2\x82", b"\xf8\x88\x80\x80\x80")


def test_texts():
    proves("ALLOC-6.1-01", "ALLOC-12-02")
    a = api()
    ref = a.ready_collection()
    for name, limit, required in (("idempotency_key", 128, True), ("client_id", 256, True), ("correlation_id", 128, False),
                                  ("principal_subject", 256, False)):
        path = f"meta.{name}"
        with Untouched(a):
            refused_raw(a, with_text(ref, name, b""), "SF_INVALID_ARGUMENT" if required else "SF_BAD_REQUEST", path,
                        "missing" if required else None)
            if required:
                refused_raw(a, with_text(ref, name, None), "SF_INVALID_ARGUMENT", path, "missing")
            for unit in ("x", "\u00e4", "\U0001f600"):
                refused_raw(a, with_text(ref, name, unit.encode() * (limit + 1)), "SF_BAD_REQUEST", path, "too_long")
            for bad in BAD_UTF8:
                refused_raw(a, with_text(ref, name, bad), "SF_BAD_REQUEST", path, "invalid_utf8")
            refused_raw(a, with_text(ref, name, b"a\0b"), "SF_BAD_REQUEST", path)
        got = []
        for text in [unit * limit for unit in ("x", "\u00e4", "\U0001f600")] + list(ANY_TEXT) + ([] if required else [None]):
            body = with_text(ref, name, None if text is None else text.encode())
            got.append(probe(a, body, path))
        assert set(got) <= {"admitted", "refused"} and got[:3] == ["admitted"] * 3, (name, got)
        if not required:
            assert got[-1] == "admitted"
        WORDS.setdefault(tuple(got[3:3 + len(ANY_TEXT)]), []).append(name)
    # One rule for all four: texts of identities are opaque.
    assert len(WORDS) == 1 and next(iter(WORDS)) == ("admitted",) * len(ANY_TEXT), WORDS


WORDS = {}


def probe(a, body, path):
    """Fresh plans of issue items only, so that admitted ones do not burn each other."""
    request = sf.AllocateIdsRequest.FromString(body)
    del request.plan.items[:]
    request.plan.items.add().issue.SetInParent()
    if path != "meta.idempotency_key":
        request.meta.idempotency_key = fresh()
    try:
        a.allocator.AllocateIds(request, timeout=20)
        return "admitted"
    except grpc.RpcError as error:
        check_error(error_of(error), "SF_BAD_REQUEST", "bad_request")
        return "refused"


def test_numbers_and_enums():
    proves("ALLOC-3.3-05", "ALLOC-3.5-07", "ALLOC-3.5-10", "ALLOC-3.5-18", "ALLOC-3.5-20")
    a = api()
    ref = a.ready_collection()
    with Untouched(a):
        for namespace_id, collection_id in ((0, 1), (1, 0), (0, 0), (0, MAX_U64), (MAX_U64, 0)):
            bad = sf.CollectionRef(namespace_id=namespace_id, collection_id=collection_id)
            refused("SF_INVALID_ARGUMENT", lambda: a.allocate(bad, None), "bad_request", field="collection", violation="missing")
        for route in (0, 2, 3, 1000, -1, 2**31 - 1, -2**31):
            refused("SF_INVALID_ARGUMENT", lambda: a.allocate(ref, None, route=route), "bad_request", field="route_intent",
                    violation="unspecified" if route == 0 else "unknown_value")
        refused("SF_INVALID_ARGUMENT", lambda: a.allocate(ref, None, kind=0), "bad_request", field="meta.client_kind",
                violation="unspecified")
        for bad in (b"\xff", b"\x0a\xff", field(1, b"\x08"), b"\x0b", field(4, field(1, b"\x0a\x05"))):
            refused_raw(a, bad, "SF_INVALID_ARGUMENT")
    keys = a.keys("id-allocator/")
    known = {value for value in sf.ClientKind.values() if value}
    for kind in sorted(known - {ES}) + [max(known) + 1, 1000, -1, 2**31 - 1, -2**31]:
        refused("SF_OWNERSHIP_CONFLICT", lambda: a.allocate(ref, None, kind=kind), "", {})
    for bad in (sf.CollectionRef(namespace_id=MAX_U64, collection_id=MAX_U64),
                sf.CollectionRef(namespace_id=ref.namespace_id, collection_id=MAX_U64)):
        refused("SF_RESOURCE_NOT_FOUND", lambda: a.allocate(bad, None), "", {})
    assert a.keys("id-allocator/") == keys
    assert ids(a.allocate(ref, None)) == [0]


def test_long_plans():
    proves("ALLOC-3.5-13", "ALLOC-3.5-12", "ALLOC-3.5-14", "ALLOC-5.5-04", "ALLOC-9-01")
    a = api()
    ref = a.ready_collection(items=65536, jump=10**6)
    most = 65536  # of the server, whatever a policy says; the schema admits no higher ceiling (schema.py)
    with Untouched(a):
        for size in (20_000, most):
            for first, last in ((0, size - 1), (0, 1), (size - 2, size - 1), (size // 2, size - 1)):
                plan = [None] * size
                plan[first] = plan[last] = 10**5
                refused("SF_BAD_REQUEST", lambda: a.allocate(ref, *plan), "bad_request",
                        {"field": "plan.items", "violation": "duplicate_explicit_doc_id"})
            for at in (0, size // 2, size - 1):
                request = plan_request(ref, *[None] * size)
                request.plan.items[at].ClearField("issue")
                refused("SF_INVALID_ARGUMENT", lambda: a.allocator.AllocateIds(request, timeout=30), "bad_request",
                        {"field": "plan.items", "violation": "no_valid_branch"})
        # Ascending, descending, shuffled: a duplicate is found wherever it stands.
        for order in (lambda one: one.sort(), lambda one: one.sort(reverse=True), random.Random(5).shuffle):
            plan = list(range(1000, 11_000)) + [4711]
            order(plan)
            refused("SF_BAD_REQUEST", lambda: a.allocate(ref, *plan), "bad_request",
                    {"field": "plan.items", "violation": "duplicate_explicit_doc_id"})
        limited(lambda: a.allocate(ref, *[None] * (most + 1)), "allocator_plan_items", most, most + 1)
    assert len(ids(a.allocate(ref, *[None] * most))) == most and next_id(a, ref) == most
    small = a.ready_collection(items=3, jump=10)
    limited(lambda: a.allocate(small, None, None, 9, None), "allocator_plan_items", 3, 4)
    limited(lambda: a.allocate(small, *range(4)), "allocator_plan_items", 3, 4)
    assert state(a, small) is None and ids(a.allocate(small, 0, None, 2)) == [0, 1, 2]


def test_ends_of_the_id_space():
    proves("ALLOC-3.5-15", "ALLOC-3.5-16", "ALLOC-5.5-02", "ALLOC-12-11", "ALLOC-12-12", "ALLOC-5.2-05")
    a = api()
    # From nothing: the window counts from 0.
    ref = a.ready_collection(jump=5)
    limited(lambda: a.allocate(ref, 6), "allocator_forward_reservation_window", 5, 6)
    limited(lambda: a.allocate(ref, MAX_U64), "allocator_forward_reservation_window", 5, MAX_U64)
    limited(lambda: a.allocate(ref, 5, 12), "allocator_forward_reservation_window", 5, 6)
    assert state(a, ref) is None
    assert ids(a.allocate(ref, 5, 11, None)) == [5, 11, 12]
    burned(lambda: a.allocate(ref, 0), 0)
    # The largest window there is, and the last ids.
    ref = a.ready_collection(jump=MAX_U64)
    assert ids(a.allocate(ref, 0)) == [0]
    assert ids(a.allocate(ref, MAX_U64 - 2)) == [MAX_U64 - 2]
    limited(lambda: a.allocate(ref, None, None, None), "allocator_identity_space_remaining", 0, 1)
    limited(lambda: a.allocate(ref, None, MAX_U64, None), "allocator_identity_space_remaining", 0, 1)
    burned(lambda: a.allocate(ref, MAX_U64, MAX_U64 - 1), MAX_U64 - 1)
    key = fresh()
    assert ids(a.allocate(ref, None, MAX_U64, key=key)) == [MAX_U64 - 1, MAX_U64]
    assert state(a, ref)["next_doc_id"] == str(MAX_U64 + 1)
    for restart in (lambda: None, SERVER.crash):
        restart()
        a = api()
        limited(lambda: a.allocate(ref, None), "allocator_identity_space_remaining", 0, 1)
        for doc_id in (0, 1, MAX_U64 - 1, MAX_U64):
            burned(lambda: a.allocate(ref, doc_id), doc_id)
        assert ids(a.allocate(ref, None, MAX_U64, key=key)) == [MAX_U64 - 1, MAX_U64]
        assert state(a, ref)["next_doc_id"] == str(MAX_U64 + 1)


# ---- the contract -------------------------------------------------------------------------------------

def fields_of(message):
    return {one.name: one.number for one in message.DESCRIPTOR.fields}


def test_ingest_messages_are_as_they_were():
    """The allocator adds one field to the ingest contract and changes nothing else of it."""
    proves("ALLOC-1-05", "ALLOC-2.2-04")
    assert fields_of(sf.RowMutation) == {"doc_id": 1, "op": 2, "commit_ts": 3, "body": 4, "source_partition": 10,
                                         "source_epoch": 11, "source_seq": 12}
    assert fields_of(sf.MutationBatch) == {
        "batch_id": 1, "batch_fingerprint": 2, "stream_identity": 3, "collection": 4, "schema_generation_token": 5,
        "allocator_receipt": 6, "durability": 7, "visibility": 8, "first_admitted_ts": 9, "entries": 10}
    service = sf.DESCRIPTOR.services_by_name["IngestGatewayService"]
    method, = service.methods
    assert method.name == "StreamMutations" and method.input_type.name == "StreamMutationsRequest"
    assert method.output_type.name == "StreamMutationsResponse"
    words = ("alloc", "lease", "next_doc", "realized", "receipt", "reservation")
    seen, named = set(), set()

    def walk(descriptor):
        if descriptor.full_name in seen or descriptor.name == "ErrorStatus":
            return  # the error's context is the one place where both services meet
        seen.add(descriptor.full_name)
        for one in descriptor.fields:
            if any(word in one.name for word in words):
                named.add(f"{descriptor.name}.{one.name}")
            if one.message_type is not None:
                walk(one.message_type)

    walk(method.input_type)
    walk(method.output_type)
    assert named == {"MutationBatch.allocator_receipt"}, named


def test_names_are_nowhere_in_a_request():
    proves("ALLOC-2.1-09", "ALLOC-2.2-05")
    texts = set()

    def walk(descriptor, path):
        for one in descriptor.fields:
            if one.message_type is not None:
                assert one.message_type.name != "CollectionNameBinding"
                walk(one.message_type, f"{path}{one.name}.")
            elif one.type == descriptor_pb2.FieldDescriptorProto.TYPE_STRING:
                texts.add(path + one.name)

    walk(sf.AllocateIdsRequest.DESCRIPTOR, "")
    assert texts == {"meta.idempotency_key", "meta.correlation_id", "meta.client_id", "meta.principal_subject"}


def test_switches_are_the_caller_s():
    """What stages a rollout stands at the edge; no setting changes what AllocateIds answers."""
    proves("ALLOC-15-02", "ALLOC-15-01", "ALLOC-3.4-02")
    outcomes = []
    for config in ("es:\n  namespace: demo\n  auto_create: true\n", "es:\n  namespace: demo\n  auto_create: false\n",
                   "allocator:\n  failure_audit: true\n  recovery_segments: true\n"):
        other = server(config)
        other.start()
        a = Api(other)
        ref = a.ready_collection(items=4, jump=10)
        got = [ids(a.allocate(ref, None, 5, None, key="one")), ids(a.allocate(ref, None, 5, None, key="one"))]
        for call in (lambda: a.allocate(ref, 3), lambda: a.allocate(ref, 40), lambda: a.allocate(ref, *[None] * 5),
                     lambda: a.allocate(ref, None, kind=sf.CLIENT_KIND_TP_WRITE_GATEWAY),
                     lambda: a.allocate(ref, None, key="one")):
            try:
                call()
                raise AssertionError("admitted")
            except grpc.RpcError as error:
                got.append((error_of(error).code, dict(error_of(error).diagnostics)))
        stream = Stream(a)
        got.append(stream.put(batch(ref, row(9, b"{}"))).error.code)  # a create without a receipt
        stream.close()
        outcomes.append(got)
        other.cleanup()
    assert outcomes[0] == outcomes[1] == outcomes[2], outcomes
    assert outcomes[0][-1] == "SF_BAD_REQUEST"
    for key in ("enabled: false", "admit_client_kinds: [5]", "optional: true", "caller_profile: any", "max_plan_items: 1"):
        path = SERVER.folder / "switch.yaml"
        path.write_text(f"allocator:\n  {key}\n")
        wrong = server(folder=SERVER.folder / "never")
        wrong.config = path
        try:
            wrong.start()
            raise AssertionError(f"allocator.{key} is a setting")
        except AssertionError as error:
            assert "ended with 2" in str(error), error


# ---- replay -------------------------------------------------------------------------------------------

def store_reads():
    return sum(value for name, value in SERVER.metrics().items() if name.startswith('searchfabric_object_requests_total{op="get"'))


def test_replay_outlives_what_comes_after():
    """Ceilings, schemas, signing keys, owners, memory, the collection itself: none takes an answer back."""
    proves("ALLOC-3.5-19", "ALLOC-6.1-08", "ALLOC-6.1-10", "ALLOC-6.1-11", "ALLOC-9-03", "ALLOC-2.1-04", "ALLOC-10.3-01",
           "ALLOC-10.3-02")
    a = api()
    ns = a.namespace().namespace_id
    ref = a.ready_collection(ns, "books", items=10, jump=100)
    plans = {"issue": [None] * 3, "explicit": [50, 60], "mixed": [None, 80, None]}
    keys = {name: fresh() for name in plans}
    first = {name: a.allocate(ref, *plan, key=keys[name]).SerializeToString(deterministic=True) for name, plan in plans.items()}
    watermark = state(a, ref)

    def same(why):
        a = api()
        reads = SERVER.metrics().get(CCS_READS, 0)
        for name, plan in plans.items():
            assert a.allocate(ref, *plan, key=keys[name]).SerializeToString(deterministic=True) == first[name], (why, name)
            refused("SF_IDEMPOTENCY_CONFLICT", lambda: a.allocate(ref, *plan, None, key=keys[name]), "", {})
        assert SERVER.metrics().get(CCS_READS, 0) == reads, why
        assert state(a, ref) == watermark, why

    same("at once")
    before = store_reads()
    for _ in range(50):  # what is remembered costs the store nothing
        assert a.allocate(ref, None, 80, None, key=keys["mixed"]).SerializeToString(deterministic=True) == first["mixed"]
    idle = store_reads() - before
    assert idle < 10, idle  # the server looks at its own objects now and then
    a.schema(ref, 2, "t2", items=1, jump=1)
    same("lower ceilings, another token")
    (old_id, old_secret, _), = keyring(SERVER)
    loaded = SERVER.log().count("keyring_reloaded")
    (SERVER.data / "keyring.yaml").write_text(f"keys:\n  - id: next\n    secret: {'cd' * 32}\n    state: signing\n  - id: {old_id}\n"
                                              f"    secret: {old_secret.hex()}\n    state: retired\n")
    SERVER.signal(signal.SIGHUP)
    wait_for(lambda: SERVER.log().count("keyring_reloaded") > loaded, "the new ring")
    same("another signing key")
    SERVER.restart()
    same("another owner, in good order")
    SERVER.crash()
    same("another owner, after kill -9")
    a = api()
    a.catalog.DropCollection(sf.DropCollectionRequest(meta=meta(fresh()), collection=ref), timeout=20)
    refused("SF_RESOURCE_NOT_FOUND", lambda: a.allocate(ref, None), "", {})
    same("its collection dropped")
    SERVER.crash()
    same("its collection dropped, memory empty")
    assert not [one for one in a_collections(api(), ns) if one == ref.collection_id]


def a_collections(a, ns):
    page = sf.ListCollectionsRequest(meta=meta(), namespace_id=ns, page=sf.PageRequest(page_size=100))
    return [one.collection.collection_id for one in a.catalog.ListCollections(page, timeout=20).collections]


# ---- metrics ------------------------------------------------------------------------------------------

FAMILIES = {
    "requests_total": ("counter", ("client_kind", "result", "plan_shape")),
    "latency_ms": ("histogram", ("client_kind", "plan_shape")),
    "plan_items_total": ("counter", ("client_kind", "item_kind")),
    "replay_total": ("counter", ("classification",)),
    "ccs_dependency_latency_ms": ("histogram", ()),
    "state_conflict_retry_total": ("counter", ()),
    "range_lease_total": ("counter", ("result",)),
}


def test_metric_families():
    """Names, types, labels in their order, and label values, as a scrape shows them; all under one prefix."""
    proves("ALLOC-14-01", "ALLOC-14-02", "ALLOC-14-03", "ALLOC-14-04", "ALLOC-14-05", "ALLOC-13.3-03")
    a = api()
    ref = a.ready_collection(items=4, jump=10)
    a.allocate(ref, None, None, key="m")
    a.allocate(ref, None, None, key="m")
    a.allocate(ref, 5, None)
    a.allocate(ref, 9)
    for call in (lambda: a.allocate(ref, None, key="m"), lambda: a.allocate(ref, 3), lambda: a.allocate(ref, *[None] * 5),
                 lambda: a.allocate(ref, None, kind=sf.CLIENT_KIND_TP_WRITE_GATEWAY), lambda: a.allocate(ref),
                 lambda: a.allocate(sf.CollectionRef(namespace_id=1, collection_id=1), None)):
        try:
            call()
            raise AssertionError("admitted")
        except grpc.RpcError:
            pass
    prefix = "searchfabric_id_allocator_"
    text = SERVER.get("/metrics")[1]
    types = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE ")}
    series = {}
    for line in text.splitlines():
        if line.startswith(prefix):
            name, _, rest = line.partition("{") if "{" in line else (line.rpartition(" ")[0], "", "")
            labels = dict(re.findall(r'([a-z_]+)="([^"]*)"', rest.rpartition("}")[0]))
            series.setdefault(name, []).append(labels)
    for name, (kind, labels) in FAMILIES.items():
        assert types[prefix + name] == kind, name
        found = series.get(prefix + name, []) + series.get(prefix + name + "_count", [])
        assert found or name == "range_lease_total", name
        for one in found:
            assert tuple(one) == labels, (name, one)
    values = {}
    for name, (_, labels) in FAMILIES.items():
        for one in series.get(prefix + name, []) + series.get(prefix + name + "_count", []):
            for label, value in one.items():
                values.setdefault(label, set()).add(value)
    assert values["plan_shape"] == {"issue_only", "explicit_only", "mixed", "invalid"}
    assert values["item_kind"] == {"issue", "explicit_doc_id"}
    assert values["classification"] == {"original", "replay_same_payload", "replay_conflict"}
    assert values["client_kind"] <= set(sf.ClientKind.keys()) | {"UNKNOWN"}
    codes = {"sf_" + code for code in ("invalid_argument", "bad_request", "resource_not_found", "ownership_conflict", "version_conflict",
                                       "too_many_operations", "idempotency_conflict", "rate_limited", "catalog_unavailable",
                                       "backend_unavailable", "forbidden")}
    assert {"ok", "replay_ok", "sf_invalid_argument", "sf_resource_not_found", "sf_ownership_conflict", "sf_version_conflict",
            "sf_too_many_operations", "sf_idempotency_conflict"} <= values["result"] - {"granted", "failed", "discarded"}
    assert values["result"] <= codes | {"ok", "replay_ok", "granted", "failed", "discarded"}, values["result"]
    # No other subsystem's series carries the prefix, and no series of the catalog speaks of the allocator.
    assert all(name.startswith(prefix) for name in types if "alloc" in name), types


# ---- where values stand -------------------------------------------------------------------------------

def test_values_of_the_allocator_stand_apart():
    """Watermarks, epochs and replay keys of the allocator are in no object but its own and in no table of the catalog."""
    proves("ALLOC-4.3-02", "ALLOC-2.2-07", "ALLOC-7.1-01")
    mark = 7_391_846_205_118_311
    a = api()
    ref = a.ready_collection(jump=MAX_U64)
    before = a.keys()
    key = fresh("private-key")
    for at in range(20):
        a.allocate(ref, mark + 10 * at, key=f"{key}-{at}")
    after = a.keys()
    # Nothing but id-allocator/ changed, but for what the catalog and the oracle write by themselves in any second.
    assert {name for name in after if name not in before} == {name for name in after if name.startswith("id-allocator/")} - set(before)
    # ("allocation_epoch" is a word of the catalog's own too: the epoch of a name's allocation.)
    words = [str(mark), str(mark + 191), "next_doc_id", "allocator_state_version", "pending_applies", key,
             "transport_lookup_key\":\"" + next(iter(name.split("/")[-1][:-5] for name in after if "replay-success" in name))]
    others = [name for name in after if not name.startswith("id-allocator/")]
    assert len(others) > 5
    for name in others:
        body = a.object(name) or b""
        for word in words:
            assert word.encode() not in body, (name, word)
    SERVER.stop()
    connection = sqlite3.connect(f"file:{SERVER.data}/projection.sqlite?mode=ro", uri=True)
    tables = [name for name, in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert "collections" in tables and not [name for name in tables if "alloc" in name]
    for table in tables:
        columns = [column[1] for column in connection.execute(f"PRAGMA table_info({table})")]
        assert not [name for name in columns if name in ("next_doc_id", "allocator_state_version")], table
        for values in connection.execute(f"SELECT * FROM {table}"):
            for value in values:
                text = value if isinstance(value, bytes) else str(value).encode()
                for word in words:
                    assert word.encode() not in text, (table, word)
    connection.close()
    SERVER.start()


run(globals())
