"""Signals and the end of a node, seen from outside: none ends it without a line, and nothing keeps it from ending."""

import ctypes
import os
import re
import shutil
import signal
import sys
import time
import unittest
from pathlib import Path

import native
from native import Connection
from node import Node

PATIENCE_SECONDS = 60
KEYSPACE = "CREATE KEYSPACE a WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
SILENT = {"SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGPIPE", "SIGXFSZ", "SIGTSTP", "SIGTTIN", "SIGTTOU"}
FAULTS = {"SIGKILL", "SIGSTOP", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV", "SIGSYS"}
ENDS = {"SIGTERM", "SIGINT", "SIGQUIT", "SIGPWR", "SIGXCPU"}
PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000


def until(what, check):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {PATIENCE_SECONDS} s")


def exit_code(node, held=None):
    def ended():
        if held:
            try:
                # A thread that is traced is gone only when its tracer has taken note.
                os.waitpid(held, os.WNOHANG | WALL)
            except ChildProcessError:
                pass
        return not node.is_alive()

    until("the end", ended)
    return int((node.work / "exit").read_text())


def hold_thread(pid, name):
    """Stops one thread of a process for good, as a task does that never gives way; None where that is not permitted."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long] * 4
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            thread = int(task.name)
            if ptrace(PTRACE_SEIZE, thread, 0, 0) != 0:
                return None
            assert ptrace(PTRACE_INTERRUPT, thread, 0, 0) == 0
            until("the stop", lambda: "State:\tt" in (task / "status").read_text())
            return thread
    raise AssertionError(f"no thread {name}")


class Signals(unittest.TestCase):
    def node(self, name, config="", shards=2):
        node = Node(f"signals-{name}", config, shards)
        self.addCleanup(shutil.rmtree, node.work, True)
        self.addCleanup(node.kill)
        return node.start()

    def write(self, rows=200):
        with Connection() as c:
            c.query(KEYSPACE)
            c.query("CREATE TABLE a.t (k int PRIMARY KEY)")
            for key in range(rows):
                c.query(f"INSERT INTO a.t (k) VALUES ({key})")

    def count(self):
        with Connection() as c:
            return len(c.query("SELECT k FROM a.t"))

    def test_no_signal_ends_a_node_without_a_line(self):
        node = self.node("all")
        said = 0
        others = [s for s in signal.Signals if s.name not in SILENT | FAULTS | ENDS and s.name != "SIGRTMAX"]
        for sent in others:
            if sent.name in ("SIGRTMIN", "SIGHUP"):
                continue
            os.kill(node.pid(), sent)
            said += 1
            until(f"a line about {sent.name}", lambda: node.log().count("is ignored: SIGTERM drains") == said)
        for name in SILENT - {"SIGTSTP", "SIGTTIN", "SIGTTOU"}:
            os.kill(node.pid(), signal.Signals[name])
        self.write(rows=1)
        self.assertEqual(self.count(), 1)
        self.assertTrue(node.is_alive())
        os.kill(node.pid(), signal.SIGQUIT)
        self.assertEqual(exit_code(node), 0)
        self.assertRegex(node.log(), rf"SIGQUIT of process {os.getpid()}: the node drains and ends")

    def test_sighup_reads_the_configuration_again(self):
        node = self.node("reload", "default_log_level: info\nread_request_timeout: 5s\n")
        disks = node.work / "io.yaml"
        disks.write_text(f"disks: [{{mountpoint: {node.data}, read_iops: 1000, read_bandwidth: 100M, write_iops: 1000, "
                         "write_bandwidth: 100M}]\n")
        node.configure(f"default_log_level: warn\nread_request_timeout: 6s\nio_properties_file: {disks}\n")
        os.kill(node.pid(), signal.SIGHUP)
        line = until("the line", lambda: re.search(r"SIGHUP of process \d+: read again: .*", node.log()))[0]
        self.assertIn("default_log_level warn, shutdown_timeout 60 s", line)
        self.assertTrue(line.endswith("changed and in need of a restart: read_request_timeout"), line)
        node.configure("default_log_level: loud\n")
        os.kill(node.pid(), signal.SIGHUP)
        until("the mistake", lambda: "cannot be read and stays as it was" in node.log())
        self.assertIn("default_log_level: expected 'error' or 'warn'", node.log())
        self.assertTrue(node.is_alive())
        node.stop()

    def test_a_second_sigterm_ends_a_node_whose_shard_is_held(self):
        node = self.node("held", "shutdown_timeout: 0s\n")
        self.write()
        held = hold_thread(node.pid(), "ceto-1")
        if held is None:
            self.skipTest("ptrace is not permitted here: no thread can be held from outside")
        node.terminate()
        until("what it waits for", lambda: re.search(r"ending for \d+ s: .*shard 1 does not answer", node.log()))
        node.terminate()
        self.assertEqual(exit_code(node, held), 1)
        for part in ("came while the node was ending: it ends at once", "shard 1 does not answer"):
            self.assertIn(part, node.log())
        node.start()
        self.assertEqual(self.count(), 200, "nothing that was acknowledged is lost")
        node.stop()

    def test_the_limit_ends_a_node_whose_shard_is_held(self):
        node = self.node("limit", "shutdown_timeout: 2s\n")
        self.write()
        held = hold_thread(node.pid(), "ceto-0")
        if held is None:
            self.skipTest("ptrace is not permitted here: no thread can be held from outside")
        node.terminate()
        self.assertEqual(exit_code(node, held), 1)
        self.assertIn("the node did not end within 2 s (shutdown_timeout): it ends at once", node.log())
        node.start()
        self.assertEqual(self.count(), 200, "nothing that was acknowledged is lost")
        node.stop()


if __name__ == "__main__":
    outcome = unittest.main(exit=False, verbosity=2).result
    failed = len(outcome.failures) + len(outcome.errors)
    print(f"{outcome.testsRun - failed - len(outcome.skipped)} passed, {failed} failed, {len(outcome.skipped)} skipped")
    sys.exit(1 if failed or not outcome.testsRun else 0)
