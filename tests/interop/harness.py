"""Starts the echo server and makes Python stubs for it; shared by the Python tests."""

import os
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SERVER = os.environ.get("ECHO_SERVER", "echo_server")
SKIP = 77  # what CTest takes for "skipped"


def load_stubs():
    """Generates echo_pb2 and echo_pb2_grpc into a folder of their own and imports them."""
    plugin = "/usr/bin/grpc_python_plugin"
    if not os.path.exists(plugin):
        print("no grpc_python_plugin: skipped")
        sys.exit(SKIP)
    out = tempfile.mkdtemp(prefix="echo-stubs-")
    subprocess.run(
        ["protoc", "-I" + HERE, "--python_out=" + out, "--grpc_python_out=" + out,
         "--plugin=protoc-gen-grpc_python=" + plugin, os.path.join(HERE, "echo.proto")],
        check=True)
    sys.path.insert(0, out)
    import echo_pb2
    import echo_pb2_grpc
    return echo_pb2, echo_pb2_grpc


def proves(test, *ids):
    """Records requirement ids as proved by a test; the last thing a test does."""
    path = os.environ.get("SF_PROVED_FILE")
    if path:
        with open(path, "a") as file:
            file.writelines("%s\tinterop/%s\n" % (i, test) for i in ids)


class Server:
    """One echo server process."""

    def __init__(self, files=None, **options):
        args = [SERVER] + ["%s=%s" % item for item in options.items()]
        if files is not None:  # most open files
            args = ["/bin/sh", "-c", 'ulimit -n %d; exec "$0" "$@"' % files] + args
        self.process = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.port = int(line.split()[1])
        self.address = "127.0.0.1:%d" % self.port

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        """Exit status and what it printed since."""
        out = self.process.stdout.read()
        self.process.stdout.close()
        return self.process.wait(), out

    def stop(self):
        if self.process.poll() is None:
            self.terminate()
        return self.wait()

    def _stat(self, name, key):
        with open("/proc/%d/%s" % (self.process.pid, name)) as file:
            for line in file:
                if line.startswith(key):
                    return int(line.split()[1])
        raise KeyError(key)

    def rss_kib(self):
        return self._stat("status", "VmRSS:")

    def cpu_s(self):
        with open("/proc/%d/stat" % self.process.pid) as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
