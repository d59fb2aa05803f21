"""Runs the cases of cases.txt through cqlsh, each in a process of its own, and compares what it prints.

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
KEYSPACE = f"cqlsh_{uuid.uuid4().hex[:12]}"
SECONDS_PER_CASE = 60


def cqlsh(name, cql, keyspace, scratch):
    cql = cql.replace("@KS@", KEYSPACE).replace("@TMP@", scratch)
    command = [os.environ["CETO_CQLSH"], HOST, PORT, "--no-color", "--request-timeout=30", "--connect-timeout=30"]
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
    for line in (done.stdout + done.stderr).replace(KEYSPACE, "@KS@").replace(scratch, "@TMP@").replace(f"{HOST}:{PORT}", "@NODE@").splitlines():
        # Versions of client and server, the tokens of the ring, progress of COPY: not what is compared.
        if not re.match(r"\s+-?\d+ +\[.*\]$|WARNING: cqlsh was built|Using \d+ child|\rProcessed|Processed: |\s*$", line):
            # Of a trace, that there is one.
            in_trace = line.startswith(" activity") or in_trace and bool(re.match(r"-+\+-|.* \| +\d{4}-\d\d-\d\d ", line))
            if in_trace:
                continue
            line = re.sub(r"(Tracing session: |ID = )[0-9a-f-]{36}", r"\1@ID@", line)
            line = re.sub(r"in [\d.]+ seconds?\.?|in 0 day.*second[s.]*", "in @TIME@", line)
            lines.append(line.rstrip())
    return done.returncode, "".join(f"{line}\n" for line in lines)


def main():
    bless = "--bless" in sys.argv
    passed, failed, written = 0, 0, []
    with tempfile.TemporaryDirectory() as scratch:
        for number, case in enumerate(CASE.finditer(CASES.read_text(encoding="utf-8"))):
            name = case["name"]
            try:
                code, text = cqlsh(name, case["cql"], KEYSPACE if number else None, scratch)
            except subprocess.TimeoutExpired:
                code, text = -1, f"no end within {SECONDS_PER_CASE} s\n"
            written.append(f"=== {name}\n{case['cql']}--- expect {code}\n{text}\n")
            wanted = "".join(f"{line}\n" for line in case["text"].splitlines() if line)
            if (code, text) == (int(case["code"]), wanted) or bless:
                passed += 1
                continue
            failed += 1
            print(f"FAILED {name}: exit code {code}, wanted {case['code']}")
            print("".join(difflib.unified_diff(wanted.splitlines(True), text.splitlines(True), "wanted", "got")))
        code, text = cqlsh("drop", f"DROP KEYSPACE IF EXISTS {KEYSPACE};", None, scratch)
        if code:
            failed += 1
            print("FAILED to drop the keyspace:", text)
    if bless:
        CASES.write_text("".join(written).rstrip("\n") + "\n", encoding="utf-8")
    print(f"result: {passed} passed, {failed} failed, 0 skipped")
    return failed > 0


sys.exit(main())
