"""The requests that both clusters are given, each with rows of its own: what one of them leaves half done, no other meets."""

ANY, ONE, TWO, THREE, QUORUM, ALL, LOCAL_QUORUM, EACH_QUORUM, SERIAL, LOCAL_SERIAL, LOCAL_ONE = range(11)
EVERY = tuple(range(11))
SOME = (ONE, QUORUM, ALL)
THREE_COPIES = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}"
# Nobody asks a second time, so that what was asked is counted.
PLAIN = "speculative_retry = 'NONE'"
SCHEMA = (
    f"CREATE KEYSPACE IF NOT EXISTS three WITH replication = {THREE_COPIES}",
    "CREATE KEYSPACE simple WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
    "CREATE KEYSPACE two WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 2}",
    f"CREATE TABLE three.t (k int PRIMARY KEY, v int) WITH {PLAIN}",
    f"CREATE TABLE three.rows (k int, c int, v int, s int static, PRIMARY KEY (k, c)) WITH {PLAIN}",
    f"CREATE TABLE three.counts (k int PRIMARY KEY, n counter) WITH {PLAIN}",
    f"CREATE TABLE three.empty (k int PRIMARY KEY) WITH {PLAIN}",
    f"CREATE TABLE simple.t (k int PRIMARY KEY, v int) WITH {PLAIN}",
)
ROWS = (
    "INSERT INTO three.t (k, v) VALUES (1, 1)",
    "INSERT INTO three.t (k, v) VALUES (2, 2)",
    "INSERT INTO simple.t (k, v) VALUES (1, 1)",
    "INSERT INTO three.rows (k, c, v, s) VALUES (1, 1, 1, 1)",
    "INSERT INTO three.rows (k, c, v, s) VALUES (1, 2, 2, 1)",
    # Of this one the number is not looked at: it may be counted more than once.
    "UPDATE three.counts SET n = n + 1 WHERE k = 0",
    "UPDATE three.counts SET n = n + 5 WHERE k = 1",
)


class Request:
    """One request; `{k}` is a key of its own, `{l}` another."""

    def __init__(self, name, statement, levels=EVERY, serial=None, batch=None, before=()):
        self.name, self.statement, self.levels, self.serial, self.batch, self.before = name, statement, levels, serial, batch, before

    def filled(self, statement, key):
        return statement.replace("{k}", str(key)).replace("{l}", str(key + 1))

    def text(self, _, key):
        return self.filled(self.statement, key)

    def batch_of(self, _, key):
        return self.batch and (self.batch, self.text(_, key).split("; "))

    def prepared(self, key):
        return [self.filled(statement, key) for statement in self.before]


INSERT = "INSERT INTO three.t (k, v) VALUES ({k}, 1)"
OTHER = "INSERT INTO three.t (k, v) VALUES ({l}, 1)"
COUNT = "UPDATE three.counts SET n = n + 1 WHERE k = {k}"
OTHER_COUNT = "UPDATE three.counts SET n = n + 1 WHERE k = {l}"


def reads():
    yield Request("read", "SELECT k, v FROM three.t WHERE k = 1")
    yield Request("read of nothing", "SELECT k, v FROM three.t WHERE k = {k}")
    yield Request("read, SimpleStrategy", "SELECT k, v FROM simple.t WHERE k = 1")
    yield Request("read of two partitions", "SELECT k, v FROM three.t WHERE k IN (1, 2)")
    yield Request("read of a slice", "SELECT c, v, s FROM three.rows WHERE k = 1 AND c > 1")
    yield Request("read of a range", "SELECT k, n FROM three.counts WHERE k = 1 ALLOW FILTERING")
    yield Request("read of all", "SELECT k FROM three.empty")
    yield Request("count", "SELECT count(*) FROM three.rows")
    yield Request("read by tokens", "SELECT k FROM three.t WHERE token(k) = token(1)")
    yield Request("read of a counter", "SELECT n FROM three.counts WHERE k = 1")
    yield Request("read of a local table", "SELECT key FROM system.local")
    yield Request("read of the schema", "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'two'")


def writes():
    yield Request("insert", INSERT)
    yield Request("insert, SimpleStrategy", "INSERT INTO simple.t (k, v) VALUES ({k}, 1)")
    yield Request("update", "UPDATE three.t SET v = 2 WHERE k = {k}")
    yield Request("update of two partitions", "UPDATE three.rows SET v = 2 WHERE k IN ({k}, {l}) AND c = 1")
    yield Request("delete", "DELETE FROM three.t WHERE k = {k}")
    yield Request("delete of a range", "DELETE FROM three.rows WHERE k = {k} AND c > 1")
    yield Request("insert for a while", "INSERT INTO three.t (k, v) VALUES ({k}, 1) USING TTL 1000 AND TIMESTAMP 5")
    yield Request("counter", COUNT)
    yield Request("counters of two partitions", "UPDATE three.counts SET n = n + 1 WHERE k IN ({k}, {l})", SOME)


def batches():
    for kind in ("logged", "unlogged"):
        yield Request(f"{kind} batch of one partition", f"{INSERT}; UPDATE three.t SET v = 2 WHERE k = {{k}}", batch=kind)
        yield Request(f"{kind} batch of two partitions", f"{INSERT}; {OTHER}", batch=kind)
        yield Request(f"{kind} batch of two tables", f"{INSERT}; INSERT INTO simple.t (k, v) VALUES ({{k}}, 1)", batch=kind)
        yield Request(f"{kind} batch with a condition", f"{INSERT} IF NOT EXISTS; UPDATE three.t SET v = 2 WHERE k = {{k}}", batch=kind)
    yield Request("counter batch of one partition", f"{COUNT}; {COUNT}", batch="counter")
    yield Request("counter batch of two partitions", f"{COUNT}; {OTHER_COUNT}", batch="counter")
    yield Request("counter in a logged batch", f"{COUNT}; {OTHER_COUNT}", SOME, batch="logged")
    yield Request("batch as a statement", f"BEGIN BATCH {INSERT}; {OTHER}; APPLY BATCH")
    yield Request("counter batch as a statement", f"BEGIN COUNTER BATCH {COUNT}; {OTHER_COUNT}; APPLY BATCH")


def conditional():
    for serial in (None, SERIAL, LOCAL_SERIAL, QUORUM):
        levels = EVERY if serial is None else SOME
        name = "" if serial is None else f", serial level {serial}"
        yield Request(f"insert if not exists{name}", f"{INSERT} IF NOT EXISTS", levels, serial)
        yield Request(f"update if{name}", "UPDATE three.t SET v = 2 WHERE k = {k} IF v = 1", levels, serial, before=(INSERT,))
        yield Request(f"delete if exists{name}", "DELETE FROM three.t WHERE k = {k} IF EXISTS", levels, serial, before=(INSERT,))
    yield Request("condition that does not hold", "UPDATE three.t SET v = 2 WHERE k = {k} IF v = 7", before=(INSERT,))
    yield Request("condition on a static column", "UPDATE three.rows SET s = 2 WHERE k = {k} IF s = null")
    yield Request("plain write with a serial level", INSERT, SOME, SERIAL)


def rest():
    # Each level once: TRUNCATE does not go by it.
    yield Request("truncate", "TRUNCATE three.empty", SOME)


def requests():
    for group in (reads, writes, batches, conditional, rest):
        yield from group()


def for_nodes_that_stand_still():
    yield Request("read", "SELECT k, v FROM three.t WHERE k = 1", (ONE, QUORUM, ALL))
    yield Request("read of nothing", "SELECT k, v FROM three.t WHERE k = {k}", (ALL,))
    yield Request("read of all", "SELECT k FROM three.empty", (QUORUM, ALL))
    yield Request("insert", INSERT, (ANY, ONE, QUORUM, ALL))
    yield Request("update of two partitions", "UPDATE three.rows SET v = 2 WHERE k IN ({k}, {l}) AND c = 1", (ALL,))
    yield Request("counter", COUNT, (ONE, QUORUM, ALL))
    yield Request("logged batch of two partitions", f"{INSERT}; {OTHER}", (ONE, ALL), batch="logged")
    yield Request("unlogged batch of two partitions", f"{INSERT}; {OTHER}", (ALL,), batch="unlogged")
    yield Request("counter batch of two partitions", f"{COUNT}; {OTHER_COUNT}", (ALL,), batch="counter")
    yield Request("insert if not exists", f"{INSERT} IF NOT EXISTS", (ONE, QUORUM, ALL))
    yield Request("serial read", "SELECT k, v FROM three.t WHERE k = 1", (SERIAL, LOCAL_SERIAL))
    yield Request("truncate", "TRUNCATE three.empty", (ONE,))
