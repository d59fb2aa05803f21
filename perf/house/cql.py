"""A connection that speaks as much of CQL's protocol v4 as the house itself asks: statements without values, plain columns.

Source: native_protocol_v4.spec. Every answer has a time limit; one that is malformed is a ValueError.
"""
import socket
import struct

from . import servers

ANSWER_SECONDS_MAX = 30
FRAME_BYTES_MAX = 16 << 20
CONSISTENCY = {"ONE": 1, "QUORUM": 4, "ALL": 5}
ERROR, STARTUP, READY, QUERY, RESULT = 0, 1, 2, 7, 8
ROWS, GLOBAL_TABLE, MORE_PAGES, PLAIN_TYPE_MAX = 2, 1, 2, 0x15


class Refused(servers.Failed):
    """The server answered with an error."""


class Connection:
    """One connection, one request at a time."""

    def __init__(self, host, port, seconds=ANSWER_SECONDS_MAX):
        self.socket = socket.create_connection((host, port), seconds)
        try:
            self.socket.settimeout(seconds)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opcode, _ = self.ask(STARTUP, b"\0\1" + text("CQL_VERSION") + text("3.0.0"))
            if opcode != READY:
                raise ValueError(f"STARTUP was answered with opcode {opcode}, not READY")
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def query(self, statement, consistency="ONE"):
        """Carries a statement out: its rows, each a list of values as bytes."""
        body = statement.encode()
        opcode, answer = self.ask(QUERY, struct.pack(">I", len(body)) + body
                                  + struct.pack(">HB", CONSISTENCY[consistency], 0))
        if opcode != RESULT:
            raise ValueError(f"a query was answered with opcode {opcode}")
        return rows(Reader(answer))

    def ask(self, opcode, body):
        self.socket.sendall(struct.pack(">BBhBI", 4, 0, 0, opcode, len(body)) + body)
        head = self.receive(9)
        length, = struct.unpack(">I", head[5:])
        if length > FRAME_BYTES_MAX:
            raise ValueError(f"an answer of {length} bytes")
        body = self.receive(length)
        if head[4] == ERROR:
            reader = Reader(body)
            raise Refused(f"error {reader.int():#06x}: {reader.string()}")
        return head[4], body

    def receive(self, count):
        received = bytearray()
        while len(received) < count:
            part = self.socket.recv(count - len(received))
            if not part:
                raise ConnectionError("the server closed the connection")
            received += part
        return bytes(received)


class Reader:
    """Takes values off the front of a body."""

    def __init__(self, body):
        self.body, self.at = body, 0

    def take(self, count):
        if count < 0 or self.at + count > len(self.body):
            raise ValueError(f"{count} bytes at {self.at} of a body of {len(self.body)}")
        self.at += count
        return self.body[self.at - count:self.at]

    def int(self):
        return struct.unpack(">i", self.take(4))[0]

    def short(self):
        return struct.unpack(">H", self.take(2))[0]

    def string(self):
        return self.take(self.short()).decode()

    def bytes(self):
        length = self.int()
        return None if length < 0 else self.take(length)


def text(value):
    return struct.pack(">H", len(value)) + value.encode()


def rows(reader):
    """The rows of a result (§4.2.5.2); none of one that has no rows."""
    if reader.int() != ROWS:
        return []
    flags, columns = reader.int(), reader.int()
    if flags & MORE_PAGES:
        reader.bytes()
    if flags & GLOBAL_TABLE:
        reader.string(), reader.string()
    for _ in range(columns):
        if not flags & GLOBAL_TABLE:
            reader.string(), reader.string()
        name, kind = reader.string(), reader.short()
        if not 0 < kind <= PLAIN_TYPE_MAX:
            raise ValueError(f"column {name} has type {kind:#x}, which is none of the plain ones")
    return [[reader.bytes() for _ in range(columns)] for _ in range(reader.int())]
