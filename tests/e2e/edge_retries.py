"""Retries at the Elasticsearch port: a request under an Idempotency-Key is cut off at every place and sent again; no document is doubled."""
import http.client
import json
import socket
import threading
import time

from harness import Api, definition, fresh, meta, parse_rows, proves, run, server, sf

SERVER = server("es:\n  namespace: demo\n")
SERVER.start()


class Proxy:
    """A port in front of the server that takes one connection and cuts it after so many bytes of the request or the answer."""

    def __init__(self, up=None, down=None):
        self.up, self.down = up, down
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        with self.listener, self.listener.accept()[0] as client, socket.create_connection(("127.0.0.1", SERVER.es_port)) as back:
            back.settimeout(20)
            sent = self.forward(client, back, self.up)
            if self.up is not None and sent >= self.up:
                return  # the request stays cut
            self.forward(back, client, self.down)

    def forward(self, source, to, limit):
        """Until the limit, the end, or (requests) the length that the head names."""
        passed, data = 0, b""
        while limit is None or passed < limit:
            part = source.recv(65536 if limit is None else min(65536, limit - passed))
            if not part:
                break
            to.sendall(part)
            passed += len(part)
            data += part
            head = data.find(b"\r\n\r\n")
            length = next((int(line.split(b":")[1]) for line in data[:max(head, 0)].split(b"\r\n")
                           if line.lower().startswith(b"content-length:")), 0)
            if head >= 0 and len(data) >= head + 4 + length:
                break
        return passed

    def wait(self):
        self.thread.join(30)
        assert not self.thread.is_alive()


def request_bytes(method, path, body, key):
    kind = "application/x-ndjson" if "_bulk" in path else "application/json"
    return (f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nIdempotency-Key: {key}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def exchange(port, data, timeout=20):
    """Sends the bytes; the answer as far as it came."""
    out = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout) as sock:
            sock.sendall(data)
            while True:
                part = sock.recv(65536)
                if not part:
                    return out
                out += part
                head = out.find(b"\r\n\r\n")
                if head >= 0 and len(out) >= head + 4 + int(out[:head].lower().split(b"content-length:")[1].split()[0]):
                    return out
    except (ConnectionError, socket.timeout):
        return out


def send(data):
    """The whole answer: (status, body)."""
    answer = exchange(SERVER.es_port, data)
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def until_answered(data, deadline_s=30):
    """Repeats the request, byte for byte, as a client does."""
    deadline = time.monotonic() + deadline_s
    while True:
        answer = exchange(SERVER.es_port, data)
        head, _, body = answer.partition(b"\r\n\r\n")
        status = int(head.split()[1]) if head else 0
        if status == 0 or status in (429, 503, 504):
            assert time.monotonic() < deadline, answer[:300]
            time.sleep(0.02)
            continue
        got = json.loads(body)
        retry = {next(iter(item.values()))["status"] for item in got.get("items", ())} & {429, 503, 504}
        if not retry:
            return status, got
        assert time.monotonic() < deadline, answer[:300]
        time.sleep(0.02)


def new_index():
    name = fresh("r").lower()
    connection = http.client.HTTPConnection("127.0.0.1", SERVER.es_port, timeout=20)
    connection.request("PUT", f"/{name}")
    assert connection.getresponse().status == 200
    connection.close()
    return name


def bodies(index):
    out = SERVER.sfctl("rows", f"demo/{index}", "--raw")
    assert out.returncode == 0, out.stderr
    return [body for _, body in parse_rows(out.stdout).values()]


def outcomes(answer):
    """What an answer says of its documents: (id, status) each."""
    if "items" not in answer:
        return [(answer.get("_id"), answer.get("_seq_no"))]
    return [(item["_id"], item["status"], item.get("_seq_no")) for one in answer["items"] for item in one.values()]


class Writes:
    """Requests of three shapes on one index, each with documents that no other has."""

    def __init__(self):
        self.index = new_index()
        self.serial = 0
        self.wanted = []
        status, _ = send(request_bytes("PUT", f"/{self.index}/_create/7", b'{"first":1}', fresh()))
        assert status == 201
        self.wanted.append(b'{"first":1}')

    def make(self, shape):
        self.serial += 1
        docs = [json.dumps({"of": self.serial, "n": n}).encode() for n in range(3)]
        if shape == "issued":
            self.wanted.append(docs[0])
            return request_bytes("POST", f"/{self.index}/_doc?refresh=true", docs[0], fresh())
        explicit = 1000 * self.serial
        if shape == "explicit":
            self.wanted.append(docs[0])
            return request_bytes("PUT", f"/{self.index}/_create/{explicit}?refresh=true", docs[0], fresh())
        # Mixed, with one id that is burned: that item is a conflict, the others are written.
        lines = [b'{"create":{"_id":"%d"}}' % explicit, docs[0], b'{"index":{}}', docs[1], b'{"create":{"_id":"3"}}', b'{"burned":1}',
                 b'{"index":{}}', docs[2]]
        self.wanted += docs
        return request_bytes("POST", f"/{self.index}/_bulk?refresh=true", b"\n".join(lines) + b"\n", fresh())

    def check(self, shape, status, answer):
        if shape != "mixed":
            assert status == 201, answer
        else:
            assert status == 200 and [one[1] for one in outcomes(answer)] == [201, 201, 409, 201], answer

    def check_all(self):
        got = bodies(self.index)
        assert sorted(got) == sorted(self.wanted), (len(got), len(self.wanted))


SHAPES = "issued", "explicit", "mixed"


def cuts(data):
    """Places in a request or an answer: its ends, around the end of the head, inside of both parts."""
    head = data.find(b"\r\n\r\n") + 4
    return sorted({0, 1, head // 2, head - 2, head, head + 1, (head + len(data)) // 2, len(data) - 1})


def test_cut_connections():
    proves("ALLOC-6.1-08", "ALLOC-6.3-01")
    writes = Writes()
    for shape in SHAPES:
        probe = writes.make(shape)
        answer = exchange(SERVER.es_port, probe)
        for at in cuts(probe):
            data = writes.make(shape)
            proxy = Proxy(up=min(at, len(data) - 1)) if at else None
            if proxy:
                exchange(proxy.port, data)
                proxy.wait()
            writes.check(shape, *until_answered(data))
        for at in cuts(answer):
            data = writes.make(shape)
            proxy = Proxy(down=at)
            part = exchange(proxy.port, data)
            proxy.wait()
            assert len(part) <= at
            first = until_answered(data)
            writes.check(shape, *first)
            again = until_answered(data)
            assert outcomes(again[1]) == outcomes(first[1]), (first, again)
    writes.check_all()


def test_killed_servers():
    """The server is killed at a moment between the request and its answer, in steps over the time that a write takes."""
    writes = Writes()
    taken = 0.0
    for shape in SHAPES:  # warm, and how long one takes
        started = time.monotonic()
        writes.check(shape, *until_answered(writes.make(shape)))
        taken = max(taken, time.monotonic() - started)
    answers = {}
    steps = 12
    for step in range(steps):
        for shape in SHAPES:
            data = writes.make(shape)
            client = threading.Thread(target=exchange, args=(SERVER.es_port, data))
            client.start()
            time.sleep(taken * step / (steps - 2))
            SERVER.crash()
            client.join(30)
            answers[data] = until_answered(data)
            writes.check(shape, *answers[data])
    for data, first in answers.items():
        assert outcomes(until_answered(data)[1]) == outcomes(first[1])
    writes.check_all()


def test_policy_between_the_tries():
    """A retry is cut and numbered as the first try was, whatever the ceilings and the schema have become."""
    proves("ALLOC-3.5-19", "ALLOC-6.1-11", "ALLOC-5.5-03")
    a = Api(SERVER)
    ns = a.catalog.GetNamespaceMetadata(sf.GetNamespaceMetadataRequest(meta=meta(), namespace_name="demo")).descriptor.namespace_id
    index = fresh("policy")
    ref = a.ready_collection(ns, index, items=6, jump=10)
    body = b"".join(b'{"index":{}}\n{"n":%d}\n' % n for n in range(6))
    data = request_bytes("POST", f"/{index}/_bulk?refresh=true", body, fresh())
    status, first = until_answered(data)
    assert status == 200 and [one[0] for one in outcomes(first)] == [str(n) for n in range(6)]
    a.schema(ref, 2, fresh("t"), body=definition(items=2, jump=10))
    status, again = until_answered(data)
    assert status == 200 and outcomes(again) == outcomes(first)
    assert len(bodies(index)) == 6
    # New requests meet the ceilings of now: one error for the part, shaped as any item's, nothing written.
    for lines, scope in ((b'{"index":{}}\n{}\n' * 3, "plan"), (b'{"index":{}}\n{}\n{"create":{"_id":"90"}}\n{}\n', "window")):
        status, answer = send(request_bytes("POST", f"/{index}/_bulk", lines, fresh()))
        assert status == 200 and answer["errors"] is True
        for one in answer["items"]:
            (_, item), = one.items()
            assert item["status"] == 413 and item["error"]["type"] == "illegal_argument_exception", item
            assert "SF_TOO_MANY_OPERATIONS" in item["error"]["reason"] and set(item) == {"_index", "_id", "status", "error"}, scope
    status, answer = send(request_bytes("PUT", f"/{index}/_create/90", b"{}", fresh()))
    assert status == 413 and answer["status"] == 413 and answer["error"]["root_cause"][0]["type"] == "illegal_argument_exception"
    assert len(bodies(index)) == 6


def test_other_content_under_a_key():
    index, key = new_index(), fresh()
    assert send(request_bytes("POST", f"/{index}/_doc", b'{"a":1}', key))[0] == 201
    for path, body in ((f"/{index}/_doc", b'{"a":2}'), (f"/{index}/_bulk", b'{"index":{}}\n{"a":1}\n{"index":{}}\n{"a":3}\n')):
        status, answer = send(request_bytes("POST", path, body, key))
        errors = [answer["error"]] if status != 200 else [one["index"]["error"] for one in answer["items"]]
        for error in errors:
            assert error["type"] == "version_conflict_engine_exception" and "Idempotency-Key" in error["reason"], answer
    assert bodies(index) == [b'{"a":1}']


run(globals())
