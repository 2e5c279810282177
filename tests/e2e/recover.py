"""Starts over damaged, old or foreign folders, changed settings and lost keys; calls that are cut off and repeated."""
import concurrent.futures
import http.client
import json
import random
import shutil
import signal
import sqlite3
import subprocess
import time

import grpc

from catalog_calls import admission, caught_up, get_collection, get_namespace, get_schema, get_sync, list_collections, put_collection, put_namespace
from harness import (VISIBLE, Api, Stream, batch, catalog_operations, coordinator, ids, keyring, meta, parse_rows, plan_request, private,
                     proves, refused,
                     row, run, server, sf, state_key, wait_for)

REQUIRED = sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED


def new_server(config="", **more):
    one = server(config, **more)
    one.start()
    return one


def start_fails(one, *more):
    """The start must be refused with exit code 1; returns what it says."""
    out = subprocess.run(one.command(*more), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30)
    assert out.returncode == 1, (out.returncode, out.stderr[-500:])
    return out.stderr.decode()


class World:
    """A catalog with rows and allocations, and what every read of it answers."""

    def __init__(self, one):
        self.one = one
        a = Api(one)
        self.ns = a.namespace()
        self.requests = []
        self.refs = [a.ready_collection(self.ns.namespace_id, f"c{at}", policy=REQUIRED if at % 2 else 1) for at in range(8)]
        self.grow(20)
        stream = Stream(a)
        for at in range(5):
            stream.put(batch(self.refs[1], row(at, b'{"at":%d}' % at), visibility=VISIBLE))
        stream.close()
        self.plan = plan_request(self.refs[0], None, 50, None)
        self.realized = a.allocator.AllocateIds(self.plan).SerializeToString()

    def grow(self, count):
        a = Api(self.one)
        for at in range(count):
            request = put_collection(self.ns.namespace_id, f"g{len(self.requests) // 3}", options={"at": str(at)})
            self.requests.append((request, a.catalog.PutCollectionMetadata(request).SerializeToString()))
        version = len(self.requests)
        a.schema(self.refs[2], version, f"t{version}")
        a.signal(self.refs[2], version, f"t{version}")

    def picture(self):
        a = caught_up(Api(self.one))
        out = [get_namespace(a, namespace_id=self.ns.namespace_id), list_collections(a, self.ns.namespace_id, size=1000)]
        for ref in self.refs:
            out += [get_collection(a, collection=ref), get_schema(a, ref), get_sync(a, ref)]
        out = [one.SerializeToString() for one in out]
        return out, parse_rows(self.one.sfctl("rows", f"{self.ns.namespace_name}/c1", "--raw").stdout)

    def replays(self):
        a = Api(self.one)
        for request, answer in self.requests:
            assert a.catalog.PutCollectionMetadata(request).SerializeToString() == answer
        assert a.allocator.AllocateIds(self.plan).SerializeToString() == self.realized


# ---- the projection -----------------------------------------------------------------------------------

def test_lost_tail_of_the_projection():
    """A power cut takes back the projection's newest transactions: they are replayed."""
    one = new_server()
    world = World(one)
    rng = random.Random(3)
    for turn in range(6):
        world.grow(10)
        before = world.picture()
        one.kill()
        wal = one.data / "projection.sqlite-wal"
        if turn < 2:
            wal.unlink(missing_ok=True)
        elif wal.exists():
            with open(wal, "r+b") as file:  # the tail of the file is gone, or garbage
                size = wal.stat().st_size
                at = rng.randrange(size + 1)
                file.truncate(at)
                if turn % 2:
                    file.seek(0, 2)
                    file.write(rng.randbytes(min(size - at, 5000)))
        (one.data / "projection.sqlite-shm").unlink(missing_ok=True)
        one.start()
        assert world.picture() == before, turn
        world.replays()


def test_old_projection():
    """An older copy of the projection is brought up to date."""
    one = new_server()
    world = World(one)
    one.stop()
    old = one.folder / "old.sqlite"
    shutil.copy(one.data / "projection.sqlite", old)
    one.start()
    world.grow(30)
    before = world.picture()
    one.stop()
    for path in one.data.glob("projection.sqlite*"):
        path.unlink()
    shutil.copy(old, one.data / "projection.sqlite")
    one.start()
    assert world.picture() == before
    world.replays()


def test_old_state_of_a_superseded_generation():
    """A power cut takes back that a generation became READY, and that another superseded it: the first serves again."""
    one = new_server()
    a = Api(one)
    ref = a.collection(a.namespace().namespace_id).collection
    a.schema(ref, 1, "t1")
    one.stop()
    old = one.folder / "old.sqlite"
    shutil.copy(one.data / "projection.sqlite", old)
    one.start()
    a = Api(one)
    a.private.ReportSchemaConvergenceSignal(private.ReportSchemaConvergenceSignalRequest(
        collection=ref, schema_version=1, schema_generation_token="t1",
        signal=private.SCHEMA_CONVERGENCE_SIGNAL_SERVING_GENERATION_READY), timeout=20)
    a.schema(ref, 2, "t2")
    state = admission(a, ref).state
    assert (state.active_schema_version, state.ready_generation_version) == (2, 1)
    one.kill()
    for path in one.data.glob("projection.sqlite*"):
        path.unlink()
    shutil.copy(old, one.data / "projection.sqlite")
    one.start()
    a = Api(one)
    again = admission(a, ref).state
    state.collection_name_binding_revision = again.collection_name_binding_revision
    assert again == state, (again, state)
    assert not a.catalog_operations.CheckCatalog(catalog_operations.CheckCatalogRequest(), timeout=60).problems


def test_broken_projection():
    """A projection that is no database is told, and rebuilt once it is removed; nothing of it is served."""
    one = new_server()
    world = World(one)
    before = world.picture()
    one.stop()
    path = one.data / "projection.sqlite"
    path.write_bytes(b"this is no database" * 1000)
    assert "projection" in start_fails(one)
    for left in one.data.glob("projection.sqlite*"):
        left.unlink()
    one.start()
    assert world.picture() == before
    world.replays()


def test_projection_of_a_newer_release():
    one = new_server()
    one.stop()
    with sqlite3.connect(one.data / "projection.sqlite") as connection:
        connection.execute("INSERT INTO schema_migrations VALUES (1000, 'of the future', ?)", ("0" * 64,))
    connection.close()
    message = start_fails(one)
    assert "projection" in message or "newer" in message, message
    for left in one.data.glob("projection.sqlite*"):
        left.unlink()
    one.start()


# ---- settings, keys, folders --------------------------------------------------------------------------

def test_fixed_settings():
    one = server("store:\n  lane_shards: 8\n  coordinator_shards: 4\n")
    one.start()
    a = Api(one)
    ref = a.ready_collection()
    a.allocate(ref, None)
    one.stop()
    for text, word in (("store:\n  lane_shards: 16\n  coordinator_shards: 4\n", "lane_shards"),
                       ("store:\n  lane_shards: 8\n  coordinator_shards: 5\n", "coordinator_shards")):
        one.config.write_text(text)
        message = start_fails(one)
        assert "shard" in message, message
    one.config.write_text("store:\n  lane_shards: 8\n  coordinator_shards: 4\n")
    one.start()
    assert ids(Api(one).allocate(ref, None)) == [1]


def test_lost_key_ring():
    """Given-out tokens and receipts no longer verify; everything else goes on, replays included."""
    one = new_server()
    a = Api(one)
    ns = a.namespace().namespace_id
    refs = [a.ready_collection(ns, f"c{at}") for at in range(3)]
    token = list_collections(a, ns, size=1).next_page.token
    request = plan_request(refs[0], None, None)
    first = a.allocator.AllocateIds(request)
    old = keyring(one)
    one.stop()
    (one.data / "keyring.yaml").unlink()
    one.start()
    assert keyring(one) != old
    a = Api(one)
    refused("SF_BAD_REQUEST", lambda: list_collections(a, ns, size=1, token=token), "page_token",
            page_token_reason=sf.PAGE_TOKEN_REASON_UNKNOWN_KEY)
    again = a.allocator.AllocateIds(request)
    assert ids(again) == ids(first) == [0, 1]
    stream = Stream(a)
    stream.refused(batch(refs[0], row(0, b"{}"), row(1, b"{}"), receipt=first.allocator_receipt), "SF_BAD_REQUEST", "ingest")
    fresh_one = a.allocate(refs[0], None)
    assert not stream.put(batch(refs[0], row(2, b"{}"), receipt=fresh_one.allocator_receipt)).HasField("error")
    stream.close()


def test_moved_folder():
    one = new_server()
    world = World(one)
    before = world.picture()
    one.stop()
    moved = one.folder / "moved here"
    one.data.rename(moved)
    one.data = moved
    one.start()
    assert world.picture() == before
    world.replays()


def start_locked(one):
    """Starts without waiting, over a projection that is lost and that nobody can write; returns what unlocks it."""
    lock = sqlite3.connect(one.data / "projection.sqlite", isolation_level=None)
    lock.execute("DELETE FROM catalog_lane_shards")
    lock.execute("BEGIN IMMEDIATE")
    before = one.log().count("server_listening")
    with open(one.folder / "server.log", "ab") as log:
        one.process = subprocess.Popen(one.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    deadline = time.monotonic() + 20
    while one.log().count("server_listening") == before:
        assert one.alive() and time.monotonic() < deadline, one.log()[-2000:]
        time.sleep(0.005)
    return lock


def http_of(one, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", one.es_port, timeout=10)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null"), dict(answer.getheaders())
    finally:
        connection.close()


def test_recovery_is_told():
    """While the projection is rebuilt every port answers, and says that it waits for it; then all serve."""
    proves("CCS-11-17", "CCS-11-04", "CCS-11-12")
    one = new_server()
    a = Api(one)
    ns = a.namespace("told")
    names = [a.collection(ns.namespace_id).collection_name for _ in range(200)]
    ref = a.ready_collection(ns.namespace_id, "books")
    assert one.stop() == 0
    lock = start_locked(one)
    a = Api(one)
    health = a.channel.unary_unary("/grpc.health.v1.Health/Check")
    mutation = sf.PutCollectionMetadataRequest(meta=meta("told-1"), encryption=sf.EncryptionPolicy(
        provider_managed=sf.ProviderManagedEncryption()), name_binding=sf.CollectionNameBinding(
            namespace_id=ns.namespace_id, collection_name="later"))
    recovery = {"catalog_unavailable_reason": "recovery"}
    for call in (lambda: get_collection(a, collection=ref), lambda: a.catalog.PutCollectionMetadata(mutation, timeout=5),
                 lambda: admission(a, ref), lambda: a.catalog_operations.ListCatalogJobs(
                     catalog_operations.ListCatalogJobsRequest(), timeout=5)):
        refused("SF_CATALOG_UNAVAILABLE", call, "catalog.catalog_unavailable.recovery", recovery)
    refused("SF_CATALOG_UNAVAILABLE", lambda: a.allocate(ref, None), "", recovery)
    refused("SF_CATALOG_UNAVAILABLE", lambda: Stream(a), "catalog.catalog_unavailable.recovery", recovery)
    refused("SF_BACKEND_UNAVAILABLE", lambda: a.coordinator.GetCollectionWatermarks(
        coordinator.GetCollectionWatermarksRequest(collection=ref), timeout=5), "backend_unavailable",
        {"failing_authority": "coordinator", "outcome_unknown": "false"})
    refused("SF_UNIMPLEMENTED", lambda: a.raw("/searchfabric.v1.NoSuchService/Nothing", b""))
    assert health(b"", timeout=5) == b"\x08\x02"  # NOT_SERVING
    assert health(b"\x0a\x25searchfabric.v1.CatalogControlService", timeout=5) == b"\x08\x02"
    assert one.get("/healthz")[0] == 200
    status, body = one.get("/readyz")
    assert status == 503 and json.loads(body)["reason"] == "recovery", body
    ccs = next(worker for worker in json.loads(body)["workers"] if worker["name"] == "ccs")
    assert ccs["state"] == "starting" and "projection" in ccs["detail"], ccs
    for method, path in (("GET", "/"), ("GET", "/books"), ("POST", "/books/_doc")):
        status, body, headers = http_of(one, method, path, "{}" if method == "POST" else None)
        assert status == 503 and headers["Retry-After"] == "1", (path, status, headers)
        assert "the catalog is recovering [SF_CATALOG_UNAVAILABLE]" in body["error"]["reason"], body
    out = one.sfctl("status")
    assert out.returncode == 0 and b"recovering" in out.stdout and b"brought up to date" in out.stdout, out
    out = one.sfctl("namespace", "list")
    assert out.returncode == 3 and b"starts and recovers" in out.stderr, out
    lock.execute("ROLLBACK")
    lock.close()
    deadline = time.monotonic() + 30
    while one.get("/readyz")[0] != 200:
        assert one.alive() and time.monotonic() < deadline, one.log()[-2000:]
        time.sleep(0.01)
    assert "rebuild" in one.log()
    assert health(b"", timeout=5) == b"\x08\x01"
    assert get_collection(a, collection=ref).collection_name == "books"
    made = a.catalog.PutCollectionMetadata(mutation, timeout=20).descriptor
    assert sorted(names + ["books"]) == sorted(c.collection_name for c in list_collections(a, ns.namespace_id, size=1000).collections
                                               if c.collection_name != "later")
    assert a.catalog.PutCollectionMetadata(mutation, timeout=20).descriptor == made
    assert http_of(one, "GET", "/")[0] == 200
    a.allocate(ref, None)
    one.stop()


def test_signal_during_the_recovery():
    """SIGTERM ends a start that is still recovering; the next one serves."""
    one = new_server()
    assert one.stop() == 0
    lock = start_locked(one)
    assert one.stop(timeout=2) == 0
    lock.execute("ROLLBACK")
    lock.close()
    one.start()
    one.stop()


def test_signal_as_the_start_ends():
    """SIGTERM and SIGHUP count at every moment around readiness: none is lost between two that take signals."""
    one = new_server()
    assert one.stop() == 0
    rng = random.Random(6)
    for turn in range(30):
        before = one.log().count("server_ready")
        with open(one.folder / "server.log", "ab") as log:
            one.process = subprocess.Popen(one.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while one.log().count("server_ready") == before:
            assert one.alive(), one.log()[-2000:]
        time.sleep(rng.choice([0, 0.0002, 0.001]))
        if turn % 3 == 0:
            one.signal(signal.SIGHUP)
        assert one.stop(timeout=10) == 0, turn
    # one that came during the start is kept until there is a key ring to read again
    lock = start_locked(one)
    reloaded = one.log().count("keyring_reloaded")
    one.signal(signal.SIGHUP)
    lock.execute("ROLLBACK")
    lock.close()
    wait_for(lambda: one.log().count("keyring_reloaded") > reloaded or not one.alive(), "the key ring is read again", 30)
    assert one.stop() == 0


def test_interrupted_starts():
    """kill -9 at random moments of the start itself, over and over."""
    one = new_server()
    world = World(one)
    before = world.picture()
    rng = random.Random(5)
    for turn in range(25):
        one.kill()
        if turn % 8 == 7:
            for path in one.data.glob("projection.sqlite*"):
                path.unlink()
        with open(one.folder / "server.log", "ab") as log:
            one.process = subprocess.Popen(one.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        time.sleep(rng.uniform(0, 0.25))
    one.kill()
    took = one.start()
    assert world.picture() == before
    world.replays()
    assert took < 5000, took


# ---- Elasticsearch ------------------------------------------------------------------------------------

def es(one, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", one.es_port, timeout=20)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        raw = answer.read()
        return answer.status, json.loads(raw) if raw else None
    finally:
        connection.close()


def test_index_created_by_many():
    one = new_server()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: es(one, "PUT", "/same"), range(16)))
    statuses = [status for status, _ in answers]
    assert statuses.count(200) == 1 and set(statuses) == {200, 400}, answers
    assert {answer["error"]["type"] for status, answer in answers if status == 400} == {"resource_already_exists_exception"}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        made = [answer["_id"] for _, answer in pool.map(lambda _: es(one, "POST", "/same/_doc", b"{}"), range(50))]
    assert sorted(map(int, made)) == list(range(50))


def test_auto_create():
    one = new_server("es:\n  namespace: auto\n  auto_create: true\n")

    def write(_):
        while True:  # 503 while another one is between collection and schema: come back
            status, answer = es(one, "POST", "/made/_doc?refresh=true", b'{"a":1}')
            if status != 503:
                return status, answer
            time.sleep(0.01)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(write, range(8)))
    assert {status for status, _ in answers} == {201}, answers
    assert sorted(int(answer["_id"]) for _, answer in answers) == list(range(8))
    assert len(parse_rows(one.sfctl("rows", "auto/made", "--raw").stdout)) == 8
    assert es(one, "HEAD", "/made")[0] == 200
    status, answer = es(one, "POST", "/BAD%20NAME/_doc", b"{}")
    assert status in (400, 404) and answer["error"]["type"] in ("invalid_index_name_exception", "index_not_found_exception"), answer


# ---- calls that are cut off ---------------------------------------------------------------------------

def deadlines_and_cancels(config):
    """Sixty plans of two ids, each cut off and repeated; returns the watermark that they leave."""
    one = new_server(config)
    a = Api(one)
    ns = a.namespace()
    ref = a.ready_collection(ns.namespace_id)
    outcomes, given = set(), []
    for at in range(60):
        request = plan_request(ref, None, None)
        call = a.allocator.AllocateIds.future(request, timeout=random.uniform(0.0001, 0.004))
        if at % 3 == 0:
            call.cancel()
        try:
            call.result()
            outcomes.add("answered")
        except grpc.FutureCancelledError:
            outcomes.add("cancelled")
        except grpc.RpcError as error:
            outcomes.add(str(error.code()))
            assert error.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED), error
        answer = a.allocator.AllocateIds(request, timeout=20)
        assert a.allocator.AllocateIds(request, timeout=20).SerializeToString() == answer.SerializeToString()
        given += ids(answer)
        request = put_collection(ns.namespace_id, f"n{at}")
        try:
            a.catalog.PutCollectionMetadata(request, timeout=random.uniform(0.0001, 0.004))
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
        made = a.catalog.PutCollectionMetadata(request, timeout=20)
        assert a.catalog.PutCollectionMetadata(request, timeout=20) == made
    assert len(outcomes) > 1, outcomes
    assert len(a.keys("id-allocator/replay-success/")) == 60 and given == sorted(set(given)) and len(given) == 120
    names = [entry.collection_name for entry in list_collections(a, ns.namespace_id, "n", 1000).collections]
    assert sorted(names) == sorted(f"n{at}" for at in range(60))
    return int(a.json_object(state_key(ref))["next_doc_id"])


def test_deadlines_and_cancels():
    """A call that is cut off may have been carried out; repeated, it is carried out once."""
    assert deadlines_and_cancels("allocator:\n  leases: false\n") == 120  # two ids a plan, each plan once
    assert deadlines_and_cancels("allocator:\n  lease_hot_per_s: 1\n") > 120  # the same from ranges reserved ahead


def test_deadline_that_is_over():
    one = new_server()
    a = Api(one)
    try:
        a.catalog.ListNamespaces(sf.ListNamespacesRequest(meta=meta()), timeout=1e-9)
        raise AssertionError("answered after its deadline")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_small_limits():
    one = new_server("limits:\n  rpc_message_bytes: 65536\n  rpc_streams_per_conn: 4\n  es_body_bytes: 65536\n  es_connections: 2\n")
    a = Api(one)
    ns = a.namespace().namespace_id
    error = refused("SF_TOO_MANY_OPERATIONS", lambda: a.catalog.PutCollectionMetadata(put_collection(
        ns, "c", options={f"k{at}": "v" * 1024 for at in range(64)})))
    assert error.diagnostics["configured_limit"] == "65536"
    ref = a.ready_collection(ns)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:  # more than four at once wait their turn
        got = [doc_id for answer in pool.map(lambda _: a.allocate(ref, None), range(64)) for doc_id in ids(answer)]
    assert sorted(got) == list(range(64))
    assert es(one, "PUT", "/i")[0] == 200
    assert es(one, "POST", "/i/_doc", b'{"a":"' + b"x" * 60000 + b'"}')[0] == 201
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        def write(_):
            for _ in range(100):
                try:
                    return es(one, "POST", "/i/_doc", b"{}")[0]
                except (OSError, http.client.HTTPException):
                    time.sleep(0.02)  # no connection left: come back
            return None
        assert set(pool.map(write, range(32))) == {201}


run(globals())
