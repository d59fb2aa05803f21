"""Two builds in one cluster, under load: forth, a while with both, and back again."""

import os
import re
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

from cassandra.query import SimpleStatement

from checks import problems
from load import ANY_NODE, SHORT_TTL, Load, connect
from test_agreement import Nodes, until
from test_copies import ALL, ask, keys

OLD, NEW = Path(os.environ["OLD"]).absolute(), Path(os.environ["NEW"]).absolute()
# Answers in each state of the cluster.
REQUESTS = int(os.environ.get("REQUESTS", "2000"))
# A connection may be found to have ended so long after the node that ended it answers again.
NOTICED_SECONDS = 2
DRAIN = "drain"
BAD_LINE = re.compile(r"^ERROR\b|panicked|internal error")


class Upgrade(Nodes):
    def setUp(self):
        self.away = []

    def three(self, binary):
        nodes = self.nodes(3, shards=2)
        for node in nodes:
            node.binary = binary
            node.start()
        for node in nodes:
            node.ready()
        self.agree(nodes)
        return nodes

    def load(self, nodes):
        load = Load([node.address for node in nodes])
        self.addCleanup(load.cluster.shutdown)
        until("all to be up", load.is_ready)
        load.prepare()
        load.start()
        self.addCleanup(load.stop)
        load.goes_on(until, REQUESTS)
        return load

    def replace(self, node, nodes, binary, sent, load):
        """Ends a node, lets clients go on without it, and starts it with another build."""
        begun = time.monotonic()
        window = [node.address, begun, None]
        self.away.append(window)
        if sent == DRAIN:
            # As the manual has it: what is drained lives on for a while.
            subprocess.run([NEW, "ctl", "-h", node.address, "drain"], check=True, timeout=60, stdout=subprocess.DEVNULL)
            load.goes_on(until, REQUESTS // 4)
            sent = signal.SIGTERM
        node.process.send_signal(sent)
        code = node.process.wait(60)
        self.assertEqual(code, 0 if sent == signal.SIGTERM else -sent, node.log()[-2000:])
        ended = time.monotonic()
        load.goes_on(until, REQUESTS // 4)
        node.binary = binary
        node.start().ready()
        others = [other for other in nodes if other is not node]
        until("the node to be up", lambda: all(self.reads_at_all(other) for other in nodes))
        window[2] = time.monotonic()
        self.assertEqual(len(others), 2)
        print(f"    node {node.number}: ended in {ended - begun:.1f} s, back after {window[2] - begun:.1f} s", file=sys.stderr)

    def reads_at_all(self, node):
        try:
            ask(node, "SELECT w FROM u.last WHERE w = 1", ALL)
            return True
        except Exception:
            return False

    def mixed(self, nodes, name, others):
        """Changes of the schema and what they ask of nodes of both builds: by way of each node."""
        for number, node in enumerate(nodes):
            keyspace = f"{name}{number}"
            single = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            ask(node, f"CREATE KEYSPACE {keyspace} WITH replication = {single}")
            ask(node, f"CREATE TYPE {keyspace}.pair (a int, b text)")
            ask(node, f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v int, p frozen<pair>) WITH gc_grace_seconds = 1000")
            ask(node, f"CREATE TABLE {keyspace}.gone (k int PRIMARY KEY, n counter)")
            ask(node, f"ALTER TABLE {keyspace}.t ADD more text")
            ask(node, f"ALTER TYPE {keyspace}.pair ADD c int")
            ask(node, f"ALTER TABLE {keyspace}.t WITH comment = 'of {keyspace}' AND compression = {{'class': 'ZstdCompressor'}}")
            for key in range(60):
                writer = nodes[(number + key) % 3]
                ask(writer, f"INSERT INTO {keyspace}.t (k, v, p, more) VALUES ({key}, {key}, {{a: {key}, b: 'b'}}, 'more')")
            ask(node, f"DROP TABLE {keyspace}.gone")
            # More copies, which nodes of one build get of nodes of the other.
            ask(node, f"ALTER KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}}")
            until(f"copies of {keyspace} on all", lambda: self.has_copies(nodes, keyspace))
            for reader in nodes:
                self.assertEqual(keys(reader, f"SELECT k FROM {keyspace}.t", ALL), list(range(60)))
                self.assertEqual(reader.tables(keyspace), {"t"})
            self.assertEqual(len({n.schema_version() for n in nodes}), 1, "one version of the schema")
            ask(nodes[(number + 1) % 3], f"TRUNCATE {keyspace}.t")
            for reader in nodes:
                self.assertEqual(keys(reader, f"SELECT k FROM {keyspace}.t", ALL), [])
        ask(nodes[0], f"ALTER TABLE u.rows ADD {name} int")
        self.the_driver_agrees(nodes, name)
        for other in others:
            ask(nodes[1], f"DROP KEYSPACE {other}")

    def has_copies(self, nodes, keyspace):
        """Whether each node has all rows by itself."""
        try:
            return all(keys(node, f"SELECT k FROM {keyspace}.t", 1) == list(range(60)) for node in nodes)
        except Exception:
            return False

    def the_driver_agrees(self, nodes, name):
        cluster, session = connect([nodes[2].address])
        try:
            self.assertTrue(cluster.control_connection.wait_for_schema_agreement(wait_time=5), "the driver sees one version")
            self.assertIn(name, cluster.metadata.keyspaces["u"].tables["rows"].columns)
            pages = session.execute(SimpleStatement("SELECT w, n FROM u.rows", fetch_size=100, is_idempotent=True))
            self.assertGreater(len(list(pages)), 100)
        finally:
            cluster.shutdown()

    def check(self, nodes, load, where):
        """All that was acknowledged is there, exactly, and no request failed but where it may."""
        load.stop()
        # Rows with the short time to live are over.
        time.sleep(SHORT_TTL + 1)
        until("all to be up", lambda: all(self.reads_at_all(node) for node in nodes))
        found = [problem for node in nodes for problem in problems(node.address, load.workers)]
        record = load.record
        failed = [f"{when:.1f}: {what}" for when, what in record.failures]
        stray = [entry for entry in record.ended if entry[2] and not self.was_away(*entry)]
        kinds = {}
        for _, what, _ in record.ended:
            kinds[what] = kinds.get(what, 0) + 1
        print(f"    {where}: {record.done} answers, {len(failed)} failures, connections that ended: {kinds or 'none'}", file=sys.stderr)
        self.assertEqual(found[:10], [], where)
        self.assertEqual(failed[:10], [], f"{where}: {len(failed)} requests failed, while nodes were away {self.away}")
        self.assertEqual(stray[:10], [], f"{where}: connections of nodes that were not going down, {self.away}")
        for node in nodes:
            bad = [line for line in node.log().splitlines() if BAD_LINE.search(line)]
            self.assertEqual(bad[:5], [], f"{where}: the log of node {node.number}")
        load.start()

    def was_away(self, when, _, host):
        return any(host in (address, ANY_NODE) and begun <= when <= (end or when) + NOTICED_SECONDS for address, begun, end in self.away)

    def forth_and_back(self, sent, sent_back):
        nodes = self.three(OLD)
        load = self.load(nodes)
        self.check(nodes, load, "the old build alone")
        for number, node in enumerate(nodes):
            self.replace(node, nodes, NEW, sent, load)
            if number < 2:
                self.mixed(nodes, f"forth{number}", [f"forth0{other}" for other in range(3)] if number else [])
            self.check(nodes, load, f"node {node.number} has the new build")
        for number, node in enumerate(nodes):
            self.replace(node, nodes, OLD, sent_back, load)
            if number < 2:
                self.mixed(nodes, f"back{number}", [])
            self.check(nodes, load, f"node {node.number} has the old build again")
        for node in nodes:
            self.assertEqual(node.process.poll(), None)
        load.stop()
        for node in reversed(nodes):
            self.assertEqual(node.end(), 0, node.log()[-2000:])

    def test_nodes_change_their_build_in_order_and_go_back(self):
        self.forth_and_back(signal.SIGTERM, signal.SIGTERM)

    def test_nodes_of_the_new_build_are_drained_as_the_manual_says(self):
        """On the way back only: builds before 2026-11-26 fail reads of others between their drain and their end."""
        self.forth_and_back(signal.SIGTERM, DRAIN)

    def test_nodes_change_their_build_after_crashes_and_go_back(self):
        """What the log of one build has, the other replays; hints and batches that one has kept, the other delivers."""
        self.forth_and_back(signal.SIGKILL, signal.SIGKILL)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
