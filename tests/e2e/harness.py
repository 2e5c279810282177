"""What the end-to-end tests share: the real server and sfctl, stubs made from the contract, errors, records.

A test is a function `test_*` of a module that ends with `run(globals())`. Each file starts servers of its own on free
ports in a temporary folder and stops them by their own pid. `proves(ids...)` in a test's body notes requirement ids;
they are appended as `id<TAB>file/test` to the file in SF_PROVED_FILE once the test has passed, and not otherwise.

Environment: SF_BIN_DIR (folder of searchfabricd and sfctl), SF_STUB_DIR (where stubs are made).
"""
import fcntl
import hashlib
import hmac
import json
import os
import pathlib
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request

import grpc

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(os.environ.get("SF_BIN_DIR", ROOT / "build/release/bin"))
STUBS = pathlib.Path(os.environ.get("SF_STUB_DIR", tempfile.gettempdir() + "/sf-e2e-stubs"))
PROTO = ROOT / "api/proto"
READY_TIMEOUT_S = 30
MAX_U64 = (1 << 64) - 1


def make_stubs():
    """Generates Python stubs of the whole contract into STUBS, once per change of the contract."""
    protos = sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("**/*.proto")
                    if "reflection" not in path.parts)
    STUBS.mkdir(parents=True, exist_ok=True)
    with open(STUBS / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = STUBS / "stamp"
        newest = max((PROTO / path).stat().st_mtime for path in protos)
        if not stamp.exists() or stamp.stat().st_mtime < newest:
            subprocess.run(["protoc", f"-I{PROTO}", f"--python_out={STUBS}", f"--grpc_python_out={STUBS}",
                            "--plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin", *protos], check=True)
            stamp.touch()
    sys.path.insert(0, str(STUBS))


make_stubs()

# pylint: disable=wrong-import-position
from google.rpc import status_pb2  # noqa: E402  made from the contract, or the system's own
from searchfabric.v1 import (catalog_operations_private_pb2 as catalog_operations,
                             catalog_operations_private_pb2_grpc as catalog_operations_grpc,
                             catalog_control_private_pb2 as private, catalog_control_private_pb2_grpc as private_grpc,  # noqa: E402
                             commit_coordinator_pb2_grpc as coordinator_grpc, commit_coordinator_pb2 as coordinator,
                             durable_pb2 as durable, operations_private_pb2 as operations, operations_private_pb2_grpc as operations_grpc,
                             search_fabric_pb2 as sf, search_fabric_pb2_grpc as sf_grpc)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


class Server:
    """One searchfabricd over a data folder that outlives its processes."""

    def __init__(self, config="", demo=True, folder=None):
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="sf-e2e-"))
        self.data = self.folder / "data"
        self.grpc_port, self.admin_port, self.es_port = free_ports(3)
        self.process = None
        self.demo = demo
        self.config = None
        if config:
            self.config = self.folder / "config.yaml"
            self.config.write_text(config)
        self.channels = []

    @property
    def address(self):
        return f"127.0.0.1:{self.grpc_port}"

    def command(self, *more):
        words = [str(BIN / "searchfabricd"), "--data-dir", str(self.data), "--grpc-port", str(self.grpc_port),
                 "--admin-port", str(self.admin_port), "--es-port", str(self.es_port)]
        if self.config:
            words += ["--config", str(self.config)]
        if self.demo:
            words += ["--demo"]
        return words + list(more)

    def start(self, *more):
        """Starts and waits until ready; returns the milliseconds that took."""
        self.folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        with open(self.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(self.command(*more), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while True:
            if self.get("/readyz")[0] == 200:
                return (time.monotonic() - started) * 1000
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}: {self.log()[-2000:]}")
            if time.monotonic() - started > READY_TIMEOUT_S:
                raise AssertionError(f"not ready after {READY_TIMEOUT_S} s: {self.log()[-2000:]}")
            time.sleep(0.005)

    def log(self):
        return (self.folder / "server.log").read_text(errors="replace")

    def get(self, path):
        """(status, body text) of the admin port; (0, "") when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metrics(self):
        """Series of /metrics: name with labels as printed -> value."""
        series = {}
        for line in self.get("/metrics")[1].splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                series[name] = float(value)
        return series

    def alive(self):
        return self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.close_channels()

    def stop(self, timeout=30):
        """SIGTERM; returns the exit code."""
        self.close_channels()
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server did not end within {timeout} s of SIGTERM") from None

    def restart(self):
        """Graceful stop, then start."""
        code = self.stop()
        assert code == 0, f"exit code {code} after SIGTERM"
        return self.start()

    def crash(self):
        """kill -9, then start; returns the milliseconds of the start."""
        self.kill()
        return self.start()

    def close_channels(self):
        for channel in self.channels:
            channel.close()
        self.channels = []

    def channel(self):
        # A port that was closed for a moment is tried again at once; every channel has its own connection.
        channel = grpc.insecure_channel(self.address, options=[
            ("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200),
            ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)])
        self.channels.append(channel)
        return channel

    def sfctl(self, *words, stdin=None):
        return sfctl("--server", self.address, *words, stdin=stdin)

    def rss_kib(self):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise AssertionError("no VmRSS")

    def cleanup(self):
        try:
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
                self.process.wait()
        finally:
            self.close_channels()
            if not os.environ.get("SF_KEEP"):
                shutil.rmtree(self.folder, ignore_errors=True)


def sfctl(*words, stdin=None, timeout=60):
    return subprocess.run([str(BIN / "sfctl"), *words], input=stdin, stdin=None if stdin else subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout)


def parse_rows(raw):
    """Output of `sfctl rows --raw`: id -> (commit_ts, body); an id that is there twice fails."""
    rows = {}
    at = 0
    while at < len(raw):
        end = raw.index(b"\n", at)
        doc_id, commit_ts, length = raw[at:end].split(b"\t")
        body = raw[end + 1:end + 1 + int(length)]
        assert len(body) == int(length) and raw[end + 1 + int(length):end + 2 + int(length)] == b"\n"
        assert int(doc_id) not in rows, f"id {int(doc_id)} is visible twice"
        rows[int(doc_id)] = (int(commit_ts), body)
        at = end + 2 + int(length)
    return rows


# ---- errors -----------------------------------------------------------------------------------------

# The mapping of the contract's error table.
GRPC_STATUS = {
    "SF_BAD_REQUEST": grpc.StatusCode.INVALID_ARGUMENT, "SF_INVALID_ARGUMENT": grpc.StatusCode.INVALID_ARGUMENT,
    "SF_UNAUTHENTICATED": grpc.StatusCode.UNAUTHENTICATED, "SF_FORBIDDEN": grpc.StatusCode.PERMISSION_DENIED,
    "SF_RESOURCE_NOT_FOUND": grpc.StatusCode.NOT_FOUND, "SF_IDEMPOTENCY_CONFLICT": grpc.StatusCode.ALREADY_EXISTS,
    "SF_VERSION_CONFLICT": grpc.StatusCode.ABORTED, "SF_OWNERSHIP_CONFLICT": grpc.StatusCode.FAILED_PRECONDITION,
    "SF_TOO_MANY_OPERATIONS": grpc.StatusCode.RESOURCE_EXHAUSTED, "SF_RATE_LIMITED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "SF_CATALOG_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE, "SF_BACKEND_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "SF_UNIMPLEMENTED": grpc.StatusCode.UNIMPLEMENTED,
}


def error_of(rpc_error):
    """The one ErrorStatus of a refused call."""
    details = [value for key, value in rpc_error.trailing_metadata() or () if key == "grpc-status-details-bin"]
    assert len(details) == 1, f"{rpc_error.code()} {rpc_error.details()}: {len(details)} details"
    status = status_pb2.Status.FromString(details[0])
    assert status.code == rpc_error.code().value[0], (status.code, rpc_error.code())
    assert len(status.details) == 1, status
    error = sf.ErrorStatus()
    assert status.details[0].Unpack(error), status.details[0].type_url
    return error


def branch_of(error):
    """Dotted path of the typed context branch and its message; ("", None) when there is none."""
    message, path = error.context, []
    while True:
        name = next((oneof.name for oneof in message.DESCRIPTOR.oneofs
                     if not oneof.name.startswith("_") and message.WhichOneof(oneof.name)), None)
        if name is None or message.DESCRIPTOR.full_name.endswith("DocumentID"):
            return ".".join(path), message if path else None
        path.append(message.WhichOneof(name))
        message = getattr(message, path[-1])


def check_error(error, code, branch=None, keys=None, **typed):
    """`keys`: the exact diagnostics, None = any value; `typed`: fields of the context branch."""
    assert error.code == code, f"{error.code}, not {code}: {error.message} {dict(error.diagnostics)}"
    path, message = branch_of(error)
    if branch is not None:
        assert path == branch, f"context {path!r}, not {branch!r}: {error}"
    for name, value in typed.items():
        assert getattr(message, name) == value, f"{path}.{name} is {getattr(message, name)!r}, not {value!r}"
    if keys is not None:
        assert set(error.diagnostics) == set(keys), f"diagnostics {dict(error.diagnostics)}, keys {set(keys)}"
        for key, value in keys.items():
            assert value is None or error.diagnostics[key] == value, f"{key}={error.diagnostics[key]}, not {value}"
    return error


def refused(code, call, branch=None, keys=None, **typed):
    """The call must be refused exactly so; returns the ErrorStatus."""
    try:
        answer = call()
    except grpc.RpcError as rpc_error:
        assert rpc_error.code() == GRPC_STATUS[code], f"{rpc_error.code()}: {rpc_error.details()}"
        return check_error(error_of(rpc_error), code, branch, keys, **typed)
    raise AssertionError(f"answered instead of {code}: {answer}")


def refused_field(call, field, violation, code="SF_BAD_REQUEST"):
    return refused(code, call, "bad_request", {"field": field, "violation": violation}, field=field,
                   violation=violation)


# ---- clients ----------------------------------------------------------------------------------------

KEYS = iter(range(1, 1 << 62))


def fresh(prefix="k"):
    """A text no other call of this process returned."""
    return f"{prefix}-{os.getpid()}-{next(KEYS)}"


ADMIN = sf.CLIENT_KIND_CONTROL_ADMIN
ES = sf.CLIENT_KIND_ES_WRITE_GATEWAY
DDL = sf.CLIENT_KIND_TIDB_DDL_ADAPTER
MANAGED = sf.EncryptionPolicy(provider_managed=sf.ProviderManagedEncryption())


def meta(key="", kind=ADMIN, client="e2e", **more):
    return sf.RequestMeta(idempotency_key=key, client_id=client, client_kind=kind, **more)


class Api:
    """The services over one connection."""

    def __init__(self, server):
        self.channel = server.channel()
        self.catalog = sf_grpc.CatalogControlServiceStub(self.channel)
        self.catalog_operations = catalog_operations_grpc.CatalogOperationsServiceStub(self.channel)
        self.private = private_grpc.CatalogControlPrivateServiceStub(self.channel)
        self.allocator = sf_grpc.IdAllocatorServiceStub(self.channel)
        self.ingest = sf_grpc.IngestGatewayServiceStub(self.channel)
        self.operations = operations_grpc.OperationsServiceStub(self.channel)
        self.coordinator = coordinator_grpc.CommitCoordinatorServiceStub(self.channel)

    def raw(self, method, body):
        """Any bytes as a request; returns the answer's bytes."""
        call = self.channel.unary_unary(method, request_serializer=None, response_deserializer=None)
        return call(body, timeout=20)

    def namespace(self, name=None):
        request = sf.PutNamespaceMetadataRequest(meta=meta(fresh()), namespace_name=name or fresh("ns"),
                                                 encryption=MANAGED)
        return self.catalog.PutNamespaceMetadata(request, timeout=20).descriptor

    def collection(self, namespace_id, name=None, kind=ADMIN):
        request = sf.PutCollectionMetadataRequest(
            meta=meta(fresh(), kind), encryption=MANAGED,
            name_binding=sf.CollectionNameBinding(namespace_id=namespace_id, collection_name=name or fresh("c")))
        return self.catalog.PutCollectionMetadata(request, timeout=20).descriptor

    def schema(self, ref, version=1, token=None, kind=ADMIN, key=None, fence=None, **more):
        request = schema_request(ref, version, token, kind, key, fence, **more)
        return self.catalog.PutCollectionSchema(request, timeout=20).schema

    def signal(self, ref, version, token, signal=private.SCHEMA_CONVERGENCE_SIGNAL_SERVING_GENERATION_READY, reason=""):
        return self.private.ReportSchemaConvergenceSignal(private.ReportSchemaConvergenceSignalRequest(
            collection=ref, schema_version=version, schema_generation_token=token, signal=signal, reason=reason),
            timeout=20)

    def ready_collection(self, namespace_id=None, name=None, **more):
        """A collection with schema version 1, token "t1"."""
        if namespace_id is None:
            namespace_id = self.namespace().namespace_id
        ref = self.collection(namespace_id, name).collection
        self.schema(ref, 1, "t1", **more)
        return ref

    def allocate(self, ref, *items, key=None, kind=ES, client="e2e", timeout=30, **more):
        return self.allocator.AllocateIds(plan_request(ref, *items, key=key, kind=kind, client=client, **more),
                                          timeout=timeout)

    def object(self, key):
        """Bytes of a durable object; None when there is none."""
        try:
            body = b""
            while True:
                part = self.operations.GetObject(operations.GetObjectRequest(key=key, offset_bytes=len(body)), timeout=20)
                body += part.body
                if not part.more:
                    return body
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND:
                return None
            raise

    def json_object(self, key):
        body = self.object(key)
        return None if body is None else json.loads(body)

    def keys(self, prefix=""):
        """All keys below a prefix -> size."""
        out, after = {}, ""
        while True:
            part = self.operations.ListObjects(operations.ListObjectsRequest(prefix=prefix, start_after=after), timeout=20)
            for entry in part.objects:
                out[entry.key] = entry.size_bytes
                after = entry.key
            if not part.more:
                return out


def definition(items=1000, jump=1000, policy=sf.DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL,
               mode=sf.COLLECTION_TRUTH_MODE_SEARCH_FABRIC, fields=(), **more):
    out = sf.CollectionSchemaDefinition(collection_truth_mode=mode, fields=fields,
                                        doc_id_mapping=sf.DocIDMapping(generation_policy=policy), **more)
    if policy == sf.DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL:
        out.settings.allocator_admission_policy.CopyFrom(sf.AllocatorAdmissionPolicy(
            caller_profile=sf.ALLOCATOR_CALLER_PROFILE_ES_WRITE_GATEWAY_ONLY, max_plan_items_per_request=items,
            max_forward_reservation_jump=jump))
    return out


def schema_request(ref, version=1, token=None, kind=ADMIN, key=None, fence=None, ddl=0, update_policy=0, body=None, **more):
    request = sf.PutCollectionSchemaRequest(
        meta=meta(key or fresh(), kind), collection=ref, schema_version=version,
        fence=fence or sf.SchemaFencePrecondition(schema_generation_token=token or f"t{version}"),
        definition=body or definition(**more), ddl_commit_ts=ddl, active_schema_update_policy=update_policy)
    return request


def plan_request(ref, *items, key=None, kind=ES, client="e2e", route=sf.ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT):
    """Items: None = issue, a number = that explicit id."""
    plan = sf.AllocationPlan()
    for item in items:
        if item is None:
            plan.items.add().issue.SetInParent()
        else:
            plan.items.add().explicit_doc_id.u64 = item
    return sf.AllocateIdsRequest(meta=meta(key or fresh(), kind, client), collection=ref, route_intent=route, plan=plan)


CREATE, INDEX, UPSERT, PATCH, DELETE = (sf.ROW_OP_CREATE, sf.ROW_OP_INDEX, sf.ROW_OP_UPSERT, sf.ROW_OP_PATCH, sf.ROW_OP_DELETE)
INGEST_ACK, DURABLE = sf.DURABILITY_POLICY_INGEST_ACK, sf.DURABILITY_POLICY_WAL_CHUNK_DURABLE
ASYNC, VISIBLE = sf.VISIBILITY_POLICY_ASYNC, sf.VISIBILITY_POLICY_WAIT_FOR_VISIBLE


def row(doc_id, body=b"", op=CREATE, **more):
    mutation = sf.RowMutation(op=op, body=body, **more)
    if doc_id is not None:
        mutation.doc_id.u64 = doc_id
    return sf.MutationEntry(row=mutation)


def batch(ref, *entries, token="t1", batch_id=None, stream="e2e-stream", receipt=b"", durability=DURABLE, visibility=ASYNC,
          **more):
    return sf.MutationBatch(batch_id=batch_id or fresh("b"), stream_identity=stream, collection=ref,
                            schema_generation_token=token, allocator_receipt=receipt, durability=durability,
                            visibility=visibility, entries=entries, **more)


class Stream:
    """One StreamMutations call."""

    def __init__(self, api, kind=ES, client="e2e", open_it=True, timeout=60):
        self.outgoing = queue.Queue()
        self.call = api.ingest.StreamMutations(iter(self.outgoing.get, None), timeout=timeout)
        self.opened = None
        if open_it:
            self.send_open(meta("", kind, client))
            self.opened = self.receive().opened

    def send_open(self, request_meta=None):
        request = sf.StreamMutationsRequest(open=sf.StreamOpen(meta=request_meta))
        if request_meta is None:
            request.open.ClearField("meta")
        self.outgoing.put(request)

    def send(self, one):
        self.outgoing.put(one if isinstance(one, sf.StreamMutationsRequest) else sf.StreamMutationsRequest(batch=one))

    def receive(self):
        return next(self.call)

    def put(self, one):
        """Sends a batch and returns its acknowledgement."""
        self.send(one)
        ack = self.receive().ack
        assert ack.batch_id == one.batch_id and ack.stream_identity == one.stream_identity and ack.collection == one.collection
        assert ack.HasField("error") == (ack.gate == sf.ACK_GATE_UNSPECIFIED)
        return ack

    def refused(self, one, code, branch=None, keys=None, **typed):
        """The batch must be refused exactly so and the stream live on."""
        ack = self.put(one)
        assert ack.HasField("error"), f"admitted instead of {code}: {ack}"
        assert not ack.ranges and not ack.committed_manifest_version
        return check_error(ack.error, code, branch, keys, **typed)

    def close(self):
        """Half-close; returns the acknowledgements that were still to come. The call must end with OK."""
        self.outgoing.put(None)
        rest = [response.ack for response in self.call]
        assert self.call.code() == grpc.StatusCode.OK, self.call.code()
        return rest


def ids(answer):
    return [item.doc_id.u64 for item in answer.realized_doc_ids]


def sha256_hex(text):
    return hashlib.sha256(text.encode()).hexdigest()


def state_key(ref):
    return f"id-allocator/state/{sha256_hex(str(ref.namespace_id))[:2]}/{ref.namespace_id}/{ref.collection_id}.json"


def keyring(server_):
    """Keys of a server's ring as written by it: (id, secret, state)."""
    words = (server_.data / "keyring.yaml").read_text().split()
    value = lambda name: [words[at + 1].strip('"') for at, word in enumerate(words) if word == name]
    return list(zip(value("id:"), (bytes.fromhex(secret) for secret in value("secret:")), value("state:")))


PAGE, RECEIPT = 1, 2


def sign(server_, family, claims, issued_ms, expires_ms=0, key=None):
    """The signed wrapper: version, family, key id, issued, expires, claims, HMAC-SHA256 over all of it."""
    key_id, secret, _ = key or next(one for one in keyring(server_) if one[2] == "signing")
    body = (bytes([1, family, len(key_id)]) + key_id.encode() + issued_ms.to_bytes(8, "big") +
            expires_ms.to_bytes(8, "big") + len(claims).to_bytes(4, "big") + claims)
    return body + hmac.new(secret, body, hashlib.sha256).digest()


def unwrap(token):
    """(family, key id, issued ms, expires ms, claims) of a signed wrapper, unverified."""
    at = 3 + token[2]
    size = int.from_bytes(token[at + 16:at + 20], "big")
    assert token[0] == 1 and len(token) == at + 20 + size + 32
    return (token[1], token[3:at].decode(), int.from_bytes(token[at:at + 8], "big"),
            int.from_bytes(token[at + 8:at + 16], "big"), token[at + 20:at + 20 + size])


def ids_digest(items):
    """What a receipt attests: per item the id as 8 bytes big-endian, then 01 if issued, else 00."""
    return hashlib.sha256(b"".join(doc_id.to_bytes(8, "big") + (b"\1" if issued else b"\0") for doc_id, issued in items)).digest()


def wait_for(condition, what, timeout=10):
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.02)


# ---- runner -----------------------------------------------------------------------------------------

_proved = []
_servers = []


def proves(*requirement_ids):
    """Notes requirement ids of the running test; recorded once it has passed."""
    _proved.extend(requirement_ids)


def server(config="", **more):
    """A server that is cleaned up at the end of the run."""
    one = Server(config, **more)
    _servers.append(one)
    return one


def _record(name):
    path = os.environ.get("SF_PROVED_FILE")
    if path and _proved:
        with open(path, "a") as file:
            file.write("".join(f"{requirement}\t{name}\n" for requirement in _proved))


def run(module):
    """Runs the tests of a module (those named on the command line, else all); the process ends with the verdict."""
    file = pathlib.Path(module["__file__"]).stem
    wanted = sys.argv[1:]
    tests = [(name, function) for name, function in module.items()
             if name.startswith("test_") and callable(function) and (not wanted or name in wanted)]
    failed = []
    proved = set()
    try:
        for name, function in tests:
            _proved.clear()
            started = time.monotonic()
            try:
                function()
            except Exception:  # a failed test is reported, the others still run
                traceback.print_exc()
                failed.append(name)
            else:
                _record(f"{file}/{name}")
                proved.update(_proved)
            verdict = "FAILED" if name in failed else "ok"
            print(f"{verdict:6} {name} ({(time.monotonic() - started) * 1000:.0f} ms)", flush=True)
    finally:
        for one in _servers:
            one.cleanup()
    print(f"{file}: {len(tests) - len(failed)} passed, {len(failed)} failed, {len(proved)} requirement ids proved")
    sys.exit(1 if failed or not tests else 0)
