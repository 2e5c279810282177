"""The projection in a database server that goes away and comes back, seen from the operator's ports."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import grpc

from harness import ADMIN, MANAGED, Api, fresh, meta, refused, run, server, sf

FOLDER = pathlib.Path(pathlib.Path(os.environ["SF_SQL_SERVERS"]).read_text().strip())
KIND = os.environ["SF_TEST_PROJECTION"]
REAL = FOLDER / ("pg/.s.PGSQL.5432" if KIND == "postgres" else "my/sock")


class Between:
    """A socket before the server's: cut, nobody answers there; `change` rewrites what the server says."""

    def __init__(self, change=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sf-between-"))
        self.path = self.folder / (".s.PGSQL.5432" if KIND == "postgres" else "sock")
        self.change = change
        self.open = []
        self.listener = None
        self.join()

    @property
    def host(self):
        return self.folder if KIND == "postgres" else self.path

    def join(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(64)
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(str(REAL))
            self.open += [near, far]
            threading.Thread(target=self.pump, args=(near, far, None), daemon=True).start()
            threading.Thread(target=self.pump, args=(far, near, self.change), daemon=True).start()

    @staticmethod
    def pump(source, sink, change):
        try:
            while data := source.recv(65536):
                sink.sendall(change(data) if change else data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        self.path.unlink()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for end in self.open:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.open = []

    def remove(self):
        self.cut()
        shutil.rmtree(self.folder)


def statement(sql):
    if KIND == "postgres":
        words = ["psql", "-h", str(FOLDER / "pg"), "-U", "postgres", "-qc", sql, "postgres"]
    else:
        words = ["mariadb", "--no-defaults", "-S", str(REAL), "-uroot", "-e", sql]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def projected(between, database):
    statement(f"CREATE DATABASE {database}")
    return server(f"projection:\n  kind: {KIND}\n  host: {between.host}\n  database: {database}\n  user: sf\n"
                  f"  password_file: {FOLDER}/secret\n  connect_timeout_ms: 1000\n  statement_timeout_ms: 1000\n")


def within(seconds, what, check):
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_lost_server_is_told():
    """While the database is gone /readyz is 503 and says so, so does gRPC's health; both come back without a restart."""
    between = Between()
    one = projected(between, f"told{os.getpid()}")
    one.start()
    a = Api(one)
    ns = a.namespace()
    ref = a.ready_collection(ns.namespace_id)
    health = a.channel.unary_unary("/grpc.health.v1.Health/Check")
    request = sf.PutCollectionMetadataRequest(meta=meta(fresh(), ADMIN), encryption=MANAGED, name_binding=sf.CollectionNameBinding(
        namespace_id=ns.namespace_id, collection_name=fresh("c")))
    for _ in range(2):
        assert one.get("/readyz")[0] == 200 and health(b"", timeout=5) == b"\x08\x01"
        between.cut()
        within(10, "readyz stays 200", lambda: one.get("/readyz")[0] == 503)
        got = json.loads(one.get("/readyz")[1])
        assert got["reason"] == "failed", got
        ccs = next(worker for worker in got["workers"] if worker["name"] == "ccs")
        assert ccs["state"] == "failed" and "projection's database does not answer" in ccs["detail"], got
        assert [worker["name"] for worker in got["workers"] if worker["state"] != "serving"] == ["ccs"], got
        within(3, "gRPC's health stays SERVING", lambda: health(b"", timeout=5) == b"\x08\x02")
        assert one.get("/healthz")[0] == 200
        assert b"does not answer" in one.sfctl("status").stdout
        refused("SF_BACKEND_UNAVAILABLE", lambda: a.catalog.PutCollectionMetadata(request, timeout=20))
        between.join()
        within(15, "readyz stays 503", lambda: one.get("/readyz")[0] == 200)
        within(3, "gRPC's health stays NOT_SERVING", lambda: health(b"", timeout=5) == b"\x08\x01")
        assert "catalog_projection_back" in one.log()

    def applied():
        try:
            return a.catalog.PutCollectionMetadata(request, timeout=20).descriptor.collection_name == request.name_binding.collection_name
        except grpc.RpcError:
            return False

    within(15, "mutations stay refused", applied)
    assert a.allocate(ref, None)
    assert one.stop() == 0
    between.remove()


def test_old_server_is_refused():
    """A PostgreSQL before 15 is refused by its version."""
    if KIND != "postgres":
        return
    between = Between(lambda data: data.replace(b"server_version\x0015", b"server_version\x0014"))
    one = projected(between, f"old{os.getpid()}")
    out = subprocess.run(one.command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30)
    assert out.returncode == 1 and b"the server's version 14 is not served: 15 or later is" in out.stderr, out
    between.remove()


run(globals())
