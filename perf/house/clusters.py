"""Starts and stops clusters under test: several nodes on loopback addresses of their own, and what they use together.

A cluster has the methods of a server (servers.py), so a step need not know which of them it loads. In the end its data are thrown away:
nodes need not drain. The keyspace `house` has a replica on each node; its first answer at QUORUM is what a start is timed by.
"""
import ipaddress
import os
import re
import signal
import subprocess
import time

from . import cql, servers

CETO_FIRST, PEER_FIRST = "127.0.37.21", "127.0.37.11"
PORT, METRICS_PORT, PEER_JMX_PORT = 9042, 9180, 17401
# The nodes start beside each other on as few cores as there are.
START_SECONDS, STOP_SECONDS = 240, 60
POLL_SECONDS = 0.005
PEER_TOKENS = 16
# Tokens are given and nothing is streamed, so that nodes join beside each other; a heap that is touched at the start only costs time.
PEER_FLAGS = "-Dcassandra.auto_bootstrap=false -Dcassandra.initial_token={tokens} -XX:-AlwaysPreTouch"


class Cluster:
    """What both kinds have in common."""
    port = PORT

    def __init__(self, first, nodes):
        self.hosts = [str(ipaddress.IPv4Address(first) + node) for node in range(nodes)]
        self.host = self.hosts[0]
        self.ended = set()
        self.first_answer_s = None

    def pids(self):
        """Processes of the nodes that were not killed."""
        return [pid for node, pid in enumerate(self.all_pids()) if node not in self.ended]

    def kill_last(self):
        """Ends the last node as a crash does; the hosts that are left."""
        last = len(self.hosts) - 1
        os.kill(self.all_pids()[last], signal.SIGKILL)
        self.ended.add(last)
        return self.hosts[:last]

    def first_answer(self, began, deadline):
        """Waits until a table on all nodes answers at QUORUM, and keeps how long that took since `began`."""
        last = "no connection"
        while time.monotonic() < deadline:
            self.check_alive()
            try:
                with cql.Connection(self.host, self.port, max(1, deadline - time.monotonic())) as connection:
                    while len(connection.query("SELECT peer FROM system.peers")) < len(self.hosts) - 1:
                        last = "a node does not know the others"
                        if time.monotonic() > deadline:
                            break
                        self.check_alive()
                        time.sleep(POLL_SECONDS)
                    else:
                        self.ask_once(connection)
                        self.first_answer_s = time.monotonic() - began
                        return
            except (servers.Failed, OSError, ValueError) as error:
                last = str(error)
            time.sleep(POLL_SECONDS)
        raise servers.Failed(f"{self.name}: no answer at QUORUM: {last}")

    def ask_once(self, connection):
        connection.query("CREATE KEYSPACE IF NOT EXISTS house WITH replication = "
                         f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': {len(self.hosts)}}}")
        connection.query("CREATE TABLE IF NOT EXISTS house.first (k int PRIMARY KEY, v int)")
        connection.query("INSERT INTO house.first (k, v) VALUES (1, 1)", "QUORUM")
        if len(connection.query("SELECT v FROM house.first WHERE k = 1", "QUORUM")) != 1:
            raise servers.Failed("a row that was written at QUORUM was not read at QUORUM")

    def compact(self):
        raise servers.Lacking("a cluster is not told to compact")


class Ceto(Cluster):
    """`ceto local`: the nodes are processes of its own."""
    name = "ceto"

    def __init__(self, binary, work, cpus, nodes, shards, memory):
        super().__init__(CETO_FIRST, nodes)
        self.binary, self.work, self.cpus, self.shards, self.memory = binary, work, cpus, shards, memory
        self.process = None

    def start(self):
        command = [self.binary, "local", "--dir", os.path.join(self.work, "cluster"), "--nodes", str(len(self.hosts)),
                   "--first", self.host, "--smp", str(self.shards), "--memory", self.memory]
        if self.cpus:
            command = ["taskset", "-c", self.cpus, *command]
        self.log = open(os.path.join(self.work, "cluster.log"), "wb")
        began = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        start_new_session=True)
        deadline = began + START_SECONDS
        self.first_answer(began, deadline)
        while not re.search(r"^ceto local: ready: ", self.said(), re.M):
            if time.monotonic() > deadline:
                raise servers.Failed(f"the nodes did not agree: {self.said()[-500:]}")
            self.check_alive()
            time.sleep(0.02)

    def said(self):
        with open(self.log.name, errors="replace") as log:
            return log.read()

    def check_alive(self):
        if self.process.poll() is not None:
            raise servers.Failed(f"ceto local ended: {self.said()[-500:]}")

    def all_pids(self):
        found = re.findall(r"^ceto local: starts node \d+ on \S+ as process (\d+)$", self.said(), re.M)
        if len(found) != len(self.hosts):
            raise servers.Failed(f"{len(found)} nodes of {len(self.hosts)} were started")
        return [int(pid) for pid in found]

    def stop(self):
        if self.process is None:
            return
        process, self.process = self.process, None
        try:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_SECONDS)
        finally:
            # The kernel ends the nodes of a `ceto local` that is killed.
            process.kill()
            process.wait()
            self.log.close()

    def stalls(self):
        counts = {}
        for node, host in enumerate(self.hosts):
            if node not in self.ended:
                for kind, count in servers.stalls(host, METRICS_PORT).items():
                    counts[kind] = counts.get(kind, 0) + count
        return counts

    def version(self):
        return servers.text_of([self.binary, "--version"]).strip()


class Cassandra(Cluster):
    """Processes of a real Apache Cassandra: the first is the seed, the others join it beside each other."""

    def __init__(self, profile, work, cpus, nodes, heap):
        super().__init__(PEER_FIRST, nodes)
        self.name = "cassandra" if profile == "stock" else "cassandra-latest"
        self.cpus, self.heap, self.profile = cpus, heap, profile
        self.data = [os.path.join(work, f"node-{node + 1}") for node in range(nodes)]
        self.starts = []

    def environment(self, node):
        step = 2 ** 64 // (PEER_TOKENS * len(self.hosts))
        tokens = ",".join(str(-2 ** 63 + 1 + step * (part * len(self.hosts) + node)) for part in range(PEER_TOKENS))
        return os.environ | {
            "DATA": self.data[node], "PROFILE": self.profile, "JMX_PORT": str(PEER_JMX_PORT + node), "HEAP": self.heap,
            "PORT": str(self.port), "SEEDS": self.host, "WAIT": str(START_SECONDS),
            "JVM_EXTRA": PEER_FLAGS.format(tokens=tokens)}

    def start(self):
        began = time.monotonic()
        deadline = began + START_SECONDS
        self.begin(0)
        self.wait_for(0, deadline)
        for node in range(1, len(self.hosts)):
            self.begin(node)
        self.first_answer(began, deadline)
        for node in range(1, len(self.hosts)):
            self.wait_for(node, deadline)
        self.wait_until_normal(deadline)

    def begin(self, node):
        os.makedirs(self.data[node], exist_ok=True)
        with open(os.path.join(self.data[node], "start.log"), "wb") as log:
            # A session of its own: Ctrl-C is for the house, which ends the node by the pid that this script leaves.
            self.starts.append(subprocess.Popen(
                [os.path.join(servers.PEER, "start.sh"), self.hosts[node], self.cpus], env=self.environment(node),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))

    def wait_for(self, node, deadline):
        try:
            code = self.starts[node].wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = f"none within {START_SECONDS} s"
        if code != 0:
            with open(os.path.join(self.data[node], "start.log"), errors="replace") as log:
                raise servers.Failed(f"Cassandra's node {node + 1} did not start, exit {code}: {log.read()[-300:]}")

    def wait_until_normal(self, deadline):
        """Until the first node has all of them up and normal, and each knows the others."""
        while time.monotonic() < deadline:
            known = 0
            for host in self.hosts:
                with cql.Connection(host, self.port) as connection:
                    known += len(connection.query("SELECT peer FROM system.peers"))
            status = servers.text_of([os.path.join(servers.PEER, "nodetool.sh"), "status"],
                                     env=self.environment(0), timeout=60)
            if known == len(self.hosts) * (len(self.hosts) - 1) and len(re.findall("^UN ", status, re.M)) == len(self.hosts):
                return
            time.sleep(0.5)
        raise servers.Failed(f"not all nodes are up and normal: {status[-500:]}")

    def check_alive(self):
        for node, start in enumerate(self.starts):
            if start.poll() not in (None, 0):
                self.wait_for(node, time.monotonic() + 1)

    def all_pids(self):
        found = []
        for data in self.data:
            with open(os.path.join(data, "pid")) as file:
                found.append(int(file.read()))
        return found

    def stop(self):
        """Ends all nodes at once, and what starts them first: it could leave another."""
        for start in self.starts:
            if start.poll() is None:
                start.kill()
                start.wait()
        ends = [subprocess.Popen([os.path.join(servers.PEER, "stop.sh"), host], env=self.environment(node) | {"KILL": "1"},
                                 stdout=subprocess.DEVNULL, start_new_session=True)
                for node, host in enumerate(self.hosts[:len(self.starts)])]
        for end in ends:
            end.wait(STOP_SECONDS + 10)
        self.starts = []

    def stalls(self):
        """Nothing that it could tell."""
        return {}

    def version(self):
        return f"Apache Cassandra 5.0.6, {self.profile} settings, heap {self.heap} each"
