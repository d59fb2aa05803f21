"""A stand-in for `cqlsh`, as far as the manual needs it: rows are shown as a table, errors as a line.

Called as `cqlsh [-e STATEMENTS | -f FILE] [HOST [PORT]]`; without -e and -f statements are read from the
standard input. The first error ends it with code 2. The output is cqlsh's: `CQLSH=PATH tests/docs/run.sh` runs
the manual with the real one.
"""

import argparse
import datetime
import decimal
import ipaddress
import re
import struct
import sys
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "badinput"))
import native  # noqa: E402

LEVELS = "ANY ONE TWO THREE QUORUM ALL LOCAL_QUORUM EACH_QUORUM SERIAL LOCAL_SERIAL LOCAL_ONE".split()
# The names that cqlsh gives errors by their codes.
ERRORS = {
    0x0000: ("ServerError", "Server error"),
    0x000A: ("ProtocolException", "Protocol error"),
    0x1000: ("Unavailable", "Unavailable exception"),
    0x1001: ("OverloadedErrorMessage", "Coordinator node overloaded"),
    0x1100: ("WriteTimeout", "Coordinator node timed out waiting for replica nodes' responses"),
    0x1200: ("ReadTimeout", "Coordinator node timed out waiting for replica nodes' responses"),
    0x1300: ("ReadFailure", "Replica(s) failed to execute read"),
    0x1400: ("FunctionFailure", "User Defined Function failure"),
    0x1500: ("WriteFailure", "Replica(s) failed to execute write"),
    0x2000: ("SyntaxException", "Syntax error in CQL query"),
    0x2100: ("Unauthorized", "Unauthorized"),
    0x2200: ("InvalidRequest", "Invalid query"),
    0x2300: ("ConfigurationException", "Query invalid because of configuration issue"),
    0x2400: ("AlreadyExists", "Item already exists"),
}
# Comments, texts in quotes, semicolons, and all else.
COMMENT, QUOTED = r"--[^\n]*|//[^\n]*|/\*.*?\*/", r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$\$.*?\$\$"
PIECE = re.compile(rf"{COMMENT}|{QUOTED}|;|[^;'\"$/-]+|.", re.S)
UNAVAILABLE = 0x1000
PATIENCE_SECONDS = 10
CUSTOM, LIST, MAP, SET, USER_TYPE, TUPLE = 0x00, 0x20, 0x21, 0x22, 0x30, 0x31
TEXTS = (0x01, 0x0D)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class Reader:
    """Reads the parts of an answer one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        return self.data[self.at - count : self.at]

    def short(self):
        return struct.unpack(">H", self.take(2))[0]

    def int(self):
        return struct.unpack(">i", self.take(4))[0]

    def text(self):
        return self.take(self.short()).decode()

    def value(self):
        length = self.int()
        return None if length < 0 else self.take(length)

    def kind(self):
        code = self.short()
        if code == CUSTOM:
            return code, self.text()
        if code in (LIST, SET):
            return code, self.kind()
        if code == MAP:
            return code, (self.kind(), self.kind())
        if code == USER_TYPE:
            self.text(), self.text()
            return code, [(self.text(), self.kind()) for _ in range(self.short())]
        if code == TUPLE:
            return code, [self.kind() for _ in range(self.short())]
        return code, None


def shown(kind, data, nested=False):
    """A value as cqlsh prints it; text inside of others has quotes."""
    code, inner = kind
    if data is None:
        return "null"
    if code in TEXTS:
        text = data.decode()
        return "'" + text.replace("'", "''") + "'" if nested else text
    if code in (0x02, 0x05, 0x09, 0x0E, 0x13, 0x14):
        return str(int.from_bytes(data, "big", signed=True))
    if code == 0x04:
        return str(data != b"\x00")
    if code == 0x06:
        scale, unscaled = struct.unpack(">i", data[:4])[0], int.from_bytes(data[4:], "big", signed=True)
        return str(decimal.Decimal(unscaled).scaleb(-scale))
    if code in (0x07, 0x08):
        return f"{struct.unpack('>d' if code == 0x07 else '>f', data)[0]:.6g}"
    if code == 0x0B:
        time = EPOCH + datetime.timedelta(milliseconds=struct.unpack(">q", data)[0])
        text = time.strftime("%Y-%m-%d %H:%M:%S.%f%z")
        return f"'{text}'" if nested else text
    if code in (0x0C, 0x0F):
        return str(uuid.UUID(bytes=data))
    if code == 0x10:
        return str(ipaddress.ip_address(data))
    if code == 0x11:
        return str(EPOCH.date() + datetime.timedelta(days=struct.unpack(">I", data)[0] - (1 << 31)))
    return shown_of_others(code, inner, data)


def shown_of_others(code, inner, data):
    reader = Reader(data)
    if code in (LIST, SET):
        items = [shown(inner, reader.value(), True) for _ in range(reader.int())]
        return ("[%s]" if code == LIST else "{%s}") % ", ".join(items)
    if code == MAP:
        key, value = inner
        count = reader.int()
        pairs = [(shown(key, reader.value(), True), shown(value, reader.value(), True)) for _ in range(count)]
        return "{%s}" % ", ".join(f"{key}: {value}" for key, value in pairs)
    if code == USER_TYPE:
        fields = [(name, reader.value() if reader.at < len(data) else None) for name, _ in inner]
        return "{%s}" % ", ".join(f"{n}: {shown(kind, v, True)}" for (n, v), (_, kind) in zip(fields, inner))
    if code == TUPLE:
        return "(%s)" % ", ".join(shown(kind, reader.value(), True) for kind in inner)
    return "0x" + data.hex()


class Client(native.Connection):
    """A connection that keeps warnings and decodes rows of all types."""

    def __init__(self, host, port):
        native.HOST, native.PORT = host, port
        super().__init__(version=4, timeout=30)
        self.warnings, self.consistency, self.traces, self.trace = [], LEVELS.index("ONE"), False, None

    def _parse(self, data):
        """Takes the id of the trace and the warnings off, which come before the body in this order."""
        flags, body = data[1], data[9:]
        if flags & 2:
            self.trace, body = uuid.UUID(bytes=body[:16]), body[16:]
        if flags & 8:
            reader = Reader(body)
            self.warnings = [reader.text() for _ in range(reader.short())]
            body = body[reader.at :]
        return super()._parse(data[:1] + bytes([flags & ~10]) + data[2:9] + body)

    def run(self, statement):
        """What cqlsh prints for a statement."""
        word = re.match(r"(?i)\s*consistency\s+(\w+)$", statement)
        if word:
            self.consistency = LEVELS.index(word[1].upper())
            return f"Consistency level set to {word[1].upper()}.\n"
        word = re.match(r"(?i)\s*tracing\s+(on|off)$", statement)
        if word:
            self.traces = word[1].lower() == "on"
            return f"TRACING set to {word[1].upper()}\n"
        out = self.answer(statement, 2 if self.traces else 0)
        return out + self.events() if self.traces else out

    def events(self):
        """The last trace, once it is written: its events between the beginning and the end of the request."""
        of = f"FROM system_traces.%s WHERE session_id = {self.trace}"
        sessions = []
        while not sessions or sessions[0][3] == "null":
            time.sleep(0.02)
            columns = "request, started_at, coordinator, duration, client"
            sessions = self.rows(f"SELECT {columns} {of % 'sessions'}")
        request, at, where, took, client = sessions[0]
        events = self.rows(f"SELECT activity, thread, event_id, source, source_elapsed {of % 'events'}")
        rows = [[request, at, where, "0", client]]
        for activity, thread, event, source, elapsed in events:
            moment = EPOCH + datetime.timedelta(microseconds=uuid.UUID(event).time // 10 - 12219292800000000)
            rows.append([f"{activity} [{thread}]", str(moment), source, elapsed, client])
        rows.append(["Request complete", at, where, took, client])
        names = ["activity", "timestamp", "source", "source_elapsed", "client"]
        return f"\nTracing session: {self.trace}\n" + table(names, rows).rsplit("\n", 2)[0]

    def rows(self, statement):
        return rows_of(self.result(statement))[1]

    def answer(self, statement, flags=0):
        """What is printed for the result of a statement."""
        reader = self.result(statement, flags)
        if reader is None:
            return warnings(self.warnings)
        names, rows = rows_of(reader)
        if re.match(r"(?i)desc(ribe)?\b", statement) and "create_statement" in names:
            return "".join("\n" + row[names.index("create_statement")] + "\n" for row in rows)
        return table(names, rows) + warnings(self.warnings)

    def result(self, statement, flags=0):
        """The rows of an answer, None where it has none."""
        self.warnings = []
        body = native.long_text(statement) + native.parameters(4, consistency=self.consistency)
        self.send(native.frame(4, native.QUERY, body, flags=flags))
        answer = self.read()
        if answer is None:
            raise ConnectionError("the node closed the connection")
        if answer[1] == native.ERROR:
            raise native.Refused(*native.error_of(answer[2]))
        reader = Reader(answer[2])
        return reader if reader.int() == 2 else None


def warnings(texts):
    return "\nWarnings :\n" + "\n\n".join(texts) + "\n\n" if texts else ""


def rows_of(reader):
    """The names of the columns, and the rows with their values as texts."""
    flags, count = reader.int(), reader.int()
    if flags & 2:
        reader.value()
    if flags & 1:
        reader.text(), reader.text()
    columns = []
    for _ in range(count):
        if not flags & 1:
            reader.text(), reader.text()
        columns.append((reader.text(), reader.kind()))
    rows = [[shown(kind, reader.value()) for _, kind in columns] for _ in range(reader.int())]
    return [name for name, _ in columns], rows


def table(names, rows):
    rows = [[cell.replace("\n", "\\n") for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in [names, *rows]) for at in range(len(names))]
    lines = ["", " " + " | ".join(name.ljust(width) for name, width in zip(names, widths))]
    lines.append("-" + "-+-".join("-" * width for width in widths) + "-")
    lines += [" " + " | ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]
    count = "" if names[0] == "[applied]" else f"\n({len(rows)} rows)\n"
    return "\n".join(lines) + "\n" + count


def statements_of(text):
    """Statements of a text. A batch goes on to its APPLY BATCH; a semicolon inside of quotes or $$ is text."""
    statement, out = "", []
    for part in PIECE.findall(text):
        is_in_batch = re.match(r"(?i)\s*begin\b", statement) and not re.search(r"(?i)apply\s+batch\s*$", statement)
        if part == ";" and not is_in_batch:
            out.append(statement.strip())
            statement = ""
        elif not part.startswith(("--", "//", "/*")):
            statement += part
    if statement.strip():
        out.append(statement.strip())
    return [statement for statement in out if statement]


def refusal(error):
    name, words = ERRORS.get(error.code, ("ErrorMessage", "Unknown"))
    if error.code == 0x2000:
        return f"{name}: {error.message}"
    if error.code == 0x2400:
        return f"{name}: {error.message}"
    return f'{name}: Error from server: code={error.code:04x} [{words}] message="{error.message}"'


def run(text, host="127.0.0.1", port=9042, patience_seconds=PATIENCE_SECONDS):
    """What cqlsh prints for statements, and whether all of them were carried out.

    Where the machine has much else to do, nodes are seen down for a moment: a statement that is told
    UNAVAILABLE, and so has done nothing, is given again for `patience_seconds`.
    """
    out, deadline = "", time.monotonic() + patience_seconds
    with Client(host, port) as client:
        for statement in statements_of(text):
            while True:
                try:
                    out += client.run(statement)
                    break
                except native.Refused as error:
                    if error.code != UNAVAILABLE or time.monotonic() > deadline:
                        return out + refusal(error) + "\n", False
                    time.sleep(0.1)
    return out, True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-e", "--execute")
    parser.add_argument("-f", "--file")
    parser.add_argument("host", nargs="?", default="127.0.0.1")
    parser.add_argument("port", nargs="?", type=int, default=9042)
    options = parser.parse_args()
    text = options.execute or (Path(options.file).read_text() if options.file else sys.stdin.read())
    try:
        out, is_well = run(text, options.host, options.port)
    except OSError as error:
        sys.exit(f"Connection error: {error}")
    sys.stdout.write(out)
    return 0 if is_well else 2


if __name__ == "__main__":
    sys.exit(main())
