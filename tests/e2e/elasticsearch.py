"""The Elasticsearch port over plain HTTP: shapes, statuses, error types, what is ambiguous on the wire, keys and retries."""
import concurrent.futures
import gzip
import http.client
import json
import socket
import time

from harness import MAX_U64, Api, fresh, meta, parse_rows, proves, run, server, sf

SERVER = server("es:\n  namespace: demo\nlimits:\n  es_body_bytes: 8388608\n")
SERVER.start()


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.raw = status, headers, body
        self.body = json.loads(body) if body else None


def request(method, path, body=None, headers=(), encode_chunked=False):
    connection = http.client.HTTPConnection("127.0.0.1", SERVER.es_port, timeout=60)
    try:
        sent = dict(headers)
        if body is not None and "Content-Type" not in sent:
            sent["Content-Type"] = "application/x-ndjson" if "_bulk" in path else "application/json"
        connection.request(method, path, body, sent, encode_chunked=encode_chunked)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


def raw(data, timeout=10):
    """Sends bytes as they are; returns what comes back until the server closes or falls silent."""
    with socket.create_connection(("127.0.0.1", SERVER.es_port), timeout=timeout) as sock:
        sock.sendall(data)
        out = b""
        sock.settimeout(2)
        try:
            while True:
                part = sock.recv(65536)
                if not part:
                    break
                out += part
        except (socket.timeout, ConnectionResetError):
            pass
        return out


def status_of(response):
    return int(response.split(b" ", 2)[1]) if response.startswith(b"HTTP/1.1 ") else None


def error(answer, status, kind=None, reason=None):
    """The answer must be an error of Elasticsearch's shape."""
    assert answer.status == status, (answer.status, answer.raw)
    assert answer.headers["X-elastic-product"] == "Elasticsearch"
    body = answer.body
    assert body["status"] == status and set(body) == {"error", "status"}
    cause = body["error"]
    assert cause["type"] and cause["reason"] and cause["root_cause"][0]["type"] == cause["type"]
    assert kind is None or cause["type"] == kind, body
    assert reason is None or reason in cause["reason"], body
    return cause


def new_index(body=None, **more):
    name = fresh("i").lower()
    answer = request("PUT", f"/{name}", body, **more)
    assert answer.status == 200, answer.raw
    return name


def bulk_body(*lines):
    return b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)


def bulk(lines, path="/_bulk", headers=(), **more):
    return request("POST", path, bulk_body(*lines), headers, **more)


def rows(index):
    out = SERVER.sfctl("rows", f"demo/{index}", "--raw")
    assert out.returncode == 0, out.stderr
    return parse_rows(out.stdout)


def bodies(index):
    return {doc_id: body for doc_id, (_, body) in rows(index).items()}


def allocations():
    """(AllocateIds requests, issue items, explicit items) so far."""
    metrics = SERVER.metrics()
    prefix = "searchfabric_id_allocator_"
    total = sum(value for name, value in metrics.items() if name.startswith(prefix + "requests_total"))
    items = [sum(value for name, value in metrics.items()
                 if name.startswith(prefix + "plan_items_total") and f'item_kind="{kind}"' in name)
             for kind in ("issue", "explicit_doc_id")]
    return total, *items


def spent(call):
    before = allocations()
    answer = call()
    return answer, tuple(after - was for after, was in zip(allocations(), before))


# ---- the product, indexes -----------------------------------------------------------------------------

def test_root():
    answer = request("GET", "/")
    assert answer.status == 200 and answer.headers["X-elastic-product"] == "Elasticsearch"
    assert answer.headers["Content-Type"].startswith("application/json")
    assert answer.body["tagline"] == "You Know, for Search"
    assert int(answer.body["version"]["number"].split(".")[0]) in (8, 9) and answer.body["version"]["build_flavor"] == "default"
    head = request("HEAD", "/")
    assert head.status == 200 and head.raw == b""


def test_indexes():
    name = new_index()
    assert request("HEAD", f"/{name}").status == 200 and request("HEAD", f"/{name}").raw == b""
    missing = request("HEAD", f"/{fresh('none')}")
    assert missing.status == 404 and missing.raw == b""
    again = error(request("PUT", f"/{name}"), 400, "resource_already_exists_exception")
    assert again["index"] == name
    made = request("PUT", f"/{fresh('i')}", b'{"settings":{"number_of_shards":1},"mappings":{"properties":{"t":{"type":"text"},'
                   b'"k":{"type":"keyword"},"v":{"type":"dense_vector","dims":3}}}}')
    assert made.status == 200 and made.body["acknowledged"] is True and made.body["shards_acknowledged"] is True
    # It is a collection of the namespace with a schema whose ids come from the allocator.
    a = Api(SERVER)
    ns = a.catalog.GetNamespaceMetadata(sf.GetNamespaceMetadataRequest(meta=meta(), namespace_name="demo")).descriptor
    ref = a.catalog.GetCollectionMetadata(sf.GetCollectionMetadataRequest(meta=meta(), name_binding=sf.CollectionNameBinding(
        namespace_id=ns.namespace_id, collection_name=made.body["index"]))).descriptor.collection
    schema = a.catalog.GetCollectionSchema(sf.GetCollectionSchemaRequest(meta=meta(), collection=ref)).schema
    assert schema.definition.doc_id_mapping.generation_policy == sf.DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL
    assert {field.name: field.type for field in schema.definition.fields} == {
        "t": sf.FIELD_TYPE_TEXT, "k": sf.FIELD_TYPE_KEYWORD, "v": sf.FIELD_TYPE_DENSE_VECTOR}
    cause = error(request("PUT", "/_x"), 400, "invalid_index_name_exception", "Invalid index name [_x]")
    assert cause["index"] == "_x"
    for bad in ("UPPER", "-x", "+x", "a%20b", "a*b", "a%2Cb", "a%23b", "%2E%2E", "a" * 256):
        error(request("PUT", f"/{bad}"), 400, "invalid_index_name_exception")
    for body in (b"{", b"[]", b'{"mappings":{"properties":{"x":{"type":"join"}}}}', b'{"mappings":{"dynamic":"runtime"}}',
                 b'{"aliases":{"a":{}}}', b'{"what":1}', b'{"mappings":{"properties":{"x":{}}}}'):
        answer = request("PUT", f"/{fresh('i')}", body)
        assert answer.status in (400, 501) and answer.body["error"]["reason"], answer.raw
    assert request("HEAD", "/a%20b").status == 404


# ---- documents ----------------------------------------------------------------------------------------

def check_created(body, index, doc_id=None):
    assert body["_index"] == index and body["result"] == "created" and body["_version"] == 1
    assert body["_shards"]["failed"] == 0 and body["_shards"]["successful"] >= 1
    assert isinstance(body["_seq_no"], int) and 0 <= body["_seq_no"] < 2**53 and body["_primary_term"] == 1
    assert isinstance(body["_id"], str) and (doc_id is None or body["_id"] == str(doc_id))


def test_issued_id():
    proves("ALLOC-3.3-01", "ALLOC-1-02")
    index = new_index()
    answer, cost = spent(lambda: request("POST", f"/{index}/_doc", b'{"a": 1}'))
    assert answer.status == 201 and cost == (1, 1, 0)
    check_created(answer.body, index, 0)
    assert answer.headers["Location"] == f"/{index}/_doc/0"
    answer, cost = spent(lambda: bulk([{"index": {"_index": index}}, {"n": 1}, {"create": {"_index": index}}, {"n": 2},
                                       {"index": {"_index": index}}, {"n": 3}]))
    assert cost == (1, 3, 0) and [item[kind]["_id"] for item, kind in zip(answer.body["items"], ("index", "create", "index"))] == [
        "1", "2", "3"]


def test_explicit_ids():
    proves("ALLOC-3.3-03", "ALLOC-1-03", "ALLOC-3.3-02")
    index = new_index()
    for method, doc_id in (("PUT", 3), ("POST", 5)):
        answer, cost = spent(lambda: request(method, f"/{index}/_create/{doc_id}", b"{}"))
        assert answer.status == 201 and cost == (1, 0, 1)
        check_created(answer.body, index, doc_id)
    answer = request("PUT", f"/{index}/_doc/7?op_type=create", b"{}")
    assert answer.status == 201 and answer.body["_id"] == "7"
    answer, cost = spent(lambda: bulk([{"create": {"_index": index, "_id": str(i)}} if k == 0 else {"i": i}
                                       for i in (10, 11, 20) for k in (0, 1)]))
    assert cost == (1, 0, 3) and not answer.body["errors"]
    # Skipped, used, reserved: all below the watermark.
    for doc_id in (3, 4, 0, 20):
        cause = error(request("PUT", f"/{index}/_create/{doc_id}", b"{}"), 409, "version_conflict_engine_exception")
        assert cause


def test_ids_that_are_no_numbers():
    proves("ALLOC-3.3-04", "ALLOC-5.1-02", "ALLOC-11.1-03")
    a = Api(SERVER)
    ns = a.catalog.GetNamespaceMetadata(sf.GetNamespaceMetadataRequest(meta=meta(), namespace_name="demo")).descriptor.namespace_id
    index = fresh("big")
    a.ready_collection(ns, index, jump=MAX_U64)
    for bad in ("-1", "1.0", "007", "%2B5", "18446744073709551616", "abc", "1e3", "0x10", "%201", "1%20", "00", "\u0661".encode().hex()):
        answer, cost = spent(lambda: request("PUT", f"/{index}/_create/{bad}", b"{}"))
        error(answer, 400)
        assert cost == (0, 0, 0)
    for bad in ("-1", "1.0", "007", "+5", "18446744073709551616", "abc", "", " 1"):
        answer, cost = spent(lambda: bulk([{"create": {"_index": index, "_id": bad}}, {}]))
        item = answer.body["items"][0]["create"]
        assert item["status"] == 400 and item["error"]["type"] and item["_id"] == bad and cost == (0, 0, 0), answer.raw
    assert request("PUT", f"/{index}/_create/0", b"{}").body["_id"] == "0"
    assert request("PUT", f"/{index}/_create/18446744073709551614", b"{}").body["_id"] == "18446744073709551614"
    answer = request("POST", f"/{index}/_doc?refresh=true", b'{"last":true}')
    assert answer.body["_id"] == "18446744073709551615"
    assert bodies(index)[MAX_U64] == b'{"last":true}'
    answer = request("POST", f"/{index}/_doc", b"{}")
    assert answer.status == 413, answer.raw  # the space is used up


def test_documents_are_kept():
    proves("ALLOC-11.1-01")
    index = new_index()
    docs = [b"{}", b' {"a" : 1.50, "a2":1e400 } ', '{"\u00e4":"\U0001F600"}'.encode(), b'{"n":123456789012345678901234567890}',
            b'{"e":"\\u00e9\\/"}']
    for at, doc in enumerate(docs):
        answer = request("POST", f"/{index}/_doc?refresh=wait_for", doc)
        assert answer.status == 201 and answer.body["_id"] == str(at)
    got = bodies(index)
    assert got[0] == b"{}" and [got[at] for at in range(len(docs))] == docs
    for bad in (b"", b"[]", b"1", b"{", b'{"a":}', b"{}x", b"\xff{}"):
        answer = request("POST", f"/{index}/_doc", bad, {"Content-Type": "application/json"})
        cause = error(answer, 400)
        assert cause["type"] in ("parse_exception", "document_parsing_exception", "illegal_argument_exception"), cause


def test_refresh():
    index = new_index()
    plain = request("POST", f"/{index}/_doc?refresh=false", b"{}")
    assert plain.status == 201 and "forced_refresh" not in plain.body
    for value in ("true", "", None):
        path = f"/{index}/_doc?refresh" + ("" if value is None else f"={value}")
        answer = request("POST", path, b"{}")
        assert answer.status == 201 and answer.body["forced_refresh"] is True, answer.raw
        assert int(answer.body["_id"]) in rows(index)
    answer = request("POST", f"/{index}/_doc?refresh=wait_for", b"{}")
    assert "forced_refresh" not in answer.body and int(answer.body["_id"]) in rows(index)
    error(request("POST", f"/{index}/_doc?refresh=maybe", b"{}"), 400, "illegal_argument_exception")
    answer = bulk([{"index": {}}, {"b": 1}], f"/{index}/_bulk?refresh=wait_for")
    assert int(answer.body["items"][0]["index"]["_id"]) in rows(index)
    for parameter in ("routing=1", "version=3", "if_seq_no=1", "pipeline=p"):
        error(request("POST", f"/{index}/_doc?{parameter}", b"{}"), 400, reason=parameter.split("=")[0])


def test_unknown_index():
    name = fresh("none")
    cause = error(request("POST", f"/{name}/_doc", b"{}"), 404, "index_not_found_exception")
    assert cause["index"] == name and cause["resource.id"] == name
    error(request("PUT", f"/{name}/_create/1", b"{}"), 404, "index_not_found_exception")
    index = new_index()
    answer = bulk([{"index": {"_index": name}}, {}, {"index": {"_index": index}}, {}, {"create": {"_index": name, "_id": "1"}}, {}])
    assert answer.status == 200 and answer.body["errors"] is True
    got = [next(iter(item.values())) for item in answer.body["items"]]
    assert [item["status"] for item in got] == [404, 201, 404]
    assert got[0]["error"]["type"] == "index_not_found_exception"
    # A collection without a schema cannot take documents yet.
    a = Api(SERVER)
    ns = a.catalog.GetNamespaceMetadata(sf.GetNamespaceMetadataRequest(meta=meta(), namespace_name="demo")).descriptor.namespace_id
    bare = fresh("bare")
    a.collection(ns, bare)
    answer = request("POST", f"/{bare}/_doc", b"{}")
    assert answer.status == 503 and answer.headers["Retry-After"], answer.raw


# ---- bulk ---------------------------------------------------------------------------------------------

def test_bulk():
    proves("ALLOC-11.1-04", "ALLOC-6.3-02")
    index = new_index()
    lines, want = [], []
    watermark = 0
    for at in range(100):
        if at % 3 == 0:
            lines += [{"create": {"_id": str(watermark + 2)}}, {"at": at}]
            watermark += 3
            want.append(watermark - 1)
        else:
            lines += [{"index": {}} if at % 3 == 1 else {"create": {}}, {"at": at}]
            want.append(watermark)
            watermark += 1
    answer, cost = spent(lambda: bulk(lines, f"/{index}/_bulk?refresh=wait_for"))
    assert answer.status == 200 and answer.body["errors"] is False and isinstance(answer.body["took"], int)
    items = [(kind, item[kind]) for item in answer.body["items"] for kind in item]
    assert [kind for kind, _ in items] == [("create", "index", "create")[at % 3] for at in range(100)]
    for (_, item), doc_id in zip(items, want):
        check_created(item, index, doc_id)
        assert item["status"] == 201
    assert cost == (1, 66, 34)  # one allocation for the whole bulk
    assert bodies(index) == {doc_id: json.dumps({"at": at}).encode() for at, doc_id in enumerate(want)}


def test_bulk_with_burned_ids():
    index = new_index()
    lines = [{"create": {"_id": "5"}}, {"n": 0}, {"create": {"_id": "3"}}, {"n": 1}, {"index": {}}, {"n": 2},
             {"create": {"_id": "5"}}, {"n": 3}, {"create": {"_id": "x"}}, {"n": 4}, {"create": {"_id": "9"}}, {"n": 5},
             {"index": {}}, {"n": 6}]
    key = {"Idempotency-Key": fresh()}
    answer = bulk(lines, f"/{index}/_bulk?refresh=true", key)
    got = [next(iter(item.values())) for item in answer.body["items"]]
    # The others go on, in order; each burned id is a conflict of its own item.
    assert [item["status"] for item in got] == [201, 409, 201, 409, 400, 201, 201], answer.raw
    assert [item["_id"] for item in got] == ["5", "3", "6", "5", "x", "9", "10"]
    assert got[1]["error"]["type"] == got[3]["error"]["type"] == "version_conflict_engine_exception"
    want = {5: b'{"n": 0}', 6: b'{"n": 2}', 9: b'{"n": 5}', 10: b'{"n": 6}'}
    assert bodies(index) == want
    # Sent again under its key: the same outcomes, and nothing is added.
    for restart in (lambda: None, SERVER.crash):
        restart()
        again = bulk(lines, f"/{index}/_bulk?refresh=true", key)
        repeated = [next(iter(item.values())) for item in again.body["items"]]
        assert [(item["status"], item["_id"]) for item in repeated] == [(item["status"], item["_id"]) for item in got]
        assert bodies(index) == want


def test_bulk_bodies():
    index = new_index()
    path = f"/{index}/_bulk"
    ndjson = {"Content-Type": "application/x-ndjson"}
    for body in (b"", b"\n", b"\n\n"):
        error(request("POST", path, body, ndjson), 400)
    error(request("POST", path, b'{"index":{}}\n{"a":1}', ndjson), 400, "illegal_argument_exception", "newline")
    for bad in (b"nonsense\n{}\n", b'{"index":1}\n{}\n', b'{"index":{},"create":{}}\n{}\n', b'{"what":{}}\n{}\n', b"[]\n{}\n",
                b'{"index":{}}\n', b'{}\n{}\n'):
        error(request("POST", path, bad, ndjson), 400)
    # CR LF and empty lines between actions are as good; a document with a bad body is its own item's fault.
    answer = request("POST", path, b'{"index":{}}\r\n{"a":1}\r\n\n{"create":{}}\n{"b":\n{"index":{}}\n[]\n{"index":{}}\n{"c":3}\n', ndjson)
    assert [next(iter(item.values()))["status"] for item in answer.body["items"]] == [201, 400, 400, 201], answer.raw
    # What is not served is said so per item, and the rest goes on.
    answer, cost = spent(lambda: bulk([{"delete": {"_id": "1"}}, {"update": {"_id": "1"}}, {"doc": {}}, {"index": {"_id": "90"}}, {},
                                       {"index": {}}, {}], path))
    got = [next(iter(item.values())) for item in answer.body["items"]]
    assert [item["status"] == 201 for item in got] == [False, False, False, True] and cost == (1, 1, 0)
    proves("ALLOC-11.1-05")
    for item in got[:3]:
        assert item["status"] in (400, 501) and item["error"]["reason"]
    answer = bulk([{"index": {"_index": index}}, {}], "/_bulk")
    assert answer.status == 200 and not answer.body["errors"]
    answer = bulk([{"index": {}}, {}], "/_bulk")  # no index named anywhere
    assert answer.status == 400 or next(iter(answer.body["items"][0].values()))["status"] == 400


def test_large_lines():
    index = new_index()
    path = f"/{index}/_bulk?refresh=true"
    largest = b'{"t":"' + b"x" * ((4 << 20) - 8) + b'"}'
    answer = bulk([{"index": {}}, largest, {"index": {}}, b'{"small":1}'], path)
    assert [item["index"]["status"] for item in answer.body["items"]] == [201, 201], answer.raw[:300]
    assert bodies(index)[0] == largest
    answer = bulk([{"index": {}}, largest + b" ", {"index": {}}, b'{"small":2}'], path)
    assert [item["index"]["status"] for item in answer.body["items"]] == [413, 201], answer.raw[:300]
    error(request("POST", path, b'{"index":{"_index":"' + b"i" * 20000 + b'"}}\n{}\n'), 400)
    error(request("POST", path, b'{"index":{}}\n' * 99_999), 400)  # the last action has no document
    # Too large is said before the body is sent, and after what came of a body of unknown length.
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
    assert status_of(raw(f"{head}Content-Length: {(8 << 20) + 1}\r\n\r\n".encode())) == 413
    try:
        answer = request("POST", path, iter([b"x" * (1 << 20)] * 9), {"Content-Type": "application/x-ndjson",
                                                                      "Transfer-Encoding": "chunked"}, encode_chunked=True)
        error(answer, 413)
    except (BrokenPipeError, ConnectionResetError):
        pass  # cut off while it went on sending
    # 20,000 documents of one request come back in order.
    answer = bulk([line for n in range(20_000) for line in ({"index": {}}, {"n": n})], path)
    assert answer.body["errors"] is False
    got = [int(item["index"]["_id"]) for item in answer.body["items"]]
    assert got == list(range(got[0], got[0] + 20_000))


# ---- the wire -----------------------------------------------------------------------------------------

def test_ambiguous_lengths():
    index = new_index()
    head = f"POST /{index}/_doc HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()
    for headers in (b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
                    b"Content-Length: 2\r\nContent-Length: 3\r\n", b"Content-Length: 2\r\nContent-Length: 2\r\n",
                    b"Content-Length: +2\r\n", b"Content-Length: -2\r\n", b"Content-Length: 0x2\r\n", b"Content-Length: 2,2\r\n",
                    b"Content-Length: 99999999999999999999999\r\n"):
        answer = raw(head + headers + b"\r\n2\r\n{}\r\n0\r\n\r\n" + b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status_of(answer) in (400, 413), (headers, answer[:200])
        assert b"smuggled" not in answer, headers  # what follows is never taken for a request
    for headers in (b"Transfer-Encoding: gzip\r\n", b"Transfer-Encoding: xchunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n"):
        assert status_of(raw(head + headers + b"\r\n2\r\n{}\r\n0\r\n\r\n")) in (400, 501), headers
    assert rows(index) == {}


def test_encodings():
    index = new_index()
    doc = b'{"zipped":true}'
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = request("POST", f"/{index}/_doc?refresh=true", gzip.compress(doc), headers)
    assert answer.status == 201 and bodies(index)[0] == doc
    error(request("POST", f"/{index}/_doc", gzip.compress(doc)[:-5], headers), 400)
    error(request("POST", f"/{index}/_doc", doc, headers), 400)
    error(request("POST", f"/{index}/_doc", doc, {**headers, "Content-Encoding": "br"}), 415)
    answer = request("POST", f"/{index}/_doc?refresh=true", iter([b'{"chun', b"", b'ked":', b"1}"]),
                     {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}, encode_chunked=True)
    assert answer.status == 201 and bodies(index)[int(answer.body["_id"])] == b'{"chunked":1}'


def test_media_types():
    index = new_index()
    for version in (8, 9):
        media = f"application/vnd.elasticsearch+json; compatible-with={version}"
        answer = request("POST", f"/{index}/_doc", b"{}", {"Content-Type": media, "Accept": media})
        assert answer.status == 201
        assert answer.headers["Content-Type"].replace(" ", "") == media.replace(" ", "")
        nd = f"application/vnd.elasticsearch+x-ndjson; compatible-with={version}"
        answer = bulk([{"index": {}}, {}], f"/{index}/_bulk", {"Content-Type": nd, "Accept": media})
        assert answer.status == 200 and not answer.body["errors"]
    media = "application/vnd.elasticsearch+json; compatible-with=7"
    error(request("POST", f"/{index}/_doc", b"{}", {"Content-Type": media, "Accept": media}), 400, "media_type_header_exception")
    for content in ("text/plain", "application/x-www-form-urlencoded", "application/x-ndjson"):
        assert request("POST", f"/{index}/_doc", b"{}", {"Content-Type": content}).status == 406
    assert request("GET", "/", headers={"Accept": "text/html"}).status == 406


def test_delete_index():
    index = new_index()
    assert request("POST", f"/{index}/_doc", b'{"a":1}').status == 201
    for pattern in (f"{index[:4]}*", "*", f"{index},{index}"):
        error(request("DELETE", f"/{pattern}"), 400, "illegal_argument_exception", "not allowed")
    gone = request("DELETE", f"/{index}", headers={"Idempotency-Key": fresh("d")})
    assert gone.status == 200 and gone.body == {"acknowledged": True}
    assert request("HEAD", f"/{index}").status == 404
    error(request("GET", f"/{index}"), 404, "index_not_found_exception")
    error(request("POST", f"/{index}/_doc", b'{"a":2}'), 404, "index_not_found_exception")
    error(request("DELETE", f"/{index}"), 404, "index_not_found_exception")
    error(request("PUT", f"/{index}"), 409)  # its name is reserved
    error(request("DELETE", f"/{fresh('none')}"), 404, "index_not_found_exception")


def test_what_is_not_served():
    index = new_index()
    before = allocations()
    for method, path in (("GET", "_search"), ("POST", "_search"), ("GET", "_count"), ("POST", "_update/1"), ("DELETE", "_doc/1"),
                         ("GET", "_doc/1"), ("HEAD", "_doc/1"), ("PUT", "_doc/1"), ("POST", "_doc/1"), ("POST", "_delete_by_query"),
                         ("GET", "_mapping"), ("POST", "_refresh"), ("GET", "_source/1"), ("PUT", "_settings")):
        body = b"{}" if method in ("POST", "PUT") else None
        answer = request(method, f"/{index}/{path}", body)
        if method == "HEAD":
            assert answer.status >= 400
            continue
        cause = error(answer, 501, "unsupported_operation_exception")
        assert "not served" in cause["reason"]
    for path in ("/_cat/indices", "/_cluster/health", "/_search", "/_msearch", "/_nodes", "/_mget", "/_aliases"):
        error(request("GET", path), 501, "unsupported_operation_exception", "not served")
    for method, path in (("GET", "/_nothing"), ("PATCH", f"/{index}"), ("PUT", f"/{index}/_doc"), ("GET", "/_bulk"),
                         ("POST", f"/{index}/_doc/1/2/3"), ("POST", f"/{index}/_nothing")):
        answer = request(method, path, b"{}" if method != "GET" else None)
        assert 400 <= answer.status < 500 and answer.body["error"]["reason"], (method, path, answer.raw)
    assert allocations() == before


# ---- keys ---------------------------------------------------------------------------------------------

def test_key_of_a_document():
    index = new_index()
    key = {"Idempotency-Key": fresh()}
    first = request("POST", f"/{index}/_doc", b'{"a":1}', key)
    assert first.status == 201
    for restart in (lambda: None, SERVER.crash, SERVER.restart):
        restart()
        again = request("POST", f"/{index}/_doc?refresh=true", b'{"a":1}', key)
        assert again.status == 201 and again.body["_id"] == first.body["_id"] and again.body["_seq_no"] == first.body["_seq_no"]
        assert bodies(index) == {int(first.body["_id"]): b'{"a":1}'}
    error(request("POST", f"/{index}/_doc", b'{"a":2}', key), 409, "version_conflict_engine_exception")
    assert bodies(index) == {int(first.body["_id"]): b'{"a":1}'}
    explicit = {"Idempotency-Key": fresh()}
    for _ in range(2):  # the retry of an explicit id meets its own result, not its own burn
        answer = request("PUT", f"/{index}/_create/50", b'{"e":1}', explicit)
        assert answer.status == 201 and answer.body["_id"] == "50"
    SERVER.crash()
    assert request("PUT", f"/{index}/_create/50", b'{"e":1}', explicit).status == 201
    error(request("PUT", f"/{index}/_create/50", b'{"e":1}'), 409)
    # Without a key a repeat is another document.
    for _ in range(2):
        assert request("POST", f"/{index}/_doc?refresh=true", b'{"twin":1}').status == 201
    assert list(bodies(index).values()).count(b'{"twin":1}') == 2
    for bad in ("", "k" * 129):
        error(request("POST", f"/{index}/_doc", b"{}", {"Idempotency-Key": bad}), 400)
    assert request("POST", f"/{index}/_doc", b"{}", {"Idempotency-Key": "k" * 128}).status == 201


def test_key_outlives_the_schema():
    index = new_index()
    a = Api(SERVER)
    ns = a.catalog.GetNamespaceMetadata(sf.GetNamespaceMetadataRequest(meta=meta(), namespace_name="demo")).descriptor
    ref = a.catalog.GetCollectionMetadata(sf.GetCollectionMetadataRequest(meta=meta(), name_binding=sf.CollectionNameBinding(
        namespace_id=ns.namespace_id, collection_name=index))).descriptor.collection
    key = {"Idempotency-Key": fresh()}
    lines = [line for n in range(3) for line in ({"index": {}}, {"n": n})]
    first = bulk(lines, f"/{index}/_bulk", key)
    assert first.status == 200 and first.body["errors"] is False, first.raw
    schema = a.catalog.GetCollectionSchema(sf.GetCollectionSchemaRequest(meta=meta(), collection=ref)).schema
    a.schema(ref, 2, fresh("t"), body=schema.definition)
    for restart in (lambda: None, SERVER.crash):
        restart()
        again = bulk(lines, f"/{index}/_bulk?refresh=true", key)
        assert again.status == 200 and again.body["errors"] is False, again.raw
        assert [{k: v for k, v in item["index"].items() if k != "forced_refresh"} for item in again.body["items"]] == [
            item["index"] for item in first.body["items"]]
        assert bodies(index) == {int(item["index"]["_id"]): json.dumps({"n": n}).encode()
                                 for n, item in enumerate(first.body["items"])}
    # New writes go on under the new generation.
    assert request("POST", f"/{index}/_doc", b"{}").status == 201


def test_key_of_a_bulk_over_kills():
    index = new_index()
    lines = [line for n in range(500) for line in ({"index": {}}, {"n": n})]
    keys = [fresh() for _ in range(12)]
    acked = {}

    def load(key):
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            try:
                answer = bulk(lines, f"/{index}/_bulk", {"Idempotency-Key": key})
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.02)
                continue
            if answer.status == 200 and not answer.body["errors"]:
                got = [item["index"]["_id"] for item in answer.body["items"]]
                assert acked.setdefault(key, got) == got
                return
            statuses = {answer.status} if answer.status != 200 else {item["index"]["status"] for item in answer.body["items"]}
            assert statuses <= {200, 201, 429, 503, 504}, answer.raw[:500]
            time.sleep(0.02)
        raise AssertionError("not loaded in time")

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        work = [pool.submit(load, key) for key in keys]
        for _ in range(3):
            time.sleep(0.15)
            SERVER.crash()
        for one in work:
            one.result()
    first = dict(acked)
    for key in keys:
        load(key)
    assert acked == first
    request("POST", f"/{index}/_doc?refresh=true", b"{}")
    got = bodies(index)
    everything = [int(doc_id) for key in keys for doc_id in first[key]]
    assert len(set(everything)) == 6000 and len(got) == 6001
    for key in keys:
        assert [json.loads(got[int(doc_id)])["n"] for doc_id in first[key]] == list(range(500))


def test_connection_is_kept():
    index = new_index()
    connection = http.client.HTTPConnection("127.0.0.1", SERVER.es_port, timeout=10)
    seen = []
    for n in range(50):
        connection.request("POST", f"/{index}/_doc", b"{}", {"Content-Type": "application/json"})
        answer = connection.getresponse()
        seen.append(json.loads(answer.read())["_id"])
        if n % 10 == 0:
            connection.request("GET", f"/{index}/_search")  # an error does not end the connection
            assert connection.getresponse().read()
    assert seen == [str(n) for n in range(50)]
    connection.close()
    # Two requests sent at once are answered in order.
    one = f"POST /{index}/_doc HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    answer = raw(one + one.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n"))
    assert answer.count(b"HTTP/1.1 201") == 2 and answer.index(b'"_id":"50"') < answer.index(b'"_id":"51"')


run(globals())
