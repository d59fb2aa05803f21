"""Dashboards and rules of `dashboards/` name only metrics and labels that a node publishes, and are what they were made from."""

import json
import re
import shutil
import subprocess
import sys
import time
import unittest
from pathlib import Path

import native
import promql
from native import Connection
from node import BINARY, REPO, Node
from promql import Grouping, Mistake, Selector
from test_admin import KEYSPACE, ctl, metrics

DASHBOARDS = REPO / "dashboards"
PROMETHEUS = DASHBOARDS / "prometheus"
#: What Prometheus adds to each sample of a target, by prometheus.yml.
TARGET = {"cluster", "job", "instance"}
#: What Prometheus itself records.
OWN = {"up": TARGET, "ALERTS": TARGET | {"alertname", "alertstate", "severity"}}
#: Families that a node alone cannot be made to publish, with their labels and the source that names them.
LATER = {"ceto_node_clock_ahead_us": ({"node", "shard"}, "crates/cluster/src/liveness/mod.rs")}
GRAFANA_VARIABLES = {"by": "cluster, instance, shard", "cluster": ".*", "job": "ceto", "instance": ".*", "shard": "0|1",
                     "keyspace": "a", "table": "t"}
SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)\{(.*)\} \S+$")
LABEL_VALUES = re.compile(r"^label_values\((.*), (\w+)\)$")


def rules(text):
    """Alerts and recorded series of a file of rules, in the form that ceto.rules.yml keeps: plain and quoted scalars on the line
    of their key, and `>-` before lines that are indented further."""
    found, indent_of_folded = [], None
    for line in text.splitlines():
        indent, content = len(line) - len(line.lstrip()), line.strip()
        if indent_of_folded is not None and indent > indent_of_folded:
            found[-1]["expr"] = f"{found[-1]['expr']} {content}".strip()
            continue
        indent_of_folded = None
        if not content or content.startswith("#"):
            continue
        key, _, value = content.removeprefix("- ").partition(":")
        value = value.strip()
        if key in ("alert", "record"):
            found.append({"kind": key, "name": value, "expr": ""})
        elif key == "expr" and value == ">-":
            indent_of_folded = indent
        elif found and key in ("expr", "for", "labels", "summary", "description", "runbook"):
            found[-1][key] = value
    return found


def expressions():
    """Where each expression of a dashboard stands, the expression, and its legend."""
    for path in sorted((DASHBOARDS / "grafana").glob("*.json")):
        content = json.loads(path.read_text())
        for panel in content["panels"]:
            for target in panel.get("targets", ()):
                yield f"{path.name}, {panel['title']}", target["expr"], target["legendFormat"]
        for annotation in content["annotations"]["list"]:
            yield f"{path.name}, annotation {annotation['name']}", annotation["expr"], annotation["titleFormat"]
        for variable in content["templating"]["list"]:
            if variable["type"] == "query":
                selector, label = LABEL_VALUES.match(variable["query"]["query"]).groups()
                yield f"{path.name}, variable {variable['name']}", f"group by ({label}) ({selector})", f"{{{{{label}}}}}"


def recorded(text):
    """Labels of the series that rules record, by name: those that they sum by."""
    return {rule["name"]: {label for grouping in promql.parse(rule["expr"])[1] for label in grouping.labels} - {"le"}
            for rule in rules(text) if rule["kind"] == "record"}


def complaints(expression, published):
    """What an expression names and `published`, labels by metric, does not have."""
    selectors, groupings = promql.parse(expression)
    for selector in selectors:
        if selector.metric not in published:
            yield f"no metric {selector.metric}"
        for label in selector.labels:
            if label not in published.get(selector.metric, {label}):
                yield f"{selector.metric} has no label {label}"
    for grouping in groupings:
        if not grouping.selectors:
            yield f"nothing to group {grouping.word} ({', '.join(grouping.labels)})"
        for label in grouping.labels:
            for selector in grouping.selectors:
                if label not in published.get(selector.metric, {label}):
                    yield f"{selector.metric} has no label {label}, by which it is grouped"


def labels_of(expression, published):
    """Labels that results of an expression may have."""
    selectors, groupings = promql.parse(expression)
    if groupings:
        return {label for grouping in groupings for label in grouping.labels}
    return set().union(*(published.get(selector.metric, set()) for selector in selectors))


def scraped():
    """Names of samples with their labels."""
    found = {}
    for line in metrics().splitlines():
        if not line.startswith("#"):
            name, labels = SAMPLE.match(line).groups()
            found.setdefault(name, set()).update(re.findall(r'(\w+)="(?:\\.|[^"\\])*"', labels))
    return found


class PromQl(unittest.TestCase):
    """The parser that the other tests lean on."""

    def test_hard_cases(self):
        for expression, selectors in (
            ("up", [("up", [])]),
            ("a:b:c", [("a:b:c", [])]),
            ('x{a="b"}', [("x", ["a"])]),
            ('x{a=~"b{c}(d)[e]",f!="sum by (g)",h!~\'i"j\',}[5m] offset 1h30m', [("x", ["a", "f", "h"])]),
            ('{__name__="x",a="1"}', [("x", ["a"])]),
            (r'x{a="\"b\\"} + y{c=`\d`}', [("x", ["a"]), ("y", ["c"])]),
            ("rate(x[5m:1m]) # sum by (z) (y)\n * 2.5e-3 - 0x1F", [("x", [])]),
            ("histogram_quantile(0.99, sum by (le) (rate(x_bucket[1m]))) > bool Inf", [("x_bucket", [])]),
            ("x and on (a) y or z unless w", [("x", []), ("y", []), ("z", []), ("w", [])]),
            ("time() - max_over_time(x[1d]) @ end() ", [("x", [])]),
            ("sum(x) by (a, b) / ignoring (a) group_left (c) sum(y)", [("x", []), ("y", [])]),
            ("-x ^ 2 == nan or vector(0)", [("x", [])]),
            ("infinite + nano", [("infinite", []), ("nano", [])]),
        ):
            with self.subTest(expression=expression):
                self.assertEqual(promql.parse(expression)[0], [Selector(*one) for one in selectors])

    def test_groupings_are_about_their_own_argument(self):
        x, y = Selector("x", []), Selector("y", ["d"])
        for expression, groupings in (
            ("sum by (a, b) (x) + y{d='1'}", [("by", ["a", "b"], [x])]),
            ("sum(x) without (a) + max by (c) (rate(y{d='1'}[1m]))", [("without", ["a"], [x]), ("by", ["c"], [y])]),
            ("topk(3, sum by (a) (x))", [("by", ["a"], [x])]),
            ("count_values by () ('a', x)", [("by", [], [x])]),
            ("x / on (a) group_left (b) y{d='1'}", [("on", ["a"], [x, y]), ("group_left", ["b"], [x, y])]),
            ("sum by (a) (max by (a, b) (x))", [("by", ["a"], [x]), ("by", ["a", "b"], [x])]),
        ):
            with self.subTest(expression=expression):
                self.assertEqual(promql.parse(expression)[1], [Grouping(*one) for one in groupings])

    def test_what_is_not_promql_is_refused(self):
        for expression in ("", "sum(x", "x)", "x{a}", 'x{a="b" c="d"}', "x{a=b}", "x[5]", "x[]", 'x{a="b}', "sum by (a,) x",
                           "x $ y", '{a="b"}', '{__name__=~"x"}', "(x) by (a)", "rate(x) by (a)", "x{__name__='y'}", "5mm", "7x"):
            with self.subTest(expression=expression), self.assertRaises(Mistake):
                promql.parse(expression)

    def test_variables_of_grafana(self):
        self.assertEqual(promql.without_variables('x{a=~"$a"}[$__rate_interval] ${b:regex}', {"a": "1", "b": "y"}),
                         'x{a=~"1"}[1m] y')
        with self.assertRaises(Mistake):
            promql.without_variables("$unknown")

    def test_complaints_name_what_is_not_there(self):
        published = {"x": {"a"}, "y": {"a", "b"}}
        self.assertEqual(list(complaints('sum by (a) (x{a="1"} + y{b="c"})', published)), [])
        self.assertEqual(list(complaints('sum by (b) (x{c="1"} + y) + z', published)),
                         ["x has no label c", "no metric z", "x has no label b, by which it is grouped"])


class Files(unittest.TestCase):
    """What can be said of the files without a node."""

    def test_dashboards_are_what_the_panels_say(self):
        done = subprocess.run([sys.executable, DASHBOARDS / "make.py", "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"run dashboards/make.py: {done.stderr}")

    def test_each_panel_tells_what_it_shows(self):
        names = [path.stem for path in sorted((DASHBOARDS / "grafana").glob("*.json"))]
        self.assertEqual(names, ["cluster", "coordinator", "overview", "shards", "storage", "tables"])
        uids = set()
        for name in names:
            content = json.loads((DASHBOARDS / "grafana" / f"{name}.json").read_text())
            self.assertGreaterEqual(content["schemaVersion"], 39)
            self.assertNotIn(content["uid"], uids)
            uids.add(content["uid"])
            variables = {variable["name"] for variable in content["templating"]["list"]}
            self.assertLessEqual({"datasource", "cluster", "job", "instance", "shard"}, variables)
            self.assertEqual(len({panel["id"] for panel in content["panels"]}), len(content["panels"]))
            taken = set()
            for panel in content["panels"]:
                with self.subTest(dashboard=name, panel=panel["title"]):
                    place = panel["gridPos"]
                    cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                             for y in range(place["y"], place["y"] + place["h"])}
                    self.assertFalse(cells & taken, "panels lie over each other")
                    self.assertLessEqual(place["x"] + place["w"], 24)
                    taken |= cells
                    if panel["type"] == "row":
                        continue
                    # Sentences: one or two of what is shown, one of what to do.
                    self.assertGreaterEqual(panel["description"].count(". ") + panel["description"].count("; ") +
                                            panel["description"].count(": "), 1)
                    self.assertTrue(panel["description"].endswith("."))
                    self.assertTrue(panel["fieldConfig"]["defaults"]["unit"])
                    self.assertEqual(panel["datasource"]["uid"], "${datasource}")
                    self.assertTrue(panel["targets"])

    def test_each_alert_says_what_to_do(self):
        found = rules((PROMETHEUS / "ceto.rules.yml").read_text())
        self.assertGreater(len(found), 20)
        self.assertEqual(len({rule["name"] for rule in found}), len(found), "names are given once")
        tested = set(re.findall(r"\bCeto\w+", (PROMETHEUS / "ceto.rules.test.yml").read_text()))
        self.assertEqual(tested, {rule["name"] for rule in found if rule["kind"] == "alert"}, "each alert has a test that it fires")
        for rule in found:
            with self.subTest(rule=rule["name"]):
                self.assertTrue(rule["expr"])
                if rule["kind"] == "record":
                    self.assertIn(":", rule["name"])
                    continue
                self.assertTrue(rule["name"].startswith("Ceto"))
                self.assertRegex(rule["labels"], r"^\{ severity: (critical|warning|info) \}$")
                for key in ("summary", "description", "runbook"):
                    self.assertTrue(rule[key].startswith('"') and rule[key].endswith('"'), key)

    @unittest.skipUnless(shutil.which("promtool"), "no promtool")
    def test_promtool_takes_them(self):
        for words in (("check", "rules", "ceto.rules.yml"), ("check", "config", "prometheus.yml"),
                      ("check", "config", "prometheus-local.yml"), ("test", "rules", "ceto.rules.test.yml")):
            done = subprocess.run(["promtool", *words], cwd=PROMETHEUS, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, f"promtool {' '.join(words)}: {done.stdout}{done.stderr}")


class Published(unittest.TestCase):
    """Against the metrics of a node that has had requests of each kind."""

    @classmethod
    def setUpClass(cls):
        # The first member of a cluster. The second one joins once the tables are there, so that the first has all their rows.
        config = f"seeds: {native.HOST}:{native.PORT + 6}\nstorage_port: {native.PORT + 6}\n"
        cls.node = Node("dashboards", config, shards=2)
        cls.addClassCleanup(cls.node.kill)
        cls.node.start()
        with Connection() as c:
            c.query(KEYSPACE)
            c.query("CREATE TABLE a.t (k int, l int, v text, PRIMARY KEY (k, l))")
            c.query("CREATE TABLE a.c (k int PRIMARY KEY, n counter)")
            for key in range(20):
                c.query(f"INSERT INTO a.t (k, l, v) VALUES ({key}, 1, 'x')")
            c.query("UPDATE a.t SET v = 'y' WHERE k = 1 AND l = 1")
            c.query("INSERT INTO a.t (k, l) VALUES (1, 2) IF NOT EXISTS")
            c.query("UPDATE a.c SET n = n + 1 WHERE k = 1")
            c.query("BEGIN BATCH DELETE FROM a.t WHERE k = 2; INSERT INTO a.t (k, l) VALUES (3, 3) APPLY BATCH")
            ctl("flush", "a")
            ctl("compact", "a")
            c.query("SELECT v FROM a.t WHERE k = 1")
            c.query("SELECT v FROM a.t")
        cls.start_second()
        cls.scraped = scraped()
        cls.published = {name: labels | TARGET for name, labels in cls.scraped.items()}
        cls.published |= OWN | {name: labels | TARGET for name, (labels, _) in LATER.items()}

    @classmethod
    def start_second(cls):
        """Another member, and the metrics of what the first one sends to it."""
        work = cls.node.work / "second"
        work.mkdir()
        port = native.PORT + 10
        (work / "config.yaml").write_text(f"seeds: {native.HOST}:{native.PORT + 6}\nstorage_port: {port + 6}\n")
        log = (work / "node.log").open("w")
        cls.addClassCleanup(log.close)
        command = [BINARY, "server", "--config", work / "config.yaml", "--workdir", work / "data", "--listen", native.HOST]
        ports = [f"--port={port}", "--shard-aware-port=0", "--api-port=0", "--prometheus-port=0"]
        second = subprocess.Popen([*command, *ports, "--smp=1", "--memory=128M", "--developer-mode"], stdout=log, stderr=log)
        cls.addClassCleanup(second.wait)
        cls.addClassCleanup(second.kill)
        deadline = time.monotonic() + 60
        while 'scylla_gossip_live{shard="0"} 1' not in metrics():
            assert second.poll() is None and time.monotonic() < deadline, (work / "node.log").read_text()
            time.sleep(0.05)

    @classmethod
    def tearDownClass(cls):
        cls.node.stop()
        shutil.rmtree(cls.node.work, ignore_errors=True)

    def test_dashboards_name_only_what_is_published(self):
        checked = 0
        for place, expression, legend in expressions():
            with self.subTest(place=place, expression=expression):
                expression = promql.without_variables(expression, GRAFANA_VARIABLES)
                self.assertEqual(list(complaints(expression, self.published)), [])
                self.assertLessEqual(set(re.findall(r"{{(\w+)}}", legend)), labels_of(expression, self.published), "the legend")
                checked += 1
        self.assertGreater(checked, 150)

    def test_rules_name_only_what_is_published(self):
        text = (PROMETHEUS / "ceto.rules.yml").read_text()
        published = self.published | recorded(text)
        for rule in rules(text):
            with self.subTest(rule=rule["name"]):
                self.assertEqual(list(complaints(rule["expr"], published)), [])
                told = {label for key in ("summary", "description", "runbook")
                        for label in re.findall(r"\$labels\.(\w+)", rule.get(key, ""))}
                self.assertLessEqual(told, labels_of(rule["expr"], published), "labels in annotations")

    def test_what_comes_later_is_still_named_by_its_source(self):
        for name, (labels, source) in LATER.items():
            self.assertNotIn(name, self.scraped, "it can be checked like the others")
            text = Path(REPO / source).read_text()
            self.assertIn(f'"{name}"', text)
            for label in labels - {"shard"}:
                self.assertIn(f'"{label}"', text)

    def test_metrics_of_tables_the_process_and_group_0_tell_the_truth(self):
        text = metrics()

        def values(name, *labels):
            lines = re.findall(rf"(?m)^{name}\{{(.*)\}} (\S+)$", text)
            return [float(value) for of, value in lines if all(label in of.split(",") for label in labels)]

        table = ('cf="t"', 'ks="a"')
        # 20 rows, one changed, a conditional one, and the batch; the row cache of either shard answers the read.
        self.assertGreaterEqual(sum(values("ceto_table_writes", *table)), 22)
        self.assertEqual(sum(values("ceto_table_reads", *table)), 1)
        self.assertGreaterEqual(sum(values("ceto_table_range_reads", *table)), 1)
        self.assertGreater(max(values("ceto_table_write_latency", *table, 'quantile="0.99"')), 0)
        self.assertLessEqual(max(values("ceto_table_read_tombstones", *table, 'quantile="0.99"')), 10)
        self.assertEqual(sum(values("ceto_table_file_partitions", *table)), 20, "one is a deletion")
        self.assertGreater(sum(values("ceto_table_uncompressed_bytes", *table)), 20 * 4)
        self.assertGreater(max(values("ceto_table_partition_bytes_max", *table)), 0)
        self.assertGreater(sum(values("ceto_table_resident_bytes", *table)), 0)
        self.assertEqual(len(values("ceto_table_memtable_bytes", *table)), 2, "one of each shard")
        resident = values("process_resident_memory_bytes")
        self.assertEqual(len(resident), 1, "of the process, not of each shard")
        self.assertGreater(resident[0], self.node.rss_mb() << 19)
        self.assertGreater(values("process_cpu_seconds_total")[0], 0)
        self.assertLess(abs(values("process_start_time_seconds")[0] - (self.node.work / "pid").stat().st_mtime), 120)
        self.assertEqual(values("ceto_raft_is_leader"), [1])
        self.assertEqual(values("ceto_raft_knows_leader"), [1])
        self.assertGreater(values("ceto_raft_applied_index")[0], 0)
        self.assertLessEqual(values("ceto_raft_applied_index"), values("ceto_raft_committed_index"))
        self.assertGreaterEqual(values("ceto_raft_last_index")[0], 3, "of three schema changes")
        self.assertEqual(values("scylla_gossip_live"), [1])
        self.assertGreater(sum(values("ceto_internode_requests", 'node="2"')), 0)
        self.assertGreater(values("ceto_raft_term")[0], 0)
        for free, least in zip(values("ceto_disk_free_bytes"), values("ceto_disk_free_bytes_min"), strict=True):
            self.assertGreater(free, least)
        used, most = (sum(values(name)) for name in ("scylla_commitlog_disk_active_bytes", "ceto_commitlog_disk_bytes_max"))
        self.assertLessEqual(0, used)
        self.assertLess(used, most)
        for name in ("ceto_coordinator_read_repairs", "ceto_coordinator_read_repairs_failed", "ceto_late_writes_dropped",
                     "ceto_batchlog_kept"):
            self.assertEqual(values(name), [0, 0], f"{name}: 0 before the first one")


if __name__ == "__main__":
    outcome = unittest.main(exit=False, verbosity=2).result
    failed, skipped = len(outcome.failures) + len(outcome.errors), len(outcome.skipped)
    print(f"{outcome.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed or not outcome.testsRun else 0)
