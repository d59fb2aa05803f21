#!/usr/bin/env python3
"""try.py [SECONDS]  Tries the dashboards and rules with a real Prometheus: three nodes of `ceto local` under load for so many
seconds (150), one of them away for a third of that. Then Prometheus is asked every expression of the dashboards.

Fails if one is an error, or is empty and not in EMPTY. Needs `prometheus` and a build of ceto; by hand, not in CI.

Environment: CETO (target/release/ceto), FIRST (127.0.46.1; nodes have it and the two after it, with their default ports),
PROMETHEUS_PORT (19190). Nodes and Prometheus keep their data in a folder of /tmp that is deleted.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "tests" / folder) for folder in ("admin", "badinput")]
import native  # noqa: E402
import promql  # noqa: E402

CETO = os.environ.get("CETO", HERE.parent / "target" / "release" / "ceto")
FIRST = os.environ.get("FIRST", "127.0.46.1")
PORT = int(os.environ.get("PROMETHEUS_PORT", "19190"))
ADDRESSES = [re.sub(r"\d+$", lambda last: str(int(last.group()) + at), FIRST) for at in range(3)]
#: Variables as they are when a dashboard is opened; sums are by shard.
VARIABLES = {"by": "instance, shard", "job": "ceto", **dict.fromkeys(("cluster", "instance", "shard", "keyspace", "table"), ".*")}
#: Metrics whose expressions may be empty, and why.
EMPTY = {"ceto_node_clock_ahead_us": "the clocks of one machine agree"}
STATEMENTS = (
    "INSERT INTO t.rows (k, l, v) VALUES (%d, 1, 'x')", "UPDATE t.rows SET v = 'y' WHERE k = %d AND l = 1",
    "INSERT INTO t.rows (k, l) VALUES (%d, 2) IF NOT EXISTS", "UPDATE t.rows SET v = 'z' WHERE k = %d AND l = 1 IF v = 'no'",
    "DELETE FROM t.rows WHERE k = %d AND l = 3", "UPDATE t.counts SET n = n + 1 WHERE k = %d",
    "BEGIN BATCH INSERT INTO t.rows (k, l) VALUES (%d, 4); INSERT INTO t.rows (k, l) VALUES (0, 5) APPLY BATCH",
    "BEGIN UNLOGGED BATCH INSERT INTO t.rows (k, l) VALUES (%d, 6) APPLY BATCH", "SELECT * FROM t.rows WHERE k = %d",
    "SELECT * FROM t.rows WHERE k = %d ORDER BY l DESC", "SELECT * FROM t.rows WHERE k > %d LIMIT 10 ALLOW FILTERING",
    "SELECT * FROM t.rows WHERE k = %d BYPASS CACHE", "SELECT nothing FROM t.rows WHERE k = %d",
)


@contextlib.contextmanager
def running(name, *command, folder):
    """A process that is ended with SIGTERM, with its output in a file."""
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen([str(word) for word in command], cwd=folder, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def within(seconds, found, what):
    """Waits until `found` returns something true."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            if result := found():
                return result
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds} s: {what}")
        time.sleep(0.2)


def ask(path, **parameters):
    url = f"http://127.0.0.1:{PORT}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def load(stop):
    """Statements of each kind, some hundred a second, until told to stop."""
    native.HOST, native.PORT = FIRST, 9042
    with native.Connection() as connection:
        connection.query("CREATE KEYSPACE t WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}")
        connection.query("CREATE TABLE t.rows (k int, l int, v text, PRIMARY KEY (k, l)) WITH speculative_retry = 'ALWAYS'")
        connection.query("CREATE TABLE t.counts (k int PRIMARY KEY, n counter)")
        connection.prepare("SELECT * FROM t.rows WHERE k = ?")
        key = 0
        while not stop.wait(0.02):
            key = (key + 1) % 500
            for statement in STATEMENTS:
                # Refused ones count as errors, which are shown too.
                with contextlib.suppress(native.Refused):
                    connection.query(statement % key)


def expressions():
    """Each dashboard's panels with their expressions."""
    for path in sorted((HERE / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                yield f"{path.stem}, {panel['title']}", promql.without_variables(target["expr"], VARIABLES)


def judged():
    """Asks every expression; returns the number of those that are wrong."""
    asked = wrong = 0
    for place, expression in expressions():
        answer, asked = ask("query", query=expression), asked + 1
        names = {selector.metric for selector in promql.parse(expression)[0]}
        if answer["status"] != "success":
            print(f"ERROR {place}: {answer['error']}\n      {expression}")
        elif not answer["data"]["result"]:
            why = next((EMPTY[name] for name in names if name in EMPTY), None)
            print(f"empty {place}: {why or 'it should not be'}\n      {expression}")
            if why:
                continue
        else:
            continue
        wrong += 1
    rules = [rule for group in ask("rules")["data"]["groups"] for rule in group["rules"]]
    for rule in rules:
        if rule["health"] != "ok":
            print(f"ERROR rule {rule['name']}: {rule.get('lastError', rule['health'])}")
            wrong += 1
    firing = sorted(rule["name"] for rule in rules if rule.get("state") in ("firing", "pending"))
    print(f"{asked} expressions and {len(rules)} rules, {wrong} of them wrong; alerts pending or firing: {firing}")
    return wrong


def configure(folder):
    """The configuration of this repository with these nodes' addresses and a shorter interval."""
    text = (HERE / "prometheus" / "prometheus-local.yml").read_text()
    for at, address in enumerate(ADDRESSES):
        text = text.replace(f"127.0.0.{at + 1}:", f"{address}:")
    (folder / "prometheus.yml").write_text(text.replace("interval: 15s", "interval: 5s"))
    (folder / "ceto.rules.yml").write_bytes((HERE / "prometheus" / "ceto.rules.yml").read_bytes())


def main(seconds):
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ceto-dashboards-")))
        configure(folder)
        local = [CETO, "local", "--dir", folder / "nodes"]
        stack.enter_context(running("nodes", *local, "--nodes", 3, "--first", FIRST, "--smp", 2, "--memory", "256M",
                                    "--", "--overprovisioned", folder=folder))
        within(60, lambda: "ceto local: ready" in (folder / "nodes.log").read_text(), "three nodes that agree")
        stack.enter_context(running("prometheus", "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=series",
                                    f"--web.listen-address=127.0.0.1:{PORT}", folder=folder))
        stop = threading.Event()
        statements = threading.Thread(target=load, args=(stop,))
        statements.start()
        stack.callback(statements.join)
        stack.callback(stop.set)
        written = "write n=5000 cl=QUORUM -rate threads=4 -schema replication(factor=3) -node"
        subprocess.run([CETO, "stress", *written.split(), FIRST], cwd=folder, check=True, capture_output=True, timeout=120)
        stress = f"mixed duration={seconds}s cl=QUORUM -pop seq=1..5000 -rate threads=4 throttle=200/s -errors ignore -node"
        stack.enter_context(running("stress", CETO, "stress", *stress.split(), FIRST, folder=folder))
        within(60, lambda: ask("query", query="sum(up)")["data"]["result"], "a scrape")
        for step in (["kill", "3"], ["start", "3"], ["status"]):
            time.sleep(seconds / 3)
            subprocess.run([*local, *step], cwd=folder, check=True, timeout=120)
            if step[0] == "start":
                for address in ADDRESSES:
                    subprocess.run([CETO, "ctl", "-h", address, "flush"], check=True, timeout=120)
        return judged()


if __name__ == "__main__":
    # What was started is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(1 if main(int(sys.argv[1]) if len(sys.argv) > 1 else 150) else 0)
