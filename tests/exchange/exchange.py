#!/usr/bin/env python3
"""Rows that go from one node to another inside table files.

exchange.py write HOST:PORT FILE    makes tables, fills them, and writes what SELECT says of each to FILE
exchange.py schema HOST:PORT FILE   makes the same tables, empty
exchange.py compare HOST:PORT FILE  fails unless SELECT says the same

Every kind of table once: each compression, all types, collections, statics, counters, deletions of all kinds, expiring
rows, a partition of many blocks.
"""

import json
import sys

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy

PLAIN = "(p int, c int, s text static, v text, m map<int, text>, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)"
COMPRESSIONS = {
    "lz4": "{'class': 'LZ4Compressor'}",
    "lz4_kept": "{'class': 'LZ4Compressor', 'min_compress_ratio': 3, 'chunk_length_in_kb': 4}",
    "snappy": "{'class': 'SnappyCompressor', 'chunk_length_in_kb': 64}",
    "deflate": "{'class': 'DeflateCompressor'}",
    "zstd": "{'class': 'ZstdCompressor', 'compression_level': 9}",
    "zstd_kept": "{'class': 'ZstdCompressor', 'min_compress_ratio': 4}",
    "noop": "{'class': 'NoopCompressor'}",
    "plain": "{'enabled': 'false'}",
}
SCALARS = {
    "a": ("ascii", "'ascii'"), "b": ("bigint", "-9"), "bl": ("blob", "0xcafe"), "bo": ("boolean", "true"), "da": ("date", "'2020-02-29'"),
    "de": ("decimal", "-12.340"), "d": ("double", "1.5"), "du": ("duration", "1mo2d3ns"), "f": ("float", "-2.5"), "i": ("inet", "'::1'"),
    "n": ("int", "7"), "sm": ("smallint", "-3"), "t": ("text", "'é'"), "ti": ("time", "'01:02:03.000000004'"),
    "ts": ("timestamp", "'2021-03-04T05:06:07.089Z'"), "tu": ("timeuuid", "13814000-1dd2-11b2-8080-808080808080"), "ty": ("tinyint", "-1"),
    "u": ("uuid", "13814000-1dd2-41b2-8080-808080808080"), "vi": ("varint", "123456789012345678901234567890"),
    "vec": ("vector<float, 3>", "[1.0, 2.0, 3.0]"), "tup": ("tuple<int, text>", "(1, 'x')"), "ud": ("ut", "{name: 'n', number: 3}"),
    "fl": ("frozen<list<int>>", "[1, 2]"), "l": ("list<int>", "[3, 1, 2]"), "se": ("set<text>", "{'b', 'a'}"),
    "m": ("map<text, frozen<set<int>>>", "{'k': {2, 1}}"),
}


def tables():
    """Name to definition."""
    result = {name: f"{PLAIN} AND compression = {compression}" for name, compression in COMPRESSIONS.items()}
    result["scalars"] = "(p int PRIMARY KEY, " + ", ".join(f"{name} {kind}" for name, (kind, _) in SCALARS.items()) + ")"
    result["counters"] = "(p int, c int, n counter, s counter static, PRIMARY KEY (p, c))"
    result["wide"] = "(p int, c int, v text, PRIMARY KEY (p, c))"
    return result


def make(session):
    session.execute("CREATE KEYSPACE exchange WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.set_keyspace("exchange")
    session.execute("CREATE TYPE ut (name text, number int)")
    for name, definition in tables().items():
        session.execute(f"CREATE TABLE {name} {definition}")


def fill(session):
    run = session.execute
    for table in COMPRESSIONS:
        for p in range(8):
            for c in range(20):
                run(f"INSERT INTO {table} (p, c, s, v, m) VALUES ({p}, {c}, 's{p}', '{'v' * (c * 9)}', {{{c}: 'x', 5: 'y'}}) USING TIMESTAMP {1000 + c}")
            run(f"UPDATE {table} USING TIMESTAMP 3000 SET m[7] = 'z', v = null WHERE p = {p} AND c = 3")
            run(f"DELETE FROM {table} USING TIMESTAMP 4000 WHERE p = {p} AND c > 5 AND c <= 8")
            run(f"DELETE FROM {table} USING TIMESTAMP 4001 WHERE p = {p} AND c > 7 AND c < 10")
            run(f"DELETE FROM {table} USING TIMESTAMP 4002 WHERE p = {p} AND c = 15")
            run(f"DELETE m FROM {table} USING TIMESTAMP 4003 WHERE p = {p} AND c = 16")
            run(f"INSERT INTO {table} (p, c, v) VALUES ({p}, 30, 'expires') USING TIMESTAMP 5000 AND TTL 100000")
        run(f"DELETE FROM {table} USING TIMESTAMP 6000 WHERE p = 2")
        run(f"INSERT INTO {table} (p, s) VALUES (100, 'static alone') USING TIMESTAMP 7000")
    names = ", ".join(SCALARS)
    run(f"INSERT INTO scalars (p, {names}) VALUES (1, {', '.join(value for _, value in SCALARS.values())})")
    run(f"INSERT INTO scalars (p, {names}) VALUES (2, {', '.join('null' for _ in SCALARS)})")
    for p in range(3):
        for c in range(5):
            run(f"UPDATE counters SET n = n + {p * 10 + c} WHERE p = {p} AND c = {c}")
            run(f"UPDATE counters SET n = n - 3, s = s + 1 WHERE p = {p} AND c = {c}")
    run("DELETE FROM counters WHERE p = 2 AND c = 4")
    insert = session.prepare("INSERT INTO wide (p, c, v) VALUES (?, ?, ?)")
    for c in range(600):
        run(insert, (1, c, f"{c} " * 200))


def rows(session):
    result = {}
    for name, definition in tables().items():
        selected = [row for row in session.execute(f"SELECT * FROM {name}")]
        extra = []
        if name in COMPRESSIONS:
            extra = [str(row) for row in session.execute(f"SELECT p, c, writetime(v), writetime(s) FROM {name}")]
            extra += [str(bool(row[0])) for row in session.execute(f"SELECT ttl(v) FROM {name}")]
        if "PRIMARY KEY (p, c)" in definition:
            for p in range(8):
                for query in (f"p = {p} AND c >= 2 AND c < 9 ORDER BY c ASC", f"p = {p} AND c = 30", f"p = {p} ORDER BY c DESC LIMIT 3"):
                    extra += [str(row) for row in session.execute(f"SELECT * FROM {name} WHERE {query}")]
        result[name] = [str(row) for row in selected] + extra
    return result


def main():
    action, address, path = sys.argv[1:]
    host, port = address.rsplit(":", 1)
    profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy([host]), request_timeout=60)
    cluster = Cluster([host], port=int(port), execution_profiles={EXEC_PROFILE_DEFAULT: profile}, protocol_version=4)
    session = cluster.connect()
    different = 0
    if action == "write":
        make(session)
        fill(session)
        with open(path, "w") as file:
            json.dump(rows(session), file)
    elif action == "schema":
        make(session)
    else:
        session.set_keyspace("exchange")
        found = rows(session)
        with open(path) as file:
            expected = json.load(file)
        for name, wanted in expected.items():
            if not wanted:
                different += 1
                print(f"{name}: nothing to compare", file=sys.stderr)
            if found[name] != wanted:
                different += 1
                print(f"{name}: {len(found[name])} rows, {len(wanted)} expected", file=sys.stderr)
                for left, right in zip(found[name], wanted):
                    if left != right:
                        print(f"  Cassandra {left}\n  ceto      {right}", file=sys.stderr)
                        break
        print(f"{sum(map(len, expected.values()))} rows of {len(expected)} tables, {different} tables differ")
    cluster.shutdown()
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
