"""Looking after the catalog with sfctl: checkpoints, fsck, replays, retention, projection, heads, statistics."""
import contextlib
import json
import re
import sqlite3
import time

from catalog_calls import caught_up, get_collection, get_namespace, list_collections, run_job
from harness import DURABLE, VISIBLE, Api, Stream, batch, fresh, row, run, server, sf, sfctl, wait_for

SERVER = server()
SERVER.start()


def done(*words, code=0):
    out = SERVER.sfctl(*words)
    assert out.returncode == code, (words, out)
    return out.stdout.decode()


def json_of(*words, code=0):
    return json.loads(done("--json", *words, code=code))


def fails(code, *words):
    out = SERVER.sfctl(*words)
    assert out.returncode == code and not out.stdout and out.stderr.startswith(b"sfctl: "), (words, out)
    return out.stderr.decode()


def collection(rows=0):
    """A READY collection with visible rows: (NS/NAME, reference)."""
    a = Api(SERVER)
    ns = a.namespace()
    ref = a.ready_collection(ns.namespace_id, "books", policy=sf.DOC_ID_GENERATION_POLICY_CALLER_REQUIRED)
    a.signal(ref, 1, "t1")
    if rows:
        stream = Stream(a)
        for at in range(rows):
            assert not stream.put(batch(ref, row(at, b"{}"), durability=DURABLE, visibility=VISIBLE)).HasField("error")
        stream.close()
    return f"{ns.namespace_name}/books", ref


@contextlib.contextmanager
def projection():
    connection = sqlite3.connect(SERVER.data / "projection.sqlite", timeout=10)
    try:
        with connection:
            yield connection
    finally:
        connection.close()


def test_checkpoint():
    collection()
    first = json_of("checkpoint", "create")["manifest"]
    collection()
    out = done("checkpoint", "create")
    assert re.search(r"^cut in \d+ ms$", out, re.M) and out.splitlines()[0].split()[0] == "EPOCH", out
    listed = [json.loads(line) for line in done("--json", "checkpoint", "list").splitlines()]
    epochs = [int(one["checkpoint_epoch"]) for one in listed]
    assert epochs == sorted(epochs, reverse=True) and epochs[1] == int(first["checkpoint_epoch"]), listed
    assert all(one["complete"] for one in listed)
    rows = [sum(int(shard["row_count"]) for shard in one["manifest"]["checkpoint_shards"]) for one in listed]
    assert rows[0] > rows[1], rows
    assert [line.split()[0] for line in done("checkpoint", "list").splitlines()[1:]] == [str(one) for one in epochs]
    assert done("checkpoint", "verify").startswith(f"checkpoint {epochs[0]}: complete, {rows[0]} rows")
    verified = json_of("checkpoint", "verify", str(epochs[1]))
    assert verified["complete"] and int(verified["row_count"]) == rows[1]
    assert "SF_RESOURCE_NOT_FOUND" in fails(1, "checkpoint", "verify", "999")
    for words in (["checkpoint"], ["checkpoint", "cut"], ["checkpoint", "verify", "x"], ["checkpoint", "list", "1"]):
        fails(2, *words)


def test_fsck():
    path, ref = collection()
    a = Api(SERVER)
    before = get_collection(caught_up(a), collection=ref)
    assert json_of("fsck", "--dry-run").get("problems", "0") == "0"
    with projection() as connection:
        connection.execute("UPDATE collections SET options_json = '{\"entries\":{\"planted\":\"yes\"}}' WHERE collection_id = ?",
                           (ref.collection_id - (1 << 63),))
    run_job(a, "forget-facts")
    assert get_collection(a, collection=ref).options.entries == {"planted": "yes"}
    for _ in range(2):  # a dry run says so and changes nothing
        found = json_of("fsck", "--dry-run", code=4)
        assert found["problems"] == "1" and found.get("repaired", "0") == "0", found
        finding, = found["findings"]
        assert finding["kind"] == "row_differs" and finding["subject"] == "collections" and finding["repair"], finding
        assert str(ref.collection_id) in finding["key"] and finding["explanation"]
        assert get_collection(a, collection=ref).options.entries == {"planted": "yes"}
    text = done("fsck", "--dry-run", "--namespace", path.split("/")[0], code=4)
    assert text.startswith("PROBLEM row_differs collections catalog/") and " 1 problems, 0 repaired" in text, text
    repaired = json_of("fsck")
    assert repaired["problems"] == repaired["repaired"] == "1", repaired
    assert get_collection(a, collection=ref) == before
    assert " 0 problems, 0 repaired" in done("fsck")
    fails(2, "fsck", "word")
    assert "it had 1 ms; --timeout gives it more" in fails(3, "--timeout", "1", "fsck", "--dry-run")


def test_fsck_lost_row():
    """A row that no object can give back whole is told; a rebuild makes it again."""
    path, ref = collection()
    name = path.split("/")[0]
    a = Api(SERVER)
    before = get_namespace(caught_up(a), namespace_id=ref.namespace_id)
    with projection() as connection:
        connection.execute("DELETE FROM namespaces WHERE namespace_name = ?", (name,))
    run_job(a, "forget-facts")
    found = json_of("fsck", code=4)
    finding, = found["findings"]
    assert finding["kind"] == "row_lost" and str(ref.namespace_id) in finding["key"] and not finding.get("repaired"), found
    assert SERVER.stop() == 0
    assert sfctl("projection", "rebuild", str(SERVER.data)).returncode == 0
    SERVER.start()
    assert get_namespace(caught_up(Api(SERVER)), namespace_id=ref.namespace_id) == before
    assert json_of("fsck", "--dry-run").get("problems", "0") == "0"


def test_fsck_drop_and_statistics():
    """Tombstones and statistics are compared, too; one namespace alone is."""
    path, ref = collection(rows=2)
    name = path.split("/")[0]
    done("stats", "analyze", path)
    gone, lost = collection()
    done("collection", "drop", gone)
    caught_up(Api(SERVER))
    assert json_of("fsck").get("problems", "0") == "0"
    digest = authoritative(json_of("projection", "digest"))
    with projection() as connection:
        connection.execute("DELETE FROM collection_statistics_heads WHERE collection_id = ?", (ref.collection_id - (1 << 63),))
        connection.execute("DELETE FROM collection_tombstones WHERE collection_id = ?", (lost.collection_id - (1 << 63),))
    found = json_of("fsck", "--dry-run", code=4)
    assert sorted((one["kind"], one["subject"]) for one in found["findings"]) == [
        ("row_missing", "collection_statistics_heads"), ("row_missing", "collection_tombstones")], found
    text = done("fsck", "--dry-run", "--namespace", gone.split("/")[0], code=4)
    assert text.startswith(f"PROBLEM row_missing collection_tombstones catalog/") and " 1 problems, 0 repaired" in text, text
    assert "its tombstone stands; a row does not show it; the tombstone is the truth" in text, text
    assert "(repair: the rows of collection and tombstone are written from the objects)" in text, text
    text = done("fsck", "--namespace", name)
    assert "(repaired: rows of head and snapshot are written from the objects)" in text, text
    assert json_of("fsck")["repaired"] == "1"
    assert json_of("fsck").get("problems", "0") == "0" and authoritative(json_of("projection", "digest")) == digest


def test_replay():
    path, _ = collection()
    name = path.split("/")[0]
    ns = str(get_namespace(Api(SERVER), namespace_name=name).namespace_id)
    key = fresh()
    made = json_of("--key", key, "collection", "create", f"{name}/keyed")
    words = ["--key", key, "replay", "show", "--kind", "PUT_COLLECTION_METADATA", "--scope", f"{ns}/keyed"]
    shown = json_of(*words)
    assert shown["found"] and shown["verdict"] == "original answer" and shown["outcome"]["idempotency_key"] == key, shown
    assert shown["row_present"] and shown["transport_pointer_present"] and not shown.get("business_pointer_present")
    assert json.loads(shown["success_json"])["descriptor"]["collection"]["namespace_id"] == ns and made
    same = json_of("replay", "show", "--command", shown["command_identity"])
    assert same == shown
    text = done(*words)
    assert shown["command_identity"] in text and "original answer" in text
    assert json_of(*words[:-1], f"{name}/keyed") == shown
    fresh_key = json_of("--key", fresh(), *words[2:])
    assert not fresh_key.get("found") and fresh_key["verdict"] == "nothing: the key is new"
    for bad in (["replay"], ["replay", "show"], ["replay", "show", "--kind", "PUT_COLLECTION_METADATA"]):
        fails(2, *bad)
    assert "NAMESPACE/COLLECTION" in fails(2, *words[:-1], name)
    assert "no such namespace" in fails(1, *words[:-1], f"{fresh('nowhere')}/keyed")
    assert "public mutation" in fails(1, "--key", key, "replay", "show", "--kind", "HEAD_ADVANCE", "--scope", "1/2")
    assert "64 lower-case hex digits" in fails(1, "replay", "show", "--command", "abc")


def test_replay_of_drop():
    """Keys of commands about one collection, by names or ids, also once it is dropped."""
    path, ref = collection()
    key = fresh()
    done("--key", key, "collection", "drop", path)
    words = ["--key", key, "replay", "show", "--kind", "DROP_COLLECTION", "--scope"]
    shown = json_of(*words, path)
    assert shown["found"] and shown["outcome"]["idempotency_key"] == key, shown
    assert json_of(*words, f"{ref.namespace_id}/{ref.collection_id}") == shown
    done("namespace", "transition", path.split("/")[0], "tombstoned")
    assert json_of(*words, path) == shown
    by_name, by_id = (json_of("fsck", "--namespace", one) for one in (path.split("/")[0], str(ref.namespace_id)))
    assert by_name == by_id and int(by_name["objects_read"]) > 0 and not by_name.get("problems"), (by_name, by_id)


def test_gc():
    collection()
    keys = Api(SERVER).keys("catalog")
    assert re.match(r"^0 records, 0 control objects, 0 segments would go; lowest segment 1$", done("gc", "--dry-run"))
    assert json_of("gc", "--dry-run")["boundary_segment_epoch"] == "1"
    assert Api(SERVER).keys("catalog") == keys  # everything is younger than the retention
    fails(2, "gc", "word")


def authoritative(out):
    return {one["table"]: (one.get("row_count", "0"), one["sha256"]) for one in out["tables"] if one.get("authoritative")}


def test_projection():
    _, ref = collection(rows=2)
    a = Api(SERVER)
    listed = list_collections(caught_up(a), ref.namespace_id)
    before = json_of("projection", "digest")
    tables = authoritative(before)
    assert {"namespaces", "collections", "schema_generations", "catalog_replay_index", "collection_tombstones"} <= set(tables)
    assert int(tables["collections"][0]) >= 1 and before["sha256"] in done("projection", "digest")
    running = sfctl("projection", "rebuild", str(SERVER.data))
    assert running.returncode == 1 and running.stderr, running  # the server has the folder
    assert json_of("projection", "digest")["sha256"] == before["sha256"]
    assert SERVER.stop() == 0
    out = sfctl("--json", "projection", "rebuild", str(SERVER.data))
    assert out.returncode == 0, out
    assert authoritative(json.loads(out.stdout.splitlines()[-1])) == tables
    SERVER.start()
    assert authoritative(json_of("projection", "digest")) == tables
    assert list_collections(caught_up(Api(SERVER)), ref.namespace_id) == listed
    fails(2, "projection")


def test_manifest_head():
    path, ref = collection(rows=3)
    repaired = json_of("manifest", "head", "repair", path)
    shown = json_of("manifest", "head", "show", path)
    committed = shown["committed_head"]["committed_manifest_version"]
    assert int(committed) >= 1 and shown["projected_head_version"] == committed == shown["head"]["manifest_head_version"], shown
    assert shown["projected_reconciler_status"].endswith("IDLE") and repaired is not None
    assert committed in done("manifest", "head", "show", path)
    again = json_of("manifest", "head", "repair", path, "--dry-run")
    assert again is not None and json_of("manifest", "head", "show", path) == shown
    assert ref


def test_stats():
    path, _ = collection(rows=3)
    done("stats", "analyze", path)
    shown = json_of("stats", "show", path)
    text = json.dumps(shown)
    assert '"row_count": "3"' in text and '"t1"' in text, text
    table = done("stats", "show", path)
    assert "t1" in table, table
    assert "SF_RESOURCE_NOT_FOUND" in fails(1, "stats", "show", path + "x")
    fails(2, "stats", "show")


def test_fsck_given_up():
    """Once its client is gone a check ends, between two pages. Last, for it leaves projectors with much to do."""
    a = Api(SERVER)
    ns = a.namespace()
    for at in range(300):
        a.collection(ns.namespace_id, f"c{at}")
    gave_up = lambda: 'error="the caller cancelled"' in SERVER.log()  # noqa: E731
    for ms in (5, 10, 20, 40, 80):
        if SERVER.sfctl("--timeout", str(ms), "fsck", "--dry-run").returncode == 3:
            time.sleep(0.5)
        if gave_up():
            break
    wait_for(gave_up, "a check that was given up")
    assert json_of("fsck", "--dry-run").get("problems", "0") == "0"


run(globals())
