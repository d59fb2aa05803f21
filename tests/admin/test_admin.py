"""REST, metrics and `ceto ctl` of one node with two shards, seen from outside."""

import json
import re
import shutil
import socket
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

import native
from native import Connection
from node import BINARY, Node

API, METRICS = native.PORT + 2, native.PORT + 3
KEYSPACE = "CREATE KEYSPACE a WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
ROWS = 200
SAMPLE = re.compile(r'^[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-zA-Z_]\w*="(\\.|[^"\\])*",?)*\})? -?[0-9.e+-]+$')


def ask(path, method="GET", port=API):
    """Status and answer."""
    request = urllib.request.Request(f"http://{native.HOST}:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def ctl(*words, code=0):
    done = subprocess.run([BINARY, "ctl", "-h", native.HOST, "-p", str(API), *words],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == code, f"{words}: code {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def metrics():
    with urllib.request.urlopen(f"http://{native.HOST}:{METRICS}/metrics", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers
        return answer.read().decode()


class Administration(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("admin", shards=2)
        # Also where the rest of this fails.
        cls.addClassCleanup(cls.node.kill)
        cls.node.start()
        with Connection() as c:
            c.query(KEYSPACE)
            c.query("CREATE TYPE a.u (x int)")
            c.query("CREATE TABLE a.t (k int PRIMARY KEY, v text, w frozen<u>)")
            c.query("CREATE TABLE a.empty (k int PRIMARY KEY)")
            for key in range(ROWS):
                c.query(f"INSERT INTO a.t (k, v) VALUES ({key}, 'some text of {key}')")

    @classmethod
    def tearDownClass(cls):
        cls.node.kill()
        shutil.rmtree(cls.node.work, ignore_errors=True)

    def table_folder(self, table="t"):
        return next((self.node.data / "data" / "a").glob(f"{table}-*"))

    def files(self, pattern="*-Data.db"):
        return sorted(path.name for path in self.table_folder().glob(pattern))

    def test_paths_answer_and_mistakes_have_a_code_and_a_message(self):
        get = lambda path: ask(path)[1]
        self.assertIn("a", get("/storage_service/keyspaces"))
        self.assertEqual(get("/storage_service/keyspaces?type=user"), ["a"])
        self.assertEqual(get("/storage_service/operation_mode"), "NORMAL")
        self.assertRegex(get("/storage_service/hostid/local"), r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
        self.assertEqual(len(get("/storage_service/tokens")), 16)
        with Connection() as c:
            shown = json.loads(c.query("SELECT JSON host_id, tokens FROM system.local")[0][0])
        self.assertEqual(get("/storage_service/hostid/local"), shown["host_id"])
        self.assertEqual(sorted(get("/storage_service/tokens")), sorted(shown["tokens"]), "those that drivers see")
        self.assertEqual(get("/gossiper/endpoint/live"), [get("/storage_service/host_id")[0]["key"]])
        self.assertEqual(len(get("/storage_service/describe_ring/a")), 16)
        self.assertIn({"ks": "a", "cf": "t", "type": "ColumnFamilies"}, get("/column_family/"))
        self.assertGreater(get("/system/uptime_ms"), 0)
        for path, method, code in (
            ("/nothing/here", "GET", 404),
            ("/storage_service/keyspace_flush/nobody", "POST", 400),
            ("/storage_service/keyspace_flush/a?cf=nobody", "POST", 400),
            ("/storage_service/keyspace_flush/a", "GET", 405),
            ("/storage_service/keyspaces", "DELETE", 405),
            ("/storage_service/keyspace_scrub/a?scrub_mode=hard", "POST", 400),
            ("/storage_service/keyspace_scrub/a?quarantine_mode=some", "POST", 400),
            ("/storage_service/keyspace_compaction/a?flush_memtables=perhaps", "POST", 400),
            ("/compaction_manager/stop_keyspace_compaction/nobody", "POST", 400),
            ("/storage_service/repair_async/nobody", "POST", 400),
            ("/storage_service/repair_async/a?id=4000000", "GET", 400),
            ("/task_manager/list_module_tasks/nothing", "GET", 400),
            ("/task_manager/task_status/1", "GET", 400),
            ("/storage_service/trace_probability?probability=1.5", "POST", 400),
            ("/storage_service/snapshots", "POST", 400),
            ("/storage_service/snapshots?tag=..%2Fx", "POST", 400),
            ("/column_family/metrics/live_disk_space_used/a", "GET", 400),
            ("/system/logger/ceto?level=loud", "POST", 400),
        ):
            with self.subTest(path=path):
                status, said = ask(path, method)
                self.assertEqual((status, said["code"]), (code, code), said)
                self.assertTrue(said["message"])
        request = urllib.request.Request(f"http://{native.HOST}:{API}/storage_service/keyspaces", method="PUT")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        self.assertEqual((refused.exception.code, refused.exception.headers["Allow"]), (405, "GET,HEAD"))

    def test_background_work_is_asked_for_and_looked_at(self):
        number = ask("/storage_service/repair_async/a?columnFamilies=t", "POST")[1]
        self.assertGreater(number, 0)
        self.assertEqual(ask(f"/storage_service/repair_async/a?id={number}")[1], "SUCCESSFUL")
        self.assertIn("compaction", ask("/task_manager/list_modules")[1])
        self.assertEqual(ask("/task_manager/list_module_tasks/repair"), (200, []))
        self.assertEqual(ask("/compaction_manager/stop_keyspace_compaction/a?tables=t&type=COMPACTION", "POST")[0], 200)
        self.assertEqual(ask("/system/drop_sstable_caches", "POST")[0], 200)
        self.assertGreater(ask("/failure_detector/endpoints")[1][0]["generation"], 1_700_000_000)
        with Connection() as c:
            c.query("CREATE TABLE a.kept (k int PRIMARY KEY)")
            c.query("INSERT INTO a.kept (k) VALUES (1)")
            ask("/storage_service/keyspace_compaction/a?cf=kept&flush_memtables=false", "POST")
            self.assertEqual(ask("/column_family/metrics/live_ss_table_count/a:kept")[1], 0, "it stays in memory")
            ask("/storage_service/keyspace_compaction/a?cf=kept", "POST")
            self.assertEqual(ask("/column_family/metrics/live_ss_table_count/a:kept")[1], 1)
            c.query("DROP TABLE a.kept")

    def test_a_page_in_a_browser_changes_nothing(self):
        def post(headers, path="/storage_service/flush"):
            request = urllib.request.Request(f"http://{native.HOST}:{API}{path}", method="POST", headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return answer.status
            except urllib.error.HTTPError as error:
                return error.code

        self.assertEqual(post({}), 200)
        self.assertEqual(post({"Origin": "http://evil.example"}), 403)
        self.assertEqual(post({"Sec-Fetch-Site": "cross-site"}), 403)
        self.assertEqual(post({"Host": "evil.example:10000"}), 403)
        self.assertEqual(post({"Content-Type": "text/plain"}), 415)
        self.assertEqual(post({"Content-Type": "application/json"}), 200)

    def test_clients_that_send_half_a_request_lock_nobody_out(self):
        half = [socket.create_connection((native.HOST, port)) for port in (API, METRICS) for _ in range(80)]
        self.addCleanup(lambda: [connection.close() for connection in half])
        for connection in half:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
        self.assertEqual(ask("/storage_service/operation_mode")[1], "NORMAL")
        self.assertIn("scylla_memory_total_memory", metrics())
        ctl("status")

    def test_metrics_are_well_formed_and_of_every_shard(self):
        text = metrics()
        families = set()
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:]
                self.assertNotIn(name, families, "a family has one head")
                self.assertIn(kind, ("counter", "gauge", "histogram"))
                families.add(name)
            elif not line.startswith("# HELP "):
                self.assertRegex(line, SAMPLE)
        for name in ("scylla_reactor_cpu_busy_ms", "scylla_transport_requests_served", "scylla_commitlog_segments",
                     "scylla_scheduler_runtime_ms", "scylla_column_family_live_disk_space", "scylla_tablets_count"):
            self.assertIn(name, families)
            for shard in (0, 1):
                self.assertRegex(text, rf'(?m)^{name}\{{[^}}]*shard="{shard}"\}} ')
        self.assertEqual(ask("/nothing", port=METRICS)[0], 404)

    def test_statements_are_counted_and_their_latencies_are_histograms(self):
        def total(name):
            found = re.findall(rf'(?m)^{name}\{{[^}}]*\}} (\d+)$', metrics())
            self.assertTrue(found, name)
            return sum(map(int, found))

        read = "scylla_storage_proxy_coordinator_read_latency"
        names = ("scylla_cql_reads", "scylla_cql_rows_read", read + "_count", "scylla_transport_cql_requests_count",
                 "scylla_transport_cql_request_latency_histogram_count", "scylla_transport_requests_served")
        before = {name: total(name) for name in names}
        with Connection() as c:
            ids = c.prepare("SELECT v FROM a.t WHERE k = ?")
            for key in range(150):
                c.ask(0x0A, c.execute_body(ids, (key.to_bytes(4, "big"),)))
        added = {name: total(name) - before[name] for name in names}
        for name in names[:3]:
            self.assertEqual(added[name], 150, name)
        # And one to prepare.
        for name in names[3:]:
            self.assertEqual(added[name], 151, name)
        text = metrics()
        for shard in (0, 1):
            buckets = re.findall(rf'(?m)^{read}_bucket\{{shard="{shard}",le="([^"]+)"\}} (\d+)$', text)
            self.assertEqual([bound for bound, _ in buckets], [str(1 << exponent) for exponent in range(27)] + ["+Inf"])
            counts = [int(count) for _, count in buckets]
            self.assertEqual(counts, sorted(counts))
        starved = re.findall(r'(?m)^scylla_scheduler_starvetime_ms\{[^}]*\} (\d+)$', text)
        self.assertLess(max(map(int, starved)), 600_000, "counted from the start of the node")

    def test_the_log_begins_with_what_starts(self):
        log = self.node.log()
        self.assertRegex(log, r"(?m)^INFO .* ceto \d+\.\d+\.\d+ \(.*profile \w+\) configuration=\S+ workdir=")
        self.assertRegex(log, r"(?m)^INFO .* 2 shard\(s\), \d+ MiB of memory driver=\S+")
        ports = rf"{native.PORT} \(CQL\), .*{API} \(REST, console at /ui\), .*{METRICS} \(metrics\)"
        self.assertRegex(log, rf"(?m)^INFO .* listens on .*{ports}$")
        self.assertRegex(log, r"(?m)^ceto ready on .* ms, \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")

    def test_flush_compact_and_what_tables_take(self):
        ctl("flush", "a", "t")
        files = self.files()
        self.assertTrue(files)
        used = ask("/column_family/metrics/live_disk_space_used/a:t")[1]
        on_disk = sum(path.stat().st_size for path in self.table_folder().glob("*-big-*"))
        self.assertEqual(used, on_disk)
        stats = ctl("tablestats", "a.t")
        self.assertIn("\t\tTable: t\n", stats)
        self.assertIn(f"\t\tSSTable count: {len(files)}\n", stats)
        self.assertIn(f"\t\tSpace used (live): {used}\n", stats)
        self.assertIn(f"\t\tNumber of partitions (estimate): {ROWS}\n", stats)
        self.assertNotIn("Table: empty", stats)
        ctl("compact", "a", "t")
        self.assertEqual(len(self.files()), len(files), "one file of each tablet before and after")
        self.assertNotEqual(self.files(), files)
        self.assertRegex(ctl("compactionstats"), r"(?m)^pending tasks +\d")
        self.assertRegex(ctl("compactionhistory"), r"(?m)^[0-9a-f-]{36} +a +t +20\d\d-")
        ctl("cleanup", "a")
        ctl("upgradesstables", "-a", "a", "t")
        ctl("garbagecollect", "a", "t")
        ctl("scrub", "-m", "VALIDATE", "a", "t")
        for option in ((), ("-e",), ("-q",), ("-f", "-e", "-d")):
            self.assertRegex(ctl("verify", *option, "a", "t"), r"^[1-9]\d* table files verified\n$")
        self.assertIn("cannot be used with", ctl("verify", "-q", "-e", code=1))
        ctl("invalidatekeycache")
        ctl("invalidaterowcache")
        self.assertIn("There are no snapshots", ctl("listsnapshots"))
        ctl("scrub", "a", "t")
        self.assertRegex(ctl("listsnapshots"), r"(?m)^pre-scrub-\d+ +a +t ")
        ctl("clearsnapshot", "--all")
        self.assertTrue(ask("/column_family/autocompaction/a:t")[1])
        ctl("disableautocompaction", "a", "t")
        self.assertRegex(ctl("statusautocompaction", "a", "t"), r"^a t not running")
        ctl("enableautocompaction", "a", "t")
        self.assertRegex(ctl("statusautocompaction", "a", "t"), r"^a t running")
        ctl("stop", "COMPACTION")
        self.assertIn("nonsense", ctl("stop", "nonsense", code=1).lower())
        ctl("setcompactionthroughput", "64")
        self.assertEqual(ctl("getcompactionthroughput"), "Current compaction throughput: 64 MB/s\n")
        ctl("setcompactionthroughput", "0")
        self.assertIn("Unknown", ctl("flush", "a", "nobody", code=1))

    def test_snapshots(self):
        self.assertIn("Snapshot directory: first", ctl("snapshot", "-t", "first", "a"))
        folder = self.table_folder() / "snapshots" / "first"
        names = {path.name for path in folder.iterdir()}
        manifest = json.loads((folder / "manifest.json").read_text())
        self.assertTrue(manifest["files"])
        self.assertLessEqual(set(manifest["files"]), names)
        schema = (folder / "schema.cql").read_text()
        self.assertIn("CREATE TABLE a.t", schema)
        self.assertLess(schema.index("CREATE TYPE a.u"), schema.index("CREATE TABLE a.t"))
        self.assertRegex(schema, r"ID = [0-9a-f-]{36}")
        self.assertIn("already exists", ctl("snapshot", "-t", "first", "a", code=1))
        ctl("snapshot", "-t", "one", "-cf", "t", "--ttl", "1h", "a")
        listed = ctl("listsnapshots")
        self.assertRegex(listed, r"(?m)^first +a +t +")
        self.assertRegex(listed, r"(?m)^one +a +t +.*20\d\d-.*20\d\d-")
        self.assertNotIn("one", ctl("listsnapshots", "-nt"))
        self.assertEqual({pair["key"] for pair in ask("/storage_service/snapshots")[1]}, {"first", "one"})
        self.assertIn("Specify snapshot name or --all", ctl("clearsnapshot", code=1))
        ctl("clearsnapshot", "-t", "first")
        self.assertFalse(folder.exists())
        with Connection() as c:
            c.query("CREATE TABLE a.gone (k int PRIMARY KEY)")
            c.query("INSERT INTO a.gone (k) VALUES (1)")
            c.query("TRUNCATE a.gone")
            c.query("INSERT INTO a.gone (k) VALUES (2)")
            c.query("DROP TABLE a.gone")
        listed = ctl("listsnapshots")
        self.assertRegex(listed, r"(?m)^truncated-\d+-gone +a +gone ")
        self.assertRegex(listed, r"(?m)^dropped-\d+-gone +a +gone ")
        ctl("clearsnapshot", "--all")
        self.assertIn("There are no snapshots", ctl("listsnapshots"))

    def test_files_are_taken_in_from_a_snapshot(self):
        with Connection() as c:
            c.query("CREATE TABLE a.back (k int PRIMARY KEY, v text)")
            for key in range(50):
                c.query(f"INSERT INTO a.back (k, v) VALUES ({key}, 'x')")
            ctl("snapshot", "-t", "kept", "-cf", "back", "a")
            kept = self.table_folder("back") / "snapshots" / "kept"
            count = lambda: len(c.query("SELECT k FROM a.back"))
            c.query("TRUNCATE a.back")
            self.assertEqual(count(), 0)
            shutil.copytree(kept, self.table_folder("back") / "upload")
            ctl("refresh", "a", "back")
            self.assertEqual(count(), 50)
            self.assertFalse(list((self.table_folder("back") / "upload").glob("*-big-*")))
            c.query("TRUNCATE a.back")
            ctl("import", "--copy-data", "a", "back", str(kept.resolve()))
            self.assertEqual(count(), 50)
            self.assertTrue(list(kept.glob("*-big-*")), "what is copied stays")
            self.assertIn("absolute", ctl("import", "a", "back", "here", code=1))
            c.query("DROP TABLE a.back")
        ctl("clearsnapshot", "--all")

    def test_the_native_transport_goes_off_and_on(self):
        self.assertEqual(ctl("statusbinary"), "running\n")
        with Connection() as c:
            ctl("disablebinary")
            self.assertEqual(ctl("statusbinary"), "not running\n")
            with self.assertRaises(OSError), Connection():
                pass
            self.assertIsNone(c.read(), "clients are sent away")
        ctl("enablebinary")
        with Connection() as c:
            self.assertEqual(len(c.query("SELECT k FROM a.t")), ROWS)

    def test_verbs_that_tell(self):
        host_id = ask("/storage_service/hostid/local")[1]
        self.assertRegex(ctl("status"), rf"(?m)^UN +127\.0\.0\.1 .* {host_id} ")
        self.assertIn("Datacenter: datacenter1\n", ctl("status", "a"))
        self.assertRegex(ctl("info"), rf"(?m)^ID +: {host_id}$")
        self.assertEqual(ctl("version"), "ReleaseVersion: 5.0.6\n")
        self.assertEqual(len(re.findall(r"(?m)^127\.0\.0\.1 .* Normal ", ctl("ring"))), 16)
        self.assertIn("\tPartitioner: org.apache.cassandra.dht.Murmur3Partitioner\n", ctl("describecluster"))
        self.assertEqual(ctl("describering", "a").count("TokenRange(start_token:"), 16)
        self.assertIn("INFO", ctl("getlogginglevels"))
        ctl("setlogginglevel", "ceto", "debug")
        self.assertIn("DEBUG", ctl("getlogginglevels"))
        ctl("setlogginglevel")
        self.assertIn("INFO", ctl("getlogginglevels"))
        self.assertEqual(ctl("gettraceprobability"), "Current trace probability: 0.0\n")
        self.assertEqual(ctl("gettimeout", "read"), "Current timeout for type read: 5000 ms\n")
        self.assertIn("tablestats", ctl("help"))
        self.assertIn("not supported", ctl("repair", code=1))
        self.assertIn("nonsense", ctl("nonsense", code=1))
        self.assertIn("does not exist", ctl("status", "nobody", code=1))
        done = subprocess.run([BINARY, "ctl", "-p", "1", "status"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("Failed to connect to '127.0.0.1:1'", done.stderr)
        self.assertIn("--api-port", done.stderr)

    def test_a_port_in_use_is_named_with_its_key(self):
        other = self.node.work / "other"
        done = subprocess.run(
            [BINARY, "server", "--workdir", other, "--port", str(native.PORT + 10), "--shard-aware-port", "0", "--smp",
             "1", "--memory", "64M", "--developer-mode", "--api-port", str(API), "--prometheus-port", "0"],
            capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        for part in (f"{native.HOST}:{API}", "api_port", "--api-port"):
            self.assertIn(part, done.stderr)
        self.assertEqual([path.name for path in other.iterdir()], ["lock"], "nothing else was begun")

    def test_zz_drain_and_the_end(self):
        """Last by name: there is no way back from it."""
        ctl("drain")
        self.assertEqual(ask("/storage_service/operation_mode")[1], "DRAINED")
        self.assertEqual(ctl("statusbinary"), "not running\n")
        self.assertIn("DRAINED", ctl("enablebinary", code=2))
        ctl("drain")
        self.node.stop()
        self.node.start()
        with Connection() as c:
            self.assertEqual(len(c.query("SELECT k FROM a.t")), ROWS)
        self.node.stop()


if __name__ == "__main__":
    outcome = unittest.main(exit=False, verbosity=2).result
    failed = len(outcome.failures) + len(outcome.errors)
    print(f"{outcome.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed or not outcome.testsRun else 0)
