"""One `ceto local` under test: its process, what it prints, and the verbs that another terminal would use."""

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from ipaddress import IPv4Address
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("CETO", REPO / "target" / "release" / "ceto")).absolute()
NODES = int(os.environ.get("NODES", "1"))
FIRST = os.environ.get("FIRST", "127.0.44.1")
RUNS = REPO / ".cache" / "runs" / f"local-{FIRST}-{NODES}"
PATIENCE_SECONDS = 60


def until(what, check):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {PATIENCE_SECONDS} s")


def is_alive(pid):
    """Whether a process runs: one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def address(node):
    return str(IPv4Address(FIRST) + node - 1)


def start_fails(*options):
    """Runs a start that has to be refused, and returns its errors."""
    done = subprocess.run([BINARY, "local", *options], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    return done.stderr


class Cluster:
    """A cluster in a folder of its own, which stays if the test fails."""

    def __init__(self, name, nodes=NODES, options=(), keeps=False):
        self.work = RUNS / name
        self.directory = self.work / "cluster"
        if not keeps:
            shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True, exist_ok=True)
        command = [BINARY, "local", "--nodes", str(nodes), "--dir", self.directory, "--first", FIRST, "--memory", "256M"]
        self.process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.own, self.of_nodes = [], []
        outputs = ((self.process.stdout, self.own), (self.process.stderr, self.of_nodes))
        self.readers = [threading.Thread(target=lines.extend, args=(pipe,), daemon=True) for pipe, lines in outputs]
        for reader in self.readers:
            reader.start()

    def said(self, pattern):
        """The first line of the supervisor or a node that matches, if any."""
        for line in [*self.own, *self.of_nodes]:
            if found := re.search(pattern, line):
                return found
        return None

    def wait_for(self, pattern):
        return until(f"a line like '{pattern}'", lambda: self.said(pattern))

    def wait_until_ready(self):
        self.wait_for(r"^ceto local: ready: ")
        return self

    def pids(self):
        """The processes of all nodes, in order, as they were first started."""
        until("the start of all", lambda: len(self.started()) == NODES)
        return self.started()

    def started(self):
        return [int(found[1]) for line in self.own if (found := re.search(r"starts node \d+ on .* as process (\d+)", line))]

    def verb(self, *words, code=0):
        command = [BINARY, "local", *map(str, words), "--dir", self.directory]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def status(self):
        """The rows of the table, as dictionaries by the names of its columns."""
        header, *rows = [re.split(r"\s{2,}", line.strip()) for line in self.verb("status").splitlines()]
        return [dict(zip(header, row, strict=True)) for row in rows]

    def end(self, sent=signal.SIGINT):
        """Tells it to end, and waits until it and all its output have ended; its exit code."""
        self.process.send_signal(sent)
        return self.wait()

    def wait(self):
        code = self.process.wait(PATIENCE_SECONDS)
        for reader in self.readers:
            reader.join(PATIENCE_SECONDS)
        return code

    def clean_up(self, passed):
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        self.process.stdout.close()
        self.process.stderr.close()
        self.work.mkdir(parents=True, exist_ok=True)
        (self.work / "local.log").write_text("".join([*self.own, *self.of_nodes]))
        if passed:
            shutil.rmtree(self.work, ignore_errors=True)
