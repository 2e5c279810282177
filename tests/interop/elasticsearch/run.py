#!/usr/bin/python3
"""Runs the official Elasticsearch clients 8 and 9 against a fresh server.

usage: run.py SEARCHFABRICD
"""
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
READY_TIMEOUT_S = 30


def install():
    """Installs exactly what the lockfile says; a second call costs nothing."""
    stamp = HERE / "node_modules" / ".package-lock.json"
    if stamp.exists() and stamp.stat().st_mtime >= (HERE / "package-lock.json").stat().st_mtime:
        return
    subprocess.run(["npm", "ci", "--no-progress", "--prefix", str(HERE)], check=True, stdout=subprocess.DEVNULL)
    stamp.touch()


def node22():
    for arch in ("x64", "arm64"):
        node = HERE / "node_modules" / f"node-linux-{arch}" / "bin" / "node"
        if node.exists():
            return str(node)
    raise SystemExit("no Node 22 was installed for this machine")


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def start(binary, folder):
    grpc, admin, es = free_port(), free_port(), free_port()
    log = open(folder / "server.log", "wb")
    process = subprocess.Popen([binary, "--demo", "--data-dir", str(folder / "data"), "--grpc-port", str(grpc),
                                "--admin-port", str(admin), "--es-port", str(es)], stdout=log, stderr=log)
    until = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=1) as answer:
                if json.load(answer)["status"] == "ok":
                    return process, f"http://127.0.0.1:{es}"
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"the server did not get ready:\n{(folder / 'server.log').read_text()}")


def main():
    if shutil.which("npm") is None:
        print("npm is not installed: skipped")
        return 77
    install()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="searchfabric-es-"))
    process, url = start(sys.argv[1], folder)
    code = 0
    try:
        for module in ("es8", "es9"):
            code |= subprocess.run([node22(), str(HERE / "clients.mjs"), module, url], timeout=200).returncode
    finally:
        process.send_signal(signal.SIGTERM)
        ended = process.wait(timeout=30)
    if ended != 0:
        print(f"the server ended with {ended} after SIGTERM")
        code = 1
    if code == 0:
        shutil.rmtree(folder)
    else:
        print(f"server log: {folder}/server.log")
    return code


if __name__ == "__main__":
    sys.exit(main())
