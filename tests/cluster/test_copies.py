"""Rows with copies on three nodes, as processes: levels, a node that is killed or stands still, what it missed and gets, conditional writes, counters, TRUNCATE."""

import itertools
import re
import signal
import struct
import threading
import time
import unittest
import urllib.request
import uuid

import native
from test_agreement import FIRST, KEYSPACE, Nodes, until

ANY, ONE, QUORUM, ALL, SERIAL = 0, 1, 4, 5, 8
WORKERS = 8
UNAVAILABLE, TRUNCATE_ERROR, READ_TIMEOUT = 0x1000, 0x1003, 0x1200
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


def metric(node, name):
    """A metric of a node, over all its shards."""
    with urllib.request.urlopen(f"http://{node.address}:9180/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))


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
        try:
            return self.code(node, statement, level) is None
        except OSError:
            # It has just been started.
            return False

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

    def test_reads_at_quorum_do_not_wait_for_a_node_that_stands_still(self):
        nodes = self.three("p")
        nodes[0].query("ALTER TABLE p.t WITH speculative_retry = '20ms'")
        for key in range(30):
            ask(nodes[0], f"INSERT INTO p.t (k, c) VALUES ({key}, 1)", ALL)
        helped, times = metric(nodes[0], "ceto_coordinator_speculative_reads_helped"), []
        with nodes[0].connect() as c:
            nodes[2].process.send_signal(signal.SIGSTOP)
            try:
                # Half of these ask it. It is taken for down after two seconds.
                for key in range(30):
                    begin = time.monotonic()
                    self.assertEqual(len(ask_on(c, f"SELECT c FROM p.t WHERE k = {key}")), 1)
                    times.append(time.monotonic() - begin)
                begin = time.monotonic()
                self.assertEqual(len(ask_on(c, "SELECT c FROM p.t WHERE k >= 0 ALLOW FILTERING")), 30)
                times.append(time.monotonic() - begin)
            finally:
                nodes[2].process.send_signal(signal.SIGCONT)
        self.assertGreater(metric(nodes[0], "ceto_coordinator_speculative_reads_helped"), helped)
        self.assertEqual([t for t in times if t > 1], [], "reads that waited for more than a second")
        # The node is asked again.
        until("a read at ALL", lambda: self.succeeds(nodes[0], "SELECT c FROM p.t WHERE k = 1", ALL))

    def trace(self, node, statement):
        """Activities of a statement's trace at QUORUM, in the order of time."""
        with node.connect() as c:
            body = native.long_text(statement) + native.parameters(c.version, consistency=QUORUM)
            c.send(native.frame(c.version, native.QUERY, body, flags=2))
            session = uuid.UUID(bytes=c.read()[2][:16])
        until("the trace", lambda: ask(node, f"SELECT duration FROM system_traces.sessions WHERE session_id = {session}"))
        events = ask(node, f"SELECT activity, source_elapsed FROM system_traces.events WHERE session_id = {session}")
        elapsed = [struct.unpack(">i", event[1])[0] for event in events]
        self.assertEqual(elapsed, sorted(elapsed))
        return [event[0].decode() for event in events]

    def test_an_unlogged_batch_reaches_all_its_partitions_and_traces_tell_which_nodes_were_asked(self):
        nodes = self.three("r")
        unlogged = "BEGIN UNLOGGED BATCH INSERT INTO r.t (k, c) VALUES (1, 1); INSERT INTO r.t (k, c) VALUES (2, 1); APPLY BATCH"
        ask(nodes[0], unlogged)
        self.assertEqual(keys(nodes[1], "SELECT k FROM r.t WHERE k > 0 ALLOW FILTERING"), [1, 2])
        for statement, asked, answered in (
            ("INSERT INTO r.t (k, c) VALUES (3, 1)", r"Sending the write to node \d", r"Node \d has the write"),
            ("SELECT c FROM r.t WHERE k = 3", r"Asking node \d for ", r"Node \d answered with \d+ bytes"),
        ):
            events = self.trace(nodes[0], statement)
            places = [next((at for at, event in enumerate(events) if re.fullmatch(wanted + ".*", event)), None)
                      for wanted in (asked, answered, "Request complete")]
            self.assertTrue(None not in places and places == sorted(places), events)

    def all_here(self, node, table, expected):
        """Whether a node has the rows of these keys by itself: at ONE it asks nobody else."""
        return keys(node, f"SELECT k FROM {table} WHERE k >= 0 ALLOW FILTERING", ONE) == expected

    def test_what_a_killed_node_missed_reaches_it_without_reads(self):
        nodes = self.three("h")
        nodes[2].kill()
        until("node 3 to be down", lambda: self.is_down(nodes[:2], "h.t"))
        for key in range(300):
            ask(nodes[key % 2], f"INSERT INTO h.t (k, c, v) VALUES ({key}, 1, 'v')")
        pending = nodes[0].query("SELECT status, files, address FROM system_views.pending_hints")
        self.assertEqual([(row[0], row[2]) for row in pending], [(b"DOWN", bytes([127, 0, 0, FIRST + 2]))])
        # One of those that have hints is killed too: what the kernel has of them it delivers after its own start.
        until("hints of node 2", lambda: nodes[1].query("SELECT files FROM system_views.pending_hints"))
        until("none in its memory", lambda: metric(nodes[1], "scylla_hints_manager_size_of_hints_in_progress") == 0)
        nodes[1].kill()
        nodes[1].start().ready()
        nodes[2].start().ready()
        until("node 3 to have all", lambda: self.all_here(nodes[2], "h.t", list(range(300))))
        for node in nodes[:2]:
            until("no hints", lambda: node.query("SELECT * FROM system_views.pending_hints") == [])
        # A hint at ANY outlives its coordinator.
        single = "CREATE KEYSPACE ha WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        nodes[0].query(single)
        nodes[0].query("CREATE TABLE ha.t (k int PRIMARY KEY)")
        nodes[2].kill()
        until("node 3 to be down", lambda: self.is_down(nodes[:2], "h.t"))
        for key in range(50):
            ask(nodes[0], f"INSERT INTO ha.t (k) VALUES ({key})", ANY)
        nodes[0].kill()
        nodes[0].start().ready()
        nodes[2].start().ready()
        until("all keys", lambda: self.code(nodes[1], "SELECT k FROM ha.t", ONE) is None
              and keys(nodes[1], "SELECT k FROM ha.t", ONE) == list(range(50)))

    def test_logged_batches_of_a_killed_coordinator_are_whole_or_not_there(self):
        nodes = self.three("b")
        done = set()

        def work(connection, begin):
            for number in itertools.count(begin, WORKERS):
                rows = "".join(f"INSERT INTO b.t (k, c) VALUES ({2 * number + at}, 1); " for at in range(2))
                statement = native.long_text(f"BEGIN BATCH {rows}APPLY BATCH")
                try:
                    connection.ask(native.QUERY, statement + native.parameters(connection.version, consistency=QUORUM))
                except (OSError, EOFError, native.Refused):
                    return
                done.add(number)

        workers = [threading.Thread(target=work, args=(nodes[0].connect(), begin)) for begin in range(WORKERS)]
        for worker in workers:
            worker.start()
        until("some batches", lambda: len(done) > 20)
        nodes[0].kill()
        for worker in workers:
            worker.join()

        def whole(node):
            found = keys(node, "SELECT k FROM b.t WHERE k >= 0 ALLOW FILTERING", ONE)
            return {key // 2 for key in found if key % 2} == {key // 2 for key in found if not key % 2} and found

        for node in nodes[1:]:
            until("whole batches", lambda: whole(node))
        # Both have the same, and everything that was acknowledged.
        until("the same", lambda: whole(nodes[1]) and whole(nodes[1]) == whole(nodes[2]))
        self.assertLessEqual(done, {key // 2 for key in whole(nodes[1])})

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

    def counters(self, node, keyspace, level=QUORUM):
        rows = ask(node, f"SELECT k, n FROM {keyspace}.n", level)
        return {struct.unpack(">i", key)[0]: struct.unpack(">q", n)[0] for key, n in rows}

    def test_counters_count_once_on_all_nodes_whoever_is_killed(self):
        nodes = self.three("c")
        nodes[0].query("CREATE TABLE c.n (k int PRIMARY KEY, n counter)")
        expected = {key: 0 for key in range(20)}
        unknown = {key: 0 for key in range(20)}

        def count(node, key, level):
            try:
                ask(node, f"UPDATE c.n SET n = n + 1 WHERE k = {key}", level)
                expected[key] += 1
            except native.Refused as refused:
                # Nothing was counted, or nobody knows.
                if refused.code != UNAVAILABLE:
                    unknown[key] += 1

        def check(node, level):
            found = self.counters(node, "c", level)
            for key, least in expected.items():
                self.assertTrue(least <= found.get(key, 0) <= least + unknown[key], (key, found.get(key), least, unknown[key]))
            return found

        for number in range(300):
            count(nodes[number % 3], number % 20, (ONE, QUORUM, ALL)[number % 3])
        self.assertEqual(sum(expected.values()), 300)
        for node in nodes:
            self.assertEqual(check(node, ALL), expected)
        nodes[2].kill()
        for number in range(300):
            count(nodes[number % 2], number % 20, QUORUM)
        until("node 3 to be down", lambda: self.is_down(nodes[:2], "c.n"))
        self.refused(nodes[0], "UPDATE c.n SET n = n + 1 WHERE k = 1", ALL, UNAVAILABLE)
        batch = "".join(f"UPDATE c.n SET n = n + 1 WHERE k = {key}; " for key in range(20))
        ask(nodes[1], f"BEGIN COUNTER BATCH {batch}APPLY BATCH")
        for key in expected:
            expected[key] += 1
        check(nodes[1], QUORUM)
        nodes[2].start().ready()
        until("all to be up", lambda: all(self.succeeds(n, "SELECT k FROM c.n WHERE k = 1", ALL) for n in nodes))
        for number in range(60):
            count(nodes[2], number % 20, ONE)
        found = check(nodes[0], ALL)
        for node in nodes:
            self.assertEqual(check(node, ALL), found)
            self.assertEqual(check(node, ONE), found, "reads at ALL have repaired every copy")
        ask(nodes[0], "DELETE FROM c.n WHERE k = 3", ALL)
        self.assertEqual([3 in self.counters(node, "c") for node in nodes], [False] * 3)

    def test_truncate_empties_all_nodes_and_nothing_comes_back(self):
        nodes = self.three("x")
        for key in range(ROWS):
            ask(nodes[key % 3], f"INSERT INTO x.t (k, c, v) VALUES ({key}, 1, 'before')")
        ask(nodes[1], "TRUNCATE x.t")
        for node in nodes:
            for level in (ONE, QUORUM, ALL):
                self.assertEqual(keys(node, "SELECT k FROM x.t", level), [])
        for key in range(ROWS):
            ask(nodes[key % 3], f"INSERT INTO x.t (k, c, v) VALUES ({key}, 1, 'after')")
        nodes[0].kill()
        until("node 1 to be down", lambda: self.is_down(nodes[1:], "x.t"))
        message = self.refused(nodes[2], "TRUNCATE x.t", QUORUM, TRUNCATE_ERROR)
        self.assertEqual(message, "Error during truncate: Cannot achieve consistency level ALL")
        self.assertEqual(keys(nodes[2], "SELECT k FROM x.t"), list(range(ROWS)), "nothing was done")
        nodes[0].start().ready()
        until("all to be up", lambda: all(self.succeeds(n, "SELECT k FROM x.t WHERE k = 1", ALL) for n in nodes))
        ask(nodes[2], "TRUNCATE x.t")
        for key in range(0, ROWS, 2):
            ask(nodes[key % 3], f"INSERT INTO x.t (k, c, v) VALUES ({key}, 1, 'at last')")
        # A start goes by what the nodes have agreed, whatever its disk has.
        for node in nodes:
            node.kill()
        for node in nodes:
            node.start()
        for node in nodes:
            node.ready()
        until("all to be up", lambda: all(self.succeeds(n, "SELECT k FROM x.t WHERE k = 1", ALL) for n in nodes))
        for node in nodes:
            self.assertEqual(keys(node, "SELECT k FROM x.t", ALL), list(range(0, ROWS, 2)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
