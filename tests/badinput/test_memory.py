"""Requests that ask for more memory than the node has: each fails by itself, with a code, and others are served meanwhile."""

import os
import socket
import struct
import threading

import native
from native import BATCH, ERROR, INVALID, OVERLOADED, QUERY, RESULT, Connection, Refused, frame, query_body
from node import Node, NodeTest

MIB = 1 << 20
ROWS = 100
ALL_ROWS = "SELECT v FROM memory.wide WHERE p = 1"


def integer(number):
    return struct.pack(">i", number)


def outcome(statement, page_size=None):
    """Opcode and length of an answer, which is read to nowhere; of an error its code and text."""
    with Connection(timeout=60) as c:
        c.raw(frame(4, QUERY, query_body(4, statement, page_size=page_size)))
        head = c.socket.recv(9, socket.MSG_WAITALL)
        left = struct.unpack(">I", head[5:9])[0]
        if head[4] == ERROR:
            return ERROR, *native.error_of(c.socket.recv(left, socket.MSG_WAITALL))
        length, buffer = left, bytearray(MIB)
        while left:
            got = c.socket.recv_into(buffer, min(left, len(buffer)))
            assert got, f"the node closed with {left} of {length} bytes to come"
            left -= got
        return head[4], length


class Memory(NodeTest):
    """One shard with 64 MiB and 100 MiB of data: a third of it at a time is more than it has for answers."""

    # Only memory decides here, whatever else the machine's disk is at.
    CONFIG = (
        "batch_size_fail_threshold: 1GiB\n"
        "read_request_timeout: 60s\nrange_request_timeout: 60s\nwrite_request_timeout: 60s\n"
    )
    SHARDS = 1
    RSS_GROWTH_MB = 320  # what the allocator keeps for a while of requests and answers
    PEAK_MB = 512  # most at any moment of a test, above what it began with: a row of 500 values of 1 MiB does not fit

    @classmethod
    def setUpClass(cls):
        cls.node = Node(cls.__name__, cls.CONFIG, cls.SHARDS, memory="64M").start()
        cls.addClassCleanup(cls.node.kill)
        cls.prepare_data()
        cls.rss_before_mb = cls.node.rss_mb()

    @classmethod
    def prepare_data(cls):
        with Connection(timeout=60) as c:
            c.query("CREATE KEYSPACE memory WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
            c.query("CREATE TABLE memory.t (k int PRIMARY KEY, v blob)")
            c.query("CREATE TABLE memory.wide (p int, c int, v blob, PRIMARY KEY (p, c))")
            c.query("CREATE TABLE memory.sets (k int PRIMARY KEY, s set<int>)")
            for key in range(ROWS):
                values = [integer(1), integer(key), os.urandom(MIB)]
                c.query("INSERT INTO memory.wide (p, c, v) VALUES (?, ?, ?)", values)
            for key in range(40):
                c.query("INSERT INTO memory.t (k, v) VALUES (?, ?)", [integer(key), os.urandom(MIB)])

    def setUp(self):
        self.forget_peak()
        self.peak_before_mb = self.node.rss_mb()
        self.asked, self.over = 0, threading.Event()
        self.other = threading.Thread(target=self.ask_meanwhile)
        self.other.start()

    def forget_peak(self):
        """Has the kernel look for the peak of the node's memory anew."""
        with open(f"/proc/{self.node.pid()}/clear_refs", "w") as file:
            file.write("5")

    def peak_mb(self):
        with open(f"/proc/{self.node.pid()}/status") as status:
            return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM:"))

    def ask_meanwhile(self):
        """Small requests of somebody else: every one is answered."""
        with Connection(timeout=60) as c:
            while not self.over.is_set():
                key = self.asked % 40
                assert len(c.query("SELECT k FROM memory.t WHERE k = ?", [integer(key)])) == 1
                c.query("INSERT INTO memory.sets (k) VALUES (?)", [integer(key)])
                self.asked += 1

    def tearDown(self):
        self.over.set()
        self.other.join(60)
        self.assertFalse(self.other.is_alive())
        asked = self.asked
        with Connection() as c:  # and after it
            self.assertEqual(len(c.query("SELECT k FROM memory.t WHERE k = 7")), 1)
        self.assertGreater(asked, 0, "others were served meanwhile")
        self.assertLess(self.peak_mb() - self.peak_before_mb, self.PEAK_MB, "the peak of memory")
        super().tearDown()

    def too_large(self, statement, page_size=None):
        kind, *rest = outcome(statement, page_size)
        self.assertEqual(kind, ERROR, statement[:80])
        self.assertEqual(rest[0], INVALID, rest)
        self.assertIn("ask for it in pages", rest[1])

    def test_answers_larger_than_the_memory_for_them_are_refused(self):
        keys = ", ".join(map(str, range(40)))
        for statement in (
            ALL_ROWS,
            "SELECT v FROM memory.wide",
            f"SELECT v FROM memory.t WHERE k IN ({keys})",
            "SELECT v FROM memory.wide WHERE p IN (1, 2) ORDER BY c DESC",
            "SELECT p, c, max(v) FROM memory.wide WHERE p = 1 GROUP BY p, c",
            "SELECT JSON v FROM memory.wide WHERE p = 1",
        ):
            with self.subTest(statement[:60]):
                self.too_large(statement)

    def test_a_row_that_names_its_value_often_is_refused(self):
        for value in ("v", "toJson(v)", "min(v)", "max(v)"):
            named = ", ".join(f"{value} AS a{at}" for at in range(500))
            with self.subTest(value):
                self.too_large(f"SELECT {named} FROM memory.t WHERE k = 1", page_size=10)

    def test_pages_end_by_their_bytes_whatever_the_client_asks_for(self):
        kind, length = outcome(ALL_ROWS, page_size=2**31 - 1)
        self.assertEqual(kind, RESULT)
        self.assertLess(length, 4 * MIB)

    def test_many_large_answers_at_once_share_the_memory_for_them(self):
        outcomes = []

        def ask(lowest):
            outcomes.append(outcome(f"{ALL_ROWS} AND c >= {lowest} AND c < {lowest + 20}"))

        threads = [threading.Thread(target=ask, args=(at * 4,)) for at in range(16)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(90)
        self.assertEqual(len(outcomes), 16)
        for kind, *rest in outcomes:
            if kind == ERROR:
                self.assertEqual(rest[0], OVERLOADED, rest)
                self.assertIn("No memory for an answer", rest[1])
            else:
                self.assertGreater(rest[0], 20 * MIB)
        kind, length = outcome(f"{ALL_ROWS} AND c < 20")
        self.assertEqual((kind, length > 20 * MIB), (RESULT, True), "and afterwards one has it again")

    def refused(self, code, run):
        with self.assertRaises(Refused) as caught:
            run()
        self.assertEqual(caught.exception.code, code, caught.exception)

    def test_requests_above_the_frame_limit_are_refused_and_the_connection_goes_on(self):
        with Connection(timeout=60) as c:
            for mib in (17, 64, 250):
                write = [integer(1), bytes(mib * MIB)]
                self.refused(INVALID, lambda write=write: c.query("INSERT INTO memory.t (k, v) VALUES (?, ?)", write))
            self.assertEqual(len(c.query("SELECT k FROM memory.t WHERE k = 1")), 1)

    def test_mutations_above_their_limit_are_refused(self):
        elements = struct.pack(">i", 1_000_000) + b"".join(native.value(integer(at)) for at in range(1_000_000))
        with Connection(timeout=60) as c:
            run = "INSERT INTO memory.sets (k, s) VALUES (?, ?)"
            self.refused(INVALID, lambda: c.query(run, [integer(1), elements]))
            self.refused(INVALID, lambda: c.query(run, [integer(1), struct.pack(">i", 2**31 - 1)]))

    def test_more_writes_at_once_than_memory_end_with_a_result_or_an_overload(self):
        outcomes = []

        def write(key):
            with Connection(timeout=60) as c:
                try:
                    c.query("INSERT INTO memory.t (k, v) VALUES (?, ?)", [integer(1000 + key), os.urandom(8 * MIB)])
                    outcomes.append(None)
                except Refused as refusal:
                    outcomes.append(refusal.code)

        threads = [threading.Thread(target=write, args=(key,)) for key in range(16)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(90)
        self.assertEqual(len(outcomes), 16)
        self.assertIn(None, outcomes)
        self.assertLessEqual(set(outcomes), {None, OVERLOADED, native.WRITE_TIMEOUT})
        with Connection(timeout=60) as c:  # the memory is there again
            c.query("INSERT INTO memory.t (k, v) VALUES (?, ?)", [integer(1), os.urandom(8 * MIB)])

    def test_batches_as_large_as_a_frame(self):
        insert = native.long_text("INSERT INTO memory.t (k, v) VALUES (?, ?)")
        writes = b"".join(
            b"\0" + insert + struct.pack(">H", 2) + native.value(integer(key)) + native.value(bytes(MIB)) for key in range(15)
        )
        with Connection(timeout=60) as c:
            for kind in (0, 1):
                body = struct.pack(">BH", kind, 15) + writes + struct.pack(">HB", 1, 0)
                try:
                    self.assertEqual(c.ask(BATCH, body)[1], RESULT)
                except Refused as refusal:
                    self.assertIn(refusal.code, (INVALID, OVERLOADED, native.WRITE_TIMEOUT), refusal)
