"""kill -9 at random points under every kind of write at once; what was acknowledged is there once, under its first id.

Writers repeat each request under its own key (or batch id) until it is answered. Meanwhile the server is killed and
started again. In the end each document that was sent is visible exactly once, with its bytes, under the id of the first
acknowledgement; repeating every request changes nothing.

Environment: SF_KILLS (default 6), SF_SEED.
"""
import http.client
import json
import os
import random
import threading
import time

import grpc

from harness import ES, Api, definition, meta, parse_rows, run, server, sf, sf_grpc, wait_for

KILLS = int(os.environ.get("SF_KILLS", "6"))
SEED = int(os.environ.get("SF_SEED", random.SystemRandom().randrange(1 << 32)))
GIVE_UP_S = 60
SERVER = server()


class Writer(threading.Thread):
    """Sends requests one after another until told to stop; each until it has its answer."""

    def __init__(self, name):
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self.failure = None
        self.docs = {}   # id -> document bytes, as acknowledged
        self.requests = []  # for the repeat
        self.retries = 0

    def run(self):
        try:
            number = 0
            while not self.stopping.is_set():
                self.step(number)
                number += 1
        except BaseException as error:  # pylint: disable=broad-except
            self.failure = error

    def note(self, doc_id, doc):
        assert self.docs.setdefault(int(doc_id), doc) == doc, f"{self.name}: id {doc_id} was given twice"

    def until_answered(self, attempt):
        until = time.monotonic() + GIVE_UP_S
        while True:
            answer = attempt()
            if answer is not None:
                return answer
            assert time.monotonic() < until, f"{self.name}: no answer within {GIVE_UP_S} s"
            self.retries += 1
            time.sleep(0.01)


def http_request(method, path, body, headers):
    """(status, answer), or None where the request must be sent again."""
    connection = http.client.HTTPConnection("127.0.0.1", SERVER.es_port, timeout=20)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status in (429, 503, 504):
            return None
        return answer.status, json.loads(text) if text else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


class Bulk(Writer):
    """Bulks: `explicit` names every other id, ascending; the others are issued."""

    def __init__(self, name, index, explicit):
        super().__init__(name)
        self.index = index
        self.explicit = explicit

    def step(self, number):
        docs, lines = [], []
        for i in range(4):
            docs.append(json.dumps({"writer": self.name, "n": number * 4 + i}).encode())
            action = {"create": {"_id": str(number * 1000 + i * 100)}} if self.explicit and i % 2 == 0 else {"index": {}}
            lines += [json.dumps(action).encode(), docs[-1]]
        request = (f"/{self.index}/_bulk", b"\n".join(lines) + b"\n", f"{self.name}-{number}", docs)
        self.send(request)
        self.requests.append(request)

    def send(self, request):
        path, body, key, docs = request
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}

        def attempt():
            answer = http_request("POST", path, body, headers)
            if answer is None:
                return None
            status, parsed = answer
            assert status == 200, (status, parsed)
            items = [next(iter(item.values())) for item in parsed["items"]]
            if any(item["status"] in (429, 503, 504) for item in items):
                return None
            for item in items:
                assert item["status"] == 201, item
            return items

        for item, doc in zip(self.until_answered(attempt), docs):
            self.note(item["_id"], doc)


class Single(Writer):
    """One document a request, waited for until it is visible; a new index every ten."""

    def step(self, number):
        index = f"{self.name}-{number // 10}"
        if number % 10 == 0:
            self.until_answered(lambda: self.create(index))
        doc = json.dumps({"writer": self.name, "n": number}).encode()
        request = (index, doc, f"{self.name}-{number}")
        self.send(request)
        self.requests.append(request)

    def create(self, index):
        answer = http_request("PUT", f"/{index}", b"{}",
                              {"Content-Type": "application/json", "Idempotency-Key": f"create-{index}"})
        if answer is not None:
            assert answer[0] == 200, answer
        return answer

    def send(self, request):
        index, doc, key = request

        def attempt():
            answer = http_request("POST", f"/{index}/_doc?refresh=wait_for", doc,
                                  {"Content-Type": "application/json", "Idempotency-Key": key})
            if answer is not None:
                assert answer[0] == 201, answer
            return answer

        self.note_in(index, self.until_answered(attempt)[1]["_id"], doc)

    def note_in(self, index, doc_id, doc):
        assert self.docs.setdefault((index, int(doc_id)), doc) == doc


class Stream(Writer):
    """Batches over StreamMutations into a collection whose rows bring their ids."""

    def __init__(self, name, ref):
        super().__init__(name)
        self.ref = ref

    def step(self, number):
        batch = sf.MutationBatch(
            batch_id=f"b-{number}", stream_identity=self.name, collection=self.ref, schema_generation_token="t1",
            durability=sf.DURABILITY_POLICY_WAL_CHUNK_DURABLE, visibility=sf.VISIBILITY_POLICY_ASYNC)
        for i in range(3):
            doc = json.dumps({"writer": self.name, "n": number * 3 + i}).encode()
            row = sf.RowMutation(doc_id=sf.DocumentID(u64=number * 3 + i), op=sf.ROW_OP_CREATE, body=doc)
            batch.entries.add().row.CopyFrom(row)
        self.send(batch)
        self.requests.append(batch)

    def send(self, batch):
        def attempt():
            channel = grpc.insecure_channel(SERVER.address, options=[("grpc.use_local_subchannel_pool", 1)])
            try:
                stub = sf_grpc.IngestGatewayServiceStub(channel)
                requests = [sf.StreamMutationsRequest(open=sf.StreamOpen(meta=meta(kind=ES, client=self.name))),
                            sf.StreamMutationsRequest(batch=batch)]
                for answer in stub.StreamMutations(iter(requests), timeout=20):
                    if answer.HasField("ack"):
                        if answer.ack.HasField("error"):
                            assert answer.ack.error.code in ("SF_BACKEND_UNAVAILABLE", "SF_RATE_LIMITED",
                                                             "SF_CATALOG_UNAVAILABLE"), answer.ack.error
                            return None
                        return answer.ack
                return None
            except grpc.RpcError as error:
                assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED,
                                        grpc.StatusCode.DEADLINE_EXCEEDED), error
                return None
            finally:
                channel.close()

        ack = self.until_answered(attempt)
        assert ack.gate >= sf.ACK_GATE_DURABLE and ack.row_count == 3, ack
        for entry in batch.entries:
            self.note(entry.row.doc_id.u64, entry.row.body)


def rows_of(path):
    answer = SERVER.sfctl("rows", path, "--raw")
    assert answer.returncode == 0, answer.stderr
    return {doc_id: body for doc_id, (_, body) in parse_rows(answer.stdout).items()}


def test_nothing_acknowledged_is_lost_or_doubled():
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    SERVER.start()
    api = Api(SERVER)
    for index in ("issued", "mixed"):
        assert http_request("PUT", f"/{index}", b"{}", {"Content-Type": "application/json"})[0] == 200
    demo = api.catalog.GetNamespaceMetadata(sf.GetNamespaceMetadataRequest(meta=meta(), namespace_name="demo"), timeout=20)
    ref = api.ready_collection(demo.descriptor.namespace_id, "stream", body=definition(policy=sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED))
    writers = [Bulk("issued-a", "issued", False), Bulk("issued-b", "issued", False), Bulk("mixed-a", "mixed", True),
               Single("single-a"), Stream("stream-a", ref)]
    for writer in writers:
        writer.start()
    for _ in range(KILLS):
        time.sleep(rng.uniform(0.1, 0.8))
        SERVER.crash()
    for writer in writers:
        writer.stopping.set()
    for writer in writers:
        writer.join(GIVE_UP_S + 30)
        assert writer.failure is None, f"{writer.name}: {writer.failure!r}"
        assert not writer.is_alive(), f"{writer.name} did not end"
    print(", ".join(f"{w.name}: {len(w.requests)} requests, {w.retries} sent again" for w in writers))
    assert all(w.requests for w in writers) and sum(w.retries for w in writers) > 0

    expected = {"demo/issued": {**writers[0].docs, **writers[1].docs}, "demo/mixed": writers[2].docs,
                "demo/stream": writers[4].docs}
    assert len(expected["demo/issued"]) == len(writers[0].docs) + len(writers[1].docs), "an id was given to two writers"
    for (index, doc_id), doc in writers[3].docs.items():
        expected.setdefault(f"demo/{index}", {})[doc_id] = doc

    def check():
        for path, docs in expected.items():
            wait_for(lambda path=path, docs=docs: rows_of(path) == docs, f"rows of {path}")

    check()
    # Every request once more: the same answers (note asserts it), and nothing is added.
    for writer in writers:
        for request in writer.requests:
            writer.send(request)
    check()
    SERVER.crash()
    check()


run(globals())
