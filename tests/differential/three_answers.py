"""Requests of the native protocol and their answers as dictionaries of comparable texts, with all numbers that errors carry."""

import re
import struct

import native

LEVELS = ("ANY", "ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "SERIAL", "LOCAL_SERIAL", "LOCAL_ONE")
UNAVAILABLE, WRITE_TIMEOUT, READ_TIMEOUT, READ_FAILURE, WRITE_FAILURE, CAS_UNKNOWN = 0x1000, 0x1100, 0x1200, 0x1300, 0x1500, 0x1700
BATCH_KINDS = {"logged": 0, "unlogged": 1, "counter": 2}
SERIAL_FLAG = 0x10


class Body:
    """Reads the fields of an error one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        length = self.take(">H")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def level(self):
        return LEVELS[self.take(">H")]

    def failures(self, version):
        """How many replicas failed, and for which reasons: not which ones."""
        count = self.take(">i")
        if version < 5:
            return str(count)
        reasons = []
        for _ in range(count):
            self.at += 1 + self.data[self.at]
            reasons.append(self.take(">H"))
        return f"{count} for {sorted(reasons)}"


def error(data, version):
    """The fields of an error, by its code (native_protocol_v5.spec section 9)."""
    body = Body(data)
    code, message = body.take(">i"), body.text()
    facts = {}
    if code == UNAVAILABLE:
        facts = {"level": body.level(), "required": body.take(">i"), "alive": body.take(">i")}
    elif code in (WRITE_TIMEOUT, READ_TIMEOUT, READ_FAILURE, WRITE_FAILURE, CAS_UNKNOWN):
        facts = {"level": body.level(), "received": body.take(">i"), "required": body.take(">i")}
        if code in (READ_FAILURE, WRITE_FAILURE):
            facts["failures"] = body.failures(version)
        if code in (READ_TIMEOUT, READ_FAILURE):
            facts["data"] = body.take(">B")
        if code in (WRITE_TIMEOUT, WRITE_FAILURE):
            facts["kind"] = body.text()
    return {"outcome": "refused", "code": f"{code:04x}", "numbers": str(facts), "message": plain(message)}


def plain(message):
    """A message without what differs from run to run: addresses, and those of the nodes that are down, which ceto adds."""
    message = re.sub(r"; down: .*", "", message)
    message = re.sub(r"127\.0\.0\.\d+", "NODE", message)
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", message)


def ask(connection, statement, level, serial=None, batch=None):
    if batch:
        kind, parts = batch
        body = struct.pack(">BH", BATCH_KINDS[kind], len(parts))
        for part in parts:
            body += b"\0" + native.long_text(part) + struct.pack(">H", 0)
        flags = SERIAL_FLAG if serial else 0
        body += struct.pack(">H", level) + (struct.pack(">I", flags) if connection.version >= 5 else struct.pack(">B", flags))
        body += struct.pack(">H", serial) if serial else b""
        opcode = native.BATCH
    else:
        body = native.long_text(statement) + native.parameters(connection.version, flags=SERIAL_FLAG if serial else 0, consistency=level)
        body += struct.pack(">H", serial) if serial else b""
        opcode = native.QUERY
    connection.send(native.frame(connection.version, opcode, body))
    answer = connection.read()
    if answer is None:
        raise ConnectionError("the node closed the connection")
    if answer[1] == native.ERROR:
        return error(answer[2], connection.version)
    rows = sorted(str(row) for row in native.rows_of(answer[2]))
    return {"outcome": "done", "rows": "; ".join(rows)}


def alive(answer):
    """How many replicas live, by an answer that says that they are too few."""
    found = re.search(r"'alive': (\d+)", answer.get("numbers", ""))
    return int(found[1]) if found and answer["code"] == "1000" else None


def describe(answer):
    return " ".join(f"{name} {answer[name]}" for name in ("outcome", "code", "numbers", "message", "rows") if answer.get(name))


def differences(mine, theirs):
    if mine["outcome"] != theirs["outcome"] or mine.get("code") != theirs.get("code"):
        return [("outcome" if mine["outcome"] != theirs["outcome"] else "code", describe(mine), describe(theirs))]
    return [(kind, mine[kind], theirs[kind]) for kind in mine if mine[kind] != theirs[kind]]
