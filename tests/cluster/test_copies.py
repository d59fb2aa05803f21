"""Rows with copies on three nodes, as processes: levels, a node that is killed, what it missed, conditional writes, and what is refused."""

import struct
import threading
import unittest

import native
from test_agreement import INVALID, KEYSPACE, Nodes, until

ONE, QUORUM, ALL = 1, 4, 5
SERIAL = 8
UNAVAILABLE, READ_TIMEOUT = 0x1000, 0x1200
ROWS = 200


def ask(node, statement, level=QUORUM, page_size=None):
    """The rows of a statement at a level."""
    with node.connect() as c:
        return ask_on(c, statement, level, page_size)


def ask_on(connection, statement, level=QUORUM, page_size=None):
    """The same, over a connection that there is."""
    body = native.long_text(statement) + native.parameters(connection.version, page_size=page_size, consistency=level)
    return native.rows_of(connection.ask(native.QUERY, body)[2])


def keys(node, statement, level=QUORUM):
    return sorted(struct.unpack(">i", row[0])[0] for row in ask(node, statement, level))


class Copies(Nodes):
    def three(self, keyspace):
        nodes = self.nodes(3)
        for node in nodes:
            node.start()
        for node in nodes:
            node.ready()
        self.agree(nodes)
        nodes[0].query(KEYSPACE.format(keyspace))
        nodes[0].query(f"CREATE TABLE {keyspace}.t (k int, c int, s text static, v text, PRIMARY KEY (k, c))")
        # All are up in the opinion of all.
        for node in nodes:
            until("a write at ALL", lambda: self.succeeds(node, f"INSERT INTO {keyspace}.t (k, c) VALUES (-1, 0)", ALL))
        return nodes

    def succeeds(self, node, statement, level):
        return self.code(node, statement, level) is None

    def is_down(self, others, table):
        """Whether all the others know that a node of three does not live."""
        return all(self.code(node, f"SELECT k FROM {table} WHERE k = 1", ALL) == UNAVAILABLE for node in others)

    def code(self, node, statement, level):
        try:
            ask(node, statement, level)
        except native.Refused as refused:
            return refused.code

    def refused(self, node, statement, level, code):
        with self.assertRaises(native.Refused) as refused:
            ask(node, statement, level)
        self.assertEqual(refused.exception.code, code, refused.exception.message)
        return refused.exception.message

    def test_what_is_written_at_quorum_is_read_at_quorum_whoever_is_killed(self):
        nodes = self.three("q")
        for key in range(ROWS):
            node = nodes[key % 3]
            ask(node, f"INSERT INTO q.t (k, c, s, v) VALUES ({key}, 1, 'static', 'before')")
        for node in nodes:
            self.assertEqual(keys(node, "SELECT k FROM q.t WHERE k >= 0 ALLOW FILTERING"), list(range(ROWS)))
            self.assertEqual(keys(node, "SELECT k FROM q.t WHERE k >= 0 ALLOW FILTERING", ALL), list(range(ROWS)))
            self.assertEqual(struct.unpack(">q", ask(node, "SELECT count(*) FROM q.t")[0][0])[0], ROWS + 1)
        nodes[2].kill()
        until("node 3 to be down", lambda: self.is_down(nodes[:2], "q.t"))
        message = self.refused(nodes[0], "SELECT k FROM q.t WHERE k = 1", ALL, UNAVAILABLE)
        self.assertIn("ALL", message)
        for key in range(ROWS):
            node = nodes[key % 2]
            if key % 4 == 0:
                ask(node, f"DELETE FROM q.t WHERE k = {key}")
            else:
                ask(node, f"UPDATE q.t SET v = 'after' WHERE k = {key} AND c = 1")
        left = [key for key in range(ROWS) if key % 4]
        self.assertEqual(keys(nodes[1], "SELECT k FROM q.t WHERE k >= 0 ALLOW FILTERING"), left)
        # It has missed all that. With node 1 killed each quorum needs it, and what the other knows holds.
        nodes[2].start().ready()
        until("all to be up", lambda: all(self.succeeds(n, "SELECT k FROM q.t WHERE k = 1", ALL) for n in nodes))
        nodes[0].kill()
        until("node 1 to be down", lambda: self.is_down(nodes[1:], "q.t"))
        for node in nodes[1:]:
            self.assertEqual(keys(node, "SELECT k FROM q.t WHERE k >= 0 ALLOW FILTERING"), left)
            for key in range(0, ROWS, 7):
                rows = ask(node, f"SELECT v, s FROM q.t WHERE k = {key}")
                self.assertEqual(rows, [] if key % 4 == 0 else [[b"after", b"static"]])
        # Those reads have repaired it: it has all of it by itself.
        self.assertEqual(keys(nodes[2], "SELECT k FROM q.t WHERE k >= 0 ALLOW FILTERING", ONE), left)

    def applied(self, connection, statement):
        """Whether a conditional statement was applied, and what was there if not."""
        rows = ask_on(connection, statement)
        return rows[0][0] == b"\x01", rows[0][1:]

    def value(self, connection, key):
        return struct.unpack(">i", ask_on(connection, f"SELECT v FROM l.r WHERE k = {key}", SERIAL)[0][0])[0]

    def count(self, c, at, times, done, doubts):
        """Adds one until node `at` has done so `times` times, by IF v = what was read."""
        while done[at] < times:
            try:
                value = self.value(c, 100)
                done[at] += self.applied(c, f"UPDATE l.r SET v = {value + 1} WHERE k = 100 IF v = {value}")[0]
            except native.Refused as refused:
                # A write that did not get its turn; in version 4 of the protocol also one whose outcome is not known.
                self.assertIn(refused.code, (native.WRITE_TIMEOUT, READ_TIMEOUT), refused.message)
                doubts.append(refused.message)

    def all_at_once(self, works):
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def test_conditional_writes_agree_from_all_nodes_at_once_and_with_one_killed(self):
        nodes = self.three("l")
        nodes[0].query("CREATE TABLE l.r (k int PRIMARY KEY, v int, w int)")
        connections = [node.connect() for node in nodes]
        for c in connections:
            self.addCleanup(c.socket.close)
        # Of three that insert at once one wins each time, and all see whose value it is.
        for key in range(20):
            said = [None] * 3

            def insert(at):
                try:
                    said[at] = self.applied(connections[at], f"INSERT INTO l.r (k, v) VALUES ({key}, {at}) IF NOT EXISTS")
                except native.Refused as refused:
                    # It did not get its turn, or its outcome is not known.
                    self.assertEqual(refused.code, native.WRITE_TIMEOUT, refused.message)

            self.all_at_once([lambda at=at: insert(at) for at in range(3)])
            if not any(said):
                continue
            values = {self.value(c, key) for c in connections}
            self.assertEqual(len(values), 1, values)
            (value,) = values
            for at, outcome in enumerate(said):
                if outcome is not None:
                    self.assertEqual(outcome[0], at == value, f"{said} of key {key}, which has {value}")
        # Steps of a number by IF v = ...: none is lost or taken twice, whoever takes it.
        ask(nodes[0], "INSERT INTO l.r (k, v) VALUES (100, 0)")
        done, doubts = [0] * 3, []
        self.all_at_once([lambda at=at: self.count(connections[at], at, 10, done, doubts) for at in range(3)])
        self.assertEqual(done, [10, 10, 10])
        # What is longer than a page is read on behind the promises.
        for clustering in range(300):
            ask_on(connections[clustering % 3], f"INSERT INTO l.t (k, c, v) VALUES (5, {clustering}, '{'long' * 500}')")
        for c in connections:
            self.assertEqual(len(ask_on(c, "SELECT c FROM l.t WHERE k = 5", SERIAL)), 300)
        self.assertEqual(self.applied(connections[1], "UPDATE l.t SET s = 's' WHERE k = 5 IF s = null"), (True, []))
        self.assertEqual(ask_on(connections[2], "SELECT s FROM l.t WHERE k = 5 LIMIT 1", SERIAL), [[b"s"]])
        nodes[2].kill()
        until("node 3 to be down", lambda: self.is_down(nodes[:2], "l.t"))
        self.all_at_once([lambda at=at: self.count(connections[at], at, 20, done, doubts) for at in range(2)])
        self.assertEqual(done, [20, 20, 10])
        value = self.value(connections[0], 100)
        self.assertTrue(50 <= value <= 50 + len(doubts), f"{value}, with {doubts}")
        for c in connections[:2]:
            self.assertEqual(self.value(c, 100), value)
            self.assertEqual(self.applied(c, "DELETE FROM l.r WHERE k = 100 IF v = 7"), (False, [struct.pack(">i", value)]))
        # It comes back, and agrees with what it has missed while another is away.
        nodes[2].start().ready()
        until("all to be up", lambda: all(self.succeeds(n, "SELECT k FROM l.t WHERE k = 1", ALL) for n in nodes))
        nodes[0].kill()
        until("node 1 to be down", lambda: self.is_down(nodes[1:], "l.t"))
        with nodes[2].connect() as c:
            self.assertEqual(self.applied(c, f"UPDATE l.r SET w = 1 WHERE k = 100 IF v = {value}"), (True, []))
        row = [[struct.pack(">i", value), struct.pack(">i", 1)]]
        self.assertEqual(ask(nodes[1], "SELECT v, w FROM l.r WHERE k = 100", SERIAL), row)
        nodes[1].kill()
        until("node 2 to be down", lambda: self.code(nodes[2], "SELECT k FROM l.t WHERE k = 1", QUORUM) == UNAVAILABLE)
        message = self.refused(nodes[2], f"UPDATE l.r SET w = 2 WHERE k = 100 IF v = {value}", QUORUM, UNAVAILABLE)
        self.assertIn("QUORUM", message)

    def test_what_copies_cannot_do_yet_is_refused_with_a_sentence(self):
        nodes = self.three("r")
        nodes[0].query("CREATE TABLE r.n (k int PRIMARY KEY, n counter)")
        refusals = [
            "TRUNCATE r.t",
            "UPDATE r.n SET n = n + 1 WHERE k = 1",
            "BEGIN BATCH INSERT INTO r.t (k, c) VALUES (1, 1); INSERT INTO r.t (k, c) VALUES (2, 1); APPLY BATCH",
        ]
        for node in nodes:
            for statement in refusals:
                self.assertIn("not done yet", self.refused(node, statement, QUORUM, INVALID))
        unlogged = "BEGIN UNLOGGED BATCH INSERT INTO r.t (k, c) VALUES (1, 1); INSERT INTO r.t (k, c) VALUES (2, 1); APPLY BATCH"
        ask(nodes[0], unlogged)
        self.assertEqual(keys(nodes[1], "SELECT k FROM r.t WHERE k > 0 ALLOW FILTERING"), [1, 2])

    def test_one_copy_each_is_read_and_written_from_any_node(self):
        nodes = self.three("o")
        single = "CREATE KEYSPACE single WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        nodes[0].query(single)
        nodes[0].query("CREATE TABLE single.t (k int PRIMARY KEY, v text)")
        for key in range(ROWS):
            ask(nodes[key % 3], f"INSERT INTO single.t (k, v) VALUES ({key}, 'v')", ONE)
        for node in nodes:
            self.assertEqual(keys(node, "SELECT k FROM single.t", ONE), list(range(ROWS)))
            self.assertEqual(keys(node, "SELECT k FROM single.t", QUORUM), list(range(ROWS)))
            self.assertEqual(keys(node, "SELECT k FROM single.t WHERE k = 17", ALL), [17])


if __name__ == "__main__":
    unittest.main(verbosity=2)
