"""Traces, the log of slow requests and the node's log, of one node with two shards whose log is JSON."""

import json
import shutil
import struct
import sys
import time
import unittest
import uuid

import native
from native import Connection
from node import Node
from test_admin import KEYSPACE, ask, ctl, metrics

PATIENCE_SECONDS = 20
TRACING, QUORUM = 2, 4
#: Fields of a line of the log.
FIELDS = {"time", "level", "shard", "area", "text", "fields"}


def until(what, check):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {PATIENCE_SECONDS} s")


def body(statement, consistency):
    return native.long_text(statement) + native.parameters(4, consistency=consistency)


def rows(c, statement, consistency=1):
    return native.rows_of(c.ask(native.QUERY, body(statement, consistency))[2])


def objects(c, statement):
    """Rows of a SELECT JSON."""
    return [json.loads(row[0]) for row in rows(c, statement)]


def is_traced(c, opcode, asked):
    """Whether the answer to a request has the id of a trace."""
    c.send(native.frame(4, opcode, asked))
    assert c._fill(9), "an answer"
    flags = c.received[1]
    assert c.read()[1] != native.ERROR
    return bool(flags & TRACING)


class Tracing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("tracing", "slow_query_log_timeout: 1ms\nlog_format: json\n", shards=2)
        cls.addClassCleanup(cls.node.kill)
        cls.node.start()
        with Connection() as c:
            c.query(KEYSPACE)
            c.query("CREATE TABLE a.t (k int PRIMARY KEY, v text)")
            for key in range(20):
                c.query(f"INSERT INTO a.t (k, v) VALUES ({key}, 'some text')")

    @classmethod
    def tearDownClass(cls):
        cls.node.kill()
        shutil.rmtree(cls.node.work, ignore_errors=True)

    def setUp(self):
        ask("/storage_service/trace_probability?probability=0", "POST")
        ask("/storage_service/slow_query?enable=false&fast=false&threshold=500000&ttl=86400", "POST")

    def lines(self):
        """The lines of the log: all but those that the starting script prints are JSON."""
        found = [json.loads(line) for line in self.node.log().splitlines() if line.startswith("{")]
        for line in found:
            self.assertLessEqual(set(line), FIELDS)
        return found

    def test_a_share_of_requests_is_traced_without_its_clients_knowing(self):
        self.assertEqual(ctl("gettraceprobability"), "Current trace probability: 0.0\n")
        for wrong in ("-0.1", "1.5", "half", "nan"):
            self.assertEqual(ask(f"/storage_service/trace_probability?probability={wrong}", "POST")[0], 400, wrong)
        with Connection() as c:
            [prepared] = c.prepare("SELECT v FROM a.t WHERE k = ?")
            [written] = c.prepare("INSERT INTO a.t (k, v) VALUES (?, 'chosen')")
            key = struct.pack(">i", 7)
            requests = [(native.EXECUTE, c.execute_body([prepared], [key])),
                        (native.EXECUTE, c.execute_body([written], [key])),
                        (native.QUERY, body("SELECT v FROM a.t WHERE k = 8", 1))]
            sessions = lambda: [session["parameters"] for session in objects(
                c, "SELECT JSON parameters FROM system_traces.sessions")]
            of_table = lambda: [found for found in sessions() if "a.t" in found["query"]]
            before = len(of_table())
            for request in requests:
                self.assertFalse(is_traced(c, *request))
            self.assertEqual(len(of_table()), before, "nothing is traced by default")
            ctl("settraceprobability", "1")
            self.assertEqual(ctl("gettraceprobability"), "Current trace probability: 1.0\n")
            shown = "SELECT JSON value FROM system.runtime_info WHERE \"group\" = 'trace_probability'"
            self.assertEqual(objects(c, shown), [{"value": "1"}])
            for request in requests:
                self.assertFalse(is_traced(c, *request), "the client did not ask")
            ctl("settraceprobability", "0")
            until("three traces", lambda: len(of_table()) == before + 3)
            values = [found.get("bound_var_0_k") for found in of_table()]
            self.assertGreaterEqual(values.count("7"), 2)
            chances = 1000
            ctl("settraceprobability", "0.1")
            for _ in range(chances):
                c.ask(*requests[0])
            ctl("settraceprobability", "0")
            until("some traces", lambda: len(of_table()) > before + 3 + 40)
            time.sleep(0.2)
            self.assertLess(len(of_table()), before + 3 + 200)

    def test_slow_requests_are_recorded_with_what_they_were(self):
        shown = lambda: ask("/storage_service/slow_query")
        self.assertEqual(shown(), (200, {"enable": False, "ttl": 86400, "threshold": 500000, "fast": False}))
        for wrong in ("threshold=fast", "ttl=0", "ttl=630720001", "enable=perhaps"):
            self.assertEqual(ask(f"/storage_service/slow_query?{wrong}", "POST")[0], 400, wrong)
        with Connection() as c:
            [prepared] = c.prepare("SELECT v FROM a.t WHERE k = ?")
            [written] = c.prepare("UPDATE a.t SET v = 'slow' WHERE k = ?")
            key = struct.pack(">i", 9)
            slow = lambda: objects(c, "SELECT JSON * FROM system_traces.node_slow_log")
            of_row = lambda text: [found for found in slow() if text in (found["command"] or "")]
            c.ask(native.EXECUTE, c.execute_body([prepared], [key]))
            self.assertEqual(of_row("a.t"), [], "nothing is recorded by default")
            ask("/storage_service/slow_query?enable=true&fast=true&threshold=1&ttl=1000", "POST")
            self.assertEqual(shown()[1], {"enable": True, "ttl": 1000, "threshold": 1, "fast": True})
            for ids in (prepared, written):
                c.ask(native.EXECUTE, c.execute_body([ids], [key]))
            c.query("SELECT count(*) FROM a.t")
            for text in ("SELECT v FROM a.t WHERE k = ?", "UPDATE a.t SET v", "SELECT count(*) FROM a.t"):
                found = until(f"a record of {text}", lambda: of_row(text))[0]
                self.assertEqual(found["table_names"], ["a.t"])
                self.assertEqual((found["node_ip"], found["source_ip"]), (native.HOST, native.HOST))
                self.assertGreaterEqual(found["duration"], 1)
                self.assertIn(found["shard"], (0, 1))
                self.assertEqual(found["parameters"]["consistency_level"], "ONE")
                session = found["session_id"]
                minute = objects(c, "SELECT JSON minute, session_id, node_ip FROM system_traces.node_slow_log_time_idx "
                                    "WHERE session_id = " + session + " ALLOW FILTERING")
                self.assertEqual(len(minute), 1)
                self.assertRegex(minute[0]["minute"], r":\d\d:00\.000Z$")
                sessions = until("the session", lambda: objects(
                    c, f"SELECT JSON duration, ttl(duration) FROM system_traces.sessions WHERE session_id = {session}"))
                self.assertEqual(sessions[0]["duration"], found["duration"])
                self.assertIn(sessions[0]["ttl(duration)"], range(900, 1001))
                self.assertEqual(objects(
                    c, f"SELECT JSON activity FROM system_traces.events WHERE session_id = {session}"), [])
            ask("/storage_service/slow_query?fast=false", "POST")
            c.query("SELECT count(v) FROM a.t")
            found = until("a record with events", lambda: of_row("count(v)"))[0]
            events = until("events", lambda: objects(
                c, f"SELECT JSON activity FROM system_traces.events WHERE session_id = {found['session_id']}"))
            self.assertIn("Request complete", [event["activity"] for event in events])
            ask("/storage_service/slow_query?threshold=100000000", "POST")
            c.query("SELECT max(v) FROM a.t")
            time.sleep(0.2)
            self.assertEqual(of_row("max(v)"), [], "it was not slow")
        self.assertRegex(metrics(), r'(?m)^ceto_slow_requests_total\{shard="\d"\} [1-9]')
        self.assertRegex(metrics(), r"(?m)^scylla_tracing_dropped_records")

    def test_slow_requests_have_lines_in_the_log(self):
        def line(text):
            found = [line for line in self.lines() if line["text"].startswith(f"slow request: {text}")]
            return found[-1] if found else None

        made = 0
        with Connection() as c:
            self.assertEqual(objects(c, "SELECT JSON value FROM system_views.settings "
                                        "WHERE name = 'slow_query_log_timeout'"), [{"value": "1ms"}])

            def create():
                nonlocal made
                made += 1
                # The lines are limited to one each second on a shard.
                time.sleep(0.3)
                c.query(f"CREATE TABLE a.slow{made} (k int PRIMARY KEY)")
                return line("CREATE TABLE a.slow")

            found = until("a line", create)
        self.assertEqual((found["level"], found["area"]), ("INFO", "query::tracing"))
        self.assertGreaterEqual(float(found["fields"]["took_ms"]), 1)
        self.assertTrue(found["fields"]["client"].startswith(native.HOST))

    def trace(self, c, statement, page_size=None):
        """Activities of a statement's trace in their order, read at QUORUM as cqlsh does."""
        asked = native.long_text(statement) + native.parameters(4, page_size=page_size, consistency=QUORUM)
        c.send(native.frame(4, native.QUERY, asked, flags=TRACING))
        _, opcode, answer, _ = c.read()
        self.assertNotEqual(opcode, native.ERROR, answer)
        session = uuid.UUID(bytes=answer[:16])
        until("the trace", lambda: rows(
            c, f"SELECT duration FROM system_traces.sessions WHERE session_id = {session}", QUORUM))
        found = rows(c, f"SELECT activity, source_elapsed FROM system_traces.events WHERE session_id = {session}", QUORUM)
        elapsed = [struct.unpack(">i", row[1])[0] for row in found]
        self.assertEqual(elapsed, sorted(elapsed), "in the order of time")
        return [row[0].decode() for row in found]

    def in_order(self, events, *wanted):
        """Each of the texts is part of an event, in this order."""
        at = 0
        for text in wanted:
            while at < len(events) and text not in events[at]:
                at += 1
            self.assertLess(at, len(events), f"{text} in its place of {events}")

    def test_a_trace_tells_where_rows_were_found(self):
        with Connection() as c:
            c.query("CREATE TABLE a.traced (k int PRIMARY KEY, v text)")
            c.query("INSERT INTO a.traced (k, v) VALUES (1, 'in memory')")
            self.in_order(self.trace(c, "SELECT v FROM a.traced WHERE k = 1"),
                          "Parsing", "Memtables: 1 of 1", "Read 1 live rows and 0 tombstone cells", "Request complete")
            ctl("flush", "a", "traced")
            for key in range(2, 30):
                c.query(f"INSERT INTO a.traced (k, v) VALUES ({key}, 'other')")
            ctl("flush", "a", "traced")
            self.assertEqual(ask("/system/drop_sstable_caches", "POST")[0], 200)
            read = "SELECT v FROM a.traced WHERE k = 1"
            self.in_order(self.trace(c, read), "Memtables: 0 of 1", "-big-Data.db: may have the key",
                          "finished bulk DMA read", "Read 1 live rows", "Request complete")
            self.in_order(self.trace(c, read), "Memtables: 0 of 1", "Row cache: hit", "Read 1 live rows")
            self.in_order(self.trace(c, "SELECT v FROM a.traced", page_size=5),
                          "Read 5 live rows", "more rows follow", "Request complete")
            self.in_order(self.trace(c, "DELETE FROM a.traced WHERE k = 1"), "applying mutations locally")

    def test_levels_of_single_loggers_and_lines_about_what_the_node_does(self):
        def levels():
            return dict(line.split() for line in ctl("getlogginglevels").splitlines()[2:])

        self.addCleanup(ctl, "setlogginglevel")
        self.assertEqual({levels()[name] for name in ("ceto", "storage", "storage::flush")}, {"INFO"})
        ctl("setlogginglevel", "storage", "warn")
        ctl("setlogginglevel", "storage::flush", "debug")
        found = levels()
        self.assertEqual([found[name] for name in ("ceto", "storage", "storage::cache", "storage::flush")],
                         ["INFO", "WARN", "WARN", "DEBUG"])
        self.assertEqual(ask("/system/logger/storage")[1], "warn")
        ctl("setlogginglevel", "ceto", "warn")
        with Connection() as c:
            shown = "SELECT JSON value FROM system_views.settings WHERE name = '{}'"
            self.assertEqual(objects(c, shown.format("default_log_level")), [{"value": "warn"}])
            self.assertEqual(objects(c, shown.format("log_format")), [{"value": "json"}])
        self.assertEqual(ask("/system/logger/nonsense?level=info", "POST")[0], 400)
        self.assertEqual(ask("/system/logger/storage?level=loud", "POST")[0], 400)
        snapshot = lambda tag: ask(f"/storage_service/snapshots?tag={tag}&kn=a&cf=t", "POST")
        texts = lambda text: [line["fields"] for line in self.lines() if line["text"] == text]
        self.assertEqual(snapshot("silent")[0], 200)
        ctl("setlogginglevel")
        self.assertEqual(set(levels().values()), {"INFO"})
        self.assertEqual(snapshot("told")[0], 200)
        taken = until("the snapshot", lambda: texts("a snapshot was taken"))
        self.assertEqual([fields["tag"] for fields in taken], ["told"], "storage wrote warnings only")
        with Connection() as c:
            c.query("CREATE TABLE a.shown (k int PRIMARY KEY)")
        self.assertIn({"change": "CREATED", "target": "TABLE", "keyspace": "a", "name": "shown"},
                      until("the schema", lambda: texts("the schema changed")))
        def flushed():
            with Connection() as c:
                c.query("INSERT INTO a.shown (k) VALUES (1)")
            ctl("flush", "a", "shown")
            return [fields for fields in texts("a memtable was flushed") if fields["table"] == "shown"]

        self.assertTrue(until("a flush", flushed)[0]["file"].endswith("-Data.db"))


if __name__ == "__main__":
    result = unittest.main(verbosity=2, exit=False).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed, {len(result.skipped)} skipped")
    sys.exit(failed > 0)
