"""What is asked of servers besides loads: idle connections, an idle cluster, new tables, and a node that dies.

Each function carries one step out and returns its numbers; every wait has an end.
"""
import os
import re
import resource
import socket
import statistics
import subprocess
import threading
import time

from . import cql, hdr, servers

AGREE_SECONDS_MAX = 120
LOAD_START_SECONDS = 60
# Of the load, seconds after a node was killed: by then the others have noticed.
AFTER_KILL_S = (2, 10)


def idle(args, server):
    """Connections that shake hands and then say nothing: memory of each, and processor time of all."""
    count, seconds = (int(word) for word in args.split())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 200)), hard))
    startup = b"\x04\x00\x00\x00\x01\x00\x00\x00\x16\x00\x01\x00\x0bCQL_VERSION\x00\x053.0.0"
    before = servers.used(server.pids())[1]
    opened = []
    try:
        for _ in range(count):
            one = socket.create_connection((server.host, server.port), 30)
            opened.append(one)
            one.settimeout(30)
            one.sendall(startup)
            head = one.recv(64)
            if len(head) < 9 or head[4] != 2:
                raise servers.Failed("a connection was not greeted with READY")
        began, resident = servers.used(server.pids())
        time.sleep(seconds)
        ended, _ = servers.used(server.pids())
    finally:
        for one in opened:
            one.close()
    return {"connections": count, "bytes_each": (resident - before) / count,
            "busy": (ended - began) / seconds, "seconds": seconds}


def settle(server, most):
    """Waits until the server uses no processor to speak of, for half a second, at most `most` seconds."""
    deadline = time.monotonic() + most
    while time.monotonic() < deadline:
        before = servers.used(server.pids())[0]
        time.sleep(0.5)
        if servers.used(server.pids())[0] - before < 0.03:
            return


def quiet(args, cluster):
    """Processor time of each node while nobody asks, as a share of a core."""
    seconds = int(args)
    pids = cluster.pids()
    began, before = time.monotonic(), [threads(pid) for pid in pids]
    time.sleep(seconds)
    elapsed, after = time.monotonic() - began, [threads(pid) for pid in pids]
    return {"quiet_busy": [sum(used - had.get(thread, 0) for thread, used in now.items()) / elapsed
                           for had, now in zip(before, after)]}


def threads(pid):
    """Processor seconds of each thread: exact, where those of the process are in hundredths of a second."""
    found = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                found[thread] = int(file.read().split()[0]) / 1e9
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return found


def schema(command, cluster):
    """Has a load make its tables, and waits until all nodes have them.

    The load itself waits a second and then fails, which a busy Cassandra's nodes are too slow for.
    """
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
                   timeout=AGREE_SECONDS_MAX)
    with cql.Connection(cluster.host, cluster.port) as connection:
        wait_until_agreed(connection, cluster)
    return {}


def ddl(args, cluster):
    """New tables one after the other: the time of each answer, and of all until every node has the schema.

    As many as are asked for, or as the seconds allow: then there is only the time of each.
    """
    count, seconds = (int(word) for word in args.split())
    taken = []
    with cql.Connection(cluster.host, cluster.port) as connection:
        began = time.monotonic()
        for number in range(count):
            if time.monotonic() > began + seconds:
                break
            asked = time.monotonic()
            connection.query(f"CREATE TABLE house.ddl_{number} (k int PRIMARY KEY, v int)")
            taken.append(time.monotonic() - asked)
        answered = time.monotonic() - began
        wait_until_agreed(connection, cluster)
        agreed = time.monotonic() - began
    found = {"tables": len(taken), "table_p50_ms": 1000 * statistics.median(taken), "table_max_ms": 1000 * max(taken)}
    return found | ({"tables_s": answered, "tables_agreed_s": agreed} if len(taken) == count else {})


def wait_until_agreed(connection, cluster):
    deadline = time.monotonic() + AGREE_SECONDS_MAX
    while not agree(connection, len(cluster.hosts)):
        if time.monotonic() > deadline:
            raise servers.Failed(f"the nodes do not agree on the schema after {AGREE_SECONDS_MAX} s")
        time.sleep(0.005)


def agree(connection, nodes):
    """Whether all nodes have one version of the schema, as drivers ask."""
    found = connection.query("SELECT schema_version FROM system.local") \
        + connection.query("SELECT schema_version FROM system.peers")
    return len(found) == nodes and len({row[0] for row in found}) == 1


class Load:
    """`ceto stress` in the background; the time of each failed try, as it says so."""

    def __init__(self, command):
        self.failures, self.output = [], []
        self.began, self.began_at = threading.Event(), None
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.readers = [threading.Thread(target=work, daemon=True) for work in (self.read_output, self.read_errors)]
        for reader in self.readers:
            reader.start()

    def read_output(self):
        for line in self.process.stdout:
            self.output.append(line)
            if line.startswith("total,") and self.began_at is None:
                # A line of progress names the seconds since the load began; its log of latencies does not know when that was.
                self.began_at = time.monotonic() - float(line.split(",")[11])
                self.began.set()

    def read_errors(self):
        for line in self.process.stderr:
            if line.startswith("com.datastax.driver.core.exceptions."):
                self.failures.append((time.monotonic(), line.strip()))

    def end(self, seconds):
        self.process.wait(seconds)
        for reader in self.readers:
            reader.join(10)
        return "".join(self.output)

    def kill(self):
        self.process.kill()
        self.process.wait()


def kill(command, log, cluster, before_s, seconds):
    """Kills the last node under a load of the others.

    `command` makes a load of some seconds on the nodes that stay, which logs its latencies in `log`. Connections to the node that dies
    end with it, whatever a server does, so there are none; what is counted is what the other nodes answer.
    """
    load = Load(command)
    try:
        if not load.began.wait(LOAD_START_SECONDS):
            raise servers.Failed(f"no load within {LOAD_START_SECONDS} s: {''.join(load.output)[-300:]}")
        time.sleep(before_s)
        cluster.kill_last()
        killed = time.monotonic()
        output = load.end(seconds + LOAD_START_SECONDS)
    finally:
        load.kill()
    after = [at - killed for at, _ in load.failures if at >= killed]
    counts, logged = {}, hdr.intervals(log)
    # Killed so long after the first interval of the log began.
    killed_at = logged[0][0] + killed - load.began_at if logged else 0
    for start, length, text in logged:
        if killed_at + AFTER_KILL_S[0] <= start and start + length <= killed_at + AFTER_KILL_S[1]:
            hdr.merge(counts, hdr.decode(text))
    return {
        "errors_before": len(load.failures) - len(after), "errors_after": len(after), "last_error_s": max(after, default=0.0),
        "errors_said": kinds(line for at, line in load.failures if at >= killed),
        "answers_after": sum(counts.values()),
        "p999_after_ms": hdr.percentiles(counts, [99.9])[0] / 1e6 if counts else None,
        "max_after_ms": max(counts) / 1e6 if counts else None,
    }, output


def kinds(lines):
    """How often which failure was reported."""
    counts = {}
    for line in lines:
        kind = re.sub(r"^com\.datastax\.driver\.core\.exceptions\.", "", line)[:120]
        counts[kind] = counts.get(kind, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:5])
