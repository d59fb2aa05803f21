"""pictures.py FOLDER  Pictures of the console for the manual, of a node with two shards under a steady load."""

import subprocess
import sys
import time

import browser
import native
from native import Connection
from node import BINARY, Node
from test_ui import BASE, KEYSPACE, ask, statement

SECONDS = 100


def stress(*words):
    """A load of `ceto stress`, as a process."""
    command = [BINARY, "stress", *words, "-node", "127.0.0.1", "-port", f"native={native.PORT}"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main(folder):
    node = Node("pictures", shards=2, memory="1G").start()
    window = browser.Browser()
    loads = []
    try:
        with Connection() as c:
            c.query(KEYSPACE)
            c.query("CREATE TABLE shop.orders (customer int, number int, total int, PRIMARY KEY (customer, number))")
            for number in range(300):
                c.query(f"INSERT INTO shop.orders (customer, number, total) VALUES ({number % 3}, {number}, 1)")
        stress("write", "n=60000", "-rate", "threads=8").wait()
        # Rows of table files go through the row cache.
        ask("/storage_service/keyspace_flush/keyspace1", body=b"", headers={"Content-Type": "application/json"})
        duration = f"duration={2 * SECONDS}s"
        loads = [
            stress("read", "no-warmup", duration, "-pop", "dist=gaussian(1..60000,30000,9000)", "-rate", "threads=6", "throttle=900/s"),
            stress("mixed", "no-warmup", "ratio(write=2,read=1)", duration, "-pop", "dist=uniform(1..60000)", "-rate", "threads=4", "throttle=450/s"),
        ]
        page = window.open(f"{BASE}/ui/", width=1200, height=800)
        time.sleep(SECONDS)
        page.picture(f"{folder}/console-overview.png")
        if ask("/storage_service/slow_query?enable=true&threshold=3000", {"Content-Type": "application/json"}, b"")[0] == 200:
            for total in range(4):
                statement(f"SELECT customer, sum(total) FROM shop.orders WHERE total > {total} GROUP BY customer ALLOW FILTERING")
            time.sleep(2)
            page.go("traces")
            page.wait("document.querySelector('main table')")
            page.picture(f"{folder}/console-slow.png", 560)
        page.go("cql")
        page.wait("document.querySelector('.editor')")
        page.evaluate("document.querySelector('.options input[type=checkbox]').click()")
        page.evaluate("document.querySelector('.editor').value = 'SELECT * FROM shop.orders WHERE customer IN (0, 1, 2) AND number < 100'")
        page.click(".act")
        page.click(".result a.link")
        page.wait("document.querySelectorAll('.waterfall .lane i').length >= 3")
        page.picture(f"{folder}/console-trace.png", 560)
        phone = window.open(f"{BASE}/ui/", width=390, height=844, scale=1.5, dark=True)
        time.sleep(SECONDS / 2)
        phone.evaluate("scrollTo(0, document.querySelector('.charts').offsetTop - 60)")
        time.sleep(1.2)
        phone.picture(f"{folder}/console-phone.png")
    finally:
        for load in loads:
            load.terminate()
            load.wait()
        window.close()
        node.kill()


main(sys.argv[1])
