"""grpcio (the C core) against our server."""

import concurrent.futures
import hashlib
import queue
import threading
import time
import unittest

import grpc

import harness

pb, pb_grpc = harness.load_stubs()

MIB = 1 << 20
OPTIONS = [("grpc.max_receive_message_length", 16 * MIB), ("grpc.max_send_message_length", 16 * MIB)]


class Requests:
    """A request stream that the test feeds by hand."""

    def __init__(self):
        self.queue = queue.Queue()

    def put(self, **fields):
        self.queue.put(pb.EchoRequest(**fields))

    def end(self):
        self.queue.put(None)

    def __iter__(self):
        return iter(self.queue.get, None)


class Interop(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server()
        cls.channel = grpc.insecure_channel(cls.server.address, options=OPTIONS)
        cls.stub = pb_grpc.EchoStub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        status, out = cls.server.stop()
        assert status == 0 and out == "drained\n", (status, out)

    def counters(self):
        return self.stub.Unary(pb.EchoRequest(counters=True), timeout=10)

    def wait_counter(self, name, value):
        deadline = time.monotonic() + 10
        while getattr(self.counters(), name) != value:
            self.assertLess(time.monotonic(), deadline, name)

    def fails(self, code, call, *args, **kwargs):
        with self.assertRaises(grpc.RpcError) as caught:
            result = call(*args, **kwargs)
            if hasattr(result, "__next__"):
                list(result)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        return caught.exception

    def test_unary(self):
        reply = self.stub.Unary(pb.EchoRequest(text="h\u00e9", body=b"\0\xff"))
        self.assertEqual((reply.text, reply.body, reply.has_deadline), ("h\u00e9", b"\0\xff", False))
        self.assertEqual(reply.identity_name, "loopback")
        self.assertTrue(self.stub.Unary(pb.EchoRequest(), timeout=60).has_deadline)
        self.assertEqual(self.stub.Unary(pb.EchoRequest(text="late", delay_ms=20)).text, "late")

    def test_20000_calls(self):
        def calls(start):
            for i in range(start, start + 2500):
                self.assertEqual(self.stub.Unary(pb.EchoRequest(text=str(i))).text, str(i))

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(calls, range(0, 20000, 2500)))

    def test_error_with_details_byte_for_byte(self):
        text = "100% \u20ac\nthere"
        error = self.fails(grpc.StatusCode.FAILED_PRECONDITION, self.stub.Unary,
                           pb.EchoRequest(text=text, fail_code="SF_OWNERSHIP_CONFLICT"))
        self.assertEqual(error.details(), text)
        details = dict(error.trailing_metadata())["grpc-status-details-bin"]
        # google.rpc.Status: code 9, the message, one Any with the product's ErrorStatus.
        coded = text.encode()
        self.assertEqual(details[:4 + len(coded)], b"\x08\x09\x12" + bytes([len(coded)]) + coded)
        self.assertIn(b"type.googleapis.com/searchfabric.v1.ErrorStatus", details)
        self.assertIn(b"\x0a\x15SF_OWNERSHIP_CONFLICT\x12" + bytes([len(coded)]) + coded, details)
        self.assertIn(b"\x0a\x09violation\x12\x09asked_for", details)

    def test_error_after_messages(self):
        call = self.stub.Many(pb.EchoRequest(count=3, fail_code="SF_RATE_LIMITED", text="full"))
        self.assertEqual([next(call).number for _ in range(3)], [0, 1, 2])
        error = self.fails(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: next(call))
        self.assertEqual(error.details(), "full")

    def test_deadline(self):
        before = self.counters().cancelled_count
        start = time.monotonic()
        self.fails(grpc.StatusCode.DEADLINE_EXCEEDED, self.stub.Unary,
                   pb.EchoRequest(delay_ms=1500), timeout=0.2)
        self.assertLess(time.monotonic() - start, 1.0)
        self.wait_counter("cancelled_count", before + 1)

    def test_cancel_unary_and_stream(self):
        before = self.counters().cancelled_count
        call = self.stub.Unary.future(pb.EchoRequest(delay_ms=500))
        time.sleep(0.1)
        call.cancel()
        self.assertTrue(call.cancelled())
        self.wait_counter("cancelled_count", before + 1)
        requests = Requests()
        stream = self.stub.Chat(iter(requests))
        requests.put(text="one")
        self.assertEqual(next(stream).text, "one")
        self.assertEqual(self.counters().open_count, 1)
        stream.cancel()
        requests.end()
        self.wait_counter("open_count", 0)
        self.assertEqual(self.counters().cancelled_count, before + 2)

    def test_4_mb_and_16_at_once(self):
        body = bytes(range(256)) * (4 * MIB // 256)
        self.assertEqual(self.stub.Unary(pb.EchoRequest(body=body)).body, body)
        futures = [self.stub.Unary.future(pb.EchoRequest(body=body), timeout=60) for _ in range(16)]
        for future in futures:
            self.assertEqual(future.result().body, body)

    def test_over_the_limits(self):
        error = self.fails(grpc.StatusCode.RESOURCE_EXHAUSTED, self.stub.Unary,
                           pb.EchoRequest(body=b"x" * 9 * MIB))
        self.assertIn("rpc_message_bytes", error.details())
        self.fails(grpc.StatusCode.RESOURCE_EXHAUSTED, self.stub.Unary,
                   pb.EchoRequest(reply_bytes=9 * MIB))
        self.assertEqual(self.stub.Unary(pb.EchoRequest(text="alive")).text, "alive")

    def test_metadata(self):
        request = pb.EchoRequest(metadata_name="x-color")
        self.assertEqual(self.stub.Unary(request, metadata=[("x-color", "blue")]).text, "blue")
        self.assertEqual(self.stub.Unary(request).text, "(none)")
        request = pb.EchoRequest(metadata_name="x-raw-bin")
        reply = self.stub.Unary(request, metadata=[("x-raw-bin", b"bytes~")])
        self.assertEqual(reply.text, "bytes~")

    def test_metadata_over_the_limit(self):
        for _ in range(20):
            error = self.fails(grpc.StatusCode.RESOURCE_EXHAUSTED, self.stub.Unary,
                               pb.EchoRequest(), metadata=[("x-large", "y" * 20000)])
            self.assertIn("rpc_metadata_bytes", error.details())
        self.assertEqual(self.stub.Unary(pb.EchoRequest(text="alive")).text, "alive")

    def test_identity_seam(self):
        server = harness.Server(auth=1)
        with grpc.insecure_channel(server.address) as channel:
            stub = pb_grpc.EchoStub(channel)
            self.fails(grpc.StatusCode.UNAUTHENTICATED, stub.Unary, pb.EchoRequest())
            self.fails(grpc.StatusCode.PERMISSION_DENIED, stub.Unary, pb.EchoRequest(),
                       metadata=[("authorization", "deny")])
            self.fails(grpc.StatusCode.PERMISSION_DENIED, stub.Chat, iter([pb.EchoRequest()]),
                       metadata=[("authorization", "deny")])
            reply = stub.Unary(pb.EchoRequest(), metadata=[("authorization", "me")])
            self.assertEqual(reply.identity_name, "me")
            self.assertEqual(reply.identity_hash, hashlib.sha256(b"me").hexdigest())
        self.assertEqual(server.stop(), (0, "drained\n"))

    def test_unknown_method(self):
        start = time.monotonic()
        self.fails(grpc.StatusCode.UNIMPLEMENTED, self.stub.Unserved, pb.EchoRequest(), timeout=5)
        self.fails(grpc.StatusCode.UNIMPLEMENTED,
                   self.channel.unary_unary("/none.None/None"), b"", timeout=5)
        self.assertLess(time.monotonic() - start, 2)

    def test_malformed_message(self):
        raw = self.channel.unary_unary("/sftest.v1.Echo/Unary")
        self.fails(grpc.StatusCode.INVALID_ARGUMENT, raw, b"\xff\xff\xff")
        self.fails(grpc.StatusCode.INVALID_ARGUMENT, raw, b"\x0a\x01\x00")  # NUL in a string
        self.fails(grpc.StatusCode.INVALID_ARGUMENT, raw, b"\x0a\x01\xff")  # not UTF-8

    def test_two_messages_in_a_unary_call(self):
        raw = self.channel.stream_unary("/sftest.v1.Echo/Unary")
        self.fails(grpc.StatusCode.UNIMPLEMENTED, raw, iter([b"", b""]))
        self.fails(grpc.StatusCode.UNIMPLEMENTED, raw, iter([]))

    def test_gzip(self):
        with grpc.insecure_channel(self.server.address, options=OPTIONS,
                                   compression=grpc.Compression.Gzip) as channel:
            stub = pb_grpc.EchoStub(channel)
            body = b"z" * MIB
            self.assertEqual(stub.Unary(pb.EchoRequest(body=body)).body, body)
            replies = list(stub.Chat(pb.EchoRequest(body=body) for _ in range(20)))
            self.assertEqual([len(r.body) for r in replies], [MIB] * 20)
            # 12 MB that weigh 12 kB on the wire.
            self.fails(grpc.StatusCode.RESOURCE_EXHAUSTED, stub.Unary,
                       pb.EchoRequest(body=b"z" * 12 * MIB))
        with grpc.insecure_channel(self.server.address,
                                   compression=grpc.Compression.Deflate) as channel:
            self.fails(grpc.StatusCode.UNIMPLEMENTED, pb_grpc.EchoStub(channel).Unary,
                       pb.EchoRequest(body=b"z" * 1000))

    def test_bidi_10000(self):
        replies = self.stub.Chat(pb.EchoRequest(text=str(i)) for i in range(10000))
        for i, reply in enumerate(replies):
            self.assertEqual((reply.number, reply.text), (i, str(i)))
        self.assertEqual(i, 9999)

    def test_bidi_ping_pong_and_empty(self):
        requests = Requests()
        stream = self.stub.Chat(iter(requests))
        for i in range(500):
            requests.put(text=str(i))
            self.assertEqual(next(stream).text, str(i))
        requests.end()
        self.assertEqual(list(stream), [])
        self.assertEqual(list(self.stub.Chat(iter([]))), [])

    def test_client_stream(self):
        reply = self.stub.Collect(pb.EchoRequest(body=b"x" * 100000) for _ in range(200))
        self.assertEqual((reply.number, reply.body_bytes), (200, 20000000))

    def test_client_stream_that_ends_early(self):
        def endless():
            while True:
                yield pb.EchoRequest(body=b"x" * 1000, fail_code="SF_FORBIDDEN", text="stop")

        error = self.fails(grpc.StatusCode.PERMISSION_DENIED, self.stub.Collect, endless())
        self.assertEqual(error.details(), "stop")

    def test_back_pressure_on_a_client_that_does_not_read(self):
        """64 MB pushed at a stream whose client does not read costs the server a few MB."""
        server = harness.Server()
        with grpc.insecure_channel(server.address) as channel:
            stub = pb_grpc.EchoStub(channel)
            stub.Unary(pb.EchoRequest())
            before = server.rss_kib()
            stream = stub.Chat(iter([pb.EchoRequest(reply_bytes=64 << 10, count=1024)]))
            next(stream)
            time.sleep(0.5)
            grown = server.rss_kib() - before
            self.assertLess(grown, 12 << 10)
            numbers = [reply.number for reply in stream]
            self.assertEqual(numbers, list(range(1, 1024)))
        self.assertEqual(server.stop(), (0, "drained\n"))

    def test_1000_concurrent_over_256_streams(self):
        futures = [self.stub.Unary.future(pb.EchoRequest(text=str(i), delay_ms=20), timeout=30)
                   for i in range(1000)]
        self.assertEqual([f.result().text for f in futures], [str(i) for i in range(1000)])

    def test_keepalive_pings(self):
        options = [("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_timeout_ms", 1000),
                   ("grpc.keepalive_permit_without_calls", 1),
                   ("grpc.http2.max_pings_without_data", 0)]
        with grpc.insecure_channel(self.server.address, options=options) as channel:
            stub = pb_grpc.EchoStub(channel)
            states = []
            channel.subscribe(states.append)
            self.assertEqual(stub.Unary(pb.EchoRequest(text="a", delay_ms=2500)).text, "a")
            time.sleep(2.5)
            self.assertEqual(stub.Unary(pb.EchoRequest(text="b")).text, "b")
            self.assertNotIn(grpc.ChannelConnectivity.TRANSIENT_FAILURE, states)

    def test_server_keepalive_and_idle(self):
        """The server pings a quiet client, which answers, and sends an idle one away politely."""
        server = harness.Server(keepalive_ms=200, idle_ms=1000)
        with grpc.insecure_channel(server.address) as channel:
            stub = pb_grpc.EchoStub(channel)
            channel.subscribe(lambda state: None)  # else an idle channel reads its socket rarely
            self.assertEqual(stub.Unary(pb.EchoRequest(text="a", delay_ms=1500)).text, "a")
            time.sleep(2)
            self.assertEqual(stub.Unary(pb.EchoRequest(text="b")).text, "b")
        self.assertEqual(server.stop(), (0, "drained\n"))

    def test_drain_with_open_calls(self):
        server = harness.Server()
        with grpc.insecure_channel(server.address) as channel, \
                grpc.insecure_channel(server.address,
                                      options=[("grpc.use_local_subchannel_pool", 1)]) as other:
            stub = pb_grpc.EchoStub(channel)
            slow = stub.Unary.future(pb.EchoRequest(text="slow", delay_ms=1500))
            requests = Requests()
            stream = stub.Chat(iter(requests))
            requests.put(text="before")
            self.assertEqual(next(stream).text, "before")
            server.terminate()
            time.sleep(0.5)
            self.fails(grpc.StatusCode.UNAVAILABLE, pb_grpc.EchoStub(other).Unary,
                       pb.EchoRequest(), timeout=5)
            requests.put(text="during")
            self.assertEqual(next(stream).text, "during")
            self.assertEqual(slow.result().text, "slow")
            requests.end()
            self.assertEqual(list(stream), [])
            end = time.monotonic()
            self.assertEqual(server.wait(), (0, "drained\n"))
            self.assertLess(time.monotonic() - end, 2)

    def test_drain_limit(self):
        server = harness.Server(drain_ms=300)
        with grpc.insecure_channel(server.address) as channel:
            requests = Requests()
            stream = pb_grpc.EchoStub(channel).Chat(iter(requests))
            requests.put(text="x")
            next(stream)
            start = time.monotonic()
            server.terminate()
            self.assertEqual(server.wait(), (0, "drained\n"))
            self.assertLess(time.monotonic() - start, 2)
            self.fails(grpc.StatusCode.UNAVAILABLE, lambda: next(stream))
            requests.end()

    def test_many_cancels_only_cost_a_reconnect(self):
        """Cancels are stream resets: past the limit the connection goes, the client comes back."""
        threads = [threading.Thread(target=self.cancel_some) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.stub.Unary(pb.EchoRequest(text="alive"), wait_for_ready=True).text,
                         "alive")

    def cancel_some(self):
        for _ in range(400):
            call = self.stub.Unary.future(pb.EchoRequest(delay_ms=50))
            call.cancel()


if __name__ == "__main__":
    unittest.main()
