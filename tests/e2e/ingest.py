"""StreamMutations from outside: opening, acknowledgements, receipts, duplicates, marks, limits, and the rows that follow."""
import concurrent.futures
import hashlib
import random
import time

import grpc

from harness import (ASYNC, DDL, DELETE, DURABLE, ES, INDEX, INGEST_ACK, MANAGED, MAX_U64, PATCH, RECEIPT,
                     UPSERT, VISIBLE, Api, Stream, batch, check_error, coordinator, durable, error_of, fresh, ids, ids_digest,
                     meta, parse_rows, proves, row, run, server, sf, sign, state_key, unwrap)

SERVER = server()
SERVER.start()
REQUIRED = sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED


class Place:
    """A collection with its names."""

    def __init__(self, a, **more):
        self.namespace, self.name = fresh("ns"), fresh("c")
        self.ref = a.ready_collection(a.namespace(self.namespace).namespace_id, self.name, **more)

    def rows(self):
        out = SERVER.sfctl("rows", f"{self.namespace}/{self.name}", "--raw")
        assert out.returncode == 0, out.stderr
        return parse_rows(out.stdout)


def place(a, **more):
    """A collection whose rows bring their ids: no receipt is needed."""
    return Place(a, policy=REQUIRED, **more)


def api():
    return Api(SERVER)


def now_ts():
    return int(time.time() * 1000) << 18


def ended(call, code, sf_code, **typed):
    """The stream must end with this error."""
    try:
        while True:
            next(call)
    except grpc.RpcError as error:
        assert error.code() == code, error
        return check_error(error_of(error), sf_code, **typed)
    except StopIteration:
        raise AssertionError(f"the stream ended with OK instead of {sf_code}") from None


# ---- opening ------------------------------------------------------------------------------------------

def test_opening():
    a = api()
    stream = Stream(a)
    opened = stream.opened
    # The limits of the contract.
    assert (opened.max_batch_entries, opened.max_batch_bytes, opened.max_row_body_bytes) == (65536, 8 << 20, 4 << 20)
    assert opened.duplicate_window_ms == 900_000 and opened.max_inflight_batches > 0
    assert opened.max_inflight_bytes >= opened.max_batch_bytes
    assert stream.close() == []
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    ref = place(a).ref
    for first in (sf.StreamMutationsRequest(), sf.StreamMutationsRequest(batch=batch(ref, row(1, b"{}")))):
        stream = Stream(a, open_it=False)
        stream.send(first)
        ended(stream.call, invalid, "SF_INVALID_ARGUMENT", branch="bad_request")
    stream = Stream(a)
    stream.send_open(meta("", ES))
    ended(stream.call, invalid, "SF_INVALID_ARGUMENT", branch="bad_request")
    for bad, code in ((None, "SF_BAD_REQUEST"), (meta("", ES, client=""), "SF_BAD_REQUEST"),
                      (meta("", ES, client="c" * 257), "SF_BAD_REQUEST"), (meta("", 0), "SF_INVALID_ARGUMENT"),
                      (meta("", 99), "SF_INVALID_ARGUMENT"), (meta("", ES, correlation_id=""), "SF_BAD_REQUEST"),
                      (meta("", ES, principal_subject=""), "SF_BAD_REQUEST"),
                      (meta("", ES, principal_subject="p" * 257), "SF_BAD_REQUEST")):
        stream = Stream(a, open_it=False)
        stream.send_open(bad)
        ended(stream.call, invalid, code, branch="bad_request")


def test_half_close_answers_all():
    a = api()
    at = place(a)
    stream = Stream(a)
    sent = [batch(at.ref, row(number, b'{"n":%d}' % number), durability=random.choice([INGEST_ACK, DURABLE]),
                  visibility=random.choice([ASYNC, VISIBLE])) for number in range(100)]
    for one in sent:
        stream.send(one)
    acks = stream.close()
    assert {ack.batch_id for ack in acks} == {one.batch_id for one in sent} and len(acks) == 100
    assert not [ack for ack in acks if ack.HasField("error")]


# ---- acknowledgements ---------------------------------------------------------------------------------

def test_gates():
    a = api()
    at = place(a)
    stream = Stream(a)
    gates = {(INGEST_ACK, ASYNC): sf.ACK_GATE_ADMITTED_DISPATCHED, (DURABLE, ASYNC): sf.ACK_GATE_DURABLE,
             (INGEST_ACK, VISIBLE): sf.ACK_GATE_VISIBLE, (DURABLE, VISIBLE): sf.ACK_GATE_VISIBLE}
    last = 0
    for number, ((durability, visibility), gate) in enumerate(gates.items()):
        doc_id = 10 * number
        ack = stream.put(batch(at.ref, row(doc_id, b'{"a":1}'), row(doc_id + 1, b'{"a":2}'), durability=durability,
                               visibility=visibility))
        assert ack.gate == gate and ack.row_count == 2 and not ack.duplicate
        one, = ack.ranges
        assert (one.first_entry_index, one.last_entry_index, one.row_count) == (0, 1, 2)
        assert one.commit_ts > last and abs((one.commit_ts >> 18) - time.time() * 1000) < 60_000
        last = one.commit_ts
        assert abs((ack.first_admitted_ts >> 18) - time.time() * 1000) < 60_000
        if visibility == VISIBLE:
            assert ack.committed_manifest_version > 0
            rows = at.rows()
            assert rows[doc_id] == (one.commit_ts, b'{"a":1}') and rows[doc_id + 1] == (one.commit_ts, b'{"a":2}')
            assert ack.safe_ts >= one.commit_ts  # visible means durable everywhere, and nothing is open
        else:
            assert ack.committed_manifest_version == 0
        if gate != sf.ACK_GATE_ADMITTED_DISPATCHED:
            assert ack.watermarks.applied_ts_metadata_search >= one.commit_ts
    proves("COORD-4.3-07", "COORD-4.2-06")
    ack = stream.put(batch(at.ref, *[row(1000 + n, b"{}") for n in range(500)], visibility=VISIBLE))
    one, = ack.ranges  # no mark, no split: one timestamp
    assert one.row_count == 500 and {ts for doc_id, (ts, _) in at.rows().items() if doc_id >= 1000} == {one.commit_ts}
    stream.close()


def test_timestamps_grow():
    proves("COORD-4.1-04")
    a = api()
    at = place(a)
    apis = [api() for _ in range(8)]
    streams = [Stream(apis[n % 8], client=f"c{n}") for n in range(64)]

    def work(number):
        stream = streams[number]
        own = []
        for turn in range(10):
            ack = stream.put(batch(at.ref, *[row(number * 1000 + turn * 3 + k, b"{}") for k in range(3)], stream=f"s{number}",
                                   durability=INGEST_ACK))
            own += [one.commit_ts for one in ack.ranges]
            assert len(ack.ranges) == 1 and ack.ranges[0].row_count == 3
        assert own == sorted(set(own))
        return own

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        everything = [ts for own in pool.map(work, range(64)) for ts in own]
    assert len(everything) == len(set(everything)) == 640
    for stream in streams:
        stream.close()


def test_modalities():
    proves("COORD-5.1-04", "COORD-5.1-03")
    a = api()
    fields = [sf.FieldDefinition(name="title", type=sf.FIELD_TYPE_TEXT, modalities=[sf.MODALITY_METADATA_SEARCH]),
              sf.FieldDefinition(name="v", type=sf.FIELD_TYPE_DENSE_VECTOR, modalities=[sf.MODALITY_SEMANTIC_SEARCH],
                                 vector=sf.VectorSettings(dimensions=2))]
    both, one, aux = place(a, fields=fields), place(a), place(a, fields=[sf.FieldDefinition(
        name="k", type=sf.FIELD_TYPE_KEYWORD, modalities=[sf.MODALITY_METADATA_AUX])])
    stream = Stream(a)
    ack = stream.put(batch(both.ref, row(1, b'{"title":"no vector"}'), visibility=VISIBLE))
    marks = ack.watermarks
    assert marks.HasField("applied_ts_metadata_search") and marks.HasField("applied_ts_semantic_search")
    assert not marks.HasField("applied_ts_metadata_aux")
    assert ack.safe_ts == min(marks.applied_ts_metadata_search, marks.applied_ts_semantic_search) >= ack.ranges[0].commit_ts
    ack = stream.put(batch(both.ref, row(2, b'{"v":[0.5,1]}'), visibility=VISIBLE))
    assert ack.safe_ts >= ack.ranges[0].commit_ts
    ack = stream.put(batch(one.ref, row(1, b"{}"), visibility=VISIBLE))
    assert not ack.watermarks.HasField("applied_ts_semantic_search") and ack.watermarks.HasField("applied_ts_metadata_search")
    ack = stream.put(batch(aux.ref, row(1, b'{"k":"x"}'), visibility=VISIBLE))
    assert ack.watermarks.HasField("applied_ts_metadata_aux") and ack.safe_ts >= ack.ranges[0].commit_ts
    for bad in (b'{"v":[1]}', b'{"v":[1,2,3]}', b'{"v":"x"}', b'{"v":[1,"2"]}'):
        stream.refused(batch(both.ref, row(3, bad)), "SF_BAD_REQUEST", "bad_request", field="entries.row.body", entry_index=0)
    assert {doc_id: body for doc_id, (_, body) in both.rows().items()} == {1: b'{"title":"no vector"}', 2: b'{"v":[0.5,1]}'}
    stream.close()


# ---- rows ---------------------------------------------------------------------------------------------

def test_rows_are_kept_byte_for_byte():
    a = api()
    at = place(a)
    bodies = [b"{}", b' { "a" : 1 } ', b'{"a":1.0e+5,"b":12345678901234567890123,"c":-0.0}', b'{"\\u0061":"\\ud83d\\ude00"}',
              '{"\u00e4":"\U0001F600","x":"\u200b"}'.encode(), b'{"a":{"b":[{},[],[[]]]}}', b'{"a":1,\n\t"b":2\r\n}',
              b'{"n":null,"t":true,"f":false}', b'{"' + b"k" * 70000 + b'":1}', b'{"t":"' + b"x" * (4 * 1024 * 1024 - 8) + b'"}']
    assert len(bodies[-1]) == 4 << 20
    ids_ = [0, 1, 2**32, 2**53 + 1, 2**63, MAX_U64, 5, 6, 7, 8]
    stream = Stream(a)
    stamps = {}
    for doc_id, body in zip(ids_, bodies):
        ack = stream.put(batch(at.ref, row(doc_id, body), visibility=VISIBLE))
        assert not ack.HasField("error"), ack.error
        stamps[doc_id] = ack.ranges[0].commit_ts
    want = {doc_id: (stamps[doc_id], body) for doc_id, body in zip(ids_, bodies)}
    assert at.rows() == want
    SERVER.crash()
    assert at.rows() == want
    stream = Stream(api())
    for bad in (b"", b"[]", b"1", b"null", b"{", b"{}{}", b'{"a":1,}', b"{'a':1}", b'{"a":01}', b'{"a":NaN}', b'{"a":"\xff"}',
                b'{"a":"\x01"}', b"\xef\xbb\xbf{}", b'{"a":tru}', b'{"a":' * 200 + b"1" + b"}" * 200):
        error = stream.refused(batch(at.ref, row(99, bad)), "SF_BAD_REQUEST", "bad_request", field="entries.row.body", entry_index=0)
        assert error.diagnostics["entry_index"] == "0"
    stream.refused(batch(at.ref, row(99, b'{"t":"' + b"x" * (4 * 1024 * 1024 - 7) + b'"}')), "SF_BAD_REQUEST", "bad_request",
                   violation="too_long", entry_index=0)
    assert 99 not in at.rows()


def test_newest_row_wins():
    a = api()
    at = place(a)
    stream = Stream(a)
    stream.put(batch(at.ref, row(1, b'{"v":1}', INDEX), row(2, b'{"v":1}', INDEX), row(3, b'{"v":1}', INDEX)))
    stream.put(batch(at.ref, row(1, b'{"v":2}', INDEX), row(2, op=DELETE), visibility=VISIBLE))
    assert {doc_id: body for doc_id, (_, body) in at.rows().items()} == {1: b'{"v":2}', 3: b'{"v":1}'}
    stream.put(batch(at.ref, row(2, b'{"v":3}', INDEX), row(3, op=DELETE), row(3, b'{"v":4}', INDEX), visibility=VISIBLE))
    assert {doc_id: body for doc_id, (_, body) in at.rows().items()} == {1: b'{"v":2}', 2: b'{"v":3}', 3: b'{"v":4}'}
    stream.refused(batch(at.ref, row(1, b"{}", DELETE)), "SF_BAD_REQUEST", "bad_request", violation="forbidden")
    stream.close()


# ---- refusals -----------------------------------------------------------------------------------------

def test_malformed_batches():
    proves("ALLOC-2.2-04", "ALLOC-2.2-08", "COORD-3-02")
    a = api()
    at = place(a)
    stream = Stream(a)

    def changed(change):
        one = batch(at.ref, row(1, b"{}"), row(2, b"{}"))
        change(one)
        return one

    def entry(index, change):
        return lambda one: change(one.entries[index])

    malformed = [
        ("collection", None, lambda b: b.ClearField("collection") or b.collection.SetInParent()),
        ("collection", None, lambda b: setattr(b.collection, "collection_id", 0)),
        ("durability", None, lambda b: setattr(b, "durability", 0)), ("durability", None, lambda b: setattr(b, "durability", 9)),
        ("visibility", None, lambda b: setattr(b, "visibility", 0)), ("visibility", None, lambda b: setattr(b, "visibility", 9)),
        ("entries", None, lambda b: b.ClearField("entries")), ("entries", 1, entry(1, lambda e: e.ClearField("row"))),
        ("entries.row.doc_id", 1, entry(1, lambda e: e.row.ClearField("doc_id"))),
        ("entries.row.doc_id", 0, entry(0, lambda e: e.row.doc_id.ClearField("u64"))),
        ("entries.row.op", 1, entry(1, lambda e: setattr(e.row, "op", 0))),
        ("entries.row.op", 1, entry(1, lambda e: setattr(e.row, "op", 6))),
        # Malformed wins: the batch id is too long as well.
        ("entries.row.op", 1, lambda b: (setattr(b, "batch_id", "b" * 129), setattr(b.entries[1].row, "op", 0)))]
    for name, index, change in malformed:
        error = stream.refused(changed(change), "SF_INVALID_ARGUMENT", "bad_request", field=name)
        assert error.context.bad_request.HasField("entry_index") == (index is not None), error
        assert index is None or error.context.bad_request.entry_index == index
    illegal = [
        ("batch_id", None, lambda b: setattr(b, "batch_id", "")), ("batch_id", None, lambda b: setattr(b, "batch_id", "b" * 129)),
        ("stream_identity", None, lambda b: setattr(b, "stream_identity", "")),
        ("stream_identity", None, lambda b: setattr(b, "stream_identity", "s" * 257)),
        ("schema_generation_token", None, lambda b: setattr(b, "schema_generation_token", "")),
        ("schema_generation_token", None, lambda b: setattr(b, "schema_generation_token", "t" * 65)),
        ("batch_fingerprint", None, lambda b: setattr(b, "batch_fingerprint", "F" * 64)),
        ("allocator_receipt", None, lambda b: setattr(b, "allocator_receipt", b"r" * 16385)),
        ("entries.row.commit_ts", 1, entry(1, lambda e: setattr(e.row, "commit_ts", 123))),  # both flows in one batch
        ("entries.row.commit_ts", 0, lambda b: [setattr(e.row, "commit_ts", 123) for e in b.entries]),  # a write gateway
        ("entries.row.source_partition", 0, entry(0, lambda e: setattr(e.row, "source_partition", 7))),
        ("entries.row.source_seq", 1, lambda b: [setattr(e.row, "source_seq", 5) for e in b.entries])]
    for name, index, change in illegal:
        error = stream.refused(changed(change), "SF_BAD_REQUEST", "bad_request", field=name)
        assert index is None or error.context.bad_request.entry_index == index
    # Nothing of it was admitted, and the stream lives.
    assert stream.put(changed(lambda b: setattr(b, "visibility", VISIBLE))).gate == sf.ACK_GATE_VISIBLE
    assert set(at.rows()) == {1, 2}
    stream.close()


def test_limits():
    a = api()
    at = place(a)
    stream = Stream(a)
    most = batch(at.ref, *[row(n, b"{}") for n in range(65536)], visibility=VISIBLE)
    ack = stream.put(most)
    assert ack.row_count == 65536 and not ack.HasField("error")
    stream.refused(batch(at.ref, *[row(n, b"{}") for n in range(65537)]), "SF_BAD_REQUEST", "bad_request", field="entries",
                   violation="too_long")
    assert len(at.rows()) == 65536
    half = b'{"t":"' + b"x" * ((4 << 20) - 8) + b'"}'
    # Two of the largest rows no longer fit one message of 8 MiB with what is around them: the call ends, typed.
    stream.send(batch(at.ref, row(1, half), row(2, half)))
    error = ended(stream.call, grpc.StatusCode.RESOURCE_EXHAUSTED, "SF_TOO_MANY_OPERATIONS")
    assert error.diagnostics["configured_limit"] == str(8 << 20)
    stream = Stream(a)
    ack = stream.put(batch(at.ref, row(1, half), row(2, b'{"t":"' + b"x" * ((4 << 20) - 1000) + b'"}')))
    assert not ack.HasField("error"), ack.error
    stream.close()


def test_who_writes():
    a = api()
    ours = place(a)
    ns = a.namespace().namespace_id
    external = a.catalog.PutCollectionMetadata(sf.PutCollectionMetadataRequest(
        meta=meta(fresh(), DDL), encryption=MANAGED,
        name_binding=sf.CollectionNameBinding(namespace_id=ns, collection_name=fresh()))).descriptor.collection
    a.schema(external, 1, "t1", DDL, mode=sf.COLLECTION_TRUTH_MODE_EXTERNAL, policy=REQUIRED)
    gateways = {sf.CLIENT_KIND_ES_WRITE_GATEWAY, sf.CLIENT_KIND_TP_WRITE_GATEWAY}
    for kind in sf.ClientKind.values():
        if kind == 0:
            continue
        stream = Stream(a, kind)
        doc = row(kind, b"{}")
        if kind in gateways or kind == sf.CLIENT_KIND_TIDB_WRITE_GATEWAY:
            assert not stream.put(batch(ours.ref, doc)).HasField("error")
        elif kind == sf.CLIENT_KIND_TIDB_CDC_ADAPTER:
            stream.refused(batch(ours.ref, doc), "SF_OWNERSHIP_CONFLICT")
        else:
            stream.refused(batch(ours.ref, doc), "SF_FORBIDDEN", "", {})
        if kind in gateways:
            stream.refused(batch(external, doc), "SF_OWNERSHIP_CONFLICT")
        stream.close()


def test_unknown_collections():
    a = api()
    at = place(a)
    bare = a.collection(at.ref.namespace_id).collection
    stream = Stream(a)
    gone = sf.CollectionRef(namespace_id=at.ref.namespace_id, collection_id=bare.collection_id + 1)
    stream.refused(batch(gone, row(1, b"{}")), "SF_RESOURCE_NOT_FOUND", "", {})
    stream.refused(batch(bare, row(1, b"{}")), "SF_CATALOG_UNAVAILABLE", "catalog.catalog_unavailable.schema_bootstrap",
                   {"catalog_unavailable_reason": "schema_bootstrap", "schema_bootstrap_state": "no_active_schema_generation"})
    a.schema(bare, 1, "t1", policy=REQUIRED)
    assert not stream.put(batch(bare, row(1, b"{}"))).HasField("error")
    stream.close()


def test_schema_token():
    proves("ALLOC-5.1-07")
    a = api()
    at = Place(a)
    answer = a.allocate(at.ref, None)
    stream = Stream(a)
    create = row(0, b"{}")

    def mismatch(one, active):
        stream.refused(one, "SF_VERSION_CONFLICT", "ingest", active_schema_generation_token=active, batch_id=one.batch_id,
                       reason=sf.INGEST_REJECTION_REASON_SCHEMA_GENERATION_MISMATCH)

    mismatch(batch(at.ref, create, token="t0", receipt=answer.allocator_receipt), "t1")
    token = "\U0001F600" * 64
    a.schema(at.ref, 2, token)
    # The schema moved between allocation and batch: allocate again under a new key, the old id stays burned.
    mismatch(batch(at.ref, create, receipt=answer.allocator_receipt, batch_id="\U0001F600" * 128), token)
    # The receipt is of the old generation.
    stream.refused(batch(at.ref, create, token=token, receipt=answer.allocator_receipt), "SF_BAD_REQUEST")
    again = a.allocate(at.ref, None)
    assert ids(again) == [1] and again.schema_generation_token == token
    assert not stream.put(batch(at.ref, row(1, b"{}"), token=token, receipt=again.allocator_receipt)).HasField("error")
    stream.close()


def test_repeat_outlives_its_generation():
    """What was acknowledged once is answered the same after the schema has moved on."""
    a = api()
    at, issued = place(a), Place(a)
    answer = a.allocate(issued.ref, None)
    stream = Stream(a)
    sent = [batch(at.ref, row(1, b'{"a":1}'), row(2, b'{"a":2}')),
            batch(issued.ref, row(0, b'{"a":1}'), receipt=answer.allocator_receipt)]
    first = [stream.put(one) for one in sent]
    assert not any(ack.HasField("error") or ack.duplicate for ack in first)
    a.schema(at.ref, 2, "t2", policy=REQUIRED)
    a.schema(issued.ref, 2, "t2")

    def same(stream):
        for one, ack in zip(sent, first):
            again = stream.put(one)
            assert again.duplicate and not again.HasField("error"), again
            assert list(again.ranges) == list(ack.ranges) and again.row_count == ack.row_count and again.gate == ack.gate

    same(stream)
    for ref, doc in ((at.ref, row(3, b"{}")), (issued.ref, row(0, b"{}", INDEX))):
        stream.refused(batch(ref, doc), "SF_VERSION_CONFLICT", "ingest", active_schema_generation_token="t2",
                       reason=sf.INGEST_REJECTION_REASON_SCHEMA_GENERATION_MISMATCH)
    other = sf.MutationBatch.FromString(sent[0].SerializeToString())
    other.entries[0].row.body = b'{"a":3}'
    stream.refused(other, "SF_IDEMPOTENCY_CONFLICT", "ingest", reason=sf.INGEST_REJECTION_REASON_BATCH_ID_REUSED)
    SERVER.crash()
    stream = Stream(api())
    same(stream)
    assert at.rows() == {
        doc_id: (first[0].ranges[0].commit_ts, b'{"a":%d}' % doc_id) for doc_id in (1, 2)}
    stream.close()


# ---- receipts -----------------------------------------------------------------------------------------

def test_receipts():
    proves("ALLOC-6.3-04", "ALLOC-6.3-05", "ALLOC-6.3-06", "ALLOC-6.3-07", "ALLOC-6.3-08", "ALLOC-2.2-02", "ALLOC-6.5-02")
    a = api()
    at, other = Place(a), Place(a)
    answer = a.allocate(at.ref, None, 5, None)
    assert ids(answer) == [0, 5, 6]
    good = answer.allocator_receipt
    rows = [row(doc_id, b"{}") for doc_id in ids(answer)]
    stream = Stream(a)
    invalid = dict(branch="ingest", reason=sf.INGEST_REJECTION_REASON_RECEIPT_INVALID)

    def refuse(one, index=None):
        error = stream.refused(one, "SF_BAD_REQUEST", **invalid, batch_id=one.batch_id)
        assert error.diagnostics["ingest_rejection_reason"] == "receipt_invalid"

    stream.refused(batch(at.ref, *rows), "SF_BAD_REQUEST", "ingest", reason=sf.INGEST_REJECTION_REASON_RECEIPT_MISSING,
                   entry_index=0)
    refuse(batch(other.ref, *rows, receipt=good))  # another collection
    refuse(batch(at.ref, rows[1], rows[0], rows[2], receipt=good))  # order
    refuse(batch(at.ref, rows[0], rows[1], receipt=good))  # one dropped
    refuse(batch(at.ref, *rows, row(7, b"{}"), receipt=good))  # one added
    refuse(batch(at.ref, rows[0], rows[1], row(7, b"{}"), receipt=good))  # one changed
    refuse(batch(at.ref, rows[0], rows[1], rows[1], receipt=good))
    for part in (rows[:1], rows[1:], rows[2:], rows[:1] + rows[2:]):  # split over batches
        refuse(batch(at.ref, *part, receipt=good))
    second = a.allocate(at.ref, None)
    for receipt in (good, second.allocator_receipt, good + second.allocator_receipt):  # two allocations in one batch
        refuse(batch(at.ref, *rows, row(ids(second)[0], b"{}"), receipt=receipt))
    theirs = Stream(a, client="another")  # another caller under the same identity
    ack = theirs.put(batch(at.ref, *rows, receipt=good))
    check_error(ack.error, "SF_BAD_REQUEST", **invalid)
    theirs.close()
    for op in (INDEX, UPSERT, PATCH, DELETE):  # a route that creates nothing
        body = b"" if op == DELETE else b"{}"
        refuse(batch(at.ref, *[row(doc_id, body, op) for doc_id in ids(answer)], receipt=good))
        refuse(batch(at.ref, *rows[:2], row(6, body, op), receipt=good))
    # Claims that the key signed and that do not fit the batch.
    _, _, issued, _, packed = unwrap(good)

    def forged(**change):
        claims = durable.AllocatorReceiptClaims.FromString(packed)
        for name, value in change.items():
            if name == "collection":
                claims.collection.CopyFrom(value)
            else:
                setattr(claims, name, value)
        return sign(SERVER, RECEIPT, claims.SerializeToString(), issued)

    assert forged() == good
    for change in ({"authenticated_client_identity_hash": hashlib.sha256(b"someone else").hexdigest()},
                   {"collection": other.ref}, {"route_intent": 0}, {"route_intent": 2}, {"item_count": 2}, {"item_count": 4},
                   {"realized_ids_sha256": ids_digest([(0, True), (5, False), (7, True)])},
                   {"realized_ids_sha256": ids_digest([(0, True), (5, True), (6, True)])}, {"realized_ids_sha256": b""},
                   {"schema_generation_token": "t2"}):
        refuse(batch(at.ref, *rows, receipt=forged(**change)))
    refuse(batch(at.ref, *rows, receipt=sign(SERVER, 1, packed, issued)))  # of another token family
    refuse(batch(at.ref, *rows, receipt=sign(SERVER, RECEIPT, packed, issued, key=("none", b"k" * 32, "signing"))))
    assert at.rows() == {}
    # Unchanged it verifies, and it is for one batch of all its rows.
    ack = stream.put(batch(at.ref, *rows, receipt=good, visibility=VISIBLE))
    assert not ack.HasField("error") and set(at.rows()) == {0, 5, 6}
    # Its list may come again under another batch id: the same documents, no more of them.
    again = stream.put(batch(at.ref, *[row(doc_id, b'{"v":2}') for doc_id in ids(answer)], receipt=good, visibility=VISIBLE))
    assert not again.HasField("error") and not again.duplicate
    assert {doc_id: body for doc_id, (_, body) in at.rows().items()} == {doc_id: b'{"v":2}' for doc_id in (0, 5, 6)}
    stream.close()


def test_flipped_receipts():
    proves("ALLOC-5.1-08")
    a = api()
    at = Place(a)
    answer = a.allocate(at.ref, None)
    good = answer.allocator_receipt
    stream = Stream(a)
    count = 0
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        stream.send(batch(at.ref, row(0, b"{}"), receipt=bytes(bad)))
        count += 1
    for cut in range(1, len(good)):
        stream.send(batch(at.ref, row(0, b"{}"), receipt=good[:cut]))
        count += 1
    for _ in range(count):
        ack = stream.receive().ack
        check_error(ack.error, "SF_BAD_REQUEST", "ingest", reason=sf.INGEST_REJECTION_REASON_RECEIPT_INVALID)
    assert not stream.put(batch(at.ref, row(0, b"{}"), receipt=good)).HasField("error")
    stream.close()


def test_ingest_allocates_nothing():
    proves("ALLOC-6.5-01", "ALLOC-5.3-12", "ALLOC-2.2-03")
    a = api()
    at = Place(a)
    answer = a.allocate(at.ref, None, None)
    before = a.object(state_key(at.ref))
    calls = 'searchfabric_rpc_server_handled_total{method="/searchfabric.v1.IdAllocatorService/AllocateIds",code="OK"}'
    served = SERVER.metrics()[calls]
    stream = Stream(a)
    stream.refused(batch(at.ref, row(None, b"{}")), "SF_INVALID_ARGUMENT", "bad_request", field="entries.row.doc_id")
    stream.refused(batch(at.ref, row(0, b"{}"), row(1, b"nonsense"), receipt=answer.allocator_receipt), "SF_BAD_REQUEST")
    stream.refused(batch(at.ref, row(50, b"{}")), "SF_BAD_REQUEST", "ingest")
    assert not stream.put(batch(at.ref, row(50, b"{}", INDEX))).HasField("error")
    assert a.object(state_key(at.ref)) == before and SERVER.metrics()[calls] == served
    assert ids(a.allocate(at.ref, None)) == [2]  # the refused batch gave its ids back to nobody
    stream.close()


def test_one_allocation_applied_once():
    proves("ALLOC-6.3-01")
    a = api()
    at = Place(a)
    key, batch_id = fresh(), fresh()
    stream = Stream(a)
    acks = []
    for _ in range(2):
        answer = a.allocate(at.ref, None, 4, key=key)
        acks.append(stream.put(batch(at.ref, row(0, b'{"a":0}'), row(4, b'{"a":4}'), receipt=answer.allocator_receipt,
                                     batch_id=batch_id, visibility=VISIBLE)))
    assert not acks[0].duplicate and acks[1].duplicate
    assert [one.commit_ts for one in acks[0].ranges] == [one.commit_ts for one in acks[1].ranges]
    assert len(at.rows()) == 2 and ids(a.allocate(at.ref, None)) == [5]
    stream.close()


# ---- duplicates ---------------------------------------------------------------------------------------

def test_duplicates():
    proves("COORD-7.2-05")
    a = api()
    at = place(a)
    sent = [batch(at.ref, *[row(10 * n + k, b'{"n":%d}' % n) for k in range(3)], visibility=[ASYNC, VISIBLE][n % 2])
            for n in range(10)]
    stream = Stream(a)
    first = [stream.put(one) for one in sent]
    stream.close()

    def same(why):
        again = Stream(api())
        for one, ack in zip(sent, first):
            repeated = again.put(one)
            assert repeated.duplicate and not repeated.HasField("error"), (why, repeated)
            assert list(repeated.ranges) == list(ack.ranges) and repeated.row_count == 3, why
            with_ts = sf.MutationBatch.FromString(one.SerializeToString())
            with_ts.first_admitted_ts = ack.first_admitted_ts
            assert again.put(with_ts).duplicate
        again.close()
        rows = at.rows()
        assert len(rows) == 30 and all(rows[10 * n + k][0] == first[n].ranges[0].commit_ts for n in range(10) for k in range(3))

    same("reconnect")
    SERVER.crash()
    same("kill -9")
    SERVER.crash()
    same("kill -9 twice")
    SERVER.restart()
    same("restart")
    # The same identity with other content, or under another policy.
    stream = Stream(api())
    for change in (lambda b: setattr(b.entries[0].row.doc_id, "u64", 77), lambda b: b.entries.pop(),
                   lambda b: setattr(b.entries[0].row, "body", b'{"n": 0}')):
        one = sf.MutationBatch.FromString(sent[0].SerializeToString())
        change(one)
        stream.refused(one, "SF_IDEMPOTENCY_CONFLICT", "ingest", reason=sf.INGEST_REJECTION_REASON_BATCH_ID_REUSED,
                       batch_id=one.batch_id)
    # Another stream, or another collection, has batch ids of its own.
    other = sf.MutationBatch.FromString(sent[0].SerializeToString())
    other.stream_identity = "other"
    assert not stream.put(other).duplicate
    stream.close()


def test_fingerprint():
    a = api()
    at = place(a)
    stream = Stream(a)
    one = batch(at.ref, row(1, b"{}"))
    part = sf.MutationBatch(collection=one.collection, schema_generation_token=one.schema_generation_token, entries=one.entries)
    one.batch_fingerprint = hashlib.sha256(part.SerializeToString(deterministic=True)).hexdigest()
    assert not stream.put(one).HasField("error")
    wrong = batch(at.ref, row(1, b"{}"), batch_fingerprint="0" * 64)
    stream.refused(wrong, "SF_BAD_REQUEST", "bad_request", field="batch_fingerprint")
    stream.close()


def test_duplicate_window():
    a = api()
    at, issued = place(a), Place(a)
    stream = Stream(a)

    def expired(one):
        stream.refused(one, "SF_VERSION_CONFLICT", "ingest", reason=sf.INGEST_REJECTION_REASON_DUPLICATE_WINDOW_EXPIRED,
                       batch_id=one.batch_id)

    old = now_ts() - (901_000 << 18)
    expired(batch(at.ref, row(1, b"{}"), first_admitted_ts=old))
    assert not stream.put(batch(at.ref, row(1, b"{}"), first_admitted_ts=now_ts() - (800_000 << 18))).HasField("error")
    # For batches with a receipt its apply time counts, whatever the batch says.
    answer = a.allocate(issued.ref, None)
    _, _, stamp, _, packed = unwrap(answer.allocator_receipt)
    claims = durable.AllocatorReceiptClaims.FromString(packed)
    claims.applied_at_unix_ms -= 901_000
    receipt = sign(SERVER, RECEIPT, claims.SerializeToString(), stamp - 901_000)
    expired(batch(issued.ref, row(0, b"{}"), receipt=receipt))
    assert not stream.put(batch(issued.ref, row(0, b"{}"), receipt=answer.allocator_receipt)).HasField("error")
    stream.close()


# ---- marks --------------------------------------------------------------------------------------------

def test_barrier_mark():
    proves("COORD-4.3-10", "COORD-2-14")
    a = api()
    at = place(a)
    barrier = sf.MutationEntry(barrier_mark=sf.BarrierMark(barrier_id="x"))
    stream = Stream(a)
    ack = stream.put(batch(at.ref, row(1, b"{}"), barrier, row(2, b"{}"), visibility=VISIBLE))
    assert not ack.HasField("error"), ack.error
    first, second = ack.ranges
    assert (first.first_entry_index, first.last_entry_index) == (0, 0)
    assert (second.first_entry_index, second.last_entry_index) == (2, 2)
    assert second.commit_ts > first.commit_ts and ack.row_count == 2
    head = a.coordinator.GetLaneState(coordinator.GetLaneStateRequest(collection=at.ref))
    ack = stream.put(batch(at.ref, barrier, visibility=VISIBLE))
    assert not ack.HasField("error") and not ack.ranges and ack.row_count == 0
    assert set(at.rows()) == {1, 2} and head is not None
    stream.refused(batch(at.ref, sf.MutationEntry(barrier_mark=sf.BarrierMark(barrier_id="b" * 129))), "SF_BAD_REQUEST",
                   "bad_request")
    # Later work of the lane still flows.
    assert stream.put(batch(at.ref, row(3, b"{}"), visibility=VISIBLE)).gate == sf.ACK_GATE_VISIBLE
    stream.close()


# ---- pressure -----------------------------------------------------------------------------------------

def test_inflight_is_bounded():
    a = api()
    at = place(a)
    stream = Stream(a)
    count = 3000
    for number in range(count):
        stream.send(batch(at.ref, row(number, b'{"n":%d}' % number)))
    seen = set()
    while len(seen) < count:
        response = stream.receive()
        assert response.inflight_batches <= stream.opened.max_inflight_batches
        assert response.inflight_bytes <= stream.opened.max_inflight_bytes + stream.opened.max_batch_bytes
        check = response.ack
        assert not check.HasField("error"), check.error
        seen.add(check.batch_id)
    stream.put(batch(at.ref, row(count, b"{}"), visibility=VISIBLE))
    assert len(at.rows()) == count + 1
    stream.close()


def test_acknowledged_survives_kills():
    proves("COORD-7.2-06", "COORD-3-15")
    at = place(api())
    acked = {}
    stop = []

    def work(number):
        count = 0
        one = stream = None
        while not stop:
            try:
                stream = stream or Stream(api(), client=f"c{number}", timeout=10)
                one = one or batch(at.ref, row(number * 100_000 + count, b'{"w":%d,"n":%d}' % (number, count)), stream=f"s{number}",
                                   batch_id=f"{number}-{count}", visibility=[ASYNC, VISIBLE][count % 2])
                ack = stream.put(one)
            except (grpc.RpcError, StopIteration, ValueError, AttributeError):
                stream = None
                time.sleep(0.02)
                continue
            if ack.HasField("error"):
                assert ack.error.code in ("SF_BACKEND_UNAVAILABLE", "SF_RATE_LIMITED"), ack.error
                one.first_admitted_ts = ack.first_admitted_ts or one.first_admitted_ts
                time.sleep(0.02)
                continue
            entry = one.entries[0].row
            acked[entry.doc_id.u64] = (ack.ranges[0].commit_ts, entry.body)
            one = None
            count += 1

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        workers = [pool.submit(work, number) for number in range(6)]
        for _ in range(4):
            time.sleep(0.4)
            SERVER.crash()
        time.sleep(0.3)
        stop.append(True)
        for worker in workers:
            worker.result()
    stream = Stream(api())
    stream.put(batch(at.ref, row(10**9, b"{}"), visibility=VISIBLE))
    rows = at.rows()
    assert len(acked) > 20
    for doc_id, want in acked.items():
        assert rows.get(doc_id) == want, f"{doc_id}: acknowledged {want}, visible {rows.get(doc_id)}"
    assert len(rows) <= len(acked) + 1 + 6  # at most one unanswered batch a writer
    stream.close()


def test_whole_or_absent_over_kills():
    """Slices that touch two engines, many under way, none repeated: each is wholly visible or not at all, and those whose
    acknowledgement promised it are."""
    fields = [sf.FieldDefinition(name="title", type=sf.FIELD_TYPE_TEXT, modalities=[sf.MODALITY_METADATA_SEARCH]),
              sf.FieldDefinition(name="v", type=sf.FIELD_TYPE_DENSE_VECTOR, modalities=[sf.MODALITY_SEMANTIC_SEARCH],
                                 vector=sf.VectorSettings(dimensions=2))]
    at = place(api(), fields=fields)
    sent, acked, stop = {}, {}, []

    def work(number):
        turn = 0
        while not stop:
            try:
                stream = Stream(api(), client=f"w{number}", timeout=10)
                while not stop:
                    for _ in range(8):
                        first = number * 10**6 + turn * 10
                        bodies = [b'{"title":"%d"}' % first, b'{"v":[1,%d]}' % turn, b'{"title":"both","v":[0.5,2]}', b"{}"]
                        sent[first] = bodies
                        stream.send(batch(at.ref, *[row(first + k, body) for k, body in enumerate(bodies)], stream=f"w{number}",
                                          batch_id=f"{first}", durability=[DURABLE, INGEST_ACK][turn % 3 == 2],
                                          visibility=[ASYNC, VISIBLE][turn % 2]))
                        turn += 1
                    for _ in range(8):
                        ack = stream.receive().ack
                        if not ack.HasField("error") and ack.gate != sf.ACK_GATE_ADMITTED_DISPATCHED:
                            one, = ack.ranges
                            acked[int(ack.batch_id)] = one.commit_ts
            except (grpc.RpcError, StopIteration, ValueError, AttributeError):
                time.sleep(0.02)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work, number) for number in range(4)]
        for _ in range(6):
            time.sleep(random.uniform(0.1, 0.5))
            SERVER.crash()
        time.sleep(0.2)
        stop.append(True)
        for worker in workers:
            worker.result()
    stream = Stream(api())
    last = stream.put(batch(at.ref, row(10**9, b'{"title":"last","v":[0,0]}'), visibility=VISIBLE))
    rows = at.rows()
    del rows[10**9]
    assert len(acked) > 20
    stamps = {}
    for first, bodies in sent.items():
        there = [rows.pop(first + k, None) for k in range(4)]
        if first in acked:
            assert there == [(acked[first], body) for body in bodies], (first, acked[first], there)
        elif any(there):
            assert len({one[0] for one in there if one}) == 1 and [one and one[1] for one in there] == bodies, (first, there)
        if there[0]:
            assert stamps.setdefault(there[0][0], first) == first  # a timestamp belongs to one slice
    assert not rows and last.safe_ts >= max(stamps)
    stream.close()


def test_cancel():
    a = api()
    at = place(a)
    for _ in range(20):
        stream = Stream(a)
        for number in range(20):
            stream.send(batch(at.ref, row(number, b"{}", INDEX)))
        stream.call.cancel()
        stream.outgoing.put(None)
    stream = Stream(a)
    assert stream.put(batch(at.ref, row(1, b"{}", INDEX), visibility=VISIBLE)).gate == sf.ACK_GATE_VISIBLE
    stream.close()
    assert SERVER.alive()


run(globals())
