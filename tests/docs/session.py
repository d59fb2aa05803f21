"""One page of the manual, carried out from its top to its end.

A fence's info string says what becomes of its block; words are separated by commas:
- `sh`: run by bash in the page's folder, with `ceto` and `cqlsh` on PATH; `exit=N` is the wanted exit code (0).
- `sh,start`: run in the background. The page goes on once it says that it is ready; it ends with the page.
- `cql`: run as by `cqlsh -f`; with `fails` its last statement is refused.
- `FORMAT,file=F`: written to the file F of the page's folder.
- `text,output`: the output of the block before it. A line `...` is any lines, `...` in a line any text; blank
  lines and the width of blanks do not count. With `like` a number is any number and an id any id.
- `norun`: not run; a comment `<!-- norun: REASON -->` stands before it (`ignore` is for `mdbook test`).
- `mermaid`: a drawing.
Comments steer the page:
- `<!-- test: node [OPTIONS] -->` starts a node that the text takes for granted.
- `<!-- test: stop -->` ends what was started last by SIGINT, as Ctrl-C does.
- `<!-- test: await PATTERN -->` repeats the next block until its output has the pattern, or waits until what it
  starts has said so.
- `<!-- test: metrics -->` looks for all metrics of the page in those of the node.
"""

import os
import re
import shlex
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import cql

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
BINARY = Path(os.environ.get("CETO", REPO / "target" / "release" / "ceto")).resolve()
CQLSH = os.environ.get("CQLSH")
BLOCK_SECONDS = 30
READY = re.compile(r"^ceto (ready|local: ready)", re.M)
WORDS = {"fails", "ignore", "like", "norun", "output", "start"}
OPTIONS = {"exit", "file"}
TOKEN = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b(?=[a-f]*\d)[0-9a-f]{8,}\b|\d+(?:\.\d+)?")


class Wrong(Exception):
    """The page is not true: a line of it and the reason."""

    def __init__(self, line, reason):
        super().__init__(f"line {line}: {reason}")


def pattern_of(wanted, is_like):
    """A regular expression for the output that a page shows."""

    def part(text):
        pieces, at = [], 0
        for found in TOKEN.finditer(text) if is_like else ():
            pieces += [re.escape(text[at : found.start()]), r"[0-9a-f.-]+" if len(found[0]) > 7 else r"\d+(?:\.\d+)?"]
            at = found.end()
        return "".join(pieces) + re.escape(text[at:])

    lines = []
    for line in squeezed(wanted).splitlines():
        lines.append(r"(?:.*\n)*?" if line == "..." else ".*".join(part(text) for text in line.split("...")) + r"\n")
    return re.compile("".join(lines))


def squeezed(text):
    """Without blank lines and with single blanks."""
    lines = (re.sub(r"[ \t]+", " ", line).strip() for line in text.splitlines())
    return "".join(line + "\n" for line in lines if line)


def matches(wanted, output, is_like):
    return bool(pattern_of(wanted, is_like).fullmatch(squeezed(output)))


class Started:
    """A process of the page that runs in the background, in a process group of its own."""

    def __init__(self, command, folder, environment, log):
        self.log = log
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                ["bash", "-euc", "exec " + command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True)

    def output(self):
        return self.log.read_text(errors="replace")

    def wait_for(self, pattern):
        deadline = time.monotonic() + BLOCK_SECONDS
        while not pattern.search(self.output()):
            if self.process.poll() is not None:
                raise RuntimeError(f"it ended with code {self.process.returncode}:\n{self.output()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"it did not say {pattern.pattern} within {BLOCK_SECONDS} s:\n{self.output()}")
            time.sleep(0.01)

    def end(self, number=signal.SIGINT):
        """Ends it as Ctrl-C does; its exit code, None if it had to be killed."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(BLOCK_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Session:
    """A page's folder, its processes and the output of its last block."""

    def __init__(self, page, folder, tools):
        self.page, self.folder = page, folder
        self.environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
        self.started, self.output, self.comment, self.awaited = [], None, None, None
        self.ran = self.left_out = 0

    def run(self):
        try:
            for item in self.page.items:
                try:
                    if hasattr(item, "words"):
                        self.block(item)
                    else:
                        self.comment_of(item)
                except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                    raise Wrong(item.line, str(error)) from error
            while self.started:
                self.stop(0)
        finally:
            for process in self.started:
                process.kill()

    def comment_of(self, item):
        self.comment = item
        if item.name != "test":
            return
        action, _, rest = item.text.partition(" ")
        if action == "node":
            self.start("ceto server " + rest)
        elif action == "stop":
            self.stop(item.line)
        elif action == "await":
            self.awaited = re.compile(rest)
        elif action == "metrics":
            self.metrics(item.line)
        else:
            raise Wrong(item.line, f"nothing is known of '{action}'")

    def start(self, command):
        process = Started(command, self.folder, self.environment, self.folder / f"started-{len(self.started)}.log")
        self.started.append(process)
        awaited, self.awaited = self.awaited, None
        process.wait_for(READY)
        if awaited:
            process.wait_for(awaited)
        self.output = process.output()

    def stop(self, line):
        process = self.started.pop()
        code = process.end()
        self.output = process.output()
        if code != 0:
            raise Wrong(line, f"ended with code {code}:\n{self.output}")

    def metrics(self, line):
        """Every metric that the page names is one of the node's."""
        with urllib.request.urlopen("http://127.0.0.1:9180/metrics", timeout=BLOCK_SECONDS) as answer:
            there = set(re.findall(r"^(\w+)", answer.read().decode(), re.M))
        named = {name for _, text in self.page.prose for name in re.findall(r"`((?:scylla|ceto|reactor)_\w+)`", text)}
        if not named or named - there:
            raise Wrong(line, f"the node has no metrics {sorted(named - there)}")

    def block(self, block):
        comment, self.comment = self.comment, None
        unknown = [word for word in block.words[1:] if word not in WORDS and word.split("=")[0] not in OPTIONS]
        if unknown:
            raise Wrong(block.line, f"nothing is known of {unknown} in the fence")
        if block.has("norun"):
            if not (comment and comment.name == "norun" and comment.text):
                raise Wrong(block.line, "a block that is not run needs a comment <!-- norun: REASON --> before it")
            self.left_out += 1
        elif block.option("file"):
            (self.folder / block.option("file")).write_text(block.text + "\n")
        elif block.has("output"):
            self.compare(block)
        elif block.language in ("sh", "cql"):
            self.ran += 1
            self.carry_out(block)
        elif block.language != "mermaid":
            raise Wrong(block.line, f"a block '{block.language}' is neither run nor marked norun")

    def compare(self, block):
        if self.output is None:
            raise Wrong(block.line, "there is nothing before it that has an output")
        if not matches(block.text, self.output, block.has("like")):
            raise Wrong(block.line, f"the page shows\n{block.text}\n--- but there is\n{self.output}")

    def carry_out(self, block):
        if block.has("start"):
            return self.start(block.text)
        awaited, self.awaited = self.awaited, None
        deadline = time.monotonic() + BLOCK_SECONDS
        while True:
            code, self.output = self.shell(block)
            wanted = 2 if block.has("fails") else int(block.option("exit", 0))
            if code == wanted and (awaited is None or awaited.search(self.output)):
                return None
            if awaited is None or time.monotonic() > deadline:
                raise Wrong(block.line, f"exit code {code} and not {wanted}:\n{block.text}\n---\n{self.output}")
            time.sleep(0.05)

    def shell(self, block):
        """The exit code and the output of a block."""
        command = block.text
        if block.language == "cql" and not CQLSH:
            # As cqlsh here does, without a process.
            out, is_well = cql.run(block.text, patience_seconds=0 if block.has("fails") else cql.PATIENCE_SECONDS)
            return 0 if is_well else 2, out
        if block.language == "cql":
            (self.folder / "block.cql").write_text(block.text)
            command = "cqlsh -f block.cql"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=BLOCK_SECONDS)
        return done.returncode, of_cqlsh(done.stdout) if CQLSH else done.stdout


def of_cqlsh(output):
    """The real cqlsh's output without its warning of versions and the place of a mistake in the file."""
    output = re.sub(r"WARNING: cqlsh was built against.*\n", "", output)
    return re.sub(r"(?m)^[\w.<>]+:\d+:(?=\w+: )", "", output)


def make_tools(folder):
    """`ceto` and `cqlsh` as the pages call them."""
    folder.mkdir(parents=True)
    (folder / "ceto").symlink_to(BINARY)
    cqlsh = shlex.quote(CQLSH) if CQLSH else f"python3 {shlex.quote(str(HERE / 'cql.py'))}"
    (folder / "cqlsh").write_text(f'#!/bin/sh\nexec {cqlsh} "$@"\n')
    (folder / "cqlsh").chmod(0o755)
    return folder
