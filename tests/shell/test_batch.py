"""The shell without a terminal: options, exit codes, errors with their lines, commands, and servers that answer nonsense."""

import random
import re
import socket
import struct
import subprocess
import threading
import unittest

import native
from node import BINARY
from shell import ShellTest, rows, run

TABLES = """
USE k;
CREATE TABLE t (p int, c int, s text static, v text, PRIMARY KEY (p, c));
CREATE TABLE many (k int PRIMARY KEY);
"""


class Batch(ShellTest):
    TABLES = TABLES

    def test_exit_codes_tell_what_happened(self):
        self.assertEqual(run("-e", "SELECT key FROM system.local")[0], 0)
        code, out, err = run("-e", "SELECT nothing FROM system.local; SELECT key FROM system.local;")
        self.assertEqual((code, rows(out)[-1]), (2, "(1 rows)"), "what follows a failure runs")
        wanted = r'InvalidRequest: Error from server: code=2200 \[Invalid query\] message="Undefined column name nothing .*"\n'
        self.assertRegex(err, "^" + wanted + "$")
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            closed = sock.getsockname()[1]
        code, out, err = run("-e", "SELECT 1", port=closed)
        self.assertEqual((code, out), (1, ""))
        self.assertIn("Does the node run", err)
        # The port of REST.
        code, _, err = run("-e", "SELECT 1", "--connect-timeout", "3", port=native.PORT + 2)
        self.assertEqual(code, 1, err)
        code, _, err = run("-k", "nowhere", "-e", "SELECT 1")
        self.assertEqual((code, "'nowhere' does not exist" in err), (1, True), err)
        code, _, err = run("-f", "/nonexistent.cql")
        self.assertEqual((code, "/nonexistent.cql" in err), (1, True), err)
        code, _, err = run("-u", "me", "-p", "secret", "-e", "SELECT key FROM system.local")
        self.assertEqual(code, 0)
        self.assertIn("have no effect: this server asks nobody for a user", err)
        self.assertEqual(run("-e", "x", "-f", "y")[0], 2, "as clap has it")

    def test_a_file_is_run_and_errors_have_their_lines(self):
        script = self.folder / "script.cql"
        script.write_text(
            "-- a comment; with a semicolon\nUSE k;\nINSERT INTO t (p, c, s, v)\n  VALUES (1, 1, 'it''s; static', $$a;b$$);\n"
            "BEGIN BATCH\n  INSERT INTO t (p, c, v) VALUES (1, 2, 'x');\n  INSERT INTO t (p, c, v) VALUES (1, 3, 'y');\nAPPLY BATCH;\n"
            "/* nothing;\n */ SELEC;\nEXPAND MAYBE\nSELECT * FROM t; SELECT\n nothing\n FROM t;\nSELECT 1")
        code, out, err = run("-f", script)
        self.assertEqual(code, 2)
        self.assertEqual(
            [line[: line.index(":", line.index(":") + 1)].rsplit("/", 1)[1] for line in err.splitlines()],
            ["script.cql:10", "script.cql:11", "script.cql:12", "script.cql:15"], err)
        self.assertIn("SyntaxException", err.splitlines()[0])
        self.assertIn("Improper EXPAND command.", err.splitlines()[1])
        self.assertIn("Incomplete statement at end of file", err.splitlines()[3])
        self.assertEqual(rows(out), [
            " p | c | s            | v",
            "---+---+--------------+-----",
            " 1 | 1 | it's; static | a;b",
            " 1 | 2 | it's; static |   x",
            " 1 | 3 | it's; static |   y",
            "(3 rows)",
        ])
        code, out, err = run(stdin="SELECT key FROM\nsystem.local;\nSELECT x;\n")
        self.assertEqual((code, rows(out)[-1]), (2, "(1 rows)"))
        self.assertTrue(err.startswith("<stdin>:3:SyntaxException"), err)

    def test_all_pages_are_printed(self):
        inserts = "".join(f"INSERT INTO many (k) VALUES ({k});" for k in range(250))
        out = self.cql(inserts + "SELECT k FROM many; PAGING 7\nSELECT k FROM many; PAGING OFF\nSELECT k FROM many;")
        self.assertEqual(out.count("(250 rows)"), 3)
        self.assertEqual(len(re.findall(r"^ +\d+$", out, re.M)), 750)
        self.assertEqual(out.count(" k\n"), 3, "one header for all pages")

    def test_commands_change_and_tell_the_settings(self):
        out = self.cql(
            "CONSISTENCY QUORUM\nCONSISTENCY\nSERIAL CONSISTENCY\nEXPAND ON\nPAGING\nTIMING ON\n"
            "INSERT INTO t (p, c) VALUES (9, 9) IF NOT EXISTS;\nSELECT p, c FROM t WHERE p = 9;\nSHOW HOST\nSHOW VERSION\nLOGIN me 'x'\nHELP TIMING")
        for wanted in ("Consistency level set to QUORUM.", "Current consistency level is QUORUM.",
                       "Current serial consistency level is SERIAL.", "PAGING is ON\nPage size: 100", "@ Row 1", " [applied] | True",
                       f"Connected to Test Cluster at 127.0.0.1:{native.PORT}", "LOGIN has no effect", "milliseconds"):
            self.assertIn(wanted, out)
        self.assertEqual(len(re.findall(r"^Time: \d+\.\d{3} ms$", out, re.M)), 2)
        self.assertRegex(out, r"\[ceto shell [\d.]+ \| Cassandra 5[\d.]+ \| CQL spec 3[\d.]+ \| Native protocol v5\]")

    def test_a_trace_is_a_table(self):
        out = self.cql("TRACING ON\nSELECT * FROM t WHERE p = 1;")
        session = re.search(r"^Tracing session: ([0-9a-f-]{36})$", out, re.M)[1]
        self.assertRegex(out, r"(?m)^ activity +\| timestamp +\| source +\| source_elapsed +\| client\n-+\+-")
        self.assertRegex(out, r"(?m)^ +Execute CQL3 query \| 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} \| 127\.0\.0\.1 \| +0 \|")
        self.assertIn("Request complete", out)
        self.assertIn("Request complete", self.cql(f"SHOW SESSION {session}"))

    def test_files_are_run_and_written(self):
        (self.folder / "inner.cql").write_text("CAPTURE 'captured.txt';\nSELECT key FROM system.local;\nCAPTURE OFF\nSELECT x;\n")
        code, out, err = run("-k", "k", "-e", "SOURCE 'inner.cql'\nSELECT cql_version FROM system.local;", folder=self.folder)
        self.assertEqual((code, err.startswith("inner.cql:4:SyntaxException")), (2, True), err)
        self.assertEqual(rows((self.folder / "captured.txt").read_text()), [" key", "-------", " local", "(1 rows)"])
        self.assertNotIn(" local", out)
        self.assertIn("cql_version", out)
        code, _, err = run("-e", "SOURCE 'nowhere.cql'")
        self.assertEqual((code, "Could not open 'nowhere.cql'" in err), (2, True))
        (self.folder / "self.cql").write_text("SOURCE 'self.cql'\n")
        self.assertIn("nested", run("-f", "self.cql", folder=self.folder)[2])

    def test_control_characters_do_not_reach_the_terminal(self):
        evil = "\x1b]0;x\x07\x9b2J\u202e"
        out = self.cql(f"INSERT INTO t (p, c, v) VALUES (5, 5, '{evil}'); SELECT v FROM t WHERE p = 5;")
        self.assertIn(r"\x1b]0;x\x07\x9b2J\u202e", out)
        code, _, err = run("-e", f"SELECT {evil}")
        self.assertEqual((code, "\x1b" in err), (2, False), err)
        self.assertIn("\x1b[0;1;33m", self.cql("SELECT v FROM t WHERE p = 1;", "--color"))

    def test_a_missing_home_and_a_reader_that_goes_are_no_error(self):
        code, out, _ = run("-e", "SELECT key FROM system.local", environment={"HOME": ""})
        self.assertEqual((code, rows(out)[-1]), (0, "(1 rows)"))
        command = f"{BINARY} shell 127.0.0.1 {native.PORT} -e 'PAGING OFF\nSELECT * FROM system_views.settings' | head -1; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual((done.stdout.split()[-1], done.stderr), ("0", ""))


class Corrupting:
    """A server between the shell and the node that changes bytes of the node's answers, in frames of version 4."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.carry, args=(client,), daemon=True).start()

    def carry(self, client):
        with client, socket.create_connection(("127.0.0.1", native.PORT)) as node:
            for number in range(1000):
                header = exactly(client, 9)
                if not header:
                    return
                body = exactly(client, struct.unpack(">i", header[5:9])[0])
                if header[0] == 5:
                    # As a server of version 4 answers.
                    text = b"Invalid or unsupported protocol version (5)"
                    error = struct.pack(">ih", 10, len(text)) + text
                    client.sendall(struct.pack(">BBhBi", 0x84, 0, struct.unpack(">h", header[2:4])[0], 0, len(error)) + error)
                    return
                node.sendall(header + body)
                header = exactly(node, 9)
                body = bytearray(exactly(node, struct.unpack(">i", header[5:9])[0]))
                # The answers to OPTIONS and STARTUP stay, so that there is a session.
                if number >= 2 and body:
                    for _ in range(self.random.randint(1, 6)):
                        body[self.random.randrange(len(body))] = self.random.choice((0, 1, 3, 0x7F, 0x80, 0xFF, self.random.randrange(256)))
                client.sendall(header + bytes(body))


def exactly(sock, count):
    data = b""
    while len(data) < count:
        try:
            more = sock.recv(count - len(data))
        except OSError:
            more = b""
        if not more:
            return b""
        data += more
    return data


class Nonsense(ShellTest):
    TABLES = """
USE k;
CREATE TYPE u (a int, b text);
CREATE TABLE w (k int PRIMARY KEY, l list<text>, m map<text, int>, u u, t tuple<int, text>, v vector<float, 2>, d duration, e decimal, ts timestamp);
INSERT INTO w (k, l, m, u, t, v, d, e, ts) VALUES (1, ['a', 'b'], {'x': 1}, {a: 1, b: 'y'}, (1, 'z'), [1, 2], 1h, 1.5, 0);
"""

    def test_corrupt_answers_are_errors_and_nothing_else(self):
        outcomes = set()
        for seed in range(60):
            between = Corrupting(seed)
            code, out, err = run(
                "--color", "--request-timeout", "1", "--connect-timeout", "2", "-e", "SELECT * FROM k.w; DESCRIBE TABLE k.w; COPY k.w TO STDOUT;",
                port=between.port)
            between.listener.close()
            self.assertIn(code, (0, 1, 2), f"seed {seed}: {err}")
            self.assertNotIn("panicked", err, f"seed {seed}")
            outcomes.add(code)
        self.assertGreater(len(outcomes), 1, "some seeds go wrong, some do not")

    def test_a_server_that_is_none_is_told(self):
        for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x84\x00\x00\x01\x00\xff\xff\xff\xff", b"\x00" * 64, b""):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                def serve(listener=listener, answer=answer):
                    try:
                        while True:
                            client, _ = listener.accept()
                            with client:
                                client.recv(100)
                                client.sendall(answer)
                    except OSError:
                        pass
                threading.Thread(target=serve, daemon=True).start()
                code, _, err = run("--connect-timeout", "1", "-e", "SELECT 1", port=listener.getsockname()[1])
                self.assertEqual(code, 1, (answer, err))
                self.assertIn("cannot connect to", err)
                self.assertNotIn("panicked", err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
