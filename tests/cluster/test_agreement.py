"""Several nodes as processes: what they agree on, and what befalls them."""

import os
import shutil
import signal
import socket
import subprocess
import time
import unittest
from pathlib import Path

import native
from native import Connection, Refused

REPO = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("CETO", REPO / "target" / "release" / "ceto"))
PATIENCE_SECONDS = 60
# Loopback addresses that no other test listens on: the last byte of the first node's.
FIRST = int(os.environ.get("FIRST", "21"))
# Two suites that run at once have two addresses, and so two folders.
RUNS = REPO / ".cache" / "runs" / f"cluster-{FIRST}"
INVALID, ALREADY_EXISTS = 0x2200, 0x2400
KEYSPACE = "CREATE KEYSPACE {} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}}"


def until(what, check):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {PATIENCE_SECONDS} s")


class Node:
    """One node of a cluster, known by its number from 1."""

    def __init__(self, number, seeds, name="a cluster", shards=1):
        self.number, self.address = number, f"127.0.0.{FIRST + number - 1}"
        self.work = RUNS / f"node-{number}"
        self.seeds, self.name, self.shards, self.process = seeds, name, shards, None
        self.binary = BINARY
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        (self.work / "config.yaml").write_text(f"cluster_name: {name}\n")

    def start(self):
        command = [self.binary, "server", "--config", self.work / "config.yaml", "--workdir", self.work / "data"]
        command += ["--listen", self.address, "--seeds", self.seeds, "--smp", str(self.shards), "--memory", "256M", "--overprovisioned"]
        with open(self.work / "log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        return self

    def log(self):
        return (self.work / "log").read_text(errors="replace")

    def connect(self):
        native.HOST, native.PORT = self.address, 9042
        return Connection()

    def is_ready(self):
        assert self.process.poll() is None, f"node {self.number} ended:\n{self.log()[-2000:]}"
        try:
            socket.create_connection((self.address, 9042), 1).close()
            return True
        except OSError:
            return False

    def ready(self):
        until(f"node {self.number} to be ready", self.is_ready)
        return self

    def query(self, statement):
        with self.connect() as c:
            return c.query(statement)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        """Ends it in order; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_SECONDS)

    def peers(self):
        return {socket.inet_ntoa(row[0]) for row in self.query("SELECT peer FROM system.peers")}

    def schema_version(self):
        return self.query("SELECT schema_version FROM system.local")[0][0]

    def tables(self, keyspace):
        rows = self.query(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}'")
        return {row[0].decode() for row in rows}


class Nodes(unittest.TestCase):
    """What tests of several nodes need."""

    def nodes(self, count, **options):
        seeds = f"127.0.0.{FIRST}"
        nodes = [Node(number, seeds, **options) for number in range(1, count + 1)]
        self.addCleanup(self.end_all, nodes)
        return nodes

    def end_all(self, nodes):
        for node in nodes:
            if node.process and node.process.poll() is None:
                node.process.kill()
                node.process.wait()
        if not self._outcome.result.failures and not self._outcome.result.errors:
            shutil.rmtree(RUNS, ignore_errors=True)

    def agree(self, nodes):
        everybody = {node.address for node in nodes}
        until("agreement", lambda: all(node.peers() == everybody - {node.address} for node in nodes))
        self.assertEqual(len({node.schema_version() for node in nodes}), 1)


class Agreement(Nodes):
    def test_three_nodes_agree_and_go_on_without_one(self):
        nodes = self.nodes(3)
        # All at once, the founder last: the others wait for it.
        for node in reversed(nodes):
            node.start()
        for node in nodes:
            node.ready()
        self.agree(nodes)
        tokens = [row[0] for node in nodes for row in node.query("SELECT toJson(tokens) FROM system.local")]
        self.assertEqual(len(set(tokens)), 3, "tokens differ per node")
        nodes[2].query(KEYSPACE.format("k"))
        expected = set()
        for number in range(6):
            asked, other = nodes[number % 3], nodes[(number + 1) % 3]
            asked.query(f"CREATE TABLE k.t{number} (k int PRIMARY KEY)")
            expected.add(f"t{number}")
            self.assertEqual(other.tables("k"), expected, "another node has it once it is answered")
        for node in nodes:
            with self.assertRaises(Refused) as refused:
                node.query("CREATE TABLE k.t0 (k int PRIMARY KEY)")
            self.assertEqual(refused.exception.code, ALREADY_EXISTS)
        # The founder leads; it is killed, and another one leads.
        nodes[0].kill()
        nodes[1].query("CREATE TABLE k.without (k int PRIMARY KEY)")
        self.assertIn("without", nodes[2].tables("k"))
        nodes[0].start().ready()
        self.assertIn("without", nodes[0].tables("k"), "what it missed is there before it serves")
        self.agree(nodes)
        # A rolling restart, in order.
        for node in nodes:
            self.assertEqual(node.end(), 0, node.log()[-2000:])
            node.start().ready()
        self.agree(nodes)
        nodes[1].query("DROP KEYSPACE k")
        self.assertEqual(nodes[0].tables("k"), set())

    def test_without_a_majority_nothing_changes_and_what_is_there_is_read(self):
        nodes = self.nodes(3)
        for node in nodes:
            node.start()
        for node in nodes:
            node.ready()
        self.agree(nodes)
        nodes[0].query(KEYSPACE.format("m"))
        for node in nodes[:2]:
            node.kill()
        with self.assertRaises(Refused) as refused:
            nodes[2].query("CREATE TABLE m.t (k int PRIMARY KEY)")
        self.assertIn("majority", refused.exception.message)
        self.assertEqual(nodes[2].tables("m"), set())
        for node in nodes[:2]:
            node.start().ready()
        nodes[2].query("CREATE TABLE IF NOT EXISTS m.t (k int PRIMARY KEY)")
        for node in nodes:
            self.assertEqual(node.tables("m"), {"t"})

    def test_a_node_of_another_cluster_is_refused_with_both_names(self):
        first, other = self.nodes(2)
        (other.work / "config.yaml").write_text("cluster_name: another\n")
        first.start().ready()
        other.start()
        until("a reason in the log", lambda: "'a cluster'" in other.log() and "'another'" in other.log())
        self.assertEqual(first.peers(), set())
        self.assertEqual(other.end(), 0, "a node that waits can be stopped")


if __name__ == "__main__":
    unittest.main(verbosity=2)
