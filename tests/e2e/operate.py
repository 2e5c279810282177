"""Operating the server: configuration, the folder's lock, signals, health, lost projection, kill -9 under mixed load, sfctl."""
import base64
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time

import grpc

from catalog_calls import caught_up, put_namespace
from harness import (ASYNC, BIN, DURABLE, INDEX, PAGE, ROOT, VISIBLE, Api, Stream, batch, durable, error_of, free_ports, fresh, ids, keyring, meta,
                     operations, parse_rows, private, proves, refused, row, run, server, sf, sfctl, sign, unwrap, wait_for)

SERVER = server()
SERVER.start()


def daemon(*words, timeout=20):
    return subprocess.run([str(BIN / "searchfabricd"), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=timeout)


def config(text):
    file = tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=SERVER.folder, delete=False)
    file.write(text)
    file.close()
    return file.name


def es(one, method, path, body=None, key=None, timeout=10):
    connection = http.client.HTTPConnection("127.0.0.1", one.es_port, timeout=timeout)
    try:
        headers = {"Content-Type": "application/x-ndjson" if "_bulk" in path else "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        raw = answer.read()
        return answer.status, json.loads(raw) if raw else None
    finally:
        connection.close()


# ---- start --------------------------------------------------------------------------------------------

def test_check_config():
    good = [config("{}\n"), config("# all defaults\nlog: {}\n"), config("# all defaults\n"), config("data_dir: x\nlog:\n  level: debug\nlisten:\n  grpc: '[::1]:0'\n  es: 127.0.0.2:1\n"),
            str(ROOT / "packaging/searchfabricd.yaml")]
    for path in good:
        out = daemon("--config", path, "--check-config")
        assert (out.returncode, out.stdout, out.stderr) == (0, b"configuration ok\n", b""), (path, out)
    bad = [("", "empty"), ("what: 1\n", "what"), ("listen:\n  grpc: 0.0.0.0:1\n", "loopback"), ("listen:\n  es: 192.168.1.1:9200\n", "loopback"),
           ("listen:\n  admin: '[::]:7401'\n", "loopback"), ("listen:\n  grpc: 127.0.0.1\n", "host:port"),
           ("listen:\n  grpc: example.org:1\n", "listen.grpc"), ("listen:\n  grpc: 127.0.0.1:65536\n", "listen.grpc"),
           ("exec:\n  workers: 0\n", "exec.workers"), ("exec:\n  workers: -1\n", "exec.workers"), ("exec:\n  workers: 010\n", "exec.workers"),
           ("exec:\n  workers: 1e2\n", "exec.workers"), ("store:\n  lane_shards: 4097\n", "store.lane_shards"),
           ("es:\n  auto_create: maybe\n", "es.auto_create"), ("es:\n  namespace: \"a\\u200bb\"\n", "es.namespace"),
           ("log:\n  level: loud\n", "log.level"), ("roles: [nothing]\n", "nothing"), ("roles: [ccs]\n", "all"), ("data_dir: ''\n", "data_dir"),
           ("commit:\n  duplicate_window_ms: 1\n", "commit.duplicate_window_ms"),
           ("allocator: {lease_min_ids: 9, lease_max_ids: 8}\n", "allocator.lease_min_ids"), ("allocator: {leases: 1}\n", "allocator.leases"), ("a: [\n", ""), ("- x\n", ""),
           ("limits:\n  rpc_message_bytes: 99999999\n", "limits.rpc_message_bytes"), ("data_dir: a\ndata_dir: b\n", "data_dir"),
           ("catalog: {quota: {classes: [{name: a}, {name: a}]}}\n", "catalog.quota.classes[1]: quota class a is given twice"),
           ("catalog: {quota: {classes: [{name: a, query_qps: {burst_units: 0}}]}}\n", "classes[0].query_qps.burst_units"),
           ("catalog: {namespace_policies: [{quota_class: gold}]}\n", "catalog.namespace_policies[0].quota_class: namespace policy '' names no quota class: gold"),
           ("catalog: {callers: [{identity: a, roles: [king]}]}\n", "catalog.callers[0].roles: there is no role 'king'"),
           ("catalog: {callers: [{identity: a}, {identity: a}]}\n", "catalog.callers[1]: caller a is given twice"),
           ("catalog: {callers: [{identity: 'searchfabric:allocator'}]}\n", "catalog.callers[0].identity")]
    for text, word in bad:
        path = config(text)
        out = daemon("--config", path, "--check-config")
        message = out.stderr.decode()
        told = path if text.startswith("catalog:") else ""  # a table's error names the file
        assert out.returncode == 2 and message.startswith(f"searchfabricd: {told}") and word in message and not out.stdout, (text, out)
        assert len(message.splitlines()) == 1, message
    # A key that nothing reads is refused by name.
    path = config("log: {}\nweather:\n  sunny_ms: 3600000\n")
    out = daemon("--config", path, "--check-config")
    assert out.returncode == 2 and f"searchfabricd: {path}:".encode() in out.stderr and b"key: weather" in out.stderr, out
    out = daemon("--config", str(SERVER.folder / "no-such-file"), "--check-config")
    assert out.returncode == 2 and b"no-such-file" in out.stderr


def test_command_line():
    proves("ALLOC-3.4-02")
    for words in (["--nonsense"], ["word"], ["--grpc-port", "65536"], ["--grpc-port", "x"], ["--role", "nothing"], ["--role", "ccs"],
                  ["--admit-client-kind", "5"]):
        out = daemon(*words)
        assert out.returncode == 2 and out.stderr, (words, out)
    out = daemon("--help")
    assert out.returncode == 0 and b"--check-config" in out.stdout and b"SIGTERM" in out.stdout
    # No option and no key of the configuration admits another kind of client to allocation.
    assert b"profile" not in out.stdout and b"kind" not in out.stdout
    assert daemon("--version").stdout.startswith(b"searchfabricd ")


def test_roles():
    each = "ccs", "allocator", "coordinator", "tso", "ingest", "es-gateway"
    for words in each + ("ccs,tso", ",".join(each[1:])):
        out = daemon("--role", words, "--data-dir", str(SERVER.folder / "never"))
        assert out.returncode == 2 and out.stderr.decode().startswith("searchfabricd: --role: this build runs all roles"), out
        out = daemon("--config", config(f"roles: [{words}]\n"))
        assert out.returncode == 2 and out.stderr.decode().startswith("searchfabricd: roles: this build runs all roles"), out
    assert not (SERVER.folder / "never").exists()
    for words in ("all", ",".join(each), "ccs,all"):
        assert daemon("--role", words, "--check-config").returncode == 0
    assert daemon("--role", "all", "--config", config("roles: [ccs]\n"), "--check-config").returncode == 0


POLICY = """
catalog:
  quota:
    lease_ttl_ms: 60000
    classes:
    - {name: marker-class, ingest_entries: {refill_units_per_second: 1, burst_units: 70}}
  namespace_policies:
  - {name_prefix: "bound-", quota_class: marker-class, policy_profile: marker-profile}
  callers:
  - {identity: loopback, roles: [ingest-gateway, operator]}
"""


def test_quota_policy():
    """A class of the configuration bounds the namespaces bound to it, and is in no public answer; callers lose roles."""
    proves("CCS-2.2-06")
    one = server(POLICY)
    one.start()
    a = Api(one)
    bound, plain = (a.namespace(f"{name}-{fresh()}").namespace_id for name in ("bound", "plain"))

    def lease(ns, request):
        return a.private.AcquireQuotaLease(private.AcquireQuotaLeaseRequest(
            lease=private.QuotaLeaseKey(namespace_id=ns, api_plane=private.API_PLANE_WRITE, throttled_dimension="ingest_entries",
                                        lease_holder_id="gw", lease_request_id=request), requested_units=90), timeout=10)

    seen = []
    name = f"bound-{fresh()}"
    seen.append(a.catalog.PutNamespaceMetadata(put_namespace(name), timeout=10))
    assert lease(bound, "r1").granted_units == 70 and lease(plain, "r1").granted_units == 90
    refused("SF_RATE_LIMITED", lambda: lease(bound, "r2"), "rate_limited")
    made = a.collection(bound)
    seen += [made, a.catalog.ListNamespaces(sf.ListNamespacesRequest(meta=meta("")), timeout=10),
             a.catalog.GetNamespaceMetadata(sf.GetNamespaceMetadataRequest(meta=meta(""), namespace_id=bound), timeout=10),
             a.catalog.GetCollectionMetadata(sf.GetCollectionMetadataRequest(meta=meta(""), collection=made.collection), timeout=10),
             a.catalog.ListCollections(sf.ListCollectionsRequest(meta=meta(""), namespace_id=bound), timeout=10)]
    for call in (lambda: a.catalog.PutNamespaceMetadata(put_namespace("bound-\x01"), timeout=10),
                 lambda: a.catalog.GetNamespaceMetadata(sf.GetNamespaceMetadataRequest(meta=meta(""), namespace_name="bound-x"), timeout=10),
                 lambda: a.catalog.GetCollectionSchema(sf.GetCollectionSchemaRequest(meta=meta(""), collection=made.collection), timeout=10)):
        try:
            raise AssertionError(call())
        except grpc.RpcError as error:
            seen.append(error.details() + str(error.trailing_metadata()))
    assert len(seen) == 9 and not [answer for answer in seen if "marker" in str(answer)], seen

    # A role that loopback was not given.
    refused("SF_FORBIDDEN", lambda: a.private.ReportIngestPressure(private.ReportIngestPressureRequest(), timeout=10))

    out = sfctl("--server", one.address, "quota", "show", str(bound))
    assert out.returncode == 0 and b"marker" not in out.stdout, out
    lines = [line.split() for line in out.stdout.decode().splitlines()]
    assert ["ingest_entries", "1", "70"] in [line[:3] for line in lines] and ["ingest_entries", "gw", "r1", "70"] in [
        line[:4] for line in lines], lines
    shown = json.loads(sfctl("--server", one.address, "--json", "quota", "show", str(plain)).stdout)
    assert shown["leases"][0]["granted_units"] == "90" and shown["state"]["quota_epoch"] == "1", shown
    assert sfctl("--server", one.address, "quota", "show", "nobody").returncode == 1
    assert sfctl("--server", one.address, "quota").returncode == 2
    # Under other budgets at the next start the binding stays.
    one.stop()
    one.config.write_text(POLICY.replace("70", "20").replace("bound-", "other-"))
    one.start()
    a = Api(one)

    def granted():
        try:
            return lease(bound, "r3").granted_units
        except grpc.RpcError as error:
            assert error_of(error).code == "SF_RATE_LIMITED", error
            return 0

    assert wait_for(granted, "the refill") <= 20
    one.stop()


def first_frame(one, timeout=5):
    """Type and payload of the first frame a gRPC connection sends; None when it is closed without one. And the connection."""
    peer = socket.create_connection(("127.0.0.1", one.grpc_port), timeout=timeout)
    file = peer.makefile("rb")
    head = file.read(9)
    if len(head) < 9:
        peer.close()
        return None, None
    return (head[3], file.read(int.from_bytes(head[:3], "big"))), peer


def test_every_key_reaches_its_part():
    """Values unlike the defaults, and of each one what it changes."""
    folder = tempfile.mkdtemp(dir=SERVER.folder)
    base = "log:\n  level: {level}\n  file: {folder}/own.log\n".format
    text = f"""
keyring: {folder}/own-ring.yaml
exec: {{reactors: 3, workers: 5}}
store: {{lane_shards: 7, coordinator_shards: 3}}
es: {{namespace: own, auto_create: true}}
commit: {{duplicate_window_ms: 60000, wal_flush_ms: 3, wal_chunk_bytes: 65536}}
limits: {{rpc_message_bytes: 65536, rpc_connections: 4, rpc_streams_per_conn: 5, es_connections: 3, es_body_bytes: 65536}}
"""
    ring = pathlib.Path(folder) / "own-ring.yaml"
    ring.write_bytes((SERVER.data / "keyring.yaml").read_bytes())
    ring.chmod(0o600)
    one = server(text + base(level="info", folder=folder), folder=folder)
    one.start()
    a = Api(one)
    log = (pathlib.Path(folder) / "own.log").read_text()
    assert "server_ready" in log and not one.log() and not (one.data / "keyring.yaml").exists()
    assert re.search(r"store_open .*catalog_lane_shards=7 coordinator_shards=3", log), log
    assert len(a.operations.GetStatus(operations.GetStatusRequest(), timeout=5).coordinator_shards) == 3
    threads = len(os.listdir(f"/proc/{one.process.pid}/task"))

    # es: the namespace of the indexes; an unknown index is made; one body, connections at once.
    assert es(one, "POST", "/unknown/_doc", "{}")[0] == 201
    assert a.catalog.GetNamespaceMetadata(sf.GetNamespaceMetadataRequest(meta=meta(""), namespace_name="own"), timeout=5)
    assert es(one, "POST", "/unknown/_doc", json.dumps({"t": "x" * 65000}))[0] == 201
    assert es(one, "POST", "/unknown/_doc", json.dumps({"t": "x" * 65536}))[0] == 413
    peers = [socket.create_connection(("127.0.0.1", one.es_port), timeout=5) for _ in range(3)]
    for peer in peers:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert peer.recv(1)
    more = socket.create_connection(("127.0.0.1", one.es_port), timeout=5)
    assert more.recv(1) == b""
    for peer in peers + [more]:
        peer.close()

    # commit: what the stream is told, and no chunk beyond the size by more than the frame that crosses it.
    ref = a.ready_collection()
    stream = Stream(a)
    assert stream.opened.duplicate_window_ms == 60000
    for turn in range(40):
        stream.send(batch(ref, row(turn, b'{"t":"' + b"x" * 20000 + b'"}', INDEX)))
    assert not [ack for ack in (stream.receive().ack for _ in range(40)) if ack.HasField("error")]
    stream.close()
    sizes = [size for key, size in a.keys().items() if "wal" in key]
    assert sizes and sum(sizes) > 800_000 and max(sizes) < 65536 + 24_000, sizes

    # limits of gRPC: the message of a client, calls of a connection, connections.
    listing = "/searchfabric.v1.CatalogControlService/ListNamespaces"
    refused("SF_BAD_REQUEST", lambda: a.raw(listing, b"x" * 65536))  # fits: field 15 alone, again and again
    refused("SF_TOO_MANY_OPERATIONS", lambda: a.raw(listing, b"x" * 65537),
            keys={"limit_scope": "rpc_message_bytes", "configured_limit": "65536", "requested_value": None})
    one.close_channels()
    wait_for(lambda: "searchfabric_rpc_server_connections 0" in one.get("/metrics")[1], "the channel is gone")
    peers = []
    for _ in range(4):
        (kind, settings), peer = first_frame(one)
        assert kind == 4 and b"\0\3\0\0\0\5" in settings, settings  # SETTINGS_MAX_CONCURRENT_STREAMS
        peers.append(peer)
    assert first_frame(one) == (None, None)
    for peer in peers:
        peer.close()
    assert one.stop() == 0

    # exec: two loops and four threads less. log: from the level on.
    less = one.config.read_text().replace("reactors: 3, workers: 5", "reactors: 1, workers: 1")
    one.config.write_text(less.replace("level: info", "level: warn"))
    before = (pathlib.Path(folder) / "own.log").read_text()
    one.start()
    after = (pathlib.Path(folder) / "own.log").read_text()[len(before):]
    assert "server_ready" in before and "server_ready" not in after
    assert threads - len(os.listdir(f"/proc/{one.process.pid}/task")) >= 6
    assert one.stop() == 0
    # store: fixed when the store is made.
    one.config.write_text(less.replace("lane_shards: 7", "lane_shards: 8"))
    out = daemon(*one.command()[1:])
    assert out.returncode == 1 and b"lane" in out.stderr, out


def test_folder_is_locked():
    out = daemon("--data-dir", str(SERVER.data), "--grpc-port", "0", "--admin-port", "0", "--es-port", "0")
    assert out.returncode == 1, out
    assert f"process {SERVER.process.pid}" in out.stderr.decode() and str(SERVER.data) in out.stderr.decode()
    assert SERVER.alive() and SERVER.get("/readyz")[0] == 200
    probe = sfctl("store", "probe", str(SERVER.data / "store"))
    assert probe.returncode != 0 and SERVER.alive()


def test_port_in_use():
    folder = tempfile.mkdtemp(dir=SERVER.folder)
    out = daemon("--data-dir", folder, "--grpc-port", str(SERVER.grpc_port), "--admin-port", "0", "--es-port", "0")
    assert out.returncode == 1 and out.stderr, out
    out = daemon("--data-dir", folder, "--grpc-port", "0", "--admin-port", "0", "--es-port", str(SERVER.es_port))
    assert out.returncode == 1 and out.stderr, out


def test_key_ring_file():
    mode = stat.S_IMODE((SERVER.data / "keyring.yaml").stat().st_mode)
    assert mode == 0o600
    other = server(folder=tempfile.mkdtemp(dir=SERVER.folder))
    other.start()
    other.stop()
    path = other.data / "keyring.yaml"
    path.chmod(0o644)
    assert daemon(*other.command()[1:]).returncode == 1  # others may read the keys
    path.chmod(0o600)
    path.write_text("keys: nonsense\n")
    out = daemon(*other.command()[1:])
    assert out.returncode == 1 and b"key" in out.stderr, out


def test_listens_on_loopback_only():
    listening = []
    for file in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in open(file).read().splitlines()[1:]:
            fields = line.split()
            address, port = fields[1].split(":")
            if fields[3] == "0A" and int(port, 16) in (SERVER.grpc_port, SERVER.admin_port, SERVER.es_port):
                listening.append(address)
    assert listening and set(listening) == {"0100007F"}, listening


# ---- health -------------------------------------------------------------------------------------------

def test_health_and_metrics():
    proves("ALLOC-13.3-03")
    for path in ("/healthz", "/readyz"):
        status, body = SERVER.get(path)
        assert status == 200, body
        got = json.loads(body)
        assert got["status"] == "ok"
        assert {worker["name"] for worker in got["workers"]} >= {"store", "tso", "ccs", "allocator", "coordinator", "ingest",
                                                                "es-gateway", "grpc"}
        assert {worker["state"] for worker in got["workers"]} == {"serving"}
    assert SERVER.get("/nothing")[0] == 404
    a = Api(SERVER)
    check = a.channel.unary_unary("/grpc.health.v1.Health/Check")
    assert check(b"", timeout=5) == b"\x08\x01"  # SERVING
    assert check(b"\x0a\x22searchfabric.v1.IdAllocatorService", timeout=5) == b"\x08\x01"
    try:
        check(b"\x0a\x04none", timeout=5)
        raise AssertionError("health of an unknown service")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND
    ref = a.ready_collection()
    a.allocate(ref, None)
    status, text = SERVER.get("/metrics")
    assert status == 200
    types = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE "))
    for name, kind in (("requests_total", "counter"), ("latency_ms", "histogram"), ("plan_items_total", "counter"),
                       ("replay_total", "counter"), ("ccs_dependency_latency_ms", "histogram"),
                       ("state_conflict_retry_total", "counter")):
        assert types["searchfabric_id_allocator_" + name] == kind
    # What the process asks of its store and its oracle is counted.
    stream = Stream(a)
    assert not stream.put(batch(ref, row(0, b"{}", INDEX))).HasField("error")
    stream.close()
    counted = SERVER.metrics()
    assert sum(value for name, value in counted.items() if name.startswith("searchfabric_object_requests_total{")) > 0
    assert counted["searchfabric_tso_batches_total"] > 0 and counted["searchfabric_tso_batch_timestamps_total"] > 0
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \S+ .*|[a-z_:]+(\{([a-z_]+="[^"]*",?)*\})? -?[0-9.e+-]+(Inf|NaN)?|', line), line


def test_status():
    a = Api(SERVER)
    one = a.operations.GetStatus(operations.GetStatusRequest(), timeout=5)
    assert one.process_id == SERVER.process.pid and one.data_dir == str(SERVER.data)
    assert (one.grpc_port, one.admin_port, one.es_port) == (SERVER.grpc_port, SERVER.admin_port, SERVER.es_port)
    assert one.store_id and one.start_duration_ms > 0 and len(one.coordinator_shards) == 16
    assert all(shard.leading for shard in one.coordinator_shards)
    assert {worker.state for worker in one.workers} == {operations.WORKER_STATE_SERVING}
    assert abs((one.tso_now >> 18) - time.time() * 1000) < 60_000
    assert a.operations.GetStatus(operations.GetStatusRequest(), timeout=5).tso_now > one.tso_now


# ---- signals ------------------------------------------------------------------------------------------

def test_sigterm_drains():
    one = server(folder=tempfile.mkdtemp(dir=SERVER.folder))
    one.start()
    a = Api(one)
    name = fresh("i")
    assert es(one, "PUT", f"/{name}")[0] == 200
    ns = a.namespace()
    ref = a.ready_collection(ns.namespace_id, "c", policy=sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED)
    allocated = a.ready_collection(ns.namespace_id, "a")
    documents, acked, answers, stop = {}, {}, {}, threading.Event()

    def write(number):
        for at in range(100_000):
            if stop.is_set():
                return
            body = b'{"w":%d,"n":%d}' % (number, at)
            try:
                status, answer = es(one, "POST", f"/{name}/_doc", body, f"{number}-{at}")
            except (OSError, http.client.HTTPException):
                return
            if status == 201:
                documents[int(answer["_id"])] = body
            else:
                assert status in (429, 503), answer

    def stream(number):
        try:
            call = Stream(Api(one), timeout=30)
            for at in range(100_000):
                doc_id = number * 1_000_000 + at
                ack = call.put(batch(ref, row(doc_id, b'{"d":%d}' % doc_id), stream=f"s{number}"))
                if ack.HasField("error"):
                    assert ack.error.code == "SF_BACKEND_UNAVAILABLE", ack.error
                    return
                acked[doc_id] = (ack.ranges[0].commit_ts, b'{"d":%d}' % doc_id)
        except (grpc.RpcError, StopIteration, ValueError):
            return

    def allocate(number):
        b = Api(one)
        for at in range(100_000):
            try:
                answers[f"{number}-{at}"] = b.allocate(allocated, None, key=f"{number}-{at}").SerializeToString()
            except (grpc.RpcError, ValueError):
                return

    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        work = [pool.submit(job, number) for number in range(3) for job in (write, stream, allocate)]
        time.sleep(1.0)
        channels, one.channels = one.channels, []
        started = time.monotonic()
        code = one.stop()
        took = time.monotonic() - started
        stop.set()
        for job in work:
            job.result()
        for channel in channels:
            channel.close()
    assert code == 0 and took < 15, (code, took)
    assert min(len(documents), len(acked), len(answers)) > 10, (len(documents), len(acked), len(answers))
    one.start()
    a = Api(one)
    assert es(one, "POST", f"/{name}/_doc?refresh=true", b'{"last":1}')[0] == 201
    visible = {doc_id: body for doc_id, (_, body) in parse_rows(one.sfctl("rows", f"demo/{name}", "--raw").stdout).items()}
    for doc_id, body in documents.items():
        assert visible.get(doc_id) == body, doc_id
    last = Stream(a)
    last.put(batch(ref, row(10**12, b"{}"), visibility=VISIBLE))
    visible = parse_rows(one.sfctl("rows", f"{ns.namespace_name}/c", "--raw").stdout)
    for doc_id, want in acked.items():
        assert visible.get(doc_id) == want, doc_id
    for key, answer in answers.items():
        assert a.allocate(allocated, None, key=key).SerializeToString() == answer
    taken = [doc_id for answer in answers.values() for doc_id in ids(sf.AllocateIdsSuccessResponse.FromString(answer))]
    assert len(taken) == len(set(taken))
    last.close()


def test_sigterm_with_idle_peers():
    one = server(folder=tempfile.mkdtemp(dir=SERVER.folder))
    one.start()
    stream = Stream(Api(one))
    idle = http.client.HTTPConnection("127.0.0.1", one.es_port)
    idle.request("GET", "/")
    idle.getresponse().read()
    one.channels = []
    started = time.monotonic()
    assert one.stop() == 0 and time.monotonic() - started < 15
    try:
        stream.receive()
        raise AssertionError("an answer after the end")
    except (grpc.RpcError, StopIteration):
        pass


def test_key_rotation():
    proves("CCS-10.2-15")
    one = server(folder=tempfile.mkdtemp(dir=SERVER.folder))
    one.start()
    a = Api(one)
    ns = a.namespace().namespace_id
    for name in "abc":
        a.collection(ns, name)
    ref = a.ready_collection(ns, "d")
    answer = a.allocate(ref, None)

    def page(token=""):
        return a.catalog.ListCollections(sf.ListCollectionsRequest(
            meta=meta(), namespace_id=ns, page=sf.PageRequest(page_size=1, page_token=token)), timeout=10)

    def rejected(token, reason):
        refused("SF_BAD_REQUEST", lambda: page(token), "page_token",
                page_token_reason=getattr(sf, "PAGE_TOKEN_REASON_" + reason.upper()))

    def wrap(raw):
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    def ring(text, want="keyring_reloaded"):
        before = one.log().count(want)
        path = one.data / "keyring.yaml"
        path.write_text(text)
        one.signal(signal.SIGHUP)
        wait_for(lambda: one.log().count(want) > before, want)

    first = page()
    old = first.next_page.token
    (old_id, old_secret, _), = keyring(one)
    raw = base64.urlsafe_b64decode(old + "=" * (-len(old) % 4))
    family, _, issued, expires, claims = unwrap(raw)
    proves("CCS-10.2-17")
    assert first.next_page.expires_at_unix_ms == expires
    assert family == PAGE and expires - issued == 900_000 and wrap(sign(one, PAGE, claims, issued, expires)) == old
    # Of the right key and out of its time; one ms of the future is enough to serve.
    now = int(time.time() * 1000)
    rejected(wrap(sign(one, PAGE, claims, now - 900_000, now - 1)), "expired")
    assert page(wrap(sign(one, PAGE, claims, now, now + 60_000))).collections[0].collection_name == "b"
    rejected(wrap(sign(one, PAGE, claims, now, now + 60_000, key=("other", b"x" * 32, ""))), "unknown_key")
    rejected(wrap(sign(one, PAGE, claims, now, now + 60_000, key=(old_id, b"x" * 32, ""))), "signature")
    rejected(wrap(sign(one, 2, claims, now, now + 60_000)), "malformed")
    # Another authenticated caller.
    proves("CCS-10.2-10")
    theirs = durable.PageTokenClaims.FromString(claims)
    theirs.authenticated_client_identity_hash = "0" * 64
    rejected(wrap(sign(one, PAGE, theirs.SerializeToString(), now, now + 60_000)), "binding_mismatch")
    fresh_key = f"keys:\n  - id: fresh\n    secret: {'ab' * 32}\n    state: signing\n"
    # A broken file leaves the ring in force.
    for broken in ("nonsense", fresh_key.replace("signing", "what"), fresh_key.replace("ab" * 32, "abc"), ""):
        ring(broken, "keyring_reload_failed")
        assert page(old).collections[0].collection_name == "b"
    # In overlap the old key verifies; when the window is over it does not; retired it verifies receipts only.
    entry = f"{fresh_key}  - id: {old_id}\n    secret: {old_secret.hex()}\n    state: "
    ring(f"{entry}overlap\n    verify_until_unix_ms: {int(time.time() * 1000) + 60_000}\n")
    assert page(old).collections[0].collection_name == "b"
    assert unwrap(base64.urlsafe_b64decode(page().next_page.token + "=="))[1] == "fresh"
    ring(f"{entry}overlap\n    verify_until_unix_ms: {int(time.time() * 1000) - 1}\n")
    rejected(old, "unknown_key")
    ring(f"{entry}retired\n")
    rejected(old, "unknown_key")
    stream = Stream(a)
    ack = stream.put(batch(ref, row(0, b"{}"), receipt=answer.allocator_receipt))
    assert not ack.HasField("error"), ack.error
    again = a.allocate(ref, None)
    assert unwrap(again.allocator_receipt)[1] == "fresh"
    assert not stream.put(batch(ref, row(1, b"{}"), receipt=again.allocator_receipt)).HasField("error")
    ring(fresh_key)  # without it, what it signed no longer verifies
    third = a.allocate(ref, None)
    stream.refused(batch(ref, row(0, b"{}"), receipt=answer.allocator_receipt), "SF_BAD_REQUEST", "ingest",
                   reason=sf.INGEST_REJECTION_REASON_RECEIPT_INVALID)
    assert not stream.put(batch(ref, row(2, b"{}"), receipt=third.allocator_receipt)).HasField("error")
    stream.close()


# ---- what survives ------------------------------------------------------------------------------------

def test_lost_projection():
    proves("CCS-1-02", "CCS-11-01")
    one = server(folder=tempfile.mkdtemp(dir=SERVER.folder))
    one.start()
    a = Api(one)
    requests, answers = [], []
    spaces = [a.namespace(f"n{n}").namespace_id for n in range(4)]
    for at in range(120):
        request = sf.PutCollectionMetadataRequest(
            meta=meta(f"k{at}"), name_binding=sf.CollectionNameBinding(namespace_id=spaces[at % 4], collection_name=f"c{at // 8}"),
            encryption=sf.EncryptionPolicy(provider_managed=sf.ProviderManagedEncryption()),
            options=sf.DescriptorOptions(entries={"at": str(at)}))
        requests.append(request)
        answers.append(a.catalog.PutCollectionMetadata(request).SerializeToString())
    refs = [sf.PutCollectionMetadataResponse.FromString(answer).descriptor.collection for answer in answers[::8]]
    for at, ref in enumerate(refs):
        for version in range(1, at % 3 + 2):
            a.schema(ref, version, f"t{version}")
            if at % 2:
                a.signal(ref, version, f"t{version}")

    def picture():
        b = caught_up(Api(one))
        out = []
        for ns in spaces:
            out.append(b.catalog.GetNamespaceMetadata(sf.GetNamespaceMetadataRequest(meta=meta(), namespace_id=ns)))
            out.append(b.catalog.ListCollections(sf.ListCollectionsRequest(meta=meta(), namespace_id=ns)))
        for ref in refs:
            out.append(b.catalog.GetCollectionSchema(sf.GetCollectionSchemaRequest(meta=meta(), collection=ref)))
            out.append(b.catalog.GetSchemaSyncStatus(sf.GetSchemaSyncStatusRequest(meta=meta(), collection=ref)))
        return [answer.SerializeToString() for answer in out]

    def revisions():
        b = Api(one)
        return [b.private.ResolveCollectionNameBinding(private.ResolveCollectionNameBindingRequest(
            name_binding=sf.CollectionNameBinding(namespace_id=ns, collection_name="c0"))).collection_name_binding_revision
            for ns in spaces]

    before, bound = picture(), revisions()
    for lose in (lambda: one.stop(), one.kill):
        lose()
        for path in one.data.glob("projection.sqlite*"):
            path.unlink()
        one.start()
        assert picture() == before
        now = revisions()
        # A binding cached before the loss cannot be revalidated; a rebuild of the same commands may show the same number.
        assert all(after > was for after, was in zip(now, bound)), (bound, now)
        b = Api(one)
        for request, answer in zip(requests, answers):
            assert b.catalog.PutCollectionMetadata(request).SerializeToString() == answer
    one.crash()
    assert picture() == before


def test_kills_under_mixed_load():
    """Allocations, streamed rows and Elasticsearch writes by clients that retry under their keys, while the server is killed."""
    proves("COORD-7.2-06")
    one = server(folder=tempfile.mkdtemp(dir=SERVER.folder))
    one.start()
    a = Api(one)
    index = fresh("i")
    assert es(one, "PUT", f"/{index}")[0] == 200
    ns = a.namespace()
    required = sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED
    ref = a.ready_collection(ns.namespace_id, "rows", policy=required)
    issued = a.ready_collection(ns.namespace_id, "issued")
    stop = threading.Event()
    documents, rows, answers, created = {}, {}, {}, {}
    again = (grpc.RpcError, StopIteration, ValueError, OSError, http.client.HTTPException)

    def until_done(call):
        while True:
            try:
                return call()
            except again as error:
                if isinstance(error, grpc.RpcError):
                    assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED,
                                            grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL), error
                time.sleep(0.03)

    def write(number):
        for at in range(10**6):
            if stop.is_set():
                return
            bodies = [b'{"w":%d,"n":%d,"k":%d}' % (number, at, k) for k in range(5)]

            def once():
                status, answer = es(one, "POST", f"/{index}/_bulk", b"".join(b'{"index":{}}\n' + body + b"\n" for body in bodies),
                                    f"{number}-{at}")
                if status != 200 or answer["errors"]:
                    raise OSError(f"{status} {answer}")
                return [int(item["index"]["_id"]) for item in answer["items"]]
            for doc_id, body in zip(until_done(once), bodies):
                assert doc_id not in documents
                documents[doc_id] = body

    def stream(number):
        call = None
        for at in range(10**6):
            if stop.is_set():
                return
            doc_id = number * 10**6 + at
            body = b'{"d":%d}' % doc_id
            sent = batch(ref, row(doc_id, body), stream=f"s{number}", batch_id=str(at), durability=DURABLE,
                         visibility=random.choice([ASYNC, VISIBLE]))

            def once():
                nonlocal call
                try:
                    call = call or Stream(Api(one), timeout=20)
                    ack = call.put(sent)
                except again:
                    call = None
                    raise
                if ack.HasField("error"):
                    assert ack.error.code in ("SF_BACKEND_UNAVAILABLE", "SF_RATE_LIMITED"), ack.error
                    raise OSError(ack.error.code)
                return ack.ranges[0].commit_ts
            rows[doc_id] = (until_done(once), body)

    def allocate(number):
        for at in range(10**6):
            if stop.is_set():
                return
            plan = [None, None] if at % 4 else [None, 10**7 * (at + 1) + number]
            key = f"{number}-{at}"

            def once():
                try:
                    return Api(one).allocate(issued, *plan, key=key, timeout=5).SerializeToString()
                except grpc.RpcError as error:
                    if error.code() in (grpc.StatusCode.ABORTED, grpc.StatusCode.RESOURCE_EXHAUSTED):
                        return None  # another client's explicit id moved the watermark
                    raise
            answer = until_done(once)
            if answer is not None:
                answers[key] = (plan, answer)

    def create(number):
        for at in range(10**6):
            if stop.is_set():
                return
            name, key = f"made-{number}-{at}", fresh()
            request = sf.PutCollectionMetadataRequest(
                meta=meta(key), name_binding=sf.CollectionNameBinding(namespace_id=ns.namespace_id, collection_name=name),
                encryption=sf.EncryptionPolicy(provider_managed=sf.ProviderManagedEncryption()))
            answer = until_done(lambda: Api(one).catalog.PutCollectionMetadata(request, timeout=5))
            created[name] = (request, answer.SerializeToString())
            time.sleep(0.01)

    rng = random.Random(int(os.environ.get("SF_SEED", "1")))
    restarts = []
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        work = [pool.submit(job, number) for number in range(2) for job in (write, stream, allocate, create)]
        for _ in range(8):
            time.sleep(rng.uniform(0.05, 0.6))
            one.signal(signal.SIGKILL)
            one.process.wait()
            restarts.append(one.start())
        time.sleep(0.3)
        stop.set()
        for job in work:
            job.result()
    one.close_channels()
    a = Api(one)
    # Every write was retried until it was acknowledged: what is visible is exactly the model.
    assert es(one, "POST", f"/{index}/_doc?refresh=true", b'{"last":1}')[0] == 201
    visible = {doc_id: body for doc_id, (_, body) in parse_rows(one.sfctl("rows", f"demo/{index}", "--raw").stdout).items()}
    visible.pop(max(visible))
    assert visible == documents
    last = Stream(a)
    last.put(batch(ref, row(10**12, b"{}"), visibility=VISIBLE))
    last.close()
    seen = parse_rows(one.sfctl("rows", f"{ns.namespace_name}/rows", "--raw").stdout)
    del seen[10**12]
    assert seen == rows
    taken = {}
    for key, (plan, answer) in answers.items():
        assert a.allocate(issued, *plan, key=key).SerializeToString() == answer
        for doc_id in ids(sf.AllocateIdsSuccessResponse.FromString(answer)):
            assert taken.setdefault(doc_id, key) == key, doc_id
    for name, (request, answer) in created.items():
        assert a.catalog.PutCollectionMetadata(request).SerializeToString() == answer
    found = []
    token = ""
    while True:
        page = a.catalog.ListCollections(sf.ListCollectionsRequest(meta=meta(), namespace_id=ns.namespace_id, prefix="made-",
                                                                   page=sf.PageRequest(page_token=token)))
        found += [one_.collection_name for one_ in page.collections]
        token = page.next_page.token
        if not token:
            break
    assert sorted(created) == sorted(found)
    print(f"       {len(documents)} documents, {len(rows)} rows, {len(answers)} allocations, {len(created)} collections; "
          f"restart ms: {', '.join(f'{ms:.0f}' for ms in restarts)}")
    assert min(len(documents), len(rows), len(answers), len(created)) > 5


# ---- sfctl --------------------------------------------------------------------------------------------

def ok(*words, stdin=None):
    out = SERVER.sfctl(*words, stdin=stdin)
    assert out.returncode == 0, (words, out)
    return out.stdout.decode()


def test_sfctl_catalog():
    ns = fresh("ns")
    one = json.loads(ok("--json", "namespace", "create", ns))
    namespace_id = (one.get("descriptor") or one)["namespace_id"]
    assert int(namespace_id) > 0
    assert namespace_id in ok("--json", "namespace", "get", ns) and ns in ok("namespace", "get", ns)
    assert ns in ok("namespace", "list", "--prefix", ns) and ns in ok("--json", "namespace", "list", "--prefix", ns)
    path = f"{ns}/books"
    assert "collection_id" in ok("--json", "collection", "create", path)
    assert "books" in ok("collection", "list", ns) and "books" in ok("collection", "get", path)
    made = ok("--json", "schema", "create", path)
    assert json.loads(made)
    assert "ALLOCATOR_OPTIONAL" in ok("--json", "schema", "get", path) and "applying" in ok("schema", "list", ns)
    ok("schema", "report-ready", path)
    assert "ready" in ok("schema", "list", ns)
    definition = json.dumps({"collection_truth_mode": "COLLECTION_TRUTH_MODE_SEARCH_FABRIC",
                             "doc_id_mapping": {"generation_policy": "DOC_ID_GENERATION_POLICY_CALLER_REQUIRED"}})
    file = SERVER.folder / "definition.json"
    file.write_text(definition)
    ok("schema", "create", path, "--file", str(file), "--schema-version", "2", "--token", "second")
    assert "second" in ok("schema", "get", path)
    ok("schema", "create", path, "--file", "-", "--schema-version", "3", stdin=definition.encode())
    # The same key again is the same answer; with another payload it is a refusal.
    key = fresh()
    first = ok("--json", "--key", key, "collection", "create", f"{ns}/again")
    assert ok("--json", "--key", key, "collection", "create", f"{ns}/again") == first


def test_sfctl_data():
    ns = "demo"
    name = fresh("load")
    path = f"{ns}/{name}"
    ok("collection", "create", path)
    ok("schema", "create", path)
    ok("schema", "report-ready", path)
    got = ok("--json", "alloc", path, "--issue", "2", "--explicit", "7", "--issue", "1")
    assert re.findall(r'"u64": ?"(\d+)"', got) == ["0", "1", "7", "8"], got
    assert "18" in ok("alloc", path, "--explicit", "18")
    file = SERVER.folder / "docs.ndjson"
    docs = [b'{"n":%d}' % n for n in range(777)]
    file.write_bytes(b"".join(doc + b"\n" for doc in docs))
    log = SERVER.folder / "acks"
    load = ("--json", "--key", fresh(), "load", str(file), "--index", name, "--es", f"127.0.0.1:{SERVER.es_port}", "--wait", "--batch", "100",
            "--ack-log", str(log))
    summary = json.loads(ok(*load))
    assert (summary["documents"], summary["acknowledged"], summary["refused"]) == (777, 777, 0)
    first = log.read_text()
    ok(*load)
    assert log.read_text() == first or log.read_text() == first * 2  # the first ids again
    rows = parse_rows(SERVER.sfctl("rows", path, "--raw").stdout)
    assert [body for _, (_, body) in sorted(rows.items())] == docs
    head = json.loads(ok("--json", "rows", path, "--count"))
    assert int(head["manifest_version"]) > 0 and int(head["safe_ts"]) >= max(ts for ts, _ in rows.values())
    lines = [json.loads(line) for line in ok("--json", "rows", path, "--limit", "3").splitlines()]
    assert len([line for line in lines if "doc_id" in line]) == 3, lines
    assert '{"n":0}' in ok("rows", path, "--limit", "1")
    # Explicit ids that are burned: some documents were refused.
    out = SERVER.sfctl("load", str(file), "--index", name, "--es", f"127.0.0.1:{SERVER.es_port}", "--first-id", "0")
    assert out.returncode == 4, out
    keys = ok("object", "ls", "id-allocator/").split()
    state = next(key for key in keys if "/state/" in key)
    assert json.loads(ok("object", "cat", state))["next_doc_id"]
    assert SERVER.sfctl("object", "cat", state, "--raw").stdout == Api(SERVER).object(state)
    segment = ok("object", "ls", "catalog-recovery-segments/").split()
    zipped = next(key for key in segment if key.endswith(".zst"))
    assert json.loads(ok("object", "cat", zipped))["format_version"], ok("object", "cat", zipped)[:500]
    assert SERVER.sfctl("object", "cat", zipped, "--raw").stdout == Api(SERVER).object(zipped)
    assert str(SERVER.process.pid) in ok("status")
    assert json.loads(ok("--json", "status"))["process_id"] == SERVER.process.pid
    probe = sfctl("store", "probe", str(SERVER.folder / "probe"))
    assert probe.returncode == 0, probe


def test_sfctl_json_is_json():
    """Every line of every command's --json is one JSON value, whatever stands in keys, documents and objects."""
    name = fresh("json")
    path = f"demo/{name}"
    file = SERVER.folder / "json.ndjson"
    file.write_bytes(b'{"quote":"\\"","text":"\xc3\xbc"}\n{"a" : 1 }\n')
    commands = [("collection", "create", path), ("schema", "list", "demo"), ("schema", "create", path), ("schema", "get", path),
                ("schema", "report-ready", path), ("schema", "list", "demo"), ("namespace", "list"), ("namespace", "get", "demo"),
                ("collection", "list", "demo"), ("collection", "get", path), ("alloc", path, "--issue", "1"),
                ("--key", fresh() + 'a"b', "load", str(file), "--index", name, "--es", f"127.0.0.1:{SERVER.es_port}", "--wait"),
                ("rows", path), ("status",), ("object", "ls"), ("store", "probe", str(SERVER.folder / "json-probe"))]
    for words in commands:
        lines = ok("--json", *words).splitlines()
        assert lines, words
        for line in lines:
            json.loads(line)
    rows = [json.loads(line) for line in ok("--json", "rows", path).splitlines()]
    assert [row.get("body") for row in rows[:2]] == [{"quote": '"', "text": "\u00fc"}, {"a": 1}] and rows[2]["visible_rows"] == "2", rows
    wal = ok("object", "ls", "wal/").split()[1]
    assert bytes.fromhex(json.loads(ok("--json", "object", "cat", wal))["body_hex"]) == Api(SERVER).object(wal)
    store = json.loads(ok("--json", "object", "cat", "control/store.json"))
    assert store["body"]["store_id"] and int(store["size_bytes"]) == len(Api(SERVER).object("control/store.json"))
    # A schema list tells a collection without a schema from one that could not be asked.
    bare = fresh("bare")
    ok("collection", "create", f"demo/{bare}")
    states = {row["collection_name"]: row["state"] for row in map(json.loads, ok("--json", "schema", "list", "demo").splitlines())}
    assert states[bare] is None and states[name] == "ready", states


def test_sfctl_lists():
    """Every list takes --limit, wherever its pages end; a namespace is given by name or by id."""
    ns = fresh("lists")
    a = Api(SERVER)
    made = a.namespace(ns)
    names = sorted(a.collection(made.namespace_id, f"c{n:04}").collection_name for n in range(7))
    ok("schema", "create", f"{ns}/{names[0]}")
    ok("schema", "report-ready", f"{ns}/{names[0]}")
    ok("checkpoint", "create")

    def shown(*words):
        return [json.loads(line) for line in ok("--json", *words).splitlines()]

    for given in (ns, str(made.namespace_id)):
        for command in ("collection", "schema"):
            for limit in (1, 3, 7, 8):
                got = [one["collection_name"] for one in shown(command, "list", given, "--limit", str(limit))]
                assert got == names[:limit], (command, limit, got)
            assert [one["collection_name"] for one in shown(command, "list", given, "-p", "c000", "-l", "2")] == names[:2]
        assert shown("namespace", "get", given)[0]["namespace_name"] == ns
        assert shown("collection", "get", f"{given}/{names[1]}")[0]["collection_name"] == names[1]
    assert SERVER.sfctl("namespace", "get", "12345").returncode == 1  # digits are an id
    for _ in range(2):
        a.namespace(fresh(f"{ns}-more"))
    everything = shown("namespace", "list")
    assert len(everything) > 3 and shown("namespace", "list", "--limit", "3") == everything[:3]
    assert len(shown("namespace", "list", "-p", ns, "-l", "2")) == 2 and len(shown("namespace", "list", "-p", ns)) == 3
    objects = shown("object", "ls")
    assert len(objects) > 30
    for limit in (1, 30, len(objects) + 1):
        assert [one["key"] for one in shown("object", "ls", "-l", str(limit))][:10] == [one["key"] for one in objects[:min(limit, 10)]]
    assert len(shown("object", "ls", "-l", "30")) == 30
    assert len(shown("checkpoint", "list", "-l", "1")) == 1
    assert len(shown("stats", "show", f"{ns}/{names[0]}", "-l", "1")[0]["snapshots"]) == 1
    for words in (("namespace", "list"), ("collection", "list", ns), ("schema", "list", ns), ("object", "ls"), ("checkpoint", "list"),
                  ("stats", "show", "a/b"), ("stats", "windows", "a/b"), ("rows", "a/b"), ("catalog", "release-sweep")):
        for bad in ("0", "-1", "x", "4294967296"):
            out = SERVER.sfctl(*words, "--limit", bad)
            assert out.returncode == 2 and b"--limit wants" in out.stderr, (words, bad, out)


def test_sfctl_flags_are_uniform():
    """A letter stands for one long name and a long name for one thing in all commands and before them."""
    commands = re.findall(r"^  (\w+) ", sfctl("--help").stdout.decode().split("Commands:")[1], re.MULTILINE)
    assert len(commands) == 18, commands
    letters, kinds = {}, {}
    for words in [()] + [(command,) for command in commands] + [("alloc", "verify"), ("alloc", "restore-mark")]:
        text = sfctl(*words, "--help").stdout.decode()
        flags = re.findall(r"^  (?:-(.), |    )--([a-z-]+)(?:=(\S+))?", text, re.MULTILINE)
        assert ("?", "help", "") in flags, (words, text)
        for letter, name, kind in flags:
            assert kinds.setdefault(name, kind) == kind, (words, name, kind, kinds[name])
            if letter:
                assert letters.setdefault(letter, name) == name, (words, letter, name, letters[letter])
    assert {letter: letters[letter] for letter in "lnNpr"} == {"l": "limit", "n": "dry-run", "N": "namespace", "p": "prefix", "r": "raw"}
    documented = (ROOT / "docs/operations/sfctl.md").read_text()
    for letter, name in letters.items():
        assert letter in "?V" or f"| `-{letter}` | `--{name}" in documented, (letter, name)


def test_sfctl_refuses_slips():
    file = SERVER.folder / "slip.json"
    file.write_text('{"settings":{"allocator_admission_policy":{"max_plan_items":"1"}}}')
    for words in (("schema", "create", "demo/x", "--file", str(file)), ("alloc", "demo/x", "--issue", "0"),
                  ("--key", "a\r\nb", "status"), ("--key", "k" * 108, "status"), ("--server", "::1:7400", "status"),
                  ("load", str(file), "--index", "i", "--first-id", "18446744073709551615000")):
        out = SERVER.sfctl(*words)
        assert out.returncode == 2 and out.stderr.startswith(b"sfctl") and not out.stdout, (words, out)
    # After an error worth a retry the made-up key is told.
    silent, = free_ports(1)
    out = sfctl("--server", f"127.0.0.1:{silent}", "--timeout", "2000", "namespace", "create", "x")
    assert out.returncode == 3 and b"--key" in out.stderr, out


def test_sfctl_exit_codes():
    # 1: the server refused; code, message and details are told.
    for words, code in ((("namespace", "get", fresh()), "SF_RESOURCE_NOT_FOUND"), (("namespace", "create", "a\u200bb"), "SF_BAD_REQUEST"),
                        (("schema", "create", f"demo/{fresh()}"), "SF_RESOURCE_NOT_FOUND")):
        out = SERVER.sfctl(*words)
        assert out.returncode == 1 and code in out.stderr.decode() and not out.stdout, (words, out)
    out = SERVER.sfctl("namespace", "create", "a\u200bb")
    assert "violation" in out.stderr.decode() and "default_ignorable" in out.stderr.decode()
    assert SERVER.sfctl("object", "cat", "no/such/key").returncode == 1
    # 2: wrong arguments; nothing was sent.
    for words in ((), ("nothing",), ("namespace",), ("namespace", "what"), ("namespace", "create"), ("collection", "create", "no-slash"),
                  ("alloc", "a/b", "--issue", "x"), ("alloc", "a/b", "--explicit", "-1"), ("load",), ("load", "/no/such/file", "--index", "i"),
                  ("rows",), ("object",), ("store",), ("--server", "nowhere", "status"), ("--timeout", "0", "status"), ("--nonsense",),
                  ("rows", "a/b", "--limit", "x"), ("--timeout", "5x", "status")):
        out = SERVER.sfctl(*words)
        assert out.returncode == 2 and out.stderr and not out.stdout, (words, out)
    # 3: no answer, or an error worth a retry.
    silent, = free_ports(1)
    out = sfctl("--server", f"127.0.0.1:{silent}", "--timeout", "2000", "status")
    assert out.returncode == 3 and out.stderr, out
    bare = fresh("bare")
    ok("collection", "create", f"demo/{bare}")
    out = SERVER.sfctl("alloc", f"demo/{bare}", "--issue", "1")
    assert out.returncode == 3 and "schema_bootstrap" in out.stderr.decode(), out
    for words in ((), ("namespace",), ("collection",), ("schema",), ("alloc",), ("load",), ("rows",), ("status",), ("object",), ("store",)):
        out = sfctl(*words, "--help")
        text = out.stdout.decode()
        assert out.returncode == 0 and text.startswith("Usage: sfctl") and len(text.splitlines()) > 5, (words, text[:80])
    assert sfctl("--version").stdout.startswith(b"sfctl ")


run(globals())
