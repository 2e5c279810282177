"""Namespaces and collections through the public port: names, identity strings, replays, lookups, pages."""
import base64
import concurrent.futures
import time

import grpc

from catalog_calls import (drop_projection, get_collection, get_namespace, get_schema, get_sync, admission, list_collections,
                           list_page, put_collection, put_namespace)
from harness import (ES, MANAGED, Api, check_error, error_of, fresh, meta, proves, refused, refused_field, run, schema_request,
                     server, sf, sha256_hex)

SERVER = server()
SERVER.start()
PUT_NAMESPACE = "/searchfabric.v1.CatalogControlService/PutNamespaceMetadata"


def api():
    return Api(SERVER)


def walk(page_of):
    """Every page of a list: names in order of arrival, sizes of pages."""
    names, sizes, token = [], [], ""
    while True:
        page = page_of(token)
        entries = [entry.collection_name for entry in page.collections] if hasattr(page, "collections") else [
            entry.namespace_name for entry in page.namespaces]
        names += entries
        sizes.append(len(entries))
        assert bool(page.next_page.token) == bool(page.next_page.expires_at_unix_ms)
        token = page.next_page.token
        if not token:
            return names, sizes


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


# ---- create, update, ensure ---------------------------------------------------------------------------

def test_namespace_create_update_ensure():
    proves("CCS-2.1-01", "CCS-2.1-02", "CCS-4.5-03", "CCS-4.5-09", "CCS-5.2-18", "CCS-5.2-19", "CCS-5.2-31",
           "CCS-5.2-10", "CCS-5.2-12", "CCS-5.7-12", "CCS-2.2-08")
    a, name = api(), fresh("ns")
    before = int(time.time() * 1000) - 5
    made = a.catalog.PutNamespaceMetadata(put_namespace(name, options={"team": "x"})).descriptor
    assert made.namespace_id > 0 and made.namespace_name == name
    assert before <= made.created_at_unix_ms <= int(time.time() * 1000) + 5
    assert made.updated_at_unix_ms == made.created_at_unix_ms
    assert made.lifecycle.WhichOneof("state") == "active"
    assert dict(made.options.entries) == {"team": "x"}
    assert made.encryption.WhichOneof("mode") == "provider_managed"
    # No child yet: the zero aggregate, up to date, complete.
    assert made.HasField("approx_stats") and made.approx_stats == sf.ApproxStats()
    assert made.index.WhichOneof("state") == "up_to_date"
    assert made.completeness.WhichOneof("state") == "ready"
    assert get_namespace(a, namespace_id=made.namespace_id) == made == get_namespace(a, namespace_name=name)
    updated = a.catalog.PutNamespaceMetadata(put_namespace(name, encryption=None, options={"team": "y"})).descriptor
    assert updated.namespace_id == made.namespace_id and dict(updated.options.entries) == {"team": "y"}
    assert updated.encryption == made.encryption and updated.created_at_unix_ms == made.created_at_unix_ms
    ensured = a.catalog.PutNamespaceMetadata(put_namespace(name, encryption=None)).descriptor
    assert ensured.namespace_id == made.namespace_id and dict(ensured.options.entries) == {"team": "y"}
    assert get_namespace(a, namespace_name=name) == ensured
    assert name in [entry.namespace_name for entry in list_page(a, name).namespaces]
    # The name's epoch is still the first: an update or an ensure allocates nothing.
    base = f"catalog/{sha256_hex(str(made.namespace_id))[:2]}/{made.namespace_id}/namespace_descriptor_v"
    assert set(a.keys(base)) == {f"{base}{revision}.json" for revision in (1, 2, 3)}
    epoch = a.json_object(f"catalog-allocator/namespace-name/{sha256_hex(name)[:2]}/{name}.json")
    assert epoch["last_allocated_epoch"] == "1" and epoch["namespace_name"] == name


def test_collection_create_update_ensure():
    proves("CCS-2.1-03", "CCS-2.1-04", "CCS-5.2-20", "CCS-5.3-07")
    a = api()
    ns, name = a.namespace().namespace_id, fresh("c")
    made = a.catalog.PutCollectionMetadata(put_collection(ns, name, options={"o": "1"})).descriptor
    ref = made.collection
    assert ref.namespace_id == ns and ref.collection_id > 0 and made.collection_name == name
    assert made.encryption.WhichOneof("mode") == "provider_managed"
    # No projector has run: both lagging fields are missing, in byte order.
    assert not made.HasField("approx_stats") and not made.HasField("index")
    assert list(made.completeness.publishing.missing_fields) == ["approx_stats", "index"]
    binding = sf.CollectionNameBinding(namespace_id=ns, collection_name=name)
    assert get_collection(a, collection=ref) == made == get_collection(a, name_binding=binding)
    updated = a.catalog.PutCollectionMetadata(put_collection(ns, name, encryption=None, options={"o": "2"})).descriptor
    assert updated.collection == ref and dict(updated.options.entries) == {"o": "2"}
    assert updated.encryption == made.encryption
    ensured = a.catalog.PutCollectionMetadata(put_collection(ns, name, encryption=None)).descriptor
    assert ensured.collection == ref and dict(ensured.options.entries) == {"o": "2"}
    assert list(list_collections(a, ns).collections) == [ensured]
    assert get_collection(a, name_binding=binding) == ensured


def test_creates_race():
    proves("CCS-3.1-01", "CCS-3.1-08")
    a = api()
    name, ns = fresh("race"), a.namespace().namespace_id
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        calls = [pool.submit(a.catalog.PutNamespaceMetadata, put_namespace(name), timeout=30) for _ in range(32)]
        calls += [pool.submit(a.catalog.PutCollectionMetadata, put_collection(ns, name), timeout=30) for _ in range(32)]
        answers = {"namespace": set(), "collection": set()}
        for at, call in enumerate(calls):
            try:
                descriptor = call.result().descriptor
                answers["namespace" if at < 32 else "collection"].add(
                    descriptor.namespace_id if at < 32 else descriptor.collection.collection_id)
            except grpc.RpcError as error:  # an update may lose to another one, never with a server fault
                check_error(error_of(error), "SF_VERSION_CONFLICT", "catalog.lifecycle_conflict",
                            {"reservation_scope": "resolved_namespace_lineage" if at < 32 else "resolved_collection_lineage",
                             "conflicting_lifecycle_state": "active"},
                            conflicting_lifecycle_state=sf.CONFLICTING_LIFECYCLE_STATE_ACTIVE)
    assert len(answers["namespace"]) == 1 and len(answers["collection"]) == 1
    epoch = a.json_object(f"catalog-allocator/namespace-name/{sha256_hex(name)[:2]}/{name}.json")
    assert epoch["last_allocated_epoch"] == "1"


def test_updates_race():
    proves("CCS-3.1-06", "CCS-3.1-12")
    a = api()
    ns = a.namespace()
    ref = a.collection(ns.namespace_id).collection
    name = get_collection(a, collection=ref).collection_name
    acknowledged = {"namespace": set(), "collection": set()}

    def update(at):
        value = {"n": str(at)}
        try:
            if at % 2:
                a.catalog.PutNamespaceMetadata(put_namespace(ns.namespace_name, encryption=None, options=value), timeout=30)
                acknowledged["namespace"].add(str(at))
            else:
                a.catalog.PutCollectionMetadata(put_collection(ns.namespace_id, name, encryption=None, options=value), timeout=30)
                acknowledged["collection"].add(str(at))
        except grpc.RpcError as error:
            check_error(error_of(error), "SF_VERSION_CONFLICT", "catalog.lifecycle_conflict")

    with concurrent.futures.ThreadPoolExecutor(25) as pool:
        list(pool.map(update, range(100)))
    prefix = f"catalog/{sha256_hex(str(ns.namespace_id))[:2]}/{ns.namespace_id}/"
    for kind, what, base in (("namespace", "namespace_descriptor_v", prefix),
                             ("collection", "collection_descriptor_v", f"{prefix}{ref.collection_id}/")):
        objects = [a.json_object(key) for key in a.keys(base + what)]
        revisions = sorted(int(one["namespace_revision" if kind == "namespace" else "descriptor_revision"]) for one in objects)
        assert revisions == list(range(1, len(revisions) + 1))
        values = [one["options"]["entries"]["n"] for one in objects if one.get("options")]
        assert acknowledged[kind] and acknowledged[kind] <= set(values) and len(values) == len(set(values))
    assert dict(get_namespace(a, namespace_id=ns.namespace_id).options.entries)["n"] in acknowledged["namespace"]
    assert dict(get_collection(a, collection=ref).options.entries)["n"] in acknowledged["collection"]


def test_ids_are_of_one_domain():
    a = api()
    seen = []
    for _ in range(10):
        ns = a.namespace()
        seen += [ns.namespace_id, a.collection(ns.namespace_id).collection.collection_id]
    assert seen == sorted(set(seen))  # one ascending axis, no value twice
    for one in seen:
        assert abs((one >> 18) - time.time() * 1000) < 60_000  # physical_ms << 18 | logical


# ---- names --------------------------------------------------------------------------------------------

def name_requests(a, name, ns):
    """Every request that takes a catalog name or a prefix: (field, call)."""
    binding = sf.CollectionNameBinding(namespace_id=ns, collection_name=name)
    return [("namespace_name", lambda: a.catalog.PutNamespaceMetadata(put_namespace(name))),
            ("name_binding.collection_name", lambda: a.catalog.PutCollectionMetadata(put_collection(ns, name))),
            ("namespace_name", lambda: get_namespace(a, namespace_name=name)),
            ("name_binding.collection_name", lambda: get_collection(a, name_binding=binding)),
            ("prefix", lambda: list_page(a, name)),
            ("prefix", lambda: list_collections(a, ns, name))]


def test_names_that_are_no_utf8():
    proves("CCS-3.1-14", "CCS-10.2-03")
    a = api()
    head = field(1, meta(fresh()).SerializeToString())
    tail = field(10, MANAGED.SerializeToString())
    ns = a.namespace().namespace_id
    keys = a.keys()
    # Overlong '/', lone continuation, cut sequence, surrogate, above U+10FFFF, never-bytes.
    for bad in (b"\xc0\xaf", b"a\x80", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff"):
        error = refused("SF_BAD_REQUEST", lambda: a.raw(PUT_NAMESPACE, head + field(2, bad) + tail), "bad_request")
        assert error.context.bad_request.violation == "invalid_utf8", error
        listed = field(1, meta().SerializeToString()) + field(2, bad)
        refused("SF_BAD_REQUEST", lambda: a.raw("/searchfabric.v1.CatalogControlService/ListNamespaces", listed),
                "bad_request", violation="invalid_utf8")
        binding = field(2, b"\x08" + varint(ns) + field(2, bad))
        refused("SF_BAD_REQUEST", lambda: a.raw("/searchfabric.v1.CatalogControlService/PutCollectionMetadata",
                                                head + binding + tail), "bad_request", violation="invalid_utf8")
    assert a.keys() == keys


def test_names_of_forbidden_characters():
    proves("CCS-3.1-17", "CCS-3.1-18", "CCS-3.1-19", "CCS-10.2-03", "CCS-10.2-02")
    a = api()
    ns = a.namespace().namespace_id
    keys = a.keys()
    classes = {
        "control_character": [0x1F, 0x7F, 0x85, 0x0A],
        "bidi_control": [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)],
        "default_ignorable": [0x00AD, 0x200B, 0x200D, 0x2060, 0xFEFF, 0xE0001, 0x115F],
        "noncharacter": [0xFDD0, 0xFFFE, 0x1FFFF, 0x10FFFF],
    }
    for violation, scalars in classes.items():
        for scalar in scalars:
            for where, call in name_requests(a, f"a{chr(scalar)}b", ns):
                refused_field(call, where, violation)
    # U+0000 is in no text at all.
    for _, call in name_requests(a, "a\0b", ns):
        refused("SF_BAD_REQUEST", call, "bad_request")
    assert a.keys() == keys


def test_names_are_nfc():
    proves("CCS-3.1-15", "CCS-3.1-20", "CCS-10.2-02")
    a = api()
    ns = a.namespace().namespace_id
    unique = fresh()
    for bad in ("e\u0301", "\u212b", "\u1100\u1161", "\ufb1d"):  # e + acute, Angstrom sign, Hangul jamo, Hebrew ligature
        for where, call in name_requests(a, bad + unique, ns):
            refused_field(call, where, "not_nfc")
    for good in ("\u00e9", "\u00c5", "\uac00", "\u05d9\u05b4"):
        name = good + unique
        assert a.namespace(name).namespace_name == name
        assert get_namespace(a, namespace_name=name).namespace_name.encode() == name.encode()
        assert a.collection(ns, name).collection_name == name


def test_length_of_names():
    proves("CCS-3.1-16", "CCS-5.1-20", "CCS-3.1-25")
    a = api()
    ns = a.namespace().namespace_id
    keys = a.keys()
    for where, call in name_requests(a, "n" * 129, ns):
        refused_field(call, where, "too_long")
    assert a.keys() == keys
    for where, call in name_requests(a, "", ns)[:4]:
        refused_field(call, where, "empty")
    longest = ("\U0001F600" * 128)[:128 - len(fresh())] + fresh()
    longest = longest[:128]
    assert len(longest) == 128
    assert a.namespace(longest).namespace_name == longest
    name = "\U00010348" * 128  # 512 bytes of UTF-8
    ref = a.collection(ns, name).collection
    assert get_collection(a, name_binding=sf.CollectionNameBinding(namespace_id=ns, collection_name=name)).collection == ref
    assert [c.collection_name for c in list_collections(a, ns, name).collections] == [name]


def test_names_are_compared_by_bytes():
    proves("CCS-5.1-08", "CCS-10.2-04", "CCS-10.2-05")
    a = api()
    ns = a.namespace().namespace_id
    names = ["a", "A", "a ", " a", "\u00e1", "\U00010348", "aa", "\u00df", "ss", "\ufffd", "Z", "z", "\u00e9", "0"]
    refs = {name: a.collection(ns, name).collection.collection_id for name in names}
    assert len(set(refs.values())) == len(names)
    listed = [entry.collection_name for entry in list_collections(a, ns).collections]
    assert listed == sorted(names, key=lambda name: name.encode())
    for name, collection_id in refs.items():
        binding = sf.CollectionNameBinding(namespace_id=ns, collection_name=name)
        assert get_collection(a, name_binding=binding).collection.collection_id == collection_id


def test_names_that_are_hard_for_keys():
    proves("CCS-3.1-20")
    a = api()
    ns = a.namespace().namespace_id
    names = [".", "..", "a/b", "a%2Fb", "\\", "%", "../x", "/", "%2E", "*", "x.json", "'; --"]
    refs = {name: a.collection(ns, name).collection.collection_id for name in names}
    assert len(set(refs.values())) == len(names)
    assert [c.collection_name for c in list_collections(a, ns).collections] == sorted(names)
    base = f"catalog-allocator/collection-name/{sha256_hex(str(ns))[:2]}/{ns}/"
    found = set(a.keys(base))
    # Only '%', '/', '\' and a component that is '.' or '..' are encoded; the hash is over the name itself.
    for name, encoded in ((".", "%2E"), ("..", "%2E%2E"), ("a/b", "a%2Fb"), ("a%2Fb", "a%252Fb"), ("\\", "%5C")):
        stem = encoded if name not in (".", "..") else encoded
        assert any(key == f"{base}{sha256_hex(name)[:2]}/{stem}.json" for key in found) or name in (".", ".."), (name, found)
    assert len(found) == len(names)


# ---- identity strings ---------------------------------------------------------------------------------

def mutations(a):
    """The served catalog mutations as functions of a RequestMeta; each takes fresh names."""
    ns = a.namespace().namespace_id
    ref = a.collection(ns).collection

    def namespace(m):
        request = put_namespace(fresh())
        request.meta.CopyFrom(m)
        return a.catalog.PutNamespaceMetadata(request)

    def collection(m):
        request = put_collection(ns, fresh())
        request.meta.CopyFrom(m)
        return a.catalog.PutCollectionMetadata(request)

    def schema(m):
        version = int(fresh("").split("-")[-1]) + (int(time.time()) << 20)
        request = schema_request(ref, version, f"t{version}")
        request.meta.CopyFrom(m)
        return a.catalog.PutCollectionSchema(request)
    return [namespace, collection, schema]


def test_identity_strings():
    proves("CCS-3.1-22", "CCS-3.1-23", "CCS-3.1-24")
    a = api()
    key = "meta.idempotency_key"
    for call in mutations(a):
        keys = a.keys()
        refused_field(lambda: call(meta("")), key, "empty")
        refused_field(lambda: call(meta("k" * 129)), key, "too_long")
        refused_field(lambda: call(meta("\U0001F600" * 129)), key, "too_long")
        refused_field(lambda: call(meta(fresh(), client="")), "meta.client_id", "empty")
        refused_field(lambda: call(meta(fresh(), client="c" * 257)), "meta.client_id", "too_long")
        for name, most in (("correlation_id", 128), ("principal_subject", 256)):
            refused_field(lambda: call(meta(fresh(), **{name: ""})), f"meta.{name}", "empty")
            refused_field(lambda: call(meta(fresh(), **{name: "x" * (most + 1)})), f"meta.{name}", "too_long")
        assert a.keys() == keys  # a refusal writes nothing
        longest = fresh() + "\U0001F600" * 128
        call(meta(longest[:128], client="\U0001F600" * 256, correlation_id="c" * 128, principal_subject="p" * 256))


def test_stored_identity_is_whole():
    proves("CCS-3.1-26")
    a = api()
    stem = fresh() + "\u00fc" * 128
    keys = [stem[:127] + last for last in "ab"]
    client = ("\u00e4" * 256)
    made = {}
    before = set(a.keys("catalog-log/"))
    for key in keys:
        made[key] = a.catalog.PutNamespaceMetadata(put_namespace(fresh("ns"), key, client=client)).descriptor.namespace_id
    assert len(set(made.values())) == 2  # keys that differ in the last scalar only are two commands
    records = [a.json_object(one) for one in set(a.keys("catalog-log/")) - before]
    assert {record["idempotency_key"] for record in records} == set(keys)
    assert {record["client_id"] for record in records} == {client}


def test_malformed_requests():
    a = api()
    keys = a.keys()
    for path in ("PutNamespaceMetadata", "GetCollectionSchema", "ListCollections", "PutCollectionSchema"):
        method = f"/searchfabric.v1.CatalogControlService/{path}"
        for body in (b"\x0a\x05ab", b"\xff\xff\xff", b"\x0b", b"\x0a\xff\xff\xff\xff\x7f"):
            error = refused("SF_INVALID_ARGUMENT", lambda: a.raw(method, body))
            assert error.context.WhichOneof("context") == "bad_request", error
        refused("SF_BAD_REQUEST", lambda: a.raw(method, b""), "bad_request", {"field": "meta", "violation": None})
    # An unknown field on a mutation: the payload fingerprint could not cover it.
    request = put_namespace(fresh()).SerializeToString() + field(99, b"x")
    refused("SF_BAD_REQUEST", lambda: a.raw(PUT_NAMESPACE, request), "bad_request")
    assert a.keys() == keys


def test_options():
    a = api()
    for options, violation in (({f"k{i}": "v" for i in range(65)}, "too_many"), ({"k" * 129: "v"}, "too_long"),
                               ({"k": "v" * 1025}, "too_long"), ({"": "v"}, "empty")):
        error = refused("SF_BAD_REQUEST", lambda: a.catalog.PutNamespaceMetadata(put_namespace(fresh(), options=options)), "bad_request")
        assert error.context.bad_request.violation == violation, error
    most = {f"{i:03}" + "\u00fc" * 125: "\U0001F600" * 1024 for i in range(3)}
    made = a.catalog.PutNamespaceMetadata(put_namespace(fresh(), options=most)).descriptor
    assert dict(made.options.entries) == most


def test_encryption_is_said():
    proves("CCS-4.5-08", "CCS-4.5-09")
    a = api()
    ns, name = a.namespace().namespace_id, fresh()
    for unsaid in (None, sf.EncryptionPolicy()):
        keys = a.keys()
        error = refused("SF_BAD_REQUEST", lambda: a.catalog.PutNamespaceMetadata(put_namespace(name, encryption=unsaid)), "bad_request")
        assert error.context.bad_request.field == "encryption" and error.diagnostics["field"] == "encryption"
        error = refused("SF_BAD_REQUEST", lambda: a.catalog.PutCollectionMetadata(put_collection(ns, name, encryption=unsaid)), "bad_request")
        assert error.context.bad_request.field == "encryption"
        assert a.keys() == keys
    refused("SF_RESOURCE_NOT_FOUND", lambda: get_namespace(a, namespace_name=name))
    # The same key is evaluated afresh: a refusal left nothing behind.
    key = fresh()
    refused("SF_BAD_REQUEST", lambda: a.catalog.PutNamespaceMetadata(put_namespace(name, key, encryption=None)))
    made = a.catalog.PutNamespaceMetadata(put_namespace(name, key)).descriptor
    kept = a.catalog.PutNamespaceMetadata(put_namespace(name, encryption=None)).descriptor
    assert kept.encryption == made.encryption and kept.encryption.WhichOneof("mode") == "provider_managed"


# ---- replay -------------------------------------------------------------------------------------------

def test_replay_is_verbatim():
    proves("CCS-4.5-01", "CCS-4.5-10", "CCS-4.2-03", "CCS-4.2-04", "CCS-1-02")
    a = api()
    ns, name, keys = fresh("ns"), fresh("c"), [fresh() for _ in range(3)]
    first_ns = put_namespace(ns, keys[0], options={"v": "1"}, correlation_id="one", principal_subject="p")
    answers = [a.catalog.PutNamespaceMetadata(first_ns)]
    ns_id = answers[0].descriptor.namespace_id
    first_c = put_collection(ns_id, name, keys[1], options={"v": "1"})
    answers.append(a.catalog.PutCollectionMetadata(first_c))
    ref = answers[1].descriptor.collection
    first_s = schema_request(ref, 1, "t1", key=keys[2])
    answers.append(a.catalog.PutCollectionSchema(first_s))
    # Everything that a replay could be rebuilt from moves on.
    a.catalog.PutNamespaceMetadata(put_namespace(ns, encryption=None, options={"v": "2"}))
    a.catalog.PutCollectionMetadata(put_collection(ns_id, name, encryption=None, options={"v": "2"}))
    a.signal(ref, 1, "t1")
    a.schema(ref, 2, "t2")
    records = len(a.keys("catalog-log/"))

    def same():
        b = api()
        for call, request, answer in zip((b.catalog.PutNamespaceMetadata, b.catalog.PutCollectionMetadata,
                                          b.catalog.PutCollectionSchema), (first_ns, first_c, first_s), answers):
            again = type(request).FromString(request.SerializeToString())
            again.meta.correlation_id = fresh()
            again.meta.principal_subject = fresh()
            assert call(again, timeout=20).SerializeToString() == answer.SerializeToString()
        assert len(b.keys("catalog-log/")) == records
        assert dict(get_namespace(b, namespace_id=ns_id).options.entries) == {"v": "2"}
        assert dict(get_collection(b, collection=ref).options.entries) == {"v": "2"}
        assert get_schema(b, ref).applied_schema_version == 2

    same()
    SERVER.restart()
    same()
    SERVER.crash()
    same()
    SERVER.stop()
    drop_projection(SERVER)
    SERVER.start()
    same()


def test_key_with_another_payload():
    proves("CCS-4.5-02", "CCS-4.5-11")
    a = api()
    ns, name, key = a.namespace(), fresh(), fresh()
    a.catalog.PutNamespaceMetadata(put_namespace(ns.namespace_name, key, encryption=None, options={"a": "1"}))
    ref = a.catalog.PutCollectionMetadata(put_collection(ns.namespace_id, name, key, options={"a": "1"})).descriptor.collection
    a.schema(ref, 1, "t1", key=key)  # one key in three scopes: three commands, no conflict
    keys = a.keys()
    conflicts = [
        lambda: a.catalog.PutNamespaceMetadata(put_namespace(ns.namespace_name, key, encryption=None, options={"a": "2"})),
        lambda: a.catalog.PutNamespaceMetadata(put_namespace(ns.namespace_name, key, encryption=None)),
        lambda: a.catalog.PutNamespaceMetadata(put_namespace(ns.namespace_name, key, options={"a": "1"})),
        lambda: a.catalog.PutCollectionMetadata(put_collection(ns.namespace_id, name, key, options={"a": "2"})),
        lambda: a.catalog.PutCollectionMetadata(put_collection(ns.namespace_id, name, key, options={"a": "1"}, mode=2)),
        lambda: a.schema(ref, 1, "t1", key=key, jump=999),
        lambda: a.schema(ref, 2, "t2", key=key)]
    for call in conflicts:
        error = refused("SF_IDEMPOTENCY_CONFLICT", call, "", {})
        assert not error.HasField("context")
    assert a.keys() == keys
    # Another client has keys of its own.
    other = put_namespace(ns.namespace_name, key, encryption=None, options={"a": "3"}, client="other")
    assert dict(a.catalog.PutNamespaceMetadata(other).descriptor.options.entries) == {"a": "3"}
    # client_kind is no part of the key of catalog mutations.
    again = put_collection(ns.namespace_id, name, key, options={"a": "1"}, kind=ES)
    assert a.catalog.PutCollectionMetadata(again).descriptor.collection == ref


def test_authority_comes_before_replay():
    proves("CCS-4.4-02")
    a = api()
    name, key = fresh(), fresh()
    a.catalog.PutNamespaceMetadata(put_namespace(name, key))
    refused("SF_FORBIDDEN", lambda: a.catalog.PutNamespaceMetadata(put_namespace(name, key, kind=ES)), "", {})


# ---- lookups ------------------------------------------------------------------------------------------

def test_lookups():
    proves("CCS-2.1-02", "CCS-2.1-04")
    a = api()
    ns = a.namespace().namespace_id
    ref = a.ready_collection(ns)
    elsewhere = sf.CollectionRef(namespace_id=a.namespace().namespace_id, collection_id=ref.collection_id)
    unknown = sf.CollectionRef(namespace_id=ns, collection_id=ref.collection_id + 1)
    not_found = [lambda: get_namespace(a, namespace_id=ns + 1), lambda: get_namespace(a, namespace_name=fresh()),
                 lambda: list_collections(a, ns + 1),
                 lambda: get_collection(a, name_binding=sf.CollectionNameBinding(namespace_id=ns, collection_name=fresh())),
                 lambda: a.catalog.PutCollectionMetadata(put_collection(ns + 1, fresh()))]
    for bad in (elsewhere, unknown):
        not_found += [lambda bad=bad: get_collection(a, collection=bad), lambda bad=bad: get_schema(a, bad),
                      lambda bad=bad: get_sync(a, bad), lambda bad=bad: admission(a, bad),
                      lambda bad=bad: a.schema(bad, 1, "t1"), lambda bad=bad: a.signal(bad, 1, "t1")]
    for call in not_found:
        error = refused("SF_RESOURCE_NOT_FOUND", call, "", {})
        assert not error.HasField("context")
    refused("SF_BAD_REQUEST", lambda: get_namespace(a), "bad_request", field="lookup")
    refused("SF_BAD_REQUEST", lambda: get_namespace(a, namespace_id=0), "bad_request", field="namespace_id")
    refused("SF_BAD_REQUEST", lambda: get_collection(a), "bad_request", field="lookup")
    for half in (sf.CollectionRef(), sf.CollectionRef(namespace_id=1), sf.CollectionRef(collection_id=1)):
        refused("SF_BAD_REQUEST", lambda: get_collection(a, collection=half), "bad_request")
        refused("SF_BAD_REQUEST", lambda: get_schema(a, half), "bad_request")


# ---- pages --------------------------------------------------------------------------------------------

def test_pages():
    proves("CCS-10.2-06", "CCS-10.2-14")
    a = api()
    ns = a.namespace().namespace_id
    names = [f"{i * 7919 % 1000:03}" for i in range(215)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: a.collection(ns, name), names))
    ordered = sorted(names)
    for size, sizes in ((7, [7] * 30 + [5]), (1, None), (100, [100, 100, 15]), (0, [100, 100, 15]), (215, [215]),
                        (214, [214, 1]), (1000, [215]), (4294967295, [215])):
        got, got_sizes = walk(lambda token: list_collections(a, ns, size=size, token=token))
        assert got == ordered and (sizes is None or got_sizes == sizes), (size, got_sizes)
    # A continuation may send 0 for the size of the first page.
    first = list_collections(a, ns, size=7)
    rest = list_collections(a, ns, token=first.next_page.token)
    assert [c.collection_name for c in rest.collections] == ordered[7:14]
    # 15 minutes.
    left = first.next_page.expires_at_unix_ms - time.time() * 1000
    assert 14.9 * 60_000 < left <= 15 * 60_000
    # Names of another namespace are of another list.
    assert walk(lambda token: list_collections(a, a.namespace().namespace_id, token=token))[0] == []


def test_pages_are_clamped():
    a = api()
    prefix = fresh("p") + "-"
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda at: a.namespace(f"{prefix}{at:04}"), range(1001)))
    got, sizes = walk(lambda token: list_page(a, prefix, 1_000_000, token))
    assert sizes == [1000, 1] and got == [f"{prefix}{at:04}" for at in range(1001)]
    got, sizes = walk(lambda token: list_page(a, prefix, 7, token))
    assert sizes == [7] * 143 and got == [f"{prefix}{at:04}" for at in range(1001)]
    proves("CCS-10.2-01")


def rejected(call, reason):
    value = getattr(sf, "PAGE_TOKEN_REASON_" + reason.upper())
    error = refused("SF_BAD_REQUEST", call, "page_token", page_token_reason=value)
    assert error.diagnostics["page_token_reason"] == reason and error.diagnostics["field"] == "page.page_token"


def test_page_tokens_are_bound():
    proves("CCS-10.2-09", "CCS-10.2-11", "CCS-10.2-12", "CCS-10.2-13", "CCS-10.2-14")
    a = api()
    ns, other = a.namespace().namespace_id, a.namespace().namespace_id
    prefix = fresh("b")
    for at in range(4):
        a.collection(ns, f"{prefix}{at}")
        a.collection(other, f"{prefix}{at}")
        a.namespace(f"{prefix}{at}")
    token = list_collections(a, ns, prefix, 2).next_page.token
    assert len(list_collections(a, ns, prefix, 2, token).collections) == 2
    mismatch = "binding_mismatch"
    rejected(lambda: list_page(a, prefix, 2, token), mismatch)
    rejected(lambda: list_collections(a, other, prefix, 2, token), mismatch)
    rejected(lambda: list_collections(a, ns, prefix[:-1], 2, token), mismatch)
    rejected(lambda: list_collections(a, ns, "", 2, token), mismatch)
    rejected(lambda: list_collections(a, ns, prefix, 3, token), mismatch)
    rejected(lambda: list_collections(a, ns, prefix, 2, token, kind=ES), mismatch)
    rejected(lambda: list_collections(a, ns, prefix, 2, token, client="other"), mismatch)
    rejected(lambda: list_collections(a, ns, prefix, 2, token, principal_subject="p"), mismatch)
    with_subject = list_collections(a, ns, prefix, 2, principal_subject="p").next_page.token
    rejected(lambda: list_collections(a, ns, prefix, 2, with_subject), mismatch)
    rejected(lambda: list_collections(a, ns, prefix, 2, with_subject, principal_subject="q"), mismatch)
    assert len(list_collections(a, ns, prefix, 2, with_subject, principal_subject="p").collections) == 2
    # correlation_id is of tracing only, and a token outlives the process.
    assert len(list_collections(a, ns, prefix, 2, token, correlation_id="c").collections) == 2
    SERVER.crash()
    a = api()
    assert len(list_collections(a, ns, prefix, 2, token).collections) == 2


def test_page_tokens_are_signed():
    a = api()
    ns = a.namespace().namespace_id
    for at in range(2):
        a.collection(ns, f"c{at}")
    token = list_collections(a, ns, size=1).next_page.token
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    for bit in range(len(raw) * 8):
        bad = bytearray(raw)
        bad[bit // 8] ^= 1 << bit % 8
        text = base64.urlsafe_b64encode(bytes(bad)).decode().rstrip("=")
        error = refused("SF_BAD_REQUEST", lambda: list_collections(a, ns, size=1, token=text), "page_token")
        assert error.diagnostics["page_token_reason"] in ("malformed", "signature", "unknown_key", "expired"), error
    for text in ("x", "!!!!", token + "A", token[:-2], "A" * 9000, token + "="):
        error = refused("SF_BAD_REQUEST", lambda: list_collections(a, ns, size=1, token=text), "page_token")
        assert error.diagnostics["page_token_reason"] in ("malformed", "signature"), error


def test_prefixes():
    proves("CCS-10.2-07", "CCS-10.2-06")
    a = api()
    ns = a.namespace().namespace_id
    edges = ["a", "ab", "ab\u007e", "abc", "ac", "b", "x\ud7ff".encode("utf-8", "surrogatepass").decode(), "x\ud7ffz", "x\ue000",
             "y\U0010fffd", "y\U0010fffdq", "z", "\U0010fffd", "\U0010fffd\U0010fffd", "\U0010fffdx"]
    for name in edges:
        a.collection(ns, name)
    ordered = sorted(edges, key=lambda name: name.encode())
    for prefix in ["", "a", "ab", "abc", "abcd", "x\ud7ff", "x", "y\U0010fffd", "\U0010fffd", "\U0010fffd\U0010fffd", "q"]:
        got, _ = walk(lambda token: list_collections(a, ns, prefix, 2, token))
        assert got == [name for name in ordered if name.startswith(prefix)], prefix
    listed = list_page(a, fresh("none"))
    assert not listed.namespaces and not listed.next_page.token


def test_pages_show_what_is():
    a = api()
    ns = a.namespace().namespace_id
    for name in ("b", "d", "f", "h"):
        a.collection(ns, name)
    first = list_collections(a, ns, size=2)
    assert [c.collection_name for c in first.collections] == ["b", "d"]
    for name in ("a", "c", "e", "g"):
        a.collection(ns, name)
    got, _ = walk(lambda token: list_collections(a, ns, size=2, token=token or first.next_page.token))
    assert got == ["e", "f", "g", "h"]  # later ones appear, earlier ones do not, nothing twice


def test_read_after_answer():
    proves("CCS-3.2-07", "CCS-4.4-13")
    a, b = api(), api()
    ns, name = a.namespace().namespace_id, fresh()
    ref = a.collection(ns, name).collection
    stop = []

    def hammer():
        last = -1
        while not stop:
            entries = dict(get_collection(b, collection=ref).options.entries)
            now = int(entries.get("n", -1))
            assert now >= last, "a read went back"
            last = now

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        readers = [pool.submit(hammer) for _ in range(8)]
        try:
            for at in range(100):
                a.catalog.PutCollectionMetadata(put_collection(ns, name, encryption=None, options={"n": str(at)}))
                assert dict(get_collection(b, collection=ref).options.entries) == {"n": str(at)}
                assert dict(list_collections(b, ns).collections[0].options.entries) == {"n": str(at)}
        finally:
            stop.append(True)
        for reader in readers:
            reader.result()


run(globals())
