"""The native protocol, written down by hand, so that frames can be wrong in every way a driver would never send.

Nothing here checks what it sends; what comes back is read strictly.
"""

import os
import socket
import struct
import zlib

HOST = "127.0.0.1"
PORT = int(os.environ.get("PORT", "9742"))
TIMEOUT_SECONDS = 20

ERROR, STARTUP, READY, OPTIONS, SUPPORTED, QUERY, RESULT = 0, 1, 2, 5, 6, 7, 8
PREPARE, EXECUTE, REGISTER, EVENT, BATCH, AUTH_RESPONSE = 9, 10, 11, 12, 13, 15
REQUESTS = [STARTUP, OPTIONS, QUERY, PREPARE, EXECUTE, REGISTER, BATCH, AUTH_RESPONSE]

SERVER, PROTOCOL, OVERLOADED, WRITE_TIMEOUT, WRITE_FAILURE = 0x0000, 0x000A, 0x1001, 0x1100, 0x1500
SYNTAX, INVALID, CONFIG, READ_FAILURE, UNPREPARED = 0x2000, 0x2200, 0x2300, 0x1300, 0x2500


class Refused(Exception):
    """The node answered ERROR."""

    def __init__(self, code, message):
        super().__init__(f"error {code:#06x}: {message}")
        self.code, self.message = code, message


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(value)) + value


def long_text(value):
    value = value.encode() if isinstance(value, str) else value
    return struct.pack(">i", len(value)) + value


def value(data):
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def startup_body(**options):
    options = {"CQL_VERSION": "3.0.0", **options}
    return struct.pack(">H", len(options)) + b"".join(text(k) + text(v) for k, v in options.items())


def parameters(version, values=(), page_size=None, flags=0, consistency=1):
    flags |= (1 if values else 0) | (4 if page_size is not None else 0)
    out = struct.pack(">H", consistency)
    out += struct.pack(">I", flags) if version >= 5 else struct.pack(">B", flags)
    if values:
        out += struct.pack(">H", len(values)) + b"".join(value(v) for v in values)
    if page_size is not None:
        out += struct.pack(">i", page_size)
    return out


def query_body(version, statement, values=(), page_size=None):
    return long_text(statement) + parameters(version, values, page_size)


def frame(version, opcode, body=b"", stream=0, flags=0, length=None):
    return struct.pack(">BBhBI", version, flags, stream, opcode, len(body) if length is None else length) + body


def crc24(data):
    crc = 0x875060
    for byte in data:
        crc ^= byte << 16
        for _ in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1974F0B
    return crc


def crc32(data):
    return zlib.crc32(data, zlib.crc32(b"\xfa\x2d\x55\xca"))


def segment(payload, self_contained=True, lz4_length=None):
    """A segment of version 5; with `lz4_length` in the compressed format, which 0 means stored."""
    if lz4_length is None:
        header = (len(payload) | (1 << 17 if self_contained else 0)).to_bytes(3, "little")
    else:
        fields = len(payload) | lz4_length << 17 | (1 << 34 if self_contained else 0)
        header = fields.to_bytes(5, "little")
    return header + crc24(header).to_bytes(3, "little") + payload + crc32(payload).to_bytes(4, "little")


def lz4_of_zeros(length):
    """An lz4 block that gives `length` zero bytes."""
    match = length - 1 - 5 - 4 - 15  # one literal, one long match, five last literals
    out = b"\x1f\x00\x01\x00" + b"\xff" * (match // 255) + bytes([match % 255])
    return out + b"\x50" + b"\x00" * 5


def lz4_decompress(data):
    out, at = bytearray(), 0

    def length(nibble):
        nonlocal at
        total = nibble
        while nibble == 15:
            total += data[at]
            at += 1
            if data[at - 1] != 255:
                break
        return total

    while at < len(data):
        token = data[at]
        at += 1
        literals = length(token >> 4)
        out += data[at : at + literals]
        at += literals
        if at == len(data):
            break
        start = len(out) - int.from_bytes(data[at : at + 2], "little")
        at += 2
        for step in range(length(token & 15) + 4):
            out.append(out[start + step])
    return bytes(out)


def snappy_decompress(data):
    out, at = bytearray(), 0
    while data[at] & 0x80:
        at += 1
    at += 1
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            length = (tag >> 2) + 1
            if length > 60:
                width = length - 60
                length = int.from_bytes(data[at : at + width], "little") + 1
                at += width
            out += data[at : at + length]
            at += length
            continue
        if tag & 3 == 1:
            length, offset = (tag >> 2 & 7) + 4, tag >> 5 << 8 | data[at]
            at += 1
        else:
            width = 2 if tag & 3 == 2 else 4
            length, offset = (tag >> 2) + 1, int.from_bytes(data[at : at + width], "little")
            at += width
        for _ in range(length):
            out.append(out[-offset])
    return bytes(out)


class Connection:
    """One socket. `version` 5 switches to segments once STARTUP is answered."""

    def __init__(self, version=4, started=True, timeout=TIMEOUT_SECONDS, compression=None, receive_bytes=None):
        self.version, self.segments, self.lz4, self.compression = version, False, False, compression
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(timeout)
        self.socket.connect((HOST, PORT))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received, self.envelopes = b"", b""
        if started:
            options = {"COMPRESSION": compression} if compression else {}
            self.raw(frame(version, STARTUP, startup_body(**options)))
            answer = self.read()
            if answer is None:
                raise ConnectionError("the node closed before it answered STARTUP")
            assert answer[1] == READY, f"STARTUP was answered with {answer}"
            self.segments, self.lz4 = version >= 5, version >= 5 and compression is not None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def raw(self, data):
        self.socket.sendall(data)

    def send(self, data):
        """Sends envelopes the way the connection wants them by now."""
        if not self.segments:
            return self.raw(data)
        while data:
            length = struct.unpack(">I", data[5:9])[0] + 9
            piece, data = data[:length], data[length:]
            whole = length < 1 << 17
            for at in range(0, length, (1 << 17) - 1):
                self.raw(segment(piece[at : at + (1 << 17) - 1], whole, 0 if self.lz4 else None))

    def _fill(self, count):
        while len(self.received) < count:
            try:
                chunk = self.socket.recv(1 << 16)
            except ConnectionError:
                return False
            if not chunk:
                return False
            self.received += chunk
        return True

    def _plain(self, flags, body):
        """The body of an answer, which the node may have compressed."""
        if not flags & 1:
            return body
        if self.compression == "lz4":
            return lz4_decompress(body[4:])
        return snappy_decompress(body)

    def _take(self, count):
        out, self.received = self.received[:count], self.received[count:]
        return out

    def read(self):
        """The next answer as (stream, opcode, body, version byte), or None where the node closed."""
        if self.segments:
            return self._read_envelope()
        if not self._fill(9):
            return None
        if self.received[0] & 0x7F in (1, 2):  # their header has one byte of stream
            self.received = self.received[:2] + b"\x00" + self.received[2:]
        length = struct.unpack(">I", self.received[5:9])[0]
        if not self._fill(9 + length):
            return None
        return self._parse(self._take(9 + length))

    def _read_envelope(self):
        while len(self.envelopes) < 9 or len(self.envelopes) < 9 + struct.unpack(">I", self.envelopes[5:9])[0]:
            head = 8 if self.lz4 else 6
            if not self._fill(head):
                return None
            header, fields = self.received[: head - 3], int.from_bytes(self.received[: head - 3], "little")
            assert crc24(header).to_bytes(3, "little") == self.received[head - 3 : head], "a bad CRC24 from the node"
            length = fields & 0x1FFFF
            if not self._fill(head + length + 4):
                return None
            payload = self._take(head + length + 4)[head:]
            assert crc32(payload[:-4]).to_bytes(4, "little") == payload[-4:], "a bad CRC32 from the node"
            is_compressed = self.lz4 and fields >> 17 & 0x1FFFF
            self.envelopes += lz4_decompress(payload[:-4]) if is_compressed else payload[:-4]
        length = 9 + struct.unpack(">I", self.envelopes[5:9])[0]
        one, self.envelopes = self.envelopes[:length], self.envelopes[length:]
        return self._parse(one)

    def _parse(self, data):
        version, flags, stream, opcode, _ = struct.unpack(">BBhBI", data[:9])
        body = self._plain(flags, data[9:])
        if flags & 8:  # warnings
            count, at = struct.unpack(">H", body[:2])[0], 2
            for _ in range(count):
                at += 2 + struct.unpack(">H", body[at : at + 2])[0]
            body = body[at:]
        return stream, opcode, body, version

    def ask(self, opcode, body=b"", stream=0):
        """One request and its answer; raises Refused on ERROR."""
        self.send(frame(self.version, opcode, body, stream))
        answer = self.read()
        if answer is None:
            raise ConnectionError("the node closed the connection")
        if answer[1] == ERROR:
            raise Refused(*error_of(answer[2]))
        return answer

    def query(self, statement, values=(), page_size=None):
        """Rows of a statement, each a list of bytes; an empty list where it gives none."""
        return rows_of(self.ask(QUERY, query_body(self.version, statement, values, page_size))[2])

    def prepare(self, statement):
        """The id of a prepared statement (and, in version 5, that of its metadata)."""
        body = long_text(statement) + (struct.pack(">I", 0) if self.version >= 5 else b"")
        answer = self.ask(PREPARE, body)[2]
        ids, at = [], 4
        for _ in range(2 if self.version >= 5 else 1):
            length = struct.unpack(">H", answer[at : at + 2])[0]
            ids.append(answer[at + 2 : at + 2 + length])
            at += 2 + length
        return ids

    def execute_body(self, ids, values=()):
        return b"".join(text(i) for i in ids) + parameters(self.version, values)


def error_of(body):
    length = struct.unpack(">H", body[4:6])[0]
    return struct.unpack(">i", body[:4])[0], body[6 : 6 + length].decode()


def rows_of(body):
    if struct.unpack(">i", body[:4])[0] != 2:
        return []
    flags, columns = struct.unpack(">ii", body[4:12])
    at = 12

    def skip_text():
        nonlocal at
        at += 2 + struct.unpack(">H", body[at : at + 2])[0]

    if flags & 2:
        at += 4 + max(0, struct.unpack(">i", body[at : at + 4])[0])
    if not flags & 4:
        if flags & 1:
            skip_text()
            skip_text()
        for _ in range(columns):
            if not flags & 1:
                skip_text()
                skip_text()
            skip_text()
            kind = struct.unpack(">H", body[at : at + 2])[0]
            assert 0 < kind < 0x20, "tests read scalar columns only"
            at += 2
    count = struct.unpack(">i", body[at : at + 4])[0]
    at += 4
    rows = []
    for _ in range(count):
        row = []
        for _ in range(columns):
            length = struct.unpack(">i", body[at : at + 4])[0]
            at += 4
            row.append(None if length < 0 else body[at : at + length])
            at += max(0, length)
        rows.append(row)
    return rows
