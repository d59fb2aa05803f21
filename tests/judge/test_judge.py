"""Three nodes, clients with conditional writes and serial reads, and harm to the nodes meanwhile; the program beside this file judges the history."""

import os
import random
import signal
import subprocess
import sys
import time
import unittest

from test_agreement import Nodes, until
from test_copies import QUORUM, ask

PROGRAM = os.environ["JUDGE"]
SEED = int(os.environ.get("SEED", "1"))
CLIENTS = int(os.environ.get("CLIENTS", "20"))
REQUESTS = int(os.environ.get("REQUESTS", "2000"))
SECONDS = int(os.environ.get("SECONDS_AT_LEAST", "90"))
PORT_OF_NODES = 7000


def rule(*words):
    return subprocess.run(["ip", "rule", *words], capture_output=True, text=True).returncode == 0


def can_cut():
    """Whether this process is in a network of its own, whose first rule may go behind others."""
    if os.environ.get("OWN_NETWORK") != "1":
        return False
    return rule("add", "pref", "1000", "lookup", "local") and rule("del", "pref", "0")


def cuts(pairs):
    """Rules for packets from one node to another that are thrown away without a word."""
    return [("pref", "10", "from", sender.address, "to", receiver.address, "blackhole") for sender, receiver in pairs]


class Harm:
    """What is done to the nodes: one thing after the other, now and then two at once, each kind as often as the others."""

    def __init__(self, nodes, has_cuts):
        self.nodes, self.random = nodes, random.Random(SEED)
        self.kinds = [self.kill, self.stop, self.kill_two, self.stop_two] + (
            [self.isolate, self.cut_pair, self.cut_one_way, self.isolate_and_kill] if has_cuts else [])
        self.done, self.began = [], time.monotonic()

    def pause(self, least, most):
        time.sleep(self.random.uniform(least, most))

    def one_after_the_other(self, is_over):
        turns = []
        while not is_over():
            turns = turns or self.random.sample(self.kinds, len(self.kinds))
            kind, nodes = turns.pop(), self.random.sample(self.nodes, 3)
            begun = time.monotonic() - self.began
            kind(nodes)
            self.done.append(f"{begun:.1f} to {time.monotonic() - self.began:.1f} s: {kind.__name__} {[node.number for node in nodes]}")
            self.pause(0.5, 2)

    def kill(self, nodes):
        nodes[0].kill()
        self.pause(0.2, 3)
        nodes[0].start().ready()

    def kill_two(self, nodes):
        """The majority goes, and comes back."""
        for node in nodes[:2]:
            node.kill()
        self.pause(0.2, 1)
        for node in nodes[:2]:
            node.start()
        for node in nodes[:2]:
            node.ready()

    def held(self, nodes, least, most):
        for node in nodes:
            node.process.send_signal(signal.SIGSTOP)
        try:
            self.pause(least, most)
        finally:
            for node in nodes:
                node.process.send_signal(signal.SIGCONT)

    def stop(self, nodes):
        self.held(nodes[:1], 0.5, 5)

    def stop_two(self, nodes):
        self.held(nodes[:2], 0.3, 3)

    def without(self, pairs, meanwhile):
        made = cuts(pairs)
        for words in made:
            assert rule("add", *words), words
        try:
            meanwhile()
        finally:
            for words in made:
                assert rule("del", *words), words

    def isolate(self, nodes):
        one, *others = nodes
        self.without([(one, o) for o in others] + [(o, one) for o in others], lambda: self.pause(1, 6))

    def cut_pair(self, nodes):
        """The third one is reached by both."""
        one, other, _ = nodes
        self.without([(one, other), (other, one)], lambda: self.pause(1, 6))

    def cut_one_way(self, nodes):
        one, other, _ = nodes
        self.without([(one, other)], lambda: self.pause(1, 6))

    def isolate_and_kill(self, nodes):
        """The node that was cut off is the only one to miss what a killed one has."""
        one, *others = nodes

        def meanwhile():
            self.pause(0.5, 2)
            others[0].kill()
            self.pause(0.2, 1)
            others[0].start().ready()

        self.without([(one, o) for o in others] + [(o, one) for o in others], meanwhile)


class Judge(Nodes):
    def test_conditional_writes_and_serial_reads_are_linearizable_whatever_happens(self):
        has_cuts = can_cut()
        nodes = self.nodes(3, shards=2)
        for node in nodes:
            node.start()
        for node in nodes:
            node.ready()
        self.agree(nodes)
        until("a quorum", lambda: self.answers(nodes))
        history = nodes[0].work.parent / "history.jsonl"
        command = [PROGRAM, "run", "-hosts", ",".join(node.address for node in nodes), "-history", history, "-seed", str(SEED)]
        command += ["-clients", str(CLIENTS), "-requests", str(REQUESTS), "-at-least", f"{SECONDS}s"]
        clients = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(clients.kill)
        harm = Harm(nodes, has_cuts)
        until("the first requests", lambda: clients.poll() is not None or self.is_begun(nodes))
        harm.one_after_the_other(lambda: clients.poll() is not None or time.monotonic() - harm.began > SECONDS)
        said = clients.communicate(timeout=900)[0]
        print(f"\n   {len(harm.done)} times harm{'' if has_cuts else ' (no network of its own: none was cut off)'}\n{said}", end="", file=sys.stderr)
        harm_log = nodes[0].work.parent / "harm"
        harm_log.write_text("\n".join(harm.done) + "\n")
        self.assertEqual(clients.returncode, 0, f"seed {SEED}: {said} The history is {history}, what was done is in {harm_log}")
        for node in nodes:
            wrong = [line for line in node.log().splitlines() if "panicked" in line or "internal error" in line]
            self.assertEqual(wrong[:5], [], f"the log of node {node.number}")

    def answers(self, nodes):
        """Whether all nodes know that the others are up."""
        try:
            for node in nodes:
                ask(node, "SELECT session_id FROM system_traces.sessions LIMIT 1", QUORUM)
            return True
        except Exception:
            return False

    def is_begun(self, nodes):
        return "begun" in nodes[0].tables("judge")


if __name__ == "__main__":
    unittest.main(verbosity=2)
