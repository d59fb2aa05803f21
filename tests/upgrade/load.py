"""Clients that write and read at QUORUM all the time, and a record of what they were told.

Every worker has partitions of its own, so that it knows what a read has to show. A request is retried on another node where a client
may do that: if its connection ended and it is idempotent, or if the node said that it had not begun. Its outcome is unknown where the
connection ended and it is not idempotent (counters, appends to lists, conditional writes). Everything else that is no answer is a failure.
"""

import re
import threading
import time

from cassandra import ConsistencyLevel, Unavailable, WriteTimeout, WriteType
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.connection import ConnectionException
from cassandra.policies import ConstantReconnectionPolicy, DCAwareRoundRobinPolicy, RetryPolicy, TokenAwarePolicy
from cassandra.protocol import ErrorMessage, IsBootstrappingErrorMessage
from cassandra.query import BatchStatement, BatchType, SimpleStatement

REPLICATED = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}"
TABLES = (
    "CREATE TABLE u.rows (w int, n int, v text, added int, PRIMARY KEY (w, n))",
    "CREATE TABLE u.last (w int PRIMARY KEY, n int)",
    "CREATE TABLE u.collections (w int, part int, s set<int>, m map<int, text>, l list<int>, PRIMARY KEY (w, part))",
    "CREATE TABLE u.counters (k int PRIMARY KEY, n counter)",
    "CREATE TABLE u.registers (k int PRIMARY KEY, n int, log list<int>)",
    "CREATE TABLE u.once (k int PRIMARY KEY, owner int)",
    "CREATE TABLE u.short (w int, n int, v text, PRIMARY KEY (w, n))",
    "CREATE TABLE u.left (w int, n int, v text, PRIMARY KEY (w, n))",
    "CREATE TABLE u.right (n int, w int, v text, PRIMARY KEY ((n, w)))",
)
WORKERS, REGISTERS, COUNTERS = 8, 2, 5
# Entries of one collection.
PART = 100
SHORT_TTL, LONG_TTL = 1, 86400
REQUEST_SECONDS = 20


ANY_NODE = "a node that the driver does not name"
CAS_WRITE_UNKNOWN = 0x1700


class Unknown(Exception):
    """The connection ended before the answer came, and the request may not be sent again; or a conditional write met others."""


def is_contention(error):
    """Whether conditional writes of several clients got in each other's way, which happens without any node going down."""
    return isinstance(error, ErrorMessage) and error.code == CAS_WRITE_UNKNOWN or (
        isinstance(error, WriteTimeout) and error.write_type == WriteType.CAS)


class Retries(RetryPolicy):
    """Retries what may be retried, and notes why."""

    def __init__(self, record):
        self.record = record

    def on_read_timeout(self, *_, **__):
        return self.RETHROW, None

    on_write_timeout = on_unavailable = on_read_timeout

    def on_request_error(self, query, consistency, error, retry_num):
        if isinstance(error, IsBootstrappingErrorMessage):
            self.record.note("the node said that it had not begun", None)
            return self.RETRY_NEXT_HOST, None
        if isinstance(error, ConnectionException):
            # Not every error of the driver has the node as a field, and some do not name it at all.
            named = re.search(r"127\.\d+\.\d+\.\d+", f"{error.endpoint} {error}")
            host = named[0] if named else ANY_NODE
            self.record.note("retried elsewhere" if query.is_idempotent else "outcome unknown", host)
            return (self.RETRY_NEXT_HOST if query.is_idempotent else self.RETHROW), None
        return self.RETHROW, None


class Record:
    """What went on beside the answers: failures, and connections that ended, with their times."""

    def __init__(self):
        self.lock = threading.Lock()
        self.failures, self.ended, self.done = [], [], 0

    def note(self, what, host):
        with self.lock:
            self.ended.append((time.monotonic(), what, host))

    def fail(self, what):
        with self.lock:
            self.failures.append((time.monotonic(), what))


class Worker:
    """One client, and what it knows of its rows."""

    def __init__(self, number, session, record):
        self.number, self.session, self.record = number, session, record
        self.steps = 0
        self.rows, self.gone, self.last, self.last_tried = {}, set(), None, None
        self.sets, self.lists, self.lists_unknown = set(), [], set()
        self.counted, self.count_unknown = [0] * COUNTERS, [0] * COUNTERS
        self.applied, self.refused, self.cas_unknown = [], [], []
        self.owned, self.not_owned = set(), set()
        self.short, self.long, self.batches = set(), set(), set()
        prepare = self.prepare
        self.insert = prepare("INSERT INTO u.rows (w, n, v) VALUES (?, ?, ?)")
        self.delete = prepare("DELETE FROM u.rows WHERE w = ? AND n = ?")
        self.read = prepare("SELECT v FROM u.rows WHERE w = ? AND n = ?")
        self.scan = prepare("SELECT n, v FROM u.rows WHERE w = ?")
        self.overwrite = prepare("INSERT INTO u.last (w, n) VALUES (?, ?)")
        self.read_last = prepare("SELECT n FROM u.last WHERE w = ?")
        self.add = prepare("UPDATE u.collections SET s = s + ?, m[?] = ? WHERE w = ? AND part = ?")
        self.append = prepare("UPDATE u.collections SET l = l + ? WHERE w = ? AND part = ?", idempotent=False)
        self.count = prepare("UPDATE u.counters SET n = n + 1 WHERE k = ?", idempotent=False)
        self.register = prepare("SELECT n FROM u.registers WHERE k = ?", level=ConsistencyLevel.SERIAL)
        self.swap = prepare("UPDATE u.registers SET n = ?, log = log + ? WHERE k = ? IF n = ?", idempotent=False)
        self.own = prepare("INSERT INTO u.once (k, owner) VALUES (?, ?) IF NOT EXISTS", idempotent=False)
        self.mortal = prepare("INSERT INTO u.short (w, n, v) VALUES (?, ?, ?) USING TTL ?")
        self.left = prepare("INSERT INTO u.left (w, n, v) VALUES (?, ?, ?)")
        self.right = prepare("INSERT INTO u.right (w, n, v) VALUES (?, ?, ?)")

    def prepare(self, statement, idempotent=True, level=ConsistencyLevel.QUORUM):
        prepared = self.session.prepare(statement)
        prepared.is_idempotent, prepared.consistency_level = idempotent, level
        return prepared

    def ask(self, statement, values=()):
        """The rows of a statement; Unknown where nobody can tell."""
        try:
            result = self.session.execute(statement, values or None)
        except ConnectionException as ended:
            raise Unknown from ended
        except Exception as error:
            if is_contention(error):
                self.record.note("conditional writes met", None)
                raise Unknown from error
            raise
        self.record.done += 1
        return result

    def run(self, is_over):
        steps = (self.row, self.row, self.look, self.collection, self.counter, self.cas, self.first, self.ttl, self.batch)
        while not is_over():
            step = steps[self.steps % len(steps)]
            try:
                step(self.steps)
            except Unknown:
                pass
            except Exception as failure:
                self.record.fail(f"worker {self.number}, {step.__name__}: {failure!r}")
            self.steps += 1

    def row(self, n):
        value = f"row {n} of {self.number} " + "x" * (n % 200)
        self.rows[n] = None
        self.ask(self.insert, (self.number, n, value))
        self.rows[n] = value
        if n % 5 == 0 and n > 50 and self.rows.get(n - 45):
            self.rows[n - 45] = None
            self.ask(self.delete, (self.number, n - 45))
            del self.rows[n - 45]
            self.gone.add(n - 45)
        self.last_tried = n
        self.ask(self.overwrite, (self.number, n))
        self.last = n

    def look(self, n):
        """What was acknowledged is read at QUORUM."""
        if (n // 9) % 20 == 0:
            return self.look_at_all()
        if self.rows.get(n - 1):
            found = [row.v for row in self.ask(self.read, (self.number, n - 1))]
            if found != [self.rows[n - 1]]:
                self.record.fail(f"worker {self.number}: row {n - 1} was acknowledged, and is read as {found}")
        if self.last is not None and self.last == self.last_tried:
            found = [row.n for row in self.ask(self.read_last, (self.number,))]
            if found != [self.last]:
                self.record.fail(f"worker {self.number}: {self.last} was acknowledged, and {found} is read")

    def look_at_all(self):
        found = {row.n: row.v for row in self.ask(self.scan, (self.number,))}
        for problem in self.differences(found):
            self.record.fail(problem)

    def differences(self, found):
        """What rows that were read lack, or have too much."""
        for n, value in self.rows.items():
            if value is not None and found.get(n) != value:
                yield f"worker {self.number}: row {n} was acknowledged, and is {found.get(n)!r}"
        for n in found.keys() - self.rows.keys():
            yield f"worker {self.number}: row {n} is there, {'deleted before' if n in self.gone else 'never written'}"

    def collection(self, n):
        self.ask(self.add, ({n}, n, str(n), self.number, n // PART))
        self.sets.add(n)
        if n % 2:
            try:
                self.ask(self.append, ([n], self.number, n // PART))
                self.lists.append(n)
            except Unknown:
                self.lists_unknown.add(n)

    def counter(self, n):
        try:
            self.ask(self.count, (n % COUNTERS,))
            self.counted[n % COUNTERS] += 1
        except Unknown:
            self.count_unknown[n % COUNTERS] += 1

    def cas(self, n):
        key = self.number % REGISTERS
        token = self.number * 1_000_000 + n
        value = self.ask(self.register, (key,)).one().n
        try:
            answer = self.ask(self.swap, (value + 1, [token], key, value)).one()
            (self.applied if answer.applied else self.refused).append(token)
        except Unknown:
            self.cas_unknown.append(token)

    def first(self, n):
        """Neighbours want the same key: one has it."""
        key = (self.number // 2) * 1_000_000 + n
        try:
            (self.owned if self.ask(self.own, (key, self.number)).one().applied else self.not_owned).add(key)
        except Unknown:
            pass

    def ttl(self, n):
        lives = n % 2 == 0
        self.ask(self.mortal, (self.number, n, "v", LONG_TTL if lives else SHORT_TTL))
        (self.long if lives else self.short).add(n)

    def batch(self, n):
        batch = BatchStatement(BatchType.LOGGED, consistency_level=ConsistencyLevel.QUORUM)
        batch.add(self.left, (self.number, n, "left"))
        batch.add(self.right, (self.number, n, "right"))
        batch.is_idempotent = True
        self.ask(batch)
        self.batches.add(n)


def connect(addresses, record=None, policy=None):
    """A driver that knows these nodes."""
    profile = ExecutionProfile(
        load_balancing_policy=policy or TokenAwarePolicy(DCAwareRoundRobinPolicy("datacenter1")),
        retry_policy=Retries(record or Record()),
        consistency_level=ConsistencyLevel.QUORUM,
        request_timeout=REQUEST_SECONDS,
    )
    cluster = Cluster(addresses, execution_profiles={EXEC_PROFILE_DEFAULT: profile}, protocol_version=5,
                      reconnection_policy=ConstantReconnectionPolicy(0.2, None), connect_timeout=REQUEST_SECONDS)
    return cluster, cluster.connect()


class Load:
    """All workers, from `start` to `stop`."""

    def __init__(self, addresses):
        self.record, self.is_over = Record(), False
        self.cluster, self.session = connect(addresses, self.record)
        self.workers = []

    def is_ready(self):
        """Whether a new cluster has a keyspace and takes writes at ALL: its nodes have only just met."""
        self.session.execute(f"CREATE KEYSPACE IF NOT EXISTS u WITH replication = {REPLICATED}")
        self.session.execute("CREATE TABLE IF NOT EXISTS u.first (k int PRIMARY KEY)")
        try:
            self.session.execute(SimpleStatement("INSERT INTO u.first (k) VALUES (1)", consistency_level=ConsistencyLevel.ALL))
            return True
        except Unavailable:
            return False

    def prepare(self):
        for table in TABLES:
            self.session.execute(table)
        for key in range(REGISTERS):
            self.session.execute("INSERT INTO u.registers (k, n) VALUES (%s, 0)", (key,))
        self.workers = [Worker(number, self.session, self.record) for number in range(WORKERS)]

    def start(self):
        self.is_over = False
        self.threads = [threading.Thread(target=worker.run, args=(lambda: self.is_over,)) for worker in self.workers]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()

    def goes_on(self, until, requests):
        """Waits until so many more requests were answered."""
        wanted = self.record.done + requests
        until(f"{requests} more answers", lambda: self.record.done >= wanted)
