"""Runs the cases of cases.txt through cqlsh, each in a process of its own, and compares what it prints; then all
of them through `ceto shell`, whose output has to be the same but for what `DIFFERENT` names. Last, some SELECTs
have to get the same bytes from both, and each has to read the files that the other's COPY wrote.

A case is `=== name`, the CQL to give it (`@KS@` is the keyspace of this run), a line `--- expect CODE` and the wanted
output. `--e` after the name gives the CQL with `-e` instead of a file. `check.py --bless` writes the
expectations anew from what the node answers: only against Apache Cassandra, which is the reference.
"""

import difflib
import os
import re
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

HERE = Path(__file__).parent
HOST, PORT = os.environ.get("CETO_HOST", "127.0.0.1"), os.environ.get("CETO_PORT", "9042")
CASES = HERE / "cases.txt"
CASE = re.compile(r"^=== (?P<name>[^\n]*)\n(?P<cql>.*?)^--- expect (?P<code>\d+)\n(?P<text>.*?)(?=^=== |\Z)", re.M | re.S)
SECONDS_PER_CASE = 60
CQLSH = [os.environ["CETO_CQLSH"]]
SHELL = [os.environ.get("CETO", str(HERE.parents[2] / "target" / "release" / "ceto")), "shell"]
#: What `ceto shell` prints in the place of cqlsh's lines; see docs/shell.md. cqlsh counts the line after a statement.
DIFFERENT = [
    (r"(?m)^<stdin>:1:", ""),
    (r"case\.cql:(\d+):", lambda found: f"case.cql:{int(found[1]) - 1}:"),
    (r"NoHostAvailable: \(.*?\{<Host: .*?>: (\w+)\('(.*)'\)\}\)", lambda found: f"{found[1]}: " + found[2].replace("\\'", "'")),
    (r"\[cqlsh [\d.]+ \| ", "[ceto shell @VERSION@ | "),
    (r"(Could not open '.*?'): \[Errno 2\] (No such file or directory).*", r"\1: \2 (os error 2)"),
    (r".*Failed to import 1 rows: ParseError - Failed to parse one : .*", "Failed to import line 1: column v: Unable to make int from 'one'"),
    (r".*(Failed to process 1 rows)", r"\1"),
    (r"(?m)^ driver_name +\|(.*\n)-+\+(.*\n) .*?\|", r" driver_name |\1-------------+\2  ceto shell |"),
]
LOGIN = "LOGIN has no effect: this server asks nobody for a user, so there are no roles to log in as.\n"
SELECTS = """
SELECT * FROM scalars;
SELECT k, f, dou, de FROM scalars WHERE k = 1;
SELECT k, f, dou FROM scalars WHERE k IN (1, 2, 3);
SELECT ts, d, ti, du FROM scalars;
SELECT u, i, bl, bo FROM scalars;
SELECT t, a FROM scalars;
SELECT b AS "A long name", v FROM scalars;
SELECT count(*) FROM scalars WHERE k = 1;
SELECT k FROM scalars WHERE k = 99;
SELECT JSON k, t FROM scalars WHERE k = 1;
SELECT * FROM wide;
SELECT DISTINCT p, s FROM wide;
SELECT c, v FROM wide WHERE p = 1 ORDER BY c ASC;
SELECT v, writetime(v) FROM wide WHERE p = 1 AND c = 1;
SELECT * FROM people;
SELECT l, st, m FROM people WHERE id = 1;
SELECT tu, vec, who FROM people;
SELECT * FROM hits;
SELECT k FROM hundreds;
SELECT key, cluster_name, partitioner FROM system.local;
"""
PREPARED = """
CREATE TYPE person (name text, "Zip" int);
CREATE TABLE scalars (k int PRIMARY KEY, a ascii, b bigint, bl blob, bo boolean, d date, de decimal, dou double, du duration, f float, i inet, t text, ti time, ts timestamp, u uuid, v varint);
CREATE TABLE wide (p int, c int, s text static, v text, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC);
CREATE TABLE people (id int PRIMARY KEY, who frozen<person>, l list<int>, st set<text>, m map<text, frozen<list<int>>>, tu tuple<int, text>, vec vector<float, 2>);
CREATE TABLE hits (page text PRIMARY KEY, n counter);
CREATE TABLE hundreds (k int PRIMARY KEY);
INSERT INTO scalars (k, a, b, bl, bo, d, de, dou, du, f, i, t, ti, ts, u, v) VALUES (1, 'ascii', -9223372036854775808, 0xcafe, true, '1969-12-31', -1.50E+30, 0.1, 1y2mo3d4h, 3.4028235e38, '::1', 'it''s\n 漢字 \\ tab\tend', '23:59:59.123456789', '1969-12-31T23:59:59.001+0000', 00000000-0000-0000-0000-00000000000a, 123456789012345678901234567890);
INSERT INTO scalars (k, dou, f, t, ts) VALUES (2, NaN, -Infinity, '', '2024-02-29');
INSERT INTO scalars (k, dou, f, de) VALUES (3, 123456.789012, 0.00001234, 0E-10);
INSERT INTO scalars (k, dou, f, de) VALUES (4, 99999.999999, 1e20, 1E+3);
INSERT INTO scalars (k, dou, f) VALUES (5, -1e-17, 16777217);
INSERT INTO wide (p, c, s, v) VALUES (1, 1, 'static', 'one') USING TIMESTAMP 42;
INSERT INTO wide (p, c, v) VALUES (1, 2, 'two');
INSERT INTO wide (p, s) VALUES (2, 'alone');
INSERT INTO people (id, who, l, st, m, tu, vec) VALUES (1, {name: 'O''Brien\t', "Zip": null}, [3, 1], {'y', 'x'}, {'k': [1, 2], 'j': [3]}, (1, 'one'), [0.5, -1.25]);
INSERT INTO people (id) VALUES (2);
UPDATE hits SET n = n + 3 WHERE page = 'p';
"""

COLUMNS = (
    "k int PRIMARY KEY, a ascii, b bigint, bl blob, bo boolean, d date, de decimal, dou double, f float, i inet, s smallint, t text, ti time, ts timestamp, "
    "tu timeuuid, ty tinyint, u uuid, v varint, l list<text>, st set<timestamp>, m map<text, frozen<list<int>>>, p person, fp frozen<person>, ve vector<float, 3>, "
    "mi map<inet, double>")
# No duration, which cqlsh writes and cannot read; no line ends, which it reads otherwise than it writes.
EXCHANGED = f"""
CREATE TYPE person (name text, "Zip" int, phones frozen<set<text>>);
CREATE TABLE original ({COLUMNS});
CREATE TABLE of_cqlsh ({COLUMNS});
CREATE TABLE of_shell ({COLUMNS});
INSERT INTO original (k, a, b, bl, bo, d, de, dou, f, i, s, t, ti, ts, tu, ty, u, v, l, st, m, p, fp, ve, mi) VALUES (1, 'ascii ''quoted''',
  -9223372036854775808, 0xcafe00, true, '1969-12-31', -1.50E+30, 0.125, 1.5, '::1', -32768, 'a, "quoted" text; it''s é漢', '23:59:59.123456789',
  '1969-12-31T23:59:59.001+0000', 50554d6e-29bb-11e5-b345-feff819cdc9f, -128, 00000000-0000-0000-0000-00000000000a, -123456789012345678901234567890,
  ['it''s, [so]', 'null', '{{'], {{'2020-01-02 03:04:05.678+0000', 0}}, {{'k: 1': [1, 2], 'x': []}}, {{name: 'O''Brien', "Zip": 1, phones: {{'x, y'}}}},
  {{name: null, "Zip": null, phones: {{'a'}}}}, [0.5, -2.5, 1e10], {{'127.0.0.1': 1.5, '::2': -2}});
INSERT INTO original (k, t) VALUES (2, 'x');
INSERT INTO original (k, dou, f, bo) VALUES (3, NaN, -Infinity, false);
"""


def ask(program, name, cql, keyspace, scratch, used):
    """What a program prints for a case in the keyspace `used`, of which the case begins in `keyspace`."""
    cql = cql.replace("@KS@", used).replace("@TMP@", scratch)
    command = [*program, HOST, PORT, "--no-color", "--request-timeout=30", "--connect-timeout=30"]
    command += ["-k", keyspace] if keyspace else []
    if name.endswith("--e"):
        command += ["-e", cql]
    else:
        script = Path(scratch, "case.cql")
        script.write_text(cql, encoding="utf-8")
        command += ["-f", str(script)]
    home = {**os.environ, "HOME": scratch, "TZ": "UTC", "LC_ALL": "C.UTF-8", "COLUMNS": "200"}
    # What COPY could not take it writes to where it runs.
    done = subprocess.run(command, cwd=scratch, env=home, capture_output=True, text=True, timeout=SECONDS_PER_CASE, check=False)
    lines, in_trace = [], False
    for line in (done.stdout + done.stderr).replace(used, "@KS@").replace(scratch, "@TMP@").replace(f"{HOST}:{PORT}", "@NODE@").splitlines():
        # Versions of client and server, the tokens of the ring, progress of COPY: not what is compared.
        if not re.match(r"\s+-?\d+ +\[.*\]$|WARNING: cqlsh was built|Using \d+ child|\rProcessed|Processed: |\s*$", line):
            # Of a trace, that there is one.
            in_trace = line.startswith(" activity") or in_trace and bool(re.match(r"-+\+-|.* \| +\d{4}-\d\d-\d\d ", line))
            if in_trace:
                continue
            line = re.sub(r"(Tracing session: |ID = )[0-9a-f-]{36}", r"\1@ID@", line)
            line = re.sub(r"in [\d.]+ seconds?\.?|in 0 day.*second[s.]*", "in @TIME@", line)
            line = re.sub(r"ceto shell [\d.]+ \|", "ceto shell @VERSION@ |", line)
            lines.append(line.rstrip())
    return done.returncode, "".join(f"{line}\n" for line in lines)


def shell_of(text):
    """What `ceto shell` has to print where cqlsh prints `text`."""
    for pattern, replacement in DIFFERENT:
        text = re.sub(pattern, replacement, text)
    return text


def run_cases(program, scratch, wanted_of):
    """Runs all cases; counts those that passed and failed, and gives what was printed."""
    used = f"cqlsh_{uuid.uuid4().hex[:12]}"
    passed, failed, written = 0, 0, []
    for number, case in enumerate(CASE.finditer(CASES.read_text(encoding="utf-8"))):
        name = case["name"]
        try:
            code, text = ask(program, name, case["cql"], used if number else None, scratch, used)
        except subprocess.TimeoutExpired:
            code, text = -1, f"no end within {SECONDS_PER_CASE} s\n"
        written.append(f"=== {name}\n{case['cql']}--- expect {code}\n{text}\n")
        wanted = wanted_of("".join(f"{line}\n" for line in case["text"].splitlines() if line), name)
        if (code, text) == (int(case["code"]), wanted):
            passed += 1
            continue
        failed += 1
        print(f"FAILED {' '.join(program)}: {name}: exit code {code}, wanted {case['code']}")
        print("".join(difflib.unified_diff(wanted.splitlines(True), text.splitlines(True), "wanted", "got")))
    code, text = ask(program, "drop", f"DROP KEYSPACE IF EXISTS {used};", None, scratch, used)
    if code:
        failed += 1
        print("FAILED to drop the keyspace:", text)
    return passed, failed, written


def same_bytes(scratch):
    """Whether both print the same for SELECTs, blanks and blank lines included; what differs is printed."""
    used = f"cqlsh_{uuid.uuid4().hex[:12]}"
    create = f"CREATE KEYSPACE {used} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': '1'}};\nUSE {used};\n"
    hundreds = "".join(f"INSERT INTO hundreds (k) VALUES ({k * 997});\n" for k in range(250))
    outputs = []
    for program, script in ((SHELL, create + PREPARED + hundreds), (CQLSH, SELECTS), (SHELL, SELECTS), (SHELL, f"DROP KEYSPACE {used};")):
        Path(scratch, "same.cql").write_text(script, encoding="utf-8")
        keyspace = ["-k", used] if script == SELECTS else []
        done = subprocess.run(
            [*program, HOST, PORT, "--no-color", *keyspace, "-f", str(Path(scratch, "same.cql"))], capture_output=True, timeout=SECONDS_PER_CASE,
            env={**os.environ, "HOME": scratch, "TZ": "UTC", "LC_ALL": "C.UTF-8"}, check=False)
        text = done.stdout.decode() + done.stderr.decode()
        outputs.append(re.sub(r"WARNING: cqlsh was built.*\n", "", text))
        if done.returncode:
            print(f"FAILED {' '.join(program)}: exit code {done.returncode}: {text}")
            return False
    if outputs[1] != outputs[2]:
        print("".join(difflib.unified_diff(outputs[1].splitlines(True), outputs[2].splitlines(True), "cqlsh", "ceto shell")))
    return outputs[1] == outputs[2]


def exchange(scratch):
    """Whether each reads the file that the other's COPY wrote."""
    used = f"cqlsh_{uuid.uuid4().hex[:12]}"
    steps = [
        (SHELL, f"CREATE KEYSPACE {used} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': '1'}};\nUSE {used};\n{EXCHANGED}"),
        (SHELL, "COPY original TO 'shell.csv' WITH HEADER = true;"),
        (CQLSH, "COPY of_shell FROM 'shell.csv' WITH HEADER = true; COPY original TO 'cqlsh.csv' WITH HEADER = true;"),
        (SHELL, "COPY of_cqlsh FROM 'cqlsh.csv' WITH HEADER = true;"),
        *((SHELL, f"SELECT JSON * FROM {table};") for table in ("original", "of_shell", "of_cqlsh")),
        (SHELL, f"DROP KEYSPACE {used};"),
    ]
    outputs = []
    for number, (program, script) in enumerate(steps):
        Path(scratch, "step.cql").write_text(script, encoding="utf-8")
        done = subprocess.run(
            [*program, HOST, PORT, "--no-color", *(["-k", used] if number else []), "-f", "step.cql"], capture_output=True, cwd=scratch,
            env={**os.environ, "HOME": scratch, "TZ": "UTC", "LC_ALL": "C.UTF-8"}, timeout=SECONDS_PER_CASE, check=False)
        outputs.append("".join(sorted(done.stdout.decode().splitlines(True))))
        if done.returncode:
            print(f"FAILED {' '.join(program)}: exit code {done.returncode}: {done.stdout.decode()}{done.stderr.decode()}")
            return False
    original, by_cqlsh, by_shell = outputs[4:7]
    for name, found in (("of the shell, read by cqlsh", by_cqlsh), ("of cqlsh, read by the shell", by_shell)):
        if found != original:
            print(f"FAILED a file {name}")
            print("".join(difflib.unified_diff(original.splitlines(True), found.splitlines(True), "original", "copied")))
    return original == by_cqlsh == by_shell


def main():
    bless = "--bless" in sys.argv
    with tempfile.TemporaryDirectory() as scratch:
        passed, failed, written = run_cases(CQLSH, scratch, lambda text, name: text)
        if bless:
            CASES.write_text("".join(written).rstrip("\n") + "\n", encoding="utf-8")
            print(f"result: {passed + failed} passed, 0 failed, 0 skipped")
            return 0
    with tempfile.TemporaryDirectory() as scratch:
        also_passed, also_failed, _ = run_cases(SHELL, scratch, lambda text, name: LOGIN * name.startswith("login") + shell_of(text))
        more = [same_bytes(scratch), exchange(scratch)]
    passed, failed = passed + also_passed + sum(more), failed + also_failed + more.count(False)
    print(f"result: {passed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
