"""`ceto shell` as a process: one run with its outputs, or a session at a pseudo-terminal."""

import errno
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
import unittest
from pathlib import Path

import native
from node import BINARY, RUNS, Node

PATIENCE_SECONDS = 20
HOST = "127.0.0.1"


def run(*options, stdin="", port=None, folder=None, environment=None):
    """Runs the shell to its end; its exit code, and its outputs."""
    command = [BINARY, "shell", HOST, str(port or native.PORT), *map(str, options)]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_SECONDS, cwd=folder,
        env={**os.environ, "CETO_SHELL_HISTORY": "", **(environment or {})}, check=False)
    return done.returncode, done.stdout, done.stderr


def rows(text):
    """The lines of a result that say something."""
    return [line for line in text.splitlines() if line.strip()]


class ShellTest(unittest.TestCase):
    """Tests with a node of two shards, and a folder for files."""

    KEYSPACE = "k"

    @classmethod
    def setUpClass(cls):
        cls.node = Node(f"shell-{cls.__name__}", shards=2)
        cls.addClassCleanup(cls.node.kill)
        cls.node.start()
        cls.folder = cls.node.work / "files"
        cls.folder.mkdir()
        cls.cql(f"CREATE KEYSPACE {cls.KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}};"
                + cls.TABLES)

    TABLES = ""

    @classmethod
    def cql(cls, statements, *options):
        """Runs statements that have to succeed; what they print."""
        keyspace = () if statements.startswith("CREATE KEYSPACE") else ("-k", cls.KEYSPACE)
        code, out, err = run(*keyspace, *options, "-e", statements, folder=cls.folder)
        assert (code, err) == (0, ""), (code, out, err)
        return out

    @classmethod
    def tearDownClass(cls):
        cls.node.stop()
        panics = [line for line in cls.node.log().splitlines() if "panic" in line]
        assert not panics, panics
        shutil.rmtree(cls.node.work, ignore_errors=True)


class Terminal:
    """A session at a pseudo-terminal of 24 lines and 120 columns."""

    def __init__(self, *options, folder, environment=None):
        pid, self.fd = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.environ.update({"TERM": "xterm", "NO_COLOR": "1", "CETO_SHELL_HISTORY": str(Path(folder) / "history"), **(environment or {})})
            os.execv(BINARY, [str(BINARY), "shell", HOST, str(native.PORT), *options])
        self.pid, self.raw, self.text = pid, "", ""
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))

    def send(self, text):
        os.write(self.fd, text.encode())

    def expect(self, pattern):
        """Waits for a pattern behind what was expected before; returns the text up to its end."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := re.search(pattern, self.text)):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0] or not self._read():
                raise AssertionError(f"no {pattern!r} in {self.text!r}")
        text, self.text = self.text[: found.end()], self.text[found.end() :]
        return text

    def _read(self):
        try:
            data = os.read(self.fd, 65536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""
        self.raw += data.decode(errors="replace")
        # A code, or a return to the begin of the line, may not be whole yet.
        whole = re.match(r"(?s).*?(?=(\r|\x1b\[?[0-9;?]*)?\Z)", self.raw)[0]
        self.raw = self.raw[len(whole) :]
        # Codes that move the cursor and switch modes say nothing here.
        self.text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r(?!\n)", "", whole)
        return data

    def end(self):
        """Waits for the end; the exit code."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                os.kill(self.pid, signal.SIGKILL)
                raise AssertionError(f"it did not end: {self.text!r}")
            if not self._read():
                break
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)
