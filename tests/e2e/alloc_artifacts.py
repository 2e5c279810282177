"""What the allocator keeps beside the truth, on a real server: failure audits, segments, the export, retention by hand."""
import json
import sqlite3

import grpc

from harness import Api, ids, proves, run, server, sfctl, wait_for

CONFIG = """
allocator:
  failure_audit: true
  recovery_segments: true
  export:
    enabled: true
log:
  level: debug
"""
SERVER = server(CONFIG)
SERVER.start()
EXPORT = SERVER.data / "allocator-export.sqlite"
BIAS = 1 << 63


def done(*words, code=0):
    out = SERVER.sfctl(*words)
    assert out.returncode == code, (words, out)
    return out.stdout.decode()


def rows(sql):
    connection = sqlite3.connect(EXPORT, timeout=10)
    try:
        with connection:
            return connection.execute(sql).fetchall()
    finally:
        connection.close()


def refused(a, ref, *items, key):
    try:
        a.allocate(ref, *items, key=key)
    except grpc.RpcError as error:
        return error
    raise AssertionError("not refused")


def test_audit_segments_and_rows():
    proves("ALLOC-6.4-02", "ALLOC-7.1-08", "ALLOC-7.1-10", "ALLOC-8-01")
    a = Api(SERVER)
    ref = a.ready_collection()
    a.allocate(ref, 9, key="one")
    refused(a, ref, 3, key="two")
    audits = wait_for(lambda: a.keys("id-allocator/failure-audit/"), "an audit")
    assert len(audits) == 1, audits
    audit = a.json_object(next(iter(audits)))
    assert audit["idempotency_key"] == "two" and audit["error"]["code"] == "SF_VERSION_CONFLICT", audit
    assert "realized_doc_ids" not in audit and "schema_generation_token" not in audit, audit
    segments = wait_for(lambda: a.keys("id-allocator/recovery-segments/"), "a segment")
    segment = json.loads(done("object", "cat", next(iter(segments))))
    assert [entry["idempotency_key"] for entry in segment["entries"]] == ["one"], segment
    wait_for(lambda: EXPORT.exists() and rows(
        "SELECT name FROM sqlite_master WHERE name = 'alloc_export_allocations'"), "the export")
    wait_for(lambda: rows("SELECT 1 FROM alloc_export_allocations WHERE idempotency_key = 'one'"), "a row")
    found = rows(f"SELECT next_doc_id FROM alloc_export_collections WHERE collection_id = {ref.collection_id - BIAS}")
    assert found == [("10",)], found


def test_dropped_poisoned_and_rebuilt():
    proves("ALLOC-7.1-12", "ALLOC-8-02", "ALLOC-8-03", "ALLOC-8-05")
    a = Api(SERVER)
    ref = a.ready_collection()
    assert ids(a.allocate(ref, None, None, key="d1")) == [0, 1]
    wait_for(lambda: rows("SELECT 1 FROM alloc_export_allocations WHERE idempotency_key = 'd1'"), "a row")
    rows("UPDATE alloc_export_collections SET next_doc_id = '700'")
    assert ids(a.allocate(ref, None, key="d2")) == [2]
    rows("DROP TABLE alloc_export_allocations")
    rows("DROP TABLE alloc_export_collections")
    assert ids(a.allocate(ref, None, key="d3")) == [3]
    assert ids(a.allocate(ref, None, None, key="d1")) == [0, 1]
    told = json.loads(done("--json", "alloc", "export", "rebuild"))
    assert int(told["allocations"]) >= 3 and int(told.get("broken", 0)) == 0, told
    keys = {key for (key,) in rows("SELECT idempotency_key FROM alloc_export_allocations")}
    assert {"d1", "d2", "d3"} <= keys, keys
    assert "objects that do not verify" in done("alloc", "export", "rebuild")
    done("alloc", "export", code=2)


def test_retention_by_hand():
    a = Api(SERVER)
    a.allocate(a.ready_collection(), None)
    before = a.keys("id-allocator/replay-success/")
    told = json.loads(done("--json", "alloc", "gc", "--dry-run"))
    assert int(told.get("results_removed", 0)) == 0 and int(told.get("objects_examined", 0)) >= len(before), told
    assert "0 results, 0 artifacts removed" in done("alloc", "gc")
    assert a.keys("id-allocator/replay-success/") == before
    done("alloc", "gc", "x", code=2)


def test_full_ids_are_logged_at_debug():
    proves("ALLOC-14-22")
    a = Api(SERVER)
    ref = a.ready_collection()
    a.allocate(ref, None, 41, None, key="debug-1")
    log = (SERVER.folder / "server.log").read_text()
    lines = [line for line in log.splitlines() if "alloc_request_items" in line and "debug-1" in line]
    assert len(lines) == 1 and 'items="issue:0 explicit:41 issue:42"' in lines[0], lines


def test_database_that_is_not_there():
    away = server("allocator: {export: {enabled: true, kind: postgres, host: 127.0.0.1, port: 1, database: d, user: u, "
                  "connect_timeout_ms: 1000}}\n")
    away.start()
    a = Api(away)
    assert ids(a.allocate(a.ready_collection(), None, None)) == [0, 1]
    out = away.sfctl("alloc", "export", "rebuild")
    assert out.returncode == 3 and b"failing_authority=allocator_export" in out.stderr, out
    assert away.stop() == 0


def test_lost_state_is_rebuilt():
    a = Api(SERVER)
    ref = a.ready_collection()
    a.allocate(ref, 77, key="r1")
    SERVER.stop()
    name = f"{ref.namespace_id}/{ref.collection_id}"
    out = sfctl("alloc", "rebuild", str(SERVER.data / "store"), name, "--dry-run")
    assert out.returncode == 0 and b"whole, next_doc_id 78 covers 1 results" in out.stdout, out
    out = sfctl("--json", "alloc", "rebuild", str(SERVER.data / "store"), name, "--floor", "500")
    assert out.returncode == 0 and json.loads(out.stdout)["written"], out
    out = sfctl("alloc", "rebuild", str(SERVER.data / "store"), "--all", "--segments")
    assert out.returncode == 0 and b"0 collections rebuilt, " in out.stdout, out
    for words in ([], [name], [str(SERVER.data / "store")], [str(SERVER.data), name], [str(SERVER.data / "store"), "--all", "--floor", "1"]):
        assert sfctl("alloc", "rebuild", *words).returncode == 2, words
    SERVER.start()
    assert ids(Api(SERVER).allocate(ref, None)) == [500]


run(globals())
