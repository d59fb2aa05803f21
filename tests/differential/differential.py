"""Gives the same statements to two servers and tells where their answers differ.

    differential.py --left HOST:PORT --right HOST:PORT [--seed N] [--count N] [--allow FILE]

`left` is under test, `right` is the reference. Compared are, each as a kind of its own: `outcome` (one refuses, the
other does not), `code` and `message` of errors, `columns` (names and types), `rows` (values and order), `bytes` (rows that read
the same and are not), `pages` (rows per page), `warnings`, and what preparing tells of the markers (`markers`).

A difference is accepted when a line of the allow file covers it: `KIND | REGULAR EXPRESSION | REASON`, where the
expression is searched in the text `statement => left answer => right answer`. Any other makes the exit code 1.
"""

import argparse
import collections
import re
import sys

import cassandra.protocol
from cassandra import AlreadyExists, ConsistencyLevel, OperationTimedOut
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.policies import FallthroughRetryPolicy, RoundRobinPolicy
from cassandra.query import UNSET_VALUE, BoundStatement, SimpleStatement, tuple_factory

from statements import Generator

PROTOCOL_ERROR = "000a"
REPORTED = 40  # differences printed in full, of each kind


class RawResult(cassandra.protocol.ResultMessage):
    """Rows as the bytes that came, so that two zeros of a float or two scales of a decimal are not the same."""

    def recv_results_rows(self, f, protocol_version, user_type_map, result_metadata, column_encryption_policy):
        self.recv_results_metadata(f, user_type_map)
        columns = self.column_metadata or result_metadata
        count = cassandra.protocol.read_int(f)
        self.parsed_rows = [self.recv_row(f, len(columns)) for _ in range(count)]
        self.column_names = [c[2] for c in columns]
        self.column_types = [c[3] for c in columns]


class RawHandler(cassandra.protocol._ProtocolHandler):
    message_types_by_opcode = {**cassandra.protocol._message_types_by_opcode, RawResult.opcode: RawResult}


def readable(row, types):
    """A row as text: every value decoded where it can be, and its bytes."""
    cells = []
    for raw, cell_type in zip(row, types):
        if raw is None:
            cells.append("null")
            continue
        try:
            value = repr(cell_type.from_binary(raw, 4))
        except Exception:  # a date beyond Python's, or bytes that are no value
            value = "?"
        cells.append(f"{value[:60]} <{raw.hex()}>")
    return ", ".join(cells)


class Server:
    """One of the two, with a keyspace of the same name on both."""

    def __init__(self, address, keyspace):
        self.address, self.keyspace = address, keyspace
        self.timestamp = 0
        self.rows_seen = 0
        self.connect()
        for leftover in (keyspace, "bad"):  # the wrong statements make a keyspace `bad` now and then
            self.session.execute(f"DROP KEYSPACE IF EXISTS {leftover}")
        self.session.execute(
            f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        self.session.set_keyspace(keyspace)
        self.session.client_protocol_handler = RawHandler

    def reconnect(self):
        """After a protocol error the server closes the connection."""
        self.cluster.shutdown()
        self.connect()
        self.session.set_keyspace(self.keyspace)
        self.session.client_protocol_handler = RawHandler

    def connect(self):
        host, port = self.address.rsplit(":", 1)
        profile = ExecutionProfile(
            load_balancing_policy=RoundRobinPolicy(), retry_policy=FallthroughRetryPolicy(),
            row_factory=tuple_factory, request_timeout=30,
        )
        self.cluster = Cluster(
            [host], port=int(port), protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            schema_metadata_enabled=False, token_metadata_enabled=False, connect_timeout=30, control_connection_timeout=30,
            timestamp_generator=lambda: self.timestamp,  # for writes that name no timestamp: the same on both
        )
        self.session = self.cluster.connect()

    def close(self):
        self.session.execute(f"DROP KEYSPACE IF EXISTS {self.keyspace}")
        self.cluster.shutdown()

    def answer(self, statement):
        """What came back, as a dictionary of comparable texts; `outcome` is always there."""
        try:
            if statement.kind == "prepare":
                prepared = self.session.prepare(statement.cql)
                markers = [(c.name, c.type.cql_parameterized_type()) for c in prepared.column_metadata or []]
                return {"outcome": "prepared", "markers": f"{markers} key {prepared.routing_key_indexes}"}
            if statement.kind == "execute":
                bound = BoundStatement(self.session.prepare(statement.cql))
                bound.fetch_size = statement.page
                bound.values = [UNSET_VALUE if value == "unset" else value for value in statement.values]
                return self.rows(bound)
            level = ConsistencyLevel.SERIAL if statement.serial else None
            return self.rows(SimpleStatement(statement.cql, fetch_size=statement.page, consistency_level=level))
        except Exception as error:  # every server error is an answer; a lost connection is one too
            return self.refusal(error)

    def rows(self, statement):
        future = self.session.execute_async(statement)
        result = future.result()
        names = result.column_names or []
        types = result.column_types or []
        rows, pages = [], []
        while True:
            page = list(result.current_rows or [])
            rows += page
            pages.append(len(page))
            if not result.has_more_pages:
                break
            result.fetch_next_page()
        self.rows_seen += len(rows)
        return {
            "outcome": "done",
            "columns": str([(name, t.cql_parameterized_type()) for name, t in zip(names, types)]),
            "rows": "\n".join(readable(row, types) for row in rows),
            "pages": str(pages),
            "warnings": str(future.warnings or []),
        }

    @staticmethod
    def refusal(error):
        if isinstance(error, AlreadyExists):
            return {"outcome": "refused", "code": "2400", "message": str(error)}
        found = re.search(r'code=([0-9a-f]{4}) \[.*?\] message="(.*)"', str(error), re.S)
        if found:
            return {"outcome": "refused", "code": found[1], "message": in_order(found[2])}
        if not isinstance(error, (OperationTimedOut, NoHostAvailable, ConnectionException)):
            raise error  # no answer of a server, but a mistake in here
        return {"outcome": "lost", "code": type(error).__name__, "message": str(error)}


def in_order(message):
    """The message with its list of signatures sorted: Cassandra keeps them in the order of their hashes."""
    listed = re.search(r"(signatures: )(.*)(\)(?:: use type casts to disambiguate)?)$", message, re.S)
    if not listed:
        return message
    signatures = re.findall(r"\S+ : \(.*?\) -> [^,]+(?:<.*?>)?", listed[2])
    return message[: listed.start(2)] + ", ".join(sorted(signatures)) + listed[3]


def differences(left, right):
    if left["outcome"] != right["outcome"]:
        describe = lambda a: f"{a['outcome']} {a.get('code', '')} {a.get('message', '')}".strip()
        return [("outcome", describe(left), describe(right))]
    found = [(kind, left[kind], right[kind]) for kind in left if left[kind] != right.get(kind)]
    same = lambda one, other: re.sub(" <[0-9a-f]*>", "", one) == re.sub(" <[0-9a-f]*>", "", other)
    return [("bytes" if kind == "rows" and same(*both) else kind, *both) for kind, *both in found]


def without_equal_lines(left, right):
    """Two answers without the lines they begin and end with alike; what is left is what to look at."""
    left, right = left.split("\n"), right.split("\n")
    while left and right and left[0] == right[0]:
        del left[0], right[0]
    while left and right and left[-1] == right[-1]:
        del left[-1], right[-1]
    return "\n".join(left), "\n".join(right)


def read_allowed(path):
    allowed = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if line and not line.startswith("#"):
                parts = [part.strip() for part in line.split(" | ")]
                if len(parts) != 3 or not all(parts):
                    sys.exit(f"{path}:{number}: wanted KIND | EXPRESSION | REASON")
                allowed.append((parts[0], re.compile(parts[1], re.S), parts[2]))
    return allowed


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--left", required=True)
    arguments.add_argument("--right", required=True)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--count", type=int, default=600)
    arguments.add_argument("--allow", required=True)
    chosen = arguments.parse_args()
    allowed = read_allowed(chosen.allow)
    used = collections.Counter()
    counts, found = collections.Counter(), collections.defaultdict(list)
    keyspace = f"differential_{chosen.seed}"
    left, right = Server(chosen.left, keyspace), Server(chosen.right, keyspace)
    try:
        for number, statement in enumerate(Generator(chosen.seed).statements(chosen.count)):
            left.timestamp = right.timestamp = 1000 + number  # near those the statements name
            answers = left.answer(statement), right.answer(statement)
            for server, answer in zip((left, right), answers):
                if answer.get("code") == PROTOCOL_ERROR:
                    server.reconnect()
            if answers[1].get("code") == PROTOCOL_ERROR != answers[0].get("code"):
                # Cassandra trips over paging states of its own: there is nothing to compare with.
                counts[statement.kind, "broke"] += 1
                continue
            if answers[1]["outcome"] == "lost":
                sys.exit(f"the reference gave no answer to {statement.cql}: {answers[1]['message']}")
            counts[statement.kind, answers[1]["outcome"]] += 1
            for kind, mine, reference in differences(*answers):
                text = f"{statement.cql} => {mine} => {reference}"
                reason = next((r for k, e, r in allowed if k == kind and e.search(text)), None)
                if reason:
                    used[reason] += 1
                else:
                    found[kind].append((number, statement, mine, reference))
    finally:
        left.close()
        right.close()

    print(f"seed {chosen.seed}: {sum(counts.values())} statements, {right.rows_seen} rows; reference answers:")
    for (kind, outcome), n in sorted(counts.items()):
        print(f"  {kind:8} {outcome:9} {n:5}")
    for kind, list_ in sorted(found.items()):
        print(f"\n== {kind}: {len(list_)} differences")
        for number, statement, mine, reference in list_[:REPORTED]:
            mine, reference = without_equal_lines(mine, reference)
            print(f"#{number} [{statement.kind}, pages of {statement.page}] {statement.cql} {list(statement.values) or ''}")
            print("    left:  " + mine[:2000].replace("\n", "\n           "))
            print("    right: " + reference[:2000].replace("\n", "\n           "))
        if len(list_) > REPORTED:
            print(f"... and {len(list_) - REPORTED} more")
    print()
    for _, _, reason in allowed:
        print(f"  allowed {used[reason]:4}  {reason}")
    total = sum(map(len, found.values()))
    kinds = ", ".join(f"{kind} {len(list_)}" for kind, list_ in sorted(found.items())) or "none"
    print(f"\ndifferences not allowed: {total} ({kinds})")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
