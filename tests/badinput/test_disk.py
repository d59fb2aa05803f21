"""A disk that lies or is full: torn and corrupt logs, damaged table files, no space."""

import contextlib
import resource
import shutil
import struct
import subprocess
import time
import unittest
import zlib

import native
from native import READ_FAILURE, Connection, Refused
from node import RUNS, Node

KEYSPACE = "CREATE KEYSPACE d WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
ROWS = 40
HEADER_BYTES = 4096
MUTATION = 1
# Written over and over, to fill the disk; what it holds does not matter.
BALLAST_KEY = 500_000


def text(key):
    return f"value {key} " * 30


class Log:
    """A commit-log segment, as docs/formats/commitlog.md has it."""

    def __init__(self, path):
        self.path, self.bytes = path, bytearray(path.read_bytes())
        shard, number, salt = struct.unpack_from("<IQI", self.bytes, 12)
        self.seed = max(1, zlib.crc32(struct.pack("<QII", number, salt, shard)))

    def entries(self):
        """Offset, kind and payload length of each entry."""
        at, found = HEADER_BYTES, []
        while at + 16 <= len(self.bytes):
            seed, length = struct.unpack_from("<II", self.bytes, at)
            if seed != self.seed:
                break
            found.append((at, self.bytes[at + 8], length))
            at = (at + 16 + length + 7) // 8 * 8
        return found

    def save(self):
        self.path.write_bytes(self.bytes)


class DiskTest(unittest.TestCase):
    def started(self, name, config="", **options):
        node = Node(name, config, **options)
        self.addCleanup(shutil.rmtree, node.work, ignore_errors=True)
        self.addCleanup(node.kill)
        return node.start()

    def fill(self, *tables, rows=ROWS):
        with Connection() as c:
            with contextlib.suppress(Refused):
                c.query(KEYSPACE)
            for table in tables:
                c.query(f"CREATE TABLE d.{table} (k int PRIMARY KEY, v text)")
                for key in range(rows):
                    c.query(f"INSERT INTO d.{table} (k, v) VALUES ({key}, '{text(key)}')")

    def keys(self, table):
        """Keys with the value they should have."""
        with Connection() as c:
            rows = c.query(f"SELECT k, v FROM d.{table}")
        found = {struct.unpack(">i", key)[0]: value.decode() for key, value in rows}
        found.pop(BALLAST_KEY, None)
        for key, value in found.items():
            self.assertEqual(value, text(key))
        return sorted(found)


class CommitLog(DiskTest):
    def killed(self, name):
        """A node that was killed with ROWS writes in its log only, and the segment they are in."""
        node = self.started(name, "commitlog_sync: batch\n")
        self.fill("t")
        node.kill()
        logs = [Log(path) for path in sorted(node.data.glob("commitlog/shard-0/*.log"))]
        log = max(logs, key=lambda log: len(log.entries()))
        mutations = [entry for entry in log.entries() if entry[1] == MUTATION and entry[2] > 200]
        self.assertEqual(len(mutations), ROWS)
        return node, log, mutations

    def test_a_torn_tail_is_cut_with_a_line_in_the_log(self):
        node, log, mutations = self.killed("torn")
        offset, _, length = mutations[-1]
        log.bytes[offset + 16 + length // 2 :] = bytes(len(log.bytes) - offset - 16 - length // 2)
        log.save()
        node.start()
        self.assertEqual(self.keys("t"), list(range(ROWS - 1)))
        lines = [line for line in node.log().splitlines() if str(log.path) in line and f"{offset}" in line]
        self.assertTrue(lines, "a line names segment and offset: " + node.log())
        self.fill("after")
        node.kill()
        node.start()
        self.assertEqual(self.keys("after"), list(range(ROWS)))
        self.assertEqual(self.keys("t"), list(range(ROWS - 1)))
        node.stop()

    def test_a_corrupt_middle_stops_the_start_and_says_what_to_do(self):
        node, log, mutations = self.killed("corrupt")
        offset, _, length = mutations[ROWS // 2]
        log.bytes[offset + 16 + length // 2] ^= 0x40
        log.save()
        before = bytes(log.bytes)
        for _ in range(2):  # a refused start changes nothing
            said = node.start_fails()
            for part in (str(log.path), str(offset), "commitlog_replay_ignore_errors"):
                self.assertIn(part, said)
            self.assertEqual(log.path.read_bytes(), before)
        node.configure("commitlog_sync: batch\ncommitlog_replay_ignore_errors: true\n")
        node.start()
        self.assertEqual(self.keys("t"), [key for key in range(ROWS) if key != ROWS // 2])
        self.assertIn(f"{offset}", node.log())
        node.stop()

    def test_a_damaged_header_stops_the_start(self):
        node, log, _ = self.killed("header")
        log.bytes[20] ^= 1
        log.save()
        self.assertIn(str(log.path), node.start_fails())

    def test_a_mutation_longer_than_a_segment_survives_a_kill(self):
        node = self.started("long", "commitlog_segment_size: 1MiB\nmax_mutation_size: 8MiB\n")
        self.fill("t", rows=1)
        value = b"".join(b"%07d " % number for number in range(1 << 19))  # 4 MiB
        with Connection(timeout=60) as c:
            ids = c.prepare("INSERT INTO d.t (k, v) VALUES (?, ?)")
            c.ask(native.EXECUTE, c.execute_body(ids, [struct.pack(">i", 1), value]))
            with self.assertRaisesRegex(Refused, "Rejected an oversized mutation .*/8388608"):
                c.ask(native.EXECUTE, c.execute_body(ids, [struct.pack(">i", 2), value * 2]))
            c.query("INSERT INTO d.t (k, v) VALUES (3, 'behind')")
        node.kill()
        node.start()
        with Connection(timeout=60) as c:
            self.assertEqual(c.query("SELECT v FROM d.t WHERE k = 1"), [[value]])
            self.assertEqual(c.query("SELECT v FROM d.t WHERE k = 2"), [])
            self.assertEqual(c.query("SELECT v FROM d.t WHERE k = 3"), [[b"behind"]])
        node.stop()

    def test_files_that_are_no_segments_are_left_alone(self):
        node, _, _ = self.killed("strange")
        folder = node.data / "commitlog/shard-0"
        for name, content in (("notes.txt", b"hello"), ("77.log", b""), ("78.log", bytes(100)), ("x.log", b"x" * 9000)):
            (folder / name).write_bytes(content)
        node.start()
        self.assertEqual(self.keys("t"), list(range(ROWS)))
        self.assertEqual((folder / "notes.txt").read_bytes(), b"hello")
        node.stop()


class CommitFailurePolicy(DiskTest):
    """A disk that refuses writes, by a limit on the size of the files of a running node: EFBIG for every one."""

    def insert(self, key):
        with Connection(timeout=60) as c:
            c.query(f"INSERT INTO d.t (k, v) VALUES ({key}, '{text(key)}')")

    def until(self, what, happened):
        until = time.monotonic() + 60
        while not happened():
            self.assertLess(time.monotonic(), until, what)

    def is_closed(self):
        try:
            with Connection(timeout=5):
                return False
        except OSError:
            return True

    def check(self, policy):
        node = self.started(f"policy-{policy}", f"commitlog_sync: batch\ncommit_failure_policy: {policy}\n")
        self.fill("t")
        limits = resource.prlimit(node.pid(), resource.RLIMIT_FSIZE)
        resource.prlimit(node.pid(), resource.RLIMIT_FSIZE, (1, limits[1]))
        # Where clients are sent away they may be so before the answer.
        with self.assertRaises((Refused, OSError)):
            self.insert(ROWS)
        expected = list(range(ROWS))
        if policy == "die":
            self.until("the node ends", lambda: not node.is_alive())
        elif policy == "stop":
            self.until("clients are sent away", self.is_closed)
            self.assertTrue(node.is_alive())
        else:
            with self.assertRaises(Refused) as refused:
                self.insert(ROWS)
            self.assertEqual(refused.exception.code, native.WRITE_FAILURE)
            self.assertEqual(self.keys("t"), expected, "reads go on")
        if node.is_alive():
            resource.prlimit(node.pid(), resource.RLIMIT_FSIZE, limits)
        if policy == "ignore":
            def written():
                with contextlib.suppress(Refused):
                    self.insert(ROWS)
                    return True
                return False
            self.until("writes go on when the disk takes them again", written)
            expected.append(ROWS)
        if policy == "stop_commit":
            def told():
                with self.assertRaises(Refused):
                    self.insert(ROWS)
                return "writes fail until a restart" in node.log()
            # What the node said before is lost: its log is a file too.
            self.until("the node says that writes are stopped", told)
            self.assertEqual(self.keys("t"), expected, "reads go on")
        node.kill()
        node.start()
        self.assertEqual(self.keys("t"), expected, "what was acknowledged, no more")
        self.insert(ROWS + 1)
        self.assertEqual(self.keys("t"), [*expected, ROWS + 1])
        node.stop()

    def test_ignore(self):
        self.check("ignore")

    def test_stop_commit(self):
        self.check("stop_commit")

    def test_stop(self):
        self.check("stop")

    def test_die(self):
        self.check("die")


class TableFiles(DiskTest):
    def damaged(self, component, damage):
        """A node with tables `good` and `hurt` in files, one component of each of `hurt`'s files damaged."""
        node = self.started("table-" + component)
        self.fill("good", "hurt")
        node.stop()
        paths = sorted(node.data.glob(f"data/d/hurt-*/*{component}"))
        self.assertTrue(paths, "a stop leaves table files")
        for path in paths:
            content = bytearray(path.read_bytes())
            path.write_bytes(damage(content))
        node.start()
        return node, paths

    def check(self, component, damage):
        with self.subTest(component=component):
            node, paths = self.damaged(component, damage)
            self.assertEqual(self.keys("good"), list(range(ROWS)), "other tables serve")
            for _ in range(2):  # damage stays: no answer is ever without a row
                for key in range(ROWS):
                    self.right_or_refused(key)
            log = node.log()
            for path in paths:
                stem = path.name.rsplit("-", 1)[0]
                self.assertTrue([line for line in log.splitlines() if stem in line and "hurt-" in line and
                                 ("corrupt" in line or "set aside" in line)], f"{stem} is named: {log}")
            with Connection() as c:  # and it takes writes
                c.query(f"INSERT INTO d.hurt (k, v) VALUES (1000, '{text(1000)}')")
            self.right_or_refused(1000)
            node.stop()
            node.start()
            self.assertEqual(self.keys("good"), list(range(ROWS)))
            self.right_or_refused(1000)
            with Connection() as c:  # a truncation removes damaged files too
                c.query("TRUNCATE d.hurt")
                c.query(f"INSERT INTO d.hurt (k, v) VALUES (1000, '{text(1000)}')")
            self.assertEqual(self.keys("hurt"), [1000])
            node.stop()
            node.start()
            self.assertEqual(self.keys("hurt"), [1000])
            node.stop()

    def right_or_refused(self, key):
        with Connection() as c:
            try:
                self.assertEqual(c.query(f"SELECT v FROM d.hurt WHERE k = {key}"), [[text(key).encode()]])
            except Refused as refused:
                self.assertEqual(refused.code, READ_FAILURE, refused)

    def test_policies_at_the_start(self):
        node, paths = self.damaged("Statistics.db", lambda content: b"")
        node.stop()
        for policy in ("die", "stop_paranoid", "stop", "ignore", "best_effort"):
            with self.subTest(policy=policy):
                node.configure(f"disk_failure_policy: {policy}\n")
                if policy not in ("ignore", "best_effort"):
                    said = node.start_fails()
                    self.assertTrue([path for path in paths if path.name in said], said)
                    continue
                node.start()
                self.assertEqual(self.keys("good"), list(range(ROWS)))
                if policy == "ignore":
                    self.assertRaises(Refused, self.keys, "hurt")
                else:
                    self.assertEqual(self.keys("hurt"), [], "what it had is set aside")
                node.stop()

    @staticmethod
    def flipped(content):
        for at in range(len(content) // 3, len(content), max(1, len(content) // 7)):
            content[at] ^= 0xA5
        return content

    def test_data(self):
        self.check("Data.db", self.flipped)

    def test_data_cut(self):
        self.check("Data.db", lambda content: content[: len(content) // 2])

    def test_index(self):
        self.check("Index.db", self.flipped)

    def test_statistics(self):
        # The table of contents: the format has no checksum over the rest, and a wrong histogram is no harm.
        self.check("Statistics.db", lambda content: bytes([content[0] ^ 0xFF, *content[1:]]))

    def test_compression(self):
        self.check("CompressionInfo.db", lambda content: content[:20])

    def test_empty_components(self):
        for component in ("Statistics.db", "Data.db", "Index.db"):
            self.check(component, lambda content: b"")

    def test_filters_and_summaries_can_be_made_anew_or_are_reported(self):
        for component in ("Filter.db", "Summary.db"):
            with self.subTest(component=component):
                node, paths = self.damaged(component, lambda content: b"\xff" * len(content))
                self.assertEqual(self.keys("good"), list(range(ROWS)))
                self.assertEqual(self.keys("hurt"), list(range(ROWS)), "the index says all that was in it")
                for path in paths:
                    self.assertIn(path.name, node.log(), "the damage is told")
                node.stop()


class FullDisk(DiskTest):
    CONFIG = (
        "commitlog_sync: batch\ncommitlog_segment_size_in_mb: 2\ncommitlog_total_space_in_mb: 12\n"
        "write_request_timeout: 1000ms\n"
        # No mark: writes are refused when what memory and log need is all there is.
        "critical_disk_utilization_level: 1.0\n"
    )

    def mounted(self):
        work = RUNS / "full-disk"
        shutil.rmtree(work / "data", ignore_errors=True)
        (work / "disk").mkdir(parents=True, exist_ok=True)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", work / "disk"],
                                 capture_output=True, text=True)
        if mounted.returncode:
            self.skipTest(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", work / "disk"], capture_output=True)
        return work / "disk"

    def test_writes_fail_cleanly_reads_go_on_and_writes_recover(self):
        disk = self.mounted()
        node = self.started("full", self.CONFIG + f"commitlog_directory: {disk}/log\ndata_file_directories: [{disk}/data]\n")
        self.fill("t")
        ballast = disk / "ballast"
        with open(ballast, "wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(1 << 16))
        failed, written = 0, []
        with Connection(timeout=60) as c:
            ids = c.prepare("INSERT INTO d.t (k, v) VALUES (?, ?)")
            for key in range(1000, 5000):
                body = c.execute_body(ids, [struct.pack(">i", key), text(key).encode()])
                try:
                    c.ask(native.EXECUTE, body)
                    written.append(key)
                except Refused as refused:
                    self.assertIn(refused.code, (native.OVERLOADED, native.WRITE_FAILURE, native.WRITE_TIMEOUT,
                                                 native.SERVER), refused)
                    failed += 1
                    if failed == 20:
                        break
                if key % 100 == 0:
                    self.assertTrue(node.is_alive())
            self.grow(c, node)
        self.assertEqual([k for k in self.keys("t") if k < ROWS], list(range(ROWS)), "reads go on")
        # What was left of the space goes too.
        with open(disk / "more", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 12))
        node.kill()
        node.start()
        found = self.keys("t")
        self.assertEqual([key for key in [*range(ROWS), *written] if key not in found], [], "a start on a full disk reads")
        (disk / "more").unlink()
        ballast.unlink()
        with Connection(timeout=60) as c:
            # The node looks four times a second whether there is space.
            until = time.monotonic() + 60
            while True:
                try:
                    c.query(f"INSERT INTO d.t (k, v) VALUES (9000, '{text(9000)}')")
                    break
                except Refused as refused:
                    self.assertLess(time.monotonic(), until, f"writes do not recover: {refused}")
        node.kill()
        node.start()
        found = self.keys("t")
        self.assertEqual([key for key in [*range(ROWS), *written, 9000] if key not in found], [], "nothing is lost")
        node.stop()

    def grow(self, c, node):
        """Large writes until the disk refuses them: then it is really full."""
        ids = c.prepare("INSERT INTO d.t (k, v) VALUES (?, ?)")
        refused = 0
        for _ in range(200):
            try:
                c.ask(native.EXECUTE, c.execute_body(ids, [struct.pack(">i", BALLAST_KEY), text(1).encode() * 1500]))
            except Refused:
                refused += 1
                if refused == 3:
                    break
        self.assertEqual(refused, 3, "a full disk refuses writes")
        self.assertTrue(node.is_alive())
