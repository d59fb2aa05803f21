"""Reads logs of histograms (HdrHistogram's interval log 1.3, V2 histograms, compressed), enough to ask for percentiles.

Format: HdrHistogram's documentation of its V2 encoding: cookie, payload length, index offset, significant digits, range,
ratio, then ZigZag LEB128 counts of at most 9 bytes, negative ones standing for as many zeros.
"""
import base64
import struct
import zlib

COOKIE, COMPRESSED_COOKIE = 0x1C849303, 0x1C849304
INFLATED_MAX = 1 << 26


def decode(text):
    """The counts of one histogram by value: (value, count), ascending; value is the highest that is counted alike."""
    data = base64.b64decode(text)
    cookie, length = struct.unpack_from(">II", data)
    if cookie & ~0xF0 != COMPRESSED_COOKIE & ~0xF0:
        raise ValueError("not a compressed V2 histogram")
    plain = zlib.decompressobj().decompress(data[8:8 + length], INFLATED_MAX)
    cookie, payload, _, digits, lowest, _ = struct.unpack_from(">IIIIQQ", plain)
    if cookie & ~0xF0 != COOKIE & ~0xF0:
        raise ValueError("not a V2 histogram")
    unit = lowest.bit_length() - 1
    largest = 2 * 10 ** digits
    half_bits = max((largest - 1).bit_length(), 1) - 1
    half = 1 << half_bits
    counts, at, end, index = [], 40, 40 + payload, 0
    while at < end:
        number, at = zigzag(plain, at)
        if number < 0:
            index -= number
            continue
        if number:
            bucket = (index >> half_bits) - 1
            sub = (index & (half - 1)) + half
            if bucket < 0:
                sub, bucket = sub - half, 0
            value = ((sub + 1) << (bucket + unit)) - 1
            counts.append((value, number))
        index += 1
    return counts


def zigzag(data, at):
    number, shift = 0, 0
    for place in range(9):
        byte = data[at]
        at += 1
        if place == 8:
            number |= byte << shift
            break
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return (number >> 1) ^ -(number & 1), at


def merge(into, counts):
    for value, count in counts:
        into[value] = into.get(value, 0) + count


def percentiles(counts, wanted):
    """Values at these percentiles."""
    total = sum(counts.values())
    found, seen, ascending = [], 0, sorted(counts.items())
    wanted = list(wanted)
    for value, count in ascending:
        seen += count
        while wanted and seen >= total * wanted[0] / 100:
            found.append(value)
            wanted.pop(0)
    return found + [ascending[-1][0] if ascending else 0] * len(wanted)


def intervals(path, clock="rt"):
    """Histograms of a log: (start, length, text), in seconds from one zero; `clock` rt where the log has it, else st."""
    rows = []
    with open(path) as log:
        for line in log:
            if not line.startswith("Tag="):
                continue
            tag, start, length, _, text = line.rstrip("\n").split(",", 4)
            rows.append((tag[4:], float(start), float(length), text))
    if not any(tag.endswith("-" + clock) for tag, *_ in rows):
        clock = "st"
    return [row[1:] for row in rows if row[0].endswith("-" + clock)]


def windows(path, seconds):
    """Histograms of a log by window: (start in seconds, counts)."""
    found, first = {}, None
    for start, _, text in intervals(path):
        first = start if first is None else first
        merge(found.setdefault(int((start - first) // seconds), {}), decode(text))
    return [(window * seconds, counts) for window, counts in sorted(found.items())]
