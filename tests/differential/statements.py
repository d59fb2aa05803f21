"""Random CQL statements from a seed: definitions, writes with timestamps of their own, selects of every kind (groups, JSON,
parts of collections, arithmetic, filters), and wrong ones.

Everything comes from one `random.Random`, so a seed gives the same statements everywhere. Writes carry explicit
timestamps and long times to live: what two servers answer then depends on the statements alone. Values come from
small domains on purpose, so that rows meet, overwrite and shadow each other.
"""

import random
import re
from dataclasses import dataclass

LITERALS = {
    "ascii": ["''", "'a'", "'abc'", "'it''s'", "'Z'"],
    "text": ["''", "'ä'", "'b'", "'\u20ac'", "$$dollar$$"],
    "blob": ["0x", "0x00", "0xff", "0xcafe"],
    "boolean": ["true", "FALSE"],
    "tinyint": ["-128", "-1", "0", "127", "0x0a"],
    "smallint": ["-32768", "0", "32767"],
    "int": ["-2147483648", "-1", "0", "1", "2", "3", "2147483647"],
    "bigint": ["-9223372036854775808", "0", "7", "9223372036854775807"],
    "varint": ["0", "-129", "340282366920938463463374607431768211456"],
    "decimal": ["0", "-1.5", "1.50", "1e10", "123456789.123456789123456789"],
    "float": ["0", "-1.5", "3.4e38", "NaN", "Infinity"],
    "double": ["0.0", "1e-300", "-Infinity", "NaN", "2"],
    "uuid": ["00000000-0000-0000-0000-000000000000", "123e4567-e89b-42d3-a456-426614174000"],
    "timeuuid": ["123e4567-e89b-12d3-a456-426614174000", "00000000-0000-1000-8080-808080808080"],
    "inet": ["'127.0.0.1'", "'::1'", "'255.255.255.255'"],
    "timestamp": ["0", "-1", "'1969-12-31T23:59:59.999+0000'", "'2024-02-29 12:00:00+0100'"],
    "date": ["'1970-01-01'", "'1969-12-31'", "'-0001-01-01'", "2147483648"],
    "time": ["'00:00:00'", "'23:59:59.999999999'", "'12:00:00.5'"],
    "duration": ["1h30m", "-1y2mo3d", "P1DT2H", "0s"],
}
TYPE = "CREATE TYPE udt0 (a int, b text, c frozen<list<int>>)"
# Collections and what else is made of parts; `udt0` is TYPE.
COMPOSITES = {
    "list<int>": ["[1, 2]", "[3]", "[]", "[2, 2, 1]"],
    "set<text>": ["{'a', 'b'}", "{'c'}", "{}", "{'b', 'a', 'b'}"],
    "map<text, int>": ["{'a': 1, 'b': 2}", "{'c': 3}", "{}", "{'b': 1, 'a': 9}"],
    "map<int, text>": ["{1: 'x', 2: 'y'}", "{-1: ''}"],
    "udt0": ["{a: 1, b: 'x', c: [1, 2]}", "{a: 2}", "{b: 'q'}", "{a: null, b: 'r'}"],
    "frozen<list<int>>": ["[1, 2]", "[]", "[3]"],
    "frozen<set<int>>": ["{2, 1}", "{}", "{3}"],
    "frozen<map<text, int>>": ["{'a': 1}", "{}", "{'b': 2, 'a': 0}"],
    "frozen<udt0>": ["{a: 1, b: 'x'}", "{a: 2, c: []}", "{b: 'q'}"],
    "frozen<tuple<int, text>>": ["(1, 'x')", "(2, null)", "(null, 'y')"],
    "tuple<int, frozen<tuple<text, double>>>": ["(1, ('x', 1.5))", "(2, null)", "(null, (null, 2))", "(3, ('', NaN))"],
    "vector<float, 2>": ["[1, 2]", "[0.5, -1]"],
    "vector<text, 2>": ["['a', 'bb']", "['', 'x']"],
    "list<frozen<udt0>>": ["[{a: 1}]", "[]", "[{a: 1, c: [2]}, {b: 'z'}]"],
    "map<text, frozen<list<int>>>": ["{'a': [1], 'b': []}", "{}", "{'c': [3, 1]}"],
    "set<frozen<tuple<int, text>>>": ["{(2, 'b'), (1, 'a')}", "{(1, null)}", "{}"],
    "frozen<map<frozen<set<int>>, frozen<list<text>>>>": ["{{2, 1}: ['a']}", "{}", "{{}: []}"],
}
LITERALS |= COMPOSITES
SCALARS = [t for t in LITERALS if t not in COMPOSITES]
CELLS = {"list<int>", "set<text>", "map<text, int>", "map<int, text>", "udt0", "list<frozen<udt0>>", "map<text, frozen<list<int>>>",
         "set<frozen<tuple<int, text>>>"}  # a cell for each element
NUMBERS = ["tinyint", "smallint", "int", "bigint", "varint", "decimal", "float", "double"]
CAST = {number: ["text", "ascii", *NUMBERS] for number in NUMBERS} | {
    "text": ["ascii", "int"], "ascii": ["text"], "timestamp": ["date", "text", "bigint"], "date": ["timestamp", "text"],
    "timeuuid": ["timestamp", "date", "text"], "uuid": ["text"], "inet": ["text"], "boolean": ["text", "int"], "time": ["text"],
    "duration": ["text"], "blob": ["text"],
}
JSON = {  # values as JSON has them, right ones and some that are not
    "int": ["0", "1", "2", '"3"', "null", '"x"'], "text": ['"b"', '"\\u00e4"', '""'], "bigint": ["7", '"0"', "1.5"],
    "ascii": ['"a"', '"abc"', '"\\u00e4"'], "uuid": ['"123e4567-e89b-42d3-a456-426614174000"', '"nope"'],
    "boolean": ["true", '"false"'], "double": ["0.5", '"NaN"', "2"], "list<int>": ["[1, 2]", "[]", '"[3]"', "[null]"],
    "set<text>": ['["b", "a"]', "[]"], "map<text, int>": ['{"a": 1}', "{}"], "udt0": ['{"a": 1, "b": "x"}', '{"nope": 1}'],
    "blob": ['"0xcafe"', '"x"'], "decimal": ["1.50", '"1e3"'], "frozen<list<int>>": ["[1]"], "timestamp": ['"2024-01-01"', "0"],
    "tinyint": ["1", '"-128"', "128"], "smallint": ["-3", '"300"', "1.5"], "varint": ["12345678901234567890", '"-1"', "2.5"],
    "float": ["1.5", '"Infinity"', "true"], "timeuuid": ['"123e4567-e89b-12d3-a456-426614174000"', "5"], "inet": ['"::1"', '"x"'],
    "date": ['"2020-02-29"', "7"], "time": ['"01:02:03.5"', '"25:00:00"'], "duration": ['"1y2d"', "1"],
    "map<int, text>": ['{"1": "x"}', '{"x": "y"}'], "frozen<set<int>>": ["[2, 1, 2]", "[null]"],
    "frozen<map<text, int>>": ['{"b": 1, "a": "2"}', "[1]"], "frozen<udt0>": ['{"A": 1}', '{"a": 1, "c": [1, 2]}', "{}"],
    "frozen<tuple<int, text>>": ['[1, "x"]', "[1]", '[1, "x", 2]', "[null, null]"], "vector<float, 2>": ["[1, 2.5]", "[1]"],
    "tuple<int, frozen<tuple<text, double>>>": ['[1, ["x", 1.5]]', "[1, 2]"], "list<frozen<udt0>>": ['[{"a": 1}, {}]', "{}"],
    "map<text, frozen<list<int>>>": ['{"a": [1]}', '{"a": 1}'], "set<frozen<tuple<int, text>>>": ['[[1, "a"], [1, "a"]]'],
    "vector<text, 2>": ['["a", "b"]', "[1, 2]"], "frozen<map<frozen<set<int>>, frozen<list<text>>>>": ['{"[2, 1]": ["a"]}', "{}"],
}
COUNTED = "CREATE TABLE counted (k int, c int, n counter, m counter, s counter static, PRIMARY KEY (k, c))"
BYTES = {
    "ascii": [b"", b"a", b"abc"],
    "text": [b"b", "\u20ac".encode()],
    "blob": [b"", b"\x00", b"\xca\xfe"],
    "boolean": [b"\x00", b"\x01", b"\x02"],
    "tinyint": [b"\x00", b"\x80"],
    "smallint": [b"\x00\x00", b"\x80\x00"],
    "int": [b"\x00\x00\x00\x01", b"\x80\x00\x00\x00"],
    "bigint": [bytes(8), b"\x80" + bytes(7)],
    "varint": [b"\x00", b"\xff\x7f", b"\x00\x00\x01"],
    "decimal": [b"\x00\x00\x00\x02\x7f", b"\xff\xff\xff\xff\x01"],
    "float": [bytes(4), b"\x80\x00\x00\x00", b"\x7f\xc0\x00\x00", b"\x7f\xc0\x00\x01"],
    "double": [bytes(8), b"\x80" + bytes(7), b"\x7f\xf8" + bytes(6)],
    "uuid": [bytes(16), bytes.fromhex("123e4567e89b42d3a456426614174000")],
    "timeuuid": [bytes.fromhex("123e4567e89b12d3a456426614174000")],
    "inet": [b"\x7f\x00\x00\x01", bytes(15) + b"\x01"],
    "timestamp": [bytes(8), b"\xff" * 8],
    "date": [b"\x80\x00\x00\x00", bytes(4)],
    "time": [bytes(8), bytes.fromhex("00004e94914effff")],
    "duration": [bytes(3), b"\x02\x04\x06", b"\x01\x03\x05"],
}
BINARY = {  # of composites, where the bytes are easily told
    "list<int>": [bytes(4), bytes.fromhex("000000010000000400000001")],
    "set<text>": [bytes(4), bytes.fromhex("000000010000000161"), bytes.fromhex("00000002000000016200000001 61".replace(" ", ""))],
    "map<text, int>": [bytes(4), bytes.fromhex("0000000100000001610000000400000001")],
    "udt0": [bytes.fromhex("0000000400000001"), bytes.fromhex("ffffffff0000000178"), b""],
    "frozen<udt0>": [bytes.fromhex("0000000400000001"), bytes.fromhex("0000000400000001ffffffffffffffff")],
    "frozen<list<int>>": [bytes(4), bytes.fromhex("0000000100000004ffffffff")],
    "frozen<tuple<int, text>>": [bytes.fromhex("0000000400000001"), bytes.fromhex("00000004000000010000000178")],
    "vector<float, 2>": [bytes(8), bytes.fromhex("3f8000007fc00000")],
}
NUMERIC = {"tinyint", "smallint", "int", "bigint", "varint", "decimal", "float", "double"}


@dataclass
class Column:
    name: str
    type: str
    kind: str  # partition, clustering, static or regular
    descending: bool = False


@dataclass
class Table:
    name: str
    columns: list

    def of(self, kind):
        return [c for c in self.columns if c.kind == kind]

    def create(self):
        defs = [f"{c.name} {c.type}" + (" static" if c.kind == "static" else "") for c in self.columns]
        partition, clustering = self.of("partition"), self.of("clustering")
        key = f"({', '.join(c.name for c in partition)})" if len(partition) > 1 else partition[0].name
        key = ", ".join([key] + [c.name for c in clustering])
        cql = f"CREATE TABLE {self.name} ({', '.join(defs)}, PRIMARY KEY ({key}))"
        if any(c.descending for c in clustering):
            order = ", ".join(f"{c.name} {'DESC' if c.descending else 'ASC'}" for c in clustering)
            cql += f" WITH CLUSTERING ORDER BY ({order})"
        return cql


@dataclass
class Statement:
    kind: str  # ddl, write, lwt, counter, select, wrong, prepare or execute
    cql: str
    page: int = 5000
    values: tuple = ()  # of an execute: bytes, None for null, or "unset"
    serial: bool = False  # read at consistency SERIAL


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tables = []
        self.timestamp = 1000
        self.numbers = []  # columns that arithmetic may meet
        self.marking = False  # values are given with their types, so that some may be bound

    # ---- tables

    def make_table(self, number):
        pick = self.random
        partitions, clusterings = pick.choice([(1, 0), (1, 1), (1, 2), (2, 1), (1, 3), (2, 0)])
        keys = [t for t in SCALARS if t != "duration"]
        small = ["int", "text", "bigint", "ascii", "uuid"]
        columns = [Column(f"p{i}", pick.choice(small), "partition") for i in range(partitions)]
        columns += [
            Column(f"c{i}", pick.choice(keys), "clustering", pick.random() < 0.4) for i in range(clusterings)
        ]
        if clusterings and pick.random() < 0.7:
            columns.append(Column("s0", pick.choice(list(LITERALS)), "static"))
        columns += [Column(f"v{i}", pick.choice(SCALARS), "regular") for i in range(pick.randint(1, 4))]
        columns += [Column(f"x{i}", pick.choice(list(COMPOSITES)), "regular") for i in range(pick.randint(0, 3))]
        if pick.random() < 0.3:
            columns.append(Column('"Quoted Name"', "int", "regular"))
        table = Table(f"t{number}", columns)
        self.tables.append(table)
        return table

    def value(self, column):
        literal = self.random.choice(LITERALS[column.type])
        return f"\1{column.type}\2{literal}\3" if self.marking else literal

    def number(self, number, kind="int"):
        return f"\1{kind}\2{number}\3" if self.marking else str(number)

    def key(self, columns):
        return [f"{c.name} = {self.value(c)}" for c in columns]

    def using(self, ttl=True):
        self.timestamp += self.random.randint(-3, 5)
        parts = [f"TIMESTAMP {self.number(self.timestamp, 'bigint')}"]
        if ttl and self.random.random() < 0.15:
            parts.append(f"TTL {self.number(self.random.randint(100_000, 200_000))}")
        return " USING " + " AND ".join(parts)

    # ---- writes

    def insert(self, table):
        key = table.of("partition") + table.of("clustering")
        if table.of("static") and self.random.random() < 0.15:
            key, others = table.of("partition"), table.of("static")
        else:
            others = [c for c in table.of("static") + table.of("regular") if self.random.random() < 0.7]
        columns = key + others
        values = [self.value(c) if c in key or self.random.random() > 0.1 else "null" for c in columns]
        names = ", ".join(c.name for c in columns)
        return f"INSERT INTO {table.name} ({names}) VALUES ({', '.join(values)}){self.using()}"

    def update(self, table):
        key = table.of("partition") + table.of("clustering")
        targets = table.of("regular")
        if table.of("static") and self.random.random() < 0.2:
            key, targets = table.of("partition"), table.of("static")
        chosen = self.random.sample(targets, self.random.randint(1, len(targets)))
        sets = ", ".join(self.assignment(c) for c in chosen)
        return f"UPDATE {table.name}{self.using()} SET {sets} WHERE {' AND '.join(self.key(key))}"

    def assignment(self, c):
        pick = self.random
        value = self.value(c)
        if c.type in CELLS and pick.random() < 0.5:
            if c.type == "udt0":
                return f"{c.name}.{pick.choice(['a = 7', chr(98) + chr(32) + '= null', 'c = [9]'])}"
            if c.type == "map<text, frozen<list<int>>>":
                return pick.choice([f"{c.name}['a'] = [7]", f"{c.name}['b'] = null", f"{c.name} = {c.name} - {{'a'}}"])
            if c.type.startswith("map"):
                key = "'a'" if "text, int" in c.type else "1"
                return pick.choice([f"{c.name} = {c.name} + {value}", f"{c.name}[{key}] = null"])
            return f"{c.name} = {c.name} {pick.choice('+-')} {value}"
        return f"{c.name} = {value if pick.random() > 0.1 else 'null'}"

    def delete(self, table):
        partition, clustering = table.of("partition"), table.of("clustering")
        where = self.key(partition)
        what = ""
        form = self.random.random()
        if clustering and form < 0.35:  # a range
            depth = self.random.randrange(len(clustering))
            column = clustering[depth]
            where += self.key(clustering[:depth])
            where.append(f"{column.name} {self.random.choice(['>', '>=', '<', '<='])} {self.value(column)}")
        elif clustering and form < 0.5:  # a prefix
            where += self.key(clustering[: self.random.randint(0, len(clustering) - 1)])
        else:
            where += self.key(clustering)
            if form > 0.8:
                chosen = self.random.choice(table.of("regular"))
                what = " " + (self.element(chosen) if chosen.type in CELLS and self.random.random() < 0.6 else chosen.name)
        return f"DELETE{what} FROM {table.name}{self.using(ttl=False)} WHERE {' AND '.join(where)}"

    def element(self, column):
        """A cell of a collection or a field, as DELETE names it. Not of lists: which cell that is depends on the clock."""
        if column.type == "udt0":
            return f"{column.name}.{self.random.choice('abc')}"
        if column.type.startswith("list"):
            return column.name
        return f"{column.name}[{'(1, null)' if 'tuple' in column.type else '1' if column.type == 'map<int, text>' else repr(self.random.choice('ab'))}]"

    def conditional_batch(self, table):
        """Several conditional statements, mostly of one partition."""
        pick = self.random
        partition = self.key(table.of("partition"))
        members = []
        for _ in range(pick.randint(1, 3)):
            key = " AND ".join((partition if pick.random() < 0.95 else self.key(table.of("partition"))) + self.key(table.of("clustering")))
            column = pick.choice(table.of("regular"))
            condition = pick.choice([" IF EXISTS", f" IF {self.condition(column)}", f" IF {self.condition(column)}", "", ""])
            sets = ", ".join(self.assignment(c) for c in pick.sample(table.of("regular"), 1))
            static = table.of("static")
            if static and pick.random() < 0.25:
                one = static[0]
                members.append(f"UPDATE {table.name} SET {self.assignment(one)} WHERE {' AND '.join(partition)} IF {self.condition(one)}")
            elif pick.random() < 0.75:
                members.append(f"UPDATE {table.name} SET {sets} WHERE {key}{condition}")
            else:
                members.append(f"DELETE FROM {table.name} WHERE {key}{condition}")
        return f"BEGIN {pick.choice(['', '', 'UNLOGGED '])}BATCH {'; '.join(members)}; APPLY BATCH"

    def insert_json(self, table):
        """INSERT JSON of a scalar key and a few values; what is not named is null or left as it is."""
        pick = self.random
        keys = [c for c in table.of("partition") + table.of("clustering")]
        if any(c.type not in JSON for c in keys):
            return self.insert(table)
        others = [c for c in table.of("regular") if c.type in JSON and pick.random() < 0.7]
        parts = [f'"{c.name.strip(chr(34)) if c.name[0] != chr(34) else chr(92) + c.name[:-1] + chr(92) + chr(34)}": {pick.choice(JSON[c.type])}' for c in keys + others]
        default = pick.choice(["", " DEFAULT NULL", " DEFAULT UNSET"])
        text = "{" + ", ".join(parts) + "}"
        return f"INSERT INTO {table.name} JSON $${text}$${default}{self.using()}"

    def conditional(self, table):
        """A lightweight transaction; conditions are on scalar columns, elements and fields."""
        pick = self.random
        key = " AND ".join(self.key(table.of("partition") + table.of("clustering")))
        form = pick.random()
        if form < 0.25:
            columns = table.of("partition") + table.of("clustering") + [c for c in table.of("regular") if pick.random() < 0.6]
            names, values = ", ".join(c.name for c in columns), ", ".join(self.value(c) for c in columns)
            return f"INSERT INTO {table.name} ({names}) VALUES ({values}) IF NOT EXISTS"
        column = pick.choice(table.of("regular"))
        sets = ", ".join(self.assignment(c) for c in pick.sample(table.of("regular"), 1))
        condition = pick.choice(["EXISTS", self.condition(column), self.condition(column), f"{self.condition(column)} AND {self.condition(pick.choice(table.of('regular')))}"])
        if form < 0.75:
            return f"UPDATE {table.name} SET {sets} WHERE {key} IF {condition}"
        return f"DELETE {column.name if pick.random() < 0.4 else ''} FROM {table.name} WHERE {key} IF {condition}"

    def condition(self, column):
        pick, name = self.random, column.name
        if column.type in CELLS and pick.random() < 0.5:
            if column.type == "udt0":
                return f"{name}.{pick.choice(['a = 1', 'b != null', 'a > 0'])}"
            if column.type == "map<text, frozen<list<int>>>":
                return pick.choice([f"{name}['a'] = [1]", f"{name}['b'] IN ([], null)", f"{name} CONTAINS [1]", f"{name} CONTAINS KEY 'a'"])
            if column.type in ("list<frozen<udt0>>", "set<frozen<tuple<int, text>>>"):
                return f"{name} CONTAINS {'{a: 1}' if 'udt0' in column.type else '(1, null)'}"
            if column.type.startswith("map"):
                key, value = ("'a'", "1") if "text, int" in column.type else ("1", "'x'")
                return pick.choice([f"{name}[{key}] {pick.choice(['=', '!=', '>'])} {value}", f"{name} CONTAINS KEY {key}"])
            if column.type == "list<int>":
                return pick.choice([f"{name}[0] = 1", f"{name} CONTAINS 2"])
            return f"{name} CONTAINS 'a'"
        value = self.value(column) if pick.random() > 0.15 else "null"
        if pick.random() < 0.2:
            return f"{name} IN ({self.value(column)}, {value})"
        return f"{name} {pick.choice(['=', '!=', '<', '>=', '='])} {value}"

    def counter(self):
        pick = self.random
        key = f"k = {pick.randint(1, 3)} AND c = {pick.randint(1, 2)}"
        return pick.choice([
            lambda: f"UPDATE counted SET n = n {pick.choice('+-')} {pick.randint(0, 9)} WHERE {key}",
            lambda: f"UPDATE counted SET n = n + 1, m = m - 2 WHERE {key}",
            lambda: f"UPDATE counted SET s = s + 3 WHERE k = {pick.randint(1, 3)}",
            lambda: f"BEGIN COUNTER BATCH UPDATE counted SET n = n + 1 WHERE {key}; UPDATE counted SET m = m + 5 WHERE {key}; APPLY BATCH",
            lambda: f"DELETE m FROM counted WHERE {key}" if pick.random() < 0.1 else "SELECT * FROM counted",
            lambda: "SELECT k, c, n, m, n + m, s FROM counted",
            lambda: "SELECT k, sum(n), max(m), count(n), avg(n) FROM counted GROUP BY k",
            lambda: "SELECT JSON * FROM counted",
            lambda: f"UPDATE counted SET n = 5 WHERE {key}",
            lambda: f"UPDATE counted USING {pick.choice(['TTL 5', 'TIMESTAMP 5'])} SET n = n + 1 WHERE {key}",
            lambda: f"INSERT INTO counted (k, c, n) VALUES (1, 1, 1)",
            lambda: f"UPDATE counted SET n = n + 1 WHERE {key} IF n = 1",
            lambda: "SELECT writetime(n) FROM counted",
            lambda: "SELECT k FROM counted WHERE n = 1 ALLOW FILTERING",
        ])()

    def batch(self, table):
        members = [self.random.choice([self.insert, self.update, self.delete])(table) for _ in range(self.random.randint(1, 5))]
        kind = self.random.choice(["", "UNLOGGED "])
        return f"BEGIN {kind}BATCH " + "; ".join(members) + "; APPLY BATCH"

    # ---- selects

    def part(self, column):
        """A part of a collection, user type or tuple, or something of a scalar."""
        pick, name = self.random, column.name
        if column.type == "list<frozen<udt0>>":
            return pick.choice([f"{name}[0]", f"collection_count({name})", f"[{name}]"])
        if column.type == "map<text, frozen<list<int>>>":
            return pick.choice([f"{name}['a']", f"{name}['a'..'b']", f"{name}['a'][0]", f"map_values({name})", f"map_keys({name})"])
        if column.type == "set<frozen<tuple<int, text>>>":
            return pick.choice([f"{name}[(1, null)]", f"{name}[(1, 'a')..]", f"collection_max({name})"])
        if column.type.startswith("vector"):
            return pick.choice([f"similarity_cosine({name}, [1, 2])", f"[{name}]", f"({name}, 1)", f"{name}[0]", f"to_json({name})"])
        if column.type == "set<text>":
            return pick.choice([f"{name}['a']", f"{name}['a'..'b']", f"{name}['b'..]"])
        if column.type in ("map<text, int>", "frozen<map<text, int>>"):
            return pick.choice([f"{name}['a']", f"{name}[..'a']", f"{name}['b'..'c']", f"map_keys({name})"])
        if column.type == "map<int, text>":
            return pick.choice([f"{name}[1]", f"{name}[0..1]"])
        if column.type == "frozen<set<int>>":
            return pick.choice([f"{name}[1]", f"{name}[1..2]", f"collection_sum({name})"])
        if column.type in ("udt0", "frozen<udt0>"):
            return f"{name}.{pick.choice('abc')}"
        if "list<int>" in column.type:
            return pick.choice([f"collection_count({name})", f"{name}[0]", f"to_json({name})"])
        if column.type in NUMERIC:
            other = pick.choice(["1", "2.5", name, "-3"])
            if pick.random() < 0.3 and self.numbers:
                other = pick.choice(self.numbers)
            if pick.random() < 0.2:
                return f"cast({name} AS {pick.choice(CAST[column.type])})"
            return pick.choice([f"{name} {pick.choice('+-*/%')} {other}", f"-{name}", f"abs({name})", f"({name} + 1) * 2"])
        if column.type in ("date", "timestamp") and pick.random() < 0.5:
            return f"{name} {pick.choice('+-')} {pick.choice(['1d', '1mo', '1y2mo3d', '1h', '36h', '-2w', '0s'])}"
        if column.type in CAST and pick.random() < 0.6:
            return f"cast({name} AS {pick.choice(CAST[column.type])})"
        if pick.random() < 0.3:
            return pick.choice([f"mask_default({name})", f"mask_null({name})", f"mask_inner({name}, 1, 1)", f"mask_outer({name}, 1, 1)"])
        return pick.choice([f"to_json({name})", f"[{name}]", f"({name}, {name})", f"(frozen<list<{column.type}>>) [{name}]", name])

    def stamp(self, column):
        what = column.name
        if column.type in COMPOSITES and self.random.random() < 0.5 and "(" not in (part := self.part(column)):
            what = part
        return f"{self.random.choice(['writetime', 'maxwritetime', 'writetime'])}({what})"

    def aggregate(self, table):
        pick = self.random
        column = pick.choice(table.columns)
        inner = column.name if pick.random() < 0.8 else self.part(column)
        return pick.choice(["count(*)", f"count({inner})", f"min({inner})", f"max({inner})", f"sum({inner})", f"avg({inner})"])

    def projection(self, table):
        pick = self.random
        columns = table.columns
        self.numbers = [c.name for c in columns if c.type in NUMERIC]
        regular = table.of("regular")
        form = pick.random()
        if form < 0.3:
            return "*"
        if form < 0.5:
            return ", ".join(c.name for c in pick.sample(columns, pick.randint(1, len(columns))))
        if form < 0.6:
            return ", ".join(self.aggregate(table) for _ in range(pick.randint(1, 3)))
        if form < 0.7:
            column = pick.choice(regular)
            return f"{table.of('partition')[0].name}, {self.stamp(column)} AS written"
        if form < 0.9:
            return ", ".join(self.part(pick.choice(columns)) for _ in range(pick.randint(1, 3)))
        if form < 0.95:
            return f"token({', '.join(c.name for c in table.of('partition'))}), {pick.choice(columns).name} AS alias"
        column = pick.choice([c for c in columns if c.type in NUMERIC] or table.of("partition"))
        return f"cast({column.name} AS {'text' if column.type in NUMERIC else column.type}), {column.name}"

    def filter(self, column):
        """A relation that only looking at rows can tell."""
        pick, name = self.random, column.name
        if column.type in CELLS or column.type.startswith("frozen<") and pick.random() < 0.5:
            if column.type == "list<frozen<udt0>>":
                return f"{name} CONTAINS {pick.choice(['{a: 1}', '{}'])}"
            if column.type == "map<text, frozen<list<int>>>":
                return pick.choice([f"{name}['a'] = [1]", f"{name} CONTAINS KEY 'a'", f"{name} CONTAINS []"])
            if column.type == "set<frozen<tuple<int, text>>>":
                return f"{name} CONTAINS (1, null)"
            if column.type == "frozen<map<frozen<set<int>>, frozen<list<text>>>>":
                return pick.choice([f"{name} CONTAINS KEY {{1, 2}}", f"{name} CONTAINS []", f"{name}[{{1, 2}}] = ['a']"])
            if column.type.startswith("map") or "map<" in column.type:
                key, value = ("'a'", "1") if "text, int" in column.type else ("1", "'x'")
                return pick.choice([f"{name} CONTAINS {value}", f"{name} CONTAINS KEY {key}", f"{name}[{key}] = {value}"])
            if "set<text>" in column.type:
                return f"{name} CONTAINS 'a'"
            return f"{name} CONTAINS {pick.choice(['1', '2'])}"
        if pick.random() < 0.2:
            return f"{name} IN ({', '.join(self.value(column) for _ in range(2))})"
        return f"{name} {pick.choice(['=', '>', '<', '<=', '>='])} {self.value(column)}"

    def groups(self, table):
        """A selection with GROUP BY on a prefix of the key, mostly a right one."""
        pick = self.random
        partition, clustering = table.of("partition"), table.of("clustering")
        depth = pick.randint(0, len(clustering))
        by = [c.name for c in partition + clustering[:depth]]
        if depth and clustering[depth - 1].type == "timestamp" and pick.random() < 0.7:
            by[-1] = f"floor({by[-1]}, {pick.choice(['1h', '1d', '30m'])})"
        if pick.random() < 0.08:
            pick.shuffle(by)
        shown = pick.sample(by, pick.randint(0, len(by))) + [self.aggregate(table) for _ in range(pick.randint(0, 2))]
        shown += [pick.choice(table.columns).name] if pick.random() < 0.3 or not shown else []
        return ", ".join(shown) if pick.random() < 0.95 else "*", f" GROUP BY {', '.join(by)}"

    def select(self, table):
        pick = self.random
        partition, clustering = table.of("partition"), table.of("clustering")
        names = ", ".join(c.name for c in partition)
        where, tail = [], ""
        shown, by = self.groups(table) if pick.random() < 0.15 else (self.projection(table), "")
        json = "JSON " if pick.random() < 0.12 else ""
        form = pick.random()
        if form < 0.08 and clustering:
            group = f" GROUP BY {names}" if pick.random() < 0.2 else ""
            static = [c for c in table.of("static")]
            limit = f" LIMIT {pick.randint(1, 4)}" if pick.random() < 0.3 else ""
            return f"SELECT {json}DISTINCT {', '.join([names] + [c.name for c in static if pick.random() < 0.7])} FROM {table.name}{group}{limit}"
        if form < 0.3:
            pass  # the whole table
        elif form < 0.4:
            bound = pick.choice([-(2**63), -(2**62), 0, 2**62, 2**63 - 1])
            where.append(f"token({names}) {pick.choice(['>', '<=', '>=', '<'])} {bound}")
        else:
            last = partition[-1]
            where += self.key(partition[:-1])
            if pick.random() < 0.2:
                where.append(f"{last.name} IN ({', '.join(pick.sample(LITERALS[last.type], 2))})")
            else:
                where += self.key([last])
            depth = pick.randint(0, len(clustering))
            where += self.key(clustering[:depth])
            if depth < len(clustering):
                column = clustering[depth]
                shape = pick.random()
                if shape < 0.3:
                    where.append(f"{column.name} {pick.choice(['>', '>=', '<', '<='])} {self.value(column)}")
                elif shape < 0.45:
                    where.append(f"{column.name} >= {self.value(column)} AND {column.name} <= {self.value(column)}")
                elif shape < 0.6:
                    where.append(f"{column.name} IN ({', '.join(pick.sample(LITERALS[column.type], 2))})")
                elif shape < 0.7 and depth == 0:
                    some = clustering[: pick.randint(1, len(clustering))]
                    tuple_names = ", ".join(c.name for c in some)
                    one = lambda: f"({', '.join(self.value(c) for c in some)})"
                    operator = pick.choice([">", "<=", "<", ">=", "=", "IN"])
                    right = f"({one()}, {one()})" if operator == "IN" else one()
                    where.append(f"({tuple_names}) {operator} {right}")
            if clustering and pick.random() < 0.3:
                tail += f" ORDER BY {clustering[0].name} {pick.choice(['ASC', 'DESC'])}"
        if pick.random() < 0.1:
            tail += f" PER PARTITION LIMIT {self.number(pick.randint(1, 3))}"
        if pick.random() < 0.3:
            tail += f" LIMIT {self.number(pick.randint(1, 8))}"
        if pick.random() < 0.2:
            for _ in range(pick.choice([1, 1, 2])):
                where.append(self.filter(pick.choice(table.of("regular") + table.of("static") + clustering)))
            tail += pick.choice([" ALLOW FILTERING", " ALLOW FILTERING", ""])
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        return f"SELECT {json}{shown} FROM {table.name}{condition}{by}{tail}"

    # ---- statements that are wrong, or may be

    def wrong(self, table):
        pick = self.random
        key = " AND ".join(self.key(table.of("partition")))
        regular = pick.choice([c for c in table.of("regular") if c.type in SCALARS])
        part = self.part(pick.choice(table.columns))
        full = " AND ".join(self.key(table.of("partition") + table.of("clustering")))
        partition = table.of("partition")[0].name
        choices = [
            lambda: f"SELECT nope FROM {table.name}",
            lambda: "SELECT * FROM nowhere",
            lambda: "SELECT * FROM no_keyspace.t",
            lambda: f"SELECT * FROM {table.name} WHERE nope = 1",
            lambda: f"SELECT * FROM {table.name} WHERE {regular.name} = {self.value(regular)}",
            lambda: f"SELECT * FROM {table.name} WHERE {key} ORDER BY {regular.name}",
            lambda: f"SELECT * FROM {table.name} WHERE {key} AND {key}",
            lambda: f"SELECT * FROM {table.name} WHERE {partition} > {self.value(table.of('partition')[0])}",
            lambda: f"SELECT * FROM {table.name} LIMIT {pick.choice(['0', '-1', 'x', '99999999999'])}",
            lambda: f"SELECT * FROM {table.name} PER PARTITION LIMIT 0",
            lambda: f"SELECT DISTINCT {regular.name} FROM {table.name}",
            lambda: f"SELECT writetime({partition}) FROM {table.name}",
            lambda: f"SELECT no_function({partition}) FROM {table.name}",
            lambda: f"SELECT {regular.name}.a FROM {table.name}",
            lambda: f"SELECT {regular.name}[1] FROM {table.name}",
            lambda: f"SELECT {regular.name}['a'..] FROM {table.name}",
            lambda: f"SELECT (int) {regular.name} FROM {table.name}",
            lambda: f"SELECT {pick.choice(['1', chr(39) + 'a' + chr(39), '?', '[1]', '{}', '(' + partition + ')', 'null'])} FROM {table.name}",
            lambda: f"SELECT count(*), {partition} FROM {table.name} PER PARTITION LIMIT 1",
            lambda: f"SELECT max(sum({regular.name})) FROM {table.name}",
            lambda: f"SELECT {regular.name}, count(*) FROM {table.name} GROUP BY {regular.name}",
            lambda: f"SELECT {partition} FROM {table.name} GROUP BY {partition}, {regular.name}",
            lambda: f"SELECT {partition} FROM {table.name} GROUP BY {partition}, {partition}",
            lambda: f"SELECT {part} + {part} FROM {table.name}",
            lambda: f"SELECT DISTINCT {part} FROM {table.name}",
            lambda: f"SELECT writetime({part}) FROM {table.name}" if "(" not in part else f"SELECT ttl({partition}) FROM {table.name}",
            lambda: f"SELECT * FROM {table.name} WHERE {regular.name} CONTAINS 1 ALLOW FILTERING",
            lambda: f"SELECT * FROM {table.name} WHERE {regular.name} = null ALLOW FILTERING",
            lambda: f"SELECT * FROM {table.name} WHERE {regular.name} IS NOT NULL ALLOW FILTERING",
            lambda: f"SELECT * FROM {table.name} WHERE {regular.name} != {self.value(regular)} ALLOW FILTERING",
            lambda: f"SELECT * FROM {table.name} WHERE token({partition}) > 'x'",
            lambda: f"SELECT * FROM {table.name} WHERE {key} AND token({partition}) > 0",
            lambda: f"SELECT * FROM {table.name} WHERE {partition} IN (null)",
            lambda: f"SELECT * FROM {table.name} WHERE {key} LIMIT null",
            lambda: f"SELECT cast({partition} AS nonsense) FROM {table.name}",
            lambda: f"INSERT INTO {table.name} ({regular.name}) VALUES ({self.value(regular)})",
            lambda: f"INSERT INTO {table.name} ({partition}, {partition}) VALUES (1, 1)",
            lambda: f"INSERT INTO {table.name} ({partition}) VALUES (1, 2)",
            lambda: f"INSERT INTO {table.name} ({partition}, nope) VALUES ({self.value(table.of('partition')[0])}, 1)",
            lambda: f"INSERT INTO {table.name} ({partition}) VALUES (null)",
            lambda: f"UPDATE {table.name} SET {partition} = 1 WHERE {full}",
            lambda: f"UPDATE {table.name} SET nope = 1 WHERE {full}",
            lambda: f"UPDATE {table.name} SET {regular.name} = {self.value(regular)} WHERE {regular.name} = {self.value(regular)}",
            lambda: f"UPDATE {table.name} USING TTL -1 SET {regular.name} = {self.value(regular)} WHERE {full}",
            lambda: f"UPDATE {table.name} USING TTL 999999999 SET {regular.name} = {self.value(regular)} WHERE {full}",
            lambda: f"UPDATE {table.name} SET {regular.name} = {self.value(self.random.choice(table.columns))} WHERE {full}",
            lambda: f"DELETE {partition} FROM {table.name} WHERE {full}",
            lambda: f"DELETE nope FROM {table.name} WHERE {full}",
            lambda: f"DELETE FROM {table.name}",
            lambda: f"DELETE FROM {table.name} WHERE {regular.name} = {self.value(regular)}",
            lambda: f"TRUNCATE nowhere",
            lambda: f"CREATE TABLE {table.name} (k int PRIMARY KEY)",
            lambda: "CREATE TABLE bad (k int)",
            lambda: "CREATE TABLE bad (k nonsense PRIMARY KEY)",
            lambda: "CREATE TABLE bad (k int, k int, PRIMARY KEY (k))",
            lambda: "CREATE TABLE bad (k int, PRIMARY KEY (k, c))",
            lambda: "CREATE TABLE bad (k int PRIMARY KEY, d duration, PRIMARY KEY (d))",
            lambda: "CREATE TABLE bad (k int, d duration, PRIMARY KEY (k, d))",
            lambda: "CREATE TABLE bad (k int PRIMARY KEY, s int static)",
            lambda: "CREATE TABLE bad (k int PRIMARY KEY) WITH nope = 1",
            lambda: "CREATE TABLE bad (k int PRIMARY KEY) WITH gc_grace_seconds = 'x'",
            lambda: "CREATE TABLE bad (k int PRIMARY KEY) WITH compaction = {'class': 'Nope'}",
            lambda: "CREATE TABLE bad (k int PRIMARY KEY) WITH CLUSTERING ORDER BY (k DESC)",
            lambda: "CREATE KEYSPACE bad",
            lambda: "CREATE KEYSPACE bad WITH replication = {'class': 'Nope'}",
            lambda: "CREATE KEYSPACE bad WITH replication = {'class': 'SimpleStrategy'}",
            lambda: "CREATE KEYSPACE bad WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 'x'}",
            lambda: f"ALTER TABLE {table.name} ADD {regular.name} int",
            lambda: f"ALTER TABLE {table.name} DROP {partition}",
            lambda: f"ALTER TABLE {table.name} DROP nope",
            lambda: f"ALTER TABLE {table.name} RENAME nope TO other",
            lambda: "ALTER TABLE nowhere ADD x int",
            lambda: "DROP TABLE nowhere",
            lambda: "DROP TABLE IF EXISTS nowhere",
            lambda: "DROP KEYSPACE nowhere",
            lambda: "USE nowhere",
            lambda: self.damaged(pick.choice([self.select, self.insert, self.update, self.delete])(table)),
            lambda: self.damaged(pick.choice([self.select, self.insert, self.update, self.delete])(table)),
            lambda: self.damaged(pick.choice([self.select, self.insert, self.update, self.delete])(table)),
        ]
        return pick.choice(choices)()

    def damaged(self, cql):
        """The statement with a word left out, doubled, swapped or replaced."""
        words = cql.split(" ")
        at = self.random.randrange(len(words))
        form = self.random.randrange(4)
        if form == 0:
            del words[at]
        elif form == 1:
            words.insert(at, words[at])
        elif form == 2:
            other = self.random.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        else:
            words[at] = self.random.choice(["FROM", "(", ")", "'open", ";", "?", ":named", "1.5", "=", "%"])
        return " ".join(words)

    def prepare(self, table):
        """A statement with markers: what the server says of the markers is compared, it is not executed."""
        partition, clustering = table.of("partition"), table.of("clustering")
        marks = " AND ".join(f"{c.name} = ?" for c in partition + clustering)
        names = ", ".join(c.name for c in table.columns)
        return self.random.choice([
            f"INSERT INTO {table.name} ({names}) VALUES ({', '.join('?' for _ in table.columns)}) USING TTL ? AND TIMESTAMP ?",
            f"SELECT * FROM {table.name} WHERE {marks}",
            f"SELECT {names} FROM {table.name} WHERE {partition[0].name} IN ? LIMIT ?",
            f"SELECT * FROM {table.name} WHERE token({', '.join(c.name for c in partition)}) > ? PER PARTITION LIMIT :most",
            f"UPDATE {table.name} SET {table.of('regular')[0].name} = :new WHERE {marks}",
            f"DELETE FROM {table.name} USING TIMESTAMP ? WHERE {marks}",
            f"SELECT nope FROM {table.name} WHERE {marks}",
        ])

    def execute(self, table):
        """A prepared insert or select whose values are bytes: right ones mostly, sometimes of a wrong length or no value
        of the type at all."""
        pick = self.random
        key = table.of("partition") + table.of("clustering")
        if pick.random() < 0.6:
            columns = [c for c in key + table.of("static") + table.of("regular") if c.type in BYTES]
            names = ", ".join(c.name for c in columns)
            cql = f"INSERT INTO {table.name} ({names}) VALUES ({', '.join('?' for _ in columns)})"
        else:
            columns = key
            cql = f"SELECT * FROM {table.name} WHERE {' AND '.join(f'{c.name} = ?' for c in key)}"
        spoilt = pick.randrange(len(columns)) if pick.random() < 0.6 else None
        values = []
        for number, column in enumerate(columns):
            if number == spoilt:
                length = pick.choice([0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17])
                if column.type == "decimal" and length == 4:
                    length = 3  # a scale without digits: Cassandra stores it and fails every read that meets it
                values.append(pick.choice([None, "unset", pick.randbytes(length), pick.randbytes(length), b"\xff" * length]))
            else:
                values.append(pick.choice(BYTES[column.type]))
        return Statement("execute", cql, values=tuple(values))

    def marked(self, table, conditional):
        """Any statement with one value of it or two bound: to what may stand there, to null, to nothing, to wrong bytes."""
        pick = self.random
        self.marking = True
        if conditional:
            cql = pick.choice([self.conditional, self.conditional, self.conditional_batch])(table)
        else:
            cql = pick.choice([self.select] * 5 + [self.insert, self.update, self.update, self.delete, self.batch])(table)
        self.marking = False
        parts = re.split("\1(.*?)\2(.*?)\3", cql)
        places = range(1, len(parts), 3)
        chosen = set(pick.sample(places, min(len(places), pick.choice([1, 1, 1, 2]))))
        out, values = parts[0], []
        for place in places:
            kind, literal, after = parts[place : place + 3]
            if place in chosen:
                fine = BYTES.get(kind) or BINARY.get(kind)
                values.append(pick.choice([None, "unset", *fine, *fine] if fine else [None, "unset"]))
                if fine and pick.random() < 0.1:
                    values[-1] = pick.choice([b"", pick.choice(fine)[:-1], pick.choice(fine) + b"\0"])
            out += ("?" if place in chosen else literal) + after
        return Statement("execute", out, pick.choice([1, 2, 3, 5000, 5000]), values=tuple(values))

    # ---- the whole run

    def alter(self, table):
        name = f"a{self.random.randrange(1000)}"
        kind = self.random.choice(list(LITERALS))  # a dropped and added column is another matter: names are new
        table.columns.append(Column(name, kind, "regular"))
        return f"ALTER TABLE {table.name} ADD {name} {kind}"

    def statements(self, count, tables=10):
        yield Statement("ddl", TYPE)
        yield Statement("ddl", COUNTED)
        for number in range(tables):
            yield Statement("ddl", self.make_table(number).create())
        # Conditional writes take the server's time: their tables are their own, so that no `writetime` is compared.
        conditional = [self.tables.pop() for _ in range(2)]
        writers = [self.insert] * 5 + [self.update] * 2 + [self.insert_json, self.delete, self.batch]
        for table in self.tables:
            for _ in range(15):
                yield Statement("write", self.random.choice(writers[:-2])(table))
        for _ in range(count):
            table = self.random.choice(self.tables)
            form = self.random.random()
            if form < 0.29:
                yield Statement("write", self.random.choice(writers)(table))
            elif form < 0.33:
                table = self.random.choice(conditional)
                writes = self.random.choice([self.conditional, self.conditional, self.conditional_batch])
                yield Statement("lwt", writes(table) if self.random.random() < 0.8 else f"SELECT * FROM {table.name}")
            elif form < 0.35:
                yield Statement("counter", self.counter())
            elif form < 0.42:
                yield self.marked(*((table, False) if self.random.random() < 0.8 else (self.random.choice(conditional), True)))
            elif form < 0.7:
                page = self.random.choice([1, 2, 3, 7, 5000, 5000])
                yield Statement("select", self.select(table), page, serial=self.random.random() < 0.1)
            elif form < 0.88:
                yield Statement("wrong", self.wrong(table))
            elif form < 0.94:
                yield self.execute(table)
            elif form < 0.98:
                yield Statement("prepare", self.prepare(table))
            else:
                yield Statement("ddl", self.alter(table))
        for table in self.tables:
            yield Statement("select", f"SELECT * FROM {table.name}")
            names = ", ".join(f"writetime({c.name})" for c in table.of("regular"))
            yield Statement("select", f"SELECT {names} FROM {table.name}")
