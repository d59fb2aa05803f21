"""`ceto local` as people and scripts use it: one command starts all nodes, verbs act on one, and nothing is left behind."""

import os
import re
import signal
import socket
import sys
import unittest

from cluster import FIRST, NODES, Cluster, address, is_alive, start_fails, until

LAST = NODES


class Local(unittest.TestCase):
    def cluster(self, **how):
        cluster = Cluster(self._testMethodName, **how)
        self.addCleanup(lambda: cluster.clean_up(self.has_passed()))
        return cluster

    def has_passed(self):
        result = self._outcome.result
        return not any(test is self for test, _ in [*result.failures, *result.errors])

    def assert_all_end(self, pids):
        until("the end of every node", lambda: not any(map(is_alive, pids)))

    def assert_agree(self, cluster):
        rows = cluster.status()
        self.assertEqual([row["ADDRESS"] for row in rows], [address(node + 1) for node in range(NODES)])
        self.assertEqual({row["STATE"] for row in rows}, {"runs"})
        self.assertEqual(len({row["SCHEMA"] for row in rows}), 1)
        for row in rows:
            others = [str(node + 1) for node in range(NODES) if str(node + 1) != row["NODE"]]
            wanted = {0: "alone", 1: f"node {', '.join(others)} up"}.get(len(others), f"nodes {', '.join(others)} up")
            self.assertEqual(row["OTHERS"], wanted)

    def test_the_life_of_a_cluster(self):
        cluster = self.cluster().wait_until_ready()
        pids = cluster.pids()
        ready = cluster.said(r"ready: .*")[0]
        self.assertRegex(ready, "1 node answers after" if NODES == 1 else f"{NODES} nodes agree after")
        self.assertIn(f"connect with: cqlsh {FIRST} 9042", ready)
        self.assertTrue(cluster.said(rf"node-{LAST} \| ceto ready on {re.escape(address(LAST))}:9042"))
        self.assert_agree(cluster)
        self.assertEqual([int(row["PID"]) for row in cluster.status()], pids)

        self.assertEqual(cluster.verb("kill", LAST), f"node {LAST}: killed\n")
        self.assertFalse(is_alive(pids[-1]))
        row = cluster.status()[-1]
        self.assertEqual((row["PID"], row["STATE"], row["OTHERS"]), ("-", "killed", "-"))
        if NODES > 1:
            self.assertIn(f"node {LAST} down", cluster.status()[0]["OTHERS"])
        self.assertIn(f"`ceto local start {LAST} --dir", cluster.verb("stop", LAST, code=1))
        found = re.search(r"answers after .* as process (\d+)", cluster.verb("start", LAST))
        self.assertTrue(is_alive(int(found[1])))
        self.assertIn("runs already", cluster.verb("start", LAST, code=1))
        self.assert_agree(cluster)

        self.assertEqual(cluster.verb("pause", LAST), f"node {LAST} is paused\n")
        self.assertIn("paused already", cluster.verb("pause", LAST, code=1))
        row = cluster.status()[-1]
        self.assertEqual(row["STATE"], "paused")
        self.assertIn("does not answer", row["OTHERS"])
        self.assertEqual(cluster.verb("resume", LAST), f"node {LAST} goes on\n")
        self.assertIn("is not paused", cluster.verb("resume", LAST, code=1))
        self.assert_agree(cluster)

        self.assertEqual(cluster.verb("stop", LAST), f"node {LAST}: stopped (exit status: 0)\n")
        cluster.verb("start", LAST)
        self.assert_agree(cluster)
        for wrong in (0, NODES + 1):
            self.assertIn(f"there is no node {wrong}: the nodes are 1 to {NODES}", cluster.verb("start", wrong, code=1))
            self.assertIn(f"there is no node {wrong}", cluster.verb("kill", wrong, code=1))
        pids = [int(row["PID"]) for row in cluster.status()]
        self.assertEqual(cluster.end(), 0)
        self.assertFalse(any(map(is_alive, pids)))
        ended = [int(found[1]) for line in cluster.own[-NODES - 1:] if (found := re.search(r"node (\d+): stopped", line))]
        self.assertEqual(ended, list(range(NODES, 0, -1)), "drained one after the other, the last one first")
        self.assertIn("no `ceto local` runs in", cluster.verb("status", code=1))

    def test_nothing_outlives_a_supervisor_that_is_killed(self):
        cluster = self.cluster().wait_until_ready()
        pids = cluster.pids()
        cluster.verb("pause", 1)
        cluster.end(signal.SIGKILL)
        self.assert_all_end(pids)
        self.assertIn("start it with `ceto local --dir", cluster.verb("status", code=1))
        again = self.cluster(keeps=True).wait_until_ready()
        self.assert_agree(again)
        self.assertEqual(again.end(signal.SIGTERM), 0)

    def test_a_second_signal_ends_all_nodes_at_once(self):
        cluster = self.cluster().wait_until_ready()
        pids = cluster.pids()
        # A stopped process does not drain, however often it is asked to.
        os.kill(pids[-1], signal.SIGSTOP)
        cluster.process.send_signal(signal.SIGINT)
        cluster.wait_for("drains and ends the nodes one after the other")
        self.assertTrue(is_alive(pids[-1]))
        self.assertEqual(cluster.end(), 1)
        self.assertFalse(any(map(is_alive, pids)))
        self.assertTrue(cluster.said("SIGINT.*: ends all nodes at once"))

    def test_a_paused_node_is_drained_too(self):
        cluster = self.cluster().wait_until_ready()
        cluster.verb("pause", LAST)
        self.assertEqual(cluster.end(), 0)

    def test_a_node_that_ends_by_itself_is_told_and_not_started_again(self):
        cluster = self.cluster().wait_until_ready()
        os.kill(cluster.pids()[-1], signal.SIGKILL)
        cluster.wait_for(rf"node {LAST} ended by itself \(signal: 9 \(SIGKILL\)\) after .* its last lines:")
        cluster.wait_for(rf"start it again with `ceto local start {LAST} --dir")
        self.assertTrue(cluster.said(r"^ceto local:     connect with: cqlsh"), "its last lines are shown")
        self.assertRegex(cluster.status()[-1]["STATE"], "ended by itself")
        cluster.verb("start", LAST)
        self.assert_agree(cluster)
        self.assertEqual(cluster.end(), 0)

    def test_what_is_missing_is_told_until_all_agree(self):
        cluster = self.cluster()
        pid = cluster.pids()[-1]
        os.kill(pid, signal.SIGSTOP)
        cluster.wait_for(rf"not ready after \d+ s: .*node {LAST} does not answer yet")
        self.assertFalse(cluster.said("ceto local: ready"))
        self.assertEqual(cluster.status()[-1]["STATE"], "starting")
        os.kill(pid, signal.SIGCONT)
        cluster.wait_until_ready()
        self.assertEqual(cluster.end(), 0)

    def test_a_start_that_fails_for_every_node_ends(self):
        cluster = self.cluster(options=["--", "--no-such-option"])
        self.assertEqual(cluster.wait(), 1)
        self.assertTrue(cluster.said(rf"node {LAST} ended by itself \(exit status: 2\)"))
        self.assertTrue(cluster.said("--no-such-option"))
        self.assertTrue(cluster.said("every node ended by itself before they agreed"))

    def test_starts_that_would_harm_are_refused_before_anything_starts(self):
        cluster = self.cluster()
        cluster.wait_until_ready()
        directory = str(cluster.directory)
        self.assertIn("another `ceto local` runs in", start_fails("--dir", directory))
        other = str(cluster.work / "other")
        text = start_fails("--dir", other, "--first", FIRST)
        self.assertIn(f"node 1 cannot listen on {FIRST}:9042", text)
        self.assertEqual(sorted(os.listdir(other)), ["local.lock"], "nothing else was begun")
        self.assertEqual(cluster.end(), 0)

        with socket.create_server((address(LAST), 7000)):
            text = start_fails("--dir", directory)
            self.assertIn(f"node {LAST} cannot listen on {address(LAST)}:7000", text)
        self.assertIn(f"use --first {FIRST}", start_fails("--dir", directory, "--first", "127.0.45.1"))
        self.assertIn("is in data center", start_fails("--dir", directory, "--dcs", f"a:{NODES}"))
        if NODES > 1:
            text = start_fails("--dir", directory, "--nodes", str(NODES - 1))
            self.assertIn(f"was made with {NODES} nodes from {FIRST} on", text)
            self.assertIn(f"give {NODES} or more", text)
        self.assertIn("--listen behind --", start_fails("--dir", other, "--", "--listen", FIRST))


if __name__ == "__main__":
    outcome = unittest.main(exit=False, verbosity=2).result
    failed = len(outcome.failures) + len(outcome.errors)
    print(f"{outcome.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed or not outcome.testsRun else 0)
