"""Manifest heads: what is published, the catalog's head follows; over kill -9, and by hand where nobody was told."""
import http.client
import json

from harness import run, server, wait_for

SERVER = server("es:\n  auto_create: true\n")
SERVER.start()


def write(one, index, count=3):
    """Documents that are visible when this returns."""
    lines = "".join(f'{{"index":{{}}}}\n{{"n":{i}}}\n' for i in range(count))
    connection = http.client.HTTPConnection("127.0.0.1", one.es_port, timeout=20)
    connection.request("POST", f"/{index}/_bulk?refresh=wait_for", lines, {"Content-Type": "application/x-ndjson"})
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    assert answer.status == 200 and not body["errors"], body


def show(one, path):
    out = one.sfctl("--json", "manifest", "head", "show", path)
    assert out.returncode == 0, out
    return json.loads(out.stdout)


def versions(answer):
    return (int(answer.get("committed_head", {}).get("committed_manifest_version", "0")),
            int(answer.get("projected_head_version", "0")))


def followed(one, path):
    """The answer once head and committed pointer are equal and above 0."""
    def equal():
        answer = show(one, path)
        committed, head = versions(answer)
        return answer if committed > 0 and committed == head else None
    return wait_for(equal, f"the head of {path} follows", timeout=30)


def test_follows():
    write(SERVER, "follows")
    answer = followed(SERVER, f"{namespace()}/follows")
    assert answer["projected_reconciler_status"].endswith("IDLE"), answer
    assert answer["projected_committed_checksum_or_etag"] == answer["committed_head"]["manifest_checksum_or_etag"]
    assert int(answer["head"]["manifest_head_version"]) == versions(answer)[0]


def test_after_kill():
    """Killed right after a publish, perhaps before the catalog was told: by the next start or by hand the head is there."""
    path = f"{namespace()}/killed"
    for _ in range(3):
        write(SERVER, "killed")
        before = versions(show(SERVER, path))
        SERVER.crash()
        committed, head = versions(show(SERVER, path))
        assert committed >= before[0] and head >= before[1], (before, committed, head)
        out = SERVER.sfctl("manifest", "head", "repair", path, "--dry-run")
        assert out.returncode == 0, out
        out = SERVER.sfctl("--json", "manifest", "head", "repair", path)
        assert out.returncode == 0, out
        answer = show(SERVER, path)
        assert versions(answer)[0] == versions(answer)[1] >= committed, answer


def test_words():
    for words in (["head"], ["head", "show"], ["tail", "show", "a/b"], ["head", "mend", "a/b"], ["head", "show", "a/b", "--dry-run"]):
        assert SERVER.sfctl("manifest", *words).returncode == 2, words
    out = SERVER.sfctl("manifest", "head", "show", f"{namespace()}/nothing")
    assert out.returncode == 1 and b"SF_RESOURCE_NOT_FOUND" in out.stderr, out


def namespace():
    out = SERVER.sfctl("--json", "namespace", "list")
    assert out.returncode == 0, out
    return json.loads(out.stdout.splitlines()[0])["namespace_name"]


if __name__ == "__main__":
    run(globals())
