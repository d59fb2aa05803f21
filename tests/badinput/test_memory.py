"""Requests that ask for more memory than the node has: each fails by itself, with a code, and others are served meanwhile."""

import os
import socket
import struct
import threading
import time
import unittest

import native
from native import BATCH, ERROR, INVALID, OVERLOADED, PREPARE, QUERY, RESULT, Connection, Refused, frame, query_body
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


class Loads:
    """What clients may do at once, with less memory than it would take: each is answered, or told OVERLOADED.

    The goal: at any moment the node holds at most `--memory`, PEAK_MIB and 2 KiB for each connection; 10 s after the load at
    most `--memory` and AFTER_MIB. With 64 MiB, 400 clients that read nothing and hungry functions take up to 141 MiB where
    other loads went before (alone 105 and 67): the rest is given MORE_MIB.
    """

    MORE_MIB = 0

    MEMORY_MIB = None
    CONFIG = "read_request_timeout: 60s\nrange_request_timeout: 60s\nwrite_request_timeout: 60s\nuser_defined_functions_enabled: true\n"
    SHARDS = 1
    PEAK_MIB, AFTER_MIB, AFTER_SECONDS = 64, 32, 10
    ROW_BYTES, ROWS = 2_700_000, 24

    @classmethod
    def setUpClass(cls):
        cls.node = Node(cls.__name__, cls.CONFIG, cls.SHARDS, memory=f"{cls.MEMORY_MIB}M").start()
        cls.addClassCleanup(cls.node.kill)
        with Connection(timeout=60) as c:
            c.query("CREATE KEYSPACE loads WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
            c.query("CREATE TABLE loads.t (k int PRIMARY KEY, v blob)")
            c.query("CREATE TABLE loads.small (k int PRIMARY KEY, v blob)")
            c.query("INSERT INTO loads.small (k, v) VALUES (1, 0x01)")
            # Fills 10 MiB of its sandbox, then stays in it for many slices.
            hungry = "local t = {} for i = 1, 8 do t[i] = string.rep('x' .. v .. i, 1 << 18) .. string.rep('y', 1 << 19) end" + \
                " local n = 0 for i = 1, 200000 do n = n + 1 end return #t + n"
            c.query(f"CREATE FUNCTION loads.hungry (v int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS $${hungry}$$")
            for key in range(cls.ROWS):
                c.query("INSERT INTO loads.t (k, v) VALUES (?, ?)", [integer(key), os.urandom(cls.ROW_BYTES)])

    @classmethod
    def tearDownClass(cls):
        NodeTest.tearDownClass.__func__(cls)

    def setUp(self):
        self.peak_mib, self.over, self.asked, self.trouble = 0, threading.Event(), 0, []
        self.others = [threading.Thread(target=self.watch), threading.Thread(target=self.ask_meanwhile)]
        for other in self.others:
            other.start()

    def watch(self):
        while not self.over.is_set():
            self.peak_mib = max(self.peak_mib, self.node.rss_mb())
            time.sleep(0.003)

    def ask_meanwhile(self):
        """Small requests of somebody else: every one is answered."""
        try:
            with Connection(timeout=60) as c:
                while not self.over.is_set():
                    assert c.query("SELECT v FROM loads.small WHERE k = 1") == [[b"\1"]]
                    self.asked += 1
        except Exception as error:  # told by the test that it happened in
            self.trouble.append(error)

    def run_load(self, connections, one):
        """Runs `one` for each connection in a thread of its own, then holds the node to what it promises."""
        outcomes, threads = [], []
        asked = self.asked

        def run(at):
            try:
                outcomes.append(one(at))
            except Exception as error:
                outcomes.append(error)

        for at in range(connections):
            threads.append(threading.Thread(target=run, args=(at,)))
            threads[-1].start()
        for thread in threads:
            thread.join(180)
        asked = self.asked - asked
        deadline = time.monotonic() + self.AFTER_SECONDS
        after = self.node.rss_mb()
        while after > self.MEMORY_MIB + self.AFTER_MIB and time.monotonic() < deadline:
            time.sleep(0.2)
            after = self.node.rss_mb()
        self.over.set()
        for other in self.others:
            other.join(60)
        print(f"        {self.id().split('.', 1)[1]}: peak {self.peak_mib} MiB, then {after} MiB of {self.MEMORY_MIB} MiB; "
              f"{asked} others", flush=True)
        self.assertTrue(self.node.is_alive(), self.node.log()[-2000:])
        self.assertEqual(self.trouble, [], "others are served")
        self.assertGreater(asked, 0, "others are served meanwhile")
        self.assertEqual(len(outcomes), connections)
        bad = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        self.assertEqual(bad, [])
        self.assertLessEqual(self.peak_mib, self.MEMORY_MIB + self.PEAK_MIB + self.MORE_MIB + 2 * connections / 1024, "MiB at most")
        self.assertLessEqual(after, self.MEMORY_MIB + self.AFTER_MIB, "MiB afterwards")
        return outcomes

    def reads(self, connection, count, seed):
        """Frames of so many reads of a large row."""
        return b"".join(
            frame(connection.version, QUERY, query_body(connection.version, f"SELECT v FROM loads.t WHERE k = {(seed + at) % self.ROWS}"), at)
            for at in range(count)
        )

    def answers(self, connection, count):
        """How many of so many answers are results; the rest say OVERLOADED. Read to nowhere."""
        results, buffer = 0, bytearray(MIB)
        for _ in range(count):
            head = connection.socket.recv(9, socket.MSG_WAITALL)
            assert len(head) == 9, "the node closed"
            left = struct.unpack(">I", head[5:9])[0]
            if head[4] == ERROR:
                body = connection.socket.recv(left, socket.MSG_WAITALL)
                if not head[1] & 1:
                    code, text = native.error_of(body)
                    assert code == OVERLOADED, (code, text)
                continue
            results += 1
            while left:
                got = connection.socket.recv_into(buffer, min(left, len(buffer)))
                assert got, "the node closed"
                left -= got
        return results

    def check_pipelined(self, **options):
        def one(at):
            with Connection(timeout=120, **options) as c:
                c.raw(self.reads(c, 20, at))
                return self.answers(c, 20)

        self.assertGreater(sum(self.run_load(40, one)), 0, "some are answered")

    def test_pipelined_reads_of_large_rows(self):
        self.check_pipelined()

    def test_pipelined_reads_of_large_rows_that_go_out_compressed(self):
        self.check_pipelined(compression="lz4")

    def test_pipelined_reads_of_large_rows_in_segments(self):
        def one(at):
            with Connection(version=5, timeout=120) as c:
                c.raw(b"".join(native.segment(self.reads(c, 5, at + turn)) for turn in range(0, 20, 5)))
                # Segments are read to nowhere until nothing comes for a while: what they hold is checked elsewhere.
                c.socket.settimeout(3)
                got, buffer = 0, bytearray(MIB)
                try:
                    while more := c.socket.recv_into(buffer):
                        got += more
                except TimeoutError:
                    pass
                return got

        self.assertGreater(sum(self.run_load(40, one)), self.ROW_BYTES)

    def test_clients_that_never_read_their_answers(self):
        begin = threading.Barrier(400)

        def one(at):
            with Connection(timeout=120, receive_bytes=4096) as c:
                begin.wait(60)
                c.raw(self.reads(c, 20, at))
                time.sleep(3)

        self.run_load(400, one)

    def test_clients_that_never_read_pages_nor_small_answers(self):
        def one(at):
            with Connection(timeout=120, receive_bytes=4096) as c:
                statement = "SELECT * FROM system_schema.columns"
                c.raw(b"".join(frame(4, QUERY, query_body(4, statement, page_size=5000), n) for n in range(60)))
                time.sleep(3)

        self.run_load(400, one)

    def test_hungry_functions(self):
        def one(at):
            with Connection(timeout=120) as c:
                try:
                    c.query("SELECT loads.hungry(k) FROM loads.small WHERE k = 1")
                except Refused as refusal:
                    return refusal.code, refusal.message
                return None

        self.assertIn(None, self.run_load(150, one))

    def test_long_requests_that_do_not_end(self):
        def one(at):
            with Connection(timeout=120) as c:
                body = query_body(4, "INSERT INTO loads.t (k, v) VALUES (?, ?)", [integer(at), bytes(8 * MIB)])
                c.socket.settimeout(3)
                try:
                    c.raw(frame(4, QUERY, body)[: 6 * MIB])
                except TimeoutError:
                    pass
                time.sleep(2)

        self.run_load(100, one)

    def test_long_writes(self):
        def one(at):
            with Connection(timeout=120) as c:
                try:
                    c.query("INSERT INTO loads.t (k, v) VALUES (?, ?)", [integer(1000 + at % 4), os.urandom(4 * MIB)])
                except Refused as refusal:
                    assert refusal.code in (OVERLOADED, native.WRITE_TIMEOUT), refusal
                    return None
                return at

        self.assertNotEqual(set(self.run_load(40, one)), {None})

    def test_long_statements_prepared_and_not(self):
        def one(at):
            with Connection(timeout=120) as c:
                for turn in range(4):
                    keys = ",".join(str(at * 1000 + turn + key) for key in range(20_000))
                    text = f"SELECT k FROM loads.small WHERE k IN ({keys})"
                    for opcode, body in ((PREPARE, native.long_text(text)), (QUERY, query_body(4, text))):
                        try:
                            c.ask(opcode, body)
                        except Refused as refusal:
                            assert refusal.code in (OVERLOADED, INVALID, native.WRITE_TIMEOUT), refusal

        self.run_load(40, one)


class Loads64(Loads, unittest.TestCase):
    MEMORY_MIB = 64
    MORE_MIB = 24


class Loads256(Loads, unittest.TestCase):
    MEMORY_MIB = 256


class Loads1024(Loads, unittest.TestCase):
    MEMORY_MIB = 1024
