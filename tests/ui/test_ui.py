"""The console in a real browser: every tab of one node with two shards, while a client loads it a little."""

import json
import shutil
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

import browser
import native
from native import Connection
from node import Node

BASE = f"http://127.0.0.1:{native.PORT + 2}"
TABS = ("overview", "tables", "partitions", "traces", "clients", "cql", "nodes")
KEYSPACE = "CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
PHONE = 390


def ask(path, headers=(), body=None):
    """Status, headers and body of an answer."""
    request = urllib.request.Request(BASE + path, data=body, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def statement(text, headers=(), **options):
    """Status and answer of the page's way to run a statement."""
    body = json.dumps({"statement": text, **options}).encode()
    status, _, answer = ask("/ui/cql", {"Content-Type": "application/json", **dict(headers)}, body)
    return status, json.loads(answer)


class Load(threading.Thread):
    """A client that writes and reads some rows until it is told to end."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ended = threading.Event()

    def run(self):
        with Connection() as c:
            while not self.ended.is_set():
                for k in range(20):
                    c.query(f"INSERT INTO shop.load (k, v) VALUES ({k}, 'x')")
                    c.query(f"SELECT v FROM shop.load WHERE k = {k}")
                self.ended.wait(0.05)


class Console(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("ui", shards=2)
        # Also where the rest of this fails.
        cls.addClassCleanup(cls.node.kill)
        cls.node.start()
        with Connection() as c:
            c.query(KEYSPACE)
            c.query("CREATE TABLE shop.load (k int PRIMARY KEY, v text)")
        cls.load = Load()
        cls.load.start()
        cls.addClassCleanup(cls.load.ended.set)
        cls.browser = browser.Browser() if browser.program() else None
        if cls.browser:
            cls.addClassCleanup(cls.browser.close)

    @classmethod
    def tearDownClass(cls):
        cls.load.ended.set()
        cls.load.join()
        cls.node.kill()
        shutil.rmtree(cls.node.work, ignore_errors=True)

    def setUp(self):
        self.pages = []

    def open(self, tab, **options):
        if not self.browser:
            self.skipTest("no Chromium on this machine")
        page = self.browser.open(f"{BASE}/ui/#{tab}", **options)
        self.pages.append(page)
        return page

    def tearDown(self):
        for page in self.pages:
            foreign = [address for address in page.asked if not address.startswith(f"{BASE}/")]
            said = list(page.said)
            page.close()
            self.assertEqual(said, [], "the console says nothing")
            self.assertEqual(foreign, [], "no request leaves the node")

    def run_statement(self, page, text, expected):
        """Runs a statement in the tab CQL; the text of its result, once that has `expected`."""
        page.wait("document.querySelector('.editor')")
        page.evaluate(f"document.querySelector('.editor').value = {json.dumps(text)}; document.querySelector('.result').replaceChildren()")
        page.click(".act")
        page.wait(f"document.querySelector('.result').innerText.includes({json.dumps(expected)})")
        return page.text(".result")

    def test_every_tab_opens_on_a_desktop_and_on_a_phone(self):
        expected = {
            "overview": "Processor time by scheduling group", "tables": "shop", "partitions": "Nothing counted yet", "traces": "Traced requests",
            "clients": "anonymous", "cql": "Run", "nodes": "datacenter1",
        }
        self.assertEqual(set(expected), set(TABS))
        page = self.open("overview")
        page.wait("document.querySelector('#state').innerText === 'NORMAL'")
        self.assertIn("127.0.0.1", page.text("#node"))
        for width in (1360, PHONE):
            page.resize(width, 844)
            for tab, text in expected.items():
                page.go(tab)
                page.wait(f"document.querySelector('main').innerText.includes({json.dumps(text)})")
                wide = page.evaluate("document.documentElement.scrollWidth")
                self.assertLessEqual(wide, width, f"{tab} can be scrolled sideways")

    def test_charts_get_points(self):
        page = self.open("overview")
        value = "[...document.querySelectorAll('.chart .legend button')].find((one) => one.innerText.startsWith('{}'))?.querySelector('output').value"
        for name in ("reads", "inserts", "p50", "statement"):
            page.wait(f"parseFloat({value.format(name)}) > 0")
        # Pixels in the colours of the series, and of the heat map.
        painted = """(title, names) => {
          const canvas = document.querySelector(`.chart[aria-label="${title}"] canvas`);
          const style = getComputedStyle(document.documentElement);
          const wanted = names.map((name) => style.getPropertyValue(name).trim());
          const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height }).getContext("2d", { willReadFrequently: true });
          copy.drawImage(canvas, 0, 0);
          const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
          const found = new Set();
          for (let i = 0; i < data.length; i += 4) found.add("#" + [0, 1, 2].map((n) => data[i + n].toString(16).padStart(2, "0")).join(""));
          return wanted.every((color) => found.has(color));
        }"""
        for title, names in (("Requests by kind", ["--c1", "--c2"]), ("Latency", ["--c1"]), ("Latency over time", ["--h5"])):
            page.wait(f"({painted})({json.dumps(title)}, {json.dumps(names)})")
        page.evaluate("[...document.querySelectorAll('.chart .legend button')].find((one) => one.innerText.startsWith('reads')).click()")
        page.wait(f"!({painted})('Requests by kind', ['--c1'])")
        # The cursor by keys shows exact values.
        page.evaluate("document.querySelector('.chart canvas').dispatchEvent(new KeyboardEvent('keydown', { key: 'End', bubbles: true }))")
        page.wait("/inserts\\s*[\\d,.]+ .s/.test(document.querySelector('.chart .tip').innerText)")
        page.click(".bar .choice button[value='1']")
        page.wait("document.querySelector('.bar .choice button[value=\"1\"]').ariaPressed === 'true'")
        page.wait(f"parseFloat({value.format('inserts')}) > 0")

    def test_statements_run_and_errors_are_shown(self):
        page = self.open("cql")
        self.run_statement(page, "CREATE TABLE shop.rows (k int, n int, v text, PRIMARY KEY (k, n))", "The schema was changed")
        self.run_statement(page, "USE shop", "shop now")
        for n in range(30):
            self.assertEqual(statement(f"INSERT INTO shop.rows (k, n, v) VALUES (1, {n}, 'it''s {n}')")[0], 200)
        self.run_statement(page, "INSERT INTO rows (k, n) VALUES (2, 0)", "Done")
        page.evaluate("document.querySelectorAll('.options select')[1].value = '25'")
        found = self.run_statement(page, "SELECT * FROM rows WHERE k = 1", "25 rows so far")
        self.assertIn("it's 24", found)
        page.evaluate("[...document.querySelectorAll('.result button')].find((one) => one.innerText === 'Next page').click()")
        page.wait("document.querySelectorAll('.result tbody tr').length === 30")
        self.assertIn("it's 29", page.text(".result"))
        self.assertIn("null", self.run_statement(page, "SELECT v FROM rows WHERE k = 2", "1 row"))
        found = self.run_statement(page, "SELECT * FROM shop.none", "0x2200")
        self.assertIn("none does not exist", found)

    def test_a_trace_is_drawn(self):
        page = self.open("cql")
        page.evaluate("document.querySelector('.options input[type=checkbox]').click()")
        self.run_statement(page, "SELECT * FROM shop.load LIMIT 3", "Show the trace")
        page.click(".result a")
        page.wait("document.querySelectorAll('.waterfall .lane i').length >= 3")
        self.assertIn("SELECT * FROM shop.load LIMIT 3", page.text(".parameters"))
        begins = page.evaluate("[...document.querySelectorAll('.waterfall .lane i')].map((bar) => parseFloat(bar.style.left))")
        self.assertEqual(begins, sorted(begins))
        ends = page.evaluate("[...document.querySelectorAll('.waterfall .lane i')].map((bar) => parseFloat(bar.style.left) + parseFloat(bar.style.width))")
        self.assertTrue(all(0 <= end <= 100.01 for end in ends), ends)
        page.click("main .bar a")
        page.evaluate("[...document.querySelectorAll('.choice button')].find((one) => one.innerText === 'Traced requests').click()")
        page.wait("document.querySelector('main table')?.innerText.includes('SELECT * FROM shop.load LIMIT 3')")

    def test_slow_queries_are_listed(self):
        page = self.open("traces")
        if ask("/storage_service/slow_query")[0] == 404:
            page.wait("document.querySelector('main').innerText.includes('No log of slow queries')")
            return
        page.wait("document.querySelector('main').innerText.includes('Recording is off')")
        press = "(name) => { const one = [...document.querySelectorAll('.steer button')].find((one) => one.innerText === name); one?.click(); return Boolean(one); }"
        page.wait(f"({press})('Record')")
        page.wait("document.querySelector('main').innerText.includes('Records requests from')")
        page.evaluate("Object.assign(document.querySelector('.ms'), { value: '0.001' }).dispatchEvent(new Event('change'))")
        until = time.monotonic() + 10
        while json.loads(ask("/storage_service/slow_query")[2])["threshold"] != 1 and time.monotonic() < until:
            time.sleep(0.05)
        statement("SELECT * FROM shop.load WHERE k = 5")
        page.wait("[...document.querySelectorAll('.bar .plain')].find((one) => one.innerText === 'Reload').click() || document.querySelector('main table')?.innerText.includes('shop.load WHERE k = 5')")
        page.wait(f"({press})('Stop')")
        page.wait("document.querySelector('main').innerText.includes('Recording is off')")
        page.wait("[...document.querySelectorAll('main tbody tr')].find((row) => row.innerText.includes('shop.load WHERE k = 5'))")
        page.evaluate("[...document.querySelectorAll('main tbody tr')].find((row) => row.innerText.includes('shop.load WHERE k = 5')).querySelector('a').click()")
        page.wait("document.querySelector('.parameters')?.innerText.includes('shop.load WHERE k = 5')")
        page.wait("document.querySelectorAll('.waterfall .lane i').length >= 3")

    def test_partitions_are_counted(self):
        page = self.open("partitions")
        page.wait("document.querySelectorAll('main select')[0].options.length > 1")
        page.evaluate("document.querySelectorAll('main select')[1].value = '2'")
        page.click(".act")
        page.wait("document.querySelectorAll('.two tbody tr').length >= 2")
        self.assertIn("shop.load", page.text(".two"))

    def test_the_page_is_guarded(self):
        status, headers, text = ask("/ui/")
        self.assertEqual(status, 200)
        self.assertIn("default-src 'self'", headers["Content-Security-Policy"])
        self.assertNotIn("unsafe", headers["Content-Security-Policy"])
        self.assertEqual(ask("/ui/", {"If-None-Match": headers["ETag"]})[0], 304)
        self.assertEqual(ask("/ui/", {"Host": "evil.example"})[0], 403)
        self.assertEqual(ask("/ui/main.js", {"If-None-Match": headers["ETag"]})[0], 200)
        for body, kind, expected in (
            (b'{"statement": "SELECT"}', "text/plain", 415),
            (b"statement=SELECT", "application/x-www-form-urlencoded", 415),
            (b'{"statement": ', "application/json", 400),
            (b'{"statement": "SELECT", "page_size": 501}', "application/json", 400),
        ):
            self.assertEqual(ask("/ui/cql", {"Content-Type": kind}, body)[0], expected, body)
        self.assertEqual(statement("SELECT now() FROM system.local", {"Origin": "http://evil.example"})[0], 403)
        self.assertEqual(statement("SELECT now() FROM system.local", {"Origin": BASE})[0], 200)
        self.assertEqual(ask("/ui/cql")[0], 405)

    def test_statements_are_answered_as_rows_of_text(self):
        status, told = statement("SELECT cluster_name, gossip_generation, tokens FROM system.local")
        self.assertEqual((status, told["kind"], told["values_cut"]), (200, "rows", 0))
        self.assertEqual([column["type"] for column in told["columns"]], ["text", "int", "frozen<set<text>>"])
        self.assertEqual(told["rows"][0][0], "Test Cluster")
        status, told = statement("SELECT", keyspace="shop")
        self.assertEqual((status, told["kind"], told["error"]["code"], told["error"]["name"]), (200, "error", 0x2000, "SyntaxError"))
        self.assertEqual(statement("SELECT k FROM load", keyspace="none")[1]["error"]["code"], 0x2200)
        # Pages by a state in hexadecimal, and long values.
        first = statement("SELECT k FROM load", keyspace="shop", page_size=15, consistency="quorum")[1]
        second = statement("SELECT k FROM load", keyspace="shop", page_size=15, paging_state=first["paging_state"])[1]
        self.assertEqual(len({row[0] for row in first["rows"] + second["rows"]}), 20)
        self.assertIsNone(second["paging_state"])
        with Connection() as c:
            c.query("CREATE TABLE IF NOT EXISTS shop.long (k int PRIMARY KEY, v text)")
            c.query(f"INSERT INTO shop.long (k, v) VALUES (1, '{'a' * 40000}')")
        told = statement("SELECT v FROM shop.long")[1]
        self.assertEqual((told["values_cut"], len(told["rows"][0][0])), (1, (16 << 10) + 1))

    def test_figures_of_each_shard_grow(self):
        first = json.loads(ask("/ui/data")[2])
        self.assertEqual((len(first["shards"]), first["node"]["mode"], first["node"]["nodes_up"]), (2, "NORMAL", 1))
        time.sleep(0.3)
        second = json.loads(ask("/ui/data")[2])
        counts = [sum(shard["scylla_transport_requests_served"] for shard in data["shards"]) for data in (first, second)]
        self.assertLess(counts[0], counts[1])
        self.assertIn("reactor_cpu_ns_total{group=statement}", first["shards"][1])
        tables = json.loads(ask("/ui/tables")[2])
        self.assertGreater(tables["shop.load"]["ceto_table_writes"], 0)


if __name__ == "__main__":
    outcome = unittest.main(exit=False, verbosity=2).result
    failed, skipped = len(outcome.failures) + len(outcome.errors), len(outcome.skipped)
    print(f"{max(0, outcome.testsRun - failed - skipped)} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed or not outcome.testsRun else 0)
