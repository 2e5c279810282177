"""What stands in the object store and in the projection after a mixed workload: keys, records, pointers, rows."""
import base64
import collections
import contextlib
import json
import re
import sqlite3

from catalog_calls import admission, caught_up, get_collection, get_namespace, get_schema, get_sync, list_collections, put_collection, put_namespace, run_job
from harness import (DURABLE, VISIBLE, Api, Stream, batch, catalog_operations, fresh, meta, proves, refused, row, run, schema_request, server, sf,
                     sha256_hex, wait_for)

SERVER = server()
SERVER.start()
NAMES = ["plain", ".", "..", "a/b", "100%", "back\\slash", "two words", "\U0001F600" * 128, "\u00e4.json"]
TOKENS = ["t/1", "t_2", "\U0001F600" * 64, "..", "100%"]
BIAS = 1 << 63  # the projection keeps unsigned numbers shifted, so that they sort


def api():
    return Api(SERVER)


def h(component):
    return sha256_hex(component)[:2]


def decode(component):
    return re.sub("%([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), component)


@contextlib.contextmanager
def projection(write=False):
    mode = "rw" if write else "ro"
    connection = sqlite3.connect(f"file:{SERVER.data}/projection.sqlite?mode={mode}", uri=True, timeout=10)
    connection.row_factory = sqlite3.Row
    try:
        yield connection
    finally:
        connection.close()


def sql(query, *values):
    with projection() as connection:
        return [dict(one) for one in connection.execute(query, values)]


def u64(value):
    return None if value is None else value + BIAS


class Work:
    """Requests with their answers, of every served catalog mutation."""

    def __init__(self):
        a = api()
        self.sent = []
        spaces = []
        for name in NAMES:
            request = put_namespace(fresh() + name[:100] if name not in (".", "..") else name, options={"of": name})
            spaces.append(self.keep(request, a.catalog.PutNamespaceMetadata(request)).descriptor)
        self.spaces = spaces
        self.refs = []
        for name in NAMES:
            request = put_collection(spaces[0].namespace_id, name, correlation_id="trace", principal_subject="someone")
            ref = self.keep(request, a.catalog.PutCollectionMetadata(request)).descriptor.collection
            self.refs.append((name, ref))
        request = put_collection(spaces[1].namespace_id, NAMES[0])
        self.keep(request, a.catalog.PutCollectionMetadata(request))
        for at in range(10):
            request = put_collection(spaces[0].namespace_id, NAMES[0], encryption=None, options={"at": str(at)})
            self.keep(request, a.catalog.PutCollectionMetadata(request))
            request = put_namespace(spaces[0].namespace_name, encryption=None, options={"at": str(at)})
            self.keep(request, a.catalog.PutNamespaceMetadata(request))
        self.schema_ref = self.refs[0][1]
        for at, token in enumerate(TOKENS):
            request = schema_request(self.schema_ref, at + 1, token, ddl=at)
            self.keep(request, a.catalog.PutCollectionSchema(request))
            a.signal(self.schema_ref, at + 1, token)
        again = schema_request(self.schema_ref, 1, TOKENS[0], key=fresh(), ddl=0)
        self.keep(again, a.catalog.PutCollectionSchema(again))
        self.conflict_key = fresh()
        refused("SF_IDEMPOTENCY_CONFLICT", lambda: a.schema(self.schema_ref, 1, TOKENS[0], key=self.conflict_key, jump=3))
        self.rows_ref = a.ready_collection(spaces[2].namespace_id, policy=sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED)
        stream = Stream(a)
        for at in range(3):
            assert not stream.put(batch(self.rows_ref, row(at, b"{}"), durability=DURABLE, visibility=VISIBLE)).HasField("error")
        stream.close()
        wait_for(lambda: self.follows(a), "the catalog's head follows", 30)  # no intent comes later, between two looks of a test

    def follows(self, a):
        run_job(a, "manifest-head-audit")
        run_job(a, "manifest-head")
        ref = self.rows_ref
        head = a.json_object(f"catalog/{h(str(ref.namespace_id))}/{ref.namespace_id}/{ref.collection_id}/manifest_head.json")
        return head is not None and head["manifest_head_version"] == "3"

    def keep(self, request, answer):
        self.sent.append((request, answer))
        return answer


WORK = Work()


def records(a):
    return {key: a.json_object(key) for key in a.keys("catalog-log/")}


def kind(record):
    return record["command_kind"].removeprefix("COMMAND_KIND_")


BUSINESS = ("PUT_COLLECTION_SCHEMA", "HEAD_ADVANCE")  # the kinds of the workload that have a business key


def of_intent(record):
    """The workload's one kind of internal intent: the catalog's head follows the publisher's."""
    return kind(record) == "HEAD_ADVANCE"


# ---- objects ------------------------------------------------------------------------------------------

def test_every_key():
    proves("CCS-8-01", "CCS-8-02", "CCS-8-03", "CCS-8-06", "CCS-5.4-01", "CCS-5.4-02", "CCS-4.3-02", "CCS-4.3-03", "CCS-4.3-04",
           "CCS-5.8-02", "CCS-5.8-03")
    a = api()
    number, name, digest, shard = r"\d+", r"(?:[^/\\%]|%25|%2F|%5C|%2E)+", r"[0-9a-f]{64}", r"[0-9a-f]{2}"
    templates = [
        rf"catalog/(?P<s0>{shard})/(?P<c0>{number})/namespace_descriptor_v{number}\.json",
        rf"catalog/(?P<s0>{shard})/(?P<c0>{number})/{number}/collection_descriptor_v{number}\.json",
        rf"catalog/(?P<s0>{shard})/(?P<c0>{number})/{number}/schema_generation_v{number}_{name}\.json",
        rf"catalog/(?P<s0>{shard})/(?P<c0>{number})/{number}/optimizer_statistics_head\.json",
        rf"catalog/(?P<s0>{shard})/(?P<c0>{number})/{number}/optimizer_statistics_v{name}_{number}\.json",
        rf"catalog/(?P<s0>{shard})/(?P<c0>{number})/{number}/manifest_committed_head\.json",
        rf"catalog/(?P<s0>{shard})/(?P<c0>{number})/{number}/manifest_head\.json",
        rf"catalog-log/(?P<s0>{shard})/(?P<c0>{digest})\.json",
        rf"catalog-replay-transport/(?P<s0>{shard})/(?P<c0>{digest})\.json",
        rf"catalog-replay-business/PUT_COLLECTION_SCHEMA/(?P<s0>{shard})/(?P<c0>{digest})\.json",
        rf"catalog-replay-business/HEAD_ADVANCE/(?P<s0>{shard})/(?P<c0>{digest})\.json",
        r"catalog-recovery-segments/segment_\d{20}\.json\.zst",
        rf"catalog-allocator/namespace-name/(?P<s0>{shard})/(?P<c0>{name})\.json",
        rf"catalog-allocator/collection-name/(?P<s0>{shard})/(?P<c0>{number})/(?P<s1>{shard})/(?P<c1>{name})\.json"]
    seen = collections.Counter()
    for key in a.keys("catalog"):
        found = [(at, match) for at, match in ((at, re.fullmatch(template, key)) for at, template in enumerate(templates)) if match]
        assert len(found) == 1, f"{key} is of {len(found)} templates"
        at, match = found[0]
        seen[at] += 1
        for pair in ("0", "1"):
            if f"s{pair}" in match.groupdict():
                assert match["s" + pair] == h(decode(match["c" + pair])), key  # the hash is over the component's own text
        assert len(key.encode()) <= 1024
    assert set(seen) == set(range(len(templates))), seen
    base = f"catalog/{h(str(WORK.schema_ref.namespace_id))}/{WORK.schema_ref.namespace_id}/{WORK.schema_ref.collection_id}/"
    for at, token in enumerate(TOKENS):
        encoded = {"t/1": "t%2F1", "..": "%2E%2E", "100%": "100%25"}.get(token, token)
        exact = {f"{base}schema_generation_v{at + 1}_{part}.json" for part in (encoded, token.replace("%", "%25").replace("/", "%2F"))}
        assert exact & set(a.keys(base)), (token, list(a.keys(base)))


def test_epochs_of_names():
    proves("CCS-3.3-02", "CCS-3.3-03", "CCS-3.4-01", "CCS-3.4-02", "CCS-3.4-04", "CCS-3.4-07", "CCS-5.4-03", "CCS-5.4-07", "CCS-8-09")
    a = api()
    written = records(a)
    epochs = {key: a.json_object(key) for key in a.keys("catalog-allocator/")}
    assert {one["last_allocated_epoch"] for one in epochs.values()} == {"1"}  # updates reuse it
    assert all(int(one["updated_at_unix_ms"]) > 0 for one in epochs.values())
    by_name = {(one.get("namespace_id"), one.get("collection_name") or one["namespace_name"]): one for one in epochs.values()}
    first, second = (str(WORK.spaces[at].namespace_id) for at in (0, 1))
    for name, _ in WORK.refs:
        assert (first, name) in by_name
    assert (second, NAMES[0]) in by_name  # the same name elsewhere has an epoch of its own
    for record in written.values():
        for ref in record.get("control_objects", []):
            found = a.json_object(ref["key"])
            if kind(record) == "PUT_COLLECTION_METADATA":
                scope = found["collection"]
                assert f"/{scope['namespace_id']}/{scope['collection_id']}/" in ref["key"]
                assert found["collection_name_allocation_epoch"] == record["collection_name_allocation_epoch"] == by_name[
                    (scope["namespace_id"], found["collection_name"])]["last_allocated_epoch"]
            elif kind(record) == "PUT_NAMESPACE_METADATA":
                assert f"/{found['namespace_id']}/" in ref["key"]
                assert found["namespace_name_allocation_epoch"] == record["namespace_name_allocation_epoch"]
    for name, ref in WORK.refs:
        key = f"catalog/{h(first)}/{first}/{ref.collection_id}/collection_descriptor_v1.json"
        assert a.json_object(key)["collection"] == {"namespace_id": first, "collection_id": str(ref.collection_id)}, name
    rows = sql("SELECT * FROM namespace_name_epochs") + sql("SELECT * FROM collection_name_epochs")
    assert len(rows) == len(epochs) and {u64(one["last_allocated_epoch"]) for one in rows} == {1}


def test_records():
    proves("CCS-4.3-12", "CCS-4.3-13", "CCS-4.3-14", "CCS-4.3-16", "CCS-4.3-20", "CCS-4.3-21", "CCS-4.3-22", "CCS-3.4-10", "CCS-5.6-03",
           "CCS-9.2-06", "CCS-9.2-07")
    a = api()
    written = records(a)
    by_key = collections.defaultdict(list)
    for record in written.values():
        assert ("idempotency_key" in record) == (not of_intent(record)), record
        by_key[record.get("idempotency_key")].append(record)
    assert by_key[None]
    listed = collections.Counter()
    for key, record in written.items():
        assert key.endswith(f"/{record['command_identity']}.json") and record["replay_family"] == (
            "REPLAY_FAMILY_INTERNAL_INTENT" if of_intent(record) else "REPLAY_FAMILY_PUBLIC_RPC")
        for name in ("command_identity", "transport_lookup_key", "payload_fingerprint"):
            assert re.fullmatch("[0-9a-f]{64}", record[name]), (name, record)
        assert record.get("authenticated_client_identity_hash") == (None if of_intent(record) else sha256_hex("loopback"))
        assert "loopback" not in json.dumps(record)
        assert ("business_lookup_key" in record) == (kind(record) in BUSINESS)
        assert int(record["created_ts"]) <= int(record["applied_ts"])
        assert record["terminal_state"].removeprefix("COMMAND_TERMINAL_STATE_") in ("APPLIED", "FAILED")
        assert record["replay_classification"].removeprefix("REPLAY_CLASSIFICATION_") in ("ORIGINAL", "REPLAY_SAME_PAYLOAD",
                                                                                         "REPLAY_CONFLICT")
        for ref in record.get("control_objects", []):
            assert a.object(ref["key"]) is not None
            listed[ref["key"]] += 1
    committed = [key for key in a.keys("catalog/") if "_descriptor_v" in key or "schema_generation_v" in key]
    assert listed == collections.Counter(committed)  # each by exactly the record that wrote it
    for request, answer in WORK.sent:
        record, = by_key[request.meta.idempotency_key]
        # The stored payload is the answer, byte for byte.
        assert base64.b64decode(record["success_payload"]) == answer.SerializeToString()
        assert record["client_id"] == request.meta.client_id and record["client_kind"] == sf.ClientKind.Name(request.meta.client_kind)
        assert record.get("correlation_id", "") == request.meta.correlation_id
        assert record.get("principal_subject", "") == request.meta.principal_subject
        scope = record["scope"]
        if isinstance(request, sf.PutNamespaceMetadataRequest):
            assert scope["namespace_name"] == request.namespace_name
            assert scope["namespace_id"] == str(answer.descriptor.namespace_id)
        elif isinstance(request, sf.PutCollectionMetadataRequest):
            assert scope["collection_name"] == request.name_binding.collection_name
            assert scope["collection_id"] == str(answer.descriptor.collection.collection_id)
            assert scope["namespace_id"] == str(request.name_binding.namespace_id)
        else:
            assert (scope["namespace_id"], scope["collection_id"]) == (
                str(request.collection.namespace_id), str(request.collection.collection_id))
    conflict, = by_key[WORK.conflict_key]
    assert (conflict["terminal_state"], conflict["replay_classification"]) == (
        "COMMAND_TERMINAL_STATE_FAILED", "REPLAY_CLASSIFICATION_REPLAY_CONFLICT")
    assert conflict["failure"]["code"] == "SF_IDEMPOTENCY_CONFLICT" and "success_payload" not in conflict
    states = {(one["terminal_state"], one["replay_classification"]) for one in sql("SELECT * FROM catalog_replay_index")}
    assert {("APPLIED", "ORIGINAL"), ("APPLIED", "REPLAY_SAME_PAYLOAD"), ("FAILED", "REPLAY_CONFLICT")} == states


def test_pointers():
    proves("CCS-4.3-08", "CCS-4.3-11", "CCS-4.2-12")
    a = api()
    written = {record["command_identity"]: record for record in records(a).values()}
    transport = [a.json_object(key) for key in a.keys("catalog-replay-transport/")]
    assert {one["lookup_key"] for one in transport} == {record["transport_lookup_key"] for record in written.values()}
    business = {key: a.json_object(key) for key in a.keys("catalog-replay-business/")}
    assert {key.split("/")[1] for key in business} == set(BUSINESS)
    originals = {record["business_lookup_key"] for record in written.values()
                 if kind(record) in BUSINESS and record["replay_classification"].endswith("_ORIGINAL")}
    assert {one["lookup_key"] for one in business.values()} == originals and len(business) == len(originals)
    for one in [*transport, *business.values()]:
        record = written[one["command_identity"]]
        assert one["command_kind"] == record["command_kind"] and one["scope"] == record["scope"]
        assert (one["created_ts"], one["applied_ts"]) == (record["created_ts"], record["applied_ts"])


def test_segments():
    proves("CCS-4.3-05", "CCS-4.3-09", "CCS-8-08")
    for restart in (SERVER.crash, SERVER.restart):
        restart()
        api().namespace()
    a = api()
    keys = list(a.keys("catalog-recovery-segments/"))
    epochs = [int(re.search(r"segment_(\d{20})\.json\.zst", key)[1]) for key in keys]
    assert epochs == list(range(1, len(epochs) + 1))  # dense, none used twice, over restarts
    commands = []
    for key, epoch in zip(keys, epochs):
        assert a.object(key)[:4] == b"\x28\xb5\x2f\xfd"  # zstd's magic
        out = SERVER.sfctl("object", "cat", key)
        segment = json.loads(out.stdout)
        assert int(segment["recovery_segment_epoch"]) == epoch
        stamps = [int(entry["applied_ts"]) for entry in segment.get("entries", [])]
        if stamps:
            low, high = int(segment["min_applied_ts"]), int(segment["max_applied_ts"])
            assert all(low <= stamp <= high for stamp in stamps)
        commands += [entry["command_identity"] for entry in segment.get("entries", [])]
    assert set(commands) == {record["command_identity"] for record in records(a).values()}


def test_revisions():
    proves("CCS-8-07")
    a = api()
    ns = WORK.spaces[0]
    base = f"catalog/{h(str(ns.namespace_id))}/{ns.namespace_id}/"
    SERVER.crash()
    a = api()
    a.catalog.PutNamespaceMetadata(put_namespace(ns.namespace_name, encryption=None, options={"last": "1"}))
    revisions = sorted(int(re.search(r"_v(\d+)\.json", key)[1]) for key in a.keys(base + "namespace_descriptor_v"))
    assert revisions == list(range(1, 13))
    stamps = [int(a.json_object(f"{base}namespace_descriptor_v{revision}.json")["updated_at_unix_ms"]) for revision in revisions]
    assert stamps == sorted(stamps)


def test_statistics():
    proves("CCS-5.8-07", "CCS-5.8-10", "CCS-5.8-11", "CCS-5.8-12", "CCS-5.8-15")
    a = api()
    ref = a.collection(WORK.spaces[3].namespace_id).collection
    base = f"catalog/{h(str(ref.namespace_id))}/{ref.namespace_id}/{ref.collection_id}/optimizer_statistics_"
    keep = {}
    for version in (1, 2, 3):
        a.schema(ref, version, f"t{version}")
        before = set(a.keys(base))
        if version > 1:  # active, not ready: the head stays
            head = a.json_object(base + "head.json")
            assert head["latest_applied_schema_generation_token"] == f"t{version - 1}"
        a.signal(ref, version, f"t{version}")
        fresh_keys = set(a.keys(base)) - before - {base + "head.json"}
        key, = fresh_keys
        snapshot = a.json_object(key)
        assert (snapshot["applied_schema_version"], snapshot["applied_schema_generation_token"]) == (str(version), f"t{version}")
        head = a.json_object(base + "head.json")
        stored, = sql("SELECT * FROM collection_statistics_heads WHERE collection_id = ?", ref.collection_id - BIAS)
        state = admission(a, ref).state
        assert head["latest_applied_schema_generation_token"] == stored["latest_applied_schema_generation_token"] == state.ready_generation_token
        assert int(head["latest_applied_schema_version"]) == u64(stored["latest_applied_schema_version"]) == version
        assert int(head.get("latest_stats_commit_ts", 0)) == u64(stored["latest_stats_commit_ts"]) == 0
        assert int(head["latest_collected_at_unix_ms"]) == stored["latest_collected_at_unix_ms"]
        for old, body in keep.items():
            assert a.object(old) == body
        keep[key] = a.object(key)
    SERVER.crash()
    assert all(api().object(key) == body for key, body in keep.items())


def test_manifests():
    a = api()
    ref = WORK.rows_ref
    head = a.json_object(f"catalog/{h(str(ref.namespace_id))}/{ref.namespace_id}/{ref.collection_id}/manifest_committed_head.json")
    assert head["committed_manifest_version"] == "3" and head["previous_committed_manifest_version"] == "2"
    assert int(head["publisher_epoch"]) >= 1 and head["manifest_checksum_or_etag"] and int(head["updated_at_unix_ms"]) > 0
    base = f"manifests/{h(str(ref.namespace_id))}/{ref.namespace_id}/{ref.collection_id}/"
    versions = {key: a.json_object(key) for key in a.keys(base)}
    assert set(versions) == {f"{base}manifest_v{version:020}.json" for version in (1, 2, 3)}
    safe = [int(versions[key]["safe_ts"]) for key in sorted(versions) if "safe_ts" in versions[key]]
    assert safe == sorted(safe) and safe and safe[-1] == int(head["safe_ts"])


# ---- projection ---------------------------------------------------------------------------------------

def test_rows_of_the_projection():
    proves("CCS-5.2-03", "CCS-5.2-05", "CCS-5.3-04", "CCS-5.5-04", "CCS-5.5-07", "CCS-4.4-12", "CCS-5.6-10", "CCS-5.1-22", "CCS-5.1-09",
           "CCS-3.2-09", "CCS-5.3-02")
    a = caught_up(api())
    for space in WORK.spaces:
        got = get_namespace(a, namespace_id=space.namespace_id)
        stored, = sql("SELECT * FROM namespaces WHERE namespace_id = ?", space.namespace_id - BIAS)
        assert stored["namespace_name"] == got.namespace_name and stored["lifecycle_state"] == "ACTIVE"
        assert (stored["created_at_unix_ms"], stored["updated_at_unix_ms"]) == (got.created_at_unix_ms, got.updated_at_unix_ms)
        assert (json.loads(stored["options_json"]) if stored["options_json"] else {}).get("entries", {}) == dict(got.options.entries)
        assert json.loads(stored["encryption_json"]) == {"provider_managed": {}} and got.encryption.HasField("provider_managed")
        # Sums over the children: three documents of two bytes in one of them; nobody reported a backlog of any child.
        rows = {"approx_row_count": "3", "approx_logical_bytes": "6"} if space.namespace_id == WORK.rows_ref.namespace_id else {}
        assert json.loads(stored["approx_stats_json"]) == rows, stored
        assert (got.approx_stats.approx_row_count, got.approx_stats.approx_logical_bytes) == ((3, 6) if rows else (0, 0))
        state = "updating" if list_collections(a, space.namespace_id).collections else "up_to_date"
        assert json.loads(stored["index_json"]) == {state: {}} and got.index.WhichOneof("state") == state, stored
    for name, ref in WORK.refs:
        got = get_collection(a, collection=ref)
        stored, = sql("SELECT * FROM collections WHERE collection_id = ?", ref.collection_id - BIAS)
        assert stored["collection_name"] == name == got.collection_name and u64(stored["namespace_id"]) == ref.namespace_id
        assert (stored["created_at_unix_ms"], stored["updated_at_unix_ms"]) == (got.created_at_unix_ms, got.updated_at_unix_ms)
        assert (json.loads(stored["options_json"]) if stored["options_json"] else {}).get("entries", {}) == dict(got.options.entries)
        assert json.loads(stored["encryption_json"]) == {"provider_managed": {}}
        assert json.loads(stored["approx_stats_json"]) == {} and got.HasField("approx_stats")  # nothing is committed
        assert stored["index_json"] is None and list(got.completeness.publishing.missing_fields) == ["index"]
        assert (u64(stored["committed_manifest_version"]), u64(stored["manifest_head_version"]), stored["expected_previous_head"],
                u64(stored["manifest_head_last_update_epoch"]), stored["manifest_head_reconciler_status"]) == (0, 0, -1, 0, "IDLE")
    schema = get_schema(a, WORK.schema_ref)
    collection, = sql("SELECT * FROM collections WHERE collection_id = ?", WORK.schema_ref.collection_id - BIAS)
    generation, = sql("SELECT * FROM schema_generations WHERE collection_id = ? AND schema_version = ?",
                      WORK.schema_ref.collection_id - BIAS, schema.applied_schema_version - BIAS)
    assert u64(collection["active_schema_version"]) == u64(generation["schema_version"]) == schema.applied_schema_version == len(TOKENS)
    assert generation["schema_generation_token"] == schema.applied_schema_generation_token == TOKENS[-1]
    assert u64(generation["applied_commit_ts"]) == schema.applied_commit_ts
    assert generation["active_schema_update_policy"] == schema.active_schema_update_policy
    assert generation["effective_max_result_window"] == schema.effective_max_result_window == 10000
    assert collection["collection_truth_mode"] == generation["collection_truth_mode"] == sf.COLLECTION_TRUTH_MODE_SEARCH_FABRIC
    assert u64(generation["ddl_commit_ts"]) == len(TOKENS) - 1
    assert generation["sync_state"].lower() == get_sync(a, WORK.schema_ref).state.WhichOneof("state")
    written = records(a)
    index = {one["command_identity"]: one for one in sql("SELECT * FROM catalog_replay_index")}
    assert set(index) == {record["command_identity"] for record in written.values()}
    for one in index.values():
        record = written[one["command_object_key"]]
        assert record["command_identity"] == one["command_identity"] and one["idempotency_key"] == record.get("idempotency_key")
        assert json.loads(one["original_outcome_json"])["payload_fingerprint"] == one["payload_fingerprint"]
        for name in ("command_identity", "transport_lookup_key", "payload_fingerprint"):
            assert len(one[name]) == 64
        assert one["authenticated_client_identity_hash"] == record.get("authenticated_client_identity_hash")
    # What is too long reaches neither store nor projection.
    too_long = "\U0001F601" * 129
    refused("SF_BAD_REQUEST", lambda: a.catalog.PutNamespaceMetadata(put_namespace(too_long)))
    assert not sql("SELECT 1 FROM namespaces WHERE namespace_name LIKE ?", "\U0001F601%")
    assert not [key for key in a.keys("catalog-allocator/") if "\U0001F601" in key]
    # A row is there at the answer, not later.
    for _ in range(20):
        request = put_namespace(fresh())
        answer = a.catalog.PutNamespaceMetadata(request)
        assert sql("SELECT 1 FROM namespaces WHERE namespace_id = ?", answer.descriptor.namespace_id - BIAS)
        assert sql("SELECT 1 FROM catalog_replay_index WHERE idempotency_key = ?", request.meta.idempotency_key)


def test_constraints():
    proves("CCS-2.2-09", "CCS-5.1-07", "CCS-5.2-02", "CCS-5.2-07", "CCS-5.3-03", "CCS-5.5-02", "CCS-5.4-06", "CCS-5.8-04", "CCS-5.8-05")
    copy = sqlite3.connect(":memory:")
    with projection() as connection:
        connection.backup(copy)

    def fails(statement, *values):
        try:
            copy.execute(statement, values)
        except sqlite3.IntegrityError:
            return
        raise AssertionError(f"taken: {statement}")

    fails("UPDATE namespaces SET lifecycle_state = 'OTHER'")
    fails("UPDATE collections SET lifecycle_state = 'QUIESCING'")
    fails("UPDATE collections SET manifest_head_reconciler_status = 'OTHER'")
    fails("UPDATE schema_generations SET sync_state = 'OTHER'")
    fails("UPDATE namespaces SET namespace_name = 'same'")
    fails("UPDATE collections SET namespace_id = 1, collection_name = 'same'")
    fails("UPDATE catalog_replay_index SET transport_lookup_key = 'same'")
    fails("UPDATE catalog_replay_index SET business_lookup_key = 'same'")

    def columns(table):
        found = copy.execute(f"PRAGMA table_info({table})").fetchall()
        return [one[1] for one in found], [one[1] for one in sorted(found, key=lambda one: one[5]) if one[5]]

    expected = {
        "namespace_name_epochs": (["namespace_name", "last_allocated_epoch"], ["namespace_name"]),
        "collection_name_epochs": (["namespace_id", "collection_name", "last_allocated_epoch"], ["namespace_id", "collection_name"]),
        "collection_statistics_heads": (["namespace_id", "collection_id", "latest_applied_schema_version",
                                         "latest_applied_schema_generation_token", "latest_stats_commit_ts",
                                         "latest_collected_at_unix_ms"], ["namespace_id", "collection_id"]),
        "collection_statistics_snapshots": (["namespace_id", "collection_id", "stats_commit_ts", "applied_schema_version",
                                             "applied_schema_generation_token", "collected_at_unix_ms", "snapshot_json"],
                                            ["namespace_id", "collection_id", "applied_schema_generation_token", "stats_commit_ts"])}
    for table, (names, key) in expected.items():
        assert columns(table) == (names, key), (table, columns(table))
    tables = {name for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"schema_migrations", "catalog_lane_shards", "namespaces", "collections", "namespace_name_epochs",
                      "collection_name_epochs", "schema_generations", "catalog_replay_index", "collection_statistics_heads",
                      "collection_statistics_snapshots", "collection_tombstones", "collection_lifecycle_windows",
                      "namespace_quota_state", "namespace_quota_leases", "catalog_projector_work", "collection_index_backlogs",
                      "collection_observations", "lifecycle_transition_claims", "retired_statistics_snapshots",
                      "catalog_adoptions"}
    everything = [one for (table,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
                  for one in columns(table)[0]]
    assert not [one for one in everything if "complete" in one]
    a = api()
    assert not [key for key in a.keys("catalog/") if b"completeness" in a.object(key)]
    # ddl_commit_ts that a request leaves out is 0.
    ref = a.ready_collection()
    stored, = sql("SELECT ddl_commit_ts FROM schema_generations WHERE collection_id = ?", ref.collection_id - BIAS)
    assert u64(stored["ddl_commit_ts"]) == 0


def test_completeness_is_derived():
    proves("CCS-5.2-06", "CCS-5.2-08", "CCS-5.2-09", "CCS-5.2-11", "CCS-5.2-14", "CCS-5.2-15", "CCS-5.2-16", "CCS-5.3-05", "CCS-5.3-06",
           "CCS-5.7-16", "CCS-5.7-18")
    a = api()
    ns = a.namespace()
    ref = a.collection(ns.namespace_id).collection
    caught_up(a)  # nothing is due that would overwrite what is planted
    stats, index = '{"approx_row_count":"5","approx_logical_bytes":"70"}', '{"updating":{"unindexed_bytes":"9"}}'

    def put(table, where, has_stats, has_index):
        with projection(write=True) as connection, connection:
            connection.execute(f"UPDATE {table} SET approx_stats_json = ?, index_json = ? WHERE {where}",
                               (stats if has_stats else None, index if has_index else None))

    for has_stats in (True, False):
        for has_index in (True, False):
            missing = [name for name, there in (("approx_stats", has_stats), ("index", has_index)) if not there]
            put("namespaces", f"namespace_id = {ns.namespace_id - BIAS}", has_stats, has_index)
            put("collections", f"collection_id = {ref.collection_id - BIAS}", has_stats, has_index)
            a.catalog_operations.RunCatalogJob(catalog_operations.RunCatalogJobRequest(name="forget-facts"))
            listed = a.catalog.ListCollections(sf.ListCollectionsRequest(meta=meta(), namespace_id=ns.namespace_id)).collections
            for got in (get_namespace(a, namespace_id=ns.namespace_id), get_namespace(a, namespace_name=ns.namespace_name),
                        get_collection(a, collection=ref), *listed):
                assert got.HasField("approx_stats") == has_stats and got.HasField("index") == has_index
                if missing:
                    assert list(got.completeness.publishing.missing_fields) == missing
                else:
                    assert got.completeness.WhichOneof("state") == "ready"
                    assert (got.approx_stats.approx_row_count, got.index.updating.unindexed_bytes) == (5, 9)


run(globals())
