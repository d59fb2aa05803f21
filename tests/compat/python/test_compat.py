"""What an application does through a Python driver, seen from outside the node.

Runs unchanged with `cassandra-driver` and with `scylla-driver` (both give the module `cassandra`), against
ceto and against Apache Cassandra 5. What only one of them can do skips itself with the reason.
"""

import datetime
import math
import os
import queue
import subprocess
import uuid
from decimal import Decimal

import pytest
from cassandra import (
    AlreadyExists,
    ConsistencyLevel,
    InvalidRequest,
    Unavailable,
    util,
)
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.protocol import ConfigurationException, ProtocolException, SyntaxException
from cassandra.query import (
    UNSET_VALUE,
    BatchStatement,
    BatchType,
    SimpleStatement,
    dict_factory,
)

from conftest import HOST, PORT, eventually, make_cluster

TIMEUUID_MIN = uuid.UUID("00000000-0000-1000-8080-808080808080")
TIMEUUID_NOW = uuid.uuid1()
NAN, INF = float("nan"), float("inf")


# ---- connecting


@pytest.mark.parametrize("version", [3, 4, 5])
def test_every_protocol_version_connects_and_round_trips(session, table, version):
    name = table("k int PRIMARY KEY, v text")
    made = make_cluster(protocol_version=version)
    try:
        own = made.connect(session.keyspace)
        insert = own.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")
        for k in range(50):
            own.execute(insert, (k, "v" * k * 100))
        rows = own.execute(f"SELECT k, v FROM {name}", timeout=20)
        assert {row.k: len(row.v) for row in rows} == {k: k * 100 for k in range(50)}
        connection = made.control_connection._connection
        assert connection.protocol_version == version
    finally:
        made.shutdown()


@pytest.mark.parametrize(
    "version,compression", [(3, "lz4"), (3, "snappy"), (4, "lz4"), (4, "snappy"), (5, "lz4"), (4, False)]
)
def test_compression_is_negotiated_and_carries_large_values(session, table, version, compression):
    name = table("k int PRIMARY KEY, v blob")
    made = make_cluster(protocol_version=version, compression=compression)
    try:
        own = made.connect(session.keyspace)
        assert made.control_connection._connection._compression_type == (compression or None)
        insert = own.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")
        bodies = [b"", b"x", b"ab" * 100_000, os.urandom(200_000)]
        for k, body in enumerate(bodies):
            own.execute(insert, (k, body))
        assert {r.k: r.v for r in own.execute(f"SELECT k, v FROM {name}")} == dict(enumerate(bodies))
    finally:
        made.shutdown()


def test_the_node_describes_itself(cluster, session):
    local = session.execute("SELECT * FROM system.local WHERE key = 'local'").one()
    assert local.bootstrapped == "COMPLETED"
    assert local.partitioner == "org.apache.cassandra.dht.Murmur3Partitioner"
    assert local.native_protocol_version == "5"
    assert local.release_version.split(".")[0] == "5"
    assert local.cql_version.startswith("3.4.")
    assert local.cluster_name == cluster.metadata.cluster_name
    assert local.rpc_address == HOST
    assert len(local.tokens) >= 1 and all(-(2**63) <= int(t) < 2**63 for t in local.tokens)
    assert list(session.execute("SELECT * FROM system.peers")) == []
    assert list(session.execute("SELECT * FROM system.peers_v2")) == []
    (host,) = cluster.metadata.all_hosts()
    assert (host.datacenter, host.rack) == (local.data_center, local.rack)
    assert host.host_id == local.host_id and host.is_up
    assert sorted(t.value for t in cluster.metadata.token_map.ring) == sorted(map(int, local.tokens))


# ---- schema


def test_schema_metadata_shows_keyspace_table_columns_and_options(cluster, session, table):
    name = table(
        "a int, b text, c timeuuid, d int, s blob static, v decimal, PRIMARY KEY ((a, b), c, d)",
        "WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'it''s a table' AND gc_grace_seconds = 1234 "
        "AND default_time_to_live = 86400 AND bloom_filter_fp_chance = 0.05 "
        "AND compaction = {'class': 'SizeTieredCompactionStrategy', 'min_threshold': '6'} "
        "AND compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': '4'} "
        "AND caching = {'keys': 'ALL', 'rows_per_partition': '10'}",
    )
    keyspace = cluster.metadata.keyspaces[session.keyspace]
    assert keyspace.durable_writes
    assert keyspace.replication_strategy.export_for_schema() == (
        "{'class': 'NetworkTopologyStrategy', 'datacenter1': '1'}"
    )
    seen = keyspace.tables[name]
    assert [c.name for c in seen.partition_key] == ["a", "b"]
    assert [(c.name, c.is_reversed) for c in seen.clustering_key] == [("c", True), ("d", False)]
    assert {c.name: (c.cql_type, c.is_static) for c in seen.columns.values()} == {
        "a": ("int", False), "b": ("text", False), "c": ("timeuuid", False), "d": ("int", False),
        "s": ("blob", True), "v": ("decimal", False),
    }
    options = seen.options
    assert options["comment"] == "it's a table"
    assert options["gc_grace_seconds"] == 1234
    assert options["default_time_to_live"] == 86400
    assert options["bloom_filter_fp_chance"] == pytest.approx(0.05)
    assert options["compaction"]["class"].endswith("SizeTieredCompactionStrategy")
    assert options["compaction"]["min_threshold"] == "6"
    assert options["compression"]["chunk_length_in_kb"] == "4"
    assert options["caching"] == {"keys": "ALL", "rows_per_partition": "10"}
    # What the driver prints must be accepted again: it is built from the metadata alone.
    again = seen.as_cql_query().replace(name, name + "_again", 1)
    session.execute(again)
    assert set(keyspace.tables[name + "_again"].columns) == set(seen.columns)
    session.execute(f"DROP TABLE {name}_again")


def test_alter_table_changes_what_the_driver_sees(cluster, session, table):
    name = table("k int PRIMARY KEY, v int, old text")
    session.execute(f"INSERT INTO {name} (k, v, old) VALUES (1, 2, 'three')")
    session.execute(f"ALTER TABLE {name} ADD extra bigint")
    session.execute(f"ALTER TABLE {name} DROP old")
    session.execute(f"ALTER TABLE {name} RENAME k TO key")
    session.execute(f"ALTER TABLE {name} WITH comment = 'changed'")
    seen = cluster.metadata.keyspaces[session.keyspace].tables[name]
    assert set(seen.columns) == {"key", "v", "extra"}
    assert seen.options["comment"] == "changed"
    assert session.execute(f"SELECT * FROM {name}").one()._asdict() == {"key": 1, "extra": None, "v": 2}
    # A dropped column that comes back must not bring its old values back.
    session.execute(f"ALTER TABLE {name} ADD old text")
    assert session.execute(f"SELECT old FROM {name}").one().old is None


def test_schema_events_reach_other_connections(cluster, session):
    events = queue.Queue()
    watcher = cluster.connection_factory(cluster.metadata.all_hosts()[0].endpoint)
    try:
        watcher.register_watcher("SCHEMA_CHANGE", events.put, register_timeout=10)
        keyspace = f"events_{uuid.uuid4().hex[:12]}"
        session.execute(
            f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        session.execute(f"ALTER KEYSPACE {keyspace} WITH durable_writes = false")
        session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY)")
        session.execute(f"CREATE TABLE IF NOT EXISTS {keyspace}.t (k int PRIMARY KEY)")  # changes nothing
        session.execute(f"ALTER TABLE {keyspace}.t ADD v int")
        session.execute(f"DROP TABLE {keyspace}.t")
        session.execute(f"DROP KEYSPACE {keyspace}")
        wanted = [
            ("CREATED", "KEYSPACE", None), ("UPDATED", "KEYSPACE", None), ("CREATED", "TABLE", "t"),
            ("UPDATED", "TABLE", "t"), ("DROPPED", "TABLE", "t"), ("DROPPED", "KEYSPACE", None),
        ]
        seen = []
        while len(seen) < len(wanted):
            event = events.get(timeout=20)
            if event["keyspace"] == keyspace:
                seen.append((event["change_type"], event["target_type"], event.get("table")))
        assert seen == wanted
    finally:
        watcher.close()


def test_schema_version_changes_with_the_schema_and_only_then(session, table):
    version = lambda: session.execute("SELECT schema_version FROM system.local").one().schema_version
    before = version()
    assert version() == before
    name = table("k int PRIMARY KEY")
    after = version()
    assert after != before
    session.execute(f"CREATE TABLE IF NOT EXISTS {name} (k int PRIMARY KEY)")
    assert version() == after


# ---- values

SCALARS = {
    "ascii": ["", "plain", "~" * 5000],
    "text": ["", "häß \u20ac \U0001f40b", "x" * 70000],
    "varchar": ["", "same as text"],
    "blob": [b"", b"\x00", bytes(range(256)) * 200],
    "boolean": [True, False],
    "tinyint": [-128, -1, 0, 127],
    "smallint": [-(2**15), 2**15 - 1],
    "int": [-(2**31), 0, 2**31 - 1],
    "bigint": [-(2**63), 0, 2**63 - 1],
    "varint": [0, -1, 127, 128, -128, -129, 2**63, -(2**63) - 1, 2**4000, -(3**2000)],
    "decimal": [Decimal(0), Decimal("-1.50"), Decimal("1E+1000"), Decimal("1E-1000"), Decimal("9" * 400 + "." + "9" * 300)],
    "float": [0.0, -0.0, 1.5, -3.4028234663852886e38, 1.401298464324817e-45, INF, -INF, NAN],
    "double": [0.0, -0.0, 0.1, 1.7976931348623157e308, 5e-324, INF, -INF, NAN],
    "uuid": [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.uuid4()],
    "timeuuid": [TIMEUUID_NOW, TIMEUUID_MIN, uuid.UUID("ffffffff-ffff-1fff-bfff-7f7f7f7f7f7f")],
    "inet": ["127.0.0.1", "255.255.255.255", "::1", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"],
    "timestamp": [
        datetime.datetime(1970, 1, 1), datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
        datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31), datetime.datetime(2038, 1, 19, 3, 14, 8, 123000),
    ],
    "date": [util.Date(0), util.Date(-1), util.Date(-(2**31)), util.Date(2**31 - 1), util.Date("2024-02-29")],
    "time": [util.Time(0), util.Time(86_399_999_999_999), util.Time("12:34:56.789")],
    "duration": [
        util.Duration(0, 0, 0), util.Duration(14, 3, 1_000_000_001), util.Duration(-1, -2, -3),
        util.Duration(2**31 - 1, 2**31 - 1, 2**63 - 1), util.Duration(-(2**31), -(2**31), -(2**63)),
    ],
}


def same(left, right):
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or (
            left == right and math.copysign(1, left) == math.copysign(1, right)
        )
    if isinstance(left, Decimal):
        return left.as_tuple() == right.as_tuple()
    return left == right


@pytest.mark.parametrize("cql_type", SCALARS)
def test_scalar_values_round_trip_through_prepared_statements(session, table, cql_type):
    name = table(f"k int PRIMARY KEY, v {cql_type}")
    insert = session.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")
    select = session.prepare(f"SELECT v FROM {name} WHERE k = ?")
    for k, value in enumerate(SCALARS[cql_type]):
        session.execute(insert, (k, value))
        got = session.execute(select, (k,)).one().v
        assert same(value, got), f"{cql_type}: sent {value!r}, got {got!r}"
    session.execute(insert, (0, UNSET_VALUE))
    assert same(session.execute(select, (0,)).one().v, SCALARS[cql_type][0])
    session.execute(insert, (0, None))
    assert session.execute(select, (0,)).one().v is None


@pytest.mark.parametrize("cql_type", [t for t in SCALARS if t != "duration"])
def test_scalar_values_work_as_partition_and_clustering_keys(session, table, cql_type):
    values = [v for v in SCALARS[cql_type] if v not in ("", b"") and len(str(v)) < 20000]
    name = table(f"p {cql_type}, c {cql_type}, v int, PRIMARY KEY (p, c)")
    insert = session.prepare(f"INSERT INTO {name} (p, c, v) VALUES (?, ?, ?)")
    select = session.prepare(f"SELECT v FROM {name} WHERE p = ? AND c = ?")
    for number, value in enumerate(values):
        session.execute(insert, (value, value, number))
    for number, value in enumerate(values):
        assert session.execute(select, (value, value)).one().v == number
    # One partition with every value as a clustering key: the order is the type's order.
    for number, value in enumerate(values):
        session.execute(insert, (values[0], value, number))
    order = [row.c for row in session.execute(session.prepare(f"SELECT c FROM {name} WHERE p = ?"), (values[0],))]
    back = session.prepare(f"SELECT c FROM {name} WHERE p = ? ORDER BY c DESC")
    assert [repr(r.c) for r in session.execute(back, (values[0],))] == [repr(c) for c in reversed(order)]
    if cql_type not in ("uuid", "timeuuid", "inet"):
        numeric = [v for v in order if not (isinstance(v, float) and math.isnan(v))]
        assert numeric == sorted(numeric)


def test_literals_of_every_scalar_type(session, table):
    literals = {
        "a ascii": ("'it''s'", "it's"), "b text": ("$$it's$$", "it's"), "c blob": ("0xCAFE", b"\xca\xfe"),
        "d boolean": ("TRUE", True), "e tinyint": ("-128", -128), "f smallint": ("32767", 32767),
        "g int": ("-2147483648", -(2**31)), "h bigint": ("9223372036854775807", 2**63 - 1),
        "i varint": ("-123456789012345678901234567890", -123456789012345678901234567890),
        "j decimal": ("-1.5e-3", Decimal("-0.0015")), "l float": ("-Infinity", -INF), "m double": ("NaN", NAN),
        "n uuid": ("00000000-0000-0000-0000-00000000000a", uuid.UUID(int=10)),
        "o timeuuid": (str(TIMEUUID_NOW), TIMEUUID_NOW), "p inet": ("'::1'", "::1"),
        "q timestamp": ("'1969-12-31 23:59:59.001+0000'", datetime.datetime(1969, 12, 31, 23, 59, 59, 1000)),
        "r date": ("'1969-12-31'", util.Date(-1)), "s time": ("'23:59:59.999999999'", util.Time(86_399_999_999_999)),
        "t duration": ("-1y2mo3d4h5m6s7ms8us9ns", util.Duration(-14, -3, -14706007008009)),
    }
    name = table("k int PRIMARY KEY, " + ", ".join(literals))
    columns = [c.split()[0] for c in literals]
    session.execute(
        f"INSERT INTO {name} (k, {', '.join(columns)}) VALUES (0, {', '.join(l for l, _ in literals.values())})"
    )
    row = session.execute(f"SELECT * FROM {name}").one()._asdict()
    for column, (_, wanted) in zip(columns, literals.values()):
        assert same(wanted, row[column]), f"{column}: {row[column]!r}"


# ---- time to live and timestamps


def test_ttl_timestamp_and_their_functions(session, table):
    name = table("k int PRIMARY KEY, a int, b int")
    session.execute(f"INSERT INTO {name} (k, a, b) VALUES (1, 10, 10) USING TIMESTAMP 1000 AND TTL 5000")
    row = session.execute(f"SELECT ttl(a) AS t, writetime(a) AS w FROM {name} WHERE k = 1").one()
    assert 4900 < row.t <= 5000 and row.w == 1000
    session.execute(f"UPDATE {name} USING TIMESTAMP 999 SET a = 9 WHERE k = 1")  # older: loses
    session.execute(f"UPDATE {name} USING TIMESTAMP 1001 SET b = 11 WHERE k = 1")  # newer: wins, no TTL
    row = session.execute(f"SELECT a, b, ttl(b) AS t, writetime(b) AS w FROM {name} WHERE k = 1").one()
    assert (row.a, row.b, row.t, row.w) == (10, 11, None, 1001)
    session.execute(f"DELETE a FROM {name} USING TIMESTAMP 1000 WHERE k = 1")  # a tie: the deletion wins
    assert session.execute(f"SELECT a FROM {name} WHERE k = 1").one().a is None
    insert = session.prepare(f"INSERT INTO {name} (k, a) VALUES (?, ?) USING TTL ? AND TIMESTAMP ?")
    session.execute(insert, (2, 1, 777, 5))
    row = session.execute(f"SELECT ttl(a) AS t, writetime(a) AS w FROM {name} WHERE k = 2").one()
    assert 700 < row.t <= 777 and row.w == 5


def test_expired_cells_and_rows_disappear(session, table):
    name = table("k int PRIMARY KEY, a int, b int")
    session.execute(f"INSERT INTO {name} (k, a) VALUES (1, 1) USING TTL 1")
    session.execute(f"UPDATE {name} SET b = 2 WHERE k = 2")
    session.execute(f"UPDATE {name} USING TTL 1 SET a = 1 WHERE k = 2")
    rows = lambda: {r.k: (r.a, r.b) for r in session.execute(f"SELECT k, a, b FROM {name}")}
    eventually(lambda: rows() == {2: (None, 2)})


# ---- selecting


@pytest.fixture(scope="module")
def wide(session):
    """20 partitions of 50 rows, a static per partition, written by prepared statements."""
    session.execute("CREATE TABLE wide (p int, c int, d text, s text static, v int, PRIMARY KEY (p, c, d))")
    insert = session.prepare("INSERT INTO wide (p, c, d, v) VALUES (?, ?, ?, ?)")
    rows = [(p, c, f"d{c % 5}", p * 1000 + c) for p in range(20) for c in range(50)]
    assert all(ok for ok, _ in execute_concurrent_with_args(session, insert, rows))
    static = session.prepare("INSERT INTO wide (p, s) VALUES (?, ?)")
    assert all(ok for ok, _ in execute_concurrent_with_args(session, static, [(p, f"s{p}") for p in range(20)]))
    return rows


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_paging_returns_every_row_once_and_in_order(session, wide, size):
    partition = SimpleStatement("SELECT c, v FROM wide WHERE p = 7", fetch_size=size)
    assert [(r.c, r.v) for r in session.execute(partition)] == [(c, 7000 + c) for c in range(50)]
    scan = list(session.execute(SimpleStatement("SELECT p, c, token(p) AS t FROM wide", fetch_size=size)))
    assert sorted((r.p, r.c) for r in scan) == [(p, c) for p in range(20) for c in range(50)]
    assert [r.t for r in scan] == sorted(r.t for r in scan)


def test_manual_paging_state_continues_in_another_session(cluster, session, wide):
    statement = SimpleStatement("SELECT c FROM wide WHERE p = 3 AND c >= 5 LIMIT 30", fetch_size=8)
    first = session.execute(statement)
    page, state = [r.c for r in first.current_rows], first.paging_state
    assert page == list(range(5, 13)) and state
    other = cluster.connect(session.keyspace)
    try:
        seen = page
        while state:
            result = other.execute(statement, paging_state=state)
            seen = seen + [r.c for r in result.current_rows]
            state = result.paging_state
        assert seen == list(range(5, 35))
    finally:
        other.shutdown()


def test_garbage_paging_state_is_refused(session, wide):
    made = make_cluster()  # of its own: the server may close the connection after a protocol error
    try:
        own = made.connect(session.keyspace)
        with pytest.raises(ProtocolException, match="paging state"):
            own.execute(SimpleStatement("SELECT * FROM wide", fetch_size=5), paging_state=b"\xff" * 20)
    finally:
        made.shutdown()


@pytest.mark.parametrize(
    "where,wanted",
    [
        ("p = 4 AND c = 6", [(4, 6)]),
        ("p = 4 AND c = 6 AND d = 'd1'", [(4, 6)]),
        ("p = 4 AND c = 6 AND d = 'nope'", []),
        ("p = 4 AND c > 3 AND c <= 6", [(4, 4), (4, 5), (4, 6)]),
        ("p = 4 AND c >= 47 ORDER BY c DESC", [(4, 49), (4, 48), (4, 47)]),
        ("p = 4 AND c IN (9, 2, 5)", [(4, 2), (4, 5), (4, 9)]),
        ("p = 4 AND (c, d) > (47, 'd2')", [(4, 48), (4, 49)]),
        ("p = 4 AND (c, d) IN ((1, 'd1'), (3, 'd3'), (4, 'd3'))", [(4, 1), (4, 3)]),
        ("p = 4 ORDER BY c DESC LIMIT 2", [(4, 49), (4, 48)]),
        ("p = 999", []),
        ("p = 2 AND v = 2030 ALLOW FILTERING", [(2, 30)]),
        ("p = 2 AND d = 'd3' AND v < 2010 ALLOW FILTERING", [(2, 3), (2, 8)]),
    ],
)
def test_selects_in_one_partition(session, wide, where, wanted):
    assert [(r.p, r.c) for r in session.execute(f"SELECT p, c FROM wide WHERE {where}")] == wanted


def test_selects_over_many_partitions(session, wide):
    ids = lambda cql, *a: sorted((r.p, r.c) for r in session.execute(cql, *a))
    assert ids("SELECT p, c FROM wide WHERE p IN (3, 1, 77) AND c < 2") == [(1, 0), (1, 1), (3, 0), (3, 1)]
    assert ids("SELECT p, c FROM wide PER PARTITION LIMIT 2") == [(p, c) for p in range(20) for c in (0, 1)]
    assert len(ids("SELECT p, c FROM wide PER PARTITION LIMIT 3 LIMIT 10")) == 10
    assert len(ids("SELECT p, c FROM wide LIMIT 123")) == 123
    assert ids("SELECT p, c FROM wide WHERE v >= 19047 ALLOW FILTERING") == [(19, 47), (19, 48), (19, 49)]
    assert session.execute("SELECT count(*) FROM wide").one()[0] == 1000
    assert session.execute("SELECT count(*) AS n FROM wide WHERE p = 5 AND c > 39").one().n == 10
    assert sorted(r.p for r in session.execute("SELECT DISTINCT p, s FROM wide")) == list(range(20))
    with pytest.raises(InvalidRequest, match="ALLOW FILTERING"):
        session.execute("SELECT * FROM wide WHERE v = 1")


def test_token_ranges_cover_the_ring_without_overlap(session, wide):
    select = session.prepare("SELECT p, c, token(p) AS t FROM wide WHERE token(p) > ? AND token(p) <= ?")
    bounds = [-(2**63)] + [i * 2**61 for i in range(-3, 4)] + [2**63 - 1]
    seen = []
    for low, high in zip(bounds, bounds[1:]):
        for row in session.execute(select, (low, high)):
            assert low < row.t <= high
            seen.append((row.p, row.c))
    assert sorted(seen) == [(p, c) for p in range(20) for c in range(50)]


def test_functions_and_casts(session, wide):
    row = session.execute(
        "SELECT cast(v AS text) AS t, cast(v AS double) AS d, now() AS n, uuid() AS u, token(p) AS k "
        "FROM wide WHERE p = 1 AND c = 2"
    ).one()
    assert (row.t, row.d) == ("1002", 1002.0) and row.n.version == 1 and row.u.version == 4


def test_static_columns(session, table):
    name = table("p int, c int, s text static, v int, PRIMARY KEY (p, c)")
    session.execute(f"INSERT INTO {name} (p, s) VALUES (1, 'alone')")
    assert [tuple(r) for r in session.execute(f"SELECT p, c, s, v FROM {name}")] == [(1, None, "alone", None)]
    session.execute(f"INSERT INTO {name} (p, c, v) VALUES (1, 1, 1)")
    session.execute(f"INSERT INTO {name} (p, c, v, s) VALUES (1, 2, 2, 'shared')")
    assert [tuple(r) for r in session.execute(f"SELECT c, s, v FROM {name}")] == [(1, "shared", 1), (2, "shared", 2)]
    session.execute(f"DELETE s FROM {name} WHERE p = 1")
    assert [r.s for r in session.execute(f"SELECT s FROM {name}")] == [None, None]
    session.execute(f"UPDATE {name} SET s = 'again' WHERE p = 1")
    session.execute(f"DELETE FROM {name} WHERE p = 1 AND c > 0")
    assert [tuple(r) for r in session.execute(f"SELECT DISTINCT p, s FROM {name}")] == [(1, "again")]


# ---- deleting and batches


def test_row_column_range_and_partition_deletes(session, table):
    name = table("p int, c int, d int, v int, PRIMARY KEY (p, c, d)")
    for c in range(4):
        for d in range(4):
            session.execute(f"INSERT INTO {name} (p, c, d, v) VALUES (1, %s, %s, 0)", (c, d))
    live = lambda: [(r.c, r.d) for r in session.execute(f"SELECT c, d FROM {name} WHERE p = 1")]
    session.execute(f"DELETE FROM {name} WHERE p = 1 AND c = 0 AND d = 1")
    session.execute(f"DELETE FROM {name} WHERE p = 1 AND c = 1")
    session.execute(f"DELETE FROM {name} WHERE p = 1 AND c = 2 AND d >= 1 AND d < 3")
    assert live() == [(0, 0), (0, 2), (0, 3), (2, 0), (2, 3), (3, 0), (3, 1), (3, 2), (3, 3)]
    session.execute(f"DELETE FROM {name} WHERE p = 1 AND c >= 2")
    assert live() == [(0, 0), (0, 2), (0, 3)]
    session.execute(f"DELETE v FROM {name} WHERE p = 1 AND c = 0 AND d = 0")
    assert (0, 0) in live(), "a row inserted with INSERT stays when its only cell is deleted"
    session.execute(f"UPDATE {name} SET v = 1 WHERE p = 1 AND c = 9 AND d = 9")
    session.execute(f"DELETE v FROM {name} WHERE p = 1 AND c = 9 AND d = 9")
    assert (9, 9) not in live(), "a row made by UPDATE goes with its last cell"
    session.execute(f"DELETE FROM {name} WHERE p = 1")
    assert live() == []
    session.execute(f"INSERT INTO {name} (p, c, d, v) VALUES (1, 5, 5, 5)")
    session.execute(f"TRUNCATE {name}")
    assert live() == []


@pytest.mark.parametrize("kind", [BatchType.LOGGED, BatchType.UNLOGGED])
def test_batches_mix_prepared_and_simple_statements(session, table, kind):
    name = table("p int, c int, v text, PRIMARY KEY (p, c)")
    insert = session.prepare(f"INSERT INTO {name} (p, c, v) VALUES (?, ?, ?)")
    batch = BatchStatement(batch_type=kind)
    for c in range(20):
        batch.add(insert, (c % 3, c, f"v{c}"))
    batch.add(SimpleStatement(f"INSERT INTO {name} (p, c, v) VALUES (%s, %s, %s)"), (9, 9, "simple"))
    batch.add(f"DELETE FROM {name} WHERE p = 0 AND c = 100")
    session.execute(batch)
    assert {(r.p, r.c): r.v for r in session.execute(f"SELECT * FROM {name}")} == {
        **{(c % 3, c): f"v{c}" for c in range(20)}, (9, 9): "simple",
    }
    session.execute(
        f"BEGIN BATCH USING TIMESTAMP 1 INSERT INTO {name} (p, c, v) VALUES (7, 1, 'a'); "
        f"UPDATE {name} SET v = 'b' WHERE p = 7 AND c = 2; APPLY BATCH"
    )
    assert {(r.c, r.v, r.w) for r in session.execute(f"SELECT c, v, writetime(v) AS w FROM {name} WHERE p = 7")} == {
        (1, "a", 1), (2, "b", 1),
    }


def test_a_batch_with_one_bad_statement_changes_nothing(session, table):
    name = table("p int PRIMARY KEY, v int")
    with pytest.raises(InvalidRequest):
        session.execute(
            f"BEGIN BATCH INSERT INTO {name} (p, v) VALUES (1, 1); INSERT INTO {name} (p, nope) VALUES (2, 2); APPLY BATCH"
        )
    assert list(session.execute(f"SELECT * FROM {name}")) == []


# ---- prepared statements


def test_named_markers_and_bound_names(session, table):
    name = table("k int PRIMARY KEY, a text, b text")
    insert = session.prepare(f"INSERT INTO {name} (k, a, b) VALUES (:key, :first, :second)")
    assert [c.name for c in insert.column_metadata] == ["key", "first", "second"]
    session.execute(insert, {"second": "2", "key": 1, "first": "1"})
    rows = session.execute(f"SELECT * FROM {name} WHERE k = %(key)s", {"key": 1})
    assert tuple(rows.one()) == (1, "1", "2")
    assert insert.routing_key_indexes == [0]


@pytest.mark.parametrize("version", [4, 5])
def test_prepared_select_star_follows_schema_changes(session, table, version):
    name = table("k int PRIMARY KEY, a int")
    made = make_cluster(protocol_version=version, row_factory=dict_factory)
    try:
        own = made.connect(session.keyspace)
        select = own.prepare(f"SELECT * FROM {name} WHERE k = ?")
        insert = own.prepare(f"INSERT INTO {name} (k, a) VALUES (?, ?)")
        own.execute(insert, (1, 2))
        assert own.execute(select, (1,)).one() == {"k": 1, "a": 2}
        session.execute(f"ALTER TABLE {name} ADD aa text")
        session.execute(f"UPDATE {name} SET aa = 'x' WHERE k = 1")
        assert own.execute(select, (1,)).one() == {"k": 1, "a": 2, "aa": "x"}
        session.execute(f"DROP TABLE {name}")
        session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, a int)")
        own.execute(insert, (3, 4))  # unknown to the server by now: the driver prepares it again
        assert own.execute(select, (3,)).one() == {"k": 3, "a": 4}
    finally:
        made.shutdown()


def test_routing_the_driver_agrees_with_the_server_on_tokens(cluster, session, table):
    name = table("a int, b text, PRIMARY KEY ((a, b))")
    insert = session.prepare(f"INSERT INTO {name} (a, b) VALUES (?, ?)")
    ring = cluster.metadata.token_map
    for a in range(200):
        bound = insert.bind((a, "k" * (a % 40)))
        session.execute(bound)
        computed = ring.token_class.from_key(bound.routing_key).value
        row = session.execute(f"SELECT token(a, b) AS t FROM {name} WHERE a = %s AND b = %s", (a, "k" * (a % 40))).one()
        assert row.t == computed
        (replica,) = cluster.metadata.get_replicas(session.keyspace, bound.routing_key)
        assert replica.address == HOST


def test_shard_aware_driver_reaches_every_shard(cluster, session, table):
    if not hasattr(cluster, "is_shard_aware"):
        pytest.skip("cassandra-driver knows no shards")
    shards = int(os.environ.get("CETO_SHARDS", "0"))
    if not shards and not cluster.is_shard_aware():
        pytest.skip("the server announces no shards (SUPPORTED has no SCYLLA_* options)")
    assert cluster.is_shard_aware()
    stats = lambda: list(cluster.shard_aware_stats().values())[0]
    if shards:
        assert stats()["shards_count"] == shards
    eventually(lambda: stats()["connected"] == stats()["shards_count"])
    (pool,) = session.get_pools()
    assert sorted(pool._connections) == list(range(stats()["shards_count"]))
    assert all(c.features.shard_id == shard for shard, c in pool._connections.items())
    name = table("k int PRIMARY KEY, v int")
    insert = session.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")
    assert all(ok for ok, _ in execute_concurrent_with_args(session, insert, [(k, k) for k in range(500)]))
    read = session.prepare(f"SELECT v FROM {name} WHERE k = ?")
    for k in range(500):
        assert session.execute(read, (k,)).one().v == k


# ---- errors


@pytest.mark.parametrize(
    "statement,error,text",
    [
        ("SELEC * FROM wide", SyntaxException, "line 1:0"),
        ("SELECT * FROM wide WHERE", SyntaxException, "no viable alternative at input '<EOF>'"),
        ("SELECT * FROM no_such_table", InvalidRequest, "no_such_table"),
        ("SELECT * FROM no_such_keyspace.t", InvalidRequest, "no_such_keyspace"),
        ("SELECT nope FROM wide", InvalidRequest, "nope"),
        ("INSERT INTO wide (p) VALUES ('text')", InvalidRequest, "p"),
        ("INSERT INTO wide (p, v) VALUES (1, 2)", InvalidRequest, "c"),
        ("UPDATE wide SET p = 1 WHERE p = 1", InvalidRequest, "p"),
        ("SELECT * FROM wide WHERE c = 1", InvalidRequest, "ALLOW FILTERING"),
        ("SELECT * FROM wide WHERE p = 1 ORDER BY v", InvalidRequest, "v"),
        ("CREATE TABLE bad (k int)", InvalidRequest, "bad"),
        ("DROP TABLE no_such_table", InvalidRequest, "no_such_table"),
        ("CREATE KEYSPACE k1 WITH replication = {'class': 'NoSuchStrategy'}", ConfigurationException, "NoSuchStrategy"),
        ("USE no_such_keyspace", InvalidRequest, "no_such_keyspace"),
    ],
)
def test_wrong_statements_are_refused_with_the_right_error(session, wide, statement, error, text):
    with pytest.raises(error) as wrong:
        session.execute(statement)
    assert text in str(wrong.value)


def test_creating_twice_says_already_exists(session, wide):
    with pytest.raises(AlreadyExists) as wrong:
        session.execute("CREATE TABLE wide (k int PRIMARY KEY)")
    assert (wrong.value.keyspace, wrong.value.table) == (session.keyspace, "wide")
    with pytest.raises(AlreadyExists) as wrong:
        session.execute(
            f"CREATE KEYSPACE {session.keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
    assert wrong.value.keyspace == session.keyspace


def test_consistency_that_one_node_cannot_give_is_unavailable(session, wide):
    for level in ("ONE", "QUORUM", "ALL", "LOCAL_ONE", "LOCAL_QUORUM"):
        statement = SimpleStatement("SELECT * FROM wide WHERE p = 1", consistency_level=getattr(ConsistencyLevel, level))
        assert len(session.execute(statement).all()) == 50
    for statement in ("SELECT * FROM wide WHERE p = 1", "INSERT INTO wide (p, c, d) VALUES (500, 1, '')"):
        with pytest.raises(Unavailable) as wrong:
            session.execute(SimpleStatement(statement, consistency_level=ConsistencyLevel.THREE))
        assert wrong.value.required_replicas == 3 and wrong.value.alive_replicas == 1


def test_wrong_value_lengths_are_invalid(session, table):
    name = table("k int PRIMARY KEY, v int, t text")
    insert = session.prepare(f"INSERT INTO {name} (k, v, t) VALUES (?, ?, ?)").bind((1, 2, "x"))
    insert.values[1] = b"\x00" * 3
    with pytest.raises(InvalidRequest):
        session.execute(insert)
    insert.values[1], insert.values[2] = b"\x00\x00\x00\x01", b"\xff\xfe"
    with pytest.raises(InvalidRequest):
        session.execute(insert)


# ---- the connection itself


def test_tracing_flag_returns_a_trace_id(session, wide):
    future = session.execute_async("SELECT * FROM wide WHERE p = 1", trace=True)
    assert len(future.result().all()) == 50
    assert future._query_traces and isinstance(future._query_traces[0].trace_id, uuid.UUID)


def test_many_requests_in_flight_each_get_their_own_answer(session, wide):
    point = session.prepare("SELECT v FROM wide WHERE p = ? AND c = ?")
    scans = [session.execute_async("SELECT count(*) FROM wide") for _ in range(20)]
    answers = execute_concurrent_with_args(
        session, point, [(p, c) for p, c, _, _ in wide] * 3, concurrency=900
    )
    assert [rows.one().v for _, rows in answers] == [v for *_, v in wide] * 3
    assert [f.result().one()[0] for f in scans] == [1000] * 20


def test_zz_reconnects_after_a_restart_and_finds_its_data(cluster, session, wide):
    command = os.environ.get("CETO_RESTART_CMD")
    if not command:
        pytest.skip("CETO_RESTART_CMD is not set")
    select = session.prepare("SELECT c, v FROM wide WHERE p = ?")
    before = [tuple(r) for r in session.execute(select, (3,))]
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)

    def answered():
        try:
            return session.execute(select, (3,)).all()
        except Exception:
            return None

    assert [tuple(r) for r in eventually(answered, 60)] == before
    assert session.execute("SELECT count(*) FROM wide").one()[0] == 1000
    session.execute("INSERT INTO wide (p, c, d) VALUES (1000, 0, '')")
