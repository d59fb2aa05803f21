"""Replication that changes under load, as processes: factors that grow and shrink, nodes that join a table with too few copies, a leader that is killed."""

import json
import struct
import threading
import time
import unittest

import native
from test_agreement import Nodes, until
from test_copies import ALL, ONE, QUORUM, SERIAL, UNAVAILABLE, ask, ask_on, keys, metric

ROWS = 400
REPLICATION = "replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': {}}}"


class Replication(Nodes):
    def up(self, count, **options):
        nodes = self.nodes(count, **options)
        for node in nodes:
            node.start()
        for node in nodes:
            node.ready()
        self.agree(nodes)
        nodes[0].query(f"CREATE KEYSPACE up WITH {REPLICATION.format(count)}")
        nodes[0].query("CREATE TABLE up.t (k int PRIMARY KEY)")
        # All are up in the opinion of all.
        for node in nodes:
            until("a write at ALL", lambda: self.takes(node, "INSERT INTO up.t (k) VALUES (1)", ALL))
        return nodes

    def takes(self, node, statement, level=QUORUM):
        try:
            ask(node, statement, level)
        except native.Refused:
            return False
        return True

    def alter(self, node, keyspace, factor):
        node.query(f"ALTER KEYSPACE {keyspace} WITH {REPLICATION.format(factor)}")

    def copies(self, node, keyspace, table):
        """How many replicas each tablet of a table has, as drivers are told."""
        rows = node.query("SELECT keyspace_name, table_name, toJson(replicas) FROM system.tablets")
        return [len(json.loads(row[2])) for row in rows if row[:2] == [keyspace.encode(), table.encode()]]

    def settles(self, nodes, keyspace, table, factor):
        def is_there():
            return all(set(self.copies(node, keyspace, table)) == {factor} for node in nodes)

        until(f"{factor} copies of {keyspace}.{table}", is_there)
        until("no tablet in transition", lambda: all(metric(node, "ceto_tablets_in_transition") == 0 for node in nodes))

    def test_factors_grow_and_shrink_while_clients_write(self):
        nodes = self.up(3, shards=2)
        first = nodes[0]
        first.query(f"CREATE KEYSPACE g WITH {REPLICATION.format(1)}")
        first.query("CREATE TABLE g.t (k int PRIMARY KEY, v int) WITH read_repair = 'NONE'")
        first.query("CREATE TABLE g.r (k int PRIMARY KEY, v int)")
        first.query("CREATE TABLE g.n (k int PRIMARY KEY, n counter)")
        for key in range(ROWS):
            ask(first, f"INSERT INTO g.t (k, v) VALUES ({key}, 0)")
        for key in range(0, ROWS, 10):
            ask(first, f"DELETE FROM g.t WHERE k = {key}")
        for key in range(3):
            ask(first, f"INSERT INTO g.r (k, v) VALUES ({key}, 0) IF NOT EXISTS")
        ended, failed = threading.Event(), []
        # The last value of each key that was acknowledged, and of those that may or may not have been written.
        written = [{} for _ in nodes]
        counted, doubts, swapped, perhaps = [0] * 3, [0] * 3, [0] * 3, [0] * 3

        def work(at):
            """Writes to keys of its own and reads them, counts, and swaps, at QUORUM."""
            with nodes[at].connect() as c:
                turn = 0
                while not ended.is_set():
                    turn += 1
                    key = 3 * (turn % 100) + at
                    try:
                        ask_on(c, f"INSERT INTO g.t (k, v) VALUES ({key}, {turn})")
                        written[at][key] = turn
                        rows = ask_on(c, f"SELECT v FROM g.t WHERE k = {key}")
                        if [struct.unpack(">i", row[0])[0] for row in rows] != [turn]:
                            failed.append(f"key {key} of node {at + 1} has {rows} and not {turn}")
                    except native.Refused as refused:
                        written[at].pop(key, None)
                        failed.append(f"a write or read: {refused.code:x} {refused.message}")
                    try:
                        ask_on(c, f"UPDATE g.n SET n = n + 1 WHERE k = {at}")
                        counted[at] += 1
                    except native.Refused as refused:
                        doubts[at] += 1
                        failed.append(f"a count: {refused.code:x} {refused.message}")
                    try:
                        value = struct.unpack(">i", ask_on(c, f"SELECT v FROM g.r WHERE k = {at}", SERIAL)[0][0])[0]
                        applied = ask_on(c, f"UPDATE g.r SET v = {value + 1} WHERE k = {at} IF v = {value}")[0][0] == b"\x01"
                        swapped[at] += applied
                        if not applied:
                            failed.append(f"a swap of node {at + 1} was not applied: nobody else swaps its row")
                    except native.Refused as refused:
                        perhaps[at] += 1
                        failed.append(f"a swap: {refused.code:x} {refused.message}")

        workers = [threading.Thread(target=work, args=(at,)) for at in range(3)]
        for worker in workers:
            worker.start()
        try:
            for factor in (3, 2, 3, 1):
                self.alter(nodes[factor % 3], "g", factor)
                for table in ("t", "r", "n"):
                    self.settles(nodes, "g", table, factor)
                if factor == 3:
                    # Each has all that was there before by itself: nobody reads these keys, and nothing repairs them.
                    for node in nodes:
                        old = [key for key in range(300, ROWS) if key % 10]
                        self.assertEqual([key for key in keys(node, "SELECT k FROM g.t", ONE) if key >= 300], old)
        finally:
            ended.set()
            for worker in workers:
                worker.join()
        self.assertEqual(failed, [], "a change of the factor fails no request, and loses nothing")
        expected = {key: value for of in written for key, value in of.items()}
        for node in nodes:
            rows = {struct.unpack(">i", k)[0]: struct.unpack(">i", v)[0] for k, v in ask(node, "SELECT k, v FROM g.t")}
            self.assertEqual({key: rows.get(key) for key in expected}, expected)
            counts = {struct.unpack(">i", k)[0]: struct.unpack(">q", n)[0] for k, n in ask(node, "SELECT k, n FROM g.n")}
            self.assertEqual([counts[at] for at in range(3)], counted)
            values = {struct.unpack(">i", k)[0]: struct.unpack(">i", v)[0] for k, v in ask(node, "SELECT k, v FROM g.r")}
            self.assertEqual([values[at] for at in range(3)], swapped)

    def test_nodes_that_join_take_copies_that_are_missing(self):
        nodes = self.nodes(3)
        nodes[0].start().ready()
        nodes[0].query(f"CREATE KEYSPACE j WITH {REPLICATION.format(3)}")
        nodes[0].query("CREATE TABLE j.t (k int PRIMARY KEY)")
        for key in range(ROWS):
            ask(nodes[0], f"INSERT INTO j.t (k) VALUES ({key})", ONE)
        for node in nodes[1:]:
            node.start().ready()
        self.agree(nodes)
        self.settles(nodes, "j", "t", 3)
        for node in nodes:
            self.assertEqual(keys(node, "SELECT k FROM j.t", ONE), list(range(ROWS)))
        nodes[0].kill()
        until("reads at QUORUM", lambda: self.takes(nodes[1], "SELECT k FROM j.t"))
        self.assertEqual(keys(nodes[2], "SELECT k FROM j.t", QUORUM), list(range(ROWS)))

    def test_a_leader_that_is_killed_leaves_its_work_to_the_next(self):
        nodes = self.up(3)
        nodes[0].query(f"CREATE KEYSPACE l WITH {REPLICATION.format(2)}")
        nodes[0].query("CREATE TABLE l.t (k int PRIMARY KEY, v text)")
        for key in range(ROWS):
            ask(nodes[0], f"INSERT INTO l.t (k, v) VALUES ({key}, '{'v' * 500}')", ALL)
        self.alter(nodes[1], "l", 3)
        nodes[0].kill()
        # Two are left, of which each tablet had one copy at least: what is missing is copied, or given up until the first is back.
        until("node 1 to be down", lambda: not self.takes(nodes[1], "SELECT k FROM l.t", ALL))
        time.sleep(3)
        nodes[0].start().ready()
        self.settles(nodes, "l", "t", 3)
        for node in nodes:
            self.assertEqual(keys(node, "SELECT k FROM l.t", ONE), list(range(ROWS)))

    def test_a_copy_whose_node_dies_on_the_way_is_given_up_and_made_when_it_is_back(self):
        nodes = self.up(3)
        nodes[0].query(f"CREATE KEYSPACE u WITH {REPLICATION.format(1)}")
        nodes[0].query("CREATE TABLE u.t (k int PRIMARY KEY)")
        for key in range(ROWS):
            ask(nodes[0], f"INSERT INTO u.t (k) VALUES ({key})", ONE)
        nodes[2].kill()
        self.alter(nodes[0], "u", 2)
        # Tablets that are to be copied from the third, or to it, wait for it; those between the two that live do not.
        until("copies between the two", lambda: 2 in self.copies(nodes[0], "u", "t"))
        until("no tablet in transition", lambda: all(metric(n, "ceto_tablets_in_transition") == 0 for n in nodes[:2]))
        self.assertIn(1, self.copies(nodes[0], "u", "t"))
        nodes[2].start().ready()
        self.settles(nodes, "u", "t", 2)
        for node in nodes:
            self.assertEqual(keys(node, "SELECT k FROM u.t", QUORUM), list(range(ROWS)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
