"""AllocateIds from outside: the plan's arithmetic, who may allocate, limits, replay over kill -9, races, durable state."""
import base64
import concurrent.futures
import random
import time

import grpc
from google.protobuf import descriptor_pb2

from allocator_calls import burned, limited, next_id, state
from harness import (DDL, ES, MAX_U64, RECEIPT, Api, check_error, durable, error_of, fresh, ids,
                     ids_digest, meta, plan_request, private, proves, refused, run, server, sf, sha256_hex, sign, state_key, unwrap,
                     wait_for)

SERVER = server()
SERVER.start()
BOOTSTRAP = {"catalog_unavailable_reason": "schema_bootstrap", "schema_bootstrap_state": "no_active_schema_generation"}
IDENTITY = sha256_hex("loopback")


def api():
    return Api(SERVER)


def at_ten(a, **more):
    """A collection whose watermark is 10."""
    ref = a.ready_collection(**more)
    a.allocate(ref, 9)
    assert next_id(a, ref) == 10
    return ref


# ---- the plan -----------------------------------------------------------------------------------------

def test_first_ids():
    proves("ALLOC-1-01", "ALLOC-1-02", "ALLOC-1-03", "ALLOC-5.1-01", "ALLOC-2.2-01", "ALLOC-6.3-03", "ALLOC-5.1-04")
    a = api()
    ref = a.ready_collection()
    one = a.allocate(ref, None)
    # The first id is 0, and it is there: presence, not value.
    assert [item.doc_id.WhichOneof("id_value") for item in one.realized_doc_ids] == ["u64"]
    assert ids(one) == [0] and one.realized_doc_ids[0].allocator_issued
    assert one.schema_generation_token == "t1" and 0 < len(one.allocator_receipt) <= 16384
    explicit = a.allocate(ref, 7)
    assert ids(explicit) == [7] and not explicit.realized_doc_ids[0].allocator_issued
    mixed = a.allocate(ref, None, 20, None)
    assert ids(mixed) == [8, 20, 21]
    assert [item.allocator_issued for item in mixed.realized_doc_ids] == [True, False, True]
    zero = a.ready_collection()
    assert ids(a.allocate(zero, 0)) == [0] and ids(a.allocate(zero, None)) == [1]


def test_arithmetic():
    proves("ALLOC-5.3-06", "ALLOC-5.3-07", "ALLOC-5.3-08", "ALLOC-5.3-09", "ALLOC-5.3-11", "ALLOC-12-08", "ALLOC-12-09",
           "ALLOC-12-15", "ALLOC-5.1-05", "ALLOC-5.1-06", "ALLOC-9-06")
    a = api()
    # Plan at next_doc_id 10, window 1000 -> ids and the next watermark.
    for plan, want, after in (([None, None], [10, 11], 12), ([12, None, 20], [12, 13, 20], 21),
                              ([None, None, None], [10, 11, 12], 13), ([12, None, 20, None], [12, 13, 20, 21], 22),
                              ([1010], [1010], 1011), ([10], [10], 11), ([10, None, 12], [10, 11, 12], 13)):
        ref = at_ten(a)
        answer = a.allocate(ref, *plan)
        assert ids(answer) == want and next_id(a, ref) == after, plan
        assert [item.allocator_issued for item in answer.realized_doc_ids] == [item is None for item in plan]
    ref = at_ten(a)
    before = a.object(state_key(ref))
    burned(lambda: a.allocate(ref, 12, 11), 11)
    burned(lambda: a.allocate(ref, None, 10), 10)
    burned(lambda: a.allocate(ref, 9), 9)  # reserved
    burned(lambda: a.allocate(ref, 3), 3)  # skipped
    burned(lambda: a.allocate(ref, 0), 0)
    burned(lambda: a.allocate(ref, None, None, None, 500, 499), 499)  # at the last item
    refused("SF_BAD_REQUEST", lambda: a.allocate(ref, 12, 12), "bad_request")
    limited(lambda: a.allocate(ref, 1011), "allocator_forward_reservation_window", 1000, 1001)
    limited(lambda: a.allocate(ref, None, 1012), "allocator_forward_reservation_window", 1000, 1001)
    assert a.object(state_key(ref)) == before  # a failed plan moves nothing, byte for byte
    assert ids(a.allocate(ref, None)) == [10]


def test_window():
    proves("ALLOC-3.5-15", "ALLOC-5.5-02", "ALLOC-12-11")
    a = api()
    ref = at_ten_window(a)
    limited(lambda: a.allocate(ref, 16), "allocator_forward_reservation_window", 5, 6)
    limited(lambda: a.allocate(ref, 20), "allocator_forward_reservation_window", 5, 10)
    limited(lambda: a.allocate(ref, None, None, 18), "allocator_forward_reservation_window", 5, 6)
    assert ids(a.allocate(ref, 15)) == [15] and next_id(a, ref) == 16
    ref = at_ten_window(a)
    assert ids(a.allocate(ref, 15, 20)) == [15, 20]  # the second jump is 20 - 16


def at_ten_window(a):
    ref = a.ready_collection(jump=5)
    a.allocate(ref, *[None] * 10)
    return ref


def test_ceiling():
    proves("ALLOC-3.5-14", "ALLOC-5.5-01", "ALLOC-12-10", "ALLOC-5.4-02", "ALLOC-5.5-03")
    a = api()
    ref = a.ready_collection(items=5)
    assert ids(a.allocate(ref, None, 2, None, 4, None)) == [0, 2, 3, 4, 5]
    for plan in ([None] * 6, [10, 11, 12, 13, 14, 15], [None, None, None, 20, 21, 22]):
        limited(lambda: a.allocate(ref, *plan), "allocator_plan_items", 5, 6)
    assert next_id(a, ref) == 6
    # The limits stand in the public schema.
    schema = a.catalog.GetCollectionSchema(sf.GetCollectionSchemaRequest(meta=meta(), collection=ref)).schema
    policy = schema.definition.settings.allocator_admission_policy
    assert (policy.max_plan_items_per_request, policy.max_forward_reservation_jump) == (5, 1000)


def test_the_servers_own_ceiling_admits_no_more():
    proves("ALLOC-5.5-04")
    a = api()
    # the server's ceiling is 65,536 items: no policy may name a higher one, and a lower one is what counts
    ref = a.collection(a.namespace().namespace_id, None).collection
    refused("SF_BAD_REQUEST", lambda: a.schema(ref, 1, "t1", items=65537))
    a.schema(ref, 1, "t1", items=2)
    assert ids(a.allocate(ref, None, None)) == [0, 1]
    limited(lambda: a.allocate(ref, None, None, None), "allocator_plan_items", 2, 3)


def test_largest_plan():
    proves("ALLOC-3.2-02", "ALLOC-2.1-08")
    a = api()
    ref = a.ready_collection(items=65536)
    base = f"catalog/{sha256_hex(str(ref.namespace_id))[:2]}/{ref.namespace_id}/"
    before = {key: a.object(key) for key in a.keys(base)}
    for size in (1, 2, 1000):
        start = 0 if state(a, ref) is None else next_id(a, ref)
        assert ids(a.allocate(ref, *[None] * size)) == list(range(start, start + size))
        start += size
        assert ids(a.allocate(ref, *range(start, start + size))) == list(range(start, start + size))
        start += size
        mixed = [None if at % 2 == 0 else start + at for at in range(size)]
        assert ids(a.allocate(ref, *mixed)) == list(range(start, start + size))
        burned(lambda: a.allocate(ref, start + size - 1), start + size - 1)
    start = next_id(a, ref)
    assert ids(a.allocate(ref, *[None] * 65536)) == list(range(start, start + 65536))
    limited(lambda: a.allocate(ref, *[None] * 65537), "allocator_plan_items", 65536, 65537)
    assert {key: a.object(key) for key in a.keys(base)} == before  # no descriptor moved


def test_end_of_the_space():
    proves("ALLOC-3.5-16", "ALLOC-12-12", "ALLOC-5.2-05", "ALLOC-7.2-03")
    a = api()
    scope = "allocator_identity_space_remaining"
    ref = a.ready_collection(jump=MAX_U64)
    for doc_id in (2**53, 2**63 - 1, MAX_U64 - 2):
        assert ids(a.allocate(ref, doc_id)) == [doc_id]
        assert state(a, ref)["next_doc_id"] == str(doc_id + 1)
    # Two ids are left: 2^64 - 2 and 2^64 - 1.
    limited(lambda: a.allocate(ref, None, None, None), scope, 0, 1)
    assert next_id(a, ref) == 2**64 - 2
    assert ids(a.allocate(ref, None)) == [MAX_U64 - 1] and next_id(a, ref) == MAX_U64
    limited(lambda: a.allocate(ref, None, None), scope, 0, 1)
    assert next_id(a, ref) == MAX_U64
    key = fresh()
    last = a.allocate(ref, None, key=key)
    assert ids(last) == [MAX_U64] and state(a, ref)["next_doc_id"] == "18446744073709551616"

    def exhausted(b):
        limited(lambda: b.allocate(ref, None), scope, 0, 1)
        burned(lambda: b.allocate(ref, 0), 0)
        burned(lambda: b.allocate(ref, MAX_U64), MAX_U64)
        assert b.allocate(ref, None, key=key).SerializeToString() == last.SerializeToString()
        assert state(b, ref)["next_doc_id"] == "18446744073709551616"

    exhausted(a)
    SERVER.crash()
    exhausted(api())
    SERVER.restart()
    exhausted(api())
    b = api()
    two = b.ready_collection(jump=MAX_U64)
    b.allocate(two, MAX_U64 - 2)
    assert ids(b.allocate(two, None, None)) == [MAX_U64 - 1, MAX_U64]
    explicit = b.ready_collection(jump=MAX_U64)
    assert ids(b.allocate(explicit, MAX_U64)) == [MAX_U64]


def test_burned_for_ever():
    proves("ALLOC-5.3-04", "ALLOC-5.3-05", "ALLOC-5.2-04", "ALLOC-5.3-03", "ALLOC-5.3-02")
    a = api()
    ref = a.ready_collection()
    a.allocate(ref, 100)
    seen = [100]
    for restart in (SERVER.crash, SERVER.restart, SERVER.crash):
        a = api()
        burned(lambda: a.allocate(ref, 50), 50)
        burned(lambda: a.allocate(ref, 100), 100)
        got = ids(a.allocate(ref, None, None))
        assert min(got) > seen[-1] and next_id(a, ref) >= 1 + max(got)
        seen += got
        restart()
    assert seen == sorted(set(seen))


# ---- refusals -----------------------------------------------------------------------------------------

def test_malformed_and_illegal():
    proves("ALLOC-3.5-10", "ALLOC-3.5-11", "ALLOC-3.5-12", "ALLOC-3.5-13", "ALLOC-12-02", "ALLOC-6.1-01", "ALLOC-2.1-12",
           "ALLOC-3.5-20")
    a = api()
    ref = a.ready_collection()
    keys = a.keys("id-allocator/")
    good = plan_request(ref, None, 7)

    def changed(change):
        request = sf.AllocateIdsRequest.FromString(good.SerializeToString())
        request.meta.idempotency_key = fresh()
        change(request)
        return lambda: a.allocator.AllocateIds(request)

    def no_branch(request):
        request.plan.items.add()

    def empty_id(request):
        request.plan.items.add().explicit_doc_id.SetInParent()

    def duplicate(request):
        for item in sf.AllocationPlan(items=[sf.AllocationPlanItem(issue=sf.IssueItem()),
                                             sf.AllocationPlanItem(explicit_doc_id=sf.DocumentID(u64=7))]).items:
            request.plan.items.append(item)

    malformed = [
        ("meta", lambda r: r.ClearField("meta")), ("meta.idempotency_key", lambda r: r.meta.ClearField("idempotency_key")),
        ("meta.client_kind", lambda r: r.meta.ClearField("client_kind")), ("collection", lambda r: r.ClearField("collection")),
        ("collection", lambda r: setattr(r.collection, "collection_id", 0)),
        ("collection", lambda r: setattr(r.collection, "namespace_id", 0)),
        ("route_intent", lambda r: setattr(r, "route_intent", 0)), ("route_intent", lambda r: setattr(r, "route_intent", 2)),
        ("route_intent", lambda r: setattr(r, "route_intent", 99)), ("plan.items", lambda r: r.ClearField("plan")),
        ("plan.items", lambda r: r.plan.ClearField("items")), ("plan.items", no_branch), ("plan.items", empty_id),
        # Two faults at once: malformed wins over illegal.
        ("route_intent", lambda r: (duplicate(r), setattr(r, "route_intent", 0))),
        ("plan.items", lambda r: (duplicate(r), no_branch(r))),
        ("plan.items", lambda r: (setattr(r.meta, "client_id", "c" * 257), r.plan.ClearField("items")))]
    for name, change in malformed:
        refused("SF_INVALID_ARGUMENT", changed(change), "bad_request", {"field": name, "violation": None}, field=name)
    illegal = [
        ("plan.items", duplicate), ("meta.idempotency_key", lambda r: setattr(r.meta, "idempotency_key", "k" * 129)),
        ("meta.client_id", lambda r: setattr(r.meta, "client_id", "c" * 257)),
        ("meta.correlation_id", lambda r: setattr(r.meta, "correlation_id", "")),
        ("meta.principal_subject", lambda r: setattr(r.meta, "principal_subject", "p" * 257))]
    for name, change in illegal:
        refused("SF_BAD_REQUEST", changed(change), "bad_request", {"field": name, "violation": None}, field=name)
    assert a.keys("id-allocator/") == keys
    assert ids(a.allocate(ref, None)) == [0]


def test_policy_matrix():
    proves("ALLOC-3.3-05", "ALLOC-3.3-07", "ALLOC-2.1-01", "ALLOC-3.5-03", "ALLOC-3.5-04", "ALLOC-11.2-01", "ALLOC-12-07",
           "ALLOC-3.5-07", "ALLOC-10.1-01")
    a = api()
    ns = a.namespace().namespace_id
    required = sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED
    ours = a.ready_collection(ns)
    caller_required = a.ready_collection(ns, policy=required)
    external = a.catalog.PutCollectionMetadata(sf.PutCollectionMetadataRequest(
        meta=meta(fresh(), DDL), encryption=sf.EncryptionPolicy(provider_managed=sf.ProviderManagedEncryption()),
        name_binding=sf.CollectionNameBinding(namespace_id=ns, collection_name=fresh()))).descriptor.collection
    a.schema(external, 1, "t1", DDL, mode=sf.COLLECTION_TRUTH_MODE_EXTERNAL)
    for kind in sf.ClientKind.values():
        if kind == 0:
            continue
        for ref in (ours, caller_required, external):
            if kind == ES and ref == ours:
                continue
            key = fresh()
            error = refused("SF_OWNERSHIP_CONFLICT", lambda: a.allocate(ref, None, key=key, kind=kind))
            assert a.keys(state_key(ref)) == {}, error
            if ref == ours:  # its key is recorded nowhere: client_kind is part of it
                refused("SF_OWNERSHIP_CONFLICT", lambda: a.allocate(ref, None, None, key=key, kind=kind))
    assert ids(a.allocate(ours, None)) == [0]


def test_unknown_and_bootstrap():
    proves("ALLOC-12-05")
    a = api()
    ref = a.collection(a.namespace().namespace_id).collection
    error = refused("SF_CATALOG_UNAVAILABLE", lambda: a.allocate(ref, None),
                    "allocator.catalog_unavailable.schema_bootstrap", BOOTSTRAP,
                    schema_bootstrap_state="no_active_schema_generation")
    path = error.context.allocator.catalog_unavailable.schema_bootstrap.schema_bootstrap_state
    assert path == "no_active_schema_generation"
    for bad in (sf.CollectionRef(namespace_id=ref.namespace_id, collection_id=ref.collection_id + 1),
                sf.CollectionRef(namespace_id=ref.namespace_id + 1, collection_id=ref.collection_id),
                sf.CollectionRef(namespace_id=1, collection_id=1)):
        refused("SF_RESOURCE_NOT_FOUND", lambda: a.allocate(bad, None), "", {})
        assert a.keys(state_key(bad)) == {}
    # A refusal is evaluated afresh: the same key succeeds once the cause is gone.
    key = fresh()
    refused("SF_CATALOG_UNAVAILABLE", lambda: a.allocate(ref, None, key=key))
    a.schema(ref, 1, "t1")
    proves("ALLOC-6.4-01")
    assert ids(a.allocate(ref, None, key=key)) == [0]


# ---- replay -------------------------------------------------------------------------------------------

def test_replay_over_crashes():
    proves("ALLOC-6.1-08", "ALLOC-2.1-04", "ALLOC-9-03", "ALLOC-2.1-07", "ALLOC-13.1-03", "ALLOC-7.1-05")
    a = api()
    ref = a.ready_collection()
    plans = {"issue": [None, None], "explicit": [50, 60], "mixed": [None, 70, None]}
    keys = {name: fresh() for name in plans}
    first = {name: a.allocate(ref, *plan, key=keys[name]) for name, plan in plans.items()}
    assert [ids(first[name]) for name in plans] == [[0, 1], [50, 60], [61, 70, 71]]
    objects = {key: a.object(key) for key in a.keys("id-allocator/replay-success/")}

    def same():
        b = api()
        for name, plan in plans.items():
            again = b.allocate(ref, *plan, key=keys[name])
            assert again.SerializeToString() == first[name].SerializeToString(), name
        assert next_id(b, ref) == 72
        assert {key: b.object(key) for key in objects} == objects

    same()
    SERVER.crash()
    same()
    a = api()
    a.schema(ref, 2, "t2", items=1, jump=1)  # a stricter, newer generation governs new plans only
    same()
    limited(lambda: a.allocate(ref, None, None), "allocator_plan_items", 1, 2)
    assert a.allocate(ref, None).schema_generation_token == "t2"
    objects = {key: a.object(key) for key in objects}
    SERVER.stop()
    for path in SERVER.data.glob("projection.sqlite*"):
        path.unlink()
    SERVER.start()
    b = api()
    for name, plan in plans.items():
        assert b.allocate(ref, *plan, key=keys[name]).SerializeToString() == first[name].SerializeToString()
    assert ids(b.allocate(ref, None)) == [73]


def test_equal_requests_race():
    proves("ALLOC-6.1-08")
    a = api()
    for plan in ([None, None], [5, None, 9]):
        ref, key = a.ready_collection(), fresh()
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(lambda _: a.allocate(ref, *plan, key=key).SerializeToString(), range(100)))
        assert len(set(answers)) == 1
        assert next_id(a, ref) == (2 if plan[0] is None else 10)


def test_key_with_another_payload():
    proves("ALLOC-6.1-09", "ALLOC-12-13", "ALLOC-6.2-03", "ALLOC-6.2-02")
    a = api()
    ref, key = a.ready_collection(), fresh()
    first = a.allocate(ref, None, 5, None, key=key)
    before = a.object(state_key(ref))
    for plan in ([None, 6, None], [None, 5], [None, 5, None, None], [5, None, None], [None, None, None], [0, 5, None],
                 [None, 5, 6]):
        error = refused("SF_IDEMPOTENCY_CONFLICT", lambda: a.allocate(ref, *plan, key=key), "", {})
        assert not error.HasField("context")
    assert a.object(state_key(ref)) == before
    assert a.allocate(ref, None, 5, None, key=key).SerializeToString() == first.SerializeToString()
    SERVER.crash()
    a = api()
    refused("SF_IDEMPOTENCY_CONFLICT", lambda: a.allocate(ref, None, 6, None, key=key), "", {})
    assert a.allocate(ref, None, 5, None, key=key).SerializeToString() == first.SerializeToString()


def test_parts_of_the_key():
    proves("ALLOC-6.1-03", "ALLOC-6.1-06", "ALLOC-6.1-07")
    a = api()
    ref, other, key = a.ready_collection(), a.ready_collection(), fresh()
    assert ids(a.allocate(ref, None, key=key)) == [0]
    assert ids(a.allocate(ref, None, key=key, client="another")) == [1]
    assert ids(a.allocate(ref, None, key=key + "x")) == [2]
    assert ids(a.allocate(other, None, key=key)) == [0]
    # Neither is part of it.
    request = plan_request(ref, None, key=key)
    request.meta.correlation_id, request.meta.principal_subject = "c", "p"
    assert ids(a.allocator.AllocateIds(request)) == [0]
    # Lengths are bound too: moving a boundary makes another key.
    longest = "\U0001F600" * 128
    assert ids(a.allocate(ref, None, key=longest)) == [3]
    assert ids(a.allocate(ref, None, key=longest[:-1])) == [4]


# ---- races --------------------------------------------------------------------------------------------

def test_many_clients():
    proves("ALLOC-2.1-02", "ALLOC-2.1-03", "ALLOC-5.3-01", "ALLOC-9-05", "ALLOC-5.2-01")
    apis = [api() for _ in range(8)]
    refs = [apis[0].ready_collection(jump=10**9) for _ in range(2)]
    taken = {refs[0].collection_id: [], refs[1].collection_id: []}

    def work(number):
        rng = random.Random(number)
        a = apis[number % len(apis)]
        base = 0
        for _ in range(40):
            ref = rng.choice(refs)
            plan = [None] * rng.randrange(1, 6)
            if rng.random() < 0.3:
                base = rng.randrange(1, 3) + max(taken[ref.collection_id][-1][1] if taken[ref.collection_id] else [0])
                plan.insert(rng.randrange(len(plan) + 1), base + 20)
            try:
                answer = a.allocate(ref, *plan, client=f"c{number}")
            except grpc.RpcError as error:
                check_error(error_of(error), "SF_VERSION_CONFLICT", "allocator.reservation_conflict")
                continue
            got = ids(answer)
            assert got == sorted(got) and len(got) == len(plan)
            assert all(item is None or item == doc_id for item, doc_id in zip(plan, got))
            taken[ref.collection_id].append((plan, got))

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        list(pool.map(work, range(24)))
    for ref in refs:
        plans = taken[ref.collection_id]
        everything = [doc_id for _, got in plans for doc_id in got]
        assert len(everything) == len(set(everything))  # no id twice
        # A serial order explains it: plans are intervals of the watermark that do not interleave.
        plans.sort(key=lambda one: one[1][0])
        watermark = 0
        for plan, got in plans:
            for item, doc_id in zip(plan, got):
                assert doc_id == watermark if item is None else doc_id >= watermark, (plan, got, watermark)
                watermark = doc_id + 1
        assert next_id(apis[0], ref) == watermark


def test_nothing_twice_over_kills():
    proves("ALLOC-2.1-04")
    taken = {}
    answers = {}
    ref = api().ready_collection(jump=10**9)
    stop = []

    def work(number):
        count = 0
        a = api()
        while not stop:
            key, plan = f"kill-{number}-{count}", [None, None] if count % 3 else [None, 10**6 + number * 1000 + count]
            try:
                answers[key] = (plan, a.allocate(ref, *plan, key=key, timeout=5).SerializeToString())
                count += 1
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.ABORTED:
                    count += 1
                else:
                    assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED,
                                            grpc.StatusCode.CANCELLED), error
                    time.sleep(0.02)
                    a = api()
            except ValueError:  # the channel was closed under the call
                a = api()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        workers = [pool.submit(work, number) for number in range(8)]
        for _ in range(4):
            time.sleep(0.4)
            SERVER.crash()
        time.sleep(0.3)
        stop.append(True)
        for worker in workers:
            worker.result()
    assert len(answers) > 20
    a = api()
    for key, (plan, answer) in answers.items():
        assert a.allocate(ref, *plan, key=key).SerializeToString() == answer, key
        for doc_id in ids(sf.AllocateIdsSuccessResponse.FromString(answer)):
            assert taken.setdefault(doc_id, key) == key, f"{doc_id} for {taken[doc_id]} and {key}"
    assert next_id(a, ref) >= max(taken) + 1


# ---- durable state, receipts --------------------------------------------------------------------------

def test_state_object():
    proves("ALLOC-7.1-02", "ALLOC-7.1-04", "ALLOC-7.2-01", "ALLOC-7.2-02", "ALLOC-7.2-04", "ALLOC-7.2-05", "ALLOC-7.2-06",
           "ALLOC-5.2-02", "ALLOC-2.1-05", "ALLOC-5.3-10", "ALLOC-5.2-07", "ALLOC-7.1-01", "ALLOC-2.1-10")
    a = api()
    ref = a.ready_collection()
    others = {key: a.object(key) for key in a.keys("catalog")}
    keys = set(a.keys())
    seen = []
    for at in range(5):
        a.allocate(ref, *([None] if at % 2 == 0 else [10 * at]))
        seen.append(state(a, ref))
        assert seen[-1]["namespace_id"] == str(ref.namespace_id) and seen[-1]["collection_id"] == str(ref.collection_id)
    assert [int(one["next_doc_id"]) for one in seen] == [1, 11, 12, 31, 32]
    versions = [int(one["allocator_state_version"]) for one in seen]
    assert versions == list(range(versions[0], versions[0] + 5))
    stamps = [int(one["updated_at_unix_ms"]) for one in seen]
    assert stamps == sorted(stamps) and abs(stamps[-1] - time.time() * 1000) < 60_000
    assert len({one["allocation_epoch"] for one in seen}) == 1
    epochs = [int(seen[-1]["allocation_epoch"])]
    for restart in (SERVER.restart, SERVER.crash):
        restart()
        a = api()
        a.allocate(ref, None)
        epochs.append(int(state(a, ref)["allocation_epoch"]))
    assert epochs[0] < epochs[1] < epochs[2]
    # One object a collection; the catalog's are as they were.
    assert list(a.keys(f"id-allocator/state/{sha256_hex(str(ref.namespace_id))[:2]}/{ref.namespace_id}/")) == [state_key(ref)]
    assert {key: a.object(key) for key in others} == others
    written = set(a.keys()) - keys
    assert {key.split("/")[0] for key in written} - {"catalog-recovery-segments", "coordinator", "wal"} == {"id-allocator"}, written


def test_replay_object():
    proves("ALLOC-7.3-01", "ALLOC-7.3-02", "ALLOC-7.3-03", "ALLOC-7.3-04", "ALLOC-7.3-05", "ALLOC-7.3-06", "ALLOC-7.3-07",
           "ALLOC-7.3-09", "ALLOC-7.3-10", "ALLOC-7.3-11", "ALLOC-7.3-12", "ALLOC-9-07", "ALLOC-7.4-06")
    a = api()
    ref, key = a.ready_collection(), fresh()
    before = set(a.keys("id-allocator/replay-success/"))
    answer = a.allocate(ref, None, 5, key=key, client="\u00fcber")
    name, = set(a.keys("id-allocator/replay-success/")) - before
    found = a.json_object(name)
    lookup = found["transport_lookup_key"]
    assert name == f"id-allocator/replay-success/{sha256_hex(lookup)[:2]}/{lookup}.json" and len(lookup) == 64
    assert found["idempotency_key"] == key and found["client_id"] == "\u00fcber"
    assert found["client_kind"] == "CLIENT_KIND_ES_WRITE_GATEWAY"
    assert found["authenticated_client_identity_hash"] == IDENTITY
    assert (found["namespace_id"], found["collection_id"]) == (str(ref.namespace_id), str(ref.collection_id))
    assert found["route_intent"] == "ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT"
    assert found["plan"] == {"items": [{"issue": {}}, {"explicit_doc_id": {"u64": "5"}}]}
    assert [(item["doc_id"]["u64"], item.get("allocator_issued", False)) for item in found["realized_doc_ids"]] == [
        ("0", True), ("5", False)]
    assert found["schema_generation_token"] == "t1"
    assert found["allocator_state_version"] == state(a, ref)["allocator_state_version"]
    assert found["allocation_epoch"] == state(a, ref)["allocation_epoch"]
    assert abs(int(found["created_at_unix_ms"]) - time.time() * 1000) < 60_000
    assert base64.b64decode(found["allocator_receipt"]) == answer.allocator_receipt
    raw = a.object(name)
    a.allocate(ref, None, 5, key=key, client="\u00fcber")
    assert a.object(name) == raw


def test_receipt():
    a = api()
    ref = a.ready_collection(items=20)
    for plan in ([None, None], [10], [None, 20, None], [None] * 9 + [40] + [None] * 9):
        key = fresh()
        answer = a.allocate(ref, *plan, key=key)
        family, key_id, _, expires, packed = unwrap(answer.allocator_receipt)
        assert family == RECEIPT and expires == 0 and key_id
        claims = durable.AllocatorReceiptClaims.FromString(packed)
        assert claims.authenticated_client_identity_hash == IDENTITY
        assert (claims.client_id, claims.client_kind) == ("e2e", ES) and claims.collection == ref
        assert claims.route_intent == sf.ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT
        assert claims.item_count == len(plan) and claims.schema_generation_token == "t1" == answer.schema_generation_token
        assert claims.realized_ids_sha256 == ids_digest(
            [(item.doc_id.u64, item.allocator_issued) for item in answer.realized_doc_ids])
        assert claims.all_issued == all(item is None for item in plan)
        # Signed under the ring's key, over all that stands before the MAC.
        issued = unwrap(answer.allocator_receipt)[2]
        assert sign(SERVER, RECEIPT, packed, issued) == answer.allocator_receipt


def test_collections_are_apart():
    proves("ALLOC-5.2-01")
    a = api()
    ns = a.namespace().namespace_id
    one, two = a.ready_collection(ns), a.ready_collection(ns)
    for at in range(5):
        assert ids(a.allocate(one, None)) == [at]
        assert ids(a.allocate(two, None, None)) == [2 * at, 2 * at + 1]


# ---- contract, metrics, log ---------------------------------------------------------------------------

def reflected(a):
    """Service names and their served FileDescriptorProtos through gRPC reflection v1."""
    def varint(value):
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    def ask(number, text):
        call = a.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        request = varint(number << 3 | 2) + varint(len(text)) + text.encode()
        return next(iter(call(iter([request]), timeout=10)))

    def fields(data):
        at = 0
        while at < len(data):
            tag, at = read(data, at)
            if tag & 7 == 2:
                size, at = read(data, at)
                yield tag >> 3, data[at:at + size]
                at += size
            else:
                _, at = read(data, at)

    def read(data, at):
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value, at

    listed = next(value for number, value in fields(ask(7, "")) if number == 6)
    names = [next(text for number, text in fields(one) if number == 1).decode() for number, one in fields(listed) if number == 1]
    files = {}
    for name in names:
        for number, value in fields(ask(4, name)):
            if number == 4:
                for _, packed in fields(value):
                    file = descriptor_pb2.FileDescriptorProto.FromString(packed)
                    files[file.name] = file
    return names, files


def test_contract_of_the_service():
    proves("ALLOC-3.1-01", "ALLOC-3.2-01", "ALLOC-3.2-05", "ALLOC-2.1-13", "ALLOC-2.1-14", "ALLOC-2.2-05", "ALLOC-5.4-01",
           "ALLOC-5.3-15", "ALLOC-11.2-02", "CCS-1-01")
    a = api()
    names, files = reflected(a)
    assert "searchfabric.v1.IdAllocatorService" in names and "searchfabric.v1.AllocatorService" not in names
    public = files["searchfabric/v1/search_fabric.proto"]
    service = next(one for one in public.service if one.name == "IdAllocatorService")
    assert [method.name for method in service.method] == ["AllocateIds"]
    ours = descriptor_pb2.FileDescriptorProto()
    sf.DESCRIPTOR.CopyToProto(ours)
    served = descriptor_pb2.FileDescriptorProto.FromString(public.SerializeToString())
    for file in (ours, served):
        file.ClearField("source_code_info")
        for message in file.message_type:  # json names are the compiler's spelling, not the contract's
            for one in message.field:
                one.ClearField("json_name")
            for nested in message.nested_type:
                for one in nested.field:
                    one.ClearField("json_name")
    assert served == ours
    messages = {message.name: [one.name for one in message.field] for message in public.message_type}
    assert messages["AllocateIdsRequest"] == ["meta", "collection", "route_intent", "plan"]
    assert messages["AllocationPlanItem"] == ["issue", "explicit_doc_id"] and messages["IssueItem"] == []
    assert messages["AllocateIdsSuccessResponse"] == ["realized_doc_ids", "schema_generation_token", "allocator_receipt"]
    assert messages["CollectionRef"] == ["namespace_id", "collection_id"]
    assert not [name for name in messages if "Lease" in name]
    assert not [method.name for one in public.service for method in one.method if "Observe" in method.name]


def test_metrics():
    proves("ALLOC-14-01", "ALLOC-14-02", "ALLOC-14-03", "ALLOC-14-04", "ALLOC-14-05", "ALLOC-14-08", "ALLOC-14-09",
           "ALLOC-14-10", "ALLOC-14-11")
    a = api()
    ref, key = a.ready_collection(), fresh()
    prefix = "searchfabric_id_allocator_"
    kind = 'client_kind="CLIENT_KIND_ES_WRITE_GATEWAY"'

    def delta(call):
        before = SERVER.metrics()
        call()
        after = SERVER.metrics()
        return {name: after[name] - before.get(name, 0) for name in after
                if name.startswith(prefix) and after[name] != before.get(name, 0) and "_bucket" not in name
                and "_sum" not in name and "burned" not in name}

    def requests(result, shape):
        return f'{prefix}requests_total{{{kind},result="{result}",plan_shape="{shape}"}}'

    def latency(shape):
        return f'{prefix}latency_ms_count{{{kind},plan_shape="{shape}"}}'

    ccs = f"{prefix}ccs_dependency_latency_ms_count"
    issue, explicit = (f'{prefix}plan_items_total{{{kind},item_kind="{name}"}}' for name in ("issue", "explicit_doc_id"))
    replay = lambda name: f'{prefix}replay_total{{classification="{name}"}}'
    assert delta(lambda: a.allocate(ref, None, None, None)) == {
        requests("ok", "issue_only"): 1, latency("issue_only"): 1, issue: 3, replay("original"): 1, ccs: 1}
    assert delta(lambda: a.allocate(ref, 10, 11, 12)) == {
        requests("ok", "explicit_only"): 1, latency("explicit_only"): 1, explicit: 3, replay("original"): 1, ccs: 1}
    assert delta(lambda: a.allocate(ref, None, 20, None, key=key)) == {
        requests("ok", "mixed"): 1, latency("mixed"): 1, issue: 2, explicit: 1, replay("original"): 1, ccs: 1}
    # A replay costs no catalog read.
    got = delta(lambda: a.allocate(ref, None, 20, None, key=key))
    assert got == {requests("replay_ok", "mixed"): 1, latency("mixed"): 1, issue: 2, explicit: 1,
                   replay("replay_same_payload"): 1}, got
    got = delta(lambda: refused("SF_IDEMPOTENCY_CONFLICT", lambda: a.allocate(ref, None, key=key)))
    assert got == {requests("sf_idempotency_conflict", "issue_only"): 1, latency("issue_only"): 1, issue: 1,
                   replay("replay_conflict"): 1}, got
    got = delta(lambda: refused("SF_VERSION_CONFLICT", lambda: a.allocate(ref, 3)))
    assert got[requests("sf_version_conflict", "explicit_only")] == 1
    assert f"{prefix}state_conflict_retry_total" in SERVER.metrics()


def log_records(key):
    return wait_for(lambda: [dict(word.split("=", 1) for word in line.split() if "=" in word)
                             for line in SERVER.log().splitlines() if f" idempotency_key={key} " in line], f"log of {key}")


def test_log_record():
    proves("ALLOC-14-12", "ALLOC-14-13", "ALLOC-14-14", "ALLOC-14-15", "ALLOC-14-16", "ALLOC-14-17", "ALLOC-14-18",
           "ALLOC-14-19", "ALLOC-14-20", "ALLOC-14-21")
    a = api()
    ref, key, big = a.ready_collection(items=20000), fresh(), fresh()
    a.allocate(ref, None, None, 12, key=key)
    a.allocate(ref, None, None, 12, key=key)
    refused("SF_IDEMPOTENCY_CONFLICT", lambda: a.allocate(ref, None, key=key))
    a.allocate(ref, *[None] * 10000, key=big)
    wait_for(lambda: len(log_records(key)) == 3, "three records")
    first, second, third = log_records(key)
    for record in (first, second, third):
        assert record["identity_hash"] == IDENTITY and record["client_id"] == "e2e"
        assert record["client_kind"] == "CLIENT_KIND_ES_WRITE_GATEWAY"
        assert (record["namespace_id"], record["collection_id"]) == (str(ref.namespace_id), str(ref.collection_id))
        assert record["idempotency_key"] == key
        assert record["route_intent"] in ("1", "ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT")
    assert [record["replay_classification"] for record in (first, second, third)] == [
        "original", "replay_same_payload", "replay_conflict"]
    assert (first["plan_shape"], first["issue_item_count"], first["explicit_item_count"]) == ("mixed", "2", "1")
    assert (third["plan_shape"], third["issue_item_count"], third["explicit_item_count"]) == ("issue_only", "1", "0")
    etag = a.private.GetCollectionAdmissionState(private.GetCollectionAdmissionStateRequest(
        collection=ref)).state.descriptor_etag
    assert first["ccs_etag"] == etag and second["ccs_etag"] == '""'
    record, = log_records(big)
    assert record["issue_item_count"] == "10000"
    line = next(line for line in SERVER.log().splitlines() if big in line)
    assert len(line) < 1000 and "doc_id" not in line


run(globals())
