"""Three nodes of ceto beside three of Cassandra: the same requests at every level, with all nodes up, one down, two down, and with nodes
that stand still. Outcome, code, numbers, message and rows have to be alike.

    three.py [STATE...]      up, one-down, two-down, one-still, two-still

Numbers are those that errors carry: required and alive or received replicas, write type, whether data came, reasons of failures. A
difference is accepted when a line of three.txt covers it: `KIND | REGULAR EXPRESSION | REASON`, where the expression is searched in the
text `state level statement => ceto's answer => Cassandra's answer`. Any other makes the exit code 1.
"""

import collections
import os
import shutil
import signal
import sys
from pathlib import Path

import native
import three_answers as answers
import three_statements as statements
from differential import read_allowed
from test_agreement import RUNS, Node, until

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "perf"))
from house import clusters  # noqa: E402

STATES = ("up", "one-down", "two-down", "one-still", "two-still")
# Both servers wait so long for replicas: less than either needs to take a node that stands still for down.
TIMEOUTS_MS = 1000
TIMEOUTS = ("read_request_timeout", "range_request_timeout", "write_request_timeout", "counter_write_request_timeout", "truncate_request_timeout",
            "cas_contention_timeout")
FIRST = int(os.environ["FIRST"])
PEER_MEMORY = os.environ.get("HEAP", "512M")
PEER_JMX_PORT = 17461
VERSION = int(os.environ.get("PROTOCOL", "5"))


def states(pid):
    """States of the threads of a process."""
    return {stat.read_text().rsplit(")", 1)[1].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")}


class Server:
    """Three nodes of one kind. The first is asked."""

    def __init__(self, name):
        self.name, self.connection = name, None

    def ask(self, statement, level, serial=None, batch=None):
        try:
            if self.connection is None:
                native.HOST, native.PORT = self.hosts[0], 9042
                self.connection = native.Connection(version=VERSION, timeout=60)
            return answers.ask(self.connection, statement, level, serial, batch)
        except (OSError, AssertionError) as lost:
            self.connection = None
            return {"outcome": "lost", "message": repr(lost)}

    def done(self, statement, level=statements.QUORUM):
        answer = self.ask(statement, level)
        assert answer["outcome"] == "done", (self.name, statement, answer)
        return answer

    def is_done(self, statement, level):
        return self.ask(statement, level)["outcome"] == "done"

    def hold(self, nodes):
        """Has nodes stand still. A signal takes effect once a thread of theirs runs, which is late on a busy machine."""
        for node in nodes:
            os.kill(self.pid(node), signal.SIGSTOP)
        for node in nodes:
            until("a node to stand still", lambda: states(self.pid(node)) == {"T"})

    def release(self, nodes):
        for node in nodes:
            os.kill(self.pid(node), signal.SIGCONT)


class Ceto(Server):
    def __init__(self):
        super().__init__("ceto")
        self.nodes = [Node(number, f"127.0.0.{FIRST}", shards=1) for number in (1, 2, 3)]
        self.hosts = [node.address for node in self.nodes]
        for node in self.nodes:
            with open(node.work / "config.yaml", "a") as config:
                config.write("".join(f"{key}: {TIMEOUTS_MS}ms\n" for key in TIMEOUTS))

    def start(self):
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.ready()

    def pid(self, node):
        return self.nodes[node].process.pid

    def end(self, node):
        self.nodes[node].end()

    def begin(self, node):
        self.nodes[node].start().ready()

    def stop(self):
        for node in self.nodes:
            if node.process and node.process.poll() is None:
                node.process.kill()
                node.process.wait()


class Cassandra(clusters.Cassandra, Server):
    def __init__(self, work):
        Server.__init__(self, "cassandra")
        clusters.PEER_FIRST, clusters.PEER_JMX_PORT = f"127.0.0.{FIRST + 3}", PEER_JMX_PORT
        clusters.Cassandra.__init__(self, "stock", str(work), "", 3, PEER_MEMORY)

    def environment(self, node):
        made = super().environment(node)
        settings = "".join(f" -Dcassandra.settings.{key}={TIMEOUTS_MS}ms" for key in TIMEOUTS)
        return made | {"JVM_EXTRA": made["JVM_EXTRA"] + settings + " -Dcassandra.config.allow_system_properties=true"}

    def pid(self, node):
        return int((Path(self.data[node]) / "pid").read_text())

    def end(self, node):
        pid = self.pid(node)
        os.kill(pid, signal.SIGTERM)
        until("the end of Cassandra's node", lambda: not Path(f"/proc/{pid}").exists())
        (Path(self.data[node]) / "pid").unlink()


class Comparison:
    """Gives both the same requests, and keeps what differs."""

    def __init__(self, servers, allowed):
        self.servers, self.allowed = servers, allowed
        self.asked, self.used = 0, collections.Counter()
        self.found = []

    def compare(self, state, request, level, key):
        got = [server.ask(request.text(server.name, key), level, request.serial, request.batch_of(server.name, key)) for server in self.servers]
        self.asked += 1
        for kind, mine, theirs in answers.differences(*got):
            shown = f"{state} {answers.LEVELS[level]} {request.name}: {request.text('ceto', key)} => {mine} => {theirs}"
            reason = next((r for k, e, r in self.allowed if k == kind and e.search(shown)), None)
            if reason:
                self.used[reason] += 1
            else:
                self.found.append((kind, shown))
        return got

    def all_levels(self, state):
        for number, request in enumerate(statements.requests()):
            for level in request.levels:
                key = 1_000_000 * STATES.index(state) + 1000 * number + 10 * level
                for statement in request.prepared(key):
                    for server in self.servers:
                        # As far as it goes: with nodes down nothing may be there.
                        server.ask(statement, statements.ONE)
                self.compare(state, request, level, key)


def schema_versions(server):
    """Those of all nodes, as the first one shows them."""
    tables = ("local", "peers")
    return {row for table in tables for row in server.done(f"SELECT schema_version FROM system.{table}", statements.ONE)["rows"].split("; ")}


def wait_until_up(servers):
    for server in servers:
        until(f"all nodes of {server.name}", lambda: server.is_done("SELECT k FROM three.t WHERE k = 1", statements.ALL))


def wait_until_down(servers, count):
    """Until the first node of both knows how many are down."""
    for server in servers:
        until(f"{count} nodes of {server.name} to be down", lambda: answers.alive(
            server.ask("SELECT k FROM three.t WHERE k = 1", statements.ALL)) == 3 - count)


def still(comparison, state, count):
    """One request at a time, just after nodes stopped: neither server may take them for down before it ends."""
    for number, request in enumerate(statements.for_nodes_that_stand_still()):
        for level in request.levels:
            key = 1_000_000 * STATES.index(state) + 1000 * number + 10 * level
            for statement in request.prepared(key):
                for server in comparison.servers:
                    until(statement, lambda: server.is_done(statement, statements.ALL))
            # Cassandra's first: ceto takes nodes for down sooner.
            for server in reversed(comparison.servers):
                server.hold([2, 1][:count])
            try:
                comparison.compare(state, request, level, key)
            finally:
                for server in comparison.servers:
                    server.release([2, 1][:count])
            wait_until_up(comparison.servers)


def run(servers, comparison, states):
    for server in servers:
        server.start()
        until(f"a schema on {server.name}", lambda: server.is_done(statements.SCHEMA[0], statements.ONE))
        for statement in statements.SCHEMA[1:]:
            server.done(statement)
        until(f"one schema on {server.name}", lambda: len(schema_versions(server)) == 1)
    wait_until_up(servers)
    for statement in statements.ROWS:
        for server in servers:
            # A Cassandra that has just started is slow to begin with.
            until(f"{statement} on {server.name}", lambda: server.is_done(statement, statements.ALL))
    for state in [state for state in ("up", "one-still", "two-still") if state in states]:
        if state == "up":
            comparison.all_levels(state)
        else:
            still(comparison, state, 1 if state == "one-still" else 2)
    for count, state in ((1, "one-down"), (2, "two-down")):
        if not {"one-down", "two-down"} & set(states):
            return
        for server in servers:
            server.end(3 - count)
        wait_until_down(servers, count)
        if state in states:
            comparison.all_levels(state)


def main():
    states = sys.argv[1:] or STATES
    comparison = None
    shutil.rmtree(RUNS, ignore_errors=True)
    work = RUNS / "cassandra"
    ceto = Ceto()
    servers = [ceto, Cassandra(work)]
    try:
        comparison = Comparison(servers, read_allowed(Path(__file__).parent / "three.txt"))
        run(servers, comparison, states)
    finally:
        for server in servers:
            server.stop()
    for kind, shown in comparison.found:
        print(f"== {kind}: {shown}")
    print()
    for _, _, reason in comparison.allowed:
        print(f"  allowed {comparison.used[reason]:4}  {reason}")
    kinds = collections.Counter(kind for kind, _ in comparison.found)
    print(f"\n{comparison.asked} requests; differences not allowed: {len(comparison.found)} ({dict(kinds) or 'none'})")
    return 1 if comparison.found else 0


if __name__ == "__main__":
    sys.exit(main())
