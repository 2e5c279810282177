"""Ranges of ids reserved ahead, on the real server: what is recorded, what explicit ids and kills do, what sfctl tells."""
import concurrent.futures
import json

from allocator_calls import burned, next_id, state
from harness import Api, fresh, ids, proves, run, server

CONFIG = "allocator: {lease_hot_per_s: 3, lease_min_ids: 100, lease_max_ids: 100}\n"
SERVER = server(CONFIG)
SERVER.start()
LEASES = 'searchfabric_id_allocator_range_lease_total{result="%s"}'
TAIL = 'searchfabric_id_allocator_burned_ids_total{client_kind="CLIENT_KIND_ES_WRITE_GATEWAY",reason="lease_tail"}'


def api():
    return Api(SERVER)


def target(a):
    """A collection that takes documents."""
    ref = a.collection(a.namespace().namespace_id, fresh("leases")).collection
    a.schema(ref)
    return ref


def explain(ref, *words):
    out = SERVER.sfctl(*words, "alloc", "explain", f"{ref.namespace_id}/{ref.collection_id}")
    assert out.returncode == 0, out
    return out.stdout.decode()


def heat(a, ref):
    """Ids 0 to 99, and with the last of them the range [100, 200)."""
    for count in (1, 1, 98):
        a.allocate(ref, *[None] * count)


def test_explicit_ids_pass_the_lease():
    proves("ALLOC-13.2-05", "ALLOC-5.2-03", "ALLOC-7.2-07", "ALLOC-7.2-08", "ALLOC-14-07")
    a = api()
    ref = target(a)
    before = SERVER.metrics()
    heat(a, ref)
    lease = state(a, ref)["lease"]
    assert (lease["range_start"], lease["range_end"]) == ("100", "200") and next_id(a, ref) == 200
    assert lease["owner_id"] == state(a, ref)["owner_id"] and lease["lease_policy_version"] == 1
    assert lease["lease_epoch"] == state(a, ref)["allocator_state_version"]
    version = state(a, ref)["allocator_state_version"]
    assert ids(a.allocate(ref, None, None)) == [100, 101]
    assert state(a, ref)["allocator_state_version"] == version
    burned(lambda: a.allocate(ref, 150), 150)
    assert ids(a.allocate(ref, None)) == [102]
    assert ids(a.allocate(ref, 300)) == [300] and next_id(a, ref) == 301
    assert "lease" not in state(a, ref)
    assert ids(a.allocate(ref, None)) == [301]
    after = SERVER.metrics()
    grown = lambda name: after.get(name, 0) - before.get(name, 0)
    assert (grown(LEASES % "granted"), grown(LEASES % "discarded"), grown(TAIL)) == (1, 1, 97)


def test_explain():
    proves("ALLOC-7.2-07")
    a = api()
    ref = target(a)
    text = explain(ref)
    assert "none: no id was given yet" in text and "not in memory" in text, text
    heat(a, ref)
    a.allocate(ref, None, None)
    told = json.loads(explain(ref, "--json"))
    stored, lane = told["stored"], told["lane"]
    assert (stored["next_doc_id"], stored["owned_here"]) == ("200", True)
    assert (stored["lease"]["start"], stored["lease"]["end"]) == ("100", "200")
    assert (lane["state"], lane["owned"], lane["next_doc_id"], lane["lease_next_doc_id"]) == ("ready", True, "200", "102")
    assert lane["range_ids"] == "100" and lane["leasing"] == "hot" and lane["hot_per_second"] == "3"
    text = explain(ref)
    for line in ("lease                    100 up to 200", "next id of the lease     102", "leasing                  hot",
                 "last explicit id         not since it is in memory", "burned: lease_tail       0", "pending applies          0",
                 "owned", "range being reserved     none"):
        assert line in text, (line, text)
    a.allocate(ref, 300)
    told = json.loads(explain(ref, "--json"))
    lane = told["lane"]
    assert lane["leasing"] == "explicit_ids_lately" and "lease" not in lane and int(lane["last_explicit_unix_ms"]) > 0
    assert {b["reason"]: int(b.get("ids", 0)) for b in lane["burned"]} == {
        "explicit_gap": 100, "lost_race": 0, "not_durable": 0, "lease_tail": 98}
    for bad in ("", "7", "0/1", "1/2/3", "a"):
        assert SERVER.sfctl("alloc", "explain", bad).returncode == 2, bad
    unknown = SERVER.sfctl("alloc", "explain", "nobody/nothing")
    assert unknown.returncode == 1 and b"SF_RESOURCE_NOT_FOUND" in unknown.stderr, unknown


def test_many_callers_and_a_kill():
    proves("ALLOC-13.2-01", "ALLOC-13.2-02", "ALLOC-5.3-13", "ALLOC-5.3-14")
    a = api()
    ref = target(a)
    heat(a, ref)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        given = [doc_id for answer in pool.map(lambda _: a.allocate(ref, None, None), range(400)) for doc_id in ids(answer)]
    assert len(set(given)) == 800 and min(given) == 100
    # 800 ids came out of some ten ranges; without them every group of requests would have written the state
    assert int(state(a, ref)["allocator_state_version"]) < 3 + 20
    end = next_id(a, ref)
    assert max(given) < end
    SERVER.kill()
    SERVER.start()
    a = api()
    assert ids(a.allocate(ref, None)) == [end]
    assert "lease" not in state(a, ref)
    burned(lambda: a.allocate(ref, end - 1), end - 1)


def test_off():
    proves("ALLOC-7.2-07")
    plain = server("allocator: {leases: false, lease_hot_per_s: 1}\n")
    plain.start()
    a = Api(plain)
    ref = target(a)
    for at in range(30):
        assert ids(a.allocate(ref, None)) == [at]
    assert "lease" not in state(a, ref) and next_id(a, ref) == 30
    plain.stop()


run(globals())
