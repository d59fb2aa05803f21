#!/usr/bin/env python3
"""Writes client_frames.txt: one request frame per line, made by the Python driver's own encoders.

    pip install cassandra-driver==3.30.1 lz4 && python3 client_frames.py > client_frames.txt

A line is `name version hex`. The test beside it says what each name must decode to.
"""
import struct

import lz4.block
from cassandra import ConsistencyLevel
from cassandra.protocol import (
    AuthResponseMessage, BatchMessage, ExecuteMessage, OptionsMessage, PrepareMessage,
    ProtocolHandler, QueryMessage, RegisterMessage, StartupMessage)
from cassandra.query import BatchType, UNSET_VALUE
from cassandra.segment import SegmentCodec

ID = bytes(range(16))
META = bytes(range(16, 32))


def lz4_compress(data):
    # The driver's own legacy framing: big-endian length before the block.
    return struct.pack('>i', len(data)) + lz4.block.compress(data, store_size=False)


def frame(message, version, compressor=None, stream=0x0102):
    return ProtocolHandler.encode_message(message, stream, version, compressor, False)


def show(name, version, data):
    print(name, version, data.hex())


for version in (3, 4, 5):
    v5 = version == 5
    show('startup', version, frame(StartupMessage('3.4.7', {'COMPRESSION': 'lz4', 'DRIVER_NAME': 'golden'}), version))
    show('options', version, frame(OptionsMessage(), version))
    show('register', version, frame(RegisterMessage(['TOPOLOGY_CHANGE', 'STATUS_CHANGE', 'SCHEMA_CHANGE']), version))
    show('auth_response', version, frame(AuthResponseMessage(b'\0cassandra\0cassandra'), version))
    show('query_plain', version, frame(QueryMessage('SELECT * FROM t', ConsistencyLevel.ONE), version))
    full = QueryMessage("SELECT 'é' FROM t", ConsistencyLevel.QUORUM, ConsistencyLevel.LOCAL_SERIAL, 5000,
                        b'state', 1234567890123456, keyspace='ks' if v5 else None)
    full.query_params = [b'\0\0\0\1', None, b'']
    show('query_full', version, frame(full, version))
    traced = QueryMessage('SELECT 1', ConsistencyLevel.LOCAL_ONE)
    traced.tracing = True
    if version >= 4:
        traced.update_custom_payload({'key': b'value'})
    show('query_traced', version, frame(traced, version))
    show('query_lz4', version, frame(QueryMessage('SELECT ' + 'a' * 400, ConsistencyLevel.ONE), version,
                                     None if v5 else lz4_compress))
    show('prepare', version, frame(PrepareMessage('INSERT INTO t (k) VALUES (?)', 'ks' if v5 else None), version))
    values = [b'abc', None] + ([UNSET_VALUE] if version >= 4 else [])
    show('execute', version, frame(ExecuteMessage(ID, values, ConsistencyLevel.LOCAL_QUORUM, fetch_size=100,
                                                  skip_meta=True, timestamp=5,
                                                  result_metadata_id=META), version))
    statements = [(False, "UPDATE t SET v = 1", []), (True, ID, [b'k', b'v'])]
    show('batch', version, frame(BatchMessage(BatchType.UNLOGGED, statements, ConsistencyLevel.ALL,
                                              ConsistencyLevel.SERIAL, 99, 'ks' if v5 else None), version))

from io import BytesIO  # noqa: E402

small = frame(QueryMessage('SELECT small FROM t', ConsistencyLevel.ONE), 5)
large = frame(QueryMessage('SELECT ' + 'large ' * 50000, ConsistencyLevel.ONE), 5)
# The codec drops the length that the compressor puts in front.
for name, codec in (('plain', SegmentCodec()), ('lz4', SegmentCodec(lz4_compress, lz4.block.decompress))):
    out = BytesIO()
    codec.encode(out, small)
    show('segment_small_' + name, 5, out.getvalue())
    out = BytesIO()
    codec.encode(out, large)
    # Only its compressed form: the plain one is 300 KB.
    if name == 'lz4':
        show('segment_large_' + name, 5, out.getvalue())
