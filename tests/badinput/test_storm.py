"""Thousands of connections at once, most of them good for nothing: established clients do not notice.

STORM (2000) says how many; a node by hand takes 10000.
"""

import contextlib
import os
import resource
import socket
import struct

import native
from native import ERROR, EXECUTE, OPTIONS, OVERLOADED, READY, RESULT, STARTUP, Connection, error_of, frame
from node import NodeTest

STORM = int(os.environ.get("STORM", "2000"))


def more_descriptors(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, max(soft, count)) if hard != resource.RLIM_INFINITY else max(soft, count)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def rss_kib(node):
    for line in open(f"/proc/{node.pid()}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


class Storm(NodeTest):
    SHARDS = 1

    @classmethod
    def prepare_data(cls):
        more_descriptors(STORM + 200)
        with Connection() as c:
            c.query("CREATE KEYSPACE storm WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
            c.query("CREATE TABLE storm.t (k int PRIMARY KEY, v int)")
            c.query("INSERT INTO storm.t (k, v) VALUES (?, ?)", [struct.pack(">i", 1), struct.pack(">i", 2)])

    def assert_is_served(self, established):
        rows = established.query("SELECT v FROM storm.t WHERE k = 1")
        self.assertEqual(rows, [[struct.pack(">i", 2)]])

    def test_established_clients_are_served_while_thousands_come(self):
        greeting = frame(4, STARTUP, native.startup_body())
        slow = []
        with Connection() as established, contextlib.ExitStack() as stack:
            for turn in range(STORM):
                one = socket.socket()
                stack.callback(one.close)
                one.settimeout(native.TIMEOUT_SECONDS)
                one.connect((native.HOST, native.PORT))
                # A third says nothing, a third begins to, and a third is in earnest.
                one.sendall([b"", greeting[:7], greeting][turn % 3])
                slow.append(one)
                if turn % 50 == 0:
                    self.assert_is_served(established)
            # Who is in earnest comes in between those who are not, once their time is over.
            for one in slow[2::3]:
                one.settimeout(4 * native.TIMEOUT_SECONDS)
                answer = one.recv(100)
                self.assertEqual(answer[4:5], bytes([READY]), "a client that shakes hands becomes ready")
            self.assert_is_served(established)

    def test_clients_that_say_nothing_make_room_for_others(self):
        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(Connection(started=False)) for _ in range(700)]
            with Connection() as one:
                self.assert_is_served(one)
            # The first of them were closed for it.
            silent[0].socket.settimeout(native.TIMEOUT_SECONDS)
            self.assertIsNone(silent[0].read())

    def test_idle_connections_take_little(self):
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(Connection(4)) for _ in range(200)]
            for c in connections:
                self.assert_is_served(c)
            before = rss_kib(self.node)
            connections += [stack.enter_context(Connection(4)) for _ in range(STORM - 200)]
            for c in connections:
                c.ask(OPTIONS)
            each = (rss_kib(self.node) - before) * 1024 / (STORM - 200)
            print(f"        {each:.0f} bytes of memory for each idle connection", flush=True)
            # The aim is 2 KiB; a batch of so few may have to pay for a table that has just grown.
            self.assertLess(each, 2560)


class FewDescriptors(NodeTest):
    SHARDS = 1

    def test_connections_leave_descriptors_to_files(self):
        before = resource.prlimit(self.node.pid(), resource.RLIMIT_NOFILE)
        limit = self.node.open_files() + 100
        with Connection() as established, contextlib.ExitStack() as stack:
            resource.prlimit(self.node.pid(), resource.RLIMIT_NOFILE, (limit, before[1]))
            answered = 0
            for _ in range(limit):
                one = stack.enter_context(Connection(started=False))
                with contextlib.suppress(ConnectionError):
                    one.raw(frame(4, OPTIONS))
                    answered += one.read() is not None
            self.assertLess(answered, limit // 4 * 3, "a quarter is left")
            self.assertGreater(answered, limit // 4, "and no more than that")
            # Files of the schema, of the log and of a table can be made.
            established.query("CREATE KEYSPACE few WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
            established.query("CREATE TABLE few.t (k int PRIMARY KEY)")
            established.query("INSERT INTO few.t (k) VALUES (1)")
            established.query("TRUNCATE few.t")
            self.assertEqual(established.query("SELECT k FROM few.t"), [])
        self.assertIn("raise its limit (ulimit -n)", self.node.log())
        resource.prlimit(self.node.pid(), resource.RLIMIT_NOFILE, before)


class PerAddress(NodeTest):
    CONFIG = "native_transport_max_concurrent_connections_per_ip: 6\n"
    SHARDS = 2

    def test_connections_above_the_limit_of_an_address_are_closed(self):
        with contextlib.ExitStack() as stack:
            for _ in range(6):
                stack.enter_context(Connection())
            with Connection(started=False) as one_more:
                with contextlib.suppress(ConnectionError):
                    one_more.raw(frame(4, OPTIONS))
                self.assertIsNone(one_more.read())
        self.assertIn(
            "Exceeded maximum native connection limit per ip of 6 by using 7 connections "
            "(see native_transport_max_concurrent_connections_per_ip)",
            self.node.log(),
        )
        for _ in range(2_000):
            if self.node.open_files() < 100 and self.answers():
                return
        self.fail("no place became free")

    def answers(self):
        with Connection(started=False) as c:
            with contextlib.suppress(ConnectionError):
                c.raw(frame(4, OPTIONS))
            return c.read() is not None

    def assert_healthy(self):
        for _ in range(2_000):
            if self.answers():
                return
        self.fail("no place became free")


class Memory(NodeTest):
    CONFIG = "commitlog_sync: batch\nnative_transport_max_request_data_in_flight: 1MiB\n"
    SHARDS = 1

    @classmethod
    def prepare_data(cls):
        with Connection() as c:
            c.query("CREATE KEYSPACE storm WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
            c.query("CREATE TABLE storm.t (k int PRIMARY KEY, v blob)")

    def outcomes(self, options, version=4):
        """Writes of 300 KB on ten connections, eight at once on each: how many were done, and what the errors said."""
        done, refused, count = 0, [], 8
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(Connection(version, started=False)) for _ in range(10)]
            for c in connections:
                self.assertEqual(c.ask(STARTUP, native.startup_body(**options))[1], READY)
            for c, ids in [(c, c.prepare("INSERT INTO storm.t (k, v) VALUES (?, ?)")) for c in connections]:
                values = [struct.pack(">i", 1), bytes(300_000)]
                c.send(b"".join(frame(version, EXECUTE, c.execute_body(ids, values), stream) for stream in range(count)))
            for c in connections:
                for _ in range(count):
                    _, opcode, body, _ = c.read()
                    if opcode == ERROR:
                        refused.append(error_of(body))
                    else:
                        self.assertEqual(opcode, RESULT)
                        done += 1
        return done, refused

    def test_requests_wait_for_memory_and_are_all_carried_out(self):
        self.assertEqual(self.outcomes({}), (80, []))

    def test_who_wants_to_be_told_of_overload_is(self):
        done, refused = self.outcomes({"THROW_ON_OVERLOAD": "1"})
        self.assertGreaterEqual(done, 1)
        for code, message in refused:
            self.assertEqual(code, OVERLOADED, message)
            self.assertIn("Request breached limit on bytes in flight.", message)
