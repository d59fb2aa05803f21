"""A data directory that an earlier version left behind, killed: the first start of this one takes all of it over.

`earlier.tar.xz` was made by a binary of commit 000c2d0, the last version that kept the schema in `schema/schema.log`:

    CETO=<that binary> PYTHONPATH=../badinput python3 test_earlier.py --make
"""

import shutil
import struct
import sys
import tarfile
import unittest
from pathlib import Path

from native import Connection
from node import Node
from test_admin import ctl

FIXTURE = Path(__file__).with_name("earlier.tar.xz")
CONFIG = "commitlog_segment_size: 1MiB\nuser_defined_functions_enabled: true\n"
ROWS = 60

SCHEMA = [
    "CREATE KEYSPACE e WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE e.address (street text, numbers frozen<list<int>>)",
    "CREATE TABLE e.people (town text, id int, name text, home frozen<address>, tags set<text>, old int, "
    "mayor text static, PRIMARY KEY (town, id)) WITH CLUSTERING ORDER BY (id DESC) AND comment = 'kept'",
    "ALTER TABLE e.people ADD notes map<text, int>",
    "ALTER TABLE e.people DROP old",
    "CREATE TABLE e.visits (page text PRIMARY KEY, seen counter)",
    "CREATE TABLE e.gone (k int PRIMARY KEY)",
    "INSERT INTO e.gone (k) VALUES (1)",
    "CREATE TABLE e.emptied (k int PRIMARY KEY)",
    "INSERT INTO e.emptied (k) VALUES (1)",
    "CREATE FUNCTION e.larger (a int, b int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua "
    "AS 'return math.max(a, b)'",
    "CREATE AGGREGATE e.largest (int) SFUNC larger STYPE int INITCOND 0",
]


def write(c, first, last):
    for number in range(first, last):
        town = f"town {number % 4}"
        c.query(f"INSERT INTO e.people (town, id, name, home, tags, notes) VALUES ('{town}', {number}, 'name {number}', "
                f"{{street: 'street {number}', numbers: [{number}]}}, {{'a', 't{number}'}}, {{'n': {number}}})")
        c.query(f"UPDATE e.visits SET seen = seen + {number} WHERE page = 'page {number % 3}'")


def make():
    node = Node("earlier-made", CONFIG, shards=2).start()
    try:
        with Connection() as c:
            for statement in SCHEMA:
                c.query(statement)
            write(c, 0, ROWS // 2)
            c.query("UPDATE e.people SET mayor = 'her' WHERE town = 'town 1'")
            ctl("flush", "e", "people")
            # From here on in the commit log alone.
            c.query("DROP TABLE e.gone")
            c.query("TRUNCATE e.emptied")
            write(c, ROWS // 2, ROWS)
            c.query("DELETE FROM e.people WHERE town = 'town 2' AND id < 10")
            c.query("DELETE notes FROM e.people WHERE town = 'town 3' AND id = 3")
    finally:
        node.kill()
    with tarfile.open(FIXTURE, "w:xz", preset=9) as archive:
        archive.add(node.data, "data")
    print(f"{FIXTURE}: {FIXTURE.stat().st_size} bytes")


class Earlier(unittest.TestCase):
    def started(self, shards):
        node = Node(f"earlier-{shards}", CONFIG, shards=shards)
        self.addCleanup(node.kill)
        with tarfile.open(FIXTURE) as archive:
            archive.extractall(node.work, filter="data")
        return node

    def check(self, node):
        with Connection() as c:
            number = lambda cell: struct.unpack(">i", cell)[0]
            rows = c.query("SELECT id, name, home.street, notes['n'] FROM e.people")
            found = {number(row[0]): row for row in rows}
            expected = {n for n in range(ROWS) if not (n % 4 == 2 and n < 10)}
            self.assertEqual(set(found), expected)
            for n, (_, name, street, note) in found.items():
                self.assertEqual((name, street), (f"name {n}".encode(), f"street {n}".encode()))
                self.assertEqual(note, None if n == 3 else struct.pack(">i", n))
            self.assertEqual(c.query("SELECT mayor FROM e.people WHERE town = 'town 1' LIMIT 1"), [[b"her"]])
            ids = [number(row[0]) for row in c.query("SELECT id FROM e.people WHERE town = 'town 0'")]
            self.assertEqual(ids, sorted(ids, reverse=True))
            for page in range(3):
                seen = c.query(f"SELECT seen FROM e.visits WHERE page = 'page {page}'")
                self.assertEqual(seen, [[struct.pack(">q", sum(range(page, ROWS, 3)))]])
            self.assertEqual(c.query("SELECT k FROM e.emptied"), [])
            self.assertEqual(c.query("SELECT e.largest(id) FROM e.people"), [[struct.pack(">i", ROWS - 1)]])
            tables = c.query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'e'")
            self.assertEqual([row[0] for row in tables], [b"emptied", b"people", b"visits"])
            dropped = c.query("SELECT column_name FROM system_schema.dropped_columns WHERE keyspace_name = 'e'")
            self.assertEqual(dropped, [[b"old"]])

    def test_all_of_it_is_taken_over_and_stays(self):
        for shards in (2, 1):
            with self.subTest(shards=shards):
                node = self.started(shards)
                schema = node.data / "schema"
                self.assertTrue((schema / "schema.log").exists() and not (schema / "group0").exists())
                before = {path: path.read_bytes() for path in (node.data / "data").rglob("me-*")}
                self.assertTrue(before)
                node.start()
                self.check(node)
                if shards == 2:
                    self.assertTrue(all(path.read_bytes() == kept for path, kept in before.items() if path.exists()))
                    self.assertTrue(any(path.exists() for path in before), "no table file moves")
                self.assertFalse((schema / "schema.log").exists())
                self.assertTrue((schema / "schema.log.migrated").exists() and (schema / "group0").exists())
                with Connection() as c:
                    c.query("CREATE TABLE e.new (k int PRIMARY KEY)")
                    c.query("INSERT INTO e.new (k) VALUES (1)")
                node.kill()
                node.start()
                with Connection() as c:
                    self.assertEqual(c.query("SELECT k FROM e.new"), [[struct.pack(">i", 1)]])
                    c.query("DROP TABLE e.new")
                self.check(node)
                node.stop()
                shutil.rmtree(node.work)


if __name__ == "__main__":
    if sys.argv[1:] == ["--make"]:
        make()
        sys.exit()
    outcome = unittest.main(exit=False, verbosity=2).result
    failed = len(outcome.failures) + len(outcome.errors)
    print(f"{outcome.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed or not outcome.testsRun else 0)
