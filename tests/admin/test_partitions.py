"""What administration tells of partitions and tombstones of tables: REST and `ceto ctl` of one node with two shards."""

import shutil
import socket
import sys
import threading
import unittest

import native
from native import Connection
from node import Node
from test_admin import API, KEYSPACE, ask, ctl

#: Of a sampling that nothing waits for to end.
LONG = "duration=600000"


class Partitions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("partitions", shards=2)
        # Also where the rest of this fails.
        cls.addClassCleanup(cls.node.kill)
        cls.node.start()
        with Connection() as c:
            c.query(KEYSPACE)
            c.query("CREATE TABLE a.t (k int PRIMARY KEY, v text)")
            c.query("CREATE TABLE a.two (k text, l int, v int, PRIMARY KEY ((k, l)))")
            c.query("CREATE TABLE a.d (k int PRIMARY KEY, v int) WITH gc_grace_seconds = 0")

    @classmethod
    def tearDownClass(cls):
        cls.node.kill()
        shutil.rmtree(cls.node.work, ignore_errors=True)

    def folder(self, table):
        return next((self.node.data / "data" / "a").glob(f"{table}-*"))

    def while_asked(self, ask_for):
        """The outcome of `ask_for`, during which one partition of each table is used more than the others."""
        outcome = []
        asking = threading.Thread(target=lambda: outcome.append(ask_for()))
        asking.start()
        with Connection() as c:
            while asking.is_alive():
                for key in range(6):
                    for k in (7, key):
                        c.query(f"INSERT INTO a.t (k, v) VALUES ({k}, 'x')")
                        c.query(f"SELECT v FROM a.t WHERE k = {k}")
                    for text in ("hot", f"cold {key}"):
                        c.query(f"INSERT INTO a.two (k, l, v) VALUES ('{text}', 1, 1)")
        asking.join()
        self.assertTrue(outcome, "the question failed")
        return outcome[0]

    def test_partitions_that_are_used_most_are_told(self):
        status, told = self.while_asked(lambda: ask("/column_family/toppartitions/a:t?duration=1500&list_size=3"))
        self.assertEqual(status, 200, told)
        self.assertEqual(set(told), {"read_cardinality", "read", "write_cardinality", "write"})
        for kind in ("read", "write"):
            self.assertEqual(told[f"{kind}_cardinality"], 7)
            self.assertEqual(len(told[kind]), 3)
            first, second = told[kind][:2]
            self.assertEqual(first["partition"], "7")
            self.assertGreater(first["count"], second["count"])
            self.assertEqual(first["error"], 0, "all partitions have a place")
        # In less memory than there are partitions the first one is found all the same.
        told = self.while_asked(lambda: ask("/column_family/toppartitions/a:t?duration=1500&capacity=3"))[1]
        self.assertEqual(told["write"][0]["partition"], "7")

    def test_tables_are_chosen_by_their_names_and_their_keyspaces(self):
        path = "/storage_service/toppartitions/?duration=1000"
        told = self.while_asked(lambda: ask(f"{path}&table_filters=a:two"))[1]
        self.assertEqual(told["write"][0]["partition"], "(a:two) hot:1")
        self.assertEqual((told["read"], told["read_cardinality"]), ([], 0))
        for filters in ("", "&keyspace_filters=a,system_auth"):
            names = {one["partition"] for one in self.while_asked(lambda: ask(path + filters))[1]["write"]}
            self.assertLessEqual({"(a:two) hot:1", "(a:t) 7"}, names)

    def test_mistakes_are_named(self):
        for path, part in (
            ("/column_family/toppartitions/a", "keyspace:table"),
            ("/column_family/toppartitions/a:nobody", "Unknown"),
            ("/column_family/toppartitions/a:t?duration=0", "duration"),
            ("/column_family/toppartitions/a:t?duration=86400000", "from 1 to 600000"),
            ("/column_family/toppartitions/a:t?capacity=1000000000", "from 1 to 8192"),
            ("/column_family/toppartitions/a:t?list_size=-1", "list_size"),
            ("/storage_service/toppartitions/?table_filters=a", "keyspace:table"),
            ("/storage_service/toppartitions/?keyspace_filters=nobody", "does not exist"),
            ("/column_family/sstables/by_key/a:t", "key"),
            ("/column_family/sstables/by_key/a:t?key=seven", "is no int"),
            ("/column_family/sstables/by_key/a:two?key=hot", "2 values (k:l)"),
            ("/column_family/sstables/by_key/a:t?key=7&format=octal", "format"),
            ("/column_family/sstables/by_key/a:two?key=00&format=hex", "no key of the table"),
            ("/column_family/tombstone_gc/a:nobody", "Unknown"),
        ):
            with self.subTest(path=path):
                status, said = ask(path)
                self.assertEqual(status, 400, said)
                self.assertIn(part, said["message"])

    def begin(self):
        """A client of a sampling that lasts."""
        client = socket.create_connection((native.HOST, API))
        self.addCleanup(client.close)
        client.sendall(f"GET /column_family/toppartitions/a:t?{LONG} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return client

    def wait_for(self, wanted):
        """Returns when a short sampling is answered so; a node that never does fails by the time of the request."""
        for _ in range(100_000):
            if ask("/column_family/toppartitions/a:t?duration=1")[0] == wanted:
                return
        self.fail(f"never {wanted}")

    def test_samplings_are_few_and_end_with_their_clients(self):
        clients = [self.begin(), self.begin()]
        self.wait_for(503)
        self.assertIn("samplings are at work", ask("/column_family/toppartitions/a:t")[1]["message"])
        for client in clients:
            client.close()
        self.wait_for(200)

    def test_zz_a_node_ends_while_it_samples(self):
        """Last by name: the node is started again."""
        clients = [self.begin(), self.begin()]
        self.wait_for(503)
        self.node.stop()
        for client in clients:
            client.settimeout(60)
            self.assertNotIn(b" 200 ", client.recv(4096))
        self.node.start()

    def test_the_verbs(self):
        said = self.while_asked(lambda: ctl("toppartitions", "a", "t", "1000", "-k", "1"))
        self.assertRegex(said, r"(?m)^WRITES Sampler:\n  Cardinality: ~7 \(256 capacity\)\n  Top 1 partitions:\n"
                               r"\tPartition +Count +\+/-\n\t7 +[1-9]\d* +0$")
        self.assertIn("READS Sampler:", said)
        said = ctl("toppartitions", "--cf-filters", "a:two", "-a", "READS", "-d", "1")
        self.assertIn("Nothing recorded", said)
        self.assertNotIn("WRITES", said)
        self.assertIn("Unknown", ctl("toppartitions", "a", "nobody", "1", code=1))

    def test_files_of_a_partition_are_told_by_its_key(self):
        with Connection() as c:
            c.query("CREATE TABLE a.files (k text, l int, v int, PRIMARY KEY ((k, l)))")
            ctl("disableautocompaction", "a", "files")
            for keys in (range(0, 20), range(10, 30)):
                for key in keys:
                    c.query(f"INSERT INTO a.files (k, l, v) VALUES ('x:y', {key}, 1)")
                ctl("flush", "a", "files")
            folder = self.folder("files")
            for key, count in ((5, 1), (15, 2), (25, 1), (99, 0)):
                found = ask(f"/column_family/sstables/by_key/a:files?key=x%5C%3Ay%3A{key}")[1]
                self.assertEqual(len(found), count, f"{key}: {found}")
                for file in found:
                    self.assertTrue((folder / file.rsplit("/", 1)[1]).exists(), file)
                shown = ctl("getsstables", "a", "files", f"x\\:y:{key}")
                self.assertEqual(shown.split(), found)
                digits = f"0003{b'x:y'.hex()}000004{key:08x}00"
                self.assertEqual(ctl("getsstables", "-hf", "a", "files", digits).split(), found)
            c.query("DROP TABLE a.files")
        ctl("clearsnapshot", "--all")

    def test_tombstones_are_kept_while_it_is_wanted(self):
        files = lambda: ask("/column_family/metrics/live_ss_table_count/a:d")[1]
        with Connection() as c:
            for path in ("/column_family/tombstone_gc/a:d", "/storage_service/tombstone_gc/a?cf=d"):
                self.assertEqual(ask(path, "DELETE")[0], 200)
                self.assertIs(ask("/column_family/tombstone_gc/a:d")[1], False)
                self.assertIs(ask("/column_family/tombstone_gc/a:t")[1], True, "of the one table only")
                for key in range(20):
                    c.query(f"INSERT INTO a.d (k, v) VALUES ({key}, 1)")
                    c.query(f"DELETE FROM a.d WHERE k = {key}")
                ctl("compact", "a", "d")
                self.assertGreater(files(), 0)
                self.assertEqual(ask(path, "POST")[0], 200)
                self.assertIs(ask("/column_family/tombstone_gc/a:d")[1], True)
                # A tombstone's time is over in the second after its own.
                for _ in range(10_000):
                    ctl("compact", "a", "d")
                    if files() == 0:
                        break
                self.assertEqual(files(), 0, "the tombstones are dropped")
            self.assertEqual(ask("/storage_service/tombstone_gc/a", "DELETE")[0], 200)
            self.assertIs(ask("/column_family/tombstone_gc/a:t")[1], False)
            self.assertEqual(ask("/storage_service/tombstone_gc/a", "POST")[0], 200)


if __name__ == "__main__":
    outcome = unittest.main(exit=False, verbosity=2).result
    failed = len(outcome.failures) + len(outcome.errors)
    print(f"{outcome.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed or not outcome.testsRun else 0)
