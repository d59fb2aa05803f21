"""systemd's unit, and the messages that a service manager gets from the node."""

import os
import re
import shutil
import signal
import socket
import struct
import tempfile
import time

import native
import process
from process import BINARY, PACKAGING, PORTS, SMALL, ProcessTest, run, until
from test_signals import WALL, hold_thread

UNIT = PACKAGING / "systemd" / "ceto.service"
OPTIONS_FRAME = bytes([4, 0, 0, 0, native.OPTIONS]) + struct.pack(">I", 0)


def unit_settings():
    """The unit's settings; of one that is there several times the last."""
    lines = [line for line in UNIT.read_text().splitlines() if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


class Manager:
    """The socket of a service manager, which keeps what it was told."""

    def __init__(self, address):
        self.messages = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setblocking(False)

    def told(self):
        """All messages so far."""
        while True:
            try:
                self.messages.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return self.messages

    def was_told(self, pattern):
        return next((message for message in self.told() if re.search(pattern, message, re.M)), None)


def answer():
    """Whether a client is answered now."""
    try:
        with socket.create_connection((native.HOST, native.PORT), 5) as client:
            client.sendall(OPTIONS_FRAME)
            return client.recv(9)[4] == native.SUPPORTED
    except ConnectionRefusedError:
        return False


def ended(process, held):
    """Whether a process has ended; a thread that is traced is gone only when its tracer has taken note."""
    try:
        os.waitpid(held, os.WNOHANG | WALL)
    except ChildProcessError:
        pass
    return process.poll() is not None


class Service(ProcessTest):
    def path(self):
        """A path for a socket; 107 bytes are the most that one may have, and the directory of temporary files may be deep."""
        folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.addCleanup(folder.cleanup)
        return os.path.join(folder.name, "notify")

    def node(self, address, *options):
        manager = Manager(address)
        self.addCleanup(manager.socket.close)
        command = [BINARY, "server", "--workdir", "data", *PORTS, *SMALL, *options]
        return manager, self.start(*command, env={**os.environ, "NOTIFY_SOCKET": address})

    def ready_before_the_first_answer_and_stopping_at_sigterm(self, address):
        manager, node = self.node(address)
        until("an answer", answer)
        ready = manager.was_told("^READY=1$")
        self.assertIsNotNone(ready, "a client was answered before the manager knew")
        self.assertIn(f"STATUS=Answers clients on {native.HOST}:{native.PORT}", ready)
        steps = [message for message in manager.told() if message.startswith("STATUS=Starts: ")]
        self.assertIn("STATUS=Starts: opens table files and replays the commit log", steps)
        self.assertIsNone(manager.was_told("^STOPPING=1$"))
        node.end()
        self.assertIn("\nSTATUS=Drains", manager.was_told("^STOPPING=1$") or "")
        self.assertEqual(sum("READY=1" in message for message in manager.told()), 1)

    def test_a_manager_with_a_path_knows_of_the_start_and_the_end(self):
        self.ready_before_the_first_answer_and_stopping_at_sigterm(self.path())

    def test_a_manager_with_an_abstract_socket_knows_of_the_start_and_the_end(self):
        self.ready_before_the_first_answer_and_stopping_at_sigterm(f"@ceto-packaging-{os.getpid()}")

    def test_a_long_start_asks_for_more_time(self):
        # The seed does not answer, so the node waits for its cluster.
        manager, node = self.node(self.path(), "--seeds", "127.0.0.77:9", "--listen", "127.0.0.78")
        begun = time.monotonic()
        message = until("a message", lambda: manager.was_told("^EXTEND_TIMEOUT_USEC="))
        self.assertLess(time.monotonic() - begun, int(unit_settings()["TimeoutStartSec"]) / 2)
        extension = int(re.match(r"EXTEND_TIMEOUT_USEC=(\d+)", message)[1])
        self.assertGreaterEqual(extension, 15_000_000, "three times the interval of messages")
        self.assertRegex(message, r"STATUS=Starts: for \d+ s, .*commit log and meets the other nodes; \d+ MiB of commit log")
        self.assertIsNone(manager.was_told("^READY=1$"))
        node.process.send_signal(signal.SIGTERM)
        self.assertEqual(node.process.wait(process.PATIENCE_SECONDS), 0)
        self.assertIsNotNone(manager.was_told("^STOPPING=1$"))

    def test_a_long_drain_asks_for_more_time_until_it_ends_at_once(self):
        manager, node = self.node(self.path(), "--shutdown-timeout", "2")
        node.wait_until_ready()
        held = hold_thread(node.process.pid, "ceto-1")
        if held is None:
            node.end()
            self.skipTest("ptrace is not permitted here: no thread can be held from outside")
        # In any case: nobody else can take note of the end of a thread that is traced.
        self.addCleanup(lambda: (node.process.kill(), until("the end", lambda: ended(node.process, held))))
        node.process.send_signal(signal.SIGTERM)
        message = until("a message", lambda: manager.was_told("^STATUS=Drains for "))
        self.assertRegex(message, r"^EXTEND_TIMEOUT_USEC=\d{8,}\nSTATUS=Drains for \d+ s: .*shard 1 does not answer")
        # The node then gives its shards some seconds to make their commit logs durable.
        message = until("a message", lambda: manager.was_told("^STATUS=Ends without a drain$"))
        self.assertRegex(message, r"^EXTEND_TIMEOUT_USEC=")

    def test_a_node_without_a_manager_or_with_a_wrong_address_starts_all_the_same(self):
        command = [BINARY, "server", "--workdir", "data", *PORTS, *SMALL]
        node = self.start(*command, env={**os.environ, "NOTIFY_SOCKET": "/nowhere/notify"}).wait_until_ready()
        self.assertIn("the service manager cannot be told", node.log())
        node.end()


class Unit(ProcessTest):
    def test_time_limits_fit_the_node(self):
        settings = unit_settings()
        self.assertEqual(settings["Type"], "notify")
        # shutdown_timeout, then the sync of the commit log (SYNC_TIME in boot/signals.rs), then a margin.
        sample = run(BINARY, "config", "sample")
        drain = int(re.search(r"^#shutdown_timeout: (\d+)s$", sample, re.M)[1])
        self.assertGreaterEqual(int(settings["TimeoutStopSec"]), drain + 5 + 10)

    def test_systemd_finds_nothing_wrong_with_the_unit(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not here")
        # The binary is where this build put it, and its man page is not installed.
        unit = self.work / "ceto.service"
        unit.write_text(UNIT.read_text().replace("/usr/bin/ceto", str(BINARY)))
        self.assertEqual(run("systemd-analyze", "verify", "--man=no", unit, stdin=None), "")

    def test_the_user_of_the_unit_is_made(self):
        if not shutil.which("systemd-sysusers"):
            self.skipTest("systemd-sysusers is not here")
        (self.work / "etc").mkdir()
        rules = (PACKAGING / "systemd" / "ceto.sysusers").read_text()
        run("systemd-sysusers", f"--root={self.work}", "-", input=rules)
        users = (self.work / "etc" / "passwd").read_text()
        settings = unit_settings()
        self.assertRegex(users, rf"(?m)^{settings['User']}:x:\d+:\d+:[^:]*:{settings['WorkingDirectory']}:/usr/sbin/nologin$")


if __name__ == "__main__":
    process.main()
