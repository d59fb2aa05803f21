"""One node under test, through `tests/node.sh`, and what can be seen of it from outside."""

import os
import shutil
import signal
import subprocess
import unittest
from pathlib import Path

import native

REPO = Path(__file__).resolve().parents[2]
NODE_SH = REPO / "tests" / "node.sh"
RUNS = REPO / ".cache" / "runs" / f"badinput-{native.PORT}"
BINARY = Path(os.environ.get("CETO", REPO / "target" / "release" / "ceto"))


class Node:
    """A node with a folder of its own, deleted when everything in it went well."""

    def __init__(self, name, config="", shards=1, workdir=None, memory="256M"):
        self.work = workdir or RUNS / name
        self.shards, self.memory = shards, memory
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.configure(config)

    def configure(self, config):
        (self.work / "config.yaml").write_text(config)

    def _call(self, action):
        args = f"--config {self.work / 'config.yaml'}"
        env = {**os.environ, "PORT": str(native.PORT), "CETO_ARGS": args, "NODE_MEMORY": self.memory, "PEER": "ceto"}
        command = [NODE_SH, action, self.work, str(self.shards)]
        # What Python ignores stays ignored: a write beyond a limit of file sizes is an error then, and not the node's end.
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=150, restore_signals=False)

    def start(self):
        done = self._call("start")
        assert done.returncode == 0, done.stderr
        return self

    def start_fails(self):
        """What a start that has to fail prints."""
        done = self._call("start")
        if done.returncode == 0:
            self.kill()
            raise AssertionError("the node started")
        return done.stderr

    def stop(self):
        done = self._call("stop")
        assert done.returncode == 0, done.stderr

    def kill(self):
        if (self.work / "pid").exists() and self.is_alive():
            self._call("kill")

    def pid(self):
        return int((self.work / "pid").read_text())

    def terminate(self):
        os.kill(self.pid(), signal.SIGTERM)

    def is_alive(self):
        return not (self.work / "exit").exists()

    def rss_mb(self):
        """What the node holds in memory of its own: pages of files, such as the binary's debug information that a report of a
        stall reads, are the kernel's to take back."""
        for line in Path(f"/proc/{self.pid()}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) // 1024
        raise AssertionError("no RssAnon")

    def open_files(self):
        return len(os.listdir(f"/proc/{self.pid()}/fd"))

    def log(self):
        return (self.work / "node.log").read_text(errors="replace")

    @property
    def data(self):
        return self.work / "data"


class NodeTest(unittest.TestCase):
    """Tests that share a node; after each one a fresh connection is answered and memory is what it was, nearly."""

    CONFIG = ""
    SHARDS = 2
    RSS_GROWTH_MB = 96

    @classmethod
    def setUpClass(cls):
        cls.node = Node(cls.__name__, cls.CONFIG, cls.SHARDS).start()
        cls.addClassCleanup(cls.node.kill)
        cls.rss_before_mb = cls.node.rss_mb()
        cls.prepare_data()

    @classmethod
    def prepare_data(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        cls.node.stop()
        panics = [line for line in cls.node.log().splitlines() if "panic" in line]
        assert not panics, panics
        shutil.rmtree(cls.node.work, ignore_errors=True)

    def tearDown(self):
        self.assertTrue(self.node.is_alive(), "the node lives: " + self.node.log()[-2000:])
        self.assert_healthy()
        grown = self.node.rss_mb() - self.rss_before_mb
        self.assertLess(grown, self.RSS_GROWTH_MB, "memory grew by that many MiB")

    def assert_healthy(self):
        for version in (3, 4, 5):
            with native.Connection(version) as connection:
                rows = connection.query("SELECT key FROM system.local")
                self.assertEqual(rows, [[b"local"]])
