"""Starting and stopping: wrong configurations, ports and folders that are taken, and an end in the middle of the load."""

import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import unittest

import native
from native import EXECUTE, RESULT, Connection, frame
from node import BINARY, Node

KEYSPACE = "CREATE KEYSPACE s WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"


def run(*arguments, **options):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60, **options)


class CommandLine(unittest.TestCase):
    def test_version_and_help_touch_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o555)
            for arguments in (["--version"], ["--help"], ["server", "--help"]):
                with self.subTest(arguments=arguments):
                    done = run(*arguments, cwd=folder, env={})
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertIn("ceto" if arguments == ["--version"] else "Usage", done.stdout)
                    self.assertEqual(os.listdir(folder), [])

    def test_wrong_arguments(self):
        wrong = (["--port", "0"], ["--port", "70000"], ["--smp", "0"], ["--smp", "1024"], ["--memory", "much"], ["--driver", "magic"],
                 ["--listen", "here"], ["--nonsense"])
        with tempfile.TemporaryDirectory() as folder:
            for arguments in wrong:
                with self.subTest(arguments=arguments):
                    done = run("server", *arguments, cwd=folder)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(arguments[0], done.stderr)
                    self.assertEqual(os.listdir(folder), [])

    def test_mistakes_in_the_configuration_name_file_line_and_key(self):
        cases = {
            "native_transport_prot: 9042\n": ("c.yaml:1", "native_transport_port"),
            "# one\n\ncluster_nam: x\n": ("c.yaml:3", "cluster_name"),
            "rack: r\nnative_transport_port: many\n": ("c.yaml:2", "native_transport_port"),
            "commitlog_segment_size_in_mb: -3\n": ("c.yaml:1", "commitlog_segment_size_in_mb"),
            "commitlog_segment_size: 99999999999999999999GiB\n": ("c.yaml:1", "commitlog_segment_size"),
            "rpc_address: [1, 2\n": ("c.yaml:", ""),
            "- a\n- b\n": ("c.yaml:1", ""),
            "just text\n": ("c.yaml:1", ""),
            "rack: r\nrack: q\n": ("c.yaml:2", "rack"),
            "rack: \"\\xZZ\"\n": ("c.yaml:1", ""),
            "a: &a [*a, *a]\n": ("c.yaml:1", ""),
            "x: " + "[" * 50_000 + "\n": ("c.yaml:1", ""),
        }
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "c.yaml")
            for text, expected in cases.items():
                with self.subTest(text=text[:60]):
                    with open(path, "w") as file:
                        file.write(text)
                    done = run("server", "--config", path, "--workdir", os.path.join(folder, "data"))
                    self.assertEqual(done.returncode, 1, done.stderr)
                    for part in expected:
                        self.assertIn(part, done.stderr)
                    self.assertEqual(os.listdir(folder), ["c.yaml"])
            for content in (b"\xff\xfe\x00", b"rack: \xff\n", b"\x00" * 100):
                with self.subTest(content=content[:8]):
                    with open(path, "wb") as file:
                        file.write(content)
                    done = run("server", "--config", path)
                    self.assertEqual(done.returncode, 1)
                    self.assertIn("c.yaml", done.stderr)
            for missing in (os.path.join(folder, "none.yaml"), folder):
                done = run("server", "--config", missing)
                self.assertEqual(done.returncode, 1)
                self.assertIn(missing, done.stderr)


class Start(unittest.TestCase):
    def started(self, name, config="", **options):
        node = Node(name, config, **options)
        self.addCleanup(shutil.rmtree, node.work, ignore_errors=True)
        self.addCleanup(node.kill)
        return node

    def test_a_port_that_is_taken(self):
        node = self.started("busy-port")
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind((native.HOST, native.PORT))
            other.listen()
            said = node.start_fails()
            self.assertIn(f"cannot listen on {native.HOST}:{native.PORT}", said)
            self.assertIn("--port", said)
            self.assertEqual((node.work / "exit").read_text().strip(), "1")
        node.start().stop()

    def test_a_second_node_on_one_folder(self):
        node = self.started("two-nodes").start()
        done = run("server", "--workdir", str(node.data), "--port", str(native.PORT + 20), "--shard-aware-port", "0",
                   "--smp", "1", "--memory", "64M", "--developer-mode")
        self.assertEqual(done.returncode, 1)
        self.assertIn("another ceto runs on it", done.stderr)
        with Connection() as c:
            self.assertEqual(c.query("SELECT key FROM system.local"), [[b"local"]])
        node.stop()

    def test_a_start_in_the_place_of_a_node_that_is_ending_waits_for_it(self):
        node = self.started("restart").start()
        with Connection() as c:
            c.query(KEYSPACE)
            c.query("CREATE TABLE s.t (k int PRIMARY KEY, v blob)")
            for key in range(20):
                c.query("INSERT INTO s.t (k, v) VALUES (%d, ?)" % key, [bytes(200_000)])
        node.terminate()
        # At once, as a supervisor does that waits for nothing: the folder and the ports are still the first node's.
        command = [BINARY, "server", "--workdir", str(node.data), "--listen", native.HOST, "--port", str(native.PORT),
                   "--shard-aware-port", str(native.PORT + 1), "--api-port", str(native.PORT + 2),
                   "--prometheus-port", str(native.PORT + 3), "--smp", "1", "--memory", "256M", "--developer-mode"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as second:
            said = []
            for line in second.stdout:
                said.append(line)
                if line.startswith("ceto ready"):
                    with Connection() as c:
                        self.assertEqual(len(c.query("SELECT k FROM s.t")), 20)
                    second.terminate()
            self.assertEqual(second.wait(60), 0, "".join(said))
        self.assertIn("ceto ready", "".join(said))
        self.assertNotIn("cannot listen", "".join(said))

    def test_a_folder_that_cannot_be_one(self):
        node = self.started("no-folder")
        (node.work / "data").write_text("a file")
        self.assertIn(str(node.data), node.start_fails())

    def test_another_clusters_data(self):
        node = self.started("cluster-name", "cluster_name: one\n").start()
        node.stop()
        node.configure("cluster_name: two\n")
        said = node.start_fails()
        self.assertIn("one", said)
        self.assertIn("two", said)

    def test_a_damaged_identity_or_schema_is_named(self):
        for name in ("identity", "schema/group0/acknowledged", "schema/group0/log-1", "schema/group0/snapshot-1"):
            with self.subTest(file=name):
                node = self.started("damaged-" + name.split("/")[-1]).start()
                node.stop()
                path = node.data / name
                damaged = bytearray(path.read_bytes())
                damaged[min(len(damaged) // 3, 30)] ^= 0xFF
                path.write_bytes(damaged)
                self.assertIn(str(path), node.start_fails())

    def test_sigterm_under_load_loses_nothing_acknowledged(self):
        node = self.started("sigterm", shards=2).start()
        with Connection() as c:
            c.query(KEYSPACE)
            c.query("CREATE TABLE s.t (k int PRIMARY KEY, v int)")
        acknowledged, lock, enough = [], threading.Lock(), threading.Event()

        def write(writer):
            with Connection() as c:
                ids = c.prepare("INSERT INTO s.t (k, v) VALUES (?, ?)")
                try:
                    for at in range(100_000):
                        keys = [writer * 10_000_000 + at * 16 + step for step in range(16)]
                        c.send(b"".join(frame(4, EXECUTE, c.execute_body(ids, [struct.pack(">i", k)] * 2), n)
                                        for n, k in enumerate(keys)))
                        for _ in keys:
                            answer = c.read()
                            if answer is None:
                                return
                            if answer[1] == RESULT:
                                with lock:
                                    acknowledged.append(keys[answer[0]])
                                    if len(acknowledged) == 5_000:
                                        enough.set()
                except ConnectionError:
                    pass

        writers = [threading.Thread(target=write, args=(n,), daemon=True) for n in range(6)]
        for writer in writers:
            writer.start()
        self.assertTrue(enough.wait(120))
        node.stop()  # fails unless the exit code is 0
        for writer in writers:
            writer.join(60)
            self.assertFalse(writer.is_alive(), "a closed connection ends its writer")
        node.start()
        with Connection() as c:
            ids = c.prepare("SELECT v FROM s.t WHERE k = ?")
            missing = [k for k in acknowledged if not native.rows_of(
                c.ask(EXECUTE, c.execute_body(ids, [struct.pack(">i", k)]))[2])]
        self.assertEqual(missing, [], f"of {len(acknowledged)} acknowledged")
        node.stop()

    def test_sigterm_while_clients_leave_their_answers_unread(self):
        node = self.started("sigterm-unread").start()
        with Connection() as c:
            c.query(KEYSPACE)
            c.query("CREATE TABLE s.b (k int PRIMARY KEY, v blob)")
            c.query("INSERT INTO s.b (k, v) VALUES (1, ?)", [bytes(200_000)])
        clients = [Connection(receive_bytes=4096) for _ in range(4)]
        try:
            request = frame(4, native.QUERY, native.query_body(4, "SELECT v FROM s.b WHERE k = 1"))
            for c in clients:
                c.socket.setblocking(False)
                try:
                    c.raw(request * 500)
                except BlockingIOError:
                    pass
            node.stop()  # fails unless the exit code is 0, within a minute
        finally:
            for c in clients:
                c.socket.close()
