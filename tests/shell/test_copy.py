"""COPY: what TO wrote FROM reads back equal, for every type; rows that fail are told and kept."""

import csv
import re
import unittest

from shell import ShellTest, rows, run

COLUMNS = {
    "a": "ascii", "b": "bigint", "bl": "blob", "bo": "boolean", "d": "date", "de": "decimal", "dou": "double", "du": "duration", "f": "float",
    "i": "inet", "n": "int", "s": "smallint", "t": "text", "ti": "time", "ts": "timestamp", "tu": "timeuuid", "ty": "tinyint", "u": "uuid",
    "v": "varint", "l": "list<text>", "st": "set<timestamp>", "m": "map<text, frozen<list<int>>>", "mt": "map<time, date>", "me": "map<inet, double>",
    "tp": "tuple<int, text, timestamp>", "ud": "person", "fu": "frozen<person>", "ve": "vector<float, 3>", "vt": "vector<text, 2>",
    "nested": "frozen<set<frozen<map<int, frozen<set<text>>>>>>",
}
ALL = ", ".join(f"{name} {ty}" for name, ty in COLUMNS.items())
TABLES = f"""
USE k;
CREATE TYPE person (name text, "Zip" int, phones frozen<set<text>>, "odd: name" blob);
CREATE TABLE every (k int, c text, {ALL}, PRIMARY KEY (k, c));
CREATE TABLE every_again (k int, c text, {ALL}, PRIMARY KEY (k, c));
CREATE TABLE few (k int PRIMARY KEY, v int, w text);
CREATE TABLE wide (p int, c int, s text static, v text, PRIMARY KEY (p, c));
CREATE TABLE hits (page text, day date, n counter, PRIMARY KEY (page, day));
INSERT INTO every (k, c, a, b, bl, bo, d, de, dou, du, f, i, n, s, t, ti, ts, tu, ty, u, v, l, st, m, mt, me, tp, ud, fu, ve, vt, nested) VALUES
 (1, 'a,"b"\\', 'ascii ''quoted''', -9223372036854775808, 0xcafe00, true, '1969-12-31', -1.50E+30, 0.1, 1y2mo3d4h5m6s7ms8us9ns, 3.4028235e38, '::1',
  -2147483648, -32768, 'line 1
line 2; "quoted", \\n and \\\\ and é漢', '23:59:59.123456789', '1969-12-31T23:59:59.001+0000', 50554d6e-29bb-11e5-b345-feff819cdc9f, -128,
  00000000-0000-0000-0000-00000000000a, -123456789012345678901234567890, ['it''s, [so]', '', 'null', '{{'], {{'2020-01-02 03:04:05.678+0000', 0}},
  {{'k: 1': [1, 2], '': []}}, {{'12:00:00': '2020-01-02'}}, {{'127.0.0.1': 1e-300, '::2': 5e-324}}, (7, NULL, 12345),
  {{name: 'O''Brien', "Zip": 1, phones: {{'+1', 'x, y'}}, "odd: name": 0x}}, {{name: NULL, "Zip": NULL, phones: {{}}, "odd: name": 0x01}},
  [0.1, -2.5, 1e10], ['a', 'b, c'], {{{{1: {{'x'}}, 2: {{}}}}, {{}}}});
INSERT INTO every (k, c, a, t, bl, dou, f, ts, d, bo, du) VALUES (2, '', '', '', 0x, NaN, -Infinity, 9223372036854775807, '4294967295', false, -3d);
INSERT INTO every (k, c) VALUES (3, 'nothing');
INSERT INTO every (k, c, t, b, l) VALUES (4, 'none', 'none', 1, []);
"""
EVERYTHING = "SELECT JSON * FROM {}; SELECT * FROM {};"


class Copy(ShellTest):
    TABLES = TABLES

    def same(self, options):
        """Copies a table to another one by a file, and compares them."""
        self.cql(f"TRUNCATE every_again; COPY every TO 'every.csv' WITH {options}; COPY every_again FROM 'every.csv' WITH {options};")
        first, second = self.cql(EVERYTHING.format("every", "every")), self.cql(EVERYTHING.format("every_again", "every_again"))
        self.assertEqual(sorted(first.splitlines()), sorted(second.splitlines()))
        self.assertIn("(4 rows)", first)

    def test_every_type_reads_back_equal(self):
        self.same("HEADER = true")
        self.same("DELIMITER = '|' AND NULL = 'none' AND QUOTE = '''' AND BOOLSTYLE = 'yes, no'")
        self.same("ESCAPE = '\"' AND DELIMITER = '\\t'")

    def test_a_file_is_csv(self):
        self.cql("COPY every (k, c, t, bo, l, du) TO 'some.csv' WITH HEADER = true AND PAGESIZE = 1 AND MAXREQUESTS = 2;")
        with open(self.folder / "some.csv", newline="") as file:
            lines = list(csv.reader(file, escapechar="\\", doublequote=False))
        self.assertEqual(lines[0], ["k", "c", "t", "bo", "l", "du"])
        self.assertEqual(sorted(lines[1:])[0][:5], [
            "1", 'a,"b"\\', 'line 1\nline 2; "quoted", \\n and \\\\ and é漢', "True", "['it''s, [so]', '', 'null', '{']"])
        code, out, err = run("-k", "k", "-e", "COPY every (k) TO STDOUT WITH BEGINTOKEN = 0;")
        both = out + run("-k", "k", "-e", "COPY every (k) TO STDOUT WITH ENDTOKEN = 0;")[1]
        self.assertEqual((code, err, sorted(both.split())), (0, "", ["1", "2", "3", "4"]))

    def test_a_file_of_cqlsh_is_read(self):
        (self.folder / "cqlsh.csv").write_bytes(
            b"k,c,ts,m,ud,tp,bl,dou,st\r\n"
            b"8,x,2011-02-03 04:05:06.789+0000,\"{'a': [1, 2]}\",\"{name: 'Ann', Zip: , phones: {'1', '2'}, odd: name: }\",\"(1, 'b', None)\",0xff,1e+20,{}\r\n"
            .replace(b"odd: name: ", b"'odd: name': "))
        self.cql("COPY every_again (k, c, ts, m, ud, tp, bl, dou, st) FROM 'cqlsh.csv' WITH HEADER = true;")
        out = self.cql("EXPAND ON\nSELECT ts, m, ud, tp, bl, dou, st FROM every_again WHERE k = 8;")
        self.assertEqual([line.split(" | ")[1] for line in rows(out) if " | " in line], [
            "2011-02-03 04:05:06.789000+0000", "{'a': [1, 2]}", "{name: 'Ann', Zip: null, phones: {'1', '2'}, odd: name: null}", "(1, 'b', null)",
            "0xff", "1e+20", "null"])
        self.cql("DELETE FROM every_again WHERE k = 8;")

    def test_rows_that_fail_are_told_and_kept(self):
        lines = ["1,10,a", "two,20,b", "3,x,c", "4,40", "5,50,\"d\ne\"", ",60,f", "7,70,g"]
        (self.folder / "few.csv").write_text("\n".join(lines))
        code, out, err = run("-k", "k", "-e", "COPY few FROM 'few.csv'; SELECT * FROM few;", folder=self.folder)
        self.assertEqual(code, 2)
        self.assertEqual([int(number) for number in re.findall(r"Failed to import line (\d+): ", err)], [2, 3, 4, 7], err)
        self.assertIn("column v: Unable to make int from 'x'", err)
        self.assertIn("column k: null in the primary key", err)
        self.assertIn("Failed to process 4 rows; failed rows written to import_k_few.err", err)
        self.assertEqual((self.folder / "import_k_few.err").read_text().splitlines(), ["two,20,b", "3,x,c", "4,40", ",60,f"])
        self.assertRegex(out, r"3 rows imported from 1 files in [\d.]+ seconds \(0 skipped\)\.")
        self.assertIn(r" 5 | 50 | d\ne", out)
        code, out, err = run("-k", "k", "-e", "COPY few FROM 'few.csv' WITH MAXPARSEERRORS = 1 AND ERRFILE = 'mine.err';", folder=self.folder)
        self.assertEqual((code, "Exceeded maximum number of parse errors 1" in err), (2, True), err)
        self.assertEqual((self.folder / "mine.err").read_text().splitlines(), ["two,20,b", "3,x,c"])
        code, _, err = run("-k", "k", "-e", "COPY few FROM 'few.csv' WITH NUMPROCESSES = 3;", folder=self.folder)
        self.assertEqual((code, "NUMPROCESSES has no effect here" in err), (2, True))
        for wrong in ("COPY nowhere TO 'x';", "COPY few (nope) TO 'x';", "COPY few FROM 'nowhere.csv';", "COPY few (v, w) FROM 'few.csv';",
                      "COPY few TO '/nonexistent/x';"):
            self.assertEqual(run("-k", "k", "-e", wrong, folder=self.folder)[0], 2, wrong)
        (self.folder / "open.csv").write_text('1,1,"open\n')
        self.assertIn("line 1 is not closed", run("-k", "k", "-e", "COPY few FROM 'open.csv';", folder=self.folder)[2])

    def test_rows_that_the_server_refuses_are_told(self):
        (self.folder / "long.csv").write_text(f"1,{'x' * 70000}\n2,ok\n")
        self.cql("CREATE TABLE IF NOT EXISTS keys (k int, c text, PRIMARY KEY (c, k));")
        code, out, err = run("-k", "k", "-e", "COPY keys (k, c) FROM 'long.csv'; SELECT c FROM keys;", folder=self.folder)
        self.assertEqual(code, 2)
        self.assertRegex(err, r"Failed to import line 1: InvalidRequest: .*Key length")
        self.assertIn("1 rows imported", out)

    def test_options_choose_rows_and_columns(self):
        (self.folder / "numbers.csv").write_text("".join(f"{k},{k * 10},w{k}\n" for k in range(1, 9)))
        out = self.cql("TRUNCATE few; COPY few FROM 'numbers.csv' WITH SKIPROWS = 2 AND MAXROWS = 5 AND SKIPCOLS = 'w' AND TTL = 1000 AND "
                       "CHUNKSIZE = 1 AND INGESTRATE = 1000; SELECT k, v, w FROM few; SELECT ttl(v) FROM few LIMIT 1;")
        self.assertIn("3 rows imported from 1 files", out)
        self.assertIn("(2 skipped)", out)
        self.assertEqual(sorted(line.strip() for line in out.splitlines() if re.match(r" +\d+ \|", line)), ["3 | 30 | null", "4 | 40 | null", "5 | 50 | null"])
        self.assertRegex(out, r"(?m)^ +(1000|99\d)$")
        lines = "TRUNCATE few;\nCOPY few FROM STDIN;\n1,1,a\n2,2,b\n\\.\nSELECT k FROM few;\n"
        code, out, err = run("-k", "k", stdin=lines, folder=self.folder)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("2 rows imported", out)
        self.assertIn("(2 rows)", out)

    def test_rows_of_one_partition_go_together_and_the_later_of_two_wins(self):
        lines = [f"{p},{c},s{p}-{c},v{p}-{c}" for p in range(20) for c in range(50)] + ["3,7,last,won", "3,8,last of all,won"]
        (self.folder / "wide.csv").write_text("\n".join(lines * 2) + "\n")
        out = self.cql("COPY wide FROM 'wide.csv' WITH MAXBATCHSIZE = 30; SELECT count(*) FROM wide; SELECT s, v FROM wide WHERE p = 3 AND c = 7;")
        self.assertIn("2004 rows imported", out)
        self.assertRegex(out, r"(?m)^ +1000$")
        self.assertRegex(out, r"(?m)^ last of all \| +won$")

    def test_counters_are_added(self):
        (self.folder / "hits.csv").write_text("p,2026-01-02,3\np,2026-01-03,\nq,2026-01-02,-1\n")
        self.cql("COPY hits FROM 'hits.csv'; COPY hits FROM 'hits.csv'; COPY hits TO 'hits-again.csv';")
        self.assertEqual(sorted((self.folder / "hits-again.csv").read_text().split()), ["p,2026-01-02,6", "p,2026-01-03,0", "q,2026-01-02,-2"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
