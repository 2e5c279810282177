"""Attacks on the server with hand-made HTTP/2 frames: each must be ended or stay cheap, memory must
stay small, and other clients must not notice. A fresh server each."""

import resource
import socket
import struct
import time
import unittest

import grpc

import harness

pb, pb_grpc = harness.load_stubs()

DATA, HEADERS, PRIORITY, RST, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MIB = 1 << 20


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def number(value, bits, first=0):
    """An HPACK integer."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([first | value])
    out = [first | limit]
    value -= limit
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + [value])


def literal(name, value, first=0):
    return bytes([first]) + number(len(name), 7) + name + number(len(value), 7) + value


def request_headers(path=b"/sftest.v1.Echo/Unary"):
    return b"".join(literal(n, v) for n, v in [
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers")])


class Attack:
    """A raw connection that has said hello."""

    def __init__(self, server, hello=True):
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.socket.settimeout(20)
        if hello:
            self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))

    def send(self, data):
        """False once the server has closed."""
        try:
            self.socket.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def send_many(self, data, total):
        """Sends `data` (many frames) again and again, `total` bytes in all; bytes that went out."""
        sent = 0
        while sent < total and self.send(data):
            sent += len(data)
        return sent

    def is_closed(self, seconds=20):
        """Reads what comes until the server closes; False when it does not."""
        self.socket.settimeout(seconds)
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                if not self.socket.recv(1 << 16):
                    return True
        except ConnectionResetError:
            return True
        except socket.timeout:
            pass
        return False

    def read_frames(self, until, seconds=10):
        """Frames as they come, up to the first for which until(kind, flags, stream, payload)."""
        self.socket.settimeout(seconds)
        data = b""
        frames = []
        while True:
            while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
                size = int.from_bytes(data[:3], "big")
                got = (data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:9 + size])
                data = data[9 + size:]
                frames.append(got)
                if until(*got):
                    return frames
            more = self.socket.recv(1 << 16)
            if not more:
                raise ConnectionError("closed")
            data += more


class Attacked(unittest.TestCase):
    """A server, an attacker's connection, and an ordinary client that must not notice."""

    options = {}

    def setUp(self):
        self.server = harness.Server(**self.options)
        self.attack = self.connect()
        self.channel = grpc.insecure_channel(self.server.address)
        self.stub = pb_grpc.EchoStub(self.channel)
        self.stub.Unary(pb.EchoRequest(), timeout=10)
        self.rss = self.server.rss_kib()
        self.cpu = self.server.cpu_s()

    def connect(self, hello=True):
        attack = Attack(self.server, hello)
        self.addCleanup(attack.socket.close)
        return attack

    def tearDown(self):
        self.channel.close()
        with grpc.insecure_channel(self.server.address,
                                   options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = pb_grpc.EchoStub(channel)
            self.assertEqual(stub.Unary(pb.EchoRequest(text="alive"), timeout=10).text, "alive")
        self.doCleanups()
        self.assertEqual(self.server.stop(), (0, "drained\n"))

    def assert_cheap(self, rss_mib, cpu_s):
        self.assertLess(self.server.rss_kib() - self.rss, rss_mib << 10)
        self.assertLess(self.server.cpu_s() - self.cpu, cpu_s)


class Flood(Attacked):
    def test_rapid_reset(self):
        headers = request_headers()
        sent = 0
        for start in range(1, 200001, 2000):
            batch = b"".join(frame(HEADERS, END_HEADERS, s, headers) +
                             frame(RST, 0, s, struct.pack(">I", 8))
                             for s in range(start, start + 2000, 2))
            if not self.attack.send(batch):
                break
            sent += 1000
        self.assertTrue(self.attack.is_closed())
        self.assertLess(sent, 100000)
        self.assert_cheap(8, 2)

    def test_continuation(self):
        self.attack.send(frame(HEADERS, 0, 1, request_headers()))
        piece = frame(CONTINUATION, 0, 1, literal(b"x-more", b"y" * 16000))
        sent = self.attack.send_many(piece * 8, 320 * MIB)
        self.assertTrue(self.attack.is_closed())
        self.assertLess(sent, 32 * MIB)
        self.assert_cheap(8, 1)

    def test_empty_continuation(self):
        self.attack.send(frame(HEADERS, 0, 1, request_headers()))
        self.attack.send_many(frame(CONTINUATION, 0, 1) * 1000, 200 * 9000)
        self.assertTrue(self.attack.is_closed())
        self.assert_cheap(8, 1)

    def test_settings_unread(self):
        self.attack.send_many(frame(SETTINGS, 0, 0) * 1000, 200 * 9000)
        self.assertTrue(self.attack.is_closed())
        self.assert_cheap(8, 1)

    def test_ping_unread(self):
        self.attack.send_many(frame(PING, 0, 0, b"12345678") * 1000, 200 * 17000)
        self.assertTrue(self.attack.is_closed())
        self.assert_cheap(8, 1)

    def test_empty_data(self):
        self.attack.send(frame(HEADERS, END_HEADERS, 1, request_headers()))
        self.attack.send_many(frame(DATA, 0, 1) * 1000, 200 * 9000)
        self.assertTrue(self.attack.is_closed())
        self.assert_cheap(8, 1)

    def test_priority(self):
        self.attack.send_many(frame(PRIORITY, 0, 1, struct.pack(">IB", 0, 9)) * 1000, 200 * 14000)
        self.assertTrue(self.attack.is_closed())
        self.assert_cheap(8, 1)

    def test_window_update(self):
        self.attack.send_many(frame(WINDOW, 0, 0, struct.pack(">I", 1)) * 1000, 200 * 13000)
        self.assertTrue(self.attack.is_closed())
        self.assert_cheap(8, 1)

    def test_hpack_bomb(self):
        """One table entry of 3.9 kB, named 12,000 times in a block of 12 kB."""
        self.attack.send(frame(HEADERS, END_HEADERS, 1,
                               request_headers() + literal(b"a", b"b" * 3900, first=0x40)))
        bomb = request_headers() + b"\xbe" * 12000
        for stream in range(3, 803, 2):
            if not self.attack.send(frame(HEADERS, END_HEADERS, stream, bomb)):
                break
        self.assertTrue(self.attack.is_closed())
        self.assert_cheap(8, 1)

    def test_announced_giant(self):
        """A prefix that claims 4 GB sets nothing aside."""
        self.attack.send(frame(HEADERS, END_HEADERS, 1, request_headers()) +
                         frame(DATA, 0, 1, b"\0\xff\xff\xff\xff" + b"x" * 100))
        frames = self.attack.read_frames(lambda k, f, s, p: k == RST)
        self.assertEqual(frames[-1][2:], (1, struct.pack(">I", 0)))  # after the status: NO_ERROR
        self.assert_cheap(8, 1)

    def test_garbage(self):
        self.assertTrue(self.attack.send(b"\xff" * 1000))
        self.assertTrue(self.attack.is_closed())
        other = self.connect(hello=False)
        other.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertTrue(other.is_closed())
        self.assert_cheap(8, 1)

    def test_replies_never_read(self):
        """60 requests of 4 MB whose replies are not read: held back by the budgets."""
        body = b"\x12" + number_varint(4 * MIB) + b"z" * (4 * MIB)
        message = b"\0" + struct.pack(">I", len(body)) + body
        reader = self.attack
        # Windows as large as they go, so that only the server's own budget holds it back.
        reader.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0x7fffffff)))
        self.attack.socket.settimeout(3)
        try:
            for stream in range(1, 121, 2):
                reader.send(frame(HEADERS, END_HEADERS, stream, request_headers()))
                for at in range(0, len(message), 16000):
                    end = at + 16000 >= len(message)
                    if not reader.send(frame(DATA, END_STREAM if end else 0, stream,
                                             message[at:at + 16000])):
                        break
        except socket.timeout:
            pass  # the server does not take any more
        self.assertLess(self.server.rss_kib() - self.rss, 100 << 10)

    def test_http_errors(self):
        def status(block):
            attack = self.connect()
            attack.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block))
            frames = attack.read_frames(lambda k, f, s, p: k == HEADERS)
            return frames[-1][3]

        get = literal(b":method", b"GET") + b"".join(literal(n, v) for n, v in [
            (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"x")])
        self.assertIn(b"405", huffman_free(status(get)))
        post = literal(b":method", b"POST") + b"".join(literal(n, v) for n, v in [
            (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"x"),
            (b"content-type", b"application/json")])
        self.assertIn(b"415", huffman_free(status(post)))


def number_varint(value):
    out = []
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + [value])


def huffman_free(block):
    """The status value of a response block, which nghttp2 Huffman-codes: digits are 5 or 6 bits."""
    codes = {"00000": "0", "00001": "1", "00010": "2", "011001": "3", "011010": "4", "011011": "5"}
    size = block[1] & 127
    if not block[1] & 128:
        return block[2:2 + size]
    bits = "".join("{:08b}".format(b) for b in block[2:2 + size])
    text = ""
    while bits and not set(bits) == {"1"}:
        for code, digit in codes.items():
            if bits.startswith(code):
                text += digit
                bits = bits[len(code):]
                break
        else:
            break
    return text.encode()


class Slow(Attacked):
    """Peers that keep a connection and do nothing with it."""

    options = {"first_request_ms": 500, "keepalive_ms": 400, "idle_ms": 1000}

    def test_silent(self):
        silent = self.connect(hello=False)
        half = self.connect(hello=False)
        half.send(PREFACE[:10])
        start = time.monotonic()
        self.assertTrue(silent.is_closed(5))
        self.assertTrue(half.is_closed(5))
        self.assertTrue(self.attack.is_closed(5))  # said hello, never asked
        self.assertLess(time.monotonic() - start, 3)

    def test_deaf(self):
        """A peer with an open call that never answers pings."""
        self.attack.send(frame(HEADERS, END_HEADERS, 1, request_headers(b"/sftest.v1.Echo/Chat")))
        self.assertTrue(self.attack.is_closed(5))


class Crowd(unittest.TestCase):
    """More connections than there is room for."""

    def open(self, server, count):
        sockets = []
        for _ in range(count):
            sockets.append(socket.create_connection(("127.0.0.1", server.port)))
            self.addCleanup(sockets[-1].close)
        return sockets

    def test_out_of_files(self):
        """Silent connections take all descriptors; the server rests, drops them, and goes on."""
        server = harness.Server(files=64, first_request_ms=500)
        self.open(server, 200)
        cpu = server.cpu_s()
        with grpc.insecure_channel(server.address) as channel:
            stub = pb_grpc.EchoStub(channel)
            reply = stub.Unary(pb.EchoRequest(text="alive"), timeout=20, wait_for_ready=True)
            self.assertEqual(reply.text, "alive")
        self.assertLess(server.cpu_s() - cpu, 1)
        self.assertEqual(server.stop(), (0, "drained\n"))

    def test_cap(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 9000:
            self.skipTest("needs 9,000 files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (9000, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        server = harness.Server(files=9000, first_request_ms=60000)
        sockets = self.open(server, 4096)
        sockets[-1].settimeout(10)
        self.assertTrue(sockets[-1].recv(9))  # the server's SETTINGS
        late, = self.open(server, 1)
        late.settimeout(10)
        try:
            self.assertEqual(late.recv(9), b"")
        except ConnectionResetError:
            pass
        sockets.pop().close()
        with grpc.insecure_channel(server.address) as channel:
            stub = pb_grpc.EchoStub(channel)
            reply = stub.Unary(pb.EchoRequest(text="alive"), timeout=20, wait_for_ready=True)
            self.assertEqual(reply.text, "alive")
        self.assertEqual(server.stop(), (0, "drained\n"))


if __name__ == "__main__":
    unittest.main()
