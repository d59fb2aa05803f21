"""Starts and stops the servers under test that are one node, one at a time, and tells what processes use.

Clusters of several nodes: clusters.py.
"""
import os
import re
import signal
import subprocess
import time
import urllib.request

from . import scenario

ROOT = os.path.dirname(scenario.HERE)
PEER = os.path.join(scenario.HERE, "peers", "cassandra")
CETO_IP, PEER_IP = "127.0.37.1", "127.0.37.2"
CETO_PORT, METRICS_PORT, JMX_PORT = 19942, 19980, 17399
START_SECONDS = 120


class Failed(Exception):
    """A server that did not do what it was told."""


class Lacking(Exception):
    """A server that cannot do what a step needs: the step is left out, and said to be."""


def text_of(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        raise Failed(f"{os.path.basename(command[0])}: {done.stdout.strip()[-500:]}")
    return done.stdout


class Ceto:
    """Our own node."""
    name, host, port = "ceto", CETO_IP, CETO_PORT

    def __init__(self, binary, work, cpus, shards, memory, io_properties):
        self.binary, self.work, self.cpus, self.shards, self.memory = binary, work, cpus, shards, memory
        self.io_properties = io_properties
        self.process = None

    def start(self):
        os.makedirs(self.work, exist_ok=True)
        command = [self.binary, "server", "--workdir", os.path.join(self.work, "data"), "--listen", self.host,
                   "--port", str(self.port), "--shard-aware-port", "0", "--smp", str(self.shards),
                   "--memory", self.memory, "--prometheus-port", str(METRICS_PORT), "--developer-mode"]
        if self.io_properties:
            path = os.path.join(self.work, "io_properties.yaml")
            with open(path, "w") as file:
                file.write(self.io_properties.replace("MOUNT", self.work))
            command += ["--io-properties-file", path]
        if self.cpus:
            command = ["taskset", "-c", self.cpus] + command
        self.log = open(os.path.join(self.work, "node.log"), "ab")
        offset = self.log.tell()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, start_new_session=True)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with open(self.log.name, "rb") as log:
                log.seek(offset)
                text = log.read().decode(errors="replace")
            if re.search(r"^ceto ready", text, re.M):
                weigh(self.process.pid)
                return
            if self.process.poll() is not None:
                raise Failed(f"ceto ended before it was ready: {text[-500:]}")
            time.sleep(0.02)
        self.stop()
        raise Failed(f"ceto was not ready within {START_SECONDS} s")

    def stop(self):
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
        self.log.close()

    def pids(self):
        return [self.process.pid]

    def compact(self):
        """Runs a major compaction of the load's table to its end."""
        if not re.search(r"^ +ctl ", text_of([self.binary, "--help"]), re.M):
            raise Lacking("this binary has no `ctl` to ask for a compaction with")
        text_of([self.binary, "ctl", "-h", self.host, "compact", "keyspace1", "standard1"])

    def stalls(self):
        return stalls(self.host, METRICS_PORT)

    def version(self):
        return text_of([self.binary, "--version"]).strip()


class Cassandra:
    """A real Apache Cassandra 5.0.6, with stock settings or the profile of cassandra_latest.yaml."""
    host, port = PEER_IP, 9042

    def __init__(self, profile, work, cpus, heap):
        self.name = "cassandra" if profile == "stock" else "cassandra-latest"
        self.work, self.cpus = work, cpus
        self.environment = os.environ | {
            "DATA": work, "PROFILE": profile, "JMX_PORT": str(JMX_PORT), "HEAP": heap, "PORT": str(self.port)}

    def start(self):
        os.makedirs(self.work, exist_ok=True)
        text_of([os.path.join(PEER, "start.sh"), self.host, self.cpus], env=self.environment)
        weigh(self.pids()[0])

    def stop(self):
        subprocess.run([os.path.join(PEER, "stop.sh"), self.host], env=self.environment, check=False,
                       stdout=subprocess.DEVNULL)

    def pids(self):
        with open(os.path.join(self.work, "pid")) as file:
            return [int(file.read())]

    def compact(self):
        nodetool = os.path.join(PEER, "nodetool.sh")
        text_of([nodetool, "flush", "keyspace1"], env=self.environment)
        text_of([nodetool, "compact", "keyspace1", "standard1"], env=self.environment)

    def stalls(self):
        """Nothing that it could tell."""
        return {}

    def version(self):
        return f"Apache Cassandra 5.0.6, {self.environment['PROFILE']} settings, heap {self.environment['HEAP']}"


def stalls(host, metrics_port):
    """Times that a shard's core was held beyond the stall detector's threshold (5 ms), by who held it."""
    with urllib.request.urlopen(f"http://{host}:{metrics_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    counts = {}
    for labels, value in re.findall(r"^reactor_stalls_total{([^}]*)} (\d+)", text, re.M):
        kind = re.search(r'kind="([^"]*)"', labels)[1]
        counts[kind] = counts.get(kind, 0) + int(value)
    return counts


def weigh(pid):
    """All the weight that is allowed: with autogroups, `nice` counts inside one session only."""
    try:
        with open(f"/proc/{pid}/autogroup", "w") as file:
            file.write("-20")
    except OSError:
        pass


def forget_pages(directory):
    """Drops what the page cache has of a directory's files."""
    for path, _, names in os.walk(directory):
        for name in names:
            try:
                file = os.open(os.path.join(path, name), os.O_RDONLY)
            except OSError:
                continue
            try:
                os.fdatasync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            except OSError:
                pass
            finally:
                os.close(file)


def used(pids):
    """Processor seconds and resident bytes of processes together."""
    seconds, resident = 0.0, 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        resident += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return seconds, resident


def disk(pids):
    """Bytes that processes had read from the disk and written to it, where the system tells."""
    read, written = 0, 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/io") as file:
                found = dict(line.split(": ") for line in file.read().splitlines())
        except OSError:
            return None
        read, written = read + int(found["read_bytes"]), written + int(found["write_bytes"])
    return read, written
