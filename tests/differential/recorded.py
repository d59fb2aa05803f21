"""Statements with recorded answers, given to a live server: is what is written down still what it says?

    recorded.py FILE... --server HOST:PORT [--other HOST:PORT] [--bless] [--allow FILE]

FILE is a script of `crates/query/testdata/dml`: a line that ends with `;` is a statement in keyspace `ks`; behind it
stands what Apache Cassandra answered: `> names`, a `> row` line for each row, or `! code text {fields}`. Statements may
begin with a way to send them:

    @prepare STATEMENT;                      PREPARE alone
    @bare STATEMENT;                         QUERY without a keyspace; @bareprepare: PREPARE without one
    @bind 0x00000001, null, unset | STATEMENT;   PREPARE and EXECUTE with these values, as bytes
    @query 0x00000001, null, unset | STATEMENT;  QUERY with these values
    @named k = 0x00000001, v = null | STATEMENT; QUERY with these values, by name

A FILE that ends with `.txt` is one of `crates/statement/testdata/ddl_*.txt`: `= ` sets up, `> ` is a statement without a keyspace,
`< ` its answer: `OK`, with warnings, or code and text, for 2400 the name of what is there. What such a statement makes
under the name `x` is dropped again.

`--bless` writes the server's answers where a statement has none yet, and the codes of errors recorded without. Otherwise
answers that differ from what is recorded are printed, and `--other` gives the same statements to a second server in the
same run. A difference is expected when a line of the allow file covers it, as in `differential.py`, with the kind
`recorded`. The exit code is 0 only where all others agree.
"""

import argparse
import collections
import re
import socket
import struct
import sys
import uuid

KEYSPACE = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
# What scripts leave behind outside of their keyspace.
LEFTOVERS = ["KEYSPACE ks", "KEYSPACE bad", "KEYSPACE other", "KEYSPACE x"]
TIMEOUT_SECONDS = 60
ERROR, STARTUP, QUERY, RESULT, PREPARE, EXECUTE = 0, 1, 7, 8, 9, 10
SCALARS = {1: "ascii", 2: "bigint", 3: "blob", 4: "boolean", 5: "counter", 6: "decimal", 7: "double", 8: "float", 9: "int",
           0xB: "timestamp", 0xC: "uuid", 0xD: "text", 0xE: "varint", 0xF: "timeuuid", 0x10: "inet", 0x11: "date",
           0x12: "time", 0x13: "smallint", 0x14: "tinyint", 0x15: "duration"}
VECTOR = re.compile(r"org\.apache\.cassandra\.db\.marshal\.VectorType\(org\.apache\.cassandra\.db\.marshal\.(\w+)\s*,\s*(\d+)\)")
MARSHAL = {"FloatType": "float", "Int32Type": "int", "DoubleType": "double", "LongType": "bigint", "UTF8Type": "text",
           "ShortType": "smallint", "ByteType": "tinyint", "AsciiType": "ascii", "IntegerType": "varint"}
FIXED = {"float": 4, "int": 4, "double": 8, "bigint": 8}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def string(self):
        return self.take(self.number(">H")).decode()

    def value(self):
        length = self.number(">i")
        return None if length < 0 else self.take(length)

    def type(self):
        kind = self.number(">H")
        if kind == 0:
            return ("custom", self.string())
        if kind in (0x20, 0x22):
            return ("list" if kind == 0x20 else "set", self.type())
        if kind == 0x21:
            return ("map", self.type(), self.type())
        if kind == 0x30:
            self.string(), self.string()
            return ("tuple", [(self.string(), self.type())[1] for _ in range(self.number(">H"))])
        if kind == 0x31:
            return ("tuple", [self.type() for _ in range(self.number(">H"))])
        return (SCALARS[kind],)


def same_float(text, value):
    try:
        return struct.pack(">f", float(text)) == value
    except OverflowError:  # rounded up beyond the greatest
        return False


def show_float(value, form):
    """As Rust's `{:?}` writes it: the shortest digits that give the same number back."""
    number = struct.unpack(form, value)[0]
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "inf" if number > 0 else "-inf"
    if form == ">f":
        digits = next(d for d in range(1, 18) if same_float(f"{number:.{d}g}", value))
        text = f"{number:.{digits}g}"
        number = float(text)
    magnitude = abs(number)
    if magnitude and not 1e-5 <= magnitude < 1e16:
        mantissa, exponent = f"{number!r}".split("e") if "e" in f"{number!r}" else (f"{number:e}".split("e"))
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}e{int(exponent)}"
    text = f"{number:.20f}" if "e" in f"{number!r}" else f"{number!r}"
    text = text.rstrip("0") if "." in text else text + ".0"
    return text + "0" if text.endswith(".") else text


def show(kind, value):
    """A value in the notation of the scripts (`show` in crates/query/tests/support)."""
    name = kind[0]
    if value is None:
        return "null"
    if name in ("ascii", "text"):
        return "'" + value.decode() + "'"
    if not value:
        return "0x"
    if name in ("int", "bigint", "smallint", "tinyint", "counter", "varint"):
        return str(int.from_bytes(value, "big", signed=True))
    if name == "boolean":
        return "false" if value == b"\0" else "true"
    if name in ("float", "double"):
        return show_float(value, ">f" if name == "float" else ">d")
    if name in ("uuid", "timeuuid"):
        return str(uuid.UUID(bytes=value))
    if name == "date":
        return show_date(struct.unpack(">I", value)[0] - (1 << 31))
    reader = Reader(value)
    if name in ("list", "set"):
        parts = [show(kind[1], reader.value()) for _ in range(reader.number(">i"))]
        return ("[{}]" if name == "list" else "{{{}}}").format(", ".join(parts))
    if name == "map":
        parts = [f"{show(kind[1], reader.value())}: {show(kind[2], reader.value())}" for _ in range(reader.number(">i"))]
        return "{" + ", ".join(parts) + "}"
    if name == "tuple":
        parts = [show(part, reader.value() if reader.at < len(value) else None) for part in kind[1]]
        return "(" + ", ".join(parts) + ")"
    vector = VECTOR.fullmatch(kind[1]) if name == "custom" else None
    if vector and vector[1] in MARSHAL and MARSHAL[vector[1]] in FIXED:
        size = FIXED[MARSHAL[vector[1]]]
        return "[" + ", ".join(show((MARSHAL[vector[1]],), reader.take(size)) for _ in range(int(vector[2]))) + "]"
    return "0x" + value.hex()


def show_date(days):
    """Days since 1970 as year-month-day, also beyond Python's years."""
    days += 719468
    era, day = divmod(days, 146097)
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day, month, year = day - (153 * month + 2) // 5 + 1, month + (3 if month < 10 else -9), year + era * 400
    year += month <= 2
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"


class Server:
    """A connection of protocol version 4 by hand: nothing of a driver may smooth an answer."""

    def __init__(self, address):
        self.address = address
        self.connect()

    def connect(self):
        host, port = self.address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
        self.ask(STARTUP, struct.pack(">H", 1) + self.short("CQL_VERSION") + self.short("3.0.0"))

    @staticmethod
    def short(data):
        data = data.encode() if isinstance(data, str) else data
        return struct.pack(">H", len(data)) + data

    @staticmethod
    def long(data):
        return struct.pack(">i", len(data.encode())) + data.encode()

    def receive(self, count):
        out = b""
        while len(out) < count:
            chunk = self.socket.recv(count - len(out))
            if not chunk:
                raise ConnectionError(f"{self.address} closed the connection")
            out += chunk
        return out

    def ask(self, opcode, body):
        self.socket.sendall(struct.pack(">BBhBI", 4, 0, 0, opcode, len(body)) + body)
        self.warnings = []
        _, flags, _, opcode, length = struct.unpack(">BBhBI", self.receive(9))
        reader = Reader(self.receive(length))
        if flags & 8:
            self.warnings = [reader.string() for _ in range(reader.number(">H"))]
        return opcode, reader

    @staticmethod
    def parameters(values, named):
        flags = (1 if values else 0) | (0x40 if named else 0)
        out = struct.pack(">HB", 1, flags)
        if values:
            out += struct.pack(">H", len(values))
            for name, value in values:
                out += (Server.short(name) if named else b"")
                out += {"null": struct.pack(">i", -1), "unset": struct.pack(">i", -2)}.get(value) or (
                    struct.pack(">i", len(bytes.fromhex(value[2:]))) + bytes.fromhex(value[2:])
                )
        return out

    def answer(self, line):
        """Lines that stand behind a statement."""
        way, values, statement = parts_of(line)
        if way.startswith("bare"):
            bare = Server(self.address)
            opcode = PREPARE if way == "bareprepare" else QUERY
            body = self.long(statement) + (b"" if opcode == PREPARE else self.parameters([], False))
            answer = bare.lines(*bare.ask(opcode, body))
            bare.socket.close()
            return answer
        if way in ("prepare", "bind"):
            opcode, reader = self.ask(PREPARE, self.long(statement))
            if opcode == ERROR or way == "prepare":
                return self.lines(opcode, reader)
            reader.number(">i")
            body = self.short(reader.take(reader.number(">H"))) + self.parameters(values, False)
            return self.lines(*self.ask(EXECUTE, body))
        return self.lines(*self.ask(QUERY, self.long(statement) + self.parameters(values, way == "named")))

    def lines(self, opcode, reader):
        if opcode == ERROR:
            code, message = reader.number(">i"), reader.string()
            if code == 0xA:
                self.socket.close()
                self.connect()
                self.ask(QUERY, self.long("USE ks") + self.parameters([], False))
            fields = []
            if code == 0x2400:
                fields = [reader.string(), reader.string()]
            elif code == 0x1400:
                fields = [reader.string(), reader.string()] + [reader.string() for _ in range(reader.number(">H"))]
            text = message.replace("\n", "\\n")
            return [f"! {code:04x} {text}" + (f" {{{', '.join(fields)}}}" if fields else "")]
        if reader.number(">i") != 2:
            return []
        flags, columns = reader.number(">i"), reader.number(">i")
        if flags & 1:
            reader.string(), reader.string()
        specification = []
        for _ in range(columns):
            if not flags & 1:
                reader.string(), reader.string()
            specification.append((reader.string(), reader.type()))
        out = ["> " + " | ".join(name for name, _ in specification)]
        for _ in range(reader.number(">i")):
            out.append("> " + " | ".join([show(kind, reader.value()) for _, kind in specification]))
        return out

    def schema_answer(self, text):
        """The answer to a schema statement in the form of the `.txt` files."""
        opcode, reader = self.ask(QUERY, self.long(text) + self.parameters([], False))
        if opcode != ERROR:
            warnings = "".join(f" warning: {warning}" for warning in self.warnings)
            if reader.number(">i") == 5 and reader.string() == "CREATED":
                target = reader.string()
                names = [reader.string() for _ in range(1 if target == "KEYSPACE" else 2)]
                if "x" in (names[0], names[-1]):
                    kind, name = ("KEYSPACE", "x") if names[0] == "x" else (target, ".".join(f'"{n}"' for n in names))
                    if target in ("FUNCTION", "AGGREGATE"):
                        name += f"({', '.join(reader.string() for _ in range(reader.number('>H')))})"
                    self.statement(f"DROP {kind} {name}")
            return f"OK{warnings}"
        code, message = reader.number(">i"), reader.string()
        if code == 0x2400:
            return "2400 " + ".".join(part for part in (reader.string(), reader.string()) if part)
        return f"{code:04x} {message}"

    def statement(self, text):
        opcode, reader = self.ask(QUERY, self.long(text) + self.parameters([], False))
        if opcode == ERROR:
            sys.exit(f"{self.address}: {text}: {self.lines(opcode, reader)}")

    def start(self):
        for leftover in LEFTOVERS:
            self.statement(f"DROP {leftover.split()[0]} IF EXISTS {leftover.split()[1]}")
        self.statement(KEYSPACE)
        self.statement("USE ks")


def parts_of(line):
    """(way, values, statement) of a line."""
    if not line.startswith("@"):
        return "query", [], line
    way, rest = line[1:].split(" ", 1)
    if way in ("prepare", "bare", "bareprepare"):
        return way, [], rest
    given, statement = rest.split("| ", 1)
    given = [part.strip() for part in given.split(",") if part.strip()]
    if way == "named":
        return way, [tuple(word.strip() for word in part.split("=")) for part in given], statement
    return way, [(None, part) for part in given], statement


def blocks_of(path):
    """Statements with the lines behind them; what stands before the first is under None."""
    blocks = [(None, [])]
    with open(path, encoding="utf-8") as lines:
        for line in lines.read().splitlines():
            if line.endswith(";") and not line.startswith(("!", ">")):
                blocks.append((line, []))
            else:
                blocks[-1][1].append(line)
    return blocks


def without_code(lines):
    return [re.sub(r"^! [0-9a-f]{4} ", "! ", line) for line in lines]


def in_order(lines):
    """Lists of signatures and of columns sorted: Cassandra keeps them in the order of their hashes."""
    out = []
    for line in lines:
        listed = re.search(r"(signatures: )(.*)(\)(?:: use type casts to disambiguate)?)$", line)
        if listed:
            signatures = sorted(re.findall(r"\S+ : \(.*?\) -> [^,]+(?:<.*?>)?", listed[2]))
            line = line[: listed.start(2)] + ", ".join(signatures) + listed[3]
        bound = re.search(r"(found for the (?:start|end) bound on )(.*)$", line)
        if bound:
            line = line[: bound.start(2)] + " ,".join(sorted(bound[2].split(" ,")))
        out.append(line)
    return out


def agree(recorded, found):
    """Whether they are the same; an error may be recorded without its code and fields.

    Cassandra shows `to_json` of a type by the spelling that was first used of it since its start.
    """
    recorded, found = ([re.sub(r"^> .*", lambda names: names[0].replace("system.tojson(", "system.to_json("), line)
                        for line in in_order(lines)] for lines in (recorded, found))
    if recorded == found:
        return True
    bare = [re.sub(r" \{[^{}]*\}$", "", line) for line in without_code(found)]
    return bool(recorded) and not re.match(r"! [0-9a-f]{4} ", recorded[0]) and recorded in (bare, without_code(found))


def allowed_of(path):
    out = []
    if path:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                parts = [part.strip() for part in line.strip().split(" | ")]
                if len(parts) == 3 and parts[0] == "recorded":
                    out.append(re.compile(parts[1], re.S))
    return out


def schema_file(path, servers, allowed, counts):
    """Compares a `.txt` file and returns how many answers differ."""
    wrong = 0
    for server in servers:
        for leftover in LEFTOVERS:
            server.statement(f"DROP {leftover.split()[0]} IF EXISTS {leftover.split()[1]}")
        server.socket.close()
        server.connect()
    statement = ""
    with open(path, encoding="utf-8") as lines:
        for line in lines.read().splitlines():
            mark, text = line[:2], line[2:]
            if mark == "= ":
                for server in servers:
                    server.statement(text)
            elif mark == "> ":
                statement = text
            elif mark == "< ":
                counts["statements"] += 1
                counts["mistakes"] += not text.startswith("OK")
                for server in servers:
                    found = server.schema_answer(statement)
                    whole = "\n".join([statement, text, "=>", found])
                    if found == text:
                        continue
                    if any(expression.search(whole) for expression in allowed):
                        counts["differences expected"] += 1
                        continue
                    wrong += 1
                    print(f"{path}: {server.address}\n{statement}\n  recorded {text}\n  found    {found}")
    return wrong


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("files", nargs="+")
    arguments.add_argument("--server", required=True)
    arguments.add_argument("--other")
    arguments.add_argument("--bless", action="store_true")
    arguments.add_argument("--allow")
    chosen = arguments.parse_args()
    servers = [Server(address) for address in (chosen.server, chosen.other) if address]
    allowed = allowed_of(chosen.allow)
    counts, wrong = collections.Counter(), 0
    for path in chosen.files:
        if path.endswith(".txt"):
            wrong += schema_file(path, servers, allowed, counts)
            continue
        for server in servers:
            server.start()
        written = []
        for line, recorded in blocks_of(path):
            if line is None:
                written += recorded
                continue
            answers = [server.answer(line) for server in servers]
            counts["statements"] += 1
            notes = [text for text in recorded if not text.startswith(("!", ">"))]
            said = [text for text in recorded if text.startswith(("!", ">"))]
            if chosen.bless:
                keep = said and not agree(said, answers[0])
                written += [line, *(said if keep else answers[0]), *notes]
                if keep:
                    print(f"{path}: kept\n{line}\n  recorded {said}\n  found    {answers[0]}")
                continue
            counts["mistakes"] += any(text.startswith("!") for text in said)
            for server, found in zip(servers, answers):
                text = "\n".join([line, *said, "=>", *found])
                if agree(said, found):
                    continue
                if any(expression.search(text) for expression in allowed):
                    counts["differences expected"] += 1
                    continue
                wrong += 1
                print(f"{path}: {server.address}\n{line}\n  recorded {said}\n  found    {found}")
        if chosen.bless:
            with open(path, "w", encoding="utf-8") as out:
                out.write("\n".join(written) + "\n")
    for server in servers:
        server.statement("DROP KEYSPACE IF EXISTS ks")
    told = ", ".join(f"{count} {what}" for what, count in counts.items())
    print(f"recorded: {len(chosen.files)} files, {told}, {wrong} differences")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
