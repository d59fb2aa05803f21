"""Frames that are wrong: each is answered with an error or a closed connection, and harms nobody else."""

import random
import socket
import struct

import native
from native import (
    AUTH_RESPONSE, BATCH, ERROR, EXECUTE, OPTIONS, PREPARE, PROTOCOL, QUERY, REGISTER, REQUESTS, STARTUP,
    Connection, error_of, frame, lz4_of_zeros, long_text, segment, startup_body, text,
)
from node import NodeTest

VERSIONS = (3, 4, 5)
FRAME_BYTES_MAX = 1 << 20


class FrameTest(NodeTest):
    CONFIG = "native_transport_max_frame_size_in_mb: 1\n"

    def outcome(self, connection, half_close=True):
        """Code and text of the first ERROR, "closed", or the opcode of another answer; never a connection that hangs."""
        if half_close:
            try:
                connection.socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the node was faster
        answer = connection.read()
        if answer is None:
            return "closed"
        return error_of(answer[2]) if answer[1] == ERROR else answer[1]

    def check(self, data, version=4, started=True, code=PROTOCOL, contains="", closed=True, wrapped=True, **options):
        """`data` gets ERROR `code` with `contains` in its text, or, where `closed` allows it, a closed connection."""
        with Connection(version, started, **options) as connection:
            try:
                (connection.send if wrapped else connection.raw)(data)
            except ConnectionError:
                self.assertTrue(closed)
                return
            outcome = self.outcome(connection)
            if closed and outcome == "closed":
                return
            self.assertIsInstance(outcome, tuple, f"no error: {outcome}, to {data[:60].hex()}")
            self.assertIn(outcome[0], (code, native.INVALID), outcome)
            self.assertIn(contains, outcome[1])


class Frames(FrameTest):
    """What all versions have."""

    def test_a_frame_cut_anywhere_is_not_answered_and_its_connection_closed(self):
        for version in VERSIONS:
            whole = frame(version, QUERY, native.query_body(version, "SELECT key FROM system.local"))
            for started in (False, True):
                sent = segment(whole) if version == 5 and started else whole
                for cut in range(1, len(sent)):
                    with self.subTest(version=version, started=started, cut=cut), Connection(version, started) as c:
                        c.raw(sent[:cut])
                        self.assertEqual(self.outcome(c), "closed")

    def test_lengths_above_the_limit_are_refused_before_the_body_comes(self):
        for version in VERSIONS:
            for length in (FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1, 1 << 28, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
                for started in (False, True):
                    if version == 5 and started:
                        continue  # in segments: below
                    with self.subTest(version=version, length=length, started=started):
                        self.check(frame(version, QUERY, b"x", 5, length=length), version, started, closed=False)

    def test_the_connection_goes_on_behind_a_frame_that_was_too_large(self):
        for version in VERSIONS:
            with self.subTest(version=version), Connection(version) as connection:
                connection.send(frame(version, QUERY, bytes(FRAME_BYTES_MAX + 1000), 7))
                connection.send(frame(version, OPTIONS, stream=8))
                stream, opcode, body, _ = connection.read()
                self.assertEqual((stream, opcode), (7, ERROR))
                self.assertIn(error_of(body)[0], (PROTOCOL, native.INVALID))
                stream, opcode, _, _ = connection.read()
                self.assertEqual((stream, opcode), (8, native.SUPPORTED))

    def test_unknown_versions_are_answered_with_what_is_supported(self):
        for version in (0, 1, 2, 6, 0x42, 0x7F):
            for data in (frame(version, STARTUP, startup_body()), bytes([version]), bytes([version]) * 300):
                with self.subTest(version=version, length=len(data)), Connection(started=False) as connection:
                    connection.raw(data)
                    answer = connection.read()
                    self.assertIsNotNone(answer)
                    self.assertEqual(answer[1], ERROR)
                    code, message = error_of(answer[2])
                    self.assertEqual(code, PROTOCOL)
                    self.assertIn("unsupported protocol version", message.lower())
                    self.assertIsNone(connection.read(), "closed")

    def test_a_version_that_changes_on_a_connection_is_refused(self):
        self.check(frame(3, OPTIONS), 4, closed=False)

    def test_opcodes_that_are_none_or_not_a_clients(self):
        for version in VERSIONS:
            for started in (False, True):
                for opcode in [*range(0x11, 0x20), 0x7F, 0x80, 0xFF, 0x00, 0x02, 0x03, 0x06, 0x08, 0x0C, 0x0E, 0x10]:
                    with self.subTest(version=version, started=started, opcode=opcode):
                        self.check(frame(version, opcode, b"", 3), version, started, closed=False)
                with self.subTest(version=version, started=started, direction="response"):
                    self.check(frame(version | 0x80, QUERY, b"", 3), version, started)

    def test_requests_before_startup_are_refused(self):
        for version in VERSIONS:
            for opcode in REQUESTS:
                if opcode in (STARTUP, OPTIONS):
                    continue
                body = native.query_body(version, "SELECT key FROM system.local")
                with self.subTest(version=version, opcode=opcode):
                    self.check(frame(version, opcode, body), version, started=False, closed=False)

    def test_startup_that_is_wrong(self):
        cases = {
            "empty": b"",
            "huge count": struct.pack(">H", 65535),
            "text beyond the body": struct.pack(">HH", 1, 65535) + b"CQL",
            "no version": struct.pack(">H", 0),
            "unknown compression": startup_body(COMPRESSION="zip"),
            "invalid UTF-8": struct.pack(">H", 1) + text(b"CQL_VERSION") + text(b"\xff\xfe"),
        }
        for version in VERSIONS:
            for name, body in cases.items():
                with self.subTest(version=version, case=name):
                    self.check(frame(version, STARTUP, body), version, started=False, closed=False)

    def test_bodies_with_absurd_lengths_and_counts(self):
        many = struct.pack(">H", 65535)
        for version in VERSIONS:
            tail = native.parameters(version)
            flags = (lambda bits: struct.pack(">I" if version >= 5 else ">B", bits))
            good = long_text("SELECT key FROM system.local")
            cases = {
                "query: empty": (QUERY, b""),
                "query: negative length": (QUERY, struct.pack(">i", -1) + tail),
                "query: huge length": (QUERY, struct.pack(">i", 0x7FFFFFFF) + tail),
                "query: no parameters": (QUERY, good),
                "query: unknown consistency": (QUERY, good + b"\xff\xff" + flags(0)),
                "query: every flag": (QUERY, good + struct.pack(">H", 1) + flags(0xFF)),
                "query: huge count of values": (QUERY, good + struct.pack(">H", 1) + flags(1) + many),
                "query: value beyond the body": (
                    QUERY, good + struct.pack(">H", 1) + flags(1) + struct.pack(">Hi", 1, 0x7FFFFFFF)),
                "query: negative value length": (
                    QUERY, good + struct.pack(">H", 1) + flags(1) + struct.pack(">Hi", 1, -5)),
                "query: value missing": (QUERY, good + struct.pack(">H", 1) + flags(1)),
                "query: invalid UTF-8": (QUERY, long_text(b"SELECT \xff\xc0 FROM t") + tail),
                "query: paging state that is none": (
                    QUERY, good + struct.pack(">H", 1) + flags(8) + long_text(b"\xff" * 40)),
                "query: paging state beyond the body": (
                    QUERY, good + struct.pack(">H", 1) + flags(8) + struct.pack(">i", 1 << 30)),
                "prepare: empty": (PREPARE, b""),
                "prepare: huge length": (PREPARE, struct.pack(">i", 0x7FFFFFFF)),
                "execute: empty": (EXECUTE, b""),
                "execute: id beyond the body": (EXECUTE, many + b"abc"),
                "register: empty": (REGISTER, b""),
                "register: huge count": (REGISTER, many),
                "register: unknown event": (REGISTER, struct.pack(">H", 1) + text("NOTHING")),
                "batch: empty": (BATCH, b""),
                "batch: huge count": (BATCH, b"\x00" + many),
                "batch: unknown type": (BATCH, b"\x09\x00\x00" + struct.pack(">H", 1) + flags(0)),
                "batch: unknown kind of statement": (BATCH, b"\x00\x00\x01\x09" + good + b"\x00\x00" + tail),
                "batch: statement beyond the body": (
                    BATCH, b"\x00\x00\x01\x00" + struct.pack(">i", 0x7FFFFFFF) + b"x"),
                "batch: huge count of values": (BATCH, b"\x00\x00\x01\x00" + good + many + tail),
            }
            for name, (opcode, body) in cases.items():
                with self.subTest(version=version, case=name), Connection(version) as connection:
                    connection.send(frame(version, opcode, body, 9))
                    stream, answered, error, _ = connection.read()
                    self.assertEqual(answered, ERROR, name)
                    self.assertEqual(stream, 9)
                    self.assertIn(error_of(error)[0], (PROTOCOL, native.INVALID), error_of(error))
                    # A body that is wrong leaves the frames behind it readable.
                    self.assertEqual(connection.ask(OPTIONS)[1], native.SUPPORTED)

    def test_flags_without_what_they_announce(self):
        for version in VERSIONS:
            body = native.query_body(version, "SELECT key FROM system.local")
            for flags in (0x04, 0x04 | 0x02, 0x01):
                if flags == 0x01 and version == 5 or flags & 0x04 and version == 3:
                    continue  # have no meaning there and are ignored
                with self.subTest(version=version, flags=flags):
                    self.check(frame(version, QUERY, body, 1, flags), version, closed=False)

    def test_random_bodies(self):
        chance = random.Random(11)
        for version in VERSIONS:
            with Connection(version) as connection:
                for turn in range(400):
                    opcode = chance.choice([o for o in REQUESTS if o not in (OPTIONS, STARTUP)])
                    body = chance.randbytes(chance.choice([0, 1, 2, 5, 9, 30, 300]))
                    connection.send(frame(version, opcode, body, turn, chance.choice([0, 0, 2, 4])))
                    answer = connection.read()
                    self.assertIsNotNone(answer, f"closed after {opcode} {body.hex()}")
                    if answer[1] == ERROR:
                        code, message = error_of(answer[2])
                        self.assertNotEqual(code, native.SERVER, message)

    def test_flipped_bits(self):
        chance = random.Random(5)
        for version in VERSIONS:
            whole = frame(version, QUERY, native.query_body(version, "SELECT key FROM system.local", page_size=10), 1)
            sent = segment(whole) if version == 5 else whole
            for _ in range(250):
                damaged = bytearray(sent)
                for _ in range(chance.choice([1, 1, 2, 8])):
                    bit = chance.randrange(len(damaged) * 8)
                    damaged[bit // 8] ^= 1 << bit % 8
                with Connection(version) as connection:
                    connection.raw(bytes(damaged))
                    outcome = self.outcome(connection)
                    if isinstance(outcome, tuple):
                        self.assertNotEqual(outcome[0], native.SERVER, (outcome, damaged.hex()))
                    if version == 5 and bytes(damaged) != sent:
                        self.assertNotEqual(outcome, native.RESULT, "a checksum has to notice")

    def test_garbage_from_the_first_byte(self):
        chance = random.Random(3)
        http = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        tls = bytes.fromhex("16030100a5010000a10303") + chance.randbytes(160)
        for data in [http, tls, bytes(5000), b"\xff" * 5000, *(chance.randbytes(200) for _ in range(100))]:
            with self.subTest(data=data[:12].hex()), Connection(started=False) as connection:
                connection.raw(data)
                outcome = self.outcome(connection)
                self.assertTrue(outcome == "closed" or outcome[0] in (PROTOCOL, native.INVALID), outcome)


class Segments(FrameTest):
    """What only version 5 has."""

    def refused(self, data, lz4=False, whole=0):
        """The node refuses the data, once it has answered the `whole` envelopes at its beginning."""
        with Connection(5, compression="lz4" if lz4 else None) as connection:
            connection.raw(data)
            outcomes = [self.outcome(connection) for _ in range(whole)]
            self.assertEqual(outcomes, [native.SUPPORTED] * whole)
            outcome = self.outcome(connection)
            if outcome != "closed":
                self.assertIsInstance(outcome, tuple, f"no error: {outcome}")
                self.assertIn(outcome[0], (PROTOCOL, native.INVALID), outcome)

    def test_checksums_that_do_not_match(self):
        whole = segment(frame(5, OPTIONS))
        for at in range(len(whole)):
            for mask in (1, 0x80, 0xFF):
                damaged = bytearray(whole)
                damaged[at] ^= mask
                with self.subTest(at=at, mask=mask):
                    self.refused(bytes(damaged))

    def test_envelopes_that_do_not_fit_their_segment(self):
        envelope = frame(5, OPTIONS)
        cases = {
            "cut": envelope[:-3],
            "longer than the segment": frame(5, QUERY, b"xyz", length=500),
            "a whole one and a piece": envelope + envelope[:4],
            "a body above the limit": frame(5, QUERY, b"xyz", length=1 << 29),
            "a negative body": frame(5, QUERY, b"xyz", length=0xFFFFFFF0),
        }
        for name, payload in cases.items():
            for lz4 in (False, True):
                with self.subTest(case=name, lz4=lz4):
                    self.refused(segment(payload, True, 0 if lz4 else None), lz4, name.startswith("a whole one"))

    def test_pieces_that_never_become_an_envelope(self):
        piece = frame(5, QUERY, bytes(100_000), length=FRAME_BYTES_MAX - 100)
        cases = {
            "left alone": segment(piece, False),
            "followed by a self-contained one": segment(piece, False) + segment(frame(5, OPTIONS)),
            "followed by more than it needs": segment(piece, False) + segment(bytes(131_000), False) * 9,
            "an empty one": segment(b"", False),
            "too short for a header": segment(b"\x05\x00", False),
        }
        for name, data in cases.items():
            with self.subTest(case=name):
                self.refused(data)

    def test_a_hundred_unfinished_envelopes_take_no_more_than_their_bytes(self):
        open_connections = []
        for _ in range(100):
            connection = Connection(5)
            open_connections.append(connection)
            connection.raw(segment(frame(5, QUERY, bytes(100), length=FRAME_BYTES_MAX - 9), False))
        self.assertLess(self.node.rss_mb() - self.rss_before_mb, 32)
        for connection in open_connections:
            connection.socket.close()

    def test_compressed_segments_that_lie(self):
        zeros = lz4_of_zeros(60_000)
        cases = {
            "a length that is too large": segment(zeros, True, 131_071),
            "a length that is too small": segment(zeros, True, 10),
            "no lz4": segment(b"\xff" * 300, True, 500),
            "a match before the beginning": segment(b"\x1f\x00\xff\xff\x00\x50aaaaa", True, 40),
            "empty": segment(b"", True, 100),
        }
        for name, data in cases.items():
            with self.subTest(case=name):
                self.refused(data, lz4=True)


class CompressedBodies(FrameTest):
    """What only versions 3 and 4 have: bodies compressed one by one."""

    def test_bodies_that_do_not_decompress(self):
        lz4 = {
            "empty": b"",
            "short": b"\x00\x00",
            "a length of 2 GiB": struct.pack(">I", 0x7FFFFFFF) + lz4_of_zeros(1000),
            "a length of 4 GiB": struct.pack(">I", 0xFFFFFFFF) + lz4_of_zeros(1000),
            "a length that is too small": struct.pack(">I", 10) + lz4_of_zeros(1000),
            "a length that is too large": struct.pack(">I", 900_000) + lz4_of_zeros(1000),
            "no lz4": struct.pack(">I", 100) + b"\xff" * 50,
            "a bomb": struct.pack(">I", 100 << 20) + lz4_of_zeros(100 << 20),
        }
        snappy = {
            "empty": b"",
            "a length of 4 GiB": b"\xff\xff\xff\xff\x0f" + b"\x00a",
            "an endless length": b"\xff" * 30,
            "a copy before the beginning": b"\x0a\x01\xff\xff",
            "a length that is too small": b"\x02\x10hello",
            "cut": b"\x64\x10he",
            "a bomb": b"\x80\x80\x80\x32\x00a" + b"\xfe\x01\x00" * 300_000,
        }
        for version in (3, 4):
            for algorithm, cases in (("lz4", lz4), ("snappy", snappy)):
                for name, body in cases.items():
                    with self.subTest(version=version, algorithm=algorithm, case=name):
                        data = frame(version, QUERY, body, 4, 1)
                        self.check(data, version, compression=algorithm, closed=False)

    def test_compressed_frames_on_a_connection_without_compression(self):
        for version in (3, 4):
            self.check(frame(version, QUERY, b"abc", 4, 1), version, closed=False)
