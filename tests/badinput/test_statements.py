"""Statements and values that are wrong: SYNTAX_ERROR with a place, or INVALID that names the column; never worse."""

import struct

import native
from native import BATCH, EXECUTE, INVALID, PREPARE, QUERY, SYNTAX, Connection, Refused, long_text
from node import NodeTest

TYPES = {
    "ascii": b"caf\xc3\xa9", "bigint": b"\x00" * 7, "boolean": b"\x00\x01", "date": b"\x00" * 3, "decimal": b"\x00\x01",
    "double": b"\x00" * 4, "duration": b"\x00", "float": b"\x00" * 8, "inet": b"\x7f\x00\x00", "int": b"\x00" * 3,
    "smallint": b"\x00", "text": b"\xff\xfe", "time": b"\x00" * 7, "timestamp": b"\x00" * 9, "timeuuid": b"\x00" * 16,
    "tinyint": b"\x00\x00", "uuid": b"\x00" * 15, "list<int>": b"\x00\x00\x00\x05\x00\x00\x00\x04\x00",
    "map<int, text>": b"\x7f\xff\xff\xff", "set<text>": struct.pack(">ii", 1, 1) + b"\xff",
    "tuple<int, int>": struct.pack(">i", 3) + b"\x00" * 3, "vector<float, 2>": b"\x00" * 7,
}


class Statements(NodeTest):
    RSS_GROWTH_MB = 384  # what the allocator keeps of the longest statements

    @classmethod
    def prepare_data(cls):
        with Connection() as c:
            c.query("CREATE KEYSPACE bad WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
            columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(TYPES))
            c.query(f"CREATE TABLE bad.t (k int PRIMARY KEY, {columns})")
            c.query("CREATE TABLE bad.keys (p text, c int, v int, PRIMARY KEY (p, c))")

    def refused(self, code, run):
        with self.assertRaises(Refused) as caught:
            run()
        self.assertEqual(caught.exception.code, code, caught.exception)
        return caught.exception.message

    def test_values_of_a_wrong_length_or_content_name_their_column(self):
        for version in (3, 4, 5):
            with Connection(version) as c:
                for at, (kind, wrong) in enumerate(TYPES.items()):
                    ids = c.prepare(f"INSERT INTO bad.t (k, c{at}) VALUES (?, ?)")
                    body = c.execute_body(ids, [struct.pack(">i", 1), wrong])
                    with self.subTest(version=version, kind=kind):
                        self.assertIn(f"c{at}", self.refused(INVALID, lambda: c.ask(EXECUTE, body)))

    def test_keys_of_a_wrong_length_name_their_column(self):
        with Connection() as c:
            where = {"p": (b"\xff", b"\x00" * 4), "c": (b"a", b"\x00" * 5)}
            for name, values in where.items():
                for statement in ("SELECT v FROM bad.keys WHERE p = ? AND c = ?", "DELETE FROM bad.keys WHERE p = ? AND c = ?"):
                    body = c.execute_body(c.prepare(statement), values)
                    with self.subTest(column=name, statement=statement):
                        self.assertIn(name, self.refused(INVALID, lambda: c.ask(EXECUTE, body)))

    def test_literals_of_a_wrong_type_name_their_column(self):
        with Connection() as c:
            for at, kind in enumerate(TYPES):
                if kind in ("date", "time", "timestamp", "duration") or kind.startswith("tuple"):
                    continue  # a text is of the right type there, and Cassandra's message quotes it
                literal = "12" if kind in ("ascii", "text", "uuid", "timeuuid", "inet", "boolean", "duration") else "'x y'"
                with self.subTest(kind=kind):
                    run = lambda: c.query(f"INSERT INTO bad.t (k, c{at}) VALUES (1, {literal})")
                    self.assertIn(f"c{at}", self.refused(INVALID, run))

    def test_more_or_fewer_values_than_marks(self):
        with Connection() as c:
            ids = c.prepare("INSERT INTO bad.keys (p, c, v) VALUES (?, ?, ?)")
            for count in (0, 1, 2, 4, 1000):
                with self.subTest(count=count):
                    self.refused(INVALID, lambda: c.ask(EXECUTE, c.execute_body(ids, [b"abcd"] * count)))

    def test_syntax_errors_have_a_place(self):
        with Connection() as c:
            for statement in ("SELEC * FROM t", "SELECT * FROM", "SELECT 'abc", "\x00", "", ";", "/* never ends", "é", "SELECT \U0001f600"):
                with self.subTest(statement=statement):
                    self.assertRegex(self.refused(SYNTAX, lambda: c.query(statement)), r"line \d+:-?\d+")

    def test_nested_a_hundred_thousand_deep(self):
        deep = 100_000
        bombs = {
            "lists": "INSERT INTO bad.t (k, c17) VALUES (1, " + "[" * deep + "]" * deep + ")",
            "open lists": "INSERT INTO bad.t (k, c17) VALUES (1, " + "[" * deep,
            "sets": "INSERT INTO bad.t (k, c19) VALUES (1, " + "{" * deep + "}" * deep + ")",
            "maps": "INSERT INTO bad.t (k, c18) VALUES (1, " + "{1:" * deep + "1" + "}" * deep + ")",
            "parentheses": "SELECT k FROM bad.t WHERE " + "(" * deep + "k = 1" + ")" * deep,
            "calls": "SELECT " + "token(" * deep + "k" + ")" * deep + " FROM bad.t",
            "casts": "SELECT " + "CAST(" * deep + "k" + " AS text)" * deep + " FROM bad.t",
            "type hints": "INSERT INTO bad.t (k) VALUES (" + "(int)" * deep + "1)",
            "minus": "SELECT " + "-" * deep + "k FROM bad.t",
            "types": "CREATE TABLE bad.u (k int PRIMARY KEY, v " + "frozen<list<" * deep + "int" + ">>" * deep + ")",
            "fields": "SELECT k" + ".k" * deep + " FROM bad.t",
            "comments": "/*" * deep + "*/" * deep,
        }
        with Connection() as c:
            for name, statement in bombs.items():
                for opcode, body in ((QUERY, native.query_body(4, statement)), (PREPARE, long_text(statement))):
                    with self.subTest(bomb=name, opcode=opcode):
                        with self.assertRaises(Refused) as caught:
                            c.ask(opcode, body)
                        self.assertIn(caught.exception.code, (SYNTAX, INVALID), caught.exception)

    def test_statements_that_are_long_rather_than_deep(self):
        with Connection() as c:
            many = 60_000
            long = {
                "IN": "SELECT k FROM bad.t WHERE k IN (" + ",".join(map(str, range(many))) + ")",
                "AND": "SELECT k FROM bad.t WHERE " + " AND ".join(["k = 1"] * many),
                "columns": "SELECT " + ",".join(["k"] * many) + " FROM bad.t",
                "marks": "INSERT INTO bad.keys (p, c, v) VALUES (" + ",".join(["?"] * 70_000) + ")",
                "a name": "SELECT " + "a" * 1_000_000 + " FROM bad.t",
                "a number": "SELECT k FROM bad.t WHERE k = " + "9" * 1_000_000,
                "a text": "SELECT k FROM bad.t WHERE k = '" + "x" * 8_000_000 + "'",
                "a decimal": "INSERT INTO bad.t (k, c4) VALUES (1, 1e2147483647)",
                "a small decimal": "INSERT INTO bad.t (k, c4) VALUES (1, 1e-2147483648)",
                "many columns": "SELECT " + ",".join(["k"] * 4_000_000) + " FROM bad.t",
                "a long IN": "SELECT k FROM bad.t WHERE k IN (" + ",".join(["1"] * 6_000_000) + ")",
                "batch": "BEGIN BATCH " + "INSERT INTO bad.keys (p, c, v) VALUES ('a', 1, 1); " * many + "APPLY BATCH",
            }
            for name, statement in long.items():
                with self.subTest(statement=name):
                    try:
                        c.query(statement)
                    except Refused as refused:
                        self.assertNotEqual(refused.code, native.SERVER, refused)

    def test_a_name_longer_than_a_folder_may_be(self):
        with Connection() as c:
            for length in (300, 70_000):
                for statement in (f"CREATE TABLE bad.{'n' * length} (k int PRIMARY KEY)",
                                  f"CREATE KEYSPACE {'n' * length} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"):
                    with self.assertRaises(Refused) as caught:
                        c.query(statement)
                    self.assertIn(caught.exception.code, (INVALID, native.CONFIG), caught.exception)
            for name in ('"../../up"', '"a/b"', '"a\x00b"', '""', '"."'):
                with self.subTest(name=name), self.assertRaises(Refused) as caught:
                    c.query(f"CREATE TABLE bad.{name} (k int PRIMARY KEY)")
                self.assertIn(caught.exception.code, (INVALID, SYNTAX, native.CONFIG))

    def test_ids_nobody_prepared(self):
        for version in (3, 4, 5):
            with Connection(version) as c:
                for prepared in (b"", b"x", b"\x00" * 16, b"\xff" * 60_000):
                    ids = [prepared] * (2 if version == 5 else 1)
                    self.refused(native.UNPREPARED, lambda: c.ask(EXECUTE, c.execute_body(ids)))

    def test_preparing_without_end_keeps_memory_bounded(self):
        with Connection() as c:
            padding = "x" * 20_000
            for turn in range(5_000):
                c.send(native.frame(4, PREPARE, long_text(f"SELECT v FROM bad.keys WHERE p = '{turn}{padding}'"), turn % 30_000))
                if turn % 50 == 49:
                    for _ in range(50):
                        self.assertEqual(c.read()[1], native.RESULT)
        # 100 MB of texts went by; tearDown bounds what stays.

    def test_batches_of_what_cannot_be_batched(self):
        with Connection() as c:
            for statement in ("SELECT * FROM bad.t", "DROP TABLE bad.t", "nonsense", ""):
                body = b"\x00\x00\x01\x00" + long_text(statement) + b"\x00\x00" + native.parameters(4)
                with self.subTest(statement=statement), self.assertRaises(Refused) as caught:
                    c.ask(BATCH, body)
                self.assertIn(caught.exception.code, (INVALID, SYNTAX, native.CONFIG))
