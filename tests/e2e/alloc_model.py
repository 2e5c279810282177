"""One randomized run of the allocator against a model: plans, retries, kills, drops, names made anew, schemas, writes.

The seven properties of the note's summary are asserted on the way:
  1 a context of its own        the catalog's objects do not change while ids are given, nor the allocator's while the catalog works
  2 one direction               the catalog's calls succeed and cause no call of the allocator
  3 keyed by CollectionRef      a name made anew starts from nothing, the old lineage answers its keys
  4 replay-stable results       every success is answered again, byte for byte, whatever happened since
  5 one space for both kinds    issued and named ids follow one watermark, the model's
  6 burned, no callback         writing, refusing or never writing a document moves no watermark
  7 nothing hidden in ingest    a row without an id, or with one that was not given, is refused and allocates nothing
"""
import concurrent.futures
import os
import random

import grpc

from allocator_calls import state
from harness import Api, Stream, batch, definition, error_of, fresh, ids, meta, private, proves, row, run, server, sf, state_key

SEED = int(os.environ.get("SF_SEED", "20261130"))
STEPS = int(os.environ.get("SF_STEPS", "200"))
# Without ranges reserved ahead every id is predicted.
SERVER = server("catalog:\n  collection_gc_delay_ms: 1\n  namespace_gc_delay_ms: 1\nallocator:\n  leases: false\n")
SERVER.start()
ALLOCATE = 'searchfabric_rpc_server_handled_total{method="/searchfabric.v1.IdAllocatorService/AllocateIds"'


class Lineage:
    """What the model knows of one collection."""

    def __init__(self, ref, name):
        self.ref, self.name = ref, name
        self.next = 0
        self.realized = {}  # doc id -> key
        self.results = {}  # key -> (plan, answer bytes, token)
        self.version, self.token, self.items, self.jump = 0, None, 50, 100
        self.live = True
        self.written = {}  # doc id -> body


class Model:
    def __init__(self):
        self.rng = random.Random(SEED)
        self.api = Api(SERVER)
        self.ns = self.api.namespace().namespace_id
        self.lineages = []
        self.counts = {}
        for name in ("books", "papers"):
            self.make(name)

    # -- the catalog's side --

    def make(self, name):
        ref = self.api.collection(self.ns, name).collection
        lineage = Lineage(ref, name)
        self.lineages.append(lineage)
        self.put_schema(lineage)
        assert state(self.api, ref) is None  # property 3: whatever the name meant before
        return lineage

    def put_schema(self, lineage):
        lineage.version += 1
        lineage.token = f"t{lineage.version}"
        lineage.items, lineage.jump = self.rng.choice([5, 20, 50]), self.rng.choice([10, 100])
        self.api.schema(lineage.ref, lineage.version, lineage.token, body=definition(items=lineage.items, jump=lineage.jump))

    def lifecycle(self):
        """Drops a collection and makes one of the same name."""
        lineage = self.some(live=True)
        self.api.catalog.DropCollection(sf.DropCollectionRequest(meta=meta(fresh()), collection=lineage.ref), timeout=20)
        lineage.live = False
        while True:
            self.api.private.RunReleaseSweep(private.RunReleaseSweepRequest(namespace_id=self.ns), timeout=20)
            try:
                self.make(lineage.name)
                return
            except grpc.RpcError as error:
                assert error_of(error).code == "SF_VERSION_CONFLICT", error

    def some(self, live=None):
        return self.rng.choice([one for one in self.lineages if live is None or one.live == live])

    # -- the allocator's side --

    def predict(self, lineage, plan):
        """Outcome of a fresh plan: (code, ids, watermark)."""
        explicit = [item for item in plan if item is not None]
        if len(set(explicit)) != len(explicit):
            return "SF_BAD_REQUEST", None, lineage.next
        if not lineage.live:
            return "SF_RESOURCE_NOT_FOUND", None, lineage.next
        if len(plan) > lineage.items:
            return "SF_TOO_MANY_OPERATIONS", None, lineage.next
        at, out = lineage.next, []
        for item in plan:
            doc_id = at if item is None else item
            if doc_id < at:
                return "SF_VERSION_CONFLICT", None, lineage.next
            if doc_id - at > lineage.jump:
                return "SF_TOO_MANY_OPERATIONS", None, lineage.next
            out.append(doc_id)
            at = doc_id + 1
        return "OK", out, at

    def draw_plan(self, lineage):
        rng, at, plan = self.rng, lineage.next, []
        for _ in range(rng.choice([1, 1, 2, 3, 8, lineage.items, lineage.items + 1])):
            kind = rng.random()
            if kind < 0.55:
                plan.append(None)
                at += 1
            elif kind < 0.92:
                at += rng.randrange(4)
                plan.append(at)
                at += 1
            else:
                plan.append(max(0, at - rng.randrange(1, 6)) if rng.random() < 0.6 else at + lineage.jump + rng.randrange(3))
        return plan

    def send(self, lineage, plan, key):
        """(code, answer)."""
        try:
            return "OK", self.api.allocate(lineage.ref, *plan, key=key)
        except grpc.RpcError as error:
            return error_of(error).code, None

    def note(self, lineage, key, plan, answer):
        """A new success: its ids are the plan's, and nobody else's."""
        got = ids(answer)
        assert len(got) == len(plan) and got == sorted(set(got))
        for item, one in zip(plan, answer.realized_doc_ids):
            assert one.allocator_issued == (item is None) and (item is None or one.doc_id.u64 == item)
            assert lineage.realized.setdefault(one.doc_id.u64, key) == key, f"{one.doc_id.u64} was given twice"
        lineage.results[key] = (plan, answer.SerializeToString(deterministic=True), answer.schema_generation_token)

    def allocate(self, lineage):
        plan, key = self.draw_plan(lineage), fresh()
        want, out, after = self.predict(lineage, plan)
        code, answer = self.send(lineage, plan, key)
        assert code == want, (code, want, plan, lineage.next, lineage.items, lineage.jump)
        self.counts[code] = self.counts.get(code, 0) + 1
        if code == "OK":
            assert ids(answer) == out and answer.schema_generation_token == lineage.token
            self.note(lineage, key, plan, answer)
            lineage.next = after

    def retry(self, lineage):
        key = self.rng.choice(sorted(lineage.results))
        plan, first, _ = lineage.results[key]
        code, answer = self.send(lineage, plan, key)
        assert code == "OK" and answer.SerializeToString(deterministic=True) == first, key
        assert self.send(lineage, plan + [None], key)[0] == "SF_IDEMPOTENCY_CONFLICT"
        assert self.send(lineage, [None] * len(plan) if any(plan) else [10**9] * 1, key)[0] == "SF_IDEMPOTENCY_CONFLICT"

    def burst(self, lineage, kill):
        """Many requests at once, perhaps with kill -9 among them; then each again until it is answered."""
        wanted = {fresh(): [None] * self.rng.randrange(1, 4) if self.rng.random() < 0.7 else
                  [lineage.next + self.rng.randrange(8), None] for _ in range(12)}
        before = lineage.next

        def once(key):
            try:
                return key, self.api.allocate(lineage.ref, *wanted[key], key=key, timeout=10), None
            except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed with its server
                return key, None, error

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            work = [pool.submit(once, key) for key in wanted]
            if kill:
                SERVER.kill()
            done = [one.result() for one in work]
        if kill:
            SERVER.start()
            self.api = Api(SERVER)
        for key, answer, error in done:
            if answer is not None:
                self.note(lineage, key, wanted[key], answer)
        for key, answer, error in done:
            code, again = self.send(lineage, wanted[key], key)
            if answer is not None:
                assert again.SerializeToString(deterministic=True) == lineage.results[key][1], key
            elif code == "OK":
                self.note(lineage, key, wanted[key], again)
            else:  # passed over by the others
                assert code == "SF_VERSION_CONFLICT" and wanted[key][0] is not None, (code, wanted[key])
        found = state(self.api, lineage.ref)
        lineage.next = int(found["next_doc_id"]) if found else 0
        assert lineage.next >= before and all(doc_id < lineage.next for doc_id in lineage.realized)

    # -- ingest --

    def write(self, lineage):
        """A batch of an allocation, right or wrong; the watermark stands whatever becomes of it."""
        fitting = [(key, plan, packed) for key, (plan, packed, token) in sorted(lineage.results.items()) if token == lineage.token]
        if not fitting:
            return
        _, _, packed = self.rng.choice(fitting)
        answer = sf.AllocateIdsSuccessResponse.FromString(packed)
        given = ids(answer)
        before = self.api.object(state_key(lineage.ref))
        calls = self.calls()
        stream = Stream(self.api)
        good = [row(doc_id, b'{"d":%d}' % doc_id) for doc_id in given]
        for rows, receipt, code in ((good[:-1] + [row(None, b"{}")], answer.allocator_receipt, "SF_INVALID_ARGUMENT"),
                                    (good, b"", "SF_BAD_REQUEST"),
                                    (good[:-1] + [row(lineage.next + 7, b"{}")], answer.allocator_receipt, "SF_BAD_REQUEST")):
            stream.refused(batch(lineage.ref, *rows, token=lineage.token, receipt=receipt), code)
        if given[0] not in lineage.written:
            ack = stream.put(batch(lineage.ref, *good, token=lineage.token, receipt=answer.allocator_receipt))
            assert not ack.HasField("error"), ack
            lineage.written.update({doc_id: b'{"d":%d}' % doc_id for doc_id in given})
        stream.close()
        assert self.api.object(state_key(lineage.ref)) == before and self.calls() == calls

    def calls(self):
        return sum(value for name, value in SERVER.metrics().items() if name.startswith(ALLOCATE))

    def check(self):
        """Every state object is the model's; there is none that the model does not know."""
        found = {key for key in self.api.keys("id-allocator/state/")}
        assert found == {state_key(one.ref) for one in self.lineages if one.realized}, found
        for one in self.lineages:
            if one.realized:
                assert int(state(self.api, one.ref)["next_doc_id"]) == one.next, one.name
        successes = sum(len(one.results) for one in self.lineages)
        assert len(self.api.keys("id-allocator/replay-success/")) == successes


def apart(model, prefixes, call):
    """Runs the call; no object below these prefixes may change."""
    def look():
        return {key: model.api.object(key) for prefix in prefixes for key in model.api.keys(prefix) if "manifest" not in key}
    before = look()
    call()
    after = look()
    assert after == before, [key for key in after if after[key] != before.get(key)]


# Descriptors, schemas, tombstones; heads of manifests and their commands follow what was written before, at their own pace.
CATALOG = ("catalog/",)


def test_model():
    proves("ALLOC-16-01", "ALLOC-10.2-01", "ALLOC-10.2-02", "ALLOC-2.1-10", "ALLOC-5.3-12", "ALLOC-6.5-01")
    print(f"seed {SEED}, {STEPS} steps")
    model = Model()
    for step in range(STEPS):
        draw = model.rng.random()
        live = model.some(live=True)
        try:
            if draw < 0.45:
                model.allocate(model.some() if model.rng.random() < 0.15 else live)
            elif draw < 0.65:
                lineage = model.some()
                if lineage.results:
                    model.retry(lineage)
            elif draw < 0.72:
                model.burst(live, kill=False)
            elif draw < 0.77:
                model.burst(live, kill=True)
            elif draw < 0.80:
                SERVER.crash()
                model.api = Api(SERVER)
            elif draw < 0.88:
                model.write(live)
            elif draw < 0.93:
                apart(model, ["id-allocator/"], lambda: model.put_schema(live))
            elif draw < 0.96:
                calls = model.calls()
                apart(model, ["id-allocator/"], model.lifecycle)
                assert model.calls() == calls
            else:
                apart(model, CATALOG, lambda: [model.allocate(live) for _ in range(5)])
            if step % 20 == 19:
                model.check()
        except AssertionError:
            print(f"step {step} of seed {SEED}")
            raise
    model.check()
    # Everything that was ever answered is answered still, from memory and from the store.
    for restart in (lambda: None, SERVER.crash):
        restart()
        model.api = Api(SERVER)
        for lineage in model.lineages:
            for key, (plan, first, _) in lineage.results.items():
                assert model.send(lineage, plan, key)[1].SerializeToString(deterministic=True) == first, key
    # The run met what it is about.
    assert set(model.counts) >= {"OK", "SF_VERSION_CONFLICT", "SF_TOO_MANY_OPERATIONS", "SF_RESOURCE_NOT_FOUND"}, model.counts
    assert len(model.lineages) >= 4 and any(one.written for one in model.lineages)


run(globals())
