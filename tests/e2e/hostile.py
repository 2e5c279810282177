"""Hostile peers on every port: the server stays up, its memory stays bounded, and other clients are served meanwhile."""
import concurrent.futures
import contextlib
import gzip
import http.client
import random
import socket
import struct
import threading
import time

import grpc

from catalog_calls import caught_up
from harness import Api, Stream, batch, fresh, ids, meta, operations, row, run, server, sf, wait_for

SERVER = server()
SERVER.start()
RSS_LIMIT_KIB = 700 * 1024  # far below what an unbounded buffer would take in these tests
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    """A header that is not indexed, never by Huffman."""
    def text(data):
        return (bytes([len(data)]) if len(data) < 127 else b"\x7f" + varint(len(data) - 127)) + data
    return b"\x00" + text(name) + text(value)


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def call_headers(path=b"/searchfabric.v1.CatalogControlService/ListNamespaces", more=()):
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"),
              (b"content-type", b"application/grpc"), (b"te", b"trailers"), *more]
    return b"".join(literal(name, value) for name, value in fields)


def connect(port, timeout=10):
    sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def h2():
    sock = connect(SERVER.grpc_port)
    sock.sendall(PREFACE + frame(SETTINGS))
    return sock


def send(sock, data):
    """Sends what the peer takes; False once it has closed or no longer reads."""
    try:
        sock.sendall(data)
        return True
    except OSError:
        return False


def drain(sock, seconds=2.0):
    """What comes until the peer closes or falls silent."""
    return read_all(sock, seconds)[0]


def read_all(sock, seconds):
    """(what comes, whether the peer closed)."""
    out = b""
    sock.settimeout(seconds)
    try:
        while True:
            part = sock.recv(65536)
            if not part:
                return out, True
            out += part
    except (socket.timeout, BlockingIOError):
        return out, False
    except OSError:
        return out, True


class Watch:
    """While open: an honest client calls all the time, and memory is looked at."""

    def __init__(self, most_kib=RSS_LIMIT_KIB):
        self.most_kib = most_kib
        self.peak = 0
        self.slowest = 0.0
        self.calls = 0
        self.failures = []
        self.stop = threading.Event()

    def __enter__(self):
        self.api = Api(SERVER)
        self.ref = self.api.ready_collection()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()
        return self

    def work(self):
        while not self.stop.is_set():
            started = time.monotonic()
            try:
                self.api.allocate(self.ref, None, timeout=10)
                http_get("/", SERVER.es_port)
                if self.calls % 5 == 0:
                    assert SERVER.get("/healthz")[0] == 200
            except Exception as error:  # told by the test's thread
                self.failures.append(error)
            self.slowest = max(self.slowest, time.monotonic() - started)
            self.peak = max(self.peak, SERVER.rss_kib())
            self.calls += 1
            time.sleep(0.02)

    def __exit__(self, kind, value, trace):
        self.stop.set()
        self.thread.join()
        if kind is not None:
            return
        assert SERVER.alive(), SERVER.log()[-2000:]
        assert not self.failures, self.failures[0]
        assert self.calls > 0 and self.slowest < 5, f"an honest call took {self.slowest:.1f} s"
        assert self.peak < self.most_kib, f"{self.peak} KiB resident"


def http_get(path, port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


# ---- any port -----------------------------------------------------------------------------------------

def test_garbage():
    rng = random.Random(1)
    with Watch():
        for port in (SERVER.grpc_port, SERVER.admin_port, SERVER.es_port):
            for size in (1, 10, 24, 100, 10_000, 1_000_000):
                for data in (rng.randbytes(size), b"\0" * size, b"GET / HTTP/1.1\r\n" * (size // 16 + 1), b"\r\n" * size,
                             PREFACE + rng.randbytes(size), PREFACE[:size % 24]):
                    sock = connect(port)
                    send(sock, data)
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_WR)
                    drain(sock, 0.05)
                    sock.close()


def test_half_preface():
    with Watch():
        socks = [connect(SERVER.grpc_port) for _ in range(200)]
        for at, sock in enumerate(socks):
            send(sock, PREFACE[:at % 24])
        time.sleep(1)
        for sock in socks[::2]:
            sock.close()
        for sock in socks[1::2]:  # whoever goes on is served
            if not send(sock, PREFACE[socks.index(sock) % 24:] + frame(SETTINGS) + frame(PING, payload=b"12345678")):
                continue
        answered = sum(b"12345678" in drain(sock, 0.1) for sock in socks[1:40:2])
        assert answered == 20, answered
        for sock in socks[1::2]:
            sock.close()


def test_many_connections():
    with Watch():
        for _ in range(3):
            socks = [h2() for _ in range(500)]
            for sock in socks:
                sock.close()
        # The Elasticsearch port has a place for 256; the 257th waits or is closed, and places come back.
        socks = [connect(SERVER.es_port) for _ in range(200)]
        assert http_get("/", SERVER.es_port) == 200
        for sock in socks:
            sock.close()
    wait_for(lambda: http_get("/", SERVER.es_port) == 200, "the port is free again")


# ---- HTTP ---------------------------------------------------------------------------------------------

def test_slowloris():
    with Watch():
        socks = [connect(SERVER.es_port) for _ in range(120)] + [connect(SERVER.admin_port) for _ in range(30)]
        for sock in socks:
            send(sock, b"POST /i/_doc HTTP/1.1\r\nHost: x\r\n")
        for _ in range(20):
            for sock in socks:
                send(sock, b"X-A: b\r\n")
            time.sleep(0.1)
        for sock in socks:
            sock.close()
        # A body that is promised and does not come.
        socks = [connect(SERVER.es_port) for _ in range(60)]
        for sock in socks:
            send(sock, b"POST /i/_doc HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n{")
        time.sleep(1)
        for sock in socks:
            sock.close()


def test_endless_headers():
    with Watch():
        for port in (SERVER.es_port, SERVER.admin_port):
            for start in (b"GET /" + b"a" * 100_000, b"GET / HTTP/1.1\r\nHost: x\r\n"):
                sock = connect(port, timeout=3)
                send(sock, start)
                sent = 0
                while sent < 20_000_000 and send(sock, b"X-" + b"h" * 8000 + b": " + b"v" * 8000 + b"\r\n"):
                    sent += 16_000
                assert sent < 20_000_000, "endless headers were taken"
                answer = drain(sock, 0.5)
                assert not answer or answer.startswith(b"HTTP/1.1 4"), answer[:100]
                sock.close()


def test_pipelined_requests():
    with Watch():
        for _ in range(5):
            sock = connect(SERVER.es_port)
            send(sock, b"GET /_search HTTP/1.1\r\nHost: x\r\n\r\n" * 20_000)  # and nobody reads
            time.sleep(0.2)
            sock.close()


def post(path, body, headers, timeout=60):
    connection = http.client.HTTPConnection("127.0.0.1", SERVER.es_port, timeout=timeout)
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def make_index():
    name = fresh("i")
    connection = http.client.HTTPConnection("127.0.0.1", SERVER.es_port, timeout=10)
    connection.request("PUT", f"/{name}")
    assert connection.getresponse().status == 200
    connection.close()
    return name


def test_gzip_bombs():
    index = make_index()
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
    with Watch():
        for unit in (b"\n", b" ", b'{"index":{}}\n'):
            bomb = gzip.compress(unit * (300_000_000 // len(unit)), 1)
            status, body = post(f"/{index}/_bulk", bomb, headers)
            assert status == 413, (unit, len(bomb), status, body[:200])
        # Several members and trailing bytes are no way around.
        member = gzip.compress(b" " * 50_000_000, 1)
        status, _ = post(f"/{index}/_bulk", member * 10, headers)
        assert status in (400, 413)
        # The same inside gRPC: a small compressed message that would be far above 8 MiB.
        api = Api(SERVER)
        call = api.channel.unary_unary("/searchfabric.v1.CatalogControlService/ListNamespaces")
        try:
            call(b"\x12" + varint(100_000_000) + b"a" * 100_000_000, compression=grpc.Compression.Gzip, timeout=30)
            raise AssertionError("a message of 100 MB was taken")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error


def test_deep_and_wide_json():
    index = make_index()
    headers = {"Content-Type": "application/json"}
    with Watch():
        for depth in (200, 10_000, 1_000_000):
            for start, end in ((b'{"a":', b"}"), (b"[", b"]"), (b'{"a":[', b"]}")):
                for doc in (start * depth + b"1" + end * depth, start * depth):
                    status, _ = post(f"/{index}/_doc", b'{"x":' + doc + b"}", headers)
                    assert status in (400, 413), (depth, status)
        status, _ = post(f"/{index}/_doc", b'{"a":' + b"9" * 3_000_000 + b"}", headers)
        assert status == 201
        status, _ = post(f"/{index}/_doc", b"{" + b",".join(b'"k%d":1' % n for n in range(200_000)) + b"}", headers)
        assert status == 201
        status, _ = post(f"/{index}/_bulk", b'{"index":{"_id":' + b"[" * 10_000 + b"}}\n{}\n", {"Content-Type": "application/x-ndjson"})
        assert status == 400
        connection = http.client.HTTPConnection("127.0.0.1", SERVER.es_port, timeout=10)
        connection.request("PUT", f"/{fresh('i')}", b'{"mappings":' + b'{"properties":{"a":' * 5000 + b"{}" + b"}}" * 5000 + b"}", headers)
        assert connection.getresponse().status in (400, 413)
        connection.close()


# ---- HTTP/2 -------------------------------------------------------------------------------------------

def test_rapid_reset():
    with Watch():
        block = call_headers()
        for _ in range(3):
            sock = h2()
            stream = 1
            for _ in range(200):
                data = b""
                for _ in range(100):
                    data += frame(HEADERS, 4, stream, block) + frame(RST, 0, stream, struct.pack(">I", 8))
                    stream += 2
                if not send(sock, data):
                    break
            else:
                assert put_an_end(sock), "rapid resets are not held back"
            sock.close()
        # 20,000 resets are more than a connection may send: the last one must have been cut off.
        sock = h2()
        reached = 0
        for stream in range(1, 2 * 20_000, 2):
            if not send(sock, frame(HEADERS, 4, stream, block) + frame(RST, 0, stream, struct.pack(">I", 8))):
                break
            reached += 1
        assert reached < 20_000 or put_an_end(sock, 2), "rapid resets are not held back"
        sock.close()


def goaway(data):
    """Error code of the first GOAWAY of a byte stream, None without one."""
    at = 0
    while at + 9 <= len(data):
        size = int.from_bytes(data[at:at + 3], "big")
        if data[at + 3] == GOAWAY:
            return int.from_bytes(data[at + 13:at + 17], "big")
        at += 9 + size
    return None


def flood(frames, count=400, each=100, first=b""):
    """Sends `each * count` frames after `first` and reports whether the server put an end to it."""
    sock = h2()
    send(sock, first)
    data = b"".join(frames(n) for n in range(each))
    for _ in range(count):
        if not send(sock, data):
            sock.close()
            return True
    ended = put_an_end(sock, 1.5)
    sock.close()
    return ended


def put_an_end(sock, seconds=1.0):
    """Whether the server has closed the connection or said that it will."""
    out, closed = read_all(sock, seconds)
    return closed or goaway(out) is not None


def test_floods():
    with Watch():
        assert flood(lambda n: frame(PING, payload=b"floodfld")), "PING flood"
        assert flood(lambda n: frame(SETTINGS)), "SETTINGS flood"
        assert flood(lambda n: frame(SETTINGS, payload=struct.pack(">HI", 4, 65535 + n))), "SETTINGS with values"
        assert flood(lambda n: frame(WINDOW, 0, 0, struct.pack(">I", 1))), "WINDOW_UPDATE flood"
        assert flood(lambda n: frame(DATA, 0, 1), first=frame(HEADERS, 4, 1, call_headers())), "empty DATA flood"
        # What is passed over costs the server no more than its bytes: no end is put to it.
        flood(lambda n: frame(PRIORITY, 0, 2 * n + 1, b"\0\0\0\0\x10"))
        flood(lambda n: frame(0x77, n % 256, 0, b"x" * 100), count=800)


def test_continuation_flood():
    with Watch():
        for name in (b"a", b"x" * 1000):
            sock = h2()
            ok = send(sock, frame(HEADERS, 0, 1, call_headers()))
            sent = 0
            while ok and sent < 64 << 20:
                block = b"".join(literal(name + b"%d" % n, b"v" * 100) for n in range(10))
                ok = send(sock, frame(CONTINUATION, 0, 1, block))
                sent += len(block)
            assert not ok or put_an_end(sock), "CONTINUATION without end was taken"
            sock.close()
        # Empty ones cost nothing to send.
        sock = h2()
        send(sock, frame(HEADERS, 0, 1, call_headers()))
        ok = True
        for _ in range(2000):
            ok = ok and send(sock, frame(CONTINUATION, 0, 1) * 100)
        assert not ok or put_an_end(sock)
        sock.close()


def test_hpack_bomb():
    with Watch():
        # One entry of 4,000 bytes in the dynamic table, then thousands of one-byte references to it.
        entry = b"\x40\x06bombed" + b"\x7f" + varint(4000 - 127) + b"b" * 4000
        for references in (10, 16_000):
            sock = h2()
            send(sock, frame(HEADERS, 4 | 1, 1, call_headers() + entry + b"\xbe" * min(references, 12_000)))
            out = drain(sock, 1)
            # Too much metadata: the call or the connection ends; nothing else does.
            assert out
            sock.close()
        for bad in (b"\x3f\xe1\xff\xff\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x00\x81\xff\x00", b"\xc0" * 10, b"\x80"):
            sock = h2()
            send(sock, frame(HEADERS, 4, 1, bad))
            assert put_an_end(sock), bad
            sock.close()


def test_broken_frames():
    with Watch():
        cases = [frame(DATA, 0, 0, b"x"), frame(DATA, 0, 99, b"x"), frame(HEADERS, 4, 2, call_headers()), frame(RST, 0, 0, b"\0\0\0\0"),
                 frame(RST, 0, 99, b"\0\0\0\0"), frame(SETTINGS, 0, 1), frame(SETTINGS, 0, 0, b"12345"), frame(SETTINGS, 1, 0, b"123456"),
                 frame(PING, 0, 0, b"1"), frame(PING, 0, 1, b"12345678"), frame(WINDOW, 0, 0, b"\0\0\0\0"),
                 frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff"), frame(PUSH, 4, 1, b"\0\0\0\2" + call_headers()),
                 frame(CONTINUATION, 4, 1, b""), frame(HEADERS, 4 | 8, 1, b"\xff" + call_headers()), frame(HEADERS, 0, 1, call_headers()) + frame(PING, payload=b"12345678"),
                 b"\xff\xff\xff" + bytes([DATA, 0]) + b"\0\0\0\1" + b"x" * 20000, frame(SETTINGS, payload=struct.pack(">HI", 4, 0x80000000)),
                 frame(SETTINGS, payload=struct.pack(">HI", 5, 1)), frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0") + frame(HEADERS, 4, 1, call_headers())]
        for case in cases:
            sock = h2()
            send(sock, case)
            drain(sock, 0.2)
            sock.close()


def test_calls_that_are_none():
    """Requests that are HTTP/2 but no gRPC are answered or reset; the connection goes on."""
    def call(*more, path=b"/searchfabric.v1.CatalogControlService/ListNamespaces", method=b"POST", content=b"application/grpc", body=b"\0\0\0\0\0"):
        fields = [(b":method", method), (b":scheme", b"http"), (b":path", path), (b":authority", b"x")]
        if content:
            fields.append((b"content-type", content))
        block = b"".join(literal(name, value) for name, value in (*fields, (b"te", b"trailers"), *more))
        return frame(HEADERS, 4, 1, block) + frame(DATA, 1, 1, body)
    cases = [call(method=b"GET"), call(content=b"text/html"), call(content=b""), call(path=b"/"), call(path=b"nonsense"), call(path=b"/" + b"x" * 5000),
             call((b"grpc-timeout", b"99999999999H")), call((b"grpc-timeout", b"-1S")), call((b"grpc-timeout", b"1x")), call((b"grpc-encoding", b"br")),
             call((b"x-bin", b"!!!")), call((b"connection", b"close")), call((b"Upper", b"x")), call((b":status", b"200")),
             call((b"content-length", b"3")), call(body=b""), call(body=b"\0"), call(body=b"\1\0\0\0\0"), call(body=b"\0\xff\xff\xff\xff"),
             call(body=b"\2\0\0\0\1x"), call(body=b"\0\0\0\0\0" * 3), call(body=b"\0\0\0\0\2x"), call(path=b"/searchfabric.v1.CatalogControlService/%00")]
    with Watch():
        for case in cases:
            sock = h2()
            send(sock, case + frame(PING, payload=b"after it"))
            out, closed = read_all(sock, 0.1)
            assert b"after it" in out or closed or goaway(out) is not None, case[:80]
            sock.close()
        # Large but legal metadata; then more than 16 KiB of it.
        api = Api(SERVER)
        list_ = sf.ListNamespacesRequest(meta=meta())
        api.catalog.ListNamespaces(list_, metadata=[("x-fill", "v" * 4000)], timeout=10)
        try:
            api.catalog.ListNamespaces(list_, metadata=[("x-fill", "v" * 7000)] * 3, timeout=10)
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE), error


def test_unread_answers():
    """60 calls whose answers of megabytes nobody reads."""
    api = Api(SERVER)
    ns = api.namespace().namespace_id
    big = {f"k{n:02}": "v" * 1000 for n in range(60)}
    for at in range(70):  # one page of this list is over 4 MB
        api.catalog.PutCollectionMetadata(sf.PutCollectionMetadataRequest(
            meta=meta(fresh()), encryption=sf.EncryptionPolicy(provider_managed=sf.ProviderManagedEncryption()),
            name_binding=sf.CollectionNameBinding(namespace_id=ns, collection_name=f"c{at}"),
            options=sf.DescriptorOptions(entries=big)))
    request = sf.ListCollectionsRequest(meta=meta(), namespace_id=ns, page=sf.PageRequest(page_size=100))
    size = caught_up(api).catalog.ListCollections(request).ByteSize()
    assert size > 4_000_000, size
    packed = request.SerializeToString()
    message = b"\0" + struct.pack(">I", len(packed)) + packed
    path = b"/searchfabric.v1.CatalogControlService/ListCollections"
    with Watch():
        socks = []
        for _ in range(2):
            sock = h2()  # the default window of 64 KiB, never opened
            for stream in range(1, 121, 2):
                send(sock, frame(HEADERS, 4, stream, call_headers(path)) + frame(DATA, 1, stream, message))
            socks.append(sock)
        time.sleep(3)
        for sock in socks:
            sock.close()
    assert api.catalog.ListCollections(request, timeout=10).ByteSize() == size


def test_unread_stream():
    """A stream that sends batches and never reads an acknowledgement holds back itself only."""
    api = Api(SERVER)
    ref = api.ready_collection(policy=sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED)
    with Watch():
        sock = h2()
        sock.settimeout(3)
        open_ = sf.StreamMutationsRequest(open=sf.StreamOpen(meta=meta("", sf.CLIENT_KIND_ES_WRITE_GATEWAY))).SerializeToString()
        send(sock, frame(HEADERS, 4, 1, call_headers(b"/searchfabric.v1.IngestGatewayService/StreamMutations")))
        send(sock, frame(DATA, 0, 1, b"\0" + struct.pack(">I", len(open_)) + open_))
        sent = 0
        for number in range(3000):
            one = sf.StreamMutationsRequest(batch=batch(ref, row(number, b'{"t":"' + b"x" * 15_000 + b'"}'))).SerializeToString()
            if not send(sock, frame(DATA, 0, 1, b"\0" + struct.pack(">I", len(one)) + one)):
                break
            sent += len(one)
        sock.close()
    stream = Stream(Api(SERVER))
    assert not stream.put(batch(ref, row(1, b"{}", sf.ROW_OP_INDEX))).HasField("error")
    stream.close()


def test_answers_of_every_size():
    """Whatever the length of an answer is, its frames and its trailers fit what the server writes at a time."""
    api = Api(SERVER)
    ref = api.ready_collection(policy=sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED)
    stream = Stream(api)
    assert not stream.put(batch(ref, row(1, b'{"t":"' + random.Random(7).randbytes(200_000).hex().encode() + b'"}'))).HasField("error")
    stream.close()
    key = max(api.keys("wal/").items(), key=lambda entry: entry[1])[0]

    def sizes(lengths):
        one = Api(SERVER)
        for length in lengths:
            got = one.operations.GetObject(operations.GetObjectRequest(key=key, length_bytes=length), timeout=10)
            assert len(got.body) == length

    with Watch(), concurrent.futures.ThreadPoolExecutor(4) as pool:
        work = [pool.submit(sizes, range(start, start + 700)) for start in (64_900, 81_500, 85_400, 98_000)]
        work += [pool.submit(sizes, range(start, 180_000, 997)) for start in (1, 333)]
        for one in work:
            one.result()


def test_haste_is_no_attack():
    """An honest client whose calls are refused as fast as it can send them keeps its connection."""
    api = Api(SERVER)
    for _ in range(25_000):
        try:
            api.raw("/searchfabric.v1.CatalogControlService/ListCollections", b"\x0a")
            raise AssertionError("taken")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error


def test_vanishing_peers():
    """Connections that are reset in the middle of calls and of bodies."""
    api = Api(SERVER)
    ref = api.ready_collection()
    index = make_index()

    def vanish(at):
        port = (SERVER.grpc_port, SERVER.es_port)[at % 2]
        sock = connect(port)
        if at % 2:
            send(sock, f"POST /{index}/_doc HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"[:40 + at % 90].encode())
        else:
            packed = sf.AllocateIdsRequest().SerializeToString()
            send(sock, PREFACE + frame(SETTINGS) + frame(HEADERS, 4, 1, call_headers(b"/searchfabric.v1.IdAllocatorService/AllocateIds")) +
                 frame(DATA, 1, 1, b"\0" + struct.pack(">I", len(packed)) + packed)[:at % 40])
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()

    with Watch():
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(vanish, range(2000)))
    assert ids(api.allocate(ref, None)) == [0]


def test_costly_requests():
    """Requests that are small on the wire and large in memory are refused before they are unpacked."""
    api = Api(SERVER)
    with Watch():
        empty_items = b"\x0a\x00" * 2_000_000  # 4 MB of empty plan items
        for method, body in (("IdAllocatorService/AllocateIds", b"\x52" + varint(len(empty_items)) + empty_items),
                             ("CatalogControlService/PutCollectionSchema", b"\x52" + varint(4_000_000) + b"\x52\x00" * 2_000_000)):
            try:
                api.raw(f"/searchfabric.v1.{method}", body)
                raise AssertionError("taken")
            except grpc.RpcError as error:
                assert error.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT), error
        nested = b""
        for _ in range(2000):
            nested = b"\x52" + varint(len(nested)) + nested
        try:
            api.raw("/searchfabric.v1.CatalogControlService/PutNamespaceMetadata", nested)
            raise AssertionError("taken")
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT), error
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            body = sf.AllocateIdsRequest(plan=sf.AllocationPlan(items=[sf.AllocationPlanItem(issue=sf.IssueItem())] * 900_000)).SerializeToString()

            def one(_):
                try:
                    Api(SERVER).raw("/searchfabric.v1.IdAllocatorService/AllocateIds", body)
                except grpc.RpcError as error:
                    return error.code()
                return None
            codes = set(pool.map(one, range(32)))
            assert None not in codes, codes


run(globals())
