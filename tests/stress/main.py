"""Runs command lines of cassandra-stress with `ceto stress` and looks at what they print, write and return.

Usage: main.py BINARY HOST PORT WORK. The lines stand as they were published; only counts and times are made small, and
distributions are moved to where data was written, so that reads find and check it. Lines that do not need one another
run at the same time: most of a short run is the pause after the schema.
"""
import base64
import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys
import time
import zlib

import native

binary, host, port, work = sys.argv[1:5]
here = pathlib.Path(__file__).parent
work = pathlib.Path(work)
COUNT = 2000
SECONDS_MAX = 120

# Writes that the reads below check.
WRITES = """
write no-warmup cl=QUORUM n=1 -schema "replication(factor=1) keyspace=keyspace$i" -mode cql3 native -errors ignore -node $NODES
write no-warmup cl=QUORUM n=1000000000 -schema 'replication(factor=1) keyspace=$KEYSPACE_ID' -mode cql3 native -rate 'threads=200' -pop 'seq=1..1000000000' -node $NODES -errors ignore
write no-warmup n=1 cl=QUORUM -schema 'replication(factor=1) keyspace=io' -mode cql3 native -errors ignore -node $NODES
write no-warmup CL=ALL n=55000000 -pop 'seq=1..55000000' -col 'size=FIXED(1024) n=FIXED(1)' -schema 'replication(factor=1) keyspace=io2' -mode cql3 native -errors ignore -node $NODES -rate 'threads=250'
write n=580000000 cl=QUORUM -schema "replication(factor=1)" -mode native cql3 -pop seq=4060000001..4640000000 -node $NODES -rate threads=500 -log file=$WORK/testwrite.data
write duration=15min -schema keyspace=keyspace3 -mode native cql3 -rate threads=700 -node $NODES
write n=10k -rate threads=50 -schema keyspace=plain -node $NODES
write n=1k -schema keyspace=v3 -mode protocolVersion=3 compression=lz4 -rate threads=20 -node $NODES
write n=1k -schema keyspace=v4 -mode unprepared protocolVersion=4 compression=snappy -rate threads=20 -node $NODES
write n=1k -schema keyspace=v5 -mode protocolVersion=5 compression=lz4 connectionsPerHost=1 maxPending=4 -rate threads=20 -node $NODES
user profile=$PROFILE ops(insert=1) n=1000 no-warmup -rate threads=20 -node $NODES
"""

READS = """
read no-warmup cl=QUORUM duration=180m -schema 'keyspace=$KEYSPACE_ID replication(factor=1)' -mode cql3 native -rate 'threads=200 limit=20000/s' -errors ignore -pop 'dist=gauss(1..1000000000,500000000,5000000)' -node $NODES
write no-warmup cl=QUORUM duration=180m -schema 'keyspace=$KEYSPACE_ID replication(factor=1)' -mode cql3 native -rate 'threads=200 limit=20000/s' -errors ignore -pop 'dist=gauss(1..1000000000,500000000,5000000)' -node $NODES
read no-warmup CL=ONE duration=1h -pop 'dist=uniform(1..220000000)' -col 'size=FIXED(1024) n=FIXED(1)' -schema 'replication(factor=1) keyspace=io2' -mode cql3 native -errors ignore -node $NODES -rate 'threads=500 limit=5000/s'
read duration=60m cl=QUORUM -schema keyspace=plain -mode native cql3 -pop dist=gaussian\\(1..5800000000,2900000000,966666666\\) -node $NODES -rate threads=500 -log file=$WORK/read.data
mixed 'ratio(read=1)' duration=15min -schema keyspace=plain -pop 'dist=gauss(1..10000000,5000000,500000)' -mode native cql3 -rate threads=700 -node $NODES
mixed ratio\\(write=1,read=3\\) n=100000 -schema keyspace=plain -pop 'dist=gauss(1..10000000,5000000,500000)' -rate threads=50 fixed=3000/s -log hdrfile=$WORK/run.hdr interval=200ms -graph file=$WORK/run.html title=a run revision=r1 -node $NODES
read n=1k -schema keyspace=v3 -mode unprepared protocolVersion=5 -pop seq=1..1000 no-wrap -rate threads=20 -node $NODES
read n=1k -schema keyspace=v4 -mode protocolVersion=4 -pop seq=1..1000 -rate threads=20 -node $NODES
read n=1k -schema keyspace=v5 -mode protocolVersion=3 compression=snappy -pop seq=1..1000 -rate threads=20 -node $NODES
user profile=$PROFILE ops(validate=1) n=1000 no-warmup -pop seq=1..1000 -rate threads=20 -node $NODES
user profile=$PROFILE ops(insert=1,simple1=2,range1=1) n=1000 no-warmup -pop seq=1..1000 -rate threads=20 -node $NODES
user profile=$PROFILE ops(all_columns=1) n=1000 no-warmup -tokenrange split-factor=4 -rate threads=4 -node $NODES
"""


def shrink(line):
    for name, value in (("$NODES", host), ("$WORK", work), ("$PROFILE", here / "profile.yaml"), ("$i", "1"),
                        ("$KEYSPACE_ID", "keyspace1")):
        line = line.replace(name, str(value))
    line = re.sub(r"\bduration=\d+\w+", "duration=1s", line)
    line = re.sub(r"\bn=\d{5,}", f"n={COUNT}", line)
    line = re.sub(r"(gauss(?:ian)?\\?\()1\.\.\d+,\d+,\d+", rf"\g<1>1..{COUNT},{COUNT // 2},{COUNT // 10}", line)
    return re.sub(r"uniform\(1\.\.\d+\)", f"uniform(1..{COUNT})", line)


def command(line):
    words = shlex.split(line)
    if words[0] not in ("help", "print", "version") and "-port" not in words:
        words += ["-port", f"native={port}"]
    return [binary, "stress", *words]


def stress(line):
    return subprocess.run(command(line), capture_output=True, text=True, timeout=SECONDS_MAX)


def number(text, label):
    found = re.search(rf"^{re.escape(label)} *: +([\d,]+)", text, re.M)
    return int(found.group(1).replace(",", "")) if found else None


def check_run(line):
    ran = stress(shrink(line))
    problems = []
    if ran.returncode != 0:
        problems.append(f"exit code {ran.returncode}")
    if not ran.stdout.endswith("\nEND\n"):
        problems.append("no END")
    if number(ran.stdout, "Total errors") != 0:
        problems.append("errors")
    if not number(ran.stdout, "Total partitions"):
        problems.append("no partitions")
    if re.search(r"\bn=1k\b", line) and number(ran.stdout, "Total partitions") != 1000:
        problems.append("not 1000 partitions")
    if "Stress Settings" not in ran.stdout or "\nResults:\n" not in ran.stdout:
        problems.append("no settings or results")
    detail = "" if not problems else "\n" + ran.stdout[-1500:] + ran.stderr[-1500:]
    return problems, detail


def check_files():
    """The files that runs above were told to write."""
    data = (work / "testwrite.data").read_text()
    assert data.endswith("END\n") and "Op rate" in data, data[-500:]
    lines = (work / "run.hdr").read_text().splitlines()
    assert lines[0] == "#Logging op latencies for Cassandra Stress", lines[0]
    assert lines[1] == "#[Histogram log format version 1.3]", lines[1]
    assert lines[4] == '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"', lines[4]
    tags = set()
    for line in lines[5:]:
        tag, start, length, most, histogram = line.split(",", 4)
        tags.add(tag)
        float(start), float(length), float(most)
        packed = base64.b64decode(histogram)
        assert packed[:4] == (0x1C849314).to_bytes(4, "big"), packed[:4].hex()
        assert zlib.decompress(packed[8:])[:4] == (0x1C849313).to_bytes(4, "big")
    assert tags == {f"Tag={kind}-{clock}" for kind in ("READ", "WRITE") for clock in ("st", "rt", "wt")}, tags
    page = (work / "run.html").read_text()
    stats = json.loads(re.search(r'id="stats">(.*?)</script>', page, re.S).group(1))
    assert stats["title"] == "a run" and stats["runs"][0]["revision"] == "r1" and stats["runs"][0]["intervals"]


def check_failures():
    """What may not succeed, and how it says so."""
    missing = stress(f"read no-warmup n=100 -schema keyspace=plain -pop seq=900000000..900000100 -rate threads=4 -node {host}")
    assert missing.returncode == 1 and missing.stdout.endswith("FAILURE\n"), missing.stdout[-300:]
    assert "Operation x0 on key(s) [" in missing.stderr, missing.stderr[-300:]
    assert "Data returned was not validated" in missing.stderr, missing.stderr[-300:]
    ignored = stress(f"read no-warmup n=100 -schema keyspace=plain -pop seq=900000000..900000100 -errors ignore "
                     f"-rate threads=4 -node {host}")
    assert ignored.returncode == 0 and number(ignored.stdout, "Total errors") == 100, ignored.stdout[-900:]
    nowhere = stress(f"read n=100 -schema keyspace=nowhere -rate threads=4 -node {host}")
    assert nowhere.returncode == 1 and "nowhere" in nowhere.stderr, nowhere.stderr
    refused = stress(f"write n=1 -node {host} -port native=1")
    assert refused.returncode == 1 and "127.0.0" in refused.stderr, refused.stderr
    unknown = stress("write n=1 -foo bar")
    assert unknown.returncode == 1 and "The following were ignored:\n-foo bar" in unknown.stdout, unknown.stdout[-300:]
    wrong = stress("write m=1")
    assert wrong.returncode == 1 and wrong.stdout.startswith("Invalid parameter m=1\nUsage:"), wrong.stdout[:300]


def check_changes():
    """A table that changes costs its statements, and no operation."""
    native.HOST, native.PORT = host, int(port)
    line = f"write no-warmup duration=4s -schema keyspace=plain -mode connectionsPerHost=2 -rate threads=20 -node {host}"
    with subprocess.Popen(command(line), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with native.Connection() as connection:
            for turn in range(8):
                time.sleep(0.5)
                connection.query(f"ALTER TABLE plain.standard1 ADD added{turn} int")
        output, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0 and number(output, "Total errors") == 0, (output[-900:], errors[-900:])
    assert not errors, errors[-900:]


def check_without_a_server():
    assert stress("help").stdout.startswith("Usage:      cassandra-stress <command> [options]\n")
    assert "Usage: -rate threads=? [throttle=?] [fixed=?]" in stress("help -rate").stdout
    printed = stress("print dist=uniform\\(1..100\\)").stdout.splitlines()
    assert printed[0] == "% of samples    Range       % of total" and len(printed) == 13, printed
    assert printed[5].split() == ["50.0", "51", "51.0"], printed[5]
    assert stress("version").stdout.startswith("Version: ")


passed, failed = 0, 0
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    for group in (WRITES, READS):
        lines = [line for line in group.splitlines() if line]
        for line, (problems, detail) in zip(lines, pool.map(check_run, lines)):
            if problems:
                print(f"FAILED {line}\n       {', '.join(problems)}{detail}")
                failed += 1
            else:
                passed += 1
for check in (check_files, check_failures, check_changes, check_without_a_server):
    try:
        check()
        passed += 1
    except Exception as error:  # whatever goes wrong is told, and the others run
        print(f"FAILED {check.__name__}: {error!r}")
        failed += 1
print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
