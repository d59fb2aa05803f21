"""Processes of the tests: nodes started as packages start them, each in a folder that stays if a test fails."""

import os
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

import native

REPO = Path(__file__).resolve().parents[2]
PACKAGING = REPO / "packaging"
BINARY = Path(os.environ.get("CETO", REPO / "target" / "release" / "ceto")).absolute()
RUNS = REPO / ".cache" / "runs" / f"packaging-{native.PORT}"
PATIENCE_SECONDS = 60
# No test needs the default ports, so that these run beside a node and beside other suites.
PORTS = ["--port", str(native.PORT), "--shard-aware-port", str(native.PORT + 1), "--api-port", str(native.PORT + 2),
         "--prometheus-port", str(native.PORT + 3)]
SMALL = ["--smp", "2", "--memory", "256M", "--overprovisioned"]


def until(what, check):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not happen within {PATIENCE_SECONDS} s")


def run(*command, code=0, **options):
    """Standard output of a command that has to end with `code`."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE_SECONDS, **options)
    assert done.returncode == code, f"{command}: code {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


class Process:
    """A process with its output in a file."""

    def __init__(self, work, command, **options):
        self.log_path = work / "process.log"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_until_ready(self):
        def ready():
            assert self.process.poll() is None, self.log()
            return "\nceto ready on " in "\n" + self.log()
        until("the start", ready)
        return self

    def end(self):
        """Ends the node with a drain, which has to succeed."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_SECONDS)
        assert code == 0, (code, self.log())

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class ProcessTest(unittest.TestCase):
    """Tests with a folder of their own, `self.work`."""

    def setUp(self):
        self.work = RUNS / self.id().rsplit(".", 1)[1]
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)

    def tearDown(self):
        # Errors of this very test are noted only after this.
        if self._outcome.success:
            shutil.rmtree(self.work, ignore_errors=True)

    def start(self, *command, **options):
        process = Process(self.work, command, cwd=self.work, **options)
        self.addCleanup(process.kill)
        return process


def main():
    """Runs the tests of the calling file, and ends with the line that all suites have."""
    program = unittest.main(exit=False)
    result = program.result
    failed, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    raise SystemExit(bool(failed))
